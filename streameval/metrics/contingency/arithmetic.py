"""Safe arithmetic and means, shared by every table measure.

Counts are exact numbers, Python integers or fractions of any size, and each measure divides once, at the end. So a
value is the correctly rounded quotient of exact integers, never a difference of rounded values. Zero denominators
follow one rule everywhere: 0/0 is NaN, x/0 is infinite with the sign of x, and NaN stays NaN.
"""

from __future__ import annotations

import math
import sys
import warnings
from contextlib import suppress
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from streameval.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.states.contingency.summary import Number

Value = float | tuple["Value", ...]  # of a measure; a tuple of tuples if several values are adjusted for chance

_MOST = sys.float_info.max
_SMALL = 1e-290  # square roots of products between it and its inverse are exact to a rounding

Array = TypeVar("Array", float, NDArray[np.float64])


def safe_divide(numerator: Number, denominator: Number) -> float:
    """Quotient as a float; 0/0 is NaN, and x/0 and quotients beyond the range of floats are infinite with their sign.

    Examples
    --------
    >>> safe_divide(1, 3), safe_divide(0, 0), safe_divide(-2, 0), safe_divide(float("nan"), 0)
    (0.3333333333333333, nan, -inf, nan)
    >>> safe_divide(10**400, -1), safe_divide(10**400, 1e300)
    (-inf, 1e+100)
    """
    if denominator != 0:
        with suppress(OverflowError):
            return float(numerator / denominator)
        with suppress(OverflowError):  # a number may be beyond the range of floats, and the quotient within it
            return float(Fraction(numerator) / Fraction(denominator))
        return math.inf if (numerator > 0) == (denominator > 0) else -math.inf
    if numerator == 0 or numerator != numerator:
        return math.nan
    return math.inf if numerator > 0 else -math.inf


def signed_root(numerator: Number, denominator: Number) -> float:
    """Quotient numerator / √denominator, rounded as √(numerator² / denominator): exact where the quotient is ±1.

    NaN for a negative denominator, which can occur for pair counts of fractional cells.

    Examples
    --------
    >>> signed_root(-6, 36), signed_root(1, 0), signed_root(0, 0), signed_root(1, -4), signed_root(10**400, 10**800)
    (-1.0, inf, nan, nan, 1.0)
    >>> signed_root(10**200, 1), signed_root(1, 10**400)
    (1e+200, 1e-200)
    """
    square, unit = safe_divide(numerator * numerator, denominator), 1.0
    if square in (0, math.inf) and numerator and denominator > 0 and not isinstance(numerator, float):
        # the square is out of the range of floats, the root perhaps not
        unit = math.ldexp(1.0, 600 if square else -600)
        square = safe_divide((numerator / Fraction(unit)) ** 2, denominator)
    return math.nan if square < 0 else math.copysign(math.sqrt(square) * unit, -1 if numerator < 0 else 1)


def plain(x: Number) -> int | float:
    """An integer stays an integer of any size; anything else becomes a float.

    Examples
    --------
    >>> plain(Fraction(6, 3)), plain(Fraction(1, 4))
    (2, 0.25)
    """
    if isinstance(x, Fraction):
        return x.numerator if x.denominator == 1 else safe_divide(x, 1)
    return x


def ratio2weights(ratio: float) -> tuple[float, float]:
    """Two weights that sum to one and whose quotient is `ratio`, accurate from 0 to infinity.

    Parameters
    ----------
    ratio : float
        Left weight over right weight, in [0, inf].

    Returns
    -------
    left, right : float in [0, 1]

    Raises
    ------
    OptionError
        If `ratio` is negative or NaN.

    Examples
    --------
    >>> ratio2weights(1.0), ratio2weights(0.25), ratio2weights(float("inf"))
    ((0.5, 0.5), (0.2, 0.8), (1.0, 0.0))
    """
    _check_numbers(ratio=ratio)
    if not ratio >= 0:
        raise OptionError(f"ratio is {ratio}; give a number of at least 0")
    left = ratio / (1.0 + ratio) if ratio <= 1.0 else 1.0 / (1.0 + 1.0 / ratio)
    return left, 1.0 - left


def _check_numbers(**given: object) -> None:
    """Raise `OptionError` for arguments that are not numbers in the range of float64."""
    for name, value in given.items():
        if not isinstance(value, Real) or (isinstance(value, int | Fraction) and not -_MOST <= value <= _MOST):
            raise OptionError(f"{name} is {value!r}; give a number in the range of float64")


def harmonic_mean(x: float, y: float) -> float:
    """Harmonic mean of `x` and `y`; the mean of equal numbers is that number, so the mean of 0 and 0 is 0.

    Examples
    --------
    >>> harmonic_mean(1, 3), harmonic_mean(0, 0)
    (1.5, 0.0)
    """
    _check_numbers(x=x, y=y)
    return float(x) if x == y else safe_divide(2 * (x * y), x + y)


def harmonic_mean_weighted(x: float, y: float, ratio: float = 1.0) -> float:
    """Harmonic mean with weights in the ratio left : right; ratio 0 gives x, infinity gives y.

    `ratio` moves weight towards `y`, as beta² does in the F-score of precision and recall.

    Raises
    ------
    OptionError
        If `ratio` is negative or NaN.

    Examples
    --------
    >>> harmonic_mean_weighted(1, 3), harmonic_mean_weighted(1, 3, ratio=0.0)
    (1.5, 1.0)
    >>> harmonic_mean_weighted(1, 3, ratio=float("inf"))
    3.0
    """
    _check_numbers(x=x, y=y)
    left, right = ratio2weights(ratio)
    return float(x) if x == y else safe_divide(x * y, left * x + right * y)


