"""Attribute: which clusters and classes cost the score, and by how much.

One pass folds the states that `evaluate` folds as well. A sweep over their cells finds the costliest groups, in bounded
memory; another finds their largest cells. Texts of hashed ids and examples take one more scan of the data, for the few
groups that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval import scan
from streameval.engine import Engine, start
from streameval.engine.fold import Plan
from streameval.errors import MissingInputError, OptionError, SchemaError
from streameval.evaluation.attributed import Attribution
from streameval.evaluation.attribution.ids import Ids
from streameval.evaluation.attribution.narrowing import narrowed
from streameval.evaluation.attribution.sweep import Sweep
from streameval.evaluation.columns import without_views
from streameval.evaluation.conclude import check_labels
from streameval.metrics.contingency.attribution import check_gain
from streameval.options import checked, recorded
from streameval.scan.where import Where
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.labels import LabelSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from streameval.engine.fold import Folded
    from streameval.evaluation.attribution.sweep import LookUp, Values
    from streameval.states.values import ValuesSpec

__all__ = ["attribute"]

_ENGINE = ("memory", "spill", "threads", "client", "scheduler_timeout")


def attribute(
    data: Any,
    *,
    cluster: str,
    classes: str | None = None,
    changed_from: str | None = None,
    label: str | None = None,
    pos_label: bool | int | float | str | None = None,
    metric: str | None = None,
    aul_threshold: float = 1,
    top: int = 20,
    examples: str | None = None,
    examples_per: int = 3,
    nulls: str = "error",
    cluster_scope: str = "global",
    where: Any = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    on_error: str = "raise",
    delta_version: int | None = None,
    threads: int | None = None,
    client: Any = None,
    scheduler_timeout: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Attribution:
    """Name the clusters and classes that cost a clustering its score, and say exactly how much each costs.

    Parameters
    ----------
    data : see `streameval.evaluate`
    cluster : str
        The cluster column.
    classes : str, optional
        Column of the clusters' true classes, for the worst merges and splits.
    changed_from : str, optional
        Column of an earlier clustering in place of classes: which clusters were merged and split since.
    label : str, optional
        Column of labels, for the clusters that take most away from the area under the lift curve.
    pos_label : bool, int, float or str, optional
        See `streameval.evaluate`.
    metric : str, optional
        The metric of the gains: `adjusted_rand_index` (the default), `pairwise.precision`, `pairwise.recall`,
        `pairwise.fscore`, `bcubed_precision`, `bcubed_recall` or `bcubed_fscore`. Groups are ranked by their pairs,
        whatever the metric.
    aul_threshold : float
        Clusters larger than this count as if all positive in the assumed height of `aul`; at least 1.
    top : int
        Clusters and classes to find for each table, at most 1,000,000. Equal costs are ranked by id.
    examples : str, optional
        A column of texts, numbers or times. Up to `examples_per` of its distinct values are added, in a column
        `examples`, for each of the largest cells shown, and for the negatives and positives of impure clusters. They
        are chosen by a hash of the value. Data are read once more.
    examples_per : int
        At most so many values.
    nulls, cluster_scope, where, memory, spill, on_error, delta_version, threads, client, scheduler_timeout, progress
        See `streameval.evaluate`. Where ids belong to their partition, a column `partition` stands beside them.

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
    given: dict[str, Any] = {
        "cluster": cluster,
        "classes": classes,
        "changed_from": changed_from,
        "label": label,
        "pos_label": pos_label,
        "metric": metric,
        "aul_threshold": aul_threshold,
        "top": top,
        "examples": examples,
        "examples_per": examples_per,
        "nulls": nulls,
        "cluster_scope": cluster_scope,
        "where": where,
        "memory": memory,
        "spill": spill,
        "on_error": on_error,
        "delta_version": delta_version,
        "threads": threads,
        "client": client,
        "scheduler_timeout": scheduler_timeout,
    }
    options = _checked(given)
    engine = start(**{name: given[name] for name in _ENGINE}, progress=progress)
    try:
        return _Run.of(data, options, engine).finish()
    except BaseException:
        engine.progress.cancel()
        raise


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options in plain form; an earlier clustering stands where classes do."""
    if given["classes"] and given["changed_from"]:
        msg = "classes and changed_from exclude each other: compare with one column at a time"
        raise OptionError(msg, "classes", "changed_from")
    compared = {**given, "classes": given["classes"] or given["changed_from"]}
    if not compared["classes"] and not given["label"]:
        msg = (
            "nothing to attribute: merges and splits need classes or an earlier clustering (--classes, "
            "--changed-from), impure clusters need a label (--label)"
        )
        raise OptionError(msg)
    options = checked(compared, "attribute")
    if options["metric"] is not None:
        check_gain(str(options["metric"]))
    return options


@dataclass(frozen=True)
class _Run:
    """A run that is about to start."""

    options: Mapping[str, Any]
    engine: Engine
    found: scan.Scan
    plan: Plan
    filtered: str = ""

    @classmethod
    def of(cls, data: Any, options: Mapping[str, Any], engine: Engine) -> _Run:
        """The run of checked options."""
        cluster, classes, label, examples = (options[name] for name in ("cluster", "classes", "label", "examples"))
        where = None if options["where"] is None else Where.of(getattr(options["where"], "value", options["where"]))
        folded = dict.fromkeys(name for name in (label, cluster, classes, *(where.columns if where else ())) if name)
        skip = options["on_error"] == "skip"
        found = scan.plan(
            data,
            list(dict.fromkeys((*folded, *([examples] if examples else [])))),
            on_error=options["on_error"],
            delta_version=options["delta_version"],
            threads=engine.threads,
            compute=engine.compute,
        )
        found, test = replace(found, schema=without_views(found.schema)), None
        if where is not None:
            test = where.bound(found.schema)
            found, _ = scan.prune(found, test)
        if examples:
            _check_examples(found, examples)
        if options["cluster_scope"] == "partition" and not all(piece.partition for piece in found.pieces):
            msg = "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
            raise OptionError(msg)
        labels = LabelSpec(label, options["pos_label"], options["nulls"]) if label else None
        kept = pa.schema([found.schema.field(name) for name in folded])
        run = cls(options, engine, found, Plan(kept, labels, None, (), skip, where=test), where.text if where else "")
        return replace(run, plan=replace(run.plan, specs=run.specs))

    @cached_property
    def clusters(self) -> Ids:
        """Ids of clusters."""
        return self._ids(self.options["cluster"], self.options["cluster_scope"])

    @cached_property
    def classes(self) -> Ids | None:
        """Ids of classes."""
        return self._ids(self.options["classes"]) if self.options["classes"] else None

    def _ids(self, column: str, scope: str = "global") -> Ids:
        try:
            return Ids.of(self.found, column, scope)
        except SchemaError as error:
            msg = f"{self.found.pieces[0].name}: {error}"
            raise SchemaError(msg) from None

    @property
    def specs(self) -> tuple[Any, ...]:
        """The states to fold: a table where there are classes, sizes where there are labels."""
        one, policies = self.clusters.column, (self.options["cluster_scope"], self.options["nulls"])
        found: list[Any] = []
        if self.classes is not None:
            other = self.classes.column
            found.append(ContingencySpec(other.name, one.name, other.type, one.type, *policies))
        if self.options["label"]:
            found.append(ClusterSpec(one.name, one.type, *policies))
        return tuple(found)

    def finish(self) -> Attribution:
        """Read the data and make the tables."""
        folded = self.engine.read(self.found.pieces, self.found.rows, self.plan)
        states = [folded.states[spec] for spec in self.plan.specs]
        skipped = (*self.found.skipped, *folded.skipped)
        self._check(folded, skipped)
        result = Attribution(
            states[0].totals().rows, None, None, None, None, {}, dropped=self._dropped(folded), skipped=skipped,
            options=recorded(self._asked(), "attribute"),
        )  # fmt: skip
        table = states[0] if self.classes is not None else None
        sizes = states[-1] if self.plan.label is not None else None
        return Sweep(self.options, self.engine, self.clusters, self.classes, self._look_up).added(result, table, sizes)

    @property
    def _look_up(self) -> LookUp | None:
        """What reads the data once more; None where a reader was read already."""
        if self.found.splittable:
            return self._looked_up
        if self.options["examples"]:
            msg = "examples read the data twice, and a reader can be read only once: name files or a table"
            raise OptionError(msg, "examples")
        return None

    def _looked_up(self, wanted: Mapping[str, ValuesSpec]) -> Values:
        """The values of a few groups, from one more scan."""
        found = narrowed(self.found, wanted.values())
        plan = replace(self.plan, schema=self.found.schema, specs=tuple(dict.fromkeys(wanted.values())))
        states = self.engine.read(found.pieces, found.rows, plan).states
        return {name: states[spec].lists() for name, spec in wanted.items()}

    def _asked(self) -> dict[str, Any]:
        """The options as they were asked."""
        if not self.options["changed_from"]:
            return dict(self.options)
        return {**self.options, "classes": None}

    def _check(self, folded: Folded, skipped: Sequence[tuple[str, str]]) -> None:
        """Raise if labels cannot be read, or there are no rows."""
        names = [piece.name for piece in self.found.pieces]
        where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
        if self.plan.label is not None:
            labels = folded.states[self.plan.label]
            labels.check_found(names[0] if len(set(names)) == 1 else f"all of {names[0]}, …")
            check_labels(labels, where, skipped, self.filtered)
        if not any(folded.states[spec].totals().rows for spec in self.plan.specs):
            reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
            msg = f"{where}: there are no rows in clusters{reason}"
            if self.filtered:
                msg = f"{where}: no row in a cluster meets where: {self.filtered}"
            raise MissingInputError(msg)

    def _dropped(self, folded: Folded) -> tuple[tuple[str, int], ...]:
        """Rows left out, by reason."""
        found = {}
        if self.plan.label is not None:
            found["null label"] = folded.states[self.plan.label].null
        for spec in self.specs:
            rows = folded.states[spec].dropped_rows
            if isinstance(spec, ContingencySpec):
                found[f"null cluster {spec.cluster}"] = int(rows[0])
                found[f"null class {spec.classes} (with {spec.cluster})"] = int(rows[1])
            else:
                found.setdefault(f"null cluster {self.clusters.column.name}", int(rows.sum()))
        return tuple((reason, rows) for reason, rows in found.items() if rows)


def _check_examples(found: scan.Scan, column: str) -> None:
    """Raise `SchemaError` if the values of a column cannot be shown."""
    kind = found.schema.field(column).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    binary = pa.types.is_binary(plain) or pa.types.is_large_binary(plain) or pa.types.is_fixed_size_binary(plain)
    if binary or pa.types.is_nested(plain) or pa.types.is_null(plain):
        msg = (
            f"{found.pieces[0].name}: examples column {column!r} has type {kind}; "
            "examples are texts, numbers, booleans or times: cast it"
        )
        raise SchemaError(msg)
