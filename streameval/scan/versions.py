"""Versions: checks that a file is the planned one, before it is read and after its last read.

A plan keeps the size and modification time of each file from the listing. A reader compares them with the open file
and, after its last read, compares the open file with the file that now has its name: by size, time and inode on a local
disk; by size, time and ETag in object storage (one more request per read). A file that was replaced, truncated,
extended or removed is an error; without an error, all reads saw the same version.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 10**9  # nanoseconds


class ChangedFileError(OSError):
    """A file has changed since it was planned."""


@contextmanager
def opened(filesystem: Any, path: str, size: int | None, mtime: int | None) -> Iterator[Any]:
    """Open a file that must not change until the context ends.

    Parameters
    ----------
    filesystem, path : location of the file
    size, mtime : planned size in bytes and modification time in nanoseconds since 1970; None if unknown

    Raises
    ------
    ChangedFileError
        If the file is not the planned one, or has changed when the context ends; also in place of an error that was
        raised while reading.
    """
    local = isinstance(filesystem, fs.LocalFileSystem)
    with pa.OSFile(path) if local else filesystem.open_input_file(path) as handle:
        before = _local(os.fstat(handle.fileno())) if local else _remote(handle)
        _compare(before, size, mtime)
        try:
            yield handle
        except (OSError, pa.ArrowException) as error:
            _refuse_change(filesystem, path, before, error)
            raise
        _refuse_change(filesystem, path, before)


def _local(found: os.stat_result) -> tuple[Any, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _remote(handle: Any) -> tuple[Any, ...]:
    """Size, time and ETag of an object; None for what the storage does not report."""
    metadata = handle.metadata() or {}
    time = metadata.get(b"Last-Modified") or metadata.get("Last-Modified")
    etag = metadata.get(b"ETag") or metadata.get("ETag")
    return handle.size(), None if time is None else _nanoseconds(time), etag


def _nanoseconds(time: bytes | str) -> int | None:
    """A time in a header as nanoseconds since 1970; None if it is not in the format of S3."""
    try:
        text = time.decode() if isinstance(time, bytes) else time
        return int(datetime.fromisoformat(text).timestamp()) * SECOND
    except ValueError:
        return None


def _compare(found: tuple[Any, ...], size: int | None, mtime: int | None) -> None:
    """Raise `ChangedFileError` if an open file is not the planned one; times in headers are in whole seconds."""
    exact = len(found) > 3
    same = mtime is None or found[1] is None or (found[1] == mtime if exact else found[1] // SECOND == mtime // SECOND)
    if size not in (None, found[0]):
        msg = f"it has {found[0]:,} bytes where the listing said {size:,}: it was replaced or changed since"
        raise ChangedFileError(msg)
    if not same:
        msg = "it was replaced or changed since it was listed"
        raise ChangedFileError(msg)


def _refuse_change(filesystem: Any, path: str, before: tuple[Any, ...], cause: BaseException | None = None) -> None:
    """Raise `ChangedFileError` if the file at `path` is no longer the open one."""
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            now = _local(Path(path).stat())
        else:
            with filesystem.open_input_file(path) as handle:
                now = _remote(handle)
    except FileNotFoundError as error:
        msg = "it was removed while it was read"
        raise ChangedFileError(msg) from error
    if now != before:
        msg = "it was replaced or changed while it was read"
        raise ChangedFileError(msg) from cause
