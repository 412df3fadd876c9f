"""Plot of quantile sketches: the cumulative distributions of columns of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.plots.canvas import checked_path, color, finish, new_axes, plain_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes


def plot_quantiles(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Plot cumulative distributions: for each line, the share of rows at or below a value.

    Parameters
    ----------
    lines : mapping of str to (shares, values)
        Quantiles of a column by its name in the legend; values that are not finite are left out.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there is nothing to draw, or the file cannot be written.

    Examples
    --------
    >>> axes = plot_quantiles({"score": ([0, 0.5, 1], [0.1, 0.2, 0.9])})
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['score']
    """
    path = checked_path(save_to)
    finite = {}
    for name, (shares, values) in lines.items():
        points = np.array([values, shares], dtype=np.float64)
        finite[name] = points[:, np.isfinite(points).all(axis=0)]
    finite = {name: points for name, points in finite.items() if points.size}
    if not finite:
        msg = "there is nothing to draw: no column has finite numbers"
        raise OptionError(msg)
    ax = ax or new_axes(6.0, 4.2)
    for i, (name, (values, shares)) in enumerate(finite.items()):
        ax.plot(values, shares, color=color(i), linestyle=("-", "--")[i // 6 % 2], linewidth=1.7, label=name)
    plain_frame(ax)
    ax.margins(x=0.02)
    ax.set(ylim=(-0.02, 1.02), title="Cumulative distribution", xlabel="Value", ylabel="Share of rows at or below")
    ax.legend(loc="best", fontsize=9, framealpha=0.92, edgecolor="#D0D0D0")
    return finish(ax, path)
