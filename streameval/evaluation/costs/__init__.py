"""Costs: how much each cluster and class lowers the score, from one sweep over folded states.

The states come from data, a store or an evaluation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval._submodules import submodules

if not TYPE_CHECKING:  # type checkers know the modules
    __getattr__ = submodules(__name__)
