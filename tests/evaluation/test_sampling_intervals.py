"""Sampling intervals of an evaluation: replicates are metrics of the rows that are left, differences are paired."""

import json
import math
import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from refusals import refuses
from scipy import stats

from streameval import compare, evaluate
from streameval.errors import OptionError
from streameval.metrics.finalize import compute
from streameval.metrics.selection import Selection
from streameval.results import Scalar
from streameval.states.grouped.keys import Blocks
from streameval.states.protocol import Batch
from streameval.states.scores.blocks import FEW_BLOCKS
from streameval.states.scores.counts import fold_arrays


def clustered(rows: int = 3000, units: int = 400, seed: int = 0) -> pa.Table:
    """Rows of units that share their label and a part of their scores, with two scores, weights and a text unit."""
    rng = np.random.default_rng(seed)
    size = np.arange(1, units + 1) ** -0.5
    unit = rng.choice(units, rows, p=size / size.sum())
    label = (rng.random(units) < 0.3).astype(int)[unit]
    shared = rng.normal(size=(2, units))[:, unit]
    logits = 1.2 * label + shared + rng.normal(size=(2, rows))
    return pa.table(
        {
            "label": label,
            "v1": 1 / (1 + np.exp(-logits[0])),
            "v2": (1 / (1 + np.exp(-logits[0] - logits[1] / 4))).astype(np.float32),
            "weight": rng.random(rows) + 0.5,
            "unit": unit,
            "name": [f"unit {u}" for u in unit],
        }
    )


def blocks_of(table: pa.Table, unit: str, count: int = 128) -> np.ndarray:
    """The block of each row."""
    column = table.column(unit).combine_chunks()
    key = Blocks(unit, 128)
    split = key.split(Batch(np.zeros(len(table), np.uint8), None, {unit: column}))
    return np.array([key.group(name) for name in split.names.to_pylist()])[split.codes] % count


def metric_of(name: str) -> Any:
    """The metric of a name."""
    selection = Selection(("score",), (name,), truncate=(0.2,))
    return next(metric for metric in selection.of("score") if metric.name == name)


def spread(replicates: np.ndarray) -> float:
    """The standard error that replicates give."""
    return math.sqrt((replicates.size - 1) / replicates.size * np.square(replicates - replicates.mean()).sum())


@cache
def halves(weight: str | None) -> tuple[pa.Table, np.ndarray]:
    """A table in which whole units lack their score, and the values of the rows that are left without each block."""
    table = clustered()
    missing = pc.less(pc.bit_wise_and(table["unit"], 7), 1)
    table = table.append_column("lacking", pc.if_else(missing, None, table["v1"]))
    blocks = blocks_of(table, "unit")
    left = [table.filter(pa.array(blocks != block)) for block in np.unique(blocks)]
    found = [evaluate(part, **HALVES, weight=weight, threads=1).results for part in left]
    return table, np.array([[result.value for result in results] for results in found]).T


HALVES: dict[str, Any] = {"score": "lacking", "metrics": ["roc_auc", "agc", "gini"], "nan": "half"}


@pytest.mark.parametrize(
    ("approx", "bins", "bound"),
    [(False, 2048, 0.01), (True, 2048, 0.01), (False, 65536, 1e-9), (True, 65536, 1e-9), (False, "exact", 1e-9)],
)
@pytest.mark.parametrize("weight", [None, "weight"])
def test_missing_scores_that_count_as_halves_are_drawn_with_their_units(weight, bins, bound, approx):
    """The standard errors of ``nan="half"`` are those of the rows that are left, missing scores among them."""
    table, replicates = halves(weight)
    found = evaluate(table, **HALVES, weight=weight, unit="unit", resample_bins=bins, approx=approx)
    assert len(found.results) == 3
    for result, values in zip(found.results, replicates, strict=True):
        assert result.stderr == pytest.approx(spread(values), rel=bound), result


