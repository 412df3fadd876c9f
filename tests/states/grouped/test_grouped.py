"""Grouped states: laws 6 and 7, the keys, and the words of tagged rows."""

import datetime as dt
import math
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from strategies import GROUPED, Subject, by_name, difference, sizes

from streameval.budget import Budget
from streameval.errors import OptionError, SchemaError
from streameval.kernels.keyed.sizes import LARGEST
from streameval.kernels.keys import unmix
from streameval.states.blocks import SizeChanges
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.cluster_sizes import SizeTable
from streameval.states.contingency.by_cluster import summarize_state
from streameval.states.contingency.counts import ContingencySpec, SummarisedCounts
from streameval.states.grouped import sweeps, tag_words
from streameval.states.grouped.builder import TaggedBuilder
from streameval.states.grouped.keys import Blocks, By
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.grouped.sweeps import ClusterSweep
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed.ids import hash_bytes
from streameval.states.protocol import Batch
from streameval.states.rounds import one_by_one
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.quantile_sketch import QuantileSpec


def _inner(subject: Subject) -> Subject:
    """The subject whose states are split."""
    return Subject(subject.name, subject.spec.inner, subject.kind, subject.values)


def _group_of_each_row(subject: Subject, table: pa.Table) -> list[Any]:
    """The group of each row, value by value."""
    key = subject.spec.key
    groups = []
    for row in range(table.num_rows):
        one = table.slice(row, 1).combine_chunks().to_batches()[0]
        columns = {name: one.column(name) for name in key.columns}
        origin = one.column("partition")[0].as_py()
        row_number, labelled = one.column("row").to_numpy(), subject.labelled(one.column("weight").to_numpy())
        batch = Batch(np.zeros(1, np.uint8), None, columns, kept=row_number, origin=origin, labelled=labelled)
        groups.append(key.group(key.split(batch).names[0].as_py()))
    return groups


@by_name(GROUPED)
def test_groups_are_states_of_their_rows(subject: Subject) -> None:
    """Law 6: the total is the state of all rows. Law 7: a group and all others make the total, each of its rows."""

    @settings(max_examples=2 if isinstance(subject.spec.inner, HistogramSpec) else 5)  # the first has no rows
    @given(subject.tables(st.just(1)), st.sampled_from([1, 7, 1000]), st.booleans())
    def check(table: pa.Table, batch_rows: int, tiny: bool) -> None:
        inner = _inner(subject)
        of = _group_of_each_row(subject, table)
        with sizes(tiny=tiny), pytest.MonkeyPatch.context() as patch:
            if tiny and isinstance(subject.spec.key, By):  # more than two groups have wide words
                patch.setattr(tag_words, "MOST", 2)
            grouped = subject.fold(table, batch_rows)
            total = grouped.total()
            assert not difference(total, inner.fold(table))
            assert set(grouped.groups()) == set(of)
            assert len(set(of)) == len(grouped.groups())
            for group in grouped.groups()[:3]:
                here = np.array([one == group for one in of])
                only, others = grouped.only(group), grouped.without(group)
                assert not difference(only, inner.fold(table.filter(pa.array(here))))
                assert not difference(others, inner.fold(table.filter(pa.array(~here))))
                assert not difference(others.merge(only), total)
            states = grouped.several(grouped.groups())
            assert not difference(reduce(lambda a, b: a.merge(b), states, inner.spec.empty()), total)

    check()


@by_name([s for s in GROUPED if isinstance(s.spec.inner, ClusterSpec) and isinstance(s.spec.key, Blocks)])
def test_cells_of_clusters_are_what_groups_fold(subject: Subject) -> None:
    """Clusters by block, folded as cells: equal to an inner state for each block, and so are sizes without a block."""

    @settings(max_examples=5)
    @given(subject.tables(st.just(1)), st.booleans())
    def check(table: pa.Table, tiny: bool) -> None:
        spec = subject.spec
        slow = TaggedBuilder(TaggedGroups.empty(spec), Budget(), 64)
        with sizes(tiny=tiny):
            cells = subject.fold(table)
            subject.fold(table, into=slow)
            found = SizeChanges.union([cells.by_block(shard) for shard in cells.shards()])
        want = slow.state()
        assert not difference(cells, want)
        assert cells.groups() == want.groups()
        for block in range(spec.key.count):
            state = want.without(block)
            left = [part for shard in state.shards() for part in state.parts(shard)]
            for name, column in vars(SizeTable.union(left)).items():
                assert np.array_equal(getattr(found.without(block), name), column)
            totals = want.only(block).totals()
            assert (found.rows[block], found.positives[block]) == (totals.rows, totals.pos)

    check()


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-1, 3, None]),
    (pa.uint64(), [2**64 - 1, 0]),
    (pa.float16(), [np.float16(0.5), np.float16(-2)]),
    (pa.float32(), [0.1, 1e20, math.inf]),
    (pa.float64(), [0.1, -1e300, None]),
    (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-0.01")]),
    (pa.string(), ["", "3:s", "é"]),
    (pa.large_string(), ["a", None]),
    (pa.binary(), [b"", b"\xff\x00"]),
    (pa.binary(2), [b"ab", None]),
    (pa.date32(), [dt.date(2026, 1, 31)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)]),
    (pa.null(), [None]),
]


