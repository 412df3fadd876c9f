"""Curves as data: for each, the family that has it, the metrics it is made of, and how it is made of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.metrics.clusters.lift import Aul
from streameval.metrics.scores.curves import AllSizes, ScorePath, lift_curve, score_curve
from streameval.metrics.scores.ranking import PrAuc, RocAuc
from streameval.states.scores.missing import numbers_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.protocol import Metric
    from streameval.results import Curve

__all__ = ["CURVES", "CurveKind"]


@dataclass(frozen=True)
class CurveKind:
    """A curve that an evaluation can draw.

    Attributes
    ----------
    name : such as ``roc``
    family : whose states it is made of
    default : a metric of that family, which builds the state
    """

    name: str
    family: str
    default: str

    def metrics(self, aul_threshold: float) -> Sequence[Metric]:
        """What to finalize: the points, and the area of the whole curve."""
        if self.family == "cluster":
            return [AllSizes(), Aul(aul_threshold)]
        return [ScorePath(), RocAuc(), PrAuc()]

    def drawn(self, state: Any) -> Any:
        """The state that the curve is made of: that of a score without its missing scores."""
        return state if self.family == "cluster" else numbers_only(state)

    def made(self, values: Sequence[Any], state: Any, of: str, aul_threshold: float) -> Curve:
        """The curve, from the values of these metrics.

        Raises
        ------
        OptionError
            If the curve is not defined.
        """
        points, *areas = values
        if self.family == "cluster":
            return lift_curve(points, aul_threshold, areas[0].value, of)
        return score_curve(self.name, points, state, *areas)


CURVES = {
    kind.name: kind
    for kind in (
        CurveKind("roc", "score", "roc_auc"),
        CurveKind("precision_recall", "score", "roc_auc"),
        CurveKind("gain", "score", "roc_auc"),
        CurveKind("lift", "cluster", "aul"),
    )
}
