"""Values for a page: formatted with enough digits to distinguish columns, with their uncertainty, and in tables.

A table of values has one row per metric and one column per column of the data; differences have verdicts.

The lines below a table of the terminal, and the small print of a page, give level and unit of sampling intervals,
the reasons for missing values and intervals, and what is rough.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.report.elements import Cell, Head, Row, Table, range_of
from streameval.results import CENSUS, FEW_FREEDOM, LabelStratum, slice_name, slice_text
from streameval.wording import amount, apart, few, labelled_rows, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.report.elements import Mark
    from streameval.results import Scalar, Source


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


def phrase_metric(metric: str) -> str:
    """The name of a metric within a sentence.

    Examples
    --------
    >>> phrase_metric("roc_auc"), phrase_metric("tpr@fpr=0.01")
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


def slice_cells(slices: Sequence[Mapping[str, object] | None]) -> list[tuple[str, ...]]:
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


def list_compared(difference: Scalar) -> tuple[str, str]:
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
    if result.threshold is not None and ("=" in result.metric or result.slice):  # those of all rows have a table
        notes.append(f"from {result.threshold:.5g}")
    if not result.exact and result.lower == result.lower and result.upper == result.upper:
        fine = digits((result.lower, result.upper), count, 9)
        notes.append(f"certain {number(result.lower, fine)} to {number(result.upper, fine)}")
    elif not result.exact:
        notes += [sampling_error(result) or "estimate"] * (result.design != CENSUS)
    reason = result.ci_reason or "" if result.ci_lower is None else ""
    notes += ["no interval"] * bool(reason)
    return Cell(number(result.value, count), "; ".join(notes), mark, result.value, reason)


def sampling_error(result: Scalar) -> str:
    """The error of a sampled value, if it is known and there is no interval around it."""
    if result.design == CENSUS or (result.design is not None and result.ci_lower is not None):
        return ""
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
    notes += describe_labelled(every)
    notes += ["Certain: the exact value lies within these bounds."] * any(r.lower < r.upper for r in every)
    return Table(caption, heads, tuple(rows), " ".join(notes))


_OF_CLASSES = ("pairwise.", "bcubed_", "cluster_")  # metrics that are estimated from sampled classes or clusters


def describe_labelled(results: Iterable[Scalar]) -> list[str]:
    """A sentence for values of the labelled rows alone, and one for estimates from them; none if labels cover all rows.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> describe_labelled([Scalar("roc_auc", 0.9, of="s", basis="labelled rows", labelled_share=0.0123)])
    ['Values that use labels are of the 1.23% labelled rows, not an estimate for all.']
    """
    results = list(results)
    samples: dict[tuple[str, str], list[Scalar]] = {}
    for one in results:
        if one.design is not None:
            samples.setdefault((_describe_draw(one), one.design), []).append(one)
    estimated = [_describe_draws(*kind, group) for kind, group in samples.items()]
    shares = [one.labelled_share for one in results if one.basis and one.labelled_share is not None]
    return estimated + ([labelled_rows(shares)] if shares else [])


def _describe_draw(one: Scalar) -> str:
    """What was drawn for an estimate."""
    if not one.metric.startswith(_OF_CLASSES):
        return "labels"
    return "clusters" if one.unit == one.of else "classes"


def _describe_draws(what: str, design: str, results: Sequence[Scalar]) -> str:
    """A sentence for estimates from samples of one design, such as those of several nights."""
    labelled, rows = (_span(getattr(one, name) or 0 for one in results) for name in ("labelled", "rows"))
    if design == CENSUS:
        return f"All {rows} rows {'are labelled' if what == 'labels' else 'have a class'}: a census, not an estimate."
    if what == "labels":
        return f"Estimated from {labelled} labels ({design}): what labels of all {rows} rows would give."
    units = _span(one.units or 0 for one in results)
    return f"Estimated from {units} {what} ({labelled} rows; {design}): what classes of all {rows} rows would give."


def _span(numbers: Iterable[int]) -> str:
    """The smallest and the largest of some numbers.

    >>> _span([1200, 300]), _span([7, 7])
    ('300 to 1,200', '7')
    """
    every = list(numbers)
    return " to ".join(f"{each:,}" for each in sorted({min(every), max(every)}))


