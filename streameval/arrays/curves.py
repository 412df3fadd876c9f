"""ROC and precision-recall curves of arrays in memory, with all points; the ROC curve also as an object with its area.

A state yields its groups of equal score from the best to the worst. The cumulative positives T and negatives F give the
curves: (F/N, T/P) is the ROC curve, (T/P, T/(T + F)) the precision-recall curve. Both follow scikit-learn's
conventions: the ROC curve starts at the origin with an infinite threshold; the precision-recall curve runs from the
lowest threshold to the highest and ends in (recall 0, precision 1), which has no threshold.

Two successive steps of a ROC curve are collinear if both groups add the same positives and the same negatives; the
point between them is dropped on request. Steps are compared before they are summed, so weights cause no rounding in the
comparison.

*Gain.* The gain curve has, for every threshold, the share of all points at or above it (x) and the share of the
positives that are among them (y). `agc_score` is its normalised area: 1 for a perfect order, 0 for a random one, and
2·AUC − 1 without truncation. Truncated at the top q, it is the part of the possible improvement over a random order
that the ranking achieves there. Truncation counts points, even with weights, and keeps all points tied with the last
one.

`agc_approximate` draws a sample and sorts it into quantile bins, as if scores within a bin were tied. The untruncated
area is then off by at most Σ p·n / PN, summed over bins with p positives and n negatives, and sampling adds its
standard error. It serves for comparisons with published values; the exact area costs little more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from streameval.arrays import inputs
from streameval.errors import DataError, OptionError
from streameval.kernels.ranking import running
from streameval.metrics.finalize import combine, compute, partials
from streameval.metrics.scores.gain import Agc, decimal, kept_groups, kept_points
from streameval.metrics.scores.ranking import MaxInformedness, RocAuc
from streameval.plots import BaseStyle, Style, plot_gain, plot_precision_recall, plot_roc
from streameval.states.scores.counts import ScoreCounts, fold_arrays
from streameval.wording import explains_arguments, plural

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

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
    >>> steps(inputs.points([0, 1, 1], [0.5, 0.5, 0.7], None, None))
    Steps(neg=array([0, 1]), pos=array([1, 1]), scores=array([0.7, 0.5]))
    """
    groups = list(state.parts())
    return Steps(*(np.concatenate([getattr(group, name) for group in groups]) for name in ("n", "p", "scores")))


def _cumulate(values: Array) -> Array:
    """Cumulative sums: exact for counts, in extended precision for weights."""
    return values.cumsum() if values.dtype.kind == "i" else values.cumsum(dtype=np.longdouble).astype(np.float64)


def _share(sums: Array) -> Array:
    """Cumulative sums divided by the total; NaN if it is 0."""
    return sums / sums[-1] if sums[-1] else np.full(sums.shape, np.nan)


def roc_points(state: ScoreCounts, *, drop_intermediate: bool) -> tuple[Array, Array, Array]:
    """The ROC curve of a state: false and true positive rates, thresholds."""
    parts = steps(state)
    corners = np.ones(parts.scores.size, np.bool_)
    if drop_intermediate:  # the groups that end in a corner, the first and the last
        corners[1:-1] = (np.diff(parts.neg)[1:] != 0) | (np.diff(parts.pos)[1:] != 0)
    fpr, tpr = (np.concatenate(([0.0], _cumulate(side)[corners])) for side in (parts.neg, parts.pos))
    return _share(fpr), _share(tpr), np.concatenate(([np.inf], parts.scores[corners]))


@explains_arguments
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
    dropping = inputs.flag("drop_intermediate", drop_intermediate)
    return roc_points(inputs.points(y_true, y_score, pos_label, sample_weight), drop_intermediate=dropping)


@explains_arguments
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
    dropping = inputs.flag("drop_intermediate", drop_intermediate)
    return precision_recall_points(inputs.points(y_true, y_score, pos_label, sample_weight), dropping)


