"""Sampling intervals from the states of a store: those of its files, for nights, selections, rules and differences."""

import csv
import io
import pickle

import numpy as np
import pytest
from nightly import NIGHTS, land
from processes import run
from refusals import refuses

from streameval import Store, compare, evaluate
from streameval.errors import OptionError

COLUMNS = {"score": ["score_lr", "score_nb"], "metrics": ["roc_auc"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three nights."""
    folder = tmp_path_factory.mktemp("intervals") / "data"
    for name in NIGHTS[:3]:
        land(name, folder)
    return folder


@pytest.fixture(scope="module")
def store(data, tmp_path_factory):
    """Their store, with blocks of campaigns."""
    made = Store(tmp_path_factory.mktemp("intervals") / "store", threads=1)
    made.update(data, **COLUMNS, unit="campaign")
    return made


def ends(results):
    """Intervals and what they are told of."""
    return [(r.metric, r.of, r.value, r.ci_lower, r.ci_upper, r.effective_units, r.blocks, r.p_value) for r in results]


def test_a_store_gives_the_intervals_of_its_files(store, data):
    """Of all nights, of one, at another level, and of the difference of two columns."""
    for options in ({}, {"ci": 0.8}, {"baseline": "score_nb"}):
        raw = evaluate(data, **COLUMNS, unit="campaign", threads=1, **options)
        found = store.evaluate(**options)
        assert ends(found.results) == ends(raw.results)
        assert ends(store.evaluate(**options).results) == ends(raw.results)  # asked again
    night = evaluate(data / NIGHTS[1], **COLUMNS, unit="campaign", threads=1)
    history = store.history("roc_auc", "score_lr")
    assert ends([history.points[1].night]) == ends(night.results[:1])
    assert ends([history.points[2].cumulative]) == ends(store.evaluate().results[:1])
    table = history.to_arrow()
    assert table["night_ci_lower"].to_pylist() == [point.night.ci_lower for point in history.points]
    assert history.to_csv().splitlines()[0].endswith("cumulative_ci_lower,cumulative_ci_upper")
    axes = history.plot()
    assert (axes.get_title(), len(axes.collections)) == ("roc_auc of score_lr, 95 % intervals by campaign", 2)
    title = store.history(["roc_auc"], ["score_lr"]).plot().get_title()
    assert title == "roc_auc, 95 % intervals by campaign"
    told = store.evaluate().difference("roc_auc", "score_nb", "score_lr")
    assert (told.ci_lower, told.ci_upper) == raw_difference(data)


def test_histories_have_intervals_at_an_asked_level(store, data):
    """Of nights and of all up to each, in tables, files and lines below; the store's own level is another."""
    raw = [evaluate(data / night, **COLUMNS, unit="campaign", ci=0.8, threads=1) for night in NIGHTS[:3]]
    found = store.history("roc_auc", "score_lr", ci=0.8)
    assert ends([point.night for point in found.points]) == ends([each.results[0] for each in raw])
    assert ends([found.points[2].cumulative]) == ends(store.evaluate(ci=0.8).results[:1])
    assert found.points[2].night.ci_lower > store.history("roc_auc", "score_lr").points[2].night.ci_lower
    several = store.history(["roc_auc"], ci=0.8)
    assert several.series[0].points == found.points
    lower = [point.night.ci_lower for point in found.points]
    assert several.to_arrow()["roc_auc[score_lr] ci_lower"].to_pylist() == lower
    [head, first, *_] = csv.reader(io.StringIO(several.to_csv()))
    assert float(first[head.index("roc_auc[score_lr] ci_lower")]) == lower[0]
    assert several.series[0].source.command.endswith("--metric roc_auc --ci 0.8")
    assert "80 % intervals by campaign" in several.to_html()
    for level in (80, 0, "much"):
        refuses(OptionError, "ci=", store.history, "roc_auc", "score_lr", ci=level)


def raw_difference(data):
    """The interval of the difference, from the files."""
    found = evaluate(data, **COLUMNS, unit="campaign", threads=1).difference("roc_auc", "score_nb", "score_lr")
    return found.ci_lower, found.ci_upper


def test_rules_of_nights_read_intervals(store):
    """At their own levels, of values and of paired differences."""
    low, high = store.evaluate(NIGHTS[2], ci=0.9).ci("roc_auc", "score_lr")
    told = store.evaluate(NIGHTS[2], ci=0.9, baseline="score_nb").results[-1]
    rules = {
        "above": f"roc_auc[score_lr] >= {low - 1e-9} proven @90%",
        "within": f"roc_auc[score_lr] >= {high - 1e-9} @90%",
        "unproven": f"roc_auc[score_lr] >= {low + 1e-9} proven @90%",
        "gain": f"roc_auc[score_lr] - roc_auc[score_nb] >= {told.ci_lower - 1e-9} proven @90%",
        "less": f"roc_auc[score_lr] - roc_auc[score_nb] >= {told.ci_upper + 1e-9} @90%",
    }
    found = {one.rule: one.outcome for one in store.check(rules, NIGHTS[2]).judgements}
    assert found == dict(zip(rules, ("passed", "passed", "failed", "passed", "failed"), strict=True))


def test_a_unit_joins_nights_that_are_there(data, tmp_path):
    """Values stay, intervals come; nights whose files are gone leave a selection without them, with the reason."""
    made = Store(tmp_path / "store", threads=1)
    made.update(data, **COLUMNS)
    assert made.evaluate().results[0].ci_level is None
    alone = made.evaluate(ci=0.95, metrics="average_precision").results[0]
    assert alone.ci_reason == "the store keeps no blocks of units; add the column of units to it (add --unit COLUMN)"
    made.add(unit="campaign", since="2026-01-02")
    assert made.evaluate(NIGHTS[1]).results[0].ci_lower is not None
    assert "not kept for all of these rows" in made.evaluate().results[0].ci_reason
    made.add(unit="campaign")
    raw = evaluate(data, **COLUMNS, unit="campaign", threads=1)
    assert ends(made.evaluate().results) == ends(raw.results)
    with pytest.raises(OptionError, match=r"unit='cluster_loose' contradicts the store.*'campaign'"):
        made.update(data, unit="cluster_loose")


def test_without_a_unit_an_area_has_the_interval_of_single_rows(data, tmp_path):
    """DeLong's variance needs only counts; differences need blocks, and weights count as none."""
    made = Store(tmp_path / "store", threads=1)
    made.update(data, **COLUMNS)
    raw = evaluate(data, **COLUMNS, ci=0.95, threads=1)
    found = made.evaluate(ci=0.95).results
    assert [(r.value, r.stderr, r.effective_units) for r in found if r.ci_lower] == [
        (r.value, r.stderr, r.effective_units) for r in raw.results if r.metric in ("roc_auc", "agc")
    ]
    ends_of = [(r.ci_lower, r.ci_upper) for r in (found[0], raw.results[0])]
    assert ends_of[1][0] < ends_of[0][0] < ends_of[0][1] < ends_of[1][1]  # blocks also say that few rows decide
    difference = made.evaluate(baseline="score_nb").results[-1]
    assert (difference.ci_lower, difference.unit) == (None, "row")
    assert "keeps no blocks of units" in difference.ci_reason
    shown = run("show", made.name, "--ci").stdout
    assert "by row: 400 effective units, 399 degrees of freedom\n" in shown
    said = "too narrow if rows come in groups; add their column to the store (add --unit COLUMN)"
    assert said in shown.replace("\n", " ")
    assert said in made.evaluate(ci=0.95).to_html()
    weighted = Store(tmp_path / "weighted", threads=1)
    weighted.update(data, **COLUMNS, weight="weight")
    assert "keeps no blocks" in weighted.evaluate(ci=0.95).results[0].ci_reason


def test_rules_read_intervals_of_clusters_and_classes_without_a_unit(data, tmp_path):
    """Clusters and classes are their own units; for scores the store must keep blocks."""
    made = Store(tmp_path / "store", threads=1)
    made.update(data, score="score_lr", cluster="cluster_loose", classes="campaign", approx_agc=True)
    found = made.check(["aul[cluster_loose] >= 0.1 @90%", "bcubed_fscore >= 0.1 proven @90%"])
    assert found.passed
    assert "@90% by cluster_loose" in found.judgements[0].reason
    for metric in ("roc_auc", "agc_approx"):
        refuses(OptionError, "keeps no blocks of units", made.check, f"{metric} >= 0.5 @90%")


def test_nights_are_compared_with_earlier_ones(store, data):
    """Paired through the units that both have, as two evaluations of the files are."""
    raw = [evaluate(data / night, **COLUMNS, unit="campaign", threads=1) for night in (NIGHTS[0], NIGHTS[2])]
    found = store.evaluate(NIGHTS[2], against="2026-01-01..2026-01-01").results[-2:]
    assert [one[2:] for one in ends(found)] == [one[2:] for one in ends(compare(*raw))]
    assert found[0].of == "score_lr (these nights) − score_lr (2026-01-01..2026-01-01)"
    refuses(OptionError, "is not a span of dates", store.evaluate, against="2026-01-01")


def test_evaluations_with_intervals_are_cached(store):
    """Asked again, no state is read for the values; comparisons and bands read them, and are the same."""
    options = {"baseline": "score_nb", "ci": 0.85}
    fresh = store.evaluate(**options)
    again = Store(store.name, threads=1).evaluate(**options)
    assert not again._again.cache_info().currsize  # nothing was computed again
    assert again.results == fresh.results
    assert store.evaluate(ci=0.9).ci("roc_auc", "score_lr") != fresh.ci("roc_auc", "score_lr")
    told = [
        one.difference("roc_auc", "score_nb", "score_lr") for one in (fresh, again, pickle.loads(pickle.dumps(again)))
    ]
    assert told[0] == told[1] == told[2]
    assert compare(fresh, again)[0].value == 0
    bands = [one.curve("roc", "score_lr").band for one in (fresh, again)]
    assert np.array_equal(bands[0].lower, bands[1].lower, equal_nan=True)
