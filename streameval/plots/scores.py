"""Plots of scores: calibration, the distributions of both classes, and precision and recall by threshold.

A score on the diagonal of a diagram of calibration is a probability: three in ten rows with a score of 0.3 are
positive. Below the diagonal the score is too high, above it too low.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.plots import canvas
from streameval.plots.labels import CURVE, arrange
from streameval.results import Curve, Distribution, Reliability, Scalar
from streameval.wording import amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.plots.canvas import Evaluated
    from streameval.typing import Array


_HIDDEN = 30  # ratio of the rows of two bins beyond which the smaller one is invisible on a linear axis


def plot_reliability(
    found: Evaluated | Curve | Sequence[Curve],
    of: str | None = None,
    *,
    log: bool | None = None,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Reliability diagram: the share of positives of each bin against its mean score, and the rows of the bins below.

    Bars are 95 % intervals that treat rows as independent. With ``approx`` they are the bounds of the share, where
    these differ.

    Parameters
    ----------
    found : Evaluation, or one or several curves named ``reliability``
        For an evaluation, all scores are drawn, or the one that `of` names.
    of : str, optional
        A score column.
    log : bool, optional
        Whether the rows are on a logarithmic axis; by default they are if the largest bin has more than 30 times the
        rows of the smallest one.
    ax : matplotlib Axes, optional
        Axes to draw on; the rows are drawn below it. By default, those of a new figure.
    save_to : path, optional
        File to write, ending in .png, .svg or .pdf.

    Returns
    -------
    matplotlib Axes
        The diagram; the rows of the bins are in its only child axes.

    Raises
    ------
    OptionError
        If there is no such curve, it is undefined, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
    >>> axes = plot_reliability(evaluate(data, score="score"))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['score (ECE = 0.3125)', 'calibrated']
    """
    path = canvas.check_path(save_to)
    curves = [curve for curve in canvas.curves_of(found, "reliability", of) if isinstance(curve, Reliability)]
    ax = ax or canvas.new_axes(5.0, 6.2)
    draw_reliability(ax, curves, range(len(curves)), log=log)
    return canvas.finish(ax, path)


def draw_reliability(
    ax: Axes, curves: Sequence[Reliability], colors: Sequence[int], *, log: bool | None = None
) -> None:
    """Draw reliability diagrams on axes, see `plot_reliability`; `colors` are the colour numbers of the curves."""
    _diagonal(ax, "Reliability", "Mean score of the bin")
    rows = ax.inset_axes((0.0, -0.28, 1.0, 0.24), sharex=ax)
    for curve, i in zip(curves, colors, strict=True):
        _line(ax, curve, i, "ECE", marker="o", markersize=4)
        _bars(ax, curve, canvas.color(i))
        _rows(rows, curve, canvas.color(i))
    counts = np.concatenate([curve.counts[curve.counts > 0] for curve in curves])
    if log or (log is None and counts.max() > _HIDDEN * counts.min()):
        rows.set_yscale("log")
        rows.set_ylim(bottom=counts.min() / 2)
        canvas.plain_log(rows.yaxis)
    else:
        canvas.plain_numbers(rows.yaxis)
    canvas.plain_frame(rows)
    rows.set(ylabel="Weight" if curves[0].weighted else "Rows", xlabel=ax.get_xlabel())
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False, bottom=False)
    arrange(canvas.figure_of(ax), ax, 1.0)


def plot_corp(
    found: Evaluated | Curve | Sequence[Curve],
    of: str | None = None,
    *,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """CORP reliability diagram: the isotonic fit of the labels on the scores, the best monotone recalibration.

    The legend has `corp.mcb`, the decrease of the Brier score by recalibration.

    Parameters
    ----------
    found : Evaluation, or one or several curves named ``corp``
        For an evaluation, all scores are drawn, or the one that `of` names.
    of, ax, save_to
        See `plot_reliability`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there is no such curve, it is undefined, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
    >>> axes = plot_corp(evaluate(data, score="score"))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['score (MCB = 0.0677)', 'calibrated']
    """
    path = canvas.check_path(save_to)
    curves = canvas.curves_of(found, "corp", of)
    ax = ax or canvas.new_axes()
    draw_corp(ax, curves, range(len(curves)))
    return canvas.finish(ax, path)


def draw_corp(ax: Axes, curves: Sequence[Curve], colors: Sequence[int]) -> None:
    """Draw CORP diagrams on axes, see `plot_corp`; `colors` are the colour numbers of the curves."""
    _diagonal(ax, "Isotonic fit (CORP)", "Score")
    ax.set_aspect("equal")
    for curve, i in zip(curves, colors, strict=True):
        _line(ax, curve, i, "MCB", marker="o" if curve.x.size == 1 else None)
    arrange(canvas.figure_of(ax), ax, 1.0)


def _diagonal(ax: Axes, title: str, x: str) -> None:
    """The frame of a diagram, with the line of calibrated scores."""
    ax.plot((0, 1), (0, 1), **canvas.REFERENCE, label="calibrated")
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), title=title, xlabel=x, ylabel="Share of positives")
    ax.locator_params(nbins=5)
    canvas.plain_frame(ax)


