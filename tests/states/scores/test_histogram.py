"""Histograms of scores: merged, they hold what one fold of all rows holds, to the last bit; and their size."""

from __future__ import annotations

import pickle
import sys
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streameval.budget import Budget
from streameval.errors import NullError
from streameval.evaluation import explain
from streameval.kernels.histogram import BINS, absorb
from streameval.states.protocol import Batch
from streameval.states.scores import histogram
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram

ROWS = 6_000


def test_merging_loses_no_weight() -> None:
    """In any order, also after a state was sent to another process."""
    rng, spec = np.random.default_rng(0), HistogramSpec("score", weighted=True, nan="half")
    label, weight = rng.integers(0, 2, ROWS).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, ROWS)
    score = rng.choice(np.array([0.25, 0.5, np.nan], np.float32), ROWS)

    def folded(rows: Any) -> ScoreHistogram:
        builder = spec.builder(Budget(), ROWS)
        builder.update(Batch(label[rows], weight[rows], {"score": pa.array(score[rows])}))
        return builder.state()

    whole, parts = folded(slice(None)), [folded(rows) for rows in np.array_split(rng.permutation(ROWS), 7)]
    sent: list[ScoreHistogram] = [pickle.loads(pickle.dumps(part)) for part in reversed(parts)]
    for found in (reduce(ScoreHistogram.merge, parts), reduce(ScoreHistogram.merge, sent)):
        assert found == whole
        assert found.totals() == whole.totals()
        assert found.nan_weights.all()


@pytest.mark.parametrize("weighted", [False, True])
def test_tables_that_are_full_are_emptied(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table counts 2³¹ − 1 rows at most; no row before them and no missing score is lost or counted twice."""
    rng, spec = np.random.default_rng(1), HistogramSpec("score", weighted=weighted, nan="half")
    label, weight = rng.integers(0, 2, ROWS).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, ROWS)
    score = pa.array(rng.random(ROWS).astype(np.float32).round(2), mask=rng.random(ROWS) < 0.1)

    def folded() -> ScoreHistogram:
        builder = spec.builder(Budget(), ROWS)
        for rows in np.array_split(np.arange(ROWS), 9):
            columns = {"score": score.take(pa.array(rows))}
            builder.update(Batch(label[rows], weight[rows] if weighted else None, columns))
        return builder.state()

    whole = folded()
    monkeypatch.setattr(histogram, "_PACKED_ROWS", ROWS // 4)
    assert folded() == whole
    assert whole.nan_rows.all()


def test_a_null_is_refused_also_where_a_table_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that begins the next table is checked like every other."""
    monkeypatch.setattr(histogram, "_PACKED_ROWS", 3)
    builder = HistogramSpec("score").builder(Budget(), 1)
    scores = pa.array([0.5, 0.25, 0.125, None], pa.float32())
    builder.update(Batch(np.zeros(2, np.uint8), None, {"score": scores[:2]}))
    with pytest.raises(NullError, match="has NaN or null scores"):
        builder.update(Batch(np.zeros(4, np.uint8), None, {"score": scores}))


@pytest.mark.parametrize("weight", [None, "weight"])
def test_a_plan_says_how_large_a_histogram_may_be(weight: str | None) -> None:
    """A state of every bin; an empty state has none."""
    table = pa.table({"score": [0.25, 0.5], "label": [0, 1], "weight": [1.0, 2.0]})
    [planned] = explain(table, score="score", weight=weight, approx=True, threads=1).states
    sums = np.ones((2, BINS if weight else 0, 2))
    full = ScoreHistogram.of(HistogramSpec("score", weighted=bool(weight)), np.ones((3, BINS), np.int64), *sums)
    assert 0 <= sys.getsizeof(full) - planned.bytes < 100


def test_loops_are_compiled_once_wherever_states_come_from() -> None:
    """States that were folded, merged, stored or sent pass arrays of the same types."""
    spec, score = HistogramSpec("score"), np.arange(64, dtype=np.float32)
    builder = spec.builder(Budget(), 1)
    builder.update(Batch(np.zeros(64, np.uint8), None, {"score": pa.array(score)}))
    state = builder.state()
    stored = spec.from_arrow(state.header(), state.to_arrow(), Budget())
    sent: list[bytes] = []
    data = pickle.dumps(state, protocol=5, buffer_callback=lambda buffer: sent.append(bytes(buffer)))
    arrays = [array for each in (state, state.merge(stored), stored) for array in (each.bins, *each.table)]
    assert all(array.flags.c_contiguous for array in arrays)
    assert state.merge(pickle.loads(data, buffers=sent)) == stored.merge(stored)
    assert len(absorb.made().overloads) == 1
