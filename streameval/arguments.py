"""Arguments: what people pass as names and numbers, one or several, as plain tuples.

Lists, tuples and arrays are alike, numbers of numpy are numbers, and whatever else is given is refused by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from streameval.errors import OptionError

__all__ = ["columns", "number", "numbers", "plain", "texts", "whole"]


def texts(name: str, given: Any) -> tuple[str, ...]:
    """One string or several as a tuple, each once.

    Examples
    --------
    >>> texts("score", "a"), texts("score", ["a", "b", "a"]), texts("score", None)
    (('a',), ('a', 'b'), ())
    """
    several = () if given is None else _several(given)
    if several is None or not all(isinstance(text, str) for text in several):
        msg = f"{name}={given!r} must be a name or a list of names"
        raise OptionError(msg)
    if not all(several):
        msg = f"{name}='': a name is empty; leave it out"
        raise OptionError(msg)
    return tuple(dict.fromkeys(map(str, several)))


def plain(given: Any) -> Any:
    """A number of numpy as one of Python, by the decimal it is written as; anything else as it is.

    Examples
    --------
    >>> import numpy as np
    >>> plain(np.float32(0.1)), plain(np.int64(200)), plain("high")
    (0.1, 200, 'high')
    """
    if isinstance(given, np.floating):
        return float(str(given))
    return given.item() if isinstance(given, np.integer | np.bool_) else given


def number(name: str, given: Any, what: str, least: float = -math.inf) -> float:
    """A finite number of at least `least`; `what` is it in words.

    Examples
    --------
    >>> number("threshold", np.int64(2), "a cluster size", 0)
    2
    """
    found = plain(given)
    if _is_number(found) and least <= found and -math.inf < found < math.inf:
        return found
    msg = f"{name}={given!r} is not {what}"
    raise OptionError(msg)


def whole(name: str, given: Any, what: str, least: float = -math.inf) -> int:
    """A whole number of at least `least`, and neither a truth value nor a float; `what` is it in words.

    Examples
    --------
    >>> whole("threads", np.int8(2), "a whole number of at least 1", 1)
    2
    >>> whole("threads", 2.5, "a whole number of at least 1", 1)
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: threads=2.5 is not a whole number of at least 1
    """
    try:
        found = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        found = None
    if found is None or found < least:
        msg = f"{name}={given!r} is not {what}"
        raise OptionError(msg)
    return found


def _is_number(given: Any) -> TypeGuard[float]:
    """Whether it is a number of Python; a truth value is none."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def numbers(name: str, given: Any) -> tuple[float, ...]:
    """One number or several as a tuple.

    Examples
    --------
    >>> numbers("truncate", 0.1), numbers("truncate", np.array([0.1, 200]))
    ((0.1,), (0.1, 200.0))
    """
    several = _several(given)
    found = None if several is None else tuple(map(plain, several))
    if found is None or not all(map(_is_number, found)):
        msg = f"{name}={given!r} must be a number or a list of numbers"
        raise OptionError(msg)
    return found


def _several(given: Any) -> Sequence[Any] | None:
    """The elements of a list, a tuple or an array; a text or a number alone; None of what is none of these."""
    if isinstance(given, str | bytes | int | float | np.generic):
        return (given,)
    if hasattr(given, "__array__"):
        return tuple(np.asarray(given).ravel())
    return given if isinstance(given, Sequence) else None


def columns(**given: Any) -> dict[str, str | None]:
    """Optional column names; an empty one counts as none."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            msg = f"{name}={value!r} must be the name of a column"
            raise OptionError(msg)
    return {name: value or None for name, value in given.items()}
