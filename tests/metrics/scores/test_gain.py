"""Gain curves, their areas and operating points: against definitions written out, reference values, and every split."""

import json
import math
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from truth import gain_truth, point_truth

from streameval.arrays.curves import agc_approximate, agc_score, gain_agc_approximate, gain_agc_score, gain_curve
from streameval.errors import LabelError, NullError, OptionError
from streameval.metrics.finalize import combine, compute, partials
from streameval.metrics.scores.gain import Agc, _candidates, kept_points, quotient
from streameval.metrics.scores.operating_points import parse_at
from streameval.metrics.scores.sums import limit
from streameval.states.protocol import Totals
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.parts import ScorePart, known

TRUNCATIONS = (1, 0.5, 0.1, 0.01, 2, 3, 10, 1000)
POINTS = ("fpr=0", "fpr=0.1", "fpr=0.5", "fpr=1", "recall=0.1", "recall=0.5", "recall=1", "k=1", "k=3", "k=1000")

groups_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any), min_size=1, max_size=12)


def points(groups):
    """Labels and scores of (negatives, positives) groups, best first."""
    label = [y for n, p in groups for y in [0] * n + [1] * p]
    score = [-i for i, (n, p) in enumerate(groups) for _ in range(n + p)]
    return np.array(label, np.uint8), np.array(score, np.float64)


def area(groups, truncate, *, ratio, weights=None):
    """The definition, of groups of (negatives, positives): kept by count, with the areas of their weights."""
    exact = [(Fraction(p), Fraction(n)) for n, p in weights or groups]
    return gain_truth(exact, list(map(sum, groups)), truncate, ratio=ratio)


def histogram_of(groups, cuts, *, weights=None):
    """Bins of consecutive groups, cut before each of `cuts`, and what stands for their state."""
    starts = sorted({0, *(c % len(groups) for c in cuts)})
    sizes = np.diff([*starts, len(groups)])
    total = Totals(
        *(sum(g[side] for g in groups) for side in (0, 1)),
        *(float(sum(g[side] for g in weights or groups)) for side in (0, 1)),
        weights is not None,
    )

    def sums(table, side, dtype):
        return np.add.reduceat(np.array([g[side] for g in table], dtype), starts)

    counts = [sums(groups, side, np.int64) for side in (0, 1)]
    measure = [sums(weights, side, float) for side in (0, 1)] if weights else counts
    none, rows = Totals(0, 0, 0.0, 0.0, total.weighted), sum(counts) if weights else None
    bins = ScorePart(*measure, none, total, known(-np.array(starts, float)), sizes > 1, rows)
    spec = SimpleNamespace(nan="error", weighted=weights is not None)
    return bins, SimpleNamespace(spec=spec, nan_rows=np.zeros(2, int), nan_weights=np.zeros(2), totals=lambda: total)


def value_of(metric, bins, state):
    """A metric of bins."""
    return metric.combine([metric.partial(bins)], state)


