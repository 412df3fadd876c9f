"""Slices as tables for the terminal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from streameval.report.sentences import compared
from streameval.report.terminal.cells import cell, escaped, with_interval
from streameval.report.terminal.fitted import new_table
from streameval.report.values import slice_cells
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.table import Table

    from streameval.results import Scalar

_SLICES = 40  # slices in a table for a terminal
_WIDE = 6  # metrics in a table of slices for a terminal


def by_slicing(results: Iterable[Scalar]) -> dict[str, list[list[Scalar]]]:
    """The results of each slice, by slicing, in the order of the results; without differences from all other rows."""
    slicings: dict[str, list[list[Scalar]]] = {}
    for result in results:
        if result.slice is not None and not result.from_rest:
            slices = slicings.setdefault(",".join(result.slice), [])
            if not slices or slices[-1][0].slice is not result.slice:
                slices.append([])
            slices[-1].append(result)
    return slicings


def rests(results: Iterable[Scalar], by: str) -> list[Scalar]:
    """The differences of the slices of a slicing from all other rows, smallest p first; those without p come last."""
    found = [result for result in results if result.from_rest and ",".join(result.slice or ()) == by]
    return sorted(found, key=lambda result: math.inf if result.p_value is None else result.p_value)


def rest_table(by: str, found: Sequence[Scalar], *, plain: bool = False) -> Table:
    """Slices against all other rows: one row per difference, at most `_SLICES` on a terminal."""
    shown = found if plain else found[:_SLICES]
    left = f" (without {plural(len(found) - len(shown), 'difference')}; --json has all)" * (len(shown) < len(found))
    return differences(shown, plain=plain, title=f"by {by}, against all other rows{left}")


def differences(results: Sequence[Scalar], *, plain: bool = False, title: str | None = None) -> Table:
    """One row per difference: the slice if there is one, metric, columns, value with interval, p, verdict, unit.

    The title of slices against all other rows says what they differ from; other differences name both columns.
    """
    table = new_table(plain=plain, title=title and escaped(title))
    from_rest = all(result.from_rest for result in results)
    what = "column" if from_rest else "difference"
    for name in (*(results[0].slice or ()), "metric", what, "value", "p", "verdict", "unit"):
        table.add_column(
            escaped(name), justify="right" if name in ("value", "p") else "left", no_wrap=name != "verdict"
        )
    for name, result in zip(slice_cells([result.slice for result in results]), results, strict=True):
        value, of = _difference(result), compared(result)[0] if from_rest else result.of or ""
        p = "" if result.p_value is None else f"{result.p_value:.2g}"
        cells = (*name, result.metric, of, value, p, result.verdict or "", result.unit or "")
        table.add_row(*map(escaped, cells))
    return table


def slice_tables(by: str, slices: Sequence[Sequence[Scalar]], *, plain: bool = False) -> Iterator[Table]:
    """Tables of a slicing: one table per score or cluster column, one row per slice, largest slice first.

    On a terminal, a table has at most `_SLICES` slices and `_WIDE` metrics; its title states what is left out. A plain
    table is complete.
    """
    shown = slices if plain else slices[:_SLICES]
    first = slices[0]
    for of in dict.fromkeys(result.of for result in first):
        at = [i for i, result in enumerate(first) if result.of == of]
        more = [len(slices) - len(shown), len(at) - (len(at) if plain else min(_WIDE, len(at)))]
        told = [plural(count, what) for count, what in zip(more, ("slice", "metric"), strict=True) if count]
        title = f"{of} by {by}" + (f" (without {' and '.join(told)}; --json has all)" if told else "")
        table = new_table(plain=plain, title=escaped(title))
        for name in first[0].slice or ():
            table.add_column(escaped(name))
        cut = any(row[at[0]].cut_share is not None for row in shown)
        for name in ("rows", "positive", *["cut"] * cut, *(first[i].metric for i in at[: len(at) - more[1]])):
            table.add_column(escaped(name), justify="right")
        for named, row in zip(slice_cells([row[0].slice for row in shown]), shown, strict=True):
            own = [row[i] for i in at]
            cells = [_short(result) for result in own[: len(at) - more[1]]]
            shared = [f"{own[0].cut_share or 0:.1%}"] * cut
            table.add_row(*map(escaped, (*named, f"{own[0].rows:,}", _count(own[0].positives), *shared, *cells)))
        yield table


def _count(number: int | None) -> str:
    """A number of rows, if it is known."""
    return "" if number is None else f"{number:,}"


def _short(result: Scalar) -> str:
    """Format a value; the reason for a missing one is in the JSON output."""
    if result.baseline is not None:
        return _difference(result)
    return cell(result) if result.value == result.value else "–"


def _difference(result: Scalar) -> str:
    """A difference with its sign, and its interval if there is one."""
    if result.ci_lower is not None:
        return with_interval(replace(result, threshold=None), signed=True)
    return f"{result.value:+.6f}".replace("-", "−") if result.value == result.value else "–"
