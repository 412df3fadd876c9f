"""Quantile sketches: rows per second, and rank error.

Compares `streameval.states.scores.quantile_sketch` with those of the packages tdigest, crick and datasketches that can
be imported, at their settings nearest to compression 1,000. The rank error is that of the estimated quantile among the
folded numbers, over min(q, 1 − q), the worst of q = 0.001 … 0.999.

    python benchmarks/sketch.py --rows 10_000_000
"""

from __future__ import annotations

import argparse
import importlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.states.scores.quantile_sketch import QuantileSketch

if TYPE_CHECKING:
    from collections.abc import Callable

QS = np.array([0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.998, 0.999])
DRAWS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "beta": lambda rng, n: rng.beta(0.3, 3.0, n),
    "10 atoms": lambda rng, n: rng.integers(0, 10, n) / 10,
    "1000 atoms": lambda rng, n: rng.integers(0, 1000, n) / 1000,
    "half zero": lambda rng, n: rng.random(n) * (rng.random(n) < 0.5),
}
SLOW = 20_000  # rows for packages that add numbers one by one


def tdigest_of(values: Any) -> Callable[[Any], Any]:
    """The tdigest package's quantiles."""
    digest = importlib.import_module("tdigest").TDigest()
    digest.batch_update(values.tolist())
    return lambda qs: np.array([digest.percentile(100 * q) for q in qs])


def crick_of(values: Any) -> Callable[[Any], Any]:
    """The crick package's quantiles."""
    digest = importlib.import_module("crick").TDigest(compression=1000)
    digest.update(values)
    return lambda qs: digest.quantile(qs)


def datasketches_of(values: Any) -> Callable[[Any], Any]:
    """The quantiles of datasketches' t-digest."""
    digest = importlib.import_module("datasketches").tdigest_double(1000)
    digest.update(values)
    return lambda qs: np.array([digest.get_quantile(q) for q in qs])


def streameval_of(values: Any) -> Callable[[Any], Any]:
    """Quantiles of streameval's sketch."""
    return QuantileSketch.from_values(values).quantile


PACKAGES = {"streameval": streameval_of, "tdigest": tdigest_of, "crick": crick_of, "datasketches": datasketches_of}


def available() -> dict[str, Callable[[Any], Callable[[Any], Any]]]:
    """The packages that can be imported and fold."""
    found = {}
    for name, make in PACKAGES.items():
        try:
            make(np.arange(10.0))
        except (ImportError, AttributeError, TypeError) as error:
            print(f"{name}: left out ({error})")
        else:
            found[name] = make
    return found


def rank_error(quantile: Callable[[Any], Any], values: Any) -> float:
    """The worst rank error over min(q, 1 − q); an atom covers a range of ranks."""
    ordered, found = np.sort(values), np.asarray(quantile(QS))
    low, high = (np.searchsorted(ordered, found, side) / values.size for side in ("left", "right"))
    return float((np.maximum(0, np.maximum(low - QS, QS - high)) / np.minimum(QS, 1 - QS)).max())


def seconds(make: Callable[[Any], Any], values: Any, repeat: int) -> float:
    """The best of several runs."""
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        make(values)
        best = min(best, time.perf_counter() - start)
    return float(best)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--error-rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    packages = available()

    print(f"\nfolding {options.rows:,} rows on one core, best of {options.repeat}")
    ours = {}
    for dtype in (np.float32, np.float64):
        values = rng.normal(size=options.rows).astype(dtype)
        for name, make in packages.items():
            some = values[:SLOW] if name == "tdigest" else values
            rate = some.size / seconds(make, some, options.repeat)
            ours.setdefault(dtype, rate)
            print(f"{name:14} {dtype.__name__:8} {rate / 1e6:10.3f} M rows/s   ratio {ours[dtype] / rate:10.1f}")

    print(f"\nworst rank error over min(q, 1 - q), {options.error_rows:,} rows (tdigest: {SLOW:,})")
    print(f"{'':14}" + "".join(f"{name:>15}" for name in packages) + f"{'1,000 merges':>15}")
    for kind, draw in DRAWS.items():
        values = draw(rng, options.error_rows)
        errors = []
        for name, make in packages.items():
            some = values[:SLOW] if name == "tdigest" else values
            errors.append(rank_error(make(some), some))
        first, *rest = [QuantileSketch.from_values(part) for part in np.array_split(values, 1000)]
        for part in rest:
            first = first.merge(part)
        errors.append(rank_error(first.quantile, values))
        print(f"{kind:14}" + "".join(f"{100 * error:14.2f}%" for error in errors))


if __name__ == "__main__":
    main()
