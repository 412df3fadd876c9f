"""Values for a page: formatted with enough digits to distinguish columns, with their uncertainty, and by table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.report.elements import Cell
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
    notes += _uncertain(result, count)
    reason = result.ci_reason or "" if result.ci_lower is None else ""
    notes += ["no interval"] * bool(reason)
    return Cell(number(result.value, count), "; ".join(notes), mark, result.value, reason)


def _uncertain(result: Scalar, count: int) -> list[str]:
    """The error bounds of a value, in words."""
    if result.exact:
        return []
    if result.lower == result.lower and result.upper == result.upper:
        fine = digits((result.lower, result.upper), count, 9)
        return [f"certain {number(result.lower, fine)} to {number(result.upper, fine)}"]
    known = (("bound", result.bound), ("standard error", result.stderr))
    told = [f"{name} {size:.1e}" for name, size in known if size is not None]
    return [f"sampled: {', '.join(told)}"] if told else ["estimate"]


def best_of(results: Mapping[str, Scalar], meaning: Meaning | None) -> set[str]:
    """The columns with the best value; empty if there is only one column or all are equal."""
    values = {name: result.value for name, result in results.items() if result.value == result.value}
    if meaning is None or meaning.better is None or len(values) < 2:
        return set()
    best = (max if meaning.better == "higher" else min)(values.values())
    found = {name for name, value in values.items() if value == best}
    return set() if len(found) == len(values) else found


def alike(results: Iterable[Scalar]) -> list[dict[str, dict[str, Scalar]]]:
    """Groups of columns with the same metrics: in each, results by metric and then by column."""
    by_column: dict[str, dict[str, Scalar]] = {}
    for result in results:
        by_column.setdefault(result.of or "", {})[result.metric] = result
    groups: dict[tuple[str, ...], list[str]] = {}
    for column, found in by_column.items():
        groups.setdefault(tuple(found), []).append(column)
    return [
        {metric: {column: by_column[column][metric] for column in columns} for metric in metrics}
        for metrics, columns in groups.items()
    ]
