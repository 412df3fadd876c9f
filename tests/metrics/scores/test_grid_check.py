"""The check of the coarse grid: where its bins alone show that it does, the exact counts are not asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import evaluate
from streameval.budget import Budget
from streameval.metrics.finalize import computed
from streameval.metrics.scores.sampling.block_replicates import BlockReplicates
from streameval.metrics.scores.sampling.delong import DeLong
from streameval.states.protocol import Batch
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import fold_arrays

if TYPE_CHECKING:
    import pytest

SHAPES = {
    "normal": lambda z, _: z,
    "saturated": lambda z, _: 1 - np.exp(-7 - 2 * z).clip(0, 1),
    "tail": lambda z, rng: np.where(rng.random(z.size) < 0.9, 0.5 + 1e-7 * z, 10 * z),
    "atom": lambda z, rng: np.where(rng.random(z.size) < 0.5, 0.25, z),
    "neighbours": lambda z, _: np.nextafter(0.3, np.where(z > 1, 1.0, 0.0)),  # of one code
    "single": lambda z, _: z.astype(np.float32),
}


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([16, 64, 256, 2048]),
    st.booleans(),
    st.floats(0, 6),
    st.integers(0, 999),
)
def test_a_grid_that_is_sure_passes_the_exact_check(shape: str, bins: int, weighted: bool, apart: float, seed: int):
    """Never the other way round: a grid that is too coarse is never sure."""
    rng = np.random.default_rng(seed)
    label = (rng.random(3000) < 0.3).astype(np.uint8)
    score = SHAPES[shape](rng.normal(size=3000) + apart * label, rng)
    weight = rng.gamma(0.5, size=3000) if weighted else None
    kind = "f4" if shape == "single" else "f8"
    builder = BlockSpec("s", kind, weighted, unit="u", bins=bins).builder(Budget(), 3000)
    builder.update(Batch(label, weight, {"s": pa.array(score), "u": pa.array(np.arange(3000))}))
    exact = fold_arrays(label, score, weight)
    grid = BlockReplicates(builder.state(), "u", 128, exact=True)
    if grid.sure:
        doubtful = replace(grid, exact=False)
        assert not doubtful.sure
        assert doubtful.certified(lambda metrics: computed(exact, metrics)) is None


def test_scores_that_tell_the_classes_apart_well_need_no_exact_check() -> None:
    """What is unknown within a bin is bounded by its mean square over the bin's rows, not by its largest value."""
    rng = np.random.default_rng(1)
    label = (rng.random(30_000) < 0.3).astype(np.uint8)
    score = (rng.normal(size=label.size) + 2 * label).astype(np.float32)
    builder = BlockSpec("s", "f4").builder(Budget(), label.size)
    builder.update(Batch(label, None, {"s": pa.array(score)}))
    assert BlockReplicates(builder.state(), "row", 128, exact=True).sure


def test_the_exact_counts_are_asked_only_where_the_grid_is_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a histogram are always checked: its bins may be wider than those of the grid."""
    asked: list[int] = []
    partial = DeLong.partial
    monkeypatch.setattr(DeLong, "partial", lambda self, part: [asked.append(part.n.size), partial(self, part)][1])
    rng = np.random.default_rng(1)
    label = rng.random(3000) < 0.3
    score = 0.7 + 1e-6 * (rng.normal(size=3000) + label)
    table = pa.table({"label": label, "score": score, "unit": rng.integers(0, 900, 3000)})
    fine = evaluate(table, score="score", unit="unit", metrics="roc_auc")
    assert min(asked) > 3000  # the grid's own, in pieces
    assert fine.results[0].stderr is not None
    asked.clear()
    coarse = evaluate(table, score="score", unit="unit", metrics="roc_auc", approx=True)
    assert min(asked) < 10
    assert "too coarse" in str(coarse.results[0].ci_reason)
