"""The request: the checked options of a call of `evaluate`, and the sampling intervals that they ask for.

Everything that can be refused without the data is refused here, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from streameval.errors import MissingColumnError, OptionError, SchemaError
from streameval.evaluation.labels.design import (
    LabelDesign,
    check_families,
    check_filter,
    probabilities_of,
    sampled_classes,
)
from streameval.evaluation.labels.statements import LateSource
from streameval.evaluation.sampling import Sampling
from streameval.evaluation.slicing import Slicing
from streameval.kinds import of_column, values_in
from streameval.kinds import unit as plain_unit
from streameval.metrics.catalogue import at_one_place
from streameval.metrics.protocol import as_metric
from streameval.metrics.selection import Selection
from streameval.options import complete_options, verb_options
from streameval.results import REST
from streameval.scan import Scan, Where, plan
from streameval.scan.derived import IdName
from streameval.states.grouped.keys import Blocks
from streameval.states.keyed.ids import id_type
from streameval.states.labels import AVERAGES, ClassSpec, LabelSpec
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


LEVEL = 0.95  # level of intervals that other options imply


@dataclass(frozen=True)
class Resampling:
    """The sampling intervals that are requested.

    Attributes
    ----------
    level : level of the intervals; None for no intervals
    unit : column of the sampling units, or two that are crossed, as ``a,b``; None if each row is a unit
    baselines : columns that others are compared with
    bins : number of score bins in which blocks are counted; None to keep all scores
    rest : whether slices are compared with all other rows
    pointed : whether one place of the ranking decides a requested metric, so that bins are finer

    Examples
    --------
    >>> options = {"ci": None, "unit": "campaign", "baseline": (), "against": None}
    >>> Resampling.of(options | {"score": ("a",), "cluster": (), "resample_bins": "exact"})
    Resampling(level=0.95, unit='campaign', baselines=(), bins=None, rest=False, pointed=False)
    """

    level: float | None = None
    unit: str | None = None
    baselines: tuple[str, ...] = ()
    bins: int | None = 2048
    rest: bool = False
    pointed: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Resampling:
        """The resampling that plain options request.

        Raises
        ------
        OptionError
            If there is nothing to compare with a baseline, or its name means all other rows of a slice.
        """
        unit, baselines, columns = options["unit"], tuple(options["baseline"]), (*options["score"], *options["cluster"])
        for name in baselines:
            kinds = [kind for kind in ("score", "cluster") if name in options[kind]]
            plain, why = name.removesuffix(f" ({REST})"), ""
            if not kinds:
                why = f" is neither a score nor a cluster column that is evaluated; there are {few(columns)}"
                why += "; name it as well (--score, --cluster)"
            elif all(len(options[kind]) < 2 for kind in kinds):
                why = f" has no other {kinds[0]} column to compare with; name one (--{kinds[0]})"
            elif options.get("by") and plain != name and plain in columns:
                why = (
                    f": of a slice, {plain} − {name} would read as its difference from all other rows; rename the "
                    "column, or leave out by (--by)"
                )
            if why:
                raise OptionError(f"baseline={name!r}{why}", "baseline")
        level, rest = options["ci"], options["against"] == REST
        if level is None and (unit or baselines or rest or LabelDesign.of(options) or sampled_classes(options)):
            level = LEVEL
        bins = options["resample_bins"]
        if level is None and bins != verb_options("evaluate")["resample_bins"].rest:
            raise OptionError(
                f"resample_bins={bins!r} would change nothing without intervals: set ci, unit or baseline (--ci, "
                "--unit, --baseline)",
                "resample_bins",
            )
        return cls(level, unit, baselines, None if bins == "exact" else int(bins), rest)

    def check(self, schema: pa.Schema, name: str) -> None:
        """Raise `SchemaError` if the unit is not an id column; `name` is the file that errors name."""
        for unit in self.units:
            try:
                id_type(schema.field(unit).type, unit)
            except SchemaError as error:
                raise SchemaError(f"{name}: {error}") from None

    @property
    def units(self) -> tuple[str, ...]:
        """The columns of units."""
        return self.blocks.columns

    @property
    def factors(self) -> tuple[Resampling, ...]:
        """By each of two crossed factors, and by both together; alone if there is one unit."""
        if len(self.units) == 1 or self.unit is None:
            return (self,)
        return (*(replace(self, unit=plain_unit("unit", [name])) for name in self.units), self)

    @property
    def blocks(self) -> Blocks:
        """How units are divided into blocks."""
        return Blocks(self.unit)

    @property
    def named_unit(self) -> str:
        """The unit as results name it."""
        return self.unit or "row"

    def pairs(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of a column and the baseline that it is compared with, of columns of one kind, each pair once.

        Examples
        --------
        >>> Resampling(0.95, None, ("a", "b")).pairs(["a", "b", "c"])
        [('b', 'a'), ('c', 'a'), ('c', 'b')]
        """
        pairs: list[tuple[str, str]] = []
        for base in self.baselines:
            if base in columns:
                others = (column for column in columns if column != base)
                pairs += [(other, base) for other in others if (base, other) not in pairs]
        return pairs


