"""Pieces: units of work, and how each kind is opened.

A `Piece` describes some rows (partition, file, offset, rows, bytes) and has a *source* that yields them as raw record
batches: row groups of a Parquet file (`streameval.scan.parquet.row_groups`), a slice of a table, a fragment of a
dataset, or a stream. Sources do not know the unified schema; `streameval.scan` casts their batches to it.

*Numbering.* Rows are sampled and dealt to blocks by their identity. The rows of a directory of a Hive tree are one
*sequence*, named by the directory's path relative to the root; all other rows of the input are another, with an empty
name. Rows are numbered in the natural order of paths, those in memory last. So their numbers do not depend on names
that keep this order, on sizes of files and row groups, or on the order in which the files are listed. A filter or an
unreadable data page changes no number.

Where the number of rows is unknown before reading (a stream, a partition of a Dask frame), what follows is a sequence
of its own, numbered by how many such inputs precede it.

A hash of the row's values would depend on the values alone, but equal rows would share a block. Standard errors of
ROC AUC on 20,000 rows would be 2 times too large for scores of two digits and 109 times if half of the scores are 0.

*Columns.* A name may be a path to a nested value (`streameval.scan.nested`). A column that is not in the file may be a
Hive key of its path. The partition values of a dataset or Delta table count even if a file has a column of the same
name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol
from unicodedata import normalize

import pyarrow as pa
import pyarrow.ipc
from pyarrow import types

from streameval.errors import MissingColumnError, MissingInputError, SchemaError
from streameval.scan.derived import SlicingColumn, SourceColumn
from streameval.scan.nested import column_of, flat_remedy, nested_path, type_at
from streameval.scan.widen import occurring, plain
from streameval.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow.dataset as pads


class Source(Protocol):
    """Yields raw record batches on every call; a stream does so only once."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches with at least `columns`, of at most `batch_rows` rows if the source can limit them."""
        ...


_NO_ID = "a decimal id is the integer of its value, from -2^63 to 2^63 - 1, not {}: write others as texts"


def whole_ids(array: pa.Array, column: str, name: str, row: int) -> pa.Array:
    """Decimal ids as int64; `row` is the number of the first one, and `name` the file in the message.

    Raises
    ------
    SchemaError
        If a value has a fraction, or is no 64-bit integer.
    """
    if types.is_dictionary(array.type):
        array = occurring(array)
        try:
            return whole_ids(array.dictionary, column, name, row).take(array.indices)
        except SchemaError:  # which has the place in the dictionary
            array = array.dictionary_decode()
    if array.type.bit_width < 128:  # Arrow casts shorter ones wrongly
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        values = ((i, value) for i, value in enumerate(array.to_pylist()) if value is not None)
        i, value = next((i, v) for i, v in values if v != int(v) or not -(1 << 63) <= v < 1 << 63)
        raise SchemaError(f"{name}: column {column!r}, row {row + i:,}: {_NO_ID.format(value)}") from None


@dataclass(frozen=True, slots=True)
class Constant:
    """A column with the same value in all rows of a file: a Hive key, or a partition key of a dataset or Delta table.

    The value is a Python object until it is read, because creating an Arrow scalar imports pandas. A path gives no
    type, so a Hive key is a text whose `typed` is false. With `fallback`, the value counts only if the file lacks the
    column; else it hides such a column. With `refused`, the column cannot be read, for this reason.
    """

    value: Any
    kind: pa.DataType
    typed: bool = True
    fallback: bool = False
    refused: str = ""

    def array(self, kind: pa.DataType, rows: int) -> pa.Array:
        """The column of `rows` rows, cast to `kind`.

        It raises `SchemaError` for an id that is no 64-bit integer, `UnicodeEncodeError` for a key that is not UTF-8.
        """
        try:
            return pa.repeat(pa.scalar(self.value, self.kind).cast(kind), rows)
        except pa.ArrowInvalid:
            if not types.is_decimal(self.kind):
                raise
            raise SchemaError(f"{_NO_ID.format(self.value)}, which a key of the partitions has") from None


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest unit of work: some row groups of one file, a slice of a table, a fragment, or a stream.

    Parameters
    ----------
    partition : str
        Path relative to the input's root: the leaf directory of a Hive tree (``night=2026-01-01``), otherwise the
        file; ``""`` for data in memory. Two inputs share a partition only if it is the same directory or file.
    name : str
        Name of the file in messages.
    row : int
        Number of the first row in its sequence; before `plan` numbers the rows, its offset in its file, or in all
        tables of the scan.
    rows : int
        Number of rows, −1 if unknown before reading.
    nbytes : int
        Bytes to read for the requested columns: compressed sizes from the footer, or the size in memory.
    origin : str
        The sequence that numbers the row; before that, the file's path relative to
        the input's root. With `row`, it identifies a row however the rows are divided into files.
    source : Source
        Yields the rows.
    constants : tuple of (str, Constant)
        Columns whose values come from the path or the dataset, not from the file.
    """

    partition: str
    name: str
    row: int
    rows: int
    nbytes: int
    origin: str = ""
    source: Source = field(kw_only=True, repr=False, compare=False)
    constants: tuple[tuple[str, Constant], ...] = ()


@dataclass(frozen=True)
class Scan:
    """The result of `plan`: one schema, the pieces in order, and their totals.

    Parameters
    ----------
    schema : pyarrow.Schema
        The requested columns in the requested order, widened without loss over all inputs.
    pieces : tuple of Piece
        Pieces in the order of the inputs and, within an input, of the sorted paths.
    rows, nbytes : int
        Totals; −1 rows if those of a piece are unknown.
    skipped : tuple of (str, str)
        Name of each file left out under ``on_error="skip"``, or because it is not Parquet, and the reason.
    splittable : bool
        False if a piece is a stream, which one thread must read, once.
    """

    schema: pa.Schema
    pieces: tuple[Piece, ...]
    rows: int
    nbytes: int
    skipped: tuple[tuple[str, str], ...] = ()
    splittable: bool = True


@dataclass(frozen=True, slots=True)
class TableSource:
    """A slice of a table in memory, without a copy."""

    table: pa.Table

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the slice only; Arrow would pickle the entire buffers behind it."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return _receive, (sink.getvalue(),)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the table's chunks, divided into batches of at most `batch_rows`."""
        table = pa.table({name: column_of(self.table, name) for name in columns})
        yield from table.to_batches(max_chunksize=batch_rows)


