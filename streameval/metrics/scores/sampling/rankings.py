"""Several rankings at once: the sums behind areas, without the groups of each ranking.

A replicate of the areas over all rows needs three integers. One loop computes them for many blocks
(`streameval.kernels.blocks.rankings`); each ranking is then a state with a single `RankedPart`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks.rankings import SUMS, rank_blocks
from streameval.states.keyed.grouping import Ranked
from streameval.states.protocol import Small, Totals
from streameval.states.scores.parts import RankedPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.states.scores.blocks import BlockSpec
    from streameval.typing import Array


@dataclass(frozen=True, eq=False)
class Ranking(Small):
    """The rows of a ranking without their scores.

    Attributes
    ----------
    spec : of the block counts
    part : its sums
    nan_rows, nan_weights : rows and weights of missing scores, arrays of shape (2,)
    """

    spec: BlockSpec
    part: RankedPart
    nan_rows: Array
    nan_weights: Array

    def totals(self) -> Totals:
        """Rows of the scores that are not missing."""
        return self.part.total

    def parts(self, shard: object = None, budget: object = None) -> Iterator[RankedPart]:
        """One: all rows."""
        yield self.part


def rankings_without(
    spec: BlockSpec,
    whole: Array,
    table: Array,
    cuts: tuple[Array, int],
    blocks: Array,
    step: int,
    missing: tuple[Array, Array],
    side: float = 0.0,
    still: Sequence[int] = (),
) -> list[Ranking]:
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
    words = sums.astype(object)
    halves = (words[:, 0::2] << 64) + words[:, 1::2]
    made = []
    for (neg, pos), (won, precision, trapezoid), *nan in zip(
        (rows * most).tolist(),
        ((halves[:, 0::2] << 32) + halves[:, 1::2]).tolist(),
        *(each * most for each in missing),
        strict=True,
    ):
        found = Ranked(won, 2 * precision, neg, pos, neg, pos, trapezoid)
        total = Totals(neg, pos, float(neg), float(pos))
        made.append(Ranking(spec, RankedPart(found, Totals(0, 0, 0.0, 0.0), total), *nan))
    return made
