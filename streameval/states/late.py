"""Late labels: batches get labels from another table, by the ids of their rows.

Ids are matched by value. Integers of 64 bits are compared as they are. Other ids are compared by a 128-bit hash of
their text (MurmurHash3): an integer equals its decimal digits, without leading zeros, a UUID its lower-case text, a
date its ISO form. A tuple of ids is compared by a 128-bit hash of the words of its members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.errors import SchemaError
from streameval.kernels.jit import read_only
from streameval.kernels.lookup import ABSENT as ABSENT
from streameval.kernels.lookup import IdTable as IdTable
from streameval.kernels.lookup import find_codes as find_codes
from streameval.kernels.lookup import find_tags
from streameval.kernels.lookup import order_words as order_words
from streameval.kernels.lookup import scramble_words as scramble_words
from streameval.states.keyed.ids import hash_array, row_nulls
from streameval.states.late_parts import IdParts, Ids, PartCodes
from streameval.states.protocol import Small, Stored, Totals, Traits, mergeable
from streameval.typing import Array, distinct_numbers, pack_bits, valid_rows, view_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget

WITHDRAWN = ABSENT - 1  # code of an id whose rows have no label, whatever their own column says
WIDE_WITHDRAWN = (1 << 32) - 2  # the same of columns whose values are ids, with codes of uint32
MOST_LABELS = 200  # distinct labels, whose codes are the numbers below

_SALT = np.uint64(0x9E3779B97F4A7C15)
_STEP, _OTHER_STEP = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)  # odd
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)  # places of the dashes of a UUID


@dataclass(frozen=True)
class IdColumn:
    """How ids of two columns are compared.

    Attributes
    ----------
    name : the column
    kind : ``signed`` or ``unsigned`` 64-bit integers, or ``text``
    uuid : whether the binaries of this column are UUIDs
    """

    name: str
    kind: str
    uuid: bool = False

    def words(self, array: pa.Array) -> tuple[Array, Array]:
        """Both words of the ids, as uint64 arrays of shape (n,).

        Integers are their own first word, and the second array is empty. Nulls have any words.

        Examples
        --------
        >>> numbers, texts = pa.array([7, 12]), pa.array(["7", "012"])
        >>> of = IdColumn("id", "text").words
        >>> [bool(x == y) for x, y in zip(of(numbers)[0], of(texts)[0])]
        [True, False]
        """
        if types.is_dictionary(array.type):
            first, second = self.words(array.dictionary)
            places = pc.fill_null(array.indices, 0).to_numpy()
            return (
                (first[places], second[places] if second.size else second)
                if first.size
                else self.words(pa.nulls(len(array)))
            )
        if self.kind != "text":
            whole = array.cast(pa.int64() if self.kind == "signed" else pa.uint64())
            whole = pc.fill_null(whole, 0) if whole.null_count else whole
            return read_only(view_numbers(whole).view(np.uint64)), np.empty(0, np.uint64)
        return hash_array(pc.fill_null(_texts(array, uuid=self.uuid), b""))


def _texts(array: pa.Array, *, uuid: bool) -> pa.Array:
    """Ids as binaries, of equal bytes if they are equal."""
    kind = array.type
    if uuid:
        return _uuid_texts(pc.fill_null(array, bytes(16)))
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_date(kind) or types.is_null(kind):
        array = array.cast(pa.date32()) if types.is_date(kind) else array
        array = array.cast(pa.string())
    return array.cast(pa.large_binary())


def _uuid_texts(array: pa.Array) -> pa.Array:
    """UUIDs in hexadecimal digits.

    >>> _uuid_texts(pa.array([bytes(range(16))], pa.binary(16)))[0].as_py()
    b'00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    count = len(array)
    given = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset :][: 16 * count].reshape(count, 16)
    text = np.full((count, 36), ord("-"), np.uint8)
    digits = np.delete(np.arange(36), _DASHES)
    text[:, digits[::2]], text[:, digits[1::2]] = _HEX[given >> 4], _HEX[given & 15]
    bounds = np.arange(count + 1, dtype=np.int64) * 36
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(text)])


def comparison(one: pa.DataType, other: pa.DataType) -> str | None:
    """How ids of two types are compared, see `IdColumn`; None if one of them has no ids.

    Examples
    --------
    >>> comparison(pa.int8(), pa.uint32()), comparison(pa.int64(), pa.string()), comparison(pa.int64(), pa.float32())
    ('signed', 'text', None)
    """
    kinds = [kind.value_type if types.is_dictionary(kind) else kind for kind in (one, other)]
    if not all(map(has_ids, kinds)):
        return None
    if all(types.is_signed_integer(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32()) for kind in kinds):
        return "signed"
    return "unsigned" if all(map(types.is_unsigned_integer, kinds)) else "text"


