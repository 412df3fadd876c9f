"""Gain curves: the share of positives that a team finds at the top of the ranking; also from a sample of the rows.

The gain curve shows, for every score, the share of points at or above it (x) and of positives among them (y). Groups of
equal score in descending order have p positives and n negatives, u = p + n, with T positives and F negatives before
them, of P and N in all; with weights all of these are weights.

- Truncation keeps groups until their *count of points* reaches k, or ⌈q·count⌉ for a share q, also with weights; the
  group that reaches it is kept whole. With U the weight kept: A = Σ u·(T + p/2) is the area under the curve kept,
  R = U²·P / 2(P + N) that of a random order, M = P²/2 + (U − P)·P if P ≤ U else U²/2 that of a perfect one.
- ``agc`` = (A − R)/(M − R), 1 for a perfect order, 0 for a random one, 2·AUC − 1 where nothing is cut off.
- ``agc_ratio`` = A/M.

Counts are summed in integers and divided once. For weights the difference A − R is taken as N·Σ u·(T + p/2) minus
P·Σ u·(F + n/2), over N + P, and M − R is a sum of positive terms, so that neither loses digits where one class is rare.

From a histogram the value comes with its bounds. If the truncation cuts an open bin, the bin may keep any c of its
points, at least those needed, in any order. For each c the area is least with as few positives as possible, placed
last, and greatest with as many as possible, placed first. The interval takes the extremes over all c. They lie where
the quotient of two parabolas turns, and are found in exact integers; for weights, in floating point, as a bin that is
cut may keep any part of its weight.

The approximate gain area: from a sample of the rows, sorted into quantile bins.

A sample of the scores (`streameval.states.scores.digests`) is cut at Q quantiles of its top part. In bins of p
positives and n negatives, of P and N in the sample, two things are unknown, and both are reported:

- *The order within a bin.* The value takes scores of a bin as tied. Untruncated, the sample's own area is off by at
  most Σ p·n / PN, about 0.004 with 200 bins, whatever the number of rows: this is `bound`. Truncated, it also holds for
  every way the bin at the cut may have been cut (`streameval.metrics.scores.gain`). With two passes the counts
  of the bins are exact, and so is the bound. With one pass the counts are interpolated from digests, and the bound is
  an estimate. With two passes a bin of one score adds nothing to the bound.
- *The sample.* `stderr` is the standard error of a delete-a-group jackknife (Kott, The Delete-a-Group Jackknife, 2001):
  the area is computed again without each of m = 32 groups of rows (fewer, if fewer have rows), and the squared
  deviations from their mean are summed, times (m − 1)/m; a sample that is a share f of the rows has √(1 − f) of its
  root, so that all rows have none. To it is added, in quadrature, what one row of the other class would change: a
  truncated part without a negative in the sample may have some outside it. `stderr` is itself uncertain by one part in
  eight, and by more with few positives.

So the area of all rows likely lies within value ± (bound + 4·stderr). The probability is lower than that of four
standard errors of a normal distribution, because the standard error is rough where few points are kept. On normal
scores, 1 to 30 % positive, the area lay outside in 9 of 5,400 samples that kept 100 points, in the worst case in 1 of
200, and in 1 of 3,000 samples that kept 1,000. `lower` and `upper` of a sample are NaN, and the value is not marked
exact. They are bounds only if all rows are drawn and counted between the edges. Then `stderr` is 0. By default such a
run makes the second pass that this needs.

Sampling intervals (``ci``) describe how the area varies over other units, such as those of the next night, and so
include a second error. `agc_approx` estimates `agc` of all rows, so it varies with the units as `agc` does, and uses
its replicates: an interval needs the counts of all scores, which ``ci`` adds to the run. The draw of rows is
independent of the units, so the variances of both errors add (`streameval.metrics.estimates.Estimate.sampled`). `bound`
and `stderr` describe the draw alone.

Weights: rows are drawn uniformly and carry their weights. Edges, truncation and the draw count rows; areas, bounds and
standard errors are of the weights. A bin at the cut may keep any part of its weight
(`streameval.metrics.scores.gain`).

Row groups instead of rows: less is read, but rows of one row group are often alike (one hour, one customer, sorted by
score). Then row groups are the unit of sampling. The groups of the jackknife are made of row groups, so the standard
error includes this, as far as it can be estimated from few of them. With few row groups the value, a ratio, has a bias
of the order of the inverse of their number. Draw rows where the order of the file is related to the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_NEGATIVES, NO_POSITIVES, NO_WEIGHT, WEIGHTED, Basis, Metric
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.sums import OfRankings, gain_sums, is_counted, outward, rounding, sum_of, total
from streameval.results import Scalar
from streameval.states.protocol import Totals
from streameval.states.scores.parts import ScorePart, known
from streameval.states.scores.types import halved
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.metrics.scores.sums import Rankings
    from streameval.states.protocol import State
    from streameval.states.scores.digests import SampledDigests
    from streameval.states.scores.draws import GroupedBins, SampledBins
    from streameval.typing import Array

    Sums = tuple[float, float, float]
    SampledState = SampledDigests | SampledBins

_LEAST_UNIT = -480  # squares of smaller weights begin to lose digits
_ENDLESS = 1e300  # an integer above may exceed the floats
_LEAST = 1e-9  # part of a cut bin's weight that is kept at least


def decimal(truncate: Any) -> Any:
    """A NumPy float as the Python float of its shortest decimal form; any other value unchanged.

    Examples
    --------
    >>> decimal(np.float32(0.1)), float(np.float32(0.1))
    (0.1, 0.10000000149011612)
    """
    return float(str(truncate)) if isinstance(truncate, np.floating) else truncate


def kept_points(truncate: float, rows: int) -> int:
    """Points that a truncation asks for, of `rows`.

    Parameters
    ----------
    truncate : a share of the points in (0, 1], read as the decimal it is written as, or a number of points above 1

    Raises
    ------
    OptionError
        If it is neither.

    Examples
    --------
    >>> kept_points(0.07, 100), kept_points(0.01, 45), kept_points(200, 45), kept_points(1, 45)
    (7, 1, 45, 45)
    """
    given = decimal(truncate)
    share = float(given) if isinstance(given, int | float | np.number) and given < _ENDLESS else math.nan
    if not (0 < share <= 1 or (1 < share < math.inf and share == math.floor(share))):
        raise OptionError(f"truncate={truncate!r} is neither a share in (0, 1] nor a whole number of points above 1")
    return min(rows, int(share)) if share > 1 else math.ceil(Fraction(str(share)) * rows)


def kept_groups(part: ScorePart, points: int) -> int:
    """The number of groups of a part that are kept: those that begin before `points` points are reached."""
    room = points - part.before.rows
    if room <= 0 or points >= part.total.rows:
        return 0 if room <= 0 else part.n.size
    return min(int(np.searchsorted(np.cumsum(part.rows), room)) + 1, part.n.size)


def cut_at(sizes: Array, points: float) -> int:
    """The bin that reaches the points."""
    return min(int(np.searchsorted(np.cumsum(sizes), points)), sizes.size - 1)


class Cut(NamedTuple):
    """The open bin that a truncation cuts: its negatives and positives, and what is kept of both: expected, at least.

    Of counts, the points needed are kept at least.
    """

    n: Any
    p: Any
    share: Any
    least: Any


class Kept(NamedTuple):
    """Sums over the groups kept: Σ u·(2T + p), Σ u·(2F + n), Σ u, the pairs in doubt, Σ p; and the bin that is cut."""

    area: float
    below: float
    weight: float
    doubt: float = 0
    true: float = 0
    cut: Cut | None = None

    @classmethod
    def all(cls, partials: Sequence[Kept]) -> Kept:
        """Sums of all parts; a state of bins has one."""
        if len(partials) == 1:
            return partials[0]
        return cls(*(total(column) for column in list(zip(*partials, strict=True))[:5])) if partials else cls(0, 0, 0)

    @classmethod
    def of_pairs(cls, partials: Sequence[tuple[int, int]], N: int, P: int) -> Kept:
        """Sums under the whole curve from the partials of `RocAuc`."""
        won, doubt = (total(column) for column in zip(*partials, strict=True)) if partials else (0, 0)
        area = P * P + won
        return cls(area, (N + P) ** 2 - area, N + P, doubt)

    def shifted(self, shift: float) -> Sums:
        """The sums that decide the value, with some pairs in the other order."""
        return self.area + shift, self.below - shift, self.weight


@dataclass(frozen=True)
class GainSums(Basis["ScorePart", "Kept | None"]):
    """Sums under the truncated gain curve, which ``agc`` and ``agc_ratio`` share.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.9, 0.9]))
    >>> [GainSums().partial(part)[:3] for part in state.parts()]
    [(8, 1, 3)]
    """

    truncate: float = 1

    def partial(self, part: ScorePart) -> Kept | None:
        """Sums over the groups kept; None where a histogram cannot tell what is kept."""
        points = kept_points(self.truncate, part.total.rows)
        keep = kept_groups(part, points)
        if part.exact or points >= part.total.rows:
            return Kept(*gain_sums(part, keep))
        if not is_counted(part.total):
            return None
        if not part.open[keep - 1]:
            return Kept(*gain_sums(part, keep))
        return cut_sums(part, keep - 1, points)


def cut_sums(part: ScorePart, at: int, points: int) -> Kept:
    """Sums over the groups above open bin `at`, which is cut."""
    sums = gain_sums(part, at)
    n, p, need = part.n[at].item(), part.p[at].item(), points - int(part.rows[:at].sum())
    share = need if is_counted(part.total) else need / int(part.rows[at]) * (n + p)
    least = need if is_counted(part.total) else 0.0 if sums[2] else _LEAST * (n + p)
    return Kept(*sums, sum_of(part.p[:at]), Cut(n, p, share, least))


def quotient(sums: Sums, N: float, P: float, *, ratio: bool, unit: int = 0) -> tuple[float, float]:
    """Numerator and denominator of ``agc``, or of ``agc_ratio``, each times 2, and those of ``agc`` times N + P too.

    Both are divided by 4**unit: products of three small weights may leave float64.

    Parameters
    ----------
    sums : Σ u·(2T + p), Σ u·(2F + n) and Σ u over the groups kept
    N, P : all negatives and positives
    ratio : whether the quotient is A/M instead of (A − R)/(M − R)
    unit : see `kept_unit`
    """
    area, below, kept = sums
    part, left, full = P, max(N + P - kept, 0), kept >= P
    if unit:
        area, below = (math.ldexp(each, -2 * unit) for each in (area, below))
        kept, part = (math.ldexp(each, -unit) for each in (kept, part))
    if ratio:
        return area, part * (2 * kept - part) if full else kept * kept
    return area * N - below * P, part * (N * kept + left * (kept - part)) if full else kept * kept * N


def kept_unit(kept: int | float) -> int | None:
    """The unit of `quotient` for the weight kept; None if its square has lost digits, or if it is 0.

    Examples
    --------
    >>> kept_unit(3), kept_unit(0.25), kept_unit(1e-200)
    (0, -1, None)
    """
    if not isinstance(kept, float):
        return 0
    unit = math.frexp(kept)[1]
    return unit if kept and unit > _LEAST_UNIT else None


def cut_bounds(kept: Kept, N: float, P: float, *, ratio: bool) -> tuple[float, float, float]:
    """Value, lower and upper end if a bin is cut; the value keeps a proportional part of it.

    Parameters
    ----------
    kept : the bin, and sums over the groups above it
    N, P : all negatives and positives
    ratio : whether A/M is bounded instead of (A − R)/(M − R)
    """
    above, doubt = kept.weight, kept.doubt
    n, p, share, first = kept.cut or (0, 0, 0, 0)

    def value(c: float, gained: float | Fraction) -> tuple[float, float]:
        twice = kept.area + 2 * kept.true * c + gained
        return quotient((twice, (above + c) ** 2 - twice, above + c), N, P, ratio=ratio)

    def least(c: float) -> tuple[float, float]:
        return value(c, max(0, c - n) ** 2 - doubt)

    def most(c: float) -> tuple[float, float]:
        return value(c, min(p, c) * (2 * c - min(p, c)) + doubt)

    gained = share * share * p
    proportional = value(share, Fraction(gained, n + p) if isinstance(gained, int) else gained / (n + p))
    lower, upper = (
        choose(divide(*f(c)) for c in _candidates(f, first, n + p, (turn, P - above)))
        for choose, f, turn in ((min, least, n), (max, most, p))
    )
    return divide(*proportional), lower, upper


def divide(top: float, bottom: float) -> float:
    """A quotient; NaN where weights vanish."""
    return float(top / bottom) if bottom > 0 else math.nan


def _candidates(f: Callable[[Any], tuple[Any, Any]], first: Any, last: Any, breaks: tuple[Any, ...]) -> Iterator[Any]:
    """Where a quotient may be extreme from `first` to `last`: at the ends of its pieces, and where a piece turns.

    Of integers, those around a turn.
    """
    bounds, whole = sorted({first, last, *(b for b in breaks if first < b < last)}), isinstance(last, int)
    yield from bounds
    for low, high in pairwise(bounds):
        if whole and high - low < 4:
            yield from range(low, high)
            continue
        step = 1 if whole else (high - low) / 2
        (g0, g1, g2), (h0, h1, h2) = (
            (2 * a, 4 * b - 3 * a - c, a - 2 * b + c)  # of 1, t, t²: the parabola through the values at 0, 1 and 2
            for a, b, c in zip(*(f(low + t * step) for t in range(3)), strict=True)
        )
        turns = (_whole_roots if whole else _roots)(g2 * h1 - g1 * h2, g2 * h0 - g0 * h2, g1 * h0 - g0 * h1)
        for turn in turns:
            yield from (min(max(low + (turn + more) * step, low), high) for more in ((-1, 0, 1, 2) if whole else (0,)))


def _whole_roots(a: int, b: int, c: int) -> list[int]:
    """Roots of a·t² + 2b·t + c, rounded to a neighbouring integer."""
    if not a:
        return [-c // (2 * b)] if b else []
    inside = b * b - a * c
    return [] if inside < 0 else [(-b + sign * math.isqrt(inside)) // a for sign in (-1, 1)]


def _roots(a: float, b: float, c: float) -> list[float]:
    """Roots of a·t² + 2b·t + c."""
    return [float(t.real) for t in np.roots([a, 2 * b, c]) if abs(t.imag) < 1e-6]


@dataclass(frozen=True)
class Agc(Metric[Scalar, "ScorePart", "tuple[float, float] | Kept | None", "State"], OfRankings):
    """Normalised area under the gain curve.

    Attributes
    ----------
    truncate : share of the points in (0, 1], or a number of points above 1; the top group that reaches it is kept whole
    ratio : whether the value is A/M instead of (A − R)/(M − R)

    Raises
    ------
    OptionError
        If `truncate` is neither a share in (0, 1] nor a whole number above 1.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> [(r.metric, round(r.value, 4)) for r in (compute(state, Agc(t)) for t in (1, 0.5, 3))]
    [('agc', 0.5), ('agc@0.5', 0.5), ('agc@3', 0.4286)]
    """

    truncate: float = 1
    ratio: bool = False

    def __post_init__(self) -> None:
        kept_points(self.truncate, 1)

    @property
    def name(self) -> str:
        """``agc``, ``agc_ratio``, ``agc@0.01``, ``agc_ratio@200``."""
        name = "agc_ratio" if self.ratio else "agc"
        return name if self.truncate == 1 else f"{name}@{format_number(self.truncate)}"

    @property
    def counts_nan(self) -> bool:
        """Whether NaN scores may count as halves: only without a truncation, where the value is 2·AUC − 1."""
        return self.truncate == 1 and not self.ratio

    def points(self, rows: int) -> int | None:
        """Points that the truncation keeps of `rows` points; None without a truncation."""
        return None if self.truncate == 1 else kept_points(self.truncate, rows)

    def shrunk(self, share: float) -> Agc:
        """The metric for a part of the rows: a number of points is scaled so that it stays the same share of them."""
        return self if self.truncate <= 1 else replace(self, truncate=max(2, round(self.truncate * share)))

    def _by_pairs(self, measure: Totals) -> bool:
        """Whether the area comes from the pairs won: Σ u·(2T + p) is Σ p·(2T + p) = P² plus Σ n·(2T + p), those pairs.

        Only without a truncation, and for counts: with weights the digits of A − R would cancel.
        """
        return self.truncate == 1 and is_counted(measure)

    def basis(self, part: ScorePart) -> GainSums | RocAuc:
        """The pairs won, which `roc_auc` shares, or the sums that ``agc`` and ``agc_ratio`` share."""
        return RocAuc() if self._by_pairs(part.total) else GainSums(self.truncate)

    def combine(self, partials: Sequence[tuple[float, float] | Kept | None], state: State) -> Scalar:
        """One division; a pair with a halved score adds nothing to A − R."""
        numbers, nan = state.totals(), halved(state)
        N, P = numbers.n, numbers.p
        if not P + nan.p:
            return Scalar.undefined(self.name, NO_POSITIVES)
        if not N + nan.n and not self.ratio:
            return Scalar.undefined(self.name, NO_NEGATIVES)
        if None in partials:
            return Scalar.undefined(self.name, WEIGHTED)
        if self._by_pairs(numbers):
            kept = Kept.of_pairs(cast("Sequence[tuple[int, int]]", partials), N, P)
        else:
            kept = Kept.all(cast("Sequence[Kept]", partials))
        if kept.cut:
            return Scalar.between(self.name, *cut_bounds(kept, N, P, ratio=self.ratio))
        if nan.rows and not kept.weight:
            return Scalar.certain(self.name, 0.0)
        pairs = (N + nan.n) * (P + nan.p) if nan.rows else 0
        unit = 0 if pairs else kept_unit(kept.weight)
        if unit is None or not kept.weight:
            return Scalar.undefined(self.name, NO_WEIGHT)

        def ends(shift: float) -> tuple[float, float]:
            top, bottom = quotient(kept.shifted(shift), N, P, ratio=self.ratio, unit=unit)
            return top, (N + P) * pairs if pairs else bottom

        top, bottom = ends(0)
        if not bottom:  # a product of weights may vanish
            return Scalar.undefined(self.name, NO_WEIGHT)
        if not kept.doubt:
            return Scalar.certain(self.name, min(1.0, float(top / bottom)))
        value, lower, upper = (float(top / bottom) for top, bottom in map(ends, (0, -kept.doubt, kept.doubt)))
        return Scalar.between(self.name, value, *outward(lower, upper, rounding(numbers), least=-math.inf))

    def of_rankings(self, rankings: Rankings) -> Array:
        """As `combine` without a truncation, where A − R is (N + P)(won − N·P) / 2."""
        N, P, halved_neg, halved_pos = rankings[1:5]
        if self.ratio:
            values = rankings.divided(P * P + rankings.won, P * (P + 2 * N))
            values[(halved_neg + halved_pos != 0).astype(np.bool_)] = math.nan
        else:
            values = rankings.divided(rankings.won - N * P, (N + halved_neg) * (P + halved_pos))
        return np.minimum(1.0, values)


def truncate_areas(truncate: Sequence[float]) -> tuple[Agc, ...]:
    """`agc` and `agc_ratio` for each truncation, each once.

    Examples
    --------
    >>> [metric.name for metric in truncate_areas((0.01, 200))]
    ['agc@0.01', 'agc_ratio@0.01', 'agc@200', 'agc_ratio@200']
    """
    return tuple(Agc(share, ratio) for share in dict.fromkeys(truncate) for ratio in (False, True))


def standard_error(grouped: GroupedBins, share: float) -> float:
    """Standard error as if the rows were without end: of leaving out a group at a time, and of one row."""
    weights = grouped.counts if grouped.weights is None else grouped.weights / grouped.weights.sum()
    measures = np.stack([grouped.counts, weights]).astype(np.float64)  # products stay far from 0 and ∞
    drawn = grouped.counts.sum((1, 2)) > 0
    m, whole = int(drawn.sum()), measures.sum(1)
    rest = whole[:, None] - measures[:, drawn]
    if m < 2 or not rest[0].sum(2).all():
        return math.nan
    values = np.array([_area(rows, sums, share, grouped.single) for rows, sums in zip(*rest, strict=True)])
    error = math.sqrt((m - 1) / m * float(((values - values.mean()) ** 2).sum()))
    return math.hypot(error, _one_row(whole, share, grouped.single))


def _one_row(whole: Array, share: float, single: Array) -> float:
    """Change of the value if one row of the class that prevails in the part kept were of the other class.

    `whole` are the rows and the weights of both classes, of shape (2, 2, n_bins).
    """
    best = slice(cut_at(whole[0].sum(0), share * float(whole[0].sum())) + 1)
    major = int(whole[0, 1, best].sum() > whole[0, 0, best].sum())
    part = whole[:, major, best] / whole[0, major, best].sum()
    changed = whole.copy()
    changed[:, major, best] -= part
    changed[:, 1 - major, best] += part
    if not changed[0, major].sum() > 0:
        return math.nan
    one, other = (_area(rows, sums, share, single) for rows, sums in (changed, whole))
    return abs(one - other)


def _area(rows: Array, weights: Array, share: float, single: Array) -> float:
    """The value in floating point, for counts that need not be whole.

    Parameters
    ----------
    rows : array of shape (2, n_bins), which decide where to cut
    weights : float64 array of shape (2, n_bins), what the area is of
    share : of the rows to keep
    single : bool array of shape (n_bins,), bins that are kept whole
    """
    (neg, pos), counts = weights, rows[0] + rows[1]
    ends = np.cumsum(counts)
    points = min(share * float(counts.sum()), float(ends[-1]))
    at = min(int(np.searchsorted(ends, points)), counts.size - 1)
    room = float(counts[at]) if single[at] else max(0.0, points - float(ends[at] - counts[at]))
    part = room / float(counts[at]) if counts[at] else 0.0
    kept, gained = (np.append(side[:at], side[at] * part) for side in (neg + pos, pos))
    area = float((kept * (2 * (np.cumsum(gained) - gained) + gained)).sum())
    weight = float(kept.sum())
    return divide(*quotient((area, weight * weight - area, weight), float(neg.sum()), float(pos.sum()), ratio=False))


NO_ROWS = "no rows in the sample; draw more (--sample)"
NONE_IN_PART = "no positives in the truncated part of the sample; draw more (--sample) or cut less (--truncate)"

NO_ERROR = "too few positives or negatives in the sample for a standard error; draw more (--sample)"
LIKELY = "a sample gives no certain interval; the area of all rows likely lies within value ± (bound + 4·stderr)"
INTERPOLATED = (
    "counts of bins are interpolated, so that no interval is certain; evaluate the files with passes=2 (--passes 2)"
)


@dataclass(frozen=True)
class AgcApprox(Metric[Scalar, "SampledState", "GroupedBins", "SampledState"]):
    """Normalised area under the gain curve of a sample in quantile bins.

    Attributes
    ----------
    truncate : share of the points in (0, 1], or a number of points above 1, of all rows
    quantiles : bins of the truncated part; a sample of fewer points has fewer
    read : share of the rows that were read, below 1 where row groups were drawn

    Examples
    --------
    The exact area, and its estimate from a tenth of the rows:

    >>> import numpy as np, pyarrow as pa
    >>> from streameval.evaluation import evaluate
    >>> rng = np.random.default_rng(0)
    >>> label = rng.random(100_000) < 0.05
    >>> data = pa.table({"label": label, "score": rng.normal(2.0 * label)})
    >>> found = evaluate(data, score="score", approx_agc=True, sample=0.1, quantiles=200)
    >>> [approx] = [result for result in found.results if result.metric == "agc_approx"]
    >>> [round(x, 3) for x in (found.value("agc"), approx.value, approx.bound, approx.stderr)]
    [0.835, 0.828, 0.003, 0.01]

    With all rows in bins, the bounds contain it:

    >>> found = evaluate(data, score="score", approx_agc=True, quantiles=200)
    >>> [round(end, 3) for end in found.interval("agc_approx")]
    [0.832, 0.838]
    """

    truncate: float = 1
    quantiles: int = 100
    read: float = 1.0

    def __post_init__(self) -> None:
        kept_points(self.truncate, 1)
        if not isinstance(self.quantiles, int) or self.quantiles < 1:
            raise OptionError(f"quantiles={self.quantiles!r} is not a number of bins of at least 1 (--quantiles)")

    @property
    def name(self) -> str:
        """``agc_approx``, ``agc_approx@0.01``, ``agc_approx@200``."""
        return "agc_approx" + ("" if self.truncate == 1 else f"@{format_number(self.truncate)}")

    def estimates(self) -> Agc:
        """The metric that it estimates, such as ``agc@0.01``."""
        return Agc(self.truncate)

    def population(self, state: SampledState) -> float:
        """Rows that the sample stands for: those seen, and those in row groups that were not read."""
        return float(state.seen.sum()) / self.read

    def share(self, state: SampledState) -> float:
        """The truncation as a share of the points."""
        return (
            float(self.truncate) if self.truncate <= 1 else min(1.0, self.truncate / max(self.population(state), 1.0))
        )

    def partial(self, part: SampledState) -> GroupedBins:
        """The bins."""
        return part.binned(self.share(part), self.quantiles)

    def combine(self, partials: Sequence[GroupedBins], state: SampledState) -> Scalar:
        """The value of all groups, its interval or bound, and its standard error."""
        total = state.totals()
        if not total.rows:
            return Scalar.undefined(self.name, NO_ROWS)
        if not total.pos_weight or not total.neg_weight:
            reason = NO_POSITIVES if not total.pos_weight else NO_NEGATIVES
            return Scalar.undefined(self.name, f"{reason} in the sample")
        (grouped,) = partials
        bins, share = _all_groups(grouped), self.share(state)
        drawn = min(1.0, total.rows / self.population(state))
        points = kept_points(share if drawn < 1 else self.truncate, total.rows)
        if drawn < 1 and not bins.p[: cut_at(bins.rows, points) + 1].any():
            return Scalar.undefined(self.name, NONE_IN_PART)
        value, lower, upper = bounds(bins, points)
        if math.isnan(value):
            return Scalar.undefined(self.name, NO_WEIGHT)
        bound = max(upper - value, value - lower)
        if drawn == 1 and grouped.counted:
            return replace(Scalar.between(self.name, value, lower, upper), stderr=0.0, bound=bound)
        error = standard_error(grouped, share) * math.sqrt(1 - drawn) if drawn < 1 else 0.0
        if math.isnan(error):
            return Scalar(self.name, value, exact=False, reason=NO_ERROR)
        reason = LIKELY if drawn < 1 else INTERPOLATED
        return Scalar(self.name, value, exact=False, reason=reason, stderr=error, bound=bound)


def _all_groups(grouped: GroupedBins) -> ScorePart:
    """All groups together: counts in integers whose running sums are the rounded ones; weights sum to 1."""
    sides = (np.rint(np.cumsum(grouped.counts[:, label].sum(0))).astype(np.int64) for label in (0, 1))
    neg, pos = (np.maximum(np.diff(side, prepend=0), 0) for side in sides)
    full, weights = neg + pos > 0, None
    if grouped.weights is not None:
        weights = grouped.weights.sum(0)
        full |= weights.sum(0) > 0
        weights = weights[:, full] / weights.sum()
    neg, pos = neg[full], pos[full]
    n, p = (neg, pos) if weights is None else weights
    weighted = weights is not None
    total = Totals(int(neg.sum()), int(pos.sum()), float(n.sum()), float(p.sum()), weighted)
    none, scores = Totals(0, 0, 0.0, 0.0, weighted), np.arange(neg.size, dtype=np.float64)
    return ScorePart(n, p, none, total, known(scores), ~grouped.single[full], neg + pos if weighted else None)


def bounds(bins: ScorePart, points: int) -> tuple[float, float, float]:
    """Value, lower and upper of the area of the best `points` rows; NaN if they have no weight.

    A bin that the points cut keeps a proportional part in the value, and in the bounds any part of its weight, or any
    of its rows if they are counted.

    Examples
    --------
    Two bins; the first has 2 negative rows and 1 positive row, and one of its rows is kept:

    >>> from streameval.states.protocol import Totals
    >>> from streameval.states.scores.parts import ScorePart, known
    >>> none, total = Totals(0, 0, 0.0, 0.0, True), Totals(4, 1, 0.8, 0.2, True)
    >>> weights = np.array([[0.4, 0.4], [0.2, 0.0]])
    >>> bins = ScorePart(*weights, none, total, known(np.arange(2.0)), np.ones(2, bool), np.array([3, 2]))
    >>> [round(x, 3) for x in bounds(bins, 1)]
    [0.167, -0.382, 1.0]
    """
    at, N, P = cut_at(bins.rows, points), bins.total.n, bins.total.p
    if int(bins.rows[: at + 1].sum()) > points and bins.open[at]:
        value, lower, upper = cut_bounds(cut_sums(bins, at, points), N, P, ratio=False)
    else:
        kept = Kept(*gain_sums(bins, at + 1))
        shifts = (0, -kept.doubt, kept.doubt)
        value, lower, upper = (divide(*quotient(kept.shifted(shift), N, P, ratio=False)) for shift in shifts)
    if not bins.total.weighted:
        return value, lower, upper
    return min(1.0, value), *outward(min(lower, value), max(upper, value), least=-math.inf)


def approximations(truncate: Sequence[float], quantiles: int) -> tuple[AgcApprox, ...]:
    """`agc_approx`, and one for each truncation, each once.

    Examples
    --------
    >>> [metric.name for metric in approximations((0.01, 200), 100)]
    ['agc_approx', 'agc_approx@0.01', 'agc_approx@200']
    """
    return tuple(AgcApprox(share, quantiles) for share in dict.fromkeys((1, *truncate)))
