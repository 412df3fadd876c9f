"""Block counts: every row is counted once, however many share a cell and however the bins come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streameval.kernels.blocks.grid import codes
from streameval.states.blocks import blocks_of
from streameval.states.protocol import Batch
from streameval.states.scores.blocks import BlockSpec


@pytest.mark.parametrize(("bins", "blocks"), [(4, 2), (64, 8), (2048, 128)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_counted_by_bin_block_and_label(bins: int, blocks: int, *, weighted: bool) -> None:
    """Also where a cell has more rows than a byte holds, where scores are missing, and where bins have to be joined."""
    rng = np.random.default_rng(bins)
    scores = np.concatenate([rng.random(3000), np.full(3000, 0.25), rng.normal(size=3000) * 1e3, [np.nan] * 50])
    label, unit = rng.integers(0, 2, scores.size).astype(np.uint8), rng.integers(0, 500, scores.size)
    weight = rng.random(scores.size) if weighted else None
    builder = BlockSpec("s", "f8", weighted, "half", "unit", blocks, bins).builder(None, 0)
    for at in np.array_split(np.arange(scores.size), 3):
        columns = {"s": pa.array(scores[at], from_pandas=False), "unit": pa.array(unit[at])}
        builder.update(Batch(label[at], None if weight is None else weight[at], columns))
    state = builder.state()
    assert 1 < state.prefixes.size <= bins
    block, there = blocks_of(unit.astype(np.uint64), blocks), ~np.isnan(scores)
    expected = np.zeros_like(state.table)
    bin_ = np.searchsorted(state.ends[:, 0], codes(scores), side="right") - 1
    np.add.at(expected, (bin_[there], block[there], label[there]), 1)
    assert np.array_equal(state.table, expected)
    assert state.nan_rows.sum() == 50
    if weight is not None:
        sums = np.zeros(expected.shape)
        np.add.at(sums, (bin_[there], block[there], label[there]), weight[there])
        assert state.sums == pytest.approx(sums, rel=1e-12)
        assert state.nan_weights.sum() == pytest.approx(weight[~there].sum())


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e-6])
def test_runs_of_prefixes_do_not_pile_up_in_the_hash_table(scale: float) -> None:
    """Prefixes come in runs, one for each sign and power of two: slots by their lower bits made searches very long."""
    scores = np.random.default_rng(3).normal(scale / 2, scale, 200_000)
    builder = BlockSpec("s", "f8", unit=None).builder(None, 0)
    builder.update(Batch(np.zeros(scores.size, np.uint8), None, {"s": pa.array(scores)}))
    free = np.flatnonzero(builder._finder == builder.spec.bins)
    assert builder._finder.size - free.size == builder._used[0] > 1000
    assert np.diff(free, prepend=-1, append=builder._finder.size).max() < 32


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bins", [16, 300])
def test_the_room_of_a_builder_changes_no_count(bins: int, *, weighted: bool) -> None:
    """A slice of few rows starts with few bins, which grow before prefixes are shortened."""
    rng = np.random.default_rng(bins)
    spec = BlockSpec("s", "f8", weighted, "half", "unit", 8, bins)
    builders = [spec.builder(None, capacity) for capacity in (1, 3, bins, 1 << 20)]
    for rows in (2, 40, 900):
        columns = {"s": pa.array(rng.normal(size=rows)), "unit": pa.array(rng.integers(0, 50, rows))}
        weight = rng.random(rows) if weighted else None
        batch = Batch(rng.integers(0, 2, rows).astype(np.uint8), weight, columns)
        for builder in builders:
            builder.update(batch)
    assert len(builders[0]._prefixes) == bins
    first, *others = (builder.state() for builder in builders)
    assert all(other == first for other in others)
