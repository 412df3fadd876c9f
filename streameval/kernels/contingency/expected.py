"""Expected mutual information of two random partitions, over the distinct sizes of both.

A pair (a, b) of sizes contributes E[x·ln(x·n/(a·b))], where x is hypergeometric with mean m = a·b/n. Since E[x] = m,
this is the mean *deviance* of x from m. There may be millions of pairs; those with a small mean separate. Newton's
series of f(k) = k·ln k is Σ_j Δ^j f(0)/j!·(k)_j in falling factorials (k)_j = k·(k − 1)⋯(k − j + 1), whose
hypergeometric means are products::

    E[x·ln x] = Σ_j Δ^j f(0)/j! · (a)_j·(b)_j/(n)_j        E[x]·ln m = a·b/n·(ln a + ln b − ln n)

So for a size a, all sizes b below a bound enter only through their sums Σ (b)_j. The bound rises as a falls, so each
b is added to the sums once: the work grows with the sum of the numbers of sizes, not with their product. The terms fall
like m^j/j!, with alternating signs; double-double numbers keep 20 digits at m = `_MOST`.

Both sides are divided into *octaves*, in which sizes differ by less than a factor of two. Within an octave, the mean
deviance is a smooth function of the size. So an octave of many sizes acts like a few *nodes* with weights: the rule
that is exact for polynomials through the nodes. Its error falls like ρ^-nodes, with ρ = 3 + √8 for a whole octave,
since the nearest singularity is at size 0; with 22 nodes, no measured error exceeds that of rounding. The pairs of
nodes are summed one by one, over each h-th count of their range.

References: Vinh, Epps and Bailey (2010), *Information theoretic measures for clusterings comparison*, JMLR 11,
2837-2854; Loader (2000), *Fast and accurate computation of binomial probabilities*; Trefethen (2013), *Approximation
theory and approximation practice*, chapter 8.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.exact import add_pairs, divide_pairs, multiply_pairs, two_product, two_sum
from streameval.kernels.jit import jit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ORDERS = 88  # terms of the series: 20^88/88! is below 1e-19
_MOST = 20.0  # largest mean for which the series is used
_FAR = 1024.0  # largest size in units of √n for which the series is used: 1024^88 is below the largest float
_NEGLIGIBLE = 2.0**-56
_TINY = 2.0**-66
_WIDE = 64.0  # largest standard deviation for which probabilities follow from their neighbours
_HUGE = 2.0**52  # counts above this have no neighbours among float64 numbers
_ALIAS = 46.0  # e^-46 bounds the error of a mean over each h-th count
_SMOOTH = 36.0  # e^-36 is the error of a rule with nodes, up to a small factor


class SizeTable(NamedTuple):
    """Distinct sizes in ascending order, their multiplicities, and their logarithms as double-double numbers.

    `others` holds the rows outside of a group of each size, n − size, rounded after the subtraction.
    """

    sizes: Floats
    others: Floats
    times: Ints
    high: Floats
    low: Floats


@jit
def deviance(x: float, e: float, d: float) -> float:
    """Deviance x·ln(x/e) − d of a count x from its expectation e, with d = x − e; nonnegative, without cancellation.

    Reference: Loader (2000), *Fast and accurate computation of binomial probabilities*.
    """
    if x == 0.0:
        return e
    if abs(d) >= 0.1 * (x + e):
        return x * math.log(x / e) - d
    v = d / (x + e)
    total = d * v
    power = 2.0 * x * v
    v *= v
    for j in range(1, 1000):
        power *= v
        longer = total + power / (2 * j + 1)
        if longer == total:
            break
        total = longer
    return total


@jit
def _rise(a: float, b: float, other: float, k: float, step: int) -> float:
    """Probability of k + step relative to that of k."""
    result = 1.0
    for _ in range(step):
        result *= (a - k) * (b - k) / ((k + 1.0) * (other - (b - k) + 1.0))
        k += 1.0
    return result


@jit
def _fall(a: float, b: float, other: float, k: float, step: int) -> float:
    """Probability of k − step relative to that of k."""
    result = 1.0
    for _ in range(step):
        result *= k * (other - (b - k)) / ((a - k + 1.0) * (b - k + 1.0))
        k -= 1.0
    return result


@jit
def _summed(a: float, b: float, other: float, mh: float, ml: float, sigma: float) -> float:
    """Mean deviance of a hypergeometric count, summed from the mode until less than 2^-56 of the sum is missing.

    The sizes of the groups are a ≥ b, and `other` is n − a. Each h-th count is visited. A hypergeometric count is
    distributed as a sum of independent indicators, so its characteristic function at t is at most exp(−σ²·(1 − cos t))
    in magnitude; h is the largest step for which that is below e^-46 at t = 2π/h, where it bounds the error of the
    weights' sum. The deviance has a singularity at 0, so the probability of 0, at most e^-m, must be as small. With
    σ = 0, all counts are visited.

    Reference: Vatutin and Mikhailov (1982), *Limit theorems for the number of empty cells in an equiprobable scheme
    for group allocation of particles*, Theory of Probability and its Applications 27, 734-743.
    """
    low = max(0.0, b - other)
    mode = min(max(np.floor((a + 1.0) * (b + 1.0) / (a + other + 2.0)), low), b)
    step = 1
    if 2.0 * sigma * sigma >= _ALIAS and mh >= _ALIAS:
        step = int(2.0 * math.pi / math.acos(1.0 - _ALIAS / (sigma * sigma)))
    start = deviance(mode, mh, (mode - mh) - ml)
    weights, total = 1.0, start
    w, k, before = 1.0, mode, start
    ratio = _rise(a, b, other, k, step)
    while k < b:
        w *= ratio
        k += step
        term = w * deviance(k, mh, (k - mh) - ml)
        weights += w
        total += term
        ratio = _rise(a, b, other, k, step)
        if (  # the ratio of the last two terms, term / before, bounds the following ratios
            k > mh + 1.0
            and ratio < 1.0
            and term < before
            and w * ratio < _NEGLIGIBLE * weights * (1.0 - ratio)
            and term * term < _NEGLIGIBLE * total * (before - term)
        ):
            break
        before = term
    w, k = 1.0, mode
    ratio = _fall(a, b, other, k, step)
    while k > low:
        w *= ratio
        k -= step
        weights += w
        total += w * deviance(k, mh, (k - mh) - ml)
        ratio = _fall(a, b, other, k, step)
        left_out = w * ratio
        if (
            ratio < 1.0
            and left_out < _NEGLIGIBLE * weights * (1.0 - ratio)
            and left_out * mh < _NEGLIGIBLE * total * (1.0 - ratio)
        ):
            break
    return total / weights


@jit
def _stirling(x: float) -> float:
    """Error of Stirling's formula for ln x!, for large x."""
    return (1.0 / 12.0 - 1.0 / (360.0 * x * x)) / x


