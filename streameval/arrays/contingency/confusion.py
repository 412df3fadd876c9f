"""Confusion matrix of a binary decision: four counts and their fifty measures.

Counts are kept exactly, as integers of any size or, for fractional cells, as fractions, and every measure divides once.
So a matrix of 10¹⁸ points, or the pair table of 10¹² points, has the same digits as a small one. What each measure says
of zero margins is written at `contingency_twoway` (rates) and `contingency_association` (chance-corrected); tables of
any shape share `contingency_measures`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.contingency.inputs import exact_count
from streameval.arrays.contingency.methods import TableMeasures
from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import association, catalogue, twoway
from streameval.metrics.contingency.arithmetic import plain
from streameval.metrics.contingency.catalogue import of_cells
from streameval.metrics.contingency.fisher import hypergeometric
from streameval.metrics.contingency.twoway import TwoWay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from streameval.metrics.contingency.null_models import CountedStatistics

__all__ = ["ConfusionMatrix2", "confmat2_type"]

confmat2_type = TwoWay


class ConfusionMatrix2(TableMeasures):
    """A 2×2 table of truth (rows) against prediction (columns).

    Parameters
    ----------
    TP, FN, FP, TN : number
        True positives, false negatives, false positives, true negatives; finite and at least 0, whole or fractional.
    rows : 2×2 nested sequence or array
        ((TP, FN), (FP, TN)), instead of the four numbers.

    Examples
    --------
    >>> matrix = ConfusionMatrix2(TP=20, FN=31, FP=14, TN=156)
    >>> matrix
    ConfusionMatrix2(rows=[[20, 31], [14, 156]])
    >>> round(matrix.kappa(), 4), round(matrix.fscore(beta=2), 4)
    (0.3507, 0.4202)
    >>> matrix.to_ccw()
    TwoWay(TP=20, FP=14, TN=156, FN=31)
    """

    def __init__(self, TP: Any = None, FN: Any = None, FP: Any = None, TN: Any = None, rows: Any = None) -> None:
        if rows is not None:
            if not (TP is FN is FP is TN is None):
                msg = "give either TP, FN, FP and TN, or rows"
                raise OptionError(msg)
            (TP, FN), (FP, TN) = _two_rows(rows)
        named = {"TP": TP, "FP": FP, "TN": TN, "FN": FN}
        self.cells = TwoWay(**{name: exact_count(count, name) for name, count in named.items()})

    @classmethod
    def from_exact(cls, cells: TwoWay) -> Self:
        """Matrix of exact cells, which may be negative in the pair table of an expected table."""
        matrix = cls.__new__(cls)
        matrix.cells = cells
        return matrix

    @classmethod
    def from_ccw(cls, TP: Any, FP: Any, TN: Any, FN: Any) -> Self:
        """Matrix from the cells in counter-clockwise order."""
        return cls(TP, FN, FP, TN)

    @classmethod
    def from_sets(cls, set1: Iterable[Any], set2: Iterable[Any], universe_size: int | None = None) -> Self:
        """Matrix of two sets: TP is their intersection, FP only in the second, FN only in the first.

        Parameters
        ----------
        set1, set2 : iterables of hashables
        universe_size : int or None
            Number of all elements; what is in neither set is TN, else TN is 0.

        Examples
        --------
        >>> ConfusionMatrix2.from_sets("abc", "bcd", universe_size=10).to_ccw()
        TwoWay(TP=2, FP=1, TN=6, FN=1)
        """
        first, second = set(set1), set(set2)
        union = len(first | second)
        if universe_size is not None and universe_size < union:
            msg = f"universe_size is {universe_size}, but the two sets have {union} elements together"
            raise OptionError(msg)
        negatives = 0 if universe_size is None else universe_size - union
        return cls(len(first & second), len(first - second), len(second - first), negatives)

    @classmethod
    def from_random_counts(cls, low: int = 0, high: int = 100, random_state: Any = None) -> Self:
        """Matrix of four whole counts drawn evenly from [low, high).

        Parameters
        ----------
        low, high : int
        random_state : int, numpy.random.Generator or None
            Seed of the draw.

        Examples
        --------
        >>> ConfusionMatrix2.from_random_counts(high=10, random_state=0).to_array().max() < 10
        np.True_
        """
        if not 0 <= low < high:
            msg = f"low is {low} and high is {high}; counts are drawn from [low, high), at least 0"
            raise OptionError(msg)
        return cls(*np.random.default_rng(random_state).integers(low, high, size=4).tolist())

    # -- contents

    @property
    def TP(self) -> int | float:
        """True positives."""
        return plain(self.cells.TP)

    @property
    def FN(self) -> int | float:
        """False negatives."""
        return plain(self.cells.FN)

    @property
    def FP(self) -> int | float:
        """False positives."""
        return plain(self.cells.FP)

    @property
    def TN(self) -> int | float:
        """True negatives."""
        return plain(self.cells.TN)

    @property
    def grand_total(self) -> int | float:
        """Number of points."""
        return plain(self.cells.n)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns that are not all zero."""
        return sum(map(bool, (self.cells.p1, self.cells.q1))), sum(map(bool, (self.cells.p2, self.cells.q2)))

    def to_ccw(self) -> TwoWay:
        """Cells in counter-clockwise order: TP, FP, TN, FN."""
        return TwoWay(self.TP, self.FP, self.TN, self.FN)

    def to_rows(self) -> list[list[int | float]]:
        """Cells as [[TP, FN], [FP, TN]]."""
        return [[self.TP, self.FN], [self.FP, self.TN]]

    def to_array(self, default: float = 0, cpad: bool = False, rpad: bool = False) -> np.ndarray[Any, Any]:
        """Cells as a 2×2 array; the options of `ContingencyTable.to_array` have nothing to do here."""
        return np.array(self.to_rows())

    def __repr__(self) -> str:
        return f"ConfusionMatrix2(rows={self.to_rows()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfusionMatrix2) and self.cells == other.cells

    def __hash__(self) -> int:
        return hash(self.cells)

    # -- tables made from this one

    def lform(self) -> ConfusionMatrix2:
        """L-shaped table: the smaller wrong count m moves onto the diagonal, (TP + m, FP − m, TN + m, FN − m).

        clustering-metrics zeroes that count before it is used a second time, so its column totals change.

        Examples
        --------
        >>> ConfusionMatrix2(TP=35, FN=9, FP=60, TN=41).lform()
        ConfusionMatrix2(rows=[[44, 0], [51, 50]])
        """
        return self.from_exact(twoway.lform(self.cells))

    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model, in exact fractions.

        Parameters
        ----------
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            Fixed: only the total; row totals; column totals; both. ``x``: everything in the first row and column that
            the fixed margins allow.
        discrete : bool, default False
            Round each count up or down at random, with the expected count as its mean.
        redraw : bool, default False
            Each call draws anew here.
        random_state : int or None
            Seed of the draw.

        Examples
        --------
        >>> ConfusionMatrix2(TP=3, FN=1, FP=1, TN=3).expected("m3")
        ConfusionMatrix2(rows=[[2, 2], [2, 2]])
        """
        del redraw
        cells = twoway.expected(self.cells, model)
        if discrete:
            draws = np.random.default_rng(random_state).random(4).tolist()
            cells = TwoWay(*(int(x // 1) + (draw < x % 1) for x, draw in zip(cells, draws, strict=True)))
        return self.from_exact(cells)

    def row_diag(self) -> ConfusionMatrix2:
        """Diagonal table of the row totals."""
        return self.from_exact(TwoWay(TP=self.cells.p1, FP=0, TN=self.cells.q1, FN=0))

    def col_diag(self) -> ConfusionMatrix2:
        """Diagonal table of the column totals."""
        return self.from_exact(TwoWay(TP=self.cells.p2, FP=0, TN=self.cells.q2, FN=0))

    def get_score(self, scoring_method: str, *args: Any, **kwargs: Any) -> Any:
        """Value of the measure of that name.

        Raises
        ------
        OptionError
            If there is no such measure of a 2×2 table.

        Examples
        --------
        >>> ConfusionMatrix2(TP=3, FN=1, FP=1, TN=3).get_score("diseq_coeff", standardize=True)
        0.5
        """
        shared = scoring_method in catalogue.TABLE_MEASURES and hasattr(self, scoring_method)
        if scoring_method not in catalogue.PAIR_MEASURES and not shared:
            msg = f"{scoring_method!r} is no measure of a 2×2 table; known are {', '.join(catalogue.PAIR_MEASURES)}"
            raise OptionError(msg)
        return getattr(self, scoring_method)(*args, **kwargs)

    def adjust_to_null(
        self, measure: str | Callable[..., Any], model: str = "m3", with_warnings: bool = False
    ) -> tuple[Any, Any]:
        """Adjust a measure at its defaults for chance: (x − null) / (ceiling − null), for two ceilings.

        The null is the measure of the expected table, the ceilings are the measure of the diagonal tables of row and
        of column totals; the shape stays 2×2, also where a margin is zero.

        Parameters
        ----------
        measure : str or method
        model : {"m1", "m2r", "m2c", "m3"}
        with_warnings : bool, default False
            Warn if the measure is already 0 under the null model, or 1 for a ceiling.

        Examples
        --------
        >>> matrix = ConfusionMatrix2(TP=20, FN=31, FP=14, TN=156)
        >>> round(matrix.adjust_to_null(matrix.dice_coeff)[0], 4), round(matrix.kappa(), 4)
        (0.3507, 0.3507)
        """
        name = catalogue.name_of(measure)
        tables = (self, self.expected(model), self.row_diag(), self.col_diag())
        actual, null, *ceilings = (table.get_score(name) for table in tables)
        if with_warnings:
            catalogue.warn_if_adjusted(name, null, (ceilings[0], ceilings[1]))
        return catalogue.adjusted(actual, null, (ceilings[0], ceilings[1]))

    @cached_property
    def facts(self) -> CountedStatistics:
        """What the measures of tables of any shape read."""
        return catalogue.twoway_facts(self.cells)

    # -- rates

    ACC = of_cells(twoway.accuracy, "ACC")
    DOR = of_cells(twoway.diagnostic_odds_ratio, "DOR")
    FDR = of_cells(twoway.false_discovery_rate, "FDR")
    FNR = of_cells(twoway.false_negative_rate, "FNR")
    FOR = of_cells(twoway.false_omission_rate, "FOR")
    FPR = of_cells(twoway.false_positive_rate, "FPR")
    NLL = of_cells(twoway.negative_likelihood_ratio, "NLL")
    NPV = of_cells(twoway.negative_predictive_value, "NPV")
    PLL = of_cells(twoway.positive_likelihood_ratio, "PLL")
    PPV = of_cells(twoway.precision, "PPV")
    TNR = of_cells(twoway.specificity, "TNR")
    TPR = of_cells(twoway.recall, "TPR")
    accuracy = of_cells(twoway.accuracy, "accuracy")
    precision = of_cells(twoway.precision, "precision")
    recall = of_cells(twoway.recall, "recall")
    sensitivity = of_cells(twoway.recall, "sensitivity")
    specificity = of_cells(twoway.specificity, "specificity")
    bias_index = of_cells(twoway.bias_index, "bias_index")
    frequency_bias = of_cells(twoway.frequency_bias, "frequency_bias")
    prevalence_index = of_cells(twoway.prevalence_index, "prevalence_index")

    # -- similarity and association

    chisq_score = of_cells(twoway.chisq_score, "chisq_score")
    cole_coeff = of_cells(association.cole_coeff, "cole_coeff")
    covar = of_cells(twoway.covar, "covar")
    dice_coeff = of_cells(twoway.dice_coeff, "dice_coeff")
    diseq_coeff = of_cells(association.diseq_coeff, "diseq_coeff")
    fscore = of_cells(twoway.fscore, "fscore")
    hypergeometric = of_cells(hypergeometric, "hypergeometric")
    informedness = of_cells(association.informedness, "informedness")
    jaccard_coeff = of_cells(twoway.jaccard_coeff, "jaccard_coeff")
    kappa = of_cells(association.kappa, "kappa")
    kappas = of_cells(association.kappas, "kappas")
    loevinger_coeff = of_cells(association.loevinger_coeff, "loevinger_coeff")
    markedness = of_cells(association.markedness, "markedness")
    matthews_corr = of_cells(association.matthews_corr, "matthews_corr")
    mic_scores = of_cells(catalogue.mic_scores, "mic_scores")
    mp_corr = of_cells(association.mp_corr, "mp_corr")
    ochiai_coeff = of_cells(twoway.ochiai_coeff, "ochiai_coeff")
    ochiai_coeff_adj = of_cells(association.ochiai_coeff_adj, "ochiai_coeff_adj")
    overlap_coeff = of_cells(twoway.overlap_coeff, "overlap_coeff")
    pairwise_hcv = of_cells(association.pairwise_hcv, "pairwise_hcv")
    sokal_sneath_coeff = of_cells(twoway.sokal_sneath_coeff, "sokal_sneath_coeff")
    xcoeff = of_cells(association.xcoeff, "xcoeff")
    yule_q = of_cells(association.yule_q, "yule_q")
    yule_y = of_cells(association.yule_y, "yule_y")


def _two_rows(rows: Any) -> list[list[Any]]:
    table = [list(row) for row in rows]
    if [len(row) for row in table] != [2, 2]:
        msg = f"rows has lengths {[len(row) for row in table]}; give ((TP, FN), (FP, TN))"
        raise DataError(msg)
    return table
