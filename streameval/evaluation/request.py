"""Request: what a call of `evaluate` asks for, checked; and the states and metrics that answer it.

Whatever can be refused without looking at the data is refused here, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from streameval.arguments import columns, number, numbers, texts, whole
from streameval.errors import OptionError, SchemaError
from streameval.metrics import GAIN, LIFT, RANKING
from streameval.metrics.clusters.lift import Aul
from streameval.metrics.contingency.assignment import ASSIGNMENT_CELLS
from streameval.metrics.contingency.finalize import asked_for
from streameval.metrics.scores.gain import truncated
from streameval.metrics.scores.operating_points import operating_points
from streameval.states.clusters.counts import ClusterSpec, id_type
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.labels import LabelSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streameval.evaluation.sampling import Sampling
    from streameval.metrics.protocol import Metric
    from streameval.scan import Scan

__all__ = ["MetricRequest", "Request"]

_CHOICES = {
    "nan": ("error", "drop", "half"),
    "nulls": ("error", "drop", "singleton"),
    "cluster_scope": ("global", "partition"),
    "on_error": ("raise", "skip"),
}


@dataclass(frozen=True)
class MetricRequest:
    """A state to build, the metrics of it, and what they are of.

    Attributes
    ----------
    group : ``score``, ``cluster``, ``sample`` or ``classes``
    of : the column
    spec : the state's spec
    metrics : the metrics
    """

    group: str
    of: str
    spec: Any
    metrics: tuple[Any, ...]

    def remade(self, spec: Any, metrics: tuple[Any, ...]) -> MetricRequest:
        """The same of another state."""
        return replace(self, spec=spec, metrics=metrics)


@dataclass(frozen=True)
class Request:
    """What to evaluate, and how.

    Attributes
    ----------
    label, weight, classes : columns
    scores, clusters : columns
    patterns : names and globs of metrics; none for all
    truncate, at : truncations of the gain curve, operating points
    assignment_cells : cells of the largest component in which the best matching is solved
    threshold : clusters larger than this count as if all positive
    nan, nulls, scope, on_error : policies
    approx : whether scores are counted in a histogram
    sampling : options of the approximate gain area, where it is asked for
    """

    label: LabelSpec
    scores: tuple[str, ...]
    clusters: tuple[str, ...]
    classes: str | None
    weight: str | None
    patterns: tuple[str, ...]
    truncate: tuple[float, ...]
    at: tuple[str, ...]
    threshold: float
    nan: str
    nulls: str
    scope: str
    on_error: str
    approx: bool
    sampling: Sampling | None
    assignment_cells: int

    def __post_init__(self) -> None:
        given = {"nan": self.nan, "nulls": self.nulls, "cluster_scope": self.scope, "on_error": self.on_error}
        for name, allowed in _CHOICES.items():
            if given[name] not in allowed:
                msg = f"{name}={given[name]!r} must be one of {', '.join(allowed)}"
                raise OptionError(msg)
        if not self.scores and not self.clusters:
            msg = "nothing to evaluate: name a score or a cluster column (--score, --cluster)"
            raise OptionError(msg)
        if self.classes is not None and not self.clusters:
            msg = f"classes={self.classes!r} is compared with clusters: name a cluster column (--cluster)"
            raise OptionError(msg)
        self._refuse_idle()
        self._refuse_unknown()

    def _refuse_idle(self) -> None:
        """Raise if an option is given that would change nothing."""
        if self.sampling and not self.scores:
            msg = "agc_approx is an area of a score: name a score column (--score)"
            raise OptionError(msg)
        of_scores = {"truncate": self.truncate, "at": self.at, "weight": self.weight, "nan": self.nan != "error"}
        of_clusters = {
            "threshold": self.threshold != 1,
            "cluster_scope": self.scope != "global",
            "nulls='singleton'": self.nulls == "singleton",  # drop is of labels, too
        }
        of_classes = {"assignment_cells": self.assignment_cells != ASSIGNMENT_CELLS}
        for options, there, kind, remedy in (
            (of_scores | {"approx": self.approx}, self.scores, "scores", "a score column (--score)"),
            (of_clusters, self.clusters, "clusters", "a cluster column (--cluster)"),
            (of_classes, self.classes, "classes", "a column of classes (--classes)"),
        ):
            idle = [name for name, given in options.items() if given and not there]
            if idle:
                msg = f"{' and '.join(idle)} would change nothing without {kind}: name {remedy}"
                raise OptionError(msg, *idle)

    def _refuse_unknown(self) -> None:
        """Raise if a pattern names no metric, or a truncation or an operating point is none."""
        known = [metric.name for metric in self._known]
        if self.classes is not None:
            asked_for(self.patterns, known)
            return
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in known):
                msg = f"no metric is named {pattern!r}; there are: {', '.join(known)}"
                if self.clusters:
                    msg += ", and with a class column (--classes) those of clusters against classes"
                raise OptionError(msg)

    @classmethod
    def checked(
        cls,
        *,
        label: str = "label",
        pos_label: bool | int | float | str | None = None,
        score: Any = None,
        cluster: Any = None,
        classes: str | None = None,
        weight: str | None = None,
        metrics: Any = None,
        truncate: Any = (),
        threshold: float = 1,
        at: Any = (),
        nan: str = "error",
        nulls: str = "error",
        cluster_scope: str = "global",
        on_error: str = "raise",
        approx: bool = False,
        sampling: Sampling | None = None,
        assignment_cells: int = ASSIGNMENT_CELLS,
    ) -> Request:
        """The request of these arguments, which are those of `streameval.evaluate`.

        Raises
        ------
        OptionError
            If an argument is not what it must be, or they do not go together.
        """
        named = columns(label=label, classes=classes, weight=weight)
        if named["label"] is None:
            msg = f"label={label!r} must be the name of a column"
            raise OptionError(msg)
        return cls(
            label=LabelSpec(named["label"], pos_label, nulls),
            scores=texts("score", score),
            clusters=texts("cluster", cluster),
            classes=named["classes"],
            weight=named["weight"],
            patterns=texts("metrics", metrics),
            truncate=numbers("truncate", truncate),
            at=texts("at", at),
            threshold=number("threshold", threshold, "a cluster size, a number of at least 0", 0),
            nan=nan,
            nulls=nulls,
            scope=cluster_scope,
            on_error=on_error,
            approx=approx,
            sampling=sampling,
            assignment_cells=whole("assignment_cells", assignment_cells, "a whole number of cells, at least 0", 0),
        )

    @property
    def columns(self) -> list[str]:
        """Columns to read, each once."""
        named = (self.label.column, *self.scores, *self.clusters, self.classes, self.weight)
        return list(dict.fromkeys(name for name in named if name))

    @property
    def _cuts(self) -> tuple[Metric, ...]:
        return truncated(self.truncate)

    @property
    def _points(self) -> tuple[Metric, ...]:
        return operating_points(self.at)

    @property
    def _areas(self) -> tuple[Metric, ...]:
        return self.sampling.metrics(self.truncate) if self.sampling else ()

    @property
    def _lift(self) -> tuple[Metric, ...]:
        return tuple(replace(m, threshold=self.threshold) if isinstance(m, Aul) else m for m in LIFT)

    @property
    def _known(self) -> tuple[Metric, ...]:
        """Every metric that a pattern may name, but those of classes."""
        known: list[Metric] = [*RANKING, *GAIN] if self.scores else []
        known += (*self._cuts, *self._points, *self._areas) if self.scores else ()
        return (*known, *(self._lift if self.clusters else ()))

    @property
    def of_scores(self) -> tuple[Metric, ...]:
        """Metrics of every score: those chosen, and truncations and operating points asked for by themselves."""
        cuts = self._chosen(self._cuts) if self._areas else self._cuts
        plain: tuple[Metric, ...] = (*RANKING, *GAIN)
        return tuple(dict.fromkeys((*self._chosen(plain), *cuts, *self._points)))

    @property
    def of_classes(self) -> tuple[Any, ...]:
        """Metrics of every cluster column against the class column."""
        if self.classes is None:
            return ()
        asked = asked_for(self.patterns, [metric.name for metric in self._known])
        return tuple(replace(metric, assignment_cells=self.assignment_cells) for metric in asked)

    def _chosen(self, metrics: Iterable[Metric]) -> tuple[Metric, ...]:
        """The metrics that a pattern names, or all."""
        return tuple(m for m in metrics if not self.patterns or any(fnmatchcase(m.name, p) for p in self.patterns))

    def wanted(self, found: Scan) -> list[MetricRequest]:
        """States to build and the metrics of each, classes last."""
        where = found.pieces[0].name
        scores = {name: _typed(score_type, found, name, where) for name in self.scores}
        named = (*self.clusters, *([self.classes] if self.classes else []))
        ids = {name: _typed(id_type, found, name, where) for name in named}
        if self.clusters and self.scope == "partition" and not all(piece.partition for piece in found.pieces):
            msg = "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
            raise OptionError(msg)
        if self.sampling:
            self.sampling.check(found, self.weight)
        return [*self._score_states(scores), *self._cluster_states(ids), *self._samples(scores), *self._tables(ids)]

    def _score_states(self, kinds: Mapping[str, str]) -> Iterator[MetricRequest]:
        """Exact counts of every score, or a histogram."""
        if self.of_scores or not self._areas:
            spec = HistogramSpec if self.approx else ScoreSpec
            for name, kind in kinds.items():
                yield MetricRequest("score", name, spec(name, kind, self.weight is not None, self.nan), self.of_scores)

    def _cluster_states(self, ids: Mapping[str, str]) -> Iterator[MetricRequest]:
        """Sizes of the clusters of every cluster column."""
        metrics = self._chosen(self._lift)
        if metrics or not self.of_classes:
            for name in self.clusters:
                yield MetricRequest("cluster", name, ClusterSpec(name, ids[name], self.scope, self.nulls), metrics)

    def _samples(self, kinds: Mapping[str, str]) -> Iterator[MetricRequest]:
        """A sample of every score, where its area is asked for."""
        if self.sampling:
            areas = self._chosen(self._areas) or self._areas
            for name, kind in kinds.items():
                yield MetricRequest("sample", name, self.sampling.spec(name, kind, self.nan), areas)

    def _tables(self, ids: Mapping[str, str]) -> Iterator[MetricRequest]:
        """The table of classes and clusters of every cluster column."""
        if self.classes is not None and self.of_classes:
            for name in self.clusters:
                options = self.scope, self.nulls
                spec = ContingencySpec(self.classes, name, ids[self.classes], ids[name], *options)
                yield MetricRequest("classes", name, spec, self.of_classes)


def _typed(kind: Callable[..., str], found: Scan, column: str, where: str) -> str:
    """The key type of a column; its error names a file that has it."""
    try:
        return kind(found.schema.field(column).type, column)
    except SchemaError as error:
        msg = f"{where}: {error}"
        raise SchemaError(msg) from None
