"""The face of a score state: metrics see groups and their measure, and neither weights, bins nor NaN policies."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import streameval
from streameval import evaluate
from streameval.errors import OptionError
from streameval.metrics.catalogue import entries
from streameval.metrics.finalize import compute
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.ranking import KolmogorovSmirnov, MaxInformedness
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.histogram import to_histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart

METRICS = Path(streameval.__file__).parent / "metrics" / "scores"
FILES = [
    str(path.relative_to(METRICS))
    for pattern in ("ranking.py", "partial_area.py", "calibration/*.py", "gain*.py", "*point*.py", "*threshold*.py")
    for path in sorted(METRICS.glob(pattern))
]
KNOWN_TO_ONE_FILE = {"weighted", "neg_weight", "pos_weight", "nan_rows", "nan_weights"}
LABEL = np.array([0, 0, 1, 1, 0, 1], np.uint8)
SCORE = np.array([0.1, 0.4, 0.35, 0.8, 0.8, 0.35])
WEIGHT = np.array([1.0, 0.5, 2.0, 0.0, 3.0, 0.25])


@pytest.mark.parametrize("name", FILES)
def test_metrics_do_not_ask_what_measures_a_group(name: str) -> None:
    """Only `sums` tells counts from weights; no metric imports a state or reads a NaN policy."""
    tree = ast.parse((METRICS / name).read_text())
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not read & KNOWN_TO_ONE_FILE
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not imported & {"ScoreCounts", "ScoreHistogram", "ScoreSpec", "HistogramSpec"}


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["counts", "weights"])
def test_a_bin_of_one_score_is_a_group(weight: Any) -> None:
    """Exact groups and closed bins show the same measure, rows, scores and totals."""
    state = fold_arrays(LABEL, SCORE, weight)
    [group], [binned] = state.parts(), to_histogram(state).parts()
    for face in ("n", "p", "rows", "scores", "low", "high", "open"):
        np.testing.assert_array_equal(getattr(group, face), getattr(binned, face), face)
    assert (group.exact, binned.exact) == (True, False)
    assert group.total == binned.total
    assert group.rows.tolist() == [2, 1, 2, 1]
    assert (group.n.dtype.kind, group.total.weighted) == (("i", False) if weight is None else ("f", True))
    assert [group.score(i) for i in range(4)] == group.scores.tolist() == [0.8, 0.4, 0.35, 0.1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_open_bin_holds_its_scores(dtype: type) -> None:
    """The ends of a bin enclose its scores, and are equal where it has one; its threshold is the lower edge."""
    random = np.random.default_rng(4)
    score = np.sort(random.random(5_000).astype(dtype))[::-1]
    [part] = to_histogram(fold_arrays(random.integers(0, 2, score.size).astype(np.uint8), score)).parts()
    at = np.repeat(np.arange(part.rows.size), part.rows)
    assert part.open.any()
    assert (part.low[at] <= score).all()
    assert (score <= part.high[at]).all()
    assert ((part.low == part.high) == ~part.open).all()
    assert (part.low <= part.scores).all()


@dataclass(frozen=True)
class Positives(Metric):
    """Positives of all groups."""

    name: str = "own"
    counts_nan: bool = False

    def partial(self, part: ScorePart) -> int:
        """Positives of a part."""
        return int(part.p.sum())

    def combine(self, partials: Sequence[int], state: Any) -> int:
        """Their sum."""
        return sum(partials)


def test_a_metric_says_what_halved_scores_mean() -> None:
    """A metric that does not count NaN scores is undefined under ``half`` if there are any, with the remedy."""
    score = np.array([0.1, np.nan, 0.4, 0.8, 0.7, 0.2])
    halved, dropped = (fold_arrays(LABEL, score, nan=nan) for nan in ("half", "drop"))
    assert "nan='drop'" in compute(halved, Positives()).reason
    assert compute(halved, Positives(counts_nan=True)) == compute(dropped, Positives()) == 3
    assert compute(fold_arrays(LABEL, SCORE, nan="half"), Positives()) == 3


def test_kolmogorov_smirnov_is_two_sided() -> None:
    """Exchanging the classes changes neither the value nor the threshold; one side is the maximum informedness."""
    random = np.random.default_rng(5)
    label = random.integers(0, 2, 2_000).astype(np.uint8)
    for shift in (0.7, -0.7):
        score = np.round(random.normal(shift * label), 2)
        for weight in (None, random.random(label.size)):
            one, other = (compute(fold_arrays(y, score, weight), KolmogorovSmirnov()) for y in (label, 1 - label))
            assert (one.value, one.threshold) == (other.value, other.threshold)
            sides = [compute(fold_arrays(y, score, weight), MaxInformedness()).value for y in (label, 1 - label)]
            assert one.value == max(sides) > min(sides)


def test_kolmogorov_smirnov_is_computed_on_request() -> None:
    """It is not among the defaults; a request finds it by its name."""
    data = pa.table({"label": LABEL, "score": SCORE})
    with pytest.raises(OptionError, match="ks was not computed"):
        evaluate(data, score="score").value("ks")
    assert evaluate(data, score="score", metrics="ks").value("ks") == 1 / 3
    assert [entry.default for entry in entries("ks")] == [False]
