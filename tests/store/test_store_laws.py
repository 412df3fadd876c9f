"""The law of the store: any sequence of corrections equals one evaluation of what survives."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import Store, evaluate
from streameval.errors import MissingInputError
from streameval.store.files import compaction

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


@settings(max_examples=30)
@given(st.lists(steps, min_size=1, max_size=8), st.sampled_from(POLICIES), st.integers(0, 2**20))
def test_any_sequence_of_corrections_is_one_evaluation_of_what_survives(actions, options, seed):
    """Land, replace, remove and merge nights in any order; then evaluate them all, and the first alone."""
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
