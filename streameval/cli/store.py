"""The command line of the store: arguments in, results out.

Everything is imported where it is used, so that help answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streameval.cli.console import deliver, emit, progress_bar, refuse_directory
from streameval.cli.options import COLUMNS, JSON, POLICIES, QUIET, REPORTED, RUN, SCHEDULER, given, with_options
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.store import Store, Update

    Command = Callable[..., Any]

__all__ = ["COMMANDS"]

_STORE = click.argument("store")
_DATA = click.argument("data", nargs=-1, required=True)
_RUN = (
    *RUN,
    click.option(
        "--storage",
        multiple=True,
        metavar="KEY=VALUE",
        help="Option of the S3 storage of STORE, such as AWS_ENDPOINT_URL=…; DATA has its own in its URI.",
    ),
)
_CHOSEN = (
    click.option("--partition", multiple=True, help="Only this one, such as night=2026-01-15; repeat for several."),
    click.option("--since", metavar="DATE", help="Only from this date on."),
    click.option("--until", metavar="DATE", help="Only up to this date, all of it."),
    click.option("--last", type=int, metavar="N", help="Only the last N of them."),
    click.option("--as-of", metavar="DATE|VERSION", help="What the store knew then."),
)


def _open(path: str, run: dict[str, Any], progress: Callable[..., None] | None = None) -> Store:
    """The store, with the options of `_RUN` and `SCHEDULER` taken out of `run`."""
    from streameval.store import Store

    pairs = [text.partition("=") for text in run.pop("storage")]
    for key, equals, _ in pairs:
        if not equals:
            msg = f"{key}: write KEY=VALUE"
            raise click.BadParameter(msg, param_hint="--storage")
    where = {name: run.pop(name) for name in ("memory", "spill", "threads", "client") if name in run}
    return Store(path, storage_options={key: value for key, _, value in pairs}, progress=progress, **where)


@click.command()
@_STORE
@_DATA
@with_options(*COLUMNS, *POLICIES, *REPORTED)
@click.option("--verify", is_flag=True, help="Look into the files: fold all again, keep what differs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@with_options(*_RUN, SCHEDULER, QUIET)
def update(store: str, data: tuple[str, ...], verify: bool, dry_run: bool, quiet: bool, **options: Any) -> None:
    """Fold what is new or changed in DATA into STORE.

    The first update names the columns and options; later ones need none.
    """
    with progress_bar(quiet) as (_, advance):
        opened = _open(store, options, advance)
        done = opened.update(list(data), dry_run=dry_run, verify=verify, **given(options))
    _tell(opened, done, quiet, dry_run)


@click.command()
@_STORE
@_DATA
@with_options(*_RUN, SCHEDULER, QUIET)
def replace(store: str, data: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Fold corrected partitions of DATA into STORE again."""
    with progress_bar(quiet) as (_, advance):
        opened = _open(store, options, advance)
        done = opened.replace(list(data))
    _tell(opened, done, quiet)


