"""How right intervals and bounds are: how often sampling intervals hold the truth, by simulation.

    python benchmarks/interval_coverage.py --out FILE                           # every cell; goes on where it stopped
    python benchmarks/interval_coverage.py --out FILE --only 'scores zipf 100'  # cells by name: kind, design and units
    python benchmarks/interval_coverage.py --out FILE --trials 0 --truth 0      # print what is there

A *cell* is a kind of input, a design and a number of effective units. A trial draws new units, folds
them in memory into the states that `evaluate` folds, and takes values, intervals and differences from the functions
that `evaluate` takes them from; there are no files and no scheduler. The truth is the mean of the metric over
independent samples of the same size. Results are appended to `--out` as they come, some trials a line; trial i of a
cell draws the same rows wherever it runs.

*coverage* is the share of the given intervals that hold the truth ± its binomial standard error, *row-wise* the same of
intervals that take each row as a unit, *null* the share of trials without an interval, *stderr* the mean standard error
over the standard deviation of the values. The two scores of a cell are of equal worth: the true difference is 0, and
*rejected* the share of tests that find one at 5 %. Cells of curves have the band of the ROC curve at some false
positive rates; the standard error of a band is not kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from data import DEFAULT, make

from streameval import evaluate
from streameval.engine.threads import ThreadEngine
from streameval.evaluation.drawing import curves_of, with_bands
from streameval.evaluation.families import FAMILIES, MetricRequest, finalize
from streameval.evaluation.intervals import block_requests, estimated
from streameval.evaluation.request import Resampling
from streameval.metrics.catalogue import entry_of
from streameval.metrics.clusters import Aul
from streameval.metrics.contingency.clustering import clustering_metric
from streameval.metrics.curves import curve_kind
from streameval.metrics.scores.gain import Agc
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.quantile_sketch import QuantileSketch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.metrics.estimates import Estimate
    from streameval.results import Curve

LEVEL = 0.95
UNITS = (100, 1_000, 10_000)
CHUNK = 50  # trials a line
_OF_ROWS = ("scores", "curves")  # kinds whose units are those of rows
COMPARED = ("roc_auc", "average_precision")
RATES = (0.01, 0.05, 0.1, 0.2, 0.5)  # false positive rates of bands
RANKING = (entry_of("roc_auc").metric, entry_of("average_precision").metric, Agc(0.1), OperatingPoint("fpr", 0.01))
TABLE = tuple(clustering_metric(name) for name in ("adjusted_rand_index", "bcubed_fscore", "v_measure"))
WANTED = {
    "scores": [MetricRequest(FAMILIES["score"], name, ScoreSpec(name, "f8"), RANKING) for name in ("v1", "v2")],
    "clusters": [MetricRequest(FAMILIES["cluster"], "cluster", ClusterSpec("cluster"), (Aul(),))],
    "classes": [MetricRequest(FAMILIES["classes"], "cluster", ContingencySpec("unit", "cluster"), TABLE)],
}


WANTED["curves"] = WANTED["scores"][:1]

MOST, EXPONENT = 200, 2.2  # rows of a unit, and the exponent of their distribution
PREVALENCE = 0.3
SHARED = 0.9  # share of a score's variance that the rows of a unit have in common
SEPARATION = 1.5

Columns = dict[str, np.ndarray]


@cache
def chances() -> tuple[np.ndarray, float]:
    """Distribution of the unit sizes 1 … `MOST`, and E[s]²/E[s²]."""
    sizes = np.arange(1, MOST + 1.0)
    chance = sizes**-EXPONENT / np.sum(sizes**-EXPONENT)
    return chance, float((chance @ sizes) ** 2 / (chance @ sizes**2))


def drawn(kind: str, design: str, units: int, rng: np.random.Generator) -> Columns:
    """Columns of a sample; `label` is one of them."""
    equal = chances()[1] if design == "zipf" else 1.0
    rarer = 1.0 if kind == "classes" else PREVALENCE
    count = round(units / equal / rarer)
    sizes = np.full(count, 1 if design == "rows" else 5)
    if design == "zipf":
        sizes = rng.choice(MOST, count, p=chances()[0]) + 1
    return {"scores": _scores, "clusters": _clusters, "classes": _classes}[kind](sizes, rng)


def _scores(sizes: np.ndarray, rng: np.random.Generator) -> Columns:
    unit = np.repeat(np.arange(sizes.size), sizes)
    label = rng.random(sizes.size) < PREVALENCE
    common = rng.normal(size=sizes.size)
    made = {"unit": _named(unit, rng), "label": label[unit].astype(np.uint8)}
    for name in ("v1", "v2"):
        own = SEPARATION * label + math.sqrt(SHARED / 2) * (common + rng.normal(size=sizes.size))
        made[name] = own[unit] + math.sqrt(1 - SHARED) * rng.normal(size=unit.size)
    return made


def _clusters(sizes: np.ndarray, rng: np.random.Generator) -> Columns:
    rate = np.clip(PREVALENCE * (0.7 + 0.3 * np.log2(sizes)), 0, 0.95)
    pure = rng.random(sizes.size) < rate
    cluster = np.repeat(np.arange(sizes.size), sizes)
    label = np.where(rng.random(cluster.size) < 0.1, rng.random(cluster.size) < PREVALENCE, pure[cluster])
    return {"cluster": _named(cluster, rng), "label": label.astype(np.uint8)}


def _classes(sizes: np.ndarray, rng: np.random.Generator) -> Columns:
    count = sizes.size
    merged = rng.random(count) < 0.3
    home = np.where(merged, count + rng.integers(0, max(1, count // 10), count), np.arange(count))
    unit = np.repeat(np.arange(count), sizes)
    astray = rng.random(unit.size) < 0.1
    cluster = np.where(astray, 2 * count + unit, home[unit])
    return {"unit": _named(unit, rng), "cluster": cluster, "label": np.ones(unit.size, np.uint8)}


def _named(unit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ids that differ between samples, so that their blocks do."""
    return unit + (int(rng.integers(1 << 40)) << 20)


