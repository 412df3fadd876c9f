"""Open nights of a store, whose rows wait for late labels, and which nights are closed.

If an open night has the id of a new statement, its labelled rows (`streameval.store.nights.open_rows`) are folded anew
by the ordinary builders into the states that depend on labels (those that also count the other rows take every row):
the result equals a fold of the joined files, in whatever order nights and labels arrived. Nothing is added to states or
subtracted.

A night that is older than the newest by the span `labels_open` is closed by the next commit, and `vacuum` deletes its
rows. If the newest night is removed before, the nights that it closed are opened again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from streameval.store.nights.open_rows import INDEX, LABELLED, OPEN, ROWS
from streameval.store.nights.partitions import day_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date

    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration

_CLOSED = {"closed ids": INDEX, "closed labelled": LABELLED, "closed rows": ROWS}  # the files of a closed night
GAP = 8  # days: a night that is later than this after the one before it closes no other


def newest_day(names: Iterable[str], today: date | None = None) -> int:
    """The newest night as `date.toordinal`, today if there is none; those in the future or after a gap do not count.

    Of a version of the store, `today` is the day of its commit.

    Raises
    ------
    OptionError
        If the name of a night has no date.
    """
    days = sorted({day_of(name, ", so it cannot be closed for late labels by its age").toordinal() for name in names})
    last = (datetime.now(UTC).date() if today is None else today).toordinal()
    near = [later for earlier, later in pairwise(days) if later - earlier <= GAP and later <= last]
    return max([*days[:1], *near], default=last)


def find_ahead(names: Iterable[str], new: Iterable[str]) -> list[str]:
    """The new nights that are later than the newest one that counts, so that they close no others."""
    newest = newest_day(names)
    return [name for name in new if day_of(name, "").toordinal() > newest]


def find_closing(entries: Collection[Entry], configuration: Configuration, newest: int | None = None) -> list[Entry]:
    """The open nights that are older than the newest, by default of all these, by the span of open ones."""
    recent = find_recent([entry.partition for entry in entries], configuration, newest)
    return [entry for entry in entries if entry.state(OPEN, "") and entry.partition not in recent]


def find_recent(names: Collection[str], configuration: Configuration, newest: int | None = None) -> set[str]:
    """The nights that are not older than the newest by the span of open ones; empty without late labels."""
    if configuration.late is None or not names:
        return set()
    newest = newest_day(names) if newest is None else newest
    return {name for name in names if day_of(name, "").toordinal() >= newest - open_days(configuration)}


def open_days(configuration: Configuration) -> int:
    """The span of open nights."""
    return int(configuration.options["labels_open"][:-1])


def close_night(entry: Entry) -> Entry:
    """A night that is closed; the files of its rows are those of no column until vacuum deletes them."""
    return _rename(entry, {rows: closed for closed, rows in _CLOSED.items()})


def find_reopening(entries: Collection[Entry], configuration: Configuration) -> list[Entry]:
    """The nights, open again, that were closed by one that is no longer there, and whose rows were not deleted."""
    reopened = [_rename(e, _CLOSED) for e in entries if e.state(OPEN, min(_CLOSED))]
    if configuration.late is None or not reopened:
        return []
    names = {entry.partition for entry in entries}
    closing = {e.partition for e in find_closing(reopened, configuration, newest_day(names))}
    return [entry for entry in reopened if entry.partition not in closing]


def forget_rows(entry: Entry) -> Entry:
    """A night without the rows that it had when it was closed."""
    return replace(entry, states=tuple(s for s in entry.states if s.group != OPEN or s.of not in _CLOSED))


def _rename(entry: Entry, names: Mapping[str, str]) -> Entry:
    states = (replace(s, of=names.get(s.of, s.of)) if s.group == OPEN else s for s in entry.states)
    return replace(entry, states=tuple(states))
