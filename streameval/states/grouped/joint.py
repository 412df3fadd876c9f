"""Several slicings of one score at once: rows are folded by the combination of their values.

A combination that occurs is a *cell*; each group of a slicing is a union of cells. Up to 2¹⁵ cells are interleaved, so
a row is stored once for any number of slicings, and one sweep finalizes all of them if there are no weights
(`streameval.states.grouped.group_sweep`). A builder that meets more cells folds all further rows for each slicing
separately. The layout does not change results.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streameval.states.grouped.cluster_sweep import ClusterSweep
from streameval.states.grouped.composite import CompositeGroups
from streameval.states.grouped.group_sweep import GroupSweep
from streameval.states.grouped.interleaved.scores import Interleaved, InterleavedBuilder, interleaves
from streameval.states.grouped.keys import By
from streameval.states.grouped.names import parts_of
from streameval.states.grouped.state import Grouped, GroupedSpec
from streameval.states.protocol import PlainSpec, Small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.protocol import Batch, Totals

__all__ = ["Joint", "JointSpec", "side_by_side"]


@dataclass(frozen=True)
class JointSpec(PlainSpec):
    """An interleaved score state in several slicings.

    Parameters
    ----------
    inner : ScoreSpec
    keys : the slicings

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.protocol import Batch
    >>> from streameval.states.scores.counts import ScoreSpec
    >>> spec = JointSpec(ScoreSpec("score", "f4"), (By(("country",)), By(("hour",))))
    >>> builder = spec.builder(Budget(), 8)
    >>> score = pa.array([0.5, 0.5, 0.1], pa.float32())
    >>> columns = {"score": score, "country": pa.array(["DE", "FR", "DE"]), "hour": pa.array([7, 7, 8])}
    >>> builder.update(Batch(np.zeros(3, np.uint8), None, columns))
    >>> builder.state().slicing(By(("hour",))).groups()
    ((7,), (8,))
    """

    kind: ClassVar[str] = "joint"
    version: ClassVar[int] = 1

    inner: Any
    keys: tuple[By, ...]

    @property
    def ungrouped(self) -> Any:
        """The inner spec."""
        return self.inner

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read: those of the inner spec, then those of the slicings."""
        return tuple(dict.fromkeys((*self.inner.columns, *self.cell.columns)))

    @property
    def cell(self) -> By:
        """The key of the cells."""
        return By(tuple(dict.fromkeys(name for key in self.keys for name in key.columns)))

    def part(self, key: By) -> Callable[[bytes], bytes]:
        """Function from the name of a cell to the name of its group in a slicing."""
        at = [self.cell.columns.index(name) for name in key.columns]
        return lambda name: b"".join(map(parts_of(name).__getitem__, at))

    @classmethod
    def fits(cls, inner: Any, keys: tuple[By, ...]) -> bool:
        """Whether the slicings of a state can be folded together."""
        return len(keys) > 1 and interleaves(inner, keys[0])

    def builder(self, budget: Budget, capacity: int) -> JointBuilder:
        """A builder that collects about `capacity` rows at a time."""
        return JointBuilder(self, budget, capacity)

    def empty(self) -> Joint:
        """The empty state."""
        return Joint(self, Interleaved.empty(self.inner), {})


@dataclass(frozen=True, eq=False)
class Joint(Small):
    """A score state in several slicings; it is sent between workers as a whole.

    Attributes
    ----------
    spec : JointSpec
    interleaved : Interleaved, by cells
    further : by slicing, the rows folded after the limit of 2¹⁵ cells; every slicing has all of these rows
    """

    spec: JointSpec
    interleaved: Interleaved
    further: Mapping[By, Grouped]

    def merge(self, other: Joint) -> Joint:
        """The rows of both inputs."""
        if not self.interleaved.fits(other.interleaved):
            apart = {key: other.slicing(key).parted() for key in self.spec.keys}
            other = Joint(self.spec, Interleaved.empty(self.spec.inner), apart)
        further = dict(self.further)
        for key, state in other.further.items():
            further[key] = further[key].merge(state) if key in further else state
        return Joint(self.spec, self.interleaved.merge(other.interleaved), further)

    def total(self, budget: Budget | None = None) -> Any:
        """The inner state of all rows."""
        total = self.interleaved.total()
        return total.merge(self.further[self.spec.keys[0]].total(budget)) if self.further else total

    def slicing(self, key: By) -> Grouped:
        """The groups of one slicing."""
        own = self.interleaved.projected(self.spec.part(key))
        found = Grouped(GroupedSpec(self.spec.inner, key), {}, CompositeGroups.empty(self.spec.inner), own)
        return found.merge(self.further[key]) if self.further else found

    def count(self, key: By) -> int:
        """Number of groups of a slicing."""
        if self.further:
            return len(self.slicing(key).groups())
        return len(set(map(self.spec.part(key), self.interleaved.table.names.to_pylist())))

    def totals(self) -> Totals:
        """Rows of both classes."""
        totals: Totals = self.total().totals()
        return totals

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, (self.interleaved, *self.further.values())))


