"""What the metrics of a score share: why a value is not defined, sizes of classes, and ends that are certain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streameval.states.protocol import Totals
    from streameval.states.scores.counts import ScoreCounts
    from streameval.states.scores.histogram import ScoreHistogram

    ScoreState = ScoreCounts | ScoreHistogram

__all__ = ["HALF", "ONE_CLASS", "class_sizes", "halved_rows", "integer", "outward"]

ONE_CLASS = "one class only"
HALF = "NaN scores count as halves in roc_auc and agc only; choose nan='drop' (--nan drop)"
_SLACK = 1e-14  # relative rounding error of a bound, generously


def integer(words: tuple[int, int]) -> int:
    """A 128-bit sum of a kernel as an integer.

    Examples
    --------
    >>> integer((1, 2)) == 2**64 + 2
    True
    """
    return (int(words[0]) << 64) | int(words[1])


def halved_rows(state: ScoreState) -> int:
    """Rows whose NaN score counts as one half in every pair."""
    return int(state.nan_rows.sum()) if state.spec.nan == "half" else 0


def class_sizes(total: Totals, *, weighted: bool) -> tuple[Any, Any]:
    """N and P: weights, or integers that divide exactly."""
    return (total.neg_weight, total.pos_weight) if weighted else (total.neg, total.pos)


def outward(lower: float, upper: float, least: float = 0.0, most: float = 1.0) -> tuple[float, float]:
    """Ends moved outward by more than their rounding error, within the range of the metric."""
    return max(least, lower - _SLACK), min(most, upper + _SLACK)
