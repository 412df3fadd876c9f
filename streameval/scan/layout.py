"""Layout: where the requested columns are in a Parquet file, and its row groups; worked out from the footer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streameval.scan.columns import find
from streameval.scan.fields import nested_path
from streameval.scan.widen import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from streameval.scan.pieces import Constant

__all__ = ["Group", "Layout", "encoded_in"]


_PLAIN_BYTES = 4  # a text that is not written as a code takes at least the bytes of its length


class Group(NamedTuple):
    """A row group.

    Attributes
    ----------
    number, row, rows : its number, first row and number of rows
    nbytes : compressed bytes of the requested columns
    encoded : names of the columns of texts that are read as codes
    row_text : mean bytes of the other texts in a row, without compression
    """

    number: int
    row: int
    rows: int
    nbytes: int
    encoded: frozenset[str]
    row_text: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the requested columns are in a file, and their types; the same for all files of one writer.

    Attributes
    ----------
    writer : what tells one writer from another
    kinds : type of each requested column
    leaves : positions of the columns among the file's
    texts : those of them that hold strings or binaries of any length, by position
    absent : names that its path must give
    """

    writer: tuple[Any, ...]
    kinds: tuple[pa.DataType, ...]
    leaves: tuple[int, ...]
    texts: Mapping[int, str]
    absent: tuple[str, ...]

    @classmethod
    def of(
        cls, footer: Any, columns: Sequence[str], name: str, keys: Mapping[str, Constant], known: Layout | None = None
    ) -> Layout:
        """The layout of a file: the known one if the same writer made both files.

        Raises
        ------
        MissingColumnError, SchemaError
            A column is not there, or cannot be used; the message names the file.
        """
        given = {key: constant.kind for key, constant in keys.items()}
        writer = (footer.schema, (footer.metadata or {}).get(b"ARROW:schema"), given)
        if known is not None and known.writer[1:] == writer[1:] and known.writer[0].equals(writer[0]):
            return known
        schema = footer.schema.to_arrow_schema()
        kinds = find(schema, columns, name, keys)
        paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
        leaves = tuple(i for i, path in enumerate(paths) if path in columns)
        kind_of = dict(zip(columns, kinds, strict=True))
        texts = {i: paths[i] for i in leaves if paths[i] in schema.names and is_text(kind_of[paths[i]])}
        absent = tuple(column for column in columns if not nested_path(schema, column))
        return cls(writer, kinds, leaves, texts, absent)

    def groups(self, footer: Any, wanted: set[int] | None = None) -> Iterator[Group]:
        """The row groups that have rows, of those wanted where not all are.

        A column of texts is *encoded* if it was written as a dictionary and codes. A writer that gives up on a
        dictionary goes on with plain texts, which the footer does not always tell, but its bytes do.
        """
        row = 0
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if group.num_rows and (wanted is None or number in wanted):
                chunks = {leaf: group.column(leaf) for leaf in self.leaves}
                nbytes = sum(chunk.total_compressed_size for chunk in chunks.values())
                encoded = frozenset(name for leaf, name in self.texts.items() if _is_encoded(chunks[leaf]))
                texts = (
                    chunks[leaf].total_uncompressed_size for leaf, name in self.texts.items() if name not in encoded
                )
                yield Group(number, row, group.num_rows, nbytes, encoded, -(-sum(texts) // group.num_rows))
            row += group.num_rows

    def kinds_where(self, columns: Sequence[str], encoded: AbstractSet[str]) -> tuple[pa.DataType, ...]:
        """The types of the requested columns where some of them are read as codes."""
        pairs = zip(columns, self.kinds, strict=True)
        return tuple(pa.dictionary(pa.int32(), kind) if column in encoded else kind for column, kind in pairs)


def encoded_in(groups: Sequence[Group]) -> frozenset[str]:
    """The columns that are encoded in every one of some row groups."""
    return frozenset.intersection(*(group.encoded for group in groups)) if groups else frozenset()


def _is_encoded(chunk: Any) -> bool:
    """Whether the texts of a column chunk were written as codes."""
    few = chunk.total_uncompressed_size < _PLAIN_BYTES * chunk.num_values
    return bool(few and chunk.has_dictionary_page)
