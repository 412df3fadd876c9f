"""What survives a power cut, a full disk at a checkpoint, and an answer that is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from files import put
from refusals import refuses

from streameval import Accumulator, Store, saving
from streameval.errors import OptionError, StoreError
from streameval.store.files import delta, published
from streameval.store.files.delta import LOG, RowTable, commit_numbers

FUZZ = Path(__file__).parents[3] / "benchmarks" / "fuzz.py"
LOOPS = hasattr(os, "geteuid") and os.geteuid() == 0 and any(Path("/dev").glob("loop*")) and shutil.which("mkfs.ext4")
NAMES = [f"night=2026-01-{i:02d}" for i in range(1, 12)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven nights of 30 rows."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in NAMES:
        table = pa.table({"label": rng.integers(0, 2, 30), "a": rng.random(30)})
        put(folder / name / "part-0.parquet", table)
    return folder


def nights(store: Store) -> list[str]:
    """The names of the partitions."""
    return [entry.partition for entry in store.partitions()]


@pytest.fixture
def store(tmp_path: Path, data: Path) -> Store:
    """A store of two nights in two commits, each judged."""
    opened = Store(tmp_path / "store", threads=1)
    for name in NAMES[:2]:
        opened.update(data / name, score="a", metrics=["roc_auc"])
        opened.check("rows > 0")
    return opened


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda whole: whole[:700],
    "zeros": lambda whole: whole[:900] + bytes(300),
    "one byte": lambda whole: whole[:-1],
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_newest_commit_that_is_cut_is_named_and_passed_over(store, data, tmp_path, caplog, cut):
    """The version before it is read; the next commit takes its number, and nothing else is lost."""
    log = tmp_path / "store" / "ledger" / LOG
    last = max(log.glob("*.json"))
    last.write_bytes(CUTS[cut](last.read_bytes()))
    assert nights(store) == NAMES[:1]
    assert f"{last}: is empty or cut off" in caplog.text
    assert store.info().version == 0
    assert store.update(data / NAMES[2]).version == 1
    assert store.update(data / NAMES[1]).version == 2
    assert nights(store) == NAMES[:3]
    assert [fact["version"] for fact in store.versions()] == [2, 1, 0]
    assert DeltaTable(str(log.parent)).version() == 2


def test_judgements_whose_newest_commit_is_cut_are_read_up_to_it(store, tmp_path, caplog):
    """So that `info` and the next check work."""
    last = max((tmp_path / "store" / "checks" / LOG).glob("*.json"))
    last.write_bytes(b"")
    assert store.info().nights == 2
    assert f"{last}: is empty or cut off" in caplog.text
    assert store.check("rows > 0").passed
    assert len(commit_numbers(store._context.location.child("checks"))) == 2


def test_a_checkpoint_that_cannot_be_written_fails_no_commit(tmp_path, data, monkeypatch, caplog):
    """The update ends well, what follows it is done, and the next checkpoint is tried again."""
    store = Store(tmp_path / "store", threads=1)

    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in NAMES[:9]:
        store.update(data / name, score="a", metrics=["roc_auc"])
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_checkpoint", fill)
        assert store.update(data / NAMES[9]).new == (NAMES[9],)
    assert "version 8 was committed, but not its checkpoint: " in caplog.text
    assert nights(store) == NAMES[:10]
    states = (tmp_path / "store" / "states").rename(tmp_path / "hidden")
    assert len(store.history("roc_auc", cumulative=False).points) == 10  # cached after the commit
    states.rename(tmp_path / "store" / "states")


def test_a_commit_whose_answer_is_lost_stands(store, data, monkeypatch):
    """A repeated request finds the version taken, by itself."""
    write = RowTable._write

    def lose(*args: Any) -> None:
        write(*args)
        raise CommitFailedError("version 2 is taken")

    monkeypatch.setattr(RowTable, "_write", lose)
    assert store.update(data / NAMES[2]).version == 2
    assert nights(store) == NAMES[:3]


def test_everything_is_on_the_disk_before_what_names_it(tmp_path, data, monkeypatch):
    """Each rename and each commit follows the sync of its content, and is followed by that of its directory."""
    steps: list[tuple[str, str]] = []
    sync, write, replace = saving.sync, RowTable._write, Path.replace

    def watch(path: Any) -> None:
        steps.append(("sync", str(path)))
        sync(path)

    def rename(part: Path, path: Any) -> Any:
        assert steps[-1] == ("sync", str(part)) or Path(path).suffix == ".parquet"
        steps.append(("rename", str(path)))
        return replace(part, path)

    def commit(table: RowTable, *rest: Any) -> None:
        named = [path for what, path in steps if what == "rename"]
        assert all(("sync", str(Path(path).parent)) in steps for path in named)
        write(table, *rest)
        steps.append(("commit", table.location.path))

    for module in (saving, delta, published):
        monkeypatch.setattr(module, "sync", watch)
    monkeypatch.setattr(RowTable, "_write", commit)
    monkeypatch.setattr(Path, "replace", rename)
    store = Store(tmp_path / "store", threads=1)
    store.update(data / NAMES[0], score="a")
    store.check("rows > 0")
    store.evaluate().save(tmp_path / "result.json")
    accumulator = Accumulator(score="a")
    accumulator.update(pq.read_table(data / NAMES[0], partitioning=None))
    accumulator.save(tmp_path / "saved")
    for i, (what, path) in enumerate(steps):
        if what == "rename" and Path(path).suffix == ".parquet":  # files of a commit wait together, before it
            until = next((j for j in range(i, len(steps)) if steps[j][0] == "commit"), len(steps))
            assert ("sync", str(Path(path).parent)) in steps[steps.index(("sync", path), i, until) : until]
        elif what == "rename":
            assert steps[i + 1] == ("sync", str(Path(path).parent))
        if what == "commit":
            log = Path(path, LOG)
            (file, *folders) = [Path(synced) for _, synced in steps[i + 1 : i + 6]]
            assert (file.parent, file.suffix, folders) == (log, ".json", [log, *list(log.parents)[:3]])
    renamed = [Path(path).name for what, path in steps if what == "rename"]
    assert {"accumulator.json", "result.json"} <= set(renamed)
    assert {Path(path).name for what, path in steps if what == "commit"} == {"ledger", "history", "checks"}


@pytest.mark.skipif(
    not (LOOPS and FUZZ.exists()), reason="needs root, loop devices, mkfs.ext4 and the benchmarks of a checkout"
)
def test_no_verb_is_lost_in_a_power_cut(tmp_path):
    """A cut after verbs on a real file system; `benchmarks/fuzz.py --cuts` makes more of them."""
    script = "import sys, fuzzing.cuts as c; sys.exit(not c.cut_all(1, 0, ['update', 'check']))"
    run = {"cwd": FUZZ.parent, "env": os.environ | {"TMPDIR": str(tmp_path)}}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, **run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("cuts after 1") == 2


# -- versions ---------------------------------------------------------------------------------------------------------


def test_versions_are_forgotten_with_what_only_they_need(tmp_path, data):
    """`vacuum` keeps the versions of the span, says so, and refuses earlier ones by number and time."""
    store = Store(tmp_path / "store", threads=1)
    for name in NAMES[:9]:
        store.update(data / name, score="a")
    store.replace(data / NAMES[0])
    before = store.evaluate().to_json()
    assert store.info().kept == "0 to 9, all kept"
    assert store.vacuum(versions="1d", grace="0s").forgotten == 0
    assert store.vacuum(versions="0s", grace="0s", dry_run=True).forgotten == 10
    done = store.vacuum(versions="0s", grace="0s")
    assert (done.forgotten, done.version) == (10, 11)
    assert store.info().kept == "10 to 11, kept for 0s once replaced"
    assert [fact["version"] for fact in store.versions()] == [11, 10]
    assert commit_numbers(store._context.ledger.location) == [10, 11]
    assert store.evaluate().to_json() == store.evaluate(as_of=10).to_json() == before
    for as_of in (9, "2026-01-01"):
        refuses(OptionError, "the oldest version that is kept is 10, of ", store.evaluate, as_of=as_of)
    used = {state.file for entry in store.partitions() for state in entry.states}
    assert {path.name for path in (tmp_path / "store" / "states").iterdir()} == used
    store.update(data / NAMES[9])
    assert nights(store) == NAMES[:10]
    assert store.vacuum(versions="0s", grace="0s").forgotten == 2
    assert len(list((tmp_path / "store" / "ledger").glob("*.parquet"))) < 8


def test_commits_that_are_all_cut_are_no_store(tmp_path, data):
    """The first update was never acknowledged, and is run again."""
    store = Store(tmp_path / "store", threads=1)
    store.update(data / NAMES[0], score="a")
    [first] = (tmp_path / "store" / "ledger" / LOG).glob("*.json")
    first.write_bytes(b"")
    refuses(StoreError, "there is no store; create it with update", store.evaluate)
    store.update(data / NAMES[1], score="a")
    assert nights(store) == NAMES[1:2]


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), Path.unlink], ids=["empty", "missing"])
def test_a_checkpoint_that_is_cut_is_deleted(tmp_path, data, damage):
    """Commits hold what it held."""
    store = Store(tmp_path / "store", threads=1)
    for name in NAMES[:10]:
        store.update(data / name, score="a")
    [checkpoint] = (tmp_path / "store" / "ledger" / LOG).glob("*.checkpoint.parquet")
    damage(checkpoint)
    store.update(data / NAMES[10])
    assert nights(store) == NAMES
    assert not checkpoint.exists()
