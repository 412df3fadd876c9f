"""Metrics of a ranking in memory: ROC AUC, average precision, and the AUC of two distributions.

All are finalized from `ScoreCounts` by the metrics of `streameval.metrics.scores.ranking`. One convention differs from
runs over partitioned data, where an undefined value is NaN with a reason: here, average precision without positives is
0, and an undefined ROC AUC is NaN. These are scikit-learn's values, without its warnings.

For a matrix with one column for each label, `average` says how the columns are combined:

- ``micro``: all cells are points of one ranking;
- ``macro``: the mean over columns;
- ``weighted``: the mean over columns, weighted by their positives;
- ``samples``: the mean over rows, each a ranking of its labels, weighted by `sample_weight`;
- None: one value for each column.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.curves import steps
from streameval.arrays.inputs import (
    check_arguments,
    fold,
    generator,
    indicators,
    joint,
    num2bool,
    points,
    scores,
    without_nan,
)
from streameval.errors import OptionError
from streameval.metrics.finalize import compute
from streameval.metrics.scores.ranking import AveragePrecision, PartialAuc, RocAuc
from streameval.states.protocol import Totals
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.parts import ScorePart, known
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.budget import Budget
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array, ArrayLike

__all__ = ["auc_by_sampling", "average_precision_score", "dist_auc", "num2bool", "roc_auc_score"]

_AVERAGES = ("micro", "macro", "weighted", "samples", None)
_NOTHING = Totals(0, 0, 0.0, 0.0)
_DRAWS = 1 << 20  # number of pairs drawn at a time


class _FewPoints:
    """The state of a few points, with the interface of `ScoreCounts`; it is created in microseconds."""

    def __init__(self, label: Array, score: Array) -> None:
        self.spec = ScoreSpec("y_score")
        self.scores, group = np.unique(score, return_inverse=True)
        sides = (np.bincount(group[label == side], minlength=self.scores.size)[::-1] for side in (0, 1))
        self.neg, self.pos = (np.ascontiguousarray(side) for side in sides)

    def totals(self) -> Totals:
        """Points of both classes."""
        neg, pos = int(self.neg.sum()), int(self.pos.sum())
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self) -> list[tuple[int, int]]:
        """A single shard."""
        return [(0, 1)]

    def parts(self, shard: tuple[int, int] | None = None, budget: Budget | None = None) -> Iterator[ScorePart]:
        """A single part with all groups, from the highest score to the lowest."""
        yield ScorePart(self.neg, self.pos, _NOTHING, self.totals(), known(self.scores[::-1]))


def _roc_auc(state: ScoreCounts, max_fpr: float = 1) -> float:
    return float(compute(state, RocAuc() if max_fpr == 1 else PartialAuc(max_fpr)).value)


def _average_precision(state: ScoreCounts) -> float:
    return float(compute(state, AveragePrecision()).value) if state.totals().pos else 0.0


@explains_arguments
def roc_auc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    sample_weight: ArrayLike | None = None,
    average: str | None = "macro",
    pos_label: object = None,
    max_fpr: float | None = None,
    multi_class: str = "raise",
    labels: ArrayLike | None = None,
) -> Any:
    """Area under the ROC curve: the probability that a positive scores higher than a negative; a tie counts one half.

    There are three equivalent definitions. *Trapezoids*: the area under the points of `roc_curve`. *Pairs*: the share
    of (positive, negative) pairs in which the positive scores higher, with ties as halves; `auc_by_sampling` estimates
    it from random pairs. *Ranks*: (R − P(P + 1)/2) / (P·N), where R is the sum of the ranks of the P positives among
    all P + N points, and tied points share their mean rank (Mann and Whitney). They agree because ties count one half:
    the trapezoid of a tie is half of its rectangle, and a mean rank puts half of the tied points below.

    Parameters
    ----------
    y_true : array-like of shape (n,), two labels; or indicator matrix of shape (n, n_labels); or labels of several
        classes, with `multi_class`
    y_score : array-like of the same shape, numbers without NaN; higher means more likely positive. For several classes
        of shape (n, n_classes), a column for each class
    sample_weight : array-like of shape (n,), finite and at least 0, optional
    average : for a matrix, ``micro``, ``macro``, ``weighted``, ``samples`` or None; see `streameval.arrays.ranking`.
        For several classes not ``samples``; with ``ovo`` only ``macro`` or ``weighted`` (by the points of each pair)
    pos_label : the positive label, of any type; all other labels are negative. By default, numbers above zero are
        positive, and there may be two labels only
    max_fpr : largest false positive rate, in (0, 1]; the area up to it is standardised (McClish), so that it is ½ for a
        random order and 1 for a perfect one. None or 1 for the full area
    multi_class : for several classes, ``ovr`` (each class against the rest) or ``ovo`` (the mean over all pairs of
        classes, in both directions; Hand and Till). scikit-learn's default ``raise`` refuses several classes
    labels : the classes in the order of the columns of `y_score`; by default the labels that occur, in ascending order

    Returns
    -------
    float in [0, 1], NaN if there is one class only; float64 array of shape (n_labels,) for a matrix with `average=None`

    Raises
    ------
    DataError
        If shapes differ, an array is empty, or values are not usable (`streameval.errors`).
    LabelError
        If there are more than two labels and no `pos_label`, or `pos_label` does not occur.
    OptionError
        If `average` or `max_fpr` is out of its range.

    References
    ----------
    Hanley and McNeil (1982), The meaning and use of the area under a ROC curve. Radiology 143.
    McClish (1989), Analyzing a portion of the ROC curve. Medical Decision Making 9.
    Hand and Till (2001), A simple generalisation of the area under the ROC curve. Machine Learning 45.

    Examples
    --------
    >>> roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    >>> roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], max_fpr=0.5)
    0.6666666666666666
    >>> roc_auc_score(["a", "b", "c"], [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.3, 0.6, 0.1]], multi_class="ovr")
    0.5833333333333334
    """
    if max_fpr is not None and not (isinstance(max_fpr, int | float | np.number) and 0 < max_fpr <= 1):
        raise OptionError(f"max_fpr={max_fpr!r} is not a false positive rate in (0, 1]")
    metric = _roc_auc if max_fpr is None else partial(_roc_auc, max_fpr=float(max_fpr))
    if multi_class not in ("raise", "ovr", "ovo"):
        raise OptionError(f"multi_class={multi_class!r} is not 'ovr' or 'ovo'")
    if _is_matrix(y_score) and not _is_matrix(y_true):
        if multi_class == "raise":
            _refuse_two_columns(y_score)
            raise OptionError("y_score has a column for each class; choose multi_class='ovr' or multi_class='ovo'")
        if max_fpr not in (None, 1) or pos_label is not None:
            raise OptionError("several classes take no max_fpr and no pos_label; leave them out")
        y_score = scores(y_score, ndim=2)
        label = indicators(y_true, y_score.shape[1], labels)
        if multi_class == "ovo":
            return _one_against_one(label, y_score, sample_weight, average)
        return _one_against_rest(metric, label, y_score, sample_weight, average)
    return _score(metric, y_true, y_score, sample_weight, average, pos_label)


@explains_arguments
def average_precision_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    average: str | None = "macro",
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
) -> Any:
    """Average precision: the mean, over the positives, of the precision at their score, without interpolation.

    Parameters
    ----------
    y_true : array-like of shape (n,), labels; or indicator matrix of shape (n, n_labels)
    y_score : array-like of the same shape, numbers without NaN; higher means more likely positive. For labels of
        several classes of shape (n, n_classes), a column for each class in ascending order, against the rest
    average : for a matrix, ``micro``, ``macro``, ``weighted``, ``samples`` or None; see `streameval.arrays.ranking`
    pos_label : the positive label; with None, numbers above zero are positive
    sample_weight : array-like of shape (n,), finite and at least 0, optional

    Returns
    -------
    float in [0, 1], 0 if there are no positives; for a matrix with `average=None`, float64 array of shape (n_labels,)

    Raises
    ------
    DataError, OptionError
        As for `roc_auc_score`.

    References
    ----------
    Manning, Raghavan and Schütze (2008), Introduction to Information Retrieval, chapter 8.

    Examples
    --------
    >>> round(average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    if _is_matrix(y_score) and not _is_matrix(y_true):
        _refuse_two_columns(y_score)
        if pos_label != 1:
            raise OptionError(f"pos_label={pos_label!r}: several classes take none; leave it out")
        y_score = scores(y_score, ndim=2)
        label = indicators(y_true, y_score.shape[1], None)
        return _one_against_rest(_average_precision, label, y_score, sample_weight, average)
    return _score(_average_precision, y_true, y_score, sample_weight, average, pos_label)


def _refuse_two_columns(y_score: ArrayLike) -> None:
    """Raise `DataError` for the two columns of one binary score."""
    if scores(y_score, ndim=2).shape[1] == 2:
        scores(y_score)  # says which of the columns to pass


def _score(
    metric: Callable[[ScoreCounts], float],
    y_true: ArrayLike,
    y_score: ArrayLike,
    sample_weight: ArrayLike | None,
    average: str | None,
    pos_label: object,
) -> float | Array:
    """A metric of a vector, or its average over a matrix."""
    if not (average is None or isinstance(average, str)) or average not in _AVERAGES:
        raise OptionError(f"average={average!r} is not one of 'micro', 'macro', 'weighted', 'samples', None")
    if not _is_matrix(y_true):
        return metric(points(y_true, y_score, pos_label, sample_weight))
    return _average(metric, *check_arguments(y_true, y_score, pos_label, sample_weight, ndim=2), average)


def _one_against_rest(
    metric: Callable[[ScoreCounts], float],
    label: Array,
    y_score: ArrayLike,
    sample_weight: ArrayLike | None,
    average: str | None,
) -> float | Array:
    """The average of a metric over classes; `label` is their indicator matrix."""
    if average == "samples":
        raise OptionError("average='samples' is for a matrix of labels; choose 'macro', 'weighted', 'micro' or None")
    return _score(metric, label, y_score, sample_weight, average, 1)


def _one_against_one(
    label: Array, y_score: ArrayLike, sample_weight: ArrayLike | None, average: str | None
) -> float | Array:
    """The mean ROC AUC over all pairs of classes, each class once as the positive one."""
    if average not in ("macro", "weighted") or sample_weight is not None:
        raise OptionError("multi_class='ovo' takes average='macro' or 'weighted' and no sample_weight")
    label, score, _ = check_arguments(label, y_score, 1, None, ndim=2)
    values, sizes = [], []
    for one, other in combinations(range(label.shape[1]), 2):
        rows = np.flatnonzero(label[:, one] | label[:, other])
        sizes.append(float(rows.size))
        values.append(sum(_roc_auc(fold(label[rows, side], score[rows, side])) for side in (one, other)) / 2)
    return _mean(values, np.array(sizes) if average == "weighted" else None)


def _is_matrix(values: Any) -> bool:
    try:
        return np.ndim(values) == 2
    except Exception:  # whatever the container raises; validation tells it with the name of the argument
        return False


def _average(
    metric: Callable[[Any], float], label: Array, score: Array, weight: Array | None, average: str | None
) -> float | Array:
    """A metric of the columns, rows or cells of a matrix, combined as `average` says."""
    if average == "micro":
        cells = None if weight is None else np.repeat(weight, label.shape[1])
        return metric(fold(label.ravel(), score.ravel(), cells))
    if average == "samples":
        return _mean([metric(_FewPoints(*row)) for row in zip(label, score, strict=True)], weight)
    values = [metric(fold(*column, weight)) for column in zip(label.T, score.T, strict=True)]
    if average is None:
        return np.array(values)
    positives = label.sum(axis=0, dtype=np.float64) if weight is None else weight @ label
    return _mean(values, positives if average == "weighted" else None)


def _mean(values: list[float], weight: Array | None) -> float:
    """Weighted mean of the values with positive weight; 0 if there are none."""
    factors = [1.0] * len(values) if weight is None else weight.tolist()
    terms = [(factor, factor * value) for factor, value in zip(factors, values, strict=True) if factor]
    return math.fsum(term for _, term in terms) / math.fsum(factor for factor, _ in terms) if terms else 0.0


def dist_auc(scores0: ArrayLike, scores1: ArrayLike) -> float:
    """ROC AUC of two samples of scores, shrunk towards one half by missing scores.

    Let AUC be the area for the scores that are not NaN, and f₀ and f₁ the shares of NaN on each side. The value is
    w·AUC + (1 − w)/2 with w = 1 − (f₀ + f₁)/2, so ``dist_auc(a, b)`` and ``dist_auc(b, a)`` sum to 1. (A run over
    partitioned data with ``nan="half"`` follows another rule: every pair with a NaN counts one half, which gives
    w = (1 − f₀)(1 − f₁).)

    Parameters
    ----------
    scores0 : array-like of shape (n,), scores of the negatives; NaN if missing
    scores1 : array-like of shape (m,), scores of the positives; NaN if missing

    Returns
    -------
    float in [0, 1]; 0.5 if all scores of a side are NaN

    Raises
    ------
    DataError
        If a side is empty or has values that are not numbers.

    Examples
    --------
    >>> dist_auc([10, 20, 30, float("nan")], [float("nan"), 40, 50, 60])
    0.875
    """
    sides = joint(scores0=scores0, scores1=scores1)
    numbers = [without_nan(side) for side in sides]
    if not all(side.size for side in numbers):
        return 0.5
    label = np.repeat([0, 1], [side.size for side in numbers]).astype(np.uint8)
    area = _roc_auc(fold(label, np.concatenate(numbers)))
    weight = sum(part.size / side.size for part, side in zip(numbers, sides, strict=True)) / 2
    return weight * area + (1 - weight) / 2


@explains_arguments
def auc_by_sampling(
    y_true: ArrayLike,
    y_score: ArrayLike,
    n: int,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.Generator | None = None,
    pos_label: object = None,
) -> tuple[float, float]:
    """ROC AUC estimated from `n` random pairs of a positive and a negative, drawn with replacement.

    Points are drawn with probabilities proportional to their weights. A pair counts 1 if the positive scores higher,
    and ½ if they tie. This illustrates the definition of the AUC; `roc_auc_score` is exact and faster.

    Parameters
    ----------
    y_true : array-like of shape (n_points,), two labels
    y_score : array-like of shape (n_points,), numbers without NaN
    n : number of pairs to draw, at least 1
    sample_weight : array-like of shape (n_points,), finite and at least 0, optional
    random_state : seed or `numpy.random.Generator`; None draws different pairs each time
    pos_label : the positive label; by default, numbers above zero are positive

    Returns
    -------
    auc : float in [0, 1], the mean over the pairs; NaN if there is one class only
    standard_error : float, the standard deviation over the pairs divided by √n; NaN for a single pair or class

    Raises
    ------
    DataError
        As for `roc_auc_score`.
    OptionError
        If `n` is not a whole number of at least 1, or `random_state` is not a seed.

    Examples
    --------
    >>> y_true, y_score = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    >>> estimate, standard_error = auc_by_sampling(y_true, y_score, 10_000, random_state=0)
    >>> abs(estimate - roc_auc_score(y_true, y_score)) < 4 * standard_error < 0.02
    True
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise OptionError(f"n={n!r}; the number of pairs to draw is a whole number of at least 1")
    parts = steps(points(y_true, y_score, pos_label, sample_weight))
    pos, neg = parts.pos.cumsum(), parts.neg.cumsum()
    if not pos[-1] or not neg[-1]:
        return math.nan, math.nan
    random, won, tied = generator(random_state), 0, 0
    for start in range(0, n, _DRAWS):
        size = min(_DRAWS, n - start)
        above, below = (_draw(random, sums, size) for sums in (pos, neg))
        won += int((above < below).sum())
        tied += int((above == below).sum())
    mean = (2 * won + tied) / (2 * n)
    variance = (won + tied / 4) / n - mean * mean
    return mean, math.sqrt(max(variance, 0.0) / (n - 1)) if n > 1 else math.nan


def _draw(random: np.random.Generator, sums: Array, size: int) -> Array:
    """Groups of `size` points, drawn with probabilities proportional to the steps of `sums`; group 0 is the best."""
    drawn: Array = np.searchsorted(sums, random.random(size) * sums[-1], side="right")
    return drawn
