"""PairTable: rows of two dictionary-encoded columns, counted by pair in one table across batches.

The dictionaries of batches differ, so their entries are numbered by the words of their ids. A row then takes two small
look-ups and one increment, without a hash or a move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streameval.budget import room_for
from streameval.kernels.jit import read_only
from streameval.kernels.keyed.rows import count_pairs
from streameval.states.contingency.cells import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.budget import Budget
    from streameval.typing import Array

_ENTRIES = 2  # largest number of entries of the table, per row
_IDS = 8  # ids of a column number at most 1/8 of the largest table, since their words are kept
_FEW = 1 << 10  # entries that a dictionary may have for fewer rows, since all entries are numbered for each batch
_ROWS = 1 << 32  # an entry counts fewer rows
_SLAB = 1 << 17  # entries whose pairs are stored together


class PairTable:
    """Counts rows by pair of ids; owned by one task.

    Parameters
    ----------
    budget : Budget
        Lends the table.
    most : int
        Largest number of entries.
    store : callable
        ``store(columns, counts)`` takes distinct pairs, as uint64 arrays of their words, with their rows.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> table = PairTable(Budget(), 100, lambda columns, counts: print(*columns, counts))
    >>> words = np.array([[7], [9]], np.uint64)
    >>> table.add(([0, 1, 0], [1, 1, 1]), (words, words)), table.add(([0], [0]), (words[::-1], words))
    (True, True)
    >>> table.flush()
    [7 9 9] [9 7 9] [2 1 1]
    """

    def __init__(self, budget: Budget, most: int, store: Callable[[Sequence[Array], Array], None]) -> None:
        self._budget, self._most, self._store = budget, most, store
        self._ids: tuple[_Ids, _Ids] = _Ids(), _Ids()
        self._table = np.empty((0, 0), np.uint32)
        self._rows = 0

    def may_take(self, first: pa.Array, second: pa.Array) -> bool:
        """Whether two columns are encoded, by dictionaries whose pairs fit into the table that their rows allow.

        A dictionary that has many entries for few rows, most of them unused, is not taken.
        """
        if not (pa.types.is_dictionary(first.type) and pa.types.is_dictionary(second.type)):
            return False
        shape = len(first.dictionary), len(second.dictionary)
        return max(shape) <= max(len(first), _FEW) and self._allows(shape, len(first))

    def _allows(self, shape: tuple[int, int], rows: int) -> bool:
        """Whether the table may have a shape after some more rows."""
        entries = min(self._most, _ENTRIES * (self._rows + rows))
        return shape[0] * shape[1] <= entries and max(shape) * _IDS <= self._most

    def add(self, codes: Sequence[Array], words: Sequence[Array]) -> bool:
        """Count rows, unless the table would have too many entries; returns whether they were counted.

        Parameters
        ----------
        codes : for each column, the entry of each row in the dictionary, an integer array of shape (n,)
        words : for each column, the words of the entries, a uint64 array of shape (n_entries, n_words)
        """
        rows = len(codes[0])
        numbers = self._numbered(words, rows)
        if numbers is None:
            self.flush()
            numbers = self._numbered(words, rows)
        if numbers is None:
            self.flush()
            return False
        first, second = (read_only(np.asarray(column, np.int32)) for column in codes)
        count_pairs(first, second, numbers[0] * self._table.shape[1], numbers[1], self._table.reshape(-1))
        self._rows += rows
        return True

    def _numbered(self, words: Sequence[Array], rows: int) -> list[Array] | None:
        """Number of each entry of both dictionaries; None if the table has no room for them, or for more rows."""
        numbers = [ids.number(column) for ids, column in zip(self._ids, words, strict=True)]
        shape = self._ids[0].count, self._ids[1].count
        if self._rows + rows >= _ROWS:
            return None
        if any(count > room for count, room in zip(shape, self._table.shape, strict=True)):
            if not self._allows(shape, rows):
                return None
            self._grow(shape)
        return numbers

    def _grow(self, shape: tuple[int, int]) -> None:
        """Make room for more ids."""
        before = self._table
        height, width = (max(a, room_for(b)) for a, b in zip(before.shape, shape, strict=True))
        self._table = self._budget.borrow((height, width), np.uint32)
        self._table[:] = 0
        self._table[: before.shape[0], : before.shape[1]] = before
        self._budget.give_back(before)

    def flush(self) -> None:
        """Store all pairs, and start with an empty table."""
        flat, width = self._table.reshape(-1), max(self._table.shape[1], 1)
        for start in range(0, flat.size, _SLAB):
            found = start + np.flatnonzero(flat[start : start + _SLAB] != 0)  # half the time of searching numbers
            if found.size:
                pairs = zip(self._ids, np.divmod(found, width), strict=True)
                self._store([column for ids, at in pairs for column in ids.words(at)], flat[found].astype(np.int64))
        self._budget.give_back(self._table)
        self._ids, self._table, self._rows = (_Ids(), _Ids()), np.empty((0, 0), np.uint32), 0


class _Ids:
    """Numbers ids by their words, in order of first appearance."""

    def __init__(self) -> None:
        self._words = np.empty((0, 0), np.uint64)

    @property
    def count(self) -> int:
        """Number of different ids."""
        return self._words.shape[0]

    def number(self, words: Array) -> Array:
        """The number of each id, given by its words, a uint64 array of shape (n, n_words)."""
        known = self.count
        words = np.concatenate((self._words, words)) if known else words
        bounds, further = np.array([0, len(words)]), words.shape[1] - 1
        numbers, found = numbered(bounds, words[:, 0].copy(), words[:, 1:].copy(), further)
        self._words = words[found]
        return numbers[known:]

    def words(self, numbers: Array) -> list[Array]:
        """The words of numbered ids, one array for each."""
        return [column[numbers] for column in self._words.T]
