"""Render results as tables for the terminal.

A table has the same model as on a page (`streameval.report.elements.Table`). Columns that do not fit the width of the
terminal go to further tables, so that no number wraps. Texts from the data are escaped twice: `rich` takes none for
markup, and invisible characters are spelled out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streameval.report.elements import Cell, Head, Read, Row, Table
from streameval.report.values import (
    NONE,
    alike,
    coarser_said,
    cut_said,
    describe_labelled,
    list_compared,
    means,
    night_notes,
    point_table,
    sampling_error,
    sampling_notes,
    slice_cells,
    slice_notes,
    slices_said,
    strata_said,
    zones_said,
)
from streameval.results import CENSUS, own_order
from streameval.wording import plural, visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table as RichTable

    from streameval.results import LabelStratum, Scalar, Source

_WHOLE = 1e15  # larger floats are always whole, so they are not recognised as counts
_TEXT = 32  # least width of wrapped text in a narrow table, in characters
_GAP = 3  # characters between columns
_EDGES = 4  # characters left and right of a table
_SLICES = 40  # slices in a table for a terminal
_WIDE = 6  # metrics in a table of slices for a terminal
_PROSE = ("value", "action", "meaning", "source")  # columns of words, which wrap


class Found(Read, Protocol):
    """The part of an evaluation that a report needs."""

    @property
    def positives(self) -> int | None:
        """Rows of the positive class."""

    @property
    def labels(self) -> Mapping[str, int]:
        """The fate of the labels from another table; empty without one."""

    @property
    def counts(self) -> tuple[Scalar, ...]:
        """Rows, positives and prevalence with their intervals; of a sample of labels the prevalence."""

    @property
    def results(self) -> tuple[Scalar, ...]:
        """One value a metric and column."""

    @property
    def label_strata(self) -> Sequence[LabelStratum]:
        """The strata of a sample of labels."""

    @property
    def coarser_units(self) -> Mapping[str, float]:
        """Columns by which standard errors are larger than by the unit, and how many times."""

    @property
    def source(self) -> Source:
        """Where the results come from."""


def cell(result: Scalar | None) -> str:
    """Format a value: six decimals (none for counts), then its interval, half-width, or sampling error.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> cell(Scalar.certain("roc_auc", 2 / 3)), cell(Scalar.between("roc_auc", 0.5, 0.499, 0.501))
    ('0.666667', '0.500000 ± 1.0e-03')
    >>> cell(Scalar.certain("pairwise.TN", 28205266.0))
    '28,205,266'
    >>> cell(Scalar("agc_approx", 0.5, exact=False, stderr=0.002, bound=0.001))
    '0.500000, sampled: bound 1.0e-03, standard error 2.0e-03'
    """
    if result is None:
        return ""
    if result.value != result.value:
        return f"{NONE} ({result.reason})" if result.reason else NONE
    count = 1 < abs(result.value) < _WHOLE and float(result.value).is_integer()
    text = f"{result.value:,.0f}" if count else f"{result.value:.{'6f' if abs(result.value) < 1e6 else '6g'}}"
    if result.threshold is not None:
        text += f" @ {result.threshold:.5g}"  # points with at least this score are flagged
    if result.ci_lower is not None:
        text = with_interval(result)
    if result.exact or result.design == CENSUS:
        return text
    width = max(result.upper - result.value, result.value - result.lower)
    if width == width:
        return f"{text} ± {width:.1e}"
    error = sampling_error(result)
    return f"{text}, {error}" if error else f"{text} (estimate)"


def short(result: Scalar | None) -> str:
    """Format a value, a difference with its sign; a line below the table gives the reason for a missing one."""
    if result is not None and result.value != result.value:
        return NONE
    if result is None or result.baseline is None:
        return cell(result)
    mark = {"better": " ▲ better", "worse": " ▼ worse"}.get(result.verdict or "", "") if result.slice else ""
    if result.ci_lower is not None:
        return with_interval(replace(result, threshold=None), signed=True) + mark * (not result.from_rest)
    return f"{result.value:+.6f}".replace("-", "−")


def with_interval(result: Scalar, *, signed: bool = False) -> str:
    """A value with its sampling interval, rounded to two digits of its width (4 to 6 decimals); then the threshold.

    >>> from streameval.results import Scalar
    >>> with_interval(Scalar("roc_auc", 0.99213, ci_lower=0.98742, ci_upper=0.99511))
    '0.9921 [0.9874, 0.9951]'
    """
    low, high = result.ci_lower or 0.0, result.ci_upper or 0.0
    places = min(6, max(4, 1 - math.floor(math.log10(high - low)))) if high > low else 6
    form = f"{'+' * signed}.{places}f" if abs(result.value) < 1e4 else f"{'+' * signed}.6g"
    value, *ends = (f"{x:{form}}".replace("-", "−") for x in (result.value, low, high))
    at = f" @ {result.threshold:.5g}" if result.threshold is not None else ""
    return f"{value} [{', '.join(ends)}]{at}"


def escape_markup(text: str) -> str:
    r"""A text from data for `rich`, which neither takes it for markup nor passes control characters on.

    >>> print(escape_markup("[red]\x1b[2J"))
    \[red]\x1b[2J
    """
    from rich.markup import escape

    return escape(visible(text))


@dataclass(frozen=True)
class Visible:
    """Anything that `rich` can show, with invisible characters spelled out: the last step before the terminal."""

    shown: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for segment in console.render(self.shown, options):
            text = segment.text if segment.control else visible_lines(segment.text)
            yield Segment(text, segment.style, segment.control)


def rich_table(heads: Sequence[Head], rows: Iterable[Sequence[str]], *, plain: bool, title: str = "") -> RichTable:
    """A table of texts, numbers at the right; a plain one has no rules."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=None if plain else box.SIMPLE_HEAD, header_style="bold", title=escape_markup(title) or None)
    for head in heads:
        justify: Literal["left", "right"] = "right" if head.number else "left"
        table.add_column(escape_markup(_title(head)), justify=justify)
    for row in rows:
        table.add_row(*map(escape_markup, row))
    return table


@dataclass(frozen=True)
class Fitted:
    """A table, split into several that fit the width of the terminal; each has the names of the rows.

    Names and numbers are never wrapped; prose, such as the reason for a missing value, wraps at `_TEXT` characters or
    more. If a name leaves no room beside it, each row is a record: its name, and a line for each value. If all values
    of a column are missing for one reason, it is given once below the table.

    Attributes
    ----------
    table : the table
    plain : whether to draw no rules
    prose : names of columns of prose
    beside : whether other reasons are shown beside their values; otherwise each is given below, with the row's name
    """

    table: Table
    plain: bool = False
    beside: bool = True
    prose: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        heads, rows = self.table.heads, self.table.rows
        named = len(rows[0].name) if rows else 1
        names = [max([len(heads[i].text), *(len(visible(row.name[i])) for row in rows)]) for i in range(named)]
        columns = [self._texts(i) for i in range(len(heads) - named)]
        room = options.max_width - _EDGES - sum(names) - _GAP * (named - 1)
        widths = self._widths(columns, options.max_width)
        if sum(widths) + _GAP * len(widths) > room:
            widths = self._spread(self._widths(columns, _TEXT), widths, room)
        if max(widths, default=0) + _GAP > room:
            yield from self._records(columns)
            widths = []
        title = self.table.caption
        for taken in _batches(widths, room):
            texts = ((*row.name, *(columns[i][j] for i in taken)) for j, row in enumerate(rows))
            shown = (*heads[:named], *(heads[named + i] for i in taken))
            table, title = rich_table(shown, texts, plain=self.plain, title=title), ""
            for column, width in zip(table.columns, (*names, *(widths[i] for i in taken)), strict=True):
                column.width, column.overflow = width, "fold"
            yield table
        for i, head in enumerate(heads[named:]):
            if reason := self._shared(i):
                yield f"{escape_markup(head.text)}: {escape_markup(reason)}"
        if not self.beside:
            for row in rows:
                yield from (escape_markup(f"{' at '.join(row.name)}: {one.reason}") for one in row.cells if one.reason)

    def _records(self, columns: Sequence[Sequence[str]]) -> Iterator[RenderableType]:
        """Each row as lines."""
        if self.table.caption:
            yield escape_markup(self.table.caption)
        heads = self.table.heads[-len(columns) :]
        for j, row in enumerate(self.table.rows):
            name = f"[bold]{escape_markup(', '.join(row.name))}[/]"
            if len(columns) == 1:
                yield f"{name}: {escape_markup(columns[0][j])}"
                continue
            yield name
            for head, texts in zip(heads, columns, strict=True):
                if texts[j]:
                    yield escape_markup(f"  {_title(head)}: {texts[j]}")

    def _shared(self, column: int) -> str:
        """The reason why all values of a column are missing, if it is the same."""
        reasons = {row.cells[column].reason for row in self.table.rows}
        return reasons.pop() if self.beside and len(reasons) == 1 and len(self.table.rows) > 1 else ""

    def _texts(self, column: int) -> list[str]:
        cells = [row.cells[column] for row in self.table.rows]
        beside = self.beside and not self._shared(column)
        return [f"{one.text} ({one.reason})" if one.reason and beside else one.text for one in cells]

    def _widths(self, columns: Sequence[Sequence[str]], most: int) -> list[int]:
        """The widths of columns in characters, if texts wrap at `most`."""
        heads = self.table.heads[-len(columns) :]
        return [
            max([len(visible(_title(head))), *(self._width(head, text, most) for text in texts)])
            for head, texts in zip(heads, columns, strict=True)
        ]

    def _width(self, head: Head, text: str, most: int) -> int:
        """The width of a text, which wraps between words if it is not a name, or a number with its threshold."""
        text = visible(text)
        wraps = head.text in self.prose or text.startswith(NONE) or "sampled" in text
        return min(len(text), max(most, *map(len, text.split()), 0)) if wraps else len(text)

    @staticmethod
    def _spread(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
        """Widths of at least `least` and at most `most` that use the room."""
        spare, widths = room - sum(least) - _GAP * len(least), []
        for narrow, wide in zip(least, most, strict=True):
            widths.append(narrow + max(0, min(spare, wide - narrow)))
            spare -= widths[-1] - narrow
        return widths


def _title(head: Head) -> str:
    """The name of a column, after that of the column of the data."""
    return f"{head.note} {head.text}".lstrip()


def _batches(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Split columns, in order, into batches that fit into `room` characters; each batch has at least one."""
    taken: list[int] = []
    left = room
    for column, width in enumerate(widths):
        left -= width + _GAP
        if taken and left < 0:
            yield taken
            taken, left = [], room - width - _GAP
        taken.append(column)
    if taken:
        yield taken


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
    chosen = [result for result in results if result.from_rest and ",".join(result.slice or ()) == by]
    return sorted(chosen, key=lambda result: math.inf if result.p_value is None else result.p_value)


def differences(results: Sequence[Scalar], *, plain: bool = False, title: str = "") -> Fitted:
    """One row per difference: the slice if there is one, metric, columns, value with interval, p, verdict, unit.

    The title of slices against all other rows says what they differ from; other differences name both columns.
    """
    from_rest = all(result.from_rest for result in results)
    names = (*(results[0].slice or ()), "metric", "column" if from_rest else "difference")
    heads = [Head(name) for name in (*names, "value", "p", "verdict", "unit")]
    heads[-4:-2] = [replace(head, number=True) for head in heads[-4:-2]]
    rows = []
    for name, result in zip(slice_cells([result.slice for result in results]), results, strict=True):
        of = list_compared(result)[0] if from_rest else result.of or ""
        p = "" if result.p_value is None else f"{result.p_value:.2g}"
        texts = short(result), p, result.verdict or "", result.unit or ""
        rows.append(Row((*name, result.metric, of), tuple(map(Cell, texts))))
    return Fitted(Table(title, tuple(heads), tuple(rows)), plain)


def slice_tables(by: str, slices: Sequence[Sequence[Scalar]], *, plain: bool = False) -> Iterator[Fitted]:
    """Tables of a slicing: one table per score or cluster column, one row per slice, in their own order or by rows.

    On a terminal, a table has at most `_SLICES` slices, the largest, and `_WIDE` metrics; its title states what is left
    out. A plain table is complete.
    """
    shown = slices if plain else slices[:_SLICES]
    shown = [shown[i] for i in own_order([row[0].slice or {} for row in shown])] or shown
    first = slices[0]
    names = slice_cells([row[0].slice for row in shown])
    for of in dict.fromkeys(result.of for result in first):
        every = [i for i, result in enumerate(first) if result.of == of]
        at = every if plain else every[:_WIDE]
        left = [("slice", len(slices) - len(shown)), ("metric", len(every) - len(at))]
        without = " and ".join(plural(count, what) for what, count in left if count)
        cut = any(row[at[0]].cut_share is not None for row in shown)
        numbers = ("rows", "positive", *["cut"] * cut, *(first[i].metric for i in at))
        heads = [*map(Head, first[0].slice or ()), *(Head(name, number=True) for name in numbers)]
        rows = []
        for name, row in zip(names, shown, strict=True):
            one = row[at[0]]
            counts = [f"{one.rows:,}", "" if one.positives is None else f"{one.positives:,}"]
            texts = (*counts, *[f"{one.cut_share or 0:.1%}"] * cut, *(short(row[i]) for i in at))
            rows.append(Row(name, tuple(map(Cell, texts))))
        title = f"{of} by {by}" + (f" (without {without}; --json has all)" if without else "")
        yield Fitted(Table(title, tuple(heads), tuple(rows)), plain)


def render(evaluation: Found, *, plain: bool = False, points: Sequence[Mapping[str, object]] = ()) -> RenderableType:
    """Render an evaluation for a terminal.

    Parameters
    ----------
    evaluation : the evaluation
    plain : whether to draw no rules, for piped output
    points : the rows of `streameval.Evaluation.operating_points`
    """
    from rich.console import Group

    gap = [""] if plain else []
    whole, store = [result for result in evaluation.results if result.slice is None], evaluation.source.nights > 0
    parts: list[RenderableType] = [rows_said(evaluation)]
    parts += [f"left out: {plural(number, 'row')}, {escape_markup(reason)}" for reason, number in evaluation.dropped]
    parts += [f"[yellow]skipped[/]: {escape_markup(f'{name}: {reason}')}" for name, reason in evaluation.skipped]
    for by_metric in alike(result for result in whole if result.baseline is None):
        parts += [*gap, Fitted(_value_table(by_metric), plain)]
    parts += ["", Fitted(point_table(points), plain, beside=False)] if points else []
    with_baseline = [result for result in whole if result.baseline is not None]
    parts += [*gap, differences(with_baseline, plain=plain)] if with_baseline else []
    parts += [f"[bold]{escape_markup(sentence)}[/]" for sentence in slices_said(evaluation.results)]
    warnings = [*strata_said(evaluation.label_strata), *coarser_said(evaluation.coarser_units)]
    warnings += cut_said(whole, evaluation.options.get("weight"))
    parts += map(
        escape_markup, (*describe_labelled(whole), *sampling_notes(whole, evaluation.results, store=store), *warnings)
    )
    parts += map(escape_markup, means(evaluation.results, evaluation.options.get("mean_weight", "rows")))
    for by, rows in by_slicing(evaluation.results).items():
        parts += [part for table in slice_tables(by, rows, plain=plain) for part in ("", table)]
        parts += map(escape_markup, (*zones_said(by, evaluation.source), *slice_notes(rows)))
        if other := rests(evaluation.results, by):
            shown = other if plain else other[:_SLICES]
            left = len(other) - len(shown)
            without = f" (without {plural(left, 'difference')}; --json has all)" if left else ""
            title = f"by {by}, against all other rows{without}"
            parts += ["", differences(shown, plain=plain, title=title)]
            parts += map(escape_markup, sampling_notes(other, store=store))
    return Group(*parts)


def rows_said(evaluation: Found) -> str:
    """The rows of an evaluation, those with late labels, and the share of positives."""
    return ", ".join((plural(evaluation.rows, "row"), *label_counts(evaluation)))


def label_counts(evaluation: Found) -> list[str]:
    """The rows with late labels and the positive rows, each with its share; nothing without labels."""
    rows, positives, of, counts = evaluation.rows, evaluation.positives, "", []
    if evaluation.labels:
        labelled = evaluation.labels["labelled_rows"]
        every = rows + dict(evaluation.dropped).get("null label", 0)  # which a store leaves out of the rows
        of_all = f" ({labelled / every:.2%}{f' of {every:,}' if every > rows else ''})" if every else ""
        counts = [f"{labelled:,} labelled{of_all}"]
        rows, of = labelled, " of labelled"
        positives = evaluation.labels.get("labelled_positives", positives)
    of += "".join(f", {_prevalence(one)}" for one in evaluation.counts if one.design not in (None, CENSUS))
    share = f" ({positives / rows:.2%}{of})" if rows and positives is not None else ""
    return counts if positives is None else [*counts, f"{positives:,} positive{share}"]


def _prevalence(one: Scalar) -> str:
    """The share of positives that a sample of labels estimates, in words."""
    ends = "" if one.ci_lower is None or one.ci_upper is None else f" [{one.ci_lower:.2%}, {one.ci_upper:.2%}]"
    return f"estimated {one.value:.2%}{ends} of all"


def _value_table(by_metric: Mapping[str, Mapping[str, Scalar]]) -> Table:
    """One row per metric, one column per column of the data."""
    heads = (Head("metric"), *(Head(column, number=True) for column in next(iter(by_metric.values()))))
    return Table("", heads, tuple(Row((metric,), tuple(map(_value, r.values()))) for metric, r in by_metric.items()))


def _value(result: Scalar) -> Cell:
    return Cell(cell(result)) if result.value == result.value else Cell(NONE, reason=result.reason or "")


def night_table(
    names: Sequence[str], columns: Mapping[str, Sequence[Scalar]], title: str = "", *, plain: bool = False
) -> RenderableType:
    """Metrics night by night, a row for each night, followed by the lines of `night_notes`.

    Parameters
    ----------
    names : names of the nights
    columns : values by column
    title : of a single metric, whose columns are its values per night and cumulative ones; with it, rows are shown
    plain : whether to draw no rules, for piped output
    """
    from rich.console import Group

    shown = {name: list(map(short, results)) for name, results in columns.items()}
    if title:
        nights, *totals = columns.values()
        shown = {"rows": [f"{night.rows:,}" for night in nights], **shown}
        columns = {title: nights} | ({f"{title} cumulative": totals[0]} if totals else {})
    fitted = table(["partition", *shown], zip(names, *shown.values(), strict=True), list(shown), plain=plain)
    titled = replace(fitted, table=replace(fitted.table, caption=title))
    return Group(titled, *map(escape_markup, night_notes(columns, names)))


class Shown:
    """A result that a prompt shows as the command line does."""

    def render(self, *, plain: bool = False) -> RenderableType:
        """Tables and lines for `rich`; plain ones have no rules."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return text(self.render())


class Facts(Shown):
    """A result of names and values."""

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each fact, as text."""
        raise NotImplementedError

    def render(self, *, plain: bool = False) -> RenderableType:
        """A table of names and values."""
        return table(("fact", "value"), self.lines(), ["value"], plain=plain)


def table(
    names: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = (), *, plain: bool = False
) -> Fitted:
    """A table of texts, named by the first column; the columns in `numbers` are right-aligned."""
    heads = tuple(Head(name, name in numbers) for name in names)
    named = tuple(Row((name,), tuple(map(Cell, cells))) for name, *cells in rows)
    return Fitted(Table("", heads, named), plain, prose=_PROSE)


def text(shown: RenderableType, width: int = 120) -> str:
    """Tables and lines as plain text."""
    import io

    from rich.console import Console

    sink = io.StringIO()
    plain: dict[str, Any] = {"color_system": None, "force_terminal": False, "force_jupyter": False}
    Console(file=sink, width=width, highlight=False, emoji=False, **plain).print(Visible(shown))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())
