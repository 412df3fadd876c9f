"""Histograms of weighted scores: merged, they hold what one fold of all rows holds, to the last bit."""

from __future__ import annotations

import pickle
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from streameval.budget import Budget
from streameval.states.protocol import Batch
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
