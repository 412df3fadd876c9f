"""What a run takes in addition to states, builders and batches, and whether a memory limit leaves room for it."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from streameval.budget import LEAST_ROOM
from streameval.scan.pages import TEXT_BYTES
from streameval.scan.pieces import LARGE_CHUNK
from streameval.wording import plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.scan import Piece
    from streameval.states.protocol import Spec

__all__ = ["LONG_BATCH_ROWS", "STATE_SHARE", "scratch_bytes", "text_rows", "warn_of_finished", "warn_of_little"]

LONG_BATCH_ROWS = 1 << 15  # rows of a batch that has strings or binaries
_PAGE_ROWS = 1 << 10  # rows of long texts in a page: writers look at its size no more often
STATE_SHARE = 0.6  # share of the memory limit that states may hold
_TABLES, _TABLE_ROW = 1 << 22, 200  # bytes of hot keys, codes and the like on a thread; for each of few rows
_BOUNDED, _BOUNDED_ROW = 1.625, 1 << 12  # bytes for each of a bounded state: its builder and itself; at most for a row
_FINISHED = 1 / 3  # share of a worker's limit up to which rows of finished tasks leave its peak within the limit
_LOG = logging.getLogger(__name__)


def scratch_bytes(pieces: Sequence[Piece], specs: Iterable[Spec] = (), threads: int = 1) -> int:
    """Bytes that all threads take while they read, without states that grow, their builders and batches of numbers.

    Each takes twice the largest row group, as it is stored, twice the texts of a batch, which may be many times what is
    stored of them, a page of texts, tables of a few megabytes, and the states of those specs that have a largest one,
    with their builders; for few rows, less.
    """
    tables, bounded = _TABLES, int(_BOUNDED * sum(spec.largest or 0 for spec in specs))
    if all(piece.rows >= 0 for piece in pieces):
        rows = sum(piece.rows for piece in pieces)
        tables, bounded = min(tables, _TABLE_ROW * rows), min(bounded, _BOUNDED_ROW * rows)
    group, texts = max(map(_group_bytes, pieces), default=0), max(map(_text_bytes, pieces), default=0)
    return threads * (2 * (min(group, LARGE_CHUNK) + texts) + tables + bounded)


def _group_bytes(piece: Piece) -> int:
    """Bytes of the largest row group as it is stored; none for a table in memory."""
    return max(getattr(_stored(piece), "sizes", ()), default=piece.nbytes if piece.estimated else 0)


def _text_bytes(piece: Piece) -> int:
    """Bytes of the texts that are decoded for a batch, by what the footer tells of their mean length.

    Long texts that are read as codes are decoded once, in a dictionary.
    """
    rows, longest = max(piece.rows, 0), text_rows([piece])
    dictionaries: int = getattr(_stored(piece), "dictionaries", 0)
    return dictionaries + _row_text(piece) * min(max(longest, _PAGE_ROWS // 2), rows)


def text_rows(pieces: Iterable[Piece]) -> int:
    """Rows to read at a time of pieces with strings or binaries; fewer if these are long, as the footers tell.

    Examples
    --------
    >>> text_rows([]) == LONG_BATCH_ROWS
    True
    """
    longest = max(map(_row_text, pieces), default=0)
    return max(1, min(LONG_BATCH_ROWS, TEXT_BYTES // max(1, longest)))


def _row_text(piece: Piece) -> int:
    """Mean bytes of the texts of a row."""
    mean: int = getattr(_stored(piece), "row_text", 0)
    return mean


def _stored(piece: Piece) -> Any:
    """The row groups of a piece, or what else it is read from."""
    return getattr(piece.source, "source", piece.source)


def warn_of_little(limit: int, pieces: Sequence[Piece], specs: Iterable[Spec], threads: int, whose: str = "") -> None:
    """Say, once for equal numbers, that a limit is too low to hold.

    Parameters
    ----------
    limit : bytes of the process that folds
    pieces : what it reads
    specs : what it folds
    threads : its threads
    whose : words after "memory", such as " of a worker"
    """
    least = least_limit(scratch_bytes(pieces, specs, threads))
    if limit < least:
        _warn(limit, least, threads, whose)


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
    """Say, once for equal numbers, that Dask may hold more rows of finished tasks than the limit of a worker covers.

    Parameters
    ----------
    limit : bytes of a worker
    nbytes : bytes of the rows of all states, divided by the workers
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
    """The memory limit from which on reading leaves states the least room that a budget keeps for them.

    Examples
    --------
    >>> least_limit(21 << 20) >> 20
    40
    """
    return int(scratch / (STATE_SHARE * (1 - LEAST_ROOM)))