@cache
def jackknife(weight: str | None) -> dict[str, float]:
    """The standard errors of areas of gain, from the rows that are left without each block."""
    table, used = clustered(), ["label", "v1", *([weight] if weight else [])]
    blocks, spreads = blocks_of(table, "unit"), {}
    for name, count in (("agc", 128), ("agc@0.2", FEW_BLOCKS)):
        left = [table.filter(pa.array(blocks % count != block)) for block in np.unique(blocks % count)]
        columns = [[one[column].to_numpy() for column in used] for one in left]
        states = [fold_arrays(label.astype(np.uint8), *others) for label, *others in columns]
        spreads[name] = spread(np.array([compute(state, metric_of(name)).value for state in states]))
    return spreads


@pytest.mark.parametrize(("bins", "rough"), [("2048", 0.02), ("exact", 1e-9)])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_a_sampled_gain_area_has_the_replicates_of_all_rows(bins, rough, weight):
    """Units vary as in `agc`; below all rows the variance of the draw is added, and `stderr` stays that of the draw."""
    table, metrics = clustered(), ["agc", "agc@0.2", "agc_approx*"]
    asked = {"score": "v1", "weight": weight, "unit": "unit", "truncate": 0.2, "metrics": metrics, "approx_agc": True}
    for sample in (1.0, 0.5):
        found = evaluate(table, **asked, sample=sample, resample_bins=bins, threads=1)
        by_name = {one.own.scalar.metric: one.own for one in found.estimates}
        shown = {one.metric: one for one in found.results}
        for name in ("agc", "agc@0.2"):
            one, value = by_name[name.replace("agc", "agc_approx")], shown[name.replace("agc", "agc_approx")]
            expected = jackknife(weight)[name]
            assert one.stderr == pytest.approx(math.hypot(expected, value.stderr), rel=rough)
            assert (value.stderr == 0) == (sample == 1)
            assert value.ci_lower < value.value < value.ci_upper
            least = by_name[name].freedom  # those of the draw are 31
            assert one.freedom == least if sample == 1 else least < one.freedom < least + 31


def test_where_the_grid_is_too_coarse_there_is_no_interval():
    """Most rows within a millionth of each other, and a broad tail."""
    rng = np.random.default_rng(2)
    label = rng.integers(0, 2, 20_000)
    near = 0.3 + 1e-7 * (label + rng.normal(size=20_000))
    scores = np.where(rng.random(20_000) < 0.9, near, rng.normal(size=20_000) * 10.0 ** rng.integers(-30, 30, 20_000))
    table = pa.table({"label": label, "s": scores, "unit": np.arange(20_000)})
    found = evaluate(table, score="s", unit="unit", metrics="roc_auc").results[0]
    assert "too coarse: evaluate the files with more resample_bins (--resample-bins 65536)" in found.ci_reason
    assert evaluate(table, score="s", unit="unit", metrics="roc_auc", resample_bins=65536).ci("roc_auc")[0] > 0.5


