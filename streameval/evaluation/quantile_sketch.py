"""Quantile sketches of columns of numbers: quantiles and cumulative distributions, out of core.

Each sketch takes one pass over the data and a fixed amount of memory (`streameval.states.scores.quantile_sketch`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from streameval import scan
from streameval.engine import start
from streameval.engine.fold import Plan
from streameval.errors import LabelError, SchemaError
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.files import Files, Forecast
from streameval.evaluation.protocol import MetricRequest
from streameval.options import COLUMN
from streameval.scan.widen import plain
from streameval.states.labels import LabelSpec
from streameval.states.scores.quantile_sketch import ClassQuantileSpec, QuantileSketch, QuantileSpec
from streameval.states.scores.types import score_type
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@explains_arguments
def quantile_sketch(
    data: object,
    column: str,
    *,
    compression: int = 1000,
    delta_version: int | None = None,
    snapshot: int | None = None,
    threads: int | None = None,
    client: object = None,
    scheduler_timeout: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> QuantileSketch:
    """Sketch the distribution of a column of numbers, in one pass and about 44·compression bytes.

    Tasks depend on the data only, so that the sketch is the same for any number of threads or workers.

    Parameters
    ----------
    data : see `streameval.evaluate`
    column : a column of integers, floats or decimals; NaN, nulls and infinities are counted separately
    compression : see `QuantileSketch`; sketches can be merged if their compression is equal
    delta_version : version of the Delta tables among the data, by default the current one
    snapshot : id of the snapshot of the Iceberg tables among the data, by default the current one
    threads, client, scheduler_timeout : where to run, see `streameval.evaluate`
    progress : called with (rows folded, total rows); the latter is −1 if unknown

    Returns
    -------
    QuantileSketch
        Quantiles are estimates. Frequent values are exact; for others the error has been measured, but is not
        guaranteed (`streameval.states.scores.quantile_sketch`).

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
    [sketch] = _fold(_plan(**locals()))
    return sketch


def sketches_by_label(
    data: object,
    column: str,
    label: str = "label",
    pos_label: bool | float | str | bytes | None = None,
    **options: Any,
) -> dict[str, QuantileSketch]:
    """Sketch the negatives and the positives in one pass; rows without a label are left out.

    Parameters
    ----------
    data, column : see `quantile_sketch`
    label, pos_label : see `streameval.evaluate`
    options : the others of `quantile_sketch`

    Raises
    ------
    StreamevalError
        As `quantile_sketch`; a `LabelError` if the labels are not two classes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.2, 0.8]})
    >>> {name: found.quantile(1.0) for name, found in sketches_by_label(data, "score").items()}
    {'negative': 0.2, 'positive': 0.8}
    """
    negative, positive = _fold(_plan(data, column, LabelSpec(label, pos_label, "drop"), **options))
    return {"negative": negative, "positive": positive}


def forecasts(data: object, columns: Sequence[str], label: LabelSpec | None = None, **options: Any) -> list[Forecast]:
    """Forecast the passes of `quantile_sketch` for several columns: one for each, and one more by label.

    Parameters
    ----------
    data, options : see `quantile_sketch`
    columns : columns of numbers
    label : how labels are read, for sketches by label; otherwise None

    Raises
    ------
    StreamevalError
        What `quantile_sketch` raises before it reads the data.
    """
    passes = [(column, one) for column in columns for one in ([None, label] if label else [None])]
    return [_plan(data, column, one, **options).forecast() for column, one in passes]


def _plan(
    data: object,
    column: str,
    label: LabelSpec | None = None,
    *,
    compression: int = 1000,
    delta_version: int | None = None,
    snapshot: int | None = None,
    **run: Any,
) -> Files:
    """The data of one pass on a new engine, with the states to fold; `run` says where to run."""
    named = {"column": column, "label": label and label.column}
    for name, given in named.items():
        COLUMN.check(name, given)
    engine = start(**run)
    columns = list(dict.fromkeys(name for name in named.values() if name))
    threads = engine.budget.threads
    scanned = scan.plan(data, columns, threads=threads, delta_version=delta_version, snapshot=snapshot)
    kind = scanned.schema.field(column).type
    try:
        facts = column, score_type(kind, column), compression
    except SchemaError:
        allowed = "a sketch takes floats, integers or decimals of at most 18 digits: cast it"
        raise SchemaError(f"{scanned.pieces[0].name}: column {column!r} has type {plain(kind)}; {allowed}") from None
    specs = [ClassQuantileSpec(*facts, positive) for positive in (False, True)] if label else [QuantileSpec(*facts)]
    requests = [MetricRequest(FAMILIES["sketch"], column, spec, ()) for spec in specs]
    return Files(engine, scanned, Plan(scanned.schema, label, None, ())).folding(requests)


def _fold(files: Files) -> list[QuantileSketch]:
    """The sketches of all rows, or of the negatives and of the positives if labels are read."""
    scan.tell(files.scan.skipped)
    with files.engine.progress:
        folded = files.fold()
    label = files.plan.label
    if label is not None:
        name, labels = files.names[0], folded.labels(label)
        try:
            labels.check()
        except LabelError as error:
            raise LabelError(f"{name}: {error}") from None
        if label.pos_label is not None and not labels.pos:
            raise LabelError(f"{name}: no row of column {label.column!r} has the label {label.pos_label!r}")
    sketches = [cast("QuantileSketch", folded.states[request.spec]) for request in files.requests]
    # without the column, so that they merge with sketches of any
    return [replace(one, spec=QuantileSpec(compression=one.spec.compression)) for one in sketches]
