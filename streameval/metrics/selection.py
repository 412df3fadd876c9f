"""The metrics that a request selects from the catalogue, with their options."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streameval.errors import OptionError
from streameval.metrics.catalogue import CATALOGUE, FAMILIES, clustering_rows, entry_of, glob_of
from streameval.metrics.contingency.assignment import ASSIGNMENT_CELLS
from streameval.metrics.contingency.clustering import (
    CLUSTERING_METRICS,
    ClusteringMetric,
    clustering_metric_names,
    clustering_metrics,
    names_measure,
)
from streameval.metrics.curves import LEVELS, Quantile
from streameval.metrics.scores.gain import approximations, truncate_areas
from streameval.metrics.scores.operating_points import operating_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.metrics.protocol import Entry, Metric, UserMetric

M = TypeVar("M", bound="Metric")

_INPUTS = {
    "score": "name one (--score)",
    "cluster": "name one (--cluster)",
    "classes": "name both (--cluster, --classes)",
    "sample": "set approx_agc=True (--approx-agc)",
    "sketch": "name one (--sketch)",
}

_AT_THRESHOLD = "--at threshold=0.5 (at='threshold=0.5'; operating_points() has precision, recall, F1 and MCC)"
_MEANT = {  # names of other libraries, without spaces, hyphens, underscores and "score" at the end
    **dict.fromkeys(("auc", "auroc", "rocauc", "cstatistic", "concordance"), "roc_auc"),
    **dict.fromkeys(("ap", "map", "auprc", "aupr", "averageprecision"), "average_precision"),
    **dict.fromkeys(("prauc", "aucpr"), "pr_auc"),
    **dict.fromkeys(("f1", "fscore", "fmeasure"), f"'f1_max' or {_AT_THRESHOLD}"),
    **dict.fromkeys(("mcc", "accuracy", "acc", "balancedaccuracy", "specificity", "sensitivity"), _AT_THRESHOLD),
    **dict.fromkeys(("brier", "brierloss"), "brier_score"),
    **dict.fromkeys(("logloss", "crossentropy", "nll"), "log_loss"),
    **dict.fromkeys(("ari", "adjustedrand"), "adjusted_rand_index"),
    **dict.fromkeys(("ami", "nmi", "adjustedmutualinfo"), "adjusted_mutual_info"),
    **dict.fromkeys(("fmi", "fowlkesmallows"), "fowlkes_mallows"),
    **dict.fromkeys(("ks", "kstest", "kolmogorovsmirnov"), "ks"),
}


def meant_by(name: str) -> str:
    """What the name of a metric elsewhere stands for here; empty if it is not known.

    Examples
    --------
    >>> meant_by("AUC"), meant_by("x")
    ('roc_auc', '')
    """
    return _MEANT.get(re.sub(r"[\s_-]|score$", "", name.lower()), "")


@dataclass(frozen=True)
class Selection:
    """The requested metrics, and their options.

    Attributes
    ----------
    families : families that there is input for
    patterns : names, globs, families and subjects; ``default`` for those computed by default; only these if empty
    own : the user's own metrics
    truncate, at, aul_threshold, assignment_cells : as `streameval.evaluate`
    quantiles : bins of ``agc_approx``; None if it was not requested
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
            metrics = (*(CLUSTERING_METRICS if self.usual else ()), *(m for p in self.patterns for m in _measures(p)))
            return (*map(self._with_options, {metric.name: metric for metric in metrics}.values()), *own)
        if family == "sketch":
            levels = tuple(map(Quantile, LEVELS))
            named = [metric for metric in levels if self._names(metric.name, entry_of(metric.name))]
            return tuple(dict.fromkeys((*([*named, *self._named(self.patterns, (family,))] or levels), *own)))
        rows = (entry for entry in CATALOGUE if entry.family == family and entry.metric)
        rows = (e for e in rows if (e.default and self.usual) or (self.narrowed and self._names(e.name, e)))
        picked = [self._with_options(entry.metric) for entry in rows]
        if family == "score":
            cuts = truncate_areas(self.truncate)
            picked += [m for m in cuts if not (self.quantiles and self.patterns) or self._names(m.name)]
            picked += [*operating_points(self.at), *self._named(self.patterns, (family,))]
        if family == "sample":
            picked = [m for m in self._areas if not self.patterns or self._names(m.name)]
            picked = [*picked, *self._named(self.patterns, (family,))] or list(self._areas)
        return tuple(dict.fromkeys((*picked, *own)))

    def behind(self, family: str) -> tuple[Metric, ...]:
        """The metrics of a family that are not requested, but whose replicates give requested ones their intervals.

        Examples
        --------
        >>> selection = Selection(("score", "sample"), ("agc_approx",), quantiles=100)
        >>> [metric.name for metric in selection.behind("score")]
        ['agc']
        """
        own, sources = self.of(family), (of_all_rows(metric) for other in self.families for metric in self.of(other))
        further = dict.fromkeys(metric for metric in sources if metric is not None and metric not in own)
        return tuple(metric for metric in further if (entry := entry_of(metric.name)) and entry.family == family)

    def check(self) -> None:
        """Raise `OptionError` if a pattern matches no metric, or an operating point or a user's metric is invalid."""
        operating_points(self.at)
        for metric in self.own:
            _check_own(metric, self.families)
        for pattern in self.patterns:
            if not self._is_known(pattern):
                self._refuse(pattern)
        if self.clip is not None and not any("clip" in _options(metric) for metric in self.of("score")):
            raise OptionError(
                f"clip={self.clip:g} would change nothing without log_loss: add it to metrics (--metric log_loss)",
                "clip",
            )

    def _is_known(self, pattern: str) -> bool:
        """Whether a pattern names metrics that there is input for."""
        return (
            pattern == "default"
            or any(fnmatchcase(name, pattern) for name in self._plain_names)
            or any(pattern in (entry.family, entry.subject) for entry in CATALOGUE if entry.family in self.families)
            or ("classes" in self.families and bool(_measures(pattern)))
            or bool(self._named((pattern,), self.families))
        )

    def _refuse(self, pattern: str) -> None:
        """Raise `OptionError` for a pattern that matches no metric, with what was likely meant."""
        meant = meant_by(pattern)
        name = pattern if not meant or " " in meant or self._is_known(meant) else meant
        for family, remedy in _INPUTS.items():
            others = ("score", family) if family == "sample" else (family,)
            if family not in self.families and replace(self, families=others, quantiles=1)._is_known(name):  # noqa: SLF001 - of the same class
                called = repr(pattern) if name == pattern else f"{pattern!r} ({name})"
                raise OptionError(f"metric {called} needs {FAMILIES[family]}: {remedy}")
        if "," in pattern and all(self._is_known(name.strip()) for name in pattern.split(",")):
            raise OptionError(f"no metric is named {pattern!r}; name each by a --metric, or give a list (metrics=[…])")
        rows = (*CATALOGUE, *(clustering_rows() if "classes" in self.families else ()))
        groups = list(dict.fromkeys(row.subject for row in rows if row.family in self.families))
        more = (name.split(".")[0] for name in clustering_metric_names()) if "classes" in self.families else ()
        names = list(dict.fromkeys((*self._plain_names, *more)))
        forms = [entry.name for entry in CATALOGUE if entry.made and entry.family in self.families]
        near = [form for form in forms if form.partition("@")[0] == pattern.partition("@")[0]]
        if meant in names or "--at" in meant:
            near = [meant if "--at" in meant else repr(meant)]
        if not near:
            globs = [f"{pattern}.*"] if any(name.startswith(f"{pattern}.") for name in names) else []
            near = [repr(name) for name in globs or get_close_matches(pattern, [*names, *groups], 1)]
        hint = f"; did you mean {' or '.join(near)}? There" if near else "; there"
        msg = f"no metric is named {pattern!r}{hint} are: {', '.join(names)}"
        if "cluster" in self.families and "classes" not in self.families:
            msg += ", and with a class column (--classes) those of clusters against classes"
        elif "classes" in self.families:
            msg += ", and variants such as assignment_score/m3/raw"
        raise OptionError(f"{msg}; groups are {', '.join(groups)}")

    def _named(self, patterns: Iterable[str], families: Sequence[str]) -> tuple[Metric, ...]:
        """Metrics of these families whose names hold a value, such as ``ece@20``."""
        rows = [entry for entry in CATALOGUE if entry.made and entry.family in families]
        metrics = (entry.named(pattern) for pattern in patterns for entry in rows)
        return tuple(self._with_options(metric) for metric in metrics if metric is not None)

    @property
    def _plain_names(self) -> tuple[str, ...]:
        """Names that there is input for, but those of the class column."""
        metrics: tuple[Metric, ...] = ()
        if "score" in self.families:
            metrics = (*truncate_areas(self.truncate), *operating_points(self.at), *self._areas)
        if "sketch" in self.families:
            metrics += tuple(map(Quantile, LEVELS))
        fixed = [entry.name for entry in CATALOGUE if entry.metric is not None and entry.family in self.families]
        return (*fixed, *(metric.name for metric in metrics))

    @property
    def _areas(self) -> tuple[Metric, ...]:
        return approximations(self.truncate, self.quantiles) if self.quantiles else ()

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

    def _with_options(self, metric: M) -> M:
        """The metric with the options that it takes; those not given leave its defaults."""
        values = {field: getattr(self, option) for option, field in _options(metric).items()}
        values = {field: value for field, value in values.items() if value is not None}
        return cast("M", replace(cast("Any", metric), **values)) if values else metric


