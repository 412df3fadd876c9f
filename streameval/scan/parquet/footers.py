"""Footers: the row groups, types and sizes of files.

Footers are read once, here. From a local disk, they are read one by one in 0.1 ms each. If a block of footers turns out
to be slow (a network mount), or the file system is remote, the next blocks are read in threads. Files of one writer
share a layout, which is computed once.

A piece is a row group, or neighbouring row groups of up to about a million rows together, because the overhead of a
task exceeds the work on a few thousand rows.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import DataError, SchemaError
from streameval.scan.faults import READ_ERRORS, unreadable, why_unreadable
from streameval.scan.files.paths import File, labels
from streameval.scan.nested import TableNames, column_of, stored_names
from streameval.scan.parquet.pages import TEXT_BYTES, Dictionary, footer_at, typed
from streameval.scan.parquet.row_groups import Group, Int96Error, RowGroups, TableRows, encoded_in, int96_columns
from streameval.scan.pieces import Constant, ExcludedSource, Holding, Piece, Source, find, is_constant
from streameval.scan.widen import is_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow.dataset as pads
    import pyarrow.parquet as pq


_PLAIN_BYTES = 4  # a text that is not dictionary-encoded takes at least the 4 bytes of its length
_LONG = 64  # mean text length of a dictionary from which its column is read as codes, however few rows share a text


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions and types of the requested columns in a file; the same for all files of one writer.

    Attributes
    ----------
    writer : schema, Arrow schema and path keys, by which files of one writer are recognised
    kinds : type of each requested column, by name and in order
    leaves : positions of the requested columns among the leaf columns of the file
    texts : names of the leaves with strings or binaries of variable length, also in Arrow dictionaries, by position
    absent : requested columns whose values come from the path, dataset or Delta table
    times : requested columns of INT96 timestamps, which are in microseconds unless values need nanoseconds
    stored : path in the file of each requested column that has another one in its table
    """

    writer: tuple[Any, ...]
    kinds: Mapping[str, pa.DataType]
    leaves: tuple[int, ...]
    texts: Mapping[int, str]
    absent: tuple[str, ...]
    times: tuple[str, ...] = ()
    stored: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        footer: pq.FileMetaData,
        columns: Sequence[str],
        name: str,
        keys: Mapping[str, Constant],
        known: Layout | None = None,
        names: TableNames | None = None,
    ) -> Layout:
        """The layout of a file; `known` itself if the same writer wrote the file. `names` are those of its table.

        Raises
        ------
        MissingColumnError, SchemaError
            If a column does not exist, or cannot be used; the message names the file.
        """
        given = {key: (constant.kind, constant.fallback, constant.refused) for key, constant in keys.items()}
        writer = (footer.schema, (footer.metadata or {}).get(b"ARROW:schema"), given, names)
        if known is not None and known.writer[1:] == writer[1:] and known.writer[0].equals(writer[0]):
            return known
        schema = footer.schema.to_arrow_schema()
        places = {column: names.path_in(schema, column) for column in columns} if names else {}
        stored = {column: place for column, place in places.items() if column != place}
        schema = names.of(schema) if names else schema
        kinds = dict(zip(columns, find(schema, columns, name, keys), strict=True))
        zoned = next((column for column, kind in kinds.items() if pa.types.is_timestamp(kind) and kind.tz), None)
        if zoned is not None and not typed(footer):
            why = "since Arrow does not know the type of another column; write the file without that column"
            raise SchemaError(f"{name}: the time zone of column {zoned!r} cannot be read, {why}")
        absent = tuple(column for column in columns if is_constant(schema, column, keys))
        read = {stored.get(column, column): column for column in columns if column not in absent}
        times = tuple(read[path] for path in int96_columns(footer, read))
        kinds |= {column: pa.timestamp("us", kinds[column].tz) for column in times}
        paths = {i: footer.schema.column(i).path for i in range(footer.num_columns)}
        lists = tuple(f"{path}." for path in stored_names(read) if path not in read)
        leaves = {i: path for i, path in paths.items() if path.startswith(lists) or path in read}
        listed = next((path for path in int96_columns(footer, leaves.values()) if path not in read), None)
        if listed is not None:
            raise SchemaError(f"{name}: {listed!r} has INT96 timestamps in a list; write it as timestamps")
        top = {i: path for i, path in leaves.items() if path in read and path in schema.names and not stored}
        texts = {i: path for i, path in top.items() if is_text(plain(kinds[path]))}
        return cls(writer, kinds, tuple(leaves), texts, absent, times, stored)

    def groups(
        self,
        footer: pq.FileMetaData,
        wanted: set[int] | None = None,
        dictionary: Callable[[pq.ColumnChunkMetaData], Dictionary] = lambda _: Dictionary(),
    ) -> Iterator[Group]:
        """The row groups that have rows.

        A text column is *encoded* if it was written as a dictionary and codes. A writer that abandons a dictionary
        continues with plain texts. The footer does not always record this, but the size of the column chunk shows it.

        Parameters
        ----------
        footer : pyarrow.parquet.FileMetaData
        wanted : numbers of the row groups to include; all if None
        dictionary : returns the size of a chunk's dictionary, which it may read from the file
        """
        row = 0
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if group.num_rows and (wanted is None or number in wanted):
                chunks = {leaf: group.column(leaf) for leaf in self.leaves}
                coded = {leaf for leaf in self.texts if _is_encoded(chunks[leaf], dictionary)}
                plain_texts = {leaf for leaf, chunk in chunks.items() if chunk.physical_type == "BYTE_ARRAY"} - coded
                long = {leaf for leaf in coded if not _is_short(chunks[leaf])}
                text_bytes, long_bytes = (
                    sum(chunks[leaf].total_uncompressed_size for leaf in leaves) for leaves in (plain_texts, long)
                )
                yield Group(
                    number,
                    row,
                    group.num_rows,
                    sum(chunk.total_compressed_size for chunk in chunks.values()),
                    frozenset(self.texts[leaf] for leaf in coded),
                    -(-text_bytes // group.num_rows),
                    long_bytes,
                    frozenset(plain_texts),
                )
            row += group.num_rows


def _is_encoded(chunk: pq.ColumnChunkMetaData, dictionary: Callable[[pq.ColumnChunkMetaData], Dictionary]) -> bool:
    """Whether the texts of a column chunk are read as codes."""
    if not chunk.has_dictionary_page:
        return False
    if _is_short(chunk):
        return True
    if chunk.num_values * chunk.total_uncompressed_size <= TEXT_BYTES:  # decoding is cheap in any case
        return False
    found = dictionary(chunk)
    codes = chunk.total_uncompressed_size - found.nbytes
    return found.nbytes >= _LONG * max(found.texts, 1) and codes < _PLAIN_BYTES * chunk.num_values


def _is_short(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a chunk has fewer bytes than plain texts would take, so it must be dictionary-encoded."""
    return bool(chunk.total_uncompressed_size < _PLAIN_BYTES * chunk.num_values)


GATHER_ROWS = 1 << 20  # largest number of rows to which small row groups are combined
ROWS_A_BYTE = 1 << 9  # rows per byte of a footer from which it is kept; in memory, it takes ten times its bytes
BLOCK_FILES = 256  # number of footers read together
SPARK = b"org.apache.spark."  # begins keys of the metadata that Spark writes
THREADS = 32  # a footer of an object takes a request, for which its thread only waits
SLOW_FOOTER = 2e-3  # seconds per footer above which the next blocks are read in parallel


def holdings(
    files: Sequence[File], columns: Sequence[str], *, skip: bool, parallel: bool = True
) -> Iterator[Holding | tuple[str, str]]:
    """The holding of every file (without pieces if it has no rows), or its name and the reason why it is left out.

    Parameters
    ----------
    files : sequence of File
        Files in the order of the scan.
    columns : sequence of str
        The requested columns.
    skip : bool
        Whether a file whose footer cannot be read is left out instead of raising an error.
    parallel : bool
        Whether slow footers may be read in threads.

    Raises
    ------
    MissingColumnError, SchemaError
        If a column does not exist, or cannot be used.
    DataError
        If a footer cannot be read and `skip` is false; the message names the file.
    """
    layout: Layout | None = None
    for (file, footer), label in zip(_footers(files, parallel=parallel), labels(files), strict=True):
        try:
            if isinstance(footer, Exception):
                raise footer
            if footer is None:
                yield Holding(file.name, (), (_unread(file, *label),))
                continue
            # a damaged footer may give 0 rows although its row groups have some
            if not footer.num_rows and not any(footer.row_group(i).num_rows for i in range(footer.num_row_groups)):
                yield Holding(file.name, (), ())
                continue
            layout = Layout.of(footer, columns, file.name, file.keys, layout, file.names)
            groups = _groups(file, footer, layout)
            kinds = {**layout.kinds, **_times(file, footer, layout, groups)}
            for column in encoded_in(groups) if groups else ():
                kinds[column] = pa.dictionary(pa.int32(), plain(kinds[column]))
            yield Holding(file.name, tuple(kinds.values()), tuple(_pieces(file, footer, layout, groups, *label)))
        except DataError:
            raise
        except Int96Error as error:
            raise SchemaError(f"{file.name}: {error}") from None
        except READ_ERRORS as error:
            if not skip:
                raise unreadable(file.name, error) from error
            yield file.name, why_unreadable(file.name, error)


def _footers(files: Sequence[File], *, parallel: bool) -> Iterator[tuple[File, pq.FileMetaData | Exception | None]]:
    """Every file with its footer, or with the exception that reading it raised."""
    slow = not all(isinstance(file.filesystem, fs.LocalFileSystem) for file in files)
    for start in range(0, len(files), BLOCK_FILES):
        block = files[start : start + BLOCK_FILES]
        began = time.perf_counter()
        if slow and parallel:
            with ThreadPoolExecutor(min(len(block), THREADS)) as pool:
                footers = list(pool.map(partial(_footer, remote=True), block))
        else:
            footers = list(map(_footer, block))
        slow = slow or time.perf_counter() - began > SLOW_FOOTER * len(block)
        yield from zip(block, footers, strict=True)


def _footer(file: File, *, remote: bool = False) -> pq.FileMetaData | Exception | None:
    """A file's footer, or the exception to raise for it; an object's is one request if its size is listed.

    None if the file is excluded.
    """
    if file.excluded:
        return None
    try:
        if remote:
            with suppress(*READ_ERRORS):
                return _format().make_fragment(file.path, file.filesystem, file_size=file.size).metadata
        return footer_at(file.filesystem, file.path)
    except READ_ERRORS as error:
        return error


@cache
def _format() -> pads.ParquetFileFormat:
    """The format of objects. With a key, Arrow refuses encrypted columns; without, they would abort the process."""
    import pyarrow.dataset as pads  # here, because it is slow to import
    from pyarrow.parquet import encryption

    def refuse(_: object) -> encryption.KmsClient:
        raise OSError("no key")

    parts = encryption.CryptoFactory(refuse), encryption.KmsConnectionConfig(), encryption.DecryptionConfiguration()
    options = pads.ParquetFragmentScanOptions(decryption_config=pads.ParquetDecryptionConfig(*parts))
    return pads.ParquetFileFormat(default_fragment_scan_options=options)


def _groups(file: File, footer: pq.FileMetaData, layout: Layout) -> list[Group]:
    """The row groups of the file that are in its fragment; raises `OSError` if rows do not add up."""
    wanted = None if file.fragment is None else {group.id for group in file.fragment.row_groups}
    groups = list(layout.groups(footer, wanted, partial(_dictionary, file)))
    held = sum(group.rows for group in groups)
    if wanted is None and held != footer.num_rows:
        raise OSError(f"its footer says {footer.num_rows:,} rows, but its row groups have {held:,}")
    return groups


def _dictionary(file: File, chunk: pq.ColumnChunkMetaData) -> Dictionary:
    """The dictionary of a column chunk of a local file; empty for an object, since reading it takes a request."""
    if not isinstance(file.filesystem, fs.LocalFileSystem):
        return Dictionary()
    with pa.OSFile(file.path) as handle:
        return Dictionary.of(handle, chunk)


def _times(file: File, footer: pq.FileMetaData, layout: Layout, groups: Sequence[Group]) -> dict[str, pa.DataType]:
    """The types of INT96 timestamps that need nanoseconds in the first piece; Spark writes microseconds.

    The reader checks every value, so a file whose first rows mislead is refused, not read wrongly.
    """
    if not (layout.times and groups) or any(key.startswith(SPARK) for key in footer.metadata or ()):
        return {}
    groups = tuple(next(_combine_groups(groups)))
    source = TableRows(RowGroups(file.filesystem, file.path, groups, footer=footer), stored=layout.stored)
    kinds: dict[str, pa.DataType] = {}
    for batch in source.batches(layout.times, 1 << 16):
        types = {name: column_of(batch, name).type for name in layout.times}
        kinds |= {name: kind for name, kind in types.items() if kind.unit == "ns"}
    return kinds


def _pieces(
    file: File, footer: pq.FileMetaData, layout: Layout, groups: Sequence[Group], partition: str, origin: str
) -> Iterator[Piece]:
    """The file's pieces: neighbouring row groups of up to `GATHER_ROWS` rows together."""
    constants = tuple((column, file.keys[column]) for column in layout.absent)
    runs = list(_combine_groups(groups))
    worth = len(runs) > 1 or footer.serialized_size * ROWS_A_BYTE <= footer.num_rows
    # Arrow does not notice a short answer from an object store, so the footer of an object is read again with its data
    kept = footer if worth and isinstance(file.filesystem, fs.LocalFileSystem) else None
    for run in runs:
        rows, nbytes = sum(group.rows for group in run), sum(group.nbytes for group in run)
        stored = RowGroups(file.filesystem, file.path, tuple(run), (file.size, file.mtime), kept)
        source: Source = stored
        if file.deleted or layout.stored:
            deleted = file.deleted_rows(run[0].row, rows) if file.deleted else np.empty(0, np.uint8)
            rows, source = rows - int(deleted.sum()), TableRows(stored, np.packbits(deleted).tobytes(), layout.stored)
        if rows:
            yield Piece(partition, file.name, run[0].row, rows, nbytes, origin, constants, source=source)


def _unread(file: File, partition: str, origin: str) -> Piece:
    """The rows of a file that is excluded, which only count."""
    rows = file.rows or 0
    deleted = int(file.deleted_rows(0, rows).sum()) if file.deleted else 0
    return Piece(partition, file.name, 0, rows - deleted, 0, origin, source=ExcludedSource())


def _combine_groups(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Combine neighbouring row groups while they have at most `GATHER_ROWS` rows together."""
    run: list[Group] = []
    rows = 0
    for group in groups:
        adjoins = run and run[-1].row + run[-1].rows == group.row
        if run and not (adjoins and rows + group.rows <= GATHER_ROWS):
            yield run
            run, rows = [], 0
        run.append(group)
        rows += group.rows
    if run:
        yield run
