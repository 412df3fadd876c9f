"""Gain curves: what a team gets that looks only at the top of the ranking.

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

From a histogram the value comes with its bounds (`streameval.metrics.scores.gain_bounds`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels import gain as kernels
from streameval.metrics.scores.gain_bounds import Cut, cut_bounds, open_sums
from streameval.metrics.scores.gain_sums import (
    NO_NEGATIVES,
    NO_POSITIVES,
    NO_WEIGHT,
    WEIGHTED,
    GainSums,
    kept_points,
    quotient,
)
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.undefined import HALF, class_sizes, halved_rows, outward
from streameval.results import Scalar
from streameval.states.scores.counts import Groups
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.undefined import ScoreState
    from streameval.states.scores.histogram import Bins

__all__ = ["GAIN", "Agc", "truncated"]


@dataclass(frozen=True)
class Agc:
    """Normalised area under the gain curve.

    Attributes
    ----------
    truncate : share of the points in (0, 1], or a number of points above 1; the top group that reaches it is kept whole
    ratio : A/M instead of (A − R)/(M − R)

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

    def basis(self, part: Groups) -> GainSums | RocAuc:
        """What takes the partials of groups: of counts that are not cut, the pairs won, which `roc_auc` takes as well.

        Σ u·(2T + p) is Σ p·(2T + p) = P², plus Σ n·(2T + p), which is twice the pairs won.
        """
        return RocAuc() if self.truncate == 1 and part.neg_weight is None else GainSums(self.truncate)

    def partial(self, part: Groups | Bins) -> Any:
        """The sums of `GainSums`, or the pairs won; for bins the bounds."""
        return self.basis(part).partial(part) if isinstance(part, Groups) else self.bounds(part)

    def bounds(self, bins: Bins) -> Any:
        """Sums and the pairs in doubt; value, lower and upper where a bin is cut; None where neither can be had."""
        total = bins.total
        points = kept_points(self.truncate, total.rows)
        if bins.neg_weight is None or bins.pos_weight is None:
            at = int(np.searchsorted(np.cumsum(bins.neg + bins.pos), points))
            if points >= total.rows or bins.single[at]:
                return open_sums(bins, at + 1)
            return cut_bounds(bins, at, points, ratio=self.ratio) if total.pos and (total.neg or self.ratio) else None
        if points < total.rows:
            return None
        area, below, pos, neg = (float(x) for x in kernels.gain_weights(bins.neg_weight, bins.pos_weight))
        return area, below, neg + pos, float((bins.neg_weight * bins.pos_weight)[~bins.single].sum())

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """One division."""
        halves = halved_rows(state) > 0
        N, P = class_sizes(state.totals(), weighted=state.spec.weighted)
        if halves and (self.ratio or self.truncate != 1):
            return Scalar.undefined(self.name, HALF)
        nan = (state.nan_weights if state.spec.weighted else state.nan_rows).tolist() if halves else (0, 0)
        if not P + nan[1]:
            return Scalar.undefined(self.name, NO_POSITIVES)
        if not N + nan[0] and not self.ratio:
            return Scalar.undefined(self.name, NO_NEGATIVES)
        if None in partials:
            return Scalar.undefined(self.name, WEIGHTED)
        if len(partials) == 1 and isinstance(partials[0], Cut):
            return Scalar.between(self.name, *partials[0])
        if partials and isinstance(partials[0], int):
            area = P * P + sum(partials)
            partials = [(area, (N + P) ** 2 - area, N + P)]
        *sums, doubt = _added(partials)
        if not sums[2]:
            return Scalar.certain(self.name, 0.0) if halves else Scalar.undefined(self.name, NO_WEIGHT)
        return self._divided(sums, doubt, N, P, (N + nan[0]) * (P + nan[1]) if halves else None)

    def _divided(self, sums: Sequence[Any], doubt: Any, N: Any, P: Any, pairs: Any) -> Scalar:
        """The value, and its interval if pairs are in doubt; `pairs` with a NaN count one half and so add nothing."""

        def at(shift: Any) -> float:
            top, bottom = quotient((sums[0] + shift, sums[1] - shift, sums[2]), N, P, ratio=self.ratio)
            return float(top / ((N + P) * pairs if pairs else bottom))

        if (
            not pairs and not quotient((sums[0], sums[1], sums[2]), N, P, ratio=self.ratio)[1]
        ):  # a product of weights that vanishes
            return Scalar.undefined(self.name, NO_WEIGHT)
        value, weighted = at(0), isinstance(sums[0], float)
        if not doubt:
            return Scalar.certain(self.name, min(1.0, value) if weighted else value)
        ends = at(-doubt), at(doubt)
        return Scalar.between(self.name, value, *(outward(*ends, least=-math.inf) if weighted else ends))


def _added(partials: Sequence[Any]) -> list[Any]:
    """Sums of the partials and of the pairs in doubt: exact integers, or correctly rounded floats."""
    columns = list(zip(*(part if len(part) == 4 else (*part, 0) for part in partials), strict=True)) or [(0,)] * 4
    return [math.fsum(column) if any(isinstance(x, float) for x in column) else sum(column) for column in columns]


def truncated(truncate: Sequence[float]) -> tuple[Agc, ...]:
    """`agc` and `agc_ratio` for each truncation, each once.

    Examples
    --------
    >>> [metric.name for metric in truncated((0.01, 200))]
    ['agc@0.01', 'agc_ratio@0.01', 'agc@200', 'agc_ratio@200']
    """
    return tuple(Agc(share, ratio) for share in dict.fromkeys(truncate) for ratio in (False, True))


GAIN = truncated((1,))
