"""What a call of `evaluate` asks for, checked.

Whatever can be refused without looking at the data is refused here, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from streameval.evaluation.sampling import Sampling
from streameval.metrics.catalogue import Selection
from streameval.options import checked
from streameval.states.labels import LabelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Request"]


@dataclass(frozen=True)
class Request:
    """What to evaluate, and how.

    Attributes
    ----------
    options : every option of `streameval.evaluate` by its name, in plain form
    label : how labels are read
    scores, clusters, sketches : columns
    classes, weight : columns, where they are asked for
    nan, nulls, scope : policies
    approx : whether scores are counted in a histogram
    sampling : options of the approximate gain area, where it is asked for
    selection : the metrics that are asked for
    """

    options: Mapping[str, Any]
    label: LabelSpec
    scores: tuple[str, ...]
    clusters: tuple[str, ...]
    sketches: tuple[str, ...]
    classes: str | None
    weight: str | None
    nan: str
    nulls: str
    scope: str
    approx: bool
    sampling: Sampling | None
    selection: Selection

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> Request:
        """The request of these options of `streameval.evaluate`; those not given have their defaults.

        Raises
        ------
        OptionError
            If an option has a value that it does not take, options do not go together, or no metric has a name that
            is asked for.
        """
        options = checked(given)
        drawn = Sampling(**{field.name: options[field.name] for field in fields(Sampling)})
        sampling = drawn if options["approx_agc"] else None
        selection = _selection(options, sampling)
        selection.check()
        return cls(
            options=options,
            label=LabelSpec(options["label"], options["pos_label"], options["nulls"]),
            scores=options["score"],
            clusters=options["cluster"],
            sketches=options["sketch"],
            classes=options["classes"],
            weight=options["weight"],
            nan=options["nan"],
            nulls=options["nulls"],
            scope=options["cluster_scope"],
            approx=options["approx"],
            sampling=sampling,
            selection=selection,
        )

    @property
    def columns(self) -> list[str]:
        """Columns to read, each once."""
        named = (self.label.column, *self.scores, *self.clusters, *self.sketches, self.classes, self.weight)
        return list(dict.fromkeys(name for name in named if name))

    @property
    def estimates(self) -> bool:
        """Whether there are digests, which depend on how the rows are cut into tasks."""
        return self.sampling is not None or bool(self.sketches)

    @property
    def aul_threshold(self) -> float:
        """Clusters larger than this count as if all positive."""
        threshold: float = self.options["aul_threshold"]
        return threshold


def _selection(options: Mapping[str, Any], sampling: Sampling | None) -> Selection:
    """The metrics that are asked for."""
    there = {"score": "score", "cluster": "cluster", "sample": "approx_agc", "classes": "classes", "sketch": "sketch"}
    return Selection(
        families=tuple(family for family, option in there.items() if options[option]),
        patterns=tuple(metric for metric in options["metrics"] if isinstance(metric, str)),
        own=tuple(metric for metric in options["metrics"] if not isinstance(metric, str)),
        quantiles=sampling.quantiles if sampling else None,
        **{name: options[name] for name in ("truncate", "at", "aul_threshold", "assignment_cells", "clip")},
    )
