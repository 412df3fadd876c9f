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
from typing import TYPE_CHECKING

from streameval.metrics.clusters.lift import Aul, RocAucBySize
from streameval.metrics.contingency.clustering import (
    CLUSTERING_METRICS,
    ClusteringMetric,
    clustering_metric,
    clustering_metric_names,
    clustering_metrics,
    names_measure,
)
from streameval.metrics.protocol import Entry
from streameval.metrics.scores.best_thresholds import CostMin, FbetaMax
from streameval.metrics.scores.calibration.cumulative import CumulativeError, MeanBias
from streameval.metrics.scores.calibration.isotonic import Corp
from streameval.metrics.scores.calibration.recalibration import Recalibration
from streameval.metrics.scores.calibration.reliability import CalibrationError
from streameval.metrics.scores.calibration.scoring import BrierScore, LogLoss
from streameval.metrics.scores.gain import Agc
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.ranking import (
    AveragePrecision,
    Gini,
    KolmogorovSmirnov,
    MaxInformedness,
    PartialAuc,
    PrAuc,
    RocAuc,
)
from streameval.metrics.scores.sampled_gain import AgcApprox
from streameval.metrics.scores.sampling.delong import DeLong
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
CATALOGUE: tuple[Entry, ...] = (
    Entry("roc_auc", "score", "ranking", True, 0, 1, "higher",
          "Share of (positive, negative) pairs in which the positive scores higher; a tie counts one half.",
          "Hanley and McNeil 1982", RocAuc(), rowwise=DeLong(), needs="ranks"),
    Entry("average_precision", "score", "ranking", True, 0, 1, "higher",
          "Mean precision at the positives, without interpolation.", "scikit-learn", AveragePrecision(),
          needs="ranks"),
    Entry("pr_auc", "score", "ranking", True, 0, 1, "higher",
          "Area under the precision-recall curve by the trapezoid rule; optimistic.", "Davis and Goadrich 2006",
          PrAuc(), needs="areas"),
    Entry("max_informedness", "score", "ranking", True, 0, 1, "higher",
          "Largest true positive rate minus false positive rate over all thresholds.", "Youden 1950",
          MaxInformedness(), useless=lambda *_: 0.0),
    Entry("ks", "score", "ranking", False, 0, 1, "higher",
          "Largest difference of true and false positive rate over all thresholds, of either sign.",
          "Kolmogorov-Smirnov", KolmogorovSmirnov(), useless=lambda *_: 0.0),
    Entry("agc", "score", "gain", True, -1, 1, "higher",
          "Area under the gain curve, 0 for a random order and 1 for a perfect one.", "Théberge, agc", Agc(1),
          scale="fisher", rowwise=DeLong(2), needs="areas"),
    Entry("agc_ratio", "score", "gain", True, 0, 1, "higher",
          "Area under the gain curve as a share of the perfect one's.", "Théberge, agc", Agc(1, ratio=True),
          needs="areas"),
    Entry("agc@Q", "score", "gain", False, -math.inf, 1, "higher",
          "agc of the top Q of the points: a share, or a number above 1 (--truncate Q).", "Théberge, agc",
          made=Agc, scale="log_complement"),
    Entry("agc_ratio@Q", "score", "gain", False, 0, 1, "higher",
          "agc_ratio of the top Q of the points (--truncate Q).", "Théberge, agc", made=partial(Agc, ratio=True)),
    Entry("gini", "score", "ranking", False, -1, 1, "higher",
          "Gini coefficient of the ROC curve, 2·AUC − 1.", "2·AUC − 1", Gini(),
          scale="fisher", rowwise=DeLong(2), needs="ranks"),
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
          "Precision among the N points that score highest, ties included (--at k=N).", "precision-recall curve",
          made=partial(OperatingPoint, "k"),
          thresholded=True, beyond="rows"),
    Entry("recall@k=N", "score", "thresholds", False, 0, 1, "higher",
          "Recall of the N points that score highest, ties included.", "precision-recall curve",
          made=partial(OperatingPoint, "k", measure="recall"),
          thresholded=True, beyond="rows"),
    Entry("precision@share=Q", "score", "thresholds", False, 0, 1, "higher",
          "Precision among the share Q of the points that score highest, ties included (--at share=Q).",
          "precision-recall curve", made=partial(OperatingPoint, "share"),
          thresholded=True, beyond="rows"),
    Entry("recall@share=Q", "score", "thresholds", False, 0, 1, "higher",
          "Recall of the share Q of the points that score highest, ties included (--at share=Q).", "gain curve",
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
          scale="log", useless=CostMin.of_flagging_all_or_nothing),
    Entry("brier_score", "score", "calibration", False, 0, 1, "lower",
          "Mean squared difference of score and label.", "Brier 1950", BrierScore()),
    Entry("log_loss", "score", "calibration", False, 0, math.inf, "lower",
          "Mean negative log likelihood of the labels, in nats (--clip).", "Good 1952", LogLoss(),
          scale="log", options={"clip": "clip"}),
    Entry("ece", "score", "calibration", False, 0, 1, "lower",
          "Mean distance of score and share of positives over ten bins of equal width.", _ECE, CalibrationError(),
          no_interval=_BIASED),
    Entry("ece@B", "score", "calibration", False, 0, 1, "lower",
          "ece over B bins of equal width.", _ECE, made=_expected,
          no_interval=_BIASED),
    Entry("ece@B/equal_count", "score", "calibration", False, 0, 1, "lower",
          "ece over B bins of equal count; ties share a bin.", _ECE, made=partial(_expected, equal_count=True),
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
          "Miscalibration: decrease of the Brier score by isotonic recalibration.", _CORP, Corp("mcb"),
          no_interval=_BIASED),
    Entry("corp.dsc", "score", "calibration", False, 0, 0.25, "higher",
          "Discrimination: uncertainty less the Brier score after isotonic recalibration.", _CORP, Corp("dsc"),
          scale="plain"),
    Entry("corp.unc", "score", "calibration", False, 0, 0.25, None,
          "Uncertainty: the Brier score of the share of positives.", _CORP, Corp("unc"),
          scale="plain"),
    Entry("calibration_bias", "score", "calibration", False, -1, 1, None,
          "Mean score less the share of positives: above 0 scores are too high on average.", "Van Calster 2016",
          MeanBias(),
          scale="plain"),
    Entry("calibration_slope", "score", "calibration", False, -math.inf, math.inf, None,
          "Slope of a logistic recalibration: 1 is perfect, below 1 scores are too extreme.", _COX,
          Recalibration("calibration_slope", slope=True),
          scale="plain"),
    Entry("calibration_intercept", "score", "calibration", False, -math.inf, math.inf, None,
          "Intercept fitted together with the slope: 0 is perfect.", _COX, Recalibration("calibration_intercept"),
          scale="plain"),
    Entry("calibration_in_the_large", "score", "calibration", False, -math.inf, math.inf, None,
          "Intercept with slope 1: above 0 scores are too low on average.", _COX,
          Recalibration("calibration_in_the_large", joint=False),
          scale="plain"),
    Entry("agc_approx", "sample", "gain", False, -1, 1, "higher",
          "agc of a sample in quantile bins (--approx-agc).", "Théberge, agc",
          no_interval=_SAMPLE, options=_QUANTILES, of_all_rows=AgcApprox.estimates),
    Entry("agc_approx@Q", "sample", "gain", False, -math.inf, 1, "higher",
          "agc@Q of a sample in quantile bins (--approx-agc --truncate Q).", "Théberge, agc", made=AgcApprox,
          no_interval=_SAMPLE, options=_QUANTILES, of_all_rows=AgcApprox.estimates),
    Entry("aul", "cluster", "lift", True, 0, 1, "higher",
          "Area under the lift curve of clusters from the largest to the smallest.",
          "Scherbakov, clustering-metrics", Aul(), options={"aul_threshold": "threshold"}),
    Entry("roc_auc_by_size", "cluster", "lift", True, 0, 1, "higher",
          "ROC AUC with the size of its cluster as a row's score.", "Hanley and McNeil 1982", RocAucBySize()),
    Entry("quantile@X", "sketch", "quantiles", True, -math.inf, math.inf, None,
          "Estimated X-quantile of a column of numbers (--sketch COLUMN).", "Dunning and Ertl 2019",
          no_interval="a sketch keeps no blocks"),
)  # fmt: skip


def glob_of(name: str) -> str:
    """A catalogue name with its placeholder as a glob: ``agc@Q`` becomes ``agc@*``."""
    stem, at, option = name.partition("@")
    return stem + at + re.sub("[A-Z]", "*", option)


@lru_cache(maxsize=1)
def clustering_rows() -> tuple[Entry, ...]:
    """A row for every name of clusters against classes; numeric variants are not enumerated."""
    return tuple(_clustering_row(metric) for metric in clustering_metrics(clustering_metric_names()))


def _clustering_row(m: ClusteringMetric) -> Entry:
    """The row of a metric of clusters against classes."""
    subject = "pairwise" if m.name.startswith("pairwise.") else "clustering"
    default = any(m.name == metric.name for metric in CLUSTERING_METRICS)
    return Entry(
        m.name, m.family, subject, default, m.low, m.high, m.better, m.meaning, m.source, m,
        scale=m.scale, no_interval=m.no_interval, units=("pairs",) if m.of_pairs else ("rows",), options=m.options,
    )  # fmt: skip


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
    return _clustering_row(clustering_metric(name)) if names_measure(name) else None
