"""Common tests over the whole catalogue: each metric is its definition, whatever the order and the partitioning."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contingency_truth import clustering_truth
from hypothesis import given, settings
from hypothesis import strategies as st
from own_metric import Positives
from refusals import refuses
from truth import (
    agrees,
    calibration_truth,
    choice_truth,
    cost_truth,
    curve_truth,
    gain_truth,
    groups_auc,
    groups_of,
    lift_truth,
    partial_auc_truth,
    point_truth,
    size_auc_truth,
)

from streameval import evaluate
from streameval.errors import MissingInputError, OptionError
from streameval.evaluation.result import Evaluation
from streameval.metrics.catalogue import FAMILIES, entries

Row = tuple[float, int, float, int, int]  # score, label, weight, cluster, class

ROWS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]),
        st.integers(0, 1),
        st.sampled_from([0.25, 1.0, 3.0]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=25,
)
TRUNCATE, AT = (0.3, 4), ("fpr=0.25", "recall=0.6", "k=5")
CHOICES = {  # the metric, and what its definition is called
    "fpr@tpr=0.7": ("fpr@tpr", 0.7),
    "recall@precision=0.55": ("recall@precision", 0.55),
    "precision@recall=0.6": ("precision@recall", 0.6),
    "f1_max": ("fbeta", 1),
    "fbeta_max@2": ("fbeta", 2),
}
PLAIN = [entry.name for entry in entries() if entry.family == "score" and "@" not in entry.name]
MORE = (*PLAIN, *CHOICES, "partial_auc@0.3", "cost_min@fp=1,fn=2.5", "ece@4", "ece@4/equal_count")
MORE_POINTS = (
    *(f"{name}@share=0.3" for name in ("precision", "recall")),
    "lift@0.3",
    "recall@k=5",
    *(f"{name}@threshold=0.3" for name in ("precision", "recall", "fpr", "flagged")),
)
FITTED = {"calibration_slope", "calibration_intercept", "calibration_in_the_large"}  # see test_calibration.py
OPTIONS = {"truncate": TRUNCATE, "at": AT}
COLUMNS = {"score": "score", "cluster": "cluster", "classes": "class"}


def table(rows: Sequence[Row]) -> pa.Table:
    """The rows as columns."""
    kinds = {
        "score": pa.float64(),
        "label": pa.int8(),
        "weight": pa.float64(),
        "cluster": pa.int64(),
        "class": pa.int64(),
    }
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(kinds.items())})


def score_truths(rows: Sequence[Row], *, weighted: bool) -> dict[str, Fraction | None]:
    """Every metric of a score, from its definition."""
    plain = [(score, label, Fraction(weight) if weighted else Fraction(1)) for score, label, weight, *_ in rows]
    groups, counts = groups_of(plain), Counter(score for score, *_ in rows)
    points = [counts[score] for score in sorted(counts, reverse=True)]
    found = curve_truth(groups) | {"roc_auc": groups_auc(groups)}
    for cut in (1, *TRUNCATE):
        suffix = "" if cut == 1 else f"@{cut:g}"
        found[f"agc{suffix}"] = gain_truth(groups, points, cut, ratio=False)
        found[f"agc_ratio{suffix}"] = gain_truth(groups, points, cut, ratio=True)
    for text, name in zip(AT, ("tpr", "precision", "precision"), strict=True):
        kind, at = text.split("=")
        found[f"{name}@{text}"] = point_truth(groups, points, kind, float(at))
    found |= {name: choice_truth(groups, *asked) for name, asked in CHOICES.items()}
    auc = found["roc_auc"]
    found["gini"] = None if auc is None else 2 * auc - 1
    found["partial_auc@0.3"] = partial_auc_truth(groups, 0.3)
    found["cost_min@fp=1,fn=2.5"] = cost_truth(groups, Fraction(1), Fraction(5, 2))
    return found | vertex_truths(plain, points) | calibration_truth(plain, (4, 10))


def vertex_truths(rows: Sequence[tuple[float, int, Fraction]], points: Sequence[int]) -> dict[str, Fraction | None]:
    """What thresholds by a share, a number of points or a score give."""
    scores = sorted({score for score, *_ in rows}, reverse=True)
    P, N = (sum((w for _, y, w in rows if y == label), Fraction(0)) for label in (1, 0))
    found: dict[str, Fraction | None] = {}
    for text, due in (("share=0.3", math.ceil(Fraction(3, 10) * len(rows))), ("k=5", min(5, len(rows)))):
        last = next(i for i in range(len(points)) if sum(points[: i + 1]) >= due)
        T, F = (sum((w for s, y, w in rows if y == label and s >= scores[last]), Fraction(0)) for label in (1, 0))
        found[f"recall@{text}"] = T / P if P else None
        if text != "k=5":
            found[f"precision@{text}"] = T / (T + F)
            found["lift@0.3"] = T * (P + N) / ((T + F) * P) if P else None
    T, F = (sum((w for s, y, w in rows if y == label and s >= 0.3), Fraction(0)) for label in (1, 0))
    at = "threshold=0.3"
    found[f"precision@{at}"] = T / (T + F) if T + F else None
    found[f"recall@{at}"], found[f"fpr@{at}"] = T / P if P else None, F / N if N and P else None
    found[f"flagged@{at}"] = (T + F) / (P + N)
    return found


def cluster_truths(rows: Sequence[Row]) -> dict[str, Fraction | None]:
    """Every metric of a cluster column, from its definition."""
    clusters: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for _, label, _, cluster, _ in rows:
        clusters[cluster][0] += 1
        clusters[cluster][1] += label
    pairs = [(size, positives) for size, positives in clusters.values()]
    return {"aul": lift_truth(pairs, 1), "roc_auc_by_size": size_auc_truth(pairs)}


def values(found: Evaluation) -> dict[str, float]:
    """Values by metric."""
    return {result.metric: result.value for result in found.results}


def spelled(name: str) -> set[str]:
    """Names of the tests' options that a row of the catalogue stands for."""
    known = set(score_truths([(0.5, 1, 1.0, 0, 0), (0.1, 0, 1.0, 0, 0)], weighted=False)) | set(cluster_truths([]))
    known |= set(clustering_truth({(0, 0): 2, (1, 1): 1}))
    stem, at, option = name.partition("@")
    kind = option.partition("=")[0]
    alike = {k for k in known if at and k.startswith(f"{stem}@") and kind in ("Q", k.split("@")[1].split("=")[0])}
    exact = {k for k in known if any(entry.named(k) for entry in entries() if entry.name == name)}
    return alike | ({name} & known) | exact


