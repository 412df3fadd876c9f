"""The laws of states, for every state of the catalogue; and stored states are read by later versions.

1. Folding a concatenation equals merging the folds: any split, batch size, row order and capacity.
2. A merge is associative and commutative, and ``empty()`` is its identity.
3. A state that goes through Arrow, or a real Parquet file, comes back equal; several states read together are their
   union.
4. States are the same to the bit whatever the memory budget; `test_evaluate.py` tests results for any files, threads
   and workers.
5. Counts are exact; a sketch keeps its rank error. `test_intervals.py` tests the certain intervals of histograms.
6. The total of a grouped state is the state of all rows, and 7. each group and all others make the total
   (`test_grouped.py`).

Sketches depend on how rows are cut into tasks, as their specs say (``associative``): laws 1 and 2 hold in part.
"""

import dataclasses
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from strategies import SUBJECTS, Subject, by_name, difference, sizes

from streameval.budget import Budget
from streameval.errors import FormatError, IncompatibleStatesError
from streameval.states import codec
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.grouped.keys import Blocks, By
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.labels import ClassSpec, LabelSpec
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.draws import BinsSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.quantile_sketch import QuantileSketch
from streameval.states.scores.types import decode

DATA = Path(__file__).parents[1] / "data" / "states"


def examples(subject: Subject, most: int) -> int:
    """Tables to draw, the first without rows: few where builders, or each group, have tables of 11 MiB."""
    if isinstance(getattr(subject.spec, "inner", None), HistogramSpec):
        return 2
    return min(most, 3) if isinstance(subject.spec, HistogramSpec) else most


def _shuffled(table: pa.Table, seed: int) -> pa.Table:
    order = list(range(table.num_rows))
    random.Random(seed).shuffle(order)
    return table.take(pa.array(order, pa.int64()))


def _broken_fold(subject: Subject, table: pa.Table, cut: float, batch_rows: int, capacity: int, seed: int) -> str:
    """How law 1 fails on one table; empty if it holds."""
    whole = subject.fold(table)
    if subject.sketch:
        return difference(whole, subject.fold(table, capacity=capacity))
    at = int(cut * table.num_rows)
    parts = [subject.fold(part, batch_rows, capacity) for part in (table.slice(0, at), table.slice(at))]
    shuffled = subject.fold(_shuffled(table, seed), batch_rows, capacity)
    return difference(whole, parts[0].merge(parts[1])) or difference(whole, shuffled)


def _broken_merge(subject: Subject, states: list[Any]) -> str:
    """How law 2 fails on three states; empty if it holds."""
    a, b, c = states
    empty = subject.spec.empty()
    turned = (a.merge(b), b.merge(a)) if subject.sketch else (a.merge(b).merge(c), c.merge(b).merge(a))
    return difference(*turned) or difference(empty.merge(a).merge(empty), a)


def _broken_storage(state: Any, path: Path) -> str:
    """How law 3 fails on one state; empty if it holds."""
    schema, batches = codec.dump(state)
    written = list(batches)
    if not written or not all(batch.schema.equals(schema, check_metadata=True) for batch in written):
        return "every batch carries the schema, and there is at least one"
    pq.write_table(pa.Table.from_batches(written), path, row_group_size=7)
    file = pq.ParquetFile(path)
    loaded = codec.load(pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(batch_size=5)))
    one, other = (dataclasses.astuple(totals) for totals in (loaded.totals(), state.totals()))
    same = loaded == state and codec.load(written) == state and np.allclose(one, other, rtol=1e-12, atol=0)
    return difference(state, loaded) or ("" if same else "== says they differ")


