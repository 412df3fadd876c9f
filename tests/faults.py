"""Faults: a process in which an update is killed, or told that the disk is full, at any call that writes.

Run with a small library preloaded (``faults.c``) that counts the calls of the C library which change files, those of
CPython, Arrow and deltalake alike. An update runs in a forked child with a separate copy of the store. What a kill at a
call leaves is what is there while the child stops before the call, so that one update meets all kills. Another child
judges the stores, so that no thread of deltalake lives in a process that forks.

    python faults.py FOLDER MODE STEP …
    python faults.py race STORE DATA NIGHT…

The first takes any number of folders, each with a store and data, so that all of them share the imports and the loaded
loops. It prints a JSON object for each: runs, how many ended before and after the commit, and what went wrong. The
second prints the statuses of eight updates at once.
"""

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
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TEMPORARY = re.compile(r"\.part$|#\d+$")  # of files that are being written
RANDOM = re.compile(r"-[0-9a-f]{16}(?=\.)|[0-9a-f]{32}(?=\.part)")  # of a file's name
DIGEST = re.compile(r"[0-9a-f]{64}")  # of a file, that of a table has the time in it
TABLES = ("ledger", "history", "checks", "labels")
DIGESTS: dict[tuple[int, int, int], str] = {}  # by inode, size and time: of linked files, once


def forked(work) -> int:
    """Begin `work` in a forked child, whose exit status is what it returns; its process."""
    from streameval import forks

    pid = os.fork()
    if pid == 0:
        forks._STALE["deltalake"] = False  # the parent has opened no table: its library has started nothing
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


def stopped(store: Path, data: Path, work: Path, _: int) -> Iterator[tuple[Path, int]]:
    """Update in a child that stops before each call that writes; copies of the store at each, as a kill leaves it."""

    def armed() -> int:
        ctypes.CDLL(None).shim_arm(str(whole).encode(), ctypes.c_long(0), False)
        return updated(whole, data)

    whole = shutil.copytree(store, work / "stopped")
    pid = forked(armed)
    for call in count():
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return
        yield copied(whole, work / f"run-{call}"), -signal.SIGKILL
        os.kill(pid, signal.SIGCONT)


def filled(store: Path, data: Path, work: Path, step: int) -> Iterator[tuple[Path, int]]:
    """Update in children that are out of space at each `step`-th call that writes; their stores and statuses."""

    def armed() -> int:
        shim = ctypes.CDLL(None)
        shim.shim_arm(str(run).encode(), ctypes.c_long(call), True)
        status = updated(run, data)
        return status if shim.shim_calls() > call else 7  # fewer calls than that

    for call in count(0, step):
        run = copied(store, work / f"run-{call}")
        if (status := child(armed)) == 7:
            return
        yield run, status


def struck(store: Path, data: Path, work: Path, kills: int) -> Iterator[tuple[Path, int]]:
    """Update in children that are killed at random times; their stores, if they had not ended by then."""
    draw, span, left = random.Random(0), 1.0, kills
    while left:
        run, began = copied(store, work / f"run-{left}"), time.perf_counter()
        pid = forked(partial(updated, run, data))
        end = os.pidfd_open(pid)
        select.select([end], [], [], draw.random() * span)
        os.close(end)
        os.kill(pid, signal.SIGKILL)
        if (status := ended(pid)) == 0:
            span = 1.2 * (time.perf_counter() - began)  # the time that an update takes now
            shutil.rmtree(run)
        else:
            yield run, status
            left -= 1


def link_published(source: str, target: str) -> None:
    """Link a complete state file, which nobody writes to again; copy any other file."""
    published = Path(source).parent.name == "states" and not TEMPORARY.search(source)
    (os.link if published else shutil.copy2)(source, target)


copied = partial(shutil.copytree, copy_function=link_published)


def looks(store: Path) -> str:
    """A digest of the files of a store, names and contents, but for times and what is random.

    Of files that are not complete it has that there are some in a folder: no reader opens them.
    """
    files = set()
    for path in store.rglob("*"):
        name = str(path.relative_to(store))
        if TEMPORARY.search(name):
            files.add((str(path.parent.relative_to(store)), "incomplete"))
        elif path.is_file():
            in_table = name.startswith(TABLES)
            files.add((RANDOM.sub("", DIGEST.sub("", name) if in_table else name), content(path, in_table=in_table)))
        else:
            files.add((name, ""))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def content(path: Path, *, in_table: bool) -> str:
    """What a file says: the rows or the kinds of actions of one that belongs to a table, else all bytes."""
    try:
        if in_table and path.suffix == ".json":
            return repr([sorted(json.loads(line)) for line in path.read_text().splitlines()])
        if in_table and path.name.endswith(".checkpoint.parquet"):
            return str(pq.read_metadata(path).num_rows)
        if in_table and path.suffix == ".parquet":
            return rows_of(path.read_bytes())
    except (OSError, ValueError):  # it is damaged
        pass
    facts = path.stat()
    one = facts.st_ino, facts.st_size, facts.st_mtime_ns
    if one not in DIGESTS:
        DIGESTS[one] = hashlib.sha256(path.read_bytes()).hexdigest()
    return DIGESTS[one]


@cache
def rows_of(file: bytes) -> str:
    """The rows of a file of a table, without times and random names; most runs have the same files."""
    rows = pq.read_table(pa.BufferReader(file), use_threads=False).to_pylist()
    return RANDOM.sub("", repr([row | {"updated": None} for row in rows]))


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

    # the filter reads the statistics of the files, as an update does
    evaluate(data, score="score_lr", cluster="cluster_loose", where="score_lr >= 0", threads=1, approx=True)
    shutil.copytree(store / "states", scratch)
    files = StateFiles(Location.of(scratch))
    for path in sorted(scratch.iterdir()):
        with suppress(FormatError):  # rows of an open night
            state = files.read(path.name)
            files.write(state.merge(state))


MODES = {"kill": stopped, "full": filled, "random": struck}


def main(folder: Path, mode: str, step: int) -> dict:
    """All runs of a mode; stores that look alike are judged once."""
    from streameval.store.files import compaction

    compaction.FAN = 2  # so that an update of two nights merges them
    store, data, work = (folder / name for name in ("store", "data", "work"))
    work.mkdir()
    warm(store, data, work / "warm")
    gc.collect()
    gc.freeze()  # forks then share these objects' memory with the parent
    copy = shutil.copytree(store, work / "after")
    before = told(store, work)
    assert child(partial(updated, copy, data)) == 0
    states, runs, stores = [before, told(copy, work)], [], {}
    for run, status in MODES[mode](store, data, work, step):
        runs.append((run.name, status, looks(run)))
        if stores.setdefault(runs[-1][2], run) is not run:
            shutil.rmtree(run)
    assert child(partial(judged_all, list(stores.values()), data, states, work / "judged")) == 0
    judgements = dict(zip(stores, json.loads((work / "judged").read_text()), strict=True))
    outcome = {"runs": len(runs), "before": 0, "after": 0, "faults": []}
    for name, status, look in runs:
        found = judgements[look]
        if found in (10, 11) and status in (0, 3, -signal.SIGKILL) and not (status == 0 and found == 10):
            outcome["before" if found == 10 else "after"] += 1
        else:
            outcome["faults"].append([name, status, found])
    return outcome


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "race":
        outcome = raced(Path(words[1]), Path(words[2]), words[3:])
    else:
        outcome = [main(Path(words[i]), words[i + 1], int(words[i + 2])) for i in range(0, len(words), 3)]
    sys.stdout.write(json.dumps(outcome))
