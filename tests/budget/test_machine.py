"""Arrays that begin at a large page."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.budget import fresh_array


@pytest.mark.parametrize("shape", [(0,), (5,), (5, 0), ((1 << 18) - 1,), (1 << 18,), (400_001, 2), ((1 << 19) + 9,)])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint64, np.float64])
def test_fresh_arrays_are_as_asked_for(shape: tuple[int, ...], dtype: type) -> None:
    """They have the shape and the type, and can be written; with rows, they begin at a cache line or a large page."""
    array = fresh_array(shape, dtype)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == (shape, np.dtype(dtype), True)
    array[...] = 7
    assert (array == 7).all()
    assert not array.nbytes or array.ctypes.data % (64 if array.nbytes < 1 << 21 else 1 << 21) == 0
