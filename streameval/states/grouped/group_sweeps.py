"""All rows and all slices of a state side by side, however its slicings are stored."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from streameval.states.grouped.cluster_sweep import ClusterSweep
from streameval.states.grouped.group_sweep import GroupSweep
from streameval.states.grouped.interleaved import Interleaved
from streameval.states.grouped.joint import Joint
from streameval.states.grouped.state import Grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.keys import By

__all__ = ["side_by_side"]


def side_by_side(
    held: Iterable[Any], keys: Sequence[By], each: Callable[..., list[Any]], budget: Budget | None = None
) -> list[GroupSweep | ClusterSweep]:
    """All rows and all slices; none if they are not stored in a way that one pass can read.

    Parameters
    ----------
    held : for each slicing the state that holds it, on demand; one `Joint` may hold all
    keys : the slicings
    each : maps a function over items, as `Engine.each`
    budget : decides how many rows are swept at a time
    """
    states = iter(held)
    first = next(states)
    if isinstance(first, Joint):
        parts = [first.spec.part(key) for key in keys]
        return [] if first.further else [GroupSweep.tallied(first.interleaved, each, parts, budget)]
    if not isinstance(first, Grouped):
        return []
    if not isinstance(first.interleaved, Interleaved):
        made = [ClusterSweep.of(state, k) for k, state in enumerate(chain([first], states))]
        return [] if None in made else [one for one in made if one is not None]
    if len(keys) > 1 or first.apart or len(first.composite.table):
        return []
    return [GroupSweep.tallied(first.interleaved, each, budget=budget)]
