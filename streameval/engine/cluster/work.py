"""Work: what runs on workers. Plain functions of plain values; each gives the same for the same.

States that a task makes are in a budget of the worker's process, made there from the worker's memory. What a task gives
back is Dask's, to hold, send and spill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from streameval.budget import Budget
from streameval.engine import fold as folding
from streameval.engine.fold import Folded, Plan
from streameval.errors import MissingInputError
from streameval.metrics.finalize import partials
from streameval.scan import LazySource, read
from streameval.states.keyed.ranges import joined, outline_only, ranged, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.scan import Piece
    from streameval.states.keyed.layout import Interval
    from streameval.states.keyed.ranges import Rows

    Spread = tuple[Folded, dict[Any, Rows]]
    Range = Mapping[Any, Rows]

__all__ = ["Resources", "finalize", "fold", "join", "merge", "outline", "probe", "release", "split", "whole"]


@dataclass(frozen=True)
class Resources:
    """What a worker gives to the states that its tasks make.

    Attributes
    ----------
    limit : bytes
    spill : directory of what exceeds them; by default the worker's own
    capacity : rows a builder collects at a time
    """

    limit: int
    spill: str | None
    capacity: int

    @property
    def budget(self) -> Budget:
        """The budget of this process."""
        return _budget(self.limit, self.spill)


@lru_cache(maxsize=1)
def _budget(limit: int, spill: str | None) -> Budget:
    return Budget(limit, spill)


def release() -> None:
    """Let go of this process's budget: what it owns lives on with the states."""
    _budget.cache_clear()


def probe(piece: Piece, plan: Plan) -> None:
    """Open a piece; the error names the worker that cannot."""
    try:
        next(iter(read(piece, plan.schema, 1)), None)
    except MissingInputError as error:
        raise _here(error) from None


def _here(error: MissingInputError) -> MissingInputError:
    """The error with the worker's address."""
    from distributed import get_worker

    where = get_worker().address
    return MissingInputError(f"{error} (on worker {where}; every worker must see the data under the same name)")


def fold(pieces: Sequence[Piece], plan: Plan, resources: Resources, *computed: Any) -> Spread:
    """Fold the pieces of one task: the outline of its states, and their rows beside it.

    `computed` are the partitions that Dask had still to compute, in the order of their pieces.
    """
    parts = iter(computed)
    pieces = [
        replace(piece, source=LazySource(next(parts), piece.name, computed=True))
        if isinstance(piece.source, LazySource)
        else piece
        for piece in pieces
    ]
    try:
        folded = folding.fold(pieces, plan, resources.budget, resources.capacity, lambda _: None)
    except MissingInputError as error:
        raise _here(error) from None
    rows = {spec: found for spec, state in folded.states.items() if (found := state.runs())}
    return Folded({spec: outline_only(state) for spec, state in folded.states.items()}, folded.skipped), rows


def whole(function: Callable[[Any], Any], item: Any) -> Any:
    """Call a function that reads files; the error names the worker that cannot see them."""
    try:
        return function(item)
    except MissingInputError as error:
        raise _here(error) from None


def outline(spread: Spread) -> Folded:
    """What a task folded, without the rows."""
    return spread[0]


def merge(parts: Sequence[Folded]) -> Folded:
    """Outlines of several tasks as one."""
    return folding.merge(parts)


@dataclass(frozen=True)
class Part:
    """One range of what lies here already: Dask, which asks for sizes, counts those rows once.

    Sent elsewhere it is the rows themselves.
    """

    rows: Range

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.rows,)


def _rows(part: Part | Range) -> Range:
    return part.rows if isinstance(part, Part) else part


def split(folded: Spread | Range, intervals: Mapping[Any, Interval]) -> Part:
    """One range of what a task folded, or of a coarser range; nothing is copied."""
    rows = folded[1] if isinstance(folded, tuple) else folded
    return Part({spec: ranged(rows[spec], interval) for spec, interval in intervals.items()})


def join(parts: Sequence[Part | Range]) -> Range:
    """One range of several tasks."""
    rows = [_rows(part) for part in parts]
    return {spec: joined([part[spec] for part in rows]) for spec in rows[0]}


def finalize(
    ranges: Mapping[Any, Rows],
    outlines: Folded,
    wanted: Sequence[tuple[Any, Sequence[Interval], Sequence[Metric]]],
    resources: Resources,
) -> list[list[list[list[Any]]]]:
    """Partials of the shards of one range, for several states."""
    found = []
    for spec, shards, metrics in wanted:
        state = restored(outlines.states[spec], ranges[spec])
        found.append([partials(state, shard, metrics, resources.budget) for shard in shards])
    return found
