"""Several rankings at once: the sums behind areas, without a state for each ranking.

A replicate of the areas over all rows needs three integers. One loop computes them for many blocks
(`streameval.kernels.blocks.rankings`), and some metrics take their partials from them (`Metric.ranked`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.blocks.rankings import AREA, PRECISION, SUMS, TRAPEZOID, rank_blocks
from streameval.metrics.finalize import combine
from streameval.states.protocol import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.protocol import Metric
    from streameval.typing import Array


@dataclass(frozen=True, eq=False)
class Ranking:
    """The rows of a ranking without their scores, with which metrics combine their partials."""

    spec: Any
    total: Totals
    nan_rows: Array
    nan_weights: Array

    def totals(self) -> Totals:
        """Rows of the scores that are not missing."""
        return self.total


@dataclass(frozen=True, eq=False)
class Rankings:
    """The rankings without some blocks, and their sums, computed for the first metric that needs them.

    Attributes
    ----------
    spec : of the block counts
    whole, table : int64 arrays of shape (n_bins, 2) and (n_blocks, n_bins, 2): rows of all blocks, and of each
    cuts : pieces of each bin, and what all counts are multiplied by
    blocks, step, side : as `rank_blocks` takes them
    missing : rows and weights of missing scores of each ranking, arrays of shape (n, 2), not multiplied
    still : bins without ties
    """

    spec: Any
    whole: Array
    table: Array
    cuts: tuple[Array, int]
    blocks: Array
    step: int
    missing: tuple[Array, Array]
    side: float = 0.0
    still: Sequence[int] = ()

    @cached_property
    def _ranked(self) -> tuple[list[Ranking], Array]:
        """The rankings, and their sums: whole numbers by ranking and column."""
        rows, sums = np.empty((self.blocks.size, 2), np.int64), np.empty((self.blocks.size, SUMS), np.uint64)
        fixed = np.zeros(len(self.whole), np.bool_)
        fixed[list(self.still)] = True
        rank_blocks(self.whole, self.table, self.blocks, self.step, *self.cuts, int(self.side), fixed, rows, sums)
        most = self.cuts[1]
        totals = (Totals(neg, pos, float(neg), float(pos)) for neg, pos in (rows * most).tolist())
        missing = (each * most for each in self.missing)
        states = [Ranking(self.spec, *each) for each in zip(totals, *missing, strict=True)]
        words = sums.astype(object)
        halves = (words[:, 0::2] << 64) + words[:, 1::2]
        return states, (halves[:, 0::2] << 32) + halves[:, 1::2]

    def _sums(self, first: int) -> list[int]:
        """The sums that begin in a column of the kernel."""
        found: list[int] = self._ranked[1][:, first // 4].tolist()
        return found

    @property
    def areas(self) -> list[int]:
        """Σ p·(2(N − F) − n) of each ranking."""
        return self._sums(AREA)

    @property
    def precisions(self) -> list[int]:
        """Σ p·precision of each ranking in units of 2⁻⁶², after a score."""
        return self._sums(PRECISION)

    @property
    def trapezoids(self) -> list[int]:
        """Σ p·precision of each ranking in units of 2⁻⁶², before and after a score together."""
        return self._sums(TRAPEZOID)

    def values(self, metrics: Sequence[Metric]) -> dict[int, list[float]]:
        """The values of each ranking, by the places of the metrics that take their partials from rankings."""
        asked = ((i, metric.ranked(self)) for i, metric in enumerate(metrics))
        partials = {i: found for i, found in asked if found is not None}
        some = [metrics[i] for i in partials]
        rows = zip(self._ranked[0], zip(*partials.values(), strict=True), strict=True) if some else ()
        values = [[value.value for value in combine(state, some, [[list(row)]])] for state, row in rows]
        return {i: [row[at] for row in values] for at, i in enumerate(partials)}
