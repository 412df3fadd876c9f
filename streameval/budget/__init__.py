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

import heapq
import itertools
import logging
import os
import weakref
from collections import deque
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget.buffers import Buffer, Computed, SpillFile
from streameval.budget.machine import (
    available_memory,
    available_threads,
    fresh_array,
    give_back_freed,
    parse_bytes,
    process_memory,
    room_for,
    spill_directory,
)
from streameval.errors import SpillError
from streameval.forks import new_lock
from streameval.kernels.jit import COMPILING, tell_before_compiling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.typing import Array

__all__ = [
    "LEAST_ROOM",
    "Budget",
    "Buffer",
    "Computed",
    "available_memory",
    "available_threads",
    "fresh_array",
    "give_back_freed",
    "parse_bytes",
    "room_for",
    "spill_directory",
]

LEAST_ROOM = 1 / 8  # share of the limit that is always left to states
_SMALL = 1 << 13  # bytes of an array below which spilling is not worth a system call
_WORTH_KEEPING = 1 << 16  # bytes of an array from which it is kept for another builder
_FEW = 1 << 13  # rows below which new arrays cost no more than borrowed ones
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
        self.limit = available_memory() // 4 if limit is None else limit
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
        self._spare: dict[tuple[tuple[int, ...], np.dtype[Any]], list[Array]] = {}
        self._spare_bytes = 0
        self._lock = new_lock()
        self._file: SpillFile | None = None
        self._base = process_memory()
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

    def borrow(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised array for a builder; a spare array of this shape is reused, because fresh memory is slow."""
        shape = (shape,) if isinstance(shape, int) else shape
        with self._lock:
            spare = self._spare.get((shape, np.dtype(dtype)))
            if spare:
                found = spare.pop()
                self._spare_bytes -= found.nbytes
                return found
        return fresh_array(shape, dtype)

    def give_back(self, array: Array) -> None:
        """Return a borrowed array that nothing else refers to; it is kept as a spare while states leave room for it."""
        if array.nbytes >= _WORTH_KEEPING:
            with self._lock:
                self._forget_dead()
                if self.resident + self._spare_bytes + array.nbytes <= self.room:
                    self._spare.setdefault((array.shape, array.dtype), []).append(array)
                    self._spare_bytes += array.nbytes

    @contextmanager
    def borrowed(self, rows: int, *columns: tuple[tuple[int, ...], Any]) -> Iterator[list[Array]]:
        """Uninitialised arrays with room for some rows and one more; they are given back at the end.

        Their sizes are rounded up (`room_for`), so that the arrays are reused for nearly equal numbers of rows.

        Parameters
        ----------
        rows : largest number of rows
        columns : for each array, the shape of a row and the type

        Examples
        --------
        >>> with Budget().borrowed(10_000, ((), np.int64), ((2,), np.uint64)) as arrays:
        ...     print(*(array.shape for array in arrays))
        (10240,) (10240, 2)
        """
        if rows < _FEW:
            yield [np.empty((rows + 1, *shape), dtype) for shape, dtype in columns]
            return
        room = room_for(rows + 1)
        arrays = [self.borrow((room, *shape), dtype) for shape, dtype in columns]
        try:
            yield arrays
        finally:
            for array in arrays:
                self.give_back(array)

    def _drop_spares(self) -> None:
        self._spare.clear()
        self._spare_bytes = 0

    def release_spares(self) -> None:
        """Drop the spare arrays; to be called when no builder is running.

        If states fill half of the limit, freed memory that Arrow and the C library keep is returned to the system: it
        is fragmented between the states, and would add to what is allocated next. Otherwise it is kept, because fresh
        memory is slow.
        """
        with self._lock:
            self._drop_spares()
            self._forget_dead()
        if self.resident > self.limit // 2:
            give_back_freed()

    def relieve(self) -> None:
        """Return freed memory to the system if the process has grown by more than the limit.

        It must also have grown since memory was last returned, since freed memory that is being reused does no harm.
        """
        taken = process_memory()
        self._relieved = min(self._relieved, taken)
        if taken - self._base > self.limit and taken - self._relieved > self.limit * _GROWTH:
            give_back_freed()
            self._relieved = process_memory()

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
                _, key = self._largest[0]  # kept in the heap if writing fails, because the disk may have room later
                held = self._held.get(key)
                buffer = None if held is None else held()
                if buffer is not None:
                    self._spill(buffer, key)
                heapq.heappop(self._largest)
                self._forget_dead()

    def _spill(self, buffer: Buffer, key: int) -> None:
        if self._file is None or self._file.process != os.getpid():
            self._file = SpillFile(self.directory)
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


@cache
def _warn_of_compiling() -> None:
    _LOG.warning(
        "the loops of this run are being compiled (once per machine), which takes some %d MiB, more than the memory "
        "limit leaves; compile them beforehand (python -m streameval.warm) or give more (--memory)",
        COMPILING >> 20,
    )
