"""Kinds of options: the values that an option takes, and their plain form.

Lists, tuples and arrays are equivalent, and NumPy scalars count as Python numbers. An invalid value raises
`OptionError` with the name of the option. NumPy is imported inside functions, because the command line loads the option
table at start.
"""

from __future__ import annotations

import csv
import io
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, SupportsIndex, TypeGuard

from streameval.errors import OptionError, mask_credentials
from streameval.wording import hint

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
    def of(cls, values: Mapping[str, object], others: object) -> object:
        """Values by column; a single value if all columns have the same."""
        columns = tuple(sorted((name, value) for name, value in values.items() if value != others))
        return cls(columns, others) if columns else others

    def only(self, names: Iterable[str]) -> object:
        """Restrict the values to these columns."""
        chosen = set(names)
        return self.of({name: value for name, value in self.columns if name in chosen}, self.others)

    def to_dict(self) -> dict[str, object]:
        """The mapping that the option accepts."""
        return dict(self.columns) | {OTHERS: self.others}

    def __repr__(self) -> str:
        return repr(self.to_dict())


def of_column(value: object, column: str) -> Any:
    """The value of an option for one column."""
    return dict(value.columns).get(column, value.others) if isinstance(value, ByColumn) else value


def values_in(value: object) -> list[Any]:
    """All values of an option: the one for other columns first, then those of named columns."""
    return [value.others, *(own for _, own in value.columns)] if isinstance(value, ByColumn) else [value]


def in_words(value: object) -> str:
    """The plain value of an option in words.

    Examples
    --------
    >>> in_words({"score_nb": "half", "*": "drop"}), in_words(["default", "ks"]), in_words("drop")
    ('score_nb=half, others drop', 'default, ks', 'drop')
    """
    if isinstance(value, dict):
        return ", ".join(
            f"others {one}" if name == OTHERS else f"{name}={in_words(one)}" for name, one in value.items()
        )
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def plain(given: object) -> Any:
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


def texts(name: str, given: object) -> tuple[str, ...]:
    """One string or several as a tuple without repeats.

    Examples
    --------
    >>> texts("score", "a"), texts("score", ["a", "b", "a"]), texts("score", None)
    (('a',), ('a', 'b'), ())
    """
    several = _elements(given)
    if several is None or not all(isinstance(text, str) for text in several):
        raise _not_named(name, given, "a name or a list of names")
    _refuse_empty(name, several)
    for text in several:
        _refuse_bytes(name, text)
    return tuple(dict.fromkeys(map(str, several)))


def _not_named(name: str, given: object, wanted: str) -> OptionError:
    """The error for a value that names no column; one for arrays says what takes them."""
    text, values = " ".join(str(given).split()), given if isinstance(given, list | tuple) else (None,)
    arrays = hasattr(plain(given), "__array__") or all(map(_is_number, values))
    remedy = "; roc_auc_score(y_true, y_score) and average_precision_score take arrays"
    return OptionError(
        f"{name}={text if len(text) <= 60 else f'{text[:59]}…'} must be {wanted}"
        f"{remedy if arrays and name in ('label', 'score') else ''}"
    )


def _refuse_bytes(name: str, text: str) -> None:
    """Raise `OptionError` for a name with bytes that are not valid UTF-8, since no column has such a name."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise OptionError(
            f"{name}={text!r} is not valid UTF-8; check the encoding of the command or file that names it"
        )


def number(name: str, given: object, what: str, least: float = -math.inf) -> float:
    """A finite number of at least `least`; `what` describes it in the error message.

    Examples
    --------
    >>> import numpy as np
    >>> number("aul_threshold", np.int64(2), "a cluster size", 0)
    2
    """
    value = plain(given)
    if _is_number(value) and least <= value and -math.inf < value < math.inf:
        return value
    raise OptionError(f"{name}={given!r} is not {what}")


def whole(name: str, given: object, what: str, least: float = -math.inf, most: float = math.inf) -> int:
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
    with suppress(TypeError):  # of an array with several elements
        if isinstance(given, SupportsIndex) and not isinstance(given, bool):
            value = operator.index(given)
            if least <= value <= most:
                return value
    raise OptionError(f"{name}={given!r} is not {what}")


def numbers(name: str, given: object) -> tuple[float, ...]:
    """One number or several as a tuple.

    Examples
    --------
    >>> import numpy as np
    >>> numbers("truncate", 0.1), numbers("truncate", np.array([0.1, 200]))
    ((0.1,), (0.1, 200.0))
    """
    several = None if given is None else _elements(given)
    values = None if several is None else tuple(map(plain, several))
    if values is None or not all(map(_is_number, values)):
        raise OptionError(f"{name}={given!r} must be a number or a list of numbers")
    return values


def metrics(name: str, given: object) -> tuple[object, ...]:
    """Names, globs and metric objects as a tuple without repeats."""
    several = (given,) if _is_metric(given) else _elements(given)
    if several is None or not all(isinstance(item, str) or _is_metric(item) for item in several):
        raise OptionError(
            f"{name}={given!r} must be a name, a metric object (name, family, partial, combine), or a list of these"
        )
    _refuse_empty(name, several)
    unique: list[Any] = []
    for item in several:
        unique += [] if item in unique else [str(item) if isinstance(item, str) else item]
    return tuple(unique)


def _is_metric(given: object) -> bool:
    """Whether an object has the attributes of a metric."""
    return all(hasattr(given, part) for part in ("name", "family", "partial", "combine"))


def _refuse_empty(name: str, several: Sequence[object]) -> None:
    if any(isinstance(text, str) and not text for text in several):
        raise OptionError(f"{name}='': a name is empty; leave it out")


def _is_number(given: object) -> TypeGuard[float]:
    """Whether a value is a Python number; a boolean is not."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def _elements(given: object) -> Sequence[Any] | None:
    """The elements of a list, a tuple or an array; a string or a number as one, None as none; otherwise None."""
    import numpy as np

    if given is None or isinstance(given, str | bytes | int | float | np.generic):
        return () if given is None else (given,)
    if hasattr(given, "__array__"):
        with suppress(Exception):  # whatever the container raises
            return tuple(np.asarray(given).ravel())
        return None
    return given if isinstance(given, Sequence) else None


