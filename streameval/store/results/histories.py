"""Histories: several metrics and columns night by night, in one table and one figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.saving import Saved, csv_cell
from streameval.store.results.history import sampled

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from streameval.results import Scalar
    from streameval.store.results.history import History


@dataclass(frozen=True)
class Histories(Saved):
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
        found: dict[str, list[Scalar]] = {}
        for one in self.series:
            name = one.name
            found[name] = [point.night for point in one.points]
            totals = [point.cumulative for point in one.points if point.cumulative]
            if totals:
                found[f"{name} cumulative"] = totals
        return found

    def to_arrow(self) -> pa.Table:
        """A table with one row per night: partition, incomplete, failing, and the value of each series, or null.

        With sampling intervals, each value is followed by the ends of its interval, such as
        ``roc_auc[score] ci_lower``.
        """
        import pyarrow as pa

        names, incomplete, failing = (list(column) for column in zip(*self.nights, strict=True))
        facts = {"partition": pa.array(names, pa.string()), "incomplete": incomplete, "failing": failing}
        values: dict[str, Any] = {}
        for name, results in self.columns.items():
            values[name] = pa.array([_value(r) for r in results], pa.float64())
            for end in self._ends:
                values[f"{name} {end}"] = pa.array([getattr(r, end) for r in results], pa.float64())
        return pa.table(facts | values)

    @property
    def _ends(self) -> tuple[str, ...]:
        """Fields of the ends of sampling intervals; empty if no intervals were requested."""
        sampled = any(result.ci_level is not None for results in self.columns.values() for result in results)
        return ("ci_lower", "ci_upper") if sampled else ()

    def to_csv(self) -> str:
        """The table of `to_arrow`, with the reason for each null value."""
        import csv
        import io

        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        columns, ends = self.columns, self._ends
        heads = [head for name in columns for head in (name, f"{name} reason", *(f"{name} {end}" for end in ends))]
        lines.writerow(["partition", "incomplete", "failing", *heads])
        for i, (name, incomplete, failing) in enumerate(self.nights):
            cells: list[Any] = []
            for r in (results[i] for results in columns.values()):
                cells += [_value(r), r.reason if math.isnan(r.value) else "", *(getattr(r, end) for end in ends)]
            lines.writerow(map(csv_cell, [name, str(incomplete).lower(), str(failing).lower(), *cells]))
        return out.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"failing": list(self.failing), "series": [one.to_dict() for one in self.series]}

    def plot(self, save_to: str | Path | None = None) -> Any:
        """Plot the values of the nights, failing ones marked; returns the matplotlib Axes."""
        from streameval.plots.series import plot_series

        columns = self.columns
        if len(self.series) > 1:
            columns = {name: results for name, results in columns.items() if not name.endswith(" cumulative")}
        lines = {name: [(r.value, *r.ends) for r in results] for name, results in columns.items()}
        nights = [name for name, _, _ in self.nights]
        marked = [i for i, name in enumerate(nights) if name in self.failing]
        title = ", ".join(dict.fromkeys(one.metric for one in self.series))
        title += sampled(result for results in columns.values() for result in results)
        return plot_series(nights, lines, title, marked=marked, save_to=save_to)

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        from streameval.report.html import html_of
        from streameval.report.nights import history_page

        return html_of(history_page(self.series, self.series[0].source))


def _value(result: Scalar) -> float | None:
    return None if math.isnan(result.value) else result.value
