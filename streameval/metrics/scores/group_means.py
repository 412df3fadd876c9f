"""Means over groups: the mean of every group's own value, such as GAUC, the mean AUC over users.

A group has P positives and N negatives. Its value A is that of its rows alone, and the mean is Σ w·A / Σ w over the
groups that have both classes, with w = N + P (rows), P (positives) or 1 (equal). Where all rows of a group are of one
class, no order of them is better than another; such groups are left out and counted.

======================  ======================================================================
metric                  value of a group
======================  ======================================================================
``roc_auc``             pairs in which the positive scores higher, ties as halves, over P·N
``average_precision``   Σ p·precision / P
``precision@k=K``       precision among the K rows that score highest, ties whole; among all
                        if there are fewer
======================  ======================================================================

Every value is rounded to a multiple of 2⁻⁶² and multiplied by an integer, so that a sum is an integer: the mean does
not depend on how rows lie in files, tasks and workers.

The deciles of the values count each group once: the smallest value that a share of the groups does not exceed. They are
exact. Small groups, and few, have few distinct values, which are counted along with the mean (`Spread`). A shard with
too many of them counts its groups in 4,097 bins instead, and a second look at the state sorts the values of the bins
that hold a decile (`GroupDeciles`).

Source: Zhu et al. (2017), *Optimized Cost per Click in Taobao Display Advertising*, section 4.2 (GAUC);
https://doi.org/10.1145/3097983.3098134.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.kernels import groups as kernels
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.metrics.scores.sums import BITS, mean, product
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.states.protocol import State
    from streameval.states.scores.groups import GroupPart
    from streameval.typing import Array

_FEW = 1 << 26  # a float64 counts the pairs of groups with fewer rows exactly


class Fragment(NamedTuple):
    """The ties of a group in one part: its id, negatives, positives, and its sums (`_sums`) as integers.

    A group that is cut between parts has several.
    """

    group: Any
    neg: int
    pos: int
    first: int
    second: int = 0

    def merge(self, other: Fragment) -> Fragment:
        """The ties of both."""
        return Fragment(self.group, *(mine + theirs for mine, theirs in zip(self[1:], other[1:], strict=True)))


def merge_cut_groups(fragments: Iterable[Fragment]) -> list[Fragment]:
    """The groups that were cut."""
    rows = sorted(fragments, key=lambda each: each.group)
    return [reduce(Fragment.merge, same) for _, same in groupby(rows, key=lambda each: each.group)]


def _sums(metric: Metric, part: GroupPart) -> tuple[Array, Array]:
    """Two sums over the ties of each group: uint64 of shape (2, n_groups) for 128 bits, int64 of shape (n_groups,).

    Twice the pairs won, Σ p·precision in units of 2⁻⁶², or the positives and the rows among the k that score highest,
    where the rows are 0 if the group has fewer than k.
    """
    if isinstance(metric, OperatingPoint):
        hits, rows = kernels.tops(*part.ties, *part.earlier, int(metric.at))
        return np.stack((np.zeros(hits.size, np.uint64), hits.astype(np.uint64))), np.maximum(rows, 0)
    return part.areas if isinstance(metric, RocAuc) else part.precisions, np.zeros(part.neg.size, np.int64)


def _words(metric: Metric, neg: Array, pos: Array, first: Array, second: Array) -> Array:
    """The values of whole groups in units of 2⁻⁶², from their sums; any number where a group has one class."""
    if isinstance(metric, AveragePrecision):
        return np.asarray(kernels.quotients(first[0], first[1], np.maximum(pos, 1)).view(np.int64))
    tops, bottoms = first[1].astype(np.float64), 2.0 * neg * pos
    if isinstance(metric, OperatingPoint):
        tops, bottoms = np.where(second > 0, tops, pos), np.where(second > 0, second, neg + pos)
    values: Array = np.divide(tops, bottoms, out=np.zeros(neg.size), where=bottoms > 0)
    return np.rint(values * float(1 << BITS)).astype(np.int64)


def value_of(metric: Metric, whole: Fragment) -> int | None:
    """The value of a group of any size in units of 2⁻⁶²; None if it has one class."""
    if not (whole.neg and whole.pos):
        return None
    if isinstance(metric, AveragePrecision):
        return whole.first // whole.pos
    top, bottom = whole.first, whole.second or 2 * whole.neg * whole.pos
    if isinstance(metric, OperatingPoint) and not whole.second:
        top, bottom = whole.pos, whole.neg + whole.pos
    return round(top / bottom * (1 << BITS))


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
        neg, pos = part.neg, part.pos
        first, second = _sums(metric, part)

        def fragment(at: int, group: Any = None) -> Fragment:
            return Fragment(
                group, int(neg[at]), int(pos[at]), int(first[0, at]) << 64 | int(first[1, at]), int(second[at])
            )

        fragments = tuple(fragment(at, part.name(at)) for at in part.cut)
        if fragments:
            neg, pos, second = (np.delete(column, part.cut) for column in (neg, pos, second))
            first = np.delete(first, part.cut, axis=1)
        words = _words(metric, neg, pos, first, second)
        for at in np.flatnonzero(neg + pos >= _FEW).tolist():
            words[at] = value_of(metric, fragment(at)) or 0
        return cls(neg, pos, words, (neg > 0) & (pos > 0), fragments)


_BITS = 12  # bits of a value that determine its bin
_BIN = np.int64(-1 << (BITS - _BITS))  # keeps those bits


def bins_of(words: Array) -> Array:
    """The bins of values, from 0 to 4,096 for the value 1."""
    bins: Array = words >> (BITS - _BITS)
    return bins


class Spread(NamedTuple):
    """The number of groups with each value.

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
        sums = np.zeros(words.size, np.int64)
        np.add.at(sums, places, counts)
        return cls(words, sums, exact)

    def bounded(self, most: int) -> Spread:
        """The same, in bins if there are more than `most` values."""
        return self if self.words.size <= most else Spread.joined([self._replace(exact=False)])


