"""Plot of metrics night by night."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.plots.canvas import RED, checked_path, color, dash, finish, new_axes, plain_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

_TICKS = 12  # largest number of names below the axis
_BANDS = 3  # bands that can lie over each other at full strength


def plot_series(
    names: Sequence[str],
    lines: Mapping[str, Sequence[tuple[float, float, float]]],
    title: str,
    *,
    marked: Sequence[int] = (),
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Lines over partitions, with a band where values are intervals and a gap where they are undefined.

    Parameters
    ----------
    names : sequence of str, of length n
        The partitions.
    lines : mapping of str to sequence of (value, lower, upper), each of length n
        Lines by their names in the legend.
    title : str
    marked : sequence of int
        Positions of partitions to mark, such as those that fail a rule.
    ax : matplotlib Axes, optional
        Axes to draw on; by default, those of a new figure.
    save_to : path, optional
        File to write, ending in .png, .svg or .pdf.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If the file cannot be written.

    Examples
    --------
    >>> axes = plot_series(["night=1", "night=2"], {"per night": [(0.9, 0.9, 0.9), (0.8, 0.7, 0.9)]}, "roc_auc")
    >>> axes.get_title()
    'roc_auc'
    """
    path = checked_path(save_to)
    axes = ax or new_axes(8.0, 4.0)
    xs = np.arange(len(names))
    alpha = 0.25 if len(lines) <= _BANDS else 0.1
    for i, (name, points) in enumerate(lines.items()):
        value, lower, upper = np.array(points, dtype=np.float64).reshape(-1, 3).T
        axes.plot(xs, value, marker="o", markersize=3, color=color(i), linestyle=dash(i), label=name)
        if np.any(upper > lower):
            axes.fill_between(xs, lower, upper, color=color(i), alpha=alpha, linewidth=0)
    for i, place in enumerate(marked):
        label = "_" if i else "failed"  # a single entry in the legend
        axes.axvline(place, color=RED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1, label=label)
    shown = xs[:: max(1, -(-len(names) // _TICKS))]
    axes.set_xticks(shown, [names[i].rpartition("=")[2] for i in shown], rotation=30, ha="right")
    keys = {name.partition("=")[0] if "=" in name else "partition" for name in names}
    axes.set_xlabel(keys.pop() if len(keys) == 1 else "partition")
    axes.set_title(title)
    plain_frame(axes)
    axes.legend()
    return finish(axes, path)
