"""Sample values of a column in some groups of rows, such as the text of an id or example rows of a cluster.

Each group keeps the `most` distinct values with the smallest hashes (bottom-k sampling), so the values do not depend on
how the rows are partitioned, ordered or repeated. Memory is proportional to the number of requested groups, not of
rows. The state is used within a run and never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.kernels.contingency.tables import positions
from streameval.states.keyed.ids import hash_array, id_words, identify, row_nulls
from streameval.states.protocol import Batch, Small, Totals, Traits
from streameval.typing import valid_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.protocol import Header
    from streameval.typing import Array

_DECODED = 1 << 23  # bytes of the texts of a dictionary that are decoded at a time


@dataclass(frozen=True)
class IdColumn:
    """A column of ids: its name, the type of its ids and their scope; see `streameval.states.keyed.ids`."""

    name: str
    type: str
    scope: str = "global"

    @property
    def words(self) -> int:
        """Number of 64-bit words of an id."""
        return id_words(self.type, self.scope)


@dataclass(frozen=True)
class ValuesSpec:
    """Which values to collect.

    Attributes
    ----------
    keys : columns whose ids, concatenated, identify the group of a row
    by_label : whether the label is the last word of the group
    groups : bytes of a uint64 array of shape (n_groups, n_words), the requested groups
    column : the column of the values
    most : largest number of values kept for a group
    """

    kind: ClassVar[str] = "values"
    version: ClassVar[int] = 1

    keys: tuple[IdColumn, ...]
    by_label: bool
    groups: bytes
    column: str
    most: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return tuple(dict.fromkeys((*(key.name for key in self.keys), self.column)))

    @property
    def traits(self) -> Traits:
        """Rows without a label contribute values, unless the label is part of the group."""
        return Traits(unlabelled=not self.by_label)

    @cached_property
    def wanted(self) -> Array:
        """The requested groups, as a uint64 array of shape (n_groups, n_words)."""
        width = sum(key.words for key in self.keys) + self.by_label
        return np.frombuffer(self.groups, np.uint64).reshape(-1, width)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""
        return pa.schema({"group": pa.int64(), "hash": pa.uint64(), "value": pa.large_binary()})

    def builder(self, budget: Budget, capacity: int) -> _ValuesBuilder:
        """A new builder."""
        return _ValuesBuilder(self)

    def empty(self) -> Values:
        """The empty state."""
        return Values(self, self.schema.empty_table().combine_chunks())

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> Values:
        """Raise `NotImplementedError`: the state is never stored."""
        raise NotImplementedError("values of rows are never stored")


class _ValuesBuilder:
    def __init__(self, spec: ValuesSpec) -> None:
        self.spec = spec
        self._firsts = np.unique(spec.wanted[:, 0]).reshape(-1, 1)
        self._state = spec.empty()

    def update(self, batch: Batch) -> None:
        candidates, words = self._candidates(batch)
        if not candidates.size:
            return
        group = positions(self.spec.wanted, words)
        inside = group >= 0
        if inside.any():
            rows, group, array = candidates[inside], group[inside], batch.columns[self.spec.column]
            most = _rows_at_a_time(array)
            for part in (slice(start, start + most) for start in range(0, rows.size, most)):
                self._state = self._state.with_rows(group[part], _bytes(array.take(pa.array(rows[part]))))

    def _candidates(self, batch: Batch) -> tuple[Array, Array]:
        """Rows whose first word is that of a requested group, and the words of their ids and labels."""
        arrays = [row_nulls(batch.columns[key.name]) for key in self.spec.keys]
        valid = np.ones(batch.label.size, bool)
        for array in arrays:
            if array.null_count:
                valid &= valid_rows(array)
        rows = np.arange(valid.size) if valid.all() else np.flatnonzero(valid)
        columns: list[Array] = []
        for i, (key, array) in enumerate(zip(self.spec.keys, arrays, strict=True)):
            present = array if rows.size == len(array) and not array.null_count else array.take(pa.array(rows))
            first, rest = identify(present, key.type, key.scope, batch.partition)
            if i == 0:
                near = np.flatnonzero(positions(self._firsts, first.reshape(-1, 1)) >= 0)
                rows, first, rest = rows[near], first[near], rest[near]
            columns += [first, *rest.T]
        labels = [batch.label[rows].astype(np.uint64)] if self.spec.by_label else []
        return rows, np.column_stack([*columns, *labels])

    def state(self) -> Values:
        return self._state


def _rows_at_a_time(array: pa.Array) -> int:
    """Number of rows of a column that decode to at most `_DECODED` bytes of text; at least 1."""
    if not pa.types.is_dictionary(array.type):
        return max(1, len(array))
    longest = pc.max(pc.binary_length(_bytes(array.dictionary))).as_py() or 0
    return max(1, _DECODED // max(1, longest))


def _bytes(array: pa.Array) -> pa.Array:
    """Values as bytes: text in UTF-8, binaries unchanged, numbers and times formatted as text."""
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    kind = array.type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return array.cast(pa.large_binary()) if binary else array.cast(pa.large_string()).cast(pa.large_binary())


@dataclass(frozen=True, eq=False)
class Values(Small):
    """Sample values of each requested group.

    Attributes
    ----------
    spec : ValuesSpec
    table : pa.Table
        One row per value with the index of the group, the hash and the value; sorted by group and hash.
    """

    spec: ValuesSpec
    table: pa.Table

    def with_rows(self, group: Array, values: pa.Array) -> Values:
        """The state with further rows, given by the index of their group and their values; nulls are skipped."""
        if values.null_count:
            group, values = group[valid_rows(values)], values.drop_null()
        hashes, _ = hash_array(values)
        more = pa.table([pa.array(group), pa.array(hashes), values], schema=self.spec.schema)
        return self._reduced(pa.concat_tables([self.table, more]))

    def _reduced(self, table: pa.Table) -> Values:
        group, hashes = (table.column(name).to_numpy() for name in ("group", "hash"))
        order = np.lexsort((hashes, group))
        group, hashes = group[order], hashes[order]
        new = np.ones(order.size, bool)
        new[1:] = (group[1:] != group[:-1]) | (hashes[1:] != hashes[:-1])
        order, group = order[new], group[new]
        kept = order[np.arange(group.size) - np.searchsorted(group, group) < self.spec.most]
        return Values(self.spec, table.take(pa.array(kept)).combine_chunks())

    def merge(self, other: Values) -> Values:
        """The values of both inputs."""
        return self._reduced(pa.concat_tables([self.table, other.table]))

    def lists(self) -> list[list[bytes]]:
        """The values of each group, in ascending order of their hashes."""
        found: list[list[bytes]] = [[] for _ in range(len(self.spec.wanted))]
        for group, value in zip(self.table["group"].to_pylist(), self.table["value"].to_pylist(), strict=True):
            found[group].append(value)
        return found

    def totals(self) -> Totals:
        """Zeros: rows are not counted."""
        return Totals(0, 0, 0.0, 0.0)

    def header(self) -> Header:
        """Empty: the state is never stored."""
        return {}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """The table."""
        yield from self.table.to_batches()
