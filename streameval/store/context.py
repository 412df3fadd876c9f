"""An open store: its parts, and the run options that its verbs share."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from streameval.engine import Engine, on_cluster
from streameval.engine.threads import ThreadEngine
from streameval.errors import FormatError, StoreError
from streameval.scan import READ_ERRORS
from streameval.store.files.compaction import Compaction
from streameval.store.files.ledger import Ledger, Snapshot
from streameval.store.files.published import StateFiles
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.fold import map_on_workers
from streameval.store.nights.judgements import Judgements
from streameval.store.nights.merge import Nights, PrefixMerge, columns_kept
from streameval.store.nights.open_nights import OPEN
from streameval.store.nights.results import MetricSeries, ResultCache

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from datetime import date

    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.connection import Connection
    from streameval.evaluation.request import Request
    from streameval.evaluation.result import Evaluation
    from streameval.store.files.entries import Entry
    from streameval.store.files.location import Location

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class StoreContext:
    """The parts of a store.

    Parameters
    ----------
    location : Location
    client : distributed.Client, the address of a scheduler, or None
    run : mapping
        ``memory, spill, threads, progress`` of every run.
    scheduler_timeout : float
        Seconds to wait for a worker of the client.
    """

    def __init__(self, location: Location, client: object, run: Mapping[str, Any], scheduler_timeout: float) -> None:
        self.location = location
        self.client = client
        self.run = run
        self.scheduler_timeout = scheduler_timeout
        self._connected: Connection | None = None
        self.ledger = Ledger(location.child("ledger"))
        self.files = StateFiles(location.child("states"))
        self.compaction = Compaction(location.child("merged"), self.files)

    def engine(self) -> ThreadEngine:
        """An engine for one run in this process."""
        return ThreadEngine.start(**self.run)

    def workers(self) -> ClusterEngine | None:
        """The engine of the workers that fold partitions, if there is a client; an address is connected only once."""
        workers = on_cluster(self.client, self.scheduler_timeout, **self.run)
        if workers is not None and isinstance(self.client, str):
            self.client, self._connected = workers.connection.client, workers.connection  # whose client stays open
        return workers

    def computed(
        self, function: Callable[[_Item, Engine], _Result], item: _Item, engine: Engine | None = None
    ) -> _Result:
        """Call ``function(item, engine)``, on one worker if there is a client, otherwise in this process."""
        workers = self.workers() if self.client is not None else None
        engine = self.engine() if engine is None else engine
        if workers is None:
            return function(item, engine)
        return map_on_workers(workers, function, [((), item)], "evaluate", engine)[0]

    def evaluate(
        self,
        nights: Nights,
        engine: Engine,
        request: Request,
        only: Container[tuple[str, str]] | None = None,
        merge: PrefixMerge | None = None,
    ) -> Evaluation:
        """`Nights.evaluate`, on one worker if there is a client, otherwise in this process.

        A worker returns results only; curves read the states in this process on demand. Incremental merges (`merge`)
        are evaluated in this process.
        """
        if self.client is None or merge is not None:
            return nights.evaluate(engine, request, only, merge)
        result = self.computed(partial(Nights.evaluate, request=request, only=only), nights, engine)
        states: Any = nights.states(engine, request)
        return replace(result, _states=states, _engine=engine, _threshold=request.options["aul_threshold"])

    def begun(self, as_of: str | int | date | None = None) -> tuple[Snapshot, Configuration]:
        """A snapshot of the store, and its configuration.

        Raises
        ------
        StoreError
            If there is no store, or it cannot be read.
        """
        snapshot = self.ledger.read(as_of)
        if snapshot.version < 0:
            raise StoreError(f"{self.location.name}: there is no store; create it with update")
        return snapshot, self.configuration(snapshot)

    def configuration(self, snapshot: Snapshot) -> Configuration:
        """The configuration of a snapshot.

        Raises
        ------
        StoreError, FormatError
            If this version of streameval cannot read it, or it lacks the type of a column that has states.
        """
        try:
            configuration = Configuration.read(snapshot.configuration)
            configuration.request()
            configuration.check_typed(snapshot.entries.values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{self.location.name}: its configuration cannot be read ({error}); restore the ledger from a copy"
            ) from error
        except FormatError as error:
            raise FormatError(f"{self.location.name}: {error}") from error
        return configuration

    def cache(self) -> ResultCache:
        """The cache of results, in its current version."""
        return ResultCache(self.location.child("history"))

    def judgements(self, snapshot: Snapshot | None = None) -> Judgements:
        """The stored judgements of nights; whether they keep the gate closed depends on the snapshot."""
        return Judgements(self.location.child("checks"), next(reversed(snapshot.entries), "") if snapshot else "")

    def nightly(self, snapshot: Snapshot, configuration: Configuration) -> MetricSeries:
        """The cached results of a snapshot."""
        engine = ThreadEngine.start(**{**self.run, "progress": None})
        entries = list(snapshot.entries.values())
        stored = Nights(entries, configuration, self.compaction, entries)
        return MetricSeries(snapshot, stored, engine, self.cache(), self.evaluate)

    def compact(self, snapshot: Snapshot, configuration: Configuration, engine: Engine, *, exact: bool) -> int:
        """Merge the states of nights that are not open for late labels; see `Compaction.compact`."""
        settled = [entry for entry in snapshot.entries.values() if entry.state(OPEN, "") is None]
        columns = columns_kept(settled, configuration)
        return self.compaction.compact(columns, engine, exact=exact)

    def commit(
        self,
        before: Snapshot,
        configuration: Configuration,
        entries: Iterable[Entry],
        action: str,
        evaluations: Mapping[str, Evaluation | None] | None = None,
    ) -> Snapshot:
        """Commit a new version of the ledger, and update derived data: cached results and merged files.

        Derived data can be computed again. A failure to update it changes no result and does not fail the commit.

        Parameters
        ----------
        before : Snapshot
            The version that was read.
        configuration, entries : the content of the new version
        action : str
            Description of the change, for users.
        evaluations : mapping of str to Evaluation, optional
            Results of nights that were just folded, by name.
        """
        snapshot = self.ledger.commit(before, configuration.to_dict(), entries, action)
        nightly = self.nightly(snapshot, configuration)
        for name, evaluation in (evaluations or {}).items():
            if evaluation is not None:
                nightly.record(name, evaluation)
        nightly.write(before)
        with suppress(FormatError, StoreError, *READ_ERRORS):
            self.compact(snapshot, configuration, nightly.engine, exact=False)
        return snapshot
