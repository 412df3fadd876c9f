"""Row groups: pieces cut down to single ones, for runs that read only some of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from streameval.scan.pieces import RowGroups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.scan.pieces import Piece

__all__ = ["row_groups"]


def row_groups(piece: Piece) -> Iterator[Piece]:
    """The row groups of a piece, one a piece; a piece of another kind is its own only one.

    Parameters
    ----------
    piece : Piece
        Row groups gathered by the plan. Where the plan did not keep their file's footer, it is read once more.
    """
    source = piece.source
    if not isinstance(source, RowGroups) or len(source.groups) == 1:
        yield piece
        return
    footer = source.footer or pq.read_metadata(source.path, filesystem=source.filesystem)
    row = piece.row
    for group in source.groups:
        rows = footer.row_group(group).num_rows
        nbytes = source.nbytes * rows // piece.rows
        single = replace(source, groups=(group,), nbytes=nbytes, footer=footer)
        yield replace(piece, row=row, rows=rows, nbytes=nbytes, source=single)
        row += rows