def _receive(stream: pa.Buffer) -> TableSource:
    """The source from a pickled slice."""
    return TableSource(pa.ipc.open_stream(stream).read_all())


@dataclass(frozen=True, slots=True)
class ExcludedSource:
    """The rows of a file that the metadata of its table rule out for a filter; `streameval.scan.prune` removes them."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Raise an error: such rows are not read."""
        raise OSError("was excluded by the filter of its plan, and is read without it")


@dataclass(frozen=True, slots=True)
class FragmentSource:
    """A fragment of a dataset that is not Parquet."""

    fragment: pads.Fragment

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of Arrow's own scanner."""
        schema = getattr(self.fragment, "physical_schema", None) or self.fragment.schema
        tops = list(dict.fromkeys((nested_path(schema, name) or (name,))[0] for name in columns))
        yield from self.fragment.to_batches(columns=tops, batch_size=batch_rows, use_threads=False)


@dataclass(slots=True)
class StreamSource:
    """One pass over an Arrow stream. It exhausts a reader; other objects may return a new stream each time."""

    data: Any
    name: str
    spent: bool = False

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the stream's batches unchanged; raises `MissingInputError` if a reader has been read before."""
        if isinstance(self.data, pa.RecordBatchReader):
            if self.spent:
                raise MissingInputError(
                    f"{self.name} can be read only once, and has been; pass a table or a path to read it again"
                )
            self.spent = True
            yield from self.data
        else:
            yield from pa.RecordBatchReader.from_stream(self.data)


_NUMBER = re.compile(r"(\d+)")


def natural(name: str) -> list[str | Decimal]:
    """The sort key of a name: digits compare as numbers, the text between them as text.

    Examples
    --------
    >>> sorted(["night=10", "night=9", "night=9/hour=11"], key=natural)
    ['night=9', 'night=9/hour=11', 'night=10']
    """
    parts: list[str | Decimal] = [*_NUMBER.split(name)]
    parts[1::2] = map(Decimal, parts[1::2])  # of any length, which `int` refuses
    return parts


