"""A family: for one kind of input, the states that its metrics need, and how they are finalized."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from streameval.errors import SchemaError
from streameval.metrics.finalize import computed, in_rounds
from streameval.results import Scalar
from streameval.states.keyed.ids import id_type
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request, Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampling import Resampled
    from streameval.scan import Scan


@dataclass(frozen=True)
class MetricRequest:
    """A state to build, and the metrics to compute from it.

    Attributes
    ----------
    family : the family of the input
    of : the column
    spec : the spec of the state
    metrics : the metrics
    of_blocks : whether the state holds resampling blocks, which intervals need in addition to the family's state
    by : slicing columns, if this is the sliced state that a store keeps; otherwise empty
    behind : metrics without results of their own: the intervals of other metrics are made of their replicates
    """

    family: Family
    of: str
    spec: Any
    metrics: tuple[Any, ...]
    of_blocks: bool = False
    by: str = ""
    behind: tuple[Any, ...] = ()

    @property
    def group(self) -> str:
        """The name of the family, such as ``score``; ``score.blocks`` for blocks."""
        own = f"{self.family.name}.blocks" if self.of_blocks else self.family.name
        return f"{own}.by {self.by}" if self.by else own

    @property
    def computed(self) -> tuple[Any, ...]:
        """The metrics, and those behind the intervals of others."""
        return self.metrics + self.behind

    def blocks(self, resampling: Resampling) -> MetricRequest | None:
        """The additional state that sampling intervals need, such as ``score.blocks``; None if they need none."""
        spec = self.family.blocks(self, resampling) if resampling.level is not None and self.computed else None
        return None if spec is None else replace(self, spec=spec, metrics=(), behind=(), of_blocks=True)

    def remade(self, spec: Any, metrics: tuple[Any, ...]) -> MetricRequest:
        """The same request with another state."""
        return replace(self, spec=spec, metrics=metrics)


class Counted(NamedTuple):
    """Rows that metrics were computed from, and rows left out.

    Attributes
    ----------
    rows, positives : counts; `positives` is None if the metrics ignore labels
    dropped : (reason, rows) left out
    """

    rows: int
    positives: int | None
    dropped: tuple[tuple[str, int], ...] = ()


class Family(Protocol):
    """One kind of input.

    Attributes
    ----------
    name : name of the family
    column : the option that names its columns
    sharded : whether its states are finalized shard by shard
    own_blocks : whether its intervals need a state of blocks; stores then keep it
    sweep_metrics : what to count in the sweep over all slices, for `Scalar.cut_share`; empty without clusters
    replicated_by : family whose replicates for the same column serve its metrics; empty if it has its own
    """

    name: str
    column: str
    sharded: bool
    own_blocks: bool
    sweep_metrics: ClassVar[tuple[Metric, ...]]
    replicated_by: ClassVar[str]

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The states that a request needs, with their metrics."""

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """The rows that the metrics of a state cover."""

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Raise `DataError` if a state cannot be evaluated; `where` names its weights."""

    def matched(self, metrics: Sequence[Metric]) -> bool:
        """Whether the metrics need the best matching of a table."""

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """The replacement of the state if replicates are needed; one sweep may give both values and replicates."""

    def several(self, engine: Engine, wanted: MetricRequest, grouped: Any, groups: Sequence[Any]) -> list[Any]:
        """Some slices of a sliced state, as states that `finalize` takes; one sweep may compute what they need."""

    def unlike(self, value: Scalar) -> str:
        """The reason why a slice may differ from other rows merely because of its size; empty if there is none."""

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """The results of several states."""

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """The spec of a state to fold for sampling intervals; None if none is needed."""

    def certificates(
        self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> tuple[Metric, ...]:
        """Further metrics of a state that its intervals need, given its blocks (None if it has none)."""

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The source of the replicates for intervals, from a state and its blocks; or the reason why there is none."""

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """The source of the replicates for differences between columns; None if it is that of the intervals."""

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """The results of the states without a block (`Resampled.without`), each built on demand in this process."""


@dataclass(frozen=True)
class KeyTypes:
    """The key types of columns: the narrowest types that hold all of their values."""

    found: Scan

    def score(self, column: str) -> str:
        """Key type of a score column."""
        return self._typed(score_type, column)

    def id(self, column: str) -> str:
        """Key type of an id column."""
        return self._typed(id_type, column)

    def _typed(self, kind: Callable[..., str], column: str) -> str:
        try:
            return kind(self.found.schema.field(column).type, column)
        except SchemaError as error:
            msg = f"{self.found.pieces[0].name}: {error}"
            raise SchemaError(msg) from None


NO_BLOCKS = "its states keep no blocks to leave out"
_REPLICATES = 16  # replicates finalized per task


@dataclass(frozen=True)
class Sharded:
    """Defaults for families whose states are finalized shard by shard."""

    sharded = True
    own_blocks = False
    replicated_by: ClassVar[str] = ""
    sweep_metrics: ClassVar[tuple[Metric, ...]] = ()

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """No check."""

    def matched(self, metrics: Sequence[Metric]) -> bool:
        """False: there is no table."""
        return False

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """The state itself."""
        return state

    def several(self, engine: Engine, wanted: MetricRequest, grouped: Any, groups: Sequence[Any]) -> list[Any]:
        """The state of each slice."""
        found: list[Any] = grouped.several(groups, engine.budget, engine.each)
        return found

    def unlike(self, value: Scalar) -> str:
        """Empty: such values do not depend on the number of rows."""
        return ""

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """Finalize all shards of all states in parallel; metrics that need several passes are finalized in rounds."""
        values = in_rounds(engine.finalize, jobs)
        return [
            [scalar(metric, value) for metric, value in zip(metrics, row, strict=True)]
            for (_, metrics), row in zip(jobs, values, strict=True)
        ]

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """None: no blocks are needed."""
        return None

    def certificates(
        self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> tuple[Metric, ...]:
        """No further metrics."""
        return ()

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The reason why there are no replicates."""
        return NO_BLOCKS

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """None: intervals and differences use the same replicates."""
        return None

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """Finalize replicates in parallel, several per task, because one takes about as long as scheduling a task."""
        several = [jobs[i : i + _REPLICATES] for i in range(0, len(jobs), _REPLICATES)]
        return [row for rows in engine.each(_computed, several, "replicates") for row in rows]


def _computed(jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
    rows = []
    for make in jobs:
        state, metrics = make()
        values = zip(metrics, computed(state, metrics), strict=True)
        rows.append([scalar(metric, value) for metric, value in values])
    return rows


def scalar(metric: Metric, value: Any) -> Scalar:
    """Wrap a value as a `Scalar`; a user-defined metric may return a plain number."""
    return value if isinstance(value, Scalar) else Scalar.certain(metric.name, float(value))


def totals(state: Any) -> tuple[int, int]:
    """Rows of a state, and the positives among them."""
    total = state.totals()
    return total.rows, total.pos
