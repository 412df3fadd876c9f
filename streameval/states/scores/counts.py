"""ScoreCounts: every distinct score with its negatives and positives, exactly.

The exact ROC, precision-recall and gain curves, and every metric read from them, follow from these counts. Scores are
stored as rank keys in buckets (`streameval.states.keyed.counts`), in 2 bytes a row for scores of up to 32 bits and 8
for wider ones; weights add 8. Missing scores are counted separately (`streameval.states.scores.types`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from streameval.budget import Budget
from streameval.kernels import keys as kernels
from streameval.kernels.exact import HELD
from streameval.kernels.fused import FUSED
from streameval.kernels.jit import read_only
from streameval.kernels.ranking import exact_parts
from streameval.states.keyed.builder import SegmentBuilder, SegmentReader
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.hot import by_code
from streameval.states.keyed.ids import row_nulls
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Interval, Layout
from streameval.states.protocol import Batch, Stored, Totals, Traits, mergeable
from streameval.states.scores.parts import (
    Ends,
    RankedPart,
    ScorePart,
    add_sides,
    add_sums,
    in_units,
    rounded_sides,
    unit_of,
)
from streameval.states.scores.types import (
    SIGN,
    MissingScores,
    decode,
    enclosing,
    present,
    rank_keys,
    refuse_nan,
    score_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streameval.states.protocol import Header
    from streameval.typing import Array


@dataclass(frozen=True)
class ScoreSpec(MissingScores):
    """The exact counts of a score column.

    Attributes
    ----------
    column : the score column
    type : how scores are read, see `streameval.states.scores.types.score_type`
    weighted : whether rows carry weights
    nan : policy for missing scores: ``error``, ``drop`` or ``half``, see `streameval.states.scores.types`

    Examples
    --------
    >>> ScoreSpec("score").columns
    ('score',)
    """

    kind: ClassVar[str] = "score_counts"
    version: ClassVar[int] = 1

    column: str
    type: str = "f4"
    weighted: bool = False
    nan: str = "error"

    @property
    def layout(self) -> Layout:
        """Layout of the segments."""
        bits = 16 if self.type in {"f4", "i4"} else 64
        return Layout(kernels.SCORE_BUCKETS, bits, weighted=self.weighted, halved=self.type != "u8")

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""
        counts = {"key": pa.uint64(), "negatives": pa.int64(), "positives": pa.int64()}
        weights = {"negative_weight": pa.float64(), "positive_weight": pa.float64()}
        return pa.schema(counts | weights if self.weighted else counts)

    def builder(self, budget: Budget, capacity: int) -> _ScoreBuilder:
        """A builder whose segments hold `capacity` rows."""
        return _ScoreBuilder(self, SegmentBuilder(self.layout, budget, capacity))

    def empty(self) -> ScoreCounts:
        """The empty state."""
        return ScoreCounts(self, KeyedCounts(self.layout))

    @property
    def traits(self) -> Traits:
        """The tables of several states add up."""
        return Traits(additive=True, refuses_missing=self.nan == "error", by_code=not self.weighted)

    def buckets(self, keys: Array) -> Array:
        """The bucket of each key, a uint64 array."""
        if self.layout.bits == 16:
            return keys >> np.uint64(16)
        keys, flip = read_only(keys), np.uint64(0) if self.type == "u8" else SIGN
        buckets: Array = kernels.buckets_f8(keys) if self.type == "f8" else kernels.buckets_i8(keys, flip)
        return buckets

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> ScoreCounts:
        """The state of the table that `ScoreCounts.to_arrow` wrote."""
        nan = {name: np.array(header[name]) for name in ("nan_rows", "nan_weights")}
        reader = SegmentReader(self.layout, self.buckets, budget)
        for batch in batches:
            reader.add(batch)
        return ScoreCounts(self, KeyedCounts(self.layout, reader.finish()), **nan)


class _ScoreBuilder:
    def __init__(self, spec: ScoreSpec, segments: SegmentBuilder) -> None:
        self.spec = spec
        self._segments = segments
        self._null_rows = np.zeros(2, np.int64)
        self._null_weights: tuple[list[float], list[float]] = ([], [])

    def update(self, batch: Batch) -> None:
        column, items, counts, weights = self.spec.column, batch, NO_COUNTS, NO_WEIGHTS
        if not self.spec.weighted:
            [array], counts, label = by_code([row_nulls(batch.columns[column])], batch.label)
            items = Batch(label, None, {column: array})
        counted = counts.size > 0  # items that are NaN have no place in a table
        values, rows, missing = present(items, column, self.spec.type, nan=counted)
        label = items.label
        np.add.at(self._null_rows, label[missing], counts[missing] if counted else 1)
        if items.weight is not None:
            weights = items.weight[rows]
            add_sides(items.weight[missing], label[missing], self._null_weights)
        counts = counts[rows] if counted else counts
        self._segments.add(len(values), self._encoder(values, label[rows]), weights=weights, counts=counts)
        refuse_nan(self.spec.nan, self._segments.nan_seen or self._null_rows.any(), batch.name, column)

    def _encoder(self, values: Array, label: Array) -> Callable[..., int]:
        kind = self.spec.type
        values, label = read_only(values), read_only(label)
        if kind == "f4":
            bits = values.view(np.uint32)
            return lambda part, *out: kernels.encode_f4(bits[part], label[part], *out)
        if kind == "f8":
            return lambda part, *out: kernels.encode_f8(values[part], label[part], *out)

        def encode(part: slice, words: Array, codes: Array) -> int:
            keys = rank_keys(values[part], kind)
            words[:], codes[:] = keys, self.spec.buckets(keys).astype(np.uint32) << np.uint32(1) | label[part]
            return 0

        return encode

    def state(self) -> ScoreCounts:
        keyed = KeyedCounts.built(self._segments)
        weights = rounded_sides(self._null_weights, self._segments.nan_weights)
        return ScoreCounts(self.spec, keyed, self._null_rows + self._segments.nan_rows, *weights)


def fold_arrays(label: Array, score: Array, weight: Array | None = None, nan: str = "error") -> ScoreCounts:
    """The state of arrays in memory.

    Parameters
    ----------
    label : uint8 array of shape (n,), 1 for positive
    score : numeric array of shape (n,)
    weight : float64 array of shape (n,), optional
    nan : policy for NaN scores, see `ScoreSpec`

    Raises
    ------
    NullError
        If a score is NaN and `nan` is ``error``.

    Examples
    --------
    >>> import numpy as np
    >>> fold_arrays(np.array([0, 1], np.uint8), np.array([0.1, 0.9])).totals().rows
    2
    """
    array = pa.array(score)
    spec = ScoreSpec("y_score", score_type(array.type, "y_score"), weight is not None, nan)
    builder = spec.builder(Budget(), max(len(array), 1))
    builder.update(Batch(label, weight, {"y_score": array}))
    return builder.state()


@dataclass(frozen=True, eq=False)
class ScoreCounts(Stored):
    """Exact counts of every distinct score, by label.

    Attributes
    ----------
    spec : ScoreSpec
    keyed : KeyedCounts
    nan_rows : int64 array of shape (2,), rows with a missing score, by label
    nan_weights, nan_errors : float64 arrays of shape (2,), the weight of those rows, and its rounding error

    Examples
    --------
    >>> import numpy as np
    >>> state = fold_arrays(np.array([0, 1, 1, 0], dtype=np.uint8), np.array([0.1, 0.9, 0.9, 0.4]))
    >>> [(part.scores.tolist(), part.n.tolist(), part.p.tolist()) for part in state.parts()]
    [([0.9, 0.4, 0.1], [0, 1, 1], [2, 0, 0])]
    """

    run_names = ("keyed",)
    fact_names = ("nan_rows", "nan_weights")

    spec: ScoreSpec
    keyed: KeyedCounts
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_weights: Array = field(default_factory=lambda: np.zeros(2))
    nan_errors: Array = field(default_factory=lambda: np.zeros(2))

    def merge(self, other: ScoreCounts) -> ScoreCounts:
        """Counts of both inputs."""
        mergeable(self, other)
        return ScoreCounts(
            self.spec,
            self.keyed.merge(other.keyed),
            self.nan_rows + other.nan_rows,
            *add_sums((self.nan_weights, self.nan_errors), (other.nan_weights, other.nan_errors)),
        )

    def totals(self) -> Totals:
        """Rows and weights of the scores that are not missing."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        return self._span(self.keyed.layout.buckets)

    def _span(self, stop: int) -> Totals:
        """Totals of the buckets before `stop`."""
        codes, rows = self.keyed.outline.codes, self.keyed.outline.rows
        end = int(codes.searchsorted(2 * stop))
        positive = (codes[:end] & 1).astype(np.bool_)
        pos = int(rows[:end][positive].sum())
        neg = int(rows[:end].sum()) - pos
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        sums, unit = self.keyed.outline.sums[:end], self._unit
        weights = [math.ldexp(_exact_sum(sums[side]), -unit) for side in (~positive, positive)]
        return Totals(neg, pos, weights[0], weights[1], weighted=True, unit=unit)

    @cached_property
    def _unit(self) -> int:
        """The unit of all weights, including those of missing scores; see `streameval.states.scores.parts`."""
        return unit_of(_exact_sum(np.append(self.keyed.outline.sums, self.nan_weights)))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of buckets that can be finalized independently, from the best scores to the worst."""
        return self.keyed.shards(budget)

    def between(self, low: float, high: float) -> Interval:
        """An interval of buckets with all scores from `low` to `high`, perhaps slightly too large."""
        ends = enclosing(low, high, self.spec.type)[::-1].copy()  # the best score has the first bucket
        keys = rank_keys(ends, self.spec.type)
        start, last = self.spec.buckets(keys).tolist()
        return start, last + 1

    def groups(self, shard: Interval | None = None, budget: Budget | None = None) -> Iterator[Counts]:
        """Distinct keys of a shard, or of all shards, with their counts by label, a bounded number at a time."""
        for interval in self.shards() if shard is None else [shard]:
            yield from self.keyed.grouped(interval, budget)

    def parts(self, shard: Interval | None = None, budget: Budget | None = None) -> Iterator[ScorePart]:
        """Groups of equal score in a shard, or in all shards, a bounded number at a time."""
        total = self.totals()
        for interval in self.shards() if shard is None else [shard]:
            before = self._span(interval[0])
            for counts in self.groups(interval, budget):
                part = score_part(counts, before, total, self.spec)
                yield part
                before = _after(part, int(counts.neg.sum()), int(counts.pos.sum()))

    def ranked_parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[ScorePart | RankedPart]:
        """As `parts`, for metrics that only rank: most groups are not stored."""
        total, before = self.totals(), self._span(shard[0])
        if total.unit if total.weighted else total.pos >= HELD:
            yield from self.parts(shard, budget)
            return
        part: ScorePart | RankedPart
        for rows in self.keyed.rows_in(shard, budget):
            if not isinstance(rows, Counts) and (rows.layout, "areas") in FUSED:
                ranked = rows.ranked((before.n, before.p), total.n)
                part = RankedPart(ranked, before, total)
                yield part
                before = _after(part, ranked.neg, ranked.pos)
                continue
            for counts in rows.counts():
                part = score_part(counts, before, total, self.spec)
                yield part
                before = _after(part, int(counts.neg.sum()), int(counts.pos.sum()))

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Distinct keys with their counts: key, negatives, positives, and both weights where rows carry weights."""
        return (_table(counts, self.spec.schema) for counts in self.groups(budget=budget))


