"""Walk: the files and directories below a directory, on a local disk or in object storage.

Hidden files and the temporary files of other tools are left out: names that begin with ``.`` or ``_`` (``_SUCCESS``,
``_temporary``; but ``_night=2026-01-01`` is a partition), and files that end in ``.crc``, ``.part``, ``.tmp`` and the
like.

On a local disk, symbolic links are resolved. Every directory is entered once, by a path without links if there is one,
so a link to a neighbouring directory adds nothing. A link to a directory above it, or a broken link, is an error. Hard
links count as separate files.

A walk also records the directories that belong to a table format (`Tree.marks`), since the metadata of the format, not
a listing, determine which of their files are valid. A directory with a Delta log is a Delta table, also if it has
metadata of Iceberg or Hudi as well, which UniForm and XTable write for their readers.

*Recognition.* A name that ends in ``.parquet``, ``.parq`` or ``.pq`` says so. Hive and Impala write ``000000_0``,
others ``part-0.parquet.gz`` or no suffix at all. Among those, names that differ only in numbers, UUIDs or hashes are
one *kind*, as one writer wrote them. Some files of each kind are opened, until one begins with ``PAR1``. Then all of
its kind are read, and refused if damaged; otherwise all are left out, and told with the numbers of them and of those
that were opened. Opening every file would take two requests per object each time that a store looks for new nights.

Empty files, which Hive writes for buckets without rows, and copies (``a.parquet.bak`` beside ``a.parquet``) are left
out and told as well.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyarrow import fs

from streameval.errors import DataError, MissingInputError
from streameval.scan.faults import READ_ERRORS
from streameval.scan.parquet.pages import exactly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


TEMPORARY = (
    ".crc", ".part", ".partial", ".tmp", ".temp", ".inprogress", ".crdownload", ".filepart", "._copying_", ".swp", "~",
    "_$folder$",
)  # fmt: skip
DELTA, HUDI, ICEBERG = "Delta Lake", "Apache Hudi", "Apache Iceberg"
_DELTA_LOG, _HUDI = "_delta_log", ".hoodie/hoodie.properties"
_ICEBERG = re.compile(r"(v\d+|\d{5,}-[0-9a-fA-F-]+)(\.gz)?\.metadata\.json(\.gz)?")


class Entry(NamedTuple):
    """A file or directory.

    Attributes
    ----------
    path : the path by which it was reached
    is_dir : whether it is a directory
    size : size of a file in bytes
    mtime : modification time in nanoseconds since 1970
    real : the path with all symbolic links resolved; in object storage, equal to `path`
    """

    path: str
    is_dir: bool
    size: int | None
    mtime: int | None
    real: str


class Tree:
    """A file system without links, such as object storage, where one request lists everything below a directory.

    Attributes
    ----------
    marks : dict of str to str
        Directories found so far that belong to a table format, with the name of the format.
    """

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self.filesystem = filesystem
        self.marks: dict[str, str] = {}

    def entry(self, path: str) -> Entry | None:
        """The file or directory at a path, or None."""
        info = self.filesystem.get_file_info(path or "/")
        return None if info.type == fs.FileType.NotFound else _entry(info)

    def children(self, directory: Entry, pattern: str) -> list[Entry]:
        """Entries of a directory that match a pattern; hidden names only if the pattern spells what hides them."""
        return [entry for entry in self._listed(directory.path, recursive=False) if _shows(pattern, entry.path)]

    def below(self, top: Entry) -> Iterator[Entry]:
        """All files and directories below a directory, each once."""
        start = len(top.path.rstrip("/")) + 1
        for entry in self._listed(top.path, recursive=True):
            *parents, name = entry.path[start:].split("/")
            for depth, parent in enumerate(parents if not entry.is_dir else [*parents, name]):
                if parent == _DELTA_LOG:
                    self._mark(posixpath.join(top.path, *parents[:depth]), DELTA)
            if posixpath.join(*parents[-1:], name) == _HUDI:
                self._mark(posixpath.join(top.path, *parents[:-1]), HUDI)
            if not (any(map(_is_hidden, parents)) or _is_hidden(name, file=not entry.is_dir)):
                self._note_iceberg(entry)
                yield entry

    def formats(self, directories: list[str]) -> dict[str, str]:
        """The directories that belong to a table format, with the name of the format; a Delta log decides."""
        markers = [(d, mark) for d in directories for mark in (_DELTA_LOG, _HUDI, "metadata")]
        try:
            infos = self.filesystem.get_file_info([posixpath.join(*marker) for marker in markers])
        except (OSError, UnicodeError):  # directories above the named one may be forbidden, so each is tried alone
            alone = ({} if len(directories) == 1 else self.formats([directory]) for directory in directories)
            return {d: kind for formats in alone for d, kind in formats.items()}
        types = dict(zip(markers, (info.type for info in infos), strict=True))
        there = {marker for marker, kind in types.items() if kind != fs.FileType.NotFound}
        inside: dict[str, list[Entry]] = {}
        for d in directories:
            if types[d, "metadata"] == _DIRECTORY:
                with suppress(OSError):  # it may be forbidden; the other marks count nevertheless
                    inside[d] = self._listed(posixpath.join(d, "metadata"), recursive=False)
        iceberg = [
            d for d, files in inside.items() if any(_ICEBERG.fullmatch(posixpath.basename(f.path)) for f in files)
        ]
        hudi, delta = ([d for d in directories if (d, mark) in there] for mark in (_HUDI, _DELTA_LOG))
        return dict.fromkeys(iceberg, ICEBERG) | dict.fromkeys(hudi, HUDI) | dict.fromkeys(delta, DELTA)

    def _listed(self, directory: str, *, recursive: bool) -> list[Entry]:
        """The contents of a directory; with `recursive`, of all directories below as well."""
        selector = fs.FileSelector(directory, recursive=recursive, allow_not_found=True)
        return [_entry(info) for info in self.filesystem.get_file_info(selector)]

    def _note_iceberg(self, entry: Entry) -> None:
        """If a file is Iceberg metadata, mark the directory of its table."""
        folder, name = posixpath.split(entry.real)
        if posixpath.basename(folder) == "metadata" and _ICEBERG.fullmatch(name):
            self._mark(posixpath.dirname(folder), ICEBERG)

    def _mark(self, directory: str, kind: str) -> None:
        """Note that a directory is a table; a Delta log decides."""
        if self.marks.get(directory) != DELTA:
            self.marks[directory] = kind


class LocalTree(Tree):
    """The local file system, with symbolic links resolved; `marks` has real paths."""

    def entry(self, path: str) -> Entry | None:
        """The file or directory at a path, or None if there is none; a link is followed.

        Raises
        ------
        MissingInputError
            If the target of a link does not exist.
        DataError
            If a link leads back to itself, or the path is that of a pipe or a device, for which a reader would wait.
        """
        path = path or "/"
        try:
            found = os.stat(path)  # noqa: PTH116 - a path object takes longer than the call
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _loop(path, "itself") from error
            if Path(path).is_symlink():
                target = Path(path).readlink()
                raise MissingInputError(
                    f"{path}: a symbolic link to {target}, which does not exist; restore it or remove the link"
                ) from error
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return None
            raise
        if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
            raise DataError(f"{path}: is neither a file nor a directory, such as a pipe; write the rows to a file")
        return Entry(path, stat.S_ISDIR(found.st_mode), found.st_size, found.st_mtime_ns, os.path.realpath(path))

    def below(self, top: Entry) -> Iterator[Entry]:
        """All files and directories below a directory, each once; those behind links come last."""
        entered = {top.real}
        behind = [top]
        for start in behind:
            links: list[str] = []
            yield from self._plain(start, entered, links)
            for path in sorted(links):
                entry = self._follow(path)
                if not entry.is_dir:
                    yield entry
                elif entry.real not in entered:
                    entered.add(entry.real)
                    behind.append(entry)
                    yield entry

    def children(self, directory: Entry, pattern: str) -> list[Entry]:
        """Entries of a directory that match a pattern; hidden names only if the pattern spells what hides them."""
        with os.scandir(directory.path) as listed:
            found = [(item.path, item.is_symlink()) for item in listed if _shows(pattern, item.name)]
        return [self._follow(path) if linked else self._existing(path) for path, linked in found]

    def _existing(self, path: str) -> Entry:
        """The entry of a path that a listing has just returned."""
        entry = self.entry(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return entry

    def _plain(self, start: Entry, entered: set[str], links: list[str]) -> Iterator[Entry]:
        """Files and directories below `start` that are not behind links; the links are appended to `links`."""
        pending = [(start.path, start.real)]
        while pending:
            folder, real = pending.pop()
            with os.scandir(folder) as listed:
                for item in listed:
                    here = posixpath.join(real, item.name)
                    if item.name == _DELTA_LOG and item.is_dir():
                        self._mark(real, DELTA)
                    if item.name == posixpath.dirname(_HUDI) and Path(folder, _HUDI).is_file():
                        self._mark(real, HUDI)
                    if item.is_symlink():
                        if not _is_hidden(item.name, file=True):
                            links.append(posixpath.join(folder, item.name))
                    elif item.is_dir(follow_symlinks=False):
                        if not _is_hidden(item.name) and here not in entered:
                            entered.add(here)
                            pending.append((item.path, here))
                            yield Entry(item.path, True, None, None, here)
                    elif item.is_file(follow_symlinks=False) and not _is_hidden(item.name, file=True):
                        found = item.stat(follow_symlinks=False)
                        entry = Entry(item.path, False, found.st_size, found.st_mtime_ns, here)
                        self._note_iceberg(entry)
                        yield entry

    def _follow(self, path: str) -> Entry:
        """The target of a link; raises `DataError` if the link lies inside its target."""
        entry = self._existing(path)
        inside = f"{entry.real.rstrip('/')}/"
        if entry.is_dir and any(f"{os.path.realpath(above)}/".startswith(inside) for above in Path(path).parents):
            raise _loop(path, entry.real)
        return entry


_DIRECTORY = fs.FileType.Directory


def tree_of(filesystem: fs.FileSystem) -> Tree:
    """The `Tree` of a file system."""
    return (LocalTree if isinstance(filesystem, fs.LocalFileSystem) else Tree)(filesystem)


def _entry(info: fs.FileInfo) -> Entry:
    is_dir = info.type == _DIRECTORY
    return Entry(info.path, is_dir, None if is_dir else info.size, info.mtime_ns, info.path)


def _is_hidden(name: str, *, file: bool = False) -> bool:
    """Whether a name is hidden or, for a file, that of a temporary file."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return hidden or (file and name.lower().endswith(TEMPORARY))


