"""Several rankings at once: the sums that the areas under them need, without a state for each.

A replicate of the areas under all rows needs three whole numbers. One loop makes them for many blocks
(`streameval.kernels.blocks.rankings`), and a metric with a method ``ranked`` takes its partials from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.blocks.rankings import AREA, PRECISION, SUMS, TRAPEZOID, rank_blocks
from streameval.metrics.finalize import combine
from streameval.states.protocol import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.protocol import Metric
    from streameval.typing import Array

__all__ = ["Ranking", "Rankings"]


@dataclass(frozen=True, eq=False)
class Ranking:
    """What metrics combine their partials with: the rows of a ranking without their scores."""

    spec: Any
    total: Totals
    nan_rows: Array
    nan_weights: Array

    def totals(self) -> Totals:
        """Rows of the scores that are not missing."""
        return self.total


@dataclass(frozen=True, eq=False)
class Rankings:
    """Sums over several rankings; all counts are multiplied by the same number.

    Attributes
    ----------
    states : the rankings
    areas : Σ p·(2(N − F) − n) of each
    precisions, trapezoids : Σ p·precision of each in units of 2⁻⁶², after a score, and before and after it together
    """

    states: Sequence[Ranking]
    areas: Sequence[int]
    precisions: Sequence[int]
    trapezoids: Sequence[int]

    @classmethod
    def of(
        cls, spec: Any, whole: Array, table: Array, cuts: tuple[Array, int], blocks: Array, step: int,
        missing: tuple[Array, Array], side: float = 0.0, still: Sequence[int] = (),
    ) -> Rankings:  # fmt: skip
        """The rankings without some blocks.

        Parameters
        ----------
        spec : of the block counts
        whole, table : int64 arrays of shape (n_bins, 2) and (n_blocks, n_bins, 2): rows of all blocks, and of each
        cuts : pieces of each bin, and what all counts are multiplied by
        blocks, step, side : as `rank_blocks` takes them
        missing : rows and weights of missing scores of each ranking, arrays of shape (n, 2), not multiplied
        still : bins without ties
        """
        rows, sums = np.empty((blocks.size, 2), np.int64), np.empty((blocks.size, SUMS), np.uint64)
        fixed = np.zeros(len(whole), np.bool_)
        fixed[list(still)] = True
        rank_blocks(whole, table, blocks, step, *cuts, int(side), fixed, rows, sums)
        most = cuts[1]
        totals = (Totals(neg, pos, float(neg), float(pos)) for neg, pos in (rows * most).tolist())
        states = [Ranking(spec, *each) for each in zip(totals, *(each * most for each in missing), strict=True)]
        words = sums.astype(object)
        halves = (words[:, 0::2] << 64) + words[:, 1::2]
        whole_sums = (halves[:, 0::2] << 32) + halves[:, 1::2]
        return cls(states, *(whole_sums[:, first // 4].tolist() for first in (AREA, PRECISION, TRAPEZOID)))

    def values(self, metrics: Sequence[Metric]) -> dict[int, list[float]]:
        """The values of each ranking, by the places of the metrics that have a method ``ranked`` for it."""
        asked = ((i, metric.ranked(self)) for i, metric in enumerate(metrics) if hasattr(metric, "ranked"))
        partials = {i: found for i, found in asked if found is not None}
        some = [metrics[i] for i in partials]
        rows = zip(self.states, zip(*partials.values(), strict=True), strict=True) if some else ()
        values = [[value.value for value in combine(state, some, [[list(row)]])] for state, row in rows]
        return {i: [row[at] for row in values] for at, i in enumerate(partials)}
