"""Imports: one way between layers, nothing heavy before it is needed, and no place needed to write to."""

import ast
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from processes import obey_permissions

import streameval

PACKAGE = Path(streameval.__file__).parent

# Every room with the rooms it may import; BASE is open to all. The order of the lines is the order of the floors.
BASE = {"_submodules", "errors", "forks", "kinds", "posix", "saving", "typing", "wording"}
LAYERS: dict[str, set[str]] = {
    "_submodules": set(),
    "typing": set(),
    "errors": set(),
    "posix": set(),
    "forks": set(),
    "wording": set(),
    "saving": set(),
    "results": set(),
    "kinds": set(),
    "options": set(),
    "kernels": set(),
    "budget": {"kernels"},
    "scan": {"kernels"},
    "rules": {"results"},
    "plots": {"results"},
    "report": {"plots", "results", "rules"},
    "simulation": set(),
    "states": {"budget", "kernels"},
    "metrics": {"budget", "kernels", "results", "states"},
    "arrays": {"budget", "kernels", "metrics", "plots", "results", "states"},
    "engine": {"budget", "metrics", "options", "results", "scan", "states"},
    "evaluation": {"arrays", "budget", "engine", "metrics", "options", "report", "results", "rules", "scan", "states"},
    "store": {"budget", "engine", "evaluation", "options", "plots", "report", "results", "rules", "scan", "states"},
    "accumulator": {"budget", "engine", "evaluation", "options", "scan", "states", "store"},
    "cli": {"evaluation", "metrics", "options", "plots", "report", "results", "rules", "simulation", "states", "store"},
    "warm": {"evaluation", "kernels"},
    "__main__": {"cli"},
}
LARGEST_FOLDER = 20  # files


@functools.cache
def imported(path: Path) -> list[tuple[str, bool]]:
    """Names that a file imports, anywhere in it, and whether at import time rather than where they are used."""
    found: list[tuple[str, bool]] = []
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), True)]
    while todo:
        node, early = todo.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, early) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [(f"{node.module}.{alias.name}", early) for alias in node.names]
        elif not isinstance(node, ast.expr):
            typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            early = early and not (typing or isinstance(node, ast.FunctionDef))
            todo += [(inner, early) for inner in ast.iter_child_nodes(node)]
    return found


def room_of(path: Path) -> str:
    """The room that a file is in: the first folder, or the file itself."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
MODULES = {module_of(path): path for path in FILES}


def internal(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it, but for the packages it lies in."""
    found = {name if name in MODULES else name.rpartition(".")[0] for name, _ in imported(path)}
    return {name for name in found & MODULES.keys() if not module_of(path).startswith(f"{name}.")}


def test_imports_run_one_way() -> None:
    """A file imports only its own room and rooms below it, also for types and inside functions."""
    for path in FILES:
        room = room_of(path)
        assert room in LAYERS, f"say in LAYERS what {room} may import"
        allowed = LAYERS[room] | BASE | {room}
        for module in internal(path):
            assert room_of(MODULES[module]) in allowed, f"{path}: {room} imports {module}"


def test_benchmarks_import_names_that_exist() -> None:
    """Benchmarks run rarely; a renamed function must not break them unnoticed."""
    for path in (PACKAGE.parent / "benchmarks").glob("*.py"):
        for name, _ in imported(path):
            module, _, attribute = name.rpartition(".")
            if module.partition(".")[0] == "streameval":
                assert hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name), name


def test_no_room_is_above_itself() -> None:
    """A room imports only rooms listed before it."""
    floors = list(LAYERS)
    for room, below in LAYERS.items():
        assert all(floors.index(other) < floors.index(room) for other in below), room


def test_no_files_import_each_other() -> None:
    """No circle among the files, however they import each other."""
    sorter = TopologicalSorter({name: internal(path) - {name} for name, path in MODULES.items()})
    sorter.prepare()  # raises CycleError, which draws the circle


def test_no_folder_is_crowded() -> None:
    """A folder has few enough files to see at a glance."""
    counts = Counter(path.parent for folder in (PACKAGE, Path(__file__).parent) for path in folder.rglob("*.py"))
    assert max(counts.values()) <= LARGEST_FOLDER, counts.most_common(3)


