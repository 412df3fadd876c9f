"""Benchmark data: scores of six distributions, and shapes that are kind and unkind to streameval.

    python benchmarks/data.py --rows 20000000        # writes all of it below /var/tmp

`make` writes 10⁸ rows in 20 files, snappy: label int8 (20 % positive); float32 scores uniform, beta, rare (log-normal,
99.9 % below 0.01), saturated (near 1), logit (normal, σ = 5), cents (101 distinct values); score64, the beta score as
float64 with all its bits; cluster and cluster2, 64-bit ids (70 % of the rows have unique ones); weight. Scores of
positives are shifted upwards.

`make_shape` writes a shape. Each id shape has `label`, `cluster`, `campaign` (the class of nine rows in ten is its
cluster's) and a continuous `score`; each score shape has `label`, `score` and `weight`; each has `country`, 60 values
that follow Zipf's law.

==============  ====================================================================================================
lone            70 % of the rows are singleton clusters
zipf1.2/1.5/2   cluster sizes follow Zipf's law, ids are arbitrary 62-bit integers
hot             half of the rows are in one cluster
hot_pair        half of the rows are in one cluster and one campaign
uniform         10 rows per cluster
few             1,000 clusters
sorted          uniform, sorted by id
dense           uniform, ids are 0, 1, 2, …
uuid            uniform, ids are UUID strings
strings         few, ids are short strings, dictionary-encoded
==============  ====================================================================================================

==============  ====================================================================================================
float32         continuous, beta-distributed
float64         the same with all its bits
rounded         three digits
atom            half of the rows have one score
logits          normal, σ = 5
==============  ====================================================================================================
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT = Path("/var/tmp/streameval-benchmark")
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36), "MALLOC_ARENA_MAX": "1"}  # freed memory
ODD = np.uint64(0x9E3779B97F4A7C15)


def clusters(rng: np.random.Generator, rows: int, total: int) -> np.ndarray:
    """Ids of which 70 in 100 are distinct over `total` rows: two thirds lone messages, others in small campaigns."""
    ids = rng.integers(1 << 62, 1 << 63, rows, dtype=np.uint64)
    shared = rng.random(rows) < 0.33
    ids[shared] = rng.integers(0, max(total * 3 // 100, 1), int(shared.sum()), dtype=np.uint64)
    return (ids * ODD).view(np.int64)


def part(folder: Path, rows: int, total: int, number: int) -> None:
    """Write one file."""
    rng = np.random.Generator(np.random.SFC64([7, number]))
    label = rng.random(rows) < 0.2
    normal = rng.standard_normal(rows, dtype=np.float32) + label.astype(np.float32)
    beta = np.where(label, rng.beta(4, 2, rows), rng.beta(2, 4, rows))
    columns = {
        "label": label.astype(np.int8),
        "uniform": np.where(label, np.sqrt(rng.random(rows)), rng.random(rows)).astype(np.float32),
        "beta": beta.astype(np.float32),
        "rare": np.minimum(np.exp(normal - 8.7), 1).astype(np.float32),
        "saturated": (1 - np.exp(-7 - 2 * normal)).clip(0, 1).astype(np.float32),
        "logit": (5 * normal).astype(np.float32),
        "cents": np.round(beta, 2).astype(np.float32),
        "score64": beta,
        "cluster": clusters(rng, rows, total),
        "cluster2": clusters(rng, rows, total),
        "weight": rng.gamma(2.0, 1.0, rows),
    }
    pq.write_table(pa.table(columns), folder / f"part-{number:02d}.parquet", compression="snappy")


def whole(path: Path, write: Callable[[Path], object]) -> Path:
    """A file or folder that `write` makes unless it exists; written under another name, so that it is complete."""
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(unfinished)
        unfinished.rename(path)
    return path


def written(folder: Path, files: int, part: Callable[..., None]) -> list[str]:
    """Files that `part` writes, given their folder and number, unless they exist."""

    def write(path: Path) -> None:
        path.mkdir()
        one = dask.delayed(partial(part, path))
        dask.compute(*(one(number=number) for number in range(files)), scheduler="threads")

    return sorted(map(str, whole(folder, write).glob("*.parquet")))


def make(folder: Path, rows: int, files: int) -> list[str]:
    """Write the data unless it exists; returns the files."""
    return written(folder / f"scores-{rows}-{files}", files, partial(part, rows=rows // files, total=rows))


def settled(memory: dict[str, str]) -> None:
    """Restart this command unless it has these settings of the C library, which a process reads when it starts."""
    if memory.items() - os.environ.items():
        again = subprocess.run([sys.executable, *sys.argv], env=os.environ | memory, check=False)
        raise SystemExit(again.returncode)


def data_options(description: str | None) -> argparse.ArgumentParser:
    """Options of benchmarks with data: folder, rows and files."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=20)
    return parser


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Arbitrary 62-bit ids, one for each number."""
    return ((numbers.astype(np.uint64) * ODD) >> np.uint64(2)).view(np.int64)


def zipf(exponent: float, rng: np.random.Generator, rows: int, _: int) -> np.ndarray:
    """Ids whose counts follow Zipf's law."""
    return mixed(rng.zipf(exponent, rows))


