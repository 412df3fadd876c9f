"""The best matching of a contingency table, from the cells that decide it.

It is computed only if a metric needs it. A component of more than `assignment_cells` cells is bounded, not solved,
which gives a certain interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.metrics.contingency.assignment import Matching, best_matching

if TYPE_CHECKING:
    from streameval.states.contingency.matching_core import CoreCells

__all__ = ["matching"]


def matching(core: CoreCells, assignment_cells: int) -> Matching:
    """The best matching of a table, from its core."""
    found = best_matching(core.classes, core.clusters, core.counts, assignment_cells)
    return Matching(found.lower + core.settled, found.upper + core.settled)
