"""Spec, builder and state: three small protocols, and the batches of rows that states are folded from.

A *spec* describes a state and is its sharing key: two metrics with equal specs share one state. A *builder* is mutable
and owned by one task. A *state* is immutable, mergeable and serialisable. Property tests hold every state to the laws:
folding a concatenation equals merging the folds; merging is associative and commutative, and ``empty()`` is its
identity; what goes through Arrow comes back equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.packing import Packing
    from streameval.typing import Array

__all__ = ["Batch", "Builder", "PlainSpec", "PlainState", "Small", "Spec", "State", "StoredSpec", "Totals"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to be folded into states, checked and with their labels read.

    Attributes
    ----------
    label : uint8 array of shape (n,), 1 for positive; 0 where there is no label
    weight : float64 array of shape (n,), finite and not negative; None without weights
    columns : Arrow arrays of length n, by column name
    partition : path of the partition relative to the input's root
    name : the file, for error messages
    row : offset of the first row in its file
    kept : int64 array of shape (n,), offsets from `row` where rows were left out; None where none were
    origin : path of the file relative to the input's root; with its offset in the file it identifies a row permanently
    start : offset of the first row of the piece that is being read; of its row group where these are read one by one
    labelled : bool array of shape (n,), which rows have a label; None where all have
    """

    label: Array
    weight: Array | None
    columns: Mapping[str, pa.Array]
    partition: str = ""
    name: str = "input"
    row: int = 0
    kept: Array | None = None
    origin: str = ""
    start: int = 0
    labelled: Array | None = None
    _made: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: Hashable, make: Callable[[Self], Any]) -> Any:
        """A value computed from the batch once for all states; `name` identifies every other input.

        Examples
        --------
        >>> batch = Batch(np.zeros(2, np.uint8), None, {})
        >>> batch.once("rows", lambda batch: batch.label.size), batch.once("rows", lambda _: 0)
        (2, 2)
        """
        if name not in self._made:
            self._made[name] = make(self)
        return self._made[name]

    def taken(self, rows: Array, names: Iterable[str] | None = None) -> Batch:
        """Some rows, in any order; with `names` these columns alone."""
        at = pa.array(rows)
        return replace(
            self,
            label=self.label[rows],
            weight=None if self.weight is None else self.weight[rows],
            columns={name: _taken(self.columns[name], rows, at) for name in (self.columns if names is None else names)},
            kept=rows if self.kept is None else self.kept[rows],
            labelled=None if self.labelled is None else self.labelled[rows],
        )

    def with_labels(self) -> Batch:
        """The rows that have a label."""
        if self.labelled is None:
            return self
        return replace(self.taken(np.flatnonzero(self.labelled)), labelled=None)

    def offsets(self) -> Array:
        """Row number of each row in its file, as an int64 array of shape (n,)."""
        return self.row + (np.arange(self.label.size) if self.kept is None else self.kept)


def _taken(column: pa.Array, rows: Array, at: pa.Array) -> pa.Array:
    """Some rows of a column; numbers without nulls by NumPy, which is faster."""
    kind = column.type
    if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.take(at)
    return pa.array(column.to_numpy()[rows], kind)


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows and weights of both classes; without weights every row weighs 1.

    Attributes
    ----------
    neg, pos : rows
    neg_weight, pos_weight : weights
    weighted : whether metrics measure the classes by their weights, not by their rows
    unit : weights are multiples of 2 to this power; 0 unless they are far from 1

    Examples
    --------
    >>> total = Totals(neg=3, pos=1, neg_weight=1.5, pos_weight=1.0, weighted=True)
    >>> total.rows, total.n, total.p
    (4, 1.5, 1.0)
    """

    neg: int
    pos: int
    neg_weight: float
    pos_weight: float
    weighted: bool = False
    unit: int = 0

    @property
    def rows(self) -> int:
        """All rows."""
        return self.neg + self.pos

    @property
    def n(self) -> Any:
        """The measure of the negatives: their weight, or their rows, an integer that divides exactly."""
        return self.neg_weight if self.weighted else self.neg

    @property
    def p(self) -> Any:
        """The measure of the positives."""
        return self.pos_weight if self.weighted else self.pos


class StoredSpec(Protocol):
    """Frozen and hashable description of a state: what the codec needs to know.

    Attributes
    ----------
    kind, version : what is stored, and in which form; see `streameval.states.codec`
    additive : whether concatenated tables of several states, with the facts of their headers summed, read as the merged
        state
    associative : whether the state is the same, to the bit (weights: up to rounding), however the rows are cut into
        tasks; where it is not, an engine cuts tasks by the data alone, never by threads or workers
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    additive: ClassVar[bool]
    associative: ClassVar[bool]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read, apart from label and weight."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""

    @property
    def packing(self) -> Packing | None:
        """How the table is compressed for storage; None where it is stored unchanged."""

    @property
    def ungrouped(self) -> Any:
        """What a grouped state splits; for any other state this spec."""

    @property
    def counts_unlabelled(self) -> bool:
        """Whether the state counts rows without a label as well."""

    @property
    def refuses_missing(self) -> bool:
        """Whether a missing score or id is an error."""

    @property
    def halves_nan(self) -> bool:
        """Whether a missing score counts one half in every pair."""

    @property
    def derived(self) -> Any:
        """The spec of the state that `total` derives without copying rows; None if there is none."""

    @property
    def largest(self) -> int | None:
        """Bytes of the largest state; None if states grow with the rows, or are as large as the empty one."""

    def empty(self) -> State:
        """The identity of merge."""

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> State:
        """The state that `State.to_arrow` and `State.header` describe, its batches packed where there is a packing."""


