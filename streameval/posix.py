"""All calls that only POSIX systems have: memory of the process, reads and writes at an offset, locks, forks, streams.

streameval runs on Linux, also without ``/proc`` and cgroups, and uses what macOS has as well; elsewhere, importing this
module says so. A call that only Linux has does nothing on other systems, which costs memory or time and changes no
result.

Of the standard streams of a command, a closed one is the null device, and what cannot be written to stderr is dropped.
Results that cannot be written to stdout are an error; messages never change what a command does, or its status.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

if os.name != "posix":
    raise ImportError(f"streameval runs on Linux, not on {os.name}; use WSL, a container or a virtual machine")

import ctypes
import fcntl
import resource
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST = 1 << 30  # bytes of one call
_PAGES = Path("/proc/self/statm")


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


def process_memory() -> int:
    """Resident memory of this process in bytes; the largest so far if the system does not report the current one."""
    with suppress(OSError):
        return int(_PAGES.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def trim_heap() -> None:
    """Return freed memory that the C library keeps to the system, as only the libraries of Linux can, except musl."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def write_at(file: int, data: memoryview, offset: int) -> None:
    """Write all bytes of `data` at an offset of an open file, whatever other threads write."""
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done : done + _MOST], offset + done)


def read_at(file: int, data: memoryview, offset: int) -> bool:
    """Fill `data` from an offset of an open file; False if the file ends before."""
    done = 0
    while done < len(data):
        count = os.preadv(file, [data[done : done + _MOST]], offset + done)
        if count == 0:
            return False
        done += count
    return True


@contextmanager
def locked_folder(path: str) -> Iterator[None]:
    """Keep out other processes that lock the same folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def lock_byte(file: int, place: int) -> bool:
    """Lock one byte of an open file for this process; False if another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except BlockingIOError:
        return False
    return True


def unlock_byte(file: int, place: int) -> None:
    """Unlock a byte that `lock_byte` has locked."""
    fcntl.lockf(file, fcntl.LOCK_UN, 1, place)


def around_forks(before: Callable[[], object], in_parent: Callable[[], object], in_child: Callable[[], object]) -> None:
    """Have functions called whenever this process forks."""
    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def open_streams() -> None:
    """Open the streams that are closed, and replace stderr by a stream that never fails.

    The next file that is opened would get the number of a closed stream, and what is meant for the stream would be
    written into the file. Python has None for a closed stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - it stays open
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - it stays open
    encoding = sys.stderr.encoding if sys.stderr else None
    raw: Any = _Lossy(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)
    sys.__stderr__ = sys.stderr  # type: ignore[misc]  # final in typeshed; `cli.console` compares both


class _Lossy(io.FileIO):
    """A file that drops what it cannot write: it is closed, full, or a pipe that nobody reads."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)