def test_crossed_units_have_the_variance_of_both():
    """The largest of V_a, V_b and V_a + V_b − V_ab, of values, counts and differences; a null is a unit alone."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 90, 6000), rng.integers(0, 70, 6000)
    label = rng.random(6000) < 0.3
    score = 1.5 * label + rng.normal(size=90)[a] + 0.7 * rng.normal(size=70)[b] + rng.normal(size=6000)
    names = pa.array([None if i < 9 else f"day {i % 7} {j}" for i, j in enumerate(b)])
    table = pa.table({"label": label, "s": score, "t": score + rng.normal(size=6000), "a": a, "b": names})

    def of(unit: str | list[str]) -> tuple[Scalar, ...]:
        found = evaluate(table, score=["s", "t"], unit=unit, baseline="s", metrics=["roc_auc", "tpr@fpr=0.2"])
        assert {one.unit for one in (*found.results, *found.counts)} == {unit if isinstance(unit, str) else "a,b"}
        return (*found.results, *found.counts)

    both = of("a,b")
    assert [repr(one) for one in both] == [repr(one) for one in of(["b", "a"])]
    commas = table.rename_columns(["label", "s", "t", "x,y", "b"])
    for unit, same, named in ((["x,y"], "a", '"x,y"'), (["x,y", "b"], ["b", "a"], 'b,"x,y"')):
        found, due = (evaluate(t, score="s", unit=u, metrics="roc_auc") for t, u in ((commas, unit), (table, same)))
        assert found.results == evaluate(commas, score="s", unit=named, metrics="roc_auc").results
        assert [one.unit for one in found.results] == [named]
        assert found.ci("roc_auc") == pytest.approx(due.ci("roc_auc"), rel=0.2)  # other pairs of words
    larger = 0
    for one, first, second in zip(both, of("a"), of("b"), strict=True):
        if None in (first.stderr, second.stderr):
            assert one.ci_reason
            continue
        most, least = math.hypot(first.stderr, second.stderr), max(first.stderr, second.stderr)
        assert least <= one.stderr <= most
        larger += one.stderr > 1.02 * least
        assert one.freedom == min(first.freedom, second.freedom)
        assert one.effective_units == min(first.effective_units, second.effective_units)
    assert larger > len(both) / 3


def test_a_unit_that_is_too_fine_is_told():
    """By a cluster or class column that is read anyway, about how many times as large the standard error is."""
    rng = np.random.default_rng(0)
    unit = rng.integers(0, 2000, 8000)
    label, shared = rng.random(200) < 0.3, rng.normal(size=200)
    score = label[unit % 200] + shared[unit % 200] + rng.normal(size=8000)
    ids = {"unit": unit, "campaign": unit % 200, "other": unit % 977, "few": unit % 7}
    table = pa.table({"label": label[unit % 200], "s": score} | ids)
    asked: dict[str, Any] = {"score": "s", "metrics": ["roc_auc", "aul"], "cluster": "campaign"}
    found = evaluate(table, unit="unit", **asked | {"cluster": ["campaign", "other"]})
    by_unit, by_campaign = (evaluate(table, unit=unit, **asked) for unit in ("unit", "campaign"))
    ratio = by_campaign.results[0].stderr / by_unit.results[0].stderr
    assert ratio > 2
    assert found.coarser_units == {"campaign": pytest.approx(ratio, rel=0.5)}
    assert "warning: by campaign the standard error is" in str(found)
    assert pickle.loads(pickle.dumps(found)).to_dict()["coarser_units"] == found.coarser_units
    assert found.results[0] == by_unit.results[0]
    assert by_campaign.coarser_units == {}
    by = evaluate(table, unit="unit", score="s", metrics="roc_auc", by=["few", "campaign", "few,campaign"])
    assert by.coarser_units == {"campaign": pytest.approx(ratio, rel=0.5)}
    of_classes = asked | {"cluster": "other", "classes": "campaign", "metrics": ["roc_auc", "adjusted_rand_index"]}
    assert list(evaluate(table, unit="unit", **of_classes).coarser_units) == ["campaign"]


def test_a_unit_that_is_too_fine_is_told_in_most_draws():
    """Senders of 150 clusters, by which the standard error is twice as large; random clusters are not told."""
    told, rows = np.zeros((2, 6), bool), np.arange(3000)
    for seed in range(6):
        rng = np.random.default_rng([5, seed])
        cluster = np.repeat(np.arange(150), 20)
        label = (rng.random(150) < 0.3)[cluster]
        score = 1.8 * label + rng.normal(size=150)[cluster] + 0.3 * rng.normal(size=3000)
        for row, of in enumerate((cluster, np.repeat(rng.integers(0, 150, 600), 5))):
            columns = {"label": label, "s": score, "sender": rows // 5 + (seed << 20), "c": of + (seed << 40)}
            found = evaluate(pa.table(columns), score="s", unit="sender", cluster="c", metrics=["roc_auc", "aul"])
            told[row, seed] = bool(found.coarser_units)
    assert told.sum(axis=1).tolist() == [6, 0]


def influences(label: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Each row's part in the ROC AUC's deviation: (V10 − A)/P of positives, (V01 − A)/N of negatives."""
    pos, neg = score[label == 1], score[label == 0]
    wins = (pos[:, None] > neg) + 0.5 * (pos[:, None] == neg)
    found = np.empty(label.size)
    found[label == 1] = (wins.mean(axis=1) - wins.mean()) / pos.size
    found[label == 0] = (wins.mean(axis=0) - wins.mean()) / neg.size
    return found


