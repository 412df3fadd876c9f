"""The store: what is folded, what counts, and that the numbers are those of the raw files."""

import json
import os
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from nightly import CLUSTERS, DATA, FEW, NIGHTS, OPTIONS, SCORES, correct, land
from processes import run
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import DataError, LabelError, MissingInputError, OptionError, SchemaError, StoreError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of all nights, for reading only."""
    store = Store(tmp_path_factory.mktemp("whole") / "store")
    store.update(DATA, **OPTIONS)
    return store


@pytest.fixture(scope="module")
def raw():
    """An evaluation of the files of all nights."""
    return evaluate(DATA, **OPTIONS)


@pytest.fixture
def data(tmp_path):
    """The first three nights, in a separate place."""
    for night in NIGHTS[:3]:
        land(night, tmp_path / "data")
    return tmp_path / "data"


def night(folder: Path, name: str, **columns) -> Path:
    """Write a night of these columns."""
    return put(folder / name / "part-0.parquet", columns).parent


# -- the same numbers -------------------------------------------------------------------------------------------------


def test_all_nights_together_are_the_raw_files_to_the_last_bit(whole, raw):
    """Every metric of every column, clusters against classes included; curves and tables are drawn from the states."""
    found = whole.evaluate()
    assert found.to_json() == whole.evaluate(until="2026-01").to_json() == raw.to_json()
    assert found.curve("roc", of="score_lr").area == raw.curve("roc", of="score_lr").area
    assert repr(found.confusion(0.5, "score_nb")) == repr(raw.confusion(0.5, "score_nb"))


@pytest.mark.parametrize(
    "options",
    [
        {"score": SCORES, "approx": True},
        {"score": "score_lr", "nan": "half", "at": ["fpr=0.01"]},
        {"cluster": CLUSTERS, "cluster_scope": "partition", "classes": "campaign"},
        {"cluster": "source", "score": "length"},
    ],
)
def test_every_policy_is_that_of_an_evaluation(tmp_path, options):
    """Bounded scores, ids of their partition, text ids: folded night by night, the numbers are the same."""
    store = Store(tmp_path / "store")
    for name in NIGHTS[:5]:
        store.update(DATA / name, **options)
    expected = evaluate([DATA / name for name in NIGHTS[:5]], **options)
    assert store.evaluate().to_json() == expected.to_json()


# -- what an update folds ---------------------------------------------------------------------------------------------


def test_only_what_is_new_is_folded(data, tmp_path):
    """The second update folds the night that landed; the third folds nothing and commits nothing."""
    store = Store(tmp_path / "store")
    first = store.update(data, **FEW)
    land(NIGHTS[3], data)
    second, third = store.update(data), store.update(data)
    assert first.new == tuple(NIGHTS[:3])
    assert (second.new, second.unchanged) == ((NIGHTS[3],), 3)
    assert (third.new, third.unchanged, third.rows, third.version) == ((), 4, 0, 1)
    assert len(store.versions()) == 2


def test_a_night_is_the_same_however_it_is_named(data, tmp_path, monkeypatch):
    """The tree, one night, its file, a pattern and a relative path give one name."""
    store = Store(tmp_path / "store")
    store.update(data / NIGHTS[0], **FEW)
    monkeypatch.chdir(data)
    assert store.update(data / NIGHTS[0] / "part-0.parquet").unchanged == 1
    assert store.update(NIGHTS[0]).unchanged == 1
    assert store.update(f"{data}/night=*-01").unchanged == 1
    assert store.update(data).new == tuple(NIGHTS[1:3])


def test_files_that_are_no_tree_are_partitions_themselves(tmp_path):
    """A flat directory has a partition a file; below a known root names stay relative to it."""
    flat = tmp_path / "flat"
    (flat / "more").mkdir(parents=True)
    for i, name in enumerate(NIGHTS[:2]):
        shutil.copy(DATA / name / "part-0.parquet", flat / f"{i}.parquet")
    store = Store(tmp_path / "store")
    assert store.update(flat, **FEW).new == ("0.parquet", "1.parquet")
    shutil.copy(DATA / NIGHTS[2] / "part-0.parquet", flat / "more" / "2.parquet")
    assert store.update(flat / "more").new == ("more/2.parquet",)
    assert store.update(flat).unchanged == 3


def test_verify_finds_what_size_and_time_hide(tmp_path):
    """A file exchanged for one of equal size and time is found by its content, and only that one."""
    store, data = Store(tmp_path / "store"), tmp_path / "data"
    scores = pa.array([0.1, 0.2, 0.3])
    for name in ("night=1", "night=2"):
        night(data, name, label=pa.array([0, 1, 1], pa.int8()), score=scores)
    store.update(data, score="score")
    path = data / "night=2" / "part-0.parquet"
    before = path.stat()
    night(data, "night=2", label=pa.array([1, 0, 1], pa.int8()), score=scores)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert store.update(data).unchanged == 2
    told = store.update(data, verify=True, dry_run=True)
    assert (told.changed, told.suspected, told.unchanged) == ((), ("night=1", "night=2"), 0)
    assert str(told) == "2 to verify (night=1, night=2)"
    assert store.update(data, verify=True).changed == ("night=2",)
    assert store.evaluate().to_json() == evaluate(data, score="score").to_json()
    assert store.update(data, verify=True).unchanged == 2


# -- corrections ------------------------------------------------------------------------------------------------------


def test_late_corrections_and_what_was_known_before(data, tmp_path):
    """A replaced and a removed night change the numbers; earlier versions still give the earlier ones."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    first = store.evaluate().to_json()
    assert store.replace(correct(NIGHTS[1], data)).changed == (NIGHTS[1],)
    second = store.evaluate().to_json()
    assert second == evaluate(data, **FEW).to_json() != first
    assert store.remove(NIGHTS[0]).removed == (NIGHTS[0],)
    assert store.evaluate().to_json() == evaluate([data / name for name in NIGHTS[1:3]], **FEW).to_json()
    assert [store.evaluate(as_of=version).to_json() for version in (0, 1)] == [first, second]
    when = store.versions()[-1]["when"]
    assert store.evaluate(as_of=when.isoformat()).to_json() == first
    assert store.evaluate(as_of=f"{when:%Y-%m-%d}").rows in (store.evaluate().rows, evaluate(data, **FEW).rows)


