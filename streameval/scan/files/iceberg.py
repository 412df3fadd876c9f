"""Iceberg tables: the files of a snapshot, planned by pyiceberg, which is imported here alone and when it is needed.

A table is named by its directory, by a metadata file, by ``catalog://name/namespace.table`` of a catalog that pyiceberg
is configured for, or is a `pyiceberg.table.Table`. A directory stands for its newest metadata file; a catalog knows
which one is current. Columns are found by their field ids, so that a file may have other names; a column that a file
lacks has its initial default there, and a field of a struct is null. Parts of a time that a hidden partition tells are
columns, named as their slices. Rows that position deletes or deletion vectors name are left out. Equality deletes are
refused, since they would have to be joined with the rows.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import CorruptFileError, DataError, MissingInputError, OptionError
from streameval.scan.derived import PARTS
from streameval.scan.faults import reason
from streameval.scan.files.tables import LiveFile
from streameval.scan.nested import TableNames, fields_below
from streameval.scan.pieces import Constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.name_mapping import MappedField, NameMapping
    from pyiceberg.table.snapshots import Snapshot as Made

    from streameval.typing import Array

CATALOG = "catalog://"
METADATA = re.compile(r".*(^|/)metadata/[^/]+\.metadata\.json(\.gz)?")
_NUMBER = re.compile(r"v?(\d+)")
_S3 = {  # pyiceberg's names of deltalake's storage options
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
}


def open_table(text: str, options: Mapping[str, str], name: str) -> Table:
    """The table of a catalog, or of a metadata file.

    Parameters
    ----------
    text : ``catalog://name/namespace.table``, or the path or URI of a metadata file
    options : storage options of the URI, in deltalake's spelling
    name : the table in messages

    Raises
    ------
    OptionError
        If pyiceberg is not installed, or the name of a table in a catalog is incomplete.
    MissingInputError
        If the catalog has no such table, or cannot be reached.
    CorruptFileError
        If the metadata file cannot be read.
    """
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ImportError:
        raise OptionError(f"{name}: to read Iceberg tables, pip install 'streameval[iceberg]'") from None
    catalog, slash, table = text.removeprefix(CATALOG).partition("/")
    if text.startswith(CATALOG):
        if not (catalog and slash and "." in table):
            raise OptionError(f"{name}: write catalog://name/namespace.table, as pyiceberg's configuration has them")
        try:
            return load_catalog(catalog).load_table(table)
        except Exception as error:  # whatever a catalog raises
            raise MissingInputError(
                f"{name}: cannot be loaded ({reason(error)}); check its name and pyiceberg's configuration"
            ) from error
    try:
        return StaticTable.from_metadata(text, {_S3[key]: value for key, value in options.items() if key in _S3})
    except Exception as error:
        raise CorruptFileError(f"{name}: the metadata of an Iceberg table cannot be read: {reason(error)}") from error


def newest_metadata(filesystem: fs.FileSystem, directory: str) -> str:
    """The metadata file of a table's directory with the highest number."""
    selector = fs.FileSelector(posixpath.join(directory, "metadata"))
    paths = [info.path for info in filesystem.get_file_info(selector) if METADATA.fullmatch(info.path)]
    return str(max(paths, key=_number_of))


