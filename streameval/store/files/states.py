"""State files: one immutable Parquet file for each state, named by the hash of its bytes.

A file is written to a temporary name (beside it on a local disk, in the system's temporary folder for an object store),
hashed, and given its name whole: renamed, or put as one object. So a name that is there is complete, a second write of
the same state changes nothing, and a killed process leaves at most a file that nothing names. On reading the bytes are
hashed again: a damaged file is refused by name.

Exact counts are differences of sorted words already (`streameval.states.keyed.packing`), which nothing makes much
smaller: they are stored as they are, with a codec that costs nothing to read. Other tables have counts that are mostly
0 and 1, which take a dictionary. Memory: a row group of 16 MiB while writing; the file and a row group while reading.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streameval.errors import FormatError, SpillError, StoreError
from streameval.scan import READ_ERRORS, reason
from streameval.states import codec
from streameval.states.scores.histogram import HistogramSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.protocol import State
    from streameval.store.files.location import Location

__all__ = ["StateFiles", "put", "read_bytes"]

GROUP_BYTES = 1 << 24  # of a row group, before it is compressed
CHUNK = 16 << 20  # bytes hashed or sent at a time
SUFFIX = ".parquet"
TOGETHER = 32  # files read as one state, at most
PARTS = 16  # which are to be read side by side, at least
FEWEST = 4  # histograms read as one, at least: to merge two takes as long as to read one
_INTEGERS = ("uint8", "int32", "uint32", "int64", "uint64")
_MISSING = "is not there any more (vacuum --keep deletes exact scores, also those of earlier versions)"
_REMEDY = "fold its partition again with replace"


class StateFiles:
    """The state files of a directory.

    Parameters
    ----------
    place : Place
        The directory.

    Examples
    --------
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> from streameval.store.files.location import Location
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = StateFiles(Location.of(folder))
    ...     name, nbytes = files.write(ClusterSpec("campaign").empty())
    ...     files.read(name).totals().rows
    0
    """

    def __init__(self, place: Location) -> None:
        self.place = place

    def write(self, state: State, facts: dict[str, str] | None = None) -> tuple[str, int]:
        """Write a state; returns the name of its file, and its bytes.

        Parameters
        ----------
        state : State
        facts : dict of str to str, optional
            What else the file's metadata say.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        part = self._part()
        try:
            _write(state, part, facts or {})
            name = _digest(part) + SUFFIX
            size = part.stat().st_size
            self._publish(part, name)
        except OSError as error:
            msg = f"{self.place.name}: cannot be written: {reason(error)}; nothing of this update counts"
            raise StoreError(msg) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return name, size

    def read(self, name: str, budget: Budget | None = None, due: Any = None) -> Any:
        """The state of a file.

        Parameters
        ----------
        name : str
        budget : Budget, optional
            Owns the state.
        due : Spec, optional
            What it must be a state of.

        Raises
        ------
        FormatError
            If the file is not there, is damaged, or is no state that this version reads.
        SpillError
            If the state exceeds the budget and cannot be spilled.
        """
        where = self.place.child(name)
        try:
            state = codec.load(pa.RecordBatchReader.from_batches(*_stored(self._verified(name))), budget)
            _check_spec(state, due)
            return state
        except SpillError:
            raise  # no fault of the file
        except FormatError as error:
            msg = f"{where.name}: {error}"
            raise FormatError(msg) from error
        except READ_ERRORS as error:
            missing = isinstance(error, FileNotFoundError)
            msg = f"{where.name}: {_MISSING if missing else reason(error)}; {_REMEDY}"
            raise FormatError(msg) from error

    def read_all(self, names: Sequence[str], budget: Budget, due: Any, each: Callable[..., list[Any]]) -> list[Any]:
        """States that together are those of several files; `each` maps a function over a sequence, as `Engine.each`.

        Files are read as one state where that spares work: of histograms, which are tables of all bins, so that to
        merge two costs more than to read one; and of packed states, whose pieces then lie side by side in few runs.
        """
        bounded = isinstance(due, HistogramSpec)
        if not (bounded or due.packing):
            return each(lambda name: self.read(name, budget, due), names, "state")
        size = min(max(len(names) // PARTS, FEWEST if bounded else 1), TOGETHER)
        count = -(-len(names) // size)
        parts = [names[i * len(names) // count : (i + 1) * len(names) // count] for i in range(count)]
        return each(lambda part: self._together(part, budget, due), parts, "state")

    def _together(self, names: Sequence[str], budget: Budget, due: Any) -> Any:
        """One state of several files; where they make none, the first one at fault is named."""
        try:
            state = codec.load_together([_stored(self._verified(name)) for name in names], budget)
            _check_spec(state, due)
            return state
        except SpillError:
            raise  # no fault of a file
        except (FormatError, *READ_ERRORS) as error:
            for name in names:
                self.read(name, budget, due)  # raises, with the file's name
            msg = f"{self.place.name}: each of {len(names)} files is sound, but not all of them: {reason(error)}"
            raise FormatError(msg) from error

    def sound(self, name: str) -> bool:
        """Whether a file is there, as it was written."""
        with suppress(FormatError, *READ_ERRORS):
            return bool(self._verified(name))
        return False

    def list(self) -> Iterator[tuple[str, int, float]]:
        """Name, bytes and age reference (seconds since 1970 of the last change) of every file there is."""
        selector = fs.FileSelector(self.place.path, allow_not_found=True)
        for info in self.place.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                yield info.base_name, info.size, (info.mtime_ns or 0) / 1e9

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """The names that have no file on this disk; a bucket is the same for whoever wrote to it, and is not asked."""
        return [name for name in names if self.place.local and not Path(self.place.child(name).path).is_file()]

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; one that is gone already is no error."""
        for name in names:
            try:
                self.place.filesystem.delete_file(self.place.child(name).path)
            except FileNotFoundError:
                continue

    def _verified(self, name: str) -> pa.Buffer:
        """A file's bytes, if they are those that were written."""
        data = self._bytes(self.place.child(name).path)
        if hashlib.sha256(data).hexdigest() + SUFFIX != name:
            msg = f"its bytes are not those that were written (damaged, cut off or exchanged); {_REMEDY}"
            raise FormatError(msg)
        return data

    def _bytes(self, path: str) -> pa.Buffer:
        """A file's bytes: mapped on a local disk."""
        if self.place.local:
            with pa.memory_map(path) as file:
                return file.read_buffer()
        with self.place.filesystem.open_input_file(path) as file:
            return file.read_buffer()

    def _part(self) -> Path:
        """A name for a file under way."""
        if self.place.local:
            folder = Path(self.place.path)
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = Path(tempfile.gettempdir())
        return folder / f".{uuid.uuid4().hex}.part"

    def _publish(self, part: Path, name: str) -> None:
        """Give a complete file its name."""
        if self.place.local:
            part.replace(Path(self.place.path) / name)
            return
        with (
            part.open("rb") as source,
            self.place.filesystem.open_output_stream(self.place.child(name).path) as target,
        ):
            while chunk := source.read(CHUNK):
                target.write(chunk)


def _check_spec(state: State, due: Any) -> None:
    """Raise unless it is a state of the spec that is due, if there is one."""
    if due not in (None, state.spec):
        msg = f"it holds {state.spec} where {due} is due; {_REMEDY}"
        raise FormatError(msg)


def _stored(data: pa.Buffer) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches of a file."""
    file = pq.ParquetFile(pa.BufferReader(data))
    groups = (file.read_row_group(i, use_threads=False) for i in range(file.num_row_groups))
    return file.schema_arrow, (batch for group in groups for batch in group.to_batches())


def read_bytes(place: Location) -> bytes:
    """A small file, whole."""
    with place.filesystem.open_input_file(place.path) as file:
        content: bytes = file.read()
    return content


def put(place: Location, content: bytes) -> None:
    """Write a small file whole or not at all."""
    if not place.local:
        with place.filesystem.open_output_stream(place.path) as target:
            target.write(content)
        return
    path = Path(place.path)
    part = path.with_name(f".{uuid.uuid4().hex}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(content)
    part.replace(path)


def _write(state: State, path: Path, facts: dict[str, str]) -> None:
    """Write a state as Parquet, and make sure that it is on the disk."""
    schema, batches = codec.dump(state)
    schema = schema.with_metadata({**schema.metadata, **{f"streameval.{key}": value for key, value in facts.items()}})
    with path.open("wb") as sink:
        with pq.ParquetWriter(sink, schema, write_statistics=False, **_layout(schema)) as writer:
            for table in _gathered(batches, schema):
                writer.write_table(table)
        sink.flush()
        os.fsync(sink.fileno())


def _layout(schema: pa.Schema) -> dict[str, Any]:
    """How the columns are encoded and compressed."""
    kinds = {"binary": "DELTA_LENGTH_BYTE_ARRAY"} | dict.fromkeys(_INTEGERS, "DELTA_BINARY_PACKED")
    names: dict[str, str] = {field.name: kinds[str(field.type)] for field in schema if str(field.type) in kinds}
    if kinds["binary"] in names.values():
        return {"compression": "lz4", "use_dictionary": False, "column_encoding": names}
    keys = {name: kind for name, kind in names.items() if name == schema.names[0]}
    counts = [field.name for field in schema if field.name not in keys and field.type == pa.int64()]
    return {"compression": "zstd", "use_dictionary": counts, "column_encoding": keys}


def _gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches put together to about `GROUP_BYTES`."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch.replace_schema_metadata(schema.metadata))
        if sum(part.nbytes for part in held) >= GROUP_BYTES:
            yield pa.Table.from_batches(held, schema)
            held = []
    yield pa.Table.from_batches(held, schema)


def _digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
