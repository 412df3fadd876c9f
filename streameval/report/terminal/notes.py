"""What to know of results: lines below their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.results import Scalar

__all__ = ["means", "sampling_notes", "sampling_said"]

_FEW_UNITS = 50  # effective units below which intervals are rough


def means(results: Sequence[Scalar]) -> Iterator[str]:
    """A line for each kind of mean over groups: how many groups there are, and what is left out.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from streameval.results import Scalar
    >>> auc = replace(Scalar.certain("roc_auc", 0.75), mean_over="user", groups=7, groups_left_out=1, rows_left_out=3)
    >>> list(means([auc]))
    ['roc_auc: mean over 7 groups by user; left out 1 group without both classes (3 rows)']
    """
    told: dict[str, list[str]] = {}
    for result in results:
        if result.mean_over is not None:
            left = plural(result.groups_left_out or 0, "group")
            told.setdefault(
                f"mean over {plural(result.groups or 0, 'group')} by {result.mean_over}"
                + (
                    f"; left out {left} without both classes ({plural(result.rows_left_out or 0, 'row')})"
                    * bool(result.groups_left_out)
                ),
                [],
            ).append(result.metric)
    for text_, metrics in told.items():
        yield f"{', '.join(dict.fromkeys(metrics))}: {text_}"


def sampling_notes(results: Sequence[Scalar]) -> list[str]:
    """What to know of sampling intervals: units and blocks, what has no interval and why, how p was adjusted."""
    asked = [result for result in results if result.ci_level is not None]
    notes = []
    for unit in dict.fromkeys(result.unit for result in asked if result.ci_lower is not None):
        of_unit = [result for result in asked if result.unit == unit and result.ci_lower is not None]
        units = min((r.effective_units for r in of_unit if r.effective_units is not None), default=None)
        blocks = max(result.blocks or 0 for result in of_unit)
        level = f"{100 * (of_unit[0].ci_level or 0):g} % intervals"
        known = "" if units is None else f", {units:,.0f} effective units in {plural(blocks, 'block')}"
        notes.append(f"{level}: the unit is the {unit}{known}")
        if units is not None and units < _FEW_UNITS:
            notes.append(f"warning: fewer than {_FEW_UNITS} effective units, so these intervals are rough")
        if unit == "row":
            notes.append("each row is its own unit: too narrow if rows come in groups; name their column with --unit")
    why: dict[str, list[str]] = {}
    for result in asked:
        if result.ci_lower is None and result.ci_reason and result.value == result.value:
            why.setdefault(result.ci_reason, []).append(f"{result.metric}[{result.of}]")
    notes += [f"no interval of {few(list(dict.fromkeys(names)))}: {reason}" for reason, names in why.items()]
    tested = sum(result.p_value is not None for result in asked)
    if tested > 1:
        notes.append(f"p is adjusted for {plural(tested, 'comparison')} (Holm); intervals are not")
    return notes


def sampling_said(results: Sequence[Scalar]) -> str:
    """The same as sentences, for a page."""
    notes = [f"{note.removeprefix('warning: ')}." for note in sampling_notes(results)]
    return " ".join(note if note.startswith("p ") else f"{note[:1].upper()}{note[1:]}" for note in notes)