def _number_of(path: str) -> tuple[int, str]:
    number = _NUMBER.match(posixpath.basename(path))
    return int(number[1]) if number else -1, path


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of an Iceberg table.

    Attributes
    ----------
    table : the table
    number : id of the snapshot; None for the current one
    name : the table in messages
    """

    table: Table
    number: int | None
    name: str

    @property
    def location(self) -> str:
        """The directory of the table, in its file system."""
        return _Deletes(self.table, self.name).place(self.table.location())[1].rstrip("/")

    @property
    def rewrites(self) -> bool:
        """Whether it has the rows of the snapshot before it, in other files."""
        made = self._made
        return bool(made and made.summary and made.summary.operation.value == "replace")

    @property
    def _made(self) -> Made | None:
        """The snapshot as pyiceberg has it."""
        return self.table.current_snapshot() if self.number is None else self.table.snapshot_by_id(self.number)

    def ancestors(self) -> Iterator[Snapshot]:
        """The snapshot itself and those before it, until one has expired."""
        made = self._made
        while made is not None:
            yield Snapshot(self.table, made.snapshot_id, self.name)
            parent = made.parent_snapshot_id
            made = None if parent is None else self.table.snapshot_by_id(parent)

    def files(self) -> Iterator[tuple[fs.FileSystem, LiveFile]]:
        """The files, with absolute paths, each with its file system.

        Raises
        ------
        OptionError
            If there is no such snapshot.
        DataError
            If a file is not Parquet, or has equality deletes; the message names it.
        CorruptFileError
            If the metadata or deletes cannot be read.
        """
        if self.number is not None and self.table.snapshot_by_id(self.number) is None:
            last = [snapshot.snapshot_id for snapshot in self.table.snapshots()][-5:]
            raise OptionError(f"{self.name}: there is no snapshot {self.number}; the last ones are {last}", "snapshot")
        scan = self.table.scan(snapshot_id=self.number)
        try:
            schema, tasks = scan.projection(), list(scan.plan_files())
        except Exception as error:
            if "equality delete" in str(error):
                raise DataError(
                    f"{self.name}: has equality deletes, which name rows by values; rewrite its data files "
                    "(rewrite_data_files), or give the rows as Arrow (table.scan().to_arrow_batch_reader())"
                ) from error
            raise CorruptFileError(f"{self.name}: its manifests cannot be read: {reason(error)}") from error
        names, columns = _columns(schema, self.table.name_mapping())
        deletes, by_name = _Deletes(self.table, self.name), dict(columns)
        partitions: dict[tuple[Any, ...], tuple[str, tuple[tuple[str, Constant], ...]]] = {}
        specs = self.table.specs()
        for task in tasks:
            if task.file.file_format.name != "PARQUET":
                kind = task.file.file_format.name
                raise DataError(
                    f"{self.name}: {task.file.file_path} is {kind}; write the table's data files as Parquet"
                )
            filesystem, path = deletes.place(task.file.file_path)
            values = task.file.partition
            key = task.file.spec_id, *map(values.__getitem__, range(len(values)))
            if key not in partitions:  # which takes longer than pyiceberg needs for a file
                spec = specs[task.file.spec_id]
                partition = spec.partition_to_path(values, self.table.schema()) if spec.fields else ""
                partitions[key] = partition, tuple(self._constants(task.file, schema, by_name))
            partition, constants = partitions[key]
            size, deleted = task.file.file_size_in_bytes, deletes.bits(task)
            rows = task.file.record_count
            yield filesystem, LiveFile(path, size, constants, columns, deleted, names, partition, rows)

    def _constants(
        self, file: DataFile, schema: Schema, columns: Mapping[str, Constant]
    ) -> Iterator[tuple[str, Constant]]:
        """The columns by whose values the file is partitioned, and parts of times that its partition tells."""
        for i, field in enumerate(self.table.specs()[file.spec_id].fields):
            name = schema.find_column_name(field.source_id) or ""
            if str(field.transform) == "identity" and name in columns:
                kind = columns[name].kind
                yield name, Constant(pa.scalar(file.partition[i], _stored_type(kind)).cast(kind).as_py(), kind)
            elif name in columns:
                yield from _parts_of(name, str(field.transform), file.partition[i])


def _parts_of(column: str, transform: str, value: int | None) -> Iterator[tuple[str, Constant]]:
    """The parts of a time that are the same in all rows of a partition, by the names that they have as slices.

    Earlier writers rounded times before 1970 up, so that these tell nothing.
    """
    if transform not in ("hour", "day", "month") or (value or 0) < 0:
        return
    if transform == "hour":
        yield f"hour({column})", Constant(None if value is None else value % 24, pa.int64())
        value = None if value is None else value // 24
    day = None
    if value is not None and transform == "month":
        day = date(1970 + value // 12, value % 12 + 1, 1)
    elif value is not None:
        day = date(1970, 1, 1) + timedelta(days=value)
    for part, text in PARTS.items():
        if text and (transform != "month" or part == "month"):
            yield f"{part}({column})", Constant(day and day.strftime(text), pa.string())


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Iceberg has the value of a partition: dates and times are numbers."""
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_time(kind) else kind


