"""Open nights of a store: the rows that it keeps for late labels, and which nights are closed.

An open night has a file of the columns from which it was folded, in the order of its rows. If it has the id of a new
statement, its states that depend on labels are folded anew from this file by the ordinary builders: the result equals
a fold of the joined files, in whatever order nights and labels arrived. Nothing is added to states or subtracted.

A night that is older than the newest by the span `labels_open` is closed by the next commit: its rows are no longer
referred to, and `vacuum` deletes them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streameval import scan
from streameval.errors import FormatError, NullError, SchemaError, WeightError
from streameval.evaluation.labels.statements import cast_labels
from streameval.scan import READ_ERRORS, reason
from streameval.scan.derived import UUIDS
from streameval.states.late import (
    IdTable,
    LateLabels,
    comparison,
    find_codes,
    read_ids,
)
from streameval.store.files.entries import StoredState
from streameval.store.nights.partitions import day_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from streameval.evaluation.request import Request
    from streameval.scan import Scan
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import PublishedFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.typing import Array

OPEN = "open"  # the group of the file of rows among the states of an open night
GAP = 8  # days: a night that is later than this after the one before it closes no other
WORDS = {"signed": pa.int64(), "unsigned": pa.uint64(), "text": pa.large_string()}  # of the ids, by their kind


def labels_for(labels: LateLabels, schema: pa.Schema, name: str) -> LateLabels:
    """The labels for a night whose columns have this schema.

    Raises
    ------
    SchemaError
        If its ids or labels have another type than those of the store.
    """
    ids = []
    for one in labels.ids:
        field = schema.field(one.name)
        if (comparison(field.type, WORDS[one.kind]) or "") != one.kind:
            raise SchemaError(
                f"{name}: column {one.name!r} has type {field.type}, but the ids of the store are {one.kind}: cast it"
            )
        ids.append(replace(one, uuid=(field.metadata or {}).items() >= UUIDS.items()))
    if labels.column not in schema.names:
        return replace(labels, ids=tuple(ids))
    values = cast_labels(labels.values, schema.field(labels.column).type, f"{name}: label column {labels.column!r}")
    return replace(labels, ids=tuple(ids), values=values, own=True)


def write_rows(planned: Scan, request: Request, files: PublishedFiles, lost: Collection[str] = ()) -> StoredState:
    """Write the rows of an open night, with the columns of a scan, but for those of the files that were `lost`.

    Raises
    ------
    NullError
        If a row lacks a score or an id that the policies of the store require: its label may arrive later.
    """
    name = planned.pieces[0].name
    test = None if request.where is None else request.where.bound(planned.schema, name)

    def write(sink: object) -> None:
        with pq.ParquetWriter(sink, planned.schema, compression="zstd") as writer:
            for piece in (one for one in planned.pieces if one.name not in lost):
                for batch in scan.read(piece, planned.schema):
                    rows = (
                        batch if test is None else batch.filter(pa.array(test.kept_of_each([batch], [piece.name])[0]))
                    )
                    _check_rows(rows, request, piece.name)
                    writer.write_batch(batch)

    return StoredState(OPEN, "", "rows", *files.publish(write))


def _check_rows(batch: pa.RecordBatch, request: Request, name: str) -> None:
    """Raise `NullError` if a row without a label has a value that is refused in rows with one."""
    policies = [("nan", column) for column in request.scores] + [("nulls", column) for column in request.clusters]
    for option, column in policies:
        array = batch.column(column)
        lacks = array.null_count or (pa.types.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py())
        if lacks and column not in request.label.complete and request.policy(option, column) == "error":
            raise NullError(f"{name}: column {column!r} has nulls or NaN; choose {option} (--{option})")
    if request.weight is not None:
        weight = batch.column(request.weight).cast(pa.float64())
        if weight.null_count or not pc.all(pc.and_(pc.is_finite(weight), pc.greater_equal(weight, 0))).as_py():
            raise WeightError(f"{name}: weight column {request.weight!r} must be finite and at least 0 in every row")


def read_rows(entry: Entry, files: PublishedFiles, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of an open night; raises `FormatError` if they cannot be read."""
    state = cast("StoredState", entry.state(OPEN, ""))
    try:
        return pq.read_table(pa.BufferReader(files.load(state.file)), columns=columns)
    except (FormatError, *READ_ERRORS) as error:
        where = f"{entry.partition}: {files.location.name}/{state.file}"
        raise FormatError(f"{where}: {reason(error)}; fold its partition again with replace") from error


def find_ids(entry: Entry, ids: IdTable, labels: LateLabels, files: PublishedFiles) -> Array:
    """Which of some ids an open night has, as a bool array."""
    table = read_rows(entry, files, [one.name for one in labels.ids])
    own = labels_for(replace(labels, column=""), table.schema, entry.partition)
    seen = np.zeros(ids.first.size, np.bool_)
    for batch in table.to_batches():
        find_codes(*read_ids(batch, own.ids), *ids, seen)
    return seen


def newest_day(names: Iterable[str]) -> int:
    """The newest night as `date.toordinal`, today if there is none; those in the future or after a gap do not count.

    Raises
    ------
    OptionError
        If the name of a night has no date.
    """
    days = sorted({day_of(name, ", so it cannot be closed for late labels by its age").toordinal() for name in names})
    today = datetime.now(UTC).date().toordinal()
    near = [later for earlier, later in pairwise(days) if later - earlier <= GAP and later <= today]
    return max([*days[:1], *near], default=today)


def find_ahead(names: Iterable[str], new: Iterable[str]) -> list[str]:
    """The new nights that are later than the newest one that counts, so that they close no others."""
    newest = newest_day(names)
    return [name for name in new if day_of(name, "").toordinal() > newest]


def find_closing(entries: Collection[Entry], configuration: Configuration) -> list[Entry]:
    """The open nights that are older than the newest by the span of open ones."""
    if configuration.late is None or not entries:
        return []
    oldest = newest_day(entry.partition for entry in entries) - open_days(configuration)
    return [e for e in entries if e.state(OPEN, "") and day_of(e.partition, "").toordinal() < oldest]


def open_days(configuration: Configuration) -> int:
    """The span of open nights."""
    return int(configuration.options["labels_open"][:-1])


def close_night(entry: Entry) -> Entry:
    """A night without its rows."""
    return replace(entry, states=tuple(state for state in entry.states if state.group != OPEN))