@given(groups_of, st.sampled_from(TRUNCATIONS), st.booleans(), st.randoms(use_true_random=False))
def test_weighted_areas_cut_by_points(groups, truncate, ratio, random):
    """Weights, zeros too, change the area and never where the curve is cut."""
    label, score = points(groups)
    weight = np.array([random.choice([0.0, 0.0, 0.5, 1.25, 3.0]) for _ in label])
    sums = [[Fraction(float(weight[(score == -i) & (label == y)].sum())) for y in (0, 1)] for i in range(len(groups))]
    truth = area(groups, truncate, ratio=ratio, weights=sums)
    found = compute(fold_arrays(label, score, weight), Agc(truncate, ratio))
    if truth is None:
        assert math.isnan(found.value)
        assert found.reason
    else:
        assert found.value == pytest.approx(float(truth), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize("small", [1e-20, 1e-53, 1e-90, 1e-120, 1e-140, 1e-160, 1e-300])
def test_small_weights_in_the_part_kept_keep_the_digits_of_its_area(small, ratio):
    """A product of three of them left float64 in silence; where a product of two does, the area is undefined."""
    rng, order = np.random.default_rng(5), np.arange(8)
    label = np.array([0, 1, 0, 1, 0, 0, 1, 0], np.uint8)
    for kept in (3, 5):
        weight = rng.uniform(0.5, 1, 8) * np.where(order < kept, small, 1)
        for other in (1.0, small**0.5):  # the other negatives
            weights = weight * np.where((order >= kept) & (label == 0), other, 1)
            sums = [tuple(Fraction(w) * (y == side) for side in (0, 1)) for w, y in zip(weights, label, strict=True)]
            truth = area([(1 - y, y) for y in label], kept, ratio=ratio, weights=sums)
            found = compute(fold_arrays(label, -order.astype(float), weights), Agc(kept, ratio))
            if small < 1e-145:
                assert math.isnan(found.value)
                assert found.reason == "no weight in the part kept, or too little for float64"
            else:
                assert found.value == pytest.approx(float(truth), rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_split_changes_a_result(weighted):
    """Merged from many pieces and finalized in many shards, unweighted results have the same bits."""
    rng = np.random.default_rng(3)
    label = (rng.random(60_000) < 0.2).astype(np.uint8)
    score = np.round(rng.normal(label, 1.0), 3)
    weight = rng.random(label.size) if weighted else None
    metrics = [Agc(t, ratio) for t in TRUNCATIONS for ratio in (False, True)] + [parse_at(at) for at in POINTS]
    whole = fold_arrays(label, score, weight)
    split = fold_arrays(label[:0], score[:0], None if weight is None else weight[:0])
    for piece in np.array_split(rng.permutation(label.size), 7):
        split = split.merge(fold_arrays(label[piece], score[piece], None if weight is None else weight[piece]))
    expected = combine(whole, metrics, [partials(whole, shard, metrics) for shard in whole.shards()])
    assert partials(whole, whole.shards()[0], []) == []  # a state that is read for its rows alone
    shards = [partials(split, shard, metrics) for shard in split.keyed.intervals(1000)]
    assert len(shards) > 20
    for a, b in zip(expected, combine(split, metrics, shards[::-1]), strict=True):
        assert b.threshold == a.threshold
        assert b.value == pytest.approx(a.value, rel=1e-12 if weighted else 0, abs=0)


@given(
    groups_of,
    st.lists(st.integers(0, 50), max_size=6),
    st.sampled_from(TRUNCATIONS),
    st.booleans(),
    st.sampled_from(POINTS),
)
def test_histogram_intervals_hold_areas_and_operating_points(groups, cuts, truncate, ratio, at):
    """Whatever the bins, the exact value lies in the interval, or both have one reason; bins of one score are exact."""
    truth = area(groups, truncate, ratio=ratio)
    bins, state = histogram_of(groups, cuts)
    found = value_of(Agc(truncate, ratio), bins, state)
    assert (truth is None) == math.isnan(found.value)
    alone, own = histogram_of(groups, range(len(groups)))
    if truth is not None:
        assert found.lower <= float(truth) <= found.upper
        assert found.lower <= found.value <= found.upper
        assert value_of(Agc(truncate, ratio), alone, own).value == float(truth)
    point = parse_at(at)
    exact, binned = compute(fold_arrays(*points(groups)), point), value_of(point, bins, state)
    if exact.reason:
        assert binned.reason == exact.reason
        return
    due = point_truth([(Fraction(p), Fraction(n)) for n, p in groups], list(map(sum, groups)), point.kind, point.at)
    assert exact.value == float(due)
    assert binned.lower <= float(due) <= binned.upper
    assert binned.lower <= binned.value <= binned.upper


@given(groups_of, st.lists(st.integers(0, 50), max_size=6), st.booleans(), st.randoms(use_true_random=False))
def test_weighted_histogram_interval(groups, cuts, ratio, random):
    """Weights: certain where nothing is cut, refused with a reason where something is."""
    weights = [tuple(c * random.choice([0.0, 0.3, 1.7]) for c in g) for g in groups]
    truth = area(groups, 1, ratio=ratio, weights=[tuple(map(Fraction, w)) for w in weights])
    bins, state = histogram_of(groups, cuts, weights=weights)
    found = value_of(Agc(1, ratio), bins, state)
    if truth is not None:
        assert found.lower - 1e-13 <= float(truth) <= found.upper + 1e-13
    cut = value_of(Agc(2), bins, state)
    assert cut.reason or sum(map(sum, groups)) <= 2


@given(*[st.integers(0, 300)] * 5, st.integers(1, 300), st.booleans())
def test_turning_points_find_the_extremes(above, n, p, more_n, more_p, need, ratio):
    """The few candidates of a cut bin are as extreme as all of its points."""
    T = above // 3
    N, P = above - T + n + more_n + 1, T + p + more_p + 1

    def f(c):
        gained = above * T + 2 * T * c + max(0, c - n) ** 2
        return quotient((gained, (above + c) ** 2 - gained, above + c), N, P, ratio=ratio)

    first, last = min(need, n + p), n + p
    if not last or not above + first:
        return
    first = max(first, 1)
    few, every = (
        [Fraction(*f(c)) for c in chosen]
        for chosen in (_candidates(f, first, last, (n, P - above)), range(first, last + 1))
    )
    assert (min(few), max(few)) == (min(every), max(every))


@pytest.mark.parametrize("at", [0.1 + 0.2, math.nextafter(0.3, 0), 1 / 3, 123456789.12345679, 5e-324])
def test_names_tell_numbers_apart(at):
    """A name has as many digits as its number needs: two thresholds with one name would have two values."""
    assert float(parse_at(f"threshold={at!r}").name.partition("=")[2]) == at


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_share_of_any_float_type_is_read_as_its_decimal(kind):
    """A float32 of 0.1 is above the float64 of 0.1, and would keep a point more of ten."""
    y_true, y_score = [0, 1, 1, 0, 1, 0, 0, 1, 0, 1], np.arange(10.0)
    assert agc_score(y_true, y_score, truncate=kind(0.2)) == agc_score(y_true, y_score, truncate=0.2)
    assert kept_points(kind(0.1), 10) == 1
    assert agc_approximate(y_true, y_score, truncate=kind(0.2)) == agc_approximate(y_true, y_score, truncate=0.2)


@pytest.mark.parametrize("truncate", [0, -1, 1.5, math.nan, math.inf])
def test_truncation_out_of_range_is_refused(truncate):
    """A share in (0, 1] or a whole number above 1, nothing else."""
    refuses(OptionError, "truncate=", Agc, truncate)


@pytest.mark.parametrize(
    "at", ["fpr=2", "fpr=nan", "recall=0", "recall=1.1", "k=0", "k=1.5", "k=inf", "speed=3", "fpr", "k="]
)
def test_operating_points_out_of_range_are_refused(at):
    """The message shows how it is written."""
    refuses(OptionError, "write fpr=X", parse_at, at)


def test_a_share_is_the_decimal_it_is_written_as():
    """0.07 of 100 points are 7, though the float is a little more."""
    assert [kept_points(q, 100) for q in (0.07, 0.29, 0.57, 0.999, 1e-9)] == [7, 29, 57, 100, 1]
    assert limit(0.07, 100, most=True) == 7


def golden():
    """Reference cases, recipes carried out, special numbers read."""
    cases = json.loads((Path(__file__).parents[2] / "data" / "agc.json").read_text())
    for case in cases:
        arrays = case["input"]
        if "recipe" in arrays:
            exec(arrays["recipe"], names := {})  # noqa: S102 - the reference data's own three lines of numpy
            assert names["y_true"].sum() == arrays["check"]["positives"]
            arrays = {name: names[name] for name in ("y_true", "y_score", "sample_weight")}
        yield case | {"input": arrays}


CASES = {case["id"]: case for case in golden()}


def reference(case, keys):
    """(key, expected) of a case, `intended` where the reference is wrong, without those that are unstable."""
    for key, value in case["expected"].items():
        version, rest = key.split("/", 1)
        if rest.startswith(keys) and key not in case.get("unstable", ()):
            yield version, rest, case.get("intended", {}).get(key, value)


def options(case, key):
    """Arguments that a key names."""
    parts = key.split("/")[1:]
    found = dict(part.split("=") for part in parts if "=" in part)
    arguments = {name: float(found[name]) if "." in found[name] else int(found[name]) for name in found}
    arguments["sample_weight"] = case["input"]["sample_weight"] if parts[-1] == "weighted" else None
    return case["input"]["y_true"], case["input"]["y_score"], arguments, parts


@pytest.mark.parametrize("case", CASES)
def test_agc_score_gives_the_reference_values(case):
    """The reference whose truncation is the one defined rules; beyond its errors, the intended values.

    Of a million rows, every third combination of options is compared.
    """
    for version, key, expected in list(reference(CASES[case], "agc_score"))[:: 3 if case == "recipe_1e6" else 1]:
        if version == "872e534":
            y_true, y_score, arguments, parts = options(CASES[case], key)
            value = agc_score(y_true, y_score, **arguments, normalized="normalized" in parts)
            assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-12, nan_ok=True), key


@pytest.mark.parametrize("case", CASES)
def test_gain_curve_gives_the_reference_points(case):
    """The later reference's points, with thresholds of the same length."""
    for version, key, expected in reference(CASES[case], "gain_curve"):
        if version == "HEAD":
            y_true, y_score, arguments, _ = options(CASES[case], key)
            top, tpr, thresholds = gain_curve(y_true, y_score, **arguments)
            assert top == pytest.approx(expected["top"], rel=1e-12), key
            assert tpr == pytest.approx([float(y) for y in expected["tpr"]], rel=1e-12, abs=1e-12, nan_ok=True), key
            assert thresholds.tolist() == expected["thresholds"][: top.size], key


@pytest.mark.parametrize("case", CASES)
def test_agc_approximate_gives_the_reference_values(case):
    """All points in quantile bins: the same number, or an error where the reference raises.

    Each case compares another third of the combinations of options, so that each is compared in three cases or more.
    """
    for _, key, expected in list(reference(CASES[case], "agc_approximate/sample=1/"))[
        sorted(CASES).index(case) % 3 :: 3
    ]:
        y_true, y_score, arguments, parts = options(CASES[case], key)
        arguments |= {"interpolation": parts[3], "normalized": "normalized" in parts}
        if isinstance(expected, dict):
            refuses(OptionError, "exceeds the number of points", agc_approximate, y_true, y_score, **arguments)
        else:
            value = agc_approximate(y_true, y_score, **arguments)
            assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-12, nan_ok=True), key


