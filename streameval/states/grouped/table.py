"""The names and facts of the groups of a state, and the Arrow table of a grouped state.

A name is a byte string that encodes the values of a group: for each column, the length of a tagged text, a colon and
the text: ``3:sDE`` for the string ``DE``, ``2:i7`` for the integer 7. The tag is the kind of the value. Equal values
have equal names in all files and on all workers, whatever the width of their type.

The *facts* of a group are the rows that its state counts outside its table, such as null ids. The table of a grouped
state begins with one row for each group, with its name and facts; the rows of the inner tables follow, each with the
name of its group and without facts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import SchemaError
from streameval.states.facts import check_counts
from streameval.states.keyed.ids import hash_array
from streameval.states.scores.parts import sums_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.states.protocol import StoredSpec
    from streameval.typing import Array

    Value = bool | int | float | Decimal | str | bytes | None


def inner_facts(inner: StoredSpec) -> dict[str, list[float]]:
    """Facts of an empty group, lists of numbers by their name in the inner header."""
    return {name: cast("list[float]", value) for name, value in inner.empty().header().items() if name != "spec"}


def inner_headers(inner: Any, facts: Array) -> list[dict[str, object]]:
    """The headers of inner states with these facts, a float64 array of shape (n_groups, n_facts)."""
    spec, start, columns = asdict(inner), 0, {}
    for name, empty in inner_facts(inner).items():
        columns[name] = facts[:, start : start + len(empty)].astype(np.array(empty).dtype).tolist()
        start += len(empty)
    return [{"spec": spec} | dict(zip(columns, rows, strict=True)) for rows in zip(*columns.values(), strict=True)]


def hash_names(names: pa.Array) -> Array:
    """128-bit hashes of names (MurmurHash3), as a uint64 array of shape (n, 2)."""
    return np.column_stack(hash_array(names))


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Groups in ascending order of the hash of their name.

    Attributes
    ----------
    words : uint64 array of shape (n_groups, 2), the hashes
    names : large_binary Arrow array of length n_groups
    facts : float64 array of shape (n_groups, n_facts), as the header lists them; counts below 2⁵³ are exact
    errors : array of the same shape, the rounding errors of facts that are weights; None without weights

    Examples
    --------
    >>> names = pa.array([b"2:i7", b"2:i8", b"2:i7"], pa.large_binary())
    >>> table = GroupTable.of(names, np.array([[1.0], [2.0], [4.0]]))
    >>> sorted(zip(table.names.to_pylist(), table.facts[:, 0].tolist()))
    [(b'2:i7', 5.0), (b'2:i8', 2.0)]
    """

    words: Array
    names: pa.Array
    facts: Array
    errors: Array | None = None

    @classmethod
    def of(cls, names: pa.Array, facts: Array, errors: Array | None = None) -> GroupTable:
        """The table of names with facts, in any order; facts of equal names are added up."""
        return cls._summed(hash_names(names), names, facts, errors)

    @classmethod
    def empty(cls, facts: int) -> GroupTable:
        """The table without groups."""
        return cls(np.empty((0, 2), np.uint64), pa.array([], pa.large_binary()), np.empty((0, facts)))

    @classmethod
    def read(
        cls, batches: Iterator[pa.RecordBatch], schema: pa.Schema, kinds: Sequence[type]
    ) -> tuple[GroupTable, Iterator[pa.RecordBatch]]:
        """Read the groups, which come first and have facts of these types; returns them and the remaining batches."""
        own: list[pa.RecordBatch] = []
        items: list[pa.RecordBatch] = []
        while not items and (batch := next(batches, None)) is not None:
            first = pc.greater(pc.list_value_length(batch.column("facts")), 0)
            own.append(batch.filter(first))
            items += [batch.filter(pc.invert(first))] if own[-1].num_rows < batch.num_rows else []
        table = pa.Table.from_batches(own, schema)
        facts = table.column("facts").combine_chunks().flatten().to_numpy().reshape(-1, len(kinds))
        for kind, column in zip(kinds, facts.T, strict=True):
            check_counts("facts of groups", column, kind)
        return cls.of(table.column("group").combine_chunks(), facts), chain(items, batches)

    @classmethod
    def union(cls, tables: Sequence[GroupTable]) -> GroupTable:
        """The groups of all tables."""
        if len(tables) == 1:
            return tables[0]
        names = pa.concat_arrays([table.names for table in tables])
        words, facts = (np.concatenate([getattr(table, name) for table in tables]) for name in ("words", "facts"))
        errors = None
        if any(table.errors is not None for table in tables):
            none = (np.zeros_like(table.facts) if table.errors is None else table.errors for table in tables)
            errors = np.concatenate(list(none))
        return cls._summed(words, names, facts, errors)

    @classmethod
    def _summed(cls, words: Array, names: pa.Array, facts: Array, errors: Array | None) -> GroupTable:
        order = np.lexsort((words[:, 1], words[:, 0]))
        words = words[order]
        new = np.append(True, (words[1:] != words[:-1]).any(axis=1))[: order.size]
        first = np.flatnonzero(new)
        names = names.take(pa.array(order[first]))
        if errors is not None:
            return cls(words[first], names, *sums_at(np.cumsum(new) - 1, facts[order], errors[order], first.size))
        return cls(words[first], names, np.add.reduceat(facts[order], first) if first.size else facts)

    def total(self, marks: Array | slice = slice(None)) -> tuple[Array, Array]:
        """The facts of all groups, or of the marked ones, together, and their errors: arrays of shape (n_facts,)."""
        facts = self.facts[marks]
        if self.errors is None:
            return facts.sum(axis=0), np.zeros(facts.shape[1])
        sums, errors = sums_at(np.zeros(len(facts), np.int64), facts, self.errors[marks], 1)
        return sums[0], errors[0]

    def __len__(self) -> int:
        return len(self.words)

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        errors = 0 if self.errors is None else self.errors.nbytes
        return object.__sizeof__(self) + self.words.nbytes + int(self.names.nbytes) + self.facts.nbytes + errors

    def rows(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """A row for each group, with its name and facts; the columns of the inner table are zero."""
        count, width = self.facts.shape
        if count:
            offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
            facts = pa.ListArray.from_arrays(offsets, pa.array(self.facts.ravel()))
            zeros = [pa.array(np.zeros(count, np.int64)).cast(field.type) for field in list(schema)[2:]]
            yield pa.RecordBatch.from_arrays([self.names, facts, *zeros], schema=schema)


class TableBuilder:
    """Builder of a table: added tables are merged once together they have more groups than the merged table."""

    def __init__(self) -> None:
        self._tables: list[GroupTable] = []
        self._last = pa.array([], pa.large_binary())  # names of the previous batch, often equal to those of the next

    def add(self, names: pa.Array, facts: Array, errors: Array | None = None) -> None:
        """Add the facts of some groups, as `GroupTable.of` takes them."""
        if not facts.any() and names.equals(self._last):
            return
        self._last = names
        self._tables.append(GroupTable.of(names, facts, errors))
        if sum(map(len, self._tables[1:])) > len(self._tables[0]):
            self._tables = [GroupTable.union(self._tables)]

    def built(self) -> GroupTable | None:
        """The table; None if nothing was added."""
        return GroupTable.union(self._tables) if self._tables else None


def by_group(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, pa.RecordBatch]]:
    """Split inner tables into stretches of one group each; yields its name and its rows."""
    for batch in batches:
        codes = batch.column("group").dictionary_encode().indices.to_numpy()
        inner = batch.select(batch.schema.names[2:])
        for a, b in pairwise([*np.flatnonzero(np.diff(codes, prepend=-1)).tolist(), codes.size]):
            yield batch.column("group")[a].as_py(), inner.slice(a, b - a)