def test_versions_that_never_were_are_refused(data, tmp_path):
    """A later version, an earlier date, and no date at all."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    for as_of in ("9999-12-31", "9999-12-31T23:59:59.999999"):  # OverflowError
        assert store.evaluate(as_of=as_of).to_json() == store.evaluate().to_json()
    for as_of in (7, "2001-01-01", "yesterday"):
        refuses(OptionError, "as_of", store.evaluate, as_of=as_of)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_two_places_of_one_name_are_refused(data, tmp_path):
    """A night of that name from elsewhere is replaced only when that is asked for."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    land(NIGHTS[0], tmp_path / "other")
    other = correct(NIGHTS[0], tmp_path / "other")
    refuses(DataError, "use replace", store.update, other)
    refuses(DataError, r"in .*data and in .*other", store.update, [data, other])
    assert store.replace(other).changed == (NIGHTS[0],)
    refuses(MissingInputError, "no such partition to replace", store.replace, land(NIGHTS[9], data))


def test_labels_of_all_nights_must_be_two_classes(tmp_path):
    """A third label value on a later night refuses that night, and both sides and the remedy are named."""
    store = Store(tmp_path / "store")
    for name, labels in (("night=1", [0, 1]), ("night=2", [0, 2])):
        night(tmp_path / "data", name, label=pa.array(labels, pa.int8()), score=pa.array([0.5, 0.25]))
    store.update(tmp_path / "data" / "night=1", score="score")
    message = r"/data/night=2: label column 'label' has the values 0, 2, .* partitions, 0, 1; .* create another store"
    refuses(LabelError, message, store.update, tmp_path / "data")
    assert len(store.partitions()) == 1
    night(tmp_path / "data", "night=1", label=pa.array([0, 2], pa.int8()), score=pa.array([0.5, 0.25]))
    assert store.replace(tmp_path / "data" / "night=1").changed == ("night=1",)
    assert store.update(tmp_path / "data").new == ("night=2",)