@pytest.mark.parametrize("number", range(3))
def test_sampled_agc_has_the_reference_mean(number):
    """Two hundred seeded draws without replacement are the reference's own, to the last draw.

    Every eighth combination of options, another one for each case: a draw depends on the case and its size alone.
    """
    case = ("prevalence_90", "prevalence_1", "recipe_1e4")[number]
    for _, key, expected in list(reference(CASES[case], "agc_approximate/sample=0."))[number::8]:
        y_true, y_score, arguments, _ = options(CASES[case], key)
        values = [agc_approximate(y_true, y_score, **arguments, random_state=seed) for seed in range(expected["runs"])]
        finite = [value for value in values if math.isfinite(value)]
        assert len(finite) == expected["finite_runs"]
        moments = np.mean(finite), np.std(finite, ddof=1)
        assert moments == pytest.approx((expected["mean"], expected["std"]), rel=1e-9, abs=1e-12), key


def test_degenerate_arrays_have_documented_values():
    """One class, equal scores, infinite scores, nothing positive at the top: a value, and no warning from numpy."""
    assert math.isnan(agc_score([1, 1], [0.1, 0.2]))
    assert agc_score([1, 1], [0.1, 0.2], normalized=False) == 1.0
    assert math.isnan(agc_score([0, 0], [0.1, 0.2]))
    assert np.isnan(gain_curve([0, 0], [0.1, 0.2])[1]).all()
    assert agc_score([0, 1, 0], [0.5] * 3) == agc_approximate([0, 1, 0], [0.5] * 3) == 0.0
    assert agc_score([0, 0, 1, 1], [4, 3, 2, 1], truncate=2) == pytest.approx(-1.0)
    assert agc_score([0, 0, 1, 1], [4, 3, 2, 1], truncate=2, normalized=False) == 0.0
    infinite = [math.inf, math.inf, 0.0, -math.inf]
    assert agc_approximate([1, 1, 0, 0], infinite) == agc_score([1, 1, 0, 0], infinite) == 1.0
    assert gain_curve([1, 0], [math.inf, 0.0])[2].tolist() == [math.inf, 0.0]


