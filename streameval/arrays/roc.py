"""The ROC curve as an object: points, area, best operating point, plot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.curves import auc, roc_points
from streameval.arrays.inputs import fold, joint, numbers, plain, same_length, scores, without_nan
from streameval.arrays.labels import cluster_counts, labels_by_predicate, num2bool
from streameval.metrics.finalize import combine, partials
from streameval.metrics.scores.ranking import MaxInformedness, RocAuc
from streameval.plots import plot_roc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.arrays.labels import Predicate
    from streameval.plots import Style
    from streameval.states.scores.counts import ScoreCounts


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
        self, fprs: Any, tprs: Any, thresholds: Any = None, pos_label: Any = None, sample_weight: Any = None
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
    def from_labels(cls, labels_true: Any, y_score: Any, is_class_pos: Predicate = num2bool) -> RocCurve:
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
    def from_scores(cls, scores_neg: Any, scores_pos: Any) -> RocCurve:
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
    def from_clusters(cls, clusters: Any, is_class_pos: Predicate = num2bool) -> RocCurve:
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
