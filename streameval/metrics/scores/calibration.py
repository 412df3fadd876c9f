"""Calibration: by bins of probability, by the cumulative error, and by the isotonic fit.

With the distinct scores in ascending order, C_j = Σ_{k ≤ j} (p_k − (p_k + n_k)·s_k) / (P + N), and C_0 = 0.
``ecce_mad`` is max |C_j|, ``ecce_range`` is max C_j − min C_j. Rows of one score are added together: added one by one,
the result would depend on their order. ``calibration_bias`` is −C_last, the mean score minus the share of positives.

Parts are in descending order of scores, so their running sums are C_last − C. Sums of counts are integers in fixed
point; the partial of a part is its last, least and greatest running sum (Arrieta-Ibarra et al. 2022, *Metrics of
calibration for probabilistic predictions*, JMLR 23).

CORP: how much of the Brier score is miscalibration (Dimitriadis, Gneiting and Jordan 2021, PNAS 118). The isotonic fit
c of the labels on the scores is the best recalibration that keeps the order of the scores. It is computed by pooling
adjacent violators: its blocks are the edges of the convex hull of the cumulative sums, and hulls of key ranges can be
merged. With π the share of positives,

- ``corp.unc`` = π(1 − π), the Brier score of the constant π,
- ``corp.dsc`` = UNC − Brier(c), the decrease from the constant to the recalibrated scores,
- ``corp.mcb`` = Brier(s) − Brier(c), the decrease from the scores to the recalibrated scores,

so that Brier = MCB − DSC + UNC. The Brier score of a block of p positives and n negatives is p·n/(p + n). From a
histogram the fit is bounded: it is worst if each bin is one score, and best if the positives of each bin score higher
than its negatives.

Reliability: rows are binned by probability; each bin compares its mean probability with its share of positives.

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
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.calibration import drift_counts, pool_counts, pool_weights
from streameval.kernels.ranking import running
from streameval.metrics.protocol import Basis, Metric, Partials
from streameval.metrics.scores.scoring_rules import BrierScore, Probabilities, missing, present, spread
from streameval.metrics.scores.sums import BITS, dot, exact_sum, integers, is_counted, mean, sum_of, total
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

BINS = 10
_MOST_BINS = 100_000


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
        below = np.searchsorted(scores[::-1], self.edges[first:last:-1], side="right")
        cuts = np.concatenate(([0], scores.size - below, [scores.size]))
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
        cells = defaultdict(lambda: Cell(0, 0, 0 if is_counted(part.total) else 0.0), exact)
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


class _Sums(NamedTuple):
    """Running sums of one part: the rows above it, then the last, the least and the greatest sum.

    From a histogram with open bins also `ends`, the bounds of max |C|, of max C − min C and of −C_last, by name.
    """

    before: int
    last: Any
    least: Any
    most: Any
    ends: dict[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Drift(Basis["ScorePart", "_Sums | None"]):
    """Running sums of p − (p + n)·s, which the metrics of this file share."""

    def partial(self, part: ScorePart) -> _Sums | None:
        """Sums of one part; None if a score is outside [0, 1]."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        if is_counted(part.total):
            rows = drift_counts(part.n, part.p, probabilities.middle).tolist()
            last, least, most = ((high << 64 | low) - (high >> 63 << 128) for high, low in rows)
        else:
            s = probabilities.middle
            sums = np.append(0.0, running(part.p * (1.0 - s) - part.n * s, 0.0))
            last, least, most = float(sums[-1]), float(sums.min()), float(sums.max())
        certain = part.certain or not part.total.n + part.total.p  # without weight it is undefined
        return _Sums(part.before.rows, last, least, most, None if certain else _ends(part, probabilities))


