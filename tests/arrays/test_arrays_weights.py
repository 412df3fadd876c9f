"""Weights of any size: right to 1e-12 against exact fractions, or refused by name."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.arrays.gain import agc_score
from streameval.arrays.ranking import average_precision_score, roc_auc_score
from streameval.errors import WeightError


def exact(y: list[int], s: list[float], w: list[float]) -> tuple[Fraction, Fraction, Fraction]:
    """ROC AUC, average precision and the ratio of the gain curve's areas, in fractions."""
    rows = [(score, label, Fraction(weight)) for score, label, weight in zip(s, y, w, strict=True)]
    N, P = (sum(weight for _, label, weight in rows if label == side) for side in (0, 1))
    won = precision = area = T = F = Fraction(0)
    for score in sorted(set(s), reverse=True):
        n, p = (sum(weight for at, label, weight in rows if (at, label) == (score, side)) for side in (0, 1))
        won += p * (N - F - n / Fraction(2))
        area += (n + p) * (2 * T + p)
        T, F = T + p, F + n
        precision += p * T / (T + F) if p else 0
    total = N + P
    return won / (N * P), precision / P, area / (P * (2 * total - P))


weighted = st.lists(
    st.tuples(
        st.sampled_from([0, 1]), st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.integers(-500, 500), st.integers(1, 9)
    ),
    min_size=2,
    max_size=8,
).filter(lambda points: {label for label, *_ in points} == {0, 1})


@settings(deadline=None, max_examples=60)
@given(weighted, st.integers(-500, 500))
def test_weights_of_all_sizes_are_right(points: list[tuple[int, float, int, int]], shift: int) -> None:
    """Weights up to 2^1000 apart, of any common scale, give the exact values."""
    y, s = [label for label, *_ in points], [score for _, score, *_ in points]
    w = [float(np.ldexp(float(digits), exponent + shift)) for *_, exponent, digits in points]
    area, precision, ratio = map(float, exact(y, s, w))
    assert roc_auc_score(y, s, w) == pytest.approx(area, rel=1e-12, abs=1e-12)
    assert average_precision_score(y, s, sample_weight=w) == pytest.approx(precision, rel=1e-12, abs=1e-12)
    assert agc_score(y, s, sample_weight=w, normalized=False) == pytest.approx(ratio, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 1e-150, 1e150, 1e160, 4e307])
def test_a_common_size_changes_nothing(size: float) -> None:
    """Only ratios matter, down to the smallest float and up to where the sum overflows."""
    y, s, w = [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], [size] * 4
    assert roc_auc_score(y, s, w) == 0.75
    assert average_precision_score(y, s, sample_weight=w) == pytest.approx(5 / 6, rel=1e-12)
    assert agc_score([1, 1], [0.1, 0.2], sample_weight=[size, size], normalized=False) == 1.0


@pytest.mark.parametrize("weights", [[1e-300, 1e-300, 1e300], [5e-324, 1.0, 1.0], [1e308, 1e308, 1e308]])
def test_what_leaves_float64_is_refused(weights: Any) -> None:
    """A ratio or a sum outside float64 is named with both ends."""
    for function in (roc_auc_score, average_precision_score, agc_score):
        with pytest.raises(WeightError, match=r"sample_weight has weights from .* to .*leaves float64; scale"):
            function([1, 0, 0], [0.4, 0.6, 0.1], sample_weight=weights)
