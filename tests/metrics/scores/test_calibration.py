"""Calibration against its peers, and under a histogram: the exact value is inside the interval."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from streameval import evaluate
from streameval.errors import OptionError
from streameval.kernels.calibration import drift_counts, moments
from streameval.metrics.catalogue import CATALOGUE
from streameval.metrics.finalize import combine, compute, partials
from streameval.metrics.protocol import NO_WEIGHT
from streameval.metrics.scores import scoring_rules
from streameval.metrics.scores.best_thresholds import FbetaMax
from streameval.metrics.scores.recalibration import LogisticFit, Recalibration
from streameval.metrics.scores.scoring_rules import BrierScore, LogLoss
from streameval.states.scores.counts import fold_arrays

ROWS = 20_000
MANY = 1 << 17  # rows whose log loss comes from bins of the logit
FITS = ("calibration_slope", "calibration_intercept", "calibration_in_the_large")
NAMES = [entry.name for entry in CATALOGUE if entry.subject == "calibration" and entry.metric]
EXTRA = ["ece@7", "ece@7/equal_count", "partial_auc@0.1", "f1_max", "fbeta_max@0.5", "cost_min@fp=1,fn=10", "gini"]
POINTS = ["fpr=0.01", "tpr=0.9", "recall=0.9", "precision=0.7", "k=100", "share=0.01", "threshold=0.4321"]


def drawn(*, weighted: bool = False, rows: int = ROWS) -> pa.Table:
    """Scores that are too extreme, with ties."""
    random = np.random.default_rng(5)
    score = random.beta(0.5, 0.8, rows)
    score[::3] = np.round(score[::3], 2).clip(0.01, 0.99)
    label = (random.random(rows) < 0.1 + 0.7 * score).astype(np.int8)
    columns = {"label": label, "score": score}
    return pa.table(columns | {"weight": random.random(rows) * (random.random(rows) < 0.9)} if weighted else columns)


@pytest.mark.parametrize("weighted", [False, True])
def test_peers_agree(weighted: bool) -> None:
    """scikit-learn's Brier score, log loss, isotonic and logistic regression, and partial AUC."""
    data = drawn(weighted=weighted)
    label, score = data["label"].to_numpy(), data["score"].to_numpy()
    weight = data["weight"].to_numpy() if weighted else None
    names = [*NAMES, "partial_auc@0.1"]
    found = evaluate(data, score="score", weight="weight" if weighted else None, metrics=names)
    given: dict[str, Any] = {"sample_weight": weight}
    brier, value = brier_score_loss(label, score, **given), found.value
    assert math.isclose(value("brier_score"), brier, rel_tol=1e-12)
    assert math.isclose(value("log_loss"), log_loss(label, score, **given), rel_tol=1e-12)
    isotonic = brier_score_loss(label, IsotonicRegression().fit(score, label, **given).predict(score), **given)
    assert math.isclose(value("corp.mcb"), brier - isotonic, rel_tol=1e-9)
    assert math.isclose(value("corp.mcb") - value("corp.dsc") + value("corp.unc"), brier, rel_tol=1e-12)
    bias = np.average(score, weights=weight) - np.average(label, weights=weight)
    assert math.isclose(value("calibration_bias"), bias, rel_tol=1e-9)
    logit = np.log(score / (1 - score))[:, None]
    fit = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky").fit(logit, label, **given)
    assert math.isclose(value("calibration_slope"), fit.coef_[0, 0], rel_tol=1e-6)
    assert math.isclose(value("calibration_intercept"), fit.intercept_[0], rel_tol=1e-6)
    area = roc_auc_score(label, score, max_fpr=0.1, **given)
    assert math.isclose(value("partial_auc@0.1"), area, rel_tol=1e-12)


