"""The goals of late labels (`store.py --labels`), measured in one process: processor time, the median of runs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval import Store, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable

WHAT = {"score": "score", "cluster": "cluster", "unit": "unit"}


def median(work: Callable[[], object], repeat: int = 3) -> float:
    """Seconds of processor time."""
    spans = []
    for _ in range(repeat + 1):
        began = time.process_time()
        work()
        spans.append(time.process_time() - began)
    return float(np.median(spans[1:]))


def write(path: Path, first: int, rows: int, labelled: int = 0) -> Path:
    """Rows with ids from `first` on; the labels of the first ones as a column."""
    rng, ids = np.random.default_rng(first), np.arange(first, first + rows)
    columns = {"id": rng.permutation(ids), "score": rng.normal(size=rows).astype("f4")}
    columns |= {"cluster": rng.integers(0, rows, rows), "unit": rng.integers(0, rows // 5, rows)}
    if labelled:
        own = columns["id"]
        columns["label"] = pa.array((own % 7 == 0).astype("i1"), mask=own >= first + labelled)
    path.mkdir(parents=True)
    pq.write_table(pa.table(columns), path / "part-0.parquet")
    return path


def labels(path: Path, ids: np.ndarray) -> Path:
    """A file of labels."""
    pq.write_table(pa.table({"id": ids, "label": (ids % 7 == 0).astype("i1")}), path)
    return path


def report(what: str, measured: float, goal: str, unit: str = "×") -> None:
    """Print a row."""
    print(f"| {what} | {measured:.3g} {unit} | {goal} |", flush=True)


def joins(folder: Path, rows: int) -> None:
    """`evaluate` with labels in another table, against a label column."""
    data, column = write(folder / "plain", 0, rows), write(folder / "column", 0, rows, rows // 10)
    few, many = (labels(folder / f"{n}.parquet", np.arange(n)) for n in (rows // 10, rows))
    for what, given, goal in (("AUC", {"score": "score"}, "≤ 2.0"), ("AUL", {"cluster": "cluster"}, "≤ 1.15")):
        own = median(lambda given=given: evaluate(column, **given, unlabelled="size" if "cluster" in given else "drop"))
        span = median(lambda given=given: evaluate(data, **given, labels=few, on="id"))
        report(f"{what}, {rows:,} rows × {rows // 10:,} labels, ÷ column", span / own, goal)
    report(f"AUC, {rows:,} labels", median(lambda: evaluate(data, score="score", labels=many, on="id")), "", "s")


def nights(folder: Path, rows: int, count: int) -> None:
    """A store of open nights: opening, deliveries, `replace`, and bytes of a row."""
    names, files, rng = [f"night=2026-01-{i + 1:02}" for i in range(count)], iter(range(1000)), np.random.default_rng(1)
    data, column = (
        [write(folder / kind / n, i * rows, rows, own) for i, n in enumerate(names)]
        for kind, own in (("data", 0), ("column", rows))
    )

    def deliver(store: Store, ids: np.ndarray) -> None:
        store.update(labels=labels(folder / f"{next(files)}.parquet", ids), allow_unmatched=True)

    def fill(name: str, paths: list[Path], **options: str) -> tuple[Store, float]:
        """A store of nights, and the seconds of each after the first."""
        store = Store(folder / name)
        store.update(paths[0], **options)
        began = time.process_time()
        store.update(paths[1:])
        return store, (time.process_time() - began) / (count - 1)

    def spent(store: Store, ids: np.ndarray, size: int) -> float:
        return median(lambda: deliver(store, rng.choice(ids, min(size, ids.size), replace=False)))

    lone, own, orphans = Store(folder / "lone"), np.arange(rows * count), np.arange(10**12, 10**12 + 10**6)
    lone.update(data[0], score="score", on="id")
    for what, given in (("score and units", {"score": "score", "unit": "unit"}), ("and cluster sizes", WHAT)):
        _, closed = fill(f"closed {what}", column, **given)
        store, opening = fill(what, data, **given, on="id")
        report(f"{what}: opening a night ÷ update", opening / closed, "≤ 2.2")
        report(f"{what}: an open row", store.info().late.rows / rows / count, "≤ 20", "B")
        deliver(store, rng.choice(own, rows * count // 100, replace=False))
        for ids, goal in ((10**4, 60), (2 * 10**5, 75)):
            each = spent(store, own, ids) / count
            report(f"{what}: {ids:,} ids, a touched night", 1000 * each, f"≤ {goal}", "ms")
        searched = (spent(store, orphans, 10**4) - spent(lone, orphans, 10**4)) / (count - 1)
        report(f"{what}: a searched night", 1000 * searched, "≤ 6", "ms")
        replaced = median(partial(store.replace, data[0]))
        report(f"{what}: replace ÷ a touched night", replaced / each, "≥ 3, with sizes 8")


def measure(rows: int, night: int, count: int) -> None:
    """Print the goals, and what is measured of `rows` rows and of `count` nights of `night` rows."""
    print("| work | measured | goal |\n|---|--:|--:|")
    with TemporaryDirectory(dir="/var/tmp") as place:
        joins(Path(place, "joins"), rows)
        nights(Path(place, "nights"), night, count)
