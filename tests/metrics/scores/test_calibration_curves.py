"""Curves of calibration and distributions of scores against peers; under a histogram the truth is inside."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression

from streameval import evaluate
from streameval.errors import OptionError
from streameval.kernels.calibration import pool_counts
from streameval.metrics.curves import ScoreBins
from streameval.metrics.finalize import combine, partials
from streameval.metrics.scores.calibration import CorpFit, ReliabilityBins
from streameval.results import Distribution, Reliability
from streameval.states.scores.counts import fold_arrays


def drawn(rows: int = 5000) -> pa.Table:
    """Scores that are too extreme, with ties, and weights of which some are 0."""
    random = np.random.default_rng(5)
    score = random.beta(0.5, 0.8, rows)
    score[::3] = np.round(score[::3], 2)
    weight = random.random(rows) * (random.random(rows) < 0.9)
    return pa.table({"label": random.random(rows) < 0.1 + 0.7 * score, "score": score, "weight": weight})


def found(data: pa.Table, **asked: Any) -> Any:
    """An evaluation of the score."""
    return evaluate(data, score="score", metrics=["brier_score", "ece", "ece@7/equal_count", "corp.mcb"], **asked)


def test_reliability_is_that_of_scikit_learn() -> None:
    """Mean score and share of positives of each bin; empty bins are left out."""
    data = drawn()
    label, score = data["label"].to_numpy(), data["score"].to_numpy()
    for bins in (1, 10, 9999):
        share, mean = calibration_curve(label, score, n_bins=bins)
        curve = found(data).curve(f"reliability@{bins}")
        np.testing.assert_allclose(curve.y, share, rtol=1e-12)
        np.testing.assert_allclose(curve.x, mean, rtol=1e-12)
        assert curve.counts.sum() == curve.rows == score.size
        assert np.all((curve.low <= curve.x) & (curve.x <= curve.high))
        np.testing.assert_array_equal(curve.thresholds, curve.low)


def test_bins_with_weights() -> None:
    """Weighted means; no interval as of independent rows."""
    data = drawn()
    label, score, weight = (data[name].to_numpy() for name in ("label", "score", "weight"))
    curve = found(data, weight="weight").curve("reliability")
    at = np.searchsorted(np.linspace(0, 1, 11)[1:-1], score)
    sums = np.bincount(at, weight)
    np.testing.assert_allclose(curve.counts, sums)
    np.testing.assert_allclose(curve.y, np.bincount(at, weight * label) / sums)
    np.testing.assert_allclose(curve.x, np.bincount(at, weight * score) / sums)
    assert np.isnan(curve.ci_lower).all()
    assert curve.weighted


def test_bins_of_equal_count_and_the_area() -> None:
    """Ends are scores that occur; the distance from the diagonal is the calibration error."""
    data = drawn()
    run = found(data)
    curve = run.curve("reliability@7/equal_count")
    score = data["score"].to_numpy()
    for low, high, rows, mean in zip(curve.low, curve.high, curve.counts, curve.x, strict=True):
        inside = (score >= low) & (score <= high)
        assert inside.sum() == rows
        assert score[inside].mean() == pytest.approx(mean, rel=1e-12)
    assert curve.area == run.value("ece@7/equal_count")
    assert curve.area == pytest.approx(np.sum(curve.counts * abs(curve.y - curve.x)) / curve.rows, rel=1e-12)
    assert run.curve("reliability").area == run.value("ece")


def test_the_interval_of_a_share() -> None:
    """Wilson's, as published: 7 of 10."""
    data = pa.table({"label": [1] * 7 + [0] * 3, "score": [0.5] * 10})
    curve = found(data).curve("reliability")
    assert isinstance(curve, Reliability)
    assert (curve.ci_lower[0], curve.ci_upper[0]) == pytest.approx((0.396778, 0.892209), abs=1e-6)
    data = pa.table({"label": [1] * 10, "score": [0.5] * 10})
    curve = found(data).curve("reliability")
    assert (curve.ci_lower[0], curve.ci_upper[0]) == pytest.approx((0.722467, 1.0), abs=1e-6)


GROUPS = st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 1)), min_size=1, max_size=30)


@given(GROUPS, st.booleans(), st.sampled_from(["reliability@3", "reliability@3/equal_count", "reliability@100"]))
def test_the_truth_is_inside(rows: list[tuple[float, int]], near: bool, name: str) -> None:
    """Each bin that both have: its mean score and its share of positives are within the ends under approx."""
    score = [0.3 + s * 1e-7 for s, _ in rows] if near else [s for s, _ in rows]
    data = pa.table({"score": score, "label": pa.array([y for _, y in rows], pa.int8())})
    exact, approx = found(data).curve(name), found(data, approx=True).curve(name)
    if name.endswith("count"):  # bins are known by their place; those that exist may differ
        if exact.x.size != approx.x.size or (approx.doubt > 0).any():
            return
        pairs = [(i, i) for i in range(exact.x.size)]
    else:
        at = {low: i for i, low in enumerate(exact.low.tolist())}
        pairs = [(at[low], i) for i, low in enumerate(approx.low.tolist()) if low in at]
    for i, j in pairs:
        assert approx.x_lower[j] <= exact.x[i] <= approx.x_upper[j]
        assert approx.y_lower[j] <= exact.y[i] <= approx.y_upper[j]
        assert approx.x_lower[j] <= approx.x[j] <= approx.x_upper[j]
        assert approx.y_lower[j] <= approx.y[j] <= approx.y_upper[j]
        assert np.isnan(approx.ci_lower[j]) == (approx.doubt[j] > 0)
        assert abs(approx.counts[j] - exact.counts[i]) <= approx.doubt[j]


