"""Fisher's exact test of a 2×2 table, two-sided, as an association score: sign(cov)·(−ln p).

p is the sum of the probabilities, given the margins, that are not greater than the observed one, exact ties included.
Probabilities are never formed. With E the expected counts and d = TP − E₁₁ their deviation,

    ln P = constant − Σ over the four cells of [deviance(x, E) + δ(x)],  deviance = x·ln(x/E) − (x − E),

and δ(x) = ln x! − (x·ln x − x), which neither cancels nor overflows; so p may be far below the smallest float, and
the table may be the pair table of 10¹² points. Sums over more than 2²⁰ tables become integrals of this smooth function
with the Euler-Maclaurin correction at their ends. Near ties at a short distance are decided in exact integers.

Error: about 1e-13 relative for up to 2²⁰ tables that matter, 1e-9 beyond.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.errors import DataError

if TYPE_CHECKING:
    from streameval.metrics.contingency.twoway import TwoWay

Floats = NDArray[np.float64]

_MANY = 1 << 20
_NEGLIGIBLE = 60.0  # e^-60
_TIE = 1e-9
_VAST = 1e12  # above it the number of terms, at most e^60, is below the resolution
_NEAR = 50_000


class _Table(NamedTuple):
    """Whole counts with their expectations; shifting by j moves j points onto the diagonal."""

    cells: tuple[int, int, int, int]
    expected: tuple[float, float, float, float]
    deviation: float

    def log_weight(self, shifts: Floats) -> Floats:
        """Logarithm of the probability of the shifted tables, up to a constant."""
        result = np.zeros(shifts.shape)
        for cell, expected, sign in zip(self.cells, self.expected, (1, -1, 1, -1), strict=True):
            x = np.maximum(float(cell) + sign * shifts, 0.0)
            result -= _deviance(x, expected, sign * (self.deviation + shifts)) + _stirling_rest(x)
        return result

    def at(self, shift: int) -> float:
        """Logarithm of the probability of one shifted table."""
        return float(self.log_weight(np.array([float(shift)]))[0])


def hypergeometric(t: TwoWay) -> float:
    """Fisher's exact test as a score, sign(cov)·(−ln p), p two-sided; infinite only beyond 1e308, 0 by chance.

    Refuses fractional counts, which SciPy truncates.

    References
    ----------
    Loader, C. (2000), Fast and accurate computation of binomial probabilities.
    """
    if not all(isinstance(x, int) for x in t):
        raise DataError("hypergeometric needs whole counts, and this table has fractions")
    a, c, d, b = (int(x) for x in t)
    n, p1, p2 = a + b + c + d, a + b, a + c
    low, high = max(-a, -d), min(b, c)
    if low == high:
        return 0.0
    expected = (p1 * p2 / n, (n - p1) * p2 / n, (n - p1) * (n - p2) / n, p1 * (n - p2) / n)
    table = _Table((a, c, d, b), expected, (a * d - b * c) / n)
    mode = min(max((p1 + 1) * (p2 + 1) // (n + 2) - a, low), high)
    if mode == 0 or _not_greater(table, mode, table.at(0)):
        return 0.0
    if mode > 0:
        bound = _first_not_greater(table, mode, 1, high - mode)
        tail, inside, far = (low, 0), (1, bound - 1), (bound, high)
    else:
        bound = _first_not_greater(table, mode, -1, mode - low)
        tail, inside, far = (0, high), (bound + 1, -1), (low, bound)
    included = np.logaddexp(_log_sum(table, *tail), _log_sum(table, *far))
    score = float(np.logaddexp(0.0, _log_sum(table, *inside) - included))
    return -score if a * d < b * c else score


def _first_not_greater(table: _Table, mode: int, step: int, length: int) -> int:
    """First shift beyond the mode, one way, whose probability is not greater than the observed one."""
    observed = table.at(0)
    near, far = 0, length + 1
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if _not_greater(table, mode + step * middle, observed) else (middle, far)
    return mode + step * far


def _not_greater(table: _Table, shift: int, observed: float) -> bool:
    difference = table.at(shift) - observed
    if abs(difference) > _TIE * max(1.0, abs(observed)) or abs(shift) > _NEAR:
        return difference <= _TIE
    a, c, d, b = table.cells if shift > 0 else (table.cells[1], table.cells[0], table.cells[3], table.cells[2])
    k = abs(shift)
    return math.perm(b, k) * math.perm(c, k) <= math.perm(a + k, k) * math.perm(d + k, k)


def _log_sum(table: _Table, low: int, high: int) -> float:
    """Logarithm of the sum of the weights of the shifts low..high."""
    if low > high:
        return -math.inf
    peak = min(max(round(-table.deviation), low), high)
    top = table.at(peak)
    if abs(top) > _VAST:
        return top
    low, high = _relevant(table, peak, low, top), _relevant(table, peak, high, top)
    if high - low < _MANY:
        shifts = float(low) + np.arange(high - low + 1, dtype=np.float64)
        weights = np.exp(table.log_weight(shifts) - top)
        return top + math.log(math.fsum(weights.tolist()))
    return top + math.log(_integral(table, float(low), float(high), top))


def _relevant(table: _Table, peak: int, end: int, top: float) -> int:
    """Furthest shift from the peak towards `end` whose weight is not negligible."""
    if table.at(end) >= top - _NEGLIGIBLE:
        return end
    step = 1 if end > peak else -1
    near, far = 0, abs(end - peak)
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if table.at(peak + step * middle) >= top - _NEGLIGIBLE else (near, middle)
    return peak + step * near


def _integral(table: _Table, low: float, high: float, top: float) -> float:
    """Sum of the weights from low to high as an integral: 400 panels of 8 Gauss points, and the ends."""
    nodes, factors = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(low, high, 401)
    half = (edges[1:] - edges[:-1]) / 2
    points = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    inner = float(np.sum(half[:, None] * factors * np.exp(table.log_weight(points) - top)))
    ends = np.exp(table.log_weight(np.array([low, low + 1, high - 1, high])) - top)
    slopes = (ends[3] - ends[2]) - (ends[1] - ends[0])
    return inner + float(ends[0] + ends[3]) / 2 + float(slopes) / 12


def _deviance(x: Floats, expected: float, d: Floats) -> Floats:
    """x·ln(x/E) − d without cancellation, d = x − E."""
    v = d / (x + expected)
    square = v * v
    series = np.zeros(x.shape)
    for k in range(10, 0, -1):
        series = square * (1 / (2 * k + 1) + series)
    near = d * v + 2 * x * v * series
    far = x * np.log(np.where(x > 0, x, 1.0) / expected) - d
    return np.where(np.abs(v) < 0.1, near, far)


def _stirling_rest(x: Floats) -> Floats:
    """Ln x! − (x·ln x − x): from a table below 32, from Stirling's series above."""
    y = np.maximum(x, 32.0)
    square = 1 / (y * y)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / y
    large = 0.5 * np.log(2 * np.pi * y) + series
    return np.where(x < 32, _SMALL[np.clip(np.rint(x), 0, 32).astype(np.int64)], large)


_SMALL = np.array([math.lgamma(k + 1) - (k * math.log(k) - k if k else 0.0) for k in range(33)])
