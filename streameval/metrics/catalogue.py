"""The catalogue: a row of facts for every metric.

A metric is its class and its row here. The rows determine the defaults, the names that ``metrics=`` and ``--metric``
accept, the output of ``streameval metrics``, and the tests that run over every metric. Some rows stand for many names,
such as ``ece@B``: `made` constructs their metrics from the value in the name. The options `truncate` and `at` are
shorthands for some of them.

``metrics=`` also takes a user's own metric: a frozen dataclass with ``name``, ``family``, ``partial`` and ``combine``
(`streameval.metrics.protocol.UserMetric`). This one is the share of positives in the ten largest groups of equal score:

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
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from streameval.metrics.clusters import Aul, RocAucBySize
from streameval.metrics.contingency.clustering import (
    clustering_metric,
    clustering_metric_names,
    clustering_metrics,
    clustering_row,
    names_measure,
)
from streameval.metrics.curves import Quantile
from streameval.metrics.protocol import Entry, Metric
from streameval.metrics.scores.best_thresholds import CostMin, FbetaMax
from streameval.metrics.scores.calibration import CalibrationError, Corp, CumulativeError, MeanBias
from streameval.metrics.scores.gain import Agc, AgcApprox
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.ranking import (
    AveragePrecision,
    DeLong,
    Gini,
    KolmogorovSmirnov,
    MaxInformedness,
    PartialAuc,
    PrAuc,
    RocAuc,
)
from streameval.metrics.scores.recalibration import Recalibration
from streameval.metrics.scores.scoring_rules import BrierScore, LogLoss
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Iterator


FAMILIES = {
    "score": "a score column",
    "cluster": "a cluster column",
    "sample": "a sampled score column",
    "classes": "a cluster column against the class column",
    "sketch": "a column of numbers to sketch",
}


def _expected(bins: float, *, equal_count: bool = False) -> CalibrationError:
    """``ece@B`` or ``ece@B/equal_count``."""
    name = f"ece@{format_number(bins)}{'/equal_count' if equal_count else ''}"
    return CalibrationError(int(bins) if bins % 1 == 0 else bins, equal_count, name=name)  # type: ignore[arg-type]  # CalibrationError refuses a fraction


_ECE = "Naeini, Cooper and Hauskrecht 2015"
_ECCE = "Arrieta-Ibarra et al. 2022"
_CORP = "Dimitriadis, Gneiting and Jordan 2021"
_COX = "Cox 1958"
_SAMPLE = "its replicates are those of agc of all rows: evaluate that as well (--metric agc)"
_QUANTILES = {"quantiles": "quantiles"}
_BIASED = "it is biased where scores are calibrated, so that no interval around it covers the truth"


def _score(
    name: str, subject: str, better: str | None, meaning: str, source: str, metric: Metric | None = None,
    *, default: bool = False, low: float = 0, high: float = 1, **facts: Any,
) -> Entry:  # fmt: skip
    """A row of a metric of a score."""
    return Entry(name, "score", subject, default, low, high, better, meaning, source, metric, **facts)


def _point(name: str, better: str | None, meaning: str, source: str, beyond: str, **facts: Any) -> Entry:
    """A row of an operating point: ``tpr@fpr=X`` is the measure `tpr` at a bound of `fpr`, ``lift@Q`` at a share."""
    measure, _, bound = name.partition("@")
    kind = bound.partition("=")[0] if "=" in bound else "share"
    made = partial(OperatingPoint, kind, measure=measure)
    facts |= {"made": made, "beyond": beyond, "thresholded": kind != "threshold"}
    return _score(name, "thresholds", better, meaning, source, **facts)


CATALOGUE: tuple[Entry, ...] = (
    _score("roc_auc", "ranking", "higher",
          "Share of (positive, negative) pairs in which the positive scores higher; a tie counts one half.",
          "Hanley and McNeil 1982", RocAuc(), default=True, rowwise=DeLong(), needs="ranks"),
    _score("average_precision", "ranking", "higher",
          "Mean precision at the positives, without interpolation; too high on average where they are few.",
          "scikit-learn", AveragePrecision(), default=True, needs="ranks"),
    _score("pr_auc", "ranking", "higher", "Area under the precision-recall curve by the trapezoid rule; optimistic.",
          "Davis and Goadrich 2006", PrAuc(), default=True),
    _score("max_informedness", "ranking", "higher",
          "Largest true positive rate minus false positive rate over all thresholds.", "Youden 1950", MaxInformedness(),
          default=True, useless=lambda *_: 0.0),
    _score("ks", "ranking", "higher",
          "Largest difference of true and false positive rate over all thresholds, of either sign.",
          "Kolmogorov-Smirnov", KolmogorovSmirnov(), useless=lambda *_: 0.0),
    _score("agc", "gain", "higher", "Area under the gain curve, 0 for a random order and 1 for a perfect one.",
          "Théberge, agc", Agc(1), default=True, low=-1, scale="fisher", rowwise=DeLong(2)),
    _score("agc_ratio", "gain", "higher", "Area under the gain curve as a share of the perfect one's.", "Théberge, agc",
          Agc(1, ratio=True), default=True),
    _score("agc@Q", "gain", "higher",
          "agc of the top Q of the points, counted without weights: a share, or a number above 1 (--truncate Q).",
          "Théberge, agc", low=-math.inf, made=Agc, scale="log_complement"),
    _score("agc_ratio@Q", "gain", "higher",
          "agc_ratio of the top Q of the points, counted without weights (--truncate Q).", "Théberge, agc",
          made=partial(Agc, ratio=True)),
    _score("gini", "ranking", "higher", "Gini coefficient of the ROC curve, 2·AUC − 1.", "2·AUC − 1", Gini(), low=-1,
          scale="fisher", rowwise=DeLong(2), needs="ranks"),
    _score("partial_auc@F", "ranking", "higher",
          "ROC AUC up to a false positive rate of F, standardised: ½ for a random order, 1 for a perfect one.",
          "McClish 1989", made=PartialAuc),
    _point("tpr@fpr=X", "higher", "Largest true positive rate at a false positive rate of at most X (--at fpr=X).",
          "ROC curve", "negatives"),
    _point("fpr@tpr=X", "lower", "Smallest false positive rate at a true positive rate of at least X (--at tpr=X).",
          "ROC curve", "positives"),
    _point("precision@recall=X", "higher", "Largest precision at a recall of at least X (--at recall=X).",
          "precision-recall curve", "positives"),
    _point("recall@precision=X", "higher", "Largest recall at a precision of at least X (--at precision=X).",
          "precision-recall curve", "rows"),
    _point("precision@k=N", "higher", "Precision among the N points that score highest, ties included (--at k=N).",
          "precision-recall curve", "rows"),
    _point("recall@k=N", "higher", "Recall of the N points that score highest, ties included.",
          "precision-recall curve", "rows"),
    _point("precision@share=Q", "higher",
          "Precision among the share Q of the points that score highest, ties included (--at share=Q).",
          "precision-recall curve", "rows"),
    _point("recall@share=Q", "higher",
          "Recall of the share Q of the points that score highest, ties included (--at share=Q).", "gain curve",
          "rows"),
    _point("lift@Q", "higher",
          "Precision among the share Q of the points that score highest, over the share of positives (--at share=Q).",
          "gain curve", "rows", high=math.inf, scale="log"),
    _point("precision@threshold=T", "higher", "Precision of the points that score at least T (--at threshold=T).",
          "2×2 table", "rows"),
    _point("recall@threshold=T", "higher", "Recall of the points that score at least T (--at threshold=T).",
          "2×2 table", "positives"),
    _point("fpr@threshold=T", "lower", "False positive rate of the points that score at least T (--at threshold=T).",
          "2×2 table", "negatives"),
    _point("flagged@threshold=T", None, "Share of the points that score at least T (--at threshold=T).", "2×2 table",
          "rows"),
    _score("f1_max", "thresholds", "higher",
          "Largest F1 over all thresholds; too high on average where positives are few.", "van Rijsbergen 1979",
          FbetaMax(), thresholded=True, beyond="rows"),
    _score("fbeta_max@B", "thresholds", "higher", "Largest F-measure with weight B of recall over all thresholds.",
          "van Rijsbergen 1979", made=FbetaMax, thresholded=True, beyond="rows"),
    _score("cost_min@fp=X,fn=Y", "thresholds", "lower",
          "Least expected cost of a point, where a false alarm costs X and a miss Y.", "expected cost", high=math.inf,
          made=CostMin, scale="log", useless=CostMin.of_flagging_all_or_nothing),
    _score("brier_score", "calibration", "lower", "Mean squared difference of score and label.", "Brier 1950",
          BrierScore()),
    _score("log_loss", "calibration", "lower", "Mean negative log likelihood of the labels, in nats (--clip).",
          "Good 1952", LogLoss(), high=math.inf, scale="log", options={"clip": "clip"}),
    _score("ece", "calibration", "lower", "Mean distance of score and share of positives over ten bins of equal width.",
          _ECE, CalibrationError(), no_interval=_BIASED),
    _score("ece@B", "calibration", "lower", "ece over B bins of equal width.", _ECE, made=_expected,
          no_interval=_BIASED),
    _score("ece@B/equal_count", "calibration", "lower", "ece over B bins of equal count; ties share a bin.", _ECE,
          made=partial(_expected, equal_count=True), no_interval=_BIASED),
    _score("mce", "calibration", "lower",
          "Largest distance of score and share of positives over ten bins of equal width.", _ECE,
          CalibrationError(largest=True, name="mce"), no_interval=_BIASED),
    _score("ecce_mad", "calibration", "lower", "Largest cumulative difference of labels and scores, without bins.",
          _ECCE, CumulativeError(), no_interval=_BIASED),
    _score("ecce_range", "calibration", "lower",
          "Range of the cumulative difference of labels and scores, without bins.", _ECCE, CumulativeError(reach=True),
          no_interval=_BIASED),
    _score("corp.mcb", "calibration", "lower", "Miscalibration: decrease of the Brier score by isotonic recalibration.",
          _CORP, Corp("mcb"), no_interval=_BIASED),
    _score("corp.dsc", "calibration", "higher",
          "Discrimination: uncertainty less the Brier score after isotonic recalibration.", _CORP, Corp("dsc"),
          high=0.25, scale="plain"),
    _score("corp.unc", "calibration", None, "Uncertainty: the Brier score of the share of positives.", _CORP,
          Corp("unc"), high=0.25, scale="plain"),
    _score("calibration_bias", "calibration", None,
          "Mean score less the share of positives: above 0 scores are too high on average.", "Van Calster 2016",
          MeanBias(), low=-1, scale="plain"),
    _score("calibration_slope", "calibration", None,
          "Slope of a logistic recalibration: 1 is perfect, below 1 scores are too extreme.", _COX,
          Recalibration("calibration_slope", slope=True), low=-math.inf, high=math.inf, scale="plain"),
    _score("calibration_intercept", "calibration", None, "Intercept fitted together with the slope: 0 is perfect.",
          _COX, Recalibration("calibration_intercept"), low=-math.inf, high=math.inf, scale="plain"),
    _score("calibration_in_the_large", "calibration", None,
          "Intercept with slope 1: above 0 scores are too low on average.", _COX,
          Recalibration("calibration_in_the_large", joint=False), low=-math.inf, high=math.inf, scale="plain"),
    Entry("agc_approx", "sample", "gain", False, -1, 1, "higher", "agc of a sample in quantile bins (--approx-agc).",
          "Théberge, agc", no_interval=_SAMPLE, options=_QUANTILES, of_all_rows=AgcApprox.estimates),
    Entry("agc_approx@Q", "sample", "gain", False, -math.inf, 1, "higher",
          "agc@Q of a sample in quantile bins (--approx-agc --truncate Q).", "Théberge, agc", made=AgcApprox,
          no_interval=_SAMPLE, options=_QUANTILES, of_all_rows=AgcApprox.estimates),
    Entry("aul", "cluster", "lift", True, 0, 1, "higher",
          "Area under the lift curve of clusters from the largest to the smallest.", "Scherbakov, clustering-metrics",
          Aul(), options={"aul_threshold": "threshold"}),
    Entry("roc_auc_by_size", "cluster", "lift", True, 0, 1, "higher",
          "ROC AUC with the size of its cluster as a row's score.", "Hanley and McNeil 1982", RocAucBySize()),
    Entry("quantile@X", "sketch", "quantiles", True, -math.inf, math.inf, None,
          "Estimated X-quantile of a column of numbers (--sketch COLUMN).", "Dunning and Ertl 2019",
          made=Quantile, no_interval="a sketch keeps no blocks"),
)  # fmt: skip


def glob_of(name: str) -> str:
    """A catalogue name with its placeholder as a glob: ``agc@Q`` becomes ``agc@*``."""
    stem, at, option = name.partition("@")
    return stem + at + re.sub("[A-Z]", "*", option)


@lru_cache(maxsize=1)
def clustering_rows() -> tuple[Entry, ...]:
    """A row for every name of clusters against classes; numeric variants are not enumerated."""
    return tuple(map(clustering_row, clustering_metrics(clustering_metric_names())))


def entries(pattern: str | None = None) -> Iterator[Entry]:
    """Rows of the catalogue; with a pattern, those whose name, family or subject matches it.

    Examples
    --------
    >>> [entry.name for entry in entries("agc*")][:2]
    ['agc', 'agc_ratio']
    >>> next(entries("vi_distance")).better
    'lower'
    """
    for entry in (*CATALOGUE, *clustering_rows()):
        if pattern is None or any(fnmatchcase(text, pattern) for text in (entry.name, entry.family, entry.subject)):
            yield entry


def usual(family: str) -> str:
    """The metric used for ``score`` or ``cluster`` where none is named: the first default metric of the family.

    Examples
    --------
    >>> usual("cluster")
    'aul'
    """
    return next(entry.name for entry in CATALOGUE if entry.family == family and entry.default)


def at_one_place(metric: Metric, rows: int = 1) -> bool:
    """Whether one place of the ranking decides a metric of some rows, which then uses fewer blocks and finer bins.

    >>> [at_one_place(metric) for metric in (RocAuc(), Agc(0.1), FbetaMax())]
    [False, True, True]
    """
    entry = entry_of(metric.name)
    if entry is not None and entry.of_all_rows is not None:
        metric = entry.of_all_rows(metric)
    return metric.points(rows) is not None or (entry is not None and bool(entry.beyond))


@lru_cache(maxsize=1_000)
def entry_of(name: str) -> Entry | None:
    """The row of a metric in the catalogue; None for a user-defined metric.

    Examples
    --------
    >>> [entry_of(name).name for name in ("roc_auc", "tpr@fpr=0.01", "assignment_score/m3/raw")]
    ['roc_auc', 'tpr@fpr=X', 'assignment_score/m3/raw']
    """
    for entry in CATALOGUE:
        if entry.name == name or ("@" in entry.name and fnmatchcase(name, glob_of(entry.name))):
            return entry
    return clustering_row(clustering_metric(name)) if names_measure(name) else None
