"""Random tables with random options, and their metrics by definition."""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from contingency_truth import clustering_truth
from truth import (
    agrees,
    curve_truth,
    gain_truth,
    groups_auc,
    groups_of,
    is_missing,
    lift_truth,
    pairs_auc,
    point_truth,
    size_auc_truth,
)

if TYPE_CHECKING:
    from pathlib import Path

    from streameval.errors import StreamevalError

SCORES = {
    pa.float32(): [0.0, -0.0, 0.125, 0.5, 0.75, 1.0, 3e38, -1e-40, math.inf, -math.inf],
    pa.float64(): [0.0, -0.0, 0.1, 0.5, 0.1 + 2**-54, 1.0, 1e308, 5e-324, math.inf, -math.inf],
    pa.int32(): [-(2**31), -1, 0, 1, 7, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1],
    pa.uint64(): [0, 1, 2**53, 2**53 + 1, 2**64 - 1],
}
IDS: dict[Any, Any] = {
    pa.int64(): int,
    pa.uint8(): int,
    pa.string(): "c{}".format,
    pa.large_string(): "é{}".format,
    pa.binary(): lambda i: bytes([0, i]),
    pa.dictionary(pa.int32(), pa.string()): "d{}".format,
}
LABELS: list[tuple[Any, list[Any], Any]] = [  # type, negative and positive values, pos_label
    (pa.bool_(), [False, True], None),
    (pa.int8(), [0, 1], None),
    (pa.float64(), [0.0, 1.0], None),
    (pa.string(), ["ham", "spam"], "spam"),
    (pa.binary(), [b"ham", b"spam"], b"spam"),
    (pa.int64(), [1, 2], 2),
]
TRUNCATE, AT = [0.3, 3], ["fpr=0.25", "recall=0.6", "k=4"]


@dataclass
class Tally:
    """Outcomes.

    Attributes
    ----------
    cases : number of cases by kind
    refusals : number of refusals by kind of error and message, without names and numbers
    wrong : wrong results, each with its seed
    files : number of files with edited footers
    """

    cases: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    files: int = 0

    def refused(self, error: StreamevalError) -> None:
        """Count a refusal."""
        words = re.sub(r"\S*[/\\]\S*|'[^']*'|-?\d\S*", "…", str(error))
        self.refusals[f"{type(error).__name__}: {words[:90]}"] += 1


@dataclass
class Case:
    """A table with the options that evaluate it.

    Attributes
    ----------
    table : columns label, score, id, kind, weight
    options : of `evaluate`
    rows : list of (score, label, weight, cluster, class), as the options read them; None for missing values
    refuses : whether a policy must refuse the table
    """

    table: pa.Table
    options: dict[str, Any]
    rows: list[tuple[Any, Any, Fraction, Any, Any]]
    refuses: bool


def seeded(seed: int) -> random.Random:
    """Random numbers that follow from the seed."""
    return random.Random(seed)  # noqa: S311 - draws test cases that a seed reproduces; nothing is secret


def drawn(rng: random.Random) -> Case:
    """A random case."""
    size = rng.choice([2, 3, 5, 9, 30])
    kind, values = rng.choice(list(SCORES.items()))
    label_type, sides, pos_label = rng.choice(LABELS)
    id_type, class_type = rng.choice(list(IDS)), rng.choice(list(IDS))
    missing = rng.random() < 0.25
    values = rng.sample(values, rng.randint(1, len(values))) + ([None] if missing else [])
    values += [math.nan] if missing and pa.types.is_floating(kind) else []
    labels = [rng.randint(0, rng.choice([0, 1, 1, 1])) if rng.random() > missing / 50 else None for _ in range(size)]
    scores = [rng.choice(values) for _ in range(size)]
    span = rng.choice([0, 3, 300])
    weights = [rng.choice([0.0, 1.0]) if not span else math.ldexp(rng.randint(1, 9), rng.randint(-span, span))
               for _ in range(size)]  # fmt: skip
    ids, kinds = ([rng.randint(0, 4) if rng.random() > missing / 9 else None for _ in range(size)] for _ in range(2))
    table = pa.table({
        "label": pa.array([None if x is None else sides[x] for x in labels], label_type),
        "score": pa.array(np.array(scores, np.float32), kind, from_pandas=False)
        if kind == pa.float32() and None not in scores
        else pa.array([None if x is None else _as(x, kind) for x in scores], kind),
        "id": pa.array([None if x is None else IDS[id_type](x) for x in ids], id_type),
        "kind": pa.array([None if x is None else IDS[class_type](x) for x in kinds], class_type),
        "weight": pa.array(weights, pa.float64()),
    })  # fmt: skip
    options = _options(rng, pos_label)
    weighted = "weight" in options
    rows = [
        (_as(s, kind), y, Fraction(w) if weighted else Fraction(1), c, k)
        for s, y, w, c, k in zip(scores, labels, weights, ids, kinds, strict=True)
    ]
    return Case(table, options, rows, refuses(rows, options))


def _as(score: Any, kind: Any) -> Any:
    """A score as stored in its column."""
    return float(np.float32(score)) if kind == pa.float32() and score is not None else score


