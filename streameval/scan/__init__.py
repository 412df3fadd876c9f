"""Scan: inputs → partitions → record batches. Nothing else in the library opens data.

A scan has two halves. `plan` looks at everything that was named (paths, globs, directories, URIs, datasets, tables,
readers), reads Parquet footers once and answers with a `Scan`: the schema that all inputs share and the pieces to
read. `read` opens one piece and yields its record batches in exactly that schema. Planning touches no data page;
reading touches only the requested columns; a piece holds no open file, so that it can be sent to another process.

::

    paths  ─► files ─► footers ─┐
    datasets ─► fragments ──────┼─► holdings ─► one schema, many pieces ─► read ─► record batches
    tables, readers ────────────┘

The modules, in the order the data meet them:

- ``paths``: names and patterns, on any file system, to files;
- ``listing``: files to their sizes and times, for whoever must know what changed;
- ``footers``: files to row groups, types and sizes; ``layout``: where the columns are in a file;
- ``whole``: small objects, planned by their sizes and one footer;
- ``datasets``: Arrow datasets to files, or to fragments of other formats;
- ``memory``: tables, frames, readers and such fragments;
- ``lazy``: partitions that Dask has still to compute;
- ``widen``: the smallest type that holds every file's values, and the cast to it;
- ``pieces``: what a piece is and how each kind of it is opened;
- ``planning`` and ``reading``: the two halves themselves.

Memory: a plan costs about a kilobyte a piece. A read holds the compressed column chunks of one row group and one batch.
"""

from streameval.scan.deferred_footers import DeferredFile, LayoutError
from streameval.scan.lazy import LazySource, uncomputable
from streameval.scan.listing import details
from streameval.scan.messages import READ_ERRORS, reason, shown
from streameval.scan.paths import File, locate, locate_all
from streameval.scan.pieces import Piece, RowGroups, Scan, TableSource, join, row_groups
from streameval.scan.planning import plan
from streameval.scan.reading import read
from streameval.scan.widen import widen as widened

__all__ = [
    "READ_ERRORS",
    "DeferredFile",
    "File",
    "LayoutError",
    "LazySource",
    "Piece",
    "RowGroups",
    "Scan",
    "TableSource",
    "details",
    "join",
    "locate",
    "locate_all",
    "plan",
    "read",
    "reason",
    "row_groups",
    "shown",
    "uncomputable",
    "widened",
]