def precision_recall_points(state: ScoreCounts, drop_intermediate: bool = False) -> tuple[Array, Array, Array]:
    """The precision-recall curve of a state: precision, recall, thresholds."""
    parts = steps(state)
    T, F = _cumulate(parts.pos), _cumulate(parts.neg)
    corners = np.ones(T.size, np.bool_)
    if drop_intermediate:
        corners[1:-1] = (parts.pos[1:-1] > 0) | (parts.pos[2:] > 0)
    recall = T / T[-1] if T[-1] else np.ones(T.shape)
    columns = ((T / (T + F))[corners], recall[corners], parts.scores[corners])
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
    inputs.same_length(xs.size, "x", y=ys)
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


def _coordinates(values: ArrayLike, name: str) -> tuple[Array, int]:
    """Coordinates as a float64 array of at most one half, and the exponent of the power of two that they are scaled by.

    Raises
    ------
    DataError
        For infinities; NaN is allowed.
    """
    array = inputs.numbers(values, name).astype(np.float64)
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
    state = inputs.points(y_true, y_score, pos_label, sample_weight)
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
        self.fprs = inputs.numbers(fprs, "fprs").astype(np.float64)
        self.tprs = inputs.numbers(tprs, "tprs").astype(np.float64)
        inputs.same_length(self.fprs.size, "fprs", tprs=self.tprs)
        self.thresholds = None if thresholds is None else inputs.numbers(thresholds, "thresholds")
        if self.thresholds is not None:
            inputs.same_length(self.fprs.size, "fprs", thresholds=self.thresholds)
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
    def from_labels(
        cls, labels_true: ArrayLike, y_score: ArrayLike, is_class_pos: inputs.Predicate = inputs.num2bool
    ) -> RocCurve:
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
        label, score = inputs.labels_by_predicate(labels_true, is_class_pos), inputs.scores(y_score)
        inputs.same_length(len(label), "labels_true", y_score=score)
        return cls._of(inputs.fold(label, score))

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
        sides = [inputs.without_nan(side) for side in inputs.joint(scores_neg=scores_neg, scores_pos=scores_pos)]
        score = np.concatenate(sides)
        inputs.plain(score, "scores_neg and scores_pos without NaN")
        return cls._of(inputs.fold(np.repeat([0, 1], [side.size for side in sides]).astype(np.uint8), score))

    @classmethod
    def from_clusters(cls, clusters: ArrayLike, is_class_pos: inputs.Predicate = inputs.num2bool) -> RocCurve:
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
        sizes, label = inputs.cluster_counts(clusters, is_class_pos)
        return cls._of(inputs.fold(label, np.repeat(sizes, sizes)))

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
        if (np.isnan(self.fprs) | np.isnan(self.tprs)).any():
            return math.nan
        return max(0.0, self.optimal_cutoff(lambda fpr, tpr: tpr - fpr)[1])

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


_MOST_BINS = 1_000_000
_LARGE = 2.0**53  # float64 rounds larger integers, and differences of the largest floats overflow


@explains_arguments
def gain_curve(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
) -> tuple[Array, Array, Array]:
    """Points of the gain curve, one for each distinct score kept, from the highest score on; without the origin.

    Parameters
    ----------
    y_true : array of shape (n,), labels; `pos_label` must occur unless there is one class only
    y_score : array of shape (n,), numbers without NaN; higher means more likely positive
    pos_label : the positive label; with None, numbers above zero are positive
    sample_weight : array of shape (n,), finite and at least 0, optional
    truncate : share of the points in (0, 1], or a number of points above 1 (all points if there are fewer)

    Returns
    -------
    top : float64 array of shape (n_kept,), share of the weight at or above each threshold
    tpr : float64 array of shape (n_kept,), share of the positive weight there; NaN if there are no positives
    thresholds : float64 array of shape (n_kept,), descending

    Raises
    ------
    DataError
        If the arrays cannot be evaluated.
    OptionError
        If `truncate` is out of its range.

    Examples
    --------
    >>> top, tpr, thresholds = gain_curve([0, 1, 1, 0], [0.2, 0.9, 0.5, 0.5], truncate=0.5)
    >>> top, tpr, thresholds
    (array([0.25, 0.75]), array([0.5, 1. ]), array([0.9, 0.5]))
    """
    return gain_points(fold_arrays(*inputs.check_arguments(y_true, y_score, pos_label, sample_weight)), truncate)


