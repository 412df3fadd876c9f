"""The store over a year of nights: night 365 against night 1, the year from states against the raw files, bytes a row.

    python benchmarks/store.py --nights 60 --rows 100_000            a few minutes
    python benchmarks/store.py --nights 365 --rows 1_000_000         the full size: 20 GB, an hour

Every night has a float32 and a float64 score and 64-bit cluster ids. Each store is made night by night; the time of a
night is that of `update`: finding it, folding it, committing it, and its own metrics.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval import Store, evaluate

ODD = np.uint64(0x9E3779B97F4A7C15)
STORES = {
    "exact": {"score": "beta", "cluster": "cluster"},
    "exact, float32 score": {"score": "beta"},
    "exact, float64 score": {"score": "score64"},
    "exact, 64-bit ids": {"cluster": "cluster"},
    "bounded, float32 score": {"score": "beta", "approx": True},
}


def write_night(folder: Path, night: int, rows: int) -> Path:
    """Write a night: scores of a classifier, most ids new, some of campaigns that last."""
    path = folder / f"night={night:04d}"
    if not path.exists():
        path.mkdir(parents=True)
        rng = np.random.Generator(np.random.SFC64([3, night]))
        label = rng.random(rows) < 0.2
        beta = np.where(label, rng.beta(4, 2, rows), rng.beta(2, 4, rows))
        ids = rng.integers(1 << 62, 1 << 63, rows, dtype=np.uint64)
        shared = rng.random(rows) < 0.33
        ids[shared] = rng.integers(0, max(rows // 10, 1), int(shared.sum()), dtype=np.uint64)
        columns = {
            "label": label.astype(np.int8),
            "beta": beta.astype(np.float32),
            "score64": beta,
            "cluster": (ids * ODD).view(np.int64),
        }
        pq.write_table(pa.table(columns), path / "part-0.parquet", compression="snappy")
    return path


def timed(work):
    """The result of `work`, and its seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def measure(name: str, options: dict, data: Path, place: Path, nights: int, rows: int) -> None:
    """Make one store night by night and print its figures."""
    shutil.rmtree(place, ignore_errors=True)
    store = Store(place)
    spans = [timed(lambda n=n: store.update(data / f"night={n:04d}", **options))[1] for n in range(nights)]
    size = sum(kept.bytes for entry in store.partitions() for kept in entry.states)
    first, last = (float(np.median(part)) for part in (spans[1:8], spans[-7:]))
    print(f"{name}: night 1 {first:.3f} s, night {nights} {last:.3f} s, {last / first:.2f} ×; ", end="")
    print(f"{size / (nights * rows):.2f} bytes a row")
    raw, raw_span = timed(lambda: evaluate(data, **options))
    found, span = timed(store.evaluate)
    assert found.to_json() == raw.to_json()
    print(f"    the year: raw {raw_span:.2f} s, from states {span:.2f} s, {raw_span / span:.1f} × faster")
    again = timed(store.evaluate)[1]
    print(f"    once more {again:.3f} s")


def main() -> None:
    """Write the nights, and measure every store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/streameval-benchmark-store"))
    parser.add_argument("--only", help="part of a store's name")
    given = parser.parse_args()
    data = given.folder / f"{given.rows}"
    for night in range(given.nights):
        write_night(data, night, given.rows)
    for extra in data.glob("night=*"):
        if int(extra.name[6:]) >= given.nights:
            shutil.rmtree(extra)
    evaluate(data / "night=0000", score=["beta", "score64"], cluster="cluster")  # compiled, or read from the cache
    evaluate(data / "night=0000", score="beta", approx=True)
    for name, options in STORES.items():
        if given.only is None or given.only in name:
            measure(name, options, data, given.folder / "store", given.nights, given.rows)


if __name__ == "__main__":
    main()
