"""Fill the cache of compiled loops, when an image is built: ``python -m streameval.warm``.

Loops are compiled on first use and kept next to the package, or else in the user's own cache folder
(`streameval.kernels.jit`). This evaluates a few small tables that together use the common ones.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from streameval.evaluation import evaluate
from streameval.kernels.jit import is_cached

__all__ = ["warm"]

_ROWS = 300_000  # so that hot keys are learned as well


def warm(rows: int = _ROWS) -> None:
    """Evaluate scores, clusters, and clusters against classes of every kind of column."""
    rng = np.random.default_rng(0)
    label, ids = rng.random(rows) < 0.3, rng.zipf(1.3, (2, rows))
    score = np.where(rng.random(rows) < 0.3, 0.5, rng.random(rows) + 0.3 * label)
    few = np.minimum(ids[0], 1000).astype(str)
    columns = {
        "label": label.astype(np.int8),
        "weight": rng.random(rows),
        "f4": score.astype(np.float32),
        "f8": score,
        "i8": (score * 1000).astype(np.int64),
        "cluster": ids[0],
        "campaign": np.where(rng.random(rows) < 0.9, ids[0], ids[1]),
        "text": pa.array(few),
        "coded": pa.array(few).dictionary_encode(),
    }
    table = pa.table(columns)
    evaluate(table, score=["f4", "f8", "i8"], cluster=["cluster", "text", "coded"])
    evaluate(table, score=["f4", "f8"], weight="weight")
    evaluate(table, score=["f4", "f8"], approx=True)
    for cluster, classes in (("cluster", "campaign"), ("text", "cluster")):
        evaluate(table, cluster=cluster, classes=classes)


def main() -> int:
    """Fill the cache; returns 1 if there is nowhere to write it."""
    start = time.perf_counter()
    warm()
    if not is_cached():
        sys.stderr.write("no folder to keep compiled code in: set NUMBA_CACHE_DIR\n")
        return 1
    sys.stderr.write(f"compiled in {time.perf_counter() - start:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
