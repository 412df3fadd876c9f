"""Peak memory, whether budgets hold, and files left behind by a kill.

    python benchmarks/memory.py            # makes the data of data.py first
    python benchmarks/memory.py --rows 10_000_000 --budget 128MiB --budget 512MiB    # on its shapes
    python benchmarks/memory.py --rows 1_000_000_000 --files 100 --clusters 10_000_000 --budget 4GiB    # 14 GB of data

Each case runs in a separate process. Without budgets, it runs on hard links to the files, repeated to give the number
of rows; the peak is the process's maximum resident size, which includes Python and its libraries. With budgets, the
same evaluation of a few thousand rows comes first, and the figures are by how much the peak exceeds what the process
has after it, divided by the budget: at most 1.15.

With `--clusters`, it is one call for AUC, AP and AUL of that many clusters of equal size, by two threads within the
budget and by four workers, which must give the same bytes.
"""

from __future__ import annotations

import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import data_options, make, make_shape, mixed, written

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

CASES = {
    "approx": ({"score": "beta", "approx": True}, 1),
    "approx, ten times the rows": ({"score": "beta", "approx": True}, 10),
    "exact in 1 GiB, five times the rows": ({"score": "beta", "memory": "1GiB"}, 5),
    "exact float64 in 1 GiB, five times the rows": ({"score": "score64", "memory": "1GiB"}, 5),
    "AUL in 1 GiB, five times the rows": ({"cluster": "cluster", "memory": "1GiB"}, 5),
}

AUL, PAIRS = {"cluster": "cluster", "metrics": "aul"}, {"cluster": "cluster", "classes": "campaign"}
UNIT = {"unit": "campaign"}
SCORE, WEIGHTED = {"score": "score"}, {"score": "score", "weight": "weight"}
BUDGETED = {
    "score": ("float32", SCORE),
    "score, weights": ("float32", WEIGHTED),
    "score, float64": ("float64", SCORE),
    "score, float64, weights": ("float64", WEIGHTED),
    "score, atom, weights": ("atom", WEIGHTED),
    "AUL, hot": ("hot", AUL),
    "AUL, zipf": ("zipf1.2", AUL),
    "AUL, uniform": ("uniform", AUL),
    "AUL, strings": ("uuid", AUL),
    "pairs, hot": ("hot_pair", PAIRS),
    "pairs, zipf": ("zipf1.2", PAIRS),
    "pairs, uniform": ("uniform", PAIRS),
    "score by 60": ("float32", SCORE | {"by": "country"}),
    "score by 60, weights": ("float32", WEIGHTED | {"by": "country"}),
    "score by 60, float64": ("float64", SCORE | {"by": "country"}),
    "score by 60, float64, weights": ("float64", WEIGHTED | {"by": "country"}),
    "AUL by 60, hot": ("hot", AUL | {"by": "country"}),
    "AUL by 60, uniform": ("uniform", AUL | {"by": "country"}),
    "pairs by 60, hot": ("hot_pair", PAIRS | {"by": "country"}),
    "pairs by 60, uniform": ("uniform", PAIRS | {"by": "country"}),
    "score by unit, zipf": ("zipf1.2", SCORE | UNIT),
    "AUL by unit, hot": ("hot", AUL | UNIT),
    "AUL by unit, uniform": ("uniform", AUL | UNIT),
    "pairs by class, hot": ("hot_pair", PAIRS | {"ci": 0.95}),
}
SMALL = 1 << 13  # rows of the small call


@contextmanager
def linked(case: str, files: list[str]) -> Iterator[str]:
    """A folder of hard links that repeat the files for the rows of the case; this process, never killed, owns it."""
    with tempfile.TemporaryDirectory(dir=Path(files[0]).parent.parent) as folder:
        for i, file in itertools.product(range(CASES[case][1]), files):
            (Path(folder) / f"{i}-{Path(file).name}").hardlink_to(file)
        yield folder


def run(case: str, folder: str, spill: str) -> None:
    """Evaluate and print rows, seconds and the peak."""
    from streameval import evaluate

    start = time.perf_counter()
    found = evaluate(folder, **CASES[case][0], spill=spill)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"rows": found.rows, "seconds": seconds, "peak": peak}))


