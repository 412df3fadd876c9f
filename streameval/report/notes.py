"""Results in words: the sentences that open a page, and the notes below tables.

The lines below a table of the terminal, and the small print of a page, give level and unit of sampling intervals,
the reasons for missing values and intervals, and what is rough.
"""

from __future__ import annotations

import math
import re
from itertools import groupby
from typing import TYPE_CHECKING

from streameval.report.values import compared, digits, number, spoken
from streameval.results import FEW_UNITS, slice_name
from streameval.wording import few, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.report.values import Meaning
    from streameval.results import Scalar


_NAMED = 3  # columns that a sentence names
_SAID = 3  # metrics that a sentence mentions


def joined(parts: Sequence[str], last: str = "and") -> str:
    """Join the parts of a list in a sentence.

    Examples
    --------
    >>> joined(["a"]), joined(["a", "b"]), joined(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def joined_few(names: Sequence[str], most: int = _NAMED) -> str:
    """The first names in a sentence, and how many more there are."""
    left = len(names) - most
    return joined([*names[:most], *[f"{left} more"] * (left > 0)])


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
    metric = spoken(first.metric)
    defined = {name: one for name, one in results.items() if one.value == one.value}
    if not defined:
        return f"{_capital(metric)} is not defined{f': {first.reason}' if first.reason else ''}."
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
        return f"{_capital(metric)} of {name} is {best}{ends}."
    if len(set(values.values())) == 1:
        return f"{_capital(metric)} of {joined_few(list(values))} is the same, {best}."
    if meaning is None or meaning.better is None:
        return (
            f"{_capital(metric)} is {joined([f'{value} of {name}' for name, value in list(values.items())[:_NAMED]])}."
        )
    level = [other for other, value in others if value == best]
    against = joined([f"{value} of {other}" for other, value in others if value != best][: _NAMED - 1])
    more = len(others) - len(level) - (_NAMED - 1)
    against += f" and {more} more" if more > 0 else ""
    names = joined([name, *level])
    return f"{names} {'have' if level else 'has'} the best {metric.removeprefix('the ')}, {best}, against {against}."


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
    one, other = compared(pair[0])
    parts, first = [], True
    for verdict in ("better", "worse"):
        found = [each for each in pair if each.verdict == verdict]
        if found:
            named = [_size_said(each, first and i == 0) for i, each in enumerate(found[:_SAID])]
            sizes = joined([*named, *[f"{len(found) - _SAID} more"] * (len(found) > _SAID)])
            parts.append(f"{one} is {verdict} than {other} in {sizes}" if first else f"{verdict} in {sizes}")
            first = False
    unclear = [each for each in pair if each.verdict == "not shown" and each.ci_lower is not None]
    if unclear:
        names = joined_few([spoken(each.metric) for each in unclear])
        between = "" if parts else f" between {one} and {other}"
        parts.append(f"no difference{between} is shown in {names}")
    if not parts:
        why = next((each.reason or each.ci_reason for each in pair if each.reason or each.ci_reason), "")
        names = joined([spoken(each.metric) for each in pair[:_SAID]])
        said = f"Whether {one} differs from {other} in {names} is not known"
        return f"{said}: {why}." if why else f"{said}."
    return f"{_capital(parts[0]) if parts[0].startswith('no ') else parts[0]}{''.join(f'; {p}' for p in parts[1:])}."


def _size_said(one: Scalar, whole: bool) -> str:
    """The metric and the size of a difference, with its interval; `whole` adds level and units."""
    size = digits((abs(one.value), 0.0))
    text = f"{spoken(one.metric)} by {number(abs(one.value), size)}"
    if one.ci_lower is None or one.ci_upper is None:
        return text
    low, high = sorted((abs(one.ci_lower), abs(one.ci_upper)))
    ends = f"{number(low, size)} to {number(high, size)}"
    if not whole:
        return f"{text} ({ends})"
    by = f" by {one.unit}" if one.unit else ""
    level = f"{one.ci_level * 100:g}%{by}" if one.ci_level is not None else ""
    units = plural(math.floor(one.effective_units), "effective unit") if one.effective_units else ""
    return f"{text} ({'; '.join(filter(None, (ends, ', '.join(filter(None, (level, units))))))})"


def _capital(text: str) -> str:
    """Capitalise the first letter of a sentence, unless it begins with the name of a metric."""
    word = text.partition(" ")[0]
    return text if "_" in word or "@" in word else text[:1].upper() + text[1:]


_MOST_REASONS = 4  # reasons listed for slices or nights
_ROUNDING = 1e-6  # tolerance before effective units are rounded down
_LONG = 60  # most characters of a slice
_UNITS = re.compile(r"^\d+\.\d (?=effective units)")  # removed to compare reasons


def means(results: Sequence[Scalar], weight: str = "rows") -> Iterator[str]:
    """A line for each kind of mean over groups: number and weights of the groups, and groups left out.

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


