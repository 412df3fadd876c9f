"""Results → tables for the terminal. Knows result types, never metrics or states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from streameval.results import Scalar

__all__ = ["Found", "cell", "render", "tables", "text"]


class Found(Protocol):
    """What a report tells of: an evaluation."""

    @property
    def rows(self) -> int:
        """Rows evaluated."""

    @property
    def positives(self) -> int:
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
    if result.threshold is not None and "=" in result.metric:
        text += f" @ {result.threshold:.5g}"  # the score from which on points are taken
    if result.exact:
        return text
    width = max(result.upper - result.value, result.value - result.lower)
    if width == width:
        return f"{text} ± {width:.1e}"
    known = (("bound", result.bound), ("standard error", result.stderr))
    said = ", ".join(f"{name} {size:.1e}" for name, size in known if size is not None)
    return f"{text}, sampled: {said}" if said else f"{text} (estimate)"


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


def render(found: Found) -> RenderableType:
    """Everything that was found, for a terminal."""
    from rich.console import Group
    from rich.markup import escape

    share = f" ({found.positives / found.rows:.2%})" if found.rows else ""
    parts: list[RenderableType] = [f"{found.rows:,} rows, {found.positives:,} positive{share}"]
    parts += [f"left out: {number:,} rows, {escape(reason)}" for reason, number in found.dropped]
    parts += [f"[yellow]skipped[/]: {escape(reason)}" for _, reason in found.skipped]
    parts += [_table(*group) for group in tables(found.results)]
    return Group(*parts)


def text(found: Found) -> str:
    """The same as plain text."""
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=120)
    console.print(render(found))
    written: str = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO above
    return "\n".join(line.rstrip() for line in written.splitlines())


def _table(columns: list[str], metrics: list[str], found: dict[tuple[str, str], Scalar]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column("metric")
    for column in columns:
        table.add_column(escape(column), justify="right", overflow="fold")
    for metric in metrics:
        table.add_row(escape(metric), *(escape(cell(found.get((metric, column)))) for column in columns))
    return table
