"""Half-widths of the certain intervals of ``approx=True`` on six distributions.

python benchmarks/intervals.py         # makes the data of evaluate.py first
"""

from __future__ import annotations

import argparse
from pathlib import Path

from data import DEFAULT, make

from streameval import evaluate

SCORES = ["uniform", "beta", "rare", "saturated", "logit", "cents"]


def main() -> None:
    """Evaluate all six in one pass and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=20)
    given = parser.parse_args()
    found = evaluate(make(given.data, given.rows, given.files), score=SCORES, approx=True)
    metrics = ["roc_auc", "average_precision", "pr_auc", "max_informedness"]
    print(f"{found.rows:,} rows; half-widths\n\n| scores | {' | '.join(metrics)} |\n|---|{'---|' * len(metrics)}")
    for score in SCORES:
        intervals = [found.interval(metric, score) for metric in metrics]
        print(f"| {score} | {' | '.join(f'{(upper - lower) / 2:.1e}' for lower, upper in intervals)} |")


if __name__ == "__main__":
    main()
