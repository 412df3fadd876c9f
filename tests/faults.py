"""Faults: a process in which an update is killed, or told that the disk is full, at any call that writes.

Run with a small library preloaded (``faults.c``) that counts the calls of the C library which change files, those of
CPython, Arrow and deltalake alike. Every run is a forked child with a separate copy of the store. Other children
judge the result, many stores each, so that no thread of deltalake lives in a process that forks. Two lanes share the
runs.

    python faults.py MODE STORE DATA WORK COUNT STEP
    python faults.py race STORE DATA NIGHT…

The first prints one JSON object: runs, how many ended before and after the commit, and what went wrong; the second the
statuses of eight updates at once.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

LANES = 2
BATCH = 12  # stores judged by one process
TEMPORARY = re.compile(r"\.part$|#\d+$")  # of files that are being written
RANDOM = re.compile(r"-[0-9a-f]{16}(?=\.)|[0-9a-f]{32}(?=\.part)")  # of a file's name


def forked(work) -> int:
    """Begin `work` in a forked child, whose exit status is what it returns; its process."""
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
    return pid


def ended(pid: int) -> int:
    """The exit status of a child, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def child(work) -> int:
    """Run `work` in a forked child; its status."""
    return ended(forked(work))


def labels_beside(data: Path) -> dict:
    """The late labels of an update, if there are some beside the data."""
    labels = data.parent / "labels.parquet"
    return {"labels": labels} if labels.exists() else {}


def updated(store: Path, data: Path) -> int:
    """Update the store; 3 if it was refused with a clear error."""
    from streameval import Store
    from streameval.errors import StreamevalError

    try:
        Store(store, threads=1).update(data, **labels_beside(data))
    except StreamevalError:
        return 3
    return 0


def judged(store: Path, data: Path, states: list[dict]) -> int:
    """How the store is: 10 as before, 11 as after; any other status is a fault. Ends as after, by running again."""
    from streameval import Store

    opened, texts = Store(store, threads=1), [state["text"] for state in states]
    found = opened.evaluate().to_json()
    if found not in texts:
        return 2
    opened.update(data, **labels_beside(data))
    again = opened.update(data, **labels_beside(data))
    if opened.evaluate().to_json() != texts[1] or again.new or again.changed:
        return 4
    last = opened.history("roc_auc", cumulative=False).points[-1]
    if last.night.value != states[1]["last"]:
        return 5
    return 10 + texts.index(found)


def told(store: Path, work: Path) -> dict:
    """The numbers of a store: all of them, and the ROC AUC of its last night."""

    def tell() -> None:
        from streameval import Store

        opened = Store(store, threads=1)
        found = {"text": opened.evaluate().to_json(), "last": opened.evaluate(last=1).value("roc_auc")}
        (work / "told").write_text(json.dumps(found))

    assert child(tell) == 0
    return json.loads((work / "told").read_text())


def judged_all(stores: list[Path], data: Path, states: list[dict], told: Path) -> None:
    """Judge stores in one process; what each was goes to a file."""
    found = []
    for store in stores:
        try:
            found.append(judged(store, data, states))
        except Exception as error:
            sys.stderr.write(f"{store}: {type(error).__name__}: {error}\n")
            found.append(1)
    told.write_text(json.dumps(found))


def killed(store: Path, data: Path, after: float) -> int:
    """Update in a child that is killed after some seconds unless it has ended; its status."""
    pid = forked(lambda: updated(store, data))
    end = os.pidfd_open(pid)
    select.select([end], [], [], after)
    os.close(end)
    os.kill(pid, signal.SIGKILL)
    return ended(pid)


def faulty(store: Path, data: Path, call: int, *, full: bool) -> int:
    """Update in a child that is killed, or out of space, at a call that writes; its status, 7 if there are fewer."""

    def armed() -> int:
        shim = ctypes.CDLL(None)
        shim.shim_arm(str(store).encode(), ctypes.c_long(call), full)
        status = updated(store, data)
        return status if shim.shim_calls() > call else 7

    return child(armed)


