"""Golden cases: what reference systems give, and what is right where they are known to be off."""

import json
import math
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a file."""
    return json.loads((DATA / f"{name}.json").read_text())


def wanted(case: dict[str, Any]) -> dict[str, Any]:
    """Values of a case: exact before intended before expected; errors of the reference do not count."""
    values = case["expected"] | case.get("intended", {}) | case.get("exact", {})
    return {key: value for key, value in values.items() if not (isinstance(value, dict) and "error" in value)}


def close(found: Any, want: Any, rel: float = 1e-12, absolute: float = 1e-12) -> bool:
    """Equal to a tolerance, element by element; NaN equals NaN, and text is NaN or an infinity."""
    if isinstance(want, list):
        return len(found) == len(want) and all(close(f, w, rel, absolute) for f, w in zip(found, want, strict=True))
    want = float(want)
    return math.isnan(found) if math.isnan(want) else math.isclose(found, want, rel_tol=rel, abs_tol=absolute)
