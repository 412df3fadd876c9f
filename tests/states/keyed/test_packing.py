"""Stored exact states: delta-encoded pieces, small, identical for identical rows, refused if damaged."""

from __future__ import annotations

from dataclasses import astuple
from functools import reduce

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
