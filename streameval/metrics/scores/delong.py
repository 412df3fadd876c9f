"""DeLong's standard error of the ROC AUC where each row is a unit, from the counts of a score alone.

With V10 = (N below + n/2)/N for each positive and V01 = (P above + p/2)/P for each negative, ties as halves,

    Var = S10/P + S01/N,

S10 the variance of V10 over the positives (divisor P − 1) and S01 that of V01 over the negatives (N − 1). Sun and Xu
(2014) compute it in two passes over sorted scores. Here one pass sums 1 − V10 and 1 − V01 and their squares over all
groups; these are small if a score is good, which keeps the precision.

References
----------
DeLong, E. R., DeLong, D. M., Clarke-Pearson, D. L. (1988). Comparing the areas under two or more correlated receiver
operating characteristic curves. *Biometrics* 44, 837–845.
Sun, X., Xu, W. (2014). Fast implementation of DeLong's algorithm. *IEEE Signal Processing Letters* 21, 1389–1393.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.ranking import delong_counts, running
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.sums import counted, exact_sum
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart


def _dropped(size: int) -> int:
    """Bits that twice a count loses to fit into 32."""
    return max(0, (2 * size).bit_length() - 32)


@dataclass(frozen=True)
class DeLong(Metric[Scalar, "ScorePart", tuple[float, float, float, float], "State"]):
    """Standard error of `factor` · ROC AUC, each row a unit; of weights as if they were counts.

    Attributes
    ----------
    factor : of the ROC AUC
    unbiased : whether variances have the divisors P − 1 and N − 1, instead of P and N

    Examples
    --------
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> label = np.array([0, 0, 1, 1], np.uint8)
    >>> round(compute(fold_arrays(label, np.array([0.1, 0.4, 0.35, 0.8])), DeLong()).value, 4)
    0.3536
    """

    factor: float = 1
    unbiased: bool = True
    name: str = "roc_auc_stderr"

    def basis(self, part: ScorePart) -> DeLong:
        """All of them share their sums."""
        return DeLong()

    def partial(self, part: ScorePart) -> tuple[float, float, float, float]:
        """Σ p·(1 − V10), Σ p·(1 − V10)², Σ n·(1 − V01), Σ n·(1 − V01)²; of counts whole numbers."""
        before, whole = part.before, part.total
        if not whole.n or not whole.p:
            return 0, 0, 0, 0
        if counted(whole):
            drops = _dropped(whole.n), _dropped(whole.p)
            found = delong_counts(part.n, part.p, before.n, before.p, whole.p, *drops).tolist()
            a, aa, b, bb = (high << 64 | low for high, low in zip(found[::2], found[1::2], strict=True))
            return a, aa, b, bb
        over = (running(part.n, before.n) - part.n / 2) / whole.n  # negatives above a positive, ties as halves
        under = np.maximum(0.0, 1 - (running(part.p, before.p) - part.p / 2) / whole.p)
        sums = (exact_sum(part.p * over), exact_sum(part.p * over**2))
        return (*sums, exact_sum(part.n * under), exact_sum(part.n * under**2))

    def combine(self, partials: Sequence[tuple[float, float, float, float]], state: State) -> Scalar:
        """The root of the variance; undefined below two rows of a class."""
        total = state.totals()
        if min(total.neg, total.pos) < 2:
            return Scalar.undefined(self.name, "fewer than two rows of a class")
        whole = counted(total)
        sums = [sum(column) if whole else math.fsum(column) for column in zip(*partials, strict=True)]
        variance = 0.0
        for size, other, first, second in ((total.p, total.n, *sums[:2]), (total.n, total.p, *sums[2:])):
            if size and other:
                unit = Fraction(1 << _dropped(other), 2 * other) if whole else Fraction(1)
                spread = (Fraction(second) - Fraction(first) ** 2 / Fraction(size)) * unit**2
                free = size - 1 if self.unbiased and whole else size
                variance += max(0.0, float(spread / Fraction(free) / Fraction(size)))
        return Scalar.certain(self.name, self.factor * math.sqrt(variance))


GRID_CHECK = DeLong(unbiased=False)  # of the exact counts and on a coarse grid
