"""Plots of ROC, precision-recall, gain and lift curves.

Each shows the curve with its area in the legend, the line of a random order, and the best line that the data allow.

============================ =========================== ==========================================
plot                         random                      best
============================ =========================== ==========================================
ROC                          the diagonal                up at once, then right
precision-recall             the share of positives      precision 1 up to recall 1
gain                         the diagonal                straight up to the share of positives
lift                         no clustering, the diagonal one pure cluster of all positives
============================ =========================== ==========================================

Several curves on one Axes share the random and the best line. Long curves are thinned to 5,000 points, evenly along
their length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.plots import canvas
from streameval.plots.labels import CURVE, along, arrange, curves_on, mark
from streameval.results import FEW_UNITS, Band, Bins, Curve
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from streameval.plots.canvas import Attributed, Evaluated
    from streameval.typing import Array, ArrayLike

    Points = tuple[Sequence[float], Sequence[float]]

_POINTS = 5_000  # largest number of points drawn of a curve


class BaseStyle(TypedDict, total=False):
    """Keyword arguments of every curve plot.

    Attributes
    ----------
    of : name of the score or cluster column, for the legend
    exact : whether the area is exact (the default); otherwise the legend shows ≈
    ax : matplotlib Axes to draw on; by default, those of a new figure
    save_to : path ending in .png, .svg or .pdf
    fill : whether to shade the area
    marker : matplotlib marker at each point
    legend : whether to add a legend (the default) and thresholds next to the curve
    band : pointwise sampling intervals, drawn as a shaded band
    """

    of: str | None
    exact: bool
    ax: Axes | None
    save_to: str | Path | None
    fill: bool
    marker: str | None
    legend: bool
    band: Band | None


class Style(BaseStyle, total=False):
    """Keyword arguments of a curve plot that can be truncated.

    Attributes
    ----------
    of, exact, ax, save_to, fill, marker, legend, band : see `BaseStyle`
    truncate : largest x shown, in (0, 1]
    """

    truncate: float | None


@dataclass(frozen=True)
class AxesText:
    """Texts and layout of one kind of plot.

    Attributes
    ----------
    title, x, y, area : texts of the title, the axes and the area in the legend
    zoom : whether a truncation also cuts the height
    """

    title: str
    x: str
    y: str
    area: str
    zoom: bool = False


def vectors(**arrays: ArrayLike) -> list[Array]:
    """Coordinates as float64 vectors of one length.

    Examples
    --------
    >>> vectors(x=[0, 1], y=[0.5, 1])
    [array([0., 1.]), array([0.5, 1. ])]
    """
    try:
        columns = [np.asarray(values, dtype=np.float64) for values in arrays.values()]
    except (TypeError, ValueError) as error:
        raise DataError(f"{' and '.join(arrays)} must be vectors of numbers: {error}") from error
    if any(column.ndim != 1 for column in columns) or len({column.size for column in columns}) > 1:
        shapes = " and ".join(str(column.shape) for column in columns)
        raise DataError(f"{' and '.join(arrays)} have shapes {shapes}; give vectors of one length")
    return columns


def share(name: str, value: float | None, *, positive: bool = False) -> float | None:
    """A share between 0 and 1, or None; above 0 if `positive`."""
    if value is not None and not (0 <= value <= 1 and (value > 0 or not positive)):
        raise OptionError(f"{name}={value!r}; give a share {'above' if positive else 'of at least'} 0 and at most 1")
    return value


def _visible(x: Array, y: Array, limit: float) -> tuple[Array, Array]:
    """Points to draw: up to the limit and one beyond it, at most `_POINTS`, evenly spaced along the curve."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    shown = x <= limit
    shown[1:] |= shown[:-1].copy()
    shown[:-1] |= x[1:] <= limit
    x, y = x[shown], y[shown]
    if x.size <= _POINTS:
        return x, y
    way = along(x / limit, y)
    kept = np.unique(np.searchsorted(way, np.linspace(0, way[-1], _POINTS)).clip(max=x.size - 1))
    return x[kept], y[kept]


