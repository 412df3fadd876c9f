"""Finalize: states → results, shard by shard.

The partials of a metric of many groups come from one sweep over the rows of all, a `GroupSweep` or a `ClusterSweep`.
Some metrics compute one integer for every group of a part (`_NUMBERS`); for others the partial of each group is
computed separately.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from streameval.metrics.catalogue import entry_of
from streameval.metrics.protocol import HALF, LACKS_ROWS, NO_ROWS, Made, Metric, Partials, ShardMetric
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.results import Scalar
from streameval.states.grouped.sweeps import WHOLE, GroupSweep, GroupSweepPart, SweptGroup
from streameval.states.scores.counts import ScoreCounts
from streameval.states.scores.types import halved_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.sweeps import ClusterSweep, ClusterSweepPart
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Source
    from streameval.typing import Array

    Job = tuple[Source, list[Metric]]
    Columns = list[list[object]]  # the partials of each metric
    T = TypeVar("T")
    SweepPart = GroupSweepPart | ClusterSweepPart
    Partial = tuple[type[Metric], Array] | list[tuple[int, object]]


# numbers are those of NumPy's own settings, whatever the caller has set
numpy_settings = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")


@numpy_settings
def partials(state: Source, shard: Interval, metrics: Sequence[Metric], budget: Budget | None = None) -> Columns:
    """Partials of one shard: for each metric a list with one partial for each part; equal bases run once.

    If every metric declares in `scores` which scores it needs, other buckets are not read.
    """
    if metrics and isinstance(metrics[0], ShardMetric):
        return [[metric.read(state, shard, budget)] for metric in metrics if isinstance(metric, ShardMetric)]
    columns: Columns = [[] for _ in metrics]
    places: dict[Any, int] = {}
    bases: list[Any] = []
    order: list[int] = []
    whole: Any = state
    part: Any
    for part in _parts(state, shard, metrics, budget):
        due = [metric.basis(part) for metric in metrics]
        if due != bases:  # hardly ever after the first part; comparing is faster than hashing
            bases, places = due, {basis: i for i, basis in enumerate(dict.fromkeys(due))}
            order = [places[basis] for basis in due]
        each = [basis.partial(part) for basis in places]
        for column, place in zip(columns, order, strict=True):
            column.append(each[place])
    return [metric.joined(column, whole) for metric, column in zip(metrics, columns, strict=True)]


def _parts(state: Source, shard: Interval, metrics: Sequence[Metric], budget: Budget | None) -> Iterator[object]:
    """The parts of a shard that metrics read; of exact scores perhaps only some buckets, or sums without groups."""
    if not isinstance(state, ScoreCounts):
        return state.parts(shard, budget)
    ranks = all((entry := entry_of(metric.name)) and entry.needs == "ranks" for metric in metrics)
    parts = state.ranked_parts if ranks else state.parts
    return chain.from_iterable(parts(piece, budget) for piece in _needed(state, shard, metrics))


def _needed(state: ScoreCounts, shard: Interval, metrics: Sequence[Metric]) -> list[Interval]:
    """The parts of a shard that metrics read, without overlap: all of it unless every metric declares its scores."""
    spans = [metric.scores for metric in metrics]
    if not spans or None in spans:
        return [shard]
    needed: list[Interval] = []
    for start, stop in sorted(state.between(*span) for several in spans for span in several or ()):
        a, b = max(start, shard[0], needed[-1][1] if needed else 0), min(stop, shard[1])
        if a < b:
            needed.append((a, b))
    return needed


@numpy_settings
def combine(state: Source | SweptGroup, metrics: Sequence[Metric], shards: Iterable[Columns]) -> list[Scalar]:
    """Results from the partials of all shards, one for each metric; metrics share what they derive from equal partials.

    A metric that does not count NaN scores is undefined where the state has NaN scores that count one half. Where
    there are no rows, this is the reason, not that they are of one class.
    """
    columns: Columns = [[] for _ in metrics]
    whole: Any = state
    for shard in shards:
        for column, more in zip(columns, shard, strict=True):
            column += more
    halves = halved_rows(state) > 0
    made: Made = {}
    results = [
        Scalar.undefined(metric.name, HALF)
        if halves and not metric.counts_nan
        else metric.combine(Partials(column, made), whole)
        for metric, column in zip(metrics, columns, strict=True)
    ]
    lacking = [isinstance(value, Scalar) and value.reason in LACKS_ROWS for value in results]
    if not any(lacking) or state.totals().rows:
        return results
    return [replace(value, reason=NO_ROWS) if lacks else value for value, lacks in zip(results, lacking, strict=True)]


def in_rounds(
    finalize: Callable[[list[Job]], list[list[T]]], jobs: Sequence[tuple[Source, Sequence[Metric]]]
) -> list[list[T]]:
    """Values of each job's metrics; a metric whose value is another metric is finalized again with that one.

    Parameters
    ----------
    finalize : gives the values of each job's metrics
    jobs : pairs of a state and its metrics
    """
    results: list[list[Any]] = [list(metrics) for _, metrics in jobs]
    while due := {
        i: at for i, row in enumerate(results) if (at := [j for j, x in enumerate(row) if isinstance(x, Metric)])
    }:
        values = finalize([(jobs[i][0], [results[i][j] for j in at]) for i, at in due.items()])
        for (i, at), row in zip(due.items(), values, strict=True):
            for j, value in zip(at, row, strict=True):
                results[i][j] = value
    return results


def compute(state: Source, metric: Metric[T]) -> T:
    """One metric of a state in memory."""
    return cast("T", compute_metrics(state, [metric])[0])


def compute_metrics(state: Source, metrics: Sequence[Metric]) -> list[Scalar]:
    """Several metrics of a state in memory."""

    def finalize(jobs: list[Job]) -> list[list[Scalar]]:
        return [combine(s, several, [partials(s, shard, several) for shard in s.shards()]) for s, several in jobs]

    return in_rounds(finalize, [(state, metrics)])[0]


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


def scalars(metrics: Sequence[Metric], values: Sequence[Scalar | float]) -> list[Scalar]:
    """Values of metrics as `Scalar`; a user-defined metric may return plain numbers."""
    pairs = zip(metrics, values, strict=True)
    return [one if isinstance(one, Scalar) else Scalar.certain(metric.name, float(one)) for metric, one in pairs]
