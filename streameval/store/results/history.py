"""History: a metric of single nights, and over all nights up to each."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streameval.results import Source, plain_slice_value, slice_name
from streameval.saving import Saved, csv_cell

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from streameval.results import Scalar


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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN becomes None, with the reason."""
        both = {"night": self.night, "cumulative": self.cumulative}
        told: dict[str, Any] = {"partition": self.partition}
        told |= {"incomplete": True} if self.incomplete else {}
        for span, result in both.items():
            if result is not None:
                facts = result.to_dict()
                told[span] = {name: facts[name] for name in facts if name not in ("metric", "of")}
        return told


def sampled(results: Iterable[Scalar]) -> str:
    """The suffix of a title that names the level and the units of sampling intervals; empty if there are none."""
    there = [result for result in results if result.ci_lower is not None]
    levels = dict.fromkeys(f"{100 * (result.ci_level or 0):g} %" for result in there)
    units = dict.fromkeys(str(result.unit) for result in there)
    return f", {' and '.join(levels)} intervals by {', '.join(units)}" if there else ""


@dataclass(frozen=True)
class History(Saved):
    """A metric of a column, night by night.

    Attributes
    ----------
    metric, of : the metric and its column
    points : tuple of Point, in order of the nights
    failing : nights that fail a rule
    source : where the values come from
    slice : the values of the slicing columns; None for all rows
    """

    metric: str
    of: str | None
    points: tuple[Point, ...]
    failing: tuple[str, ...] = ()
    source: Source = field(default_factory=Source, repr=False, compare=False)
    slice: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told: dict[str, Any] = {"metric": self.metric, "of": self.of}
        told |= {} if self.slice is None else {"slice": {k: plain_slice_value(v) for k, v in self.slice.items()}}
        return told | {"points": [point.to_dict() for point in self.points]}

    @property
    def name(self) -> str:
        """Metric, column and slice in the syntax of rules, such as ``roc_auc[score]{country=DE}``."""
        return f"{self.metric}{f'[{self.of}]' if self.of else ''}{slice_name(self.slice)}"

    def to_csv(self) -> str:
        """CSV text with one line per night: rows, value and intervals of the night, and of all nights up to it."""
        names = self._columns
        spans = ["night"] + ["cumulative"] * any(point.cumulative for point in self.points)
        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(["partition", *(f"{span}_{name}" for span in spans for name in names)])
        for point in self.points:
            told = point.to_dict()
            lines.writerow(
                [csv_cell(point.partition), *(told.get(span, {}).get(name) for span in spans for name in names)]
            )
        return out.getvalue()

    @property
    def _columns(self) -> tuple[str, ...]:
        """Fields of each value in a table; with sampling intervals if there are any."""
        sampled = any(point.night.ci_level is not None for point in self.points)
        return ("rows", "positives", "value", "lower", "upper", *(("ci_lower", "ci_upper") if sampled else ()))

    def plot(self, save_to: str | Path | None = None) -> Any:
        """Plot the history, with sampling intervals or bounds as bands; returns the matplotlib Axes."""
        from streameval.plots.series import plot_series

        lines = {name: [(r.value, *r.ends) for r in results] for name, results in self.spans().items()}
        names = [point.partition for point in self.points]
        marked = [i for i, name in enumerate(names) if name in self.failing]
        title = f"{self.metric} of {self.of}" if self.of else self.metric
        title += f", {slice_name(self.slice)[1:-1]}" if self.slice else ""
        title += sampled(point.night for point in self.points)
        return plot_series(names, lines, title, marked=marked, save_to=save_to)

    def spans(self) -> dict[str, list[Scalar]]:
        """The results ``per night`` and, if requested, ``cumulative``."""
        spans = {"per night": [point.night for point in self.points]}
        if all(point.cumulative for point in self.points):
            spans["cumulative"] = [point.cumulative for point in self.points if point.cumulative]
        return spans

    def to_arrow(self) -> pa.Table:
        """A table with one row per night and the columns of `to_csv`."""
        import pyarrow as pa

        names = self._columns
        spans = ["night"] + ["cumulative"] * any(point.cumulative for point in self.points)
        columns: dict[str, Any] = {"partition": [point.partition for point in self.points]}
        kinds = {"rows": pa.int64(), "positives": pa.int64()}
        for span in spans:
            told = [getattr(point, span) for point in self.points]
            for name in names:
                values = [None if each is None else getattr(each, name) for each in told]
                columns[f"{span}_{name}"] = pa.array(values, kinds.get(name, pa.float64()), from_pandas=True)
        return pa.table(columns)

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        from streameval.report.html import html_of
        from streameval.report.nights import history_page

        return html_of(history_page([self], self.source))
