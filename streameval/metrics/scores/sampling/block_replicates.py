"""Replicates of score metrics from block counts on a coarse grid.

Metrics see a bin of one score as a tie, and any other bin as pieces of equal composition, so that ties within a bin
count as halves and precision changes gradually through it. Where a metric depends on one threshold, bins around it are
cut into many more pieces, since replicates differ by a small part of a bin there. Pieces keep whole numbers: all counts
are multiplied by the number of pieces, which changes no metric but the number of points of ``precision@k`` and its
like, which shrinks with the rows.

The grid is checked. DeLong's standard error, with each row as a unit, must agree with that of the exact counts to 1 %.
Each value on the grid, and each difference of two, must agree with the exact one to a tenth of its standard error
(`streameval.metrics.estimates`). Scores of which most are within a millionth of each other, with a broad tail, fail the
first check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.blocks.pieces import cut_counts, left_counts, left_weights
from streameval.metrics.estimates import Sizes
from streameval.metrics.finalize import compute
from streameval.metrics.scores.sampling.delong import GRID_CHECK
from streameval.states.protocol import Small, Totals
from streameval.states.scores.parts import ScorePart, known
from streameval.states.scores.units import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.states.scores.blocks import BlockCounts, BlockSpec
    from streameval.states.scores.parts import Ends
    from streameval.typing import Array

__all__ = ["BlockReplicates", "Pieces"]

_PIECES = 16  # of a bin
_FINE = 1 << 12  # of a bin near a threshold
_NEAR = 4  # bins on either side of a threshold
_LEAST_RATIO = 0.99  # of standard errors on the grid and exactly


class Cuts(NamedTuple):
    """How bins are cut into pieces.

    Attributes
    ----------
    pieces : int64 array of shape (n_bins,), of each bin
    most : what all counts are multiplied by, divisible by each number of pieces
    scores : float64 array of shape (n_pieces,), from the best score to the worst
    """

    pieces: Array
    most: int
    scores: Array


@dataclass(frozen=True, eq=False)
class Pieces(Small):
    """Scores of some rows, as metrics see them: groups from the best score to the worst.

    Attributes
    ----------
    spec : the spec of the block counts
    cuts : how bins are cut
    counts : int64 array of shape (n_bins, 2), rows by label
    sums : negatives and positives of all bins
    weights : float64 array of shape (n_bins, 2), or (0, 2) without weights
    nan_rows, nan_weights : arrays of shape (2,), missing scores, multiplied as counts are in pieces
    """

    spec: BlockSpec
    cuts: Cuts
    counts: Array
    sums: tuple[int, int]
    weights: Array
    nan_rows: Array
    nan_weights: Array

    def totals(self) -> Totals:
        """Rows and weights of both classes."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        neg, pos = (side * self.cuts.most for side in self.sums)
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        weights = self.weights.sum(axis=0) * self.cuts.most
        unit = unit_of(float(weights.sum() + self.nan_weights.sum()))
        n, p = np.ldexp(weights, -unit).tolist()
        return Totals(neg, pos, n, p, weighted=True, unit=unit)

    def parts(self, shard: Any = None, budget: Any = None) -> Iterator[ScorePart]:
        """One: all groups that have rows."""
        none, total = Totals(0, 0, 0.0, 0.0, self.spec.weighted), self.totals()
        n, p = self._cut(self.counts)
        if not self.spec.weighted:
            yield ScorePart(n, p, none, total, self._ends)
            return
        neg, pos = (np.ldexp(side, -total.unit) for side in self._cut(self.weights))
        yield ScorePart(neg, pos, none, total, self._ends, counts=n + p)

    def _cut(self, measure: Array) -> tuple[Array, Array]:
        """Negatives and positives of each group, in a measure of the bins."""
        n, p = np.empty((2, self.cuts.scores.size), measure.dtype)
        size = cut_counts(self.counts, measure, self.cuts.pieces, self.cuts.most, n, p)
        return n[:size], p[:size]

    def _ends(self, groups: Any) -> Ends:
        return known(self._scores)(groups)

    @cached_property
    def _scores(self) -> Array:
        """The score of each group."""
        there: Array = (self.counts[:, 0] | self.counts[:, 1]) > 0
        scores = self.cuts.scores
        return scores if there.all() else scores[np.repeat(there[::-1], self.cuts.pieces[::-1])]


