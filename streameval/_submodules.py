"""Modules that are imported when they are first named: ``help(streameval.metrics.catalogue)`` works at once."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def submodules(package: str) -> Callable[[str], ModuleType]:
    """The ``__getattr__`` of a package whose modules are imported when they are first named, as `help` does."""
    return partial(_submodule, package)


def _submodule(package: str, name: str) -> ModuleType:
    missing = AttributeError(f"module {package!r} has no attribute {name!r}")
    if name.startswith("_"):
        raise missing
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise missing from None