def column(name: str, given: object) -> str | None:
    """The name of a column; None for an empty string."""
    if given is not None and not isinstance(given, str):
        raise _not_named(name, given, "the name of a column")
    _refuse_bytes(name, given or "")
    return given or None


def unit(name: str, given: object) -> str | None:
    """One column, or two crossed ones in order of their names, ``a,b``; None for an empty string.

    They may be given as a sequence. A name with a comma, in a sequence or in quotes, remains in quotes.

    Examples
    --------
    >>> unit("unit", ["sender", "day"]), unit("unit", "campaign"), unit("unit", ["a,b"])
    ('day,sender', 'campaign', '"a,b"')
    """
    several = isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)
    names = texts(name, given) if several else unit_columns(column(name, given))
    if len(names) > 2 or len({one.strip() for one in names} - {""}) < len(names):
        raise OptionError(f"{name}={given!r} must name a column, or two different ones that are crossed ('a,b')")
    if len(names) == 1 and "," not in names[0]:
        return names[0]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(sorted(one.strip() for one in names))
    return text.getvalue() or None


def unit_columns(text: str | None) -> tuple[str, ...]:
    """The columns of a unit: split at commas, except in quotes.

    Examples
    --------
    >>> unit_columns("day,sender"), unit_columns('"a,b"'), unit_columns(None)
    (('day', 'sender'), ('a,b',), ())
    """
    if not text or "," not in text:
        return (text,) if text else ()
    return tuple(next(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)))


def single_unit(name: str, given: object, verb: str) -> str | None:
    """The column of the unit of a verb that does not take two crossed ones; None for an empty string."""
    if "," in (text := column(name, given) or ""):
        raise OptionError(f"{name}={text!r}: {verb} takes one unit; evaluate takes two crossed ones")
    return text or None


@dataclass(frozen=True)
class InMemory:
    """An object that compares by its text, because ``==`` on expressions and frames does not give a truth value.

    Attributes
    ----------
    text : the printed expression, or the type of a table
    value : the `pyarrow.compute.Expression`, or the table
    """

    text: str
    value: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


def row_filter(name: str, given: object) -> str | InMemory:
    """A filter of rows: SQL text, or an expression."""
    if isinstance(given, InMemory):
        return given
    expression = hasattr(given, "to_substrait")
    if not expression and not (isinstance(given, str) and given.strip()):
        raise OptionError(
            f'{name}={given!r} is not a filter; give SQL such as "n_chars > 5", or a pyarrow.compute.Expression'
        )
    return InMemory(str(given), given) if expression else str(given)


class Place(str):
    """A path or URI without credentials; `value` is the path or URI as it was given."""

    value: str

    def __new__(cls, value: str) -> Place:
        """The place of an input."""
        place = super().__new__(cls, mask_credentials(value))
        place.value = value
        return place


def inputs(name: str, given: Any) -> tuple[Place | InMemory, ...]:
    """One input or several, each a path, a URI, a table or a frame.

    Examples
    --------
    >>> inputs("labels", ["s3://key:secret@bucket/a", "b.parquet"])
    ('s3://…@bucket/a', 'b.parquet')
    """
    if given is None or (isinstance(given, tuple) and not given):
        return ()
    several = given if isinstance(given, list | tuple) else (given,)
    if not several or any(isinstance(one, str) and not one for one in several):
        raise OptionError(f"{name}={given!r} names nothing; give a path, a table or a frame")
    return tuple(
        one
        if isinstance(one, Place | InMemory)
        else Place(str(os.fspath(one)))
        if isinstance(one, str | os.PathLike)
        else InMemory(f"a {type(one).__name__}", one)
        for one in several
    )


