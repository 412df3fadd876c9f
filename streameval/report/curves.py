"""Curves on a page: one figure per kind with all columns; a column has the same colour throughout the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.plots import plot_curve
from streameval.plots.canvas import COLORS
from streameval.plots.labels import curves_on
from streameval.report.elements import Figure, Key
from streameval.report.figures import Canvas, look
from streameval.report.values import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.results import Curve

_TITLES = {
    "roc": ("ROC curve", "AUC"),
    "precision_recall": ("Precision and recall", "area"),
    "gain": ("Gain curve", "area"),
    "lift": ("Lift curve", "AUL"),
}
_REFERENCES = {
    "roc": ("random", "best possible"),
    "precision_recall": ("random", "best possible"),
    "gain": ("random", "best possible"),
    "lift": ("no clustering", "best possible"),
}


def curve_figures(curves: Sequence[Curve], colours: Mapping[str, int]) -> list[Figure]:
    """A figure for each kind of curve.

    Parameters
    ----------
    curves : the curves, in drawing order
    colours : series number of each column
    """
    kinds: dict[str, list[Curve]] = {}
    for curve in curves:
        kinds.setdefault(curve.name, []).append(curve)
    return [_figure(name, found, colours) for name, found in kinds.items() if name in _TITLES]


def bands_said(curves: Sequence[Curve]) -> str:
    """Sentences that explain the shaded bands and list curves without one; empty if no bands were requested."""
    bands = [(curve, curve.band) for curve in curves if curve.band is not None]
    told = [f"{band.level:.0%} intervals at each point, by {band.unit}" for _, band in bands if band.reason is None]
    none = [f"{_TITLES[c.name][0]} of {c.of} ({band.reason})" for c, band in bands if band.reason is not None]
    said = [f"Shaded: {'; '.join(dict.fromkeys(told))}. They do not hold for a whole curve."] * bool(told)
    return " ".join([*said, *[f"No intervals: {'; '.join(none)}."] * bool(none)])


def _figure(name: str, curves: Sequence[Curve], colours: Mapping[str, int]) -> Figure:
    title, area = _TITLES[name]
    canvas = Canvas(f"curve-{name}")
    with canvas.drawing() as axes:
        for curve in curves:
            before, colour = len(axes.collections), COLORS[colours[curve.of or ""] % len(COLORS)]
            plot_curve(curve, ax=axes, legend=False)
            curves_on(axes)[-1].set_color(colour)
            for shade in axes.collections[before:]:
                shade.set_facecolor(colour)
    series = tuple(Key(c.of or "", _area(c), look(colours[c.of or ""])) for c in curves)
    random, best = _REFERENCES[name]
    told = "; ".join(f"{key.name}, {area} {key.value}" for key in series)
    return Figure(
        title,
        f"{title} of {told}. Dashed: {random}; dotted: {best}.",
        canvas.svg(title, f"{title} of {told}."),
        (*series, Key(random, "", "ref"), Key(best, "", "ideal")),
    )


def _area(curve: Curve) -> str:
    sign = "" if curve.exact else "≈ "
    return f"{sign}{number(curve.area)}" if curve.area == curve.area else "not defined"
