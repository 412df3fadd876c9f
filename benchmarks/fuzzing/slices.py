"""Slices, filters, means over groups and intervals: against the rows alone, and exact fractions."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from truth import curve_truth, groups_auc, groups_of, is_missing, point_truth

from fuzzing.cases import Case, Tally, close, drawn, refuses, seeded, truths, written
from streameval import evaluate
from streameval.errors import StreamevalError
from streameval.states.blocks import blocks_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

_SENT = [dt.datetime(2026, 1, 31, 23, 59), dt.datetime(2026, 2, 1), dt.datetime(1969, 12, 31, 22), None]
COLUMNS: dict[str, tuple[list[Any], list[Any]]] = {  # types and values of columns to slice by
    "country": (
        [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
        ["DE", "FR", "", "null", "é", None],
    ),
    "length": ([pa.int8(), pa.int64(), pa.float32()], [-2, 0, 1, 3, 100, None]),
    "ratio": ([pa.float32(), pa.float64()], [math.nan, None, -0.0, 0.0, 2.5, math.inf]),
    "flag": ([pa.bool_()], [True, False, None]),
    "raw": ([pa.binary(), pa.binary(2)], [b"ab", b"\x00\xff", None]),
    "sent": ([pa.timestamp("us"), pa.timestamp("ns")], _SENT),
}
SLICED: dict[str, tuple[str, Callable[[Any], Any]]] = {  # name of a slicing's part: its column, and the value of a row
    "country": ("country", lambda x: x),
    "length": ("length", lambda x: x),
    "ratio": ("ratio", lambda x: x),
    "flag": ("flag", lambda x: x),
    "raw": ("raw", lambda x: x),
    "hour(sent)": ("sent", lambda x: None if x is None else x.hour),
    "day(sent)": ("sent", lambda x: None if x is None else f"{x:%Y-%m-%d}"),
    "month(sent)": ("sent", lambda x: None if x is None else f"{x:%Y-%m}"),
    "length=0,2.5": (
        "length",
        lambda x: None if x is None else "<0" if x < 0 else "[0, 2.5)" if x < 2.5 else ">=2.5",
    ),
}
WHERE: dict[str, Callable[[dict[str, Any]], bool | None]] = {  # None is SQL's unknown
    "length > 0": lambda row: None if row["length"] is None else row["length"] > 0,
    "country = 'DE' OR flag": lambda row: _or(None if row["country"] is None else row["country"] == "DE", row["flag"]),
    "NOT flag": lambda row: None if row["flag"] is None else not row["flag"],
    "country IN ('DE', '')": lambda row: None if row["country"] is None else row["country"] in ("DE", ""),
    "country LIKE '%E' AND length IS NOT NULL": lambda row: (
        row["length"] is not None and row["country"] is not None and row["country"].endswith("E")
    ),
    "length BETWEEN -2 AND 1": lambda row: None if row["length"] is None else -2 <= row["length"] <= 1,
    "country IS NULL": lambda row: row["country"] is None,
    "weight >= 1": lambda row: row["weight"] >= 1,
}


def _or(*sides: bool | None) -> bool | None:
    return True if True in sides else None if None in sides else False


def columns_of(rng: random.Random, rows: int) -> dict[str, pa.Array]:
    """Random columns to slice by."""
    found = {}
    for name, (types, values) in COLUMNS.items():
        some = rng.sample(values, rng.randint(1, len(values)))
        found[name] = pa.array([rng.choice(some) for _ in range(rows)], rng.choice(types), from_pandas=False)
    return found


def wider(rng: random.Random, case: Case) -> Case:
    """A case with columns to slice by."""
    table = case.table
    for name, column in columns_of(rng, len(table)).items():
        table = table.append_column(name, column)
    return replace(case, table=table)


def some(case: Case, rows: Sequence[int]) -> Case:
    """Some rows of a case."""
    kept = [case.rows[i] for i in rows]
    return Case(case.table.take(pa.array(rows, pa.int64())), case.options, kept, refuses(kept, case.options))


def canonical(value: Any) -> Any:
    """Values that are equal as slices are equal."""
    if isinstance(value, float) and value != value:
        return "nan", "float"
    return value + 0.0 if isinstance(value, float) else value


def told(result: Any, *, exactly: bool = True) -> Any:
    """A result for comparison: to the last bit, or with 11 digits and 12 decimals, and without its threshold.

    Stored weights are rounded, and those of slices and blocks are summed in another order, so that areas near 0 lose
    digits, and equal maxima are at several thresholds.
    """
    plain = replace(result, slice=None, reason=None, p_value=None, verdict=None, cut_share=None)
    if exactly:
        return repr(plain)
    facts = {k: v for k, v in plain.to_dict().items() if k != "threshold"}
    return {k: round(float(f"{v:.10e}"), 12) + 0.0 if isinstance(v, float) else v for k, v in facts.items()}


def slice_case(seed: int, folder: Path, tally: Tally) -> None:
    """Slices of a table and of files: each is its rows alone, and its definition."""
    rng = seeded(seed)
    case = wider(rng, drawn(rng))
    asked = [rng.sample(list(SLICED), rng.choice([1, 1, 2])) for _ in range(rng.choice([1, 2]))]
    asked = [names for i, names in enumerate(asked) if set(names) not in map(set, asked[:i]) and _apart(names)]
    by = [",".join(sorted(names, key=lambda name: "=" in name)) for names in asked]
    if not by:
        return
    for data in (case.table, written(case, folder / "data", rng)):
        try:
            found = evaluate(data, by=by, **case.options)
            whole = evaluate(data, **case.options)
        except StreamevalError as error:
            tally.refused(error)
            if not case.refuses and not ("float64" in str(error) and "weight" in case.options):
                tally.wrong.append(f"by={by}: refused without a reason: {error}")
            continue
        if case.refuses:
            tally.wrong.append(f"by={by}: not refused: {case.options}")
        exactly = "weight" not in case.options
        overall = [told(r, exactly=exactly) for r in found.results if r.slice is None]
        if overall != [told(r, exactly=exactly) for r in whole.results]:
            tally.wrong.append(f"by={by}: all rows are not those without slices")
        for text in by:
            _check_slicing(case, text, [r for r in found.results if r.slice and ",".join(r.slice) == text], tally)


def _apart(names: Sequence[str]) -> bool:
    """Whether a slicing can be written: edges end at the next name that has no digits."""
    return sum("=" in name for name in names) < 2


def _check_slicing(case: Case, text: str, results: Sequence[Any], tally: Tally) -> None:
    """Compare the slices of a slicing with their rows."""
    names = [name for name in SLICED if name in _split(text)]
    names.sort(key=_split(text).index)
    values = [[SLICED[name][1](x) for x in _values(case.table, SLICED[name][0])] for name in names]
    groups = defaultdict(list)
    for i, key in enumerate(zip(*values, strict=True)):
        groups[tuple(map(canonical, key))].append(i)
    found = defaultdict(list)
    for result in results:
        found[tuple(canonical(v) for v in result.slice.values())].append(result)
    if unknown := set(found) - set(groups):
        tally.wrong.append(f"by={text}: there is no slice {unknown}")
    for key, rows in groups.items():
        own = some(case, rows)
        if key not in found:
            if any(row[1] is not None for row in own.rows):
                tally.wrong.append(f"by={text}: slice {key} is absent")
            continue
        if not own.refuses:
            expected = truths(own)
            for r in found[key]:
                if r.metric in expected and not close(r, expected[r.metric]):
                    tally.wrong.append(f"by={text} {key}: {r.metric} {r.value!r} for {expected[r.metric]}")
        try:
            alone = evaluate(own.table, **case.options).results
        except StreamevalError:
            continue  # such as a label that no row of the slice has
        exactly = "weight" not in case.options
        if [told(r, exactly=exactly) for r in found[key]] != [told(r, exactly=exactly) for r in alone]:
            tally.wrong.append(f"by={text} {key}: not its rows alone ({case.options})")


def _split(text: str) -> list[str]:
    """The parts of a slicing; the commas of edges are part of it."""
    marked = text.replace("length=0,2.5", "length=0;2.5")
    return [part.replace(";", ",") for part in marked.split(",")]


def _values(table: pa.Table, name: str) -> list[Any]:
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    return list(column.to_pylist())


def where_case(seed: int, folder: Path, tally: Tally) -> None:
    """A filter keeps the rows for which SQL's condition is true."""
    rng = seeded(seed)
    case = wider(rng, drawn(rng))
    condition, holds = rng.choice(list(WHERE.items()))
    names = ("country", "length", "flag", "weight")
    columns = [case.table[name].to_pylist() for name in names]
    kept = [i for i, row in enumerate(zip(*columns, strict=True)) if holds(dict(zip(names, row, strict=True)))]
    own = some(case, kept)
    expected = {} if own.refuses else truths(own)
    for data in (case.table, written(case, folder / "data", rng)):
        try:
            found = evaluate(data, where=condition, **case.options)
        except StreamevalError as error:
            tally.refused(error)
            absent = "pos_label" in case.options and not any(row[1] == 1 for row in own.rows)
            if not own.refuses and not absent and "float64" not in str(error):
                tally.wrong.append(f"where {condition}: refused without a reason: {error}")
            continue
        if own.refuses:
            tally.wrong.append(f"where {condition}: not refused: {case.options}")
        for r in found.results:
            if r.metric in expected and not close(r, expected[r.metric]):
                tally.wrong.append(f"where {condition}: {r.metric} {r.value!r} for {expected[r.metric]}")