def has_ids(kind: pa.DataType) -> bool:
    """Whether values of a type, or of its dictionary, are ids: integers, texts, binaries or dates."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    texts = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary
    whole = types.is_integer(kind) or (types.is_decimal(kind) and kind.scale == 0)
    return bool(whole or types.is_date(kind) or types.is_null(kind) or any(test(kind) for test in texts))


def find_candidates(ids: IdTable, starts: Array, tags: Array) -> Array:
    """The rows, an ascending int64 array, that may have one of the ids; `starts` and `tags` as in `find_tags`."""
    return distinct_numbers(find_tags(*map(read_only, (ids.first, starts, tags))))


def read_ids(batch: pa.RecordBatch, columns: Sequence[IdColumn]) -> Ids:
    """The ids of the rows of a batch."""
    arrays = [row_nulls(batch.column(column.name)) for column in columns]
    valid = np.empty(0, np.bool_)
    for array in arrays:
        if array.null_count:
            present = valid_rows(array)
            valid = valid & present if valid.size else present
    words = [column.words(array) for column, array in zip(columns, arrays, strict=True)]
    if len(words) == 1:
        return Ids(*words[0], valid, raw=not words[0][1].size)
    first, second = np.zeros(batch.num_rows, np.uint64), np.zeros(batch.num_rows, np.uint64)
    for one, two in words:
        other = two if two.size else scramble_words(one ^ _SALT)
        one = one if two.size else scramble_words(one)
        first = scramble_words((first ^ one) * _STEP + _SALT)
        second = scramble_words((second ^ other) * _OTHER_STEP + _SALT)
    return Ids(first, second, valid, raw=False)


@dataclass(frozen=True)
class LateLabels:
    """Labels by id. A task is a function of them and of its rows, so they are never changed.

    Attributes
    ----------
    column : the label column that batches get
    ids : the id columns of the data
    values : the label of each code below `MOST_LABELS`
    table : the ids, each with its code; `WITHDRAWN` if its rows have no label
    own : whether the data have the label column as well, which counts for ids that the table lacks
    parts : the ids in parts, if they exceed the memory; `table` is empty then
    others : further columns that batches get, each with a table of its own
    """

    column: str
    ids: tuple[IdColumn, ...]
    values: pa.Array
    table: IdTable
    own: bool = False
    parts: IdParts | None = None
    others: tuple[LateLabels, ...] = ()

    @classmethod
    def of(
        cls, column: str, ids: Sequence[IdColumn], values: pa.Array, codes: Array, words: Sequence[Array], *, own: bool
    ) -> LateLabels:
        """Labels of distinct ids, in ascending order of their first words; `words` are both words of the ids."""
        first, second = words
        return cls(column, tuple(ids), values, IdTable.of(first, second, codes), own)

    def have_label(self, codes: Array, own: pa.Array | None) -> Array:
        """Which rows have a label, as a bool array, from the codes of their ids and their own labels."""
        labelled = are_labels(codes)
        if own is not None:
            labelled |= (codes == ABSENT) & valid_rows(own)
        return labelled

    def of_codes(self, codes: Array, own: pa.Array | None) -> pa.Array:
        """The label of each row from the code of its id and, if the data have labels, from its own."""
        label = _labels(self.values, codes)
        return label if own is None else pc.if_else(pa.array(codes == ABSENT), own.cast(label.type), label)

    @property
    def spec(self) -> MatchSpec:
        """The spec of the ids that occur in the data."""
        sizes = [self.table.first.size] if self.parts is None else self.parts.sizes
        return MatchSpec(sum(-(-size // 8) for size in sizes))

    @property
    def nbytes(self) -> int:
        """Bytes in memory outside the budget."""
        own = self.table.nbytes if self.parts is None else self.parts.marks.nbytes
        return int(own + sum(one.nbytes + one.values.nbytes for one in self.others))

    def occurring(self, matches: Matches) -> Iterator[tuple[Array, Array]]:
        """The codes of the ids, and which occur in the data; part by part."""
        tables, at = [self.table] if self.parts is None else self.parts.tables(), 0
        for table in tables:
            stop = at + -(-table.codes.size // 8)
            yield table.codes, np.unpackbits(matches.seen[at:stop], count=table.codes.size).astype(np.bool_)
            at = stop


@dataclass(frozen=True)
class MatchSpec:
    """Which ids occur in the data, in `size` bytes."""

    kind: ClassVar[str] = "matches"
    version: ClassVar[int] = 1

    size: int

    @property
    def columns(self) -> tuple[str, ...]:
        """No columns: the ids are those of `LateLabels`."""
        return ()

    @property
    def traits(self) -> Traits:
        """The defaults."""
        return Traits()

    @property
    def schema(self) -> pa.Schema:
        """A bit for each id that occurs."""
        return pa.schema({"seen": pa.uint8()})

    def empty(self) -> Matches:
        """No id occurs."""
        return Matches(self, np.zeros(self.size, np.uint8))

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> Matches:
        """The state that `Matches.header` and `Matches.to_arrow` describe."""
        seen = pa.Table.from_batches(batches, self.schema).column("seen").to_numpy()
        return Matches(self, seen, header["null_ids"], header["labelled"])


@dataclass(frozen=True, eq=False)
class Matches(Small, Stored):
    """The ids that occur in the data.

    Attributes
    ----------
    spec : MatchSpec
    seen : uint8 array of shape (spec.size,), the bits of `LateLabels.occurring`
    null_ids : rows without an id
    labelled : rows with a label
    """

    spec: MatchSpec
    seen: Array
    null_ids: int = 0
    labelled: int = 0

    def merge(self, other: Matches) -> Matches:
        """The ids that occur in one of the inputs."""
        mergeable(self, other)
        counts = self.null_ids + other.null_ids, self.labelled + other.labelled
        return Matches(self.spec, self.seen | other.seen, *counts)

    def totals(self) -> Totals:
        """No rows: `streameval.states.labels` counts them."""
        return Totals(0, 0, 0.0, 0.0)

    def header(self) -> Mapping[str, object]:
        """The spec, and the counts of rows."""
        return {"spec": {"size": self.spec.size}, "null_ids": self.null_ids, "labelled": self.labelled}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One batch."""
        yield pa.record_batch({"seen": pa.array(self.seen)})


