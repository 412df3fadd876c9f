"""Input validation: lists, NumPy arrays, and pandas, Arrow and polars columns become plain NumPy arrays.

Input that cannot be evaluated is refused here, once, with an error that names the argument and the remedy. Functions
that use these arrays never see a NaN, a wrong length or a negative weight, and NumPy has no reason to warn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import DataError, MissingInputError, NullError, SchemaError, WeightError
from streameval.states.scores.counts import fold_arrays
from streameval.wording import plural

if TYPE_CHECKING:
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array

__all__ = [
    "first",
    "fold",
    "numbers",
    "plain",
    "refuse_nan",
    "same_length",
    "scores",
    "unmasked",
    "weights",
    "without_nan",
]

_WHOLE = 2.0**53  # all smaller integers are floats
_TINY = float(np.finfo(np.float64).tiny)  # the smallest normal number; smaller ones have fewer digits


def plain(values: Any, name: str, ndim: int = 1) -> Array:
    """Values as a NumPy array of `ndim` dimensions, with at least one element.

    Raises
    ------
    DataError
        If the values are ragged or have another number of dimensions.
    MissingInputError
        If there are no values.
    """
    values = unmasked(values)
    try:
        array = np.asarray(values if hasattr(values, "__array__") or hasattr(values, "__len__") else list(values))
    except (TypeError, ValueError) as error:
        msg = f"{name} is not an array of {ndim} dimension(s): {error}"
        raise DataError(msg) from error
    if array.ndim != ndim:
        hint = f"; pass one column, such as {name}[:, 1]" if ndim == 1 and array.ndim == 2 else ""
        msg = f"{name} has shape {array.shape}; give an array of {ndim} dimension(s){hint}"
        raise DataError(msg)
    if not array.size:
        msg = f"{name} is empty; give at least one point"
        raise MissingInputError(msg)
    return array


def unmasked(values: Any) -> Any:
    """Values without a mask: those that NumPy masks become None, since `numpy.asarray` would read them as they are.

    `numpy.ma.is_masked` takes whatever has a `_mask` for a masked array, as pandas' nullable arrays do.

    Examples
    --------
    >>> unmasked(np.ma.array([0.5, 1.5], mask=[False, True]))
    array([0.5, None], dtype=object)
    """
    masked = isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values)
    return np.where(np.ma.getmaskarray(values), None, values.data) if masked else values


def first(array: Array) -> Any:
    """The first element as a Python value, for messages."""
    return array.ravel()[:1].tolist()[0]


def numbers(values: Any, name: str, ndim: int = 1, *, distinct: bool = False) -> Array:
    """Values as an array of booleans, integers or floats of at most 64 bits; nulls become NaN.

    Parameters
    ----------
    values : array-like of `ndim` dimensions
    name : name of the argument, for messages
    ndim : number of dimensions
    distinct : whether numbers that differ must still differ when they become floats, as scores must

    Raises
    ------
    SchemaError
        If the values are not numbers, or are integers of more than 64 bits, or must be distinct and are not.

    Examples
    --------
    >>> numbers([1, None], "x")
    array([ 1., nan])
    """
    given = list(values) if isinstance(values, Iterator) else values
    array = plain(given, name, ndim)
    before: Any = None  # the numbers before they were rounded
    if array.dtype.kind == "O":
        before, array = _of_objects(array, name)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        before, array = array, array.astype(np.float64)
    elif array.dtype.kind == "f" and not hasattr(given, "__array__") and np.any(np.abs(array) >= _WHOLE):
        before = np.asarray(given, object)
    if array.dtype.kind not in "biuf":
        msg = f"{name} has values that are not numbers ({first(array)!r}, …); convert them to integers or floats"
        raise SchemaError(msg)
    if distinct and before is not None and _count(before) != np.unique(without_nan(array)).size:
        msg = f"{name} has numbers that differ and are equal as float64; give their ranks, for example"
        raise SchemaError(msg)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _of_objects(array: Array, name: str) -> tuple[pa.Array | None, Array]:
    """Python numbers before they were rounded to float64, or None, and as an array; other objects are unchanged."""
    try:
        column = pa.array(array.ravel(), from_pandas=True)
    except OverflowError as error:
        msg = f"{name} has integers of more than 64 bits; convert them to floats"
        raise SchemaError(msg) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None, array
    whole, decimal = pa.types.is_integer(column.type), pa.types.is_decimal(column.type)
    others = pa.types.is_floating, pa.types.is_boolean, pa.types.is_null
    if not (whole or decimal or any(test(column.type) for test in others)):
        return None, array
    as_they_are = whole and not column.null_count
    floats = column if as_they_are else column.cast(pa.float64(), safe=False)
    before = None if as_they_are or not (whole or decimal) else column
    return before, floats.to_numpy(zero_copy_only=False).reshape(array.shape)


def _count(values: Any) -> int:
    """Number of distinct numbers that are not NaN or null, in an Arrow array, or an array of objects or long floats.

    Examples
    --------
    >>> _count(np.array([2**53 + 1, 2.0**53, 2**53], object)), _count(pa.array([1, 1, None]))
    (2, 1)
    """
    if isinstance(values, pa.Array):
        return int(pc.count_distinct(values).as_py())
    if values.dtype.kind == "O":
        return len({number for number in values.ravel().tolist() if number == number})
    return int(np.unique(without_nan(values)).size)


def without_nan(array: Array) -> Array:
    """The values that are not NaN."""
    return array[~np.isnan(array)] if array.dtype.kind == "f" else array


def scores(values: Any, name: str = "y_score", ndim: int = 1) -> Array:
    """Scores: numbers of any type, infinities included.

    Raises
    ------
    SchemaError
        If the scores are not numbers, or two that differ are equal as float64.
    NullError
        If a score is NaN or null.

    Examples
    --------
    >>> scores([0.5, float("inf")])
    array([0.5, inf])
    """
    array = numbers(values, name, ndim, distinct=True)
    refuse_nan(array, name, "drop those points, or let dist_auc count them as one half")
    return array


def refuse_nan(array: Array, name: str, remedy: str) -> None:
    """Raise `NullError`, with the position and a remedy, if an array has a NaN."""
    if array.dtype.kind == "f" and np.isnan(array).any():
        where = tuple(np.argwhere(np.isnan(array))[0].tolist())
        msg = f"{name} has a NaN or null at position {where[0] if len(where) == 1 else where}; {remedy}"
        raise NullError(msg)


def weights(values: Any, size: int) -> Array | None:
    """Weights as a float64 array of shape (size,), scaled by a power of two to at most 1; None stays None.

    Metrics depend only on ratios of weights, so scaling changes no bit of a result. It keeps products of sums of
    weights within the range of float64.

    Raises
    ------
    WeightError
        If a weight is negative, NaN or infinite, if all are zero, or if their sum or the ratio of two leaves float64.

    Examples
    --------
    >>> weights([1, 0, 4], 3)
    array([0.125, 0.   , 0.5  ])
    """
    if values is None:
        return None
    array = numbers(values, "sample_weight").astype(np.float64)
    same_length(size, sample_weight=array)
    wrong = np.flatnonzero(~(array >= 0) | (array == np.inf))
    if wrong.size:
        msg = f"sample_weight has {array[wrong[0]]} at position {wrong[0]}; weights must be finite and at least 0"
        raise WeightError(msg)
    if not array.any():
        msg = "sample_weight is zero for every point; give at least one point a positive weight"
        raise WeightError(msg)
    least, most = float(array[array > 0].min()), float(array.max())
    if least / most < _TINY or not math.isfinite(float(np.sum(array / size)) * size):
        problem = "their ratio or their sum leaves float64; scale the weights, or set negligible ones to 0"
        msg = f"sample_weight has weights from {least:g} to {most:g}; {problem}"
        raise WeightError(msg)
    scaled: Array = np.ldexp(array, -math.frexp(most)[1])
    return scaled


def same_length(size: int, of: str = "y_true", **arrays: Array) -> None:
    """Raise `DataError` unless all arrays have `size` elements, the length of the argument named `of`."""
    for name, array in arrays.items():
        if len(array) != size:
            msg = f"{of} has {plural(size, 'point')} and {name} has {len(array)}; give one of each for every point"
            raise DataError(msg)


def fold(label: Array, score: Array, weight: Array | None = None) -> ScoreCounts:
    """The state of validated arrays, without points of weight 0.

    Examples
    --------
    >>> fold(np.array([0, 1], dtype=np.uint8), np.array([0.2, 0.4]), np.array([0.0, 1.0])).totals().rows
    1
    """
    if weight is not None and not weight.all():
        kept = weight > 0
        label, score, weight = label[kept], score[kept], weight[kept]
    return fold_arrays(label, score, weight)
