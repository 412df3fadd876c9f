"""Listing: sizes and modification times of files, without opening them."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from streameval.errors import MissingInputError
from streameval.scan.messages import unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.scan.files.paths import File

__all__ = ["details"]


def details(files: Sequence[File]) -> list[tuple[int, int]]:
    """Size and time of the last change of every file.

    On a local disk, each file is looked at. Elsewhere the directory that they share is listed: one request for a
    thousand files.

    Parameters
    ----------
    files : sequence of File
        Of one file system.

    Returns
    -------
    list of (int, int)
        Bytes, and nanoseconds since 1970; 0 where the file system does not know.

    Raises
    ------
    MissingInputError
        If a file is not there any more.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from streameval.scan import locate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "night.parquet").write_bytes(b"four")
    ...     details(locate(folder))[0][0]
    4
    """
    if not files:
        return []
    filesystem, paths = files[0].filesystem, [file.path for file in files]
    asked: Any = paths
    if not isinstance(filesystem, fs.LocalFileSystem) and len(paths) > 1:
        shared = posixpath.commonpath([posixpath.dirname(path) for path in paths])
        asked = fs.FileSelector(shared, recursive=True)
    try:
        found = {info.path: info for info in filesystem.get_file_info(asked) if info.type == fs.FileType.File}
    except (OSError, pa.ArrowException) as error:
        raise unreadable(files[0].name, error) from error
    for file in files:
        if file.path not in found:
            msg = f"{file.name}: no longer there; run again"
            raise MissingInputError(msg)
    return [(found[path].size or 0, found[path].mtime_ns or 0) for path in paths]