class JointBuilder:
    """Builder of a joint state; owned by one task.

    Parameters
    ----------
    spec : JointSpec
    budget : Budget
    capacity : int
        Largest number of rows of a builder of the inner state.
    """

    def __init__(self, spec: JointSpec, budget: Budget, capacity: int) -> None:
        self._spec, self._budget, self._capacity = spec, budget, capacity
        self._cell = spec.cell
        self._interleaved: InterleavedBuilder | None = InterleavedBuilder(spec.inner, budget, capacity)
        self._done = Interleaved.empty(spec.inner)
        self._seen: list[set[bytes]] = [set() for _ in spec.keys]
        self._known: set[bytes] = set()
        self._last = pa.array([], pa.large_binary())  # names of the previous batch, often equal to those of the next
        self._further: dict[By, Any] = {}

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        if self._interleaved is not None:
            split = self._cell.split(batch)
            if not split.names.equals(self._last):
                self._check(split.names.to_pylist())
                self._last = split.names
            if self._interleaved.update(batch, split, grow=False):
                return
            self._done, self._interleaved = self._interleaved.interleaved(), None
            share = max(1, self._capacity // len(self._spec.keys))
            made = partial(GroupedSpec, self._spec.inner)
            self._further = {key: made(key).builder(self._budget, share) for key in self._spec.keys}
        for builder in self._further.values():
            builder.update(batch)

    def _check(self, names: list[bytes]) -> None:
        """Raise `OptionError` if a slicing has too many groups."""
        new = [name for name in names if name not in self._known]
        self._known.update(new)
        for key, seen in zip(self._spec.keys, self._seen, strict=True):
            seen.update(map(self._spec.part(key), new))
            key.check(len(seen), seen.copy, more=True)

    def state(self) -> Joint:
        """The state of everything folded; the builder must not be used afterwards."""
        interleaved = self._done if self._interleaved is None else self._interleaved.interleaved()
        return Joint(self._spec, interleaved, {key: builder.state() for key, builder in self._further.items()})


def side_by_side(
    held: Iterable[Any], keys: Sequence[By], each: Callable[..., list[Any]], budget: Budget | None = None
) -> list[GroupSweep | ClusterSweep]:
    """Sweeps over all rows and all slices; empty if the layout of the states does not allow it.

    Parameters
    ----------
    held : for each slicing, its state, computed lazily; a single `Joint` may hold all slicings
    keys : the slicings
    each : maps a function over items, as `Engine.each` does
    budget : limits the number of rows that are swept at a time
    """
    states = iter(held)
    first = next(states)
    if isinstance(first, Joint):
        if first.further or first.spec.inner.weighted:
            return []
        parts = [first.spec.part(key) for key in keys]
        return [GroupSweep.tallied(first.interleaved, each, parts, budget)]
    if not isinstance(first, Grouped):
        return []
    if not isinstance(first.interleaved, Interleaved):
        made = [ClusterSweep.of(state, k, budget) for k, state in enumerate(chain([first], states))]
        return [] if None in made else [one for one in made if one is not None]
    if len(keys) > 1 or first.apart or len(first.composite.table) or first.spec.inner.weighted:
        return []
    return [GroupSweep.tallied(first.interleaved, each, budget=budget)]