def sampling_notes(results: Sequence[Scalar], *, store: bool = False) -> list[str]:
    """Notes on sampling intervals: units and blocks, values without an interval and why, how p was adjusted.

    `store` is whether the results come from a store; the remedy for missing units is then `add --unit`.
    """
    sliced = [(f"{r.metric}[{r.of}]", _slice(r), r) for r in results if r.slice]
    reasons = [*_reasons([result for result in results if not result.slice]), *_missing(sliced, "slice")]
    return [*_units(results, store=store, warn=not sliced), *reasons, *_adjusted(results)]


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

    They give level and unit of sampling intervals, nights without a value or an interval with reasons, and nights with
    rough intervals.

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
    return [*_units([result for _, _, result in cells], store=True, warn=False), *_missing(cells, "night")]


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
        f"no {kind} of {few(list(metrics))} in {_listed(places, what)}: {_joined(list(reasons))}"
        for (kind, _), (metrics, places, reasons) in why.items()
    ]
    left = len(lines) - _MOST_REASONS
    lines[_MOST_REASONS:] = [f"{plural(left, 'more reason')}; --json has all"] * (left > 0)
    rough = dict.fromkeys(
        place for _, place, r in cells if r.ci_lower is not None and (r.effective_units or math.inf) < FEW_UNITS
    )
    few_units = f"warning: fewer than {FEW_UNITS} effective units in {_listed(rough, what)}: rough intervals"
    return [*lines, *[few_units] * bool(rough)]


def _joined(reasons: Sequence[str]) -> str:
    """Join reasons that differ only in their effective units into one with a range.

    >>> _joined(["4.9 effective units of rows: …", "3.0 effective units of rows: …", "4.0 effective units of rows: …"])
    '3.0 to 4.9 effective units of rows: …'
    """
    if len(reasons) == 1:
        return reasons[0]
    units = sorted((reason.partition(" ")[0] for reason in reasons), key=float)
    return f"{units[0]} to {units[-1]} {reasons[0].partition(' ')[2]}"


def _slice(result: Scalar) -> str:
    """The slice of a result, in at most 60 characters."""
    name = visible(slice_name(result.slice))
    return name if len(name) <= _LONG else f"{name[: _LONG - 2]}…}}"


def _listed(places: Mapping[str, None], what: str) -> str:
    """A single slice or night, or the number of them and the first three."""
    names = list(places)
    return names[0] if len(names) == 1 else f"{plural(len(names), what)} ({few(names)})"


def _units(results: Sequence[Scalar], *, store: bool, warn: bool = True) -> Iterator[str]:
    """Lines with level and unit of the intervals; `warn` adds a warning for few units."""
    asked = [result for result in results if result.ci_level is not None and result.ci_lower is not None]
    for unit in dict.fromkeys(result.unit for result in asked):
        of_unit = [result for result in asked if result.unit == unit]
        effective = [result.effective_units for result in of_unit if result.effective_units is not None]
        units, blocks = min(effective, default=None), max(result.blocks or 0 for result in of_unit)
        level = f"{100 * (of_unit[0].ci_level or 0):g} % intervals by {unit}"
        within = f" in {plural(blocks, 'block')}" if effective and blocks else ""
        yield f"{level}{_effective(effective)}{within}"
        if warn and units is not None and units < FEW_UNITS:
            yield f"warning: fewer than {FEW_UNITS} effective units, so these intervals are rough"
        if unit == "row":
            remedy = "add their column to the store (add --unit COLUMN)" if store else "name their column with --unit"
            yield f"each row is its own unit: too narrow if rows come in groups; {remedy}"


def _effective(effective: Sequence[float]) -> str:
    """The smallest number of effective units, rounded down.

    >>> _effective([]), _effective([49.97]), _effective([1533.0, 60.2])
    ('', ': 49 effective units', ': at least 60 effective units')
    """
    units = [math.floor(each + _ROUNDING) for each in effective]
    at_least = "at least " if len(set(units)) > 1 else ""
    return f": {at_least}{plural(min(units), 'effective unit')}" if units else ""


def _reasons(results: Sequence[Scalar]) -> list[str]:
    why: dict[str, list[str]] = {}
    for result in results:
        defined = result.value == result.value
        if defined and result.ci_level is not None and result.ci_lower is None and result.ci_reason:
            why.setdefault(result.ci_reason, []).append(f"{result.metric}[{result.of}]")
    return [f"no interval of {few(list(dict.fromkeys(names)))}: {reason}" for reason, names in why.items()]


def _adjusted(results: Sequence[Scalar]) -> Iterator[str]:
    tested = sum(result.p_value is not None for result in results if result.ci_level is not None)
    if tested > 1:
        yield f"p is adjusted for {plural(tested, 'comparison')} (Holm); intervals are not"


def sampling_said(results: Sequence[Scalar], *, store: bool = False) -> str:
    """The sampling notes as sentences for a page, whose tables give the reasons for missing intervals."""
    notes = [f"{note.removeprefix('warning: ')}." for note in (*_units(results, store=store), *_adjusted(results))]
    return " ".join(note if note.startswith("p ") else f"{note[:1].upper()}{note[1:]}" for note in notes)
