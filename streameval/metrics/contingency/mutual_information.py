"""Entropies, mutual information and its expectation, without cancellation, from a summary of sizes.

Entropies are differences of large sums: N·H(classes) = N ln N − Σ r ln r, and N·MI = N ln N + Σ n ln n − Σ r ln r −
Σ c ln c. In float64 the difference keeps no digit when the partitions are nearly independent, or nearly constant. Here
each ln of a distinct size is a fixed-point integer, sums over the histogram are exact integer arithmetic, and the
result is a fraction that is rounded once. Two precisions are used:

- compiled double-double logarithms, with an error below 2^-96, about 0.2 µs each;
- decimal logarithms to any precision, about 50 µs each, if there are few sizes, or sizes beyond 2^62, or if the first
  precision gives a mutual information below 2^-50.

The second decides *exactly* whether MI is zero: for whole counts, N²·(p_ij − p_i·p_j) is an integer, so by Pinsker's
inequality MI is 0 or at least 1/(2·N⁴), and the precision chosen is finer than that. The order of rows, files and
shards changes no bit of these values. Fractional float64 cells carry the rounding of their margins, about 1e-15 nats.

**Expected mutual information** sums over distinct pairs (class size, cluster size) with multiplicities. Those with a
small mean, almost all, are taken together by a series of falling factorials in double-double numbers. For the others,
a few sizes with weights stand for the many sizes of an octave, and each pair is summed over the part of the
hypergeometric range that matters. The part left out is below 2^-55 of each pair's term: the ratio of successive terms
falls, so a geometric series bounds it. Wide ranges are summed over each h-th count, whose error the characteristic
function bounds by e^-46. The mean of a pair is right to 4e-15. See
`streameval.kernels.contingency.expected`.

References: Vinh, Epps and Bailey (2010), *Information theoretic measures for clusterings comparison*, JMLR 11,
2837-2854; http://www.jmlr.org/papers/v11/vinh10a.html.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.kernels.contingency.expected import ORDERS, SizeTable, expected_information
from streameval.kernels.contingency.tables import log_pairs
from streameval.metrics.contingency.arithmetic import safe_divide
from streameval.states.contingency.summary import Number, Sizes, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray


_BITS = 120  # double-double logarithms become integers in units of 2^-120
_FEW = 64
_LARGE = 2**62
_UNRESOLVED = Fraction(1, 2**50)

Logs = dict[int, int]


class Entropies(NamedTuple):
    """Entropies of the classes and of the clusters, and their mutual information, in nats.

    Fractions, correct to at least 2^-90 (floats for fractional float64 cells), so that their sums and differences are
    safe; round at the end.
    """

    classes: Number
    clusters: Number
    mutual: Number

    @property
    def variation(self) -> Number:
        """Variation of information, H(classes | clusters) + H(clusters | classes)."""
        return self.classes + self.clusters - 2 * self.mutual


@lru_cache(maxsize=16)
def entropies(summary: Summary) -> Entropies:
    """Entropies of both partitions of a table and their mutual information, in nats.

    Examples
    --------
    >>> from streameval.states.contingency.summary import summarize
    >>> table = summarize(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([1, 2, 3, 6]))
    >>> [float(h) for h in entropies(table)]  # independent: exactly 0
    [0.5623351446188084, 0.6365141682948128, 0.0]
    """
    if summary.cells.values.dtype.kind == "f":
        return _float_entropies(summary)
    unit = _common_denominator(summary.cells, summary.classes, summary.clusters)
    parts = [_scale(h, unit) for h in (summary.cells, summary.classes, summary.clusters)]
    total = int(summary.total * unit)
    sizes = {total}.union(*parts)
    trivial = 1 in summary.shape or total == 0
    if len(sizes) > _FEW and total < _LARGE:
        result = _from_logs(_fast_logs(sizes), _BITS, total, *parts)
        if result.mutual >= _UNRESOLVED or trivial:
            return result._replace(mutual=Fraction(0)) if trivial else result
    bits = 4 * total.bit_length() + 80
    result = _from_logs(_decimal_logs(sizes, bits), bits, total, *parts)
    resolved = result.mutual * total * 2**bits > 16 * total  # 16 N bounds the rounding error in these units
    return result if resolved and not trivial else result._replace(mutual=Fraction(0))


@lru_cache(maxsize=256)
def entropy_of_sizes(sizes: Sizes) -> Number:
    """Entropy of a partition with these sizes, in nats, as a fraction (a float for float64 sizes).

    Examples
    --------
    >>> from streameval.states.contingency.summary import Sizes
    >>> float(entropy_of_sizes(Sizes.of(np.array([5, 5]))))
    0.6931471805599453
    """
    return entropies(Summary(sizes, sizes, sizes)).classes


def log_of(x: Number) -> Number:
    """Natural logarithm of a positive number as a fraction accurate to 2^-110; a float gives a float.

    Examples
    --------
    >>> float(log_of(10))
    2.302585092994046
    """
    if isinstance(x, float):
        return math.log(x)
    x = Fraction(x)
    logs = _decimal_logs({x.numerator, x.denominator}, 110 + _BITS)
    return Fraction(logs[x.numerator] - logs[x.denominator], 2 ** (110 + _BITS))


def _from_logs(
    logs: Logs, bits: int, total: int, cells: dict[int, int], classes: dict[int, int], clusters: dict[int, int]
) -> Entropies:
    def weighted(part: dict[int, int]) -> int:
        return sum(map(mul, map(mul, part, part.values()), map(logs.__getitem__, part)))

    if total == 0:
        return Entropies(Fraction(0), Fraction(0), Fraction(0))
    whole, unit = total * logs[total], total << bits
    r, c = weighted(classes), weighted(clusters)
    return Entropies(
        Fraction(whole - r, unit), Fraction(whole - c, unit), Fraction(whole + weighted(cells) - r - c, unit)
    )


def _common_denominator(*histograms: Sizes) -> int:
    if all(h.values.dtype.kind == "i" for h in histograms):
        return 1
    return math.lcm(*(Fraction(v).denominator for h in histograms for v in h.values.tolist()))


def _scale(histogram: Sizes, unit: int) -> dict[int, int]:
    if unit == 1 and histogram.values.dtype.kind == "i":
        return dict(zip(histogram.values.tolist(), histogram.times.tolist(), strict=True))
    return {int(size * unit): times for size, times in histogram.pairs()}


_KNOWN: Logs = {}  # logarithms of sizes, shared by the replicates of a table
_MOST_KNOWN = 1 << 16


def _fast_logs(sizes: set[int]) -> Logs:
    known = _KNOWN if len(sizes) + len(_KNOWN) <= _MOST_KNOWN else {}
    values = np.fromiter(sizes.difference(known), dtype=np.int64)
    high, low = _log_pairs(values)
    units = zip(values.tolist(), np.ldexp(high, _BITS).tolist(), np.ldexp(low, _BITS).tolist(), strict=True)
    known.update((value, int(h) + int(l_)) for value, h, l_ in units)
    return known


def _log_pairs(values: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of positive integers below 2^62 as double-double numbers."""
    high, low = np.empty(values.size), np.empty(values.size)
    log_pairs(values, *_table(), high, low)
    return high, low


