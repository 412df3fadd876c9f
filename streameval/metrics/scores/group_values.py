"""The values of whole groups of scores, from the parts of a state, and groups that are cut between parts.

A value is rounded to a multiple of 2⁻⁶². A group may be cut between two parts, which then give sums of its ties
(`Fragment`). The metrics that have values by group are listed in `streameval.metrics.scores.group_means`.

A `Measure` defines the value of a group by three methods: `sums` gives two sums over the ties of each group of a part,
uint64 of shape (2, n_groups) for 128 bits and int64 of shape (n_groups,); `words` makes of these the values of whole
groups in units of 2⁻⁶², and whether each group has one; `word` is the value of one group of any size, or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.grouped import rankings as kernels
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.sums import BITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.metrics.protocol import Metric
    from streameval.states.scores.groups import GroupPart
    from streameval.typing import Array

_FEW = 1 << 26  # a float64 counts the pairs of groups with fewer rows exactly


class Fragment(NamedTuple):
    """The ties of a group in one part: its id, negatives, positives, and two sums of the measure."""

    group: Any
    neg: int
    pos: int
    first: int
    second: int = 0

    def merge(self, other: Fragment) -> Fragment:
        """The ties of both."""
        sums = (mine + theirs for mine, theirs in zip(self[1:], other[1:], strict=True))
        return Fragment(self.group, *sums)


def _joined(words: Array, at: int) -> int:
    """A 128-bit sum as an integer."""
    return (int(words[0, at]) << 64) | int(words[1, at])


def _none(groups: int) -> Array:
    return np.zeros(groups, np.int64)


def _rounded(top: int, bottom: int) -> int:
    """The nearest float of a ratio in units of 2⁻⁶²."""
    return round(top / bottom * (1 << BITS))


@dataclass(frozen=True)
class Area:
    """ROC AUC."""

    def sums(self, part: GroupPart) -> tuple[Array, Array]:
        """Twice the pairs won."""
        return part.areas, _none(part.neg.size)

    def words(self, neg: Array, pos: Array, first: Array, second: Array) -> tuple[Array, Array]:
        """Pairs won over pairs."""
        pairs = 2.0 * neg * pos
        values = np.divide(first[1].astype(np.float64), pairs, out=np.zeros(neg.size), where=pairs > 0)
        return np.rint(values * float(1 << BITS)).astype(np.int64), pairs > 0

    def word(self, fragment: Fragment) -> int | None:
        """Pairs won over pairs."""
        pairs = 2 * fragment.neg * fragment.pos
        return _rounded(fragment.first, pairs) if pairs else None


@dataclass(frozen=True)
class Precision:
    """Average precision."""

    def sums(self, part: GroupPart) -> tuple[Array, Array]:
        """Σ p·precision in units of 2⁻⁶²."""
        return part.precisions, _none(part.neg.size)

    def words(self, neg: Array, pos: Array, first: Array, second: Array) -> tuple[Array, Array]:
        """The sum over the positives."""
        return kernels.quotients(first[0], first[1], np.maximum(pos, 1)).view(np.int64), (neg > 0) & (pos > 0)

    def word(self, fragment: Fragment) -> int | None:
        """The sum over the positives."""
        return fragment.first // fragment.pos if fragment.neg and fragment.pos else None


@dataclass(frozen=True)
class Top:
    """Precision among the `k` rows that score highest."""

    k: int

    def sums(self, part: GroupPart) -> tuple[Array, Array]:
        """Positives and rows among the `k` that score highest; 0 rows if the group has fewer than `k`."""
        hits, rows = kernels.tops(*part.ties, *part.earlier, self.k)
        return np.stack((np.zeros(hits.size, np.uint64), hits.astype(np.uint64))), np.maximum(rows, 0)

    def words(self, neg: Array, pos: Array, first: Array, second: Array) -> tuple[Array, Array]:
        """Positives over rows."""
        hits, rows = first[1].astype(np.int64), second
        values = np.where(rows > 0, hits, pos) / np.where(rows > 0, rows, neg + pos)
        return np.rint(values * float(1 << BITS)).astype(np.int64), (neg > 0) & (pos > 0)

    def word(self, fragment: Fragment) -> int | None:
        """Positives over rows."""
        if not (fragment.neg and fragment.pos):
            return None
        if fragment.second:
            return _rounded(fragment.first, fragment.second)
        return _rounded(fragment.pos, fragment.neg + fragment.pos)


Measure = Area | Precision | Top


def _fragment(group: Any, at: int, neg: Array, pos: Array, first: Array, second: Array) -> Fragment:
    """One of the groups of a part."""
    return Fragment(group, int(neg[at]), int(pos[at]), _joined(first, at), int(second[at]))


class GroupValues(NamedTuple):
    """Whole groups of a part: negatives, positives, values in units of 2⁻⁶², whether defined; and cut groups."""

    neg: Array
    pos: Array
    words: Array
    defined: Array
    fragments: tuple[Fragment, ...]

    @classmethod
    def of(cls, metric: Metric, part: GroupPart) -> GroupValues:
        """The groups of a part, with their values of a metric."""
        measure, neg, pos = measure_of(metric), part.neg, part.pos
        first, second = measure.sums(part)
        fragments = tuple(_fragment(part.name(at), at, neg, pos, first, second) for at in part.cut)
        if fragments:
            whole = np.ones(neg.size, np.bool_)
            whole[part.cut] = False
            neg, pos, first, second = neg[whole], pos[whole], first[:, whole], second[whole]
        words, defined = measure.words(neg, pos, first, second)
        large = np.flatnonzero(neg + pos >= _FEW)
        for at in large.tolist():
            words[at] = measure.word(_fragment(None, at, neg, pos, first, second)) or 0
        return cls(neg, pos, words, defined, fragments)


def merged(fragments: Iterable[Fragment]) -> list[Fragment]:
    """The groups that were cut."""
    rows = sorted(fragments, key=lambda each: each.group)
    return [reduce(Fragment.merge, same) for _, same in groupby(rows, key=lambda each: each.group)]


def measure_of(metric: Any) -> Measure:
    """What is the value of a group for a metric that has a mean."""
    if isinstance(metric, OperatingPoint):
        return Top(int(metric.at))
    return Area() if isinstance(metric, RocAuc) else Precision()
