"""Keys: scores and ids become words that keep order and identity, and are packed into few bytes."""

import hashlib
import pickle
from dataclasses import astuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.errors import FormatError
from streameval.kernels import keys
from streameval.states import codec
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.keyed.ids import hash_bytes, identify
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec, fold_arrays
from streameval.states.scores.types import rank_keys
from streameval.store.files.location import Location
from streameval.store.files.published import StateFiles


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=2, max_size=20))
def test_decimals_rank_by_all_their_digits(values: list[int]) -> None:
    """Two decimals of 18 digits that no float tells apart have different keys."""
    spec = ScoreSpec("s", "d6")
    words = rank_keys(np.array(values), "d6")
    buckets = spec.buckets(words)
    order = np.argsort(words, kind="stable")
    assert [values[i] for i in order] == sorted(values, reverse=True)
    assert np.all(np.diff(buckets[order].astype(np.int64)) >= 0)
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


def test_hashes_are_murmur() -> None:
    """Published hashes of MurmurHash3 x64 128, and a digest of those of every length with and without a tail."""
    published = {b"": (0, 0), b"hello": (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)}
    published[b"The quick brown fox jumps over the lazy dog"] = 0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347
    assert {text: hash_bytes(text) for text in published} == published
    found = [hash_bytes(bytes((37 * i + n) % 256 for i in range(n))) for n in range(50)]
    pinned = "7b7c737f1812c4c841d68b8e0287edf46b1c40748ac5bffe0b9942387b7b3f5c"
    assert hashlib.sha256(repr(found).encode()).hexdigest() == pinned


@given(st.integers(1, 40), st.lists(st.integers(0, 39), max_size=60))
def test_an_id_in_a_dictionary_is_the_id(size: int, indices: list[int]) -> None:
    """Dictionaries are hashed once a batch, larger ones not at all: only the ids that are there."""
    dictionary = pa.array([f"id {i}" for i in range(size)])
    array = pa.DictionaryArray.from_arrays(pa.array([i % size for i in indices], pa.int32()), dictionary)
    for words, plain in zip(identify(array, "hash"), identify(array.dictionary_decode(), "hash"), strict=True):
        np.testing.assert_array_equal(words, plain)


ROWS = 1_000_000


def folded(scores, *, parts=1):
    """The state of scores with every third positive, as the union of `folds` folds."""
    label = (np.arange(len(scores)) % 3 == 0).astype(np.uint8)
    states = [fold_arrays(label[i::parts], scores[i::parts]) for i in range(parts)]
    for other in states[1:]:
        states[0] = states[0].merge(other)
    return states[0]


def stored(state):
    """Its table, in one batch."""
    schema, batches = codec.dump(state)
    [batch] = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return batch


def rebuilt(batch, **columns):
    """The batch with other columns."""
    arrays = [columns.get(name, batch.column(name)) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


KEYS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 300), st.integers(0, 2**16), st.integers(0, 2**64 - 1)),
        st.sampled_from([0, 1, 2, 32, 33, 127, 128, 2**14, 2**40]),
        st.sampled_from([0, 1, 1, 31, 33, 2**21]),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[0],
)


@given(KEYS, st.sampled_from(["i4", "f4", "i8", "u8"]))
def test_a_table_is_read_in_any_parts(rows, kind):
    """Keys near each other and far apart, with few rows and with many, in batches in any order."""
    rows = sorted((key % 2**32 if kind in {"i4", "f4"} else key, neg, pos) for key, neg, pos in rows if neg or pos)
    rows = list({row[0]: row for row in rows}.values())
    spec = ScoreSpec("score", kind)
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    types = (np.uint64, np.int64, np.int64)
    table = pa.RecordBatch.from_arrays(
        [pa.array(np.array(list(column), kind)) for column, kind in zip(columns, types, strict=True)],
        schema=spec.schema,
    )
    halves = [table.slice(len(table) // 2), table.slice(0, len(table) // 2)]
    state = spec.from_arrow(spec.empty().header(), halves, Budget())
    found = pa.Table.from_batches(state.to_arrow(), spec.schema)
    assert found.equals(pa.Table.from_batches([table]))


def test_exact_states_are_small(tmp_path):
    """Bytes a row of a million rows: scores by their bits, 64-bit ids, and scores with few values."""
    rng = np.random.default_rng(1)
    scores = rng.beta(2, 4, ROWS)
    builder = ClusterSpec("cluster").builder(Budget(), ROWS)
    ids = pa.array(rng.integers(0, 2**62, ROWS))
    builder.update(Batch(np.zeros(ROWS, np.uint8), None, {"cluster": ids}))
    states = folded(scores.astype(np.float32)), folded(scores), builder.state(), folded(scores.round(2))
    sizes = [StateFiles(Location.of(str(tmp_path))).write(state)[1] / ROWS for state in states]
    assert all(size <= most for size, most in zip(sizes, (1.2, 5.2, 6.3, 0.01), strict=True)), sizes


@pytest.mark.parametrize("wide", [False, True])
def test_numbers_changed_at_random_are_refused_or_harmless(wide):
    """A table with a changed number is refused, or holds the number of rows that it declares."""
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.random(500), rng.random(50).repeat(20)])
    batch = stored(folded(scores if wide else scores.astype(np.float32)))
    for seed in range(60):
        dice = np.random.default_rng(seed)
        name = dice.choice(["key", "negatives", "positives"]).item()
        values = batch.column(name).to_pylist()
        at = int(dice.integers(len(values)))
        values[at] = int(dice.integers(0, 200))
        try:
            state = codec.load([rebuilt(batch, **{name: pa.array(values, batch.schema.field(name).type)})])
        except FormatError:
            continue
        assert astuple(state.totals())[:2] == astuple(folded(scores).totals())[:2]


def test_a_table_of_rows_without_a_budget_is_made_within_the_given_one():
    """Rows that were sent to a worker belong to no budget; the worker's limits how many keys it groups at a time."""
    state = pickle.loads(pickle.dumps(folded(np.random.default_rng(1).uniform(0.5, 0.503, 100_000))))  # of one bucket
    sizes = [[len(batch) for batch in state.to_arrow(budget)] for budget in (None, Budget(1 << 20))]
    assert (len(sizes[0]), sum(sizes[1])) == (1, 100_000)
    assert max(sizes[1]) < 1 << 15


def test_a_damaged_batch_is_refused_among_others():
    """Batches are checked for their columns one by one, and for nulls and impossible counts together."""
    schema, batches = codec.dump(folded(np.random.default_rng(1).random(50)))
    [sound] = batches
    null = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names)], schema)
    negative = sound.set_column(1, "negatives", pa.array([-1] * sound.num_rows))
    for damaged, why in ((null, "nulls"), (negative, "at least 0"), (sound.drop_columns(["positives"]), "columns")):
        with pytest.raises(FormatError, match=why):
            codec.load_together([(schema, [sound]), (schema, [sound, damaged]), (schema, [sound])])
