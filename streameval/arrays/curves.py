"""ROC and precision-recall curves of arrays in memory, with all points.

A state yields its groups of equal score from the best to the worst. The cumulative positives T and negatives F give the
curves: (F/N, T/P) is the ROC curve, (T/P, T/(T + F)) the precision-recall curve. Both follow scikit-learn's
conventions: the ROC curve starts at the origin with an infinite threshold; the precision-recall curve runs from the
lowest threshold to the highest and ends in (recall 0, precision 1), which has no threshold.

Two successive steps of a ROC curve are collinear if both groups add the same positives and the same negatives; the
point between them is dropped on request. Steps are compared before they are summed, so weights cause no rounding in the
comparison.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.arrays.inputs import flag, numbers, same_length
from streameval.arrays.labels import points
from streameval.errors import DataError
from streameval.wording import plural

if TYPE_CHECKING:
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array


class Steps(NamedTuple):
    """The groups of equal score, from the best to the worst.

    ``neg`` and ``pos`` are int64 counts or float64 weights, ``scores`` are float64; all have shape (n_groups,).
    """

    neg: Array
    pos: Array
    scores: Array


def steps(state: ScoreCounts) -> Steps:
    """The groups of all parts of a state, concatenated.

    Examples
    --------
    >>> steps(points([0, 1, 1], [0.5, 0.5, 0.7], None, None))
    Steps(neg=array([0, 1]), pos=array([1, 1]), scores=array([0.7, 0.5]))
    """
    groups = list(state.parts())
    return Steps(*(np.concatenate([getattr(group, name) for group in groups]) for name in ("n", "p", "scores")))


def _cumulated(values: Array) -> Array:
    """Cumulative sums: exact for counts, in extended precision for weights."""
    return values.cumsum() if values.dtype.kind == "i" else values.cumsum(dtype=np.longdouble).astype(np.float64)


def _share(sums: Array) -> Array:
    """Cumulative sums divided by the total; NaN if it is 0."""
    return sums / sums[-1] if sums[-1] else np.full(sums.shape, np.nan)


def _corners(parts: Steps) -> Array:
    """Which groups end in a corner of the ROC curve; always the first and the last."""
    kept = np.ones(parts.scores.size, np.bool_)
    kept[1:-1] = (np.diff(parts.neg)[1:] != 0) | (np.diff(parts.pos)[1:] != 0)
    return kept


def roc_points(state: ScoreCounts, *, drop_intermediate: bool) -> tuple[Array, Array, Array]:
    """The ROC curve of a state: false and true positive rates, thresholds."""
    parts = steps(state)
    kept = _corners(parts) if drop_intermediate else slice(None)
    fpr, tpr = (np.concatenate(([0.0], _cumulated(side)[kept])) for side in (parts.neg, parts.pos))
    return _share(fpr), _share(tpr), np.concatenate(([np.inf], parts.scores[kept]))


def roc_curve(
    y_true: Any, y_score: Any, pos_label: Any = None, sample_weight: Any = None, drop_intermediate: bool = True
) -> tuple[Array, Array, Array]:
    """Receiver operating characteristic: true and false positive rate at every threshold.

    Parameters
    ----------
    y_true : array-like of shape (n,), two labels
    y_score : array-like of shape (n,), numbers without NaN; higher means more likely positive
    pos_label : the positive label; by default, numbers above zero are positive
    sample_weight : array-like of shape (n,), finite and at least 0, optional; points of weight 0 are ignored
    drop_intermediate : whether to drop collinear points, which does not change the area

    Returns
    -------
    fpr, tpr : float64 arrays of shape (n_points,), rising from 0 to 1; NaN if the class has no points
    thresholds : float64 array of shape (n_points,), falling, the first one infinite; scores at or above a threshold are
        predicted positive

    Raises
    ------
    DataError
        If lengths differ, an array is empty or not one-dimensional, or values are not usable (`streameval.errors`).

    References
    ----------
    Fawcett (2006), An introduction to ROC analysis. Pattern Recognition Letters 27.

    Examples
    --------
    >>> fpr, tpr, thresholds = roc_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> fpr, tpr, thresholds
    (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]), array([ inf, 0.8 , 0.4 , 0.35, 0.1 ]))
    """
    dropping = flag("drop_intermediate", drop_intermediate)
    return roc_points(points(y_true, y_score, pos_label, sample_weight), drop_intermediate=dropping)


def precision_recall_curve(
    y_true: Any, y_score: Any, pos_label: Any = 1, sample_weight: Any = None, drop_intermediate: bool = False
) -> tuple[Array, Array, Array]:
    """Precision and recall at every threshold.

    Parameters
    ----------
    y_true : array-like of shape (n,), labels
    y_score : array-like of shape (n,), numbers without NaN; higher means more likely positive
    pos_label : the positive label; with None, numbers above zero are positive
    sample_weight : array-like of shape (n,), finite and at least 0, optional; points of weight 0 are ignored
    drop_intermediate : whether to keep only the first and the last point of each recall

    Returns
    -------
    precision : float64 array of shape (n_thresholds + 1,); the last value is 1
    recall : float64 array of shape (n_thresholds + 1,), falling from 1 to 0; if there are no positives, 1 at every
        threshold
    thresholds : float64 array of shape (n_thresholds,), rising

    Raises
    ------
    DataError
        As for `roc_curve`.

    Examples
    --------
    >>> precision, recall, thresholds = precision_recall_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> precision.round(4), recall, thresholds
    (array([0.5 , 0.6667, 0.5 , 1. , 1. ]), array([1. , 1. , 0.5, 0.5, 0. ]), array([0.1 , 0.35, 0.4 , 0.8 ]))
    """
    dropping = flag("drop_intermediate", drop_intermediate)
    return precision_recall_points(points(y_true, y_score, pos_label, sample_weight), dropping)


def precision_recall_points(state: ScoreCounts, drop_intermediate: bool = False) -> tuple[Array, Array, Array]:
    """The precision-recall curve of a state: precision, recall, thresholds."""
    parts = steps(state)
    T, F = _cumulated(parts.pos), _cumulated(parts.neg)
    kept = np.ones(T.size, np.bool_)
    if drop_intermediate:
        kept[1:-1] = (parts.pos[1:-1] > 0) | (parts.pos[2:] > 0)
    recall = T / T[-1] if T[-1] else np.ones(T.shape)
    columns = ((T / (T + F))[kept], recall[kept], parts.scores[kept])
    precision, recall, thresholds = (column[::-1] for column in columns)
    return np.append(precision, 1.0), np.append(recall, 0.0), thresholds


def auc(x: Any, y: Any) -> float:
    """Area under a curve by the trapezoidal rule.

    Parameters
    ----------
    x : array-like of shape (n,), rising or falling, at least two points
    y : array-like of shape (n,)

    Returns
    -------
    float; NaN if a coordinate is NaN

    Raises
    ------
    DataError
        If `x` is not monotonic, lengths differ, there are fewer than two points, or a coordinate is infinite.

    Examples
    --------
    >>> auc([0, 0.5, 1], [0, 1, 1])
    0.75
    """
    (xs, x_unit), (ys, y_unit) = (_coordinates(values, name) for values, name in ((x, "x"), (y, "y")))
    same_length(xs.size, "x", y=ys)
    widths = np.diff(xs)
    if not widths.size:
        msg = f"x has {plural(xs.size, 'point')}; an area needs at least two"
        raise DataError(msg)
    if (widths < 0).any() and (widths > 0).any():
        msg = "x rises and falls; sort the points of the curve by x"
        raise DataError(msg)
    if np.isnan(xs).any() or np.isnan(ys).any():
        return math.nan
    area = math.fsum(widths * (ys[1:] + ys[:-1])) / 2
    try:
        return math.ldexp(-area if (widths < 0).any() else area, x_unit + y_unit)
    except OverflowError:
        msg = "the area under y over x exceeds the largest float; scale the coordinates"
        raise DataError(msg) from None


def _coordinates(values: Any, name: str) -> tuple[Array, int]:
    """Coordinates as a float64 array of at most one half, and the exponent of the power of two that they are scaled by.

    Raises
    ------
    DataError
        For infinities; NaN is allowed.
    """
    array = numbers(values, name).astype(np.float64)
    if np.isinf(array).any():
        msg = f"{name} has an infinite coordinate; an area needs finite ones"
        raise DataError(msg)
    unit = math.frexp(float(np.abs(array).max()))[1] + 1
    return np.ldexp(array, -unit), unit
