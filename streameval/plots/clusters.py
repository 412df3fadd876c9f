"""Plots of clusters: concentration of the loss, purity by size, and the worst clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.plots import canvas
from streameval.plots.curves import plot_lift
from streameval.plots.labels import arrange
from streameval.results import Bins

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.plots.canvas import Attributed, Evaluated
    from streameval.results import Curve

_LOSSES = {  # table: (one of its groups, several, their loss, key of the number of groups in `totals`)
    "merges": ("cluster of several classes", "clusters of several classes", "false pairs", "merged_clusters"),
    "splits": ("class in several clusters", "classes in several clusters", "missed pairs", "split_classes"),
    "impure": ("impure cluster", "impure clusters", "area lost", "impure_clusters"),
}


def plot_attribution(found: Attributed, *, ax: Axes | None = None, save_to: str | Path | None = None) -> Axes:
    """Concentration of the loss: its cumulative share against the number of groups, the worst first.

    The solid line ends at the last listed group (`top`); a dotted line continues to the last of all groups.

    Parameters
    ----------
    found : Attribution
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If nothing was lost, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import attribute
    >>> data = pa.table({"campaign": [1, 1, 1, 2, 2], "cluster": [7, 7, 8, 7, 9]})
    >>> axes = plot_attribution(attribute(data, cluster="cluster", classes="campaign"))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['false pairs (1 of 1 cluster of several classes)', 'missed pairs (2 of 2 classes in several clusters)']
    """
    path = canvas.checked_path(save_to)
    tables = {name: getattr(found, name) for name in _LOSSES}
    drawn = {name: table["running_share"].to_numpy() for name, table in tables.items() if table is not None}
    drawn = {name: shares for name, shares in drawn.items() if shares.size and np.isfinite(shares).all()}
    if not drawn:
        raise OptionError("nothing was lost: no cluster holds several classes, and none is impure")
    ax = ax or canvas.new_axes(6.0, 4.2)
    most = 1
    for i, (name, shares) in enumerate(drawn.items()):
        one, several, lost, count = _LOSSES[name]
        total = int(found.totals.get(count, shares.size))
        label = f"{lost} ({shares.size:,} of {total:,} {one if total == 1 else several})"
        look: dict[str, Any] = {"marker": "o" if shares.size < 30 else None, "markersize": 3.5, "zorder": 3}
        at = np.arange(1, shares.size + 1)
        ax.plot(at, shares, color=canvas.color(i), linewidth=1.8, label=label, **look)
        if total > shares.size:
            ax.plot((shares.size, total), (shares[-1], 1.0), color=canvas.color(i), linestyle=":", linewidth=1.2)
        most = max(most, total)
    ax.set_xscale("log")
    canvas.plain_log(ax.xaxis)
    canvas.plain_frame(ax)
    ax.set(xlim=(0.9, most * 1.2 if most > 1 else 10), ylim=(0, 1.03))
    ax.set(title="How concentrated is the loss?", xlabel="Groups, the worst first", ylabel="Share of the loss")
    ax.legend(loc="best", fontsize=8, framealpha=0.92, edgecolor="#D0D0D0")
    return canvas.finish(ax, path)


def plot_purity_by_size(
    found: Evaluated | Curve,
    of: str | None = None,
    *,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """Share of positives by cluster size, on which AUL depends, with the rows of each size as bars.

    Parameters
    ----------
    found : Evaluation, or Curve named ``purity``
    of : str, optional
        The cluster column, if an evaluation has several.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes
        The axes of the shares; the bars are on twin axes behind them.

    Raises
    ------
    OptionError
        If there is no such curve, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 0, 1, 1], "cluster": [7, 8, 9, 9]})
    >>> axes = plot_purity_by_size(evaluate(data, cluster="cluster"))
    >>> [text.get_text() for text in axes.get_xticklabels()]
    ['1', '2']
    """
    path = canvas.checked_path(save_to)
    curve = canvas.one_curve(found, "purity", of)
    if not isinstance(curve, Bins):
        raise OptionError("the purity curve has no bins; take evaluation.curve('purity')")
    ax = ax or canvas.new_axes(6.0, 4.2)
    at = np.arange(curve.x.size)
    rows: Any = ax.twinx()
    rows.bar(at, curve.counts, color="#D9D9D9", width=0.8)
    rows.set_ylabel("Rows (bars)")
    rows.margins(y=0.08)
    ax.set_zorder(rows.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.plot(at, curve.y, color=canvas.BLUE, marker="o", markersize=5, linewidth=1.6, zorder=3)
    ax.axhline(curve.area, **canvas.REFERENCE)
    ax.text(curve.x.size - 0.45, curve.area + 0.01, f"all rows: {curve.area:.4f}", fontsize=8, ha="right", va="bottom")
    ends = zip(curve.low.tolist(), curve.high.tolist(), strict=True)
    names = [f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}" for low, high in ends]
    tilt: Any = {"rotation": 35, "ha": "right"} if len(names) > 6 else {}
    ax.set_xticks(at, names, fontsize=8, **tilt)
    canvas.plain_frame(ax)
    ax.grid(visible=False, axis="x")
    ax.set(ylim=(-0.03, 1.03), xlim=(-0.6, curve.x.size - 0.4), title=f"Purity by size of {curve.of}")
    ax.set(xlabel="Rows of the cluster", ylabel="Share of positives (line)")
    return canvas.finish(ax, path)


def plot_worst_clusters(
    found: Evaluated | Curve,
    attribution: Attributed,
    of: str | None = None,
    *,
    most: int = 5,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
) -> Axes:
    """The lift curve, with marks at the clusters that cost the most area.

    The curve draws all clusters of one size with their mean share of positives, so a mark lies at the middle of the
    clusters of its size.

    Parameters
    ----------
    found : Evaluation, or Curve named ``lift``
    attribution : Attribution
        Attribution of the same cluster column, made with a label.
    of : str, optional
        The cluster column, if an evaluation has several.
    most : int
        Number of clusters to mark.
    ax, save_to
        See `Style`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If there is no such curve, the attribution has no impure clusters, or the file cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import attribute, evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0, 1], "cluster": [7, 7, 7, 8, 9]})
    >>> impure = attribute(data, cluster="cluster", label="label")
    >>> axes = plot_worst_clusters(evaluate(data, cluster="cluster"), impure)
    >>> [text.get_text() for text in axes.texts]
    ['1', '1  7: 3 rows, 2 positive']
    """
    path = canvas.checked_path(save_to)
    if attribution.impure is None or not attribution.impure.num_rows:
        raise OptionError("there are no impure clusters to mark; attribute with a label (--label)")
    curve = canvas.one_curve(found, "lift", of)
    worst = attribution.impure.slice(0, most).to_pylist()
    places = [_place(curve, cluster["rows"]) for cluster in worst]
    shown = min(1.0, 1.6 * max(x for x, _ in places) + 0.02)
    ax = ax or canvas.new_axes(8.0, 4.4)
    plot_lift(curve.x, curve.y, curve.area, of=curve.of, exact=curve.exact, ax=ax, truncate=shown)
    highest = float(curve.y[curve.x <= shown].max(initial=shown))
    ax.set_ylim(0, min(1.0, 1.25 * highest))
    arrange(canvas.figure_of(ax), ax, shown, "lower right")
    listed = []
    for i, (cluster, (x, y)) in enumerate(zip(worst, places, strict=True), 1):
        ax.plot(x, y, color=canvas.RED, marker="o", markersize=5, zorder=5, clip_on=False)
        side = (-5, 4) if i % 2 else (5, -5)
        look: Any = {"ha": "right", "va": "bottom"} if i % 2 else {"ha": "left", "va": "top"}
        look |= {"fontsize": 8, "color": canvas.RED, "zorder": 5}
        ax.annotate(str(i), (x, y), side, textcoords="offset points", **look)
        listed.append(f"{i}  {_id(cluster['cluster'])}: {cluster['rows']:,} rows, {cluster['positives']:,} positive")
    ax.annotate("\n".join(listed), (1.02, 1.0), xycoords="axes fraction", fontsize=7, va="top", linespacing=1.5)
    return canvas.finish(ax, path)


def _place(curve: Curve, size: int) -> tuple[float, float]:
    """The mean position of the clusters of a size on the lift curve."""
    same = np.flatnonzero(curve.thresholds == size)
    near = same if same.size else np.array([np.argmin(abs(curve.thresholds - size))])
    return float(curve.x[near].mean()), float(curve.y[near].mean())


def _id(value: Any) -> str:
    """A cluster's id, shortened if it is long."""
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 16 else f"{text[:15]}…"