@dataclass(frozen=True)
class BlockReplicates:
    """Gives the states without each block (`streameval.metrics.resampling.Resampled`).

    Attributes
    ----------
    state : the block counts
    unit : what is drawn together
    count : number of blocks; those of the state are taken modulo this
    focus : the bin of a threshold, around which bins are cut finely; None for metrics of the whole ranking
    """

    state: BlockCounts
    unit: str
    count: int
    focus: int | None = None

    @cached_property
    def sizes(self) -> Sizes:
        """Measure of the rows of each block."""
        return Sizes(self.unit, _kinds(self._by_block(self.state.measure.sum(axis=0))), single=self._single)

    @property
    def rows_by_block(self) -> Array:
        """Rows of each block by label, those without a score included: int64 array of shape (n_blocks, 2)."""
        found: Array = self.state.table.sum(axis=0) + self.state.nan_rows
        return found

    @property
    def _single(self) -> bool:
        return self.unit == "row" and not self.state.spec.weighted

    def merged(self, count: int) -> BlockReplicates:
        """The same rows in fewer blocks."""
        return replace(self, count=count)

    def without(self, block: int) -> Pieces:
        """The rows of all other blocks."""
        return self._pieces(block)

    def total(self) -> Pieces:
        """The rows of all blocks."""
        return self._pieces(self.state.spec.count)

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """What the blocks hold of rows that score at or above a threshold; of its bin the share above it."""
        low, high = self.state.scores
        above = int(np.searchsorted(low, threshold))  # the first bin that is above as a whole
        found = self.state.measure[above:].sum(axis=0).astype(np.float64)
        if above and high[above - 1] >= threshold:
            share = (high[above - 1] - threshold) / (high[above - 1] - low[above - 1])
            found += share * self.state.measure[above - 1]
        return _kinds(self._by_block(found))

    def focused(self, value: Scalar, metric: Metric) -> BlockReplicates:
        """The same with fine pieces around the threshold of a metric."""
        points = getattr(metric, "points", None)
        rank = None if points is None else points(self.state.totals().rows)
        if rank is not None:
            below = np.cumsum(self.state.whole[0].sum(axis=1)[::-1])[::-1]  # rows in each bin and those above it
            return replace(self, focus=int(np.count_nonzero(below >= rank)) - 1)
        if value.threshold is None:
            return self
        return replace(self, focus=int(np.count_nonzero(self.state.scores[0] <= value.threshold)) - 1)

    def certified(self, exact: Callable[[Sequence[Metric]], list[Scalar]]) -> str | None:
        """Why the grid does not do: its standard error of the ROC AUC, each row a unit, is not the exact one."""
        [one], other = exact([GRID_CHECK]), compute(self.total(), GRID_CHECK)
        found = other.value * math.sqrt(self._cuts.most)  # of rows that are multiplied
        if one.value * _LEAST_RATIO <= found <= one.value / _LEAST_RATIO or one.reason:
            return None
        return f"the grid of {self.state.spec.bins:,} bins is too coarse: raise resample_bins (--resample-bins 65536)"

    @cached_property
    def _cuts(self) -> Cuts:
        """How bins are cut into pieces."""
        low, high = self.state.scores
        most = _PIECES if self.focus is None else _FINE
        open_ = (low < high) & (self.state.whole[0].sum(axis=1) > 1)
        if self.focus is not None:
            open_ &= np.abs(np.arange(low.size) - self.focus) <= _NEAR
        pieces = np.where(open_, most, 1)
        bins = np.repeat(np.arange(low.size), pieces)[::-1]
        first = np.cumsum(pieces) - pieces
        place = (np.arange(bins.size) - np.repeat(first, pieces))[::-1]
        with np.errstate(invalid="ignore", over="ignore"):
            step = np.where(open_, (high - low) / most, 0.0)
            middle = low[bins] + (place + 0.5) * step[bins]
        return Cuts(pieces, most, np.where(open_[bins] & np.isfinite(middle), middle, low[bins]))

    def _pieces(self, first: int) -> Pieces:
        """The rows of all blocks but those that are taken as one with a block."""
        state, cuts, left = self.state, self._cuts, slice(first, None, self.count)
        rows, weights, nan_rows, nan_weights = state.whole
        counts, *sums = left_counts(rows, state.table, first, self.count)
        if state.spec.weighted:
            weights = left_weights(weights, state.sums, counts, first, self.count)
        if nan_rows.any():
            nan_rows = (nan_rows - state.nan_rows[left].sum(axis=0)) * cuts.most
            nan_weights = np.maximum(nan_weights - state.nan_weights[left].sum(axis=0), 0.0) * cuts.most
        return Pieces(state.spec, cuts, counts, (sums[0], sums[1]), weights, nan_rows, nan_weights)

    def _by_block(self, found: Array) -> Array:
        """Sums over blocks that are taken as one, of an array of shape (n_blocks, 2)."""
        merged = np.zeros((self.count, 2))
        np.add.at(merged, np.arange(len(found)) % self.count, found)
        return merged


def _kinds(found: Array) -> dict[str, Array]:
    return {"rows": found.sum(axis=1), "positives": found[:, 1], "negatives": found[:, 0]}
