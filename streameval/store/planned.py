"""Forecast the verbs that fold data, from listings, footers and the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.errors import MissingInputError
from streameval.store.backfill import Place, due_files
from streameval.store.ingest import begin_backfill, replaced, sought
from streameval.store.nights.column_changes import altered, joined
from streameval.store.nights.partitions import chosen
from streameval.store.results.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.store.context import StoreContext
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.partitions import Partition

FOLDING = ("update", "replace", "add")
_RUN = ("dry_run", "on_error")  # these do not change what is read


def planned(context: StoreContext, verb: str, asked: Mapping[str, Any]) -> Reading:
    """Forecast `update`, `replace` or `add` with these arguments.

    Raises
    ------
    OptionError, DataError
        If the verb would raise it without reading more than footers.
    """
    options = {name: value for name, value in asked.items() if name not in _RUN}
    data, version = options.pop("data", None), options.pop("delta_version", None)
    if verb == "update":
        verify = options.pop("verify", False)
        _, configuration, found = sought(context, data, options, version)
        due: Sequence[Partition] = [*found.new, *found.changed, *(found.unchanged if verify else ())]
        return _reading(context, configuration, due, str(configuration).removeprefix("keeps "))
    if verb == "replace":
        _, configuration, due = replaced(context, data, version)
        return _reading(context, configuration, due, str(configuration).removeprefix("keeps "))
    since, place = options.pop("since", None), Place(data, version)
    snapshot, before, after = begin_backfill(context, options, place)
    some = chosen(snapshot.entries, since=since) if snapshot.entries else []
    narrow, due = due_files(before, after, some, place)
    more = (*joined(after, before), *(f"{name}={new}" for name, _, new in altered(after, before)))
    return _reading(context, narrow, due, f"also {', '.join(more)}")


def _reading(context: StoreContext, configuration: Configuration, due: Sequence[Partition], keeps: str) -> Reading:
    """The forecast of reading these partitions."""
    files = [file for partition in due for file in partition.files]
    columns, rows, nbytes = configuration.folding.columns if due else (), 0, 0
    try:
        found = scan.plan(files, columns, on_error="skip", threads=context.engine().threads) if files else None
    except MissingInputError:  # no file has rows
        found = None
    if found is not None:
        rows, nbytes = found.rows, found.nbytes
    first, last = (due[i].name if due else "" for i in (0, -1))
    return Reading(len(due), first, last, rows, len(files), nbytes, {}, keeps, tuple(columns))
