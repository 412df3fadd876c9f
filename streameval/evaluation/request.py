"""What a call of `evaluate` asks for, checked.

Whatever can be refused without looking at the data is refused here, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.arguments import columns, number, numbers, texts, whole
from streameval.errors import OptionError
from streameval.metrics.catalogue import Selection
from streameval.metrics.contingency.assignment import ASSIGNMENT_CELLS
from streameval.states.labels import LabelSpec

if TYPE_CHECKING:
    from streameval.evaluation.sampling import Sampling

__all__ = ["Request"]

_CHOICES = {
    "nan": ("error", "drop", "half"),
    "nulls": ("error", "drop", "singleton"),
    "cluster_scope": ("global", "partition"),
    "on_error": ("raise", "skip"),
}


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
        self.selection.check()

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
    def selection(self) -> Selection:
        """The metrics that are asked for."""
        there = {"score": self.scores, "cluster": self.clusters, "sample": self.sampling, "classes": self.classes}
        return Selection(
            tuple(family for family, columns in there.items() if columns),
            self.patterns,
            (),
            self.truncate,
            self.at,
            self.threshold,
            self.assignment_cells,
            self.sampling.quantiles if self.sampling else None,
        )
