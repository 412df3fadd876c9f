"""`Store`: fold each night once, keep its states, and evaluate any nights together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.engine import check_timeout
from streameval.errors import OptionError
from streameval.options import honoured, refuse
from streameval.options.kinds import texts
from streameval.store import ingest, query
from streameval.store.attribution import ATTRIBUTED, attribute
from streameval.store.backfill import Place
from streameval.store.context import StoreContext
from streameval.store.files.location import Location
from streameval.store.nights.partitions import chosen
from streameval.store.results.info import Info, info
from streameval.store.vacuum import vacuum

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from streameval.evaluation.attributed import Attribution
    from streameval.evaluation.result import Evaluation
    from streameval.store.files.ledger import Entry
    from streameval.store.ingest import Update
    from streameval.store.results.diagnosis import Diagnosis
    from streameval.store.results.gate import Check
    from streameval.store.results.judgements import Judgement
    from streameval.store.results.reading import Reading
    from streameval.store.vacuum import Vacuumed

__all__ = ["Store"]


class Store:
    """States of partitions that arrive over time, on a local disk or S3-compatible storage.

    An update is one commit: killed at any moment it leaves the store as before or as after, and can be run again. Of
    two concurrent updates one may be refused. A store keeps one Parquet file for each night and column, verified
    whenever it is read: about 1.1 bytes a row for float32 scores, 5.1 for float64 scores, 4.9 for 64-bit ids.
    `STORE/history` is a Delta table that DuckDB, Polars or Spark can read.

    Columns and policies are fixed by the first update. A night is identified by its directory (``night=2026-01-15``) or
    file name and counts until it is removed, even if its files are gone. Changes are detected by size and modification
    time; `update` with ``verify=True`` folds again and compares. Evaluation takes time proportional to what is stored;
    results are cached until the next update.

    Parameters
    ----------
    path : path or URI
        Directory of the store; the first `update` creates it.
    storage_options : mapping of str to str, optional
        Options of deltalake, such as ``AWS_ENDPOINT_URL``; see `streameval.store.files.location`.
    memory, spill, threads, progress
        As `streameval.evaluate`.
    client : distributed.Client or str, optional
        Fold partitions in parallel on the workers of this client, or of the scheduler at this address; `evaluate` and
        `check` run on one worker. By default the active client is used, if there is one and `threads` is not given.
        Workers read and write the states, so the store must be on storage that they share with this process; `memory`
        and `spill` then apply to each worker.
    scheduler_timeout : float
        Seconds to wait for a worker of `client` if none answers.

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
        scheduler_timeout: float = 10.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        check_timeout(client, scheduler_timeout)
        run = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
        self._context = StoreContext(Location.of(path, storage_options), client, run, scheduler_timeout)

    def __repr__(self) -> str:
        return f"Store({self.name!r})"

    @property
    def name(self) -> str:
        """Its path or URI, without credentials and options."""
        return self._context.location.name

    def partitions(self, as_of: str | int | date | None = None) -> list[Entry]:
        """The partitions that count, in order, each with its number of rows and its state files."""
        snapshot = self._context.ledger.read(as_of)
        return chosen(snapshot.entries) if snapshot.entries else []

    def versions(self) -> list[dict[str, Any]]:
        """Every version of the ledger, newest first: ``version``, ``when``, and the ``action`` that made it."""
        return self._context.ledger.versions()

    def info(self, *, verify: bool = False) -> Info:
        """What the store is: nights, columns, policies, what is incomplete or fails, and its size.

        Parameters
        ----------
        verify : bool
            Read every state file, and list those that are not as they were written, with the remedy.

        Raises
        ------
        StoreError
            If there is no store, or its ledger or judgements are damaged.
        """
        return info(self._context, verify=verify)

    def update(
        self,
        data: Any,
        *,
        dry_run: bool = False,
        verify: bool = False,
        on_error: str = "raise",
        delta_version: int | None = None,
        **options: Any,
    ) -> Update:
        """Fold the partitions that are new or changed since the last update, and nothing else, in one commit.

        Partitions that cannot be folded stop none of the others.

        Parameters
        ----------
        data : path, pattern, URI, or list of those
            A tree of partitions, or some of them.
        dry_run : bool
            Only report what would be done.
        verify : bool
            Fold every partition again, whatever its size and time, and keep those whose states differ.
        on_error : {"raise", "skip"}
            Whether a file that cannot be read makes its partition fail, or is left out: the partition is then
            incomplete, and such updates fold it again until it is whole.
        delta_version : int, optional
            Version of the Delta tables among the data, by default the current one.
        **options
            Options of the first update, as in `streameval.evaluate`: ``label, pos_label, score, cluster, sketch,
            classes, weight, nan, nulls, cluster_scope, approx, approx_agc, sample, sample_seed`` decide for good what
            is kept; ``metrics, truncate, aul_threshold, assignment_cells, at, quantiles`` are defaults.

        Returns
        -------
        Update

        Raises
        ------
        OptionError
            If an option contradicts the store.
        DataError
            If partitions cannot be folded, once the others count; the message names all files that cannot be read.
        StoreError
            If another update was committed meanwhile.
        """
        return ingest.update(
            self._context,
            data,
            options,
            dry_run=dry_run,
            verify=verify,
            on_error=on_error,
            delta_version=delta_version,
        )

    def replace(self, data: Any, *, on_error: str = "raise", delta_version: int | None = None) -> Update:
        """Fold partitions of the store again, whether or not their files look changed: late corrections.

        Parameters
        ----------
        data, on_error, delta_version
            As `update`.

        Raises
        ------
        MissingInputError
            If the store does not have one of them.
        """
        return ingest.replace(self._context, data, on_error, delta_version)

    def remove(self, names: str | Sequence[str] = (), *, columns: str | Sequence[str] = ()) -> Update:
        """Remove partitions by name, such as ``night=2026-01-11``, or columns; earlier versions still have them.

        An update that finds the files of a partition adds it again; `add` adds a column again.

        Parameters
        ----------
        names : str or sequence of str
            Partitions.
        columns : str or sequence of str
            Columns of scores, clusters, classes or sketches, with all that was computed of them.

        Raises
        ------
        OptionError
            If the store has no such column, or no other.
        """
        named, out = ([given] if isinstance(given, str) else list(given) for given in (names, columns))
        return ingest.remove(self._context, named, out)

    def evaluate(
        self,
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        against: str | None = None,
        **options: Any,
    ) -> Evaluation:
        """Evaluate all partitions, or some, from their states.

        The numbers are those of `streameval.evaluate` of their files, bit for bit; but quantiles and ``agc_approx``,
        which are estimates, come from the digests of the nights, and files may be read a second time. Takes time
        proportional to the stored keys. Results are cached until the ledger changes.

        Parameters
        ----------
        partition : str or sequence of str
            Names of partitions.
        since, until : str or date, optional
            First and last date, as the names hold them; a month means all of it.
        last : int, optional
            Only the last `last` of these.
        as_of : str, int or date, optional
            Evaluate the store as it was at a version, date or time.
        against : str, optional
            Also compare with the nights of a span of dates, such as ``"2026-01-01..2026-01-07"``, paired by the units
            that both have.
        **options
            Options of `streameval.evaluate`: ``metrics, truncate, aul_threshold, assignment_cells, at, quantiles``
            in place of the store's own, ``score, cluster, sketch`` to select some of its columns, and ``by`` for a
            slice of each value of a key in the names of the partitions, such as ``by="night"``.

        Raises
        ------
        OptionError
            If the states of the store cannot honour an option, such as another `pos_label`.
        """
        named = [partition] if isinstance(partition, str) else partition
        selection = {"partition": named, "since": since, "until": until, "last": last, "against": against}
        return query.evaluate(self._context, as_of, selection, options)

    def exists(self) -> bool:
        """Whether there is a store at its path; False where that cannot be seen."""
        return self._context.ledger.exists()

    def attribute(
        self,
        partition: str | Sequence[str] = (),
        *,
        cluster: str,
        data: Any = None,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        **options: Any,
    ) -> Attribution:
        """Name the clusters and classes that cost a clustering its score in all partitions, or some, from their states.

        The tables are those of `streameval.attribute` of the files. Ids of 64 bits are in the states; without `data`
        other ids are hashes, such as ``#3f2a…``.

        Parameters
        ----------
        partition, since, until, last, as_of
            As `evaluate`.
        cluster : str
            The cluster column.
        data : path, URI, or list of those, optional
            The files of these partitions: the texts of hashed ids and the examples are read from them.
        **options
            Options of `streameval.attribute`: ``classes, label, metric, aul_threshold, top, examples, examples_per``.
            By default all tables that the store has states for.

        Raises
        ------
        OptionError
            If the store does not keep the columns, or examples are asked for without data.
        """
        for name in options:
            if name not in ATTRIBUTED:
                refuse("attribute", name, ATTRIBUTED, "of a store, ")
        named = [partition] if isinstance(partition, str) else partition
        selection = {"partition": named, "since": since, "until": until, "last": last}
        return attribute(self._context, data, as_of, selection, {"cluster": cluster, **options})

    def report(
        self,
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        **options: Any,
    ) -> str:
        """One page on the store, as the text of an HTML file that needs nothing else.

        What `evaluate` finds, the first metric of each column night by night, nights that fail or are incomplete, and
        what the rules said.

        Parameters
        ----------
        partition, since, until, last, as_of, **options
            As `evaluate`.

        Raises
        ------
        OptionError
            As `evaluate`.
        """
        named = [partition] if isinstance(partition, str) else partition
        selection = {"partition": named, "since": since, "until": until, "last": last}
        return query.evaluate(self._context, as_of, selection, options).to_html()

    def add(
        self,
        *,
        data: Any = None,
        since: str | date | None = None,
        delta_version: int | None = None,
        **options: Any,
    ) -> Update:
        """Keep more: nights whose files are still there are folded for new columns alone, in one commit.

        Metrics of a new column are null for nights that lack it, and for every selection that contains such a night.
        Later nights must have the column. A weight column changes the states of all scores: nights whose files are gone
        have none then, but for earlier versions (`as_of`).

        Parameters
        ----------
        **options
            What joins, as in `streameval.evaluate`: ``score, cluster, sketch, classes, weight`` name columns,
            ``metrics, truncate, at`` are added to the store's defaults and need no file.
        data : path, URI, or list of those, optional
            Where the files of the nights are, if they have moved.
        since : str or date, optional
            Only nights from this date on are folded.
        delta_version : int, optional
            Version of the Delta tables that hold the nights, by default the current one.

        Returns
        -------
        Update
            `changed` are the nights that were folded, `gone` those whose files are gone or lack the column.

        Raises
        ------
        DataError
            If the files of a night changed since it was folded, or no night has the column.
        """
        for name in options:
            if name not in honoured("add"):
                refuse("add", name)
        return ingest.add(self._context, options, Place(data, delta_version), since)

    def vacuum(self, *, keep: str | None = None, grace: str = "1d", dry_run: bool = False) -> Vacuumed:
        """Delete the files that no version needs, and merge exact states of nights into larger files.

        Histograms are merged by updates. An update that is under way while vacuum deletes files is refused and can be
        run again.

        Parameters
        ----------
        keep : str, optional
            A span such as ``90d``: exact scores of nights older than the newest one by at least this are turned into
            fixed histograms, for good. Their metrics are then certain intervals, and earlier versions of the ledger
            cannot be evaluated over them.
        grace : str
            Files younger than this are left alone: an update may be about to commit them.
        dry_run : bool
            Only report what would be deleted, and which nights would lose their exact scores.

        Raises
        ------
        OptionError
            If a span is malformed, or `keep` is given and a partition has no date.
        StoreError
            If an update was committed meanwhile; nothing was deleted then.
        """
        return vacuum(self._context, keep, grace, dry_run=dry_run)

    def history(
        self,
        metric: str | Sequence[str],
        of: str | Sequence[str] | None = None,
        *,
        cumulative: bool = True,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
    ) -> Any:
        """A metric of each night, and of all nights up to each; or several metrics of several columns in one table.

        Values of single nights are computed by the update. Cumulative values are computed when they are first asked
        for, each in time proportional to the stored keys, and cached until a night before them changes.

        Parameters
        ----------
        metric, of : str or sequence of str
            Name of the metric, and its column if there are several. With a sequence of either, a table of all these
            metrics of all these columns, by default of all that have them.
        cumulative : bool
            Also give the values over all nights from the first of those chosen.
        since, until, last, as_of
            As `evaluate`.

        Returns
        -------
        History, or Histories where several may be meant

        Raises
        ------
        OptionError
            If there is no such metric.
        """
        selection = {"since": since, "until": until, "last": last}
        if not isinstance(metric, str) or not (of is None or isinstance(of, str)):
            metrics, columns = (texts(name, given) for name, given in (("metric", metric), ("of", of)))
            return query.histories(self._context, metrics, columns, as_of, selection, cumulative=cumulative)
        return query.history(self._context, metric, of, as_of, selection, cumulative=cumulative)

    def plan(self, verb: str, **asked: Any) -> Reading:
        """What ``show``, ``history``, ``check`` or ``diagnose`` would read with these arguments, from the ledger alone.

        Raises
        ------
        OptionError
            As the verb, and if the verb is another one.
        """
        if verb not in ("show", "history", "check", "diagnose"):
            msg = f"verb={verb!r} must be one of show, history, check, diagnose"
            raise OptionError(msg)
        return query.plan(self._context, verb, asked)

    def check(
        self,
        rules: str | Sequence[str] | Mapping[str, str],
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        again: bool = False,
        mature: str | None = None,
        allow_incomplete: bool = False,
    ) -> Check:
        """Judge every night that needs it by rules such as ``roc_auc[score] >= 0.97``, and keep the judgements.

        A night is judged once by each rule; one that is folded again is judged again. A night that failed keeps failing
        until it is replaced, removed or accepted (`accept`). A rule that is new to the store judges the newest night
        and what is folded later. An incomplete night fails. `streameval.rules.grammar` defines the rules.

        Parameters
        ----------
        rules : str, sequence of str, or mapping of names to rules
            A rule without a name is known by its text.
        partition : str or sequence of str
            Judge these nights and speak of them alone; one that the store does not have fails.
        since : str or date, optional
            Also judge nights from this date on that were folded before a rule was new.
        again : bool
            Judge anew what was judged before, accepted failures too; with `since` from that date on.
        mature : str, optional
            A span such as ``3d`` after the end of a night in which rules on labels leave it pending.
        allow_incomplete : bool
            Do not fail nights from which files were left out.

        Returns
        -------
        Check
            Whether it `passed`, and the judgements: those made now, and those that still fail.

        Raises
        ------
        OptionError
            If a rule is malformed, or names a metric that the store does not have.
        StoreError
            If another check was committed meanwhile.
        """
        named = [partition] if isinstance(partition, str) else list(partition)
        return query.check(
            self._context, rules, named, since, again=again, mature=mature, allow_incomplete=allow_incomplete
        )

    def accept(self, partition: str | Sequence[str], reason: str, rule: str | Sequence[str] = ()) -> list[Judgement]:
        """Accept the failures that checks have recorded of nights; later ones are not accepted.

        Accepted nights pass, and stay out of the usual values of the rules that they failed.

        Parameters
        ----------
        partition : str or sequence of str
        reason : str
            Kept with the judgements.
        rule : str or sequence of str
            Names of rules; by default all that the nights fail.

        Returns
        -------
        list of Judgement

        Raises
        ------
        DataError
            If no such failure is recorded.
        """
        named, rules = ([given] if isinstance(given, str) else list(given) for given in (partition, rule))
        return query.accept(self._context, named, rules, reason)

    def diagnose(self, partition: str | Sequence[str] = ()) -> tuple[Diagnosis, ...]:
        """What is unusual in nights, largest change first: from a failed rule to its cause.

        Compares rows, positives, nulls (also by file), quantiles of scores and sizes of clusters with the last 7
        complete earlier nights that fail no rule. Reads the states of these nights, and nothing of the data.

        Parameters
        ----------
        partition : str or sequence of str
            Nights; by default those that fail.

        Returns
        -------
        tuple of Diagnosis
            One for each night, in order.

        Raises
        ------
        MissingInputError
            If the store does not have a night.
        """
        return query.diagnose(self._context, [partition] if isinstance(partition, str) else list(partition))
