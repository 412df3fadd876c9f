"""Calibration without bins and parameters: the cumulative error, and the isotonic fit.

With the distinct scores in ascending order, C_j = Σ_{k ≤ j} (p_k − (p_k + n_k)·s_k) / (P + N), and C_0 = 0.
``ecce_mad`` is max |C_j|, ``ecce_range`` is max C_j − min C_j. Rows of one score are added together: added one by one,
the result would depend on their order. ``calibration_bias`` is −C_last, the mean score minus the share of positives.

Parts are in descending order of scores, so their running sums are C_last − C. Sums of counts are integers in fixed
point; the partial of a part is its last, least and greatest running sum (Arrieta-Ibarra et al. 2022, *Metrics of
calibration for probabilistic predictions*, JMLR 23).

CORP: how much of the Brier score is miscalibration (Dimitriadis, Gneiting and Jordan 2021, PNAS 118). The isotonic fit
c of the labels on the scores is the best recalibration that keeps the order of the scores. It is computed by pooling
adjacent violators: its blocks are the edges of the convex hull of the cumulative sums, and hulls of key ranges can be
merged. With π the share of positives,

- ``corp.unc`` = π(1 − π), the Brier score of the constant π,
- ``corp.dsc`` = UNC − Brier(c), the decrease from the constant to the recalibrated scores,
- ``corp.mcb`` = Brier(s) − Brier(c), the decrease from the scores to the recalibrated scores,

so that Brier = MCB − DSC + UNC. The Brier score of a block of p positives and n negatives is p·n/(p + n). From a
histogram the fit is bounded: it is worst if each bin is one score, and best if the positives of each bin score higher
than its negatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.calibration import drift_counts, pool_counts, pool_weights
from streameval.kernels.ranking import running
from streameval.metrics.protocol import Basis, Metric, Partials
from streameval.metrics.scores.calibration.scoring import BrierScore, Probabilities, missing, present, spread
from streameval.metrics.scores.sums import BITS, counted, integers, mean, total
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array


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
class Drift(Basis["ScorePart", "_Sums | None"]):
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


def _bound(name: str, value: float, partials: Sequence[_Sums], which: str, least: float = 0.0) -> Scalar:
    """A value with its bounds; certain without any."""
    bounds = next((part.ends for part in partials if part.ends), None)
    if bounds is None:
        return Scalar.certain(name, value)
    lower, upper = bounds[which]
    return spread(name, (lower, value, upper), least=least)


@dataclass(frozen=True)
class CumulativeError(Metric[Scalar, "ScorePart", "_Sums | None", "State"]):
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

    def combine(self, partials: Sequence[_Sums | None], state: State) -> Scalar:
        """Shift each part's sums by those above it."""
        if isinstance(sums := present(partials, state), str):
            return Scalar.undefined(self.name, sums)
        size = state.totals().n + state.totals().p
        above, least, most = 0, 0, 0
        for part in sorted(sums, key=lambda part: part.before):
            least, most = min(least, above + part.least), max(most, above + part.most)
            above += part.last
        # above is now C_last, so C lies between above − most and above − least
        value = mean(most - least if self.reach else max(above - least, most - above), size)
        return _bound(self.name, min(1.0, value), sums, "reach" if self.reach else "distance")


@dataclass(frozen=True)
class MeanBias(Metric[Scalar, "ScorePart", "_Sums | None", "State"]):
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

    def combine(self, partials: Sequence[_Sums | None], state: State) -> Scalar:
        """Divide by the rows."""
        if isinstance(sums := present(partials, state), str):
            return Scalar.undefined(self.name, sums)
        value = mean(total([-part.last for part in sums]), state.totals().n + state.totals().p)
        return _bound(self.name, value, sums, "bias", least=-1.0)


_FINE = 96  # bits of a block's Brier score in fixed point


