"""Planning: one schema and a list of pieces from all inputs."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyarrow import types

from streameval.errors import CorruptFileError, MissingColumnError, MissingInputError, OptionError, SchemaError
from streameval.scan import in_memory
from streameval.scan.derived import UUIDS, IdName, SlicingColumn, SourceColumn, mark, read_from
from streameval.scan.files.paths import File, distinct, labels, locate, of_iceberg, tell
from streameval.scan.files.tables import Tables, uri_of
from streameval.scan.files.uris import mask_uri
from streameval.scan.files.walk import DELTA
from streameval.scan.in_memory import dataset_items
from streameval.scan.parquet import footers
from streameval.scan.pieces import Holding, Scan, StreamSource, number_rows
from streameval.scan.pruning import exclude
from streameval.scan.widen import plain, widen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from deltalake import DeltaTable
    from pyiceberg.table import Table

    from streameval.scan.where import Where


def plan(
    data: object,
    columns: Sequence[str],
    *,
    where: Where | None = None,
    on_error: str = "raise",
    threads: int | None = None,
    delta_version: int | None = None,
    snapshot: int | None = None,
) -> Scan:
    """Find the pieces to read and the schema that they share.

    Parameters
    ----------
    data : path, pattern, URI, dataset, table, reader or frame, or a list of those
        A path is a string or `os.PathLike`: a file, a directory (Hive-partitioned, a Delta table, an Iceberg
        table, or neither), a glob, a URI of `pyarrow.fs`, or ``catalog://name/namespace.table``. A
        `deltalake.DeltaTable` is read in its version. In memory: `pyarrow.Table`,
        `RecordBatch`, `RecordBatchReader`, `pyarrow.dataset.Dataset`, a pandas frame, and any object with
        ``__arrow_c_stream__``. Computed by Dask: a `dask.dataframe`, or a list of delayed Arrow tables.
    columns : sequence of str
        The requested columns; duplicates are ignored. For a `SlicingColumn` that is computed, the scan has the column
        that it is computed from; decimals of an `IdName` are read as integers.
    where : Where, optional
        A filter of the rows, for `prune`: files of tables whose partitions contradict it are not opened.
    on_error : {"raise", "skip"}
        What to do with a file whose footer cannot be read.
    threads : int, optional
        With 1, planning uses this thread only; otherwise slow footers are read in parallel.
    delta_version : int, optional
        Version of the Delta tables among the inputs, by default the current one; see `streameval.scan.files.tables`.
    snapshot : int, optional
        Id of the snapshot of the Iceberg tables among the inputs, by default the current one.

    Returns
    -------
    Scan
        Pieces in the order of the inputs and, within an input, of the sorted paths, with numbered rows
        (`streameval.scan.pieces`).

    Raises
    ------
    MissingInputError
        If an input does not exist, or there are no rows.
    MissingColumnError, SchemaError
        If a column does not exist, or its types in two files have no common type.
    CorruptFileError
        If a file cannot be read.
    OptionError
        If no column is named, or an option does not fit the inputs.

    Examples
    --------
    >>> scan = plan(pa.table({"label": [True, False], "score": [0.9, 0.2], "text": ["a", "b"]}), ["score", "label"])
    >>> scan.rows, scan.schema.names
    (2, ['score', 'label'])
    """
    ids = {column for column in columns if isinstance(column, IdName)}
    columns = list(dict.fromkeys(columns))
    if not columns or on_error not in ("raise", "skip"):
        raise OptionError(
            f"on_error is 'raise' or 'skip', not {on_error!r}" if columns else "name at least one column to read"
        )
    tables = Tables(delta_version, snapshot)
    if in_memory.is_instance(data, "dask.dataframe") or in_memory.are_delayed(data):
        columns = _read_columns(columns, [lambda names: next(in_memory.holdings(data, names))])
        found: list[Holding | tuple[str, str]] = list(in_memory.holdings(data, columns))
    else:
        items = _shared_parts(distinct(_items(data, tables)), columns)
        items = items if where is None else exclude(items, where)
        opened = [item for item in items if not (isinstance(item, File) and item.excluded)]
        columns = _read_columns(columns, [partial(_holding_of, item) for item in opened])
        found = list(_holdings(items, columns, skip=on_error == "skip", parallel=threads != 1))
    tables.refuse_idle_version()
    skipped = (*(item for item in found if isinstance(item, tuple)), *tables.others.items())
    holdings = [item for item in found if isinstance(item, Holding) and item.pieces]
    if not holdings:
        reason = f"; {len(skipped)} skipped, the first {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        raise MissingInputError(f"{_describe(data)}: no rows{reason}", skipped, empty=not skipped)
    pieces = tuple(piece for holding in holdings for piece in holding.pieces)
    return Scan(
        schema=_unify([holding for holding in holdings if holding.kinds], columns, ids),
        pieces=number_rows(pieces),
        rows=-1 if any(piece.rows < 0 for piece in pieces) else sum(piece.rows for piece in pieces),
        nbytes=sum(piece.nbytes for piece in pieces),
        skipped=skipped,
        splittable=not any(isinstance(piece.source, StreamSource) for piece in pieces),
    )


def place_inputs(data: object) -> list[tuple[object, str, str]]:
    """The inputs of a plan one by one, each with the names of its file and its partition; both are empty in memory."""
    tables = Tables()
    items = distinct(_items(data, tables))
    tell(tables.others.items())
    places = [item.place if isinstance(item, in_memory.Fragment) else item for item in items]
    named = iter(labels(place for place in places if isinstance(place, File)))
    return [
        (item, place.name, next(named)[0]) if isinstance(place, File) else (item, "", "")
        for item, place in zip(items, places, strict=True)
    ]


def _holdings(items: Sequence[object], columns: Sequence[str], **how: bool) -> Iterator[Holding | tuple[str, str]]:
    """The holding of every input, in order. Files are planned together; rows are numbered across all tables."""
    from_files = footers.holdings([item for item in items if isinstance(item, File)], columns, **how)
    row = 0
    for item in items:
        if isinstance(item, File):
            yield next(from_files)
        else:
            holding = in_memory.holding(item, columns, row)
            row += sum(max(piece.rows, 0) for piece in holding.pieces)
            yield holding


def _read_columns(columns: Sequence[str], inputs: Sequence[Callable[[list[str]], Holding]]) -> list[str]:
    """The columns to read: a slicing column that the data lack is replaced by the one that it is computed from.

    The first input with rows decides; further files must agree. Each of `inputs` gives the holding of some columns.

    Raises
    ------
    OptionError
        If a column can neither be found nor computed.
    """
    sources: dict[str, list[SlicingColumn]] = {}
    for name in columns:
        if isinstance(name, SlicingColumn) and name.looks_computed and not _have_column(inputs, name):
            sources.setdefault(read_from(name), []).append(name)
        else:
            sources.setdefault(name, [])
    return [SourceColumn(name, computes) if computes else name for name, computes in sources.items()]


def _shared_parts(items: Sequence[object], columns: Sequence[str]) -> Sequence[object]:
    """The inputs; parts of times that partitions tell are columns only if those of all inputs tell them.

    Those of times with a zone, or in a requested zone, are computed, since results name the zone.
    """
    computed = {name for name in columns if isinstance(name, SlicingColumn) and name.looks_computed}
    if not computed:
        return items
    given = [computed.intersection(dict(item.constants) if isinstance(item, File) else ()) for item in items]
    partly = computed.intersection(*given) ^ set[str]().union(*given)
    tables = {id(item.columns): dict(item.columns) for item in items if isinstance(item, File)}.values()
    for name in (name for name in computed if all(name in one for one in given)):  # others may not be computable
        kinds = [columns[read_from(name)].kind for columns in tables if read_from(name) in columns]
        if name.zone or any(types.is_timestamp(kind) and kind.tz for kind in kinds):
            partly.add(name)
    if not partly:
        return items
    return [
        replace(item, constants=tuple(pair for pair in item.constants if pair[0] not in partly))
        if isinstance(item, File)
        else item
        for item in items
    ]


def _have_column(inputs: Sequence[Callable[[list[str]], Holding]], name: str) -> bool:
    """Whether the first input with rows has a column of exactly this name."""
    for holding_of in inputs:
        try:
            if holding_of([name]).pieces:
                return True
        except MissingColumnError:
            return False
        except CorruptFileError:  # reported or skipped when the file is planned
            continue
    return False


def _holding_of(item: object, columns: list[str]) -> Holding:
    """The holding of one input."""
    return cast("Holding", next(_holdings([item], columns, skip=False, parallel=False)))  # none is skipped


def _items(data: object, tables: Tables) -> Iterator[object]:
    """Files, fragments and inputs in memory, one by one."""
    if isinstance(data, str | os.PathLike):
        yield from locate(os.fspath(data), tables)
    elif in_memory.is_instance(data, "deltalake.table", "DeltaTable"):
        uri, version = uri_of(cast("DeltaTable", data))
        if tables.version not in (None, version):
            raise OptionError(
                f"delta_version={tables.version}, but the DeltaTable is of version {version}; give one of the two"
            )
        tables.found.add(DELTA)
        yield from locate(uri, Tables(version))
    elif in_memory.is_instance(data, "pyiceberg.table", "Table"):
        yield from of_iceberg(cast("Table", data), tables)
    elif in_memory.is_instance(data, "pyarrow.dataset", "Dataset"):
        yield from dataset_items(data)  # importing the module takes 0.3 s, as it imports pandas
    elif not isinstance(data, list | tuple):
        yield data
    elif data and all(
        isinstance(item, pa.Table | pa.RecordBatch) and item.schema.equals(data[0].schema) for item in data
    ):
        yield pa.concat_tables(in_memory.as_table(item) for item in data)
    else:
        for item in data:
            yield from _items(item, tables)


def _unify(holdings: Sequence[Holding], columns: Sequence[str], ids: Collection[str]) -> pa.Schema:
    """The requested columns, each of the smallest type that holds every input's values."""
    fields = []
    for i, column in enumerate(columns):
        first: dict[pa.DataType, Holding] = {}
        for holding in holdings:
            whole = column in ids and types.is_decimal(plain(holding.kinds[i]))
            first.setdefault(pa.int64() if whole else holding.kinds[i], holding)
        kind = widen(first)
        if kind is None and isinstance(column, SourceColumn) and column.zone:
            kind = widen(map(_in_utc, first))
        if kind is None:
            raise _clash(column, first)
        fields.append(pa.field(column, kind, metadata=_find_mark(holdings, column) if types.is_string(kind) else None))
        if all(isinstance(given, pa.UuidType) for given in first):
            fields[-1] = fields[-1].with_metadata(UUIDS)
    return pa.schema(fields)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """A type of times in UTC for one of times in another zone or without one; any other type unchanged."""
    return pa.timestamp(kind.unit, "UTC") if types.is_timestamp(kind) else kind


