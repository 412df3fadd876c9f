"""Slices at the limits of their types: sorted columns with many values, the whole range of int8, damaged keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streameval import evaluate
from streameval.budget import Budget
from streameval.errors import FormatError
from streameval.states import codec
from streameval.states.grouped.keys import By
from streameval.states.grouped.state import GroupedSpec
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec
from streameval.typing import view_numbers


def test_sorted_groups_beyond_narrow_tags() -> None:
    """A stretch of rows may have few of the groups of its batch, which have too many for a narrow tag."""
    rng, rows = np.random.default_rng(0), 150_000
    group = np.sort(rng.integers(0, 2_000, rows))
    table = pa.table({"label": rng.integers(0, 2, rows), "id": rng.integers(0, rows // 3, rows), "g": group})
    found = evaluate(table, cluster="id", metrics="aul", by="g", max_slices=3_000)
    for name in (0, 700, 1_999):
        alone = evaluate(table.filter(pa.array(group == name)), cluster="id", metrics="aul")
        assert found.value("aul", slice={"g": name}) == alone.value("aul")


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int64, np.uint64])
def test_slices_of_integers_over_their_whole_range(kind: type) -> None:
    """Differences of two values may be beyond their type."""
    ends = np.iinfo(kind)
    group = np.repeat(np.array([ends.min, ends.max - 1, ends.max] * 2, kind), [2, 4, 6, 2, 4, 6])
    table = pa.table({"label": np.arange(group.size) // 12, "score": np.linspace(0, 1, group.size), "g": group})
    found = evaluate(table, score="score", metrics="roc_auc", by="g")
    slices = found.slices("g").to_pydict()
    assert dict(zip(slices["g"], slices["rows"], strict=True)) == {ends.min: 4, ends.max - 1: 8, ends.max: 12}


def test_a_damaged_key_of_a_group_is_refused() -> None:
    """A 32-bit score has no key of more bits."""
    builder = GroupedSpec(ScoreSpec("score", "f4"), By(("g",))).builder(Budget(), 8)
    columns = {"score": pa.array([0.1, 0.9, 0.4], pa.float32()), "g": pa.array([1, 1, 2])}
    builder.update(Batch(np.array([0, 1, 0], np.uint8), None, columns))
    schema, batches = codec.dump(builder.state())
    table = pa.Table.from_batches(list(batches), schema)
    keys = table.column("key").to_numpy().copy()
    keys[-1] = 1 << 40
    damaged = table.set_column(schema.get_field_index("key"), schema.field("key"), pa.array(keys))
    with pytest.raises(FormatError, match="a key has more than 32 bits"):
        codec.load(damaged.replace_schema_metadata(schema.metadata).to_batches())


@pytest.mark.parametrize("grouped", [False, True])
def test_nulls_inside_a_dictionary_of_scores(grouped: bool) -> None:
    """Rows of a null entry have a missing score, as rows without an entry have."""
    scores = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, None], pa.int32()), pa.array([0.5, None, 0.25]))
    inner = ScoreSpec("score", "f8", nan="drop")
    builder = (GroupedSpec(inner, By(("g",))) if grouped else inner).builder(Budget(), 8)
    columns = {"score": scores, "g": pa.array([1, 1, 2, 2, 2])}
    builder.update(Batch(np.array([0, 1, 1, 0, 1], np.uint8), None, columns))
    state = builder.state().total() if grouped else builder.state()
    assert (state.totals().neg, state.totals().pos, state.nan_rows.tolist()) == (1, 1, [1, 2])


def test_a_view_of_numbers_refuses_nulls() -> None:
    """Their places in a buffer hold anything."""
    with pytest.raises(ValueError, match="an array with nulls has no view"):
        view_numbers(pa.array([1.0, None]))
