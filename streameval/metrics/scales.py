"""Scales on which the interval of an estimate is symmetric: the range of a metric becomes all numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_EXPONENT = 709.0  # from here on exponentials leave float64


def _logistic(y: float) -> float:
    return 0.5 + 0.5 * math.tanh(y / 2)


def _exp(y: float) -> float:
    """The exponential, infinite where float64 ends."""
    return math.exp(y) if y < _EXPONENT else math.inf


class Scale(NamedTuple):
    """A scale on which an interval is symmetric.

    Attributes
    ----------
    low, high : open ends of the values that the scale takes
    to, back : the scale and its inverse
    slope : derivative of `to`
    """

    low: float
    high: float
    to: Callable[[float], float]
    back: Callable[[float], float]
    slope: Callable[[float], float]


SCALES: dict[str, Scale] = {
    "plain": Scale(-math.inf, math.inf, float, float, lambda _: 1.0),
    "logit": Scale(0, 1, lambda x: math.log(x) - math.log1p(-x), _logistic, lambda x: 1 / (x * (1 - x))),
    "fisher": Scale(-1, 1, math.atanh, math.tanh, lambda x: 1 / ((1 - x) * (1 + x))),
    "log": Scale(0, math.inf, math.log, _exp, lambda x: 1 / x),
    "log_complement": Scale(
        -math.inf,
        1,
        lambda x: -math.log1p(-x),
        lambda y: -math.expm1(-y) if y > -_EXPONENT else -math.inf,
        lambda x: 1 / (1 - x),
    ),
}
