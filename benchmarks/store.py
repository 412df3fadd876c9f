"""The store over a year of nights: night 365 against night 1, the year from states against the raw files, bytes a row.

    python benchmarks/store.py                                   365 nights of 10⁶ rows: 2 GB, some minutes
    python benchmarks/store.py --nights 60 --repeat 2            a minute

A night has a label and a float32 score. The first and the last nights land one by one, and the time of a night is that
of `update`: finding it, folding it, committing it, and its own metrics; those between land together, thirty at a time.
Then the year is evaluated from the raw files and from the states in turns, without remembered results; the best of each
counts. Once more after `vacuum`, which merges every 32 nights. Bytes a row of the other columns are those of a few
nights.
"""

from __future__ import annotations

import argparse
import shutil
import time
from functools import partial
from pathlib import Path

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import KEEP, settled

from streameval import Store, evaluate

ODD = np.uint64(0x9E3779B97F4A7C15)
EDGE = 5  # nights that land one by one, at the beginning and at the end
BATCH = 30  # nights that land together
WIDE = {
    "float32 scores": {"score": "beta"},
    "float64 scores": {"score": "score64"},
    "64-bit ids": {"cluster": "cluster"},
}


def write_night(folder: Path, rows: int, wide: bool, night: int) -> None:
    """Write a night: scores of a classifier; wide, also with all their bits, and ids, some of campaigns that last."""
    path = folder / f"night={night:04d}"
    if path.exists():
        return
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
    """The first nights, written unless they are there."""
    write = dask.delayed(partial(write_night, folder, rows, wide))
    dask.compute(*(write(night) for night in range(nights)), scheduler="threads")
    return [folder / f"night={night:04d}" for night in range(nights)]


def timed(work):
    """The result of `work`, and its seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def land(store: Store, nights: list[Path], options: dict) -> tuple[float, float]:
    """Make a store; seconds of a night at the beginning, but for the very first, and at the end."""
    last = len(nights) - EDGE
    first = [timed(lambda night=night: store.update(night, **options))[1] for night in nights[:EDGE]]
    for i in range(EDGE, last, BATCH):
        store.update(nights[i : min(i + BATCH, last)])
    final = [timed(lambda night=night: store.update(night))[1] for night in nights[last:]]
    return float(np.median(first[1:])), float(np.median(final))


def year(store: Store, place: Path, data: list[Path], options: dict, repeat: int) -> tuple[list[float], list[float]]:
    """Seconds of the year from the raw files and from the states, in turns."""
    raw, states = [], []
    for _ in range(repeat):
        expected, span = timed(lambda: evaluate(data, **options))
        raw.append(span)
        shutil.rmtree(place / "results", ignore_errors=True)
        found, span = timed(store.evaluate)
        states.append(span)
        assert found.to_json() == expected.to_json()
    return raw, states


def report(what: str, raw: list[float], states: list[float], target: float) -> None:
    """Print the two, the best of each against the other."""
    ratio = min(raw) / min(states)
    spans = " and ".join(" ".join(f"{span:.2f}" for span in part) for part in (raw, states))
    print(f"| {what} | {min(raw):.2f} | {min(states):.2f} | {ratio:.2f} | ≥ {target} | {spans} |", flush=True)


def main() -> None:
    """Write the nights, and measure."""
    settled(KEEP)
    parser = argparse.ArgumentParser()
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/streameval-benchmark-store"))
    given = parser.parse_args()
    data = write_nights(given.folder / f"{given.rows}", given.nights, given.rows, wide=False)
    wide = write_nights(given.folder / f"{given.rows}-wide", EDGE, given.rows, wide=True)
    place = given.folder / "store"
    print(f"{given.nights} nights of {given.rows:,} rows\n\n| stored | bytes a row |\n|---|---|")
    for what, options in WIDE.items():
        shutil.rmtree(place, ignore_errors=True)
        store = Store(place)
        store.update(wide, **options)
        size = sum(kept.bytes for entry in store.partitions() for kept in entry.states)
        print(f"| {what} | {size / (EDGE * given.rows):.2f} |", flush=True)
        store.evaluate()  # compiled, or read from the cache
    evaluate(wide, score="beta", approx=True)
    print("\n| the year | raw, s | states, s | ratio | target | all |\n|---|---|---|---|---|---|")
    nightly = {}
    for what, approx, target in (("exact", False, 1.2), ("bounded", True, 10)):
        shutil.rmtree(place, ignore_errors=True)
        store, options = Store(place), {"score": "beta", "approx": approx}
        nightly[what] = land(store, data, options)
        report(what, *year(store, place, data, options, given.repeat), target)
        store.vacuum()
        report(f"{what}, old nights merged", *year(store, place, data, options, 2), target)
    print(f"\n| a night | 1, s | {given.nights}, s | ratio | target |\n|---|---|---|---|---|")
    for what, (first, last) in nightly.items():
        print(f"| {what} | {first:.3f} | {last:.3f} | {last / first:.2f} | ≤ 1.3 |")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
