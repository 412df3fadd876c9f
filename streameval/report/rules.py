"""Outcomes of rules for an evaluation: one row per rule, and a sentence on failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streameval.report.elements import Cell, Head, Row, Section, Table, Text
from streameval.report.sentences import joined
from streameval.report.values import number
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.report.elements import Mark

MARKS: dict[str, Mark] = {"ok": "passed", "FAIL": "failed", "undecided": "failed"}
_NAMED = 3  # rules that a sentence names


class Ruled(Protocol):
    """The outcome of a rule."""

    @property
    def rule(self) -> str:
        """Name of the rule."""

    @property
    def text(self) -> str:
        """The rule as it was written."""

    @property
    def value(self) -> float:
        """The value that was judged."""

    @property
    def reason(self) -> str:
        """What was compared, in words."""

    @property
    def word(self) -> str:
        """The outcome in a word."""


class Judged(Ruled, Protocol):
    """The outcome of a rule for an evaluation."""

    @property
    def ci_lower(self) -> float | None:
        """Lower end of its interval."""

    @property
    def ci_upper(self) -> float | None:
        """Upper end of its interval."""

    @property
    def passed(self) -> bool:
        """Whether it was decided, and passed."""


def rules_said(judgements: Sequence[Judged]) -> list[Text]:
    """A sentence with the number of rules that pass, and the names of those that do not."""
    if not judgements:
        return []
    failed = [one.rule for one in judgements if not one.passed]
    if not failed:
        return [Text("The rule passes." if len(judgements) == 1 else f"All {len(judgements)} rules pass.", "lead")]
    named = [*failed[:_NAMED], *([f"{len(failed) - _NAMED} more"] if len(failed) > _NAMED else [])]
    verb = "do" if len(failed) > 1 else "does"
    return [Text(f"{len(failed)} of {plural(len(judgements), 'rule')} {verb} not pass: {joined(named)}.", "lead")]


def rules_section(judgements: Sequence[Judged]) -> Section:
    """Every rule with its value and outcome."""
    return Section("rules", "Rules", (_table(judgements),) if judgements else ())


def _table(judgements: Sequence[Judged]) -> Table:
    named, why = any(one.text != one.rule for one in judgements), any(one.reason for one in judgements)
    rows = []
    for one in judgements:
        ends = one.ci_lower, one.ci_upper
        interval = f"{number(ends[0])} to {number(ends[1])}" if ends[0] is not None and ends[1] is not None else ""
        order = one.value if one.value == one.value else None
        cells = (
            *([Cell(one.text if one.text != one.rule else "")] if named else []),
            Cell(number(one.value, 6), interval, order=order),
            Cell(one.word, mark=MARKS.get(one.word, "unclear")),
            *([Cell(one.reason)] if why else []),
        )
        rows.append(Row((one.rule,), cells))
    heads = (
        Head("rule"),
        *([Head("definition")] if named else []),
        Head("value", number=True),
        Head("outcome"),
        *([Head("why")] if why else []),
    )
    return Table("Outcomes of rules", heads, tuple(rows))
