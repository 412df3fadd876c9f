"""Sketches: quantiles and cumulative distribution of any column of numbers, out of core."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.engine import start
from streameval.engine.fold import Plan
from streameval.errors import SchemaError
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.scan import Scan

__all__ = ["quantile_sketch"]


def quantile_sketch(
    data: Any,
    column: str,
    *,
    compression: int = 1000,
    delta_version: int | None = None,
    threads: int | None = None,
    client: Any = None,
    scheduler_timeout: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> QuantileSketch:
    """The sketch of a column of numbers of any size, in one pass and about 44·compression bytes.

    The tasks depend on the data only, so that any number of threads or workers gives the same sketch.

    Parameters
    ----------
    data : see `streameval.evaluate`
    column : a column of integers, floats or decimals; NaN, nulls and infinities are counted apart
    compression : see `QuantileSketch`; sketches merge if they have the same
    delta_version : version of the Delta tables among the data, by default the current one
    threads, client, scheduler_timeout : where to run, see `streameval.evaluate`
    progress : called with (rows folded, rows in all); the latter is −1 if unknown

    Returns
    -------
    QuantileSketch
        It estimates; frequent values apart, its error is measured and not guaranteed
        (`streameval.states.scores.quantile_sketch`).

    Raises
    ------
    StreamevalError
        If the data cannot be read or the column does not hold numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import numpy as np
    >>> values = np.random.default_rng(0).lognormal(size=100_000)
    >>> found = quantile_sketch(pa.table({"seconds": values}), "seconds")
    >>> [round(float((values < x).mean()), 3) for x in found.quantile([0.01, 0.5, 0.999])]
    [0.01, 0.5, 0.999]
    >>> round(found.cdf(2.0), 3), round(float((values < 2.0).mean()), 3)
    (0.756, 0.756)

    A digest made elsewhere, such as a `tdigest.TDigest`, can be merged in:

    >>> from tdigest import TDigest
    >>> theirs = TDigest()
    >>> theirs.update(2.0, 10)
    >>> found.merge(theirs).count
    100010.0
    """
    engine = start(threads=threads, client=client, progress=progress, scheduler_timeout=scheduler_timeout)
    found = scan.plan(data, [column], threads=engine.threads, compute=engine.compute, delta_version=delta_version)
    spec = QuantileSpec(column, _kind(found, column), compression)
    try:
        folded = engine.read(found.pieces, found.rows, Plan(found.schema, None, None, (spec,)))
    except BaseException:
        engine.progress.cancel()
        raise
    state: QuantileSketch = folded.states[spec]
    return replace(state, spec=QuantileSpec(compression=compression))  # mergeable with that of any other column


def _kind(found: Scan, column: str) -> str:
    """How the column's numbers are read."""
    kind = found.schema.field(column).type
    try:
        return score_type(kind, column)
    except SchemaError:
        allowed = "a sketch takes floats, integers or decimals of at most 18 digits: cast it"
        msg = f"{found.pieces[0].name}: column {column!r} has type {kind}; {allowed}"
        raise SchemaError(msg) from None
