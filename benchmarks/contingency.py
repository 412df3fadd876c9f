"""Clustering metrics of a large sparse table: seconds, memory, ratios, and whether the target is met.

    python benchmarks/contingency.py                  # 10⁸ rows; makes 2.2 GB of data in /var/tmp first
    python benchmarks/contingency.py --rows 10000000  # a quick look

The data are simulated: 10⁶ classes, and 7·10⁷ clusters in 10⁸ rows, since the clustering missed seven in ten messages.
Every case runs in a separate process: a warm-up on two files, one call that warms the memory, then `--repeat` calls.
All cases run in each of `--rounds` rounds and the best call of each counts; scikit-learn, and cases that do not measure
time, are called once. The 24 metrics cost little above the state alone, less than the noise between processes, so the
state alone is built again before each of their calls, and the median of the ratios counts. Peers need the extra
``bench`` (DuckDB, scikit-learn). For all timed cases the C library keeps freed memory; ``--fresh-memory`` measures the
other setting. Two cases check correctness: the adjusted mutual information against scikit-learn's, and the adjusted
Rand index of 3.2·10⁹ points against rational arithmetic.
"""

from __future__ import annotations

import json
import resource
import time
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from cases import case_options, measured
from data import whole

if TYPE_CHECKING:
    from collections.abc import Callable

FIGURE = Path(__file__).resolve().parent / "figures" / "contingency.png"
COLUMNS = {"cluster": "cluster", "classes": "campaign"}


def make(folder: Path, rows: int, files: int) -> list[str]:
    """Simulate the data unless they are there; returns the files."""
    from streameval.simulation import simulate

    options = {"rows": rows, "partitions": files, "singletons": 0.0, "mean": 100, "missed": 0.69}
    path = whole(folder / f"classes-{rows}-{files}", lambda path: simulate(path, **options))
    return sorted(map(str, path.rglob("*.parquet")))


def build(files: list[str]) -> None:
    """The state alone."""
    from streameval import scan
    from streameval.engine.fold import Plan
    from streameval.engine.threads import ThreadEngine
    from streameval.states.contingency.counts import ContingencySpec

    engine = ThreadEngine.start()
    spec = ContingencySpec(COLUMNS["classes"], COLUMNS["cluster"])
    found = scan.plan(files, [*spec.columns], threads=engine.threads)
    engine.read(found.pieces, found.rows, Plan(found.schema, None, None, (spec,)))


def ours(metrics: list[str] | None = None, **options: Any) -> Callable[[list[str]], Any]:
    """A call of streameval; by default all metrics of classes except the matching."""

    def call(files: list[str]) -> Any:
        from streameval import evaluate
        from streameval.metrics.contingency.clustering import CLUSTERING_METRICS

        asked = metrics or [metric.name for metric in CLUSTERING_METRICS]
        return evaluate(files, **COLUMNS, metrics=asked, **options).value(asked[0])

    return call


def duckdb_cells(files: list[str]) -> Any:
    """Count the cells."""
    import duckdb

    query = "SELECT count(*), max(n) FROM (SELECT count(*) AS n FROM read_parquet($1) GROUP BY campaign, cluster)"
    return duckdb.execute(query, [files]).fetchone()


def labels() -> tuple[np.ndarray, np.ndarray]:
    """10⁶ rows of 1,000 classes and 10,000 clusters, half of them related."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 1_000, 1_000_000)
    related = classes * 10 + rng.integers(0, 10, classes.size)
    return classes, np.where(rng.random(classes.size) < 0.5, related, rng.integers(0, 10_000, classes.size))


def our_ami(_: list[str]) -> float:
    """Adjusted mutual information of labels in memory."""
    from streameval import adjusted_mutual_info_score

    return adjusted_mutual_info_score(*labels(), average_method="arithmetic")


def sklearn_ami(_: list[str]) -> float:
    """The same by scikit-learn."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(*labels()))


def exact_ari(_: list[str]) -> float:
    """Error of the adjusted Rand index of 3.2·10⁹ points, whose pair counts overflow 64 bits, against rationals."""
    from streameval import ContingencyTable

    rng = np.random.default_rng(1)
    counts = rng.integers(1, 1_000_000, (40, 80))
    counts[0, 0] += 3_200_000_000 - counts.sum()
    cells, rows, cols, total = (
        sum(Fraction(int(n) * (int(n) - 1), 2) for n in sizes)
        for sizes in (counts.ravel(), counts.sum(axis=1), counts.sum(axis=0), [counts.sum()])
    )
    expected = rows * cols / total
    want = (cells - expected) / ((rows + cols) / 2 - expected)
    return abs(ContingencyTable(rows=counts).adjusted_rand_index() - float(want))


