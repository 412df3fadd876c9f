"""Layout: the positions of the requested columns in a Parquet file, and its row groups, from the footer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import SchemaError
from streameval.scan.columns import find, is_constant
from streameval.scan.parquet.pages import TEXT_BYTES, Dictionary
from streameval.scan.parquet.ranges import typed
from streameval.scan.parquet.row_groups import Group, int96_columns
from streameval.scan.widen import is_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from streameval.scan.pieces import Constant


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
    """

    writer: tuple[Any, ...]
    kinds: Mapping[str, pa.DataType]
    leaves: tuple[int, ...]
    texts: Mapping[int, str]
    absent: tuple[str, ...]
    times: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        footer: pq.FileMetaData,
        columns: Sequence[str],
        name: str,
        keys: Mapping[str, Constant],
        known: Layout | None = None,
    ) -> Layout:
        """The layout of a file; `known` itself if the same writer wrote the file.

        Raises
        ------
        MissingColumnError, SchemaError
            If a column does not exist, or cannot be used; the message names the file.
        """
        given = {key: (constant.kind, constant.fallback, constant.refused) for key, constant in keys.items()}
        writer = (footer.schema, (footer.metadata or {}).get(b"ARROW:schema"), given)
        if known is not None and known.writer[1:] == writer[1:] and known.writer[0].equals(writer[0]):
            return known
        schema = footer.schema.to_arrow_schema()
        kinds = dict(zip(columns, find(schema, columns, name, keys), strict=True))
        zoned = next((column for column, kind in kinds.items() if pa.types.is_timestamp(kind) and kind.tz), None)
        if zoned is not None and not typed(footer):
            why = "since Arrow does not know the type of another column; write the file without that column"
            raise SchemaError(f"{name}: the time zone of column {zoned!r} cannot be read, {why}")
        absent = tuple(column for column in columns if is_constant(schema, column, keys))
        times = tuple(column for column in int96_columns(footer, columns) if column not in absent)
        kinds |= {column: pa.timestamp("us", kinds[column].tz) for column in times}
        paths = {i: footer.schema.column(i).path for i in range(footer.num_columns)}
        leaves = {i: path for i, path in paths.items() if path in columns and path not in absent}
        texts = {i: path for i, path in leaves.items() if path in schema.names and is_text(plain(kinds[path]))}
        return cls(writer, kinds, tuple(leaves), texts, absent, times)

    def groups(
        self,
        footer: pq.FileMetaData,
        wanted: set[int] | None = None,
        dictionary: Callable[[Any], Dictionary] = lambda _: Dictionary(),
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


def _is_encoded(chunk: pq.ColumnChunkMetaData, dictionary: Callable[[Any], Dictionary]) -> bool:
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
