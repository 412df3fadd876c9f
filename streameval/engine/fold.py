"""Fold: record batches × specs → states, within the memory budget.

A task folds a few pieces of the scan into one state per spec. Labels and weights are decoded once per batch and shared
by all builders. This module does not know where the data come from or which engine runs the task.

The engine divides its memory limit: 60 % for finished states, at most 25 % for the buffers of builders
(`run_capacity`), and the rest for record batches and for the shards being finalized. While a task runs, the memory for
reading row groups is reserved from the states' share (`scratch_bytes`).
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from streameval.budget import LEAST_ROOM, Budget
from streameval.errors import CorruptFileError, SchemaError, WeightError
from streameval.scan import Derived, Piece, Test, join, read
from streameval.scan.faults import READ_ERRORS
from streameval.scan.parquet.pages import TEXT_BYTES
from streameval.scan.parquet.row_groups import LARGE_CHUNK, Group, RowGroups, TableRows
from streameval.scan.widen import nearest_floats
from streameval.states.labels import ClassReader, ClassSpec, LabelCounts, LabelReader, LabelSpec, rows_of_class
from streameval.states.late import LateLabels, LateReader
from streameval.states.protocol import Batch, Builder, Spec, State, StoredSpec, merge_all, ungrouped
from streameval.states.rounds import row_bytes
from streameval.typing import pack_bits
from streameval.wording import plural, size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from streameval.typing import Array


LONG_BATCH_ROWS = 1 << 15  # largest number of rows of a batch that may have long strings or binaries
_SHORT_BATCH_ROWS = 1 << 19  # largest number of rows of a batch whose strings and binaries are short
_PAGE_ROWS = 1 << 10  # rows of long texts in a page: writers check the size of a page only so often
STATE_SHARE = 0.6  # share of the memory limit that states may take
_TABLES, _TABLE_ROW = 1 << 22, 200  # bytes of tables (hot keys, codes) per thread, and per row if there are few rows
_BOUNDED, _BOUNDED_ROW = 1.625, 1 << 12  # a bounded state and its builder: multiple of its bytes; most bytes per row
_FINISHED = 1 / 3  # share of a worker's limit up to which rows of finished tasks keep its peak within the limit
_LOG = logging.getLogger(__name__)


def scratch_bytes(pieces: Sequence[Piece], specs: Iterable[Spec] = (), threads: int = 1) -> int:
    """Bytes that all threads take while they read, besides growing states, their builders and batches of numbers.

    Each thread takes twice the compressed bytes of the largest row group; twice the decoded texts of a batch, which may
    be many times their stored size, or those of a page; tables of a few megabytes; and the states of the specs that
    have a largest size, with their builders. Tables and bounded states take less for few rows.
    """
    tables, bounded = _TABLES, int(_BOUNDED * sum(spec.traits.largest or 0 for spec in specs))
    if all(piece.rows >= 0 for piece in pieces):
        rows = sum(piece.rows for piece in pieces)
        tables, bounded = min(tables, _TABLE_ROW * rows), min(bounded, _BOUNDED_ROW * rows)
    largest = max((group.nbytes for piece in pieces for group in _row_groups(piece)), default=0)
    return threads * (2 * (min(largest, LARGE_CHUNK) + _text_bytes(pieces)) + tables + bounded)


def _text_bytes(pieces: Sequence[Piece]) -> int:
    """Most bytes of the decoded texts of a batch of one piece, from their mean length in the footer.

    Long texts that are read as codes are decoded once, in their dictionary.
    """
    most = 0
    for piece in pieces:
        texts = [group for group in _row_groups(piece) if group.row_text or group.dictionaries]
        if texts:
            rows = min(max(text_rows([piece]), _PAGE_ROWS // 2), max(piece.rows, 0))
            most = max(most, max(group.dictionaries for group in texts) + _row_text(piece) * rows)
    return most


def text_rows(pieces: Iterable[Piece], room: int = 0) -> int:
    """Number of rows to read at a time from pieces with strings or binaries; fewer if the footers show long texts.

    Texts that the footers show to be short are read `room` rows at a time, the number that fits into the budget: a
    batch costs about half a millisecond, a tenth of the time to decode 32,768 UUIDs and to count them.

    Examples
    --------
    >>> text_rows([]) == LONG_BATCH_ROWS
    True
    """
    longest = max(map(_row_text, pieces), default=0)
    short = min(room, _SHORT_BATCH_ROWS, TEXT_BYTES // (2 * longest)) if longest else 0
    return max(1, min(max(LONG_BATCH_ROWS, short), TEXT_BYTES // max(1, longest)))


def _row_text(piece: Piece) -> int:
    """Mean bytes of the texts of a row."""
    return max((group.row_text for group in _row_groups(piece)), default=0)


def _row_groups(piece: Piece) -> tuple[Group, ...]:
    """The row groups of a piece; none of a table in memory."""
    stored = _stored_groups(piece)
    return stored.groups if stored else ()


def _stored_groups(piece: Piece) -> RowGroups | None:
    """The row groups of a piece, also below `TableRows`; None for any other source."""
    source = piece.source.source if isinstance(piece.source, TableRows) else piece.source
    return source if isinstance(source, RowGroups) else None


def warn_of_little(limit: int, pieces: Sequence[Piece], specs: Iterable[Spec], threads: int, whose: str = "") -> None:
    """Log a warning, once for equal numbers, if a memory limit is too low to be kept.

    Parameters
    ----------
    limit : memory limit of the process that folds, in bytes
    pieces : the pieces that it reads
    specs : the states that it folds
    threads : number of its threads
    whose : words after "memory" in the message, such as " of a worker"
    """
    scratch = scratch_bytes(pieces, specs, threads)
    if least_limit(scratch) <= limit:
        scratch += _uneven_bytes(limit, scratch, pieces, threads)
    if limit < (least := least_limit(scratch)):
        _warn(
            "%s of memory%s is too little for the row groups and tables of %s, so the run may take more; "
            "give %d MiB (--memory) or fewer threads (--threads)",
            *(size(limit), whose, plural(threads, "thread"), -(-least >> 20)),
        )


def _uneven_bytes(limit: int, scratch: int, pieces: Sequence[Piece], threads: int) -> int:
    """Bytes that texts of uneven lengths may take above their mean, by the largest page of each file.

    A file is opened only if all texts of its row groups in one page would exceed the limit. A file that cannot be read
    adds nothing: its fold says why.
    """
    mean, page = _text_bytes(pieces), 0
    for piece in pieces:
        text, stored = _row_text(piece), _stored_groups(piece)
        if text and stored and least_limit(scratch + 2 * threads * (text * max(piece.rows, 0) - mean)) > limit:
            with suppress(*READ_ERRORS):
                page = max(page, stored.largest_texts())
    return 2 * threads * max(0, page - mean)


@cache
def _warn(message: str, *facts: str | int) -> None:
    """Log a warning, once for equal facts."""
    _LOG.warning(message, *facts)


def warn_of_finished(limit: int, nbytes: int) -> None:
    """Log a warning, once for equal numbers, if the rows of finished tasks that Dask holds may exceed a worker's limit.

    Parameters
    ----------
    limit : memory limit of a worker in bytes
    nbytes : bytes of the rows of all states, divided by the number of workers
    """
    if nbytes > limit * _FINISHED:
        _warn(
            "%s of memory of a worker is too little for the rows of finished tasks, which Dask holds (up to %s), so "
            "the run may take more; give %d MiB (--memory) or more workers",
            *(size(limit), size(nbytes), -(-int(nbytes / _FINISHED) >> 20)),
        )


def least_limit(scratch: int) -> int:
    """The smallest memory limit at which reading leaves states the room that a budget guarantees them.

    Examples
    --------
    >>> least_limit(21 << 20) >> 20
    40
    """
    return int(scratch / (STATE_SHARE * (1 - LEAST_ROOM)))


BATCH_ROWS = 1 << 20  # largest number of rows of a batch
RUN_ROWS = 1 << 21  # rows that a builder collects before it partitions them; fewer under a small limit
TASK_ROWS = 1 << 20  # smallest number of rows that is worth a task
TASKS = 4  # tasks per thread for any number of rows, which bounds the number of live states
FIXED_ROWS = 1 << 24  # rows of a task if no state grows with the rows, since each task then takes time for its tables
_ROW_SCRATCH = 80  # bytes that a row takes while it is decoded, hashed, moved to its group and encoded
ROWS_A_TASK = 1 << 22  # rows of a task if a state depends on how rows are divided into tasks
MAX_WEIGHT = 1e280  # largest weight, so that no sum of weights overflows a float64


@dataclass(frozen=True)
class Plan:
    """The parameters that all fold tasks of a pass share.

    Attributes
    ----------
    schema : the columns to read and their types
    label : how labels are read; None if rows have no classes
    weight : the weight column, or None
    specs : the states to build
    skip : whether a file that cannot be read is skipped instead of ending the run
    by_row_group : whether every piece is read separately; otherwise adjacent pieces of a file are joined
    where : filter of the rows to fold; None for all rows
    derived : columns that are computed from those that are read
    late : labels from another table, for rows without one of their own; None if there is no such table
    numbers : column of the numbers of rows, if these are some of the rows of a file
    """

    schema: pa.Schema
    label: LabelSpec | None
    weight: str | None
    specs: tuple[Spec, ...]
    skip: bool = False
    by_row_group: bool = False
    where: Test | None = None
    derived: tuple[Derived, ...] = ()
    late: LateLabels | None = None
    numbers: str | None = None

    @property
    def by_code(self) -> frozenset[str]:
        """Columns that only builders read which count the rows of numbers in a dictionary by its codes."""
        if self.late is not None:
            return frozenset()
        others = self._shared.union(*(spec.columns for spec in self.specs if not spec.traits.by_code))
        return frozenset(name for spec in self.specs for name in spec.columns) - others

    @property
    def _shared(self) -> set[str | None]:
        """Columns that are read for more than a spec."""
        filtered = self.where.schema.names if self.where else ()
        labels = self.label.columns if self.label else ()
        return {self.weight, self.numbers, *labels, *filtered, *(each.column for each in self.derived)}

    def reads(self, *, ids: bool) -> pa.Schema:
        """The columns to read: those of the ids and the filter alone, or all that are needed once labels are joined."""
        names = self._shared.union(*(spec.columns for spec in self.specs))
        if ids and self.late is not None:
            filtered = self.where.schema.names if self.where else ()
            names = {*filtered, *(column.name for column in self.late.ids)}
        elif self.late is not None:
            names |= {column.name for other in self.late.others for column in other.ids}
        fields = [field for field in self.schema if field.name in names]
        return pa.schema(fields or self.schema, self.schema.metadata)

    @property
    def associative(self) -> bool:
        """Whether the rows may be divided into tasks in any way without changing a state."""
        return all(spec.traits.associative for spec in self.specs)

    def empty(self) -> dict[StoredSpec, State]:
        """The empty states, labels first."""
        late = () if self.late is None else (self.late.spec,)
        return {spec: spec.empty() for spec in (self.label, *late, *self.specs) if spec is not None}


@dataclass(frozen=True)
class Folded:
    """The result of a fold task.

    Attributes
    ----------
    states : dict of Spec to State, with the label state first
    skipped : tuple of (file, reason) for the files that could not be read
    """

    states: dict[StoredSpec, State]
    skipped: tuple[tuple[str, str], ...] = ()

    def labels(self, spec: LabelSpec) -> LabelCounts:
        """The state of the labels."""
        return cast("LabelCounts", self.states[spec])

    def __sizeof__(self) -> int:
        """Bytes in memory, from which Dask decides what to spill."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.states.values()))


