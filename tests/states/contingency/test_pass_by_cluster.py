"""Cells of whole clusters from rows in place, compared with counting in Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import budget as memory
from streameval.budget import Budget
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.contingency import pass_by_cluster
from streameval.states.contingency.cells import Keys
from streameval.states.contingency.pass_by_cluster import whole_clusters
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, Layout

Row = tuple[tuple[int, ...], tuple[int, ...], int]  # cluster, class, number of equal rows


def keyed_of(rows: list[Row], keys: Keys, budget: Budget, segments: int) -> KeyedCounts:
    """Rows in several segments; those that occur several times are items with counts."""
    layout = Layout(ID_BUCKETS, 64, words=sum(keys))
    found = KeyedCounts(layout)
    for k in range(segments):
        builder = SegmentBuilder(layout, budget, 7)
        for counted in (False, True):
            some = [row for row in rows[k::segments] if (row[2] > 1) is counted]
            if some:
                words = np.array([[*cluster, *class_] for cluster, class_, _ in some], np.uint64)
                counts = np.array([n for *_, n in some], np.int64) if counted else NO_COUNTS
                builder.add_ids(list(words.T.copy()), counts)
        found = found.merge(KeyedCounts(layout, builder.finish()))
    return found


def cells_of(keyed: KeyedCounts, keys: Keys, budget: Budget, *, packed: bool, owner: bool) -> dict[str, Any]:
    """All cells, singletons, sizes and the sum of the largest cells."""
    further = keys.class_ + (0 if packed else 1) + keys.cluster * owner
    sizes, large, maxima = np.zeros(20, np.int64), Counter[int](), 0
    cells, singles = Counter[tuple[Any, ...]](), Counter[tuple[int, ...]]()
    for part in whole_clusters(keyed, (0, ID_BUCKETS), keys, further, sizes, budget, packed=packed):
        rows = [(int(word), *rest) for word, rest in zip(part.words, part.rest.tolist(), strict=True)]
        for row in rows:
            class_, others = row[: keys.class_], row[keys.class_ :]
            n, c = (others[0] >> 32, others[0] & 0xFFFFFFFF) if packed else others[:2]
            own = others[1 if packed else 2 :]
            cluster = (int(unmix(np.array(own[:1], np.uint64))[0]), *own[1:]) if owner else ()
            cells[class_, n, c, cluster] += 1
        singles.update(map(tuple, part.singles.tolist()))
        large.update(part.large.tolist())
        maxima += part.maxima
    small = Counter({size: int(times) for size, times in enumerate(sizes) if times})
    return {"cells": cells, "singles": singles, "sizes": small + large, "maxima": maxima}


def truth(rows: list[Row], *, owner: bool) -> dict[str, Any]:
    """The same, by counting."""
    clusters: dict[tuple[int, ...], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for cluster, class_, n in rows:
        clusters[cluster][class_] += n
    cells, singles = Counter[tuple[Any, ...]](), Counter[tuple[int, ...]]()
    for cluster, classes in clusters.items():
        for class_, n in classes.items():
            if classes.total() == 1:
                singles[class_] += 1
            else:
                cells[class_, n, classes.total(), cluster if owner else ()] += 1
    return {
        "cells": cells,
        "singles": singles,
        "sizes": Counter(classes.total() for classes in clusters.values()),
        "maxima": sum(max(classes.values()) for classes in clusters.values()),
    }


@pytest.mark.parametrize("keys", [Keys(1, 1), Keys(2, 1), Keys(1, 2), Keys(2, 2)])
@pytest.mark.parametrize("room", [4, 1 << 18])
def test_cells_are_those_of_counting(keys: Keys, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of words, segments, items with counts and buckets at a time; arrays are borrowed or new."""
    monkeypatch.setattr(pass_by_cluster, "_CELLS", room)
    monkeypatch.setattr(memory, "_FEW", room)
    budget = Budget(1 << 30)

    @settings(max_examples=20, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        top = data.draw(st.sampled_from([2, 30, 2**64 - 1]))
        ids = [st.tuples(*[st.integers(0, top), *[st.integers(0, 1)] * (words - 1)]) for words in keys]
        row = st.tuples(*ids, st.sampled_from([1, 1, 1, 2, 2**31]))
        rows = data.draw(st.lists(row, max_size=60)) * data.draw(st.sampled_from([1, 1, 2, 9]))
        packed, owner = data.draw(st.booleans()), data.draw(st.booleans())
        if packed:
            rows = [(cluster, class_, min(n, 2)) for cluster, class_, n in rows]
        keyed = keyed_of(rows, keys, budget, data.draw(st.integers(1, 4)))
        assert cells_of(keyed, keys, budget, packed=packed, owner=owner) == truth(rows, owner=owner)

    check()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_singletons_are_removed_first_where_they_are_many(share: float) -> None:
    """The cells are the same for any share of singletons, which decides how a bucket is read."""
    rng = np.random.default_rng(4)
    lone, spread = (rng.integers(0, 2**63, 9_000), rng.integers(0, 300, 9_000))
    clusters = np.where(rng.random(9_000) < share, lone, spread)
    rows = [
        ((cluster,), (class_,), 1) for cluster, class_ in zip(clusters.tolist(), (spread % 7).tolist(), strict=True)
    ]
    keys, budget = Keys(1, 1), Budget(1 << 30)
    found = cells_of(keyed_of(rows, keys, budget, 3), keys, budget, packed=True, owner=False)
    assert found == truth(rows, owner=False)
