"""Grouped states: laws 6 and 7, the keys, the words of tagged rows, and clusters of groups in any layout."""

import datetime as dt
import math
import pickle
from collections.abc import Iterator
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

from streameval import evaluate
from streameval.budget import Budget
from streameval.errors import OptionError, SchemaError
from streameval.kernels.keyed.sizes import LARGEST
from streameval.kernels.keys import unmix
from streameval.metrics.finalize import compute_metrics
from streameval.metrics.scores.gain import Agc
from streameval.metrics.scores.ranking import AveragePrecision, PrAuc, RocAuc
from streameval.states import codec
from streameval.states.blocks import SizeChanges
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.cluster_sizes import SizeTable
from streameval.states.contingency.by_cluster import summarize_state
from streameval.states.contingency.counts import ContingencySpec, SummarisedCounts
from streameval.states.grouped import sweeps, tag_words
from streameval.states.grouped.builder import TaggedBuilder
from streameval.states.grouped.keys import Blocks, By
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.grouped.sweeps import ClusterSweep, sweep_groups
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed import hot
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.ids import hash_bytes
from streameval.states.protocol import Batch
from streameval.states.rounds import one_by_one
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.quantile_sketch import QuantileSpec
from streameval.typing import view_numbers


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


ROWS, GROUPS = 3_000, 40


def table() -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Groups, ids and labels; some ids are null, and most clusters have rows of several groups."""
    rng = np.random.default_rng(5)
    group, label = rng.integers(0, GROUPS, ROWS), rng.integers(0, 2, ROWS).astype(np.uint8)
    return group, pa.array(rng.zipf(1.5, ROWS) % 4_000, mask=rng.random(ROWS) < 0.02), label


def folded(kind: pa.DataType, numbers: range, *, unlabelled: bool = False) -> Any:
    """The state of the rows of some groups."""
    group, ids, label = table()
    spec = ClusterSpec(
        "id", "signed" if kind == pa.int64() else "hash", nulls="singleton", rows="both" if unlabelled else "labelled"
    )
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
    monkeypatch.setattr(sweeps, "_SHARDS", 3)
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


@pytest.mark.parametrize("most", [7, 1 << 10])
def test_a_cluster_may_be_grouped_in_several_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert swept(sweep) == counted


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int64, np.uint64])
def test_slices_of_integers_over_their_whole_range(kind: type) -> None:
    """Differences of two values may be beyond their type."""
    ends = np.iinfo(kind)
    group = np.repeat(np.array([ends.min, ends.max - 1, ends.max] * 2, kind), [2, 4, 6, 2, 4, 6])
    table = pa.table({"label": np.arange(group.size) // 12, "score": np.linspace(0, 1, group.size), "g": group})
    found = evaluate(table, score="score", metrics="roc_auc", by="g")
    slices = found.slices("g").to_pydict()
    assert dict(zip(slices["g"], slices["rows"], strict=True)) == {ends.min: 4, ends.max - 1: 8, ends.max: 12}


@pytest.mark.parametrize("grouped", [False, True])
def test_nulls_inside_a_dictionary_of_scores(grouped: bool) -> None:
    """Rows of a null entry have a missing score, as rows without an entry have."""
    scores = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, None], pa.int32()), pa.array([0.5, None, 0.25]))
    inner = ScoreSpec("score", "f8", nan="drop")
    builder = (GroupedSpec(inner, By(("g",))) if grouped else inner).builder(Budget(), 8)
    columns = {"score": scores, "g": pa.array([1, 1, 2, 2, 2])}
    builder.update(Batch(np.array([0, 1, 1, 0, 1], np.uint8), None, columns))
    state = builder.state().total() if grouped else builder.state()
    assert (state.totals().neg, state.totals().pos, state.nan_rows.tolist()) == (1, 1, [1, 2])


def test_a_view_of_numbers_refuses_nulls() -> None:
    """Their places in a buffer hold anything."""
    with pytest.raises(ValueError, match="an array with nulls has no view"):
        view_numbers(pa.array([1.0, None]))


CLUSTERS = [pa.int64(), pa.string()]


def _rows(rows: int, groups: int, kind: pa.DataType, seed: int = 0) -> tuple[np.ndarray, pa.Table]:
    """Labels and columns: clusters of about three rows, a hot one with many classes, and a hot pair."""
    rng = np.random.default_rng([groups, seed])
    ids = np.where(rng.random(rows) < 0.2, 7, rng.integers(0, rows // 3, rows))
    classes = np.where(rng.random(rows) < 0.3, 1, rng.integers(0, rows, rows))
    group = np.sort(rng.integers(0, groups, rows))  # a batch has few of them
    columns = {"id": pa.array(ids).cast(kind), "k": pa.array(classes), "g": pa.array(group)}
    return rng.integers(0, 2, rows).astype(np.uint8), pa.table(columns)


def _spec(table: pa.Table, *, cells: bool = True) -> GroupedSpec:
    kind = "signed" if table.schema.field("id").type == pa.int64() else "hash"
    inner = ContingencySpec("k", "id", cluster_type=kind) if cells else ClusterSpec("id", kind)
    return GroupedSpec(inner, By(("g",)))


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
def test_slices_of_clusters_take_no_more_than_all_rows(kind: pa.DataType, tmp_path: Path) -> None:
    """However many there are, and the state of all rows takes nothing beside them."""
    label, table = _rows(60_000, 300, kind)
    budget, spec = Budget(1 << 18, tmp_path), _spec(table, cells=False)
    state = _of_parts(spec, label, table, budget, 3)
    held = budget.resident + budget.spilled
    total = state.total(budget)
    pieces = sum(segment.piece_bytes for segment in state.keyed.segments)
    assert held == budget.resident + budget.spilled <= pieces + label.size * (8 if kind == pa.int64() else 16)
    assert total == _folded(spec.inner, label, table, Budget())


@pytest.mark.parametrize("kind", CLUSTERS, ids=str)
@pytest.mark.parametrize("cells", [False, True])
def test_further_slices_have_wide_words(kind: pa.DataType, cells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than narrow words distinguish, in a batch, in a task, or in another process."""
    monkeypatch.setattr(tag_words, "MOST", 5)
    label, table = _rows(4_000, 9, kind)
    spec = _spec(table, cells=cells)
    foreign, last = (_folded(spec, label[at : at + 900], table.slice(at, 900), Budget()) for at in (0, 3_100))
    state = _of_parts(spec, label, table, Budget(), 2).merge(pickle.loads(pickle.dumps(foreign))).merge(last)
    runs = [each.tagged["cells"] if cells else each.keyed for each in (state, last)]
    assert [run.layout.tag for run in runs] == [32, 32 if cells else 10]
    again = np.concatenate((np.arange(4_000), np.arange(900), np.arange(3_100, 4_000)))
    _checked(state, label[again], table.take(pa.array(again)))
    assert codec.load(codec.dump(state)[1]) == state


