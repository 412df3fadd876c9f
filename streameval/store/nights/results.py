"""Cached results of a store: of single nights, of all nights up to each, and of selections.

A result is looked up by its *key*, the hash of everything that it depends on (contents of state files, options,
metrics), and computed from the states if it is missing. Cumulative results merge one more night at a time: nights that
are already merged are not read again, and each prefix is finalized in time proportional to its stored keys.

The cache is a Delta table, which other tools can read too. A row is never outdated, only no longer needed. Rows that
the current version of the ledger does not need are dropped; losing the table only costs time. If new nights come after
all others and the table belongs to the previous version, no row has to be dropped: new rows are appended without
reading the others. The rows are in published files, which are verified when they are read; damaged rows are computed
again.

==================  ======================================================================================
``version``         version of the ledger at which the row was written
``span``            ``night``; ``cumulative``: all nights from the first on; ``evaluation``: any selection
``partition``       the night, the last of the nights, or the first and the last
``of``, ``metric``  as in results, with ``value``, ``lower``, ``upper``, …
==================  ======================================================================================

An evaluation also has one row of the metric `DROPPED` for each reason to leave out rows.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import DataError, FormatError, OptionError, StoreError
from streameval.evaluation.intervals import COUNTED
from streameval.options import as_json
from streameval.results import Scalar, from_arrow, result_schema, to_arrow
from streameval.scan import READ_ERRORS
from streameval.store.files.delta import LOG, RowTable, data_files, open_table, read_commit, read_rows, reading
from streameval.store.files.published import PublishedFiles
from streameval.store.nights.configuration import REPORTED
from streameval.store.nights.merge import PrefixMerge
from streameval.store.nights.slices import KeptSlices
from streameval.wording import canonical, plural, unknown_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.family import MetricRequest
    from streameval.evaluation.result import Evaluation
    from streameval.rules import Rule
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.files.location import Location
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.merge import Nights


DROPPED = "dropped"
FILES = 32  # maximum number of files in the table; beyond it they are rewritten as one

_OWN = {"version": pa.int64()} | dict.fromkeys(("span", "partition", "group", "key"), pa.string())
_SCHEMA = pa.schema([*_OWN.items(), *result_schema()])


def key_of(*facts: str) -> str:
    """The key of a result: a hash of the facts that it depends on.

    Examples
    --------
    >>> key_of("a.parquet", "roc_auc") == key_of("a.parquet", "roc_auc") != key_of("a.parquetroc_auc")
    True
    """
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


class ResultCache:
    """The cached results of a store.

    Parameters
    ----------
    location : Location
        Directory of the table.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._new: list[tuple[tuple[str, str, str, str], Scalar]] = []
        self._asked: set[str] = set()
        self._damaged = False

    @cached_property
    def _table(self) -> Any:
        """The table; None if there is none, or it cannot be read."""
        with suppress(StoreError):
            return open_table(self.location)
        return None

    @cached_property
    def _files(self) -> list[str]:
        """Names of the files of the table."""
        with suppress(StoreError), reading(self.location):
            return [] if self._table is None else data_files(self._table)
        self._damaged = True
        return []

    @cached_property
    def _rows(self) -> pa.Table:
        """The rows that can be read."""
        parts = [_SCHEMA.empty_table()]
        for name in self._files:
            try:
                parts.append(read_rows(self.location, [name], _SCHEMA))
            except (FormatError, *READ_ERRORS):
                self._damaged = True
        return pa.concat_tables(parts)

    def appendable(self, version: int) -> bool:
        """Whether rows can be appended: the table is intact, not full, and was last written at this version."""
        if len(self._files) >= FILES or self._table is None or self._damaged:
            return False
        with suppress(StoreError), reading(self.location):
            columns = [field.name for field in self._table.schema().fields]
            newest = read_commit(self.location, self._table.version())
            return columns == _SCHEMA.names and newest is not None and newest.facts.get("action") == _action(version)
        return False

    def find(self, keys: Iterable[str], metric: str | None = None) -> dict[str, list[Scalar]]:
        """Cached results by key, optionally only those of one metric; missing keys are absent."""
        due, results = set(keys), dict[str, list[Scalar]]()
        self._asked |= due
        rows = self._rows.filter(pc.is_in(self._rows["key"], pa.array(due, pa.string())))
        stored = zip(rows["key"].to_pylist(), from_arrow(rows), strict=True)
        for key, result in [*stored, *((key, result) for (*_, key), result in self._new if key in due)]:
            if metric in (None, result.metric):
                results.setdefault(key, []).append(result)
        return results

    def add(self, span: str, partition: str, group: str, key: str, results: Sequence[Scalar]) -> None:
        """Collect new results for `write` or `append`."""
        self._new += [((span, partition, group, key), result) for result in results]

    def write(self, version: int, due: set[str]) -> None:
        """Write the new rows and keep those whose key is in `due` or was requested, and evaluations of this version.

        All other rows are dropped.
        """
        rows, new = self._rows, [key for (*_, key), _ in self._new]
        wanted = pc.is_in(rows["key"], pa.array((due | self._asked).difference(new), pa.string()))
        evaluations = pc.and_(pc.equal(rows["span"], "evaluation"), pc.equal(rows["version"], version))
        kept = rows.filter(pc.or_(wanted, evaluations))
        if new or self._damaged or self._table is None or kept.num_rows < rows.num_rows:
            self._commit(version, kept, None)

    @property
    def current(self) -> bool:
        """Whether the table is intact and holds all computed results."""
        return not (self._new or self._damaged or self._table is None)

    def append(self, version: int) -> None:
        """Append the new rows to the table."""
        self._commit(version, _SCHEMA.empty_table(), self._table)

    def vacuum(self, oldest: float) -> None:
        """Delete unreferenced files that were last modified at `oldest` (seconds since 1970) or earlier.

        Should another process be about to commit one of them, its rows are computed again.
        """
        files = PublishedFiles(self.location)
        listed = files.unneeded((), oldest)  # before the table is read: files that are committed meanwhile are kept
        if self._files:
            files.delete(listed.keys() - self._files)

    def _commit(self, version: int, kept: pa.Table, base: Any) -> None:
        """Commit the new rows and the kept ones; a failure is ignored, because results can be computed again."""
        results = to_arrow(result for _, result in self._new)
        for i, name in enumerate(("span", "partition", "group", "key")):
            results = results.add_column(i, name, pa.array([facts[i] for facts, _ in self._new], pa.string()))
        rows = pa.concat_tables([kept.drop_columns(["version"]), results])
        rows = rows.add_column(0, "version", pa.array([version] * rows.num_rows, pa.int64()))
        with suppress(StoreError):
            table = RowTable(self.location, _SCHEMA)
            added = table.publish(rows)
            if self._unreadable():  # a damaged log would be in the way for ever: begin another
                base, log = None, self.location.child(LOG)
                with suppress(*READ_ERRORS):
                    log.filesystem.delete_dir(log.path)
            table.commit(base, added, {"action": _action(version)}, anew=base is None)

    def _unreadable(self) -> bool:
        """Whether the table cannot be opened; another process may have written it, or the disk may be full, instead."""
        try:
            open_table(self.location)
        except StoreError:
            return True
        return False


