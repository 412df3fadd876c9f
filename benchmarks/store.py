"""The store over a year: night 365 against night 1, states against raw files, and bytes per row.

    python benchmarks/store.py                                   365 nights of 10⁶ rows: 2 GB, some minutes
    python benchmarks/store.py --nights 60 --repeat 2            a minute
    python benchmarks/store.py --small                           nights of 10⁴ rows by the command line, 1 and 365
    python benchmarks/store.py --always                          20 rules of 200 slices on nights of 10⁴ rows
    python benchmarks/store.py --labels                          labels that come late: 2·10⁷ rows, nights of 2·10⁶

A night has a label and a float32 score. Nights land one at a time, and the time of a night is that of `update`: finding
it, folding it, committing it, its metrics, and occasional merges of histograms. The last nights land alternately in
this store and in a second one that began with a single night; their medians are compared. Then the year is evaluated
alternately from the raw files and from the states, without cached results; the best of each counts. Exact states are
evaluated again after `vacuum`, which merges every 32 nights. Bytes per row of the other columns are measured on a few
nights.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
import late_labels
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import KEEP, settled, whole

from streameval import Store, evaluate

ODD = np.uint64(0x9E3779B97F4A7C15)
EDGE = 10  # nights that are timed
BASELINE = 7  # nights that a rule compares with
SMALL = 10_000  # rows of a small night
FEW = 5  # nights of wide rows
WIDE = {
    "float32 scores": {"score": "beta"},
    "float64 scores": {"score": "score64"},
    "64-bit ids": {"cluster": "cluster"},
}


def write_night(rows: int, wide: bool, night: int, path: Path) -> None:
    """Write a night: scores of a classifier; if wide, also as float64, and ids, some of lasting campaigns."""
    rng = np.random.Generator(np.random.SFC64([3, night]))
    label = rng.random(rows) < 0.2
    beta = np.where(label, rng.beta(4, 2, rows), rng.beta(2, 4, rows))
    columns = {"label": label.astype(np.int8), "beta": beta.astype(np.float32)}
    if wide:
        ids = rng.integers(1 << 62, 1 << 63, rows, dtype=np.uint64)
        shared = rng.random(rows) < 0.33
        ids[shared] = rng.integers(0, max(rows // 10, 1), int(shared.sum()), dtype=np.uint64)
        columns |= {"score64": beta, "cluster": (ids * ODD).view(np.int64)}
    path.mkdir(parents=True)
    pq.write_table(pa.table(columns), path / "part-0.parquet", compression="snappy")


def write_nights(folder: Path, nights: int, rows: int, *, wide: bool) -> list[Path]:
    """The first nights, written unless they exist."""
    one = dask.delayed(lambda night: whole(folder / f"night={night:04d}", partial(write_night, rows, wide, night)))
    return list(dask.compute(*(one(night) for night in range(nights)), scheduler="threads"))


def timed(work):
    """The result of `work`, and its seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def land(store: Store, other: Store, nights: list[Path], options: dict) -> tuple[float, float]:
    """Make a store; median seconds of the last nights, there and in a store that began with one night."""
    for night in nights[:-EDGE]:
        store.update(night, **options)
    other.update(nights[0], **options)
    both = other, store
    spans = [[timed(lambda at=at, night=night: at.update(night))[1] for at in both] for night in nights[-EDGE:]]
    first, last = np.median(spans, axis=0)
    return float(first), float(last)


def year(store: Store, place: Path, data: list[Path], options: dict, repeat: int) -> tuple[list[float], list[float]]:
    """Seconds of the year from the raw files and from the states, alternating."""
    raw, states = [], []
    for _ in range(repeat):
        expected, span = timed(lambda: evaluate(data, **options))
        raw.append(span)
        shutil.rmtree(place / "history")  # cached results
        found, span = timed(store.evaluate)
        states.append(span)
        assert found.to_json() == expected.to_json()
    return raw, states


def report(what: str, raw: list[float], states: list[float], target: float) -> None:
    """Print both, and the ratio of the best ones."""
    ratio = min(raw) / min(states)
    spans = " and ".join(" ".join(f"{span:.2f}" for span in part) for part in (raw, states))
    print(f"| {what} | {min(raw):.2f} | {min(states):.2f} | {ratio:.2f} | ≥ {target} | {spans} |", flush=True)


