"""Datasets: Parquet fragments of Arrow datasets become files; other fragments are read by Arrow's own scanner.

The module is imported only if a dataset is given or footers are slow, because `pyarrow.dataset` imports pandas if it is
installed, which takes longer than planning a few thousand files.
"""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from streameval.scan.files.file import File, root_of
from streameval.scan.in_memory import Fragment
from streameval.scan.pieces import Constant
from streameval.scan.widen import plain

if TYPE_CHECKING:
    from collections.abc import Iterator


def dataset_items(dataset: Any) -> Iterator[File | Fragment]:
    """The files and fragments of a dataset, in its order.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
        A dataset of files or of tables in memory, or a union. A dataset with a filter has no fragments, and is scanned
        by Arrow as one input.

    Yields
    ------
    File
        For a Parquet fragment, which is then read like any other file.
    Fragment
        For any other fragment. Rows in memory are counted; the rows of a file are unknown until it is read.
    """
    import pyarrow.dataset as pads  # imports pandas if it is installed; loaded already if there is a dataset

    try:
        fragments = list(dataset.get_fragments())
    except ValueError:
        yield Fragment(dataset, dataset.schema, rows=-1)
        return
    folders = [posixpath.dirname(fragment.path) for fragment in fragments if hasattr(fragment, "path")]
    root = root_of(posixpath.commonpath(folders)) if folders else ""
    for fragment in fragments:
        if isinstance(fragment, pads.ParquetFileFragment):
            yield _place(fragment, dataset.schema, root)
        elif hasattr(fragment, "path"):
            yield Fragment(fragment, fragment.physical_schema, rows=-1, place=_place(fragment, dataset.schema, root))
        else:
            yield Fragment(fragment, fragment.physical_schema, rows=fragment.count_rows())


def _place(fragment: Any, schema: pa.Schema, root: str) -> File:
    """A fragment as a file, with the partition keys of the dataset."""
    import pyarrow.dataset as pads

    keys = pads.get_partition_keys(fragment.partition_expression)
    kinds = {key: plain(schema.field(key).type) for key in keys if key in schema.names}
    constants = tuple((key, Constant(keys[key], kind)) for key, kind in kinds.items())
    local = isinstance(fragment.filesystem, fs.LocalFileSystem)
    name = fragment.path if local else f"{fragment.filesystem.type_name}://{fragment.path}"
    size, mtime, real = None, None, fragment.path
    if local:
        with suppress(OSError):  # the task that reads it reports the error
            found, real = Path(fragment.path).stat(), os.path.realpath(fragment.path)
            size, mtime = found.st_size, found.st_mtime_ns
    return File(fragment.filesystem, fragment.path, name, root, fragment, constants, size, mtime, real)
