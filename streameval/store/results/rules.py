"""Rules: conditions on the metrics of a night, for schedulers.

A rule is a line of text::

    roc_auc[score_lr] >= 0.97            a bound: >=, >, <= or <
    aul[cluster_loose] drop <= 0.01      how far below the nights before

The baseline of a drop is the median of the last 7 nights that passed; nights that failed any rule are left out, so that
a bad week does not become the norm. Without a baseline the rule passes, with a notice. A null value fails. An interval
is judged at its worse end, and so is the baseline: a pass is certain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.results import Scalar

__all__ = ["BASELINE", "Check", "Rule", "Verdict", "judge"]

BASELINE = 7  # passing nights
_RULE = re.compile(
    r"\s*(?P<metric>[^\s\[\]<>]+)\s*(?:\[(?P<of>[^\]]+)\])?\s*(?P<drop>\bdrop\b)?\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>\S+)\s*"
)
_SIGNS = {
    ">=": lambda value, bound: value >= bound,
    ">": lambda value, bound: value > bound,
    "<=": lambda value, bound: value <= bound,
    "<": lambda value, bound: value < bound,
}


@dataclass(frozen=True)
class Rule:
    """A parsed rule.

    Attributes
    ----------
    text : as it was written
    metric, of : metric and column; `of` may be left out if there is only one column
    drop : whether it bounds the drop below the baseline
    sign, bound : the comparison

    Examples
    --------
    >>> Rule.read("aul[cluster_loose] drop <= 0.01").drop
    True
    """

    text: str
    metric: str
    of: str | None
    drop: bool
    sign: str
    bound: float

    @classmethod
    def read(cls, text: str) -> Rule:
        """Parse a rule.

        Raises
        ------
        OptionError
            If it is malformed.
        """
        found = _RULE.fullmatch(text)
        try:
            bound = float(found["bound"]) if found else float("nan")
        except ValueError:
            bound = float("nan")
        if found is None or bound != bound or (found["drop"] and ">" in found["sign"]):
            msg = f"{text!r} is no rule; write 'roc_auc[score] >= 0.97' or 'aul[cluster] drop <= 0.01'"
            raise OptionError(msg)
        return cls(text.strip(), found["metric"], found["of"], bool(found["drop"]), found["sign"], bound)


@dataclass(frozen=True)
class Verdict:
    """Outcome of one rule for a night.

    Attributes
    ----------
    rule : as it was written
    passed : whether it holds
    value : the night's value at its worse end; None if it is null
    baseline : median that a drop is measured from, if there is one
    reason : what was compared, in words
    """

    rule: str
    passed: bool
    value: float | None
    baseline: float | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in ("rule", "passed", "value", "baseline", "reason")}


@dataclass(frozen=True)
class Check:
    """Outcome of all rules for a night.

    Attributes
    ----------
    partition : the night
    verdicts : one for each rule
    """

    partition: str
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether all rules hold."""
        return all(verdict.passed for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = [verdict.to_dict() for verdict in self.verdicts]
        return {"partition": self.partition, "passed": self.passed, "rules": told}


def judge(rules: Sequence[Rule], nights: Sequence[str], results: Mapping[tuple[str, Rule], Scalar]) -> Check:
    """Judge the last night; the nights before it give the baselines.

    Parameters
    ----------
    rules : sequence of Rule
    nights : sequence of str
        Partitions in order.
    results : mapping of (night, rule) to Scalar
        The value of the rule's metric that night.
    """
    passing: list[str] = []
    check = Check("", ())
    for night in nights:
        verdicts = tuple(_verdict(rule, results[night, rule], _before(rule, passing, results)) for rule in rules)
        check = Check(night, verdicts)
        if check.passed:
            passing.append(night)
    return check


def _before(rule: Rule, passing: Sequence[str], results: Mapping[tuple[str, Rule], Scalar]) -> float | None:
    """The baseline: the median of the last passing nights, each at its upper end."""
    known = [_end(results[night, rule], upper=True) for night in passing[-BASELINE:]]
    return median(known) if known else None


def _end(result: Scalar, *, upper: bool) -> float:
    """An end of the certain interval; the value of an estimate, which has none."""
    end = result.upper if upper else result.lower
    return result.value if end != end else end


def _verdict(rule: Rule, result: Scalar, baseline: float | None) -> Verdict:
    """Judge one night by one rule."""
    worse = _end(result, upper=not rule.drop and ">" not in rule.sign)
    if worse != worse:
        return Verdict(rule.text, False, None, None, f"{rule.metric} is null: {result.reason or 'undefined'}")
    end = (
        "" if result.exact else " (the worse end of its interval)" if result.upper == result.upper else " (an estimate)"
    )
    if not rule.drop:
        passed = _SIGNS[rule.sign](worse, rule.bound)
        return Verdict(rule.text, passed, worse, None, f"{rule.metric} is {worse:.6g}{end}")
    if baseline is None:
        return Verdict(rule.text, True, worse, None, f"{rule.metric} is {worse:.6g}{end}; no passing night before it")
    drop = baseline - worse
    passed = _SIGNS[rule.sign](drop, rule.bound)
    where = f"{drop:.6g} below" if drop >= 0 else f"{-drop:.6g} above"
    reason = f"{rule.metric} is {worse:.6g}{end}, {where} the baseline {baseline:.6g}"
    return Verdict(rule.text, passed, worse, baseline, reason)
