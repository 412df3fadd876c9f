"""ScoreHistogram: counts of scores on a fixed grid, in bounded memory whatever the number of rows.

The grid (`streameval.kernels.histogram`) does not depend on the data, so any two histograms merge by addition. It has
about 690,000 bins. A state keeps those that hold scores, 32 bytes each and 64 with weights: 2 to 10 MiB for
probabilities, 21 MiB at most, 42 MiB with weights. The order of the scores inside a bin is unknown unless the bin has
seen a single score. Every metric of a histogram therefore comes with an interval that is certain to hold its exact
value.

Exact scores convert to the histogram that folding the same rows with ``approx`` gives, for old nights whose distinct
scores are no longer kept.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from streameval.kernels.exact import quotients
from streameval.kernels.histogram import (
    BINS,
    EMPTY,
    FIRSTS,
    MIXED,
    SHIFTS,
    absorb,
    add_groups,
    bin_counts,
    bin_weights,
    edges,
    unpacked,
)
from streameval.kernels.jit import read_only
from streameval.states.protocol import Batch, Small, Stored, Totals, Traits, mergeable
from streameval.states.scores.parts import (
    Ends,
    ScorePart,
    add_sides,
    add_sums,
    in_units,
    rounded_sides,
    two_sums,
    unit_of,
)
from streameval.states.scores.types import MissingScores, decode, float_limit, present, refuse_nan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.protocol import Header
    from streameval.states.scores.counts import ScoreCounts, ScoreSpec
    from streameval.typing import Array


_PACKED_ROWS = (1 << 31) - 1  # rows that the packed table can count: a word holds both counts of a bin
_BUILT = 1.75  # bytes of a group and of its builder, per byte of its state


@dataclass(frozen=True)
class HistogramSpec(MissingScores):
    """The histogram of a score column; attributes as in `streameval.states.scores.counts.ScoreSpec`.

    Examples
    --------
    >>> HistogramSpec("score").columns
    ('score',)
    """

    kind: ClassVar[str] = "score_histogram"
    version: ClassVar[int] = 1
    slice_remedy: ClassVar[str] = "leave out approx (--approx), or raise memory (--memory)"

    column: str
    type: str = "f4"
    weighted: bool = False
    nan: str = "error"

    @property
    def largest(self) -> int:
        """Bytes of a state whose bins all hold scores."""
        return BINS * (64 if self.weighted else 32)

    @property
    def traits(self) -> Traits:
        """States of a limited size, whose tables add up."""
        return Traits(additive=True, refuses_missing=self.nan == "error", largest=self.largest)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""
        names = ["bin", "negatives", "positives", "only"]
        weights = {"negative_weight": pa.float64(), "positive_weight": pa.float64()}
        return pa.schema(dict.fromkeys(names, pa.int64()) | (weights if self.weighted else {}))

    def group_bytes(self, rows: Collection[int]) -> int:
        """Bytes of the states of some groups and of their builders, from the number of rows of each."""
        return int(_BUILT * self.largest) * len(rows)

    def builder(self, budget: Budget, capacity: int) -> _HistogramBuilder:
        """A new builder of 11 MiB, 32 MiB with weights."""
        return _HistogramBuilder(self)

    def empty(self) -> ScoreHistogram:
        """The empty state."""
        return ScoreHistogram(self, np.empty(0, np.int64), np.empty((3, 0), np.int64), *np.empty((2, 0, 2)))

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> ScoreHistogram:
        """The state that `ScoreHistogram.to_arrow` wrote; raises `ValueError` if the table is damaged."""
        table, sums = np.zeros((3, BINS), np.int64), np.zeros((BINS if self.weighted else 0, 2))
        for batch in batches:
            columns = {name: batch.column(name).to_numpy() for name in batch.schema.names}
            if batch.num_rows and not 0 <= columns["bin"].min() <= columns["bin"].max() < BINS:
                raise ValueError(f"bins are numbered from 0 to {BINS - 1}")
            if not _within(columns["bin"], columns["only"], self.type):
                raise ValueError("the only score of a bin is not within the bin")
            absorb(table, *(columns[name] for name in ("bin", "negatives", "positives", "only")))
            if self.weighted:
                weights = np.stack([columns["negative_weight"], columns["positive_weight"]], axis=1)
                np.add.at(sums, columns["bin"], weights)
        nan_rows, nan_weights = (np.array(header[name]) for name in ("nan_rows", "nan_weights"))
        return ScoreHistogram.of(self, table, sums, np.zeros_like(sums), nan_rows, nan_weights)


class _HistogramBuilder:
    def __init__(self, spec: HistogramSpec) -> None:
        self.spec = spec
        self._full: list[ScoreHistogram] = []  # of the rows before those in the tables
        self._clear()

    def _clear(self) -> None:
        self._packed, self._only = np.zeros((2, BINS), np.int64)
        self._sums, self._errors = np.zeros((2, BINS if self.spec.weighted else 0, 2))
        self._rows = 0  # counted in the packed table
        self._nan_rows = np.zeros(2, np.int64)
        self._nan_weights: tuple[list[float], list[float]] = ([], [])

    def update(self, batch: Batch) -> None:
        if self._rows + batch.label.size > _PACKED_ROWS:  # before nulls are counted, which are refused below
            self._full.append(self._count())
            self._clear()
        values, rows, missing = present(batch, self.spec.column, self.spec.type, nan=False)
        values = read_only(quotients(values, int(self.spec.type[1:])) if self.spec.type[0] == "d" else values)
        label = read_only(batch.label[rows])
        self._nan_rows += np.bincount(batch.label[missing], minlength=2)
        self._rows += len(values)
        tables = self._packed, self._only
        self._nan_rows += bin_counts(values, label, float_limit(self.spec.type), *tables, FIRSTS, SHIFTS)
        if self.spec.weighted and batch.weight is not None:
            weight, nans = batch.weight[rows], np.isnan(values)
            bin_weights(values, label, read_only(weight), self._sums, self._errors, FIRSTS, SHIFTS)
            add_sides(batch.weight[missing], batch.label[missing], self._nan_weights)
            add_sides(weight[nans], label[nans], self._nan_weights)
        refuse_nan(self.spec.nan, self._nan_rows, batch.name, self.spec.column)

    def _count(self) -> ScoreHistogram:
        """The state of the rows in the tables."""
        full = np.flatnonzero(self._packed != 0)  # takes half the time of searching numbers
        table = unpacked(self._packed, self._only, full)
        sums, errors = ((each[full] if self.spec.weighted else each) for each in (self._sums, self._errors))
        missing = rounded_sides(self._nan_weights)
        return ScoreHistogram(self.spec, full, table, *two_sums(sums, errors), self._nan_rows, *missing)

    def state(self) -> ScoreHistogram:
        last = self._count()
        return reduce(ScoreHistogram.merge, [*self._full, last])


@dataclass(frozen=True, eq=False)
class ScoreHistogram(Small, Stored):
    """Counts of scores by bin and label.

    Attributes
    ----------
    spec : HistogramSpec
    bins : int64 array of shape (n_bins,), the bins that hold scores, in ascending order
    table : int64 array of shape (3, n_bins): negatives; positives; the complement of the float64 bits of the bin's only
        score, or `MIXED` (`streameval.kernels.histogram`)
    sums, errors : float64 arrays of shape (n_bins, 2), weight of negatives and positives, and its rounding error, so
        that sums do not depend on how rows are divided into states; of shape (0, 2) without weights
    nan_rows, nan_weights, nan_errors : arrays of shape (2,), rows with a missing score, their weight and its rounding
        error, by label

    Examples
    --------
    >>> HistogramSpec("score").empty().totals().rows
    0
    """

    fact_names = ("nan_rows", "nan_weights")

    spec: HistogramSpec
    bins: Array
    table: Array
    sums: Array
    errors: Array
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_weights: Array = field(default_factory=lambda: np.zeros(2))
    nan_errors: Array = field(default_factory=lambda: np.zeros(2))

    @classmethod
    def of(cls, spec: HistogramSpec, table: Array, sums: Array, errors: Array, *nan: Array) -> ScoreHistogram:
        """The state of a table that has every bin of the grid."""
        bins = np.flatnonzero(table[2] != EMPTY)
        sums, errors = ((each[bins] if spec.weighted else each) for each in (sums, errors))
        return cls(spec, bins, table.take(bins, axis=1), sums, errors, *nan)

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """Counts of both inputs."""
        mergeable(self, other)
        marks = np.zeros(BINS, np.bool_)  # faster than merging two sorted arrays
        marks[self.bins] = marks[other.bins] = True
        bins, ranks = np.flatnonzero(marks), np.cumsum(marks) - 1
        mine, theirs = ranks[self.bins], ranks[other.bins]
        table = np.zeros((3, bins.size), np.int64)
        for state, places in ((self, mine), (other, theirs)):
            absorb(table, read_only(places), *read_only(state.table))
        missing = add_sums((self.nan_weights, self.nan_errors), (other.nan_weights, other.nan_errors))
        sums = np.zeros((2, 2, bins.size if self.spec.weighted else 0, 2))  # of each state sums and errors
        if self.spec.weighted:
            sums[0][:, mine] = self.sums, self.errors
            sums[1][:, theirs] = other.sums, other.errors
        merged = add_sums((sums[0, 0], sums[0, 1]), (sums[1, 0], sums[1, 1]))
        return ScoreHistogram(self.spec, bins, table, *merged, self.nan_rows + other.nan_rows, *missing)

    def totals(self) -> Totals:
        """Rows and weights of the scores that are not missing."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        neg, pos = (int(self.table[side].sum()) for side in (0, 1))
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        weights = [math.fsum(self.sums[self.sums[:, side] > 0, side]) for side in (0, 1)]
        unit = unit_of(math.fsum((*weights, *self.nan_weights)))
        neg_weight, pos_weight = (math.ldexp(weight, -unit) for weight in weights)
        return Totals(neg, pos, neg_weight, pos_weight, weighted=True, unit=unit)

    def shards(self, budget: Budget | None = None) -> list[tuple[int, int]]:
        """A single interval of all bins, because a histogram is small."""
        return [(0, BINS)]

    def parts(self, shard: tuple[int, int] | None = None, budget: Budget | None = None) -> Iterator[ScorePart]:
        """A single part: all occupied bins, from the best scores to the worst."""
        neg, pos, only = np.ascontiguousarray(self.table[:, ::-1])
        ends = partial(_ends, np.ascontiguousarray(self.bins[::-1]), only, self.spec.type)
        total, (n, p), counts = self.totals(), (neg, pos), None
        if self.spec.weighted:
            n, p = in_units(np.ascontiguousarray(self.sums[::-1].T), total.unit, self.spec.column)
            counts = neg + pos
        none = Totals(0, 0, 0.0, 0.0, self.spec.weighted)
        yield ScorePart(n, p, none, total, ends, only == MIXED, counts=counts, type=self.spec.type)

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Occupied bins: bin, negatives, positives, only, and both weights where rows carry weights."""
        columns = [self.bins, *self.table, *(self.sums.T if self.spec.weighted else ())]
        arrays = [pa.array(np.ascontiguousarray(values)) for values in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)


def _ends(bins: Array, only: Array, kind: str, groups: slice | Array) -> Ends:
    """The lower edge of each bin, and the lowest and highest score it may hold; all are equal for a single score."""
    bins, only = bins[groups], only[groups]
    score = (~only).view(np.float64)
    reported, low, high = (np.where(only == MIXED, edge, score) for edge in _bounds(bins, kind))
    return reported, low, high


def _bounds(bins: Array, kind: str) -> tuple[Array, Array, Array]:
    """The lower edge of each bin, and a lower and an upper bound of its scores.

    Scores wider than float32 are rounded to it when they are binned, so their bounds are one float32 further apart on
    either side.
    """
    lower, upper = edges(bins), edges(bins + 1)
    if kind == "f4":
        return lower, lower, upper
    with np.errstate(over="ignore"):  # beyond the largest float32 lies infinity
        ends = (np.nextafter(lower.astype(np.float32), np.float32(-np.inf)), upper.astype(np.float32))
        return lower, ends[0].astype(np.float64), np.nextafter(ends[1], np.float32(np.inf)).astype(np.float64)


def _within(bins: Array, only: Array, kind: str) -> bool:
    """Whether the only score of each bin that has one is within the bin."""
    single = np.flatnonzero(only != MIXED)
    _, low, high = _bounds(bins[single], kind)
    score = (~only[single]).view(np.float64)
    return bool(((low <= score) & (score <= high)).all())


def histogram_spec(spec: ScoreSpec) -> HistogramSpec:
    """The spec of the histogram that replaces an exact state."""
    return HistogramSpec(**asdict(spec))


def to_histogram(state: ScoreCounts) -> ScoreHistogram:
    """The histogram of exact counts, equal to folding their rows.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = to_histogram(fold_arrays(np.array([0, 1, 1], dtype=np.uint8), np.array([0.25, 0.5, 0.5])))
    >>> [(part.n.tolist(), part.p.tolist(), part.scores.tolist()) for part in state.parts()]
    [([0, 1], [2, 0], [0.5, 0.25])]
    """
    spec = histogram_spec(state.spec)
    table = np.zeros((3, BINS), np.int64)
    sums, errors = np.zeros((2, BINS if spec.weighted else 0, 2))
    limit = float_limit(spec.type)
    for groups in state.groups():
        scores = read_only(decode(groups.keys, spec.type))
        add_groups(scores, read_only(groups.neg), read_only(groups.pos), limit, table, FIRSTS, SHIFTS)
        for label, weight in enumerate((groups.neg_weight, groups.pos_weight)):
            if weight is not None:
                labels = read_only(np.full(scores.size, label, np.uint8))
                bin_weights(scores, labels, read_only(weight), sums, errors, FIRSTS, SHIFTS)
    nan = state.nan_rows, state.nan_weights, state.nan_errors
    return ScoreHistogram.of(spec, table, *two_sums(sums, errors), *nan)
