"""Adjacent rows with equal ids are counted by run, and the state is that of the same rows in any other order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.states.clusters import counts as clusters
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.keyed import hot
from streameval.states.keyed.hot import LONG_RUN, run_lengths, run_starts
from streameval.states.protocol import Batch

IDS = {
    "signed": lambda ids: pa.array(ids - 3, pa.int64()),
    "hash": lambda ids: pa.array([f"id {i}" for i in ids.tolist()]),
}


def sorted_ids(rng, rows, clusters):
    """Ids in ascending order, in runs of random lengths."""
    return np.sort(rng.integers(0, clusters, rows))


def folded(spec, columns, label, order, labelled=None):
    """The state of some rows in an order, in two batches."""
    builder = spec.builder(Budget(), 1 << 14)
    for part in np.array_split(order, 2):
        kept = None if labelled is None else labelled[part]
        taken = {name: column.take(pa.array(part)) for name, column in columns.items()}
        builder.update(Batch(label[part], None, taken, labelled=kept))
    return builder.state()


@pytest.fixture
def found(monkeypatch):
    """What `run_starts` found in each batch."""
    seen = []

    def spy(columns):
        seen.append(run_starts(columns))
        return seen[-1]

    for module in (clusters, hot):
        monkeypatch.setattr(module, "run_starts", spy)
    return seen


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("unlabelled", [False, True])
def test_clusters_of_sorted_rows_are_those_of_shuffled_rows(kind, unlabelled, found):
    """Sizes and positives do not depend on whether rows were counted by run, with labels or without some of them."""
    rng = np.random.default_rng(5)
    rows = 20_000
    ids, label = sorted_ids(rng, rows, rows // 40), (rng.random(rows) < 0.3).astype(np.uint8)
    labelled = rng.random(rows) < 0.999 if unlabelled else None
    if labelled is not None:
        label[~labelled] = 0
    spec = ClusterSpec("c", type=kind, unlabelled=unlabelled)
    columns = {"c": IDS[kind](ids)}
    by_run = folded(spec, columns, label, np.arange(rows), labelled)
    assert all(starts is not None for starts in found)
    found.clear()
    assert folded(spec, columns, label, rng.permutation(rows), labelled) == by_run
    assert all(starts is None for starts in found)


@pytest.mark.parametrize("kind", IDS)
def test_cells_of_sorted_rows_are_those_of_shuffled_rows(kind, found):
    """The table of classes and clusters does not depend on whether rows were counted by run."""
    rng = np.random.default_rng(6)
    rows = 20_000
    ids = sorted_ids(rng, rows, rows // 40)
    columns = {"c": IDS[kind](ids), "k": pa.array(ids // 7)}
    spec, label = ContingencySpec("k", "c", cluster_type=kind), np.zeros(rows, np.uint8)
    by_run = folded(spec, columns, label, np.arange(rows))
    assert all(starts is not None for starts in found)
    found.clear()
    assert folded(spec, columns, label, rng.permutation(rows)) == by_run
    assert all(starts is None for starts in found)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(1, 9)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_runs_are_the_longest_stretches_of_equal_keys(runs):
    """Keys are equal within a run and differ from those of the next; short runs are left alone."""
    lengths = [n for *_, n in runs]
    columns = [np.repeat(np.array([run[c] for run in runs], np.uint64), lengths) for c in range(2)]
    rows = sum(lengths)
    keys = [*zip(*columns, strict=True)]
    true = [i for i in range(rows) if not i or keys[i] != keys[i - 1]]
    starts = run_starts(columns)
    if not rows or len(true) * LONG_RUN > rows:
        assert starts is None
    else:
        assert starts.tolist() == true
        assert run_lengths(starts, rows).tolist() == np.diff([*true, rows]).tolist()


def test_few_hot_keys_are_not_counted_by_run():
    """Chance runs of a giant cluster are left to the table of hot keys, which is faster."""
    ids = np.where(np.random.default_rng(7).random(20_000) < 0.9, 1, 2).astype(np.uint64)
    assert run_starts([ids]) is None