def test_calibration_in_the_large_balances_the_sums() -> None:
    """With slope 1 the expected positives are the positives."""
    data = drawn()
    score = data["score"].to_numpy()
    shift = evaluate(data, score="score", metrics=FITS[2]).value(FITS[2])
    share = 1 / (1 + np.exp(-shift - np.log(score / (1 - score))))
    assert share.sum() == pytest.approx(data["label"].to_numpy().sum(), rel=1e-10)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.5, 1.0, 3.0, 7.5, 20.0]), st.sampled_from([4, 40, 3000]))
def test_a_fit_to_the_table_is_that_to_the_groups(seed: int, slope: float, rows: int) -> None:
    """The same likelihood from bins of the logit as score by score, for gentle and steep slopes, extreme scores."""
    random = np.random.default_rng(seed)
    x = random.normal(random.uniform(-4, 4), random.choice([0.01, 0.5, 3.0, 9.0]), rows).clip(-36, 36)
    shown = (slope * x + random.normal()).clip(-700, 700)
    label = (random.random(rows) < 1 / (1 + np.exp(-shown))).astype(np.uint8)
    state = fold_arrays(label, 1 / (1 + np.exp(-x)))
    for name, joint in zip(FITS, (True, True, False), strict=True):
        table = Recalibration(name, joint, slope=name == FITS[0])
        one, other = (compute(state, fit) for fit in (table, replace(table, fit=LogisticFit(joint))))
        assert bool(one.reason) == bool(other.reason)
        if not one.reason:
            assert one.value == pytest.approx(other.value, rel=1e-7 if abs(one.value) > 100 else 1e-9, abs=1e-9)


@pytest.mark.parametrize(("most", "slope", "near"), [(20, 6135, True), (50, 10_001, True), (400, 12_270, False)])
def test_a_slope_that_is_too_steep_has_no_value_whatever_the_way(most: int, slope: float, near: bool) -> None:
    """Two scores near a half, right `most` times to 1; the fit to the table may lie on the limit's other side."""
    x = math.log(most) / slope
    state = fold_arrays(np.array([1] * most + [0] * (most + 1) + [1]), np.repeat(1 / (1 + np.exp([-x, x])), most + 1))
    metric = Recalibration(FITS[0], slope=True)
    for fit in (None, LogisticFit()):
        found = compute(state, replace(metric, fit=fit))
        assert found.reason if slope > 1e4 else found.value == pytest.approx(slope)
    [started] = combine(state, [metric], [partials(state, shard, [metric]) for shard in state.shards()])
    assert started.fit.near is near


@pytest.mark.parametrize("weighted", [False, True])
def test_the_exact_value_is_inside(weighted: bool) -> None:
    """Every metric under approx, on the library's own grid; a few points at the top may share a bin."""
    data, weight = drawn(weighted=weighted), "weight" if weighted else None
    asked: dict[str, Any] = {"score": "score", "weight": weight, "metrics": [*NAMES, *EXTRA, "agc*"], "at": POINTS}
    asked["truncate"] = (0.5, 0.1, 0.01, 2, 3, 10, 1000)
    exact, approx = evaluate(data, **asked), evaluate(data, approx=True, **asked)
    for one, other in zip(exact.results, approx.results, strict=True):
        if other.reason:
            assert one.metric in FITS[:2] or (weighted and "@" in one.metric), one
            continue
        slack = 1e-13 if weighted else 1e-15
        assert other.lower - slack <= one.value <= other.upper + slack, (one, other)
        assert other.lower <= other.value <= other.upper
        assert other.upper - other.lower < 0.01 or one.metric.partition("@")[2] in ("2", "3", "10")


GROUPS = st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 1)), min_size=1, max_size=30)


