"""Output of the commands: tables and JSON on stdout, progress and messages on stderr.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.

*Failures.* One line on stderr, in the terms of the command line, and an exit status.

======= ==================================================================
``1``   the data or the run is at fault, or results cannot be written to stdout; if its reader has closed the pipe,
        the command ends so without a message
``2``   usage: an option is unknown or has an invalid value
``3``   a rule failed or is undecided (``check``, ``evaluate --rule``)
``130`` interrupted by Ctrl-C
======= ==================================================================

A stdout that is closed from the start is not an error: nobody wants the results. What cannot be written to stderr is
dropped and changes no status (`streameval.posix`).
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval.errors import OptionError, StreamevalError, mask_credentials
from streameval.saving import LINEAGE, check_writable, delete_all, ending, save, write_whole
from streameval.wording import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from rich.console import RenderableType

    from streameval.evaluation.files import Forecast
    from streameval.evaluation.result import Evaluation


PLAIN = ("json", "csv", "parquet")  # formats of results without a page
PAGES = (*PLAIN, "html", "prom")
JUDGED = (*PAGES, LINEAGE)  # of results that rules judge
_PICTURES = ("png", "svg", "pdf")
_WIDTH = 10_000  # columns of piped output, so that no table is wrapped


@dataclass(frozen=True)
class Output:
    """Where a command writes its results.

    Attributes
    ----------
    json_to, csv_to : files of ``--json`` and ``--csv``, ``-`` for stdout
    out : files of ``--out``
    plot : file of ``--plot``
    quiet : whether to print no table
    """

    json_to: str | None = None
    csv_to: str | None = None
    out: tuple[str, ...] = ()
    plot: str | None = None
    quiet: bool = False

    @classmethod
    def take(cls, given: dict[str, Any], formats: Sequence[str] = PAGES) -> Output:
        """Remove the destinations from the options of a command, and check them before anything is read.

        Raises
        ------
        OptionError
            If a file of ``--out`` or ``--plot`` has another format than the command writes, or both JSON and CSV are to
            be printed.
        StreamevalError
            If a file cannot be written.
        """
        to = cls(**{name: given.pop(name) for name in cls.__dataclass_fields__ if name in given})
        if to.plot is not None:
            ending(to.plot, _PICTURES, "plot")
        check_writable(*(path for path in (to.json_to, to.csv_to, to.plot) if path not in (None, "-")))
        if to.json_to == to.csv_to == "-":
            raise OptionError("--json - and --csv - cannot both print to stdout; write one of them to a file")
        for path in to.out:
            ending(path, formats)
        check_writable(*to.out)
        return to

    @property
    def shows(self) -> bool:
        """Whether the table is printed."""
        return not self.quiet and "-" not in (self.json_to, self.csv_to)

    def deliver(self, text: Callable[[], str], shown: Callable[[], RenderableType | str]) -> None:
        """Write the JSON to its destination, and the table to stdout unless something else is written there.

        Parameters
        ----------
        text : returns the JSON
        shown : returns the table, or lines of text
        """
        if self.json_to is not None:
            emit(self.json_to, text().rstrip("\n") + "\n")
        if self.shows:
            tell(shown())

    def deliver_rows(
        self, facts: object, rows: Callable[[], list[dict[str, Any]]], shown: Callable[[], RenderableType | str]
    ) -> None:
        """Write plain values as JSON, and as rows to the other files of ``--out``, and print the table."""
        import pyarrow as pa

        for path in self.out:
            save(path, {"json": lambda: as_json(facts) + "\n"}, lambda: pa.Table.from_pylist(rows()))
        self.deliver(lambda: as_json(facts), shown)

    def deliver_evaluation(self, results: Evaluation, lines: Sequence[str] = ()) -> None:
        """Write an evaluation to all files, and print its tables and some lines."""
        for path in self.out:
            results.save(path)
        self.deliver(lambda: results.to_json(indent=2), lambda: stack_tables(_evaluation_tables(results), *lines))

    def deliver_forecasts(self, forecasts: Sequence[Forecast]) -> None:
        """Print the forecasts of all passes of a run; as JSON, a list with one object per pass."""
        self.deliver(lambda: as_json([one.to_dict() for one in forecasts]), lambda: "\n\n".join(map(str, forecasts)))


def stack_tables(*parts: RenderableType) -> RenderableType:
    """Stack tables and lines vertically; a line is never read as markup."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def _evaluation_tables(found: Evaluation) -> RenderableType:
    """The tables of an evaluation, including its operating points if any were requested."""
    from streameval.metrics.catalogue import CATALOGUE
    from streameval.report.terminal import render

    usual = {entry.name for entry in CATALOGUE if entry.default}  # their thresholds are shown next to their values
    others = (r for r in found.results if r.slice is None and r.metric not in usual)
    has_points = any(r.threshold is not None or "=" in r.metric for r in others)
    points = found.operating_points().to_pylist() if has_points and found.columns("score") else []
    points = [row for row in points if row["at"] not in usual]
    return render(found, plain=is_piped(), points=points)