@lru_cache(maxsize=1)
def _table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of the 128 bin centres as double-double numbers."""
    with localcontext() as context:
        context.prec = 50
        return _pairs([(Decimal(1) + (Decimal(k) + Decimal("0.5")) / 128).ln() for k in range(128)])


def _pairs(numbers: list[Decimal]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Decimal numbers as double-double numbers."""
    high = [float(x) for x in numbers]
    return np.array(high), np.array([float(x - Decimal(h)) for x, h in zip(numbers, high, strict=True)])


def _decimal_logs(sizes: Iterable[int], bits: int) -> Logs:
    """Logarithms in units of 2^-bits, with an error of less than two units."""
    return {size: _decimal_log(size, bits) if size else 0 for size in sizes}


@lru_cache(maxsize=_MOST_KNOWN)  # replicates of a table share most sizes
def _decimal_log(size: int, bits: int) -> int:
    with localcontext() as context:
        context.prec = int(bits * 0.302) + 10
        return int(Decimal(size).ln() * Decimal(2) ** bits)


def _float_entropies(summary: Summary) -> Entropies:
    total = summary.total
    if total == 0:
        return Entropies(0.0, 0.0, 0.0)
    n, r, c = (
        math.fsum(times * size * math.log(size) for size, times in sizes.pairs())
        for sizes in (summary.cells, summary.classes, summary.clusters)
    )
    whole = float(total) * math.log(total)
    rows, cols = summary.shape
    return Entropies(
        max(0.0, (whole - r) / total) if rows > 1 else 0.0,
        max(0.0, (whole - c) / total) if cols > 1 else 0.0,
        max(0.0, math.fsum([whole, n, -r, -c]) / total) if min(rows, cols) > 1 else 0.0,
    )


