"""Work: the functions that run on workers.

A task may run again, on another worker, when the one that holds its result dies. Results of its first run are still in
use then: the outlines of fold tasks are merged, while their rows are lost. So a task gives the same bytes whenever and
wherever it runs: nothing that earlier tasks of its process saw enters a state, nor do load and spilling. Rows that
differ from their outline all the same end the run.

While a task runs, its states belong to a budget of the worker process. Its result belongs to Dask, which stores, sends
and spills it.

A user's own metrics are sent as bytes (`packed`), because the scheduler deserialises graphs and may not have the module
of their class. A worker that cannot import the module raises `ClusterError`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from streameval.budget import Budget
from streameval.engine import Engine
from streameval.engine import fold as folding
from streameval.engine.fold import Folded, Plan
from streameval.engine.threads import ThreadEngine
from streameval.errors import ClusterError, MissingInputError, OptionError
from streameval.metrics.finalize import partials
from streameval.metrics.protocol import Metric, user_defined
from streameval.scan import LazySource, Piece, read
from streameval.states import codec
from streameval.states.rounds import Round, Rows, join_rows, merge, outline_only, restore_state, select_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from distributed import Worker

    from streameval.states.keyed.layout import Interval
    from streameval.states.late import LateLabels
    from streameval.states.protocol import StoredSpec

    Key = StoredSpec | str  # of rows: the spec of their state, or `ROWS`
    Range = Mapping[Key, Rows]
    Spread = tuple[Folded, Range]
    T = TypeVar("T")
    R = TypeVar("R")


@dataclass(frozen=True)
class Resources:
    """Memory and spill settings for the states of a worker's tasks.

    Attributes
    ----------
    limit : bytes that states may hold in memory
    spill : directory of the spill file; None for the worker's default
    capacity : number of rows that a builder collects at a time
    threads : number of threads of a worker
    """

    limit: int
    spill: str | None
    capacity: int
    threads: int = 2

    @property
    def budget(self) -> Budget:
        """The budget that all tasks of this process share."""
        return _budget(self.limit, self.spill, self.threads)


_budget = lru_cache(maxsize=1)(Budget)


def release() -> None:
    """Forget this process's budget; states that it owns stay valid."""
    _budget.cache_clear()


def probe(piece: Piece, plan: Plan) -> None:
    """Open a piece; if it does not exist, the error names the worker."""
    try:
        next(iter(read(piece, plan.schema, 1)), None)
    except MissingInputError as error:
        raise _naming_worker(error) from None


def _naming_worker(error: MissingInputError) -> MissingInputError:
    """The error with the address of this worker."""
    from distributed import get_worker

    where = get_worker().address
    return MissingInputError(f"{error} (on worker {where}; every worker must see the data under the same name)")


def fold(pieces: Sequence[Piece], plan: Plan, resources: Resources, late: LateLabels | None, *computed: Any) -> Spread:
    """Fold the pieces of one task; returns the outlines of its states, and their rows.

    `late` are the labels of the plan, which each worker gets once. `computed` has the partitions that Dask computed for
    this task, in the order of their pieces.
    """
    parts = iter(computed)
    pieces = [
        replace(piece, source=LazySource(next(parts), piece.name, computed=True))
        if isinstance(piece.source, LazySource)
        else piece
        for piece in pieces
    ]
    try:
        folded = folding.fold(pieces, replace(plan, late=late), resources.budget, resources.capacity, lambda _: None)
    except MissingInputError as error:
        raise _naming_worker(error) from None
    rows: dict[Key, Rows] = {spec: runs for spec, state in folded.states.items() if (runs := state.runs())}
    return Folded({spec: outline_only(state) for spec, state in folded.states.items()}, folded.skipped), rows


def call(function: Callable[[T, Engine], R], item: T, run: Mapping[str, Any]) -> R:
    """Call a function with an engine of this worker; if a file does not exist, the error names the worker."""
    try:
        return function(item, ThreadEngine.start(**run))
    except MissingInputError as error:
        raise _naming_worker(error) from None


ROWS = "rows"  # key of the rows that a round hands on


def visit(
    ranges: Range, key: Key, outline: Round, interval: Interval, resources: Resources
) -> tuple[tuple[list[Any], Round | None], dict[str, Rows]]:
    """Visit the rows of a range; returns the values with the outline of what the round hands on, and the rows."""
    here = restore_state(outline, ranges[key])
    visits = [here.visit(part, resources.budget) for part in here.intervals(resources.budget, interval)]
    values = [value for value, _ in visits]
    if not outline.hands_on:
        return (values, None), {}
    handed = merge([part for _, part in visits if part is not None])
    return (values, outline_only(handed)), {ROWS: handed.runs()}


def finish(rounds: Sequence[Sequence[tuple[list[Any], Round | None]]], finish: Callable[[list[list[Any]]], T]) -> T:
    """The result of all rounds, from the values of their visits."""
    return finish([[value for values, _ in visits for value in values] for visits in rounds])


