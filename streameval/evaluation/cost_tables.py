"""The result of an attribution, and its tables: the costliest groups and their largest cells, from folded states.

One sweep over the states finds the groups, another one their cells. Ids are decoded from their words in a state:
integers directly, texts by a scan of the data, partitions by hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from streameval import __version__
from streameval.errors import OptionError
from streameval.evaluation.protocol import watch_table
from streameval.metrics.clusters import Impure, WorstImpure
from streameval.metrics.contingency.attribution import GAIN, GAINS, Largest, Members, PairCosts, gains
from streameval.report.terminal import Shown
from streameval.results import Source
from streameval.saving import AsJson, save, write_whole
from streameval.scan.widen import plain
from streameval.states.keyed.ids import hash_bytes, id_type
from streameval.states.values import IdColumn, ValuesSpec
from streameval.wording import text_of_bytes

if TYPE_CHECKING:
    import os

    from rich.console import RenderableType

    from streameval.engine import Engine
    from streameval.scan import Scan
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.protocol import State
    from streameval.typing import Array

TABLES = ("merges", "splits", "impure", "unclustered", "slices")


@dataclass(frozen=True, repr=False)
class Attribution(Shown, AsJson):
    """The clusters, classes and slices that cost most, largest cost first.

    A table is None if its input was not named: `merges` and `splits` need classes, `slices` a score and slicing
    columns, `impure` and `unclustered` a label. Ids have the type of their column, widened to 64 bits; in `largest` the
    id is null for rows without one.

    Attributes
    ----------
    rows : int
        Rows in the table of clusters and classes, or in clusters.
    merges : pa.Table
        Clusters with several classes: `cluster, rows, classes, largest` (list of {class, rows}), `false_pairs, share`
        (of all false pairs), `gain` (by how much `metric` rises if this cluster alone is split along its classes),
        `running_share`.
    splits : pa.Table
        Classes in several clusters: `class, rows, clusters, largest` (list of {cluster, rows}), `missed_pairs, share,
        gain` (if the clusters that hold nothing else are joined), `running_share`.
    impure : pa.Table
        Clusters above the threshold that contain negatives: `cluster, rows, positives, lost` (area under the lift
        curve), `share, running_share`.
    unclustered : pa.Table
        Positives in clusters at or below the threshold: `size, clusters, positives`.
    totals : dict
        `false_pairs, missed_pairs, lost` of all groups, including those not shown; the numbers of groups
        (`merged_clusters`, `split_classes`, `impure_clusters`); and `unchanged_rows`, the rows of clusters that equal
        one class.
    metric : str
        The metric of the gains; None without classes.
    dropped, skipped : tuple
        (reason, rows) and (file, reason) left out.
    options : dict
        The given options that affect the result.
    slices : pa.Table
        Slices whose `slice_metric` is worse than that of all rows: the slicing columns, `rows, value, ci_lower,
        ci_upper, effective_units, freedom, shortfall`, by descending shortfall × rows. With several slicings, the
        column `by` names the slicing of each row, and columns of the others are null. `totals` then has `whole` (the
        value of all rows), `slices_below` (intervals shown that lie wholly on its worse side), `slices`, and
        `slices_left_out`: slices without a value (`slices_without_value`) or with fewer than `slices_least_units`
        effective units.
    slice_metric : str
        The metric of the slices, None without them.
    labels : dict of str to int
        What became of labels from another table, as in `streameval.Evaluation`; empty without one.
    basis : str
        ``labelled rows`` if late labels lack some rows: tables that need labels are of the others alone, no estimates.
    labelled_share : float
        The share of labelled rows among all rows, if there is a basis.
    source : Source
        Where the result comes from: data, files, and the command that repeats it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import attribute
    >>> data = pa.table({"cluster": [1, 1, 2, 2], "campaign": [5, 5, 5, 6]})
    >>> found = attribute(data, cluster="cluster", classes="campaign")
    >>> found.merges.select(["cluster", "rows", "false_pairs"]).to_pylist(), found.totals["false_pairs"]
    ([{'cluster': 2, 'rows': 2, 'false_pairs': 1}], 1)
    """

    rows: int
    merges: pa.Table | None
    splits: pa.Table | None
    impure: pa.Table | None
    unclustered: pa.Table | None
    totals: dict[str, float]
    metric: str | None = None
    dropped: tuple[tuple[str, int], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    slices: pa.Table | None = None
    slice_metric: str | None = None
    source: Source = field(default_factory=Source, compare=False)
    labels: dict[str, int] = field(default_factory=dict, compare=False)
    basis: str | None = None
    labelled_share: float | None = None

    def tables(self) -> dict[str, pa.Table]:
        """The tables that are not None, by name."""
        return {name: table for name in TABLES if (table := getattr(self, name)) is not None}

    def render(self, *, plain: bool = False) -> RenderableType:
        """All tables and their conclusions; plain ones have no rules."""
        from streameval.report.attribution import attribution_tables

        return attribution_tables(self, plain=plain)

    def to_dict(self) -> dict[str, object]:
        """Plain values, as in the command line's JSON; NaN becomes None, a binary id hexadecimal text."""
        return {
            "streameval": __version__,
            "options": self.options,
            "rows": self.rows,
            "metric": self.metric,
            **({"slice_metric": self.slice_metric} if self.slice_metric else {}),
            **({"timezones": dict(self.source.zones)} if self.source.zones else {}),
            **({"labels": self.labels} if self.labels else {}),
            **({"basis": self.basis, "labelled_share": self.labelled_share} if self.basis else {}),
            "totals": self.totals,
            **{name: [_plain(row) for row in table.to_pylist()] for name, table in self.tables().items()},
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "skipped": [{"partition": name, "reason": reason} for name, reason in self.skipped],
        }

    def to_html(self, *, with_examples: bool = False) -> str:
        """The text of a self-contained HTML page with all tables.

        Parameters
        ----------
        with_examples : bool
            Whether to show examples, which are values from the data.
        """
        from streameval.report.attribution import attribution_page
        from streameval.report.elements import html_of

        return html_of(attribution_page(self, self.source, with_examples=with_examples))

    def save(self, path: str | os.PathLike[str], *, with_examples: bool = False) -> None:
        """Write everything to a ``.json`` or ``.html`` file, or one Parquet file per table to a directory.

        Parameters
        ----------
        path : str or os.PathLike
        with_examples : bool
            Whether an ``.html`` file shows examples; the other formats always include them.

        Raises
        ------
        OptionError
            If the name has another suffix, or the path cannot be a directory.
        StreamevalError
            If it cannot be written. An existing file is replaced only when the new one is complete.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = Path(path)
        check_target(target)
        if target.suffix and not target.is_dir():
            page = partial(self.to_html, with_examples=with_examples)
            save(target, {"json": lambda: self.to_json(indent=2) + "\n", "html": page})
            return
        target.mkdir(exist_ok=True)
        for name, table in self.tables().items():
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            write_whole(target / f"{name}.parquet", sink.getvalue().to_pybytes())
        write_whole(target / "totals.json", json.dumps(self.totals, indent=2) + "\n")


def check_target(target: Path) -> None:
    """Raise `OptionError` if a result cannot be written there."""
    one_file = bool(target.suffix) and not target.is_dir()
    if one_file and target.suffix.lower() not in (".json", ".html"):
        raise OptionError(f"out={str(target)!r} must end in .json or .html, or be a directory for the tables")
    if not one_file and target.exists() and not target.is_dir():
        raise OptionError(f"out={str(target)!r} is a file; name a directory, or a file that ends in .json or .html")
    if not target.parent.is_dir():
        raise OptionError(f"out={str(target)!r}: its directory does not exist; make it first")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return None if value != value else value


Values = Mapping[str, list[list[bytes]]]  # for each name, one list of values per key
LookUp = Callable[[Mapping[str, ValuesSpec]], Values]

_SHOWN = 3  # number of largest classes listed per cluster, and of largest clusters per class
_TEXT = (pa.types.is_string, pa.types.is_large_string)


@dataclass
class Ids:
    """The ids of one column.

    Attributes
    ----------
    column : how the ids are read
    text : whether the ids are strings
    partitions : path of each partition, keyed by the two words of its hash, which salt the ids
    texts : text of each hashed id, keyed by its words
    """

    column: IdColumn
    text: bool = False
    partitions: dict[tuple[int, int], str] = field(default_factory=dict)
    texts: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, scan: Scan, name: str, scope: str = "global") -> Ids:
        """The ids of a column of a scan."""
        dtype = scan.schema.field(name).type
        column = IdColumn(name, id_type(dtype, name), scope)
        return cls(column, any(test(plain(dtype)) for test in _TEXT), _salts(scope, {p.partition for p in scan.pieces}))

    @property
    def signed(self) -> bool:
        """Whether ids are signed integers with global scope, which are ranked by value."""
        return self.column.type == "signed" and not self.partitions

    @property
    def hashed(self) -> bool:
        """Whether ids are hashes, whose texts are not in the state."""
        return self.column.type == "hash"

    def learn(self, words: Array, texts: Sequence[list[bytes]]) -> None:
        """Record the texts of hashed ids.

        Parameters
        ----------
        words : uint64 array of shape (n, n_words)
        texts : for each id, a list with its text; empty if no row had the id

        Raises
        ------
        OptionError
            If an id has no text; possible only for data passed along with a store.
        """
        for key, values in zip(words, texts, strict=True):
            if not values:
                raise OptionError(
                    f"the data hold no row of some value of {self.column.name} that was counted: they are not those of "
                    "the chosen nights, or were changed since; fold the nights again (replace), or name the files that "
                    "were folded"
                )
            self.texts[key.tobytes()] = values[0]

    def columns(self, name: str, words: Array) -> dict[str, pa.Array]:
        """The column of the ids of `words`, a uint64 array of shape (n, n_words); one of their partitions if scoped."""
        words = words if len(words) else np.empty((0, self.column.words), np.uint64)
        texts = [self.texts.get(np.ascontiguousarray(key).tobytes()) for key in words] if self.hashed else []
        salts = self._salts_of(words, texts) if self.partitions else np.zeros_like(words)
        if not self.hashed:
            kind = np.int64 if self.column.type == "signed" else np.uint64
            ids = pa.array(np.ascontiguousarray(words[:, 0] ^ salts[:, 0]).view(kind))
        elif texts and not any(text is not None for text in texts):
            ids = pa.array([f"#{int(key[0]):016x}" for key in words], pa.string())
        elif self.text:  # Arrow does not convert strings that are not UTF-8
            ids = pa.array([None if text is None else text_of_bytes(text) for text in texts], pa.string())
        else:
            ids = pa.array(texts, pa.binary())
        if not self.partitions:
            return {name: ids}
        paths = [self.partitions.get((int(first), int(second))) for first, second in salts]
        return {name: ids, "partition": pa.array(paths, pa.string())}

    def _salts_of(self, words: Array, texts: Sequence[bytes | None]) -> Array:
        """The hash of each id's partition, as a uint64 array of shape (n, 2)."""
        if self.hashed:
            plain = [(0, 0) if text is None else hash_bytes(text) for text in texts]
            return np.array(plain, np.uint64).reshape(-1, 2) ^ words
        by_second = {second: first for first, second in self.partitions}
        firsts = np.array([by_second.get(int(second), 0) for second in words[:, 1]], np.uint64)
        return np.column_stack((firsts, words[:, 1]))


