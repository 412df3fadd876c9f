"""Pieces: units of work, and how each kind is opened.

A `Piece` describes some rows (partition, file, offset, rows, bytes) and has a *source* that yields them as raw record
batches: row groups of a Parquet file (`streameval.scan.parquet.row_groups`), a slice of a table, a fragment of a
dataset, or a stream. Sources do not know the unified schema; `streameval.scan.reading` casts their batches to it.

*Numbering.* Rows are sampled and dealt to blocks by their identity. The rows of a directory of a Hive tree are one
*sequence*, named by the directory's path relative to the root; all other rows of the input are another, with an empty
name. Rows are numbered in the natural order of paths, those in memory last. So their numbers do not depend on names
that keep this order, on sizes of files and row groups, or on the order in which the files are listed. A filter or an
unreadable data page changes no number.

Where the number of rows is unknown before reading (a stream, a partition of a Dask frame), what follows is a sequence
of its own, numbered by how many such inputs precede it.

A hash of the row's values would depend on the values alone, but equal rows would share a block. Standard errors of
ROC AUC on 20,000 rows would be 2 times too large for scores of two digits and 109 times if half of the scores are 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from pyarrow import types

from streameval.errors import MissingInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.dataset as pads


class Source(Protocol):
    """Yields raw record batches on every call; a stream does so only once."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches with at least `columns`, of at most `batch_rows` rows if the source can limit them."""
        ...


def nested_path(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """The path from a top-level column down to a field, as a tuple of names; empty if there is no such field.

    >>> import pyarrow as pa
    >>> nested_path(pa.schema({"meta": pa.struct({"cluster": pa.int64()})}), "meta.cluster")
    ('meta', 'cluster')
    """
    if column in schema.names:
        return (column,)
    top, *below = column.split(".")
    fields = schema.get_all_field_indices(top)
    kind = schema.field(fields[0]).type if len(fields) == 1 and below else None
    for name in below:
        if kind is None or not types.is_struct(kind) or len(kind.get_all_field_indices(name)) != 1:
            return ()
        kind = kind.field(name).type
    return (top, *below) if below else ()


def column_of(data: Any, column: str) -> Any:
    """A column of a table or record batch, or a field of a struct that is named with dots."""
    top, *below = nested_path(data.schema, column) or (column,)
    return pc.struct_field(data.column(top), below) if below else data.column(top)


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

    def scalar(self, kind: pa.DataType) -> pa.Scalar:
        """The value, cast to `kind`; raises `UnicodeEncodeError` for a key that is not UTF-8."""
        return pa.scalar(self.value, self.kind).cast(kind)

    def array(self, kind: pa.DataType, rows: int) -> pa.Array:
        """The column of `rows` rows, cast to `kind`."""
        return pa.repeat(self.scalar(kind), rows)


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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the slice only; Arrow would pickle the entire buffers behind it."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return _received, (sink.getvalue(),)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the table's chunks, divided into batches of at most `batch_rows`."""
        table = pa.table({name: column_of(self.table, name) for name in columns})
        yield from table.to_batches(max_chunksize=batch_rows)


def _received(stream: pa.Buffer) -> TableSource:
    """The source from a pickled slice."""
    return TableSource(pa.ipc.open_stream(stream).read_all())


@dataclass(frozen=True, slots=True)
class FragmentSource:
    """A fragment of a dataset that is not Parquet."""

    fragment: pads.Fragment

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of Arrow's own scanner."""
        schema = getattr(self.fragment, "physical_schema", None) or self.fragment.schema
        fields = {name: pc.field(*(nested_path(schema, name) or (name,))) for name in columns}
        yield from self.fragment.to_batches(columns=fields, batch_size=batch_rows, use_threads=False)


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


def natural(name: str) -> list[Any]:
    """The sort key of a name: digits compare as numbers, the text between them as text.

    Examples
    --------
    >>> sorted(["night=10", "night=9", "night=9/hour=11"], key=natural)
    ['night=9', 'night=9/hour=11', 'night=10']
    """
    parts: list[Any] = _NUMBER.split(name)
    parts[1::2] = map(Decimal, parts[1::2])  # of any length, which `int` refuses
    return parts


def numbered(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
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