class PlainSpec:
    """What a spec says unless it says otherwise: its state is not grouped, and has neither policies nor a limit."""

    @property
    def ungrouped(self) -> Any:
        """The spec itself."""
        return self

    @property
    def counts_unlabelled(self) -> bool:
        """Rows without a label are left out."""
        return False

    @property
    def refuses_missing(self) -> bool:
        """Nothing is refused."""
        return False

    @property
    def halves_nan(self) -> bool:
        """No missing score counts."""
        return False

    @property
    def derived(self) -> Any:
        """None."""
        return None

    @property
    def largest(self) -> int | None:
        """No limit."""
        return None


class Spec(StoredSpec, Protocol):
    """A spec whose states are folded from batches."""

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A new builder that collects about `capacity` rows at a time."""


class Builder(Protocol):
    """Folds batches; owned by one task."""

    def update(self, batch: Batch, /) -> None:
        """Fold a batch."""

    def state(self) -> State:
        """The state of everything folded; the builder is spent."""


class State(Protocol):
    """Immutable sufficient statistic; ``sys.getsizeof`` gives its bytes in memory, without those that are spilled."""

    @property
    def spec(self) -> Any:
        """The `StoredSpec` of this state."""

    @property
    def holder(self) -> Any:
        """The spec of the state that holds the rows: its own, unless it is derived from another state."""

    def merge(self, other: Self, /) -> Self:
        """The state of both inputs; raises `IncompatibleStatesError` before it touches anything."""

    def totals(self) -> Totals:
        """Rows and weights of both classes."""

    def shards(self, budget: Budget | None = None) -> list[tuple[int, int]]:
        """Intervals that can be finalized independently; the budget may decide how large they are."""

    def parts(self, shard: tuple[int, int], budget: Budget | None = None) -> Iterator[Any]:
        """What metrics take their partials of: the groups of a shard, a bounded number at a time."""

    def header(self) -> dict[str, Any]:
        """The spec, and small facts stored with the table, as plain JSON values."""

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """The canonical table, batch by batch: a state may be larger than memory."""

    def runs(self) -> Mapping[str, KeyedCounts]:
        """What grows with the rows, by name: it is spilled, split into ranges and sent between workers."""

    def with_runs(self, runs: Mapping[str, KeyedCounts], /) -> Self:
        """The state with other keyed counts under the same names."""

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled bytes do not count."""


class PlainState:
    """What a state does unless it does otherwise: it holds its own rows, and parts are found by shards alone.

    Attributes
    ----------
    found : what metrics found that curves are drawn from; None if the state does not keep it
    """

    found: dict[Any, Any] | None = None
    spec: Any

    @property
    def holder(self) -> Any:
        """The state's own spec."""
        return self.spec

    def between(self, low: float, high: float) -> tuple[int, int] | None:
        """The buckets that hold scores from `low` to `high`; None if they are not known, which stands for all."""
        return None


class Small(PlainState):
    """What states of bounded size have in common: one shard, one part, and no keyed counts."""

    def shards(self, budget: Budget | None = None) -> list[tuple[int, int]]:
        """One."""
        return [(0, 1)]

    def parts(self, shard: tuple[int, int] | None = None, budget: Budget | None = None) -> Iterator[Any]:
        """One: the state itself."""
        yield self

    def runs(self) -> Mapping[str, KeyedCounts]:
        """None."""
        return {}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The state itself."""
        return self
