"""The command line of the store: arguments in, results out.

Everything is imported where it is used, so that help answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.console import deliver, progress_bar, refuse_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.store import Store, Update

    Command = Callable[..., Any]

__all__ = ["COMMANDS"]

_STORE = click.argument("store")
_DATA = click.argument("data", nargs=-1, required=True)
_QUIET = click.option("--quiet", is_flag=True, help="No progress, no table.")
_JSON = click.option(
    "--json",
    "json_to",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write JSON to a file, or to stdout with -.",
)
_RUN = (
    click.option("--memory", help="Budget for states, such as 2GiB. [default: a quarter of the memory]"),
    click.option(
        "--spill",
        type=click.Path(path_type=Path),
        help="Directory for what exceeds the budget. [default: $TMPDIR or /var/tmp]",
    ),
    click.option("--threads", type=int, help="[default: one a processor]"),
    click.option(
        "--storage", multiple=True, metavar="KEY=VALUE", help="Option of S3 storage, such as AWS_ENDPOINT_URL=…"
    ),
)
_REPORTED = (
    click.option("--metric", "metrics", multiple=True, help="Metric to compute, a name or a glob. [default: all]"),
    click.option("--truncate", type=float, multiple=True, help="Cut the gain curve: a share or a number of points."),
    click.option("--at", multiple=True, help="Operating point: fpr=1e-4, recall=0.9 or k=1000."),
    click.option("--threshold", type=float, help="aul: larger clusters count as if all positive. [default: 1]"),
)
_CHOSEN = (
    click.option("--partition", multiple=True, help="Only this one, such as night=2026-01-15; repeat for several."),
    click.option("--since", metavar="DATE", help="Only from this date on."),
    click.option("--until", metavar="DATE", help="Only up to this date, all of it."),
    click.option("--last", type=int, metavar="N", help="Only the last N of them."),
    click.option("--as-of", metavar="DATE|VERSION", help="What the store knew then."),
)
_KEPT = (
    click.option("--label", help="Column of true classes. [default: label]"),
    click.option("--score", multiple=True, help="Score column; repeat for several."),
    click.option("--cluster", multiple=True, help="Cluster id column; repeat for several."),
    click.option("--classes", help="Column of the clusters' true classes, such as campaigns."),
    click.option("--weight", help="Column of weights, for score metrics."),
    click.option("--pos-label", help="Positive label; without it numbers above zero are positive."),
    click.option("--nan", type=click.Choice(["error", "drop", "half"]), help="NaN and null scores. [default: error]"),
    click.option(
        "--nulls",
        type=click.Choice(["error", "drop", "singleton"]),
        help="Null cluster ids, and with drop null labels. [default: error]",
    ),
    click.option(
        "--cluster-scope",
        type=click.Choice(["global", "partition"]),
        help="Whether a cluster id means the same every night or belongs to its partition. [default: global]",
    ),
    click.option(
        "--approx", is_flag=True, default=None, help="Keep fixed histograms of the scores: certain intervals."
    ),
)


def _with(*options: Any) -> Callable[[Command], Command]:
    """Several options as one decorator."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _open(path: str, run: dict[str, Any], progress: Callable[..., None] | None = None) -> Store:
    """The store, with the options of `_RUN` taken out of `run`."""
    from streameval.store import Store

    pairs = [text.partition("=") for text in run.pop("storage")]
    for key, equals, _ in pairs:
        if not equals:
            msg = f"{key}: write KEY=VALUE"
            raise click.BadParameter(msg, param_hint="--storage")
    names = ("memory", "spill", "threads")
    options = {key: value for key, _, value in pairs}
    return Store(path, storage_options=options, progress=progress, **{name: run.pop(name) for name in names})


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Only the options that were given."""
    return {name: value for name, value in options.items() if value not in (None, ())}


@click.command()
@_STORE
@_DATA
@_with(*_KEPT, *_REPORTED)
@click.option("--verify", is_flag=True, help="Look into the files: fold all again, keep what differs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@_with(*_RUN, _QUIET)
def update(store: str, data: tuple[str, ...], verify: bool, dry_run: bool, quiet: bool, **options: Any) -> None:
    """Fold the partitions of DATA that are new or changed since the last update into STORE.

    The first update names the columns and options; later ones need none.
    """
    with progress_bar(quiet) as (_, advance):
        opened = _open(store, options, advance)
        done = opened.update(list(data), dry_run=dry_run, verify=verify, **_given(options))
    _tell(store, done, quiet, dry_run)


@click.command()
@_STORE
@_DATA
@_with(*_RUN, _QUIET)
def replace(store: str, data: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Fold partitions of DATA again that STORE has: late corrections."""
    with progress_bar(quiet) as (_, advance):
        done = _open(store, options, advance).replace(list(data))
    _tell(store, done, quiet)


@click.command()
@_STORE
@click.argument("partition", nargs=-1, required=True)
@_with(*_RUN, _QUIET)
def remove(store: str, partition: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Take partitions, such as night=2026-01-11, out of STORE."""
    _tell(store, _open(store, options).remove(partition), quiet)


@click.command()
@_STORE
@_with(*_CHOSEN, *_REPORTED, *_RUN, _JSON, _QUIET)
def show(store: str, json_to: str | None, quiet: bool, **options: Any) -> None:
    """Evaluate the partitions of STORE, or some of them, without reading the data again."""
    refuse_directory(json_to)
    with progress_bar(quiet) as (console, _):
        found = _open(store, options).evaluate(**_given(options))
    deliver(found, json_to, None if quiet else console)


def _tell(store: str, done: Update, quiet: bool, dry_run: bool = False) -> None:
    """What an update did, in one line."""
    if not quiet:
        rows = f"; {done.rows:,} rows folded" if done.rows else ""
        click.echo(f"{store}: {'would do: ' * dry_run}{done}{rows}; version {done.version}", err=True)


COMMANDS = (update, show, replace, remove)
