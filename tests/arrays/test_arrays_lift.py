"""The lift curve of arrays: golden values, one answer from every constructor, and clear refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from streameval.arrays.curves import RocCurve
from streameval.arrays.lift import LiftCurve, aul_score_from_clusters, aul_score_from_labels
from streameval.errors import DataError, LabelError, MissingInputError, NullError, OptionError

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "lift.json").read_text())
BY_ID = pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
THRESHOLDS = (0, 1, 2, 5)


def near(value: Any, expected: Any) -> None:
    """Assert equality to 1e-12; text is NaN or an infinity."""
    np.testing.assert_allclose(value, np.array(expected, dtype=np.float64), rtol=1e-12, atol=1e-15)


def labelled(case: dict[str, Any]) -> list[list[int]]:
    """Clusters of a golden case, each with the labels of its points."""
    return [[1] * positives + [0] * (size - positives) for size, positives in case["input"]["clusters"]]


@BY_ID
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_golden_area(case: dict[str, Any], threshold: int) -> None:
    """The area at every threshold, by either way of the reference, and every point of the curve."""
    sizes, positives = zip(*case["input"]["clusters"], strict=True)
    area, xs, ys = LiftCurve.from_counts(positives, sizes).aul_score(threshold, plot=True)
    near(area, case["expected"][f"aul_score/threshold={threshold}"])
    near(area, case["expected"][f"aul_score_plot/threshold={threshold}"])
    assert area == LiftCurve.from_counts(positives, sizes).aul_score(threshold)
    if (curve := case["expected"].get(f"curve/threshold={threshold}")) is not None:
        near(xs, curve["xs"])
        near(ys, curve["ys"])


@BY_ID
def test_golden_roc_by_size(case: dict[str, Any]) -> None:
    """Area, best point and points of the ROC curve with the cluster's size as the score."""
    curve, expected = RocCurve.from_clusters(labelled(case)), case["expected"] | case.get("intended", {})
    one_class = isinstance(expected["roc_auc"], dict)
    near(curve.auc_score(), "nan" if one_class else expected["roc_auc"])
    near(curve.max_informedness(), expected["max_informedness"])
    if one_class or "roc_curve" not in expected:
        return
    points = expected["roc_curve"]
    skip = int(points["thresholds"][0] > max(size for size, _ in case["input"]["clusters"]))
    assert curve.thresholds is not None
    for column, name in ((curve.fprs, "fpr"), (curve.tprs, "tpr"), (curve.thresholds, "thresholds")):
        near(column[1:], points[name][skip:])


CLUSTERS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=12)


@given(CLUSTERS, st.randoms(use_true_random=False))
def test_one_answer_from_every_constructor(clusters: list[list[int]], random: Any) -> None:
    """Clusters, labels in any order with ids of any kind, and counts give one number."""
    area = aul_score_from_clusters(clusters)
    points = [(label, i) for i, cluster in enumerate(clusters) for label in cluster]
    random.shuffle(points)
    labels, ids = (list(column) for column in zip(*points, strict=True))
    names: list[Any] = [f"c{i}" for i in ids]
    mixed: list[Any] = [i if i % 2 else f"c{i}" for i in ids]
    pairs: list[Any] = [(i, "x") for i in ids]
    for ids_given in (ids, np.array(ids), np.array(ids, dtype="f2"), names, np.array(names), mixed, pairs):
        assert aul_score_from_labels(labels, ids_given) == area
    counts = [sum(cluster) for cluster in clusters], [len(cluster) for cluster in clusters]
    assert LiftCurve.from_counts(*counts).aul_score() == area
    assert LiftCurve.from_counts(*np.array(counts, dtype=np.uint8)).aul_score() == area
    assert LiftCurve.from_counts(*np.array(counts, dtype=float)).aul_score() == pytest.approx(area, rel=1e-12)


def test_counts_beyond_64_bits() -> None:
    """Products of counts are exact however large."""
    huge = 10**12
    assert LiftCurve.from_counts([huge, 0], [huge, huge]).aul_score(threshold=huge) == 1.0 - 0.25


def test_refusals() -> None:
    """Bad input, or none, is refused by one line that names the argument and the remedy."""
    for make, nothing in (
        (LiftCurve.from_clusters, ([],)),
        (LiftCurve.from_clusters, ([[], []],)),
        (aul_score_from_labels, ([], [])),
        (LiftCurve.from_counts, ([], [])),
    ):
        refuses(MissingInputError, "is empty", make, *nothing)
    for counts, message in (
        (([1], [1, 2]), "counts_true has 1 point and counts_pred has 2"),
        (([-1], [1]), "counts_true has -1 at position 0"),
        (([1], [np.nan]), "counts_pred has nan at position 0"),
        (([1], ["a"]), "counts_pred has values that are not numbers"),
        (([[1]], [1]), "counts_true has shape"),
    ):
        refuses(DataError, message, LiftCurve.from_counts, *counts)
    refuses(DataError, "labels_true has 2 points and labels_pred has 3", aul_score_from_labels, [1, 0], [1, 2, 3])
    for ids in ([1, None], ["a", None], [1.0, float("nan")], np.array([1.0, np.nan]), [1, float("nan")]):
        refuses(NullError, "its own cluster", aul_score_from_labels, [1, 0], ids)
    refuses(DataError, "hashable", aul_score_from_labels, [1, 0], [{1}, {2}])
    refuses(LabelError, "give is_class_pos", aul_score_from_clusters, [["spam"]])
    for threshold in ("one", None, float("nan")):
        refuses(OptionError, "threshold=", LiftCurve.from_clusters([[1]]).aul_score, threshold)


@pytest.mark.parametrize(
    ("clusters", "equal"),
    [
        (["a", "a\0", "b", "a"], [0, 1, 2, 0]),
        ([b"a", b"a\0", b"b", b"a"], [0, 1, 2, 0]),
        ([0.0, -0.0, 1.0, 2.0], [0, 0, 1, 2]),
        ([2**63 + 1, 2**63 + 2, -1, 2**63 + 1], [0, 1, 2, 0]),
        ([np.int64(7), np.int64(8), np.int64(9), np.int64(7)], [0, 1, 2, 0]),
        (["\ud800", "\ud801", "b", "\ud800"], [0, 1, 2, 0]),
        (np.array([7, 8, 9, 7], ">i8"), [0, 1, 2, 0]),
        (np.array([0, 1, 2, 0], np.longdouble) * np.longdouble(2) ** -60 + 1, [0, 1, 2, 0]),
        (np.array([7, 8, 9, 7], "M8[ns]"), [0, 1, 2, 0]),
    ],
)
def test_clusters_are_compared_exactly(clusters: Any, equal: list[int]) -> None:
    """As the contingency table compares them, and not as what NumPy rounds or strips them to."""
    for label in ([1, 1, 0, 0], [1, 0, 1, 1]):
        assert aul_score_from_labels(label, clusters) == aul_score_from_labels(label, equal)
