"""Types that every room shares, and the view of a column of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, np.dtype[Any]]
ArrayLike = Iterable[Any]  # lists, NumPy arrays, columns of pandas, polars and Arrow; of two dimensions, rows of these


def view_numbers(array: pa.Array) -> Array:
    """View the numbers of an Arrow array, of whole bytes; `pyarrow.Array.to_numpy` would import pandas.

    Raises
    ------
    ValueError
        If the array has nulls.

    Examples
    --------
    >>> view_numbers(pa.array([1.5, 2.5, 3.5])[1:])
    array([2.5, 3.5])
    """
    if array.null_count:
        raise ValueError("an array with nulls has no view of its numbers")
    if pa.types.is_null(array.type):
        return np.empty(0, np.int8)
    numbers = array.type
    kind = "u" if pa.types.is_unsigned_integer(numbers) else "i" if pa.types.is_integer(numbers) else "f"
    values: Array = np.frombuffer(array.buffers()[1] or b"", f"{kind}{numbers.bit_width // 8}")
    return values[array.offset : array.offset + len(array)]
