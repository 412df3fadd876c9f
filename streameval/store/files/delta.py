"""Delta tables of a store: the rows of each commit are one published file, and commits are never retried.

This module writes the data files, so that they are named and verified like all published files; deltalake only makes
the commit. A commit is based on the version that was read and is refused if there is a newer one. A table is created to
keep its versions forever (`KEEP`), or only until the next checkpoint (`FORGET`).
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from streameval.errors import StoreError
from streameval.forks import import_deltalake
from streameval.scan import READ_ERRORS, reason, remedied
from streameval.store.files.published import PublishedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltalake import DeltaTable

    from streameval.store.files.location import Location

__all__ = [
    "FORGET",
    "KEEP",
    "commit",
    "commit_past_vacuums",
    "commits",
    "data_files",
    "open_table",
    "publish_rows",
    "read_rows",
    "reading",
]

_LIGHT = {
    "delta.checkpointInterval": "10",  # opening a table reads every commit since its last checkpoint
}
KEEP = _LIGHT | {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
}
FORGET = _LIGHT | {  # short logs are fast: opening or writing a table lists all kept commits
    "delta.logRetentionDuration": "interval 0 days",
    "delta.enableExpiredLogCleanup": "true",
}


@contextmanager
def reading(location: Location) -> Iterator[None]:
    """Turn exceptions of deltalake, Arrow or Python while reading a table's log or rows into `StoreError`."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, *READ_ERRORS, TypeError, AttributeError, OverflowError) as error:
        msg = f"{location.name}: cannot be read: {remedied(error, 'restore it from a copy')}"
        raise StoreError(msg) from error


def open_table(location: Location) -> DeltaTable | None:
    """The Delta table of a directory; None if there is none.

    Raises
    ------
    StoreError
        If the table cannot be read.
    """
    deltalake = import_deltalake()
    from deltalake.exceptions import TableNotFoundError

    with reading(location):
        try:
            return deltalake.DeltaTable(location.uri, storage_options=location.options)
        except TableNotFoundError:
            location.filesystem.get_file_info(location.path)  # fails where it is unknown whether there is one
            return None


def commits(table: DeltaTable, location: Location, limit: int | None = None) -> list[dict[str, Any]]:
    """The metadata of a table's commits, newest first.

    Versions are numbered from the oldest commit, which is never deleted: deltalake numbers them down from the version
    that it has loaded, even if there are newer ones.

    Raises
    ------
    StoreError
        If the log cannot be read, or has no commits.
    """
    with reading(location):
        facts = list(table.history(limit))
    if not facts:
        msg = f"{location.name}: its log holds no commit that can be read; restore it from a copy"
        raise StoreError(msg)
    if limit is None:
        facts = [fact | {"version": len(facts) - 1 - i} for i, fact in enumerate(facts)]
    return facts


def data_files(table: DeltaTable) -> list[str]:
    """Names of the files that hold a table's rows."""
    return [str(name) for name in table.get_add_actions(flatten=True).column("path").to_pylist()]


def read_rows(location: Location, names: Iterable[str], schema: pa.Schema | None = None) -> pa.Table:
    """The rows of published files, cast to a schema if one is given.

    Raises
    ------
    FormatError, OSError, ValueError, KeyError, pyarrow.ArrowException
        If a file is missing or damaged, or has other columns.
    """
    files = PublishedFiles(location)
    parts = [pq.ParquetFile(pa.BufferReader(files.load(name))).read(use_threads=False) for name in names]
    return (
        pa.concat_tables(parts)
        if schema is None
        else pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])
    )


def publish_rows(location: Location, rows: pa.Table) -> dict[str, Any]:
    """Publish rows; returns the description of their file for a commit."""
    name, size = PublishedFiles(location).publish(lambda sink: pq.write_table(rows, sink))
    when, stats = int(time.time() * 1000), json.dumps({"numRecords": rows.num_rows})
    return {"path": name, "size": size, "modification_time": when, "stats": stats}


def commit(
    location: Location,
    base: DeltaTable | None,
    added: dict[str, Any],
    schema: pa.Schema,
    facts: dict[str, str],
    versions: dict[str, str],
    mode: Literal["overwrite", "append", "error"],
) -> None:
    """Replace the rows of a Delta table, or append to them, in one commit, without retries.

    Parameters
    ----------
    location : Location
    base : DeltaTable or None
        The version that the commit must follow; None to create the table, or with ``overwrite`` to replace it and its
        schema.
    added : dict
        Result of `publish_rows`.
    schema : pyarrow.Schema
        Schema of the rows.
    facts : dict of str to str
        Metadata of the commit.
    versions : dict of str to str
        `KEEP` or `FORGET`, for a table that is created.
    mode : str
        ``error`` refuses to create a table where one exists.

    Raises
    ------
    StoreError
        If there is a newer version, or the table cannot be written.
    """
    import_deltalake()
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.schema import Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    properties = CommitProperties(custom_metadata=facts, max_commit_retries=0)
    actions = [AddAction(**added, partition_values={}, data_change=True)]
    try:
        if base is not None:
            base.create_write_transaction(actions, mode, schema, commit_properties=properties)
            return
        create_table_with_add_actions(
            location.uri,
            Schema.from_arrow(schema),
            actions,
            mode,
            configuration=versions,
            storage_options=location.options,
            commit_properties=properties,
        )
    except CommitFailedError as error:
        msg = f"{location.name}: another update was committed meanwhile; this update was not applied: run it again"
        raise StoreError(msg) from error
    except (DeltaError, *READ_ERRORS) as error:
        why = f"cannot be written: {reason(error)}; nothing was committed"
        if mode == "error" and open_table(location) is not None:
            why = "another update created this store meanwhile; this update was not applied: run it again"
        msg = f"{location.name}: {why}"
        raise StoreError(msg) from error


ATTEMPTS = 8  # more vacuums than that while one commit is written are a command in a loop


def commit_past_vacuums(
    location: Location,
    base: DeltaTable | None,
    added: dict[str, Any],
    rows: pa.Table,
    schema: pa.Schema,
    facts: dict[str, str],
    versions: dict[str, str],
    mode: Literal["overwrite", "append", "error"],
) -> None:
    """As `commit`, but publish the rows again if only vacuums were committed since: they may have deleted the file."""
    for attempt in range(ATTEMPTS):
        try:
            commit(location, base, added, schema, facts, versions, mode)
        except StoreError:
            newest = open_table(location)
            if base is None or newest is None or attempt == ATTEMPTS - 1:
                raise
            if newest.version() == base.version() or {*data_files(newest)} != {*data_files(base)}:
                raise
            base, added = newest, publish_rows(location, rows)
        else:
            return
