"""Power cuts: every verb that writes, and what is on the disk of a machine that loses power during or after it.

The disk is a file with an ext4 file system, mounted on a loop device; its blocks, copied while it is mounted, are what
a disk holds after a power cut. This needs root. Verbs run in forked children, so that one that is cut can be stopped
while its disk is copied. The copy must hold, after a verb that ended with status 0, all that it wrote; in the middle of
one, what was there before or all of it, and then the verb can be run again.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval import Accumulator, Store
from streameval.errors import StreamevalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NIGHTS = [f"night=2026-01-{day:02d}" for day in range(1, 13)]
MIB = 64  # size of the disk
REFUSED = 3  # status of a verb that raised an error of streameval
FAULTS = (
    "stores lost",
    "acknowledged verbs lost",
    "neither before nor after",
    "not run again",
    "verbs that failed",
)
RULES = ["roc_auc[a] >= 0.99", "rows > 0"]


def _accumulate(place: Path, data: Path) -> None:
    """Save an accumulator over the one that is there."""
    accumulator = Accumulator(score="a")
    if (place / "accumulator").exists():
        accumulator = Accumulator.load(place / "accumulator")
    accumulator.update(pq.read_table(data / NIGHTS[0] / "part-0.parquet", partitioning=None))
    accumulator.save(place / "accumulator")


def _out(place: Path, _: Path) -> None:
    """Write a result over another one."""
    Store(place / "store", threads=1).evaluate().save(place / "result.json")


VERBS: dict[str, Callable[[Path, Path], Any]] = {
    "update": lambda place, data: _store(place).update(data / NIGHTS[-1]),
    "replace": lambda place, data: _store(place).replace(data / NIGHTS[1]),
    "remove": lambda place, _: _store(place).remove(NIGHTS[0]),
    "add": lambda place, _: _store(place).add(score="b"),
    "vacuum": lambda place, _: _store(place).vacuum(versions="0s", grace="0s"),
    "vacuum --keep": lambda place, _: _store(place).vacuum(keep="3d", grace="0s"),
    "check": lambda place, _: _store(place).check(RULES, again=True),
    "check --accept": lambda place, _: _store(place).accept(NIGHTS[-2], "known", "roc_auc[a] >= 0.99"),
    "history": lambda place, _: _store(place).history("agc"),
    "evaluate --out": _out,
    "accumulator": _accumulate,
}


def _store(place: Path) -> Store:
    return Store(place / "store", threads=1)


def seen(place: Path) -> dict[str, Any]:
    """All that verbs have written to a place."""
    store, saved = _store(place), place / "accumulator"
    info = store.info(verify=True).to_dict() | {"name": ""}
    result = place / "result.json"
    return {
        "info": info,
        "evaluation": store.evaluate().to_json(),
        "history": store.history("roc_auc", "a").to_json(),
        "earlier": [(fact["version"], fact["action"]) for fact in store.versions()],
        "earliest": [entry.partition for entry in store.partitions(as_of=store.versions()[-1]["version"])],
        "accumulator": Accumulator.load(saved).result().to_json() if saved.exists() else "",
        "result": result.read_text() if result.exists() else "",
    }


def forked(work: Callable[[], Any], told: Path | None = None) -> int:
    """Begin `work` in a forked child, which writes what it returns, as JSON; its process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            text = json.dumps(work(), default=str)
            if told is not None:
                told.write_text(text)
            status = 0
        except StreamevalError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            status = REFUSED
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    """The status of a child."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ask(place: Path, scratch: Path) -> dict[str, Any] | None:
    """What is seen in a place by another process; None if that fails."""
    told = scratch / "told.json"
    told.unlink(missing_ok=True)
    return json.loads(told.read_text()) if ended(forked(lambda: seen(place), told)) == 0 else None


@contextmanager
def mounted(image: Path, where: Path) -> Iterator[Path]:
    """Mount an image."""
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)


def copy_disk(image: Path, copy: Path) -> Path:
    """Copy an image as of one moment: until two copies are equal."""
    other = copy.with_suffix(".other")
    while True:
        for target in (copy, other):
            subprocess.run(["cp", "--sparse=always", image, target], check=True)
        if filecmp.cmp(copy, other, shallow=False):
            return copy


def begin(data: Path, place: Path) -> None:
    """Nights of data, and a place with a store of all but the last, a saved accumulator and a result."""
    rng = np.random.default_rng(0)
    for name in NIGHTS:
        (data / name).mkdir(parents=True)
        table = pa.table({"label": rng.integers(0, 2, 60), "a": rng.random(60), "b": rng.random(60)})
        pq.write_table(table, data / name / "part-0.parquet")

    def work() -> None:
        for name in NIGHTS[:-1]:
            _store(place).update(data / name, score="a", metrics=["roc_auc", "agc"])
        _store(place).check(RULES)
        _accumulate(place, data)
        _out(place, data)

    place.mkdir()
    assert ended(forked(work)) == 0


def cut_once(verb: str, states: list[dict[str, Any]], during: float | None, scratch: Path, tally: Counter[str]) -> None:
    """Run a verb on the mounted disk and cut the power, after it or `during` seconds after it began."""
    place, data = scratch / "disk" / "place", scratch / "data"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(scratch / "template", place)
    subprocess.run(["sync", "-f", place], check=True)
    pid = forked(lambda: VERBS[verb](place, data))
    if during is not None:
        time.sleep(during)
        os.kill(pid, signal.SIGSTOP)
        copy_disk(scratch / "image", scratch / "copy")
        os.kill(pid, signal.SIGCONT)
    status = ended(pid)
    if during is None:
        copy_disk(scratch / "image", scratch / "copy")
    with mounted(scratch / "copy", scratch / "after") as disk:
        found = ask(disk / "place", scratch)
        lost = found is None or bool(found["info"]["damaged"])
        tally["stores lost"] += lost
        if during is None:
            tally["cuts after"] += 1
            tally["verbs that failed"] += status != 0
            tally["acknowledged verbs lost"] += not lost and found != states[1]
        else:
            tally["cuts during"] += 1
            tally["of them as before"] += found == states[0]
            tally["neither before nor after"] += not lost and found not in states
            again = ended(forked(lambda: VERBS[verb](disk / "place", data)))
            tally["not run again"] += again not in ((0,) if found == states[0] else (0, REFUSED))  # as it is done


def cut_all(count: int, seed: int = 0, verbs: Iterable[str] = VERBS) -> bool:
    """Cut each verb so many times, half of them after it has ended and half during it; whether there is no fault."""
    rng, faults = np.random.default_rng(seed), 0
    with tempfile.TemporaryDirectory(prefix="streameval-cuts-") as folder:
        scratch = Path(folder)
        begin(scratch / "data", scratch / "template")
        before = ask(scratch / "template", scratch)
        subprocess.run(["truncate", "-s", f"{MIB}M", scratch / "image"], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", scratch / "image"], check=True)
        with mounted(scratch / "image", scratch / "disk"):
            for verb in verbs:
                whole, tally, write = scratch / "whole", Counter[str](), VERBS[verb]
                shutil.copytree(scratch / "template", whole)
                began = time.perf_counter()
                assert ended(forked(lambda write=write, whole=whole: write(whole, scratch / "data"))) == 0
                took, after = time.perf_counter() - began, ask(whole, scratch)
                shutil.rmtree(whole)
                assert before is not None
                assert after is not None
                for i in range(count):
                    during = rng.uniform(0, 1.5 * took) if i % 2 else None
                    cut_once(verb, [before, after], during, scratch, tally)
                print(f"{verb:15}", ", ".join(f"{what} {n}" for what, n in tally.items()), flush=True)
                faults += sum(tally[what] for what in FAULTS)
    return not faults
