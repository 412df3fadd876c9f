"""Sorting by leading digits: as NumPy sorts, however the words lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.kernels.jit import jit
from streameval.kernels.keyed.digits import DIGIT, sort_bucket
from streameval.kernels.keyed.sorting import sort_words
from streameval.states.keyed.grouping import compact, group_items
from streameval.states.keyed.layout import stretches

RANDOM = np.random.default_rng(3)
EVEN = RANDOM.integers(0, 1 << 64, 5000, np.uint64)
WORDS = {
    "none": np.empty(0, np.uint64),
    "few": np.array([5, 3, 5], np.uint64),
    "even": EVEN,
    "ends": np.array([2**64 - 1, 0] * 500, np.uint64),
    "equal": np.full(1000, 7, np.uint64),
    "skewed": np.append(RANDOM.integers(0, 100, 1000, np.uint64), np.uint64(2**63)),
    "ascending": np.sort(EVEN),
    "descending": np.sort(EVEN)[::-1].copy(),
    "hot": np.where(RANDOM.random(EVEN.size) < 0.9, np.uint64(1 << 40), EVEN),
    "same high bits": EVEN & np.uint64(0xFFF) | np.uint64(1 << 63),
    "same low bits": EVEN << np.uint64(52),
    "same ends": EVEN & np.uint64(0xFFFF << 24),
    "steps": np.repeat(np.arange(40, dtype=np.uint64) << np.uint64(30), 49),
    "short": (EVEN >> np.uint64(48)).astype(np.uint16),
}


def check(words: np.ndarray) -> None:
    """Sorted words are those of NumPy."""
    given_words, expected = words.copy(), np.sort(words)
    spare = np.zeros(words.size + 1, words.dtype)
    sort_words(given_words, spare)
    np.testing.assert_array_equal(given_words, expected)
    assert not spare[words.size]


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_words_are_sorted(words: np.ndarray) -> None:
    """Also where words share their leading bits."""
    check(words)


@pytest.mark.parametrize("size", [1, 47, 48, 49, 50, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025])
@pytest.mark.parametrize("bits", [1, 6, 20, 64])
def test_any_number_of_words_is_sorted(size: int, bits: int) -> None:
    """Around the numbers of words at which the method changes, with many equal words and few."""
    check(EVEN[:size] >> np.uint64(64 - bits))


@pytest.mark.parametrize("size", [(1 << 16) - 1, 1 << 16, (1 << 16) + 1])
@pytest.mark.parametrize("bits", [10, 11, 12, 22, 23, 55, 56])
def test_words_of_any_number_of_digits_are_sorted(size: int, bits: int) -> None:
    """Words that two digits tell apart, and words with more bits than these."""
    words = RANDOM.integers(0, 1 << 64, size, np.uint64) >> np.uint64(64 - bits)
    check(words | np.uint64(1 << 62))


@pytest.mark.parametrize("size", [3000, 1 << 16, 300_000, (1 << 21) + 1])
@pytest.mark.parametrize("shape", ["groups", "hot", "outlier", "floats", "late"])
def test_words_that_share_leading_digits_are_sorted(shape: str, size: int) -> None:
    """Words of which insertion moves few, and words of which it would move many, at once or at the end only."""
    even = RANDOM.integers(0, 1 << 62, size, np.uint64)
    words = {
        "groups": even[RANDOM.integers(0, size // 50, size)] & np.uint64(0xFFFFFFFF << 30) | even >> np.uint64(34),
        "hot": np.where(RANDOM.random(size) < 0.9, np.uint64(1 << 40), even),
        "outlier": np.append(even[1:] >> np.uint64(40), np.uint64(1 << 63)),
        "floats": RANDOM.standard_normal(size).view(np.uint64),
        "late": np.where(np.arange(size) % 8, even, ~np.arange(size, dtype=np.uint64)),
    }
    check(words[shape])


@jit
def sorted_bucket(words, size, shift):
    """`sort_bucket` of some of the words."""
    spare, places = np.empty(size, np.uint32), np.full((2, DIGIT + 1), 9)
    sort_bucket(words, spare, size, shift, places)
    return words


@pytest.mark.parametrize("size", [0, 1, 2, 16, 17, 64, 65, 300, 4000])
@pytest.mark.parametrize("shift", [1, 16])
@pytest.mark.parametrize("shape", ["even", "equal", "outlier", "few", "descending"])
def test_words_of_a_bucket_are_sorted(shape: str, shift: int, size: int) -> None:
    """By the 16 bits at a shift; no word is lost, and none beyond `size` moves."""
    even = (EVEN[: size + 1] >> np.uint64(48)).astype(np.uint32)
    outlier = np.append(even[1:] & np.uint32(7), np.uint32(0xFFFF))
    upper = {
        "even": even,
        "equal": even & np.uint32(0),
        "outlier": outlier[::-1],
        "few": even % np.uint32(3),
        "descending": np.sort(even)[::-1],
    }[shape]
    lower = np.arange(size + 1, dtype=np.uint32) & np.uint32((1 << shift) - 1)
    words = (upper << np.uint32(shift)) | lower
    found = sorted_bucket(words.copy(), size, np.uint32(shift))
    np.testing.assert_array_equal(found[:size] >> np.uint32(shift), np.sort(upper[:size]))
    np.testing.assert_array_equal(np.sort(found[:size]), np.sort(words[:size]))
    if shift == 16:  # the lower bits of equal words ascend, as the places of rows whose weights are added in order
        np.testing.assert_array_equal(found[:size], np.sort(words[:size]))
    assert found[size] == words[size]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 63), st.integers(0, 600)), max_size=5),
    st.integers(0, 2**32),
)
def test_clumps_of_words_are_sorted(clumps: list[tuple[int, int, int]], seed: int) -> None:
    """Any mixture of clumps: each has its place, a spread in bits and a number of words, and wraps around."""
    random = np.random.default_rng(seed)
    parts = [np.uint64(low) + random.integers(0, 1 << spread, rows, np.uint64) for low, spread, rows in clumps]
    check(random.permutation(np.concatenate([np.empty(0, np.uint64), *parts])))


@given(st.lists(st.sampled_from([0, 1, 4, 5, 6, 10, 11]), max_size=60))
def test_stretches_are_as_long_as_they_may_be(items: list[int]) -> None:
    """A stretch ends before the bucket that would not fit; a dense bucket stands alone; empty ones end no stretch."""
    due: list[list[int]] = []
    for bucket in np.flatnonzero(items).tolist():
        held = sum(items[b] for b in due[-1]) if due else 10
        if items[bucket] > 5 or held + items[bucket] > 10 or items[due[-1][-1]] > 5:
            due.append([])
        due[-1].append(bucket)
    assert list(stretches(np.array(items, np.int64), 10, 5)) == [(part[0], part[-1] + 1) for part in due]


@pytest.mark.parametrize("rows", [0, 1, 200, 3000])
def test_many_rows_of_a_word_are_sorted_by_their_further_words(rows: int) -> None:
    """Rows of one word, of few, and of many; those of a group are as many as the group has."""
    keys = np.column_stack((RANDOM.integers(0, 3, rows), np.full(rows, 7), RANDOM.integers(0, 50, (rows, 2))))
    keys = keys.astype(np.uint64)
    keys[::5, 0] = EVEN[: len(keys[::5])]
    found = compact(keys[:, 0].copy(), keys[:, 1:].copy(), np.empty(0, np.int64), np.empty(0))
    expected, counts = np.unique(keys, axis=0, return_counts=True)
    np.testing.assert_array_equal(np.column_stack(found[:2]), expected)
    np.testing.assert_array_equal(found[2], counts)


@pytest.mark.parametrize("first", WORDS)
@pytest.mark.parametrize("last", ["even", "equal", "skewed", "steps", "hot"])
@pytest.mark.parametrize("further", [1, 2])
def test_rows_of_both_labels_are_grouped(first: str, last: str, further: int) -> None:
    """By all words of their keys, in ascending order, however the words lie."""
    size = min(WORDS[first].size, WORDS[last].size)
    columns = [WORDS[first][:size], WORDS["same high bits"][:size] >> np.uint64(10), WORDS[last][:size]]
    keys = np.column_stack(columns[:: 3 - further]).astype(np.uint64)
    label = RANDOM.random(size) < 0.3
    sides = [
        (keys[rows, 0].copy(), keys[rows, 1:].copy(), np.empty(0, np.int64), np.empty(0)) for rows in (~label, label)
    ]
    found = group_items(*sides)
    expected, inverse = np.unique(keys, axis=0, return_inverse=True)
    np.testing.assert_array_equal(np.column_stack((found.keys, found.rest)), expected)
    counts = np.zeros((2, len(expected)), np.int64)
    np.add.at(counts, (label.astype(int), inverse.reshape(-1)), 1)
    np.testing.assert_array_equal((found.neg, found.pos), counts)
