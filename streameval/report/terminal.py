"""Results → tables for the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

    from streameval.results import Scalar

__all__ = ["Found", "cell", "render", "series", "tables", "text"]

_FEW_UNITS = 50  # effective units below which intervals are rough
_TEXT = 32  # characters of a line of text in a table that is short of room
_GAP = 3  # characters between columns
_EDGES = 4  # characters left and right of a table
_SLICES = 40  # slices in a table for a terminal
_WIDE = 6  # metrics in a table of slices for a terminal


class Found(Protocol):
    """What a report tells of: an evaluation."""

    @property
    def rows(self) -> int:
        """Rows evaluated."""

    @property
    def positives(self) -> int | None:
        """Rows of the positive class."""

    @property
    def results(self) -> tuple[Scalar, ...]:
        """One value a metric and column."""

    @property
    def dropped(self) -> tuple[tuple[str, int], ...]:
        """Rows left out, by reason."""

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """Files left out, with the reason."""

    @property
    def options(self) -> dict[str, Any]:
        """Options that decide the results."""


def cell(result: Scalar | None) -> str:
    """A value as a table shows it: six decimals, with its half-width where it is not exact, or what a sample says.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> cell(Scalar.certain("roc_auc", 2 / 3)), cell(Scalar.between("roc_auc", 0.5, 0.499, 0.501))
    ('0.666667', '0.500000 ± 1.0e-03')
    >>> cell(Scalar("agc_approx", 0.5, exact=False, stderr=0.002, bound=0.001))
    '0.500000, sampled: bound 1.0e-03, standard error 2.0e-03'
    """
    if result is None:
        return ""
    if result.value != result.value:
        return f"– ({result.reason})" if result.reason else "–"
    text = f"{result.value:.6f}" if abs(result.value) < 1e6 else f"{result.value:.6g}"
    if result.threshold is not None:
        text += f" @ {result.threshold:.5g}"  # the score from which on points are taken
    if result.ci_lower is not None and result.ci_upper is not None and result.exact:
        return _with_interval(result)
    if result.exact:
        return text
    width = max(result.upper - result.value, result.value - result.lower)
    if width == width and result.ci_lower is not None:
        return f"{_with_interval(result)} ± {width:.1e}"
    if width == width:
        return f"{text} ± {width:.1e}"
    known = (("bound", result.bound), ("standard error", result.stderr))
    said = ", ".join(f"{name} {size:.1e}" for name, size in known if size is not None)
    return f"{text}, sampled: {said}" if said else f"{text} (estimate)"


def _with_interval(result: Scalar, *, signed: bool = False) -> str:
    """A value with its sampling interval, to two digits of its width and four decimals at least; then the threshold.

    >>> from streameval.results import Scalar
    >>> _with_interval(Scalar("roc_auc", 0.99213, ci_lower=0.98742, ci_upper=0.99511))
    '0.9921 [0.9874, 0.9951]'
    """
    low, high = result.ci_lower or 0.0, result.ci_upper or 0.0
    places = min(6, max(4, 1 - math.floor(math.log10(high - low)))) if high > low else 6
    form = f"{'+' * signed}.{places}f" if abs(result.value) < 1e4 else f"{'+' * signed}.6g"
    value, *ends = (f"{x:{form}}".replace("-", "−") for x in (result.value, low, high))
    at = f" @ {result.threshold:.5g}" if result.threshold is not None else ""
    return f"{value} [{', '.join(ends)}]{at}"


def tables(results: Sequence[Scalar]) -> list[tuple[list[str], list[str], dict[tuple[str, str], Scalar]]]:
    """Columns that share their metrics, side by side: (columns, metrics, results by metric and column)."""
    by_column: dict[str, dict[str, Scalar]] = {}
    for result in results:
        by_column.setdefault(result.of or "", {})[result.metric] = result
    groups: dict[tuple[str, ...], list[str]] = {}
    for column, found in by_column.items():
        groups.setdefault(tuple(found), []).append(column)
    return [
        (
            columns,
            list(metrics),
            {(metric, column): by_column[column][metric] for metric in metrics for column in columns},
        )
        for metrics, columns in groups.items()
    ]


def render(found: Found, *, plain: bool = False, points: Sequence[Mapping[str, Any]] = ()) -> RenderableType:
    """Everything that was found, for a terminal; `plain` tables have no rules.

    `points` are the rows of `streameval.Evaluation.operating_points`.
    """
    from rich.console import Group
    from rich.markup import escape

    share = f" ({found.positives / found.rows:.2%})" if found.rows and found.positives is not None else ""
    positives = "" if found.positives is None else f", {found.positives:,} positive{share}"
    parts: list[RenderableType] = [f"{plural(found.rows, 'row')}{positives}"]
    parts += [f"left out: {plural(number, 'row')}, {escape(reason)}" for reason, number in found.dropped]
    parts += [f"[yellow]skipped[/]: {escape(f'{name}: {reason}')}" for name, reason in found.skipped]
    whole = [result for result in found.results if result.slice is None]
    for group in tables([result for result in whole if result.baseline is None]):
        parts += [*([""] if plain else []), _Side(*group, plain)]
    parts += ["", _Points(points, plain)] if points else []
    compared = [result for result in whole if result.baseline is not None]
    parts += [*([""] if plain else []), differences(compared, plain=plain)] if compared else []
    parts += [escape(line) for line in sampling_notes(whole)]
    parts += [escape(line) for line in means(found.results)]
    for by, rows in by_slicing(found.results).items():
        parts += [part for table in slice_tables(by, rows, plain=plain) for part in ("", table)]
    return Group(*parts)


_NAMED = {"of": "score", "at": "operating point"}
_POINT = ("threshold", "recall", "fpr", "precision", "f1", "mcc", "share", "flagged", "tp", "fp", "fn", "tn")


@dataclass(frozen=True)
class _Points:
    """The table of operating points, as several tables where the terminal is narrow: no number is broken."""

    points: Sequence[Mapping[str, Any]]
    plain: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.markup import escape

        names = [*_POINT, *(name for name in self.points[0] if name.startswith("cost@"))]
        cells = {name: [name, *(_number(name, point[name]) for point in self.points)] for name in names}
        named = [[title, *(point[key] for point in self.points)] for key, title in _NAMED.items()]
        room = options.max_width - _EDGES - sum(_GAP + max(map(len, column)) for column in named)
        while cells:
            taken: list[list[str]] = []
            left = room
            for column in cells.values():
                left -= max(map(len, column)) + _GAP
                if taken and left < 0:
                    break
                taken.append(column)
            cells = dict(list(cells.items())[len(taken) :])
            yield self._table(named, taken)
        for point in self.points:
            if point["reason"]:
                yield escape(f"{point['of']} at {point['at']}: {point['reason']}")

    def _table(self, named: Sequence[Sequence[str]], taken: Sequence[Sequence[str]]) -> Table:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None if self.plain else box.SIMPLE_HEAD, header_style="bold")
        for columns, justify in ((named, "left"), (taken, "right")):
            for column in columns:
                table.add_column(escape(column[0]), justify=justify, no_wrap=True)  # type: ignore[arg-type]
        for row in list(zip(*named, *taken, strict=True))[1:]:
            table.add_row(*map(escape, row))
        return table


def _number(name: str, value: float | None) -> str:
    """A number of an operating point: counts whole, thresholds with five digits, shares with four decimals."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5g}" if name == "threshold" else f"{value:,.6g}" if name in _POINT[-4:] else f"{value:.4f}"


