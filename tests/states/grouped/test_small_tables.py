"""Small tables: summarised together, each as its rows alone, in any words; many take little time each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import evaluate
from streameval.budget import Budget
from streameval.states.contingency.counts import ContingencySpec, SummarisedCounts
from streameval.states.contingency.rounds import summarize_state
from streameval.states.grouped import small_tables, tag_words
from streameval.states.grouped.keys import By
from streameval.states.grouped.state import GroupedSpec
from streameval.states.protocol import Batch
from streameval.states.rounds import one_by_one

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[int, int | None, int | None]
BUDGET = Budget()
ids = st.one_of(st.none(), st.integers(-3, 3))
rows = st.lists(st.tuples(st.integers(0, 11), ids, ids), min_size=1, max_size=80)


def fold(spec: Any, given: Sequence[Row], kinds: tuple[pa.DataType, pa.DataType]) -> Any:
    """The state of some rows, by group, class and cluster."""
    group, classes, clusters = zip(*given, strict=True)
    columns = {"t": pa.array(classes).cast(kinds[0]), "c": pa.array(clusters).cast(kinds[1]), "k": pa.array(group)}
    builder = spec.builder(BUDGET, 64)
    builder.update(Batch((np.array(group) % 2).astype(np.uint8), None, columns))
    return builder.state()


@settings(max_examples=25)
@given(
    st.lists(rows, min_size=1, max_size=3),
    st.sampled_from(["drop", "singleton"]),
    st.sampled_from([(pa.int64(), pa.int64()), (pa.string(), pa.int32()), (pa.int16(), pa.string())]),
    st.sampled_from([4, 4096]),
    st.sampled_from([1, 5, 1 << 15]),
)
def test_each_table_is_that_of_its_rows(
    parts: list[list[Row]], nulls: str, kinds: tuple[pa.DataType, pa.DataType], groups: int, most: int
) -> None:
    """In narrow or wide words, of several batches, with and without nulls; large tables are left out."""
    types = ("hash" if kind == pa.string() else "signed" for kind in kinds)
    inner = ContingencySpec("t", "c", *types, nulls=nulls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tag_words, "MOST", groups)
        patch.setattr(small_tables, "_MOST", most)
        states = [fold(GroupedSpec(inner, By(("k",))), part, kinds) for part in parts]
        grouped = states[0]
        for state in states[1:]:
            grouped = grouped.merge(state)
        keys = [*grouped.groups(), (99,)]
        tables = small_tables.tables(grouped, keys, one_by_one, BUDGET)
        for (group,), table in zip(keys, tables, strict=True):
            own = [row for part in parts for row in part if row[0] == group]
            alone = fold(inner, own, kinds) if own else inner.empty()
            assert table.totals() == alone.totals()
            assert table.dropped_rows.tolist() == alone.dropped_rows.tolist()
            assert table.summarised(lambda state: summarize_state(state, BUDGET)) == summarize_state(alone, BUDGET)
        found = small_tables.small_tables(grouped, BUDGET, one_by_one)
        assert all(isinstance(table, SummarisedCounts) and table.totals().rows <= most for table in found.values())


@pytest.mark.parametrize(
    "asked",
    [
        {"cluster": "c", "classes": "t", "metrics": ["rand_index"]},
        {"score": "s", "metrics": ["roc_auc"], "unit": "c"},
    ],
    ids=["tables", "intervals"],
)
def test_a_small_slice_takes_little_time(asked: dict[str, Any]) -> None:
    """Some 0.4 ms of the processor; a table took 3 ms, and intervals the more the more slices there were."""
    count = 1200
    k = np.arange(2 * count)
    table = pa.table({"k": k % count, "c": k % 10, "t": k % 7, "label": k % 2, "s": k / count})
    evaluate(table.slice(0, 40), by="k", threads=1, **asked)
    start = time.process_time()
    assert len(evaluate(table, by="k", threads=1, **asked).results) == count + 1
    assert time.process_time() - start < 1.5e-3 * count