def _split(key: By | Blocks, **columns: pa.Array) -> list[Any]:
    rows = len(next(iter(columns.values())))
    split = key.split(Batch(np.zeros(rows, np.uint8), None, columns, origin="a"))
    assert len(set(split.names.to_pylist())) == len(split.names)
    assert set(split.codes.tolist()) == set(range(len(split.names)))
    names = split.names.to_pylist()
    return [key.group(names[code]) for code in split.codes]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@pytest.mark.parametrize("encoded", [False, True])
def test_groups_have_the_values_of_their_rows(kind: pa.DataType, values: list[Any], encoded: bool) -> None:
    """Every type, plain and as a dictionary; dates and times as text."""
    array = pa.array(values * 3, kind)
    if encoded and kind in {pa.null(), pa.float16()}:
        pytest.skip("Arrow has no dictionary of this type")
    found = _split(By(("c",)), c=array.dictionary_encode() if encoded else array)
    if kind == pa.float32():
        assert found == [(value,) for value in [0.1, 1e20, math.inf]] * 3
    elif pa.types.is_temporal(kind):
        assert found == [("2026-01-31" if kind == pa.date32() else "2026-01-31 12:00:00.000000Z",)] * 3
    else:
        assert found == [(value,) for value in values] * 3


def test_equal_values_are_one_group() -> None:
    """Zeros of both signs, all NaN, integers of any width, repeated and unused values of a dictionary."""
    zeros = _split(By(("c",)), c=pa.array([0.0, -0.0, math.nan, -math.nan]))
    assert zeros[0] == zeros[1] == (0.0,)
    assert zeros[2] == zeros[3]
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 3]), pa.array(["a", "unused", "a", None]))
    assert _split(By(("c",)), c=encoded) == [("a",), ("a",), (None,), (None,)]
    narrow, wide = (
        By(("c",)).split(Batch(np.zeros(1, np.uint8), None, {"c": pa.array([7], kind)})).names
        for kind in (pa.int8(), pa.uint64())
    )
    assert narrow == wide


def test_tuples_are_not_confused() -> None:
    """Values that are equal once they are concatenated."""
    found = _split(By(("a", "b")), a=pa.array(["1:s", "", None]), b=pa.array(["", "1:s", "n"]))
    assert found == [("1:s", ""), ("", "1:s"), (None, "n")]


def _block(word: int, count: int = 128) -> int:
    """The block of a unit, as the documentation defines it, in integers of any size."""
    return _finalized(word ^ 0x243F6A8885A308D3) % count


def _finalized(word: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ (word >> 33)) * factor % 2**64
    return word ^ (word >> 33)


def test_blocks_are_the_same_for_good() -> None:
    """By definition and pinned: blocks of stored nights must line up with those of later versions."""
    ids = [0, 1, 7, -1, 2**62]
    assert _split(Blocks("u"), u=pa.array(ids, pa.int64())) == [_block(value % 2**64) for value in ids]
    assert _split(Blocks("u"), u=pa.array(ids, pa.int64())) == [19, 51, 125, 65, 58]
    assert _split(Blocks("u"), u=pa.array([0, 1, 7], pa.uint8())) == [19, 51, 125]
    texts = pa.array(["", "campaign-1", "é"])
    blocks = [_block(hash_bytes(text.encode())[0]) for text in texts.to_pylist()]
    assert _split(Blocks("u"), u=texts) == _split(Blocks("u"), u=texts.dictionary_encode()) == blocks
    file = hash_bytes(b"a")[0]
    rows = [_block(_finalized(row ^ 0x243F6A8885A308D3) ^ file) for row in range(3)]
    assert _split(Blocks("u"), u=pa.array([None, 7, None], pa.int64())) == [rows[0], 125, rows[2]]
    split = Blocks().split(Batch(np.zeros(3, np.uint8), None, {}, origin="a"))
    assert [Blocks().group(split.names[code].as_py()) for code in split.codes] == rows