def mean_case(seed: int, folder: Path, tally: Tally) -> None:
    """Means over groups are the weighted means of the groups' own values."""
    rng = seeded(seed)
    case = wider(rng, drawn(rng))
    group, weight = rng.choice(["id", "length", "country"]), rng.choice(["rows", "positives", "equal"])
    metrics = ["roc_auc", "average_precision", "precision@k=3"]
    options = {k: v for k, v in case.options.items() if k in ("unlabelled", "pos_label", "threads")}
    options |= {"score": "score", "nan": rng.choice(["error", "drop"]), "nulls": "error"}
    case = replace(case, options={k: v for k, v in options.items() if k != "nulls"})
    kinds = pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary
    plain = any(test(case.table[group].type) for test in kinds)
    refused = refuses(case.rows, options)
    rows: dict[Any, list[Any]] = defaultdict(list)
    for key, row in zip(case.table[group].to_pylist(), case.rows, strict=True):
        if row[1] is not None and not is_missing(row[0]):
            rows[key].append((*row[:2], Fraction(1)))
    for data in (case.table, written(case, folder / "data", rng)):
        try:
            found = evaluate(data, mean_over=group, mean_weight=weight, metrics=metrics, **case.options)
        except StreamevalError as error:
            tally.refused(error)
            if not refused and plain:
                tally.wrong.append(f"mean_over={group}: refused without a reason: {error}")
            continue
        if refused:
            tally.wrong.append(f"mean_over={group}: not refused: {case.options}")
        for r in found.results:
            mean = _mean(r.metric, rows, weight)
            if not close(r, mean):
                tally.wrong.append(f"mean_over={group} by {weight}: {r.metric} {r.value!r} for {mean}")


