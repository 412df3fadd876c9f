"""Tables: directories whose files are determined by the metadata of a table format, not by a listing.

The log of a Delta table names the files of each version, their partition values and their deleted rows; `deltalake`
reads it. For a directory below a table, or a pattern that leads into one, the files are those in the log that the path
covers. A requested column that has a different name in the files, by column mapping, is refused.

Apache Iceberg and Apache Hudi tables are refused, because their catalogues and timelines determine which files are
valid; the error says how to read them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streameval.errors import CorruptFileError, DataError, OptionError
from streameval.forks import import_deltalake
from streameval.scan.faults import reason
from streameval.scan.files.uris import URI_OPTIONS, Uri
from streameval.scan.files.walk import DELTA, HUDI, ICEBERG
from streameval.scan.pieces import Constant
from streameval.wording import unescaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import deltalake
    from deltalake.schema import Schema, StructType

    from streameval.scan.files.walk import Tree

_MISREAD = re.compile(r"%[0-9a-fA-F]{2}|[\\\x00-\x1f\x7f\ud800-\udfff]")
_REMEDIES = {
    ICEBERG: "give what pyiceberg reads: load_table(name).scan(…).to_arrow(), or its to_arrow_batch_reader()",
    HUDI: "give a snapshot: what a Hudi reader returns as an Arrow table or dataset, or a copy written as Parquet",
}


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file of one version of a Delta table.

    Attributes
    ----------
    path : path relative to the table
    size : size in bytes
    constants : the partition columns with their values
    columns : the other columns of the table, all null, for a file that was written before they were added, and those
        that are refused because files have them under another name
    deleted : one bit for each row, set if it is deleted, packed by `numpy.packbits`; rows beyond are not deleted
    """

    path: str
    size: int
    constants: tuple[tuple[str, Constant], ...]
    columns: tuple[tuple[str, Constant], ...]
    deleted: bytes


@dataclass
class Tables:
    """What the directories that one plan has inspected hold besides files to read: table formats, and other files.

    Attributes
    ----------
    version : version of the Delta tables to read, None for the current one
    found : whether a Delta table was found
    others : the files that are left out because they are not Parquet, with the reasons
    """

    version: int | None = None
    found: bool = False
    others: dict[str, str] = field(default_factory=dict)
    _formats: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def roots(self, tree: Tree, place: str, paths: Iterable[tuple[str, bool]], name: str) -> list[str]:
        """Directories of the Delta tables above or below some paths.

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
        above = {path for path, is_dir in paths if is_dir} | {
            str(parent) for path, _ in paths for parent in PurePosixPath(path).parents if parent.name or path[:1] == "/"
        }
        unknown = [directory for directory in sorted(above) if (place, directory) not in self._formats]
        formats = tree.formats(unknown) if unknown else {}
        self._formats |= {(place, directory): formats.get(directory) for directory in unknown}
        tables = tree.marks | {d: kind for d in above if (kind := self._formats[place, d]) is not None}
        for directory, kind in sorted(tables.items()):
            if kind != DELTA:
                which = name if directory == name.rstrip("/") else f"{name}: {directory}"
                raise DataError(
                    f"{which} is a table of {kind}, whose metadata say which files count; {_REMEDIES[kind]}"
                )
        self.found |= bool(tables)
        return sorted(tables)

    def refuse_idle_version(self) -> None:
        """Raise `OptionError` if a version was requested and no Delta table was found."""
        if self.version is not None and not self.found:
            raise OptionError(
                f"delta_version={self.version} would change nothing: no input is a Delta table", "delta_version"
            )


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
        If the table uses an unsupported feature (a partition column that is mapped, a shallow clone), or deltalake
        would read the log of another directory (see `misread`); the message names it.
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
        deleted = _deleted(table)
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        which = "its log" if version is None else f"version {version} in its log"
        raise CorruptFileError(f"{name}: a Delta table, but {which} cannot be read: {reason(error)}") from error
    kinds = actions.schema.field("partition").type if "partition" in actions.column_names else []
    columns = {column.name: Constant(None, column.type, fallback=True) for column in schema} | _mapped(table, name)
    found = []
    for row in actions.to_pylist():
        values = row.get("partition") or {}
        constants = tuple((kind.name, Constant(values[kind.name], kind.type)) for kind in kinds)
        path = unescaped(row["path"])
        if "://" in path or path.startswith("/"):
            raise DataError(
                f"{name}: a shallow clone, which names files of another Delta table ({path}); name that one or copy it"
            )
        bits = deleted.pop(row["path"], b"") or deleted.pop(path, b"")
        found.append(LiveFile(path, row["size_bytes"], constants, tuple(columns.items()), bits))
    if deleted:
        raise CorruptFileError(
            f"{name}: a deletion vector refers to no file of the table ({min(deleted)}); repair the table"
        )
    return found


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


def as_uri(table: deltalake.DeltaTable) -> tuple[str, int] | None:
    """URI and version of a `deltalake.DeltaTable`; None for anything else. deltalake is not imported."""
    if all((kind.__module__, kind.__qualname__) != ("deltalake.table", "DeltaTable") for kind in type(table).__mro__):
        return None
    text = table.table_uri.rstrip("/")
    if text.startswith("file://"):
        return unescaped(text.removeprefix("file://")), table.version()
    options = table._storage_options or {}  # noqa: SLF001 - no other way to its credentials
    carried = {key: value for key, value in options.items() if key.upper() in URI_OPTIONS}
    uri = Uri.parse(text)
    return text if uri is None else uri.with_storage(carried), table.version()


def _deleted(table: deltalake.DeltaTable) -> dict[str, bytes]:
    """Bits of the deleted rows, for every file that has any; see `LiveFile`."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    vectors = pa.table(table.deletion_vectors())
    return {
        path.removeprefix(table.table_uri): np.packbits(~np.asarray(kept.values, bool)).tobytes()
        for path, kept in zip(vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True)
    }


def _mapped(table: deltalake.DeltaTable, name: str) -> dict[str, Constant]:
    """Columns with a different name in the files than in the table, under both names; they are refused if requested.

    Raises
    ------
    DataError
        If it is a partition column.
    """
    named, stored_as = dict[str, Constant](), dict[str, Constant]()
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") == "none":
        return named
    for column, stored in _stored_names(table.schema()):
        if stored != column:
            msg = (
                f"{name}: a Delta table with column mapping; files call {column!r} {stored!r}; give its rows as "
                "a reader (deltalake.QueryBuilder), or write it again without column mapping"
            )
            if column in table.metadata().partition_columns:
                raise DataError(msg)
            named[column] = stored_as[stored] = Constant(None, pa.null(), fallback=True, refused=msg)
    return stored_as | named


def _stored_names(struct: Schema | StructType, above: str = "") -> Iterator[tuple[str, str]]:
    """The name of every column, and of every field below one such as ``address.city``, and its name in the files."""
    for inner in struct.fields:
        yield f"{above}{inner.name}", above + inner.metadata.get("delta.columnMapping.physicalName", inner.name)
        if hasattr(inner.type, "fields"):
            yield from _stored_names(inner.type, f"{above}{inner.name}.")