SAMPLED = {"agc_approx", "agc_approx@Q"}  # estimates: tests/evaluation/test_sampled.py holds their bounds and errors
SKETCHED = {"quantile@X"}  # estimates as well: tests/states/scores/test_quantiles.py holds their errors


DATA = Path(__file__).parents[1] / "data"
KEYS = {
    kind: {key.split("/")[0] for case in json.loads((DATA / f"{kind}.json").read_text()) for key in case["expected"]}
    for kind in ("contingency", "confusion2x2")
}
REFERENCE = KEYS["contingency"] | {f"pairwise.{name}" for name in (*KEYS["confusion2x2"], "TP", "FP", "TN", "FN")}


def measure_of(name: str) -> str:
    """The reference's name of a metric that is one of several values, or under a null model."""
    return re.sub(r"\.\d$|_m(1|2r|2c|3)$", "", name)


def test_every_metric_of_the_catalogue_has_a_definition_here() -> None:
    """A row without a truth, a range or a family is not done."""
    for entry in entries():
        known = entry.name in SAMPLED | SKETCHED | FITTED or spelled(entry.name) or measure_of(entry.name) in REFERENCE
        assert known, entry.name
        assert entry.family in FAMILIES, entry.name
        assert entry.low < entry.high, entry.name
        assert entry.better in ("higher", "lower", None), entry.name
        assert entry.meaning.endswith("."), entry.name
        assert len(re.findall(r"\((19|20)\d\d\),", entry.source)) <= 1, f"a source of {entry.name} is one paper"
        assert entry.source, entry.name


