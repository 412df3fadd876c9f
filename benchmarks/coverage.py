"""How often sampling intervals hold the truth, by simulation.

    python benchmarks/coverage.py --trials 200                          # every cell; hours with --trials 2000
    python benchmarks/coverage.py --trials 2000 --only 'zipf 100*'      # cells by name: kind, design and units

A *cell* is a kind of input, a design and a number of effective units. Units are drawn anew in every trial:

- `zipf`: unit sizes with P(s) ∝ s^−2.2, at most 200 rows; the rows of a unit share their label and most of their score;
- `equal`: units of 5 rows, otherwise the same;
- `rows`: every row is a unit.

There are as many units that the rarer class has the cell's number of effective units in the mean; for classes, which
have no labels, the number is by rows. Kinds of input:

- `scores`: two exchangeable scores of equal worth, so that their true difference is 0. The row-wise interval is the
  one that `evaluate` gives without `unit`;
- `clusters`: the unit is the cluster, larger clusters are more often positive;
- `classes`: the unit is the class. A class has its own cluster, or shares one with others; some rows stand elsewhere.

The truth is the mean of the metric over independent samples of the same size (`--truth` for each trial). Everything is
computed by `streameval.evaluate` on Arrow tables. *coverage* is the share of the given intervals that hold the truth,
*row-wise* the same of intervals that take each row as a unit, *null* the share of trials without an interval, and
*stderr* the mean standard error over the standard deviation of the values. For a difference of equal scores, one minus
the coverage is the share of tests that reject.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

sys.modules["coverage"] = None  # numba would take this file for the package of its name

from streameval import evaluate  # noqa: E402 - it imports numba, which the line above must precede

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval import Scalar
    from streameval.evaluation.result import Evaluation

LEVEL = 0.95
MOST, EXPONENT = 200, 2.2  # rows of a unit, and the exponent of their distribution
PREVALENCE = 0.3
SHARED = 0.9  # share of a score's variance that the rows of a unit have in common
SEPARATION = 1.5
UNITS = (100, 1_000, 10_000)
METRICS = {
    "scores": ("roc_auc", "average_precision", "agc@0.1", "tpr@fpr=0.01"),
    "clusters": ("aul",),
    "classes": ("adjusted_rand_index", "bcubed_fscore", "v_measure"),
}
DIFFERENCES = ("roc_auc", "average_precision")
OPTIONS = {
    "scores": {"score": ["v1", "v2"], "truncate": 0.1},
    "clusters": {"cluster": "cluster", "label": "label"},
    "classes": {"cluster": "cluster", "classes": "unit"},
}


@cache
def chances() -> tuple[np.ndarray, float]:
    """Distribution of the unit sizes 1 … `MOST`, and E[s]²/E[s²]."""
    sizes = np.arange(1, MOST + 1.0)
    chance = sizes**-EXPONENT / np.sum(sizes**-EXPONENT)
    return chance, float((chance @ sizes) ** 2 / (chance @ sizes**2))


@dataclass(frozen=True)
class Cell:
    """One line of work."""

    kind: str
    design: str
    units: int

    @property
    def name(self) -> str:
        """As `--only` matches it."""
        return f"{self.kind} {self.design} {self.units}"

    def sample(self, rng: np.random.Generator) -> pa.Table:
        """Rows of newly drawn units."""
        equal = chances()[1] if self.design == "zipf" else 1.0
        rarer = 1.0 if self.kind == "classes" else PREVALENCE
        count = round(self.units / equal / rarer)
        sizes = np.full(count, 1 if self.design == "rows" else 5)
        if self.design == "zipf":
            sizes = rng.choice(MOST, count, p=chances()[0]) + 1
        made = {"scores": _scores, "clusters": _clusters, "classes": _classes}[self.kind]
        return pa.table(made(sizes, rng))

    def evaluated(self, rng: np.random.Generator, **more: object) -> Evaluation:
        """The evaluation of a sample."""
        return self.judged(self.sample(rng), **more)

    def judged(self, table: pa.Table, **more: object) -> Evaluation:
        """The evaluation of a table."""
        return evaluate(table, metrics=list(METRICS[self.kind]), threads=1, **OPTIONS[self.kind], **more)


def _scores(sizes: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    unit = np.repeat(np.arange(sizes.size), sizes)
    label = rng.random(sizes.size) < PREVALENCE
    common = rng.normal(size=sizes.size)
    made = {"unit": _named(unit, rng), "label": label[unit].astype(np.int8)}
    for name in ("v1", "v2"):
        own = SEPARATION * label + math.sqrt(SHARED / 2) * (common + rng.normal(size=sizes.size))
        made[name] = own[unit] + math.sqrt(1 - SHARED) * rng.normal(size=unit.size)
    return made


def _clusters(sizes: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    rate = np.clip(PREVALENCE * (0.7 + 0.3 * np.log2(sizes)), 0, 0.95)
    pure = rng.random(sizes.size) < rate
    cluster = np.repeat(np.arange(sizes.size), sizes)
    label = np.where(rng.random(cluster.size) < 0.1, rng.random(cluster.size) < PREVALENCE, pure[cluster])
    return {"cluster": _named(cluster, rng), "label": label.astype(np.int8)}


def _classes(sizes: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    count = sizes.size
    merged = rng.random(count) < 0.3
    home = np.where(merged, count + rng.integers(0, max(1, count // 10), count), np.arange(count))
    unit = np.repeat(np.arange(count), sizes)
    astray = rng.random(unit.size) < 0.1
    cluster = np.where(astray, 2 * count + unit, home[unit])
    label = np.ones(unit.size, np.int8)
    return {"unit": _named(unit, rng), "cluster": cluster, "label": label}


def _named(unit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ids that differ between trials, so that their blocks do."""
    return unit + (int(rng.integers(1 << 40)) << 20)


