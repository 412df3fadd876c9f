"""Block counts of slices: the rows of each resampling block on a coarse grid of scores, slice by slice.

Every slice has its own `BlockCounts`, so its grid is as fine as its scores allow. A slice with few rows occupies few
bins. With 128 blocks a bin takes 3 KiB (7 KiB with weights), so a slice takes 6 MiB (14 MiB) if its scores fill 2,048
bins. If the slices do not fit into the budget, folding raises `OptionError` with their number.
"""

from __future__ import annotations

import base64
import sys
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import OptionError
from streameval.kernels.blocks.grid import SLOTS_A_BIN
from streameval.kernels.grouped.interleave import ordered
from streameval.states.compatible import mergeable
from streameval.states.facts import check_facts
from streameval.states.grouped.keys import Group, read_key
from streameval.states.protocol import Small, SplitSpec
from streameval.states.scores.blocks import BlockCounts, BlockSpec
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.protocol import Batch, Builder, Totals

__all__ = ["BlockSlices", "BlockSlicesSpec"]

_BIN_BYTES = 8 + 20 * SLOTS_A_BIN  # bytes of a bin, occupied or not: its prefix and its slots in the hash table
_COUNT_BYTES, _WEIGHT_BYTES = 12, 16  # bytes of a (bin, block, label) cell, builder and state together