def status(field: str) -> int:
    """Bytes that the system knows of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


def run_budgeted(case: str, folder: str, budget: str) -> None:
    """Evaluate a few rows, then all, and print by how much the peak of that exceeds what the process has before it."""
    from streameval import evaluate

    files, options = sorted(Path(folder).glob("*.parquet")), BUDGETED[case][1]
    with tempfile.TemporaryDirectory() as small:
        for i, file in enumerate(files[:2]):
            rows = next(pq.ParquetFile(file).iter_batches(batch_size=SMALL))
            pq.write_table(pa.Table.from_batches([rows]), f"{small}/{i}.parquet")
        evaluate(small, **options)
    base = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = time.perf_counter()
    found = evaluate(files, **options, memory=budget)
    seconds = time.perf_counter() - start
    print(json.dumps({"rows": found.rows, "seconds": seconds, "base": base, "peak": status("VmHWM")}))


def show_budgets(budgets: list[str], cases: list[str], data: Path, rows: int, files: int) -> None:
    """Run every case under every budget, and print peaks above the base by the budget."""
    from streameval.budget import parse_bytes

    print(f"{rows:,} rows\n\n| case | {' | '.join(budgets)} |\n|---|{'---|' * len(budgets)}")
    for case in cases:
        folder, cells = Path(make_shape(BUDGETED[case][0], data, rows, files)[0]).parent, []
        for budget in budgets:
            command = [sys.executable, sys.argv[0], "--case", case, "--folder", str(folder), "--budget", budget]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            found = json.loads(done.stdout) if not done.returncode else None
            above = (found["peak"] - found["base"]) if found else 0
            each = (
                f"{above / parse_bytes(budget):.2f} ({above / 2**20:.0f} MiB, {found['seconds']:.1f} s)"
                if found
                else "-"
            )
            cells.append(each)
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


def large_part(folder: Path, rows: int, clusters: int, number: int) -> None:
    """Write one file of labels, continuous scores and ids."""
    rng = np.random.Generator(np.random.SFC64([13, number]))
    label = rng.random(rows, np.float32) < np.float32(0.2)
    score = rng.standard_normal(rows, np.float32) + label
    ids = mixed(rng.integers(0, clusters, rows))
    pq.write_table(
        pa.table({"label": label.astype(np.int8), "score": score, "cluster": ids}), folder / f"{number:03}.parquet"
    )


def run_large(who: str, folder: str, budget: str) -> None:
    """Evaluate by threads or workers, and print seconds, the largest peak of a process, and the values."""
    from distributed import Client, LocalCluster

    from streameval import evaluate

    options: dict[str, Any] = {"score": "score", "cluster": "cluster"}
    options |= {"metrics": ["roc_auc", "average_precision", "aul"], "memory": budget}
    with LocalCluster(n_workers=4, threads_per_worker=1) if who == "four workers" else nullcontext() as cluster:
        client = Client(cluster) if cluster else None
        start = time.perf_counter()
        found = evaluate(folder, **options, client=client, threads=None if client else 2)
        seconds = time.perf_counter() - start
        peak = max(client.run(status, "VmHWM").values()) if client else status("VmHWM")
    values = {str(key): value.hex() for key, value in found.scalars().items()}
    print(json.dumps({"seconds": seconds, "peak": peak, "values": values}))


def show_large(given: argparse.Namespace) -> None:
    """Make the data, and print a row for threads and one for workers."""
    part = partial(large_part, rows=given.rows // given.files, clusters=given.clusters)
    files, found = written(given.data / f"large-{given.rows}-{given.clusters}", given.files, part), []
    print("| rows | clusters | by | budget | seconds | largest peak of a process, MiB |\n|---|---|---|---|---|---|")
    for who in ("two threads", "four workers"):
        command = [sys.executable, sys.argv[0], "--case", who, "--folder", str(Path(files[0]).parent)]
        done = subprocess.run([*command, "--budget", given.budget[0]], stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout))
        cells = (f"{given.rows:,}", f"{given.clusters:,}", who, given.budget[0], f"{found[-1]['seconds']:.1f}")
        print(f"| {' | '.join(cells)} | {found[-1]['peak'] / 2**20:.0f} |", flush=True)
    print("the same bytes" if found[0]["values"] == found[1]["values"] else "OTHER BYTES")


def spilled_bytes(child: subprocess.Popen[str], folder: str) -> int:
    """Bytes in the spill file of a process, once it has any; 0 if the process ends first."""
    while child.poll() is None:
        for link in Path(f"/proc/{child.pid}/fd").iterdir():
            try:
                found = link.stat().st_size if folder in str(link.readlink()) else 0
            except OSError:  # closed in the meantime
                continue
            if found:
                return found
        time.sleep(0.1)
    return 0


def main() -> None:
    """Run every case, then kill one in the middle and look at its spill directory."""
    parser = data_options(__doc__)
    parser.add_argument("--case", help="run this case alone on --folder and print JSON")
    parser.add_argument("--folder")
    parser.add_argument("--budget", action="append", help="show whether runs stay within it; may be repeated")
    parser.add_argument("--clusters", type=int, help="evaluate data of this many clusters, scores and all")
    parser.add_argument("--only", action="append", choices=BUDGETED, help="of the cases with a budget")
    parser.add_argument("--spill", default="/var/tmp", help="spill directory of that case")
    given = parser.parse_args()
    if given.case in BUDGETED:
        run_budgeted(given.case, given.folder, *given.budget)
        return
    if given.case in ("two threads", "four workers"):
        run_large(given.case, given.folder, *given.budget)
        return
    if given.clusters:
        show_large(given)
        return
    if given.budget:
        show_budgets(given.budget, given.only or [*BUDGETED], given.data, given.rows, given.files)
        return
    if given.case:
        run(given.case, given.folder, given.spill)
        return
    files = make(given.data, given.rows, given.files)
    command = [sys.executable, sys.argv[0], "--case"]
    print("| case | rows | seconds | peak MiB |\n|---|---|---|---|")
    for case in CASES:
        with linked(case, files) as folder:
            done = subprocess.run([*command, case, "--folder", folder], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        print(f"| {case} | {found['rows']:,} | {found['seconds']:.1f} | {found['peak'] / 2**20:.0f} |", flush=True)
    case = "exact float64 in 1 GiB, five times the rows"
    with linked(case, files) as folder, tempfile.TemporaryDirectory(dir="/var/tmp") as spill:
        whole = [*command, case, "--folder", folder, "--spill", spill]
        with subprocess.Popen(whole, stdout=subprocess.DEVNULL, text=True) as child:
            spilled = spilled_bytes(child, spill)
            child.send_signal(signal.SIGKILL)
        left = [path.name for path in Path(spill).iterdir()]
    print(f"\nkilled with {spilled / 1e6:.0f} MB spilled; left in the spill directory: {left}")


if __name__ == "__main__":
    main()