def _mean(metric: str, groups: dict[Any, list[Any]], weight: str) -> Fraction | None:
    """The mean of a metric over the groups of both classes."""
    total = size = Fraction(0)
    for rows in groups.values():
        positives = sum(row[1] for row in rows)
        if 0 < positives < len(rows):
            own = groups_of(rows)
            value = _own(metric, own, rows)
            share = {"rows": len(rows), "positives": positives, "equal": 1}[weight]
            total += share * (value or 0)
            size += share
    return total / size if size else None


def _own(metric: str, own: Sequence[Any], rows: Sequence[Any]) -> Fraction | None:
    """The value of one group."""
    if metric == "roc_auc":
        return groups_auc(own)
    if metric == "average_precision":
        return curve_truth(own)[metric]
    points = Counter(row[0] for row in rows)
    return point_truth(own, [points[score] for score in sorted(points, reverse=True)], "k", 3)


def units_case(seed: int, folder: Path, tally: Tally) -> None:
    """Standard errors are the exact jackknife's over blocks of units, of all rows and of each slice."""
    rng = seeded(seed)
    size = rng.choice([40, 90, 200])
    unit = [rng.randint(0, size // 3) for _ in range(size)]
    sides = [rng.randint(0, 1) for _ in range(size // 3 + 1)]
    rows = [(rng.choice([0.0, 0.1, 0.25, 0.5, 1.0]) + sides[u] * rng.choice([0, 0.25]), sides[u]) for u in unit]
    country = [rng.choice(["DE", "FR", None]) for _ in unit]
    kind = rng.choice([pa.int32(), pa.uint64(), pa.string(), pa.dictionary(pa.int16(), pa.string())])
    table = pa.table({
        "label": [y for _, y in rows],
        "score": pa.array([s for s, _ in rows], rng.choice([pa.float32(), pa.float64()])),
        "unit": pa.array(unit if pa.types.is_integer(kind) else [str(u) for u in unit], kind),
        "country": country,
    })  # fmt: skip
    scores = table["score"].to_pylist()
    options: dict[str, Any] = {"score": "score", "unit": "unit", "metrics": ["roc_auc", "average_precision", "ks"]}
    case = Case(table, options, [], refuses=False)
    for data in (table, written(case, folder / "data", rng)):
        found = evaluate(data, by="country", threads=rng.choice([1, 2]), **options)
        for value in (..., "DE", "FR", None):
            at = [i for i in range(size) if value is ... or country[i] == value]
            if not at:
                continue
            mine = [r for r in found.results if (r.slice is None if value is ... else r.slice == {"country": value})]
            own = [(scores[i], rows[i][1], unit[i]) for i in at]
            for r in mine[:2]:
                due = _jackknife(r.metric, own, text=not pa.types.is_integer(kind))
                if r.stderr is not None and not math.isclose(r.stderr, due, rel_tol=1e-9, abs_tol=1e-12):
                    tally.wrong.append(f"unit, slice {value}: stderr of {r.metric} {r.stderr!r} for {due!r}")
            if value is not ... and len({row[1] for row in own}) > 1:
                alone = evaluate(table.take(pa.array(at)), threads=1, **options).results
                if list(map(told, mine)) != list(map(told, alone)):
                    tally.wrong.append(f"unit, slice {value}: not its rows alone")


def _jackknife(metric: str, rows: Sequence[tuple[float, int, int]], *, text: bool) -> float:
    """The standard error from the rows that are left without each block."""
    ids = [row[2] for row in rows]
    blocks = _blocks(ids, text=text)
    values = []
    for block in sorted(set(blocks)):
        left = [(s, y, Fraction(1)) for (s, y, _), b in zip(rows, blocks, strict=True) if b != block]
        groups = groups_of(left)
        value = groups_auc(groups) if metric == "roc_auc" else curve_truth(groups)[metric]
        values.append(math.nan if value is None else float(value))
    spread = np.array(values)
    return math.sqrt((spread.size - 1) / spread.size * np.square(spread - spread.mean()).sum())


def _blocks(ids: Sequence[int], *, text: bool) -> list[int]:
    """The block of each unit."""
    if text:
        from streameval.states.keyed.ids import id_type, identify

        words = identify(pa.array(map(str, ids)), id_type(pa.string(), "unit"))[0]
    else:
        words = np.array(ids, np.uint64)
    return [int(block) for block in blocks_of(words, 128)]