@pytest.mark.parametrize("weight", [None, "weight"])
def test_the_isotonic_fit_is_that_of_scikit_learn(weight: str | None) -> None:
    """At every score; between blocks both connect them by lines."""
    data = drawn()
    label, score, weights = (data[name].to_numpy().astype(float) for name in ("label", "score", "weight"))
    weights = weights if weight else np.ones(score.size)
    curve = found(data, weight=weight).curve("corp")
    fit = IsotonicRegression().fit(score[weights > 0], label[weights > 0], weights[weights > 0])
    places = np.linspace(score.min(), score.max(), 1001)
    np.testing.assert_allclose(np.interp(places, curve.x, curve.y), fit.predict(places), atol=1e-9)
    assert np.all(np.diff(curve.x) >= 0)
    assert np.all(np.diff(curve.y) >= 0)


def test_a_fit_of_many_blocks_is_thinned() -> None:
    """At most 10,000 points, both ends among them, close to the whole fit."""
    size = 30_000
    score = np.arange(1, size + 1) / (size + 1)
    copies = np.stack((np.zeros(size), np.ones(size)), axis=1).ravel()
    data = pa.table({"label": copies, "score": np.repeat(score, 2), "weight": np.where(copies, 2, 1) * 1.0})
    weight = np.where(copies == 1, np.repeat(score, 2), 1 - np.repeat(score, 2))
    curve = found(data.set_column(2, "weight", [weight]), weight="weight").curve("corp")
    assert curve.x.size <= 10_000
    assert (curve.x[0], curve.x[-1]) == (score[0], score[-1])
    np.testing.assert_allclose(np.interp(score, curve.x, curve.y), score, atol=1e-3)


def test_curves_that_are_not_defined_say_why() -> None:
    """Scores outside [0, 1], no rows, hidden order, no bins."""
    logits = evaluate(pa.table({"label": [0, 1], "score": [-1.0, 1.0]}), score="score")
    for name in ("reliability", "corp"):
        refuses(OptionError, rf"the {name} curve of 'score' is not defined: .*\[0, 1\]", logits.curve, name)
    empty = evaluate(
        pa.table({"label": [0, 1], "score": pa.array([None, None], pa.float32())}), score="score", nan="drop"
    )
    for name in ("reliability", "corp"):
        refuses(OptionError, "not defined: no rows", empty.curve, name)
    refuses(OptionError, "not defined: no rows", empty.distribution)
    refuses(OptionError, r"corp curve .* leave out approx \(--approx\)", found(drawn(), approx=True).curve, "corp")
    refuses(OptionError, "not a number of bins", logits.curve, "reliability@0")
    refuses(OptionError, "there is no curve 'reliability@x'", logits.curve, "reliability@x")
    for bins in (0, True, 2.5, 10**9):
        refuses(OptionError, "is not a number of bins", logits.distribution, bins=bins)


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("bins", [1, 7, 100])
def test_a_distribution_is_numpys_histogram(bins: int, weight: str | None) -> None:
    """Of each class, over the same edges; densities integrate to 1."""
    data = drawn()
    label, score, weights = (data[name].to_numpy() for name in ("label", "score", "weight"))
    weights = weights if weight else np.ones(score.size)
    run = found(data, weight=weight).distribution(bins=bins)
    for side, chosen in ((run.negatives, ~label), (run.positives, label)):
        np.testing.assert_allclose(side, np.histogram(score[chosen], run.edges, weights=weights[chosen])[0])
    for density in run.densities():
        assert np.sum(density * np.diff(run.edges)) == pytest.approx(1)
    assert (run.edges[0], run.edges[-1], run.edges.size) == (score.min(), score.max(), bins + 1)
    assert run.weighted == bool(weight)


def test_no_split_changes_a_curve() -> None:
    """Finalized in one shard or in many."""
    data = drawn()
    state = fold_arrays(data["label"].to_numpy().astype(np.uint8), data["score"].to_numpy())
    shards = state.keyed.intervals(500)
    assert len(shards) > 5
    for kind in (ScoreBins(0.0, 1.0, 20), ReliabilityBins(10), CorpFit()):
        one: Any = combine(state, [kind], [partials(state, shard, [kind]) for shard in state.shards()])[0]
        other: Any = combine(state, [kind], [partials(state, shard, [kind]) for shard in shards[::-1]])[0]
        if isinstance(one, Distribution):
            np.testing.assert_array_equal(one.negatives, other.negatives)
            np.testing.assert_array_equal(one.positives, other.positives)
        elif isinstance(one, dict):
            assert one == other
        else:
            np.testing.assert_array_equal(one.p, other.p)
            np.testing.assert_array_equal(one.low, other.low)


@pytest.mark.parametrize(("most", "power"), [(1, 1), (1, 0), (40, 1), (3, 2)])
def test_the_blocks_of_many_groups(most: int, power: int) -> None:
    """Rows one by one, no trend, many blocks, a curve."""
    random = np.random.default_rng(most + power)
    share = np.sort(random.random(5000))[::-1] ** power * 0.7
    size = random.integers(1, most, 5000, endpoint=True)
    pos = random.binomial(size, share)
    blocks: list[list[int]] = []
    for i in range(5000):
        blocks.append([int(size[i] - pos[i]), int(pos[i]), i])
        while len(blocks) > 1 and blocks[-1][1] * sum(blocks[-2][:2]) >= blocks[-2][1] * sum(blocks[-1][:2]):
            n, p, last = blocks.pop()
            blocks[-1] = [blocks[-1][0] + n, blocks[-1][1] + p, last]
    assert np.stack(pool_counts(size - pos, pos), axis=1).tolist() == blocks
