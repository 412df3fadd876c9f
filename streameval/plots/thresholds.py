"""Plots for choosing a threshold: score distributions of both classes, and precision and recall by threshold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.plots.canvas import (
    BLUE,
    COLORS,
    GREY,
    RED,
    checked_path,
    figure_of,
    finish,
    new_axes,
    plain_frame,
    plain_log,
)
from streameval.plots.labels import CURVE
from streameval.plots.sources import distribution_of, one_curve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.plots.sources import Evaluated
    from streameval.results import Curve, Distribution
    from streameval.typing import Array

_MARKS = 12  # largest number of thresholds drawn
_FONT = 7  # font size of their names, in points
_LONG = 16  # names with more characters reach into the rows of names above and below


def plot_score_distributions(
    found: Evaluated | Distribution,
    of: str | None = None,
    *,
    log: bool = False,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Densities of the scores of negatives and positives; the area of each is 1.

    Parameters
    ----------
    found : Evaluation, or Distribution
    of : str, optional
        The score column, if an evaluation has several.
    log : bool
        Whether the density is on a logarithmic axis, which makes the few rows between two peaks visible.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there are no such scores, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
    >>> axes = plot_score_distributions(evaluate(data, score="score"))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['negative (2)', 'positive (2)']
    """
    path = checked_path(save_to)
    drawn = distribution_of(found, of)
    ax = ax or new_axes(6.0, 4.0)
    counted = zip((drawn.negatives, drawn.positives), drawn.infinite, strict=True)
    sides = zip(drawn.densities(), counted, (BLUE, RED), ("negative", "positive"), strict=True)
    lowest = np.inf
    for density, (counts, infinite), line, name in sides:
        size, more = (f"{rows:,.6g}" if drawn.weighted else f"{rows:,.0f}" for rows in (counts.sum(), infinite))
        size += f", {more} more infinite" if infinite else ""
        ax.stairs(density, drawn.edges, color=line, alpha=0.25, fill=True)
        ax.stairs(density, drawn.edges, color=line, linewidth=1.4, label=f"{name} ({size})")
        lowest = min(lowest, density[density > 0].min(initial=np.inf))
    if log and np.isfinite(lowest):
        ax.set_yscale("log")
        ax.set_ylim(bottom=lowest / 2)
        plain_log(ax.yaxis)
    plain_frame(ax)
    ax.margins(x=0.02)
    ax.set(title=f"Distribution of {drawn.of}", xlabel=drawn.of, ylabel="Density within each class")
    ax.legend(loc="best", fontsize=9, framealpha=0.92, edgecolor="#D0D0D0")
    return finish(ax, path)


def plot_thresholds(
    found: Evaluated | Curve,
    of: str | None = None,
    *,
    log: bool = False,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Precision, recall and the share of rows flagged, against the threshold.

    Rows whose score is at or above the threshold are flagged. Dotted lines are the operating points of an evaluation,
    and the thresholds of metrics such as `f1_max`; at most twelve.

    Parameters
    ----------
    found : Evaluation, or Curve named ``gain``
    of : str, optional
        The score column, if an evaluation has several.
    log : bool
        Whether thresholds are on a logarithmic axis; they must be above 0.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there is no such curve, it is undefined, no threshold is finite, none is above 0 with `log`, or the file
        cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
    >>> axes = plot_thresholds(evaluate(data, score="score"))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['precision', 'recall', 'share flagged']
    """
    path = checked_path(save_to)
    curve = one_curve(found, "gain", of, "plot of thresholds")
    at, lines = _by_threshold(curve, log=log)
    ax = ax or new_axes(6.0, 4.0)
    look: Any = {"drawstyle": "steps-pre", "linewidth": 1.6, "gid": CURVE, "zorder": 3}
    for (name, values), line in zip(lines.items(), COLORS, strict=False):
        ax.plot(at, values, color=line, label=name, marker="o" if at.size == 1 else None, **look)
    if log:
        ax.set_xscale("log")
        plain_log(ax.xaxis)
    marks = sorted((at_, name) for name, at_ in _marks(found, curve.of) if at[0] <= at_ <= at[-1])
    for threshold, _ in marks:
        ax.axvline(threshold, color=GREY, linestyle=":", linewidth=1.0, zorder=2)
    plain_frame(ax)
    ax.margins(x=0.02)
    _name(ax, marks)
    ax.set(ylim=(-0.02, 1.02), xlabel=f"Threshold of {curve.of}", ylabel="Share")
    ax.set_title("What a threshold gives", pad=24)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=9, frameon=False)
    return finish(ax, path)


def _name(ax: Axes, marks: Sequence[tuple[float, str]]) -> None:
    """Write the names of thresholds at their lines, in three rows.

    If lines are close, names are moved apart, and a thin line connects each name with its threshold.
    """
    place: Any = {"rotation": 90, "fontsize": _FONT, "ha": "right", "va": "center", "color": "#404040", "zorder": 5}
    place |= {"bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}}
    leader: Any = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0.0, "shrinkB": 0.0}
    scale = 72 / figure_of(ax).dpi  # from pixels to points
    free: dict[int, float] = {}
    for i, (threshold, name) in reversed([*enumerate(marks)]):
        at, row = scale * float(ax.transData.transform((threshold, 0.5))[0]), (i + 1) % 3 - 1
        rows = (row - 1, row, row + 1) if len(name) > _LONG else (row,)
        end = min(at - 1.5, *(free.get(taken, math.inf) for taken in rows))
        free |= dict.fromkeys(rows, end - 1.7 * _FONT)
        point, offset = (threshold, 0.5 + 0.3 * row), (end - at, 0)
        if end < at - _FONT:
            ax.annotate("", point, offset, textcoords="offset points", arrowprops=leader, zorder=4)
        ax.annotate(name, point, offset, textcoords="offset points", **place)


def _by_threshold(curve: Curve, *, log: bool) -> tuple[Array, dict[str, Array]]:
    """Finite thresholds, ascending, with precision, recall and share flagged at each."""
    shown = np.isfinite(curve.thresholds) & (curve.x > 0)
    if log:
        shown &= curve.thresholds > 0
    if not shown.any():
        msg = f"no threshold of {curve.of!r} is finite{' and above 0: leave out log' if log else ''}"
        raise OptionError(msg)
    order = np.flatnonzero(shown)[::-1]
    flagged, recall = curve.x[order], curve.y[order]
    precision = np.minimum(recall * curve.positives / (flagged * curve.rows), 1.0)
    return curve.thresholds[order], {"precision": precision, "recall": recall, "share flagged": flagged}


def _marks(found: Evaluated | Curve, of: str | None) -> list[tuple[str, float]]:
    """(name, threshold) of the operating points of a score, then of metrics with a threshold."""
    points: dict[str, float] = {}
    chosen: dict[str, float] = {}
    for result in getattr(found, "results", ()):
        if result.of == of and result.slice is None and result.threshold is not None and np.isfinite(result.threshold):
            stem, _, asked = result.metric.partition("@")
            asked = f"share={asked}" if stem == "lift" else asked
            is_point = "=" in asked and "," not in asked
            (points if is_point else chosen)[asked if is_point else result.metric] = result.threshold
    return [*points.items(), *chosen.items()][:_MARKS]
