"""The cache of compiled loops: damaged files are made again, and settings that keep loops from compiling are named."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from streameval.kernels import jit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOP = """
from streameval.kernels import jit

@jit.jit
def double(x):
    return 2 * x
"""
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda data: data[:40],
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "zeros at the end": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "foreign": lambda _: b"PAR1" * 100,
}


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Any, int]]:
    """Calls a loop as a new process would: its result, and whether it was compiled."""
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "_UNCACHED", [])
    source = tmp_path / "loops.py"
    source.write_text(LOOP)

    def call() -> tuple[Any, int]:
        spec = importlib.util.spec_from_file_location("loops", source)
        assert spec is not None
        assert spec.loader is not None
        loops = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loops)
        before = len(jit._COMPILED)
        return loops.double(21), len(jit._COMPILED) - before

    return call


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_files_are_compiled_again(
    double: Callable[[], tuple[Any, int]], tmp_path: Path, suffix: str, damage: str
) -> None:
    """What a power cut leaves in an index or in code costs one compilation; the next process loads the new code."""
    assert double() == (42, 1)
    [file] = tmp_path.rglob(f"*.{suffix}")
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    double()
    assert double() == (42, 0)
    assert jit.is_cached()


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_files_that_cannot_be_replaced(double: Callable[[], tuple[Any, int]], tmp_path: Path, suffix: str) -> None:
    """A directory under the name of a file: every process compiles the loop, and the progress bar says so."""
    assert double() == (42, 1)
    [file] = tmp_path.rglob(f"*.{suffix}")
    file.unlink()
    file.mkdir()
    assert [double(), double()] == [(42, 1), (42, 1)]
    assert not jit.is_cached()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("NUMBA_DISABLE_JIT=1", "NUMBA_DISABLE_JIT is set"),
        ("NUMBA_NUM_THREADS=0", "Number of threads specified must be > 0"),
        ("NUMBA_OPT=most", "'NUMBA_OPT' is defined but its associated value 'most' could not be parsed"),
    ],
)
def test_settings_that_keep_loops_from_compiling(setting: str, reason: str) -> None:
    """The error is one line that names the setting, and the remedy."""
    code = (
        "from streameval import roc_auc_score\ntry: roc_auc_score([0, 1], [0.5, 0.7])\nexcept Exception as e: print(e)"
    )
    environment = dict(os.environ) | dict([setting.split("=")])
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert reason in done.stdout
    assert "unset" in done.stdout
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