def test_blocks_are_even() -> None:
    """Consecutive ids and rows fill 128 blocks evenly."""
    for key in (Blocks("u"), Blocks()):
        split = key.split(Batch(np.zeros(128_000, np.uint8), None, {"u": pa.array(range(128_000))}))
        counts = np.bincount(split.codes, minlength=128)
        assert len(split.names) == 128
        assert ((counts - 1000) ** 2 / 1000).sum() < 200  # chi-squared with 127 degrees of freedom


def _folded_scores(spec: Any, batches: list[tuple[pa.Array, np.ndarray]]) -> Any:
    """The state of scores and their groups, all rows negative."""
    builder = spec.builder(Budget(), 1 << 12)
    for scores, group in batches:
        columns = {name: {"score": scores, "g": pa.array(group)}[name] for name in spec.columns}
        builder.update(Batch(np.zeros(group.size, np.uint8), None, columns))
    return builder.state()


def test_scores_that_words_have_no_room_for() -> None:
    """Batches of scores below those of float32 have wide words, and so has the merged state."""
    rng, inner = np.random.default_rng(1), ScoreSpec("score", "f8", nan="drop")
    batches = [
        (pa.array(rng.integers(0, 40, 300) * least, mask=rng.random(300) < 0.1), rng.integers(0, 24, 300))
        for least in (1.0, 1e-300, 1.0)
    ]
    state = _folded_scores(GroupedSpec(inner, By(("g",))), batches)
    assert state.keyed.layout.tag == 32
    assert state.total() == _folded_scores(inner, batches)


