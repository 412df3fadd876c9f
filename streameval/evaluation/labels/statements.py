"""Statements: labels that arrive in a table of their own, and the label of each id that follows from them.

A row of that table is a *statement*: an id, a time, and a value, which is null if the label is withdrawn. The label of
an id is the value of its latest statement. Equal statements count once. Different values at the latest time are a
conflict, and so are all different values if there are no times. If the latest statement wins by arrival, files arrive
in the order in which they are named.

The statements are read once, put in the order of the hashes of their ids, and resolved, with arrays of some 110 bytes a
statement (170 for texts) before any row is folded. What remains is a table of ids and codes (`streameval.states.late`),
15 to 25 bytes an id. Statements that exceed the memory are divided (`streameval.evaluation.labels.divided`).

A dump of all labels, with corrections in place, needs a column of times, or that the later file wins; an id that it
leaves out is not withdrawn.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval import scan
from streameval.engine.fold import STATE_SHARE
from streameval.errors import (
    CorruptFileError,
    LabelError,
    MissingColumnError,
    MissingInputError,
    NullError,
    OptionError,
    SchemaError,
)
from streameval.kinds import unit_columns
from streameval.saving import TABULAR, check_writable, ending, save
from streameval.scan.derived import UUIDS, IdName, LateColumn, LateId
from streameval.scan.in_memory import are_delayed
from streameval.scan.pieces import without_views
from streameval.scan.widen import occurring, plain, widen
from streameval.states.late import (
    MOST_LABELS,
    WIDE_WITHDRAWN,
    WITHDRAWN,
    IdColumn,
    LateLabels,
    Matches,
    are_labels,
    check_ids,
    comparison,
    order_words,
    read_ids,
    scramble_words,
)
from streameval.typing import Array, view_numbers
from streameval.wording import few, plural, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence, Set

    from streameval.engine import Engine
    from streameval.scan import Piece, Scan


_ROW_BYTES, _TEXT_BYTES = 112, 56  # bytes of a statement while all are resolved, and more if its id is a text
_READ_FROM_DATA = (
    "score", "cluster", "classes", "changed_from", "sketch", "weight", "unit", "mean_over", "examples"
)  # fmt: skip
_NOWHERE = "the table of labels"  # in place of a file, if no table has rows
_LISTED = 20  # ids in the message about conflicts
_DUPLICATE, _NULL_ID, _SUPERSEDED, CONFLICT, _LATER = range(1, 6)  # what becomes of a statement; 0: it is in effect
FATES = _LATER + 1
_COUNTED = {_DUPLICATE: "duplicates", _NULL_ID: "null_ids", _SUPERSEDED: "superseded", _LATER: "later"}
_REASONS = {_NULL_ID: "null id", _SUPERSEDED: "superseded", CONFLICT: "conflict"}


@dataclass(frozen=True)
class LateSource:
    """A table of labels as it is requested.

    Attributes
    ----------
    data : what `streameval.evaluate` reads
    on : pairs of the id columns of the data and of the table
    column : the label column
    time : the column of times; None without one
    until : last time of statements that count, in microseconds since 1970 (UTC); None for all
    conflicts : ``error``, ``latest`` or ``drop``
    rejects : file for the statements that label no row; None without one
    unmatched : whether it is allowed that no id occurs in the data
    further : columns of classes, units, strata and probabilities, which arrive in the same way if the data lack them
    numbers : the probabilities among these, which are not ids
    wide : whether `column` is one of these: it has any number of values
    needed : whether there must be labels, rather than one of the further columns alone
    single : whether each id is that of one row, as rows were drawn one by one
    """

    data: Any
    on: tuple[tuple[str, str], ...]
    column: str
    time: str | None = None
    until: int | None = None
    conflicts: str = "error"
    rejects: str | None = None
    unmatched: bool = False
    further: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    wide: bool = False
    needed: bool = True
    single: bool = False

    @property
    def what(self) -> str:
        """The column, for messages."""
        return f"column {self.column!r}" if self.wide else f"label column {self.column!r}"

    @property
    def when(self) -> str:
        """Which statements of an id contradict each other."""
        return "in one delivery" if self.conflicts == "latest" else "at one time" if self.time else "and no times"

    @classmethod
    def of(cls, options: Mapping[str, Any], others: Collection[str] = ()) -> LateSource | None:
        """The table that plain options name; None without one. `others` are columns that select and slice rows.

        Raises
        ------
        OptionError
            If options are inconsistent.
        """
        if not options["labels"]:
            return None
        source = cls.columns_of(options, others)
        classes = None if options.get("changed_from") else options["classes"]
        there = {*others, *(name for name, _ in source.on)}
        recorded = [options.get(name) for name in ("label_probability", "classes_sampled", "clusters_sampled")]
        numbers = tuple(name for name in recorded if name not in (None, "uniform", "size"))
        strata = str(options.get("sampled_by") or "").partition("=")[2]
        units = unit_columns(options.get("unit"))
        named: dict[str, None] = dict.fromkeys(filter(None, (classes, *units, strata, *numbers)))
        single = not units and bool(options.get("sampled_by") or options.get("label_probability"))
        further = tuple(name for name in named if name not in there)
        return replace(source, further=further, numbers=numbers, single=single)

    @classmethod
    def columns_of(cls, options: Mapping[str, Any], others: Collection[str] = ()) -> LateSource:
        """As `of`, for a call with a table of labels or a store that will get one."""
        if not options["on"]:
            raise OptionError("labels are matched by ids: name their column, such as on='message_id' (--on)", "on")
        if options["labels_as_of"] is not None and options["label_time"] is None:
            raise OptionError(
                "labels_as_of needs the times of labels: name their column (--label-time)", "labels_as_of"
            )
        column = options["label"] or "label"
        for name in _READ_FROM_DATA:
            columns = options.get(name) or ()
            if column == columns or (not isinstance(columns, str) and column in columns):
                raise OptionError(
                    f"{name}={column!r} is the label column, which arrives in another table: name another column for "
                    f"{name} (--{name.replace('_', '-')}), or for label (--label)", name
                )  # fmt: skip
        if column in others:
            raise OptionError(
                f"the label column {column!r} arrives in another table, so it cannot filter or slice rows: "
                "leave it out of where (--where) and by (--by)", "labels"
            )  # fmt: skip
        if options["rejects"] is not None:
            ending(options["rejects"], TABULAR, "rejects")
            check_writable(options["rejects"])
        on = [one.strip().partition("=") for text in options["on"] for one in text.split(",")]
        pairs = tuple((name.strip(), (other if equals else name).strip()) for name, equals, other in on)
        if not all(map(all, pairs)):
            raise OptionError(f"on={','.join(options['on'])!r} lacks a column: write id or data_id=label_id", "on")
        given = [getattr(one, "value", one) for one in options["labels"]]
        until = None if options["labels_as_of"] is None else moment(options["labels_as_of"])
        facts = options["label_time"], until, options["label_conflicts"], options["rejects"], options["allow_unmatched"]
        return cls(given, pairs, column, *facts)

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        ids, column = (IdName(other) for _, other in self.on), IdName(self.column) if self.has_ids else self.column
        return list(dict.fromkeys((*ids, column, *([self.time] if self.time else []))))

    @property
    def has_ids(self) -> bool:
        """Whether the values of the column are ids."""
        return self.wide and self.column not in self.numbers

    @property
    def data_columns(self) -> list[str]:
        """The columns of the data to read: the label column if they have it, and the ids."""
        ids = [IdName(name) for name, _ in self.on]
        return [LateColumn(self.column, ids[0]), *ids]

    def late_name(self, column: str) -> str:
        """The name of a column of the data, which may arrive late."""
        if column not in self.further:
            return column
        return (LateId if isinstance(column, IdName) else LateColumn)(column, IdName(self.on[0][0]))

    def find_tables(self, schema: pa.Schema, name: str, engine: Engine) -> LabelTables:
        """The tables of labels, before they are read; those without rows have no types.

        Parameters
        ----------
        schema : that of the data; `name` is a file, for messages
        engine : reads the table on its threads

        Raises
        ------
        DataError
            If a column is missing or cannot be used.
        """
        scans = [found for one in self.inputs() if (found := self.scan_input(one, engine)) is not None]
        pieces = [piece for found in scans for piece in found.pieces]
        if not pieces:
            nothing = pa.schema([(str(column), pa.null()) for column in self.columns])
            return LabelTables([], nothing, *self._compared(schema, nothing, (name, _NOWHERE)), 0)
        first = pieces[0].name
        kinds = [widen({found.schema.field(column).type for found in scans}) for column in self.columns]
        at = self.columns.index(self.column)
        if not self.wide:
            kinds[at] = label_type({found.schema.field(self.column).type for found in scans})
        for column, kind in zip(self.columns, kinds, strict=True):
            if kind is None:
                raise SchemaError(f"{first}: column {column!r} has types that differ between tables of labels: cast it")
        fields = [scans[0].schema.field(c).with_type(k) for c, k in zip(self.columns, kinds, strict=True)]
        read = without_views(pa.schema(fields))
        ours, theirs = self._compared(schema, read, (name, first))
        deliveries = [(i, piece.name) for i, found in enumerate(scans) for piece in found.pieces]
        arrival = {delivery: i for i, delivery in enumerate(dict.fromkeys(deliveries))}
        tasks = [(piece, arrival[delivery]) for piece, delivery in zip(pieces, deliveries, strict=True)]
        texts = sum(one.kind == "text" for one in ours)
        return LabelTables(tasks, read, ours, theirs, _ROW_BYTES + 8 * bool(self.time) + _TEXT_BYTES * texts)

    def inputs(self) -> Iterator[object]:
        """The inputs one by one: each may be a delivery, even if it is a table in memory."""
        for given in self.data:
            several = isinstance(given, list | tuple) and not are_delayed(given)
            yield from given if several else [given]

    def scan_input(self, given: object, engine: Engine) -> Scan | None:
        """The plan of one input; None if it has no rows."""
        try:
            return scan.plan(given, self.columns, threads=engine.budget.threads)
        except MissingInputError as error:
            if error.empty:
                return None
            raise
        except MissingColumnError as error:
            if self.wide and error.column == self.column:
                raise MissingColumnError(f"{error}; the data lack it as well", error.column, error.similar) from None
            option = {self.column: "label (--label)", self.time: "label_time (--label-time)"}
            remedy = option.get(error.column, "on='column_of_the_data=column_of_the_labels' (--on)")
            raise MissingColumnError(f"{error}; name it with {remedy}", error.column, error.similar) from None
        except CorruptFileError as error:
            raise scan.of_labels(error) from error

    def _compared(
        self, schema: pa.Schema, other: pa.Schema, names: tuple[str, str]
    ) -> tuple[list[IdColumn], list[IdColumn]]:
        """How the columns of ids of the data are compared with those of the labels."""
        ours, theirs = list[IdColumn](), list[IdColumn]()
        for pair in self.on:
            fields = [one.field(column) for one, column in zip((schema, other), pair, strict=True)]
            for one, name in zip(fields, names, strict=True):
                check_ids(one.type, one.name, name)
            how = comparison(fields[0].type, fields[1].type) or "text"
            for one, columns in zip(fields, (ours, theirs), strict=True):
                columns.append(IdColumn(one.name, how, (one.metadata or {}).items() >= UUIDS.items()))
        return ours, theirs

    def read_parts(self, tables: LabelTables, engine: Engine) -> list[StatementPart]:
        """All statements of some tables as they were read; at least one part.

        Raises
        ------
        DataError
            If a column cannot be used, or a time is null.
        OptionError
            If the statements do not fit into the memory, which is free until rows are folded.
        """
        if not tables.tasks:
            words, fates = np.zeros(0, np.uint64), np.zeros(0, np.uint8)
            times, codes = np.zeros(0, np.int64), fates.astype(np.uint32 if self.wide else np.uint8)
            nothing = tables.schema.empty_table()
            return [StatementPart(_NOWHERE, 0, words, words, times, codes, pa.nulls(0), fates, nothing)]
        nbytes, memory = tables.rows * tables.row_bytes, int(engine.budget.limit / STATE_SHARE)
        if nbytes > memory:
            without = ", or leave out rejects (--rejects)" if self.rejects else ""
            raise OptionError(
                f"labels: {plural(tables.rows, 'statement')} take about {size(nbytes)}, more than the memory "
                f"({size(memory)}): give memory={(nbytes >> 20) + 1}MiB (--memory){without}", "labels"
            )  # fmt: skip

        def read(task: tuple[Piece, int]) -> StatementPart:
            piece, arrival = task
            table = pa.Table.from_batches(tables.read(piece), tables.schema).combine_chunks()
            batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], tables.schema)
            return read_statements(batch, piece.name, arrival, self, tables.theirs)._replace(table=table)

        return engine.each(read, tables.tasks)


class LabelTables(NamedTuple):
    """Tables of labels that are not read yet.

    Attributes
    ----------
    tasks : each piece, with the number of its delivery
    schema : the columns to read
    ours, theirs : the id columns of the data and of the tables
    row_bytes : bytes of a statement while all are resolved
    """

    tasks: Sequence[tuple[Piece, int]]
    schema: pa.Schema
    ours: Sequence[IdColumn]
    theirs: Sequence[IdColumn]
    row_bytes: int

    @property
    def rows(self) -> int:
        """The number of statements; streams, whose rows are unknown, count as empty."""
        return sum(max(piece.rows, 0) for piece, _ in self.tasks)

    def read(self, piece: Piece, rows: int = 1 << 20) -> Iterator[pa.RecordBatch]:
        """The batches of a piece, of at most some rows; raises `CorruptFileError`, naming a damaged column."""
        try:
            yield from scan.read(piece, self.schema, rows)
        except CorruptFileError as error:
            raise scan.of_labels(error, _find_damaged(piece, self.schema)) from error


def moment(text: str) -> int:
    """A time as microseconds since 1970, in UTC unless the text has an offset; a date stands for its end.

    Examples
    --------
    >>> moment("1970-01-01T00:00:01"), moment("1970-01-01") == 86_400 * 10**6 - 1
    (1000000, True)
    """
    clock = datetime.fromisoformat(text)
    if len(text) == len("2026-01-31"):
        clock += timedelta(days=1) - timedelta(microseconds=1)
    clock = clock if clock.tzinfo else clock.replace(tzinfo=UTC)
    return (clock - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Coded(Protocol):
    """Labels with the code of each statement among them, `WITHDRAWN` for null."""

    @property
    def codes(self) -> Array:
        """The codes, as uint8; those of ids as uint32."""

    @property
    def values(self) -> pa.Array:
        """The labels."""


class StatementPart(NamedTuple):
    """The statements of one piece of the table.

    `fates` and `table` have all of them; the other arrays those with an id that are not too late.
    """

    name: str
    arrival: int
    first: Array
    second: Array
    times: Array
    codes: Array
    values: pa.Array
    fates: Array
    table: pa.Table


def read_statements(
    batch: pa.RecordBatch, name: str, arrival: int, source: LateSource, ids: Sequence[IdColumn]
) -> StatementPart:
    """The statements of a batch, without its table; `name` is its file, and `arrival` the number of its delivery."""
    first, second, valid, raw = read_ids(batch, ids)
    first = scramble_words(first) if raw else first
    codes, values = _encode(batch.column(source.column), f"{name}: {source.what}", wide=source.wide)
    fates = np.zeros(batch.num_rows, np.uint8)
    times = np.zeros(0, np.int64)
    if source.time is not None:
        times = _micros(batch.column(source.time), f"{name}: label_time column {source.time!r}")
    if source.until is not None:
        fates[times > source.until] = _LATER
    if valid.size:
        fates[~valid] = _NULL_ID
    there = fates == 0
    second = second[there] if second.size else second
    times = times[there] if times.size else times
    nothing = batch.schema.empty_table()
    return StatementPart(name, arrival, first[there], second, times, codes[there], values, fates, nothing)


def _find_damaged(piece: Piece, schema: pa.Schema) -> str:
    """The first column of a piece that cannot be read by itself; empty if all can."""
    for field in schema:
        try:
            deque(scan.read(piece, pa.schema([field])), maxlen=0)
        except CorruptFileError:
            return str(field.name)
    return ""


def _micros(array: pa.Array, what: str) -> Array:
    """Times as microseconds since 1970."""
    kind = array.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(f"{what} has type {kind}; times are timestamps or dates: cast it")
    if array.null_count:
        raise NullError(f"{what} has nulls; give every statement a time")
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    return view_numbers(array.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()))


def _encode(array: pa.Array, what: str, *, wide: bool) -> tuple[Array, pa.Array]:
    """The code of each label, `WITHDRAWN` for null, and the labels."""
    if pa.types.is_decimal(array.type) and array.type.bit_width < 128:  # Arrow does not encode shorter ones
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    array = array.cast(pa.float32()) if array.type == pa.float16() else array
    coded = occurring(array) if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return _codes_of(coded, what, wide=wide), coded.dictionary


def _codes_of(coded: pa.DictionaryArray, what: str, *, wide: bool) -> Array:
    """The code of each label, `WITHDRAWN` for null; raises `LabelError` if there are too many."""
    if not wide and len(coded.dictionary) > MOST_LABELS:
        raise LabelError(f"{what} has more than {MOST_LABELS} labels; name the column of labels with label (--label)")
    kind, none = (pa.uint32(), WIDE_WITHDRAWN) if wide else (pa.uint8(), WITHDRAWN)
    codes: Array = pc.fill_null(coded.indices.cast(kind), none).to_numpy()
    return codes


def join_codes(parts: Sequence[Coded], what: str) -> tuple[Array, pa.Array]:
    """The code of each label among those of all parts; NaN is null."""
    wide = parts[0].codes.dtype != np.uint8
    tables, values = join_labels([part.values for part in parts], what, wide=wide)
    places = (np.minimum(part.codes, table.size - 1) for table, part in zip(tables, parts, strict=True))
    return np.concatenate([table[place] for table, place in zip(tables, places, strict=True)]), values


def join_labels(parts: Sequence[pa.Array], what: str, *, wide: bool = False) -> tuple[list[Array], pa.Array]:
    """For each part, the code among all labels for each of its own codes, last that of none; and all labels.

    NaN is null.
    """
    values = pa.concat_arrays(parts)
    if pa.types.is_floating(values.type):
        values = pc.add(pc.if_else(pc.is_nan(values), None, values), pa.scalar(0, values.type))  # −0.0 is 0.0
    coded = values.dictionary_encode()
    codes, at, tables = _codes_of(coded, what, wide=wide), 0, []
    for part in parts:
        none = WIDE_WITHDRAWN if wide else WITHDRAWN
        tables.append(np.full(max(256, len(part) + 1), none, codes.dtype))
        tables[-1][: len(part)] = codes[at : at + len(part)]
        at += len(part)
    return tables, coded.dictionary.drop_null()  # of the type null, a null is encoded


def cast_labels(values: pa.Array, own: pa.DataType, what: str) -> pa.Array:
    """The labels in a type that holds those of the data as well; raises `SchemaError` if there is none."""
    kind = widen([values.type, own])
    if kind is None and {_is_number(values.type), _is_number(own)} == {True}:  # such as floats instead of nulls
        with suppress(pa.ArrowInvalid):
            return values.cast(plain(own))
    if kind is None:
        raise SchemaError(f"{what} is {values.type}, but {plain(own)} in the data: write it in the type of the other")
    return values.cast(kind)


def label_type(kinds: Set[pa.DataType]) -> pa.DataType | None:
    """A type that holds labels of several types, None without one; integers may be floats, as pandas writes nulls."""
    numbers = all(map(_is_number, kinds - {pa.null()}))
    return widen(kinds) or (pa.float64() if numbers else None)


def _is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are integers or floats."""
    kind = plain(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


class Resolved(NamedTuple):
    """Statements in the order of their ids, times and labels.

    Attributes
    ----------
    order : int64 array of shape (n,), the statements in this order
    last : int64 array, the place of the latest statement of each id
    conflict : bool array, whether the latest statements of each id contradict each other
    fates : uint8 array of shape (n,), what became of each statement, in the order of the input
    """

    order: Array
    last: Array
    conflict: Array
    fates: Array


def resolve(ids: Sequence[Array], times: Sequence[Array], codes: Array, arrivals: Array | None = None) -> Resolved:
    """Find the latest statements of each id.

    Parameters
    ----------
    ids, times : arrays of shape (n,) that identify and order statements, the most significant first
    codes : uint8 array of shape (n,), the labels
    arrivals : int64 array of shape (n,), the deliveries, of which the later decides at equal times; None if none does

    Examples
    --------
    >>> words, days = np.array([5, 5, 5, 9, 9], np.uint64), np.array([1, 2, 2, 1, 1])
    >>> found = resolve([words], [days], np.array([0, 1, 1, 0, 1], np.uint8))
    >>> found.conflict.tolist(), found.fates.tolist()
    ([False, True], [3, 0, 1, 4, 4])
    """
    orders = [*times] if arrivals is None else [*times, arrivals]
    order, words = order_words(ids[0])
    equal = np.zeros(words.size + 1, np.bool_)
    equal[1:-1] = words[1:] == words[:-1]
    places = np.flatnonzero(equal[1:] | equal[:-1])  # of all others, each is the only statement of its id
    shared = order[places]
    shared = shared[np.lexsort([key[shared] for key in (codes, *reversed(orders), *reversed(ids))])]
    order[places] = shared
    latest, conflict, fates = (
        np.ones(words.size, np.bool_),
        np.zeros(words.size, np.bool_),
        np.zeros(words.size, np.uint8),
    )
    latest[places], conflict[places], fates[places] = _resolve_shared(ids, orders, codes, shared)
    if arrivals is not None:
        _count_redelivered([*ids, *times, codes], arrivals, order, fates)
    last = np.flatnonzero(latest)
    outcomes = np.empty_like(fates)
    outcomes[order] = fates
    return Resolved(order, last, conflict[last], outcomes)


def _resolve_shared(
    ids: Sequence[Array], times: Sequence[Array], codes: Array, order: Array
) -> tuple[Array, Array, Array]:
    """For ordered statements: whether each is the last of its id, whether that id is in conflict, and its outcome."""
    if not order.size:
        return order, order, order
    new_id = _changes(ids, order)
    new_time = new_id | _changes(times, order)
    new_statement = new_time | _changes([codes], order)
    last = np.append(np.flatnonzero(new_id)[1:], order.size) - 1
    runs, statements, owner = np.cumsum(new_time) - 1, np.cumsum(new_statement), np.cumsum(new_id) - 1
    conflict = (statements[last] > statements[np.flatnonzero(new_time)[runs[last]]])[owner]
    fates = np.where(runs == runs[last][owner], np.where(conflict, CONFLICT, 0), _SUPERSEDED)
    fates[~new_statement] = _DUPLICATE
    return np.append(new_id[1:], True), conflict, fates


def _count_redelivered(keys: Sequence[Array], arrivals: Array, order: Array, fates: Array) -> None:
    """Superseded statements that a later delivery repeats are duplicates; `keys` are equal for equal statements."""
    again = np.lexsort([key[order] for key in (arrivals, *reversed(keys))])
    earlier = again[:-1][~_changes(keys, order[again])[1:]]
    fates[earlier[fates[earlier] == _SUPERSEDED]] = _DUPLICATE


def _changes(keys: Sequence[Array], order: Array) -> Array:
    """Whether one of the keys differs from that of the preceding statement; true for the first statement."""
    changes = np.zeros(order.size, np.bool_)
    changes[:1] = True
    for key in keys:
        ordered = key[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    return changes


@dataclass(frozen=True)
class Statements:
    """Statements that were read and resolved.

    Attributes
    ----------
    source : where they come from
    late : the label of each id
    counts : numbers of statements by what became of them
    place : names of the tables, for messages
    listed : the statements with the ids of the table and all that were left out; None unless they are to be listed
    """

    source: LateSource
    late: LateLabels
    counts: Mapping[str, int]
    place: str
    listed: Listed | None = None

    @classmethod
    def of(
        cls, source: LateSource, ids: Sequence[IdColumn], theirs: Sequence[IdColumn], parts: Sequence[StatementPart],
        own: pa.DataType | None,
    ) -> Statements:  # fmt: skip
        """Resolve the statements of all parts.

        Parameters
        ----------
        source : see `Statements`
        ids, theirs : the id columns of the data and of the table
        own : type of the label column of the data; None if they have none

        Raises
        ------
        LabelError
            If statements contradict each other, or have too many labels.
        SchemaError
            If the data have labels of another type.
        """
        place = parts[0].name + (", …" if len({part.name for part in parts}) > 1 else "")
        codes, values = join_codes(parts, f"{place}: {source.what}")
        values = values if own is None else cast_labels(values, own, f"{place}: {source.what}")
        first, second, times = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))
        arrivals = None
        if source.conflicts == "latest":
            arrivals = np.repeat([part.arrival for part in parts], [part.first.size for part in parts])
        found = resolve([first, second] if second.size else [first], [times] if source.time else [], codes, arrivals)
        conflicts = int(np.count_nonzero(found.conflict))
        refused = conflicts > 0 and source.conflicts != "drop"
        latest = found.order[found.last]
        listed = Listed.of(parts, theirs, found.fates, latest) if refused or source.rejects else None
        if refused and listed is not None:
            raise listed.contradiction_of(source, parts, conflicts)
        none = WIDE_WITHDRAWN if source.wide else WITHDRAWN
        codes = np.where(found.conflict, none, codes[latest]).astype(codes.dtype)
        words = first[latest], second[latest] if second.size else second
        late = LateLabels.of(source.column, ids, values, codes, words, own=own is not None)
        every = [found.fates, *(part.fates for part in parts)]
        tally = np.sum([np.bincount(fates, minlength=FATES) for fates in every], axis=0)
        withdrawn = int(np.count_nonzero(codes == none)) - conflicts
        read = sum(part.fates.size for part in parts)
        counts = count_statements(read, tally, withdrawn, conflicts)
        return cls(source, late, counts, place, listed)

    def check(self, matches: Matches, data: str) -> None:
        """Raise `LabelError` if no row has one of the ids, or several have one, and rows were drawn one by one."""
        used = sum(int(np.count_nonzero(are_labels(codes) & seen)) for codes, seen in self.late.occurring(matches))
        if self.source.single and not self.late.own and matches.labelled > used:
            raise LabelError(
                f"{data}: {plural(used, 'id')} of {self.place} label {matches.labelled:,} rows, but rows were drawn "
                "one by one: match them by a column of unique ids (--on), or name the unit that was drawn (--unit)"
            )
        if matches.seen.any() or self.source.unmatched or not self.counts["read"]:
            return
        allow = "allow that no row has a label with allow_unmatched (--allow-unmatched)"
        if self.counts["read"] == self.counts["later"]:
            raise LabelError(
                f"{data}: all {plural(self.counts['read'], 'statement')} of {self.place} are later than labels_as_of "
                f"(--labels-as-of): choose a later time, or {allow}"
            )
        columns = few([name for pair in self.source.on for name in dict.fromkeys(pair)])
        ids = sum(seen.size for _, seen in self.late.occurring(matches))
        raise LabelError(
            f"{data}: none of its ids is among the {plural(ids, 'id')} of {self.place}; name the ids "
            f"with on (--on), now {columns}, or {allow}"
        )

    def counted(self, matches: Matches, labelled: int) -> dict[str, int]:
        """Numbers of statements, and of the rows that got a label from one or have one of their own."""
        used = orphans = 0
        for codes, seen in self.late.occurring(matches):
            labels = are_labels(codes)
            used += int(np.count_nonzero(labels & seen))
            orphans += int(np.count_nonzero(labels & ~seen))
        rows = {"labelled_rows": labelled, "rows_without_id": matches.null_ids}
        return {**self.counts, "used": used, "orphans": orphans, **rows}

    def save_rejects(self, matches: Matches) -> None:
        """Write the statements that label no row, with the reason, if there is a file for them."""
        if self.listed is not None and self.source.rejects is not None:
            orphans = np.concatenate([are_labels(codes) & ~seen for codes, seen in self.late.occurring(matches)])
            save(self.source.rejects, {}, partial(self.listed.rejects, orphans))


