"""Commands of the command line, run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from streameval.cli import main

if TYPE_CHECKING:
    from click.testing import Result


def run(*words: object) -> Result:
    """The result of a command."""
    return CliRunner().invoke(main, [str(word) for word in words])
