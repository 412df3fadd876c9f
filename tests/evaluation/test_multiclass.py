"""Several classes, one against the rest: values, averages, intervals and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as peer

from streameval import evaluate
from streameval.errors import OptionError

CLASSES = ("ham", "scam", "spam")


def rows(count: int = 400, **columns: Any) -> pa.Table:
    """Messages of three classes, each with a probability."""
    rng = np.random.default_rng(3)
    label = np.array(CLASSES)[rng.integers(0, 3, count)]
    score = rng.random((count, 3)).round(2) + 0.4 * (label[:, None] == CLASSES)
    score /= score.sum(axis=1, keepdims=True)
    scores = {f"p_{name}": score[:, i] for i, name in enumerate(CLASSES)}
    units = {"unit": rng.integers(0, 80, count), "country": np.array(["DE", "FR"])[rng.integers(0, 2, count)]}
    return pa.table({"category": label, **scores, **units, **columns})


@pytest.mark.parametrize(("approx", "weighted"), [(False, False), (True, False), (False, True)])
def test_averages_are_those_of_scikit_learn(approx: bool, weighted: bool) -> None:
    """Of all rows and of a slice; with a histogram, between the bounds. A column of a class of no row is left out."""
    rng = np.random.default_rng(5)
    data = rows(weight=rng.random(400), p_mode=rng.random(400))
    weight = data["weight"].to_numpy() if weighted else np.ones(400)
    weights = {"weight": "weight"} if weighted else {}
    found = evaluate(data, label="category", score="p_{class}", by="country", approx=approx, **weights)
    averages = [one for one in found.results if one.of in ("macro", "weighted", "micro")]
    assert {(one.groups, one.groups_left_out) for one in averages} == {(3, 1)}
    german = np.array(data["country"].to_pylist()) == "DE"
    label, score = data["category"].to_numpy(), np.stack([data[f"p_{name}"].to_numpy() for name in CLASSES], axis=1)
    theirs = {"roc_auc": peer.roc_auc_score, "average_precision": peer.average_precision_score}
    for metric, function in theirs.items():
        more = {"multi_class": "ovr"} if metric == "roc_auc" else {}
        for chosen, of_slice in ((german | ~german, None), (german, {"country": "DE"})):
            for average in ("macro", "weighted", "micro"):
                expected = function(label[chosen], score[chosen], average=average, sample_weight=weight[chosen], **more)
                low, high = found.interval(metric, slice=of_slice, label_class=average)
                assert low - 1e-12 <= expected <= high + 1e-12
            each = function(label[chosen], score[chosen], average=None, sample_weight=weight[chosen], **more)
            for name, value in zip(CLASSES, each, strict=True):
                low, high = found.interval(metric, f"p_{name}", of_slice, name)
                assert low - 1e-12 <= value <= high + 1e-12


def test_a_class_is_its_rows_against_the_rest() -> None:
    """To the bit, with all metrics, intervals and weights, under a mapping, a pattern and a list."""
    data = rows(weight=np.random.default_rng(1).random(400))
    options: dict[str, Any] = {"label": "category", "weight": "weight", "unit": "unit", "by": "country"}
    options |= {"at": "fpr=0.1", "metrics": ["default", "calibration"]}
    mapped = evaluate(data, score={name: f"p_{name}" for name in CLASSES}, **options)
    areas = [one for one in mapped.to_dict()["results"] if one["metric"] == "roc_auc"]
    for score, classes in (("p_{class}", None), ([f"p_{name}" for name in CLASSES], CLASSES)):
        same = evaluate(data, score=score, classes_of_label=classes, **options | {"at": (), "metrics": "roc_auc"})
        assert same.to_dict()["results"] == areas
    for name in CLASSES:
        alone = evaluate(data, score=f"p_{name}", pos_label=name, **options)
        own = [one.to_dict() for one in mapped.results if one.label_class == name]
        assert [one | {"label_class": name} for one in alone.to_dict()["results"]] == own
    macro = [one for one in mapped.results if one.label_class == "macro" and one.metric == "roc_auc"]
    assert all(one.ci_lower is not None and one.ci_lower < one.value < one.ci_upper for one in macro)  # type: ignore[operator]


def test_a_row_of_two_classes_is_one_unit() -> None:
    """The scores of both classes are one score, so that averages have its standard error, with and without a unit."""
    rng, count = np.random.default_rng(0), 3000
    label = rng.integers(0, 2, count)
    score = (0.4 + 0.2 * label + rng.normal(0, 0.2, count)).clip(0.01, 0.99)
    data = pa.table({"y": np.array(["a", "b"])[label], "p_a": 1 - score, "p_b": score, "row": np.arange(count)})
    for unit in (None, "row"):
        found = evaluate(data, label="y", score="p_{class}", metrics="roc_auc", ci=0.95, unit=unit)
        errors = {one.of: one.stderr for one in found.results}
        assert [errors[of] for of in ("micro", "macro", "weighted")] == pytest.approx([errors["p_b"]] * 3, rel=0.2)


def test_averages_leave_out_classes_that_do_not_occur(tmp_path: Path) -> None:
    """Their number is given; classes may be numbers, and rows of other classes are negatives of all."""
    data = rows(200, category=[7, 8, 9, None] * 50, p_7=[0.5] * 200)
    pq.write_table(data, tmp_path / "a.parquet")
    options: dict[str, Any] = {"label": "category", "unlabelled": "drop", "metrics": "roc_auc"}
    found = evaluate(tmp_path / "a.parquet", score={7: "p_ham", 8: "p_scam", 5: "p_spam"}, **options)
    assert found.rows == 150
    assert found.positives is None
    values = [found.value("roc_auc", label_class=name) for name in ("7", "8")]
    assert found.value("roc_auc", label_class="macro") == pytest.approx(np.mean(values))
    [macro] = [one for one in found.results if one.label_class == "macro"]
    assert (macro.groups, macro.groups_left_out) == (2, 1)
    [absent] = [one for one in found.results if one.label_class == "5"]
    assert absent.reason
    assert "macro" in found.to_html()
    assert "roc_auc/macro" in found.scalars()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score": "q_{class}"}, "no column 'q_…'; the data have category, p_ham"),
        ({"score": "p_{class}", "classes_of_label": "ham,spma"}, "no column 'p_spma'; there are columns for ham"),
        ({"score": ["p_{class}", "p_ham"]}, "leave out the others"),
        ({"score": ["p_ham", "p_spam"], "classes_of_label": "ham"}, "give one column a class"),
        ({"score": "p_{class}", "baseline": "p_ham"}, "several classes take no baseline; leave out baseline"),
        ({"score": {"ham": "p_ham"}, "pos_label": "ham"}, "take no pos_label"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], words: str) -> None:
    """Before anything is read."""
    with pytest.raises(OptionError, match=words.replace("(", r"\(")):
        evaluate(rows(), label="category", **options)


def test_another_class_names_those_there_are() -> None:
    """Of a look-up."""
    found = evaluate(rows(), label="category", score="p_{class}", classes_of_label="ham,spam")
    with pytest.raises(OptionError, match="label_class='scam' was not evaluated; there are ham, spam"):
        found.value("roc_auc", label_class="scam")
