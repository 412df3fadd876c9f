"""Delta tables of a store: data files are published files, and commits are durable and never retried.

This module writes the data files, so that they are named and verified like all published files; deltalake only makes
the commit. A commit is based on the version that was read and is refused if there is a newer one. On a local disk, it
counts once its file and the directories above are on the disk (`streameval.saving.sync`); an object store keeps
what it has accepted. A checkpoint is derived: if it cannot be written, the commit stands.

A power cut may leave the newest commits empty or cut off. None of them was acknowledged. They are named in a warning
and passed over, and the next commit replaces them. So that this is always possible, a checkpoint is that of a commit
before the newest, and no commit from it on is deleted. If no commit is whole in a log that begins later, acknowledged
ones are lost, and the table is refused.

A table is created to keep its versions (`KEEP`), or only those from the last checkpoint on (`FORGET`).
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streameval.errors import FormatError, StoreError
from streameval.forks import import_deltalake
from streameval.posix import locked_folder
from streameval.saving import sync
from streameval.scan import READ_ERRORS, add_remedy, reason
from streameval.store.files.location import check_conditional_writes
from streameval.store.files.published import PublishedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable

    from streameval.store.files.location import Location

LOG = "_delta_log"
INTERVAL = 10  # commits to a checkpoint; opening a table for a commit reads every commit since its last checkpoint
KEEP = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 0 days",  # of the names of removed files in checkpoints
}
# short logs are fast: opening or writing a table lists all kept commits
FORGET = KEEP | {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "true"}
MOMENT = 0.5  # seconds after which a commit that is cut is taken for one that will not be completed
ATTEMPTS = 8  # a log that others change more often than that during one command is changed by commands in a loop
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")


class Commit(NamedTuple):
    """A commit of a table.

    Attributes
    ----------
    version : version of the table that it made; −1 if there is no commit yet
    facts : its metadata
    added : names of the data files that it added
    """

    version: int
    facts: dict[str, Any]
    added: tuple[str, ...] = ()


@contextmanager
def reading(location: Location) -> Iterator[None]:
    """Turn exceptions of deltalake, Arrow or Python while reading a table's log or rows into `StoreError`."""
    import_deltalake()
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, FormatError, *READ_ERRORS, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{location.name}: cannot be read: {add_remedy(error, 'restore it from a copy')}") from error


# -- reading ----------------------------------------------------------------------------------------------------------


def commit_numbers(location: Location) -> list[int]:
    """The numbers of the commits in a table's log, ascending; empty if there is no table."""
    return sorted(int(match[1]) for name in log_names(location) if (match := _COMMIT.fullmatch(name)))


def read_commit(location: Location, version: int) -> Commit | None:
    """A commit; None if it is empty or cut off: its last line, or a line with zeros, is no JSON.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
        If it cannot be read, or is damaged in another way.
    """
    content = _file(location, version).read()
    *lines, last = content.rstrip(b"\0\r\n ").split(b"\n")
    actions = []
    for line in (*lines, last):
        try:
            actions.append(json.loads(line))
        except ValueError:
            if line is last or b"\0" in content:
                return None
            raise
    facts: dict[str, Any] = dict(next((action["commitInfo"] for action in actions if "commitInfo" in action), {}))
    return Commit(version, facts, tuple(action["add"]["path"] for action in actions if "add" in action))


def newest_commit(location: Location) -> Commit:
    """The newest whole commit of a table; later ones are named in a warning, once.

    Raises
    ------
    StoreError
        If it cannot be read, or none is whole although the log once had others.
    """

    def read() -> Commit:
        with reading(location):
            numbers = commit_numbers(location)
            for number in reversed(numbers):
                commit = read_commit(location, number)
                if commit is not None:
                    return commit
                _warn_of_cut(_file(location, number).name)
            if (numbers and numbers[0] > 0) or any(map(_CHECKPOINT.fullmatch, log_names(location))):
                raise ValueError(f"no commit in {LOG} is whole, but there were others")
        return Commit(-1, {})

    return read_again(location, read)


