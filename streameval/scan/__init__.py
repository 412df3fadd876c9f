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

- ``files.paths`` resolves names and patterns on any file system to files, each with its identity; ``files.walk`` lists
  directories, follows links and tells Parquet from other files; ``files.tables`` reads the logs of Delta tables and
  refuses other table formats; ``files.uris`` parses URIs with credentials;
- ``parquet.footers`` locates the requested columns in a file, and reads row groups, types and sizes;
- ``in_memory`` takes tables, frames, readers, datasets, fragments that are not Parquet, and partitions that Dask has
  yet to compute;
- ``widen`` finds the smallest type that holds every file's values, and casts to it;
- ``pieces`` finds the requested columns of an input, defines the units of work, and numbers their rows for sampling and
  blocks; ``parquet.row_groups`` reads those of Parquet files, ``parquet.columns`` decodes their columns of few
  distinct numbers, ``parquet.pages`` finds how long their texts are and detects truncated answers of object stores;
  ``faults`` detects files that change;
- ``where`` filters rows, by conditions that ``sql`` parses; ``pruning`` leaves out pieces without such rows;
  ``derived`` computes columns from those that are read;
- ``planning`` and ``reading`` are the two halves themselves.

Memory: a plan takes about a kilobyte per piece. A read holds the compressed column chunks of one row group, and one
batch.
"""

from __future__ import annotations

from streameval._submodules import import_when_named
from streameval.scan.derived import Derived as Derived
from streameval.scan.faults import READ_ERRORS as READ_ERRORS
from streameval.scan.faults import reason as reason
from streameval.scan.faults import remedied as remedied
from streameval.scan.files.paths import File as File
from streameval.scan.files.paths import details as details
from streameval.scan.files.paths import locate as locate
from streameval.scan.files.paths import locate_all as locate_all
from streameval.scan.files.paths import tell as tell
from streameval.scan.files.uris import shown as shown
from streameval.scan.in_memory import LazySource as LazySource
from streameval.scan.in_memory import from_mapping as from_mapping
from streameval.scan.in_memory import holds_rows as holds_rows
from streameval.scan.in_memory import uncomputable as uncomputable
from streameval.scan.parquet.row_groups import RowGroups as RowGroups
from streameval.scan.parquet.row_groups import join as join
from streameval.scan.parquet.row_groups import row_groups as row_groups
from streameval.scan.pieces import Piece as Piece
from streameval.scan.pieces import Scan as Scan
from streameval.scan.pieces import TableSource as TableSource
from streameval.scan.pieces import natural as natural
from streameval.scan.planning import plan as plan
from streameval.scan.pruning import Pruned as Pruned
from streameval.scan.pruning import prune as prune
from streameval.scan.reading import read as read
from streameval.scan.where import Test as Test
from streameval.scan.where import Where as Where

import_when_named(__name__)
