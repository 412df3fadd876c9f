"""What a metric gives back: a value and how exact it is, or a curve.

A value is exact, or comes with the interval that is certain to hold the exact one, or depends on chance. Then there is
no such interval (its ends are NaN), and `bound` and `stderr` say what is likely.

Results know nothing of states or metrics; reports and plots know nothing but results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["Curve", "Scalar"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number, with the interval that is certain to hold the exact one, if there is one.

    Attributes
    ----------
    metric : name of the metric, such as ``roc_auc``
    value : the number; NaN where it is not defined, see `reason`
    of : the score or cluster column
    lower, upper : ends of the certain interval, equal to `value` where it is exact; NaN where chance left none
    exact : whether the value is exact; an undefined one is not
    rows, positives : what the value was computed from
    reason : why the value or its interval is NaN
    stderr : standard error, where the value was sampled
    threshold : the score at which the value is reached, for operating points
    bound : how far a sampled value may be off besides, because its bins hide the order within

    Examples
    --------
    >>> Scalar.certain("roc_auc", 0.75)
    Scalar(metric='roc_auc', value=0.75, of=None, lower=0.75, upper=0.75, exact=True, rows=0, positives=0, reason=None,
           stderr=None, threshold=None, bound=None)
    """

    metric: str
    value: float
    of: str | None = None
    lower: float = math.nan
    upper: float = math.nan
    exact: bool = True
    rows: int = 0
    positives: int = 0
    reason: str | None = None
    stderr: float | None = None
    threshold: float | None = None
    bound: float | None = None

    @classmethod
    def certain(cls, metric: str, value: float, threshold: float | None = None) -> Scalar:
        """An exact value."""
        return cls(metric, value, lower=value, upper=value, threshold=threshold)

    @classmethod
    def between(cls, metric: str, value: float, lower: float, upper: float) -> Scalar:
        """A value known up to an interval."""
        return cls(metric, value, lower=lower, upper=upper, exact=lower == upper)

    @classmethod
    def undefined(cls, metric: str, reason: str) -> Scalar:
        """A value that does not exist, with the reason."""
        return cls(metric, math.nan, exact=False, reason=reason)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a NaN is None.

        Examples
        --------
        >>> Scalar.undefined("roc_auc", "one class only").to_dict()["value"] is None
        True
        """
        facts: dict[str, Any] = {"metric": self.metric, "of": self.of}
        facts |= {name: _plain(getattr(self, name)) for name in ("value", "lower", "upper")}
        facts |= {"exact": self.exact, "rows": self.rows, "positives": self.positives}
        for name in ("reason", "stderr", "threshold", "bound"):
            if getattr(self, name) is not None:
                facts[name] = _plain(getattr(self, name))
        return facts


def _plain(value: float | str | None) -> float | str | None:
    """The value as JSON knows it: no NaN; infinities as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve for drawing; its area is that of the whole curve, not of the points kept.

    Attributes
    ----------
    name : ``roc``, ``precision_recall``, ``gain`` or ``lift``
    of : the score or cluster column
    x, y : float64 arrays of shape (n_points,), at most 10,000 points
    thresholds : float64 array of shape (n_points,); scores at or above it are taken as positive (for ``lift``, the
        cluster size)
    area : area under the whole curve
    exact : whether points and area are exact
    positives, rows : what the curve was computed from; with weights, sums of weights
    weighted : whether there are weights
    """

    name: str
    of: str | None
    x: Array
    y: Array
    thresholds: Array
    area: float
    exact: bool = True
    positives: float = 0
    rows: float = 0
    weighted: bool = False
