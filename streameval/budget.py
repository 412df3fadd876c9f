"""One memory budget for all live states, and the spill file for what exceeds it.

A `Budget` counts the bytes of the arrays that states hold. When they exceed the limit, the largest arrays are written
to the spill file until the rest fits. A spilled array is read back slice by slice. The file is unlinked as soon as it
is open, so a killed process leaves nothing behind.

Memory outside states is accounted for as well:

- what reading and collecting rows takes is reserved from the limit as long as it lasts (`Budget.reserved`);
- what compiling loops takes is reserved for good, because the compiler keeps it (`Budget.make_room_to_compile`);
- a thread may gather or sort a fixed share of the limit at a time (`Budget.scratch`);
- freed memory that the allocators keep is returned to the system when the limit is near (`Budget.relieve`).

Spilling costs time and changes no result.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import logging
import math
import os
import re
import tempfile
import weakref
from collections import deque
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval import posix
from streameval.errors import OptionError, SpillError
from streameval.forks import new_lock
from streameval.kernels.jit import COMPILING, tell_before_compiling
from streameval.kernels.prefetch import LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike

    from streameval.typing import Array


class SpillFile:
    """An unlinked, append-only file; any thread may append arrays and read slices at offsets.

    Raises
    ------
    SpillError
        If the file cannot be created, written or read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            self._file = tempfile.TemporaryFile(dir=directory, prefix="streameval-")  # noqa: SIM115 - stays open; a finalizer closes it
        except OSError as error:
            raise self._failure(error, "written") from error
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._lock = new_lock()
        self.process = os.getpid()  # a forked child must not append, because it has the same end

    def _failure(self, error: OSError, done: str) -> SpillError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = "is full" if full else f"cannot be {done} ({error.strerror})"
        return SpillError(
            error.errno, f"the spill directory {what}; name another with --spill or raise --memory", str(self.directory)
        )

    def write(self, array: Array) -> int:
        """Append `array`; returns its offset. A write that fails takes no space."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        with self._lock:
            start = self._end
            self._end += len(data)
        try:
            posix.write_at(self._file.fileno(), data, start)
        except OSError as error:
            with self._lock:
                if self._end == start + len(data):  # it was the last one, so its space can be released
                    self._end = start
                    os.ftruncate(self._file.fileno(), start)
            raise self._failure(error, "written") from error
        return start

    def read(self, offset: int, out: Array) -> None:
        """Fill `out` with the bytes from `offset` on; raises `SpillError` if they cannot be read."""
        data = out.reshape(-1).view(np.uint8).data
        try:
            whole = posix.read_at(self._file.fileno(), data, offset)
        except OSError as error:
            raise self._failure(error, "read") from error
        if not whole:
            raise SpillError(
                errno.EIO, "the spill file ended early; was it truncated by another process?", str(self.directory)
            )


class Buffer:
    """An array in memory or in the spill file, read by ranges of rows.

    A part of a buffer keeps the original buffer alive; its memory is released only with the original, or when that is
    spilled.

    Attributes
    ----------
    owner : weak reference to the budget that counts it; None if there is none

    Examples
    --------
    >>> import numpy as np
    >>> part = Buffer(np.arange(9)).part(2, 8)
    >>> part.nbytes, part.read(1, 3), part.part(4, 6).read()
    (48, array([3, 4]), array([6, 7]))
    """

    __slots__ = ("__weakref__", "_address", "_data", "_first", "_whole", "dtype", "owner", "shape")

    def __init__(self, array: Array) -> None:
        self._data: Array | tuple[SpillFile, int] = array  # or its file and the offset there
        self._address: int | None = None  # of the array, once it was needed; only spilling replaces the array
        self._whole: Buffer | None = None
        self._first = 0
        self.owner: weakref.ref[Any] | None = None
        self.dtype = array.dtype
        self.shape = array.shape

    def part(self, start: int, stop: int) -> Buffer:
        """Rows from `start` to `stop`, without a copy."""
        whole = self._whole or self
        part = Buffer(np.empty((0, *self.shape[1:]), self.dtype))
        part._whole, part._first, part.owner = whole, self._first + start, whole.owner
        part.shape = (stop - start, *self.shape[1:])
        return part

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(math.prod(self.shape[1:]) * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the array, in memory or on disk."""
        return int(self.shape[0] * self.row_bytes)

    @property
    def resident(self) -> bool:
        """Whether the array is in memory."""
        return isinstance(self._data, np.ndarray) if self._whole is None else self._whole.resident

    def spill(self, file: SpillFile) -> None:
        """Write the array to `file` and release its memory."""
        if isinstance(self._data, np.ndarray):
            self._data = file, file.write(self._data)

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows from `start` to `stop`; a view if the array is in memory."""
        stop = self.shape[0] if stop is None else stop
        if self._whole is not None:
            return self._whole.read(self._first + start, self._first + stop)
        data = self._data  # another thread may spill it at any time
        if isinstance(data, np.ndarray):
            return data[start:stop]
        (file, offset), out = data, np.empty((stop - start, *self.shape[1:]), self.dtype)
        file.read(offset + start * self.row_bytes, out)
        return out

    def located(self, start: int, stop: int) -> tuple[int, Array]:
        """The address of the rows from `start` to `stop`, which is valid as long as the returned array lives."""
        if self._whole is not None:
            return self._whole.located(self._first + start, self._first + stop)
        data = self._data  # another thread may spill it at any time
        if not isinstance(data, np.ndarray):
            rows = self.read(start, stop)
            return _address(rows), rows
        if self._address is None:  # once, since asking NumPy takes longer than reading
            self._address = _address(data)
        return self._address + start * data.strides[0], data

    def __reduce__(self) -> tuple[type[Buffer], tuple[Array]]:
        """Pickle the bytes of the array, never a path."""
        return Buffer, (self.read(),)


class Computed(Buffer):
    """An array that is computed from others whenever it is read, and takes no memory between reads.

    Parameters
    ----------
    shape : tuple of int
    dtype : type of the array
    compute : callable
        ``compute(start, stop)`` returns the rows from `start` to `stop`.

    Examples
    --------
    >>> Computed((9,), np.int64, np.arange).part(2, 8).read(1, 3)
    array([3, 4])
    """

    __slots__ = ("_compute",)

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, compute: Callable[[int, int], Array]) -> None:
        super().__init__(np.empty((0, *shape[1:]), dtype))
        self.shape, self._compute = shape, compute

    @property
    def resident(self) -> bool:
        """False: only the buffers from which it is computed count."""
        return False

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows from `start` to `stop`."""
        return self._compute(start, self.shape[0] if stop is None else stop)

    def located(self, start: int, stop: int) -> tuple[int, Array]:
        """The address of the rows from `start` to `stop`, which are computed."""
        rows = self.read(start, stop)
        return _address(rows), rows


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


