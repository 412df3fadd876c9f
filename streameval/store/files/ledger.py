"""The ledger: the partitions of a store, each with its state files.

It is a Delta table whose version N lists the partitions after commit N, and any version can be evaluated later. A
commit is based on the version that was read, without retries: of two concurrent updates, one is refused and can be run
again.

**A commit writes what it touches.** The rows of a version are in *runs*, each a published file (`entries.SCHEMA`): a
commit adds a run with the partitions that it changes or removes, and the newest row of a partition counts. As in a
log-structured merge tree, the `FAN` newest runs of one order of magnitude are merged in the commit that completes them.
A store of n partitions has at most ``(FAN − 1) · (log n / log FAN + 1)`` runs, a row is written about
``log n / log FAN`` times in all, and reading takes time proportional to the partitions, not to the commits.

The metadata of a commit hold a sealed record: the format, the configuration (columns, policies, key types), the runs of
the version, its time, and the oldest version that is kept. So a checksum covers everything that affects results. Times
increase with versions, whatever the clocks say, so that a time is found by bisection.

Versions are kept until ``vacuum --versions`` forgets those that were replaced longer ago than its span.
"""

from __future__ import annotations

import math
import re
import time as clock
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval import __version__
from streameval.errors import FormatError, OptionError, StoreError
from streameval.scan import READ_ERRORS, natural
from streameval.store.files import delta
from streameval.store.files.entries import SCHEMA, Entry, entries_of, merge_runs, row_of
from streameval.store.files.published import PublishedFiles, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.store.files.location import Location

FORMAT = 1  # version of the record, of the ledger's rows and of the configuration
FAN = 4  # number of runs that are merged into one
_LATEST = 253_402_300_800_000  # milliseconds from 1970 to the year 10,000


@dataclass(frozen=True)
class Run:
    """Rows of one or several commits, in a published file."""

    file: str
    rows: pa.Table = field(repr=False)


