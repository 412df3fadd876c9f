"""The store under faults: killed or out of space at every write, two updates at once, damaged files."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from nightly import FEW, NIGHTS, forge, land
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import FormatError, StoreError
from streameval.store.files import ledger
from streameval.store.nights.results import MetricSeries

FAULTS = [  # mode, late labels, step between the calls that are tried or number of kills
    ("kill", False, 1),
    ("full", False, 1),
    ("kill", True, 1),
    ("full", True, 3),
    ("random", False, 6),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What one process of the driver, with the library that counts writes, tells of all faults."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    root, here = tmp_path_factory.mktemp("faults"), Path(__file__).parents[2]
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", root / "shim.so", here / "faults.c", "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    words = [sys.executable, here / "faults.py"]
    for mode, late, step in FAULTS:
        words += [prepare(root / f"{mode}-{late}", mode, late=late), mode, str(step)]
    environment = os.environ | {"LD_PRELOAD": str(root / "shim.so")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(FAULTS, json.loads(done.stdout), strict=True)), done.stderr


def prepare(folder: Path, mode: str, *, late: bool) -> Path:
    """A store of one night that makes checkpoints, and data for an update by two more nights, or by one.

    Where writes are counted, it merges histograms as well, which are large. Kills meet a second column, whose files are
    written as those of the first; a full disk meets one night only, since those after it write the same. Few metrics
    are kept, since every run evaluates them several times. With `late` labels for the first night as well.
    """
    land(NIGHTS[0], folder / "data")
    store = Store(folder / "store")
    both = mode == "kill" and not late
    columns = FEW | {"metrics": ["roc_auc", "aul"]} if both else {"score": "score_lr", "metrics": "roc_auc"}
    if late:  # a table of the opposite labels
        columns |= {"on": "message_id", "label_conflicts": "drop"}
        labels = pq.read_table(folder / "data" / NIGHTS[0], columns=["message_id", "label"], partitioning=None)
        flipped = pa.array(1 - labels["label"].to_numpy())
        pq.write_table(labels.set_column(1, "label", flipped), folder / "labels.parquet")
    store.update(folder / "data", **columns, approx=mode != "random" and not late)
    for _ in range(8):
        store.remove([])  # a commit that changes nothing; the tenth has a checkpoint
    for name in NIGHTS[1 : 2 if mode == "full" or late else 3]:
        land(name, folder / "data")
    return folder


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_at_any_write_or_time_leaves_the_store_as_before_or_after(fault, outcomes):
    """Killed, or told that the disk is full, at the first call that writes, the second, … and the last.

    An update with late labels folds a new night and an old one anew, in one commit. Kills are tried at every write of
    both updates, a full disk at every write of one and at some of the other's. Other kills are at random times, all of
    them while the update runs.
    """
    found, errors = outcomes[0][fault], outcomes[1]
    assert not found["faults"], (found, errors[:3000])
    assert found["before"]
    if fault[0] == "random":
        assert found["runs"] == 6
    else:
        assert found["runs"] > 20
        assert found["after"]


# -- two at once ------------------------------------------------------------------------------------------------------


def test_of_two_first_updates_one_begins_the_store(tmp_path, monkeypatch):
    """The other is refused, whatever its columns."""
    one, other = Store(tmp_path / "store"), Store(tmp_path / "store")
    nothing = other._context.ledger.read()
    one.update(land(NIGHTS[0], tmp_path / "data"), **FEW)
    monkeypatch.setattr(other._context.ledger, "read", lambda *_: nothing)
    refuses(StoreError, "created this store meanwhile", other.update, tmp_path / "data", score="score_q")
    assert one.evaluate().value("aul") > 0


def test_processes_that_update_at_once_count_every_night_once(tmp_path):
    """Eight processes race; each lands or is refused, and in the end every night counts once."""
    for name in NIGHTS[:4]:
        land(name, tmp_path / "data")
    store, data = str(tmp_path / "store"), tmp_path / "data"
    Store(store).update(data / NIGHTS[0], **FEW)
    words = [sys.executable, str(Path(__file__).parents[2] / "faults.py"), "race", store, str(data), *NIGHTS[1:4]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    statuses = json.loads(done.stdout)
    assert len(statuses) == 8
    assert set(statuses) <= {0, 3}, done.stderr
    assert 0 in statuses
    Store(store).update(data)
    assert [entry.partition for entry in Store(store).partitions()] == NIGHTS[:4]
    assert Store(store).evaluate().to_json() == evaluate(data, **FEW).to_json()


# -- damaged files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A store of two nights, and the state files of the second."""
    for name in NIGHTS[:2]:
        land(name, tmp_path / "data")
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", **FEW)
    monkeypatch.setattr(MetricSeries, "recall", lambda *_: None)  # a cached evaluation needs no state
    return store, [tmp_path / "store" / "states" / kept.file for kept in store.partitions()[1].states]


def test_cut_off_missing_and_exchanged_files_are_refused(stored, tmp_path):
    """By name, with the remedy; folding the night again mends the store."""
    store, [one, other] = stored
    whole, expected = one.read_bytes(), store.evaluate().to_json()
    for content in (whole[:-9], b"", other.read_bytes()):
        one.write_bytes(content)
        refuses(FormatError, one.name, store.evaluate)
    one.unlink()
    refuses(FormatError, rf"{one.name}: no longer exists .*replace", store.evaluate)
    store.replace(tmp_path / "data" / NIGHTS[1])
    assert store.evaluate().to_json() == expected


def test_a_state_of_another_column_is_not_taken_for_it(stored):
    """A whole and sound state file in the place of another is refused."""
    store, [_, other] = stored
    forge(store, lambda e: {"states": (replace(e.states[0], file=other.name), e.states[1])}, NIGHTS[1])
    refuses(FormatError, other.name, store.evaluate)


def test_a_ledger_of_a_later_format_or_of_others_is_refused(stored, tmp_path, monkeypatch):
    """Nothing is guessed: the message names the format and the remedy."""
    store, _ = stored
    snapshot = store._context.ledger.read()
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "FORMAT", 2)
        store._context.ledger.commit(snapshot, snapshot.configuration, snapshot.entries.values(), "later")
    refuses(StoreError, r"format 2, .* reads format 1: upgrade it", store.evaluate)
    write_deltalake(str(tmp_path / "store" / "ledger"), pa.table({"x": [1]}), mode="overwrite", schema_mode="overwrite")
    refuses(StoreError, "is not streameval's", store.update, tmp_path / "data")


def planted(store: Store, path: Path, night: int, metadata: dict[bytes, bytes]) -> None:
    """Put a state file with other metadata, under the name that its bytes deserve, in a night's first place."""
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **metadata}), path)
    name = hashlib.sha256(path.read_bytes()).hexdigest() + f"-{0:016}.parquet"
    path.rename(path.with_name(name))
    forge(store, lambda e: {"states": (replace(e.states[0], file=name), *e.states[1:])}, NIGHTS[night])


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({b"streameval.version": b"99"}, "cannot read version 99 of score_counts"),
        ({b"streameval.kind": b"horoscope"}, "state of kind 'horoscope'"),
        ({b"streameval.rows": b"[1, 1]"}, "incomplete or damaged"),
    ],
)
def test_state_files_of_later_versions_and_foreign_ones_are_refused(stored, metadata, reason):
    """By name and reason, although their bytes are as they were written."""
    store, [path, *_] = stored
    planted(store, path, 1, metadata)
    refuses(FormatError, reason, store.evaluate)
    assert store.evaluate(NIGHTS[0]).rows