@given(GROUPS, st.booleans())
def test_any_scores_are_inside(rows: list[tuple[float, int]], near: bool) -> None:
    """Few rows, all in one bin where they are near one another."""
    score = [0.3 + s * 1e-7 for s, _ in rows] if near else [s for s, _ in rows]
    data = pa.table({"score": score, "label": pa.array([y for _, y in rows], pa.int8())})
    names = [name for name in NAMES if name not in FITS]
    asked: dict[str, Any] = {"score": "score", "metrics": [*names, *EXTRA], "at": POINTS}
    exact, approx = evaluate(data, **asked), evaluate(data, approx=True, **asked)
    for one, other in zip(exact.results, approx.results, strict=True):
        if one.reason or other.reason or math.isinf(one.value):
            continue
        assert other.lower - 1e-15 <= one.value <= other.upper + 1e-15, (one, other)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(1, 999), st.floats(0, 1), st.integers(0, 1)), min_size=2, max_size=30))
def test_the_shift_of_scores_is_inside(rows: list[tuple[int, float, int]]) -> None:
    """Many scores in few bins, each at any place of its bin; bins of one score give the fit itself."""
    for width in (1e-6, 0.0):
        data = pa.table({"score": [s / 1000 + place * width for s, place, _ in rows], "label": [y for *_, y in rows]})
        asked: dict[str, Any] = {"score": "score", "metrics": FITS}
        exact, approx = evaluate(data, **asked), evaluate(data, approx=True, **asked)
        for one, other in zip(exact.results, approx.results, strict=True):
            if width and one.metric in FITS[:2]:
                continue
            assert one.reason == other.reason
            if not one.reason:
                assert other.lower <= one.value <= other.upper, (one, other)
                assert other.upper - other.lower < 1e-2
                assert width or (other.exact and other.value == pytest.approx(one.value, abs=1e-9))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(-700, 36), st.integers(0, 1), st.integers(1, 5)), min_size=2, max_size=20))
def test_a_shift_exists_for_any_two_classes(rows: list[tuple[float, int, int]]) -> None:
    """However saturated the scores: the shifted scores then add up to the positives."""
    x, label, times = (np.array(column) for column in zip(*rows, strict=True))
    label = np.repeat(label, times).astype(np.uint8)
    score = 1 / (1 + np.exp(-np.repeat(x, times)))
    shift = compute(fold_arrays(label, score), Recalibration(FITS[2], joint=False)).value
    if 0 < label.sum() < label.size:
        ends = (expit(np.log(score) - np.log1p(-score) + shift + side * 1e-8).sum() for side in (-1, 1))
        assert next(ends) - 1e-9 <= label.sum() <= next(ends) + 1e-9
    else:
        assert math.isnan(shift)


