"""Logistic recalibration: P(positive) = 1/(1 + exp(−a − b·logit(s))), by maximum likelihood.

- ``calibration_slope`` b and ``calibration_intercept`` a are fitted jointly. With a slope below 1 scores are too
  extreme, above 1 they are not extreme enough.
- ``calibration_in_the_large`` is a with b = 1: 0 where the mean score, on the logit scale, fits the share of positives.

The fit is by Newton's method. Each step on the groups reads them all again, so the groups are first counted in a table
of logit(s), in one pass (`streameval.metrics.scores.scoring_rules`), and the steps use the table, which is as
precise as the groups for slopes up to 8 and logits below 40. Otherwise (steep slopes, extreme scores, weights, classes
that the scores nearly separate) further steps on the groups start from the fit to the table, if there is one:
`LogisticFit.next_step` returns the fit of the next step until it converges, and metrics of the same fit share them. The
likelihood is concave; a step that lowers it is halved. A shift exists for any two classes; where Newton's method fails
to reach it, as on saturated scores, it is found by bisection between the ends below. Sums are in fixed point or exact
expansions, so the fit does not depend on the order of the rows.

Bins of a histogram that hold one score each give the same fit. Open bins bound the shift of calibration in the large
(`ShiftEnds`), but not a slope. The shift a solves Σ (p + n)·σ(a + logit s) = Σ p. The left side rises with a and with
every score, so a is least if every row of an open bin has the bin's highest score, and largest at the lowest.

References: Cox (1958), *Two further applications of a model for binary regression*, Biometrika 45; Steyerberg (2019),
*Clinical Prediction Models*, chapter 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streameval.kernels.ranking import exact_parts
from streameval.metrics.protocol import NO_LOGIT, ONE_CLASS, OUTSIDE, UNBOUNDED, Basis, Metric, Partials
from streameval.metrics.scores.scoring_rules import (
    GENTLE,
    BinnedLogits,
    Bins,
    Ends,
    Probabilities,
    bins_of,
    missing,
    spread,
    table_of,
)
from streameval.metrics.scores.sums import integers, sum_of
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

    Sums = tuple[list[list[float]], tuple[float, float] | None]
    Partial = Bins | Sums | Ends | str | None


SLACK = 1e-9  # relative; bounds the error of a shift, from its search and from rounding
_SHIFT_NEAR = 1e-12  # absolute; the search for a shift ends at this precision


@dataclass(frozen=True)
class ShiftEnds(Basis["ScorePart", "Ends | str"]):
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

    def partial(self, part: ScorePart) -> Ends | str:
        """The shifts of the bins, which are all in one part."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return OUTSIDE
        full = part.n + part.p > 0
        low, middle, high = (side[full] for side in probabilities)
        if low.size and not (low[-1] > 0.0 and high[0] < 1.0):
            return UNBOUNDED if low[-1] < high[-1] or low[0] < high[0] else NO_LOGIT
        n, p = part.n[full].astype(float), part.p[full].astype(float)
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
    ends = centre - float(x.max()) - _SHIFT_NEAR, centre - float(x.min()) + _SHIFT_NEAR
    within = surplus(ends[0]) < 0 < surplus(ends[1])
    return float(brentq(surplus, *ends, xtol=_SHIFT_NEAR)) if within else sum(ends) / 2


_STEPS = 60
_STILL = 1e-10  # a fit converges at a Newton step below this: the error after it is the square, below rounding
_NEAR = 5e-7  # the same for a fit that started from the table, whose step is already precise
_NEAR_STEPS = 3
_STEEP = 1e4  # a slope beyond which the classes are separated
_FLAT = "all scores are equal, which leaves no slope"
_SEPARATED = "the fit does not converge: the scores separate the classes, or nearly"


def _reason(part: ScorePart) -> str | None:
    """Why the scores of a part cannot be fitted; None if they can."""
    probabilities = Probabilities.of(part)
    if probabilities is None:
        return OUTSIDE
    if not part.certain:
        return UNBOUNDED
    s = probabilities.middle
    return NO_LOGIT if s.size and not (s[-1] > 0.0 and s[0] < 1.0) else None


@dataclass(frozen=True)
class LogitTable(Basis["ScorePart", "Bins | str | None"]):
    """Counts in bins of the logit and the ends of the logits, from which fits start."""

    def partial(self, part: ScorePart) -> Bins | str | None:
        """The bins of one part, and the ends of its logits; a reason if no fit exists, None for weights."""
        reason = _reason(part)
        return reason if reason or not integers(part.n) else bins_of(part)


def _refusal(partials: Sequence[object], state: State) -> str | None:
    """Why there is no fit."""
    if reason := missing([part for part in partials if part is not None], state):
        return reason
    if reasons := [part for part in partials if isinstance(part, str)]:
        return str(min(reasons, key=[OUTSIDE, UNBOUNDED, NO_LOGIT, ONE_CLASS].index))
    return None if state.totals().n and state.totals().p else ONE_CLASS


