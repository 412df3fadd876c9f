"""Vacuum: delete the files that a store does not need.

Killed updates leave files that no version of the ledger refers to; these are deleted once they are older than a grace
period. With ``keep``, the exact scores of old nights are turned into fixed histograms, which take at most a few
megabytes per night. The exact files are deleted, so that earlier versions of the ledger can no longer be evaluated over
those nights. With ``versions``, versions of the ledger that were replaced longer ago are forgotten, and what only they
need is deleted; with ``forget``, they stay in the list, and their states are deleted.

No update can lose a file to a vacuum that runs at the same time. Files are listed first, then a version is committed,
then the listed files are deleted. An update that published one of them read an earlier version, so its commit is
refused, and it can be run again. An update that begins later publishes its files under new names, which are not listed.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, cast

from streameval.errors import OptionError, StoreError
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import histogram_spec, to_histogram
from streameval.store.files.entries import StoredState
from streameval.store.files.published import PublishedFiles
from streameval.store.nights.open_nights import OPEN, forget_rows
from streameval.store.nights.partitions import day_of
from streameval.store.nights.statements import find_unused, write_all
from streameval.wording import plural, size, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streameval.budget import Budget
    from streameval.states.protocol import StoredSpec
    from streameval.states.scores.counts import ScoreCounts
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import StateFiles

_LOGGER = logging.getLogger(__name__)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class Vacuumed:
    """Outcome of a vacuum.

    Attributes
    ----------
    version : version of the ledger after the vacuum
    deleted, bytes : number and size of the state files that were deleted
    bounded : nights whose scores were turned into histograms
    merged : number of files of merged nights
    forgotten : number of versions of the ledger that were forgotten
    dry_run : whether this is only a forecast
    """

    version: int
    deleted: int
    bytes: int
    bounded: tuple[str, ...]
    merged: int
    forgotten: int = 0
    dry_run: bool = False

    def __str__(self) -> str:
        files = f"{plural(self.deleted, 'file')}{' deleted' * (not self.dry_run)} ({size(self.bytes)})"
        parts = [f"{'would delete ' * self.dry_run}{files}"]
        if self.bounded:
            span = f"{self.bounded[0]} to {self.bounded[-1]}" if len(self.bounded) > 1 else self.bounded[0]
            nights = plural(len(self.bounded), "night")
            parts.append(
                f"{nights} ({span}) would lose exact scores, in earlier versions too; metrics would be intervals"
                if self.dry_run
                else f"{nights} turned into histograms ({span}); metrics of them are intervals now"
            )
        if self.forgotten:
            versions = plural(self.forgotten, "version")
            parts.append(f"would forget {versions}" if self.dry_run else f"{versions} forgotten")
        if self.merged:
            parts.append(f"{plural(self.merged, 'file')} of merged nights")
        return visible(", ".join(parts))


def parse_seconds(text: str, name: str) -> int:
    """Parse a span of time such as ``90d``, ``12h`` or ``0s``, the value of the option `name`, into seconds.

    Raises
    ------
    OptionError
        If the text is not a span of time.

    Examples
    --------
    >>> parse_seconds("90d", "keep"), parse_seconds("12h", "grace")
    (7776000, 43200)
    """
    match = re.fullmatch(r"(\d{1,15})\s*([dhms])", str(text).strip())
    if match is None:
        raise OptionError(f"{name}={text!r} is not a span of time; write for instance 90d or 12h")
    return int(match[1]) * _UNITS[match[2]]


def select_older(entries: Iterable[Entry], keep: str) -> list[Entry]:
    """The nights that are older than the newest night by at least a span.

    Raises
    ------
    OptionError
        If `keep` is not a span, or the name of a partition has no date.
    """
    days = parse_seconds(keep, "keep") // 86_400
    dated = [(entry, day_of(entry.partition, ", so nights cannot be kept by their age")) for entry in entries]
    newest = max((day for _, day in dated), default=date.min)
    return [entry for entry, day in dated if (newest - day).days >= days]


def bound_scores(entry: Entry, specs: Mapping[tuple[str, str], StoredSpec], files: StateFiles, budget: Budget) -> Entry:
    """Turn the exact scores of an entry into histograms, and write these.

    Parameters
    ----------
    entry : Entry
    specs : mapping of (group, column) to Spec
        Columns to turn into histograms; others stay unchanged.
    files : reads and writes the states
    budget : memory budget of the states
    """
    states = []
    for stored in entry.states:
        spec = specs.get((stored.group, stored.of))
        if stored.kind == ScoreSpec.kind and isinstance(spec, ScoreSpec):
            state = to_histogram(cast("ScoreCounts", files.read(stored.file, budget, spec)))
            stored = StoredState(stored.group, stored.of, histogram_spec(spec).kind, *files.write(state))
        states.append(stored)
    return replace(entry, states=tuple(states))


def vacuum(
    context: StoreContext,
    keep: str | None,
    grace: str,
    versions: str | None = None,
    forget: str | None = None,
    *,
    dry_run: bool = False,
) -> Vacuumed:
    """Delete files, turn old scores into histograms, forget versions and merge states; see `Store.vacuum`."""
    now, engine = time.time(), context.engine()
    oldest = now - parse_seconds(grace, "grace")
    before, configuration = context.begun()
    if keep and configuration.design is not None:
        raise OptionError("keep: estimates from sampled labels need exact scores; leave it out (--keep)", "keep")
    old = {entry.partition for entry in select_older(before.entries.values(), keep)} if keep else set[str]()
    snapshot = before
    if versions is not None:
        snapshot = context.ledger.without_versions(before, versions, now - parse_seconds(versions, "versions"))
    forgotten, specs = snapshot.oldest - before.oldest, configuration.specs

    def loses(entry: Entry, state: StoredState) -> bool:
        """Whether a state holds exact scores that are turned into a histogram."""
        exact = state.kind == ScoreSpec.kind and isinstance(specs.get((state.group, state.of)), ScoreSpec)
        return exact and entry.partition in old

    listed = list(snapshot.entries.values())
    entries = [forget_rows(entry) for entry in listed]
    turned = tuple(entry.partition for entry in entries if any(loses(entry, state) for state in entry.states))
    runs, earlier = context.ledger.kept(snapshot)
    if forget is not None:  # the versions stay in the list, without their states
        recent = context.ledger.without_versions(snapshot, forget, now - parse_seconds(forget, "forget"))
        earlier = context.ledger.kept(recent)[1]
    statements = find_unused(entries, configuration, context.files)
    if statements and not dry_run:
        delivered = write_all(statements, configuration.statements, context.files)
        configuration = configuration.delivered(delivered)
    needed = {state.file for entry in entries for state in entry.states if not loses(entry, state)}
    needed |= {*configuration.statements.every_run}
    for entry in earlier:  # whose late labels are not needed: only the newest version is folded again
        kept = [s for s in entry.states if not (s.kind == ScoreSpec.kind and entry.partition in old)]
        needed |= {state.file for state in kept if state.group != OPEN}
    dead = context.files.unneeded(needed, oldest)
    if dry_run:
        return Vacuumed(snapshot.version, len(dead), sum(dead.values()), turned, 0, forgotten, dry_run=True)
    dead_runs = PublishedFiles(context.ledger.location).unneeded(runs, oldest)
    if turned or dead or dead_runs or snapshot != before or statements or entries != listed:
        bounded = [
            bound_scores(e, specs, context.files, engine.budget) if e.partition in turned else e for e in entries
        ]
        action = f"vacuum: {plural(len(dead), 'file')} deleted, {plural(len(turned), 'night')} turned into histograms"
        action += f", {plural(forgotten, 'version')} forgotten" if forgotten else ""
        snapshot = context.commit(snapshot, configuration, bounded, action)
        context.files.delete(dead)
        context.ledger.forget(snapshot, dead_runs)
    merged = context.compact(snapshot, configuration, engine, exact=True)
    context.cache().vacuum(oldest)
    try:
        context.judgements().vacuum(oldest)
    except StoreError as error:  # what the vacuum is about is done
        _LOGGER.warning("%s", error)
    return Vacuumed(snapshot.version, len(dead), sum(dead.values()), turned, merged, forgotten)
