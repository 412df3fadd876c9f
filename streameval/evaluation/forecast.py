"""Forecast what a run will read, hold in memory and do.

Rows and bytes come from the footers, or are estimated if the footers of small objects are not read. The sizes of states
are computed from the rows: for a keyed state the forecast is an upper bound, because repeated keys are stored once;
other states have a fixed size, or a size that does not grow with the rows.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streameval.engine.fold import batch_rows, builder_bytes, row_width
from streameval.saving import AsJson
from streameval.states.keyed.counts import SLAB
from streameval.states.keyed.ranges import row_bytes
from streameval.wording import plural, size, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.engine.fold import Plan
    from streameval.evaluation.family import MetricRequest
    from streameval.scan import Piece, Pruned, Scan

_SORT = 32  # bytes for an item of a shard that is gathered and sorted


@dataclass(frozen=True)
class StateForecast:
    """One state of a run.

    Attributes
    ----------
    kind, of : kind of the state, and its column
    bytes : upper bound; −1 if the number of rows is unknown
    shards : number of parts that are finalized independently
    """

    kind: str
    of: str
    bytes: int
    shards: int


@dataclass(frozen=True)
class Forecast(AsJson):
    """What a run will do.

    Attributes
    ----------
    where : where its tasks run, in words
    rows : rows to read; −1 if unknown before reading
    estimated : whether rows and bytes are estimated from the sizes of objects
    partitions : number of files, slices or partitions to read
    bytes : bytes to read, for the requested columns
    columns : tuple of (name, type)
    states : tuple of StateForecast
    ranges : ranges that states are split into
    tasks : number of tasks by name
    memory : bytes that a task needs, by name
    filtered : what remains to be read after filtering, in words; empty without a filter
    skipped : tuple of (file, reason), files that would be left out
    """

    where: str
    rows: int
    estimated: bool
    partitions: int
    bytes: int
    columns: tuple[tuple[str, str], ...]
    states: tuple[StateForecast, ...]
    ranges: int
    tasks: dict[str, int]
    memory: dict[str, int]
    filtered: str = ""
    skipped: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        rows = plural(self.rows, "row") if self.rows >= 0 else "an unknown number of rows"
        about = "about " if self.estimated else ""
        reads = ", ".join(f"{name} ({kind})" for name, kind in self.columns)
        lines = [
            f"{about}{rows} in {plural(self.partitions, 'partition')}; reads {about}{size(self.bytes)}: {reads}",
            *([f"where  {self.filtered}"] if self.filtered else []),
            *(f"skips  {visible(name)}: {reason}" for name, reason in self.skipped),
            *(f"state  {s.kind} of {s.of}: at most {size(s.bytes)}, {plural(s.shards, 'shard')}" for s in self.states),
            *(
                f"tasks  {count:,} {name}" + (f", {size(self.memory[name])} each" if name in self.memory else "")
                for name, count in self.tasks.items()
            ),
            f"on     {self.where}" + (f", states in {self.ranges:,} ranges" if self.ranges > 1 else ""),
        ]
        return "\n".join(map(visible, lines))


def forecast(
    engine: Engine,
    found: Scan,
    plan: Plan,
    wanted: Sequence[MetricRequest],
    blocks: Sequence[MetricRequest] = (),
    pruned: Pruned | None = None,
) -> Forecast:
    """Forecast what a run of this plan will do.

    Parameters
    ----------
    engine : the engine of the run
    found : the data
    plan : the states to fold
    wanted : states and metrics
    blocks : states of blocks, for sampling intervals
    pruned : the files and row groups that a filter leaves to read
    """
    work = engine.assigned(found.pieces, found.rows, plan)
    states = tuple(_state(w, found.rows) for w in (*wanted, *blocks))
    keyed_bytes = sum(state.bytes for state in states if state.shards)
    shards = sum(state.shards for state, w in zip(states, wanted, strict=False) if w.family.sharded)
    tables = [w.family.matched(w.metrics) for w in wanted if not w.family.sharded]
    ranges, tasks = engine.expected(len(work), shards, max(keyed_bytes, 0), tables)
    return Forecast(
        engine.where,
        found.rows,
        found.estimated,
        len({piece.name for piece in found.pieces}),
        found.nbytes,
        tuple((field.name, str(field.type)) for field in found.schema),
        states,
        ranges,
        tasks,
        {"fold": _fold_bytes(engine, found, plan, work, states), "finalize": SLAB * _SORT},
        "" if pruned is None else str(pruned),
        found.skipped,
    )


def _state(wanted: MetricRequest, rows: int) -> StateForecast:
    """The forecast for a state with this number of rows."""
    state = wanted.spec.empty()
    row = row_bytes(state)
    if not row:
        size = wanted.spec.largest or sys.getsizeof(state)
        return StateForecast(wanted.spec.kind, wanted.of, size, 0)
    return StateForecast(wanted.spec.kind, wanted.of, row * rows if rows >= 0 else -1, max(1, -(-rows // SLAB)))


def _fold_bytes(
    engine: Engine,
    found: Scan,
    plan: Plan,
    work: Sequence[Sequence[Piece]],
    states: Sequence[StateForecast],
) -> int:
    """Bytes that a fold task needs: a row group as read, two batches, its builders, and its states within limits."""
    rows = max(max(sum(piece.rows for piece in task), 0) for task in work)
    kept = sum(state.bytes * rows // max(found.rows, 1) if state.shards else state.bytes for state in states)
    group = max(piece.nbytes // max(1, piece.rows // SLAB) for task in work for piece in task)
    batch = row_width(found.schema) * batch_rows(found.schema, engine.capacity(plan), engine.budget)
    builders = engine.capacity(plan) * builder_bytes(plan.specs)
    return int(group + 2 * batch + builders + min(max(kept, 0), engine.limit))
