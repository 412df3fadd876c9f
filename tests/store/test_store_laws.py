"""What any sequence of corrections leaves of a store, and where stores may lie."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import FEW, NIGHTS, land
from processes import obey_permissions
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import MissingInputError, OptionError
from streameval.store.files import compaction


@pytest.fixture
def data(tmp_path):
    """Two nights."""
    for name in NIGHTS[:2]:
        land(name, tmp_path / "data")
    return tmp_path / "data"


def tree(folder: Path) -> list[str]:
    """Everything in a directory."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("store", "named", "message"),
    [
        ("data/store", "data", "it lies in its data"),
        ("data", "data", "the data .* lie in it"),
        ("data/.store", "data", "it lies in its data"),
        (".", "data", "the data .* lie in it"),
        ("link/store", "data", "it lies in its data"),
        (".", "data/*", "the data .* lie in it"),
        ("other", "data", r"holds other files \(notes.txt\); give the store its own directory"),
    ],
)
def test_a_store_in_the_wrong_place_is_refused_before_anything_is_written(data, tmp_path, store, named, message):
    """Inside its data, around it, the same place by another name, at a directory with other files."""
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    for verb in (lambda s, d: s.update(d, **FEW), lambda s, d: s.update(d, dry_run=True, **FEW)):
        refuses(OptionError, message, verb, Store(tmp_path / store), tmp_path / named)
    assert tree(tmp_path) == before


def test_a_pattern_that_meets_the_store_is_refused(data, tmp_path):
    """It would fold the store's own files."""
    shutil.move(data, tmp_path / "in" / "data")
    store = Store(tmp_path / "in" / "store")
    store.update(tmp_path / "in" / "data", **FEW)
    refuses(OptionError, "which the data name, lies in it", store.update, [tmp_path / "in" / "*" / "*"])
    refuses(OptionError, "lie in it", store.replace, tmp_path / "in" / "store" / "states")
    refuses(OptionError, "lie in it", store.add, score="score_nb", data=tmp_path / "in" / "store")


def test_hidden_and_temporary_files_of_other_tools_are_known(data, tmp_path):
    """Among the data, and where a store begins."""
    for name in ("_SUCCESS", "_temporary", ".part-0.parquet.crc", "part-1.parquet.part", ".DS_Store"):
        (data / NIGHTS[0] / name).write_text("not Parquet")
    (data / "_SUCCESS").write_text("")
    where = tmp_path / "store"
    (where / "_temporary").mkdir(parents=True)
    (where / ".nfs0001").write_text("")
    (where / "lost.crc").write_text("")
    store = Store(where)
    assert store.update(data, **FEW).new == tuple(NIGHTS[:2])
    assert not any(entry.incomplete for entry in store.partitions())
    assert store.update(data).unchanged == 2


CLOSED = [  # a command, the place that may not be read, and what the error names
    ("show store", "store", "store/ledger"),
    ("evaluate store", "store", "store"),
    ("update store data", "store/ledger", "store/ledger"),
    ("show store", "store/states", "store/states/*.parquet"),
    ("evaluate data --score score_lr", f"data/{NIGHTS[1]}", f"data/{NIGHTS[1]}"),
    ("evaluate data/night=* --score score_lr", f"data/{NIGHTS[1]}", f"data/{NIGHTS[1]}"),
    (f"evaluate data/{NIGHTS[1]}/part-0.parquet --score score_lr", f"data/{NIGHTS[1]}", f"data/{NIGHTS[1]}/part-0.*"),
]
RUN = """import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from processes import run
for words, closed, _ in json.loads(sys.argv[2]):
    Path(closed).chmod(0)
    done = run(*words.split())
    Path(closed).chmod(0o755)
    print(json.dumps([done.exit_code, done.stderr]))
"""


