"""The main findings in a sentence or two, which open a page."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from streameval.report.values import digits, number, spoken
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    known = {name: one for name, one in results.items() if one.value == one.value}
    if not known:
        return f"{_capital(metric)} is not defined{f': {first.reason}' if first.reason else ''}."
    count = digits(one.value for one in known.values())
    if meaning is not None and meaning.better is not None:
        sign = -1 if meaning.better == "higher" else 1
        known = dict(sorted(known.items(), key=lambda item: sign * item[1].value))
    values = {name: number(one.value, count) for name, one in known.items()}
    (name, best), *others = values.items()
    if not others:
        return f"{_capital(metric)} of {name} is {best}{_interval_said(known[name], count)}."
    if len(set(values.values())) == 1:
        return f"{_capital(metric)} of {_few(list(values))} is the same, {best}."
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


def _interval_said(one: Scalar, count: int) -> str:
    if one.ci_lower is None or one.ci_upper is None:
        return ""
    return f" ({number(one.ci_lower, count)} to {number(one.ci_upper, count)})"


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
            sizes = joined([*named, *_more(found, _SAID)])
            parts.append(f"{one} is {verdict} than {other} in {sizes}" if first else f"{verdict} in {sizes}")
            first = False
    unclear = [each for each in pair if each.verdict == "not shown" and each.ci_lower is not None]
    if unclear:
        names = _few([spoken(each.metric) for each in unclear])
        between = "" if parts else f" between {one} and {other}"
        parts.append(f"no difference{between} is shown in {names}")
    if not parts:
        why = next((each.reason or each.ci_reason for each in pair if each.reason or each.ci_reason), "")
        names = joined([spoken(each.metric) for each in pair[:_SAID]])
        said = f"Whether {one} differs from {other} in {names} is not known"
        return f"{said}: {why}." if why else f"{said}."
    return f"{_capital(parts[0]) if parts[0].startswith('no ') else parts[0]}{''.join(f'; {p}' for p in parts[1:])}."


def compared(difference: Scalar) -> tuple[str, str]:
    """The two columns of a difference, the baseline last."""
    other = difference.baseline or ""
    return (difference.of or "").removesuffix(f" − {other}"), other


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


def _few(names: Sequence[str]) -> str:
    return joined([*names[:_NAMED], *_more(names, _NAMED)])


def _more(things: Sequence[object], said: int) -> list[str]:
    """How many things are left to say."""
    return [f"{len(things) - said} more"] if len(things) > said else []


def _capital(text: str) -> str:
    """Capitalise the first letter of a sentence, unless it begins with the name of a metric."""
    word = text.partition(" ")[0]
    return text if "_" in word or "@" in word else text[:1].upper() + text[1:]
