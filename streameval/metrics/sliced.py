"""A metric of many groups side by side: their partials come from one sweep over the scores of all.

The state is a sheaf (`streameval.states.grouped.sheaf`). A metric with a method ``several(part)`` takes the partials of
all groups of a part in one loop; of others each group's is taken on its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.metrics.finalize import combine

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Sliced"]


@dataclass(frozen=True)
class Sliced:
    """A metric, or what its partials are taken by, of every group of a sheaf."""

    inner: Any

    @property
    def name(self) -> str:
        """The name of the metric."""
        return str(self.inner.name)

    def basis(self, part: Any) -> Sliced:
        """What metrics with equal partials share."""
        return Sliced(self.inner.basis(part.one(part.present[0]))) if hasattr(self.inner, "basis") else self

    def partial(self, part: Any) -> list[tuple[int, Any]]:
        """Groups that have scores in the part, and the partial of each."""
        if hasattr(self.inner, "several"):
            found: list[tuple[int, Any]] = self.inner.several(part)
            return found
        return [(group, self.inner.partial(part.one(group))) for group in part.present]

    def combine(self, partials: Sequence[list[tuple[int, Any]]], state: Any) -> dict[tuple[int, bytes], Any]:
        """The value of each group, by its slicing and name."""
        rows = defaultdict(list)
        for part in partials:
            for group, found in part:
                rows[group].append([found])
        return {name: combine(own, [self.inner], [rows[number]])[0] for name, (number, own) in state.groups.items()}