def _draw(
    look: AxesText,
    points: Sequence[Array],
    style: Style,
    area: tuple[float | None, str | None],
    *,
    random: Points | None,
    best: Points | None,
    random_name: str = "random",
    thresholds: tuple[Array, Array, Array] | None = None,
) -> Axes:
    """Draw a curve, and once for all curves on the axes the random and the best line.

    Parameters
    ----------
    look : texts and layout
    points : x and y of the curve, float64 arrays of shape (n_points,); points that are not finite are left out
    style : see `Style`
    area : the area, and its name if it is not that of the whole curve
    random, best : the ends of the lines
    random_name : of the random line, for the legend
    thresholds : x, y and threshold of points, to be written where there is room
    """
    limit = float(share("truncate", style.get("truncate"), positive=True) or 1)
    path = canvas.check_path(style.get("save_to"))
    x, y = _visible(points[0], points[1], limit)
    ax = style.get("ax") or canvas.new_axes()
    earlier = len(curves_on(ax))
    line, entry = canvas.color(earlier), _entry(look, style, limit, *area)
    shape: dict[str, Any] = {"linestyle": canvas.dash(earlier), "marker": style.get("marker"), "markersize": 4}
    ax.plot(x, y, color=line, **shape, linewidth=1.8, label=entry, gid=CURVE, zorder=3)
    if style.get("fill"):
        ax.fill_between(x, y, color=line, alpha=0.12, linewidth=0)
    if (band := style.get("band")) is not None:
        _shade(ax, band, limit, line)
    if not earlier and random:
        ax.plot(*random, **canvas.REFERENCE, label=random_name, zorder=2)
    if not earlier and best:
        ax.plot(*best, color=canvas.GREEN, linestyle=":", linewidth=2.0, label="best possible", zorder=2.6)
    highest = max(float(np.interp(limit, *best)) if best and look.zoom else 1.0, y[x <= limit].max(initial=0.0))
    highest = float(max(highest, ax.get_ylim()[1]) if earlier else highest)
    ax.set(xlim=(0, limit), ylim=(0, highest or 1), xlabel=look.x, ylabel=look.y, title=look.title)
    ax.set_aspect("equal" if limit == 1 else "auto")
    ax.locator_params(nbins=5)
    canvas.plain_frame(ax)
    if limit == 1 and highest <= 1:
        for drawn in ax.get_lines():
            drawn.set_clip_on(False)  # lines on the frame are drawn whole
    if style.get("legend", True):
        if thresholds is not None:
            mark(curves_on(ax)[-1], thresholds)
        arrange(canvas.figure_of(ax), ax, limit)
    return canvas.finish(ax, path)


def _entry(look: AxesText, style: Style, limit: float, area: float | None, name: str | None) -> str:
    """The curve's entry in the legend: the score and the area."""
    of = style.get("of")
    if area is None:
        return of or "curve"
    name = name or (look.area if limit == 1 else f"full {look.area}")
    sign = "=" if style.get("exact", True) else "≈"
    number = f"{name} {sign} {area:.4f}" if np.isfinite(area) else f"{name} not defined"
    return f"{of} ({number})" if of else number


def _shade(ax: Axes, band: Band, limit: float, color: str) -> None:
    """Shade a band where it has intervals; the legend describes them, or states that there are none."""
    shown = band.x <= limit
    ends, level = (band.lower[shown], band.upper[shown]), f"{band.level:.0%}"
    few = band.effective_units is not None and band.effective_units < FEW_UNITS
    freedom = f", {band.freedom:.0f} degrees of freedom" if band.freedom is not None else ""
    units = f" ({band.effective_units:.0f} effective units{freedom})" if few else ""
    label = f"{level} at each point, by {band.unit}{units}"
    if np.isnan(ends).all():
        label, color = f"no {level} intervals by {band.unit}{units}", "none"
    ax.fill_between(band.x[shown], *ends, color=color, alpha=0.2, linewidth=0, zorder=2.8, label=label)


_DIAGONAL = ([0, 1], [0, 1])
_ROC = AxesText("ROC curve", "False positive rate", "True positive rate", "AUC")
_PR = AxesText("Precision-recall curve", "Recall", "Precision", "area")
_GAIN = AxesText("Gain curve", "Share of points, best scores first", "Share of positives found", "area", zoom=True)
_LIFT = AxesText("Lift curve", "Share of points, largest clusters first", "Share of assumed positives", "AUL")


def plot_roc(fpr: ArrayLike, tpr: ArrayLike, area: float | None = None, **style: Unpack[Style]) -> Axes:
    """ROC curve.

    Parameters
    ----------
    fpr, tpr : array-likes of shape (n_points,)
    area : area under the whole curve, for the legend
    style : see `Style`; `truncate` is the largest false positive rate shown

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError
        If the arrays are not one-dimensional or differ in length.
    OptionError
        If `truncate` is out of its range or `save_to` cannot be written.

    Examples
    --------
    >>> axes = plot_roc([0, 0, 0.5, 0.5, 1], [0, 0.5, 0.5, 1, 1], 0.75)
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['AUC = 0.7500', 'random', 'best possible']
    """
    best = [0, 0, 1], [0, 1, 1]
    return _draw(_ROC, vectors(fpr=fpr, tpr=tpr), style, (area, None), random=_DIAGONAL, best=best)


