"""Faults: a process in which an update is killed, or told that the disk is full, at any call that writes.

Run with a small library preloaded (``faults.c``) that counts the calls of the C library which change files, those of
CPython, Arrow and deltalake alike. Every run is a forked child: what it did to the store is looked at by another child,
so that no thread of deltalake's lives in the parent.

    python faults.py MODE STORE DATA WORK COUNT

prints one JSON object: runs, how many ended before and after the commit, and what went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path


def child(work) -> int:
    """Run `work` in a forked child; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = int(work() or 0)
        except BaseException as error:  # the parent must hear of it
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def updated(store: Path, data: Path) -> int:
    """Update the store; 3 if it was refused with a clear error."""
    from streameval import Store
    from streameval.errors import StreamevalError

    try:
        Store(store, threads=1).update(data)
    except StreamevalError:
        return 3
    return 0


def judged(store: Path, data: Path, states: list[str]) -> int:
    """How the store is: 10 as before, 11 as after; any other status is a fault. Ends as after, by running again."""
    from streameval import Store

    opened = Store(store, threads=1)
    found = opened.evaluate().to_json()
    if found not in states:
        return 2
    opened.update(data)
    if opened.evaluate().to_json() != states[1] or opened.update(data).new or opened.update(data).changed:
        return 4
    last = opened.history("roc_auc", cumulative=False).points[-1]
    if last.night.value != opened.evaluate(last=1).value("roc_auc"):
        return 5
    return 10 + states.index(found)


def told(store: Path, work: Path, data: Path | None = None) -> str:
    """The numbers of a store, updated before if data are given."""

    def tell() -> None:
        from streameval import Store

        opened = Store(store, threads=1)
        if data is not None:
            opened.update(data)
        (work / "told").write_text(opened.evaluate().to_json())

    assert child(tell) == 0
    return (work / "told").read_text()


def main(mode: str, store: Path, data: Path, work: Path, count: int) -> dict:
    """All runs of a mode: ``kill`` or ``full`` at every call that writes, or ``random`` kills; all from one store."""
    import streameval.store  # noqa: F401 - imported before the forks, so that they need not
    from streameval import evaluate

    shim = ctypes.CDLL(None)
    evaluate(data, score="score_lr", cluster="cluster_loose", threads=1)
    copy = work / "after"
    shutil.copytree(store, copy)
    began = time.perf_counter()
    states = [told(store, work), told(copy, work, data)]
    span = time.perf_counter() - began
    outcome = {"runs": 0, "before": 0, "after": 0, "faults": []}
    draw = random.Random(0)
    for i in range(count):
        here = work / "run"
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(store, here)
        if mode == "random":
            pid = os.fork()
            if pid == 0:
                os._exit(updated(here, data))
            time.sleep(draw.random() * span)
            os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:

            def armed(where: Path = here, when: int = i) -> int:
                shim.shim_arm(str(where).encode(), ctypes.c_long(when), mode == "full")
                status = updated(where, data)
                return status if shim.shim_calls() > when else 7

            status = child(armed)
        if status == 7:  # fewer calls than that
            break
        found = child(lambda where=here: judged(where, data, states))
        outcome["runs"] += 1
        if found in (10, 11) and status in (0, 3, -signal.SIGKILL) and not (status == 0 and found == 10):
            outcome["before" if found == 10 else "after"] += 1
        else:
            outcome["faults"].append([i, status, found])
    return outcome


if __name__ == "__main__":
    mode, *paths, count = sys.argv[1:]
    sys.stdout.write(json.dumps(main(mode, *map(Path, paths), int(count))))
