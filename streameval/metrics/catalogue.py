"""The catalogue: every metric as data, and which of them a request asks for.

A metric is its class and its row here. From the rows come the defaults, the names that ``metrics=`` and ``--metric``
accept, what ``streameval metrics`` prints, and the tests that run over every metric. Some rows stand for a family of
names, such as ``ece@B``: their metrics are made from the value in the name (`made`), or from an option (`truncate`,
`at`).

``metrics=`` also takes a user's own metric: a frozen dataclass with ``name``, ``family``, ``partial`` and ``combine``
(`streameval.metrics.protocol.Metric`). The share of positives in the ten largest groups of equal score, for example:

>>> from dataclasses import dataclass
>>> import heapq, pyarrow as pa
>>> from streameval import evaluate
>>> @dataclass(frozen=True)
... class PositivesInLargestGroups:
...     groups: int = 10
...     name: str = "positives_in_largest_groups"
...     family: str = "score"
...     def partial(self, part):  # a bounded number of groups at a time, from the best score to the worst
...         return heapq.nlargest(self.groups, zip(part.rows.tolist(), part.p.tolist()))
...     def combine(self, partials, state):
...         largest = heapq.nlargest(self.groups, (group for part in partials for group in part))
...         return sum(positives for _, positives in largest) / sum(rows for rows, _ in largest)
>>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.9, 0.4]})
>>> evaluate(data, score="score", metrics=[PositivesInLargestGroups(1)]).value("positives_in_largest_groups")
1.0
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.clusters.lift import Aul, RocAucBySize
from streameval.metrics.contingency.assignment import ASSIGNMENT_CELLS
from streameval.metrics.contingency.clustering import (
    CLUSTERING_METRICS,
    ClusteringMetric,
    clustering_metric,
    clustering_metric_names,
    clustering_metrics,
    names_measure,
)
from streameval.metrics.scores.best_thresholds import CostMin, FbetaMax
from streameval.metrics.scores.calibration.cumulative import CumulativeError
from streameval.metrics.scores.calibration.isotonic import Corp
from streameval.metrics.scores.calibration.recalibration import Recalibration
from streameval.metrics.scores.calibration.reliability import CalibrationError
from streameval.metrics.scores.calibration.scoring import BrierScore, LogLoss
from streameval.metrics.scores.gain import Agc, truncated
from streameval.metrics.scores.gain_sampled import AgcApprox, approximations
from streameval.metrics.scores.operating_points import OperatingPoint, operating_points
from streameval.metrics.scores.partial_area import Gini, PartialAuc
from streameval.metrics.scores.ranking import AveragePrecision, KolmogorovSmirnov, MaxInformedness, PrAuc, RocAuc
from streameval.metrics.scores.sampling.delong import DeLong
from streameval.metrics.sketches import named_quantile, quantiles
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streameval.metrics.protocol import Metric

__all__ = ["CATALOGUE", "FAMILIES", "Entry", "Selection", "entries", "entry_of"]

FAMILIES = {
    "score": "a score column",
    "cluster": "a cluster column",
    "sample": "a sampled score column",
    "classes": "a cluster column against the class column",
    "sketch": "a column of numbers to sketch",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the catalogue.

    Attributes
    ----------
    name : as results have it; capitals stand for a value, such as ``agc@Q``
    family : what its input is, a key of `FAMILIES`
    subject : metrics that go together, such as ``ranking``; ``metrics=`` takes it for all of them
    default : whether it is computed when nothing is picked
    low, high : ends of its range
    better : ``higher``, ``lower``, or None where neither end is
    meaning : one line
    source : paper or definition
    metric : the metric; None where a value in the name or an option makes it
    made : makes the metric of the values that capitals stand for; None where only an option does
    scale : scale of its sampling interval, a key of `streameval.metrics.estimates.SCALES`
    thresholded : whether it takes the rows beyond a threshold that depends on the data: few blocks then
    beyond : which rows beyond its threshold decide how sure it is: ``rows``, ``positives`` or ``negatives``
    no_interval : why it has no sampling interval
    units : which units decide how sure it is, kinds of `streameval.metrics.estimates.Sizes.counts`
    rowwise : metric of its standard error where each row is a unit, without replicates
    """

    name: str
    family: str
    subject: str
    default: bool
    low: float
    high: float
    better: str | None
    meaning: str
    source: str
    metric: Any = None
    made: Callable[..., Any] | None = None
    scale: str = "logit"
    thresholded: bool = False
    beyond: str = ""
    no_interval: str = ""
    units: tuple[str, ...] = ("rows", "positives", "negatives")
    rowwise: Any = None

    def named(self, name: str) -> Any:
        """The metric of a name that this row stands for; None if it stands for none.

        Raises
        ------
        OptionError
            If a value in the name is out of its range.
        """
        pattern = "".join("([^,/@=]+)" if c.isupper() else re.escape(c) for c in self.name)
        found = re.fullmatch(pattern, name)
        if self.made is None or found is None:
            return None
        try:
            values = [float(text) for text in found.groups()]
        except ValueError:
            return None
        return self.made(*values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite end of the range is None."""
        facts = {name: getattr(self, name) for name in self.__slots__ if name not in ("metric", "made", "rowwise")}
        facts = {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
        return facts | {end: facts[end] if math.isfinite(facts[end]) else None for end in ("low", "high")}


def _expected(bins: float, *, equal_count: bool = False) -> CalibrationError:
    """``ece@B`` or ``ece@B/equal_count``."""
    name = f"ece@{format_number(bins)}{'/equal_count' if equal_count else ''}"
    return CalibrationError(int(bins) if bins % 1 == 0 else bins, equal_count, name=name)  # type: ignore[arg-type]


_ECE = "Naeini, Cooper and Hauskrecht 2015"
_ECCE = "Arrieta-Ibarra et al. 2022"
_CORP = "Dimitriadis, Gneiting and Jordan 2021"
_COX = "Cox 1958"
_BIASED = "it is biased where scores are calibrated, so that no interval around it covers the truth"
CATALOGUE: tuple[Entry, ...] = (
    Entry("roc_auc", "score", "ranking", True, 0, 1, "higher",
          "Share of (positive, negative) pairs in which the positive scores higher; a tie counts one half.",
          "Hanley and McNeil 1982", RocAuc(), rowwise=DeLong()),
    Entry("average_precision", "score", "ranking", True, 0, 1, "higher",
          "Mean precision at the positives, without interpolation.", "scikit-learn", AveragePrecision()),
    Entry("pr_auc", "score", "ranking", True, 0, 1, "higher",
          "Area under the precision-recall curve by the trapezoid rule; optimistic.", "Davis and Goadrich 2006",
          PrAuc()),
    Entry("max_informedness", "score", "ranking", True, 0, 1, "higher",
          "Largest true positive rate minus false positive rate over all thresholds.", "Youden 1950",
          MaxInformedness()),
    Entry("ks", "score", "ranking", False, 0, 1, "higher",
          "Largest difference of true and false positive rate over all thresholds, of either sign.",
          "Kolmogorov-Smirnov", KolmogorovSmirnov()),
    Entry("agc", "score", "gain", True, -1, 1, "higher",
          "Area under the gain curve, 0 for a random order and 1 for a perfect one.", "Théberge, agc", Agc(1),
          scale="fisher", rowwise=DeLong(2)),
    Entry("agc_ratio", "score", "gain", True, 0, 1, "higher",
          "Area under the gain curve as a share of the perfect one's.", "Théberge, agc", Agc(1, ratio=True)),
    Entry("agc@Q", "score", "gain", False, -math.inf, 1, "higher",
          "agc of the top Q of the points: a share, or a number above 1 (--truncate Q).", "Théberge, agc",
          scale="plain"),
    Entry("agc_ratio@Q", "score", "gain", False, 0, 1, "higher",
          "agc_ratio of the top Q of the points (--truncate Q).", "Théberge, agc"),
    Entry("gini", "score", "ranking", False, -1, 1, "higher",
          "Gini coefficient of the ROC curve, 2·AUC − 1.", "2·AUC − 1", Gini(),
          scale="fisher", rowwise=DeLong(2)),
    Entry("partial_auc@F", "score", "ranking", False, 0, 1, "higher",
          "ROC AUC up to a false positive rate of F, standardised: ½ for a random order, 1 for a perfect one.",
          "McClish 1989", made=PartialAuc),
    Entry("tpr@fpr=X", "score", "thresholds", False, 0, 1, "higher",
          "Largest true positive rate at a false positive rate of at most X (--at fpr=X).", "ROC curve",
          made=partial(OperatingPoint, "fpr"),
          thresholded=True, beyond="negatives"),
    Entry("fpr@tpr=X", "score", "thresholds", False, 0, 1, "lower",
          "Smallest false positive rate at a true positive rate of at least X (--at tpr=X).", "ROC curve",
          made=partial(OperatingPoint, "tpr"),
          thresholded=True, beyond="positives"),
    Entry("precision@recall=X", "score", "thresholds", False, 0, 1, "higher",
          "Largest precision at a recall of at least X (--at recall=X).", "precision-recall curve",
          made=partial(OperatingPoint, "recall"),
          thresholded=True, beyond="positives"),
    Entry("recall@precision=X", "score", "thresholds", False, 0, 1, "higher",
          "Largest recall at a precision of at least X (--at precision=X).", "precision-recall curve",
          made=partial(OperatingPoint, "precision"),
          thresholded=True, beyond="rows"),
    Entry("precision@k=N", "score", "thresholds", False, 0, 1, "higher",
          "Precision among the N points that score highest, ties whole (--at k=N).", "precision-recall curve",
          made=partial(OperatingPoint, "k"),
          thresholded=True, beyond="rows"),
    Entry("recall@k=N", "score", "thresholds", False, 0, 1, "higher",
          "Recall of the N points that score highest, ties whole.", "precision-recall curve",
          made=partial(OperatingPoint, "k", measure="recall"),
          thresholded=True, beyond="rows"),
    Entry("precision@share=Q", "score", "thresholds", False, 0, 1, "higher",
          "Precision among the share Q of the points that score highest, ties whole (--at share=Q).",
          "precision-recall curve", made=partial(OperatingPoint, "share"),
          thresholded=True, beyond="rows"),
    Entry("recall@share=Q", "score", "thresholds", False, 0, 1, "higher",
          "Recall of the share Q of the points that score highest, ties whole (--at share=Q).", "gain curve",
          made=partial(OperatingPoint, "share", measure="recall"),
          thresholded=True, beyond="rows"),
    Entry("lift@Q", "score", "thresholds", False, 0, math.inf, "higher",
          "Precision among the share Q of the points that score highest, over the share of positives (--at share=Q).",
          "gain curve", made=partial(OperatingPoint, "share", measure="lift"),
          scale="log", thresholded=True, beyond="rows"),
    Entry("precision@threshold=T", "score", "thresholds", False, 0, 1, "higher",
          "Precision of the points that score at least T (--at threshold=T).", "2×2 table",
          made=partial(OperatingPoint, "threshold"),
          beyond="rows"),
    Entry("recall@threshold=T", "score", "thresholds", False, 0, 1, "higher",
          "Recall of the points that score at least T (--at threshold=T).", "2×2 table",
          made=partial(OperatingPoint, "threshold", measure="recall"),
          beyond="positives"),
    Entry("fpr@threshold=T", "score", "thresholds", False, 0, 1, "lower",
          "False positive rate of the points that score at least T (--at threshold=T).", "2×2 table",
          made=partial(OperatingPoint, "threshold", measure="fpr"),
          beyond="negatives"),
    Entry("flagged@threshold=T", "score", "thresholds", False, 0, 1, None,
          "Share of the points that score at least T (--at threshold=T).", "2×2 table",
          made=partial(OperatingPoint, "threshold", measure="flagged"),
          beyond="rows"),
    Entry("f1_max", "score", "thresholds", False, 0, 1, "higher",
          "Largest F1 over all thresholds.", "van Rijsbergen 1979", FbetaMax(),
          thresholded=True, beyond="rows"),
    Entry("fbeta_max@B", "score", "thresholds", False, 0, 1, "higher",
          "Largest F-measure with weight B of recall over all thresholds.", "van Rijsbergen 1979", made=FbetaMax,
          thresholded=True, beyond="rows"),
    Entry("cost_min@fp=X,fn=Y", "score", "thresholds", False, 0, math.inf, "lower",
          "Least expected cost of a point, where a false alarm costs X and a miss Y.", "expected cost", made=CostMin,
          scale="log"),
    Entry("brier_score", "score", "calibration", False, 0, 1, "lower",
          "Mean squared difference of score and label.", "Brier 1950", BrierScore()),
    Entry("log_loss", "score", "calibration", False, 0, math.inf, "lower",
          "Mean negative log likelihood of the labels, in nats (--clip).", "Good 1952", LogLoss(),
          scale="log"),
    Entry("ece", "score", "calibration", False, 0, 1, "lower",
          "Mean distance of score and share of positives over ten bins of equal width.", _ECE, CalibrationError(),
          no_interval=_BIASED),
    Entry("ece@B", "score", "calibration", False, 0, 1, "lower",
          "ece over B bins of equal width.", _ECE, made=_expected,
          no_interval=_BIASED),
    Entry("ece@B/equal_count", "score", "calibration", False, 0, 1, "lower",
          "ece over B bins of equal count, ties whole.", _ECE, made=partial(_expected, equal_count=True),
          no_interval=_BIASED),
    Entry("mce", "score", "calibration", False, 0, 1, "lower",
          "Largest distance of score and share of positives over ten bins of equal width.", _ECE,
          CalibrationError(largest=True, name="mce"),
          no_interval=_BIASED),
    Entry("ecce_mad", "score", "calibration", False, 0, 1, "lower",
          "Largest cumulative difference of labels and scores, without bins.", _ECCE, CumulativeError(),
          no_interval=_BIASED),
    Entry("ecce_range", "score", "calibration", False, 0, 1, "lower",
          "Range of the cumulative difference of labels and scores, without bins.", _ECCE, CumulativeError(reach=True),
          no_interval=_BIASED),
    Entry("corp.mcb", "score", "calibration", False, 0, 1, "lower",
          "Miscalibration: what isotonic recalibration would take off the Brier score.", _CORP, Corp("mcb"),
          no_interval=_BIASED),
    Entry("corp.dsc", "score", "calibration", False, 0, 0.25, "higher",
          "Discrimination: what the order of the scores takes off the uncertainty.", _CORP, Corp("dsc"),
          scale="plain"),
    Entry("corp.unc", "score", "calibration", False, 0, 0.25, None,
          "Uncertainty: the Brier score of the share of positives.", _CORP, Corp("unc"),
          scale="plain"),
    Entry("calibration_slope", "score", "calibration", False, -math.inf, math.inf, None,
          "Slope of a logistic recalibration: 1 is perfect, below 1 scores are too extreme.", _COX,
          Recalibration("calibration_slope", slope=True),
          scale="plain"),
    Entry("calibration_intercept", "score", "calibration", False, -math.inf, math.inf, None,
          "Intercept fitted together with the slope: 0 is perfect.", _COX, Recalibration("calibration_intercept"),
          scale="plain"),
    Entry("calibration_in_the_large", "score", "calibration", False, -math.inf, math.inf, None,
          "Intercept with slope 1: above 0 scores are too low on the whole.", _COX,
          Recalibration("calibration_in_the_large", joint=False),
          scale="plain"),
    Entry("agc_approx", "sample", "gain", False, -1, 1, "higher",
          "agc of a sample in quantile bins (--approx-agc).", "Théberge, agc",
          no_interval="the rows that were drawn decide its error, see bound and stderr; agc has an interval"),
    Entry("agc_approx@Q", "sample", "gain", False, -math.inf, 1, "higher",
          "agc@Q of a sample in quantile bins (--approx-agc --truncate Q).", "Théberge, agc",
          no_interval="the rows that were drawn decide its error, see bound and stderr; agc has an interval"),
    Entry("aul", "cluster", "lift", True, 0, 1, "higher",
          "Area under the lift curve of clusters from the largest to the smallest.",
          "Scherbakov, clustering-metrics", Aul()),
    Entry("roc_auc_by_size", "cluster", "lift", True, 0, 1, "higher",
          "ROC AUC with the size of its cluster as a row's score.", "Hanley and McNeil 1982", RocAucBySize()),
    Entry("quantile@X", "sketch", "quantiles", True, -math.inf, math.inf, None,
          "Estimated X-quantile of a column of numbers (--sketch COLUMN).", "Dunning and Ertl 2019",
          no_interval="a sketch keeps no blocks"),
)  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Which metrics are asked for, and their options.

    Attributes
    ----------
    families : families that there is input for
    patterns : names, globs, families and subjects; ``default`` for those computed by default; only these if empty
    own : the user's own metrics
    truncate, at, aul_threshold, assignment_cells : as `streameval.evaluate`
    quantiles : bins of ``agc_approx``; None where it is not asked for
    clip : of ``log_loss``
    """

    families: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    own: tuple[Any, ...] = ()
    truncate: tuple[float, ...] = ()
    at: tuple[str, ...] = ()
    aul_threshold: float = 1
    assignment_cells: int = ASSIGNMENT_CELLS
    quantiles: int | None = None
    clip: float | None = None

    def of(self, family: str) -> tuple[Metric, ...]:
        """The metrics of a family, each once."""
        if family not in self.families:
            return ()
        own = tuple(metric for metric in self.own if metric.family == family)
        if family == "classes":
            return (*self._clustering, *own)
        picked = self._picked(entry for entry in CATALOGUE if entry.family == family and entry.metric is not None)
        if family == "score":
            cuts = truncated(self.truncate)
            picked += cuts if not self.quantiles else tuple(m for m in cuts if not self.patterns or self._names(m.name))
            picked += (*operating_points(self.at), *self._named)
        if family == "sketch":
            picked = quantiles(self.patterns, self._names_quantile)
        if family == "sample":
            picked = tuple(m for m in self._areas if not self.patterns or self._names(m.name)) or self._areas
        return tuple(dict.fromkeys((*picked, *own)))

    def check(self) -> None:
        """Raise `OptionError` if a pattern names nothing, or one of the user's own metrics cannot be taken."""
        for metric in self.own:
            _check_own(metric, self.families)
        for pattern in self.patterns:
            if not self._known(pattern):
                names = list(self._names_of_all())
                near = get_close_matches(pattern, names, 1)
                hint = f"; did you mean {near[0]!r}? There" if near else "; there"
                msg = f"no metric is named {pattern!r}{hint} are: {', '.join(names)}"
                if "cluster" in self.families and "classes" not in self.families:
                    msg += ", and with a class column (--classes) those of clusters against classes"
                elif "classes" in self.families:
                    msg += ", and variants such as assignment_score/m3/raw"
                raise OptionError(msg)
        if self.clip is not None and LogLoss(self.clip) not in self.of("score"):
            msg = f"clip={self.clip:g} would change nothing without log_loss: add it to metrics (--metric log_loss)"
            raise OptionError(msg, "clip")

    def _known(self, pattern: str) -> bool:
        others = any(fnmatchcase(name, pattern) for name in self._plain_names)
        others |= "sketch" in self.families and named_quantile(pattern) is not None
        return (
            others
            or bool(self._metrics_named(pattern))
            or pattern == "default"
            or _group(pattern, self.families)
            or ("classes" in self.families and bool(_measures(pattern)))
        )

    @property
    def _named(self) -> tuple[Any, ...]:
        """Metrics of names that hold a value, such as ``ece@20``."""
        return tuple(metric for pattern in self.patterns for metric in self._metrics_named(pattern))

    def _metrics_named(self, name: str) -> tuple[Any, ...]:
        rows = (entry.named(name) for entry in CATALOGUE if entry.made and entry.family in self.families)
        return tuple(metric for metric in rows if metric is not None)[:1]

    @property
    def _plain_names(self) -> tuple[str, ...]:
        """Names that there is input for, but those of the class column."""
        made: tuple[Any, ...] = ()
        if "score" in self.families:
            made = (*truncated(self.truncate), *operating_points(self.at), *self._areas)
        if "sketch" in self.families:
            made += quantiles((), self._names_quantile)
        fixed = [entry.name for entry in CATALOGUE if entry.metric is not None and entry.family in self.families]
        return (*fixed, *(metric.name for metric in made))

    def _names_of_all(self) -> Iterable[str]:
        more = (name.split(".")[0] for name in clustering_metric_names()) if "classes" in self.families else ()
        return dict.fromkeys((*self._plain_names, *more))

    @property
    def _areas(self) -> tuple[AgcApprox, ...]:
        return approximations(self.truncate, self.quantiles) if self.quantiles else ()

    def _picked(self, rows: Iterable[Entry]) -> tuple[Metric, ...]:
        found = (e for e in rows if (self.usual and e.default) or (self.narrowed and self._names(e.name, e)))
        return tuple(self._with_options(entry.metric) for entry in found)

    @property
    def narrowed(self) -> bool:
        """Whether something was picked, so that defaults are not computed."""
        return bool(self.patterns or self.own)

    @property
    def usual(self) -> bool:
        """Whether the defaults are computed."""
        return not self.narrowed or "default" in self.patterns

    def _names(self, name: str, entry: Entry | None = None) -> bool:
        """Whether a pattern names a metric, its family or its subject."""
        groups = (entry.family, entry.subject) if entry else ()
        return any(fnmatchcase(name, pattern) or pattern in groups for pattern in self.patterns)

    def _names_quantile(self, name: str) -> bool:
        """Whether a pattern names a quantile."""
        return self._names(name) or any(group in self.patterns for group in ("sketch", "quantiles"))

    def _with_options(self, metric: Any) -> Any:
        if isinstance(metric, LogLoss):
            return replace(metric, clip=self.clip)
        return replace(metric, threshold=self.aul_threshold) if isinstance(metric, Aul) else metric

    @property
    def _clustering(self) -> tuple[Any, ...]:
        usual = CLUSTERING_METRICS if self.usual else ()
        named = (m for pattern in self.patterns for m in _measures(pattern))
        asked = {m.name: m for m in (*usual, *named)}.values()
        return tuple(replace(m, assignment_cells=self.assignment_cells) if m.needs_matching else m for m in asked)


def _measures(pattern: str) -> tuple[Any, ...]:
    """Metrics of clusters against classes that a pattern names."""
    if pattern in ("classes", "clustering", "pairwise"):
        return tuple(row.metric for row in _clustering_rows() if pattern in (row.family, row.subject))
    glob = any(c in pattern for c in "*?[")
    return clustering_metrics([pattern]) if glob or names_measure(pattern) else ()


def _group(pattern: str, families: Iterable[str]) -> bool:
    """Whether a pattern is a family or a subject that there is input for."""
    return any(pattern in (entry.family, entry.subject) for entry in CATALOGUE if entry.family in families)


def _check_own(metric: Any, families: Iterable[str]) -> None:
    """Refuse a metric that has a name of the catalogue, or lacks its input."""
    if any(fnmatchcase(metric.name, _glob(entry.name)) for entry in CATALOGUE) or names_measure(metric.name):
        msg = f"metrics has an object named {metric.name!r}, a name of the catalogue; give it another name"
        raise OptionError(msg)
    if metric.family not in FAMILIES:
        msg = f"metric {metric.name!r} has the family {metric.family!r}; families are {', '.join(FAMILIES)}"
        raise OptionError(msg)
    if metric.family not in families:
        msg = f"metric {metric.name!r} needs {FAMILIES[metric.family]}: name one"
        raise OptionError(msg)
    try:
        hash(metric)
    except TypeError:
        msg = f"metric {metric.name!r} cannot be hashed; make it a frozen dataclass of plain values"
        raise OptionError(msg) from None


def _glob(name: str) -> str:
    """A catalogue name with its placeholder as a glob: ``agc@Q`` becomes ``agc@*``."""
    stem, at, option = name.partition("@")
    return stem + at + re.sub("[A-Z]", "*", option)


@lru_cache(maxsize=1)
def _clustering_rows() -> tuple[Entry, ...]:
    """A row for every name of clusters against classes; numeric variants are not enumerated."""
    return tuple(_clustering_row(metric) for metric in clustering_metrics(clustering_metric_names()))


def _clustering_row(m: ClusteringMetric) -> Entry:
    """The row of a metric of clusters against classes."""
    subject = "pairwise" if m.name.startswith("pairwise.") else "clustering"
    default = any(m.name == metric.name for metric in CLUSTERING_METRICS)
    return Entry(
        m.name, m.family, subject, default, m.low, m.high, m.better, m.meaning, m.source, m,
        scale=m.scale, no_interval=m.no_interval, units=("pairs",) if m.of_pairs else ("rows",),
    )  # fmt: skip


def entries(pattern: str | None = None) -> Iterator[Entry]:
    """Rows of the catalogue, or those whose name, family or subject a pattern names.

    Examples
    --------
    >>> [entry.name for entry in entries("agc*")][:2]
    ['agc', 'agc_ratio']
    >>> next(entries("vi_distance")).better
    'lower'
    """
    for entry in (*CATALOGUE, *_clustering_rows()):
        if pattern is None or any(fnmatchcase(text, pattern) for text in (entry.name, entry.family, entry.subject)):
            yield entry


@lru_cache(maxsize=1_000)
def entry_of(name: str) -> Entry | None:
    """The row of the catalogue that speaks of a metric; None for a user's own.

    Examples
    --------
    >>> [entry_of(name).name for name in ("roc_auc", "tpr@fpr=0.01", "assignment_score/m3/raw")]
    ['roc_auc', 'tpr@fpr=X', 'assignment_score/m3/raw']
    """
    for entry in CATALOGUE:
        if entry.name == name or ("@" in entry.name and fnmatchcase(name, _glob(entry.name))):
            return entry
    return _clustering_row(clustering_metric(name)) if names_measure(name) else None