def _newton(sums: Sequence[float], *, joint: bool) -> tuple[float, float] | None:
    """The Newton step of both coefficients, from the derivatives and the curvature; None where that is singular."""
    of_a, of_b, aa, ab, bb = sums
    det = aa * bb - ab * ab
    if not aa > 0 or (joint and not det > 0):
        return None
    return ((bb * of_a - ab * of_b) / det, (aa * of_b - ab * of_a) / det) if joint else (of_a / aa, 0.0)


def _start(table: BinnedLogits, *, joint: bool) -> LogisticFit:
    """The fit to the table, which needs further steps on the groups unless the table is exact.

    If it does not converge, the fit starts on the groups.
    """
    fit = _fit(table, joint=joint) or _fit(table, joint=joint, damped=True)
    if fit is None:
        return LogisticFit(joint)
    done = table.exact and abs(fit[1]) <= GENTLE
    return LogisticFit(joint, *fit, step=-1 if done else 0, near=True)


def _fit(table: BinnedLogits, *, joint: bool, damped: bool = False) -> tuple[float, float] | None:
    """Intercept and slope of the fit to the table; None if Newton's method does not converge or the slope is too steep.

    If the scores are far too extreme, the first step is far too long. With `damped`, a step is halved until the
    derivative of the likelihood along it, which falls on the way, is at least minus half of its value at the start.
    This does not prove that the likelihood rises: a step of the joint fit may lower it, and steps may cycle. After
    `_STEPS` steps there is no fit to the table; the fit then starts on the groups, where a step that lowers the
    likelihood is halved.
    """
    a, b, more, rise = 0.0, 1.0, (0.0, 0.0), math.inf
    for _ in range(_STEPS):
        sums = table.derivatives(a, b, joint=joint)
        if damped and not -(sums[0] * more[0] + sums[1] * more[1]) <= rise / 2:
            more, rise = (more[0] / 2, more[1] / 2), rise / 2
            a, b = a - more[0], b - more[1]
            continue
        step = _newton(sums, joint=joint)
        if step is None:
            return None
        more, rise = step, sums[0] * step[0] + sums[1] * step[1]
        a, b = a + more[0], b + more[1]
        if not (math.isfinite(a) and (damped or abs(b) < _STEEP)):
            return None
        if max(map(abs, more)) <= _STILL * (1 + abs(a) + abs(b)):
            return (a, b) if abs(b) < _STEEP else None
    return None


@dataclass(frozen=True)
class LogisticFit(Basis["ScorePart", "str | Sums"]):
    """One step of the fit: sums of the likelihood's derivatives at an intercept and a slope.

    Attributes
    ----------
    joint : whether the slope is fitted too
    intercept, slope : where the likelihood is evaluated
    by : the Newton step that led to this point
    likelihood : log likelihood before that step, in nats; −inf at the start
    step : number of evaluations so far; −1 once the fit has converged
    near : whether it started from the fit to the table, so that a few further steps suffice
    ends : of a shift that is found by bisection, shifts below and above it; the intercept is their middle
    """

    joint: bool = True
    intercept: float = 0.0
    slope: float = 1.0
    by: tuple[float, float] = (0.0, 0.0)
    likelihood: float = -math.inf
    step: int = 0
    near: bool = False
    ends: tuple[float, float] | None = None

    def partial(self, part: ScorePart) -> str | Sums:
        """Sums of the log likelihood, gradient and curvature, and the ends of the logits; a reason if no fit exists."""
        if reason := _reason(part):
            return reason
        x = part.once("logits", lambda: np.log(part.scores / (1.0 - part.scores)))
        n, p = part.n.astype(float), part.p.astype(float)
        full = n + p > 0
        n, p, x = n[full], p[full], x[full]
        z = self.intercept + self.slope * x
        lost = np.exp(-np.abs(z))
        share, other = (np.where(side, 1.0, lost) / (1.0 + lost) for side in (z >= 0, z < 0))
        # ln share = min(z, 0) − ln(1 + e^−|z|)
        likelihood = p * np.minimum(z, 0) - n * np.maximum(z, 0) - (n + p) * np.log1p(lost)
        slack, curve = p * other - n * share, (n + p) * share * other
        ends = (float(x.min()), float(x.max())) if x.size else None
        terms = (likelihood, slack, slack * x, curve, curve * x, curve * x * x)
        exact = integers(part.n)
        return [exact_parts(term).tolist() if exact else [sum_of(term)] for term in terms], ends

    def next_step(self, partials: Sequence[Sums], state: State) -> LogisticFit | str:
        """The fit of the next step, whose `step` is −1 once it has converged; a reason if no fit exists."""
        spans = [ends for _, ends in partials if ends]
        if self.joint and min(low for low, _ in spans) == max(high for _, high in spans):
            return _FLAT
        sums, totals = [math.fsum(x for row, _ in partials for x in row[i]) for i in range(6)], state.totals()
        if self.ends:
            return self._bisect(*((self.intercept, self.ends[1]) if sums[1] > 0 else (self.ends[0], self.intercept)))
        step = self._last(sums[1:]) if self.near else self._next(sums, 1e-14 * float(totals.n + totals.p))
        if step != _SEPARATED or self.joint:
            return step
        centre = math.log(totals.p) - math.log(totals.n)
        return self._bisect(centre - max(high for _, high in spans), centre - min(low for low, _ in spans))

    def _bisect(self, low: float, high: float) -> LogisticFit:
        """The middle of a range that holds the shift, until it is as narrow as rounding allows."""
        middle = low + (high - low) / 2
        done = not low < middle < high or high - low <= _SHIFT_NEAR
        return replace(self, intercept=middle, step=-1 if done else 0, ends=(low, high))

    def _last(self, sums: Sequence[float]) -> LogisticFit:
        """A step from the fit to the table; the usual start if `_NEAR_STEPS` steps are not enough."""
        step = _newton(sums, joint=self.joint)
        still = step is not None and max(map(abs, step)) <= _NEAR
        if step is None or abs(self.slope + step[1]) >= _STEEP or (not still and self.step == _NEAR_STEPS):
            return LogisticFit(self.joint)
        return self._move(step, still=still)

    def _move(self, step: tuple[float, float], *, still: bool = False, **more: Any) -> LogisticFit:
        a, b = self.intercept + step[0], self.slope + step[1]
        return replace(self, intercept=a, slope=b, step=-1 if still else self.step + 1, **more)

    def _next(self, sums: Sequence[float], slack: float) -> LogisticFit | str:
        """A Newton step, or half of the last one if it went too far."""
        if self.step >= _STEPS or abs(self.slope) > _STEEP:
            return _SEPARATED
        if sums[0] < self.likelihood - slack:
            a, b = self.by[0] / 2, self.by[1] / 2
            return self._move((-a, -b), by=(a, b))
        step = _newton(sums[1:], joint=self.joint)
        if step is None:
            return _SEPARATED
        still = abs(step[0]) <= _STILL * (1 + abs(self.intercept)) and abs(step[1]) <= _STILL * (1 + abs(self.slope))
        return self._move(step, still=still, by=step, likelihood=sums[0])


