"""Costs: how much each cluster and class lowers the score, from one sweep over folded states.

The states come from data, a store or an evaluation.
"""

from __future__ import annotations

from streameval._submodules import import_when_named

import_when_named(__name__)
