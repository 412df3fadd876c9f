"""The history of a store and its rules: kept where nothing changed, computed where something did, judged honestly."""

import json
import shutil
from collections import Counter

import polars as pl
import pytest
from nightly import DATA, FEW, NIGHTS, correct, land
from processes import run

from streameval import Store, evaluate
from streameval.store.files.compaction import Compaction
from streameval.store.files.published import StateFiles
from streameval.store.nights import results
from streameval.store.nights.results import ResultCache


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Five nights and their store."""
    folder = tmp_path_factory.mktemp("begun")
    for name in NIGHTS[:5]:
        land(name, folder / "data")
    Store(folder / "store").update(folder / "data", **FEW)
    return folder


@pytest.fixture
def nights(begun, tmp_path):
    """Where nights land, and the store; a copy of both."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    return tmp_path / "data", Store(tmp_path / "store")


def expected(data, names, metric="roc_auc"):
    """The metric of these nights' raw files."""
    return evaluate([data / name for name in names], **FEW).value(metric)


def test_every_night_alone_and_all_up_to_it(nights):
    """The series has the numbers of the raw files, also when it is read back, and after the table is lost."""
    data, store = nights
    found = store.history("roc_auc")
    names = [point.partition for point in found.points]
    assert names == NIGHTS[:5]
    assert [point.night.value for point in found.points] == [expected(data, [name]) for name in names]
    cumulative = [expected(data, names[: i + 1]) for i in range(5)]
    assert [point.cumulative.value for point in found.points] == cumulative
    assert store.history("roc_auc") == found
    shutil.rmtree(data.parent / "store" / "history")
    assert store.history("roc_auc") == found


def test_what_is_kept_follows_a_correction(nights):
    """A replaced night changes its own value and the cumulative ones from it on; a removed one leaves the series."""
    data, store = nights
    before = store.history("aul").points
    store.replace(correct(NIGHTS[2], data))
    after = store.history("aul").points
    assert after[:2] == before[:2]
    assert after[2].night.value == expected(data, [NIGHTS[2]], "aul") != before[2].night.value
    assert after[4].cumulative.value == expected(data, NIGHTS[:5], "aul")
    assert store.history("aul", as_of=0).points == before
    store.remove(NIGHTS[0])
    assert [point.partition for point in store.history("aul").points] == NIGHTS[1:5]
    assert store.history("aul").points[-1].cumulative.value == expected(data, NIGHTS[1:5], "aul")


def test_nights_up_to_each_join_what_was_merged(tmp_path):
    """No state is read twice, but where exact ones become bounded: from the first bounded night on all are."""
    data, store = tmp_path / "data", Store(tmp_path / "store")
    for name in NIGHTS[2:5]:
        land(name, data)
    store.update(data, score="score_lr")
    assert store.vacuum(keep="2d", grace="0s").bounded == (NIGHTS[2],)
    for name in NIGHTS[:2]:
        store.update(land(name, data))
    store.history("pr_auc", cumulative=False)
    read = Counter()

    class Counted(StateFiles):
        def load(self, name):
            read[name] += 1
            return super().load(name)

    store._context.compaction = Compaction(
        store._context.location.child("merged"), Counted(store._context.files.location)
    )
    for i, point in enumerate(store.history("pr_auc").points):
        raw = evaluate([data / name for name in NIGHTS[: i + 1]], score="score_lr", approx=i > 1)
        assert (point.cumulative.value, point.cumulative.lower) == (raw.value("pr_auc"), raw.interval("pr_auc")[0])
    assert sorted(read.values()) == [1, 1, 1, 2, 2]


def test_a_night_without_a_column_is_null_for_each_column(tmp_path):
    """So is all that it is in; every column has its own reason, told once."""
    store = Store(tmp_path / "store")
    store.update([DATA / name for name in NIGHTS[:3]], score="score_lr")
    for column in ("score_nb", "score_q"):
        store.add(score=column, since="2026-01-02")
        points = store.history("roc_auc", column).points
        assert points[0].night.reason == f"no {column}"
        reasons = [f"no {column} in 1 of {nights}" for nights in ("1 night", "2 nights", "3 nights")]
        assert [point.cumulative.reason for point in points] == reasons
        assert points[1].night.value == evaluate(DATA / NIGHTS[1], score=column).value("roc_auc")
    path = tmp_path / "store"
    told = run("history", path, "--metric", "roc_auc", "--of", "score_q").stdout
    assert "cumulative in night=2026-01-02: no score_q in 1 of 2 nights" in told
    told = run("history", path, "--metric", "roc_auc", "--of", "score_q", "--nightly").stdout
    assert "in night=2026-01-01: no score_q\n" in told
    assert "cumulative" not in told
    shown = run("show", path).stdout
    assert f"score_q: no score_q in 1 of 3 partitions ({NIGHTS[0]})" in shown
    assert shown.count("no score_q") == 1


def test_new_nights_are_appended_and_other_changes_written_anew(tmp_path, monkeypatch):
    """A night that comes last reads no row; a late one, a correction, a lost update or many files: all rows."""
    monkeypatch.setattr(results, "FILES", 4)
    data, store, seen = tmp_path / "data", Store(tmp_path / "store"), []

    def versions():
        table = pl.read_delta(str(tmp_path / "store" / "history")).filter(metric="roc_auc", span="night")
        return table.sort("partition")["version"].to_list()

    for name in NIGHTS[1:7]:
        store.update(land(name, data), **FEW)
        seen.append(versions())
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [4] * 5, [4] * 5 + [5]]
    kept = store.history("roc_auc")
    store.update(land(NIGHTS[7], data))
    assert versions() == [5] * 6 + [6]  # the history was written when it was asked for
    assert store.history("roc_auc").points[:6] == kept.points
    store.update(land(NIGHTS[0], data))
    assert versions() == [7] * 8
    cumulative = pl.read_delta(str(tmp_path / "store" / "history")).filter(span="cumulative")
    assert cumulative.is_empty()
    store.update(correct(NIGHTS[3], data))
    with monkeypatch.context() as patch:
        patch.setattr(ResultCache, "_commit", lambda *_: None)  # as if killed after the commit
        store.update(land(NIGHTS[8], data))
        store.remove(NIGHTS[1])
    store.update(land(NIGHTS[9], data))
    assert versions() == [11] * 8
    names = [NIGHTS[0], *NIGHTS[2:10]]
    found = store.history("roc_auc")
    assert [point.partition for point in found.points] == names
    shutil.rmtree(tmp_path / "store" / "history")
    assert store.history("roc_auc") == found


def test_the_command_line_shows_a_series(nights, tmp_path):
    """As a table, JSON, CSV and a picture."""
    _, store = nights
    path = str(tmp_path / "store")
    words = ["history", path, "--metric", "roc_auc"]
    assert NIGHTS[4] in run(*words).stdout
    assert json.loads(run(*words, "--json", "-").stdout) == store.history("roc_auc").to_dict()
    assert run(*words, "--csv", "-", "--nightly", "--last", "2").stdout.count("\n") == 3
    assert run(*words, "--plot", str(tmp_path / "h.svg"), "--quiet").exit_code == 0
    assert (tmp_path / "h.svg").exists()
