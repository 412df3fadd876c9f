"""The command line: arguments in, results out.

Everything is imported where it is used, so that help answers at once.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval._version import __version__
from streameval.cli.console import deliver, deliver_json, progress_bar, refuse_directory, say
from streameval.cli.options import (
    COLUMNS,
    JSON,
    POLICIES,
    QUIET,
    REPORTED,
    RUN,
    SCHEDULER,
    THREADS,
    given,
    with_options,
)
from streameval.cli.store import COMMANDS
from streameval.errors import OptionError, StreamevalError
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]


class _Group(click.Group):
    """Commands whose failures are one line on stderr: status 1 for the data or the run, 2 for usage."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except StreamevalError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            text = _spelled(error, command.params if command else ())
            _fail(text, 2 if isinstance(error, OptionError) else 1)
        except KeyboardInterrupt:
            _fail("interrupted; nothing was kept of what it had written", 1)
        except BrokenPipeError:
            raise  # whoever read has enough; click ends quietly
        except OSError as error:
            _fail(error, 1)


def _fail(error: Exception | str, status: int) -> NoReturn:
    text = " ".join(_message(error).split())
    click.echo(f"streameval: error: {text}", err=True)
    sys.exit(status)


def _spelled(error: StreamevalError, params: Sequence[click.Parameter]) -> str:
    """Its message, which names arguments of Python, with the options of a command in their place."""
    text, alone = str(error), error.arguments if isinstance(error, OptionError) else ()
    value = "" if isinstance(error, OptionError) else r"(?![^\s'\"]*/)"  # or a file's name such as label=1/a.parquet
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
    return re.sub(rf" \({option}(?: \w+)?\)", "", text)  # what said so beside the argument


