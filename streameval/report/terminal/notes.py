"""Notes on results: the lines below their tables."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from streameval.results import FEW_UNITS, slice_name
from streameval.wording import few, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.results import Scalar

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
    told: dict[str, list[str]] = {}
    weighted = "equally weighted" if weight == "equal" else f"weighted by {weight}"
    for result in results:
        if result.mean_over is not None:
            left = plural(result.groups_left_out or 0, "group")
            told.setdefault(
                f"mean over {plural(result.groups or 0, 'group')} by {result.mean_over}, {weighted}"
                + (
                    f"; left out {left} without both classes ({plural(result.rows_left_out or 0, 'row')})"
                    * bool(result.groups_left_out)
                ),
                [],
            ).append(result.metric)
    for text_, metrics in told.items():
        yield f"{', '.join(dict.fromkeys(metrics))}: {text_}"


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
    told = [
        f"no {kind} of {few(list(metrics))} in {_listed(places, what)}: {_joined(list(reasons))}"
        for (kind, _), (metrics, places, reasons) in why.items()
    ]
    rough = {place: None for _, place, result in cells if _is_rough(result)}
    few_units = f"warning: fewer than {FEW_UNITS} effective units in {_listed(rough, what)}: rough intervals"
    return [*_most(told), *[few_units] * bool(rough)]


def _most(told: Sequence[str]) -> list[str]:
    """The first lines, and the number of further ones."""
    left = len(told) - _MOST_REASONS
    return [*told[:_MOST_REASONS], *[f"{plural(left, 'more reason')}; --json has all"] * (left > 0)]


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


def _listed(found: Mapping[str, None], what: str) -> str:
    """A single slice or night, or the number of them and the first three."""
    names = list(found)
    return names[0] if len(names) == 1 else f"{plural(len(names), what)} ({few(names)})"


def _is_rough(result: Scalar) -> bool:
    """Whether a result has an interval from few effective units."""
    return result.ci_lower is not None and (result.effective_units or math.inf) < FEW_UNITS


def _units(results: Sequence[Scalar], *, store: bool, warn: bool = True) -> Iterator[str]:
    """Lines with level and unit of the intervals; `warn` adds a warning for few units."""
    asked = [result for result in results if result.ci_level is not None and result.ci_lower is not None]
    for unit in dict.fromkeys(result.unit for result in asked):
        of_unit = [result for result in asked if result.unit == unit]
        known = [result.effective_units for result in of_unit if result.effective_units is not None]
        units, blocks = min(known, default=None), max(result.blocks or 0 for result in of_unit)
        level = f"{100 * (of_unit[0].ci_level or 0):g} % intervals by {unit}"
        within = f" in {plural(blocks, 'block')}" if known and blocks else ""
        yield f"{level}{_effective(known)}{within}"
        if warn and units is not None and units < FEW_UNITS:
            yield f"warning: fewer than {FEW_UNITS} effective units, so these intervals are rough"
        if unit == "row":
            told = "add their column to the store (add --unit COLUMN)" if store else "name their column with --unit"
            yield f"each row is its own unit: too narrow if rows come in groups; {told}"


def _effective(known: Sequence[float]) -> str:
    """The smallest number of effective units, rounded down.

    >>> _effective([]), _effective([49.97]), _effective([1533.0, 60.2])
    ('', ': 49 effective units', ': at least 60 effective units')
    """
    units = [math.floor(each + _ROUNDING) for each in known]
    at_least = "at least " if len(set(units)) > 1 else ""
    return f": {at_least}{plural(min(units), 'effective unit')}" if units else ""


def _reasons(results: Sequence[Scalar]) -> list[str]:
    why: dict[str, list[str]] = {}
    for result in results:
        if (
            result.ci_level is not None
            and result.ci_lower is None
            and result.ci_reason
            and result.value == result.value
        ):
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
