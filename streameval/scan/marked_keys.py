"""Marked keys: Hive keys whose values are all integers, or all dates.

A path gives no types, so every Hive key is a text column; a type inferred from the values would depend on the files at
hand (tomorrow, there may be ``hour=unknown``). As texts, however, '10' sorts before '9'. The schema of a scan therefore
marks a key whose values are all integers. Comparisons with numbers, and bins, read such a key as int64; a comparison
with a text that would sort differently from the integer it spells is refused. A key whose values are all dates is
marked as well, so that its days, weeks and months can be computed; a text such as 2026-1-05, which sorts after every
date of January, or 2026-1, which may mean January, has no order among dates and is refused. Keys of a dataset or Delta
table keep their type.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

_MARK, _DATE = b"streameval.integer_key", b"streameval.date_key"
_FIRST = "2000-01-01"  # completes a year or a month
_STARTS = len("2000"), len("2000-01")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # canonical spelling only: other spellings are different keys


def mark(values: Iterable[str | None]) -> dict[bytes, bytes] | None:
    """The metadata of a key's field; None unless the values are all integers or all dates.

    For integers, the metadata give the number of digits if all values have the same number, else 0.

    Examples
    --------
    >>> mark(["9", "10", None]), mark(["10", "11"]), mark(["05", "10"]), mark(["10", "unknown"])
    ({b'streameval.integer_key': b'0'}, {b'streameval.integer_key': b'2'}, None, None)
    >>> mark(["2026-01-31", None]), mark(["2026-01-32"])
    ({b'streameval.date_key': b''}, None)
    """
    found = {value for value in values if value is not None}
    if found and all(map(_INTEGER.fullmatch, found)):
        digits = {0 if value.startswith("-") else len(value) for value in found}
        return {_MARK: str(digits.pop() if len(digits) == 1 else 0).encode()}
    return {_DATE: b""} if found and all(map(_is_date, found)) else None


def _is_date(text: str) -> bool:
    """Whether a text is a date such as 2026-01-31."""
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat() == text
    return False


def is_date_key(field: pa.Field) -> bool:
    """Whether a field of a scan's schema is marked as a key of dates."""
    return _DATE in (field.metadata or {})


def is_integer_key(field: pa.Field) -> bool:
    """Whether a field of a scan's schema is marked as a key of integers."""
    return _MARK in (field.metadata or {})


def orders_as_text(field: pa.Field, text: str) -> bool:
    """Whether `text` compares with a key's texts as it does with the integers or dates that these spell.

    Among integers, a text that is no integer does. Among dates, a year or a month does, or a date and more.

    Examples
    --------
    >>> field = pa.field("night", pa.string(), metadata=mark(["20260101", "20260102"]))
    >>> orders_as_text(field, "20260102"), orders_as_text(field, "2027")
    (True, False)
    >>> field = pa.field("night", pa.string(), metadata=mark(["2026-01-01"]))
    >>> [orders_as_text(field, text) for text in ("2026-01", "2026-01-15 12:00", "2026-1-05", "2026-1")]
    [True, True, False, False]
    """
    if is_date_key(field):
        whole = f"{text}{_FIRST[len(text) :]}" if len(text) in _STARTS else text
        return _is_date(whole[: len(_FIRST)])
    return not is_integer_key(field) or not _INTEGER.fullmatch(text) or len(text) == int(field.metadata[_MARK])


def as_integers(field: pa.Field) -> pa.Field:
    """The field with type int64 and its mark."""
    return field.with_type(pa.int64())