def _columns(schema: Schema, mapping: NameMapping | None) -> tuple[TableNames, tuple[tuple[str, Constant], ...]]:
    """The names of columns and fields by id, and all columns with their initial defaults, fields of structs with null.

    A file without ids was added as it is; the table's name mapping says which ids its names stand for.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import index_name_by_id

    kinds = schema_to_pyarrow(schema, include_field_ids=False)
    columns = tuple(
        (field.name, Constant(field.initial_default, kinds.field(field.name).type, fallback=True))
        for field in schema.fields
    )
    later = [(path, kind) for path, kind in fields_below(kinds) if schema.find_field(path).initial_default is None]
    columns += tuple((path, Constant(None, kind, fallback=True)) for path, kind in later)
    by_id = index_name_by_id(schema)
    names = TableNames((number, name) for number, name in by_id.items())
    paths = {name: name for name in by_id.values()} if mapping is None else dict(_map_names(mapping.root, by_id))
    names.update(paths.items())
    return names, columns


def _map_names(fields: Sequence[MappedField], by_id: Mapping[int, str], above: str = "") -> Iterator[tuple[str, str]]:
    """The paths that a name mapping has for columns and fields in files, with their names in the table."""
    for field in fields:
        for name in field.names:
            if field.field_id is not None and field.field_id in by_id:
                yield above + name, by_id[field.field_id]
            yield from _map_names(field.fields, by_id, f"{above}{name}.")


class _Deletes:
    """Where files are, and which of their rows are deleted; a file of deletes is read once."""

    def __init__(self, table: Table, name: str) -> None:
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self._io, self._name = PyArrowFileIO(table.io.properties), name
        self._positions: dict[str, dict[str, Any]] = {}
        self._folders: dict[str, tuple[fs.FileSystem, str]] = {}

    def place(self, location: str) -> tuple[fs.FileSystem, str]:
        """The file system of a location, and the path in it."""
        folder, _, name = location.rpartition("/")
        if set("?#;") & set(name) or not folder:  # which may be no parts of a path
            return self._place(location)
        if folder not in self._folders:
            self._folders[folder] = self._place(folder)
        filesystem, path = self._folders[folder]
        return filesystem, f"{path}/{name}"

    def _place(self, location: str) -> tuple[fs.FileSystem, str]:
        scheme, host, path = self._io.parse_location(location, self._io.properties)
        return fs.LocalFileSystem() if scheme == "file" else self._io.fs_by_scheme(scheme, host), path

    def bits(self, task: FileScanTask) -> bytes:
        """One bit for each row of a file, set if it is deleted; empty if none is."""
        if not task.delete_files:
            return b""
        deleted = np.zeros(task.file.record_count, np.uint8)
        for file in task.delete_files:
            if file.file_path not in self._positions:
                self._positions[file.file_path] = self._read(file)
            positions = self._positions[file.file_path].get(task.file.file_path, np.empty(0, np.int64))
            if positions.size and not 0 <= positions.min() <= positions.max() < deleted.size:
                what = f"{file.file_path} deletes rows that {task.file.file_path} does not have"
                raise CorruptFileError(f"{self._name}: {what}; repair the table")
            deleted[positions] = 1
        return np.packbits(deleted).tobytes()

    def _read(self, file: DataFile) -> dict[str, Array]:
        """The positions in a file of deletes, by the location of the data file."""
        from pyiceberg.io.pyarrow import _read_deletes  # it has no public name

        try:
            deletes = _read_deletes(self._io, file)
        except Exception as error:
            raise CorruptFileError(f"{self._name}: {file.file_path} cannot be read: {reason(error)}") from error
        return {location: positions.to_numpy() for location, positions in deletes.items()}