def test_states_of_more_groups_together_than_words_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged, both have wide words."""
    monkeypatch.setattr(tag_words, "MOST", 40)
    rng, inner = np.random.default_rng(2), ScoreSpec("score", "f8")
    batches = [(pa.array(rng.random(400)), 30 * at + np.arange(400) % 30) for at in range(2)]
    one, other = (_folded_scores(GroupedSpec(inner, By(("g",))), [batch]) for batch in batches)
    merged, swapped = one.merge(other), other.merge(one)
    assert merged == swapped
    assert merged.total() == _folded_scores(inner, batches) == swapped.total()


def test_clusters_of_a_crowded_bucket_are_told_apart() -> None:
    """Beyond what a table holds they are sorted, with the same rows in clusters that both groups have."""
    rows = LARGEST + 2
    cluster = unmix(np.arange(rows, dtype=np.uint64)).view(np.int64)  # all in the first bucket
    columns = {"cluster": pa.array(np.append(cluster, cluster[:3])), "g": pa.array(np.arange(rows + 3) // rows)}
    builder = GroupedSpec(ClusterSpec("cluster"), By(("g",))).builder(Budget(), rows)
    builder.update(Batch(np.zeros(rows + 3, np.uint8), None, columns))
    sweep = ClusterSweep.of(builder.state(), Budget())
    cut = sum(part.cut for shard in sweep.shards() for part in sweep.parts(shard))
    assert {name: int(cut[number]) for name, (number, _) in sweep.groups.items()} == {b"": 0, b"2:i0": 3, b"2:i1": 3}


def test_there_is_no_such_group() -> None:
    """An absent group has no rows, and all rows are outside it."""
    state = _by_country(["DE", None])
    assert state.only(("FR",)) == ClusterSpec("cluster").empty()
    assert state.without(("FR",)) == state.total()


def _by_country(groups: list[str | None]) -> Any:
    """A state of one cluster with a row in each group."""
    builder = GroupedSpec(ClusterSpec("cluster"), By(("country",))).builder(Budget(), 8)
    columns = {"cluster": pa.array([1] * len(groups)), "country": pa.array(groups)}
    builder.update(Batch(np.zeros(len(groups), np.uint8), None, columns))
    return builder.state()


def test_what_cannot_be_split_is_refused() -> None:
    """Specs without laws 6 and 7, foreign keys, no columns, no blocks, nested values."""
    for inner, key in ((QuantileSpec("c"), By(("c",))), (ScoreSpec("c"), "country"), (ScoreSpec("c"), ("c",))):
        refuses(OptionError, "cannot split", GroupedSpec, inner, key)
    for columns, message in (((), "tuple of columns"), ("a", "tuple of columns"), (("a", "a"), "names 'a' twice")):
        refuses(OptionError, message, By, columns)
    refuses(OptionError, "blocks are not between", Blocks, count=1)
    nested = pa.array([[1]])
    refuses(SchemaError, r"input: column 'c' has type list.*cast it", _split, By(("c",)), c=nested)
    refuses(SchemaError, r"column 'c' has type double.*cast it", _split, Blocks("c"), c=pa.array([0.5]))


@pytest.mark.parametrize(
    "inner", [ContingencySpec("class", "cluster"), ScoreSpec("score", "f8"), ClusterSpec("cluster")]
)
def test_what_is_made_of_spilled_rows_is_held_by_the_budget_of_the_rows(inner: Any, tmp_path: Path) -> None:
    """Totals and tables are asked for without a budget; they took whatever a quarter of the machine has."""
    rng, rows = np.random.default_rng(0), 10_000
    budget = Budget(1 << 18, tmp_path, threads=1)
    builder = GroupedSpec(inner, By(("country",))).builder(budget, 1 << 13)
    for _ in range(3):
        ids = {name: pa.array(rng.integers(0, 1 << 40, rows)) for name in ("class", "cluster")}
        columns = {**ids, "score": pa.array(rng.random(rows)), "country": pa.array(rng.integers(0, 80, rows))}
        builder.update(Batch((rng.random(rows) < 0.3).astype(np.uint8), None, columns))
    grouped = builder.state()
    whole = [grouped.without((79,)), *grouped.several([(7,), (8,)]), grouped.without()]
    buffers = [segment.words for state in whole for run in state.runs().values() for segment in run.segments]
    assert {buffer.owner() for buffer in buffers if buffer.nbytes and buffer.owner} == {budget}
    assert all(buffer.owner for buffer in buffers if buffer.nbytes)
    assert grouped.totals().rows == 3 * rows


BUDGET = Budget()
IDS = st.one_of(st.none(), st.integers(-3, 3))
TAGGED = st.lists(st.tuples(st.integers(0, 11), IDS, IDS), min_size=1, max_size=80)  # group, class and cluster


def _table_of_rows(spec: Any, given: list[Any], kinds: tuple[pa.DataType, pa.DataType]) -> Any:
    """The state of some rows, by group, class and cluster."""
    group, classes, clusters = zip(*given, strict=True)
    columns = {"t": pa.array(classes).cast(kinds[0]), "c": pa.array(clusters).cast(kinds[1]), "k": pa.array(group)}
    builder = spec.builder(BUDGET, 64)
    builder.update(Batch((np.array(group) % 2).astype(np.uint8), None, columns))
    return builder.state()


@settings(max_examples=25)
@given(
    st.lists(TAGGED, min_size=1, max_size=3),
    st.sampled_from(["drop", "singleton"]),
    st.sampled_from([(pa.int64(), pa.int64()), (pa.string(), pa.int32()), (pa.int16(), pa.string())]),
    st.sampled_from([4, 4096]),
    st.sampled_from([1, 5, 1 << 15]),
)
def test_each_table_is_that_of_its_rows(
    parts: list[list[Any]], nulls: str, kinds: tuple[pa.DataType, pa.DataType], groups: int, most: int
) -> None:
    """In narrow or wide words, of several batches, with and without nulls; large tables are left out."""
    types = ("hash" if kind == pa.string() else "signed" for kind in kinds)
    inner = ContingencySpec("t", "c", *types, nulls=nulls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tag_words, "MOST", groups)
        patch.setattr(sweeps, "_MOST", most)
        states = [_table_of_rows(GroupedSpec(inner, By(("k",))), part, kinds) for part in parts]
        grouped = states[0]
        for state in states[1:]:
            grouped = grouped.merge(state)
        keys = [*grouped.groups(), (99,)]
        tables = sweeps.tables(grouped, keys, one_by_one, BUDGET)
        for (group,), table in zip(keys, tables, strict=True):
            own = [row for part in parts for row in part if row[0] == group]
            alone = _table_of_rows(inner, own, kinds) if own else inner.empty()
            assert table.totals() == alone.totals()
            assert table.dropped_rows.tolist() == alone.dropped_rows.tolist()
            summary = table.summary if isinstance(table, SummarisedCounts) else summarize_state(table, BUDGET)
            assert summary == summarize_state(alone, BUDGET)
        found = sweeps.small_tables(grouped, BUDGET, one_by_one)
        assert all(isinstance(table, SummarisedCounts) and table.totals().rows <= most for table in found.values())
