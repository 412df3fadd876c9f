"""The 2×2 table of a score at a threshold: rows whose score is at or above it are taken as positive.

Exact from `ScoreCounts`. A histogram knows the scores of a bin only up to its edges: its table is exact where the
threshold lies between bins or in a bin that has seen one score, and there is none otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.histogram import EMPTY, edges
from streameval.states.scores.histogram import ScoreHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ConfusionAt"]


@dataclass(frozen=True)
class ConfusionAt:
    """The table at a threshold, (TP, FN, FP, TN); of weights where the state has them.

    Attributes
    ----------
    threshold : float
        Scores at or above it are taken as positive. A NaN score is below every threshold where NaN counts one half,
        and left out otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> compute(state, ConfusionAt(0.35))
    (2, 0, 1, 1)
    """

    threshold: float
    name: str = "confusion"

    def __post_init__(self) -> None:
        if not _is_number(self.threshold):
            msg = f"threshold={self.threshold!r} must be a number, in the unit of the scores"
            raise OptionError(msg)
        if self.threshold != self.threshold:
            msg = "threshold is NaN, which no score reaches or misses; give a number or an infinity"
            raise OptionError(msg)

    def partial(self, part: Any) -> tuple[Any, Any]:
        """Negatives and positives of one part at or above the threshold."""
        above = part.scores >= self.threshold
        sides = (part.neg, part.pos) if part.neg_weight is None else (part.neg_weight, part.pos_weight)
        return sides[0][above].sum().item(), sides[1][above].sum().item()

    def combine(self, partials: Sequence[tuple[Any, Any]], state: Any) -> tuple[Any, Any, Any, Any]:
        """TP, FN, FP, TN.

        Raises
        ------
        OptionError
            If the threshold is within a histogram's bin.
        """
        if isinstance(state, ScoreHistogram):
            _check_bins(state, self.threshold)
        neg, pos = sum(part[0] for part in partials), sum(part[1] for part in partials)
        total = state.totals()
        weighted = state.spec.weighted
        sums = [total.neg_weight, total.pos_weight] if weighted else [total.neg, total.pos]
        if state.spec.nan == "half":
            nan = state.nan_weights if weighted else state.nan_rows
            sums = [have + more for have, more in zip(sums, nan.tolist(), strict=True)]
        return pos, max(sums[1] - pos, 0), neg, max(sums[0] - neg, 0)


def _is_number(value: object) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _check_bins(state: ScoreHistogram, threshold: float) -> None:
    """Refuse a threshold in a bin of several scores."""
    [bins] = state.parts()
    several = ~bins.single
    upper = edges(np.flatnonzero(state.table[2] != EMPTY)[::-1][several] + 1)
    lower = bins.scores[several]
    if state.spec.type != "f4":  # the edges of wider scores are rounded
        lower, upper = (
            np.nextafter(x.astype(np.float32), to).astype(np.float64) for x, to in ((lower, -np.inf), (upper, np.inf))
        )
    inside = np.flatnonzero((lower < threshold) & (threshold < upper))
    if inside.size:
        low, high = lower[inside[0]], upper[inside[0]]
        msg = (
            f"threshold {threshold!r} is within the bin [{float(low)!r}, {float(high)!r}) of a histogram; "
            "choose one of its ends, or evaluate without approx (--approx)"
        )
        raise OptionError(msg)
