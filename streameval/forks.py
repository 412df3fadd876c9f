"""Forks: what a forked child must not inherit, reset in one place.

A child has the memory of its parent, but only the thread that forked. A lock that another thread held stays locked for
ever, and a pool waits for threads that no longer exist. So threads live no longer than a call (`map_threads`), and
locks that outlive a call are made by `new_lock`, which the child releases. Importing and compiling have locks of their
own, so a fork waits up to 3 s in total for modules that streameval uses (`_LAZY`), for loops, and for deltalake, while
other threads import, compile or reload them. It does not wait for other modules: what they import may wait for the
fork. What has not ended by then is refused in the child.

Spill files are shared with the parent, so a child that spills begins a file of its own (`streameval.budget`).
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from functools import cached_property
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary, ref

from streameval.errors import StreamevalError
from streameval.posix import around_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Lock, RLock

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE = 3.0  # seconds that a fork waits in total for modules and locks
_LAZY = {  # packages that are imported when they are first used, so perhaps while another thread forks
    *("cloudpickle", "dask", "deltalake", "distributed", "llvmlite", "matplotlib", "numba", "numpy", "pandas"),
    *("pyarrow", "scipy", "streameval"),
}
_LOCKS: WeakKeyDictionary[Any, tuple[Callable[[], Any], bool]] = WeakKeyDictionary()
_RESETS: list[Callable[[], object]] = []
_TAKEN: list[Any] = []  # locks that the forking thread holds during the fork
_STALE = {"process": False, "deltalake": False}  # whether this process is a child, and has its parent's deltalake


def new_lock(
    kind: Callable[[], Lock | RLock] = threading.Lock, lost: Callable[[], object] | None = None, *, wait: bool = False
) -> Lock | RLock:
    """A lock that is free in a forked child.

    Parameters
    ----------
    kind : `threading.Lock` or `threading.RLock`
    lost : called in a child if another thread held the lock, so that what it guards may be half-changed
    wait : whether a fork waits until no other thread holds the lock; 3 s for all such locks, and for modules

    Examples
    --------
    >>> with new_lock():
    ...     pass
    """
    lock = kind()
    _LOCKS[lock] = _refer(lost), wait
    return lock


def _refer(function: Callable[[], object] | None) -> Callable[[], Callable[[], object] | None]:
    """A function that returns the given one; a method only as long as its object is alive.

    A `WeakMethod` has a callback, which fails with a message if the object lives until Python ends.
    """
    if not isinstance(function, MethodType):
        return lambda: function
    owner, method = ref(function.__self__), function.__func__
    return lambda: None if (alive := owner()) is None else MethodType(method, alive)


def on_fork(reset: Callable[[], object]) -> None:
    """Call `reset` in every forked child."""
    _RESETS.append(reset)


def map_threads(
    function: Callable[[T], R], items: Sequence[T], threads: int, cancel: Callable[[], object] = lambda: None
) -> list[R]:
    """Map a function over items in this thread and in others that end with the call; the results are in order.

    The calling thread works, too: a thread that waited would hand its processor to one that must be woken for it.

    Parameters
    ----------
    function : called with one item
    items : the items, begun in order
    threads : largest number of threads
    cancel : called when an item has failed, to end the others early; no further item is begun

    Raises
    ------
    BaseException
        The first that `function` raised in any thread.

    Examples
    --------
    >>> map_threads(abs, [-3, 2, -1], 2)
    [3, 2, 1]
    """
    results: dict[int, R] = {}
    remaining, lock = iter(range(len(items))), threading.Lock()
    failures: list[BaseException] = []

    def begin_no_more() -> None:
        with lock:
            deque(remaining, 0)

    def work() -> None:
        try:
            while True:
                with lock:
                    i = next(remaining, None)
                if i is None:
                    return
                results[i] = function(items[i])
        except BaseException as error:
            failures.append(error)
            begin_no_more()
            cancel()

    others = [threading.Thread(target=work) for _ in range(min(threads, len(items)) - 1)]
    try:
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]
    finally:
        begin_no_more()  # after an interrupt, which does not wait for the others
        failures.clear()  # an error has the frames that hold it, and so all that they hold
    return [results[i] for i in range(len(items))]


def is_forked() -> bool:
    """Whether this process was forked after streameval had been imported.

    Examples
    --------
    >>> is_forked()
    False
    """
    return _STALE["process"]


class _Unusable(ModuleType):
    """Takes the place of a module that another thread was importing, which to import again would wait for ever."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        raise StreamevalError(
            f"another thread was importing {self.__name__} when this process was forked; "
            "start processes by spawn or forkserver"
        )