def test_dask_is_imported_for_clusters_only() -> None:
    """Threads of this process need no graphs."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        for module, _ in imported(path)
        if module.split(".")[0] in {"dask", "distributed"}
    }
    assert {Path(user).parent.name for user in users} == {"engine"}


@pytest.mark.parametrize(
    "heavy", ["dask", "distributed", "matplotlib", "bokeh", "deltalake", "scipy.optimize", "pandas"]
)
def test_heavy_libraries_are_imported_where_they_are_used(heavy: str) -> None:
    """None of them at the top of a file, except in the parts that exist for them."""
    own = {
        "dask": {"engine"},
        "distributed": {"engine"},
        "matplotlib": {"plots"},
        "bokeh": {"report"},
        "deltalake": {"store"},
    }.get(heavy, set())
    for path in FILES:
        room = room_of(path)
        for module, early in imported(path):
            assert not (early and room not in own and (module == heavy or module.startswith(f"{heavy}."))), (
                f"{path}: {module}"
            )


# -- what a command imports -------------------------------------------------------------------------------------------

UNUSED = ["numba", "dask", "distributed", "matplotlib", "pyarrow", "scipy", "pandas"]


@pytest.mark.parametrize(
    "code",
    [
        "import streameval",
        "import streameval; dir(streameval); streameval.__version__",
        "import streameval.errors, streameval.results",
        "from streameval.cli import main; main(['--help'], standalone_mode=False)",
        "from streameval.cli import main; main(['evaluate', '--help'], standalone_mode=False)",
    ],
)
def test_starting_imports_nothing_heavy(code: str) -> None:
    """``import streameval`` and every ``--help`` answer without the libraries that do the work."""
    text = f"{code}\nimport sys\nfound = [n for n in {UNUSED} if n in sys.modules]\nassert not found, found"
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)


RUN = """
import os, pyarrow as pa, streameval
assert not any(os.access(folder, os.W_OK) for folder, _, _ in os.walk({root!r})), "the install is writable"
assert streameval.__file__.startswith({root!r}), streameval.__file__
table = pa.table({{"label": [0, 1, 0, 1], "score": [0.1, 0.2, 0.3, 0.4]}})
print(streameval.evaluate(table, score="score", metrics="roc_auc").value("roc_auc"))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A copy of the package, without compiled code, in which nobody may write."""
    root = tmp_path / "site"
    shutil.copytree(PACKAGE, root / "streameval", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (root, *root.rglob("*")):
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    yield root
    for folder in (root, *root.rglob("*")):
        folder.chmod(0o755)


def test_a_read_only_install_without_a_home_works(installed: Path) -> None:
    """Where neither the package nor HOME is writable, loops are compiled again and results are the same."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "XDG_CACHE_HOME": "/proc/nonexistent",
        "PYTHONPATH": str(installed),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN.format(root=str(installed))],
        env=environment,
        cwd="/",
        preexec_fn=obey_permissions,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "0.75"
    assert not [path for path in installed.rglob("*") if path.suffix in {".nbi", ".nbc", ".pyc"}]


