"""The end of a run that nobody wants any more: an interrupt, a closed pipe."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import opened
from refusals import refuses

from streameval.engine.threads import CancelledError, ThreadEngine
from streameval.saving import write_whole

HANGS = 600  # seconds: the time limit of whatever should not hang


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows enough that a run spills and takes a second or more."""
    folder = tmp_path_factory.mktemp("interrupt")
    random = np.random.default_rng(0)
    for i in range(4):
        columns = {"label": random.integers(0, 2, 1_000_000).astype(np.int8), "score": random.random(1_000_000)}
        columns |= {"part": random.integers(0, 50, 1_000_000), "score_id": random.integers(0, 1 << 60, 1_000_000)}
        pq.write_table(pa.table(columns), folder / f"{i}.parquet")
    return folder


def command(*options: str) -> list[str]:
    """The command line, as a terminal starts it: background jobs of a shell inherit that SIGINT is ignored."""
    listens = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    return [sys.executable, "-c", f"{listens}; from streameval.cli import main; main(sys.argv[1:])", *options]


def spilled(process: subprocess.Popen[bytes], spill: Path) -> Iterator[bool]:
    """Whether the process has opened a spill file, until it ends."""
    while process.poll() is None:
        yield any(path.startswith(str(spill)) for path in opened(process.pid))


RUNS = {
    "evaluate": ("--score", "score"),
    "evaluate by": ("--score", "score", "--by", "part"),
    "attribute": ("--cluster", "part", "--classes", "score_id", "--examples", "label"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the open files of a process")
@pytest.mark.parametrize("run", RUNS)
def test_an_interrupt_leaves_no_file(data: Path, tmp_path: Path, run: str) -> None:
    """Once states have been spilled, SIGINT ends the command within 2 s and with status 130, and leaves no file."""
    spill, found = tmp_path / "spill", tmp_path / "found.json"
    spill.mkdir()
    options = (*RUNS[run], "--memory", "4MB", "--spill", str(spill), "--json", str(found), "--threads", "2")
    sent = 0.0
    with subprocess.Popen(command(run.split()[0], str(data), *options), stderr=subprocess.PIPE) as process:
        for there in spilled(process, spill):
            if there:
                sent = time.monotonic()
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.005)
        _, error = process.communicate(timeout=HANGS)
    assert time.monotonic() - sent < 2
    assert process.returncode == 130
    *warnings, last = error.splitlines()
    assert last == b"streameval: error: interrupted; nothing is half-written"
    assert all(re.search(b"4.0 MB of memory is too little|compile them beforehand", warning) for warning in warnings)
    assert len(warnings) <= 2
    assert sorted(tmp_path.iterdir()) == [spill]
    assert list(spill.iterdir()) == []


LOST = """
import os, signal, sys, threading, time, weakref
import streameval.cli.store as verbs
signal.signal(signal.SIGINT, signal.default_int_handler)
def swallows(*_):
    class Thing: pass
    thing = Thing()
    def callback(_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # the interrupt is raised here, and Python drops what callbacks raise
    keep = weakref.ref(thing, callback)
    del thing
    print("went on", flush=True)
    time.sleep(60)
verbs.open_store = swallows
from streameval.cli import main
main(["show", "store"])
"""


def test_an_interrupt_that_is_lost_ends_the_command(tmp_path: Path) -> None:
    """As one that arrives in a callback of a C library, whose exceptions nobody sees."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=HANGS, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("went on\n", 130)
    assert done.stderr.endswith("streameval: error: interrupted; nothing is half-written\n")
    assert time.monotonic() - began < 50


def test_an_interrupt_while_a_result_is_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file has another name until it is complete."""
    place = tmp_path / "found.json"
    write_whole(place, "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streameval.saving.shutil.copymode", interrupted)
    refuses(KeyboardInterrupt, "", write_whole, place, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_cancelled_run_ends_before_the_next_shard(threads: int) -> None:
    """After the passes over the data, too, a cancelled run starts nothing more."""
    engine = ThreadEngine.start(threads=threads, memory="1MB")
    started: list[int] = []

    def work(item: int) -> None:
        started.append(item)
        engine.progress.cancel()

    refuses(CancelledError, "", engine.each, work, list(range(100)))
    assert len(started) <= threads


@pytest.mark.parametrize("wait", [0.01, 0.05, 0.15, 0.4])
def test_an_early_interrupt_shows_no_traceback(wait: float, data: Path) -> None:
    """While modules are imported, arguments read or the run planned."""
    listens = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    run = f"{listens}; from streameval.__main__ import run; print('ready', flush=True); run()"
    with subprocess.Popen(
        [sys.executable, "-c", run, "evaluate", str(data), "--score", "score"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=HANGS)
    assert process.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in error


WRAPPED = """
import os, signal, sys
import streameval.cli.store as verbs
signal.signal(signal.SIGINT, signal.default_int_handler)
class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
def defines(*_):
    class Thing:
        field = Field()
verbs.open_store = defines
from streameval.cli import main
main(["show", "store"])
"""


TWICE = """
import os, signal, sys
import click
import streameval.cli.store as verbs
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupted(*_):
    os.kill(os.getpid(), signal.SIGINT)
verbs.open_store = interrupted
echo = click.echo
def told(*args, **options):
    echo(*args, **options)
    interrupted()
click.echo = told
from streameval.cli import main
main(["show", "store"])
"""


@pytest.mark.parametrize("script", [WRAPPED, TWICE], ids=["while classes are made", "again while the process ends"])
def test_an_interrupt_shows_no_traceback(script: str, tmp_path: Path) -> None:
    """Python may wrap an interrupt in another error, and a second one came after the line of the first."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANGS, cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr == "streameval: error: interrupted; nothing is half-written\n"


WRITES = """
import os, signal, sys, time
import streameval.store.nights.fold as fold
from streameval.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
fold.SMALL = 0  # small nights are folded in threads
def fsync(_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
os.fsync = fsync
main(sys.argv[1:])
"""


def test_an_interrupt_leaves_no_unfinished_file_in_a_store(tmp_path: Path) -> None:
    """The process does not wait for threads, so that files under their temporary names stayed in the store."""
    for night in "12":
        table = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.3, 0.2]})
        pq.write_table(table, tmp_path / f"night={night}.parquet")
    nights = [str(tmp_path / f"night={night}.parquet") for night in "12"]
    words = ["update", str(tmp_path / "store"), *nights, "--score", "score", "--threads", "2"]
    done = subprocess.run([sys.executable, "-c", WRITES, *words], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 130
    assert done.stderr.endswith("streameval: error: interrupted; nothing is half-written\n")
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
