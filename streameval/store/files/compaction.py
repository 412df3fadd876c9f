"""Runs: the states of nights merged into larger files, so that a year does not open 365 of them.

Runs grow as the digits of a counter do: `FAN` nights are merged into a run, `FAN` such runs into one of the next level,
and so on, so that n nights are read as fewer than `FAN` files a level, of log n levels. A histogram is as large as any
two of them merged, so that histograms are merged by every update, which costs one merge in `FAN` − 1 nights, and are
merged to any level. Exact states grow as they merge: a run is as large as its nights together. They are merged once,
`LENGTH` nights at a time, when `vacuum` is called.

What is merged is derived: an index says which state files a run stands for, and a run is used only where all of them
are asked for. A night that is replaced has another state file, so the runs that it was in fall out of use by
themselves; the smaller runs that they were made of are still there, and the next update merges them again. Neighbours
need not be merged with neighbours, so that nights may come late or go. Where a run cannot be read the nights are; one
that is lost is made again by the next update, a damaged one when it is merged, or by `vacuum`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from streameval.errors import FormatError, StoreError
from streameval.scan import READ_ERRORS
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.files.states import StateFiles, put, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.budget import Budget
    from streameval.engine import Engine
    from streameval.store.files.location import Location

__all__ = ["FAN", "LENGTH", "Compaction"]

FAN = 8  # files of histograms that become one
LENGTH = 32  # nights of a run of exact states


@dataclass(frozen=True)
class _CompactedFile:
    """A file, and the state files that it stands for."""

    file: str
    stands_for: tuple[str, ...]

    @cached_property
    def times(self) -> Counter[str]:
        """How often it stands for each of them: nights of one content have one file."""
        return Counter(self.stands_for)


class Compaction:
    """The runs of a store, beside its state files.

    Parameters
    ----------
    place : Place
        Directory of the runs.
    files : StateFiles
        The states of single nights.
    """

    def __init__(self, place: Location, files: StateFiles) -> None:
        self.place = place
        self.files = files
        self._merged = StateFiles(place)

    def read(self, name: str, budget: Budget | None = None, due: Any = None) -> Any:
        """The state of one night."""
        return self.files.read(name, budget, due)

    def read_all(self, names: Sequence[str], budget: Budget, due: Any, each: Any) -> list[Any]:
        """States that together are those of `names`: runs where there are any, the rest one by one.

        Parameters
        ----------
        names : sequence of str
            State files.
        budget : Budget
        due : Spec
            What they must be states of.
        each : callable
            Maps a function over a sequence, as `Engine.each`.
        """
        left, used = _covered(self._index() if len(names) > 1 else (), names)
        try:
            states = self._merged.read_all([run.file for run in used], budget, due, each)
        except FormatError:  # one cannot be read: the nights can
            states, left = [], Counter(names)
        return states + self.files.read_all(list(left.elements()), budget, due, each)

    def compact(self, columns: Sequence[tuple[Any, Sequence[str]]], engine: Engine, *, exact: bool) -> int:
        """Merge what is due to be merged; returns the runs there are.

        Parameters
        ----------
        columns : sequence of (Spec, state files in order of the nights)
            All that count.
        engine : Engine
        exact : bool
            Whether exact states are merged too, and all runs are verified: both take time that grows with the store.

        Raises
        ------
        FormatError
            If a file that is merged is damaged.
        StoreError
            If the store cannot be written.
        """
        index = self._index()
        there = {name for name, _, _ in self._merged.list()}
        known = [run for run in index if run.file in there]
        if exact:
            known = self._sound(known)
        try:
            runs = self._compacted(columns, known, engine, exact=exact)
        except FormatError:  # of a run perhaps, which is then made again
            runs = self._compacted(columns, self._sound(known), engine, exact=exact)
        if runs != index:
            told = [{"file": run.file, "stands_for": run.stands_for} for run in runs]
            put(self.place.child("index.json"), json.dumps(told).encode())
            kept = {run.file for run in runs} | {"index.json"}
            self._merged.delete([name for name, _, _ in self._merged.list() if name not in kept])
        return len(runs)

    def _sound(self, runs: Sequence[_CompactedFile]) -> list[_CompactedFile]:
        """Those of the runs whose files are as they were written."""
        return [run for run in runs if self._merged.sound(run.file)]

    def _compacted(
        self,
        columns: Sequence[tuple[Any, Sequence[str]]],
        known: Sequence[_CompactedFile],
        engine: Engine,
        *,
        exact: bool,
    ) -> list[_CompactedFile]:
        """The runs that are known and wanted, and new ones."""
        runs: dict[_CompactedFile, None] = {}
        for due, names in columns:
            wanted = Counter(names)
            here = [run for run in known if _within(run.times, wanted)]
            if exact or isinstance(due, HistogramSpec):
                here += self._grown(due, names, here, engine)
            runs |= dict.fromkeys(here)
        return list(runs)

    def _grown(
        self, due: Any, names: Sequence[str], known: Sequence[_CompactedFile], engine: Engine
    ) -> list[_CompactedFile]:
        """New runs of a column, of every level."""
        fan, most = (FAN, math.inf) if isinstance(due, HistogramSpec) else (LENGTH, LENGTH)
        left, parts = _covered(known, names)
        parts += [_CompactedFile(name, (name,)) for name in left.elements()]
        place = {name: i for i, name in enumerate(names)}
        new: list[_CompactedFile] = []
        while full := _full(sorted(parts, key=lambda part: place[part.stands_for[0]]), fan, most):
            merged = self._merged_groups(full, due, engine)
            used = Counter(part for group in full for part in group)
            parts = [*(Counter(parts) - used).elements(), *merged]
            new += merged
        return new

    def _merged_groups(
        self, groups: Sequence[Sequence[_CompactedFile]], due: Any, engine: Engine
    ) -> list[_CompactedFile]:
        """One run of each group: several groups side by side, or the parts of a single one."""
        if len(groups) == 1:
            return [self._merge(groups[0], due, engine.budget, engine.each)]
        return engine.each(lambda group: self._merge(group, due, engine.budget, _in_turn), groups, "merged")

    def _merge(self, parts: Sequence[_CompactedFile], due: Any, budget: Budget, each: Any) -> _CompactedFile:
        """One run of several, or of nights."""
        source = self.files if len(parts[0].stands_for) == 1 else self._merged
        states = source.read_all([part.file for part in parts], budget, due, each)
        file, _ = self._merged.write(reduce(lambda a, b: a.merge(b), states))
        return _CompactedFile(file, tuple(name for part in parts for name in part.stands_for))

    def _index(self) -> list[_CompactedFile]:
        """The runs there are; none if the index cannot be read."""
        try:
            told = json.loads(read_bytes(self.place.child("index.json")))
            return [_CompactedFile(run["file"], tuple(run["stands_for"])) for run in told]
        except (*READ_ERRORS, StoreError, TypeError):
            return []


def _covered(runs: Iterable[_CompactedFile], names: Sequence[str]) -> tuple[Counter[str], list[_CompactedFile]]:
    """The runs that stand for some of the names, the longest first, and the names that are left."""
    left, used = Counter(names), list[_CompactedFile]()
    for run in sorted(runs, key=lambda run: -len(run.stands_for)):
        while _within(run.times, left):
            left.subtract(run.times)
            used.append(run)
    return +left, used


def _within(part: Counter[str], whole: Counter[str]) -> bool:
    """Whether all of a part is there; in the time that the part takes, unlike ``part <= whole``."""
    return all(whole[name] >= times for name, times in part.items())


def _full(parts: Sequence[_CompactedFile], fan: int, most: float) -> list[Sequence[_CompactedFile]]:
    """Groups of `fan` parts of the smallest level that has one, if what they become is of `most` nights at most."""
    levels: dict[int, list[_CompactedFile]] = {}
    for part in parts:
        levels.setdefault(len(part.stands_for), []).append(part)
    for nights in sorted(levels):
        level = levels[nights]
        if len(level) >= fan and nights * fan <= most:
            return [level[i : i + fan] for i in range(0, len(level) - fan + 1, fan)]
    return []


def _in_turn(function: Any, items: Sequence[Any], _: str) -> list[Any]:
    """Map one after the other."""
    return [function(item) for item in items]