NO_INTERVALS = Resampling()


@dataclass(frozen=True)
class Request:
    """What to evaluate, and how.

    Attributes
    ----------
    options : every option of `streameval.evaluate` by its name, in plain form
    label : how labels are read
    scores, clusters, sketches : columns
    classes, weight : columns, or None
    scope : ``global``, or ``partition`` if a cluster id is valid only within its partition
    approx : whether scores are counted in a histogram
    sampling : options of the approximate gain area, or None
    selection : the requested metrics
    slicing : how rows are sliced
    where : filter of the rows; None for all rows
    resampling : the requested sampling intervals and comparisons
    late : labels from another table; None if the data have them
    design : how labels were drawn, if they are a sample
    """

    options: Mapping[str, Any]
    label: LabelSpec
    scores: tuple[str, ...]
    clusters: tuple[str, ...]
    sketches: tuple[str, ...]
    classes: str | None
    weight: str | None
    scope: str
    approx: bool
    sampling: Sampling | None
    selection: Selection
    slicing: Slicing = field(default_factory=Slicing)
    where: Where | None = None
    resampling: Resampling = NO_INTERVALS
    late: LateSource | None = None
    design: LabelDesign | None = None

    @classmethod
    def checked(cls, given: Mapping[str, object]) -> Request:
        """The request for these options of `streameval.evaluate`; options not given have their defaults.

        Raises
        ------
        OptionError
            If an option has an invalid value, options conflict, or a requested metric does not exist.
        """
        options = complete_options(given)
        resampling = Resampling.of(options)
        drawn = {option.name: options[option.name] for option in fields(Sampling)}
        sampling = Sampling(**drawn) if options["approx_agc"] else None
        selection = _selection(options, sampling)
        selection.check()
        resampling = replace(resampling, pointed=any(map(at_one_place, selection.of("score"))))
        design = LabelDesign.of(options)
        check_families(design, selection.of("cluster"), options["resample_bins"])
        for name in ("approx_agc", "sketch") if options["by"] else ():
            if options[name]:
                raise OptionError(
                    f"{name} is not computed by slices; leave out {name} (--{name.replace('_', '-')}) or by (--by)"
                )
        if options["mean_over"]:
            _check_means(options)
        if options["by"] and resampling.level is not None and resampling.bins is None:
            raise OptionError(
                "resample_bins='exact' keeps blocks of all rows alone, not of slices; leave out by (--by) or "
                "resample_bins (--resample-bins)",
                "resample_bins",
            )
        if len(resampling.units) > 1 and (options["by"] or design is not None):
            raise OptionError(
                f"unit={resampling.unit!r}: intervals by two crossed units are of all rows and of known labels; leave "
                "out by (--by) and sampled labels, or name one unit (--unit)",
                "unit",
            )
        slicing = Slicing.of(options["by"], options["max_slices"], timezone=options["timezone"])
        slicing.check_apart(options["score"])
        where = None if options["where"] is None else Where.of(getattr(options["where"], "value", options["where"]))
        check_filter(options, where.columns if where else ())
        late = LateSource.of(options, (*(where.columns if where else ()), *slicing.columns))
        late = None if late is None else replace(late, needed=_needs_label(options, selection))
        scores, clusters, sketches = (options[name] for name in ("score", "cluster", "sketch"))
        classes, weight, scope, approx = (options[name] for name in ("classes", "weight", "cluster_scope", "approx"))
        facts = options, _label(options, selection), scores, clusters, sketches, classes, weight, scope, approx
        return cls(*facts, sampling, selection, slicing, where, resampling, late, design)

    @property
    def columns(self) -> list[str]:
        """Columns to read, each once."""
        groups, units = (*self.clusters, self.classes, self.mean_over), self.resampling.units
        named = (*self._labels, *self.scores, *groups, *self.sketches, self.weight)
        drawn = (*(self.design.key.columns if self.design else ()), *probabilities_of(sampled_classes(self.options)))
        others = (*(self.where.columns if self.where else ()), *self.slicing.columns, *units, *drawn)
        names = dict.fromkeys(name for name in (*named, *others) if name)
        columns = [IdName(name) if name in (*groups, *units) else name for name in names]
        return columns if self.late is None else list(map(self.late.late_name, columns))

    @property
    def _labels(self) -> list[str]:
        """The label column, if one is read, and those of the ids of late labels."""
        column = self.label.column
        return self.late.data_columns if self.late is not None else [column] if column else []

    def scan(self, data: object, **how: Any) -> Scan:
        """The inputs, planned for the columns to read (`streameval.scan.plan`).

        Raises
        ------
        DataError
            If an input is missing or cannot be used; if the label column, or one of the filter, is missing, the message
            names the remedy.
        """
        try:
            return plan(data, self.columns, **how)
        except MissingColumnError as error:
            remedy = self._remedy(error)
            if not remedy:
                raise
            raise MissingColumnError(f"{error}; {remedy}", error.column, error.similar) from None

    def _remedy(self, error: MissingColumnError) -> str:
        """The remedy for a missing column; empty if the message of its error is sufficient."""
        if error.column == self.options["label"] == self.label.column == "label":
            classes = ", or ask for metrics='classes' (--metric classes), which needs none"
            return f"name the column of labels (--label){classes if self.classes and not self.scores else ''}"
        if self.late is not None and error.column in self.late.data_columns:
            return "labels are matched by it; name the ids with on (--on)"
        read = error.column in (self.where.columns if self.where else ())
        if read and not error.similar and error.column not in replace(self, where=None).columns:
            return f"where reads it; a text has single quotes, such as '{error.column}'"
        return ""

    @property
    def mean_over(self) -> str | None:
        """The column of groups over which score metrics are averaged, or None."""
        column: str | None = self.options["mean_over"]
        return column

    def policy(self, name: str, column: str) -> Any:
        """The value of an option for a column."""
        return of_column(self.options[name], column)

    def selected(self, column: str) -> Selection:
        """The metrics requested for a column."""
        return replace(self.selection, **{name: self.policy(name, column) for name in ("truncate", "aul_threshold")})


