"""A metric of many groups side by side: their partials come from one sweep over the scores of all.

The state is a `streameval.states.grouped.group_sweep.GroupSweep`. Some metrics compute one integer for every group of a
part (`_NUMBERS`). For other metrics the partial of each group is computed separately.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streameval.metrics.finalize import combine
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.states.grouped.group_sweep import WHOLE, GroupSweep, GroupSweepPart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.results import Scalar
    from streameval.states.grouped.cluster_sweep import ClusterSweep, ClusterSweepPart
    from streameval.typing import Array

    SweepPart = GroupSweepPart | ClusterSweepPart
    Partial = tuple[type[Metric], Array] | list[tuple[int, object]]


@dataclass(frozen=True)
class Sliced(Metric["dict[bytes, Scalar]", "SweepPart", "Partial", "GroupSweep | ClusterSweep"]):
    """A metric, or its basis, of every group of a group sweep."""

    inner: Metric

    @property
    def name(self) -> str:
        """The name of the metric."""
        return str(self.inner.name)

    def basis(self, part: SweepPart) -> Sliced:
        """The basis shared by metrics with equal partials; the scores of a group are read only if the metric asks."""
        if type(self.inner).basis is Metric.basis:
            return self
        one: Any = part.one(part.present[0])
        return Sliced(cast("Metric", self.inner.basis(one)))

    def partial(self, part: SweepPart) -> Partial:
        """Groups that have scores in the part, and the partial of each; or a metric and one integer of every group."""
        if type(self.inner) in _NUMBERS:
            return type(self.inner), cast("GroupSweepPart", part).sums[_NUMBERS[type(self.inner)][0]]
        read: Callable[[Any], object] = self.inner.partial
        return [(group, read(part.one(group))) for group in part.present]

    def combine(self, partials: Sequence[Partial], state: GroupSweep | ClusterSweep) -> dict[bytes, Scalar]:
        """The value of each group, by its name."""
        columns: dict[int, list[object]] = defaultdict(list)
        if sums := [part for part in partials if isinstance(part, tuple)]:
            numbers = np.sum([numbers for _, numbers in sums], axis=0).tolist()
            columns |= {group: [_NUMBERS[sums[0][0]][1](number)] for group, number in enumerate(numbers)}
        for part in partials:
            for group, found in part if isinstance(part, list) else ():
                columns[group].append(found)
        return {
            name: combine(own, [self.inner], [[columns[number]]])[0] for name, (number, own) in state.groups.items()
        }


# by type of the metric: which of the sums of a part it takes, and what makes a partial of the sum over all parts
_NUMBERS: dict[type[Metric], tuple[int, Callable[[int], tuple[float, ...]]]] = {
    RocAuc: (0, lambda won: (won, 0)),
    AveragePrecision: (1, lambda halves: (2 * halves, 2 * halves, 0.0)),
}


@dataclass(frozen=True)
class CutRows(Metric["Mapping[bytes, int]", "ClusterSweepPart", "Array", "ClusterSweep"]):
    """Rows of each group in clusters that it cuts, from the parts of a sweep."""

    name: str = "cut"

    def partial(self, part: ClusterSweepPart) -> Array:
        """The rows of one part."""
        return part.cut

    def combine(self, partials: Sequence[Array], state: ClusterSweep) -> Mapping[bytes, int]:
        """The sum over all parts."""
        rows = np.sum(partials, axis=0)
        return {name: int(rows[number]) for name, (number, _) in state.groups.items() if name != WHOLE}
