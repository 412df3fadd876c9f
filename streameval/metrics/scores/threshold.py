"""The 2×2 table of a score at a threshold: rows whose score is at or above it are taken as positive.

The table is exact. From a histogram it can be had where the threshold lies between bins or in a bin of a single score;
a threshold within an open bin is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streameval.errors import OptionError
from streameval.states.scores.missing import halved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["ConfusionAt"]


@dataclass(frozen=True)
class ConfusionAt:
    """The table at a threshold as (TP, FN, FP, TN): counts, or weights where rows carry weights.

    Attributes
    ----------
    threshold : float
        Scores at or above it are taken as positive. Under ``nan="half"`` a NaN score is below every threshold.

    Raises
    ------
    OptionError
        If the threshold is NaN or not a number.

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
    counts_nan: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not _is_number(self.threshold):
            msg = f"threshold={self.threshold!r} must be a number, in the unit of the scores"
            raise OptionError(msg)
        if self.threshold != self.threshold:
            msg = "threshold is NaN, which no score reaches or misses; give a number or an infinity"
            raise OptionError(msg)

    def partial(self, part: ScorePart) -> tuple[Any, Any]:
        """Negatives and positives of one part at or above the threshold.

        Raises
        ------
        OptionError
            If the threshold is within an open bin.
        """
        if not part.exact:
            self._check(part.low[part.open], part.high[part.open])
        above = part.scores >= self.threshold
        return part.n[above].sum().item(), part.p[above].sum().item()

    def _check(self, lower: Array, upper: Array) -> None:
        """Refuse a threshold within an open bin."""
        inside = np.flatnonzero((lower < self.threshold) & (self.threshold < upper))
        if inside.size:
            low, high = lower[inside[0]], upper[inside[0]]
            msg = (
                f"threshold {self.threshold!r} is within the bin [{float(low)!r}, {float(high)!r}) of a histogram; "
                "choose one of its ends, or evaluate without approx (--approx)"
            )
            raise OptionError(msg)

    def combine(self, partials: Sequence[tuple[Any, Any]], state: Any) -> tuple[Any, Any, Any, Any]:
        """TP, FN, FP, TN."""
        neg, pos = (sum(column) for column in zip(*partials, strict=True)) if partials else (0, 0)
        total, nan = state.totals(), halved(state)
        return pos, max(total.p + nan.p - pos, 0), neg, max(total.n + nan.n - neg, 0)


def _is_number(value: object) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)
