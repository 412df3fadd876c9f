"""Reading: the record batches of one piece, in the scan's schema.

Large batches are divided into batches of `batch_rows`, and small neighbours combined, so that the overhead of batches
does not depend on how the data were written. Casts are lossless by the plan's choice of types; a column that already
has the right type is not cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from streameval.errors import CorruptFileError, DataError, SchemaError
from streameval.scan.faults import READ_ERRORS, ChangedFileError, reason, unreadable
from streameval.scan.nested import column_of
from streameval.scan.parquet.pages import TEXT_BYTES, decodable_rows
from streameval.scan.parquet.row_groups import Int96Error, RowGroups, TableRows
from streameval.scan.pieces import whole_ids
from streameval.scan.widen import conform, is_text, plain
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from streameval.scan.pieces import Piece


def read(
    piece: Piece, schema: pa.Schema, batch_rows: int = 1 << 20, by_code: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Read a piece.

    Parameters
    ----------
    piece : Piece
        A piece of a `Scan`.
    schema : pyarrow.Schema
        The schema of the scan.
    batch_rows : int
        Largest number of rows of a batch.
    by_code : collection of str
        Columns of numbers that may be dictionaries, where the file stores them so.

    Yields
    ------
    pyarrow.RecordBatch
        Exactly the columns, types and order of `schema`, apart from the dictionaries of `by_code`.

    Raises
    ------
    CorruptFileError
        If the file is damaged, or was replaced or changed since it was planned.
    DataError
        If an input in memory cannot be read.

    Examples
    --------
    >>> from streameval.scan import plan
    >>> scan = plan(pa.table({"score": [0.9, 0.2, 0.4]}), ["score"])
    >>> [batch.num_rows for piece in scan.pieces for batch in read(piece, scan.schema, batch_rows=2)]
    [2, 1]
    """
    columns = [name for name in schema.names if name not in dict(piece.constants)]
    rows = 0
    try:
        source = piece.source
        if isinstance(source, RowGroups | TableRows):
            raw = source.batches(columns, batch_rows, by_code)
        else:
            raw, by_code = source.batches(columns, batch_rows), ()  # codes of others may lie beyond their dictionary
        limited = (part for batch in raw for part in _limited(batch, schema))
        unified = _unified_all(limited, schema, piece, by_code)
        for batch in _resized(_with_shared_dictionaries(unified), batch_rows):
            rows += batch.num_rows
            yield batch
    except DataError:
        raise
    except Int96Error as error:
        raise SchemaError(f"{piece.name}: {error}") from None
    except ChangedFileError as error:
        raise CorruptFileError(
            f"{piece.name}: {error}; run again when nothing writes to it (on_error='skip' leaves it out)"
        ) from error
    except READ_ERRORS as error:
        if piece.partition:
            raise unreadable(piece.name, error) from error
        raise DataError(f"{piece.name}: cannot be read: {reason(error)}") from error
    if rows != piece.rows >= 0:
        counts = f"{plural(rows, 'row')} where its footer says {piece.rows:,}"
        raise CorruptFileError(f"{piece.name}: {counts}; it is damaged, or was replaced while it was read")


def _unified_all(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, piece: Piece, by_code: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """The batches in the scan's schema, with the constant columns of the piece."""
    constants, row = dict(piece.constants), piece.row
    for batch in batches:
        arrays = [
            constants[field.name].array(field.type, batch.num_rows)
            if field.name in constants
            else _conformed(column_of(batch, field.name), field, piece.name, row, coded=field.name in by_code)
            for field in schema
        ]
        fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, schema.metadata))
        row += batch.num_rows


def _conformed(array: pa.Array, field: pa.Field, name: str, row: int, *, coded: bool) -> pa.Array:
    """A column in the type of the scan, of which the first value has this number; if `coded`, or a dictionary of it.

    Raises
    ------
    SchemaError
        If the unit of the scan does not hold a time, or a decimal id is no 64-bit integer.
    """
    if types.is_decimal(plain(array.type)) and types.is_integer(field.type):
        return whole_ids(array, field.name, name, row)
    keep = coded and types.is_dictionary(array.type) and not types.is_dictionary(field.type)
    try:
        return conform(array, pa.dictionary(pa.int32(), field.type) if keep else field.type)
    except pa.ArrowInvalid as error:
        if not types.is_temporal(field.type):
            raise
        # a plan knows other columns of nanoseconds from the footer, and reads all files in these
        int96 = types.is_timestamp(array.type) and array.type.unit == "ns"
        remedies = "evaluate the file without the others, or write the column in one type in all files"
        raise SchemaError(
            f"{name}: column {field.name!r} has a time that {field.type}, as which all files are read, does not hold "
            f"({reason(error)}); {'write it as a timestamp in nanoseconds' if int96 else remedies}"
        ) from error


def _limited(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Divide a batch so that texts in dictionaries that the schema decodes take at most `TEXT_BYTES` per part."""
    plain = {field.name for field in schema if not types.is_dictionary(field.type)}
    pairs = zip(batch.schema.names, batch.columns, strict=True)
    rows = decodable_rows(array for name, array in pairs if name in plain)
    yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _with_shared_dictionaries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; consecutive equal dictionaries are held once, since Arrow's readers copy them for every batch."""
    last: dict[int, pa.Array] = {}
    for batch in batches:
        arrays = list(batch.columns)
        for i, array in enumerate(arrays):
            if isinstance(array, pa.DictionaryArray):
                if i in last and last[i].equals(array.dictionary):
                    arrays[i] = pa.DictionaryArray.from_arrays(array.indices, last[i])
                else:
                    last[i] = array.dictionary
        yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _resized(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most `batch_rows`; small neighbours are combined unless their texts are long."""
    small: list[pa.RecordBatch] = []
    held = texts = 0
    for whole in batches:
        for start in range(0, whole.num_rows, batch_rows):
            batch = whole.slice(start, batch_rows)
            text_columns = (a for a in batch.columns if types.is_dictionary(a.type) or is_text(a.type))
            rows, nbytes = batch.num_rows, sum(array.nbytes for array in text_columns)
            if held + rows > batch_rows or (small and nbytes and texts + nbytes > TEXT_BYTES):
                yield from _together(small)
                small, held, texts = [], 0, 0
            small.append(batch)
            held, texts = held + rows, texts + nbytes
            if 2 * held >= batch_rows:
                yield from _together(small)
                small, held, texts = [], 0, 0
    yield from _together(small)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches of equal types into one, or into as few as the size limit of Arrow's buffers allows."""
    if len(batches) < 2 or any(batch.schema != batches[0].schema for batch in batches):
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined
