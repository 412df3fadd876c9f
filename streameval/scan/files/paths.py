"""Paths: the files that names and patterns refer to, on any file system.

A name is a local path or a URI that `pyarrow.fs` understands. Any segment may have wildcards: ``*``, ``?``, ``[abc]``,
and ``**`` for any number of directories. They are expanded segment by segment, so ``s3://b/2026-*/x`` lists one level
only. The name of an existing local file or directory is never a pattern. Directories are walked recursively
and what is not Parquet is left out and listed (`streameval.scan.files.walk`). The files of a Delta table are those in
its log (`streameval.scan.files.tables`).

*Identity.* Every file is identified by its path relative to the *root* of its input: the named directory, or the part
of the pattern before the first wildcard. Hive segments (``night=2026-01-01``) at the end of a root belong to the
relative path, so a tree, one of its nights, and one file of that night give the same partitions. A file is read once,
however often it is named and however many links lead to it; its partition is that of the path without links.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import CorruptFileError, DataError, MissingInputError, SchemaError
from streameval.scan.faults import READ_ERRORS, other_format, reason, unreadable
from streameval.scan.files import iceberg
from streameval.scan.files.tables import HIVE_NULL, LiveFile, Tables, live_files, rewriting_versions
from streameval.scan.files.uris import Uri, local_path, mask_uri
from streameval.scan.files.walk import DELTA, ICEBERG, Entry, LocalTree, Tree, recognise, tree_of
from streameval.scan.pieces import Constant
from streameval.wording import unescape, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyiceberg.table import Table

    from streameval.scan.nested import TableNames
    from streameval.typing import Array


@dataclass(frozen=True, slots=True)
class File:
    """One file of an input, not opened yet.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
        Its file system.
    path : str
        Its path in the file system.
    name : str
        Its name in messages.
    root : str
        The directory to which its partition is relative.
    fragment : pyarrow.dataset.ParquetFileFragment or None
        Its fragment, if it comes from a dataset.
    constants : tuple of (str, Constant)
        The partition keys of the dataset or Delta table, with their values.
    size, mtime : int or None
        Size in bytes and modification time in nanoseconds since 1970, if the listing reports them.
    real : str
        Its path with symbolic links resolved, if known, by which duplicates are recognised.
    detour : int
        0 if `path` has no symbolic link, 1 if the named input has one, 2 if there is one below the input.
    deleted : bytes
        Bits of the rows that a Delta table has deleted; see `LiveFile`.
    columns : tuple of (str, Constant)
        The columns of the table with the value that they have in a file which was written before they were added.
    names : TableNames or None
        The names that the table has for columns of the file; None if they are those in the file.
    table : str
        The name that a store gives to its part of a table: that of the partition, or of a table without partitions,
        whose files stand for no rows of their own. Empty for other files.
    rows : int or None
        Its number of rows, deleted ones included, if the metadata of its table tell.
    excluded : bool
        Whether the metadata of its table show that it has no row of the filter: it need not be opened.
    """

    filesystem: fs.FileSystem
    path: str
    name: str
    root: str
    fragment: Any = None
    constants: tuple[tuple[str, Constant], ...] = ()
    size: int | None = None
    mtime: int | None = None
    real: str = ""
    detour: int = 0
    deleted: bytes = b""
    columns: tuple[tuple[str, Constant], ...] = ()
    names: TableNames | None = None
    table: str = ""
    rows: int | None = None
    excluded: bool = False

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
        """Columns that the file may lack: Hive keys of the path as strings, and those of the dataset or table.

        Raises
        ------
        SchemaError
            If the path gives a key two values.
        """
        hive: dict[str, Constant] = {}
        constants = dict(self.constants)
        for parent in self.origin.split("/")[:-1]:
            key, given, value = parent.partition("=")
            if given and (key := unescape(key)) not in constants:
                text = None if value == HIVE_NULL else unescape(value)
                found = hive.setdefault(key, Constant(text, pa.string(), typed=False, fallback=True))
                if found.value != text:
                    both = f"the path gives the key {key!r} two values, {found.value} and {text}"
                    raise SchemaError(f"{self.name}: {both}; rename one of the directories")
        return hive | dict(self.columns) | constants

    def deleted_rows(self, first: int, rows: int) -> Array:
        """Which of `rows` rows, from row `first` on, are deleted: a uint8 array of shape (rows,) of zeros and ones."""
        bits = np.unpackbits(np.frombuffer(self.deleted, np.uint8))[first : first + rows]
        return np.pad(bits, (0, rows - bits.size))


def distinct(items: Iterable[object]) -> list[Any]:
    """The items without duplicate files. A file keeps its first position, and has a path without links if there is one.

    Raises
    ------
    DataError
        If a file occurs more than once with different row groups.
    """
    kept: list[Any] = []
    places: dict[str, list[int]] = {}
    for item in items:
        if isinstance(item, File):
            known = places.setdefault(item.real or item.path, [])
            same = next((i for i in known if item.filesystem.equals(kept[i].filesystem)), None)
            if same is not None:
                if _row_groups(kept[same]) != _row_groups(item):
                    raise DataError(
                        f"{item.name}: named more than once, with other row groups; name inputs that do not overlap"
                    )
                kept[same] = min(kept[same], item, key=lambda file: file.detour)
                continue
            known.append(len(kept))
        kept.append(item)
    return kept


def root_of(directory: str) -> str:
    """The directory above any Hive segments at the end of `directory`.

    >>> root_of("/data/scores/year=2026/night=01")
    '/data/scores'
    """
    while "=" in posixpath.basename(directory):
        directory = posixpath.dirname(directory)
    return directory


def labels(files: Iterable[File]) -> list[tuple[str, str]]:
    """Partition and origin of every file; files in different places never share a partition.

    If two roots have the same partition (``part-0.parquet`` in two directories), all paths are relative to the common
    directory of the roots.
    """
    files = list(files)
    owners: dict[str, str] = {}
    roots = [_whole_root(file) for file in files]
    places = [(file.partition, file.origin) for file in files]
    if all(owners.setdefault(partition, root) == root for root, (partition, _) in zip(roots, places, strict=True)):
        return places
    shared = posixpath.commonpath(roots)
    prefixes = {root: posixpath.relpath(root, shared) if root != shared else "" for root in roots}
    joined = [(prefixes[root], *place) for root, place in zip(roots, places, strict=True)]
    return [(posixpath.join(prefix, partition), posixpath.join(prefix, origin)) for prefix, partition, origin in joined]


def _row_groups(file: File) -> set[int] | None:
    """Numbers of the row groups that a fragment reads; None for all."""
    if file.fragment is None:
        return None
    chosen = {group.id for group in file.fragment.row_groups}
    return None if len(chosen) == file.fragment.metadata.num_row_groups else chosen


def _whole_root(file: File) -> str:
    """A root as a path that begins with the type of its file system."""
    return posixpath.join("/", file.filesystem.type_name, file.root.lstrip("/"))


_LOG = logging.getLogger(__name__)
_OR_ANOTHER = "or name another version with delta_version (--delta-version)"
_NO_MATCH = "the pattern matches no file; check it, and quote it in the shell"
_STATE = re.compile(r"/[0-9a-f]{64}(-[0-9a-f]{16})?\.parquet$")  # the name of a state file
MAGIC = re.compile(r"[*?\[]")


def locate(text: str, tables: Tables | None = None) -> list[File]:
    """The files that a path, pattern or URI names, sorted by path.

    Parameters
    ----------
    text : str
        A local path, a pattern, or a URI with its options (``s3://bucket/x/*.parquet?endpoint_override=…``).
    tables : Tables, optional
        The table formats found so far, shared by the inputs of one plan; it also has the version of Delta tables to
        read.

    Returns
    -------
    list of File
        At least one file.

    Raises
    ------
    MissingInputError
        If the path does not exist, the pattern has no match, or the directory has no files.
    DataError
        If a symbolic link leads back to a directory above it, a directory belongs to a table format other than Delta,
        or the path is a store.
    """
    tables, name = tables or Tables(), mask_uri(text)
    if text.startswith(iceberg.CATALOG):
        return of_iceberg(iceberg.open_table(text, {}, name), tables)
    where = _open(text)
    try:
        return _find(where, name, text, tables)
    except (OSError, pa.ArrowException) as error:
        at = getattr(error, "filename", None)  # of a local file or directory
        raise unreadable(where.name_of(at) if isinstance(at, str) else name, error) from error


def of_iceberg(table: Table, tables: Tables, name: str = "") -> list[File]:
    """The files of an Iceberg table, in the snapshot that `tables` asks for; see `streameval.scan.files.iceberg`."""
    tables.found.add(ICEBERG)
    name = name or ".".join(table.name()) or table.location()
    snapshot = iceberg.Snapshot(table, tables.snapshot, name)
    files = _in_snapshot(snapshot)
    if not files:
        raise MissingInputError(f"{name}: the Iceberg table is empty in this snapshot; name another by snapshot")
    tables.histories.append((one.rewrites, _in_snapshot(one)) for one in snapshot.ancestors())
    return files


def table_of(root: str) -> str:
    """The directory of the Delta or Iceberg table whose files have a root; empty if there is none."""
    where = _open(root)
    above = {where.base: root}
    if posixpath.basename(where.base) == "data":  # of an Iceberg table, beside its metadata
        above[posixpath.dirname(where.base)] = posixpath.dirname(root)
    formats = tree_of(where.filesystem).formats(list(above))
    return next((above[path] for path, kind in formats.items() if kind in (DELTA, ICEBERG)), "")


def _in_snapshot(snapshot: iceberg.Snapshot) -> list[File]:
    """The files of a snapshot, sorted by path."""
    location, found = snapshot.location, list(snapshot.files())
    data = posixpath.join(location, "data")
    folders = [posixpath.dirname(live.path) for _, live in found]
    root = next((root for root in (data, location) if all(_is_below(f"{f}/", root) for f in folders)), "")
    root = root or root_of(posixpath.commonpath(folders))
    files = []
    for filesystem, live in found:
        name = live.path if isinstance(filesystem, fs.LocalFileSystem) else f"{filesystem.type_name}://{live.path}"
        file = _in_table(live, filesystem, live.path, name, root)
        files.append(replace(file, table=live.partition or posixpath.basename(location)))
    return sorted(files, key=lambda file: file.path)


def _in_table(live: LiveFile, filesystem: fs.FileSystem, path: str, name: str, root: str) -> File:
    """A `File` from what the metadata of its table say."""
    return File(
        filesystem,
        path,
        name,
        root,
        constants=live.constants,
        size=live.size,
        real=path,
        deleted=live.deleted,
        columns=live.columns,
        names=live.names,
        rows=live.rows,
    )


def locate_all(texts: Iterable[str], tables: Tables | None = None) -> list[File]:
    """The files that several paths, patterns or URIs name, each once; see `locate`. Files left out are logged."""
    tables = tables or Tables()
    files = distinct(file for text in texts for file in locate(text, tables))
    tables.refuse_idle_version()
    tell(tables.others.items())
    return files


def tell(left_out: Iterable[tuple[str, str]]) -> None:
    """Log files that are left out, for verbs whose results have no place for them."""
    for name, why in left_out:
        _LOG.warning("%s is left out: %s", visible(name), why)


@dataclass(frozen=True, slots=True)
class _Place:
    """A file system, the part of a name before the first wildcard, the segments from there on, and the URI scheme."""

    filesystem: fs.FileSystem
    base: str
    pattern: tuple[str, ...]
    scheme: str = ""

    def name_of(self, path: str) -> str:
        """The path as the user would write it."""
        if self.scheme == "relative":
            return posixpath.relpath(path, Path.cwd().as_posix())
        return f"{self.scheme}://{path}" if self.scheme else path


def _open(text: str) -> _Place:
    """The place that a name points to."""
    if not text:
        raise MissingInputError("the path is empty; name a file, a directory or a pattern")
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
    """The place of a local path, which is a pattern only if no file or directory has that name."""
    path = local_path(text)
    absolute = posixpath.normpath(path.as_posix())
    scheme = "" if text.startswith(("/", "~")) else "relative"
    filesystem = fs.LocalFileSystem()
    if not MAGIC.search(text) or os.path.lexists(absolute):
        return _Place(filesystem, absolute, (), scheme)
    literal, pattern = _split(absolute)
    return _Place(filesystem, literal, pattern, scheme)


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """The literal directories of a pattern, and the segments from the first wildcard on."""
    segments = path.split("/")
    first = next((i for i, segment in enumerate(segments) if MAGIC.search(segment)), len(segments))
    return "/".join(segments[:first]), tuple(segments[first:])


def _find(where: _Place, name: str, text: str, tables: Tables) -> list[File]:
    """The files at a place, sorted by path."""
    tree = tree_of(where.filesystem)
    base = tree.entry(where.base)
    if base is None:
        why = _NO_MATCH if where.pattern else "no such file or directory; check the path"
        raise MissingInputError(f"{name}: {why}")
    if not where.pattern:
        base = _follow_link(base, tree)
        if iceberg.METADATA.fullmatch(base.path):
            return of_iceberg(iceberg.open_table(*_table_uri(where, base.path, text), name), tables, name)
    matches = list(_glob(tree, base, where.pattern))
    found = [entry for match in matches for entry in (tree.below(match) if match.is_dir else [match])]
    real = [(match.real, match.is_dir) for match in matches]
    scheme = text.partition("://")[0] if "://" in text else ""
    roots = tables.roots(tree, scheme + text.partition("?")[2], real, name)
    if ICEBERG in roots.values():
        path = iceberg.newest_metadata(where.filesystem, base.path)
        return of_iceberg(iceberg.open_table(*_table_uri(where, path, text), name), tables, name)
    deltas = sorted(roots)
    if not where.pattern and posixpath.join(base.real, "ledger") in deltas:
        states = posixpath.join(base.real, "states")
        if any(_is_below(entry.real, states) and _STATE.search(entry.path) for entry in found):
            raise DataError(f"{name}: is a store, not data; evaluate it with streameval show, or with Store in Python")
    files = list[File]()
    for root in deltas:
        below = partial(_of_delta, where, root, text, [path for path, _ in real], found)
        files += below(tables.version)
        tables.histories.append(_versions(where, root, text, tables.version, below))
    root = root_of(base.path if base.is_dir else posixpath.dirname(base.path))
    plain = [entry for entry in found if not (entry.is_dir or any(_is_below(entry.real, d) for d in deltas))]
    chosen, left = recognise(plain, where.filesystem) if where.pattern or base.is_dir else (plain, [])
    others = {where.name_of(path): reason for path, reason in left}
    tables.others |= others
    files += [_file(where, entry, root, base) for entry in chosen]
    if not files:
        raise MissingInputError(f"{name}: {_nothing(where, [path for path, _ in real], deltas, others)}")
    return sorted(distinct(files), key=lambda file: file.path)


def _nothing(where: _Place, matches: Sequence[str], deltas: Sequence[str], others: Mapping[str, str]) -> str:
    """Why a place that exists has no file to read, for a message."""
    if deltas:
        table = where.name_of(deltas[0])
        if any(deltas[0] == path or _is_below(deltas[0], path) for path in matches):
            return f"the Delta table {table} is empty in this version; write to it, {_OR_ANOTHER}"
        return f"no file of the Delta table {table} lies here in this version; check the path, {_OR_ANOTHER}"
    if others:
        path, why = next(iter(others.items()))
        kind, read = other_format(path)
        if kind:
            return f"no Parquet files; {path}: it is {kind}, not Parquet; {read}"
        return f"no Parquet files; {path}: {why.partition(';')[0]}; check the path, or convert such files to Parquet"
    if where.pattern:
        return _NO_MATCH
    return "the directory holds no Parquet files (hidden and temporary files do not count)"


def _follow_link(base: Entry, tree: Tree) -> Entry:
    """The named directory or file; if it is a link to a Hive partition, the partition itself."""
    folder, real = (base.path, base.real) if base.is_dir else map(posixpath.dirname, (base.path, base.real))
    leads_to_partition = root_of(folder) == folder and root_of(real) != real
    return (tree.entry(base.real) or base) if leads_to_partition else base


def _file(where: _Place, entry: Entry, root: str, base: Entry) -> File:
    """A `File` from an entry at or below the named `base`."""
    plain = posixpath.join(base.real, entry.path[len(base.path) :].lstrip("/")).rstrip("/")
    detour = 0 if entry.real == entry.path else 1 if entry.real == plain else 2
    name, size, mtime = where.name_of(entry.path), entry.size, entry.mtime
    return File(where.filesystem, entry.path, name, root, size=size, mtime=mtime, real=entry.real, detour=detour)


def _table_uri(where: _Place, root: str, text: str) -> tuple[str, dict[str, str]]:
    """Path or URI of a Delta table or of the metadata of an Iceberg table, and its storage options."""
    uri = root if where.scheme in ("", "relative") else f"{where.scheme}://{root}"
    return uri, parsed.storage_options() if (parsed := Uri.parse(text)) else {}


def _versions(
    where: _Place, root: str, text: str, version: int | None, files_of: Callable[..., Iterator[File]]
) -> Iterator[tuple[bool, list[File]]]:
    """The versions of a Delta table from this one to earlier ones; see `Tables`."""
    for number, rewrites in rewriting_versions(*_table_uri(where, root, text), version):
        yield rewrites, list(files_of(number, vacuumed=True))


def _of_delta(
    where: _Place,
    root: str,
    text: str,
    matches: Sequence[str],
    found: Sequence[Entry],
    version: int | None,
    *,
    vacuumed: bool = False,
) -> Iterator[File]:
    """The files of a Delta table that lie at or below the matched paths; if `vacuumed`, those too that do not exist."""
    name, tree = where.name_of(root), tree_of(where.filesystem)
    listed = {entry.real: entry for entry in found}
    above = root_of(posixpath.realpath(where.base) if isinstance(tree, LocalTree) else where.base)
    for live in live_files(*_table_uri(where, root, text), version, name):
        path = posixpath.join(root, live.path)
        if not any(path == match or _is_below(path, match) for match in matches):
            continue
        entry = listed.get(path) or (None if vacuumed else tree.entry(path))
        if entry is None and not vacuumed:
            raise MissingInputError(
                f"{where.name_of(path)}: does not exist, but this version of the Delta table has it; was it vacuumed?"
            )
        if entry is not None and entry.size is not None and entry.size != live.size:
            raise CorruptFileError(
                f"{where.name_of(path)}: has {entry.size:,} bytes, but {live.size:,} in the log of the Delta table; it "
                "was replaced or cut short: restore it"
            )
        file = _in_table(live, where.filesystem, path, where.name_of(path), above if _is_below(root, above) else root)
        named = "=" in posixpath.dirname(file.origin)
        table = file.partition if named else live.partition or posixpath.basename(root)
        yield replace(file, table=table, mtime=entry.mtime if entry else None)


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")


def _glob(tree: Tree, entry: Entry, pattern: tuple[str, ...]) -> Iterator[Entry]:
    """Files and directories under an entry that match the segments of a pattern."""
    if not pattern:
        yield entry
    elif not entry.is_dir:
        return
    elif pattern[0] == "**":
        below = list(tree.below(entry))
        if len(pattern) == 1:
            yield from (child for child in below if not child.is_dir)
        for directory in [entry, *(child for child in below if child.is_dir)]:
            yield from _glob(tree, directory, pattern[1:]) if pattern[1:] else ()
    elif MAGIC.search(pattern[0]):
        for child in tree.children(entry, pattern[0]):
            yield from _glob(tree, child, pattern[1:])
    else:
        child_there = tree.entry(posixpath.join(entry.path, pattern[0]))
        if child_there is not None:
            yield from _glob(tree, child_there, pattern[1:])


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
            raise MissingInputError(f"{file.name}: no longer exists; run again")
    return [(found[path].size or 0, found[path].mtime_ns or 0) for path in paths]
