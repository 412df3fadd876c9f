"""Derived columns: parts of a time, and bins of a number, computed batch by batch from the columns that are read.

===========================  =====================================================================
``hour(sent_at)``            hour of the day, 0 to 23
``day(sent_at)``             day, such as ``2026-01-31``
``week(sent_at)``            ISO 8601 week, such as ``2026-W05``
``month(sent_at)``           month, such as ``2026-01``
``length=0,20,80``           ``<0``, ``[0, 20)``, ``[20, 80)``, ``>=80``; ``nan`` for a NaN
===========================  =====================================================================

A column of the data that has exactly such a name is read instead. Times are interpreted in the zone of their column, or
in the requested one, for which times without a zone count as UTC. A null stays null. A Hive key whose values are all
dates is read as a column of dates.

*Marked keys.* A path gives no types, so every Hive key is a text column; a type inferred from the values would depend
on the files at hand (tomorrow, there may be ``hour=unknown``). As texts, however, '10' sorts before '9'. The schema of
a scan therefore marks a key whose values are all integers. Comparisons with numbers, and bins, read such a key as
int64; a comparison with a text that would sort differently from the integer it spells is refused. A key whose values
are all dates is marked as well; a text such as 2026-1-05, which sorts after every date of January, or 2026-1, which may
mean January, has no order among dates and is refused. Keys of a dataset or Delta table keep their type.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.errors import OptionError, SchemaError
from streameval.scan.widen import numbers_around, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_MARK, _DATE = b"streameval.integer_key", b"streameval.date_key"
UUIDS = {b"streameval.uuid": b""}  # metadata of the fields of a scan whose binaries are UUIDs in every file
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

    Among integers, a text that is not an integer does. Among dates, a year or a month does, or a date and more.

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


PARTS = {"hour": "", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
_CALL = re.compile(r"(\w+)\((.+)\)")


class SlicingColumn(str):
    """The name of a slicing column, which is computed if the data have no column of exactly this name.

    If a `zone` is given, parts of a time are those of this time zone.
    """

    zone: str

    def __new__(cls, name: str, zone: str = "") -> Self:
        """A slicing column."""
        column = super().__new__(cls, name)
        column.zone = zone
        return column

    @property
    def looks_computed(self) -> bool:
        """Whether it looks like a part of a time, or bins of a number."""
        return "(" in self or "=" in self


class IdName(str):
    """The name of a column of ids, of which a decimal is read as the integer of its value."""

    __slots__ = ()


class LateColumn(SlicingColumn):
    """The name of a label column; if the data lack it, labels are looked up by the ids of the column `source`."""

    source: str

    def __new__(cls, name: str, source: str = "") -> LateColumn:
        """A label column, and the ids that stand in for it, which pickle restores afterwards."""
        column = super().__new__(cls, name)
        column.source = source
        return column

    @property
    def looks_computed(self) -> bool:
        """Always: there are labels for data without this column."""
        return True


class LateId(LateColumn, IdName):
    """The name of a column of classes or units that is looked up as a `LateColumn` if the data lack it."""

    __slots__ = ()


class SourceColumn(str):
    """The name of a column that is read, with the names of the slicing columns that are computed from it.

    If these have a `zone`, files may have times of several zones.
    """

    computes: tuple[str, ...]
    zone: str

    def __new__(cls, name: str, computes: Sequence[SlicingColumn]) -> SourceColumn:
        """A column from which some are computed."""
        column = super().__new__(cls, name)
        column.computes = tuple(computes)
        column.zone = next((one.zone for one in computes if one.zone), "")
        return column


@dataclass(frozen=True)
class Derived:
    """A column that is computed from another.

    Attributes
    ----------
    name : the requested name, such as ``hour(sent_at)``
    column : the column that is read
    part : ``hour``, ``day``, ``week`` or ``month``; empty for bins
    edges : edges of bins, ascending, as texts; empty for a part of a time
    zone : time zone of the part of a time; empty for that of the column

    Examples
    --------
    >>> batch = pa.record_batch({"length": [-1, 0, 19, 80, None]})
    >>> Derived.of_text("length=0,20,80").of(batch).to_pylist()
    ['<0', '[0, 20)', '[0, 20)', '>=80', None]
    """

    name: str
    column: str
    part: str = ""
    edges: tuple[str, ...] = ()
    zone: str = ""

    @classmethod
    def of_text(cls, text: str) -> Derived | None:
        """The derived column that a text describes; None if the text can only be the name of a column.

        Raises
        ------
        OptionError
            If the part of a time is unknown, or the edges are not ascending numbers; the data may have such a column.
        """
        call = _CALL.fullmatch(text)
        if call:
            if call[1] not in PARTS:
                raise OptionError(f"by={text!r}: there is no part {call[1]!r} of a time; there are {', '.join(PARTS)}")
            return cls(text, call[2].strip(), call[1])
        column, equals, rest = text.partition("=")
        if not equals:
            return None
        edges = tuple(edge.strip() for edge in rest.split(","))
        numbers = list(map(_number, edges))
        if not column.strip() or not all(a < b for a, b in pairwise([-math.inf, *numbers, math.inf])):
            raise OptionError(f"by={text!r}: edges are ascending numbers after the column, such as length=0,20,80")
        return cls(text, column.strip(), edges=edges)

    def check(self, field: pa.Field, name: str) -> None:
        """Raise `SchemaError` if the type of the column does not fit; `name` is the file in the message."""
        kind = self._read_as(field)
        kind = kind.value_type if types.is_dictionary(kind) else kind
        numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        dates = types.is_timestamp(kind) or (types.is_date(kind) and self.part != "hour")
        if not (numbers if self.edges else dates):
            wanted = "a column of numbers" if self.edges else "a column of timestamps"
            wanted += " or dates" if self.part not in ("", "hour") else ""
            raise SchemaError(
                f"{name}: by={self.name!r} needs {wanted}; column {self.column!r} has type {kind}: cast it"
            )

    def zone_of(self, field: pa.Field) -> str:
        """The time zone of the part of a time; empty for times without a zone, and for dates."""
        kind = plain(field.type)
        return (self.zone or kind.tz or "") if self.part and types.is_timestamp(kind) else ""

    def _read_as(self, field: pa.Field) -> pa.DataType:
        """The type as which the column is read: int64 for binned Hive keys of integers, date32 for those of dates."""
        if self.edges:
            return pa.int64() if is_integer_key(field) else field.type
        return pa.date32() if is_date_key(field) else field.type

    def of(self, batch: pa.RecordBatch, name: str = "input") -> pa.Array:
        """The derived column of a batch; raises `SchemaError` if the type of the column does not fit."""
        field = batch.schema.field(self.column)
        self.check(field, name)
        array = batch.column(self.column).cast(self._read_as(field))
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if self.edges:
            return self._binned(array.cast(pa.float32()) if types.is_float16(array.type) else array)
        if self.zone and types.is_timestamp(array.type):
            array = array.cast(pa.timestamp(array.type.unit, self.zone))  # times without a zone are UTC
        if self.part == "hour":
            return pc.hour(array)
        encoded = array.dictionary_encode()  # each distinct time is formatted once
        return pa.DictionaryArray.from_arrays(encoded.indices, pc.strftime(encoded.dictionary, PARTS[self.part]))

    def _binned(self, array: pa.Array) -> pa.Array:
        """The interval of each number."""
        at = np.zeros(len(array), np.int32)
        arounds = (numbers_around(edge, array.type) for edge in self.edges)
        for up in (around.up for around in arounds if around is not None and around.up is not None):
            at += pc.fill_null(pc.greater_equal(array, up), False).to_numpy(zero_copy_only=False)
        names = [f"<{self.edges[0]}", *(f"[{a}, {b})" for a, b in pairwise(self.edges)), f">={self.edges[-1]}", "nan"]
        if types.is_floating(array.type):
            at[pc.fill_null(pc.is_nan(array), False).to_numpy(zero_copy_only=False)] = len(names) - 1
        mask = array.is_null().to_numpy(zero_copy_only=False)
        return pa.DictionaryArray.from_arrays(pa.array(at, mask=mask), pa.array(names))


def has_part(text: str) -> bool:
    """Whether a slicing column is a part of a time, unless the data have a column of this name.

    Examples
    --------
    >>> has_part("hour(sent_at)"), has_part("lower(country)"), has_part("length=0,20")
    (True, False, False)
    """
    call = _CALL.fullmatch(text)
    return call is not None and call[1] in PARTS


def read_from(column: SlicingColumn) -> str:
    """The column to read for a slicing column that the data lack: the one it is computed from, or itself.

    Raises
    ------
    OptionError
        If it looks computed, and cannot be.

    Examples
    --------
    >>> read_from(SlicingColumn("hour(sent_at)")), read_from(SlicingColumn("country"))
    ('sent_at', 'country')
    """
    if isinstance(column, LateColumn):
        return column.source
    derived = Derived.of_text(column)
    return column if derived is None else derived.column


def _number(edge: str) -> float:
    """An edge as a number; NaN, which compares false with everything, if the text is not a number.

    >>> _number("20"), _number("x")
    (20, nan)
    """
    for number in (int, float):
        with suppress(ValueError):
            return number(edge)
    return math.nan


def slicing(text: str) -> Iterator[str]:
    """Split a slicing at commas into its columns; numbers after an edge are further edges.

    Examples
    --------
    >>> list(slicing("country,length=0,20,80,hour(sent_at)"))
    ['country', 'length=0,20,80', 'hour(sent_at)']
    """
    parts: list[str] = []
    for part in text.split(","):
        last_edge = re.split("[=,]", parts[-1])[-1] if parts and "=" in parts[-1] else None
        if last_edge is not None and (not math.isnan(_number(part)) or math.isnan(_number(last_edge.strip()))):
            parts[-1] += f",{part.strip()}"
        else:
            parts.append(part.strip())
    yield from parts
