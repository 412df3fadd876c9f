"""The README's figure of a real evaluation.

python benchmarks/figure.py            # writes benchmarks/figures/spam_messages.png
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from streameval import evaluate, plot_curve, plot_reliability

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Evaluate the real data set: ROC curves and reliability of its scores, lift of its clusters."""
    scores, clusters = ["score_lr", "score_nb", "score_q"], ["cluster_loose", "cluster_tight"]
    found = evaluate(ROOT / "tests" / "data" / "spam_messages", score=scores, cluster=clusters)
    figure = Figure(figsize=(14, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    for score in scores:
        plot_curve(found.curve("roc", score), ax=left, truncate=None)
    for cluster in clusters:
        plot_curve(found.curve("lift", cluster), ax=right)
    plot_reliability([found.curve("reliability", score) for score in scores[:2]], log=True, ax=middle)
    figure.savefig(ROOT / "benchmarks" / "figures" / "spam_messages.png", dpi=110)


if __name__ == "__main__":
    main()
