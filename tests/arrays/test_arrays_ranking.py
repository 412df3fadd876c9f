"""Ranking metrics of arrays: golden values, scikit-learn's values for any weights and ties, and clear refusals."""

import json
import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from sklearn import metrics as peer

from streameval.arrays.curves import RocCurve, auc, precision_recall_curve, roc_curve
from streameval.arrays.inputs import num2bool
from streameval.arrays.ranking import auc_by_sampling, average_precision_score, dist_auc, roc_auc_score
from streameval.errors import DataError, LabelError, MissingInputError, NullError, OptionError, SchemaError, WeightError

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "ranking.json").read_text())
LABELS, SCORES = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
ULP = 1e-12


def number(value: Any) -> Any:
    """A golden value with its NaN and infinities as floats."""
    if isinstance(value, list):
        return [number(item) for item in value]
    return float(value) if isinstance(value, str) else value


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    """Labels, scores and weights of a golden case, as keyword arguments."""
    return {name: number(value) for name, value in case["input"].items() if name != "kind"}


def wanted(case: dict[str, Any], key: str) -> Any:
    """The right value of a key: `exact` before `intended` before `expected`."""
    for source in ("exact", "intended", "expected"):
        if key in case.get(source, {}):
            return case[source][key]
    return None


def near(value: Any, expected: Any) -> None:
    """Assert equality to 1e-12, NaN equal to NaN."""
    np.testing.assert_allclose(value, number(expected), rtol=ULP, atol=1e-15)


def of_curve(function: Callable[[RocCurve], Any]) -> Callable[..., Any]:
    """A function of labels and scores by way of `RocCurve`."""
    return lambda y_true, y_score: function(RocCurve.from_labels(y_true, y_score))


def pr_area(**given: Any) -> float:
    """Area under the precision-recall curve by trapezoids."""
    precision, recall, _ = precision_recall_curve(**given)
    return auc(recall, precision)


def largest_gap(**given: Any) -> float:
    """Largest vertical distance of the ROC curve from the diagonal."""
    fpr, tpr, _ = roc_curve(**given, drop_intermediate=False)
    return float(np.max(tpr - fpr))


GOLDEN: dict[str, Callable[..., Any]] = {
    "escherba/auc_score": of_curve(RocCurve.auc_score),
    "escherba/max_informedness": of_curve(RocCurve.max_informedness),
    "escherba/optimal_cutoff_fpr_tpr": of_curve(lambda curve: curve.optimal_cutoff(lambda fpr, tpr: tpr - fpr)[0]),
    "escherba/dist_auc": dist_auc,
    "sklearn/roc_auc_score": roc_auc_score,
    "sklearn/average_precision_score": average_precision_score,
    "sklearn/pr_curve_trapezoid_area": pr_area,
    "sklearn/max_tpr_minus_fpr": largest_gap,
    "sklearn/roc_curve/all_points": partial(roc_curve, drop_intermediate=False),
    "sklearn/roc_curve/drop_intermediate": roc_curve,
    "sklearn/precision_recall_curve": precision_recall_curve,
    **{
        f"sklearn/{function.__name__}/average={average or 'none'}": partial(function, average=average)
        for function in (roc_auc_score, average_precision_score)
        for average in ("micro", "macro", "weighted", "samples", None)
    },
}
ROC, PR = ("fpr", "tpr", "thresholds"), ("precision", "recall", "thresholds")


@pytest.mark.parametrize(
    ("case", "key"),
    [
        pytest.param(case, key, id=f"{case['id']}-{key}")
        for case in CASES
        for key in GOLDEN
        if wanted(case, key) is not None
    ],
)
def test_golden_values(case: dict[str, Any], key: str) -> None:
    """Every number and point of the reference systems, and an error where they raise; infinities are values here."""
    given_case, expected, curve = arguments(case), wanted(case, key), "curve" in key and "area" not in key
    if case["id"] == "empty" or (key.endswith("dist_auc") and isinstance(expected, dict)):
        refuses(MissingInputError, "is empty", GOLDEN[key], **given_case)
        return
    found = GOLDEN[key](**given_case)
    if case["id"] != "inf_score":
        columns = [expected[name] for name in (PR if "precision" in key else ROC)] if curve else [expected]
        for column, values in zip(found if curve else [found], columns, strict=True):
            near(column, values)
    elif curve:
        assert np.inf in [*found[2][-2:], *found[2][:2]]
    else:
        near(found, GOLDEN[key](**given_case | {"y_score": [0.1, 9.0, 0.3, 0.2]}))


