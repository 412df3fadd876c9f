"""Publication-quality plots: functions from results to matplotlib Axes.

==================== ============================================================================
file                 plots
==================== ============================================================================
`curves`             ROC, precision-recall, gain and lift curves; what clusters cost, and purity by size
`scores`             reliability, isotonic fit, distributions, precision and recall by threshold
`comparisons`        slices, differences, a metric night by night, quantiles
==================== ============================================================================

`plot` draws a whole evaluation in one figure. `canvas` holds what all share, `labels` places legends and thresholds.

These functions take plain arrays, results, or an evaluation, and do not depend on states and metrics. Without `ax` they
make a new figure outside pyplot, ``returned_axes.figure``: there is no window to open, no backend to choose and no
figure to close. With `ax` they draw on it. Colours are those of Okabe and Ito, which most colour-blind readers can
distinguish.
"""

from __future__ import annotations

import textwrap
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from streameval._submodules import import_when_named
from streameval.errors import OptionError
from streameval.plots.canvas import Evaluated, check_path, new_figure, save
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
from streameval.plots.labels import arrange_once, curves_on
from streameval.plots.scores import draw_corp, draw_reliability, mark_rates
from streameval.plots.scores import plot_corp as plot_corp
from streameval.plots.scores import plot_reliability as plot_reliability
from streameval.plots.scores import plot_score_distributions as plot_score_distributions
from streameval.plots.scores import plot_thresholds as plot_thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streameval.results import Curve

    Panel = tuple[str, Callable[..., object]]  # its title, and what draws it on `ax`

_WIDE, _HIGH = 5.4, 4.9  # inches of a panel
_ACROSS = 3
_MOST = 6  # panels
_FIRST = ("ROC curve", "Precision-recall curve", "Lift curve", "Reliability")  # after differences and slices
_CALIBRATION = ("brier_score", "log_loss", "ece*", "mce", "ecce_*", "corp.*", "calibration_*")


