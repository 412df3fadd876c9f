"""Opened: a store's parts, and the run that its verbs share."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streameval.engine.threads import ThreadEngine
from streameval.errors import FormatError, StoreError
from streameval.scan import READ_ERRORS
from streameval.store.files.compaction import Compaction
from streameval.store.files.ledger import Ledger
from streameval.store.files.states import StateFiles
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.merge import columns_kept
from streameval.store.nights.workers import Workers
from streameval.store.results.cache import ResultCache
from streameval.store.results.history import Series
from streameval.store.results.nightly import MetricSeries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from streameval.engine import Engine
    from streameval.evaluation.result import Evaluation
    from streameval.store.files.ledger import Snapshot
    from streameval.store.files.location import Location

__all__ = ["StoreContext"]


class StoreContext:
    """The parts of a store.

    Parameters
    ----------
    place : Place
    client : distributed.Client, the address of a scheduler, or None
    run : mapping
        ``memory, spill, threads, progress`` of every run.
    """

    def __init__(self, place: Location, client: Any, run: Mapping[str, Any]) -> None:
        self.place = place
        self.client = client
        self.run = run
        self.ledger = Ledger(place.child("ledger"))
        self.files = StateFiles(place.child("states"))
        self.runs = Compaction(place.child("merged"), self.files)
        self.remembered = ResultCache(place.child("results"))

    def engine(self) -> ThreadEngine:
        """An engine for one run in this process."""
        return ThreadEngine.start(**self.run)

    def workers(self) -> Workers | None:
        """What folds partitions elsewhere, where there is a client; an address is connected to once."""
        found = Workers.of(self.client, self.run["threads"], self.run["memory"], self.run["spill"])
        if found is not None and isinstance(self.client, str):
            self.client = found.connection.client
        return found

    def begun(self, as_of: str | int | date | None = None) -> Snapshot:
        """The snapshot of a store that is there.

        Raises
        ------
        StoreError
            If there is none.
        """
        snapshot = self.ledger.read(as_of)
        if snapshot.version < 0:
            msg = f"{self.place.name}: there is no store; begin it with update"
            raise StoreError(msg)
        return snapshot

    def nightly(self, snapshot: Snapshot, configuration: Configuration | None = None) -> MetricSeries:
        """What is kept of every night."""
        configuration = configuration or Configuration.read(snapshot.configuration)
        engine = ThreadEngine.start(**{**self.run, "progress": None})
        return MetricSeries(snapshot, configuration, engine, self.runs, Series(self.place.child("history")))

    def compact(self, snapshot: Snapshot, configuration: Configuration, engine: Engine, *, exact: bool) -> int:
        """Merge the states of nights into runs; see `Compaction.compact`."""
        columns = columns_kept(list(snapshot.entries.values()), configuration)
        return self.runs.compact(columns, engine, exact=exact)

    def derive(
        self,
        before: Snapshot,
        snapshot: Snapshot,
        configuration: Configuration,
        own: Mapping[str, Evaluation | None],
    ) -> None:
        """Bring up to a commit what is made of it: the results of the nights, with those at hand, and their runs.

        Both can be made again, so that a failure changes no number, and is no failure of the update.
        """
        nightly = self.nightly(snapshot, configuration)
        for name, evaluation in own.items():
            if evaluation is not None:
                nightly.record(name, evaluation)
        nightly.write(before)
        with suppress(FormatError, StoreError, *READ_ERRORS):
            self.compact(snapshot, configuration, nightly.engine, exact=False)
