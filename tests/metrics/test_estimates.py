"""Estimates, and tests of their differences, from delete-a-block replicates; coverage in the hardest designs.

All designs are in ``benchmarks/interval_coverage.py``.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from streameval.errors import OptionError
from streameval.evaluation.intervals import compared, holm
from streameval.metrics.estimates import SCALES, Estimate
from streameval.metrics.protocol import Sizes, class_counts
from streameval.results import Scalar

RNG = np.random.default_rng(5)


def mean_estimate(values: np.ndarray, blocks: np.ndarray, of: str = "a", scale: str = "plain") -> Estimate:
    """The mean of some values with its replicates over 128 blocks."""
    sums, rows = np.bincount(blocks, values, 128), np.bincount(blocks, minlength=128)
    with np.errstate(invalid="ignore"):
        replicates = np.where(rows > 0, (values.sum() - sums) / (values.size - rows), np.nan)
    scalar = replace(Scalar.certain("mean", float(values.mean())), of=of, rows=values.size)
    return Estimate(scalar, replicates, Sizes("row", {"rows": rows}), scale)


def test_an_interval_covers_as_often_as_it_says():
    """An interval covers as often as it says."""
    found = 0
    for _ in range(400):
        values = RNG.exponential(size=4000)
        scalar = mean_estimate(values, RNG.integers(0, 128, values.size), scale="log").scalar_with(0.9)
        found += scalar.ci_lower <= 1 <= scalar.ci_upper
    assert 0.86 < found / 400 < 0.94


@pytest.mark.parametrize("name", SCALES)
def test_an_interval_without_ends_is_refused(name):
    """Where a standard error is so large that the ends leave float64, there is a reason in place of them."""
    blocks = np.ones(8)
    scalar = Scalar.certain("odds", 0.5)
    found = Estimate(scalar, np.resize([0.5, 1e100], 8), Sizes("campaign", {"rows": blocks}), name).scalar_with(0.95)
    if name in ("log", "log_complement"):
        assert found.ci_reason == "the standard error, 1.32e+100, is too large for an interval"
        assert found.ci_lower is found.ci_upper is None
    else:
        assert math.isfinite(found.ci_upper - found.ci_lower)


def test_the_degrees_of_freedom_count_the_blocks_that_decide():
    """If k of many blocks share all influence, there are 3k − 2; if all do, one less than blocks at most."""
    many = mean_estimate(RNG.normal(size=5000), RNG.integers(0, 128, 5000))
    assert 60 < many.freedom <= 127
    for k in (2, 5, 20):
        assert deciding(k, 0.99).freedom == pytest.approx(3 * k - 2, rel=0.4)
    assert deciding(1, 0.99).undefined == "one block of units (campaign) decides the value alone"


def deciding(k: int, value: float, sign: int = 1) -> Estimate:
    """A value of which k of 400 blocks decide alike."""
    replicates = value + sign * 0.002 * (np.arange(400) < k)
    return Estimate(Scalar.certain("m", value), replicates, Sizes("campaign", {"rows": np.ones(400)}), "logit")


def test_the_end_towards_the_middle_is_that_of_further_blocks():
    """It lies farther than t has it, the other end does not; 1 − x has the mirrored interval."""
    for k in (3, 9, 30):
        near, far = deciding(k, 0.98), deciding(k, 0.02, -1)
        one, other = near.scalar_with(0.95), far.scalar_with(0.95)
        assert (one.ci_lower, one.ci_upper) == pytest.approx((1 - other.ci_upper, 1 - other.ci_lower), rel=1e-9)
        scale = SCALES["logit"]
        lower, upper = (scale.to(end) - scale.to(0.98) for end in (one.ci_lower, one.ci_upper))
        assert upper == pytest.approx(stdtrit(near.freedom, 0.975) * near.stderr / 0.98 / 0.02)
        assert -lower > upper
        middle = deciding(k, 0.5).scalar_with(0.95)
        assert middle.ci_lower + middle.ci_upper == pytest.approx(1)


def test_a_difference_says_which_side_has_too_few_units():
    """The side with fewer effective units governs the difference, and is named."""
    values = RNG.normal(size=1280)
    many, few = (
        mean_estimate(values, np.arange(1280) % 128, "all"),
        mean_estimate(values, np.arange(1280) // 427, "few"),
    )
    reason = "effective units of rows (row) on the side of few: at least 5 are needed"
    for found in (many.minus(few), few.minus(many)):
        assert found.scalar_with(0.95).ci_reason.endswith(reason)


def test_a_difference_is_paired():
    """A difference is paired."""
    values, blocks = RNG.normal(size=5000), RNG.integers(0, 128, 5000)
    near = mean_estimate(values + 0.01 + RNG.normal(size=5000) / 100, blocks, "b")
    difference = near.minus(mean_estimate(values, blocks))
    assert difference.scalar.of == "b − a"
    assert difference.stderr < near.stderr / 50
    assert difference.p_value() < 1e-6
    assert difference.equivalent(0.02, 0.95)
    assert not difference.equivalent(0.005, 0.95)


def test_a_block_that_only_one_side_has_leaves_the_other_at_the_value_of_its_replicates():
    """Replicates of a grid or of a sample's population lie around another value than the exact one or the sample's."""
    values, blocks = RNG.normal(size=5000), RNG.integers(0, 64, 5000)
    one, other = mean_estimate(values, blocks, "b"), mean_estimate(RNG.normal(size=900), np.arange(900) % 40 + 60)
    expected = math.hypot(one.stderr, other.stderr)
    assert one.minus(other).stderr == pytest.approx(expected, rel=0.05)
    moved = Scalar.certain("mean", one.scalar.value + 0.5)
    for shifted in (one.sampled(moved), replace(one, scalar=moved, grid=one.scalar.value)):
        assert shifted.minus(other).stderr == one.minus(other).stderr
        assert other.minus(shifted).stderr == other.minus(one).stderr


def test_the_difference_of_certain_intervals_is_one():
    """Under `approx` a difference is certain to lie between those of the ends; of exact values it is exact."""
    exact = mean_estimate(RNG.normal(size=1280), np.arange(1280) % 128)
    loose = replace(exact, scalar=replace(exact.scalar, lower=-1.0, upper=2.0, exact=False))
    value = exact.scalar.value
    found = loose.minus(exact)
    assert (found.scalar.value, found.scalar.exact) == (0.0, False)
    assert (found.scalar.lower, found.scalar.upper) == (-1.0 - value, 2.0 - value)
    assert found.stderr == exact.minus(exact).stderr == 0.0
    assert exact.minus(exact).scalar.exact


def test_an_interval_of_a_difference_ends_where_differences_end():
    """Two shares differ by at most 1, however few units there are; p and the standard error are as they were."""
    shares, blocks = np.array([0.0, 1, 1, 0, 1, 0]), np.arange(6)
    a, b = (mean_estimate(values, blocks, of, "logit") for values, of in ((shares, "a"), (1 - shares, "b")))
    told = a.minus(b).scalar_with(0.999)
    assert (told.ci_lower, told.ci_upper) == (-1, 1)
    assert told.stderr == replace(a.minus(b), bounds=(-math.inf, math.inf)).stderr
    plain = (mean_estimate(values, blocks, of) for values, of in ((shares, "a"), (1 - shares, "b")))
    assert next(plain).minus(next(plain)).scalar_with(0.999).ci_lower < -1


def test_a_difference_on_the_scale_is_tested_there():
    """Near the end of the scale chance looks like a difference: on it, both sides are uncertain alike."""
    near, far = deciding(4, 0.995), deciding(9, 0.97)
    far = replace(far, replicates=far.replicates[::-1].copy())
    plain, carried = near.minus(far), near.minus(far, on_scale=True)
    to = SCALES["logit"].to
    apart = np.array([to(a) - to(b) for a, b in zip(near.replicates, far.replicates, strict=True)])
    logits = Estimate(Scalar.certain("m", to(0.995) - to(0.97)), apart, near.sizes)
    assert carried.p_value() == pytest.approx(replace(logits, most_freedom=near.freedom).p_value(), rel=1e-9)
    assert carried.scalar.value == plain.scalar.value
    assert carried.p_value() > plain.p_value()
    assert near.minus(near, on_scale=True).stderr == 0


def test_a_value_at_its_end_has_a_one_sided_interval():
    """By the rule of three over the effective units; a difference from it has none."""
    blocks = Sizes("campaign", {"rows": np.ones(400)})
    perfect = Estimate(Scalar.certain("m", 1.0), np.ones(400), blocks, "logit", "at its end", end_units=100.0)
    told = perfect.scalar_with(0.95)
    assert (told.ci_lower, told.ci_upper, told.ci_reason) == (pytest.approx(0.05**0.01), 1.0, None)
    gini = replace(perfect, scale="fisher").scalar_with(0.95)
    assert gini.ci_lower == pytest.approx(2 * told.ci_lower - 1)
    none = replace(perfect, scalar=Scalar.certain("m", 0.0)).scalar_with(0.95)
    assert (none.ci_lower, none.ci_upper) == (0.0, pytest.approx(1 - told.ci_lower))
    assert replace(perfect, end_units=4.0).scalar_with(0.95).ci_reason == "at its end"
    assert math.isnan(perfect.minus(deciding(4, 0.99)).p_value())


def test_identical_columns_have_no_p_and_are_equivalent():
    """Identical columns have no p and are equivalent."""
    one = mean_estimate(RNG.normal(size=5000), RNG.integers(0, 128, 5000))
    difference = one.minus(one)
    assert math.isnan(difference.p_value())
    assert difference.equivalent(1e-9, 0.95)
    assert compared([(difference, "higher")], 0.95)[0].verdict == "not shown"


def test_identical_columns_share_what_is_unknown_of_their_scores():
    """Where a row lies in its bin of the grid is unknown, but the same for both: their difference is 0 all the same."""
    one = mean_estimate(RNG.normal(size=5000), 1 + RNG.integers(0, 127, 5000))
    one = replace(one, doubt=np.full(128, 0.1))
    told = one.minus(one).scalar_with(0.95)
    assert (told.ci_lower, told.ci_upper, told.ci_reason) == (0, 0, None)
    other = replace(one, doubt=np.full(128, 0.2))
    assert "depends on where rows lie" in str(one.minus(other).scalar_with(0.95).ci_reason)


def test_what_is_infinite_on_both_sides_has_no_difference():
    """Neither a value nor a block: such a block is not taken for one without rows."""
    one = mean_estimate(RNG.normal(size=1280), np.arange(1280) % 128)
    endless = replace(one, replicates=np.where(np.arange(128) == 5, math.inf, one.replicates))
    assert endless.minus(endless).scalar_with(0.95).ci_reason == "a replicate is undefined"
    both = replace(one, scalar=replace(one.scalar, value=math.inf, lower=math.inf, upper=math.inf))
    assert both.minus(both).scalar_with(0.95).reason == "both values are infinite"


def test_other_units_cannot_be_compared():
    """Other units cannot be compared."""
    one = mean_estimate(RNG.normal(size=500), np.arange(500) % 128)
    with pytest.raises(OptionError, match="of campaign: evaluate both with the same unit"):
        one.minus(replace(one, sizes=replace(one.sizes, unit="campaign")))


def test_holm_is_that_of_scipy():
    """Holm is that of scipy."""
    p = RNG.uniform(size=9) ** 3
    assert holm(list(p)) == pytest.approx(_reference(p), rel=1e-12)


def _reference(p: np.ndarray) -> list[float]:
    """Step-down by the definition: the largest adjusted p of all that are not larger."""
    scaled = {x: min(1.0, (p >= x).sum() * x) for x in p}
    return [max(scaled[y] for y in p if y <= x) for x in p]


def test_verdicts_follow_the_better_end():
    """Verdicts follow the better end."""
    values, blocks = RNG.normal(size=5000), RNG.integers(0, 128, 5000)
    up = mean_estimate(values + 1 + RNG.normal(size=5000) / 9, blocks, "b").minus(mean_estimate(values, blocks))
    verdicts = [compared([(up, better)], 0.95)[0].verdict for better in ("higher", "lower", None)]
    assert verdicts == ["better", "worse", "higher"]


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
