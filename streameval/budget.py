"""One memory budget for all live states, and the spill file for what exceeds it.

A `Budget` counts the bytes of the arrays that states hold. When they exceed the limit, the largest arrays are written
to the spill file until the rest fits. A spilled array is read back slice by slice. The file is unlinked as soon as it
is open, so that a killed process leaves nothing behind.

What is no state takes memory too. Reading and collecting rows is reserved from the limit while it lasts
(`Budget.reserved`), what a thread gathers or sorts at a time is a share of it (`Budget.scratch`), and what the
allocators keep of freed memory goes back to the system where the limit is near (`Budget.relieve`).

Spilling costs time and changes no result.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import itertools
import os
import re
import tempfile
import threading
import weakref
from collections import deque
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError, SpillError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.typing import Array

__all__ = [
    "LEAST_ROOM",
    "Budget",
    "Buffer",
    "Computed",
    "available_memory",
    "available_threads",
    "parse_bytes",
    "spill_directory",
]


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_DISK = Path("/var/tmp")  # noqa: S108 - a spill file is unlinked, so its name cannot be taken; /tmp is often memory
LEAST_ROOM = 1 / 8  # share of the limit that states always have
_PAGES = Path("/proc/self/statm")
_SMALL = 1 << 13  # bytes; spilling less than this frees nothing worth a system call
_WORTH_KEEPING = 1 << 16  # bytes of an array that another builder had better reuse than allocate
_GROWTH = 1 / 32  # share of the limit by which a process grows until freed memory is given back again


def parse_bytes(text: str | int) -> int:
    """Bytes in a size such as ``"2GiB"``, ``"500 MB"`` or ``1073741824``.

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
    size = int(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else 0
    if size <= 0:
        msg = f"memory={text!r} is not a positive size; write for instance 2GiB or 500MB"
        raise OptionError(msg)
    return size


@cache
def available_memory() -> int:
    """Bytes of memory this process may use: physical memory, or the cgroup's limit if that is lower. Cached.

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _cgroup_limits():
        with suppress(OSError):
            text = limit.read_text().strip()
            total = min(total, int(text)) if text.isdigit() else total
    return total


def _cgroup_limits() -> Iterator[Path]:
    """Files that may hold a memory limit: of this process's cgroup and of its parents."""
    root = Path("/sys/fs/cgroup")
    yield root / "memory" / "memory.limit_in_bytes"
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            base, name = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
            here = base / path.lstrip("/")
            for folder in (here, *here.parents):
                if base in (folder, *folder.parents):
                    yield folder / name


def available_threads() -> int:
    """Processors this process may run on, respecting affinity.

    Examples
    --------
    >>> available_threads() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spill_directory(path: str | os.PathLike[str] | None = None) -> Path:
    """Directory for spill files: `path`, else ``$TMPDIR``, else ``/var/tmp`` (``/tmp`` is often memory)."""
    if path is not None:
        return Path(path)
    if "TMPDIR" not in os.environ and os.access(_DISK, os.W_OK):
        return _DISK
    return Path(tempfile.gettempdir())


def give_back_freed() -> None:
    """Give freed memory that Arrow's allocator and the C library keep back to the system, where they can."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # the C library of Linux alone, but for musl's
        ctypes.CDLL(None).malloc_trim(0)


def process_memory() -> int:
    """Bytes of memory that this process has; 0 where the system does not tell."""
    with suppress(OSError):
        return int(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class _SpillFile:
    """An unlinked, append-only file; any thread may write and read slices at offsets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            self._file = tempfile.TemporaryFile(dir=directory, prefix="streameval-")  # noqa: SIM115 - a finalizer closes it
        except OSError as error:
            raise self._failure(error, "written") from error
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._lock = threading.Lock()

    def _failure(self, error: OSError, done: str) -> SpillError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = "is full" if full else f"cannot be {done} ({error.strerror})"
        return SpillError(
            error.errno, f"the spill directory {what}; name another with --spill or raise --memory", str(self.directory)
        )

    def write(self, array: Array) -> int:
        """Append `array`; returns its offset."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        with self._lock:
            start = self._end
            self._end += len(data)
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done : done + (1 << 30)], start + done)
        except OSError as error:
            raise self._failure(error, "written") from error
        return start

    def read(self, offset: int, out: Array) -> None:
        """Fill `out` from `offset`."""
        data = out.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(data):
            try:
                count = os.preadv(self._file.fileno(), [data[done : done + (1 << 30)]], offset + done)
            except OSError as error:
                raise self._failure(error, "read") from error
            if count == 0:
                msg = "the spill file ended early; was it truncated by another process?"
                raise SpillError(errno.EIO, msg, str(self.directory))
            done += count


