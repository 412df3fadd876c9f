"""Modules that are imported when they are first named: ``help(streameval.metrics.catalogue)`` works at once."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def import_when_named(package: str) -> None:
    """Give a package a ``__getattr__`` that imports its modules when they are first named, as `help` does.

    Type checkers know the modules, so this is a call rather than a definition that would hide misspelt names.
    """
    vars(sys.modules[package])["__getattr__"] = partial(import_submodule, package)


def import_submodule(package: str, name: str) -> ModuleType:
    """Import a module of a package; raises `AttributeError` if there is none."""
    missing = AttributeError(f"module {package!r} has no attribute {name!r}")
    if name.startswith("_") or not name.isidentifier():
        raise missing
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise missing from None
