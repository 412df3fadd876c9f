"""Paths: names and patterns, on any file system, to files.

A name is a local path or a URI that `pyarrow.fs` understands. It may hold wildcards in any segment: ``*``, ``?``,
``[abc]``, and ``**`` for any number of directories; they are expanded segment by segment, so that ``s3://b/2026-*/x``
lists one level only. A name that exists as it stands is never a pattern. Directories are walked to the end; names that
begin with ``_`` or ``.`` are left out, and where Parquet files (``.parquet``, ``.parq``, ``.pq``) exist so is
everything else.

Every file is known by its path relative to the *root* of the input it came from: the directory that was named, or the
part of the pattern before the first wildcard. Hive segments (``night=2026-01-01``) at the end of a root belong to the
relative path: a tree, one of its nights, and one file of that night give the same partitions.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from streameval.errors import CorruptFileError, DataError, MissingInputError
from streameval.scan.pieces import Constant
from streameval.scan.uris import Uri, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    _Found = tuple[str, int | None]  # path and size of a file

__all__ = ["READ_ERRORS", "File", "labels", "locate", "reason", "root_of", "shown", "unreadable"]

READ_ERRORS = (OSError, ValueError, KeyError, pa.ArrowException)  # what bad files make Arrow raise
SUFFIXES = (".parquet", ".parq", ".pq")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class File:
    """One file of an input, not opened yet.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
        Where it is.
    path : str
        Its path there.
    name : str
        Its name in messages.
    root : str
        The directory its partition is relative to.
    fragment : pyarrow.dataset.ParquetFileFragment or None
        The fragment it came from, when a dataset was given.
    constants : tuple of (str, Constant)
        The dataset's partition keys and their values.
    size : int or None
        Bytes, where the listing told.
    """

    filesystem: Any
    path: str
    name: str
    root: str
    fragment: Any = None
    constants: tuple[tuple[str, Constant], ...] = ()
    size: int | None = None

    @property
    def origin(self) -> str:
        """The path relative to the root."""
        return self.path[len(self.root) :].lstrip("/")

    @property
    def partition(self) -> str:
        """The leaf directory of a Hive tree, otherwise the file itself."""
        parents = self.origin.split("/")[:-1]
        depth = max((i + 1 for i, parent in enumerate(parents) if "=" in parent), default=0)
        if depth == 0 and self.constants:
            depth = len(parents)
        return "/".join(parents[:depth]) or self.origin

    @property
    def keys(self) -> dict[str, Constant]:
        """Hive keys of the path as strings, and the dataset's own keys."""
        pairs = [parent.split("=", 1) for parent in self.origin.split("/")[:-1] if "=" in parent]
        values = {unquote(key): None if value == HIVE_NULL else unquote(value) for key, value in pairs}
        return {key: Constant(value, pa.string()) for key, value in values.items()} | dict(self.constants)


def locate(text: str) -> list[File]:
    """The files that a path, pattern or URI names, sorted by path.

    Parameters
    ----------
    text : str
        A local path, a pattern, or a URI with its options (``s3://bucket/x/*.parquet?endpoint_override=…``).

    Returns
    -------
    list of File
        At least one.

    Raises
    ------
    MissingInputError
        No such path, no match, or an empty directory.
    """
    where, name = _open(text), shown(text)
    try:
        files, root = _find(where, name)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(name, error) from error
    root = root_of(root)
    return [File(where.filesystem, path, where.name_of(path), root, size=size) for path, size in files]


def root_of(directory: str) -> str:
    """The directory above any Hive segments at the end of `directory`.

    >>> root_of("/data/scores/year=2026/night=01")
    '/data/scores'
    """
    while "=" in posixpath.basename(directory):
        directory = posixpath.dirname(directory)
    return directory


def labels(files: Iterable[File]) -> list[tuple[str, str]]:
    """Partition and origin of every file, the same for two files only where they are the same place.

    When two roots hold the same partition (``part-0.parquet`` in two directories), all files are labelled from the
    directory that the roots share.
    """
    files = list(files)
    owners: dict[str, str] = {}
    roots = {_whole_root(file) for file in files}
    if all(owners.setdefault(file.partition, _whole_root(file)) == _whole_root(file) for file in files):
        return [(file.partition, file.origin) for file in files]
    shared = posixpath.commonpath(roots)
    prefixes = {root: posixpath.relpath(root, shared) if root != shared else "" for root in roots}
    joined = ((prefixes[_whole_root(file)], file) for file in files)
    return [(posixpath.join(prefix, file.partition), posixpath.join(prefix, file.origin)) for prefix, file in joined]


def reason(error: BaseException) -> str:
    r"""An exception's message on one line.

    >>> reason(OSError("Couldn't deserialize thrift:\n  bad header\n"))
    "Couldn't deserialize thrift: bad header"
    """
    return " ".join(str(error).split()) or type(error).__name__


def unreadable(name: str, error: BaseException) -> DataError:
    """The library's exception for a file or directory that cannot be opened or read.

    Parameters
    ----------
    name : str
        The file, as the user named it.
    error : exception
        What Arrow or the operating system said; the caller raises from it.
    """
    if isinstance(error, FileNotFoundError):
        return MissingInputError(f"{name}: no such file or directory; check the path")
    if isinstance(error, PermissionError) or "ACCESS_DENIED" in str(error) or "errno 13" in str(error):
        return CorruptFileError(f"{name}: permission denied; grant read access to it")
    remedy = "replace it or take it away; evaluate leaves it out with on_error='skip' (--on-error skip)"
    return CorruptFileError(f"{name}: cannot be read: {reason(error)}; {remedy}")


