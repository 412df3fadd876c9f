"""Kinds of options: the values that an option takes, and their plain form.

Lists, tuples and arrays are equivalent, and NumPy scalars count as Python numbers. An invalid value raises
`OptionError` with the name of the option. NumPy is imported inside functions, because the command line loads the option
table at start.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard

from streameval.errors import OptionError


@dataclass(frozen=True)
class Kind:
    """The values that an option takes.

    Attributes
    ----------
    check : called with the option's name and a value; returns the value in plain form or raises `OptionError`
    word : type of a value on the command line; ``bool`` for a flag
    many : whether the option takes several values
    choices : the allowed values, if they are enumerated
    """

    check: Callable[[str, Any], Any]
    word: type = str
    many: bool = False
    choices: tuple[str, ...] = ()


OTHERS = "*"  # key for all columns that are not named


@dataclass(frozen=True)
class ByColumn:
    """A value for each of some columns, and one for all others.

    Attributes
    ----------
    columns : pairs (column, value), sorted by column; columns whose value equals `others` are omitted
    others : the value of all other columns

    Examples
    --------
    >>> policy = ByColumn.of({"score_nb": "drop", "score_lr": "error"}, "error")
    >>> policy, of_column(policy, "score_nb"), of_column(policy, "score_lr"), of_column("half", "score_lr")
    ({'score_nb': 'drop', '*': 'error'}, 'drop', 'error', 'half')
    """

    columns: tuple[tuple[str, Any], ...]
    others: Any

    @classmethod
    def of(cls, values: Mapping[str, Any], others: Any) -> Any:
        """Values by column; a single value if all columns have the same."""
        own = tuple(sorted((name, value) for name, value in values.items() if value != others))
        return cls(own, others) if own else others

    def only(self, names: Iterable[str]) -> Any:
        """Restrict the values to these columns."""
        kept = set(names)
        return self.of({name: value for name, value in self.columns if name in kept}, self.others)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that the option accepts."""
        return dict(self.columns) | {OTHERS: self.others}

    def __repr__(self) -> str:
        return repr(self.to_dict())


def of_column(value: Any, column: str) -> Any:
    """The value of an option for one column."""
    return dict(value.columns).get(column, value.others) if isinstance(value, ByColumn) else value


def values_in(value: Any) -> list[Any]:
    """All values of an option: the one for other columns first, then those of named columns."""
    return [value.others, *(own for _, own in value.columns)] if isinstance(value, ByColumn) else [value]


def in_words(value: Any) -> str:
    """The plain value of an option in words.

    Examples
    --------
    >>> in_words({"score_nb": "half", "*": "drop"}), in_words(["default", "ks"]), in_words("drop")
    ('score_nb=half, others drop', 'default, ks', 'drop')
    """
    if isinstance(value, dict):
        return ", ".join(
            f"others {own}" if name == OTHERS else f"{name}={in_words(own)}" for name, own in value.items()
        )
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def plain(given: Any) -> Any:
    """A NumPy scalar as a Python number, by its shortest decimal form; any other value unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> plain(np.float32(0.1)), plain(np.int64(200)), plain("high")
    (0.1, 200, 'high')
    """
    import numpy as np

    if isinstance(given, np.floating):
        return float(str(given))
    return given.item() if isinstance(given, np.integer | np.bool_) else given


def texts(name: str, given: Any) -> tuple[str, ...]:
    """One string or several as a tuple without repeats.

    Examples
    --------
    >>> texts("score", "a"), texts("score", ["a", "b", "a"]), texts("score", None)
    (('a',), ('a', 'b'), ())
    """
    several = () if given is None else _several(given)
    if several is None or not all(isinstance(text, str) for text in several):
        raise OptionError(f"{name}={given!r} must be a name or a list of names")
    _refuse_empty(name, several)
    for text in several:
        _refuse_bytes(name, text)
    return tuple(dict.fromkeys(map(str, several)))


def _refuse_bytes(name: str, text: str) -> None:
    """Raise `OptionError` for a name with bytes that are not valid UTF-8, since no column has such a name."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise OptionError(
            f"{name}={text!r} is not valid UTF-8; check the encoding of the command or file that names it"
        )


def number(name: str, given: Any, what: str, least: float = -math.inf) -> float:
    """A finite number of at least `least`; `what` describes it in the error message.

    Examples
    --------
    >>> import numpy as np
    >>> number("aul_threshold", np.int64(2), "a cluster size", 0)
    2
    """
    found = plain(given)
    if _is_number(found) and least <= found and -math.inf < found < math.inf:
        return found
    raise OptionError(f"{name}={given!r} is not {what}")


def whole(name: str, given: Any, what: str, least: float = -math.inf, most: float = math.inf) -> int:
    """An integer from `least` to `most`; booleans and floats are refused. `what` describes it in the error message.

    Examples
    --------
    >>> import numpy as np
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
    if found is None or not least <= found <= most:
        raise OptionError(f"{name}={given!r} is not {what}")
    return found


def numbers(name: str, given: Any) -> tuple[float, ...]:
    """One number or several as a tuple.

    Examples
    --------
    >>> import numpy as np
    >>> numbers("truncate", 0.1), numbers("truncate", np.array([0.1, 200]))
    ((0.1,), (0.1, 200.0))
    """
    several = _several(given)
    found = None if several is None else tuple(map(plain, several))
    if found is None or not all(map(_is_number, found)):
        raise OptionError(f"{name}={given!r} must be a number or a list of numbers")
    return found


