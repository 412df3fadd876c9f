"""The README's figure of a real evaluation, which this writes beside itself.

python benchmarks/figures/spam_messages.py
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from streameval import evaluate, plot_curve, plot_reliability

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "tests" / "data" / "spam_messages"


def main() -> None:
    """Evaluate the real data set: ROC curves and reliability of its scores, lift of its clusters."""
    scores, clusters = ["score_lr", "score_nb", "score_q"], ["cluster_loose", "cluster_tight"]
    found = evaluate(DATA, score=scores, cluster=clusters)
    figure = Figure(figsize=(14, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    for score in scores:
        plot_curve(found.curve("roc", score), ax=left, truncate=None)
    for cluster in clusters:
        plot_curve(found.curve("lift", cluster), ax=right)
    plot_reliability([found.curve("reliability", score) for score in scores[:2]], log=True, ax=middle)
    figure.savefig(HERE / "spam_messages.png", dpi=110)


if __name__ == "__main__":
    main()
