"""Tables of values, with one row per metric and one column per column of the data; differences with verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.report.elements import Cell, Head, Row, Table
from streameval.report.sentences import compared
from streameval.report.values import NONE, alike, best_of, digits, number, slice_cells, value_cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.report.elements import Mark
    from streameval.report.values import Meaning
    from streameval.results import Scalar

CAPTIONS = {
    "score": "Scores",
    "sample": "Scores, sampled",
    "cluster": "Clusters",
    "classes": "Clusters against classes",
    "sketch": "Quantiles",
    "": "Results",
}
_VERDICTS = {"better": "▲ better", "worse": "▼ worse", "not shown": "○ not shown"}


def value_tables(results: Sequence[Scalar], meanings: Mapping[str, Meaning]) -> list[Table]:
    """Tables of results, one for each kind of input; columns with the same metrics share a table."""
    kinds: dict[str, list[Scalar]] = {}
    for result in results:
        known = meanings.get(result.metric)
        kinds.setdefault(known.family if known else "", []).append(result)
    tables = [_table(CAPTIONS[kind], group, meanings) for kind, found in kinds.items() for group in alike(found)]
    marked = next((i for i, table in enumerate(tables) if _has_best(table)), None)
    if marked is not None:
        tables[marked] = replace(tables[marked], note=f"Bold: the best of a row. {tables[marked].note}".rstrip())
    return tables


def _has_best(table: Table) -> bool:
    return any(cell.mark == "best" for row in table.rows for cell in row.cells)


def _table(caption: str, found: Mapping[str, Mapping[str, Scalar]], meanings: Mapping[str, Meaning]) -> Table:
    columns = list(next(iter(found.values())))
    rows = []
    for metric, results in found.items():
        meaning = meanings.get(metric)
        count = digits(result.value for result in results.values())
        best = set() if any(r.ci_level is not None for r in results.values()) else best_of(results, meaning)
        cells = [value_cell(results[c], count, "best" if c in best else "") for c in columns]
        rows.append(Row((metric,), tuple(cells), meaning.line if meaning else ""))
    heads = (Head("metric"), *(Head(column, number=True) for column in columns))
    return Table(caption, heads, tuple(rows), " ".join(_notes(found)))


def _notes(found: Mapping[str, Mapping[str, Scalar]]) -> list[str]:
    """The notes below the table."""
    results = [result for row in found.values() for result in row.values()]
    notes = []
    if any(r.ci_lower is not None for r in results):
        notes.append("The interval is below each value.")
    if any(r.lower < r.upper for r in results):
        notes.append("Certain: the exact value lies within these bounds.")
    return notes


def difference_table(differences: Sequence[Scalar], caption: str = "Differences", note: str = "") -> Table:
    """One row per difference: size, interval, p value and verdict; the tables of values explain the metrics.

    The caption of slices against all other rows says what they differ from, and the head which column if there is one;
    other differences name both columns.
    """
    rows, from_rest = [], all(one.from_rest for one in differences)
    columns = list(dict.fromkeys(compared(one)[0] for one in differences))
    alone = from_rest and len(columns) == 1
    for of_slice, one in zip(slice_cells([one.slice for one in differences]), differences, strict=True):
        count = digits((abs(one.value), 0.0))
        name, other = compared(one)
        interval = NONE
        if one.ci_lower is not None and one.ci_upper is not None:
            low, high = (number(end, count, signed=True) for end in (one.ci_lower, one.ci_upper))
            interval = f"{low} to {high}"
        verdict = one.verdict or NONE
        mark: Mark = "better" if verdict == "better" else "worse" if verdict == "worse" else "unclear"
        cells = (
            *([] if alone else [Cell(name)]),
            *([] if from_rest else [Cell(other)]),
            Cell(number(one.value, count, signed=True), order=_order(one.value)),
            Cell(interval),
            Cell(_p(one.p_value), order=one.p_value),
            Cell(_VERDICTS.get(verdict, verdict), mark=mark, reason=one.reason or one.ci_reason or ""),
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


_SHARES = ("precision", "recall", "fpr", "f1", "mcc", "share")
_COUNTS = ("flagged", "tp", "fp", "fn", "tn")


def point_table(points: Sequence[Mapping[str, Any]]) -> Table:
    """One row per operating point: its threshold and values."""
    rows = []
    for point in points:
        cells = [_point_cell(point["threshold"], ".5g", point["reason"])]
        cells += [_point_cell(point[name], ".4f") for name in _SHARES]
        cells += [_point_cell(point[name], ",.6g" if isinstance(point[name], float) else ",") for name in _COUNTS]
        rows.append(Row((str(point["of"]), str(point["at"])), tuple(cells)))
    names = ("threshold", *_SHARES, *(name.upper() if len(name) == 2 else name for name in _COUNTS))
    heads = (Head("score"), Head("operating point"), *(Head(name, number=True) for name in names))
    note = "Share: of all rows. MCC: Matthews correlation. TP, FP, FN, TN: true and false positives and negatives."
    return Table("Values at each point", heads, tuple(rows), note)


def _point_cell(value: float | None, form: str, why: str | None = None) -> Cell:
    return (
        Cell(NONE, reason=why or "")
        if value is None
        else Cell(f"{value:{form}}".replace("-", "−"), order=_order(value))
    )


def _order(value: float) -> float | None:
    return value if value == value else None


def _p(value: float | None) -> str:
    """A p value.

    >>> _p(0.0421), _p(1e-9), _p(None)
    ('0.042', '< 0.001', '–')
    """
    if value is None or value != value:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.2g}"
