"""Quantiles of a column, from its sketch.

A sketch estimates (`streameval.states.scores.quantile_sketch` says how well), so `lower` and `upper` are NaN. Only the
ends are exact: ``quantile@0`` is the smallest number and ``quantile@1`` the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.metrics.protocol import Metric
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.quantile_sketch import QuantileSketch

LEVELS = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)

_NO_NUMBERS = "no numbers in the column"
_ESTIMATE = "a sketch estimates quantiles; no interval is certain"


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
