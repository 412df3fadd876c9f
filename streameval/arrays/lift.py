"""The lift curve of a clustering in memory, and the area under it.

Spam comes in clusters, so points in large clusters are likely positive, and a good clustering saves labelling them one
by one. Clusters are taken from the largest to the smallest. Each is a step whose width is its size and whose height is
the number of positives so far; clusters of equal size share the mean of their positives, so that their order does not
matter. The height is relative to the number of positives that is *assumed*: all points of clusters larger than the
threshold, and the positives of the others, which are inspected one by one.

The area is 1 for one pure cluster of all positives, (n + 1)/2n for n singletons, and less for large clusters of
negatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from streameval.arrays import inputs
from streameval.arrays.sparse_table import as_sequence, encode_labels
from streameval.errors import DataError, MissingInputError, NullError, OptionError
from streameval.metrics.clusters import aul
from streameval.plots import Style, plot_lift
from streameval.states.cluster_sizes import SizeTable

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.typing import Array, ArrayLike

_MOST = 1e90  # of a count given as a float


class LiftCurve:
    """The lift curve of a clustering.

    Parameters
    ----------
    table : SizeTable
        Number of clusters of each size, and their positives; `from_counts`, `from_clusters` and `from_labels` create
        it.

    Examples
    --------
    >>> LiftCurve.from_clusters([[1, 1, 0], [1], [0]]).aul_score()
    0.575
    """

    def __init__(self, table: SizeTable) -> None:
        self.table = table

    @classmethod
    def from_counts(cls, counts_true: ArrayLike, counts_pred: ArrayLike) -> LiftCurve:
        """The curve of clusters given by their numbers of positives and their sizes.

        Parameters
        ----------
        counts_true : array-like of shape (n_clusters,), positives of each cluster
        counts_pred : array-like of shape (n_clusters,), size of each cluster, or the positives predicted in it; if the
            positives exceed it, the area may exceed 1

        Raises
        ------
        DataError
            If lengths differ, an array is empty, or a count is negative, NaN or infinite.

        Examples
        --------
        >>> LiftCurve.from_counts([2, 1, 0], [3, 1, 1]).aul_score()
        0.575
        """
        positives, sizes = _counts(counts_true, "counts_true"), _counts(counts_pred, "counts_pred")
        inputs.same_length(positives.size, "counts_true", counts_pred=sizes)
        return cls(SizeTable.of(sizes, positives))

    @classmethod
    def from_clusters(cls, clusters: ArrayLike, is_class_pos: inputs.Predicate = inputs.num2bool) -> LiftCurve:
        """The curve of clusters that are given as lists of the labels of their points.

        Parameters
        ----------
        clusters : iterable of clusters, each an iterable of labels; empty clusters are skipped
        is_class_pos : function that says whether a label is positive; by default, labels above zero are

        Examples
        --------
        >>> LiftCurve.from_clusters(["sss", "h"], lambda label: label == "s").aul_score()
        1.0
        """
        sizes, label = inputs.cluster_counts(clusters, is_class_pos)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        return cls(SizeTable.of(sizes, np.add.reduceat(label.astype(np.int64), starts)))

    @classmethod
    def from_labels(
        cls, labels_true: ArrayLike, labels_pred: ArrayLike, is_class_pos: inputs.Predicate = inputs.num2bool
    ) -> LiftCurve:
        """The curve of points with a class label and a cluster.

        Parameters
        ----------
        labels_true : array-like of shape (n,), class labels
        labels_pred : array-like of shape (n,), cluster of each point; any hashable except None and NaN
        is_class_pos : function that says whether a label is positive; by default, labels above zero are

        Examples
        --------
        >>> LiftCurve.from_labels([1, 1, 0, 1, 0], ["a", "a", "a", "b", "c"]).aul_score()
        0.575
        """
        label, codes = inputs.labels_by_predicate(labels_true, is_class_pos), _codes(labels_pred)
        inputs.same_length(len(label), "labels_true", labels_pred=codes)
        return cls(SizeTable.of(np.bincount(codes), np.bincount(codes[label > 0], minlength=int(codes.max()) + 1)))

    def aul_score(self, threshold: float = 1, plot: bool = False) -> Any:
        """Area under the lift curve.

        Parameters
        ----------
        threshold : all points of clusters larger than this are assumed to be positive
        plot : whether to return the curve as well

        Returns
        -------
        aul : float, usually in [0, 1]; 0 if no positives are assumed
        xs, ys : float64 arrays of shape (2·n_clusters,), only with `plot`: the left and right end of each step, as
            shares of the points and of the assumed positives (NaN if none are assumed)

        Raises
        ------
        OptionError
            If the threshold is not a number.

        Examples
        --------
        >>> LiftCurve.from_counts([2, 1, 0], [3, 1, 1]).aul_score(plot=True)
        (0.575, array([0. , 0.6, 0.6, 0.8, 0.8, 1. ]), array([0.5 , 0.5 , 0.625, 0.625, 0.75 , 0.75 ]))
        """
        if not isinstance(threshold, int | float | np.number) or np.isnan(threshold):
            raise OptionError(
                f"threshold={threshold!r}; give the size of cluster above which all points are assumed positive"
            )
        area = aul(self.table, float(threshold))
        return (area, *self._points(float(threshold))) if plot else area

    def _points(self, threshold: float) -> tuple[Array, Array]:
        """The coordinates of both ends of every step."""
        size, clusters, positives = (
            column[::-1] for column in (self.table.size, self.table.clusters, self.table.positives)
        )
        height = np.where(size > threshold, size * clusters, positives).sum()
        right = np.cumsum(np.repeat(size, clusters))
        rank = np.arange(1, right.size + 1) - np.repeat(np.cumsum(clusters) - clusters, clusters)
        before = np.repeat(np.cumsum(positives) - positives, clusters)
        top = before + rank * np.repeat(positives, clusters) / np.repeat(clusters, clusters)
        xs = np.stack((np.concatenate(([0], right[:-1])), right), axis=1).ravel()
        ys = np.repeat(top, 2)
        return xs / (right[-1] or np.nan), ys / (height or np.nan)

    def plot(
        self,
        threshold: float = 1,
        fill: bool = True,
        marker: str | None = None,
        save_to: str | Path | None = None,
        *,
        ax: Axes | None = None,
        of: str | None = None,
        truncate: float | None = None,
    ) -> Axes:
        """Draw the curve; see `streameval.plots.plot_lift`.

        Parameters
        ----------
        threshold : all points of clusters larger than this are assumed to be positive
        fill : whether to shade the area
        marker : matplotlib marker at each end of a step
        save_to : path ending in .png, .svg or .pdf, optional
        ax : axes to draw on; by default those of a new figure
        of : name of the clustering, for the legend
        truncate : largest share of points shown, in (0, 1]

        Returns
        -------
        matplotlib Axes
        """
        area, xs, ys = self.aul_score(threshold, plot=True)
        style: Style = {"fill": fill, "marker": marker, "save_to": save_to, "ax": ax, "of": of, "truncate": truncate}
        return plot_lift(xs, ys, area, **style)


def _counts(values: ArrayLike, name: str) -> Array:
    """Counts as an int64 array, or float64 if they are given as floats; raises `DataError` for invalid counts."""
    array = inputs.numbers(values, name)
    wrong = np.flatnonzero(~(array >= 0) | (array == np.inf))
    if wrong.size:
        raise DataError(f"{name} has {array[wrong[0]]} at position {wrong[0]}; counts must be finite and at least 0")
    wrong = np.flatnonzero((array > _MOST) | ((array > 0) & (array < 1 / _MOST)))
    if wrong.size:
        raise DataError(
            f"{name} has {array[wrong[0]]} at position {wrong[0]}, whose products leave float64; scale the counts"
        )
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def _codes(labels: ArrayLike) -> Array:
    """A code, from 0, for the cluster of each point.

    Raises
    ------
    MissingInputError
        If there are no points.
    NullError
        If a cluster is None or NaN.
    """
    codes, distinct = encode_labels(as_sequence(labels, "labels_pred"))
    if not codes.size:
        raise MissingInputError("labels_pred is empty; give at least one point")
    listing = isinstance(distinct, list)
    if any(map(inputs.is_null, distinct)) if listing else pc.any(pc.is_null(distinct, nan_is_null=True)).as_py():
        raise NullError("labels_pred has a null or NaN; give every point that is in no cluster its own cluster")
    return codes


def aul_score_from_clusters(clusters: ArrayLike) -> float:
    """Area under the lift curve of clusters that are given as lists of the labels of their points.

    Parameters
    ----------
    clusters : iterable of clusters, each an iterable of labels; labels above zero are positive

    Returns
    -------
    float, see `LiftCurve.aul_score`

    Raises
    ------
    MissingInputError
        If there are no points.
    LabelError
        If labels are not numbers.

    Examples
    --------
    >>> aul_score_from_clusters([[1], [0], [1], [0]])  # no clustering: (n + 1)/2n
    0.625
    """
    return float(LiftCurve.from_clusters(clusters).aul_score())


def aul_score_from_labels(y_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Area under the lift curve of points with a label and a cluster.

    Parameters
    ----------
    y_true : array-like of shape (n,), labels; those above zero are positive
    labels_pred : array-like of shape (n,), cluster of each point

    Returns
    -------
    float, see `LiftCurve.aul_score`

    Raises
    ------
    DataError
        If there are no points, the lengths differ, labels are not numbers, or a cluster is null.

    Examples
    --------
    >>> aul_score_from_labels([1, 1, 0, 0], [7, 7, 8, 9])
    1.0
    """
    return float(LiftCurve.from_labels(y_true, labels_pred).aul_score())
