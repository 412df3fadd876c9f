"""Plots of labels and scores in memory, for curves that have no class here: gain and precision-recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from streameval.arrays.curves import auc, precision_recall_points
from streameval.arrays.gain import gain_points
from streameval.arrays.labels import checked, points
from streameval.metrics.finalize import compute
from streameval.metrics.scores.gain.area import Agc
from streameval.plots import plot_gain, plot_precision_recall
from streameval.states.scores.counts import fold_arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streameval.plots import BaseStyle, Style
    from streameval.states.scores.counts import ScoreCounts


def plot_gain_curve(
    y_true: Any,
    y_score: Any,
    pos_label: Any = 1,
    sample_weight: Any = None,
    truncate: float = 1,
    **style: Unpack[BaseStyle],
) -> Axes:
    """Draw the gain curve up to a truncation, with the normalised area of that part.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate : see `streameval.gain_curve`
    style : see `streameval.plots.Style`, except for `truncate`

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As for `streameval.gain_curve` and `streameval.plots.plot_gain`.

    Examples
    --------
    >>> axes = plot_gain_curve([0, 1, 1, 0, 0], [0.2, 0.9, 0.5, 0.6, 0.1], truncate=0.6, of="score")
    >>> axes.get_xlim()[1].item(), axes.get_legend().get_texts()[0].get_text()
    (0.6, 'score (AGC = 0.5455)')
    """
    state = fold_arrays(*checked(y_true, y_score, pos_label, sample_weight))
    top, tpr, _ = gain_points(state, 1)
    shown = float(gain_points(state, truncate)[0][-1]) or None
    agc = float(compute(state, Agc(truncate)).value)
    return plot_gain(top, tpr, agc=agc, balance=_balance(state), truncate=shown, **style)


def plot_precision_recall_curve(
    y_true: Any, y_score: Any, pos_label: Any = 1, sample_weight: Any = None, **style: Unpack[Style]
) -> Axes:
    """Draw the precision-recall curve with its thresholds, its area by the trapezoidal rule, and the class balance.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight : see `streameval.precision_recall_curve`
    style : see `streameval.plots.Style`; `truncate` is the largest recall shown

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As for `streameval.precision_recall_curve` and `streameval.plots.plot_precision_recall`.

    Examples
    --------
    >>> axes = plot_precision_recall_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['area = 0.7917', 'random (positives: 0.5)', 'best possible', 'threshold']
    """
    state = points(y_true, y_score, pos_label, sample_weight)
    precision, recall, thresholds = precision_recall_points(state)
    area = auc(recall, precision)
    return plot_precision_recall(recall, precision, thresholds, area, balance=_balance(state), **style)


def _balance(state: ScoreCounts) -> float:
    """Share of positives, by weight if there are weights."""
    total = state.totals()
    return total.pos_weight / (total.neg_weight + total.pos_weight)
