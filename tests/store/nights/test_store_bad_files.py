"""Bad files and bad nights: they stop nothing else, and are not forgotten."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest
from nightly import DATA, FEW, NIGHTS
from processes import run

from streameval import Store, evaluate
from streameval.errors import CorruptFileError, DataError
from streameval.wording import visible


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
        with pytest.raises(DataError, match="2 partitions cannot be folded") as raised:
            store.update(data, **FEW)
        assert all(str(path) in str(raised.value) for path in bad)
        assert ("2 other partitions folded; they count" in str(raised.value)) == bool(good)
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
