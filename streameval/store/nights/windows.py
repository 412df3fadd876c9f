"""Which nights a rule takes, and its judgement where it takes several with their replicates.

======================  ========================================================================================
windows of a bound      every night that the rule judged, failed ones too; begins anew after an accepted failure
usual value             complete nights that passed, were accepted, or failed at least `FORGET` nights ago; begins
                        anew with an accepted failure; below 3 nights the rule is undecided
floor                   the 28 nights before, whatever their outcome
τ²                      the last 28 values about their mean on each side of an accepted failure
edges of PSI            those of the usual nights of the first judgement since an accepted failure
======================  ========================================================================================

`streameval.evaluation.alarms` has the statistics.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.evaluation.alarms import (
    LEAST_PAST,
    LEAST_UNITS,
    PAST,
    TOO_FEW,
    WINDOWS,
    Distance,
    End,
    distance_error,
    find_end,
    level_of,
    true_spread,
    windows,
)
from streameval.results import Judgement
from streameval.rules import (
    BASELINE,
    ENOUGH,
    SIGNS,
    bounds_of,
    combine_slices,
    farthest,
    from_usual,
    judge_null,
    undecided,
)
from streameval.store.nights.partitions import day_of
from streameval.store.nights.replicates import Replicates, series_of
from streameval.wording import digits, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.evaluation.alarms import Window
    from streameval.results import Scalar
    from streameval.rules import Rule
    from streameval.store.files.entries import Entry

FORGET = 10  # nights after which a failed one is usual
LEAST_SPREAD = 14  # least number of earlier values for τ²


@dataclass(frozen=True)
class RuleNights:
    """The nights of a store as one rule takes them.

    Attributes
    ----------
    entries : all nights, in order
    judged : the judgement of a night by the rule; None if it has none
    """

    entries: Sequence[Entry]
    judged: Callable[[Entry], Judgement | None]

    def accepted(self, before: int) -> list[int]:
        """The places of nights before a place whose failure was accepted."""
        known = ((i, self.judged(self.entries[i])) for i in range(before))
        return [i for i, one in known if one is not None and one.outcome == "failed" and one.accepted is not None]

    def usual(self, at: int) -> Iterator[Entry]:
        """The nights behind the usual value of the night at a place, latest first."""
        begin = max(self.accepted(at), default=0)
        for i in range(at - 1, begin - 1, -1):
            one = self.judged(self.entries[i])
            failed = one is not None and one.outcome == "failed" and one.accepted is None
            if not self.entries[i].incomplete and not (failed and at - i < FORGET):
                yield self.entries[i]

    def in_windows(self, at: int) -> list[bool]:
        """Whether windows of the night at a place take each night up to it."""
        begin = max(self.accepted(at), default=-1) + 1
        known = [self.judged(entry) for entry in self.entries[begin:at]]
        return (
            [False] * begin
            + [one is not None and one.outcome in ("passed", "failed", "undecided") for one in known]
            + [True]
        )

    def resumes(self, at: int, there: int) -> str:
        """When judging resumes after the night at a place, with `there` counted nights before it; empty if it does."""
        missing = ENOUGH - there
        if missing <= 0:
            return ""
        with suppress(OptionError, OverflowError):
            when = day_of(self.entries[at].partition, "") + timedelta(days=missing)
            return f"; judging resumes on {when.isoformat()} if nights are daily"
        return f"; judging resumes in {plural(missing, 'night')}"


def judge_year(
    rule: Rule, days: Sequence[int], nights: Sequence[Replicates], taken: Sequence[bool], rules: int
) -> Judgement:
    """Judge a bound by a rule that ends in ``always``.

    Parameters
    ----------
    rule : Rule
    days, nights, taken : the last nights, each with its day and whether windows take it; the last one is judged
    rules : number of rules that share the level
    """
    tonight = _judge_values(rule, nights[-1])
    defined = {name: one for name, one in tonight.items() if not math.isnan(one.value)}
    if not defined:
        return judge_null(rule, nights[-1].scalars)
    before = set[str]().union(*(_names(rule, one) for one in nights[:-1]))
    series = series_of(list(zip(days, nights, strict=True)), list(defined))
    floors = series.floors()
    level = level_of((1 - (rule.level or 0)) / rules, len(before.union(tonight)))
    recent = windows(series, np.array(taken), floors, level)
    scales = dict(zip(nights[-1].names, nights[-1].table["scale"].to_pylist(), strict=True))
    judgements = {}
    for at, (name, one) in enumerate(defined.items()):
        if one.ci_reason:
            judgements[name] = undecided(rule, one.value, 0, one.ci_reason)
        elif math.isnan(floors[-1, at]):
            judgements[name] = undecided(rule, one.value, 0, f"fewer than {LEAST_PAST} earlier nights with an error")
        else:
            judgements[name] = _judge_windows(rule, one, recent, at, scales[name], whole=all(taken))
    worst = combine_slices(rule, judgements, len(tonight))
    return replace(worst, reason=worst.reason + _count_shared(rules, before, tonight))


def _judge_values(rule: Rule, night: Replicates) -> dict[str, Scalar]:
    """The values of a night that a rule judges, by the name of their slice."""
    return {name: one for name, one in zip(night.names, night.scalars, strict=True) if rule.judges(one.slice or {})}


def _names(rule: Rule, night: Replicates) -> set[str]:
    """The names of the slices of a night that a rule judges."""
    if all(value == "*" for _, value in rule.slices):
        return set(night.names)
    return set(_judge_values(rule, night))


def _judge_windows(
    rule: Rule, tonight: Scalar, recent: dict[int, Window], at: int, scale: str, *, whole: bool
) -> Judgement:
    """Judge a slice by its windows: it fails if one of them does; `whole` if windows take every night there is."""
    sign = 1 if ">" in rule.sign else -1
    low, high = bounds_of(tonight)
    slack = high - tonight.value if sign > 0 else low - tonight.value  # of a value known up to bounds
    ends = {width: find_end(one, at, scale, rule.bound, sign) for width, one in recent.items()}
    judged = {width: one for width, one in ends.items() if isinstance(one, End)}
    if not judged:
        reasons = dict.fromkeys(str(one) for one in ends.values())
        return undecided(rule, tonight.value, 0, "; ".join(reasons))
    seen = [(float(w), one.value, one.end + slack, rule.bound - sign * one.shown) for w, one in judged.items()]
    drawn = tuple(seen) if tonight.slice is None else ()
    failed = {width: one for width, one in judged.items() if not SIGNS[rule.sign](one.end + slack, rule.bound)}
    if failed:
        width = max(failed, key=lambda width: sign * (rule.bound - failed[width].end))
        one = failed[width]
        interval = f"[−∞, {digits(one.end + slack, 4)}]" if sign > 0 else f"[{digits(one.end + slack, 4)}, ∞]"
        over = "in one night" if width == 1 else f"over {width} nights"
        reason = f"{digits(one.value, 4)} {interval} {over}, bound {digits(rule.bound)}"
        nights = int(recent[width].nights[at])
        return Judgement(rule.name, rule.text, "failed", one.value, reason, nights=nights, windows=drawn)
    change = "fall" if sign > 0 else "rise"
    finite = [(w, one.shown) for w, one in judged.items() if not math.isnan(one.shown)]
    shown = [f"{digits(size, 2)} {'in one night' if w == 1 else f'over {w}'}" for w, size in finite]
    reason = f"would have shown a {change} of {', '.join(shown)}" if shown else "no value is better"
    if short := [str(width) for width, one in ends.items() if one == TOO_FEW]:
        reason += (
            f"; windows of {' and '.join(short)} nights need more judged nights{'' if whole else ' (check --since)'}"
        )
    return Judgement(rule.name, rule.text, "passed", tonight.value, reason, windows=drawn)


def judge_usual(
    rule: Rule, nights: Sequence[Replicates], behind: Sequence[bool], sides: Sequence[int], rules: int, resumes: str
) -> Judgement:
    """Judge the distance from the usual value by a rule with a level.

    Parameters
    ----------
    rule : Rule
    nights : the last nights, the last of which is judged
    behind : which of them may be behind the usual value; not the last
    sides : for each, the number of accepted failures before it
    rules : number of rules that share the level of one that ends in ``always``
    resumes : when enough nights are there, in words
    """
    tonight = _judge_values(rule, nights[-1])
    defined = {name: one for name, one in tonight.items() if not math.isnan(one.value)}
    if not defined:
        return judge_null(rule, nights[-1].scalars)
    before = set[str]().union(*(_names(rule, one) for one in nights[:-1] if rule.always))
    alpha = 1 - (rule.level or 0)
    tests = len(before.union(tonight)) * (2 if rule.how == "change" else 1)  # a change has two sides
    level = len(WINDOWS) * level_of(alpha / rules, tests) if rule.always else alpha / 2
    series = series_of(list(enumerate(nights)), list(defined))
    squares, freedom = series.squares, series.freedom
    floored, units = np.fmax(squares[-1], series.floors(len(nights) - 1)[-1]), series.units[-1]
    judgements = {}
    for at, (name, one) in enumerate(defined.items()):
        there = ~np.isnan(series.values[:-1, at]) & ~np.isnan(squares[:-1, at])
        usual, past = np.flatnonzero(there & np.array(behind[:-1], bool))[-BASELINE:], np.flatnonzero(there)[-PAST:]
        if one.ci_reason and math.isnan(squares[-1, at]):
            judgements[name] = undecided(rule, one.value, int(usual.size), f"no interval: {one.ci_reason}")
        elif usual.size < ENOUGH or (rule.always and past.size < PAST):
            enough = ENOUGH if usual.size < ENOUGH else PAST
            found = plural(int(min(usual.size, enough) if usual.size < ENOUGH else past.size), "night")
            why = f"{found} to compare with, {enough} are needed{resumes if usual.size < ENOUGH else ''}"
            judgements[name] = undecided(rule, one.value, int(usual.size), why)
        elif math.isnan(squares[-1, at]) or units[at] < LEAST_UNITS:
            why = f"{units[at]:.3g} effective units, {LEAST_UNITS} are needed"
            judgements[name] = undecided(rule, one.value, int(usual.size), f"no interval: {why}")
        else:
            values = series.values[past, at], squares[past, at], np.array(sides)[past]
            spread = true_spread(*values) if past.size >= LEAST_SPREAD else None
            others = [(float(squares[t, at]), float(freedom[t, at])) for t in usual]
            error = distance_error(float(floored[at]), float(freedom[-1, at]), others, spread)
            earlier = [_bounds(nights[t], name, series.values[t, at], one) for t in usual]
            judgements[name] = _judge_distance(rule, one, earlier, error, level, known=spread is not None)
    worst = combine_slices(rule, judgements, len(tonight))
    return replace(worst, reason=worst.reason + _count_shared(rules, before, tonight)) if rule.always else worst


def _count_shared(rules: int, before: set[str], tonight: Iterable[str]) -> str:
    """Among how many rules and slices a level is shared."""
    slices = before.union(tonight)
    new = f" ({len(before)} before)" if before and len(slices) > len(before) else ""
    return f"; level for {plural(rules, 'rule')} and {plural(len(slices), 'slice')}{new}"


def _bounds(night: Replicates, name: str, value: float, tonight: Scalar) -> tuple[float, float]:
    """The bounds of an earlier value; those of a night whose values are exact are the value."""
    return (value, value) if tonight.exact else bounds_of(night.scalars[night.names.index(name)])


def _judge_distance(
    rule: Rule, one: Scalar, earlier: Sequence[tuple[float, float]], error: Distance, level: float, *, known: bool
) -> Judgement:
    """Judge the distance of a value from its usual value by one end of its interval."""
    from scipy.special import stdtrit

    moved, usual, _ = farthest(rule, bounds_of(one), earlier, strict=rule.strict)
    unit = abs(usual) if rule.share else 1.0
    if not unit:
        return undecided(rule, one.value, len(earlier), "the usual value is 0, of which there is no share")
    reach = -float(stdtrit(error.freedom, level)) * error.stderr
    end = (moved + reach if rule.strict else moved - reach) / unit
    passed = SIGNS[rule.sign](end, rule.bound)
    side, percent = ("at most" if rule.strict else "at least"), f" ({digits(100 * end, 4)} %)" if rule.share else ""
    parts = [from_usual(one.value, usual, len(earlier)), f"the distance is {side} {digits(end * unit, 4)}{percent}"]
    parts.append(f"{'always ' if rule.always else ''}@{(rule.level or 0) * 100:g}%")
    reason = ", ".join(
        [f"{parts[0]}, {parts[1]} {parts[2]}"] + ["nights are taken as equal but for chance"] * (not known)
    )
    outcome = "passed" if passed else "failed"
    return Judgement(rule.name, rule.text, outcome, one.value, reason, usual=usual, nights=len(earlier))
