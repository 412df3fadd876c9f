"""Nightly results: one column's metrics of every night, and of all nights up to each, computed once and kept.

A result is looked for in the `Series` by the state files that it depends on, and computed from them where it is not
there. Cumulative results merge one night more at a time: what is merged is not read again, and every prefix is
finalized, which is linear in its stored keys.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, OptionError
from streameval.results import Scalar
from streameval.store.nights.configuration import REPORTED
from streameval.store.nights.merge import PrefixMerge, evaluated
from streameval.store.results.history import asked, key_of
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.result import Evaluation
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.ledger import Entry, Snapshot
    from streameval.store.nights.configuration import Configuration
    from streameval.store.results.history import Series

__all__ = ["MetricSeries", "by_column"]


def by_column(evaluation: Evaluation, wanted: Sequence[MetricRequest]) -> Iterator[tuple[MetricRequest, list[Scalar]]]:
    """The results of each state, in order."""
    results = iter(evaluation.results)
    for w in wanted:
        yield w, list(islice(results, len(w.metrics)))


class MetricSeries:
    """Results of a snapshot, night by night.

    Parameters
    ----------
    snapshot : Snapshot
    configuration : Configuration
    engine, files : what computes what is missing
    series : Series
        What is kept.
    """

    def __init__(
        self, snapshot: Snapshot, configuration: Configuration, engine: Engine, files: Compaction, series: Series
    ) -> None:
        self.snapshot = snapshot
        self.configuration = configuration
        self.engine = engine
        self.files = files
        self.series = series
        self.evaluated: Callable[..., Evaluation] = evaluated  # or the same on a worker

    @cached_property
    def wanted(self) -> list[MetricRequest]:
        """States and metrics that are kept."""
        return self.configuration.wanted(list(self.snapshot.entries))

    @cached_property
    def _metrics(self) -> str:
        """The options of the metrics that are kept, as text."""
        return _named(self.configuration, {})

    def column(self, metric: str, of: str | None) -> tuple[MetricRequest, dict[str, Any]]:
        """The state that a metric is of, and the options that compute it where it is not one of those kept.

        Raises
        ------
        OptionError
            If there is no such metric or column, or several.
        """
        for options in ({}, asked(metric)):
            wanted = self.configuration.wanted(list(self.snapshot.entries), **options) if options else self.wanted
            found = [w for w in wanted if of in (None, w.of) and any(m.name == metric for m in w.metrics)]
            if len(found) == 1:
                return found[0], options
            if found:
                columns = ", ".join(w.of for w in found)
                msg = f"{metric} is of {columns}; say which with of= (--of), or [column] in a rule"
                raise OptionError(msg)
        have = ", ".join(dict.fromkeys(w.of for w in self.wanted))
        msg = f"no {metric} of {of or 'any column'} in the store; it keeps {have}"
        raise OptionError(msg)

    def nights(self, entries: Sequence[Entry], metric: str, of: str | None) -> list[Scalar]:
        """The metric of each of these nights."""
        w, options = self.column(metric, of)
        keys = [self._key("", entry, w, options) for entry in entries]
        known = self.series.find([key for key in keys if key], metric)
        missing = [(entry, key) for entry, key in zip(entries, keys, strict=True) if key and key not in known]
        for entry, key in missing:
            results = self._computed([entry], w, options)
            self.series.add("night", entry.partition, w.group, key, results)
            known[key] = [result for result in results if result.metric == metric]
        return [known[key][0] if key else _absent(entry, w, metric) for entry, key in zip(entries, keys, strict=True)]

    def cumulative(self, entries: Sequence[Entry], metric: str, of: str | None) -> list[Scalar]:
        """The metric of all nights from the first of these up to each."""
        w, options = self.column(metric, of)
        keys = list(self._prefixes(entries, w, options))
        known, merge = self.series.find(keys, metric), PrefixMerge()
        for i in range(len(entries)):
            if keys[i] not in known:
                results = self._computed(entries[: i + 1], w, options, merge)
                self.series.add("cumulative", entries[i].partition, w.group, keys[i], results)
                known[keys[i]] = [result for result in results if result.metric == metric]
        return [known[key][0] for key in keys]

    def record(self, name: str, evaluation: Evaluation) -> None:
        """Take in what was computed of a night already."""
        entry = self.snapshot.entries[name]
        for w, results in by_column(evaluation, self.wanted):
            self.series.add("night", name, w.group, self._key("", entry, w, {}), results)

    def write(self, before: Snapshot | None = None) -> None:
        """Keep what is due at this version, and nothing else.

        Parameters
        ----------
        before : Snapshot, optional
            The version that this one was made from.
        """
        entries = list(self.snapshot.entries.values())
        if (
            before is not None
            and entries[: len(before.entries)] == list(before.entries.values())  # what was due is still due
            and self.series.appendable(before.version)
        ):
            self.series.append(self.snapshot.version)
            return
        due: set[tuple[str, str]] = set()
        for w in self.wanted if entries else []:
            due |= {("night", self._key("", entry, w, {})) for entry in entries}
            due |= {("cumulative", key) for key in self._prefixes(entries, w, {})}
        self.series.write(self.snapshot.version, due)

    def _key(self, before: str, entry: Entry, w: MetricRequest, options: dict[str, Any]) -> str:
        """Key of a night's results, or of those before it and this one; empty where it has no state."""
        state = entry.state(w.group, w.of)
        if state is None:
            return ""
        metrics = self._metrics if not options else _named(self.configuration, options)
        return key_of(before, entry.partition, state.file, w.group, w.of, metrics)

    def _prefixes(self, entries: Sequence[Entry], w: MetricRequest, options: dict[str, Any]) -> Iterator[str]:
        """Keys of the results of all nights from the first of these up to each."""
        key = ""
        for entry in entries:
            key = self._key(key, entry, w, options) or key_of(key, entry.partition, str(entry.rows > 0), w.group, w.of)
            yield key

    def _computed(
        self, entries: Sequence[Entry], w: MetricRequest, options: dict[str, Any], merge: PrefixMerge | None = None
    ) -> list[Scalar]:
        """All metrics of one state of these nights."""
        absent = sum(entry.rows > 0 and not entry.state(w.group, w.of) for entry in entries)
        if absent:
            return _undefined(w, f"no {w.of} in {absent} of {plural(len(entries), 'night')}")
        only = w.group, w.of
        try:
            found = self.evaluated(
                entries, self.configuration, self.engine, self.files, only=only, merge=merge, **options
            )
        except DataError as error:
            return _undefined(w, str(error))
        return list(found.results)


def _named(configuration: Configuration, options: dict[str, Any]) -> str:
    """The options of metrics as text."""
    return json.dumps({name: options.get(name, configuration.options[name]) for name in REPORTED})


def _absent(entry: Entry, w: MetricRequest, metric: str) -> Scalar:
    """The result of a night without the state."""
    return replace(Scalar.undefined(metric, f"no {w.of}" if entry.rows else "no rows"), of=w.of)


def _undefined(w: MetricRequest, reason: str) -> list[Scalar]:
    """All metrics of a state, without values."""
    return [replace(Scalar.undefined(metric.name, reason), of=w.of) for metric in w.metrics]