def _options(rng: random.Random, pos_label: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"unlabelled": rng.choice(["error", "drop"]), "threads": rng.choice([1, 2])}
    wanted = rng.choice([("score",), ("cluster",), ("score", "cluster"), ("cluster", "classes")])
    if "score" in wanted:
        options |= {"score": "score", "nan": rng.choice(["error", "drop", "half"]), "approx": rng.random() < 0.2}
        options |= {"truncate": TRUNCATE, "at": AT} if rng.random() < 0.5 else {}
        options |= {"weight": "weight"} if rng.random() < 0.4 else {}
    if "cluster" in wanted:
        options |= {"cluster": "id", "aul_threshold": rng.choice([1, 2])}
        options |= {"nulls": rng.choice(["error", "drop", "singleton"])}
    if "classes" in wanted:
        options |= {"classes": "kind"}
    if pos_label is not None:
        options["pos_label"] = pos_label
    return options


def refuses(rows: list[Any], options: dict[str, Any]) -> bool:
    """Whether a policy must refuse these rows."""
    labels = [row[1] for row in rows]
    unlabelled = None in labels and options["unlabelled"] == "error"
    kept = [row for row in rows if row[1] is not None]
    nan = "score" in options and options["nan"] == "error" and any(is_missing(row[0]) for row in kept)
    columns = [3] * ("cluster" in options) + [4] * ("classes" in options)
    named = rows if "classes" in options else kept  # clusters against classes need no labels
    null = bool(columns) and options["nulls"] == "error" and any(row[i] is None for row in named for i in columns)
    return unlabelled or nan or null or not rows


def truths(case: Case) -> dict[str, Any]:
    """Metrics of a case by their definitions; metrics without a definition here are left out."""
    options, found = case.options, {}
    rows = [row for row in case.rows if row[1] is not None]
    if "score" in options:
        half = options["nan"] == "half" and any(is_missing(row[0]) for row in rows)
        numbers = [row[:3] for row in rows if half or not is_missing(row[0])]
        if half:
            found["roc_auc"] = pairs_auc(numbers, half=True)
        else:
            found |= score_truths(numbers)
    if "cluster" in options:
        found |= cluster_truths(case.rows if "classes" in options else rows, options)
    return found


def score_truths(rows: list[Any]) -> dict[str, Any]:
    """Metrics of a score."""
    groups, counts = groups_of(rows), Counter(score for score, *_ in rows)
    points = [counts[score] for score in sorted(counts, reverse=True)]
    found: dict[str, Any] = curve_truth(groups) | {"roc_auc": groups_auc(groups)}
    for cut in (1, *TRUNCATE):
        suffix = "" if cut == 1 else f"@{cut:g}"
        found[f"agc{suffix}"] = gain_truth(groups, points, cut, ratio=False)
        found[f"agc_ratio{suffix}"] = gain_truth(groups, points, cut, ratio=True)
    for text, name in zip(AT, ("tpr", "precision", "precision"), strict=True):
        kind, at = text.split("=")
        found[f"{name}@{text}"] = point_truth(groups, points, kind, float(at))
    return found


def cluster_truths(rows: list[Any], options: dict[str, Any]) -> dict[str, Any]:
    """Metrics of clusters, and of clusters against classes."""
    alone = options["nulls"] == "singleton"
    named = [
        (y, ("null", i) if c is None and alone else c, ("null", i) if k is None and alone else k)
        for i, (_, y, _, c, k) in enumerate(rows)
    ]
    if "classes" in options:
        cells = Counter((k, c) for _, c, k in named if c is not None and k is not None)
        sides = {k for k, _ in cells}, {c for _, c in cells}
        trivial = len(sides[0]) == len(sides[1]) == 1 or not cells
        known = {} if trivial else clustering_truth(dict(cells))
        return {name: truth for name, truth in known.items() if truth is not None}  # 0/0 is defined by convention
    clusters: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for y, c, _ in named:
        if c is not None:
            clusters[c][0] += 1
            clusters[c][1] += y
    pairs = [(size, positives) for size, positives in clusters.values()]
    if not pairs:
        return {}
    return {"aul": lift_truth(pairs, options["aul_threshold"]), "roc_auc_by_size": size_auc_truth(pairs)}


def written(case: Case, folder: Path, rng: random.Random) -> Path:
    """The rows dealt to nights, files and row groups at random."""
    rows = rng.sample(range(case.table.num_rows), case.table.num_rows)
    nights = rng.randint(1, 4)
    for night in range(nights):
        part = case.table.take(pa.array(rows[night::nights], pa.int64()))
        place = folder / f"night=2026-01-0{night + 1}"
        place.mkdir(parents=True)
        pq.write_table(part, place / "part-0.parquet", row_group_size=rng.choice([1, 2, 100]))
    return folder


def judged(result: Any, truth: Any) -> bool:
    """Whether a result equals the truth, or its certain interval contains the truth."""
    if truth is None:
        return math.isnan(result.value)
    near = float(mpmath.mpf(truth.numerator) / truth.denominator) if isinstance(truth, Fraction) else float(truth)
    if result.exact:
        return agrees(result.value, truth) if isinstance(truth, Fraction) else math.isclose(
            result.value, near, rel_tol=1e-10, abs_tol=1e-11
        ) or math.isclose(result.value, near, rel_tol=1e-12, abs_tol=1e-12)  # fmt: skip
    if math.isnan(result.value):
        return bool(result.reason)
    slack = 1e-12 * max(1.0, abs(near))
    return bool(result.lower - slack <= near <= result.upper + slack)


def close(result: Any, truth: Any) -> bool:
    """`judged`, where differences of areas near 0 lose digits."""
    small = truth is not None and not math.isnan(result.value) and abs(result.value - float(truth)) < 1e-12
    return bool(small) or judged(result, truth)