def read_again(location: Location, read: Callable[[], _T]) -> _T:
    """Read a table; if that fails, again until its log stays as it is: others delete what the newest version lacks.

    Raises
    ------
    StoreError
        If the table cannot be read.
    """
    before: list[int] | None = None
    for _ in range(ATTEMPTS):
        try:
            return read()
        except StoreError:
            with reading(location):
                now = commit_numbers(location)
            if now == before:
                raise
            before = now
    raise StoreError(f"{location.name}: is changed all the time by other commands; run again")


def open_table(location: Location) -> DeltaTable | None:
    """The Delta table of a directory, at its newest whole commit; None if there is none.

    Raises
    ------
    StoreError
        If the table cannot be read.
    """

    def read() -> DeltaTable | None:
        newest = newest_commit(location)
        with reading(location):
            return None if newest.version < 0 else table_at(location, newest.version)

    return read_again(location, read)


def table_at(location: Location, version: int) -> DeltaTable:
    """A version of a table; damaged checkpoints are deleted if there are all commits, which hold what they held.

    An empty commit above the last checkpoint is refused with `ValueError`: deltalake would skip it.
    """
    deltalake = import_deltalake()
    from deltalake.exceptions import DeltaError

    checkpoints = [int(match[1]) for name in log_names(location) if (match := _CHECKPOINT.fullmatch(name))]
    first = max((number for number in checkpoints if number <= version), default=-1) + 1
    paths = [_file(location, number).path for number in range(first, version)]
    for file in location.filesystem.get_file_info(paths):
        if file.is_file and not file.size:
            raise ValueError(f"{LOG}/{file.base_name} is empty")
    try:
        return deltalake.DeltaTable(location.uri, version, storage_options=location.options)
    except DeltaError:
        if not _delete_damaged_checkpoints(location):
            raise
        return deltalake.DeltaTable(location.uri, version, storage_options=location.options)


def data_files(table: DeltaTable) -> list[str]:
    """Names of the files that hold a table's rows."""
    return [str(name) for name in table.get_add_actions(flatten=True).column("path").to_pylist()]


def read_rows(location: Location, names: Iterable[str], schema: pa.Schema, later: Sequence[str] = ()) -> pa.Table:
    """The rows of published files, cast to a schema; null in columns that earlier files lack (`later`).

    Raises
    ------
    FormatError, OSError, ValueError, KeyError, pyarrow.ArrowException
        If a file is missing or damaged, or has other columns.
    """
    files = PublishedFiles(location)
    parts = [pq.ParquetFile(pa.BufferReader(files.load(name))).read(use_threads=False) for name in names]
    for name in later:
        nulls = (pa.nulls(len(part), schema.field(name).type) for part in parts)
        parts = [p if name in p.schema.names else p.append_column(name, n) for p, n in zip(parts, nulls, strict=True)]
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


def _file(location: Location, version: int) -> Location:
    """The file of a commit."""
    return location.child(f"{LOG}/{version:020}.json")


def log_names(location: Location) -> list[str]:
    """The names of all files in a table's log."""
    log = location.child(LOG)
    if not log.local:
        files = log.filesystem.get_file_info(fs.FileSelector(log.path, allow_not_found=True))
        return [file.base_name for file in files]
    with suppress(FileNotFoundError):  # unlike Arrow's, this listing does not look at every file
        return os.listdir(log.path)  # noqa: PTH208 - names only
    return []


@cache
def _warn_of_cut(name: str) -> None:
    _LOGGER.warning("%s: is empty or cut off, as after a power cut; it is passed over, for the version before it", name)