def _line(ax: Axes, curve: Curve, i: int, area: str, **look: Any) -> None:
    """The i-th curve, with its area in the legend."""
    entry = f"{curve.of} ({area} {'=' if curve.exact else '≈'} {curve.area:.4f})"
    ax.plot(curve.x, curve.y, color=canvas.color(i), linewidth=1.7, label=entry, gid=CURVE, zorder=3, **look)


def _bars(ax: Axes, curve: Reliability, line: str) -> None:
    """Draw intervals of the shares: their bounds where these differ, otherwise the intervals for independent rows."""
    certain = curve.y_upper > curve.y_lower
    lower = np.where(certain, curve.y_lower, curve.ci_lower)
    upper = np.where(certain, curve.y_upper, curve.ci_upper)
    shown = np.isfinite(lower) & np.isfinite(upper)
    look: dict[str, Any] = {"colors": line, "linewidth": 1.0, "alpha": 0.7}
    ax.vlines(curve.x[shown], lower[shown], upper[shown], **look)


def _rows(ax: Axes, curve: Reliability, line: str) -> None:
    """Draw the rows of the bins as outlines, because several curves overlap."""
    x = np.stack((curve.low, curve.low, curve.high, curve.high), axis=1).ravel()
    y = np.stack((0 * curve.counts, curve.counts, curve.counts, 0 * curve.counts), axis=1).ravel()
    ax.plot(x, y, color=line, linewidth=1.0)
    ax.fill_between(x, y, color=line, alpha=0.18, linewidth=0)


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
    path = canvas.check_path(save_to)
    drawn = canvas.distribution_of(found, of)
    ax = ax or canvas.new_axes(6.0, 4.0)
    counted = zip((drawn.negatives, drawn.positives), drawn.infinite, strict=True)
    sides = zip(drawn.densities(), counted, (canvas.BLUE, canvas.RED), ("negative", "positive"), strict=True)
    lowest = np.inf
    for density, (counts, infinite), line, name in sides:
        size, more = (amount(rows) for rows in (counts.sum(), infinite))
        size += f", {more} more infinite" if infinite else ""
        ax.stairs(density, drawn.edges, color=line, alpha=0.25, fill=True)
        ax.stairs(density, drawn.edges, color=line, linewidth=1.4, label=f"{name} ({size})")
        lowest = min(lowest, density[density > 0].min(initial=np.inf))
    if log and np.isfinite(lowest):
        ax.set_yscale("log")
        ax.set_ylim(bottom=lowest / 2)
        canvas.plain_log(ax.yaxis)
    canvas.plain_frame(ax)
    ax.margins(x=0.02)
    ax.set(title=f"Distribution of {drawn.of}", xlabel=drawn.of, ylabel="Density within each class")
    ax.legend(loc="best", fontsize=9, framealpha=0.92, edgecolor="#D0D0D0")
    return canvas.finish(ax, path)


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
    path = canvas.check_path(save_to)
    curve = canvas.one_curve(found, "gain", of, "plot of thresholds")
    ax = ax or canvas.new_axes(6.0, 4.0)
    draw_thresholds(ax, curve, getattr(found, "results", ()), log=log)
    return canvas.finish(ax, path)


