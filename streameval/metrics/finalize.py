"""Finalize: states → results, shard by shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.metrics.scores.undefined import HALF
from streameval.results import Scalar
from streameval.states.scores.missing import halved_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.budget import Budget
    from streameval.metrics.protocol import Metric

__all__ = ["combine", "compute", "partials"]


def partials(
    state: Any, shard: tuple[int, int], metrics: Sequence[Metric], budget: Budget | None = None
) -> list[list[Any]]:
    """Partials of one shard: for each of its parts a list with one partial for each metric; equal bases run once."""
    rows = []
    for part in state.parts(shard, budget):
        bases = [m.basis(part) if hasattr(m, "basis") else m for m in metrics]
        found = {basis: basis.partial(part) for basis in dict.fromkeys(bases)}
        rows.append([found[basis] for basis in bases])
    return rows


def combine(state: Any, metrics: Sequence[Metric], shards: Iterable[list[list[Any]]]) -> list[Scalar]:
    """Results from the partials of all shards, one for each metric.

    A metric that does not count NaN scores is undefined where the state has NaN scores that count one half.
    """
    rows, halves = [row for shard in shards for row in shard], halved_rows(state) > 0
    return [
        Scalar.undefined(metric.name, HALF)
        if halves and not getattr(metric, "counts_nan", False)
        else metric.combine([row[i] for row in rows], state)
        for i, metric in enumerate(metrics)
    ]


def compute(state: Any, metric: Metric) -> Any:
    """One metric of a state in memory."""
    return combine(state, [metric], [partials(state, shard, [metric]) for shard in state.shards()])[0]