@pytest.mark.parametrize("label", [[0] * 9, [1] * 9, [0] * 8 + [1]])
@pytest.mark.parametrize("weight", [None, [0.1] * 9])
def test_approximation_of_few_points(label, weight):
    """More quantiles than points, one class, one drawn point: NaN or the exact value, and no warning."""
    score = np.arange(9)
    exact = agc_score(label, score, sample_weight=weight)
    found = agc_approximate(label, score, sample_weight=weight, quantiles=500)
    assert found == pytest.approx(exact, rel=1e-12, nan_ok=True)
    assert not agc_approximate(label, score, sample_weight=weight, sample=0.01, random_state=1) <= 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample": 0}, {"sample": 1.5}, {"quantiles": 0}, {"quantiles": 2.5}, {"truncate": 0}, {"truncate": 1.5},
        {"truncate": "0.1"}, {"truncate": None}, {"truncate": [1]}, {"truncate": 10**400}, {"sample": "a"},
        {"quantiles": math.nan}, {"quantiles": "a"}, {"truncate": 10},
        {"interpolation": "psychic"}, {"random_state": "luck", "sample": 0.5},
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(wrong):
    """Each names the option."""
    refuses(OptionError, next(iter(wrong)), agc_approximate, [0, 1, 1], [0.1, 0.2, 0.3], **wrong)


