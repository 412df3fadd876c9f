"""Figures on a page: curves, calibration, distributions, thresholds, slices, differences, nights.

`streameval.plots` draws each; a key and a text alternative describe it in words. A figure that cannot be drawn is left
out, for instance the calibration of scores that are not probabilities. A column has the same colour throughout a page.

*Canvas.* Matplotlib figures become inline SVG, which shares the page's ids, fonts and colours. Ids that are referred to
get a prefix that is unique to the figure, and other ids are removed. Texts stay text, in the page's font. Colours
become the page's CSS variables, which change in dark mode. Coordinates are rounded to a hundredth of a point.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from streameval.errors import OptionError
from streameval.plots import (
    plot_attribution,
    plot_curve,
    plot_differences,
    plot_purity_by_size,
    plot_score_distributions,
    plot_slices,
)
from streameval.plots.canvas import COLORS, DASHES, Attributed
from streameval.plots.comparisons import plot_series, slice_labels
from streameval.plots.labels import curves_on
from streameval.plots.scores import draw_corp, draw_reliability, draw_thresholds, mark_rates
from streameval.report.elements import Figure, Key
from streameval.report.values import NONE, join_words, number
from streameval.wording import amount, plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from markupsafe import Markup
    from matplotlib.axes import Axes

    from streameval.results import Curve, Distribution, Scalar


_VARIABLES = {color.lower(): f"var(--s{i + 1})" for i, color in enumerate(COLORS)} | {
    "#7f7f7f": "var(--ref)",
    "#009e73": "var(--best)",
    "#e6e6e6": "var(--grid)",
    "#c0c0c0": "var(--frame)",
    "#b0b0b0": "var(--grid)",
    "#d9d9d9": "var(--frame)",
    "#404040": "var(--soft)",
    "#ffffff": "var(--paper)",
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.linewidth": 0.8,
    "xtick.color": "#000000",
    "path.simplify": True,
    "path.simplify_threshold": 0.25,
    "lines.linewidth": 1.6,
}
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # not allowed in XML
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_LETTER, _BESIDE = 0.58, 10  # width of a letter as a share of its font size; points between axes and a text beside them
_MARGINS = {"left": 44, "right": 10, "top": 8, "bottom": 36}  # points


def look(series: int, *, dashed: bool = False) -> str:
    """The name of a series' colour, as in keys and styles; `dashed` adds that of its dashes after the first colours.

    Examples
    --------
    >>> look(5), look(6), look(6, dashed=True), look(12, dashed=True)
    ('s6', 's1', 's1 d1', 's1 d2')
    """
    dashes = series // len(COLORS) % len(DASHES) if dashed else 0
    return f"s{series % len(COLORS) + 1}" + (f" d{dashes}" if dashes else "")


def _draw_svg(
    prefix: str,
    title: str,
    description: str,
    draw: Callable[..., object],
    width: float = 300,
    height: float = 272,
    **margins: float,
) -> Markup:
    """A picture as an element of a page, with a text alternative.

    Parameters
    ----------
    prefix : prefix of all ids, unique within a page
    title, description : the text alternative
    draw : called with the axes
    width, height : size in points
    margins : margins around the axes in points, if they differ from the default
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = _STYLE | {"svg.hashsalt": prefix}
    sink = io.StringIO()
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from font")  # the reader's browser has the font
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        FigureCanvasSVG(figure)
        left, right, top, bottom = (margins.get(side, room) for side, room in _MARGINS.items())
        axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
        draw(ax=axes)
        _fit(axes, width)
        for drawn in figure.axes:
            drawn.set_title("")
            if (legend := drawn.get_legend()) is not None:
                legend.remove()
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    text = _INVISIBLE.sub(lambda found: visible(found[0]), sink.getvalue())
    return _inline_svg(text, prefix, visible(title), visible(description))


def _fit(axes: Axes, width: float) -> None:
    """Make room for texts at the right of the axes, up to half of the width; longer texts are cut at their end."""
    from matplotlib.text import Annotation

    notes = [text for text in axes.texts if isinstance(text, Annotation) and text.get_text()]
    beside = [text for text in notes if text.xycoords == ("axes fraction", "data") and text.xy[0] > 1]
    if not beside:
        return
    box = axes.get_position()
    letter = max(float(text.get_fontsize()) for text in beside) * _LETTER
    most = int(width / 2 / letter)
    for text in beside:
        said = visible(text.get_text())
        text.set_text(said if len(said) <= most else f"{said[: most - 1]}…")
    right = max(_BESIDE + letter * max(len(text.get_text()) for text in beside), (1 - box.x1) * width)
    axes.set_position((box.x0, box.y0, 1 - right / width - box.x0, box.height))


