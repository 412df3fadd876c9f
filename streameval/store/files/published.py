"""Published files: immutable, complete once they have a name, and verified whenever they are read.

A file is written under a temporary name (next to its final one on a local disk, in the system's temporary folder for
an object store), hashed, and then renamed, or put as one object. Its name is the SHA-256 of its bytes and 16 random
hexadecimal digits that are new for each publication:

- the hash is checked on every read, so a damaged, truncated or exchanged file is refused by name;
- a name is never used twice, so deleting an unreferenced file cannot delete a later copy of it;
- any other name, such as one that leads out of the directory, is refused before anything is opened.

A killed process leaves at most unreferenced files; an update that fails deletes its own (`PublishedFiles.undone`).
`seal` protects small JSON records in the same way.

State files are published Parquet files, one for each state. Keys ascend, so their differences are stored; counts are
mostly 0 and 1 and are dictionary-encoded. Exact states take about 1 byte a row for 32-bit scores, 5 for 64-bit ones.
Memory: a row group of 16 MiB while writing; the file and a row group while reading.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from streameval.errors import FormatError, SpillError, StoreError
from streameval.saving import make_folder, publish, sync, unfinished
from streameval.scan import READ_ERRORS, add_remedy, reason
from streameval.states import codec
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.histogram import HistogramSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from typing import Self

    from _typeshed import ReadableBuffer

    from streameval.budget import Budget
    from streameval.states.protocol import State, StoredSpec
    from streameval.store.files.location import Location
    from streameval.typing import Array

    Each = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]  # maps a function over items, as `Engine.each`
    Dumped = tuple[pa.Schema, Iterator[pa.RecordBatch]]


CHUNK = 16 << 20  # bytes sent at a time
SUFFIX = ".parquet"
_SYNCED = 16  # files whose bytes are waited for together
DAMAGED = "its bytes are not those that were written (damaged, truncated or exchanged)"
_NAME = re.compile(rf"([0-9a-f]{{64}})-[0-9a-f]{{16}}{re.escape(SUFFIX)}")


@dataclass
class _Transaction:
    """The names of files published in a block, and whether it has failed."""

    names: list[str] = field(default_factory=list)
    unwanted: bool = False


class _HashedFile(BufferedWriter):
    """A new file that is hashed as it is written."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path, "wb"))
        self.digest = hashlib.sha256()

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes."""
        self.digest.update(data)
        return super().write(data)


def _sync_kept(path: str) -> None:
    """Wait until a file is on the disk; the commit notices that a vacuum has deleted one (`PublishedFiles.absent`)."""
    with suppress(FileNotFoundError):
        sync(path)


class PublishedFiles:
    """The published files of a directory.

    Parameters
    ----------
    location : Location
        The directory; publishing the first file creates it.

    Examples
    --------
    >>> from streameval.store.files.location import Location
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = PublishedFiles(Location.of(folder))
    ...     names = [files.publish(lambda sink: sink.write(b"content"))[0] for _ in range(2)]
    ...     files.load(names[0]).to_pybytes(), names[0] == names[1], content_of(names[0]) == content_of(names[1])
    (b'content', False, True)
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.transaction: _Transaction | None = None  # see `undone`

    @contextmanager
    def undone(self) -> Iterator[Self]:
        """The same files; those published through the yielded object are deleted if the block fails.

        A full disk needs their room. They are on the disk when the block ends, for which many wait together. Files that
        other processes publish are there at once; they are left for vacuum.
        """
        files, transaction = copy(self), _Transaction()
        files.transaction = transaction
        try:
            yield files
            if self.location.local and transaction.names:
                with self._writing(), ThreadPoolExecutor(_SYNCED) as pool:
                    list(pool.map(_sync_kept, [self.location.child(name).path for name in transaction.names]))
                    sync(self.location.path)
        except BaseException:
            transaction.unwanted = True  # other threads may be about to publish
            with suppress(*READ_ERRORS):
                self.delete(transaction.names)
            raise

    def publish(self, write: Callable[[BinaryIO], object]) -> tuple[str, int]:
        """Publish the bytes that `write` writes to a file; returns the new name and the size in bytes.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        transaction = self.transaction
        folder = Path(self.location.path if self.location.local else tempfile.gettempdir())
        with self._writing():
            if self.location.local:
                make_folder(folder)
            with unfinished(folder / f".{uuid.uuid4().hex}.part") as part:
                with _HashedFile(part) as sink:
                    write(sink)
                name, size = f"{sink.digest.hexdigest()}-{uuid.uuid4().hex[:16]}{SUFFIX}", part.stat().st_size
                self._rename(part, name)
                if transaction is not None:
                    transaction.names.append(name)
                    if transaction.unwanted:
                        self.delete([name])
        return name, size

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.location.name}: cannot be written: {reason(error)}; nothing was committed"
            ) from error

    def __getstate__(self) -> dict[str, object]:
        """Without the transaction, which is of this process."""
        return self.__dict__ | {"transaction": None}

    def load(self, name: str, *, verified: bool = True) -> pa.Buffer:
        """The bytes of a file, mapped into memory on a local disk; the caller may verify parts of them instead.

        Raises
        ------
        FormatError
            If the bytes differ from those published, or `name` is not the name of a published file.
        """
        digest = content_of(name)
        data = self._bytes(name)
        if verified and hashlib.sha256(data).hexdigest() != digest:
            raise FormatError(DAMAGED)
        return data

    def sound(self, name: str) -> bool:
        """Whether a file exists and is undamaged."""
        with suppress(FormatError, *READ_ERRORS):
            return bool(self.load(name))
        return False

    def list(self) -> Iterator[tuple[str, int, float]]:
        """Name, size in bytes and modification time (seconds since 1970) of every file in the directory."""
        selector = fs.FileSelector(self.location.path, allow_not_found=True)
        for info in self.location.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                yield info.base_name, info.size, (info.mtime_ns or 0) / 1e9

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """The names without a file on the local disk; empty for a bucket, which all processes share."""
        return [name for name in names if self.location.local and not Path(self.location.child(name).path).is_file()]

    def unneeded(self, needed: Container[str], oldest: float = math.inf) -> dict[str, int]:
        """Size in bytes, by name, of the files that are not needed and were last modified at `oldest` or earlier."""
        return {name: size for name, size, when in self.list() if name not in needed and when <= oldest}

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are skipped."""
        for name in names:
            with suppress(FileNotFoundError):
                self.location.filesystem.delete_file(self.location.child(name).path)

    def _bytes(self, name: str) -> pa.Buffer:
        """The bytes of a file, not verified."""
        path = self.location.child(name).path
        if self.location.local:
            with pa.memory_map(path) as file:
                return file.read_buffer()
        with self.location.filesystem.open_input_file(path) as file:
            return file.read_buffer()

    def _rename(self, part: Path, name: str) -> None:
        """Give a complete file its name."""
        where = self.location.child(name)
        if where.local and self.transaction is not None:
            part.replace(where.path)
            return
        if where.local:
            publish(part, Path(where.path), sought=False)
            return
        with part.open("rb") as source, where.filesystem.open_output_stream(where.path) as target:
            while chunk := source.read(CHUNK):
                target.write(chunk)


