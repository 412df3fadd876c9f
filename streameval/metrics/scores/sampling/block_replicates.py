"""Replicates of score metrics from block counts on a coarse grid.

Metrics see a bin of one score as a tie, and any other bin as pieces of equal composition, so that ties within a bin
count as halves and precision changes gradually through it. Where a metric depends on one threshold, bins around it are
cut into many more pieces, since replicates differ by a small part of a bin there. Pieces keep whole numbers: all counts
are multiplied by the number of pieces, which changes no metric but the number of points of ``precision@k`` and its
like, which shrinks with the rows.

The grid is checked. DeLong's standard error, each row a unit, must be that of the exact counts to 1 %; and each value
on the grid, and each difference of two, must be the exact one within a tenth of its standard error
(`streameval.metrics.estimates`). Most rows within a millionth of each other beside a broad tail fail the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.blocks.grid import scores_of
from streameval.metrics.estimates import Sizes
from streameval.metrics.finalize import compute
from streameval.metrics.scores.sampling.delong import DeLong
from streameval.states.protocol import Small, Totals
from streameval.states.scores.parts import ScorePart, known
from streameval.states.scores.units import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.states.scores.blocks import BlockCounts, BlockSpec
    from streameval.typing import Array

__all__ = ["BlockReplicates", "Pieces"]

_PIECES = 16  # of a bin
_FINE = 1 << 12  # of a bin near a threshold
_NEAR = 4  # bins on either side of a threshold
_LEAST_RATIO = 0.99  # of standard errors on the grid and exactly


@dataclass(frozen=True, eq=False)
class Pieces(Small):
    """Scores of some rows, as metrics see them: groups from the best score to the worst.

    Attributes
    ----------
    spec : the spec of the block counts
    counts : int64 array of shape (n_groups, 2), rows by label, multiplied
    weights : float64 array of shape (n_groups, 2), or (0, 2) without weights
    scores : float64 array of shape (n_groups,)
    nan_rows, nan_weights : arrays of shape (2,), missing scores, multiplied as well
    """

    spec: BlockSpec
    counts: Array
    weights: Array
    scores: Array
    nan_rows: Array
    nan_weights: Array

    def totals(self) -> Totals:
        """Rows and weights of both classes."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        neg, pos = self.counts.sum(axis=0).tolist()
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        weights = self.weights.sum(axis=0)
        unit = unit_of(float(weights.sum() + self.nan_weights.sum()))
        n, p = np.ldexp(weights, -unit).tolist()
        return Totals(neg, pos, n, p, weighted=True, unit=unit)

    def parts(self, shard: Any = None, budget: Any = None) -> Iterator[ScorePart]:
        """One: all groups that have rows."""
        there = (self.counts[:, 0] | self.counts[:, 1]) > 0
        counts, ends = self.counts[there], known(self.scores[there])
        none, total = Totals(0, 0, 0.0, 0.0, self.spec.weighted), self.totals()
        if not self.spec.weighted:
            n, p = np.ascontiguousarray(counts.T)
            yield ScorePart(n, p, none, total, ends)
        else:
            n, p = np.ldexp(np.ascontiguousarray(self.weights[there].T), -total.unit)
            yield ScorePart(n, p, none, total, ends, counts=counts.sum(axis=1))


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
    def _single(self) -> bool:
        return self.unit == "row" and not self.state.spec.weighted

    def merged(self, count: int) -> BlockReplicates:
        """The same rows in fewer blocks."""
        return replace(self, count=count)

    def without(self, block: int) -> Pieces:
        """The rows of all other blocks."""
        return self._pieces(slice(block, None, self.count))

    def total(self) -> Pieces:
        """The rows of all blocks."""
        return self._pieces(slice(0))

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """What the blocks hold of rows that score at or above a threshold; of its bin the share above it."""
        low, high = self._scores
        inside = np.divide(high - threshold, high - low, out=(low >= threshold).astype(float), where=high > low)
        found = np.tensordot(np.clip(inside, 0, 1), self.state.measure, (0, 0))
        return _kinds(self._by_block(found))

    def focused(self, value: Scalar, metric: Metric) -> BlockReplicates:
        """The same with fine pieces around the threshold of a metric."""
        points = getattr(metric, "points", None)
        rank = None if points is None else points(self.state.totals().rows)
        if rank is not None:
            below = np.cumsum(self.state.table.sum(axis=(1, 2))[::-1])[::-1]  # rows in each bin and those above it
            return replace(self, focus=int(np.count_nonzero(below >= rank)) - 1)
        if value.threshold is None:
            return self
        return replace(self, focus=int(np.count_nonzero(self._scores[0] <= value.threshold)) - 1)

    def certified(self, exact: Callable[[Sequence[Metric]], list[Scalar]]) -> str | None:
        """Why the grid does not do: its standard error of the ROC AUC, each row a unit, is not the exact one."""
        metric = DeLong(unbiased=False)
        [one], other = exact([metric]), compute(self.total(), metric)
        found = other.value * math.sqrt(self._cuts[-1])  # of rows that are multiplied
        if one.value * _LEAST_RATIO <= found <= one.value / _LEAST_RATIO or one.reason:
            return None
        return f"the grid of {self.state.spec.bins:,} bins is too coarse: raise resample_bins (--resample-bins 65536)"

    @cached_property
    def _scores(self) -> tuple[Array, Array]:
        """The lowest and the highest score of each bin, ascending."""
        low, high = (scores_of(self.state.ends[:, side]) for side in (0, 1))
        return low, high

    @cached_property
    def _cuts(self) -> tuple[Array, Array, Array, int]:
        """The bin of each piece, the multiplier of its counts, its score, and the multiplier of all."""
        low, high = self._scores
        most = _PIECES if self.focus is None else _FINE
        open_ = (low < high) & (self.state.table.sum(axis=(1, 2)) > 1)
        if self.focus is not None:
            open_ &= np.abs(np.arange(low.size) - self.focus) <= _NEAR
        pieces = np.where(open_, most, 1)
        bins = np.repeat(np.arange(low.size), pieces)[::-1]
        first = np.cumsum(pieces) - pieces
        place = (np.arange(bins.size) - np.repeat(first, pieces))[::-1]
        with np.errstate(invalid="ignore", over="ignore"):
            step = np.where(open_, (high - low) / most, 0.0)
            middle = low[bins] + (place + 0.5) * step[bins]
        scores = np.where(open_[bins] & np.isfinite(middle), middle, low[bins])
        return bins, (most // pieces)[bins], scores, most

    @cached_property
    def _whole(self) -> tuple[Array, Array, Array, Array]:
        """Rows and weights of all blocks, by bin and label, and missing ones by label."""
        state = self.state
        sums = (np.add.reduce(each, axis=-2) for each in (state.table, state.sums, state.nan_rows, state.nan_weights))
        return tuple(sums)

    def _pieces(self, left: slice) -> Pieces:
        """The rows of all blocks but some."""
        bins, times, scores, most = self._cuts
        state = self.state
        tables = state.table, state.sums, state.nan_rows, state.nan_weights
        rest = [whole - each[..., left, :].sum(axis=-2) for whole, each in zip(self._whole, tables, strict=True)]
        counts, weights = rest[0][bins] * times[:, None], np.zeros((0, 2))
        if state.spec.weighted:
            left_over = np.where(rest[0] > 0, np.maximum(rest[1], 0.0), 0.0)  # where none is left, not a rounding error
            weights = left_over[bins] * times[:, None]
        nan = rest[2] * most, np.maximum(rest[3], 0.0) * most
        return Pieces(state.spec, counts, weights, scores, *nan)

    def _by_block(self, found: Array) -> Array:
        """Sums over blocks that are taken as one, of an array of shape (n_blocks, 2)."""
        merged = np.zeros((self.count, 2))
        np.add.at(merged, np.arange(len(found)) % self.count, found)
        return merged


def _kinds(found: Array) -> dict[str, Array]:
    return {"rows": found.sum(axis=1), "positives": found[:, 1], "negatives": found[:, 0]}
