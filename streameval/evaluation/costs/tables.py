"""The tables of an attribution, from folded states of one cluster column: the costliest groups and their largest cells.

One sweep over the states finds the groups, another one their cells. Ids are decoded from their words in a state:
integers directly, texts by a scan of the data, partitions by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from streameval.errors import OptionError
from streameval.evaluation.costs.attributed import Attribution
from streameval.evaluation.families import watch_table
from streameval.metrics.clusters import Impure, WorstImpure
from streameval.metrics.contingency.attribution import GAIN, GAINS, Largest, Members, PairCosts, gains
from streameval.states.keyed.ids import hash_bytes, id_type
from streameval.states.values import IdColumn, ValuesSpec
from streameval.wording import text_of_bytes

if TYPE_CHECKING:
    from streameval.engine import Engine
    from streameval.scan import Scan
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.protocol import State
    from streameval.typing import Array

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
        plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        return cls(column, any(test(plain) for test in _TEXT), _salts(scope, {p.partition for p in scan.pieces}))

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
