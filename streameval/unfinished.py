"""Unfinished files: temporary files that get their name once they are complete, and are deleted otherwise.

A file that has its name survives a power cut: `publish` writes its content to the disk, renames it, and then writes
its directory. Without the first, the name may lead to an empty file after a cut; without the last, to none.

An interrupted command ends without waiting for its threads, so the files that they were writing are deleted by
`delete_all`. A killed process leaves its unfinished files, whose names end in ``.part``.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from streameval.forks import on_fork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FILES: set[Path] = set()
on_fork(_FILES.clear)  # those of the parent are not for a child to delete
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # of file systems that write directories at once, or never


def publish(part: Path, path: Path, *, sought: bool = True) -> None:
    """Give a complete file its name, durably.

    A name that is not `sought` until this has returned is given first, which saves the file system one of two writes of
    its journal.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with unfinished(Path(folder, "part")) as part:
    ...         size = part.write_bytes(b"whole")
    ...         publish(part, Path(folder, "file"))
    ...     [path.name for path in Path(folder).iterdir()]
    ['file']
    """
    if sought:
        sync(part)
    part.replace(path)
    if not sought:
        sync(path)
    sync(path.parent)


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def make_folder(path: Path) -> None:
    """Make a directory and its missing parents, durably."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """A temporary path; the file is deleted at the end if it was not renamed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with unfinished(Path(folder, "part")) as part:
    ...         size = part.write_bytes(b"half")
    ...     part.exists()
    False
    """
    _FILES.add(path)
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        _FILES.discard(path)


def delete_all() -> None:
    """Delete all unfinished files of this process, which must end at once."""
    for path in list(_FILES):
        with suppress(OSError):
            path.unlink(missing_ok=True)
