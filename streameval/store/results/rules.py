"""Rules: conditions on a night, for schedulers.

A rule is a line of text::

    roc_auc[score_lr] >= 0.97            a bound: >=, >, <=, < or ==
    aul[cluster_loose] drop <= 0.01      how far below the usual value; `rise` above, `change` either way
    rows drop <= 50%                     the same in per cent of the usual value
    nulls[label] <= 5%                   in per cent of the night's rows
    age <= 36h                           hours since the newest night ended (UTC); also m, d
    missing == 0                         days without a night, up to the newest
    aul drop <= 0.01 or undecided        passes where there are fewer than 3 nights to compare with

The usual value is the median of the last 7 complete nights before that did not fail the same rule, so that a bad week
does not become the norm. With fewer than 3 the rule is undecided. A null value fails. An interval is judged at its
worse end, and so is the usual value: a pass is certain.

==================  =================================================================================
``rows``            rows of the night
``positives``       positive rows; in per cent, their share of the labelled rows
``nulls[column]``   null values of a label, id or class column, null or NaN values of a score; in per
                    cent, their share of the rows
==================  =================================================================================
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, NoReturn

from streameval.errors import OptionError
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.results import Scalar

__all__ = ["BASELINE", "ENOUGH", "ESTIMATED", "FACTS", "LIVE", "Rule", "Verdict", "judge"]

BASELINE = 7  # nights that the usual value is the median of
ENOUGH = 3  # of them, at least
FACTS = ("rows", "positives", "nulls")  # of a night, without its states
LIVE = ("age", "missing")  # of the store as it is now
ESTIMATED = ("(an estimate)", "(the worse end of its interval)")  # how a verdict says that a value is not exact
_UNITS = {"m": 1 / 60, "h": 1.0, "d": 24.0}
_COMPARED = ("drop", "rise", "change")
_SIGNS = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    "==": lambda value, bound: value == bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}
_PARTS = (  # of a rule, one after the other: name, pattern, what is expected there
    (
        "metric",
        re.compile(r"(?:(?!>=|<=|==)[^\s\[\]<>])+"),
        "the name of a metric, or rows, positives, nulls, age, missing",
    ),
    ("of", re.compile(r"\[([^\[\]]+)\]|(?!\[)"), "a column in brackets"),
    ("how", re.compile(r"(drop|rise|change)\b|(?=[<>=])"), "drop, rise, change or a comparison (>=, >, <=, <, ==)"),
    ("sign", re.compile(r">=|<=|==|>(?!>)|<(?!<)"), "a comparison (>=, >, <=, <, ==)"),
    ("bound", re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"), "a number"),
    ("unit", re.compile(r"[%mhd](?=\s|$)|(?=\s|$)"), "%, m, h, d or the end"),
    ("lenient", re.compile(r"(or\s+undecided)|$"), "the end, or 'or undecided'"),
)


@dataclass(frozen=True)
class Rule:
    """A parsed rule.

    Attributes
    ----------
    name : of the rule, by default its text
    text : as it was written
    metric, of : metric or fact, and its column; `of` may be left out where there is only one
    how : ``drop``, ``rise`` or ``change`` from the usual value; empty for the value itself
    sign, bound : the comparison; a bound on `age` is in hours
    share : whether the bound was in per cent; then it is a fraction
    lenient : whether an undecided night passes

    Examples
    --------
    >>> rule = Rule.read("aul[cluster_loose] drop <= 5% or undecided")
    >>> rule.metric, rule.of, rule.how, rule.bound, rule.lenient
    ('aul', 'cluster_loose', 'drop', 0.05, True)
    """

    name: str
    text: str
    metric: str
    of: str | None
    how: str
    sign: str
    bound: float
    share: bool = False
    lenient: bool = False

    @classmethod
    def read(cls, text: str, name: str = "") -> Rule:
        """Parse a rule.

        Raises
        ------
        OptionError
            If it is malformed; the message points at the place.
        """
        parts, at, places = dict[str, str](), 0, dict[str, int]()
        for part, pattern, expected in _PARTS:
            at += len(text[at:]) - len(text[at:].lstrip()) if part != "unit" else 0
            found = pattern.match(text, at)
            if found is None:
                _refuse(text, at, f"expected {expected}")
            places[part] = at
            parts[part] = (found[1] if pattern.groups else found[0]) or ""
            at = found.end()
        if text[at:].strip():
            _refuse(text, at, "expected the end")
        unit, share, bound = parts["unit"], parts["unit"] == "%", float(parts["bound"])
        rule = cls(
            name or " ".join(text.split()),
            " ".join(text.split()),
            parts["metric"],
            parts["of"] or None,
            parts["how"],
            parts["sign"],
            bound / 100 if share else bound * _UNITS.get(unit, 1.0),
            share,
            bool(parts["lenient"]),
        )
        rule._check(text, places, unit)
        return rule

    def _check(self, text: str, places: dict[str, int], unit: str) -> None:
        """Refuse parts that do not go together."""
        if self.how and self.sign not in ("<=", "<"):
            _refuse(text, places["sign"], f"a {self.how} is bounded from above: <= or <")
        if self.metric == "nulls" and self.of is None:
            _refuse(text, places["of"], "nulls are of a column, such as nulls[label]")
        if self.metric in ("rows", "positives", *LIVE) and self.of is not None:
            _refuse(text, places["of"], f"{self.metric} is of the night, not of a column")
        if self.metric in LIVE and self.how:
            _refuse(text, places["how"], f"{self.metric} has no usual value; compare it with a bound")
        if (self.metric == "age") != (unit in _UNITS):
            known = (
                "an age has a unit: m, h or d, such as 36h"
                if self.metric == "age"
                else "only an age has a unit of time"
            )
            _refuse(text, places["unit"], known)
        if self.share and not self.how and self.metric not in ("positives", "nulls"):
            _refuse(
                text, places["unit"], f"{self.metric} has no share; % belongs to drop, rise, change, nulls, positives"
            )

    @property
    def labelled(self) -> bool:
        """Whether it speaks of labels, which may come late."""
        return self.metric not in ("rows", "nulls", *LIVE)

    def limit(self) -> str:
        """The bound as messages have it."""
        number = (
            f"{self.bound * 100:g}%"
            if self.share
            else f"{self.bound:g}h"
            if self.metric == "age"
            else f"{self.bound:g}"
        )
        return f"{self.how} {self.sign} {number}".strip()


def _refuse(text: str, at: int, expected: str) -> NoReturn:
    place = f"at {text[at:].strip()!r} (column {at + 1})" if text[at:].strip() else "at its end"
    msg = f"{text!r} is no rule; {place}: {expected}; write 'roc_auc[score] >= 0.97' or 'aul[cluster] drop <= 0.01'"
    raise OptionError(msg)


@dataclass(frozen=True)
class Verdict:
    """What a rule says of one value.

    Attributes
    ----------
    outcome : ``passed``, ``failed`` or ``undecided``
    value : the night's value at its worse end; NaN if it is null
    usual : the usual value that it was compared with; NaN without one
    nights : number of nights that the usual value is of
    reason : what was compared, in words
    """

    outcome: str
    value: float
    usual: float
    nights: int
    reason: str


def judge(rule: Rule, result: Scalar, before: Sequence[Scalar]) -> Verdict:
    """Judge a value.

    Parameters
    ----------
    rule : Rule
    result : Scalar
        The night's value.
    before : sequence of Scalar
        Values of the nights that give the usual one, at most `BASELINE`.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> usual = [Scalar.certain("m", value) for value in (0.5, 0.75, 0.75)]
    >>> judge(Rule.read("m drop <= 0.1"), Scalar.certain("m", 0.5), usual)
    Verdict(outcome='failed', value=0.5, usual=0.75, nights=3, reason='0.25 below the usual 0.75 (3 nights)')
    """
    low, high = _ends(result)
    if math.isnan(low) or math.isnan(high):
        return Verdict("failed", math.nan, math.nan, 0, f"{rule.metric} is null: {result.reason or 'undefined'}")
    if not rule.how:
        return _bounded(rule, low, high, result)
    known = [ends for ends in map(_ends, before) if not math.isnan(ends[0])]
    worse = low if rule.how == "drop" else high
    if len(known) < ENOUGH:
        reason = f"undecided: {plural(len(known), 'night')} to compare with, {ENOUGH} are needed"
        return Verdict("passed" if rule.lenient else "undecided", worse, math.nan, len(known), reason)
    usual_low, usual_high = (median(ends[side] for ends in known) for side in (0, 1))
    fall, climb = usual_high - low, high - usual_low
    moved, usual, worse = max(
        [(fall, usual_high, low)] * (rule.how != "rise") + [(climb, usual_low, high)] * (rule.how != "drop"),
        key=lambda side: side[0],
    )
    found = _compared(rule, moved, usual, worse, len(known))
    return replace(found, reason=f"{found.reason} {_kind(result)}".strip())


def _ends(result: Scalar) -> tuple[float, float]:
    """The interval of a value; an estimate has only the value."""
    return tuple(result.value if math.isnan(end) else end for end in (result.lower, result.upper))  # type: ignore[return-value]


def _bounded(rule: Rule, low: float, high: float, result: Scalar) -> Verdict:
    """Judge the value itself."""
    worse = low if ">" in rule.sign else high
    passed = _SIGNS[rule.sign](worse, rule.bound) and (rule.sign != "==" or low == high)
    reason = _kind(result)
    return Verdict("passed" if passed else "failed", worse, math.nan, 0, reason)


def _kind(result: Scalar) -> str:
    """What a value is if it is not exact, in words."""
    if result.exact or result.lower == result.upper:
        return ""
    return ESTIMATED[0 if math.isnan(result.lower) else 1]


def _compared(rule: Rule, moved: float, usual: float, worse: float, nights: int) -> Verdict:
    """Judge the distance from the usual value."""
    distance = (moved / abs(usual) if usual else 0.0 if moved <= 0 else math.inf) if rule.share else moved
    passed = _SIGNS[rule.sign](distance, rule.bound)
    side = "below" if worse < usual else "above"
    reason = f"{abs(worse - usual):.6g} {side} the usual {usual:.6g} ({plural(nights, 'night')})"
    return Verdict("passed" if passed else "failed", worse, usual, nights, reason)
