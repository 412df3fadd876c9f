"""Units of weights: metrics see very large or very small weights divided by a power of two.

Products of such weights would leave the range of float64. Metrics of weights are ratios, so scaling all weights by a
power of two does not change them, to the last bit. States store the weights unscaled; `ScorePart` and `Totals` give
them in the unit 2 to the power of `Totals.unit`. For sums of ordinary size the unit is 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import WeightError

if TYPE_CHECKING:
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
        msg = (
            f"score column {column!r} has a weight of {least:g} where all weights sum to about {sum_:.1g}; their ratio "
            "leaves float64: scale the weights, or set negligible ones to 0"
        )
        raise WeightError(msg)
    return np.asarray(found)
