"""Calibration in the large with its bounds, from a histogram.

The shift a solves Σ (p + n)·σ(a + logit s) = Σ p. The left side rises with a and with every score, so a falls as scores
rise. It is least if every row of an open bin has the bin's highest score, and largest if every row has the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.metrics.protocol import Basis
from streameval.metrics.scores.calibration.scoring import Probabilities
from streameval.metrics.scores.sums import sum_of
from streameval.metrics.scores.undefined import NO_LOGIT, ONE_CLASS, OUTSIDE, UNBOUNDED

if TYPE_CHECKING:
    from streameval.metrics.scores.calibration.scoring import Ends
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

SLACK = 1e-9  # relative; bounds the error of a shift, from its search and from rounding
_NEAR = 1e-12  # absolute; the search for a shift ends at this precision


@dataclass(frozen=True)
class ShiftEnds(Basis):
    """The smallest shift, that for scores at the middle of open bins, and the largest; a reason if there is none.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"score": np.linspace(0.3, 0.300001, 4), "label": [0, 1, 1, 0]})
    >>> found = [evaluate(data, score="score", metrics="calibration_in_the_large", approx=a) for a in (False, True)]
    >>> exact, (lower, upper) = found[0].results[0].value, found[1].interval("calibration_in_the_large")
    >>> lower < exact < upper
    True
    """

    name: str = "shift"

    def partial(self, part: ScorePart) -> Ends | str:
        """The shifts of the bins, which are all in one part."""
        found = Probabilities.of(part)
        if found is None:
            return OUTSIDE
        some = part.n + part.p > 0
        low, middle, high = (side[some] for side in found)
        if low.size and not (low[-1] > 0.0 and high[0] < 1.0):
            return UNBOUNDED if low[-1] < high[-1] or low[0] < high[0] else NO_LOGIT
        n, p = part.n[some].astype(float), part.p[some].astype(float)
        if not (n.any() and p.any()):
            return ONE_CLASS
        lower, value, upper = (_shift(np.log(s / (1.0 - s)), n, p) for s in (high, middle, low))
        return lower, value, upper


def _shift(x: Array, n: Array, p: Array) -> float:
    """The root of the equation; it lies between the roots for all rows at the largest and at the smallest logit."""
    from scipy.optimize import brentq
    from scipy.special import expit

    P, N = float(sum_of(p)), float(sum_of(n))

    def surplus(a: float) -> float:
        return float((n + p) @ expit(a + x)) - P

    centre = float(np.log(P / N))
    ends = centre - float(x.max()) - _NEAR, centre - float(x.min()) + _NEAR
    shift: Any = brentq(surplus, *ends, xtol=_NEAR) if surplus(ends[0]) < 0 < surplus(ends[1]) else sum(ends) / 2
    return float(shift)
