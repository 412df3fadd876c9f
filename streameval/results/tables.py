"""Results as tables: written, read back, and laid out by slices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.results.scalar import COLUMNS, Scalar, slice_text
from streameval.wording import hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

__all__ = ["from_arrow", "near_slice", "result_schema", "same_slice", "slice_table", "to_arrow"]

_ALWAYS = ("value", "lower", "upper")  # fields that are NaN, not None, where a table has null


def result_schema() -> pa.Schema:
    """The Arrow schema of results."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def to_arrow(results: Iterable[Scalar]) -> pa.Table:
    """A table with one row per result; NaN becomes null.

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
        table = table.append_column(name, pa.array([(each or {}).get(name) for each in slices]))
    if any(slices):
        by = pa.array([",".join(each) if each else None for each in slices], pa.string())
        table = table.add_column(len(COLUMNS), "by", by)
    return table


def same_slice(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two slices are the same; NaN equals NaN, and a date in `other` equals its text.

    Examples
    --------
    >>> import datetime
    >>> same_slice({"day": "2026-01-31"}, {"day": datetime.date(2026, 1, 31)}), same_slice(None, {"day": None})
    (True, False)
    """
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def _same_value(one: Any, other: Any) -> bool:
    if hasattr(other, "isoformat"):
        other = str(other)
    return bool(one == other) or (one != one and other != other)


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


def slice_table(results: Iterable[Scalar], by: str) -> pa.Table:
    """A table with one row per slice of a slicing; see `streameval.Evaluation.slices`.

    Raises
    ------
    OptionError
        If there is no such slicing.
    """
    import pyarrow as pa

    sliced = [result for result in results if result.slice and not result.from_rest]
    found = [result for result in sliced if ",".join(result.slice or ()) == by]
    if not found:
        have = list(dict.fromkeys(",".join(result.slice or ()) for result in sliced))
        there = "; ".join(have) or "nothing, since by was not given"
        msg = f"there are no slices by {by!r}; {hint(by, have)}there are slices by: {there}"
        raise OptionError(msg)
    slices: list[tuple[Mapping[str, Any], list[Scalar]]] = []
    for result in found:
        if not slices or slices[-1][0] is not result.slice:
            slices.append((result.slice or {}, []))
        slices[-1][1].append(result)
    columns: dict[str, pa.Array] = {name: pa.array([each[name] for each, _ in slices]) for name in slices[0][0]}
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
