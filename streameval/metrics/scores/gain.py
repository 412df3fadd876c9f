"""Gain curves: the share of positives that a team finds at the top of the ranking.

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

From a histogram the value comes with its bounds (`streameval.metrics.scores.gain_sums`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval.metrics.protocol import NO_NEGATIVES, NO_POSITIVES, NO_WEIGHT, WEIGHTED, Metric
from streameval.metrics.scores.gain_sums import GainSums, Kept, cut_bounds, kept_points, kept_unit, quotient
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.sums import counted, outward, rounding, total
from streameval.results import Scalar
from streameval.states.scores.types import halved
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import Totals
    from streameval.states.scores.parts import ScorePart


@dataclass(frozen=True)
class Agc(Metric):
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
        return self.truncate == 1 and counted(measure)

    def basis(self, part: ScorePart) -> GainSums | RocAuc:
        """The pairs won, which `roc_auc` shares, or the sums that ``agc`` and ``agc_ratio`` share."""
        return RocAuc() if self._by_pairs(part.total) else GainSums(self.truncate)

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """One division; a pair with a halved score adds nothing to A − R."""
        numbers, nan = state.totals(), halved(state)
        N, P = numbers.n, numbers.p
        if not P + nan.p:
            return Scalar.undefined(self.name, NO_POSITIVES)
        if not N + nan.n and not self.ratio:
            return Scalar.undefined(self.name, NO_NEGATIVES)
        if None in partials:
            return Scalar.undefined(self.name, WEIGHTED)
        kept = _by_pairs(partials, N, P) if self._by_pairs(numbers) else Kept.all(partials)
        if kept.cut:
            return Scalar.between(self.name, *cut_bounds(kept, N, P, ratio=self.ratio))
        pairs = (N + nan.n) * (P + nan.p) if nan.rows else 0
        if not kept.weight and nan.rows:
            return Scalar.certain(self.name, 0.0)
        return self._divided(kept, N, P, pairs, rounding(numbers))

    def _divided(self, kept: Kept, N: Any, P: Any, pairs: Any, slack: float) -> Scalar:
        """The value, with its interval if pairs are in doubt; `pairs` are all pairs if a score is halved, else 0."""
        unit = 0 if pairs else kept_unit(kept.weight)
        if unit is None:
            return Scalar.undefined(self.name, NO_WEIGHT)

        def ends(shift: Any) -> tuple[Any, Any]:
            sums = kept.area + shift, kept.below - shift, kept.weight
            top, bottom = quotient(sums, N, P, ratio=self.ratio, unit=unit)
            return top, (N + P) * pairs if pairs else bottom

        def at(shift: Any) -> float:
            top, bottom = ends(shift)
            return float(top / bottom)

        if not kept.weight or not ends(0)[1]:  # a product of weights may vanish
            return Scalar.undefined(self.name, NO_WEIGHT)
        if not kept.doubt:
            return Scalar.certain(self.name, min(1.0, at(0)))
        interval = outward(at(-kept.doubt), at(kept.doubt), slack, least=-math.inf)
        return Scalar.between(self.name, at(0), *interval)


def _by_pairs(partials: Sequence[tuple[int, int]], N: int, P: int) -> Kept:
    """Sums under the whole curve from the partials of `RocAuc`."""
    won, doubt = (total(column) for column in zip(*partials, strict=True)) if partials else (0, 0)
    area = P * P + won
    return Kept(area, (N + P) ** 2 - area, N + P, doubt)


def truncated(truncate: Sequence[float]) -> tuple[Agc, ...]:
    """`agc` and `agc_ratio` for each truncation, each once.

    Examples
    --------
    >>> [metric.name for metric in truncated((0.01, 200))]
    ['agc@0.01', 'agc_ratio@0.01', 'agc@200', 'agc_ratio@200']
    """
    return tuple(Agc(share, ratio) for share in dict.fromkeys(truncate) for ratio in (False, True))
