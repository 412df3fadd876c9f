"""Compaction: merge the states of several nights into one file, so that a year is not read from 365 files.

Merged files grow like the digits of a counter: `FAN` nights are merged into a file, `FAN` such files into one of the
next level, and so on. So n nights are read from fewer than `FAN` files on each of log n levels. Histograms hardly grow
as they merge; every update merges them, to any level, at an amortised cost of one merge for each `FAN` − 1 nights.
Exact states grow: a merged file is as large as its nights together. `vacuum` merges them once, `LENGTH` nights at a
time.

Merged files are derived data. A sealed index lists the state files that each merged file covers, and a merged file is
used only if all of these are requested. A replaced night has another state file, so the merged files that contain it
are no longer used; their smaller parts still exist, and the next update merges them again. The nights of a merged file
need not be adjacent, so nights may arrive late or be removed. If a merged file cannot be read, the nights are read
instead. The next update replaces a lost file; `vacuum`, or an update that must merge it, replaces a damaged one.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

from streameval.errors import FormatError, StoreError
from streameval.scan import READ_ERRORS
from streameval.states.rounds import one_by_one
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.files.published import StateFiles, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.budget import Budget
    from streameval.engine import Engine
    from streameval.states.protocol import State, StoredSpec
    from streameval.store.files.location import Location
    from streameval.store.files.published import Each

FAN = 8  # number of histograms that are merged into one
LENGTH = 32  # number of nights in a merged file of exact states


class ColumnFiles(NamedTuple):
    """The state files of a column that have one spec.

    Attributes
    ----------
    spec : Spec of the states
    names : names of the files, in order of the nights
    nbytes : size of all files in bytes
    """

    spec: StoredSpec
    names: Sequence[str]
    nbytes: int


class _MergedFile(NamedTuple):
    """A merged file, and the state files that it covers, each of which is the state of one night."""

    file: str
    stands_for: tuple[str, ...]


class Compaction:
    """The states of a store: state files of single nights, and merged files.

    Parameters
    ----------
    location : Location
        Directory of the merged files.
    files : StateFiles
        The states of single nights.
    """

    def __init__(self, location: Location, files: StateFiles) -> None:
        self.location = location
        self.files = files
        self._index_file = location.child("index.json")
        self._merged = StateFiles(location)

    def read_all(self, names: Sequence[str], nbytes: int, budget: Budget, due: StoredSpec, each: Each) -> list[State]:
        """States that together are those of `names`: merged files as far as possible, then state files.

        Parameters
        ----------
        names : sequence of str
            State files.
        nbytes : int
            Their size in bytes.
        budget : Budget
        due : Spec
            The expected spec.
        each : callable
            Maps a function over a sequence, as `Engine.each`.

        Raises
        ------
        FormatError
            If a state file cannot be read.
        """
        left, used = _cover(self._index() if len(names) > 1 else (), names)
        try:
            states = self._merged.read_all([merged.file for merged in used], nbytes, budget, due, each)
        except FormatError:  # a merged file cannot be read: read the nights instead
            states, left = [], list(names)
        return states + self.files.read_all(left, nbytes * len(left) // max(len(names), 1), budget, due, each)

    def compact(self, columns: Sequence[ColumnFiles], engine: Engine, *, exact: bool) -> int:
        """Merge the states that are due; returns the number of merged files.

        Parameters
        ----------
        columns : sequence of ColumnFiles
            All columns and nights that count.
        engine : Engine
        exact : bool
            Also merge exact states and verify all merged files; both take time proportional to the size of the store.

        Raises
        ------
        FormatError
            If a state file that is due to be merged is damaged.
        StoreError
            If the store cannot be written.
        """
        index = self._index()
        there = {name for name, _, _ in self._merged.list()}
        usable = [
            merged for merged in index if merged.file in there and not (exact and not self._merged.sound(merged.file))
        ]
        try:
            merged_files = self._compact_columns(columns, usable, engine, exact=exact)
        except FormatError:  # if a merged file is damaged, write it again
            usable = [merged for merged in usable if self._merged.sound(merged.file)]
            merged_files = self._compact_columns(columns, usable, engine, exact=exact)
        if merged_files != index:
            items = [{"file": merged.file, "stands_for": merged.stands_for} for merged in merged_files]
            self._index_file.write(seal({"files": items}).encode())
            names = {merged.file for merged in merged_files} | {"index.json"}
            self._merged.delete(self._merged.unneeded(names))
        return len(merged_files)

    def _compact_columns(
        self, columns: Sequence[ColumnFiles], usable: Sequence[_MergedFile], engine: Engine, *, exact: bool
    ) -> list[_MergedFile]:
        """The known merged files that are still wanted, and new ones."""
        merged_files: dict[_MergedFile, None] = {}
        for column in columns:
            here = [merged for merged in usable if set(column.names).issuperset(merged.stands_for)]
            if exact or isinstance(column.spec, HistogramSpec):
                here += self._grow(column, here, engine)
            merged_files |= dict.fromkeys(here)
        return list(merged_files)

    def _grow(self, column: ColumnFiles, usable: Sequence[_MergedFile], engine: Engine) -> list[_MergedFile]:
        """New merged files of a column, of every level."""
        due, names, nbytes = column
        fan, most = (FAN, math.inf) if isinstance(due, HistogramSpec) else (LENGTH, LENGTH)
        left, parts = _cover(usable, names)
        parts += [_MergedFile(name, (name,)) for name in left]
        position, mean = {name: i for i, name in enumerate(names)}, nbytes // len(names)
        new: list[_MergedFile] = []
        while groups := _full_groups(sorted(parts, key=lambda part: position[part.stands_for[0]]), fan, most):
            if len(groups) == 1:  # its parts are read in parallel; several groups are merged in parallel
                merged = [self._merge(groups[0], mean, due, engine.budget, engine.each)]
            else:
                merge = partial(self._merge, mean=mean, due=due, budget=engine.budget, each=one_by_one)
                merged = engine.each(merge, groups)
            used = {part for group in groups for part in group}
            parts = [*(part for part in parts if part not in used), *merged]
            new += merged
        return new

    def _merge(
        self, parts: Sequence[_MergedFile], mean: int, due: StoredSpec, budget: Budget, each: Each
    ) -> _MergedFile:
        """Merge several merged files, or the files of single nights of a mean size, into one file."""
        source = self.files if len(parts[0].stands_for) == 1 else self._merged
        nbytes = mean * sum(len(part.stands_for) for part in parts)
        states = source.read_all([part.file for part in parts], nbytes, budget, due, each)
        file, _ = self._merged.write(reduce(lambda a, b: a.merge(b), states))
        return _MergedFile(file, tuple(name for part in parts for name in part.stands_for))

    def _index(self) -> list[_MergedFile]:
        """The merged files; none if the index is missing or damaged, or one covers no state file."""
        try:
            items = unseal(self._index_file.read())["files"]
            merged = [_MergedFile(item["file"], tuple(item["stands_for"])) for item in items]
        except (*READ_ERRORS, FormatError, StoreError, TypeError):
            return []
        sound = all(
            one.stands_for and all(isinstance(name, str) for name in (one.file, *one.stands_for)) for one in merged
        )
        return merged if sound else []


def _cover(merged: Iterable[_MergedFile], names: Sequence[str]) -> tuple[list[str], list[_MergedFile]]:
    """The names that no merged file covers, and the merged files that cover the others, longest first."""
    left, used = set(names), list[_MergedFile]()
    for one in sorted(merged, key=lambda one: -len(one.stands_for)):
        if left.issuperset(one.stands_for):
            left.difference_update(one.stands_for)
            used.append(one)
    return [name for name in names if name in left], used


def _full_groups(parts: Sequence[_MergedFile], fan: int, most: float) -> list[Sequence[_MergedFile]]:
    """Groups of `fan` parts at the lowest level that has such a group; merged, they hold at most `most` nights."""
    levels: dict[int, list[_MergedFile]] = {}
    for part in parts:
        levels.setdefault(len(part.stands_for), []).append(part)
    for nights, level in sorted(levels.items()):
        if len(level) >= fan and nights * fan <= most:
            return [level[i : i + fan] for i in range(0, len(level) - fan + 1, fan)]
    return []