def _ends(part: ScorePart, probabilities: Probabilities) -> dict[str, tuple[float, float]]:
    """Bounds from a histogram, whose bins are all in one part.

    At the edge of a bin, C is known except for the exact scores. Within an open bin, C may rise by the bin's positives,
    at the lowest score, or fall by its negatives, at the highest.
    """
    n, p, is_open = part.n[::-1].astype(float), part.p[::-1].astype(float), part.open[::-1]
    low, high = probabilities.low[::-1], probabilities.high[::-1]
    size = float(part.total.n + part.total.p)
    lows, highs = (np.append(0.0, running(p * (1.0 - s) - n * s, 0.0)) / size for s in (high, low))
    least = np.append(lows, (lows[:-1] - n * high / size)[is_open]).min()
    most = np.append(highs, (highs[:-1] + p * (1.0 - low) / size)[is_open]).max()
    sure = max(0.0, float(lows.max()), float(-highs.min()))
    reach = max(0.0, float(lows.max())) - min(0.0, float(highs.min()))
    bias = -float(highs[-1]), -float(lows[-1])
    return {"distance": (sure, float(max(-least, most))), "reach": (reach, float(most - least)), "bias": bias}


def _bound(name: str, value: float, partials: Sequence[_Sums], which: str, least: float = 0.0) -> Scalar:
    """A value with its bounds; certain without any."""
    bounds = next((part.ends for part in partials if part.ends), None)
    if bounds is None:
        return Scalar.certain(name, value)
    lower, upper = bounds[which]
    return spread(name, (lower, value, upper), least=least)


@dataclass(frozen=True)
class CumulativeError(Metric[Scalar, "ScorePart", "_Sums | None", "State"]):
    """Largest cumulative difference between labels and probabilities, or its range, in [0, 1]; 0 is best.

    Attributes
    ----------
    reach : whether the value is max C − min C instead of max |C|

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([1, 0, 1, 0], np.uint8), np.array([0.25, 0.25, 0.5, 0.75]))
    >>> [compute(state, CumulativeError(reach)).value for reach in (False, True)]
    [0.25, 0.25]
    """

    reach: bool = False

    @property
    def name(self) -> str:
        """``ecce_mad`` or ``ecce_range``."""
        return "ecce_range" if self.reach else "ecce_mad"

    def basis(self, part: ScorePart) -> Drift:
        """The running sums."""
        return Drift()

    def combine(self, partials: Sequence[_Sums | None], state: State) -> Scalar:
        """Shift each part's sums by those above it."""
        if isinstance(sums := present(partials, state), str):
            return Scalar.undefined(self.name, sums)
        size = state.totals().n + state.totals().p
        above, least, most = 0, 0, 0
        for part in sorted(sums, key=lambda part: part.before):
            least, most = min(least, above + part.least), max(most, above + part.most)
            above += part.last
        # above is now C_last, so C lies between above − most and above − least
        value = mean(most - least if self.reach else max(above - least, most - above), size)
        return _bound(self.name, min(1.0, value), sums, "reach" if self.reach else "distance")


@dataclass(frozen=True)
class MeanBias(Metric[Scalar, "ScorePart", "_Sums | None", "State"]):
    """Mean score minus the share of positives, in [−1, 1]; above 0, scores are too high on average.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([1, 0, 1, 0], np.uint8), np.array([0.25, 0.25, 0.5, 0.75]))
    >>> compute(state, MeanBias()).value
    -0.0625
    """

    name: str = "calibration_bias"

    def basis(self, part: ScorePart) -> Drift:
        """The running sums, of which only the last is used."""
        return Drift()

    def combine(self, partials: Sequence[_Sums | None], state: State) -> Scalar:
        """Divide by the rows."""
        if isinstance(sums := present(partials, state), str):
            return Scalar.undefined(self.name, sums)
        value = mean(total([-part.last for part in sums]), state.totals().n + state.totals().p)
        return _bound(self.name, value, sums, "bias", least=-1.0)


_FINE = 96  # bits of a block's Brier score in fixed point


