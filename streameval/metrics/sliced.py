"""A metric of many groups side by side: their partials come from one sweep over the scores of all.

The state is a `streameval.states.grouped.group_sweep.GroupSweep`. A metric with a method ``several(part)`` computes one
integer for every group of a part, in digits of 32 bits, and ``summed(number)`` turns their sum over all parts into the
partial. For other metrics the partial of each group is computed separately.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.metrics.finalize import combine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.typing import Array

__all__ = ["Sliced", "Together"]


@dataclass(frozen=True)
class Sliced:
    """A metric, or what its partials are taken by, of every group of a group sweep."""

    inner: Any

    @property
    def name(self) -> str:
        """The name of the metric."""
        return str(self.inner.name)

    def basis(self, part: Any) -> Sliced:
        """What metrics with equal partials share."""
        return Sliced(self.inner.basis(part.one(part.present[0]))) if hasattr(self.inner, "basis") else self

    def partial(self, part: Any) -> Any:
        """Groups that have scores in the part, and the partial of each; or one number of every group."""
        if hasattr(self.inner, "several"):
            return _Numbers(self.inner.summed, self.inner.several(part))
        return [(group, self.inner.partial(part.one(group))) for group in part.present]

    def combine(self, partials: Sequence[Any], state: Any) -> dict[tuple[int, bytes], Any]:
        """The value of each group, by its slicing and name."""
        rows: dict[int, list[list[Any]]] = defaultdict(list)
        if partials and isinstance(partials[0], _Numbers):
            for group, digits in enumerate(np.sum([each.digits for each in partials], axis=0).T.tolist()):
                number = sum(digit << 32 * i for i, digit in enumerate(digits))
                rows[group].append([partials[0].summed(number)])
        else:
            for part in partials:
                for group, found in part:
                    rows[group].append([found])
        return {name: combine(own, [self.inner], [rows[number]])[0] for name, (number, own) in state.groups.items()}


class _Numbers(NamedTuple):
    """A whole number of every group, in digits of 32 bits, and what makes a partial of one."""

    summed: Callable[[int], Any]
    digits: Array


@dataclass(frozen=True)
class Together:
    """Several metrics of every group of a group sweep: what the partials of a group are computed from is made once."""

    inner: tuple[Any, ...]
    name: str = "together"

    def partial(self, part: Any) -> list[tuple[int, list[Any]]]:
        """Groups that have scores in the part, and their partials."""
        found = []
        for group in part.present:
            one = part.one(group)
            bases = [metric.basis(one) if hasattr(metric, "basis") else metric for metric in self.inner]
            known = {basis: basis.partial(one) for basis in dict.fromkeys(bases)}
            found.append((group, [known[basis] for basis in bases]))
        return found

    def combine(
        self, partials: Sequence[list[tuple[int, list[Any]]]], state: Any
    ) -> dict[tuple[int, bytes], list[Any]]:
        """The values of each group, by its slicing and name."""
        rows = defaultdict(list)
        for part in partials:
            for group, found in part:
                rows[group].append(found)
        return {name: combine(own, self.inner, [rows[number]]) for name, (number, own) in state.groups.items()}
