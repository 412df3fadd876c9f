"""Scratch memory: what a run takes besides states, builders and batches, and whether the limit has room for it."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from streameval.budget import LEAST_ROOM
from streameval.scan.faults import READ_ERRORS
from streameval.scan.parquet.pages import TEXT_BYTES
from streameval.scan.parquet.row_groups import LARGE_CHUNK, KeptRows, RowGroups
from streameval.wording import plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.scan import Piece
    from streameval.scan.parquet.row_groups import Group
    from streameval.states.protocol import Spec

LONG_BATCH_ROWS = 1 << 15  # largest number of rows of a batch that may have long strings or binaries
_SHORT_BATCH_ROWS = 1 << 19  # largest number of rows of a batch whose strings and binaries are short
_PAGE_ROWS = 1 << 10  # rows of long texts in a page: writers check the size of a page only so often
STATE_SHARE = 0.6  # share of the memory limit that states may take
_TABLES, _TABLE_ROW = 1 << 22, 200  # bytes of tables (hot keys, codes) per thread, and per row if there are few rows
_BOUNDED, _BOUNDED_ROW = 1.625, 1 << 12  # a bounded state and its builder: multiple of its bytes; most bytes per row
_FINISHED = 1 / 3  # share of a worker's limit up to which rows of finished tasks keep its peak within the limit
_LOG = logging.getLogger(__name__)


def scratch_bytes(pieces: Sequence[Piece], specs: Iterable[Spec] = (), threads: int = 1) -> int:
    """Bytes that all threads take while they read, besides growing states, their builders and batches of numbers.

    Each thread takes twice the compressed bytes of the largest row group; twice the decoded texts of a batch, which may
    be many times their stored size, or those of a page; tables of a few megabytes; and the states of the specs that
    have a largest size, with their builders. Tables and bounded states take less for few rows.
    """
    tables, bounded = _TABLES, int(_BOUNDED * sum(spec.traits.largest or 0 for spec in specs))
    if all(piece.rows >= 0 for piece in pieces):
        rows = sum(piece.rows for piece in pieces)
        tables, bounded = min(tables, _TABLE_ROW * rows), min(bounded, _BOUNDED_ROW * rows)
    group = max((group.nbytes for piece in pieces for group in _row_groups(piece)), default=0)
    texts = max(map(_text_bytes, pieces), default=0)
    return threads * (2 * (min(group, LARGE_CHUNK) + texts) + tables + bounded)


def _text_bytes(piece: Piece) -> int:
    """Bytes of the decoded texts of a batch, from their mean length in the footer.

    Long texts that are read as codes are decoded once, in their dictionary.
    """
    rows, longest = max(piece.rows, 0), text_rows([piece])
    dictionaries = max((group.dictionaries for group in _row_groups(piece)), default=0)
    return dictionaries + _row_text(piece) * min(max(longest, _PAGE_ROWS // 2), rows)


def text_rows(pieces: Iterable[Piece], room: int = 0) -> int:
    """Number of rows to read at a time from pieces with strings or binaries; fewer if the footers show long texts.

    Texts that the footers show to be short are read `room` rows at a time, the number that fits into the budget: a
    batch costs about half a millisecond, a tenth of the time to decode 32,768 UUIDs and to count them.

    Examples
    --------
    >>> text_rows([]) == LONG_BATCH_ROWS
    True
    """
    longest = max(map(_row_text, pieces), default=0)
    short = min(room, _SHORT_BATCH_ROWS, TEXT_BYTES // (2 * longest)) if longest else 0
    return max(1, min(max(LONG_BATCH_ROWS, short), TEXT_BYTES // max(1, longest)))


def has_plain_texts(pieces: Iterable[Piece]) -> bool:
    """Whether the footers show texts that are not read as codes, such as those of an abandoned dictionary."""
    return any(map(_row_text, pieces))


def _row_text(piece: Piece) -> int:
    """Mean bytes of the texts of a row."""
    return max((group.row_text for group in _row_groups(piece)), default=0)


def _row_groups(piece: Piece) -> tuple[Group, ...]:
    """The row groups of a piece; none of a table in memory."""
    stored = _stored(piece)
    return stored.groups if stored else ()


def _stored(piece: Piece) -> RowGroups | None:
    """The row groups of a piece, also below `KeptRows`; None for any other source."""
    source = piece.source.source if isinstance(piece.source, KeptRows) else piece.source
    return source if isinstance(source, RowGroups) else None


def warn_of_little(limit: int, pieces: Sequence[Piece], specs: Iterable[Spec], threads: int, whose: str = "") -> None:
    """Log a warning, once for equal numbers, if a memory limit is too low to be kept.

    Parameters
    ----------
    limit : memory limit of the process that folds, in bytes
    pieces : the pieces that it reads
    specs : the states that it folds
    threads : number of its threads
    whose : words after "memory" in the message, such as " of a worker"
    """
    scratch = scratch_bytes(pieces, specs, threads)
    if least_limit(scratch) <= limit:
        scratch += _uneven_bytes(limit, scratch, pieces, threads)
    least = least_limit(scratch)
    if limit < least:
        _warn(limit, least, threads, whose)


def _uneven_bytes(limit: int, scratch: int, pieces: Sequence[Piece], threads: int) -> int:
    """Bytes that texts of uneven lengths may take above their mean, by the largest page of each file.

    A file is opened only if all texts of its row groups in one page would exceed the limit. A file that cannot be read
    adds nothing: its fold says why.
    """
    mean = max(map(_text_bytes, pieces), default=0)
    page = 0
    for piece in pieces:
        stored = _stored(piece)
        if stored and least_limit(scratch + 2 * threads * (_row_text(piece) * max(piece.rows, 0) - mean)) > limit:
            with suppress(*READ_ERRORS):
                page = max(page, stored.largest_texts())
    return 2 * threads * max(0, page - mean)


@cache
def _warn(limit: int, least: int, threads: int, whose: str) -> None:
    _LOG.warning(
        "%s of memory%s is too little for the row groups and tables of %s, so the run may take more; "
        "give %d MiB (--memory) or fewer threads (--threads)",
        size(limit),
        whose,
        plural(threads, "thread"),
        -(-least >> 20),
    )


def warn_of_finished(limit: int, nbytes: int) -> None:
    """Log a warning, once for equal numbers, if the rows of finished tasks that Dask holds may exceed a worker's limit.

    Parameters
    ----------
    limit : memory limit of a worker in bytes
    nbytes : bytes of the rows of all states, divided by the number of workers
    """
    if nbytes > limit * _FINISHED:
        _warn_of_finished(limit, nbytes)


@cache
def _warn_of_finished(limit: int, nbytes: int) -> None:
    _LOG.warning(
        "%s of memory of a worker is too little for the rows of finished tasks, which Dask holds (up to %s), so the "
        "run may take more; give %d MiB (--memory) or more workers",
        size(limit),
        size(nbytes),
        -(-int(nbytes / _FINISHED) >> 20),
    )


def least_limit(scratch: int) -> int:
    """The smallest memory limit at which reading leaves states the room that a budget guarantees them.

    Examples
    --------
    >>> least_limit(21 << 20) >> 20
    40
    """
    return int(scratch / (STATE_SHARE * (1 - LEAST_ROOM)))