def test_random_states_of_both_kinds():
    """A seed, a RandomState and a Generator each draw."""
    arrays = [0, 1, 1, 0] * 50, np.arange(200)
    legacy = agc_approximate(*arrays, sample=0.5, random_state=3)
    assert gain_agc_approximate(*arrays, sample=0.5, random_state=np.random.RandomState(3)) == legacy
    assert abs(agc_approximate(*arrays, sample=0.5, random_state=np.random.default_rng(3))) < 1
    assert abs(agc_approximate(*arrays, sample=0.5)) < 1
    assert gain_agc_score(*arrays) == agc_score(*arrays)


@pytest.mark.parametrize("function", [agc_score, agc_approximate, gain_curve])
@pytest.mark.parametrize(
    ("labels", "error"),
    [
        ([0, None, 1, 1], NullError), ([0, math.nan, 1, 1], NullError), ([0, pd.NA, 1, 1], NullError),
        (["ham", "spam", "ham", "ham"], LabelError), ([0, 2, 2, 0], LabelError),
    ],
)  # fmt: skip
def test_labels_that_are_none_are_refused(function, labels, error):
    """As by every other function of labels and scores: a missing label is not a negative."""
    refuses(error, "y_true", function, labels, [0.1, 0.2, 0.3, 0.4])
