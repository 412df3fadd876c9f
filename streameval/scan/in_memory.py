"""In memory: holdings of tables, frames and readers, and of datasets that are not Parquet.

Tables are divided into slices without a copy, so that threads can share them. Rows are numbered across all tables of a
scan, so (partition ``""``, row) identifies a row. A stream is one piece. Only the requested columns of a pandas frame
are converted; pandas is never imported here. Parquet fragments of Arrow datasets become files; other fragments are read
by Arrow's own scanner.

To read another kind of input, add its reader to the table `_READERS`: the first whose test accepts the input reads it.

*Dask.* Such an input is a `dask.dataframe` from any source, or a list of `delayed` Arrow tables. Each partition is one
piece. On threads, the task that folds a partition also computes it; on a cluster, a separate task computes it first.
The types of a frame are known from its plan. Delayed tables are assumed to have the types of the first one, which is
computed an additional time to find them: by the client that holds a part of it (`persist`), otherwise in this thread.

Dask is never imported here: a caller that passes such an input has imported it.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from streameval.errors import CorruptFileError, OptionError, SchemaError, StreamevalError
from streameval.scan.faults import READ_ERRORS, reason
from streameval.scan.files.paths import File, root_of
from streameval.scan.nested import column_of, stored_names
from streameval.scan.parquet.pages import footer_at
from streameval.scan.parquet.row_groups import int96_columns
from streameval.scan.pieces import (
    Constant,
    FragmentSource,
    Holding,
    Piece,
    StreamSource,
    TableSource,
    find,
    is_constant,
)
from streameval.scan.where import expression_columns
from streameval.scan.widen import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    import pyarrow.dataset as pads


SLICE_ROWS = 1 << 21  # largest number of rows of a slice, which is one piece


@dataclass(frozen=True, slots=True)
class Fragment:
    """An input for Arrow's own scanner: a fragment that is not Parquet, or a dataset without fragments.

    Parameters
    ----------
    data : pyarrow.dataset.Fragment or pyarrow.dataset.Dataset
    schema : pyarrow.Schema
        Its columns.
    rows : int
        Number of rows, −1 if unknown.
    place : File or None
        Its location and partition keys; None in memory.
    """

    data: Any
    schema: pa.Schema
    rows: int
    place: File | None = None


def holding(item: object, columns: Sequence[str], first_row: int) -> Holding:
    """The holding of any input but a Parquet file.

    Parameters
    ----------
    item : Fragment, pyarrow.Table, RecordBatch or RecordBatchReader, pandas.DataFrame, or an Arrow exporter
        The input.
    columns : sequence of str
        The requested columns.
    first_row : int
        Number of rows of the preceding tables.

    Raises
    ------
    OptionError
        If `item` is nothing that can be read.
    MissingColumnError, SchemaError
        If a column does not exist, or cannot be used.
    """
    name = f"the {type(item).__name__}"
    for accepts, read in _READERS:
        if accepts(item):
            return read(item, columns, name, first_row)
    kind = type(item).__name__
    remedy = _CONVERSIONS.get(kind, "give a path, a dataset, a table, a reader, a frame, or a list")
    raise OptionError(f"cannot read data of type {kind}; {remedy}")


_CONVERSIONS = {  # by type, how to get what can be read
    "LazyFrame": "it has no rows before .collect() computes them; give the result of that",
    "dict": "give pyarrow.table(…) of it",
}


def as_table(data: pa.Table | pa.RecordBatch) -> pa.Table:
    """A table unchanged, or a record batch as a table, without a copy."""
    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data


def holds_rows(data: object) -> bool:
    """Whether `data` holds rows itself, rather than naming files that do.

    Examples
    --------
    >>> holds_rows(pa.table({"x": [1]})), holds_rows("x.parquet"), holds_rows([1])
    (True, False, False)
    """
    members = ("__arrow_c_stream__", "__arrow_c_array__", "get_fragments", "to_delayed")  # Arrow, datasets, Dask
    return is_instance(data, "pandas") or any(hasattr(data, name) for name in members)


def is_instance(data: object, module: str, name: str = "DataFrame") -> bool:
    """Whether `data` is of a class, without importing its module, which may be slow or not installed."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(data, getattr(loaded, name))


