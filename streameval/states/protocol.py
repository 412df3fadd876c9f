"""Spec, builder and state: three small protocols, and the batches of rows that states are folded from.

A *spec* describes a state and is its sharing key: two metrics with equal specs share one state. A *builder* is mutable
and owned by one task. A *state* is immutable, mergeable and serialisable. Property tests check these laws for every
state: folding a concatenation equals merging the folds; merging is associative and commutative, and ``empty()`` is its
identity; a state read back from Arrow is equal to the state written.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, cast

import numpy as np
import pyarrow as pa

from streameval.errors import IncompatibleStatesError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.typing import Array

    Header = dict[str, dict[str, object] | list[float | str] | float]  # the spec and facts, by name


@dataclass(frozen=True, slots=True)
class Batch:
    """Validated rows with labels, to be folded into states.

    Attributes
    ----------
    label : uint8 array of shape (n,), 1 for positive, 0 for negative or without a label
    weight : float64 array of shape (n,), finite and not negative; None without weights
    columns : Arrow arrays of length n, by column name
    partition : path of the partition relative to the input's root
    name : the file, for error messages
    row : number of the first row that was read
    kept : int64 array of shape (n,), offsets of the rows from `row` if some were left out; None otherwise
    origin : the sequence in which rows are numbered (`streameval.scan.pieces`); with its number, it identifies a row
    start : number of the first row of the piece being read, or of its row group if row groups are read one by one
    labelled : bool array of shape (n,), which rows have a label; None if all have one
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

    def once(self, name: Hashable, make: Callable[[Self], object]) -> Any:
        """A value that is computed from the batch once and cached for all states.

        `name` is the cache key; it must identify everything besides the batch on which the value depends.

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
        """The rows at the indices `rows`, in that order; with `names`, only these columns."""
        at = pa.array(rows)
        return replace(
            self,
            label=self.label[rows],
            weight=None if self.weight is None else self.weight[rows],
            columns={name: _take(self.columns[name], rows, at) for name in (self.columns if names is None else names)},
            kept=rows if self.kept is None else self.kept[rows],
            labelled=None if self.labelled is None else self.labelled[rows],
        )

    def with_labels(self) -> Batch:
        """The rows that have a label, taken once; a batch never caches itself, as that cycle would keep its columns."""
        if self.labelled is None:
            return self
        rows = np.flatnonzero(self.labelled)
        labelled: Batch = self.once("labelled", lambda batch: replace(batch.taken(rows), labelled=None))
        return labelled

    def offsets(self) -> Array:
        """Number of each row, as an int64 array of shape (n,)."""
        return self.row + (np.arange(self.label.size) if self.kept is None else self.kept)


def _take(column: pa.Array, rows: Array, at: pa.Array) -> pa.Array:
    """Some rows of a column; NumPy takes numbers without nulls, because it is faster."""
    kind = column.type
    if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.take(at)
    return pa.array(column.to_numpy()[rows], kind)


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows and weights of both classes; without weights every row weighs 1.

    Attributes
    ----------
    neg, pos : number of rows
    neg_weight, pos_weight : sums of weights, divided by 2**unit
    weighted : whether metrics measure the classes by weights instead of rows
    unit : exponent of the unit of the weights, see `streameval.states.scores.parts`; 0 for sums of ordinary size

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
        """Number of rows."""
        return self.neg + self.pos

    @property
    def n(self) -> Any:
        """The measure of the negatives: their weight, or their rows as an integer, which divides exactly."""
        return self.neg_weight if self.weighted else self.neg

    @property
    def p(self) -> Any:
        """The measure of the positives."""
        return self.pos_weight if self.weighted else self.pos


class Traits(NamedTuple):
    """How states of a spec are folded, merged and stored.

    Attributes
    ----------
    additive : whether the concatenated tables of several states, with the facts in their headers summed, are the table
        of the merged state
    associative : whether the state is the same, to the bit (weights: up to rounding), for any division of the rows into
        tasks; if not, an engine divides tasks by the data alone, never by the number of threads or workers
    unlabelled : whether the state counts rows without a label as well
    ignores_labels : whether the state is the same for any labels
    refuses_missing : whether a missing score or id is an error
    largest : bytes of the largest state; None if states grow with the rows, or are all as large as the empty one
    by_code : whether builders count the rows of numbers in a dictionary by its codes
    """

    additive: bool = False
    associative: bool = True
    unlabelled: bool = False
    ignores_labels: bool = False
    refuses_missing: bool = False
    largest: int | None = None
    by_code: bool = False


class StoredSpec(Protocol):
    """Frozen, hashable description of a state, with everything that the codec needs.

    Attributes
    ----------
    kind, version : name and version of the stored format; see `streameval.states.codec`
    """

    kind: ClassVar[str]
    version: ClassVar[int]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read, apart from label and weight."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""

    @property
    def traits(self) -> Traits:
        """How states are folded, merged and stored."""

    def empty(self) -> State:
        """The identity of merge."""

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> State:
        """The state that `State.to_arrow` and `State.header` describe."""


class Spec(StoredSpec, Protocol):
    """A spec whose states are folded from batches."""

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A new builder that collects about `capacity` rows at a time."""


