"""The fourteen nights of the real data set as a store meets them, for the tests of the store."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streameval import Store
from streameval.store.files.entries import Entry

DATA = Path(__file__).parent / "data" / "spam_messages"
NIGHTS = sorted(path.name for path in DATA.iterdir() if path.is_dir())
SCORES = ["score_lr", "score_nb", "score_q"]
CLUSTERS = ["cluster_loose", "cluster_tight"]
OPTIONS = {"score": SCORES, "cluster": CLUSTERS, "classes": "campaign"}
FEW = {"score": "score_lr", "cluster": "cluster_loose"}


def land(night: str, data: Path) -> Path:
    """Copy a night into the data."""
    shutil.copytree(DATA / night, data / night, dirs_exist_ok=True)
    return data / night


def correct(night: str, data: Path) -> Path:
    """Issue a night's labels again: every third label is flipped."""
    path = data / night / "part-0.parquet"
    table = pq.read_table(path, partitioning=None)
    label = table["label"].to_numpy().copy()
    label[::3] = 1 - label[::3]
    index = table.schema.get_field_index("label")
    pq.write_table(table.set_column(index, "label", pa.array(label)), path)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    return path.parent


def forge(store: Store, change: Callable[[Entry], dict[str, Any]], *nights: str, **keeps: Any) -> None:
    """Commit a version of which some nights, or all, have other facts, with the right checksums.

    Parameters
    ----------
    store : the store
    change : the changed facts of an entry
    nights : names of the nights
    keeps : changes of the configuration
    """
    ledger = store._context.ledger
    snapshot = ledger.read()
    entries = [
        replace(e, **change(e)) if e.partition in (nights or snapshot.entries) else e for e in snapshot.entries.values()
    ]
    ledger.commit(snapshot, snapshot.configuration | keeps, entries, "forged")
