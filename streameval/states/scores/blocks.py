"""BlockCounts: rows of each resampling block on a coarse grid of scores, by label.

The counts are a dense array of shape (bins, blocks, labels), and folding a row is one increment. A bin is a prefix of
the folded code of the score (`streameval.kernels.grid`). All prefixes have the same length: the largest with
which at most `BlockSpec.bins` prefixes are occupied. More rows only occupy more prefixes, so the length depends on the
set of rows alone, and any two states merge: prefixes are shortened only when a batch or a merge exceeds the limit. Each
bin keeps the smallest and the largest code that it has seen; if they are equal, the bin holds a single score.

2,048 bins and 128 blocks take 4 MiB, 8 MiB with weights. The effect of the grid on standard errors is checked where
they are computed (`streameval.metrics.scores.block_replicates`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.kernels.grid import SLOTS_A_BIN, add_bins, codes, count_blocks, scores_of, take_slots
from streameval.kernels.jit import read_only
from streameval.states.grouped.keys import Blocks
from streameval.states.protocol import Batch, Small, Stored, Totals, Traits, mergeable
from streameval.states.scores.parts import unit_of
from streameval.states.scores.types import MissingScores, floats, present, refuse_nan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.typing import Array

_CODE_BITS = 64
_SAMPLE = 1 << 14  # rows from which the prefix length is chosen, at first and whenever bins run out
_BIN_BYTES = 8 + 20 * SLOTS_A_BIN  # bytes of a bin, occupied or not: its prefix and its slots in the hash table
_COUNT_BYTES, _WEIGHT_BYTES = 17, 16  # bytes of a (bin, block, label) cell, builder and state together
_BYTE = 255  # mask of the lowest byte of a count, which the builder keeps in a separate table
_NO_WEIGHTS = read_only(np.empty(0))


@dataclass(frozen=True)
class BlockSpec(MissingScores):
    """The block counts of a score column.

    Attributes
    ----------
    column, type, weighted, nan : as in `streameval.states.scores.counts.ScoreSpec`
    unit : column of the sampling unit, whose rows share a block; None if each row is a unit
    count : number of blocks
    bins : largest number of bins

    Examples
    --------
    >>> BlockSpec("score", unit="campaign").columns
    ('score', 'campaign')
    """

    kind: ClassVar[str] = "score_blocks"
    version: ClassVar[int] = 1
    slice_remedy: ClassVar[str] = (
        "choose fewer slices (--where), leave out ci and unit (--ci, --unit), or raise memory (--memory)"
    )

    column: str
    type: str = "f4"
    weighted: bool = False
    nan: str = "error"
    unit: str | None = None
    count: int = 128
    bins: int = 2048

    @property
    def key(self) -> Blocks:
        """The key that assigns units to blocks."""
        return Blocks(self.unit, self.count)

    def group_bytes(self, rows: Collection[int]) -> int:
        """Bytes of the states of some groups and of their builders, from the number of rows of each."""
        cells = 2 * self.count * sum(min(self.bins, n) for n in rows)
        return cells * (_COUNT_BYTES + self.weighted * _WEIGHT_BYTES) + _BIN_BYTES * self.bins * len(rows)

    @property
    def traits(self) -> Traits:
        """The largest state is one whose bins are all occupied."""
        largest = self.bins * self.count * 2 * 8 * (1 + self.weighted)
        return Traits(refuses_missing=self.nan == "error", largest=largest)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return tuple(dict.fromkeys((self.column, *self.key.columns)))

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table: one row for each bin and block that has rows."""
        names = {"prefix": pa.uint64(), "low": pa.uint64(), "high": pa.uint64(), "block": pa.int64()}
        counts = {"negatives": pa.int64(), "positives": pa.int64()}
        weights = {"negative_weight": pa.float64(), "positive_weight": pa.float64()}
        return pa.schema(names | counts | (weights if self.weighted else {}))

    def builder(self, budget: Budget, capacity: int) -> _BlockBuilder:
        """A new builder; its tables have room for `capacity` bins at first, and for `bins` at most."""
        return _BlockBuilder(self, max(1, min(self.bins, capacity)))

    def empty(self) -> BlockCounts:
        """The empty state."""
        return BlockCounts(self, 0, np.empty(0, np.uint64), np.empty((0, 2), np.uint64), *_tables(self, 0))

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> BlockCounts:
        """The state that `BlockCounts.to_arrow` wrote; raises `ValueError` if the table is damaged."""
        stored = pa.Table.from_batches(batches, self.schema)
        columns = {name: stored.column(name).to_numpy() for name in stored.schema.names}
        prefixes, first, at = np.unique(columns["prefix"], return_index=True, return_inverse=True)
        block = columns["block"]
        if prefixes.size > self.bins or (block.size and not 0 <= block.min() <= block.max() < self.count):
            raise ValueError(f"there are at most {self.bins} prefixes, and blocks from 0 to {self.count - 1}")
        (shift,), ends = header["shift"], np.stack([columns["low"], columns["high"]], axis=1)
        ascend = ends[:, 0] <= ends[:, 1]
        if shift > _CODE_BITS or not (ascend & (ends >> np.uint64(shift) == columns["prefix"][:, None]).all(1)).all():
            raise ValueError("the smallest and the largest code of a bin have its prefix")
        table, sums = _tables(self, prefixes.size)[:2]
        for side, name in enumerate(("negative", "positive")):
            table[at, block, side] = columns[f"{name}s"]
            if self.weighted:
                sums[at, block, side] = columns[f"{name}_weight"]
        nan = np.array(header["nan_rows"]).reshape(-1, 2), np.array(header["nan_weights"]).reshape(-1, 2)
        return BlockCounts(self, shift, prefixes, ends[first], table, sums, *nan)


