"""The upkeep of a store: columns that join, files that nothing needs, nights that are merged or bounded."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import FEW, NIGHTS, OPTIONS, correct, land
from processes import run
from refusals import refuses

from streameval import Store, evaluate
from streameval.budget import Budget
from streameval.errors import DataError, MissingColumnError, OptionError
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import histogram_spec, to_histogram
from streameval.states.scores.types import score_type
from streameval.store.files import compaction


@pytest.fixture
def data(tmp_path):
    """The first six nights."""
    for name in NIGHTS[:6]:
        land(name, tmp_path / "data")
    return tmp_path / "data"


# -- columns that join ------------------------------------------------------------------------------------------------


def test_a_new_column_is_folded_alone_where_the_files_are(data, tmp_path):
    """Nights without files stay null, with the reason; nights that have it are as if it had always been there."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    before = [entry.states for entry in store.partitions()]
    shutil.rmtree(data / NIGHTS[0])
    done = store.add(score="score_nb", cluster="cluster_tight")
    assert (done.changed, done.gone) == (tuple(NIGHTS[1:6]), (NIGHTS[0],))
    assert all(entry.states[:2] == states for entry, states in zip(store.partitions(), before, strict=True))
    both = {"score": ["score_lr", "score_nb"], "cluster": ["cluster_loose", "cluster_tight"]}
    assert store.evaluate(since="2026-01-02").to_json() == evaluate(data, **both).to_json()
    everything = json.loads(store.evaluate().to_json())["results"]
    missing = [r for r in everything if r["of"] in ("score_nb", "cluster_tight")]
    assert {r["value"] for r in missing} == {None}
    assert missing[0]["reason"] == f"no score_nb in 1 of 6 partitions ({NIGHTS[0]})"
    points = store.history("roc_auc", "score_nb").points
    assert [point.night.value == point.night.value for point in points] == [False] + [True] * 5
    assert not store.check("roc_auc[score_nb] >= 0", NIGHTS[0]).passed
    land(NIGHTS[6], data)
    assert store.update(data).new == (NIGHTS[6],)
    assert store.add(score="score_nb").changed == ()


def test_a_column_that_came_later_is_null_before(data, tmp_path):
    """Files without the column are passed over; `since` leaves nights out; clusters bring their classes."""
    store = Store(tmp_path / "store")
    for name in NIGHTS[:2]:
        path = data / name / "part-0.parquet"
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["cluster_tight"]), path)
    store.update(data, cluster="cluster_loose", classes="campaign")
    done = store.add(cluster="cluster_tight", since="2026-01-02")
    assert (done.changed, done.gone) == (tuple(NIGHTS[2:6]), (NIGHTS[1],))
    both = {"cluster": ["cluster_loose", "cluster_tight"], "classes": "campaign"}
    expected = evaluate([data / name for name in NIGHTS[2:6]], **both)
    assert store.evaluate(last=4).to_json() == expected.to_json()


def test_what_cannot_join_is_refused(data, tmp_path):
    """A column that no night has, files that changed, and nothing at all."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    refuses(MissingColumnError, "no night at hand has a column score_v2", store.add, score="score_v2")
    refuses(OptionError, "name the column", store.add)
    correct(NIGHTS[0], data)
    refuses(DataError, "changed since it was folded", store.add, score="score_nb")


# -- files that nothing needs, nights that are merged -----------------------------------------------------------------


def test_vacuum_deletes_what_no_version_names(data, tmp_path):
    """Leftovers of killed updates go, once they are old enough; earlier versions can still be evaluated."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    first = store.evaluate().to_json()
    store.replace(correct(NIGHTS[0], data))
    states = tmp_path / "store" / "states"
    for name in (f"{'0' * 64}.parquet", ".1234.part"):
        (states / name).write_bytes(b"left over")
    assert store.vacuum().deleted == 0
    assert store.vacuum(grace="0s").deleted == 2
    assert store.evaluate(as_of=0).to_json() == first
    for words in ("a week", "-1d", "7"):
        refuses(OptionError, "span of time", store.vacuum, grace=words)


