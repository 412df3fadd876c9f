"""What a state is: three small protocols, and the rows that flow into them.

A *spec* describes a state and is its sharing key: two metrics with equal specs share one state. A *builder* is mutable
and owned by one task. A *state* is immutable, mergeable and serialisable. The laws that every state obeys are property
tests: folding a concatenation equals merging the folds; merging is associative and commutative with ``empty()`` as its
identity; what goes through Arrow comes back equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.packing import Packing
    from streameval.typing import Array

__all__ = ["Batch", "Builder", "Small", "Spec", "State", "Totals"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows on their way into states, checked and with their labels read.

    Attributes
    ----------
    label : uint8 array of shape (n,), 1 for positive
    weight : float64 array of shape (n,), finite and not negative; None without weights
    columns : Arrow arrays of length n, by column name
    partition : path of the partition relative to the input's root
    name : the file, as an error message names it
    row : offset of the first row in its file
    kept : int64 array of shape (n,), offsets from `row` where rows were left out; None where none were
    origin : path of the file relative to the input's root: with its number in the file it names a row for good
    start : offset of the first row of the piece that is being read, a row group where these are read one by one
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

    def offsets(self) -> Array:
        """Row number of each row in its file, as an int64 array of shape (n,)."""
        return self.row + (np.arange(self.label.size) if self.kept is None else self.kept)


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows and weights of both classes; without weights every row weighs 1.

    Examples
    --------
    >>> Totals(neg=3, pos=1, neg_weight=3.0, pos_weight=1.0).rows
    4
    """

    neg: int
    pos: int
    neg_weight: float
    pos_weight: float

    @property
    def rows(self) -> int:
        """All rows."""
        return self.neg + self.pos


class Spec(Protocol):
    """Frozen and hashable description of a state.

    Attributes
    ----------
    kind, version : what is stored, and in which form; see `streameval.states.codec`
    additive : whether the tables of several states, one after the other, with the facts of their headers summed, are
        read as the state of all
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    additive: ClassVar[bool]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read beside label and weight."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""

    @property
    def packing(self) -> Packing | None:
        """How the table is stored; None where it is stored as it is."""

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A new builder that turns about `capacity` rows at a time into part of a state."""

    def empty(self) -> State:
        """The identity of merge."""

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> State:
        """The state that `State.to_arrow` and `State.header` describe, the batches packed where there is a packing."""


class Builder(Protocol):
    """Folds batches; owned by one task."""

    def update(self, batch: Batch) -> None:
        """Fold a batch."""

    def state(self) -> State:
        """The state of everything folded; the builder is spent."""


class State(Protocol):
    """Immutable sufficient statistic."""

    @property
    def spec(self) -> Spec:
        """What this state is a state of."""

    def merge(self, other: Self) -> Self:
        """The state of both inputs; raises `IncompatibleStatesError` before touching anything."""

    def totals(self) -> Totals:
        """Rows and weights of both classes."""

    def shards(self) -> list[tuple[int, int]]:
        """Cuts of the state that can be finalized on their own."""

    def parts(self, shard: tuple[int, int], budget: Budget | None = None) -> Iterator[Any]:
        """What metrics take their partials of: a shard, a bounded number of groups at a time."""

    def header(self) -> dict[str, Any]:
        """Small facts beside the table, as JSON."""

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """The canonical table, one batch a shard: a state may be larger than memory."""

    def runs(self) -> Mapping[str, KeyedCounts]:
        """What grows with the rows, by name: it is spilled, split into ranges and sent between workers."""

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The state with other keyed counts under the same names."""


class Small:
    """A state that does not grow with the rows: nothing of it is keyed."""

    def runs(self) -> Mapping[str, KeyedCounts]:
        """None."""
        return {}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The state itself."""
        return self
