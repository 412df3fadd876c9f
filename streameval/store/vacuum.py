"""Vacuum: what a store can do without.

Files that no version of the ledger names are what killed updates left behind; they are deleted once they are older than
any update may take. With ``keep``, the exact scores of older nights are turned into fixed histograms, which take some
megabytes a night at most, whatever its rows; the exact files are deleted, so that earlier versions of the ledger cannot
be evaluated over those nights any more.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.to_histogram import histogram_spec, to_histogram
from streameval.store.files.ledger import StoredState
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.partitions import moment
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streameval.budget import Budget
    from streameval.store.context import StoreContext
    from streameval.store.files.ledger import Entry
    from streameval.store.files.states import StateFiles

__all__ = ["Vacuumed", "bound", "older", "seconds", "vacuum"]

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class Vacuumed:
    """What a vacuum did.

    Attributes
    ----------
    version : version of the ledger after it
    deleted, bytes : state files deleted, and their size
    bounded : nights whose scores were turned into histograms
    runs : files of merged nights there are
    """

    version: int
    deleted: int
    bytes: int
    bounded: tuple[str, ...]
    runs: int

    def __str__(self) -> str:
        parts = [f"{plural(self.deleted, 'file')} deleted ({self.bytes / 1e6:,.1f} MB)"]
        if self.bounded:
            span = f"{self.bounded[0]} to {self.bounded[-1]}" if len(self.bounded) > 1 else self.bounded[0]
            nights = plural(len(self.bounded), "night")
            parts.append(f"{nights} turned into histograms ({span}); metrics of them are intervals now")
        if self.runs:
            parts.append(f"{plural(self.runs, 'file')} of merged nights")
        return ", ".join(parts)


def seconds(text: str) -> int:
    """A span of time such as ``90d``, ``12h`` or ``0s`` in seconds.

    Examples
    --------
    >>> seconds("90d"), seconds("12h")
    (7776000, 43200)
    """
    found = re.fullmatch(r"(\d+)\s*([dhms])", str(text).strip())
    if found is None:
        msg = f"{text!r} is no span of time; write for instance 90d or 12h"
        raise OptionError(msg)
    return int(found[1]) * _UNITS[found[2]]


def older(entries: Iterable[Entry], keep: str) -> list[Entry]:
    """The nights that are further back than a span from the newest night.

    Raises
    ------
    OptionError
        If a partition's name holds no date.
    """
    dated = {entry: _date(entry.partition) for entry in entries}
    limit = max(dated.values(), default=date.min) - timedelta(seconds=seconds(keep))
    return [entry for entry, when in dated.items() if when <= limit]


def _date(name: str) -> date:
    """The date of a partition."""
    try:
        year, month, day = moment(name)
        return date(year, month, day)
    except ValueError:
        msg = f"{name}: there is no date in this partition's name, so nights cannot be kept by their age"
        raise OptionError(msg) from None


def bound(entry: Entry, specs: Mapping[tuple[str, str], Any], files: StateFiles, budget: Budget) -> Entry:
    """The entry with histograms for exact scores, whose files are written.

    Parameters
    ----------
    entry : Entry
    specs : mapping of (group, column) to Spec
        Columns that are to be bounded.
    files, budget : what reads and writes states
    """
    states = []
    for kept in entry.states:
        if kept.kind == ScoreSpec.kind and (kept.group, kept.of) in specs:
            spec = specs[kept.group, kept.of]
            state = to_histogram(files.read(kept.file, budget, spec))
            kept = StoredState(kept.group, kept.of, histogram_spec(spec).kind, *files.write(state))
        states.append(kept)
    return replace(entry, states=tuple(states))


def vacuum(opened: StoreContext, keep: str | None, grace: str) -> Vacuumed:
    """Delete, bound and merge; see `Store.vacuum`."""
    wait, snapshot, engine = seconds(grace), opened.begun(), opened.engine()
    old = {entry.partition for entry in older(snapshot.entries.values(), keep)} if keep else set()
    configuration = Configuration.read(snapshot.configuration)
    specs = configuration.specs(list(snapshot.entries))
    entries = [
        bound(entry, specs, opened.files, engine.budget) if entry.partition in old else entry
        for entry in snapshot.entries.values()
    ]
    turned = tuple(entry.partition for entry in entries if entry != snapshot.entries[entry.partition])
    if turned:
        action = f"{plural(len(turned), 'night')} turned into histograms"
        before, snapshot = snapshot, opened.ledger.commit(snapshot, snapshot.configuration, entries, action)
        opened.derive(before, snapshot, configuration, {})
    runs = opened.compact(snapshot, configuration, engine, exact=True)
    needed, now = _needed(opened, old), time.time()
    dead = {n: size for n, size, when in opened.files.list() if n not in needed and now - when >= wait}
    opened.files.delete(dead)
    return Vacuumed(snapshot.version, len(dead), sum(dead.values()), turned, runs)


def _needed(opened: StoreContext, old: set[str]) -> set[str]:
    """State files that a version names, without the exact scores of old nights."""
    needed = set()
    for fact in opened.ledger.versions():
        for name, entry in opened.ledger.read(fact["version"]).entries.items():
            needed |= {s.file for s in entry.states if not (name in old and s.kind == "score_counts")}
    return needed
