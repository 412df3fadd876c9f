"""Contingency table of classes (rows) against clusters (columns), sparse, in memory, with every measure as a method.

Measures are functions of the `facts` of a sparse table (`streameval.arrays.contingency.sparse`), which come from a
small summary of sizes; only the best matching looks at the cells again. So a table of a million points costs one sort,
and each measure after it about a millisecond. Null models are evaluated in closed form
(`streameval.metrics.contingency.null_models`); a dense R×C table is made only by `to_array`, `to_rows` and `expected`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.contingency import inputs as source
from streameval.arrays.contingency.confusion import ConfusionMatrix2
from streameval.arrays.contingency.methods import TableMeasures
from streameval.arrays.contingency.sparse import SparseTable
from streameval.errors import OptionError
from streameval.metrics.contingency import measures
from streameval.metrics.contingency.assignment import best_matching
from streameval.metrics.contingency.catalogue import (
    PAIR_MEASURES,
    TABLE_MEASURES,
    adjusted,
    measure_by_name,
    name_of,
    of_facts,
    warn_if_adjusted,
)
from streameval.metrics.contingency.null_models import (
    MODELS,
    CountedStatistics,
    TableStatistics,
    diagonal,
    null_statistics,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from streameval.metrics.contingency.arithmetic import Number

__all__ = ["ClusteringMetrics", "ContingencyTable"]


class ContingencyTable(SparseTable, TableMeasures):
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

    @cached_property
    def _drawn(self) -> dict[str, tuple[int | None, Self]]:
        """Seed and discrete expected table by model, as drawn last."""
        return {}

    # -- null models and ceilings

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
        null: TableStatistics = null_statistics(self.facts, model) if model in MODELS else self.expected(model).facts
        tables: tuple[TableStatistics, ...] = (
            self.facts,
            null,
            diagonal(self.facts.classes),
            diagonal(self.facts.clusters),
        )
        actual, centre, *ceilings = (measure_by_name(facts, name) for facts in tables)
        if with_warnings:
            warn_if_adjusted(name, centre, (ceilings[0], ceilings[1]))
        return adjusted(actual, centre, (ceilings[0], ceilings[1]))

    # -- measures

    @cached_property
    def facts(self) -> CountedStatistics:
        """What the measures read."""
        return CountedStatistics(self.summary, self._best_matching)

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

    adjusted_fowlkes_mallows = of_facts(measures.adjusted_fowlkes_mallows)
    adjusted_rand_index = of_facts(measures.adjusted_rand_index)
    chisq_score = of_facts(measures.chisq_score)
    fowlkes_mallows = of_facts(measures.fowlkes_mallows)
    mirkin_match_coeff = of_facts(measures.mirkin_match_coeff)
    mirkin_mismatch_coeff = of_facts(measures.mirkin_mismatch_coeff)
    rand_index = of_facts(measures.rand_index)


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