def coarser_said(ratios: Mapping[str, float]) -> list[str]:
    """A note for each column by which standard errors are larger than by the unit.

    >>> coarser_said({"sender": 2.34})
    ['warning: by sender the standard error is 2.3 × as large; if its rows belong together, name it as unit (--unit)']
    """
    return [
        f"warning: by {column} the standard error is {ratio:.1f} × as large; if its rows belong together, name it as "
        "unit (--unit)"
        for column, ratio in ratios.items()
    ]


def cut_said(results: Iterable[Scalar], weight: str | None) -> list[str]:
    """A note where weights do not decide how many rows a truncation keeps.

    >>> from streameval.results import Scalar
    >>> cut_said([Scalar.certain("agc@0.1", 0.5), Scalar.certain("roc_auc", 0.5)], "w")
    ['the top of agc@0.1 is counted in points, without w']
    """
    cut = dict.fromkeys(result.metric for result in results if result.metric.startswith(("agc@", "agc_ratio@")))
    return [f"the top of {few(list(cut))} is counted in points, without {weight}"] if weight and cut else []


def strata_said(strata: Iterable[LabelStratum]) -> list[str]:
    """A warning for each stratum of a sample of labels whose design weights do not sum up to its rows, or for all rows.

    Examples
    --------
    >>> from streameval.results import LabelStratum
    >>> strata_said([LabelStratum("sms", 5574, 500, 60, 11200.0, 2.5e5)])
    ['warning: the design weights of sms sum up to 11,200 rows, but there are 5,574: check how labels were drawn there']
    """
    strata = list(strata)
    of_labels = [one for one in strata if one.positives is not None]
    if of_labels and not any(one.doubtful for one in strata):
        strata = [LabelStratum.whole(of_labels)]
    return [
        f"warning: the design weights of {one.name} sum up to {one.weight:,.0f} rows, but there are {one.rows:,}: "
        "check how labels were drawn there"
        for one in strata
        if one.doubtful
    ]


