"""Output of the commands: tables and JSON on stdout, progress and messages on stderr.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streameval.errors import OptionError, StreamevalError
from streameval.saving import check_writable, ending, save, write_whole
from streameval.wording import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from streameval.evaluation.files import Forecast
    from streameval.evaluation.result import Evaluation

PLAIN = ("json", "csv", "parquet")  # formats of results without a page
PAGES = (*PLAIN, "html")
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
        self, facts: Any, rows: Callable[[], list[dict[str, Any]]], shown: Callable[[], RenderableType | str]
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
        self.deliver(lambda: results.to_json(indent=2), lambda: stacked(_evaluation_tables(results), *lines))

    def deliver_forecasts(self, forecasts: Sequence[Forecast]) -> None:
        """Print the forecasts of all passes of a run; as JSON, a list with one object per pass."""
        self.deliver(lambda: as_json([one.to_dict() for one in forecasts]), lambda: "\n\n".join(map(str, forecasts)))


def stacked(*parts: RenderableType) -> RenderableType:
    """Stack tables and lines vertically; a line is never read as markup."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(part) if isinstance(part, str) else part for part in parts))


def _evaluation_tables(found: Evaluation) -> RenderableType:
    """The tables of an evaluation, including its operating points if any were requested."""
    from streameval.metrics.catalogue import CATALOGUE
    from streameval.report import render

    usual = {entry.name for entry in CATALOGUE if entry.default}  # their thresholds are shown next to their values
    others = (r for r in found.results if r.slice is None and r.metric not in usual)
    asked = any(r.threshold is not None or "=" in r.metric for r in others)
    points = found.operating_points().to_pylist() if asked and found.columns("score") else []
    points = [row for row in points if row["at"] not in usual]
    return render(found, plain=piped(), points=points)


def as_json(value: Any) -> str:
    """Encode plain values as JSON; NaN raises `ValueError`."""
    import json

    return json.dumps(value, indent=2, allow_nan=False)


def emit(path: str, text: str) -> None:
    """Write text to a file, or to stdout if the path is ``-``."""
    if path == "-":
        say(text, nl=False)
    else:
        write_whole(path, text)


def piped() -> bool:
    """Whether stdout is not a terminal."""
    from rich.console import Console

    return not Console().is_terminal


def tell(shown: RenderableType | str) -> None:
    """Write a table or text to stdout; piped output has no colours, rules or wrapped lines."""
    if isinstance(shown, str):
        say(shown)
        return
    from rich.console import Console

    from streameval.report.terminal import Visible

    console = Console(emoji=False)
    if console.is_terminal:
        console.print(Visible(shown))
        return
    import io

    sink = io.StringIO()
    Console(file=sink, width=_WIDTH, color_system=None, highlight=False, emoji=False).print(shown)
    say("\n".join(line.rstrip() for line in sink.getvalue().splitlines()))


def table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> RenderableType:
    """A table of texts; the columns in `numbers` are right-aligned."""
    from streameval.report.elements import Head
    from streameval.report.terminal import rich_table

    return rich_table([Head(name, name in numbers) for name in names], rows, plain=piped())


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest goes there at exit
        raise StreamevalError(f"stdout: cannot be written ({error.strerror})") from error


def note(text: str) -> None:
    """Write a line to stderr, with invisible characters spelled out."""
    click.echo(visible(text), err=True)


@contextmanager
def progress_bar(quiet: bool, total: int | None = None) -> Iterator[Callable[..., None] | None]:
    """A progress bar on stderr with rows and rows per second; yields None if stderr is not a terminal.

    Unless `quiet`, a line follows if compiled loops could not be cached on disk.
    """
    with _bar(quiet, total) as advance:
        yield advance
    loops = sys.modules.get("streameval.kernels.jit")  # not imported if no loop was needed
    if not quiet and loops is not None and not loops.is_cached():
        note("streameval: no writable folder for compiled code; set NUMBA_CACHE_DIR to start faster")


@contextmanager
def _bar(quiet: bool, total: int | None) -> Iterator[Callable[..., None] | None]:
    if quiet or not sys.stderr.isatty():
        yield None
        return
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

        def advance(done: int, rows: int = -1) -> None:
            progress.update(task, completed=done, total=rows if rows >= 0 else total)

        yield advance
