"""Estimates: what sampling does to a metric, told by its delete-a-block replicates.

The units that are drawn together, campaigns say, are divided into blocks by a keyed hash of their ids
(`streameval.states.grouped.Blocks`). A *replicate* is the metric of all rows but those of one block. The spread of the
replicates is the delete-a-group jackknife's variance (Kott 2001),

    Var = (B − 1)/B · Σ (θ₍₋b₎ − mean)²,

over the B blocks that have rows. An interval is centred on the value of all rows. It is symmetric on the scale of the
metric (`SCALES`), where the standard error is carried by the delta method. Truncated gain areas are skewed, and may be
negative: of 600 samples with 100 effective units, 91 % of symmetric intervals held the truth, and 95 % on −ln(1 − x).

*Effective units* tell how many equal units would spread over blocks as unevenly as these do:

    n² (1 − 1/B) / Σ_b (n_b − n/B)²

with n_b the rows of block b, and likewise for its positives and its negatives; the smallest governs. From 50 on the
interval takes t with B − 1 degrees of freedom. From 5 to 50 it takes max(1, 3(Σd²)²/Σd⁴ − 2), at most B − 1, with d the
deviations of the replicates from their mean. Below 5 there is none.

Blocks depend on the ids alone. So the replicates of two metrics, slices, nights or columns over the same units are
paired, and the difference of two estimates is an estimate with replicates of its own (`Estimate.minus`). Its interval
ends where differences end: shares differ by at most 1.

References
----------
Kott, P. S. (2001). The delete-a-group jackknife. *Journal of Official Statistics* 17, 521–526.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.typing import Array

__all__ = [
    "FEW_UNITS",
    "FINER",
    "SCALES",
    "TOO_COARSE",
    "Estimate",
    "Scale",
    "Sizes",
    "at_end",
    "effective_units",
    "too_few",
]

FEW_UNITS = 50  # effective units below which the output warns
_LEAST_UNITS = 5
_NORMAL = 1e9  # degrees of freedom
_EXPONENT = 709.0  # from here on exponentials leave float64
_OFF = 0.1  # standard errors that the grid may be off
_FAR_OFF = 0.5  # standard errors that it is off by where it cannot tell two columns apart
FINER = "evaluate the files with more resample_bins (--resample-bins 65536)"  # a store keeps 2,048
TOO_COARSE = f"the value on the coarse grid is off: {FINER}"
_INEXACT = 0.01  # standard errors below it were off by 0.5 % (root mean square) and 1.1 % at most
_TOO_ROUGH = (
    "the standard error depends on where rows lie within bins of the coarse grid: evaluate the files with every score "
    "(--resample-bins exact; of slices --resample-bins 65536)"
)


def too_few(units: float, of: str, needed: str) -> str:
    """The reason why there is no interval: effective units, rounded down so that they never read as enough.

    >>> too_few(4.97, "rows (campaign)", "at least 5")
    '4.9 effective units of rows (campaign): at least 5 are needed'
    """
    return f"{math.floor(units * 10) / 10:.1f} effective units of {of}: {needed} are needed"


def at_end(value: float) -> str:
    """The reason why there is no interval around a value that no other can exceed.

    >>> at_end(1.0), at_end(math.inf)
    ('the value 1 is at the end of its range', 'the value is infinite')
    """
    return "the value is infinite" if math.isinf(value) else f"the value {value:g} is at the end of its range"


def _logistic(y: float) -> float:
    return 0.5 + 0.5 * math.tanh(y / 2)


def _exp(y: float) -> float:
    """The exponential, infinite where float64 ends."""
    return math.exp(y) if y < _EXPONENT else math.inf


class Scale(NamedTuple):
    """A scale on which an interval is symmetric.

    Attributes
    ----------
    low, high : open ends of the values that the scale takes
    to, back : the scale and its inverse
    slope : derivative of `to`
    """

    low: float
    high: float
    to: Callable[[float], float]
    back: Callable[[float], float]
    slope: Callable[[float], float]


SCALES: dict[str, Scale] = {
    "plain": Scale(-math.inf, math.inf, float, float, lambda _: 1.0),
    "logit": Scale(0, 1, lambda x: math.log(x) - math.log1p(-x), _logistic, lambda x: 1 / (x * (1 - x))),
    "fisher": Scale(-1, 1, math.atanh, math.tanh, lambda x: 1 / ((1 - x) * (1 + x))),
    "log": Scale(0, math.inf, math.log, _exp, lambda x: 1 / x),
    "log_complement": Scale(
        -math.inf,
        1,
        lambda x: -math.log1p(-x),
        lambda y: -math.expm1(-y) if y > -_EXPONENT else -math.inf,
        lambda x: 1 / (1 - x),
    ),
}


@dataclass(frozen=True, eq=False)
class Sizes:
    """What each block holds.

    Attributes
    ----------
    unit : what is drawn together, such as the column ``campaign``; ``row`` where each row is a unit
    counts : by kind, such as ``rows``, ``positives`` and ``negatives``: arrays of shape (n_blocks,)
    units : number of units; None where it is not known
    single : whether every row is a unit of weight 1; then the effective units are the rows
    """

    unit: str
    counts: Mapping[str, Array]
    units: int | None = None
    single: bool = False

    def of(self, kinds: Sequence[str]) -> Sizes:
        """Some kinds of units alone."""
        return replace(self, counts={kind: counts for kind, counts in self.counts.items() if kind in kinds})

    @property
    def effective(self) -> dict[str, float]:
        """Effective units of each kind that occurs."""
        number = _rows if self.single else effective_units
        return {kind: number(counts) for kind, counts in self.counts.items() if counts.any()}

    @property
    def governing(self) -> tuple[float, str]:
        """The smallest number of effective units, and its kind."""
        return min(((units, kind) for kind, units in self.effective.items()), default=(0.0, "rows"))


def _rows(counts: Array) -> float:
    return float(counts.sum())


def effective_units(counts: Array) -> float:
    """Number of equal units that would spread over the blocks as unevenly.

    Parameters
    ----------
    counts : array of shape (n_blocks,), rows or weights of each block, empty blocks included

    Examples
    --------
    >>> round(effective_units(np.array([1.0, 0, 0, 0])), 12)  # one unit
    1.0
    """
    counts = np.asarray(counts, np.float64)
    total, blocks = counts.sum(), counts.size
    spread = float(np.square(counts - total / blocks).sum())
    return float(total**2 * (1 - 1 / blocks) / spread) if spread else math.inf


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value with its replicates.

    Attributes
    ----------
    scalar : the value of all rows
    replicates : float64 array of shape (n_blocks,), the value without each block; NaN for a block without rows, for
        which it is the value of all rows, infinite where the value is undefined
    sizes : what the blocks hold
    scale : key of `SCALES`
    reason : why there is no interval, if that is known beforehand
    grid : the value where replicates come from an approximation; NaN where they do not
    known : the standard error, where it is known without replicates
    bounds : the least and the greatest value that can be, if the scale does not say it: that of a difference
    doubt : float64 array of shape (n_blocks,), standard deviation of each replicate around the one that exact scores
        would give; None or 0 where replicates are exact

    Examples
    --------
    >>> sizes = Sizes("row", {"rows": np.array([10.0, 12, 9, 11])})
    >>> Estimate(Scalar.certain("mean", 0.5), np.array([0.4, 0.5, 0.6, 0.5]), sizes, "plain").stderr.__round__(4)
    0.1225
    """

    scalar: Scalar
    replicates: Array
    sizes: Sizes
    scale: str = "plain"
    reason: str | None = None
    grid: float = math.nan
    known: float | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    doubt: Array | None = None

    @property
    def deviations(self) -> Array:
        """The replicates of blocks that have rows, less their mean; NaN where a replicate is undefined."""
        there = self.replicates[~np.isnan(self.replicates)]
        if np.isinf(there).any():
            return np.full(there.size, math.nan)
        return np.asarray(there - there.mean()) if there.size else there

    @property
    def stderr(self) -> float:
        """Standard error of the value; NaN where fewer than two blocks have rows."""
        if self.known is not None:
            return self.known
        d = self.deviations
        if d.size < 2:
            return math.nan
        return math.sqrt((d.size - 1) / d.size * float(np.square(d).sum()))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error."""
        if self.known is not None:
            return _NORMAL
        d = self.deviations
        most = float(d.size - 1)
        if self.sizes.governing[0] >= FEW_UNITS or not d.any():
            return most
        squares = np.square(d / np.abs(d).max())
        return min(most, max(1.0, 3 * float(squares.sum()) ** 2 / float(np.square(squares).sum()) - 2))

    @property
    def undefined(self) -> str | None:
        """Why there is no interval; None where there is one."""
        value, (units, kind), scale = self.scalar.value, self.sizes.governing, SCALES[self.scale]
        if math.isnan(value):
            return self.scalar.reason or "the value is undefined"
        if self.reason:
            return self.reason
        if units < _LEAST_UNITS:
            return too_few(units, f"{kind} ({self.sizes.unit})", f"at least {_LEAST_UNITS}")
        if self.known is None and (self.deviations.size < 2 or np.isinf(self.replicates).any()):
            return "a replicate is undefined"
        if self.known is None and self._off > _OFF * self.stderr:
            return TOO_COARSE
        if self.known is None and self.inexactness > _INEXACT:
            return _TOO_ROUGH
        if not scale.low < value < scale.high:
            return at_end(value)
        return None

    @property
    def inexactness(self) -> float:
        """Relative standard deviation of the standard error around that of exact replicates."""
        there = ~np.isnan(self.replicates)
        if self.doubt is None or not self.doubt[there].any():
            return 0.0
        squares, doubts = np.square(self.deviations), np.square(self.doubt[there])
        total = float(squares.sum())
        return (
            math.sqrt(float((squares * doubts).sum())) / total + float(doubts.sum()) / total / 2 if total else math.inf
        )

    @property
    def far_off(self) -> bool:
        """Whether the value on the grid is so far off that the replicates are mostly noise."""
        return self.known is None and self._off > _FAR_OFF * self.stderr > 0

    @property
    def _off(self) -> float:
        """How far the value that the replicates are around is from the exact one; 0 where they are one."""
        if math.isnan(self.grid):
            return 0.0
        low, high = sorted((self.scalar.lower, self.scalar.upper))
        # the ends of a difference are those of its two values, not of what the replicates are around
        ends = (self.scalar.value,) * 2 if math.isnan(low) or self.scalar.baseline is not None else (low, high)
        return max(0.0, ends[0] - self.grid, self.grid - ends[1])

    def scalar_with(self, level: float) -> Scalar:
        """The value with its interval at a level, such as 0.95; null with the reason where there is none."""
        from scipy.special import stdtrit

        units, _ = self.sizes.governing
        told = replace(
            self.scalar,
            ci_level=level,
            unit=self.sizes.unit,
            units=self.sizes.units,
            effective_units=units if math.isfinite(units) else None,
            blocks=int(self.deviations.size),
        )
        reason = self.undefined
        if reason is not None:
            return replace(told, ci_reason=reason)
        scale, value = SCALES[self.scale], self.scalar.value
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.stderr * scale.slope(value)
        centre = scale.to(value)
        ends = max(scale.back(centre - half), self.bounds[0]), min(scale.back(centre + half), self.bounds[1])
        if not all(map(math.isfinite, ends)):
            return replace(told, ci_reason=f"the standard error, {self.stderr:.3g}, is too large for an interval")
        return replace(told, stderr=self.stderr, ci_lower=float(ends[0]), ci_upper=float(ends[1]))

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two estimates over the same blocks, paired; without replicates where one side has none.

        Raises
        ------
        OptionError
            If they have different units or numbers of blocks.
        """
        replicates = self._apart(other)
        scalar, reason = self._scalar_minus(other)
        smaller = min(self.sizes, other.sizes, key=lambda sizes: sizes.governing[0])
        mine, its = SCALES[self.scale], SCALES[other.scale]
        ends = [(max(s.low, e.bounds[0]), min(s.high, e.bounds[1])) for s, e in ((mine, self), (its, other))]
        bounds = ends[0][0] - ends[1][1], ends[0][1] - ends[1][0]
        sure = np.zeros(replicates.size)
        doubts = (sure if e.doubt is None or e.doubt.size != sure.size else e.doubt for e in (self, other))
        grid = self.grid - other.grid
        return Estimate(scalar, replicates, smaller, "plain", reason, grid, bounds=bounds, doubt=np.hypot(*doubts))

    def _apart(self, other: Estimate) -> Array:
        """The difference of the replicates, NaN where neither side has rows of the block; empty if one side has none.

        Raises
        ------
        OptionError
            If they have different units or numbers of blocks.
        """
        a, b = self.replicates, other.replicates
        if not (a.size and b.size):
            return np.empty(0)
        if self.sizes.unit != other.sizes.unit or a.size != b.size:
            msg = (
                f"cannot compare {self.scalar.metric} over {a.size} blocks of {self.sizes.unit} with "
                f"{other.scalar.metric} over {b.size} blocks of {other.sizes.unit}: evaluate both with "
                "the same unit (--unit)"
            )
            raise OptionError(msg)
        either = ~(np.isnan(a) & np.isnan(b))
        filled = [np.where(np.isnan(r), e.scalar.value, r) for r, e in ((a, self), (b, other))]
        with np.errstate(invalid="ignore"):  # both infinite: their difference is unknown
            apart = np.where(either, filled[0] - filled[1], math.nan)
        return np.where(either & np.isnan(apart), math.inf, apart)  # a replicate that is not defined

    def _scalar_minus(self, other: Estimate) -> tuple[Scalar, str | None]:
        """The difference of the values, and why it has no interval."""
        value = self.scalar.value - other.scalar.value
        exact = self.scalar.exact and other.scalar.exact
        scalar = replace(
            Scalar.certain(self.scalar.metric, value),
            lower=value if exact else self.scalar.lower - other.scalar.upper,
            upper=value if exact else self.scalar.upper - other.scalar.lower,
            exact=exact,
            of=f"{self.scalar.of} − {other.scalar.of}",
            baseline=other.scalar.of,
            rows=self.scalar.rows,
            positives=self.scalar.positives,
            slice=self.scalar.slice,
        )
        reason = self.reason or other.reason
        for side in (self, other):
            if math.isnan(side.scalar.value):
                reason = f"{side.scalar.metric} of {side.scalar.of}: {side.scalar.reason or 'undefined'}"
                scalar = replace(scalar, lower=math.nan, upper=math.nan, exact=False, reason=reason)
        if math.isnan(scalar.value) and not scalar.reason:
            reason = "both values are infinite"
            scalar = replace(scalar, lower=math.nan, upper=math.nan, exact=False, reason=reason)
        return scalar, reason

    def p_value(self, against: float = 0) -> float:
        """Two-sided p of the value being `against`, by t; NaN where there is no interval or no spread.

        Identical columns have no spread: then there is nothing to test.
        """
        from scipy.special import stdtr

        if self.undefined is not None or not self.stderr:
            return math.nan
        return float(2 * stdtr(self.freedom, -abs(self.scalar.value - against) / self.stderr))

    def equivalent(self, margin: float, level: float) -> bool:
        """Whether the value is shown to lie within ± `margin`, by two one-sided tests at 1 − `level` each."""
        from scipy.special import stdtrit

        if self.undefined is not None:
            return False
        reach = float(stdtrit(self.freedom, level)) * self.stderr if self.stderr else 0.0
        return -margin < self.scalar.value - reach and self.scalar.value + reach < margin
