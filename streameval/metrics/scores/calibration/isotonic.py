"""CORP: how much of the Brier score is miscalibration (Dimitriadis, Gneiting and Jordan 2021, PNAS 118).

The isotonic fit c of the labels on the scores is the best recalibration that keeps the order of the scores. It is
computed by pooling adjacent violators: its blocks are the edges of the convex hull of the cumulative sums, and hulls of
key ranges can be merged. With π the share of positives,

- ``corp.unc`` = π(1 − π), the Brier score of the constant π,
- ``corp.dsc`` = UNC − Brier(c), the decrease from the constant to the recalibrated scores,
- ``corp.mcb`` = Brier(s) − Brier(c), the decrease from the scores to the recalibrated scores,

so that Brier = MCB − DSC + UNC. The Brier score of a block of p positives and n negatives is p·n/(p + n).

From a histogram the fit is bounded: it is worst if each bin is one score, and best if the positives of each bin score
higher than its negatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.calibration import pool_counts, pool_weights
from streameval.metrics.protocol import Metric, Partials
from streameval.metrics.scores.calibration.scoring import BrierScore, Probabilities, missing, spread
from streameval.metrics.scores.sums import BITS, integers, total
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

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
class CorpFit(Metric):
    """The isotonic fit; a metric whose value is a `Fit`, None if a score is outside [0, 1]."""

    name: str = "corp"

    def partial(self, part: ScorePart) -> Fit | None:
        """Blocks of one part."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        n, p, low, high = _pooled(part.n, part.p, probabilities.low, probabilities.high)
        finest = _pooled(*_split(part))[:2] if not part.certain else None
        return Fit(part.before.rows, n, p, low, high, BrierScore().partial(part), finest)

    def combine(self, partials: Sequence[Fit | None], state: State) -> Fit | None:
        """The fit of all parts."""
        return None if None in partials or not partials else _fit(partials)


def _pooled(n: Array, p: Array, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
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


def joined(parts: Sequence[Fit]) -> Fit:
    """The fit of several parts: pool their blocks once more."""
    parts = sorted(parts, key=lambda part: part.before)
    if len(parts) == 1:
        return parts[0]
    n, p, low, high = (np.concatenate(side) for side in zip(*(part[1:5] for part in parts), strict=True))
    brier = tuple(total(side) for side in zip(*(part.brier for part in parts), strict=True))
    return Fit(parts[0].before, *_pooled(n, p, low, high), brier)


def _fit(partials: Sequence[Any]) -> Fit:
    """`joined`, computed once for all terms and the curve."""
    return Partials.of(partials).once("isotonic fit", partials, lambda: joined(partials))


def _fixed(n: Array, p: Array) -> Any:
    """Σ p·n/(p + n) over blocks; for counts an integer in units of 2⁻⁹⁶ (`_FINE`)."""
    if integers(n):
        return sum((x * y << _FINE) // (x + y) for x, y in zip(n.tolist(), p.tolist(), strict=True))
    return math.fsum(p * (n / (n + p)))


@dataclass(frozen=True)
class Corp(Metric):
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

    def combine(self, partials: Sequence[Any], state: State) -> Scalar:
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
