"""Replicates of score metrics from block counts on a coarse grid.

A bin that holds one score is a tie. Any other bin is divided into pieces of equal composition, so rows within it count
as halves against each other, and precision changes gradually through it. All counts are multiplied by the number of
pieces, which makes the counts of pieces integers and changes no metric. Replicates of a metric with a threshold differ
by a small part of a bin only. Its bins are therefore cut at the scores of the exact state
(`streameval.metrics.scores.cut_bins`).

The grid must pass three checks:

- DeLong's standard error, with each row as a unit, agrees with that of the exact counts to 1 %. For most scores the
  bins alone prove it (`BlockReplicates.sure`). Scores that mostly lie within a millionth of each other, with a broad
  tail, fail.
- That uses the rows of all blocks together. If campaigns of one score each share a bin, it passes, but replicates are
  wrong: standard errors of areas were off by up to 21 %. So the rows that a block has in a bin beyond its proportional
  share are moved as one tie (`BlockReplicates.tied`), those around a threshold by one standard deviation
  (`BlockReplicates.displaced`), and the change of the value is the uncertainty of the replicate, which decides
  (`Estimate.inexactness`). How far the value on the grid is off says nothing then: the more rows, the more standard
  errors a fixed distance is, while the spread of the replicates stays as exact as the bins.
- Where that is not measured, as for optima, each value on the grid, and each difference of two values, agrees with the
  exact one to a tenth of its standard error (`streameval.metrics.estimates`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.jit import read_only
from streameval.kernels.pieces import TERMS, WORDS, rank_blocks, tied_rows
from streameval.metrics.estimates import FINER
from streameval.metrics.finalize import compute
from streameval.metrics.protocol import Sizes, class_counts
from streameval.metrics.scores.cut_bins import (
    CutBins,
    GroupsNear,
    Rows,
    left_counts,
    left_weights,
    rows_of_bins,
    window,
)
from streameval.metrics.scores.ranking import GRID_CHECK
from streameval.metrics.scores.sums import BITS, RankSums
from streameval.states.scores.blocks import sum_blocks
from streameval.states.scores.types import round_thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.metrics.protocol import Exact, Metric
    from streameval.metrics.scores.sums import MeanOfRows
    from streameval.results import Scalar
    from streameval.states.scores.blocks import BlockCounts
    from streameval.typing import Array


_PIECES = 16  # of a bin
_HALF, _LOW = 32, (1 << 32) - 1  # bits of half a word, and its lower half
_HALVES = 2  # of a bin where only ties matter
_LEAST_RATIO = 0.99  # of standard errors on the grid and exactly
_ROUNDING = 1e-6  # relative, of standard errors, generously


class Cuts(NamedTuple):
    """How bins are cut into pieces.

    Attributes
    ----------
    pieces : int64 array of shape (n_bins,), of each bin
    most : what all counts are multiplied by, divisible by each number of pieces
    scores : float64 array of shape (n_pieces,), from the best score to the worst
    bins : int64 array of the same shape, the bin of each piece
    half : int64 array of the same shape, −1 in the upper half of a bin, 1 in the lower, 0 if the bin is not cut
    """

    pieces: Array
    most: int
    scores: Array
    bins: Array
    half: Array


@dataclass(frozen=True)
class BlockReplicates:
    """Gives the states without each block (`streameval.metrics.resampling.Resampled`).

    Attributes
    ----------
    state : the block counts
    unit : the sampling unit
    count : number of blocks; block b of the state is in block b modulo this
    exact : whether values come from the counts of every score
    single : whether each row is a unit of weight 1
    cut : bins cut around thresholds; None for metrics of the whole ranking
    moved : how far the rows of a block are displaced within bins, in standard deviations of random places of what
        belongs together. For metrics of the whole ranking, 1 or −1 is the half of the bin to which the rows beyond the
        block's share are moved
    pieces : number of pieces of a bin that holds several scores
    still : bins whose rows are not moved
    """

    state: BlockCounts
    unit: str
    count: int
    exact: bool = False
    single: bool = False
    cut: CutBins | None = None
    moved: float = 0.0
    pieces: int = _PIECES
    still: tuple[int, ...] = ()

    @cached_property
    def sizes(self) -> Sizes:
        """Measure of the rows of each block, with missing scores that count as halves."""
        state = self.state
        rows = (state.sums.sum(axis=0) if state.spec.weighted else state.block_rows) + state.halved_measure
        return Sizes(self.unit, class_counts(*sum_blocks(rows.astype(np.float64), self.count).T), single=self.single)

    @property
    def rows_by_block(self) -> Array:
        """Rows of each block by label, those without a score included: int64 array of shape (n_blocks, 2)."""
        found: Array = self.state.block_rows + self.state.nan_rows
        return found

    def merged(self, count: int) -> BlockReplicates:
        """The same rows in fewer blocks, counted for points where they are."""
        points = self.state.points
        if points is not None and points.spec.count == count:
            return replace(self, state=points, count=count)
        return replace(self, count=count)

    def without(self, block: int) -> Rows:
        """The rows of all other blocks."""
        if self.cut is None:
            return self._pieces(block)
        return self.cut.without(self.state, block, self.count, self.moved, self._missing(block))

    def total(self) -> Rows:
        """The rows of all blocks."""
        return self.without(self.state.spec.count)

    @property
    def ranked(self) -> bool:
        """Whether metrics of whole rankings take the sums of `rank`: rows have no weights, and no bin is cut."""
        return self.cut is None and not self.state.spec.weighted

    def rank(self, means: Sequence[MeanOfRows]) -> RankSums:
        """The sums over the rows without each block, and last over all rows, in one loop; `means` sum terms as well."""
        state, step, (pieces, most, *_) = self.state, self.count, self._cuts
        whole, still = state.whole[0], np.zeros(state.prefixes.size, np.bool_)
        still[list(self.still)] = True
        terms, outside = self._terms(means)
        left, missing = np.tile(whole.sum(axis=0), (step + 1, 1)), np.zeros((step + 1, 2), np.int64)
        beyond = np.full(step + 1, whole[outside].sum())
        if not self.moved:
            left[:-1] -= sum_blocks(state.block_rows, step)
            beyond[:-1] -= sum_blocks(state.table[outside].sum(axis=(0, 2), dtype=np.int64), step)
        if state.spec.nan == "half":
            missing += state.whole[2] * most
            missing[:-1] -= 0 if self.moved else sum_blocks(state.nan_rows, step) * most
        sums = np.zeros((step + 1, TERMS + WORDS * len(means)), np.uint64)
        table = read_only(np.ascontiguousarray(state.table))
        rank_blocks(whole, table, step, pieces, most, int(self.moved), still, terms, left, sums)
        return RankSums(left * most, missing, beyond == 0, sums)

    def _terms(self, means: Sequence[MeanOfRows]) -> tuple[Array, Array]:
        """The terms of `rank_blocks`, and the bins with scores outside [0, 1]."""
        pieces, _, scores, bins, half = self._cuts
        terms = np.zeros((len(means), pieces.size, 2, 2, 2), np.uint64)
        if not means:
            return terms, np.zeros(0, np.int64)
        places = 2 * bins + (half > 0)
        for own, metric in zip(terms, means, strict=True):
            for label in range(2):
                values = metric.terms(np.clip(scores, 0.0, 1.0), positive=bool(label))
                words = np.rint(np.ldexp(values, BITS)).astype(np.int64)
                for side, halves in enumerate((words >> _HALF, words & _LOW)):  # their sums are exact
                    own[:, label, :, side] = np.bincount(places, halves, 2 * pieces.size).reshape(-1, 2)
        return terms, np.unique(bins[(scores < 0.0) | (scores > 1.0)])

    def _missing(self, first: int, times: int = 1) -> tuple[Array, Array]:
        """Rows and weights of missing scores without a block, of all rows where ties move: arrays of shape (2,)."""
        state, every = self.state, self.cut is None and bool(self.moved)
        rows, weights = state.whole[2:]
        if rows.any() and not every:
            left = slice(first, None, self.count)
            rows, weights = rows - state.nan_rows[left].sum(axis=0), weights - state.nan_weights[left].sum(axis=0)
        return rows * times, np.maximum(weights, 0.0) * times

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """What the blocks hold of rows that score at or above a threshold; of its bin the share above it."""
        low, high = self.state.scores
        threshold = float(round_thresholds(threshold, self.state.spec.type))
        above = int(np.searchsorted(low, threshold))  # the first bin that is above as a whole
        found = self.state.measure[above:].sum(axis=0).astype(np.float64)
        if above and high[above - 1] >= threshold:
            share = (high[above - 1] - threshold) / (high[above - 1] - low[above - 1])
            found += share * self.state.measure[above - 1]
        return class_counts(*sum_blocks(found.astype(np.float64), self.count).T)

    def focused(self, values: Sequence[Scalar], metrics: Sequence[Metric], exact: Exact) -> BlockReplicates:
        """The same with bins cut around the thresholds of metrics, at the scores of the exact state."""
        state, bins = self.state, rows_of_bins(self.state)
        near = np.zeros(bins.size, bool)
        for value, metric in zip(values, metrics, strict=True):
            ranks = _ranks([metric], int(bins.sum()))
            if ranks:
                near |= window(bins, _bin_of(ranks[0], bins), state.spec.longer)
            elif value.threshold is not None:
                focus = int(np.count_nonzero(state.scores[0] <= value.threshold)) - 1
                near |= window(bins, focus, state.spec.longer)
        if not near.any():
            return self
        shortest = state.starts >> np.uint64(state.shift)
        whole = np.isin(shortest, shortest[near])  # spans of shortest prefixes do not overlap
        edges = np.flatnonzero(np.diff(whole, prepend=False, append=False)).reshape(-1, 2)
        spans = tuple((int(shortest[a]), int(shortest[b - 1])) for a, b in edges.tolist())
        thresholds = [value.threshold for value in values if value.threshold is not None]
        cuts = tuple(sorted(set(round_thresholds(thresholds, state.spec.type).tolist())))
        [groups] = exact([GroupsNear(state.shift, spans, cuts, finer=state.spec.longer > 0)])
        return replace(self, cut=CutBins.of(state, groups, near, self.count))

    def displaced(self) -> Sequence[BlockReplicates]:
        """The same with rows displaced by one standard deviation within their bins, in one direction and in the other.

        The scores of a block within a bin are unknown. The direction varies with block and label. Empty if the places
        of all rows are known.
        """
        if self.cut is None or not self.cut.open:
            return ()
        return [replace(self, moved=side) for side in (1.0, -1.0)]

    def tied(self, metrics: Sequence[Metric]) -> Sequence[BlockReplicates]:
        """All rows, with the rows that a block has in a bin beyond its share moved as one tie to a half of the bin.

        The half varies with bin, block and label. The second state moves positives to the other half, so that products
        of both labels cancel. Rows are moved within all rows: among the rows without the block, the tie would lack its
        own block. Bins at which metrics are truncated stay as they are: `displaced` covers what is unknown there, and
        the truncation would jump from half to half. Empty if every bin holds one score.
        """
        if not (self._cuts.pieces > 1).any():
            return ()
        rows = rows_of_bins(self.state)
        still = tuple(_bin_of(rank, rows) for rank in _ranks(metrics, int(rows.sum())))
        return [replace(self, cut=None, moved=side, pieces=_HALVES, still=still) for side in (1.0, -1.0)]

    @cached_property
    def sure(self) -> bool:
        """Whether the grid passes its first check wherever scores lie in their bins, without the exact counts.

        The standard error is a norm of the deviations of V10 and V01, so its error is at most the norm of their errors.
        In a bin of n negatives, the grid gives the positive at a share x of the bin's positives a V10 of x·n/N above
        that of the bin's lower end; the true one rises with x as well, from 0 to n/N. The mean square of the error is
        largest if all positives lie above all negatives, or below them: n²/(3·N²). With p positives in the bin, and the
        same for V01, the norm is at most the root of Σ p·n·(p + n)/3/(N·P)².
        """
        low, high = self.state.scores
        bins = self.state.whole_measure
        whole = bins.sum(axis=0)
        if not (self.exact and whole.all()):
            return False
        several = low < high
        if self.state.spec.type not in ("f4", "i4"):
            several |= (low < 0.5) | (high > 1)  # two of these numbers may share a code
        bins = bins[several]
        n, p = (bins / whole).T  # shares, whose products do not overflow
        doubt = math.sqrt(float((p * n * (p / whole[0] + n / whole[1])).sum()) / 3)
        return not doubt or doubt < (1 - _LEAST_RATIO) * (1 - _ROUNDING) * self._grid_error

    @cached_property
    def _grid_error(self) -> float:
        """DeLong's standard error of the ROC AUC on the grid; counts are multiplied there."""
        return float(compute(self.total(), GRID_CHECK).value) * math.sqrt(self._cuts.most)

    def certified(self, exact: Exact) -> str | None:
        """Why the grid is too coarse: its standard error of the ROC AUC, by single rows, differs from the exact one."""
        if self.sure:
            return None
        [one], found = exact([GRID_CHECK]), self._grid_error
        if one.value * _LEAST_RATIO <= found <= one.value / _LEAST_RATIO or one.reason:
            return None
        return f"the grid of {self.state.spec.bins:,} bins is too coarse: {FINER}"

    @cached_property
    def _cuts(self) -> Cuts:
        """How bins are cut into pieces."""
        low, high = self.state.scores
        open_ = (low < high) & (self.state.whole[0].sum(axis=1) > 1)
        pieces = np.where(open_, self.pieces, 1)
        bins, first = np.repeat(np.arange(low.size), pieces)[::-1], np.cumsum(pieces) - pieces
        place = (np.arange(bins.size) - np.repeat(first, pieces))[::-1]
        with np.errstate(invalid="ignore", over="ignore"):
            step = np.where(open_, (high - low) / pieces, 0.0)
            middle = low[bins] + (place + 0.5) * step[bins]
        half = np.where(2 * place < pieces[bins], 1, -1) * (pieces[bins] > 1)
        scores = np.where(open_[bins] & np.isfinite(middle), middle, low[bins])
        return Cuts(pieces, _PIECES, scores, bins, half)

    def _pieces(self, first: int) -> Rows:
        """The rows of all blocks except those merged with a block; all rows where ties move."""
        state, (pieces, most, scores, bins, half) = self.state, self._cuts
        (rows, weights, *_), measure, weighted = state.whole, state.whole_measure, state.spec.weighted
        moved = measure[:0]
        if self.moved:
            block = state.measure[:, first :: self.count].sum(axis=1)
            tied = tied_rows(measure, block, first, self.count, pieces, most, self.moved)
            moved = tied.astype(measure.dtype)
            moved[list(self.still)] = 0
            sums = rows.sum(axis=0).tolist()
        else:
            rows = left_counts(rows, state.table, first, self.count)
            sums = rows.sum(axis=0).tolist()
            if weighted:
                weights = left_weights(weights, state.sums, rows, first, self.count)

        there: Array = ((rows[:, 0] | rows[:, 1]) != 0)[bins]
        if not there.all():
            scores, bins, half = scores[there], bins[there], half[there]

        def cut(measure: Array, moved: Array) -> list[Array]:
            """Negatives and positives of each piece."""
            sides = [side.take(bins) for side in measure.T * (most // pieces)]
            if len(moved):
                sides = [side + half * to.take(bins) for side, to in zip(sides, moved.T, strict=True)]
            return sides

        n, p = cut(rows, np.zeros((0, 2), np.int64) if weighted else moved)
        groups, own = ((n + p,), cut(weights, moved)) if weighted else ((n, p), ())
        return Rows.of(state.spec, [side * most for side in sums], groups, own, scores, self._missing(first, most))


def _ranks(metrics: Sequence[Metric], rows: int) -> list[int]:
    """The numbers of best rows that metrics stop at; of those that do."""
    found = [metric.points(rows) for metric in metrics]
    return [rank for rank in found if rank is not None]


def _bin_of(rank: int, rows: Array) -> int:
    """The bin of the row of a rank, 1 the best, from the rows of each bin."""
    return int(np.count_nonzero(np.cumsum(rows[::-1]) >= rank)) - 1