@dataclass
class Tally:
    """What the trials said of one metric.

    Attributes
    ----------
    values : values of the trials
    truths : values of the independent samples
    ends, rowwise : intervals of the trials by unit and by row; NaN where there is none
    stderr : standard errors by unit
    reasons : why there was no interval
    """

    values: list[float] = field(default_factory=list)
    truths: list[float] = field(default_factory=list)
    ends: list[tuple[float, float]] = field(default_factory=list)
    rowwise: list[tuple[float, float]] = field(default_factory=list)
    stderr: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, result: Scalar) -> None:
        """Take in a trial."""
        self.values.append(result.value)
        self.ends.append(_interval(result))
        self.stderr.append(math.nan if result.ci_lower is None else float(result.stderr or math.nan))
        self.reasons += [result.ci_reason or ""] if result.ci_lower is None else []

    def row(self, truth: float | None = None) -> list[str]:
        """Cells of the table."""
        truth = float(np.nanmean(self.truths)) if truth is None else truth
        given = np.array(self.ends, float)
        null = float(np.isnan(given[:, 0]).mean())
        spread = float(np.nanstd(self.values, ddof=1))
        ratio = float(np.nanmean(self.stderr)) / spread if null < 1 and spread else math.nan
        shares = [_coverage(given, truth), _coverage(np.array(self.rowwise, float), truth)]
        shown = ["–" if math.isnan(x) else f"{x:.1%}" for x in shares]
        return [f"{truth:.4f}", *shown, "–" if math.isnan(ratio) else f"{ratio:.2f}", f"{null:.0%}"]


def _interval(result: Scalar) -> tuple[float, float]:
    if result.ci_lower is None or result.ci_upper is None:
        return math.nan, math.nan
    return result.ci_lower, result.ci_upper


def _coverage(ends: np.ndarray, truth: float) -> float:
    """Share of the intervals that hold the truth."""
    ends = ends.reshape(-1, 2)
    ends = ends[~np.isnan(ends[:, 0])]
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()) if len(ends) else math.nan


def results(found: Evaluation) -> Iterator[tuple[str, Scalar]]:
    """The values of the first column, and the differences that the table shows."""
    for result in found.results:
        if result.baseline is not None:
            if result.metric in DIFFERENCES:
                yield f"{result.metric}, difference", result
        elif result.of != "v2":
            yield result.metric, result


def tallied(cell: Cell, trials: int, truth: int, seed: int) -> dict[str, Tally]:
    """Simulate a cell."""
    tallies: dict[str, Tally] = {}
    place = [seed, *cell.name.encode()]
    unit = {"unit": "unit", "baseline": "v1"} if cell.kind == "scores" else {}
    for trial in range(trials):
        table = cell.sample(np.random.default_rng([*place, trial]))
        for name, result in results(cell.judged(table, ci=LEVEL, **unit)):
            tallies.setdefault(name, Tally()).add(result)
        if cell.kind == "scores":
            for name, result in results(cell.judged(table, ci=LEVEL, baseline="v1")):
                tallies[name].rowwise.append(_interval(result))
    for sample in range(truth):
        for name, result in results(cell.evaluated(np.random.default_rng([*place, trials + sample]))):
            tallies[name].truths.append(result.value)
    return tallies


def cells() -> list[Cell]:
    """All cells; clusters and classes of single rows would say nothing."""
    return [
        Cell(kind, design, units)
        for units in UNITS
        for kind in METRICS
        for design in ("zipf", "equal", "rows")
        if design != "rows" or kind == "scores"
    ]


def main() -> None:
    """Print the table, a cell at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--truth", type=float, default=5, help="independent samples for each trial")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="GLOB", help="cells, such as 'scores zipf *'")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("| design | effective units | metric | truth | coverage | row-wise | stderr | null |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for cell in cells():
        if not any(fnmatchcase(cell.name, f"*{pattern}") for pattern in given.only):
            continue
        started = time.perf_counter()
        found = tallied(cell, given.trials, round(given.truth * given.trials), given.seed)
        for name, tally in found.items():
            row = tally.row(0.0 if "difference" in name else None)
            print(f"| {cell.design} | {cell.units:,} | {name} | {' | '.join(row)} |", flush=True)
            for reason in sorted(set(tally.reasons))[:1]:
                print(f"    no interval, such as: {reason}", flush=True)
        print(f"    {cell.name}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
