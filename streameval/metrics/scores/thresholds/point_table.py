"""The table of operating points: for each requested point, all measures at its threshold.

A row stands for an operating point (``fpr=0.01``) or for a metric that chooses a threshold (``f1_max``). Its counts are
exact at the threshold shown, also from a histogram, where the threshold is an edge of a bin; `lower` and `upper` then
bound the value at the best of all thresholds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from streameval.metrics.scores.thresholds.threshold import TableAt
    from streameval.results import Scalar

_DOUBLES = ("threshold", "tpr", "fpr", "precision", "recall", "f1", "mcc", "share")
_CELLS = ("tp", "fp", "fn", "tn")


def pointed(results: Iterable[Scalar], of: str) -> dict[str, Scalar]:
    """Results of a score that have a threshold: the first result by what was asked for."""
    found: dict[str, Scalar] = {}
    for result in results:
        asked = _asked(result.metric)
        if result.of == of and result.slice is None and (asked != result.metric or result.threshold is not None):
            found.setdefault(asked, result)
    return found


def _asked(metric: str) -> str:
    """``fpr=0.01`` of ``tpr@fpr=0.01``, ``share=0.01`` of ``lift@0.01``; else the metric itself."""
    stem, _, value = metric.partition("@")
    if stem == "lift":
        return f"share={value}"
    return value if "=" in value and "," not in value else metric


def point_table(rows: Sequence[tuple[str, str, Scalar, TableAt | str | None]], results: Iterable[Scalar]) -> pa.Table:
    """The table of operating points.

    Parameters
    ----------
    rows : (score, what was asked for, its result, the 2×2 table at its threshold, or why there is none)
    results : all results, whose ``cost_min`` give the costs
    """
    import pyarrow as pa

    costs = dict.fromkeys(_costs(result.metric) for result in results if result.metric.startswith("cost_min@"))
    made = [_row(of, asked, result, table, list(costs)) for of, asked, result, table in rows]
    whole = all(isinstance(row.get("tp") or 0, int) for row in made)
    cells: Any = pa.int64() if whole else pa.float64()
    schema = pa.schema(
        [
            ("of", pa.string()),
            ("at", pa.string()),
            *((name, pa.float64()) for name in _DOUBLES),
            ("flagged", pa.int64()),
        ]
        + [(name, cells) for name in _CELLS]
        + [(_cost(*cost), pa.float64()) for cost in costs]
        + [("metric", pa.string()), *((name, pa.float64()) for name in ("value", "lower", "upper"))]
        + [("exact", pa.bool_()), ("reason", pa.string())]
    )
    return pa.Table.from_pylist(made, schema=schema)


def _row(
    of: str, asked: str, result: Scalar, table: TableAt | str | None, costs: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """A row: null where there is no threshold, or what it gives is not known."""
    ends = {name: _known(getattr(result, name)) for name in ("value", "lower", "upper")}
    named: dict[str, Any] = {"of": of, "at": asked, "metric": result.metric, "exact": result.exact, **ends}
    if result.threshold is None:
        return named | {"reason": result.reason}
    named["threshold"] = result.threshold
    if table is None or isinstance(table, str):
        return named | {"reason": table}
    measures = _measures(table)
    size = table.tp + table.fn + table.fp + table.tn
    spent = {_cost(fp, fn): (fp * table.fp + fn * table.fn) / size for fp, fn in costs}
    cells = {name: getattr(table, name) for name in _CELLS}
    return named | measures | cells | spent | {"flagged": table.flagged, "reason": result.reason}


def _measures(table: TableAt) -> dict[str, float | None]:
    """Rates of a table; None where they are not defined."""
    tp, fn, fp, tn = table.tp, table.fn, table.fp, table.tn
    recall = _over(tp, tp + fn)
    return {
        "tpr": recall,
        "fpr": _over(fp, fp + tn),
        "precision": _over(tp, tp + fp),
        "recall": recall,
        "f1": _over(2 * tp, 2 * tp + fp + fn),
        "mcc": _mcc(tp, fn, fp, tn),
        "share": _over(tp + fp, tp + fn + fp + tn),
    }


def _mcc(tp: Any, fn: Any, fp: Any, tn: Any) -> float | None:
    """Matthews' correlation; None with an empty margin."""
    if isinstance(tp, float) and (size := tp + fn + fp + tn):
        tp, fn, fp, tn = (cell / size for cell in (tp, fn, fp, tn))
    margins = (tp + fn) * (fp + tn), (tp + fp) * (fn + tn)
    if not all(margins):
        return None
    return float((tp * tn - fp * fn) / (math.sqrt(margins[0]) * math.sqrt(margins[1])))


def _over(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _known(value: float) -> float | None:
    return value if value == value else None


def _costs(metric: str) -> tuple[float, float]:
    """The costs in ``cost_min@fp=1,fn=10``."""
    fp, fn = (float(part.partition("=")[2]) for part in metric.partition("@")[2].split(","))
    return fp, fn


def _cost(fp: float, fn: float) -> str:
    """The column of the expected cost of a row."""
    return f"cost@fp={format_number(fp)},fn={format_number(fn)}"
