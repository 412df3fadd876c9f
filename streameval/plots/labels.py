"""Texts on a plot: the legend, and thresholds next to their curves.

Both are placed where they hide no curve. They are placed again whenever a curve is added: on the axes of the curve,
and on other axes whose size the figure's layout has changed. Legends are left out of the layout, because a wide legend
would shrink its axes.

Places are boxes (left, low, right, high) in shares of the axes' width and height. Lines are resampled densely, so that
a box is free of a line if none of the line's points lies inside.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.typing import ColorType

    from streameval.typing import Array

    Thresholds = tuple[Array, Array, Array]

Box = tuple[float, float, float, float]
Line = tuple["Array", "Array"]

_PAD = 0.02  # between a legend and the frame, where best lines run
_EDGES = ((1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.5), (0.0, 0.5))  # shares of the free room
_STEPS = 8  # places to try between the edges if they are taken
_DENSE = 1000  # points of a line for each length of the axes


def along(x: Array, y: Array) -> Array:
    """The length along a line to each of its points, in the Manhattan metric.

    Examples
    --------
    >>> along(np.array([0.0, 0.5, 0.5]), np.array([0.0, 0.0, 1.0]))
    array([0. , 0.5, 1.5])
    """
    return np.concatenate(([0.0], np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y)))))


def dense_lines(ax: Axes, drawn_lines: Sequence[Line2D]) -> list[Line]:
    """Lines on the axes, resampled, in shares of the axes."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    lines = []
    for drawn in drawn_lines:
        x = (np.asarray(drawn.get_xdata(), dtype=np.float64) - left) / (right - left)
        y = (np.asarray(drawn.get_ydata(), dtype=np.float64) - low) / (high - low)
        inside = np.flatnonzero((x >= 0) & (x <= 1))
        shown = slice(max(int(inside[0]) - 1, 0), int(inside[-1]) + 2) if inside.size else slice(0, 2)
        lines.append(_dense(x[shown], y[shown]))
    return lines


def _dense(x: Array, y: Array) -> Line:
    if not x.size:
        return x, y
    way = along(x, y)
    places = np.linspace(0, way[-1], _DENSE * max(1, int(np.ceil(way[-1]))))
    return np.interp(places, way, x), np.interp(places, way, y)


