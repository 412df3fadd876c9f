"""The console: progress and tables on stderr, JSON where it is asked for. What the commands share.

Everything is imported where it is used, so that help answers at once.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streameval.errors import StreamevalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from streameval.evaluation.forecast import Forecast
    from streameval.evaluation.result import Evaluation

__all__ = ["deliver", "deliver_json", "emit", "progress_bar", "refuse_directory", "say", "write"]


def refuse_directory(path: str | None) -> None:
    """Raise, before anything is read, if a file is to be written into a directory that is not there."""
    if path not in (None, "-") and not Path(path).parent.is_dir():
        msg = f"{path}: its directory does not exist; make it first"
        raise StreamevalError(msg)


def emit(path: str, text: str) -> None:
    """Write text to a file, or to stdout with ``-``."""
    if path == "-":
        say(text, nl=False)
    else:
        write(Path(path), text)


def say(text: str, nl: bool = True) -> None:
    """Write text to stdout.

    Raises
    ------
    StreamevalError
        If it cannot be written, such as to a full disk; a pipe that was closed is no error of that kind.
    """
    try:
        click.echo(text, nl=nl)
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the rest goes at exit
        msg = f"stdout: cannot be written ({error.strerror})"
        raise StreamevalError(msg) from error


def deliver(found: Evaluation, json_to: str | None, console: Console | None) -> None:
    """JSON where it is asked for, the table on stderr."""
    deliver_json(found, json_to)
    if console is not None:
        from streameval.report import render

        console.print(render(found))


def deliver_json(found: Evaluation | Forecast, json_to: str | None) -> None:
    """JSON to stdout with ``-``, or to a file."""
    if json_to == "-":
        say(found.to_json(indent=2))
    elif json_to is not None:
        write(Path(json_to), found.to_json(indent=2) + "\n")


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; through links, and into pipes and devices."""
    path = path.resolve()
    whole = path if path.exists() and not path.is_file() else path.with_name(f".{path.name}.part")
    try:
        whole.write_text(text)
        if whole != path:
            whole.replace(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        if whole != path:
            whole.unlink(missing_ok=True)
        msg = f"{path}: cannot be written ({error.strerror})"
        raise StreamevalError(msg) from error


@contextmanager
def progress_bar(quiet: bool, total: int | None = None) -> Iterator[tuple[Console, Callable[..., None] | None]]:
    """A console on stderr and a progress bar that counts rows and says rows per second."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield console, None
        return
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.speed or task.finished_speed or 0.0
            return Text(f"{task.completed:,.0f} rows  {speed / 1e6:,.1f} M rows/s")

    columns = TextColumn("{task.description}"), BarColumn(), Rate(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("rows", total=total)

        def advance(done: int, rows: int = -1) -> None:
            progress.update(task, completed=done, total=rows if rows >= 0 else total)

        yield console, advance