def outline(result: tuple[T, object]) -> T:
    """The outlines alone of a fold or a visit, without the rows."""
    return result[0]


@dataclass(frozen=True)
class Part:
    """A view of rows that another result on this worker holds, so that Dask counts their bytes only once.

    Pickling a part sends the rows.
    """

    rows: Range

    def __reduce__(self) -> tuple[type[dict[Key, Rows]], tuple[Range]]:
        return dict, (self.rows,)


def _rows(part: Part | Range) -> Range:
    return part.rows if isinstance(part, Part) else part


def split(folded: Spread | Range, intervals: Mapping[Key, Interval]) -> Part:
    """Extract one range from a fold task's rows, or from a coarser range, without copying."""
    rows = folded[1] if isinstance(folded, tuple) else folded
    return Part({spec: select_range(rows[spec], interval) for spec, interval in intervals.items()})


def join(parts: Sequence[Part | Range]) -> Range:
    """Join the parts of one range."""
    rows = [_rows(part) for part in parts]
    return {spec: join_rows([part[spec] for part in rows]) for spec in rows[0]}


def finalize(
    ranges: Range,
    outlines: Folded,
    wanted: Sequence[tuple[StoredSpec, Sequence[Interval], Sequence[Metric] | bytes]],
    resources: Resources,
) -> list[list[list[list[Any]]]]:
    """Partials of the shards of one range, for several states.

    Parameters
    ----------
    ranges : rows of the range, by spec
    outlines : outlines of the full states
    wanted : for each state, its spec, its shards in the range, and its metrics, which may be packed
    resources : memory and spill settings

    Returns
    -------
    For each state, the partials of each shard.
    """
    values = []
    for spec, shards, packed in wanted:
        state = restore_state(outlines.states[spec], ranges[spec])
        metrics = unpack_metrics(packed) if isinstance(packed, bytes) else packed
        values.append([partials(state, shard, metrics, resources.budget) for shard in shards])
    return values


def dump(
    ranges: Sequence[Part | Range],
    outlines: Folded,
    wanted: tuple[StoredSpec, pa.Schema],
    interval: Interval,
    run: str | None,
    resources: Resources,
) -> list[pa.RecordBatch]:
    """Stored batches of one state in some ranges.

    Parameters
    ----------
    ranges : rows of the ranges, by spec
    outlines : outlines of the full states
    wanted : the spec of the state, and the schema of the batches
    interval : the buckets of the ranges
    run : the name of the run to take; None takes the table as a whole
    resources : memory and spill settings

    Raises
    ------
    ClusterError
        If the rows are not those of the outlines.
    """
    spec, schema = wanted
    rows = join_rows([part[spec] for part in map(_rows, ranges)])
    for name, counts in outlines.states[spec].runs().items():
        rows[name].check(counts, interval)
    state = outlines.states[spec].with_runs(rows)
    parts = [state] if run is None else codec.divide_state(state)[run]
    return [batch for part in parts for batch in codec.stored_batches(part, schema, resources.budget)]


def packed(metrics: Sequence[Metric]) -> Sequence[Metric] | bytes:
    """Metrics in a form that can be sent: pickled if one of them is user-defined, otherwise unchanged.

    Classes that are defined in a script, a notebook or a function are pickled by value, others by reference to their
    module.

    Raises
    ------
    OptionError
        If a metric cannot be pickled.
    """
    if not any(user_defined(metric) for metric in metrics):
        return metrics
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(tuple(metrics))
    except Exception as error:  # whatever the user's class raises
        names = ", ".join(repr(metric.name) for metric in metrics)
        why = f"{type(error).__name__}: {error}"
        raise OptionError(
            f"metrics {names} cannot be sent to workers ({why}); let their fields be plain values, or give threads="
        ) from error
    return data


def unpack_metrics(data: bytes, worker: str | None = None) -> Sequence[Metric]:
    """The metrics that `packed` pickled; `worker` is the address of this worker, by default that of the running task.

    Raises
    ------
    ClusterError
        If their module cannot be imported here.
    """
    try:
        metrics: Sequence[Metric] = pickle.loads(data)  # noqa: S301 - bytes from the client, which may run any code here
    except (ImportError, AttributeError) as error:
        from distributed import get_worker

        what = f"module {error.name!r}" if isinstance(error, ImportError) and error.name else f"a class ({error})"
        raise ClusterError(
            f"worker {worker or get_worker().address} cannot import {what} of a user-defined metric; send its file "
            "with client.upload_file(…), or install it on every worker and the scheduler"
        ) from None
    return metrics


def missing(data: bytes, dask_worker: Worker) -> str:
    """The reason why this worker cannot unpack metrics; empty if it can."""
    try:
        unpack_metrics(data, dask_worker.address)
    except ClusterError as error:
        return str(error)
    return ""
