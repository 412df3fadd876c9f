"""Publication-quality plots: functions from results to matplotlib Axes.

==================== ============================================================================
file                 plots
==================== ============================================================================
`curves`             ROC, precision-recall, gain and lift curves
`scores`             reliability, isotonic fit, distributions, precision and recall by threshold
`clusters`           concentration of a loss, purity by size, the worst clusters on the lift curve
`comparisons`        slices, differences, a metric night by night, quantiles
`overview`           a whole evaluation in one figure
==================== ============================================================================

`canvas` holds what they share, `labels` places legends and thresholds.

These functions take plain arrays, results, or an evaluation, and do not depend on states and metrics. Without `ax` they
make a new figure outside pyplot, ``returned_axes.figure``: there is no window to open, no backend to choose and no
figure to close. With `ax` they draw on it. Colours are those of Okabe and Ito, which most colour-blind readers can
distinguish.
"""

from __future__ import annotations

from streameval.plots.comparisons import plot_differences, plot_slices
from streameval.plots.curves import (
    BaseStyle,
    Style,
    plot_attribution,
    plot_curve,
    plot_gain,
    plot_lift,
    plot_precision_recall,
    plot_purity_by_size,
    plot_roc,
    plot_worst_clusters,
)
from streameval.plots.overview import plot
from streameval.plots.scores import plot_corp, plot_reliability, plot_score_distributions, plot_thresholds

__all__ = [
    "BaseStyle",
    "Style",
    "plot",
    "plot_attribution",
    "plot_corp",
    "plot_curve",
    "plot_differences",
    "plot_gain",
    "plot_lift",
    "plot_precision_recall",
    "plot_purity_by_size",
    "plot_reliability",
    "plot_roc",
    "plot_score_distributions",
    "plot_slices",
    "plot_thresholds",
    "plot_worst_clusters",
]
