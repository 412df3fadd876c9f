"""Output of the commands: tables and JSON on stdout, progress and messages on stderr.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from streameval.errors import StreamevalError
from streameval.saving import check_writable, ending, save, write_whole
from streameval.wording import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from streameval.evaluation.forecast import Forecast
    from streameval.evaluation.result import Evaluation

PLAIN = ("json", "csv", "parquet")  # formats of results without a page
_PICTURES = ("png", "svg", "pdf")
_WIDTH = 10_000  # columns of piped output, so that no table is wrapped


def refuse_directory(*paths: str | None) -> None:
    """Raise before anything is read if the directory of an output file is missing or not writable."""
    check_writable(*(path for path in paths if path not in (None, "-")))


def check_out(paths: Sequence[str], formats: Sequence[str] = ("json", "csv", "parquet", "html")) -> None:
    """Raise before anything is read if a file of ``--out`` has another format or cannot be written."""
    for path in paths:
        ending(path, formats)
    check_writable(*paths)


def check_plot(path: str | None) -> None:
    """Raise before anything is read if the file of ``--plot`` does not end in an image format."""
    if path is not None:
        ending(path, _PICTURES, "plot")


def write_out(paths: Sequence[str], text: Callable[[], str], rows: Callable[[], list[dict[str, Any]]]) -> None:
    """Write results to the files of ``--out``, each in the format of its suffix.

    Parameters
    ----------
    paths : files with one of the suffixes in `PLAIN`
    text : returns the JSON
    rows : returns the rows of the table
    """
    import pyarrow as pa

    for path in paths:
        save(path, {"json": lambda: text().rstrip("\n") + "\n"}, lambda: pa.Table.from_pylist(rows()))


def deliver(
    json_to: str | None, text: Callable[[], str], shown: Callable[[], RenderableType | str], quiet: bool
) -> None:
    """Write the JSON to its destination, and the table to stdout unless the JSON is written there.

    Parameters
    ----------
    json_to : file, ``-`` for stdout, or None for no JSON
    text : returns the JSON
    shown : returns the table, or lines of text
    quiet : whether to omit the table
    """
    if json_to is not None:
        emit(json_to, text().rstrip("\n") + "\n")
    if not quiet and json_to != "-":
        tell(shown())


def tell_forecasts(found: Sequence[Forecast], json_to: str | None, quiet: bool) -> None:
    """Print the forecasts of all passes of a run; as JSON, a list with one object per pass."""
    deliver(json_to, lambda: as_json([one.to_dict() for one in found]), lambda: "\n\n".join(map(str, found)), quiet)


def evaluation_tables(found: Evaluation) -> RenderableType:
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
        msg = f"stdout: cannot be written ({error.strerror})"
        raise StreamevalError(msg) from error


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
