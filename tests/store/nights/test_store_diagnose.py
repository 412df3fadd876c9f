"""Nights that are broken or incomplete: the good ones count, and what is wrong with the others is said."""

import json
import shutil
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from files import put
from nightly import DATA, FEW, NIGHTS, land
from processes import run
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import CorruptFileError, DataError, MissingInputError
from streameval.wording import visible


def read(path):
    """A night's table."""
    return pq.read_table(path / "part-0.parquet", partitioning=None)


@pytest.fixture
def broken(tmp_path):
    """Nine good nights and one, in two files, that lost labels in the second and whose score is shrunk."""
    data = tmp_path / "data"
    for name in NIGHTS[:9]:
        land(name, data)
    table = read(DATA / NIGHTS[9])
    score = table.column_names.index("score_lr")
    table = table.set_column(score, "score_lr", pc.multiply(table["score_lr"], pa.scalar(0.5, pa.float32())))
    label = table["label"].to_pylist()
    label[200:300] = [None] * 100
    table = table.set_column(table.column_names.index("label"), "label", pa.array(label, pa.int8()))
    (data / NIGHTS[9]).mkdir()
    for i, part in enumerate((table.slice(0, 200), table.slice(200))):
        pq.write_table(part, data / NIGHTS[9] / f"part-{i}.parquet")
    store = Store(tmp_path / "store")
    store.update(data, **FEW, unlabelled="drop")
    return store, table


def test_facts_are_those_of_the_data_and_the_usual_ones_medians(broken):
    """Rows, nulls, positives, quantiles and clusters, compared with the last seven nights."""
    store, table = broken
    assert store.diagnose() == ()
    assert not store.check("nulls[label] <= 5%").passed
    [found] = store.diagnose()
    assert (found.partition, found.fails, found.nights) == (NIGHTS[9], ("nulls[label] <= 5%",), 7)
    facts = {one.what: one for one in found.findings}
    tables = [read(DATA / name) for name in NIGHTS[2:9]]
    kept = table.filter(pc.is_valid(table["label"]))

    def agrees(what, value):
        usual = median(value(one) for one in tables)
        assert (facts[what].value, facts[what].usual) == (value(kept if "null" not in what else table), usual), what

    agrees("label null (share)", lambda t: t["label"].null_count / len(t))
    agrees("positives (share)", lambda t: pc.sum(t["label"]).as_py() / len(t))
    for q in (0.01, 0.5, 0.99):
        agrees(f"score_lr quantile {q:g}", lambda t, q=q: float(np.sort(t["score_lr"])[int(np.ceil(q * len(t))) - 1]))
    for q in (0.25, 0.5, 0.75):
        agrees(
            f"score_lr quantile {q:g} of positives",
            lambda t, q=q: float(
                np.sort(t["score_lr"].filter(pc.equal(t["label"], 1)))[int(np.ceil(q * pc.sum(t["label"]).as_py())) - 1]
            ),
        )
    agrees("cluster_loose clusters", lambda t: len(set(t["cluster_loose"].to_pylist())))
    agrees("cluster_loose largest cluster", lambda t: max(pc.value_counts(t["cluster_loose"]).field(1).to_pylist()))
    assert facts["rows"].value == len(table)
    assert found.findings[0].what == "label null (share)"
    order = [one.deviations for one in found.findings]
    assert order == sorted(order, reverse=True)
    assert found.files == ("label null in 1 of 2 files (part-1.parquet: 100)",)


@pytest.mark.usefixtures("broken")
def test_a_scheduler_is_told_why_and_what_is_next(tmp_path):
    """By `check` in two lines, by `diagnose` in a table and in JSON."""
    where = tmp_path / "store"
    told = run("check", where, "--rule", "nulls[label] <= 5%").stdout.splitlines()
    assert told[1].startswith(f"{NIGHTS[9]}: label null ")
    assert " % (usual 0 %); " in told[1]
    assert told[1].endswith("label null in 1 of 2 files (part-1.parquet: 100)")
    assert told[2] == f"next: streameval diagnose {where} --partition {NIGHTS[9]}"
    done = run("diagnose", where)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"{NIGHTS[9]} fails nulls[label] <= 5%; compared with 7 nights"
    share = 100 * 100 / Store(where).partitions()[-1].rows
    assert lines[1] == f"FAIL  nulls[label] <= 5%  {share:.6g} %"
    [one] = json.loads(run("diagnose", where, "--json", "-").stdout)
    assert [(rule["rule"], rule["outcome"]) for rule in one["rules"]] == [("nulls[label] <= 5%", "failed")]
    assert one["findings"][0] == {
        "what": "label null (share)",
        "value": 100 / one["findings"][[f["what"] for f in one["findings"]].index("rows")]["value"],
        "usual": 0.0,
        "deviations": None,
    }
    good = run("diagnose", where, "--partition", NIGHTS[0])
    assert (good.exit_code, "compared with 0 nights" in good.stdout) == (0, True)
    refuses(MissingInputError, "", Store(where).diagnose, "night=2025-01-01")


