"""A score state that is split by block and keeps every score: the exact replicates of ``--resample-bins exact``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.metrics.finalize import compute
from streameval.metrics.protocol import Metric
from streameval.metrics.resampled import Thresholded
from streameval.metrics.units import Sizes, class_counts
from streameval.states.scores.missing import halved
from streameval.states.scores.types import compared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.metrics.resampled import Exact
    from streameval.results import Scalar
    from streameval.states.grouped.groups import Grouped
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array


class _Ranking(NamedTuple):
    """Scores from the worst to the best, with the measure of both classes at or above each.

    Attributes
    ----------
    scores : array of shape (n_groups,), ascending
    measure : float64 array of shape (2, n_groups + 1), of negatives and positives; the last is 0
    type : that of the scores
    """

    scores: Array
    measure: Array
    type: str

    def above(self, threshold: float) -> Array:
        """Measure of negatives and positives that score at or above a threshold."""
        found: Array = self.measure[:, np.searchsorted(self.scores, compared(threshold, self.type))]
        return found


@dataclass(frozen=True)
class _Ranked(Metric):
    """A metric whose value is the `_Ranking` of a score."""

    name: str = "ranking"

    def partial(self, part: ScorePart) -> tuple[Array, Array]:
        """The scores of one part, and the measure of both classes."""
        return part.scores, np.stack((part.n, part.p)).astype(np.float64)

    def combine(self, partials: Sequence[tuple[Array, Array]], state: Any) -> _Ranking:
        """All scores in order."""
        if not partials:
            return _Ranking(np.empty(0), np.zeros((2, 1)), state.spec.type)
        scores, measure = (np.concatenate(each, axis=-1) for each in zip(*partials, strict=True))
        order = np.argsort(scores)
        above = np.cumsum(measure[:, order[::-1]], axis=1)[:, ::-1]
        in_ones = np.ldexp(np.pad(above, ((0, 0), (0, 1))), state.totals().unit)
        return _Ranking(scores[order], in_ones, state.spec.type)


@dataclass(frozen=True)
class SplitState(Thresholded):
    """A score state that is split by block.

    Attributes
    ----------
    grouped : the state, split by `streameval.states.grouped.Blocks`
    unit : the sampling unit: a column, or ``row``
    count : number of blocks; block b of the state is in block b modulo this
    """

    grouped: Grouped
    unit: str
    count: int

    @cached_property
    def sizes(self) -> Sizes:
        """Measure of the rows of each block, with missing scores that count as halves."""
        found = np.zeros((2, self.count))
        weighted = False
        for block in self.grouped.groups():
            state = self.grouped.only(block)
            for totals in (state.totals(), halved(state)):
                weighted |= totals.weighted
                found[:, block % self.count] += np.ldexp([totals.n, totals.p], totals.unit)
        return Sizes(self.unit, class_counts(*found), single=self.unit == "row" and not weighted)

    def without(self, block: int) -> Any:
        """The state of the rows of all other blocks."""
        return self.grouped.without(*(b for b in self.grouped.groups() if b % self.count == block))

    def merged(self, count: int) -> SplitState:
        """The same rows in fewer blocks."""
        return replace(self, count=count)

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """The measure of the rows of each block that score at or above a threshold."""
        found = np.zeros((2, self.count))
        for block, ranking in self._rankings.items():
            found[:, block % self.count] += ranking.above(threshold)
        return class_counts(*found)

    @cached_property
    def _rankings(self) -> dict[int, _Ranking]:
        """The scores of each block, read once for the many thresholds of a curve."""
        return {block: compute(self.grouped.only(block), _Ranked()) for block in self.grouped.groups()}

    def total(self) -> None:
        """None: the values are computed from these rows."""

    def focused(self, values: Sequence[Scalar], metrics: Sequence[Metric], exact: Exact) -> SplitState:
        """The same."""
        return self

    def displaced(self) -> Sequence[SplitState]:
        """Empty: the scores of each block are known."""
        return ()

    def tied(self, metrics: Sequence[Metric]) -> Sequence[SplitState]:
        """Empty: the scores of each block are known."""
        return ()

    def certified(self, exact: Exact) -> str | None:
        """Nothing is approximated."""
        return None
