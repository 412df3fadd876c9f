"""2×2 tables of a score at thresholds, and the table of operating points made from them.

Rows whose score is at or above a threshold are predicted positive. A table is exact. A histogram gives it where the
threshold lies between bins or in a bin of a single score; a threshold within an open bin is refused. Float32 scores are
compared with the nearest float32 number.

A row of the table of operating points stands for a point (``fpr=0.01``) or for a metric that chooses a threshold
(``f1_max``), with all measures there. Its `lower` and `upper` bound the value at the best of all thresholds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.label_sample import LabelSample
from streameval.metrics.scores.sums import sum_of, total
from streameval.states.scores.types import halved
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from streameval.results import Scalar
    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart

    Above = tuple[int, float, float, bool, int]
    Cell = str | float | None


_CUT = "the threshold is within a bin of the histogram; choose one of its ends, or evaluate without approx (--approx)"
_CLOSE = "several scores are the same number as the threshold in float64"


@dataclass(frozen=True)
class ConfusionAt(Metric[tuple[float, float, float, float], "ScorePart", tuple[float, float], "State"]):
    """The table at a threshold as (TP, FN, FP, TN): counts, or weights where rows carry weights.

    Attributes
    ----------
    threshold : float
        Scores at or above it are predicted positive. Under ``nan="half"`` a NaN score is below every threshold.

    Raises
    ------
    OptionError
        If the threshold is NaN or not a number.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> compute(state, ConfusionAt(0.35))
    (2, 0, 1, 1)
    """

    threshold: float
    name: str = "confusion"
    counts_nan: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number: object = self.threshold
        if isinstance(number, bool) or not isinstance(number, Real | Decimal):
            raise OptionError(f"threshold={self.threshold!r} must be a number, in the unit of the scores")
        if self.threshold != self.threshold:
            raise OptionError("threshold is NaN, which no score reaches or misses; give a number or an infinity")

    def partial(self, part: ScorePart) -> tuple[float, float]:
        """Negatives and positives of one part at or above the threshold.

        Raises
        ------
        OptionError
            If the threshold is within an open bin.
        """
        threshold = part.compared(self.threshold)
        if not part.exact:
            lower, upper = part.low[part.open], part.high[part.open]
            inside = np.flatnonzero((lower < threshold) & (threshold < upper))
            if inside.size:
                raise OptionError(
                    f"threshold {self.threshold!r} is within the bin [{float(lower[inside[0]])!r}, "
                    f"{float(upper[inside[0]])!r}) of a histogram; choose one of its ends, or evaluate without approx "
                    "(--approx)"
                )
        above = part.scores >= threshold
        return part.n[above].sum().item(), part.p[above].sum().item()

    def combine(self, partials: Sequence[tuple[float, float]], state: State) -> tuple[float, float, float, float]:
        """TP, FN, FP, TN."""
        neg, pos = (sum(column) for column in zip(*partials, strict=True)) if partials else (0, 0)
        return _cells(neg, pos, state)


def _cells(neg: float, pos: float, state: State) -> tuple[float, float, float, float]:
    """TP, FN, FP, TN from those at or above a threshold; sums of weights in units of 1."""
    total, nan = state.totals(), halved(state)
    cells = pos, max(total.p + nan.p - pos, 0), neg, max(total.n + nan.n - neg, 0)
    if not total.unit:
        return cells
    tp, fn, fp, tn = (math.ldexp(cell, total.unit) for cell in cells)
    return tp, fn, fp, tn


@dataclass(frozen=True)
class TablesAt(Metric["list[TableAt | str]", "ScorePart", "list[Above]", "State"]):
    """The 2×2 tables of several thresholds; a metric whose value is a list of `TableAt`, or the reason for none.

    The lower edge of a bin is a threshold. Scores wider than float32 are put into bins as float32 numbers, and so they
    are compared with such an edge.

    Attributes
    ----------
    thresholds : numbers or infinities, in any order

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> compute(state, TablesAt((0.35, 0.9)))
    [TableAt(flagged=3, tp=2, fn=0, fp=1, tn=1), TableAt(flagged=0, tp=0, fn=2, fp=0, tn=2)]
    """

    thresholds: tuple[float, ...]
    name: str = "tables"
    counts_nan: ClassVar[bool] = True

    def partial(self, part: ScorePart) -> list[Above]:
        """For each threshold rows, negatives and positives from it on, whether it cuts an open bin, groups at it."""
        scores, lower, upper = part.ends(slice(None))
        thresholds = part.compared(self.thresholds)
        ends = scores.size - np.searchsorted(scores[::-1], thresholds)
        same = ends - (scores.size - np.searchsorted(scores[::-1], thresholds, side="right"))
        sums: dict[int, tuple[float, ...]] = {0: (0, 0, 0)}
        for start, stop in itertools.pairwise(np.unique(np.append(0, ends)).tolist()):
            more = (sum_of(side[start:stop]) for side in (part.rows, part.n, part.p))
            sums[stop] = tuple(x + y for x, y in zip(sums[start], more, strict=True))
        lower, upper = lower[part.open], upper[part.open]
        cut = [
            not at and bool(((lower < threshold) & (threshold < upper)).any())
            for threshold, at in zip(thresholds, same, strict=True)
        ]
        return [(*sums[end], hidden, at) for end, hidden, at in zip(ends.tolist(), cut, same.tolist(), strict=True)]

    def combine(self, partials: Sequence[list[Above]], state: State) -> list[TableAt | str]:
        """The tables of all parts."""
        tables: list[TableAt | str] = []
        for parts in zip(*partials, strict=True) if partials else [[]] * len(self.thresholds):
            rows, neg, pos = (total([part[side] for part in parts]) for side in range(3))
            if any(part[3] for part in parts):
                tables.append(_CUT)
            elif sum(part[4] for part in parts) > 1:
                tables.append(_CLOSE)
            else:
                cells = _cells(neg, pos, state)
                if isinstance(state, LabelSample):  # rows beyond the threshold are the sum of weights
                    rows = round(cells[0] + cells[2])
                tables.append(TableAt(int(rows), *cells))
        return tables


class TableAt(NamedTuple):
    """A 2×2 table: rows at or above the threshold, and counts; with weights, sums of weights."""

    flagged: int
    tp: Any
    fn: Any
    fp: Any
    tn: Any


_DOUBLES = ("threshold", "tpr", "fpr", "precision", "recall", "f1", "mcc", "share")
_CELLS = ("tp", "fp", "fn", "tn")


def pointed(results: Iterable[Scalar], of: str) -> dict[str, Scalar]:
    """Results of a score that have a threshold: the first result by what was asked for."""
    rows: dict[str, Scalar] = {}
    for result in results:
        asked = _asked(result.metric)
        if result.of == of and result.slice is None and (asked != result.metric or result.threshold is not None):
            rows.setdefault(asked, result)
    return rows


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

    costs = list(dict.fromkeys(_costs(result.metric) for result in results if result.metric.startswith("cost_min@")))
    table = [_row(of, asked, result, table, costs) for of, asked, result, table in rows]
    cells: Any = pa.int64() if all(isinstance(row.get("tp") or 0, int) for row in table) else pa.float64()
    kinds = {"of": pa.string(), "at": pa.string(), **dict.fromkeys(_DOUBLES, pa.float64()), "flagged": pa.int64()}
    kinds |= dict.fromkeys(_CELLS, cells) | {_cost(*cost): pa.float64() for cost in costs} | {"metric": pa.string()}
    kinds |= dict.fromkeys(("value", "lower", "upper"), pa.float64()) | {"exact": pa.bool_(), "reason": pa.string()}
    return pa.Table.from_pylist(table, schema=pa.schema(kinds))


def _row(
    of: str, asked: str, result: Scalar, table: TableAt | str | None, costs: Sequence[tuple[float, float]]
) -> dict[str, Cell]:
    """A row: null where there is no threshold, or what it gives is not known."""
    ends = {name: None if math.isnan(end := getattr(result, name)) else end for name in ("value", "lower", "upper")}
    named: dict[str, Cell] = {"of": of, "at": asked, "metric": result.metric, "exact": result.exact, **ends}
    if result.threshold is None:
        return named | {"reason": result.reason}
    named["threshold"] = result.threshold
    if table is None or isinstance(table, str):
        return named | {"reason": table}
    flagged, tp, fn, fp, tn = table
    size = tp + fn + fp + tn
    spent = {_cost(*cost): (cost[0] * fp + cost[1] * fn) / size for cost in costs}
    cells = dict(zip(_CELLS, (tp, fp, fn, tn), strict=True))
    return named | _measures(tp, fn, fp, tn) | cells | spent | {"flagged": flagged, "reason": result.reason}


def _measures(tp: float, fn: float, fp: float, tn: float) -> dict[str, float | None]:
    """Rates of a table; None where they are not defined."""
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


def _mcc(tp: float, fn: float, fp: float, tn: float) -> float | None:
    """Matthews' correlation; None with an empty margin."""
    if isinstance(tp, float) and (size := tp + fn + fp + tn):
        tp, fn, fp, tn = (cell / size for cell in (tp, fn, fp, tn))
    margins = (tp + fn) * (fp + tn), (tp + fp) * (fn + tn)
    if not all(margins):
        return None
    return float((tp * tn - fp * fn) / (math.sqrt(margins[0]) * math.sqrt(margins[1])))


def _over(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _costs(metric: str) -> tuple[float, float]:
    """The costs in ``cost_min@fp=1,fn=10``."""
    fp, fn = (float(part.partition("=")[2]) for part in metric.partition("@")[2].split(","))
    return fp, fn


def _cost(fp: float, fn: float) -> str:
    """The column of the expected cost of a row."""
    return f"cost@fp={format_number(fp)},fn={format_number(fn)}"