def _check_means(options: Mapping[str, Any]) -> None:
    """Raise `OptionError` for options that means over groups do not support."""
    for name in ("by", "weight", "approx", "approx_agc"):
        if options[name]:
            raise OptionError(
                f"means over groups take no {name}; leave out {name} (--{name.replace('_', '-')}) or mean_over "
                "(--mean-over)"
            )
    if options["unit"] not in (None, options["mean_over"]):
        raise OptionError(
            f"unit={options['unit']!r}: means over groups are resampled by group, which other units would cut; leave "
            "out unit (--unit), or name the column of groups",
            "unit",
        )
    if "half" in values_in(options["nan"]):
        raise OptionError(
            "means over groups take no nan='half'; choose nan='drop' (--nan drop) or leave out mean_over (--mean-over)"
        )
    if options["mean_over"] in options["score"]:
        raise OptionError(f"mean_over={options['mean_over']!r} is a score as well; name the column of groups")


def _selection(options: Mapping[str, Any], sampling: Sampling | None) -> Selection:
    """The requested metrics."""
    patterns = [metric for metric in options["metrics"] if isinstance(metric, str)]
    if not (options["metrics"] or options["score"]) and sampled_classes(options):
        patterns = ["classes"]
    given = {"score": "score", "cluster": "cluster", "sample": "approx_agc", "classes": "classes", "sketch": "sketch"}
    return Selection(
        families=tuple(family for family, option in given.items() if options[option]),
        patterns=tuple(patterns),
        own=tuple(as_metric(metric) for metric in options["metrics"] if not isinstance(metric, str)),
        quantiles=sampling.quantiles if sampling else None,
        truncate=tuple(dict.fromkeys(cut for cuts in values_in(options["truncate"]) for cut in cuts)),
        aul_threshold=values_in(options["aul_threshold"])[0],
        **{name: options[name] for name in ("at", "assignment_cells", "clip")},
    )


