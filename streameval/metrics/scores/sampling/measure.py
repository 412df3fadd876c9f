"""The measure of rows in replicates: their number, or their weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.blocks.pieces import left_weights
from streameval.states.protocol import Totals
from streameval.states.scores.parts import ScorePart
from streameval.states.scores.weights import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.states.scores.blocks import BlockSpec
    from streameval.states.scores.parts import Ends
    from streameval.typing import Array


class Measure(NamedTuple):
    """The measure of the rows of block counts: every row counts one, or its weight.

    Numbers are distributed over groups by label, and so are weights. The rows that carry weights are distributed
    without regard to label, because metrics use only their total number. Arrays named `rows` are int64, those named
    `weights` float64, both by label; without weights, `weights` are empty.

    Attributes
    ----------
    weighted : whether rows have weights

    Examples
    --------
    >>> Measure(False).sides(np.array([[1, 2]])).tolist(), Measure(True).sides(np.array([[1, 2]])).tolist()
    ([[1, 2]], [[3]])
    """

    weighted: bool

    def sides(self, rows: Array) -> Array:
        """Rows as they are distributed: int64 array of shape (n, n_sides)."""
        return rows.sum(axis=1, keepdims=True) if self.weighted else rows

    def down_to(self, bins: Array, order: Array, groups: Array, weights: Array, alone: Array, spread: Array) -> Array:
        """Weights of each bin down to each sub-bin.

        Parameters
        ----------
        bins : the bin of each sub-bin
        order : the place of each sub-bin among groups, bins that are one sub-bin, and equal parts of bins
        groups : the measure of the groups
        weights : those of all bins
        alone, spread : bins that are one sub-bin, and the bin of each equal part
        """
        if not self.weighted:
            return weights
        parts = np.bincount(spread, minlength=len(weights))[spread][:, None]  # of the bin of each
        return within(bins, np.concatenate([groups, weights[alone], weights[spread] / parts])[order])

    def left(self, weights: Array, table: Array, rows: Array, first: int, count: int) -> Array:
        """Weights of the bins without some blocks.

        Parameters
        ----------
        weights, table : the weights of the bins, and by block in an array of shape (n_blocks, n_bins, 2)
        rows : the rows that are left
        first, count : the first block and their distance
        """
        left: Array = left_weights(weights, table, rows, first, count) if self.weighted else weights
        return left

    def kept(self, sub_bins: Array, rows: Array, weights: Array) -> tuple[Array, Array, Array]:
        """The sub-bins that have rows or weights left, with both; given are those with rows, and weights of all."""
        if not self.weighted:
            return sub_bins, rows, weights
        every = np.zeros((1, len(weights)), np.int64)
        every[:, sub_bins] = rows
        there = np.flatnonzero(every[0] | weights.any(axis=1))
        return there, every[:, there], weights[there]

    def totals(self, rows: Sequence[int], weights: Array, nan_weights: Array) -> Totals:
        """Totals of both classes; the unit of weights leaves room for those of missing scores."""
        neg, pos = rows
        if not self.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        unit = unit_of(float(weights.sum() + nan_weights.sum()))
        n, p = np.ldexp(weights, -unit).tolist()
        return Totals(neg, pos, n, p, weighted=True, unit=unit)

    def part(
        self,
        rows: Array | Sequence[Array],
        weights: Array | Sequence[Array],
        total: Totals,
        ends: Callable[[Array | slice], Ends],
        spec: BlockSpec,
    ) -> ScorePart:
        """The groups as metrics see them, all in one part."""
        if not self.weighted:
            return ScorePart(rows[0], rows[1], Totals(0, 0, 0.0, 0.0), total, ends, type=spec.type)
        neg, pos = (np.ldexp(side, -total.unit) for side in weights)
        none = Totals(0, 0, 0.0, 0.0, weighted=True)
        return ScorePart(neg, pos, none, total, ends, counts=rows[0], type=spec.type)


def within(bins: Array, values: Array) -> Array:
    """Cumulative sums within each bin, down to each sub-bin: an array of shape (n_sub_bins, n_sides), as the values.

    Examples
    --------
    >>> within(np.array([1, 1, 0]), np.array([[2], [3], [4]])).ravel().tolist()
    [2, 5, 4]
    """
    upto = np.cumsum(values, axis=0)
    first = np.searchsorted(-bins, -bins)
    found: Array = upto - np.where(first[:, None] > 0, upto[first - 1], 0)
    return found
