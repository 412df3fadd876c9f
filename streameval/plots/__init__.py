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

from streameval._submodules import import_when_named
from streameval.plots.comparisons import plot_differences as plot_differences
from streameval.plots.comparisons import plot_slices as plot_slices
from streameval.plots.curves import BaseStyle as BaseStyle
from streameval.plots.curves import Style as Style
from streameval.plots.curves import plot_attribution as plot_attribution
from streameval.plots.curves import plot_curve as plot_curve
from streameval.plots.curves import plot_gain as plot_gain
from streameval.plots.curves import plot_lift as plot_lift
from streameval.plots.curves import plot_precision_recall as plot_precision_recall
from streameval.plots.curves import plot_purity_by_size as plot_purity_by_size
from streameval.plots.curves import plot_roc as plot_roc
from streameval.plots.curves import plot_worst_clusters as plot_worst_clusters
from streameval.plots.overview import plot as plot
from streameval.plots.scores import plot_corp as plot_corp
from streameval.plots.scores import plot_reliability as plot_reliability
from streameval.plots.scores import plot_score_distributions as plot_score_distributions
from streameval.plots.scores import plot_thresholds as plot_thresholds

import_when_named(__name__)
