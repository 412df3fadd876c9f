"""Conversion of exact scores to the fixed histogram, for old nights whose distinct scores are no longer kept.

The histogram equals the one that folding the same rows with ``approx`` gives, so it merges with any other histogram.
Metrics over nights that include such a histogram have a certain interval.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.histogram import BINS, FIRSTS, SHIFTS, add_groups, bin_weights
from streameval.kernels.jit import read_only
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram
from streameval.states.scores.two_floats import two_sums
from streameval.states.scores.types import decode, float_limit

if TYPE_CHECKING:
    from streameval.states.keyed.grouping import Counts
    from streameval.states.scores.counts import ScoreCounts, ScoreSpec
    from streameval.typing import Array


def histogram_spec(spec: ScoreSpec) -> HistogramSpec:
    """The spec of the histogram that replaces an exact state."""
    return HistogramSpec(**asdict(spec))


def to_histogram(state: ScoreCounts) -> ScoreHistogram:
    """The histogram of exact counts, equal to folding their rows.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = to_histogram(fold_arrays(np.array([0, 1, 1], dtype=np.uint8), np.array([0.25, 0.5, 0.5])))
    >>> [(part.n.tolist(), part.p.tolist(), part.scores.tolist()) for part in state.parts()]
    [([0, 1], [2, 0], [0.5, 0.25])]
    """
    spec = histogram_spec(state.spec)
    table = np.zeros((3, BINS), np.int64)
    sums, errors = np.zeros((2, BINS if spec.weighted else 0, 2))
    limit = float_limit(spec.type)
    for groups in state.groups():
        scores = read_only(decode(groups.keys, spec.type))
        add_groups(scores, read_only(groups.neg), read_only(groups.pos), limit, table, FIRSTS, SHIFTS)
        if spec.weighted:
            _add_weights(groups, scores, sums, errors)
    nan = state.nan_rows, state.nan_weights, state.nan_errors
    return ScoreHistogram.of(spec, table, *two_sums(sums, errors), *nan)


def _add_weights(groups: Counts, scores: Array, sums: Array, errors: Array) -> None:
    """Add the weights of distinct scores to their bins."""
    if groups.neg_weight is not None and groups.pos_weight is not None:
        for label, weight in enumerate((groups.neg_weight, groups.pos_weight)):
            labels = read_only(np.full(scores.size, label, np.uint8))
            bin_weights(scores, labels, read_only(weight), sums, errors, FIRSTS, SHIFTS)
