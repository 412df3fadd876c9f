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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.group_values import GroupValues, measure_of, merged
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.metrics.scores.sums import BITS, mean, product
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.metrics.scores.group_values import Fragment, Measure
    from streameval.states.scores.groups import GroupPart
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
        found = GroupValues.of(self.inner, part)
        return self._seen(found.words[found.defined]), found.fragments

    def _seen(self, words: Array) -> Spread:
        return Spread.of(words[np.isin(bins_of(words), [number for number, _ in self.bins])])

    def joined(
        self, partials: list[tuple[Spread, tuple[Fragment, ...]]], state: Any
    ) -> list[tuple[Spread, tuple[Fragment, ...]]]:
        """The groups of several parts."""
        fragments = tuple(fragment for _, several in partials for fragment in several)
        return [(Spread.joined([spread for spread, _ in partials]), fragments)]

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


_MOST = 1 << 20  # distinct values counted in all shards, 16 MiB; beyond it, groups are counted in bins
_LEAST = 1 << 12  # the same in one shard, as many as there are bins
_SHARD = 1 << 20  # rows of a shard


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
        found = GroupValues.of(self.inner, part)
        has = found.defined
        neg, pos, words = found.neg[has], found.pos[has], found.words[has]
        weights = self.weights(neg, pos)
        without = int((found.neg + found.pos).sum()) - int((neg + pos).sum())
        sums = product(weights, words), int(weights.sum())
        numbers = (*sums, neg.size, has.size - neg.size, without)
        return _Sums(numbers, Spread.of(words), found.fragments)

    def joined(self, partials: list[_Sums], state: Any) -> list[_Sums]:
        """What several parts add, in bounded memory."""
        whole = _Sums.joined(partials)
        shards = state.totals().rows / _SHARD
        return [whole._replace(spread=whole.spread.bounded(max(_LEAST, int(_MOST / max(shards, 1)))))]

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
            return _Sums((0, 0, 0, 1, rows), Spread.of(np.zeros(0, np.int64)))
        weight = {"rows": rows, "positives": whole.pos}.get(self.weight, 1)
        return _Sums((weight * word, weight, 1, 0, 0), Spread.of(np.array([word])))


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
        raise OptionError(f"{problem} (mean_over={over!r}); there are roc_auc, average_precision and precision@k=N")
    return tuple(GroupMean(metric, over, weight) for metric in metrics if has_mean(metric))
