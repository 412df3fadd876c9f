"""Listing: sizes and modification times of files, without opening the files."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from streameval.errors import MissingInputError
from streameval.scan.messages import READ_ERRORS, unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.scan.files.file import File


def details(files: Sequence[File]) -> list[tuple[int, int]]:
    """Size and modification time of every file.

    On a local disk, the files are inspected one by one. In object storage, their common directory is listed, which
    takes one request per thousand files.

    Parameters
    ----------
    files : sequence of File
        Files of one file system.

    Returns
    -------
    list of (int, int)
        Size in bytes, and modification time in nanoseconds since 1970; 0 if the file system does not report them.

    Raises
    ------
    MissingInputError
        If a file no longer exists.
    DataError
        If the file system cannot be read, or a name is not UTF-8.

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
    except READ_ERRORS as error:
        path = getattr(error, "object", None)  # that cannot be encoded
        raise unreadable(next((file.name for file in files if file.path == path), files[0].name), error) from error
    for file in files:
        if file.path not in found:
            msg = f"{file.name}: no longer exists; run again"
            raise MissingInputError(msg)
    return [(found[path].size or 0, found[path].mtime_ns or 0) for path in paths]
