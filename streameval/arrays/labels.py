"""Labels of any kind as 0 and 1, and clusters that are given as lists of the labels of their points.

Labels are read in one of two ways. By value: `pos_label` names the positive label. Without it, numbers above zero are
positive, and there may be at most two values, on either side of zero, such as 0/1, −1/1 and booleans. By predicate: a
function, by default `num2bool`, says which labels are positive, and there may be any number of values.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.arrays.inputs import first, fold, is_null, numbers, plain, refuse_nan, same_length, scores, weights
from streameval.errors import DataError, LabelError, NullError, SchemaError
from streameval.states.labels import is_float

if TYPE_CHECKING:
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array, ArrayLike

Predicate = Callable[[Any], Any]

_LISTED = 5  # largest number of labels in a message


def num2bool(num: Any) -> Any:
    """Whether a number is above zero, the default rule for labels such as 0/1, −1/1 and booleans.

    Parameters
    ----------
    num : number, or array of any shape

    Returns
    -------
    bool, or bool array of the same shape; False for NaN

    Raises
    ------
    TypeError
        If the label is not a number.

    Examples
    --------
    >>> num2bool(1), num2bool(0), num2bool(-1)
    (True, False, False)
    """
    return num > 0


def labels_by_value(values: ArrayLike, pos_label: object = None, name: str = "y_true", ndim: int = 1) -> Array:
    """Labels as a uint8 array of the same shape, 1 where they equal `pos_label`, or are above zero if it is None.

    Raises
    ------
    LabelError
        If it is not clear which label is positive, or `pos_label` does not occur.
    NullError
        If a label is NaN or null.

    Examples
    --------
    >>> labels_by_value([-1, 1, 1]), labels_by_value(["ham", "spam"], pos_label="spam")
    (array([0, 1, 1], dtype=uint8), array([0, 1], dtype=uint8))
    """
    array = plain(values, name, ndim)
    refuse_nan(array, name, "drop those points")
    if array.dtype.kind not in "biufUS":
        column = _python(array, name)
        if any(map(is_null, column)):
            raise NullError(f"{name} has a null among its labels; drop those points")
        array = _by_sign(array, column, name) if pos_label is None else _objects(column).reshape(array.shape)
    return _above_zero(array, name) if pos_label is None else _equal(array, pos_label, name)


def _by_sign(array: Array, column: list[Any], name: str) -> Array:
    """Labels that are Python numbers as an array of numbers, which tells all of them apart."""
    other = next((label for label in column if not isinstance(label, Number)), None)
    if other is not None:
        raise _not_numbers(other, name)
    unlike = next((label for label in column if not is_float(label)), None)
    if unlike is not None:
        raise LabelError(
            f"{name} has the label {unlike}, which float64 cannot hold; name the positive one with pos_label"
        )
    return numbers(array, name, array.ndim, distinct=True)


def _python(array: Array, name: str) -> list[Any]:
    """Labels as Python objects; dates and times have at most microseconds.

    Raises
    ------
    LabelError
        If times have shares of microseconds, or are too long ago, and so cannot be told apart.
    """
    if array.dtype.kind in "mM":
        given, array = array, array.astype(f"{array.dtype.kind}8[us]")
        changed = given[~np.isnat(given) & (array.astype(given.dtype) != given)]
        if changed.size:
            raise LabelError(
                f"{name} has the time {changed[0]}, which is not a whole number of microseconds; round the times"
            )
    return array.ravel().tolist()


def _objects(column: list[Any]) -> Array:
    """An object array of shape (n,), also for elements that are sequences."""
    array = np.empty(len(column), dtype=object)
    array[:] = column
    return array


def _not_numbers(label: Any, name: str) -> LabelError:
    return LabelError(f"{name} has labels that are not numbers ({label!r}, …); name the positive one with pos_label")


def _above_zero(array: Array, name: str) -> Array:
    """Which labels are above zero, as uint8; raises `LabelError` unless there are at most two, on either side of it."""
    if array.dtype.kind not in "biuf":
        raise _not_numbers(first(array), name)
    low, high = array.min(), array.max()
    others = array[(array != low) & (array != high)]
    if others.size:
        raise LabelError(
            f"{name} has more than two labels ({low}, {others[0]}, {high}, …); name the positive one with pos_label"
        )
    if low != high and (low > 0) == (high > 0):
        raise LabelError(f"{name} has the labels {low} and {high}; name the positive one with pos_label")
    return (array > 0).astype(np.uint8)


def _equal(array: Array, pos_label: object, name: str) -> Array:
    """Which labels equal `pos_label`, as uint8; it must occur unless all labels are equal and of its type."""
    if hasattr(pos_label, "__array__") and not isinstance(pos_label, np.generic):
        raise LabelError(f"pos_label is {type(pos_label).__name__}; name one label of {name}")
    wanted = _as_in(array, pos_label.item() if isinstance(pos_label, np.generic) else pos_label)
    kinds = "U" if isinstance(wanted, str) else "S" if isinstance(wanted, bytes) else "biuf"
    single = wanted is None or isinstance(wanted, str | bytes | Number)  # NumPy compares sequences element by element
    same_kind = array.dtype.kind == "O" or (array.dtype.kind in kinds and single)
    positive = np.zeros(array.shape, np.uint8)
    if same_kind:
        positive = np.asarray(array == (_objects([wanted]) if array.dtype.kind == "O" else wanted)).astype(np.uint8)
    if not positive.any() and not (same_kind and np.asarray(array == array.ravel()[:1]).all()):
        seen = list(dict.fromkeys(map(repr, array.ravel().tolist())))
        listed = ", ".join(seen[:_LISTED]) + (", …" if len(seen) > _LISTED else "")
        raise LabelError(f"{name} has no label {pos_label!r}; it has {listed}; name one of them with pos_label")
    return positive


def _as_in(array: Array, wanted: Any) -> Any:
    """A number as one that NumPy compares exactly with an array of numbers; a float32 array gets the nearest one.

    Examples
    --------
    >>> _as_in(np.array([2**53 + 1]), 2.0**53), _as_in(np.array([2.0**53]), 2**53 + 1)
    (9007199254740992, None)
    """
    if array.dtype.kind in "iu" and isinstance(wanted, float):
        return int(wanted) if wanted.is_integer() else None
    if array.dtype.kind == "f" and isinstance(wanted, int):
        with np.errstate(over="ignore"), suppress(OverflowError):
            nearest = array.dtype.type(wanted)
            return nearest if int(nearest) == wanted else None
        return None
    return wanted


def labels_by_predicate(values: ArrayLike, is_class_pos: Predicate = num2bool, name: str = "labels_true") -> Array:
    """Labels as a uint8 array of shape (n,), 1 where the predicate holds.

    Raises
    ------
    LabelError
        If the labels are not numbers and no predicate is given.
    NullError
        If a label is NaN and no predicate is given.

    Examples
    --------
    >>> labels_by_predicate([0, 1, 3]), labels_by_predicate("ab", lambda label: label == "b")
    (array([0, 1, 1], dtype=uint8), array([0, 1], dtype=uint8))
    """
    if is_class_pos is not num2bool:
        listed = list(values)
        if not listed:
            plain(listed, name)
        return np.array([bool(is_class_pos(label)) for label in listed], dtype=np.uint8)
    try:
        array = numbers(values, name)
    except SchemaError:
        raise LabelError(
            f"{name} has labels that are not numbers; give is_class_pos, a function from a label to True or False"
        ) from None
    refuse_nan(array, name, "drop those points")
    return (array > 0).astype(np.uint8)


class ClusterSizes(NamedTuple):
    """Sizes of clusters, and labels of their points.

    ``sizes`` is an int64 array of shape (n_clusters,); ``labels`` is a uint8 array with the labels of all points,
    0 or 1, cluster by cluster.
    """

    sizes: Array
    labels: Array


def cluster_counts(clusters: ArrayLike, is_class_pos: Predicate = num2bool) -> ClusterSizes:
    """Sizes and labels of clusters that are given as lists of the labels of their points; empty clusters are skipped.

    Raises
    ------
    DataError
        If `clusters` is not a collection of collections, or labels are not usable.

    Examples
    --------
    >>> cluster_counts([[1, 1, 0], [], [1]])
    ClusterSizes(sizes=array([3, 1]), labels=array([1, 1, 0, 1], dtype=uint8))
    """
    try:
        listed = [list(cluster) for cluster in clusters]
    except TypeError as error:
        raise DataError(f"clusters must be a collection of collections of labels: {error}") from error
    sizes = np.array([len(cluster) for cluster in listed if cluster], dtype=np.int64)
    return ClusterSizes(
        sizes, labels_by_predicate([label for cluster in listed for label in cluster], is_class_pos, "clusters")
    )


def checked(
    y_true: ArrayLike, y_score: ArrayLike, pos_label: object, sample_weight: ArrayLike | None, ndim: int = 1
) -> tuple[Array, Array, Array | None]:
    """Validate the arguments of a metric: labels as 0 and 1, scores, and weights.

    Raises
    ------
    DataError
        If shapes differ, or values are not usable.
    """
    label, score = labels_by_value(y_true, pos_label, ndim=ndim), scores(y_score, ndim=ndim)
    same_length(len(label), y_score=score)
    if label.shape != score.shape:
        raise DataError(
            f"y_true has shape {label.shape} and y_score {score.shape}; give one score for every label of every point"
        )
    return label, score, weights(sample_weight, len(label))


def points(y_true: ArrayLike, y_score: ArrayLike, pos_label: object, sample_weight: ArrayLike | None) -> ScoreCounts:
    """The state of the labels, scores and weights that are the arguments of a metric.

    Examples
    --------
    >>> points([0, 1], [0.2, 0.4], None, None).totals().pos
    1
    """
    return fold(*checked(y_true, y_score, pos_label, sample_weight))
