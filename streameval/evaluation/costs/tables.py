"""The tables of an attribution, from the costliest groups and their largest cells.

Ids are decoded from their words in a state: integers directly, texts by a scan of the data, partitions by hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.errors import OptionError
from streameval.metrics.contingency.attribution import gains
from streameval.states.keyed.ids import hash_words, id_type
from streameval.states.values import IdColumn
from streameval.wording import text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.costs.attributed import Attribution
    from streameval.metrics.clusters.attribution import Impure
    from streameval.metrics.contingency.attribution import Members, PairCosts
    from streameval.scan import Scan
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
    def of(cls, found: Scan, name: str, scope: str = "global") -> Ids:
        """The ids of a column of a scan."""
        dtype = found.schema.field(name).type
        column = IdColumn(name, id_type(dtype, name), scope)
        plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        paths = {piece.partition for piece in found.pieces} if scope == "partition" else set()
        salts = {hash_words(path.encode()): path for path in sorted(paths)}
        return cls(column, any(test(plain) for test in _TEXT), salts)

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
            If an id has no text.
        """
        for key, found in zip(words, texts, strict=True):
            if not found:
                raise not_there(self.column.name)
            self.texts[key.tobytes()] = found[0]

    def values(self, words: Array, nulls: Array | None = None) -> pa.Array:
        """The ids of `words`, a uint64 array of shape (n, n_words); null where `nulls` is true."""
        words = self._shaped(words)
        if not self.hashed:
            first = words[:, 0] ^ self._salts(words)[:, 0] if self.partitions else words[:, 0]
            kind = np.int64 if self.column.type == "signed" else np.uint64
            return pa.array(np.ascontiguousarray(first).view(kind), mask=nulls)
        known = [self.texts.get(np.ascontiguousarray(key).tobytes()) for key in words]
        if not any(text is not None for text in known) and len(known):
            shown: list[Any] = [f"#{int(key[0]):016x}" for key in words]
            return pa.array(shown, pa.string(), mask=nulls)
        if self.text:  # Arrow does not convert strings that are not UTF-8
            return pa.array([None if text is None else text_of_bytes(text) for text in known], pa.string(), mask=nulls)
        return pa.array(known, pa.binary(), mask=nulls)

    def _salts(self, words: Array) -> Array:
        """The hash of each id's partition, as a uint64 array of shape (n, 2)."""
        if self.hashed:
            texts = (self.texts.get(np.ascontiguousarray(key).tobytes()) for key in words)
            plain = np.array([(0, 0) if text is None else hash_words(text) for text in texts], np.uint64)
            return plain.reshape(-1, 2) ^ words
        by_second = {second: first for first, second in self.partitions}
        seconds = words[:, 1]
        firsts = np.array([by_second.get(int(second), 0) for second in seconds], np.uint64)
        return np.column_stack((firsts, seconds))

    def paths(self, words: Array) -> pa.Array:
        """The partition of each id; null if unknown."""
        salts = self._salts(self._shaped(words))
        return pa.array([self.partitions.get((int(a), int(b))) for a, b in salts], pa.string())

    def _shaped(self, words: Array) -> Array:
        """The words; an empty array gets the right number of columns."""
        return words if len(words) else np.empty((0, self.column.words), np.uint64)


def not_there(column: str) -> OptionError:
    """The error if the data have no row of an id that was counted; possible only for data passed along with a store."""
    msg = (
        f"the data hold no row of some value of {column} that was counted: they are not those of the chosen nights, or "
        "were changed since; fold the nights again (replace), or name the files that were folded"
    )
    return OptionError(msg)


def ids_of_states(cluster: str, table: Any, sizes: Any, partitions: Sequence[str] = ()) -> tuple[Ids, Ids | None]:
    """Readers of cluster ids, and of class ids if there is a contingency state.

    Parameters
    ----------
    cluster : the cluster column
    table, sizes : a contingency state and a cluster state; one may be None
    partitions : names of the partitions that ids may belong to
    """
    spec = (sizes if table is None else table).spec
    scope, kind = spec.scope, spec.type if table is None else spec.cluster_type
    salts = {hash_words(name.encode()): name for name in sorted(partitions)} if scope == "partition" else {}
    clusters = Ids(IdColumn(cluster, kind, scope), True, salts)
    return clusters, None if table is None else Ids(IdColumn(spec.classes, spec.class_type), True)
