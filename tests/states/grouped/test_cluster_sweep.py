"""Groups of clusters are swept together, whatever their layout."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from streameval.budget import Budget
from streameval.errors import NullError
from streameval.states import codec
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.clusters.sizes import SizeTable
from streameval.states.grouped import cluster_sweep, tag_words
from streameval.states.grouped.cluster_sweep import ClusterSweep, ClusterSweepPart, sweep_groups
from streameval.states.grouped.group_sweep import WHOLE
from streameval.states.grouped.keys import By
from streameval.states.grouped.state import GroupedSpec
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import Batch
from streameval.states.rounds import one_by_one

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS, GROUPS = 3_000, 40


def table() -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Groups, ids and labels; some ids are null, and most clusters have rows of several groups."""
    rng = np.random.default_rng(5)
    group, label = rng.integers(0, GROUPS, ROWS), rng.integers(0, 2, ROWS).astype(np.uint8)
    return group, pa.array(rng.zipf(1.5, ROWS) % 4_000, mask=rng.random(ROWS) < 0.02), label


def folded(kind: pa.DataType, numbers: range, *, unlabelled: bool = False) -> Any:
    """The state of the rows of some groups."""
    group, ids, label = table()
    spec = ClusterSpec("id", "signed" if kind == pa.int64() else "hash", nulls="singleton", unlabelled=unlabelled)
    builder = GroupedSpec(spec, By(("g",))).builder(Budget(), 1 << 9)
    for rows in np.array_split(np.flatnonzero(np.isin(group, numbers)), 5):
        columns = {"id": ids.cast(kind).take(pa.array(rows)), "g": pa.array(group[rows])}
        labelled = rows % 3 > 0 if unlabelled else None
        builder.update(Batch(label[rows] & (True if labelled is None else labelled), None, columns, labelled=labelled))
    return builder.state()


def cut_rows() -> list[int]:
    """Rows of each group in clusters that also have rows of other groups."""
    group, ids, _ = table()
    groups_of: dict[int, set[int]] = {}
    for key, number in zip(ids.to_pylist(), group.tolist(), strict=True):
        groups_of.setdefault(key, set()).add(number)
    cut = [0] * GROUPS
    for key, number in zip(ids.to_pylist(), group.tolist(), strict=True):
        cut[number] += key is not None and len(groups_of[key]) > 1
    return cut


def stored(state: Any) -> Any:
    """The state, written and read."""
    return codec.load(codec.dump(state)[1])


