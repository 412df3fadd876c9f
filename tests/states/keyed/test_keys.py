"""Keys: order-preserving words for every type of score, bijective ones for ids, and the buckets both belong to."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import FLOATS, INTEGER_TYPES, score_values

from streameval.kernels import keys
from streameval.states.keyed.ids import identify
from streameval.states.scores.counts import ScoreSpec, fold_arrays
from streameval.states.scores.types import decode, score_type

NUMBERS = [*FLOATS, *INTEGER_TYPES]


def _state(values: list[Any], kind: pa.DataType) -> Any:
    array = pa.array([np.float16(v) for v in values] if kind == pa.float16() else values, kind)
    return fold_arrays(np.zeros(len(values), np.uint8), array.to_numpy(zero_copy_only=False))


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_keys_rank_scores_from_the_best_to_the_worst(kind: pa.DataType) -> None:
    """A smaller key is a higher score, equal scores have equal keys, −0.0 is 0.0, and keys decode to their scores."""

    @given(st.lists(score_values(kind).filter(lambda v: v is not None and v == v), min_size=1, max_size=20))
    def check(values: list[Any]) -> None:
        state = _state(values, kind)
        found = np.concatenate([group.keys for group in state.groups()])
        scores = np.concatenate([part.scores for part in state.parts()])
        expected = sorted({v + 0 for v in values}, reverse=True)
        assert np.all(found[1:] > found[:-1])
        assert scores.tolist() == [float(np.float64(v)) for v in expected]
        assert decode(found, score_type(kind)).tolist() == scores.tolist()

    check()


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=2, max_size=20))
def test_decimals_rank_by_all_their_digits(values: list[int]) -> None:
    """Two decimals of 18 digits that no float tells apart have different keys."""
    spec = ScoreSpec("s", "d6")
    words, codes = np.empty(len(values), np.uint64), np.empty(len(values), np.uint32)
    label = np.zeros(len(values), np.uint8)
    keys.encode_i8(np.array(values), label, np.uint64(1 << 63), words, codes)
    order = np.argsort(words, kind="stable")
    assert [values[i] for i in order] == sorted(values, reverse=True)
    assert np.all(np.diff(codes[order].astype(np.int64)) >= 0)
    assert spec.layout.buckets == keys.SCORE_BUCKETS


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=30))
def test_buckets_never_cut_across_the_order(values: list[float]) -> None:
    """A better score is never in a later bucket, also beyond the range of float32."""
    score = np.array(values)
    words, codes = np.empty(score.size, np.uint64), np.empty(score.size, np.uint32)
    keys.encode_f8(score, np.ones(score.size, np.uint8), words, codes)
    order = np.argsort(words, kind="stable")
    assert np.all(score[order][1:] <= score[order][:-1])
    assert np.all(np.diff(codes[order].astype(np.int64)) >= 0)
    assert np.all(codes & 1 == 1)


def test_nan_scores_take_the_last_two_codes() -> None:
    """Every NaN, whatever its sign and payload, is counted apart by label."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    words, codes = np.empty(3, np.uint64), np.empty(3, np.uint32)
    assert keys.encode_f8(bits.view(np.float64), np.array([0, 1, 1], np.uint8), words, codes) == 3
    assert codes.tolist() == [2**17, 2**17 + 1, 2**17 + 1]
    narrow = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32)
    words4 = np.empty(3, np.uint16)
    assert keys.encode_f4(narrow, np.array([0, 1, 1], np.uint8), words4, codes) == 3
    assert codes.tolist() == [2**17, 2**17 + 1, 2**17 + 1]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30, unique=True))
def test_mixing_ids_is_bijective(values: list[int]) -> None:
    """Different ids stay different, and come back."""
    ids = np.array(values, np.uint64)
    words, codes = np.empty(ids.size, np.uint64), np.empty(ids.size, np.uint32)
    keys.encode_id(ids, np.zeros(ids.size, np.uint8), np.uint64(64 - 11), words, codes)
    assert len(set(words.tolist())) == len(values)
    np.testing.assert_array_equal(keys.unmix(words), ids)
    np.testing.assert_array_equal(codes >> 1, words >> np.uint64(53))


def test_hashes_are_murmur() -> None:
    """Published hashes of MurmurHash3 x64 128, and a digest of those of every length with and without a tail."""
    published = {b"": (0, 0), b"hello": (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)}
    published[b"The quick brown fox jumps over the lazy dog"] = 0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347
    assert {text: keys.hash_bytes(text) for text in published} == published
    found = [keys.hash_bytes(bytes((37 * i + n) % 256 for i in range(n))) for n in range(50)]
    pinned = "7b7c737f1812c4c841d68b8e0287edf46b1c40748ac5bffe0b9942387b7b3f5c"
    assert hashlib.sha256(repr(found).encode()).hexdigest() == pinned


@given(st.integers(1, 40), st.lists(st.integers(0, 39), max_size=60))
def test_an_id_in_a_dictionary_is_the_id(size: int, indices: list[int]) -> None:
    """Dictionaries are hashed once a batch, larger ones not at all: only the ids that are there."""
    dictionary = pa.array([f"id {i}" for i in range(size)])
    array = pa.DictionaryArray.from_arrays(pa.array([i % size for i in indices], pa.int32()), dictionary)
    for words, plain in zip(identify(array, "hash"), identify(array.dictionary_decode(), "hash"), strict=True):
        np.testing.assert_array_equal(words, plain)