def draw_thresholds(ax: Axes, curve: Curve, results: Sequence[Scalar], *, log: bool = False) -> None:
    """Draw a gain curve by its thresholds on axes, with those of operating points, see `plot_thresholds`."""
    at, lines = _by_threshold(curve, log=log)
    look: Any = {"drawstyle": "steps-pre", "linewidth": 1.6, "gid": CURVE, "zorder": 3}
    for (name, values), line in zip(lines.items(), canvas.COLORS, strict=False):
        ax.plot(at, values, color=line, label=name, marker="o" if at.size == 1 else None, **look)
    if log:
        ax.set_xscale("log")
        canvas.plain_log(ax.xaxis)
    marks = sorted((at_, name) for name, at_ in _marks(results, curve.of) if at[0] <= at_ <= at[-1])
    for threshold, _ in marks:
        ax.axvline(threshold, color=canvas.GREY, linestyle=":", linewidth=1.0, zorder=2)
    canvas.plain_frame(ax)
    ax.margins(x=0.02)
    _name(ax, marks)
    ax.set(ylim=(-0.02, 1.02), xlabel=f"Threshold of {curve.of}", ylabel="Share")
    ax.set_title("What a threshold gives", pad=24)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=9, frameon=False)


_RATES = re.compile(r"(tpr@fpr|fpr@tpr)=(.+)")
_LOW = 0.01  # false positive rate below which points need a logarithmic axis


def mark_rates(ax: Axes, results: Sequence[Scalar], colors: Mapping[str, str]) -> None:
    """Mark the requested rates on the ROC curves of some columns, on a logarithmic axis if one lies below 1 %."""
    points = []
    for result in results:
        match = _RATES.fullmatch(result.metric)
        if match and result.of in colors and result.slice is None and np.isfinite(result.value):
            rates = (float(match[2]), result.value)
            points.append((*(rates if match[1] == "tpr@fpr" else rates[::-1]), colors[str(result.of)]))
    lowest = min((x for x, _, _ in points if x > 0), default=1.0)
    if lowest < _LOW:
        for line in ax.get_lines():
            line.set_clip_on(True)  # all begin at 0, infinitely far to the left
            if np.array_equal(line.get_xdata(), [0, 1]):  # the diagonal is curved here
                line.set_data(*[np.geomspace(lowest / 10, 1, 200)] * 2)
        ax.set_aspect("auto")
        ax.set_box_aspect(1)
        ax.set_xscale("log", nonpositive="clip")
        ax.set_xlim(lowest / 3, 1.05)
        canvas.plain_log(ax.xaxis)
    left = ax.get_xlim()[0] if lowest < _LOW else 0.0  # a rate of 0 is at the edge of a logarithmic axis
    for x, y, color in points:
        ax.plot(max(x, left), y, color=color, marker="o", markersize=5, zorder=4, clip_on=False)


def _name(ax: Axes, marks: Sequence[tuple[float, str]]) -> None:
    """Write the names of thresholds at their lines, in three rows.

    If lines are close, names are moved apart, and a thin line connects each name with its threshold.
    """
    place: Any = {"rotation": 90, "fontsize": _FONT, "ha": "right", "va": "center", "color": "#404040", "zorder": 5}
    place |= {"bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}}
    leader: Any = {"arrowstyle": "-", "color": canvas.GREY, "linewidth": 0.6, "shrinkA": 0.0, "shrinkB": 0.0}
    scale = 72 / canvas.figure_of(ax).dpi  # from pixels to points
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
        raise OptionError(f"no threshold of {curve.of!r} is finite{' and above 0: leave out log' if log else ''}")
    order = np.flatnonzero(shown)[::-1]
    flagged, recall = curve.x[order], curve.y[order]
    precision = np.minimum(recall * curve.positives / (flagged * curve.rows), 1.0)
    return curve.thresholds[order], {"precision": precision, "recall": recall, "share flagged": flagged}


def _marks(results: Sequence[Scalar], of: str | None) -> list[tuple[str, float]]:
    """(name, threshold) of the operating points of a score, then of metrics with a threshold."""
    points: dict[str, float] = {}
    chosen: dict[str, float] = {}
    for result in results:
        if result.of == of and result.slice is None and result.threshold is not None and np.isfinite(result.threshold):
            stem, _, asked = result.metric.partition("@")
            asked = f"share={asked}" if stem == "lift" else asked
            is_point = "=" in asked and "," not in asked
            (points if is_point else chosen)[asked if is_point else result.metric] = result.threshold
    return [*points.items(), *chosen.items()][:_MARKS]