def test_merged_nights_are_the_nights(data, tmp_path, monkeypatch):
    """Runs are used, give the same bits, and fall out of use when a night of theirs is replaced or left out."""
    monkeypatch.setattr(compaction, "LENGTH", 2)
    store = Store(tmp_path / "store")
    store.update(data, **OPTIONS)
    assert not (tmp_path / "store" / "merged").exists()
    assert store.vacuum().merged == 3 * 7
    states = tmp_path / "store" / "states"
    hidden = states.rename(tmp_path / "hidden")
    assert store.evaluate().to_json() == evaluate(data, **OPTIONS).to_json()
    hidden.rename(states)
    for chosen in (NIGHTS[:5], NIGHTS[1:4], NIGHTS[2:3]):
        expected = evaluate([data / name for name in chosen], **OPTIONS)
        assert store.evaluate(chosen).to_json() == expected.to_json()
    store.replace(correct(NIGHTS[1], data))
    assert store.evaluate().to_json() == evaluate(data, **OPTIONS).to_json()
    store.remove(NIGHTS[0])
    assert store.evaluate().to_json() == evaluate([data / name for name in NIGHTS[1:6]], **OPTIONS).to_json()
    assert store.vacuum().merged == 2 * 7
    for path in (tmp_path / "store" / "merged").glob("*.parquet"):
        path.write_bytes(b"damaged")
    assert store.evaluate(last=4).to_json() == evaluate([data / name for name in NIGHTS[2:6]], **OPTIONS).to_json()
    assert store.vacuum().merged == 2 * 7
    states.rename(tmp_path / "hidden")
    assert store.evaluate(last=4).to_json() == evaluate([data / name for name in NIGHTS[2:6]], **OPTIONS).to_json()


def levels(store: Path) -> list[int]:
    """Number of nights in every merged file of a store, in order."""
    index = json.loads((store / "merged" / "index.json").read_text())
    return sorted(len(merged["stands_for"]) for merged in index["files"])


def test_histograms_are_merged_by_updates(tmp_path, monkeypatch):
    """As a binary counter grows; a replaced night is merged again, a night that comes late or goes costs no other."""
    monkeypatch.setattr(compaction, "FAN", 2)
    data, options = tmp_path / "data", {"score": ["score_lr", "score_nb"], "approx": True}
    store, seen = Store(tmp_path / "store"), []
    for name in NIGHTS[1:8]:
        land(name, data)
        store.update(data, **options)
        seen.append(levels(tmp_path / "store")[::2] if len(seen) else [])
    assert seen == [[], [2], [2], [2, 2, 4], [2, 2, 4], [2, 2, 2, 4], [2, 2, 2, 4]]
    land(NIGHTS[0], data)
    store.update(data)
    assert levels(tmp_path / "store")[::2] == [2, 2, 2, 2, 4, 4, 8]
    states = tmp_path / "store" / "states"
    hidden = states.rename(tmp_path / "hidden")
    assert store.evaluate().to_json() == evaluate(data, **options).to_json()
    hidden.rename(states)
    store.replace(correct(NIGHTS[3], data))
    assert levels(tmp_path / "store")[::2] == [2, 2, 2, 2, 4, 4, 8]
    assert store.evaluate().to_json() == evaluate(data, **options).to_json()
    store.remove(NIGHTS[5])
    assert levels(tmp_path / "store")[::2] == [2, 2, 2, 4]
    rest = [data / name for name in NIGHTS[:8] if name != NIGHTS[5]]
    assert store.evaluate().to_json() == evaluate(rest, **options).to_json()


