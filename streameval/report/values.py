"""Values for a page: formatted with enough digits to distinguish columns, with their uncertainty, and in tables.

A table of values has one row per metric and one column per column of the data; differences have verdicts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.report.elements import Cell, Head, Row, Table
from streameval.results import slice_text
from streameval.wording import apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.report.elements import Mark
    from streameval.results import Scalar


NONE = "–"
_LARGE = 1e3  # values of at least this size have one decimal, unless they are whole
_LONG = 120  # characters of a text from the data
_SPOKEN = {
    "roc_auc": "ROC AUC",
    "pr_auc": "PR AUC",
    "aul": "AUL",
    "agc": "AGC",
    "agc_ratio": "AGC ratio",
    "average_precision": "average precision",
    "adjusted_rand_index": "the adjusted Rand index",
    "adjusted_mutual_info": "adjusted mutual information",
    "roc_auc_by_size": "ROC AUC by size",
    "log_loss": "log loss",
    "brier_score": "the Brier score",
    "v_measure": "the V-measure",
    "bcubed_fscore": "the B-cubed F-score",
}


class Meaning(NamedTuple):
    """The description of a metric, from the catalogue.

    Attributes
    ----------
    line : its meaning in one line
    better : ``higher``, ``lower``, or None if neither is better
    family : the family of its input
    subject : the group of metrics that it is shown with
    """

    line: str
    better: str | None
    family: str
    subject: str


def spoken(metric: str) -> str:
    """The name of a metric within a sentence.

    Examples
    --------
    >>> spoken("roc_auc"), spoken("tpr@fpr=0.01")
    ('ROC AUC', 'tpr@fpr=0.01')
    """
    return _SPOKEN.get(metric, metric)


def digits(values: Iterable[float], least: int = 4, most: int = 6) -> int:
    """The number of decimals that distinguishes values, between `least` and `most`; 0 for counts.

    Examples
    --------
    >>> digits([0.5, 0.25]), digits([0.99213, 0.99214]), digits([352.0, 0.0])
    (4, 5, 0)
    """
    distinct = {value for value in values if math.isfinite(value)}
    if all(map(float.is_integer, map(float, distinct))) and any(abs(value) > 1 for value in distinct):
        return 0
    for count in range(least, most):
        if len({f"{value:.{count}f}" for value in distinct}) == len(distinct):
            return count
    return most


def number(value: float, count: int = 4, *, signed: bool = False) -> str:
    """Format a number, with a true minus sign.

    Examples
    --------
    >>> number(-0.00312, signed=True), number(12345678.91), number(5120.0), number(float("nan"))
    ('−0.0031', '12,345,678.9', '5,120', '–')
    """
    if value != value:
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    large = ",.0f" if float(value).is_integer() else ",.1f"
    text = f"{value:.{count}f}" if abs(value) < _LARGE else f"{value:{large}}" if abs(value) < 1e15 else f"{value:.6g}"
    if signed and value > 0:
        text = f"+{text}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def slice_cells(slices: Sequence[Mapping[str, Any] | None]) -> list[tuple[str, ...]]:
    """The values of each slice of a table, cut to 120 characters so that no value fills the page; () without a slice.

    Examples
    --------
    >>> slice_cells([{"country": "DE", "night": 1}, {"country": None, "night": 2}])
    [('DE', '1'), ('null', '2')]
    >>> [len(name) for (name,) in slice_cells([{"page": "x" * 500 + end} for end in "ab"])]
    [118, 118]
    """
    columns = zip(*(map(slice_text, (slice_ or {}).values()) for slice_ in slices), strict=True)
    cut = [apart(column, _LONG) for column in columns]
    return list(zip(*cut, strict=True)) if cut else [()] * len(slices)


def compared(difference: Scalar) -> tuple[str, str]:
    """The two columns of a difference, the baseline last."""
    other = difference.baseline or ""
    return (difference.of or "").removesuffix(f" − {other}"), other


def value_cell(result: Scalar | None, count: int = 4, mark: Mark = "") -> Cell:
    """A cell with a value and its intervals, or with the reason why there is none.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> value_cell(Scalar.between("roc_auc", 0.5, 0.499, 0.501))
    Cell(text='0.5000', note='certain 0.4990 to 0.5010', mark='', order=0.5, reason='')
    >>> value_cell(Scalar.undefined("roc_auc", "one class only"))
    Cell(text='–', note='', mark='', order=None, reason='one class only')
    """
    if result is None:
        return Cell("")
    if result.value != result.value:
        return Cell(NONE, reason=result.reason or "")
    notes = []
    if result.ci_lower is not None and result.ci_upper is not None:
        notes.append(f"{number(result.ci_lower, count)} to {number(result.ci_upper, count)}")
    if result.threshold is not None and "=" in result.metric:
        notes.append(f"from {result.threshold:.5g}")
    if not result.exact and result.lower == result.lower and result.upper == result.upper:
        fine = digits((result.lower, result.upper), count, 9)
        notes.append(f"certain {number(result.lower, fine)} to {number(result.upper, fine)}")
    elif not result.exact:
        notes.append(sampling_error(result) or "estimate")
    reason = result.ci_reason or "" if result.ci_lower is None else ""
    notes += ["no interval"] * bool(reason)
    return Cell(number(result.value, count), "; ".join(notes), mark, result.value, reason)


def sampling_error(result: Scalar) -> str:
    """The error of a sampled value, if it is known."""
    sizes = (("bound", result.bound), ("standard error", result.stderr))
    errors = ", ".join(f"{name} {size:.1e}" for name, size in sizes if size is not None)
    return f"sampled: {errors}" if errors else ""


def alike(results: Iterable[Scalar]) -> list[dict[str, dict[str, Scalar]]]:
    """Groups of columns with the same metrics: in each, results by metric and then by column."""
    by_column: dict[str, dict[str, Scalar]] = {}
    for result in results:
        by_column.setdefault(result.of or "", {})[result.metric] = result
    groups: dict[tuple[str, ...], list[str]] = {}
    for column, by_metric in by_column.items():
        groups.setdefault(tuple(by_metric), []).append(column)
    return [
        {metric: {column: by_column[column][metric] for column in columns} for metric in metrics}
        for metrics, columns in groups.items()
    ]


_CAPTIONS = {
    "score": "Scores",
    "sample": "Scores, sampled",
    "cluster": "Clusters",
    "classes": "Clusters against classes",
    "sketch": "Quantiles",
    "": "Results",
}
_VERDICTS: dict[str | None, tuple[str, Mark]] = {
    "better": ("▲ better", "better"),
    "worse": ("▼ worse", "worse"),
    "not shown": ("○ not shown", "unclear"),
}
_POINT = ("threshold", "recall", "fpr", "precision", "f1", "mcc", "share", "flagged", "tp", "fp", "fn", "tn")
_POINT_NOTE = "Share: of all rows. MCC: Matthews correlation. TP, FP, FN, TN: true and false positives and negatives."


def value_tables(results: Sequence[Scalar], meanings: Mapping[str, Meaning]) -> list[Table]:
    """Tables with a row per metric and a column per column of the data, one for each kind of input."""
    kinds: dict[str, list[Scalar]] = {}
    for result in results:
        meaning = meanings.get(result.metric)
        kinds.setdefault(meaning.family if meaning else "", []).append(result)
    tables = [
        _value_table(_CAPTIONS[kind], group, meanings) for kind, members in kinds.items() for group in alike(members)
    ]
    for i, table in enumerate(tables):
        if any(cell.mark == "best" for row in table.rows for cell in row.cells):
            tables[i] = replace(table, note=f"Bold: the best of a row. {table.note}".rstrip())
            break
    return tables


def _value_table(caption: str, by_metric: Mapping[str, Mapping[str, Scalar]], meanings: Mapping[str, Meaning]) -> Table:
    rows = []
    for metric, results in by_metric.items():
        meaning = meanings.get(metric)
        count = digits(result.value for result in results.values())
        defined = {result.value for result in results.values() if result.value == result.value}
        best = None
        if meaning and meaning.better and len(defined) > 1 and all(r.ci_level is None for r in results.values()):
            best = (max if meaning.better == "higher" else min)(defined)
        cells = (value_cell(result, count, "best" if result.value == best else "") for result in results.values())
        rows.append(Row((metric,), tuple(cells), meaning.line if meaning else ""))
    heads = (Head("metric"), *(Head(column, number=True) for column in next(iter(by_metric.values()))))
    every = [result for results in by_metric.values() for result in results.values()]
    notes = ["The interval is below each value."] * any(r.ci_lower is not None for r in every)
    notes += ["Certain: the exact value lies within these bounds."] * any(r.lower < r.upper for r in every)
    return Table(caption, heads, tuple(rows), " ".join(notes))


def difference_table(differences: Sequence[Scalar], caption: str = "Differences", note: str = "") -> Table:
    """One row per difference: size, interval, p value and verdict; the tables of values explain the metrics.

    The caption of slices against all other rows says what they differ from, and the head which column if there is one;
    other differences name both columns.
    """
    rows, from_rest = [], all(one.from_rest for one in differences)
    columns = list(dict.fromkeys(compared(one)[0] for one in differences))
    alone = from_rest and len(columns) == 1
    for of_slice, one in zip(slice_cells([one.slice for one in differences]), differences, strict=True):
        count, p = digits((abs(one.value), 0.0)), one.p_value
        name, other = compared(one)
        interval = NONE
        if one.ci_lower is not None and one.ci_upper is not None:
            interval = " to ".join(number(end, count, signed=True) for end in (one.ci_lower, one.ci_upper))
        verdict, mark = _VERDICTS.get(one.verdict, (one.verdict or NONE, "unclear"))
        cells = (
            *([] if alone else [Cell(name)]),
            *([] if from_rest else [Cell(other)]),
            Cell(number(one.value, count, signed=True), order=order(one.value)),
            Cell(interval),
            Cell(NONE if p is None or p != p else "< 0.001" if p < 0.001 else f"{p:.2g}", order=p),
            Cell(verdict, mark=mark, reason=one.reason or one.ci_reason or ""),
        )
        rows.append(Row((*of_slice, one.metric), cells))
    level = next((one.ci_level for one in differences if one.ci_level is not None), None)
    heads = (
        *(Head(name) for name in differences[0].slice or ()),
        Head("metric"),
        *([] if alone else [Head("column")]),
        *([] if from_rest else [Head("against")]),
        Head("difference", number=True, note=columns[0] if alone else ""),
        Head(f"{level * 100:g} % interval" if level is not None else "interval", number=True),
        Head("p", number=True, about="two-sided, adjusted for all differences of this table (Holm)"),
        Head("verdict"),
    )
    return Table(caption, heads, tuple(rows), note)


def point_table(points: Sequence[Mapping[str, Any]]) -> Table:
    """One row per operating point, as `streameval.Evaluation.operating_points` has them: its threshold and values."""
    names = [*_POINT, *(name for name in points[0] if name.startswith("cost@"))]
    rows = []
    for point in points:
        cells = [_point_cell(name, point[name], point["reason"] or "") for name in names]
        rows.append(Row((str(point["of"]), str(point["at"])), tuple(cells)))
    heads = (Head(name.upper() if name in ("tp", "fp", "fn", "tn") else name, number=True) for name in names)
    return Table("Values at each point", (Head("score"), Head("operating point"), *heads), tuple(rows), _POINT_NOTE)


def _point_cell(name: str, value: float | None, reason: str) -> Cell:
    """Counts whole, thresholds with five digits, shares with four decimals."""
    if value is None:
        return Cell(NONE, reason=reason if name == "threshold" else "")
    whole = name in _POINT[-5:]
    form = "," if isinstance(value, int) else ".5g" if name == "threshold" else ",.6g" if whole else ".4f"
    return Cell(f"{value:{form}}".replace("-", "−"), order=order(value))


def order(value: float) -> float | None:
    """The number to sort a cell by; None for NaN."""
    return value if value == value else None
