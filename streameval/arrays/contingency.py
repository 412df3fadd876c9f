"""Contingency tables in memory, with every measure as a method, and as functions with scikit-learn's names.

Measures read the `facts` of a table (`streameval.metrics.contingency.measures`), which are computed from a small
summary of sizes; only the optimal assignment reads the cells again. A table of a million points takes one sort, and
each measure about a millisecond after that. Counts of 2×2 tables are exact, integers of any size or fractions: the pair
table of 10¹² points is as accurate as a small one. Null models are evaluated in closed form; only `to_array`, `to_rows`
and `expected` create a dense R×C table.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streameval.arrays.inputs import Predicate, generator, labels_by_predicate, num2bool
from streameval.arrays.sparse_table import Cells, SparseTable, as_sequence, exact_count
from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import measures, twoway
from streameval.metrics.contingency.arithmetic import Value, adjust, plain
from streameval.metrics.contingency.assignment import best_matching
from streameval.metrics.contingency.catalogue import PairMeasures, TableMeasures, measure_by_name, twoway_cells
from streameval.metrics.contingency.twoway import TwoWay
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.states.contingency.summary import Number
    from streameval.typing import Array, ArrayLike

confmat2_type = TwoWay


class TwoByTwoTable(SparseTable):
    """Four counts of truth (rows) against prediction (columns); `streameval.ConfusionMatrix2` adds the measures.

    Rows and columns have the labels 1 (positive) and 0 (negative), in this order.
    """

    def __init__(
        self,
        TP: Number | None = None,
        FN: Number | None = None,
        FP: Number | None = None,
        TN: Number | None = None,
        rows: ArrayLike | None = None,
        cols: ArrayLike | None = None,
    ) -> None:
        given = rows if rows is not None else cols
        if given is not None:
            if not (TP is FN is FP is TN is None) or (rows is not None and cols is not None):
                raise OptionError("give either TP, FN, FP and TN, or rows, or cols")
            table = [list(as_sequence(line, "a row")) for line in as_sequence(given, "rows")]
            if [len(line) for line in table] != [2, 2]:
                raise DataError(f"rows has lengths {[len(line) for line in table]}; give ((TP, FN), (FP, TN))")
            (TP, FN), (FP, TN) = table if rows is not None else zip(*table, strict=True)
        named = {"TP": TP, "FP": FP, "TN": TN, "FN": FN}
        self.counts = TwoWay(**{name: exact_count(count, name) for name, count in named.items()})

    @classmethod
    def from_exact(cls, counts: TwoWay) -> Self:
        """Matrix of exact counts, which are not checked: they may be negative in the pair table of expected counts."""
        matrix = cls.__new__(cls)
        matrix.counts = counts
        return matrix

    @classmethod
    def _of(cls, cells: Cells) -> Self:
        rows, cols = (
            1 - labels_by_predicate(labels, name="labels")[codes]
            for labels, codes in ((cells.row_labels, cells.rows), (cells.col_labels, cells.cols))
        )
        table = np.zeros((2, 2), dtype=object)
        np.add.at(table, (rows, cols), cells.counts.astype(object))
        return cls(rows=table)

    @classmethod
    def from_labels(cls, labels_true: ArrayLike, labels_pred: ArrayLike, is_class_pos: Predicate = num2bool) -> Self:
        """Matrix of true and predicted labels of the same points.

        Parameters
        ----------
        labels_true, labels_pred : array-likes of shape (n_points,)
        is_class_pos : callable
            Says whether a label is positive; by default, labels above zero are.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2.from_labels(["spam", "ham", "spam"], ["spam", "spam", "ham"], lambda x: x == "spam")
        ConfusionMatrix2(rows=[[1, 1], [1, 0]])
        """
        sides = ((labels_true, "labels_true"), (labels_pred, "labels_pred"))
        return super().from_labels(*(labels_by_predicate(labels, is_class_pos, name) for labels, name in sides))

    @classmethod
    def from_clusters(cls, clusters: ArrayLike) -> Self:
        """Matrix of the true labels of the points predicted positive, and of those predicted negative.

        Parameters
        ----------
        clusters : two sequences of labels, or mapping of such sequences
            Labels above zero are positive. The first sequence has the points predicted positive; in a mapping, it is
            the one whose key is above zero.

        Raises
        ------
        DataError
            If there are not two sequences.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2.from_clusters([[1, 1, 0], [0, 0]])
        ConfusionMatrix2(rows=[[2, 0], [1, 2]])
        """
        return super().from_clusters(_two_groups(clusters, "clusters"))

    @classmethod
    def from_partitions(cls, partitions1: ArrayLike, partitions2: ArrayLike) -> Self:
        """Matrix of two partitions of the same points into positives and negatives, in this order.

        Raises
        ------
        DataError
            If a partition does not have two groups, or the partitions have different points.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2.from_partitions([{"a", "b"}, {"c"}], [{"a"}, {"b", "c"}])
        ConfusionMatrix2(rows=[[1, 1], [0, 1]])
        """
        return super().from_partitions(_two_groups(partitions1, "partitions1"), _two_groups(partitions2, "partitions2"))

    @classmethod
    def from_ccw(cls, TP: Number, FP: Number, TN: Number, FN: Number) -> Self:
        """Matrix from the cells in counter-clockwise order."""
        return cls(TP, FN, FP, TN)

    @classmethod
    def from_sets(cls, set1: Iterable[Hashable], set2: Iterable[Hashable], universe_size: int | None = None) -> Self:
        """Matrix of two sets: TP is their intersection, FP only in the second, FN only in the first.

        Parameters
        ----------
        set1, set2 : iterables of hashables
        universe_size : int or None
            Number of all elements; those in neither set are TN. If it is None, TN is 0.

        Raises
        ------
        OptionError
            If `universe_size` is less than the size of the union.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2.from_sets("abc", "bcd", universe_size=10).to_ccw()
        TwoWay(TP=2, FP=1, TN=6, FN=1)
        """
        first, second = _set(set1, "set1"), _set(set2, "set2")
        union = len(first | second)
        if universe_size is not None and exact_count(universe_size, "universe_size") < union:
            raise OptionError(f"universe_size is {universe_size}, but the two sets have {union} elements together")
        negatives = 0 if universe_size is None else universe_size - union
        return cls(len(first & second), len(first - second), len(second - first), negatives)

    @classmethod
    def from_random_counts(
        cls, low: int = 0, high: int = 100, random_state: int | np.random.Generator | None = None
    ) -> Self:
        """Matrix of four integers drawn uniformly from [low, high).

        Parameters
        ----------
        low, high : int
            Bounds, 0 ≤ low < high.
        random_state : int, numpy.random.Generator or None
            Seed of the draw.

        Raises
        ------
        OptionError
            If the bounds are out of their range.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2.from_random_counts(high=10, random_state=0).to_array().max() < 10
        np.True_
        """
        if not (isinstance(low, int) and isinstance(high, int) and 0 <= low < high <= 2**63):
            raise OptionError(
                f"low is {low} and high is {high}; whole numbers are drawn from [low, high), within 0 and 2**63"
            )
        return cls(*generator(random_state).integers(low, high, size=4).tolist())

    TP = property(lambda self: plain(self.counts.TP), doc="True positives.")
    FN = property(lambda self: plain(self.counts.FN), doc="False negatives.")
    FP = property(lambda self: plain(self.counts.FP), doc="False positives.")
    TN = property(lambda self: plain(self.counts.TN), doc="True negatives.")

    @property
    def grand_total(self) -> int | float:
        """Number of points."""
        return plain(self.counts.n)

    def to_ccw(self) -> TwoWay:
        """Cells in counter-clockwise order: TP, FP, TN, FN."""
        return TwoWay(self.TP, self.FP, self.TN, self.FN)

    @cached_property
    def cells(self) -> Cells:  # type: ignore[override]  # a field of the base class; a table of four cells derives it on first use
        """Non-zero cells."""
        return Cells(*twoway_cells(self.counts), [1, 0], [1, 0])

    def to_rows(self, default: float = 0, cpad: bool = False, rpad: bool = False) -> list[list[int | float]]:
        """Cells as [[TP, FN], [FP, TN]]; the arguments are ignored."""
        return [[self.TP, self.FN], [self.FP, self.TN]]

    def _dense(self) -> Array:
        return np.array(self.to_rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TwoByTwoTable) and self.counts == other.counts

    def __hash__(self) -> int:
        return hash(self.counts)

    # -- derived tables

    def lform(self) -> Self:
        """L-shaped table: the smaller error count m moves to the diagonal, (TP + m, FP − m, TN + m, FN − m).

        clustering-metrics sets that count to zero before using it a second time, so its column totals differ.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2(TP=35, FN=9, FP=60, TN=41).lform()
        ConfusionMatrix2(rows=[[44, 0], [51, 50]])
        """
        return self.from_exact(twoway.lform(self.counts))

    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model, in exact fractions.

        Parameters
        ----------
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            What is fixed: only the total (m1, x1), the row totals (m2r, x2r), the column totals (m2c, x2c), or both
            (m3). The ``x`` models put everything into the first row and column that the fixed margins allow.
        discrete : bool, default False
            Round each count up or down at random, so that its mean is the expected count.
        redraw : bool, default False
            Ignored: every call draws again.
        random_state : int or None
            Seed of the draw.

        Raises
        ------
        OptionError
            If the model is unknown.

        Examples
        --------
        >>> from streameval import ConfusionMatrix2
        >>> ConfusionMatrix2(TP=3, FN=1, FP=1, TN=3).expected("m3")
        ConfusionMatrix2(rows=[[2, 2], [2, 2]])
        """
        del redraw
        counts = measures.expected_cells(self.counts, model)
        if discrete:
            draws = generator(random_state).random(4).tolist()
            counts = TwoWay(*(int(x // 1) + (draw < x % 1) for x, draw in zip(counts, draws, strict=True)))
        return self.from_exact(counts)

    def row_diag(self) -> Self:
        """Diagonal table of the row totals."""
        return self.from_exact(TwoWay(TP=self.counts.p1, FP=0, TN=self.counts.q1, FN=0))

    def col_diag(self) -> Self:
        """Diagonal table of the column totals."""
        return self.from_exact(TwoWay(TP=self.counts.p2, FP=0, TN=self.counts.q2, FN=0))


def _set(elements: Iterable[object], name: str) -> set[Hashable]:
    """The elements as a set; raises `DataError` if they are not hashable."""
    try:
        return set(as_sequence(elements, name))
    except TypeError as error:
        raise DataError(f"{name} must have hashable elements: {error}") from error


def _two_groups(groups: object, name: str) -> Mapping[Hashable, ArrayLike]:
    """Label two groups 1 and 0, in this order; a mapping is returned unchanged."""
    if isinstance(groups, Mapping):
        return groups
    pair = list(as_sequence(groups, name))
    if len(pair) != 2:
        raise DataError(f"{name} has {len(pair)} groups; give two, the positives first")
    return {1: pair[0], 0: pair[1]}


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
    def facts(self) -> measures.CountedStatistics:
        """The statistics that the measures read."""
        cells = self.cells[:3]

        def draw(model: str, redraw: bool) -> Number:
            return self.expected(model, discrete=True, redraw=redraw).facts.matching

        return measures.CountedStatistics(self.summary, lambda: best_matching(*cells).lower, draw)

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
        return adjust(self._compared(name, model), name if with_warnings else None)

    def _compared(self, name: str, model: str) -> Iterable[Value]:
        """Value of a measure for this table, the null model and both ceilings."""
        null: measures.TableStatistics = (
            measures.null_statistics(self.facts, model) if model in measures.MODELS else self.expected(model).facts
        )
        return map(measure_by_name(name).function, (self.facts, null, *measures.ceilings(self.facts)))


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


def homogeneity_completeness_v_measure(labels_true: ArrayLike, labels_pred: ArrayLike) -> measures.EntropyScores:
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
