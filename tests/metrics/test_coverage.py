"""Coverage of intervals in the designs that are hardest for them; all are in ``benchmarks/interval_coverage.py``."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from streameval.metrics.estimates import Estimate
from streameval.metrics.units import Sizes, class_counts
from streameval.results import Scalar

BLOCKS = 128
ZIPF = np.arange(1, 201.0) ** -2.2


def area_of(rng: np.random.Generator, sizes: np.ndarray, area: float) -> Estimate:
    """The ROC AUC of units of one label each, with its replicates, from the pairs that are lost between blocks."""
    label, apart = rng.random(sizes.size) < 0.3, math.sqrt(2) * ndtri(area)
    unit = np.repeat(np.arange(sizes.size), sizes)
    score = (apart * label + math.sqrt(0.9) * rng.normal(size=sizes.size))[unit]
    score += math.sqrt(0.1) * rng.normal(size=unit.size)
    block, positive = rng.integers(0, BLOCKS, sizes.size)[unit], label[unit]
    pos, neg = (np.bincount(block[side], minlength=BLOCKS).astype(float) for side in (positive, ~positive))
    low, high = score[positive].min(), score[~positive].max()  # other rows lose no pair
    rows, others = np.flatnonzero(positive & (score < high)), np.flatnonzero(~positive & (score > low))
    others = others[np.argsort(-score[others])]
    above = np.zeros((others.size + 1, BLOCKS))  # of the best negatives, those of each block
    np.cumsum(block[others][:, None] == np.arange(BLOCKS), axis=0, out=above[1:])
    better = np.searchsorted(-score[others], -score[rows])
    lost = np.array([above[better[block[rows] == b]].sum(axis=0) for b in range(BLOCKS)])
    left = lost.sum() - lost.sum(axis=0) - lost.sum(axis=1) + lost.diagonal()
    replicates = 1 - left / ((pos.sum() - pos) * (neg.sum() - neg))
    replicates[pos + neg == 0] = math.nan
    value = Scalar.certain("roc_auc", float(1 - lost.sum() / pos.sum() / neg.sum()))
    return Estimate(value, replicates, Sizes("unit", class_counts(neg, pos)), "logit")


@pytest.mark.parametrize(("zipf", "area"), [(False, 0.999), (True, 0.999), (True, 0.99)])
def test_intervals_near_an_end_hold_the_truth(zipf: bool, area: float) -> None:
    """Within three Monte Carlo errors of 92 to 97.5 %; the interval of t alone held it in 82 to 88 % of Zipf units."""
    rng, trials = np.random.default_rng(0), 200
    drawn = [rng.choice(200, 2600, p=ZIPF / ZIPF.sum()) + 1 if zipf else np.full(300, 5) for _ in range(trials)]
    results = [area_of(rng, sizes, area).scalar_with(0.95) for sizes in drawn]
    truth = float(np.mean([one.value for one in results]))
    given = [one for one in results if one.ci_lower is not None]
    assert len(given) > 0.9 * trials
    above = np.mean([one.ci_lower > truth for one in given])
    below = np.mean([one.ci_upper < truth for one in given])
    assert 0.92 - 3 * 0.019 < 1 - above - below < 0.975 + 3 * 0.011
    assert max(above, below) < 0.045 + 3 * 0.015