class Serial(ThreadEngine):
    """The engine on this thread alone, with nothing scheduled."""

    def each(self, function: Callable[[Any], Any], items: Sequence[Any], name: str) -> list[Any]:
        """Map a function over items."""
        return [function(item) for item in items]


ENGINE = Serial.start(threads=1, memory="1GB")


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

    def sample(self, *place: int) -> Columns:
        """Rows of newly drawn units; the numbers say which."""
        kind = "scores" if self.kind == "curves" else self.kind
        return drawn(kind, self.design, self.units, np.random.default_rng([*self.name.encode(), *place]))

    def values(self, columns: Columns) -> dict[str, float]:
        """The metrics of the first column alone."""
        wanted = WANTED[self.kind][:1]
        states = _folded(columns, [w.spec for w in wanted])
        if self.kind == "curves":
            [curve] = self._curves(states)
            return dict(zip(_POINTS, np.interp(RATES, curve.x, curve.y).tolist(), strict=True))
        return {s.metric: s.value for s in finalize(ENGINE, [(w, states[w.spec]) for w in wanted])}

    def estimates(self, columns: Columns, unit: str | None) -> dict[str, Estimate]:
        """The metrics of the first column, and the differences of both, with replicates."""
        wanted, resampling = WANTED[self.kind], Resampling(LEVEL, unit)
        states = _folded(columns, [*(w.spec for w in wanted), *(w.spec for w in block_requests(wanted, resampling))])
        answered = [(w, w.replication(resampling).swept(ENGINE, states[w.spec])) for w in wanted]
        found, _ = estimated(ENGINE, answered, states, tuple(finalize(ENGINE, answered)), resampling)
        columns_of = [{one.own.scalar.metric: one for one in found if one.own.scalar.of == w.of} for w in wanted]
        first, second = columns_of[0], columns_of[-1]
        compared = COMPARED if len(wanted) > 1 else ()
        differences = {f"{name}, difference": second[name].paired.minus(first[name].paired) for name in compared}
        return {name: one.own for name, one in first.items()} | differences

    def bands(self, columns: Columns, unit: str | None) -> dict[str, tuple[list[float], str | None]]:
        """The ROC curve at `RATES`, as `told` has it, and why it has no interval there."""
        wanted, resampling = WANTED[self.kind], Resampling(LEVEL, unit)
        states = _folded(columns, [*(w.spec for w in wanted), *(w.spec for w in block_requests(wanted, resampling))])
        answered = [(w, states[w.spec]) for w in wanted]
        _, resampled = estimated(ENGINE, answered, states, tuple(finalize(ENGINE, answered)), resampling)
        [curve] = self._curves(states, resampled)
        found, band = {}, curve.band
        for name, x in zip(_POINTS, RATES, strict=True):
            at = np.flatnonzero(np.isclose(band.x, x)) if band else []
            ends = [float(band.lower[at[0]]), float(band.upper[at[0]])] if band and len(at) else [math.nan] * 2
            row = [float(np.interp(x, curve.x, curve.y)), *ends, math.nan, math.nan]
            found[name] = row, band.reason if band else "there is no band"
        return found

    def _curves(self, states: dict[Any, Any], resampled: dict[tuple[str, str], Any] | None = None) -> list[Curve]:
        """The ROC curve of the first column, with its band."""
        held = {(w.group, w.of): states[w.spec] for w in WANTED[self.kind]}
        curves = curves_of(ENGINE, held, [curve_kind("roc")], 1)
        return with_bands(ENGINE, held, curves, resampled or {}, 1, LEVEL)


