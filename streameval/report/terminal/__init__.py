"""Render results as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streameval.report.provenance import Read
from streameval.report.terminal.cells import Visible, cell, escaped, short
from streameval.report.terminal.fitted import Points, SideBySide, new_table
from streameval.report.terminal.notes import means, night_notes, sampling_notes, slice_notes
from streameval.report.terminal.slices import by_slicing, differences, rest_table, rests, slice_tables
from streameval.report.values import alike
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from streameval.results import Scalar, Source

__all__ = ["Found", "cell", "night_notes", "render", "series", "short", "text"]


class Found(Read, Protocol):
    """The part of an evaluation that a report needs."""

    @property
    def positives(self) -> int | None:
        """Rows of the positive class."""

    @property
    def results(self) -> tuple[Scalar, ...]:
        """One value a metric and column."""

    @property
    def source(self) -> Source:
        """Where the results come from."""


def render(
    found: Found,
    *,
    plain: bool = False,
    points: Sequence[Mapping[str, Any]] = (),
) -> RenderableType:
    """Render an evaluation for a terminal.

    Parameters
    ----------
    found : the evaluation
    plain : whether to draw no rules, for piped output
    points : the rows of `streameval.Evaluation.operating_points`
    """
    from rich.console import Group

    share = f" ({found.positives / found.rows:.2%})" if found.rows and found.positives is not None else ""
    positives = "" if found.positives is None else f", {found.positives:,} positive{share}"
    parts: list[RenderableType] = [f"{plural(found.rows, 'row')}{positives}"]
    parts += [f"left out: {plural(number, 'row')}, {escaped(reason)}" for reason, number in found.dropped]
    parts += [f"[yellow]skipped[/]: {escaped(f'{name}: {reason}')}" for name, reason in found.skipped]
    whole, store = [result for result in found.results if result.slice is None], found.source.nights > 0
    for found_alike in alike(result for result in whole if result.baseline is None):
        parts += [*([""] if plain else []), SideBySide(found_alike, plain)]
    parts += ["", Points(points, plain)] if points else []
    compared = [result for result in whole if result.baseline is not None]
    parts += [*([""] if plain else []), differences(compared, plain=plain)] if compared else []
    parts += [escaped(line) for line in sampling_notes(whole, store=store)]
    parts += [escaped(line) for line in means(found.results, found.options.get("mean_weight", "rows"))]
    parts += [
        f"{escaped(f'{one.metric}[{one.of}]')} by group, from the least through the deciles to the greatest: "
        + "  ".join(f"{value:.4f}" for value in one.group_deciles)
        for one in whole
        if one.group_deciles is not None
    ]
    for by, rows in by_slicing(found.results).items():
        parts += [part for table in slice_tables(by, rows, plain=plain) for part in ("", table)]
        parts += [escaped(line) for line in slice_notes(rows)]
        if other := rests(found.results, by):
            parts += ["", rest_table(by, other, plain=plain), *map(escaped, sampling_notes(other, store=store))]
    return Group(*parts)


def series(title: str, points: Sequence[tuple[str, Scalar, Scalar | None]], *, plain: bool = False) -> RenderableType:
    """A metric night by night as a table, followed by the lines of `night_notes`.

    Parameters
    ----------
    title : str
    points : sequence of (partition, value of the night, cumulative value or None)
    plain : whether to draw no rules, for piped output
    """
    from rich.console import Group

    table = new_table(plain=plain, title=title)
    table.add_column("partition")
    spans = ["per night"] + ["cumulative"] * any(total for _, _, total in points)
    for name in ("rows", *spans):
        table.add_column(name, justify="right")
    for partition, night, total in points:
        cells = [short(value) for value in (night, total)[: len(spans)]]
        table.add_row(escaped(partition), f"{night.rows:,}", *map(escaped, cells))
    nights = {title: [night for _, night, _ in points]}
    nights |= {f"{title} cumulative": [t for _, _, t in points if t]} if len(spans) > 1 else {}
    return Group(table, *map(escaped, night_notes(nights, [name for name, _, _ in points])))


def text(found: Found) -> str:
    """Render an evaluation as plain text, 120 columns wide."""
    import io

    from rich.console import Console

    sink = io.StringIO()
    console = Console(
        file=sink,
        width=120,
        color_system=None,
        highlight=False,
        emoji=False,
        force_terminal=False,
        force_jupyter=False,
    )
    console.print(Visible(render(found)))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())
