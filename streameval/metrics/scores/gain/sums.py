"""Sums under a truncated gain curve, and the ratio that normalises its area (`streameval.metrics.scores.gain.area`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import Basis
from streameval.metrics.scores.sums import counted, gain_sums, running, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart

_LEAST_UNIT = -480  # squares of smaller weights begin to lose digits
_ENDLESS = 1e300  # an integer above may exceed the floats


def decimal(truncate: Any) -> Any:
    """A NumPy float as the Python float of its shortest decimal form; any other value unchanged.

    Examples
    --------
    >>> decimal(np.float32(0.1)), float(np.float32(0.1))
    (0.1, 0.10000000149011612)
    """
    return float(str(truncate)) if isinstance(truncate, np.floating) else truncate


def kept_points(truncate: float, rows: int) -> int:
    """Points that a truncation asks for, of `rows`.

    Parameters
    ----------
    truncate : a share of the points in (0, 1], read as the decimal it is written as, or a number of points above 1

    Raises
    ------
    OptionError
        If it is neither.

    Examples
    --------
    >>> kept_points(0.07, 100), kept_points(0.01, 45), kept_points(200, 45), kept_points(1, 45)
    (7, 1, 45, 45)
    """
    given = decimal(truncate)
    share = float(given) if isinstance(given, int | float | np.number) and given < _ENDLESS else math.nan
    if not (0 < share <= 1 or (1 < share < math.inf and share == math.floor(share))):
        msg = f"truncate={truncate!r} is neither a share in (0, 1] nor a whole number of points above 1"
        raise OptionError(msg)
    return min(rows, int(share)) if share > 1 else math.ceil(Fraction(str(share)) * rows)


def kept_groups(part: ScorePart, points: int) -> int:
    """The number of groups of a part that are kept: those that begin before `points` points are reached."""
    room = points - part.before.rows
    if room <= 0 or points >= part.total.rows:
        return 0 if room <= 0 else part.n.size
    return min(int(np.searchsorted(running(part.rows, 0), room)) + 1, part.n.size)


class Cut(NamedTuple):
    """The open bin that a truncation cuts: its negatives and positives, and the points kept of it, at least."""

    n: int
    p: int
    need: int


class Kept(NamedTuple):
    """Sums over the groups kept: Σ u·(2T + p), Σ u·(2F + n), Σ u, the pairs in doubt, Σ p; and the bin that is cut."""

    area: Any
    below: Any
    weight: Any
    doubt: Any = 0
    true: Any = 0
    cut: Cut | None = None

    @classmethod
    def all(cls, partials: Sequence[Kept]) -> Kept:
        """Sums of all parts; a state of bins has one."""
        if len(partials) == 1:
            return partials[0]
        return cls(*(total(column) for column in list(zip(*partials, strict=True))[:5])) if partials else cls(0, 0, 0)


@dataclass(frozen=True)
class GainSums(Basis):
    """Sums under the truncated gain curve, which ``agc`` and ``agc_ratio`` share.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.9, 0.9]))
    >>> [GainSums().partial(part)[:3] for part in state.parts()]
    [(8, 1, 3)]
    """

    truncate: float = 1

    def partial(self, part: ScorePart) -> Kept | None:
        """Sums over the groups kept; None where a histogram cannot tell what is kept."""
        points = kept_points(self.truncate, part.total.rows)
        keep = kept_groups(part, points)
        if part.exact or points >= part.total.rows:
            return Kept(*gain_sums(part, keep))
        if not counted(part.total):
            return None
        if not part.open[keep - 1]:
            return Kept(*gain_sums(part, keep))
        return cut_sums(part, keep - 1, points)


def cut_sums(part: ScorePart, at: int, points: int) -> Kept:
    """Sums over the groups above open bin `at`, which is cut."""
    sums = gain_sums(part, at)
    cut = Cut(int(part.n[at]), int(part.p[at]), points - sums[2])
    return Kept(*sums, int(part.p[:at].sum()), cut)


def quotient(sums: tuple[Any, Any, Any], N: Any, P: Any, *, ratio: bool, unit: int = 0) -> tuple[Any, Any]:
    """Numerator and denominator of ``agc``, or of ``agc_ratio``, each times 2, and those of ``agc`` times N + P too.

    Both are divided by 4**unit: products of three small weights may leave float64.

    Parameters
    ----------
    sums : Σ u·(2T + p), Σ u·(2F + n) and Σ u over the groups kept
    N, P : all negatives and positives
    ratio : whether the quotient is A/M instead of (A − R)/(M − R)
    unit : see `kept_unit`
    """
    area, below, kept = sums
    part, left, full = P, max(N + P - kept, 0), kept >= P
    if unit:
        area, below = (math.ldexp(each, -2 * unit) for each in (area, below))
        kept, part = (math.ldexp(each, -unit) for each in (kept, part))
    if ratio:
        return area, part * (2 * kept - part) if full else kept * kept
    return area * N - below * P, part * (N * kept + left * (kept - part)) if full else kept * kept * N


def kept_unit(kept: Any) -> int | None:
    """The unit of `quotient` for the weight kept; None if its square has lost digits, or if it is 0.

    Examples
    --------
    >>> kept_unit(3), kept_unit(0.25), kept_unit(1e-200)
    (0, -1, None)
    """
    if not isinstance(kept, float):
        return 0
    unit = math.frexp(kept)[1]
    return unit if kept and unit > _LEAST_UNIT else None
