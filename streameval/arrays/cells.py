"""The cells of a sparse table from labels, clusters, partitions or nested rows.

A table consists of three arrays, row codes, column codes and counts, with one entry for each non-zero cell, sorted by
row and column; no dense R×C array is created. Labels may be any hashables. Arrays of labels of one type are encoded by
hashing in compiled code, all others by a dictionary. Rows and columns are in the order of first appearance.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.arrays.inputs import as_arrow, unmasked
from streameval.errors import DataError

if TYPE_CHECKING:
    from streameval.typing import Array, ArrayLike

Codes = NDArray[np.int64]
_EXACT = 2**53
_MOST = 1e75  # of counts that are computed as floats, which products of four do not leave; others become fractions
_FLOATS = (float, np.floating)


class Cells(NamedTuple):
    """Non-zero cells sorted by row and column, with the labels of rows and columns.

    ``rows`` and ``cols`` are int64 arrays of shape (n_cells,), indices into ``row_labels`` and ``col_labels``;
    ``counts`` is an array of the same shape, of int64, float64, or objects for large integers and fractions.
    """

    rows: Codes
    cols: Codes
    counts: NDArray[Any]
    row_labels: list[Any]
    col_labels: list[Any]


def encoded(labels: ArrayLike) -> tuple[Codes, pa.Array | list[Hashable]]:
    """The code of each label, and the distinct labels in the order of first appearance; Arrow encodes what it can.

    Raises
    ------
    DataError
        If a label is not hashable, or an array has more than one dimension.

    Examples
    --------
    >>> encoded([0.0, -0.0, 1.0])[0].tolist(), encoded([2**63, "a", 2**63])
    ([0, 0, 1], (array([0, 1, 0]), [9223372036854775808, 'a']))
    """
    arrow = as_arrow(labels)
    array = _as_array(labels) if arrow is None else arrow
    if array is not None:
        with suppress(UnicodeError):  # a lone surrogate is valid in a Python string, but not in UTF-8
            dictionary = pa.array(array).dictionary_encode()
            if dictionary.null_count == 0:
                return dictionary.indices.to_numpy().astype(np.int64), dictionary.dictionary
        labels = array.tolist()
    seen: dict[Any, int] = {}
    try:
        unified = (math.nan if isinstance(label, _FLOATS) and label != label else label for label in labels)
        codes = [seen.setdefault(label, len(seen)) for label in unified]
    except TypeError as error:
        raise DataError(f"labels must be hashable: {error}") from error
    return np.array(codes, dtype=np.int64), list(seen)


def _numbered(labels: ArrayLike) -> tuple[Codes, list[Hashable]]:
    codes, distinct = encoded(labels)
    return codes, distinct if isinstance(distinct, list) else distinct.to_pylist()


def _as_array(labels: ArrayLike) -> Array | None:
    """Labels of one type as an array; None if only a dictionary compares them as Python does."""
    if isinstance(labels, np.ndarray) or hasattr(labels, "__array__"):
        array = np.asarray(labels)
        if array.ndim != 1:
            raise DataError(f"labels must be one-dimensional, this array has shape {array.shape}")
        if array.dtype.kind == "f":
            return _number_array(array) if array.dtype.itemsize <= 8 else None
        return array.astype(array.dtype.newbyteorder("="), copy=False) if array.dtype.kind in "iubU" else None
    kinds = set(map(type, labels))
    if kinds == {float}:
        return _number_array(np.array(labels))
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        return np.array(labels, dtype=np.int64)
    return np.array(labels, dtype=np.str_) if kinds == {str} and "\0" not in "".join(labels) else None


def _number_array(labels: Array) -> Array:
    """Floats as labels: -0.0 becomes 0.0; all NaNs are one label, as in scikit-learn."""
    return labels.astype(np.float64) + 0.0


def listed(values: Any, name: str) -> Any:
    """Values as a sequence with a length; a string becomes a list of its characters."""
    values = unmasked(values)
    if hasattr(values, "__array__") and not hasattr(values, "__len__"):
        values = np.asarray(values)
    if getattr(values, "ndim", 1) == 0 or not (hasattr(values, "__array__") or isinstance(values, Iterable)):
        raise DataError(f"{name} is {values!r}; give a sequence")
    has_length = hasattr(values, "__array__") or (isinstance(values, Sequence) and not isinstance(values, str | bytes))
    return values if has_length else list(values)


def cells_from_labels(labels_true: Any, labels_pred: Any) -> Cells:
    """Cells of two labellings of the same points.

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> cells = cells_from_labels(["b", "b", "a"], [7, 8, 8])
    >>> cells.rows.tolist(), cells.cols.tolist(), cells.counts.tolist(), cells.row_labels
    ([0, 0, 1], [0, 1, 1], [1, 1, 1], ['b', 'a'])
    """
    labels_true, labels_pred = listed(labels_true, "labels_true"), listed(labels_pred, "labels_pred")
    if len(labels_true) != len(labels_pred):
        lengths = f"{len(labels_true)} and {len(labels_pred)}"
        raise DataError(f"labels_true and labels_pred have lengths {lengths}; give one of each for every point")
    (rows, row_labels), (cols, col_labels) = _numbered(labels_true), _numbered(labels_pred)
    keys = np.sort(rows * max(len(col_labels), 1) + cols)
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(np.append(starts, keys.size))
    rows, cols = np.divmod(keys[starts], max(len(col_labels), 1))
    return Cells(rows, cols, counts, row_labels, col_labels)


def cells_from_counts(classes: Any, clusters: Any, counts: Any) -> Cells:
    """Cells given as (class, cluster, count); counts of equal pairs are added, and zeros left out.

    Counts are integers of any size, fractions or floats, finite and at least 0. Floats become integers if all are
    whole.

    Raises
    ------
    DataError
        If the lengths differ, a label is not hashable, or a count is not such a number.
    """
    classes, clusters, counts = listed(classes, "classes"), listed(clusters, "clusters"), listed(counts, "counts")
    if not len(classes) == len(clusters) == len(counts):
        lengths = f"{len(classes)}, {len(clusters)} and {len(counts)}"
        raise DataError(f"classes, clusters and counts have lengths {lengths}; give one of each for every cell")
    weights = checked_counts(counts)
    (rows, row_labels), (cols, col_labels) = _numbered(classes), _numbered(clusters)
    keys, position = np.unique(rows * max(len(col_labels), 1) + cols, return_inverse=True)
    sums = np.zeros(keys.size, dtype=weights.dtype)
    np.add.at(sums, position, weights)
    keep = np.flatnonzero(sums)
    rows, cols = np.divmod(keys[keep], max(len(col_labels), 1))
    return Cells(rows, cols, sums[keep], row_labels, col_labels)


def checked_counts(counts: ArrayLike) -> Array:
    """Counts as an int64, float64 or object array; raises `DataError` for negative, NaN and infinite counts."""
    array = np.asarray(counts)
    if array.dtype.kind == "b" or array.size == 0:
        array = array.astype(np.int64)
    rounded = array.dtype.kind == "f" and array.ndim == 1 and not hasattr(counts, "__array__")
    large = array.dtype.kind == "f" and np.isfinite(array).all() and (array > _MOST).any()
    extreme = large or (array.dtype.kind == "f" and ((array > 0) & (array < 1 / _MOST)).any())
    mixed = rounded and any(isinstance(n, Integral) and int(n) > _EXACT for n in counts)
    if array.dtype.kind not in "iuf" or extreme or mixed:
        return _checked_objects(list(counts))
    wrong = np.flatnonzero(~(array >= 0) | (array == np.inf))
    if wrong.size:
        raise DataError(f"counts has {array[wrong[0]]} at position {wrong[0]}; counts must be finite and at least 0")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        whole = bool(np.all(array == np.floor(array))) and array.sum() < _EXACT
        return array.astype(np.int64) if whole else array
    return array.astype(object) if array.size and int(array.max()) * array.size >= 2**63 else array.astype(np.int64)


def _checked_objects(counts: Sequence[object]) -> Array:
    values = np.empty(len(counts), dtype=object)
    values[:] = [exact_count(count, "counts") for count in counts]
    whole = all(isinstance(v, int) for v in values)
    return values.astype(np.int64) if whole and sum(values.tolist()) < 2**63 else values


def exact_count(count: object, name: str) -> int | Fraction:
    """A count as an exact number; raises `DataError` unless it is a finite number of at least 0.

    Examples
    --------
    >>> exact_count(3.0, "TP"), exact_count(0.5, "TP"), exact_count(10**400, "TP") == 10**400
    (3, Fraction(1, 2), True)
    """
    if not isinstance(count, Real) or count < 0 or not (isinstance(count, Rational) or math.isfinite(count)):
        raise DataError(f"{name} is {count!r}; counts must be finite numbers of at least 0")
    if isinstance(count, Rational):
        exact = Fraction(int(count.numerator), int(count.denominator))
    else:
        exact = Fraction(float(count))
    return exact.numerator if exact.denominator == 1 else exact


def _items(container: object, name: str) -> Iterator[tuple[object, object]]:
    return iter(container.items() if isinstance(container, Mapping) else enumerate(listed(container, name)))


def cells_from_rows(rows: object) -> Cells:
    """Cells of nested rows: a 2-D array, a list of lists, or a mapping row -> (mapping column -> count).

    The labels of rows and columns of zeros are kept. Nested sequences must have equal lengths.

    Raises
    ------
    DataError
        If an array is not two-dimensional, rows have different lengths, or a count is not a number of at least 0.

    Examples
    --------
    >>> cells = cells_from_rows({"a": {"x": 2, "y": 3}, "b": {"x": 4}})
    >>> cells.rows.tolist(), cells.cols.tolist(), cells.counts.tolist()
    ([0, 0, 1], [0, 1, 0], [2, 3, 4])
    """
    if hasattr(rows, "__array__"):
        array = np.asarray(unmasked(rows))
        if array.ndim != 2:
            raise DataError(f"rows has shape {array.shape}; give a table of two dimensions")
        counts = checked_counts(array.ravel())
        at = np.flatnonzero(counts)
        return Cells(*np.divmod(at, max(array.shape[1], 1)), counts[at], *(list(range(size)) for size in array.shape))
    table = [(i, row if isinstance(row, Mapping) else listed(row, "a row")) for i, row in _items(rows, "rows")]
    lengths = {len(row) for _, row in table if not isinstance(row, Mapping)}
    if len(lengths) > 1:
        raise DataError(f"rows have lengths {', '.join(map(str, sorted(lengths)))}; give a count for every column")
    triples = [(i, j, n) for i, row in table for j, n in _items(row, "a row")]
    return cells_from_counts(*([triple[column] for triple in triples] for column in range(3)))


def cells_from_clusters(clusters: object) -> Cells:
    """Cells of clusters that are given as lists of the classes of their points.

    Examples
    --------
    >>> cells_from_clusters([["spam", "spam"], ["ham"]]).counts.tolist()
    [2, 1]
    """
    pairs = [
        (label, cluster) for cluster, labels in _items(clusters, "clusters") for label in listed(labels, "a cluster")
    ]
    return cells_from_labels([label for label, _ in pairs], [cluster for _, cluster in pairs])


def cells_from_partitions(partition1: object, partition2: object) -> Cells:
    """Cells of two partitions of the same points, each a collection of disjoint groups.

    Raises
    ------
    DataError
        If a point is in two groups of a partition, or in one partition only.

    Examples
    --------
    >>> cells_from_partitions([{1, 2, 3}, {4}], [{1, 2}, {3, 4}]).counts.tolist()
    [2, 1, 1]
    """
    left, right = _membership(partition1, "first"), _membership(partition2, "second")
    if left.keys() != right.keys():
        lone = next(iter(left.keys() ^ right.keys()))
        raise DataError(f"point {lone!r} is in one partition only; both must cover the same points")
    return cells_from_labels(list(left.values()), [right[point] for point in left])


def _membership(partition: object, name: str) -> dict[Hashable, Hashable]:
    groups: dict[Any, Any] = {}
    for group, points in _items(partition, f"the {name} partition"):
        for point in listed(points, "a group"):
            if groups.setdefault(point, group) != group:
                raise DataError(f"point {point!r} is in two groups of the {name} partition; groups must be disjoint")
    return groups