def count_statements(read: int, tally: Array, withdrawn: int, conflicts: int) -> dict[str, int]:
    """The numbers of statements by what became of them; `tally` has those of each fate."""
    fates = {name: int(tally[fate]) for fate, name in _COUNTED.items()}
    return {"read": read, **fates, "withdrawn": withdrawn, "conflicts": conflicts}


@dataclass(frozen=True)
class Listed:
    """Statements as they were read.

    Attributes
    ----------
    table : all statements
    ids : the id columns
    rows : int64 array, the statement in effect of each id
    fates : uint8 array, what became of each statement
    """

    table: pa.Table
    ids: Sequence[IdColumn]
    rows: Array
    fates: Array

    @classmethod
    def of(cls, parts: Sequence[StatementPart], ids: Sequence[IdColumn], fates: Array, latest: Array) -> Listed:
        """The statements of all parts: what became of those that have an id, and which of these are in effect."""
        every = np.concatenate([part.fates for part in parts])
        rows = np.flatnonzero(every == 0)
        every[rows] = fates
        return cls(pa.concat_tables(part.table for part in parts), ids, rows[latest], every)

    def rejects(self, orphans: Array) -> pa.Table:
        """The statements that label no row, with a column `reason`; `orphans` are the ids of no row."""
        reasons = np.select([self.fates == fate for fate in _REASONS], range(1, len(_REASONS) + 1), 0)
        reasons[self.rows[orphans]] = len(_REASONS) + 1
        rows = np.flatnonzero(reasons)
        reason = pa.array([*_REASONS.values(), "no row"]).take(pa.array(reasons[rows] - 1))
        return self.shown(rows).append_column("reason", reason)

    def shown(self, rows: Array) -> pa.Table:
        """Some statements, with UUIDs as texts."""
        table = self.table.take(pa.array(rows))
        for one in self.ids:
            if one.uuid:
                texts = [None if value is None else str(UUID(bytes=value)) for value in table[one.name].to_pylist()]
                table = table.set_column(table.column_names.index(one.name), one.name, pa.array(texts, pa.string()))
        return table

    def contradiction_of(self, source: LateSource, parts: Sequence[StatementPart], conflicts: int) -> LabelError:
        """As `contradiction`, for a source that is evaluated."""
        remedies = [] if source.time else ["name a column of times with label_time (--label-time)"]
        remedies += ["choose label_conflicts='drop' (--label-conflicts drop) to leave these ids unlabelled"]
        later = "choose 'latest' if the later of several files is right"
        remedies += [later] * (source.conflicts != "latest")
        what = f"different {f'values of {source.what}' if source.wide else 'labels'} {source.when}"
        return self.contradiction(parts, conflicts, what, ", or ".join(remedies))

    def contradiction(self, parts: Sequence[StatementPart], conflicts: int, what: str, remedy: str) -> LabelError:
        """The error for ids whose latest statements contradict each other."""
        rows = np.flatnonzero(self.fates == CONFLICT)
        ends = np.cumsum([part.fates.size for part in parts])
        name = parts[int(np.searchsorted(ends, rows[0], "right"))].name
        shown = self.shown(rows[: 100 * _LISTED]).select([one.name for one in self.ids]).to_pylist()
        ids = list(dict.fromkeys(", ".join(map(repr, row.values())) for row in shown))[:_LISTED]
        more = ", …" if conflicts > len(ids) else ""
        return LabelError(f"{name}: {plural(conflicts, 'id')} with {what}: {'; '.join(ids)}{more}; {remedy}")