_LARGE_PAGE = 1 << 21  # bytes
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_DISK = Path("/var/tmp")  # noqa: S108 - `tempfile` unlinks spill files, so no name can be guessed; /tmp is often in memory


def parse_bytes(text: str | int) -> int:
    """The number of bytes of a size such as ``"2GiB"``, ``"500 MB"`` or ``1073741824``.

    Raises
    ------
    OptionError
        If `text` is not a positive size.

    Examples
    --------
    >>> parse_bytes("2GiB"), parse_bytes("1.5 kB"), parse_bytes(64)
    (2147483648, 1500, 64)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?I?)B?\s*", str(text).upper())
    size = float(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else 0.0
    if not 1 <= size < math.inf:
        raise OptionError(f"memory={text!r} is not a positive size; write for instance 2GiB or 500MB")
    return int(size)


def spill_directory(path: str | os.PathLike[str] | None = None) -> Path:
    """Directory for spill files: `path`, else ``$TMPDIR``, else ``/var/tmp`` (``/tmp`` is often in memory)."""
    if path is not None:
        return Path(path)
    if "TMPDIR" not in os.environ and os.access(_DISK, os.W_OK):
        return _DISK
    return Path(tempfile.gettempdir())


def fresh_array(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An uninitialised array that is aligned to large pages, or to cache lines if it is smaller than a large page.

    NumPy requests large pages for allocations of 4 MiB and more. The first write to a large page takes a quarter of the
    time of the small pages that it replaces, and rows scattered over it miss the translation cache (TLB) less often.
    The system provides large pages only between aligned addresses, so the array begins at one, and its allocation is
    extended to the end of the last page if it fills at least half of it.

    Examples
    --------
    >>> array = fresh_array((3, 1 << 17), np.uint64)
    >>> array.shape, array.ctypes.data % (1 << 21)
    ((3, 131072), 0)
    """
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    page = _LARGE_PAGE if nbytes >= _LARGE_PAGE else LINE
    missing = -nbytes % page  # bytes of the last page
    room = np.empty(nbytes + page + (missing if 2 * missing <= page else 0), np.uint8)
    start = -room.ctypes.data % page
    array: Array = room[start : start + nbytes].view(dtype).reshape(shape)
    return array