MANY_ROWS, MANY_GROUPS = 6_000, 7
METRICS = [RocAuc(), AveragePrecision(), PrAuc()]


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_slices_with_missing_scores_lose_no_weight(kind: str) -> None:
    """The weights of missing scores are summed exactly, by slice and over all."""
    rng, rows, inner = (np.random.default_rng(0), 4 * MANY_ROWS, ScoreSpec("score", kind, weighted=True, nan="half"))
    score, group = rng.integers(0, 2, rows).astype(kind), rng.integers(0, 300, rows)
    score[: rows // 2][rng.random(rows // 2) < 0.3] = np.nan
    label, weight = rng.integers(0, 2, rows).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, rows)

    def folded(spec: Any, here: np.ndarray, batches: int) -> Any:
        builder = spec.builder(Budget(), MANY_ROWS)
        for some in np.array_split(np.flatnonzero(here), batches):
            columns = {"score": pa.array(score[some]), "group": pa.array(group[some])}
            builder.update(Batch(label[some], weight[some], columns))
        return builder.state()

    grouped = folded(GroupedSpec(inner, By(("group",))), group >= 0, 4)
    for number in range(0, 300, 30):
        alone = folded(inner, group == number, 1)
        assert compute_metrics(grouped.only((number,)), [*METRICS, Agc()]) == compute_metrics(alone, [*METRICS, Agc()])
        rest = folded(inner, group != number, 2)
        np.testing.assert_array_equal(grouped.without((number,)).nan_weights, rest.nan_weights)
    whole = folded(inner, group >= 0, 3)
    assert compute_metrics(grouped.total(), [*METRICS, Agc()]) == compute_metrics(whole, [*METRICS, Agc()])
