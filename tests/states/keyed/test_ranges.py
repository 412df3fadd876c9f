"""Ranges: a state in parts, here and as tasks of a cluster, is the state."""

import pickle
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from strategies import SUBJECTS, Subject, by_name, difference

from streameval.budget import Budget
from streameval.engine import work
from streameval.engine.cluster import ClusterEngine
from streameval.engine.connection import Connection, key_factory
from streameval.engine.fold import Folded, Plan
from streameval.engine.graphs import exchange, size, tree
from streameval.errors import ClusterError
from streameval.scan import Piece, RowGroups
from streameval.scan.parquet.row_groups import Group
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.by_cluster import summarize_state
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.labels import LabelSpec
from streameval.states.protocol import Batch
from streameval.states.rounds import balance_ranges, buckets, join_rows, outline_only, restore_state, select_range
from streameval.states.scores.counts import ScoreSpec, fold_arrays
from streameval.states.scores.histogram import HistogramSpec

KEYED = [subject for subject in SUBJECTS if subject.spec.empty().runs()]
KINDS = list({tuple(type(getattr(s.spec, name, s.spec)) for name in ("inner", "key")): s for s in SUBJECTS}.values())


def sent(value: Any) -> Any:
    """The value as another process gets it."""
    return pickle.loads(pickle.dumps(value, protocol=5))


@by_name(KEYED)
def test_ranges_of_two_folds_are_the_state(subject: Subject) -> None:
    """Cut anywhere, sent and joined again, the rows are those of the whole; so are the totals of the outlines."""

    @settings(max_examples=5)
    @given(subject.tables(), st.floats(0, 1), st.integers(1, 7))
    def check(table: pa.Table, at: float, count: int) -> None:
        whole, here = subject.fold(table), int(at * table.num_rows)
        folds = [subject.fold(part) for part in (table.slice(0, here), table.slice(here))]
        outline = sent(outline_only(folds[0])).merge(sent(outline_only(folds[1])))
        ranges = [cut for cut, _ in balance_ranges(outline, buckets(outline), count)]
        parts = [join_rows([sent(select_range(fold.runs(), cut)) for fold in folds]) for cut in ranges]
        assert not difference(whole, whole.with_runs(join_rows(parts)))
        assert all(
            one == other or abs(one - other) < 1e-12 * one
            for one, other in zip(vars_of(whole.totals()), vars_of(outline.totals()), strict=True)
        )
        for part in parts:
            assert restore_state(outline, part).totals() == outline.totals()

    check()


def vars_of(totals: Any) -> list[float]:
    """The numbers of totals."""
    return [totals.neg, totals.pos, totals.neg_weight, totals.pos_weight]


def test_an_outline_says_where_its_rows_are() -> None:
    """Reading rows that lie elsewhere is an error, not garbage."""
    outline = outline_only(fold_arrays(np.array([0, 1], np.uint8), np.array([0.1, 0.9])))
    refuses(ClusterError, "are on the workers", list, outline.parts())
    builder = ContingencySpec("class", "cluster").builder(Budget(), 8)
    builder.update(Batch(np.zeros(3, np.uint8), None, {name: pa.array([1, 1, 2]) for name in ("class", "cluster")}))
    refuses(ClusterError, "are on the workers", summarize_state, outline_only(builder.state()), Budget())


def folded(subject: Subject, table: pa.Table) -> Any:
    """Fold a table: a task."""
    return subject.fold(table)


def merged(one: Any, other: Any) -> Any:
    """Merge two states: a task."""
    return one.merge(other)


@by_name(KINDS)
def test_every_state_is_the_same_folded_and_merged_on_a_cluster(subject: Subject, client: Any) -> None:
    """Law 1 where folds and merges are tasks of other processes, for each kind of state and key."""
    bare = replace(subject, values=None, others=())  # strategies do not travel

    @settings(max_examples=2)  # the first has no rows
    @given(subject.tables(), st.floats(0, 1))
    def check(table: pa.Table, at: float) -> None:
        here = int(at * table.num_rows)
        parts = [client.submit(folded, bare, part, pure=False) for part in (table.slice(0, here), table.slice(here))]
        found = client.submit(merged, *parts, pure=False).result()
        assert not difference(subject.fold(table), found)

    check()


@pytest.mark.parametrize("tasks", [1000, 40, 4])
def test_an_exchange_in_levels_is_one_exchange(client: Any, tasks: int) -> None:
    """However few tasks a level may have, the ranges are the same."""
    rng = np.random.default_rng(0)
    states = [fold_arrays(rng.integers(0, 2, 500).astype(np.uint8), rng.random(500)) for _ in range(20)]
    outline = outline_only(states[0])
    for state in states[1:]:
        outline = outline.merge(outline_only(state))
    shards = outline.keyed.intervals(items=100)
    cuts = [{"state": cut} for cut, _ in balance_ranges(outline, shards, 9)]
    folds = client.scatter([{"state": state.runs()} for state in states], broadcast=True)
    nodes = exchange(folds, cuts, key_factory(), tasks=tasks)
    ranges = client.gather(client.compute(nodes, optimize_graph=False))
    whole = states[0]
    for state in states[1:]:
        whole = whole.merge(state)
    assert not difference(whole, whole.with_runs(join_rows([part["state"] for part in ranges])))
    assert len(ranges) == len(cuts) == 9
    for part, cut in zip(ranges, cuts, strict=True):
        assert not difference_in(whole, part["state"], cut["state"])


