"""Peak memory, and what a kill leaves behind.

    python benchmarks/memory.py            # makes the data of evaluate.py first

Each case runs in a process of its own, on hard links to the files as often as its rows need. The peak is the process's
maximum resident size, which includes Python and its libraries.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from data import DEFAULT, make

CASES = {
    "approx": ({"score": "beta", "approx": True}, 1),
    "approx, ten times the rows": ({"score": "beta", "approx": True}, 10),
    "exact in 1 GiB, five times the rows": ({"score": "beta", "memory": "1GiB"}, 5),
    "exact float64 in 1 GiB, five times the rows": ({"score": "score64", "memory": "1GiB"}, 5),
    "AUL in 1 GiB, five times the rows": ({"cluster": "cluster", "memory": "1GiB"}, 5),
}


def run(case: str, files: list[str], spill: str) -> None:
    """Evaluate and print rows, seconds and the peak."""
    from streameval import evaluate

    options, times = CASES[case]
    with tempfile.TemporaryDirectory(dir=Path(files[0]).parent) as folder:
        for i, file in itertools.product(range(times), files):
            (Path(folder) / f"{i}-{Path(file).name}").hardlink_to(file)
        start = time.perf_counter()
        found = evaluate(folder, **options, spill=spill)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"rows": found.rows, "seconds": seconds, "peak": peak}))


def main() -> None:
    """Run every case, then kill one in the middle and look at its spill directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--case", help="run this case alone and print JSON")
    parser.add_argument("--spill", default="/var/tmp", help="spill directory of that case")
    given = parser.parse_args()
    files = make(given.data, given.rows, given.files)
    if given.case:
        run(given.case, files, given.spill)
        return
    command = [
        sys.executable,
        sys.argv[0],
        "--data",
        str(given.data),
        "--rows",
        str(given.rows),
        "--files",
        str(given.files),
    ]
    print("| case | rows | seconds | peak MiB |\n|---|---|---|---|")
    for case in CASES:
        done = subprocess.run([*command, "--case", case], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        print(f"| {case} | {found['rows']:,} | {found['seconds']:.1f} | {found['peak'] / 2**20:.0f} |", flush=True)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        case = "exact float64 in 1 GiB, five times the rows"
        child = subprocess.Popen([*command, "--case", case, "--spill", folder], stdout=subprocess.DEVNULL)
        time.sleep(8)
        opened = Path(f"/proc/{child.pid}/fd").iterdir()
        spilled = sum(link.stat().st_size for link in opened if folder in str(link.readlink()))
        child.send_signal(signal.SIGKILL)
        child.wait()
        left = [path.name for path in Path(folder).iterdir()]
        print(f"\nkilled after 8 s with {spilled / 1e6:.0f} MB spilled; left in the spill directory: {left}")


if __name__ == "__main__":
    main()
