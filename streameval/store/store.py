"""`Store`: fold each night once, keep its states, and evaluate any set of nights."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.engine import check_timeout
from streameval.engine.threads import ThreadEngine
from streameval.errors import OptionError
from streameval.evaluation.files import is_pattern
from streameval.kinds import single_unit, texts
from streameval.options import refuse, verb_options
from streameval.store.attribution import ATTRIBUTED, attribute, costs
from streameval.store.changing import Changing, several
from streameval.store.context import StoreContext
from streameval.store.evaluate import ends_of, evaluate, nights_of, store_source
from streameval.store.files.location import Location
from streameval.store.info import Info, info, plan
from streameval.store.nights.diagnosis import (
    NightFacts,
    diagnose_night,
    ledger_facts,
    shapes_of,
    unusual_facts,
    usual_nights,
)
from streameval.store.nights.drift import drift_of, drift_of_files
from streameval.store.nights.gate import Gate, store_rules
from streameval.store.nights.history import Histories, History, Point
from streameval.store.nights.judgements import accept
from streameval.store.nights.maturity import maturity_of
from streameval.store.nights.merge import Nights
from streameval.store.nights.partitions import select_entries
from streameval.store.nights.slices import slice_facts, slice_histories, stored_slicing
from streameval.store.vacuum import parse_seconds
from streameval.wording import canonical, explains_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from streameval.evaluation.alarms import Drift
    from streameval.evaluation.cost_tables import Attribution
    from streameval.evaluation.result import Evaluation
    from streameval.results import Judgement, Scalar
    from streameval.store.files.entries import Entry
    from streameval.store.info import Reading
    from streameval.store.nights.diagnosis import Diagnosis
    from streameval.store.nights.gate import Check
    from streameval.store.nights.maturity import Maturity
    from streameval.store.nights.results import MetricSeries


class Store(Changing):
    """States of partitions that arrive over time, on a local disk or S3-compatible storage.

    An update is one commit: if it is killed at any moment, the store is in the state before or after it, and the update
    can be run again. One of two concurrent updates may be refused. A store keeps one Parquet file per night and column,
    verified whenever it is read: about 1.1 bytes per row for float32 scores, 5.1 for float64, 4.9 for 64-bit ids.
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
        `check` run on one worker. By default the active client is used, if there is one and `threads` is not given;
        inside a Dask task there is none. Workers read and write the states, so the store must be on storage that they
        share with this process; `memory` and `spill` then apply to each worker.
    scheduler_timeout : float
        Seconds to wait for the scheduler, if `client` is an address, and then for a worker if none answers.

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
        """The path or URI of the store, without credentials and options."""
        return self._context.location.name

    def partitions(self, as_of: str | int | date | None = None) -> list[Entry]:
        """The partitions of the store in order, each with its rows and state files.

        Parameters
        ----------
        as_of : str, int or date, optional
            A version, date or time; by default the newest version.

        Raises
        ------
        OptionError
            If there was no such version.
        StoreError
            If the ledger cannot be read.
        """
        snapshot = self._context.ledger.read(as_of)
        return select_entries(snapshot.entries) if snapshot.entries else []

    def versions(self) -> list[dict[str, Any]]:
        """All versions of the ledger, newest first, as dicts: ``version``, ``when`` (UTC), and the ``action``."""
        return self._context.ledger.versions()

    def info(self, *, verify: bool = False) -> Info:
        """Describe the store: nights, columns, policies, incomplete and failing nights, and its size.

        Parameters
        ----------
        verify : bool
            Read every state file, and list the damaged ones, with the remedy.

        Raises
        ------
        StoreError
            If there is no store, or its ledger is damaged.
        """
        return info(self._context, verify=verify)

    def exists(self) -> bool:
        """Whether there is a store at its path; False if that cannot be determined."""
        return self._context.ledger.exists()

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

        The results equal those of `streameval.evaluate` on the files, bit for bit, except for the estimates (quantiles
        and ``agc_approx``), which come from digests of the nights, and for intervals of rows without a unit, or with a
        null one, in files outside of Hive directories: a store numbers these rows in each night, `streameval.evaluate`
        in all files together. Evaluation takes time proportional to the stored keys. Results are cached until the
        ledger changes.

        Parameters
        ----------
        partition : str or sequence of str
            Names of partitions.
        since, until : str or date, optional
            First and last date in the names of the partitions, both included; a month stands for all its days.
        last : int, optional
            Only the last `last` of the selected partitions.
        as_of : str, int or date, optional
            Evaluate the store as it was at a version, date or time.
        against : str, optional
            Also compare with the nights of a span of dates, such as ``"2026-01-01..2026-01-07"``, paired by common
            units. With ``"rest"``, each of the 100 largest slices of `by` that the store keeps is compared with all
            other rows.
        **options
            Options of `streameval.evaluate`: ``metrics, truncate, aul_threshold, assignment_cells, at, clip, ci,
            quantiles`` override the store's own; ``baseline`` compares columns, but not clusterings by ``aul``, which
            needs the files (a store does not keep the units of each cluster); ``score, cluster, sketch`` select some
            of its columns. ``by`` adds the slices that the store keeps, or groups nights by a key in the names of the
            partitions, such as ``by="night"``. ``where`` selects rows by the columns of the slices that it keeps.

        Raises
        ------
        MissingInputError
            If no partition is selected.
        OptionError
            If the states of the store cannot honour an option, such as another `pos_label`.
        StoreError, FormatError
            If there is no store, or a file of it is missing or damaged.
        """
        selection = {"partition": several(partition), "since": since, "until": until, "last": last, "against": against}
        return evaluate(self._context, as_of, selection, options)

    def attribute(
        self,
        partition: str | Sequence[str] = (),
        *,
        cluster: str | None = None,
        data: Any = None,
        since: str | date | None = None,
        until: str | date | None = None,
        last: int | None = None,
        as_of: str | int | date | None = None,
        **options: Any,
    ) -> Attribution:
        """Rank the clusters, classes and slices that cost most in all or some partitions, from their states.

        The tables equal those of `streameval.attribute` on the files. States hold integer ids, and hashes of other
        ids; without `data`, the latter are shown as hashes, such as ``#3f2a…``.

        Parameters
        ----------
        partition, since, until, last, as_of
            As `evaluate`.
        cluster : str, optional
            The cluster column, for the costs of clusters and classes.
        data : path, URI, or list of those, optional
            The files of these partitions, for the texts of hashed ids and for examples.
        **options
            Options of `streameval.attribute`: ``classes, label, metric, aul_threshold, top, examples, examples_per``.
            ``score, by, adjust, ci, unit`` rank the slices that the store keeps, or values of keys in the names of the
            partitions. By default, all tables of the cluster column for which the store has states.

        Raises
        ------
        OptionError
            If the store does not keep the columns, or examples are requested without data.
        """
        for name in options:
            if name not in ATTRIBUTED:
                refuse("attribute", name, ATTRIBUTED, "of a store, ")
        selection = {"partition": several(partition), "since": since, "until": until, "last": last}
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
        """The text of a self-contained HTML page on the store.

        It shows the results of `evaluate`, the first metric of each kind of column night by night, failing and
        incomplete nights, and the judgements of rules.

        Parameters
        ----------
        partition, since, until, last, as_of, **options
            As `evaluate`.

        Raises
        ------
        OptionError
            As `evaluate`.
        """
        return self.evaluate(partition, since=since, until=until, last=last, as_of=as_of, **options).to_html()

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
        by: str | Sequence[str] = (),
        ci: float | None = None,
    ) -> History | Histories:
        """A metric of each night, and over all nights up to each; or several metrics and columns in one table.

        Updates compute the values of single nights. Cumulative values are computed on the first request, each in time
        proportional to the stored keys, and cached until an earlier night changes.

        Parameters
        ----------
        metric, of : str or sequence of str
            Name of the metric, and its column if there are several. If either is a sequence, the result is a table of
            all these metrics for all these columns, by default for all columns that have them.
        cumulative : bool
            Also compute the values over all nights from the first selected one up to each.
        since, until, last, as_of
            As `evaluate`.
        by : str or sequence of str
            Slicings that the store keeps, such as ``"country"``: adds the values of each slice night by night, largest
            slice first.
        ci : float, optional
            Level of sampling intervals, such as 0.95; by default that of the store, if it has one.

        Returns
        -------
        History, or Histories if `metric` or `of` is a sequence

        Raises
        ------
        OptionError
            If there is no such metric or slicing, or the level is not between 0 and 1.
        """
        level = verb_options("history")["ci"].plain(ci)
        selection: dict[str, Any] = {"since": since, "until": until, "last": last}
        context = self._context
        snapshot, configuration = context.begun(as_of)
        entries, nightly = select_entries(snapshot.entries, **selection), context.nightly(snapshot, configuration)
        single = isinstance(metric, str) and (of is None or isinstance(of, str)) and not by
        metrics, columns, slicings = texts("metric", metric), texts("of", of), texts("by", by or None)
        if single:
            pairs: list[tuple[str, str | None]] = [(canonical(metrics[0]), columns[0] if columns else None)]
            metrics = (canonical(metrics[0]),)
        else:
            pairs = [pair for one in metrics for pair in nightly.named(one, columns)]
        named = {"metric": metrics, "of": columns, "by": slicings, "ci": level}
        keys = [stored_slicing(configuration, text) for text in slicings]
        log = context.judgements(snapshot)
        failing = tuple(log.failing(entries))
        given = [name for name, value in named.items() if value]
        source = store_source("history", context.location.name, len(entries), selection, named, given)
        series = []
        for pair in dict.fromkeys(pairs):
            nights = nightly.values(entries, *pair, level)
            totals: Sequence[Scalar | None] = [None] * len(nights)
            if cumulative:
                totals = nightly.values(entries, *pair, level, cumulative=True)
            rows = zip(entries, nights, totals, strict=True)
            points = tuple(Point(entry.partition, night, total, entry.incomplete) for entry, night, total in rows)
            judged = log.windows(entries, pair[0], nights[0].of) if len(pairs) == 1 and not keys else ()
            series.append(History(pair[0], nights[0].of, points, failing, source, judged=judged))
        if as_of is None:
            nightly.write()
        if single:
            return series[0]
        of_slices = [(nightly.column(one.metric, one.of, level), one) for one in series]
        for key in keys:
            compute = partial(slice_histories, key=key, series=of_slices)
            series += context.computed(compute, nightly.stored.of(*entries))
        return Histories(tuple(series))

    def plan(self, verb: str, **asked: Any) -> Reading:
        """Forecast what a verb would read and keep with these arguments.

        ``show``, ``history``, ``check``, ``diagnose``, ``drift``, ``attribute`` and ``info`` read states, whose sizes
        are in the ledger; ``update``, ``replace`` and ``add`` read ``data``, of which only footers are read here.

        Raises
        ------
        OptionError
            If the verb is unknown, or would raise it for these arguments.
        """
        return plan(self._context, verb, asked)

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
        """Judge new, changed and failed nights by rules such as ``roc_auc[score] >= 0.97``, and store the judgements.

        Each rule judges a night once, and again if the night is folded again. Late labels alone do not have an open
        night judged again until it is closed for them, or with `again`. A night that failed keeps failing until
        it is replaced, removed or accepted (`accept`). A rule that is new to the store judges the newest night and
        nights that are folded later. An incomplete night fails. See `streameval.rules` for the syntax.

        Parameters
        ----------
        rules : str, sequence of str, or mapping of names to rules
            The text of a rule is its default name.
        partition : str or sequence of str
            Judge and report only these nights; a night that the store lacks fails.
        since : str or date, optional
            Also judge nights from this date on that were folded before a rule existed.
        again : bool
            Also judge nights that were judged before, including accepted failures; with `since`, from that date on.
        mature : str, optional
            A span such as ``3d``: for this time after the end of a night, rules on labels are pending.
        allow_incomplete : bool
            Do not fail nights from which files were left out.

        Returns
        -------
        Check
            Has `passed`, and the judgements: those made now, and those that still fail.

        Raises
        ------
        OptionError
            If a rule is malformed, or names a metric that the store does not have.
        StoreError
            If another check was committed meanwhile.
        """
        parsed, hours = store_rules(rules), parse_seconds(mature, "mature") / 3600 if mature else 0.0
        snapshot, configuration = self._context.begun()
        for rule in parsed:
            late = rule.labelled and configuration.late is not None
            rule.check_basis(late=late, sampled=configuration.design is not None)
        named = several(partition)
        entries = select_entries(snapshot.entries) if snapshot.entries or not named else []
        if since is not None:
            select_entries(snapshot.entries, since=since)  # raises unless it is a date
        nightly, log = self._context.nightly(snapshot, configuration), self._context.judgements(snapshot)
        gate = Gate(entries, nightly, log, parsed, hours, datetime.now(UTC))
        first = None if since is None else str(since)
        result = gate.check(named, first, again=again, allow_incomplete=allow_incomplete)
        log.write()
        nightly.write()
        gate.replicates.write(entries)
        options = {"rules": tuple(rule.text for rule in parsed), "partition": tuple(named), "since": since}
        source = store_source("check", self._context.location.name, result.nights, {}, options, options)
        failing = [snapshot.entries[name] for name in result.failing if name in snapshot.entries]
        odd: tuple[str, ...] = ()
        if failing:
            usual = usual_nights(failing[-1], entries, log.failing(entries))
            odd = unusual_facts(failing[-1], usual, configuration.readable)
        return replace(result, source=source, odd=odd)

    def drift(
        self,
        score: str,
        *,
        against: str,
        since: str | date | None = None,
        until: str | date | None = None,
    ) -> Drift:
        """How far the scores of some nights are from those of others, without labels.

        Parameters
        ----------
        score : str
            A score column of the store.
        against : str
            The nights to compare with: a span of dates such as ``"2026-01-01..2026-01-07"``, or one date.
        since, until : str or date, optional
            First and last date of the nights, both included; all nights by default.

        Returns
        -------
        Drift
            The distances `ks`, `w1` and `psi` are exact, of rows without their weights; of labelled rows if the store
            leaves out the others, see `Drift.basis`. `ks_p`, `w1_p` and the lower ends need blocks of units.

        Raises
        ------
        OptionError
            If the store does not keep the exact scores of the column.
        DataError
            If a side has no scores, or no longer has exact ones.
        """
        snapshot, configuration = self._context.begun()
        sides = [select_entries(snapshot.entries, since=since, until=until)]
        sides.append(nights_of(snapshot, against, single=True))
        nights, other = (Nights(entries, configuration, self._context.compaction) for entries in sides)
        return drift_of(nights, other, self._context.engine(), score)

    def maturity(
        self, metric: str, *, of: str | None = None, ages: Sequence[int] = (1, 3, 7, 14, 30, 60, 90)
    ) -> Maturity:
        """What a metric of each night was while its late labels arrived.

        Values of young nights are provisional: the labels that arrive first are rarely a random sample of all.

        Parameters
        ----------
        metric, of : str
            Name of the metric, and its column if there are several.
        ages : sequence of int
            Days after the end of a night. A label is as old as its time (``label_time``), or else the end of the newest
            night at its arrival, is later than that. A night that closed for late labels keeps the values of the
            store's own metrics at the default ages that it had reached then; at others, they are null.

        Returns
        -------
        Maturity
            Has `rows`, and `to_arrow` with the columns ``night, age, labelled, positives, value, change``: for each
            night and each age that it has reached, the share of rows with a label, the share of these that are
            positive, the metric with the labels up to that age, and its change to today. A night has reached an age
            if the newest night ended, or with ``label_time`` the latest label was given, that long after its own end;
            the calendar does not count. The rows of the night ``all`` are of the nights that reached the largest age:
            shares of all their rows (null if a closed night does not keep the age), and means of values and changes
            over the `nights` of them that have a value at every age.

        Raises
        ------
        OptionError
            If the store takes no late labels, or has no such metric.
        StoreError, FormatError
            If there is no store, or a file of it is missing or damaged.
        """
        option = verb_options("maturity")["ages"]
        return maturity_of(self._context, metric, of, option.plain(ages))

    def accept(self, partition: str | Sequence[str], reason: str, rule: str | Sequence[str] = ()) -> list[Judgement]:
        """Accept failures of nights that checks have recorded; later failures are not accepted.

        Accepted nights pass. With an accepted failure the usual value of the rule begins anew, and so do its windows.

        Parameters
        ----------
        partition : str or sequence of str
            Names of the nights.
        reason : str
            Stored with the judgements.
        rule : str or sequence of str
            Names of rules; by default all rules that the nights fail.

        Returns
        -------
        list of Judgement

        Raises
        ------
        DataError
            If no such failure is recorded.
        OptionError
            If `reason` is empty.
        """
        if not reason.strip():
            raise OptionError("say why the failure is accepted (--reason)")
        snapshot, _ = self._context.begun()
        log = self._context.judgements()
        unfolded = [] if several(rule) else log.unfolded(snapshot.entries.values())
        accepted = [replace(one, accepted=reason.strip()) for one in unfolded if one.partition in several(partition)]
        for one in accepted:
            log.add(one)
        if rest := [name for name in several(partition) if name not in {one.partition for one in accepted}]:
            entries = select_entries(snapshot.entries, partition=rest)
            accepted += accept(entries, log, several(rule), reason.strip(), datetime.now(UTC))
        log.write()
        return accepted

    def diagnose(self, partition: str | Sequence[str] = ()) -> tuple[Diagnosis, ...]:
        """List unusual facts of nights, largest change first, to find the cause of a failed rule.

        Compares rows, positives, nulls (also by file), quantiles of scores, sizes of clusters, and the costs of
        clusters and classes (see `attribute`) with the last 7 complete earlier nights that fail no rule. It reads the
        states of these nights, not the data.

        Parameters
        ----------
        partition : str or sequence of str
            Names of nights; by default those that fail or are undecided.

        Returns
        -------
        tuple of Diagnosis
            One for each night, in order.

        Raises
        ------
        MissingInputError
            If the store lacks one of the nights.
        """
        context = self._context
        snapshot, configuration = context.begun()
        entries, log = select_entries(snapshot.entries), context.judgements(snapshot)
        nightly, failing = context.nightly(snapshot, configuration), log.failing(entries)
        named = several(partition) or [*failing, *log.failing(entries, "undecided")]
        diagnoses = []
        for entry in select_entries(snapshot.entries, partition=named) if named else []:
            usual = usual_nights(entry, entries, failing)
            night, *others = (_facts(context, nightly, one) for one in (entry, *usual))
            rose = costs(context, configuration, entry, usual) if entry.rows and usual else ()
            diagnoses.append(diagnose_night(entry, night, others, log.closing(entry), rose))
        return tuple(diagnoses)


@explains_arguments
def drift(
    data: object,
    *,
    score: str,
    against: str,
    since: str | date | None = None,
    until: str | date | None = None,
    unit: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Drift:
    """How far the scores of some nights are from those of others, without labels.

    Parameters
    ----------
    data : path or URI of a store, or paths or URIs of files
        The night of a file is the date in the name of its folder, or in its own name. Rows without a score are left
        out, and `Drift.rows` counts the others.
    score, against, since, until
        As `Store.drift`.
    unit : str, optional
        Column of the sampling unit, such as the campaign; a store has its own.
    storage_options : dict of str, optional
        Options of the S3 storage of the store; files have them in their URIs.
    memory, spill, threads, progress
        As `Store`.

    Returns
    -------
    Drift

    Raises
    ------
    StreamevalError
        See `streameval.errors`.

    Examples
    --------
    >>> import os, tempfile
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day, scores in ((1, [0.1, 0.2, 0.3, 0.4]), (2, [0.1, 0.2, 0.7, 0.8])):
    ...         pq.write_table(pa.table({"score": scores}), os.path.join(folder, f"2026-01-0{day}.parquet"))
    ...     drift(folder, score="score", since="2026-01-02", against="2026-01-01").ks
    0.5
    """
    run: dict[str, Any] = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
    if isinstance(data, str | os.PathLike) and not is_pattern(os.fspath(data)):
        store: Store | None = None
        with suppress(OptionError):  # a store is on a local disk or on S3
            store = Store(data, storage_options=storage_options, **run)
        if store is not None and store.exists():
            if unit is not None:
                raise OptionError(f"unit={unit!r} would change nothing: the store has its own; leave it out", "unit")
            return store.drift(score, against=against, since=since, until=until)
    if storage_options:
        raise OptionError("storage_options would change nothing: files have them in their URIs", "storage_options")
    spans = [(since, until), ends_of(against, single=True)]
    return drift_of_files(data, ThreadEngine.start(**run), score, spans, single_unit("unit", unit, "drift"))


def _facts(context: StoreContext, nightly: MetricSeries, entry: Entry) -> NightFacts:
    """The facts of a night that a diagnosis compares."""
    night = nightly.stored.of(entry)
    metrics = nightly.grouped([[entry]], {})[0] if nightly.configuration.options["unit"] else []
    shapes = context.computed(shapes_of, night)
    facts = ledger_facts(entry, nightly.configuration.readable)
    return NightFacts(facts | shapes, metrics, context.computed(slice_facts, night))