def touches(line: Line, box: Box) -> int:
    """Number of points of a line in a box."""
    x, y = line
    return int(np.count_nonzero((x >= box[0]) & (x <= box[2]) & (y >= box[1]) & (y <= box[3])))


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes overlap; boxes that only touch at an edge do not.

    Examples
    --------
    >>> overlap((0, 0, 2, 2), (1, 1, 3, 3)), overlap((0, 0, 1, 1), (2, 0, 3, 1))
    (True, False)
    """
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def legend_place(curves: Sequence[Line], others: Sequence[Line], size: tuple[float, float]) -> tuple[Box, int]:
    """The box for a legend, and the number of points of curves that it covers.

    It covers as few points of curves as possible. Ties are broken by preferring a place at an edge, then few covered
    points of other lines, then the lower right.

    Examples
    --------
    >>> falling = np.linspace(0, 1, 100), np.linspace(1, 0, 100)
    >>> legend_place([falling], [], (0.25, 0.25))
    ((0.02, 0.02, 0.27, 0.27), 0)
    """
    edges = [*_EDGES, *product(np.linspace(0, 1, _STEPS + 1).tolist(), repeat=2)]
    boxes = []
    for place in edges:
        left, low = (_PAD + edge * (1 - 2 * _PAD - length) for edge, length in zip(place, size, strict=True))
        boxes.append((left, low, left + size[0], low + size[1]))

    def cost(i: int) -> tuple[int, bool, int]:
        hidden, crossed = (sum(touches(line, boxes[i]) for line in lines) for lines in (curves, others))
        return hidden, i >= len(_EDGES), crossed

    best = min(range(len(boxes)), key=cost)
    return boxes[best], cost(best)[0]


def label_box(
    at: tuple[float, float], away: tuple[float, float], size: tuple[float, float], side: tuple[int, int]
) -> Box:
    """The box of a label next to a point; `side` is (±1, ±1) for right or left, above or below.

    Examples
    --------
    >>> label_box((0.5, 0.5), (0.125, 0.125), (0.25, 0.125), (1, -1))
    (0.625, 0.25, 0.875, 0.375)
    """
    (near_x, near_y), (far_x, far_y) = (
        tuple(at[i] + side[i] * reach for i, reach in enumerate(reaches))
        for reaches in (away, (away[0] + size[0], away[1] + size[1]))
    )
    return min(near_x, far_x), min(near_y, far_y), max(near_x, far_x), max(near_y, far_y)


CURVE = "streameval-curve"  # marks the lines that are curves
_LABEL = "streameval-threshold"  # marks the texts of thresholds
_LABELS = 10  # largest number of thresholds on a single curve; half of it on each of several curves
_SIZES = (9, 8, 7, 6)  # font sizes of the legend, in points
_BELOW = 45  # points between the axes and a legend below them, for ticks and the axis label
_ROOM = 1.03  # factor of spare room around a legend
_SIDES = {
    (1, 1): ("left", "bottom"),
    (-1, -1): ("right", "top"),
    (1, -1): ("left", "top"),
    (-1, 1): ("right", "bottom"),
}


_THRESHOLDS: WeakKeyDictionary[Line2D, Thresholds] = WeakKeyDictionary()
# the largest x shown, and the size of the axes
_PLACED: WeakKeyDictionary[Axes, tuple[float, tuple[float, float]]] = WeakKeyDictionary()
_NEVER = math.nan, math.nan
_UNFINISHED: WeakSet[Figure] = WeakSet()  # figures whose layout waits until all is drawn


def mark(curve: Line2D, thresholds: Thresholds) -> None:
    """Register thresholds (x, y, threshold) to be written next to a curve."""
    _THRESHOLDS[curve] = thresholds


def curves_on(ax: Axes) -> list[Line2D]:
    """The curves on the axes, in the order in which they were drawn."""
    return [line for line in ax.get_lines() if line.get_gid() == CURVE]


def arrange(figure: Figure, ax: Axes, limit: float) -> None:
    """Place legend and thresholds on the axes, and on the figure's other axes whose size has changed."""
    _PLACED[ax] = limit, _NEVER
    if figure in _UNFINISHED:
        return
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    _place_all(figure)


@contextmanager
def arrange_once(figure: Figure) -> Iterator[None]:
    """Place the legends and thresholds of all axes once the block has drawn them, not after every curve."""
    _UNFINISHED.add(figure)
    try:
        yield
    finally:
        _UNFINISHED.discard(figure)
    _place_all(figure)


def _place_all(figure: Figure) -> None:
    """Place what axes have that are new, then of those whose size has changed."""
    _lay_out(figure)
    placed = [(ax, *_PLACED[ax]) for ax in figure.axes if ax in _PLACED]
    for ax, limit, before in sorted(placed, key=lambda one: one[2] != _NEVER):
        if not np.allclose(_size(ax), before, rtol=0.01):
            _place(figure, ax, limit)


def _lay_out(figure: Figure) -> None:
    """Give the axes of a figure their sizes from its layout."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def _place(figure: Figure, ax: Axes, limit: float) -> None:
    ax.apply_aspect()
    for text in [*ax.texts, *ax.collections]:
        if text.get_gid() == _LABEL:
            text.remove()
    box = _legend(figure, ax)
    width, height = _size(ax)
    point = figure.dpi / 72 / width, figure.dpi / 72 / height  # shares of the axes
    _annotate(ax, limit, point, [] if box is None else [box])
    _PLACED[ax] = limit, _size(ax)


def _size(ax: Axes) -> tuple[float, float]:
    """Width and height in pixels."""
    ax.apply_aspect()
    extent = ax.get_window_extent()
    return extent.width, extent.height


def _entries(ax: Axes) -> tuple[list[Artist | tuple[Artist, ...]], list[str]]:
    """Handles and texts of the legend, curves first; bands with the same text share an entry with all their colours."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines: list[Any] = [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]
    lines.sort(key=lambda line: line.get_gid() != CURVE)
    if any(curve in _THRESHOLDS for curve in curves_on(ax)):
        lines.append(Line2D([], [], linestyle="", marker="o", markersize=3, color="black", label="threshold"))
    bands: dict[str, list[Any]] = {}
    for band in ax.collections:
        if not str(band.get_label()).startswith("_"):
            faces: Any = band.get_facecolor()
            face = tuple(faces[0]) if len(faces) else "none"  # without a colour there is no face
            bands.setdefault(str(band.get_label()), []).append(face)
    shades = [tuple(Patch(facecolor=face, linewidth=0) for face in dict.fromkeys(faces)) for faces in bands.values()]
    return [*lines, *shades], [*(str(line.get_label()) for line in lines), *bands]


