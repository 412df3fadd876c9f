"""Tagged cells: slices of clusters against classes in one table, however it is spilled, merged and read."""

from __future__ import annotations

import pickle
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from streameval.budget import Budget
from streameval.errors import NullError
from streameval.states import codec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped import tag_words
from streameval.states.grouped.keys import By
from streameval.states.grouped.state import GroupedSpec
from streameval.states.keyed import hot
from streameval.states.protocol import Batch

if TYPE_CHECKING:
    from pathlib import Path

CLUSTERS = [pa.int64(), pa.string()]


def _rows(rows: int, groups: int, kind: pa.DataType, seed: int = 0) -> tuple[np.ndarray, pa.Table]:
    """Labels and columns: clusters of about three rows, a hot one with many classes, and a hot pair."""
    rng = np.random.default_rng([groups, seed])
    ids = np.where(rng.random(rows) < 0.2, 7, rng.integers(0, rows // 3, rows))
    classes = np.where(rng.random(rows) < 0.3, 1, rng.integers(0, rows, rows))
    group = np.sort(rng.integers(0, groups, rows))  # a batch has few of them
    columns = {"id": pa.array(ids).cast(kind), "k": pa.array(classes), "g": pa.array(group)}
    return rng.integers(0, 2, rows).astype(np.uint8), pa.table(columns)


def _spec(table: pa.Table, nulls: str = "error") -> GroupedSpec:
    kind = "signed" if table.schema.field("id").type == pa.int64() else "hash"
    return GroupedSpec(ContingencySpec("k", "id", cluster_type=kind, nulls=nulls), By(("g",)))


def _folded(spec: Any, label: np.ndarray, table: pa.Table, budget: Budget, batches: int = 1) -> Any:
    """The state of some rows."""
    builder = spec.builder(budget, 1 << 12)
    for some in np.array_split(np.arange(label.size), batches):
        taken = table.take(pa.array(some))
        builder.update(Batch(label[some], None, {name: taken[name].combine_chunks() for name in spec.columns}))
    return builder.state()


def _of_parts(spec: GroupedSpec, label: np.ndarray, table: pa.Table, budget: Budget, parts: int) -> Any:
    """The merged state of parts of the rows, folded by builders of one budget."""
    cuts = np.array_split(np.arange(label.size), parts)
    states = (_folded(spec, label[rows], table.take(pa.array(rows)), budget, 4) for rows in cuts)
    return reduce(lambda one, other: one.merge(other), states)


def _checked(state: Any, label: np.ndarray, table: pa.Table) -> None:
    """Every group is the state of its rows alone, and all of them are the state of all rows."""
    inner, group = state.spec.inner, table["g"].to_numpy()
    total = state.total()
    assert total == _folded(inner, label, table, Budget())
    for key, found in zip(state.groups(), state.several(state.groups()), strict=True):
        rows = np.flatnonzero(group == key[0])
        assert found == _folded(inner, label[rows], table.take(pa.array(rows)), Budget())
        assert found == state.only(key)
        assert state.without(key).merge(found) == total


def test_hot_pairs_of_a_slice_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs may share their cluster and their slice; each still has a place in the table of hot keys."""
    monkeypatch.setattr(hot, "LEARN", 1 << 14)
    rng, rows = np.random.default_rng(3), 1 << 16
    columns = {"id": rng.integers(0, 10, rows), "k": rng.integers(0, 10, rows), "g": rng.integers(0, 20, rows)}
    label, table = np.zeros(rows, np.uint8), pa.table(columns)
    spec = _spec(table)
    builder = spec.builder(Budget(), rows)
    builder.update(Batch(label, None, {name: table[name].combine_chunks() for name in spec.columns}))
    state = builder.state()
    assert state.tagged["cells"].items.sum() <= 2 * 10 * 10 * 20
    _checked(state, label, table)


@pytest.mark.parametrize("kind", CLUSTERS, ids=str)
def test_slices_share_a_table_that_is_spilled(kind: pa.DataType, tmp_path: Path) -> None:
    """Codes take no memory, nor does the state of all rows; a cluster may have more rows than are gathered."""
    label, table = _rows(20_000, 12, kind)
    budget = Budget(1 << 18, tmp_path)
    state = _of_parts(_spec(table), label, table, budget, 3)
    assert budget.spilled
    held, words = budget.resident + budget.spilled, state.tagged["cells"].layout.words
    total = state.total(budget)
    pieces = sum(segment.piece_bytes for segment in state.tagged["cells"].segments)
    assert held == budget.resident + budget.spilled <= pieces + 8 * words * label.size
    assert int(total.cells.rows.sum()) == label.size
    _checked(state, label, table)
    assert codec.load(codec.dump(state)[1]) == state


@pytest.mark.parametrize("kind", CLUSTERS, ids=str)
def test_further_slices_have_wide_words(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than narrow words distinguish, in a batch, in a task, or in another process."""
    monkeypatch.setattr(tag_words, "MOST", 5)
    label, table = _rows(3_000, 9, kind)
    spec = _spec(table)
    state = _of_parts(spec, label, table, Budget(), 2)
    foreign = _folded(spec, label[-900:], table.slice(2_100), Budget())
    state = state.merge(pickle.loads(pickle.dumps(foreign)))
    assert state.tagged["cells"].layout.tag == 32
    again = np.concatenate((np.arange(3_000), np.arange(2_100, 3_000)))
    _checked(state, label[again], table.take(pa.array(again)))
    assert codec.load(codec.dump(state)[1]) == state


def test_states_of_other_processes_get_the_same_codes() -> None:
    """The codes of one are given to the rows of the other."""
    label, table = _rows(900, 4, pa.int64())
    more, further = _rows(900, 6, pa.int64(), seed=1)
    state = _folded(_spec(table), label, table, Budget())
    state = state.merge(pickle.loads(pickle.dumps(_folded(_spec(table), more, further, Budget()))))
    _checked(state, np.concatenate((label, more)), pa.concat_tables([table, further]))


@pytest.mark.parametrize("nulls", ["drop", "singleton"])
@pytest.mark.parametrize("coded", [False, True])
def test_rows_with_a_null_id_count_in_their_slice(nulls: str, coded: bool) -> None:
    """They are left out or form singletons, also where the null is in a dictionary."""
    label, table = _rows(600, 3, pa.string())
    rng = np.random.default_rng(5)
    for name in ("id", "k"):
        array = pa.array(table[name].to_pylist(), mask=rng.random(600) < 0.1)
        array = array.dictionary_encode(null_encoding="encode") if coded else array
        table = table.set_column(table.schema.get_field_index(name), name, array)
    spec = GroupedSpec(ContingencySpec("k", "id", cluster_type="hash", nulls=nulls), By(("g",)))
    state = _folded(spec, label, table, Budget())
    _checked(state, label, table)


def test_a_null_id_is_refused_unless_a_policy_allows_it() -> None:
    """By the words of the state without slices."""
    table = pa.table({"id": pa.array([1, None]), "k": pa.array([1, 2]), "g": pa.array([0, 1])})
    with pytest.raises(NullError, match="cluster column 'id' has nulls"):
        _folded(_spec(table), np.zeros(2, np.uint8), table, Budget())
