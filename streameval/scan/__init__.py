"""Scan: inputs → partitions → record batches. Nothing else in the library opens data.

A scan has two halves. `plan` looks at the inputs (paths, globs, directories, URIs, datasets, tables, readers), reads
Parquet footers once and returns a `Scan`: the schema that all inputs share and the pieces to read. `read` opens one
piece and yields its record batches in that schema. Planning reads no data page; reading touches only the requested
columns. A piece holds no open file, so it can be sent to another process.

No row counts twice, and none that is gone: every file is read once, Delta tables are read by their log, and a file that
changes between planning and its last read is an error.

::

    paths  ─► files ─► footers ─┐
    datasets ─► fragments ──────┼─► holdings ─► one schema, many pieces ─► read ─► record batches
    tables, readers ────────────┘

The modules, in the order the data meet them:

- ``paths``: names and patterns, on any file system, to files; ``walk``: directories, links and hidden names;
- ``tables``: Delta tables by their log, other table formats refused;
- ``listing``: sizes and modification times of files, from which a store tells what changed;
- ``footers``: files to row groups, types and sizes; ``layout``: where the columns are in a file;
- ``deferred_footers``: small objects, planned by their sizes and one footer;
- ``datasets``: Arrow datasets to files, or to fragments of other formats;
- ``in_memory``: tables, frames, readers and fragments that are not Parquet;
- ``lazy``: partitions that Dask has yet to compute;
- ``columns`` and ``fields``: the requested columns of an input, fields of structs included;
- ``widen``: the smallest type that holds every file's values, and the cast to it;
- ``pieces``: units of work, and how each kind is opened; ``versions``: whether a file changed; ``ranges``: whether an
  object store answered in full;
- ``where``: filters of rows, and pieces that they leave out; ``derived``: columns made from those that are read;
- ``planning`` and ``reading``: the two halves themselves.

Memory: a plan costs about a kilobyte a piece. A read holds the compressed column chunks of one row group and one batch.
"""

from streameval.scan.deferred_footers import DeferredFile, LayoutError
from streameval.scan.derived import Derived
from streameval.scan.files.listing import details
from streameval.scan.files.paths import File, locate, locate_all
from streameval.scan.files.uris import shown
from streameval.scan.in_memory import from_mapping, holds_rows
from streameval.scan.lazy import LazySource, uncomputable
from streameval.scan.messages import READ_ERRORS, reason
from streameval.scan.pieces import Piece, RowGroups, Scan, TableSource, join, row_groups
from streameval.scan.planning import plan
from streameval.scan.reading import read
from streameval.scan.where import Pruned, Test, Where, prune
from streameval.scan.widen import widen as widened

__all__ = [
    "READ_ERRORS",
    "DeferredFile",
    "Derived",
    "File",
    "LayoutError",
    "LazySource",
    "Piece",
    "Pruned",
    "RowGroups",
    "Scan",
    "TableSource",
    "Test",
    "Where",
    "details",
    "from_mapping",
    "holds_rows",
    "join",
    "locate",
    "locate_all",
    "plan",
    "prune",
    "read",
    "reason",
    "row_groups",
    "shown",
    "uncomputable",
    "widened",
]
