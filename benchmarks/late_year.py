"""A year of late labels (`year.py --labels`): deliveries, crashes, and the states of the joined files at the end.

Every night one or two files of labels arrive, for rows of the last `OPEN` nights, most of them young, and some for the
next night. They repeat statements of the file before, correct and withdraw others, name ids of no row, and contradict
each other twice. Once a week the update is killed at a random write, and run again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval import Store
from streameval.store.files.published import content_of
from streameval.store.nights.open_nights import OPEN as ROWS

if TYPE_CHECKING:
    from pathlib import Path

OPEN = 90  # days
FILES = 500 / 365  # of labels a night
NIGHT, SECOND = 86_400, 10**6
FIRST = date(2026, 1, 1)
WHAT = {"score": "score", "cluster": "cluster", "metrics": ["roc_auc", "average_precision", "aul"]}
Statements = list[tuple[int, int, int | None]]  # id, seconds since the first night, label


def name(night: int) -> str:
    """The partition of a night."""
    return f"night={FIRST + timedelta(night)}"


def write_night(night: int, rows: int, folder: Path, label: dict[int, int | None] | None = None) -> Path:
    """A night with some ids twice; with labels, these are a column."""
    rng = np.random.default_rng([1, night])
    ids = night * rows + rng.integers(0, rows, rows)
    columns = {"id": ids, "score": rng.normal(ids % 7 == 0, 1).astype("f4"), "cluster": rng.integers(0, rows, rows)}
    if label is not None:
        columns["label"] = pa.array([label.get(one) for one in ids.tolist()], pa.int8())
    (folder / name(night)).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name(night) / "part-0.parquet")
    return folder / name(night)


def draw(rng: np.random.Generator, night: int, rows: int, before: Statements) -> Statements:
    """The statements of a file that arrives in a night."""
    count = max(8, rows // 20)
    ages = np.minimum(rng.exponential(20, count).astype(int) - 1, min(night, OPEN))  # −1: before its night
    ids = (night - ages) * rows + rng.integers(0, rows, count)
    ids[rng.random(count) < 0.01] += 10**15  # orphans
    times = night * NIGHT + rng.permutation(NIGHT)[:count]
    labels = np.where(rng.random(count) < 0.9, ids % 7 == 0, ids % 7 != 0)  # a tenth is wrong, until corrected
    values = [None if lost else int(label) for lost, label in zip(rng.random(count) < 0.02, labels, strict=True)]
    drawn = list(zip(ids.tolist(), times.tolist(), values, strict=True))
    before = [one for one in before if one[0] >= (night - OPEN) * rows]  # later ones say nothing of closed nights
    old = [before[i] for i in rng.integers(0, len(before), count // 10)] if before else []
    corrected = [(one, night * NIGHT + NIGHT, int(one % 7 == 0)) for one, _, _ in old[::2]]
    return [*drawn, *old, *corrected]


def write_labels(statements: Statements, path: Path) -> Path:
    """A file of labels."""
    ids, times, labels = zip(*statements, strict=True)
    first = (FIRST - date(1970, 1, 1)).days * NIGHT
    clock = pa.array([(first + one) * SECOND for one in times], pa.timestamp("us"))
    pq.write_table(pa.table({"id": ids, "t": clock, "label": pa.array(labels, pa.int8())}), path)
    return path


def resolve(statements: Statements) -> tuple[dict[int, int | None], int]:
    """The label of each id, and the number of ids in conflict, which have none."""
    latest: dict[int, tuple[int, set[int | None]]] = {}
    for one, clock, label in statements:
        last, labels = latest.get(one, (-1, set()))
        if clock >= last:
            latest[one] = clock, {label} | (labels if clock == last else set())
    conflicts = sum(len(labels) > 1 for _, labels in latest.values())
    return {one: labels.pop() if len(labels) == 1 else None for one, (_, labels) in latest.items()}, conflicts


def crash(words: list[str], store: Path, rng: np.random.Generator) -> bool:
    """Kill an update once it has written a random number of files; whether it was still running."""
    states, writes = store / "states", int(rng.integers(1, 12))
    before = len(list(states.iterdir()))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(states.iterdir())) < before + writes:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def contents(store: Store) -> dict[tuple[str, str, str], str]:
    """SHA-256 of every state of every night, but for the rows of open nights."""
    states = [(entry.partition, state) for entry in store.partitions() for state in entry.states]
    return {(night, s.group, s.of): content_of(s.file) for night, s in states if s.group != ROWS}


def replay(nights: int, rows: int, folder: Path) -> bool:
    """Run the nights, print costs and maturity; whether the states are those of the joined files."""
    rng, store, every = np.random.default_rng(2), Store(folder / "store"), Statements()
    costs, crashes, last = list[tuple[int, float]](), 0, Statements()
    late = {"on": "id", "label_time": "t", "label_conflicts": "drop", "labels_open": f"{OPEN}d"}
    for night in range(nights):
        data = write_night(night, rows, folder / "data")
        store.update(data, **(WHAT | late if night == 0 else {}))
        for i in range(int((night + 1) * FILES) - int(night * FILES)):
            last = draw(rng, night, rows, last)
            if i == 0 and night in (nights // 3, nights // 2):
                one, clock, _ = last[0]
                last += [(one, clock + OPEN * NIGHT, 0), (one, clock + OPEN * NIGHT, 1)]
            every += last
            labels = write_labels(last, folder / f"labels-{night}-{i}.parquet")
            if i == 0 and night % 7 == 6:
                words = [sys.executable, "-m", "streameval", "update", store.name, "--labels", str(labels)]
                crashes += crash(words, folder / "store", rng)
            began = time.process_time()
            done = store.update(labels=labels, allow_unmatched=True)
            costs.append((len(done.changed), time.process_time() - began))
    label, conflicts = resolve(every)
    joined = Store(folder / "joined-store")
    for night in range(nights):
        joined.update(write_night(night, rows, folder / "joined", label), **WHAT, unlabelled="size")
    touched, spent = np.array(costs).T
    each, rest = np.polyfit(touched, spent, 1) if np.ptp(touched) else (spent.mean() / touched.mean(), 0)
    print(
        f"{len(costs)} files, {len(every):,} statements, {conflicts} conflicts, {crashes} updates killed while they ran"
    )
    print(f"processor time of a delivery: {1000 * rest:.0f} ms and {1000 * each:.1f} ms for each night it touches")
    ages = [age for age in (1, 3, 7, 14, 30, 60, 90) if age < nights]
    print("age  labelled  ROC AUC  change")
    for row in store.maturity("roc_auc", ages=ages).rows[-len(ages) :]:
        print(f"{row.age:3}  {row.labelled:8.2%}  {row.value:.5f}  {row.change:+.5f}")
    one, other = contents(store), contents(joined)
    differ = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    print(f"{len(one) - len(differ)} of {len(one)} state files equal those of the joined files {differ[:3] or ''}")
    return not differ
