"""Units of weights: sums far from 1 are handed to metrics in a power of two, so that their products stay in float64.

Metrics of weights are ratios, which a common power of two leaves alone to the last bit. States keep the weights as they
are; what a metric sees (`ScorePart`, `Totals`) is in the unit that `Totals.unit` names. Sums of ordinary size are in
units of 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import WeightError

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["in_units", "unit_of"]

_ORDINARY = -16, 80  # exponents of sums whose products need no unit
_TINY = float(np.finfo(np.float64).tiny)  # smaller numbers have fewer digits


def unit_of(weight: float) -> int:
    """The exponent of the unit for weights of this sum: 0, or one in which the sum is between ½ and 1.

    Examples
    --------
    >>> unit_of(7531.0), unit_of(2.0**-500)
    (0, -499)
    """
    exponent = math.frexp(weight)[1] if 0 < weight < math.inf else 0
    return 0 if _ORDINARY[0] <= exponent <= _ORDINARY[1] else exponent


def in_units(weights: Array, unit: int, column: str) -> Array:
    """Weights in a unit.

    Raises
    ------
    WeightError
        If one is so small relative to the sum that float64 cannot hold their ratio.

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
            "leaves float64: scale the weights, and set those to 0 that do not matter"
        )
        raise WeightError(msg)
    return np.asarray(found)
