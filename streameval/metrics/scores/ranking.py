"""Metrics of a score: exact from `ScoreCounts`, certain intervals from `ScoreHistogram`.

Groups of equal score in descending order have p positives and n negatives, with T positives and F negatives before
them, of P and N in all; with weights, p, n, T, F, P, N are weights.

- ROC AUC = Σ p·(N − F − n/2) / (P·N): the share of (positive, negative) pairs in which the positive scores higher, a
  tie counting one half. Trapezoids under the ROC curve, pairs, and the rank sum with mid-ranks are this same number
  (Hanley and McNeil, 1982).
- Average precision = Σ p·(T + p)/(T + p + F + n) / P, the step sum, without interpolation.
- PR AUC: the trapezoid under the same points, another number (Davis and Goadrich, 2006, say why it flatters).
- Maximum informedness = max (T + p)/P − (F + n)/N, and at least 0 (Youden's J).

What happened inside a bin of a histogram is unknown. Each metric's `bounds` are the extremes over every order of a
bin's points; each is a property test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels import ranking as kernels
from streameval.kernels.gain import running_weights
from streameval.metrics.scores.undefined import HALF, ONE_CLASS, class_sizes, halved_rows, integer, outward
from streameval.results import Scalar
from streameval.states.scores.counts import Groups
from streameval.states.scores.histogram import Bins, ScoreHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.undefined import ScoreState
    from streameval.states.protocol import Totals
    from streameval.typing import Array

__all__ = ["RANKING", "AveragePrecision", "MaxInformedness", "PrAuc", "RocAuc"]


def _total(partials: Sequence[Any]) -> Any:
    """Sum of partials: exact for integers, correctly rounded for floats."""
    return math.fsum(partials) if any(isinstance(part, float) for part in partials) else sum(partials)


def _exact_sum(values: Array) -> float:
    """`math.fsum` of an array."""
    return math.fsum(kernels.exact_parts(values))


def _empty_class(total: Totals) -> bool:
    return total.neg_weight == 0 or total.pos_weight == 0


@dataclass(frozen=True, slots=True)
class _Columns:
    """Bins as floats: negatives, positives, and what lies above each."""

    n: Array
    p: Array
    F: Array
    T: Array
    single: Array
    N: float
    P: float

    @classmethod
    def of(cls, bins: Bins) -> _Columns:
        n = bins.neg.astype(np.float64) if bins.neg_weight is None else bins.neg_weight
        p = bins.pos.astype(np.float64) if bins.pos_weight is None else bins.pos_weight
        F, T = (running_weights(np.append(0.0, column)[:-1], 0) for column in (n, p))  # a sum − n would cancel
        return cls(n, p, F, T, bins.single, bins.total.neg_weight, bins.total.pos_weight)


@dataclass(frozen=True)
class RocAuc:
    """Area under the ROC curve.

    Attributes
    ----------
    half : whether NaN scores count as halves under that policy; else it is the area of the scores that are numbers

    Examples
    --------
    >>> from streameval import roc_auc_score
    >>> roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """

    name: str = "roc_auc"
    half: bool = True

    def partial(self, part: Groups | Bins) -> Any:
        """Twice the pairs won, ties as halves; for bins the pairs within mixed bins too."""
        if isinstance(part, Groups):
            return _pairs(part.neg, part.pos, part.neg_weight, part.pos_weight, part.before, part.total)
        none = _zero(part.total)
        pairs = _pairs(part.neg, part.pos, part.neg_weight, part.pos_weight, none, part.total)
        mixed = ~part.single
        if part.neg_weight is None or part.pos_weight is None:
            return pairs, integer(kernels.product_counts(part.neg[mixed], part.pos[mixed]))
        return pairs, _exact_sum(part.neg_weight[mixed] * part.pos_weight[mixed])

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """Pairs won over pairs."""
        total = state.totals()
        if self.half and halved_rows(state):
            return self._halved(partials, state)
        if _empty_class(total):
            return Scalar.undefined(self.name, ONE_CLASS)
        return self._divided(partials, state, *class_sizes(total, weighted=state.spec.weighted))

    def _divided(self, partials: Sequence[Any], state: ScoreState, N: Any, P: Any, halves: Any = 0) -> Scalar:
        """(pairs won + half of the undecided) / pairs; `halves` are pairs that count one half for certain."""
        if not isinstance(state, ScoreHistogram):
            return Scalar.certain(self.name, _share(_total([*partials, halves]) / (2 * N * P)))
        ((won, mixed),) = partials
        value, width = _share((won + halves) / (2 * N * P)), mixed / (2 * N * P)
        if not width:
            return Scalar.certain(self.name, value)
        return Scalar.between(self.name, value, *outward(value - width, value + width))

    def _halved(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """Every pair with a NaN counts one half."""
        n, p = class_sizes(state.totals(), weighted=state.spec.weighted)
        nan = state.nan_weights.tolist() if state.spec.weighted else state.nan_rows.tolist()
        N, P = n + nan[0], p + nan[1]
        if not N or not P:
            return Scalar.undefined(self.name, ONE_CLASS)
        return self._divided(partials, state, N, P, halves=N * P - n * p)


def _share(value: float) -> float:
    """A share, without the rounding of weighted sums beyond its ends."""
    return min(1.0, max(0.0, value))


def _zero(total: Totals) -> Totals:
    return type(total)(0, 0, 0.0, 0.0)


def _pairs(
    neg: Array, pos: Array, neg_weight: Array | None, pos_weight: Array | None, before: Totals, total: Totals
) -> Any:
    """Twice the pairs won: an integer, or a float with weights."""
    if neg_weight is None or pos_weight is None:
        return integer(kernels.area_counts(neg, pos, before.neg, total.neg))
    return 2.0 * float(kernels.area_weights(neg_weight, pos_weight, before.neg_weight, total.neg_weight))


def _precision(part: Groups, *, trapezoid: bool) -> Any:
    """Σ p·precision in units of 2⁻⁶², an integer; with weights a float."""
    before = part.before
    if part.neg_weight is None:
        return integer(kernels.precision_counts(part.neg, part.pos, before.neg, before.pos, trapezoid))
    return float(
        kernels.precision_weights(part.neg_weight, part.pos_weight, before.neg_weight, before.pos_weight, trapezoid)
    )


def _mean_precision(name: str, partials: Sequence[Any], state: ScoreState, parts: int, *, half: bool = True) -> Scalar:
    """Σ p·precision / (parts·P), for an exact state or for bounds."""
    total = state.totals()
    if half and halved_rows(state):
        return Scalar.undefined(name, HALF)
    if total.pos_weight == 0:
        return Scalar.undefined(name, "no positives")
    if isinstance(state, ScoreHistogram):
        ((lower, upper),) = partials
        low, high = lower / total.pos_weight, upper / total.pos_weight
        ends = outward(low, high) if high > low or state.spec.weighted else (low, high)
        return Scalar.between(name, (low + high) / 2, *ends)
    if state.spec.weighted:
        return Scalar.certain(name, min(1.0, _total(partials) / (parts * total.pos_weight)))
    return Scalar.certain(name, _total(partials) / (parts * total.pos * kernels.UNIT))


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision: the mean precision at the positives.

    Examples
    --------
    >>> from streameval import average_precision_score
    >>> round(average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """

    name: str = "average_precision"

    def partial(self, part: Groups | Bins) -> Any:
        """Σ p·precision, or its bounds."""
        return _precision(part, trapezoid=False) if isinstance(part, Groups) else self.bounds(_Columns.of(part))

    def bounds(self, c: _Columns) -> tuple[float, float]:
        """Extremes of Σ p·precision.

        Least where a bin's negatives come first and its positives are all distinct: each step sum is at least the
        integral ∫ (T + k)/(T + k + F + n) dk over k from 0 to p. Greatest where the positives come first and are tied.
        """
        exact = c.p * _ratio(c.T + c.p, c.T + c.p + c.F + c.n)  # a product of two small weights may be 0
        lower = np.where(c.single, exact, _integral(c.T, c.F + c.n, c.p))
        upper = np.where(c.single, exact, c.p * _ratio(c.T + c.p, c.T + c.p + c.F))
        return _exact_sum(lower), _exact_sum(upper)

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """Divide by the positives."""
        return _mean_precision(self.name, partials, state, 1)


