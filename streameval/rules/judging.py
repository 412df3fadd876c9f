"""Judge values by a rule.

A value has an interval: its bounds, or for a rule with a level its sampling interval, widened on both sides by the
distance of the bounds from the value. One end of the interval is compared with the bound of the rule, or its distance
from the usual value is. A rule without a level, or with ``proven``, uses the worse end; a rule with a level alone uses
the better end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from streameval.results import Scalar, near_slice, slice_name
from streameval.wording import digits, few, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.rules.grammar import Rule

BASELINE = 7  # the usual value is the median of at most this number of nights
ENOUGH = 3  # least number of earlier nights
ESTIMATED = ("(an estimate)", "(the worse end of its interval)")  # endings of a reason if the value is not exact
_SIGNS = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    "==": lambda value, bound: value == bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a rule for one value.

    Attributes
    ----------
    outcome : ``passed``, ``failed`` or ``undecided``
    value : the judged value; for a rule without a level, the worse end of its bounds; NaN if it is null
    usual : the usual value that it was compared with; NaN without one
    nights : number of nights behind the usual value
    reason : the comparison, in words
    """

    outcome: str
    value: float
    usual: float
    nights: int
    reason: str


def outcome_word(outcome: str) -> str:
    """An outcome as tables show it.

    Examples
    --------
    >>> [outcome_word(outcome) for outcome in ("passed", "failed", "undecided")]
    ['ok', 'FAIL', 'undecided']
    """
    return {"passed": "ok", "failed": "FAIL"}.get(outcome, outcome)


def judge(rule: Rule, result: Scalar, before: Sequence[Scalar] = ()) -> Verdict:
    """Judge a value.

    Parameters
    ----------
    rule : Rule
    result : Scalar
        The value, with its sampling interval at the level of the rule, if it has one.
    before : sequence of Scalar
        Values of the nights behind the usual value, at most `BASELINE`.

    Examples
    --------
    >>> from streameval.rules import Rule
    >>> usual = [Scalar.certain("m", value) for value in (0.5, 0.75, 0.75)]
    >>> judge(Rule.read("m drop <= 0.1"), Scalar.certain("m", 0.5), usual)
    Verdict(outcome='failed', value=0.5, usual=0.75, nights=3, reason='0.25 below the usual 0.75 (3 nights)')
    """
    low, high = ends = _ends(result)
    if math.isnan(low) or math.isnan(high):
        return Verdict("failed", math.nan, math.nan, 0, f"{rule.metric} is null: {result.reason or 'undefined'}")
    if rule.level is not None:
        if result.ci_lower is None or result.ci_upper is None:
            reason = f"no interval: {result.ci_reason or 'none was computed'}"
            return _undecided(rule, result.value, 0, reason)
        ends = result.ci_lower - (result.value - low), result.ci_upper + (high - result.value)
    if not rule.how:
        return _bounded(rule, *ends, result)
    known = [ends for ends in map(_ends, before) if not math.isnan(ends[0])]
    if len(known) < ENOUGH:
        worse = result.value if rule.level is not None else low if rule.how == "drop" else high
        return _undecided(
            rule, worse, len(known), f"{plural(len(known), 'night')} to compare with, {ENOUGH} are needed"
        )
    found = _compared(rule, ends, known, result.value)
    return replace(found, reason=_said(rule, ends, result, found.reason))


def judge_slices(rule: Rule, results: Sequence[Scalar], before: Sequence[Sequence[Scalar]] = ()) -> Verdict:
    """Judge each slice as `judge` does; the rule fails if one slice fails.

    Parameters
    ----------
    rule : Rule
    results : sequence of Scalar
        The metric in every slice of the slicing. If the rule judges several slices, those without a value are left out.
    before : sequence of sequences
        The same for each night behind the usual values.

    Examples
    --------
    >>> from streameval.rules import Rule
    >>> values = [Scalar("m", 0.5, slice={"c": "DE"}), Scalar("m", 0.9, slice={"c": "FR"})]
    >>> judge_slices(Rule.read("m{c=*} >= 0.8"), values).reason
    '1 of 2 slices: {c=DE} 0.5'
    >>> judge_slices(Rule.read("m{c=FRR} >= 0.8"), values).reason
    'm is null: there is no such slice; did you mean {c=FR}?'
    """
    found = {slice_name(one.slice): one for one in results if rule.judges(one.slice or {})}
    earlier = [{slice_name(one.slice): one for one in night} for night in before]
    known = {name: one for name, one in found.items() if one.value == one.value}
    if not known:
        why = next((one.reason for one in found.values()), None) or f"there is no such slice{_meant(rule, results)}"
        return Verdict("failed", math.nan, math.nan, 0, f"{rule.metric} is null: {why}")
    verdicts = {
        name: judge(rule, one, [night[name] for night in earlier if name in night]) for name, one in known.items()
    }
    for outcome in ("failed", "undecided"):
        hit = {name: verdict for name, verdict in verdicts.items() if verdict.outcome == outcome}
        if hit:
            ordered = sorted(hit, key=lambda name: _badness(rule, hit[name]), reverse=True)
            listed = [f"{name} {digits(hit[name].value)}" for name in ordered]
            worst = hit[ordered[0]]
            if len(found) == 1:
                return worst
            told = f"{len(hit)} of {plural(len(known), 'slice')}: {few(listed)}"
            return replace(worst, reason=told if outcome == "failed" else f"undecided: {told}")
    worst_name = max(verdicts, key=lambda name: _badness(rule, verdicts[name]))
    if len(found) == 1:
        return verdicts[worst_name]
    left = f"; {plural(len(found) - len(known), 'slice')} without a value" if len(found) > len(known) else ""
    return replace(verdicts[worst_name], reason=f"the worst of {plural(len(known), 'slice')}: {worst_name}{left}")


