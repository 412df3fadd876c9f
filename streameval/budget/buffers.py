"""Buffers: arrays that may be spilled, and the file to which they are spilled.

A spilled array is read back slice by slice. The file is unlinked as soon as it is open, so a killed process leaves
nothing behind.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import SpillError
from streameval.forks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done : done + (1 << 30)], start + done)
        except OSError as error:
            self._withdraw(start, start + len(data))
            raise self._failure(error, "written") from error
        return start

    def _withdraw(self, start: int, stop: int) -> None:
        """Release the disk space of a failed write, if it is the last one in the file."""
        with self._lock:
            if self._end == stop:
                self._end = start
                os.ftruncate(self._file.fileno(), start)

    def read(self, offset: int, out: Array) -> None:
        """Fill `out` with the bytes from `offset` on; raises `SpillError` if they cannot be read."""
        data = out.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(data):
            try:
                count = os.preadv(self._file.fileno(), [data[done : done + (1 << 30)]], offset + done)
            except OSError as error:
                raise self._failure(error, "read") from error
            if count == 0:
                raise SpillError(
                    errno.EIO, "the spill file ended early; was it truncated by another process?", str(self.directory)
                )
            done += count


class _Spilled(NamedTuple):
    """Position of an array in a spill file."""

    file: SpillFile
    offset: int


class Buffer:
    """An array in memory or in the spill file, read by ranges of rows.

    A part of a buffer, and a buffer computed from one, keep the original buffer alive; its memory is released only with
    the original, or when that is spilled.

    Attributes
    ----------
    owner : weak reference to the budget that counts it; None if there is none

    Examples
    --------
    >>> import numpy as np
    >>> part = Buffer(np.arange(9)).part(2, 8)
    >>> part.nbytes, part.read(1, 3), part.part(4, 6).read()
    (48, array([3, 4]), array([6, 7]))
    >>> part.computed(np.negative, np.int64).part(4, 6).read()
    array([-6, -7])
    """

    __slots__ = ("__weakref__", "_address", "_data", "_first", "_whole", "dtype", "owner", "shape")

    def __init__(self, array: Array) -> None:
        self._data: Array | _Spilled = array
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

    def computed(self, compute: Callable[[Array], Array], dtype: Any) -> Buffer:
        """A buffer of type `dtype` whose rows are computed by a function on every read, and take no memory."""
        return Computed(self.shape, dtype, lambda start, stop: compute(self.read(start, stop)))

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
            self._data = _Spilled(file, file.write(self._data))

    def read(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows from `start` to `stop`; a view if the array is in memory."""
        stop = self.shape[0] if stop is None else stop
        if self._whole is not None:
            return self._whole.read(self._first + start, self._first + stop)
        data = self._data  # another thread may spill it at any time
        if isinstance(data, np.ndarray):
            return data[start:stop]
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        data.file.read(data.offset + start * self.row_bytes, out)
        return out

    def located(self, start: int, stop: int) -> tuple[int, Array]:
        """The address of the rows from `start` to `stop`, which is valid as long as the returned array lives."""
        if self._whole is not None:
            return self._whole.located(self._first + start, self._first + stop)
        data = self._data  # another thread may spill it at any time
        if not isinstance(data, np.ndarray):
            found = self.read(start, stop)
            return _address(found), found
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

    def __init__(self, shape: tuple[int, ...], dtype: Any, compute: Callable[[int, int], Array]) -> None:
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
        found = self.read(start, stop)
        return _address(found), found


def _address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]
    return found
