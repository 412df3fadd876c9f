"""Plots of calibration: whether a score is a probability.

On the diagonal it is: three in ten rows with a score of 0.3 are positive. Below the diagonal the score is too high,
above it too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.plots.canvas import (
    REFERENCE,
    checked_path,
    color,
    figure_of,
    finish,
    new_axes,
    plain_frame,
    plain_log,
    plain_numbers,
)
from streameval.plots.labels import CURVE, arrange
from streameval.plots.sources import curves_of
from streameval.results import Reliability

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.plots.sources import Evaluated
    from streameval.results import Curve

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
    path = checked_path(save_to)
    curves = [curve for curve in curves_of(found, "reliability", of) if isinstance(curve, Reliability)]
    ax = ax or new_axes(5.0, 6.2)
    draw_reliability(ax, curves, range(len(curves)), log=log)
    return finish(ax, path)


def draw_reliability(
    ax: Axes, curves: Sequence[Reliability], colors: Sequence[int], *, log: bool | None = None
) -> None:
    """Draw reliability diagrams on axes, see `plot_reliability`; `colors` are the colour numbers of the curves."""
    _diagonal(ax, "Reliability", "Mean score of the bin")
    rows = ax.inset_axes((0.0, -0.28, 1.0, 0.24), sharex=ax)
    for curve, i in zip(curves, colors, strict=True):
        _line(ax, curve, i, "ECE", marker="o", markersize=4)
        _bars(ax, curve, color(i))
        _rows(rows, curve, color(i))
    counts = np.concatenate([curve.counts[curve.counts > 0] for curve in curves])
    if log or (log is None and counts.max() > _HIDDEN * counts.min()):
        rows.set_yscale("log")
        rows.set_ylim(bottom=counts.min() / 2)
        plain_log(rows.yaxis)
    else:
        plain_numbers(rows.yaxis)
    plain_frame(rows)
    rows.set(ylabel="Weight" if curves[0].weighted else "Rows", xlabel=ax.get_xlabel())
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False, bottom=False)
    arrange(figure_of(ax), ax, 1.0, "upper left")


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
    path = checked_path(save_to)
    curves = curves_of(found, "corp", of)
    ax = ax or new_axes()
    draw_corp(ax, curves, range(len(curves)))
    return finish(ax, path)


def draw_corp(ax: Axes, curves: Sequence[Curve], colors: Sequence[int]) -> None:
    """Draw CORP diagrams on axes, see `plot_corp`; `colors` are the colour numbers of the curves."""
    _diagonal(ax, "Isotonic fit (CORP)", "Score")
    ax.set_aspect("equal")
    for curve, i in zip(curves, colors, strict=True):
        _line(ax, curve, i, "MCB", marker="o" if curve.x.size == 1 else None)
    arrange(figure_of(ax), ax, 1.0, "upper left")


def _diagonal(ax: Axes, title: str, x: str) -> None:
    """The frame of a diagram, with the line of calibrated scores."""
    ax.plot((0, 1), (0, 1), **REFERENCE, label="calibrated")
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), title=title, xlabel=x, ylabel="Share of positives")
    ax.locator_params(nbins=5)
    plain_frame(ax)


def _line(ax: Axes, curve: Curve, i: int, area: str, **look: Any) -> None:
    """The i-th curve, with its area in the legend."""
    entry = f"{curve.of} ({area} {'=' if curve.exact else '≈'} {curve.area:.4f})"
    ax.plot(curve.x, curve.y, color=color(i), linewidth=1.7, label=entry, gid=CURVE, zorder=3, **look)


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
