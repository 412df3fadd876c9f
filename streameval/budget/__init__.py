"""One memory budget for all live states, and the spill file for what exceeds it.

A `Budget` counts the bytes of the arrays that states hold. When they exceed the limit, the largest arrays are written
to the spill file until the rest fits. A spilled array is read back slice by slice. The file is unlinked as soon as it
is open, so that a killed process leaves nothing behind.

Memory is taken outside states too. Reading and collecting rows is reserved from the limit while it lasts
(`Budget.reserved`), compiling loops for good, since the compiler keeps what it takes (`Budget.make_room_to_compile`),
what a thread gathers or sorts at a time is a share of it (`Budget.scratch`), and what the
allocators keep of freed memory goes back to the system where the limit is near (`Budget.relieve`).

Spilling costs time and changes no result.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
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
    spill_directory,
)
from streameval.errors import SpillError
from streameval.kernels.jit import COMPILING, tell_before_compiling

if TYPE_CHECKING:
    import os
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
    "spill_directory",
]

LEAST_ROOM = 1 / 8  # share of the limit that states always have
_SMALL = 1 << 13  # bytes; spilling less than this frees nothing worth a system call
_WORTH_KEEPING = 1 << 16  # bytes from which an array is kept for another builder
_GROWTH = 1 / 32  # share of the limit by which a process grows until freed memory is given back again
_LOG = logging.getLogger(__name__)


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
        self._file: SpillFile | None = None
        self._base = process_memory()
        self._relieved = self._base  # bytes that the process had when freed memory was last given back
        self._compiling = 0
        tell_before_compiling(self)

    @property
    def scratch(self) -> int:
        """Bytes that one thread may decode, gather or sort at a time: all of them take a quarter of the limit."""
        return self.limit // (4 * self.threads)

    @contextmanager
    def reserved(self, nbytes: int) -> Iterator[None]:
        """Reserve this much of the limit for uses other than states, but leave states at least an eighth of it."""
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
        """Leave this much less of the limit to states for good; say once in a process if that does not fit."""
        self._compiling += nbytes
        self._reserve(nbytes)
        if self.limit - self._reserved - max(COMPILING - self._compiling, 0) < self.limit * LEAST_ROOM:
            _warn_of_compiling()
        with suppress(SpillError):  # whoever compiles may not be the owner, who meets it with the next array
            self._spill_excess()

    def borrow(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised array for a builder, reused if one of this shape was given back: fresh memory is slow."""
        shape = (shape,) if isinstance(shape, int) else shape
        with self._lock:
            spare = self._spare.get((shape, np.dtype(dtype)))
            if spare:
                found = spare.pop()
                self._spare_bytes -= found.nbytes
                return found
        return fresh_array(shape, dtype)

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
        """Give freed memory back as `release_spares` does, if the process has grown by the limit, and again since.

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
                _, key = self._largest[0]  # still there if it cannot be written: the disk may have room later
                held = self._held.get(key)
                buffer = None if held is None else held()
                if buffer is not None:
                    self._spill(buffer, key)
                heapq.heappop(self._largest)
                self._forget_dead()

    def _spill(self, buffer: Buffer, key: int) -> None:
        if self._file is None:
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
        "the loops of this run are being compiled, once on a machine: that takes some %d MiB, more than the memory "
        "limit leaves; compile them beforehand (python -m streameval.warm) or give more (--memory)",
        COMPILING >> 20,
    )