def plot_precision_recall(
    recall: ArrayLike,
    precision: ArrayLike,
    thresholds: ArrayLike | None = None,
    area: float | None = None,
    *,
    balance: float | None = None,
    **style: Unpack[Style],
) -> Axes:
    """Precision-recall curve, with some thresholds written next to it and the class balance as baseline.

    Parameters
    ----------
    recall, precision : array-likes of shape (n_points,), from either end
    thresholds : array-like of shape (n_points,), or (n_points − 1,) if the last point has none; optional
    area : area under the whole curve, for the legend
    balance : share of positives, the precision of a random order; without it no baseline is drawn
    style : see `Style`; `truncate` is the largest recall shown

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As `plot_roc`; also if `balance` is not in [0, 1].

    Examples
    --------
    >>> axes = plot_precision_recall([1, 1, 0.5, 0.5, 0], [0.5, 2 / 3, 0.5, 1, 1], [0.1, 0.35, 0.4, 0.8], balance=0.5)
    >>> [text.get_text() for text in axes.texts]
    ['0.35', '0.4', '0.8']
    """
    share("balance", balance)
    xs, ys = vectors(recall=recall, precision=precision)
    lines: dict[str, Any] = {"random": None, "best": None}
    if balance is not None:
        lines = {"random": ([0, 1], [balance, balance]), "best": ([0, 1, 1], [1, 1, balance])}
        lines["random_name"] = f"random (positives: {balance:.4g})"
    if thresholds is not None:
        (named,) = vectors(thresholds=thresholds)
        if named.size not in {xs.size, xs.size - 1}:
            values, points = plural(named.size, "value"), plural(xs.size, "point")
            raise DataError(f"thresholds has {values} for {points}; give one for each, or for each but the last")
        lines["thresholds"] = xs[: named.size], ys[: named.size], named
    return _draw(_PR, (xs, ys), style, (area, None), **lines)


def plot_gain(
    top: ArrayLike,
    tpr: ArrayLike,
    area: float | None = None,
    *,
    balance: float | None = None,
    agc: float | None = None,
    **style: Unpack[Style],
) -> Axes:
    """Gain curve: the share of positives found among the points with the best scores.

    Parameters
    ----------
    top, tpr : array-likes of shape (n_points,), ascending; the origin is added if it is missing
    area : area under the whole curve, for the legend
    balance : share of positives, at which the best possible curve reaches 1; without it that curve is not drawn
    agc : normalised area of the part shown, for the legend instead of the area
    style : see `Style`; `truncate` is the largest share of points shown

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As `plot_precision_recall`.

    Examples
    --------
    >>> plot_gain([0.25, 0.5, 1], [0.5, 0.5, 1], balance=0.5, truncate=0.5).get_xlabel()
    'Share of points, best scores first'
    """
    share("balance", balance)
    xs, ys = vectors(top=top, tpr=tpr)
    if xs.size and xs[0] > 0:
        xs, ys = np.concatenate(([0.0], xs)), np.concatenate(([0.0], ys))
    best = None if balance is None else ([0, balance, 1], [0, 1, 1])
    named = (area, None) if agc is None else (agc, "AGC")
    return _draw(_GAIN, (xs, ys), style, named, random=_DIAGONAL, best=best)


def plot_lift(x: ArrayLike, y: ArrayLike, area: float | None = None, **style: Unpack[Style]) -> Axes:
    """Lift curve of a clustering: positives found, cluster by cluster, divided by the positives assumed.

    Parameters
    ----------
    x, y : array-likes of shape (n_points,), both ends of the steps
    area : area under the whole curve (AUL), for the legend
    style : see `Style`; `truncate` is the largest share of points shown

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As `plot_roc`.

    Examples
    --------
    >>> plot_lift([0, 0.6, 0.6, 1], [0.5, 0.5, 0.75, 0.75], 0.6).get_title()
    'Lift curve'
    """
    lines: dict[str, Any] = {"random": _DIAGONAL, "best": ([0, 1], [1, 1]), "random_name": "no clustering"}
    return _draw(_LIFT, vectors(x=x, y=y), style, (area, None), **lines)