def difference_table(differences: Sequence[Scalar], caption: str = "Differences", note: str = "") -> Table:
    """One row per difference: size, interval, p value and verdict; the tables of values explain the metrics.

    The caption of slices against all other rows says what they differ from, and the head which column if there is one;
    other differences name both columns.
    """
    rows, from_rest = [], all(one.from_rest for one in differences)
    columns = list(dict.fromkeys(list_compared(one)[0] for one in differences))
    alone = from_rest and len(columns) == 1
    for of_slice, one in zip(slice_cells([one.slice for one in differences]), differences, strict=True):
        count, p = digits((abs(one.value), 0.0)), one.p_value
        name, other = list_compared(one)
        interval = NONE
        if one.ci_lower is not None and one.ci_upper is not None:
            interval = " to ".join(number(end, count, signed=True) for end in (one.ci_lower, one.ci_upper))
        verdict, mark = _VERDICTS.get(one.verdict, (one.verdict or NONE, "unclear"))
        cells = (
            Cell(verdict, mark=mark, reason=one.reason or one.ci_reason or ""),
            *([] if alone else [Cell(name)]),
            *([] if from_rest else [Cell(other)]),
            Cell(number(one.value, count, signed=True), order=order(one.value)),
            Cell(interval),
            Cell(NONE if p is None or p != p else "< 0.001" if p < 0.001 else f"{p:.2g}", order=p),
        )
        rows.append(Row((*of_slice, one.metric), cells))
    level = next((one.ci_level for one in differences if one.ci_level is not None), None)
    heads = (
        *(Head(name) for name in differences[0].slice or ()),
        Head("metric"),
        Head("verdict"),
        *([] if alone else [Head("column")]),
        *([] if from_rest else [Head("against")]),
        Head("difference", number=True, note=columns[0] if alone else ""),
        Head(f"{level * 100:g} % interval" if level is not None else "interval", number=True),
        Head("p", number=True, about="two-sided, adjusted for all differences of all rows, or for all by slice (Holm)"),
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
    form = ".5g" if name == "threshold" else ".4f"
    text = amount(value) if whole or isinstance(value, int) else f"{value:{form}}"
    return Cell(text.replace("-", "−"), order=order(value))


def order(value: float) -> float | None:
    """The number to sort a cell by; None for NaN."""
    return value if value == value else None


_NAMED = 3  # columns that a sentence names
_SAID = 3  # metrics that a sentence mentions


def join_words(parts: Sequence[str]) -> str:
    """Join the parts of a list in a sentence.

    Examples
    --------
    >>> join_words(["a"]), join_words(["a", "b"]), join_words(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def join_few(names: Sequence[str], most: int = _NAMED) -> str:
    """The first names in a sentence, and how many more there are."""
    left = len(names) - most
    return join_words([*names[:most], *[f"{left} more"] * (left > 0)])


def values_said(results: Mapping[str, Scalar], meaning: Meaning | None) -> str:
    """A sentence on the values of one metric, the best column first.

    Parameters
    ----------
    results : by column, at least one
    meaning : description of the metric, from the catalogue

    Examples
    --------
    >>> from streameval.report.values import Meaning
    >>> from streameval.results import Scalar
    >>> found = {name: Scalar.certain("roc_auc", x) for name, x in {"v1": 0.9, "v2": 0.95}.items()}
    >>> values_said(found, Meaning("", "higher", "score", "ranking"))
    'v2 has the best ROC AUC, 0.9500, against 0.9000 of v1.'
    """
    first = next(iter(results.values()))
    metric = phrase_metric(first.metric)
    defined = {name: one for name, one in results.items() if one.value == one.value}
    if not defined:
        return f"{capital(metric)} is not defined{f': {first.reason}' if first.reason else ''}."
    count = digits(one.value for one in defined.values())
    if meaning is not None and meaning.better is not None:
        sign = -1 if meaning.better == "higher" else 1
        defined = dict(sorted(defined.items(), key=lambda item: sign * item[1].value))
    values = {name: number(one.value, count) for name, one in defined.items()}
    (name, best), *others = values.items()
    if not others:
        one = defined[name]
        ends = (
            ""
            if one.ci_lower is None or one.ci_upper is None
            else (f" ({number(one.ci_lower, count)} to {number(one.ci_upper, count)})")
        )
        return f"{capital(metric)} of {name} is {best}{ends}."
    if len(set(values.values())) == 1:
        return f"{capital(metric)} of {join_few(list(values))} is the same, {best}."
    if meaning is None or meaning.better is None:
        each = [f"{value} of {name}" for name, value in list(values.items())[:_NAMED]]
        return f"{capital(metric)} is {join_words(each)}."
    level = [other for other, value in others if value == best]
    against = join_words([f"{value} of {other}" for other, value in others if value != best][: _NAMED - 1])
    more = len(others) - len(level) - (_NAMED - 1)
    against += f" and {more} more" if more > 0 else ""
    names = join_words([name, *level])
    return f"{names} {'have' if level else 'has'} the best {metric.removeprefix('the ')}, {best}, against {against}."


def classes_said(results: Mapping[str, Scalar], meaning: Meaning | None) -> str:
    """A sentence on the mean of one metric over classes, and one on the worst class."""
    mean = results["macro"]
    said = values_said({f"{mean.groups or 0:,} classes on average": mean}, meaning)
    own = [one for one in results.values() if one.groups is None and one.value == one.value]
    if meaning is None or meaning.better is None or len(own) < 2:
        return said
    sign = 1 if meaning.better == "higher" else -1
    worst = min(own, key=lambda one: sign * one.value)
    return f"{said} The worst is class {worst.label_class}, {number(worst.value, digits(one.value for one in own))}."


def differences_said(differences: Sequence[Scalar]) -> list[str]:
    r"""A sentence for each pair of columns: the metrics in which one is better, and those with no difference shown.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> known = {"of": "v2 − v1", "baseline": "v1", "unit": "campaign", "effective_units": 197.3, "ci_level": 0.95}
    >>> found = [Scalar("roc_auc", 0.0031, ci_lower=0.0008, ci_upper=0.0054, verdict="better", **known),
    ...          Scalar("aul", 0.001, ci_lower=-0.01, ci_upper=0.012, verdict="not shown", **known)]
    >>> print(*differences_said(found)[0].split("; "), sep="\n")
    v2 is better than v1 in ROC AUC by 0.0031 (0.0008 to 0.0054
    95% by campaign, 197 effective units)
    no difference is shown in AUL.
    """
    return [_pair_said(list(pair)) for _, pair in groupby(differences, key=lambda one: (one.of, one.baseline))]


def _pair_said(pair: Sequence[Scalar]) -> str:
    """A sentence that compares two columns."""
    one, other = list_compared(pair[0])
    parts, first = [], True
    for verdict in ("better", "worse"):
        found = [each for each in pair if each.verdict == verdict]
        if found:
            sizes = join_few([_size_said(each, first and i == 0) for i, each in enumerate(found)], _SAID)
            parts.append(f"{one} is {verdict} than {other} in {sizes}" if first else f"{verdict} in {sizes}")
            first = False
    unclear = [each for each in pair if each.verdict == "not shown" and each.ci_lower is not None]
    if unclear:
        names = join_few([phrase_metric(each.metric) for each in unclear])
        between = "" if parts else f" between {one} and {other}"
        parts.append(f"no difference{between} is shown in {names}")
    if not parts:
        why = next((each.reason or each.ci_reason for each in pair if each.reason or each.ci_reason), "")
        names = join_words([phrase_metric(each.metric) for each in pair[:_SAID]])
        said = f"Whether {one} differs from {other} in {names} is not known"
        return f"{said}: {why}." if why else f"{said}."
    return f"{capital(parts[0]) if parts[0].startswith('no ') else parts[0]}{''.join(f'; {p}' for p in parts[1:])}."


def slices_said(differences: Sequence[Scalar]) -> list[str]:
    """A sentence for each pair of columns that has slices in which one is worse: the largest loss first.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> facts = {"of": "v2 − v1", "baseline": "v1", "slice": {"country": "NG"}, "verdict": "worse"}
    >>> slices_said([Scalar("roc_auc", -0.166, ci_lower=-0.177, ci_upper=-0.154, **facts)])
    ['v2 is worse than v1 in 1 slice: {country=NG}, ROC AUC by 0.1660 (0.1540 to 0.1770).']
    """
    pairs: dict[tuple[str, str], list[Scalar]] = {}
    for one in differences:
        if one.slice and one.verdict == "worse" and not one.from_rest:
            pairs.setdefault(list_compared(one), []).append(one)
    sentences = []
    for (column, other), losses in pairs.items():
        losses.sort(key=lambda loss: -abs(loss.value))
        named = [f"{_slice(loss)}, {_size_said(loss, False)}" for loss in losses[:_SAID]]
        left = len(losses) - _SAID
        listed = "; ".join([*named, *[f"{left} more"] * (left > 0)])
        slices = len({slice_name(loss.slice) for loss in losses})
        sentences.append(f"{column} is worse than {other} in {plural(slices, 'slice')}: {listed}.")
    return sentences


def worst_first(differences: Iterable[Scalar]) -> list[Scalar]:
    """Differences with the verdict ``worse`` first, then those that are not shown; in each the largest first."""
    order = {"worse": 0, "better": 2}
    return sorted(differences, key=lambda one: (order.get(one.verdict or "", 1), -abs(one.value)))


def _size_said(one: Scalar, whole: bool) -> str:
    """The metric and the size of a difference, with its interval; `whole` adds level and units."""
    size = digits((abs(one.value), 0.0))
    text = f"{phrase_metric(one.metric)} by {number(abs(one.value), size)}"
    if one.ci_lower is None or one.ci_upper is None:
        return text
    low, high = sorted((abs(one.ci_lower), abs(one.ci_upper)))
    ends = f"{number(low, size)} to {number(high, size)}"
    if not whole:
        return f"{text} ({ends})"
    by = f" by {one.unit}" if one.unit else ""
    level = f"{one.ci_level * 100:g}%{by}" if one.ci_level is not None else ""
    units = _least([one.effective_units] if one.effective_units else [], "effective unit")
    free = _least([one.freedom] if one.freedom else [], "degree", " of freedom")
    return f"{text} ({'; '.join(filter(None, (ends, ', '.join(filter(None, (level, units, free))))))})"


def capital(text: str) -> str:
    """Capitalise the first letter of a sentence, unless it begins with the name of a metric."""
    word = text.partition(" ")[0]
    return text if "_" in word or "@" in word else text[:1].upper() + text[1:]


_MOST_REASONS = 4  # reasons listed for slices or nights
_ROUNDING = 1e-6  # tolerance before effective units are rounded down
_LONG_SLICE = 60  # most characters of a slice
_UNITS = re.compile(r"^\d+\.\d (?=effective units)")  # removed to compare reasons


def means(results: Sequence[Scalar], weight: str = "rows") -> Iterator[str]:
    """A line for each kind of mean over groups: number and weights of the groups, and those left out; then deciles.

    Parameters
    ----------
    results : results, of which means over groups are described
    weight : the option `mean_weight`

    Examples
    --------
    >>> from dataclasses import replace
    >>> from streameval.results import Scalar
    >>> auc = replace(Scalar.certain("roc_auc", 0.75), mean_over="user", groups=7, groups_left_out=1, rows_left_out=3)
    >>> list(means([auc]))
    ['roc_auc: mean over 7 groups by user, weighted by rows; left out 1 group without both classes (3 rows)']
    """
    lines: dict[str, list[str]] = {}
    weighted = "equally weighted" if weight == "equal" else f"weighted by {weight}"
    for result in results:
        if result.mean_over is not None:
            line = f"mean over {plural(result.groups or 0, 'group')} by {result.mean_over}, {weighted}"
            if result.groups_left_out:
                rows = plural(result.rows_left_out or 0, "row")
                line += f"; left out {plural(result.groups_left_out, 'group')} without both classes ({rows})"
            lines.setdefault(line, []).append(result.metric)
    for line, metrics in lines.items():
        yield f"{', '.join(dict.fromkeys(metrics))}: {line}"
    for one in results:
        if one.group_deciles is not None and one.slice is None:
            deciles = "  ".join(f"{value:.4f}" for value in one.group_deciles)
            yield f"{one.metric}[{one.of}] by group, from the least through the deciles to the greatest: {deciles}"


def sampling_notes(results: Sequence[Scalar], tested: Sequence[Scalar] = (), *, store: bool = False) -> list[str]:
    """Notes on sampling intervals: units and blocks, values without an interval and why, how p was adjusted.

    `tested` are all results of the evaluation, whose differences are tested together. `store` is whether the results
    come from a store; the remedy for missing units is then `add --unit`.
    """
    sliced = [(f"{r.metric}[{r.of}]", _slice(r), r) for r in results if r.slice]
    why: dict[str, list[str]] = {}
    for r in results:
        if not r.slice and r.value == r.value and r.ci_level is not None and r.ci_lower is None and r.ci_reason:
            why.setdefault(r.ci_reason, []).append(f"{r.metric}[{r.of}]")
    reasons = [f"no interval of {few(list(dict.fromkeys(names)))}: {reason}" for reason, names in why.items()]
    units = _units(results, store=store, warn=not sliced)
    return [*units, *reasons, *_missing(sliced, "slice"), *_describe_families(tested)]


def zones_said(by: str, source: Source) -> list[str]:
    """A sentence on the time zone of a slicing by parts of times; none for other slicings."""
    return [f"{name} is in the time zone {zone}" for name, zone in source.zones.items() if name in by.split(",")]


def slice_notes(slices: Sequence[Sequence[Scalar]]) -> list[str]:
    """Notes on slices without a value or an interval, with reasons, and on slices with rough intervals.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from streameval.results import Scalar
    >>> auc = replace(Scalar.undefined("roc_auc", "one class only"), of="score")
    >>> slice_notes([[replace(auc, slice={"country": "FR"})], [Scalar.certain("roc_auc", 0.75)]])
    ['no value of roc_auc[score] in {country=FR}: one class only']
    >>> slice_notes([[replace(auc, slice={"country": name})] for name in ("FR", None)])
    ['no value of roc_auc[score] in 2 slices ({country=FR}, {country=null}): one class only']
    """
    all_results = [result for results in slices for result in results]
    return _missing([(f"{r.metric}[{r.of}]", _slice(r), r) for r in all_results], "slice")


def night_notes(columns: Mapping[str, Sequence[Scalar]], nights: Sequence[str]) -> list[str]:
    """Notes on a table of values by night; `columns` holds the results of all nights by column.

    They give the share of labelled rows, level and unit of sampling intervals, nights without a value or an interval
    with reasons, and nights with rough intervals.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> night_notes({"roc_auc[score]": [Scalar.undefined("roc_auc", "one class only")] * 2}, ["Monday", "Tuesday"])
    ['no value of roc_auc[score] in 2 nights (Monday, Tuesday): one class only']
    """
    cells = [
        (column, night, result)
        for column, results in columns.items()
        for night, result in zip(nights, results, strict=True)
    ]
    results = [result for _, _, result in cells]
    return [*describe_labelled(results), *_units(results, store=True, warn=False), *_missing(cells, "night")]


def _name_slices(places: Mapping[str, None], what: str) -> str:
    """A single slice or night, or the number of them and the first three."""
    names = list(places)
    return names[0] if len(names) == 1 else f"{plural(len(names), what)} ({few(names)})"


def _missing(cells: Sequence[tuple[str, str, Scalar]], what: str) -> list[str]:
    """Notes on cells of a table without a value or an interval, with the reasons, and on those with rough intervals.

    Parameters
    ----------
    cells : name of the metric, name of the slice or night, and the result
    what : ``slice`` or ``night``
    """
    why: dict[tuple[str, str], tuple[dict[str, None], dict[str, None], dict[str, None]]] = {}
    for metric, place, result in cells:
        undefined = result.value != result.value
        missing = undefined or (result.ci_level is not None and result.ci_lower is None)
        reason = result.reason if undefined else result.ci_reason
        if missing and reason:
            kind = "value" if undefined else "interval"
            metrics, places, reasons = why.setdefault((kind, _UNITS.sub("", reason)), ({}, {}, {}))
            metrics[metric] = places[place] = reasons[reason] = None
    lines = [
        f"no {kind} of {few(list(metrics))} in {_name_slices(places, what)}: {range_of(list(reasons))}"
        for (kind, _), (metrics, places, reasons) in why.items()
    ]
    left = len(lines) - _MOST_REASONS
    lines[_MOST_REASONS:] = [f"{plural(left, 'more reason')}; --json has all"] * (left > 0)
    rough = dict.fromkeys(
        place for _, place, r in cells if r.ci_lower is not None and (r.freedom or math.inf) < FEW_FREEDOM
    )
    few_units = (
        f"warning: fewer than {FEW_FREEDOM:g} degrees of freedom in {_name_slices(rough, what)}: rough intervals"
    )
    return [*lines, *[few_units] * bool(rough)]


def _slice(result: Scalar) -> str:
    """The slice of a result, in at most 60 characters."""
    name = visible(slice_name(result.slice))
    return name if len(name) <= _LONG_SLICE else f"{name[: _LONG - 2]}…}}"


def _units(results: Sequence[Scalar], *, store: bool, warn: bool = True) -> Iterator[str]:
    """Lines with level and unit of the intervals; `warn` adds a warning for few units."""
    asked = [result for result in results if result.ci_level is not None and result.ci_lower is not None]
    for unit in dict.fromkeys(result.unit for result in asked):
        of_unit = [result for result in asked if result.unit == unit]
        effective = [result.effective_units for result in of_unit if result.effective_units is not None]
        freedom = [result.freedom for result in of_unit if result.freedom is not None]
        blocks = max(result.blocks or 0 for result in of_unit)
        level = f"{100 * (of_unit[0].ci_level or 0):g} % intervals by {unit}"
        within = f" in {plural(blocks, 'block')}" if effective and blocks else ""
        units, free = _least(effective, "effective unit"), _least(freedom, "degree", " of freedom")
        yield f"{level}{f': {units}' if units else ''}{within}{f', {free}' if free else ''}"
        if warn and min(freedom, default=math.inf) < FEW_FREEDOM:
            yield f"warning: fewer than {FEW_FREEDOM:g} degrees of freedom, so these intervals are rough"
        if unit == "row" and not any(result.design for result in of_unit):  # of a sample, rows were drawn
            remedy = "add their column to the store (add --unit COLUMN)" if store else "name their column with --unit"
            yield f"each row is its own unit: too narrow if rows come in groups; {remedy}"


def _least(numbers: Sequence[float], noun: str, of: str = "") -> str:
    """The smallest of some numbers, such as effective units, rounded down.

    >>> _least([], "unit"), _least([49.97], "unit"), _least([1533.0, 60.2], "degree", " of freedom")
    ('', '49 units', 'at least 60 degrees of freedom')
    """
    floors = [math.floor(each + _ROUNDING) for each in numbers]
    at_least = "at least " if len(set(floors)) > 1 else ""
    return f"{at_least}{plural(min(floors), noun)}{of}" if floors else ""


def _describe_families(results: Sequence[Scalar]) -> Iterator[str]:
    """The families of differences whose p-values are adjusted together."""
    tested = [result for result in results if result.p_value is not None and result.ci_level is not None]
    overall = sum(result.slice is None for result in tested)
    families = [(overall, "of all rows"), (len(tested) - overall, "by slice")]
    if len(tested) > 1:
        each = " and for ".join(f"{plural(count, 'difference')} {of}" for count, of in families if count)
        yield f"p is adjusted for {each} (Holm); intervals are not, and each rule is judged alone"


def sampling_said(results: Sequence[Scalar], tested: Sequence[Scalar] = (), *, store: bool = False) -> str:
    """The sampling notes as sentences for a page, whose tables give the reasons for missing intervals."""
    notes = [
        f"{note.removeprefix('warning: ')}." for note in (*_units(results, store=store), *_describe_families(tested))
    ]
    return " ".join(note if note.startswith("p ") else f"{note[:1].upper()}{note[1:]}" for note in notes)
