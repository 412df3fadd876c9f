"""The three tables of `streameval.states.scores.groups`: how the words of ids and scores make the keys of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.grouped.rankings import MIX32
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import id_codes, mixed
from streameval.states.keyed.layout import NO_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.budget import Budget
    from streameval.states.keyed.layout import Layout
    from streameval.typing import Array

__all__ = ["WORD", "TableBuilders", "bias", "is_narrow"]

WORD = np.uint64(32)  # bits of a narrow id, and of a score
_HALF = np.uint64(1 << 31)
_NARROW = np.uint64(1 << 32)


class TableBuilders:
    """The builders of the three tables, made when they are needed.

    Parameters
    ----------
    layouts : of the tables, by name
    kind : the type of the ids, see `streameval.states.keyed.ids.id_type`
    narrow : whether ids of 32 bits and scores share a word
    capacity : rows of a segment
    counted : whether items with counts are given, not rows
    """

    def __init__(
        self, layouts: dict[str, Layout], kind: str, budget: Budget, capacity: int, *, narrow: bool, counted: bool
    ) -> None:
        self._layouts, self._kind, self._shared = layouts, kind, narrow
        self._budget, self._capacity, self._counted = budget, capacity, counted
        self._made: dict[str, SegmentBuilder] = {}

    def __getitem__(self, name: str) -> SegmentBuilder:
        if name not in self._made:
            self._made[name] = SegmentBuilder(self._layouts[name], self._budget, self._capacity, counted=self._counted)
        return self._made[name]

    def add_items(self, present: Array, words: list[Array], rows: Array, side: int) -> None:
        """Add lines of the state's table: words of the id, and of the score."""
        narrow = present & is_narrow(words[0], self._kind) if self._shared else np.zeros(present.size, np.bool_)
        for name, here in (("narrow", narrow), ("wide", present & ~narrow), ("null", ~present)):
            at = np.flatnonzero(here & (rows > 0))
            if at.size:
                first, rest, codes = _ENCODED[name]([word[at] for word in words])
                self[name].add_items(first, codes | np.uint32(side), rest, rows[at], NO_WEIGHTS)

    def tables(self) -> dict[str, KeyedCounts]:
        """What was collected."""
        return {name: KeyedCounts.built(made) for name, made in self._made.items()}


def is_narrow(ids: Array, kind: str) -> Array:
    """Which ids, as words, have 32 bits: two's complement where they are signed."""
    found: Array = ids + bias(kind) < _NARROW
    return found


def bias(kind: str) -> np.uint64:
    """What makes numbers from 0 to 2³² − 1 of ids that are narrow."""
    return _HALF if kind == "signed" else np.uint64(0)


def _narrow(words: list[Array]) -> tuple[Array, Array | None, Array]:
    ids = words[0].astype(np.uint32) * np.uint32(MIX32)
    first = (ids.astype(np.uint64) << WORD) | words[1]
    return first, None, id_codes(first)


def _wide(words: list[Array]) -> tuple[Array, Array | None, Array]:
    first = mixed(words[0])
    return first, np.column_stack(words[1:]), id_codes(first)


def _null(words: list[Array]) -> tuple[Array, Array | None, Array]:
    return words[-1], None, np.zeros(words[-1].size, np.uint32)


_ENCODED: dict[str, Callable[[list[Array]], tuple[Array, Array | None, Array]]] = {
    "narrow": _narrow,
    "wide": _wide,
    "null": _null,
}