def score_part(counts: Counts, before: Totals, total: Totals, spec: ScoreSpec) -> ScorePart:
    """The `ScorePart` of distinct keys.

    Parameters
    ----------
    counts : distinct keys with their counts
    before, total : totals of the groups above, and of all groups
    spec : ScoreSpec

    Raises
    ------
    WeightError
        If the ratio of a weight to the sum of all leaves float64.
    """

    def ends(groups: slice | Array) -> Ends:
        return (decode(counts.keys[groups], spec.type),) * 3

    if not total.weighted:
        return ScorePart(counts.neg, counts.pos, before, total, ends, type=spec.type)
    sides = (np.zeros(0) if side is None else side for side in (counts.neg_weight, counts.pos_weight))
    n, p = (in_units(side, total.unit, spec.column) for side in sides)
    return ScorePart(n, p, before, total, ends, counts=counts.neg + counts.pos, type=spec.type)


def _exact_sum(values: Array) -> float:
    """`math.fsum` of an array."""
    return math.fsum(exact_parts(values))


def _after(part: ScorePart | RankedPart, neg: int, pos: int) -> Totals:
    """Totals of a part, which has these rows, and of all groups above it."""
    before = part.before
    neg, pos = before.neg + neg, before.pos + pos
    if not before.weighted:
        return Totals(neg, pos, float(neg), float(pos))
    n, p = part.weights
    return Totals(neg, pos, before.neg_weight + n, before.pos_weight + p, weighted=True, unit=before.unit)


def _table(counts: Counts, schema: pa.Schema) -> pa.RecordBatch:
    columns = (counts.keys, counts.neg, counts.pos, counts.neg_weight, counts.pos_weight)
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns if values is not None], schema=schema)
