"""Weights of any size out of core: one rule with arrays; right to 1e-12 against exact fractions, or refused by name."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from truth import agrees, curve_truth, gain_truth, groups_auc, groups_of, point_truth

from streameval import average_precision_score, evaluate, roc_auc_score
from streameval.errors import WeightError

if TYPE_CHECKING:
    from pathlib import Path

Point = tuple[int, float, float]  # label, score, weight

POINTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.integers(-450, 450), st.integers(1, 9)),
    min_size=2,
    max_size=8,
).filter(lambda points: {label for label, *_ in points} == {0, 1})


def table(points: list[Point]) -> pa.Table:
    """The points as columns."""
    labels, scores, weights = zip(*points, strict=True)
    return pa.table({"label": labels, "score": scores, "weight": pa.array(weights, pa.float64())})


def truths(points: list[Point]) -> dict[str, Fraction | None]:
    """Metrics of scores by their definitions."""
    groups = groups_of([(score, label, Fraction(weight)) for label, score, weight in points])
    counts = Counter(score for _, score, _ in points)
    rows = [counts[score] for score in sorted(counts, reverse=True)]
    found = curve_truth(groups) | {"roc_auc": groups_auc(groups)}
    for cut in (1, 0.5, 2):
        name = "" if cut == 1 else f"@{cut:g}"
        found[f"agc{name}"] = gain_truth(groups, rows, cut, ratio=False)
        found[f"agc_ratio{name}"] = gain_truth(groups, rows, cut, ratio=True)
    return found | {"tpr@fpr=0.3": point_truth(groups, rows, "fpr", 0.3)}


@settings(deadline=None, max_examples=25)
@given(POINTS, st.integers(-120, 40), st.booleans())
def test_weights_of_all_sizes_are_right(points: list[tuple[int, float, int, int]], shift: int, approx: bool) -> None:
    """Weights up to 2^900 apart, of any common scale, give the exact values."""
    weighed = [(label, score, math.ldexp(digits, power + shift)) for label, score, power, digits in points]
    found = evaluate(table(weighed), score="score", weight="weight", truncate=[0.5, 2], at="fpr=0.3", approx=approx)
    expected = truths(weighed)
    for result in found.results:
        truth = expected[result.metric]
        if approx and result.reason:
            continue  # a histogram may not know where a truncation cuts its weights
        if result.metric.startswith("agc") and "ratio" not in result.metric and truth is not None:
            assert result.value == pytest.approx(float(truth), rel=1e-12, abs=1e-12), result.metric
        else:
            assert agrees(result.value, truth), (result.metric, result.value, truth and float(truth))


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 1e-150, 1.0, 1e150, 1e160, 1e279])
@pytest.mark.parametrize("label", [[0, 1, 0, 1], [1, 1, 1, 1]])
@pytest.mark.parametrize("nan", ["error", "half"])
def test_a_common_size_changes_nothing(tmp_path: Path, size: float, label: list[int], nan: str) -> None:
    """Files, histograms and arrays agree, from the smallest float to the largest weight; one class or two."""
    scores = [0.1, 0.2, 0.3, 0.4 if nan == "error" else math.nan]
    columns = {"label": label, "score": scores, "one": [1.0] * 4, "weight": [size] * 4}
    pq.write_table(pa.table(columns), tmp_path / "part.parquet", row_group_size=2)
    for approx in (False, True):
        options: dict[str, Any] = {"score": "score", "nan": nan, "approx": approx, "truncate": 0.5}
        plain = evaluate(tmp_path, weight="one", **options)
        found = evaluate(tmp_path, weight="weight", **options)
        values = [[r.value for r in run.results] for run in (found, plain)]
        assert values[0] == pytest.approx(values[1], rel=1e-14, nan_ok=True)
    if len(set(label)) == 2 and nan == "error":
        auc, precision = (f(label, scores, sample_weight=[size] * 4) for f in (roc_auc_score, average_precision_score))
        assert found.value("roc_auc") == pytest.approx(auc, rel=1e-14)
        assert found.value("average_precision") == pytest.approx(precision, rel=1e-14)
        curve = found.curve("roc")
        assert (curve.rows, curve.positives) == pytest.approx((4 * size, 2 * size), rel=1e-14)
        assert np.allclose(curve.y, plain.curve("roc").y, rtol=1e-14)


@pytest.mark.parametrize("weights", [[1e-300, 1e-300, 1e279], [1e-200, 1e200, 1e-200], [1.0, 1e-305, 1e-305]])
def test_what_leaves_float64_is_refused(weights: list[float]) -> None:
    """A ratio outside float64 is named with both ends, in arrays where float64 cannot hold it either."""
    with pytest.raises(WeightError, match=r"leaves float64: scale the weights"):
        evaluate(
            table([(label, score, w) for label, score, w in zip([1, 0, 0], [0.4, 0.6, 0.1], weights, strict=True)]),
            score="score",
            weight="weight",
        )
