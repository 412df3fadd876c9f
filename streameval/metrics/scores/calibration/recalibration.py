"""Logistic recalibration: P(positive) = 1/(1 + exp(−a − b·logit(s))), by maximum likelihood.

- ``calibration_slope`` b and ``calibration_intercept`` a are fitted jointly. A slope below 1 says that scores are too
  extreme, above 1 that they are not extreme enough.
- ``calibration_in_the_large`` is a with b = 1: 0 where the mean score, on the logit scale, fits the share of positives.

The fit is Newton's method on the groups. Each step needs the groups again: `LogisticFit.combine` gives the fit of the
next step until it stands still, and metrics of the same fit share its steps. Sums are exact expansions, so the fit does
not depend on the order of the rows. The likelihood is concave; a step that lowers it is halved.

References: Cox (1958), *Two further applications of a model for binary regression*, Biometrika 45; Steyerberg (2019),
*Clinical Prediction Models*, chapter 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.ranking import exact_parts
from streameval.metrics.scores.calibration.scoring import Probabilities, missing
from streameval.metrics.scores.undefined import NO_LOGIT, ONE_CLASS, OUTSIDE, UNBOUNDED
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart

__all__ = ["LogisticFit", "Recalibration"]

_STEPS = 60
_STILL = 1e-10  # a Newton step below this squares to rounding error
_STEEP = 1e4  # a slope beyond which the classes are separated
_FLAT = "all scores are equal, which leaves no slope"
_SEPARATED = "the fit does not converge: the scores separate the classes, or nearly"


@dataclass(frozen=True)
class LogisticFit:
    """One step of the fit: sums of the likelihood's derivatives at an intercept and a slope.

    Attributes
    ----------
    joint : whether the slope is fitted too
    intercept, slope : where the likelihood is evaluated
    by : the Newton step that led here
    likelihood : before that step, in nats
    step : number of evaluations so far
    """

    joint: bool = True
    intercept: float = 0.0
    slope: float = 1.0
    by: tuple[float, float] = (0.0, 0.0)
    likelihood: float = -math.inf
    step: int = 0

    def partial(self, part: ScorePart) -> Any:
        """Likelihood, gradient and curvature, and Σu, Σu·x of spread; a reason where there is no fit."""
        found = Probabilities.of(part)
        if found is None:
            return OUTSIDE
        if not part.exact:
            return UNBOUNDED
        n, p, s = part.n.astype(float), part.p.astype(float), found.middle
        some = n + p > 0
        n, p, s = n[some], p[some], s[some]
        if s.size and not (s[-1] > 0.0 and s[0] < 1.0):
            return NO_LOGIT
        x = np.log(s) - np.log1p(-s)
        z = self.intercept + self.slope * x
        lost = np.exp(-np.abs(z))
        share = np.where(z >= 0, 1.0, lost) / (1.0 + lost)
        other = np.where(z >= 0, lost, 1.0) / (1.0 + lost)
        # ln share = min(z, 0) − ln(1 + e^−|z|)
        likelihood = p * np.minimum(z, 0) - n * np.maximum(z, 0) - (n + p) * np.log1p(lost)
        slack, curve = p * other - n * share, (n + p) * share * other
        ends = (float(x.min()), float(x.max())) if x.size else None
        return [exact_parts(t).tolist() for t in (likelihood, slack, slack * x, curve, curve * x, curve * x * x)], ends

    def combine(self, partials: Sequence[Any], state: Any) -> LogisticFit | str:
        """The fit of the next step; itself where it stands still; a reason where there is none."""
        if reason := missing(partials, state):
            return reason
        if refused := [part for part in partials if isinstance(part, str)]:
            return str(min(refused, key=[OUTSIDE, UNBOUNDED, NO_LOGIT].index))
        N, P = state.totals().n, state.totals().p
        if not N or not P:
            return ONE_CLASS
        spans = [ends for _, ends in partials if ends]
        if self.joint and min(low for low, _ in spans) == max(high for _, high in spans):
            return _FLAT
        sums = [math.fsum(x for row, _ in partials for x in row[i]) for i in range(6)]
        return self._next(sums, 1e-14 * float(N + P))

    def _next(self, sums: Sequence[float], slack: float) -> LogisticFit | str:
        """A Newton step, or half of the last one if it went too far."""
        likelihood, of_a, of_b, aa, ab, bb = sums
        if self.step >= _STEPS or abs(self.slope) > _STEEP:
            return _SEPARATED
        if likelihood < self.likelihood - slack:
            a, b = self.by[0] / 2, self.by[1] / 2
            return replace(self, intercept=self.intercept - a, slope=self.slope - b, by=(a, b), step=self.step + 1)
        det = aa * bb - ab * ab
        if (self.joint and not det > 0) or not aa > 0:
            return _SEPARATED
        a, b = ((bb * of_a - ab * of_b) / det, (aa * of_b - ab * of_a) / det) if self.joint else (of_a / aa, 0.0)
        moved = replace(
            self,
            intercept=self.intercept + a,
            slope=self.slope + b,
            by=(a, b),
            likelihood=likelihood,
            step=self.step + 1,
        )
        still = abs(a) <= _STILL * (1 + abs(self.intercept)) and abs(b) <= _STILL * (1 + abs(self.slope))
        return replace(moved, step=-1) if still else moved


@dataclass(frozen=True)
class Recalibration:
    """Intercept or slope of a logistic recalibration; perfect are 0 and 1.

    Attributes
    ----------
    name : in results
    fit : the step that the fit has reached
    slope : whether the value is the slope

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
    fit: LogisticFit = LogisticFit()
    slope: bool = False

    def basis(self, part: ScorePart) -> LogisticFit:
        """The step, which metrics of the same fit share."""
        return self.fit

    def partial(self, part: ScorePart) -> Any:
        """The partial of the basis."""
        return self.fit.partial(part)

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar | Recalibration:
        """The value, or the metric that takes the next step."""
        found = self.fit.combine(partials, state)
        if isinstance(found, str):
            return Scalar.undefined(self.name, found)
        if found.step >= 0:
            return replace(self, fit=found)
        return Scalar.certain(self.name, found.slope if self.slope else found.intercept)