@by_name()
def test_folding_a_concatenation_is_merging_the_folds(subject: Subject) -> None:
    """Any split, batch size, row order and capacity give the state of one fold."""

    @settings(max_examples=examples(subject, 5))
    @given(
        subject.tables(),
        st.floats(0, 1),
        st.sampled_from([1, 3, 1000]),
        st.sampled_from([1, 7, 4096]),
        st.integers(0, 9),
        st.booleans(),
    )
    def check(table: pa.Table, cut: float, batch_rows: int, capacity: int, seed: int, tiny: bool) -> None:
        if table.num_rows > 100:
            batch_rows, capacity = 500, 1000
        with sizes(tiny=tiny):
            assert not _broken_fold(subject, table, cut, batch_rows, capacity, seed)

    check()


@by_name()
def test_states_are_merged_spilled_and_stored_without_loss(subject: Subject, tmp_path: Path) -> None:
    """Merged in any order, spilled by a budget of one byte, in Arrow, in Parquet or read together: the same state."""

    @settings(max_examples=examples(subject, 3))
    @given(st.tuples(subject.tables(st.just(1)), subject.tables(st.just(1)), subject.tables()))
    def check(tables: tuple[pa.Table, ...]) -> None:
        states = [subject.fold(table) for table in tables]
        assert not _broken_merge(subject, states)
        assert not _broken_storage(states[2], tmp_path / "state.parquet")
        merged = reduce(lambda a, b: a.merge(b), states)
        assert not difference(merged, codec.load_together([codec.dump(state) for state in states]))
        capacity = 5 if tables[2].num_rows < 100 else 1000
        if merged.runs():  # tables of bins do not spill
            assert not difference(states[2], subject.fold(tables[2], capacity=capacity, budget=Budget(1)))
        with sizes(tiny=True):  # of many segments
            cut = subject.fold(tables[1])
        assert not difference(cut.merge(states[0]), states[1].merge(states[0]))
        _check_protocol(merged)

    check()
    assert subject.spec.traits.associative is not (subject.sketch or isinstance(subject.spec, BinsSpec))


def _check_protocol(state: Any) -> None:
    """Shards, parts, size, and keyed counts that may be exchanged; a sketch says that tasks may not be cut anywhere."""
    budget = Budget(1 << 20)
    shards = state.shards(budget)
    assert all(start <= stop for start, stop in shards)
    assert all(list(state.parts(shard, budget)) is not None for shard in shards)
    assert not difference(state.with_runs(state.runs()), state)
    assert sys.getsizeof(state) >= sum(sys.getsizeof(keyed) for keyed in state.runs().values())
    assert json.loads(json.dumps(state.header())) == state.header()
    assert state.spec.traits.associative or not state.runs()


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=300), min_size=1, max_size=4), st.floats(0, 1))
def test_a_sketch_keeps_its_rank_error(parts: list[list[float]], q: float) -> None:
    """The rank of an estimated quantile of merged sketches is within 1 % of the rows, or one row, of the rank asked."""
    merged = reduce(lambda a, b: a.merge(b), (QuantileSketch.from_values(part) for part in parts))
    numbers = np.sort(np.concatenate([np.array(part) for part in parts]))
    if numbers.size:
        found = merged.quantile(q)
        slack = 1 + 0.01 * numbers.size
        assert np.searchsorted(numbers, found, "left") - slack <= q * numbers.size
        assert q * numbers.size <= np.searchsorted(numbers, found, "right") + slack


def test_states_of_different_specs_do_not_merge() -> None:
    """A merge with other options raises and names both."""
    for subject in SUBJECTS:
        refuses(IncompatibleStatesError, r"='column'.*='another'", subject.spec.empty().merge, subject.another.empty())


EXACT = [s for s in SUBJECTS if isinstance(s.spec, ScoreSpec)]
CLUSTERS = [s for s in SUBJECTS if isinstance(s.spec, ClusterSpec)]


def _keyed(value: Any, kind: str) -> Any:
    """A score as `decode` gives it."""
    return float(np.float32(value)) if kind in {"f4"} else float(value)