class _Spilled(NamedTuple):
    """Position of an array in a spill file."""

    file: _SpillFile
    offset: int


class Buffer:
    """An array in memory or in the spill file, read by ranges of rows.

    A part of a buffer keeps the whole buffer alive and is spilled with it; so does what is computed from one.

    Examples
    --------
    >>> import numpy as np
    >>> part = Buffer(np.arange(9)).part(2, 8)
    >>> part.nbytes, part.read(1, 3), part.part(4, 6).read()
    (48, array([3, 4]), array([6, 7]))
    >>> part.computed(np.negative, np.int64).part(4, 6).read()
    array([-6, -7])
    """

    __slots__ = ("__weakref__", "_data", "_first", "_whole", "dtype", "shape")

    def __init__(self, array: Array) -> None:
        self._data: Array | _Spilled = array
        self._whole: Buffer | None = None
        self._first = 0
        self.dtype = array.dtype
        self.shape = array.shape

    def part(self, start: int, stop: int) -> Buffer:
        """Rows from `start` to `stop`, without a copy."""
        whole = self._whole or self
        part = Buffer(np.empty((0, *self.shape[1:]), self.dtype))
        part._whole, part._first = whole, self._first + start
        part.shape = (stop - start, *self.shape[1:])
        return part

    def computed(self, compute: Callable[[Array], Array], dtype: Any) -> Buffer:
        """What a function makes of rows, of another type, anew whenever they are read: it takes no memory."""
        return Computed(self.shape, dtype, lambda start, stop: compute(self.read(start, stop)))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(np.prod(self.shape[1:], dtype=np.int64) * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the array, in memory or on disk."""
        return int(self.shape[0] * self.row_bytes)

    @property
    def resident(self) -> bool:
        """Whether the array is in memory."""
        return isinstance(self._data, np.ndarray) if self._whole is None else self._whole.resident

    def spill(self, file: _SpillFile) -> None:
        """Write the array to `file` and release its memory."""
        if isinstance(self._data, np.ndarray):
            self._data = _Spilled(file, file.write(self._data))

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows from `start` to `stop`; a view where the array is in memory."""
        stop = self.shape[0] if stop is None else stop
        if self._whole is not None:
            return self._whole.read(self._first + start, self._first + stop)
        data = self._data  # another thread may spill it at any time
        if isinstance(data, np.ndarray):
            return data[start:stop]
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        data.file.read(data.offset + start * self.row_bytes, out)
        return out

    def __reduce__(self) -> tuple[type[Buffer], tuple[Array]]:
        """Carry bytes, never a path, to another process."""
        return Buffer, (self.read(),)


class Computed(Buffer):
    """An array that is computed from others whenever it is read, and takes no memory of its own.

    Parameters
    ----------
    shape : tuple of int
    dtype : its type
    compute : callable
        From the first row to read and the end to the rows between them.

    Examples
    --------
    >>> Computed((9,), np.int64, np.arange).part(2, 8).read(1, 3)
    array([3, 4])
    """

    __slots__ = ("_compute",)

    def __init__(self, shape: tuple[int, ...], dtype: Any, compute: Callable[[int, int], Array]) -> None:
        super().__init__(np.empty((0, *shape[1:]), dtype))
        self.shape, self._compute = shape, compute

    @property
    def resident(self) -> bool:
        """Never: what it is computed from counts."""
        return False

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows from `start` to `stop`."""
        return self._compute(start, self.shape[0] if stop is None else stop)


class Budget:
    """Limit on the bytes that live states hold in memory.

    Parameters
    ----------
    limit : int
        Bytes; None for a quarter of the memory this process may use.
    directory : path, optional
        Where the spill file is made, when it is needed. See `spill_directory`.
    threads : int
        Threads that gather and sort at the same time.

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
        self.limit = available_memory() // 4 if limit is None else limit
        self.directory = spill_directory(directory)
        self.threads = threads
        self.room = self.limit  # for arrays: the limit without what is reserved
        self._reserved = 0
        self.resident = 0
        self.spilled = 0
        self.learned: dict[Any, Any] = {}  # by spec, what one builder learned of the data for those after it
        self._held: dict[int, weakref.ref[Buffer]] = {}
        self._largest: list[tuple[int, int]] = []  # a heap of −bytes and key of what may be spilled; also of the dead
        self._dead: deque[tuple[int, int]] = deque()  # appended by finalizers, which may run at any allocation
        self._keys = itertools.count()
        self._spare: dict[tuple[tuple[int, ...], np.dtype[Any]], list[Array]] = {}
        self._spare_bytes = 0
        self._lock = threading.Lock()
        self._file: _SpillFile | None = None
        self._base = process_memory()
        self._relieved = self._base  # bytes that the process had when freed memory was last given back

    @property
    def scratch(self) -> int:
        """Bytes that one thread may decode, gather or sort at a time: all of them take a quarter of the limit."""
        return self.limit // (4 * self.threads)

    @contextmanager
    def reserved(self, nbytes: int) -> Iterator[None]:
        """Leave this much more of the limit to what is no state, but at least an eighth of the limit to states."""
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

    def borrow(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised array for a builder, reused if one of this shape was given back: fresh memory is slow."""
        shape = (shape,) if isinstance(shape, int) else shape
        with self._lock:
            spare = self._spare.get((shape, np.dtype(dtype)))
            if spare:
                found = spare.pop()
                self._spare_bytes -= found.nbytes
                return found
        return np.empty(shape, dtype)

    def give_back(self, array: Array) -> None:
        """Return a borrowed array that nothing else refers to; it is kept while states leave room for it."""
        if array.nbytes >= _WORTH_KEEPING:
            with self._lock:
                self._forget_dead()
                if self.resident + self._spare_bytes + array.nbytes <= self.room:
                    self._spare.setdefault((array.shape, array.dtype), []).append(array)
                    self._spare_bytes += array.nbytes

    def _drop_spares(self) -> None:
        self._spare.clear()
        self._spare_bytes = 0

    def release_spares(self) -> None:
        """Drop the spare arrays; call when no builder is running.

        Where states fill half of the limit, what Arrow and the C library keep of freed memory goes back to the system:
        it lies in pieces between the states and would add to what follows. Else it is kept: fresh memory is slow.
        """
        with self._lock:
            self._drop_spares()
            self._forget_dead()
        if self.resident > self.limit // 2:
            give_back_freed()

    def relieve(self) -> None:
        """Give freed memory back as `release_spares` does, where the process has grown by the limit, and since.

        Freed memory that is used again costs nothing, so only growth since the last time calls for it.
        """
        taken = process_memory()
        self._relieved = min(self._relieved, taken)
        if taken - self._base > self.limit and taken - self._relieved > self.limit * _GROWTH:
            give_back_freed()
            self._relieved = process_memory()

    def hold(self, array: Array, overhead: int = 0) -> Buffer:
        """Count an array in the budget; this may spill it or others.

        `overhead` bytes more live as long as the array, and are never spilled.
        """
        buffer = Buffer(array)
        if not buffer.nbytes:
            return buffer
        with self._lock:
            key = self._count(buffer, buffer.nbytes)
            if buffer.nbytes >= _SMALL:
                heapq.heappush(self._largest, (-buffer.nbytes, key))
            if overhead:
                self._count(buffer, overhead)
        self._spill_excess()
        if buffer.nbytes >= _WORTH_KEEPING:
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
        """Spill the largest arrays until the rest fits; spare arrays go first."""
        with self._lock:
            self._forget_dead()
            if self.resident + self._spare_bytes > self.room:
                self._drop_spares()
            while self.resident > self.room and self._largest:
                _, key = self._largest[0]  # still there if it cannot be written: the disk may have room later
                held = self._held.get(key)
                buffer = None if held is None else held()
                if buffer is not None:
                    self._spill(buffer, key)
                heapq.heappop(self._largest)
                self._forget_dead()

    def _spill(self, buffer: Buffer, key: int) -> None:
        if self._file is None:
            self._file = _SpillFile(self.directory)
        buffer.spill(self._file)
        del self._held[key]
        self.resident -= buffer.nbytes
        self.spilled += buffer.nbytes

    def _forget_dead(self) -> None:
        while self._dead:
            key, nbytes = self._dead.popleft()
            if self._held.pop(key, None) is not None:
                self.resident -= nbytes
        if len(self._largest) > 2 * len(self._held) + 64:
            self._largest = [entry for entry in self._largest if entry[1] in self._held]
            heapq.heapify(self._largest)