@dataclass(frozen=True)
class Recalibration(Metric["Scalar | Recalibration", "ScorePart", "Partial", "State"]):
    """Intercept or slope of a logistic recalibration; calibrated scores have intercept 0 and slope 1.

    Attributes
    ----------
    name : the name in results
    joint : whether the slope is fitted too
    slope : whether the value is the slope instead of the intercept
    fit : the step that the fit has reached; None before the groups are read

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> score = np.repeat([0.2, 0.8], 10)
    >>> label = np.array([1] * 4 + [0] * 6 + [1] * 6 + [0] * 4, np.uint8)
    >>> round(compute(fold_arrays(label, score), Recalibration(slope=True, name="calibration_slope")).value, 6)
    0.292481
    """

    name: str
    joint: bool = True
    slope: bool = False
    fit: LogisticFit | None = None

    def basis(self, part: ScorePart) -> Basis[ScorePart, Partial]:
        """The table, then the next step; metrics of the same fit share both. For open bins, the ends of the shift."""
        return self.fit or (LogitTable() if self.joint or part.certain else ShiftEnds())

    def combine(self, partials: Sequence[Partial], state: State) -> Scalar | Recalibration:
        """The value, or this metric with the next step of its fit."""
        if not self.joint and partials and isinstance(partials[0], tuple) and isinstance(partials[0][0], float):
            ends = cast("Ends", partials[0])  # three shifts, from open bins
            return spread(self.name, ends, -math.inf, math.inf, SLACK * (1.0 + max(map(abs, ends))))
        step: LogisticFit | str | None = _refusal(partials, state)
        if step is None and self.fit:
            step = self.fit.next_step(cast("Sequence[Sums]", partials), state)
        elif step is None:
            step = self._first_step(Partials.of(partials), state)
        if isinstance(step, str):
            return Scalar.undefined(self.name, step)
        if step.step >= 0:
            return replace(self, fit=step)
        return Scalar.certain(self.name, step.slope if self.slope else step.intercept)

    def _first_step(self, partials: Partials, state: State) -> LogisticFit | str:
        """The fit to the bins of all parts, or where a fit without bins starts; a reason if no fit exists."""
        if any(part is None for part in partials):
            return LogisticFit(self.joint)
        table = table_of(partials, partials, state)
        spans = [ends for _, _, ends in partials if ends]
        if self.joint and spans and min(low for low, _ in spans) == max(high for _, high in spans):
            return _FLAT
        return partials.once(("fit", self.joint), [table], lambda: _start(table, joint=self.joint))
