"""The loops that are compiled beforehand are those of all that is common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval import warm

if TYPE_CHECKING:
    import pytest


def test_warming_evaluates_slices_intervals_and_spilled_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subject whole, in slices and under a limit that spills; intervals, means and samples as well."""
    asked: list[dict[str, Any]] = []
    for name in ("evaluate", "attribute"):
        verb = getattr(warm, name)

        def noted(*data: Any, verb: Any = verb, **options: Any) -> Any:
            asked.append(options)
            return verb(*data, **options)

        monkeypatch.setattr(warm, name, noted)
    warm.warm(300)
    families = ({"score"}, {"score", "weight"}, {"cluster"}, {"cluster", "classes"})
    for family in families:
        for more in ({"by"}, {"ci"} if "classes" in family else {"unit"}):
            assert any(family | more <= set(options) for options in asked), (family, more)
        if "weight" not in family:
            assert any(family | {"memory", "by"} <= set(options) for options in asked), family
    named = set().union(*asked)
    assert {"approx", "approx_agc", "at", "baseline", "mean_over", "sketch", "truncate"} <= named
    assert any(options.get("metrics") == "*" for options in asked)
    assert any("label" in options and "classes" in options for options in asked)
