"""A metric of many groups side by side: their partials come from one sweep over the scores of all.

The state is a `streameval.states.grouped.group_sweep.GroupSweep`. Some metrics compute one integer for every group of a
part (`Metric.several`), in digits of 32 bits, and make the partial of their sum over all parts (`Metric.summed`). For
other metrics the partial of each group is computed separately.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.metrics.finalize import combine
from streameval.metrics.protocol import Metric
from streameval.states.grouped.group_sweep import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.states.grouped.cluster_sweep import ClusterSweep, ClusterSweepPart
    from streameval.typing import Array


@dataclass(frozen=True)
class Sliced(Metric):
    """A metric, or its basis, of every group of a group sweep."""

    inner: Any

    @property
    def name(self) -> str:
        """The name of the metric."""
        return str(self.inner.name)

    def basis(self, part: Any) -> Sliced:
        """What metrics with equal partials share; the scores of a group are looked at only where the metric asks."""
        if type(self.inner).basis is Metric.basis:
            return self
        return Sliced(self.inner.basis(part.one(part.present[0])))

    def partial(self, part: Any) -> Any:
        """Groups that have scores in the part, and the partial of each; or one number of every group."""
        if (digits := self.inner.several(part)) is not None:
            return _Numbers(self.inner.summed, digits)
        return [(group, self.inner.partial(part.one(group))) for group in part.present]

    def combine(self, partials: Sequence[Any], state: Any) -> dict[bytes, Any]:
        """The value of each group, by its name."""
        columns: dict[int, list[Any]] = defaultdict(list)
        if partials and isinstance(partials[0], _Numbers):
            for group, digits in enumerate(np.sum([each.digits for each in partials], axis=0).T.tolist()):
                number = sum(digit << 32 * i for i, digit in enumerate(digits))
                columns[group].append(partials[0].summed(number))
        else:
            for part in partials:
                for group, found in part:
                    columns[group].append(found)
        return {
            name: combine(own, [self.inner], [[columns[number]]])[0] for name, (number, own) in state.groups.items()
        }


class _Numbers(NamedTuple):
    """A whole number of every group, in digits of 32 bits, and what makes a partial of one."""

    summed: Callable[[int], Any]
    digits: Array


@dataclass(frozen=True)
class CutRows(Metric):
    """Rows of each group in clusters that it cuts, from the parts of a sweep."""

    name: str = "cut"

    def partial(self, part: ClusterSweepPart) -> Array:
        """The rows of one part."""
        return part.cut

    def combine(self, partials: Sequence[Array], state: ClusterSweep) -> Mapping[bytes, int]:
        """The sum over all parts."""
        rows = np.sum(partials, axis=0)
        return {name: int(rows[number]) for name, (number, _) in state.groups.items() if name != WHOLE}