def test_rows_as_units_have_the_standard_error_of_delong():
    """By the formula over all pairs, ties as halves."""
    table = clustered(900)
    label, score = table.column("label").to_numpy(), np.round(table.column("v1").to_numpy(), 2)
    table = table.set_column(1, "v1", pa.array(score))
    d = influences(label, score)
    sides = (d[label == side] for side in (0, 1))
    expected = math.sqrt(sum(np.square(side).sum() * side.size / (side.size - 1) for side in sides))
    for approx in (False, True):
        found = evaluate(table, score="v1", ci=0.95, metrics=["roc_auc", "gini"], approx=approx)
        assert [r.stderr for r in found.results] == pytest.approx([expected, 2 * expected], rel=1e-9)
        assert found.results[0].unit == "row"
        assert found.results[0].effective_units == label.sum()


def test_an_interval_is_symmetric_on_its_scale():
    """The interval of ROC AUC is one of logits, with t of the freedom of its blocks, a bit wider towards the middle."""
    table = clustered(4000, 2000)
    found = evaluate(table, score="v1", unit="unit", metrics="roc_auc")
    result = found.results[0]
    value, error = result.value, result.stderr
    half = stats.t.ppf(0.975, result.freedom) * error / (value * (1 - value))
    ends = [1 / (1 + math.exp(-(math.log(value / (1 - value)) + side * half))) for side in (-1, 1)]
    assert result.ci_upper == pytest.approx(ends[1], rel=1e-9)
    assert ends[0] - error / 4 < result.ci_lower <= ends[0]
    assert result.effective_units > 50


def test_a_number_of_points_shrinks_with_the_rows():
    """precision@k takes the same share of the rows that are left, in 32 blocks."""
    table = clustered(6000, 3000)
    found = evaluate(table, score="v1", unit="unit", metrics="precision@k=600", resample_bins="exact")
    [result] = found.results
    blocks, label = blocks_of(table, "unit", 32), table.column("label").to_numpy().astype(np.uint8)
    replicates = []
    for block in range(32):
        left = blocks != block
        k = round(600 * left.sum() / left.size)
        state = fold_arrays(label[left], table.column("v1").to_numpy()[left])
        replicates.append(compute(state, metric_of(f"precision@k={k}")).value)
    assert result.blocks == 32
    assert result.stderr == pytest.approx(spread(np.array(replicates)), rel=1e-9)


def test_estimates_travel_and_evaluations_are_compared():
    """A pickled evaluation keeps its replicates; two over the same units are compared pairwise."""
    table = clustered()
    one = pickle.loads(pickle.dumps(evaluate(table, score="v1", unit="unit", metrics="roc_auc")))
    two = evaluate(table.filter(pa.array(np.arange(len(table)) % 3 > 0)), score="v1", unit="unit", metrics="roc_auc")
    [difference] = compare(one, two)
    assert difference.value == two.value("roc_auc") - one.value("roc_auc")
    assert difference.stderr < one.results[0].stderr
    refuses(OptionError, "evaluation a has no sampling intervals", compare, evaluate(table, score="v1"), two)
    other = evaluate(table, score="v1", ci=0.9, metrics="roc_auc")
    refuses(OptionError, r"a over units of unit and b over units of row .*with the same unit", compare, one, other)
    crossed = [evaluate(table, score="v1", unit=unit, metrics="roc_auc") for unit in ("unit,name", ["name", "unit"])]
    assert compare(*crossed)[0].stderr == 0
    refuses(OptionError, r"a over units of name,unit and b over units of unit \(roc_auc", compare, crossed[0], one)
    refuses(OptionError, "b is of type int, not an evaluation", compare, one, 3)
    assert other.results[0].ci_level == 0.9


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"weight": "w"}, r"a without weight and b with weight='w' \(roc_auc of v1\): .* same weight \(--weight\)"),
        ({"pos_label": 0}, r"a without pos_label and b with pos_label=0 \(roc_auc of v1\): .*\(--pos-label\)"),
        ({"aul_threshold": 2}, r"a with aul_threshold=1 and b with aul_threshold=2 \(aul of unit\)"),
        ({"aul_threshold": {"unit": 2}}, r"a with aul_threshold=1 and b with aul_threshold=2 \(aul of unit\)"),
    ],
    ids=str,
)
def test_evaluations_that_measure_something_else_are_refused_by_name(more, said):
    """Their difference was given as if it were one of a metric; what does not touch a metric does not stop it."""
    table = clustered(200)
    table = table.append_column("w", pa.array(np.arange(len(table)) % 7 + 0.5))
    table = table.append_column("class", pa.array(np.arange(len(table)) % 9))
    asked = {"score": "v1", "cluster": "unit", "classes": "class", "unit": "unit"}
    one = evaluate(table, **asked, metrics=["roc_auc", "aul", "pairwise.fscore"])
    refuses(OptionError, said, compare, one, evaluate(table, **asked, **more))
    free = {"weight": "aul", "pos_label": "pairwise.fscore", "aul_threshold": "roc_auc"}[next(iter(more))]
    assert [each.value for each in compare(one, evaluate(table, **asked, **more, metrics=free))] == [0]


