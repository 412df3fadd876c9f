"""Attribute: the clusters, classes and slices that cost most, and how much each costs.

One pass folds the same states as `evaluate`. One sweep over their cells finds the costliest groups in bounded memory,
and another one their largest cells. Texts of hashed ids and examples take one more scan of the data, for the groups
that are shown.

Slices are ranked by shortfall × rows. The value of a small slice deviates by chance, so slices with fewer than `LEAST`
effective units of rows, positives or negatives are left out first, and counted; without a unit column each row is a
unit. The worst of many slices lies far below the whole by chance, so the intervals of the R slices shown, out of m
eligible ones, have level 1 − R (1 − level) / m: the expected share of shown intervals that miss the true value is then
at most 1 − level.

References
----------
Benjamini, Y. and Yekutieli, D. (2005). False discovery rate-adjusted multiple confidence intervals for selected
parameters. *JASA* 100, 71–81.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from streameval import scan
from streameval.engine import Engine, start
from streameval.errors import CorruptFileError, MissingInputError, OptionError, SchemaError
from streameval.evaluation import evaluate, explain
from streameval.evaluation.cost_tables import Attribution, Ids, LookUp, Values, attribute_states
from streameval.evaluation.families import FAMILIES, of_classes
from streameval.evaluation.files import RUN_OPTIONS, Files, Forecast, source_of
from streameval.evaluation.finalize import check_labels
from streameval.evaluation.intervals import better_end
from streameval.evaluation.labels.columns import with_late_fields
from streameval.evaluation.labels.statements import LateSource
from streameval.evaluation.protocol import Counted, MetricRequest
from streameval.kinds import of_column
from streameval.metrics.catalogue import entry_of, usual
from streameval.metrics.contingency.attribution import GAINS, check_gain
from streameval.options import command, complete_options, record_options, verb_options
from streameval.results import Scalar, slice_column
from streameval.scan import Scan, Where
from streameval.scan.derived import IdName
from streameval.scan.widen import plain
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.labels import LabelSpec
from streameval.wording import canonical, explains_arguments

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date

    from streameval.engine.fold import Folded
    from streameval.evaluation.result import Evaluation
    from streameval.states.values import Values as FoldedValues
    from streameval.states.values import ValuesSpec


def check_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options in plain form; `classes` is set to `changed_from` if that is given.

    Raises
    ------
    OptionError
        If an option is invalid, conflicts with another, has no effect, or nothing is named to attribute.
    """
    columns = ("cluster", "classes", "changed_from", "label", "by")
    given = {**given, **{name: verb_options("attribute")[name].kind.check(name, given.get(name)) for name in columns}}
    if given.get("labels") is not None:
        given |= {"label": given["label"] or "label"}
    classes, earlier = given.get("classes"), given.get("changed_from")
    if classes and earlier:
        raise OptionError(
            "classes and changed_from exclude each other: compare with one column at a time", "classes", "changed_from"
        )
    compared = {**given, "classes": classes or earlier}
    paired, labelled = bool(compared["classes"]), bool(given.get("label"))
    if not (given.get("cluster") and (paired or labelled)) and not given.get("by"):
        raise OptionError(
            "nothing to attribute: merges and splits need a cluster column (--cluster) with classes or an earlier "
            "clustering (--classes, --changed-from), impure clusters need it with a label (--label), slices need a "
            "score and a slicing column (--score, --by)"
        )
    if paired and not given.get("cluster"):
        name = "classes" if classes else "changed_from"
        raise OptionError(f"{name} would change nothing without clusters: name their column (--cluster)", name)
    options = complete_options(compared, "attribute")
    metric, sliced = options["metric"], bool(options["by"])
    if metric is not None and not sliced and not paired:
        raise OptionError(
            "metric would change nothing without classes or slices: name a column (--classes, --changed-from, --by)",
            "metric",
        )
    if metric is not None and not sliced:
        check_gain(str(metric))
    return options


