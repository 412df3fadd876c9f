"""Stored exact states: delta-encoded pieces, small, identical for identical rows, refused if damaged."""

from __future__ import annotations

import pickle
from dataclasses import astuple
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.errors import FormatError
from streameval.states import codec
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.keyed import packing
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec, fold_arrays

ROWS = 1_000_000


def folded(scores, *, parts=1):
    """The state of scores with every third positive, as the union of `folds` folds."""
    label = (np.arange(len(scores)) % 3 == 0).astype(np.uint8)
    states = [fold_arrays(label[i::parts], scores[i::parts]) for i in range(parts)]
    for other in states[1:]:
        states[0] = states[0].merge(other)
    return states[0]


def stored(state):
    """Its pieces, in one batch."""
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


@given(KEYS, st.sampled_from(["i4", "f4", "i8", "u8"]), st.integers(1, 5), st.sampled_from([1, 8, 1 << 25]))
def test_a_table_survives_its_packing(rows, kind, items, run_bytes):
    """Keys near each other and far apart, with few rows and with many, in pieces and runs of any size."""
    rows = sorted((key % 2**32 if kind in {"i4", "f4"} else key, neg, pos) for key, neg, pos in rows if neg or pos)
    rows = list({row[0]: row for row in rows}.values())
    spec = ScoreSpec("score", kind)
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    types = (np.uint64, np.int64, np.int64)
    table = pa.RecordBatch.from_arrays(
        [pa.array(np.array(list(column), kind)) for column, kind in zip(columns, types, strict=True)],
        schema=spec.schema,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "ITEMS", items)
        patch.setattr(packing, "RUN_BYTES", run_bytes)
        packed = spec.packing.pack(table)
        header = spec.empty().header()
        state = spec.from_arrow(header, [packed], Budget())
        halves = [packed.slice(0, len(packed) // 2), packed.slice(len(packed) // 2)]
        assert spec.from_arrow(header, halves[::-1], Budget()) == state
    found = pa.Table.from_batches(state.to_arrow(), spec.schema)
    assert found.equals(pa.Table.from_batches([table]))


@pytest.mark.parametrize("wide", [False, True])
def test_pieces_follow_from_the_rows_alone(wide):
    """However the rows were split and merged, the pieces are the same, so that equal states have equal names."""
    scores = np.random.default_rng(1).beta(2, 4, 20_000).round(3)
    scores = scores if wide else scores.astype(np.float32)
    assert stored(folded(scores)).equals(stored(folded(scores, parts=7)))


def test_pieces_do_not_depend_on_memory():
    """A bucket that little memory groups in parts is packed as one that is grouped at once."""
    scores = np.random.default_rng(1).uniform(0.5, 0.503, 100_000)  # of one bucket
    found = []
    for limit in (1 << 20, 1 << 30):
        builder = ScoreSpec("score", "f8").builder(Budget(limit), 1 << 14)
        builder.update(Batch(np.zeros(scores.size, np.uint8), None, {"score": pa.array(scores)}))
        found.append(stored(builder.state()))
    assert found[0].equals(found[1])


def test_a_table_of_rows_without_a_budget_is_made_within_the_given_one():
    """Rows that were sent to a worker belong to no budget; the worker's limits how many keys it groups at a time."""
    state = pickle.loads(pickle.dumps(folded(np.random.default_rng(1).uniform(0.5, 0.503, 100_000))))  # of one bucket
    sizes = [[len(batch) for batch in state.to_arrow(budget)] for budget in (None, Budget(1 << 20))]
    assert (len(sizes[0]), sum(sizes[1])) == (1, 100_000)
    assert max(sizes[1]) < 1 << 15


@given(st.lists(st.integers(0, 2**22), min_size=1, max_size=60, unique=True), st.sets(st.integers(1, 59)))
def test_pieces_do_not_depend_on_batches(keys, cuts):
    """Buckets of up to 60 keys, of which 5 are packed at a time, in batches that end anywhere."""
    spec = ScoreSpec("score", "u8")
    columns = np.sort(np.array(keys, np.uint64)), np.arange(len(keys)) + 1, np.zeros(len(keys), np.int64)
    table = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=spec.schema)
    bounds = [0, *sorted(at for at in cuts if at < len(keys)), len(keys)]
    parts = [table.slice(a, b - a) for a, b in pairwise([0, *bounds])]  # the first one is empty
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "KEYS", 5)
        patch.setattr(packing, "ITEMS", 2)
        whole, divided = (pa.Table.from_batches(spec.packing.packed(each)) for each in ([table], parts))
    assert whole.equals(divided)
    assert sum(whole["items"].to_pylist()) == len(keys)


def test_parts_of_a_bounded_number_of_items_are_packed_at_a_time(monkeypatch):
    """A part of more items, such as a large bucket, is packed batch by batch; the pieces are the same."""
    rng = np.random.default_rng(1)
    state = folded(np.concatenate([rng.uniform(0.5, 0.503, 9000), rng.random(9000)]))
    expected, seen = stored(state), []

    def each(function, items, _):
        seen.append([int(part.keyed.items.sum()) for part in items])
        return [function(part) for part in items]

    monkeypatch.setattr(codec, "buckets", lambda part: part.keyed.intervals(1000))
    monkeypatch.setattr(codec, "_TOGETHER", 4000)
    schema, batches = codec.dump(state, each)
    assert pa.Table.from_batches(batches, schema).combine_chunks().to_batches() == [expected]
    assert max(map(len, seen)) > 1
    assert max(map(sum, seen)) < 6000


