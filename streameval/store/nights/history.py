"""History: metrics of single nights, and over all nights up to each; one series, or several in one table and figure."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streameval.report.terminal import Shown
from streameval.results import Source, plain_slice_value, slice_name
from streameval.saving import Saved, csv_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from matplotlib.axes import Axes
    from rich.console import RenderableType

    from streameval.results import Judgement, Scalar


@dataclass(frozen=True)
class Point:
    """One night of a history.

    Attributes
    ----------
    partition : the night
    night : the result of this night
    cumulative : the result over all nights up to it; None if not requested
    incomplete : whether files were left out of the night
    """

    partition: str
    night: Scalar
    cumulative: Scalar | None = None
    incomplete: bool = False

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; NaN becomes None, with the reason."""
        plain: dict[str, Any] = {"partition": self.partition} | ({"incomplete": True} if self.incomplete else {})
        for span, result in {"night": self.night, "cumulative": self.cumulative}.items():
            if result is not None:
                plain[span] = {k: v for k, v in result.to_dict().items() if k not in ("metric", "of")}
        return plain


@dataclass(frozen=True, repr=False)
class History(Shown, Saved):
    """A metric of a column, night by night.

    Attributes
    ----------
    metric, of : the metric and its column
    points : tuple of Point, in order of the nights
    failing : nights that fail a rule
    source : where the values come from
    slice : the values of the slicing columns; None for all rows
    judged : of each night, its judgement by a rule on the metric that ends in ``always``; None without one
    """

    metric: str
    of: str | None
    points: tuple[Point, ...]
    failing: tuple[str, ...] = ()
    source: Source = field(default_factory=Source, compare=False)
    slice: dict[str, Any] | None = None
    judged: tuple[Judgement | None, ...] = field(default=(), compare=False)

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        facts: dict[str, Any] = {"metric": self.metric, "of": self.of}
        facts |= {} if self.slice is None else {"slice": {k: plain_slice_value(v) for k, v in self.slice.items()}}
        return facts | {"points": [point.to_dict() for point in self.points]}

    @property
    def name(self) -> str:
        """Metric, column and slice in the syntax of rules, such as ``roc_auc[score]{country=DE}``."""
        return f"{self.metric}{f'[{self.of}]' if self.of else ''}{slice_name(self.slice)}"

    def to_csv(self) -> str:
        """CSV text with one line per night: rows, value and intervals of the night, and of all nights up to it."""
        return _csv_text(self.to_arrow().to_pydict())

    def plot(self, save_to: str | Path | None = None) -> Axes:
        """Plot the history, with sampling intervals or bounds as bands, and the windows of a rule.

        Windows are drawn up to the end that the rule compares with its bound; where a window would have failed is
        drawn as seen. Returns the matplotlib Axes.
        """
        title = f"{self.metric} of {self.of}" if self.of else self.metric
        title += f", {slice_name(self.slice)[1:-1]}" if self.slice else ""
        return _plot(self, self.spans(), title, save_to)

    def spans(self) -> dict[str, list[Scalar]]:
        """The results ``per night`` and, if requested, ``cumulative``."""
        spans = {"per night": [point.night for point in self.points]}
        if all(point.cumulative for point in self.points):
            spans["cumulative"] = [point.cumulative for point in self.points if point.cumulative]
        return spans

    def to_arrow(self) -> pa.Table:
        """A table with one row per night and the columns of `to_csv`."""
        import pyarrow as pa

        names = ["rows", "positives", "value", "lower", "upper"]
        names += ["ci_lower", "ci_upper"] if any(point.night.ci_level is not None for point in self.points) else []
        spans = ["night"] + ["cumulative"] * any(point.cumulative for point in self.points)
        columns: dict[str, Any] = {"partition": [point.partition for point in self.points]}
        kinds = {"rows": pa.int64(), "positives": pa.int64()}
        for span in spans:
            results = [getattr(point, span) for point in self.points]
            for name in names:
                values = [None if result is None else getattr(result, name) for result in results]
                columns[f"{span}_{name}"] = pa.array(values, kinds.get(name, pa.float64()), from_pandas=True)
        return pa.table(columns)

    def render(self, *, plain: bool = False) -> RenderableType:
        """A table of the nights, marked if incomplete or failing, and notes on them; a plain one has no rules."""
        return Histories((self,)).render(plain=plain)

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        return _html([self])

    def exports(self) -> Mapping[str, Callable[[], str]]:
        """What makes the Prometheus text format."""
        return {"prom": lambda: _prometheus([self])}


