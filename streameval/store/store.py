"""Store: states of every night, so that a night is folded once and any nights are evaluated together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.store import ingest as updating
from streameval.store import query as looking
from streameval.store.context import StoreContext
from streameval.store.files.location import Location
from streameval.store.nights.partitions import chosen
from streameval.store.vacuum import vacuum

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from streameval.evaluation.result import Evaluation
    from streameval.store.files.ledger import Entry
    from streameval.store.ingest import Update
    from streameval.store.results.history import History
    from streameval.store.results.rules import Check
    from streameval.store.vacuum import Vacuumed

__all__ = ["Store"]


class Store:
    """States of partitions that arrive one after the other, on a local disk or S3-compatible storage.

    Parameters
    ----------
    path : path or URI
        Directory of the store; the first `update` makes it.
    storage_options : mapping of str to str, optional
        As deltalake takes them, such as ``AWS_ENDPOINT_URL``; see `streameval.store.files.location`.
    memory, spill, threads, progress
        As `streameval.evaluate`.
    client : distributed.Client or str, optional
        Fold partitions side by side on the workers of this client, or of the scheduler at this address; `evaluate` and
        `check` run on one worker. By default partitions are folded on the active client if there is one and `threads`
        is not given. Workers read and write the states, so the store must be in a place that they share with this
        process. `memory` and `spill` are then those of each worker.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.TemporaryDirectory()
    >>> for night, scores in [("2026-01-14", [0.1, 0.4, 0.8]), ("2026-01-15", [0.2, 0.9, 0.3])]:
    ...     where = Path(folder.name, "data", f"night={night}")
    ...     where.mkdir(parents=True)
    ...     pq.write_table(pa.table({"label": [0, 0, 1], "score": scores}), where / "part-0.parquet")
    >>> store = Store(Path(folder.name, "store"))
    >>> print(store.update(Path(folder.name, "data"), score="score"))
    2 new (night=2026-01-14, night=2026-01-15)
    >>> store.evaluate(last=1).value("roc_auc"), store.evaluate().value("roc_auc")
    (0.5, 0.625)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        client: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        run = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
        self._opened = StoreContext(Location.of(path, storage_options), client, run)

    def __repr__(self) -> str:
        return f"Store({self.name!r})"

    @property
    def name(self) -> str:
        """Its path or URI, without credentials and options."""
        return self._opened.place.name

    def partitions(self, as_of: str | int | date | None = None) -> list[Entry]:
        """The partitions that count, in order, each with its rows and state files."""
        snapshot = self._opened.ledger.read(as_of)
        return chosen(snapshot.entries) if snapshot.entries else []

    def versions(self) -> list[dict[str, Any]]:
        """Every version of the ledger, newest first: ``version``, ``when``, and the ``action`` that made it."""
        return self._opened.ledger.versions()

    def update(self, data: Any, *, dry_run: bool = False, verify: bool = False, **options: Any) -> Update:
        """Fold the partitions that are new or changed since the last update, and nothing else, in one commit.

        Parameters
        ----------
        data : path, pattern, URI, or list of those
            A tree of partitions, or some of them.
        dry_run : bool
            Only say what would be done.
        verify : bool
            Fold every partition again, whatever its size and time, and keep those whose states differ.
        **options
            Options of the first update, as `streameval.evaluate` has them: ``label, pos_label, score, cluster, classes,
            weight, nan, nulls, cluster_scope, approx`` decide what is kept for good; ``metrics, truncate,
            aul_threshold, assignment_cells, at`` are defaults.

        Returns
        -------
        Update

        Raises
        ------
        OptionError
            If an option contradicts the store.
        DataError
            If a partition cannot be evaluated; then nothing of the update counts.
        StoreError
            If another update was committed meanwhile.
        """
        return updating.update(self._opened, data, options, dry_run=dry_run, verify=verify)

    def replace(self, data: Any) -> Update:
        """Fold partitions again that the store has, whatever their files look like: corrections that came late.

        Raises
        ------
        MissingInputError
            If the store does not have one of them.
        """
        return updating.replace(self._opened, data)

    def remove(self, names: str | Sequence[str]) -> Update:
        """Take partitions out by their names, such as ``night=2026-01-11``; earlier versions still have them.

        An update that meets their files again takes them in again.
        """
        return updating.remove(self._opened, [names] if isinstance(names, str) else list(names))

    def evaluate(
        self,
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        **options: Any,
    ) -> Evaluation:
        """Evaluate all partitions, or some, from their states: as `streameval.evaluate` of their files, bit for bit.

        Parameters
        ----------
        partition : str or sequence of str
            Names.
        since, until : str or date, optional
            Dates that the names hold, both included; a month means all of it.
        last : int, optional
            The last few of these.
        as_of : str, int or date, optional
            What the store knew at a version, date or time.
        **options
            Options of `streameval.evaluate`: ``metrics, truncate, aul_threshold, assignment_cells, at`` in place of the
            store's own, and ``score, cluster`` to select some of its columns.

        Raises
        ------
        OptionError
            If the states of the store cannot honour an option, such as another `pos_label`.
        """
        named = [partition] if isinstance(partition, str) else partition
        selection = {"partition": named, "since": since, "until": until, "last": last}
        return looking.evaluate(self._opened, as_of, selection, options)

    def add(
        self,
        *,
        score: str | Sequence[str] = (),
        cluster: str | Sequence[str] = (),
        data: Any = None,
        since: str | date | None = None,
    ) -> Update:
        """A new column joins: nights whose files are still there are folded for it alone, in one commit.

        Nights that lack it have null metrics of it, and so has every set of nights that one of them is in. Nights that
        land later must have it.

        Parameters
        ----------
        score, cluster : str or sequence of str
            The columns.
        data : path, URI, or list of those, optional
            Where the files of the nights are; by default where they were.
        since : str or date, optional
            Only nights from this date on are folded.

        Returns
        -------
        Update
            `changed` are the nights that were folded, `gone` those that were not: without files, or without the column.

        Raises
        ------
        DataError
            If the files of a night changed since it was folded, or no night has the column.
        """
        return updating.add(self._opened, score, cluster, data, since)

    def vacuum(self, *, keep: str | None = None, grace: str = "1d") -> Vacuumed:
        """Delete the files that no version needs, and merge exact states of old nights into larger files.

        Histograms need no vacuum for that: updates merge them.

        Parameters
        ----------
        keep : str, optional
            A span such as ``90d``: exact scores of nights further back than this from the newest one are turned into
            fixed histograms, for good. Their metrics are certain intervals then, and earlier versions of the ledger
            cannot be evaluated over them.
        grace : str
            Files younger than this are left alone: another update may be about to name them.

        Raises
        ------
        OptionError
            If a span is none, or `keep` is given and a partition has no date.
        """
        return vacuum(self._opened, keep, grace)

    def history(
        self,
        metric: str,
        of: str | None = None,
        *,
        cumulative: bool = True,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
    ) -> History:
        """A metric night by night, and of all nights up to each.

        Per night it is there since the update. The cumulative values are computed when they are first asked for, in
        time linear in the stored keys for each night, and kept until a night before them changes.

        Parameters
        ----------
        metric, of : str
            Name, and column where there are several.
        cumulative : bool
            Whether to give the values over all nights from the first of those chosen.
        since, until, last, as_of
            As `evaluate`.

        Raises
        ------
        OptionError
            If there is no such metric.
        """
        selection = {"since": since, "until": until, "last": last}
        return looking.history(self._opened, metric, of, as_of, selection, cumulative=cumulative)

    def check(self, rules: str | Sequence[str], partition: str | None = None) -> Check:
        """Judge the last night, or the one named, by rules such as ``roc_auc[score] >= 0.97``.

        See `streameval.store.results.rules` for what they mean.

        Parameters
        ----------
        rules : str or sequence of str
        partition : str, optional

        Returns
        -------
        Check
            Whether it `passed`, and a verdict on each rule.

        Raises
        ------
        OptionError
            If a rule is none, or names what the store does not keep.
        """
        return looking.check(self._opened, [rules] if isinstance(rules, str) else rules, partition)
