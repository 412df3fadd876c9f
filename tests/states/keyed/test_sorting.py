"""Sorting by scattering: as NumPy sorts, however the words lie."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.kernels.keyed.sorting import sorted_order, sorted_words

RANDOM = np.random.default_rng(3)
WORDS = {
    "none": np.empty(0, np.uint64),
    "few": np.array([5, 3, 5], np.uint64),
    "even": RANDOM.integers(0, 1 << 64, 5000, np.uint64),
    "ends": np.array([2**64 - 1, 0] * 500, np.uint64),
    "equal": np.full(1000, 7, np.uint64),
    "skewed": np.append(RANDOM.integers(0, 100, 1000, np.uint64), np.uint64(2**63)),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_words_are_sorted(words: np.ndarray) -> None:
    """With every place once, also where many words share a place."""
    expected = np.sort(words)
    found, order = sorted_order(words)
    for one in (sorted_words(words), found, words[order]):
        np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(np.sort(order), np.arange(words.size))