class Fit(NamedTuple):
    """Blocks of an isotonic fit, in descending order of scores.

    Attributes
    ----------
    before : rows above the first block
    n, p : arrays of shape (n_blocks,), negatives and positives
    low, high : float64 arrays of shape (n_blocks,), the lowest and the highest score of each block
    brier : partial of `BrierScore`
    finest : the blocks (n, p) if the positives of each open bin score higher than its negatives; None without open bins
    """

    before: int
    n: Array
    p: Array
    low: Array
    high: Array
    brier: Any
    finest: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class CorpFit(Metric["Fit | None", "ScorePart", "Fit | None", "State"]):
    """The isotonic fit; a metric whose value is a `Fit`, None if a score is outside [0, 1]."""

    name: str = "corp"

    def partial(self, part: ScorePart) -> Fit | None:
        """Blocks of one part."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        n, p, low, high = _pool(part.n, part.p, probabilities.low, probabilities.high)
        finest = _pool(*_split(part))[:2] if not part.certain else None
        return Fit(part.before.rows, n, p, low, high, BrierScore().partial(part), finest)

    def combine(self, partials: Sequence[Fit | None], state: State) -> Fit | None:
        """The fit of all parts."""
        return None if not (partials and all(partials)) else _fit(partials)


def _pool(n: Array, p: Array, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """The blocks of the groups that have rows, and the lowest and the highest score of each."""
    some = n + p > 0
    if not some.all():
        n, p, low, high = n[some], p[some], low[some], high[some]
    blocks, hits, last = (pool_counts if integers(n) else pool_weights)(n, p)
    first = np.append(0, last[:-1] + 1)[: last.size]
    return blocks, hits, low[last], high[first]


def _split(part: ScorePart) -> tuple[Array, Array, Array, Array]:
    """Groups in which the positives of each open bin are above its negatives; the scores are not used."""
    shown = np.repeat(np.arange(part.n.size), 1 + part.open)
    again = np.append(False, shown[1:] == shown[:-1])[: shown.size]
    n = np.where(np.append(again[1:], False)[: shown.size], 0, part.n[shown])
    return n, np.where(again, 0, part.p[shown]), n, n


def join_fits(parts: Sequence[Fit]) -> Fit:
    """The fit of several parts: pool their blocks once more."""
    parts = sorted(parts, key=lambda part: part.before)
    if len(parts) == 1:
        return parts[0]
    n, p, low, high = (np.concatenate(side) for side in zip(*(part[1:5] for part in parts), strict=True))
    brier = tuple(total(side) for side in zip(*(part.brier for part in parts), strict=True))
    return Fit(parts[0].before, *_pool(n, p, low, high), brier)


def _fit(partials: Sequence[Fit | None]) -> Fit:
    """`join_fits`, computed once for all terms and the curve."""
    return Partials.of(partials).once("isotonic fit", partials, lambda: join_fits([fit for fit in partials if fit]))


def _fixed(n: Array, p: Array) -> float:
    """Σ p·n/(p + n) over blocks; for counts an integer in units of 2⁻⁹⁶ (`_FINE`)."""
    if integers(n):
        whole: int = sum((x * y << _FINE) // (x + y) for x, y in zip(n.tolist(), p.tolist(), strict=True))
        return whole
    return math.fsum(p * (n / (n + p)))


@dataclass(frozen=True)
class Corp(Metric[Scalar, "ScorePart", "Fit | None", "State"]):
    """A term of CORP's decomposition of the Brier score, in [0, 1].

    Attributes
    ----------
    term : ``mcb``, ``dsc`` or ``unc``

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.8, 0.3]))
    >>> [round(compute(state, Corp(term)).value, 4) for term in ("mcb", "dsc", "unc")]
    [0.0375, 0.25, 0.25]
    """

    term: str

    @property
    def name(self) -> str:
        """``corp.mcb``, ``corp.dsc`` or ``corp.unc``."""
        return f"corp.{self.term}"

    def basis(self, part: ScorePart) -> CorpFit:
        """The fit, which the terms share."""
        return CorpFit()

    def combine(self, partials: Sequence[Fit | None], state: State) -> Scalar:
        """One division."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        N, P = state.totals().n, state.totals().p
        if self.term == "unc":
            return Scalar.certain(self.name, float(N * P / (N + P) ** 2))
        fit = _fit(partials)
        tied = Partials.of(partials).once("isotonic Brier score", partials, lambda: _fixed(fit.n, fit.p))
        finest = tied if fit.finest is None else _fixed(*fit.finest)
        if self.term == "dsc":
            whole = (N * P << _FINE) // (N + P) if isinstance(tied, int) else P * (N / (N + P))
            ends = (whole - tied, whole - tied, whole - finest)
        else:
            low, value, high = (x << _FINE - BITS if isinstance(x, int) else x for x in fit.brier)
            ends = (low - tied, value - tied, high - finest)
        size = (N + P) << _FINE if isinstance(tied, int) else N + P
        lower, value, upper = (max(0.0, float(end / size)) for end in ends)
        return spread(self.name, (lower, value, upper))
