"""Sums of calibration over strips of float32 scores: those of the groups one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streameval.kernels.calibration.strides import stride_sums
from streameval.kernels.calibration.strips import strip_sums
from streameval.metrics.finalize import compute
from streameval.metrics.scores.calibration import logit_table, strides
from streameval.metrics.scores.calibration.recalibration import LogisticFit, Recalibration
from streameval.metrics.scores.calibration.scoring import BrierScore, LogLoss
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.types import rank_keys

if TYPE_CHECKING:
    from streameval.typing import Array

ENDS = [1.0, 1 - 2.0**-24, 1 - 2.0**-23, 0.75, 0.5, 2.0**-38, 2.0**-39, 1e-30, 1e-45]


def scores_of(kind: str) -> Array:
    """Distinct float32 scores that descend: close, apart, near 1, near 0, or those at which the way changes."""
    random = np.random.default_rng(3)
    found = {
        "close": 0.3 + np.arange(5000) * 2.0**-25,
        "apart": random.random(5000),
        "near 1": 1 - 10.0 ** -random.uniform(0, 7.3, 5000),
        "near 0": 10.0 ** -random.uniform(0, 44, 5000),
        "ends": np.array(ENDS),
    }[kind].astype(np.float32)
    distinct: Array = np.unique(found[(found > 0) & (found <= 1)])[::-1]
    return distinct


@pytest.mark.parametrize("most", [1, 1000, 1 << 18])
@pytest.mark.parametrize("kind", ["close", "apart", "near 1", "near 0", "ends"])
def test_sums_are_those_of_the_groups(kind: str, most: int) -> None:
    """Levels and sums of scores to the last bit, squares and the likelihood to rounding."""
    score = scores_of(kind)
    neg, pos = np.random.default_rng(most).integers(0, most, (2, score.size), endpoint=True)
    rows, shares = int((neg + pos).sum()), score.astype(np.float64)
    (levels, starts, squares, full), bins = logit_table.summed(neg, pos, shares, rank_keys(score, "f4"), (7, 11))
    expected = stride_sums(neg, pos, shares, 7, 11)
    assert (levels.tolist(), starts.tolist(), full) == (expected[0].tolist(), expected[1].tolist(), expected[3])
    exact = sum(
        p * (1 - Fraction(s)) ** 2 + n * Fraction(s) ** 2
        for n, p, s in zip(neg.tolist(), pos.tolist(), shares.tolist(), strict=True)
    )
    assert float(((int(squares[0]) << 64) + int(squares[1])) / (exact * 2**62)) == pytest.approx(1, abs=1e-15)
    inside = slice(int((shares == 1).sum()), None)
    groups = neg[inside], pos[inside], shares[inside]
    table, other = (logit_table.joined([found], rows) for found in (bins, logit_table.binned(*groups)))
    assert table.loss() == pytest.approx(other.loss(), rel=1e-14)
    for a, b in ((0.0, 1.0), (0.3, 0.6), (-1.0, 3.0), (0.0, logit_table.GENTLE)):
        derivatives = table.derivatives(a, b)
        assert derivatives[:2] == pytest.approx(other.derivatives(a, b)[:2], abs=3e-16 * rows * 40)
        assert derivatives[2::2] == pytest.approx(other.derivatives(a, b)[2::2], rel=1.5e-3 * max(1.0, b))  # of bins


@pytest.mark.parametrize("swapped", [False, True])
def test_sums_of_as_many_rows_as_strips_take(swapped: bool) -> None:
    """2³² − 1 rows in one strip, nearly all of one class."""
    score = 0.3 + np.arange(3) * -(2.0**-25)
    many, few = np.array([(1 << 31) - 2, 0, 1 << 31]), np.array([0, 1, 0])
    neg, pos = (many, few) if swapped else (few, many)
    found, _ = logit_table.summed(neg, pos, score, rank_keys(score.astype(np.float32), "f4"))
    shares = score.astype(np.float32).astype(np.float64)
    levels, starts, _, full = stride_sums(neg, pos, shares, 0, 0)
    assert (found[0].tolist(), found[1].tolist(), found[3]) == (levels.tolist(), starts.tolist(), full)


def test_a_part_without_bins_has_the_other_sums() -> None:
    """Where all scores are 0 or 1."""
    score = np.array([1.0, 0.0], np.float32)
    neg, pos = np.array([3, 4]), np.array([5, 0])
    sums, bins = logit_table.summed(neg, pos, score.astype(float), rank_keys(score, "f4"))
    assert int(sums[2][0]) << 64 | int(sums[2][1]) == 3 << 62
    assert bins[1].shape[1] == 0
    assert strip_sums(neg, pos, rank_keys(score, "f4"), 0, 0, 1.0, 1.0, 0, bins[1])[0].tolist() == [[0, 7], [0, 5]]


@pytest.mark.parametrize("power", [0.3, 1.0, 5.0])
def test_metrics_of_many_rows_do_not_depend_on_the_way(power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By strips, group by group, and by steps on the groups themselves."""
    random = np.random.default_rng(2)
    x = random.normal(0, 2, strides.MANY)
    score = (1 / (1 + np.exp(-x))).astype(np.float32).clip(1e-30, 1 - 1e-7)
    state = fold_arrays((random.random(x.size) < 1 / (1 + np.exp(-power * x))).astype(np.uint8), score)
    fits = [Recalibration("calibration_slope", slope=flag) for flag in (True, False)]
    metrics = [BrierScore(), LogLoss(), LogLoss(1e-3), *fits]
    found = [compute(state, metric).value for metric in metrics]
    by_steps = [compute(state, Recalibration("slope", slope=flag, fit=LogisticFit())).value for flag in (True, False)]
    monkeypatch.setattr(strides, "_WORD", 0)
    monkeypatch.setattr(strides, "MANY", math.inf)
    assert found == pytest.approx([compute(state, metric).value for metric in metrics], rel=1e-13)
    assert found[3:] == pytest.approx(by_steps, rel=1e-12, abs=1e-12)