@jit
def _log_weight(k: float, e1: float, e2: float, e3: float, e4: float, ml: float) -> float:
    """Logarithm of a hypergeometric probability up to a constant, from the deviances of the four cells."""
    d = (k - e1) - ml
    x2, x3, x4 = e2 - d, e3 - d, e4 + d
    result = -(deviance(k, e1, d) + deviance(x2, e2, -d) + deviance(x3, e3, -d) + deviance(x4, e4, d))
    result -= 0.5 * (math.log1p(d / e1) + math.log1p(-d / e2) + math.log1p(-d / e3) + math.log1p(d / e4))
    return result - (_stirling(k) + _stirling(x2) + _stirling(x3) + _stirling(x4))


@jit
def _sampled(a: float, b: float, other: float, mh: float, ml: float, sigma: float) -> float:
    """Mean deviance for a large standard deviation: a sum over points half a σ apart, from −9 σ to 9 σ.

    The sizes of the groups are a ≥ b, and `other` is n − a.

    The trapezoidal rule with step h has an error of exp(−2π²σ²/h²) on a bell curve, here below 1e-34; the omitted tails
    weigh less than 1e-17. The largest measured error is 1e-15 relative.
    """
    e2, e3 = (a - mh) - ml, (b - mh) - ml
    e4 = other - e3
    step = np.floor(sigma / 2.0)  # a float, because values may exceed the int64 range
    centre = np.floor(mh)
    top = _log_weight(centre, mh, e2, e3, e4, ml)
    weights, total = 0.0, 0.0
    for j in range(-18, 19):
        k = centre + j * step
        w = math.exp(_log_weight(k, mh, e2, e3, e4, ml) - top)
        weights += w
        total += w * deviance(k, mh, (k - mh) - ml)
    return total / weights