def as_json(value: object) -> str:
    """Encode plain values as JSON; NaN raises `ValueError`."""
    import json

    return json.dumps(value, indent=2, allow_nan=False)


def emit(path: str, text: str) -> None:
    """Write text to a file, or to stdout if the path is ``-``."""
    if path == "-":
        say(text, nl=False)
    else:
        write_whole(path, text)


def is_piped() -> bool:
    """Whether stdout is not a terminal."""
    from rich.console import Console

    return not Console().is_terminal


def tell(shown: RenderableType | str) -> None:
    """Write a table or text to stdout; piped output has no colours, rules or wrapped lines."""
    if isinstance(shown, str):
        say(shown)
        return
    from rich.console import Console

    from streameval.report.terminal import Visible, text

    console = Console(emoji=False)
    if console.is_terminal:
        console.print(Visible(shown))
    else:
        say(text(shown, _WIDTH))


def table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> RenderableType:
    """See `streameval.report.terminal.table`."""
    from streameval.report import terminal

    return terminal.table(names, rows, numbers, plain=is_piped())


def say(text: str, nl: bool = True) -> None:
    """Write lines to stdout; escape sequences and other invisible characters, which data may hold, are spelled out.

    Raises
    ------
    StreamevalError
        If writing fails, for example because the disk is full.
    BrokenPipeError
        If the reader has closed the pipe.
    """
    try:
        click.echo(visible_lines(text), nl=nl)
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise StreamevalError(f"stdout: cannot be written ({error.strerror})") from error


def _drop_output() -> bool:
    """Whether there is output that cannot be written; it is dropped, as Python would fail with it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def note(text: str) -> None:
    """Write a line to stderr, with invisible characters spelled out."""
    click.echo(visible(text), err=True)


@contextmanager
def progress_bar(quiet: bool, total: int | None = None) -> Iterator[Callable[..., None] | None]:
    """A progress bar on stderr with rows and rows per second; yields None if stderr is not a terminal.

    It yields a function of the rows done and all rows; if `total` is known, of the rows that have been added, which
    threads may call. Unless `quiet`, a line follows if compiled loops could not be cached on disk.
    """
    if quiet or not sys.stderr.isatty():
        yield None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                speed = task.speed or task.finished_speed or 0.0
                return Text(f"{task.completed:,.0f} rows  {speed / 1e6:,.1f} M rows/s")

        columns = TextColumn("{task.description}"), BarColumn(), Rate(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("rows", total=total)

            def update(done: int, rows: int = -1) -> None:
                progress.update(task, completed=done, total=rows if rows >= 0 else None)

            yield update if total is None else partial(progress.advance, task)
    loops = sys.modules.get("streameval.kernels.jit")  # not imported if no loop was needed
    if not quiet and loops is not None and not loops.is_cached():
        note("streameval: no writable folder for compiled code; set NUMBA_CACHE_DIR to start faster")


INTERRUPTED = 130  # exit status
_LOST = 1.2  # seconds after which the process is ended: the exception was lost, or cleaning up takes too long
_MESSAGE = "streameval: error: interrupted; nothing is half-written"


class Commands(click.Group):
    """A command group that reports failures as one line on stderr."""

    def __init__(self, *args: Any, **extra: Any) -> None:
        super().__init__(*args, **extra)
        self._interrupt = _Interrupt()

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command and exit.

        After an interrupt the process ends at once, without waiting for threads in the middle of a long step. Nothing
        is left half-written: spill files have no name, and unfinished files are deleted. The process also ends if
        the exception gets lost, as in callbacks of C libraries, which swallow exceptions.
        """
        self._interrupt = _Interrupt()
        if sys.stderr is sys.__stderr__ and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)  # only if this is the process's own command line
        try:
            return super().main(*args, **extra)
        except SystemExit as end:
            if sys.stderr is sys.__stderr__ and (end.code == INTERRUPTED or (self._interrupt.heard and end.code)):
                _end()
            raise

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments."""
        with self._failures():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with self._failures(ctx):
            return super().invoke(ctx)

    def _that_take(self, option: str) -> list[str]:
        """The commands that have an option."""
        return [verb for verb, command in self.commands.items() if any(option in one.opts for one in command.params)]

    @contextmanager
    def _failures(self, ctx: click.Context | None = None) -> Iterator[None]:
        """Turn exceptions into one line on stderr and an exit status."""
        try:
            yield
        except click.UsageError as error:
            text = message = error.format_message()
            if isinstance(error, click.NoSuchOption) and (verbs := self._that_take(error.option_name)):
                text = f"No such option '{error.option_name}'; {', '.join(verbs)} take{'s' * (len(verbs) == 1)} it"
            shown = visible_lines(mask_credentials(text))
            if shown == message:
                raise  # keeps its kind: without a command, click shows the help alone
            raise click.UsageError(shown, error.ctx) from None
        except StreamevalError as error:
            command = self.commands.get(ctx.invoked_subcommand or "") if ctx else None
            text = _spell(error, command.params if command else ())
            _fail(text, 2 if isinstance(error, OptionError) else 1)
        except (KeyboardInterrupt, click.Abort):
            self._interrupt.tell()
        except BrokenPipeError:
            raise  # the reader has closed the pipe; click exits quietly
        except OSError as error:  # with its file if it has one
            text = error.strerror or str(error)
            if error.filename is None and _drop_output():  # of help, which click prints
                text = f"stdout: cannot be written ({text})"
            _fail(text if error.filename is None else f"{error.filename}: {text}", 1)
        except Exception:
            if self._interrupt.heard:  # Python 3.11 turns an interrupt in __set_name__ into a RuntimeError
                self._interrupt.tell()
            raise


class _Interrupt:
    """Handler of Ctrl-C for one run: exactly one line is printed, by the main thread or by the timer."""

    def __init__(self) -> None:
        self.heard = False
        self._untold = threading.Semaphore()

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt`, and start the timer that ends the process if it keeps running.

        Further interrupts are ignored, since one that comes while the process ends would show a traceback.
        """
        if self.heard:
            return
        self.heard = True
        last = threading.Timer(_LOST, self._end)
        last.daemon = True
        last.start()
        raise KeyboardInterrupt

    def tell(self) -> NoReturn:
        """Print the line and exit with status 130."""
        if self._untold.acquire(blocking=False):
            with suppress(OSError):
                click.echo(_MESSAGE, err=True)
        sys.exit(INTERRUPTED)

    def _end(self) -> None:
        if self._untold.acquire(blocking=False):
            with suppress(OSError):
                os.write(2, f"{_MESSAGE}\n".encode())
        _end()


