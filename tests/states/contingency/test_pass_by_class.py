"""Sums over whole classes from cells in place, compared with those of streamed classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import budget as memory
from streameval.budget import Budget
from streameval.kernels.keys import ID_BUCKETS
from streameval.states.contingency import pass_by_class
from streameval.states.contingency.cells import Keys, core_layouts
from streameval.states.contingency.pass_by_class import _visit_classes, by_class
from streameval.states.contingency.rounds import ByClass
from streameval.states.contingency.summary import Summary
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, Layout


def keyed_of(words: np.ndarray, counts: np.ndarray, budget: Budget, segments: int) -> KeyedCounts:
    """Items in several segments; those with counts above 1 are stored as such."""
    layout = Layout(ID_BUCKETS, 64, words=words.shape[1])
    found = KeyedCounts(layout)
    for k in range(segments):
        builder = SegmentBuilder(layout, budget, 7)
        own, times = words[k::segments], counts[k::segments]
        for which in (times == 1, times > 1):
            if which.any():
                builder.add_ids(list(own[which].T.copy()), times[which] if times[which][0] > 1 else NO_COUNTS)
        found = found.merge(KeyedCounts(layout, builder.finish()))
    return found


def cells_of(seed: int, rows: int, others: int, *, words: int, packed: bool, owner: int, lonely: float) -> ByClass:
    """Random cells of random classes; some sizes and multiplicities are large."""
    rng, budget = np.random.default_rng(seed), Budget(1 << 30)
    top = np.array([rng.choice([3, 40, 1 << 62]), *[2] * (words - 1)], np.uint64)
    classes = rng.integers(0, top, (rows + others, words), np.uint64)
    classes[:rows][rng.random(rows) < lonely, 0] = rng.integers(1 << 62, 1 << 63)
    classes[:rows, 0] += np.arange(rows, dtype=np.uint64) * (classes[:rows, 0] >= 1 << 62)
    n = rng.choice([1, 1, 2, 7, 70, 1 << 20], others).astype(np.uint64)
    c = n + rng.choice([1, 2, 9, 1 << 17], others).astype(np.uint64)
    counts = [rng.choice([1, 1, 1, 3, 1 << 18], size).astype(np.int64) for size in (rows, others)]
    sizes = (n << np.uint64(32) | c,) if packed else (n, c)
    more = rng.integers(0, 9, (others, owner), np.uint64)
    return ByClass(
        keyed_of(classes[:rows], counts[0], budget, 3),
        keyed_of(np.column_stack((classes[rows:], *sizes, more)), counts[1], budget, 2),
        KeyedCounts(core_layouts(Keys(owner, words))[1]),
        owner,
    )


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("room", [4, 1 << 17])
def test_sums_are_those_of_streamed_classes(words: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any words, segments and multiplicities, many and few classes of one row, and sizes beyond the tables."""
    monkeypatch.setattr(pass_by_class, "_TOGETHER", room)
    monkeypatch.setattr(pass_by_class, "_SIZES", max(room, 16))
    monkeypatch.setattr(memory, "_FEW", room)
    budget = Budget(1 << 30)

    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 2**32),
        rows=st.integers(0, 3000),
        others=st.integers(0, 300),
        packed=st.booleans(),
        owner=st.integers(0, 2),
        lonely=st.sampled_from([0.0, 0.5, 1.0]),
    )
    def check(seed: int, rows: int, others: int, packed: bool, owner: int, lonely: float) -> None:
        cells = cells_of(seed, rows, others, words=words, packed=packed, owner=owner, lonely=lonely)
        buckets = np.flatnonzero(cells.sizes()).tolist()
        streamed = [_visit_classes(cells, (b, b + 1), budget, None, giant=True) for b in buckets]
        found = [by_class(cells, interval, budget) for interval in ((0, 700), (700, ID_BUCKETS))]
        assert Summary().merge(*found) == Summary().merge(*streamed)

    check()