def means(results: Sequence[Scalar]) -> Iterator[str]:
    """A line for each kind of mean over groups: how many groups there are, and what is left out.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from streameval.results import Scalar
    >>> auc = replace(Scalar.certain("roc_auc", 0.75), mean_over="user", groups=7, groups_left_out=1, rows_left_out=3)
    >>> list(means([auc]))
    ['roc_auc: mean over 7 groups by user; left out 1 group without both classes (3 rows)']
    """
    told: dict[str, list[str]] = {}
    for result in results:
        if result.mean_over is not None:
            left = plural(result.groups_left_out or 0, "group")
            told.setdefault(
                f"mean over {plural(result.groups or 0, 'group')} by {result.mean_over}"
                + (
                    f"; left out {left} without both classes ({plural(result.rows_left_out or 0, 'row')})"
                    * bool(result.groups_left_out)
                ),
                [],
            ).append(result.metric)
    for text_, metrics in told.items():
        yield f"{', '.join(dict.fromkeys(metrics))}: {text_}"


def differences(results: Sequence[Scalar], *, plain: bool = False) -> Table:
    """Differences from baselines, one row each: metric, columns, value with interval, p, verdict, unit."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None if plain else box.SIMPLE_HEAD, header_style="bold")
    for name in ("metric", "difference", "value", "p", "verdict", "unit"):
        table.add_column(name, justify="right" if name in ("value", "p") else "left", no_wrap=name != "verdict")
    for result in results:
        value = "–"
        if result.ci_lower is not None:
            value = _with_interval(replace(result, threshold=None), signed=True)
        elif result.value == result.value:
            value = f"{result.value:+.6f}".replace("-", "−")
        p = "" if result.p_value is None else f"{result.p_value:.2g}"
        table.add_row(*map(escape, (result.metric, result.of or "", value, p, result.verdict or "", result.unit or "")))
    return table


def sampling_notes(results: Sequence[Scalar]) -> list[str]:
    """What to know of sampling intervals: units and blocks, what has no interval and why, how p was adjusted."""
    asked = [result for result in results if result.ci_level is not None]
    notes = []
    for unit in dict.fromkeys(result.unit for result in asked if result.ci_lower is not None):
        of_unit = [result for result in asked if result.unit == unit and result.ci_lower is not None]
        units = min((r.effective_units for r in of_unit if r.effective_units is not None), default=None)
        blocks = max(result.blocks or 0 for result in of_unit)
        level = f"{100 * (of_unit[0].ci_level or 0):g} % intervals"
        known = "" if units is None else f", {units:,.0f} effective units in {plural(blocks, 'block')}"
        notes.append(f"{level}: the unit is the {unit}{known}")
        if units is not None and units < _FEW_UNITS:
            notes.append(f"warning: fewer than {_FEW_UNITS} effective units, so these intervals are rough")
        if unit == "row":
            notes.append("each row is its own unit: too narrow if rows come in groups; name their column with --unit")
    why: dict[str, list[str]] = {}
    for result in asked:
        if result.ci_lower is None and result.ci_reason and result.value == result.value:
            why.setdefault(result.ci_reason, []).append(f"{result.metric}[{result.of}]")
    notes += [f"no interval of {few(names)}: {reason}" for reason, names in why.items()]
    tested = sum(result.p_value is not None for result in asked)
    if tested:
        notes.append(f"p is adjusted for {plural(tested, 'comparison')} (Holm); intervals are not")
    return notes


def text(found: Found) -> str:
    """The same as plain text."""
    import io

    from rich.console import Console

    sink = io.StringIO()
    console = Console(
        file=sink, width=120, color_system=None, highlight=False, force_terminal=False, force_jupyter=False
    )
    console.print(render(found))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


@dataclass(frozen=True)
class _Side:
    """Columns that share their metrics, in as many tables as the terminal's width asks for.

    Names and numbers are never broken; a text, such as the reason why there is no number, has at least `_TEXT`
    characters a line where there is no more room. Why a column has no value at all is told once, below.
    """

    columns: list[str]
    metrics: list[str]
    found: dict[tuple[str, str], Scalar]
    plain: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.markup import escape

        named = max(map(len, ("metric", *self.metrics)))
        room = options.max_width - _EDGES - named
        wide = {column: self._width(column, options.max_width) for column in self.columns}
        if sum(wide.values()) + _GAP * len(wide) > room:
            wide = {column: self._width(column, _TEXT) for column in self.columns}
        while wide:
            taken: list[tuple[str, int]] = []
            left = room
            for column, width in wide.items():
                left -= width + _GAP
                if taken and left < 0:
                    break
                taken.append((column, wide[column]))
            wide = {column: wide[column] for column in list(wide)[len(taken) :]}
            yield self._table(named, taken)
        yield from (f"{escape(column)}: {escape(why)}" for column in self.columns if (why := self._why(column)))

    def _why(self, column: str) -> str:
        """The reason why a column has no value at all, if it is one for all metrics."""
        found = [self.found[metric, column] for metric in self.metrics]
        reasons = {(result.reason or "") if result.value != result.value else "" for result in found}
        return reasons.pop() if len(reasons) == 1 and len(found) > 1 else ""

    def _cells(self, column: str) -> list[str]:
        """What stands in a column."""
        return ["–" if self._why(column) else cell(self.found[metric, column]) for metric in self.metrics]

    def _width(self, column: str, most: int) -> int:
        """Characters that a column needs, where texts may be wrapped at `most`."""
        cells = self._cells(column)
        return max(len(column), *(len(each) if _is_number(each) else min(len(each), most) for each in cells))

    def _table(self, named: int, columns: Sequence[tuple[str, int]]) -> Table:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None if self.plain else box.SIMPLE_HEAD, header_style="bold")
        table.add_column("metric", width=named)
        for column, width in columns:
            table.add_column(escape(column), justify="right", overflow="fold", width=width)
        for metric, *cells in zip(self.metrics, *(self._cells(column) for column, _ in columns), strict=True):
            table.add_row(escape(metric), *map(escape, cells))
        return table


def _is_number(text: str) -> bool:
    """Whether a cell is a number, with its threshold or half-width, and no text."""
    return not text.startswith("–") and "sampled" not in text


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
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    shown = slices if plain else slices[:_SLICES]
    first = slices[0]
    for of in dict.fromkeys(result.of for result in first):
        at = [i for i, result in enumerate(first) if result.of == of]
        more = [len(slices) - len(shown), len(at) - (len(at) if plain else min(_WIDE, len(at)))]
        told = [plural(count, what) for count, what in zip(more, ("slice", "metric"), strict=True) if count]
        title = f"{of} by {by}" + (f" (without {' and '.join(told)}; --json has all)" if told else "")
        table = Table(box=None if plain else box.SIMPLE_HEAD, header_style="bold", title=escape(title))
        for name in first[0].slice or ():
            table.add_column(escape(name))
        for name in ("rows", "positive", *(first[i].metric for i in at[: len(at) - more[1]])):
            table.add_column(escape(name), justify="right")
        for row in shown:
            own = [row[i] for i in at]
            values = [_shown(value) for value in (row[0].slice or {}).values()]
            cells = [_short(result) for result in own[: len(at) - more[1]]]
            table.add_row(*map(escape, (*values, f"{own[0].rows:,}", _count(own[0].positives), *cells)))
        yield table


def _count(number: int | None) -> str:
    """A number of rows, if it is known."""
    return "" if number is None else f"{number:,}"


def _shown(value: object) -> str:
    """The value of a slicing column: null without quotes, texts that read like it with them."""
    return "null" if value is None else repr(value) if value in ("null", "") else str(value)


def _short(result: Scalar) -> str:
    """A value without its reason, which JSON has."""
    return cell(result) if result.value == result.value else "–"


def series(title: str, points: Sequence[tuple[str, Scalar, Scalar | None]], *, plain: bool = False) -> Table:
    """A metric night by night as a table.

    Parameters
    ----------
    title : str
    points : sequence of (partition, its value, value over all up to it or None)
    plain : whether to leave the rules out
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None if plain else box.SIMPLE_HEAD, header_style="bold", title=title)
    table.add_column("partition")
    spans = ["per night"] + ["cumulative"] * any(total for _, _, total in points)
    for name in ("rows", *spans):
        table.add_column(name, justify="right")
    for partition, night, total in points:
        cells = [cell(value) for value in (night, total)[: len(spans)]]
        table.add_row(escape(partition), f"{night.rows:,}", *map(escape, cells))
    return table