def content_of(name: str) -> str:
    """The hash of a file's content, from its name.

    Raises
    ------
    FormatError
        If it is not the name of a published file.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise FormatError(f"{name!r} is not the name of a file of a store; it was not opened")
    return match[1]


def seal(record: dict[str, object]) -> str:
    """Encode a record as JSON with a checksum.

    Examples
    --------
    >>> unseal(seal({"format": 1}))
    {'format': 1}
    """
    return json.dumps(record | {"sha256": _checksum(record)})


def unseal(text: str | bytes) -> dict[str, Any]:
    """Decode and verify a result of `seal`.

    Raises
    ------
    FormatError
        If the checksum is missing or wrong.
    """
    try:
        record = json.loads(text)
        checksum = record.pop("sha256")
        if checksum != _checksum(record):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError("its checksum is missing or wrong (damaged or written by other software)") from None
    return dict(record)


def _checksum(record: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


GROUP_BYTES = 1 << 24  # size of a row group before compression
LEAST_BYTES = 1 << 20  # of files that are read as one state: fewer are read before a thread could begin
MOST_BYTES = 64 << 20  # of files that are read as one state, because all of them are open at once
FEWEST = 4  # least number of histograms that are read as one: merging two takes as long as reading one
PARTS = 16  # number of parts that are read in parallel, within these limits
TOGETHER = 512  # most files that are read as one state, because the system limits how many are mapped into memory
_GONE = (
    "no longer exists (vacuum --keep deletes exact scores, also those of earlier versions, and --forget the states of "
    "earlier versions); if a vacuum has just deleted it, run the command again; with as_of, name a "
    "later version; otherwise "
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
    >>> from streameval.states.cluster_counts import ClusterSpec
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
            Serialises the state, as `streameval.engine.Engine.dump`.

        Raises
        ------
        StoreError
            If the store cannot be written.
        """
        return self.publish(lambda sink: _write(*dump(state), sink))

    def read(self, name: str, budget: Budget | None = None, due: StoredSpec | None = None) -> State:
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
        return self._read([name], budget, due)

    def read_all(self, names: Sequence[str], nbytes: int, budget: Budget, due: StoredSpec, each: Each) -> list[State]:
        """States that together hold the content of several files; `each` maps a function over a sequence.

        Several files are read as one state if that saves work: histograms, because each is read through a table of all
        bins; and keyed counts, because their rows are collected unmerged. The files are divided into parts of about
        equal numbers of files; the number of parts follows from the size of all files, `nbytes`.
        """
        bounded = isinstance(due, HistogramSpec)
        if not due.traits.additive:
            return each(lambda name: self.read(name, budget, due), names)
        count = max(1, min(PARTS, nbytes // LEAST_BYTES), nbytes // MOST_BYTES, -(-len(names) // TOGETHER))
        count = min(count, -(-len(names) // (FEWEST if bounded else 1)))
        parts = [names[i * len(names) // count : (i + 1) * len(names) // count] for i in range(count)]
        return each(lambda part: self._read(part, budget, due), parts)

    def _read(self, names: Sequence[str], budget: Budget | None, due: StoredSpec | None) -> State:
        """The state that several files hold together; on failure, the error names the first unreadable one."""
        try:
            state: State = codec.load_together([_read_batches(self.load(name)) for name in names], budget)
            if due not in (None, state.spec) and not _is_coarser(state.spec, due):
                raise FormatError(f"it holds {state.spec} where {due} is due")
        except SpillError:
            raise  # spilling failed, not a file
        except (FormatError, *READ_ERRORS) as error:
            where, why = f"{self.location.name}/{names[0]}", add_remedy(error, self._remedy)
            if isinstance(error, FileNotFoundError):
                why = f"{self._gone}{self._remedy}"
            if len(names) > 1:
                for name in names:
                    self._read([name], budget, due)
                where = self.location.name
                why = f"{len(names)} files are readable one by one, but not together: {reason(error)}"
            raise FormatError(f"{where}: {why}") from error
        return state


def _is_coarser(spec: StoredSpec, due: StoredSpec | None) -> bool:
    """Whether blocks differ from what is due only in that they were not counted for points as well."""
    if isinstance(due, GroupedSpec) and isinstance(spec, GroupedSpec):
        return due == replace(spec, inner=due.inner) and _is_coarser(spec.inner, due.inner)
    return isinstance(due, BlockSpec) and due.pointed and spec == replace(due, pointed=False)


def _read_batches(data: pa.Buffer) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and batches of a file."""
    file = pq.ParquetFile(pa.BufferReader(data))
    groups = (file.read_row_group(i, use_threads=False) for i in range(file.num_row_groups))
    return file.schema_arrow, (batch for group in groups for batch in group.to_batches())


def _write(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> None:
    """Write the batches of a state as Parquet."""
    with pq.ParquetWriter(sink, schema, write_statistics=False, **_layout(schema)) as writer:
        for table in _gather_groups(batches, schema):
            writer.write_table(table)


def _layout(schema: pa.Schema) -> dict[str, object]:
    """Options of `pyarrow.parquet.ParquetWriter` for the encoding and compression of the columns."""
    keys = {key.name: "DELTA_BINARY_PACKED" for key in [*schema][:1] if pa.types.is_integer(key.type)}
    counts = [field.name for field in schema if field.name not in keys and field.type == pa.int64()]
    return {"compression": "zstd", "use_dictionary": counts, "column_encoding": keys}


def _gather_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
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
        sizes: Array = pc.binary_length(column).to_numpy().astype(np.int64)
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        sizes = pc.list_value_length(column).to_numpy().astype(np.int64) * kind.value_type.byte_width
    else:
        sizes = np.full(len(column), -(-kind.bit_width // 8))
    return sizes