def small(folder: Path) -> None:
    """Print the processor time of `update` and `check` of a night of 10⁴ rows, each a process from its start.

    The first nights of a store, and the same in a store that has a year of them, in turns. The machine is warm: Python
    keeps the bytecode of modules, whatever the environment says.
    """
    data, rng = folder / "data", np.random.default_rng(1)
    warm = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(*words: object) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "streameval", *map(str, words), "--quiet"], check=True, env=warm)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def write(night: int) -> Path:
        label = rng.random(SMALL) < 0.1
        columns = {"label": label, "score": rng.normal(2.0 * label, 1.0).astype("f4")}
        columns["cluster"] = rng.integers(0, SMALL // 3, SMALL)
        path = data / f"night={date(2026, 1, 1) + timedelta(night)}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path)
        return path.parent

    options, rules = (
        {"score": "score", "cluster": "cluster"},
        ["roc_auc[score] >= 0.5", "aul[cluster] drop <= 0.1 or undecided"],
    )
    young, old = Store(folder / "young"), Store(folder / "old")
    for night in range(365 - EDGE):
        path = write(night)
        for store in (young, old) if night < BASELINE else (old,):
            store.update(path, **options)
            store.check(rules)
    named = [word for rule in rules for word in ("--rule", rule)]
    spent: list[list[float]] = []
    for night in range(365 - EDGE, 365):
        path = write(night)
        spent.append([])
        for store in (young, old):
            spent[-1] += [run("update", store.name, path), run("check", store.name, *named)]
    update, check, late_update, late_check = np.median(spent[1:], axis=0)
    first, last = update + check, late_update + late_check
    print(f"a night of {SMALL:,} rows, processor time of update and check as two processes:")
    print(f"first nights {update:.2f} + {check:.2f} = {first:.2f} s (≤ 2.5)")
    print(f"night 365    {late_update:.2f} + {late_check:.2f} = {last:.2f} s, {last / first:.2f} times (≤ 1.3)")


def always(folder: Path, nights: int) -> None:
    """Print the time of `check` of the newest night by 20 rules that are read every night, of 200 slices each.

    Two rules on each of five metrics of two scores; with the cached replicates of the nights before, and without.
    """
    metrics, scores = ("roc_auc", "average_precision", "gini", "agc", "brier_score"), ("s", "t")
    for night in range(nights):
        rng = np.random.default_rng([2, night])
        units = rng.integers(0, 20_000, SMALL)
        columns = {"label": units % 3 == 0, "unit": units, "country": units % 200}
        columns |= {score: 1 / (1 + np.exp(-rng.normal(2.0 * columns["label"], 1.0))) for score in scores}
        path = folder / "data" / f"night={date(2026, 1, 1) + timedelta(night)}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path)
    store = Store(folder / "store")
    store.update(folder / "data", score=scores, metrics=metrics, unit="unit", by="country")
    ends = ">= 0 always @95%", "drop <= 0.5 always @95%"
    rules = [f"{metric}[{score}]{{country=*}} {end}" for metric in metrics for score in scores for end in ends]
    names = [entry.partition for entry in store.partitions()]
    store.check(rules, since=names[-28:][0].removeprefix("night="))
    _, cached = timed(lambda: store.check(rules, names[-1], again=True))
    shutil.rmtree(Path(store.name) / "history")
    found, anew = timed(lambda: store.check(rules, names[-1], again=True))
    counts = Counter(one.outcome for one in found.judgements)
    print(
        f"{len(rules)} rules, night {nights}: {cached:.2f} s (≤ 3), without cache {anew:.2f} s (≤ 60), {dict(counts)}"
    )


def main() -> None:
    """Write the nights, and measure."""
    settled(KEEP)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--always", action="store_true", help="rules that are read every night, of 200 slices")
    parser.add_argument("--labels", action="store_true", help="twenty and two times --rows, at most ten --nights")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/streameval-benchmark-store"))
    given = parser.parse_args()
    if given.labels:
        late_labels.measure(20 * given.rows, 2 * given.rows, min(given.nights, 10))
        return
    if given.small or given.always:
        with TemporaryDirectory() as folder:
            small(Path(folder)) if given.small else always(Path(folder), given.nights)
        return
    data = write_nights(given.folder / f"{given.rows}", given.nights, given.rows, wide=False)
    wide = write_nights(given.folder / f"{given.rows}-wide", FEW, given.rows, wide=True)
    place = given.folder / "store"
    print(f"{given.nights} nights of {given.rows:,} rows\n\n| stored | bytes a row |\n|---|---|")
    for what, options in WIDE.items():
        shutil.rmtree(place, ignore_errors=True)
        store = Store(place)
        store.update(wide, **options)
        size = sum(kept.bytes for entry in store.partitions() for kept in entry.states)
        print(f"| {what} | {size / (FEW * given.rows):.2f} |", flush=True)
        store.evaluate()  # compiled, or read from the cache
    evaluate(wide, score="beta", approx=True)
    print("\n| the year | raw, s | states, s | ratio | target | all |\n|---|---|---|---|---|---|")
    nightly = {}
    for what, approx, target in (("exact", False, 1.2), ("bounded", True, 10)):
        shutil.rmtree(place, ignore_errors=True)
        store, options = Store(place), {"score": "beta", "approx": approx}
        with TemporaryDirectory(dir=given.folder) as other:
            nightly[what] = land(store, Store(Path(other, "store")), data, options)
        report(what, *year(store, place, data, options, given.repeat), target)
        if not approx:
            store.vacuum()
            report(f"{what}, old nights merged", *year(store, place, data, options, 1), target)
    print(f"\n| a night | 1, s | {given.nights}, s | ratio | target |\n|---|---|---|---|---|")
    for what, (first, last) in nightly.items():
        print(f"| {what} | {first:.3f} | {last:.3f} | {last / first:.2f} | ≤ 1.3 |")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
