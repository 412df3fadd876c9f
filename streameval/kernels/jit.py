"""One decorator for every compiled loop.

A loop is compiled on its first call, and numba is imported only then: a command that finds what it needs in a store
compiles nothing. Compiled code is cached next to the package, or else in the user's cache folder; ``NUMBA_CACHE_DIR``
names another folder. If none is writable, every process compiles the loops again. The cache is made of pickles, so
nobody else may be able to write to its folder. Of several processes that need a loop at the same time, one compiles it
and the others load what it stored (`Turn`).

Compiling takes memory that the process keeps: numba's compiler once, and a few megabytes for each loop. Whoever bounds
memory is told before (`tell_before_compiling`).
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

__all__ = [
    "COMPILING",
    "inlined",
    "intrinsic",
    "is_cached",
    "jit",
    "read_only",
    "step",
    "tell_before_compiling",
]

COMPILING = 200 << 20  # bytes, about, that all loops of one run take to compile; several kinds of runs take more
_COMPILER, _LOOP = 64 << 20, 4 << 20  # bytes of numba's compiler, and of a loop that it compiled
_PATIENCE, _POLL = 30.0, 0.02  # seconds to wait for another process, and between two looks whether it is done
_UNCACHED: list[str] = []  # loops for which there is no writable cache
_MAKING = threading.RLock()

_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "no_cfunc_wrapper": True}


class MemoryKeeper(Protocol):
    """What bounds memory, and so makes room for compiling."""

    def make_room_to_compile(self, nbytes: int) -> None:
        """Bear that compiling takes this many bytes from now on."""


_KEEPERS: WeakSet[MemoryKeeper] = WeakSet()
_KEEPERS_LOCK = threading.Lock()  # a set must not grow while another thread goes through it
_COMPILED: list[str] = []  # loops that this process compiled itself


def tell_before_compiling(keeper: MemoryKeeper) -> None:
    """Have a keeper make room whenever a loop is about to be compiled, for as long as the keeper lives."""
    with _KEEPERS_LOCK:
        _KEEPERS.add(keeper)


def _make_room(name: str) -> None:
    """Tell the keepers that a loop is about to be compiled."""
    nbytes = _LOOP if _COMPILED else _COMPILER + _LOOP
    _COMPILED.append(name)
    with _KEEPERS_LOCK:
        keepers = list(_KEEPERS)
    for keeper in keepers:
        keeper.make_room_to_compile(nbytes)


class Deferred:
    """What numba makes of a function, made when it is first called, here or by another loop.

    Parameters
    ----------
    function : the Python function
    make : what numba makes of it
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._make = make
        self._made: Any = None
        self._run: Callable[..., Any] = self._begin

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled loop."""
        return self._run(*arguments)

    def __reduce__(self) -> str:
        """By reference: a worker makes its own."""
        return self._function.__qualname__

    def _begin(self, *arguments: Any) -> Any:
        return self.made()(*arguments)

    def made(self) -> Any:
        """What numba makes of the function, in whose globals numba finds no deferred one."""
        with _MAKING:
            if self._made is None:
                known = dict(self._function.__globals__)
                function = FunctionType(self._function.__code__, known, None, self._function.__defaults__)
                made = self._make(update_wrapper(function, self._function))
                self._made = made  # before the loops that it calls, which may call it
                for name in _names(self._function.__code__):
                    if isinstance(known.get(name), Deferred):
                        known[name] = known[name].made()
                self._run = made
            return self._made


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals that code speaks of, and the code within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def jit(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, without the GIL, cached where possible.

    Examples
    --------
    >>> @jit
    ... def triangle(n):
    ...     total = 0
    ...     for i in range(n):
    ...         total += i
    ...     return total
    >>> triangle(5)
    10
    """
    return Deferred(function, _compiled)


def _compiled(function: Callable[..., Any]) -> Any:
    import numba

    made = numba.njit(**_OPTIONS)(function)
    cached, uncached = _cache_classes()
    try:
        made._cache = cached(function)  # noqa: SLF001 - as ``cache=True`` does, with a class of ours
    except RuntimeError:  # "no locator available": nowhere to write the cache
        _UNCACHED.append(function.__name__)
        made._cache = uncached(function)  # noqa: SLF001 - as above
    return made


