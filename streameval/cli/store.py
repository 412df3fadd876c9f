"""The commands of a store.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from streameval.cli.console import PAGES, PLAIN, Output, as_json, emit, note, piped, progress_bar, stacked, table
from streameval.cli.options import SELECTION, options
from streameval.options import honoured
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from streameval.store import Store, Update
    from streameval.store.nights.history import Histories

_STORE = click.argument("store")
_DATA = click.argument("data", nargs=-1, required=True)
_RUN = ("memory", "spill", "threads", "client", "scheduler_timeout")


def reads_store(verb: str, formats: Sequence[str] = PAGES) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a command that reads a store, from the function that runs it and shows the results.

    The function is called with the open store, the destinations and the options that were given; with ``--plan``, the
    command prints instead what would be read.

    Parameters
    ----------
    verb : name of the command
    formats : suffixes of the files of ``--out``
    """

    def declare(function: Callable[..., None]) -> click.Command:
        @click.command(verb)
        @click.argument("store")
        @options(verb)
        @wraps(function)
        def command(store: str, plan_only: bool = False, **asked: Any) -> None:
            to = Output.take(asked, formats)
            opened = opened_store(store, asked)
            if plan_only:
                tell_plan(opened, verb, {name: asked[name] for name in asked if name in honoured(verb)}, to)
            else:
                function(opened, to, **asked)

        return command

    return declare


def opened_store(path: str, asked: dict[str, Any], progress: Callable[..., None] | None = None) -> Store:
    """Open the store; the options of its constructor are removed from `asked`."""
    from streameval.store import Store

    storage = _storage(asked.pop("storage_options", ()))
    return Store(
        path, storage_options=storage, progress=progress, **{name: asked.pop(name) for name in _RUN if name in asked}
    )


