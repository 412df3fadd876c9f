"""Frozen cases: a configuration is plain JSON; running it gives plain values, of which some are inference.

    python tests/frozen/frozen_cases.py --write values|inference

writes what the cases give now. `values` are rewritten only for a value that was wrong, which the commit names;
`inference` is rewritten in a commit of its own if a method of inference changes on purpose.
"""

import argparse
import json
import lzma
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from frozen_data import make_table, write_nights

import streameval
from streameval import Accumulator, Store, attribute, evaluate, quantile_sketch
from streameval.errors import StreamevalError

PLACE = Path(__file__).parent
INFERENCE = {
    "stderr", "ci_lower", "ci_upper", "ci_level", "ci_reason", "unit", "units", "effective_units", "blocks", "p_value",
    "verdict", "outcome", "freedom", "unit_hash", "slices_below", "slices_selected",
}  # fmt: skip
_TODAY = {"streameval", "judged", "partition_digest", "digest", "source", "options", "version", "time"}


def run_case(case: dict[str, Any], folder: Path) -> Any:
    """Results of a case as plain values; a refusal is the name of its error."""
    table = make_table(**case["data"])
    try:
        return _plain(_VERBS[case["verb"]](case, table, folder))
    except StreamevalError as error:
        return {"refused": type(error).__name__}


def split_inference(plain: Any, path: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Leaves by their path: those that are values, and those that are inference.

    Examples
    --------
    >>> split_inference([{"value": 0.5, "stderr": 0.1}])
    ({'/0/value': 0.5}, {'/0/stderr': 0.1})
    """
    if not isinstance(plain, dict | list):
        return {path: plain}, {}
    values: dict[str, Any] = {}
    inference: dict[str, Any] = {}
    for name, inner in plain.items() if isinstance(plain, dict) else enumerate(plain):
        inner_values, inner_inference = split_inference(inner, f"{path}/{name}")
        inference |= inner_inference
        (inference if name in INFERENCE else values).update(inner_values)
    return values, inference


def load(name: str) -> Any:
    """A frozen file: ``values`` has a list of (case, values), ``inference`` a list in the same order."""
    return json.loads(lzma.decompress((PLACE / f"{name}.json.xz").read_bytes()))


def _evaluate(case: dict[str, Any], table: pa.Table, folder: Path) -> Any:
    data = write_nights(table, folder / "data", case["nights"]) if case["nights"] else table
    evaluation = evaluate(data, **case["options"])
    return [evaluation.to_dict(), _curves(evaluation)]


def _curves(evaluation: Any) -> Any:
    """Lengths and areas of the curves, and their values at nine points."""
    summary = {}
    for name in ("roc", "precision_recall", "gain", "lift", "reliability", "corp"):
        for column in evaluation.columns("clusters" if name == "lift" else "scores"):
            try:
                curve = evaluation.curve(name, column)
            except StreamevalError as error:
                summary[f"{name} {column}"] = type(error).__name__
                continue
            at = np.linspace(0, len(curve.x) - 1, 9).astype(int) if len(curve.x) else []
            summary[f"{name} {column}"] = [len(curve.x), curve.area, list(curve.x[at]), list(curve.y[at])]
    return summary


def _attribute(case: dict[str, Any], table: pa.Table, folder: Path) -> Any:
    data = write_nights(table, folder / "data", case["nights"]) if case["nights"] else table
    attribution = attribute(data, **case["options"])
    tables = {name: None if rows is None else rows.to_pylist() for name, rows in attribution.tables().items()}
    return [dict(attribution.totals), tables]


def _sketch(case: dict[str, Any], table: pa.Table, folder: Path) -> Any:
    data = write_nights(table, folder / "data", case["nights"]) if case["nights"] else table
    # one thread: sums of centroids depend on the order in which sketches are merged
    sketch = quantile_sketch(data, threads=1, **case["options"])
    return [sketch.quantile(q / 8) for q in range(9)]


def _accumulate(case: dict[str, Any], table: pa.Table, folder: Path) -> Any:
    half = len(table) // 2
    first, second = (Accumulator(**case["options"]) for _ in range(2))
    for start in range(0, half, max(1, half // 3)):
        first.update(table.slice(start, min(max(1, half // 3), half - start)))
    second.update(table.slice(half))
    second.save(folder / "saved")
    merged = first.merge(Accumulator.load(folder / "saved"))
    return merged.result().to_dict()


def _store(case: dict[str, Any], table: pa.Table, folder: Path) -> Any:
    """A history of a store: each step is the name of a verb and its arguments; looks are recorded."""
    data = write_nights(table, folder / "data", case["nights"])
    store, seen = Store(folder / "store", threads=1), []
    for verb, arguments in case["steps"]:
        given = {name: str(data / value) if name == "data" else value for name, value in arguments.items()}
        try:
            result = getattr(store, verb)(**given)
        except StreamevalError as error:
            seen.append({"refused": type(error).__name__})
            continue
        if verb in ("evaluate", "history", "check"):
            seen.append(result.to_dict())
        elif verb == "diagnose":
            seen.append([diagnosis.to_dict() for diagnosis in result])
        elif verb == "attribute":
            seen.append({name: None if t is None else t.to_pylist() for name, t in result.tables().items()})
    return seen


def _arrays(case: dict[str, Any], table: pa.Table, _: Path) -> Any:
    """Functions on arrays in memory: what they return, by their names."""
    y, score = (table[name].to_numpy() for name in ("label", "score"))
    weights = table["weight"].to_numpy() if case["weighted"] else None
    ids, kinds = table["id"].to_pylist(), table["kind"].to_pylist()
    calls = {
        "roc_auc": lambda: streameval.roc_auc_score(y, score, weights),
        "average_precision": lambda: streameval.average_precision_score(y, score, sample_weight=weights),
        "agc": lambda: [streameval.agc_score(y, score, sample_weight=weights, truncate=t) for t in (1, 0.1, 30)],
        "dist_auc": lambda: streameval.dist_auc(score[y == 0], score[y == 1]),
        "max_informedness": lambda: streameval.RocCurve.from_labels(y, score).max_informedness(),
        "aul": lambda: [streameval.LiftCurve.from_labels(y, ids, bool).aul_score(t) for t in (1, 3)],
        "metrics": lambda: {
            name: getattr(streameval.ClusteringMetrics.from_labels(kinds, ids), name)()
            for name in ("adjusted_rand_index", "adjusted_mutual_info", "bc_metrics", "muc_scores", "entropy_scores",
                         "talburt_wang_index", "vi_distance", "split_join_similarity", "fowlkes_mallows", "g_score")
        },
    }  # fmt: skip
    return {name: call() for name, call in calls.items() if name in case["calls"]}


_VERBS = {
    "evaluate": _evaluate, "attribute": _attribute, "sketch": _sketch, "accumulate": _accumulate, "store": _store,
    "arrays": _arrays,
}  # fmt: skip


def _plain(value: Any) -> Any:
    """Values that JSON holds to the last bit, without what differs from run to run."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items() if name not in _TODAY}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | int) else str(value)


def _write(names: list[str]) -> None:
    frozen: dict[str, list[Any]] = {"values": [], "inference": []}
    for case, _ in load("values"):
        with tempfile.TemporaryDirectory() as folder:
            values, inference = split_inference(run_case(case, Path(folder)))
        frozen["values"].append((case, values))
        frozen["inference"].append(inference)
    for name in names:
        text = json.dumps(frozen[name], ensure_ascii=False, separators=(",", ":"))
        (PLACE / f"{name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", choices=["values", "inference"], nargs="+", required=True)
    _write(parser.parse_args().write)