@dataclass(frozen=True, repr=False)
class Histories(Shown, Saved):
    """Metrics of columns over the same nights.

    Attributes
    ----------
    series : tuple of History, at least one
    """

    series: tuple[History, ...]

    @property
    def failing(self) -> tuple[str, ...]:
        """Nights that fail a rule."""
        return self.series[0].failing

    @property
    def nights(self) -> list[tuple[str, bool, bool]]:
        """(name, incomplete, failing) of each night; a night is incomplete if files were left out of it."""
        return [(p.partition, p.incomplete, p.partition in self.failing) for p in self.series[0].points]

    @property
    def columns(self) -> dict[str, list[Scalar]]:
        """Results of the nights by column name: ``roc_auc[score]``, then ``roc_auc[score] cumulative``."""
        by_name: dict[str, list[Scalar]] = {}
        for one in self.series:
            name = one.name
            by_name[name] = [point.night for point in one.points]
            totals = [point.cumulative for point in one.points if point.cumulative]
            if totals:
                by_name[f"{name} cumulative"] = totals
        return by_name

    def to_arrow(self) -> pa.Table:
        """A table with one row per night: partition, incomplete, failing, and the value of each series, or null.

        With sampling intervals, each value is followed by the ends of its interval, such as
        ``roc_auc[score] ci_lower``.
        """
        import pyarrow as pa

        names, incomplete, failing = (list(column) for column in zip(*self.nights, strict=True))
        columns = {"partition": pa.array(names, pa.string()), "incomplete": incomplete, "failing": failing}
        sampled = any(result.ci_level is not None for results in self.columns.values() for result in results)
        for name, results in self.columns.items():
            columns[name] = pa.array([result.value for result in results], pa.float64(), from_pandas=True)
            for end in ("ci_lower", "ci_upper") if sampled else ():
                columns[f"{name} {end}"] = pa.array([getattr(result, end) for result in results], pa.float64())
        return pa.table(columns)

    def to_csv(self) -> str:
        """The table of `to_arrow`, with the reason for each null value."""
        columns: dict[str, list[Any]] = {}
        for name, values in self.to_arrow().to_pydict().items():
            columns[name] = values
            if name in self.columns:
                reasons = [result.reason if math.isnan(result.value) else "" for result in self.columns[name]]
                columns[f"{name} reason"] = reasons
        return _csv_text(columns)

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return {"failing": list(self.failing), "series": [one.to_dict() for one in self.series]}

    def plot(self, save_to: str | Path | None = None) -> Axes:
        """Plot the values of the nights, failing ones marked; returns the matplotlib Axes."""
        several = len(self.series) > 1
        lines = {name: some for name, some in self.columns.items() if not (several and name.endswith(" cumulative"))}
        return _plot(self.series[0], lines, ", ".join(dict.fromkeys(one.metric for one in self.series)), save_to)

    def render(self, *, plain: bool = False) -> RenderableType:
        """A table of the nights, marked if incomplete or failing, and notes on them; a plain one has no rules."""
        from streameval.report.terminal import night_table

        names = [
            f"{name}{' (incomplete)' * incomplete}{' (failing)' * failing}" for name, incomplete, failing in self.nights
        ]
        if len(self.series) > 1:
            return night_table(names, self.columns, plain=plain)
        [one] = self.series
        return night_table(names, one.spans(), f"{one.metric} of {one.of}", plain=plain)

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        return _html(self.series)

    def exports(self) -> Mapping[str, Callable[[], str]]:
        """What makes the Prometheus text format."""
        return {"prom": lambda: _prometheus(self.series)}


def _prometheus(series: Sequence[History]) -> str:
    """The values of all nights as gauges."""
    from streameval.report.exports import prometheus, samples_of

    points = [(point.partition, one, point) for one in series for point in one.points]
    return prometheus(
        sample
        for night, one, point in points
        for sample in samples_of([replace(point.night, slice=one.slice)], partition=night)
    )


def _plot(first: History, lines: Mapping[str, Sequence[Scalar]], title: str, save_to: str | Path | None) -> Axes:
    """Plot the lines of some histories over their nights; the title names the level and units of intervals."""
    from streameval.plots.comparisons import plot_series
    from streameval.report.nights import window_lines

    sampled = [result for line in lines.values() for result in line if result.ci_lower is not None]
    levels = dict.fromkeys(f"{100 * (result.ci_level or 0):g} %" for result in sampled)
    units = dict.fromkeys(str(result.unit) for result in sampled)
    title += f", {' and '.join(levels)} intervals by {', '.join(units)}" if sampled else ""
    names = [point.partition for point in first.points]
    marked = [i for i, name in enumerate(names) if name in first.failing]
    drawn: dict[str, Sequence[Scalar | None]] = {**lines, **window_lines(first.judged)}
    points = {name: [(r.value, *r.ends) if r else (math.nan,) * 3 for r in line] for name, line in drawn.items()}
    return plot_series(names, points, title, marked=marked, save_to=save_to)


def _html(series: Sequence[History]) -> str:
    """The page of some histories over the same nights."""
    from streameval.report.elements import html_of
    from streameval.report.nights import history_page, window_lines

    first, values = series[0], [[point.night for point in one.points] for one in series]
    columns = [f"{one.of or one.metric}{slice_name(one.slice)}" for one in series]
    titles = [f"{one.metric} of {column}" if one.of else one.name for one, column in zip(series, columns, strict=True)]
    lines: dict[str, dict[str, list[Scalar]]] = {first.metric: first.spans()}
    if len(series) > 1:
        lines = {one.metric: {} for one in series}
        for one, column in zip(series, columns, strict=True):
            spans = one.spans()
            lines[one.metric][column] = spans.pop("per night")
            lines[one.metric] |= {f"{column} {span}": results for span, results in spans.items()}
    names = [point.partition for point in first.points]
    incomplete = [point.partition for point in first.points if point.incomplete]
    failed = [name for name in names if name in first.failing]
    by_title, windows = dict(zip(titles, values, strict=True)), window_lines(first.judged)
    return html_of(history_page(names, lines, by_title, failed, incomplete, windows, first.source))


def _csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """Columns as CSV; null is empty."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        lines.writerow([str(cell).lower() if isinstance(cell, bool) else csv_cell(cell) for cell in row])
    return out.getvalue()
