"""Histograms of sizes: sums over them are exact integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streameval.states.contingency.size_counts import Sizes


@given(st.dictionaries(st.integers(1, 2**40), st.integers(1, 2**20), max_size=30))
def test_sums_of_large_sizes_are_exact(sizes: dict[int, int]) -> None:
    """Sums of sizes and of their squares equal those of Python integers, also beyond 64 bits."""
    found = Sizes.of(np.array([*sizes], np.int64), np.array([*sizes.values()], np.int64))
    assert found.total == sum(size * times for size, times in sizes.items())
    assert found.squares == sum(size * size * times for size, times in sizes.items())
