"""BlockCounts: rows of each resampling block on a coarse grid of scores, by label.

The counts are a dense array of shape (bins, blocks, labels), and folding a row is one increment. A bin is a prefix of
the folded code of the score (`streameval.kernels.grid`). All prefixes have the same length: the largest with
which at most `BlockSpec.bins` prefixes are occupied. More rows only occupy more prefixes, so the length depends on the
set of rows alone, and any two states merge: prefixes are shortened only when a batch or a merge exceeds the limit. Each
bin keeps the smallest and the largest code that it has seen; if they are equal, the bin holds a single score.

Points such as ``tpr@fpr=0.01`` and areas such as ``agc@0.1`` depend on the rows around one place, mostly near the best
scores, and use fewer blocks. For them, rows are counted a second time (`BlockCounts.points`) over 32 blocks, on a grid
of 4,096 bins with finer bins at the top: of the prefixes that are 1, 2, 3 and 4 bits longer, the highest 4,096 of each
length are bins as well (with weights 2,048 bins, and the highest 2,048 of 1 to 5 bits), so that half as many bins or
more of some length lie above a threshold, unless bins of single scores do. The highest occupied prefixes of a union are
among those of its parts, with all their rows, so these bins depend on the set of rows alone, too.

2,048 bins and 128 blocks take 2 MiB, those for points at most 3 MiB; with weights 6 and 5.25 MiB. A night of 2·10⁵ rows
with a float32 score takes 270 kB in a store, and these counts 240 kB more. The effect of the grid on standard errors is
checked where they are computed (`streameval.metrics.scores.block_replicates`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
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
from streameval.typing import Array, distinct_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from streameval.budget import Budget

_CODE_BITS = 64
_SAMPLE = 1 << 14  # rows from which the prefix length is chosen, at first and whenever bins run out
_BIN_BYTES = 8 + 20 * SLOTS_A_BIN  # bytes of a bin, occupied or not: its prefix and its slots in the hash table
_COUNT_BYTES, _WEIGHT_BYTES = 9, 16  # bytes of a (bin, block, label) cell, builder and state together
_BYTE = 8  # lowest bits of a count, which the builder keeps in a separate table
_NARROW = 1 << 31  # rows whose counts fit into 32 bits
FEW_BLOCKS = 32  # of thresholded metrics
_LONGER = 5  # most bits that prefixes of the highest scores are longer, than those of the bins of all blocks
_NO_WEIGHTS = read_only(np.empty(0))


@dataclass(frozen=True)
class BlockSpec(MissingScores):
    """The block counts of a score column.

    Attributes
    ----------
    column, type, weighted, nan : as in `streameval.states.scores.counts.ScoreSpec`
    unit : column of the sampling unit, whose rows share a block; None if each row is a unit
    count : number of blocks
    bins : largest number of bins; of prefixes of each length
    longer : most bits that prefixes of the highest scores are longer
    pointed : whether rows are also counted for points, in finer bins and fewer blocks
    of : number of blocks of which only the first `count` are counted; 0 if all are

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
    longer: int = 0
    pointed: bool = False
    of: int = 0

    @property
    def points(self) -> BlockSpec:
        """The spec of the counts for points."""
        finer = 0 if self.weighted else 1
        bins, longer = self.bins << finer, _LONGER - finer
        return replace(self, count=FEW_BLOCKS, bins=bins, longer=longer, pointed=False)

    @property
    def most(self) -> int:
        """Largest number of bins of all lengths of prefixes: at least half of a length hold all bins of the next."""
        return self.bins + self.longer * (self.bins // 2 + 1)  # one holds a cut

    @property
    def key(self) -> Blocks:
        """The key that assigns units to blocks."""
        return Blocks(self.unit, self.of or self.count)

    def group_bytes(self, rows: Collection[int]) -> int:
        """Bytes of the states of some groups and of their builders, from the number of rows of each."""
        cells = 2 * self.count * sum(min(self.most, n) for n in rows)
        own = cells * (_COUNT_BYTES + self.weighted * _WEIGHT_BYTES) + _BIN_BYTES * self.most * len(rows)
        return own + (self.points.group_bytes(rows) if self.pointed else 0)

    @property
    def traits(self) -> Traits:
        """The largest state is one whose bins are all occupied."""
        largest = self.most * self.count * 2 * 8 * (1 + self.weighted)  # of 2³¹ rows or more
        largest += (self.points.traits.largest or 0) if self.pointed else 0
        return Traits(refuses_missing=self.nan == "error", largest=largest)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return tuple(dict.fromkeys((self.column, *self.key.columns)))

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table: one row for each bin and block that has rows; those for points have bits."""
        names = {"prefix": pa.uint64(), "low": pa.uint64(), "high": pa.uint64(), "block": pa.int64()}
        counts = {"negatives": pa.int64(), "positives": pa.int64()}
        weights = {"negative_weight": pa.float64(), "positive_weight": pa.float64()}
        bits = {"bits": pa.int64()} if self.pointed else {}  # below the prefix, or −1
        return pa.schema(names | counts | (weights if self.weighted else {}) | bits)

    def builder(self, budget: Budget, capacity: int) -> _BlockBuilder:
        """A new builder; its tables have room for `capacity` bins at first."""
        return _BlockBuilder(self, max(1, capacity))

    def empty(self) -> BlockCounts:
        """The empty state."""
        none = np.empty(0, np.int64), np.empty(0, np.uint64), np.empty((0, 2), np.uint64)
        return BlockCounts(self, 0, *none, *_tables(self, 0), self.points.empty() if self.pointed else None)

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> BlockCounts:
        """The state that `BlockCounts.to_arrow` wrote; raises `ValueError` if the table is damaged."""
        stored = pa.Table.from_batches(batches, self.schema)
        columns = {name: stored.column(name).to_numpy() for name in stored.schema.names}
        (shift, *finer), points = header["shift"], None
        nan = np.array(header["nan_rows"]).reshape(-1, 2), np.array(header["nan_weights"]).reshape(-1, 2)
        if self.pointed:
            bits = columns.pop("bits")
            merged = [sum_blocks(side, FEW_BLOCKS) for side in nan]
            own = {name: column[bits >= 0] for name, column in columns.items()}
            points = self.points.of_columns(own, finer[0], bits[bits >= 0], (merged[0], merged[1]))
            columns = {name: column[bits < 0] for name, column in columns.items()}
        bits = np.full(columns["block"].size, shift)
        return replace(self.of_columns(columns, shift, bits, nan), points=points)

    def of_columns(
        self, columns: Mapping[str, Array], shift: int, bits: Array, nan: tuple[Array, Array]
    ) -> BlockCounts:
        """The state of a stored table; `bits` are those below the prefix of each row, `nan` those without a score."""
        prefixes, first, at = np.unique(columns["prefix"], return_index=True, return_inverse=True)
        block, downs = columns["block"], bits[first]
        if prefixes.size > self.most or (block.size and not 0 <= block.min() <= block.max() < self.count):
            raise ValueError(f"there are at most {self.most} prefixes, and blocks from 0 to {self.count - 1}")
        longer = shift - downs
        if (bits != downs[at]).any() or (
            (longer < 0) | (longer > self.longer) | (np.diff(longer, prepend=0) < 0)
        ).any():
            raise ValueError("prefixes are longer at higher scores alone")
        ends = np.stack([columns["low"], columns["high"]], axis=1)
        ascend, below = ends[:, 0] <= ends[:, 1], np.maximum(bits, 0).astype(np.uint64)[:, None]
        if shift > _CODE_BITS or not (ascend & (ends >> below == columns["prefix"][:, None]).all(1)).all():
            raise ValueError("the smallest and the largest code of a bin have its prefix")
        table, sums = _tables(self, prefixes.size)[:2]
        for side, name in enumerate(("negative", "positive")):
            table[at, block, side] = columns[f"{name}s"]
            if self.weighted:
                sums[at, block, side] = columns[f"{name}_weight"]
        return BlockCounts(self, shift, downs, prefixes, ends[first], _narrow(table), sums, *nan)


def sum_blocks(values: Array, count: int) -> Array:
    """Sums over blocks that are taken as one, block b modulo `count`, of an array of shape (n_blocks, …)."""
    merged = np.zeros((count, *values.shape[1:]), values.dtype)
    np.add.at(merged, np.arange(len(values)) % count, values)
    return merged


def _narrow(table: Array) -> Array:
    """Counts in 32 bits if all rows fit into these."""
    return table.astype(np.int32) if int(table.sum()) < _NARROW else table


def _tables(spec: BlockSpec, bins: int, kind: type = np.int64) -> tuple[Array, Array, Array, Array]:
    """Empty tables: rows and weights by bin, block and label; rows and weights of missing scores by block and label."""
    shape, weighted = (bins, spec.count, 2), bool(spec.weighted)
    table: Array = np.zeros(shape, kind)
    sums = np.zeros(shape if weighted else (0, spec.count, 2))
    return table, sums, np.zeros((spec.count, 2), np.int64), np.zeros((spec.count, 2))


class _BlockBuilder:
    def __init__(self, spec: BlockSpec, room: int) -> None:
        """A builder with room for some bins at first."""
        self.spec = spec
        self._shift = -1  # not known yet
        self._cuts = read_only(np.zeros(spec.longer, np.uint64))
        self._used = np.zeros(1, np.int64)
        self._nan_rows, self._nan_weights = _tables(spec, 0)[2:]
        self._most = spec.most + (spec.bins // 2 + 1 if spec.longer else 0)  # room for new bins after coarsening
        self._make_room(min(room, self._most), spec.empty())
        self._points = _BlockBuilder(spec.points, room) if spec.pointed else None

    def _make_room(self, bins: int, state: BlockCounts) -> None:
        """New tables for this number of bins, with the counts of a state."""
        used = self._used[0] = state.prefixes.size
        self._prefixes = np.zeros(bins, np.uint64)
        self._table, self._sums, *_ = _tables(self.spec, bins, np.uint8)
        self._carries = np.zeros(self._table.shape, np.int32)
        self._ends = np.zeros((bins + 1, 2), np.uint64)
        self._ends[used:, 0] = np.iinfo(np.uint64).max
        self._prefixes[:used], self._ends[:used] = state.prefixes, state.ends
        self._carries[:used] = state.table >> _BYTE
        self._table[:used] = state.table & ((1 << _BYTE) - 1)
        self._sums[: len(state.sums)] = state.sums
        self._finder = np.empty(1 << (SLOTS_A_BIN * bins - 1).bit_length(), np.min_scalar_type(self._most))
        take_slots(self._prefixes[:used], self._finder, bins)

    def update(self, batch: Batch) -> None:
        blocks = self.spec.key.numbers(batch)
        if self.spec.of:
            first = np.flatnonzero(blocks < self.spec.count)
            batch, blocks = batch.taken(first, (self.spec.column,)), blocks[first]
        values, rows, missing = present(batch, self.spec.column, self.spec.type, nan=False)
        weight = batch.weight if self.spec.weighted else None
        scores = floats(values, self.spec.type)
        self.take(scores, batch.label, weight, blocks, rows, missing)
        if self._points is not None:
            self._points.take(scores, batch.label, weight, blocks % FEW_BLOCKS, rows, missing)
        refuse_nan(self.spec.nan, self._nan_rows, batch.name, self.spec.column)

    def take(
        self, scores: Array, label: Array, weight: Array | None, blocks: Array, rows: Array | slice, missing: Array
    ) -> None:
        """Count the rows of a batch, those with a missing score among them."""
        lost = blocks[missing], label[missing]
        np.add.at(self._nan_rows, lost, 1)
        if weight is not None:
            np.add.at(self._nan_weights, lost, weight[missing])
            weight = weight[rows]
        self._count(scores, label[rows], weight, blocks[rows])

    def _count(self, scores: Array, label: Array, weight: Array | None, blocks: Array) -> None:
        """Count rows; shorten the prefixes whenever there is no room for a new bin."""
        if self._shift < 0 and scores.size:
            some = distinct_numbers(_sample_codes(scores))
            self._shift = _shift_for(some, self.spec.bins)
            self._cuts = _cuts(self.spec, self._shift, some, np.zeros(some.size, np.int64))
        rows = read_only(scores), read_only(label), _NO_WEIGHTS if weight is None else read_only(weight)
        start = 0
        while start < scores.size:
            start = count_blocks(
                *rows, read_only(blocks), start, self._shift, self._cuts, self._finder, self._prefixes, self._used,
                self._ends, self._table.ravel(), self._carries.ravel(), self._sums.ravel(), self._nan_rows,
                self._nan_weights,
            )  # fmt: skip
            if start < scores.size and len(self._prefixes) < self._most:
                self._make_room(min(self._most, 4 * len(self._prefixes)), self.counts())
            elif start < scores.size:
                self._coarsen(_sample_codes(scores[start:]))

    def _coarsen(self, found: Array) -> None:
        """Shorten the prefixes until there is room for the codes `found`, which are counted next."""
        state, shift, found = self.counts(), np.uint64(self._shift), distinct_numbers(found)
        self._shift += _shift_for(distinct_numbers(np.append(state.starts >> shift, found >> shift)), self.spec.bins)
        starts, downs = np.append(state.starts, found), np.append(state.downs, np.zeros(found.size, np.int64))
        self._cuts = _cuts(self.spec, self._shift, starts, downs)
        self._make_room(len(self._prefixes), state.shortened(self._shift, self._cuts))

    def counts(self) -> BlockCounts:
        used, shift = int(self._used[0]), max(self._shift, 0)
        order = np.argsort(self._prefixes[:used])
        sums = self._sums[:used][order] if self.spec.weighted else self._sums
        carries, low = self._carries[:used], self._table[:used]
        if (int(carries.sum()) << _BYTE) + int(low.sum()) >= _NARROW:
            carries = carries.astype(np.int64)
        table = ((carries << _BYTE) + low)[order]
        prefixes, ends = self._prefixes[:used][order], self._ends[:used][order]
        downs = shift - (ends[:, :1] >= self._cuts).sum(axis=1)
        return BlockCounts(self.spec, shift, downs, prefixes, ends, table, sums, self._nan_rows, self._nan_weights)

    def state(self) -> BlockCounts:
        state = self.counts()
        shift = state.shift + _shift_for(distinct_numbers(state.starts >> np.uint64(state.shift)), self.spec.bins)
        return replace(state.at_shift(shift), points=None if self._points is None else self._points.state())


def _cuts(spec: BlockSpec, shift: int, starts: Array, downs: Array) -> Array:
    """The codes from which prefixes are one bit longer each, for prefixes that start at codes.

    Parameters
    ----------
    spec, shift : as in `BlockCounts`
    starts, downs : uint64 and int64 arrays of shape (n,), the smallest code and the shift of each prefix

    Returns
    -------
    uint64 array of shape (spec.longer,), ascending
    """
    cuts = np.full(spec.longer, np.iinfo(np.uint64).max, np.uint64)
    for i in range(min(spec.longer, shift)):
        down = np.uint64(shift - 1 - i)
        there = distinct_numbers(starts[downs < shift - i] >> down)
        cuts[i] = there[-spec.bins] << down if there.size >= spec.bins else 0
    return read_only(cuts)


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
    shift : number of low bits of the code that the shortest prefix lacks
    downs : int64 array of shape (n_bins,), number of low bits of the code that each prefix lacks
    prefixes : uint64 array of shape (n_bins,), ascending
    ends : uint64 array of shape (n_bins, 2): the smallest and the largest code of each bin
    table : int32 or int64 array of shape (n_bins, n_blocks, 2), rows by label
    sums : float64 array of the same shape, their weights; of shape (0, n_blocks, 2) without weights
    nan_rows, nan_weights : arrays of shape (n_blocks, 2): rows with a missing score and their weight, by label
    points : the same rows, counted for points; None if they are not

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
    downs: Array
    prefixes: Array
    ends: Array
    table: Array
    sums: Array
    nan_rows: Array
    nan_weights: Array
    points: BlockCounts | None = None

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return super().__sizeof__() + (0 if self.points is None else self.points.__sizeof__())

    @property
    def starts(self) -> Array:
        """The smallest code that each prefix may have, a uint64 array of shape (n_bins,)."""
        return self.prefixes << self.downs.astype(np.uint64)

    def at_shift(self, shift: int) -> BlockCounts:
        """The state with prefixes shortened to `shift`; a state without rows always has shift 0."""
        if shift == self.shift and not self.spec.longer and self.prefixes.size:
            return self
        return self.shortened(shift, _cuts(self.spec, shift, self.starts, self.downs))

    def shortened(self, shift: int, cuts: Array) -> BlockCounts:
        """The same with longer prefixes from some codes on; bins are in the order of their starts, some of them equal.

        Parameters
        ----------
        shift : of the shortest prefixes
        cuts : uint64 array of shape (spec.longer,), the codes from which prefixes are one bit longer each
        """
        if not self.prefixes.size:
            return replace(self, shift=0)
        starts = self.starts
        downs = shift - (starts[:, None] >= cuts).sum(axis=1)
        shorter = starts >> downs.astype(np.uint64)
        begins = np.append(True, shorter[1:] != shorter[:-1])
        first, places = np.flatnonzero(begins), np.cumsum(begins) - 1
        ends = np.stack(
            [np.minimum.reduceat(self.ends[:, 0], first), np.maximum.reduceat(self.ends[:, 1], first)], axis=1
        )
        table, sums, *_ = _tables(self.spec, first.size, self.table.dtype.type)
        for own, out in ((self.table, table), (self.sums, sums)):
            _add(own, places, out)
        bins = {"downs": downs[first], "prefixes": shorter[first], "ends": ends, "table": table, "sums": sums}
        return replace(self, shift=shift, **bins)

    def _arrays(self) -> tuple[Array, ...]:
        return self.downs, self.prefixes, self.ends, self.table

    def _without_points(self) -> BlockCounts:
        return replace(self, spec=replace(self.spec, pointed=False), points=None)

    def merge(self, other: BlockCounts) -> BlockCounts:
        """Counts of both inputs; those for points if both have them."""
        if isinstance(other, BlockCounts) and self.spec.pointed != other.spec.pointed:
            return self._without_points().merge(other._without_points())
        mergeable(self, other)
        order = np.argsort(np.concatenate([self.starts, other.starts]), kind="stable")
        both = zip(self._arrays(), other._arrays(), strict=True)
        downs, prefixes, ends, table = (np.concatenate(pair)[order] for pair in both)
        if int(self.table.sum()) + int(other.table.sum()) >= _NARROW:
            table = table.astype(np.int64)
        sums = np.concatenate([self.sums, other.sums])[order] if self.spec.weighted else self.sums
        nan = self.nan_rows + other.nan_rows, self.nan_weights + other.nan_weights
        shift = max(self.shift, other.shift)
        joined = BlockCounts(self.spec, shift, downs, prefixes, ends, table, sums, *nan)
        points = None
        if self.points is not None and other.points is not None:
            points = self.points.merge(other.points)
        shift += _shift_for(distinct_numbers(joined.starts >> np.uint64(shift)), self.spec.bins)
        cuts = _cuts(self.spec, shift, joined.starts, downs)
        return replace(joined.shortened(shift, cuts), points=points)

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

    @cached_property
    def block_rows(self) -> Array:
        """Rows of each block by label, without those of missing scores: an int64 array of shape (n_blocks, 2)."""
        rows: Array = self.table.sum(axis=0, dtype=np.int64)
        return rows

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
        shifts = [self.shift, *([] if self.points is None else [self.points.shift])]
        nan = {"nan_rows": self.nan_rows.ravel().tolist(), "nan_weights": self.nan_weights.ravel().tolist()}
        return {"spec": asdict(self.spec), "shift": shifts} | nan

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One row for each bin and block that has rows, ascending; then those for points."""
        for state in (self, *([self.points] if self.points is not None else [])):
            bins, blocks = np.nonzero(state.table[..., 0] | state.table[..., 1])  # counts are not negative
            table = state.table[bins, blocks].astype(np.int64)
            columns = [state.prefixes[bins], *state.ends[bins].T, blocks, *table.T]
            columns += [*state.sums[bins, blocks].T] if self.spec.weighted else []
            if self.spec.pointed:
                columns.append(np.full(bins.size, -1) if state is self else state.downs[bins])
            arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)


def _sample_codes(scores: Array) -> Array:
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
