"""Tables: directories whose files are determined by the metadata of a table format, not by a listing.

The log of a Delta table names the files of each version, their partition values and their deleted rows; `deltalake`
reads it. For a directory below a table, or a pattern that leads into one, the files are those in the log that the path
covers. With column mapping, a column is read under its name in the file, or under its id.

Iceberg tables are read by `streameval.scan.files.iceberg`, as a whole: a directory or file below one is refused.
Apache Hudi tables are refused, because their timelines determine which files are valid; the error says what to do.
"""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from streameval.errors import CorruptFileError, DataError, OptionError
from streameval.forks import import_deltalake
from streameval.scan.faults import reason
from streameval.scan.files.uris import URI_OPTIONS, Uri
from streameval.scan.files.walk import DELTA, HUDI, ICEBERG, Tree
from streameval.scan.nested import TableNames, fields_below
from streameval.scan.pieces import Constant
from streameval.wording import unescape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import deltalake
    from deltalake.schema import Schema, StructType


_MISREAD = re.compile(r"%[0-9a-fA-F]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_REMEDIES = {
    ICEBERG: "name the directory of the table, a metadata file or catalog://name/namespace.table, and filter by where",
    HUDI: "give a snapshot: what a Hudi reader returns as an Arrow table or dataset, or a copy written as Parquet",
}


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of one version of a Delta or Iceberg table.

    Attributes
    ----------
    path : path relative to the table
    size : size in bytes
    constants : the partition columns with their values
    columns : the columns of the table, with their value in a file that was written before they were added
    deleted : one bit for each row, set if it is deleted, packed by `numpy.packbits`; rows beyond are not deleted
    names : the table's names for columns of the file, if they may differ
    partition : the name of its partition by the values of the partition columns, ``night=2026-01-05``
    rows : number of its rows, deleted ones included; None if the metadata do not tell
    """

    path: str
    size: int
    constants: tuple[tuple[str, Constant], ...]
    columns: tuple[tuple[str, Constant], ...]
    deleted: bytes
    names: TableNames | None = None
    partition: str = ""
    rows: int | None = None


@lru_cache
def _above(directory: str) -> frozenset[str]:
    """A directory and all directories above it."""
    path = PurePosixPath(directory)
    return frozenset(str(each) for each in (path, *path.parents) if each.name or directory[:1] == "/")


@dataclass
class Tables:
    """What the directories that one plan has inspected hold besides files to read: table formats, and other files.

    Attributes
    ----------
    version : version of the Delta tables to read, None for the current one
    snapshot : id of the snapshot of the Iceberg tables to read, None for the current one
    found : the formats of the tables that were found
    others : the files that are left out because they are not Parquet, with the reasons
    histories : for each table, its versions from the one that is read to earlier ones, as far as they can be read:
        whether it has the rows of the version before it, in other files, and its files
    """

    version: int | None = None
    snapshot: int | None = None
    found: set[str] = field(default_factory=set)
    others: dict[str, str] = field(default_factory=dict)
    histories: list[Iterator[tuple[bool, list[Any]]]] = field(default_factory=list)  # `File` is in a module above
    _formats: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def roots(self, tree: Tree, place: str, paths: Sequence[tuple[str, bool]], name: str) -> dict[str, str]:
        """Directories of the Delta tables above or below some paths, or of the Iceberg table that is the only path.

        Parameters
        ----------
        tree : the file system, walked already, so that `Tree.marks` has the tables below the paths
        place : identifies the file system
        paths : real paths, and whether each is a directory
        name : name of the input in messages

        Raises
        ------
        DataError
            If a directory belongs to another table format.
        """
        above = frozenset(path for path, is_dir in paths if is_dir).union(
            *(_above(posixpath.dirname(path)) for path, _ in paths)
        )
        unknown = [directory for directory in sorted(above) if (place, directory) not in self._formats]
        formats = tree.formats(unknown) if unknown else {}
        self._formats |= {(place, directory): formats.get(directory) for directory in unknown}
        tables = tree.marks | {d: kind for d in above if (kind := self._formats[place, d]) is not None}
        for directory, kind in sorted(tables.items()):
            if kind == ICEBERG and list(paths) == [(directory, True)]:
                return {directory: ICEBERG}
            if kind != DELTA:
                which = name if directory == name.rstrip("/") else f"{name}: {directory}"
                raise DataError(
                    f"{which} is a table of {kind}, whose metadata say which files count; {_REMEDIES[kind]}"
                )
        self.found |= {DELTA} if tables else set()
        return tables

    def refuse_idle_version(self) -> None:
        """Raise `OptionError` if a version or snapshot was requested and no table of the format was found."""
        for kind, option, value in (DELTA, "delta_version", self.version), (ICEBERG, "snapshot", self.snapshot):
            if value is not None and kind not in self.found:
                table = "a Delta table" if kind == DELTA else "an Iceberg table"
                raise OptionError(f"{option}={value} would change nothing: no input is {table}", option)


def live_files(uri: str, options: Mapping[str, str], version: int | None, name: str) -> list[LiveFile]:
    """The files of one version of a Delta table.

    Parameters
    ----------
    uri, options : path or URI, and storage options for deltalake
    version : version of the table; None for the current one
    name : name of the table in messages

    Raises
    ------
    CorruptFileError
        If the log cannot be read, or does not have the version.
    DataError
        If the table is a shallow clone, or deltalake would read the log of another directory (see `misread`); the
        message names it.
    """
    deltalake = import_deltalake()
    from deltalake.exceptions import DeltaError

    if odd := misread(uri):
        raise DataError(
            f"{name}: a Delta table, but deltalake takes {odd!r} in a path for something else; rename the directory"
        )
    try:
        table = deltalake.DeltaTable(uri, version=version, storage_options=dict(options) or None)
        actions = pa.table(table.get_add_actions())
        schema = pa.schema(table.schema().to_arrow())
        deleted = _read_deleted(table)
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        which = "its log" if version is None else f"version {version} in its log"
        raise CorruptFileError(f"{name}: a Delta table, but {which} cannot be read: {reason(error)}") from error
    kinds = actions.schema.field("partition").type if "partition" in actions.column_names else []
    kinds_of = [*((column.name, column.type) for column in schema), *fields_below(schema)]
    columns = tuple({path: Constant(None, kind, fallback=True) for path, kind in kinds_of}.items())
    names = _names(table)
    found = []
    for row in actions.to_pylist():
        values = row.get("partition") or {}
        constants = tuple((kind.name, Constant(values[kind.name], kind.type)) for kind in kinds)
        path = unescape(row["path"])
        if "://" in path or path.startswith("/"):
            raise DataError(
                f"{name}: a shallow clone, which names files of another Delta table ({path}); name that one or copy it"
            )
        bits = deleted.pop(row["path"], b"") or deleted.pop(path, b"")
        segments = {key: HIVE_NULL if value is None else quote(str(value), safe=" :") for key, value in values.items()}
        partition = "/".join(f"{quote(key, safe='')}={segment}" for key, segment in segments.items())
        rows = row.get("num_records")
        found.append(LiveFile(path, row["size_bytes"], constants, columns, bits, names, partition, rows))
    if deleted:
        raise CorruptFileError(
            f"{name}: a deletion vector refers to no file of the table ({min(deleted)}); repair the table"
        )
    return found


def rewriting_versions(uri: str, options: Mapping[str, str], version: int | None) -> Iterator[tuple[int, bool]]:
    """The versions of a Delta table, newest first, and whether each has the rows of the one before, in other files."""
    from deltalake.exceptions import DeltaError

    with suppress(DeltaError, OSError, ValueError):
        table = import_deltalake().DeltaTable(uri, version=version, storage_options=dict(options) or None)
        operations = {commit["version"]: commit.get("operation") for commit in table.history()}
        for number in range(table.version(), -1, -1):
            yield number, operations.get(number) == "OPTIMIZE"


def misread(path: str) -> str:
    """The part of a path or URI that deltalake misreads, or an empty string.

    deltalake 1.6 decodes the paths of logs once too often, so it takes ``a%42`` for ``aB`` and may read or write the
    table there. A backslash separates directories for it.

    Examples
    --------
    >>> misread("/data/a%42"), misread("/data/100%"), misread("/data/a#1")
    ('%42', '', '')
    """
    found = _MISREAD.search(path)
    return found[0] if found else ""


def uri_of(table: deltalake.DeltaTable) -> tuple[str, int]:
    """URI and version of a table."""
    text = table.table_uri.rstrip("/")
    if text.startswith("file://"):
        return unescape(text.removeprefix("file://")), table.version()
    options = table._storage_options or {}  # noqa: SLF001 - no other way to its credentials
    carried = {key: value for key, value in options.items() if key.upper() in URI_OPTIONS}
    uri = Uri.parse(text)
    return text if uri is None else uri.with_storage(carried), table.version()


def _read_deleted(table: deltalake.DeltaTable) -> dict[str, bytes]:
    """Bits of the deleted rows, for every file that has any; see `LiveFile`."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    vectors = pa.table(table.deletion_vectors())
    return {
        path.removeprefix(table.table_uri): np.packbits(~np.asarray(kept.values, bool)).tobytes()
        for path, kept in zip(vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True)
    }


def _names(table: deltalake.DeltaTable) -> TableNames | None:
    """The names of columns and fields by what identifies them in the files; None without column mapping."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode == "none":
        return None
    return TableNames({number if mode == "id" else path: name for name, path, number in _mapping(table.schema())})


def _mapping(struct: Schema | StructType, above: str = "", stored: str = "") -> Iterator[tuple[str, str, int]]:
    """The path of every column and field in the table, its path in the files, and its id."""
    for inner in struct.fields:
        path = stored + inner.metadata.get("delta.columnMapping.physicalName", inner.name)
        yield f"{above}{inner.name}", path, int(inner.metadata.get("delta.columnMapping.id", -1))
        if hasattr(inner.type, "fields"):
            yield from _mapping(inner.type, f"{above}{inner.name}.", f"{path}.")