class Turn:
    """The turn of this process to compile a loop and to store its code, while others that need the loop wait.

    Without turns, two processes that compile a loop for different types at once may store their code in one file, and
    later processes would run code of the wrong types (numba numbers files before it writes them). The locks are bytes
    of one file next to the code, by the name of the loop. They end with the process; one that never ends is waited for
    only for a while. File systems and platforms without such locks are used without turns.

    Parameters
    ----------
    folder : where the code is stored
    loop : name of the loop

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     turn = Turn(folder, "triangle")
    ...     turn.begin()
    ...     turn.end()
    """

    def __init__(self, folder: str, loop: str) -> None:
        self._folder, self._place = folder, crc32(loop.encode())

    def begin(self) -> None:
        """Wait for the turn."""
        until = time.monotonic() + _PATIENCE
        while not self._locks(take=True) and time.monotonic() < until:
            time.sleep(_POLL)

    def end(self) -> None:
        """Let others have their turn."""
        self._locks(take=False)

    def _locks(self, *, take: bool) -> bool:
        """Lock or unlock; False if another process has the lock."""
        try:
            import fcntl

            how = fcntl.LOCK_EX | fcntl.LOCK_NB if take else fcntl.LOCK_UN
            fcntl.lockf(_lock_file(self._folder), how, 1, self._place)
        except BlockingIOError:
            return False
        except (ImportError, OSError):  # no locks here
            return True
        return True


@cache
def _lock_file(folder: str) -> int:
    """The file of a folder's locks, open until the process ends: closing it once would drop all locks in it."""
    return os.open(Path(folder) / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


@cache
def _cache_classes() -> tuple[Any, Any]:
    """Numba's cache, but code is loaded without what only compiling needs; and one that holds nothing.

    Numba imports the compiled forms of NumPy, strings, lists and dictionaries before it loads anything: 0.15 s of every
    process. Before it compiles, it imports them anyway.
    """
    from numba.core.caching import FunctionCache, NullCache
    from numba.core.runtime import rtsys

    class LoadingCache(FunctionCache):  # type: ignore[misc]  # numba has no types
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            self._turn = Turn(self.cache_path, self._impl.filename_base)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)
            found = self._load_overload(sig, target_context)
            if found is None:
                self._turn.begin()
                found = self._load_overload(sig, target_context)  # by the process whose turn it was
                if found is None:
                    _make_room(self._name)
                else:
                    self._turn.end()
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            finally:
                self._turn.end()

    class NoCache(NullCache):  # type: ignore[misc]  # as above
        def __init__(self, function: Callable[..., Any]) -> None:
            self._name = function.__name__

        def load_overload(self, sig: Any, target_context: Any) -> None:
            _make_room(self._name)

    return LoadingCache, NoCache


def is_cached() -> bool:
    """Whether the loops called so far are compiled only once for all processes.

    Examples
    --------
    >>> is_cached() in (True, False)
    True
    """
    return not _UNCACHED


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into the loops that call it, because a call counts references to each array argument.

    Only loops can call it. So it has no wrapper for Python, which would be a second copy to compile.

    Examples
    --------
    >>> @inlined
    ... def last(values):
    ...     return values[values.size - 1]
    >>> @jit
    ... def ends(values):
    ...     return values[0] + last(values)
    >>> import numpy as np
    >>> ends(np.array([3, 4, 5]))
    8
    """
    return Deferred(function, _inlined)


def _inlined(function: Callable[..., Any]) -> Any:
    import numba

    return numba.njit(forceinline=True, no_cpython_wrapper=True, **_OPTIONS)(function)


def step(function: Callable[..., Any]) -> Any:
    """Compile `function` for the loops that call it, a few times for each bucket or block.

    It is a separate function, so that a long loop can be read in parts. Only loops can call it, so it has no wrapper
    for Python, which would take as long to compile as a short loop.

    Examples
    --------
    >>> @step
    ... def sum_of(values, start, stop):
    ...     total = 0
    ...     for i in range(start, stop):
    ...         total += values[i]
    ...     return total
    >>> @jit
    ... def halves(values):
    ...     middle = values.size // 2
    ...     return sum_of(values, 0, middle), sum_of(values, middle, values.size)
    >>> import numpy as np
    >>> halves(np.array([3, 4, 5, 6]))
    (7, 11)
    """
    return Deferred(function, _step)


def _step(function: Callable[..., Any]) -> Any:
    import numba

    return numba.njit(no_cpython_wrapper=True, **_OPTIONS)(function)


def intrinsic(function: Callable[..., Any]) -> Any:
    """Let loops call what `function` generates; see `numba.extending.intrinsic`."""
    return Deferred(function, _intrinsic)


def _intrinsic(function: Callable[..., Any]) -> Any:
    from numba.extending import intrinsic as made

    return made(function)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A read-only view of the array.

    Numba compiles a loop separately for writable and for read-only arrays, such as Arrow's. With read-only views it
    compiles once.

    Examples
    --------
    >>> import numpy as np
    >>> read_only(np.zeros(3)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view
