"""Layout: where the requested columns are in a Parquet file, and its row groups; worked out from the footer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.scan.columns import find
from streameval.scan.fields import nested_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from streameval.scan.pieces import Constant

__all__ = ["Group", "Layout"]


class Group(NamedTuple):
    """A row group: its number, the row it starts at, its rows, and the bytes of the requested columns."""

    number: int
    row: int
    rows: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the requested columns are in a file and of which type; the same for all files of one writer.

    Attributes
    ----------
    writer : what tells one writer from another
    kinds : type of each requested column
    leaves : positions of the columns among the file's
    absent : names that its path must give
    """

    writer: tuple[Any, ...]
    kinds: tuple[pa.DataType, ...]
    leaves: tuple[int, ...]
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
        return cls(writer, kinds, leaves, tuple(column for column in columns if not nested_path(schema, column)))

    def groups(self, footer: Any, wanted: set[int] | None = None) -> Iterator[Group]:
        """The row groups that have rows, of those wanted where not all are."""
        row = 0
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if group.num_rows and (wanted is None or number in wanted):
                nbytes = sum(group.column(leaf).total_compressed_size for leaf in self.leaves)
                yield Group(number, row, group.num_rows, nbytes)
            row += group.num_rows