def uniform(rng: np.random.Generator, rows: int, total: int) -> np.ndarray:
    """Ten rows an id."""
    return rng.integers(0, max(total // 10, 1), rows)


def hot(rng: np.random.Generator, rows: int, total: int) -> np.ndarray:
    """One id for half of the rows."""
    return np.where(rng.random(rows) < 0.5, np.int64(1 << 60), mixed(uniform(rng, rows, total)))


IDS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "lone": clusters,
    "zipf1.2": partial(zipf, 1.2),
    "zipf1.5": partial(zipf, 1.5),
    "zipf2": partial(zipf, 2.0),
    "hot": hot,
    "hot_pair": hot,
    "uniform": lambda rng, rows, total: mixed(uniform(rng, rows, total)),
    "few": lambda rng, rows, _: mixed(rng.integers(0, 1000, rows)),
    "sorted": uniform,
    "dense": uniform,
    "uuid": uniform,
    "strings": lambda rng, rows, _: rng.integers(0, 1000, rows),
}


def beta(rng: np.random.Generator, label: np.ndarray) -> np.ndarray:
    """Scores of two beta distributions."""
    return np.where(label, rng.beta(4, 2, label.size), rng.beta(2, 4, label.size))


SCORES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "float32": lambda rng, label: beta(rng, label).astype(np.float32),
    "float64": beta,
    "rounded": lambda rng, label: np.round(beta(rng, label), 3).astype(np.float32),
    "atom": lambda rng, label: np.where(rng.random(label.size) < 0.5, 0.25, beta(rng, label)).astype(np.float32),
    "logits": lambda rng, label: (5 * (rng.standard_normal(label.size) + label)).astype(np.float32),
}


def column(shape: str, ids: np.ndarray) -> pa.Array:
    """Ids of the shape's type."""
    if shape == "uuid":
        words = [f"{i:016x}" for i in (ids.astype(np.uint64) * ODD).tolist()]
        return pa.array([f"{w[:8]}-{w[8:12]}-{w[12:]}-8000-00000000{w[:4]}" for w in words])
    if shape == "strings":
        return pa.array([f"campaign-{i:04d}" for i in range(1000)]).take(pa.array(ids)).dictionary_encode()
    return pa.array(ids)


def shape_part(shape: str, folder: Path, rows: int, files: int, number: int) -> None:
    """Write one file of a shape."""
    rng = np.random.Generator(np.random.SFC64([11, number, *shape.encode()]))
    label = rng.random(rows) < 0.2
    columns = {"label": label.astype(np.int8)}
    if shape in SCORES:
        columns |= {"score": SCORES[shape](rng, label), "weight": rng.gamma(2.0, 1.0, rows)}
    else:
        ids = IDS[shape](rng, rows, rows * files)
        if shape == "sorted":
            ids = np.sort(ids) // files + number * (rows // 10)
        other = IDS[shape](rng, rows, rows * files)
        campaigns = np.where(rng.random(rows) < 0.9, ids, ids if shape == "hot_pair" else other)
        columns |= {"cluster": column(shape, ids), "campaign": column(shape, campaigns)}
    share = 1 / np.arange(1, 61)
    country = pa.array(rng.choice(60, rows, p=share / share.sum()).astype(np.int32))
    columns["country"] = pa.DictionaryArray.from_arrays(country, [f"c{i:02}" for i in range(60)])
    columns.setdefault("score", SCORES["float32"](rng, label))
    pq.write_table(pa.table(columns), folder / f"part-{number:02d}.parquet", compression="snappy")


def make_shape(shape: str, folder: Path, rows: int, files: int) -> list[str]:
    """Write a shape unless it exists; returns its files."""
    part = partial(shape_part, shape, rows=rows // files, files=files)
    return written(folder / f"shape-{shape}-{rows}-{files}", files, part)


if __name__ == "__main__":
    given = data_options(__doc__).parse_args()
    print(f"{len(make(given.data, given.rows, given.files))} files in {given.data}")
    for name in (*IDS, *SCORES):
        print(name, len(make_shape(name, given.data, given.rows, given.files)), "files", flush=True)