def _legend(figure: Figure, ax: Axes) -> Box | None:
    """Add the legend where it hides no curve, smaller if necessary; returns its box, or None if it is below the axes.

    If even a small legend would hide a curve, and the figure has a layout, it goes below the axes.
    """
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.transforms import ScaledTranslation

    curves = curves_on(ax)
    shown = dense_lines(ax, curves)
    others = dense_lines(ax, [line for line in ax.get_lines() if line not in curves])
    handles, texts = _entries(ax)
    look: dict[str, Any] = {
        "handles": handles,
        "labels": texts,
        "handler_map": {tuple: HandlerTuple(ndivide=None, pad=0)},
        "framealpha": 0.92,
        "edgecolor": "#D0D0D0",
        "borderaxespad": 0.0,
    }
    for letters in _SIZES:
        legend = ax.legend(loc="center", fontsize=letters, **look)
        legend.set_in_layout(False)
        extent, (width, height) = legend.get_window_extent(), _size(ax)
        size = _ROOM * extent.width / width, _ROOM * extent.height / height
        box, hidden = legend_place(shown, others, size)
        good = max(size) < 1 and not hidden
        if good:
            break
    if not good and figure.get_layout_engine() is not None:
        below = ax.transAxes + ScaledTranslation(0, -_BELOW / 72, figure.dpi_scale_trans)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below, fontsize=_SIZES[1], **look)
        _lay_out(figure)
        return None
    legend.set_bbox_to_anchor(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), ax.transAxes)
    return box


def _annotate(ax: Axes, limit: float, point: tuple[float, float], taken: list[Box]) -> None:
    """Write thresholds at points evenly spaced along each curve."""
    marked = [curve for curve in curves_on(ax) if curve in _THRESHOLDS]
    lines = dense_lines(ax, ax.get_lines())
    for curve in marked:
        x, y, thresholds = _THRESHOLDS[curve]
        usable = np.isfinite(x) & np.isfinite(y) & np.isfinite(thresholds) & (x <= limit)
        if not usable.any():
            continue
        x, y, thresholds = x[usable], y[usable], thresholds[usable]
        way, count = along(x / limit, y), _LABELS if len(marked) == 1 else _LABELS // 2
        wanted = np.searchsorted(way, np.linspace(0.06, 0.94, count) * way[-1]).clip(max=x.size - 1)
        color = "black" if len(marked) == 1 else curve.get_color()
        for i in dict.fromkeys(wanted.tolist()):
            side = _free_side((x[i] / limit, y[i] / ax.get_ylim()[1]), f"{thresholds[i]:.3g}", point, lines, taken)
            if side is not None:
                _write(ax, (float(x[i]), float(y[i])), f"{thresholds[i]:.3g}", color, side)


def _free_side(
    at: tuple[float, float], text: str, point: tuple[float, float], lines: Sequence[Line], taken: list[Box]
) -> tuple[int, int] | None:
    """A side of a point where a text hides nothing, or None; its box is added to `taken`. Text sizes are estimates."""
    wide, high = point
    for side in _SIDES:
        box = label_box(at, (4 * wide, 4 * high), (5 * len(text) * wide, 9 * high), side)
        outside = min(box) < 0 or max(box) > 1
        if outside or any(overlap(box, other) for other in taken) or any(touches(line, box) for line in lines):
            continue
        taken.append(box)
        return side
    return None


def _write(ax: Axes, xy: tuple[float, float], text: str, color: ColorType, side: tuple[int, int]) -> None:
    """Write a text next to a point, and draw a dot at it."""
    shift, (ha, va) = (4 * side[0], 4 * side[1]), _SIDES[side]
    given: dict[str, Any] = {"textcoords": "offset points", "ha": ha, "va": va, "fontsize": 8, "zorder": 4}
    ax.annotate(text, xy, shift, gid=_LABEL, color=color, **given)
    ax.scatter(*xy, s=9, color="black", zorder=4, clip_on=False, gid=_LABEL)
