"""Forked children: every verb works in one, or is refused in one line; nothing hangs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streameval import forks


@pytest.mark.parametrize(("scenario", "children"), [("idle", 4), ("busy", 5), ("fresh", 2), ("client", 2)])
def test_forked_children(tmp_path: Path, scenario: str, children: int) -> None:
    """Children of a process that has run every verb, whose threads run them, begin to run them, or that has a client.

    Only the last two may refuse: a child cannot use its parent's client, nor go on with what its parent was compiling.
    """
    words = [sys.executable, str(Path(__file__).with_name("forking.py")), str(tmp_path), scenario, str(children)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    *refusals, last = done.stdout.splitlines()
    assert last == "ok"
    assert len(refusals) == (children if scenario == "client" else 0), refusals
    assert all("make another here" in line for line in refusals)


def run(code: str, folder: Path | None = None) -> list[str]:
    """The lines that a Python process prints, with modules of a folder."""
    words = [sys.executable, "-W", "ignore", "-c", code]
    path = os.pathsep.join(map(str, filter(None, [folder, os.environ.get("PYTHONPATH")])))
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=True, env=dict(os.environ, PYTHONPATH=path)
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_waits_once_for_all_that_is_in_progress(tmp_path: Path) -> None:
    """Modules and locks share one deadline; the child refuses a module that was not complete by then."""
    (tmp_path / "dask.py").write_text("import time, scipy; time.sleep(1.5)")
    (tmp_path / "scipy.py").write_text("import time; time.sleep(0.3); value = 1")
    code = """
import os, sys, threading, time
from streameval import forks
forks._PATIENCE = 0.6
locks = [forks.new_lock(threading.RLock, wait=True) for _ in range(5)]
def hold():
    for lock in locks:
        lock.acquire()
    import dask
threading.Thread(target=hold).start()
while "scipy" not in sys.modules:
    time.sleep(0.001)
began = time.monotonic()
child = os.fork()
if child == 0:
    import scipy
    try:
        import dask
        dask.delayed
    except Exception as error:
        print(scipy.value, f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)
print(0.3 < time.monotonic() - began < 1.2, os.waitpid(child, 0)[1])
"""
    refusal, last = run(code, tmp_path)
    assert refusal.startswith("1 StreamevalError: another thread was importing dask when this process was forked; star")
    assert last == "True 0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_deltalake_is_loaded_again_in_children_of_children_by_any_thread(tmp_path: Path) -> None:
    """Each of three generations writes a table on four threads, after its parent has used deltalake."""
    code = f"""
import os, sys, threading
import pyarrow as pa
from streameval.forks import import_deltalake
problems = []
def write(name):
    try:
        deltalake = import_deltalake()
        deltalake.write_deltalake({str(tmp_path)!r} + "/" + name, pa.table({{"x": [1, 2]}}))
        assert deltalake.DeltaTable({str(tmp_path)!r} + "/" + name).version() == 0
    except BaseException as error:
        problems.append(f"{{type(error).__name__}}: {{error}}")
status = 0
for generation in range(3):
    threads = [threading.Thread(target=write, args=(f"{{generation}}-{{n}}",)) for n in range(4 if generation else 1)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(generation, problems, flush=True)
    if (child := os.fork()):
        os.waitpid(child, 0)
        os._exit(0)
"""
    assert run(code) == ["0 []", "1 []", "2 []"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_thread_that_is_cut_off_while_it_compiles() -> None:
    """A fork waits for the loop; if that takes too long, the child refuses to compile others."""
    code = """
import os, threading
from streameval import forks, roc_auc_score
from streameval.kernels import jit

forks._PATIENCE = 0.1
held, end = threading.Event(), threading.Event()
def compile():
    with jit._MAKING:
        held.set()
        end.wait()
thread = threading.Thread(target=compile)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    try:
        roc_auc_score([0, 1], [0.2, 0.3])
    except Exception as error:
        os.write(1, f"{type(error).__name__}: {error}\\n".encode())
    os._exit(0)
os.waitpid(child, 0)
end.set()
thread.join()
print(roc_auc_score([0, 1], [0.2, 0.3]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    refusal, value = done.stdout.splitlines()
    assert refusal.startswith("StreamevalError: another thread was compiling loops when this process was forked; start")
    assert value == "1.0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_does_not_wait_for_the_module_that_waits_for_it(tmp_path: Path) -> None:
    """A script whose threads fork while it is being imported; it may itself use what is being imported."""
    for name, header in (("script", "import streameval.forks"), ("dask", "")):
        (tmp_path / f"{name}.py").write_text(f"""
import os, threading
{header}
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    print(os.waitpid(child, 0)[1])
thread = threading.Thread(target=fork, daemon=True)
thread.start()
thread.join(10)
fork()
""")
    assert run("import script", tmp_path) == ["0", "0"]
    assert run("from streameval import forks; forks._PATIENCE = 0.1; import dask", tmp_path) == ["0", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_while_another_thread_has_found_a_module() -> None:
    """The thread holds the lock of the module, which is not yet among those that are being imported."""
    code = """
import importlib.util, os, sys, threading
from streameval import forks
found, end = threading.Event(), threading.Event()
class Finder:
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "dask" else None
    def create_module(self, spec):
        if threading.current_thread() is thread:
            found.set()
            end.wait()
    def exec_module(self, module):
        module.value = 1
sys.meta_path.insert(0, Finder())
thread = threading.Thread(target=lambda: __import__("dask"))
thread.start()
found.wait()
child = os.fork()
if child:
    os.waitpid(child, 0)
    end.set()
import dask
print(dask.value, flush=True)
if child == 0:
    os._exit(0)
"""
    assert run(code) == ["1", "1"]


def test_locks_are_told_when_their_holder_is_gone() -> None:
    """Only in a child, and only if another thread held the lock."""
    code = """
import os, threading
from streameval import forks
told = []
class Owner:
    def __init__(self): self.lock = forks.new_lock(threading.RLock, self.lose)
    def lose(self): told.append(self)
free, mine, other = Owner(), Owner(), Owner()
thread = threading.Thread(target=other.lock.acquire)
thread.start()
thread.join()
with mine.lock:
    if (child := os.fork()) == 0:
        os._exit(0 if told == [other] and other.lock.acquire(timeout=1) else 1)
print(os.waitpid(child, 0)[1], told)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 []\n"
    assert not forks.is_forked()
