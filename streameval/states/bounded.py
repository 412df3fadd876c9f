"""Bounded: exact scores to the fixed histogram, for nights that are too old to keep every score of.

The histogram is the one that folding with ``approx`` gives: the same bins with the same counts, so that a night turned
into it merges with any other. A metric of nights of which some are bounded is bounded: a certain interval.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.histogram import BINS, FIRSTS, SHIFTS, bin_counts, bin_weights, unpack
from streameval.kernels.jit import read_only
from streameval.states.histogram import HistogramSpec, ScoreHistogram
from streameval.states.score_types import float_limit

if TYPE_CHECKING:
    from streameval.states.protocol import Array
    from streameval.states.scores import Groups, ScoreCounts, ScoreSpec

__all__ = ["bounded", "bounded_spec"]


def bounded_spec(spec: ScoreSpec) -> HistogramSpec:
    """The histogram's spec of an exact one."""
    return HistogramSpec(**asdict(spec))


def bounded(state: ScoreCounts) -> ScoreHistogram:
    """The histogram of exact counts, as folding the rows into it gives.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores import fold_arrays
    >>> state = bounded(fold_arrays(np.array([0, 1, 1], dtype=np.uint8), np.array([0.25, 0.5, 0.5])))
    >>> [(part.neg.tolist(), part.pos.tolist(), part.scores.tolist()) for part in state.parts()]
    [([0, 1], [2, 0], [0.5, 0.25])]
    """
    spec = bounded_spec(state.spec)
    table = np.zeros((3, BINS), np.int64)
    packed, only = np.zeros(BINS, np.int64), np.empty(BINS, np.int64)
    rows, sums = np.zeros((BINS, 2)), np.zeros((BINS if spec.weighted else 0, 2))
    rounding, errors = np.zeros_like(rows), np.zeros_like(sums)
    limit = float_limit(spec.type)
    for groups in state.parts():
        scores = read_only(groups.scores)
        bin_counts(scores, read_only(np.zeros(scores.size, np.uint8)), limit, packed, only, FIRSTS, SHIFTS)
        unpack(packed, only, table)
        _add(scores, groups.neg, groups.pos, rows, rounding)
        if spec.weighted:
            _add_weights(groups, scores, sums, errors)
    table[:2] = (rows + rounding).T.astype(np.int64)
    return ScoreHistogram(spec, table, sums + errors, state.nan_rows, state.nan_weights)


def _add(scores: Array, neg: Array, pos: Array, sums: Array, errors: Array) -> None:
    """Add negatives and positives to their bins; whole numbers below 2⁵³ are exact."""
    for label, side in enumerate((neg, pos)):
        labels, weight = np.full(scores.size, label, np.uint8), side.astype(np.float64)
        bin_weights(scores, read_only(labels), read_only(weight), sums, errors, FIRSTS, SHIFTS)


def _add_weights(groups: Groups, scores: Array, sums: Array, errors: Array) -> None:
    """Add weights to their bins."""
    if groups.neg_weight is not None and groups.pos_weight is not None:
        for label, weight in enumerate((groups.neg_weight, groups.pos_weight)):
            labels = read_only(np.full(scores.size, label, np.uint8))
            bin_weights(scores, labels, read_only(weight), sums, errors, FIRSTS, SHIFTS)
