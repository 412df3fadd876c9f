"""README and CONTRIBUTING: commands run, files exist, and hooks have the pinned versions."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
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


def examples() -> list[tuple[str, str]]:
    """Every ``$`` command after those that set up, which a backslash goes on, and the lines below it."""
    consoles = [body for kind, body in BLOCKS if kind == "console"][SETUP:]
    return [one for body in consoles for one in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", body, re.M)]


def test_commands_print_what_is_shown(checkout: Path) -> None:
    """In order, with every line; a check that fails ends with status 3."""
    bash = shutil.which("bash") or "bash"
    for command, shown in examples():
        done = subprocess.run(
            [bash, "-c", f"{command} 2>&1"],
            cwd=checkout,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines(), command
        assert done.returncode == (3 if "FAIL" in shown else 0), command


@pytest.mark.parametrize("code", [body for kind, body in BLOCKS if kind == "python"])
def test_python_examples_run(code: str, checkout: Path) -> None:
    """Each block alone, without a cluster."""
    if "tcp://" in code:
        pytest.skip("needs a scheduler; tests/engine/cluster runs the same call")
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=checkout, env=environment(), check=True)


def test_dotted_names_work_after_import_alone() -> None:
    """Those of guides, messages and docstrings, in a process that has imported ``streameval`` and nothing else."""
    texts = [path.read_text() for path in (ROOT / ".github").glob("*.md")]
    texts += [path.read_text() for folder in (".", "notebooks", "benchmarks") for path in (ROOT / folder).glob("*.md")]
    texts += [path.read_text() for path in (ROOT / "notebooks").glob("*.ipynb")]
    for path in (ROOT / "streameval").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    names = {name for text in texts for name in re.findall(r"(?<![\w'/])streameval(?:\.[A-Za-z]\w*)+", text)}
    names -= {f"streameval.{key}" for key in ("header", "kind", "library", "rows", "version")}  # metadata of files
    assert len(names) > 150
    code = f"""
import functools, pkgutil, importlib, streameval
for name in {sorted(names)}:
    functools.reduce(getattr, name.split(".")[1:], streameval)
for found in pkgutil.walk_packages(streameval.__path__, "streameval."):
    assert not found.ispkg or "__getattr__" in vars(importlib.import_module(found.name)), found.name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_command_named_exists() -> None:
    """Benchmarks and guides that the README names are in the checkout, and it is short."""
    assert len(TEXT.encode()) <= 8000
    scripts = set(re.findall(r"(?:benchmarks|notebooks|\.github)/\w+\.(?:py|md)", TEXT))
    assert scripts
    assert all((ROOT / script).is_file() for script in scripts), scripts


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


def test_the_pythons_of_the_classifiers_are_checked() -> None:
    """By the workflow, which runs what a developer runs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r'"(3\.\d+)"', workflow) == claimed
    assert workflow.endswith("- run: .ci/run\n")


def test_every_notebook_is_listed() -> None:
    """In the index, and nothing else."""
    index = (ROOT / "notebooks" / "README.md").read_text()
    assert sorted(re.findall(r"`(\w+\.ipynb)`", index)) == sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb"))


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
