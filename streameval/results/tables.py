"""Results as tables: written, read back, and laid out by slices."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.results.scalar import COLUMNS, Scalar, slice_text
from streameval.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

_ALWAYS = ("value", "lower", "upper")  # fields that are NaN, not None, where a table has null

_NANOSECONDS = re.compile(r"(.*:\d\d\.\d{6})(\d{3})(.*)")  # the nanoseconds of a time, which Python's times lack


def result_schema() -> pa.Schema:
    """The Arrow schema of results."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def to_arrow(results: Iterable[Scalar]) -> pa.Table:
    """A table with one row per result; NaN becomes null. The deciles of groups, which are lists, are left to the JSON.

    If there are slices, a column `by` names the slicing (null for results of all rows), and the slicing columns follow.

    Examples
    --------
    >>> table = to_arrow([Scalar.certain("roc_auc", 0.75), Scalar.undefined("agc", "one class only")])
    >>> table["value"].to_pylist(), from_arrow(table)[0].value
    ([0.75, None], 0.75)
    """
    import pyarrow as pa

    results = list(results)
    rows = [{name: getattr(result, name) for name in COLUMNS} for result in results]
    plain = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    table = pa.Table.from_pylist(plain, schema=result_schema())
    slices = [result.slice for result in results]
    for name in dict.fromkeys(name for each in slices for name in each or ()):
        table = table.append_column(name, slice_column([(each or {}).get(name) for each in slices]))
    if any(slices):
        by = pa.array([",".join(each) if each else None for each in slices], pa.string())
        table = table.add_column(len(COLUMNS), "by", by)
    return table


def slice_column(values: Sequence[Any]) -> pa.Array:
    """The values of a slicing column as an Arrow array.

    Integers beyond int64 become uint64, or decimals if there are negative ones as well.

    Examples
    --------
    >>> [str(slice_column(values).type) for values in ([7, None], [2**64 - 1, None], [2**64 - 1, -1])]
    ['int64', 'uint64', 'decimal128(20, 0)']
    """
    import pyarrow as pa

    try:
        return pa.array(values)
    except OverflowError:
        if min(value for value in values if value is not None) >= 0:
            return pa.array(values, pa.uint64())
        return pa.array([None if value is None else Decimal(value) for value in values], pa.decimal128(20))


def same_slice(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two slices are the same; NaN equals NaN, and a date or time in `other` equals its text.

    Examples
    --------
    >>> import datetime
    >>> same_slice({"day": "2026-01-31"}, {"day": datetime.date(2026, 1, 31)}), same_slice(None, {"day": None})
    (True, False)
    >>> same_slice({"at": "2026-01-31 01:00:00.000+0100"}, {"at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)})
    True
    """
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def _same_value(one: Any, other: Any) -> bool:
    if hasattr(other, "isoformat"):
        return isinstance(one, str) and _is_moment(one, other)
    return bool(one == other) or (one != one and other != other)


def _is_moment(text: str, moment: Any) -> bool:
    """Whether a slice's text is a date, a time, or a timestamp; times with a zone are equal if their instants are."""
    if text == str(moment):
        return True
    digits = _NANOSECONDS.fullmatch(text)
    beyond = int(digits[2]) if digits else 0
    plain = moment.replace(nanosecond=0) if hasattr(moment, "nanosecond") else moment
    try:
        found = type(plain).fromisoformat(digits[1] + digits[3] if digits else text)
    except ValueError:
        return False
    return bool(found == plain) and beyond == getattr(moment, "nanosecond", 0)


def near_slice(given: Mapping[str, Any], slices: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The slice over the same columns whose values, as text, are closest to the given ones; None if none is close.

    Examples
    --------
    >>> near_slice({"country": "DEE"}, [{"country": "FR"}, {"country": "DE"}, {"source": "DEE"}])
    {'country': 'DE'}
    """
    from difflib import get_close_matches

    def text(values: Mapping[str, Any]) -> str:
        return ",".join(slice_text(values[name]) for name in given)

    found = {text(each): each for each in slices if each.keys() == given.keys()}
    near = get_close_matches(text(given), found, 1)
    return found[near[0]] if near else None


def _near_slicing(by: str, have: Sequence[str]) -> str:
    """The slicing with the same columns in another order, or with every column spelled as the nearest there is.

    Empty if there is none: another slicing, even if its name is similar, is not what was meant.
    """
    columns = [part for name in have for part in name.split(",")]
    spelled = [nearest(part.strip(), columns) or part for part in by.split(",")]
    return next((name for name in have if sorted(name.split(",")) == sorted(spelled)), "")


def slice_table(results: Iterable[Scalar], by: str | Sequence[str]) -> pa.Table:
    """A table with one row per slice of a slicing; see `streameval.Evaluation.slices`.

    Raises
    ------
    OptionError
        If there is no such slicing.
    """
    import pyarrow as pa

    by = by if isinstance(by, str) else ",".join(map(str, by))
    sliced = [result for result in results if result.slice and not result.from_rest]
    found = [result for result in sliced if ",".join(result.slice or ()) == by]
    if not found:
        have = list(dict.fromkeys(",".join(result.slice or ()) for result in sliced))
        there = "; ".join(have) or "nothing, since by was not given"
        near = _near_slicing(by, have)
        meant = f"did you mean {near!r}? " if near else ""
        raise OptionError(f"there are no slices by {by!r}; {meant}there are slices by: {there}")
    slices: list[tuple[Mapping[str, Any], list[Scalar]]] = []
    for result in found:
        if not slices or slices[-1][0] is not result.slice:
            slices.append((result.slice or {}, []))
        slices[-1][1].append(result)
    columns: dict[str, pa.Array] = {name: slice_column([each[name] for each, _ in slices]) for name in slices[0][0]}
    largest = [max(row, key=lambda result: result.rows) for _, row in slices]
    for name in ("rows", "positives"):
        columns[name] = pa.array([getattr(result, name) for result in largest], pa.int64())
    for i, first in enumerate(slices[0][1]):
        values = [row[i].value for _, row in slices]
        columns[f"{first.metric}[{first.of}]"] = pa.array(values, pa.float64(), from_pandas=True)
    return pa.table(columns)


def from_arrow(table: pa.Table) -> list[Scalar]:
    """Read results from a table that has at least the columns of `COLUMNS`; slices are not restored."""
    rows = table.select(list(COLUMNS)).to_pylist()
    return [Scalar(**row | {name: math.nan for name in _ALWAYS if row[name] is None}) for row in rows]