def with_group(names: pa.Array, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of an inner table, each with the name of its group; yields nothing if there are no rows."""
    if len(batch):
        facts = pa.ListArray.from_arrays(pa.array(np.zeros(len(batch) + 1, np.int32)), pa.array([], pa.float64()))
        yield pa.RecordBatch.from_arrays([names, facts, *batch.columns], schema=schema)


_NAN = float("nan")  # a single object, so that tuples that contain it are equal


@lru_cache(maxsize=1 << 15)
def parts_of(name: bytes) -> tuple[bytes, ...]:
    """Split the name of a group into the parts of its columns; raises `ValueError` for other bytes.

    Examples
    --------
    >>> parts_of(b"3:sDE2:i7")
    (b'3:sDE', b'2:i7')
    """
    parts = []
    while name:
        size = name.partition(b":")[0]
        end = len(size) + 1 + int(size)
        if not size.isdigit() or not len(size) + 1 < end <= len(name):
            raise ValueError(f"{name!r} is not the name of a group")
        parts.append(name[:end])
        name = name[end:]
    return tuple(parts)


def tag_of(part: bytes) -> bytes:
    """The tag of one part of a name, such as ``s`` for a string.

    Examples
    --------
    >>> tag_of(b"3:sDE"), tag_of(b"1:n")
    (b's', b'n')
    """
    return part.partition(b":")[2][:1]


def slice_type(kind: pa.DataType, column: str, file: str) -> str:
    """The type that determines the names of a column's slices; files in which it differs cannot be merged.

    It is the tag if names do not depend on the width of the type, else the Arrow type; empty for a column of nulls.

    Raises
    ------
    SchemaError
        If rows cannot be grouped by values of the type.

    Examples
    --------
    >>> slice_type(pa.int8(), "length", "f"), slice_type(pa.float32(), "ratio", "f"), slice_type(pa.null(), "x", "f")
    ('i', 'float', '')
    """
    tag = type_tag(kind, column, file)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "" if tag == b"n" else tag.decode() if tag in (b"b", b"i", b"s", b"x") else str(plain)


def hashable(array: pa.Array) -> pa.Array:
    """The array in a type that Arrow can hash: float32 for float16, decimal128 for shorter decimals."""
    kind = array.type
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    return array.cast(pa.float32()) if pa.types.is_float16(kind) else array


_TAGS: tuple[tuple[bytes, tuple[Any, ...]], ...] = (
    (b"n", (pa.types.is_null,)),
    (b"b", (pa.types.is_boolean,)),
    (b"i", (pa.types.is_integer,)),
    (b"f", (pa.types.is_floating,)),
    (b"d", (pa.types.is_decimal,)),
    (b"s", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (b"x", (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)),
    (b"t", (pa.types.is_date, pa.types.is_timestamp, pa.types.is_time)),
)


def type_tag(kind: pa.DataType, column: str, file: str) -> bytes:
    """The tag of a type; raises `SchemaError` for a type by which rows cannot be grouped."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tag = next((tag for tag, tests in _TAGS if any(test(kind) for test in tests)), None)
    if tag is None:
        raise SchemaError(f"{file}: column {column!r} has type {kind}; rows are grouped by plain values: cast it")
    return tag


def tag_values(values: pa.Array, tag: bytes) -> pa.Array:
    """Each value as tagged text."""
    if tag == b"n":
        return nulls(len(values))
    values = hashable(values)
    if tag == b"f":
        values = pc.add(values, pa.scalar(0.0, values.type))  # −0.0 becomes 0.0
    text = values if tag == b"x" else values.cast(pa.string())
    joined = pc.binary_join_element_wise(binary(tag), text.cast(pa.large_binary()), binary(b""))
    return pc.fill_null(joined, binary(b"n"))


def binary(value: bytes) -> pa.Scalar:
    """Bytes as an Arrow scalar of type large_binary."""
    return pa.scalar(value, pa.large_binary())


def nulls(size: int) -> pa.Array:
    """The tagged text of null, `size` times."""
    return pa.array([b"n"] * size, pa.large_binary())


def frame_texts(texts: pa.Array) -> pa.Array:
    """Each text, preceded by its length and a colon."""
    lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.large_binary())
    return pc.binary_join_element_wise(lengths, texts, binary(b":"))


_VALUES: dict[bytes, Callable[[bytes], Value]] = {
    b"n": lambda _: None,
    b"b": lambda text: text == b"true",
    b"i": int,
    b"f": lambda text: _NAN if text == b"nan" else float(text),
    b"d": lambda text: Decimal(text.decode()),
    b"s": bytes.decode,
    b"x": bytes,
    b"t": bytes.decode,
}


def value_of(text: bytes) -> Value:
    """The value of a tagged text."""
    return _VALUES[text[:1]](text[1:])
