"""A while of `benchmarks/fuzz.py`: random tables, store histories and damage, against exact fractions; odd calls."""

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
CASES = [("command_lines", "command", 40), ("arguments", "arguments", 250), ("pruning", "pruning", 60)]
pytestmark = pytest.mark.skipif(not FUZZ.exists(), reason="needs the benchmarks of a checkout")


def test_nothing_is_silently_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number is its definition or refused; every damaged file is noticed or made again."""
    monkeypatch.syspath_prepend(str(FUZZ.parent))
    spec = importlib.util.spec_from_file_location("fuzz", FUZZ)
    fuzz = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz", fuzz)
    spec.loader.exec_module(fuzz)
    tally = fuzz.run(5, 1)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.cases.total() > 0


@pytest.mark.parametrize(("module", "case", "count"), CASES)
def test_many_cases_of_one_kind(
    module: str, case: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statuses from 0 to 3, and one line for each refusal; the same rows with pruning and without."""
    monkeypatch.syspath_prepend(str(FUZZ.parent))
    run: Callable[[int, Path, Any], None] = getattr(import_module(f"fuzzing.{module}"), f"{case}_case")
    tally = import_module("fuzzing.cases").Tally()
    for seed in range(count):
        (tmp_path / str(seed)).mkdir()
        run(seed, tmp_path / str(seed), tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.refusals.total() > count / 5
