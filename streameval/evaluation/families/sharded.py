"""The common base of families, with the defaults of the protocol: sharded states without blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from streameval.metrics.finalize import computed, in_rounds
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine import Engine
    from streameval.engine.protocol import Job
    from streameval.evaluation.families.protocol import MetricRequest
    from streameval.evaluation.resampling import Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampled import Resampled

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
