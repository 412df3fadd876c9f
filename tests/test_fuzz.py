"""A while of `benchmarks/fuzz.py`: random tables, store histories and damage, against exact fractions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"


@pytest.mark.skipif(not FUZZ.exists(), reason="needs the benchmarks of a checkout")
def test_nothing_is_silently_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number is its definition or refused; every damaged file is noticed or made again."""
    monkeypatch.syspath_prepend(str(FUZZ.parent))
    spec = importlib.util.spec_from_file_location("fuzz", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    fuzz = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz", fuzz)
    spec.loader.exec_module(fuzz)
    tally = fuzz.run(60, 1)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.cases.total() > 0
