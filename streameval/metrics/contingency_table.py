"""Contingency table of classes (rows) against clusters (columns), sparse, in memory, with every measure as a method.

The table is three arrays: row codes, column codes and counts of its non-zero cells. Measures are functions of its
`facts`, which come from a small summary of sizes; only the best matching looks at the cells again. So a table of a
million points costs one sort, and each measure after it about a millisecond. Null models are evaluated in closed form
(`streameval.metrics.nulls`); a dense R×C table is made only by `to_array`, `to_rows` and `expected`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.metrics import contingency_labels as source
from streameval.metrics import contingency_measures as measures
from streameval.metrics.assignment import best_matching
from streameval.metrics.confusion import ConfusionMatrix2
from streameval.metrics.contingency_arithmetic import Number, plain
from streameval.metrics.contingency_catalogue import (
    PAIR_MEASURES,
    TABLE_MEASURES,
    adjusted,
    measure_by_name,
    name_of,
    of_facts,
    warn_if_adjusted,
    with_model,
)
from streameval.metrics.nulls import MODELS, Facts, TableFacts, diagonal, null_facts
from streameval.states.summary import Summary, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

__all__ = ["ClusteringMetrics", "ContingencyTable"]


class ContingencyTable:
    """Counts of points by class (row) and cluster (column), with external clustering metrics.

    Parameters
    ----------
    rows : 2-D array, nested sequence or mapping of mappings
        Counts, row by row; finite numbers of at least 0. Fractional counts are accepted, except where a measure needs
        whole ones. Rows and columns of zeros keep their place in `to_array` and count nowhere else.
    cols : the same, column by column
        Instead of `rows`.

    Examples
    --------
    >>> table = ContingencyTable.from_labels([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 2, 2])
    >>> table
    ContingencyTable(rows=[[2, 1, 0], [0, 1, 2]])
    >>> round(table.adjusted_rand_index(), 4), round(table.entropy_scores().v_measure, 4)
    (0.2424, 0.5158)
    >>> table.pairwise
    ConfusionMatrix2(rows=[[2, 4], [1, 8]])
    """

    def __init__(self, rows: Any = None, cols: Any = None) -> None:
        if (rows is None) == (cols is None):
            msg = "give either rows or cols"
            raise OptionError(msg)
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

    @cached_property
    def _drawn(self) -> dict[str, tuple[int | None, Self]]:
        """Seed and discrete expected table by model, as drawn last."""
        return {}

    @classmethod
    def from_labels(cls, labels_true: Any, labels_pred: Any) -> Self:
        """Table of two labellings of the same points.

        Parameters
        ----------
        labels_true, labels_pred : sequences of hashables, or arrays, of shape (n_points,)
            Class and cluster of each point. Labels are compared as Python compares them, but NaN is one label.

        Raises
        ------
        DataError
            If their lengths differ, an array is not one-dimensional, or a label is not hashable.

        Examples
        --------
        >>> ContingencyTable.from_labels(["spam", "spam", "ham"], [7, 8, 8])
        ContingencyTable(rows=[[1, 1], [0, 1]])
        """
        return cls._of(source.cells_from_labels(labels_true, labels_pred))

    @classmethod
    def from_clusters(cls, clusters: Any) -> Self:
        """Table of clusters that list the class of each of their points.

        Parameters
        ----------
        clusters : sequence or mapping of sequences of hashables
            Clusters of a mapping keep their names.

        Raises
        ------
        DataError
            If a cluster is no sequence, or a class is not hashable.

        Examples
        --------
        >>> ContingencyTable.from_clusters([["spam", "spam"], ["ham", "spam"]]).to_array()
        array([[2, 1],
               [0, 1]])
        """
        return cls._of(source.cells_from_clusters(clusters))

    @classmethod
    def from_partitions(cls, partitions1: Any, partitions2: Any) -> Self:
        """Table of two partitions of the same points, each a collection of disjoint groups.

        Parameters
        ----------
        partitions1, partitions2 : sequences or mappings of groups
            Classes and clusters; a group is a collection of hashable points. Groups of a mapping keep their names.

        Raises
        ------
        DataError
            If a point is in two groups of a partition, or in one partition only.

        Examples
        --------
        >>> table = ContingencyTable.from_partitions([(1, 2, 3), (4, 5, 6)], [(1, 2), (3, 4, 5), (6,)])
        >>> table.split_join_similarity(model=None)
        0.75
        """
        return cls._of(source.cells_from_partitions(partitions1, partitions2))

    @classmethod
    def from_counts(cls, classes: Any, clusters: Any, counts: Any) -> Self:
        """Table given as cells: the class, the cluster and the count of each; equal pairs are added.

        Parameters
        ----------
        classes, clusters : sequences of hashables, or arrays, of shape (n_cells,)
        counts : sequence of numbers, or array, of shape (n_cells,)
            Whole numbers of any size, fractions or floats, finite and at least 0; cells of 0 are left out.

        Raises
        ------
        DataError
            If the lengths differ, a label is not hashable, or a count is not such a number.

        Examples
        --------
        >>> ContingencyTable.from_counts([0, 1, 1], [0, 0, 1], [10**12, 5, 7]).grand_total
        1000000000012
        """
        return cls._of(source.cells_from_counts(classes, clusters, counts))

    # -- contents

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns that are not all zero, (R, C)."""
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
    def row_totals(self) -> dict[Any, int | float]:
        """Class -> number of points."""
        return self._totals(self.cells.row_labels, self.cells.rows)

    @property
    def col_totals(self) -> dict[Any, int | float]:
        """Cluster -> number of points."""
        return self._totals(self.cells.col_labels, self.cells.cols)

    def _totals(self, labels: list[Any], codes: source.Codes) -> dict[Any, int | float]:
        sums = np.zeros(len(labels), dtype=object)
        np.add.at(sums, codes, self.cells.counts.astype(object))
        return {label: plain(total) for label, total in zip(labels, sums.tolist(), strict=True)}

    def __len__(self) -> int:
        return self.nonzero_cells

    def items(self) -> Iterator[tuple[tuple[Any, Any], int | float]]:
        """Non-zero cells as ((class, cluster), count)."""
        c = self.cells
        for row, col, count in zip(c.rows.tolist(), c.cols.tolist(), c.counts.tolist(), strict=True):
            yield (c.row_labels[row], c.col_labels[col]), plain(count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContingencyTable) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(self.summary)

    def __repr__(self) -> str:
        rows, cols = len(self.cells.row_labels), len(self.cells.col_labels)
        if rows * cols <= 100:
            return f"{type(self).__name__}(rows={self.to_rows()})"
        return f"<{type(self).__name__}: {rows} × {cols}, {self.nonzero_cells} cells, total {self.grand_total}>"

    def to_array(self, default: float = 0, cpad: bool = False, rpad: bool = False) -> np.ndarray[Any, Any]:
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
        >>> ContingencyTable(rows=[[1, 2, 0]]).to_array(cpad=True)
        array([[1, 2, 0],
               [0, 0, 0],
               [0, 0, 0]])
        """
        c = self.cells
        rows, cols = len(c.row_labels), len(c.col_labels)
        shape = (max(rows, cols) if cpad else rows, max(rows, cols) if rpad else cols)
        counts = c.counts
        if any(isinstance(n, Fraction) for n in counts[:1].tolist()) or self.summary.fractional:
            counts = counts.astype(np.float64)
        dense = np.full(shape, default, dtype=np.result_type(counts, np.asarray(default)))
        dense[c.rows, c.cols] = counts
        return dense

    def to_rows(self, default: float = 0, cpad: bool = False, rpad: bool = False) -> list[list[int | float]]:
        """Dense table as nested lists; see `to_array`."""
        rows: list[list[int | float]] = self.to_array(default, cpad, rpad).tolist()
        return rows

    def to_labels(self) -> tuple[list[Any], list[Any]]:
        """Two labellings of the points, the inverse of `from_labels` but for the order; whole counts only."""
        pairs = [pair for pair, count in self.items() for _ in range(_whole(count))]
        return [row for row, _ in pairs], [col for _, col in pairs]

    def to_clusters(self) -> list[list[Any]]:
        """Classes of the points of each cluster, the inverse of `from_clusters` but for the order."""
        clusters: dict[Any, list[Any]] = {label: [] for label in self.cells.col_labels}
        for row, col in zip(*self.to_labels(), strict=True):
            clusters[col].append(row)
        return list(clusters.values())

    def to_partitions(self) -> tuple[list[list[int]], list[list[int]]]:
        """Two partitions of the points 0..N−1, the inverse of `from_partitions` but for the points' names."""
        sides = []
        for labels, names in zip(self.to_labels(), (self.cells.row_labels, self.cells.col_labels), strict=True):
            groups: dict[Any, list[int]] = {name: [] for name in names}
            for point, label in enumerate(labels):
                groups[label].append(point)
            sides.append(list(groups.values()))
        return sides[0], sides[1]

    # -- null models and ceilings

    def expected_freqs_(self, model: str = "m3") -> Self:
        """Table of expected counts under a null model, dense; the same as ``expected(model)``."""
        return self.expected(model)

    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model; it has R×C cells.

        Empty rows and columns are left out first.

        Parameters
        ----------
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            Fixed: only N; row totals; column totals; both. The ``x`` models put everything into the first row and
            column that the fixed margins allow.
        discrete : bool, default False
            Round each count up or down at random, with the expected count as its mean.
        redraw : bool, default False
            Draw again; without it a table keeps its last draw for each model, until another seed is given.
        random_state : int or None
            Seed of the draw; None takes the draw that is kept, whatever its seed, and else makes one without a seed.

        Raises
        ------
        OptionError
            If there is no such model.

        Examples
        --------
        >>> ContingencyTable(rows=[[3, 1], [1, 3]]).expected("m3").to_array()
        array([[2, 2],
               [2, 2]])
        """
        seed, kept = self._drawn.get(model, (None, None))
        if discrete and not redraw and kept is not None and random_state in (None, seed):
            return kept
        rows, cols = self._margins(model)
        counts = rows[:, None] * cols / float(self.summary.total) if self.grand_total else np.zeros((0, 0))
        labels = [label for label, n in self.row_totals.items() if n], [x for x, n in self.col_totals.items() if n]
        if not discrete:
            return self._dense(counts, *labels)
        whole = np.floor(counts)
        drawn = np.random.default_rng(random_state).random(counts.shape) < counts - whole
        table = self._dense(whole + drawn, *labels)
        self._drawn[model] = random_state, table
        return table

    def _margins(self, model: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        margins = [np.array([float(n) for n in side.values() if n]) for side in (self.row_totals, self.col_totals)]
        total = float(self.summary.total)
        free = {"m1": "even even", "m2r": "fixed even", "m2c": "even fixed", "m3": "fixed fixed",
                "x1": "first first", "x2r": "fixed first", "x2c": "first fixed"}  # fmt: skip
        if model not in free:
            msg = f"model is {model!r}; choose one of {', '.join(free)}"
            raise OptionError(msg)
        for i, kind in enumerate(free[model].split()):
            size = margins[i].size
            if kind == "even":
                margins[i] = np.full(size, total / max(size, 1))
            elif kind == "first":
                margins[i] = np.where(np.arange(size) == 0, total, 0.0)
        return margins[0], margins[1]

    def _dense(self, counts: np.ndarray[Any, Any], row_labels: list[Any], col_labels: list[Any]) -> Self:
        rows, cols = np.nonzero(counts)
        weights = source.checked_counts(counts[rows, cols])
        return self._of(source.Cells(rows.astype(np.int64), cols.astype(np.int64), weights, row_labels, col_labels))

    def row_diag(self) -> Self:
        """Diagonal table of the row totals: a clustering that agrees with the classes."""
        return self._diagonal(self.row_totals)

    def col_diag(self) -> Self:
        """Diagonal table of the column totals: classes that agree with the clusters."""
        return self._diagonal(self.col_totals)

    def _diagonal(self, totals: dict[Any, int | float]) -> Self:
        return self.from_counts(list(totals), list(totals), list(totals.values()))

    def adjust_to_null(
        self, measure: str | Callable[..., Any], model: str = "m3", with_warnings: bool = False
    ) -> tuple[Any, Any]:
        """Adjust a measure at its defaults for chance: (x − null) / (ceiling − null), for two ceilings.

        The null is the measure of the expected table, the ceilings are the measure of the diagonal tables of row and
        of column totals. All are closed forms of the margins, so no R×C table is made.

        Parameters
        ----------
        measure : str or method
            Of several values, or one; then so are the results.
        model : {"m1", "m2r", "m2c", "m3"}
        with_warnings : bool, default False
            Warn if the measure is already 0 under the null model, or 1 for a ceiling.

        Returns
        -------
        by_rows, by_columns : float or tuple of float

        Examples
        --------
        >>> table = ContingencyTable(rows=[[8, 2], [1, 9]])
        >>> table.adjust_to_null("rand_index", model="m3")[0] > table.adjusted_rand_index()
        True
        """
        name = name_of(measure)
        null: Facts = null_facts(self.facts, model) if model in MODELS else self.expected(model).facts
        tables: tuple[Facts, ...] = (self.facts, null, diagonal(self.facts.classes), diagonal(self.facts.clusters))
        actual, centre, *ceilings = (measure_by_name(facts, name) for facts in tables)
        if with_warnings:
            warn_if_adjusted(name, centre, (ceilings[0], ceilings[1]))
        return adjusted(actual, centre, (ceilings[0], ceilings[1]))

    # -- measures

    @cached_property
    def summary(self) -> Summary:
        """Small statistic of sizes that decides every measure but the assignment score."""
        return summarize(self.cells.rows, self.cells.cols, self.cells.counts)

    @cached_property
    def facts(self) -> TableFacts:
        """What the measures read."""
        return TableFacts(self.summary, self._best_matching)

    def _best_matching(self) -> Number:
        return best_matching(self.cells.rows, self.cells.cols, self.cells.counts).lower

    @cached_property
    def pairwise(self) -> ConfusionMatrix2:
        """Pairs of points as a 2×2 table: TP same class and cluster, FP same cluster only, FN same class only.

        (The documentation of clustering-metrics exchanges FP and FN; its code, and this, are as said here.)
        """
        return ConfusionMatrix2.from_exact(self.facts.pairs)

    def get_score(self, scoring_method: str, *args: Any, **kwargs: Any) -> Any:
        """Value of the measure of that name, of this table or else of its pair table.

        Raises
        ------
        OptionError
            If there is no such measure.

        Examples
        --------
        >>> ContingencyTable(rows=[[3, 0], [0, 3]]).get_score("matthews_corr")
        1.0
        """
        if scoring_method not in TABLE_MEASURES and scoring_method not in PAIR_MEASURES:
            known = ", ".join(dict.fromkeys((*TABLE_MEASURES, *PAIR_MEASURES)))
            msg = f"{scoring_method!r} is no measure of a contingency table; known are {known}"
            raise OptionError(msg)
        owner = self if scoring_method in TABLE_MEASURES else self.pairwise
        return getattr(owner, scoring_method)(*args, **kwargs)

    def assignment_score(
        self, normalize: bool = True, model: str | None = "m1", discrete: bool = False, redraw: bool = False
    ) -> int | float:
        """Weight of the best one-to-one matching of classes and clusters, minus that of a null model.

        The matching is exact for whole counts and fractions of any size. Only where some 200 rows and as many columns
        hang together, and the largest count times their number reaches 2^51, is it that of the counts' leading bits,
        with 1,000 rows and columns too low by at most about 10^-9 of itself; see `streameval.metrics.assignment`.

        Parameters
        ----------
        normalize : bool, default True
            Divide by the score of a perfect match, so that it is at most 1.
        model : {None, "m1", "m2r", "m2c", "m3"}
            Null model to subtract: none, only N fixed, row totals, column totals, both. The null of ``m3`` is a sum of
            products of sorted margins, so no expected table is built.
        discrete : bool, default False
            Subtract the matching of a randomly rounded expected table instead.
        redraw : bool, default False
            Draw that table anew.

        References
        ----------
        Gusfield, D. (2002), Partition-distance. Information Processing Letters 82(3), 159-164.
        """
        if not discrete or model is None:
            return measures.assignment_score(self.facts, normalize, model)
        null = self.expected(model, discrete=True, redraw=redraw).facts.matching
        return measures.above(self.facts, self.facts.matching, null, self.facts.total, normalize, model)

    adjusted_fowlkes_mallows = of_facts(measures.adjusted_fowlkes_mallows)
    adjusted_mutual_info = of_facts(measures.adjusted_mutual_info)
    adjusted_rand_index = of_facts(measures.adjusted_rand_index)
    bc_metrics = of_facts(measures.bc_metrics)
    chisq_score = of_facts(measures.chisq_score)
    entropy_scores = of_facts(measures.entropy_scores)
    fowlkes_mallows = of_facts(measures.fowlkes_mallows)
    g_score = of_facts(measures.g_score)
    mirkin_match_coeff = of_facts(measures.mirkin_match_coeff)
    mirkin_mismatch_coeff = of_facts(measures.mirkin_mismatch_coeff)
    muc_scores = of_facts(measures.muc_scores)
    mutual_info_score = of_facts(measures.mutual_info_score)
    rand_index = of_facts(measures.rand_index)
    split_join_distance = of_facts(measures.split_join_distance)
    split_join_similarity = of_facts(measures.split_join_similarity)
    talburt_wang_index = of_facts(measures.talburt_wang_index)
    vi_distance = of_facts(measures.vi_distance)
    vi_similarity = of_facts(measures.vi_similarity)

    assignment_score_m1 = with_model(assignment_score, "m1")
    assignment_score_m2r = with_model(assignment_score, "m2r")
    assignment_score_m2c = with_model(assignment_score, "m2c")
    assignment_score_m3 = with_model(assignment_score, "m3")
    split_join_similarity_m1 = with_model(split_join_similarity, "m1")
    split_join_similarity_m2r = with_model(split_join_similarity, "m2r")
    split_join_similarity_m2c = with_model(split_join_similarity, "m2c")
    split_join_similarity_m3 = with_model(split_join_similarity, "m3")
    vi_similarity_m1 = with_model(vi_similarity, "m1")
    vi_similarity_m2r = with_model(vi_similarity, "m2r")
    vi_similarity_m2c = with_model(vi_similarity, "m2c")
    vi_similarity_m3 = with_model(vi_similarity, "m3")


def _whole(count: int | float) -> int:
    if not isinstance(count, int):
        msg = f"a cell has {count} points; labels need whole counts"
        raise OptionError(msg)
    return count


class ClusteringMetrics(ContingencyTable):
    """The same table under the name that clustering-metrics gives to its clustering measures.

    There a contingency table has the measures of its cells and this class adds those of its pair table; here both
    names have both.

    Examples
    --------
    >>> metrics = ClusteringMetrics.from_partitions([{1, 2, 3, 4}, {5, 6}], [{1, 2}, {3, 4, 5, 6}])
    >>> metrics.split_join_distance(normalize=False), metrics.mirkin_mismatch_coeff(normalize=False)
    (4, 16)
    """
