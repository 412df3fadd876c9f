"""The tables of an attribution, from the costliest groups and their largest cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.metrics.contingency.attribution import gains
from streameval.wording import text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.costs.ids import Ids
    from streameval.metrics.clusters.attribution import Impure
    from streameval.metrics.contingency.attribution import Members, PairCosts
    from streameval.typing import Array

SHOWN = 3  # number of largest classes listed per cluster, and of largest clusters per class


@dataclass(frozen=True)
class Shown:
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

    def keys(self, *, of_classes: bool) -> Array:
        """Words of (cluster, class) for every cell shown."""
        groups = self.ids[self.members.group]
        return np.hstack((self.members.ids, groups) if of_classes else (groups, self.members.ids))


@dataclass(frozen=True)
class PairTables:
    """The worst merges and splits, with ids still as words."""

    classes: Ids
    summary: Any
    costs: PairCosts
    merges: Shown
    splits: Shown

    def added(
        self, result: Attribution, clusters: Ids, metric: str, values: Mapping[str, list[list[bytes]]] | None
    ) -> Attribution:
        """Add these tables to a result; `values` holds examples, or is None if none were requested."""
        gain = gains(metric, self.summary)
        pairs = self.summary
        agreeing = (pairs.cells.squares - pairs.total) // 2
        false = (pairs.clusters.squares - pairs.total) // 2 - agreeing
        missed = (pairs.classes.squares - pairs.total) // 2 - agreeing
        merges = _named("cluster", clusters, self.merges.ids)
        merges |= _sized(self.merges, "classes", "class", self.classes)
        gained = [gain.split(cost, rows) for cost, rows, *_ in self.merges.columns.tolist()]
        merges |= _costs("false_pairs", self.merges.columns[:, 0], false, gained)
        splits = _named("class", self.classes, self.splits.ids)
        splits |= _sized(self.splits, "clusters", "cluster", clusters)
        gained = [gain.joined(joined, rows) for _, rows, _, joined in self.splits.columns.tolist()]
        splits |= _costs("missed_pairs", self.splits.columns[:, 0], missed, gained)
        if values is not None:
            merges["examples"] = _examples(self.merges, "class", self.classes, values.get("merges", []))
            splits["examples"] = _examples(self.splits, "cluster", clusters, values.get("splits", []))
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
class ImpureTable:
    """The worst impure clusters, with ids still as words."""

    worst: Impure

    def keys(self) -> Array:
        """Words of (cluster, label) for every cluster shown, with both labels."""
        ids = np.repeat(self.worst.ids, 2, axis=0)
        return np.column_stack((ids, np.tile(np.array([0, 1], np.uint64), len(self.worst.ids))))

    def added(self, result: Attribution, clusters: Ids, values: Mapping[str, list[list[bytes]]] | None) -> Attribution:
        """Add this table to a result; `values` holds examples, or is None if none were requested."""
        loss = self.worst.loss
        total = loss.total
        lost = [loss.share(each) for each in self.worst.lost]
        running = accumulate(lost)
        table = _named("cluster", clusters, self.worst.ids) | {
            "rows": pa.array(self.worst.rows),
            "positives": pa.array(self.worst.positives),
            "lost": pa.array([float(each) for each in lost], pa.float64()),
            "share": pa.array([float(each / total) for each in lost], pa.float64()),
            "running_share": pa.array([float(each / total) for each in running], pa.float64()),
        }
        if values is not None:
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
    """The column of ids, and a column of partitions if ids are scoped to partitions."""
    found = {name: ids.values(words)}
    return found | {"partition": ids.paths(words)} if ids.partitions else found


def _sized(shown: Shown, parts: str, member: str, ids: Ids) -> dict[str, pa.Array]:
    """The rows of each group, the number of its cells, and its largest cells."""
    rows, count = (pa.array(np.ascontiguousarray(shown.columns[:, c])) for c in (1, 2)) if len(shown.ids) else _none(2)
    return {"rows": rows, parts: count, "largest": _largest(shown, member, ids)}


def _none(columns: int) -> list[pa.Array]:
    return [pa.array([], pa.int64())] * columns


def _largest(shown: Shown, member: str, ids: Ids) -> pa.Array:
    """The largest cells of each group; a missing cell is a row without an id, which counts as one row."""
    cells = _cells(shown, member, ids)
    kinds = {name: array.type for name, array in _named(member, ids, shown.members.ids[:0]).items()}
    if cells:
        kinds = {name: array.type for name, array in _named(member, ids, shown.members.ids).items()}
    lists: list[list[dict[str, Any]]] = [[] for _ in range(len(shown.ids))]
    for group, cell in zip(shown.members.group.tolist(), cells, strict=True):
        lists[group].append(cell)
    for i, found in enumerate(lists):
        missing = min(SHOWN, int(shown.columns[i, 2])) - len(found)
        found += [dict.fromkeys(kinds) | {"rows": 1}] * missing
    return pa.array(lists, pa.list_(pa.struct(kinds | {"rows": pa.int64()})))


def _cells(shown: Shown, member: str, ids: Ids) -> list[dict[str, Any]]:
    """The largest cells as plain values."""
    columns = {name: array.to_pylist() for name, array in _named(member, ids, shown.members.ids).items()}
    columns["rows"] = shown.members.rows.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _examples(shown: Shown, member: str, ids: Ids, values: Sequence[list[bytes]]) -> pa.Array:
    """Values of the largest cells of each group."""
    names = ids.values(shown.members.ids)
    lists: list[list[dict[str, Any]]] = [[] for _ in range(len(shown.ids))]
    for group, name, found in zip(shown.members.group.tolist(), names.to_pylist(), values, strict=True):
        lists[group].append({member: name, "values": _texts(found)})
    return pa.array(lists, pa.list_(pa.struct({member: names.type, "values": pa.list_(pa.string())})))


def _texts(values: Sequence[bytes]) -> list[str]:
    return list(map(text_of_bytes, values))


def _costs(name: str, costs: Array, total: int, gained: Sequence[float]) -> dict[str, pa.Array]:
    """The columns of costs, their shares of the total, gains and running shares."""
    each = costs.tolist()
    return {
        name: pa.array(each, pa.int64()),
        "share": pa.array([cost / total for cost in each], pa.float64()),
        "gain": pa.array(gained, pa.float64()),
        "running_share": pa.array([cost / total for cost in accumulate(each)], pa.float64()),
    }