@given(ROWS, st.booleans())
def test_metrics_are_their_definitions(rows: list[Row], weighted: bool) -> None:
    """Every metric and every option, to the last bit where it is a quotient of integers, else to 1e-12.

    An infinite log loss has no fraction. Clusters against classes are compared with 50 digits.
    """
    cells = dict(Counter((row[4], row[3]) for row in rows))
    clusters, classes = cluster_truths(rows), clustering_truth(cells)
    names = ["default", *MORE, *MORE_POINTS, *clusters, *classes]
    weight = "weight" if weighted else None
    evaluation = evaluate(table(rows), weight=weight, metrics=names, **COLUMNS, **OPTIONS)
    assert all(result.reason for result in evaluation.results if math.isnan(result.value))
    found = values(evaluation)
    truths = score_truths(rows, weighted=weighted)
    assert {entry.name for entry in entries() if entry.family == "cluster"} == clusters.keys() <= found.keys()
    assert classes.keys() <= found.keys() - FITTED <= truths.keys() | clusters.keys() | classes.keys()
    for name, value in found.items():
        if name in classes:
            truth = classes[name]
            if truth is not None and not (len({j for _, j in cells}) == len({i for i, _ in cells}) == 1):
                want = float(mpmath.mpf(truth.numerator) / truth.denominator if isinstance(truth, Fraction) else truth)
                assert math.isclose(value, want, rel_tol=1e-11, abs_tol=1e-12), (name, value, want)
        elif name in clusters:
            assert agrees(value, clusters[name], exactly=True), name
        elif name not in FITTED and not math.isinf(value):
            assert agrees(value, truths[name]), (name, value, truths[name])
    assert not math.isinf(found["log_loss"]) or truths["log_loss"] is None


@settings(max_examples=25)
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_no_metric_depends_on_order_partitioning_or_the_unit_of_weights(
    tmp_path_factory: Any, rows: list[Row], random: Any, files: int
) -> None:
    """Rows shuffled and dealt to files give the same bits; weights of two instead of one, the same rates."""
    whole = values(evaluate(table(rows), **COLUMNS, **OPTIONS))
    shuffled = random.sample(rows, len(rows))
    folder: Path = tmp_path_factory.mktemp("dealt")
    for number in range(files):
        pq.write_table(table(shuffled[number::files]), folder / f"{number}.parquet")
    assert repr(values(evaluate(folder, **COLUMNS, **OPTIONS))) == repr(whole)
    one, two = (table([(s, y, w * k, c, g) for s, y, w, c, g in rows]) for k in (1, 2))
    first, second = (values(evaluate(data, score="score", weight="weight", **OPTIONS)) for data in (one, two))
    for name, value in first.items():
        assert math.isclose(value, second[name], rel_tol=1e-12) or (math.isnan(value) and math.isnan(second[name])), (
            name
        )


@pytest.mark.parametrize("approx", [False, True])
def test_all_ties_are_chance(approx: bool) -> None:
    """One score for all: the order is undecided, exactly."""
    found = evaluate(table([(0.5, i % 2, 1.0, 0, 0) for i in range(8)]), score="score", approx=approx)
    assert values(found) == {
        "roc_auc": 0.5,
        "average_precision": 0.5,
        "pr_auc": 0.75,
        "max_informedness": 0.0,
        "agc": 0.0,
        "agc_ratio": pytest.approx(2 / 3),
    }


def test_no_rows_are_an_error_that_says_so() -> None:
    """There is nothing to evaluate."""
    refuses(MissingInputError, "no rows", evaluate, table([]), **COLUMNS)


@pytest.mark.parametrize("policy", ["drop", "half"])
def test_nan_scores_change_what_the_policy_says(policy: str) -> None:
    """Dropped rows leave every metric; halves leave a value or a reason."""
    rows = [(0.1, 0, 1.0, 0, 0), (0.9, 1, 1.0, 0, 0), (0.5, 0, 1.0, 1, 1), (0.4, 1, 1.0, 1, 1)]
    more = [*rows, (math.nan, 1, 1.0, 0, 0), (math.nan, 0, 1.0, 0, 0)]
    found = evaluate(table(more), score="score", nan=policy, **OPTIONS)
    if policy == "drop":
        assert values(found) == values(evaluate(table(rows), score="score", **OPTIONS))
    assert all(result.reason for result in found.results if math.isnan(result.value))


