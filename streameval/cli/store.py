"""The commands of a store.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli.console import (
    PLAIN,
    as_json,
    check_out,
    check_plot,
    deliver,
    emit,
    evaluation_tables,
    note,
    piped,
    progress_bar,
    refuse_directory,
    table,
    write_out,
)
from streameval.cli.options import SELECTION, given, options
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from streameval.store import Store, Update
    from streameval.store.nights.history import Histories

_STORE = click.argument("store")
_DATA = click.argument("data", nargs=-1, required=True)
_RUN = ("memory", "spill", "threads", "client", "scheduler_timeout")


def opened_store(path: str, asked: dict[str, Any], progress: Callable[..., None] | None = None) -> Store:
    """Open the store; the options of its constructor are removed from `asked`."""
    from streameval.store import Store

    storage = _storage(asked.pop("storage_options", ()))
    run = given({name: asked.pop(name) for name in _RUN if name in asked})
    return Store(path, storage_options=storage, progress=progress, **run)


def _storage(texts: Sequence[str]) -> dict[str, str]:
    """Parse the ``KEY=VALUE`` pairs of ``--storage``."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals:
            msg = f"{key}: write KEY=VALUE"
            raise click.BadParameter(msg, param_hint="--storage")
    return {key: value for key, _, value in pairs}


def stored(data: Sequence[str], asked: dict[str, Any]) -> tuple[str, ...]:
    """Add the options of ``--storage`` to the URIs of the inputs; they are removed from `asked`."""
    from streameval.evaluation.source import with_storage

    storage = _storage(asked.pop("storage_options", ()))
    return tuple(with_storage(data, storage)) if storage else tuple(data)


def store_named(
    data: tuple[str, ...], asked: dict[str, Any], progress: Callable[..., None] | None = None
) -> tuple[Store, dict[str, Any]] | None:
    """The store that is named in place of data, and the selection of its nights; None if the first input is data.

    The options of the store's constructor and of the selection are removed from `asked`.

    Raises
    ------
    OptionError
        If nights are selected but the first input is not a store.
    """
    from streameval.errors import OptionError
    from streameval.evaluation.source import is_pattern

    selection = given({name: asked.pop(name) for name in SELECTION})
    first, store = data[0], None
    if not _is_local_data(first):
        with suppress(OptionError):  # a store is on a local disk or on S3
            store = None if is_pattern(first) else opened_store(first, dict(asked), progress)
    if store is None or not store.exists():
        if selection:
            name = next(iter(selection))
            msg = f"{first}: {name}=… selects nights of a store, and this is not a store; name files, or a store"
            raise OptionError(msg, name)
        return None
    for name in (*_RUN, "storage_options"):
        asked.pop(name, None)
    return store, selection


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
def update(store: str, data: tuple[str, ...], quiet: bool, plan_only: bool, **asked: Any) -> None:
    """Fold new and changed partitions of DATA into STORE.

    The first update names the columns and options; later updates need none.
    """
    with progress_bar(quiet) as advance:
        opened = opened_store(store, asked, advance)
        if plan_only:
            tell_plan(opened, "update", {"data": list(data), **given(asked)}, None, quiet)
            return
        done = opened.update(list(data), **given(asked))
    _told(opened, done, quiet, bool(asked["dry_run"]))


@click.command()
@_STORE
@_DATA
@options("replace")
def replace(store: str, data: tuple[str, ...], quiet: bool, plan_only: bool, **asked: Any) -> None:
    """Fold corrected partitions of DATA into STORE again."""
    with progress_bar(quiet) as advance:
        opened = opened_store(store, asked, advance)
        if plan_only:
            tell_plan(opened, "replace", {"data": list(data), **given(asked)}, None, quiet)
            return
        done = opened.replace(list(data), **given(asked))
    _told(opened, done, quiet)


@click.command()
@_STORE
@click.argument("partition", nargs=-1)
@options("remove")
def remove(store: str, partition: tuple[str, ...], quiet: bool, **asked: Any) -> None:
    """Remove partitions, such as night=2026-01-11, or columns from STORE.

    A later update that finds the files of a partition folds them again.
    """
    opened = opened_store(store, asked)
    if not partition and not asked["columns"]:
        msg = "name a PARTITION, or a column (--column)"
        raise click.UsageError(msg)
    _told(opened, opened.remove(partition, **given(asked)), quiet)


@click.command()
@_STORE
@click.argument("data", nargs=-1)
@options("add")
def add(store: str, data: tuple[str, ...], quiet: bool, plan_only: bool, **asked: Any) -> None:
    """Add columns or metrics to STORE; only new columns are folded.

    DATA names the files of the nights, if they have moved.
    """
    with progress_bar(quiet) as advance:
        opened = opened_store(store, asked, advance)
        if plan_only:
            tell_plan(opened, "add", {"data": list(data) or None, **given(asked)}, None, quiet)
            return
        done = opened.add(data=list(data) or None, **given(asked))
    _told(opened, done, quiet)