@pytest.mark.parametrize("damage", [lambda run: run.write_bytes(b"damaged"), Path.unlink])
def test_a_run_that_cannot_be_made_or_read_is_no_failure(tmp_path, monkeypatch, damage):
    """Of an update: its numbers are those of the nights, and it makes the run again."""
    monkeypatch.setattr(compaction, "FAN", 2)
    data, options = tmp_path / "data", {"score": "score_lr", "approx": True}
    store = Store(tmp_path / "store")
    for name in NIGHTS[:3]:
        store.update(land(name, data), **options)
    [run] = (tmp_path / "store" / "merged").glob("*.parquet")
    damage(run)
    assert store.evaluate().to_json() == evaluate(data, **options).to_json()
    store.update(land(NIGHTS[3], data))
    assert levels(tmp_path / "store") == [2, 2, 4]
    assert store.evaluate().to_json() == evaluate(data, **options).to_json()
    store.vacuum()
    assert levels(tmp_path / "store") == [2, 2, 4]
    (tmp_path / "store" / "merged" / "index.json").write_text("[{")
    assert store.evaluate(NIGHTS[:3]).rows
    store.update(land(NIGHTS[4], data))
    assert levels(tmp_path / "store") == [2, 2, 4]
    assert store.evaluate().to_json() == evaluate(data, **options).to_json()


def test_evaluations_are_cached_until_the_ledger_changes(data, tmp_path):
    """A second evaluation reads no state, but its curves can; after an update everything is evaluated again."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW, truncate=0.1)
    first = store.evaluate()
    states = tmp_path / "store" / "states"
    hidden = states.rename(tmp_path / "hidden")
    again = Store(tmp_path / "store").evaluate()
    assert again == first
    assert again.to_json() == first.to_json()
    hidden.rename(states)
    assert again.curve("lift").area == first.curve("lift").area
    store.remove(NIGHTS[0])
    assert store.evaluate().rows < first.rows
    table = pl.read_delta(str(tmp_path / "store" / "history")).filter(span="evaluation")
    assert set(table["partition"]) == {f"{NIGHTS[1]} to {NIGHTS[5]}"}  # and nothing of earlier versions


# -- nights that are bounded ------------------------------------------------------------------------------------------


def test_old_nights_are_bounded_and_the_rest_exact(data, tmp_path):
    """Metrics over a bounded night are intervals that hold the exact value; cluster metrics stay exact."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    exact = store.evaluate()
    done = store.vacuum(keep="3d", grace="0s")
    assert done.bounded == tuple(NIGHTS[:3])
    assert done.deleted == 3
    assert store.update(data, verify=True).unchanged == len(store.partitions())
    found = store.evaluate()
    for one, other in zip(exact.results, found.results, strict=True):
        assert other.lower - 1e-15 <= one.value <= other.upper + 1e-15
        assert other.exact or one.of == "score_lr"
    bound = evaluate([data / name for name in NIGHTS[:3]], **FEW, approx=True)
    assert store.evaluate(NIGHTS[:3]).results == bound.results
    assert store.evaluate(last=3).to_json() == evaluate([data / n for n in NIGHTS[3:6]], **FEW).to_json()
    assert store.vacuum(keep="3d", grace="0s").bounded == ()
    assert "lower" in json.loads(store.history("roc_auc").to_json())["points"][0]["night"]
    names = store.update(data)
    assert names.unchanged == 6


KINDS = [pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.uint64(), pa.decimal128(9, 2)]


@settings(max_examples=40)  # a histogram has half a million bins
@given(st.sampled_from(KINDS), st.booleans(), st.lists(st.integers(0, 40), max_size=30), st.integers(0, 99))
def test_a_bounded_state_is_the_folded_histogram(kind, weighted, drawn, seed):
    """Turning exact counts into bins gives what folding the rows into bins gives."""
    rng = np.random.default_rng(seed)
    fractions = pa.types.is_floating(kind)
    score = pa.array([(x - 20 * (kind != pa.uint64())) / (7 if fractions else 1) for x in drawn])
    array = score.cast(pa.float64()).cast(kind, safe=False)
    label, weight = rng.integers(0, 2, len(drawn)).astype(np.uint8), rng.integers(0, 5, len(drawn)).astype(float)
    spec = ScoreSpec("s", score_type(kind), weighted, "drop")
    states = []
    for each in (spec, histogram_spec(spec)):
        builder = each.builder(Budget(), 8)
        builder.update(Batch(label, weight, {"s": array}))
        states.append(builder.state())
    assert to_histogram(states[0]) == states[1]