def test_clusters_without_rows_have_no_value() -> None:
    """Where every id is null, or no row has a label; an area of 0 is that of clusters without positives."""
    nobody = pa.table({"label": [0, 1], "cluster": pa.nulls(2, pa.int64())})
    unknown = pa.table({"label": pa.nulls(2, pa.int8()), "cluster": [1, 1], "class": [1, 2]})
    for data, options in ((nobody, {"nulls": "drop"}), (unknown, {"unlabelled": "drop", "classes": "class"})):
        found = evaluate(data, cluster="cluster", metrics=["aul", "roc_auc_by_size"], **options)
        assert [(result.value, result.reason) for result in found.results] == [
            (pytest.approx(math.nan, nan_ok=True), "no rows")
        ] * 2
    assert evaluate(pa.table({"label": [0, 0], "cluster": [1, 1]}), cluster="cluster").value("aul") == 0


def test_names_globs_families_and_subjects_pick_metrics() -> None:
    """A family or a subject stands for all of its metrics."""
    data = table([(0.1 * i, i % 2, 1.0, i // 2, i % 3) for i in range(6)])
    assert values(evaluate(data, score="score", metrics="gain")).keys() == {"agc", "agc_ratio"}
    assert values(evaluate(data, score="score", cluster="cluster", metrics="cluster")).keys() == {
        "aul",
        "roc_auc_by_size",
    }
    for name in ("precision", "precision@10"):
        with pytest.raises(OptionError, match=r"did you mean precision@recall=X or precision@k=N or .* There are"):
            evaluate(data, score="score", metrics=name)
    refuses(OptionError, "no metric is named 'gian'", evaluate, data, score="score", metrics="gian")
    for name, meant in (("corp", r"corp\.\*"), ("calibraton", "calibration")):
        with pytest.raises(OptionError, match=f"no metric is named '{name}'; did you mean '{meant}'"):
            evaluate(data, score="score", metrics=name)
    for name in ("recall@precision=1.2", "lift@0", "fpr@threshold=nan"):
        refuses(OptionError, f"^{name} is not an operating point", evaluate, data, score="score", metrics=name)
    with pytest.raises(OptionError, match=r"^at=precision=1\.2 is not an operating point"):
        evaluate(data, score="score", at="precision=1.2")
    with pytest.raises(OptionError, match="'roc_auc,agc'; name each by a --metric, or give a list"):
        evaluate(data, score="score", metrics="roc_auc,agc")
    with pytest.raises(OptionError, match=r"groups are ranking, gain, thresholds, calibration$"):
        evaluate(data, score="score", metrics="all")


def test_a_truncation_in_a_name_needs_no_option() -> None:
    """``agc@0.5`` is the area that `truncate` adds, of all rows and of a sample."""
    data = table([(0.1 * i, i % 2, 1.0, 0, 0) for i in range(9)])
    sampled = {"approx_agc": True, "quantiles": 3}
    truth = evaluate(data, score="score", truncate=(0.5, 3), **sampled)
    names = ("agc@0.5", "agc_ratio@3", "agc_approx@0.5")
    assert values(evaluate(data, score="score", metrics=names, **sampled)) == {n: truth.value(n) for n in names}
    assert values(evaluate(data, score="score", metrics="agc@0.50")) == {"agc@0.5": truth.value("agc@0.5")}
    refuses(OptionError, "'agc@little'; did you mean agc@Q", evaluate, data, score="score", metrics="agc@little")
    with pytest.raises(OptionError, match=r"'agc_approx@0\.5' needs a sampled score column"):
        evaluate(data, score="score", metrics="agc_approx@0.5")


@pytest.mark.parametrize("family", ["score", "cluster", "classes"])
def test_a_metric_of_ones_own_is_computed(family: str) -> None:
    """In every family, together with names of the catalogue, and alone without the defaults."""
    data = table([(0.1 * i, i % 2, 1.0, i // 2, i % 3) for i in range(6)])
    found = evaluate(data, **COLUMNS, metrics=[Positives(family), "roc_auc"])
    assert values(found) == {"positives": 3.0, "roc_auc": values(evaluate(data, score="score"))["roc_auc"]}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (Positives(name="roc_auc"), "a name of the catalogue"),
        (Positives(name="agc@0.5"), "a name of the catalogue"),
        (Positives(name="rand_index"), "a name of the catalogue"),
        (Positives(family="row"), "families are score, cluster"),
        (Positives(family="cluster"), "needs a cluster column"),
        (object(), "a metric object"),
    ],
)
def test_a_metric_that_cannot_be_taken_is_refused(metric: Any, message: str) -> None:
    """By name, before anything is read."""
    refuses(OptionError, message, evaluate, table([]), score="score", metrics=[metric])