@click.command()
@_STORE
@options("vacuum")
def vacuum(store: str, quiet: bool, **asked: Any) -> None:
    """Delete files that STORE no longer needs, and merge old nights."""
    opened = opened_store(store, asked)
    done = opened.vacuum(**given(asked))
    if not quiet:
        note(f"{opened.name}: {done}")


@click.command()
@_STORE
@options("show")
def show(store: str, json_to: str | None, out: tuple[str, ...], quiet: bool, plan_only: bool, **asked: Any) -> None:
    """Evaluate nights of STORE from their states, without reading the data.

    By default all nights are evaluated together; --by night adds each night.
    """
    refuse_directory(json_to)
    check_out(out)
    opened = opened_store(store, asked)
    if plan_only:
        tell_plan(opened, "show", given(asked), json_to, quiet)
        return
    found = opened.evaluate(**given(asked))
    for path in out:
        found.save(path)
    deliver(json_to, lambda: found.to_json(indent=2), lambda: evaluation_tables(found), quiet)


@click.command("info")
@_STORE
@options("info")
def info(
    store: str,
    with_versions: bool | None,
    json_to: str | None,
    out: tuple[str, ...],
    quiet: bool,
    plan_only: bool,
    **asked: Any,
) -> None:
    """Show the content of STORE, incomplete nights and failures.

    --versions lists past changes with their times (UTC), newest first. --verify reads every file and exits with
    status 1 if one is damaged.
    """
    refuse_directory(json_to)
    check_out(out, PLAIN)
    opened = opened_store(store, asked)
    if plan_only:
        tell_plan(opened, "info", given(asked), json_to, quiet)
        return
    found = opened.info(**given(asked))
    facts, parts, rows = found.to_dict(), [table(["fact", "value"], found.lines())], list[list[str]]()
    if with_versions:
        made = [
            fact | {"when": fact["when"].isoformat(timespec="milliseconds").replace("+00:00", "Z")}
            for fact in opened.versions()
        ]
        facts["versions"] = made
        rows = [[str(fact["version"]), fact["when"], fact["action"]] for fact in made]
        parts.append(table(["version", "when", "action"], rows, ["version"]))
    listed = [*found.lines(), *((f"version {number}", f"{when} {action}") for number, when, action in rows)]
    write_out(out, lambda: as_json(facts), lambda: [{"fact": name, "value": told} for name, told in listed])
    deliver(json_to, lambda: as_json(facts), lambda: _stacked(parts), quiet)
    if found.damaged:
        if quiet or json_to == "-":
            note(f"damaged: {'; '.join(found.damaged)}")
        raise SystemExit(1)


def _stacked(parts: list[Any]) -> RenderableType:
    """Stack tables and lines vertically."""
    from rich.console import Group

    return Group(*parts)


@click.command()
@_STORE
@options("history")
def history(
    store: str,
    nightly: bool,
    json_to: str | None,
    csv_to: str | None,
    out: tuple[str, ...],
    plot: str | None,
    quiet: bool,
    plan_only: bool,
    **asked: Any,
) -> None:
    """Show metrics of STORE night by night.

    Each night's value is followed by the value over all nights up to it, starting at --since or --last if given.
    """
    check_plot(plot)
    refuse_directory(json_to, csv_to, plot)
    if json_to == csv_to == "-":
        from streameval.errors import OptionError

        msg = "--json - and --csv - cannot both print to stdout; write one of them to a file"
        raise OptionError(msg)
    check_out(out)
    opened = opened_store(store, asked)
    if plan_only:
        tell_plan(opened, "history", given(asked), json_to, quiet)
        return
    table = opened.history(**given(asked), cumulative=not nightly)
    found = table if len(table.series) > 1 else table.series[0]
    for path in out:
        found.save(path)
    if plot is not None:
        table.plot(plot)
    if csv_to is not None:
        emit(csv_to, found.to_csv())
    deliver(json_to, lambda: found.to_json(indent=2), lambda: _nights(table), quiet or csv_to == "-")


def tell_plan(store: Store, verb: str, asked: dict[str, Any], json_to: str | None, quiet: bool) -> None:
    """Print what a verb would read and keep."""
    found = store.plan(verb, **asked)
    deliver(json_to, lambda: as_json(found.to_dict()), lambda: str(found), quiet)


def _nights(found: Histories) -> RenderableType:
    """A table with one row per night, marked if incomplete or failing, followed by the lines of `night_notes`."""
    from streameval.report.notes import night_notes
    from streameval.report.terminal import escaped, series, short

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
    return _stacked([table(["partition", *found.columns], rows, list(found.columns)), *map(escaped, notes)])


def _told(store: Store, done: Update, quiet: bool, dry_run: bool = False) -> None:
    """Print a summary of an update on stderr."""
    if not quiet:
        rows = f"; {plural(done.rows, 'row')} folded" if done.rows else ""
        version = f"version {done.version}" if done.version >= 0 else "no store yet"
        note(f"{store.name}: {'would do: ' if dry_run else ''}{done}{rows}; {version}")
        if done.keeps:
            note(f"{store.name} {done.keeps}")


COMMANDS = (update, show, replace, remove, info, history, add, vacuum)
