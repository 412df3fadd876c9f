"""The approximate gain area: from a sample of the rows, sorted into quantile bins.

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
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_NEGATIVES, NO_POSITIVES, NO_WEIGHT, Metric
from streameval.metrics.scores.gain import Agc, Kept, cut_at, cut_bounds, cut_sums, divided, kept_points, quotient
from streameval.metrics.scores.sums import gain_sums, outward
from streameval.results import Scalar
from streameval.states.protocol import Totals
from streameval.states.scores.parts import ScorePart, known
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.digests import SampledDigests
    from streameval.states.scores.draws import GroupedBins, SampledBins
    from streameval.typing import Array

    SampledState = SampledDigests | SampledBins


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
    return divided(*quotient((area, weight * weight - area, weight), float(neg.sum()), float(pos.sum()), ratio=False))


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
        value, lower, upper = (divided(*quotient(kept.shifted(shift), N, P, ratio=False)) for shift in shifts)
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
