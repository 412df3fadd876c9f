"""Rules that are read every night: false alarms and delays in simulated years, the floor, windows and distances."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streameval.evaluation.alarms import (
    End,
    Series,
    distance_error,
    find_end,
    true_spread,
    units_of_blocks,
    variance,
    windows,
)
from streameval.evaluation.intervals import Estimated
from streameval.metrics.estimates import Estimate
from streameval.metrics.protocol import Sizes
from streameval.results import Scalar
from streameval.rules import Rule
from streameval.store.nights.replicates import Replicates
from streameval.store.nights.windows import judge_year

ALARMS = Path(__file__).parents[2] / "benchmarks" / "alarms.py"


needs_benchmarks = pytest.mark.skipif(not ALARMS.exists(), reason="needs the benchmarks of a checkout")


@needs_benchmarks
def test_years_have_few_false_alarms_and_falls_are_seen() -> None:
    """The short form of `benchmarks/year.py --alarms`: both sides, nights that resemble each other, a lasting fall."""
    module = runpy.run_path(str(ALARMS))
    case, share, alarms = (module[name] for name in ("Case", "Share", "alarms"))
    for first in alarms(share(case(1, 30, 0.5, nights=120), 0, 80)).values():
        assert (first < 120).sum() <= 6  # of 5 % in 365 nights, more would be seen in 1 of 1,000 runs
    fall = alarms(share(case(1, 128, fall=2.0, nights=80), 0, 20), signs=(1,))[1]
    assert np.median(fall - 59) <= 8


@needs_benchmarks
def test_simulated_years_are_judged_as_nights_of_a_store_are() -> None:
    """To the bit: the ends of all windows of each night, and the night of the first alarm."""
    module = runpy.run_path(str(ALARMS))
    share = module["Share"](module["Case"](1, 30, 0.5, fall=5.0, nights=66), 3, 2)
    rules = {1: Rule.read("m >= 0.8 always @95%"), -1: Rule.read("m <= 0.8 always @95%")}  # a year each
    nights: list[list[Replicates]] = [[], []]
    first = [66, 66]
    simulated = zip(module["nights_of"](share), module["judged"](share), strict=True)
    for night, ((values, left, rows), (recent, floored)) in enumerate(simulated):
        for year, (sign, rule) in enumerate(rules.items()):
            one = Estimate(Scalar.certain("m", float(values[year])), left[year], Sizes("u", {"rows": rows}), "logit")
            nights[year] = [*nights[year], Replicates.of([Estimated(one, one)])][-57:]
            days = range(night + 1 - len(nights[year]), night + 1)
            judgement = judge_year(rule, days, nights[year], [True] * len(days), 1)
            assert floored[year] == (judgement.outcome != "undecided")
            if judgement.outcome == "failed":
                first[year] = min(first[year], night)
            if floored[year]:
                ends = {w: find_end(one, year, "logit", rule.bound, sign) for w, one in recent.items()}
                seen = [(w, *end[:2]) for w, end in ends.items() if isinstance(end, End)]
                assert [one[:3] for one in judgement.windows] == seen
    found = module["alarms"](share)
    assert [found[1][0], found[-1][1]] == first
    assert first[0] < 66


def series_of(days: np.ndarray, values: np.ndarray, replicates: np.ndarray, rows: np.ndarray) -> Series:
    """Nights that all have replicates."""
    return Series(days, values, *variance(replicates), units_of_blocks(rows), replicates, rows)


def series(values: np.ndarray, spread: float, seed: int = 0) -> Series:
    """Nights of one slice, with 128 blocks of 4 rows whose standard error is `spread`."""
    noise = np.random.default_rng(seed).normal(size=(values.size, 1, 128))
    noise -= noise.mean(axis=-1, keepdims=True)
    noise *= spread / np.sqrt(127 / 128 * np.square(noise).sum(axis=-1, keepdims=True))
    return series_of(np.arange(values.size), values[:, None], noise, np.full(noise.shape, 4.0))


def test_a_window_is_the_mean_of_its_nights_with_its_own_replicates() -> None:
    """Independent blocks: the error falls with the root of the nights; equal ones: it does not fall."""
    nights = series(np.full(35, 0.9), 0.01)
    found = windows(nights, np.ones(35, bool), nights.floors(), 1e-5)
    assert [int(one.nights[0]) for one in found.values()] == [1, 7, 28]
    assert np.allclose([one.stderr[0] for one in found.values()], 0.01 / np.sqrt([1, 7, 28]), rtol=0.2)
    alike = series_of(nights.days, nights.values, np.repeat(nights.replicates[:1], 35, axis=0), nights.rows)
    found = windows(alike, np.ones(35, bool), alike.floors(), 1e-5)
    assert np.allclose([one.stderr[0] for one in found.values()], 0.01)


def test_a_lucky_night_has_the_error_of_those_before() -> None:
    """The floor: a night with a tenth of the usual error."""
    nights = series(np.full(20, 0.9), 0.01)
    lucky = nights.replicates.copy()
    lucky[-1] /= 10
    found = windows(series_of(nights.days, nights.values, lucky, nights.rows), np.ones(20, bool), nights.floors(), 1e-5)
    assert found[1].stderr[0] == pytest.approx(0.01, rel=0.01)
    lucky[-1] = 0
    found = windows(series_of(nights.days, nights.values, lucky, nights.rows), np.ones(20, bool), nights.floors(), 1e-5)
    assert found[1].stderr[0] == pytest.approx(0.01, rel=0.01)


def test_windows_take_only_judged_nights_and_say_why_they_cannot_be_judged() -> None:
    """Three nights since an accepted failure; too few units of a metric without a scale."""
    nights = series(np.full(20, 0.9), 0.01)
    found = windows(nights, np.arange(20) >= 17, nights.floors(), 1e-5)
    ends = [find_end(one, 0, "logit", 0.9, 1) for one in found.values()]
    assert isinstance(ends[0], End)
    assert ends[1:] == ["too few nights"] * 2
    assert ends[0].end > 0.9 > ends[0].end - 2 * ends[0].shown
    few = series_of(
        nights.days, nights.values, nights.replicates, np.random.default_rng(0).exponential(size=nights.rows.shape)
    )
    plain = find_end(windows(few, np.ones(20, bool), nights.floors(), 1e-5)[1], 0, "plain", 0.9, 1)
    assert str(plain).endswith("effective units, 200 are needed")


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_distances_from_the_usual_value_err_at_their_level(tau: float) -> None:
    """Nominal 2.5 %: between 1 and 4 % of 1,500 nights, with 30 units and estimated errors; as exact, up to 10 %."""
    rng, hits, units, trials = np.random.default_rng(1), 0, 30, 1500
    from scipy.stats import t

    for _ in range(trials):
        values = rng.normal(size=(29, units)) + tau * rng.normal(size=(29, 1)) / np.sqrt(units)
        nights, squares = values.mean(axis=1), values.var(axis=1, ddof=1) / units
        free = float(units - 1)
        spread = true_spread(nights[:-1], squares[:-1], np.zeros(28, int))
        square = max(squares[-1], float(np.median(squares[:-1])))
        error = distance_error(square, free, [(one, free) for one in squares[-8:-1]], spread)
        hits += float(np.median(nights[-8:-1]) - nights[-1]) > t.ppf(0.975, error.freedom) * error.stderr
    assert 0.005 <= hits / trials <= 0.04


def test_true_spread_is_about_the_mean_of_each_side() -> None:
    """An accepted change of level adds nothing."""
    values, squares = np.r_[np.zeros(14), np.full(14, 5.0)], np.full(28, 0.1)
    assert true_spread(values, squares, np.repeat([0, 1], 14)) == (0.0, 26)
    assert true_spread(values, squares, np.zeros(28, int))[0] > 6


def test_nights_near_a_perfect_value_stay_in_windows() -> None:
    """Without those of AUC 1, or in which one block decides, the mean of the others would be too low."""
    sizes, apart = Sizes("unit", {"rows": np.ones(128)}), np.zeros((2, 128))
    apart[1, 0] = -0.05
    ones = [
        Estimate(Scalar.certain("roc_auc", 1 - 0.1 * i), 1 - 0.1 * i + row, sizes, "logit")
        for i, row in enumerate(apart)
    ]
    ones[0] = replace(ones[0], reason="the value 1 is at the end of its range")
    table = Replicates.of([Estimated(one, one) for one in ones]).table
    assert table["problem"].to_pylist() == [None, None]
    assert table["se.square"].to_pylist() == pytest.approx([0, apart[1].var() * 127])
    nights = series(np.r_[np.full(20, 0.9), 1.0], 0.01)
    last = windows(nights, np.arange(21) == 20, nights.floors(), 1e-5)[1]
    assert find_end(last, 0, "logit", 0.95, 1) == pytest.approx((1, 1, math.nan), nan_ok=True)
    assert find_end(last, 0, "logit", 0.95, -1) == "the value 1 is at the end of its range"


def test_replicates_of_sampled_labels_have_the_larger_error() -> None:
    """That of the strata, and as many units as labels, not as blocks show."""
    sizes, apart = Sizes("row", {"rows": np.array([400.0])}, single=True), np.linspace(-0.01, 0.01, 128)
    one = Estimate(Scalar.certain("roc_auc", 0.9), 0.9 + apart, sizes, "logit", known=0.05)
    table = Replicates.of([Estimated(one, one)]).table
    assert table["se.square"][0].as_py() == pytest.approx(0.05**2)
    assert table["se.units"][0].as_py() == 400
