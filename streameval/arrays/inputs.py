"""Arrays as people have them, checked: lists, numpy, pandas, Arrow and polars columns become plain numpy arrays.

Whatever cannot be evaluated is refused here, once, by an error that names the argument and the remedy; the functions
behind never see a NaN, a wrong length or a negative weight, and numpy has nothing to warn about.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.errors import DataError, MissingInputError, NullError, SchemaError, WeightError
from streameval.states.scores.counts import fold_arrays
from streameval.wording import plural

if TYPE_CHECKING:
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array

__all__ = ["first", "fold", "numbers", "plain", "refuse_nan", "same_length", "scores", "weights", "without_nan"]

_TINY = float(np.finfo(np.float64).tiny)  # smaller numbers have fewer digits


def plain(values: Any, name: str, ndim: int = 1) -> Array:
    """Values as a numpy array of `ndim` dimensions, with at least one element.

    Raises
    ------
    DataError
        If the values are ragged or have other dimensions.
    MissingInputError
        If there are none.
    """
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


def first(array: Array) -> Any:
    """The first element as a Python value, for messages."""
    return array.ravel()[:1].tolist()[0]


def numbers(values: Any, name: str, ndim: int = 1) -> Array:
    """Values as integers or floats that Arrow knows; nulls become NaN.

    Raises
    ------
    SchemaError
        If they are not numbers.

    Examples
    --------
    >>> numbers([1, None], "x")
    array([ 1., nan])
    """
    array = plain(values, name, ndim)
    if array.dtype.kind == "O":
        try:
            column = pa.array(array.ravel(), from_pandas=True)
        except OverflowError as error:
            msg = f"{name} has integers of more than 64 bits; convert them to floats"
            raise SchemaError(msg) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            column = pa.array([""])
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
        if any(test(column.type) for test in kinds):
            floats: Array = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            return floats.reshape(array.shape)
    if array.dtype.kind not in "biuf":
        msg = f"{name} has values that are not numbers ({first(array)!r}, …); convert them to integers or floats"
        raise SchemaError(msg)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def without_nan(array: Array) -> Array:
    """The values that are numbers."""
    return array[~np.isnan(array)] if array.dtype.kind == "f" else array


def scores(values: Any, name: str = "y_score", ndim: int = 1) -> Array:
    """Scores: numbers of any type, infinities included, NaN not.

    Raises
    ------
    SchemaError
        If they are not numbers.
    NullError
        If one is NaN or null.

    Examples
    --------
    >>> scores([0.5, float("inf")])
    array([0.5, inf])
    """
    array = numbers(values, name, ndim)
    refuse_nan(array, name, "drop those points, or let dist_auc count them as one half")
    return array


def refuse_nan(array: Array, name: str, remedy: str) -> None:
    """Raise `NullError` if a float is NaN."""
    if array.dtype.kind == "f" and np.isnan(array).any():
        where = tuple(np.argwhere(np.isnan(array))[0].tolist())
        msg = f"{name} has a NaN or null at position {where[0] if len(where) == 1 else where}; {remedy}"
        raise NullError(msg)


def weights(values: Any, size: int) -> Array | None:
    """Weights as float64 array of shape (size,), scaled by a power of two to at most 1; None stays None.

    Metrics depend on ratios of weights alone, so the scale changes no bit of a result. It keeps products of sums of
    weights within float64.

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
        problem = "their ratio or their sum leaves float64; scale the weights, and set those to 0 that do not matter"
        msg = f"sample_weight has weights from {least:g} to {most:g}; {problem}"
        raise WeightError(msg)
    scaled: Array = np.ldexp(array, -math.frexp(most)[1])
    return scaled


def same_length(size: int, of: str = "y_true", **arrays: Array) -> None:
    """Raise `DataError` unless all arrays have `size` elements, as the array named `of` has."""
    for name, array in arrays.items():
        if len(array) != size:
            msg = f"{of} has {plural(size, 'point')} and {name} has {len(array)}; give one of each for every point"
            raise DataError(msg)


def fold(label: Array, score: Array, weight: Array | None = None) -> ScoreCounts:
    """The state of checked arrays; points of weight 0 are left out.

    Examples
    --------
    >>> fold(np.array([0, 1], dtype=np.uint8), np.array([0.2, 0.4]), np.array([0.0, 1.0])).totals().rows
    1
    """
    if weight is not None and not weight.all():
        kept = weight > 0
        label, score, weight = label[kept], score[kept], weight[kept]
    return fold_arrays(label, score, weight)
