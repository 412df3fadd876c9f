"""Standard errors over the whole catalogue: those of an exact jackknife in memory over the same blocks."""

import math
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streameval import evaluate
from streameval.evaluation.result import Evaluation
from streameval.metrics.catalogue import at_one_place, entries, entry_of
from streameval.metrics.finalize import compute_metrics
from streameval.metrics.resampling import FEW_BLOCKS
from streameval.metrics.selection import Selection
from streameval.states.blocks import blocks_of
from streameval.states.scores.counts import fold_arrays
from streameval.typing import Array

ROWS, UNITS, BLOCKS = 3000, 1500, 128
OPTIONS = {
    "truncate": (0.2, 500),
    "at": ("fpr=0.2", "tpr=0.7", "recall=0.6", "precision=0.5", "share=0.2", "k=700", "threshold=0.4"),
}
NAMED = ("partial_auc@0.2", "cost_min@fp=1,fn=2", "fbeta_max@2", "recall@k=700")
SCORES = ("score", "other", "near")


@cache
def data() -> dict[str, Array]:
    """Units that share their label and a part of their scores; two scores, and one that is nearly the first."""
    rng = np.random.default_rng(4)
    unit = np.concatenate([np.arange(UNITS), rng.integers(0, UNITS, ROWS - UNITS)])
    label = (rng.random(UNITS) < 0.4)[unit]
    logits = 1.2 * label + rng.normal(size=(2, UNITS))[:, unit] + rng.normal(size=(2, ROWS))
    scores = 1 / (1 + np.exp(-logits))
    near = scores[0] * (1 + 1e-6 * rng.normal(size=ROWS))
    return {"unit": unit, "label": label.astype(np.uint8), "score": scores[0], "other": scores[1], "near": near}


@cache
def metrics() -> dict[str, Any]:
    """Every metric of a score that has an interval, by name."""
    named = (*NAMED, *(e.name for e in entries("score") if e.metric is not None))
    found = {m.name: m for m in Selection(("score",), named, **OPTIONS).of("score")}
    return {name: metric for name, metric in found.items() if not entry_of(name).no_interval}


@cache
def jackknife(score: str) -> dict[str, Array]:
    """The replicates of every metric, from the rows that are left without each block."""
    columns = data()
    blocks = blocks_of(columns["unit"].astype(np.uint64), BLOCKS)
    found: dict[str, Array] = {}
    for count, pointed in ((BLOCKS, False), (FEW_BLOCKS, True)):
        some = {name: m for name, m in metrics().items() if at_one_place(m) == pointed}
        rows = []
        for block in range(count):
            left = blocks % count != block
            state = fold_arrays(columns["label"][left], columns[score][left])
            share = float(left.mean())
            rows.append([v.value for v in compute_metrics(state, [_shrunk(m, share) for m in some.values()])])
        found |= dict(zip(some, np.transpose(rows), strict=True))
    return found


def _shrunk(metric: Any, share: float) -> Any:
    """A number of points stays the same share of the rows."""
    return metric.shrunk(share)


def spread(replicates: Array) -> float:
    """The standard error that replicates give."""
    return math.sqrt((replicates.size - 1) / replicates.size * np.square(replicates - replicates.mean()).sum())


@cache
def evaluation(bins: str) -> Evaluation:
    """Every metric of every score, and its differences from the first; few bins need not tell two that are near."""
    table, scores = pa.table(data()), list(SCORES[:2] if bins == "512" else SCORES)
    options = OPTIONS | {"unit": "unit", "baseline": "score", "resample_bins": bins}
    return evaluate(table, score=scores, metrics=list(metrics()), threads=1, **options)


def test_every_metric_of_the_catalogue_is_here() -> None:
    """A metric that is new in the catalogue needs its name in `OPTIONS` or `NAMED`."""
    here = {entry_of(name).name for name in metrics()}
    assert {e.name for e in entries("score") if not e.no_interval} == here


@pytest.mark.parametrize(
    ("bins", "smooth", "rough"), [("512", 0.01, 0.02), ("2048", 0.01, 0.02), ("65536", 1e-9, 1e-9)]
)
def test_standard_errors_and_those_of_differences_are_the_jackknife(bins: str, smooth: float, rough: float) -> None:
    """Of smooth metrics to 1 %, of others to 2 %, or null; exact where a bin is one score."""
    found, given = evaluation(bins), set()
    at_thresholds = {result.metric for result in found.results if result.threshold is not None}
    for result in found.results:
        first = jackknife("score")[result.metric]
        of = str(result.of).split(" − ")[0]
        exact = spread(jackknife(of)[result.metric] - (0 if result.baseline is None else first))
        assert (result.stderr is None) == (result.ci_reason is not None), result
        if result.stderr is None:
            assert "coarse" in str(result.ci_reason), result
            continue
        given.add((result.metric, result.of))
        bound = rough if result.metric in at_thresholds else smooth
        assert result.stderr == pytest.approx(exact, rel=bound, abs=1e-15), (result.metric, result.of)
    if bins != "512":  # whose grid is too coarse around most thresholds, and says so
        assert {(name, of) for name in metrics() for of in ("score", "other", "other − score")} <= given
    if bins == "65536":  # 2,048 cannot tell nearly equal scores apart
        assert {(name, "near − score") for name in metrics()} <= given