_POINTS = [f"band at fpr={x:g}" for x in RATES]


def _folded(columns: Columns, specs: Sequence[Any]) -> dict[Any, Any]:
    """States of the rows."""
    label = columns["label"]
    batch = Batch(label, None, {name: pa.array(column) for name, column in columns.items()})
    states = {}
    for spec in dict.fromkeys(specs):
        builder = spec.builder(ENGINE.budget, label.size)
        builder.update(batch)
        states[spec] = builder.state()
    return states


def told(estimate: Estimate) -> list[float]:
    """What is kept of an estimate: value, ends of its interval, standard error, p of being 0; NaN for what is not."""
    found = estimate.scalar_with(LEVEL)
    if found.ci_lower is None or found.ci_upper is None:
        return [found.value, *[math.nan] * 4]
    return [found.value, found.ci_lower, found.ci_upper, float(found.stderr or 0), estimate.p_value()]


class Record:
    """What has been simulated of a cell, kept in a file of JSON lines.

    Parameters
    ----------
    path : the file; None to keep nothing
    cell : the cell
    """

    def __init__(self, path: Path | None, cell: Cell) -> None:
        self._path, self.cell = path, cell
        self.done: dict[str, int] = defaultdict(int)  # trials of each kind
        self._rows: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.reasons: dict[str, str] = {}
        for line in path.read_text().splitlines() if path and path.exists() else []:
            entry = json.loads(line)
            if entry["cell"] == cell.name:
                self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        self.done[entry["kind"]] += entry["trials"]
        self.reasons |= entry.get("reasons", {})
        for name, rows in entry["rows"].items():
            self._rows[entry["kind"]][name] += rows

    def add(self, kind: str, trials: int, rows: dict[str, list[Any]], reasons: dict[str, str]) -> None:
        """Keep some trials."""
        entry = {"cell": self.cell.name, "kind": kind, "trials": trials, "rows": rows, "reasons": reasons}
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        self._take(entry)

    @cached_property
    def names(self) -> list[str]:
        """What has been estimated."""
        return list(self._rows["unit"])

    def of(self, kind: str, name: str) -> np.ndarray:
        """All trials of a kind: an array of shape (n, 5), as `told` has them; of truths (n, 1)."""
        return np.array(self._rows[kind].get(name, []), float).reshape(-1, 1 if kind == "truth" else 5)

    def row(self, name: str) -> list[str]:
        """The row of a metric in the table."""
        found, rowwise = self.of("unit", name), self.of("row", name)
        truth = (
            0.0 if "difference" in name else float(self.of("truth", name).mean()) if self.done["truth"] else math.nan
        )
        given = ~np.isnan(found[:, 1])
        ratio = float(found[given, 3].mean() / np.nanstd(found[:, 0], ddof=1)) if given.sum() > 1 else math.nan
        tests = [_share(each[:, 4] < 1 - LEVEL) for each in (found, rowwise)]
        rejected = tests if "difference" in name else ["", ""]
        shown = [f"{truth:.4f}", _covered(found, truth), _covered(rowwise, truth), *rejected]
        return [f"{len(found):,}", *shown, f"{ratio:.2f}", f"{1 - given.mean():.0%}"]