def gain_points(state: ScoreCounts, truncate: float) -> tuple[Array, Array, Array]:
    """The gain curve of a state: shares of the weight and of the positive weight, thresholds."""
    total = state.totals()
    kept = kept_points(truncate, total.rows)
    cut_parts = [(part, kept_groups(part, kept)) for part in state.parts()]
    neg, pos = (np.concatenate([getattr(part, name)[:keep] for part, keep in cut_parts]) for name in ("n", "p"))
    top = running(neg + pos, 0) / (total.neg_weight + total.pos_weight)
    tpr = running(pos, 0) / (total.pos_weight or math.nan)
    return np.minimum(top, 1.0), np.minimum(tpr, 1.0), np.concatenate([part.scores[:keep] for part, keep in cut_parts])


@explains_arguments
def agc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
    normalized: bool = True,
) -> float:
    """Normalised area under the gain curve.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate : see `gain_curve`
    normalized : whether to return (A − R)/(M − R) instead of A/M, where A is the area, R that of a random order, and M
        the largest possible one

    Returns
    -------
    float, at most 1. If normalized, it is 0 for a random order, and negative if there are no positives in the truncated
    part. NaN if there are no positives, and, if normalized, no negatives.

    Raises
    ------
    DataError
        If the arrays cannot be evaluated.
    OptionError
        If `truncate` is out of its range.

    Examples
    --------
    >>> y_true, y_score = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    >>> agc_score(y_true, y_score), round(agc_score(y_true, y_score, truncate=3), 4)
    (0.5, 0.4286)
    >>> agc_score(y_true, y_score, normalized=False)
    0.8333333333333334
    """
    state = fold_arrays(*inputs.check_arguments(y_true, y_score, pos_label, sample_weight))
    return float(compute(state, Agc(truncate, ratio=not inputs.flag("normalized", normalized))).value)


@explains_arguments
def agc_approximate(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
    normalized: bool = True,
    sample: float = 1,
    quantiles: int = 100,
    interpolation: str = "linear",
    random_state: Any = None,
) -> float:
    """Normalised area under the gain curve, from a sample sorted into quantile bins.

    Points are drawn without replacement. The edges of the bins are `quantiles` evenly spaced quantiles of the truncated
    part of the sample, without duplicates; all points in a bin count as tied. If the sample has fewer points than there
    are quantiles, each score has its own bin, and only sampling causes an error. If all scores are equal, the
    normalised area is 0.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate, normalized : see `agc_score`
    sample : share of the points to draw, in (0, 1]; their number is rounded down, but at least 1
    quantiles : number of bins, from 1 to 1,000,000
    interpolation : how quantiles are interpolated, a `method` of `numpy.quantile`
    random_state : seed, `numpy.random.RandomState` or `numpy.random.Generator`; None draws a different sample each time

    Returns
    -------
    float; NaN if the sample has no positives, and, if normalized, no negatives

    Raises
    ------
    DataError
        If the arrays cannot be evaluated.
    OptionError
        If an option is out of its range, or `truncate` exceeds the number of points.

    Examples
    --------
    The exact value, all points in 10 bins, and a sample of half of the points:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y_true = rng.random(4000) < 0.1
    >>> y_score = rng.normal(y_true, 1.0)
    >>> [round(x, 2) for x in (agc_score(y_true, y_score), agc_approximate(y_true, y_score, quantiles=10))]
    [0.48, 0.47]
    >>> abs(agc_approximate(y_true, y_score, sample=0.5, random_state=0) - agc_score(y_true, y_score)) < 0.1
    True
    """
    label, score, weight = inputs.check_arguments(y_true, y_score, pos_label, sample_weight)
    truncate = decimal(truncate)
    _check_options(truncate, sample, quantiles, label.size)
    share = truncate / label.size if truncate > 1 else float(truncate)
    if sample < 1:
        chosen = _draw(label.size, max(1, int(sample * label.size)), random_state)
        label, score, weight = label[chosen], score[chosen], None if weight is None else weight[chosen]
    if max(float(score.max()), -float(score.min())) >= _LARGE:  # ranks, as bins depend on the order alone
        score = np.unique(score, return_inverse=True)[1]
    score = score.astype(np.float64)
    edges = _edges(score, share, quantiles, interpolation)
    bins = np.searchsorted(-edges, -score)  # number of edges above each score
    inside = int(np.count_nonzero(bins < edges.size))
    top = Agc(inside if inside > 1 else 0.5 / label.size, ratio=not inputs.flag("normalized", normalized))
    return float(compute(fold_arrays(label, -bins, weight), top).value)