def test_exact_states_are_small():
    """Bytes a row of a million rows: scores by their bits, 64-bit ids, and scores with few values."""
    rng = np.random.default_rng(1)
    scores = rng.beta(2, 4, ROWS)
    builder = ClusterSpec("cluster").builder(Budget(), ROWS)
    ids = pa.array(rng.integers(0, 2**62, ROWS))
    builder.update(Batch(np.zeros(ROWS, np.uint8), None, {"cluster": ids}))
    states = folded(scores.astype(np.float32)), folded(scores), builder.state(), folded(scores.round(2))
    sizes = [stored(state).nbytes / ROWS for state in states]
    assert all(size <= most for size, most in zip(sizes, (1.2, 5.2, 6.3, 0.01), strict=True)), sizes


def _changed(batch, name, change):
    """The batch with one column changed."""
    values = batch.column(name).to_pylist()
    change(values)
    return rebuilt(batch, **{name: pa.array(values, batch.schema.field(name).type)})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("code", lambda values: values.__setitem__(0, 2**20)),
        ("items", lambda values: values.__setitem__(0, 0)),
        ("items", lambda values: values.__setitem__(0, 2**30)),
        ("rows", lambda values: values.__setitem__(0, -1)),
        ("rows", lambda values: values.__setitem__(0, 2**40)),
        ("rows", lambda values: values.__setitem__(0, values[0] + 1)),
        ("width", lambda values: values.__setitem__(slice(None), [9] * len(values))),
        ("width", lambda values: values.__setitem__(slice(None), [4] * len(values))),
        ("words", lambda values: values.__setitem__(slice(None), [b""] * len(values))),
        ("words", lambda values: values.__setitem__(slice(None), [v + b"\x01" for v in values])),
        ("counts", lambda values: values.__setitem__(0, b"\xff" * 12)),
        ("counts", lambda values: values.__setitem__(0, b"\x00")),
        ("counts", lambda values: values.__setitem__(slice(None), [v[:-1] for v in values])),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_damaged_pieces_are_refused(wide, name, change):
    """Nothing is written beyond what a piece says it holds, and the message names the kind."""
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.random(500), np.full(900, 0.75), rng.random(50).repeat(20)])
    batch = stored(folded(scores if wide else scores.astype(np.float32)))
    assert codec.load([batch]).totals().rows == scores.size
    with pytest.raises(FormatError, match=r"score_counts is .*damaged"):
        codec.load([_changed(batch, name, change)])


@pytest.mark.parametrize("wide", [False, True])
def test_bytes_changed_at_random_are_refused_or_harmless(wide):
    """A piece with changed bytes is refused, or holds the number of rows that it declares."""
    rng = np.random.default_rng(1)
    scores = np.concatenate([rng.random(500), rng.random(50).repeat(20)])
    batch = stored(folded(scores if wide else scores.astype(np.float32)))
    for seed in range(60):
        dice = np.random.default_rng(seed)
        name = dice.choice(["words", "counts", "width", "first", "rows", "items"]).item()
        values = batch.column(name).to_pylist()
        at = int(dice.integers(len(values)))
        if isinstance(values[at], bytes):
            values[at] = dice.bytes(len(values[at]) + int(dice.integers(-1, 2)) if values[at] else 1)
        else:
            values[at] = int(dice.integers(0, 200))
        try:
            state = codec.load([rebuilt(batch, **{name: pa.array(values, batch.schema.field(name).type)})])
        except FormatError:
            continue
        assert astuple(state.totals())[:2] == astuple(folded(scores).totals())[:2]


def test_small_stored_states_are_decoded_together(monkeypatch):
    """A year of small nights is decoded in few calls; larger batches are passed on one by one."""
    states = [folded(np.random.default_rng(seed).random(200)) for seed in range(20)]
    parts, seen = packing._Stored.parts.__func__, []

    def counted(cls, batch, *rest):
        seen.append(batch.num_rows)
        return parts(cls, batch, *rest)

    monkeypatch.setattr(packing._Stored, "parts", classmethod(counted))
    expected = reduce(lambda a, b: a.merge(b), states)
    assert codec.load_together([codec.dump(state) for state in states]) == expected
    assert len(seen) == 1
    monkeypatch.setattr(codec, "_SMALL", 1)
    assert codec.load_together([codec.dump(state) for state in states]) == expected
    assert len(seen) == 1 + 20


def test_a_damaged_batch_is_refused_among_others():
    """Batches are checked for their columns one by one, and for nulls and impossible counts together."""
    schema, batches = codec.dump(folded(np.random.default_rng(1).random(50)))
    [sound] = batches
    null = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names)], schema)
    negative = sound.set_column(1, "rows", pa.array([-1] * sound.num_rows))
    for damaged, why in ((null, "nulls"), (negative, "at least 0"), (sound.drop_columns(["width"]), "columns")):
        with pytest.raises(FormatError, match=why):
            codec.load_together([(schema, [sound]), (schema, [sound, damaged]), (schema, [sound])])
