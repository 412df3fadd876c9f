"""Plots of comparisons: a metric by slices or night by night, differences between columns, quantiles of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.plots import canvas
from streameval.plots.canvas import Evaluated
from streameval.results import own_order, slice_text
from streameval.wording import apart, hint, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.results import Scalar
    from streameval.typing import Array


_MOST = 40  # largest number of lines of a plot
_LINE = 0.26  # height of a line in inches
_VERDICTS = {"better": (canvas.BLUE, "D"), "worse": (canvas.RED, "v"), "not shown": (canvas.GREY, "o")}
_WIDE = 28  # characters of a slice
_NAME = 18  # characters of a column in a difference
_TITLE = 46  # characters of a line above the axes


def plot_slices(
    found: Evaluated | Sequence[Scalar],
    column: str,
    metric: str,
    of: str | None = None,
    *,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """A metric by slices: a dot for the value of each slice, with its rows, and a line for the value of all rows.

    Bars are sampling intervals if there are any (``ci``), otherwise bounds where these differ. A hollow dot has no
    interval although others have one, for instance because the slice has too few effective units. The largest slices
    are shown, at most 40 and as many as fit on `ax`, sorted by value with the lowest at the bottom; slices without a
    value come below. Parts of times, dates and numbers between edges are in their own order, from the top.

    Parameters
    ----------
    found : Evaluation, or results
    column : str
        A slicing, such as ``"country"`` or ``"country,channel"``.
    metric : str
        Name of the metric, such as ``roc_auc``.
    of : str, optional
        The score or cluster column, if the metric was computed for several.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there are no such slices or values, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.8, 0.3], "country": ["DE", "DE", "FR", "FR"]})
    >>> axes = plot_slices(evaluate(data, score="score", by="country"), "country", "roc_auc")
    >>> [text.get_text() for text in axes.get_yticklabels()]
    ['FR', 'DE']
    """
    path = canvas.check_path(save_to)
    results = found.results if isinstance(found, Evaluated) else found
    sliced, whole = _slices(results, column, metric, of)
    shown = sorted(sliced[: _fitting(ax, 0.65 * _LINE)], key=lambda r: r.value if np.isfinite(r.value) else -np.inf)
    shown = [shown[i] for i in reversed(own_order([result.slice or {} for result in shown]))] or shown
    ax = ax or canvas.new_axes(6.0, 1.4 + _LINE * len(shown))
    at = np.arange(len(shown))
    if whole is not None and np.isfinite(whole.value):
        ax.axvline(whole.value, **canvas.REFERENCE, label=f"all rows: {whole.value:.4f}")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8, frameon=False, borderaxespad=0.2)
    _dots(ax, at, shown, [(canvas.BLUE, "o")] * len(shown))
    ax.set_yticks(at, slice_labels([result.slice or {} for result in shown]), fontsize=8)
    for y, result in zip(at, shown, strict=True):
        lacks = f": {result.reason}" if not np.isfinite(result.value) else ", no interval" if _lacks(result) else ""
        said = plural(result.rows, "row") + lacks
        ax.annotate(said, (1.01, y), xycoords=("axes fraction", "data"), fontsize=7, va="center", color="#404040")
    more = f"the {len(shown)} largest of {len(sliced):,} slices" if len(shown) < len(sliced) else ""
    title = [f"{metric} of {_shorten(str(shown[0].of), _WIDE)}", f"by {_shorten(column, _TITLE)}"]
    in_one = f"{' '.join(title)}{', ' * bool(more)}{more}"
    in_lines = "\n".join([*title, more]).rstrip()
    ax.set_title(in_one if len(in_one) <= _TITLE else in_lines, fontsize=11, pad=20)
    return _finish(ax, len(shown), f"{metric}{_with_interval(shown)}", path)


def plot_differences(
    found: Evaluated | Sequence[Scalar],
    metric: str | None = None,
    *,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Forest plot of differences: each with its interval, verdict and p-value, and a line at equality.

    A difference without an interval is described in words; its dot is drawn if it lies in the range of the other
    intervals.

    Parameters
    ----------
    found : Evaluation, or differences
        Results with a `baseline`; others are left out.
    metric : str, optional
        Name of one metric, such as ``roc_auc``; by default, all are drawn, at most 40 and as many as fit on `ax`.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there are no differences, or the file cannot be written.

    Examples
    --------
    >>> from streameval import Scalar
    >>> one = Scalar("roc_auc", 0.02, of="v2 − v1", baseline="v1", ci_lower=0.01, ci_upper=0.03, ci_level=0.95,
    ...              p_value=0.001, verdict="better")
    >>> plot_differences([one]).get_yticklabels()[0].get_text().splitlines()
    ['roc_auc', 'v2 − v1']
    """
    path = canvas.check_path(save_to)
    results = found.results if isinstance(found, Evaluated) else found
    every = [r for r in results if r.baseline is not None and metric in (None, r.metric)]
    if not every:
        raise OptionError(f"there are no differences{f' of {metric}' if metric else ''}; name a baseline (--baseline)")
    shown = every[: _fitting(ax, 1.3 * _LINE)][::-1]
    ax = ax or canvas.new_axes(6.5, 1.2 + 1.6 * _LINE * len(shown))
    at = np.arange(len(shown))
    ax.axvline(0.0, **canvas.REFERENCE)
    _dots(ax, at, shown, [_VERDICTS.get(str(r.verdict), _VERDICTS["not shown"]) for r in shown])
    names = slice_labels([result.slice or {} for result in shown])
    ax.set_yticks(at, [_difference(*pair) for pair in zip(shown, names, strict=True)], fontsize=8)
    several = len(_units(shown)) > 1
    for y, result in zip(at, shown, strict=True):
        by = f", by {_shorten(str(result.unit), _NAME)}" if several and result.unit and not _lacks(result) else ""
        ax.annotate(f"{_said(result)}{by}", (1.01, y), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    more = f", {len(shown)} of {len(every)}" if len(shown) < len(every) else ""
    ax.set_title(f"Differences{more}", fontsize=11)
    ends = [end for r in shown for end in (r.ci_lower, r.ci_upper) if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    if low < high:  # a difference of totals would leave no room for those of shares
        ax.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    return _finish(ax, len(shown), f"Difference{_with_interval(shown)}", path)


def _fitting(ax: Axes | None, high: float) -> int:
    """The number of lines of a height in inches that fit on axes, at most `_MOST`."""
    if ax is None:
        return _MOST
    return min(_MOST, max(1, int(ax.get_position().height * canvas.figure_of(ax).get_figheight() / high)))


def _with_interval(shown: Sequence[Scalar]) -> str:
    """The label suffix for the bars: level and unit, if all intervals have the same; empty otherwise."""
    levels = {r.ci_level for r in shown if r.ci_level is not None and not _lacks(r)}
    units = _units(shown)
    by = f" by {_shorten(units[0], _NAME)}" if len(units) == 1 else ""
    return f", with its {levels.pop():.0%} interval{by}" if len(levels) == 1 else ""


def _units(shown: Sequence[Scalar]) -> list[str]:
    """The units of the intervals."""
    return list(dict.fromkeys(str(r.unit) for r in shown if r.unit is not None and not _lacks(r)))


def _lacks(result: Scalar) -> bool:
    """Whether a sampling interval was requested but is missing."""
    return result.ci_level is not None and (result.ci_lower is None or result.ci_upper is None)


def _slices(results: Sequence[Scalar], column: str, metric: str, of: str | None) -> tuple[list[Scalar], Scalar | None]:
    """Values of the slices, most rows first, and that of all rows; an error names the slicings or metrics there are."""
    named = [r for r in results if r.metric == metric and of in (None, r.of) and r.baseline is None]
    sliced = [r for r in named if r.slice is not None and ",".join(r.slice) == column]
    if not sliced:
        values = [r for r in results if r.slice and r.baseline is None]
        by = list(dict.fromkeys(",".join(r.slice or ()) for r in values))
        there = f"{hint(column, by)}there are slices by: {'; '.join(by) or 'nothing, since by was not given'}"
        if column in by:
            metrics = list(dict.fromkeys(r.metric for r in values if ",".join(r.slice or ()) == column))
            there = f"{hint(metric, metrics)}there are: {', '.join(metrics)}"
        raise OptionError(f"there is no {metric} by {column!r}; {there}")
    columns = dict.fromkeys(str(r.of) for r in sliced)
    if len(columns) > 1:
        raise OptionError(f"{metric} by {column!r} was computed for {', '.join(columns)}; say which with of=")
    whole = next((r for r in named if r.slice is None and r.of == sliced[0].of), None)
    return sorted(sliced, key=lambda r: -r.rows), whole


def _dots(ax: Axes, at: Array, shown: Sequence[Scalar], looks: Sequence[tuple[str, str]]) -> None:
    """A dot for each value, over the bar of its interval."""
    for y, result, (line, marker) in zip(at, shown, looks, strict=True):
        lower, upper = (result.lower, result.upper) if _lacks(result) else result.ends
        if upper > lower:
            ax.plot((lower, upper), (y, y), color=line, linewidth=1.3, solid_capstyle="butt", zorder=2)
        face = "white" if _lacks(result) else line
        ax.plot(result.value, y, color=line, markerfacecolor=face, marker=marker, markersize=5, zorder=3)


def _difference(result: Scalar, name: str) -> str:
    """The metric, the slice if there is one, and the columns compared."""
    place = f" ({name})" if result.slice else ""
    return f"{result.metric}{place}\n{' − '.join(_shorten(column, _NAME) for column in str(result.of).split(' − '))}"


def _said(result: Scalar) -> str:
    """The verdict of a difference with its p-value; without an interval, its value or the reason."""
    p = "" if result.p_value is None else f", p = {result.p_value:.2g}" if result.p_value >= 1e-4 else ", p < 0.0001"
    value = f"{result.value:+.4g}".replace("-", "−")
    verdict = f"{value}, no interval" if result.verdict and _lacks(result) else result.verdict
    return f"{verdict or result.reason or result.ci_reason or 'no interval'}{p}"


def slice_labels(slices: Sequence[Mapping[str, object]]) -> list[str]:
    """Slices by their values, each in one short line of its own; null without quotes, as in tables."""
    return apart([", ".join(map(slice_text, slice_.values())) for slice_ in slices], _WIDE, _WIDE // 3)


def _shorten(text: str, most: int) -> str:
    """Cut the middle out of a long text, because names differ at both ends; invisible characters are spelled out."""
    return apart([text], most, most // 3)[0]


def _finish(ax: Axes, lines: int, x: str, path: Path | None) -> Axes:
    """Set frame and limits, and save the file."""
    canvas.plain_frame(ax)
    ax.grid(visible=False, axis="y")
    ax.set(ylim=(-0.7, lines - 0.3), xlabel=x)
    ax.margins(x=0.05)
    ax.locator_params(axis="x", nbins=6)
    return canvas.finish(ax, path)


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
    path = canvas.check_path(save_to)
    axes = ax or canvas.new_axes(8.0, 4.0)
    xs = np.arange(len(names))
    alpha = 0.25 if len(lines) <= _BANDS else 0.1
    for i, (name, points) in enumerate(lines.items()):
        value, lower, upper = np.array(points, dtype=np.float64).reshape(-1, 3).T
        axes.plot(xs, value, marker="o", markersize=3, color=canvas.color(i), linestyle=canvas.dash(i), label=name)
        if np.any(upper > lower):
            axes.fill_between(xs, lower, upper, color=canvas.color(i), alpha=alpha, linewidth=0)
    for i, place in enumerate(marked):
        label = "_" if i else "failed"  # a single entry in the legend
        axes.axvline(place, color=canvas.RED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1, label=label)
    shown = xs[:: max(1, -(-len(names) // _TICKS))]
    axes.set_xticks(shown, [names[i].rpartition("=")[2] for i in shown], rotation=30, ha="right")
    keys = {name.partition("=")[0] if "=" in name else "partition" for name in names}
    axes.set_xlabel(keys.pop() if len(keys) == 1 else "partition")
    axes.set_title(title)
    canvas.plain_frame(axes)
    axes.legend()
    return canvas.finish(axes, path)


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
    path = canvas.check_path(save_to)
    finite = {}
    for name, (shares, values) in lines.items():
        points = np.array([values, shares], dtype=np.float64)
        finite[name] = points[:, np.isfinite(points).all(axis=0)]
    finite = {name: points for name, points in finite.items() if points.size}
    if not finite:
        raise OptionError("there is nothing to draw: no column has finite numbers")
    ax = ax or canvas.new_axes(6.0, 4.2)
    for i, (name, (values, shares)) in enumerate(finite.items()):
        ax.plot(values, shares, color=canvas.color(i), linestyle=("-", "--")[i // 6 % 2], linewidth=1.7, label=name)
    canvas.plain_frame(ax)
    ax.margins(x=0.02)
    ax.set(ylim=(-0.02, 1.02), title="Cumulative distribution", xlabel="Value", ylabel="Share of rows at or below")
    ax.legend(loc="best", fontsize=9, framealpha=0.92, edgecolor="#D0D0D0")
    return canvas.finish(ax, path)
