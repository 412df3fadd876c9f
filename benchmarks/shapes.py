"""Data that is unkind to streameval: heavy tails, hot keys, arbitrary and string ids, awkward scores.

    python benchmarks/shapes.py --rows 20000000        # writes every shape below /var/tmp

Each id shape has `label`, `cluster`, `campaign` (the class of nine rows in ten is its cluster's) and a continuous
`score`; each score shape has `label`, `score` and `weight`; each has `country`, 60 values that follow Zipf's law.

==============  ====================================================================================================
lone            70 % of the rows are singleton clusters
zipf1.2/1.5     cluster sizes follow Zipf's law, ids are arbitrary 62-bit integers
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

from functools import partial
from typing import TYPE_CHECKING

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import ODD, clusters, data_options, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


def part(shape: str, folder: Path, rows: int, files: int, number: int) -> None:
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

    def write(path: Path) -> None:
        path.mkdir()
        one = dask.delayed(partial(part, shape, path, rows // files, files))
        dask.compute(*(one(number) for number in range(files)), scheduler="threads")

    return sorted(map(str, whole(folder / f"shape-{shape}-{rows}-{files}", write).glob("*.parquet")))


if __name__ == "__main__":
    given = data_options(__doc__).parse_args()
    for name in (*IDS, *SCORES):
        print(name, len(make_shape(name, given.data, given.rows, given.files)), "files", flush=True)