def _storage(texts: Sequence[str]) -> dict[str, str]:
    """Parse the ``KEY=VALUE`` pairs of ``--storage``."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{key}: write KEY=VALUE", param_hint="--storage")
    return {key: value for key, _, value in pairs}


def stored(data: Sequence[str], asked: dict[str, Any]) -> tuple[str, ...]:
    """Add the options of ``--storage`` to the URIs of the inputs; they are removed from `asked`."""
    from streameval.evaluation.source import with_storage

    storage = _storage(asked.pop("storage_options", ()))
    return tuple(with_storage(data, storage)) if storage else tuple(data)


def store_named(
    data: tuple[str, ...], asked: dict[str, Any], progress: Callable[..., None] | None = None
) -> Store | None:
    """The store that is named in place of data; None if the first input is data.

    The options of the store's constructor are removed from `asked`.

    Raises
    ------
    OptionError
        If nights are selected but the first input is not a store.
    """
    from streameval.errors import OptionError
    from streameval.evaluation.source import is_pattern

    first, store = data[0], None
    if not _is_local_data(first):
        with suppress(OptionError):  # a store is on a local disk or on S3
            store = None if is_pattern(first) else opened_store(first, dict(asked), progress)
    if store is None or not store.exists():
        if name := next((name for name in SELECTION if name in asked), ""):
            raise OptionError(
                f"{first}: {name}=… selects nights of a store, and this is not a store; name files, or a store", name
            )
        return None
    for name in (*_RUN, "storage_options"):
        asked.pop(name, None)
    return store


def _is_local_data(path: str) -> bool:
    """Whether a local path is not a store; decided without importing the store's modules.

    A path that may not be read is data, whose reader says so. A table named ledger may be another one than a store's.
    """
    folder = Path(path)
    with suppress(RuntimeError):  # ~name, if no user has that name
        folder = folder.expanduser()
    with suppress(PermissionError):
        log = Path(os.path.normpath(folder.absolute()), "ledger", "_delta_log")
        newest = sorted(log.glob("*.json"))[-3:]  # the last one may be damaged
        own = not newest or any(b"streameval" in commit.read_bytes() for commit in newest)
        return "://" not in path and not (log.is_dir() and own)
    return True


@click.command()
@_STORE
@_DATA
@options("update")
def update(**asked: Any) -> None:
    """Fold new and changed partitions of DATA into STORE.

    The first update names the columns and options; later updates need none.
    """
    _change("update", **asked)


@click.command()
@_STORE
@_DATA
@options("replace")
def replace(**asked: Any) -> None:
    """Fold corrected partitions of DATA into STORE again."""
    _change("replace", **asked)


@click.command()
@_STORE
@click.argument("names", metavar="[PARTITION]...", nargs=-1)
@options("remove")
def remove(**asked: Any) -> None:
    """Remove partitions, such as night=2026-01-11, or columns from STORE.

    A later update that finds the files of a partition folds them again.
    """
    if not ("names" in asked or "columns" in asked):
        raise click.UsageError("name a PARTITION, or a column (--column)")
    _change("remove", **asked)


@click.command()
@_STORE
@click.argument("data", nargs=-1)
@options("add")
def add(**asked: Any) -> None:
    """Add columns or metrics to STORE; only new columns are folded.

    DATA names the files of the nights, if they have moved.
    """
    _change("add", **asked)


@click.command()
@_STORE
@options("vacuum")
def vacuum(store: str, quiet: bool = False, **asked: Any) -> None:
    """Delete files that STORE no longer needs, and merge old nights."""
    opened = opened_store(store, asked)
    done = opened.vacuum(**asked)
    if not quiet:
        note(f"{opened.name}: {done}")


def _change(verb: str, store: str, quiet: bool = False, plan_only: bool = False, **asked: Any) -> None:
    """Run a verb that changes partitions or columns of a store, and print a summary on stderr."""
    with progress_bar(quiet) as advance:
        opened = opened_store(store, asked, advance)
        if "data" in asked:
            asked["data"] = list(asked["data"])
        if plan_only:
            tell_plan(opened, verb, asked, Output(quiet=quiet))
            return
        done: Update = getattr(opened, verb)(**asked)
    if quiet:
        return
    rows = f"; {plural(done.rows, 'row')} folded" if done.rows else ""
    version = f"version {done.version}" if done.version >= 0 else "no store yet"
    would = "would do: " if verb == "update" and asked.get("dry_run") else ""
    note(f"{opened.name}: {would}{done}{rows}; {version}")
    if done.keeps:
        note(f"{opened.name} {done.keeps}")


def tell_plan(store: Store, verb: str, asked: dict[str, Any], to: Output) -> None:
    """Print what a verb would read and keep."""
    plan = store.plan(verb, **asked)
    to.deliver(lambda: as_json(plan.to_dict()), lambda: str(plan))


@reads_store("show")
def show(store: Store, to: Output, **asked: Any) -> None:
    """Evaluate nights of STORE from their states, without reading the data.

    By default all nights are evaluated together; --by night adds each night.
    """
    to.deliver_evaluation(store.evaluate(**asked))


@reads_store("info", PLAIN)
def info(store: Store, to: Output, with_versions: bool = False, **asked: Any) -> None:
    """Show the content of STORE, incomplete nights and failures.

    --versions lists past changes with their times (UTC), newest first. --verify reads every file and exits with
    status 1 if one is damaged.
    """
    content = store.info(**asked)
    facts, lines, parts = content.to_dict(), list(content.lines()), [table(["fact", "value"], content.lines())]
    if with_versions:
        facts["versions"] = [
            fact | {"when": fact["when"].isoformat(timespec="milliseconds").replace("+00:00", "Z")}
            for fact in store.versions()
        ]
        rows = [[str(fact["version"]), fact["when"], fact["action"]] for fact in facts["versions"]]
        parts.append(table(["version", "when", "action"], rows, ["version"]))
        lines += [(f"version {number}", f"{when} {action}") for number, when, action in rows]
    to.deliver_rows(facts, lambda: [{"fact": name, "value": value} for name, value in lines], lambda: stacked(*parts))
    if content.damaged:
        if not to.shows:
            note(f"damaged: {'; '.join(content.damaged)}")
        raise SystemExit(1)


@reads_store("history")
def history(store: Store, to: Output, nightly: bool = False, **asked: Any) -> None:
    """Show metrics of STORE night by night.

    Each night's value is followed by the value over all nights up to it, starting at --since or --last if given.
    """
    histories = cast("Histories", store.history(**asked, cumulative=not nightly))  # options that repeat are sequences
    results = histories if len(histories.series) > 1 else histories.series[0]
    for path in to.out:
        results.save(path)
    if to.plot is not None:
        histories.plot(to.plot)
    if to.csv_to is not None:
        emit(to.csv_to, results.to_csv())
    to.deliver(lambda: results.to_json(indent=2), lambda: _nights(histories))


def _nights(found: Histories) -> RenderableType:
    """A table with one row per night, marked if incomplete or failing, followed by the lines of `night_notes`."""
    from streameval.report.notes import night_notes
    from streameval.report.terminal import series, short

    marks = [
        f"{name}{' (incomplete)' if incomplete else ''}{' (failing)' if failing else ''}"
        for name, incomplete, failing in found.nights
    ]
    if len(found.series) == 1:
        [one] = found.series
        points = [(mark, p.night, p.cumulative) for mark, p in zip(marks, one.points, strict=True)]
        return series(f"{one.metric} of {one.of}", points, plain=piped())
    rows = zip(marks, *([short(result) for result in results] for results in found.columns.values()), strict=True)
    notes = night_notes(found.columns, [name for name, _, _ in found.nights])
    return stacked(table(["partition", *found.columns], rows, list(found.columns)), *map(visible, notes))


COMMANDS = (update, show, replace, remove, info, history, add, vacuum)
