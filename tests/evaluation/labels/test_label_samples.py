"""Estimates from sampled labels: values, standard errors, refusals, and what every output says."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from streameval import evaluate
from streameval.errors import LabelError, OptionError, WeightError
from streameval.typing import Array

METRICS = ["roc_auc", "average_precision", "agc", "brier_score", "ece", "calibration_slope"]
AT = ["threshold=0.3", "threshold=0.7"]
RANKS = ["share=0.1", "k=12"]


def rows(n: int, seed: int, decimals: int = 2, dtype: Any = np.float64) -> dict[str, Array]:
    """Scores with ties, labels that depend on them, units of several rows, and strata that cross scores."""
    rng = np.random.default_rng(seed)
    score = rng.random(n).round(decimals).astype(dtype)
    label = (rng.random(n) < score).astype(np.int8)
    label[:2] = 0, 1
    unit = rng.integers(0, max(2, n // 5), n)
    return {"label": label, "s": score, "unit": unit, "stratum": rng.integers(0, 3, n), "p": np.ones(n)}


def table(columns: dict[str, Array], labelled: Array) -> pa.Table:
    """The rows with the labels of some."""
    return pa.table({**columns, "label": pa.array(columns["label"], mask=~labelled)})


DESIGNS: tuple[dict[str, str], ...] = (
    {"sampled_by": "uniform"},
    {"sampled_by": "strata=stratum"},
    {"sampled_by": "size", "unit": "unit"},
    {"label_probability": "p"},
    {"label_probability": "p", "sampled_by": "strata=stratum"},
)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(20, 300),
    st.integers(0, 10**6),
    st.integers(0, 4),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(DESIGNS),
)
def test_labels_of_all_rows_give_the_value_without_an_error(
    n: int, seed: int, decimals: int, dtype: Any, design: dict[str, str]
) -> None:
    """A census is no sample, whatever the design."""
    columns = rows(n, seed, decimals, dtype)
    options: dict[str, Any] = {"score": "s", "metrics": METRICS, "at": AT + RANKS, "truncate": [0.2]}
    exact = evaluate(table(columns, np.ones(n, bool)), **options)
    sampled = evaluate(table(columns, np.ones(n, bool)), **options, **design)
    for one, other in zip(exact.results, sampled.results, strict=True):
        assert other.reason == one.reason or one.metric == other.metric
        if one.value == one.value:
            assert math.isclose(one.value, other.value, rel_tol=1e-9 if "slope" in one.metric else 1e-12, abs_tol=1e-14)
            assert other.stderr in (0, None)
            assert other.rows == n
            if "flagged" in one.metric:  # counted of all rows
                assert (other.exact, other.ci_lower, other.ci_upper) == (True, one.value, one.value)
                continue
            assert not other.exact
            assert other.lower != other.lower
            assert other.labelled == n


def test_a_census_is_called_one_in_every_output() -> None:
    """Not an estimate: terminal, JSON, page and the text format of Prometheus; likewise with a class for every row."""
    columns = rows(300, 2)
    given: dict[str, Any] = {"score": "s", "metrics": "roc_auc", "at": "threshold=0.3"}
    found = evaluate(table(columns, np.ones(300, bool)), **given, sampled_by="uniform")
    for text in (str(found), re.sub(r"\s+", " ", found.to_html())):
        assert "All 300 rows are labelled: a census, not an estimate." in text
        assert not re.search(r"Estimated from|\(estimate\)|estimates? of a sample|estimated \d", text)
    assert {one["design"] for one in found.to_dict()["results"] if not one["exact"]} == {"census"}
    assert 'streameval_roc_auc{of="s",design="census"}' in found.exports()["prom"]()
    classes = evaluate(table(columns, np.ones(300, bool)), cluster="stratum", classes="unit", classes_sampled="size")
    assert "All 300 rows have a class: a census, not an estimate." in str(classes)


def test_a_maximum_over_sampled_labels_has_no_interval() -> None:
    """They choose it, so it is too high: by 0.9 standard deviations from 20 positives, the CORP discrimination by 1."""
    sample = table(rows(2000, 4), np.random.default_rng(1).random(2000) < 0.3)
    metrics = ["max_informedness", "ks", "cost_min@fp=1,fn=3", "f1_max", "corp.dsc"]
    for one in evaluate(sample, score="s", metrics=metrics, sampled_by="uniform").results:
        assert one.ci_lower is None
        assert one.value == one.value
        assert ("isotonic fit" if one.metric == "corp.dsc" else "threshold depends on the labels") in str(one.ci_reason)


def test_a_value_that_rounding_takes_off_its_end_has_no_interval() -> None:
    """A recall of 1 − 1e-16 is 1."""
    columns = rows(3000, 5, 6)
    columns["label"] = (columns["s"] > 0.6).astype(np.int8)
    for seed in range(20, 25):
        rng = np.random.default_rng(seed)
        columns["p"] = np.where(columns["s"] > 0.8, 0.3, 0.07)
        sample = table(columns, rng.random(3000) < columns["p"])
        found = evaluate(sample, score="s", metrics="recall@threshold=0.4", label_probability="p").results[0]
        assert found.value == pytest.approx(1.0, abs=1e-12)
        assert found.ci_reason == "the value 1 is at the end of its range"


def test_a_precision_of_rows_that_all_have_labels_is_certain() -> None:
    """It is the value of all labels; what depends on other strata as well has an error."""
    rng = np.random.default_rng(0)
    score = rng.random(20_000)
    positive, low = rng.random(score.size) < score / 10, score < 0.99
    label = pa.array(positive.astype(np.int8), mask=low & (rng.random(score.size) < 0.95))
    table = pa.table({"s": score, "low": low.astype(np.int8), "label": label})
    found = evaluate(table, score="s", sampled_by="strata=low", at="threshold=0.99", metrics="roc_auc").results
    by_name = {one.metric.partition("@")[0]: one for one in found}
    precision, recall = by_name["precision"], by_name["recall"]
    assert precision.value == precision.ci_lower == precision.ci_upper == positive[~low].mean()
    assert (precision.stderr, precision.ci_reason) == (0.0, None)
    assert recall.stderr > 0.0


@pytest.mark.parametrize("design", DESIGNS[:2])
def test_counts_of_all_rows_are_exact_and_labels_are_weighted_by_stratum(design: dict[str, str]) -> None:
    """Precision is TP over the counted rows beyond the threshold, by an independent computation."""
    n, columns = 4000, rows(4000, 1)
    labelled = np.random.default_rng(2).random(n) < 0.1
    sample = evaluate(table(columns, labelled), score="s", metrics="roc_auc", at=AT, **design)
    for at in (0.3, 0.7):
        strata = columns["stratum"] if "strata" in design["sampled_by"] else np.zeros(n, int)
        y, beyond, true = columns["label"], columns["s"] >= at, 0.0
        cuts = [columns["s"] >= 0.7, (columns["s"] >= 0.3) & (columns["s"] < 0.7), columns["s"] < 0.3]
        if "strata" in design["sampled_by"]:
            for h in range(3):
                for cut in cuts:
                    cell = cut & (strata == h)
                    if (cell & beyond).any():
                        true += cell.sum() * y[cell & labelled].mean()
            assert sample.value(f"precision@threshold={at}") == pytest.approx(true / beyond.sum(), rel=1e-12)
        assert sample.value(f"flagged@threshold={at}") == pytest.approx(beyond.mean(), rel=1e-12)
    points = sample.operating_points()
    assert points["flagged"].to_pylist() == [int((columns["s"] >= at).sum()) for at in (0.3, 0.7)]


@pytest.mark.parametrize("design", DESIGNS[:2])
@pytest.mark.parametrize(("rank", "points"), [("share=0.1", 400), ("k=1205", 1205)])
def test_the_score_at_a_rank_is_a_threshold(design: dict[str, str], rank: str, points: int) -> None:
    """Scores of all rows are counted: values and intervals are those of the threshold, with ties."""
    columns = rows(4000, 1)
    sample = table(columns, np.random.default_rng(2).random(4000) < 0.1)
    at = float(np.sort(columns["s"])[-points])
    options: dict[str, Any] = {"score": "s", **design}
    ranked = evaluate(sample, metrics=f"precision@{rank}", **options).results[0]
    fixed = evaluate(sample, metrics=f"precision@threshold={at}", **options).results[0]
    assert (ranked.metric, ranked.threshold) == (f"precision@{rank}", at)
    for field in ("value", "stderr", "ci_lower", "ci_upper"):
        assert getattr(ranked, field) == getattr(fixed, field) is not None


def test_the_standard_error_is_at_least_that_of_a_stratified_sample() -> None:
    """The prevalence has a closed form; strata here ascend in score, so shares stay as they are."""
    rng = np.random.default_rng(3)
    stratum, total = np.repeat([0, 1, 2], 2000), 6000
    score = stratum / 3 + rng.random(total) / 3
    label = (rng.random(total) < np.array([0.05, 0.3, 0.8])[stratum]).astype(np.int8)
    labelled = np.zeros(total, bool)
    for h, n in enumerate((100, 150, 200)):
        labelled[rng.choice(np.flatnonzero(stratum == h), n, replace=False)] = True
    columns = {"label": label, "s": score, "stratum": stratum}
    sample = evaluate(table(columns, labelled), score="s", metrics="roc_auc", sampled_by="strata=stratum")
    variance, value = 0.0, 0.0
    for h, n in enumerate((100, 150, 200)):
        p = label[labelled & (stratum == h)].mean()
        value += p / 3
        variance += p * (1 - p) / (n - 1) * (1 - n / 2000) / 9
    [prevalence] = sample.counts
    assert prevalence.value == pytest.approx(value, rel=1e-12)
    assert math.sqrt(variance) * (1 - 1e-6) <= float(prevalence.stderr or 0) < 1.5 * math.sqrt(variance)
    assert [(one.rows, one.labelled) for one in sample.label_strata] == [(2000, 100), (2000, 150), (2000, 200)]


def test_values_do_not_depend_on_how_rows_are_read(tmp_path: Path) -> None:
    """Weights are applied once, at the end, so values are equal to the bit."""
    columns, n = rows(20_000, 4), 20_000
    sample = table(columns, np.random.default_rng(5).random(n) < 0.05)
    for name, size in (("one", n), ("many", 700)):
        pq.write_table(sample, tmp_path / f"{name}.parquet", row_group_size=size)
    for design in DESIGNS[:2]:
        found = [
            [r.value for r in evaluate(data, score="s", metrics=METRICS, at=AT, threads=threads, **design).results]
            for data, threads in ((str(tmp_path / "one.parquet"), 1), (str(tmp_path / "many.parquet"), 2), (sample, 1))
        ]
        assert found[0] == found[1] == found[2]


def drawn_by_size(unit: Array, count: int, seed: int) -> tuple[Array, Array]:
    """Units drawn in proportion to their rows without replacement, systematically: labelled rows and probabilities."""
    rng = np.random.default_rng(seed)
    ids, place, size = np.unique(unit, return_inverse=True, return_counts=True)
    sure = np.zeros(ids.size, bool)
    while True:
        rate = (count - sure.sum()) / size[~sure].sum()
        more = ~sure & (rate * size >= 1)
        if not more.any():
            break
        sure |= more
    p = np.where(sure, 1.0, rate * size)
    order, start = rng.permutation(ids.size), rng.random()
    upto = np.cumsum(p[order])
    picked = np.zeros(ids.size, bool)
    picked[order] = np.floor(upto - start) > np.floor(upto - p[order] - start)
    return picked[place], p[place]


def test_units_drawn_by_size_equal_their_recorded_probabilities() -> None:
    """π = min(1, c·a), from the sizes of all units; the weights are those of π on record."""
    rng = np.random.default_rng(6)
    columns = rows(6000, 7)
    columns["unit"] = rng.zipf(1.6, 6000) % 800
    labelled, p = drawn_by_size(columns["unit"], 200, 8)
    columns["p"] = p
    found = [
        evaluate(table(columns, labelled), score="s", metrics="roc_auc", unit="unit", **design)
        for design in ({"sampled_by": "size"}, {"label_probability": "p"})
    ]
    assert {one.name for one in found[0].label_strata} == {"certain", "all rows"}
    assert not any(one.doubtful for each in found for one in each.label_strata)
    weight = [sum(one.weight for one in each.label_strata) for each in found]
    assert weight[0] == pytest.approx(weight[1], rel=1e-12)
    assert found[0].value("roc_auc") == pytest.approx(found[1].value("roc_auc"), abs=0.02)
    assert found[0].results[0].unit == "unit"


def test_wrong_probabilities_of_one_stratum_are_shown() -> None:
    """Σw against the rows of each stratum."""
    n, columns = 6000, rows(6000, 9)
    columns["p"] = np.where(columns["stratum"] == 1, 0.3, 0.1)
    labelled = np.random.default_rng(10).random(n) < columns["p"]
    right = evaluate(table(columns, labelled), score="s", sampled_by="strata=stratum", label_probability="p")
    columns["p"] = np.where(columns["stratum"] == 1, 0.15, 0.1)
    wrong = evaluate(table(columns, labelled), score="s", sampled_by="strata=stratum", label_probability="p")
    assert not any(one.doubtful for one in right.label_strata)
    assert [one.name for one in wrong.label_strata if one.doubtful] == ["1"]
    assert "warning: the design weights of 1 sum up to" in str(wrong)
    assert right.value("roc_auc") == pytest.approx(wrong.value("roc_auc"), rel=1e-12)  # constant within strata


def test_wrong_probabilities_are_shown_without_their_strata() -> None:
    """Σw of all rows, where no range of scores is off by itself; a certain unit of many rows does not hide others."""
    n, columns = 20_000, rows(20_000, 9, 6)
    labelled = np.random.default_rng(11).random(n) < 0.05
    columns["p"] = np.where(columns["stratum"] == 1, 0.0325, 0.05)
    sample = evaluate(table(columns, labelled), score="s", label_probability="p")
    assert [one.name for one in sample.label_strata if one.doubtful] == []
    assert "warning: the design weights of all rows sum up to" in str(sample)
    columns["unit"] = np.where(np.arange(n) < 8000, -1, np.arange(n))
    labelled |= columns["unit"] < 0
    columns["p"] = np.where(columns["unit"] < 0, 1.0, 0.05)
    right = evaluate(table(columns, labelled), score="s", label_probability="p", unit="unit")
    columns["p"] = np.where(columns["unit"] < 0, 1.0, 0.025)
    wrong = evaluate(table(columns, labelled), score="s", label_probability="p", unit="unit")
    assert "sum up to" not in str(right)
    assert "sum up to" in str(wrong)


def test_labelled_rows_alone_are_no_sample() -> None:
    """Probabilities say that there are more rows than these: refused, not certain."""
    columns = rows(500, 14)
    columns["p"] = np.full(500, 0.01)
    with pytest.raises(LabelError, match="every row has a label, but by 'p' these are a sample of 50,000 rows"):
        evaluate(table(columns, np.ones(500, bool)), score="s", label_probability="p")


def test_every_output_says_that_it_is_an_estimate() -> None:
    """Terminal, JSON, Arrow, curves, page and the text format of Prometheus; prevalence is that of all rows."""
    labelled = np.random.default_rng(11).random(3000) < 0.2
    sample = evaluate(table(rows(3000, 12), labelled), score="s", metrics="roc_auc", truncate=0.1, sampled_by="uniform")
    n = int(labelled.sum())
    assert f"Estimated from {n:,} labels (uniform): what labels of all 3,000 rows would give." in str(sample)
    assert "(estimate)" in str(sample)
    page = re.sub(r"\s+", " ", sample.to_html())
    assert f"Estimated from {n:,} labels (uniform)" in page
    share, low, high = (getattr(sample.counts[0], name) for name in ("value", "ci_lower", "ci_upper"))
    assert all(f", estimated {share:.2%} [{low:.2%}, {high:.2%}] of all)" in text for text in (str(sample), page))
    gauge = f'streameval_roc_auc_ci_lower{{of="s",design="uniform"}} {sample.ci("roc_auc")[0]}'
    assert gauge in sample.exports()["prom"]()
    assert sample.scalars()["roc_auc/labelled/s"] == n
    plain = json.loads(json.dumps(sample.to_dict()))
    assert plain["labels"] == {
        "labelled_rows": n,
        "labelled_positives": sum(one.positives for one in sample.label_strata),
    }
    assert plain["positives"] is plain["results"][0].get("positives") is None
    for result in (plain["results"][0], sample.to_arrow().to_pylist()[0]):
        assert (result["design"], result["labelled"], result["exact"]) == ("uniform", n, False)
        assert result["strata"] == len(plain["label_strata"]) > 5
    assert "areas down to a rank" in str(next(one for one in sample.results if one.metric == "agc@0.1").reason)
    assert not any(curve.exact for curve in (*sample.curves("roc", "precision_recall"), sample.curve("roc")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sampled_by": "suspicion"}, "labelled because they looked bad have no valid estimate"),
        ({"sampled_by": "uniform", "label_probability": "p"}, "name one of them"),
        ({"sampled_by": "uniform", "by": "stratum"}, "take no by"),
        ({"sampled_by": "uniform", "weight": "p"}, "take no weight"),
        ({"sampled_by": "uniform", "resample_bins": 512}, "would change nothing"),
        ({"sampled_by": "strata=label"}, "name a column of few values known for all rows"),
        ({"sampled_by": "strata=p"}, "its numbers are not strata"),
        ({"sampled_by": "uniform", "cluster": "unit"}, "not estimated from sampled labels"),
        ({"sampled_by": "uniform", "where": "label IS NOT NULL"}, "where reads 'label', which only the sample has"),
        ({"label_probability": "p", "where": "p > 0"}, "where reads 'p', which only the sample has"),
    ],
)
def test_options_that_do_not_fit_a_sample_are_refused(options: dict[str, Any], said: str) -> None:
    """Nothing is left out in silence."""
    with pytest.raises(OptionError, match=said):
        evaluate(table(rows(50, 13), np.ones(50, bool)), score="s", **options)


def test_labels_that_are_not_of_the_design_are_refused() -> None:
    """Units in part, strata without labels, and probabilities that are none."""
    columns = rows(300, 14)
    labelled = np.ones(300, bool)
    labelled[np.flatnonzero(columns["unit"] == columns["unit"][0])[0]] = False
    with pytest.raises(LabelError, match=f"unit {columns['unit'][0]} of unit is labelled in part"):
        evaluate(table(columns, labelled), score="s", sampled_by="size", unit="unit")
    with pytest.raises(LabelError, match=r"stratum 2 of 'stratum' has .* rows but no labels"):
        evaluate(table(columns, columns["stratum"] < 2), score="s", sampled_by="strata=stratum")
    known = pa.array(columns["stratum"], mask=columns["stratum"] == 2)
    unknown = table(columns, columns["stratum"] < 2).drop_columns("stratum").append_column("stratum", known)
    with pytest.raises(LabelError, match=r"is null for .* the stratum of all rows must be known"):
        evaluate(unknown, score="s", sampled_by="strata=stratum")
    with pytest.raises(LabelError, match="no row has a label"):
        evaluate(table(columns, np.zeros(300, bool)), score="s", sampled_by="uniform")
    columns["p"] = np.full(300, 1.5)
    with pytest.raises(WeightError, match=r"'p' has 1\.5 for a labelled row"):
        evaluate(table(columns, labelled), score="s", label_probability="p")
    large = {**columns, "unit": np.where(np.arange(300) < 100, 1000, columns["unit"])}
    with pytest.raises(LabelError, match="a unit of unit with 100 rows has no label"):
        evaluate(table(large, np.isin(large["unit"], range(8))), score="s", sampled_by="size", unit="unit")


def test_intervals_need_five_labels_of_each_class_and_fifty_uniform_units() -> None:
    """Refusals by counts; values stay. Rows outside the sample may lack a score."""
    columns = rows(2000, 15)
    few = np.zeros(2000, bool)
    few[np.flatnonzero(columns["label"] == 1)[:4]] = few[np.flatnonzero(columns["label"] == 0)[:200]] = True
    sample = evaluate(table(columns, few), score="s", metrics="roc_auc", sampled_by="uniform")
    assert "4.0 effective units of positives" in str(sample.results[0].ci_reason)
    assert sample.results[0].value == sample.results[0].value
    drawn = columns["unit"] < 30
    columns["s"][np.flatnonzero(~drawn)[:9]] = math.nan
    options: dict[str, Any] = {"sampled_by": "uniform", "unit": "unit", "nan": "drop"}
    sample = evaluate(table(columns, drawn), score="s", metrics="roc_auc", **options)
    assert "draw by size" in str(sample.results[0].ci_reason)


@pytest.mark.parametrize(("prevalence", "area"), [(0.01, 0.8), (0.01, 0.95), (0.1, 0.95)])
def test_intervals_from_500_labels_hold_the_truth(prevalence: float, area: float) -> None:
    """The hardest cells of ``interval_coverage.py --labels``, 20 draws: the jackknife alone holds 50 to 90 % at 1 %."""
    rng = np.random.default_rng(16)
    label = (rng.random(10_000) < prevalence).astype(np.int8)
    score = rng.normal(size=label.size) + math.sqrt(2) * ndtri(area) * label
    score = 1 / (1 + np.exp(-score))
    at = [f"threshold={float(np.quantile(score, 1 - prevalence))!r}"]
    truth = evaluate(pa.table({"label": label, "s": score}), score="s", metrics="roc_auc", at=at)
    held: list[bool] = []
    for seed in range(20):
        labelled = np.zeros(label.size, bool)
        labelled[np.random.default_rng(seed).choice(label.size, 500, replace=False)] = True
        sample = evaluate(
            table({"label": label, "s": score}, labelled),
            score="s",
            metrics="roc_auc",
            at=at,
            sampled_by="uniform",
            threads=1,
        )
        for one, other in zip(sample.results, truth.results, strict=True):
            if one.ci_lower is not None and one.ci_upper is not None and "flagged" not in one.metric:
                held.append(one.ci_lower <= other.value <= one.ci_upper)
    assert len(held) > 20
    assert np.mean(held) > 0.88


@pytest.mark.parametrize("count", [60, 400])
def test_one_probability_of_all_rows_is_a_uniform_sample(count: int) -> None:
    """A range with a single label is no stratum of its own."""
    columns = rows(5000, 3, decimals=6)
    labelled = np.zeros(5000, np.bool_)
    labelled[np.random.default_rng(count).choice(5000, count, replace=False)] = True
    data = table(columns | {"p": np.full(5000, count / 5000)}, labelled)
    uniform = evaluate(data, score="s", metrics="roc_auc", sampled_by="uniform").results[0]
    recorded = evaluate(data, score="s", metrics="roc_auc", label_probability="p").results[0]
    assert recorded.value == pytest.approx(uniform.value, rel=1e-12)
    assert (recorded.strata, recorded.stderr) == (uniform.strata, pytest.approx(uniform.stderr, rel=1e-9))


@pytest.mark.parametrize("design", [DESIGNS[1], DESIGNS[2], DESIGNS[4]])
def test_the_brier_score_counts_the_squares_of_all_scores(design: dict[str, str]) -> None:
    """(Σ x² − 2 Σ ω·x·y + Σ ω·y)/N with the first sum over all rows; undefined if any score is outside [0, 1]."""
    columns = rows(2000, 3, 6)
    score, y, omega = columns["s"], columns["label"], np.zeros(2000)
    labelled = columns["unit"] % 4 == 0 if "unit" in design else np.random.default_rng(4).random(2000) < 0.2
    stratum = 2 * columns["stratum"] * ("unit" not in design) + (score >= 0.5)
    weight = 1 / np.bincount(columns["unit"])[columns["unit"]] if "unit" in design else np.ones(2000)
    for h in np.unique(stratum):
        there = labelled & (stratum == h)
        omega[there] = weight[there] * (stratum == h).sum() / weight[there].sum()
    options: dict[str, Any] = {"score": "s", "metrics": ["brier_score", "precision@threshold=0.5"], **design}
    expected = (score**2).sum() - 2 * (omega * score * y).sum() + (omega * y).sum()
    assert evaluate(table(columns, labelled), **options).value("brier_score") == pytest.approx(
        expected / 2000, rel=1e-12
    )
    beyond = evaluate(table(columns | {"s": score + 0.2 * ~labelled}, labelled), **options)
    assert "outside [0, 1]" in str(next(one.reason for one in beyond.results if one.metric == "brier_score"))
