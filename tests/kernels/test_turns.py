"""Processes that need the same loops at the same time: each loop is compiled by one of them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import streameval
from streameval.kernels import jit

if TYPE_CHECKING:
    import pytest

LOOP = """
from streameval.kernels import jit

@jit.jit
def double(x):
    return 2 * x
"""
RUN = """
import sys
from streameval.kernels import jit
from loops import double

sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdout.write(f"{double(21)} {len(jit._COMPILED)}\\n")
"""


def said(stream: IO[str], seconds: float) -> bool:
    """Whether a process says something within some seconds."""
    return bool(select.select([stream], [], [], seconds)[0])


def test_a_process_waits_for_another_that_compiles(tmp_path: Path) -> None:
    """It loads what the other has stored; stored loops, and other loops of the folder, are not waited for."""
    (tmp_path / "loops.py").write_text(LOOP)
    places = [str(tmp_path), str(Path(streameval.__file__).parents[1])]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(places)}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", RUN], env=environment, stdout=subprocess.PIPE, text=True)

    def told(process: subprocess.Popen[str]) -> str:
        found, _ = process.communicate(timeout=600)
        return found.splitlines()[-1]

    with start() as first:
        assert told(first) == "42 1"
    [stored] = (tmp_path / "cache").rglob("*.nbi")
    turn, other = (jit.Turn(str(stored.parent), loop) for loop in (stored.stem, "another"))
    other.begin()
    turn.begin()
    with start() as second:
        assert told(second) == "42 0"
    code = {path: path.read_bytes() for path in stored.parent.glob("*.nb?")}
    for path in code:
        path.unlink()
    with start() as third:
        assert third.stdout is not None
        assert third.stdout.readline() == "ready\n"
        assert not said(third.stdout, 1.0)
        for path, content in code.items():
            path.write_bytes(content)
        turn.end()
        assert told(third) == "42 0"
    other.end()


def test_a_turn_that_never_ends_is_waited_for_only_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a folder where nothing can be locked has no turns."""
    monkeypatch.setattr(jit, "_PATIENCE", 0.1)
    monkeypatch.setattr(jit.Turn, "_locks", lambda *_, **__: False)
    jit.Turn(str(tmp_path), "double").begin()
    monkeypatch.undo()
    jit.Turn(str(tmp_path / "absent"), "double").begin()


FAILS = """
import sys
from streameval.kernels import jit
from loops import double

try:
    double(object())
except Exception as error:
    sys.stdout.write(f"{type(error).__name__} {double.made()._cache._impl.filename_base}\\n")
    sys.stdout.flush()
sys.stdin.read()
"""


def test_a_turn_ends_where_compiling_fails(tmp_path: Path) -> None:
    """Another process need not wait for one that could not compile the loop and goes on."""
    (tmp_path / "loops.py").write_text(LOOP)
    places = [str(tmp_path), str(Path(streameval.__file__).parents[1])]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-c", FAILS]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as failed:
        assert failed.stdout is not None
        error, loop = failed.stdout.readline().split()
        assert error == "TypingError"
        [locks] = (tmp_path / "cache").rglob("compiling.lock")
        assert jit.Turn(str(locks.parent), loop)._locks(take=True)
