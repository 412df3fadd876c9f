"""The statistics of a table that measures read, for real tables and, in closed form, for null models.

A measure of a contingency table is a function of a dozen statistics. Three kinds of tables provide them:

- `CountedStatistics`: a real table, from its `Summary`;
- `NullStatistics`: the expected table of a null model. Each model fixes the two margins (r, c) and makes the cells
  r·c/N, so everything follows from the margins alone: MI is 0, Σ n² = Σ r²·Σ c²/N², the best matching pairs the largest
  margins. No dense R×C table is built;
- `diagonal`: the table that agrees perfectly with one margin.

========  ===================  =================  =================
model     fixed                row margins        column margins
========  ===================  =================  =================
``m1``    N                    N/R                N/C
``m2r``   row totals           r                  N/C
``m2c``   column totals        N/R                c
``m3``    both                 r                  c
========  ===================  =================  =================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from operator import floordiv
from typing import TYPE_CHECKING, Any, TypeAlias

from streameval.errors import OptionError
from streameval.metrics.contingency.mutual_information import Entropies, entropies, entropy_of_sizes
from streameval.metrics.contingency.twoway import TwoWay
from streameval.states.contingency.size_counts import Number, Sizes, aligned_sum
from streameval.states.contingency.summary import INERTIA_BITS, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MODELS = ("m1", "m2r", "m2c", "m3")
_MARGINS = {
    "m1": ("even", "even"),
    "m2r": ("fixed", "even"),
    "m2c": ("even", "fixed"),
    "m3": ("fixed", "fixed"),
    "x1": ("first", "first"),
    "x2r": ("fixed", "first"),
    "x2c": ("first", "fixed"),
}


def pair_table(total: Number, cells: Number, classes: Number, clusters: Number) -> TwoWay:
    """Pairs of points from N and the sums of squares of cells, class sizes and cluster sizes.

    TP: same class and cluster; FP: same cluster only; FN: same class only; TN: the rest.

    Examples
    --------
    >>> pair_table(5, cells=4 + 1 + 4, classes=9 + 4, clusters=4 + 9)
    TwoWay(TP=2, FP=2, TN=4, FN=2)
    """
    return TwoWay(
        TP=_half(cells - total),
        FP=_half(clusters - cells),
        TN=_half(total * total - classes - clusters + cells),
        FN=_half(classes - cells),
    )


def _half(x: Number) -> Number:
    return x // 2 if isinstance(x, int) else x / 2


def _unsolved() -> Number:
    msg = "assignment_score needs the best matching of the cells, which has not been solved for this summary"
    raise OptionError(msg)


def _undrawn(*_: object) -> Number:
    msg = "discrete=True draws a table of the null model; that needs a table in memory"
    raise OptionError(msg)


@dataclass(frozen=True)
class CountedStatistics:
    """Statistics of a real table, from its summary; `solve` finds the best matching on demand.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> facts = CountedStatistics(summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2, 1, 2])))
    >>> facts.total, facts.nonzero, facts.pairs
    (5, 3, TwoWay(TP=2, FP=2, TN=4, FN=2))
    """

    summary: Summary
    solve: Callable[[], Number] = field(default=_unsolved, compare=False)
    draw: Callable[[str, bool], Number] = field(default=_undrawn, compare=False)

    @property
    def total(self) -> Number:
        """Number of points, N."""
        return self.summary.total

    @property
    def classes(self) -> Sizes:
        """Row totals."""
        return self.summary.classes

    @property
    def clusters(self) -> Sizes:
        """Column totals."""
        return self.summary.clusters

    @property
    def nonzero(self) -> int:
        """Number of non-zero cells, V."""
        return self.summary.nonzero

    @property
    def chi_square(self) -> Number:
        """Pearson's chi-square, N·(Σ n²/(r·c) − 1), at least 0."""
        if self.summary.inertia is None:
            msg = "chi-square needs both sizes of every cell, which are not known without a block of classes"
            raise OptionError(msg)
        excess = self.summary.inertia - (1 << INERTIA_BITS)
        return self.total * Fraction(excess, 1 << INERTIA_BITS) if excess > 0 else 0

    @cached_property
    def entropies(self) -> Entropies:
        """Entropies of both margins and their mutual information, in nats."""
        return entropies(self.summary)

    @cached_property
    def pairs(self) -> TwoWay:
        """Pairs of points by agreement."""
        s = self.summary
        return pair_table(s.total, s.cells.squares, s.classes.squares, s.clusters.squares)

    @cached_property
    def bcubed(self) -> tuple[Number, Number]:
        """Σ n²/c and Σ n²/r, in fixed point of 2^-104 for exact counts."""
        kind = self.summary.cells.values.dtype.kind
        divided = {"f": _divided_floats, "i": _divided_integers}.get(kind, _divided)
        return divided(self.summary.cluster_squares), divided(self.summary.class_squares)

    @property
    def maxima(self) -> Number:
        """Σ row maxima + Σ column maxima."""
        return self.summary.row_maxima + self.summary.column_maxima

    @cached_property
    def matching(self) -> Number:
        """Total of the best one-to-one matching of rows and columns."""
        known = self.summary.matching
        return known[0] if known is not None and known[0] == known[1] else self.solve()


def _divided_floats(squares: Mapping[Number, Number]) -> float:
    return math.fsum(s / size for size, s in squares.items())


def _divided_integers(squares: Mapping[Any, Any]) -> Number:
    total = sum(map(floordiv, [s << INERTIA_BITS for s in squares.values()], squares))
    return Fraction(total, 1 << INERTIA_BITS)


