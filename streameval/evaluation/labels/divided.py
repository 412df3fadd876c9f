"""Many statements, or more than the memory holds: divided by the hash of their ids, and resolved part by part.

All statements of an id are in one part, so that the label of each id, and every count, is that of all statements at
once. Parts of some 200,000 statements take less memory than all at once, and are resolved in the caches. The words,
times and codes of the statements, 9 to 25 bytes each, are arrays of the budget, which spills them. The labels that
follow are put into one table if it takes at most a quarter of the memory, else they stay in parts
(`streameval.states.late_parts`), with a filter of one to two bytes an id.

Conflicts are named by reading the labels again. Files of rejects list statements in their order, and streams can be
read only once: both need all statements in the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.engine.fold import RUN_ROWS, STATE_SHARE, batch_rows, scratch_bytes
from streameval.engine.threads import ThreadEngine
from streameval.errors import DataError, OptionError
from streameval.evaluation.labels.statements import (
    CONFLICT,
    FATES,
    Listed,
    Statements,
    cast_labels,
    count_statements,
    join_labels,
    read_statements,
    resolve,
)
from streameval.states.late import WITHDRAWN, LateLabels
from streameval.states.late_parts import IdParts, divide, whole_words
from streameval.wording import plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.budget import Buffer
    from streameval.engine import Engine
    from streameval.evaluation.labels.statements import LabelTables, LateSource
    from streameval.scan import Piece, Scan
    from streameval.typing import Array

_TABLE_SHARE = 1 / 4  # of the memory that a table in one part, or a filter, may take
_ID_BYTES = 19  # most bytes of an integer in a table
_LISTED = 1000  # conflicts of which the ids are read again
_PART_ROWS = 1 << 18  # statements that are resolved at once
_MOST_PARTS = 1 << 8  # unless the memory requires more: each part reads a slice of each batch
_BITS = 16  # most bits of the number of a part


def read_labels(source: LateSource, scanned: Scan, engine: Engine) -> Statements:
    """Read and resolve the statements for the rows of a scan.

    Raises
    ------
    DataError
        If a column is missing or cannot be used, a time is null, or statements contradict each other.
    OptionError
        If the memory is too small.
    """
    schema = scanned.schema
    own = schema.field(source.column).type if source.column in schema.names else None
    tables = source.find_tables(schema, scanned.pieces[0].name, engine)
    if isinstance(engine, ThreadEngine) and not source.rejects:
        again = scanned.rows >= 0 and all(piece.rows >= 0 for piece, _ in tables.tasks)
        if again and (tables.rows > _PART_ROWS or tables.rows * tables.row_bytes > engine.budget.limit / STATE_SHARE):
            return _Division.of(source, tables, engine).resolve(own)
    return Statements.of(source, tables.ours, tables.theirs, source.read_parts(tables, engine), own)


class _Batch(NamedTuple):
    """The statements of a batch in the order of their parts.

    Attributes
    ----------
    starts : the start of each part, and the end of the last
    columns : first and second words, times and codes, see `StatementPart`; first words lack the bits of the part
    values : the label of each code
    arrival : number of the delivery
    tally : numbers of all statements of the batch by what became of them
    """

    starts: Array
    columns: list[Buffer]
    values: pa.Array
    arrival: int
    tally: Array


class _Part(NamedTuple):
    """What follows from the statements of a part.

    Attributes
    ----------
    first, second, codes : the words and the code of each id
    conflicts : first words of the ids in conflict, with the bits of the part
    tally : numbers of the statements by what became of them
    """

    first: Buffer
    second: Buffer
    codes: Buffer
    conflicts: Array
    tally: Array
    withdrawn: int


@dataclass(frozen=True)
class _Division:
    """Statements that are divided by the leading bits of their words."""

    source: LateSource
    tables: LabelTables
    engine: ThreadEngine
    bits: int
    rows: int

    @classmethod
    def of(cls, source: LateSource, tables: LabelTables, engine: ThreadEngine) -> _Division:
        """The division into parts that all threads can resolve in half of the budget, and in their caches."""
        parts = 2 * engine.threads * tables.rows * tables.row_bytes / engine.budget.limit
        parts = max(parts, min(tables.rows / _PART_ROWS, _MOST_PARTS))
        bits = min(_BITS, max(1, int(parts).bit_length()))
        pieces = [piece for piece, _ in tables.tasks]
        rows = min(_PART_ROWS, batch_rows(tables.schema, RUN_ROWS, engine.budget, pieces))
        return cls(source, tables, engine, bits, rows)

    def resolve(self, own: pa.DataType | None) -> Statements:
        """Read and resolve the statements; see `Statements.of`."""
        source, budget = self.source, self.engine.budget
        first, pieces = self.tables.tasks[0][0].name, [piece for piece, _ in self.tables.tasks]
        place = first + (", …" if len({piece.name for piece in pieces}) > 1 else "")
        what = f"{place}: label column {source.column!r}"
        with budget.reserved(scratch_bytes(pieces, threads=self.engine.threads)):
            batches = [one for many in self.engine.each(self._divide, self.tables.tasks) for one in many]
        tables, values = join_labels([batch.values for batch in batches], what)
        values = values if own is None else cast_labels(values, own, what)
        each = partial(self._resolve_part, batches=batches, tables=tables)
        parts = self.engine.each(each, range(1 << self.bits))
        conflicts = sum(part.conflicts.size for part in parts)
        if conflicts and source.conflicts != "drop":
            self._refuse(parts, conflicts)
        tally = np.sum([batch.tally for batch in batches] + [part.tally for part in parts], axis=0)
        withdrawn = sum(part.withdrawn for part in parts)
        counts = count_statements(sum(int(batch.tally.sum()) for batch in batches), tally, withdrawn, conflicts)
        return Statements(source, self._labels(parts, values, own=own is not None), counts, place)

    def _divide(self, task: tuple[Piece, int]) -> list[_Batch]:
        """The statements of one piece, in batches."""
        (piece, arrival), hold, divided = task, self.engine.budget.hold, []
        for batch in self.tables.read(piece, self.rows):
            part = read_statements(batch, piece.name, arrival, self.source, self.tables.theirs)
            order, starts = divide(part.first, self.bits)
            words = part.first[order] << np.uint64(self.bits)
            others = [array[order] if array.size else array for array in (part.second, part.times, part.codes)]
            tally = np.bincount(part.fates, minlength=FATES)
            divided.append(_Batch(starts, [hold(words), *map(hold, others)], part.values, arrival, tally))
        return divided

    def _resolve_part(self, number: int, *, batches: Sequence[_Batch], tables: Sequence[Array]) -> _Part:
        """Resolve the statements of a part; `tables` have the code among all labels of each code of a batch."""
        spans = [(int(batch.starts[number]), int(batch.starts[number + 1])) for batch in batches]

        def gather(column: Iterable[Buffer]) -> list[Array]:
            return [one.read(*span) if one.shape[0] else one.read() for one, span in zip(column, spans, strict=True)]

        columns = [gather(column) for column in zip(*(batch.columns for batch in batches), strict=True)]
        first, second, times = map(np.concatenate, columns[:3])
        codes = np.concatenate([table[own] for table, own in zip(tables, columns[3], strict=True)])
        arrivals = None
        if self.source.conflicts == "latest":
            arrivals = np.repeat([batch.arrival for batch in batches], [stop - start for start, stop in spans])
        ids = [first, second] if second.size else [first]
        found = resolve(ids, [times] if times.size else [], codes, arrivals)
        latest, hold = found.order[found.last], self.engine.budget.hold
        codes = np.where(found.conflict, WITHDRAWN, codes[latest]).astype(np.uint8)
        first, second = first[latest], second[latest] if second.size else second
        conflicts = whole_words(first[found.conflict], number, self.bits)
        withdrawn = int(np.count_nonzero(codes == WITHDRAWN)) - conflicts.size
        tally = np.bincount(found.fates, minlength=FATES)
        return _Part(hold(first), hold(second), hold(codes), conflicts, tally, withdrawn)

    def _labels(self, parts: Sequence[_Part], values: pa.Array, *, own: bool) -> LateLabels:
        """The label of each id, in parts if one table of all would exceed its share of the memory."""
        of = partial(LateLabels.of, self.source.column, self.tables.ours, values, own=own)
        ids = sum(part.codes.shape[0] for part in parts)
        room = int(self.engine.budget.limit / STATE_SHARE * _TABLE_SHARE)
        if ids * (_ID_BYTES + 8 * any(part.second.shape[0] for part in parts)) <= room:
            first, at = np.empty(ids, np.uint64), 0
            for number, part in enumerate(parts):
                words = part.first.read()
                first[at : at + words.size] = whole_words(words, number, self.bits)
                at += words.size
            second = np.concatenate([part.second.read() for part in parts])
            return of(np.concatenate([part.codes.read() for part in parts]), (first, second))
        if 2 * ids > room:
            raise OptionError(
                f"labels: the filter of {plural(ids, 'id')} takes {size(2 * ids)}, more than a quarter of the memory: "
                f"give memory={(8 * ids >> 20) + 1}MiB (--memory)", "labels"
            )  # fmt: skip
        empty = np.empty(0, np.uint64)
        late = of(np.empty(0, np.uint8), (empty, empty))
        table = IdParts.of(self.bits, [(part.first, part.second, part.codes) for part in parts], self.engine.budget)
        return LateLabels(late.column, late.ids, late.values, late.table, own, table)

    def _refuse(self, parts: Sequence[_Part], conflicts: int) -> None:
        """Raise `LabelError` for ids whose latest statements contradict each other; reads some of them again."""
        words, listed = np.concatenate([part.conflicts for part in parts])[:_LISTED], []
        for piece, arrival in self.tables.tasks:
            for batch in self.tables.read(piece, self.rows):
                part = read_statements(batch, piece.name, arrival, self.source, self.tables.theirs)
                rows = np.flatnonzero(part.fates == 0)[np.isin(part.first, words)]
                table = pa.Table.from_batches([batch]).take(pa.array(rows))
                listed += [part._replace(table=table, fates=np.full(rows.size, CONFLICT, np.uint8))] * bool(rows.size)
        if not listed:
            first = self.tables.tasks[0][0].name
            raise DataError(f"{first}: the labels changed while they were read; run again")
        fates = np.concatenate([part.fates for part in listed])
        table, latest = pa.concat_tables(part.table for part in listed), np.empty(0, np.int64)
        every = Listed(table, self.tables.theirs, latest, fates)
        raise every.contradiction_of(self.source, listed, conflicts)
