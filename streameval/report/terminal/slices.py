"""Slices as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.report.terminal.cells import cell
from streameval.report.terminal.fitted import new_table
from streameval.results import slice_text
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from streameval.results import Scalar

__all__ = ["by_slicing", "slice_tables"]

_SLICES = 40  # slices in a table for a terminal
_WIDE = 6  # metrics in a table of slices for a terminal


def by_slicing(results: Sequence[Scalar]) -> dict[str, list[list[Scalar]]]:
    """The results of each slice, by slicing, in the order of the results."""
    slicings: dict[str, list[list[Scalar]]] = {}
    for result in results:
        if result.slice is not None:
            slices = slicings.setdefault(",".join(result.slice), [])
            if not slices or slices[-1][0].slice is not result.slice:
                slices.append([])
            slices[-1].append(result)
    return slicings


def slice_tables(by: str, slices: Sequence[Sequence[Scalar]], *, plain: bool = False) -> Iterator[Table]:
    """Tables of a slicing: one row a slice, most rows first, and one table for each score or cluster column.

    A table for a terminal has at most `_SLICES` slices and `_WIDE` metrics; its title says what it leaves out. A plain
    table has all.
    """
    from rich.markup import escape

    shown = slices if plain else slices[:_SLICES]
    first = slices[0]
    for of in dict.fromkeys(result.of for result in first):
        at = [i for i, result in enumerate(first) if result.of == of]
        more = [len(slices) - len(shown), len(at) - (len(at) if plain else min(_WIDE, len(at)))]
        told = [plural(count, what) for count, what in zip(more, ("slice", "metric"), strict=True) if count]
        title = f"{of} by {by}" + (f" (without {' and '.join(told)}; --json has all)" if told else "")
        table = new_table(plain=plain, title=escape(title))
        for name in first[0].slice or ():
            table.add_column(escape(name))
        for name in ("rows", "positive", *(first[i].metric for i in at[: len(at) - more[1]])):
            table.add_column(escape(name), justify="right")
        for row in shown:
            own = [row[i] for i in at]
            values = [slice_text(value) for value in (row[0].slice or {}).values()]
            cells = [_short(result) for result in own[: len(at) - more[1]]]
            table.add_row(*map(escape, (*values, f"{own[0].rows:,}", _count(own[0].positives), *cells)))
        yield table


def _count(number: int | None) -> str:
    """A number of rows, if it is known."""
    return "" if number is None else f"{number:,}"


def _short(result: Scalar) -> str:
    """A value without its reason, which JSON has."""
    return cell(result) if result.value == result.value else "–"
