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

- ``files.paths`` resolves names and patterns on any file system to files; ``files.walk`` lists directories, follows
  links and tells Parquet from other files; ``files.file`` defines the identity of a file; ``files.tables`` reads the
  logs of Delta tables and refuses other table formats;
- ``parquet.footers`` reads row groups, types and sizes; ``parquet.layout`` locates the requested columns in a file;
- ``in_memory`` takes tables, frames, readers, datasets, and fragments that are not Parquet;
- ``lazy`` takes partitions that Dask has yet to compute;
- ``columns`` finds the requested columns of an input, including fields of structs;
- ``widen`` finds the smallest type that holds every file's values, and casts to it;
- ``pieces`` defines the units of work, and numbers their rows for sampling and blocks; ``parquet.row_groups`` reads
  those of Parquet files, ``parquet.pages`` finds how long their texts are, and ``parquet.ranges`` detects truncated
  answers of object stores; ``faults`` detects files that change;
- ``where`` filters rows and prunes pieces; ``derived`` computes columns from those that are read;
- ``planning`` and ``reading`` are the two halves themselves.

Memory: a plan takes about a kilobyte per piece. A read holds the compressed column chunks of one row group, and one
batch.
"""

from streameval.scan.derived import Derived
from streameval.scan.faults import READ_ERRORS, reason, remedied
from streameval.scan.files.file import File
from streameval.scan.files.paths import details, locate, locate_all, tell
from streameval.scan.files.uris import shown
from streameval.scan.in_memory import from_mapping, holds_rows
from streameval.scan.lazy import LazySource, uncomputable
from streameval.scan.parquet.row_groups import RowGroups, join, row_groups
from streameval.scan.pieces import Piece, Scan, TableSource, natural
from streameval.scan.planning import plan
from streameval.scan.reading import read
from streameval.scan.where import Test, Where
from streameval.scan.where.pruning import Pruned, prune
from streameval.scan.widen import widen as widened

__all__ = [
    "READ_ERRORS",
    "Derived",
    "File",
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
    "natural",
    "plan",
    "prune",
    "read",
    "reason",
    "remedied",
    "row_groups",
    "shown",
    "tell",
    "uncomputable",
    "widened",
]