@jit
def _octaves(sizes):
    """The first of the sizes of each octave, and the end."""
    starts, found = np.empty(sizes.size + 1, np.int64), 0
    for k in range(sizes.size):
        if k == 0 or sizes[k] >= 2.0 * sizes[starts[found - 1]]:
            starts[found] = k
            found += 1
    starts[found] = sizes.size
    return starts[: found + 1]


@jit
def _rule(sizes, times, nodes, weights):
    """Nodes and weights that stand for the sizes of an octave; returns their number.

    Nodes are Chebyshev points, rounded because only whole sizes have a distribution. If there are not fewer nodes than
    sizes, or nodes would coincide, the sizes are the nodes. The weight of a node is the sum over all sizes of its
    Lagrange polynomial.
    """
    half = 0.5 * (sizes[-1] - sizes[0])
    ratio = (sizes[0] + half) / max(half, 0.5)
    count = 2 + int(_SMOOTH / math.log(ratio + math.sqrt(ratio * ratio - 1.0)))
    if sizes.size <= count or 8.0 * half < count * count:
        nodes[: sizes.size], weights[: sizes.size] = sizes, times
        return sizes.size
    scale, before = np.ones(count), np.ones(count + 1)
    for p in range(count):
        nodes[p] = np.rint(sizes[0] + half - half * math.cos((p + 0.5) * math.pi / count))
        weights[p] = 0.0
    for p in range(count):
        for q in range(count):
            scale[p] *= 0.5 * half / (nodes[p] - nodes[q]) if p != q else 1.0
    for k in range(sizes.size):
        after = float(times[k])
        for p in range(count):
            before[p + 1] = before[p] * (sizes[k] - nodes[p]) / (0.5 * half)
        for p in range(count - 1, -1, -1):
            weights[p] += before[p] * after * scale[p]
            after *= (sizes[k] - nodes[p]) / (0.5 * half)
    return count


@jit
def _separated(a, b, n, log_n, series, octaves, stops):
    """Sum the pairs with small means by the series, from the largest size of `a` to the smallest.

    `octaves` holds the octaves of both; ``stops[i]`` becomes the number of octaves of `b` that were paired with octave
    i of `a`. Returns the sum and its error.
    """
    unit = 2.0 ** math.floor(0.5 * math.log2(n))  # a power of two near √n: scaling by it is exact
    scaled = np.zeros((2, ORDERS))  # series coefficients divided by (n)_j, in powers of the unit
    power_hi, power_lo = divide_pairs(unit * unit, 0.0, n, 0.0)
    for j in range(2, ORDERS):
        more = divide_pairs(unit * unit, 0.0, n - (j - 1.0), 0.0) if n > j else (0.0, 0.0)
        power_hi, power_lo = multiply_pairs(power_hi, power_lo, more[0], more[1])
        scaled[0, j], scaled[1, j] = multiply_pairs(series[0, j], series[1, j], power_hi, power_lo)
    sums = np.zeros((2, ORDERS))  # Σ times·(b)_j over the sizes so far; slot j = 0 holds Σ times·b·ln b
    done, stop, total, carry = 0, 0, 0.0, 0.0
    for i in range(octaves[0].size - 2, -1, -1):
        large = a.sizes[octaves[0][i + 1] - 1]
        while stop < octaves[1].size - 1:
            other = b.sizes[octaves[1][stop + 1] - 1]
            if max(large, other) > _FAR * unit or large * other > _MOST * n or 2.0 * (large + other) >= n:
                break
            stop += 1
            while done < octaves[1][stop]:
                _include(b, done, unit, sums)
                done += 1
        stops[i] = stop
        for k in range(octaves[0][i], octaves[0][i + 1] if done else octaves[0][i]):
            size = a.sizes[k]
            hi, lo = _of_size(size, (a.high[k], a.low[k]), size * b.sizes[done - 1] / n, n, log_n, unit, scaled, sums)
            total, error = two_sum(total, float(a.times[k]) * hi)
            carry += error + float(a.times[k]) * lo
    return total, carry


@jit
def _include(b, k, unit, sums):
    """Add size k to the sums over the sizes so far."""
    size, times = b.sizes[k], float(b.times[k])
    hi, lo = two_product(size, times)
    more = multiply_pairs(b.high[k], b.low[k], hi, lo)
    sums[0, 0], sums[1, 0] = add_pairs(sums[0, 0], sums[1, 0], more[0], more[1])
    hi, lo = hi / unit, lo / unit
    sums[0, 1], sums[1, 1] = add_pairs(sums[0, 1], sums[1, 1], hi, lo)
    for j in range(2, min(ORDERS, int(size) + 1)):
        hi, lo = multiply_pairs(hi, lo, (size - (j - 1.0)) / unit, 0.0)
        sums[0, j], sums[1, j] = add_pairs(sums[0, j], sums[1, j], hi, lo)