def from_frame(frame: pd.DataFrame, columns: Sequence[str]) -> pa.Table:
    """The requested columns that exist in a frame; its index does not count as a column.

    A column may be named by a number: ``"0"`` names it, unless another column has exactly this name.

    Raises
    ------
    SchemaError
        If a column mixes types.
    """
    arrays, names = [], []
    given, columns = list(frame.columns), stored_names(columns)
    for i, column in enumerate(map(str, given)):
        if column not in columns or (column in given and not isinstance(given[i], str)):
            continue
        try:
            arrays.append(pa.array(frame.iloc[:, i], from_pandas=True))
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise SchemaError(
                f"the DataFrame: column {column!r} mixes types ({reason(error)}); convert it with .astype(...)"
            ) from error
        names.append(column)
    return pa.table(arrays, names=names)


def names_of(given: Iterable[object]) -> dict[str, Any]:
    """The names of columns by their text, which names a column 0 as well, unless another column has exactly this name.

    Examples
    --------
    >>> names_of([0, 1, "1"])
    {'0': 0, '1': '1'}
    """
    given = list(given)
    return {str(name): name for name in given} | {name: name for name in given if isinstance(name, str)}


def from_mapping(data: Mapping[str, object], columns: Sequence[str]) -> pa.Table:
    """The requested columns of a mapping of names to arrays or lists; a number as a name is its text, as in frames.

    Raises
    ------
    MissingColumnError
        If a requested column does not exist.
    SchemaError
        If an array mixes types, or arrays have different lengths.
    """
    arrays: dict[str, Any] = {}
    data = {column: data[name] for column, name in names_of(data).items()}
    for column in (column for column in stored_names(columns) if column in data):
        try:
            given = data[column]
            arrays[column] = given if isinstance(given, pa.ChunkedArray) else pa.array(given)
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise SchemaError(
                f"the dict: column {column!r} is not an array of one type ({reason(error)}); convert it first"
            ) from error
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{column} {len(array):,}" for column, array in arrays.items())
        raise SchemaError(
            f"the dict: its columns have different numbers of rows ({lengths}); give arrays of equal length"
        )
    table = pa.table(arrays)
    find(table.schema, columns, "the dict", also=[*data])
    return table