def swept(sweep: ClusterSweep, budget: Budget | None = None) -> dict[Any, tuple[Any, ...]]:
    """The columns of each group's size table and its rows in cut clusters; all rows are group None."""
    parts = [part for shard in sweep.shards(budget) for part in sweep.parts(shard, budget)]
    cut, found = sum(part.cut for part in parts), {}
    for name, (number, _) in sweep.groups.items():
        table = SizeTable.union(part.one(number) for part in parts)
        columns = table.size.tolist(), table.clusters.tolist(), table.positives.tolist()
        found[By(("g",)).group(name) if name else None] = *columns, cut[number]
    return found


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("layout", ["narrow", "wide", "stored", "mixed"])
def test_groups_are_swept_in_any_layout(
    layout: str, kind: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tables are those of their rows alone."""
    monkeypatch.setattr(cluster_sweep, "_SHARDS", 3)
    whole, budget = folded(kind, range(GROUPS)), Budget(1 << 10, tmp_path)
    if layout in ("wide", "mixed"):
        monkeypatch.setattr(tag_words, "MOST", 7)
    if layout == "mixed":  # 20 groups are read, 4 have narrow words, and 16 wide words
        parts = stored(folded(kind, range(9))), stored(folded(kind, range(9, 20)))
        states = [*parts, folded(kind, range(20, 24)), folded(kind, range(24, GROUPS))]
        state = reduce(lambda one, other: one.merge(other), states)
        assert [one.keyed.layout.tag for one in states[2:]] == [10, 32]
    else:
        state = {"narrow": whole, "wide": folded(kind, range(GROUPS))}.get(layout) or stored(whole)
    sweep = sweep_groups(state, one_by_one, budget)
    assert isinstance(sweep, ClusterSweep)
    assert sweep.rows.keyed.layout.tag == (10 if layout in ("narrow", "stored") else 32)
    found = swept(sweep, budget)
    cut = cut_rows()
    for group in whole.groups():
        alone = whole.only(group)
        table = SizeTable.union(part for shard in alone.shards() for part in alone.parts(shard))
        columns = table.size.tolist(), table.clusters.tolist(), table.positives.tolist()
        assert found[group] == (*columns, cut[group[0]])
    total = whole.total()
    table = SizeTable.union(part for shard in total.shards() for part in total.parts(shard))
    assert found[None][:3] == (table.size.tolist(), table.clusters.tolist(), table.positives.tolist())
    assert len(found) == 1 + GROUPS
    assert state == whole


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_rows_without_a_label_are_cut_as_all_others(kind: pa.DataType) -> None:
    """Rows with equal ids are in one cluster, whether or not they have labels."""
    state = folded(kind, range(GROUPS), unlabelled=True)
    assert sweep_groups(state, one_by_one, Budget()) is None
    found = swept(ClusterSweep.of(state, Budget()))
    assert [found[group,][-1] for group in range(GROUPS)] == cut_rows()


def refused(*given: Any) -> tuple[int, np.ndarray]:
    """Count no bucket."""
    return given[5], np.zeros((0, 3), np.int64)


@pytest.mark.parametrize("most", [7, 1 << 10])
def test_a_cluster_may_be_sorted_in_several_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have more groups than fit into one part."""
    monkeypatch.setattr(tag_words, "MOST", most)
    sweep = sweep_groups(folded(pa.int64(), range(GROUPS)), one_by_one, Budget())
    assert isinstance(sweep, ClusterSweep)
    counted, grouped = swept(sweep), KeyedCounts.grouped

    def by_three(keyed: KeyedCounts, *given: Any) -> Iterator[Counts]:
        for counts in grouped(keyed, *given):
            for i in range(0, counts.keys.size, 3):
                columns = (column[i : i + 3] for column in (counts.keys, counts.rest, counts.neg, counts.pos))
                yield Counts(*columns, bucket=counts.bucket)

    monkeypatch.setattr(KeyedCounts, "grouped", by_three)
    monkeypatch.setattr(cluster_sweep, "tally_groups", refused)
    assert swept(sweep) == counted


@pytest.mark.parametrize("cells", [100, 1 << 18])
def test_sorted_clusters_are_listed_only_if_too_large(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard of very large buckets would otherwise list most of its rows."""
    made, listed = ClusterSweepPart.of, []

    def spied(clusters: np.ndarray, positives: np.ndarray, large: np.ndarray, *given: Any, **named: Any) -> Any:
        listed.append((len(clusters), large))
        return made(clusters, positives, large, *given, **named)

    monkeypatch.setattr(cluster_sweep, "_CELLS", cells)
    monkeypatch.setattr(ClusterSweepPart, "of", spied)
    sweep = sweep_groups(folded(pa.int64(), range(GROUPS)), one_by_one, Budget())
    assert isinstance(sweep, ClusterSweep)
    counted = swept(sweep)
    monkeypatch.setattr(cluster_sweep, "tally_groups", refused)
    assert swept(sweep) == counted
    assert all((large[:, 1] >= sizes).all() for sizes, large in listed)
    assert any(len(large) for _, large in listed) == (cells == 100)


def test_a_refused_batch_leaves_the_facts_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it had the first group that needs wide words."""
    monkeypatch.setattr(tag_words, "MOST", 2)
    builder = GroupedSpec(ClusterSpec("id"), By(("g",))).builder(Budget(), 8)
    builder.update(Batch(np.zeros(3, np.uint8), None, {"id": pa.array([7, 7, 8]), "g": pa.array([0, 1, 1])}))
    with pytest.raises(NullError):
        builder.update(Batch(np.zeros(1, np.uint8), None, {"id": pa.array([None], pa.int64()), "g": pa.array([2])}))
    sweep = sweep_groups(builder.state(), one_by_one, Budget())
    assert isinstance(sweep, ClusterSweep)
    assert sweep.groups[WHOLE][1].totals().rows == 3
