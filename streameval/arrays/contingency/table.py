"""Contingency tables in memory, with every measure as a method, and as functions with scikit-learn's names.

Measures read the `facts` of a table (`streameval.metrics.contingency.measures`), which are computed from a small
summary of sizes; only the optimal assignment reads the cells again. A table of a million points takes one sort, and
each measure about a millisecond after that. Null models are evaluated in closed form; only `to_array`, `to_rows` and
`expected` create a dense R×C table.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from streameval.arrays.contingency.confusion import TwoByTwoTable
from streameval.arrays.contingency.sparse import SparseTable
from streameval.metrics.contingency.arithmetic import Value, adjusted
from streameval.metrics.contingency.assignment import best_matching
from streameval.metrics.contingency.catalogue import PairMeasures, TableMeasures, measure_by_name
from streameval.metrics.contingency.measures import (
    MODELS,
    CountedStatistics,
    EntropyScores,
    TableStatistics,
    ceilings,
    null_statistics,
)
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from streameval.states.contingency.summary import Number
    from streameval.typing import ArrayLike


class ContingencyTable(SparseTable, TableMeasures):
    """Counts of points by class (row) and cluster (column), with external clustering metrics.

    Parameters
    ----------
    rows : 2-D array, nested sequence or mapping of mappings
        Counts, row by row; finite numbers of at least 0. Fractional counts are accepted, except by measures that need
        whole ones. Rows and columns of zeros are kept in `to_array` and ignored elsewhere.
    cols : 2-D array, nested sequence or mapping of mappings
        Counts, column by column, instead of `rows`.

    Raises
    ------
    OptionError
        If both or neither of `rows` and `cols` are given.
    DataError
        If rows have different lengths, or a count is not a finite number of at least 0.

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
    def facts(self) -> CountedStatistics:
        """The statistics that the measures read."""
        cells = self.cells[:3]

        def draw(model: str, redraw: bool) -> Number:
            return self.expected(model, discrete=True, redraw=redraw).facts.matching

        return CountedStatistics(self.summary, lambda: best_matching(*cells).lower, draw)

    @cached_property
    def pairwise(self) -> ConfusionMatrix2:
        """Pairs of points as a 2×2 table: TP same class and cluster, FP same cluster only, FN same class only.

        The documentation of clustering-metrics exchanges FP and FN; its code agrees with this definition.

        Examples
        --------
        >>> pairs = ContingencyTable(rows=[[2, 0], [1, 1]]).pairwise
        >>> pairs.TP, pairs.FP, pairs.FN, pairs.TN
        (1, 2, 1, 2)
        """
        return ConfusionMatrix2.from_exact(self.facts.pairs)

    def get_score(self, scoring_method: str, *args: Any, **kwargs: Any) -> Any:
        """Value of a measure by name, of the table itself or, if it does not have the measure, of its pair table.

        Parameters
        ----------
        scoring_method : name of the measure, such as ``matthews_corr``
        *args, **kwargs : arguments of the measure

        Raises
        ------
        OptionError
            If the measure is unknown.

        Examples
        --------
        >>> ContingencyTable(rows=[[3, 0], [0, 3]]).get_score("matthews_corr")
        1.0
        """
        measure_by_name(scoring_method)
        owner = self if hasattr(type(self), scoring_method) else self.pairwise
        return getattr(owner, scoring_method)(*args, **kwargs)

    def adjust_to_null(
        self, measure: str | Callable[..., Any], model: str = "m3", with_warnings: bool = False
    ) -> tuple[Value, Value]:
        """Adjust a measure at its defaults for chance: (x − null) / (ceiling − null), for two ceilings.

        The null is the measure of the expected table. The ceilings are the measure of the diagonal tables of row totals
        and of column totals. For ``m1`` to ``m3``, all have closed forms in the margins, so no R×C table is created.

        Parameters
        ----------
        measure : str or method
            The measure, or its name.
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            The null model; see `expected`.
        with_warnings : bool, default False
            Warn if the measure is already 0 under the null model, or 1 at a ceiling.

        Returns
        -------
        by_rows, by_columns : float, or tuple of float for a measure with several values

        Raises
        ------
        OptionError
            If the measure or the model is unknown.

        Examples
        --------
        >>> table = ContingencyTable(rows=[[8, 2], [1, 9]])
        >>> table.adjust_to_null("rand_index", model="m3")[0] > table.adjusted_rand_index()
        True
        """
        name = measure if isinstance(measure, str) else measure.__name__
        return adjusted(self._compared(name, model), name if with_warnings else None)

    def _compared(self, name: str, model: str) -> Iterable[Value]:
        """Value of a measure for this table, the null model and both ceilings."""
        null: TableStatistics = null_statistics(self.facts, model) if model in MODELS else self.expected(model).facts
        return map(measure_by_name(name).function, (self.facts, null, *ceilings(self.facts)))


