"""State files: one published Parquet file for each state.

Exact counts are already delta-encoded words (`streameval.states.keyed.packing`), which hardly compress further. They
are stored without a dictionary, with a codec that is fast to decode. Other tables hold counts that are mostly 0 and 1
and are dictionary-encoded. Memory: a row group of 16 MiB while writing; the file and a row group while reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streameval.errors import FormatError, SpillError
from streameval.scan import READ_ERRORS, reason, remedied
from streameval.states import codec
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.files.published import PublishedFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.protocol import State
    from streameval.store.files.location import Location
    from streameval.typing import Array

    Dumped = tuple[pa.Schema, Iterator[pa.RecordBatch]]

GROUP_BYTES = 1 << 24  # size of a row group before compression
LEAST_BYTES = 1 << 20  # of files that are read as one state: fewer are read before a thread could begin
MOST_BYTES = 64 << 20  # of files that are read as one state, because all of them are open at once
FEWEST = 4  # least number of histograms that are read as one: merging two takes as long as reading one
PARTS = 16  # number of parts that are read in parallel, within these limits
TOGETHER = 512  # most files that are read as one state, because the system limits how many are mapped into memory
_INTEGERS = ("uint8", "int32", "uint32", "int64", "uint64")
_GONE = (
    "no longer exists (vacuum --keep deletes exact scores, also those of earlier versions); if a vacuum has just "
    "deleted it, run the command again; otherwise "
)
_REMEDY = "fold its partition again with replace"


class StateFiles(PublishedFiles):
    """The state files of a directory.

    Parameters
    ----------
    location : Location
    remedy : remedy for a file that cannot be read, for messages
    gone : text for a missing file, before the remedy

    Examples
    --------
    >>> import tempfile
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> from streameval.store.files.location import Location
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = StateFiles(Location.of(folder))
    ...     name, nbytes = files.write(ClusterSpec("campaign").empty())
    ...     files.read(name).totals().rows
    0
    """

    def __init__(self, location: Location, remedy: str = _REMEDY, gone: str = _GONE) -> None:
        super().__init__(location)
        self._remedy, self._gone = remedy, gone

    def write(self, state: State, dump: Callable[[State], Dumped] = codec.dump) -> tuple[str, int]:
        """Write a state; returns the name of its file and the size in bytes.

        Parameters
        ----------
        state : State
        dump : callable
            Serialises the state, as `streameval.engine.protocol.Engine.dump`.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        return self.publish(lambda sink: _write(*dump(state), sink))

    def read(self, name: str, budget: Budget | None = None, due: Any = None) -> Any:
        """The state of a file.

        Parameters
        ----------
        name : str
        budget : Budget, optional
            Memory budget of the state.
        due : Spec, optional
            The expected spec.

        Raises
        ------
        FormatError
            If the file is missing or damaged, or this version cannot read its state.
        SpillError
            If the state exceeds the budget and cannot be spilled.
        """
        try:
            return self._state([name], budget, due)
        except SpillError:
            raise  # spilling failed, not this file
        except (FormatError, *READ_ERRORS) as error:
            missing = isinstance(error, FileNotFoundError)
            why = f"{self._gone}{self._remedy}" if missing else remedied(error, self._remedy)
            msg = f"{self.location.name}/{name}: {why}"
            raise FormatError(msg) from error

    def read_all(
        self, names: Sequence[str], nbytes: int, budget: Budget, due: Any, each: Callable[..., list[Any]]
    ) -> list[Any]:
        """States that together hold the content of several files; `each` maps a function over a sequence.

        Several files are read as one state if that saves work: histograms, because each is read through a table of all
        bins; and packed states, because their segments are concatenated unmerged. The files are divided into parts of
        about equal numbers of files; the number of parts follows from the size of all files, `nbytes`.
        """
        bounded = isinstance(due, HistogramSpec)
        if not (bounded or due.packing):
            return each(lambda name: self.read(name, budget, due), names, "state")
        count = max(1, min(PARTS, nbytes // LEAST_BYTES), nbytes // MOST_BYTES, -(-len(names) // TOGETHER))
        count = min(count, -(-len(names) // (FEWEST if bounded else 1)))
        parts = [names[i * len(names) // count : (i + 1) * len(names) // count] for i in range(count)]
        return each(lambda part: self._together(part, budget, due), parts, "state")

    def _together(self, names: Sequence[str], budget: Budget, due: Any) -> Any:
        """Read several files as one state; on failure, the error names the first unreadable file."""
        try:
            return self._state(names, budget, due)
        except SpillError:
            raise  # spilling failed, not a file
        except (FormatError, *READ_ERRORS) as error:
            for name in names:
                self.read(name, budget, due)
            msg = f"{self.location.name}: {len(names)} files are readable one by one, but not together: {reason(error)}"
            raise FormatError(msg) from error

    def _state(self, names: Sequence[str], budget: Budget | None, due: Any) -> Any:
        """The state of one or several verified files."""
        state = codec.load_together([_stored(self.load(name)) for name in names], budget)
        if due not in (None, state.spec):
            msg = f"it holds {state.spec} where {due} is due"
            raise FormatError(msg)
        return state


def _stored(data: pa.Buffer) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches of a file."""
    file = pq.ParquetFile(pa.BufferReader(data))
    groups = (file.read_row_group(i, use_threads=False) for i in range(file.num_row_groups))
    return file.schema_arrow, (batch for group in groups for batch in group.to_batches())


def _write(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> None:
    """Write the batches of a state as Parquet."""
    with pq.ParquetWriter(sink, schema, write_statistics=False, **_layout(schema)) as writer:
        for table in _gathered(batches, schema):
            writer.write_table(table)


def _layout(schema: pa.Schema) -> dict[str, Any]:
    """Options of `pyarrow.parquet.ParquetWriter` for the encoding and compression of the columns."""
    kinds = {"binary": "DELTA_LENGTH_BYTE_ARRAY"} | dict.fromkeys(_INTEGERS, "DELTA_BINARY_PACKED")
    names: dict[str, str] = {field.name: kinds[str(field.type)] for field in schema if str(field.type) in kinds}
    if kinds["binary"] in names.values():
        return {"compression": "lz4", "use_dictionary": False, "column_encoding": names}
    keys = {name: kind for name, kind in names.items() if name == schema.names[0]}
    counts = [field.name for field in schema if field.name not in keys and field.type == pa.int64()]
    return {"compression": "zstd", "use_dictionary": counts, "column_encoding": keys}


def _gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Tables of about `GROUP_BYTES` each, at least one.

    Rows are in the same table however the batches divide them, which depends on memory and workers: equal states are
    equal files.
    """
    held: list[pa.RecordBatch] = []
    size = tables = 0
    for batch in batches:
        rest = batch.replace_schema_metadata(schema.metadata)
        ends = size + np.cumsum(sum(map(_row_bytes, rest.columns)))
        while rest.num_rows and ends[-1] >= GROUP_BYTES:
            stop = int(np.searchsorted(ends, GROUP_BYTES)) + 1
            yield pa.Table.from_batches([*held, rest.slice(0, stop)], schema).combine_chunks()
            rest, ends, held, tables = rest.slice(stop), ends[stop:] - ends[stop - 1], [], tables + 1
            size = 0
        if rest.num_rows:
            held.append(rest)
            size = int(ends[-1])
    if held or not tables:
        yield pa.Table.from_batches(held, schema).combine_chunks()


def _row_bytes(column: pa.Array) -> Array:
    """Bytes of each row of a column, as an int64 array of shape (n,)."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        found: Array = pc.binary_length(column).to_numpy().astype(np.int64)
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        found = pc.list_value_length(column).to_numpy().astype(np.int64) * kind.value_type.byte_width
    else:
        found = np.full(len(column), -(-kind.bit_width // 8))
    return found
