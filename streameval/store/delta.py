"""Delta: small tables whose rows are replaced as a whole, one commit at a time, without retries.

A commit is made against the version that was read: where there is a newer one it is refused. Rows are read with
pyarrow from the files that the table's log names.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from streameval.errors import StoreError
from streameval.scan import READ_ERRORS, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from deltalake import DeltaTable

    from streameval.store.place import Place

__all__ = ["clear", "commit_table", "open_table", "read_rows"]

_KEEP = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "10",  # opening a table reads every commit since its last checkpoint
}


def open_table(place: Place) -> DeltaTable | None:
    """The Delta table of a directory, or None where there is none.

    Raises
    ------
    StoreError
        If what is there cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(place.uri, storage_options=place.options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        msg = f"{place.name}: cannot be read: {reason(error)}"
        raise StoreError(msg) from error


def read_rows(table: DeltaTable, place: Place) -> list[dict[str, Any]]:
    """The rows of a Delta table whose rows fit into memory."""
    paths = table.get_add_actions(flatten=True).column("path").to_pylist()
    rows: list[dict[str, Any]] = []
    try:
        for path in paths:
            with place.filesystem.open_input_file(place.child(path).path) as file:
                rows += pq.ParquetFile(file).read(use_threads=False).to_pylist()
    except READ_ERRORS as error:
        msg = f"{place.name}: cannot be read: {reason(error)}; restore it from a copy"
        raise StoreError(msg) from error
    return rows


def commit_table(
    place: Place, base: DeltaTable | None, rows: pa.Table, facts: dict[str, str], description: str
) -> DeltaTable:
    """Replace the rows of a Delta table in one commit after the version `base`, without retries.

    Raises
    ------
    StoreError
        If there is a newer version, or the table cannot be written.
    """
    from deltalake import CommitProperties, DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    properties = CommitProperties(custom_metadata=facts, max_commit_retries=0)
    try:
        if base is not None:
            write_deltalake(base, rows, mode="overwrite", commit_properties=properties)
            return base
        if place.local:
            place.filesystem.create_dir(place.path, recursive=True)
        write_deltalake(
            place.uri,
            rows,
            mode="error",
            description=description,
            configuration=_KEEP,
            storage_options=place.options,
            commit_properties=properties,
        )
        return DeltaTable(place.uri, storage_options=place.options)
    except CommitFailedError as error:
        msg = f"{place.name}: another update was committed meanwhile; nothing of this one counts: run it again"
        raise StoreError(msg) from error
    except (DeltaError, OSError) as error:
        if base is None and open_table(place) is not None:
            msg = f"{place.name}: another update began this store meanwhile; nothing of this one counts: run it again"
        else:
            msg = f"{place.name}: cannot be written: {reason(error)}; nothing of this update counts"
        raise StoreError(msg) from error


@contextmanager
def clear(place: Place) -> Iterator[None]:
    """Errors of deltalake as those of a store."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        msg = f"{place.name}: cannot be read: {reason(error)}"
        raise StoreError(msg) from error