def _salts(scope: str, partitions: Iterable[str]) -> dict[tuple[int, int], str]:
    return {hash_bytes(path.encode()): path for path in sorted(partitions)} if scope == "partition" else {}


def ids_of(states: Mapping[str, State], partitions: Iterable[str] = ()) -> tuple[Ids, Ids | None]:
    """Readers of the ids in the states of `attribute_states`.

    `partitions` are the names of the partitions that ids may belong to.
    """
    spec = next(states[name].spec for name in ("classes", "cluster") if name in states)
    salts = _salts(spec.scope, partitions)
    if "classes" not in states:
        return Ids(IdColumn(spec.column, spec.type, spec.scope), True, salts), None
    clusters = IdColumn(spec.cluster, spec.cluster_type, spec.scope)
    return Ids(clusters, True, salts), Ids(IdColumn(spec.classes, spec.class_type), True)


def attribute_states(
    engine: Engine, options: Mapping[str, Any], states: Mapping[str, State], clusters: Ids, classes: Ids | None,
    look_up: LookUp | None, /, **facts: Any,
) -> Attribution:  # fmt: skip
    """The clusters and classes that cost most.

    Parameters
    ----------
    engine : the engine that holds the states
    options : options of `streameval.attribute`, in plain form
    states : a contingency state (``classes``), a cluster state (``cluster``), or both
    clusters, classes : their ids; classes are None without a contingency state
    look_up : reads the values of a few groups from the data; None without data
    **facts : the remaining fields of the result
    """
    pairs: _Pairs | None = None
    worst: Impure | None = None
    if classes is not None:
        table = cast("ContingencyCounts", states["classes"])
        pairs = _worst_pairs(engine, table, options["top"], (clusters.signed, classes.signed))
    if "cluster" in states:
        metric = WorstImpure(options["aul_threshold"], options["top"], clusters.signed)
        worst = engine.finalize([(states["cluster"], [metric])])[0][0]
    examples = _look_up(options, clusters, classes, look_up, pairs, worst)
    tables: dict[str, Any] = dict.fromkeys(("merges", "splits", "impure", "unclustered"))
    totals: dict[str, float] = {}
    if pairs is not None and classes is not None:
        facts["metric"] = options["metric"] if options["metric"] in GAINS else GAIN
        _add_pairs(pairs, facts["metric"], clusters, classes, examples, tables, totals)
    if worst is not None:
        totals = {"clusters": int(worst.loss.table.clusters.sum()), **totals}
        _add_impure(worst, clusters, examples, tables, totals)
    rows = next(states[name].totals().rows for name in ("classes", "cluster") if name in states)
    return Attribution(rows, **tables, totals=totals, **facts)