@pytest.mark.parametrize(
    "case", [c for c in CASES if "fpr" in (wanted(c, "escherba/roc_curve") or ())], ids=lambda case: case["id"]
)
def test_golden_roc_points(case: dict[str, Any]) -> None:
    """The reference's own ROC points, but for its start: here every curve starts at the origin."""
    given_case, expected = arguments(case), {k: number(v) for k, v in wanted(case, "escherba/roc_curve").items()}
    curve = RocCurve.from_labels(given_case["y_true"], given_case["y_score"])
    skip = int(expected["thresholds"][0] > max(given_case["y_score"]))
    assert curve.thresholds is not None
    for column, name in ((curve.fprs, "fpr"), (curve.tprs, "tpr"), (curve.thresholds, "thresholds")):
        near(column[1:], expected[name][skip:])


@st.composite
def rankings(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Labels, scores with many ties, and no weights or weights that add without rounding, some zero."""
    size = draw(st.integers(2, 30))
    labels = draw(st.lists(st.sampled_from([0, 1]), min_size=size, max_size=size))
    values = st.sampled_from([-1.5, 0.0, -0.0, 0.1, 0.2, 0.3, 1e300, 5e-324]) | st.floats(-1, 1)
    scores = draw(st.lists(values, min_size=size, max_size=size))
    quarters = st.lists(st.integers(0, 12), min_size=size, max_size=size).filter(any)
    weights = draw(st.none() | quarters.map(lambda counts: np.array(counts) / 4))
    return np.array(labels), np.array(scores), weights


def quietly(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """The peer's value without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*given, **options)


@given(rankings(), st.sampled_from([1e-9, 0.1, 0.25, 1 / 3, 0.5, 0.999, 1, 1.0]))
def test_agrees_with_the_peer(ranking: tuple[np.ndarray, np.ndarray, np.ndarray | None], max_fpr: float) -> None:
    """Numbers, standardised areas up to a rate and every point of every curve: with weights, ties and one class."""
    y, s, w = ranking
    near(average_precision_score(y, s, sample_weight=w), quietly(peer.average_precision_score, y, s, sample_weight=w))
    for drop in (False, True):
        ours = (
            *roc_curve(y, s, sample_weight=w, drop_intermediate=drop),
            *precision_recall_curve(y, s, sample_weight=w, drop_intermediate=drop),
        )
        theirs = (
            *quietly(peer.roc_curve, y, s, sample_weight=w, pos_label=1, drop_intermediate=drop),
            *quietly(peer.precision_recall_curve, y, s, sample_weight=w, pos_label=1, drop_intermediate=drop),
        )
        for mine, other in zip(ours, theirs, strict=True):
            near(mine, other)
    counted = np.ones(len(y)) if w is None else w
    both = counted[y == 0].any() and counted[y == 1].any()
    near(roc_auc_score(y, s, w), peer.roc_auc_score(y, s, sample_weight=w) if both else math.nan)
    want = peer.roc_auc_score(y, s, sample_weight=w, max_fpr=max_fpr) if both else math.nan
    np.testing.assert_allclose(roc_auc_score(y, s, w, max_fpr=max_fpr), want, rtol=1e-9, atol=1e-12)


@given(rankings(), st.integers(1, 4), st.sampled_from(["micro", "macro", "weighted", "samples", None]))
def test_matrices_agree_with_the_peer(
    ranking: tuple[np.ndarray, np.ndarray, np.ndarray | None], columns: int, average: str | None
) -> None:
    """Averages over columns, rows and cells are scikit-learn's."""
    y, s, w = ranking
    rows = len(y) // columns
    if rows < 2 or columns < 2:
        return
    y, s = (array[: rows * columns].reshape(rows, columns) for array in (y, s))
    w = None if w is None or not w[:rows].any() else w[:rows]
    expected = quietly(peer.average_precision_score, y, s, average=average, sample_weight=w)
    near(average_precision_score(y, s, average, sample_weight=w), expected)
    area = quietly(peer.roc_auc_score, y, s, average=average, sample_weight=w)
    near(roc_auc_score(y, s, w, average), area)


def test_sampling_hits_the_area() -> None:
    """Estimates lie within four standard errors, with weights too, and repeat by seed."""
    random = np.random.default_rng(7)
    y, w = random.integers(0, 2, 400), random.exponential(size=400)
    s = np.round(y + random.normal(size=400), 1)
    for weight in (None, w):
        estimate, error = auc_by_sampling(y, s, 40_000, sample_weight=weight, random_state=3)
        assert abs(estimate - roc_auc_score(y, s, weight)) < 4 * error < 0.01
        assert (estimate, error) == auc_by_sampling(y, s, 40_000, weight, np.random.default_rng(3))
    assert abs(roc_auc_score(y, s) - roc_auc_score(y, s, w)) > 0.01


@pytest.mark.parametrize(
    ("labels", "pos_label"),
    [([-1, -1, 1, 1], None), ([False, False, True, True], None), ([0, 0, 2, 2], None), ([3, 7, 5, 5], 5)],
)
def test_label_values(labels: Any, pos_label: Any) -> None:
    """Numbers above zero are positive, or whatever is named."""
    assert roc_auc_score(labels, SCORES, pos_label=pos_label) == 0.75


def test_one_bit_equal_to_a_run() -> None:
    """The area of the curve object is the score's, not the trapezoid's rounding of it."""
    random = np.random.default_rng(0)
    y, s = random.integers(0, 2, 999), random.random(999)
    assert RocCurve.from_labels(y, s).auc_score() == roc_auc_score(y, s)
    assert RocCurve.from_labels(y > 0, s, bool).auc_score() == RocCurve.from_scores(s[y == 0], s[y == 1]).auc_score()


def test_given_rates() -> None:
    """A curve of given points has their area and their best point."""
    curve = RocCurve([0, 0.2, 1], [0, 0.7, 1], thresholds=[9, 5, 1], pos_label="spam", sample_weight=[1])
    assert curve.auc_score() == pytest.approx(0.75)
    assert curve.max_informedness() == pytest.approx(0.5)
    point, value = curve.optimal_cutoff(lambda fpr, tpr: tpr / fpr)
    assert point == (0.2, 0.7)
    assert value == pytest.approx(3.5)
    assert (curve.pos_label, curve.sample_weight) == ("spam", [1])


def test_undefined_curves() -> None:
    """One class: NaN everywhere, and no warning."""
    curve = RocCurve.from_labels([1, 1], [0.2, 0.4])
    assert np.isnan(curve.fprs).all()
    assert np.isnan([curve.auc_score(), curve.max_informedness()]).all()
    point, value = curve.optimal_cutoff(lambda fpr, tpr: tpr - fpr)
    assert np.isnan([*point, value]).all()
    assert np.isnan(RocCurve(curve.fprs, curve.tprs).max_informedness())
    assert np.isnan(RocCurve.from_scores([1.0], [np.nan]).auc_score())


def test_num2bool() -> None:
    """Above zero, for numbers and arrays."""
    assert [num2bool(value) for value in (True, 0.5, 0, -1)] == [True, True, False, False]
    assert num2bool(np.array([-1, 2])).tolist() == [False, True]


REFUSALS: list[tuple[dict[str, Any], type[DataError], str]] = [
    ({"y_true": [0, 1, 1]}, DataError, "y_true has 3 points and y_score has 4"),
    ({"sample_weight": [1, 2]}, DataError, "y_true has 4 points and sample_weight has 2"),
    ({"y_true": [], "y_score": []}, MissingInputError, "y_true is empty"),
    ({"y_score": np.ones((4, 2))}, DataError, r"y_score has shape \(4, 2\); .* y_score\[:, 1\]"),
    ({"y_score": 0.5}, DataError, "y_score"),
    ({"y_score": [[1], [2, 3], [4], [5]]}, DataError, "y_score"),
    ({"y_score": ["a", "b", "c", "d"]}, SchemaError, "y_score has values that are not numbers"),
    ({"y_score": [1j, 2, 3, 4]}, SchemaError, "y_score has values that are not numbers"),
    ({"y_score": [object(), 2, 3, 4]}, SchemaError, "y_score has values that are not numbers"),
    ({"y_score": [0.1, np.nan, 0.2, 0.3]}, NullError, "y_score has a NaN or null at position 1"),
    ({"y_score": [0.1, None, 0.2, 0.3]}, NullError, "y_score has a NaN or null at position 1"),
    ({"y_score": pd.Series([1, None, 2, 3], dtype="Int64")}, NullError, "y_score has a NaN or null at position 1"),
    ({"y_score": [2**53 + 1, 2.0**53, 2, 3]}, SchemaError, "y_score: numbers that differ are equal as float64"),
    ({"y_score": [2**63 + 1, 2**63, -2, 3]}, SchemaError, "y_score: numbers that differ are equal as float64"),
    ({"y_score": [Decimal(2**60 + i) for i in range(4)]}, SchemaError, "y_score: numbers that differ are equal"),
    (
        {"y_score": 1 + np.arange(4) * np.longdouble(2) ** -60},
        SchemaError,
        "y_score: numbers that differ are equal as float64",
    ),
    ({"y_score": [10**30, 1, 2, 3]}, SchemaError, "y_score has integers of more than 64 bits; convert them to floats"),
    ({"y_true": [0, 1, np.nan, 1]}, NullError, "y_true has a NaN or null at position 2"),
    ({"y_true": [0, 1, None, 1]}, NullError, "y_true has a null"),
    ({"y_true": pd.Series([0, 1, None, 1], dtype="Int64")}, NullError, "y_true has a NaN or null at position 2"),
    (
        {"y_true": [0, 1, 2, 1]},
        LabelError,
        r"more than two labels \(0, 1, 2, …\); name the positive one with pos_label",
    ),
    ({"y_true": [1, 2, 2, 1]}, LabelError, "labels 1 and 2; name the positive one with pos_label"),
    ({"y_true": ["a", "b", "a", "b"]}, LabelError, "not numbers .* pos_label"),
    ({"y_true": pd.Series(list("abab"), dtype="category")}, LabelError, r"not numbers \('a', …\); name .* pos_label"),
    ({"y_true": np.ma.array([0, 1, 1, 1], mask=[0, 0, 1, 0])}, NullError, "y_true has a null"),
    ({"y_score": np.ma.array([1, 2, 3, 4], mask=[0, 0, 1, 0])}, NullError, "y_score has a NaN or null at position 2"),
    ({"sample_weight": np.ma.array([1.0] * 4, mask=[0, 0, 1, 0])}, WeightError, "sample_weight has nan at position 2"),
    ({"sample_weight": [1, -1, 1, 1]}, WeightError, "sample_weight has -1.0 at position 1"),
    ({"sample_weight": [1, 1, np.nan, 1]}, WeightError, "sample_weight has nan at position 2"),
    ({"sample_weight": [1, 1, np.inf, 1]}, WeightError, "sample_weight has inf at position 2"),
    ({"sample_weight": [0, 0, 0, 0]}, WeightError, "sample_weight is zero for every point"),
    ({"sample_weight": ["a"] * 4}, SchemaError, "sample_weight has values that are not numbers"),
]


def test_integers_among_objects_are_not_rounded() -> None:
    """Two above 2**53 that float64 cannot tell apart are no tie."""
    large = [2**60 + 1, 2**60, 2**60 + 3, 2**60 + 2]
    for given_scores in (np.array(large, object), pd.Series(large, dtype="Int64")):
        assert roc_auc_score([0, 0, 1, 1], given_scores) == 1.0
        assert roc_auc_score([1, 0, 1, 1], given_scores) == 1.0
    assert roc_auc_score([0, 0, 1, 1], [2**60, 0.5, 2.0**61, 2**60]) == 0.875


@pytest.mark.parametrize("count", [2**53 + 1, Decimal(2**60)])
def test_two_samples_keep_what_tells_them_apart(count: Any) -> None:
    """Numbers that float64 makes equal are refused there too."""
    for function in (dist_auc, RocCurve.from_scores):
        with pytest.raises(SchemaError, match=r"(scores1|scores_pos): numbers that differ"):
            function([0.5], [count, count - 1, None if isinstance(count, Decimal) else 0.5])


@pytest.mark.parametrize(("wrong", "error", "message"), REFUSALS)
def test_refusals(wrong: dict[str, Any], error: type[DataError], message: str) -> None:
    """Every function refuses bad input with one line that names the argument and the remedy."""
    given: dict[str, Any] = {"y_true": LABELS, "y_score": SCORES, "pos_label": None} | wrong
    for function in (roc_auc_score, average_precision_score, roc_curve, precision_recall_curve):
        refuses(error, message, function, **given)
    refuses(error, message, auc_by_sampling, n=10, **given)


def test_refused_options() -> None:
    """Options out of their range, a positive label that does not occur, matrices of two shapes."""
    refuses(OptionError, "average='mean' is not one of", roc_auc_score, LABELS, SCORES, average="mean")
    for max_fpr in (0, -0.1, 1.5, math.nan, "half"):
        with pytest.raises(OptionError, match=r"max_fpr=.* is not a false positive rate in \(0, 1\]"):
            roc_auc_score(LABELS, SCORES, max_fpr=max_fpr)
    for n in (0, -1, 1.5, True, "ten"):
        refuses(OptionError, "whole number of at least 1", auc_by_sampling, LABELS, SCORES, n)
    refuses(OptionError, "random_state=-1 is not a seed", auc_by_sampling, LABELS, SCORES, 5, random_state=-1)
    for labels in ([0, 2, 0, 2], ["a", "b", "a", "b"], ["a", "a", "a", "a"]):
        refuses(LabelError, "has no label 1", average_precision_score, labels, SCORES)
    refuses(DataError, "y_true has shape", roc_auc_score, [[0, 1], [1, 0]], [[0.5, 0.2, 0.1], [0.1, 0.2, 0.3]])
    refuses(NullError, r"position \(1, 0\)", roc_auc_score, [[0, 1], [1, 0]], [[0.5, 0.2], [np.nan, 0.2]])


def test_refused_curves() -> None:
    """Areas of curves that turn back or have one point; labels no predicate is given for; clusters that are none."""
    for x, y, message in (
        ([0, 1, 0.5], [0, 1, 1], "rises and falls"),
        ([0], [1], "at least two"),
        ([0, 1], [1], "x has 2 points and y has 1"),
        ([0, np.inf], [0, 1], "x has an infinite coordinate"),
        (["a", "b"], [0, 1], "x has values that are not numbers"),
    ):
        refuses(DataError, message, auc, x, y)
    refuses(LabelError, "give is_class_pos", RocCurve.from_labels, ["a", "b"], [1, 2])
    refuses(DataError, "collection of collections", RocCurve.from_clusters, [1, 2])
    refuses(MissingInputError, "clusters is empty", RocCurve.from_clusters, [[], []])
    refuses(DataError, "fprs has 2 points and tprs has 1", RocCurve, [0, 1], [1])


def test_area_of_a_falling_curve() -> None:
    """Both directions of x give the area, and below the axis it is negative."""
    assert auc([1, 0.5, 0], [1, 1, 0]) == auc([0, 0.5, 1], [0, 1, 1]) == 0.75
    assert auc([0, 1], [-1, -1]) == auc([1, 0], [-1, -1]) == -1
    assert np.isnan(auc([0, 1], [np.nan, 1]))


@pytest.mark.parametrize("names", [np.arange(4), np.array(list("dbca")), np.array(["b", "a", "dd", "c"], object)])
@pytest.mark.parametrize("average", ["macro", "weighted", "micro", None])
def test_several_classes_are_those_of_scikit_learn(names: Any, average: str | None) -> None:
    """Each class against the rest, with weights, and every pair of classes."""
    rng = np.random.default_rng(5)
    label, weight = names[rng.integers(0, 4, 200)], rng.random(200)
    score = rng.random((200, 4)).round(2) + 0.01
    score /= score.sum(axis=1, keepdims=True)
    options = {"average": average, "sample_weight": weight}
    for ours, theirs, more in (
        (roc_auc_score, peer.roc_auc_score, {"multi_class": "ovr"}),
        (average_precision_score, peer.average_precision_score, {}),
    ):
        np.testing.assert_allclose(ours(label, score, **options, **more), theirs(label, score, **options, **more))
    if average in ("macro", "weighted"):
        pairs = {"average": average, "multi_class": "ovo"}
        assert roc_auc_score(label, score, **pairs) == pytest.approx(peer.roc_auc_score(label, score, **pairs))


def test_several_classes_say_what_is_missing() -> None:
    """How to compare them, and which class a column is."""
    score = [[0.2, 0.3, 0.5]] * 4
    refuses(OptionError, "choose multi_class='ovr'", roc_auc_score, [0, 1, 2, 0], score)
    with pytest.raises(LabelError, match="name the classes of the columns, in their order, in labels"):
        roc_auc_score([0, 1, 1, 0], score, multi_class="ovr")
    assert np.isnan(roc_auc_score([0, 1, 1, 0], score, multi_class="ovr", average=None, labels=[0, 1, 2])[2])
