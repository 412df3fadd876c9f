"""Labels that are late or few: statements in tables of their own, designs of samples, and plans of what to label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval._submodules import submodules

if not TYPE_CHECKING:  # type checkers know the modules
    __getattr__ = submodules(__name__)
