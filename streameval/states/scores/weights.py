"""Weights: units for very large or very small ones, and sums as two floats.

Products of very large or very small weights would leave the range of float64. Metrics see weights divided by a power of
two, the *unit*: they are ratios, so scaling all weights by a power of two does not change them, to the last bit. States
store the weights unscaled; `ScorePart` and `Totals` give them in the unit 2 to the power of `Totals.unit`. For sums of
ordinary size the unit is 1.

A sum is kept as a rounded sum and its rounding error, so that the order of additions does not matter. The error of the
error is lost: the rounded sum is wrong only if the exact one is nearly halfway between two floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import WeightError
from streameval.kernels.exact import add_at
from streameval.kernels.ranking import exact_parts
from streameval.kernels.segments import sum_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.typing import Array


_ORDINARY = -16, 80  # sums with exponents in this range are not scaled
_TINY = float(np.finfo(np.float64).tiny)  # the smallest normal number; smaller ones have fewer digits


def unit_of(weight: float) -> int:
    """Exponent of the unit for weights with this sum: 0, or the exponent that scales the sum to [½, 1).

    Examples
    --------
    >>> unit_of(7531.0), unit_of(2.0**-500)
    (0, -499)
    """
    exponent = math.frexp(weight)[1] if 0 < weight < math.inf else 0
    return 0 if _ORDINARY[0] <= exponent <= _ORDINARY[1] else exponent


def in_units(weights: Array, unit: int, column: str) -> Array:
    """Weights divided by 2 to the power of `unit`.

    Parameters
    ----------
    weights : float64 array, not negative
    unit : exponent of the unit, see `unit_of`
    column : name of the score column, for the message

    Raises
    ------
    WeightError
        If a weight is so small relative to the sum that float64 cannot hold their ratio.

    Examples
    --------
    >>> in_units(np.array([0.0, 2.0**-500]), -499, "score")
    array([0. , 0.5])
    """
    if not unit:
        return weights
    found = np.ldexp(weights, -unit)
    lost = (weights > 0) & (found < _TINY)
    if lost.any():
        least, sum_ = float(weights[lost].min()), math.ldexp(1.0, unit)
        raise WeightError(
            f"score column {column!r} has a weight of {least:g} where all weights sum to about {sum_:.1g}; their ratio "
            "leaves float64: scale the weights, or set negligible ones to 0"
        )
    return np.asarray(found)


def two_sums(one: Array, other: Array) -> tuple[Array, Array]:
    """`streameval.kernels.exact.two_sum` of arrays.

    Examples
    --------
    >>> two_sums(np.array([1.0]), np.array([2.0**-60]))
    (array([1.]), array([8.67361738e-19]))
    """
    total = one + other
    rest = total - one
    return total, (one - (total - rest)) + (other - rest)


def added(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The sums of two arrays of sums, each with its errors."""
    sums, errors = two_sums(one[0], other[0])
    return two_sums(sums, errors + (one[1] + other[1]))


def sums_at(places: Array, values: Array, errors: Array, count: int) -> tuple[Array, Array]:
    """The sums of rows with equal places, and their errors.

    Parameters
    ----------
    places : int64 array of shape (n,), below `count`
    values, errors : float64 arrays of shape (n, m)
    count : number of sums

    Returns
    -------
    sums, errors : float64 arrays of shape (count, m)

    Examples
    --------
    >>> sums_at(np.array([0, 0]), np.array([[1.0], [2.0**-60]]), np.zeros((2, 1)), 1)
    (array([[1.]]), array([[8.67361738e-19]]))
    """
    sums, slips = np.zeros((2, values.shape[1], count))
    inexact = np.zeros(count, np.bool_)
    for column, total, slip in zip(values.T, sums, slips, strict=True):
        add_at(places, np.ascontiguousarray(column), total, slip, inexact)
    np.add.at(slips.T, places, errors)
    return two_sums(sums.T, slips.T)


def add_sides(weight: Array, label: Array, sides: tuple[list[float], list[float]]) -> None:
    """Append floats with the exact sum of the weights of each label to its list."""
    for side, parts in enumerate(sides):
        parts.extend(exact_parts(weight[label == side]).tolist())


def rounded_sides(*several: Iterable[list[float]]) -> tuple[Array, Array]:
    """The sums of lists of floats by label, and their errors: float64 arrays of shape (2,).

    Examples
    --------
    >>> rounded_sides(([1.0], [2.0]), ([2.0**-60], []))
    (array([1., 2.]), array([8.67361738e-19, 0.00000000e+00]))
    """
    sides = [[value for part in parts for value in part] for parts in zip(*several, strict=True)]
    sums = [math.fsum(side) for side in sides]
    errors = [math.fsum((*side, -total)) for side, total in zip(sides, sums, strict=True)]
    return np.array(sums), np.array(errors)


def total_weight(weights: Array) -> float:
    """Compensated sum of a float64 array."""
    return float(sum_pieces(weights, np.array([0, weights.size]))[0, 0])