def geometric_mean(x: float, y: float) -> float:
    """Geometric mean of `x` and `y`, numbers of one sign; the mean of two negative numbers is negative.

    Raises
    ------
    OptionError
        If the signs differ.

    Examples
    --------
    >>> geometric_mean(1, 4), geometric_mean(-1, -4)
    (2.0, -2.0)
    """
    _check_numbers(x=x, y=y)
    product = x * y
    if product < 0:
        raise OptionError(f"x is {x} and y is {y}; a geometric mean needs two numbers of one sign")
    root = math.sqrt(product) if _SMALL < product < 1 / _SMALL else math.sqrt(abs(x)) * math.sqrt(abs(y))
    return math.copysign(1, x) * root


def geometric_mean_weighted(x: float, y: float, ratio: float = 1.0) -> float:
    """Geometric mean with weights in the ratio left : right; ratio 0 gives x, infinity gives y.

    Raises
    ------
    OptionError
        If the signs of `x` and `y` differ, or `ratio` is negative or NaN.

    Examples
    --------
    >>> geometric_mean_weighted(1, 4), geometric_mean_weighted(1, 4, ratio=0.0)
    (2.0, 1.0)
    >>> geometric_mean_weighted(1, 4, ratio=float("inf"))
    4.0
    """
    _check_numbers(x=x, y=y)
    left, right = ratio2weights(ratio)
    if x * y < 0:
        raise OptionError(f"x is {x} and y is {y}; a geometric mean needs two numbers of one sign")
    sign = math.copysign(1, x if x != 0 else y)
    return sign * float(abs(x) ** right) * float(abs(y) ** left)


def unitsq_sigmoid(x: Array, s: float = 0.5) -> Array:
    """Sigmoid from the unit interval onto itself: xˢ / (xˢ + (1 − x)ˢ); ½ stays ½ and s = 1 is the identity.

    Parameters
    ----------
    x : float or float64 array
        In [0, 1].
    s : float, default 0.5
        Values below 1 pull towards ½, values above 1 push towards the ends.

    Returns
    -------
    float, or float64 array of the shape of `x`, in [0, 1]

    Raises
    ------
    OptionError
        If a number is outside [0, 1].

    Examples
    --------
    >>> round(unitsq_sigmoid(0.1), 4), round(unitsq_sigmoid(0.9), 4)
    (0.25, 0.75)
    """
    _check_numbers(s=s)
    try:
        values = np.asarray(x, dtype=np.float64)
    except Exception as error:  # whatever the container of the numbers raises
        raise OptionError(f"x is {x!r}; give a number or an array of numbers") from error
    if not 0 <= s < math.inf:
        raise OptionError(f"s is {s}; give a finite number of at least 0")
    if not bool(np.all((values >= 0) & (values <= 1))):
        raise OptionError(f"x is {x}; the sigmoid is defined on [0, 1]")
    left, right = values**s, (1 - values) ** s
    halves = (left + right) == 0  # both powers have underflowed
    result = np.where(halves, (np.sign(values - 0.5) + 1) / 2, left / (left + right + halves))
    return cast("Array", float(result) if result.ndim == 0 else result)


def mean_of(name: str, x: float, y: float) -> float:
    """The mean called `name`, ``harmonic`` or ``geometric``, of two scores that are not negative.

    Examples
    --------
    >>> mean_of("geometric", 0.25, 1.0)
    0.5
    """
    means = {"harmonic": harmonic_mean, "geometric": geometric_mean}
    if name not in means:
        raise OptionError(f"mean is {name!r}; choose 'harmonic' or 'geometric'")
    return means[name](x, y)


def adjust(values: Iterable[Value], warn_of: str | None = None) -> tuple[Value, Value]:
    """Adjust for chance, (x − null) / (ceiling − null), for two ceilings.

    Parameters
    ----------
    values : iterable of four numbers, or of four tuples of numbers
        The measure of the table, of the null model, and of the diagonal tables of row and of column totals.
    warn_of : str or None
        Name of the measure; warn if it is already 0 under the null model, or 1 at a ceiling.

    Examples
    --------
    >>> adjust([0.75, 0.5, 1.0, 0.5])
    (0.5, inf)
    """
    actual, null, by_rows, by_cols = values
    if warn_of is not None and np.isclose(np.sum(null), 0.0):
        warnings.warn(f"{warn_of!r} is already centered", stacklevel=3)
    for side, ceiling in (("row", by_rows), ("column", by_cols)):
        if warn_of is not None and np.isclose(np.mean(ceiling), 1.0):
            warnings.warn(f"{warn_of!r} is already {side}-normalized", stacklevel=3)
    return _relative(actual, null, by_rows), _relative(actual, null, by_cols)


def _relative(actual: Any, null: Any, ceiling: Any) -> Value:
    if isinstance(actual, tuple):
        return tuple(map(_relative, actual, null, ceiling))
    return safe_divide(actual - null, ceiling - null)
