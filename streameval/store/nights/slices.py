"""Slices of nights, finalized from the states that a store keeps for each slice.

The state of a slice is the merge of its states over all nights; results equal those of the files to the last bit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from streameval.errors import MissingInputError, OptionError
from streameval.evaluation.resampling import NO_INTERVALS
from streameval.evaluation.slice_intervals import sampled_slices
from streameval.evaluation.slices import SlicedStates, slice_results
from streameval.evaluation.slicing import Slicing
from streameval.results import Scalar, slice_name
from streameval.scan.derived import slicing
from streameval.states.grouped.state import GroupedSpec
from streameval.store.nights.merge import merged
from streameval.wording import few, hint, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.resampling import Resampling
    from streameval.states.grouped.keys import By
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.results.history import History


def kept_key(configuration: Configuration, columns: Sequence[str]) -> By | None:
    """The stored slicing by these columns, in any order; None if there is none."""
    return next((key for key in configuration.slicing.keys if set(key.columns) == set(columns)), None)


@dataclass(frozen=True)
class KeptSlices:
    """The stored slices of one slicing.

    Attributes
    ----------
    configuration : Configuration
    engine : Engine
    files : Compaction
    key : the slicing
    """

    configuration: Configuration
    engine: Engine
    files: Compaction
    key: By

    @classmethod
    def of(cls, configuration: Configuration, engine: Engine, files: Compaction, text: str) -> KeptSlices:
        """The slices of the slicing that `text` describes.

        Raises
        ------
        OptionError
            If the store does not keep them.
        """
        key = kept_key(configuration, list(slicing(text)))
        if key is None:
            have = configuration.options["by"]
            there = f"slices by {'; '.join(have)}, not by {text}" if have else "no slices"
            msg = f"the store keeps {there}; {hint(text, have)}add them (add STORE DATA --by {text})"
            raise OptionError(msg)
        return cls(configuration, engine, files, key)

    def results(
        self,
        entries: Sequence[Entry],
        only: tuple[str, str] | None = None,
        resampling: Resampling = NO_INTERVALS,
        **options: Any,
    ) -> list[Scalar]:
        """The results of every slice over all these nights, largest slices first.

        Parameters
        ----------
        entries : the nights
        only : (group, column) of a single state to evaluate
        resampling : the sampling intervals and comparisons to compute; if a night lacks the blocks of its slices,
            scores have a reason instead of intervals
        options : metrics and their options, if they differ from the store's

        Raises
        ------
        MissingInputError
            If a night lacks the slices.
        """
        wanted = self.configuration.wanted([entry.partition for entry in entries], **options)
        wanted = [w for w in wanted if only in (None, (w.group, w.of)) and self.configuration.sliced([w])]
        states: dict[Any, Any] = {}
        for w in wanted:
            states[GroupedSpec(w.spec, self.key)] = self.state(entries, w)
        request = self.configuration.request(**options)
        weighted = request.weight is not None
        sliced = SlicedStates(self.engine, Slicing((self.key,)), states, wanted)
        found = list(slice_results(sliced, {}, weighted=weighted))
        if resampling.level is not None:
            sliced = replace(sliced, states=states | self.blocks(entries, wanted))
            found = list(sampled_slices(sliced, found, resampling).results)
        self.engine.budget.release_spares()
        return found if request.label.column is not None else [replace(one, positives=None) for one in found]

    def blocks(self, entries: Sequence[Entry], wanted: Sequence[MetricRequest]) -> dict[Any, Any]:
        """The unit blocks of every slice, for the columns whose blocks all nights have."""
        kept = self.configuration.sliced_blocks(wanted, [self.key])
        there = [w for w in kept if all(entry.state(w.group, w.of) for entry in entries if entry.rows)]
        return {w.spec: merged(w, entries, self.engine, self.files) for w in there}

    def state(self, entries: Sequence[Entry], w: MetricRequest) -> Any:
        """The sliced state of a request, merged over nights.

        Raises
        ------
        MissingInputError
            If a night lacks it.
        """
        [kept] = self.configuration.sliced([w], [self.key])
        self._check_kept(entries, kept.group, w.of)
        state = merged(kept, entries, self.engine, self.files)
        self.key.check(len(state.groups()), state.names)
        return state

    def of_night(
        self,
        entry: Entry,
        metric: str,
        w: MetricRequest,
        options: Mapping[str, Any],
        resampling: Resampling = NO_INTERVALS,
    ) -> list[Scalar]:
        """A metric in every slice of a night; empty if the night has no rows."""
        found = self.results([entry], (w.group, w.of), resampling, **options) if entry.rows else []
        return [one for one in found if one.metric == metric]

    def histories(
        self, entries: Sequence[Entry], metric: str, w: MetricRequest, options: Mapping[str, Any], whole: History
    ) -> list[History]:
        """The histories of a metric in every slice, largest slices first.

        Parameters
        ----------
        entries : the nights
        metric, w, options : the metric, the state that it reads, and the options that compute it
        whole : the history of the metric over all rows, for the same nights
        """
        resampling = self.configuration.request(**options).resampling
        nights = [self.of_night(entry, metric, w, options, resampling) for entry in entries]
        by_night = [{_values(one): one for one in night} for night in nights]
        rows: Counter[tuple[Any, ...]] = Counter()
        named: dict[tuple[Any, ...], dict[str, Any]] = {}
        for one in chain.from_iterable(nights):
            rows[_values(one)] += one.rows
            named.setdefault(_values(one), one.slice or {})
        found = []
        for name, _ in rows.most_common():
            known = [night.get(name) for night in by_night]
            values = [one or replace(Scalar.undefined(metric, "no rows"), of=w.of, rows=0) for one in known]
            points = zip(whole.points, values, strict=True)
            sliced = tuple(replace(point, night=value, cumulative=None) for point, value in points)
            found.append(replace(whole, points=sliced, slice=named[name]))
        return found

    def _check_kept(self, entries: Sequence[Entry], group: str, of: str) -> None:
        """Raise `MissingInputError` if a night lacks the slices of a column."""
        absent = [entry.partition for entry in entries if entry.rows and entry.state(group, of) is None]
        if absent:
            by = ",".join(self.key.columns)
            msg = (
                f"{plural(len(absent), 'night')} without slices of {of} by {by} ({few(absent)}); fold them from their "
                f"files (add STORE DATA --by {by}), or name other nights"
            )
            raise MissingInputError(msg)


def _values(result: Scalar) -> tuple[Any, ...]:
    """The values of a result's slice with their types, because values of different types may compare equal."""
    return tuple((type(value), value) for value in (result.slice or {}).values())