def _options(metric: Metric) -> Mapping[str, str]:
    """The fields that options set, by option; a user's own metric has none."""
    entry = entry_of(metric.name)
    return entry.options if entry else {}


def of_all_rows(metric: Metric) -> Metric | None:
    """The metric of all rows that a metric of a sample estimates; None for other metrics."""
    entry = entry_of(metric.name)
    return entry.of_all_rows(metric) if entry and entry.of_all_rows else None


def _measures(pattern: str) -> tuple[ClusteringMetric, ...]:
    """Metrics of clusters against classes that a pattern names."""
    if pattern in ("classes", "clustering", "pairwise"):
        return tuple(row.metric for row in clustering_rows() if pattern in (row.family, row.subject))
    glob = any(c in pattern for c in "*?[")
    return clustering_metrics([pattern]) if glob or names_measure(pattern) else ()


def _check_own(metric: UserMetric, families: Iterable[str]) -> None:
    """Refuse a metric that has a name of the catalogue, or lacks its input."""
    if any(fnmatchcase(metric.name, glob_of(entry.name)) for entry in CATALOGUE) or names_measure(metric.name):
        raise OptionError(f"metrics has an object named {metric.name!r}, a name of the catalogue; give it another name")
    if metric.family not in FAMILIES:
        raise OptionError(
            f"metric {metric.name!r} has the family {metric.family!r}; families are {', '.join(FAMILIES)}"
        )
    if metric.family not in families:
        raise OptionError(f"metric {metric.name!r} needs {FAMILIES[metric.family]}: name one")
    try:
        hash(metric)
    except TypeError:
        raise OptionError(
            f"metric {metric.name!r} cannot be hashed; make it a frozen dataclass of plain values"
        ) from None
