"""Sums over many replicates in one loop: the values of states that leave out one block each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.metrics.finalize import computed
from streameval.metrics.scores.gain import Agc
from streameval.metrics.scores.partial_area import Gini
from streameval.metrics.scores.ranking import AveragePrecision, PrAuc, RocAuc
from streameval.metrics.scores.sampling.block_replicates import BlockReplicates
from streameval.states.protocol import Batch
from streameval.states.scores.blocks import BlockCounts, BlockSpec

METRICS: list[Any] = [
    RocAuc(),
    AveragePrecision(),
    PrAuc(),
    Agc(),
    Agc(ratio=True),
    Gini(),
]


def folded(seed: int, *, rows: int, bins: int, levels: int, nan: float = 0.0, share: float = 0.3) -> BlockCounts:
    """Block counts of some scores in units of a few rows."""
    rng = np.random.default_rng(seed)
    label = (rng.random(rows) < share).astype(np.uint8)
    score = np.round(rng.normal(size=rows) + label, levels)
    score[rng.random(rows) < nan] = np.nan
    builder = BlockSpec("s", "f8", nan="half", unit="u", bins=bins).builder(Budget(), rows)
    builder.update(Batch(label, None, {"s": pa.array(score), "u": pa.array(rng.integers(0, rows // 3, rows))}))
    found: BlockCounts = builder.state()
    return found


def check(split: BlockReplicates) -> None:
    """Every value is that of the state without the block, to the last bit."""
    blocks = np.flatnonzero(split.sizes.counts["rows"]).tolist()
    rankings = split.rankings(blocks, whole=True)
    assert rankings is not None
    states = [*(split.without(block) for block in blocks), split.total()]
    for ranking, state in zip(rankings, states, strict=True):
        found, want = (computed(each, METRICS) for each in (ranking, state))
        np.testing.assert_array_equal([one.value for one in found], [one.value for one in want], strict=False)


@settings(max_examples=25)
@given(
    st.integers(0, 999),
    st.integers(2, 500),
    st.sampled_from([4, 64, 2048]),
    st.sampled_from([0, 1, 9]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([0.0, 0.01, 0.5]),
    st.sampled_from([32, 128]),
)
def test_values_are_those_of_states(
    seed: int, rows: int, bins: int, levels: int, nan: float, share: float, count: int
) -> None:
    """Bins of one score and of several, ties on either side, halved rows, one class alone, merged blocks."""
    state = folded(seed, rows=max(rows, 3), bins=bins, levels=levels, nan=nan, share=share)
    split = BlockReplicates(state, "u", count)
    check(split)
    for tied in split.tied(METRICS):
        check(tied)


def test_sums_may_exceed_a_word() -> None:
    """Counts of 10¹¹ rows a bin."""
    state = folded(1, rows=600, bins=64, levels=9)
    rng = np.random.default_rng(2)
    state = replace(state, table=state.table * rng.integers(1, 10**11, state.table.shape))
    split = BlockReplicates(state, "u", 128)
    check(split)
    for tied in split.tied(METRICS):
        check(tied)


def test_weights_and_thresholds_have_states_of_their_own() -> None:
    """Weighted rows and thresholds take a state for each replicate."""
    state = folded(3, rows=300, bins=64, levels=9)
    weighted = replace(state, spec=replace(state.spec, weighted=True), sums=state.table.astype(np.float64))
    assert BlockReplicates(weighted, "u", 128).rankings([0], whole=True) is None
