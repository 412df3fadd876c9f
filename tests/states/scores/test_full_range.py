"""Scores over all finite floats and integers: no sum or difference overflows, and no two numbers become one."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import ContingencyTable, LiftCurve, auc, evaluate
from streameval.errors import DataError, LabelError, OptionError
from streameval.states.scores.quantile_sketch import QuantileSketch

HUGE, LEAST, WHOLE = 1.7e308, 5e-324, 2**53
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [HUGE, -HUGE, LEAST, -LEAST, 2 * LEAST, 0.0]
)


@settings(max_examples=60)
@given(st.lists(FINITE, min_size=1, max_size=30), st.lists(st.floats(0, 1), min_size=1, max_size=9), st.booleans())
def test_quantiles_are_finite_and_ascend(values: list[float], shares: list[float], merged: bool) -> None:
    """Every quantile is finite, and ascends with its share from the least number to the largest."""
    sketch = QuantileSketch.from_values(values, compression=100)
    if merged:
        sketch = sketch.merge(QuantileSketch.from_values(values[::-1], compression=100))
    found = sketch.quantile(sorted([0.0, *shares, 1.0]))
    assert np.isfinite(found).all()
    assert (found[0], found[-1]) == (min(values), max(values))
    assert all(a <= b for a, b in pairwise(found))


@given(FINITE, FINITE)
def test_the_median_of_two_numbers_is_their_midpoint(one: float, other: float) -> None:
    """Also where their sum or their difference exceeds the largest float; half of the numbers are below it."""
    sketch = QuantileSketch.from_values([one, other])
    middle = (Fraction(one) + Fraction(other)) / 2
    assert abs(Fraction(sketch.quantile(0.5)) - middle) <= max(
        abs(Fraction(one)), abs(Fraction(other))
    ) / 2**52 + Fraction(LEAST)
    if max(abs(one), abs(other)) < 4 * abs(float(middle)) and one != other:
        assert sketch.cdf(float(middle)) == pytest.approx(0.5, abs=0.26 if abs(one - other) < 1e-300 else 1e-6)


@settings(max_examples=60)
@given(st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=6, unique_by=lambda point: point[0]))
def test_areas_are_those_of_fractions(points: list[tuple[float, float]]) -> None:
    """Trapezoids of any coordinates, or one line where the area exceeds the largest float."""
    points = sorted(points)
    steps = [((Fraction(b[0]) - Fraction(a[0])), (Fraction(a[1]) + Fraction(b[1])) / 2) for a, b in pairwise(points)]
    area, size = sum(x * y for x, y in steps), sum(abs(x * y) for x, y in steps)
    try:
        found = auc(*zip(*points, strict=True))
    except DataError as error:
        if "exceeds the largest float" not in str(error):
            raise
        assert abs(area) > Fraction(HUGE)
    else:
        most = max(abs(Fraction(x)) for x, _ in points) * max(abs(Fraction(y)) for _, y in points)
        assert abs(Fraction(found) - area) <= size / 2**40 + most / 2**50 + Fraction(LEAST)


@pytest.mark.parametrize("asked", [{}, {"ci": 0.9, "resample_bins": 50}, {"approx": True}])
def test_metrics_of_scores_of_every_size(asked: dict[str, Any]) -> None:
    """Ranks decide: 0 warnings, and the values of the ranks where no probability is asked for."""
    random = np.random.default_rng(0)
    size = np.exp(random.uniform(-744, 709.7, 500))
    score = np.concatenate([np.where(random.random(500) < 0.5, -size, size), [HUGE, -HUGE, LEAST, -LEAST, 0.0]])
    label = random.integers(0, 2, score.size)
    found = evaluate(pa.table({"label": label, "score": score}), score="score", metrics="*", **asked)
    ranks = np.unique(score, return_inverse=True)[1]
    same = evaluate(pa.table({"label": label, "score": ranks}), score="score", metrics=["roc_auc", "agc"])
    for one in same.results:
        value = next(each for each in found.results if each.metric == one.metric)
        assert value.value == one.value if value.exact else value.lower <= one.value <= value.upper
    assert all(np.isfinite(one.value) or one.reason for one in found.results)


def test_counts_of_every_size_are_exact_or_refused() -> None:
    """Float counts whose sums or products leave float64 are computed as fractions."""
    rows = [[2.0, 1.0], [0.0, 3.0]]
    for unit in (2.0**1020, 2.0**-1070):
        table = ContingencyTable(rows=[[unit * n for n in row] for row in rows])
        assert table.mutual_info_score() == pytest.approx(ContingencyTable(rows=rows).mutual_info_score(), rel=1e-9)
        with pytest.raises(DataError, match="products leave float64; scale the counts"):
            LiftCurve.from_counts([unit], [unit])


@pytest.mark.parametrize("pos_label", [WHOLE + 1, str(WHOLE + 1)])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_label_that_a_float_cannot_be_is_absent(pos_label: Any, kind: pa.DataType) -> None:
    """As a number and as the text of the command line, which Arrow would round."""
    data = pa.table({"label": pa.array([float(WHOLE), 0.0], kind), "score": [1, 2]})
    with pytest.raises(LabelError, match=r"pos_label=.*9007199254740993.* is not a value of label column 'label'"):
        evaluate(data, score="score", pos_label=pos_label, metrics="roc_auc")
    assert evaluate(data, score="score", pos_label=str(WHOLE), metrics="roc_auc").value("roc_auc") == 0.0


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(18, 1)])
def test_thresholds_are_refused_where_scores_are_rounded(kind: pa.DataType) -> None:
    """2**53 + 3 would be at or above the threshold 2**53 + 4, as float64."""
    data = pa.table({"label": [0, 1], "score": pa.array(list(map(Decimal, (WHOLE + 3, WHOLE + 4)))).cast(kind)})
    with pytest.raises(
        OptionError, match=r"float64 rounds scores of column 'score' above 2.25e\+1[45]; choose a lower"
    ):
        evaluate(data, score="score", at=f"threshold={WHOLE + 4}")
    found = evaluate(data, score="score", at="threshold=7")
    assert found.value("recall@threshold=7") == 1.0
    with pytest.raises(OptionError, match="float64 rounds scores"):
        found.confusion(WHOLE + 4)
    assert found.confusion(7).TP == 1
