"""ROC and precision-recall curves of arrays in memory, with all points; the ROC curve also as an object with its area.

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
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from streameval.arrays.inputs import flag, fold, joint, numbers, plain, same_length, scores, without_nan
from streameval.arrays.labels import cluster_counts, labels_by_predicate, num2bool, points
from streameval.errors import DataError
from streameval.metrics.finalize import combine, partials
from streameval.metrics.scores.ranking import MaxInformedness, RocAuc
from streameval.plots import plot_precision_recall, plot_roc
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.arrays.labels import Predicate
    from streameval.plots import Style
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array, ArrayLike


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
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = None,
    sample_weight: ArrayLike | None = None,
    drop_intermediate: bool = True,
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
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    drop_intermediate: bool = False,
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


def balance_of(state: ScoreCounts) -> float:
    """Share of positives, by weight if there are weights."""
    total = state.totals()
    return total.pos_weight / (total.neg_weight + total.pos_weight)


def auc(x: ArrayLike, y: ArrayLike) -> float:
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
        raise DataError(f"x has {plural(xs.size, 'point')}; an area needs at least two")
    if (widths < 0).any() and (widths > 0).any():
        raise DataError("x rises and falls; sort the points of the curve by x")
    if np.isnan(xs).any() or np.isnan(ys).any():
        return math.nan
    area = math.fsum(widths * (ys[1:] + ys[:-1])) / 2
    try:
        return math.ldexp(-area if (widths < 0).any() else area, x_unit + y_unit)
    except OverflowError:
        raise DataError("the area under y over x exceeds the largest float; scale the coordinates") from None


def _coordinates(values: Any, name: str) -> tuple[Array, int]:
    """Coordinates as a float64 array of at most one half, and the exponent of the power of two that they are scaled by.

    Raises
    ------
    DataError
        For infinities; NaN is allowed.
    """
    array = numbers(values, name).astype(np.float64)
    if np.isinf(array).any():
        raise DataError(f"{name} has an infinite coordinate; an area needs finite ones")
    unit = math.frexp(float(np.abs(array).max()))[1] + 1
    return np.ldexp(array, -unit), unit


def plot_precision_recall_curve(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    **style: Unpack[Style],
) -> Axes:
    """Draw the precision-recall curve with its thresholds, its area by the trapezoidal rule, and the class balance.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight : see `streameval.precision_recall_curve`
    style : see `streameval.plots.Style`; `truncate` is the largest recall shown

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As for `streameval.precision_recall_curve` and `streameval.plots.plot_precision_recall`.

    Examples
    --------
    >>> axes = plot_precision_recall_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['area = 0.7917', 'random (positives: 0.5)', 'best possible', 'threshold']
    """
    state = points(y_true, y_score, pos_label, sample_weight)
    precision, recall, thresholds = precision_recall_points(state)
    area = auc(recall, precision)
    return plot_precision_recall(recall, precision, thresholds, area, balance=balance_of(state), **style)


class RocCurve:
    """A ROC curve with its area, its best operating point and its plot.

    A curve from `from_labels`, `from_scores` or `from_clusters` starts at the origin with an infinite threshold and has
    no collinear points; its `auc_score` and `max_informedness` are computed from the scores themselves and are exact.
    For a curve from given rates, they are computed from the given points.

    Parameters
    ----------
    fprs, tprs : array-likes of shape (n_points,), false and true positive rates
    thresholds : array-like of shape (n_points,), optional
    pos_label, sample_weight : stored as attributes for the caller; the rates already account for them

    Attributes
    ----------
    fprs, tprs, thresholds : float64 arrays of shape (n_points,)

    Raises
    ------
    DataError
        If lengths differ, an array is empty or not one-dimensional, or values are not numbers.

    Examples
    --------
    >>> curve = RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> curve.auc_score(), curve.max_informedness()
    (0.75, 0.5)
    """

    def __init__(
        self,
        fprs: ArrayLike,
        tprs: ArrayLike,
        thresholds: ArrayLike | None = None,
        pos_label: object = None,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        self.fprs = numbers(fprs, "fprs").astype(np.float64)
        self.tprs = numbers(tprs, "tprs").astype(np.float64)
        same_length(self.fprs.size, "fprs", tprs=self.tprs)
        self.thresholds = None if thresholds is None else numbers(thresholds, "thresholds")
        if self.thresholds is not None:
            same_length(self.fprs.size, "fprs", thresholds=self.thresholds)
        self.pos_label = pos_label
        self.sample_weight = sample_weight
        self._exact: tuple[float, float] | None = None  # area and maximum informedness of the state

    @classmethod
    def _of(cls, state: ScoreCounts) -> RocCurve:
        """The curve of a state."""
        curve = cls(*roc_points(state, drop_intermediate=True), pos_label=True)
        metrics = (RocAuc(), MaxInformedness())
        area, best = combine(state, metrics, [partials(state, shard, metrics) for shard in state.shards()])
        curve._exact = area.value, best.value
        return curve

    @classmethod
    def from_labels(cls, labels_true: ArrayLike, y_score: ArrayLike, is_class_pos: Predicate = num2bool) -> RocCurve:
        """The curve of labels and scores.

        Parameters
        ----------
        labels_true : array-like of shape (n,), labels
        y_score : array-like of shape (n,), numbers without NaN
        is_class_pos : function that says whether a label is positive; by default, labels above zero are

        Examples
        --------
        >>> RocCurve.from_labels(["ham", "spam"], [0.2, 0.7], lambda label: label == "spam").tprs
        array([0., 1., 1.])
        """
        label, score = labels_by_predicate(labels_true, is_class_pos), scores(y_score)
        same_length(len(label), "labels_true", y_score=score)
        return cls._of(fold(label, score))

    @classmethod
    def from_scores(cls, scores_neg: ArrayLike, scores_pos: ArrayLike) -> RocCurve:
        """The curve of the scores of the negatives and of the positives; NaN is left out.

        Parameters
        ----------
        scores_neg : array of shape (n_negatives,)
        scores_pos : array of shape (n_positives,)

        Raises
        ------
        DataError
            If a class has no scores, or a score is not a number.

        Examples
        --------
        >>> RocCurve.from_scores([0.1, 0.4], [0.35, 0.8, float("nan")]).auc_score()
        0.75
        """
        sides = [without_nan(side) for side in joint(scores_neg=scores_neg, scores_pos=scores_pos)]
        score = np.concatenate(sides)
        plain(score, "scores_neg and scores_pos without NaN")
        return cls._of(fold(np.repeat([0, 1], [side.size for side in sides]).astype(np.uint8), score))

    @classmethod
    def from_clusters(cls, clusters: ArrayLike, is_class_pos: Predicate = num2bool) -> RocCurve:
        """The curve in which the score of a point is the size of its cluster.

        Parameters
        ----------
        clusters : iterable of clusters, each an iterable of the labels of its points
        is_class_pos : function that says whether a label is positive; by default, labels above zero are

        Examples
        --------
        >>> RocCurve.from_clusters([[1, 1, 0], [0], [1]]).auc_score()
        0.5833333333333334
        """
        sizes, label = cluster_counts(clusters, is_class_pos)
        return cls._of(fold(label, np.repeat(sizes, sizes)))

    def auc_score(self) -> float:
        """Area under the curve; NaN if there is one class only.

        Examples
        --------
        >>> RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).auc_score()
        0.75
        """
        return auc(self.fprs, self.tprs) if self._exact is None else self._exact[0]

    def optimal_cutoff(self, scoring_method: Callable[[Any, Any], Any]) -> tuple[tuple[float, float], float]:
        """The point of the curve that maximises a function of its rates; the first one if there are several.

        Parameters
        ----------
        scoring_method : function of a false and a true positive rate; points at which it is NaN are skipped

        Returns
        -------
        (fpr, tpr), value : floats; NaN if the function is NaN at all points

        Examples
        --------
        >>> curve = RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        >>> curve.optimal_cutoff(lambda fpr, tpr: tpr - 2 * fpr)
        ((0.0, 0.5), 0.5)
        """
        point, best = (math.nan, math.nan), math.nan
        with np.errstate(all="ignore"):  # a ratio of rates is 0/0 at the origin
            for fpr, tpr in zip(self.fprs, self.tprs, strict=True):
                value = float(scoring_method(fpr, tpr))
                if value > best or (math.isnan(best) and not math.isnan(value)):
                    point, best = (float(fpr), float(tpr)), value
        return point, best

    def max_informedness(self) -> float:
        """Largest true minus false positive rate, at least 0 (Youden's J); NaN if there is only one class.

        Examples
        --------
        >>> RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).max_informedness()
        0.5
        """
        if self._exact is not None:
            return self._exact[1]
        return (
            max(0.0, self.optimal_cutoff(_informedness)[1])
            if not (np.isnan(self.fprs) | np.isnan(self.tprs)).any()
            else math.nan
        )

    def plot(
        self,
        fill: bool = True,
        marker: str | None = None,
        save_to: str | Path | None = None,
        *,
        ax: Axes | None = None,
        of: str | None = None,
        truncate: float | None = None,
    ) -> Axes:
        """Draw the curve; see `streameval.plots.plot_roc`.

        Parameters
        ----------
        fill : whether to shade the area
        marker : matplotlib marker at each point
        save_to : path ending in .png, .svg or .pdf, optional
        ax : axes to draw on; by default those of a new figure
        of : name of the score, for the legend
        truncate : largest false positive rate shown, in (0, 1]

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> curve = RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        >>> axes = curve.plot(of="score")
        >>> axes = RocCurve.from_labels([0, 0, 1, 1], [1, 2, 3, 4]).plot(ax=axes, of="other")
        >>> [text.get_text() for text in axes.get_legend().get_texts()][:2]
        ['score (AUC = 0.7500)', 'other (AUC = 1.0000)']
        """
        style: Style = {"fill": fill, "marker": marker, "save_to": save_to, "ax": ax, "of": of, "truncate": truncate}
        return plot_roc(self.fprs, self.tprs, self.auc_score(), **style)


def _informedness(fpr: float, tpr: float) -> float:
    return tpr - fpr
