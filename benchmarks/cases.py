"""Cases, each measured in a separate process, in rounds, so that a slow minute does not affect a single case only."""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from data import data_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

FILES_OF_WARM_UP = 2

# A virtual machine may get memory from its host only when it is touched, which then takes longer than many a call.
_TOUCH = """
import mmap
memory = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
"""
_BLOCK = bytes(1 << 23)
_PATIENCE = 5.0  # seconds to wait for both processors
_CHECKS = 10  # times in succession that two threads must run at once


def case_options(description: str | None) -> argparse.ArgumentParser:
    """Options of benchmarks with cases."""
    parser = data_options(description)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", help="run this case alone and print JSON")
    parser.add_argument("--only", nargs="*", help="run only these cases")
    return parser


def repeated(call: Callable[[list[str]], Any], files: list[str], times: int) -> dict[str, Any]:
    """Time a call in this process after a warm-up on the first files: all seconds, and the peak in MiB."""
    call(files[:FILES_OF_WARM_UP])
    subprocess.run([sys.executable, "-c", _TOUCH], check=True)
    _wait_for_processors()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call(files)
        seconds.append(time.perf_counter() - start)
    return {"all": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}


def _wait_for_processors() -> None:
    """Keep two threads busy until they run at once, at most 5 seconds.

    Some virtual machines at times run both on one processor.
    """

    def seconds(mapping: Callable[..., Iterable[Any]]) -> float:
        start = time.perf_counter()
        list(mapping(hashlib.sha256, [_BLOCK, _BLOCK]))
        return time.perf_counter() - start

    start, found = time.perf_counter(), 0
    with ThreadPoolExecutor(2) as pool:
        while found < _CHECKS and time.perf_counter() - start < _PATIENCE:
            found = found + 1 if seconds(map) > 1.5 * seconds(pool.map) else 0


def measured(cases: Iterable[str], given: argparse.Namespace, flags: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """The output of each case with ``--case``, with the times of all rounds together.

    Parameters
    ----------
    cases : names of the cases
    given : options of the command
    flags : more options for each case
    """
    found: dict[str, dict[str, Any]] = {}
    own = [f"--{name}={getattr(given, name)}" for name in ("data", "rows", "files", "repeat")]
    for number in range(given.rounds):
        for case in cases:
            command = [sys.executable, sys.argv[0], *own, *flags, "--case", case]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                # a killed case prints no reason
                reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
                print(f"{case} failed: {reason}", file=sys.stderr)
                continue
            result, before = json.loads(done.stdout), found.get(case, {"all": [], "peak": 0})
            seconds, peak = before["all"] + result["all"], max(before["peak"], result["peak"])
            found[case] = {"all": seconds, "seconds": min(seconds), "peak": peak}
            print(f"round {number + 1}: {case} {min(result['all']):.2f} s", file=sys.stderr, flush=True)
    return found
