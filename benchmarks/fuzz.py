"""Random tables, options and store histories against exact fractions; damage to every kind of file of a store.

    python benchmarks/fuzz.py --seconds 60 --seed 1

Prints the numbers of cases and refusals by kind, and every wrong number with its seed; ``--only SEED`` runs that case
again. The status is 1 if there is a wrong number, or an error other than a `StreamevalError`.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

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

from streameval import Store, evaluate, roc_auc_score
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
    """

    cases: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

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


def _random(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - cases must follow from the seed; nothing here is a secret


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
    return Case(table, options, rows, _refuses(rows, options))


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


def _refuses(rows: list[Any], options: dict[str, Any]) -> bool:
    """Whether a policy must refuse these rows."""
    labels = [row[1] for row in rows]
    unlabelled = None in labels and options["unlabelled"] == "error"
    kept = [row for row in rows if row[1] is not None]
    nan = "score" in options and options["nan"] == "error" and any(is_missing(row[0]) for row in kept)
    columns = [3] * ("cluster" in options) + [4] * ("classes" in options)
    named = rows if "classes" in options else kept  # clusters against classes need no labels
    null = bool(columns) and options["nulls"] == "error" and any(row[i] is None for row in named for i in columns)
    return unlabelled or nan or null or not kept


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


def table_case(seed: int, folder: Path, tally: Tally) -> None:
    """One table in memory, in files and in arrays."""
    rng = _random(seed)
    case = drawn(rng)
    expected = {} if case.refuses else truths(case)
    for data in (case.table, written(case, folder / "data", rng)):
        try:
            found = evaluate(data, **case.options)
        except StreamevalError as error:
            tally.refused(error)
            if not case.refuses:
                wide = case.options.get("weight") and "float64" in str(error)
                if not wide:
                    tally.wrong.append(f"seed {seed}: refused without a reason: {error}")
            continue
        if case.refuses:
            tally.wrong.append(f"seed {seed}: not refused: {case.options}")
            continue
        for result in found.results:
            if result.metric in expected and not close(result, expected[result.metric]):
                tally.wrong.append(f"seed {seed}: {result.metric} {result.value!r} for {expected[result.metric]}")
    _arrays(seed, case, expected, tally)


def _arrays(seed: int, case: Case, expected: dict[str, Any], tally: Tally) -> None:
    """The same with the functions for arrays, if they accept the rows."""
    rows = [row for row in case.rows if row[1] is not None]
    plain = "score" in case.options and not any(is_missing(row[0]) for row in rows)
    if case.refuses or not plain or len({row[1] for row in rows}) < 2:
        return
    weight = [float(row[2]) for row in rows] if "weight" in case.options else None
    try:
        value = roc_auc_score(
            [row[1] for row in rows],
            np.array([row[0] for row in rows], case.table["score"].type.to_pandas_dtype()),
            sample_weight=weight,
        )
    except StreamevalError as error:
        tally.refused(error)
        return
    if not agrees(value, expected["roc_auc"]) and expected["roc_auc"] is not None:
        tally.wrong.append(f"seed {seed}: roc_auc_score {value!r} for {float(expected['roc_auc'])!r}")


def history_case(seed: int, folder: Path, tally: Tally) -> None:
    """A random history of a store: its results equal those of the files of the nights that count."""
    rng = _random(seed)
    data, store, kept = folder / "data", Store(folder / "store", threads=1), set[str]()
    base: dict[str, Any] = {"score": ["s", "t"], "cluster": "id", "weight": rng.choice([None, "w"])}
    base |= {"sketch": rng.choice([(), "s"]), "approx": rng.random() < 0.3}
    names = [f"night=2026-01-0{i}" for i in range(1, 5)]
    for name in names:
        _night(rng, data / name)
    store.update(data / names[0], **base)
    kept.add(names[0])
    for _ in range(5):
        action, name = rng.choice(["update", "update", "replace", "remove", "vacuum"]), rng.choice(names)
        if action == "update":
            store.update(data / name)
            kept.add(name)
        elif action == "replace" and name in kept:
            shutil.rmtree(data / name)
            _night(rng, data / name)
            store.replace(data / name)
        elif action == "remove" and name in kept and len(kept) > 1:
            store.remove(name)
            kept.remove(name)
        elif action == "vacuum":
            store.vacuum(grace="0s")
        asked = rng.choice([{}, {"truncate": 0.3}, {"score": "t"}, {"metrics": "roc_auc"}, {"aul_threshold": 2}])
        found = store.evaluate(**asked)
        direct = evaluate([data / name for name in sorted(kept)], **base | asked, threads=1)
        _compare(seed, found, direct, tally, exactly=base["weight"] is None)


def _night(rng: random.Random, place: Path) -> None:
    size = rng.randint(4, 40)
    columns: dict[str, Any] = {"label": [0, 1, *(rng.randint(0, 1) for _ in range(size - 2))]}
    columns |= {name: [rng.choice([0.1, 0.2, 0.5, rng.random()]) for _ in range(size)] for name in "st"}
    columns |= {"id": [rng.randint(0, 9) for _ in range(size)], "w": [rng.random() + 0.1 for _ in range(size)]}
    place.mkdir(parents=True)
    pq.write_table(pa.table(columns), place / "part-0.parquet", row_group_size=rng.choice([3, 50]))


def _compare(seed: int, found: Any, direct: Any, tally: Tally, *, exactly: bool) -> None:
    """Two evaluations of the same rows; estimates apart."""
    if (found.rows, found.positives) != (direct.rows, direct.positives):
        tally.wrong.append(f"seed {seed}: a store has {found.rows} rows for {direct.rows}")
    for one, other in zip(found.results, direct.results, strict=True):
        same = repr(one) == repr(other) or (not exactly and math.isclose(one.value, other.value, rel_tol=1e-12))
        if not same and not one.metric.startswith("quantile"):
            tally.wrong.append(f"seed {seed}: a store has {one} for {other}")


def damage_case(seed: int, folder: Path, tally: Tally) -> None:
    """Damage one bit or the tail of one file of a store: the numbers stay the same, or an error names the file."""
    rng = _random(seed)
    data = folder / "data"
    for i in range(1, 4):
        _night(rng, data / f"night=2026-01-0{i}")
    store = Store(folder / "store", threads=1)
    for i in range(1, 4):
        store.update(data / f"night=2026-01-0{i}", score=["s", "t"], cluster="id", sketch="s")
    store.vacuum(grace="0s")
    whole = store.evaluate().to_json()
    series = store.history("roc_auc", "s").to_json()
    files = sorted(path for path in (folder / "store").rglob("*") if path.is_file())
    for kind in sorted({path.relative_to(folder / "store").parts[0] for path in files}):
        victim = rng.choice([path for path in files if path.relative_to(folder / "store").parts[0] == kind])
        content = victim.read_bytes()
        victim.write_bytes(damaged(content, rng))
        tally.cases[f"damage to {kind}"] += 1
        for what, expected, look in (
            ("evaluate", whole, lambda: Store(folder / "store", threads=1).evaluate().to_json()),
            ("history", series, lambda: Store(folder / "store", threads=1).history("roc_auc", "s").to_json()),
        ):
            try:
                said = look()
            except StreamevalError as error:
                tally.refused(error)
            else:
                if said != expected:
                    tally.wrong.append(f"seed {seed}: {what} believes damage to {victim.relative_to(folder)}")
        shutil.rmtree(folder / "store" / "history" if kind == "history" else folder / "none", ignore_errors=True)
        victim.parent.mkdir(parents=True, exist_ok=True)
        if kind != "history":
            victim.write_bytes(content)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A flipped bit, or a file cut short."""
    if not content or rng.random() < 0.3:
        return content[: rng.randrange(len(content))] if content else b"x"
    at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
    return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


KINDS = {"table": (table_case, 12), "history": (history_case, 1), "damage": (damage_case, 1)}


def run(seconds: float, seed: int, only: int | None = None) -> Tally:
    """Run cases of all kinds for `seconds`; the seed of each follows from `seed`."""
    tally, end, number = Tally(), time.monotonic() + seconds, seed * 1_000_000
    kinds = [kind for kind, (_, often) in KINDS.items() for _ in range(often)]
    while time.monotonic() < end:
        number = number + 1 if only is None else only
        kind = kinds[number % len(kinds)]
        with tempfile.TemporaryDirectory(prefix="streameval-fuzz-") as folder:
            try:
                KINDS[kind][0](number, Path(folder), tally)
            except Exception as error:  # any unexpected error is a finding
                tally.wrong.append(f"seed {number}: {kind}: {type(error).__name__}: {error}")
        tally.cases[kind] += 1
        if only is not None:
            break
    return tally


def main() -> None:
    """Run, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the one case of this seed")
    asked = parser.parse_args()
    tally = run(asked.seconds, asked.seed, asked.only)
    for title, counts in (("cases", tally.cases), ("refusals", tally.refusals)):
        print(f"{title}: {counts.total():,}")
        for kind, count in counts.most_common():
            print(f"  {count:6,}  {kind}")
    print(f"wrong: {len(tally.wrong):,}")
    for text in tally.wrong:
        print(f"  {text}")
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
