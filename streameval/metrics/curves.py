"""Curves as data: for each, the family that has it, the metrics it needs, and how it is made from their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.clusters.lift import Aul
from streameval.metrics.clusters.purity import purity_curve
from streameval.metrics.scores.calibration.curves import corp_curve, reliability_curve
from streameval.metrics.scores.calibration.isotonic import Corp, CorpFit
from streameval.metrics.scores.calibration.reliability import BINS, CalibrationError, ReliabilityBins
from streameval.metrics.scores.curves import AllSizes, ScorePath, lift_curve, score_curve
from streameval.metrics.scores.ranking import PrAuc, RocAuc
from streameval.states.scores.missing import numbers_only

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.results import Curve

_BINS = re.compile(r"reliability@(\d{1,6})(/equal_count)?")


@dataclass(frozen=True)
class CurveKind:
    """A curve that an evaluation can draw.

    Attributes
    ----------
    name : such as ``roc``
    family : its states give the curve
    default : a metric of that family, which builds the state
    metrics : what to finalize, given the threshold of `aul`
    make : the curve, from the values of these metrics, the state, its column and the threshold of `aul`; it raises
        `OptionError` if the curve is not defined
    point : the metric that y is at an x, such as ``tpr@fpr=0.5``: its interval follows the same rules; empty for none
    """

    name: str
    family: str
    default: str
    metrics: Callable[[float], Sequence[Metric]]
    make: Callable[[Sequence[Any], Any, str, float], Curve]
    point: str = ""

    def drawn(self, state: Any) -> Any:
        """The state behind the curve: that of a score without its missing scores."""
        return state if self.family == "cluster" else numbers_only(state)


def _of_path(name: str, point: str) -> CurveKind:
    """A view of the path of a score."""
    return CurveKind(
        name,
        "score",
        "roc_auc",
        lambda _: (ScorePath(), RocAuc(), PrAuc()),
        lambda values, state, *_: score_curve(name, values[0], state, *values[1:]),
        point,
    )


def _of_bins(bins: int = BINS, *, equal_count: bool = False) -> CurveKind:
    """Bins of a score, with their calibration error."""
    kind = ReliabilityBins(bins, equal_count)
    error = CalibrationError(bins, equal_count)
    return CurveKind(
        "reliability",
        "score",
        "brier_score",
        lambda _: (kind, error),
        lambda values, state, *_: reliability_curve(kind, values[0], values[1], state),
    )


def _lift(values: Sequence[Any], _: Any, of: str, aul_threshold: float) -> Curve:
    """The lift curve of a clustering."""
    return lift_curve(values[0], aul_threshold, values[1].value, of)


CURVES = {
    kind.name: kind
    for kind in (
        _of_path("roc", "tpr@fpr=0.5"),
        _of_path("precision_recall", "precision@recall=0.5"),
        _of_path("gain", "recall@share=0.5"),
        _of_bins(),
        CurveKind(
            "corp",
            "score",
            "corp.mcb",
            lambda _: (CorpFit(), Corp("mcb")),
            lambda values, state, *_: corp_curve(values[0], values[1], state),
        ),
        CurveKind("lift", "cluster", "aul", lambda threshold: (AllSizes(), Aul(threshold)), _lift),
        CurveKind(
            "purity", "cluster", "aul", lambda _: (AllSizes(),), lambda values, _, of, __: purity_curve(values[0], of)
        ),
    )
}


def curve_kind(name: str) -> CurveKind:
    """The curve of a name; ``reliability@20`` has 20 bins, ``reliability@20/equal_count`` about as many rows in each.

    Raises
    ------
    OptionError
        If there is no such curve.

    Examples
    --------
    >>> curve_kind("roc").family
    'score'
    """
    if name in CURVES:
        return CURVES[name]
    if found := _BINS.fullmatch(name):
        return _of_bins(int(found[1]), equal_count=bool(found[2]))
    msg = f"there is no curve {name!r}; there are {', '.join(CURVES)}, reliability@B and reliability@B/equal_count"
    raise OptionError(msg)
