"""ScoreCounts: every distinct score with its negatives and positives, exactly.

From it follow the exact ROC, precision-recall and gain curves and every number on them. Scores are rank keys in buckets
(`streameval.states.keyed.counts`): 2 bytes a row for scores up to 32 bits, 8 for wider ones.

NaN scores are not points of any curve; the state counts them apart, by label.
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.budget import Budget
from streameval.errors import NullError
from streameval.kernels import keys as kernels
from streameval.kernels.jit import read_only
from streameval.kernels.segments import sum_pieces
from streameval.states.compatible import mergeable, same_table
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_WEIGHTS, Interval, Layout
from streameval.states.keyed.packing import Packing
from streameval.states.protocol import Batch, Totals
from streameval.states.scores.types import SIGN, decode, numbers, score_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.states.keyed.grouping import Counts
    from streameval.typing import Array

__all__ = ["Groups", "ScoreCounts", "ScoreSpec", "fold_arrays"]


@dataclass(frozen=True, slots=True)
class Groups:
    """Consecutive groups of equal score, from the best to the worst, and where they stand in the whole.

    Attributes
    ----------
    keys : uint64 array of shape (n,), rank keys
    neg, pos : int64 arrays of shape (n,)
    neg_weight, pos_weight : float64 arrays of shape (n,); None without weights
    before, total : totals of the groups above these, and of all groups
    kind : see `streameval.states.scores.types.score_type`
    """

    keys: Array
    neg: Array
    pos: Array
    neg_weight: Array | None
    pos_weight: Array | None
    before: Totals
    total: Totals
    kind: str

    @property
    def scores(self) -> Array:
        """Scores as float64."""
        return decode(self.keys, self.kind)

    def score(self, i: int) -> float:
        """Score of one group."""
        return float(decode(self.keys[i : i + 1], self.kind)[0])


@dataclass(frozen=True)
class ScoreSpec:
    """An exact score state.

    Attributes
    ----------
    column : the score column
    type : see `streameval.states.scores.types.score_type`
    weighted : whether rows carry weights
    nan : ``error`` refuses NaN and null scores while folding; any other value counts them apart

    Examples
    --------
    >>> ScoreSpec("score").columns
    ('score',)
    """

    kind: ClassVar[str] = "score_counts"
    version: ClassVar[int] = 2
    additive: ClassVar[bool] = True
    associative: ClassVar[bool] = True

    column: str
    type: str = "f4"
    weighted: bool = False
    nan: str = "error"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

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
        """The state of no rows."""
        return ScoreCounts(self, KeyedCounts(self.layout))

    @property
    def packing(self) -> Packing:
        """How the table is stored."""
        flip = np.uint64(0) if self.type == "u8" else SIGN
        wide = kernels.buckets_f8 if self.type == "f8" else lambda keys: kernels.buckets_i8(keys, flip)
        return Packing(self.layout, wide)

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> ScoreCounts:
        """The state whose table `ScoreCounts.to_arrow` wrote, packed."""
        nan = {name: np.array(header[name]) for name in ("nan_rows", "nan_weights")}
        return ScoreCounts(self, KeyedCounts(self.layout, tuple(self.packing.segments(batches, budget))), **nan)


def split_nulls(
    batch: Batch, column: str, weight: Array | None, rows: Array, weights: tuple[list[float], list[float]]
) -> tuple[pa.Array, Array, Array | None]:
    """Scores that are not null with their labels and weights; the others are added to `rows` and `weights` by label."""
    array, label = batch.columns[column], batch.label
    if not array.null_count:
        return array, label, weight
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    rows += np.bincount(label[~valid], minlength=2)
    if weight is not None:
        for side in (0, 1):
            weights[side].append(total_weight(weight[~valid & (label == side)]))
        weight = weight[valid]
    return array.drop_null(), label[valid], weight


def refuse_nan(policy: str, seen: Any, name: str, column: str) -> None:
    """Raise `NullError` if NaN scores were seen and the policy is ``error``."""
    if policy == "error" and np.any(seen):
        msg = f"{name}: score column {column!r} has NaN or null scores; choose nan='drop' or nan='half' (--nan)"
        raise NullError(msg)


class _ScoreBuilder:
    def __init__(self, spec: ScoreSpec, segments: SegmentBuilder) -> None:
        self.spec = spec
        self._segments = segments
        self._null_rows = np.zeros(2, np.int64)
        self._null_weights: tuple[list[float], list[float]] = ([], [])

    def update(self, batch: Batch) -> None:
        weight = batch.weight if self.spec.weighted else None
        array, label, weight = split_nulls(batch, self.spec.column, weight, self._null_rows, self._null_weights)
        values = numbers(array, self.spec.type)
        self._segments.add(len(values), self._encoder(values, label), weights=NO_WEIGHTS if weight is None else weight)
        refuse_nan(self.spec.nan, self._segments.nan_seen or self._null_rows.any(), batch.name, self.spec.column)

    def _encoder(self, values: Array, label: Array) -> Any:
        kind = self.spec.type
        values, label = read_only(values), read_only(label)
        if kind == "f4":
            bits = values.view(np.uint32)
            return lambda part, *out: kernels.encode_f4(bits[part], label[part], *out)
        if kind == "f8":
            return lambda part, *out: kernels.encode_f8(values[part], label[part], *out)
        if kind == "i4":
            return lambda part, *out: kernels.encode_i4(values[part], label[part], *out)
        flip = np.uint64(0) if kind == "u8" else SIGN
        return lambda part, *out: kernels.encode_i8(values[part], label[part], flip, *out)

    def state(self) -> ScoreCounts:
        keyed = KeyedCounts.built(self._segments)
        weights = np.array([math.fsum(side) for side in self._null_weights]) + self._segments.nan_weights
        return ScoreCounts(self.spec, keyed, self._null_rows + self._segments.nan_rows, weights)


def fold_arrays(label: Array, score: Array, weight: Array | None = None, nan: str = "error") -> ScoreCounts:
    """The state of arrays in memory.

    Parameters
    ----------
    label : uint8 array of shape (n,), 1 for positive
    score : array of shape (n,), of any numeric type
    weight : float64 array of shape (n,), optional
    nan : see `ScoreSpec`
    """
    array = pa.array(score)
    spec = ScoreSpec("y_score", score_type(array.type, "y_score"), weight is not None, nan)
    builder = spec.builder(Budget(), max(len(array), 1))
    builder.update(Batch(label, weight, {"y_score": array}))
    return builder.state()


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Exact counts of every distinct score, by label.

    Attributes
    ----------
    spec : ScoreSpec
    keyed : KeyedCounts
    nan_rows : int64 array of shape (2,), rows whose score is NaN or null, by label
    nan_weights : float64 array of shape (2,), their weight

    Examples
    --------
    >>> import numpy as np
    >>> state = fold_arrays(np.array([0, 1, 1, 0], dtype=np.uint8), np.array([0.1, 0.9, 0.9, 0.4]))
    >>> [(g.scores.tolist(), g.neg.tolist(), g.pos.tolist()) for g in state.parts()]
    [([0.9, 0.4, 0.1], [0, 1, 1], [2, 0, 0])]
    """

    spec: ScoreSpec
    keyed: KeyedCounts
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_weights: Array = field(default_factory=lambda: np.zeros(2))

    def runs(self) -> Mapping[str, KeyedCounts]:
        """What grows with the rows."""
        return {"keyed": self.keyed}

    def with_runs(self, runs: Mapping[str, Any]) -> ScoreCounts:
        """The same with other keyed counts."""
        return replace(self, **runs)

    def merge(self, other: ScoreCounts) -> ScoreCounts:
        """Counts of both inputs."""
        mergeable(self, other)
        return ScoreCounts(
            self.spec,
            self.keyed.merge(other.keyed),
            self.nan_rows + other.nan_rows,
            self.nan_weights + other.nan_weights,
        )

    def totals(self) -> Totals:
        """Rows and weights of all scores that are numbers."""
        return self._span(self.keyed.layout.buckets)

    def _span(self, stop: int) -> Totals:
        """Totals of the buckets before `stop`."""
        neg, pos = (int(self.keyed.rows[label : 2 * stop : 2].sum()) for label in (0, 1))
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        return Totals(neg, pos, *(math.fsum(self.keyed.sums[label : 2 * stop : 2]) for label in (0, 1)))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized on their own, from the best scores to the worst."""
        return self.keyed.intervals()

    def parts(self, shard: Interval | None = None, budget: Budget | None = None) -> Iterator[Groups]:
        """Groups of equal score in a shard, or in all, a bounded number at a time."""
        total = self.totals()
        for interval in self.shards() if shard is None else [shard]:
            before = self._span(interval[0])
            for counts in self.keyed.grouped(interval, budget):
                here = Groups(
                    counts.keys,
                    counts.neg,
                    counts.pos,
                    counts.neg_weight,
                    counts.pos_weight,
                    before,
                    total,
                    self.spec.type,
                )
                yield here
                before = _after(here)

    def __sizeof__(self) -> int:
        """Bytes in memory; what is spilled does not count."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.runs().values()))

    def header(self) -> dict[str, Any]:
        """Facts beside the table."""
        return {"spec": asdict(self.spec), "nan_rows": self.nan_rows.tolist(), "nan_weights": self.nan_weights.tolist()}

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """Distinct keys with their counts: columns key, negatives, positives, and weights where there are any."""
        for shard in self.shards():
            for counts in self.keyed.grouped(shard):
                yield _table(counts, self.spec.schema)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state: the same table, whatever the segments; which would be costly to hash."""
        if not isinstance(other, ScoreCounts):
            return NotImplemented
        return same_table(self, other)


def _after(groups: Groups) -> Totals:
    before = groups.before
    neg, pos = before.neg + int(groups.neg.sum()), before.pos + int(groups.pos.sum())
    if groups.neg_weight is None or groups.pos_weight is None:
        return Totals(neg, pos, float(neg), float(pos))
    return Totals(
        neg,
        pos,
        before.neg_weight + total_weight(groups.neg_weight),
        before.pos_weight + total_weight(groups.pos_weight),
    )


def total_weight(weights: Array) -> float:
    """Compensated sum."""
    return float(sum_pieces(weights, np.array([0, weights.size]))[0])


def _table(counts: Counts, schema: pa.Schema) -> pa.RecordBatch:
    columns = (counts.keys, counts.neg, counts.pos, counts.neg_weight, counts.pos_weight)
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns if values is not None], schema=schema)
