"""Sums over strides of groups, which metrics of probabilities share, and the pooled blocks of the isotonic fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.calibration.pooling import pool_counts, pool_weights
from streameval.kernels.calibration.strides import drift_counts, extreme_strides, stride_sums
from streameval.kernels.exact import integer
from streameval.kernels.thresholds import STRIDE
from streameval.metrics.scores.calibration.logit_table import binned, summed
from streameval.metrics.scores.sums import dot, integers

if TYPE_CHECKING:
    from streameval.metrics.scores.calibration.logit_table import Bins
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

MANY = 1 << 17  # number of rows from which on bins of the logit are faster than a logarithm for each score
_WORD = 1 << 32  # number of rows from which on sums of strips may overflow a word


class Strides(NamedTuple):
    """Sums over the groups of a part of counts, which several metrics of probabilities share.

    Attributes
    ----------
    n, p, scores : of each group; scores may be a `ScoreLookup`
    levels : see `ScorePart.levels`
    starts : uint64 array of shape (n_strides + 1, 2), Σ (p + n)·s of the groups before each stride in units of 2⁻⁶², as
        two words
    squares : Σ p·(1 − s)² + n·s² in units of 2⁻⁶²
    full : whether every group has rows
    bins : bins of the logit of all scores but 0 and 1; None if they were not computed with these sums
    """

    n: Array
    p: Array
    scores: Any
    levels: Array
    starts: Array
    squares: int
    full: bool
    bins: Bins | None = None

    def upto(self, end: int) -> tuple[int, int, int]:
        """Negatives and positives up to the first `end` groups of this part, and Σ (p + n)·s of these groups."""
        stride = end // STRIDE if end < self.n.size else self.starts.shape[0] - 1
        (of_neg, of_pos), score = self.levels[:, stride].tolist(), integer(self.starts[stride].tolist())
        if end in (stride * STRIDE, self.n.size):
            return of_neg, of_pos, score
        rest = slice(stride * STRIDE, end)
        n, p, scores = self.n[rest], self.p[rest], self.scores[rest]
        return of_neg + int(n.sum()), of_pos + int(p.sum()), score + int(dot(n + p, np.asarray(scores)))

    def drifts(self) -> tuple[int, int, int]:
        """Running sums of p − (p + n)·s in units of 2⁻⁶²: the last, least and greatest, the empty sum included."""
        followed = extreme_strides(self.levels, self.starts)
        groups = (followed[:, None] * STRIDE + np.arange(STRIDE)).ravel()
        scores = np.asarray(self.scores[groups[groups < self.n.size]])
        rows = drift_counts(self.n, self.p, scores, self.levels, self.starts, followed).tolist()
        last, least, most = ((high << 64 | low) - (high >> 63 << 128) for high, low in rows)
        return last, least, most


def strides(part: ScorePart, scores: Any) -> Strides:
    """The sums of a part of counts, given the probabilities of its groups."""
    found: Strides = part.once("strides", lambda: _strides(part, scores))
    return found


def _strides(part: ScorePart, scores: Any) -> Strides:
    n, p, above, keys, bins = part.n, part.p, (part.before.n, part.before.p), strip_keys(part), None
    if keys is None:
        levels, starts, found, full = stride_sums(n, p, scores, *above)
    else:
        (levels, starts, found, full), bins = summed(n, p, scores, keys, above)
    part.once("levels", lambda: levels)  # unless another metric has computed them
    return Strides(n, p, scores, levels, starts, integer(found), bool(full), bins)


def strip_keys(part: ScorePart) -> Array | None:
    """The keys of a part if its sums are computed by strips (`streameval.kernels.calibration.strips`), else None.

    The choice depends on the totals of all parts, so that every part is summed in the same way.
    """
    return part.keys if part.type == "f4" and integers(part.n) and MANY <= part.total.rows < _WORD else None


def bins_of(part: ScorePart) -> Bins:
    """The bins of the logit of a part of counts; every score must have a logit."""
    if strip_keys(part) is not None and (found := strides(part, part.lookup).bins):
        return found
    made: Bins = part.once("logit bins", lambda: binned(part.n, part.p, part.scores))
    return made


_NONE = np.empty((2, 0), np.int64)


def pooled(n: Array, p: Array, levels: Array = _NONE) -> tuple[Array, Array, Array]:
    """Blocks of the isotonic fit of the groups that have rows: negatives, positives, and the last group of each.

    `levels` are those of the part where they are known (`ScorePart.levels`), which is faster.
    """
    found: tuple[Array, Array, Array]
    found = pool_counts(n, p, levels) if integers(n) else pool_weights(n, p)
    return found
