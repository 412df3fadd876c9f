"""Runs: the states of old nights merged into larger files, so that a year does not open 365 of them.

What is merged is derived: an index says which state files a run stands for, and a run is used only where all of them
are asked for. A night that is replaced has another state file, so its run falls out of use by itself, and its
neighbours are read one by one until the next compaction. A run that cannot be read is passed over.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from streameval.errors import FormatError, StoreError
from streameval.scan import READ_ERRORS
from streameval.store.files import StateFiles, put, read_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.memory import Budget
    from streameval.store.place import Place

__all__ = ["LENGTH", "Runs"]

LENGTH = 32  # nights of a run


@dataclass(frozen=True)
class _Run:
    """A file, and the state files that it stands for."""

    file: str
    stands_for: tuple[str, ...]


class Runs:
    """The runs of a store, beside its state files.

    Parameters
    ----------
    place : Place
        Directory of the runs.
    files : StateFiles
        The states of single nights.
    """

    def __init__(self, place: Place, files: StateFiles) -> None:
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
        left, used = Counter(names), list[_Run]()
        for run in self._index():
            part = Counter(run.stands_for)
            if part <= left:
                left -= part
                used.append(run)
        found = each(lambda run: self._read(run, budget, due), used, "merged")
        for run, state in zip(used, found, strict=True):
            left.update(run.stands_for if state is None else ())
        states = [state for state in found if state is not None]
        return states + self.files.read_all(list(left.elements()), budget, due, each)

    def _read(self, run: _Run, budget: Budget, due: Any) -> Any:
        """The state of a run; None if it cannot be read."""
        with suppress(FormatError):
            return self._merged.read(run.file, budget, due)
        return None

    def compact(self, columns: Sequence[tuple[Any, Sequence[str]]], budget: Budget) -> int:
        """Merge every `LENGTH` neighbouring nights of each column that are not merged yet; returns the runs there are.

        Parameters
        ----------
        columns : sequence of (Spec, state files in order of the nights)
        budget : Budget
        """
        known = {run.stands_for: run for run in self._index()}
        runs: list[_Run] = []
        for due, names in columns:
            for i in range(0, len(names) - LENGTH + 1, LENGTH):
                part = tuple(names[i : i + LENGTH])
                run = known.get(part)
                if run is None:
                    states = [self.files.read(name, budget, due) for name in part]
                    run = _Run(self._merged.write(reduce(lambda a, b: a.merge(b), states))[0], part)
                runs.append(run)
        told = [{"file": run.file, "stands_for": run.stands_for} for run in runs]
        if runs or known:
            put(self.place.child("index.json"), json.dumps(told).encode())
        kept = {run.file for run in runs} | {"index.json"}
        self._merged.delete([name for name, _, _ in self._merged.list() if name not in kept])
        return len(runs)

    def _index(self) -> list[_Run]:
        """The runs there are; none if the index cannot be read."""
        try:
            told = json.loads(read_bytes(self.place.child("index.json")))
            return [_Run(run["file"], tuple(run["stands_for"])) for run in told]
        except (*READ_ERRORS, StoreError, TypeError):
            return []