def slices_of(
    entries: Sequence[Entry],
    engine: Engine,
    configuration: Configuration,
    files: Compaction,
    text: str,
    resampling: Resampling,
    options: Mapping[str, Any],
) -> list[Scalar]:
    """The results of every slice over all nights; see `KeptSlices.results`."""
    return KeptSlices.of(configuration, engine, files, text).results(entries, None, resampling, **options)


def slice_histories(
    entries: Sequence[Entry],
    engine: Engine,
    configuration: Configuration,
    files: Compaction,
    text: str,
    asked: Sequence[tuple[str, MetricRequest, Mapping[str, Any], History]],
) -> list[History]:
    """The histories of metrics in every slice; `asked` holds further arguments of `KeptSlices.histories`."""
    slices = KeptSlices.of(configuration, engine, files, text)
    return [one for arguments in asked for one in slices.histories(entries, *arguments)]


def slice_facts(entry: Entry, engine: Engine, configuration: Configuration, files: Compaction) -> dict[str, float]:
    """The share of rows, and the first metric of each column, in every stored slice of a night."""
    found: dict[str, float] = {}
    for key in configuration.slicing.keys if entry.rows else ():
        try:
            results = KeptSlices(configuration, engine, files, key).results([entry])
        except MissingInputError:
            continue
        first: dict[str | None, str] = {}
        for one in results:
            if first.setdefault(one.of, one.metric) == one.metric:
                found[f"{slice_name(one.slice)[1:-1]} (share)"] = one.rows / entry.rows
                found |= {f"{one.metric}[{one.of}]{slice_name(one.slice)}": one.value} if one.value == one.value else {}
    return found