def _covered(found: np.ndarray, truth: float) -> str:
    """Share of the intervals that hold the truth."""
    ends = found[~np.isnan(found[:, 1]), 1:3] if len(found) else np.empty((0, 2))
    return _share((ends[:, 0] <= truth) & (truth <= ends[:, 1]))


def _share(held: np.ndarray) -> str:
    if not held.size:
        return "–"
    share = float(held.mean())
    return f"{100 * share:.1f} ± {100 * math.sqrt(share * (1 - share) / held.size):.1f} %"


def simulate(record: Record, kind: str, trials: int) -> None:
    """Bring a cell to a number of trials of a kind: `unit`, `row` or `truth`."""
    cell = record.cell
    while (start := record.done[kind]) < trials:
        rows, reasons = defaultdict(list), {}
        stop = min(trials, start + CHUNK)
        for trial in range(start, stop):
            if kind == "truth":
                for name, value in cell.values(cell.sample(1, trial)).items():
                    rows[name].append([value])
                continue
            unit = "unit" if kind == "unit" and cell.kind in _OF_ROWS else None
            if cell.kind == "curves":
                for name, (row, reason) in cell.bands(cell.sample(0, trial), unit).items():
                    rows[name].append(row)
                    reasons |= {name: reason} if reason else {}
                continue
            for name, estimate in cell.estimates(cell.sample(0, trial), unit).items():
                rows[name].append(told(estimate))
                if estimate.undefined:
                    reasons[name] = estimate.undefined
        record.add(kind, stop - start, dict(rows), reasons)


def cells() -> Iterator[Cell]:
    """All cells; clusters and classes of single rows would say nothing."""
    for units in UNITS:
        for kind in WANTED:
            for design in ("zipf", "equal", "rows"):
                if design != "rows" or kind in _OF_ROWS:
                    yield Cell(kind, design, units)


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
    """Simulate, and print the table a cell at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2_000, help="of each cell; a quarter at 10,000 units")
    parser.add_argument("--truth", type=int, default=10_000, help="independent samples of each cell")
    parser.add_argument("--rowwise", type=int, default=2_000, help="trials that also take each row as a unit")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="GLOB", help="cells, such as 'scores zipf *'")
    parser.add_argument("--out", type=Path, help="file that keeps what has been simulated, from which a run goes on")
    parser.add_argument("--approx", action="store_true", help="print half-widths of certain intervals instead")
    parser.add_argument("--sketch", action="store_true", help="print rank errors of quantile sketches instead")
    parser.add_argument("--rows", type=int, default=100_000_000, help="of these; 10⁶ are enough for sketches")
    given = parser.parse_args()
    if given.approx or given.sketch:
        (tell_bounds if given.approx else tell_sketches)(given.rows)
        return
    heads = "design, effective units, metric, trials, truth, coverage, row-wise, rejected, row-wise, stderr, null"
    print(f"| {heads.replace(', ', ' | ')} |\n|{'---|' * 11}", flush=True)
    for cell in cells():
        if not any(fnmatchcase(cell.name, pattern) for pattern in given.only):
            continue
        started, record = time.process_time(), Record(given.out, cell)
        trials = given.trials // 4 if cell.units == UNITS[-1] else given.trials
        simulate(record, "unit", trials)
        simulate(record, "row", min(given.rowwise, trials) if cell.kind in _OF_ROWS else 0)
        simulate(record, "truth", given.truth)
        for name in record.names:
            print(f"| {cell.design} | {cell.units:,} | {name} | {' | '.join(record.row(name))} |", flush=True)
        for name, reason in record.reasons.items():
            print(f"    {name} has no interval in a trial: {reason}", flush=True)
        print(f"    {cell.name}: {time.process_time() - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