def _shows(pattern: str, path: str) -> bool:
    """Whether a pattern matches the name of a path; hidden names only if the pattern spells what hides them."""
    name = posixpath.basename(path)
    spelled = pattern[0] == name[0] or not _is_hidden(name)
    spelled &= pattern.lower().endswith(TEMPORARY) or not name.lower().endswith(TEMPORARY)
    return spelled and fnmatchcase(name, pattern)


def _loop(path: str, target: str) -> DataError:
    msg = f"{path}: a symbolic link that leads back to {target}; remove it, or name the directories without it"
    return DataError(msg)


SUFFIXES = (".parquet", ".parq", ".pq")
OPENED = 16  # largest number of files of a kind that are opened
_MAGIC = (b"PAR1", b"PARE")  # the second one is of files with an encrypted footer
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NUMBERS = re.compile(rf"{_UUID}|[0-9a-f]{{8,}}|[0-9]+", re.IGNORECASE)  # shorter hexadecimal numbers may be words


def recognise(files: Sequence[Entry], filesystem: fs.FileSystem) -> tuple[list[Entry], list[tuple[str, str]]]:
    """The files that are Parquet; of the others, the first path of each kind, and why they are left out.

    Parameters
    ----------
    files : the files of a listing, without those that are hidden or temporary
    filesystem : their file system
    """
    data = [file for file in files if file.path.lower().endswith(SUFFIXES)]
    if len(data) == len(files):
        return data, []
    named = {file.path for file in data}
    kinds: dict[str, list[Entry]] = {}
    others: dict[tuple[str, str], list[str]] = {}
    for file in (file for file in files if file.path not in named):
        kind = _NUMBERS.sub("#", posixpath.basename(file.path))
        if posixpath.splitext(file.path)[0] in named:
            why = "named like a copy of the file without this suffix; rename it to have it read, or "
            others.setdefault((kind, why), []).append(file.path)
        elif file.size == 0:
            others.setdefault((kind, "empty; "), []).append(file.path)
        else:
            kinds.setdefault(kind, []).append(file)
    for kind, alike in kinds.items():
        sample = _sample(alike)
        if any(_is_parquet(file, filesystem) for file in sample):
            data += alike
        else:
            opened = f" ({len(sample)} of them were opened)" if len(sample) < len(alike) else ""
            others[kind, f"not Parquet, which begins with PAR1{opened}; "] = [file.path for file in alike]
    suffix = next((suffix for suffix in SUFFIXES if data and all(file.path.endswith(suffix) for file in data)), None)
    remedy = "remove such files, or name the files to read"
    if suffix:
        remedy = f"name the data by a pattern such as **/*{suffix} to exclude such files"
    return data, [
        (min(paths), f"{f'{len(paths):,} files of such a name are ' if paths[1:] else ''}{why}{remedy}")
        for (_, why), paths in others.items()
    ]


def _sample(files: Sequence[Entry]) -> list[Entry]:
    """Up to `OPENED` files, evenly spaced, from the last one by path."""
    step = max(1, -(-len(files) // OPENED))
    return sorted(files, key=lambda file: file.path, reverse=True)[::step]


def _is_parquet(file: Entry, filesystem: fs.FileSystem) -> bool:
    """Whether a file begins like Parquet, or cannot be read: its reader reports why."""
    try:
        with filesystem.open_input_file(file.path) as handle:
            return exactly(handle, 0, min(4, handle.size())).to_pybytes() in _MAGIC
    except READ_ERRORS:
        return True
