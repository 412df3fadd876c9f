"""Several rankings at once: metrics of the rows without each block, of many states together.

A ranking is summed by a loop over its bins (`streameval.kernels.pieces.rank_blocks`), and a metric computes its values
of all rankings as one array. Sums are integers and quotients are rounded once, so values are, to the last bit, those of
each ranking alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.pieces import AFTER, AREA, BOTH, TERMS, WORDS, mean_words
from streameval.metrics.scores.sums import BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.typing import Array

_EXACT = 1 << 53  # all smaller integers are floats


class RankSums(NamedTuple):
    """The sums of several rankings of one state.

    Attributes
    ----------
    rows, missing : int64 arrays of shape (n_rankings, 2), rows by label, and those with a missing score that counts as
        half; multiples of the number of pieces of a bin
    inside : bool array of shape (n_rankings,), whether all scores are in [0, 1]
    sums : see `rank_blocks`
    """

    rows: Array
    missing: Array
    inside: Array
    sums: Array


class Rankings(NamedTuple):
    """Sums of several rankings without weights: arrays of shape (n_rankings,).

    Numbers of rows and of pairs are integers; those of Python where float64 may not hold their products.

    Attributes
    ----------
    won : twice the pairs won, ties as halves
    neg, pos : rows by label
    halved_neg, halved_pos : rows with a missing score that counts as half
    precision, trapezoid : float64, the mean precision at the positives, and that of it and the one before them
    means : of `MeanOfRows`, the mean over all rows
    """

    won: Array
    neg: Array
    pos: Array
    halved_neg: Array
    halved_pos: Array
    precision: Array
    trapezoid: Array
    means: Mapping[MeanOfRows, Array]

    @classmethod
    def of(cls, parts: Sequence[RankSums], means: Sequence[MeanOfRows]) -> Rankings:
        """The rankings of several states, one after the other; `means` are the metrics whose terms were summed."""
        rows, missing, inside, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        positives, every = rows[:, 1].copy(), rows.sum(axis=1)
        complete = np.where(missing.any(axis=1), math.nan, 1.0)  # otherwise these are undefined
        after, both = (np.ldexp(mean_words(sums, at, positives), -BITS) * complete for at in (AFTER, BOTH))
        columns = (mean_words(sums, TERMS + WORDS * k, every) for k in range(len(means)))
        certain = [np.where(inside, np.ldexp(column, -BITS), math.nan) * complete for column in columns]
        high, low = sums[:, AREA + 1], sums[:, AREA + 3]
        if 2.0 * float((every + missing.sum(axis=1)).max(initial=0)) ** 2 < _EXACT:
            won = ((high << np.uint64(32)) + low).astype(np.int64)
        else:
            rows, missing, (upper, lower) = rows.astype(object), missing.astype(object), sums[:, AREA:AFTER:2].T
            won = (((upper.astype(object) << 64) + high) << 32) + (lower.astype(object) << 64) + low
        (neg, pos), (halved_neg, halved_pos) = rows.T, missing.T
        return cls(won, neg, pos, halved_neg, halved_pos, after, both / 2, dict(zip(means, certain, strict=True)))

    def divided(self, top: Array, bottom: Array) -> Array:
        """Quotients, correctly rounded, as a float64 array of shape (n_rankings,); NaN for those by 0."""
        values = np.full(top.size, math.nan)
        some = (bottom != 0).astype(np.bool_)
        values[some] = (top[some] / bottom[some]).astype(np.float64)
        return values


class OfRankings(ABC):
    """Metrics of whole rankings, computed of several at once: to the last bit as of each alone."""

    @abstractmethod
    def of_rankings(self, rankings: Rankings) -> Array:
        """The value of each ranking, as a float64 array of shape (n_rankings,); NaN where it is undefined."""


class MeanOfRows(OfRankings):
    """Metrics that are the mean over all rows of what each adds by its score, in [0, 1], and its label."""

    @abstractmethod
    def terms(self, scores: Array, *, positive: bool) -> Array:
        """What a positive, or a negative, of each score adds: a float64 array of shape (n_scores,) in [0, 1]."""

    def of_rankings(self, rankings: Rankings) -> Array:
        """The mean of each ranking."""
        return rankings.means[self]
