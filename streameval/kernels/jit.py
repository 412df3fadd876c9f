"""One decorator for every compiled loop.

A loop is compiled on its first call, and numba is imported only then: a command that finds its results in a store
compiles nothing. Compiled code is cached next to the package, or else in the user's cache folder; ``NUMBA_CACHE_DIR``
names another folder. If none is writable, every process compiles the loops again. The cache consists of pickles, so
nobody else may have write access to its folder. If several processes need a loop at the same time, one compiles it and
the others load the stored code (`_lock`).

Compiling takes memory that the process keeps: numba's compiler once, and a few megabytes for each loop. Keepers of a
memory limit are told before (`tell_before_compiling`).
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet
from zlib import crc32

from streameval import posix
from streameval.errors import StreamevalError
from streameval.forks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.typing import Array

    Loop = Callable[..., Any]  # numba infers the types of what it compiles, for each type of array

COMPILING = 200 << 20  # bytes, about, that compiling all loops of one run takes; several kinds of runs take more
_COMPILER, _LOOP = 64 << 20, 4 << 20  # bytes of numba's compiler, and of a compiled loop
_PATIENCE, _POLL = 30.0, 0.02  # seconds to wait for another process, and between two checks
_UNCACHED: list[str] = []  # loops without a writable cache

_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "no_cfunc_wrapper": True}


class MemoryKeeper(Protocol):
    """Keeps a memory limit, and makes room for compiling."""

    def make_room_to_compile(self, nbytes: int) -> None:
        """Account for this many more bytes from now on."""


_KEEPERS: WeakSet[MemoryKeeper] = WeakSet()
_KEEPERS_LOCK = new_lock()  # a set must not grow while another thread iterates over it
_COMPILED: list[str] = []  # loops that this process compiled itself
_CUT_OFF: list[bool] = []  # not empty if a fork cut off the thread that was compiling
_MAKING = new_lock(threading.RLock, lambda: _CUT_OFF.append(True), wait=True)


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
    """A function that numba compiles on its first call, from Python or from another loop.

    Parameters
    ----------
    function : the Python function
    make : turns the Python function into numba's form of it
    """

    def __init__(self, function: Loop, make: Callable[[Loop], Loop]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._make = make
        self._made: Loop | None = None
        self._run: Loop = self._begin

    def __call__(self, *arguments: object) -> Any:
        """Run the compiled loop."""
        return self._run(*arguments)

    def __reduce__(self) -> str:
        """Pickle by reference, so that a worker makes its own."""
        return self._function.__qualname__

    def _begin(self, *arguments: object) -> Any:
        return self.made()(*arguments)

    def made(self) -> Loop:
        """Numba's form of the function, in whose globals every deferred function is replaced by its own form."""
        with _MAKING:
            if self._made is None:
                _check_fork()
                _check_settings()
                known = dict(self._function.__globals__)
                function = FunctionType(self._function.__code__, known, None, self._function.__defaults__)
                made = self._make(update_wrapper(function, self._function))
                self._made = made  # set before the functions that it calls, which may call it back
                for name in _names(self._function.__code__):
                    if isinstance(known.get(name), Deferred):
                        known[name] = known[name].made()
                self._run = made
            return self._made


def _check_fork() -> None:
    """Raise `StreamevalError` in a child whose parent was compiling: numba's locks and loops are left half-changed."""
    if _CUT_OFF:
        raise StreamevalError(
            "another thread was compiling loops when this process was forked; start processes by spawn or forkserver"
        )


@cache
def _check_settings() -> None:
    """Raise `StreamevalError` if the environment keeps numba from compiling."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Environment variable 'NUMBA_")
            import numba
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise StreamevalError(
            f"the compiler cannot be loaded: {reason}; correct or unset the NUMBA_ variables of the environment"
        ) from error
    if numba.config.DISABLE_JIT:
        raise StreamevalError("NUMBA_DISABLE_JIT is set, but the loops of streameval must be compiled; unset it")


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals in the code and in nested code."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def jit(function: Loop) -> Loop:
    """Compile `function` on its first call, without the GIL, cached where possible.

    A loop that passes a counter to another loop begins it with ``np.int64(0)``: for a literal 0, numba compiles the
    other loop twice.

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
    return Deferred(function, _compile)


def _compile(function: Loop) -> Loop:
    import numba

    loop = numba.njit(**_OPTIONS)(function)
    cache = _cache_class()(function)
    loop._cache = cache  # noqa: SLF001 - numba has no public setter for a cache of another class
    compile_or_load = loop.compile

    def compile_alone(signature: object) -> object:
        with _MAKING, ExitStack() as cache.turn:
            _check_fork()
            return compile_or_load(signature)

    loop.compile = compile_alone
    return loop


@contextmanager
def _lock(folder: str, loop: str) -> Iterator[None]:
    """Keep other processes from compiling a loop; without effect after 30 s, and where files cannot be locked."""
    with ExitStack() as unlock:
        with suppress(OSError):
            # one byte for each loop: a process that compiles a loop also compiles those that it calls
            file, place, until = _lock_file(folder), crc32(loop.encode()), time.monotonic() + _PATIENCE
            while time.monotonic() < until:
                if posix.lock_byte(file, place):
                    unlock.callback(posix.unlock_byte, file, place)
                    break
                time.sleep(_POLL)
        yield