@dataclass(frozen=True, slots=True)
class _Place:
    """A file system, the literal start of a name there, the pattern that follows, and how to show paths."""

    filesystem: Any
    base: str
    pattern: tuple[str, ...]
    scheme: str = ""

    def name_of(self, path: str) -> str:
        """The path as the user would write it."""
        if self.scheme == "relative":
            return posixpath.relpath(path, Path.cwd().as_posix())
        return f"{self.scheme}://{path}" if self.scheme else path


def _whole_root(file: File) -> str:
    """A root with its kind of file system, as one path."""
    return posixpath.join("/", file.filesystem.type_name, file.root.lstrip("/"))


def _open(text: str) -> _Place:
    """The place that a name points to."""
    if not text:
        msg = "the path is empty; name a file, a directory or a pattern"
        raise MissingInputError(msg)
    uri = Uri.parse(text)
    if uri is None:
        return _open_local(text)
    literal, pattern = _split(uri.path)
    opening = uri.opening(literal)
    try:
        filesystem, base = fs.FileSystem.from_uri(opening)
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        msg = f"{uri.name}: cannot open this URI: {reason(error).replace(opening, uri.name)}"
        raise MissingInputError(msg) from None  # the cause may quote the credentials
    return _Place(filesystem, base.rstrip("/"), pattern, "" if uri.scheme == "file" else uri.scheme)


def _open_local(text: str) -> _Place:
    """A local path; a pattern only if nothing of that name exists."""
    path = Path(text).expanduser()
    absolute = posixpath.normpath(path.absolute().as_posix())
    scheme = "" if path.is_absolute() else "relative"
    filesystem = fs.LocalFileSystem()
    if not MAGIC.search(text) or filesystem.get_file_info(absolute).type != fs.FileType.NotFound:
        return _Place(filesystem, absolute, (), scheme)
    literal, pattern = _split(absolute)
    return _Place(filesystem, literal, pattern, scheme)


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """The literal directories of a pattern, and the segments from the first wildcard on."""
    segments = path.split("/")
    first = next((i for i, segment in enumerate(segments) if MAGIC.search(segment)), len(segments))
    return "/".join(segments[:first]), tuple(segments[first:])


def _find(where: _Place, name: str) -> tuple[list[_Found], str]:
    """Sorted paths and sizes of the files at a place, and their root."""
    info = where.filesystem.get_file_info(where.base or "/")
    if where.pattern:
        matches = {match.path: match for match in _glob(where.filesystem, info, where.pattern)}
        files = sorted({found for match in matches.values() for found in _walk(where.filesystem, match)})
        if not files:
            msg = f"{name}: the pattern matches no file; check it, and quote it in the shell"
            raise MissingInputError(msg)
        return _prefer_parquet(files), where.base
    if info.type == fs.FileType.NotFound:
        msg = f"{name}: no such file or directory; check the path"
        raise MissingInputError(msg)
    if info.type != fs.FileType.Directory:
        return [(info.path, info.size)], posixpath.dirname(info.path)
    files = sorted(_walk(where.filesystem, info))
    if not files:
        msg = f"{name}: the directory holds no Parquet files (names that begin with _ or . do not count)"
        raise MissingInputError(msg)
    return _prefer_parquet(files), where.base


def _glob(filesystem: Any, info: Any, pattern: tuple[str, ...]) -> Iterator[Any]:
    """Files and directories under `info` that match the segments of `pattern`."""
    if not pattern:
        yield info
    elif info.type != fs.FileType.Directory:
        return
    elif pattern[0] == "**":
        below = _children(filesystem, info.path, recursive=True)
        if len(pattern) == 1:
            yield from (child for child in below if child.type == fs.FileType.File)
        for directory in [info, *(child for child in below if child.type == fs.FileType.Directory)]:
            yield from _glob(filesystem, directory, pattern[1:]) if pattern[1:] else ()
    elif MAGIC.search(pattern[0]):
        for child in _children(filesystem, info.path, allowed=pattern[0][0]):
            if fnmatchcase(child.base_name, pattern[0]):
                yield from _glob(filesystem, child, pattern[1:])
    else:
        child = filesystem.get_file_info(posixpath.join(info.path, pattern[0]))
        if child.type != fs.FileType.NotFound:
            yield from _glob(filesystem, child, pattern[1:])


def _walk(filesystem: Any, info: Any) -> Iterator[_Found]:
    """The file, or all files below the directory."""
    below = _children(filesystem, info.path, recursive=True) if info.type == fs.FileType.Directory else [info]
    yield from ((found.path, found.size) for found in below if found is info or found.type == fs.FileType.File)


def _children(filesystem: Any, directory: str, *, recursive: bool = False, allowed: str = "") -> list[Any]:
    """What a directory holds, without hidden names (unless they begin with `allowed`)."""
    found = filesystem.get_file_info(fs.FileSelector(directory, recursive=recursive, allow_not_found=True))
    hidden = tuple({"_", "."} - {allowed})
    start = len(directory.rstrip("/")) + 1
    return [info for info in found if not any(name.startswith(hidden) for name in info.path[start:].split("/"))]


def _prefer_parquet(files: list[_Found]) -> list[_Found]:
    """Only the Parquet files, where there are any."""
    return [found for found in files if found[0].lower().endswith(SUFFIXES)] or files