def _label(options: Mapping[str, Any], selection: Selection) -> LabelSpec:
    """How labels are read; they are not read if no metric needs them and no option mentions them."""
    column = options["label"] if _needs_label(options, selection) or options["labels"] else None
    few = options["labels"] or options["sampled_by"] or options["label_probability"]  # other rows count as well
    unlabelled = "size" if few and options["unlabelled"] == "error" else options["unlabelled"]
    facts = column, options["pos_label"], unlabelled, _complete(options)
    classes = _classes(options)
    return ClassSpec(*facts, classes) if classes else LabelSpec(*facts)


def _needs_label(options: Mapping[str, object], selection: Selection) -> bool:
    """Whether a metric needs labels, or an option mentions them."""
    needed = options["score"] or selection.of("cluster") or (options["cluster"] and not selection.of("classes"))
    named = options["label"] != "label" or options["pos_label"] is not None or options["unlabelled"] != "error"
    return bool(needed or named)


def _classes(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Pairs of score column and class; empty unless there are several classes.

    Raises
    ------
    OptionError
        If an option does not fit several classes.
    """
    classes, columns = options["classes_of_label"], options["score"]
    if not classes:
        return ()
    if len(classes) != len(columns) or len(set(classes)) < len(classes) or len(set(columns)) < len(columns):
        raise OptionError(
            f"classes_of_label names {plural(len(set(classes)), 'value')} for {plural(len(set(columns)), 'score')}; "
            "give one column a class, or a pattern such as score='p_{class}'",
            "classes_of_label",
        )
    if taken := [name for name in (*classes, *columns) if name in AVERAGES]:
        raise OptionError(f"{taken[0]!r} is the name of an average over classes; rename the class or its column")
    for name in ("cluster", "classes", "baseline", "mean_over", "approx_agc", "pos_label"):
        if options[name]:
            one = "evaluate one class: name its columns in score (--score) and the class in pos_label (--pos-label)"
            if name == "pos_label":
                one = "name one score column instead of classes"
            out = f"leave out {name} (--{name.replace('_', '-')})"
            raise OptionError(f"several classes take no {name}; {out}, or {one}", name)
    return tuple(zip(columns, classes, strict=True))


def _complete(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns in which every row must have a value, because they are compared on common rows.

    Raises
    ------
    OptionError
        If a policy counts rows that would be left out.
    """
    if not options["common_rows"]:  # a baseline implies common rows, except for columns whose policy counts such rows
        scores = [name for name in options["score"] if of_column(options["nan"], name) != "half"]
        clusters = [name for name in options["cluster"] if of_column(options["nulls"], name) != "singleton"]
        return tuple(dict.fromkeys((*scores, *clusters))) if options["baseline"] else ()
    for name, value in (("nan", "half"), ("nulls", "singleton")):
        if value in values_in(options[name]):
            raise OptionError(
                f"{name}={value!r} counts rows that common_rows (--common-rows) leaves out; choose one of them", name
            )
    return tuple(dict.fromkeys((*options["score"], *options["cluster"])))
