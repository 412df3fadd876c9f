"""How a command fails: one line on stderr, in the terms of the command line, and its exit status.

======= ==================================================================
``1``   the data or the run is at fault, or results cannot be written to stdout; if its reader has closed the pipe,
        the command ends so without a message
``2``   usage: an option is unknown or has an invalid value
``3``   a rule failed or is undecided (``check``, ``evaluate --rule``)
``130`` interrupted by Ctrl-C
======= ==================================================================

A stdout that is closed from the start is no fault: nobody wants the results. What cannot be written to stderr is
dropped and changes no status (`streameval.streams`).
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval.errors import OptionError, StreamevalError, masked
from streameval.saving import delete_all
from streameval.wording import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        try:
            with _usage_masked():
                return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            self._interrupt.tell()
        except BrokenPipeError:
            raise
        except OSError as error:  # of help, which is printed here
            _fail(_reason(error), 1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with _usage_masked():
                return super().invoke(ctx)
        except StreamevalError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            text = _spelled(error, command.params if command else ())
            _fail(text, 2 if isinstance(error, OptionError) else 1)
        except (KeyboardInterrupt, click.Abort):
            self._interrupt.tell()
        except BrokenPipeError:
            raise  # the reader has closed the pipe; click exits quietly
        except OSError as error:
            _fail(_reason(error), 1)
        except Exception:
            if self._interrupt.heard:  # Python 3.11 turns an interrupt in __set_name__ into a RuntimeError
                self._interrupt.tell()
            raise


class _Interrupt:
    """Handler of Ctrl-C for one run: exactly one line is printed, by the main thread or by the timer."""

    def __init__(self) -> None:
        self.heard = False
        self._untold = threading.Semaphore()

    def __call__(self, _number: int, _frame: Any) -> None:
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


@contextmanager
def _usage_masked() -> Iterator[None]:
    """Leave secrets out of the messages of usage errors, and escape sequences."""
    try:
        yield
    except click.UsageError as error:
        text = error.format_message()
        shown = visible_lines(masked(text))
        if shown == text:
            raise  # keeps its kind: without a command, click shows the help alone
        raise click.UsageError(shown, error.ctx) from None


def _reason(error: OSError) -> str:
    """The message of an error of the operating system, with its file if it has one."""
    text = error.strerror or str(error)
    return text if error.filename is None else f"{error.filename}: {text}"


def _fail(text: str, status: int) -> NoReturn:
    click.echo(f"streameval: error: {visible(' '.join(masked(text).split()))}", err=True)
    sys.exit(status)


def _spelled(error: StreamevalError, params: Sequence[click.Parameter]) -> str:
    """The message of an error, with Python's argument names replaced by command-line options."""
    text, alone = str(error), error.arguments if isinstance(error, OptionError) else ()
    value = "" if isinstance(error, OptionError) else r"(?![^\s'\"]*/)"  # not in a path such as label=1/a.parquet
    for param in params:
        text = _with_option(text, param, value, r"|\b" if param.name in alone else "")
    return text


def _with_option(text: str, param: click.Parameter, value: str, alone: str) -> str:
    """Replace an argument by its option: ``memory=0`` becomes ``--memory 0``, ``approx=True`` becomes ``--approx``."""
    option = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
    flag = r"=True\b|" if getattr(param, "is_flag", False) else ""
    named = re.compile(rf"(?<!\S){param.name}(?:{flag}=(?!\S)|(=){value}{alone})")
    if not named.search(text):
        return text
    text = named.sub(lambda found: f"{option} " if found[1] else option, text)
    return re.sub(rf" \({option}(?: \w+)?\)", "", text)  # drop the hint in brackets, which repeats the option
