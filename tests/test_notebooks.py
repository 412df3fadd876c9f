"""The notebooks run from a fresh kernel, print what is stored with them, and leave nothing behind.

Running them takes minutes, so that it is left out unless asked for: ``pytest -m notebooks``.
"""

import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from files import put
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 60  # of processor time for a whole notebook, whatever else the machine has to do
HANGS = 900  # seconds of one cell
BYTES = 600_000
TIMING = "timing"  # tag of cells whose text depends on the clock

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
PATH = re.compile(r"(?<![\w.:/<])/(?:\w[\w.+-]*/)+|[A-Z]:\\\\|file://")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    """The notebook, valid in nbformat 4."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def texts(cell: Any) -> Iterator[str]:
    """What a cell has written, as text: its streams in one piece, then its other outputs."""
    for stream in ("stdout", "stderr"):
        yield "".join(
            output.text for output in cell.outputs if output.output_type == "stream" and output.name == stream
        )
    for output in cell.outputs:
        if output.output_type != "stream":
            yield output.get("data", {}).get("text/plain", "")


def same(found: str, stored: str) -> bool:
    """Whether texts agree: words and whole numbers exactly, other numbers as far as libraries round differently."""
    pairs = list(zip(NUMBER.findall(found), NUMBER.findall(stored), strict=False))
    return NUMBER.sub("#", found) == NUMBER.sub("#", stored) and all(
        a == b or ("." in a and float(a.replace(",", "")) == pytest.approx(float(b.replace(",", "")), 1e-3, 1e-6))
        for a, b in pairs
    )


def tree(folder: Path) -> dict[Path, int]:
    """Files of a folder and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def spent() -> float:
    """Seconds of processor time of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class OwnKernel(AsyncKernelManager):
    """Starts the kernel of the running interpreter, whatever kernels are installed elsewhere."""

    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])  # with no folders to search, python3 is this interpreter's ipykernel


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that executes a notebook in an empty folder, with this interpreter and this checkout."""
    work = tmp_path / "work"
    work.mkdir()
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's inline backend

    def execute(notebook: Any) -> Path:
        search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        where = {"metadata": {"path": str(work)}}
        client = NotebookClient(
            notebook, kernel_manager_class=OwnKernel, kernel_name="python3", timeout=HANGS, resources=where
        )
        client.execute(env={**os.environ, "PYTHONPATH": search})
        return work

    return execute


def test_there_are_notebooks() -> None:
    """The quickstart, three on scores, and one each on slices, clusters, nights with a cluster, and foreign loops."""
    names = {path.stem for path in NOTEBOOKS}
    expected = {"gain_curves", "nights_and_cluster", "quickstart", "ranking", "spam_clusters"}
    assert names >= expected | {"accumulate", "calibration", "is_it_real", "slices"}


@pytest.mark.notebooks
@each_notebook
def test_a_notebook_runs_and_says_what_is_stored(path: Path, run: Any) -> None:
    """Every cell runs, text that does not depend on the clock is the stored one, in time, and no file is left."""
    notebook, before, start = read(path), tree(path.parent), spent()
    stored = [list(texts(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    work = run(notebook)
    assert 1 < spent() - start < SECONDS
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, old in zip(cells, stored, strict=True):
        if TIMING not in cell.metadata.get("tags", ()):
            new = list(texts(cell))
            assert len(new) == len(old), cell.source
            for a, b in zip(new, old, strict=True):
                assert same(a, b), f"{cell.source}\n\nprints\n{a}\nstored is\n{b}"
    assert tree(path.parent) == before
    assert not list(work.iterdir())


@each_notebook
def test_a_stored_notebook_is_small_complete_and_of_no_machine(path: Path) -> None:
    """Executed from top to bottom, without errors, warnings or paths, and small enough to keep in a repository."""
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert path.stat().st_size < BYTES
    for cell in cells:
        assert all(output.output_type in {"stream", "display_data", "execute_result"} for output in cell.outputs)
        assert not any(output.get("name") == "stderr" for output in cell.outputs), cell.source
        for text in (*texts(cell), cell.source):
            assert not PATH.search(text), text


def fenced(path: Path, language: str) -> str:
    """The first block of a language among the texts of a notebook."""
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    return text.partition(f"```{language}\n")[2].partition("\n```")[0]


def test_what_a_scheduler_runs_ends_with_the_gate(tmp_path: Path) -> None:
    """The line of cron and the task of Airflow, as far as they run without these: good nights, then a broken one."""
    path = next(path for path in NOTEBOOKS if path.stem == "nights_and_cluster")
    cron = fenced(path, "cron").split(maxsplit=5)
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in cron[:5])
    task = ast.parse(fenced(path, "python"))
    words = {k.arg: k.value for call in ast.walk(task) if isinstance(call, ast.Call) for k in call.keywords}
    airflow = ast.literal_eval(words["bash_command"])
    assert cron[5].partition(" || ")[0] == airflow
    source = ROOT / "tests" / "data" / "spam_messages"
    for night in ("night=2026-01-01", "night=2026-01-02"):
        shutil.copytree(source / night, tmp_path / "data" / night)
    (tmp_path / "rules.toml").write_text('auc_floor = "roc_auc[score_lr] >= 0.9"\n')
    script = tmp_path / "bin" / "streameval"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m streameval "$@"\n')
    script.chmod(0o755)
    env = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    begin = airflow.replace("--on-error skip", "--on-error skip --score score_lr", 1)
    for command, status in ((begin, 0), (airflow, 0), (airflow, 3)):
        if status:
            broken = pq.read_table(source / "night=2026-01-03", partitioning=None)
            place = broken.schema.get_field_index("score_lr")
            turned = broken.set_column(place, "score_lr", pc.subtract(1.0, broken["score_lr"]).cast("float32"))
            put(tmp_path / "data" / "night=2026-01-03" / "part-0.parquet", turned)
        done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, check=False)
        assert done.returncode == status, done.stderr
    poster = script.with_name("curl")
    poster.write_text("#!/bin/sh\ncat > posted.json\n")
    poster.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", fenced(path, "sh")], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert (done.returncode, "FAIL" in json.loads((tmp_path / "posted.json").read_text())["text"]) == (3, True)
    night = ast.parse(fenced(path, "dagster"))
    asset = next(node for node in night.body if isinstance(node, ast.FunctionDef))
    called = {node.func.attr for node in ast.walk(asset) if isinstance(node, ast.Call) and "attr" in vars(node.func)}
    assert {"update", "check", "MaterializeResult", "AssetCheckResult"} <= called