def plot(found: Evaluated, *, save_to: str | Path | None = None) -> Figure:
    """Plot all curves and comparisons of an evaluation in one figure.

    - Scores: ROC, precision-recall and gain curves; the distribution of each score.
    - With operating points: precision and recall by threshold. With calibration metrics: reliability and isotonic fit.
    - Clusters: the lift curves, and purity by size.
    - Differences, and the first metric of each slicing.

    A panel whose curve is undefined gives the reason. There are at most six panels; a line below them names the others.

    Parameters
    ----------
    found : Evaluation
    save_to : path, optional
        File to write, ending in .png, .svg or .pdf.

    Returns
    -------
    matplotlib Figure

    Raises
    ------
    OptionError
        If the evaluation has nothing to draw, for instance because it was computed in another process, or the file
        cannot be written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 0, 1], "score": [0.25, 0.25, 0.5, 0.75]})
    >>> [axes.get_title() for axes in plot(evaluate(data, score="score")).axes]
    ['ROC curve', 'Precision-recall curve', 'Gain curve', 'Distribution of score']
    """
    path = check_path(save_to)
    panels = list(_panels(found))
    if not panels:
        raise OptionError(
            "there is nothing to draw: the evaluation has no counts of scores or clusters, no slices, no differences"
        )
    panels, others = _choose(panels)
    across = min(_ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(_WIDE * across, _HIGH * down)
    grid = figure.add_gridspec(down, across)
    with arrange_once(figure):
        for i, (title, draw) in enumerate(panels):
            ax = figure.add_subplot(grid[divmod(i, across)])
            try:
                draw(ax=ax)
            except OptionError as error:
                ax.clear()
                ax.set_axis_off()
                ax.set_title(title)
                reason = textwrap.fill(str(error), 44)
                ax.text(0.5, 0.5, reason, ha="center", va="center", fontsize=9, color="#404040")
        if others:
            said = textwrap.fill(f"Not drawn: {'; '.join(others)}", 60 * across)
            figure.supxlabel(said, fontsize=8, color="#404040")
    save(figure, path)
    return figure


def _choose(panels: list[Panel]) -> tuple[list[Panel], list[str]]:
    """The panels to draw in their order, the first of each kind before further ones, and the titles of the others."""
    kinds: dict[str, int] = {}
    ranks = []
    for title, _ in panels:
        kind = "slices" if " by " in title and "Purity" not in title else title.split()[0]
        kinds[kind] = kinds.get(kind, -1) + 1
        leading = kind in ("slices", "Differences") or title in _FIRST
        ranks.append((kinds[kind], not leading))
    chosen = sorted(sorted(range(len(panels)), key=lambda i: ranks[i])[:_MOST])
    return [panels[i] for i in chosen], [title for i, (title, _) in enumerate(panels) if i not in chosen]


def _panels(found: Evaluated) -> Iterator[Panel]:
    """Panels in the order of a report: the title, and the function that draws the panel on axes."""
    scores, clusters = found.columns("score"), found.columns("cluster")
    for name, title in (("roc", "ROC curve"), ("precision_recall", "Precision-recall curve"), ("gain", "Gain curve")):
        if scores:
            yield title, partial(_curves, found, name, scores)
    for of in scores:
        yield f"Distribution of {of}", partial(plot_score_distributions, found, of)
    if scores and any(fnmatchcase(r.metric, name) for r in found.results for name in _CALIBRATION):
        yield "Reliability", partial(_diagram, found, "reliability", draw_reliability)
        yield "Isotonic fit (CORP)", partial(_diagram, found, "corp", draw_corp)
    pointed = {r.of for r in found.results if r.threshold is not None and "=" in r.metric and r.slice is None}
    for of in scores:
        if of in pointed:
            yield f"What a threshold of {of} gives", partial(plot_thresholds, found, of)
    if clusters:
        yield "Lift curve", partial(_curves, found, "lift", clusters)
    for of in clusters:
        yield f"Purity by size of {of}", partial(plot_purity_by_size, found, of)
    differences = [r for r in found.results if r.baseline is not None]
    if differences:
        first = sorted(differences, key=lambda r: (r.slice is not None, r.verdict != "worse"))
        yield "Differences", partial(plot_differences, first)
    sliced: dict[tuple[str, str], str] = {}  # the first metric of each column in each slicing
    for r in found.results:
        if r.slice is not None and r.baseline is None:
            sliced.setdefault((",".join(r.slice), str(r.of)), r.metric)
    for (by, of), metric in sliced.items():
        yield f"{metric} of {of} by {by}", partial(plot_slices, found, by, metric, of)


def _curves(found: Evaluated, name: str, columns: tuple[str, ...], ax: Axes) -> None:
    """The curves of all columns on the same axes."""
    curves = list(_defined(found, name, columns).values())
    for curve in curves:
        plot_curve(curve, ax=ax)
    if name == "roc":
        colors = {str(c.of): str(line.get_color()) for c, line in zip(curves, curves_on(ax), strict=True)}
        mark_rates(ax, found.results, colors)


def _diagram(found: Evaluated, name: str, draw: Callable[..., None], ax: Axes) -> None:
    """The calibration of all scores on the same axes, each in its own colour."""
    curves = _defined(found, name, found.columns("score"))
    draw(ax, list(curves.values()), list(curves))


def _defined(found: Evaluated, name: str, columns: tuple[str, ...]) -> dict[int, Curve]:
    """The curves of columns by the column's number; undefined curves are left out unless all are undefined."""
    curves: dict[int, Curve] = {}
    refused: OptionError | None = None
    for i, of in enumerate(columns):
        try:
            curves[i] = found.curve(name, of)
        except OptionError as error:
            refused = refused or error
    if refused is not None and not curves:
        raise refused
    return curves


import_when_named(__name__)
