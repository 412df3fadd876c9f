"""Attribution of a large clustering: its time compared with that of the metrics that it explains, and its memory.

    python benchmarks/attribution.py                  # 10⁸ rows; makes 2.2 GB of data in /var/tmp first
    python benchmarks/attribution.py --rows 10000000  # a quick look

The data are those of ``contingency.py``: 10⁸ rows in 7·10⁷ clusters, against 10⁶ classes. Every case runs in a separate
process, after a warm-up on two files, once in each of `--rounds` rounds; the best call of each counts. The targets:
merges and splits within 1.25 times the pair metrics, impure clusters within 1.1 times `aul`; examples cost one more
scan.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases import case_options, measured, repeated
from contingency import make

if TYPE_CHECKING:
    from collections.abc import Callable

PAIRS = {"cluster": "cluster", "classes": "campaign"}
SIZES = {"cluster": "cluster", "label": "label"}
TARGETS = (("merges and splits", "pair metrics", 1.25), ("impure clusters", "aul", 1.1))


def evaluated(**options: Any) -> Callable[[list[str]], None]:
    """A call of `evaluate`."""

    def call(files: list[str]) -> None:
        from streameval import evaluate

        evaluate(files, **options)

    return call


def attributed(**options: Any) -> Callable[[list[str]], None]:
    """A call of `attribute`."""

    def call(files: list[str]) -> None:
        from streameval import attribute

        attribute(files, **options)

    return call


CASES: dict[str, Callable[[list[str]], None]] = {
    "pair metrics": evaluated(**PAIRS, metrics=["adjusted_rand_index", "pairwise.precision", "pairwise.recall"]),
    "merges and splits": attributed(**PAIRS),
    "with examples": attributed(**PAIRS, examples="score_a"),
    "aul": evaluated(**SIZES, metrics="aul"),
    "impure clusters": attributed(**SIZES),
}


def main() -> None:
    """Print the table, and whether the targets are met."""
    given = case_options(__doc__).parse_args()
    files = make(given.data, given.rows, given.files)
    if given.case:
        print(json.dumps(repeated(CASES[given.case], files, given.repeat)[0]))
        return
    found = measured([case for case in CASES if not given.only or case in given.only], given)
    for case, result in found.items():
        print(f"{case:20} {result['seconds']:8.2f} s  {result['peak'] / 1024:6.2f} GiB")
    for case, beside, most in TARGETS:
        if case in found and beside in found:
            ratio = found[case]["seconds"] / found[beside]["seconds"]
            print(f"{case}: {ratio:.2f} times {beside}, {'within' if ratio <= most else 'above'} {most}")


if __name__ == "__main__":
    main()