class _Groups(NamedTuple):
    """The groups to show, with their largest cells.

    Attributes
    ----------
    ids : uint64 array of shape (n, n_words), largest cost first
    columns : int64 array of shape (n, n_columns): cost, rows, cells, and for splits the joined pairs
    members : their largest cells
    """

    ids: Array
    columns: Array
    members: Members


class _Pairs(NamedTuple):
    """The worst merges and splits of a table, and what they are shares of."""

    summary: Summary
    costs: PairCosts
    merges: _Groups
    splits: _Groups


def _worst_pairs(engine: Engine, table: ContingencyCounts, top: int, signed: tuple[bool, bool]) -> _Pairs:
    """The worst merges and splits of a table."""
    summary, costs = watch_table(engine, table, partial(PairCosts, top, signed))
    merges, splits = costs.merges.ranked(), costs.splits.ranked()
    members = [Members.of([], _SHOWN, signed=False)] * 2
    if len(merges[0]) or len(splits[0]):
        members = engine.finalize([(table, [Largest(merges[0], splits[0], signed, _SHOWN)])])[0][0]
    return _Pairs(summary, costs, _Groups(*merges, members[0]), _Groups(*splits, members[1]))


def _look_up(
    options: Mapping[str, Any], clusters: Ids, classes: Ids | None, look_up: LookUp | None,
    pairs: _Pairs | None, worst: Impure | None,
) -> Values | None:  # fmt: skip
    """Look up the texts of ids (recorded in `clusters` and `classes`) and examples by table, in one scan.

    Returns the examples; None if none were requested.
    """
    specs: dict[str, ValuesSpec] = {}

    def want(name: str, ids: Sequence[Ids], keys: Array, column: str, most: int, *, by_label: bool = False) -> None:
        if len(keys):
            columns = tuple(each.column for each in ids)
            specs[name] = ValuesSpec(columns, by_label, np.ascontiguousarray(keys).tobytes(), column, most)

    column, most = options["examples"], options["examples_per"]
    shown = [] if worst is None else [worst.ids]
    if pairs is not None and classes is not None:
        merges, splits = pairs.merges, pairs.splits
        shown += [merges.ids, splits.members.ids]
        if classes.hashed:
            want("class ids", [classes], _union([splits.ids, merges.members.ids]), classes.column.name, 1)
        if column:
            merged = np.hstack((merges.ids[merges.members.group], merges.members.ids))
            split = np.hstack((splits.members.ids, splits.ids[splits.members.group]))
            want("merges", [clusters, classes], merged, column, most)
            want("splits", [clusters, classes], split, column, most)
    if clusters.hashed:
        want("cluster ids", [clusters], _union(shown), clusters.column.name, 1)
    if column and worst is not None and len(worst.ids):
        labels = np.tile(np.array([0, 1], np.uint64), len(worst.ids))
        keys = np.column_stack((np.repeat(worst.ids, 2, axis=0), labels))
        want("impure", [clusters], keys, column, most, by_label=True)
    values: Values = look_up(specs) if specs and look_up is not None else {}
    for name, ids in (("cluster ids", clusters), ("class ids", classes)):
        if name in values and ids is not None:
            ids.learn(specs[name].wanted, values[name])
    return values if column else None


