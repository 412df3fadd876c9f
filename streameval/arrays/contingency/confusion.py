"""The 2×2 part of `ConfusionMatrix2`: constructors, its four cells, and tables derived from it.

Counts are exact, integers of any size or fractions, and every measure divides once. A matrix of 10¹⁸ points, or the
pair table of 10¹² points, is therefore as accurate as a small one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from streameval.arrays.contingency import inputs as source
from streameval.arrays.contingency.sparse import SparseTable
from streameval.arrays.inputs import Predicate, generator, labels_by_predicate, num2bool
from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import twoway
from streameval.metrics.contingency.arithmetic import plain
from streameval.metrics.contingency.catalogue import twoway_cells
from streameval.metrics.contingency.measures import expected_cells
from streameval.metrics.contingency.twoway import TwoWay

if TYPE_CHECKING:
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
            table = [list(source.listed(line, "a row")) for line in source.listed(given, "rows")]
            if [len(line) for line in table] != [2, 2]:
                raise DataError(f"rows has lengths {[len(line) for line in table]}; give ((TP, FN), (FP, TN))")
            (TP, FN), (FP, TN) = table if rows is not None else zip(*table, strict=True)
        named = {"TP": TP, "FP": FP, "TN": TN, "FN": FN}
        self.counts = TwoWay(**{name: source.exact_count(count, name) for name, count in named.items()})

    @classmethod
    def from_exact(cls, counts: TwoWay) -> Self:
        """Matrix of exact counts, which are not checked: they may be negative in the pair table of expected counts."""
        matrix = cls.__new__(cls)
        matrix.counts = counts
        return matrix

    @classmethod
    def _of(cls, cells: source.Cells) -> Self:
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
        if universe_size is not None and source.exact_count(universe_size, "universe_size") < union:
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
    def cells(self) -> source.Cells:  # type: ignore[override]  # a field of the base class; a table of four cells derives it on first use
        """Non-zero cells."""
        return source.Cells(*twoway_cells(self.counts), [1, 0], [1, 0])

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
        counts = expected_cells(self.counts, model)
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
        return set(source.listed(elements, name))
    except TypeError as error:
        raise DataError(f"{name} must have hashable elements: {error}") from error


def _two_groups(groups: object, name: str) -> Mapping[Hashable, ArrayLike]:
    """Label two groups 1 and 0, in this order; a mapping is returned unchanged."""
    if isinstance(groups, Mapping):
        return groups
    listed = list(source.listed(groups, name))
    if len(listed) != 2:
        raise DataError(f"{name} has {len(listed)} groups; give two, the positives first")
    return {1: listed[0], 0: listed[1]}