def _message(error: Exception | str) -> str:
    """The text of an error; an `OSError` has its path beside it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="streameval")
def main() -> None:
    """Exact evaluation of scores and clusters on partitioned Parquet too large for memory."""


@main.command()
@click.argument("data", nargs=-1, required=True)
@with_options(*COLUMNS, *REPORTED, *POLICIES)
@click.option(
    "--assignment-cells",
    type=int,
    help="assignment_score: larger components are bounded, not solved. [default: 1000000]",
)
@click.option("--approx-agc", is_flag=True, help="Add agc_approx: gain areas of a sample in quantile bins.")
@click.option("--sample", type=float, default=1.0, show_default=True, help="agc_approx: share of the rows to draw.")
@click.option("--quantiles", type=int, default=100, show_default=True, help="agc_approx: number of bins.")
@click.option(
    "--sample-by",
    type=click.Choice(["rows", "row_groups"]),
    default="rows",
    show_default=True,
    help="agc_approx: what is drawn; row groups save reading, if rows of one are not alike.",
)
@click.option("--sample-seed", type=int, default=0, show_default=True, help="agc_approx: another draws another sample.")
@click.option(
    "--passes",
    type=click.IntRange(1, 2),
    help="agc_approx: reads of the data. [default: 2 where scores repeat or all rows are drawn]",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Files that cannot be read.",
)
@with_options(*RUN, SCHEDULER, JSON)
@click.option("--plan", "plan_only", is_flag=True, help="Say what the run would read, hold and do; do not run.")
@with_options(QUIET)
def evaluate(data: tuple[str, ...], json_to: str | None, plan_only: bool, quiet: bool, **options: Any) -> None:
    """Evaluate Parquet files, directories, globs or URIs.

    All that DATA names is read in one pass.
    """
    from streameval.evaluation import evaluate as run
    from streameval.evaluation import explain

    refuse_directory(json_to)
    if plan_only:
        planned = explain(list(data), **given(options))
        deliver_json(planned, json_to)
        if json_to != "-" and not quiet:
            say(str(planned))
        return
    with progress_bar(quiet) as (console, advance):
        found = run(list(data), progress=advance, **given(options))
    deliver(found, json_to, None if quiet else console)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--rows", type=int, required=True, help="Messages to write, such as 10_000_000.")
@click.option("--partitions", type=int, default=16, show_default=True, help="Nights, each one file.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--sizes",
    type=click.Choice(["gamma", "pareto"]),
    default="gamma",
    show_default=True,
    help="Law of campaign sizes.",
)
@click.option("--shape", type=float, help="Shape of that law. [default: 0.5 for gamma, 1.5 for pareto]")
@click.option("--mean", type=float, default=50.0, show_default=True, help="Mean campaign size.")
@click.option(
    "--positives",
    type=float,
    default=0.25,
    show_default=True,
    help="Share of messages that are truly spam.",
)
@click.option(
    "--lone-positives",
    type=float,
    help="Share of spam among messages outside any campaign. [default: a fifth of --positives, or more]",
)
@click.option("--label-error", type=float, default=0.0, show_default=True, help="Share of labels flipped.")
@click.option(
    "--singletons", type=float, default=0.3, show_default=True, help="Share of messages outside any campaign."
)
@click.option(
    "--split",
    type=float,
    default=0.1,
    show_default=True,
    help="Share of campaigns split into several clusters.",
)
@click.option("--join", type=float, default=0.05, show_default=True, help="Share of campaigns joined with another.")
@click.option(
    "--noise",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of campaign messages in a wrong cluster.",
)
@click.option("--missed", type=float, default=0.05, show_default=True, help="Share of campaign messages left alone.")
@click.option("--auc-a", type=float, default=0.95, show_default=True, help="ROC AUC of score_a.")
@click.option("--auc-b", type=float, default=0.85, show_default=True, help="ROC AUC of score_b.")
@with_options(THREADS)
@click.option("--overwrite", is_flag=True, help="Replace an earlier simulation in OUT.")
@click.option("--quiet", is_flag=True, help="No progress, no summary.")
def simulate(out: Path, quiet: bool, **options: Any) -> None:
    """Write simulated spam-clustering data to OUT.

    A directory of Hive-partitioned Parquet of any size.
    """
    from streameval.simulation import simulate as run

    with progress_bar(quiet, options["rows"]) as (console, advance):
        done = run(out, progress=None if advance is None else _counter(advance), **options)
    if not quiet:
        speed = f"{done.rows / max(done.seconds, 1e-9) / 1e6:.1f} M rows/s"
        size = f"{plural(done.rows, 'row')}, {done.bytes / 1e6:,.1f} MB"
        console.print(f"{done.path}: {size} in {done.seconds:.1f} s ({speed})")


def _counter(advance: Callable[..., None]) -> Callable[[int], None]:
    """Turn rows just written into rows written so far, from any thread."""
    import threading

    lock, done = threading.Lock(), 0

    def count(rows: int) -> None:
        nonlocal done
        with lock:
            done += rows
            advance(done)

    return count


@main.command()
@click.option("--rows", type=int, default=200_000, show_default=True, help="Messages to simulate.")
def demo(rows: int) -> None:
    """Simulate a small data set, evaluate it, print the table."""
    import tempfile

    from streameval.evaluation import evaluate as run
    from streameval.simulation import simulate as make

    with (
        tempfile.TemporaryDirectory(prefix="streameval-demo-") as folder,
        progress_bar(False) as (console, advance),
    ):
        made = make(Path(folder) / "data", rows=rows, partitions=14, singletons=0.7, lone_positives=0.02)
        found = run(made.path, score=["score_a", "score_b"], cluster="cluster", progress=advance)
    size = f"{made.bytes / 1e6:.1f} MB of Parquet"
    console.print(f"{plural(made.rows, 'simulated message')} in {made.partitions} nightly partitions, {size}")
    deliver(found, None, console)
    console.print(
        "Your own data: streameval evaluate DATA --label label --score score_a --cluster cluster", soft_wrap=True
    )


for command in COMMANDS:
    main.add_command(command)
