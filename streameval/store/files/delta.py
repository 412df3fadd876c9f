"""Delta: small tables whose rows are replaced as a whole, one commit at a time, without retries.

A commit is made against the version that was read: where there is a newer one it is refused. Rows are read with
pyarrow from the files that the table's log names. A table's versions are kept for good or only until the next
checkpoint, as it is begun.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from streameval.errors import StoreError
from streameval.scan import READ_ERRORS, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable

    from streameval.store.files.location import Location

__all__ = ["FORGET", "KEEP", "clear", "commit_table", "open_table", "read_rows"]

_LIGHT = {
    "delta.checkpointInterval": "10",  # opening a table reads every commit since its last checkpoint
    "delta.dataSkippingNumIndexedCols": "1",  # and their statistics, of the first column only
}
KEEP = _LIGHT | {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
}
FORGET = _LIGHT | {  # opening or writing a table lists the commits that are kept
    "delta.logRetentionDuration": "interval 0 days",
    "delta.enableExpiredLogCleanup": "true",
}


def open_table(place: Location) -> DeltaTable | None:
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


def read_rows(table: DeltaTable, place: Location, schema: pa.Schema) -> pa.Table:
    """The rows of a Delta table whose rows fit into memory."""
    paths = table.get_add_actions(flatten=True).column("path").to_pylist()
    parts = [schema.empty_table()]
    try:
        for path in paths:
            with place.filesystem.open_input_file(place.child(path).path) as file:
                parts.append(pq.ParquetFile(file).read(use_threads=False).cast(schema))
    except READ_ERRORS as error:
        msg = f"{place.name}: cannot be read: {reason(error)}; restore it from a copy"
        raise StoreError(msg) from error
    return pa.concat_tables(parts)


def commit_table(
    place: Location,
    base: DeltaTable | None,
    rows: pa.Table,
    facts: dict[str, str],
    description: str,
    versions: dict[str, str],
    mode: Literal["overwrite", "append"] = "overwrite",
) -> DeltaTable:
    """Replace the rows of a Delta table, or append to them, in one commit after the version `base`, without retries.

    Parameters
    ----------
    place : Place
    base : DeltaTable or None
        What was read; None to begin the table.
    rows : pyarrow.Table
    facts : dict of str to str
        What the commit says.
    description : str
        Of the table.
    versions : dict of str to str
        `KEEP` or `FORGET`, of a table that is begun.
    mode : str

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
            write_deltalake(base, rows, mode=mode, commit_properties=properties)
            return base
        if place.local:
            place.filesystem.create_dir(place.path, recursive=True)
        write_deltalake(
            place.uri,
            rows,
            mode="error",
            description=description,
            configuration=versions,
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
def clear(place: Location) -> Iterator[None]:
    """Errors of deltalake as those of a store."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        msg = f"{place.name}: cannot be read: {reason(error)}"
        raise StoreError(msg) from error
