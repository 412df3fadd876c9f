"""The README's examples run as they are printed, from a copy of the checkout's data."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.M | re.S)
SETUP = 2  # console blocks that set up; .ci/run calls them


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the README names, where its commands may write."""
    (tmp_path / "tests").mkdir()
    shutil.copytree(ROOT / "tests" / "data" / "spam_messages", tmp_path / "tests" / "data" / "spam_messages")
    return tmp_path


def environment() -> dict[str, str]:
    """The commands of this interpreter first."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}


def commands() -> list[str]:
    """Every ``$`` command after those that set up, and every line of the shell blocks; a backslash goes on."""
    consoles = [body for kind, body in BLOCKS if kind == "console"][SETUP:]
    lines = [line for body in consoles for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.M)]
    shells = "".join(body for kind, body in BLOCKS if kind == "sh").replace("\\\n", " ").splitlines()
    return [line.replace("\\\n", " ") for line in lines] + [line for line in shells if line.strip()]


def runs_here(command: str) -> bool:
    """Whether it needs nothing but the checkout: no bucket, no scheduler, no benchmark, no other library."""
    return not re.search(r"s3://|tcp://|benchmarks/|pip install", command)


def test_commands_run_in_order(checkout: Path) -> None:
    """The console examples print what the README shows; `check` may end with status 3."""
    script = "set -e\n" + "\n".join(filter(runs_here, commands()))
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", script],
        cwd=checkout,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    shown = [body for kind, body in BLOCKS if kind == "console"][SETUP:]
    rows = [line for body in shown for line in body.splitlines() if not line.startswith("$") and "\\" not in line]
    printed = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines()]
    for row in rows:
        if row.strip() and not row.lstrip().startswith(("--", "──")):
            assert " ".join(row.split()) in printed, row


@pytest.mark.parametrize("code", [body for kind, body in BLOCKS if kind == "python"])
def test_python_examples_run(code: str, checkout: Path) -> None:
    """Each block alone, without a cluster."""
    if "tcp://" in code:
        pytest.skip("needs a scheduler; tests/engine/cluster runs the same call")
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=checkout, env=environment(), check=True)


def test_every_command_named_exists() -> None:
    """Benchmarks and scripts that the README names are in the checkout."""
    scripts = set(re.findall(r"benchmarks/\w+\.py", TEXT))
    assert scripts
    assert all((ROOT / script).is_file() for script in scripts), scripts