def _check_options(truncate: float, sample: float, quantiles: int, size: int) -> None:
    kept_points(truncate, size)
    if truncate > max(size, 1):
        raise OptionError(f"truncate={truncate:g} exceeds the number of points ({size}); agc_score accepts any number")
    if not (isinstance(sample, int | float | np.number) and 0 < sample <= 1):
        raise OptionError(f"sample={sample!r} is not a share in (0, 1]")
    number = isinstance(quantiles, int | float | np.number) and 1 <= quantiles <= _MOST_BINS
    if not (number and quantiles == int(quantiles)):
        raise OptionError(f"quantiles={quantiles!r} is not a number of bins from 1 to {_MOST_BINS:,}")


def _draw(size: int, count: int, random_state: Any) -> Array:
    """Indices of `count` of `size` points without replacement; a seed draws the same points in all NumPy versions."""
    if hasattr(random_state, "choice"):
        return np.asarray(random_state.choice(size, count, replace=False))
    try:
        source = np.random.default_rng() if random_state is None else np.random.RandomState(random_state)
    except (TypeError, ValueError) as error:
        raise OptionError(f"random_state={random_state!r} is not a seed, RandomState or Generator") from error
    return source.choice(size, count, replace=False)


def _edges(score: Array, share: float, quantiles: int, interpolation: str) -> Array:
    """Lower edges of the bins of the top `share`, descending and distinct."""
    step = share / quantiles
    if 1 - step == 1:
        raise OptionError(
            f"truncate leaves a share of {share:g} for {quantiles:,} bins, which float64 does not tell from 0; raise it"
        )
    levels = np.arange(1 - step, 1 - share - step / 2, -step)
    levels[-1] = 1 - share
    method: Any = interpolation  # a literal type in NumPy's stubs; NumPy checks the name
    try:
        edges = np.quantile(score, levels, method=method)
    except (TypeError, ValueError) as error:
        raise OptionError(f"interpolation={interpolation!r} is not a method of numpy.quantile: {error}") from error
    return np.unique(edges)[::-1]


gain_agc_score = agc_score
gain_agc_approximate = agc_approximate


def plot_gain_curve(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
    **style: Unpack[BaseStyle],
) -> Axes:
    """Draw the gain curve up to a truncation, with the normalised area of that part.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate : see `streameval.gain_curve`
    style : see `streameval.plots.Style`, except for `truncate`

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As for `streameval.gain_curve` and `streameval.plots.plot_gain`.

    Examples
    --------
    >>> axes = plot_gain_curve([0, 1, 1, 0, 0], [0.2, 0.9, 0.5, 0.6, 0.1], truncate=0.6, of="score")
    >>> axes.get_xlim()[1].item(), axes.get_legend().get_texts()[0].get_text()
    (0.6, 'score (AGC = 0.5455)')
    """
    state = fold_arrays(*inputs.check_arguments(y_true, y_score, pos_label, sample_weight))
    top, tpr, _ = gain_points(state, 1)
    shown = float(gain_points(state, truncate)[0][-1]) or None
    agc = float(compute(state, Agc(truncate)).value)
    return plot_gain(top, tpr, agc=agc, balance=balance_of(state), truncate=shown, **style)
