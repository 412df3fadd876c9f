"""``streameval sketch``: quantiles of columns of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streameval.cli.console import PLAIN, Output, progress_bar, table
from streameval.cli.options import options
from streameval.cli.store import stored
from streameval.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from streameval.states.scores.quantile_sketch import QuantileSketch

    _Sketches = Mapping[tuple[str, str | None], QuantileSketch]  # by column and class, None for both classes

_QUANTILES = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)


@click.command()
@click.argument("data", nargs=-1, required=True)
@options("sketch")
def sketch(
    data: tuple[str, ...],
    column: tuple[str, ...],
    quantiles: tuple[float, ...] = _QUANTILES,
    by_label: bool = False,
    label: str | None = None,
    pos_label: str | None = None,
    plan_only: bool = False,
    **asked: Any,
) -> None:
    """Estimate quantiles of columns of numbers.

    NaN and nulls are counted separately.
    """
    to = Output.take(asked, PLAIN)
    for share in quantiles:
        if not 0 <= share <= 1:
            msg = f"--quantile {share:g} is not in [0, 1]"
            raise OptionError(msg)
    if not by_label and (label or pos_label):
        msg = "--label and --pos-label need --by-label; add it"
        raise click.UsageError(msg)
    places = list(stored(data, asked))
    if plan_only:
        from streameval.evaluation.quantile_sketch import forecasts
        from streameval.states.labels import LabelSpec

        spec = LabelSpec(label or "label", pos_label, "drop") if by_label else None
        to.deliver_forecasts(forecasts(places, column, spec, **asked))
        return
    sketches: dict[tuple[str, str | None], QuantileSketch] = {}
    for name in column:
        with progress_bar(to.quiet) as advance:
            labels = (label or "label", pos_label) if by_label else None
            sketches |= _sketched(places, name, labels, {**asked, "progress": advance})
    if to.plot is not None:
        _plot(sketches, to.plot)
    facts = _facts(sketches, quantiles)
    to.deliver_rows(facts, lambda: _rows(facts), lambda: _shown(sketches, quantiles))


def _sketched(data: list[str], column: str, labels: tuple[str, str | None] | None, run: Mapping[str, Any]) -> _Sketches:
    """The sketch of a column, and those of both classes if labels are given."""
    from streameval.evaluation.quantile_sketch import quantile_sketch, sketches_by_label

    found: dict[tuple[str, str | None], QuantileSketch] = {(column, None): quantile_sketch(data, column, **run)}
    classes = sketches_by_label(data, column, *labels, **run) if labels else {}
    return found | {(column, side): sketched for side, sketched in classes.items()}


def _facts(found: _Sketches, shares: Sequence[float]) -> list[dict[str, Any]]:
    """The quantiles as plain values."""
    return [
        {
            "column": column,
            **({"class": side} if side else {}),
            "count": sketched.count,
            "nan": sketched.nan,
            "quantiles": [{"q": q, "value": _finite(x)} for q, x in _pairs(sketched, shares)],
        }
        for (column, side), sketched in found.items()
    ]


def _rows(facts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per quantile; `class` is null for all rows. Infinite quantiles, which JSON holds as text, are floats."""
    return [
        {"column": one["column"], "class": one.get("class"), "count": one["count"], "nan": one["nan"]}
        | {"q": each["q"], "value": None if each["value"] is None else float(each["value"])}
        for one in facts
        for each in one["quantiles"]
    ]


def _shown(found: _Sketches, shares: Sequence[float]) -> RenderableType:
    """The quantiles as a table with one column per sketch."""
    names = [_name(key) for key in found]
    values = [[f"{x:.6g}" for _, x in _pairs(sketched, shares)] for sketched in found.values()]
    rows = [[f"{q:g}", *row] for q, row in zip(shares, zip(*values, strict=True), strict=True)]
    counts = ["rows", *(f"{sketched.count:,.0f}" for sketched in found.values())]
    return table(["quantile", *names], [*rows, counts], names)


def _plot(found: _Sketches, path: str) -> None:
    """Draw the cumulative distribution of each sketch."""
    from streameval.plots.comparisons import plot_quantiles

    shares = [i / 500 for i in range(501)]
    plot_quantiles({_name(key): (shares, sketched.quantile(shares)) for key, sketched in found.items()}, save_to=path)


def _name(key: tuple[str, str | None]) -> str:
    return " ".join(filter(None, key))


def _pairs(sketched: QuantileSketch, shares: Sequence[float]) -> list[tuple[float, float]]:
    """Pairs of share and quantile."""
    return list(zip(shares, map(float, sketched.quantile(list(shares))), strict=True))


def _finite(value: float) -> float | str | None:
    """A number as a JSON value: NaN becomes null, an infinity becomes text."""
    return value if abs(value) < float("inf") else None if value != value else str(value)