def _table_holding(
    table: pa.Table, columns: Sequence[str], name: str, first_row: int, names: Iterable[str] | None = None
) -> Holding:
    """A table in slices of at most `SLICE_ROWS` rows; `names` are the columns of the frame it came from, if any."""
    kinds = find(table.schema, columns, name, also=names)
    table = pa.table({column: column_of(table, column) for column in columns})
    rows, size = table.num_rows, table.nbytes
    count = -(-rows // SLICE_ROWS)
    cuts = [rows * i // count for i in range(count + 1)] if rows else []
    pieces = tuple(
        Piece("", name, first_row + a, b - a, size * (b - a) // rows, source=TableSource(table.slice(a, b - a)))
        for a, b in itertools.pairwise(cuts)
    )
    return Holding(name, kinds, pieces)


def _fragment_holding(item: Fragment, columns: Sequence[str], _name: str, first_row: int) -> Holding:
    """A fragment or dataset as one piece."""
    place = item.place
    name = place.name if place else "the dataset"
    keys = place.keys if place else {}
    kinds = find(item.schema, columns, name, keys)
    if hasattr(item.data, "get_fragments"):
        _check_files(item.data, columns)
    constants = tuple((column, keys[column]) for column in columns if is_constant(item.schema, column, keys))
    partition, origin = (place.partition, place.origin) if place else ("", "")
    source = FragmentSource(item.data)
    piece = Piece(partition, name, 0 if place else first_row, item.rows, 0, origin, constants, source=source)
    return Holding(name, kinds, (piece,) if item.rows else ())


def _check_files(dataset: pads.Dataset, columns: Sequence[str]) -> None:
    """Check a dataset that Arrow's own scanner reads, which is one with a filter.

    Raises
    ------
    CorruptFileError
        If a footer cannot be read, or columns are encrypted: Arrow would abort the process.
    SchemaError
        If a column that is read or filtered is stored as INT96 timestamps, which this scanner lets wrap.
    """
    chosen = getattr(dataset, "_scan_options", {}).get("filter")
    columns = [*columns, *(() if chosen is None else expression_columns(chosen))]
    for child in getattr(dataset, "children", ()):
        _check_files(child, columns)
    if getattr(getattr(dataset, "format", None), "default_extname", "") != "parquet":
        return
    for path in dataset.files:
        try:
            footer = footer_at(dataset.filesystem, path)
        except READ_ERRORS as error:
            raise CorruptFileError(f"{path}: cannot be read: {reason(error)}") from error
        if found := int96_columns(footer, columns):
            raise SchemaError(
                f"{path}: column {found[0]!r} has INT96 timestamps, which Arrow's scanner of filtered datasets may "
                "read wrongly; give the dataset without its filter, and the filter as where"
            )


def _stream_holding(item: object, columns: Sequence[str], name: str, first_row: int) -> Holding:
    """A reader, or an object that exports Arrow streams, as one piece, which can be read once."""
    try:
        if isinstance(item, pa.RecordBatchReader):
            schema = item.schema
        elif hasattr(item, "__arrow_c_schema__"):
            schema = pa.schema(item)
        else:
            schema = pa.RecordBatchReader.from_stream(item).schema
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise SchemaError(
            f"{name}: cannot be read as an Arrow stream: {reason(error)}; "
            "give a frame or a table of the columns that are needed"
        ) from error
    kinds = find(schema, columns, name)
    return Holding(name, kinds, (Piece("", name, first_row, -1, 0, source=StreamSource(item, name)),))


def _frame_holding(item: pd.DataFrame, columns: Sequence[str], name: str, first_row: int) -> Holding:
    """A pandas frame."""
    return _table_holding(from_frame(item, columns), columns, name, first_row, item.columns)


def _array_holding(item: object, columns: Sequence[str], name: str, first_row: int) -> Holding:
    """A record batch, or what exports one."""
    try:
        batch = item if isinstance(item, pa.RecordBatch) else pa.record_batch(item)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise SchemaError(f"{name}: cannot be read as a record batch: {reason(error)}") from error
    return _table_holding(as_table(batch), columns, name, first_row)


_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Sequence[str], str, int], Holding]], ...] = (
    (lambda item: isinstance(item, Fragment), _fragment_holding),
    (lambda item: is_instance(item, "pandas"), _frame_holding),
    (lambda item: isinstance(item, pa.Table), _table_holding),
    (lambda item: isinstance(item, pa.RecordBatch), _array_holding),
    (lambda item: hasattr(item, "__arrow_c_stream__"), _stream_holding),
    (lambda item: hasattr(item, "__arrow_c_array__"), _array_holding),
)


def dataset_items(dataset: pads.Dataset) -> Iterator[File | Fragment]:
    """The files and fragments of a dataset, in its order.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        A dataset of files or of tables in memory, or a union. A dataset with a filter has no fragments, and is scanned
        by Arrow as one input.

    Yields
    ------
    File
        For a Parquet fragment, which is then read like any other file.
    Fragment
        For any other fragment. Rows in memory are counted; the rows of a file are unknown until it is read.
    """
    import pyarrow.dataset as pads  # imports pandas if it is installed; loaded already if there is a dataset

    try:
        fragments = list(dataset.get_fragments())
    except ValueError:
        yield Fragment(dataset, dataset.schema, rows=-1)
        return
    folders = [posixpath.dirname(fragment.path) for fragment in fragments if hasattr(fragment, "path")]
    root = root_of(posixpath.commonpath(folders)) if folders else ""
    for fragment in fragments:
        if isinstance(fragment, pads.ParquetFileFragment):
            yield _place(fragment, dataset.schema, root)
        elif hasattr(fragment, "path"):
            yield Fragment(fragment, fragment.physical_schema, rows=-1, place=_place(fragment, dataset.schema, root))
        else:
            yield Fragment(fragment, fragment.physical_schema, rows=fragment.count_rows())