def fresh_columns(rows: int, *columns: tuple[tuple[int, ...], DTypeLike]) -> list[Array]:
    """Uninitialised arrays with room for some rows and one more, given the shape of a row and the type of each."""
    return [fresh_array((rows + 1, *shape), dtype) for shape, dtype in columns]


def give_back_freed() -> None:
    """Return freed memory that Arrow's allocator and the C library keep to the system, as far as they can."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    posix.trim_heap()


LEAST_ROOM = 1 / 8  # share of the limit that is always left to states
_LARGE = 1 << 16  # bytes of an array that may make the process grow
_SMALL = 1 << 13  # bytes of an array below which spilling is not worth a system call
_GROWTH = 1 / 32  # share of the limit by which a process must grow before freed memory is returned again
_LOG = logging.getLogger(__name__)


class Budget:
    """Limit on the bytes that live states hold in memory.

    Parameters
    ----------
    limit : int, optional
        Limit in bytes; by default a quarter of the memory that this process may use.
    directory : path, optional
        Directory of the spill file, which is created when it is first needed; see `spill_directory`.
    threads : int
        Number of threads that gather and sort at the same time.

    Examples
    --------
    >>> import numpy as np
    >>> budget = Budget(limit=1_000_000)
    >>> held = [budget.hold(np.arange(100_000)) for _ in range(2)]
    >>> budget.resident <= 1_000_000, [int(b.read(5, 6)[0]) for b in held]
    (True, [5, 5])
    """

    def __init__(
        self, limit: int | None = None, directory: str | os.PathLike[str] | None = None, threads: int = 2
    ) -> None:
        self.limit = posix.available_memory() // 4 if limit is None else limit
        self.directory = spill_directory(directory)
        self.threads = threads
        self.room = self.limit  # bytes for arrays: the limit minus what is reserved
        self._reserved = 0
        self.resident = 0
        self.spilled = 0
        self._held: dict[int, weakref.ref[Buffer]] = {}
        self._largest: list[tuple[int, int]] = []  # heap of (−bytes, key) of spillable buffers; may include dead ones
        self._dead: deque[tuple[int, int]] = deque()  # appended by finalizers, which may run at any allocation
        self._keys = itertools.count()
        self._lock = new_lock()
        self._file: SpillFile | None = None
        self._base = posix.process_memory()
        self._relieved = self._base  # bytes of the process when freed memory was last returned
        self._compiling = 0
        tell_before_compiling(self)

    @property
    def scratch(self) -> int:
        """Bytes that one thread may decode, gather or sort at a time; all threads take a quarter of the limit."""
        return self.limit // (4 * self.threads)

    @contextmanager
    def reserved(self, nbytes: int) -> Iterator[None]:
        """Reserve bytes of the limit for uses other than states, which are left at least an eighth of the limit.

        Raises
        ------
        SpillError
            If arrays must be spilled and cannot be written.
        """
        self._reserve(nbytes)
        try:
            self._spill_excess()
            yield
        finally:
            self._reserve(-nbytes)

    def _reserve(self, nbytes: int) -> None:
        with self._lock:
            self._reserved += nbytes
            self.room = max(self.limit - self._reserved, int(self.limit * LEAST_ROOM))

    def make_room_to_compile(self, nbytes: int) -> None:
        """Reserve bytes of the limit for good; logs a warning, once in a process, if they do not fit."""
        self._compiling += nbytes
        self._reserve(nbytes)
        if self.limit - self._reserved - max(COMPILING - self._compiling, 0) < self.limit * LEAST_ROOM:
            _warn_of_compiling()
        with suppress(SpillError):  # the owner of the budget gets the error with its next array
            self._spill_excess()

    def release_freed(self) -> None:
        """Return freed memory to the system if states fill half of the limit; to be called when no builder is running.

        What Arrow and the C library keep is fragmented between the states, and would add to what is allocated next.
        Otherwise it is kept, because fresh memory is slow.
        """
        with self._lock:
            self._forget_dead()
        if self.resident > self.limit // 2:
            give_back_freed()

    def relieve(self) -> None:
        """Return freed memory to the system if the process has grown by more than the limit.

        It must also have grown since memory was last returned, since freed memory that is being reused does no harm.
        """
        taken = posix.process_memory()
        self._relieved = min(self._relieved, taken)
        if taken - self._base > self.limit and taken - self._relieved > self.limit * _GROWTH:
            give_back_freed()
            self._relieved = posix.process_memory()

    def hold(self, array: Array, overhead: int = 0) -> Buffer:
        """Count an array in the budget; this may spill it or other arrays.

        Parameters
        ----------
        array : array to hold
        overhead : further bytes that live as long as the array and are never spilled

        Raises
        ------
        SpillError
            If arrays must be spilled and cannot be written.
        """
        buffer = Buffer(array)
        buffer.owner = weakref.ref(self)
        if not buffer.nbytes:
            return buffer
        with self._lock:
            key = self._count(buffer, buffer.nbytes)
            if buffer.nbytes >= _SMALL:
                heapq.heappush(self._largest, (-buffer.nbytes, key))
            if overhead:
                self._count(buffer, overhead)
        self._spill_excess()
        if buffer.nbytes >= _LARGE:
            self.relieve()
        return buffer

    def _count(self, buffer: Buffer, nbytes: int) -> int:
        """Count bytes that live as long as a buffer; returns the key of this count."""
        key = next(self._keys)
        self.resident += nbytes
        self._held[key] = weakref.ref(buffer)
        weakref.finalize(buffer, self._dead.append, (key, nbytes)).atexit = False
        return key

    def _spill_excess(self) -> None:
        """Spill the largest arrays until the rest fits."""
        with self._lock:
            self._forget_dead()
            while self.resident > self.room and self._largest:
                _, key = self._largest[0]  # kept in the heap if writing fails, because the disk may have room later
                held = self._held.get(key)
                buffer = None if held is None else held()
                if buffer is not None:
                    if self._file is None or self._file.process != os.getpid():
                        self._file = SpillFile(self.directory)
                    buffer.spill(self._file)
                    del self._held[key]
                    self.resident -= buffer.nbytes
                    self.spilled += buffer.nbytes
                heapq.heappop(self._largest)
                self._forget_dead()

    def _forget_dead(self) -> None:
        while self._dead:
            key, nbytes = self._dead.popleft()
            if self._held.pop(key, None) is not None:
                self.resident -= nbytes
        if len(self._largest) > 2 * len(self._held) + 64:
            self._largest = [entry for entry in self._largest if entry[1] in self._held]
            heapq.heapify(self._largest)


@cache
def _warn_of_compiling() -> None:
    _LOG.warning(
        "the loops of this run are being compiled (once per machine), which takes some %d MiB, more than the memory "
        "limit leaves; compile them beforehand (python -m streameval.warm) or give more (--memory)",
        COMPILING >> 20,
    )