def test_a_narrower_type_is_widened_and_a_wider_one_refused(tmp_path):
    """What the first update found is fixed; no value may be lost."""
    store = Store(tmp_path / "store")
    kinds = {"night=1": pa.float64(), "night=2": pa.float32(), "night=3": pa.string()}
    for name, kind in kinds.items():
        score = pa.array([0.5, 0.25, 0.125]).cast(kind)
        night(tmp_path / "data", name, label=pa.array([0, 1, 1], pa.int8()), score=score)
    store.update(tmp_path / "data" / "night=1", score="score")
    store.update(tmp_path / "data" / "night=2")
    assert store.evaluate().rows == 6
    refuses(SchemaError, "night=3", store.update, tmp_path / "data")


def test_a_store_that_is_not_there_is_said_to_be_so(tmp_path):
    """Looking, replacing and removing need a store; a foreign table is none."""
    store = Store(tmp_path / "store")
    for use in (store.evaluate, lambda: store.replace(DATA), lambda: store.remove(NIGHTS[0])):
        refuses(StoreError, "there is no store", use)
    refuses(OptionError, "local disk or on S3", Store, "gs://bucket/store")
    refuses(OptionError, "a store folds files", store.update, pa.table({"label": [0, 1]}), score="label")


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_command_line_does_all_of_it(data, tmp_path):
    """Update, show, replace, remove, versions; JSON alone on stdout; status 2 for usage."""
    store = tmp_path / "store"
    options = ("--score", "score_lr", "--cluster", "cluster_loose")
    told = run("update", store, data, "--dry-run", *options).stderr
    assert "would do: 3 new (night=2026-01-01, night=2026-01-02, night=2026-01-03); no store yet\n" in told
    assert told.endswith("keeps scores score_lr; clusters cluster_loose; labels label\n")
    assert run("update", store, data, *options).exit_code == 0
    shown = run("show", store, "--json", "-", "--quiet")
    out = json.loads(shown.stdout)
    assert (shown.exit_code, out) == (0, evaluate(data, **FEW).to_dict())
    assert "1 changed" in run("replace", store, correct(NIGHTS[0], data)).stderr
    assert "1 removed" in run("remove", store, NIGHTS[1]).stderr
    assert json.loads(run("show", store, "--as-of", 0, "--json", "-").stdout) == out
    assert "roc_auc" in run("show", store, "--last", 1).stdout
    listed = json.loads(run("info", store, "--versions", "--json", "-").stdout)["versions"]
    told = run("info", store, "--versions").stdout.partition("version  when")[2]
    assert [fact["version"] for fact in listed] == [2, 1, 0]
    times = [line.split()[1] for line in told.splitlines()[1:]]
    assert times == [fact["when"] for fact in listed]
    assert told.splitlines()[1].endswith(f"Z  1 removed ({NIGHTS[1]})")
    assert json.loads(run("show", store, "--as-of", times[2], "--json", "-").stdout) == out
    assert json.loads(run("show", store, "--as-of", listed[2]["when"], "--json", "-").stdout) == out
    assert "there is no store" in run("info", tmp_path / "none").stderr
    assert run("update", store, data, "--score", "score_q").exit_code == 2
    assert run("show", tmp_path / "none").exit_code == 1
    assert run("show", store, "--storage", "nothing").exit_code == 2