def test_the_groups_whose_cost_rose_most_are_named(tmp_path):
    """Two clusters joined in one night: exactly the pairs that they did not have in the median of the usual nights."""
    data = tmp_path / "data"
    for name in NIGHTS[:5]:
        land(name, data)
    path = data / NIGHTS[4] / "part-0.parquet"
    table = pq.read_table(path, partitioning=None)
    place, cluster = table.column_names.index("cluster_loose"), table["cluster_loose"].to_numpy().copy()
    joined, cluster[:60] = int(cluster[0]), cluster[0]
    pq.write_table(table.set_column(place, "cluster_loose", pa.array(cluster)), path)
    store = Store(tmp_path / "store")
    store.update(data, cluster="cluster_loose", classes="campaign")
    [found] = store.diagnose(NIGHTS[4])
    costs = {one.what: one for one in found.costs}
    worst = costs[f"cluster_loose {joined} false pairs"]
    assert found.costs[0] == worst
    each = [store.attribute(name, cluster="cluster_loose", top=10**6).merges.to_pylist() for name in NIGHTS[:5]]
    known = [{row["cluster"]: row["false_pairs"] for row in rows}.get(joined, 0) for rows in each]
    assert (worst.value, worst.usual) == (known[4], median(known[:4]))
    assert worst.value > 1000
    assert any(name.startswith("campaign ") for name in costs)
    assert {one.what.split(" ", 2)[2] for one in found.costs} == {"false pairs", "missed pairs", "AUL loss"}
    assert all(one.value > one.usual for one in found.costs)
    assert found.to_dict()["costs"][0]["what"] == worst.what
    shown = run("diagnose", store.name, "--partition", NIGHTS[4]).stdout
    assert "cost that rose most" in shown
    assert f"cluster_loose {joined} false pairs" in shown


@pytest.fixture
def data(tmp_path):
    """Four nights, each in two files."""
    for name in NIGHTS[:4]:
        split(name, tmp_path / "data")
    return tmp_path / "data"


def split(night, data):
    """A night in two files."""
    table = pq.read_table(DATA / night, partitioning=None)
    (data / night).mkdir(parents=True, exist_ok=True)
    for i, part in enumerate((table.slice(0, 200), table.slice(200))):
        pq.write_table(part, data / night / f"part-{i}.parquet")


