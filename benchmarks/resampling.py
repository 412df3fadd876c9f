"""Sampling intervals: what `--ci`, `--unit` and `--baseline` add to the time and the memory of a run.

Each row belongs to a campaign of heavy-tailed size (Zipf 1.5); its label and two scores follow the campaign. Every case
runs in a separate process, after a warm-up on two files, once in each of `--rounds` rounds; the best call counts. The
targets: 1.4 times the run without intervals and 1.1 times its memory; 2.5 times for the AUL of two clusterings with
their difference, whose unit is the campaign.

    python benchmarks/resampling.py                  # 10⁸ rows; makes 3 GB of data in /var/tmp first
    python benchmarks/resampling.py --rows 10000000  # a quick look, in which fixed costs count ten times as much
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cases import case_options, measured, repeated
from data import whole
from shapes import mixed

if TYPE_CHECKING:
    from pathlib import Path

SCORE: dict[str, Any] = {"score": "v1"}
SCORES: dict[str, Any] = {"score": ["v1", "v2"]}
AUL: dict[str, Any] = {"cluster": ["old", "new"], "metrics": "aul"}
PAIRS: dict[str, Any] = {"cluster": "old", "classes": "campaign"}
CASES: dict[str, dict[str, Any]] = {
    "score": SCORE,
    "score, by campaign": SCORE | {"unit": "campaign"},
    "score, by row": SCORE | {"ci": 0.95},
    "two scores": SCORES,
    "two scores, compared": SCORES | {"unit": "campaign", "baseline": "v1"},
    "two AUL": AUL,
    "two AUL, by cluster": AUL | {"ci": 0.95},
    "two AUL, compared": AUL | {"unit": "campaign", "baseline": "old"},
    "pairs": PAIRS,
    "pairs, by class": PAIRS | {"ci": 0.95},
}
TARGETS = {"two AUL, compared": 2.5}  # all others: 1.4
LABELLED = {name for name, options in CASES.items() if "classes" not in options}


def part(folder: Path, rows: int, number: int) -> None:
    """Write one file."""
    rng = np.random.Generator(np.random.SFC64([19, number]))
    campaign = rng.zipf(1.5, rows)
    label = np.where(rng.random(rows) < 0.9, campaign % 5 == 0, rng.random(rows) < 0.2)
    own = np.sin(campaign) + label
    columns = {"label": label.astype(np.int8), "campaign": mixed(campaign)}
    for name in ("v1", "v2"):
        columns[name] = (own + 0.5 * rng.standard_normal(rows)).astype(np.float32)
    for name, share in (("old", 0.1), ("new", 0.05)):
        lone = rng.integers(1 << 61, 1 << 62, rows)
        columns[name] = np.where(rng.random(rows) < share, lone, columns["campaign"] // (2 if name == "old" else 1))
    pq.write_table(pa.table(columns), folder / f"part-{number:02d}.parquet", compression="snappy")


def make(folder: Path, rows: int, files: int) -> list[str]:
    """Write the data unless it exists; returns the files."""

    def write(path: Path) -> None:
        path.mkdir()
        one = dask.delayed(partial(part, path, rows // files))
        dask.compute(*(one(number) for number in range(files)), scheduler="threads")

    return sorted(map(str, whole(folder / f"resampling-{rows}-{files}", write).glob("*.parquet")))


def evaluated(case: str, files: list[str]) -> None:
    """Evaluate the files as a case does."""
    from streameval import evaluate

    evaluate(files, **CASES[case], **({"label": "label"} if case in LABELLED else {}))


def main() -> None:
    """Print the table."""
    given = case_options(__doc__).parse_args()
    files = make(given.data, given.rows, given.files)
    if given.case:
        print(json.dumps(repeated(partial(evaluated, given.case), files, given.repeat)[0]))
        return
    found = measured([case for case in CASES if not given.only or case in given.only], given, fresh=CASES)
    print(f"{given.rows:,} rows\n{'case':24}{'seconds':>8}{'peak, MiB':>11}{'time':>8}{'memory':>9}  target")
    for case, result in found.items():
        beside = found.get(case.split(",")[0])
        line = f"{case:24}{result['seconds']:8.2f}{result['peak']:11.0f}"
        if beside and beside is not result:
            times, memory = (result[name] / beside[name] for name in ("seconds", "peak"))
            line += f"{times:7.2f}×{memory:8.2f}×  {TARGETS.get(case, 1.4)}×, 1.1×"
        print(line)


if __name__ == "__main__":
    main()
