"""A sparse table of counts: its constructors, contents and conversions, and the tables expected under null models.

The table consists of three arrays: row codes, column codes and counts of its non-zero cells, sorted by row and column.
Only `to_array`, `to_rows` and `expected` create a dense R×C table. Labels may be any hashables. Arrays of labels of one
type are encoded by hashing in compiled code, all others by a dictionary. Rows and columns are in the order of first
appearance. The diagonal tables are those at which measures reach their ceilings.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.arrays.inputs import as_arrow, generator, unmask_nulls
from streameval.errors import DataError, OptionError
from streameval.metrics.contingency.arithmetic import plain
from streameval.metrics.contingency.measures import margins_of
from streameval.states.contingency.summary import Summary, summarize

if TYPE_CHECKING:
    from streameval.typing import Array, ArrayLike

    Pair = tuple[Hashable, Hashable]  # a class and a cluster

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


def encode_labels(labels: ArrayLike) -> tuple[Codes, pa.Array | list[Hashable]]:
    """The code of each label, and the distinct labels in the order of first appearance; Arrow encodes what it can.

    Raises
    ------
    DataError
        If a label is not hashable, or an array has more than one dimension.

    Examples
    --------
    >>> encode_labels([0.0, -0.0, 1.0])[0].tolist(), encode_labels([2**63, "a", 2**63])
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


def _number_values(labels: ArrayLike) -> tuple[Codes, list[Hashable]]:
    codes, distinct = encode_labels(labels)
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


def as_sequence(values: Any, name: str) -> Any:
    """Values as a sequence with a length; a string becomes a list of its characters."""
    values = unmask_nulls(values)
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
    labels_true, labels_pred = as_sequence(labels_true, "labels_true"), as_sequence(labels_pred, "labels_pred")
    if len(labels_true) != len(labels_pred):
        lengths = f"{len(labels_true)} and {len(labels_pred)}"
        raise DataError(f"labels_true and labels_pred have lengths {lengths}; give one of each for every point")
    (rows, row_labels), (cols, col_labels) = _number_values(labels_true), _number_values(labels_pred)
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
    classes, clusters, counts = (
        as_sequence(classes, "classes"),
        as_sequence(clusters, "clusters"),
        as_sequence(counts, "counts"),
    )
    if not len(classes) == len(clusters) == len(counts):
        lengths = f"{len(classes)}, {len(clusters)} and {len(counts)}"
        raise DataError(f"classes, clusters and counts have lengths {lengths}; give one of each for every cell")
    weights = check_counts(counts)
    (rows, row_labels), (cols, col_labels) = _number_values(classes), _number_values(clusters)
    keys, position = np.unique(rows * max(len(col_labels), 1) + cols, return_inverse=True)
    sums = np.zeros(keys.size, dtype=weights.dtype)
    np.add.at(sums, position, weights)
    keep = np.flatnonzero(sums)
    rows, cols = np.divmod(keys[keep], max(len(col_labels), 1))
    return Cells(rows, cols, sums[keep], row_labels, col_labels)


def check_counts(counts: ArrayLike) -> Array:
    """Counts as an int64, float64 or object array; raises `DataError` for negative, NaN and infinite counts."""
    array = np.asarray(counts)
    if array.dtype.kind == "b" or array.size == 0:
        array = array.astype(np.int64)
    rounded = array.dtype.kind == "f" and array.ndim == 1 and not hasattr(counts, "__array__")
    large = array.dtype.kind == "f" and np.isfinite(array).all() and (array > _MOST).any()
    extreme = large or (array.dtype.kind == "f" and ((array > 0) & (array < 1 / _MOST)).any())
    mixed = rounded and any(isinstance(n, Integral) and int(n) > _EXACT for n in counts)
    if array.dtype.kind not in "iuf" or extreme or mixed:
        return _check_objects(list(counts))
    wrong = np.flatnonzero(~(array >= 0) | (array == np.inf))
    if wrong.size:
        raise DataError(f"counts has {array[wrong[0]]} at position {wrong[0]}; counts must be finite and at least 0")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        whole = bool(np.all(array == np.floor(array))) and array.sum() < _EXACT
        return array.astype(np.int64) if whole else array
    return array.astype(object) if array.size and int(array.max()) * array.size >= 2**63 else array.astype(np.int64)