@dataclass(frozen=True)
class Run:
    """A planned run.

    Attributes
    ----------
    data : as given by the user
    options : see `check_options`
    files : the data, after pruning by the filter
    filtered : text of the filter; empty without one
    late : labels from another table; None if the data have them
    types : the data with the fields that arrive late
    """

    data: object
    options: Mapping[str, Any]
    files: Files
    types: Scan
    filtered: str = ""
    late: LateSource | None = None

    @classmethod
    def of(cls, data: object, options: Mapping[str, Any], engine: Engine) -> Run:
        """Plan a run.

        Parameters
        ----------
        data : see `streameval.evaluate`
        options : see `check_options`
        engine : where to run

        Raises
        ------
        DataError
            If an input or a column is missing or has a type that cannot be used.
        OptionError
            If the data do not support an option.
        """
        cluster, classes, label, examples = (options[name] for name in ("cluster", "classes", "label", "examples"))
        where = None if options["where"] is None else Where.of(getattr(options["where"], "value", options["where"]))
        late = LateSource.of(options, where.columns if where else ())
        unlabelled = "drop" if late is not None else options["unlabelled"]
        labelled, filtered = late.data_columns if late is not None else [label], where.columns if where else ()
        ids = [IdName(name) if late is None else late.late_name(IdName(name)) for name in (cluster, classes) if name]
        folded = dict.fromkeys(name for name in (*labelled, *ids, *filtered) if name)
        found = scan.plan(
            data,
            list(dict.fromkeys((*folded, *([examples] if examples else [])))),
            where=where,
            on_error=options["on_error"],
            delta_version=options["delta_version"],
            snapshot=options["snapshot"],
            threads=engine.budget.threads,
        )
        labels = LabelSpec(label, options["pos_label"], unlabelled) if label else None
        files = Files.of(engine, found, labels, where, skip=options["on_error"] == "skip")
        if examples:
            _check_examples(files.scan, examples)
        if options["cluster_scope"] == "partition" and not all(piece.partition for piece in files.scan.pieces):
            raise OptionError(
                "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
            )
        schema = pa.schema([field for field in files.scan.schema if field.name in folded])
        files = replace(files, plan=replace(files.plan, schema=schema))
        types = with_late_fields(late, files.scan, engine)
        run = cls(data, options, files, types, where.text if where else "", late)
        return replace(run, files=run.files.folding(run.requests))

    @cached_property
    def clusters(self) -> Ids:
        """The ids of clusters."""
        return self._ids(self.options["cluster"], self.options["cluster_scope"])

    @cached_property
    def classes(self) -> Ids | None:
        """The ids of classes; None without classes."""
        return self._ids(self.options["classes"]) if self.options["classes"] else None

    def _ids(self, column: str, scope: str = "global") -> Ids:
        try:
            return Ids.of(self.types, column, scope)
        except SchemaError as error:
            raise SchemaError(f"{self.files.names[0]}: {error}") from None

    @property
    def requests(self) -> list[MetricRequest]:
        """The states to fold: a contingency table if there are classes, cluster sizes if there are labels."""
        one, scope = self.clusters.column, self.options["cluster_scope"]
        nulls, requests = of_column(self.options["nulls"], self.options["cluster"]), []
        if self.classes is not None:
            other = self.classes.column
            family, policy = of_classes(self.types.schema.field(other.name), nulls)
            table = ContingencySpec(other.name, one.name, other.type, one.type, scope, policy)
            requests.append(MetricRequest(family, one.name, table, ()))
        if self.options["label"]:
            sizes = ClusterSpec(one.name, one.type, scope, nulls)
            requests.append(MetricRequest(FAMILIES["cluster"], one.name, sizes, ()))
        return requests

    def finish(self) -> Attribution:
        """Read the data and compute the tables."""
        if self.late is not None and self.files.statements is None:
            return replace(self, files=self.files.labelled(self.late)).finish()
        files, label = self.files, self.files.plan.label
        folded = files.fold()
        self._check(folded)
        options = dict(self.options) | ({"classes": None} if self.options["changed_from"] else {})  # as given
        states = {request.family.name: folded.states[request.spec] for request in self.requests}
        counted = [request.family.counted(request, folded.states[request.spec]) for request in self.requests]
        found = attribute_states(
            files.engine, self.options, states, self.clusters, self.classes, self.look_up(folded.skipped),
            dropped=count_dropped(counted, () if label is None else [("null label", folded.labels(label).null)]),
            skipped=folded.skipped, options=record_options(options, "attribute"),
            source=source_of(self.data, files.scan.pieces, options, "attribute"),
        )  # fmt: skip
        found = replace(found, labels=files.deliver_statements(folded))
        shares = [one.share for one in counted if one.share is not None]
        if self.late is not None and label is not None:
            counts = folded.labels(label)
            shares.append((counts.neg + counts.pos) / max(1, counts.neg + counts.pos + counts.null))
        if min(shares, default=1) == 1:
            return found
        return replace(found, basis="labelled rows", labelled_share=min(shares))

    def look_up(self, skipped: Sequence[tuple[str, str]] = ()) -> LookUp | None:
        """A function that reads values from the data; None if the data are a reader, which can be read only once.

        Parameters
        ----------
        skipped : (file, reason) of files that were not counted

        Raises
        ------
        OptionError
            If examples were requested from a reader.
        """
        if self.files.scan.splittable:
            return partial(self._looked_up, dict(skipped))
        if self.options["examples"]:
            raise OptionError(
                "examples read the data twice, and a reader can be read only once: name files or a table", "examples"
            )
        return None

    def _looked_up(self, skipped: Mapping[str, str], wanted: Mapping[str, ValuesSpec]) -> Values:
        """The values of a few groups, from one more scan.

        Raises
        ------
        CorruptFileError
            If a file that was counted cannot be read again.
        """
        files, found = self.files, self.files.scan
        plan = replace(files.plan, schema=found.schema, specs=tuple(dict.fromkeys(wanted.values())))
        folded = files.engine.read(found.pieces, found.rows, plan)
        for name, why in folded.skipped:
            if name not in skipped:
                raise CorruptFileError(f"{name}: its rows were counted, and cannot be read again: {why}; run again")
        return {name: cast("FoldedValues", folded.states[spec]).lists() for name, spec in wanted.items()}

    def _check(self, folded: Folded) -> None:
        """Raise if the labels cannot be evaluated, or no row is in a cluster."""
        names, label, skipped = self.files.names, self.files.plan.label, folded.skipped
        where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
        if label is not None:
            self.files.check_found(folded)
            check_labels(folded.labels(label), where, skipped, self.filtered)
        if not any(folded.states[spec].totals().rows for spec in self.files.plan.specs):
            reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
            msg = f"{where}: there are no rows in clusters{reason}"
            if self.filtered:
                msg = f"{where}: no row in a cluster meets where: {self.filtered}"
            raise MissingInputError(msg)


