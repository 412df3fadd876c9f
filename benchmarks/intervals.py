"""Half-widths of the certain intervals of ``approx=True`` on six distributions.

python benchmarks/intervals.py         # makes the data of evaluate.py first
"""

from __future__ import annotations

from data import data_options, make

from streameval import evaluate

SCORES = ["uniform", "beta", "rare", "saturated", "logit", "cents"]


def main() -> None:
    """Evaluate all six in one pass and print the table."""
    given = data_options(__doc__).parse_args()
    found = evaluate(make(given.data, given.rows, given.files), score=SCORES, approx=True)
    metrics = ["roc_auc", "average_precision", "pr_auc", "max_informedness"]
    print(f"{found.rows:,} rows; half-widths\n\n| scores | {' | '.join(metrics)} |\n|---|{'---|' * len(metrics)}")
    for score in SCORES:
        intervals = [found.interval(metric, score) for metric in metrics]
        print(f"| {score} | {' | '.join(f'{(upper - lower) / 2:.1e}' for lower, upper in intervals)} |")


if __name__ == "__main__":
    main()
