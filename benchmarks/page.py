"""Bytes and seconds of the page of a large evaluation: 5 scores, 3 clusterings, 60 slices, 90 nights.

    python benchmarks/page.py [--rows 200000] [--repeat 3]

Times are processor seconds of this process. They include the curves of the page but not the evaluation. The first page
also imports matplotlib and the templates.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval import Store, evaluate

SCORES, CLUSTERS, SLICES, NIGHTS = 5, 3, 60, 90


def written(folder: Path, rows: int) -> Path:
    """The data: one file per night."""
    rng = np.random.default_rng(7)
    for night in range(NIGHTS):
        here = rows // NIGHTS
        label = rng.integers(0, 2, here)
        columns: dict[str, Any] = {"label": label, "segment": [f"segment {i % SLICES:02}" for i in range(here)]}
        columns |= {f"score_{i}": 1 / (1 + np.exp(-rng.normal(label * (1 + i / 2)))) for i in range(SCORES)}
        columns |= {f"cluster_{i}": rng.integers(0, rows // 5, here) for i in range(CLUSTERS)}
        place = folder / f"night={np.datetime64('2026-01-01') + night}"
        place.mkdir(parents=True)
        pq.write_table(pa.table(columns), place / "part-0.parquet")
    return folder


def measured(what: str, made: Any, repeat: int) -> None:
    """Print the cost of a page, for the first and for later calls."""
    took, page = [], ""
    for _ in range(repeat + 1):
        began = time.process_time()
        page = made.to_html()
        took.append(time.process_time() - began)
    size = len(page.encode())
    print(f"{what}: {size / 1e3:,.0f} kB; first page {took[0]:.2f} s, later {min(took[1:]):.2f} s of processor time")


def main() -> None:
    """Write the data, evaluate it, and measure the pages."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rows", type=int, default=200_000)
    given.add_argument("--repeat", type=int, default=3)
    options = given.parse_args()
    asked: dict[str, Any] = {
        "score": [f"score_{i}" for i in range(SCORES)],
        "cluster": [f"cluster_{i}" for i in range(CLUSTERS)],
        "at": ["fpr=0.01", "recall=0.9"],
    }
    with tempfile.TemporaryDirectory() as folder:
        data = written(Path(folder, "data"), options.rows)
        measured("slices and nights as slices", evaluate(data, **asked, by=["segment", "night"]), options.repeat)
        store = Store(Path(folder, "store"))
        store.update(data, **asked)
        measured("a store of 90 nights", store.evaluate(), options.repeat)


if __name__ == "__main__":
    main()