def _tables(spec: BlockSpec, bins: int, kind: type = np.int64) -> tuple[Array, Array, Array, Array]:
    """Empty tables: rows and weights by bin, block and label; rows and weights of missing scores by block and label."""
    shape, weighted = (bins, spec.count, 2), bool(spec.weighted)
    table: Array = np.zeros(shape, kind)
    sums = np.zeros(shape if weighted else (0, spec.count, 2))
    return table, sums, np.zeros((spec.count, 2), np.int64), np.zeros((spec.count, 2))


class _BlockBuilder:
    def __init__(self, spec: BlockSpec, room: int) -> None:
        self.spec = spec
        self._shift = -1  # not known yet
        self._used = np.zeros(1, np.int64)
        self._nan_rows, self._nan_weights = _tables(spec, 0)[2:]
        self._make_room(room, spec.empty())

    def _make_room(self, bins: int, state: BlockCounts) -> None:
        """New tables for this number of bins, with the counts of a state."""
        used = self._used[0] = state.prefixes.size
        self._prefixes = np.zeros(bins, np.uint64)
        self._table, self._sums, *_ = _tables(self.spec, bins, np.uint8)
        self._wide = np.zeros(self._table.shape, np.int64)  # carries from the byte counts, multiples of 256
        self._ends = np.zeros((bins + 1, 2), np.uint64)
        self._ends[used:, 0] = np.iinfo(np.uint64).max
        self._prefixes[:used], self._ends[:used] = state.prefixes, state.ends
        self._table[:used], self._wide[:used] = state.table & _BYTE, state.table & ~_BYTE
        self._sums[: len(state.sums)] = state.sums
        self._finder = np.empty(1 << (SLOTS_A_BIN * bins - 1).bit_length(), np.min_scalar_type(self.spec.bins))
        take_slots(self._prefixes[:used], self._finder, bins)

    def update(self, batch: Batch) -> None:
        values, rows, missing = present(batch, self.spec.column, self.spec.type, nan=False)
        blocks, weight = self.spec.key.numbers(batch), batch.weight if self.spec.weighted else None
        lost = blocks[missing], batch.label[missing]
        np.add.at(self._nan_rows, lost, 1)
        if weight is not None:
            np.add.at(self._nan_weights, lost, weight[missing])
            weight = weight[rows]
        self._count(floats(values, self.spec.type), batch.label[rows], weight, blocks[rows])
        refuse_nan(self.spec.nan, self._nan_rows, batch.name, self.spec.column)

    def _count(self, scores: Array, label: Array, weight: Array | None, blocks: Array) -> None:
        """Count rows; shorten the prefixes whenever there is no room for a new bin."""
        if self._shift < 0 and scores.size:
            self._shift = _shift_for(np.unique(_sampled_codes(scores)), self.spec.bins)
        rows = read_only(scores), read_only(label), _NO_WEIGHTS if weight is None else read_only(weight)
        start = 0
        while start < scores.size:
            start = count_blocks(
                *rows, read_only(blocks), start, self._shift, self._finder, self._prefixes, self._used, self._ends,
                self._table.ravel(), self._wide.ravel(), self._sums.ravel(), self._nan_rows, self._nan_weights,
            )  # fmt: skip
            if start < scores.size and len(self._prefixes) < self.spec.bins:
                self._make_room(min(self.spec.bins, 4 * len(self._prefixes)), self._state())
            elif start < scores.size:
                self._coarsen(_sampled_codes(scores[start:]))

    def _coarsen(self, found: Array) -> None:
        """Shorten the prefixes until there is room for the codes `found`, which are counted next."""
        state = self._state()
        self._shift += _shift_for(np.union1d(state.prefixes, found >> np.uint64(self._shift)), self.spec.bins)
        self._make_room(len(self._prefixes), state.at_shift(self._shift))

    def _state(self) -> BlockCounts:
        used = int(self._used[0])
        order = np.argsort(self._prefixes[:used])
        sums = self._sums[:used][order] if self.spec.weighted else self._sums
        table = self._wide[:used][order] + self._table[:used][order].astype(np.int64)
        columns = self._prefixes[:used][order], self._ends[:used][order], table, sums
        return BlockCounts(self.spec, max(self._shift, 0), *columns, self._nan_rows, self._nan_weights)

    def state(self) -> BlockCounts:
        return self._state().at_shift(0)


