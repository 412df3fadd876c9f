"""The three tables of `streameval.states.scores.groups`: how ids and scores are encoded as keys of each table."""

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

WORD = np.uint64(32)  # bits of a narrow id, and of the score that shares its word
_HALF = np.uint64(1 << 31)
_NARROW = np.uint64(1 << 32)


class TableBuilders:
    """The builders of the three tables, each created when it is first needed; they share the memory of one builder.

    Parameters
    ----------
    layouts : layout of each table, by name
    kind : type of the ids, see `streameval.states.keyed.ids.id_type`
    budget : owns the memory of the segments
    capacity : rows that all builders together collect at a time
    narrow : whether a 32-bit id and a score share a word
    counted : whether the input is items with counts (`add_items`) instead of rows
    """

    def __init__(
        self, layouts: dict[str, Layout], kind: str, budget: Budget, capacity: int, *, narrow: bool, counted: bool
    ) -> None:
        self._layouts, self._kind, self._shared = layouts, kind, narrow
        self._budget, self._capacity, self._counted = budget, capacity, counted
        self._made: dict[str, SegmentBuilder] = {}

    def __getitem__(self, name: str) -> SegmentBuilder:
        if name not in self._made:
            share = self._capacity // (1 + len(self._made))
            for made in self._made.values():
                made.shrink(share)
            self._made[name] = SegmentBuilder(self._layouts[name], self._budget, share, counted=self._counted)
        return self._made[name]

    def add_items(self, present: Array, words: list[Array], rows: Array, side: int) -> None:
        """Add items from the state's stored table.

        Parameters
        ----------
        present : bool array of shape (n,), whether the item has an id
        words : uint64 arrays of shape (n,), the words of the id, then the rank key of the score
        rows : int64 array of shape (n,), rows of each item; items with 0 rows are skipped
        side : label of the items, 0 or 1
        """
        narrow = present & is_narrow(words[0], self._kind) if self._shared else np.zeros(present.size, np.bool_)
        for name, here in (("narrow", narrow), ("wide", present & ~narrow), ("null", ~present)):
            at = np.flatnonzero(here & (rows > 0))
            if at.size:
                first, rest, codes = _ENCODED[name]([word[at] for word in words])
                self[name].add_items(first, codes | np.uint32(side), rest, rows[at], NO_WEIGHTS)

    def tables(self) -> dict[str, KeyedCounts]:
        """The keyed counts of all tables that have rows."""
        return {name: KeyedCounts.built(made) for name, made in self._made.items()}


def is_narrow(ids: Array, kind: str) -> Array:
    """Which ids, given as words, fit into 32 bits; signed ids are in two's complement."""
    found: Array = ids + bias(kind) < _NARROW
    return found


def bias(kind: str) -> np.uint64:
    """The offset that maps narrow ids to 0 … 2³² − 1."""
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
