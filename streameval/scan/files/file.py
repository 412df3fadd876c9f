"""One file of an input, and how it is identified.

Every file is identified by its path relative to the *root* of its input: the named directory, or the part of the
pattern before the first wildcard. Hive segments (``night=2026-01-01``) at the end of a root belong to the relative
path, so a tree, one of its nights, and one file of that night give the same partitions. A file is read once, however
often it is named and however many links lead to it; its partition is that of the path without links.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.errors import DataError, SchemaError
from streameval.scan.pieces import Constant
from streameval.wording import unescaped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyarrow import fs

    from streameval.typing import Array

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


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
        The columns of the Delta table, all null: a file written before a column was added lacks it.
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
            if given and (key := unescaped(key)) not in constants:
                text = None if value == HIVE_NULL else unescaped(value)
                found = hive.setdefault(key, Constant(text, pa.string(), typed=False, fallback=True))
                if found.value != text:
                    both = f"the path gives the key {key!r} two values, {found.value} and {text}"
                    raise SchemaError(f"{self.name}: {both}; rename one of the directories")
        return dict(self.columns) | hive | constants

    def deleted_rows(self, first: int, rows: int) -> Array:
        """Which of `rows` rows, from row `first` on, are deleted: a uint8 array of shape (rows,) of zeros and ones."""
        bits = np.unpackbits(np.frombuffer(self.deleted, np.uint8))[first : first + rows]
        return np.pad(bits, (0, rows - bits.size))


def distinct(items: Iterable[Any]) -> list[Any]:
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
                _refuse_overlap(kept[same], item)
                kept[same] = min(kept[same], item, key=lambda file: file.detour)
                continue
            known.append(len(kept))
        kept.append(item)
    return kept


def _refuse_overlap(one: File, two: File) -> None:
    """Raise `DataError` if the same file is given with different row groups."""
    if _row_groups(one) != _row_groups(two):
        raise DataError(f"{two.name}: named more than once, with other row groups; name inputs that do not overlap")


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
    roots = {_whole_root(file) for file in files}
    if all(owners.setdefault(file.partition, _whole_root(file)) == _whole_root(file) for file in files):
        return [(file.partition, file.origin) for file in files]
    shared = posixpath.commonpath(roots)
    prefixes = {root: posixpath.relpath(root, shared) if root != shared else "" for root in roots}
    joined = ((prefixes[_whole_root(file)], file) for file in files)
    return [(posixpath.join(prefix, file.partition), posixpath.join(prefix, file.origin)) for prefix, file in joined]


def _row_groups(file: File) -> set[int] | None:
    """Numbers of the row groups that a fragment reads; None for all."""
    if file.fragment is None:
        return None
    chosen = {group.id for group in file.fragment.row_groups}
    return None if len(chosen) == file.fragment.metadata.num_row_groups else chosen


def _whole_root(file: File) -> str:
    """A root as a path that begins with the type of its file system."""
    return posixpath.join("/", file.filesystem.type_name, file.root.lstrip("/"))
