"""Options that several commands have, each defined once.

None has a default of its own: what is not given is left to the function that the command calls, whose default its help
repeats; a store has the options that it was begun with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., Any]

__all__ = ["COLUMNS", "JSON", "POLICIES", "QUIET", "REPORTED", "RUN", "SCHEDULER", "THREADS", "given", "with_options"]

COLUMNS = (
    click.option("--label", help="Column of true classes. [default: label]"),
    click.option("--score", multiple=True, help="Score column; repeat for several."),
    click.option("--cluster", multiple=True, help="Cluster id column; repeat for several."),
    click.option("--classes", help="Column of the clusters' true classes, such as campaigns."),
    click.option("--weight", help="Column of weights, for score metrics."),
    click.option("--pos-label", help="Positive label; without it numbers above zero are positive."),
)
REPORTED = (
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        help="Metric, a name or a glob; repeat for several. [default: all but assignment scores, variants, pairwise.*]",
    ),
    click.option(
        "--truncate", type=float, multiple=True, help="Cut the gain curve: a share in (0, 1] or a number of points."
    ),
    click.option("--at", multiple=True, help="Operating point: fpr=1e-4, recall=0.9 or k=1000; repeat for several."),
    click.option("--threshold", type=float, help="aul: larger clusters count as if all positive. [default: 1]"),
)
POLICIES = (
    click.option("--nan", type=click.Choice(["error", "drop", "half"]), help="NaN and null scores. [default: error]"),
    click.option(
        "--nulls",
        type=click.Choice(["error", "drop", "singleton"]),
        help="Null ids of clusters and classes, and with drop null labels. [default: error]",
    ),
    click.option(
        "--cluster-scope",
        type=click.Choice(["global", "partition"]),
        help="Whether a cluster id means the same everywhere or belongs to its partition. [default: global]",
    ),
    click.option(
        "--approx", is_flag=True, default=None, help="Bounded memory: fixed histograms of scores, certain intervals."
    ),
)
THREADS = click.option("--threads", type=int, help="Threads to run on here. [default: one per processor]")
RUN = (
    click.option("--memory", help="Budget for states, such as 2GiB; of each worker. [default: a quarter of memory]"),
    click.option(
        "--spill",
        type=click.Path(path_type=Path),
        help="Directory for what exceeds the budget. [default: $TMPDIR or /var/tmp]",
    ),
    THREADS,
)
SCHEDULER = click.option(
    "--scheduler", "client", metavar="ADDRESS", help="Run on the workers of this Dask scheduler, tcp://host:8786."
)
JSON = click.option(
    "--json",
    "json_to",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write JSON to a file, or to stdout with -; the table goes to stderr.",
)
QUIET = click.option("--quiet", is_flag=True, help="No progress, no table.")


def with_options(*options: Any) -> Callable[[Command], Command]:
    """Several options as one decorator."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Only the options that were given."""
    return {name: value for name, value in options.items() if value not in (None, ())}
