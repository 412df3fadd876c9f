"""Calibration and operating points: processor time compared with exact AUC and AP, and with scikit-learn.

Scores are drawn in memory: `distinct` has float32 scores that mostly occur once or twice, `cents` has 99 distinct
scores, such as probabilities that are rounded for display. The time is that of the whole `evaluate` on one thread, the
best of `--repeats` alternating runs. scikit-learn computes Brier score, log loss, reliability in ten bins and the
isotonic fit of the same arrays. An `Accumulator` takes batches of 100,000 rows, its result included.

    python benchmarks/calibration.py --rows 10_000_000
    python benchmarks/calibration.py --rows 100_000_000 --repeats 2 --no-peers
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval import Accumulator, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RANKING = ["roc_auc", "average_precision"]
PEERS = ["brier_score", "log_loss", "ece", "corp.mcb"]  # the last two find what the curves show
POINTS = [
    *(f"fpr={x}" for x in (1e-5, 1e-4, 1e-3, 0.01, 0.1)),
    *(f"recall={x}" for x in (0.5, 0.8, 0.9, 0.95)),
    *(f"precision={x}" for x in (0.8, 0.9, 0.95)),
    *(f"k={x}" for x in (10, 1000, 100_000)),
    *(f"threshold={x}" for x in (0.2, 0.5, 0.8)),
    *("share=0.01", "tpr=0.9"),
]


def drawn(rows: int, *, cents: bool) -> tuple[Any, Any]:
    """Labels and scores that are a little too extreme."""
    random = np.random.default_rng(7)
    score = random.beta(0.6, 1.4, rows).astype(np.float32).clip(1e-6, 1 - 1e-6)
    if cents:
        score = np.round(score, 2).clip(0.01, 0.99).astype(np.float32)
    return (random.random(rows) < 0.05 + 0.85 * score).astype(np.int8), score


def spent(function: Callable[[], Any]) -> float:
    """Processor time of a call, in seconds."""
    start = time.process_time()
    function()
    return time.process_time() - start


def best(tasks: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least time of each task, run in alternation."""
    times = [{name: spent(task) for name, task in tasks.items()} for _ in range(repeats)]
    return {name: min(row[name] for row in times) for name in tasks}


def peers(label: Any, score: Any) -> dict[str, Callable[[], Any]]:
    """The four functions of scikit-learn."""
    from sklearn.calibration import calibration_curve
    from sklearn.isotonic import IsotonicRegression
    from sklearn.metrics import brier_score_loss, log_loss

    return {
        "sklearn brier": lambda: brier_score_loss(label, score),
        "sklearn log loss": lambda: log_loss(label, score),
        "sklearn reliability": lambda: calibration_curve(label, score, n_bins=10),
        "sklearn isotonic": lambda: IsotonicRegression(out_of_bounds="clip").fit(score, label),
    }


def compare(rows: int, repeats: int, *, cents: bool, with_peers: bool) -> None:
    """Print the times of one kind of scores."""
    label, score = drawn(rows, cents=cents)
    table = pa.table({"label": label, "score": score})

    def run(metrics: list[str], at: list[str] | None = None, curves: tuple[str, ...] = ()) -> None:
        found = evaluate(table, score="score", metrics=metrics, at=at or (), threads=1)
        for curve in curves:
            found.curve(curve)

    def accumulate() -> None:
        stream = Accumulator(score="score", label="label", metrics=RANKING)
        for batch in table.to_batches(max_chunksize=100_000):
            stream.update(batch)
        stream.result()

    tasks = {
        "AUC and AP": lambda: run(RANKING),
        "with 20 points": lambda: run(RANKING, POINTS),
        "with calibration": lambda: run([*RANKING, "calibration"]),
        "with both": lambda: run([*RANKING, "calibration"], POINTS),
        "as the peers": lambda: run(PEERS, curves=("reliability", "corp")),
        "accumulated": accumulate,
    }
    for task in tasks.values():
        task()  # compiles
    ours = best(tasks, repeats)
    theirs = best(peers(label, score), 1) if with_peers else {}
    print(f"{'cents' if cents else 'distinct'}: {rows:,} rows, {np.unique(score).size:,} scores")
    for name, seconds in ours.items():
        print(f"  {name:<22}{seconds:8.2f} s   {seconds / ours['AUC and AP']:6.2f} x AUC and AP")
    for name, seconds in theirs.items():
        print(f"  {name:<22}{seconds:8.2f} s")
    if theirs:
        print(f"  scikit-learn takes {sum(theirs.values()) / ours['as the peers']:.1f} times as long for the same")


def main() -> None:
    """Both kinds of scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    for cents in (False, True):
        compare(args.rows, args.repeats, cents=cents, with_peers=args.peers)


if __name__ == "__main__":
    main()
