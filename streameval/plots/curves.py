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

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.plots.drawing import AxesText, Drawing, Style, share, vectors
from streameval.results import Curve
from streameval.wording import plural

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

_ROC = AxesText("ROC curve", "False positive rate", "True positive rate", "AUC")
_PR = AxesText("Precision-recall curve", "Recall", "Precision", "area", "lower left")
_GAIN = AxesText("Gain curve", "Share of points, best scores first", "Share of positives found", "area", zoom=True)
_LIFT = AxesText("Lift curve", "Share of points, largest clusters first", "Share of assumed positives", "AUL")


def plot_roc(
    fpr: Any,
    tpr: Any,
    area: float | None = None,
    **style: Unpack[Style],
) -> Axes:
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
    drawing = Drawing(_ROC, vectors(fpr=fpr, tpr=tpr), style)
    drawing.curve(area)
    drawing.reference(([0, 1], [0, 1]), ([0, 0, 1], [0, 1, 1]))
    return drawing.finish()


def plot_precision_recall(
    recall: Any,
    precision: Any,
    thresholds: Any = None,
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
    drawing = Drawing(_PR, (xs, ys), style)
    drawing.curve(area)
    if balance is None:
        drawing.reference(None, None)
    else:
        drawing.reference(
            ([0, 1], [balance, balance]), ([0, 1, 1], [1, 1, balance]), f"random (positives: {balance:.4g})"
        )
    if thresholds is None:
        return drawing.finish()
    (named,) = vectors(thresholds=thresholds)
    if named.size not in {xs.size, xs.size - 1}:
        values, points = plural(named.size, "value"), plural(xs.size, "point")
        msg = f"thresholds has {values} for {points}; give one for each, or for each but the last"
        raise DataError(msg)
    return drawing.finish((xs[: named.size], ys[: named.size], named))


def plot_gain(
    top: Any,
    tpr: Any,
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
    drawing = Drawing(_GAIN, (xs, ys), style)
    drawing.curve(*((area, None) if agc is None else (agc, "AGC")))
    drawing.reference(([0, 1], [0, 1]), None if balance is None else ([0, balance, 1], [0, 1, 1]))
    return drawing.finish()


def plot_lift(
    x: Any,
    y: Any,
    area: float | None = None,
    **style: Unpack[Style],
) -> Axes:
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
    drawing = Drawing(_LIFT, vectors(x=x, y=y), style)
    drawing.curve(area)
    drawing.reference(([0, 1], [0, 1]), ([0, 1], [1, 1]), "no clustering")
    return drawing.finish()


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
    _refuse_others(curve)
    given: Style = {"of": curve.of, "exact": curve.exact, "ax": ax, "save_to": save_to, "fill": fill, "marker": marker}
    given["legend"], given["band"] = legend, curve.band
    if agc is not None and curve.name != "gain":
        msg = f"agc={agc!r} is an area of a gain curve, not of {curve.name!r}; leave it out"
        raise OptionError(msg)
    if truncate is not None and truncate > 1 and curve.rows and curve.name in {"gain", "lift"}:
        if curve.weighted:
            msg = (
                f"truncate={truncate!r} is a number of points, but x of a weighted curve is a share of weight: give one"
            )
            raise OptionError(msg)
        truncate = min(truncate / curve.rows, 1.0)
    given["truncate"] = truncate
    balance = curve.positives / curve.rows if curve.rows else None
    if curve.name == "roc":
        return plot_roc(curve.x, curve.y, curve.area, **given)
    if curve.name == "precision_recall":
        return plot_precision_recall(curve.x, curve.y, curve.thresholds, curve.area, balance=balance, **given)
    if curve.name == "gain":
        return plot_gain(curve.x, curve.y, curve.area, balance=balance, agc=agc, **given)
    if curve.name == "lift":
        return plot_lift(curve.x, curve.y, curve.area, **given)
    own = {"reliability": "plot_reliability", "corp": "plot_corp", "purity": "plot_purity_by_size"}.get(curve.name)
    remedy = f"draw it with {own}" if own else "there are roc, precision_recall, gain and lift"
    msg = f"plot_curve does not draw a curve named {curve.name!r}; {remedy}"
    raise OptionError(msg)


def _refuse_others(given: object) -> None:
    """Raise `OptionError` for what is not a curve."""
    if not isinstance(given, Curve):
        msg = f"plot_curve draws one Curve of an evaluation, not {type(given).__name__}; draw several on one ax"
        raise OptionError(msg)
