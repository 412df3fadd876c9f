"""Survey of files from their footers: columns with types, numbers of nulls, and ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import MissingInputError
from streameval.scan.files.paths import locate_all
from streameval.scan.messages import READ_ERRORS, unreadable
from streameval.scan.parquet.ranges import footer_at
from streameval.scan.parquet.statistics import StoredColumns
from streameval.scan.widen import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class ColumnFacts:
    """A column of some files.

    Attributes
    ----------
    name, kind : its name and type; types that differ between files are joined by "or"
    rows : number of rows of the files that have it
    nulls : number of nulls; None if the statistics of a file lack it
    low, high : smallest and largest value; None if the statistics of a file lack them, or types differ
    """

    name: str
    kind: str
    rows: int
    nulls: int | None
    low: Any
    high: Any


def survey(paths: Iterable[str]) -> tuple[ColumnFacts, ...]:
    """The columns of the files that paths, patterns or URIs name.

    Raises
    ------
    MissingInputError
        If no file is found, or the files have no flat columns.
    DataError
        If a footer cannot be read; the message names the file.
    """
    found: dict[str, list[tuple[str, int, int | None, Any, Any]]] = {}
    for file in locate_all(paths):
        try:
            footer = footer_at(file.filesystem, file.path)
            for name, facts in _columns(footer):
                found.setdefault(name, []).append(facts)
        except READ_ERRORS as error:
            raise unreadable(file.name, error) from error
    if not found:
        msg = f"{', '.join(paths)}: no files with columns"
        raise MissingInputError(msg)
    return tuple(_joined(name, parts) for name, parts in found.items())


def _columns(footer: Any) -> Iterator[tuple[str, tuple[str, int, int | None, Any, Any]]]:
    """Name, type, rows, nulls and range of each flat column of a file."""
    columns, groups = StoredColumns(footer), [footer.row_group(i) for i in range(footer.num_row_groups)]
    for field in columns.schema:
        if field.name in columns.leaves:
            said = [group.column(columns.leaves[field.name][-1]).statistics for group in groups]
            bounded = columns.has_bounds(columns.find(field.with_type(plain(field.type))))
            ends = _range(said) if bounded else (None, None)
            yield field.name, (_kind(field.type), footer.num_rows, _nulls(said), *ends)


def _kind(kind: pa.DataType) -> str:
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _nulls(said: list[Any]) -> int | None:
    if any(one is None or not one.has_null_count for one in said):
        return None
    return sum(int(one.null_count) for one in said)


def _range(said: list[Any]) -> tuple[Any, Any]:
    known = [one for one in said if one is not None and one.has_min_max]
    if len(known) < len(said) or not known:
        return None, None
    try:
        return min(one.min for one in known), max(one.max for one in known)
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException):  # a type without an order in Python
        return None, None


def _joined(name: str, parts: list[tuple[str, int, int | None, Any, Any]]) -> ColumnFacts:
    """Combine the facts of several files about a column."""
    kinds, rows, nulls, lows, highs = zip(*parts, strict=True)
    known = all(_plain(end) for end in (*lows, *highs)) and len(dict.fromkeys(kinds)) == 1
    return ColumnFacts(
        name,
        " or ".join(dict.fromkeys(kinds)),
        sum(rows),
        None if None in nulls else sum(nulls),
        min(lows) if known else None,
        max(highs) if known else None,
    )


def _plain(end: Any) -> bool:
    """Whether an end of a range is known and not NaN."""
    return end is not None and not (isinstance(end, float) and math.isnan(end))
