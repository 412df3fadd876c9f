"""Imports: one way between layers, nothing heavy before it is needed, and no place needed to write to."""

from __future__ import annotations

import ast
import ctypes
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streameval

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(streameval.__file__).parent

# Every part of the package with the parts it may import beside itself; the BASE is open to all.
BASE = {"_version", "errors", "results", "wording"}
LAYERS = {
    "_version": set(),
    "errors": set(),
    "results": set(),
    "wording": set(),
    "kernels": set(),
    "scan": set(),
    "states": {"kernels"},
    "metrics": {"kernels", "states"},
    "plots": set(),
    "report": set(),
    "codec": {"states"},
    "fold": {"scan", "states"},
    "arguments": set(),
    "reduce": {"arguments", "states"},
    "simulation": {"states"},
    "arrays": {"kernels", "metrics", "plots", "states"},
    "sampling": {"arguments", "fold", "metrics", "scan", "states"},
    "sketches": {"fold", "reduce", "sampling", "scan", "states"},
    "request": {"arguments", "metrics", "sampling", "scan", "states"},
    "engine": {"fold", "metrics", "reduce", "sampling", "scan", "states"},
    "forecast": {"cluster", "engine", "fold", "request", "scan", "states"},
    "cluster": {"engine", "fold", "metrics", "sampling", "scan", "states"},
    "outcome": {"cluster", "engine", "fold", "metrics", "report", "request", "states"},
    "evaluation": {"cluster", "engine", "fold", "forecast", "metrics", "outcome", "request", "sampling", "scan"},
    "store": {"arguments", "cluster", "codec", "engine", "fold", "metrics", "outcome", "plots", "request", "scan"}
    | {"states"},
    "console": {"forecast", "outcome", "report"},
    "cli_options": set(),
    "cli_store": {"cli_options", "console", "report", "store"},
    "cli": {
        "cli_options",
        "cli_store",
        "console",
        "evaluation",
        "outcome",
        "plots",
        "report",
        "simulation",
        "states",
        "store",
    },
    "__main__": {"cli"},
}


@functools.cache
def imported(path: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, anywhere in it, and whether at import time rather than where they are used."""
    tree = ast.parse(path.read_text())
    late = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    late |= {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, ast.If) and ast.unparse(f.test) == "TYPE_CHECKING"
        for n in ast.walk(f)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) not in late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = (
                [f"streameval.{alias.name}" for alias in node.names] if node.module == "streameval" else [node.module]
            )
            found += [(str(name), id(node) not in late) for name in names]
    return found


def part_of(module: str) -> str:
    """The part of the package that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    """A part imports only parts below it, also for types and inside functions."""
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in LAYERS, f"say in LAYERS what {part} may import"
    allowed = LAYERS[part] | BASE | {part}
    for module, _ in imported(path):
        if module.startswith("streameval."):
            assert part_of(module) in allowed, f"{part} imports {module}"


def test_the_layers_have_no_cycle() -> None:
    """No part is above itself."""
    done: set[str] = set()
    while len(done) < len(LAYERS):
        ready = {part for part, below in LAYERS.items() if part not in done and below <= done}
        assert ready, f"a cycle among {sorted(set(LAYERS) - done)}"
        done |= ready


def test_dask_is_imported_in_three_places_only() -> None:
    """Graphs are made for threads in `reduce`, for clusters in `cluster`, and to write simulated files in parallel."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        for module, _ in imported(path)
        if module.split(".")[0] in {"dask", "distributed"}
    }
    assert {user for user in users if not user.startswith("cluster/")} <= {"reduce.py", "simulation/__init__.py"}


@pytest.mark.parametrize(
    "heavy", ["dask", "distributed", "matplotlib", "bokeh", "deltalake", "scipy.optimize", "pandas"]
)
def test_heavy_libraries_are_imported_where_they_are_used(heavy: str) -> None:
    """None of them at the top of a file, except in the parts that exist for them."""
    own = {
        "dask": {"cluster"},
        "distributed": {"cluster"},
        "matplotlib": {"plots"},
        "bokeh": {"report"},
        "deltalake": {"store"},
    }.get(heavy, set())
    for path in FILES:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module, early in imported(path):
            assert not (early and part not in own and (module == heavy or module.startswith(f"{heavy}."))), (
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
table = pa.table({{"label": [0, 1, 0, 1], "score": [0.1, 0.2, 0.3, 0.4], "id": [1, 1, 2, 3]}})
print(streameval.evaluate(table, score="score", cluster="id").value("roc_auc"))
"""


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def _obey_permissions() -> None:
    """Root writes where nobody may; without this capability the new process obeys like anyone else."""
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


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
    """Where neither the package nor HOME is writable, loops are compiled anew and results are the same."""
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
        preexec_fn=_obey_permissions,
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
