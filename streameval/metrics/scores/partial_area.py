"""Partial ROC AUC: the area up to a false positive rate, standardised (McClish 1989), and the Gini coefficient.

With A the area under the ROC curve up to the false positive rate f, interpolated linearly within a group of equal
score, ``partial_auc@f`` = ½·(1 + (A − f²/2)/(f − f²/2)): ½ for a random order and 1 for a perfect one, as
scikit-learn's ``roc_auc_score(max_fpr=f)``.

A group has p positives and n negatives, with T and F before it; it adds n·(T + p/2)/(P·N). In an open bin of a
histogram the area is least with all negatives first and greatest with all positives first.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.thresholds import running
from streameval.metrics.protocol import ONE_CLASS, Metric
from streameval.metrics.scores.calibration.scoring import spread
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.sums import counted, exact_sum, product
from streameval.results import Scalar
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart


@dataclass(frozen=True)
class Gini(Metric):
    """Gini coefficient: 2·AUC − 1, in [−1, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> compute(fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8])), Gini()).value
    0.5
    """

    name: str = "gini"
    counts_nan: ClassVar[bool] = True

    def basis(self, part: ScorePart) -> RocAuc:
        """The pairs won."""
        return RocAuc()

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """From the ROC AUC."""
        auc = RocAuc().combine(partials, state)
        if auc.reason:
            return Scalar.undefined(self.name, auc.reason)
        value, lower, upper = (2 * x - 1 for x in (auc.value, auc.lower, auc.upper))
        return Scalar.between(self.name, value, lower, upper)


@dataclass(frozen=True)
class PartialAuc(Metric):
    """Standardised ROC AUC up to a false positive rate, in [0, 1].

    Attributes
    ----------
    most : the largest false positive rate, in (0, 1]

    Raises
    ------
    OptionError
        If `most` is not in (0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> round(compute(state, PartialAuc(0.25)).value, 4)
    0.7143
    """

    most: float

    def __post_init__(self) -> None:
        if not 0 < self.most <= 1:
            raise OptionError(
                f"partial_auc@{self.most:g} is not a false positive rate; write one above 0 and at most 1"
            )

    @property
    def name(self) -> str:
        """``partial_auc@0.01``."""
        return f"partial_auc@{format_number(self.most)}"

    def partial(self, part: ScorePart) -> tuple[Any, Any, Any]:
        """Twice the area of this part up to the limit, in pairs: lower bound, with ties as halves, upper bound."""
        n, p, total = part.n, part.p, part.total
        if counted(total):
            bound: Any = Fraction(str(float(self.most))) * total.n
        else:
            bound = self.most * total.n
        false = running(n, part.before.n)
        keep = int(np.searchsorted(false, int(bound) if counted(total) else bound, side="right"))
        before = running(p, part.before.p) - p
        low, high = 2 * before, 2 * before + 2 * p
        low, high = (np.where(part.open, end, low + p)[:keep] for end in (low, high))
        value = product(n[:keep], (2 * before + p)[:keep])
        least, most = (value, value) if part.exact else (product(n[:keep], end) for end in (low, high))
        F = false[keep - 1].item() if keep else part.before.n
        if keep == n.size or bound <= F:
            return least, value, most
        width, size, hits = bound - F, n[keep].item(), p[keep].item()
        T = before[keep].item()
        tied = width * (2 * T + width * hits / size)
        ends = (width * 2 * T, width * 2 * (T + hits)) if part.open[keep] else (tied, tied)
        return least + ends[0], value + tied, most + ends[1]

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """Standardise the area."""
        N, P = state.totals().n, state.totals().p
        if not N or not P:
            return Scalar.undefined(self.name, ONE_CLASS)
        exact = counted(state.totals())
        f: Any = Fraction(str(float(self.most))) if exact else self.most
        ends = []
        for column in zip(*partials, strict=True):
            area = Fraction(sum(column)) / (2 * N * P) if exact else exact_sum(np.array(column)) / (2 * N * P)
            ends.append(float((1 + (area - f * f / 2) / (f - f * f / 2)) / 2))
        return spread(self.name, (ends[0], ends[1], ends[2]))
