"""Closed, full and broken standard streams: the work is done; only results that cannot be delivered are a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

# words, status, whether there are results on stdout; {data} and {store} are paths, {new} is one that does not exist
VERBS: dict[str, tuple[str, int, bool]] = {
    "evaluate": ("evaluate {data} --score s --cluster id", 0, True),
    "attribute": ("attribute {data} --cluster id --label label --json -", 0, True),
    "sketch": ("sketch {data} --column s --column id", 0, True),
    "metrics": ("metrics", 0, True),
    "usage": ("evaluate --scores s", 2, False),
    "help": ("--help", 0, True),
    "failure": ("evaluate {new} --score s", 1, False),
    "update": ("update {new} {data} --score s", 0, False),
    "add": ("add {store} --metric brier_score", 0, False),
    "show": ("show {store}", 0, True),
    "history": ("history {store} --metric aul --csv -", 0, True),
    "check": ("check {store} --rule aul>=2 --quiet", 3, False),
    "diagnose": ("diagnose {store}", 0, True),
    "vacuum": ("vacuum {store}", 0, False),
    "simulate": ("simulate {new} --rows 1000 --partitions 2", 0, False),
}
STREAMS = ("open", "closed", "full", "broken")
PAIRS = [(out, err) for out in STREAMS for err in STREAMS if (out, err) != ("open", "open")]
CASES = [(name, *PAIRS[(4 * i + 3) % len(PAIRS)]) for i, name in enumerate(VERBS)]
OUTSIDE = """
import os, sys
for number, state in enumerate(sys.argv[1:4]):
    if state == "closed":
        os.close(number)
os.execv(sys.executable, [sys.executable, "-m", "streameval", *sys.argv[4:]])
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two nights of scores and clusters, and a store of both."""
    folder, rng = tmp_path_factory.mktemp("streams"), np.random.default_rng(1)
    for night in (1, 2):
        out = folder / "data" / f"night=2026-01-0{night}"
        out.mkdir(parents=True)
        columns = {"label": rng.integers(0, 2, 50), "s": rng.random(50), "id": rng.integers(0, 9, 50)}
        pq.write_table(pa.table(columns), out / "part-0.parquet")
    Store(folder / "store").update(folder / "data", score="s", cluster="id")
    return {"data": folder / "data", "store": folder / "store"}


@contextmanager
def stream(state: str) -> Iterator[int]:
    """What a command gets as a stream; one that is closed is closed in its process."""
    if state in ("open", "closed"):
        yield subprocess.PIPE
        return
    reader, writer = os.pipe() if state == "broken" else (os.dup(2), os.open("/dev/full", os.O_WRONLY))
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize(("name", "out", "err"), CASES)
def test_closed_full_and_broken_streams(places: dict[str, Path], tmp_path: Path, name: str, out: str, err: str) -> None:
    """Every pair of states, each with another verb; stdin is closed if another stream is."""
    words, status, prints = VERBS[name]
    shutil.copytree(places["store"], tmp_path / "store")
    named = {"data": places["data"], "store": tmp_path / "store", "new": tmp_path / "new"}
    states = ("closed" if "closed" in (out, err) else "open", out, err)
    command = [sys.executable, "-c", OUTSIDE, *states, *(word.format(**named) for word in words.split())]
    with stream(out) as stdout, stream(err) as stderr:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, timeout=300)
    assert done.returncode == (1 if prints and out in ("full", "broken") else status)
    assert out != "open" or bool(done.stdout) == prints
    if err == "open" and prints:
        said = "streameval: error: stdout: cannot be written (No space left on device)\n" if out == "full" else ""
        assert done.stderr.decode() == said
    assert (tmp_path / "new").exists() == (name in ("update", "simulate"))
    if name == "add":
        assert Store(tmp_path / "store").info().version == 1
