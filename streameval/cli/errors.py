"""How a command fails: one line on stderr in the words of the command line, and its exit status.

====== ====================================================================
``1``  the data or the run is at fault
``2``  usage: an option is unknown, or has a value that it does not take
``3``  a rule failed (``check``)
``130`` interrupted by Ctrl-C
====== ====================================================================
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval.errors import OptionError, StreamevalError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Commands"]

INTERRUPTED = 130  # exit status


class Commands(click.Group):
    """Commands whose failures are one line on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and leave the process.

        An interrupted process ends at once: it does not wait for its threads, which may be in the middle of a long
        step. Nothing is lost, since spill files have no name and whatever is published is published whole.
        """
        try:
            return super().main(*args, **extra)
        except SystemExit as end:
            if end.code == INTERRUPTED and sys.stderr is sys.__stderr__:  # a process, not a call within one
                os._exit(INTERRUPTED)
            raise

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            _interrupted()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except StreamevalError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            text = _spelled(error, command.params if command else ())
            _fail(text, 2 if isinstance(error, OptionError) else 1)
        except KeyboardInterrupt:
            _interrupted()
        except BrokenPipeError:
            raise  # the reader has closed the pipe; click ends quietly
        except OSError as error:
            _fail(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error), 1)


def _interrupted() -> NoReturn:
    """End after Ctrl-C."""
    with suppress(OSError):
        click.echo("streameval: error: interrupted; nothing was kept of what it had written", err=True)
    sys.exit(INTERRUPTED)


def _fail(text: str, status: int) -> NoReturn:
    click.echo(f"streameval: error: {' '.join(text.split())}", err=True)
    sys.exit(status)


def _spelled(error: StreamevalError, params: Sequence[click.Parameter]) -> str:
    """The message of an error, with the options of the command in place of Python's arguments."""
    text, alone = str(error), error.arguments if isinstance(error, OptionError) else ()
    value = "" if isinstance(error, OptionError) else r"(?![^\s'\"]*/)"  # not in a path such as label=1/a.parquet
    for param in params:
        text = _with_option(text, param, value, r"|\b" if param.name in alone else "")
    return text


def _with_option(text: str, param: click.Parameter, value: str, alone: str) -> str:
    """A text with an option for an argument: ``memory=0`` becomes ``--memory 0``, ``approx=True`` a flag."""
    option = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
    flag = r"=True\b|" if getattr(param, "is_flag", False) else ""
    named = re.compile(rf"(?<!\S){param.name}(?:{flag}=(?!\S)|(=){value}{alone})")
    if not named.search(text):
        return text
    text = named.sub(lambda found: f"{option} " if found[1] else option, text)
    return re.sub(rf" \({option}(?: \w+)?\)", "", text)  # the option was told in brackets as well
