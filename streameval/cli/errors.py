"""How a command fails: one line on stderr in the words of the command line, and its exit status.

====== ====================================================================
``1``  the data or the run is at fault
``2``  usage: an option is unknown, or has a value that it does not take
``3``  a rule failed (``check``)
``130`` interrupted by Ctrl-C
====== ====================================================================
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval.errors import OptionError, StreamevalError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Commands"]


class Commands(click.Group):
    """Commands whose failures are one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except StreamevalError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            text = _spelled(error, command.params if command else ())
            _fail(text, 2 if isinstance(error, OptionError) else 1)
        except KeyboardInterrupt:
            _fail("interrupted; nothing was kept of what it had written", 130)
        except BrokenPipeError:
            raise  # the reader has closed the pipe; click ends quietly
        except OSError as error:
            _fail(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error), 1)


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