@by_name(EXACT)
def test_scores_are_counted_as_a_counter_counts_them(subject: Subject) -> None:
    """Distinct scores from the best to the worst, as their keys decode, with rows by label; NaN and null apart."""

    @settings(max_examples=8)
    @given(subject.tables(), st.booleans())
    def check(table: pa.Table, tiny: bool) -> None:
        state = subject.fold(table, capacity=5 if tiny and table.num_rows < 100 else 4096)
        rows = list(zip(table.column("column").to_pylist(), table.column("label").to_pylist(), strict=True))
        missing = [label for value, label in rows if value is None or value != value]
        assert state.nan_rows.tolist() == [missing.count(0), missing.count(1)]
        counted = Counter((value, label) for value, label in rows if value is not None and value == value)
        distinct = sorted({value for value, _ in counted}, reverse=True)
        with sizes(tiny=tiny):
            groups, parts = list(state.groups()), list(state.parts())
        found = [
            row
            for g, part in zip(groups, parts, strict=True)
            for row in zip(part.scores.tolist(), g.neg.tolist(), g.pos.tolist(), g.keys.tolist(), strict=True)
        ]
        assert [row[0] for row in found] == [_keyed(value, subject.spec.type) for value in distinct]
        assert [row[1:3] for row in found] == [(counted[value, 0], counted[value, 1]) for value in distinct]
        keys = [row[3] for row in found]
        assert keys == sorted(set(keys))
        assert decode(np.array(keys, np.uint64), subject.spec.type).tolist() == [row[0] for row in found]
        before = 0
        for part in parts:
            assert part.before.rows == before
            before += int(part.rows.sum())

    check()


@by_name(CLUSTERS)
def test_clusters_are_counted_as_a_counter_counts_them(subject: Subject) -> None:
    """The sizes and positives are those of a dictionary keyed by id, and by partition where ids belong to it."""

    @settings(max_examples=6)
    @given(subject.tables(), st.booleans())
    def check(table: pa.Table, tiny: bool) -> None:
        state = subject.fold(table, capacity=5 if tiny and table.num_rows < 100 else 4096)
        neg: Counter[Any] = Counter()
        pos: Counter[Any] = Counter()
        for i, row in enumerate(table.to_pylist()):
            scope = row["partition"] if subject.spec.scope == "partition" else ""
            key = (scope, row["column"]) if row["column"] is not None else i
            if row["column"] is not None or subject.spec.nulls == "singleton":
                (pos if row["label"] else neg)[key] += 1
        expected: Counter[Any] = Counter()
        positives: Counter[Any] = Counter()
        for key in {*neg, *pos}:
            expected[neg[key] + pos[key]] += 1
            positives[neg[key] + pos[key]] += pos[key]
        with sizes(tiny=tiny):
            tables = [part for shard in state.shards() for part in state.parts(shard)]
            labelled = subject.spec.rows == "labelled"
            impure = [block for shard in state.shards() for block in state.impure(shard)[1]] if labelled else []
        found: Counter[Any] = Counter()
        found_positives: Counter[Any] = Counter()
        for part in tables:
            for size, clusters, count in zip(part.size, part.clusters, part.positives, strict=True):
                found[int(size)] += int(clusters)
                found_positives[int(size)] += int(count)
        assert found == expected
        assert found_positives == positives
        assert state.totals().rows == sum(size * times for size, times in expected.items())
        pairs = [pair for block in impure for pair in zip(block.neg.tolist(), block.pos.tolist(), strict=True)]
        due = [(neg[key], pos[key]) for key in {*neg, *pos} if neg[key] and neg[key] + pos[key] > 1]
        assert sorted(pairs) == sorted(due) or not labelled

    check()


# -- stored states --------------------------------------------------------------------------------------------------