@jit
def _of_size(a, log_a, most, n, log_n, unit, scaled, sums):
    """Total mean deviance of size `a` over all sizes in `sums`; `most` is the largest mean."""
    hi, lo = add_pairs(log_n[0], log_n[1], -log_a[0], -log_a[1])
    first = multiply_pairs(sums[0, 1] * unit, sums[1, 1] * unit, hi, lo)
    hi, lo = add_pairs(first[0], first[1], -sums[0, 0], -sums[1, 0])
    share = divide_pairs(a, 0.0, n, 0.0)
    total = multiply_pairs(share[0], share[1], hi, lo)
    power = a / unit, 0.0
    for j in range(2, min(ORDERS, int(a) + 1)):
        power = multiply_pairs(power[0], power[1], (a - (j - 1.0)) / unit, 0.0)
        term = multiply_pairs(scaled[0, j], scaled[1, j], power[0], power[1])
        term = multiply_pairs(term[0], term[1], sums[0, j], sums[1, j])
        total = add_pairs(total[0], total[1], term[0], term[1])
        if j > 2.0 * most and abs(term[0]) <= _TINY * abs(total[0]):
            break
    return total


@jit
def _of_pair(large: tuple[float, float], small: tuple[float, float], n: float) -> float:
    """Mean deviance of a pair of groups, each given by its size and the number of rows outside of it."""
    (a, other), (b, outside) = large, small
    mh, ml = divide_pairs(*two_product(a, b), n, 0.0)
    variance = mh * (other / n) * (outside / max(n - 1.0, 1.0))
    if mh >= _HUGE:
        return variance / (2.0 * mh)  # the first term of a series in 1/m
    sigma = math.sqrt(variance)
    given = a, b, other, mh, ml, sigma
    return _sampled(*given) if sigma > _WIDE else _summed(*given)


@jit
def _nodes(table, octaves, n, whole):
    """Nodes of all octaves, with the rows outside of each and its weight; if `whole`, all sizes are nodes.

    The nodes of an octave follow its start; returns also the number of each octave's nodes.
    """
    nodes, outside, weights = table.sizes.copy(), table.others.copy(), table.times.astype(np.float64)
    counts = np.diff(octaves)
    for i in range(0 if whole else counts.size):
        part = slice(octaves[i], octaves[i + 1])
        counts[i] = _rule(table.sizes[part], table.times[part], nodes[part], weights[part])
        if counts[i] < octaves[i + 1] - octaves[i]:
            outside[part] = n - nodes[part]
    return nodes, outside, weights, counts


@jit
def expected_information(a: SizeTable, b: SizeTable, n: float, log_n: tuple[float, float], series: Floats) -> float:
    """N times the expected mutual information in nats, from the distinct sizes of both sides.

    `series` holds the coefficients Δ^j f(0)/j! of k·ln k as double-double numbers, of shape (2, `ORDERS`). If it is
    empty, for instance because the sizes are not exact, all pairs are summed term by term. The terms are nonnegative,
    so nothing cancels. Weights are products of the ratios of neighbouring probabilities, divided by their sum, so no
    log-factorials are needed.
    """
    octaves = _octaves(a.sizes), _octaves(b.sizes)
    stops = np.zeros(octaves[0].size, np.int64)
    total, carry = 0.0, 0.0
    if series.size:
        total, carry = _separated(a, b, n, log_n, series, octaves, stops)
    left, right = (_nodes(a, octaves[0], n, not series.size), _nodes(b, octaves[1], n, not series.size))
    for p in range(octaves[0].size - 1):
        for i in range(octaves[0][p], octaves[0][p] + left[3][p]):
            for q in range(stops[p], octaves[1].size - 1):
                for j in range(octaves[1][q], octaves[1][q] + right[3][q]):
                    one, two = (left[0][i], left[1][i]), (right[0][j], right[1][j])
                    mean = _of_pair(one, two, n) if one[0] >= two[0] else _of_pair(two, one, n)
                    total, error = two_sum(total, left[2][i] * right[2][j] * mean)
                    carry += error
    return total + carry
