"""Lazy: inputs that Dask has yet to compute, partition by partition.

Such an input is a `dask.dataframe` from any source, or a list of `delayed` Arrow tables. Each partition is one piece.
On threads, the task that folds a partition also computes it; on a cluster, a separate task computes it first. The
client never holds a partition. The types of a frame are known from its plan. Delayed tables are assumed to have the
types of the first one, which is computed an additional time to find them.

Dask is never imported here: a caller that passes such an input has imported it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import CorruptFileError, SchemaError, StreamevalError
from streameval.scan.columns import Holding, find
from streameval.scan.faults import reason
from streameval.scan.in_memory import as_table, from_frame, names_of
from streameval.scan.pieces import Piece, TableSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class LazySource:
    """A partition: the Dask object that computes it, or the computed data.

    It is pickled without its graph, because on a cluster another task computes the partition and passes it on.
    """

    data: Any
    name: str
    computed: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return LazySource, (self.data if self.computed else None, self.name, self.computed)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows; raises `CorruptFileError` if computing them fails."""
        data = self.data
        if not self.computed:
            try:
                data = data.compute(scheduler="synchronous")
            except StreamevalError:
                raise
            except Exception as error:
                raise uncomputable(self.name, error) from error
        table = as_table(data) if isinstance(data, pa.Table | pa.RecordBatch) else from_frame(data, columns)
        yield from TableSource(table).batches(columns, batch_rows)


def uncomputable(name: str, error: BaseException) -> CorruptFileError:
    """The exception for a partition whose computation failed."""
    return CorruptFileError(f"{name}: cannot be computed: {type(error).__name__}: {reason(error)}")


def is_frame(data: object) -> bool:
    """Whether `data` is a Dask frame, without importing Dask."""
    loaded = sys.modules.get("dask.dataframe")
    return loaded is not None and isinstance(data, loaded.DataFrame)


def are_delayed(data: object) -> bool:
    """Whether `data` is a list of delayed tables, without importing Dask."""
    loaded = sys.modules.get("dask.delayed")
    return (
        loaded is not None
        and isinstance(data, list | tuple)
        and bool(data)
        and all(isinstance(item, loaded.Delayed) for item in data)
    )


def holdings(data: Any, columns: Sequence[str], compute: Callable[[Any], Any] | None = None) -> Iterator[Holding]:
    """The holding of each partition.

    Parameters
    ----------
    data : dask.dataframe.DataFrame, or list of dask.delayed.Delayed
    columns : the requested columns
    compute : computes a delayed value; by default in this thread
    """
    if is_frame(data):
        what, names = "the Dask DataFrame", names_of(data.columns)
        kinds = find(_frame_schema(data, columns), columns, what, also=[*names])
        parts = data[[names[column] for column in columns]].to_delayed()
    else:
        what, parts = "the delayed tables", list(data)
        kinds = find(_first_schema(parts[0], compute), columns, what)
    for i, part in enumerate(parts):
        name = f"partition {i} of {what}"
        yield Holding(name, kinds, (Piece("", name, 0, -1, 0, name, source=LazySource(part, name)),))


def _first_schema(part: Any, compute: Callable[[Any], Any] | None) -> pa.Schema:
    """The schema of a delayed table, which is computed; raises `SchemaError` if it is not a table."""
    schema = part.schema  # delayed as well
    try:
        return compute(schema) if compute else schema.compute(scheduler="synchronous")
    except AttributeError as error:
        raise SchemaError(f"the delayed tables: {reason(error)}; each must compute to a pyarrow.Table") from error


def _frame_schema(frame: Any, columns: Sequence[str]) -> pa.Schema:
    """Types of columns of a Dask frame according to its plan; object columns are assumed to hold strings."""
    from pandas import Series

    kinds = {}
    for name, column in names_of(frame.columns).items():
        if name not in columns:
            continue
        dtype = frame.dtypes[column]
        dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
        kind = pa.array(Series(dtype=dtype), from_pandas=True).type
        kinds[name] = pa.large_string() if pa.types.is_null(kind) else kind
    return pa.schema(kinds)
