"""Compiled loops: one process compiles each, others load it, damage costs one compilation, and warming takes all."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streameval
from streameval import warm
from streameval.kernels import jit

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


CALL = """
from streameval.kernels import jit
from loops import double
jit._PATIENCE = {patience}
print(double({argument}), len(jit._COMPILED))
"""
FAIL = """
from loops import double
try: double(object())
except Exception as error: print(type(error).__name__, flush=True)
input()
"""
HOLD = """
from streameval.kernels import jit
from loops import double
cache = double.made()._cache
cache._impl.locator.ensure_cache_path()
with jit._lock(cache.cache_path, cache._impl.filename_base):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Starts a process with a cache that it shares with the others."""
    (tmp_path / "loops.py").write_text(LOOP)
    places = [str(tmp_path), str(Path(streameval.__file__).parents[1])]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(places)}

    def begin(code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return begin


def call(argument: str, patience: float = 600.0) -> str:
    """Code that calls a loop and waits so many seconds for other processes."""
    return CALL.format(argument=argument, patience=patience)


def results(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """What each process prints: the result, and the number of loops that it compiled."""
    return [process.communicate(timeout=300)[0].split() for process in processes]


def test_each_loop_is_compiled_by_one_process(start: Callable[[str], subprocess.Popen[str]]) -> None:
    """Others that need it at the same time, or later, load the code for their types."""
    arguments = ["21", "21", "10.5"]
    together = results([start(call(argument)) for argument in arguments])
    assert [value for value, _ in together] == ["42", "42", "21.0"]
    assert sorted(count for _, count in together[:2]) == ["0", "1"]
    assert together[2][1] == "1"
    assert results([start(call(argument)) for argument in arguments[1:]]) == [["42", "0"], ["21.0", "0"]]


@pytest.mark.parametrize(("code", "word"), [(HOLD, "held"), (FAIL, "TypingError")])
def test_a_process_that_stays_is_not_waited_for(
    start: Callable[[str], subprocess.Popen[str]], code: str, word: str
) -> None:
    """One that holds the lock is waited for only for a while, one that could not compile the loop not at all."""
    with start(code) as other:
        assert other.stdout.readline() == f"{word}\n"
        assert results([start(call("21", 0.2 if code == HOLD else 600.0))]) == [["42", "1"]]
        other.communicate("\n")


def test_warming_evaluates_slices_intervals_and_spilled_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subject whole, in slices and under a limit that spills; intervals, means and samples as well."""
    asked: list[dict[str, Any]] = []
    for name in ("evaluate", "attribute"):
        verb = getattr(warm, name)

        def noted(*data: Any, verb: Any = verb, **options: Any) -> Any:
            asked.append(options)
            return verb(*data, **options)

        monkeypatch.setattr(warm, name, noted)
    warm.warm(300)
    families = ({"score"}, {"score", "weight"}, {"cluster"}, {"cluster", "classes"})
    for family in families:
        for more in ({"by"}, {"ci"} if "classes" in family else {"unit"}):
            assert any(family | more <= set(options) for options in asked), (family, more)
        if "weight" not in family:
            assert any(family | {"memory", "by"} <= set(options) for options in asked), family
    named = set().union(*asked)
    assert {"approx", "approx_agc", "at", "baseline", "mean_over", "sketch", "truncate"} <= named
    assert any(options.get("metrics") == "*" for options in asked)
    assert any("label" in options and "classes" in options for options in asked)