def _action(version: int) -> str:
    """The description of a commit, which records the version of the ledger."""
    return f"version {version}"


def by_column(evaluation: Evaluation, wanted: Sequence[MetricRequest]) -> Iterator[tuple[MetricRequest, list[Scalar]]]:
    """Split the results of an evaluation by state, in order."""
    results = iter(evaluation.results)
    for w in wanted:
        yield w, list(islice(results, len(w.metrics)))


class MetricSeries:
    """Cached results of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
    stored : Nights
        All nights of the snapshot.
    engine : Engine
        Computes the results that are not cached.
    cache : ResultCache
    evaluate : evaluates nights, as `Nights.evaluate`
    """

    def __init__(
        self,
        snapshot: Snapshot,
        stored: Nights,
        engine: Engine,
        cache: ResultCache,
        evaluate: Callable[..., Evaluation],
    ) -> None:
        self.snapshot = snapshot
        self.stored = stored
        self.configuration = stored.configuration
        self.engine = engine
        self.cache = cache
        self.evaluate = evaluate

    @cached_property
    def wanted(self) -> list[MetricRequest]:
        """The states of the store, with its default metrics."""
        return self.configuration.wanted(list(self.snapshot.entries))

    @cached_property
    def _metrics(self) -> str:
        """The options of the store's default metrics, as text."""
        return _named(self.configuration, {})

    def column(self, metric: str, of: str | None, level: float | None = None) -> tuple[MetricRequest, dict[str, Any]]:
        """The state that a metric reads, and the options that compute it (empty for the store's own).

        Parameters
        ----------
        metric, of : the metric and its column; `of` may be None if there is only one
        level : level of the sampling intervals, if it differs from the store's

        Raises
        ------
        OptionError
            If there is no such metric or column, or several columns have the metric.
        """
        matches = self.columns(metric, () if of is None else [of])
        if len(matches) > 1:
            columns = ", ".join(w.of for w, _ in matches)
            raise OptionError(f"{metric} is of {columns}; say which with of= (--of), or [column] in a rule")
        w, options = matches[0]
        return w, options if level is None else {**options, "ci": level}

    def columns(self, metric: str, of: Sequence[str] = ()) -> list[tuple[MetricRequest, dict[str, Any]]]:
        """The states that a metric reads for the given columns, or for all, with the options that compute it.

        Raises
        ------
        OptionError
            If one of the columns has no such metric.
        """
        have = list(dict.fromkeys(w.of for w in self.wanted))
        absent = [name for name in of if name not in have]
        if absent:
            raise OptionError(f"{metric}: {unknown_column(absent[0], have, 'the store keeps')}")
        metric = canonical(metric)
        for options in ({}, {"metrics": (metric,), "truncate": (), "at": ()}):
            wanted = self.configuration.wanted(list(self.snapshot.entries), **options) if options else self.wanted
            named = [w for w in wanted if any(m.name == metric for m in w.metrics)]
            matches = [w for w in named if not of or w.of in of]
            if matches:
                return [(w, options) for w in matches]
        raise OptionError(f"no {metric} of {', '.join(of) or 'any column'} in the store; it keeps {', '.join(have)}")

    def named(self, pattern: str, of: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Pairs (metric, column) that match a name, a glob or a family such as ``calibration``.

        Raises
        ------
        OptionError
            If one of the columns has no such metric.
        """
        try:
            return [(canonical(pattern), w.of) for w, _ in self.columns(pattern, of)]
        except OptionError:
            with suppress(OptionError):
                wanted = self.configuration.wanted(list(self.snapshot.entries), metrics=(pattern,))
                pairs = [(metric.name, w.of) for w in wanted if not of or w.of in of for metric in w.metrics]
                if pairs:
                    names = list(dict.fromkeys(name for name, _ in pairs))
                    return sorted(pairs, key=lambda pair: names.index(pair[0]))
            raise

    def grouped(self, groups: Sequence[Sequence[Entry]], options: dict[str, Any]) -> list[list[Scalar]]:
        """All metrics of each group of nights, evaluated together, in the order of the states."""
        wanted = self.configuration.wanted(list(self.snapshot.entries), **options) if options else self.wanted
        rows: list[list[Scalar]] = [[] for _ in groups]
        for w in wanted:
            keys = [list(self._prefixes(group, w, options))[-1] for group in groups]
            known = self.cache.find(keys)
            for key, group, row in zip(keys, groups, rows, strict=True):
                if key not in known:
                    known[key] = self._computed(group, w, options)
                    self.cache.add("night", group[-1].partition, w.group, key, known[key])
                by_name = {result.metric: result for result in known[key]}
                row += [by_name[metric.name] for metric in w.metrics]
        return rows

    def nights(self, entries: Sequence[Entry], metric: str, of: str | None, level: float | None = None) -> list[Scalar]:
        """A metric of each night; `level` is the level of sampling intervals, if it differs from the store's."""
        metric = canonical(metric)
        w, options = self.column(metric, of, level)
        keys = [self._key("", entry, w, options) for entry in entries]
        known = self.cache.find([key for key in keys if key], metric)
        missing = [(entry, key) for entry, key in zip(entries, keys, strict=True) if key and key not in known]
        for entry, key in missing:
            results = self._computed([entry], w, options)
            self.cache.add("night", entry.partition, w.group, key, results)
            known[key] = [result for result in results if result.metric == metric]
        return [known[key][0] if key else _absent(entry, w, metric) for entry, key in zip(entries, keys, strict=True)]

    def slices(self, entry: Entry, rule: Rule) -> list[Scalar]:
        """The metric of a rule in each slice of a night, by the rule's slicing columns.

        Raises
        ------
        OptionError
            If the store does not keep these slices.
        """
        w, options = self.column(rule.metric, rule.of)
        kept = self.kept_slices(rule)
        return list(kept.of_night(entry, canonical(rule.metric), w, options))

    def kept_slices(self, rule: Rule) -> KeptSlices:
        """The stored slices that a rule judges; raises `OptionError` if the store does not keep them."""
        for key in self.configuration.slicing.keys:
            if rule.values_of(dict.fromkeys(key.columns)):
                return KeptSlices(self.stored, self.engine, key)
        by = ",".join(column for column, _ in rule.slices)
        return KeptSlices.of(self.stored, self.engine, by)

    def differences(self, entries: Sequence[Entry], metric: str, pair: tuple[str, str], level: float) -> list[Scalar]:
        """The difference of a metric between two columns in each night, with its sampling interval."""
        metric = canonical(metric)
        (one, options), (other, _) = (self.column(metric, of, level) for of in pair)
        results = []
        for entry in entries:
            key = key_of("difference", self._key("", entry, one, options), self._key("", entry, other, options))
            if key not in (known := self.cache.find([key], metric)):
                known[key] = [self._difference(entry, one, pair, {"metrics": (metric,), **options})]
                self.cache.add("night", entry.partition, one.group, key, known[key])
            results += known[key][:1]
        return results

    def _difference(self, entry: Entry, one: MetricRequest, pair: tuple[str, str], options: dict[str, Any]) -> Scalar:
        others = {"score": (), "cluster": (), "sketch": ()} | {one.family.column: pair}
        metric = options["metrics"][0]
        try:
            night = self.stored.of(entry)
            results = self.evaluate(night, self.engine, **others, baseline=pair[1:], **options).results
        except DataError as error:
            return Scalar.undefined(metric, str(error))
        wanted = (r for r in results if r.baseline == pair[1] and r.metric == metric)
        return next(wanted, Scalar.undefined(metric, f"no {' or '.join(pair)} in {entry.partition}"))

    def cumulative(
        self, entries: Sequence[Entry], metric: str, of: str | None, level: float | None = None
    ) -> list[Scalar]:
        """A metric over all nights from the first of these up to each; `level` as in `nights`."""
        metric = canonical(metric)
        w, options = self.column(metric, of, level)
        keys = list(self._prefixes(entries, w, options))
        known, merge = self.cache.find(keys, metric), PrefixMerge()
        for i in range(len(entries)):
            if keys[i] not in known:
                results = self._computed(entries[: i + 1], w, options, merge)
                self.cache.add("cumulative", entries[i].partition, w.group, keys[i], results)
                known[keys[i]] = [result for result in results if result.metric == metric]
        return [known[key][0] for key in keys]

    def record(self, name: str, evaluation: Evaluation) -> None:
        """Add the results of a night that was just folded to the cache."""
        entry = self.snapshot.entries[name]
        for w, results in by_column(evaluation, self.wanted):
            self.cache.add("night", name, w.group, self._key("", entry, w, {}), results)

    def recall(self, key: str) -> tuple[tuple[Scalar, ...], tuple[tuple[str, int], ...], tuple[Scalar, ...]] | None:
        """Results, dropped rows and counts of the cached evaluation with a key; None if it is not cached."""
        rows = dict.fromkeys(self.cache.find([key]).get(key, ()))  # without duplicates from several files of the table
        if not rows:
            return None
        dropped = tuple((str(row.reason), row.rows) for row in rows if row.metric == DROPPED)
        counts = tuple(row for row in rows if row.metric in COUNTED)
        return tuple(row for row in rows if row.metric not in (DROPPED, *COUNTED)), dropped, counts

    def keep(self, key: str, entries: Sequence[Entry], evaluation: Evaluation) -> None:
        """Cache an evaluation under a key until the ledger changes."""
        ends = " to ".join(dict.fromkeys((entries[0].partition, entries[-1].partition)))
        dropped = [replace(Scalar.undefined(DROPPED, reason), rows=rows) for reason, rows in evaluation.dropped]
        self.cache.add("evaluation", ends, "", key, [*evaluation.results, *dropped, *evaluation.counts])
        self.write(self.snapshot)

    def write(self, before: Snapshot | None = None) -> None:
        """Write new results, keep those that this version needs or that were requested, and drop all others.

        Parameters
        ----------
        before : Snapshot, optional
            The previous version: if its entries come first in this one, new rows are appended and none is dropped.
        """
        entries = list(self.snapshot.entries.values())
        if before is None and self.cache.current:
            return
        if (
            before is not None
            and entries[: len(before.entries)] == list(before.entries.values())  # what was due is still due
            and self.cache.appendable(before.version)
        ):
            self.cache.append(self.snapshot.version)
            return
        due: set[str] = set()
        for w in self.wanted if entries else []:
            due |= {self._key("", entry, w, {}) for entry in entries} | set(self._prefixes(entries, w, {}))
        self.cache.write(self.snapshot.version, due)

    def _key(self, before: str, entry: Entry, w: MetricRequest, options: dict[str, Any]) -> str:
        """Key of the results of a night; `before` is the key of the nights before it. Empty if it lacks the state."""
        state = entry.state(w.group, w.of)
        if state is None:
            return ""
        source = w.family.replication.source_family
        groups = (f"{w.group}.blocks", *((source, f"{source}.blocks") if source else ()))
        further = (kept.content for group in groups if (kept := entry.state(group, w.of)))
        return key_of(before, entry.partition, *state.content, *chain.from_iterable(further), self._asked(options))

    def _asked(self, options: dict[str, Any]) -> str:
        """The options that affect metrics, as text for keys."""
        return self._metrics if not options else _named(self.configuration, options)

    def _prefixes(self, entries: Sequence[Entry], w: MetricRequest, options: dict[str, Any]) -> Iterator[str]:
        """Keys of the results over all nights from the first of these up to each."""
        key = ""
        for entry in entries:
            facts = entry.partition, str(entry.rows > 0), w.group, w.of, self._asked(options)
            key = self._key(key, entry, w, options) or key_of(key, *facts)
            yield key

    def _computed(
        self, entries: Sequence[Entry], w: MetricRequest, options: dict[str, Any], merge: PrefixMerge | None = None
    ) -> list[Scalar]:
        """All metrics of one state of these nights."""
        if not w.metrics:
            return []
        absent = sum(entry.rows > 0 and not entry.state(w.group, w.of) for entry in entries)
        if absent:
            return _undefined(w, f"no {w.of} in {absent} of {plural(len(entries), 'night')}")
        nights, only = self.stored.of(*entries), (w.group, w.of)
        try:
            evaluation = self.evaluate(nights, self.engine, only=only, merge=merge, **options)
        except DataError as error:
            return _undefined(w, str(error))
        return [result for result in evaluation.results if result.metric in {metric.name for metric in w.metrics}]


def _named(configuration: Configuration, options: dict[str, Any]) -> str:
    """The options that affect metrics, as JSON text."""
    return json.dumps({name: as_json(options.get(name, configuration.options[name])) for name in REPORTED})


def _absent(entry: Entry, w: MetricRequest, metric: str) -> Scalar:
    """The result of a night without the state."""
    return replace(Scalar.undefined(metric, f"no {w.of}" if entry.rows else "no rows"), of=w.of)


def _undefined(w: MetricRequest, reason: str) -> list[Scalar]:
    """Undefined results for all metrics of a state."""
    return [replace(Scalar.undefined(metric.name, reason), of=w.of) for metric in w.metrics]
