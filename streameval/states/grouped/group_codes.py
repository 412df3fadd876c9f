"""Group codes: consecutive numbers that represent groups in memory; they never enter a result."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streameval.budget import Budget
from streameval.states.grouped.composite import inner_header
from streameval.states.grouped.table import GroupTable, TableBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.mapping import one_by_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.states.grouped.composite import CompositeGroups
    from streameval.states.grouped.keys import Split
    from streameval.states.keyed.layout import Interval, Segment
    from streameval.states.mapping import Mapper
    from streameval.states.protocol import Batch
    from streameval.typing import Array


class GroupCodes:
    """Codes of groups, by name; only the builder that owns them adds names.

    New names get codes in their order, so that tasks that meet the same few groups give them the same codes.

    Examples
    --------
    >>> group_codes = GroupCodes()
    >>> group_codes.codes([b"3:sFR", b"3:sDE"]).tolist(), group_codes.codes([b"3:sFR"]).tolist()
    ([1, 0], [1])
    """

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._codes: dict[bytes, int] = {name: code for code, name in enumerate(names)}

    def codes(self, names: Sequence[bytes]) -> Array:
        """The code of each name, as a uint32 array."""
        for name in sorted(set(names) - self._codes.keys()):
            self._codes[name] = len(self._codes)
        return np.array([self._codes[name] for name in names], np.uint32)

    def few(self, names: Sequence[bytes], most: int) -> Array | None:
        """The code of each name; None, with nothing added, if there would be more than `most` names."""
        return None if self.together(names) > most else self.codes(names)

    def together(self, names: Iterable[bytes]) -> int:
        """Number of names, including the given ones."""
        return len(self._codes.keys() | names)

    def union(self, other: GroupCodes) -> GroupCodes:
        """These codes, followed by those of the names that only `other` has."""
        return GroupCodes(self._codes | other._codes)

    @property
    def names(self) -> list[bytes]:
        """All names, in the order of their codes."""
        return list(self._codes)

    def __len__(self) -> int:
        return len(self._codes)


@dataclass(frozen=True, eq=False)
class CodedGroups(ABC):
    """The rows of all groups of a state in one table; each row has the code of its group.

    Attributes
    ----------
    inner : the inner spec
    group_codes : GroupCodes, which may include groups without rows here; never changed
    table : GroupTable, names and facts of the groups with rows here
    keyed : KeyedCounts, the rows
    """

    inner: Any
    group_codes: GroupCodes
    table: GroupTable
    keyed: KeyedCounts

    @abstractmethod
    def fits(self, other: Any) -> bool:
        """Whether one table can hold the groups of both, with codes from `group_codes` of `self`."""

    def merge(self, other: Self) -> Self:
        """The groups of both inputs, for which `fits` must hold; groups with equal names are merged."""
        one, two = (self, other) if self.keyed.segments or len(self.table) else (other, self)
        if two.group_codes is not one.group_codes:
            group_codes = one.group_codes.union(two.group_codes)
            codes = group_codes.codes(two.group_codes.names)
            one, two = replace(one, group_codes=group_codes), two.recoded(codes)
        if one.keyed.layout != two.keyed.layout:
            one, two = one.widened(), two.widened()
        table = GroupTable.union([one.table, two.table])
        return replace(one, table=table, keyed=one.keyed.merge(two.keyed))

    def recoded(self, codes: Array) -> Self:
        """The same rows with new codes; `codes` is a uint32 array, indexed by the old codes."""
        if np.array_equal(codes, np.arange(codes.size)):
            return self
        wide = self if int(codes.max(initial=0)) < self.most() else self.widened()
        recode = partial(wide.recoded_segment, codes=codes)
        return replace(wide, keyed=replace(wide.keyed, segments=tuple(map(recode, wide.keyed.segments))))

    @abstractmethod
    def recoded_segment(self, segment: Segment, codes: Array) -> Segment:
        """`recoded` for one segment; words have room for the codes."""

    @abstractmethod
    def most(self) -> int:
        """Largest number of codes that words have room for, unless they are widened."""

    def widened(self) -> Self:
        """The same groups in words with room for any code, if there are such words."""
        return self

    def total(self) -> Any:
        """The inner state of all rows, without copying them: codes are removed on reading."""
        return self.inner_state(tuple(map(self._plain, self.keyed.segments)), self.table.facts.sum(axis=0))

    @abstractmethod
    def _plain(self, segment: Segment) -> Segment:
        """A segment as one of the inner state."""

    def restored(self, marks: Array, budget: Budget | None = None) -> Any:
        """The inner state of the groups whose codes are marked."""
        segments = tuple(self._marked(marks, self.keyed.holding(budget)))
        return self.inner_state(segments, self.table.facts[marks[self.named_codes()[1]]].sum(axis=0))

    @abstractmethod
    def _marked(self, marks: Array, budget: Budget) -> Iterable[Segment]:
        """The rows whose codes are marked as segments of the inner state."""

    def alone(self, budget: Budget | None = None, each: Mapper = one_by_one) -> dict[bytes, Any]:
        """The inner state of each group, by name, in one pass over the rows; `each` maps a function over intervals."""
        budget, (names, codes) = self.keyed.holding(budget), self.named_codes()
        segments: dict[int, list[Segment]] = {code: [] for code in codes}
        intervals = self.keyed.intervals(self._most(budget))
        for found in each(lambda interval: list(self._divided(interval, budget)), intervals, "separate"):
            for code, segment in found:
                segments[code].append(segment)
        return {
            name: self.inner_state(tuple(segments[code]), facts)
            for name, code, facts in zip(names, codes, self.table.facts, strict=True)
        }

    def _most(self, budget: Budget) -> int:
        """Number of items of an interval of `alone`."""
        return self.keyed.most(budget)

    @abstractmethod
    def _divided(self, interval: Interval, budget: Budget) -> Iterable[tuple[int, Segment]]:
        """The rows of each code in an interval of buckets as segments of the inner state."""

    @abstractmethod
    def parted(self) -> tuple[Mapping[bytes, Any], CompositeGroups]:
        """The same groups in the other layouts: apart, and under composite keys."""

    def shares(self, other: CodedGroups, most: int) -> bool:
        """Whether both have at most `most` groups together."""
        return self.group_codes.together(other.group_codes.names) <= most

    def marks(self, names: Iterable[bytes]) -> Array:
        """Whether the name of each code is among `names`, as a bool array of shape (n_codes,)."""
        names = set(names)
        return np.array([name in names for name in self.group_codes.names], np.bool_)

    def named_codes(self) -> tuple[list[bytes], list[int]]:
        """The names of the groups with rows here, in the order of the table, and their codes."""
        names = self.table.names.to_pylist()
        return names, self.group_codes.codes(names).tolist()

    def inner_state(self, segments: tuple[Segment, ...], facts: Array) -> Any:
        """An inner state, from its segments and facts."""
        state = self.inner.from_arrow(inner_header(self.inner, facts), [], Budget())
        return state.with_runs({"keyed": KeyedCounts(self.inner.layout, segments)})

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sys.getsizeof(self.table) + sys.getsizeof(self.keyed)


class CodedBuilder(ABC):
    """Builder of coded groups; owned by one task.

    Parameters
    ----------
    inner : the inner spec
    """

    def __init__(self, inner: Any) -> None:
        self._inner, self._group_codes, self._table = inner, GroupCodes(), TableBuilder()

    @property
    def known(self) -> int:
        """Number of groups so far."""
        return len(self._group_codes)

    @abstractmethod
    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; returns False, and does nothing, if it is not to be interleaved."""

    @abstractmethod
    def interleaved(self) -> CodedGroups:
        """Everything folded; the builder must not be used afterwards."""
