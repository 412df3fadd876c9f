"""A sparse table of counts: its constructors, contents and conversions, and the tables expected under null models.

The table consists of three arrays: row codes, column codes and counts of its non-zero cells. Only `to_array`, `to_rows`
and `expected` create a dense R×C table. The diagonal tables are those at which measures reach their ceilings.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streameval.arrays import cells as source
from streameval.arrays.inputs import generator
from streameval.errors import OptionError
from streameval.metrics.contingency.arithmetic import plain
from streameval.metrics.contingency.measures import margins_of
from streameval.states.contingency.summary import Summary, summarize

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from streameval.typing import Array, ArrayLike

    Pair = tuple[Hashable, Hashable]  # a class and a cluster


class SparseTable:
    """Counts of points by class (row) and cluster (column); `streameval.ContingencyTable` adds the measures."""

    def __init__(self, rows: ArrayLike | None = None, cols: ArrayLike | None = None) -> None:
        if (rows is None) == (cols is None):
            raise OptionError("give either rows or cols")
        if rows is not None:
            self.cells = source.cells_from_rows(rows)
        else:
            c = source.cells_from_rows(cols)
            order = np.lexsort((c.rows, c.cols))
            self.cells = source.Cells(c.cols[order], c.rows[order], c.counts[order], c.col_labels, c.row_labels)

    @classmethod
    def _of(cls, cells: source.Cells) -> Self:
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
        return cls._of(source.cells_from_labels(labels_true, labels_pred))

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
        return cls._of(source.cells_from_clusters(clusters))

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
        return cls._of(source.cells_from_partitions(partitions1, partitions2))

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
        return cls._of(source.cells_from_counts(classes, clusters, counts))

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

    def _totals(self, labels: list[Hashable], codes: source.Codes) -> dict[Hashable, int | float]:
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
        weights = source.checked_counts(counts[rows, cols])
        return self._of(source.Cells(rows.astype(np.int64), cols.astype(np.int64), weights, row_labels, col_labels))

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