def number_rows(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces, in the given order, with the sequence and the number of their first row."""
    places = {origin: (not origin, natural(origin), origin) for origin in {piece.origin for piece in pieces}}
    order = sorted(range(len(pieces)), key=lambda i: (places[pieces[i].origin], pieces[i].row))
    made, rows, streams = list(pieces), dict[str, int](), 0
    for i in order:
        piece = pieces[i]
        directory = piece.partition if piece.partition != piece.origin else ""
        sequence = f"{directory}\0{streams}" if streams else directory
        made[i] = replace(piece, origin=sequence, row=rows.get(sequence, 0))
        rows[sequence] = made[i].row + max(piece.rows, 0)
        streams += piece.rows < 0
    return tuple(made)


_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with large strings and binaries in place of views, which Arrow cannot filter, also in dictionaries.

    Examples
    --------
    >>> print(without_views(pa.schema({"c": pa.dictionary(pa.int8(), pa.string_view())})).field("c").type.value_type)
    large_string
    """
    return pa.schema([field.with_type(_without_view(field.type)) for field in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_view(kind.value_type), kind.ordered)
    return _VIEWS.get(kind, kind)


LISTED = 40  # largest number of column names in a message


@dataclass(frozen=True, slots=True)
class Holding:
    """The requested columns of one file, table or stream.

    Parameters
    ----------
    name : str
        Name of the input in messages.
    kinds : tuple of pyarrow.DataType
        The type of each requested column, in order.
    pieces : tuple of Piece
        The pieces to read.
    """

    name: str
    kinds: tuple[pa.DataType, ...]
    pieces: tuple[Piece, ...]


def find(
    schema: pa.Schema,
    columns: Sequence[str],
    name: str,
    keys: Mapping[str, Constant] | None = None,
    also: Iterable[str] | None = None,
) -> tuple[pa.DataType, ...]:
    """Types of the requested columns.

    Parameters
    ----------
    schema : pyarrow.Schema
        Schema of the file or table.
    columns : sequence of str
        The requested columns.
    name : str
        Name of the file or table in messages.
    keys : mapping of str to Constant, optional
        Columns whose values come from the path.
    also : iterable of str, optional
        All existing columns, for messages, if `schema` has only the requested ones.

    Returns
    -------
    tuple of pyarrow.DataType

    Raises
    ------
    MissingColumnError
        If a column does not exist.
    SchemaError
        If two columns have the requested name, a column is nested, or one exists that is computed for other inputs.

    Examples
    --------
    >>> find(pa.schema({"label": pa.int8(), "score": pa.float32()}), ["scroe"], "night.parquet")
    Traceback (most recent call last):
    ...
    streameval.errors.MissingColumnError: night.parquet: no column 'scroe'; did you mean 'score'? It has: label, score
    """
    keys = keys or {}
    computed = (each for column in columns if isinstance(column, SourceColumn) for each in column.computes)
    taken = next((column for column in computed if column in schema.names or column in keys), None)
    if taken is not None:
        raise SchemaError(_mixed(name, taken))
    absent = [column for column in columns if not (nested_path(schema, column) or column in keys)]
    if absent and isinstance(absent[0], SlicingColumn) and absent[0].looks_computed:  # not if the first input lacks it
        raise MissingColumnError(_mixed(name, absent[0]), absent[0])
    if absent:
        raise _missing(
            schema, absent[0], name, list(dict.fromkeys([*map(str, schema.names if also is None else also), *keys]))
        )
    return tuple(_kind(schema, column, name, keys) for column in columns)


def _mixed(name: str, column: str) -> str:
    """The message for the first input that has a column that is computed for others, or lacks one that they have."""
    return f"{name}: column {str(column)!r} is in some files only, and would be computed for the others; rename it"


def is_constant(schema: pa.Schema, column: str, keys: Mapping[str, Constant]) -> bool:
    """Whether the values of a column are those of `keys`, not of the file.

    Examples
    --------
    >>> from streameval.scan.pieces import Constant
    >>> day = Constant(7, pa.int32())
    >>> is_constant(pa.schema({"day": pa.int64()}), "day", {"day": day}), is_constant(pa.schema({}), "day", {})
    (True, False)
    """
    return column in keys and (not keys[column].fallback or not nested_path(schema, column))


def _kind(schema: pa.Schema, column: str, name: str, keys: Mapping[str, Constant]) -> pa.DataType:
    """The type of one column; raises `SchemaError` if it cannot be used."""
    if column in keys and keys[column].refused:
        raise SchemaError(keys[column].refused)
    if is_constant(schema, column, keys):
        return keys[column].kind
    if len(schema.get_all_field_indices(column)) > 1:
        raise SchemaError(
            f"{name}: {len(schema.get_all_field_indices(column))} columns are named {column!r}; rename them"
        )
    kind = type_at(schema, nested_path(schema, column))
    if types.is_nested(plain(kind)):
        raise SchemaError(f"{name}: column {column!r} is nested ({_short(kind)}); {flat_remedy(column, kind)}")
    return kind


def _missing(schema: pa.Schema, column: str, name: str, names: Sequence[str]) -> MissingColumnError:
    """The error for a column that does not exist, with the most similar name and a list of names."""
    parent = re.split(r"[.\[]", column, maxsplit=1)[0]
    if parent != column and parent in schema.names and types.is_nested(plain(schema.field(parent).type)):
        kind = schema.field(parent).type
        what = "element" if column.endswith("]") else "field"
        msg = f"{name}: no {what} {column!r}; {parent!r} is {_short(kind)}; {flat_remedy(parent, kind)}"
        return MissingColumnError(msg, column, parent)
    near = nearest(column, names, 0.5) or ""
    alike = normalize("NFKC", near) == normalize("NFKC", column)  # and look alike
    hint = f"did you mean {ascii(near) if alike else repr(near)}? It" if near else "it"
    more = f", … ({len(names)} in all)" if len(names) > LISTED else ""
    msg = f"{name}: no column {column!r}; {hint} has: {', '.join(names[:LISTED])}{more}"
    return MissingColumnError(msg, column, near)


def _short(kind: pa.DataType) -> str:
    """The name of a type, truncated to 60 characters."""
    text = str(kind)
    return text if len(text) <= 60 else f"{text[:57]}..."
