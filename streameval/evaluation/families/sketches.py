"""The family of columns of numbers whose quantiles are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.evaluation.families.protocol import Counted, MetricRequest
from streameval.evaluation.families.sharded import Sharded
from streameval.states.scores.quantile_sketch import QuantileSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.evaluation.families.protocol import KeyTypes
    from streameval.evaluation.request import Request


@dataclass(frozen=True)
class Sketches(Sharded):
    """Quantiles of a column of numbers."""

    name = "sketch"
    column = "sketch"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sketch of every column."""
        for column in request.sketches:
            spec = QuantileSpec(column, types.score(column))
            yield MetricRequest(self, column, spec, request.selection.of(self.name))

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows with a number, labelled or not."""
        return Counted(state.totals().rows, None, ((f"NaN or null in the sketch of {wanted.of}", int(state.nan)),))