def difference_in(whole: Any, rows: Any, cut: tuple[int, int]) -> str:
    """How a range differs from the whole in its buckets."""
    expected = whole.with_runs(select_range(whole.runs(), cut))
    return difference(expected, whole.with_runs(rows))


def scores_in(budget: Budget) -> KeyedCounts:
    """The runs of many scores."""
    rng = np.random.default_rng(0)
    builder = ScoreSpec("score", "f8").builder(budget, 100_000)
    builder.update(Batch(rng.integers(0, 2, 100_000).astype(np.uint8), None, {"score": pa.array(rng.random(100_000))}))
    return builder.state().keyed


def test_dask_is_told_how_large_states_are() -> None:
    """A histogram is its table, runs are what they hold in memory; what is spilled does not count."""
    histogram = HistogramSpec("score", "f4").empty()
    assert sys.getsizeof(Folded({histogram.spec: histogram})) > sys.getsizeof(histogram) > histogram.table.nbytes
    runs = scores_in(Budget())
    assert sys.getsizeof(runs) > runs.nbytes
    spilled = scores_in(Budget(1))
    assert spilled.nbytes == runs.nbytes
    assert sys.getsizeof(spilled) < sys.getsizeof(runs) - runs.nbytes // 2


def test_a_split_copies_nothing_and_travels_as_rows() -> None:
    """Its rows are where the fold's are, in memory and then spilled; Dask counts them once, and again where they go."""
    budget = Budget(1 << 30)
    runs = scores_in(budget)
    rows = {"state": {"keyed": runs}}
    here = work.split((None, rows), {"state": (1 << 14, 1 << 15)})
    [part] = here.rows["state"]["keyed"].segments
    assert np.shares_memory(part.words.read(), runs.segments[0].words.read())
    there = pickle.loads(pickle.dumps(here))
    assert sys.getsizeof(here) < 100 < sys.getsizeof(there["state"]["keyed"]) - part.words.nbytes + 100
    before = part.words.read().copy()
    budget.room = 0
    budget.hold(np.zeros(1 << 16))
    assert not part.words.resident
    np.testing.assert_array_equal(part.words.read(), before)
    np.testing.assert_array_equal(there["state"]["keyed"].segments[0].words.read(), before)


def planner(workers: int, threads: int) -> tuple[ClusterEngine, Plan]:
    """An engine of workers with 16 GiB each, and the plan of a score and a cluster column."""
    connection = Connection(None, workers, workers * threads, 16 << 30, threads, "nowhere")
    specs = (ScoreSpec("score"), ClusterSpec("cluster"))
    return ClusterEngine.start(connection), Plan(pa.schema({}), LabelSpec("label"), None, specs)


@pytest.mark.parametrize("exponent", [7, 9, 11, 12])
@pytest.mark.parametrize(("workers", "threads"), [(2, 1), (100, 4)])
def test_a_run_is_planned_within_its_tasks(exponent: int, workers: int, threads: int) -> None:
    """At most twenty folds per gigabyte, or one per thread; with folds × ranges at most 10⁵ tasks."""
    rows, nbytes, count = 10**exponent, 12 * 10**exponent, 10_000
    source = RowGroups(None, "file", (Group(0, 0, rows // count, nbytes // count),))
    pieces = [Piece("", str(i), 0, rows // count, nbytes // count, source=source) for i in range(count)]
    engine, plan = planner(workers, threads)
    folds = len(engine.assigned(pieces, rows, plan))
    ranges, expected = engine.count_tasks(folds, 1, 10 * rows, [])
    assert folds < 20 * nbytes / 1e9 + workers * threads
    assert sum(expected.values()) <= 100_000
    assert ranges >= 10 * rows * 4 * threads // (16 << 30)
    assert expected["split"] <= folds * ranges


def test_states_that_need_too_many_tasks_are_refused() -> None:
    """A hundred workers cannot hold 10¹³ rows in ranges of a quarter of their memory."""
    engine, plan = planner(100, 4)
    source = RowGroups(None, "file", (Group(0, 0, 10**13, 12 * 10**13),))
    piece = Piece("", "file", 0, 10**13, 12 * 10**13, source=source)
    refuses(ClusterError, "need 93,200 ranges", engine.assigned, [piece], piece.rows, plan)


def test_merges_have_a_bounded_fan_in() -> None:
    """A tree of a thousand nodes merges no more than 32 at a time."""
    leaves = [dask.delayed(lambda i=i: [i], pure=False)() for i in range(1000)]
    sizes: list[int] = []

    def merge(parts: list[list[int]]) -> list[int]:
        sizes.append(len(parts))
        return [x for part in parts for x in part]

    assert tree(leaves, merge, key_factory()).compute(scheduler="synchronous") == list(range(1000))
    assert max(sizes) <= 32


@pytest.mark.parametrize(("folds", "ranges"), [(1, 1), (5, 3), (20, 5), (34, 24)])
def test_tasks_are_counted_as_they_are_made(folds: int, ranges: int) -> None:
    """The plan counts splits and merges as the graph has them, in one level or in several."""
    made = Counter[str]()
    key = key_factory()

    def counted(name: str, *numbers: int) -> str:
        made[name] += 1
        return key(name, *numbers)

    cuts = [{"state": (r, r + 1)} for r in range(ranges)]
    exchange([dask.delayed(int)(i) for i in range(folds)], cuts, counted, tasks=20)
    assert (made["split"], made["merge"]) == size(folds, ranges, tasks=20)