def ages(name: str, given: object) -> tuple[int, ...]:
    """Whole numbers of days in ascending order, from numbers or a text.

    Examples
    --------
    >>> ages("ages", "1,7,3"), ages("ages", (30, 90)), ages("ages", 7)
    ((1, 3, 7), (30, 90), (7,))
    """
    several = str(given).split(",") if isinstance(given, str | int) else _elements(given)
    texts = [str(one).strip() for one in several or ()]
    if not texts or not all(re.fullmatch(r"\d{1,5}", text) for text in texts):
        raise OptionError(f"{name}={given!r} must be whole numbers of days of at most 99999, such as 1,7,30", name)
    return tuple(sorted({int(text) for text in texts}))


def days(name: str, given: object) -> str:
    """A span of whole days, such as ``90d``."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*d?\s*", str(given))
    if match is None or not int(match[1]):
        raise OptionError(f"{name}={given!r} is not a span of days; write for instance 90d", name)
    return f"{int(match[1])}d"


def zone(name: str, given: object) -> str:
    """A time zone that this machine knows, such as ``Europe/Berlin`` or ``+02:00``.

    Examples
    --------
    >>> zone("timezone", "Europe/Berlin")
    'Europe/Berlin'
    """
    import zoneinfo

    import pyarrow as pa

    try:
        pa.array([0], pa.timestamp("s", single(name, given) or " ")).cast(pa.string())  # Arrow takes "" for no zone
    except (pa.ArrowInvalid, TypeError):
        text = str(given).casefold()
        zones = sorted(zoneinfo.available_timezones())
        same = [one for one in zones if text in (one.casefold(), one.casefold().split("/")[-1])]
        near = hint(same[0], same) if same else hint(text, zones) if "/" in text else ""  # EST is not near CEST
        raise OptionError(
            f"{name}={given!r} is not a time zone that this machine knows; {near}write for instance Europe/Berlin, UTC "
            "or +02:00",
            name,
        ) from None
    return str(given)


def file(name: str, given: object) -> str:
    """The path of a file to write."""
    if isinstance(given, str | os.PathLike) and os.fspath(given):
        return str(os.fspath(given))
    raise OptionError(f"{name}={given!r} must be the path of a file")


def moment(name: str, given: object) -> str:
    """A date, or a time, as ISO 8601 text.

    Examples
    --------
    >>> from datetime import date
    >>> moment("labels_as_of", date(2026, 1, 31))
    '2026-01-31'
    """
    if isinstance(given, date):  # a datetime is one as well
        return given.isoformat()
    if isinstance(given, str):
        for read in (date.fromisoformat, datetime.fromisoformat):
            with suppress(ValueError):
                return read(given).isoformat()
    raise OptionError(f"{name}={given!r} is not a time; write 2026-01-31 or 2026-01-31T12:00")


def directory(name: str, given: object) -> str | os.PathLike[str]:
    """The path of a directory."""
    if isinstance(given, str | os.PathLike):
        return given
    raise OptionError(f"{name}={given!r} must be the path of a directory")


def callback(name: str, given: object) -> Callable[..., object]:
    """The progress callback."""
    if callable(given):
        return given
    raise OptionError(f"{name}={given!r} must be a function of two numbers")


def level(name: str, given: object) -> float:
    """The level of an interval."""
    value = plain(given)
    if _is_number(value) and 0 < value < 1:
        return float(value)
    meant = f"; write {name}={value / 100:g}" if _is_number(value) and 50 <= value < 100 else ""
    raise OptionError(f"{name}={given!r} is not a level between 0 and 1, such as 0.95{meant}")


def bins(name: str, given: object) -> str:
    """A number of bins, or ``exact``."""
    text = str(plain(given))
    if text == "exact" or (text.isascii() and text.isdigit() and 2 <= int(text) <= 1 << 16):
        return text if text == "exact" else str(int(text))
    raise OptionError(f"{name}={given!r} is neither a number of bins from 2 to 65,536 nor exact")


def flag(name: str, given: object) -> bool:
    """A truth value."""
    value = plain(given)
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise OptionError(f"{name}={given!r} must be True or False")


def single(name: str, given: object) -> object:
    """A value of any type but those without a hash, and those that compare element by element, or not at all."""
    value = plain(given)
    with suppress(Exception):  # whatever the type raises
        hash(value)
        if (value != value) in (False, True) and not hasattr(value, "__array__"):
            return value
    raise OptionError(f"{name} is of type {type(given).__name__}; give a single value")


def one_of(name: str, given: object, allowed: tuple[str, ...]) -> str:
    """One of the allowed words."""
    if isinstance(given, str) and given in allowed:
        return str(given)
    raise OptionError(f"{name}={given!r} must be one of {', '.join(allowed)}")
