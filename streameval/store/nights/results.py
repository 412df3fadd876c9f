"""Cached results of a store: of single nights, of all nights up to each, and of selections.

A result is looked up by its *key*, the hash of everything that it depends on (contents of state files, options,
metrics), and computed from the states if it is missing. Cumulative results merge one more night at a time: nights that
are already merged are not read again, and each prefix is finalized in time proportional to its stored keys.

The cache is a Delta table, which other tools can read too. A row is never outdated, only no longer needed. Rows that
the current version of the ledger does not need are dropped; losing the table only costs time. If new nights come after
all others and the table belongs to the previous version, no row has to be dropped: new rows are appended without
reading the others. The rows are in published files, which are verified when they are read; if one is damaged, all
results are computed again.

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
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import DataError, OptionError, StoreError
from streameval.evaluation.intervals import COUNTED
from streameval.evaluation.request import NO_INTERVALS
from streameval.results import Scalar, from_arrow, result_schema, to_arrow
from streameval.scan import READ_ERRORS
from streameval.store.files.delta import LOG, RowTable, data_files, open_table, read_commit, read_rows, reading
from streameval.store.files.published import PublishedFiles
from streameval.store.nights.configuration import SUBSETS
from streameval.store.nights.merge import Column, PrefixMerge
from streameval.store.nights.slices import evaluate_slices, stored_slicing
from streameval.wording import canonical, plural, unknown_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable

    from streameval.engine import Engine
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.result import Evaluation
    from streameval.rules import Rule
    from streameval.states.grouped.keys import By
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.files.location import Location
    from streameval.store.nights.merge import Nights

    Recalled = tuple[tuple[Scalar, ...], tuple[tuple[str, int], ...], tuple[Scalar, ...]]


DROPPED = "dropped"
FILES = 32  # maximum number of files in the table; beyond it they are rewritten as one

_OWN = ("span", "partition", "group", "key")
_SCHEMA = pa.schema([("version", pa.int64()), *((name, pa.string()) for name in _OWN), *result_schema()])


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
        self._results: dict[str, list[Scalar]] = {}  # those that were read or added, by key
        self._new: dict[str, tuple[str, str, str]] = {}  # span, partition and group of those that were added, by key

    @cached_property
    def _table(self) -> DeltaTable | None:
        """The table; None if there is none, or it cannot be read."""
        with suppress(StoreError):
            return open_table(self.location)
        return None

    @cached_property
    def _rows(self) -> pa.Table:
        """The rows of the table; none if one of its files is missing or damaged: then all are computed again."""
        with suppress(StoreError), reading(self.location):
            names = [] if self._table is None else data_files(self._table)
            return read_rows(self.location, names, _SCHEMA).combine_chunks()
        self._table = None
        return _SCHEMA.empty_table()

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """The rows of each key."""
        places = defaultdict[str, list[int]](list)
        for i, key in enumerate(self._rows["key"].to_pylist()):
            places[key].append(i)
        return places

    def load(self, keys: Iterable[str]) -> None:
        """Read the cached results with some keys at once, which is faster than one by one."""
        new = [key for key in dict.fromkeys(keys) if key not in self._results]
        rows = self._rows.take(pa.array([i for key in new for i in self._places.get(key, ())], pa.int64()))
        self._results |= {key: [] for key in new}
        for key, result in zip(rows["key"].to_pylist(), from_arrow(rows), strict=True):
            self._results[key].append(result)

    def find(self, key: str) -> Sequence[Scalar]:
        """The cached results with a key."""
        if key not in self._results:
            self.load([key])
        return self._results[key]

    def add(self, span: str, partition: str, group: str, key: str, results: Sequence[Scalar]) -> None:
        """Collect new results for `write`."""
        self._new[key], self._results[key] = (span, partition, group), list(results)

    @property
    def current(self) -> bool:
        """Whether the table is intact and holds all computed results."""
        return not self._new and self._table is not None

    def appendable(self, version: int) -> bool:
        """Whether rows can be appended: the table is intact, not full, and was last written at this version."""
        table = self._table
        with suppress(StoreError), reading(self.location):
            if table is not None and len(data_files(table)) < FILES:
                columns = [field.name for field in table.schema().fields]
                newest = read_commit(self.location, table.version())
                action = newest and newest.facts.get("action")
                return columns == _SCHEMA.names and action == _action(version)
        return False

    def write(self, version: int, due: set[str] | None) -> None:
        """Append the new rows, or rewrite the table with those that are needed and drop all others.

        Parameters
        ----------
        version : version of the ledger
        due : keys of the rows to keep, besides those that were read and evaluations of this version; None to append
        """
        rows = self._rows if due is not None else _SCHEMA.empty_table()
        wanted = pc.is_in(rows["key"], pa.array({*(due or ()), *self._results} - self._new.keys(), pa.string()))
        evaluations = pc.and_(pc.equal(rows["span"], "evaluation"), pc.equal(rows["version"], version))
        needed = rows.filter(pc.or_(wanted, evaluations))
        if due is None or not self.current or needed.num_rows < rows.num_rows:
            self._commit(version, needed, self._table if due is None else None)

    def vacuum(self, oldest: float) -> None:
        """Delete unreferenced files that were last modified at `oldest` (seconds since 1970) or earlier.

        Should another process be about to commit one of them, its rows are computed again.
        """
        files = PublishedFiles(self.location)
        listed = files.unneeded((), oldest)  # before the table is read: files that are committed meanwhile are kept
        names: list[str] = []
        with suppress(StoreError), reading(self.location):
            names = [] if self._table is None else data_files(self._table)
        files.delete(listed.keys() - names if names else ())

    def _commit(self, version: int, rows: pa.Table, base: DeltaTable | None) -> None:
        """Commit these rows and the new ones; a failure is ignored, because results can be computed again."""
        new = [((*facts, key), one) for key, facts in self._new.items() for one in self._results[key]]
        results = to_arrow(result for _, result in new)
        for i, name in enumerate(_OWN):
            results = results.add_column(i, name, pa.array([facts[i] for facts, _ in new], pa.string()))
        rows = pa.concat_tables([rows.drop_columns(["version"]), results])
        rows = rows.add_column(0, "version", pa.array([version] * rows.num_rows, pa.int64()))
        with suppress(StoreError):
            table = RowTable(self.location, _SCHEMA)
            added = table.publish(rows)
            try:  # another process may have written it, or the disk may be full
                open_table(self.location)
            except StoreError:  # a damaged log would be in the way for ever: begin another
                base, log = None, self.location.child(LOG)
                with suppress(*READ_ERRORS):
                    log.filesystem.delete_dir(log.path)
            table.commit(base, added, {"action": _action(version)}, anew=base is None)


def _action(version: int) -> str:
    """The description of a commit, which records the version of the ledger."""
    return f"version {version}"


@dataclass(eq=False)
class MetricSeries:
    """Cached results of a snapshot.

    Attributes
    ----------
    snapshot : a version of the store
    stored : all of its nights
    engine : computes the results that are not cached
    cache : the others
    evaluate : evaluates nights, as `Nights.evaluate`
    """

    snapshot: Snapshot
    stored: Nights
    engine: Engine
    cache: ResultCache
    evaluate: Callable[..., Evaluation]

    def __post_init__(self) -> None:
        self.configuration = self.stored.configuration
        self._columns: dict[str, list[Column]] = {}

    def columns(self, **options: object) -> list[Column]:
        """The columns of the store, with its own metrics, or those of other options."""
        text = repr(options)
        if text not in self._columns:
            request = self.configuration.request(**options)
            self._columns[text] = [Column(request, w, options) for w in self.configuration.wanted(request)]
        return self._columns[text]

    def column(self, metric: str, of: str | None, level: float | None = None) -> Column:
        """The column of a metric.

        Parameters
        ----------
        metric, of : the metric and its column; `of` may be None if there is only one
        level : level of the sampling intervals, if it differs from the store's

        Raises
        ------
        OptionError
            If there is no such metric or column, or several columns have the metric.
        """
        columns = self._with_metric(metric, () if of is None else [of], level)
        if len(columns) > 1:
            names = [column.w.of for column in columns]
            raise OptionError(
                f"{metric} is of {', '.join(names)}; say which: {metric}[{names[0]}] in a rule, else of={names[0]!r}"
            )
        return columns[0]

    def _with_metric(self, metric: str, of: Sequence[str] = (), level: float | None = None) -> list[Column]:
        """The given columns, or all, that have a metric.

        Raises
        ------
        OptionError
            If one of the columns has no such metric.
        """
        have = list(dict.fromkeys(column.w.of for column in self.columns()))
        absent = [name for name in of if name not in have]
        if absent:
            raise OptionError(f"{metric}: {unknown_column(absent[0], have, 'the store keeps')}")
        metric, of_level = canonical(metric), {} if level is None else {"ci": level}
        choices: tuple[dict[str, object], ...] = ({}, {"metrics": (metric,), "truncate": (), "at": ()})
        for options in choices:
            named = [c for c in self.columns(**options, **of_level) if any(m.name == metric for m in c.w.metrics)]
            if matches := [column for column in named if not of or column.w.of in of]:
                return matches
        raise OptionError(f"no {metric} of {', '.join(of) or 'any column'} in the store; it keeps {', '.join(have)}")

    def named(self, pattern: str, of: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Pairs (metric, column) that match a name, a glob or a family such as ``calibration``.

        Raises
        ------
        OptionError
            If one of the columns has no such metric.
        """
        try:
            return [(canonical(pattern), column.w.of) for column in self._with_metric(pattern, of)]
        except OptionError:
            with suppress(OptionError):
                requests = [c.w for c in self.columns(metrics=(pattern,)) if not of or c.w.of in of]
                names = dict.fromkeys(metric.name for w in requests for metric in w.metrics)
                if names:
                    return [(name, w.of) for name in names for w in requests if any(m.name == name for m in w.metrics)]
            raise

    def grouped(self, groups: Sequence[Sequence[Entry]], options: Mapping[str, object]) -> list[list[Scalar]]:
        """All metrics of each group of nights, in the order of the states."""
        rows: list[list[Scalar]] = [[] for _ in groups]
        for column in self.columns(**options):
            names = [metric.name for metric in column.w.metrics]
            keys = [[*self._prefixes(group, column)][-1] for group in groups]
            self.cache.load(keys)
            for group, key, row in zip(groups, keys, rows, strict=True):
                row += self._cached("night", key, group[-1], column, names, partial(self._computed, group, column))
        return rows

    def values(
        self,
        entries: Sequence[Entry],
        metric: str,
        of: str | None,
        level: float | None = None,
        *,
        cumulative: bool = False,
    ) -> list[Scalar]:
        """A metric of each night, or over all nights from the first of these up to each.

        Parameters
        ----------
        entries : the nights
        metric, of : the metric and its column
        level : level of the sampling intervals, if it differs from the store's
        cumulative : whether to merge each night with those before it
        """
        names, column, results = [canonical(metric)], self.column(metric, of, level), list[Scalar]()
        keys = [*self._prefixes(entries, column)] if cumulative else [self._key("", e, column) for e in entries]
        self.cache.load(keys)
        span, merge = ("cumulative", PrefixMerge()) if cumulative else ("night", None)
        for i, (entry, key) in enumerate(zip(entries, keys, strict=True)):
            if key:
                compute = partial(self._computed, entries[0 if cumulative else i : i + 1], column, merge)
                results += self._cached(span, key, entry, column, names, compute)
            else:
                results += column.undefined(f"no {column.w.of}" if entry.rows else "no rows", names)
        return results

    def differences(self, entries: Sequence[Entry], metric: str, pair: tuple[str, str], level: float) -> list[Scalar]:
        """The difference of a metric between two columns in each night, with its sampling interval."""
        name, values = canonical(metric), list[Scalar]()
        one, other = (self.column(metric, of, level) for of in pair)
        for entry in entries:
            key = key_of("difference", *(self._key("", entry, column) for column in (one, other)))
            compute = partial(self._difference, entry, one, pair, name)
            values += self._cached("night", key, entry, one, [name], compute)
        return values

    def column_with(self, metrics: Sequence[str], of: str, level: float) -> Column:
        """A column with these metrics alone, which it has."""
        columns = self.columns(metrics=tuple(metrics), truncate=(), at=(), ci=level)
        return next(c for c in columns if c.w.of == of and {*metrics} <= {metric.name for metric in c.w.metrics})

    def estimates(self, entry: Entry, column: Column) -> list[Estimated]:
        """The metrics of a column in a night with their replicates.

        Raises
        ------
        DataError
            If the night has no rows or lacks the column.
        """
        found = self.stored.of(entry).evaluate(self.engine, column.request, column.states).estimates
        if not found:
            raise DataError(f"{entry.partition}: no {column.w.of}")
        return list(found)

    def slices(self, entry: Entry, rule: Rule) -> list[Scalar]:
        """The metric of a rule in each slice of a night, by the rule's slicing columns."""
        column = self.column(rule.metric, rule.of)
        night, keys = self.stored.of(entry), [self.slicing_of(rule)]
        results = evaluate_slices(night, self.engine, column.request, keys, NO_INTERVALS, column.states)
        return [one for one in results if one.metric == canonical(rule.metric)]

    def slicing_of(self, rule: Rule) -> By:
        """The stored slicing that a rule judges; raises `OptionError` if the store does not keep it."""
        for key in self.configuration.slicing.keys:
            if rule.values_of(dict.fromkeys(key.columns)):
                return key
        return stored_slicing(self.configuration, ",".join(column for column, _ in rule.slices))

    def record(self, name: str, evaluation: Evaluation) -> None:
        """Add the results of a night that was just folded to the cache."""
        entry, results = self.snapshot.entries[name], iter(evaluation.results)
        for column in self.columns():
            own = list(islice(results, len(column.w.metrics)))
            self.cache.add("night", name, column.w.group, self._key("", entry, column), own)

    def recall(self, key: str) -> Recalled | None:
        """Results, dropped rows and counts of the cached evaluation with a key; None if it is not cached."""
        rows = dict.fromkeys(self.cache.find(key))  # without duplicates from several files of the table
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
            self.cache.write(self.snapshot.version, None)
            return
        due: set[str] = set()
        for column in self.columns() if entries else []:
            due |= {self._key("", entry, column) for entry in entries} | set(self._prefixes(entries, column))
        self.cache.write(self.snapshot.version, due)

    def _cached(
        self,
        span: str,
        key: str,
        last: Entry,
        column: Column,
        names: Sequence[str],
        compute: Callable[[], list[Scalar]],
    ) -> list[Scalar]:
        """Some metrics of the results with a key, computed unless they are cached."""
        by_name = {result.metric: result for result in self.cache.find(key)}
        if not by_name.keys() >= set(names):
            results = compute()
            self.cache.add(span, last.partition, column.w.group, key, results)
            by_name = {result.metric: result for result in results}
        return [by_name[name] for name in names]

    def _key(self, before: str, entry: Entry, column: Column) -> str:
        """Key of the results of a night; `before` is the key of the nights before it. Empty if it lacks the state."""
        w = column.w
        state = entry.state(w.group, w.of)
        if state is None:
            return ""
        source = w.family.replication.source_family
        groups = [f"{w.group}.blocks", *((source, f"{source}.blocks") if source else ())]
        groups += [one.group for one in w.stored[1:]]
        further: list[tuple[str, ...]] = [one.content for group in groups if (one := entry.state(group, w.of))]
        further += [self._of_store] * bool(w.further)
        return key_of(before, entry.partition, *state.content, *chain.from_iterable(further), column.options)

    @cached_property
    def _of_store(self) -> tuple[str, ...]:
        """The contents of the states that are of all nights, whichever are evaluated."""
        names = sorted({name for column in self.columns() for name in column.w.further})
        states = (entry.state(*name) for entry in self.snapshot.entries.values() for name in names)
        return tuple(chain.from_iterable(state.content for state in states if state))

    def _prefixes(self, entries: Sequence[Entry], column: Column) -> Iterator[str]:
        """Keys of the results over all nights from the first of these up to each."""
        key = ""
        for entry in entries:
            facts = entry.partition, str(entry.rows > 0), column.w.group, column.w.of, column.options
            key = self._key(key, entry, column) or key_of(key, *facts)
            yield key

    def _computed(self, entries: Sequence[Entry], column: Column, merge: PrefixMerge | None = None) -> list[Scalar]:
        """All metrics of a column of these nights."""
        nights, names = self.stored.of(*entries), [metric.name for metric in column.w.metrics]
        absent = nights.lacking(column.w.group, column.w.of)
        if not names or absent:
            return column.undefined(f"no {column.w.of} in {len(absent)} of {plural(len(entries), 'night')}")
        try:
            evaluation = self.evaluate(nights, self.engine, column.request, column.states, merge)
        except DataError as error:
            return column.undefined(str(error))
        return [result for result in evaluation.results if result.metric in names]

    def _difference(self, entry: Entry, one: Column, pair: tuple[str, str], metric: str) -> list[Scalar]:
        reason, columns = f"no {' or '.join(pair)} in {entry.partition}", one.w.family.column
        options = {**one.given, "metrics": (metric,), **dict.fromkeys(SUBSETS, ()), columns: pair, "baseline": pair[1:]}
        try:
            request = self.configuration.request(**options)
            results = self.evaluate(self.stored.of(entry), self.engine, request).results
            matches = [r for r in results if r.baseline == pair[1] and r.metric == metric]
        except DataError as error:
            matches, reason = [], str(error)
        return [*matches, Scalar.undefined(metric, reason)][:1]
