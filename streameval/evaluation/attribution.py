"""Attribute: which clusters and classes cost the score, and by how much.

One pass folds the states that `evaluate` folds as well. A sweep over their cells finds the costliest groups, in bounded
memory; another finds their largest cells. Texts of hashed ids and examples take one more scan of the data, for the few
groups that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval import scan
from streameval.engine import Engine, start
from streameval.engine.fold import Plan
from streameval.errors import MissingInputError, OptionError, SchemaError
from streameval.evaluation.attributed import Attribution
from streameval.evaluation.columns import without_views
from streameval.evaluation.conclude import check_labels
from streameval.evaluation.ids import Ids
from streameval.metrics.clusters.attribution import Impure, WorstImpure
from streameval.metrics.contingency.attribution import Largest, Members, PairCosts, check_gain, gains
from streameval.options import checked, recorded
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.labels import LabelSpec
from streameval.states.values import ValuesSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from streameval.engine.fold import Folded
    from streameval.typing import Array

__all__ = ["attribute"]

_ENGINE = ("memory", "spill", "threads", "client", "scheduler_timeout")
_METRIC = "adjusted_rand_index"
_SHOWN = 3  # largest classes of a cluster, and clusters of a class


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
    nulls, cluster_scope, memory, spill, on_error, delta_version, threads, client, scheduler_timeout, progress
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
class _Shown:
    """Groups to show, with their largest cells.

    Attributes
    ----------
    ids : uint64 array of shape (n, n_words), largest cost first
    columns : int64 array of shape (n, n_columns)
    members : the largest cells
    """

    ids: Array
    columns: Array
    members: Members

    def keys(self, *, of_classes: bool) -> Array:
        """Words of (cluster, class) of every cell shown."""
        own = self.ids[self.members.group]
        return np.hstack((self.members.ids, own) if of_classes else (own, self.members.ids))


@dataclass(frozen=True)
class _Run:
    """A run that is about to start."""

    options: Mapping[str, Any]
    engine: Engine
    found: scan.Scan
    plan: Plan

    @classmethod
    def of(cls, data: Any, options: Mapping[str, Any], engine: Engine) -> _Run:
        """The run of checked options."""
        cluster, classes, label, examples = (options[name] for name in ("cluster", "classes", "label", "examples"))
        columns = list(dict.fromkeys(name for name in (label, cluster, classes, examples) if name))
        skip = options["on_error"] == "skip"
        found = scan.plan(
            data,
            columns,
            on_error=options["on_error"],
            delta_version=options["delta_version"],
            threads=engine.threads,
            compute=engine.compute,
        )
        found = replace(found, schema=without_views(found.schema))
        if examples:
            _check_examples(found, examples)
        if options["cluster_scope"] == "partition" and not all(piece.partition for piece in found.pieces):
            msg = "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
            raise OptionError(msg)
        labels = LabelSpec(label, options["pos_label"], options["nulls"]) if label else None
        kept = [found.schema.field(name) for name in dict.fromkeys((label, cluster, classes)) if name]
        run = cls(options, engine, found, Plan(pa.schema(kept), labels, None, (), skip))
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
        pairs = self._pairs(states[0], self.classes) if self.classes is not None else None
        impure = self._impure(states[-1]) if self.plan.label is not None else None
        values = self._values(pairs, impure)
        if pairs is not None:
            result = pairs.added(result, self, values)
        return result if impure is None else impure.added(result, self, values)

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
            check_labels(labels, where, skipped)
        if not any(folded.states[spec].totals().rows for spec in self.plan.specs):
            reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
            msg = f"{where}: there are no rows in clusters{reason}"
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

    def _pairs(self, state: Any, classes: Ids) -> _PairTables:
        """The worst merges and splits of a table."""
        signed = self.clusters.signed, classes.signed
        summary, seen = self.engine.watched(state, partial(PairCosts, self.options["top"], signed))
        costs = seen[0].merge(seen[1:])
        merges, splits = costs.merges.ranked(), costs.splits.ranked()
        jobs = [Largest(merges[0], False, signed[1], _SHOWN), Largest(splits[0], True, signed[0], _SHOWN)]
        asked = [job for job in jobs if len(job.groups)]
        found = iter(self.engine.finalize([(state, [job]) for job in asked]))
        members = [next(found)[0] if len(job.groups) else Members.none() for job in jobs]
        return _PairTables(classes, summary, costs, _Shown(*merges, members[0]), _Shown(*splits, members[1]))

    def _impure(self, state: Any) -> _ImpureTable:
        """The clusters that take most away from the area under the lift curve."""
        worst = WorstImpure(self.options["aul_threshold"], self.options["top"], self.clusters.signed)
        return _ImpureTable(self.engine.finalize([(state, [worst])])[0][0])

    def _values(self, pairs: _PairTables | None, impure: _ImpureTable | None) -> dict[str, list[list[bytes]]]:
        """What takes one more scan: texts of ids, which `clusters` and `classes` learn, and examples by table."""
        wanted = self._wanted(pairs, impure)
        if not wanted:
            return {}
        if not self.found.splittable:
            if self.options["examples"]:
                msg = "examples read the data twice, and a reader can be read only once: name files or a table"
                raise OptionError(msg, "examples")
            return {}
        fields = [self.found.schema.field(name) for name in self.found.schema.names]
        plan = replace(self.plan, schema=pa.schema(fields), specs=tuple(dict.fromkeys(wanted.values())))
        states = self.engine.read(self.found.pieces, self.found.rows, plan).states
        found = {name: states[spec].lists() for name, spec in wanted.items()}
        for name, ids in (("cluster ids", self.clusters), ("class ids", self.classes)):
            if name in wanted and ids is not None:
                ids.learn(wanted[name].wanted, found[name])
        return found

    def _wanted(self, pairs: _PairTables | None, impure: _ImpureTable | None) -> dict[str, ValuesSpec]:
        """The values to collect, by name."""
        per, column = self.options["examples_per"], self.options["examples"]
        specs: dict[str, ValuesSpec] = {}

        def want(name: str, ids: Sequence[Ids], keys: Array, column: str, most: int, *, by_label: bool = False) -> None:
            if len(keys):
                columns = tuple(each.column for each in ids)
                specs[name] = ValuesSpec(columns, by_label, np.ascontiguousarray(keys).tobytes(), column, most)

        clusters = [impure.worst.ids] if impure is not None else []
        if pairs is not None and self.classes is not None:
            both = self.clusters, self.classes
            clusters += [pairs.merges.ids, pairs.splits.members.ids]
            classes = [pairs.splits.ids, pairs.merges.members.ids]
            if self.classes.hashed:
                want("class ids", [self.classes], _union(classes), self.classes.column.name, 1)
            if column:
                want("merges", both, pairs.merges.keys(of_classes=False), column, per)
                want("splits", both, pairs.splits.keys(of_classes=True), column, per)
        if self.clusters.hashed:
            want("cluster ids", [self.clusters], _union(clusters), self.clusters.column.name, 1)
        if column and impure is not None and len(impure.worst.ids):
            want("impure", [self.clusters], impure.keys(), column, per, by_label=True)
        return specs


def _union(ids: Sequence[Array]) -> Array:
    """Distinct ids of several collections."""
    parts = [part for part in ids if len(part)]
    return np.unique(np.concatenate(parts), axis=0) if parts else np.empty((0, 1), np.uint64)


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


@dataclass(frozen=True)
class _PairTables:
    """The worst merges and splits, before their ids are written out."""

    classes: Ids
    summary: Any
    costs: PairCosts
    merges: _Shown
    splits: _Shown

    def added(self, result: Attribution, run: _Run, values: Mapping[str, list[list[bytes]]]) -> Attribution:
        """The result with these tables."""
        metric = run.options["metric"] or _METRIC
        risen = gains(metric, self.summary)
        pairs = self.summary
        agreeing = (pairs.cells.squares - pairs.total) // 2
        false = (pairs.clusters.squares - pairs.total) // 2 - agreeing
        missed = (pairs.classes.squares - pairs.total) // 2 - agreeing
        merges = _named("cluster", run.clusters, self.merges.ids)
        merges |= _sized(self.merges, "classes", "class", self.classes)
        gained = [risen.split(cost, rows) for cost, rows, *_ in self.merges.columns.tolist()]
        merges |= _costs("false_pairs", self.merges.columns[:, 0], false, gained)
        splits = _named("class", self.classes, self.splits.ids)
        splits |= _sized(self.splits, "clusters", "cluster", run.clusters)
        gained = [risen.joined(joined, rows) for _, rows, _, joined in self.splits.columns.tolist()]
        splits |= _costs("missed_pairs", self.splits.columns[:, 0], missed, gained)
        if run.options["examples"]:
            merges["examples"] = _examples(self.merges, "class", self.classes, values.get("merges", []))
            splits["examples"] = _examples(self.splits, "cluster", run.clusters, values.get("splits", []))
        totals = {
            **result.totals,
            "false_pairs": int(false),
            "missed_pairs": int(missed),
            "merged_clusters": self.costs.merged,
            "split_classes": self.costs.split,
            "clusters": pairs.clusters.count,
            "classes": pairs.classes.count,
            "unchanged_rows": self.costs.unchanged_rows,
        }
        return replace(result, merges=pa.table(merges), splits=pa.table(splits), totals=totals, metric=metric)


@dataclass(frozen=True)
class _ImpureTable:
    """The worst impure clusters, before their ids are written out."""

    worst: Impure

    def keys(self) -> Array:
        """Words of (cluster, label) of every cluster shown, for both labels."""
        ids = np.repeat(self.worst.ids, 2, axis=0)
        return np.column_stack((ids, np.tile(np.array([0, 1], np.uint64), len(self.worst.ids))))

    def added(self, result: Attribution, run: _Run, values: Mapping[str, list[list[bytes]]]) -> Attribution:
        """The result with this table."""
        loss = self.worst.loss
        total = loss.total
        lost = [loss.share(each) for each in self.worst.lost]
        running = accumulate(lost)
        table = _named("cluster", run.clusters, self.worst.ids) | {
            "rows": pa.array(self.worst.rows),
            "positives": pa.array(self.worst.positives),
            "lost": pa.array([float(each) for each in lost], pa.float64()),
            "share": pa.array([float(each / total) for each in lost], pa.float64()),
            "running_share": pa.array([float(each / total) for each in running], pa.float64()),
        }
        if run.options["examples"]:
            found = values.get("impure", [])
            table["examples"] = pa.array(
                [
                    [
                        {"label": label, "values": _texts(found[2 * i + label])}
                        for label in (0, 1)
                        if found[2 * i + label]
                    ]
                    for i in range(len(lost))
                ],
                pa.list_(pa.struct({"label": pa.int8(), "values": pa.list_(pa.string())})),
            )
        sizes = loss.unclustered()
        unclustered = {"size": sizes.size, "clusters": sizes.clusters, "positives": sizes.positives}
        totals = {
            "clusters": int(loss.table.clusters.sum()),
            **result.totals,
            "lost": float(total),
            "impure_clusters": self.worst.clusters,
            "unclustered_positives": int(sizes.positives.sum()),
            "positives": int(loss.table.positives.sum()),
        }
        return replace(result, impure=pa.table(table), unclustered=pa.table(unclustered), totals=totals)


def _named(name: str, ids: Ids, words: Array) -> dict[str, pa.Array]:
    """The column of ids, and that of their partitions where ids belong to these."""
    found = {name: ids.values(words)}
    return found | {"partition": ids.paths(words)} if ids.partitions else found


def _sized(shown: _Shown, parts: str, member: str, ids: Ids) -> dict[str, pa.Array]:
    """Rows of groups, number of their cells, and the largest ones."""
    rows, count = (pa.array(np.ascontiguousarray(shown.columns[:, c])) for c in (1, 2)) if len(shown.ids) else _none(2)
    return {"rows": rows, parts: count, "largest": _largest(shown, member, ids)}


def _none(columns: int) -> list[pa.Array]:
    return [pa.array([], pa.int64())] * columns


def _largest(shown: _Shown, member: str, ids: Ids) -> pa.Array:
    """The largest cells of each group; those that remain unnamed belong to rows without an id, of one row each."""
    cells = _cells(shown, member, ids)
    kinds = {name: array.type for name, array in _named(member, ids, shown.members.ids[:0]).items()}
    if cells:
        kinds = {name: array.type for name, array in _named(member, ids, shown.members.ids).items()}
    lists: list[list[dict[str, Any]]] = [[] for _ in range(len(shown.ids))]
    for group, cell in zip(shown.members.group.tolist(), cells, strict=True):
        lists[group].append(cell)
    for i, found in enumerate(lists):
        missing = min(_SHOWN, int(shown.columns[i, 2])) - len(found)
        found += [dict.fromkeys(kinds) | {"rows": 1}] * missing
    return pa.array(lists, pa.list_(pa.struct(kinds | {"rows": pa.int64()})))


def _cells(shown: _Shown, member: str, ids: Ids) -> list[dict[str, Any]]:
    """The largest cells as plain values."""
    columns = {name: array.to_pylist() for name, array in _named(member, ids, shown.members.ids).items()}
    columns["rows"] = shown.members.rows.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _examples(shown: _Shown, member: str, ids: Ids, values: Sequence[list[bytes]]) -> pa.Array:
    """Values of the largest cells of each group."""
    names = ids.values(shown.members.ids)
    lists: list[list[dict[str, Any]]] = [[] for _ in range(len(shown.ids))]
    for group, name, found in zip(shown.members.group.tolist(), names.to_pylist(), values, strict=True):
        lists[group].append({member: name, "values": _texts(found)})
    return pa.array(lists, pa.list_(pa.struct({member: names.type, "values": pa.list_(pa.string())})))


def _texts(values: Sequence[bytes]) -> list[str]:
    return [value.decode() for value in values]


def _costs(name: str, costs: Array, total: int, gained: Sequence[float]) -> dict[str, pa.Array]:
    """Costs with their shares of the total, and gains."""
    each = costs.tolist()
    return {
        name: pa.array(each, pa.int64()),
        "share": pa.array([cost / total for cost in each], pa.float64()),
        "gain": pa.array(gained, pa.float64()),
        "running_share": pa.array([cost / total for cost in accumulate(each)], pa.float64()),
    }