def _union(ids: Sequence[Array]) -> Array:
    """The distinct ids of several arrays, as a uint64 array of shape (n, n_words)."""
    parts = [part for part in ids if len(part)]
    return np.unique(np.concatenate(parts), axis=0) if parts else np.empty((0, 1), np.uint64)


def _add_pairs(
    pairs: _Pairs, metric: str, clusters: Ids, classes: Ids, examples: Values | None,
    tables: dict[str, pa.Table], totals: dict[str, float],
) -> None:  # fmt: skip
    """Add the tables of merges and splits and their totals."""
    of, (gain_of_split, gain_of_join) = pairs.summary, gains(metric, pairs.summary)
    agreeing = (of.cells.squares - of.total) // 2
    false, missed = ((side.squares - of.total) // 2 - agreeing for side in (of.clusters, of.classes))
    split = [gain_of_split(cost, rows) for cost, rows, *_ in pairs.merges.columns.tolist()]
    joined = [gain_of_join(joined, rows) for _, rows, _, joined in pairs.splits.columns.tolist()]
    sides = (
        ("merges", pairs.merges, ("cluster", clusters), ("class", classes), "classes", "false_pairs", false, split),
        ("splits", pairs.splits, ("class", classes), ("cluster", clusters), "clusters", "missed_pairs", missed, joined),
    )
    for name, groups, (group, ids), (member, of_members), parts, pairs_name, total, gained in sides:
        costs, rows, cells = groups.columns.T[:3] if len(groups.ids) else np.empty((3, 0), np.int64)
        names = of_members.columns(member, groups.members.ids)
        table = ids.columns(group, groups.ids) | {
            "rows": pa.array(np.ascontiguousarray(rows)),
            parts: pa.array(np.ascontiguousarray(cells)),
            "largest": _largest(groups, names),
            pairs_name: pa.array(costs.tolist(), pa.int64()),
            "share": pa.array([cost / total for cost in costs.tolist()], pa.float64()),
            "gain": pa.array(gained, pa.float64()),
            "running_share": pa.array([cost / total for cost in accumulate(costs.tolist())], pa.float64()),
        }
        if examples is not None:
            lists: list[list[dict[str, Any]]] = [[] for _ in range(len(groups.ids))]
            members = groups.members.group.tolist(), names[member].to_pylist(), examples.get(name, [])
            for at, key, values in zip(*members, strict=True):
                lists[at].append({member: key, "values": _texts(values)})
            kind = pa.struct({member: names[member].type, "values": pa.list_(pa.string())})
            table["examples"] = pa.array(lists, pa.list_(kind))
        tables[name] = pa.table(table)
    totals |= {
        "false_pairs": int(false),
        "missed_pairs": int(missed),
        "merged_clusters": pairs.costs.merged,
        "split_classes": pairs.costs.split,
        "clusters": of.clusters.count,
        "classes": of.classes.count,
        "unchanged_rows": pairs.costs.unchanged_rows,
    }


def _largest(groups: _Groups, names: Mapping[str, pa.Array]) -> pa.Array:
    """The largest cells of each group; a missing cell is a row without an id, which counts as one row."""
    kinds = {name: array.type for name, array in names.items()} | {"rows": pa.int64()}
    cells = zip(*(array.to_pylist() for array in names.values()), groups.members.rows.tolist(), strict=True)
    lists: list[list[dict[str, Any]]] = [[] for _ in range(len(groups.ids))]
    for group, cell in zip(groups.members.group.tolist(), cells, strict=True):
        lists[group].append(dict(zip(kinds, cell, strict=True)))
    for listed, parts in zip(lists, groups.columns[:, 2].tolist() if lists else (), strict=True):
        listed += [dict.fromkeys(kinds) | {"rows": 1}] * (min(_SHOWN, parts) - len(listed))
    return pa.array(lists, pa.list_(pa.struct(kinds)))


def _add_impure(
    worst: Impure, clusters: Ids, examples: Values | None, tables: dict[str, pa.Table], totals: dict[str, float]
) -> None:
    """Add the tables of impure clusters and of unclustered positives, and their totals."""
    loss = worst.loss
    total, sizes = loss.total, loss.unclustered()
    lost = [loss.share(each) for each in worst.lost]
    table = clusters.columns("cluster", worst.ids) | {
        "rows": pa.array(worst.rows),
        "positives": pa.array(worst.positives),
        "lost": pa.array([float(each) for each in lost], pa.float64()),
        "share": pa.array([float(each / total) for each in lost], pa.float64()),
        "running_share": pa.array([float(each / total) for each in accumulate(lost)], pa.float64()),
    }
    if examples is not None:
        values = iter(examples.get("impure", []))  # of both labels in turn
        lists = [
            [{"label": label, "values": _texts(some)} for label, some in enumerate(both) if some]
            for both in zip(values, values, strict=True)
        ]
        kind = pa.struct({"label": pa.int8(), "values": pa.list_(pa.string())})
        table["examples"] = pa.array(lists, pa.list_(kind))
    tables["impure"] = pa.table(table)
    unclustered = {"size": sizes.size, "clusters": sizes.clusters, "positives": sizes.positives}
    tables["unclustered"] = pa.table(unclustered)
    totals |= {
        "lost": float(total),
        "impure_clusters": worst.clusters,
        "unclustered_positives": int(sizes.positives.sum()),
        "positives": int(loss.table.positives.sum()),
    }


def _texts(values: Sequence[bytes]) -> list[str]:
    return list(map(text_of_bytes, values))
