"""Benchmark data: 10⁸ rows in 20 files, snappy, with scores of six distributions.

Columns: label int8 (20 % positive); float32 scores uniform, beta, rare (log-normal, 99.9 % below 0.01), saturated (near
1), logit (normal, σ = 5), cents (101 distinct values); score64, the beta score as float64 with all its bits; cluster
and cluster2, 64-bit ids (70 % of the rows have unique ones); weight. Scores of positives are shifted upwards.
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


def make(folder: Path, rows: int, files: int) -> list[str]:
    """Write the data unless it exists; returns the files."""

    def write(path: Path) -> None:
        path.mkdir()
        one = dask.delayed(partial(part, path, rows // files, rows))
        dask.compute(*(one(number) for number in range(files)), scheduler="threads")

    return sorted(map(str, whole(folder / f"scores-{rows}-{files}", write).glob("*.parquet")))


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


if __name__ == "__main__":
    given = data_options(__doc__).parse_args()
    print(f"{len(make(given.data, given.rows, given.files))} files in {given.data}")