def test_an_unusable_cache_directory_is_no_error(tmp_path: Path) -> None:
    """A cache directory that cannot be made (here: below a file) costs the compilation, not the run."""
    (tmp_path / "file").write_text("")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    code = "from streameval.kernels.jit import jit\n@jit\ndef one(): return 1\nassert one() == 1"
    (tmp_path / "run.py").write_text(code)
    command = [sys.executable, str(tmp_path / "run.py")]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def test_loops_are_loaded_without_what_compiles_them(tmp_path: Path) -> None:
    """Numba's lists and dictionaries take 0.15 s; they are there once a loop is compiled, beside loaded ones."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    (tmp_path / "run.py").write_text(
        "import sys\nfrom streameval.kernels.jit import jit\n"
        "@jit\ndef two(x): return [x, x][1]\n"
        "@jit\ndef four(x): return two(x) + two(x)\n"
        "print(two(1), 'numba.typed.typeddict' in sys.modules)\n"
        "if len(sys.argv) > 1: print(four(1), 'numba.typed.typeddict' in sys.modules)\n"
    )
    found = [
        subprocess.run(
            [sys.executable, str(tmp_path / "run.py"), *more],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for more in ([], ["compile another"])
    ]
    assert found == [["1", "True"], ["1", "False", "2", "True"]]


def test_a_command_says_once_that_code_is_not_kept() -> None:
    """A loop that has no file, and so no folder for its code, runs; one line names the remedy."""
    imports = "from streameval.kernels.jit import jit\nfrom streameval.cli.console import progress_bar\n"
    code = "@jit\ndef one(): return 1\nwith progress_bar(False): assert one() == 1\n"
    command, environment = [sys.executable, "-c", imports + code], os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    found = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert found.stderr.decode().count("NUMBA_CACHE_DIR") == 1


def test_a_small_evaluation_imports_neither_dask_nor_stores(tmp_path: Path) -> None:
    """There is nothing to schedule in a night of some thousand rows, and data are told from stores by one directory."""
    code = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq, streameval.__main__ as m\n"
        "columns = {'label': [0, 1, 0, 1], 'a': [0.1, 0.2, 0.3, 0.4], 'b': [0.5, 0.5, 0.5, 0.5], 'c': [1, 1, 2, 3]}\n"
        "pq.write_table(pa.table(columns), sys.argv[1])\n"
        "command = 'streameval evaluate --quiet --score a --score b --cluster c'\n"
        "sys.argv = [*command.split(), sys.argv[1]]\n"
        "import atexit\n"
        "atexit.register(lambda: print({'dask', 'streameval.store'} & set(sys.modules)))\n"
        "m.run()\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.parquet")], check=True, capture_output=True)
    assert found.stdout.splitlines()[-1] == b"set()"


COUNT = """
import gc
from click.testing import CliRunner
from streameval.cli import main
from streameval.kernels.jit import Deferred

assert CliRunner().invoke(main, ["demo"]).exit_code == 0
made = [loop for loop in gc.get_objects() if isinstance(loop, Deferred) and hasattr(loop._made, "overloads")]
print(*sorted(loop.__name__ for loop in made for _ in loop._made.overloads or [None]))
"""
LOOPS = 24  # of a demo, each for some types


def test_a_first_command_compiles_few_loops() -> None:
    """Every loop of the demo takes a newcomer 0.05 to 0.5 s, whether or not this machine has compiled it before."""
    found = subprocess.run([sys.executable, "-c", COUNT], check=True, capture_output=True, text=True).stdout.split()
    remedy = (
        f"a cold demo compiles {len(found)} loops, not {LOOPS}: {' '.join(found)}. Call NumPy where it is as fast; "
        "pass arrays of types that other callers pass (`read_only`, `flat`); make helpers `step` or `inlined`, which "
        "have no wrapper. Raise LOOPS only if a demo with an empty NUMBA_CACHE_DIR takes no longer than before"
    )
    assert len(found) <= LOOPS, remedy


def test_nothing_is_compiled_before_a_loop_is_called() -> None:
    """A store that has its results needs no loop, and so no numba; a loop is sent to a worker by its name."""
    code = (
        "import sys, pickle, streameval.store\n"
        "from streameval.kernels.exact import two_sum\n"
        "assert pickle.loads(pickle.dumps(two_sum)) is two_sum\n"
        "assert not {'numba', 'dask', 'rich', 'pandas'} & set(sys.modules)\n"
        "assert two_sum(1.0, 2.0) == (3.0, 0.0) and 'numba' in sys.modules\n"
        "assert pickle.loads(pickle.dumps(two_sum)) is two_sum\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_calls_of_posix_stand_in_one_file() -> None:
    """Another system is refused there, in one line; sockets, signals and paths are everywhere."""
    own = re.compile(
        r"\bfcntl\b|import resource|CDLL|os\.(pwrite|preadv|sysconf|register_at_fork|sched_|fork\b)|\"/proc"
    )
    using = [path for path in FILES if own.search(path.read_text())]
    assert using == [PACKAGE / "posix.py"]
    code = "import os, sys; import streameval; os.name = 'nt'; import streameval.posix"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith(
        "ImportError: streameval runs on Linux, not on nt; use WSL, a container or a virtual machine\n"
    )
