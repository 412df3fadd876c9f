"""Sums over strides of groups, which metrics of probabilities share, and the pooled blocks of the isotonic fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.calibration.pooling import pool_counts, pool_weights
from streameval.kernels.calibration.strides import stride_sums
from streameval.kernels.thresholds import STRIDE
from streameval.metrics.scores.sums import dot, integer, integers

if TYPE_CHECKING:
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["Strides", "pooled", "strides"]


class Strides(NamedTuple):
    """Sums over the groups of a part of counts that several metrics of probabilities share.

    Attributes
    ----------
    n, p, scores : of each group
    levels : see `ScorePart.levels`
    starts : uint64 array of shape (n_strides + 1, 2), Σ (p + n)·s of the groups before each stride in units of 2⁻⁶², as
        two words
    squares : Σ p·(1 − s)² + n·s² in units of 2⁻⁶²
    full : whether every group holds something
    """

    n: Array
    p: Array
    scores: Array
    levels: Array
    starts: Array
    squares: int
    full: bool

    def upto(self, end: int) -> tuple[int, int, int]:
        """Negatives and positives above the end of the first `end` groups, and Σ (p + n)·s of these."""
        stride = end // STRIDE if end < self.n.size else self.starts.shape[0] - 1
        (of_neg, of_pos), score = self.levels[:, stride].tolist(), integer(self.starts[stride].tolist())
        if end in (stride * STRIDE, self.n.size):
            return of_neg, of_pos, score
        rest = slice(stride * STRIDE, end)
        n, p, scores = self.n[rest], self.p[rest], self.scores[rest]
        return of_neg + int(n.sum()), of_pos + int(p.sum()), score + int(dot(n + p, scores))


def strides(part: ScorePart, scores: Array) -> Strides:
    """The sums of a part of counts whose groups have these probabilities."""
    found: Strides = part.once("strides", lambda: _strides(part, scores))
    return found


def _strides(part: ScorePart, scores: Array) -> Strides:
    levels, starts, found, full = stride_sums(part.n, part.p, scores, part.before.n, part.before.p)
    part.once("levels", lambda: levels)  # unless another metric asked before
    return Strides(part.n, part.p, scores, levels, starts, integer(found), bool(full))


_NONE = np.empty((2, 0), np.int64)


def pooled(n: Array, p: Array, levels: Array = _NONE) -> tuple[Array, Array, Array]:
    """Blocks of the isotonic fit of groups that hold something: negatives, positives, and the last group of each.

    `levels` are those of the part where they are known (`ScorePart.levels`), which is faster.
    """
    found: tuple[Array, Array, Array]
    found = pool_counts(n, p, levels) if integers(n) else pool_weights(n, p)
    return found