def test_evaluations_of_other_unit_hashes_are_refused_by_name():
    """Their blocks hold other units; the version travels in pickles and in JSON, where there are intervals."""
    asked = {"score": "v1", "unit": "unit", "metrics": "roc_auc"}
    one = evaluate(clustered(200), **asked)
    other = pickle.loads(pickle.dumps(replace(one, unit_hash=one.unit_hash + 1)))
    with pytest.raises(OptionError, match=r"a with unit hash 2 and b with unit hash 3: .* one version of streameval"):
        compare(one, other)
    assert [json.loads(e.to_json())["unit_hash"] for e in (one, other)] == [2, 3]
    assert "unit_hash" not in evaluate(clustered(200), score="v1", metrics="roc_auc").to_dict()


def test_what_has_no_interval_says_why():
    """Calibration errors, values at the end of their range, and thresholds with few units beyond."""
    table = clustered(300, 300)
    found = evaluate(table, score="v1", unit="unit", metrics=["ece", "precision@k=20", "recall@k=300"])
    reasons = {r.metric: r.ci_reason for r in found.results}
    assert "biased" in reasons["ece"]
    assert "beyond the threshold" in reasons["precision@k=20"]
    assert "end of its range" in reasons["recall@k=300"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ci": 0}, "ci=0 is not a level"),
        ({"unit": ["name", "unit", "label"]}, "must name a column, or two different ones that are crossed"),
        ({"unit": "name,name"}, "must name a column, or two different ones"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(options, message):
    """What cannot be asked for is refused."""
    refuses(OptionError, message, evaluate, clustered(50), score="v1", **options)


def test_rows_and_prevalence_have_intervals():
    """Of rows on their own those of Poisson and binomial counts; wider by unit; without intervals there are none."""
    table = clustered()
    rows, positives = len(table), int(np.sum(table["label"].to_numpy(zero_copy_only=False)))
    counts = {one.metric: one for one in evaluate(table, score="v1", ci=0.95, metrics="roc_auc").counts}
    share = positives / rows
    expected = {"rows": rows**0.5, "positives": positives**0.5, "prevalence": (share * (1 - share) / rows) ** 0.5}
    assert {name: one.value for name, one in counts.items()} == {
        "rows": rows,
        "positives": positives,
        "prevalence": share,
    }
    for name, error in expected.items():
        assert counts[name].stderr == pytest.approx(error, rel=0.3)
    by_unit = evaluate(table, score="v1", unit="unit", metrics="roc_auc")
    assert by_unit.counts[2].stderr > counts["prevalence"].stderr
    assert [one["metric"] for one in by_unit.to_dict()["counts"]] == list(expected)
    assert "counts" not in evaluate(table, score="v1", metrics="roc_auc").to_dict()


def test_a_rate_at_its_end_has_no_interval_where_the_sample_sets_the_threshold():
    """Of 60 negatives the highest is far below the threshold of all: the true rate is near 0, not near 1."""
    rng = np.random.default_rng(1)
    label = np.repeat([0, 1], [60, 5000])
    table = pa.table(
        {"label": label, "s": np.where(label, rng.normal(3, 0.2, 5060), rng.normal(size=5060).clip(max=2))}
    )
    found = evaluate(table, score="s", metrics=["tpr@fpr=0.0001", "recall@threshold=0"], ci=0.95)
    [chosen, fixed] = found.results
    assert (chosen.value, chosen.ci_lower) == (1, None)
    assert "end of its range" in chosen.ci_reason
    assert 0.99 < fixed.ci_lower < fixed.ci_upper == 1
