"""What contributors are told: the versions of the linters, and the paths that the guide names."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text()
GUIDE = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["test"]
PATHS = sorted(set(re.findall(r"(?<![\w/.])((?:[\w-]+/)+[\w-]*(?:\.\w+)?)", GUIDE)) - {"bin/", "/src", "/wheels"})


@pytest.mark.parametrize("tool", ["ruff", "mypy"])
def test_hooks_run_the_versions_of_the_extra(tool: str) -> None:
    """Every hook of a tool installs the version that the test extra pins, and none takes another one from outside."""
    pinned = next(requirement for requirement in EXTRAS if requirement.startswith(f"{tool}=="))
    hooks = re.split(r"\n +- id: ", HOOKS)[1:]
    own = [hook for hook in hooks if re.search(rf"entry: {tool} ", hook)]
    assert own
    for hook in own:
        assert f'additional_dependencies: ["{pinned}"]' in hook
        assert "language: python" in hook


def test_every_hook_is_of_a_pinned_tool() -> None:
    """No hook runs a tool whose version nobody pins."""
    assert set(re.findall(r"entry: (\S+)", HOOKS)) == {"ruff", "mypy"}


@pytest.mark.parametrize("path", PATHS)
def test_the_guide_names_paths_that_exist(path: str) -> None:
    """From the root or from the package."""
    assert any((folder / path).exists() for folder in (ROOT, ROOT / "streameval"))


def test_the_life_of_a_row_names_what_is_there() -> None:
    """Each function or class stands in the file that the drawing names beside it."""
    steps = re.findall(r"([\w/]+\.py) {1,}(\w+) ", GUIDE.partition("## The life of a row")[2].partition("## Add")[0])
    assert len(steps) > 12
    for path, name in steps:
        assert re.search(rf"(def|class) {name}\b", (ROOT / "streameval" / path).read_text()), (path, name)


def test_the_top_level_holds_nothing_else() -> None:
    """What a tool leaves behind, such as a profile, is not committed with the rest."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    top = {name.partition("/")[0] for name in listed.stdout.splitlines()}
    plain = {name for name in top if not name.startswith(".")}
    assert plain == {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "benchmarks",
        "notebooks",
        "pyproject.toml",
        "streameval",
        "tests",
    }
    assert top - plain == {".ci", ".github", ".gitignore", ".pre-commit-config.yaml"}
