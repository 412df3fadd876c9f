"""How a run is made: memory limits that spill nearly everything, threads and files change no number."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.cases import Tally, seeded
from fuzzing.slices import told
from streameval import attribute, evaluate
from streameval.errors import StreamevalError

if TYPE_CHECKING:
    import random
    from pathlib import Path

_MEMORY = ["64KiB", "300KiB", "1MiB", "4MiB", None]
_BY = ["country", "length", "country,length", "hour(sent)", "length=0,2.5"]


def settings_case(seed: int, folder: Path, tally: Tally) -> None:
    """Some thousands of rows with many options, under several limits, threads and divisions into files."""
    rng = seeded(seed)
    table, options = _table(rng), _options(rng)
    files = _written(table, folder / "data", rng)
    again = _written(table, folder / "again", rng)
    exactly = "weight" not in options or not {"ci", "unit", "baseline", "against"} & set(options)
    rows_are_units = ({"ci", "baseline", "against"} & set(options)) and "unit" not in options
    origin = rows_are_units or "approx_agc" in options or options.get("cluster_scope") == "partition"
    expected = _outcome(files, options | {"threads": 1}, exactly=exactly)
    if isinstance(expected, StreamevalError):
        tally.refused(expected)
    for data in (files, files, *([] if origin else [table, again])):
        how = {"memory": rng.choice(_MEMORY), "threads": rng.choice([1, 2, 3])}
        found = _outcome(data, options | how, exactly=exactly)
        if isinstance(found, StreamevalError) and "raise memory" in str(found):
            tally.refused(found)
        elif isinstance(expected, StreamevalError) or isinstance(found, StreamevalError):
            if type(found) is not type(expected):
                tally.wrong.append(f"{how} of {type(data).__name__}: {found!r} for {expected!r} with {options}")
        elif found != expected:
            at = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
            tally.wrong.append(f"{how} of {type(data).__name__}: {at} with {options}")
    _attributed(table, files, rng, tally)


def _outcome(data: Any, options: dict[str, Any], *, exactly: bool) -> Any:
    """The results, for comparison, or the refusal."""
    try:
        results = evaluate(data, **options).results
    except StreamevalError as error:
        return error
    return [(r.metric, str(r.slice), told(r, exactly=exactly)) for r in results]


def _attributed(table: pa.Table, files: Path, rng: random.Random, tally: Tally) -> None:
    """Attribution under a limit; an earlier clustering in place of classes counts the same pairs."""
    asked: dict[str, Any] = {"cluster": "id", "label": "label", "top": rng.choice([1, 20]), "nulls": "drop"}
    asked |= {
        "unlabelled": "drop",
        "aul_threshold": rng.choice([1, 2]),
        "cluster_scope": rng.choice(["global", "partition"]),
    }
    asked |= {"where": "length > 0"} if rng.random() < 0.3 else {}
    made = [
        attribute(files, **asked, classes="kind", threads=1),
        attribute(files, **asked, classes="kind", threads=2, memory=rng.choice(_MEMORY)),
        attribute(files, **asked, changed_from="kind", threads=2),
    ]
    told_of = [[None if t is None else t.to_pylist() for t in one.tables().values()] for one in made]
    if told_of[0] != told_of[1]:
        tally.wrong.append(f"attribution under a limit: {told_of[1]} for {told_of[0]}, {asked}")
    pairs = [{k: v for k, v in one.totals.items() if "pairs" in k} for one in made]
    if pairs[0] != pairs[2]:
        tally.wrong.append(f"attribution of changes: {pairs[2]} for {pairs[0]}, {asked}")
    if asked["cluster_scope"] == "global":
        whole = attribute(table, **asked, classes="kind", threads=1)
        if [None if t is None else t.to_pylist() for t in whole.tables().values()] != told_of[0]:
            tally.wrong.append(f"attribution of a table is not that of its files, {asked}")


def _table(rng: random.Random) -> pa.Table:
    """Columns with hot values, heavy tails and some nulls."""
    size, some = rng.choice([200, 3000, 12_000]), np.random.default_rng(rng.randrange(2**32))
    label = some.random(size) < rng.choice([0.02, 0.3])
    score = some.random(size) ** 3 + 0.2 * label
    score = np.where(some.random(size) < rng.choice([0.0, 0.5, 0.98]), 0.5, score)
    score = np.where(some.random(size) < rng.choice([0.0, 0.0, 0.01]), np.nan, score)
    ids = some.zipf(rng.choice([1.1, 1.5, 3.0]), size) % (1 << 40)
    ids = np.where(some.random(size) < rng.choice([0.0, 0.5]), 7, ids)
    kind = np.where(some.random(size) < 0.8, ids, some.integers(0, 50, size))
    scores = {pa.float32(): score, pa.float64(): score, pa.int32(): np.nan_to_num(score * 1000).astype(int)}
    score_type = rng.choice(list(scores))
    null = some.random(size) < rng.choice([0.0, 0.01])
    texts = rng.choice([pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string())])
    as_ids = ids if pa.types.is_integer(texts) else ids.astype(str)
    return pa.table({
        "label": pa.array(label.astype(np.int8), mask=some.random(size) < rng.choice([0.0, 0.0, 0.05])),
        "score": pa.array(scores[score_type], from_pandas=False).cast(score_type, safe=False),
        "other": pa.array(np.round(score, 2), pa.float32(), from_pandas=False),
        "weight": some.gamma(2.0, 1.0, size),
        "id": pa.array(as_ids, mask=null).cast(texts),
        "kind": pa.array(kind),
        "unit": pa.array(some.integers(0, max(2, size // 9), size)),
        "country": pa.array([f"c{i}" for i in some.zipf(1.4, size) % rng.choice([3, 60])]).dictionary_encode(),
        "length": pa.array(some.integers(-2, 5, size), mask=some.random(size) < 0.1),
        "sent": pa.array(some.integers(0, 10**14, size), pa.timestamp("us")),
    })  # fmt: skip


def _options(rng: random.Random) -> dict[str, Any]:
    """Options of one family, most of those that a run can have."""

    def maybe(share: float, **given: Any) -> dict[str, Any]:
        return given if rng.random() < share else {}

    kind = rng.choice(["score", "score", "sampled", "means", "cluster", "classes", "both"])
    options: dict[str, Any] = maybe(0.5, by=rng.sample(_BY, rng.choice([1, 2]))) if kind not in ("means",) else {}
    options |= maybe(0.8, unlabelled=rng.choice(["drop", "size"])) | maybe(0.2, on_error="skip")
    options |= maybe(0.2, max_slices=rng.choice([4, 70])) if "by" in options else {}
    options |= maybe(0.2, where=rng.choice(["length > 0", "country = 'c1'", "sent IS NOT NULL"]))
    if kind in ("score", "sampled", "means", "both"):
        options |= {"score": rng.choice(["score", ["score", "other"]]), "nan": rng.choice(["drop", "half"])}
        options |= maybe(0.4, weight="weight") if kind == "score" else {}
        options |= maybe(0.3, truncate=[0.1, 50])
        options |= maybe(0.3, at=["fpr=0.05", "recall=0.5", "k=30", "threshold=0.5", "share=0.02"])
    if kind == "score":
        options |= maybe(0.2, metrics="*", clip=1e-6) | maybe(0.2, approx=True)
    if kind == "sampled":
        options |= {"approx_agc": True, "sample": rng.choice([0.3, 1.0]), "quantiles": rng.choice([7, 100])}
        options |= {"sample_seed": rng.choice([0, 5]), "sample_by": rng.choice(["rows", "row_groups"])}
        options |= maybe(0.5, passes=rng.choice([1, 2]))
        options.pop("by", None)
    if kind == "means":
        options |= {"mean_over": rng.choice(["country", "unit", "kind"])}
        options |= {"mean_weight": rng.choice(["rows", "positives", "equal"]), "metrics": ["roc_auc", "precision@k=3"]}
        for name in ("truncate", "at"):
            options.pop(name, None)
    if kind in ("cluster", "classes", "both"):
        options |= {"cluster": "id", "nulls": rng.choice(["drop", "singleton"]), "aul_threshold": rng.choice([1, 3])}
        options |= maybe(0.2, cluster_scope="partition")
    if kind == "classes":
        options |= {"classes": "kind"} | maybe(0.3, assignment_cells=rng.choice([0, 20]))
    if kind not in ("means", "sampled"):
        options |= maybe(0.3, ci=0.9) | maybe(0.3, unit="unit") | maybe(0.2, resample_bins=rng.choice([128, "exact"]))
        options |= {"baseline": "score"} if isinstance(options.get("score"), list) and rng.random() < 0.5 else {}
        intervals = {"ci", "unit", "baseline"} & set(options)
        options |= {"against": "rest"} if "by" in options and intervals and rng.random() < 0.3 else {}
        if not intervals:
            options.pop("resample_bins", None)
    if isinstance(options.get("score"), list) or kind == "both":
        options |= maybe(0.3, common_rows=True)
    return options


def _written(table: pa.Table, folder: Path, rng: random.Random) -> Path:
    """The rows in their order, cut into nights, files and row groups at random."""
    cuts = sorted({0, len(table), *(rng.randint(0, len(table)) for _ in range(rng.choice([0, 1, 5])))})
    for i, (start, stop) in enumerate(pairwise(cuts)):
        place = folder / f"night=2026-01-0{i + 1}"
        place.mkdir(parents=True)
        groups = max(1, math.ceil((stop - start) / rng.choice([1, 3, 10])))
        pq.write_table(table.slice(start, stop - start), place / "part-0.parquet", row_group_size=groups)
    return folder