def _divided(squares: Mapping[Number, Number]) -> Number:
    total = sum(int(s * (1 << INERTIA_BITS) // size) for size, s in squares.items())
    return Fraction(total, 1 << INERTIA_BITS)


@dataclass(frozen=True)
class NullStatistics:
    """Statistics of the table of independent margins, with cells r·c/N; only the margins matter.

    Examples
    --------
    >>> import numpy as np
    >>> sizes = Sizes.of(np.array([3, 1]))
    >>> null = NullStatistics(4, sizes, sizes)
    >>> null.matching, null.maxima, float(null.entropies.mutual), null.pairs.TP
    (Fraction(5, 2), 6, 0.0, Fraction(9, 8))
    """

    total: Number
    classes: Sizes
    clusters: Sizes
    draw: Callable[[str, bool], Number] = field(default=_undrawn, compare=False)

    @property
    def nonzero(self) -> int:
        """Number of cells, R·C."""
        return self.classes.count * self.clusters.count

    @property
    def chi_square(self) -> Number:
        """Zero."""
        return 0

    @property
    def entropies(self) -> Entropies:
        """Entropies of both margins; mutual information is 0."""
        return Entropies(entropy_of_sizes(self.classes), entropy_of_sizes(self.clusters), Fraction(0))

    @property
    def pairs(self) -> TwoWay:
        """Pairs of points by agreement, from the formula of pair counts applied to fractional cells."""
        classes, clusters = self.classes.squares, self.clusters.squares
        return pair_table(self.total, self._over(classes * clusters, 2), classes, clusters)

    @property
    def bcubed(self) -> tuple[Number, Number]:
        """Σ n²/c and Σ n²/r."""
        return self._over(self.classes.squares, 1), self._over(self.clusters.squares, 1)

    @property
    def maxima(self) -> Number:
        """Largest row total + largest column total."""
        return self.classes.largest + self.clusters.largest

    @property
    def matching(self) -> Number:
        """Sum of products of the k-th largest margins, over N."""
        return self._over(aligned_sum(self.classes, self.clusters), 1)

    def _over(self, x: Number, power: int) -> Number:
        if isinstance(x, float) or isinstance(self.total, float):
            return float(x) / float(self.total) ** power
        return Fraction(x) / Fraction(self.total) ** power if self.total else 0


TableStatistics: TypeAlias = CountedStatistics | NullStatistics
"""The statistics that a measure reads: exact numbers, or fractions with a certain error."""


def null_statistics(facts: TableStatistics, model: str) -> NullStatistics:
    """Statistics of the expected table under `model`, one of ``m1``, ``m2r``, ``m2c``, ``m3``.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> facts = CountedStatistics(summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2, 1, 3])))
    >>> null_statistics(facts, "m1").classes.values.tolist(), null_statistics(facts, "m3").classes.values.tolist()
    ([3], [3])
    """
    check_model(model)
    classes, clusters = (
        _even(facts.total, sizes.count) if kind == "even" else sizes
        for kind, sizes in zip(_MARGINS[model], (facts.classes, facts.clusters), strict=True)
    )
    return NullStatistics(facts.total, classes, clusters)


def check_model(model: str) -> None:
    """Refuse an unknown null model by name."""
    if model not in MODELS:
        msg = f"model is {model!r}; choose None or one of {', '.join(MODELS)}"
        raise OptionError(msg)


def margins_of(model: str) -> tuple[str, str]:
    """Row and column margins of a model's expected table: ``fixed``, ``even``, or all points in the ``first`` group.

    Raises
    ------
    OptionError
        If there is no such model.
    """
    if model not in _MARGINS:
        msg = f"model is {model!r}; choose one of {', '.join(_MARGINS)}"
        raise OptionError(msg)
    return _MARGINS[model]


def expected_cells(t: TwoWay, model: str) -> TwoWay:
    """Expected 2×2 table under a null model, in exact fractions; it stays 2×2 where a margin is 0.

    Examples
    --------
    >>> expected_cells(TwoWay(TP=3, FP=1, TN=3, FN=1), "m3").TP
    Fraction(2, 1)
    """
    n = Fraction(t.n)
    rows, cols = margins_of(model)
    if not n:
        return TwoWay(0, 0, 0, 0)
    free = {"even": (n / 2, n / 2), "first": (n, Fraction(0))}
    p1, q1 = free.get(rows, (Fraction(t.p1), Fraction(t.q1)))
    p2, q2 = free.get(cols, (Fraction(t.p2), Fraction(t.q2)))
    return TwoWay(p1 * p2 / n, q1 * p2 / n, q1 * q2 / n, p1 * q2 / n)


def _even(total: Number, groups: int) -> Sizes:
    if groups == 0:
        return Sizes.repeat(0, 0)
    return Sizes.repeat(total / groups if isinstance(total, float) else Fraction(total) / groups, groups)


def ceilings(facts: TableStatistics) -> tuple[CountedStatistics, CountedStatistics]:
    """Statistics of the diagonal tables of the row totals and of the column totals."""
    return diagonal(facts.classes), diagonal(facts.clusters)


def diagonal(sizes: Sizes) -> CountedStatistics:
    """Statistics of the diagonal table of these sizes: perfect agreement.

    Examples
    --------
    >>> import numpy as np
    >>> perfect = diagonal(Sizes.of(np.array([3, 1])))
    >>> perfect.matching, perfect.chi_square, float(perfect.entropies.variation)
    (4, Fraction(4, 1), 0.0)
    """
    squares = {size: size * size * times for size, times in sizes.pairs()}
    summary = Summary(
        sizes, sizes, sizes, squares, squares, sizes.count << INERTIA_BITS, sizes.total, sizes.total,
        (sizes.total, sizes.total),
    )  # fmt: skip
    return CountedStatistics(summary)