def _find_mark(holdings: Sequence[Holding], column: str) -> dict[bytes, bytes] | None:
    """The mark of a Hive key of integers or dates; None if the column has a type from a file, dataset or table."""
    values = set()
    for piece in itertools.chain.from_iterable(holding.pieces for holding in holdings):
        key = next((constant for name, constant in piece.constants if name == column), None)
        if key is None or key.typed:
            return None
        values.add(key.value)
    return mark(values)


def _clash(column: str, first: dict[pa.DataType, Holding]) -> SchemaError:
    """The error for two files whose types have no common type."""
    pairs = itertools.combinations(first.items(), 2)
    (kind, one), (other, two) = next(((a, b) for a, b in pairs if widen([a[0], b[0]]) is None), list(first.items())[:2])
    zone = isinstance(column, SourceColumn) and widen(map(_in_utc, (kind, other)))
    remedy = "; or name the zone of the slices, such as --timezone UTC" if zone else ""
    return SchemaError(
        f"{two.name}: column {column!r} is {plain(other)}, but {plain(kind)} in {one.name}: "
        f"no type holds both without loss; write the column of one of the files in the type of the other{remedy}"
    )


def _describe(data: object) -> str:
    """The name of all inputs together, for a message."""
    if isinstance(data, list | tuple):
        more = f" and {len(data) - 1} more" if len(data) > 1 else ""
        return f"{_describe(data[0])}{more}" if data else "the input"
    if isinstance(data, File):
        return data.name
    return mask_uri(os.fspath(data)) if isinstance(data, str | os.PathLike) else f"the {type(data).__name__}"