def _golden() -> dict[str, tuple[Any, pa.Table]]:
    """Specs and rows of the states that the files in ``tests/data/states`` hold."""
    label, scores = [0, 1, 1, 0, 1, 0], [0.125, 0.875, 0.5, 0.5, None, -2.0]
    table = pa.table(
        {
            "column": pa.array(scores, pa.float32()),
            "label": pa.array(label, pa.uint8()),
            "weight": pa.array([1.0, 0.5, 0.0, 2.0, 0.25, 4.0]),
            "partition": pa.array(["a", "a", "b", "a", "b", "b"]),
        }
    )
    integers = table.set_column(0, "column", pa.array([2**63, 7, 7, 2**64 - 1, 0, 1], pa.uint64()))
    texts = table.set_column(0, "column", pa.array(["x", "x", None, "long " * 9, "", "x"], pa.string()))
    numbers = table.set_column(0, "column", pa.array([0, 1, 1, 0, None, 0], pa.int8()))
    grouped = table.append_column("user", pa.array([7, 7, -1, None, 2**40, 7], pa.int64()))
    found = (
        ("score_counts-f4", ScoreSpec("column", "f4", nan="half"), table),
        ("score_counts-f4-weighted", ScoreSpec("column", "f4", weighted=True, nan="drop"), table),
        ("score_counts-u8", ScoreSpec("column", "u8"), integers),
        ("score_histogram-f4", HistogramSpec("column", "f4", nan="drop"), table),
        ("score_histogram-f4-weighted", HistogramSpec("column", "f4", weighted=True, nan="drop"), table),
        ("cluster_counts-unsigned", ClusterSpec("column", "unsigned"), integers),
        ("cluster_counts-hash-partition", ClusterSpec("column", "hash", "partition", "singleton"), texts),
        ("group_scores-f4", GroupScoreSpec("column", "f4", "user", nan="drop"), grouped),
        ("group_scores-u8-hash", GroupScoreSpec("column", "u8", "partition", "hash"), integers),
        ("score_blocks-f4", BlockSpec("column", "f4", nan="half", unit="partition", count=4, bins=2), table),
        (
            "grouped-score_blocks",
            GroupedSpec(BlockSpec("column", "f4", nan="half", count=4, bins=2), By(("partition",))),
            table,
        ),
        ("label_counts", LabelSpec("column", nulls="drop"), numbers),
        ("class_label_counts", ClassSpec("column", nulls="drop", classes=(("p", "1"), ("q", "0"))), numbers),
        ("grouped-score_counts", GroupedSpec(ScoreSpec("column", "f4", nan="half"), By(("partition",))), table),
        ("grouped-cluster_counts", GroupedSpec(ClusterSpec("column", "unsigned"), Blocks("column", 4)), integers),
    )
    return {name: (spec, data) for name, spec, data in found}


@cache
def _folded(name: str) -> Any:
    """A golden state, folded again."""
    spec, data = _golden()[name]
    return Subject(name, spec, data.schema.field("column").type, st.nothing()).fold(data)


@pytest.mark.parametrize("name", sorted(_golden()))
def test_states_stored_by_earlier_versions_are_read(name: str) -> None:
    """A file of every kind and version that was ever written loads as the state it was."""
    [*paths] = sorted(DATA.glob(f"{name}.v*.parquet"))
    assert paths, f"no stored {name}: write it with python tests/states/test_laws.py"
    for path in paths:
        assert codec.load(pq.read_table(path).to_batches() or [pq.read_table(path)]) == _folded(name)


def _parts(state: Any) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    schema, batches = codec.dump(state)
    return schema, list(batches)


