"""The ledger: the partitions of a store, each with its state files.

It is a Delta table with one row per partition. Every update overwrites the rows in one commit, so that version N of the
table lists the partitions after update N, and any version can be evaluated later. A commit is based on the version that
was read, without retries: of two concurrent updates, one is refused and can be run again.

The metadata of a commit hold a sealed record: the format, the configuration (columns, policies, key types) and the name
of the published file with the rows. So a checksum covers everything that affects results. Commits of early stores have
neither checksum nor published file; they are read without verification until the next update.

Old versions take a few kilobytes each; Delta's retention never removes them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streameval._version import __version__
from streameval.errors import FormatError, OptionError, StoreError
from streameval.scan import READ_ERRORS
from streameval.store.files.delta import KEEP, commit, commits, data_files, open_table, publish_rows, read_rows, reading
from streameval.store.files.entries import SCHEMA, Entry, entries_of, row_of
from streameval.store.files.published import sealed, unsealed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltalake import DeltaTable

    from streameval.store.files.location import Location

__all__ = ["FORMAT", "Ledger", "Snapshot"]

FORMAT = 1  # version of the ledger's rows and of the configuration
_LATER = {"facts": "{}"}  # columns that early ledgers lack, with default values


@dataclass(frozen=True)
class Snapshot:
    """A version of the ledger.

    Attributes
    ----------
    version : version number; −1 before the first commit
    configuration : configuration of the store, see `streameval.store.nights.configuration`
    entries : the partitions, by name
    rows : the partitions as a table
    table : the Delta table at this version; None before the first commit, and for a snapshot just committed
    """

    version: int = -1
    configuration: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    rows: pa.Table = field(default_factory=SCHEMA.empty_table, repr=False)
    table: Any = field(default=None, repr=False)


class Ledger:
    """The ledger of a store.

    Parameters
    ----------
    location : Location
        Directory of the table.

    Examples
    --------
    >>> import tempfile
    >>> from streameval.store.files.location import Location
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Location.of(folder).child("ledger"))
    ...     first = ledger.commit(ledger.read(), {"options": {"label": "spam"}, "types": {}}, [], "update")
    ...     ledger.read().version, ledger.read().configuration["options"]
    (0, {'label': 'spam'})
    """

    def __init__(self, location: Location) -> None:
        self.location = location

    def exists(self) -> bool:
        """Whether there is a ledger; False if that cannot be determined."""
        from pyarrow import fs

        log = self.location.child("_delta_log")
        try:
            return bool(log.filesystem.get_file_info(log.path).type == fs.FileType.Directory)
        except READ_ERRORS:
            return False

    def read(self, as_of: str | int | date | None = None) -> Snapshot:
        """Read the newest version, a given version, or the one that was newest at a given time.

        Parameters
        ----------
        as_of : str, int or date, optional
            A version number, a date (its end, UTC), or a time in ISO format.

        Raises
        ------
        OptionError
            If there was no such version.
        StoreError
            If the ledger cannot be read, is damaged, or was written by a later version of streameval.
        """
        table = open_table(self.location)
        if table is None:
            if as_of is not None:
                msg = f"as_of={as_of!r}: {self.location.name} does not exist yet"
                raise OptionError(msg)
            return Snapshot()
        if as_of is not None:
            version = self._version(table, as_of)
            with reading(self.location):
                table.load_as_version(version)
        record = self._record(commits(table, self.location, 1)[-1])  # deltalake begins at the newest
        try:
            with reading(self.location):
                rows = self._rows(table, record.get("rows"))
                return Snapshot(table.version(), record["keeps"], entries_of(rows), rows, table)
        except FormatError as error:
            msg = f"{self.location.name}: cannot be read: {error}; restore it from a copy"
            raise StoreError(msg) from error

    def commit(self, base: Snapshot, keeps: dict[str, Any], entries: Iterable[Entry], action: str) -> Snapshot:
        """Commit a new version with these partitions.

        Parameters
        ----------
        base : Snapshot
            The snapshot that was read; the commit is refused unless it is still the newest version.
        keeps : dict
            The configuration.
        entries : iterable of Entry
        action : str
            Description of the change, for users.

        Raises
        ------
        StoreError
            If another update was committed meanwhile, or the ledger cannot be written.
        """
        found = {entry.partition: entry for entry in entries}
        rows = _changed(base, found)
        added = publish_rows(self.location, rows)
        record = {"format": FORMAT, "library": __version__, "keeps": keeps, "rows": added["path"]}
        facts = {"streameval": sealed(record), "action": action}
        commit(self.location, base.table, added, SCHEMA, facts, KEEP, "error" if base.version < 0 else "overwrite")
        return Snapshot(base.version + 1, keeps, found, rows)

    def versions(self) -> list[dict[str, Any]]:
        """All versions, newest first: number, time of the commit, and description of the change."""
        table = open_table(self.location)
        with reading(self.location):
            return [
                {"version": fact["version"], "when": _when(fact), "action": fact.get("action", fact.get("operation"))}
                for fact in ([] if table is None else commits(table, self.location))
            ]

    def _record(self, fact: dict[str, Any]) -> dict[str, Any]:
        """The verified record of a commit.

        Raises
        ------
        StoreError
            If the record is missing, damaged, or of another format.
        """
        said = fact.get("streameval")
        if said is None:
            msg = f"{self.location.name}: its last commit is not streameval's; restore the version before it"
            raise StoreError(msg)
        try:
            record = json.loads(said)
            if "sha256" in record or "rows" in record:  # the record of an early store has neither
                record = unsealed(said)
            number, library, kept = record["format"], record["library"], record["keeps"]
            if number == FORMAT and not all(isinstance(kept[name], dict) for name in ("options", "types")):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError, FormatError):
            msg = f"{self.location.name}: the record of its last commit is damaged; restore it from a copy"
            raise StoreError(msg) from None
        if number != FORMAT:
            msg = (
                f"{self.location.name}: is of format {number}, written by streameval {library}; "
                f"streameval {__version__} reads format {FORMAT}: upgrade it"
            )
            raise StoreError(msg)
        return dict(record)

    def _rows(self, table: DeltaTable, published: str | None) -> pa.Table:
        """The rows of a version, from its published file, or from the files of an early store without checksums."""
        if published is not None:
            return _whole(read_rows(self.location, [published]))
        names = data_files(table)
        outside = [name for name in names if PurePosixPath(name).name != name]
        if outside:
            msg = f"{outside[0]!r} is outside the ledger and was not opened"
            raise FormatError(msg)
        contents = [pa.BufferReader(self.location.child(name).read()) for name in names]
        return pa.concat_tables([SCHEMA.empty_table(), *(_whole(pq.ParquetFile(file).read()) for file in contents)])

    def _version(self, table: DeltaTable, as_of: str | int | date) -> int:
        """The number of the version that `as_of` names or that was the newest at that time."""
        text = str(as_of)
        if re.fullmatch(r"\d{1,9}", text):
            if int(text) > table.version():
                msg = f"as_of={as_of!r}: the newest version of {self.location.name} is {table.version()}"
                raise OptionError(msg)
            return int(text)
        until = _moment(text)
        with reading(self.location):
            known = [(_when(fact), fact["version"]) for fact in commits(table, self.location)]
        before = [version for when, version in known if when < until]
        if not before:
            msg = f"as_of={as_of!r}: the store was created later, at {min(known)[0]:%Y-%m-%dT%H:%MZ}"
            raise OptionError(msg)
        return int(max(before))


def _whole(rows: pa.Table) -> pa.Table:
    """Add the columns that early ledgers lack."""
    for name, value in _LATER.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.string()))
    return rows.cast(SCHEMA)


def _changed(base: Snapshot, entries: dict[str, Entry]) -> pa.Table:
    """The rows of entries; unchanged ones are taken from the snapshot."""
    new = [row_of(entry) for name, entry in entries.items() if base.entries.get(name) is not entry]
    rows = pa.concat_tables([base.rows, pa.Table.from_pylist(new, schema=SCHEMA)])
    place = {name: i for i, name in enumerate(rows["partition"].to_pylist())}
    return rows.take(pa.array([place[name] for name in entries], pa.int64()))


def _when(fact: dict[str, Any]) -> datetime:
    """The time of a commit, UTC."""
    return datetime.fromtimestamp(fact["timestamp"] / 1000, UTC)


def _moment(text: str) -> datetime:
    """Parse a time; the result is just after it, and for a date the end of the day (UTC by default).

    Raises
    ------
    OptionError
        If the text is neither a date nor a time.
    """
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.combine(date.fromisoformat(text), time(), UTC) + timedelta(days=1)
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or UTC) + timedelta(microseconds=1)
    except ValueError:
        msg = f"as_of={text!r} must be a version, a date such as 2026-01-14, or a time"
        raise OptionError(msg) from None
    except OverflowError:  # the last day of the calendar
        return datetime.max.replace(tzinfo=UTC)