def hurt(path, how="footer"):
    """Damage a file: its footer, or all of its pages."""
    content = bytearray(path.read_bytes())
    if how == "footer":
        path.write_bytes(content[: len(content) // 2])
    else:
        end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        content[4:end] = b"\xff" * (end - 4)
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["footer", "page"])
@pytest.mark.parametrize("threads", [1, 2])
def test_good_nights_count_before_the_error_lists_all_bad_files(data, tmp_path, how, threads):
    """Two files of one night and one of another; the first update of a store as well as a later one."""
    bad = [
        data / NIGHTS[1] / "part-0.parquet",
        data / NIGHTS[1] / "part-1.parquet",
        data / NIGHTS[2] / "part-1.parquet",
    ]
    for path in bad:
        hurt(path, how)
    store = Store(tmp_path / "store", threads=threads)
    for good in ((NIGHTS[0], NIGHTS[3]), ()):
        raised = refuses(DataError, "2 partitions cannot be folded", store.update, data, **FEW)
        assert all(str(path) in raised for path in bad)
        assert ("2 other partitions folded; they count" in raised) == bool(good)
        assert [entry.partition for entry in store.partitions()] == [NIGHTS[0], NIGHTS[3]]
    split(NIGHTS[1], data)
    with pytest.raises(
        CorruptFileError, match=r"part-1.parquet: cannot be read: .* \(1 other partition folded; it counts"
    ):
        store.update(data)
    split(NIGHTS[2], data)
    assert store.update(data).new == (NIGHTS[2],)
    assert store.evaluate().to_json() == evaluate(data, **FEW).to_json()


@pytest.mark.parametrize("name", [NIGHTS[3], "part-2.parquet"])
def test_a_name_that_is_not_utf8_is_refused_by_name(data, tmp_path, name):
    """Arrow cannot open it; an evaluation may leave it out."""
    odd = data / NIGHTS[3] / f"{name}\udcff" / "a.parquet" if "=" in name else data / NIGHTS[3] / f"\udcff{name}"
    odd.parent.mkdir(exist_ok=True)
    shutil.copy(data / NIGHTS[0] / "part-0.parquet", odd)
    for use in (lambda: Store(tmp_path / "store").update(data, **FEW), lambda: evaluate(data, **FEW)):
        with pytest.raises(
            CorruptFileError, match=r"parquet: cannot be read: its name is not UTF-8; rename it"
        ) as told:
            use()
        assert visible(str(odd)) in str(told.value)
    assert evaluate(data, on_error="skip", **FEW).skipped[0][0] == str(odd)
    told = run("update", tmp_path / "store", data, "--score", "score_lr")
    assert told.exit_code == 1
    assert "its name is not UTF-8" in told.output


@pytest.mark.parametrize("how", ["footer", "page"])
def test_an_incomplete_night_is_marked_until_it_is_whole(data, tmp_path, how):
    """In the update, show, history, check and JSON; its values are those of the files that can be read."""
    path, store = data / NIGHTS[3] / "part-1.parquet", Store(tmp_path / "store")
    hurt(path, how)
    done = store.update(data, on_error="skip", **FEW)
    assert (done.incomplete, len(done.new)) == ((NIGHTS[3],), 4)
    assert str(done).endswith(f"1 incomplete ({NIGHTS[3]})")
    alone = evaluate(data / NIGHTS[3] / "part-0.parquet", **FEW)
    found = store.evaluate(NIGHTS[3])
    assert found.value("roc_auc") == alone.value("roc_auc")
    assert [name for name, _ in found.skipped] == [str(path)]
    assert store.evaluate(NIGHTS[3]).skipped == found.skipped  # also from the cache
    assert [point.incomplete for point in store.history("aul").points] == [False] * 3 + [True]
    version = store.versions()[0]["version"]
    for _ in range(2):  # still damaged: tried again, and unchanged
        assert store.update(data, on_error="skip").version == version
        assert str(store.update(data)) == f"nothing new: 4 unchanged, 1 incomplete ({NIGHTS[3]})"
    where = tmp_path / "store"
    assert f"{NIGHTS[3]} (incomplete)" in run("history", where, "--metric", "aul").stdout
    assert json.loads(run("show", where, "--json", "-").stdout)["skipped"][0]["partition"] == str(path)
    judged = run("check", where, "--rule", "rows >= 1")
    assert judged.exit_code == 3
    assert f"FAIL  {NIGHTS[3]}  complete" in judged.stdout
    assert "1 of 2 files left out" in judged.stdout
    assert run("check", where, "--rule", "rows >= 1", "--allow-incomplete").exit_code == 0
    split(NIGHTS[3], data)
    done = store.update(data)
    assert (done.changed, done.incomplete) == ((NIGHTS[3],), ())
    assert store.evaluate().to_json() == evaluate(data, **FEW).to_json()
    assert store.check("rows >= 1").passed


def test_a_first_update_without_rows_names_the_file(tmp_path):
    """It said that "the File" has none."""
    night = tmp_path / "night=2026-01-01.parquet"
    pq.write_table(pa.table({"label": pa.array([], pa.int8()), "a": pa.array([], pa.float64())}), night)
    with pytest.raises(MissingInputError, match=r"night=2026-01-01\.parquet: no rows"):
        Store(tmp_path / "store").update(night, score="a")
    assert not Store(tmp_path / "store").exists()


def test_an_incomplete_night_is_no_usual_one_and_can_be_accepted(data, tmp_path):
    """Its values give no baseline, whether it was accepted or not."""
    for name in NIGHTS[4:6]:
        split(name, data)
    hurt(data / NIGHTS[2] / "part-1.parquet")
    store = Store(tmp_path / "store")
    store.update(data, on_error="skip", **FEW)
    found = store.check("rows drop <= 90%")
    assert (found.judgements[-1].nights, found.failing) == (4, (NIGHTS[2],))
    store.accept(NIGHTS[2], "half of it was lost")
    assert store.check("rows drop <= 90%").passed


def test_a_night_without_a_file_that_can_be_read_is_incomplete(data, tmp_path):
    """It has no rows; a night that lacks a column stays out, and the others count."""
    for i in (0, 1):
        hurt(data / NIGHTS[1] / f"part-{i}.parquet")
    shutil.rmtree(data / NIGHTS[2])
    put(data / NIGHTS[2] / "part-0.parquet", {"label": [0, 1], "score_lr": [0.1, 0.2]})
    store = Store(tmp_path / "store")
    refuses(DataError, r"cluster_loose.* .3 other partitions folded", store.update, data, on_error="skip", **FEW)
    assert [(entry.partition, entry.rows > 0) for entry in store.partitions()] == [
        (NIGHTS[0], True),
        (NIGHTS[1], False),
        (NIGHTS[3], True),
    ]
    why, _ = [why for _, why in store.partitions()[1].left_out]
    assert why.startswith("Parquet magic bytes not found")
    assert "skip" not in why  # it was left out already
    split(NIGHTS[1], data)
    land(NIGHTS[2], data)
    store.update(data)
    assert store.evaluate().to_json() == evaluate(data, **FEW).to_json()


def test_replacing_skips_as_well(data, tmp_path):
    """A correction with a damaged file fails, or makes its night incomplete."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    hurt(data / NIGHTS[0] / "part-0.parquet")
    refuses(CorruptFileError, "", store.replace, data / NIGHTS[0])
    done = run("replace", tmp_path / "store", data / NIGHTS[0], "--on-error", "skip")
    assert (done.exit_code, "1 incomplete" in done.stderr) == (0, True), done.stderr