def _with(change: Callable[[dict[bytes, bytes]], Any]) -> list[pa.RecordBatch]:
    """A stored state whose metadata were changed."""
    schema, batches = _parts(_folded("score_counts-f4"))
    facts = dict(schema.metadata)
    change(facts)
    return [batch.replace_schema_metadata(facts) for batch in batches]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts.clear(), "not a streameval state"),
        (lambda facts: facts.update({b"streameval.kind": b"wavelets"}), "kind 'wavelets'.*cluster_counts"),
        (lambda facts: facts.update({b"streameval.version": b"99"}), "version 99 of score_counts.*fold the data again"),
        (lambda facts: facts.update({b"streameval.version": b"2"}), "version 2 of score_counts.*fold the data again"),
        (lambda facts: facts.pop(b"streameval.version"), "version None of score_counts"),
        (lambda facts: facts.pop(b"streameval.header"), "metadata of the stored score_counts are damaged"),
        (lambda facts: facts.update({b"streameval.header": b"{"}), "metadata of the stored score_counts are damaged"),
        (lambda facts: facts.update({b"streameval.header": b"[]"}), "metadata of the stored score_counts are damaged"),
        (lambda facts: facts.update({b"streameval.header": b'{"spec": {"hue": 1}}'}), "damaged.*hue"),
        (lambda facts: facts.update({b"streameval.header": b'{"spec": {"column": "c"}}'}), "damaged.*nan_rows"),
        (lambda facts: facts.update({b"streameval.rows": b"[1, 2]"}), "incomplete or damaged"),
        (lambda facts: facts.pop(b"streameval.rows"), "metadata of the stored score_counts are damaged"),
    ],
)
def test_foreign_and_damaged_metadata_are_refused(change: Callable[[dict[bytes, bytes]], Any], message: str) -> None:
    """What cannot be read is refused by name, in one line."""
    refuses(FormatError, message, codec.load, _with(change))


def test_damaged_tables_are_refused() -> None:
    """No batches, lost batches, other columns and nulls are refused."""
    schema, batches = _parts(_folded("score_counts-f4"))
    [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    refuses(FormatError, "no batches", codec.load, [])
    refuses(FormatError, "incomplete", codec.load, [batch.slice(0, 2)])
    with pytest.raises(FormatError, match="columns"):
        codec.load([batch.select(["key", "positives"]).replace_schema_metadata(schema.metadata)])
    nulls = pa.RecordBatch.from_arrays(
        [batch.column(0), pa.nulls(len(batch), pa.int64()), *batch.columns[2:]], schema=schema
    )
    refuses(FormatError, "nulls", codec.load, [nulls])


def _bad(fact: Any) -> list[Any]:
    """Values that a fact of an empty state never has."""
    if isinstance(fact, dict):
        return [[], "x"]
    if isinstance(fact, list):
        return (
            ["x", [None], [1, "x"]] + [[*fact[1:], bad] for bad in _bad(fact[0])] + [fact[1:]] if fact else ["x", [{}]]
        )
    return ["x", None, [1], True, *([-1, 2**70, 0.5] if isinstance(fact, int) else [float("nan")])]


def test_facts_that_no_state_has_are_refused() -> None:
    """A negative count, a list of another length or a text for a number is refused, whatever the state."""
    for subject in SUBJECTS:
        schema, batches = codec.dump(subject.spec.empty())
        written = list(batches)
        header = json.loads(schema.metadata[b"streameval.header"])
        for name in header.keys() - {"spec"}:
            for bad in _bad(header[name]):
                facts = {**schema.metadata, b"streameval.header": json.dumps({**header, name: bad}).encode()}
                refuses(FormatError, "damaged", codec.load, [batch.replace_schema_metadata(facts) for batch in written])
    with pytest.raises(FormatError, match="damaged"):
        codec.load(_with(lambda facts: facts.update({b"streameval.header": b"[" * 200_000})))


def test_every_kind_of_state_has_its_reader() -> None:
    """The codec finds every spec by its kind, with a version; the laws run over every kind that it reads."""
    assert {subject.spec.kind for subject in SUBJECTS} == set(codec.KINDS)
    for subject in SUBJECTS:
        assert codec.KINDS[subject.spec.kind] is type(subject.spec)
        assert isinstance(subject.spec.version, int)


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    for stored in _golden():
        golden = _folded(stored)
        target = DATA / f"{stored}.v{golden.spec.version}.parquet"
        if not target.exists():
            pq.write_table(pa.Table.from_batches(codec.dump(golden)[1]), target)
