"""The distribution of a column: of the scores of each class in bins of equal width, and by quantiles of its sketch.

Bins take two rounds over the counts: the first finds the range, the second fills its bins. A bin holds its lower edge;
the last one holds its upper edge as well. A bin of a state's histogram is counted where its threshold lies.

A sketch estimates quantiles (`streameval.states.scores.quantile_sketch` says how well), so `lower` and `upper` are NaN.
Only the ends are exact: ``quantile@0`` is the smallest number and ``quantile@1`` the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_ROWS, Metric
from streameval.results import Distribution, Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart
    from streameval.states.scores.quantile_sketch import QuantileSketch
    from streameval.typing import Array


_MOST_BINS = 10_000

LEVELS = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)

_NO_NUMBERS = "no numbers in the column"
_ESTIMATE = "a sketch estimates quantiles; no interval is certain"


@dataclass(frozen=True)
class ScoreRange(Metric["ScoreBins", "ScorePart", tuple[float, float], "State"]):
    """The lowest and the highest finite score; a metric whose value is the `ScoreBins` between them.

    Attributes
    ----------
    bins : number of bins

    Raises
    ------
    OptionError
        If `bins` is not a whole number from 1 to 10,000.
    """

    bins: int = 100
    name: str = "score_range"

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not 1 <= self.bins <= _MOST_BINS or self.bins % 1:
            raise OptionError(f"bins={self.bins!r} is not a number of bins; give a whole number from 1 to {_MOST_BINS}")

    def partial(self, part: ScorePart) -> tuple[float, float]:
        """The range of one part; empty as (inf, −inf)."""
        scores = part.scores[part.rows > 0]
        scores = scores[np.isfinite(scores)]
        return (float(scores[-1]), float(scores[0])) if scores.size else (math.inf, -math.inf)

    def combine(self, partials: Sequence[tuple[float, float]], state: State) -> ScoreBins:
        """The bins of the range of all parts; if there is a single score, bins around it.

        Raises
        ------
        OptionError
            If there are no finite scores.
        """
        low = min((part[0] for part in partials), default=math.inf)
        high = max((part[1] for part in partials), default=-math.inf)
        if low > high:
            reason = "all scores are infinite" if state.totals().rows else NO_ROWS
            raise OptionError(f"the distribution of {state.spec.column!r} is not defined: {reason}")
        if low == high:
            width = max(abs(low), 1.0) / 8
            low, high = low - width / 2, high + width / 2
        return ScoreBins(low, high, int(self.bins))


@dataclass(frozen=True)
class ScoreBins(Metric["Distribution", "ScorePart", "tuple[Array, Array, Array]", "State"]):
    """Negatives and positives in bins of equal width; a metric whose value is a `Distribution`.

    Attributes
    ----------
    low, high : the range
    bins : number of bins
    """

    low: float
    high: float
    bins: int
    name: str = "score_bins"

    @property
    def edges(self) -> Array:
        """Rising edges, a float64 array of shape (bins + 1,), or shorter if the range has fewer distinct floats."""
        share = np.linspace(0.0, 1.0, self.bins + 1)
        return np.unique(self.low * (1 - share) + self.high * share)

    def partial(self, part: ScorePart) -> tuple[Array, Array, Array]:
        """Counts (negatives, positives) of each bin, those of infinite scores, and rows in doubt."""
        edges, rising = self.edges, part.scores[::-1]
        cuts = np.searchsorted(rising, edges)
        cuts[-1] = np.searchsorted(rising, edges[-1], side="right")
        sums = [np.append(values[:0].sum(), np.cumsum(values[::-1])) for values in (part.n, part.p)]
        counts = np.stack([np.diff(side[cuts]) for side in sums])
        outside = np.array([side[-1] for side in sums]) - counts.sum(axis=1)
        doubt = np.zeros(1)
        if not part.exact:
            crossing = part.open & (_at(part.low, edges) != _at(np.nextafter(part.high, -np.inf), edges))
            doubt += (part.n + part.p)[crossing].sum()
        return counts, outside, doubt

    def combine(self, partials: Sequence[tuple[Array, Array, Array]], state: State) -> Distribution:
        """The distribution of all parts."""
        total = state.totals()
        counts, outside, doubt = (
            np.ldexp(np.sum(side, axis=0).astype(float), total.unit) for side in zip(*partials, strict=True)
        )
        outside, loose = tuple(outside.tolist()), float(doubt[0])
        return Distribution(state.spec.column, self.edges, counts[0], counts[1], outside, loose, total.weighted)


def _at(scores: Array, edges: Array) -> Array:
    """The bin of each score; −1 below the first, the number of bins above the last."""
    at: Array = np.searchsorted(edges, scores, side="right") - 1
    at[scores == edges[-1]] = edges.size - 2
    return at


@dataclass(frozen=True)
class Quantile(Metric[Scalar, "QuantileSketch", "QuantileSketch", "QuantileSketch"]):
    """A quantile of a column.

    Attributes
    ----------
    q : level in [0, 1]

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from streameval.evaluation import evaluate
    >>> scores = np.random.default_rng(0).random(10_000)
    >>> found = evaluate(pa.table({"label": scores > 0.9, "score": scores}), sketch="score")
    >>> round(found.value("quantile@0.25"), 3), round(float(np.quantile(scores, 0.25)), 3)
    (0.248, 0.248)
    """

    q: float
    family: str = "sketch"

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise OptionError(f"quantile@{self.q:g}: a quantile has a level in [0, 1], such as quantile@0.5")

    @property
    def name(self) -> str:
        """``quantile@0.5``; a level of more digits in full."""
        return f"quantile@{self.q if float(f'{self.q:g}') != self.q else format(self.q, 'g')}"

    def partial(self, part: QuantileSketch) -> QuantileSketch:
        """The sketch itself."""
        return part

    def combine(self, partials: Sequence[QuantileSketch], state: QuantileSketch) -> Scalar:
        """The estimate; exact at both ends."""
        if not state.count:
            return Scalar.undefined(self.name, _NO_NUMBERS)
        value = float(state.quantile(self.q))
        if self.q in (0, 1):
            return Scalar.certain(self.name, value)
        return Scalar(self.name, value, exact=False, reason=_ESTIMATE)
