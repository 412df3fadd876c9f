"""The sweep over interleaved cells: each slice has the summary of its rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval import evaluate
from streameval.budget import Budget
from streameval.states.contingency.counts import ContingencySpec, SummarisedCounts
from streameval.states.grouped import By, GroupedSpec, cell_sweep
from streameval.states.grouped.cell_sweep import CellSweep
from streameval.states.grouped.interleaved.cells import InterleavedCells
from streameval.states.mapping import one_by_one
from streameval.states.protocol import Batch

if TYPE_CHECKING:
    from pathlib import Path

METRICS = ["adjusted_rand_index", "v_measure", "bcubed_fscore", "muc_fscore", "split_join_distance"]  # no matching
KINDS = {"signed": pa.int64(), "hash": pa.string()}


def _table(rows: int, groups: int, kind: str, seed: int, hot: float = 0.2) -> pa.Table:
    """Clusters of about three rows, a hot one, many classes and a hot one; the groups have unequal sizes."""
    rng = np.random.default_rng([groups, seed])
    ids = np.where(rng.random(rows) < hot, 7, rng.integers(0, max(1, rows // 3), rows))
    classes = np.where(rng.random(rows) < 0.3, 1, rng.integers(0, 1 << 40, rows) >> rng.integers(0, 39, rows))
    group = np.minimum(rng.geometric(0.3, rows) - 1, groups - 1)
    columns = {"id": pa.array(ids).cast(KINDS[kind]), "k": pa.array(classes).cast(KINDS[kind]), "g": pa.array(group)}
    return pa.table(columns)


def _folded(spec: Any, table: pa.Table, budget: Budget, batches: int = 1) -> Any:
    """The state of some rows."""
    builder = spec.builder(budget, 1 << 12)
    for some in np.array_split(np.arange(len(table)), batches):
        columns = {name: table[name].take(pa.array(some)).combine_chunks() for name in spec.columns}
        builder.update(Batch(np.zeros(some.size, np.uint8), None, columns))
    return builder.state()


def _grouped(inner: ContingencySpec, table: pa.Table, budget: Budget, batches: int = 3) -> Any:
    """The state by `g`, of two builders."""
    spec, half = GroupedSpec(inner, By(("g",))), len(table) // 2
    return _folded(spec, table[:half], budget, batches).merge(_folded(spec, table[half:], budget, batches))


def _check(inner: ContingencySpec, table: pa.Table, budget: Budget) -> Any:
    """Each group has the summary of its rows alone; returns the state of all groups."""
    state = _grouped(inner, table, budget)
    assert isinstance(state.interleaved, InterleavedCells)
    assert not state.apart
    found = CellSweep(state.interleaved, budget).tables(one_by_one)
    assert len(found) == len(state.groups())
    for (value,), name in zip(state.groups(), state.names(), strict=True):
        alone = _folded(inner, table.filter(pa.compute.equal(table["g"], value)), Budget())
        assert found[name].summarised(None) == alone.summary(Budget())
        assert found[name].totals() == alone.totals()
        assert found[name].dropped_rows.tolist() == alone.dropped_rows.tolist()
    return state


def _sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows be enough for a sweep."""
    monkeypatch.setattr(cell_sweep, "_OF_TASK", 1)
    monkeypatch.setattr(cell_sweep, "_OF_SHARD", 1)


def _inner(kind: str) -> ContingencySpec:
    return ContingencySpec("k", "id", kind, kind)


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.integers(1, 300), groups=st.integers(1, 9), seed=st.integers(0, 1 << 20))
def test_each_group_has_the_summary_of_its_rows(kind: str, rows: int, groups: int, seed: int) -> None:
    """Whatever the ids, the classes and the groups."""
    _check(_inner(kind), _table(rows, groups, kind, seed), Budget())


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_may_have_more_rows_than_fit(kind: str, tmp_path: Path) -> None:
    """A hot cluster is separated and visited in parts, from spilled rows."""
    budget = Budget(1 << 18, tmp_path)
    _check(_inner(kind), _table(140_000, 3, kind, 1, hot=0.7), budget)
    assert budget.spilled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [1 << 16, 1 << 30])