class Builder(Protocol):
    """Folds batches; owned by one task."""

    def update(self, batch: Batch, /) -> None:
        """Fold a batch."""

    def state(self) -> State:
        """The state of everything folded; the builder must not be used afterwards."""


class SplitSpec:
    """A spec that splits the state of an inner spec by a key."""

    inner: Any
    key: Any

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read: those of the inner spec, then those of the key."""
        return tuple(dict.fromkeys((*self.inner.columns, *self.key.columns)))


def ungrouped(spec: Spec) -> Spec:
    """The spec that a grouped state splits; any other spec unchanged."""
    return spec.inner if isinstance(spec, SplitSpec) else spec


class Source(Protocol):
    """What metrics are computed from: a state, or the result of a sweep over one."""

    @property
    def spec(self) -> Any:
        """The `StoredSpec` of the state."""

    def totals(self) -> Totals:
        """Rows and weights of both classes."""

    def shards(self, budget: Budget | None = None) -> list[tuple[int, int]]:
        """Intervals that can be finalized independently; the budget may decide their size."""

    def parts(self, shard: tuple[int, int], budget: Budget | None = None) -> Iterator[Any]:
        """The parts of a shard, of bounded size, from which metrics compute their partials."""


class State(Source, Protocol):
    """Immutable sufficient statistic; ``sys.getsizeof`` gives its bytes in memory, without spilled bytes."""

    def merge(self, other: Self, /) -> Self:
        """The state of all rows of both inputs; raises `IncompatibleStatesError` if the specs differ."""

    def header(self) -> Mapping[str, object]:
        """The spec, and small facts stored with the table, as plain JSON values."""

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """The canonical table, batch by batch, because a state may be larger than memory; the budget limits a batch."""

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts by name: what grows with the rows, is spilled, split into ranges and sent to workers."""

    def with_runs(self, runs: Mapping[str, KeyedCounts], /) -> Self:
        """The state with other keyed counts under the same names."""


class Specified:
    """A state with a spec, which is no field here because subclasses narrow its type."""

    spec: Any


@dataclass(frozen=True, eq=False)
class Stored(Specified):
    """Defaults of a state of keyed counts and of facts that add up.

    Attributes
    ----------
    run_names : its fields that are keyed counts
    fact_names : its fields that are arrays of facts, which the header holds
    """

    run_names: ClassVar[tuple[str, ...]] = ()
    fact_names: ClassVar[tuple[str, ...]] = ()

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {name: getattr(self, name) for name in self.run_names}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The state with other keyed counts."""
        return replace(self, **runs)

    def merge(self, other: Self) -> Self:
        """The state of both inputs."""
        mergeable(self, other)
        theirs = other.runs()
        fields = {name: mine.merge(theirs[name]) for name, mine in self.runs().items()}
        facts = {name: getattr(self, name) + getattr(other, name) for name in self.fact_names}
        return replace(self, **fields, **facts)

    def header(self) -> Mapping[str, object]:
        """The spec and the facts, as JSON values."""
        return {"spec": asdict(self.spec)} | {name: getattr(self, name).tolist() for name in self.fact_names}

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled bytes do not count."""
        columns = (getattr(self, each.name) for each in fields(self))
        arrays = sum(column.nbytes for column in columns if isinstance(column, np.ndarray))
        return object.__sizeof__(self) + arrays + sum(map(sys.getsizeof, self.runs().values()))

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state: header and table are equal, however the rows are divided."""
        if not isinstance(other, Stored):
            return NotImplemented
        return same_table(cast("State", self), cast("State", other))


class Small(Specified):
    """Defaults of a state of bounded size: one shard, one part, and no keyed counts."""

    def shards(self, budget: Budget | None = None) -> list[tuple[int, int]]:
        """A single shard."""
        return [(0, 1)]

    def parts(self, shard: tuple[int, int] | None = None, budget: Budget | None = None) -> Iterator[Any]:
        """The state itself, as the only part."""
        yield self

    def runs(self) -> Mapping[str, KeyedCounts]:
        """Empty: there are no keyed counts."""
        return {}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The state itself."""
        return self


def merge_all(states: list[State]) -> State:
    """The merge of some states, at least one, in pairs: one by one, all rows so far would be copied for each.

    Weights are added in the same order for any fan-in that is a power of two.
    """
    while len(states) > 1:
        states = [reduce(lambda one, other: one.merge(other), states[i : i + 2]) for i in range(0, len(states), 2)]
    return states[0]


def mergeable(one: Specified, other: object) -> None:
    """Raise `IncompatibleStatesError` unless both states have equal specs.

    Examples
    --------
    >>> from streameval.states.labels import LabelSpec
    >>> mergeable(LabelSpec("label").empty(), LabelSpec("label").empty())
    """
    theirs = getattr(other, "spec", None)
    if type(theirs) is not type(one.spec) or one.spec != theirs:
        named = type(other).__name__ if theirs is None else theirs
        raise IncompatibleStatesError(f"cannot merge {one.spec} with {named}; fold both with the same options")


def same_table(one: State, other: State) -> bool:
    """Whether two states of one kind have equal headers and equal tables, however these are divided into batches."""
    return bool(one.header() == other.header() and _table(one) == _table(other))


def _table(state: State) -> pa.Table:
    return pa.Table.from_batches(state.to_arrow(), state.spec.schema).combine_chunks()