def _metrics(name: str, given: Any) -> tuple[Any, ...]:
    """Names, globs and metric objects as a tuple without repeats."""
    several = () if given is None else _several(given)
    several = (given,) if several is None and _is_metric(given) else several
    if several is None or not all(isinstance(item, str) or _is_metric(item) for item in several):
        raise OptionError(
            f"{name}={given!r} must be a name, a metric object (name, family, partial, combine), or a list of these"
        )
    _refuse_empty(name, several)
    unique: list[Any] = []
    for item in several:
        item = str(item) if isinstance(item, str) else item
        unique += [] if item in unique else [item]
    return tuple(unique)


def _is_metric(given: Any) -> bool:
    """Whether an object has the attributes of a metric."""
    return all(hasattr(given, part) for part in ("name", "family", "partial", "combine"))


def _refuse_empty(name: str, several: Sequence[Any]) -> None:
    if any(isinstance(text, str) and not text for text in several):
        raise OptionError(f"{name}='': a name is empty; leave it out")


def _is_number(given: Any) -> TypeGuard[float]:
    """Whether a value is a Python number; a boolean is not."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def _several(given: Any) -> Sequence[Any] | None:
    """The elements of a list, a tuple or an array; a string or a number as one element; otherwise None."""
    import numpy as np

    if isinstance(given, str | bytes | int | float | np.generic):
        return (given,)
    if hasattr(given, "__array__"):
        with suppress(Exception):  # whatever the container raises
            return tuple(np.asarray(given).ravel())
        return None
    return given if isinstance(given, Sequence) else None


def _column(name: str, given: Any) -> str | None:
    """The name of a column; None for an empty string."""
    if given is not None and not isinstance(given, str):
        raise OptionError(f"{name}={given!r} must be the name of a column")
    _refuse_bytes(name, given or "")
    return given or None


@dataclass(frozen=True)
class Filter:
    """A filter expression that compares by its text, because ``==`` on expressions builds another expression.

    Attributes
    ----------
    text : the printed expression
    value : the `pyarrow.compute.Expression`
    """

    text: str
    value: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


def _filter(name: str, given: Any) -> str | Filter:
    """A filter of rows: SQL text, or an expression."""
    if isinstance(given, Filter):
        return given
    expression = hasattr(given, "to_substrait")
    if not expression and not (isinstance(given, str) and given.strip()):
        raise OptionError(
            f'{name}={given!r} is not a filter; give SQL such as "n_chars > 5", or a pyarrow.compute.Expression'
        )
    return Filter(str(given), given) if expression else str(given)


def _directory(name: str, given: Any) -> Any:
    """The path of a directory."""
    if isinstance(given, str | os.PathLike):
        return given
    raise OptionError(f"{name}={given!r} must be the path of a directory")


def _called(name: str, given: Any) -> Any:
    """The progress callback."""
    if callable(given):
        return given
    raise OptionError(f"{name}={given!r} must be a function of two numbers")


def _level(name: str, given: Any) -> float:
    """The level of an interval."""
    found = plain(given)
    if _is_number(found) and 0 < found < 1:
        return float(found)
    meant = f"; write {name}={found / 100:g}" if _is_number(found) and 50 <= found < 100 else ""
    raise OptionError(f"{name}={given!r} is not a level between 0 and 1, such as 0.95{meant}")


def _bins(name: str, given: Any) -> str:
    """A number of bins, or ``exact``."""
    text = str(plain(given))
    if text == "exact":
        return "exact"
    if text.isascii() and text.isdigit() and 2 <= int(text) <= 1 << 16:
        return str(int(text))
    raise OptionError(f"{name}={given!r} is neither a number of bins from 2 to 65,536 nor exact")


def _flag(name: str, given: Any) -> bool:
    """A truth value."""
    found = plain(given)
    if isinstance(found, int) and found in (0, 1):
        return bool(found)
    raise OptionError(f"{name}={given!r} must be True or False")


def _single(name: str, given: Any) -> Any:
    """A value of any type but those without a hash, and those that compare element by element, or not at all."""
    value = plain(given)
    try:
        hash(value)
        single = (value != value) in (False, True)
    except Exception:  # whatever the type raises
        single = False
    if not single or hasattr(value, "__array__"):
        raise OptionError(f"{name} is of type {type(given).__name__}; give a single value")
    return value


def _one_of(name: str, given: Any, allowed: tuple[str, ...]) -> str:
    if isinstance(given, str) and given in allowed:
        return str(given)
    raise OptionError(f"{name}={given!r} must be one of {', '.join(allowed)}")


ANY = Kind(_single)
BINS = Kind(_bins)
CALLBACK = Kind(_called)
COLUMN = Kind(_column)
DIRECTORY = Kind(_directory)
FILTER = Kind(_filter)
FLAG = Kind(_flag, bool)
LEVEL = Kind(_level, float)
NAMES = Kind(texts, many=True)
METRICS = Kind(_metrics, many=True)
NUMBERS = Kind(numbers, float, many=True)


def choice(*allowed: str) -> Kind:
    """One of several words."""
    return Kind(partial(_one_of, allowed=allowed), choices=allowed)


def whole_number(what: str, least: float = -math.inf, most: float = math.inf) -> Kind:
    """An integer of at least `least` and at most `most`."""
    return Kind(partial(whole, what=what, least=least, most=most), int)


def real_number(what: str, least: float = -math.inf) -> Kind:
    """A finite number of at least `least`."""
    return Kind(partial(number, what=what, least=least), float)