def count_dropped(counted: Iterable[Counted], more: Iterable[tuple[str, int]] = ()) -> tuple[tuple[str, int], ...]:
    """Rows left out, by reason; the states of a column leave out the same rows for the same reason."""
    rows = dict(more)
    for reason, n in (pair for one in counted for pair in one.dropped):
        rows.setdefault(reason, n)
    return tuple((reason, n) for reason, n in rows.items() if n)


def _check_examples(found: Scan, column: str) -> None:
    """Raise `SchemaError` if the values of a column cannot be shown."""
    kind = plain(found.schema.field(column).type)
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if binary or pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise SchemaError(
            f"{found.pieces[0].name}: examples column {column!r} has type {kind}; "
            "examples are texts, numbers, booleans or times: cast it"
        )


LEAST = 20  # least number of effective units of a slice
_LATE = ("labels", "on", "label_time", "labels_as_of", "label_conflicts", "rejects", "allow_unmatched")
_SHARED = (
    "ci",
    "unit",
    "where",
    "timezone",
    "on_error",
    "delta_version",
    "snapshot",
    *_LATE,
    *RUN_OPTIONS,
)  # of slices and clusters


def of_slices(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `streameval.evaluate` for the slices that `streameval.attribute` ranks."""
    own = {name: given[name] for name in ("pos_label", "score", "by", "nan", "unlabelled")}
    shared = {name: given[name] for name in _SHARED if given.get(name) is not None}
    return {"label": given["label"] or "label", "metrics": [_metric(given)], **own, **shared}


def _metric(given: Mapping[str, Any]) -> str:
    """The metric of the slices: the given one, unless that is the metric of the gains of classes.

    Raises
    ------
    OptionError
        If the metric has no better end.
    """
    asked = None if given.get("classes") and given["metric"] in GAINS else given["metric"]
    metric = str(asked or usual("score"))
    entry = entry_of(canonical(metric))
    if entry is not None and entry.family in ("cluster", "classes"):
        raise OptionError(f"metric={metric!r} is of clusters, and slices are ranked by a metric of a score", "metric")
    if entry is not None and entry.better is None:
        raise OptionError(
            f"metric={metric!r} has no better end, so no slice falls short in it; choose one that has", "metric"
        )
    return metric


def with_slices(
    result: Attribution | None,
    found: Evaluation,
    given: Mapping[str, Any],
    at_level: Callable[[float], Sequence[Scalar]],
) -> Attribution:
    """Add the table of slices to an attribution.

    Parameters
    ----------
    result : the attribution of clusters; None if no cluster column was named
    found : the evaluation of the slices, with the options of `of_slices`
    given : options of `streameval.attribute`
    at_level : returns the results of all slices, in the order of `found`, with intervals at another level

    Raises
    ------
    OptionError
        If the metric has no better end, or names several metrics.
    """
    metric = _metric(given)
    names = {result.metric for result in found.results}
    if len(names) != 1:
        raise OptionError(
            f"metric={metric!r} names {len(names)} metrics of a score; slices are ranked by one", "metric"
        )
    slices = [one for one in found.results if one.slice is not None]
    whole = next(one for one in found.results if one.slice is None)
    sign = -1 if better_end(whole.metric) == "lower" else 1
    fit = [i for i, one in enumerate(slices) if _units(one) >= LEAST and not math.isnan(one.value)]
    short = [(sign * (whole.value - slices[i].value), i) for i in fit]
    worst = sorted((each for each in short if each[0] > 0), key=lambda each: -each[0] * slices[each[1]].rows)
    worst = worst[: given["top"]]
    totals = {
        "slices": len(slices),
        "slices_left_out": len(slices) - len(fit),
        "slices_without_value": sum(math.isnan(one.value) for one in slices),
        "slices_least_units": LEAST,
        "whole": whole.value,
    }
    if found.ci_level is not None and worst:
        totals["slices_selected"] = selected = len(worst) if given["adjust"] == "false_coverage" else 1
        totals["slices_ci_level"] = level = 1 - selected * (1 - found.ci_level) / len(fit)
        slices = list(at_level(level))
        far_ends = [slices[i].ci_upper if sign > 0 else slices[i].ci_lower for _, i in worst]
        totals["slices_below"] = sum(end is not None and sign * (whole.value - end) > 0 for end in far_ends)
    base = result or Attribution(
        found.rows, None, None, None, None, {},
        dropped=found.dropped, skipped=found.skipped, options=found.options, source=found.source, labels=found.labels,
        basis=whole.basis, labelled_share=whole.labelled_share,
    )  # fmt: skip
    slicings = dict.fromkeys(tuple(one.slice or ()) for one in slices)
    shown = _table([(cost, slices[i]) for cost, i in worst], list(slicings))
    return replace(base, slices=shown, totals=base.totals | totals, slice_metric=metric)


def _units(one: Scalar) -> float:
    """The effective number of units of a slice; without units, the smaller class."""
    if one.effective_units is not None:
        return one.effective_units
    positives = one.positives or 0
    return min(positives, one.rows - positives)


def _table(worst: Sequence[tuple[float, Scalar]], slicings: Sequence[tuple[str, ...]]) -> pa.Table:
    """One row per slice, largest cost first; columns of other slicings are null, those of slicings without rows absent.

    With several slicings, the first column `by` names the slicing.
    """
    there = {name for _, one in worst for name in one.slice or ()}
    columns = [name for name in dict.fromkeys(chain.from_iterable(slicings)) if name in there or not worst]
    several = len(slicings) > 1
    table = {"by": pa.array([",".join(one.slice or ()) for _, one in worst], pa.string())} if several else {}
    table |= {name: slice_column([(one.slice or {}).get(name) for _, one in worst]) for name in columns}
    table["rows"] = pa.array([one.rows for _, one in worst], pa.int64())
    for name in ("value", "ci_lower", "ci_upper", "effective_units", "freedom"):
        table[name] = pa.array([getattr(one, name) for _, one in worst], pa.float64())
    return pa.table(table | {"shortfall": pa.array([short for short, _ in worst], pa.float64())})


def forecasts(data: object, **given: Any) -> list[Forecast]:
    """Forecast each pass that `attribute` would make with the same arguments; only footers are read.

    Raises
    ------
    StreamevalError
        What `attribute` raises before it reads the data.
    """
    options = check_options(given)
    passes = []
    if given.get("cluster") and (options["classes"] or options["label"]):
        engine = start(**{name: given[name] for name in RUN_OPTIONS if name in given})
        passes.append(Run.of(data, options, engine).files.forecast())
    if options["by"]:
        passes.append(explain(data, **of_slices(options)))
    return passes


@explains_arguments
def attribute(
    data: object,
    *,
    cluster: str | None = None,
    score: str | None = None,
    by: str | Sequence[str] | None = None,
    timezone: str | None = None,
    ci: float | None = None,
    unit: str | None = None,
    adjust: str = "false_coverage",
    classes: str | None = None,
    changed_from: str | None = None,
    label: str | None = None,
    pos_label: bool | int | float | str | None = None,
    metric: str | None = None,
    aul_threshold: float = 1,
    top: int = 20,
    examples: str | None = None,
    examples_per: int = 3,
    nan: str = "error",
    nulls: str = "error",
    unlabelled: str = "error",
    labels: Any = None,
    on: str | Sequence[str] | None = None,
    label_time: str | None = None,
    labels_as_of: str | date | None = None,
    label_conflicts: str = "error",
    rejects: str | os.PathLike[str] | None = None,
    allow_unmatched: bool = False,
    cluster_scope: str = "global",
    where: object = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    delta_version: int | None = None,
    snapshot: int | None = None,
    threads: int | None = None,
    client: object = None,
    scheduler_timeout: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Attribution:
    """Rank the clusters, classes and slices that cost most, and compute exactly how much each costs.

    Parameters
    ----------
    data : see `streameval.evaluate`
    cluster : str, optional
        The cluster column.
    score : str, optional
        A score column, for slices.
    by : str or sequence of str, optional
        Slicing columns, as in `streameval.evaluate`. Slices are ranked by shortfall × rows, where the shortfall is the
        value of all rows minus that of the slice. Slices with fewer than 20 positives or negatives are left out. The
        label column is `label`, by default ``label``. The data are read once more.
    timezone : str, optional
        Time zone of slices by parts of times, as in `streameval.evaluate`.
    ci, unit : optional
        Sampling intervals of the slices, as in `streameval.evaluate`. They are widened for selection: the intervals of
        R slices shown out of m eligible ones have level 1 − R (1 − ci) / m. With `unit`, a slice needs 20 effective
        units.
    adjust : {"false_coverage", "family"}
        What these intervals promise: of those shown, a share of at most 1 − ci misses the true value on average (false
        coverage rate), so that of 50 equal slices some lies below the whole in two of five runs; or no interval of any
        eligible slice does, with probability ci: then R is 1.
    classes : str, optional
        Column of the clusters' true classes, for the worst merges and splits.
    changed_from : str, optional
        Column of an earlier clustering in place of classes, for the clusters that were merged and split since.
    label : str, optional
        Column of labels, for the clusters that lower the area under the lift curve most.
    pos_label : bool, int, float or str, optional
        See `streameval.evaluate`.
    metric : str, optional
        The metric of the gains: `adjusted_rand_index` (the default), `pairwise.precision`, `pairwise.recall`,
        `pairwise.fscore`, `bcubed_precision`, `bcubed_recall` or `bcubed_fscore`. Groups are always ranked by their
        pairs. With `by`, any other name is the metric of the slices (`roc_auc` by default).
    aul_threshold : float
        Clusters larger than this count as if all positive in the assumed height of `aul`; at least 1.
    top : int
        Number of clusters and classes in each table, from 1 to 1,000,000. Equal costs are ranked by id.
    examples : str, optional
        A column of texts, numbers, booleans or times. Up to `examples_per` of its distinct values are added, in a
        column `examples`, for each of the largest cells shown, and for the negatives and positives of impure clusters.
        They are chosen by a hash of the value. The data are read once more.
    examples_per : int
        Maximum number of examples of each cell, from 1 to 1,000.
    nan, nulls, unlabelled, labels, on, label_time, labels_as_of, label_conflicts, rejects, allow_unmatched,
    cluster_scope, where, memory, spill, on_error, delta_version, snapshot, threads, client, scheduler_timeout, progress
        See `streameval.evaluate`. With ``cluster_scope="partition"``, ids are followed by a column `partition`.

    Returns
    -------
    Attribution

    Raises
    ------
    StreamevalError
        See `streameval.errors`; the message names the file, the column and the remedy.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"campaign": [1, 1, 1, 2, 2], "cluster": [7, 7, 8, 7, 9]})
    >>> found = attribute(data, cluster="cluster", classes="campaign", metric="pairwise.precision")
    >>> found.merges.select(["cluster", "false_pairs", "share", "gain"]).to_pylist()
    [{'cluster': 7, 'false_pairs': 2, 'share': 1.0, 'gain': 0.6666666666666666}]
    >>> found.splits["class"].to_pylist(), found.totals["missed_pairs"]
    ([1, 2], 3)
    """
    given = dict(locals())  # every argument by name
    del given["data"]
    options = check_options({name: value for name, value in given.items() if name != "progress"})
    run, result = {name: given[name] for name in RUN_OPTIONS}, None
    if given["cluster"] and (options["classes"] or options["label"]):
        engine = start(**run)
        with engine.progress:
            result = Run.of(data, options, engine).finish()
        if not options["by"]:
            return result
    sliced = evaluate(data, **of_slices({**options, **run}))
    result = with_slices(
        result, sliced, options, lambda level: [one.own.scalar_with(level) for one in sliced.slice_estimates]
    )
    asked = {**options, "classes": given["classes"]}  # undo `check_options`, which moves changed_from to classes
    repeat = command("attribute", result.source.data, asked) if result.source.command else ""
    return replace(result, source=replace(result.source, command=repeat, zones=sliced.source.zones))
