"""Reliability: rows are binned by probability; each bin compares its mean probability with its share of positives.

Bins of *equal width* have the edges ``np.linspace(0, 1, b + 1)`` and are closed on the right, the first on both sides,
as those of scikit-learn's `calibration_curve`; torchmetrics and netcal differ where a score equals an edge. Bins of
*equal count* keep rows of one score together: with c of the n rows below its score, a row is in bin ⌊b·c/n⌋, so that a
bin ends at the first score that reaches its share. With weights, too, the rows are counted.

- ECE: Σ over bins |Σp − Σ(p + n)·s| / (P + N), the mean distance of both, weighted by the bins' rows (Naeini et al.
  2015).
- MCE: the largest distance of any bin.

Both are biased near calibration: on finite data even perfect probabilities have a positive ECE.

From a histogram, the sums of a bin are bounded: each score lies between the ends of its histogram bin, and the rows of
a histogram bin that straddles an edge may belong to any of the bins that it touches.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.ranking import running
from streameval.metrics.protocol import Metric, Partials
from streameval.metrics.scores.calibration.scoring import Probabilities, present, spread
from streameval.metrics.scores.sums import BITS, counted, dot, exact_sum, sum_of, total
from streameval.results import Scalar
from streameval.states.scores.parts import ScorePart, leading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.states.protocol import State
    from streameval.typing import Array

BINS = 10
_MOST_BINS = 100_000
_FEW = 100  # for at most this many edges, one search for each is faster


class Cell(NamedTuple):
    """The contents of a bin.

    Attributes
    ----------
    n, p : negatives and positives; with weights, their weights
    score : Σ (p + n)·s, for counts an integer in units of 2⁻⁶²
    low, high : bounds of Σ p − (p + n)·s over the histogram's bins that lie inside this bin
    sure : measure of the rows of those bins
    loose : (p, n, lowest score, highest score) of each histogram bin that straddles an edge
    hits : measure of the positives among the rows that `sure` counts
    least, most : the lowest and the highest score
    """

    n: float
    p: float
    score: float
    low: float = 0.0
    high: float = 0.0
    sure: float = 0.0
    loose: tuple[tuple[float, float, float, float], ...] = ()
    hits: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    @property
    def size(self) -> float:
        """Measure of all rows."""
        return self.n + self.p

    @property
    def unit(self) -> float:
        """The number 1 in the unit of `score`."""
        return 1 << BITS if isinstance(self.score, int) else 1.0

    @property
    def gap(self) -> float:
        """|Σp − Σ(p + n)·s| in the unit of `score`."""
        return abs(self.p * self.unit - self.score)

    @property
    def sums(self) -> tuple[float, float]:
        """Bounds of |Σ p − (p + n)·s|, from a histogram."""
        low = self.low - sum(n * high for _, n, _, high in self.loose)
        high = self.high + sum(p * (1.0 - low) for p, _, low, _ in self.loose)
        return max(0.0, low, -high), max(-low, high, 0.0)

    @property
    def certain(self) -> bool:
        """Whether the contents are exact."""
        return self.low == self.high and not self.loose

    @property
    def doubt(self) -> float:
        """Measure of the rows that may lie in this bin or in a neighbouring one."""
        return sum(p + n for p, n, _, _ in self.loose)

    @property
    def shares(self) -> tuple[float, float]:
        """Bounds of the share of positives."""
        p, n = self.hits, self.sure - self.hits
        more_p, more_n = (sum(side) for side in list(zip(*self.loose, strict=True))[:2] or [(), ()])
        return _ratio(p, p + n + more_n, 1.0), _ratio(p + more_p, p + more_p + n, 0.0)

    def scores(self, floor: float, ceiling: float) -> tuple[float, float]:
        """Bounds of the mean score, if all scores lie between `floor` and `ceiling`."""
        low, high = self.hits - self.high, self.hits - self.low
        upper = _largest_mean(high, self.sure, [(min(top, ceiling), p + n) for p, n, _, top in self.loose])
        lower = _largest_mean(-low, self.sure, [(-max(low, floor), p + n) for p, n, low, _ in self.loose])
        return -lower, upper

    @property
    def means(self) -> tuple[float, float]:
        """Bounds of the distance between mean score and share of positives; the lower is 0 if the bin may be empty."""
        high = _largest_mean(self.high, self.sure, [(1.0 - low, p) for p, _, low, _ in self.loose])
        low = -_largest_mean(-self.low, self.sure, [(high, n) for _, n, _, high in self.loose])
        return max(0.0, low, -high) if self.sure else 0.0, max(-low, high, 0.0)


def _ratio(part: float, whole: float, empty: float) -> float:
    return part / whole if whole else empty


def _largest_mean(start: float, size: float, more: list[tuple[float, float]]) -> float:
    """The largest mean of given points, together with any of several others, each given as (value, measure)."""
    best = start / size if size else -1.0
    for value, measure in sorted(more, reverse=True):
        start, size = start + value * measure, size + measure
        best = max(best, start / size) if size else best
    return best


@dataclass(frozen=True)
class ReliabilityBins(Metric["dict[int, Cell]", "ScorePart", "dict[int, Cell] | None", "State"]):
    """Counts and sums of scores in bins; a metric whose value is a dict from bin number to `Cell`.

    Attributes
    ----------
    bins : number of bins
    equal_count : whether bins have about equal numbers of rows instead of equal widths

    Raises
    ------
    OptionError
        If `bins` is not a whole number from 1 to 100,000.
    """

    bins: int = BINS
    equal_count: bool = False
    name: str = "reliability"

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= _MOST_BINS or self.bins % 1:
            raise OptionError(f"ece@{self.bins:g} is not a number of bins; write a whole number from 1 to {_MOST_BINS}")

    @cached_property
    def edges(self) -> Array:
        """Edges of bins of equal width, as a float64 array of shape (bins + 1,), computed once for all parts."""
        return np.linspace(0.0, 1.0, int(self.bins) + 1)

    def _of_scores(self, scores: Array) -> Array:
        return np.asarray(np.searchsorted(self.edges[1:-1], np.asarray(scores)))

    def _stretches(self, scores: Array) -> Iterator[tuple[int, slice]]:
        """The bins of descending scores: the number of each, and the slice of its scores."""
        if not scores.size:
            return
        last, first = self._of_scores(np.array([scores[-1], scores[0]])).tolist()
        if first == last:
            yield first, slice(0, scores.size)
            return
        if first - last > _FEW:
            cuts = scores.size - np.searchsorted(scores[::-1], self.edges[first:last:-1], side="right")
        else:
            cuts = np.array([leading(scores, edge, above=True) for edge in self.edges[first:last:-1]], np.int64)
        cuts = np.concatenate(([0], cuts, [scores.size]))
        for i in np.flatnonzero(np.diff(cuts)).tolist():
            yield first - i, slice(int(cuts[i]), int(cuts[i + 1]))

    def _of_rows(self, below: Array, rows: int) -> Array:
        return np.asarray(np.minimum(below * int(self.bins) // max(rows, 1), int(self.bins) - 1))

    def partial(self, part: ScorePart) -> dict[int, Cell] | None:
        """Cells of one part; None if a score is outside [0, 1]."""
        found = Probabilities.of(part)
        if found is None:
            return None
        below = part.total.rows - running(part.rows, part.before.rows) if self.equal_count else np.empty(0)
        filled = _spans(self._of_rows(below, part.total.rows)) if self.equal_count else self._stretches(found.middle)
        exact = {i: _cell(part, found, g) for i, g in filled}
        return exact if part.exact else self._bound_cells(part, found, below, exact)

    def _bound_cells(
        self, part: ScorePart, found: Probabilities, below: Array, exact: dict[int, Cell]
    ) -> dict[int, Cell]:
        """The cells with the bounds that a histogram gives."""
        if self.equal_count:
            first = self._of_rows(below, part.total.rows)
            last = self._of_rows(below + np.maximum(part.rows - 1, 0) * part.open, part.total.rows)
        else:
            first, last = self._of_scores(found.low), self._of_scores(found.high)
        sure = first == last
        cells = defaultdict(lambda: Cell(0, 0, 0 if counted(part.total) else 0.0), exact)
        for i, g in _spans(np.where(sure, first, -1)):
            if i >= 0:
                n, p = part.n[g].astype(float), part.p[g].astype(float)
                ends = (exact_sum(p * (1.0 - s[g]) - n * s[g]) for s in (found.high, found.low))
                low, high = (x + y for x, y in zip((cells[i].low, cells[i].high), ends, strict=True))
                inside, hits = cells[i].sure + exact_sum(n + p), cells[i].hits + exact_sum(p)
                cells[i] = cells[i]._replace(low=low, high=high, sure=inside, hits=hits)
        for k in np.flatnonzero(~sure).tolist():
            loose = float(part.p[k]), float(part.n[k]), float(found.low[k]), float(found.high[k])
            for i in range(int(first[k]), int(last[k]) + 1):
                cells[i] = cells[i]._replace(loose=(*cells[i].loose, loose))
        return dict(cells)

    def combine(self, partials: Sequence[dict[int, Cell] | None], state: State) -> dict[int, Cell]:
        """The cells of all parts by bin number; empty if a score is outside [0, 1]."""
        return {} if None in partials else cells(cast("Sequence[dict[int, Cell]]", partials))


def _cell(part: ScorePart, found: Probabilities, groups: slice) -> Cell:
    """The cell of consecutive groups."""
    ends = float(found.low[groups][-1]), float(found.high[groups][0])
    score = dot(part.n[groups] + part.p[groups], found.middle[groups])
    return Cell(sum_of(part.n[groups]), sum_of(part.p[groups]), score, least=ends[0], most=ends[1])


def _spans(at: Array) -> Iterator[tuple[int, slice]]:
    """Runs of equal numbers: the number of each run, and its slice."""
    cuts = [0, *(np.flatnonzero(np.diff(at)) + 1).tolist(), at.size] if at.size else [0]
    for start, stop in itertools.pairwise(cuts):
        yield int(at[start]), slice(start, stop)


def cells(partials: Sequence[dict[int, Cell]]) -> dict[int, Cell]:
    """The sums of the cells of several parts, computed once for all metrics with equal bins."""

    def add() -> dict[int, Cell]:
        gathered: dict[int, list[Cell]] = defaultdict(list)
        for part in partials:
            for i, cell in part.items():
                gathered[i].append(cell)
        return {i: _add_cells(several) for i, several in sorted(gathered.items())}

    return Partials.of(partials).once("cells", partials, add)


def _add_cells(several: Sequence[Cell]) -> Cell:
    """The sum of the cells of one bin in several parts, which are exact: a histogram has one part."""
    if len(several) == 1:
        return several[0]
    n, p, score = (total([cell[side] for cell in several]) for side in range(3))
    least, most = min(cell.least for cell in several), max(cell.most for cell in several)
    return Cell(n, p, score, least=least, most=most)


@dataclass(frozen=True)
class CalibrationError(Metric[Scalar, "ScorePart", "dict[int, Cell] | None", "State"]):
    """Distance between mean score and share of positives, in [0, 1]: the mean over the bins (ECE) or the largest (MCE).

    Attributes
    ----------
    bins, equal_count : see `ReliabilityBins`
    largest : whether the value is the largest distance instead of the mean
    name : the name in results

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.8, 0.35]))
    >>> [round(compute(state, CalibrationError(2, largest=flag)).value, 4) for flag in (False, True)]
    [0.1875, 0.225]
    """

    bins: int = BINS
    equal_count: bool = False
    largest: bool = False
    name: str = "ece"

    def __post_init__(self) -> None:
        ReliabilityBins(self.bins, self.equal_count)

    def basis(self, part: ScorePart) -> ReliabilityBins:
        """The metric of the bins, which metrics with equal bins share."""
        return ReliabilityBins(self.bins, self.equal_count)

    def combine(self, partials: Sequence[dict[int, Cell] | None], state: State) -> Scalar:
        """The mean or the largest distance."""
        if isinstance(found := present(partials, state), str):
            return Scalar.undefined(self.name, found)
        every = [cell for cell in cells(found).values() if cell.size or cell.loose]
        size = state.totals().n + state.totals().p
        filled = [cell for cell in every if cell.size]
        if self.largest:
            value = max(float(cell.gap / (cell.size * cell.unit)) for cell in filled)
        else:
            value = float(total([cell.gap for cell in filled]) / (size * filled[0].unit))
        if all(cell.certain for cell in every):
            return Scalar.certain(self.name, min(1.0, value))
        ends = [cell.means if self.largest else cell.sums for cell in every]
        lower, upper = (max(side) if self.largest else sum(side) / size for side in zip(*ends, strict=True))
        return spread(self.name, (lower, value, upper))
