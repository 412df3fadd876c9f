"""Replicates of contingency tables, and the rows and sizes that they are made of."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_contingency_state import SHAPES, fold, spec_of, table_of, truth

from streameval.budget import Budget
from streameval.kernels.blocks import spread_rows, unit_blocks
from streameval.states.contingency import cells
from streameval.states.contingency.by_cluster import ByCluster, add_up
from streameval.states.contingency.class_blocks import ClassBlocks, ClassReplicates
from streameval.states.contingency.counts import ContingencyCounts
from streameval.states.contingency.summary import Sizes
from streameval.states.keyed.ids import hash_bytes, identify
from streameval.states.rounds import run

Rows = list[tuple[Any, Any]]


def replicates(state: ContingencyCounts, blocks: int = 4, budget: Budget | None = None) -> ClassReplicates:
    """The replicates of a state."""
    summary, watcher, _ = add_up(run(ByCluster(state, partial(ClassBlocks, blocks)), budget or Budget(1 << 30)))
    assert isinstance(watcher, ClassBlocks)
    return watcher.replicates(summary)


def word(value: int, kind: str) -> np.uint64:
    """First word of an id of `table_of`."""
    array = table_of([value], [value], None, (kind, kind)).column("k").combine_chunks()
    return identify(array, spec_of((kind, kind)).class_type)[0][0]


def without(rows: Rows, block: int, blocks: int, kinds: tuple[str, str] = ("int64", "int64")) -> Rows:
    """The rows of all classes but those of a block; null classes by the number of the row in its cluster."""
    classless = Counter(cluster for kind, cluster in rows if kind is None and cluster is not None)
    neither = sum(row == (None, None) for row in rows)
    left: Rows = []
    for number, (kind, cluster) in enumerate(rows):
        if kind is not None:
            home = int(unit_blocks(np.array([word(kind, kinds[0])]), blocks)[0])
            if home != block:
                left.append((kind, ("null", number) if cluster is None else cluster))
    for cluster, count in (*classless.items(), (None, neither)):
        gone = np.zeros(blocks, np.int64)
        spread_rows(np.uint64(0) if cluster is None else word(cluster, kinds[1]), count, gone)
        for k in range(count - int(gone[block])):
            left.append((("null", cluster, k), ("neither", k) if cluster is None else cluster))
    return left


def check(rows: Rows, found: ClassReplicates, blocks: int, kinds: tuple[str, str] = ("int64", "int64")) -> None:
    """All replicates are those of the rows that are left, with equal bits."""
    whole = sum(1 for _ in rows)
    assert found.rows.sum() == whole
    for block in range(blocks):
        left = without(rows, block, blocks, kinds)
        assert found.rows[block] == whole - len(left)
        assert found.without(block) == replace(truth(left), inertia=None)


@settings(max_examples=40)
@given(
    st.sampled_from([1, 3, 40]).flatmap(
        lambda ids: st.lists(st.tuples(*[st.none() | st.integers(0, ids)] * 2), max_size=60)
    ),
    st.sampled_from([("int64", "int64"), ("string", "uint64"), ("dictionary", "binary")]),
    st.integers(2, 5),
)
def test_a_replicate_is_the_summary_of_the_rows_that_are_left(rows: Rows, kinds: tuple[str, str], blocks: int) -> None:
    """Nulls, singletons, one class, empty blocks and a class that is everything included."""
    table = table_of(*(list(zip(*rows, strict=True)) or [(), ()]), None, kinds)
    state = fold(spec_of(kinds, "singleton"), table)
    found = replicates(state, blocks)
    check(rows, found, blocks, kinds)
    assert found.classless == sum(kind is None for kind, _ in rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("items", [12, 1 << 20])
def test_giant_clusters_and_classes(shape: str, items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters and classes that are streamed give the replicates of those that are not."""
    classes, clusters = (side.tolist() for side in SHAPES[shape](3000, np.random.default_rng(1)))
    state = fold(spec_of(), pa.table({"k": classes, "c": clusters, "partition": ["p"] * 3000}), 700)
    monkeypatch.setattr(cells, "ITEMS", (items, items))
    rows = [(kind + 3, cluster + 3) for kind, cluster in zip(classes, clusters, strict=True)]  # as `table_of` shifts
    check(rows, replicates(state, 3), 3)


def test_blocks_are_permanent() -> None:
    """The definition in the module of keys, computed with Python integers."""

    def mixed(w: int) -> int:
        w ^= 0x243F6A8885A308D3
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            w = ((w ^ (w >> 33)) * factor) % 2**64
        return w ^ (w >> 33)

    words = [0, 1, 2**64 - 1, hash_bytes(b"campaign")[0]]
    assert unit_blocks(np.array(words, np.uint64), 128).tolist() == [mixed(w) % 128 for w in words]


def test_squares_beyond_64_bits() -> None:
    """Cells of many rows keep every digit, in classes and in clusters."""
    large, none = 3_000_000_019, np.empty(0, np.int64)
    rows, zeros, words = np.array([large, large]), np.zeros(2, np.int64), np.array([5, 6], np.uint64)
    watcher = ClassBlocks(2)
    total = np.array([2 * large])
    watcher.add_classes(lambda _: words[:1, None], total, rows[:1], zeros[:1], [(zeros, rows, rows + 7, none)])
    watcher.add_clusters(lambda _: words[:1, None], total, zeros[:1], [(zeros, words, rows)])
    block = int(unit_blocks(words[:1], 2)[0])
    for sums in (watcher.classes.only(block)[1], -watcher.clusters.only(block)[1][-1:]):
        assert (int(sums[0, 1]) << 32) + int(sums[0, 2]) == 2 * large**2


@given(st.dictionaries(st.integers(1, 2**40), st.integers(1, 2**20), max_size=30))
def test_sums_of_large_sizes_are_exact(sizes: dict[int, int]) -> None:
    """Sums of sizes and of their squares equal those of Python integers, also beyond 64 bits."""
    found = Sizes.of(np.array([*sizes], np.int64), np.array([*sizes.values()], np.int64))
    assert found.total == sum(size * times for size, times in sizes.items())
    assert found.squares == sum(size * size * times for size, times in sizes.items())
