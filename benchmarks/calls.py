"""One call for scores, AUL and pairs against a call for each; one thread against two; approx against the scan.

How much faster two threads can be depends on the machine, so the scan is timed with one and with two as well.

    python benchmarks/calls.py --rows 20000000
    python benchmarks/calls.py --rows 20000000 --only lone few     # these shapes of shapes.py

Each case runs in a separate process without special settings: a warm-up on two files, then `--repeat` calls, in each of
`--rounds` rounds; the best call counts. The scan is that of peers.py: it decodes and sums the same columns.
"""

from __future__ import annotations

import json
from typing import Any

from cases import case_options, measured, repeated
from peers import COLUMNS, PAIR_METRICS, ours, scan, scan_files
from shapes import make_shape

SHAPES = ("lone", "zipf1.2", "hot", "uniform")
WORKS = ("AUC", "AUL", "pairs")
SINGLE = (*WORKS, "scan by files")  # compared on one thread and on two
CASES = (*WORKS, "together", *(f"{work}, one thread" for work in SINGLE), "approx", "scan", "scan by files")


def together(files: list[str]) -> Any:
    """Scores, AUL and pairs in one call."""
    from streameval import evaluate

    metrics = ["roc_auc", "average_precision", "aul", *PAIR_METRICS]
    return evaluate(files, score="score", cluster="cluster", classes="campaign", metrics=metrics).rows


def run(case: str, files: list[str]) -> Any:
    """Call what a case names."""
    from streameval import evaluate

    if case == "together":
        return together(files)
    if case == "approx":
        return evaluate(files, score="score", metrics="roc_auc", approx=True).interval("roc_auc")
    if case == "scan":
        return scan(files, COLUMNS["AUC"])
    work, _, single = case.partition(", ")
    threads = {"threads": 1} if single else {}
    return scan_files(files, COLUMNS["AUC"], **threads) if work == "scan by files" else ours(files, work, **threads)


def main() -> None:
    """Run every case in its own process and print a table of seconds and ratios."""
    given = case_options(__doc__).parse_args()
    if given.case:
        shape, _, case = given.case.partition(": ")
        files = make_shape(shape, given.data, given.rows, given.files)
        print(json.dumps(repeated(lambda some: run(case, some), files, given.repeat)[0]))
        return
    given.fresh_memory = True  # no settings
    shapes = given.only or SHAPES
    found = measured([f"{shape}: {case}" for shape in shapes for case in CASES], given)
    print(f"{given.rows:,} rows, {given.files} files; best of {given.rounds} rounds of {given.repeat}\n")
    heads = ("shape", *WORKS, "together, s", "÷ sum", *(f"{work}, 1 ÷ 2 threads" for work in SINGLE), "approx ÷ scan")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for shape in shapes:
        seconds = {case: found[f"{shape}: {case}"]["seconds"] for case in CASES if f"{shape}: {case}" in found}
        if len(seconds) < len(CASES):
            print(f"| {shape} | failed |")
            continue
        alone = [seconds[work] for work in WORKS]
        faster = [seconds[f"{work}, one thread"] / seconds[work] for work in SINGLE]
        approx = seconds["approx"] / min(seconds["scan"], seconds["scan by files"])
        cells = [*alone, seconds["together"], seconds["together"] / sum(alone), *faster, approx]
        print(f"| {shape} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")


if __name__ == "__main__":
    main()