def _delete_damaged_checkpoints(location: Location) -> bool:
    """Delete the checkpoints that are damaged and whose commits are all there; returns whether anything was deleted.

    So is the file that names the last one, unless that one exists. A file that cannot be read just now is not damaged.
    """
    log, names, numbers = location.child(LOG), log_names(location), {*commit_numbers(location)}
    damaged = list[str]()
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and numbers.issuperset(range(int(match[1]) + 1)):
            content = log.child(name).read()
            try:
                pq.ParquetFile(pa.BufferReader(content))
            except (pa.ArrowInvalid, OSError):
                damaged.append(name)
    last, checkpoint = "_last_checkpoint", ""
    if last in names:
        content = log.child(last).read()
        with suppress(ValueError, KeyError, TypeError):
            checkpoint = f"{json.loads(content)['version']:020}.checkpoint.parquet"
        damaged += [last] if checkpoint not in {*names}.difference(damaged) else []
    PublishedFiles(log).delete(damaged)
    return bool(damaged)


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowTable:
    """Rows of one schema in a Delta table.

    Attributes
    ----------
    location : directory of the table
    schema : schema of the rows
    versions : `KEEP` or `FORGET`, for a table that is created
    later : the last columns of the schema, as far as files that were written earlier lack them
    """

    location: Location
    schema: pa.Schema
    versions: Mapping[str, str] = field(default_factory=FORGET.copy)
    later: tuple[str, ...] = ()

    def read(self) -> tuple[DeltaTable | None, pa.Table]:
        """The Delta table at its newest version, None if there is none, and its rows.

        Raises
        ------
        StoreError
            If the table or one of its files cannot be read.
        """

        def read() -> tuple[DeltaTable | None, pa.Table]:
            table = open_table(self.location)
            with reading(self.location):
                names = [] if table is None else data_files(table)
                return table, read_rows(self.location, names, self.schema, self.later)

        return read_again(self.location, read)

    def publish(self, rows: pa.Table) -> dict[str, Any]:
        """Publish rows; returns the description of their file for a commit."""
        light = {"use_dictionary": False, "write_statistics": False, "store_schema": False, "compression": "zstd"}
        name, size = PublishedFiles(self.location).publish(lambda sink: pq.write_table(rows, sink, **light))
        when, stats = int(time.time() * 1000), json.dumps({"numRecords": rows.num_rows})
        return {"path": name, "size": size, "modification_time": when, "stats": stats}

    def write(self, base: DeltaTable | None, rows: pa.Table, action: str, *, anew: bool) -> None:
        """Publish and commit rows; again if only vacuums were committed since: they may have deleted the file."""
        for attempt in range(ATTEMPTS):
            try:
                self.commit(base, self.publish(rows), {"action": action}, anew=anew)
            except StoreError:
                newest = open_table(self.location)
                if base is None or newest is None or attempt == ATTEMPTS - 1:
                    raise
                if newest.version() == base.version() or {*data_files(newest)} != {*data_files(base)}:
                    raise
                base = newest
            else:
                return

    def commit(
        self,
        base: DeltaTable | None,
        added: dict[str, Any],
        facts: dict[str, str],
        removed: Iterable[str] = (),
        *,
        anew: bool = False,
    ) -> None:
        """Append published rows to the table, or replace its rows, in one durable commit, without retries.

        Parameters
        ----------
        base : DeltaTable or None
            The version that the commit must follow; None to create the table, or with `anew` to replace it and its
            schema.
        added : dict
            Result of `publish`.
        facts : dict of str to str
            Metadata of the commit.
        removed : iterable of str
            Names of data files that the table loses.
        anew : bool
            Replace all rows.

        Raises
        ------
        StoreError
            If there is a newer version, a table to create exists, or the table cannot be written.
        """
        import_deltalake()
        from deltalake.exceptions import CommitFailedError, DeltaError

        location, first = self.location, base is None and not anew
        last = newest_commit(location).version if base is None else base.version()
        number = 0 if first else last + 1
        try:
            check_conditional_writes(location)
            _delete_cut(location, number)
            self._write(base, added, facts, removed, "overwrite" if anew else "error" if first else "append")
        except (DeltaError, *READ_ERRORS) as error:
            if not _stands(location, number, added["path"]):
                if isinstance(error, CommitFailedError):
                    raise newer_version(location) from error
                why = f"cannot be written: {reason(error)}; nothing was committed"
                if first and open_table(location) is not None:
                    why = "another update created this store meanwhile; this update was not applied: run it again"
                raise StoreError(f"{location.name}: {why}") from error
        _settle(location, number)
        if (number + 1) % INTERVAL == 0:
            (forget_commits if self.versions == FORGET else _write_checkpoint)(location, number - 1)

    def _write(
        self,
        base: DeltaTable | None,
        added: Mapping[str, object],
        facts: dict[str, str],
        removed: Iterable[str],
        mode: Literal["overwrite", "append", "error"],
    ) -> None:
        """Write a commit with deltalake, without a checkpoint."""
        from deltalake import CommitProperties, PostCommitHookProperties
        from deltalake.schema import Schema
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        how: dict[str, Any] = {
            "commit_properties": CommitProperties(custom_metadata=facts, max_commit_retries=0),
            "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        }
        actions: list[Any] = [AddAction(**added, partition_values={}, data_change=True)]
        if base is None:
            options = {"configuration": dict(self.versions), "storage_options": self.location.options}
            schema = Schema.from_arrow(self.schema)
            create_table_with_add_actions(self.location.uri, schema, actions, mode, **options, **how)
            return
        gone = {"data_change": True, "deletion_timestamp": added["modification_time"], "partition_values": {}}
        actions += [RemoveAction(name, **gone) for name in removed]
        base.create_write_transaction(actions, mode, self.schema, **how)


def newer_version(location: Location) -> StoreError:
    """The error of a commit that does not follow the newest version."""
    return StoreError(
        f"{location.name}: another update was committed meanwhile; this update was not applied: run it again"
    )


def forget_commits(location: Location, oldest: int) -> None:
    """Delete the commits and checkpoints before a version once it has a checkpoint; a later one must be settled.

    The oldest are deleted first, so that the log never has a hole.
    """
    if not _write_checkpoint(location, oldest):
        return
    matches = [_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in log_names(location)]
    old = sorted(match[0] for match in matches if match and int(match[1]) < oldest)
    try:
        PublishedFiles(location.child(LOG)).delete(old)
    except READ_ERRORS as error:
        _LOGGER.warning("%s: commits before version %d cannot be deleted: %s", location.name, oldest, reason(error))


def _stands(location: Location, number: int, path: str) -> bool:
    """Whether a commit that has failed is there all the same, because only its confirmation was lost."""
    with suppress(*READ_ERRORS):
        commit = read_commit(location, number)
        return commit is not None and path in commit.added
    return False


def _delete_cut(location: Location, number: int) -> None:
    """Delete the commits from a number on that are cut off, so that the next can have their number.

    Two processes must not both do so, as the second would delete what the first has committed: under a lock, each looks
    again. Local commits get their name once they are written, and a moment later other hosts see them whole, too.
    """
    cut = list[int]()
    with suppress(FileNotFoundError):
        while read_commit(location, number + len(cut)) is None:
            cut.append(number + len(cut))
    if not cut:
        return
    if not location.local:
        raise OSError(f"{_file(location, cut[0]).name} is empty or cut off; delete it and run again")
    time.sleep(MOMENT)
    with locked_folder(location.child(LOG).path):
        for later in cut:
            with suppress(FileNotFoundError):
                if read_commit(location, later) is None:
                    Path(_file(location, later).path).unlink()


def _settle(location: Location, number: int) -> None:
    """Wait until a local commit is on the disk: its file, the log, the table, the directories above, and its base.

    Raises
    ------
    StoreError
        If the disk does not confirm it.
    """
    if not location.local:
        return
    log = Path(location.path, LOG)
    try:
        with suppress(FileNotFoundError):  # a table that forgets its versions may have deleted it by now
            sync(_file(location, number).path)
        for folder in (log, *list(log.parents)[:3]):
            sync(folder)
        with suppress(FileNotFoundError):  # the process that committed the base may not have done so yet
            sync(_file(location, number - 1).path)
    except OSError as error:
        raise StoreError(
            f"{location.name}: version {number} was committed, but the disk does not confirm it: {reason(error)}"
        ) from error


def _write_checkpoint(location: Location, number: int) -> bool:
    """Write the checkpoint of a commit, and wait until both are on the disk; if that fails, warn and return False."""
    from deltalake.exceptions import DeltaError

    try:
        table_at(location, number).create_checkpoint()
        if location.local:
            for name in (f"{number:020}.json", f"{number:020}.checkpoint.parquet", "_last_checkpoint", ""):
                sync(f"{location.path}/{LOG}/{name}")
    except (DeltaError, *READ_ERRORS) as error:
        why = f"version {number} was committed, but not its checkpoint: {reason(error)}"
        _LOGGER.warning("%s: %s; commands take longer until one can be written", location.name, why)
        return False
    return True
