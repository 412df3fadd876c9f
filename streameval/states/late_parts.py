"""Ids in parts, for late labels that exceed the memory: their codes are found before the rows are folded.

Ids are divided by the leading bits of their first words. Only a filter of all ids stays in memory, one to two bytes
each. The parts are arrays of the budget, which spills them.

A task reads the ids of its rows before it reads the rows. Ids that pass the filter, which are those of the table and
some 3 % of the others, are divided in the same way and looked up part by part. Their codes wait until the rows are
folded, in their order, so that no state depends on the number of parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.jit import read_only
from streameval.kernels.lookup import (
    ABSENT,
    IdTable,
    find_codes,
    find_marked,
    mark_words,
    no_marks,
    range_starts,
    scramble_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.budget import Budget, Buffer
    from streameval.typing import Array

_NO_FILTER = np.full(1, ~np.uint64(0))  # that every id passes
_EVERY = np.zeros(0, np.bool_)  # no id is null


class Ids(NamedTuple):
    """The ids of n rows.

    Attributes
    ----------
    first, second : uint64 arrays of shape (n,), both words; the second one is empty for a single column of integers
    valid : bool array of shape (n,), which rows have an id in every column; empty if all have
    raw : whether the first words are integers, not scrambled
    """

    first: Array
    second: Array
    valid: Array
    raw: bool

    @property
    def scrambled(self) -> Array:
        """The first words, which look random."""
        return scramble_words(read_only(self.first)) if self.raw else self.first

    def codes(self, table: IdTable, seen: Array) -> Array:
        """The code of each row's id in a table, `ABSENT` if it lacks it; sets `seen` for the ids that occur."""
        words = map(read_only, (self.first, self.second))
        codes: Array = find_codes(*words, self.valid, self.raw, *map(read_only, table), seen)
        return codes


def divide(words: Array, bits: int) -> tuple[Array, Array]:
    """The order of words by their leading bits, and the start of each part, followed by the end of the last.

    Examples
    --------
    >>> words = np.array([3 << 62, 1, 2 << 62, 0], np.uint64)
    >>> [array.tolist() for array in divide(words, 2)]
    [[1, 3, 2, 0], [0, 2, 2, 3, 4]]
    """
    part = (words >> np.uint64(64 - bits)).astype(np.uint16)
    ends = np.cumsum(np.bincount(part, minlength=1 << bits))
    return np.argsort(part, kind="stable"), np.append(0, ends)


@dataclass(frozen=True)
class IdParts:
    """A table of ids in parts; the words of a part lack the leading bits that number it.

    Attributes
    ----------
    bits : number of these bits, at most 16
    parts : first and second words, codes and starts of each part, see `IdTable`
    marks : the filter
    """

    bits: int
    parts: Sequence[tuple[Buffer, Buffer, Buffer, Buffer]]
    marks: Array

    @classmethod
    def of(cls, bits: int, parts: Sequence[tuple[Buffer, Buffer, Buffer]], budget: Budget) -> IdParts:
        """The table of first words, second words and codes, in ascending order of the first words of a part."""
        marks, made = no_marks(sum(codes.shape[0] for _, _, codes in parts)), []
        for number, (first, second, codes) in enumerate(parts):
            words = first.read()
            mark_words(whole_words(words, number, bits), marks)
            made.append((first, second, codes, budget.hold(range_starts(words))))
        return cls(bits, made, marks)

    @property
    def sizes(self) -> list[int]:
        """Number of ids in each part."""
        return [codes.shape[0] for _, _, codes, _ in self.parts]

    def tables(self) -> Iterator[IdTable]:
        """The table of each part."""
        for first, second, codes, starts in self.parts:
            yield IdTable(first.read(), second.read(), codes.read(), starts.read(), _NO_FILTER)


def whole_words(words: Array, number: int, bits: int) -> Array:
    """The words of a part with the leading bits that number it."""
    return (words >> np.uint64(bits)) | (np.uint64(number) << np.uint64(64 - bits))


class PartCodes:
    """The codes of the rows of a task, found before they are folded.

    Attributes
    ----------
    seen : uint8 array, a bit for each id that occurs; each part begins with a new byte
    """

    def __init__(self, table: IdParts, batches: Iterable[Ids], budget: Budget) -> None:
        self._hold = budget.hold
        self._table = table
        self._sizes: list[int] = []
        self._rows: list[Buffer] = []
        words, bounds = [], []
        for ids in batches:
            rows, first = find_marked(read_only(ids.first), ids.valid, ids.raw, read_only(table.marks))
            order, starts = divide(first, table.bits)
            rows = rows[order]
            self._sizes.append(ids.first.size)
            self._rows.append(budget.hold(rows))
            second = ids.second[rows] if ids.second.size else ids.second
            words.append((budget.hold(first[order] << np.uint64(table.bits)), budget.hold(second)))
            bounds.append(starts)
        self._codes, self.seen = self._find(words, bounds)
        lengths = np.diff(np.array(bounds, np.int64).reshape(len(bounds), (1 << table.bits) + 1))
        self._starts = np.insert(np.cumsum(lengths, axis=0), 0, 0, axis=0)  # of each batch in the codes of each part
        self._waiting, self._batch = np.empty(0, np.uint8), 0

    def _find(self, words: Sequence[tuple[Buffer, Buffer]], bounds: Sequence[Array]) -> tuple[list[Buffer], Array]:
        """The codes of the rows of each part, batch by batch, and the ids that occur."""
        codes, seen = [], []
        for number, table in enumerate(self._table.tables()):
            occurs, of_part = np.zeros(table.first.size, np.bool_), [np.empty(0, np.uint8)]
            for (first, second), starts in zip(words, bounds, strict=True):
                start, stop = int(starts[number]), int(starts[number + 1])
                if start < stop:
                    rest = second.read(start, stop) if second.shape[0] else second.read()
                    of_part.append(Ids(first.read(start, stop), rest, _EVERY, raw=False).codes(table, occurs))
            codes.append(self._hold(np.concatenate(of_part)))
            seen.append(np.packbits(occurs))
        return codes, np.concatenate(seen)

    def take(self, count: int) -> Array:
        """The codes of the next rows."""
        while self._waiting.size < count:
            self._waiting = np.concatenate([self._waiting, self._of_batch(self._batch)])
            self._batch += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _of_batch(self, batch: int) -> Array:
        """The codes of the rows of a batch of ids."""
        out, spans = np.full(self._sizes[batch], ABSENT, np.uint8), self._starts[batch : batch + 2].tolist()
        parts = zip(self._codes, *spans, strict=True)
        out[self._rows[batch].read()] = np.concatenate([codes.read(start, stop) for codes, start, stop in parts])
        return out