@click.command()
@_STORE
@click.argument("partition", nargs=-1, required=True)
@with_options(*_RUN, QUIET)
def remove(store: str, partition: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Take partitions, such as night=2026-01-11, out of STORE.

    An update that meets their files again takes them in again.
    """
    opened = _open(store, options)
    _tell(opened, opened.remove(partition), quiet)


@click.command()
@_STORE
@click.argument("data", nargs=-1)
@click.option("--score", multiple=True, help="Score column that joins; repeat for several.")
@click.option("--cluster", multiple=True, help="Cluster id column that joins; repeat for several.")
@click.option("--since", metavar="DATE", help="Fold only nights from this date on.")
@with_options(*_RUN, SCHEDULER, QUIET)
def add(store: str, data: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Let a new column join STORE: its nights are folded for it alone.

    DATA is where their files are, if they are not where they were.
    """
    with progress_bar(quiet) as (_, advance):
        opened = _open(store, options, advance)
        done = opened.add(data=list(data) or None, **given(options))
    _tell(opened, done, quiet)


@click.command()
@_STORE
@click.option(
    "--keep",
    metavar="SPAN",
    help="Turn exact scores of nights older than this, such as 90d, into histograms; earlier versions lose them.",
)
@click.option("--grace", metavar="SPAN", default="1d", show_default=True, help="Leave younger files alone.")
@with_options(*_RUN, QUIET)
def vacuum(store: str, keep: str | None, grace: str, quiet: bool, **options: Any) -> None:
    """Delete unneeded files of STORE, merge old nights."""
    opened = _open(store, options)
    done = opened.vacuum(keep=keep, grace=grace)
    if not quiet:
        click.echo(f"{opened.name}: {done}", err=True)


@click.command()
@_STORE
@with_options(*_CHOSEN, *REPORTED, *_RUN, JSON, QUIET)
def show(store: str, json_to: str | None, quiet: bool, **options: Any) -> None:
    """Evaluate nights of STORE without reading the data."""
    refuse_directory(json_to)
    with progress_bar(quiet) as (console, _):
        found = _open(store, options).evaluate(**given(options))
    deliver(found, json_to, None if quiet else console)


@click.command()
@_STORE
@with_options(*_RUN, JSON, QUIET)
def versions(store: str, json_to: str | None, quiet: bool, **options: Any) -> None:
    """List the versions of STORE, the newest first.

    Each with its number, when it was made (UTC), and by what; --as-of takes the number or the time.
    """
    import json

    from streameval.errors import StoreError

    refuse_directory(json_to)
    opened = _open(store, options)
    found = opened.versions()
    if not found:
        msg = f"{opened.name}: there is no store; begin it with update"
        raise StoreError(msg)
    found = [fact | {"when": fact["when"].isoformat(timespec="milliseconds").replace("+00:00", "Z")} for fact in found]
    if json_to is not None:
        emit(json_to, json.dumps(found, indent=2) + "\n")
    for fact in [] if quiet else found:
        click.echo(f"{fact['version']:>5}  {fact['when']}  {fact['action']}", err=True)


@click.command()
@_STORE
@click.option("--metric", required=True, help="The metric, such as roc_auc or agc@0.01.")
@click.option("--of", help="Its column, where there are several.")
@with_options(*_CHOSEN[1:])
@click.option("--nightly", is_flag=True, help="Leave out the values over all nights up to each.")
@click.option("--csv", "csv_to", type=click.Path(dir_okay=False, allow_dash=True), help="Write CSV; - for stdout.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Write a picture, such as history.svg.")
@with_options(*_RUN, JSON, QUIET)
def history(
    store: str,
    nightly: bool,
    json_to: str | None,
    csv_to: str | None,
    plot: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Show a metric of STORE night by night.

    Beside each value stands that over all nights up to it.

    With --since or --last the cumulative values begin with the first night shown.
    """
    for path in (json_to, csv_to, plot):
        refuse_directory(path)
    found = _open(store, options).history(**given(options), cumulative=not nightly)
    if plot is not None:
        found.plot(plot)
    if csv_to is not None:
        emit(csv_to, found.to_csv())
    if json_to is not None:
        emit(json_to, found.to_json(indent=2) + "\n")
    if not quiet and "-" not in (csv_to, json_to):
        from streameval.report import series

        with progress_bar(quiet) as (console, _):
            points = [(point.partition, point.night, point.cumulative) for point in found.points]
            console.print(series(f"{found.metric} of {found.of}", points))


@click.command()
@_STORE
@click.option("--rule", "rules", multiple=True, required=True, help="Such as 'roc_auc[score] >= 0.97'; repeatable.")
@click.option("--partition", help="The night to judge. [default: the last]")
@with_options(*_RUN, JSON, QUIET)
def check(store: str, json_to: str | None, quiet: bool, rules: tuple[str, ...], **options: Any) -> None:
    """Judge the last night of STORE by rules: status 3 if one fails.

    A rule is 'metric[column] >= x' (or >, <=, <), or 'metric[column] drop <= x': how far the night may be below the
    median of the last 7 nights that passed.
    """
    import json

    refuse_directory(json_to)
    found = _open(store, options).check(rules, **given(options))
    if json_to is not None:
        emit(json_to, json.dumps(found.to_dict(), indent=2) + "\n")
    for verdict in found.verdicts:
        if not (quiet and verdict.passed):
            told = "passed" if verdict.passed else "failed"
            click.echo(f"{found.partition}: {told}: {verdict.rule}: {verdict.reason}", err=True)
    if not found.passed:
        raise SystemExit(3)


def _tell(store: Store, done: Update, quiet: bool, dry_run: bool = False) -> None:
    """What an update did, in one line."""
    if not quiet:
        rows = f"; {plural(done.rows, 'row')} folded" if done.rows else ""
        version = f"version {done.version}" if done.version >= 0 else "no store yet"
        click.echo(f"{store.name}: {'would do: ' if dry_run else ''}{done}{rows}; {version}", err=True)


COMMANDS = (update, show, replace, remove, versions, history, check, add, vacuum)