def test_items_may_have_counts(kind: str, limit: int) -> None:
    """Rows of a pair that lie side by side are one item."""
    rng = np.random.default_rng(4)
    ids, group = rng.integers(0, 700, 20_000), rng.integers(0, 3, 20_000)
    order = np.lexsort((ids, group))
    columns = {"id": ids[order], "k": ids[order] % 50, "g": group[order]}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    table = table.cast(pa.schema({"id": KINDS[kind], "k": KINDS[kind], "g": pa.int64()}))
    assert _check(_inner(kind), table, Budget(limit)).interleaved.keyed.counted


def test_a_slice_may_have_no_row_with_both_ids() -> None:
    """One of the slices, or all of them."""
    rows, inner = _table(40, 4, "signed", 5), ContingencySpec("k", "id", nulls="drop")
    for keep in (pa.compute.equal(rows["g"], 0), pa.scalar(False)):
        ids = pa.compute.if_else(keep, rows["id"], pa.scalar(None, pa.int64()))
        _check(inner, rows.set_column(0, "id", ids), Budget())


def test_shards_and_tasks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task collects the cells of several shards; a group may lack rows in some."""
    _sweeps(monkeypatch)
    monkeypatch.setattr(cell_sweep, "parted", lambda *_: 500)
    for threads in (1, 3):
        _check(_inner("signed"), _table(9_000, 30, "signed", 2), Budget(threads=threads))


def test_tasks_have_about_as_many_shards_as_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a thread waits for the last task."""
    _sweeps(monkeypatch)
    cells = _grouped(_inner("signed"), _table(9_000, 3, "signed", 2, hot=0), Budget()).interleaved
    for items in (300, 1_000, 1_900, 2_300, 9_000):
        monkeypatch.setattr(cell_sweep, "parted", lambda *_, items=items: items)
        shards = cells.keyed.intervals(items)
        tasks = CellSweep(cells, Budget(threads=2))._tasks
        assert [shard for task in tasks for shard in task] == shards
        assert max(map(len, tasks)) - min(map(len, tasks)) <= 1


def test_slices_of_many_rows_are_swept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the summaries of small tables; a group without rows is an empty table."""
    inner, rows = _inner("signed"), _table(2_000, 4, "signed", 3)
    alone = _grouped(inner, rows, Budget())
    groups = [*alone.groups(), (99,)]
    few = alone.tables(groups, one_by_one, Budget())
    _sweeps(monkeypatch)
    state = _grouped(inner, rows, Budget())
    *swept, none = state.tables(groups, one_by_one, Budget())
    assert all(isinstance(table, SummarisedCounts) for table in swept)
    assert none == inner.empty()
    again = state.tables(groups[:2], one_by_one, Budget())
    assert [one is other for one, other in zip(again, swept, strict=False)] == [True, True]
    for one, other in zip(few, swept, strict=False):
        assert one.summarised(lambda table: table.summary(Budget())) == other.summary


@pytest.mark.parametrize("nulls", ["drop", "singleton"])
def test_an_evaluation_is_the_same_with_a_sweep(nulls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For two cluster columns and two slicings, on two threads."""
    table = _table(5_000, 7, "hash", 6).append_column("h", _table(5_000, 3, "hash", 7)["g"])
    table = table.append_column("other", _table(5_000, 5, "signed", 8)["id"])
    given: Any = {"cluster": ["id", "other"], "classes": "k", "metrics": METRICS}
    given |= {"by": ["g", "g,h"], "nulls": nulls, "threads": 2}
    found = evaluate(table, **given).results
    _sweeps(monkeypatch)
    tables, swept = CellSweep.tables, list[CellSweep]()

    def seen(sweep: CellSweep, each: Any) -> Any:
        swept.append(sweep)
        return tables(sweep, each)

    monkeypatch.setattr(CellSweep, "tables", seen)
    assert evaluate(table, **given).results == found
    assert len(swept) == 4  # of each column by each slicing