def tasks(
    pieces: Sequence[Piece], rows: int, most: int, *, by_file: bool, by_row_group: bool = False
) -> list[tuple[Piece, ...]]:
    """Group pieces into at most `most` tasks with about equal numbers of rows, at least about `TASK_ROWS` each.

    Parameters
    ----------
    pieces : pieces of the scan, in order
    rows : number of all rows; with −1 (unknown), every piece is a task
    most : largest number of tasks
    by_file : whether every file is a task instead
    by_row_group : whether the pieces of a task are kept separate; otherwise adjacent row groups of a file are joined
    """
    count = max(1, min(most, rows // TASK_ROWS))
    gathered: list[list[Piece]] = []
    before = last = 0
    for piece in pieces:
        task = (2 * before + piece.rows) * count // (2 * rows) if rows > 0 else len(gathered)
        near = gathered and gathered[-1][-1].name == piece.name
        if not (near if by_file else gathered and task == last):
            gathered.append([])
        gathered[-1].append(piece)
        before, last = before + piece.rows, task
    return [tuple(group) if by_row_group else join(group) for group in gathered]


def fold(pieces: Sequence[Piece], plan: Plan, budget: Budget, capacity: int, progress: Callable[[int], None]) -> Folded:
    """Fold the pieces of one task.

    Parameters
    ----------
    pieces : pieces of the scan; of a single file if `plan.skip`
    plan : see `Plan`
    budget : owns the states
    capacity : number of rows that a builder collects at a time
    progress : called after each batch with its number of rows; the calls add up to `Piece.rows` of all pieces. It may
        raise an exception to end the run.

    Raises
    ------
    DataError
        If the data cannot be evaluated; the message names the file and the column.
    """
    reader, late = label_reader(plan), None if plan.late is None else LateReader(plan.late)
    rows = sum(piece.rows for piece in pieces)
    room = max(1, min(capacity, rows)) if rows >= 0 else capacity
    builders = {spec: spec.builder(budget, room) for spec in plan.specs}
    try:
        with budget.reserved(scratch_bytes(pieces, plan.specs)):
            most = batch_rows(plan.schema, capacity, budget, pieces)
            if late is not None and late.labels.parts is not None:
                late.read_ahead(late.labels.parts, _id_batches(pieces, plan, most, progress), budget)
                plan = replace(plan, schema=plan.reads(ids=False))
            for _, read_rows, batch in batches(pieces, plan, reader, most, late=late):
                if batch is not None:
                    hand_over(batch, builders, plan.label)
                budget.relieve()
                progress(read_rows)
    except CorruptFileError as error:
        if not plan.skip:
            raise
        name = pieces[0].name
        return Folded(plan.empty(), ((name, str(error).removeprefix(f"{name}: ")),))
    labels: dict[StoredSpec, State] = {plan.label: reader.state()} if plan.label and reader else {}
    labels |= {late.labels.spec: late.state()} if late else {}
    return Folded(labels | {spec: builder.state() for spec, builder in builders.items()})


def _id_batches(
    pieces: Sequence[Piece], plan: Plan, rows: int, progress: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """The ids of the rows that meet the filter, for `LateReader.read_ahead`."""
    for piece, _, batch in raw_batches(pieces, plan.reads(ids=True), rows):
        progress(0)
        yield batch if plan.where is None else batch.filter(pack_bits(plan.where.kept(batch, piece.name)))


def label_reader(plan: Plan) -> LabelReader | None:
    """A reader for the labels; None if rows have no classes."""
    if plan.label is None:
        return None
    column = plan.label.column
    if column is None:
        return LabelReader(plan.label, pa.null())
    late = plan.late is not None and plan.late.column == column
    kind = plan.late.values.type if plan.late and late else plan.schema.field(column).type
    return ClassReader(plan.label, kind) if isinstance(plan.label, ClassSpec) else LabelReader(plan.label, kind)


def batches(
    pieces: Sequence[Piece],
    plan: Plan,
    reader: LabelReader | None,
    rows: int,
    first: int = 0,
    late: LateReader | None = None,
) -> Iterator[tuple[Piece, int, Batch | None]]:
    """Read, filter and decode `rows` rows at a time.

    Yields for every batch its piece, its number of rows, and the rows to fold, if any are left; `first` is added to
    the offsets of rows in their files. `late` adds labels to the rows that meet the filter.
    """
    for piece, row, batch in raw_batches(pieces, plan.schema, rows, plan.by_code):
        kept = None if plan.where is None else np.flatnonzero(plan.where.kept(batch, piece.name))
        yield piece, batch.num_rows, _decode(piece, first + row, batch, kept, plan, reader, late)


def raw_batches(
    pieces: Sequence[Piece], schema: pa.Schema, rows: int, by_code: Collection[str] = ()
) -> Iterator[tuple[Piece, int, pa.RecordBatch]]:
    """Yield every batch with its piece and the offset of its first row in the file."""
    for piece in pieces:
        row = piece.row
        for batch in read(piece, schema, rows, by_code):
            yield piece, row, batch
            row += batch.num_rows


def batch_rows(schema: pa.Schema, capacity: int, budget: Budget, pieces: Sequence[Piece] = ()) -> int:
    """Number of rows to read at a time; fewer if columns have texts, or the builders or the budget are small.

    The footers of the pieces show whether texts are long.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> schema = pa.schema({"label": pa.int8(), "score": pa.float32()})
    >>> batch_rows(schema, RUN_ROWS, Budget(1 << 30)), batch_rows(schema, RUN_ROWS, Budget(1 << 26))
    (1048576, 93206)
    """
    whole = pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary
    views = pa.types.is_string_view, pa.types.is_binary_view
    fit = budget.scratch // (_ROW_SCRATCH + 2 * row_width(schema))
    rows = min(BATCH_ROWS, max(LONG_BATCH_ROWS, min(fit, capacity * BATCH_ROWS // RUN_ROWS)))
    texts = any(test(kind) for kind in schema.types for test in (*whole, *views))
    texts |= any(map(_row_text, pieces))  # that are not read as codes, such as those of an abandoned dictionary
    return text_rows(pieces, rows) if texts else rows


def row_width(schema: pa.Schema) -> int:
    """Bytes of a row in memory; values of variable length are assumed to take 64.

    Examples
    --------
    >>> row_width(pa.schema({"label": pa.bool_(), "score": pa.float32(), "country": pa.string()}))
    69
    """
    width = 0
    for kind in schema.types:
        try:
            width += -(-int(kind.bit_width) // 8)
        except ValueError:
            width += 64
    return width


def _decode(
    piece: Piece,
    row: int,
    batch: pa.RecordBatch,
    kept: Array | None,
    plan: Plan,
    reader: LabelReader | None,
    late: LateReader | None,
) -> Batch | None:
    """Decode labels and weights, and drop rows that are filtered out or incomplete; `kept` are those of the filter."""
    numbers = None if plan.numbers is None else batch.column(plan.numbers).to_numpy()
    if kept is not None:
        batch = batch if kept.size == batch.num_rows else batch.take(pa.array(kept))
    batch = batch if late is None else late.join(batch)
    if numbers is not None:
        row, kept = 0, numbers if kept is None else numbers[kept]
    whole = None if reader is None else reader.complete(batch)
    if whole is not None:
        batch, kept = batch.filter(pack_bits(whole)), np.flatnonzero(whole) if kept is None else kept[whole]
    if not batch.num_rows:
        return None
    label, labelled = (np.zeros(batch.num_rows, np.uint8), None) if reader is None else reader.rows(batch, piece.name)
    weight = None if plan.weight is None else _weights(batch, plan.weight, piece.name, labelled)
    derived = {each.name: each for each in plan.derived}
    names = dict.fromkeys(name for spec in plan.specs for name in spec.columns)
    columns = {name: derived[name].of(batch, piece.name) if name in derived else batch.column(name) for name in names}
    place = piece.partition, piece.name, row, kept, piece.origin, piece.row
    return Batch(label, weight, columns, *place, labelled)


def hand_over(batch: Batch, builders: Mapping[Spec, Builder], label: LabelSpec | None) -> None:
    """Pass a batch to all builders; those that need labels get only the rows that have one, those of a class its."""
    labelled = batch.with_labels()
    for spec, builder in builders.items():
        rows = rows_of_class(batch if spec.traits.unlabelled else labelled, label, spec)
        if rows.label.size:
            builder.update(rows)


def _weights(batch: pa.RecordBatch, column: str, name: str, labelled: Array | None) -> Array:
    """Weights of a batch as float64; 0 for rows without a label, whose weights are neither checked nor used.

    Raises
    ------
    SchemaError
        If the column is not numeric.
    WeightError
        If a weight is null, NaN, negative, infinite or above `MAX_WEIGHT`.
    """
    array = batch.column(column)
    if labelled is not None:
        array = array.filter(pack_bits(labelled))
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type)):
        raise SchemaError(f"{name}: weight column {column!r} has type {array.type}; weights are numbers: cast it")
    if array.null_count:
        raise WeightError(
            f"{name}: weight column {column!r} has nulls; give every row a weight (0 leaves it out of the sums)"
        )
    values = nearest_floats(array)
    if values.size and not (values.min() >= 0.0 and values.max() <= MAX_WEIGHT):
        bad = values[~((values >= 0.0) & (values <= MAX_WEIGHT))][0]
        remedy = "scale the weights" if np.isfinite(bad) and bad > 0 else "weights are finite and not negative"
        raise WeightError(f"{name}: weight column {column!r} has the value {bad}; {remedy}")
    if labelled is None:
        return values
    weights = np.zeros(batch.num_rows)
    weights[labelled] = values
    return weights


def merge(parts: Sequence[Folded]) -> Folded:
    """Merge the states of several tasks, spec by spec."""
    states = {spec: merge_all([part.states[spec] for part in parts]) for spec in parts[0].states}
    return Folded(states, tuple(skipped for part in parts for skipped in part.skipped))


def task_threads(rows: int) -> int:
    """Number of threads to assume if a state depends on how rows are divided into tasks.

    It depends on the number of rows alone, so the tasks are the same on every machine.
    """
    return max(1, rows // (TASKS * ROWS_A_TASK))


def tasks_per_thread(rows: int, threads: int, specs: Iterable[Spec]) -> int:
    """Number of tasks per thread if states do not depend on how rows are divided into tasks.

    Examples
    --------
    >>> from streameval.states.scores.counts import ScoreSpec
    >>> from streameval.states.scores.histogram import HistogramSpec
    >>> [tasks_per_thread(10**8, 2, [spec("score")]) for spec in (ScoreSpec, HistogramSpec)]
    [4, 2]
    """
    grows = builder_bytes(specs) > 1
    return TASKS if grows else min(TASKS, max(1, rows // (threads * FIXED_ROWS)))


def builder_bytes(specs: Iterable[Spec]) -> int:
    """Bytes that one builder of each spec needs per row, at least 1.

    A builder of keyed counts collects words (and weights) with a 4-byte code, and holds words and weights twice while
    it partitions them. All builders of a state with several keyed counts, or of a grouped state, together take as much
    as one builder. Builders of other states need no buffers.

    Examples
    --------
    >>> from streameval.states.scores.counts import ScoreSpec
    >>> builder_bytes([ScoreSpec("score", "f8")]), builder_bytes([ScoreSpec("score", "f8", weighted=True)])
    (20, 36)
    """
    states = [ungrouped(spec).empty() for spec in specs]
    return max(1, sum(2 * row_bytes(state) + 4 for state in states if state.runs()))


def run_capacity(limit: int, threads: int, specs: Iterable[Spec]) -> int:
    """Number of rows that a builder collects at a time, so that all buffers take at most a quarter of the limit."""
    return max(1 << 14, min(RUN_ROWS, limit // (4 * threads * builder_bytes(specs))))