def test_the_date_of_a_night_is_that_of_its_key(tmp_path):
    """Keys of models or years beside it do not count; two dates are refused, where the first decided."""
    for name in ("model=20251101/night=2026-01-01", "year=2026/night=2026-02-01", "dt=2026-01-03/run=20260201"):
        (tmp_path / name.partition("=")[0] / name).mkdir(parents=True)
        shutil.copy(DATA / NIGHTS[0] / "part-0.parquet", tmp_path / name.partition("=")[0] / name)
    store = Store(tmp_path / "store")
    for folder in ("model", "year"):
        store.update(tmp_path / folder, score="score_q")
    rows = pq.read_metadata(DATA / NIGHTS[0] / "part-0.parquet").num_rows
    assert store.evaluate(since="2026-01").rows == 2 * rows
    assert store.evaluate(until="2026-01-31").rows == rows
    refuses(MissingInputError, "no partition has a date in this range", store.evaluate, until="2025-12-31")
    refuses(OptionError, "since='2026-01-32' must be a date", store.evaluate, since="2026-01-32")
    forecast = store.vacuum(keep="30d", dry_run=True)
    assert forecast.bounded == ("model=20251101/night=2026-01-01",)
    store.update(tmp_path / "dt", score="score_q")
    for refused in (lambda: store.evaluate(since="2026-01-01"), lambda: store.vacuum(keep="30d", dry_run=True)):
        refuses(OptionError, r"dt=2026-01-03/run=20260201: .* two dates \(2026-01-03 and 2026-02-01", refused)


def test_labels_of_one_sign_ask_for_the_positive_one_of_a_new_store(tmp_path):
    """Of this one if nothing is folded; of another if other nights were, which fixes the options of the store."""
    for name, labels in (("night=1", [1, 2]), ("night=2", [0, 1])):
        night(tmp_path / "data", name, label=pa.array(labels, pa.int8()), score=pa.array([0.5, 0.25]))
    store = Store(tmp_path / "store")
    with pytest.raises(LabelError, match=r"night=1: .* has the values 1 and 2; name the positive one with pos_label"):
        store.update(tmp_path / "data" / "night=1", score="score")
    with pytest.raises(LabelError, match=r"night=1: .* has the values 1, 2, .* partitions, 0, 1; .* another store"):
        store.update(tmp_path / "data", score="score")


def test_groups_of_nights_without_rows_have_the_metrics_that_are_asked_for(data, tmp_path):
    """Results of an empty night were cached for one metric, and a raw KeyError followed for others."""
    empty = tmp_path / "data" / "night=2026-01-04" / "part-0.parquet"
    empty.parent.mkdir()
    pq.write_table(pq.read_table(DATA / NIGHTS[0] / "part-0.parquet").slice(0, 0), empty)
    store = Store(tmp_path / "store")
    store.update(data, score="score_q")
    store.evaluate(by="night", metrics="roc_auc")
    store.attribute(score="score_q", by="night", metric="roc_auc")
    found = [r.metric for r in store.evaluate(by="night", truncate=0.3).results if not r.rows]
    assert {"roc_auc", "average_precision", "agc@0.3"} <= set(found)


def test_all_nights_can_be_removed_and_come_back(data, tmp_path):
    """An empty store keeps its configuration."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    store.remove(NIGHTS[:3])
    refuses(MissingInputError, "no partitions", store.evaluate)
    assert store.update(data).new == tuple(NIGHTS[:3])


@pytest.mark.parametrize(
    ("nights", "chosen"),
    [
        (NIGHTS[-3:], [{"last": 3}]),
        (NIGHTS[7:], [{"since": "2026-01-08"}]),
        (NIGHTS[2:5], [{"since": of(2026, 1, 3), "until": of(2026, 1, 5)} for of in (date, "{}-{:02}-{:02}".format)]),
        (NIGHTS[4:5], [{"partition": NIGHTS[4]}]),
        ([NIGHTS[1], NIGHTS[9]], [{"partition": [NIGHTS[9], NIGHTS[1]]}]),
    ],
)
def test_any_nights_together_are_their_raw_files(whole, nights, chosen):
    """Spans, the last few and single nights are what an evaluation of those directories gives."""
    expected = evaluate([DATA / name for name in nights], **OPTIONS)
    for options in chosen:
        assert whole.evaluate(**options).to_json() == expected.to_json()