def _inline_svg(text: str, prefix: str, title: str, description: str) -> Markup:
    """Turn an SVG file written by matplotlib into an element for a page."""
    from markupsafe import Markup

    root = ET.fromstring(text)  # noqa: S314 - matplotlib wrote it
    for node in list(root):
        if _local(node.tag) == "metadata" or any(_local(child.tag) == "style" for child in node):
            root.remove(node)  # such a style would apply to the whole page
    values = [value for node in root.iter() for value in node.attrib.values()]
    referred = {value[1:] for value in values if value.startswith("#")}
    referred |= {name for value in values for name in _REFERENCE.findall(value)}
    for node in root.iter():
        node.tag = _local(node.tag)
        if node.tag in ("text", "tspan"):
            node.text = visible(node.text or "")
        node.attrib = dict(_attributes(node.attrib, referred, prefix))
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{prefix}-title {prefix}-about",
    }
    for place, (name, said) in enumerate((("title", title), ("desc", description))):
        node = ET.Element(name, id=f"{prefix}-{'title' if name == 'title' else 'about'}")
        node.text = said
        root.insert(place, node)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - texts were escaped by both writers


def _local(name: str) -> str:
    """A name without its namespace, which HTML does not need."""
    return name.rpartition("}")[2]


def _attributes(given: dict[str, str], referred: set[str], prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes of an element, with prefixed ids, short numbers and the page's colours."""
    for full, value in given.items():
        name = _local(full)
        if name == "id":
            if value in referred:
                yield name, f"{prefix}-{value}"
        elif name == "href":
            yield name, f"#{prefix}-{value[1:]}"
        elif name == "style":
            style = "; ".join(
                part for part in value.split("; ") if not part.startswith("font-family")
            )  # the page has one
            yield name, _COLOUR.sub(lambda found: _VARIABLES.get(found[0].lower(), found[0]), _short(style))
        elif name == "d":
            yield name, re.sub(r"\s*([A-Za-z])\s*", r"\1", _short(value)).strip()
        elif name == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            yield name, _REFERENCE.sub(lambda found: f"url(#{prefix}-{found[1]})", _short(value))


def _short(text: str) -> str:
    """Round the numbers in a text to two decimals, without trailing zeros."""
    return _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)


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
        size = ({"width": 620} if wide else {}) | size
        yield Figure(title, _draw_svg(f"figure-{prefix}", title, description, draw, **size), tuple(key), wide)


def curve_figures(
    curves: Sequence[Curve], colours: Mapping[str, int], results: Sequence[Scalar] = ()
) -> Iterator[Figure]:
    """A figure for each kind of curve with all columns.

    Parameters
    ----------
    curves : the curves, in drawing order
    colours : series number of each column
    results : results whose requested rates to mark on ROC curves
    """
    for name, (title, area, random) in _CURVES.items():
        if kind := [curve for curve in curves if curve.name == name]:
            key = [Key(c.of or "", _area(c), look(colours[c.of or ""])) for c in kind]
            about = f"{title} of {'; '.join(f'{k.name}, {area} {k.value}' for k in key)}."
            key += [Key(random, "", "ref"), Key("best possible", "", "ideal")]
            draw = partial(_draw_curves, kind, colours, results if name == "roc" else ())
            yield from _figure(f"curve-{name}", title, f"{about} Dashed: {random}; dotted: best possible.", draw, key)


def _draw_curves(curves: Sequence[Curve], colours: Mapping[str, int], results: Sequence[Scalar], ax: Axes) -> None:
    for curve in curves:
        before, colour = len(ax.collections), COLORS[colours[curve.of or ""] % len(COLORS)]
        plot_curve(curve, ax=ax, legend=False)
        curves_on(ax)[-1].set_color(colour)
        for shade in ax.collections[before:]:
            shade.set_facecolor(colour)
    mark_rates(ax, results, {str(curve.of): COLORS[colours[curve.of or ""] % len(COLORS)] for curve in curves})


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
        sizes = [amount(side.sum()) for side in (one.negatives, one.positives)]
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
    about = join_words(
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
    about = f"Share of the loss against the number of groups, the worst first: {join_words(there or [''])}."
    draw, title = partial(plot_attribution, attribution), "Share of the loss in the worst groups"
    yield from _figure("concentration", title, about, draw, key, height=240)


def nights(
    title: str, names: Sequence[str], lines: Mapping[str, Sequence[Scalar | None]], failed: Sequence[str], prefix: str
) -> Iterator[Figure]:
    """Values night by night; nights that fail are marked."""
    none = (math.nan,) * 3
    points = {name: [none if r is None else (r.value, *r.ends) for r in line] for name, line in lines.items()}
    key = []
    for i, (name, line) in enumerate(lines.items()):
        values = [one.value for one in line if one is not None and one.value == one.value]
        whole = any(abs(value) > 1 for value in values) and all(float(value).is_integer() for value in values)
        ends = [f"{end:,.0f}" if whole else number(end) for end in (min(values), max(values))] if values else []
        key.append(Key(name, " to ".join(dict.fromkeys(ends)) or "not defined", look(i, dashed=True)))
    about = f"{title} of {plural(len(names), 'night')}: {'; '.join(f'{k.name}, {k.value}' for k in key)}."
    if failed:
        about += f" Failed: {join_words(list(failed))}."
        key.append(Key("failed", plural(len(failed), "night"), "bad"))
    draw = partial(plot_series, names, points, title, marked=[names.index(night) for night in failed])
    yield from _figure(prefix, title, about, draw, key, wide=True, height=220, bottom=56)


def _margin(names: Sequence[str]) -> float:
    """The left margin that names need, in points; plots shorten them to this."""
    return 16 + _TEXT * min(max((len(visible(name)) for name in names), default=0), 40)