@dataclass(frozen=True)
class BlockSlicesSpec(SplitSpec):
    """Block counts, split by a key.

    Parameters
    ----------
    inner : BlockSpec
        The block counts of each slice.
    key : By
        The columns that divide the rows into slices.

    Examples
    --------
    >>> from streameval.states.grouped.keys import By
    >>> BlockSlicesSpec(BlockSpec("score", unit="campaign"), By(("country",))).columns
    ('score', 'campaign', 'country')
    """

    kind: ClassVar[str] = "score_block_slices"
    version: ClassVar[int] = 1

    inner: Any
    key: Any

    def __post_init__(self) -> None:
        if isinstance(self.inner, dict):  # from a header
            object.__setattr__(self, "inner", BlockSpec(**self.inner))
            object.__setattr__(self, "key", read_key(self.key))

    @property
    def schema(self) -> pa.Schema:
        """The name of the slice, then the columns of its table."""
        return pa.schema([("slice", pa.large_binary()), *self.inner.schema])

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A builder for each slice."""
        return _Builder(self, budget)

    def empty(self) -> BlockSlices:
        """The empty state, without slices."""
        return BlockSlices(self, {})

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> BlockSlices:
        """The state that `BlockSlices.to_arrow` wrote."""
        names = {base64.b64decode(text): each for text, each in header["slices"].items()}
        for name, each in names.items():
            self.key.group(name)
            check_facts(self.inner, each)
        table = pa.Table.from_batches(batches, self.schema)
        codes = pc.index_in(table["slice"], pa.array(names, pa.large_binary()))
        if codes.null_count:
            msg = f"{codes.null_count} rows are of slices that the header lacks"
            raise ValueError(msg)
        order, starts = ordered(codes.to_numpy().astype(np.int64), len(names))
        table, found = table.drop_columns(["slice"]), {}
        for (name, slice_header), (a, b) in zip(names.items(), pairwise(starts.tolist()), strict=True):
            found[name] = self.inner.from_arrow(slice_header, table.take(pa.array(order[a:b])).to_batches(), budget)
        return BlockSlices(self, found)


class _Builder:
    def __init__(self, spec: BlockSlicesSpec, budget: Budget) -> None:
        self._spec, self._budget = spec, budget
        self._builders: dict[bytes, Any] = {}
        self._rows: dict[bytes, int] = {}

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        split = self._spec.key.split(batch)
        names = split.names.to_pylist()
        counts = np.bincount(split.codes, minlength=len(names)).tolist()
        for name, rows in zip(names, counts, strict=True):
            self._rows[name] = self._rows.get(name, 0) + rows
        self._spec.key.check(len(self._rows), self._rows.keys, more=True)
        self._check_room()
        order, starts = ordered(split.codes, len(names))
        for name, (a, b) in zip(names, pairwise(starts.tolist()), strict=True):
            if name not in self._builders:
                self._builders[name] = self._spec.inner.builder(self._budget, b - a)
            self._builders[name].update(batch.taken(order[a:b], self._spec.inner.columns))

    def _check_room(self) -> None:
        """Raise `OptionError` if the blocks of all slices seen so far do not fit into the budget."""
        inner, limit = self._spec.inner, self._budget.limit
        cells = 2 * inner.count * sum(min(inner.bins, rows) for rows in self._rows.values())
        needed = cells * (_COUNT_BYTES + inner.weighted * _WEIGHT_BYTES) + _BIN_BYTES * inner.bins * len(self._rows)
        if needed > limit and len(self._rows) > 1:
            by = ",".join(self._spec.key.columns)
            msg = (
                f"by={by!r}: {plural(len(self._rows), 'slice')} or more of {inner.count} blocks take "
                f"{needed >> 20:,} MiB, and states may take {limit >> 20:,}; choose fewer slices (--where), leave out "
                "ci and unit (--ci, --unit), or raise memory (--memory)"
            )
            raise OptionError(msg, "by")

    def state(self) -> BlockSlices:
        """The state of everything folded; the builder must not be used afterwards."""
        return BlockSlices(self._spec, {name: self._builders.pop(name).state() for name in list(self._builders)})


@dataclass(frozen=True, eq=False)
class BlockSlices(Small):
    """Block counts of each slice, with the interface of `streameval.states.grouped.Grouped`.

    Attributes
    ----------
    spec : BlockSlicesSpec
    slices : the BlockCounts of each slice, by the encoded name of the slice

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.grouped.keys import By
    >>> from streameval.states.protocol import Batch
    >>> builder = BlockSlicesSpec(BlockSpec("s", "f8", unit="u", count=4), By(("country",))).builder(Budget(), 8)
    >>> columns = {"s": pa.array([0.25, 0.75, 0.75]), "u": pa.array([7, 8, 7]), "country": pa.array(["DE", "DE", None])}
    >>> builder.update(Batch(np.array([0, 1, 0], np.uint8), None, columns))
    >>> state = builder.state()
    >>> state.groups(), state.only(("DE",)).totals().rows, state.without(("DE",)).totals().rows
    (((None,), ('DE',)), 2, 1)
    """

    spec: BlockSlicesSpec
    slices: Mapping[bytes, BlockCounts]

    def merge(self, other: BlockSlices) -> BlockSlices:
        """The slices of both states; slices with equal values are merged."""
        mergeable(self, other)
        found = dict(self.slices)
        for name, state in other.slices.items():
            found[name] = found[name].merge(state) if name in found else state
        return BlockSlices(self.spec, found)

    @cached_property
    def _names(self) -> dict[Group, bytes]:
        return {self.spec.key.group(name): name for name in sorted(self.slices)}

    def groups(self) -> tuple[Group, ...]:
        """The key values of every slice that has rows."""
        return tuple(self._names)

    def only(self, group: Group) -> BlockCounts:
        """The block counts of one slice; empty if there is no such slice."""
        name = self._names.get(group)
        found: BlockCounts = self.spec.inner.empty() if name is None else self.slices[name]
        return found

    def without(self, *groups: Group) -> BlockCounts:
        """The block counts of all other slices."""
        left = [self._names[group] for group in groups if group in self._names]
        return self._union([name for name in self.slices if name not in left])

    def each_without(self, groups: Sequence[Group]) -> Iterator[BlockCounts]:
        """For each of some groups, the block counts of all rows outside it.

        The groups are halved recursively, so n groups take O(n log n) merges.
        """
        names = [self._names.get(group, b"") for group in groups]
        yield from self._each_without(self._union([name for name in self.slices if name not in names]), names)

    def _each_without(self, others: BlockCounts, names: list[bytes]) -> Iterator[BlockCounts]:
        """For each named slice, the union of `others` and all other named slices."""
        if len(names) < 2:
            yield from [others] * len(names)
            return
        first, second = names[: len(names) // 2], names[len(names) // 2 :]
        yield from self._each_without(others.merge(self._union(second)), first)
        yield from self._each_without(others.merge(self._union(first)), second)

    def total(self, budget: Budget | None = None) -> BlockCounts:
        """The block counts of all rows."""
        return self._union(list(self.slices))

    def _union(self, names: list[bytes]) -> BlockCounts:
        """The block counts of some slices, merged in order of name so that sums of weights are reproducible.

        They are merged in pairs: one after the other, the bins of all slices so far would be copied for each slice.
        """
        states = [self.slices[name] for name in sorted(names) if name in self.slices]
        while len(states) > 1:
            pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
            states = [reduce(BlockCounts.merge, pair) for pair in pairs]
        found: BlockCounts = states[0] if states else self.spec.inner.empty()
        return found

    def totals(self) -> Totals:
        """Rows and weights of both classes, over all slices."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        totals: Totals = self.total().totals()
        return totals

    def header(self) -> dict[str, Any]:
        """The spec, and the header of each slice."""
        slices = {base64.b64encode(name).decode(): self.slices[name].header() for name in sorted(self.slices)}
        spec = {"inner": asdict(self.spec.inner), "key": self.spec.key.fields()}
        return {"spec": spec, "slices": {name: _without_spec(header) for name, header in slices.items()}}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """The tables of all slices."""
        for name in sorted(self.slices):
            for batch in self.slices[name].to_arrow():
                names = pa.array([name] * len(batch), pa.large_binary())
                yield pa.RecordBatch.from_arrays([names, *batch.columns], schema=self.spec.schema)

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.slices.values()))

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state."""
        if not isinstance(other, BlockSlices):
            return NotImplemented
        return self.spec == other.spec and self.slices == other.slices


def _without_spec(header: dict[str, Any]) -> dict[str, Any]:
    """The header of a slice without its spec, which all slices share."""
    return {name: value for name, value in header.items() if name != "spec"}
