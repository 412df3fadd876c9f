"""Arrays of a budget: their addresses, and fresh ones."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from streameval.budget import Buffer, Computed, SpillFile, fresh_array


def at(place: tuple[int, np.ndarray], size: int) -> list[int]:
    """Numbers at an address; the array keeps them alive."""
    return list((ctypes.c_int64 * size).from_address(place[0]))


def test_addresses_of_rows_in_memory_spilled_and_computed(tmp_path: Path) -> None:
    """They are those of the rows of a whole buffer, or of a part, and stay valid when the buffer is spilled."""
    whole = Buffer(np.arange(12).reshape(6, 2))
    part = whole.part(2, 6)
    for _ in range(2):  # the second time, the address is known
        before = whole.located(1, 3), part.located(1, 3)
        assert [at(place, 4) for place in before] == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert before[0][1] is before[1][1], "no copy"
    whole.spill(SpillFile(tmp_path))
    for places in (before, (whole.located(1, 3), part.located(1, 3))):
        assert [at(place, 4) for place in places] == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert at(Computed((4,), np.int64, lambda start, stop: -np.arange(start, stop)).located(1, 3), 2) == [-1, -2]


@pytest.mark.parametrize("shape", [(0,), (5,), (5, 0), ((1 << 18) - 1,), (1 << 18,), (400_001, 2), ((1 << 19) + 9,)])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint64, np.float64])
def test_fresh_arrays_are_as_asked_for(shape: tuple[int, ...], dtype: type) -> None:
    """They have the shape and the type, and can be written; with rows, they begin at a cache line or a large page."""
    array = fresh_array(shape, dtype)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == (shape, np.dtype(dtype), True)
    array[...] = 7
    assert (array == 7).all()
    assert not array.nbytes or array.ctypes.data % (64 if array.nbytes < 1 << 21 else 1 << 21) == 0
