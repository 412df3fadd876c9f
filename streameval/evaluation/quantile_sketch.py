"""Sketches: quantiles and cumulative distribution of any column of numbers, out of core."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval import scan
from streameval.budget import Budget
from streameval.engine.fold import TASKS, task_threads, tasks
from streameval.engine.graph import Progress, thread_count, tree
from streameval.errors import SchemaError
from streameval.states.protocol import Batch
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.scan import Piece, Scan

__all__ = ["quantile_sketch"]


def quantile_sketch(
    data: Any,
    column: str,
    *,
    compression: int = 1000,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> QuantileSketch:
    """The sketch of a column of numbers of any size, in one pass and about 42·compression bytes.

    The tasks depend on the data only, so that any machine and any number of threads give the same sketch.

    Parameters
    ----------
    data : see `streameval.evaluate`
    column : a column of integers, floats or decimals; NaN, nulls and infinities are counted apart
    compression : see `QuantileSketch`; sketches merge if they have the same
    threads : by default as many as processors
    progress : called with (rows folded, rows in all); the latter is −1 if unknown

    Returns
    -------
    QuantileSketch
        It estimates: its error is measured (`streameval.states.scores.quantile_sketch`), not guaranteed.

    Raises
    ------
    StreamevalError
        If the data cannot be read or the column is not one of numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> values = np.random.default_rng(0).lognormal(size=100_000)
    >>> found = quantile_sketch(pa.table({"seconds": values}), "seconds")
    >>> [round(float((values < x).mean()), 3) for x in found.quantile([0.01, 0.5, 0.999])]
    [0.01, 0.5, 0.999]
    >>> round(found.cdf(2.0), 3), round(float((values < 2.0).mean()), 3)
    (0.756, 0.756)

    A digest that was kept, of `tdigest.TDigest` or from last night, is merged in:

    >>> found.merge(QuantileSketch.from_dict({"centroids": [{"m": 2.0, "c": 10.0}]})).count
    100010.0
    """
    workers = thread_count(threads)
    found = scan.plan(data, [column], threads=workers)
    spec = QuantileSpec(column, _kind(found, column), compression)
    done = 0

    def report(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, found.rows)

    counted = Progress(report)

    def one(pieces: tuple[Piece, ...]) -> QuantileSketch:
        builder = spec.builder(Budget(), 1)
        for piece in pieces:
            for batch in scan.read(piece, found.schema):
                builder.update(Batch(np.empty(0, np.uint8), None, {column: batch.column(column)}, name=piece.name))
                counted(batch.num_rows)
        return builder.state()

    work = tasks(found.pieces, found.rows, TASKS * task_threads(found.rows), by_file=False)
    try:
        state = tree(one, work, _merged, "sketch", workers) if work else spec.empty()
    except BaseException:
        counted.cancel()
        raise
    return replace(state, spec=QuantileSpec(compression=compression))  # where the numbers came from matters no more


def _kind(found: Scan, column: str) -> str:
    """How the column's numbers are read."""
    kind = found.schema.field(column).type
    try:
        return score_type(kind, column)
    except SchemaError:
        name, allowed = (
            found.pieces[0].name,
            "a sketch is of floats, integers or decimals of at most 18 digits: cast it",
        )
        msg = f"{name}: column {column!r} has type {kind}; {allowed}"
        raise SchemaError(msg) from None


def _merged(parts: Sequence[QuantileSketch]) -> QuantileSketch:
    return reduce(QuantileSketch.merge, parts)
