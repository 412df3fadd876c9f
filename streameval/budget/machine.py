"""The memory and processors that this process may use, allocation of large arrays, and return of freed memory."""

from __future__ import annotations

import ctypes
import math
import os
import re
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.prefetch import LINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.typing import Array

_LARGE_PAGE = 1 << 21  # bytes
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_DISK = Path("/var/tmp")  # noqa: S108 - `tempfile` unlinks spill files, so no name can be guessed; /tmp is often in memory
_PAGES = Path("/proc/self/statm")


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


@cache
def available_memory() -> int:
    """Bytes of memory that this process may use: physical memory, or the limit of its cgroup if that is lower. Cached.

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
    """Files that may contain a memory limit of this process's cgroup or of its parents (cgroup v1 and v2)."""
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
    """Number of processors on which this process may run, respecting affinity.

    Examples
    --------
    >>> available_threads() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spill_directory(path: str | os.PathLike[str] | None = None) -> Path:
    """Directory for spill files: `path`, else ``$TMPDIR``, else ``/var/tmp`` (``/tmp`` is often in memory)."""
    if path is not None:
        return Path(path)
    if "TMPDIR" not in os.environ and os.access(_DISK, os.W_OK):
        return _DISK
    return Path(tempfile.gettempdir())


def fresh_array(shape: tuple[int, ...], dtype: Any) -> Array:
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
    found: Array = room[start : start + nbytes].view(dtype).reshape(shape)
    return found


def room_for(rows: int) -> int:
    """Rows of a buffer for at least `rows` rows: one of eight sizes between two powers of two.

    Tasks of nearly equal size thus borrow buffers of equal size, so that one gets what another has given back
    (`streameval.budget.Budget.borrow`). Memory is taken only for rows that are written.

    Examples
    --------
    >>> room_for(2_000_000), room_for(1_900_000), room_for(9), room_for(0)
    (2097152, 1966080, 9, 0)
    """
    step = 1 << max(rows.bit_length() - 4, 0)
    return -(-rows // step) * step


def give_back_freed() -> None:
    """Return freed memory that Arrow's allocator and the C library keep to the system, as far as they can."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # only the C libraries of Linux have it, except musl
        ctypes.CDLL(None).malloc_trim(0)


def process_memory() -> int:
    """Resident memory of this process in bytes; 0 if the system does not report it."""
    with suppress(OSError):
        return int(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