def _ratio(a: Array, b: Array) -> Array:
    """A / b, and 0 where both are 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _integral(T: Array, F: Array, p: Array) -> Array:
    """∫ (T + k)/(T + k + F) dk over k from 0 to p: p − F·ln((T + F + p)/(T + F)), and p where F is 0."""
    start = T + F
    area: Array = p - F * np.log1p(_ratio(p, start)) * (start > 0)
    return area


@dataclass(frozen=True)
class PrAuc:
    """Area under the precision-recall curve by the trapezoid rule.

    Attributes
    ----------
    half : whether it is undefined where NaN scores count as halves; else that of the scores that are numbers

    Examples
    --------
    >>> from streameval import auc, precision_recall_curve
    >>> precision, recall, _ = precision_recall_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> round(auc(recall, precision), 4)
    0.7917
    """

    name: str = "pr_auc"
    half: bool = True

    def partial(self, part: Groups | Bins) -> Any:
        """Σ p·(precision before + precision after), or the bounds of half of it."""
        return _precision(part, trapezoid=True) if isinstance(part, Groups) else self.bounds(_Columns.of(part))

    def bounds(self, c: _Columns) -> tuple[float, float]:
        """Extremes of the trapezoid under a bin.

        With negatives first, precision is concave in recall and one trapezoid is the least of all; with negatives last
        it is concave too, and below its integral.
        """
        before = np.where(c.T + c.F > 0, _ratio(c.T, c.T + c.F), 1.0)
        exact = c.p * (before + _ratio(c.T + c.p, c.T + c.p + c.F + c.n)) / 2
        low = c.p * (_ratio(c.T, c.T + c.F + c.n) + _ratio(c.T + c.p, c.T + c.p + c.F + c.n)) / 2
        lower = np.where(c.single, exact, low)
        upper = np.where(c.single, exact, _integral(c.T, c.F, c.p))
        return _exact_sum(lower), _exact_sum(upper)

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """Divide by the positives."""
        return _mean_precision(self.name, partials, state, 2, half=self.half)


@dataclass(frozen=True)
class MaxInformedness:
    """Largest difference of true and false positive rate over all thresholds, at least 0 (Youden's J).

    Examples
    --------
    >>> from streameval import RocCurve
    >>> RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).max_informedness()
    0.5
    """

    name: str = "max_informedness"

    def partial(self, part: Groups | Bins) -> Any:
        """The best point: informedness in floating point, T, F, score; for bins its bounds."""
        if isinstance(part, Bins):
            return self.bounds(_Columns.of(part), part)
        best, true, false, at = self._best(part, part.before)
        return best, true, false, part.score(at) if at >= 0 else math.inf

    @staticmethod
    def _best(part: Groups | Bins, before: Totals) -> tuple[float, Any, Any, int]:
        """Informedness in floating point, T and F after the best group, and which it is; −1 where none is above 0."""
        total = part.total
        if _empty_class(total):
            return 0.0, 0, 0, -1
        if part.neg_weight is None or part.pos_weight is None:
            counts = before.neg, before.pos, total.neg, total.pos
            best, at, true, false = kernels.informedness_counts(part.neg, part.pos, *counts)
            return float(best), int(true), int(false), int(at)
        weights = before.neg_weight, before.pos_weight, total.neg_weight, total.pos_weight
        best, at, true, false = kernels.informedness_weights(part.neg_weight, part.pos_weight, *weights)
        return float(best), true, false, int(at)

    def bounds(self, c: _Columns, bins: Bins) -> tuple[float, float, float]:
        """Largest value at an edge of a bin, and the largest with a bin's positives before its negatives; the edge."""
        _, true, false, at = self._best(bins, _zero(bins.total))
        if at < 0 and (not c.N or not c.P):
            return 0.0, 0.0, math.inf
        lower = _informedness(true, false, *class_sizes(bins.total, weighted=bins.neg_weight is not None))
        inside = np.where(c.single, 0.0, (c.T + c.p) / c.P - c.F / c.N)
        return lower, max(lower, float(inside.max(initial=0.0))), float(bins.scores[at]) if lower > 0 else math.inf

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """The best of all parts."""
        total = state.totals()
        if halved_rows(state):
            return Scalar.undefined(self.name, HALF)
        if _empty_class(total):
            return Scalar.undefined(self.name, ONE_CLASS)
        if isinstance(state, ScoreHistogram):
            ((lower, upper, threshold),) = partials
            ends = outward(lower, upper) if upper > lower or state.spec.weighted else (lower, upper)
            return replace(Scalar.between(self.name, lower, *ends), threshold=threshold)
        _, true, false, threshold = max(partials, key=lambda best: (best[0], -best[1] - best[2]))
        value = _informedness(true, false, *class_sizes(total, weighted=state.spec.weighted))
        return Scalar.certain(self.name, value, threshold=threshold if value else math.inf)


def _informedness(true: Any, false: Any, N: Any, P: Any) -> float:
    """T/P − F/N, divided once; at least 0, as without any threshold."""
    return max(0.0, float((true * N - false * P) / (N * P)))


RANKING = (RocAuc(), AveragePrecision(), PrAuc(), MaxInformedness())
