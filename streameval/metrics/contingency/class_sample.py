"""ClassSample: metrics of clusters against classes, from a sample of classes, or of clusters.

Of a sampled class all rows carry it, and rows outside the sample carry none. All rows are counted by cluster, so the
sizes of clusters are known. With a rows of class i, n of them in cluster j, and b rows in that cluster, a metric is a
ratio of sums over the sampled classes with weights w:

=================  ==================  =============================
metric             numerator           denominator
=================  ==================  =============================
pairwise.precision Σ_j C(n, 2)         ½ Σ_j n(b − 1)
pairwise.recall    Σ_j C(n, 2)         C(a, 2)
pairwise.fscore    Σ_j C(n, 2)         half the sum of the two above
bcubed_precision   Σ_j n²/b            a
bcubed_recall      Σ_j n²/a            a
cluster_recall     1 if it is a cluster  1
cluster_precision  rows · 1 if it is   clusters · a
cluster_fscore     2 if it is          1 + clusters · a / rows
=================  ==================  =============================

Drawn by size, class i has the probability min(1, c·a); all rows are in classes, so c follows from the number of rows.
Rows of null clusters, which are left out of the sums, count among these.
Recorded probabilities may be any. Sampled clusters give precisions alone, with classes and clusters exchanged. The
denominators are not known totals: ratios are far more precise. Replicates leave out a block of classes; those that were
certain to be drawn stay.

References
----------
Binette, O. et al. (2023). Estimating the performance of entity resolution algorithms. *The American Statistician* 77.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.errors import LabelError, NullError, WeightError
from streameval.kernels.keys import unmix
from streameval.metrics.estimates import Estimate, at_end
from streameval.metrics.protocol import Metric, Sizes
from streameval.results import CENSUS, LabelStratum, Scalar
from streameval.states.blocks import BLOCKS, blocks_of
from streameval.states.protocol import Small, Totals
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from streameval.budget import Budget
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.grouped.tagged import TaggedGroups
    from streameval.states.keyed.layout import Interval
    from streameval.states.rounds import Mapper
    from streameval.typing import Array

_INTERVAL = 1 << 18  # items read at a time
_END = 1e-9  # distance from 0 or 1 of a value that is there but for rounding
_LARGEST = 0.05  # share of a pair sum that one uniformly drawn class may have


class Sums(NamedTuple):
    """Weighted sums over units."""

    true_pairs: float  # of rows of one class and one cluster
    cluster_pairs: float  # of rows of one cluster, half of those with a single row in the class
    class_pairs: float
    precision: float  # of B-cubed, times rows
    recall: float
    rows: float
    equal: float  # classes that are clusters
    units: float


def _f(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other else 0.0


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


# from the sums of all units and the mean size of all clusters
RATIOS: dict[str, Callable[[Sums, float], float]] = {
    "pairwise.precision": lambda s, _: _ratio(s.true_pairs, s.cluster_pairs),
    "pairwise.recall": lambda s, _: _ratio(s.true_pairs, s.class_pairs),
    "pairwise.fscore": lambda s, _: _ratio(2 * s.true_pairs, s.cluster_pairs + s.class_pairs),
    "bcubed_precision": lambda s, _: _ratio(s.precision, s.rows),
    "bcubed_recall": lambda s, _: _ratio(s.recall, s.rows),
    "bcubed_fscore": lambda s, _: _f(_ratio(s.precision, s.rows), _ratio(s.recall, s.rows)),
    "cluster_recall": lambda s, _: _ratio(s.equal, s.units),
    "cluster_precision": lambda s, mean: _ratio(mean * s.equal, s.rows),
    "cluster_fscore": lambda s, mean: _ratio(2 * s.equal, s.units + s.rows / mean),
}
OF_CLUSTERS = ("pairwise.precision", "bcubed_precision")


@dataclass(frozen=True)
class SampledRatio(Metric[Scalar, "WeightedSums", None, "WeightedSums"]):
    """A metric of a sample of classes or clusters, a key of `RATIOS`."""

    name: str

    def partial(self, part: WeightedSums) -> None:
        """Nothing: the sums suffice."""

    def combine(self, partials: Sequence[None], state: WeightedSums) -> Scalar:
        """From the sums."""
        value = RATIOS[self.name](state.sums, state.mean)
        return Scalar.undefined(self.name, "no pairs") if math.isnan(value) else Scalar.certain(self.name, value)


@dataclass(frozen=True, eq=False)
class WeightedSums(Small):
    """Sums over a sample, and the mean size of all clusters."""

    spec = None  # never stored or merged

    sums: Sums
    mean: float
    rows: int

    def totals(self) -> Totals:
        """All rows of the sample."""
        return Totals(self.rows, 0, float(self.rows), 0.0)


@dataclass(frozen=True, eq=False)
class ClassSample(WeightedSums):
    """A sample of classes, or of clusters.

    Attributes
    ----------
    each : float64 array of shape (n_sums, n_units), the `Sums` of each unit without weights
    weight, block : arrays of shape (n_units,)
    certain : bool array of shape (n_units,), which units were drawn with certainty
    kind, unit : ``uniform`` or ``size`` or the column of probabilities, and the column of the units
    every : all rows
    of_clusters : whether clusters were drawn
    dropped : rows of null clusters, which are left out
    """

    each: Array
    weight: Array
    block: Array
    certain: Array
    kind: str
    unit: str
    every: int
    of_clusters: bool
    dropped: int = 0

    @property
    def free(self) -> float:
        """Share of rows that are not in the sample, of those of units that were not certain to be drawn.

        Of uniform units it is the share of units: there are at most as many other classes as rows outside the sample.
        """
        if self.uniform:
            drawn = self.weight.size
            others = round(self.every / self.mean) - drawn if self.of_clusters else self.every - self.rows
            return others / (drawn + others)
        certain = float(self.of("rows")[self.certain].sum())
        return 1 - (self.rows - certain) / (self.every - certain) if self.every > certain else 0.0

    @property
    def uniform(self) -> bool:
        """Whether units were drawn uniformly."""
        return self.kind == "uniform"

    @property
    def strata(self) -> tuple[LabelStratum, ...]:
        """The rows that units with recorded probabilities stand for, beside all rows."""
        if self.kind in ("uniform", "size"):
            return ()
        weights, rows = self.weight, self.of("rows")
        sums = float(weights @ rows), float((weights * (weights - 1)) @ rows**2)
        return (LabelStratum(f"{self.unit} with {self.kind}", self.every, self.rows, None, *sums),)

    @property
    def design(self) -> str:
        """How units were drawn, in words."""
        if self.kind not in ("uniform", "size"):
            return f"{self.unit} drawn with probability {self.kind}"
        return f"uniform by {self.unit}" if self.uniform else f"{self.unit} by size"

    def of(self, name: str) -> Array:
        """One of the sums of each unit."""
        column: Array = self.each[Sums._fields.index(name)]
        return column

    @cached_property
    def block_sizes(self) -> Sizes:
        """Rows that the units of each block stand for, except certain ones."""
        return self._sizes("rows", np.bincount(self.block, self.weight * self.of("rows") * ~self.certain, BLOCKS))

    @cached_property
    def _uncertain(self) -> Sums:
        """The sums of the units that were not certain to be drawn."""
        return _summed(self.each, self.weight * ~self.certain)

    def _sizes(self, kind: str, counts: Array, *, single: bool = False) -> Sizes:
        return Sizes(self.unit, {kind: counts}, self.weight.size, single)

    def without(self, block: int) -> WeightedSums:
        """The sums without a block; they move by the root of the share of rows that are not in the sample."""
        out = (self.block == block) & ~self.certain
        rest, left = ~self.certain, ~self.certain & ~out
        weight = np.where(left, self.weight * rest.sum() / max(1, left.sum()), np.where(out, 0.0, self.weight))
        moved = math.sqrt(self.free)
        return WeightedSums(_summed(self.each, moved * weight + (1 - moved) * self.weight), self.mean, self.rows)

    def estimate(self, metric: Metric, value: Scalar) -> Scalar:
        """A value as an estimate for all rows."""
        facts = replace(value, exact=False, lower=math.nan, upper=math.nan, design=self.design if self.free else CENSUS)
        return replace(facts, labelled=self.rows, strata=1, unit=self.unit, units=self.weight.size)

    def refined(self, estimates: Sequence[Estimate], metrics: Sequence[Metric]) -> list[Estimate]:
        """On the logit scale, and refused where one class decides a sum of pairs."""
        refined = []
        for one in estimates:
            name, value, reason = one.scalar.metric, one.scalar.value, None
            pairs = self.of("cluster_pairs") * (name != "pairwise.recall")
            pairs += self.of("class_pairs") * (name != "pairwise.precision")
            largest = float(pairs.max(initial=0)) / max(1e-300, float(pairs.sum()))
            if name.startswith("pairwise") and self.uniform and largest > _LARGEST and self.free:
                reason = f"one unit has {largest:.0%} of the pairs of a uniform sample: draw by size"
            if name == "pairwise.precision" and not self.of_clusters and self.free:
                reason = "errors are too rare in sampled classes: sample clusters (--clusters-sampled)"
            rest = RATIOS[name](self._uncertain, self.mean)
            if self.certain.any() and self.free and min(abs(rest), abs(rest - 1)) < _END:
                reason = (
                    f"it is {round(rest)} in all that were not certain to be drawn, which do not show how it varies"
                )
            if value in (0, 1):
                reason = at_end(value)
            if value > 1:
                reason = "a share above 1 comes from too few units"
            known = one.known if self.free else 0.0
            sizes = self.block_sizes if self.free else self._sizes("rows", self.of("rows"), single=True)
            if name == "cluster_recall" and self.free:  # a mean over units, whatever their rows
                sizes = self._sizes("units", np.bincount(self.block, self.weight * ~self.certain, BLOCKS))
            one = replace(one, scale="logit", bounds=(0, 1), reason=reason, known=known, sizes=sizes)
            refined.append(replace(one, end_units=math.nan))
        return refined


def _summed(each: Array, weight: Array) -> Sums:
    return Sums(*(each @ weight).tolist())


def sample_classes(
    table: ContingencyCounts,
    kind: str,
    *,
    of_clusters: bool,
    drop: bool,
    budget: Budget | None,
    each: Mapper,
    recorded: RecordedUnits | None = None,
) -> ClassSample:
    """The sample of a table whose rows outside the sample have no class.

    Parameters
    ----------
    table : the table, in which null ids count as singletons
    kind : ``uniform`` or ``size``, or the column of recorded probabilities
    of_clusters : whether clusters were drawn, of which all rows have a class; else classes
    drop : whether rows of null clusters are left out
    budget : owns what is read
    each : maps a function over intervals of buckets
    recorded : the units that were drawn, if their probabilities are recorded; others have a class for other reasons

    Raises
    ------
    LabelError
        If no row has a class, a sampled cluster has rows without one, or one that was certain to be drawn has none.
    NullError
        If a cluster is null and not left out.
    """
    without = int(table.without_cluster.rows.sum())
    if without and not drop:
        raise NullError(
            f"cluster column {table.spec.cluster!r} has nulls; leave them out (--nulls {table.spec.cluster}=drop)"
        )
    cells, clusters, largest = _all_cells(table, budget, each, of_clusters=of_clusters and recorded is None)
    rows = int(table.cells.rows.sum())
    if recorded is not None:
        cells = recorded.select(cells, of_clusters=of_clusters)
    names, place = np.unique(cells.clusters if of_clusters else cells.classes, axis=0, return_inverse=True)
    place, n, b = place.ravel(), cells.rows.astype(np.float64), cells.sizes.astype(np.float64)

    def by_unit(values: Array) -> Array:
        return np.bincount(place, values, len(names))

    size = by_unit(n)
    if not size.size:
        raise LabelError(f"no row has a class in {table.spec.classes!r}; null classes are not in the sample")
    equal = by_unit((n == b) & (n == size[place]))
    pairs, every = by_unit(n * (n - 1) / 2), size * (size - 1) / 2
    cluster_pairs = every if of_clusters else by_unit(n * (b - 1)) / 2
    recall = by_unit(n**2 / size[place])
    sums = np.stack((pairs, cluster_pairs, every, by_unit(n**2 / b), recall, size, equal, np.ones(size.size)))
    weight, certain = np.ones(size.size), np.zeros(size.size, np.bool_)
    if recorded is not None:
        whole = size.copy()
        if of_clusters:
            whole[place] = b  # with rows that have no class
        weight = 1 / recorded.probabilities(whole)
        certain = weight == 1
    if kind == "size":
        whole = size if of_clusters else _whole_classes(table, names, size, budget)
        left, drawn, sure = float(rows + without * (not of_clusters)), whole.size, np.zeros(whole.size, np.bool_)
        for i in np.argsort(-whole).tolist():
            if drawn * whole[i] < left:
                break
            sure[i], left, drawn = True, left - whole[i], drawn - 1
        if of_clusters and largest and drawn * largest >= left:
            raise LabelError(
                f"a cluster of {table.spec.cluster!r} with {largest:,} rows has no class, but drawn by size it would "
                "certainly have one; name the design that was used"
            )
        certain = sure[: size.size]
        weight = np.where(certain, 1.0, left / max(1, drawn) / whole[: size.size])
    unit = table.spec.cluster if of_clusters else table.spec.classes
    facts = _summed(sums, weight), rows / max(1, clusters), int(size.sum())
    block = blocks_of(np.ascontiguousarray(names[:, 0]), BLOCKS)
    sample = ClassSample(*facts, sums, weight, block, certain, kind, unit, rows, of_clusters, without)
    for one in sample.strata if not sample.free else ():
        if one.doubtful:
            raise LabelError(
                f"every row has a class, but by {kind!r} these are a sample of {one.weight:,.0f} rows; give all rows, "
                "with a null class outside the sample"
            )
    return sample


def _whole_classes(table: ContingencyCounts, names: Array, size: Array, budget: Budget | None) -> Array:
    """Rows of classes, also those of null clusters, by which classes were drawn: a float64 array of shape (n_drawn,).

    `names` and `size` are the words of the classes with clusters, which come first, and their rows with one.
    """
    alone = table.without_cluster
    pieces = [one for interval in alone.intervals() for one in alone.grouped(interval, budget) if one.neg.any()]
    words = [np.column_stack((unmix(one.keys), one.rest))[one.neg > 0] for one in pieces]
    places = np.unique(np.concatenate((names, *words)), axis=0, return_inverse=True)[1].ravel()
    whole = np.bincount(places, np.concatenate((size, *(one.neg[one.neg > 0] for one in pieces))))
    first = places[: size.size]
    return np.concatenate((whole[first], np.delete(whole, first)))


class _Cells(NamedTuple):
    """Cells with a class: words of both ids, rows, and rows of the cluster."""

    clusters: Array
    classes: Array
    rows: Array
    sizes: Array


@dataclass(frozen=True, eq=False)
class RecordedUnits:
    """Classes or clusters with recorded probabilities.

    Attributes
    ----------
    column : of the probabilities
    words : uint64 array of shape (n, n_words), distinct ids in ascending order
    values : float64 array of shape (n,), the probability of each
    rows : int64 array of shape (n,), rows with it
    classed : rows with a class and a probability, of this sample or of another
    """

    column: str
    words: Array
    values: Array
    rows: Array
    classed: int

    def select(self, cells: _Cells, *, of_clusters: bool) -> _Cells:
        """The cells of recorded units; raises `LabelError` if other rows have a class as well."""
        if int(cells.rows.sum()) > self.classed:
            others = int(cells.rows.sum()) - self.classed
            raise LabelError(
                f"{others:,} rows have a class but no probability in {self.column!r}; give that with which their class "
                "or cluster was drawn, or no class"
            )
        both = np.concatenate((self.words, cells.clusters if of_clusters else cells.classes))
        places = np.split(np.unique(both, axis=0, return_inverse=True)[1].ravel(), [len(self.words)])
        there = np.isin(places[1], places[0])
        return _Cells(*(column[there] for column in cells))

    def probabilities(self, sizes: Array) -> Array:
        """The probabilities of units of some sizes; raises `LabelError` if rows lack a class or a probability."""
        if not np.array_equal(self.rows, sizes):
            raise LabelError(
                f"{self.column!r} is recorded for some rows of a class or cluster that was drawn; all its rows have a "
                "class, and the same probability"
            )
        return self.values


def recorded_units(grouped: TaggedGroups, place: int, *, of_clusters: bool, budget: Budget | None) -> RecordedUnits:
    """The drawn classes or clusters of a table that is split by columns of probabilities; theirs is at `place`.

    Raises
    ------
    WeightError
        If a probability is not above 0 and at most 1.
    LabelError
        If no row has one, a row has one but no class, or a unit has several.
    """
    column, spec = grouped.spec.key.columns[place], grouped.spec.inner
    groups = [grouped.spec.key.group(name) for name in grouped.table.names.to_pylist()]
    values = np.array([_probability(group[place], column) for group in groups])
    ordered = grouped.by_group(np.array([group != (None,) * len(group) for group in groups], np.bool_), budget)
    pieces = [counts for interval in ordered.keyed.intervals() for counts in ordered.keyed.grouped(interval, budget)]
    if not pieces or np.isnan(values).all():
        raise LabelError(f"column {column!r} is null in all rows; it has the probabilities of classes that were drawn")
    words, neg, pos = (np.concatenate([getattr(one, name) for one in pieces]) for name in ("rest", "neg", "pos"))
    each = values[np.concatenate([ordered.places(one.keys) for one in pieces])]
    if bare := int(pos[~np.isnan(each)].sum()):
        raise LabelError(
            f"{plural(bare, 'row')} with a probability in {column!r} but no class in {spec.classes!r}; all rows of a "
            "class or cluster that was drawn have a class, and all others a null probability"
        )
    cells = (neg > 0) & (words[:, 0] == 0)  # those of the other run have no cluster
    drawn = cells & ~np.isnan(each)
    words[:, 1] = unmix(words[:, 1])
    own = words[drawn, 1 : 1 + spec.keys.cluster] if of_clusters else words[drawn, 1 + spec.keys.cluster :]
    ids, inverse = np.unique(own, axis=0, return_inverse=True)
    low, high = np.full(len(ids), np.inf), np.zeros(len(ids))
    np.minimum.at(low, inverse.ravel(), each[drawn])
    np.maximum.at(high, inverse.ravel(), each[drawn])
    if (low < high).any():
        raise LabelError(f"column {column!r} has several values for one class or cluster; it was drawn with one")
    rows = np.bincount(inverse.ravel(), neg[drawn]).astype(np.int64)
    return RecordedUnits(column, ids, low, rows, int(neg[cells].sum()))


def _probability(given: bool | float | Decimal | str | bytes | None, column: str) -> float:
    """A recorded probability; NaN for null."""
    value = math.nan
    with suppress(TypeError, ValueError):
        value = math.nan if given is None else float(given)
    if given is not None and not 0 < value <= 1:
        raise WeightError(
            f"column {column!r} has {given!r}; give the probability with which the class or cluster of the row was "
            "drawn, above 0 and at most 1, and null outside the sample"
        )
    return value


def _all_cells(
    table: ContingencyCounts, budget: Budget | None, each: Mapper, *, of_clusters: bool
) -> tuple[_Cells, int, int]:
    """The cells with a class, the number of clusters, and the rows of the largest without a class."""
    read = partial(_cells, table, budget, of_clusters=of_clusters)
    parts = each(read, table.cells.intervals(_INTERVAL))
    if not parts:
        raise LabelError(f"no row has a cluster in {table.spec.cluster!r}")
    cells = _Cells(*map(np.concatenate, zip(*(one for one, _, _ in parts), strict=True)))
    return cells, sum(clusters for _, clusters, _ in parts), max(rows for _, _, rows in parts)


def _cells(
    table: ContingencyCounts, budget: Budget | None, interval: Interval, *, of_clusters: bool
) -> tuple[_Cells, int, int]:
    """What `_all_cells` returns, of an interval of buckets."""
    width, stretches = table.spec.keys.cluster, list(table.cells.grouped(interval, budget))
    keys, rest, neg, pos = (
        np.concatenate([getattr(one, name) for one in stretches]) for name in ("keys", "rest", "neg", "pos")
    )
    first = np.append(True, keys[1:] != keys[:-1])
    for column in rest.T[: width - 1]:
        first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(first)
    there = np.flatnonzero(neg)
    place = np.searchsorted(starts, there, side="right") - 1
    every = np.add.reduceat(neg + pos, starts)
    sizes, classless = every[place], np.add.reduceat(pos, starts)[place] > 0
    every[place] = 0
    if of_clusters and classless.any():
        raise LabelError(
            f"a cluster of {table.spec.cluster!r} has a class for some of its rows; give all rows of a sampled "
            "cluster theirs, or none"
        )
    words = np.column_stack((unmix(keys[there]), rest[there]))
    return _Cells(words[:, :width], words[:, width:], neg[there], sizes), starts.size, int(every.max())