def _end() -> NoReturn:
    """End the process without waiting for its threads."""
    delete_all()
    os._exit(INTERRUPTED)


def show_visibly() -> None:
    """Spell out invisible characters in what Python itself prints on stderr: log lines, and tracebacks of defects."""
    import logging
    import traceback

    class Visible(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return visible_lines(super().format(record))

    def tell(*error: Any) -> None:
        click.echo(visible_lines("".join(traceback.format_exception(*error))), err=True, nl=False)

    sys.excepthook = tell
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Visible())


def _fail(text: str, status: int) -> NoReturn:
    click.echo(f"streameval: error: {visible(' '.join(mask_credentials(text).split()))}", err=True)
    sys.exit(status)


def _spell(error: StreamevalError, params: Sequence[click.Parameter]) -> str:
    """The message of an error, with Python's argument names replaced by command-line options."""
    text, alone = str(error), error.arguments if isinstance(error, OptionError) else ()
    value = "" if isinstance(error, OptionError) else r"(?![^\s'\"]*/)"  # not in a path such as label=1/a.parquet
    for param in params:
        text = _with_option(text, param, value, param.name in alone)
    return text


def _with_option(text: str, param: click.Parameter, value: str, alone: bool) -> str:
    """Replace an argument by its option: ``memory=0`` becomes ``--memory 0``, ``approx=True`` becomes ``--approx``.

    A name that stands `alone` is replaced in what the message is about, later only before its hint: it may be a word.
    """
    option = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
    flag = r"=True\b|" if getattr(param, "is_flag", False) else ""
    about = next(re.finditer(r"[:;] |$", text)).start()
    shown = ""
    for part, bare in ((text[:about], r"|\b"), (text[about:], rf"|\b(?= \({option}\))")):
        named = rf"(?<!\S){param.name}(?:{flag}=(?!\S)|(=){value}{bare * alone})"
        shown += re.sub(named, lambda given: f"{option} " if given[1] else option, part)
    if shown == text:
        return text
    # drop the hint in brackets if it repeats the option
    return re.sub(
        rf" \({option}(?: (\w+))?\)",
        lambda hint: hint[0] * (f"{option} '{hint[1]}'" not in shown if hint[1] else 0),
        shown,
    )