@pytest.mark.parametrize(("rows", "dtype"), [(ROWS, "f8"), (MANY, "f8"), (MANY, "f4")])
def test_no_split_changes_a_bit(rows: int, dtype: str) -> None:
    """Merged from pieces and finalized in many shards, each metric by its own way for few and for many rows."""
    data = drawn(rows=rows)
    label, score = data["label"].to_numpy().astype(np.uint8), data["score"].to_numpy().astype(dtype)
    metrics = [entry.metric for entry in CATALOGUE if entry.name in NAMES and entry.name not in FITS]
    metrics.append(LogLoss(1e-2, "clipped"))
    whole, split = fold_arrays(label, score), fold_arrays(label[:0], score[:0])
    for piece in np.array_split(np.random.default_rng(1).permutation(label.size), 5):
        split = split.merge(fold_arrays(label[piece], score[piece]))
    shards = [partials(split, shard, metrics) for shard in split.keyed.intervals(rows // 20)]
    assert len(shards) > 5
    expected = [compute(whole, metric) for metric in metrics]
    assert [found.value for found in combine(split, metrics, shards[::-1])] == [one.value for one in expected]


@pytest.mark.parametrize(
    ("score", "label", "reasons"),
    [
        ([0.5, 1.5], [0, 1], dict.fromkeys(NAMES, "outside")),
        ([-0.5, 0.5], [0, 1], dict.fromkeys(NAMES, "outside")),
        ([0.5, 0.5], [0, 1], {"calibration_slope": "equal", "calibration_intercept": "equal"}),
        ([0.4, 0.5], [1, 1], dict.fromkeys(FITS, "one class")),
        ([0.4, 0.5], [0, 1], dict.fromkeys(FITS[:2], "separate")),
        ([0.0, 0.5], [0, 1], dict.fromkeys(FITS, "no logit")),
    ],
)
@pytest.mark.parametrize("approx", [False, True])
def test_what_has_no_value_says_why(
    score: list[float], label: list[int], reasons: dict[str, str], approx: bool
) -> None:
    """A null with its reason; the others have a number. So do bins of one score."""
    found = evaluate(pa.table({"score": score, "label": label}), score="score", metrics="calibration", approx=approx)
    for result in found.results:
        assert reasons.get(result.metric, "") in (result.reason or ""), result
        assert math.isnan(result.value) == (result.metric in reasons), result


@pytest.mark.parametrize("clip", [None, 1e-15, 0.02])
@pytest.mark.parametrize("spread", [0.01, 9.0, 200.0])
def test_log_loss_of_many_rows_is_that_of_each_score(spread: float, clip: float | None) -> None:
    """Relative to 1e-14 even where it is tiny; scores of 0 and 1, and those next to them, are not in bins."""
    random = np.random.default_rng(3)
    x = (spread * np.abs(random.normal(2, 1, MANY // 2)) + 0.1).clip(max=700)
    score = np.concatenate((1 / (1 + np.exp(x)), 1 / (1 + np.exp(-x))))
    score[:2] = 0.0, 1e-300
    label = np.repeat(np.array([0, 1], np.uint8), MANY // 2)
    label[3000:3003] = score[3000:3003] > 1e-12  # some of the wrong side
    low, high = (clip, 1 - clip) if clip else (0.0, 1.0)
    moved = score.clip(low, high)
    terms = -np.where(label, np.log(np.where(label, moved, 1)), np.log1p(-np.where(label, 0, moved)))
    found = compute(fold_arrays(label, score), LogLoss(clip))
    assert found.value == pytest.approx(math.fsum(terms) / label.size, rel=1e-14)


def test_log_loss_is_infinite_unless_clipped() -> None:
    """A score of 0 for a positive."""
    data = pa.table({"score": [0.0, 0.5], "label": [1, 0]})
    assert evaluate(data, score="score", metrics="log_loss").value("log_loss") == math.inf
    clipped = evaluate(data, score="score", metrics="log_loss", clip=1e-15).value("log_loss")
    assert clipped == pytest.approx(log_loss([1, 0], [1e-15, 0.5]), rel=1e-12)
    many = fold_arrays(np.ones(MANY, np.uint8), np.linspace(0, 1, MANY))
    assert compute(many, LogLoss()).value == math.inf > compute(many, LogLoss(1e-15)).value
    refuses(OptionError, "log_loss", evaluate, data, score="score", metrics="brier_score", clip=1e-15)
    refuses(OptionError, "clip=0", evaluate, data, score="score", metrics="log_loss", clip=0.7)


@pytest.mark.parametrize("name", ["ece@0", "ece@2.5", "partial_auc@2", "fbeta_max@0", "cost_min@fp=-1,fn=1", "lift@3"])
def test_a_value_out_of_range_is_refused(name: str) -> None:
    """Before anything is read."""
    refuses(OptionError, r"is not|costs are", evaluate, drawn(rows=10), score="score", metrics=name)
    refuses(OptionError, "above 0 and below 1e6", FbetaMax, 1e7)


@pytest.mark.parametrize("approx", [False, True])
def test_weights_that_are_all_zero_leave_every_metric_undefined(approx: bool) -> None:
    """With the reason, and without a warning of NumPy."""
    data = pa.table({"label": [True, False], "score": [0.5, 0.6], "weight": [0.0, 0.0]})
    found = evaluate(data, score="score", weight="weight", metrics=["calibration"], approx=approx)
    assert all(math.isnan(result.value) and result.reason == NO_WEIGHT for result in found.results)


@pytest.mark.parametrize("power", [0.3, 1.0, 5.0])
def test_metrics_of_many_rows_do_not_depend_on_the_way(power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bins of the logit, group by group, and by steps on the groups themselves."""
    random = np.random.default_rng(2)
    x = random.normal(0, 2, scoring_rules.MANY)
    score = (1 / (1 + np.exp(-x))).astype(np.float32).clip(1e-30, 1 - 1e-7)
    state = fold_arrays((random.random(x.size) < 1 / (1 + np.exp(-power * x))).astype(np.uint8), score)
    fits = [Recalibration("calibration_slope", slope=flag) for flag in (True, False)]
    metrics: list[Any] = [BrierScore(), LogLoss(), LogLoss(1e-3), *fits]
    found = [compute(state, metric).value for metric in metrics]
    by_steps = [compute(state, Recalibration("slope", slope=flag, fit=LogisticFit())).value for flag in (True, False)]
    monkeypatch.setattr(scoring_rules, "MANY", math.inf)
    assert found == pytest.approx([compute(state, metric).value for metric in metrics], rel=1e-13)
    assert found[3:] == pytest.approx(by_steps, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("most", [1, 2, 3, 100, 1 << 34])
def test_cumulative_sums_of_many_groups(most: int) -> None:
    """The extremes are those of all running sums, in integers of any size."""
    random = np.random.default_rng(most)
    for groups in (0, 1, 63, 64, 129, 1000):
        score = np.sort(random.beta(0.3, 0.3, groups))[::-1].copy()
        size = random.integers(1, most, groups, endpoint=True)
        for chance in (score, 1.0 - score, np.full(groups, 0.5), np.ones(groups), np.zeros(groups)):
            pos = random.binomial(size, chance)
            at, sums = 0, [0]
            for n, p, s in zip((size - pos).tolist(), pos.tolist(), score.tolist(), strict=True):
                at += (p << 62) - (n + p) * round(s * 2**62)
                sums.append(at)
            rows = drift_counts(size - pos, pos, score).tolist()
            found = [((high << 64) | low) - (high >> 63 << 128) for high, low in rows]
            assert found == [at, min(sums), max(sums)]


@pytest.mark.parametrize("most", [1, 1000, 1 << 22])
def test_moments_of_bins_are_rounded_to_even_and_added_up(most: int) -> None:
    """For any number of groups in a bin, also more rows than words are held for; as Python rounds them."""
    random = np.random.default_rng(most)
    for way, groups in itertools.product((1.0, -1.0), (1, 7, 500)):
        centre, scale = 0.2, 1024.0
        score = np.sort(centre * (1.0 + random.uniform(-3e-4, 3e-4, groups)))[::-1]
        score = score if way < 0 else 1.0 - score
        neg, pos = random.integers(0, most, (2, groups), endpoint=True)
        found = np.zeros(10, np.int64)
        moments(neg, pos, score, way, centre, scale, found)
        odds = centre / (1.0 - centre)
        t = ((1.0 - score if way > 0 else score) - centre) * (1.0 / centre)
        further = (odds**2 - 1.0) / 2 + t * ((1.0 + odds**3) / 3 + t * ((odds**4 - 1.0) / 4))
        d = -way * scale * t * (1.0 + odds + t * further)
        square = d * d
        words = [round(x) for x in (d * 2**40).tolist()]
        sums = [
            (measure * np.array([round(x) for x in (power * 2**30).tolist()], object)).sum()
            for measure, power in ((neg + pos, p) for p in (square, square * d, square * square, square * square * d))
        ]
        every, hits = ((measure.astype(object) * np.array(words, object)).sum() for measure in (neg + pos, pos))
        assert found[:2].tolist() == [neg.sum(), pos.sum()]
        assert [(int(found[i]) << 20) + int(found[i + 1]) for i in (2, 4)] == [every, hits]
        assert found[6:].tolist() == sums