class Fit(NamedTuple):
    """Blocks of an isotonic fit, in descending order of scores.

    Attributes
    ----------
    before : rows above the first block
    n, p : arrays of shape (n_blocks,), negatives and positives
    low, high : float64 arrays of shape (n_blocks,), the lowest and the highest score of each block
    brier : partial of `BrierScore`
    finest : the blocks (n, p) if the positives of each open bin score higher than its negatives; None without open bins
    """

    before: int
    n: Array
    p: Array
    low: Array
    high: Array
    brier: Any
    finest: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class CorpFit(Metric["Fit | None", "ScorePart", "Fit | None", "State"]):
    """The isotonic fit; a metric whose value is a `Fit`, None if a score is outside [0, 1]."""

    name: str = "corp"

    def partial(self, part: ScorePart) -> Fit | None:
        """Blocks of one part."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        n, p, low, high = _pool(part.n, part.p, probabilities.low, probabilities.high)
        finest = _pool(*_split(part))[:2] if not part.certain else None
        return Fit(part.before.rows, n, p, low, high, BrierScore().partial(part), finest)

    def combine(self, partials: Sequence[Fit | None], state: State) -> Fit | None:
        """The fit of all parts."""
        return None if not (partials and all(partials)) else _fit(partials)


def _pool(n: Array, p: Array, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """The blocks of the groups that have rows, and the lowest and the highest score of each."""
    some = n + p > 0
    if not some.all():
        n, p, low, high = n[some], p[some], low[some], high[some]
    blocks, hits, last = (pool_counts if integers(n) else pool_weights)(n, p)
    first = np.append(0, last[:-1] + 1)[: last.size]
    return blocks, hits, low[last], high[first]


def _split(part: ScorePart) -> tuple[Array, Array, Array, Array]:
    """Groups in which the positives of each open bin are above its negatives; the scores are not used."""
    shown = np.repeat(np.arange(part.n.size), 1 + part.open)
    again = np.append(False, shown[1:] == shown[:-1])[: shown.size]
    n = np.where(np.append(again[1:], False)[: shown.size], 0, part.n[shown])
    return n, np.where(again, 0, part.p[shown]), n, n


def join_fits(parts: Sequence[Fit]) -> Fit:
    """The fit of several parts: pool their blocks once more."""
    parts = sorted(parts, key=lambda part: part.before)
    if len(parts) == 1:
        return parts[0]
    n, p, low, high = (np.concatenate(side) for side in zip(*(part[1:5] for part in parts), strict=True))
    brier = tuple(total(side) for side in zip(*(part.brier for part in parts), strict=True))
    return Fit(parts[0].before, *_pool(n, p, low, high), brier)


def _fit(partials: Sequence[Fit | None]) -> Fit:
    """`join_fits`, computed once for all terms and the curve."""
    return Partials.of(partials).once("isotonic fit", partials, lambda: join_fits([fit for fit in partials if fit]))


def _fixed(n: Array, p: Array) -> float:
    """Σ p·n/(p + n) over blocks; for counts an integer in units of 2⁻⁹⁶ (`_FINE`)."""
    if integers(n):
        whole: int = sum((x * y << _FINE) // (x + y) for x, y in zip(n.tolist(), p.tolist(), strict=True))
        return whole
    return math.fsum(p * (n / (n + p)))


@dataclass(frozen=True)
class Corp(Metric[Scalar, "ScorePart", "Fit | None", "State"]):
    """A term of CORP's decomposition of the Brier score, in [0, 1].

    Attributes
    ----------
    term : ``mcb``, ``dsc`` or ``unc``

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.8, 0.3]))
    >>> [round(compute(state, Corp(term)).value, 4) for term in ("mcb", "dsc", "unc")]
    [0.0375, 0.25, 0.25]
    """

    term: str

    @property
    def name(self) -> str:
        """``corp.mcb``, ``corp.dsc`` or ``corp.unc``."""
        return f"corp.{self.term}"

    def basis(self, part: ScorePart) -> CorpFit:
        """The fit, which the terms share."""
        return CorpFit()

    def combine(self, partials: Sequence[Fit | None], state: State) -> Scalar:
        """One division."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        N, P = state.totals().n, state.totals().p
        if self.term == "unc":
            return Scalar.certain(self.name, float(N * P / (N + P) ** 2))
        fit = _fit(partials)
        tied = Partials.of(partials).once("isotonic Brier score", partials, lambda: _fixed(fit.n, fit.p))
        finest = tied if fit.finest is None else _fixed(*fit.finest)
        if self.term == "dsc":
            whole = (N * P << _FINE) // (N + P) if isinstance(tied, int) else P * (N / (N + P))
            ends = (whole - tied, whole - tied, whole - finest)
        else:
            low, value, high = (x << _FINE - BITS if isinstance(x, int) else x for x in fit.brier)
            ends = (low - tied, value - tied, high - finest)
        size = (N + P) << _FINE if isinstance(tied, int) else N + P
        lower, value, upper = (max(0.0, float(end / size)) for end in ends)
        return spread(self.name, (lower, value, upper))
