"""How many groups have which value, and the deciles of the values (`streameval.metrics.scores.group_means`).

Small groups, and few, have few distinct values, which are counted along with the mean (`Spread`). A shard with too many
of them counts its groups in 4,097 bins instead, and a second look at the state sorts the values of the bins that hold a
decile (`GroupDeciles`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from streameval.metrics.protocol import Metric
from streameval.metrics.scores.group_values import GroupValues, measure_of, merged, needed
from streameval.metrics.scores.sums import BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.group_values import Fragment
    from streameval.results import Scalar
    from streameval.states.scores.group_part import GroupPart
    from streameval.typing import Array

_BITS = 12  # bits of a value that determine its bin
_BIN = np.int64(-1 << (BITS - _BITS))  # keeps those bits


def bins_of(words: Array) -> Array:
    """The bins of values, from 0 to 4,096 for the value 1."""
    bins: Array = words >> (BITS - _BITS)
    return bins


class Spread(NamedTuple):
    """How many groups have which value.

    Attributes
    ----------
    words : distinct values in units of 2⁻⁶², ascending
    counts : groups of each value
    exact : whether values are not rounded down to the lower ends of bins

    Examples
    --------
    >>> half, one = 1 << (BITS - 1), 1 << BITS
    >>> spread = Spread.joined([Spread.of(np.array([one, half + 1, one])), Spread.of(np.array([half]))])
    >>> spread.counts.tolist(), spread.bounded(2).counts.tolist(), bins_of(spread.bounded(2).words).tolist()
    ([1, 1, 2], [2, 2], [2048, 4096])
    """

    words: Array
    counts: Array
    exact: bool = True

    @classmethod
    def of(cls, words: Array) -> Spread:
        """Count groups by their values."""
        return cls(*np.unique(words, return_counts=True))

    @classmethod
    def joined(cls, spreads: Sequence[Spread]) -> Spread:
        """The groups of several; in bins if those of one are."""
        none, exact = np.zeros(0, np.int64), all(each.exact for each in spreads)
        words, counts = (np.concatenate([none, *(each[i] for each in spreads)]) for i in range(2))
        words, places = np.unique(words if exact else words & _BIN, return_inverse=True)
        found = np.zeros(words.size, np.int64)
        np.add.at(found, places, counts)
        return cls(words, found, exact)

    def bounded(self, most: int) -> Spread:
        """The same, in bins if there are more than `most` values."""
        return self if self.words.size <= most else Spread.joined([self._replace(exact=False)])


@dataclass(frozen=True)
class GroupDeciles(Metric):
    """A mean over groups with the deciles of their values, which a second look finds in the bins that hold them.

    Attributes
    ----------
    inner : see `streameval.metrics.scores.group_means.GroupMean`
    mean : the mean without deciles
    ranks : the place of each decile among the groups
    bins : the bins that hold a decile, with the groups below each
    """

    joins: ClassVar[bool] = True
    inner: Any
    mean: Scalar
    ranks: tuple[int, ...]
    bins: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, inner: Any, mean: Scalar, spread: Spread) -> Any:
        """The mean with its deciles if the spread has every value, without them if there is none; else the metric."""
        if not spread.words.size:
            return mean
        below = np.append(0, np.cumsum(spread.counts))
        groups = int(below[-1])
        ranks = tuple(max(0, -(-groups * i // 10) - 1) for i in range(11))
        places = np.searchsorted(below, ranks, side="right") - 1
        if spread.exact:
            return replace(mean, group_deciles=_values(spread.words[places]))
        held = np.unique(places)
        return cls(
            inner, mean, ranks, tuple(zip(bins_of(spread.words[held]).tolist(), below[held].tolist(), strict=True))
        )

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.mean.metric

    def partial(self, part: GroupPart) -> tuple[Spread, tuple[Fragment, ...]]:
        """The groups of the bins."""
        found = GroupValues.of(measure_of(self.inner), needed(part, self.inner))
        return self._seen(found.words[found.defined]), found.fragments

    def _seen(self, words: Array) -> Spread:
        return Spread.of(words[np.isin(bins_of(words), [number for number, _ in self.bins])])

    def joined(
        self, partials: Sequence[tuple[Spread, tuple[Fragment, ...]]], state: Any
    ) -> tuple[Spread, tuple[Fragment, ...]]:
        """The groups of several parts."""
        fragments = tuple(fragment for _, several in partials for fragment in several)
        return Spread.joined([spread for spread, _ in partials]), fragments

    def combine(self, partials: Sequence[tuple[Spread, tuple[Fragment, ...]]], state: Any) -> Scalar:
        """The mean with the deciles."""
        measure = measure_of(self.inner)
        cut = [measure.word(each) for each in merged(f for _, several in partials for f in several)]
        own = self._seen(np.array([word for word in cut if word is not None], np.int64))
        words, counts, _ = Spread.joined([*(spread for spread, _ in partials), own])
        places = [self._at(rank, words, np.cumsum(counts)) for rank in self.ranks]
        return replace(self.mean, group_deciles=_values(words[places]))

    def _at(self, rank: int, words: Array, counts: Array) -> int:
        """Where the value of the group at a place among all is in `words`."""
        number, below = max(each for each in self.bins if each[1] <= rank)
        start = int(np.searchsorted(bins_of(words), number))
        before = int(counts[start - 1]) if start else 0
        return int(np.searchsorted(counts, before + rank - below, side="right"))


def _values(words: Array) -> tuple[float, ...]:
    """Values as plain numbers."""
    return tuple((words / (1 << BITS)).tolist())
