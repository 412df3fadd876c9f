"""The verbs of `streameval.Store`: those that change it, evaluate it, and judge its nights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def several(given: str | Sequence[str] | None) -> list[str]:
    """One name or several as a list; empty for None."""
    return [given] if isinstance(given, str) else list(given or ())
