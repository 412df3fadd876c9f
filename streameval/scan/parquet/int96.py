"""INT96 timestamps, as Spark, Hive and Impala write them: a day, and nanoseconds of the day.

Arrow reads them in one unit for all columns of a file, and a value outside of the unit's range wraps: in nanoseconds,
the year 9999 becomes 1816. Microseconds hold the years −290,000 to 294,000 but lose digits that Hive and Impala write.
Every value is therefore read in three units. Milliseconds hold every INT96; a finer unit is in its range if it
rounds down to them. Microseconds lose nothing if 1,000 times them are the nanoseconds, wrapped or not. A batch is in
microseconds if these hold it, else in nanoseconds; if neither does, it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.scan.fields import column_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from streameval.typing import Array


class Int96Error(Exception):
    """Timestamps of a column that no unit of Arrow holds."""


def int96_columns(footer: Any, columns: Collection[str]) -> list[str]:
    """The columns among these, with dots for fields of structs, that are stored as INT96."""
    leaves = map(footer.schema.column, range(footer.num_columns))
    return [leaf.path for leaf in leaves if leaf.physical_type == "INT96" and leaf.path in columns]


def exact_batches(
    micros: Iterator[pa.RecordBatch],
    nanos: Iterator[pa.RecordBatch],
    millis: Iterator[pa.RecordBatch],
    columns: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Batches read in microseconds, with some columns in the unit that holds their values.

    Parameters
    ----------
    micros : batches with these and other columns
    nanos, millis : the same rows with at least these columns, in batches of any size
    columns : the columns; a field of a struct becomes a column as well, with dots in its name

    Raises
    ------
    Int96Error
        If no unit holds the values of a batch.
    """
    others = [_Rows(nanos), _Rows(millis)]
    for batch in micros:
        if not batch.num_rows:
            continue
        fine, coarse = (rows.take(batch.num_rows) for rows in others)
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in columns:
            arrays[name] = _exact(name, *(column_of(data, name) for data in (batch, fine, coarse)))
        yield pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


class _Rows:
    """Rows of batches, to be taken in any number."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []

    def take(self, count: int) -> pa.Table:
        """The next rows; at least one."""
        while sum(batch.num_rows for batch in self._held) < count:
            batch = next(self._batches, None)
            if batch is None:
                msg = "its INT96 timestamps have fewer rows than its other columns"
                raise OSError(msg)
            self._held.append(batch)
        table = pa.Table.from_batches(self._held)
        self._held = table.slice(count).to_batches()
        return table.slice(0, count)


def _exact(column: str, micros: pa.Array, nanos: pa.ChunkedArray, millis: pa.ChunkedArray) -> pa.Array:
    """The values in microseconds, or in nanoseconds; raises `Int96Error` if neither holds all."""
    us, ns, ms = map(_numbers, (micros, nanos, millis))
    with np.errstate(over="ignore"):
        same = us * 1000 == ns
    if same.all() and (us // 10**3 == ms).all():
        return micros
    if (ns // 10**6 == ms).all():
        return pa.concat_arrays(nanos.chunks)
    msg = (
        f"column {column!r} has INT96 timestamps that no unit holds: nanoseconds end in the year 2262, microseconds in "
        "294247; write it as a timestamp in microseconds"
    )
    raise Int96Error(msg)


def _numbers(array: pa.Array | pa.ChunkedArray) -> Array:
    """Timestamps as int64, with 0 for null."""
    numbers: Array = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    return numbers
