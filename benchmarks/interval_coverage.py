"""How right intervals and bounds are: how often sampling intervals hold the truth, by simulation.

    python benchmarks/interval_coverage.py --out FILE                    # every design; goes on where it stopped
    python benchmarks/interval_coverage.py --out FILE --only 'zipf *'    # designs by name: kind and ROC AUC
    python benchmarks/interval_coverage.py --out FILE --seconds 200      # at most so long, then the table
    python benchmarks/interval_coverage.py --approx                      # half-widths of certain intervals instead
    python benchmarks/interval_coverage.py --points --rows 100000        # coarse grids against exact replicates
    python benchmarks/interval_coverage.py --labels --out FILE           # sampled labels instead (sampled_labels.py)

A trial draws new units, divides them into 128 blocks at random, and takes the metrics of all rows and those without
each block; `streameval.metrics.estimates` makes 95 % intervals of them, as of the replicates of `evaluate`. Rows of two
crossed factors are divided by either and by both. The truth is the mean of the values of all trials of a design. A line
of the table is a design and a metric: *coverage*, the share of the given intervals that hold the truth in %, with
[below, above], the shares that lie below it and above it; *width*, the median width over 2 · 1.96 standard deviations
of the values; the median *freedom*; *warned*, the share with a warning, and *null*, the share without an interval.
Designs whose name begins with `family` evaluate slices against their rests, all equal, or two scores that are as good,
in all rows and in the slices of six columns (31 tests): their *coverage* is the share of runs without any verdict.
Rows of `nested` units depend on the cluster of the unit, too, and those of `uncrossed` units on the day, a column that
is sliced by: *coarser unit told* is the share of runs that say so.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from fnmatch import fnmatchcase
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from data import DEFAULT, make
from numba import njit
from sampled_labels import measure, simulate_labels
from scipy.special import expit, logit, ndtri

from streameval import evaluate
from streameval.metrics.estimates import Estimate
from streameval.metrics.protocol import Sizes, class_counts
from streameval.results import FEW_FREEDOM, Scalar
from streameval.states.scores.quantile_sketch import QuantileSketch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AREAS = (0.8, 0.9, 0.95, 0.99, 0.999)
METRICS = {"roc_auc": "logit", "average_precision": "logit", "brier_score": "logit", "log_loss": "log",
           "agc@0.1": "log_complement"}  # fmt: skip
SCORES = ["roc_auc", "average_precision", "brier_score", "log_loss"]
CLUSTERINGS = {
    "classes": "class", "cluster": "cluster", "unit": "class", "ci": 0.95, "threads": 1,
    "metrics": ["adjusted_rand_index", "v_measure", "bcubed_fscore"],
}  # fmt: skip
SHARES = "any verdict", "coarser unit told"  # of runs
BLOCKS = 128
COMPARED = ("roc_auc", "average_precision", "pr_auc", "max_informedness")
POSITIVE = 0.3  # share of the units
SHARED = 0.9  # share of a score's variance that the rows of a unit have in common
ZIPF = np.arange(1, 201.0) ** -2.2


def scored(rng: np.random.Generator, area: float, sizes: np.ndarray, positive: float = POSITIVE) -> dict[str, Any]:
    """Rows of units of one label each, with scores that are probabilities."""
    apart = math.sqrt(2) * ndtri(area)
    label, unit = rng.random(sizes.size) < positive, np.repeat(np.arange(sizes.size), sizes)
    common = apart * label + math.sqrt(SHARED) * rng.normal(size=sizes.size)
    noise = math.sqrt(1 - SHARED) * rng.normal(size=unit.size)
    odds = apart * (common[unit] + noise - apart / 2) + math.log(positive / (1 - positive))
    return {"label": label[unit], "score": expit(odds.clip(-36, 36)), "unit": unit + (int(rng.integers(1 << 40)) << 20)}


def zipf_sizes(rng: np.random.Generator, units: int) -> np.ndarray:
    """Sizes of units, from 1 to 200 rows."""
    return rng.choice(200, units, p=ZIPF / ZIPF.sum()) + 1


def one_big(rng: np.random.Generator, area: float) -> dict[str, Any]:
    """One unit has a third of the positives."""
    sizes = np.full(300, 5)
    rows = scored(rng, area, sizes)
    first = np.flatnonzero(rows["label"])[0]
    times = np.where(np.arange(1500) // 5 == first // 5, max(1, int(rows["label"].sum()) // 10), 1)
    return {name: np.repeat(column, times) for name, column in rows.items()}


def weighted(rng: np.random.Generator, area: float) -> dict[str, Any]:
    """Rows drawn by their score, with inverse probabilities as weights."""
    rows = scored(rng, area, np.full(1000, 1))
    chance = np.clip(rows["score"], 0.05, 1)
    drawn = rng.random(1000) < chance
    return {name: column[drawn] for name, column in (rows | {"weight": 1 / chance}).items()}


def crossed(rng: np.random.Generator, area: float) -> dict[str, Any]:
    """Rows of two crossed factors, campaigns of one label and days, on which both labels are harder or easier."""
    apart = math.sqrt(2) * ndtri(area)
    label, unit, day = rng.random(100) < POSITIVE, rng.integers(0, 100, 3000), rng.integers(0, 60, 3000)
    label = label[unit]
    easier = rng.normal(size=60)[day] * (2 * label - 1)
    odds = apart * label + math.sqrt(0.45) * (rng.normal(size=100)[unit] + easier)
    odds = apart * (odds + math.sqrt(0.1) * rng.normal(size=3000) - apart / 2) + math.log(POSITIVE / (1 - POSITIVE))
    return {"label": label, "score": expit(odds), "unit": unit, "crossed": day}


def sliced(rng: np.random.Generator, area: float, units: int) -> dict[str, Any]:
    """Twenty equal slices of some units."""
    rows = scored(rng, area, np.full(20 * units, 5))
    return rows | {"part": np.arange(100 * units) // (5 * units)}


def paired(rng: np.random.Generator, area: float) -> dict[str, Any]:
    """Two scores that are as good, and six columns of five values."""
    rows = scored(rng, area, np.full(600, 5))
    scores = {name: logit(rows["score"]) + rng.normal(size=3000) for name in ("score", "other")}
    return rows | scores | {f"slice {i}": np.repeat(rng.integers(0, 5, 600), 5) for i in range(6)}


def nested(rng: np.random.Generator, area: float) -> dict[str, Any]:
    """Rows of 600 senders in 150 clusters, of which all senders have one label and much of their score in common."""
    rows = scored(rng, area, np.full(150, 20))
    return rows | {"unit": rows["unit"] * 4 + np.arange(3000) % 20 // 5, "cluster": rows["unit"]}


def clustered(rng: np.random.Generator, classes: int) -> dict[str, Any]:
    """Classes of Zipf sizes, each in two clusters of its own and one that it shares with the next class."""
    classes_of = np.repeat(np.arange(classes), 20 * zipf_sizes(rng, classes).clip(max=20))
    way = rng.random(classes)[classes_of] * 0.5 + 0.5 * rng.random(classes_of.size)
    part, first = np.where(way < 0.5, 0, np.where(way < 0.8, 1, 2)), int(rng.integers(1 << 40)) << 20
    return {"class": first + classes_of, "cluster": first + classes_of * 2 + part}


KINDS: dict[str, Callable[[np.random.Generator, float], dict[str, Any]]] = {
    "pure": lambda rng, area: scored(rng, area, np.full(300, 5)),
    "zipf": lambda rng, area: scored(rng, area, zipf_sizes(rng, 2600)),
    "rows": lambda rng, area: scored(rng, area, np.full(1000, 1)),
    "rare": lambda rng, area: scored(rng, area, np.full(30_000, 1), 0.001),
    "big": one_big,
    "weights": weighted,
    "crossed": crossed,
    "uncrossed": crossed,
    "nested": nested,
    "ties": lambda rng, area: (
        (rows := scored(rng, area, np.full(300, 5))) | {"score": rows["score"].round(1).clip(0.01, 0.99)}
    ),
}
DESIGNS: dict[str, Callable[[np.random.Generator], dict[str, Any]]] = {
    f"{kind} {area}": partial(draw, area=area) for kind, draw in KINDS.items() for area in AREAS
}
DESIGNS |= {f"clusters of {count} classes": partial(clustered, classes=count) for count in (20, 50, 200)}
DESIGNS |= {f"family {count} units": partial(sliced, area=0.95, units=round(count / POSITIVE)) for count in (18, 60)}
DESIGNS["family 31 tests"] = partial(paired, area=0.95)


def replicated(rows: dict[str, np.ndarray], blocks: np.ndarray) -> np.ndarray:
    """Every metric without each block, and of all rows: an array of shape (n_metrics, n_blocks + 1)."""
    order = np.argsort(-rows["score"], kind="stable")
    label, score, block = rows["label"][order], rows["score"][order], blocks[order]
    weight = rows["weight"][order] if "weight" in rows else np.ones(order.size)
    found = np.empty((len(METRICS), BLOCKS + 1))
    _rank(score, label, weight, block, found)
    total = np.bincount(block, weight, BLOCKS)
    losses = (score - label) ** 2, -np.log(np.where(label, score, 1 - score))
    for row, loss in zip(found[2:4], losses, strict=True):
        part = np.bincount(block, weight * loss, BLOCKS)
        row[:] = np.append(part.sum() - part, part.sum()) / np.append(total.sum() - total, total.sum())
    return found


@njit(cache=True, error_model="numpy")
def _rank(score: np.ndarray, label: np.ndarray, weight: np.ndarray, block: np.ndarray, out: np.ndarray) -> None:
    """ROC AUC, average precision and agc@0.1 of rows from the best score to the worst, without each block."""
    for left in range(out.shape[1]):
        kept = weight * (block != left)
        positives, total, ten = (kept * label).sum(), kept.sum(), math.ceil(0.1 * np.count_nonzero(kept))
        t = f = won = precision = area = size = 0.0
        best = start = 0
        while start < score.size:
            end, p, n, count = start, 0.0, 0.0, 0
            while end < score.size and score[end] == score[start]:  # rows of a score are a tie
                p, n = p + kept[end] * label[end], n + kept[end] * (not label[end])
                count += kept[end] > 0
                end += 1
            won, t, f = won + n * (t + p / 2), t + p, f + n
            precision += p * t / (t + f) if t + f else 0.0
            if best < ten or not start:
                area, size = area + (p + n) * (t - p / 2), size + p + n
            best, start = best + count, end
        least = size**2 * positives / (2 * total)
        most = positives**2 / 2 + (size - positives) * positives if positives <= size else size**2 / 2
        out[0, left] = won / (positives * (total - positives))
        out[1, left] = precision / positives
        out[4, left] = (area - least) / (most - least)


def estimates_of(rows: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, Estimate]:
    """Each metric with its replicates over blocks of units; of two crossed factors, by either and by both."""
    units = [rows["unit"]]
    if "crossed" in rows:
        units += [rows["crossed"], rows["unit"] * (1 + rows["crossed"].max()) + rows["crossed"]]
    first, *others = (_by_unit(rows, unit, rng) for unit in units)
    return {name: one.crossed_with(*(by[name] for by in others)) for name, one in first.items()}


def _by_unit(rows: dict[str, np.ndarray], units: np.ndarray, rng: np.random.Generator) -> dict[str, Estimate]:
    """Each metric with its replicates over blocks of some units."""
    _, unit = np.unique(units, return_inverse=True)
    block = rng.integers(0, BLOCKS, unit.max() + 1)[unit]
    weight = rows.get("weight", np.ones(unit.size))
    sides = [np.bincount(block, weight * (rows["label"] == side), minlength=BLOCKS) for side in (0, 1)]
    values, sizes = replicated(rows, block), Sizes("unit", class_counts(*sides))
    return {name: _estimate(name, row, sizes) for name, row in zip(METRICS, values, strict=True)}


def _estimate(name: str, row: np.ndarray, sizes: Sizes) -> Estimate:
    replicates = np.where(sizes.counts["rows"] > 0, np.nan_to_num(row[:-1], nan=math.inf), math.nan)
    value = Scalar.certain(name, float(row[-1]))
    with np.errstate(invalid="ignore"):
        same = np.nanmax(np.abs(replicates - row[-1])) < 1e-14
    reason = "the value is the same without any block" if same or row[-1] in (0, 1) else None
    return Estimate(value, replicates, sizes, METRICS[name], reason)


def trial(design: str, number: int) -> dict[str, list[float | None]]:
    """For each metric the value, the ends of its interval and the freedom; for a family whether there is a verdict."""
    rng = np.random.default_rng([*design.encode(), number])
    rows = DESIGNS[design](rng)
    if design.startswith("family"):
        options: dict[str, Any] = {"score": "score", "by": "part", "against": "rest"}
        if "other" in rows:
            options = {"score": ["score", "other"], "baseline": "other", "by": [f"slice {i}" for i in range(6)]}
        results = evaluate(pa.table(rows), unit="unit", metrics="roc_auc", threads=1, **options).results
        wrong = [one.verdict not in (None, "not shown") for one in results]
        return {"any verdict": [float(any(wrong)), 0.0, 0.5, None]}
    if "class" in rows:
        return {one.metric: told(one) for one in evaluate(pa.table(rows), **CLUSTERINGS).results}
    coarser = {"nested": {"cluster": "cluster"}, "uncrossed": {"by": "crossed"}}.get(design.split()[0])
    if coarser is None:
        return {name: told(one.scalar_with(0.95)) for name, one in estimates_of(rows, rng).items()}
    found = evaluate(pa.table(rows), score="score", unit="unit", metrics=SCORES, threads=1, **coarser)
    shown = {one.metric: told(one) for one in found.results if one.slice is None and one.metric in METRICS}
    return shown | {"coarser unit told": [float(not found.coarser_units), 0.0, 0.5, None]}


def told(one: Scalar) -> list[float | None]:
    """What is kept of an estimate."""
    return [None if x is None or x != x else x for x in (one.value, one.ci_lower, one.ci_upper, one.freedom)]


def line(design: str, name: str, rows: list[list[float | None]]) -> str:
    """A line of the table."""
    value, low, high, free = np.array(rows, float).T
    given, share = ~np.isnan(low), name in SHARES
    truth = 0.0 if share else float(np.nanmean(value))
    if not given.any():
        return f"| {design} | {name} | {len(rows):,} | – | | | | 100 |"
    held = (value == 0) if share else (low <= truth) & (truth <= high)
    sides = [100 * float((side & given).sum() / given.sum()) for side in (held, high < truth, low > truth)]
    if share:
        return f"| {design} | {name} | {len(rows):,} | {sides[0]:.1f} | | | | 0 |"
    width = float(np.nanmedian(high - low)) / (3.92 * float(np.nanstd(value)) or math.nan)
    facts = f"{np.nanmedian(free):.0f} | {100 * np.mean(free[given] < FEW_FREEDOM):.0f}"
    told = f"{sides[0]:.1f} [{sides[1]:.1f}, {sides[2]:.1f}] | {width:.2f} | {facts}"
    return f"| {design} | {name} | {len(rows):,} | {told} | {100 * (1 - given.mean()):.0f} |"


def simulated(path: Path | None, names: list[str], trials: int, seconds: float) -> Mapping[str, dict[str, list[Any]]]:
    """All trials of some designs, read from a file and continued there until the time is over."""
    found: dict[str, dict[str, list[Any]]] = {name: defaultdict(list) for name in names}
    done: dict[str, int] = dict.fromkeys(names, 0)
    for text in path.read_text().splitlines() if path and path.exists() else []:
        design, rows = json.loads(text)
        if design in done:
            done[design] += 1
            for metric, row in rows.items():
                found[design][metric].append(row)
    end = time.monotonic() + seconds
    while time.monotonic() < end and (name := min(names, key=done.__getitem__)) and done[name] < trials:
        rows = trial(name, done[name])
        done[name] += 1
        for metric, row in rows.items():
            found[name][metric].append(row)
        if path:
            with path.open("a") as file:
                file.write(json.dumps([name, rows]) + "\n")
    return found


def tell_bounds(rows: int) -> None:
    """Print the half-widths of certain intervals, of six scores in one pass."""
    scores, metrics = (
        ["uniform", "beta", "rare", "saturated", "logit", "cents"],
        [*COMPARED, "pr_auc", "max_informedness"],
    )
    found = evaluate(make(DEFAULT, rows, 20), score=scores, approx=True)
    print(f"{found.rows:,} rows; half-widths\n\n| scores | {' | '.join(metrics)} |\n|---|{'---|' * len(metrics)}")
    for score in scores:
        intervals = [found.interval(metric, score) for metric in metrics]
        print(f"| {score} | {' | '.join(f'{(upper - lower) / 2:.1e}' for lower, upper in intervals)} |")


POINTS = ["fpr=0.01", "fpr=0.001", "threshold=0.4", "share=0.01", "share=0.1", "recall=0.8", "precision=0.3"]


def tell_points(rows: int, trials: int) -> None:
    """Print how often the default grid gives an interval where every score does, and how standard errors differ."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        label, apart = rng.random(rows) < (0.2, 0.05, 0.01)[seed % 3], rng.uniform(1, 3)
        table = pa.table({"label": label, "score": expit(rng.normal(apart * label - 2, 1)).astype(np.float32)})
        asked = {"score": "score", "metrics": ["roc_auc", "average_precision", "f1_max"], "at": POINTS, "ci": 0.95}
        grid, exact = (evaluate(table, **asked, **bins) for bins in ({}, {"resample_bins": "exact"}))
        for own, other in zip(grid.results, exact.results, strict=True):
            if other.stderr:
                ratios[own.metric].append(own.stderr / other.stderr if own.stderr else math.nan)
    print(f"{rows:,} rows; standard errors over those of every score\n\n| metric | runs | given | least | greatest |")
    print("|---|--:|--:|--:|--:|")
    for metric, found in ratios.items():
        given = np.array(found)[~np.isnan(found)]
        ends = f"{given.min():.4f} | {given.max():.4f}" if given.size else "– | –"
        print(f"| {metric} | {len(found)} | {100 * given.size / len(found):.0f} % | {ends} |", flush=True)