@cache
def _lock_file(folder: str) -> int:
    """The open lock file of a folder; it stays open, because closing it would drop all locks in it."""
    return os.open(Path(folder) / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


@cache
def _cache_class() -> Loop:
    """Numba's cache, with checksums, one process at a time, and faster loading.

    Before it loads anything, numba imports the compiled forms of NumPy, strings, lists and dictionaries, which takes
    0.15 s of every process. This cache skips that; numba imports them anyway before it compiles.

    Numba does not sync its files, so a power cut may leave them empty, short or full of zeros, and machine code of
    zeros ends the process: `CheckedFile` verifies what it loads, and what cannot be loaded is compiled again.

    Numba numbers files before it writes them, so two processes that store a loop for different types at once would use
    one file, and later processes would run code for the wrong types. So a loop that is not stored is compiled under a
    lock, after another look for the code of a process that held the lock before.
    """
    import pickle

    from numba.core.caching import FunctionCache, IndexDataCacheFile
    from numba.core.runtime import rtsys

    class CheckedFile(IndexDataCacheFile):  # type: ignore[misc]  # numba ships no types, so its class is Any
        def _dump(self, obj: object) -> bytes:
            data: bytes = super()._dump(obj)
            return data + crc32(data).to_bytes(4, "little")  # unpickling ignores what follows

        def _load_data(self, name: str) -> object:
            data = Path(self._data_path(name)).read_bytes()
            if crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
                return None
            return pickle.loads(data)  # noqa: S301 - nobody else may write to the folder

    class CheckedCache(FunctionCache):  # type: ignore[misc]  # numba ships no types, so its class is Any
        turn: ExitStack  # ends when the loop is compiled and stored, or could not be

        def __init__(self, function: Loop) -> None:
            try:
                super().__init__(function)
            except RuntimeError:  # "no locator available": nowhere to write
                self._enabled = False
                _UNCACHED.append(function.__name__)
            else:
                stamp = self._impl.locator.get_source_stamp()
                self._cache_file = CheckedFile(self.cache_path, self._impl.filename_base, stamp)

        def load_overload(self, sig: object, target_context: object) -> object:
            rtsys.initialize(target_context)
            code = self._load_or_none(sig, target_context)
            if code is None and self._enabled:
                self.turn.enter_context(_lock(self.cache_path, self._impl.filename_base))
                code = self._load_or_none(sig, target_context)
            if code is None:
                _make_room(self._name)
                if gc.isenabled():  # searching the many objects of numba takes 6 % of the time
                    gc.disable()
                    self.turn.callback(gc.enable)
            return code

        def _load_or_none(self, sig: object, target_context: object) -> object:
            try:
                return self._load_overload(sig, target_context)
            except Exception:
                return None

        def save_overload(self, sig: object, data: object) -> None:
            for _ in range(2):
                try:
                    return self._save_overload(sig, data)
                except Exception:
                    with suppress(OSError):
                        self._cache_file.flush()
            _UNCACHED.append(self._name)
            return None

    return CheckedCache


def is_cached() -> bool:
    """Whether the loops called so far are cached for all processes.

    Examples
    --------
    >>> is_cached() in (True, False)
    True
    """
    return not _UNCACHED


def inline(function: Loop) -> Loop:
    """Compile `function` into the loops that call it: a call would count references to each array argument.

    Only loops can call it, so it has no wrapper for Python, which would be a second copy to compile.

    Examples
    --------
    >>> @inline
    ... def last(values):
    ...     return values[values.size - 1]
    >>> @jit
    ... def ends(values):
    ...     return values[0] + last(values)
    >>> import numpy as np
    >>> ends(np.array([3, 4, 5]))
    8
    """
    return Deferred(function, partial(_within_loops, forceinline=True))


def step(function: Loop) -> Loop:
    """Compile `function` for loops that call it rarely, a few times for each bucket or block.

    It stays a separate function, so that a long loop can be read in parts. Only loops can call it, so it has no wrapper
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
    return Deferred(function, _within_loops)


def _within_loops(function: Loop, **options: bool) -> Loop:
    import numba

    return numba.njit(no_cpython_wrapper=True, **options, **_OPTIONS)(function)


def intrinsic(function: Loop) -> Loop:
    """Let loops call what `function` generates; see `numba.extending.intrinsic`."""
    return Deferred(function, _intrinsic)


def _intrinsic(function: Loop) -> Loop:
    from numba.extending import intrinsic as made

    return made(function)


def read_only(array: Array) -> Array:
    """A read-only view of the array.

    Numba compiles a loop separately for writable arrays and for read-only arrays, such as Arrow's. With read-only views
    it compiles once.

    Examples
    --------
    >>> import numpy as np
    >>> read_only(np.zeros(3)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view
