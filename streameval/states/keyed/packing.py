"""Packing: delta encoding of the table of a keyed state, which is decoded to segments without another sort.

A stored row is a *piece*: up to 2¹⁶ items of one code (`streameval.states.keyed.counts`) in ascending order. Decoding
is one pass that adds up differences and writes words directly into segments. Sorted words are stored as differences
(`streameval.kernels.keyed.packing`): about 1 byte a row for 16-bit words of scores, 5 for 64-bit words.

================  ======================================================================
``code``            twice the bucket, plus the label; ascending within a batch
``rows``            rows of the piece
``items``           number of distinct keys
``first``           the first word
``width``           bytes of a difference
``words``           the differences
``counts``          rows of each item; empty if words are repeated instead
``second``          further words of the items, if keys have them
``weights``         weights of the items, if rows have them
================  ======================================================================

Items with at most `FEW` rows are kept in other pieces than larger items: the former are decoded to single rows, which
sort fastest; the latter keep their counts. The bytes of a piece depend on the state alone: a table may be divided into
batches anywhere, as memory requires, but is packed by whole buckets, and by `KEYS` keys of a larger bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streameval.kernels.keyed import packing as kernels
from streameval.kernels.segments import sum_pieces
from streameval.states.facts import check_counts
from streameval.states.keyed.layout import NO_COUNTS, Segment, index_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.keyed.layout import Layout
    from streameval.typing import Array

FEW = 32  # items with at most this many rows are decoded to single rows
ITEMS = 1 << 16  # largest number of items of a piece
KEYS = 1 << 18  # largest number of keys of a bucket that are packed together
RUN_BYTES = 1 << 25  # approximate bytes of a decoded segment; few segments merge faster than many


@dataclass(frozen=True)
class Packing:
    """Delta encoding of the tables of a spec.

    Parameters
    ----------
    layout : Layout
        Layout of the segments.
    buckets : callable
        Maps uint64 keys to buckets.

    Examples
    --------
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.5, 0.5, 0.25], np.float32))
    >>> [table] = state.to_arrow()
    >>> packed = state.spec.packing.pack(table)
    >>> packed.column("code").to_pylist(), packed.column("first").to_pylist()
    ([33278, 33279, 33535], [65535, 65535, 65535])
    """

    layout: Layout
    buckets: Callable[[Array], Array]

    @property
    def schema(self) -> pa.Schema:
        """The stored columns."""
        small = {"code": pa.uint32(), "rows": pa.int64(), "items": pa.int32(), "first": pa.uint64()}
        columns = small | {"width": pa.uint8(), "words": pa.binary(), "counts": pa.binary()}
        more = {"second": self.layout.words == 2, "weights": self.layout.weighted}
        return pa.schema(columns | {name: pa.binary() for name, there in more.items() if there})

    def packed(self, tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pieces of a table of distinct keys in ascending order, which may be divided into batches in any way."""
        held: list[pa.RecordBatch] = []
        rows, last = 0, -1
        for table in tables:
            if not table.num_rows:
                continue
            first, end = self.buckets(table.column("key").to_numpy()[[0, -1]]).tolist()
            if held and first != last:
                yield from map(self.pack, self._cut(held))
                held, rows = [], 0
            held.append(table)
            rows, last = rows + table.num_rows, end
            if len(held) > 1 and rows >= KEYS:  # a large bucket, of which more may follow
                *full, rest = self._cut(held)
                yield from map(self.pack, full)
                held, rows = [rest], rest.num_rows
        if held:
            yield from map(self.pack, self._cut(held))

    def _cut(self, tables: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Consecutive batches as one, cut after every `KEYS` keys of a bucket."""
        [table] = pa.Table.from_batches(tables).combine_chunks().to_batches()
        if table.num_rows <= KEYS:
            return [table]
        buckets = self.buckets(table.column("key").to_numpy())
        bounds = np.append(np.flatnonzero(np.append(True, buckets[1:] != buckets[:-1])), buckets.size)
        large = np.flatnonzero(np.diff(bounds) > KEYS)
        cuts = [at for a, b in zip(bounds[large], bounds[large + 1], strict=True) for at in range(a + KEYS, b, KEYS)]
        return [table.slice(a, b - a) for a, b in pairwise([0, *cuts, table.num_rows])]

    def pack(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The pieces of a part of a table: of whole buckets, or of some keys of one."""
        columns = {name: table.column(name).to_numpy() for name in table.schema.names}
        keys, buckets = columns["key"], self.buckets(columns["key"])
        words = keys.astype(np.uint16) if self.layout.bits == 16 else keys
        few = self._few
        parts = []
        for label, side in enumerate(("negative", "positive")):
            counts = columns[f"{side}s"]
            for together, here in ((False, (counts > 0) & (counts <= few)), (True, counts > few)):
                further = [columns[name][here] for name in ("second", f"{side}_weight") if name in columns]
                repeat = not together and not further
                codes = (buckets[here].astype(np.int64) << 1) | label
                parts.append(self._pieces(codes, words[here], counts[here], further, repeat=repeat))
        pieces = pa.Table.from_batches(parts).combine_chunks().to_batches() or parts[:1]
        order = np.argsort(pieces[0].column("code").to_numpy(), kind="stable")
        return pieces[0].take(pa.array(order))

    @property
    def _few(self) -> int:
        """Largest number of rows of an item that is decoded to single rows."""
        return 1 if self.layout.weighted else FEW

    def _pieces(
        self, codes: Array, words: Array, counts: Array, further: list[Array], *, repeat: bool
    ) -> pa.RecordBatch:
        """Pieces of items of one label, all with few rows (`repeat` if their words are repeated) or all with many."""
        starts = kernels.piece_starts(codes, ITEMS)
        widths, plain, word_bytes, count_bytes = kernels.measure(words, counts, starts, repeat)
        ends = [np.concatenate(([0], np.cumsum(sizes))) for sizes in (word_bytes, count_bytes)]
        packed = [np.empty(int(end[-1]), np.uint8) for end in ends]
        kernels.pack(words, counts, starts, widths, plain, *packed)
        begin = starts[:-1]
        rows = np.add.reduceat(counts, begin) if begin.size else counts
        arrays = [codes[begin].astype(np.uint32), rows, np.diff(starts).astype(np.int32), words[begin]]
        arrays += [arrays.pop().astype(np.uint64), widths]
        stored = [pa.array(array) for array in arrays] + list(starmap(_binary, zip(packed, ends, strict=True)))
        stored += [_binary(values.view(np.uint8), 8 * starts) for values in further]
        return pa.RecordBatch.from_arrays(stored, schema=self.schema)

    def segments(self, batches: Iterable[pa.RecordBatch], budget: Budget) -> Iterator[Segment]:
        """Decode stored pieces, divided into batches in any way, into segments of about `RUN_BYTES`.

        Pieces with counts form separate segments.

        Raises
        ------
        ValueError
            If the pieces are damaged.
        """
        limit = max(min(RUN_BYTES, budget.limit // 8) // self.layout.dtype.itemsize, 1)
        held: list[_Stored] = []
        rows = 0
        for batch in batches:
            for part in _Stored.parts(batch, self.layout, self._few, limit):
                if held and rows + part.words > limit:
                    yield from self._unpacked(held, budget)
                    held, rows = [], 0
                held.append(part)
                rows += part.words
        if held:
            yield from self._unpacked(held, budget)

    def _unpacked(self, parts: list[_Stored], budget: Budget) -> Iterator[Segment]:
        """Decode some pieces into at most two segments: one of single rows, and one of items with counts.

        Tables cover only the codes that occur, since states with few rows have few codes.
        """
        codes, places = index_codes([part.codes for part in parts], self.layout)
        sizes = np.zeros((2, codes.size), np.int64)
        several = np.zeros(codes.size, np.int64)
        for part, place in zip(parts, places, strict=True):
            many = part.many
            np.add.at(sizes[0], place[~many], part.rows[~many])
            np.add.at(sizes[1], place[many], part.items[many])
            np.add.at(several, place[many], part.rows[many])
        starts = [np.concatenate(([0], np.cumsum(table))) for table in sizes]
        out = []
        for start in starts:
            n = int(start[-1])
            weights = np.empty(n if self.layout.weighted else 0)
            out.append((np.empty(n, self.layout.dtype), np.empty((n, self.layout.words - 1), np.uint64), weights))
        counts = np.empty(out[1][0].size, np.int64)
        cursors = [start[:-1].copy() for start in starts]
        for part, place in zip(parts, places, strict=True):
            part.unpack(self._few, place, cursors, *out[0], *out[1], counts)
        each = (sizes[0], NO_COUNTS), (several, counts)
        for table, start, (words, rest, weights), (rows, count) in zip(sizes, starts, out, each, strict=True):
            here = np.flatnonzero(table)
            if here.size:
                bounds = np.append(start[here], start[-1])
                sums = sum_pieces(weights, bounds) if self.layout.weighted else None
                rows_of = rows[here] if count.size else None
                yield Segment.held(budget, codes[here], bounds, rows_of, sums, words, rest, count, weights)


def _binary(data: Array, ends: Array) -> pa.Array:
    """An Arrow array of binary values that are consecutive in `data`, with offsets `ends`."""
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    )


def _bytes(column: pa.Array) -> tuple[Array, Array]:
    """The bytes of binary values, and their offsets: the start of each value, then the end of the last."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    found = np.frombuffer(data or b"", np.uint8)
    found.flags.writeable = False  # always, because kernels are compiled for read-only arrays only
    return found, ends.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Stored pieces whose descriptions were checked."""

    codes: Array
    rows: Array
    items: Array
    many: Array
    batch: pa.RecordBatch
    words: int  # number of words after decoding

    @classmethod
    def parts(cls, batch: pa.RecordBatch, layout: Layout, few: int, limit: int) -> Iterator[_Stored]:
        """The pieces of a batch, in parts of about `limit` words; raises `ValueError` for inconsistent descriptions."""
        codes, rows, items = (batch.column(name).to_numpy() for name in ("code", "rows", "items"))
        sound = (items > 0) & (items <= ITEMS) & (rows >= items) & (codes < layout.codes)
        if not sound.all():
            raise ValueError(f"{int((~sound).sum())} pieces are inconsistent")
        items = items.astype(np.int64)
        many = rows > few * items
        ends = np.cumsum(np.where(many, items, rows))
        cuts = np.flatnonzero(np.diff(ends // limit, prepend=0))
        for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(batch)], strict=True):
            if a < b:
                words = int(ends[b - 1] - (ends[a - 1] if a else 0))
                yield cls(codes[a:b], rows[a:b], items[a:b], many[a:b], batch.slice(a, b - a), words)

    def unpack(self, few: int, place: Array, cursors: list[Array], *out: Array) -> None:
        """Decode the items and write them to `out` at the cursors of their codes; `place` indexes the cursors.

        Raises
        ------
        ValueError
            If a piece does not match its description.
        """
        n = int(self.items.sum())
        further: dict[str, Array] = {"second": np.empty((n, 0), np.uint64), "weights": np.empty(0)}
        for name, kind, shape in (("second", np.uint64, (n, 1)), ("weights", np.float64, (n,))):
            if name in self.batch.schema.names:
                data, ends = _bytes(self.batch.column(name))
                further[name] = data[ends[0] : ends[-1]].copy().view(kind).reshape(shape)  # a copy is aligned
        check_counts("weights", further["weights"])
        first, width = (self.batch.column(name).to_numpy() for name in ("first", "width"))
        stored = (part for name in ("words", "counts") for part in _bytes(self.batch.column(name)))
        sizes = (place, self.rows, self.items)
        done = kernels.unpack(*sizes, first, width, *stored, *further.values(), few, *cursors, *out)
        if done != self.codes.size:
            raise ValueError(f"piece {done} of {self.codes.size} does not match its description")
