"""Fill the cache of compiled loops, when an image is built: ``python -m streameval.warm``.

Loops are compiled on first use and kept next to the package, or else in the user's own cache folder
(`streameval.kernels.jit`). This evaluates a small table in many ways that together use the common loops, those of
slices, intervals, calibration, attribution and spilled states included.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval.evaluation import evaluate
from streameval.evaluation.attribution import attribute
from streameval.kernels.jit import is_cached
from streameval.posix import open_streams

_ROWS = 300_000  # so that hot keys are learned as well
_LITTLE = "1MiB"  # of memory, so that states are spilled and heavy buckets are cut into parts


def warm(rows: int = _ROWS) -> None:
    """Evaluate scores, clusters, and clusters against classes of every kind of column, whole and in slices."""
    table = _table(rows)
    _scores(table)
    _clusters(table)
    _files(table)
    subjects: list[dict[str, Any]] = [{"score": "f4"}, {"cluster": "cluster"}]
    subjects += [{"cluster": "cluster", "classes": "campaign"}]
    for columns in subjects:
        evaluate(table, **columns, memory=_LITTLE)
        evaluate(table, **columns, memory=_LITTLE, by="country")
    attribute(table, cluster="cluster", classes="campaign", label="label")
    attribute(table, score="f4", by="country", ci=0.95)


def _table(rows: int) -> pa.Table:
    """Columns of all kinds."""
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
        "share": np.minimum(score, 1.0),
        "narrow": np.minimum(score, 1.0).astype(np.float32),
        "cluster": ids[0],
        "campaign": np.where(rng.random(rows) < 0.9, ids[0], ids[1]),
        "text": pa.array(few),
        "coded": pa.array(few).dictionary_encode(),
        "country": pa.array(rng.integers(0, 60, rows).astype(str)).dictionary_encode(),
        "length": rng.integers(0, 100, rows),
    }
    return pa.table(columns)


def _files(table: pa.Table) -> None:
    """What decodes columns of few distinct numbers of each width."""
    few = {f"few{bits}": table["length"].cast(kind) for bits, kind in ((32, pa.float32()), (64, pa.float64()))}
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table({"label": table["label"], **few}), f"{folder}/few.parquet")
        evaluate(folder, score=list(few), metrics="roc_auc")


def _scores(table: pa.Table) -> None:
    """Everything that reads scores."""
    scores = ["f4", "f8", "i8"]
    evaluate(table, score=scores, truncate=[0.1, 100], at=["fpr=0.01", "recall=0.9", "k=1000", "threshold=0.5"])
    evaluate(table, score=scores, metrics="roc_auc")
    evaluate(table, score="share", metrics="*", truncate=0.1)
    evaluate(table, score="narrow", metrics="calibration")
    evaluate(table, score=scores[:2], weight="weight", at="fpr=0.01", truncate=0.1)
    evaluate(table, score="share", weight="weight", metrics="*")
    evaluate(table, score=scores[:2], approx=True)
    evaluate(table, score="f4", approx_agc=True, sample=0.1)
    for columns in (["country"], ["length"], ["country,length"]):
        evaluate(table, score=scores, by=columns, metrics=["roc_auc", "average_precision"])
    for weight in (None, "weight"):
        evaluate(table, score=scores[:2], weight=weight, by=["country", "text"])
        evaluate(table, score=scores[:2], weight=weight, ci=0.95, by="length=50", at="fpr=0.01", baseline="f4")
        evaluate(table, score=scores[:2], weight=weight, unit="campaign", baseline="f4")
    for groups in ("campaign", "text"):
        evaluate(table, score=scores[:2], mean_over=groups)


def _clusters(table: pa.Table) -> None:
    """Everything that reads clusters, alone or against classes."""
    columns = ["cluster", "text", "coded"]
    evaluate(table, cluster=columns)
    evaluate(table, cluster=columns, by=["country", "length"])
    evaluate(table, cluster=columns[:2], unit="campaign", baseline="cluster")
    evaluate(table, score="f4", sketch="f8", cluster="cluster", unit="text")
    for cluster, classes in (("cluster", "campaign"), ("text", "cluster")):
        evaluate(table, cluster=cluster, classes=classes)
        evaluate(table, cluster=cluster, classes=classes, metrics="v_measure")
        evaluate(table, cluster=cluster, classes=classes, by="country")
        evaluate(table, cluster=cluster, classes=classes, ci=0.95)


def main() -> int:
    """Fill the cache; returns 1 if there is nowhere to write it."""
    open_streams()
    if sys.argv[1:]:
        sys.stdout.write(f"{__doc__}\nWithout a writable folder, set NUMBA_CACHE_DIR to one.\n")
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    start = time.perf_counter()
    warm()
    if not is_cached():
        sys.stderr.write("no writable folder for compiled code; set NUMBA_CACHE_DIR\n")
        return 1
    sys.stderr.write(f"compiled in {time.perf_counter() - start:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
