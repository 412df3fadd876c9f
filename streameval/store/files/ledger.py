"""The ledger: which partitions count, each with which state files. It alone is the truth of a store.

It is a Delta table with one row a partition. Every update overwrites the rows in one commit, so that version N of the
table is the list of partitions that counted after update N, and any version can be looked at later. A commit is made
against the version that was read, without retries: of two updates at once, one is refused and can be run again. What a
store keeps of its data (columns, policies, key types) stands in the commit beside the rows.

Old versions cost a few kilobytes each and are never cleaned away by Delta's own retention.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval._version import __version__
from streameval.errors import OptionError, StoreError
from streameval.store.files.delta import KEEP, clear, commit_table, open_table, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltalake import DeltaTable

    from streameval.store.files.location import Location

__all__ = ["FORMAT", "Entry", "Ledger", "Snapshot", "StoredState"]

FORMAT = 1  # version of the ledger's rows and of the configuration
_STATE = pa.struct(
    [
        pa.field("group", pa.string()),
        pa.field("of", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("file", pa.string()),
        pa.field("bytes", pa.int64()),
    ]
)
_SCHEMA = pa.schema(
    {
        "partition": pa.string(),
        "root": pa.string(),
        "fingerprint": pa.string(),
        "files": pa.int64(),
        "bytes": pa.int64(),
        "rows": pa.int64(),
        "labels": pa.string(),
        "states": pa.list_(_STATE),
        "updated": pa.timestamp("us", "UTC"),
    }
)


@dataclass(frozen=True)
class StoredState:
    """A state of a partition.

    Attributes
    ----------
    group, of : ``score``, ``cluster`` or ``classes``, and the column
    kind : of the state, such as ``score_counts``
    file : name of the state file
    bytes : its size
    """

    group: str
    of: str
    kind: str
    file: str
    bytes: int


@dataclass(frozen=True)
class Entry:
    """A partition that counts: a row of the ledger.

    Attributes
    ----------
    partition : its name, such as ``night=2026-01-15``
    root : directory that the name is relative to
    fingerprint : hash of the names, sizes and times of its files
    files, bytes : how many they are, and their size
    rows : rows in them
    labels : the state of the labels, as JSON
    states : the others, in files
    updated : when it was folded
    """

    partition: str
    root: str
    fingerprint: str
    files: int
    bytes: int
    rows: int
    labels: str
    states: tuple[StoredState, ...]
    updated: datetime

    def state(self, group: str, of: str) -> StoredState | None:
        """The state of a column, if there is one."""
        for kept in self.states:
            if kept.of == of and kept.group == group:
                return kept
        return None


@dataclass(frozen=True)
class Snapshot:
    """A version of the ledger.

    Attributes
    ----------
    version : its number, −1 before the first commit
    configuration : what the store keeps, as `streameval.store.nights.configuration` reads it
    entries : the partitions that count, by name
    rows : the same as a table
    table : the Delta table at this version
    """

    version: int = -1
    configuration: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    rows: pa.Table = field(default_factory=_SCHEMA.empty_table, repr=False)
    table: Any = field(default=None, repr=False)


class Ledger:
    """The ledger of a store.

    Parameters
    ----------
    place : Place
        Its directory.

    Examples
    --------
    >>> import tempfile
    >>> from streameval.store.files.location import Location
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Location.of(folder).child("ledger"))
    ...     first = ledger.commit(ledger.read(), {"label": "spam"}, [], "update")
    ...     ledger.read().version, ledger.read().configuration["label"]
    (0, 'spam')
    """

    def __init__(self, place: Location) -> None:
        self.place = place

    def read(self, as_of: str | int | date | None = None) -> Snapshot:
        """The newest version, or one that was the newest at a time.

        Parameters
        ----------
        as_of : str or int, optional
            A version, or a date (to its end, UTC) or time in ISO format.

        Raises
        ------
        OptionError
            If there was no such version.
        StoreError
            If the ledger cannot be read, or is of a later version of streameval.
        """
        table = open_table(self.place)
        if table is None:
            if as_of is not None:
                msg = f"as_of={as_of!r}: {self.place.name} is not there yet"
                raise OptionError(msg)
            return Snapshot()
        if as_of is not None:
            version = self._version(table, as_of)
            with clear(self.place):
                table.load_as_version(version)
        own = _commits(table, self.place, 1)[-1]  # deltalake lists all from the newest to the one that is loaded
        said = own.get("streameval")
        if said is None:
            msg = f"{self.place.name}: its last commit is not streameval's; restore the version before it"
            raise StoreError(msg)
        configuration = json.loads(said)
        if configuration["format"] != FORMAT:
            msg = (
                f"{self.place.name}: is of format {configuration['format']}, written by streameval "
                f"{configuration['library']}; streameval {__version__} reads format {FORMAT}: upgrade it"
            )
            raise StoreError(msg)
        rows = read_rows(table, self.place, _SCHEMA)
        return Snapshot(table.version(), configuration["keeps"], _entries(rows), rows, table)

    def commit(self, base: Snapshot, keeps: dict[str, Any], entries: Iterable[Entry], action: str) -> Snapshot:
        """Make these the partitions that count.

        Parameters
        ----------
        base : Snapshot
            What was read; the commit is refused unless it is still the newest version.
        keeps : dict
            The configuration.
        entries : iterable of Entry
        action : str
            What was done, for people.

        Raises
        ------
        StoreError
            If another update was committed meanwhile.
        """
        found = {entry.partition: entry for entry in entries}
        rows = _changed(base, found)
        said = json.dumps({"format": FORMAT, "library": __version__, "keeps": keeps})
        facts = {"streameval": said, "action": action}
        table = commit_table(self.place, base.table, rows, facts, "the partitions of a streameval store", KEEP)
        return Snapshot(table.version(), keeps, found, rows, table)

    def versions(self) -> list[dict[str, Any]]:
        """Every version, newest first: its number, when it was committed, and what was done."""
        table = open_table(self.place)
        return [
            {"version": fact["version"], "when": _when(fact), "action": fact.get("action", fact.get("operation"))}
            for fact in ([] if table is None else _commits(table, self.place))
        ]

    def _version(self, table: DeltaTable, as_of: str | int | date) -> int:
        """The version of a number or time."""
        text = str(as_of)
        if re.fullmatch(r"\d{1,9}", text):
            if int(text) > table.version():
                msg = f"as_of={as_of!r}: the newest version of {self.place.name} is {table.version()}"
                raise OptionError(msg)
            return int(text)
        until = _moment(text)
        known = [(_when(fact), fact["version"]) for fact in _commits(table, self.place)]
        before = [version for when, version in known if when < until]
        if not before:
            msg = f"as_of={as_of!r}: the store was begun later, at {min(known)[0]:%Y-%m-%d %H:%M} UTC"
            raise OptionError(msg)
        return int(max(before))


def _commits(table: DeltaTable, place: Location, limit: int | None = None) -> list[dict[str, Any]]:
    """What the commits say, newest first.

    Of all of them the numbers are counted from the oldest, which is kept: deltalake counts down from the version it has
    loaded, also where there are newer ones.
    """
    with clear(place):
        facts = list(table.history(limit))
    if limit is None:
        facts = [fact | {"version": len(facts) - 1 - i} for i, fact in enumerate(facts)]
    return facts


def _row(entry: Entry) -> dict[str, Any]:
    """The row of an entry."""
    return vars(entry) | {"states": [vars(state) for state in entry.states]}


def _changed(base: Snapshot, entries: dict[str, Entry]) -> pa.Table:
    """The rows of entries: those of a snapshot, where they are the same."""
    new = [_row(entry) for name, entry in entries.items() if base.entries.get(name) is not entry]
    rows = pa.concat_tables([base.rows, pa.Table.from_pylist(new, schema=_SCHEMA)])
    place = {name: i for i, name in enumerate(rows["partition"].to_pylist())}
    return rows.take(pa.array([place[name] for name in entries], pa.int64()))


def _entries(rows: pa.Table) -> dict[str, Entry]:
    """The entries of rows by name, made column by column: every verb begins with it."""
    columns = {name: rows[name].to_pylist() for name in rows.column_names if name not in ("states", "updated")}
    lists = rows["states"].combine_chunks()
    kept = list(map(StoredState, *(facts.to_pylist() for facts in lists.values.flatten())))
    columns["states"] = [tuple(kept[a:b]) for a, b in pairwise(lists.offsets.to_pylist())]
    columns["updated"] = [when.replace(tzinfo=UTC) for when in rows["updated"].to_numpy().tolist()]
    found = map(Entry, *(columns[name] for name in rows.column_names))
    return {entry.partition: entry for entry in found}


def _when(fact: dict[str, Any]) -> datetime:
    """When a commit was made."""
    return datetime.fromtimestamp(fact["timestamp"] / 1000, UTC)


def _moment(text: str) -> datetime:
    """The time that a text means; a date is its end."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.combine(date.fromisoformat(text), time(), UTC) + timedelta(days=1)
        found = datetime.fromisoformat(text)
    except ValueError:
        msg = f"as_of={text!r} must be a version, a date such as 2026-01-14, or a time"
        raise OptionError(msg) from None
    return found.replace(tzinfo=found.tzinfo or UTC) + timedelta(microseconds=1)