def _place(fragment: pads.Fragment, schema: pa.Schema, root: str) -> File:
    """A fragment as a file, with the partition keys of the dataset."""
    import pyarrow.dataset as pads

    keys = pads.get_partition_keys(fragment.partition_expression)
    kinds = {key: plain(schema.field(key).type) for key in keys if key in schema.names}
    constants = tuple((key, Constant(keys[key], kind)) for key, kind in kinds.items())
    local = isinstance(fragment.filesystem, fs.LocalFileSystem)
    name = fragment.path if local else f"{fragment.filesystem.type_name}://{fragment.path}"
    size, mtime, real = None, None, fragment.path
    if local:
        with suppress(OSError):  # the task that reads it reports the error
            found, real = Path(fragment.path).stat(), os.path.realpath(fragment.path)
            size, mtime = found.st_size, found.st_mtime_ns
    return File(fragment.filesystem, fragment.path, name, root, fragment, constants, size, mtime, real)


@dataclass(frozen=True, slots=True)
class LazySource:
    """A partition: the Dask object that computes it, or the computed data.

    It is pickled without its graph, because on a cluster another task computes the partition and passes it on.
    """

    data: Any
    name: str
    computed: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        return LazySource, (self.data if self.computed else None, self.name, self.computed)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows; raises `CorruptFileError` if computing them fails."""
        data = self.data
        if not self.computed:
            try:
                data = _compute(data)
            except StreamevalError:
                raise
            except Exception as error:
                raise uncomputable(self.name, error) from error
        table = as_table(data) if isinstance(data, pa.Table | pa.RecordBatch) else from_frame(data, columns)
        yield from TableSource(table).batches(columns, batch_rows)


def uncomputable(name: str, error: BaseException) -> CorruptFileError:
    """The exception for a partition whose computation failed."""
    return CorruptFileError(f"{name}: cannot be computed: {type(error).__name__}: {reason(error)}")


def are_delayed(data: object) -> bool:
    """Whether `data` is a list of delayed tables, without importing Dask."""
    return (
        isinstance(data, list | tuple) and bool(data) and all(is_instance(x, "dask.delayed", "Delayed") for x in data)
    )


def _compute(delayed: Any) -> object:
    """The value of a Dask object: computed by the client whose workers hold a part of it, or in this thread."""
    clients = (task.client for task in delayed.dask.values() if is_instance(task, "distributed", "Future"))
    client = next(clients, None)
    return delayed.compute(scheduler=client.get if client else "synchronous")


def holdings(data: Any, columns: Sequence[str]) -> Iterator[Holding]:
    """The holding of each partition.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, or list of dask.delayed.Delayed
    columns : the requested columns
    """
    if is_instance(data, "dask.dataframe"):
        what, names = "the Dask DataFrame", names_of(data.columns)
        kinds = find(_frame_schema(data, columns), columns, what, also=[*names])
        parts = data[[names[column] for column in columns]].to_delayed()
    else:
        what, parts = "the delayed tables", list(data)
        schema = parts[0].schema  # delayed as well
        try:
            schema = _compute(schema)
        except AttributeError as error:
            raise SchemaError(f"{what}: {reason(error)}; each must compute to a pyarrow.Table") from error
        kinds = find(schema, columns, what)
    for i, part in enumerate(parts):
        name = f"partition {i} of {what}"
        yield Holding(name, kinds, (Piece("", name, 0, -1, 0, name, source=LazySource(part, name)),))


def _frame_schema(frame: Any, columns: Sequence[str]) -> pa.Schema:
    """Types of columns of a Dask frame according to its plan; object columns are assumed to hold strings."""
    from pandas import Series

    kinds = {}
    for name, column in names_of(frame.columns).items():
        if name not in columns:
            continue
        dtype = frame.dtypes[column]
        dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
        kind = pa.array(Series(dtype=dtype), from_pandas=True).type
        kinds[name] = pa.large_string() if pa.types.is_null(kind) else kind
    return pa.schema(kinds)