QUANTILES = np.array([0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.998, 0.999])
DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "beta": lambda rng, n: rng.beta(0.3, 3.0, n),
    "10 atoms": lambda rng, n: rng.integers(0, 10, n) / 10,
    "1000 atoms": lambda rng, n: rng.integers(0, 1000, n) / 1000,
    "half zero": lambda rng, n: rng.random(n) * (rng.random(n) < 0.5),
}


def tell_sketches(rows: int) -> None:
    """Print the worst rank error of sketches, folded at once and merged from a thousand parts."""
    rng = np.random.default_rng(0)
    print("| numbers | one fold | 1,000 merges |\n|---|---|---|")
    for kind, draw in DRAWS.items():
        values = draw(rng, rows)
        merged = reduce(QuantileSketch.merge, map(QuantileSketch.from_values, np.array_split(values, 1000)))
        errors = [_rank_error(sketch, values) for sketch in (QuantileSketch.from_values(values), merged)]
        print(f"| {kind} | {' | '.join(f'{100 * error:.2f} %' for error in errors)} |", flush=True)


def _rank_error(sketch: QuantileSketch, values: np.ndarray) -> float:
    """An atom covers a range of ranks."""
    ordered, found = np.sort(values), np.asarray(sketch.quantile(QUANTILES))
    low, high = (np.searchsorted(ordered, found, side) / values.size for side in ("left", "right"))
    outside = np.maximum(0, np.maximum(low - QUANTILES, QUANTILES - high))
    return float((outside / np.minimum(QUANTILES, 1 - QUANTILES)).max())


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, help="of each design, by default 2,000; 300 of sampled labels")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="GLOB", help="designs, such as 'zipf *'")
    parser.add_argument("--out", type=Path, help="file that keeps what has been simulated, from which a run goes on")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--approx", action="store_true", help="print half-widths of certain intervals instead")
    parser.add_argument("--points", action="store_true", help="compare default standard errors with exact ones instead")
    parser.add_argument("--sketch", action="store_true", help="print rank errors of quantile sketches instead")
    parser.add_argument("--labels", action="store_true", help="simulate estimates from sampled labels instead")
    parser.add_argument("--speed", action="store_true", help="with --labels: time and memory instead")
    parser.add_argument("--rows", type=int, default=100_000_000, help="of these; 10⁶ are enough for sketches")
    given = parser.parse_args()
    if given.approx or given.sketch:
        (tell_bounds if given.approx else tell_sketches)(given.rows)
        return
    if given.points:
        tell_points(given.rows, given.trials or 20)
        return
    if given.labels and given.speed:
        measure(given.rows)
        return
    if given.labels:
        simulate_labels(
            given.out or parser.error("--labels needs --out"), given.only, given.trials or 300, given.seconds
        )
        return
    names = [name for name in DESIGNS if any(fnmatchcase(name, pattern) for pattern in given.only)]
    found = simulated(given.out, names, given.trials or 2_000, given.seconds)
    heads = "design, metric, trials, coverage [below, above], width, freedom, warned, null"
    print(f"| {heads.replace(', ', ' | ').replace('below | above', 'below, above')} |\n|{'---|' * 8}")
    for design, metrics in found.items():
        for metric, rows in metrics.items():
            print(line(design, metric, rows))


if __name__ == "__main__":
    main()