def test_the_command_line_of_the_upkeep(data, tmp_path):
    """Add and vacuum say what they did."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    done = run("update", str(tmp_path / "store"), str(data))
    assert (done.exit_code, done.stderr.splitlines()) == (
        0,
        [f"{tmp_path / 'store'}: nothing new: 6 unchanged; version 0"],
    )
    done = run("update", str(tmp_path / "new"), str(data), "--score", "score_lr", "--nan", "drop")
    assert done.stderr.splitlines()[1].endswith("new keeps scores score_lr; labels label; nan=drop")
    shown = run("show", str(tmp_path / "store"), "--score", "score_rl")
    assert "did you mean 'score_lr'? Otherwise add it to the store (add)" in shown.stderr
    shown = run("show", str(tmp_path / "store"), "--metric", "roc_acu")
    assert "no metric is named 'roc_acu'; did you mean 'roc_auc'? There are" in shown.stderr
    done = run("add", str(tmp_path / "store"), "--score", "score_q", "--since", "2026-01-03")
    assert (done.exit_code, "4 changed" in done.stderr) == (0, True), done.stderr
    call = ["vacuum", str(tmp_path / "store"), "--keep", "2d", "--grace", "0s"]
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    done = run(*call, "--dry-run")
    assert "4 nights (night=2026-01-01 to night=2026-01-04) would lose exact scores" in done.stderr
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    told = done.stderr.partition("would delete ")[2].partition(" files")[0]
    done = run(*call)
    assert f"{told} files deleted" in done.stderr
    assert "4 nights turned into histograms (night=2026-01-01 to night=2026-01-04)" in done.stderr


def test_nights_of_one_content_count_each(tmp_path, monkeypatch):
    """Two nights with the same rows have the same state file, and count twice, merged or not."""
    columns = {"label": pa.array([0, 1, 1], pa.int8()), "score": pa.array([0.1, 0.2, 0.05])}
    for name in ("night=1", "night=2"):
        put(tmp_path / "data" / name / "part-0.parquet", columns)
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", score="score")
    assert store.evaluate().to_json() == evaluate(tmp_path / "data", score="score").to_json()
    assert [point.partition for point in store.history("roc_auc").points] == ["night=1", "night=2"]
    monkeypatch.setattr(compaction, "LENGTH", 2)
    assert store.vacuum().merged == 1
    assert store.evaluate(last=2).to_json() == evaluate(tmp_path / "data", score="score").to_json()


def test_a_night_without_files_has_no_clusters_once_rows_without_a_label_count(tmp_path):
    """Its state counts labelled rows alone, and the sizes of the other nights are no evaluation of all."""
    for night in NIGHTS[:2]:
        land(night, tmp_path / "data")
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", **FEW, by="source")
    shutil.rmtree(tmp_path / "data" / NIGHTS[0])
    done = store.add(unlabelled="size")
    assert (done.changed, done.gone) == ((NIGHTS[1],), (NIGHTS[0],))
    reasons = {r.reason for r in store.evaluate().results if r.of == FEW["cluster"]}
    assert reasons == {f"no {FEW['cluster']} in 1 of 2 partitions ({NIGHTS[0]})"}
    assert store.history("aul").points[0].night.value != store.history("aul").points[0].night.value
    expected = evaluate(tmp_path / "data", **FEW, unlabelled="size")
    assert store.evaluate(NIGHTS[1]).value("aul") == expected.value("aul")