class LateReader:
    """Adds labels to batches, and builds `Matches`; owned by one task."""

    def __init__(self, labels: LateLabels) -> None:
        self.labels = labels
        self._seen, *self._others_seen = (np.zeros(one.table.first.size, np.bool_) for one in (labels, *labels.others))
        self._null_ids = self._labelled = 0
        self._ahead: PartCodes | None = None

    def read_ahead(self, parts: IdParts, batches: Iterable[pa.RecordBatch], budget: Budget) -> None:
        """Find the codes of all rows in a table in parts; the batches to be joined have the same rows."""
        self._ahead = PartCodes(parts, map(self._ids, batches), budget)

    def _ids(self, batch: pa.RecordBatch) -> Ids:
        ids = read_ids(batch, self.labels.ids)
        self._null_ids += int(ids.valid.size - np.count_nonzero(ids.valid))
        return ids

    def join(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its labels."""
        labels, ahead = self.labels, self._ahead
        ids = {labels.ids: self._ids(batch)} if ahead is None else {}
        codes = ids[labels.ids].codes(labels.table, self._seen) if ahead is None else ahead.take(batch.num_rows)
        column = batch.schema.get_field_index(labels.column) if labels.own else -1
        label = labels.of_codes(codes, batch.column(column) if labels.own else None)
        self._labelled += len(label) - label.null_count
        batch = (
            batch.set_column(column, labels.column, label) if labels.own else batch.append_column(labels.column, label)
        )
        for one, seen in zip(labels.others, self._others_seen, strict=True):
            if one.ids not in ids:
                ids[one.ids] = read_ids(batch, one.ids)
            batch = batch.append_column(one.column, one.of_codes(ids[one.ids].codes(one.table, seen), None))
        return batch

    def state(self) -> Matches:
        """The ids that occurred."""
        seen = np.packbits(self._seen) if self._ahead is None else self._ahead.seen
        return Matches(self.labels.spec, seen, self._null_ids, self._labelled)


def are_labels(codes: Array) -> Array:
    """Which codes are those of labels; the two largest numbers of their type stand for none."""
    labelled: Array = codes < np.iinfo(codes.dtype).max - 1
    return labelled


def _labels(values: pa.Array, codes: Array) -> pa.Array:
    """The label of each code; null for those of none."""
    labelled = are_labels(codes)
    if len(values) and codes.dtype == np.uint8 and (types.is_integer(values.type) or types.is_floating(values.type)):
        numbers = np.zeros(ABSENT + 1, view_numbers(values).dtype)
        numbers[: len(values)] = view_numbers(values)
        valid = pack_bits(labelled).buffers()[1]
        return pa.Array.from_buffers(values.type, codes.size, [valid, pa.py_buffer(numbers.take(codes))])
    return values.take(pa.array(codes, mask=~labelled))


def check_ids(kind: pa.DataType, column: str, name: str) -> None:
    """Raise `SchemaError` if a column has no ids; `name` is the file."""
    if not has_ids(kind):
        remedy = "cast to integers or texts" if types.is_floating(kind) else "ids are integers, texts or binaries"
        raise SchemaError(f"{name}: column {column!r} has type {kind}, which labels cannot be matched by: {remedy}")
