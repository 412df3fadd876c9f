"""Figures on a page: curves, calibration, distributions, thresholds, slices, differences, nights.

`streameval.plots` draws each; a key and a text alternative describe it in words. A figure that cannot be drawn is left
out, for instance the calibration of scores that are not probabilities. A column has the same colour throughout a page.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.plots import (
    plot_attribution,
    plot_curve,
    plot_differences,
    plot_purity_by_size,
    plot_score_distributions,
    plot_slices,
)
from streameval.plots.canvas import COLORS
from streameval.plots.comparisons import plot_series, slice_labels
from streameval.plots.labels import curves_on
from streameval.plots.scores import draw_corp, draw_reliability, draw_thresholds
from streameval.report.elements import Figure, Key
from streameval.report.html import Canvas, look
from streameval.report.values import NONE, joined, number
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from streameval.plots.canvas import Attributed
    from streameval.results import Curve, Distribution, Scalar

_LINES = 40  # slices or differences in a picture
_TEXT = 5.2  # points per letter of a name
_CURVES = {  # title, name of the area, name of the dashed line
    "roc": ("ROC curve", "AUC", "random"),
    "precision_recall": ("Precision and recall", "area", "random"),
    "gain": ("Gain curve", "area", "random"),
    "lift": ("Lift curve", "AUL", "no clustering"),
}


def _figure(
    prefix: str,
    title: str,
    description: str,
    draw: Callable[..., object],
    key: Sequence[Key],
    *,
    wide: bool = False,
    **size: float,
) -> Iterator[Figure]:
    """The figure, if it can be drawn; `draw` is called with the axes."""
    with suppress(OptionError):
        canvas = Canvas(prefix, **({"width": 620} if wide else {}) | size)
        with canvas.drawing() as axes:
            draw(ax=axes)
            canvas.fit()
        yield Figure(title, canvas.svg(title, description), tuple(key), wide)


def curve_figures(curves: Sequence[Curve], colours: Mapping[str, int]) -> Iterator[Figure]:
    """A figure for each kind of curve with all columns.

    Parameters
    ----------
    curves : the curves, in drawing order
    colours : series number of each column
    """
    for name, (title, area, random) in _CURVES.items():
        if kind := [curve for curve in curves if curve.name == name]:
            key = [Key(c.of or "", _area(c), look(colours[c.of or ""])) for c in kind]
            about = f"{title} of {'; '.join(f'{k.name}, {area} {k.value}' for k in key)}."
            key += [Key(random, "", "ref"), Key("best possible", "", "ideal")]
            draw = partial(_draw_curves, kind, colours)
            yield from _figure(f"curve-{name}", title, f"{about} Dashed: {random}; dotted: best possible.", draw, key)


def _draw_curves(curves: Sequence[Curve], colours: Mapping[str, int], ax: Axes) -> None:
    for curve in curves:
        before, colour = len(ax.collections), COLORS[colours[curve.of or ""] % len(COLORS)]
        plot_curve(curve, ax=ax, legend=False)
        curves_on(ax)[-1].set_color(colour)
        for shade in ax.collections[before:]:
            shade.set_facecolor(colour)


def _area(curve: Curve) -> str:
    sign = "" if curve.exact else "≈ "
    return f"{sign}{number(curve.area)}" if curve.area == curve.area else "not defined"


def bands_said(curves: Sequence[Curve]) -> str:
    """Sentences that explain the shaded bands and list curves without one; empty if no bands were requested."""
    bands = [(curve, curve.band) for curve in curves if curve.band is not None]
    shaded = [f"{band.level:.0%} intervals at each point, by {band.unit}" for _, band in bands if band.reason is None]
    none = [f"{_CURVES[c.name][0]} of {c.of} ({band.reason})" for c, band in bands if band.reason is not None]
    said = [f"Shaded: {'; '.join(dict.fromkeys(shaded))}. They do not hold for a whole curve."] * bool(shaded)
    return " ".join([*said, *[f"No intervals: {'; '.join(none)}."] * bool(none)])


def calibration(curves: Sequence[Curve], colours: Mapping[str, int]) -> Iterator[Figure]:
    """Reliability and CORP diagrams of all scores, each score in its colour."""
    diagrams: tuple[tuple[str, str, str, Callable[..., None], int], ...] = (
        ("reliability", "Reliability", "ECE", draw_reliability, 92),
        ("corp", "Isotonic fit (CORP)", "miscalibration", draw_corp, 36),
    )
    for name, title, area, draw, bottom in diagrams:
        if kind := [curve for curve in curves if curve.name == name]:
            places = [colours[curve.of or ""] for curve in kind]
            key = [Key(c.of or "", f"{area} {number(c.area)}", look(i)) for i, c in zip(places, kind, strict=True)]
            about = f"{title}: {'; '.join(f'{k.name}, {k.value}' for k in key)}. Dashed: calibrated."
            key.append(Key("calibrated", "", "ref"))
            drawn = partial(draw, curves=kind, colors=places)
            yield from _figure(name, title, about, drawn, key, height=236 + bottom, bottom=bottom)


def distributions(scores: Sequence[Distribution]) -> Iterator[Figure]:
    """The distribution of the scores of each class."""
    for i, one in enumerate(scores):
        sizes = [f"{side.sum():,.6g}" for side in (one.negatives, one.positives)]
        key = [Key("negative", sizes[0], "s1"), Key("positive", sizes[1], "s2")]
        about = f"Densities of {one.of} within each class: {sizes[0]} negative, {sizes[1]} positive."
        draw = partial(_with_xlabel, partial(plot_score_distributions, one), "Score")
        yield from _figure(f"scores-{i}", one.of, about, draw, key, height=200)


def thresholds(results: Sequence[Scalar], curves: Sequence[Curve], columns: Iterable[str]) -> Iterator[Figure]:
    """Values at each threshold of a score, with the operating points."""
    gains = {curve.of: curve for curve in curves if curve.name == "gain"}
    for i, of in enumerate(columns):
        if of in gains:
            key = [Key(name, "", look(j)) for j, name in enumerate(("precision", "recall", "share flagged"))]
            about = (
                f"Precision, recall and the share of rows flagged, by the threshold of {of}. Dotted: operating points."
            )
            draw = partial(_with_xlabel, partial(draw_thresholds, curve=gains[of], results=results), "Threshold")
            yield from _figure(f"thresholds-{i}", of, about, draw, key, height=220)


def _with_xlabel(draw: Callable[..., object], label: str, ax: Axes) -> None:
    """Draw, with an axis that does not repeat the column, which is the title of the figure."""
    draw(ax=ax)
    ax.set_xlabel(label)


def purity(curves: Sequence[Curve]) -> Iterator[Figure]:
    """Share of positives by the size of clusters."""
    for i, curve in enumerate(curve for curve in curves if curve.name == "purity"):
        about = f"Share of positives by the rows of the cluster, of {curve.of}; {number(curve.area)} of all rows."
        key = [Key("share of positives", "", "s1"), Key("all rows", number(curve.area), "ref")]
        draw = partial(_draw_purity, curve)
        title = f"Purity by size of {curve.of}"
        yield from _figure(f"purity-{i}", title, about, draw, key, right=52, bottom=62)


def _draw_purity(curve: Curve, ax: Axes) -> None:
    plot_purity_by_size(curve, ax=ax)
    for text in list(ax.texts):
        text.remove()  # the key repeats it


def slices(results: Sequence[Scalar], by: str, rows: Sequence[Sequence[Scalar]], prefix: str) -> Iterator[Figure]:
    """The slices with the most rows, by the first metric."""
    leading, lines = rows[0][0], min(len(rows), _LINES)
    title = f"{leading.metric} of {leading.of} by {by}" if leading.of else f"{leading.metric} by {by}"
    about = f"{title}: the {plural(lines, 'slice')} with the most rows, and the value of all rows."
    draw = partial(plot_slices, results, by, leading.metric, leading.of)
    key = [Key("slice", "", "s1"), Key("all rows", "", "ref")]
    left = _margin(slice_labels([row[0].slice or {} for row in rows]))
    yield from _figure(prefix, title, about, draw, key, wide=True, height=52 + 15 * lines, left=left)


def differences(compared: Sequence[Scalar]) -> Iterator[Figure]:
    """Differences that have an interval: better, worse, or not shown."""
    shown = [one for one in compared if one.ci_lower is not None and math.isfinite(one.value)][:_LINES]
    if not shown:
        return
    about = joined(
        [f"{one.metric}, {one.of}: {number(one.value, signed=True)}, {one.verdict or NONE}" for one in shown]
    )
    key = [Key("better", "", "s1"), Key("worse", "", "s2"), Key("not shown", "", "grey")]
    draw, title = partial(plot_differences, shown), "Differences and their intervals"
    size = {"height": 52 + 30 * len(shown), "left": _margin([text for r in shown for text in (r.metric, r.of or "")])}
    yield from _figure("differences", title, f"{about}. Dashed: no difference.", draw, key, wide=True, **size)


def concentration(attribution: Attributed) -> Iterator[Figure]:
    """The concentration of the loss in a few groups."""
    losses = {"false pairs": attribution.merges, "missed pairs": attribution.splits, "lost area": attribution.impure}
    there = [name for name, table in losses.items() if table is not None and table.num_rows]
    key = [Key(name, "", look(i)) for i, name in enumerate(there)]
    about = f"Share of the loss against the number of groups, the worst first: {joined(there or [''])}."
    draw, title = partial(plot_attribution, attribution), "Share of the loss in the worst groups"
    yield from _figure("concentration", title, about, draw, key, wide=True, width=460, height=240)


def nights(
    title: str,
    names: Sequence[str],
    lines: Mapping[str, Sequence[Scalar | None]],
    failed: Sequence[str],
    prefix: str,
) -> Iterator[Figure]:
    """Values night by night; nights that fail are marked."""
    none = (math.nan,) * 3
    points = {name: [none if r is None else (r.value, *r.ends) for r in line] for name, line in lines.items()}
    key = [Key(name, _range(line), look(i, dashed=True)) for i, (name, line) in enumerate(lines.items())]
    about = f"{title} of {plural(len(names), 'night')}: {'; '.join(f'{k.name}, {k.value}' for k in key)}."
    if failed:
        about += f" Failed: {joined(list(failed))}."
        key.append(Key("failed", plural(len(failed), "night"), "bad"))
    draw = partial(plot_series, names, points, title, marked=[names.index(night) for night in failed])
    yield from _figure(prefix, title, about, draw, key, wide=True, height=220, bottom=56)


def _range(line: Sequence[Scalar | None]) -> str:
    """The lowest and the highest value."""
    values = [one.value for one in line if one is not None and one.value == one.value]
    return f"{number(min(values))} to {number(max(values))}" if values else "not defined"


def _margin(names: Sequence[str]) -> float:
    """The left margin that names need, in points; plots shorten them to this."""
    return 16 + _TEXT * min(max((len(visible(name)) for name in names), default=0), 40)
