"""Render results: tables for the terminal, and one HTML page for everyone else.

This package knows result types, but no metrics or states: callers pass what it needs to know about a metric, such as
whether higher is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval._submodules import submodules

if not TYPE_CHECKING:  # type checkers know the modules
    __getattr__ = submodules(__name__)