@dataclass(frozen=True)
class GroupDeciles(Metric[Scalar, "GroupPart", "tuple[Spread, tuple[Fragment, ...]]", "State"]):
    """A mean over groups with the deciles of their values, which a second look finds in the bins that hold them.

    Attributes
    ----------
    inner : see `streameval.metrics.scores.group_means.GroupMean`
    mean : the mean without deciles
    ranks : the place of each decile among the groups
    bins : the bins that hold a decile, with the groups below each
    """

    inner: Metric
    mean: Scalar
    ranks: tuple[int, ...]
    bins: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, inner: Metric, mean: Scalar, spread: Spread) -> Scalar | GroupDeciles:
        """The mean with its deciles if the spread has every value, without them if there is none; else the metric."""
        if not spread.words.size:
            return mean
        below = np.append(0, np.cumsum(spread.counts))
        ranks = tuple(max(0, -(-int(below[-1]) * i // 10) - 1) for i in range(11))
        places = np.searchsorted(below, ranks, side="right") - 1
        if spread.exact:
            return _with_deciles(mean, spread.words[places])
        held = np.unique(places)
        bins = zip(bins_of(spread.words[held]).tolist(), below[held].tolist(), strict=True)
        return cls(inner, mean, ranks, tuple(bins))

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.mean.metric

    def partial(self, part: GroupPart) -> tuple[Spread, tuple[Fragment, ...]]:
        """The groups of the bins."""
        found = GroupValues.of(self.inner, part)
        return self._seen(found.words[found.defined]), found.fragments

    def _seen(self, words: Array) -> Spread:
        return Spread.of(words[np.isin(bins_of(words), [number for number, _ in self.bins])])

    def joined(
        self, partials: list[tuple[Spread, tuple[Fragment, ...]]], state: State
    ) -> list[tuple[Spread, tuple[Fragment, ...]]]:
        """The groups of several parts."""
        spreads, fragments = zip(*partials, strict=True) if partials else ((), ())
        return [(Spread.joined(spreads), sum(fragments, ()))]

    def combine(self, partials: Sequence[tuple[Spread, tuple[Fragment, ...]]], state: State) -> Scalar:
        """The mean with the deciles."""
        values = (
            value_of(self.inner, each) for each in merge_cut_groups(f for _, several in partials for f in several)
        )
        own = self._seen(np.array([value for value in values if value is not None], np.int64))
        words, counts, _ = Spread.joined([*(spread for spread, _ in partials), own])
        return _with_deciles(self.mean, words[[self._at(rank, words, np.cumsum(counts)) for rank in self.ranks]])

    def _at(self, rank: int, words: Array, counts: Array) -> int:
        """Where the value of the group at a place among all is in `words`."""
        number, below = max(each for each in self.bins if each[1] <= rank)
        start = int(np.searchsorted(bins_of(words), number))
        before = int(counts[start - 1]) if start else 0
        return int(np.searchsorted(counts, before + rank - below, side="right"))


def _with_deciles(mean: Scalar, words: Array) -> Scalar:
    return replace(mean, group_deciles=tuple((words / (1 << BITS)).tolist()))


_MOST = 1 << 20  # distinct values counted in all shards, 16 MiB; beyond it, groups are counted in bins
_LEAST = 1 << 12  # the same in one shard, as many as there are bins
_SHARD = 1 << 20  # rows of a shard


class _Sums(NamedTuple):
    """The contribution of a part to a mean.

    Attributes
    ----------
    numbers : Σ w·A in units of 2⁻⁶², Σ w, groups with a value, groups and rows without
    spread : the values
    fragments : groups that are cut
    """

    numbers: tuple[int, ...]
    spread: Spread
    fragments: tuple[Fragment, ...] = ()

    @classmethod
    def joined(cls, sums: Sequence[_Sums]) -> _Sums:
        """The contributions of several parts."""
        numbers = tuple(sum(each.numbers[i] for each in sums) for i in range(5))
        spread = Spread.joined([each.spread for each in sums])
        return cls(numbers, spread, tuple(fragment for each in sums for fragment in each.fragments))


@dataclass(frozen=True)
class GroupMean(Metric["Scalar | GroupDeciles", "GroupPart", "_Sums", "State"]):
    """The mean of a metric over groups.

    Attributes
    ----------
    inner : the metric, `RocAuc`, `AveragePrecision` or `OperatingPoint` of kind ``k``
    over : the column of groups
    weight : ``rows``, ``positives`` or ``equal``

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0, 1], "score": [0.1, 0.2, 0.3, 0.9, 0.4], "user": [7, 7, 8, 8, 9]})
    >>> result = evaluate(data, score="score", mean_over="user", metrics="roc_auc").results[0]
    >>> result.value, result.groups, result.groups_left_out, result.rows_left_out
    (0.5, 2, 1, 1)
    >>> result.group_deciles
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    """

    inner: Metric
    over: str
    weight: str = "rows"

    @property
    def name(self) -> str:
        """The name of the metric."""
        return str(self.inner.name)

    def weights(self, neg: Array, pos: Array) -> Array:
        """Weights of groups, by their negatives and positives: an int64 array of shape (n_groups,)."""
        return {"rows": neg + pos, "positives": pos}.get(self.weight, np.ones(neg.size, np.int64))

    def partial(self, part: GroupPart) -> _Sums:
        """Sums over the groups of a part."""
        found = GroupValues.of(self.inner, part)
        has = found.defined
        neg, pos, words = found.neg[has], found.pos[has], found.words[has]
        weights = self.weights(neg, pos)
        without = int((found.neg + found.pos).sum()) - int((neg + pos).sum())
        sums = int(product(weights, words)), int(weights.sum())
        numbers = (*sums, neg.size, has.size - neg.size, without)
        return _Sums(numbers, Spread.of(words), found.fragments)

    def joined(self, partials: list[_Sums], state: State) -> list[_Sums]:
        """The contributions of several parts, in bounded memory."""
        whole = _Sums.joined(partials)
        shards = state.totals().rows / _SHARD
        return [whole._replace(spread=whole.spread.bounded(max(_LEAST, int(_MOST / max(shards, 1)))))]

    def combine(self, partials: Sequence[_Sums], state: State) -> Scalar | GroupDeciles:
        """The sum of values over the sum of weights with the deciles, or what finds these in a second look."""
        cut = [self._alone(each) for each in merge_cut_groups(f for part in partials for f in part.fragments)]
        (total, weight, groups, without, rows), spread, _ = _Sums.joined([*partials, *cut])
        value = Scalar.undefined(self.name, "no group has both classes")
        if weight:
            value = Scalar.certain(self.name, mean(total, weight))
        value = replace(value, mean_over=self.over, groups=groups, groups_left_out=without, rows_left_out=rows)
        return GroupDeciles.of(self.inner, value, spread)

    def _alone(self, whole: Fragment) -> _Sums:
        """The contribution of a group that was cut."""
        word, rows = value_of(self.inner, whole), whole.neg + whole.pos
        if word is None:
            return _Sums((0, 0, 0, 1, rows), Spread.of(np.zeros(0, np.int64)))
        weight = {"rows": rows, "positives": whole.pos}.get(self.weight, 1)
        return _Sums((weight * word, weight, 1, 0, 0), Spread.of(np.array([word])))


def has_mean(metric: Metric) -> bool:
    """Whether a metric has a mean over groups."""
    at_k = isinstance(metric, OperatingPoint) and metric.kind == "k" and metric.measure == "precision"
    return at_k or isinstance(metric, RocAuc | AveragePrecision)


def group_means(
    metrics: Iterable[Metric], over: str, weight: str, defaults: Iterable[Metric] = ()
) -> tuple[GroupMean, ...]:
    """The means over groups of some metrics.

    Parameters
    ----------
    metrics : metrics of a score
    over, weight : see `GroupMean`
    defaults : metrics that were not requested by name, which are left out where they have no mean

    Raises
    ------
    OptionError
        If another metric has none, or there is no metric.
    """
    metrics, defaults = list(metrics), list(defaults)
    without = [metric.name for metric in metrics if not has_mean(metric) and metric not in defaults]
    if without or not metrics:
        have = "has" if len(without) == 1 else "have"
        problem = f"{', '.join(without)} {have} no mean over groups" if without else "no metric of a score is asked for"
        raise OptionError(f"{problem} (mean_over={over!r}); there are roc_auc, average_precision and precision@k=N")
    return tuple(GroupMean(metric, over, weight) for metric in metrics if has_mean(metric))