@dataclass(frozen=True)
class Snapshot:
    """A version of the ledger.

    Attributes
    ----------
    version : version number; −1 before the first commit
    configuration : configuration of the store, see `streameval.store.nights.configuration`
    entries : the partitions, by name, in the natural order of names
    runs : the runs of rows, oldest first
    when : time of the commit, in milliseconds since 1970
    oldest : number of the oldest version that is kept
    retention : the span of the last ``vacuum --versions``; None if all versions are kept
    """

    version: int = -1
    configuration: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    runs: tuple[Run, ...] = field(default=(), repr=False)
    when: int = 0
    oldest: int = 0
    retention: str | None = None

    @property
    def span(self) -> str:
        """The versions that are kept, in words."""
        policy = "all kept" if self.retention is None else f"kept for {self.retention} once replaced"
        return f"{self.oldest} to {self.version}, {policy}"


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
        self._table = delta.RowTable(location, SCHEMA, delta.KEEP)

    def exists(self) -> bool:
        """Whether there is a ledger; False if that cannot be determined."""
        with suppress(*READ_ERRORS):
            return bool(delta.log_names(self.location))
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
            If there was no such version, or it is no longer kept.
        StoreError
            If the ledger cannot be read, is damaged, or was written by another version of streameval.
        """

        def read() -> Snapshot:
            newest = delta.newest_commit(self.location)
            if newest.version < 0:
                if as_of is not None:
                    raise OptionError(f"as_of={as_of!r}: {self.location.name} does not exist yet")
                return Snapshot()
            record, version = self._record(newest), newest.version
            if as_of is not None:
                version = self._version(version, record["oldest"], as_of)
                record = self._record_of(version)
            runs, entries = self._read_runs(record["runs"])
            facts = {name: record[name] for name in ("when", "oldest", "retention")}
            return Snapshot(version, record["keeps"], entries, runs, **facts)

        return delta.read_again(self.location, read)

    def commit(self, base: Snapshot, keeps: dict[str, object], entries: Iterable[Entry], action: str) -> Snapshot:
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
        by_name = {entry.partition: entry for entry in sorted(entries, key=lambda entry: natural(entry.partition))}
        table = None
        if base.version >= 0:
            if delta.newest_commit(self.location).version != base.version:
                raise delta.newer_version(self.location)
            with delta.reading(self.location):
                table = delta.table_at(self.location, base.version)
        before = base.entries
        new = [e for name, e in by_name.items() if before.get(name) is not e and before.get(name) != e]
        gone = [row_of(entry, removed=True) for name, entry in before.items() if name not in by_name]
        touched = pa.Table.from_pylist([*map(row_of, new), *gone], schema=SCHEMA)
        runs_left, rows = _merge_due_runs(base, touched, len(by_name))
        added = self._table.publish(rows)
        runs = (*runs_left, Run(added["path"], rows))
        when = max(int(clock.time() * 1000), base.when + 1)
        after = Snapshot(base.version + 1, keeps, by_name, runs, when, base.oldest, base.retention)
        record = {"format": FORMAT, "library": __version__, "keeps": keeps, "runs": [run.file for run in runs]}
        record |= {"when": when, "oldest": base.oldest, "retention": base.retention}
        facts = {"streameval": seal(record), "action": action}
        removed = [run.file for run in base.runs[len(runs_left) :]]
        self._table.commit(table, added, facts, removed)
        return after

    def versions(self) -> list[dict[str, Any]]:
        """All versions that are kept, newest first: number, time of the commit, and description of the change."""

        def read() -> list[dict[str, Any]]:
            newest = delta.newest_commit(self.location)
            oldest = 0 if newest.version < 0 else self._record(newest)["oldest"]
            commits = (self._commit(number) for number in range(newest.version, oldest - 1, -1))
            return [
                {"version": one.version, "when": _when(self._record(one)), "action": one.facts.get("action")}
                for one in commits
            ]

        return delta.read_again(self.location, read)

    def without_versions(self, snapshot: Snapshot, retention: str, until: float) -> Snapshot:
        """The snapshot to commit to forget the versions that were replaced before a time, in seconds since 1970."""
        oldest = max(snapshot.oldest, self._at_time(snapshot.version, snapshot.oldest, until * 1000))
        return replace(snapshot, oldest=oldest, retention=retention)

    def kept(self, snapshot: Snapshot) -> tuple[set[str], Iterator[Entry]]:
        """The runs of all versions from the oldest of a snapshot on, and their entries; some come several times.

        What a version has and the one before it has not is in its newest run.
        """
        numbers = range(snapshot.oldest, snapshot.version + 1)
        runs = [self._record_of(number)["runs"] for number in numbers]
        newer = (entry for names in runs[1:] for entry in self._read_runs(names[-1:])[1].values())
        return {name for names in runs for name in names}, chain(self.read(snapshot.oldest).entries.values(), newer)

    def forget(self, snapshot: Snapshot, files: Iterable[str]) -> None:
        """Delete files, and the commits before the oldest version of a snapshot; it must have been committed."""
        PublishedFiles(self.location).delete(files)
        with delta.reading(self.location):
            if delta.commit_numbers(self.location)[0] < snapshot.oldest:
                delta.forget_commits(self.location, snapshot.oldest)

    def _read_runs(self, names: Sequence[str]) -> tuple[tuple[Run, ...], dict[str, Entry]]:
        """Runs, oldest first, and their entries; raises `StoreError` if one cannot be read."""
        with delta.reading(self.location):
            runs = tuple(Run(name, delta.read_rows(self.location, [name], SCHEMA)) for name in names)
            return runs, entries_of([run.rows for run in runs])

    def _commit(self, version: int) -> delta.Commit:
        """The commit of a version; raises `StoreError` if it cannot be read."""
        with delta.reading(self.location):
            commit = delta.read_commit(self.location, version)
        if commit is None:
            raise StoreError(f"{self.location.name}: version {version} is empty or cut off; read another one")
        return commit

    def _record_of(self, version: int) -> dict[str, Any]:
        """The verified record of a version."""
        return self._record(self._commit(version))

    def _record(self, commit: delta.Commit) -> dict[str, Any]:
        """The verified record of a commit.

        Raises
        ------
        StoreError
            If the record is missing, damaged, or of another format.
        """
        sealed = commit.facts.get("streameval")
        if sealed is None:
            raise StoreError(
                f"{self.location.name}: its last commit is not streameval's; restore the version before it"
            )
        try:
            record = unseal(sealed)
            number, library = record["format"], record["library"]
        except (KeyError, FormatError):
            raise StoreError(
                f"{self.location.name}: the record of its last commit is damaged; restore it from a copy"
            ) from None
        if number != FORMAT or not _is_record(record):
            what, remedy = f"format {number}", "upgrade it"
            if number in range(FORMAT + 1):
                what, remedy = "an earlier format", "create a new store with update"
            raise StoreError(
                f"{self.location.name}: is of {what}, written by streameval {library}; "
                f"streameval {__version__} reads format {FORMAT}: {remedy}"
            )
        return record

    def _version(self, newest: int, oldest: int, as_of: str | int | date) -> int:
        """The number of the version that `as_of` names or that was the newest at that time."""
        text = str(as_of)
        by_number = re.fullmatch(r"\d{1,9}", text)
        version = int(text) if by_number else self._at_time(newest, oldest, _parse_time(text).timestamp() * 1000)
        if version > newest:
            raise OptionError(f"as_of={as_of!r}: the newest version is {newest}; info --versions lists all")
        if version < oldest:
            first = f"{_when(self._record_of(oldest)):%Y-%m-%dT%H:%MZ}"
            why = f"the oldest version that is kept is {oldest}, of {first}"
            raise OptionError(f"as_of={as_of!r}: {why if oldest else f'the store was created later, at {first}'}")
        return version

    def _at_time(self, newest: int, oldest: int, when: float) -> int:
        """The number of the version that was the newest before a time (milliseconds since 1970)."""
        numbers = range(oldest, newest + 1)
        return oldest - 1 + bisect_left(numbers, when, key=lambda number: self._record_of(number)["when"])


def _merge_due_runs(base: Snapshot, rows: pa.Table, live: int) -> tuple[tuple[Run, ...], pa.Table]:
    """The runs of a snapshot that stay, and the rows of the new run: those touched, and the runs that are due to merge.

    `FAN` runs are merged once none is of a higher order of magnitude than the newest; all runs, once there are as many
    outdated rows as partitions.
    """
    runs, merged = base.runs, rows
    if sum(run.rows.num_rows for run in runs) + rows.num_rows > 2 * max(live, FAN):
        merged = merge_runs([*(run.rows for run in runs), rows], whole=True)
        runs = ()
    while True:
        levels = [_level(run.rows) for run in reversed(runs)]
        count = len(list(takewhile(_level(merged).__ge__, levels)))
        if count + 1 < FAN:
            return runs, merged
        runs, due = runs[:-count], [run.rows for run in runs[-count:]]
        merged = merge_runs([*due, merged], whole=not runs)


def _level(rows: pa.Table) -> int:
    """The order of magnitude of the number of rows, to the base `FAN`."""
    return int(math.log(max(rows.num_rows, 1), FAN) + 1e-9)


def _is_record(record: dict[str, Any]) -> bool:
    """Whether a record has everything that this format has."""
    keeps, names, counts = record.get("keeps"), record.get("runs"), (record.get("when"), record.get("oldest"))
    return (
        isinstance(keeps, dict)
        and all(isinstance(keeps.get(name), dict) for name in ("options", "types"))
        and isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and all(type(count) is int and 0 <= count < _LATEST for count in counts)
        and isinstance(record.get("retention"), str | None)
    )


def _when(record: dict[str, Any]) -> datetime:
    """The time of a commit, UTC."""
    return datetime.fromtimestamp(record["when"] / 1000, UTC)


def _parse_time(text: str) -> datetime:
    """Parse a time; the result is just after it, and for a date the end of the day (UTC by default).

    Raises
    ------
    OptionError
        If the text is neither a date nor a time.
    """
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.combine(date.fromisoformat(text), time(), UTC) + timedelta(days=1)
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC) + timedelta(microseconds=1)
    except ValueError:
        raise OptionError(f"as_of={text!r} must be a version, a date such as 2026-01-14, or a time") from None
    except OverflowError:  # the last day of the calendar
        return datetime.max.replace(tzinfo=UTC)