def looks(store: Path) -> str:
    """A digest of the files of a store, names and bytes, but for what is random in names.

    Of files that are not complete it has that there are some in a folder: no reader opens them.
    """
    files = set()
    for path in store.rglob("*"):
        name = RANDOM.sub("", str(path.relative_to(store)))
        if TEMPORARY.search(name):
            files.add((str(path.parent.relative_to(store)), "incomplete"))
        else:
            files.add((name, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def lane(mode: str, store: Path, data: Path, work: Path, runs: range, states: list[dict], span: float) -> dict:
    """Some of the runs, judged by the dozen; stores that look alike are judged once."""
    outcome, draw, todo = {"runs": 0, "before": 0, "after": 0, "faults": []}, random.Random(runs.start), list(runs)
    known: dict[str, int] = {}
    while todo:
        batch, todo = todo[:BATCH], todo[BATCH:]
        statuses: dict[int, int] = {}
        for i in batch:
            shutil.copytree(store, work / f"run-{i}")
            if mode == "random":
                statuses[i], span = struck(work / f"run-{i}", store, data, draw, span)
            else:
                statuses[i] = faulty(work / f"run-{i}", data, i, full=mode == "full")
            if statuses[i] == 7:  # fewer calls than that
                del statuses[i]
                todo = []
                break
        told, seen = work / f"judged-{runs.start}", {i: looks(work / f"run-{i}") for i in statuses}
        new = {look: work / f"run-{i}" for i, look in seen.items() if look not in known}
        assert child(partial(judged_all, list(new.values()), data, states, told)) == 0
        known |= dict(zip(new, json.loads(told.read_text()), strict=True))
        for i, status in statuses.items():
            found = known[seen[i]]
            outcome["runs"] += 1
            if found in (10, 11) and status in (0, 3, -signal.SIGKILL) and not (status == 0 and found == 10):
                outcome["before" if found == 10 else "after"] += 1
            else:
                outcome["faults"].append([i, status, found])
            shutil.rmtree(work / f"run-{i}")
    return outcome


def struck(run: Path, store: Path, data: Path, draw: random.Random, span: float) -> tuple[int, float]:
    """Update copies of a store until one is killed within `span` seconds; its status, and the new span."""
    while True:
        began = time.perf_counter()
        status = killed(run, data, draw.random() * span)
        if status != 0:
            return status, span
        span = 1.2 * (time.perf_counter() - began)  # the time that an update takes now, whatever else the machine does
        shutil.rmtree(run)
        shutil.copytree(store, run)


def raced(store: Path, data: Path, nights: list[str]) -> list[int]:
    """Eight processes that update the store at once, each with one night: 0 if it landed, 3 if told to run again."""
    import_module("deltalake")  # its threads begin with a table, and would not outlive a fork
    from streameval import Store, evaluate
    from streameval.errors import StoreError

    for night in nights:  # loads the compiled loops before the forks, so that they start together
        evaluate(data / night, score="score_lr", cluster="cluster_loose", threads=1)

    gate, go = os.pipe()

    def race(night: str) -> int:
        os.close(go)
        os.read(gate, 1)  # ends when the parent lets go of the other end
        try:
            Store(store, threads=1).update(data / night)
        except StoreError as error:
            if "run it again" in str(error):
                return 3
            raise
        return 0

    pids = [forked(partial(race, nights[i % len(nights)])) for i in range(8)]
    os.close(go)
    return [ended(pid) for pid in pids]


def warm(store: Path, data: Path, scratch: Path) -> None:
    """Import what an update needs, and load its compiled loops, so that no fork has to."""
    import_module("deltalake")  # its threads begin with a table, and would not outlive a fork

    from streameval import evaluate
    from streameval.errors import FormatError
    from streameval.store.files.location import Location
    from streameval.store.files.published import StateFiles

    evaluate(data, score="score_lr", cluster="cluster_loose", threads=1, approx=True)
    shutil.copytree(store / "states", scratch)
    files = StateFiles(Location.of(scratch))
    for path in sorted(scratch.iterdir()):
        with suppress(FormatError):  # rows of an open night
            state = files.read(path.name)
            files.write(state.merge(state))


def main(mode: str, store: Path, data: Path, work: Path, count: int, step: int) -> dict:
    """All runs of a mode: ``kill`` or ``full`` at each `step`-th call that writes, or ``random`` kills that strike."""
    from streameval.store.files import compaction

    compaction.FAN = 2  # so that an update of two nights merges them
    warm(store, data, work / "warm")
    gc.collect()
    gc.freeze()  # forks then share these objects' memory with the parent
    copy = work / "after"
    shutil.copytree(store, copy)
    before, began = told(store, work), time.perf_counter()
    assert child(partial(updated, copy, data)) == 0
    span = 2 * (time.perf_counter() - began)  # an update takes longer while another runs
    states = [before, told(copy, work)]
    parts = [work / f"lane-{n}" for n in range(LANES)]

    def one(n: int) -> None:
        found = lane(mode, store, data, work, range(n * step, count, LANES * step), states, span)
        parts[n].write_text(json.dumps(found))

    pids = [forked(partial(one, n)) for n in range(LANES)]
    assert [ended(pid) for pid in pids] == [0] * LANES
    found = [json.loads(part.read_text()) for part in parts]
    return {key: sum((part[key] for part in found), start=type(found[0][key])()) for key in found[0]}


if __name__ == "__main__":
    mode, where, what, *rest = sys.argv[1:]
    if mode == "race":
        outcome = raced(Path(where), Path(what), rest)
    else:
        outcome = main(mode, Path(where), Path(what), Path(rest[0]), int(rest[1]), int(rest[2]))
    sys.stdout.write(json.dumps(outcome))
