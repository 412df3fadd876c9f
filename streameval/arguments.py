"""Arguments: what people pass as names and numbers, one or several, as plain tuples.

Lists, tuples and arrays are alike, numbers of numpy are numbers, and whatever else is given is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streameval.errors import OptionError

__all__ = ["columns", "number", "numbers", "texts"]


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
        msg = f"{name}={given!r}: a name is empty; leave it out"
        raise OptionError(msg)
    return tuple(dict.fromkeys(map(str, several)))


def number(given: Any) -> Any:
    """A number of numpy as one of Python, by the decimal it is written as; anything else as it is.

    Examples
    --------
    >>> import numpy as np
    >>> number(np.float32(0.1)), number(np.int64(200)), number("high")
    (0.1, 200, 'high')
    """
    if isinstance(given, np.floating):
        return float(str(given))
    return int(given) if isinstance(given, np.integer) else given


def numbers(name: str, given: Any) -> tuple[float, ...]:
    """One number or several as a tuple.

    Examples
    --------
    >>> numbers("truncate", 0.1), numbers("truncate", np.array([0.1, 200]))
    ((0.1,), (0.1, 200.0))
    """
    several = _several(given)
    plain = None if several is None else tuple(number(x) for x in several)
    if plain is None or not all(isinstance(x, int | float) for x in plain):
        msg = f"{name}={given!r} must be a number or a list of numbers"
        raise OptionError(msg)
    return plain


def _several(given: Any) -> Sequence[Any] | None:
    """The elements of a list, a tuple or an array; a text or a number alone; None of what is none of these."""
    if isinstance(given, str | int | float | np.generic):
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