def expected_mutual_information(classes: Sizes, clusters: Sizes) -> float:
    """Expected mutual information of two random partitions with these sizes (hypergeometric model), in nats.

    Parameters
    ----------
    classes, clusters : Sizes
        Whole sizes with the same total; beyond 2^53 they are rounded to float64.

    Examples
    --------
    >>> from streameval.states.contingency.summary import Sizes
    >>> expected_mutual_information(Sizes.of(np.array([2, 2])), Sizes.of(np.array([2, 2])))
    0.23104906018664842
    """
    _check_whole(classes, clusters)
    total = classes.total
    if total == 0:
        return 0.0
    exact = total < _LARGE
    sides = (_size_table(classes, total, exact=exact), _size_table(clusters, total, exact=exact))
    high, low = _log_pairs(np.array([total if exact else 1], np.int64))
    series = _newton_series() if exact else np.empty((2, 0))
    return float(expected_information(*sides, float(total), (float(high[0]), float(low[0])), series)) / float(total)


def _size_table(sizes: Sizes, total: Number, *, exact: bool) -> SizeTable:
    """Sizes for the kernel, of `total` rows, with logarithms where they are below 2^62."""
    logs = _log_pairs(sizes.values.astype(np.int64)) if exact else (np.empty(0), np.empty(0))
    others = (total - sizes.values).astype(np.float64)
    return SizeTable(sizes.values.astype(np.float64), others, sizes.times, *logs)


@lru_cache(maxsize=1)
def _newton_series() -> NDArray[np.float64]:
    """Coefficients Δ^j f(0)/j! of f(k) = k·ln k in falling factorials, as double-double numbers of shape (2, `ORDERS`).

    A difference of order j of positive integers loses j bits and more: 80 digits leave 32.
    """
    with localcontext() as context:
        context.prec = 80
        row = [Decimal(0), *(k * Decimal(k).ln() for k in range(1, ORDERS))]
        numbers, factorial = [], Decimal(1)
        for j in range(ORDERS):
            numbers.append(row[0] / factorial)
            row, factorial = [y - x for x, y in pairwise(row)], factorial * (j + 1)
        return np.array(_pairs(numbers))


def _check_whole(classes: Sizes, clusters: Sizes) -> None:
    for name, histogram in (("classes", classes), ("clusters", clusters)):
        if histogram.fractional:
            raise DataError(f"expected mutual information needs whole counts; the sizes of the {name} have fractions")


_AVERAGES: dict[str, Callable[[float, float], float]] = {
    "max": max,
    "min": min,
    "arithmetic": lambda x, y: (x + y) / 2,
    "geometric": lambda x, y: math.sqrt(x * y),
}


def adjusted_information(found: Entropies, classes: Sizes, clusters: Sizes, average_method: str = "max") -> float:
    """Adjusted mutual information, (MI − E) / (average of the entropies − E), at most 1 and 0 by chance.

    Parameters
    ----------
    found : Entropies
        Of the table with these class and cluster sizes.
    classes, clusters : Sizes
        Whole sizes.
    average_method : {"max", "min", "arithmetic", "geometric"}
        How the two entropies are averaged.

    Notes
    -----
    If one side is a single group, or consists of singletons only, every table with these margins has the same MI. The
    value is then exactly 0, or 1 if the partitions are equal; scikit-learn divides one rounding error by another.
    """
    if not isinstance(average_method, str) or average_method not in _AVERAGES:
        raise OptionError(f"average_method is {average_method!r}; choose one of {', '.join(_AVERAGES)}")
    _check_whole(classes, clusters)
    if found.variation == 0:
        return 1.0
    counts = classes.count, clusters.count
    if 1 in counts or classes.total in counts:
        return 0.0
    expected = expected_mutual_information(classes, clusters)
    average = _AVERAGES[average_method](float(found.classes), float(found.clusters))
    return safe_divide(float(found.mutual) - expected, average - expected)
