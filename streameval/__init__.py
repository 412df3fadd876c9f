"""Exact evaluation of scores and clusters on partitioned Parquet too large for memory.

`evaluate` reads data of any size once and gives exact ROC AUC, average precision and AUL, or intervals that are certain
to hold them. The other names are the same metrics for arrays in memory.

Names are imported when they are first used, so that ``import streameval`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streameval._version import __version__

if TYPE_CHECKING:
    from streameval.evaluation import Evaluation, evaluate
    from streameval.simulation import Simulation, simulate

_WHERE = {
    "evaluation": ("Evaluation", "evaluate"),
    "simulation": ("Simulation", "simulate"),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Evaluation",
    "Simulation",
    "__version__",
    "evaluate",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        msg = f"module 'streameval' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"streameval.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
