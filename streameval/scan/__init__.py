"""Scan: inputs → partitions → record batches. Nothing else in the library opens data.

A scan has two halves. `plan` inspects the inputs (paths, globs, directories, URIs, datasets, tables, readers), reads
Parquet footers once and returns a `Scan`: the schema that all inputs share, and the pieces to read. `read` opens one
piece and yields its record batches in that schema. Planning reads no data pages; reading touches only the requested
columns. A piece holds no open file, so it can be sent to another process.

No row is counted twice, and no deleted row is counted: every file is read once, Delta tables are read by their log, and
a file that changes between planning and its last read is an error.

::

    paths  ─► files ─► footers ─┐
    datasets ─► fragments ──────┼─► holdings ─► one schema, many pieces ─► read ─► record batches
    tables, readers ────────────┘

The modules, in the order in which data pass through them:

- ``files.paths`` resolves names and patterns on any file system to files, each with its identity; ``files.walk`` lists
  directories, follows links and tells Parquet from other files; ``files.tables`` reads the logs of Delta tables and
  refuses other table formats; ``files.uris`` parses URIs with credentials;
- ``parquet.footers`` locates the requested columns in a file, and reads row groups, types and sizes;
- ``in_memory`` takes tables, frames, readers, datasets, fragments that are not Parquet, and partitions that Dask has
  yet to compute;
- ``widen`` finds the smallest type that holds every file's values, and casts to it;
- ``pieces`` finds the requested columns of an input, defines the units of work, and numbers their rows for sampling and
  blocks; ``parquet.row_groups`` reads those of Parquet files, ``parquet.columns`` decodes their columns of few
  distinct numbers, ``parquet.pages`` finds how long their texts are and detects truncated answers of object stores;
  ``faults`` detects files that change;
- ``where`` filters rows, by conditions that ``sql`` parses; ``pruning`` leaves out pieces without such rows;
  ``derived`` computes columns from those that are read;
- ``planning`` is the first half, `read` the second.

Memory: a plan takes about a kilobyte per piece. A read holds the compressed column chunks of one row group, and one
batch.

Large batches are divided into batches of `batch_rows`, and small neighbours combined, so that the overhead of batches
does not depend on how the data were written. Casts are lossless by the plan's choice of types; a column that already
has the right type is not cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from streameval._submodules import import_when_named
from streameval.errors import CorruptFileError, DataError, SchemaError
from streameval.scan.derived import Derived as Derived
from streameval.scan.faults import READ_ERRORS as READ_ERRORS
from streameval.scan.faults import ChangedFileError, unreadable
from streameval.scan.faults import add_remedy as add_remedy
from streameval.scan.faults import of_labels as of_labels
from streameval.scan.faults import reason as reason
from streameval.scan.files.paths import File as File
from streameval.scan.files.paths import details as details
from streameval.scan.files.paths import locate as locate
from streameval.scan.files.paths import locate_all as locate_all
from streameval.scan.files.paths import table_of as table_of
from streameval.scan.files.paths import tell as tell
from streameval.scan.files.uris import mask_uri as mask_uri
from streameval.scan.in_memory import LazySource as LazySource
from streameval.scan.in_memory import from_mapping as from_mapping
from streameval.scan.in_memory import holds_rows as holds_rows
from streameval.scan.in_memory import uncomputable as uncomputable
from streameval.scan.nested import column_of
from streameval.scan.parquet.pages import TEXT_BYTES, decodable_rows
from streameval.scan.parquet.row_groups import Int96Error, TableRows
from streameval.scan.parquet.row_groups import RowGroups as RowGroups
from streameval.scan.parquet.row_groups import join as join
from streameval.scan.parquet.row_groups import row_groups as row_groups
from streameval.scan.pieces import Piece as Piece
from streameval.scan.pieces import Scan as Scan
from streameval.scan.pieces import TableSource as TableSource
from streameval.scan.pieces import natural as natural
from streameval.scan.pieces import whole_ids
from streameval.scan.planning import place_inputs as place_inputs
from streameval.scan.planning import plan as plan
from streameval.scan.pruning import Pruned as Pruned
from streameval.scan.pruning import prune as prune
from streameval.scan.where import Test as Test
from streameval.scan.where import Where as Where
from streameval.scan.widen import conform, is_text, plain
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


import_when_named(__name__)


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
        limited = (part for batch in raw for part in _limit_texts(batch, schema))
        unified = _unify_batches(limited, schema, piece, by_code)
        for batch in _resize(unified, batch_rows):
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


def _unify_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, piece: Piece, by_code: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """The batches in the scan's schema, with the constant columns of the piece.

    Consecutive equal dictionaries are held once, since Arrow's readers copy them for every batch.
    """
    constants, row, last = dict(piece.constants), piece.row, dict[str, pa.Array]()
    for batch in batches:
        arrays = [
            constants[field.name].array(field.type, batch.num_rows)
            if field.name in constants
            else _conform(column_of(batch, field.name), field, piece.name, row, coded=field.name in by_code)
            for field in schema
        ]
        for i, (name, array) in enumerate(zip(schema.names, arrays, strict=True)):
            if isinstance(array, pa.DictionaryArray):
                if name in last and last[name].equals(array.dictionary):
                    arrays[i] = pa.DictionaryArray.from_arrays(array.indices, last[name])
                else:
                    last[name] = array.dictionary
        fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, schema.metadata))
        row += batch.num_rows


def _conform(array: pa.Array, field: pa.Field, name: str, row: int, *, coded: bool) -> pa.Array:
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


def _limit_texts(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Divide a batch so that texts in dictionaries that the schema decodes take at most `TEXT_BYTES` per part."""
    plain = {field.name for field in schema if not types.is_dictionary(field.type)}
    pairs = zip(batch.schema.names, batch.columns, strict=True)
    rows = decodable_rows(array for name, array in pairs if name in plain)
    yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _resize(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
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