class ConfusionMatrix2(TwoByTwoTable, PairMeasures, ContingencyTable):
    """A 2×2 contingency table of truth (rows) against prediction (columns).

    It has the measures of a binary decision and those of any contingency table. Their values for zero margins are
    documented in `streameval.metrics.contingency.twoway` (rates) and `streameval.metrics.contingency.twoway`
    (chance-corrected measures).

    Parameters
    ----------
    TP, FN, FP, TN : number
        True positives, false negatives, false positives, true negatives; finite and at least 0, whole or fractional.
    rows : 2×2 nested sequence or array
        ((TP, FN), (FP, TN)), instead of the four numbers.
    cols : 2×2 nested sequence or array
        ((TP, FP), (FN, TN)), instead of the four numbers.

    Examples
    --------
    >>> matrix = ConfusionMatrix2(TP=20, FN=31, FP=14, TN=156)
    >>> matrix
    ConfusionMatrix2(rows=[[20, 31], [14, 156]])
    >>> round(matrix.kappa(), 4), round(matrix.fscore(beta=2), 4)
    (0.3507, 0.4202)
    >>> matrix.to_ccw()
    TwoWay(TP=20, FP=14, TN=156, FN=31)
    >>> round(matrix.adjust_to_null(matrix.dice_coeff)[0], 4)
    0.3507
    """

    def _compared(self, name: str, model: str) -> Iterable[Value]:
        return (t.get_score(name) for t in (self, self.expected(model), self.row_diag(), self.col_diag()))


class ClusteringMetrics(ContingencyTable):
    """`ContingencyTable` under the name that the package clustering-metrics uses for a table with pairwise measures.

    Examples
    --------
    >>> metrics = ClusteringMetrics.from_partitions([{1, 2, 3, 4}, {5, 6}], [{1, 2}, {3, 4, 5, 6}])
    >>> metrics.split_join_distance(normalize=False), metrics.mirkin_mismatch_coeff(normalize=False)
    (4, 16)
    """


def adjusted_rand_score(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Adjusted Rand index of two labellings, exact at any size (Hubert and Arabie 1985).

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)

    Returns
    -------
    float in [−1, 1]. Unlike scikit-learn's, it is ½ if both sides are one group or both are all singletons, and NaN for
    fewer than two points.

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> round(adjusted_rand_score([1, 1, 2, 2, 2, 2, 3, 3, 3, 3], [1, 2, 1, 2, 2, 3, 3, 3, 3, 3]), 3)
    0.313
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_rand_index()


@explains_arguments
def adjusted_mutual_info_score(labels_true: ArrayLike, labels_pred: ArrayLike, average_method: str = "max") -> float:
    """Adjusted mutual information of two labellings (Vinh, Epps and Bailey 2010).

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)
    average_method : {"max", "min", "arithmetic", "geometric"}
        How the two entropies are averaged; scikit-learn's default is ``arithmetic``.

    Returns
    -------
    float, at most 1, and 0 in expectation for random labellings; 1 without points

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.
    OptionError
        If `average_method` is unknown.

    Examples
    --------
    >>> adjusted_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0]), adjusted_mutual_info_score([0] * 4, [0, 1, 2, 3])
    (1.0, 0.0)
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_mutual_info(average_method)


def mutual_info_score(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Mutual information of two labellings.

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)

    Returns
    -------
    float, at least 0, in nats; NaN without points

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> mutual_info_score(["a", "a", "b", "b"], [0, 0, 1, 1])
    0.6931471805599453
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).mutual_info_score()


def homogeneity_completeness_v_measure(labels_true: ArrayLike, labels_pred: ArrayLike) -> EntropyScores:
    """Homogeneity, completeness and V-measure of two labellings (Rosenberg and Hirschberg 2007).

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)

    Returns
    -------
    homogeneity, completeness, v_measure : float in [0, 1]
        All are 1 without points.

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> homogeneity_completeness_v_measure([0, 0, 1, 1], [0, 0, 1, 2]).homogeneity
    1.0
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).entropy_scores()


def jaccard_similarity(iterable1: Iterable[Hashable], iterable2: Iterable[Hashable]) -> float:
    """Jaccard similarity of two sets: the size of the intersection over that of the union.

    Parameters
    ----------
    iterable1, iterable2 : iterables of hashables

    Returns
    -------
    float in [0, 1]; NaN if both are empty

    Examples
    --------
    >>> jaccard_similarity("abc", "bcd")
    0.5
    """
    return ConfusionMatrix2.from_sets(iterable1, iterable2).jaccard_coeff()


def product_moment(TP: Number, FP: Number, TN: Number, FN: Number) -> float:
    """Matthews correlation of a 2×2 table, in [−1, 1].

    Parameters
    ----------
    TP, FP, TN, FN : finite numbers of at least 0: the table counter-clockwise

    Returns
    -------
    float; NaN for an empty table

    Raises
    ------
    DataError
        If a count is negative or not finite.

    Examples
    --------
    >>> round(product_moment(22, 4, 11, 2), 2)
    0.67
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).matthews_corr()


def cohen_kappa(TP: Number, FP: Number, TN: Number, FN: Number) -> float:
    """Cohen's kappa of a 2×2 table, in [−1, 1].

    Parameters
    ----------
    TP, FP, TN, FN : finite numbers of at least 0: the table counter-clockwise

    Returns
    -------
    float; NaN for an empty table

    Raises
    ------
    DataError
        If a count is negative or not finite.

    Examples
    --------
    >>> round(cohen_kappa(147, 10, 62, 3), 2)
    0.86
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).kappa()
