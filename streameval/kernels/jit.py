"""One decorator for every compiled loop.

Compiled code is cached next to the package, or else in the user's own cache folder; ``NUMBA_CACHE_DIR`` names another.
If none of them can be written, every process compiles the loops again. The cache is pickle: its folder must not be
one that others can write to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["inlined", "is_cached", "jit", "read_only"]

_UNCACHED: list[str] = []  # loops for which there is no writable cache

_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}


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
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # "no locator available": nowhere to write the cache
        _UNCACHED.append(function.__name__)
        return numba.njit(**_OPTIONS)(function)


def is_cached() -> bool:
    """Whether the loops imported so far are compiled only once for all processes.

    Examples
    --------
    >>> is_cached() in (True, False)
    True
    """
    return not _UNCACHED


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into the loops that call it: a call would count references to each array it is given.

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
    return numba.njit(forceinline=True, **_OPTIONS)(function)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array as a view that cannot be written to.

    A loop is compiled anew for arrays that can be and for those that cannot, as Arrow's: given views, it is compiled
    once.

    Examples
    --------
    >>> import numpy as np
    >>> read_only(np.zeros(3)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view
