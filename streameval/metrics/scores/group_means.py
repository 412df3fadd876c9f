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
not depend on how rows lie in files, tasks and workers. A group may be cut between two parts, which then give sums of
its ties (`Fragment`).

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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.grouped import rankings as kernels
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.group_spread import Spread, bins_of
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.metrics.scores.sums import BITS, mean, product
from streameval.metrics.scores.thresholds.operating_points import OperatingPoint
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.states.scores.group_part import GroupPart
    from streameval.typing import Array

__all__ = [
    "Fragment",
    "GroupDeciles",
    "GroupMean",
    "GroupValues",
    "group_means",
    "has_mean",
    "measure_of",
    "merged",
]

_FEW = 1 << 26  # a float64 counts the pairs of groups with fewer rows exactly
_MOST = 1 << 20  # distinct values counted in all shards, 16 MiB; beyond it, groups are counted in bins
_LEAST = 1 << 12  # the same in one shard, as many as there are bins
_SHARD = 1 << 20  # rows of a shard


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


class Measure(Protocol):
    """Defines the value of a group; frozen."""

    def sums(self, part: GroupPart) -> tuple[Array, Array]:
        """Two sums over the ties of each group: uint64 of shape (2, n_groups), 128-bit; int64 of shape (n_groups,)."""

    def words(self, neg: Array, pos: Array, first: Array, second: Array) -> tuple[Array, Array]:
        """Values of whole groups in units of 2⁻⁶², as int64, and whether each group has a value."""

    def word(self, fragment: Fragment) -> int | None:
        """The value of one group, of any size."""


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
    def of(cls, measure: Measure, part: GroupPart) -> GroupValues:
        """The groups of a part."""
        neg, pos = part.neg, part.pos
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


class _Sums(NamedTuple):
    """What a part adds to a mean.

    Attributes
    ----------
    numbers : Σ w·A in units of 2⁻⁶², Σ w, groups with a value, groups and rows without
    spread : the values
    fragments : groups that are cut
    """

    numbers: tuple[int, int, int, int, int]
    spread: Spread
    fragments: tuple[Fragment, ...] = ()

    @classmethod
    def joined(cls, sums: Sequence[_Sums]) -> _Sums:
        """What several parts add."""
        total, weight, groups, without, rows = (sum(each.numbers[i] for each in sums) for i in range(5))
        spread = Spread.joined([each.spread for each in sums])
        fragments = tuple(fragment for each in sums for fragment in each.fragments)
        return cls((total, weight, groups, without, rows), spread, fragments)


@dataclass(frozen=True)
class GroupMean(Metric):
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

    joins: ClassVar[bool] = True
    inner: Any
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
        return _Means((self,)).partial(part)[0]

    def together(self, bases: Sequence[GroupMean], part: GroupPart) -> _Means:
        """Takes the sums of several means, which share what they compute of a part."""
        return _Means(bases)

    def sums(self, part: GroupPart) -> _Sums:
        """As `partial`, of a part that has what the metric needs."""
        found = GroupValues.of(measure_of(self.inner), part)
        has = found.defined
        neg, pos, words = found.neg[has], found.pos[has], found.words[has]
        weights = self.weights(neg, pos)
        more, *rows = part.left_out
        without = sum(rows) + int((found.neg + found.pos).sum()) - int((neg + pos).sum())
        sums = product(weights, words), int(weights.sum())
        numbers = (*sums, neg.size, more + has.size - neg.size, without)
        return _Sums(numbers, Spread.of(words), found.fragments)

    def joined(self, partials: Sequence[_Sums], state: Any) -> _Sums:
        """What several parts add, in bounded memory."""
        whole = _Sums.joined(partials)
        shards = state.totals().rows / _SHARD
        return whole._replace(spread=whole.spread.bounded(max(_LEAST, int(_MOST / max(shards, 1)))))

    def combine(self, partials: Sequence[_Sums], state: Any) -> Any:
        """The sum of values over the sum of weights with the deciles, or what finds these in a second look."""
        measure = measure_of(self.inner)
        cut = [self._alone(measure, each) for each in merged(f for part in partials for f in part.fragments)]
        (total, weight, groups, without, rows), spread, _ = _Sums.joined([*partials, *cut])
        made = (
            Scalar.certain(self.name, mean(total, weight))
            if weight
            else Scalar.undefined(self.name, "no group has both classes")
        )
        made = replace(made, mean_over=self.over, groups=groups, groups_left_out=without, rows_left_out=rows)
        return GroupDeciles.of(self.inner, made, spread)

    def _alone(self, measure: Measure, whole: Fragment) -> _Sums:
        """What a group that was cut adds."""
        word, rows = measure.word(whole), whole.neg + whole.pos
        if word is None:
            return _Sums((0, 0, 0, 1, rows), Spread.of(_none(0)))
        weight = {"rows": rows, "positives": whole.pos}.get(self.weight, 1)
        return _Sums((weight * word, weight, 1, 0, 0), Spread.of(np.array([word])))


class _Means(NamedTuple):
    """Several means over the same groups."""

    means: Sequence[GroupMean]

    def partial(self, part: GroupPart) -> list[_Sums]:
        """What a part adds to each mean."""
        part = _for(part, *(mean.inner for mean in self.means))
        return [mean.sums(part) for mean in self.means]


def _for(part: GroupPart, *metrics: Any) -> GroupPart:
    """The part, with precisions only if one of the metrics needs them."""
    return replace(part, precise=any(isinstance(metric, AveragePrecision) for metric in metrics))


@dataclass(frozen=True)
class GroupDeciles(Metric):
    """A mean over groups with the deciles of their values, which a second look finds in the bins that hold them.

    Attributes
    ----------
    inner : see `GroupMean`
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
        found = GroupValues.of(measure_of(self.inner), _for(part, self.inner))
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


def measure_of(metric: Any) -> Measure:
    """What is the value of a group for a metric that has a mean."""
    if isinstance(metric, OperatingPoint):
        return Top(int(metric.at))
    return Area() if isinstance(metric, RocAuc) else Precision()


def has_mean(metric: Any) -> bool:
    """Whether a metric has a mean over groups."""
    at_k = isinstance(metric, OperatingPoint) and metric.kind == "k" and metric.measure == "precision"
    return at_k or isinstance(metric, RocAuc | AveragePrecision)


def group_means(metrics: Iterable[Any], over: str, weight: str, defaults: Iterable[Any] = ()) -> tuple[GroupMean, ...]:
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
        msg = f"{problem} (mean_over={over!r}); there are roc_auc, average_precision and precision@k=N"
        raise OptionError(msg)
    return tuple(GroupMean(metric, over, weight) for metric in metrics if has_mean(metric))
