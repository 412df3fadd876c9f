"""How right estimates from sampled labels are: how often their intervals hold the value of all labels, by simulation.

Run by ``python benchmarks/interval_coverage.py --labels``; ``--only 'uniform 500 *'`` chooses cells. A cell is a
design, its number of labels (of units for ``size``), the prevalence, and the ROC AUC of the score. Its rows are drawn
once, their values are the truth, and each draw labels some of them. A line of the table is a cell and a metric:
*coverage*, the share of the given intervals that hold the truth in %; *width*, their median over 2 · 1.96 standard
deviations of the values; *error*, the root of the mean square error in % of the truth; *null*, the share without an
interval. Metrics with a threshold flag as many rows as are positive.

Designs: ``uniform``; ``strata``, as many labels in each of eight ranges of scores; ``size``, units of Zipf sizes up to
1,000 rows that share their label, drawn in proportion to their rows. ``classes 100`` and ``clusters 100`` draw as many
of 20,000 classes of up to 300 rows, or of their clusters, in proportion to their rows. A line ends in ``!`` if its
coverage is outside `COVERAGE`, its width above 1.5, or more than 60 % of the draws have no interval.

``--labels --speed --rows 10000000`` measures time and memory instead, each run in its own process.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import expit, ndtri

from streameval import evaluate, plan_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS, UNITS, STRATA = 50_000, 20_000, 8
ZIPF = np.arange(1, 1001.0) ** -2.0
CELLS = [
    f"{design} {labels} {prevalence} {area}"
    for design in ("uniform", "strata", "size")
    for labels in (500, 1000, 5000)
    for prevalence in (0.01, 0.1)
    for area in (0.8, 0.95)
]
CELLS += [f"{design} {drawn}" for design in ("classes", "clusters") for drawn in (100, 300, 1000)]
COVERAGE = {"uniform": (92, 100), "strata": (88, 99), "size": (91, 97), "classes": (93, 96), "clusters": (93, 96)}
CLASSES, CHANCE = 20_000, np.arange(1, 301.0) ** -1.8


def population(cell: str) -> dict[str, Any]:
    """All rows of a cell."""
    if cell.startswith("cl"):
        return clustering()
    design, _, prevalence, area = cell.split()
    rng = np.random.default_rng(CELLS.index(cell) % 4)
    sizes = rng.choice(1000, UNITS, p=ZIPF / ZIPF.sum()) + 1 if design == "size" else np.ones(ROWS, np.int64)
    unit, apart = np.repeat(np.arange(sizes.size), sizes), math.sqrt(2) * ndtri(float(area))
    label = (rng.random(sizes.size) < float(prevalence))[unit]
    score = expit(apart * label + rng.normal(size=unit.size) - apart)
    edges = np.quantile(score, 1 - 0.5 ** np.arange(1, STRATA))
    return {"truth": label.astype(np.int8), "s": score, "unit": unit, "stratum": np.searchsorted(edges, score)}


def clustering() -> dict[str, Any]:
    """Classes, of which a twentieth of the rows is split off, and another in the next cluster."""
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(CLASSES), rng.choice(300, CLASSES, p=CHANCE / CHANCE.sum()) + 1)
    at = rng.random(kind.size)
    return {"kind": kind, "cluster": 10 * kind + np.where(at < 0.9, 0, np.where(at < 0.95, 1, 10))}


def by_size(rng: np.random.Generator, sizes: np.ndarray, count: int) -> np.ndarray:
    """Which units are drawn in proportion to their rows, without replacement; the largest are certain."""
    sure = np.zeros(sizes.size, np.bool_)
    while (more := ~sure & ((count - sure.sum()) * sizes >= sizes[~sure].sum())).any():
        sure |= more
    chance = np.where(sure, 1.0, (count - sure.sum()) / sizes[~sure].sum() * sizes)
    order, drawn = rng.permutation(sizes.size), np.zeros(sizes.size, np.bool_)
    upto, start = np.cumsum(chance[order]), rng.random()
    drawn[order] = np.floor(upto - start) > np.floor(upto - chance[order] - start)
    return drawn


def draw(rng: np.random.Generator, cell: str, rows: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Which rows are labelled, and the options that say how."""
    design, labels = cell.split()[0], int(cell.split()[1])
    n, labelled = rows["s"].size, np.zeros(rows["s"].size, np.bool_)
    if design == "uniform":
        labelled[rng.choice(n, labels, replace=False)] = True
        return labelled, {"sampled_by": "uniform"}
    if design == "strata":
        for h in range(STRATA):
            there = np.flatnonzero(rows["stratum"] == h)
            labelled[rng.choice(there, min(there.size, labels // STRATA), replace=False)] = True
        return labelled, {"sampled_by": "strata=stratum"}
    drawn = by_size(rng, np.bincount(rows["unit"]), labels)
    return drawn[rows["unit"]], {"sampled_by": "size", "unit": "unit"}


def class_trial(cell: str, rows: dict[str, Any], seed: int | None) -> dict[str, list[float | None]]:
    """Value and interval of each metric for one draw of classes or clusters, or of all."""
    design, count = cell.split()
    _, place, sizes = np.unique(
        rows["kind" if design == "classes" else "cluster"], return_inverse=True, return_counts=True
    )
    every = np.ones(sizes.size, np.bool_)
    drawn = every if seed is None else by_size(np.random.default_rng(seed), sizes, int(count))
    table = pa.table({"c": rows["cluster"], "k": pa.array(rows["kind"], mask=~drawn[place])})
    options: dict[str, Any] = {f"{design}_sampled": "size"}
    found = evaluate(table, cluster="c", classes="k", metrics="classes", threads=1, **options)
    return {one.metric: [one.value, one.ci_lower, one.ci_upper] for one in found.results}


def trial(cell: str, rows: dict[str, Any], seed: int) -> dict[str, list[float | None]]:
    """Value and interval of each metric for one draw."""
    if cell.startswith("cl"):
        return class_trial(cell, rows, seed)
    labelled, design = draw(np.random.default_rng(seed), cell, rows)
    label = pa.array(rows["truth"], mask=~labelled)
    table = pa.table({"label": label, **{name: rows[name] for name in ("s", "unit", "stratum")}})
    threshold = float(np.quantile(rows["s"], 1 - float(cell.split()[2])))
    found = evaluate(table, score="s", metrics="roc_auc", at=f"threshold={threshold!r}", threads=1, **design)
    results = {one.metric.partition("@")[0]: one for one in (*found.counts, *found.results)}
    return {name: [one.value, one.ci_lower, one.ci_upper] for name, one in results.items() if name != "flagged"}


def truths(cell: str, rows: dict[str, Any]) -> dict[str, float]:
    """The values of all labels."""
    if cell.startswith("cl"):
        return {name: float(one[0] or 0) for name, one in class_trial(cell, rows, None).items()}
    threshold = float(np.quantile(rows["s"], 1 - float(cell.split()[2])))
    table = pa.table({"label": rows["truth"], "s": rows["s"]})
    found = evaluate(table, score="s", metrics="roc_auc", at=f"threshold={threshold!r}", threads=1)
    return {one.metric.partition("@")[0]: one.value for one in found.results} | {"prevalence": rows["truth"].mean()}


def line(name: str, truth: float, draws: list[list[float | None]]) -> str:
    """One line of the table."""
    values = np.array([one[0] for one in draws], np.float64)
    ends = np.array([one[1:] for one in draws if one[1] is not None], np.float64).reshape(-1, 2)
    held = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    spread = float(np.nanstd(values))
    width = float(np.median(ends[:, 1] - ends[:, 0])) / (2 * 1.96 * spread) if len(ends) and spread else math.nan
    error = math.sqrt(float(np.nanmean((values - truth) ** 2))) / truth if truth else math.nan
    share = held.mean() if len(held) else math.nan
    null, (low, high) = 100 * (1 - len(ends) / len(draws)), COVERAGE[name.split()[0]]
    off = len(ends) and not (low <= 100 * share <= high and width <= 1.5 and null <= 60)
    return f"{name:34} {100 * share:8.1f} {width:6.2f} {100 * error:6.1f} {null:6.1f} {' !'[bool(off)]}"


def simulate_labels(path: Path, patterns: Sequence[str], draws: int, seconds: float) -> None:
    """Draw for some time, each draw on a line of the file that it goes on from, and print the table."""
    end = time.monotonic() + seconds
    cells = [cell for cell in CELLS if any(fnmatchcase(cell, pattern) for pattern in patterns)]
    done: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for text in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(text)
        done[one.pop("cell")].append(one)
    populations = {cell: population(cell) for cell in cells}
    with path.open("a") as file:
        for number in range(draws):  # every cell in turn, so that all have some draws
            for cell in cells:
                if len(done[cell]) <= number and time.monotonic() < end:
                    done[cell].append(trial(cell, populations[cell], number))
                    file.write(json.dumps({"cell": cell, **done[cell][-1]}) + "\n")
    print(f"{'cell and metric':34} coverage  width  error   null")
    for cell in filter(done.get, cells):
        for name, truth in truths(cell, populations[cell]).items():
            if name in done[cell][0]:
                print(line(f"{cell} {name}", truth, [one[name] for one in done[cell]]), f"  ({len(done[cell])} draws)")


def write(rows: int, folder: Path) -> None:
    """Scores, clusters of four rows, ids, and labels and classes of about 10,000 rows, in eight files."""
    for part in range(8):
        rng, n = np.random.default_rng(part), rows // 8
        score, unit = rng.random(n, np.float32), rng.integers(0, rows // 4, n)
        outside, apart = rng.random(n) >= 1e4 / rows, unit % (rows // 10_000) != 0
        pq.write_table(
            pa.table(
                {
                    "id": np.arange(part * n, part * n + n),
                    "s": score,
                    "label": (rng.random(n) < score).astype(np.int8),
                    "some": pa.array(rng.random(n) < score, mask=outside),
                    "c": unit + (rng.random(n) < 0.1),
                    "kind": unit,
                    "few": pa.array(unit, mask=apart),
                }
            ),
            folder / f"part-{part}.parquet",
        )


def run(name: str, folders: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak memory in GiB of one run on the last folder; others load the loops."""
    score: dict[str, Any] = {"score": "s", "metrics": "roc_auc", "at": "threshold=0.8"}
    pairs: dict[str, Any] = {"cluster": "c", "metrics": "pairwise.fscore"}
    plan: dict[str, Any] = {"id": "id", "score": "s", "label": "some", "for_": "precision@threshold=0.8"}
    runs: dict[str, Callable[[str], object]] = {
        "scores": lambda data: evaluate(data, **score),
        "scores from labels": lambda data: evaluate(data, label="some", sampled_by="uniform", **score),
        "pairs": lambda data: evaluate(data, classes="kind", **pairs),
        "pairs from classes": lambda data: evaluate(data, classes="few", classes_sampled="size", **pairs),
        "scan": lambda data: evaluate(data, sketch=["id", "s"]),
        "plan-labels": lambda data: plan_labels(data, **plan),
    }
    for data in folders:
        start, used = time.perf_counter(), time.process_time()
        runs[name](data)
        took = time.perf_counter() - start, time.process_time() - used
    return *took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(rows: int, repeats: int = 3) -> None:
    """Print the ratios of runs with and without samples; each pair alternates, and the medians count."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [str(Path(folder, name)) for name in ("small", "large")]
        for path, count in zip(folders, (80_000, rows), strict=True):
            Path(path).mkdir()
            write(count, Path(path))
        for pair, most in (
            (("scores", "scores from labels"), 1.15),
            (("pairs", "pairs from classes"), 1.3),
            (("scan", "plan-labels"), 1.5),
        ):
            found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in pair}
            for _ in range(repeats):
                for name in pair:
                    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                        found[name].append(pool.submit(run, name, folders).result())
            plain, sampled = (np.median(found[name], axis=0) for name in pair)
            ratios = sampled / plain
            print(f"{pair[1]:20} {sampled[0]:7.2f} s {sampled[2]:6.2f} GiB; of {pair[0]:7} {ratios[0]:5.2f}", end="")
            print(f" (at most {most}), processor {ratios[1]:5.2f}, memory {ratios[2]:5.2f}", flush=True)
