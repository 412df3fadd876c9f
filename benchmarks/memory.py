"""Peak memory, and files left behind by a kill.

    python benchmarks/memory.py            # makes the data of evaluate.py first

Each case runs in a separate process, on hard links to the files, repeated to give the number of rows. The peak is the
process's maximum resident size, which includes Python and its libraries.
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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from data import data_options, make

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = {
    "approx": ({"score": "beta", "approx": True}, 1),
    "approx, ten times the rows": ({"score": "beta", "approx": True}, 10),
    "exact in 1 GiB, five times the rows": ({"score": "beta", "memory": "1GiB"}, 5),
    "exact float64 in 1 GiB, five times the rows": ({"score": "score64", "memory": "1GiB"}, 5),
    "AUL in 1 GiB, five times the rows": ({"cluster": "cluster", "memory": "1GiB"}, 5),
}


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
    parser.add_argument("--spill", default="/var/tmp", help="spill directory of that case")
    given = parser.parse_args()
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