CASES: dict[str, Callable[[list[str]], Any]] = {
    "state alone": build,
    "24 metrics": ours(),
    "assignment score": ours(["assignment_score"]),
    "24 metrics in 1 GiB": ours(memory="1GiB"),
    "assignment score in 1 GiB": ours(["assignment_score"], memory="1GiB"),
    "DuckDB: GROUP BY": duckdb_cells,
    "AMI in memory": our_ami,
    "scikit-learn: AMI": sklearn_ami,
    "ARI of 3.2·10⁹ points": exact_ari,
}
BESIDE = {"24 metrics": "state alone"}  # a case, and the case called before each of its calls
PEAK = {"24 metrics in 1 GiB", "assignment score in 1 GiB"}
ONCE = {"scikit-learn: AMI", "ARI of 3.2·10⁹ points"} | PEAK
GIB = 2**30

# what, its value, target, whether it must be at least (or else at most) the target
Found = dict[str, dict[str, Any]]
TARGETS: list[tuple[str, Callable[[Found], float], float, bool]] = [
    ("DuckDB against the state alone", lambda f: _ratio(f, "DuckDB: GROUP BY", "state alone"), 4, True),
    ("24 metrics against the state alone", lambda f: median(f["24 metrics"]["ratios"]), 1.5, False),
    ("scikit-learn against AMI", lambda f: _ratio(f, "scikit-learn: AMI", "AMI in memory"), 50, True),
    ("peak against the budget, 24 metrics", lambda f: f["24 metrics in 1 GiB"]["peak"] / GIB, 1.25, False),
    ("peak against the budget, assignment", lambda f: f["assignment score in 1 GiB"]["peak"] / GIB, 1.25, False),
    (
        "AMI off scikit-learn's",
        lambda f: abs(f["AMI in memory"]["value"] - f["scikit-learn: AMI"]["value"]),
        1e-9,
        False,
    ),
    ("ARI off rational arithmetic", lambda f: f["ARI of 3.2·10⁹ points"]["value"], 1e-15, False),
]


def _ratio(found: Found, above: str, below: str) -> float:
    return found[above]["seconds"] / found[below]["seconds"]


def measure(case: str, files: list[str], repeat: int) -> dict[str, Any]:
    """Times of a case after a warm-up on two files, ratios to the case called before, its value, and the peak."""
    call, before, times, ratios, value = CASES[case], CASES.get(BESIDE.get(case, "")), [], [], None
    if case not in PEAK:
        call(files[:2])
    for number in range(1 if case in ONCE else repeat + 1):
        state = _timed(before, files)[0] if before else 0.0
        seconds, value = _timed(call, files)
        times.append(seconds)
        if before and number:
            ratios.append(seconds / state)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"all": times, "ratios": ratios, "peak": peak, "value": value}


def _timed(call: Callable[[list[str]], Any], files: list[str]) -> tuple[float, Any]:
    start = time.perf_counter()
    value = call(files)
    return time.perf_counter() - start, value


def draw(found: Found, rows: int, path: Path) -> None:
    """Bars of seconds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    cases = [case for case in found if case not in ONCE - {"scikit-learn: AMI"}][::-1]
    peers = ["C1" if case.startswith(("DuckDB", "scikit-learn")) else "C0" for case in cases]
    bars = ax.barh(cases, [found[case]["seconds"] for case in cases], color=peers)
    ax.bar_label(bars, fmt="%.2f", padding=3)
    ax.set_xscale("log")
    ax.margins(x=0.1)
    ax.set_xlabel(f"seconds ({rows:,} rows; AMI: 10⁶ rows, 1,000 × 10,000 labels)")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run every case and print the tables."""
    parser = case_options(__doc__)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    given = parser.parse_args()
    files = make(given.data, given.rows, given.files)
    if given.case:
        print(json.dumps(measure(given.case, files, given.repeat)))
        return
    found = measured(given.only or CASES, given, once=ONCE, fresh=PEAK)
    print(
        f"{given.rows:,} rows, {given.files} files; best of {given.rounds} rounds of {given.repeat} after a warm-up\n"
    )
    print("| case | seconds | all | peak MiB |\n|---|---|---|---|")
    for case, result in found.items():
        times = " ".join(f"{t:.2f}" for t in result["all"])
        print(f"| {case} | {result['seconds']:.2f} | {times} | {result['peak'] / 2**20:,.0f} |")
        if result["ratios"]:
            ratios = " ".join(f"{ratio:.2f}" for ratio in result["ratios"])
            print(f"| {case} against {BESIDE[case]}, call by call | | {ratios} | |")
    print("\n| what | measured | target | met |\n|---|---|---|---|")
    for what, value, target, least in TARGETS:
        try:
            number = value(found)
        except KeyError:  # a case that was not run, or failed
            continue
        met = number >= target if least else number <= target
        print(f"| {what} | {number:.3g} | {'≥' if least else '≤'} {target:g} | {'yes' if met else 'no'} |")
    if not given.only:
        draw(found, given.rows, given.figure)


if __name__ == "__main__":
    main()
