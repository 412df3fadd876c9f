"""LabelDesign: how the labelled rows were drawn, as the options say.

Only a known design has an estimate: rows that were labelled because they looked bad say nothing about the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.kinds import unit_columns, values_in
from streameval.metrics.contingency.class_sample import OF_CLUSTERS, RATIOS, SampledRatio
from streameval.options import verb_options
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.grouped.keys import Labelled
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streameval.metrics.protocol import Metric

# options that estimates from sampled labels do not have, and their spelling
_WITHOUT = {
    "by": "--by", "weight": "--weight", "approx": "--approx", "approx_agc": "--approx-agc", "mean_over": "--mean-over",
    "baseline": "--baseline", "against": "--against", "classes_of_label": "--classes-of-label",
    "common_rows": "--common-rows",
}  # fmt: skip
STRATA = "name a column of few values known for all rows (--sampled-by strata=COLUMN)"
_KNOWN = (
    "name a known design: uniform, strata=COLUMN, size (with --unit), or the column of probabilities "
    "(--label-probability); rows labelled because they looked bad have no valid estimate"
)


@dataclass(frozen=True)
class LabelDesign:
    """How labelled rows were drawn.

    Attributes
    ----------
    kind : ``uniform``, also in strata, ``size`` or ``probability``
    strata, probability : columns; None without
    unit : column of the units that were drawn as a whole; None if rows were drawn

    Examples
    --------
    >>> LabelDesign("uniform", strata="source").text, LabelDesign("uniform").key
    ('uniform by source', Labelled(strata=None, unit=None, probability=None))
    """

    kind: str
    strata: str | None = None
    probability: str | None = None
    unit: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LabelDesign | None:
        """The design that plain options name; None without one.

        Raises
        ------
        OptionError
            If the design is unknown, or options do not fit it.
        """
        named, probability, unit = options["sampled_by"], options["label_probability"], options["unit"]
        if named is None and probability is None:
            return None
        for name, spelling in _WITHOUT.items():
            if options[name]:
                raise OptionError(f"estimates from sampled labels take no {name}; leave out {name} ({spelling})", name)
        if "half" in values_in(options["nan"]):
            raise OptionError("estimates from sampled labels take no nan='half'; choose nan='drop' (--nan drop)", "nan")
        if options["unlabelled"] != "error":
            raise OptionError(
                "unlabelled would change nothing: null labels are outside the sample; leave it out (--unlabelled)",
                "unlabelled",
            )
        kind, _, strata = str(named or "").partition("=")
        if named is not None and (kind, bool(strata)) not in (("uniform", False), ("size", False), ("strata", True)):
            raise OptionError(f"sampled_by={named!r}: {_KNOWN}", "sampled_by")
        if strata and strata in (options["label"], *options["score"]):
            raise OptionError(f"sampled_by={named!r} names the labels or a score; {STRATA}", "sampled_by")
        if probability is not None and kind in ("uniform", "size"):
            raise OptionError(
                f"sampled_by={named!r} and label_probability both give probabilities; name one of them", "sampled_by"
            )
        if kind == "size" and unit is None:
            raise OptionError(
                "sampled_by='size' draws units by their rows; name their column with unit (--unit)", "unit"
            )
        if kind == "size":
            _check_whole(options, "sampled_by", "--label-probability")
        if kind == "strata" and unit is not None:
            raise OptionError(
                "sampled_by='strata=…' draws rows in strata, not units; leave out unit (--unit), or give the recorded "
                "probabilities of units alone (--label-probability)",
                "unit",
            )
        plain = "probability" if probability is not None else "uniform" if kind == "strata" else kind
        return cls(plain, strata or None, probability, next(iter(unit_columns(unit)), None))

    @property
    def key(self) -> Labelled:
        """How rows are divided to count labels."""
        return Labelled(self.strata, self.unit, self.probability)

    def units(self, id_type: Callable[[str], str]) -> ClusterSpec | None:
        """The spec of the sizes of units; None if rows were drawn. `id_type` gives how ids of a column are compared."""
        return None if self.unit is None else ClusterSpec(self.unit, id_type(self.unit), nulls="singleton", rows="both")

    @property
    def text(self) -> str:
        """The design in words."""
        column = self.strata or self.unit
        by = f" by {column}" if column else ""
        if self.kind == "probability":
            return f"drawn with probability {self.probability}{by}"
        return f"{column} by size" if self.kind == "size" else f"uniform{by}"


def sampled_classes(options: Mapping[str, Any]) -> tuple[tuple[str, bool], ...]:
    """How classes and clusters were drawn, each with whether clusters were; none if every row has a known class.

    Classes and clusters are drawn ``uniform``, by ``size``, or with the probabilities in the column of this name.

    Raises
    ------
    OptionError
        If options do not fit a sample of classes.
    """
    classes, clusters = options["classes_sampled"], options["clusters_sampled"]
    drawn = tuple((kind, of) for kind, of in ((classes, False), (clusters, True)) if kind is not None)
    if not drawn:
        return ()
    if len(drawn) > 1 and len(probabilities_of(drawn)) < 2:
        raise OptionError(
            "classes_sampled and clusters_sampled are two samples, which rows with a class do not tell apart: name the "
            "columns of their recorded probabilities, null outside (--classes-sampled COLUMN --clusters-sampled COLUMN)"
        )
    for name in ("by", "baseline", "against", "common_rows", "unit", "cluster_scope"):
        if options[name] not in (None, (), False, "global"):
            spelling = f"--{name.replace('_', '-')}"
            raise OptionError(f"estimates from sampled classes take no {name}; leave out {name} ({spelling})", name)
    for name, kind in (("classes_sampled", classes), ("clusters_sampled", clusters)):
        if kind == "size":
            _check_whole(options, name, f"--{name.replace('_', '-')} COLUMN")
    if "singleton" in values_in(options["nulls"]):
        raise OptionError(
            "estimates from sampled classes take no nulls='singleton'; leave out null clusters (--nulls drop)", "nulls"
        )
    idle = {"assignment_cells": options["assignment_cells"] != verb_options("evaluate")["assignment_cells"].rest}
    if not options["score"]:
        idle |= {"unlabelled": options["unlabelled"] != "error", "resample_bins": options["resample_bins"] != "2048"}
    for name in (name for name, given in idle.items() if given):
        spelling = f"--{name.replace('_', '-')}"
        raise OptionError(f"{name} would change nothing in estimates from sampled classes; leave it out ({spelling})",
                          name)  # fmt: skip
    return drawn


def _check_whole(options: Mapping[str, Any], name: str, recorded: str) -> None:
    """Raise `OptionError` for a filter: the rows of a unit that it keeps are not those by which the unit was drawn."""
    if options["where"] is not None:
        raise OptionError(
            f"{name}='size' needs all rows of the units, by which they were drawn, and where would leave some out: "
            f"leave out where (--where), or name the column of recorded probabilities ({recorded})",
            "where",
        )


def check_filter(options: Mapping[str, Any], columns: Iterable[str]) -> None:
    """Raise `OptionError` if a filter reads columns that are known of the sample alone: all its rows would be left."""
    known = dict.fromkeys(probabilities_of(drawn := sampled_classes(options)))
    known |= {options["classes"]: None} if drawn else {}
    if LabelDesign.of(options) is not None:
        known |= {options["label"]: None, options["label_probability"]: None}
    for name in (name for name in columns if name in known):
        raise OptionError(
            f"where reads {name!r}, which only the sample has: without the rows outside it there is no estimate for "
            "all; leave it out of where (--where)",
            "where",
        )


def probabilities_of(drawn: Iterable[tuple[str, bool]]) -> tuple[str, ...]:
    """The columns of recorded probabilities, each once."""
    return tuple(dict.fromkeys(kind for kind, _ in drawn if kind not in ("uniform", "size")))


def ratios_of(
    patterns: Sequence[str], metrics: Sequence[Metric], drawn: Sequence[tuple[str, bool]]
) -> tuple[SampledRatio, ...]:
    """The metrics to estimate from sampled classes or clusters: all there are, or the requested ones among them.

    With both samples, precisions are those of the clusters, and there is no mean of both.

    Raises
    ------
    OptionError
        If none of the requested metrics can be estimated.
    """
    of_clusters = drawn[-1][1]
    names = [name for name in RATIOS if not name.endswith("fscore")] if len(drawn) > 1 else [*RATIOS]
    names = [*OF_CLUSTERS] if of_clusters and len(drawn) == 1 else names
    requested = {metric.name for metric in metrics}
    chosen = [name for name in names if not patterns or name in requested or "classes" in patterns]
    if not chosen or any(pattern in requested and pattern not in names for pattern in patterns):
        what = "classes and clusters" if len(drawn) > 1 else "clusters" if of_clusters else "classes"
        raise OptionError(f"metrics={list(patterns)}: sampled {what} give estimates of {few(names)} alone (--metric)")
    return tuple(map(SampledRatio, chosen))


def check_families(design: LabelDesign | None, clusters: Sequence[Metric], resample_bins: str) -> None:
    """Raise `OptionError` for cluster metrics of labels, or bins of blocks, which a sample of labels does not have."""
    if design is not None and clusters:
        raise OptionError(
            f"{clusters[0].name} is not estimated from sampled labels; name metrics of scores (--metric), or evaluate "
            "clusters without sampled_by (--sampled-by)"
        )
    if design is not None and resample_bins != "2048":
        raise OptionError(
            "resample_bins would change nothing: labels that are sampled are counted by score; leave out resample_bins "
            "(--resample-bins)",
            "resample_bins",
        )