def _meant(rule: Rule, results: Sequence[Scalar]) -> str:
    """A question that suggests the nearest slice; empty if none is near."""
    named = {column: value for column, value in rule.slices if value != "*"}
    known = filter(None, (rule.values_of(one.slice or {}) for one in results))
    some = [{column: each[column] for column in named} for each in known]
    near = near_slice(named, some)
    return f"; did you mean {slice_name({**dict(rule.slices), **near})}?" if near else ""


def _badness(rule: Rule, verdict: Verdict) -> float:
    """A sort key: larger for values further on the wrong side."""
    if rule.how == "change":
        return abs(verdict.value - verdict.usual)
    if rule.how:
        return (verdict.usual - verdict.value) * (1 if rule.how == "drop" else -1)
    return (
        -verdict.value if ">" in rule.sign else verdict.value if "<" in rule.sign else abs(verdict.value - rule.bound)
    )


def difference(one: Scalar, other: Scalar) -> Scalar:
    """The difference of two values, with its bounds.

    Examples
    --------
    >>> found = difference(Scalar.certain("m", 0.75), Scalar.between("m", 0.5, 0.25, 0.625))
    >>> found.value, found.lower, found.upper
    (0.25, 0.125, 0.5)
    """
    (low, high), (other_low, other_high) = _ends(one), _ends(other)
    made = Scalar.between(one.metric, one.value - other.value, low - other_high, high - other_low)
    missing = next((side for side in (one, other) if math.isnan(side.value)), None)
    reason = None if missing is None else f"{missing.metric} of {missing.of}: {missing.reason or 'undefined'}"
    exact = one.exact and other.exact
    return replace(made, of=f"{one.of} − {other.of}", baseline=other.of, reason=reason, exact=exact)


def _undecided(rule: Rule, value: float, nights: int, reason: str) -> Verdict:
    outcome = "passed" if rule.lenient else "undecided"
    return Verdict(outcome, value, math.nan, nights, f"undecided: {reason}")


def _ends(result: Scalar) -> tuple[float, float]:
    """The bounds of a value; for an estimate without bounds, the value itself."""
    lower, upper = (result.value if math.isnan(end) else end for end in (result.lower, result.upper))
    return lower, upper


def _strict(rule: Rule) -> bool:
    """Whether the rule uses the worse end of the interval."""
    return rule.level is None or rule.proven


def _bounded(rule: Rule, low: float, high: float, result: Scalar) -> Verdict:
    """Judge the value itself."""
    judged = low if (">" in rule.sign) == _strict(rule) else high
    passed = _SIGNS[rule.sign](judged, rule.bound) and (rule.sign != "==" or low == high)
    value = judged if rule.level is None else result.value
    return Verdict("passed" if passed else "failed", value, math.nan, 0, _said(rule, (low, high), result))


def _said(rule: Rule, ends: tuple[float, float], result: Scalar, reason: str = "") -> str:
    """The reason: the interval and the comparison; without a level, the comparison and the kind of value."""
    if rule.level is None:
        return f"{reason} {_kind(result)}".strip()
    interval = f"[{digits(ends[0])}, {digits(ends[1])}] @{rule.level * 100:g}%"
    unit = f"by {result.unit}" if result.unit else ""
    return ", ".join(filter(None, (f"{interval} {unit}".strip(), reason)))


def _kind(result: Scalar) -> str:
    """The kind of an inexact value in words; empty for an exact one."""
    if result.exact or result.lower == result.upper:
        return ""
    return ESTIMATED[0 if math.isnan(result.lower) else 1]


def _compared(rule: Rule, ends: tuple[float, float], known: Sequence[tuple[float, float]], value: float) -> Verdict:
    """Judge the distance from the usual value."""
    low, high = ends
    usual_low, usual_high = (median(ends[side] for ends in known) for side in (0, 1))
    strict = _strict(rule)
    fall = usual_high - low if strict else usual_low - high
    climb = high - usual_low if strict else low - usual_high
    sides = [(fall, usual_high, low)] * (rule.how != "rise") + [(climb, usual_low, high)] * (rule.how != "drop")
    moved, usual, worse = max(sides, key=lambda side: side[0])
    distance = (moved / abs(usual) if usual else 0.0 if moved <= 0 else math.inf) if rule.share else moved
    passed = _SIGNS[rule.sign](distance, rule.bound)
    told = worse if rule.level is None else value
    side = "below" if told < usual else "above"
    reason = f"{digits(abs(told - usual))} {side} the usual {digits(usual)} ({plural(len(known), 'night')})"
    return Verdict("passed" if passed else "failed", told, usual, len(known), reason)