def plot_curve(
    curve: Curve,
    ax: Axes | None = None,
    save_to: str | Path | None = None,
    fill: bool = False,
    marker: str | None = None,
    truncate: float | None = None,
    agc: float | None = None,
    legend: bool = True,
) -> Axes:
    """Plot a curve of an evaluation.

    Parameters
    ----------
    curve : Curve named ``roc``, ``precision_recall``, ``gain`` or ``lift``; for other curves see
        `plot_reliability`, `plot_corp`, `plot_purity_by_size`. Several, such as those of slices, are drawn one by one
        on one `ax`
    ax, save_to, fill, marker, legend : see `Style`
    truncate : largest x shown, in (0, 1]; for ``gain`` and ``lift`` without weights also a number of points above 1
    agc : for ``gain``, normalised area of the part shown, such as ``found.value("agc@0.1")``, for the legend

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    OptionError
        If `curve` is not a Curve or has another name, an argument does not apply to it or is out of range, or `save_to`
        cannot be written.

    Examples
    --------
    >>> from streameval.results import Curve
    >>> x = np.array([0, 0.5, 1])
    >>> plot_curve(Curve("roc", "score", x, x, 1 - x, 0.5)).get_legend().get_texts()[0].get_text()
    'score (AUC = 0.5000)'
    """
    given: object = curve
    if not isinstance(given, Curve):
        what = type(given).__name__
        raise OptionError(f"plot_curve draws one Curve of an evaluation, not {what}; draw several on one ax")
    style: Style = {"of": curve.of, "exact": curve.exact, "ax": ax, "save_to": save_to, "fill": fill, "marker": marker}
    style["legend"], style["band"] = legend, curve.band
    if agc is not None and curve.name != "gain":
        raise OptionError(f"agc={agc!r} is an area of a gain curve, not of {curve.name!r}; leave it out")
    if truncate is not None and truncate > 1 and curve.rows and curve.name in {"gain", "lift"}:
        if curve.weighted:
            remedy = "but x of a weighted curve is a share of weight: give one"
            raise OptionError(f"truncate={truncate!r} is a number of points, {remedy}")
        truncate = min(truncate / curve.rows, 1.0)
    style["truncate"] = truncate
    balance = curve.positives / curve.rows if curve.rows else None
    if curve.name == "roc":
        return plot_roc(curve.x, curve.y, curve.area, **style)
    if curve.name == "precision_recall":
        return plot_precision_recall(curve.x, curve.y, curve.thresholds, curve.area, balance=balance, **style)
    if curve.name == "gain":
        return plot_gain(curve.x, curve.y, curve.area, balance=balance, agc=agc, **style)
    if curve.name == "lift":
        return plot_lift(curve.x, curve.y, curve.area, **style)
    own = {"reliability": "plot_reliability", "corp": "plot_corp", "purity": "plot_purity_by_size"}.get(curve.name)
    remedy = f"draw it with {own}" if own else "there are roc, precision_recall, gain and lift"
    raise OptionError(f"plot_curve does not draw a curve named {curve.name!r}; {remedy}")


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
    path = canvas.check_path(save_to)
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
    found: Evaluated | Curve, of: str | None = None, *, ax: Axes | None = None, save_to: str | Path | None = None
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
    path = canvas.check_path(save_to)
    curve = canvas.one_curve(found, "purity", of)
    if not isinstance(curve, Bins):
        raise OptionError("the purity curve has no bins; take evaluation.curve('purity')")
    ax = ax or canvas.new_axes(6.0, 4.2)
    at = np.arange(curve.x.size)
    rows: Any = ax.twinx()
    rows.bar(at, curve.counts, color="#D9D9D9", width=0.8)
    rows.set_ylabel("Rows (bars)")
    canvas.plain_numbers(rows.yaxis)
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
    path = canvas.check_path(save_to)
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
    listed = []
    for i, (cluster, (x, y)) in enumerate(zip(worst, places, strict=True), 1):
        ax.plot(x, y, color=canvas.RED, marker="o", markersize=5, zorder=5, clip_on=False)
        side = (-5, 4) if i % 2 else (5, -5)
        look: Any = {"ha": "right", "va": "bottom"} if i % 2 else {"ha": "left", "va": "top"}
        look |= {"fontsize": 8, "color": canvas.RED, "zorder": 5}
        ax.annotate(str(i), (x, y), side, textcoords="offset points", **look)
        listed.append(f"{i}  {_id(cluster['cluster'])}: {cluster['rows']:,} rows, {cluster['positives']:,} positive")
    ax.annotate("\n".join(listed), (1.02, 1.0), xycoords="axes fraction", fontsize=7, va="top", linespacing=1.5)
    arrange(canvas.figure_of(ax), ax, shown)  # in what the list leaves of the figure
    return canvas.finish(ax, path)


def _place(curve: Curve, size: int) -> tuple[float, float]:
    """The mean position of the clusters of a size on the lift curve."""
    same = np.flatnonzero(curve.thresholds == size)
    near = same if same.size else np.array([np.argmin(abs(curve.thresholds - size))])
    return float(curve.x[near].mean()), float(curve.y[near].mean())


def _id(value: object) -> str:
    """A cluster's id, shortened if it is long."""
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 20 else f"{text[:19]}…"
