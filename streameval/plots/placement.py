"""Find places where a legend and labels hide nothing.

Places are boxes (left, low, right, high) in shares of the axes' width and height. Lines are resampled densely, so that
a box is free of a line if none of the line's points lies inside.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from streameval.typing import Array

Box = tuple[float, float, float, float]
Line = tuple["Array", "Array"]
Place = Literal["lower right", "lower left", "upper right", "upper left", "center right", "center left"]

_PAD = 0.02  # between a legend and the frame, where best lines run
_PLACES: dict[Place, tuple[float, float]] = {  # relative position within the free room
    "lower right": (1.0, 0.0),
    "lower left": (0.0, 0.0),
    "upper right": (1.0, 1.0),
    "upper left": (0.0, 1.0),
    "center right": (1.0, 0.5),
    "center left": (0.0, 0.5),
}
_STEPS = 8  # places to try between the edges if the corners are taken
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


def legend_place(
    curves: Sequence[Line], others: Sequence[Line], size: tuple[float, float], preferred: Place
) -> tuple[Box, int]:
    """The box for a legend, and the number of points of curves that it covers.

    It covers as few points of curves as possible. Ties are broken by preferring a place at an edge, then few covered
    points of other lines, then the preferred place.

    Examples
    --------
    >>> falling = np.linspace(0, 1, 100), np.linspace(1, 0, 100)
    >>> legend_place([falling], [], (0.25, 0.25), "upper left")
    ((0.02, 0.02, 0.27, 0.27), 0)
    """
    edges = [*_PLACES.values(), *product(np.linspace(0, 1, _STEPS + 1).tolist(), repeat=2)]
    boxes = []
    for place in edges:
        left, low = (_PAD + edge * (1 - 2 * _PAD - length) for edge, length in zip(place, size, strict=True))
        boxes.append((left, low, left + size[0], low + size[1]))

    def cost(i: int) -> tuple[int, bool, int, bool]:
        hidden, crossed = (sum(touches(line, boxes[i]) for line in lines) for lines in (curves, others))
        return hidden, i >= len(_PLACES), crossed, edges[i] != _PLACES[preferred]

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