def test_a_directory_that_may_not_be_read_is_named(data, tmp_path):
    """With access as the remedy: nothing is missing or damaged, and no store needs to be created or restored."""
    Store(tmp_path / "store").update(data, **FEW)
    words = [sys.executable, "-c", RUN, str(Path(__file__).parents[1]), json.dumps(CLOSED)]
    done = subprocess.run(
        words, cwd=tmp_path, preexec_fn=obey_permissions, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for line, (command, _, named) in zip(done, CLOSED, strict=True):
        status, said = json.loads(line)
        assert status == 1, command
        assert fnmatchcase(said, f"streameval: error: *{named}: *permission denied; grant read access to it\n"), said


NAMES = [f"night=2026-01-0{i}" for i in range(1, 5)]
POLICIES = [
    {"score": ["f4", "f8"], "cluster": "id", "classes": "class", "nulls": "singleton", "nan": "half"},
    {
        "score": "f4",
        "cluster": "id",
        "cluster_scope": "partition",
        "nulls": "drop",
        "unlabelled": "drop",
        "nan": "drop",
    },
    {"score": ["f4", "f8"], "nan": "drop", "approx": True, "unlabelled": "drop"},
]
METRICS = {"score": "roc_auc", "cluster": "aul", "classes": "adjusted_rand_index"}  # others follow from the same states


def write(folder: Path, seed: int, files: int) -> None:
    """Write a night of random rows with ties, NaN, nulls and repeated ids, in some files; other files are deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    rng = np.random.default_rng(seed)
    for number in range(files):
        rows = int(rng.integers(1, 30))
        score = rng.integers(0, 8, rows) / 7
        score[rng.random(rows) < 0.1] = np.nan
        nothing = rng.random(rows) < 0.1
        columns = {
            "label": pa.array(rng.integers(0, 2, rows).astype(np.int8)),
            "f4": pa.array(score.astype(np.float32)),
            "f8": pa.array(rng.random(rows)),
            "id": pa.array(rng.integers(0, 9, rows), mask=nothing),
            "class": pa.array(rng.integers(0, 4, rows)).cast(pa.string()),
        }
        path = folder / f"part-{number}.parquet"
        pq.write_table(pa.table(columns), path)
        os.utime(path, ns=(seed, seed))  # no two contents have one time


VERBS = ["land", "land", "replace", "remove", "vacuum"]
steps = st.tuples(st.sampled_from(VERBS), st.sampled_from(NAMES), st.integers(1, 3))


@settings(max_examples=16)
@given(st.lists(steps, min_size=3, max_size=8), st.sampled_from(POLICIES), st.integers(0, 2**20))
def test_any_sequence_of_corrections_is_one_evaluation_of_what_survives(actions, options, seed):
    """Land, replace, remove and merge nights in any order; then evaluate them all, and the first alone."""
    options = options | {"metrics": [metric for kind, metric in METRICS.items() if kind in options]}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "FAN", 2)
        patch.setattr(compaction, "LENGTH", 2)
        data, store = Path(folder, "data"), Store(Path(folder, "store"), threads=1)
        alive: set[str] = set()
        for i, (action, name, files) in enumerate(actions):
            if action == "remove" and name in alive:
                store.remove(name)
                alive.discard(name)
            elif action == "replace" and name in alive:
                write(data / name, seed + i + 1, files)
                assert store.replace(data / name).changed == (name,)
            elif action == "land":
                write(data / name, seed + i + 1, files)
                done = store.update(data / name, **options)
                assert done.new + done.changed == (name,)
                alive.add(name)
            elif action == "vacuum" and alive:
                store.vacuum(grace="0s")
        if not alive:
            return
        names = sorted(alive)
        for chosen in (names, names[:1]):
            found = outcome(lambda chosen=chosen: store.evaluate(chosen))
            assert found == outcome(lambda chosen=chosen: evaluate([data / n for n in chosen], threads=1, **options))
        [point] = store.history("roc_auc", "f4", last=1).points
        assert repr(point.night.value) == repr(store.evaluate(last=1).value("roc_auc", "f4"))


def outcome(run) -> str:
    """The numbers, or that there are no rows."""
    try:
        return run().to_json()
    except MissingInputError:
        return "no rows"
