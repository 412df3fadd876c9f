"""Loops over sorted rows and over groups, against counts by Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from streameval.kernels.ranking import UNIT, precision_counts
from streameval.kernels.segments import repetitive, tally_sorted


@pytest.mark.parametrize("groups", [0, 1, 511, 512, 513, 2000])
@pytest.mark.parametrize("trapezoid", [False, True])
@pytest.mark.parametrize("before", [(0, 0), (7, 3)])
def test_precisions_are_those_of_each_group(groups: int, trapezoid: bool, before: tuple[int, int]) -> None:
    """Each precision is rounded to a unit before it is weighted, also at the ends of batches."""
    rng = np.random.default_rng(groups)
    neg, pos = rng.integers(0, 3, groups), rng.integers(0, 3, groups)
    neg += neg + pos == 0
    (false, true), expected = before, 0
    for n, p in zip(neg.tolist(), pos.tolist(), strict=True):
        above = true / (true + false) if true + false else 1.0
        false, true = false + n, true + p
        rate = int(true / (true + false) * UNIT) + trapezoid * int(above * UNIT)
        expected += p * rate
    upper, lower = map(int, precision_counts(neg, pos, *before, trapezoid))
    assert (upper << 32) + lower == expected


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("top", [0, 1 << 63])
def test_sorted_words_are_counted_by_key_and_label(rows: int, top: int) -> None:
    """Sorted words give the keys and counts that a dictionary gives."""
    rng = np.random.default_rng(rows)
    words = np.sort(rng.integers(0, rows + 1, rows).astype(np.uint64))
    keys, counts = np.empty(rows, np.uint64), np.empty((2, rows), np.int64)
    found = tally_sorted(words, np.uint64(top), keys, *counts)
    expected = Counter(divmod(word, 2) for word in words.tolist())
    assert keys[:found].tolist() == sorted({top | key for key, _ in expected})
    for label in range(2):
        assert counts[label, :found].tolist() == [expected[int(key) & ~top, label] for key in keys[:found]]


@pytest.mark.parametrize(("distinct", "expected"), [(1, True), (32, True), (33, False), (4096, False)])
def test_a_piece_is_repetitive_if_half_of_a_sample_is(distinct: int, expected: bool) -> None:
    """At most 32 distinct keys among 64 spaced rows make a piece repetitive."""
    words = np.arange(4096, dtype=np.uint64) // np.uint64(64) % np.uint64(distinct)
    assert repetitive(words, np.empty((4096, 0), np.uint64), np.array([0, 4096])).tolist() == [expected]
