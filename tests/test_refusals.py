"""A while of the command lines and arguments of `benchmarks/fuzzing`: none ends in an exception of a library."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the benchmarks of a checkout")


CASES = [("command_lines", "command", 60), ("arguments", "arguments", 400)]


@pytest.mark.parametrize(("module", "case", "count"), CASES)
def test_only_errors_of_this_project_reach_the_user(
    module: str, case: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statuses from 0 to 3, and one line for each refusal."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    run: Callable[[int, Path, Any], None] = getattr(import_module(f"fuzzing.{module}"), f"{case}_case")
    tally = import_module("fuzzing.cases").Tally()
    for seed in range(count):
        run(seed, tmp_path, tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.refusals.total() > count / 4
