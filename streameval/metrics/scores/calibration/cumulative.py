"""Cumulative calibration error, which needs no bins and no parameters.

With the distinct scores in ascending order, C_j = Σ_{k ≤ j} (p_k − (p_k + n_k)·s_k) / (P + N), and C_0 = 0.
``ecce_mad`` is max |C_j|, ``ecce_range`` is max C_j − min C_j. Rows of one score are added together: added one by one,
the result would depend on their order. ``calibration_bias`` is −C_last, the mean score minus the share of positives.

Parts are in descending order of scores, so their running sums are C_last − C. Sums of counts are integers in fixed
point; the partial of a part is its last, least and greatest running sum.

Reference: Arrieta-Ibarra et al. (2022), *Metrics of calibration for probabilistic predictions*, JMLR 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.calibration import drift_counts
from streameval.kernels.thresholds import running
from streameval.metrics.protocol import Basis, Metric
from streameval.metrics.scores.calibration.scoring import Probabilities, missing, spread
from streameval.metrics.scores.sums import counted, mean, total
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart


class _Sums(NamedTuple):
    """Running sums of one part: the rows above it, then the last, the least and the greatest sum.

    From a histogram with open bins also `ends`, the bounds of max |C|, of max C − min C and of −C_last, by name.
    """

    before: int
    last: Any
    least: Any
    most: Any
    ends: dict[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Drift(Basis):
    """Running sums of p − (p + n)·s, which the metrics of this file share."""

    def partial(self, part: ScorePart) -> _Sums | None:
        """Sums of one part; None if a score is outside [0, 1]."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        if counted(part.total):
            rows = drift_counts(part.n, part.p, probabilities.middle).tolist()
            last, least, most = ((high << 64 | low) - (high >> 63 << 128) for high, low in rows)
        else:
            s = probabilities.middle
            sums = np.append(0.0, running(part.p * (1.0 - s) - part.n * s, 0.0))
            last, least, most = float(sums[-1]), float(sums.min()), float(sums.max())
        certain = part.certain or not part.total.n + part.total.p  # without weight it is undefined
        return _Sums(part.before.rows, last, least, most, None if certain else _ends(part, probabilities))


def _ends(part: ScorePart, probabilities: Probabilities) -> dict[str, tuple[float, float]]:
    """Bounds from a histogram, whose bins are all in one part.

    At the edge of a bin, C is known except for the exact scores. Within an open bin, C may rise by the bin's positives,
    at the lowest score, or fall by its negatives, at the highest.
    """
    n, p, is_open = part.n[::-1].astype(float), part.p[::-1].astype(float), part.open[::-1]
    low, high = probabilities.low[::-1], probabilities.high[::-1]
    size = float(part.total.n + part.total.p)
    lows, highs = (np.append(0.0, running(p * (1.0 - s) - n * s, 0.0)) / size for s in (high, low))
    least = np.append(lows, (lows[:-1] - n * high / size)[is_open]).min()
    most = np.append(highs, (highs[:-1] + p * (1.0 - low) / size)[is_open]).max()
    sure = max(0.0, float(lows.max()), float(-highs.min()))
    reach = max(0.0, float(lows.max())) - min(0.0, float(highs.min()))
    bias = -float(highs[-1]), -float(lows[-1])
    return {"distance": (sure, float(max(-least, most))), "reach": (reach, float(most - least)), "bias": bias}


def _bounded(name: str, value: float, partials: Sequence[_Sums], which: str, least: float = 0.0) -> Scalar:
    """A value with its bounds; certain without any."""
    bounds = next((part.ends for part in partials if part.ends), None)
    if bounds is None:
        return Scalar.certain(name, value)
    lower, upper = bounds[which]
    return spread(name, (lower, value, upper), least=least)


@dataclass(frozen=True)
class CumulativeError(Metric):
    """Largest cumulative difference between labels and probabilities, or its range, in [0, 1]; 0 is best.

    Attributes
    ----------
    reach : whether the value is max C − min C instead of max |C|

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([1, 0, 1, 0], np.uint8), np.array([0.25, 0.25, 0.5, 0.75]))
    >>> [compute(state, CumulativeError(reach)).value for reach in (False, True)]
    [0.25, 0.25]
    """

    reach: bool = False

    @property
    def name(self) -> str:
        """``ecce_mad`` or ``ecce_range``."""
        return "ecce_range" if self.reach else "ecce_mad"

    def basis(self, part: ScorePart) -> Drift:
        """The running sums."""
        return Drift()

    def combine(self, partials: Sequence[_Sums], state: State) -> Scalar:
        """Shift each part's sums by those above it."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        size = state.totals().n + state.totals().p
        above, least, most = 0, 0, 0
        for part in sorted(partials, key=lambda part: part.before):
            least, most = min(least, above + part.least), max(most, above + part.most)
            above += part.last
        # above is now C_last, so C lies between above − most and above − least
        value = mean(most - least if self.reach else max(above - least, most - above), size)
        return _bounded(self.name, min(1.0, value), partials, "reach" if self.reach else "distance")


@dataclass(frozen=True)
class MeanBias(Metric):
    """Mean score minus the share of positives, in [−1, 1]; above 0, scores are too high on average.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([1, 0, 1, 0], np.uint8), np.array([0.25, 0.25, 0.5, 0.75]))
    >>> compute(state, MeanBias()).value
    -0.0625
    """

    name: str = "calibration_bias"

    def basis(self, part: ScorePart) -> Drift:
        """The running sums, of which only the last is used."""
        return Drift()

    def combine(self, partials: Sequence[_Sums], state: State) -> Scalar:
        """Divide by the rows."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        value = mean(total([-part.last for part in partials]), state.totals().n + state.totals().p)
        return _bounded(self.name, value, partials, "bias", least=-1.0)