def _before() -> None:
    end = time.monotonic() + _PATIENCE
    while _find_imports() and time.monotonic() < end:
        time.sleep(0.005)
    waiting = [lock for lock, (_, wait) in list(_LOCKS.items()) if wait]
    _TAKEN[:] = [lock for lock in waiting if lock.acquire(timeout=max(0.0, end - time.monotonic()))]


def _find_imports() -> list[str]:
    """The modules of `_LAZY` that threads other than this one are importing."""
    names = [
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in _LAZY and getattr(getattr(module, "__spec__", None), "_initializing", False)
    ]
    frame = sys._getframe() if names else None  # noqa: SLF001 - the stack tells what this thread is importing
    while frame:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") in names:
            names.remove(frame.f_globals["__name__"])
        frame = frame.f_back
    return names


def _after() -> None:
    while _TAKEN:
        _TAKEN.pop().release()


def _in_child() -> None:
    _after()
    _STALE.update(process=True, deltalake="deltalake" in sys.modules)
    sys.modules.update({name: _Unusable(name) for name in _find_imports()})
    _free_modules()
    for lock, (lost, _) in list(_LOCKS.items()):
        if lock.acquire(blocking=False):
            lock.release()
            continue
        lock._at_fork_reinit()  # noqa: SLF001 - as `logging` and `threading` do with their locks
        if (call := lost()) is not None:
            call()
    if sys.version_info < (3, 12):
        _free_properties()
    for reset in _RESETS:
        reset()


def _free_modules() -> None:
    """Drop the locks of modules that other threads were about to import: they had looked for a file, and run nothing.

    Python renews its lock of all imports after a fork, but not those of single modules.
    """
    locks = sys.modules["_frozen_importlib"]._module_locks  # noqa: SLF001 - nothing public tells or frees them
    for name in [name for name in list(locks) if name.partition(".")[0] in _LAZY and name not in sys.modules]:
        lock = locks[name]()
        if lock is not None and lock.owner not in (None, threading.get_ident()):
            del locks[name]


def _free_properties() -> None:
    """Renew the locks of cached properties: before Python 3.12, all objects of a class share one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("streameval."):
            for kind in [value for value in vars(module).values() if isinstance(value, type)]:
                for value in vars(kind).values():
                    if isinstance(value, cached_property):
                        value.lock = threading.RLock()  # type: ignore[attr-defined]  # it is gone from typeshed


around_forks(_before, _after, _in_child)


def import_deltalake() -> ModuleType:
    """The module `deltalake`; a forked child whose parent had imported it gets a new one.

    Its runtime belongs to the process that started it, and panics in any other. A runtime is a variable of the shared
    library, so the child loads a copy of the library, which is unlinked at once.

    Examples
    --------
    >>> import_deltalake().DeltaTable.__name__
    'DeltaTable'
    """
    with _LOADING:
        if _STALE["deltalake"]:
            _load_deltalake()
        return importlib.import_module("deltalake")


def _load_deltalake() -> None:
    """Import the modules of deltalake again; those of the parent stay if that fails."""
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "deltalake"}
    spec = PathFinder.find_spec("deltalake._internal", modules["deltalake"].__path__)
    for name in modules:
        del sys.modules[name]
    name, library = "deltalake._internal", str(spec and spec.origin)
    try:
        with tempfile.NamedTemporaryFile(suffix=".so") as copy:
            shutil.copyfile(library, copy.name)
            loader = ExtensionFileLoader(name, copy.name)
            sys.modules[name] = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=copy.name))
            loader.exec_module(sys.modules[name])
        importlib.import_module("deltalake")
    except BaseException as error:
        sys.modules.update(modules)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise StreamevalError(
            f"deltalake cannot be loaded again after a fork, from a copy in {tempfile.gettempdir()} ({error}); "
            "name another directory by TMPDIR, or start processes by spawn or forkserver"
        ) from error
    _STALE["deltalake"] = False


# held while deltalake is imported
_LOADING = new_lock(threading.RLock, lambda: sys.modules.update(deltalake=_Unusable("deltalake")), wait=True)
