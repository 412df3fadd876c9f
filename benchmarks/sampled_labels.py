"""How right estimates from sampled labels are: how often their intervals hold the value of all labels, by simulation.

Run by ``python benchmarks/interval_coverage.py --labels``; ``--only 'uniform 500 *'`` chooses cells. A cell is a
design, its number of labels (of units for ``size``), the prevalence, and the ROC AUC of the score. Its rows are drawn
once, their values are the truth, and each draw labels some of them. A line of the table is a cell and a metric:
*coverage*, the share of the given intervals that hold the truth in %; *width*, their median over 2 · 1.96 standard
deviations of the values; *error*, the root of the mean square error in % of the truth; *null*, the share without an
interval. Metrics with a threshold flag as many rows as are positive.

Designs: ``uniform``; ``strata``, as many labels in each of eight ranges of scores; ``size``, units of Zipf sizes up to
1,000 rows that share their label, drawn in proportion to their rows.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, ndtri

from streameval import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROWS, UNITS, STRATA = 50_000, 20_000, 8
ZIPF = np.arange(1, 1001.0) ** -2.0
CELLS = [
    f"{design} {labels} {prevalence} {area}"
    for design in ("uniform", "strata", "size")
    for labels in (500, 1000, 5000)
    for prevalence in (0.01, 0.1)
    for area in (0.8, 0.95)
]


def population(cell: str) -> dict[str, Any]:
    """All rows of a cell."""
    design, _, prevalence, area = cell.split()
    rng = np.random.default_rng(CELLS.index(cell) % 4)
    sizes = rng.choice(1000, UNITS, p=ZIPF / ZIPF.sum()) + 1 if design == "size" else np.ones(ROWS, np.int64)
    unit, apart = np.repeat(np.arange(sizes.size), sizes), math.sqrt(2) * ndtri(float(area))
    label = (rng.random(sizes.size) < float(prevalence))[unit]
    score = expit(apart * label + rng.normal(size=unit.size) - apart)
    edges = np.quantile(score, 1 - 0.5 ** np.arange(1, STRATA))
    return {"truth": label.astype(np.int8), "s": score, "unit": unit, "stratum": np.searchsorted(edges, score)}


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
    sizes, sure = np.bincount(rows["unit"]), np.zeros(UNITS, np.bool_)
    while (more := ~sure & ((labels - sure.sum()) * sizes >= sizes[~sure].sum())).any():
        sure |= more
    chance = np.where(sure, 1.0, (labels - sure.sum()) / sizes[~sure].sum() * sizes)
    order, drawn = rng.permutation(UNITS), np.zeros(UNITS, np.bool_)
    upto, start = np.cumsum(chance[order]), rng.random()
    drawn[order] = np.floor(upto - start) > np.floor(upto - chance[order] - start)
    return drawn[rows["unit"]], {"sampled_by": "size", "unit": "unit"}


def trial(cell: str, rows: dict[str, Any], seed: int) -> dict[str, list[float | None]]:
    """Value and interval of each metric for one draw."""
    labelled, design = draw(np.random.default_rng(seed), cell, rows)
    label = pa.array(rows["truth"], mask=~labelled)
    table = pa.table({"label": label, **{name: rows[name] for name in ("s", "unit", "stratum")}})
    threshold = float(np.quantile(rows["s"], 1 - float(cell.split()[2])))
    found = evaluate(table, score="s", metrics="roc_auc", at=f"threshold={threshold!r}", threads=1, **design)
    results = {one.metric.partition("@")[0]: one for one in (*found.counts, *found.results)}
    return {name: [one.value, one.ci_lower, one.ci_upper] for name, one in results.items() if name != "flagged"}


def truths(cell: str, rows: dict[str, Any]) -> dict[str, float]:
    """The values of all labels."""
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
    return f"{name:34} {100 * share:8.1f} {width:6.2f} {100 * error:6.1f} {100 * (1 - len(ends) / len(draws)):6.1f}"


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
