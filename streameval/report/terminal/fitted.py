"""Tables that fit the width of the terminal: columns that do not fit go to further tables, so that no number wraps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.report.terminal.cells import cell, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

    from streameval.results import Scalar

_TEXT = 32  # least width of wrapped text in a narrow table, in characters
_GAP = 3  # characters between columns
_EDGES = 4  # characters left and right of a table
_NAMED = {"of": "score", "at": "operating point"}
_POINT = ("threshold", "recall", "fpr", "precision", "f1", "mcc", "share", "flagged", "tp", "fp", "fn", "tn")


def new_table(*, plain: bool, title: str | None = None) -> Table:
    """A table without columns; a plain one has no rules."""
    from rich import box
    from rich.table import Table

    return Table(box=None if plain else box.SIMPLE_HEAD, header_style="bold", title=title)


def _batches(widths: Mapping[str, int], room: int) -> Iterator[list[str]]:
    """Split columns, in order, into batches that fit into `room` characters; each batch has at least one."""
    taken: list[str] = []
    left = room
    for column, width in widths.items():
        left -= width + _GAP
        if taken and left < 0:
            yield taken
            taken, left = [], room - width - _GAP
        taken.append(column)
    if taken:
        yield taken


@dataclass(frozen=True)
class SideBySide:
    """Columns that share their metrics, split into tables that fit the width of the terminal.

    Names and numbers are never wrapped; texts, such as the reason for a missing value, wrap at `_TEXT` characters or
    more. If all values of a column are missing for one reason, it is given once below the table.

    Attributes
    ----------
    found : results by metric and column
    plain : whether to draw no rules
    """

    found: Mapping[str, Mapping[str, Scalar]]
    plain: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns, in order."""
        return list(next(iter(self.found.values())))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        named = max(map(len, ("metric", *self.found)))
        room = options.max_width - _EDGES - named
        wide = {column: self._width(column, options.max_width) for column in self.columns}
        if sum(wide.values()) + _GAP * len(wide) > room:
            wide = {column: self._width(column, _TEXT) for column in self.columns}
        for taken in _batches(wide, room):
            yield self._table(named, [(column, wide[column]) for column in taken])
        yield from (f"{escaped(column)}: {escaped(why)}" for column in self.columns if (why := self._why(column)))

    def _why(self, column: str) -> str:
        """The common reason if all values of a column are missing; empty otherwise."""
        found = [by_column[column] for by_column in self.found.values()]
        reasons = {(result.reason or "") if result.value != result.value else "" for result in found}
        return reasons.pop() if len(reasons) == 1 and len(found) > 1 else ""

    def _cells(self, column: str) -> list[str]:
        """The texts of a column."""
        return ["–" if self._why(column) else cell(self.found[metric][column]) for metric in self.found]

    def _width(self, column: str, most: int) -> int:
        """The width of a column in characters, if texts wrap at `most`."""
        cells = self._cells(column)
        return max(len(column), *(len(each) if _is_number(each) else min(len(each), most) for each in cells))

    def _table(self, named: int, columns: Sequence[tuple[str, int]]) -> Table:
        table = new_table(plain=self.plain)
        table.add_column("metric", width=named)
        for column, width in columns:
            table.add_column(escaped(column), justify="right", overflow="fold", width=width)
        for metric, *cells in zip(self.found, *(self._cells(column) for column, _ in columns), strict=True):
            table.add_row(escaped(metric), *map(escaped, cells))
        return table


def _is_number(text: str) -> bool:
    """Whether a cell is a number, with its threshold or half-width, and no text."""
    return not text.startswith("–") and "sampled" not in text


@dataclass(frozen=True)
class Points:
    """The table of operating points, split into several tables on a narrow terminal, so that no number wraps."""

    points: Sequence[Mapping[str, Any]]
    plain: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        names = [*_POINT, *(name for name in self.points[0] if name.startswith("cost@"))]
        cells = {name: [name, *(_number(name, point[name]) for point in self.points)] for name in names}
        named = [[title, *(point[key] for point in self.points)] for key, title in _NAMED.items()]
        room = options.max_width - _EDGES - sum(_GAP + max(map(len, column)) for column in named)
        wide = {name: max(map(len, column)) for name, column in cells.items()}
        for taken in _batches(wide, room):
            yield self._table(named, [cells[name] for name in taken])
        for point in self.points:
            if point["reason"]:
                yield escaped(f"{point['of']} at {point['at']}: {point['reason']}")

    def _table(self, named: Sequence[Sequence[str]], taken: Sequence[Sequence[str]]) -> Table:
        table = new_table(plain=self.plain)
        for column in named:
            table.add_column(escaped(column[0]), no_wrap=True)
        for column in taken:
            table.add_column(escaped(column[0]), justify="right", no_wrap=True)
        for row in list(zip(*named, *taken, strict=True))[1:]:
            table.add_row(*map(escaped, row))
        return table


def _number(name: str, value: float | None) -> str:
    """A number of an operating point: counts whole, thresholds with five digits, shares with four decimals."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5g}" if name == "threshold" else f"{value:,.6g}" if name in _POINT[-4:] else f"{value:.4f}"