def _add(bins: Array, places: Array, out: Array) -> None:
    """Add each row of `bins` to the row of `out` at its place; `bins` is empty without weights."""
    if bins.shape[0]:
        add_bins(read_only(bins.reshape(len(bins), -1)), places, out.reshape(len(out), -1))


@dataclass(frozen=True, eq=False)
class BlockCounts(Small, Stored):
    """Counts of rows by bin of the score, block and label.

    Attributes
    ----------
    spec : BlockSpec
    shift : number of low bits of the code that the prefix lacks
    prefixes : uint64 array of shape (n_bins,), ascending
    ends : uint64 array of shape (n_bins, 2): the smallest and the largest code of each bin
    table : int64 array of shape (n_bins, n_blocks, 2), rows by label
    sums : float64 array of the same shape, their weights; of shape (0, n_blocks, 2) without weights
    nan_rows, nan_weights : arrays of shape (n_blocks, 2): rows with a missing score and their weight, by label

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> builder = BlockSpec("s", "f8", unit="u", count=4).builder(Budget(), 8)
    >>> columns = {"s": pa.array([0.25, 0.75, 0.75]), "u": pa.array([7, 8, 7])}
    >>> builder.update(Batch(np.array([0, 1, 0], np.uint8), None, columns))
    >>> builder.state().table.sum(axis=1).tolist()
    [[1, 0], [1, 1]]
    """

    spec: BlockSpec
    shift: int
    prefixes: Array
    ends: Array
    table: Array
    sums: Array
    nan_rows: Array
    nan_weights: Array

    def at_shift(self, shift: int) -> BlockCounts:
        """The state with prefixes shortened to `shift`; a state without rows always has shift 0."""
        more = np.uint64(max(0, shift - self.shift))
        if not more or not self.prefixes.size:
            empty = not self.prefixes.size
            return self if not empty else BlockCounts(self.spec, 0, *self._arrays())
        shorter = self.prefixes >> more
        first = np.flatnonzero(np.append(True, shorter[1:] != shorter[:-1]))
        ends = np.stack(
            [np.minimum.reduceat(self.ends[:, 0], first), np.maximum.reduceat(self.ends[:, 1], first)], axis=1
        )
        table, sums, *_ = _tables(self.spec, first.size)
        places = np.cumsum(np.append(False, shorter[1:] != shorter[:-1]))
        for own, out in ((self.table, table), (self.sums, sums)):
            _add(own, places, out)
        return BlockCounts(self.spec, shift, shorter[first], ends, table, sums, self.nan_rows, self.nan_weights)

    def _arrays(self) -> tuple[Array, ...]:
        return self.prefixes, self.ends, self.table, self.sums, self.nan_rows, self.nan_weights

    def merge(self, other: BlockCounts) -> BlockCounts:
        """Counts of both inputs."""
        mergeable(self, other)
        shift = max(self.shift, other.shift)
        sides = [side.at_shift(shift) for side in (self, other)]
        prefixes = np.union1d(*(side.prefixes for side in sides))
        table, sums, *_ = _tables(self.spec, prefixes.size)
        ends = np.stack([np.full(prefixes.size, np.iinfo(np.uint64).max), np.zeros(prefixes.size, np.uint64)], axis=1)
        for side in sides:
            at = np.searchsorted(prefixes, side.prefixes)
            _add(side.table, at, table)
            _add(side.sums, at, sums)
            ends[at, 0] = np.minimum(ends[at, 0], side.ends[:, 0])
            ends[at, 1] = np.maximum(ends[at, 1], side.ends[:, 1])
        nan = self.nan_rows + other.nan_rows, self.nan_weights + other.nan_weights
        merged = BlockCounts(self.spec, shift, prefixes, ends, table, sums, *nan)
        return merged.at_shift(shift + _shift_for(prefixes, self.spec.bins))

    @property
    def measure(self) -> Array:
        """Weights of the rows if they are weighted, else their number: an array of shape (n_bins, n_blocks, 2)."""
        return self.sums if self.spec.weighted else self.table

    @property
    def halved_measure(self) -> Array:
        """`measure` of the rows whose missing score counts one half in every pair: an array of shape (n_blocks, 2)."""
        missing = self.nan_weights if self.spec.weighted else self.nan_rows
        return missing if self.spec.nan == "half" else np.zeros_like(missing)

    @property
    def whole_measure(self) -> Array:
        """`measure` summed over all blocks: an array of shape (n_bins, 2)."""
        return self.whole[self.spec.weighted]

    @cached_property
    def scores(self) -> tuple[Array, Array]:
        """The lowest and the highest score of each bin, ascending."""
        low, high = (scores_of(self.ends[:, side]) for side in (0, 1))
        return low, high

    @cached_property
    def whole(self) -> tuple[Array, Array, Array, Array]:
        """Rows and weights by bin and label, then those with a missing score by label; each summed over all blocks."""
        tables = self.table, self.sums, self.nan_rows, self.nan_weights
        # one label at a time, because NumPy is slow if the last axis has length 2
        rows, weights, nan_rows, nan_weights = (
            np.stack([each[..., side].sum(axis=-1) for side in (0, 1)], axis=-1) for each in tables
        )
        return rows, weights, nan_rows, nan_weights

    def totals(self) -> Totals:
        """Rows and weights of the scores that are not missing."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        neg, pos = self.whole[0].sum(axis=0).tolist()
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        weights = self.whole[1].sum(axis=0).tolist()
        unit = unit_of(sum(weights) + float(self.nan_weights.sum()))
        scaled = np.ldexp(weights, -unit).tolist()
        return Totals(neg, pos, scaled[0], scaled[1], weighted=True, unit=unit)

    def header(self) -> Mapping[str, object]:
        """The spec, the shift and the missing scores by block, as JSON values."""
        nan = {"nan_rows": self.nan_rows.ravel().tolist(), "nan_weights": self.nan_weights.ravel().tolist()}
        return {"spec": asdict(self.spec), "shift": [self.shift]} | nan

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One row for each bin and block that has rows, ascending."""
        bins, blocks = np.nonzero(self.table.any(axis=2))
        columns = [self.prefixes[bins], *self.ends[bins].T, blocks, *self.table[bins, blocks].T]
        columns += [*self.sums[bins, blocks].T] if self.spec.weighted else []
        arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)


def _sampled_codes(scores: Array) -> Array:
    """Codes of the first 16,384 scores, without those that are NaN; a uint64 array."""
    some = scores[:_SAMPLE]
    sampled: Array = codes(read_only(some[~np.isnan(some)].astype(np.float64)))
    return sampled


def _shift_for(prefixes: Array, most: int) -> int:
    """The number of low bits to drop so that at most `most` of the prefixes stay distinct.

    Parameters
    ----------
    prefixes : uint64 array of shape (n,), ascending and distinct
    most : largest number of distinct prefixes afterwards, at least 1

    Examples
    --------
    >>> _shift_for(np.array([0b000, 0b001, 0b100], np.uint64), 2)
    1
    """
    if prefixes.size <= most:
        return 0
    differing = prefixes[1:] ^ prefixes[:-1]  # neighbours become equal once their highest differing bit is dropped
    bits = np.zeros(differing.size, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        higher = differing >> np.uint64(step) > 0
        bits += step * higher
        differing = np.where(higher, differing >> np.uint64(step), differing)
    apart = np.sort(bits + 1)[::-1]  # each pair stays distinct while fewer bits are dropped
    return int(apart[most - 1])