def _check_objects(counts: Sequence[object]) -> Array:
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
    return iter(container.items() if isinstance(container, Mapping) else enumerate(as_sequence(container, name)))


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
        array = np.asarray(unmask_nulls(rows))
        if array.ndim != 2:
            raise DataError(f"rows has shape {array.shape}; give a table of two dimensions")
        counts = check_counts(array.ravel())
        at = np.flatnonzero(counts)
        return Cells(*np.divmod(at, max(array.shape[1], 1)), counts[at], *(list(range(size)) for size in array.shape))
    table = [(i, row if isinstance(row, Mapping) else as_sequence(row, "a row")) for i, row in _items(rows, "rows")]
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
        (label, cluster)
        for cluster, labels in _items(clusters, "clusters")
        for label in as_sequence(labels, "a cluster")
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
        for point in as_sequence(points, "a group"):
            if groups.setdefault(point, group) != group:
                raise DataError(f"point {point!r} is in two groups of the {name} partition; groups must be disjoint")
    return groups


class SparseTable:
    """Counts of points by class (row) and cluster (column); `streameval.ContingencyTable` adds the measures."""

    def __init__(self, rows: ArrayLike | None = None, cols: ArrayLike | None = None) -> None:
        if (rows is None) == (cols is None):
            raise OptionError("give either rows or cols")
        if rows is not None:
            self.cells = cells_from_rows(rows)
        else:
            c = cells_from_rows(cols)
            order = np.lexsort((c.rows, c.cols))
            self.cells = Cells(c.cols[order], c.rows[order], c.counts[order], c.col_labels, c.row_labels)

    @classmethod
    def _of(cls, cells: Cells) -> Self:
        table = cls.__new__(cls)
        table.cells = cells
        return table

    @classmethod
    def from_labels(cls, labels_true: ArrayLike, labels_pred: ArrayLike) -> Self:
        """Table of two labellings of the same points.

        Parameters
        ----------
        labels_true, labels_pred : sequences of hashables, or arrays, of shape (n_points,)
            Class and cluster of each point. Labels are compared as in Python, except that all NaNs are one label.

        Raises
        ------
        DataError
            If their lengths differ, an array is not one-dimensional, or a label is not hashable.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> table = ContingencyTable.from_labels(["spam", "spam", "ham"], [7, 8, 8])
        >>> table, table["spam", 8], table["ham", 7], table.get(("eggs", 7))
        (ContingencyTable(rows=[[1, 1], [0, 1]]), 1, 0, None)
        """
        return cls._of(cells_from_labels(labels_true, labels_pred))

    @classmethod
    def from_clusters(cls, clusters: ArrayLike) -> Self:
        """Table of clusters that are given as lists of the classes of their points.

        Parameters
        ----------
        clusters : sequence or mapping of sequences of hashables
            The keys of a mapping are the names of the clusters.

        Raises
        ------
        DataError
            If a cluster is not a sequence, or a class is not hashable.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> ContingencyTable.from_clusters([["spam", "spam"], ["ham", "spam"]]).to_array()
        array([[2, 1],
               [0, 1]])
        """
        return cls._of(cells_from_clusters(clusters))

    @classmethod
    def from_partitions(cls, partitions1: ArrayLike, partitions2: ArrayLike) -> Self:
        """Table of two partitions of the same points, each a collection of disjoint groups.

        Parameters
        ----------
        partitions1, partitions2 : sequences or mappings of groups
            Classes and clusters; a group is a collection of hashable points. The keys of a mapping name the groups.

        Raises
        ------
        DataError
            If a point is in two groups of a partition, or in one partition only.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> table = ContingencyTable.from_partitions([(1, 2, 3), (4, 5, 6)], [(1, 2), (3, 4, 5), (6,)])
        >>> table.split_join_similarity(model=None)
        0.75
        """
        return cls._of(cells_from_partitions(partitions1, partitions2))

    @classmethod
    def from_counts(cls, classes: ArrayLike, clusters: ArrayLike, counts: ArrayLike) -> Self:
        """Table given as cells, each with its class, cluster and count; counts of equal pairs are added.

        Parameters
        ----------
        classes, clusters : sequences of hashables, or arrays, of shape (n_cells,)
        counts : sequence of numbers, or array, of shape (n_cells,)
            Integers of any size, fractions or floats, finite and at least 0; cells with 0 are left out.

        Raises
        ------
        DataError
            If the lengths differ, a label is not hashable, or a count is not such a number.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> ContingencyTable.from_counts([0, 1, 1], [0, 0, 1], [10**12, 5, 7]).grand_total
        1000000000012
        """
        return cls._of(cells_from_counts(classes, clusters, counts))

    # -- contents

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns that are not all zeros, (R, C)."""
        return self.summary.shape

    @property
    def grand_total(self) -> int | float:
        """Number of points, N."""
        return plain(self.summary.total)

    @property
    def nonzero_cells(self) -> int:
        """Number of non-zero cells, V."""
        return int(self.cells.counts.size)

    @property
    def row_totals(self) -> dict[Hashable, int | float]:
        """Class -> number of points."""
        return self._totals(self.cells.row_labels, self.cells.rows)

    @property
    def col_totals(self) -> dict[Hashable, int | float]:
        """Cluster -> number of points."""
        return self._totals(self.cells.col_labels, self.cells.cols)

    def _totals(self, labels: list[Hashable], codes: Codes) -> dict[Hashable, int | float]:
        sums = np.zeros(len(labels), dtype=object)
        np.add.at(sums, codes, self.cells.counts.astype(object))
        return {label: plain(total) for label, total in zip(labels, sums.tolist(), strict=True)}

    def __len__(self) -> int:
        return self.nonzero_cells

    def items(self) -> Iterator[tuple[Pair, int | float]]:
        """Non-zero cells as ((class, cluster), count)."""
        c = self.cells
        for row, col, count in zip(c.rows.tolist(), c.cols.tolist(), c.counts.tolist(), strict=True):
            yield (c.row_labels[row], c.col_labels[col]), plain(count)

    def keys(self) -> list[Pair]:
        """(class, cluster) of the non-zero cells."""
        return list(self._counts)

    def values(self) -> list[int | float]:
        """Counts of the non-zero cells."""
        return list(self._counts.values())

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._counts)

    def __contains__(self, key: Pair) -> bool:
        return key[0] in self.row_totals and key[1] in self.col_totals

    def __getitem__(self, key: Pair) -> int | float:
        """Count of a class and a cluster; 0 if they have no point in common. Raises `KeyError` for unknown labels."""
        if key not in self._counts and key not in self:
            raise KeyError(key)
        return self._counts.get(key, 0)

    @cached_property
    def _counts(self) -> dict[Pair, int | float]:
        return dict(self.items())

    def get(self, key: Pair, default: Any = None) -> Any:
        """Count of a class and a cluster, or the default if the table lacks one of them."""
        try:
            return self[key]
        except KeyError:
            return default

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparseTable) and self._counts == other._counts

    def __hash__(self) -> int:
        return hash(self.summary)

    def __repr__(self) -> str:
        rows, cols = len(self.cells.row_labels), len(self.cells.col_labels)
        if rows * cols <= 100:
            return f"{type(self).__name__}(rows={self.to_rows()})"
        return f"<{type(self).__name__}: {rows} × {cols}, {self.nonzero_cells} cells, total {self.grand_total}>"

    def to_array(self, default: float = 0, cpad: bool = False, rpad: bool = False) -> Array:
        """Dense R×C array.

        Parameters
        ----------
        default : number, default 0
            Value of the cells without a count.
        cpad : bool, default False
            Add rows until there are as many as columns.
        rpad : bool, default False
            Add columns until there are as many as rows.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> ContingencyTable(rows=[[1, 2, 0]]).to_array(cpad=True)
        array([[1, 2, 0],
               [0, 0, 0],
               [0, 0, 0]])
        """
        dense = self._dense()
        rows, cols = dense.shape
        padded = (max(rows, cols) if cpad else rows, max(rows, cols) if rpad else cols)
        full = np.full(padded, default, dtype=np.result_type(dense, np.asarray(default)))
        full[:rows, :cols] = np.where(dense == 0, default, dense) if default else dense
        return full

    def _dense(self) -> Array:
        c = self.cells
        counts = c.counts
        if any(isinstance(n, Fraction) for n in counts[:1].tolist()) or self.summary.fractional:
            counts = counts.astype(np.float64)
        dense = np.zeros((len(c.row_labels), len(c.col_labels)), dtype=counts.dtype)
        dense[c.rows, c.cols] = counts
        return dense

    def to_rows(self, default: float = 0, cpad: bool = False, rpad: bool = False) -> list[list[int | float]]:
        """Dense table as nested lists; see `to_array`."""
        rows: list[list[int | float]] = self.to_array(default, cpad, rpad).tolist()
        return rows

    def to_labels(self) -> tuple[list[Hashable], list[Hashable]]:
        """Two labellings of the points, the inverse of `from_labels` up to order; `OptionError` for fractions."""
        pairs = [pair for pair, count in self.items() for _ in range(_whole(count))]
        return [row for row, _ in pairs], [col for _, col in pairs]

    def to_clusters(self) -> list[list[Hashable]]:
        """The classes of the points of each cluster, the inverse of `from_clusters` up to order."""
        clusters: dict[Hashable, list[Hashable]] = {label: [] for label in self.cells.col_labels}
        for row, col in zip(*self.to_labels(), strict=True):
            clusters[col].append(row)
        return list(clusters.values())

    def to_partitions(self) -> tuple[list[list[int]], list[list[int]]]:
        """Two partitions of the points 0..N−1, the inverse of `from_partitions` up to the names of the points."""
        sides = []
        for labels, names in zip(self.to_labels(), (self.cells.row_labels, self.cells.col_labels), strict=True):
            groups: dict[Hashable, list[int]] = {name: [] for name in names}
            for point, label in enumerate(labels):
                groups[label].append(point)
            sides.append(list(groups.values()))
        return sides[0], sides[1]

    @cached_property
    def summary(self) -> Summary:
        """Histograms of sizes from which all measures but the assignment score are computed."""
        return summarize(self.cells.rows, self.cells.cols, self.cells.counts)

    @cached_property
    def _drawn(self) -> dict[str, tuple[int | None, Self]]:
        """For each model, the last discrete expected table with its seed."""
        return {}

    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model, with R×C cells; empty rows and columns are left out.

        Parameters
        ----------
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            What is fixed: only N (m1, x1), the row totals (m2r, x2r), the column totals (m2c, x2c), or both (m3). The
            ``x`` models put everything into the first row and column that the fixed margins allow.
        discrete : bool, default False
            Round each count up or down at random, so that its mean is the expected count.
        redraw : bool, default False
            Draw again. Otherwise a table keeps its last draw for each model until another seed is given.
        random_state : int or None
            Seed of the draw; None returns the kept draw if there is one, and draws without a seed otherwise.

        Raises
        ------
        OptionError
            If the model is unknown.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> ContingencyTable(rows=[[3, 1], [1, 3]]).expected("m3").to_array()
        array([[2, 2],
               [2, 2]])
        """
        seed, kept = self._drawn.get(model, (None, None))
        if discrete and not redraw and kept is not None and random_state in (None, seed):
            return kept
        total, margins = float(self.summary.total), []
        for kind, side in zip(margins_of(model), (self.row_totals, self.col_totals), strict=True):
            sizes = np.array([float(n) for n in side.values() if n])
            if kind == "even":
                sizes = np.full(sizes.size, total / max(sizes.size, 1))
            elif kind == "first":
                sizes = np.where(np.arange(sizes.size) == 0, total, 0.0)
            margins.append(sizes)
        rows, cols = margins
        counts = rows[:, None] * cols / total if self.grand_total else np.zeros((0, 0))
        labels = [label for label, n in self.row_totals.items() if n], [x for x, n in self.col_totals.items() if n]
        if not discrete:
            return self._counted(counts, *labels)
        whole = np.floor(counts)
        drawn = generator(random_state).random(counts.shape) < counts - whole
        table = self._counted(whole + drawn, *labels)
        self._drawn[model] = random_state, table
        return table

    def _counted(self, counts: Array, row_labels: list[Hashable], col_labels: list[Hashable]) -> Self:
        rows, cols = np.nonzero(counts)
        weights = check_counts(counts[rows, cols])
        return self._of(Cells(rows.astype(np.int64), cols.astype(np.int64), weights, row_labels, col_labels))

    def row_diag(self) -> Self:
        """Diagonal table of the row totals: a clustering equal to the classes."""
        totals = self.row_totals
        return self.from_counts(list(totals), list(totals), list(totals.values()))

    def col_diag(self) -> Self:
        """Diagonal table of the column totals: classes equal to the clusters."""
        totals = self.col_totals
        return self.from_counts(list(totals), list(totals), list(totals.values()))

    def expected_freqs_(self, model: str = "m3") -> Self:
        """Table of expected counts under a null model; the same as ``expected(model)``."""
        return self.expected(model)


def _whole(count: int | float) -> int:
    if not isinstance(count, int):
        raise OptionError(f"a cell has {count} points; labels need whole counts")
    return count
