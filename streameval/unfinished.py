"""Unfinished files: temporary files that get their name once they are complete, and are deleted otherwise.

An interrupted command ends without waiting for its threads, so the files that they were writing are deleted by
`delete_all`. A killed process leaves its unfinished files, whose names end in ``.part``.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from streameval.forks import on_fork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["delete_all", "unfinished"]

_FILES: set[Path] = set()
on_fork(_FILES.clear)  # those of the parent are not for a child to delete


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
