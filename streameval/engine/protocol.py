"""What an engine does: read the data once, then finalize the states.

Two implementations: `streameval.engine.threads` runs tasks on threads of this process, `streameval.engine.cluster` on
the workers of a Dask client. Whoever holds an engine need not know which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.budget import Budget
    from streameval.engine.fold import Folded, Plan
    from streameval.engine.graph import Progress
    from streameval.metrics.protocol import Metric
    from streameval.scan import Piece
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary

__all__ = ["Engine", "Job"]

Job = tuple[Any, "Sequence[Metric]"]  # a state and the metrics to compute of it


class Engine(Protocol):
    """Runs the steps of one evaluation."""

    @property
    def where(self) -> str:
        """Where tasks run, in words."""

    @property
    def threads(self) -> int:
        """Threads of this process, which plans."""

    @property
    def limit(self) -> int:
        """Bytes that states may take, here or on each worker."""

    @property
    def budget(self) -> Budget:
        """Owns the states of this process."""

    @property
    def progress(self) -> Progress:
        """Counts rows, and ends the tasks of a cancelled run."""

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """One pass over `rows` rows (−1 if unknown): every state of the plan."""

    def assigned(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> list[tuple[Piece, ...]]:
        """The pieces of each fold task of such a pass."""

    def capacity(self, plan: Plan) -> int:
        """Rows that a builder collects at a time."""

    def each(self, function: Callable[[Any], Any], items: Sequence[Any], name: str) -> list[Any]:
        """Map a function over items on threads of this process; `name` labels the tasks."""

    def compute(self, delayed: Any) -> Any:
        """The value of a Dask object."""

    def finalize(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The values of each job's metrics; the shards of all states are finalized side by side."""

    def summary(self, state: ContingencyCounts, assignment_cells: int | None) -> Summary:
        """The summary of a contingency table, with its best matching where a limit to its components is given."""

    def expected(self, folds: int, shards: int, nbytes: int, tables: Sequence[bool]) -> tuple[int, dict[str, int]]:
        """Ranges of states, and tasks by name, of a run.

        Parameters
        ----------
        folds : fold tasks
        shards : shards of the states that are finalized shard by shard
        nbytes : bytes of all keyed states
        tables : for each contingency table whether its best matching is wanted
        """
