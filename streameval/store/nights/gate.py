"""The gate: selects the nights to judge, keeps failures, and decides whether a scheduler may continue.

Each rule judges a night once, and the judgement is valid until the night is folded again. A failed night fails every
check, so that a retry does not open the gate. A rule that is new to the store judges the newest night and all nights
that are folded later.

`streameval.store.nights.judgements` stores them. The outcomes are:

============= ===================================================================================
``passed``    the night satisfies the rule
``failed``    fails every check until the night is replaced, removed, or accepted
``undecided`` too few nights to compare with, or no sampling interval; the next check judges again
``earlier``   the night was folded before the rule existed, and was never judged by it
============= ===================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import islice, pairwise
from math import inf, nan
from typing import TYPE_CHECKING

import pyarrow as pa

from streameval.errors import DataError, OptionError
from streameval.evaluation.families import FAMILIES
from streameval.report.terminal import Shown
from streameval.results import Judgement, Scalar, Source
from streameval.rules import (
    BASELINE,
    DRIFTS,
    ENOUGH,
    EVERY,
    FACTS,
    LIVE,
    Rule,
    difference,
    judge,
    judge_slices,
    named_rules,
    undecided,
)
from streameval.saving import LINEAGE, Saved
from streameval.store.files.entries import fact
from streameval.store.nights.drift import drift_of, inexact, score_request
from streameval.store.nights.judgements import BUILT_IN, COMPLETE, PRESENT, Judgements, digests
from streameval.store.nights.partitions import day_of, is_between, span, suggest_names
from streameval.store.nights.replicates import NIGHTS, ReplicateCache
from streameval.store.nights.windows import RuleNights, judge_usual, judge_year
from streameval.wording import digits, few, labelled_rows, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from streameval.store.files.entries import Entry
    from streameval.store.nights.results import MetricSeries


RECENT = 90  # number of nights shown on a page
_UNDATED = ", and age, missing, always and --mature need one; move it to a folder such as night=2026-01-31"


@dataclass(frozen=True, repr=False)
class Check(Shown, Saved):
    """Outcome of a check.

    Attributes
    ----------
    partition : the newest night that the check covers
    nights : number of nights that the check covers
    judgements : judgements made now, those that keep the gate closed, and those of the newest night and of requested
        nights, in order of the nights
    judged : number of judgements made now
    passed : whether no judgement keeps the gate closed
    odd : other unusual facts of the newest failing night, in words
    notes : the error of rules that are read every night, and the share of labelled rows, in words
    recent : the known judgements of the last `RECENT` nights
    source : where the judgements come from
    """

    partition: str
    nights: int
    judgements: tuple[Judgement, ...]
    judged: int
    odd: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    recent: tuple[Judgement, ...] = field(default=(), compare=False)
    source: Source = field(default_factory=Source, compare=False)

    @property
    def passed(self) -> bool:
        """Whether no judgement failed or is undecided, except accepted ones."""
        return all(one.passed for one in self.judgements)

    @property
    def failing(self) -> tuple[str, ...]:
        """Nights that keep the gate closed, in order: they fail or are undecided."""
        return tuple(dict.fromkeys(one.partition for one in self.judgements if not one.passed))

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        facts = {"partition": self.partition, "passed": self.passed, "failing": list(self.failing)}
        notes = {"notes": list(self.notes)} if self.notes else {}
        return {**facts, "rules": [one.to_dict() for one in self.judgements], "odd": list(self.odd), **notes}

    def to_arrow(self) -> pa.Table:
        """A table with one row per judgement."""
        kinds = {"passed": pa.bool_(), "value": pa.float64(), "usual": pa.float64(), "nights": pa.int64()}
        names = ("rule", "text", "partition", "outcome", "passed", "value", "usual", "nights", "reason", "accepted")
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
        return pa.Table.from_pylist([one.to_dict() for one in self.judgements], schema)

    def render(self, *, plain: bool = False) -> RenderableType:
        """A line for each judgement, and the notes."""
        from rich.console import Group

        from streameval.report.nights import rule_lines
        from streameval.report.terminal import escape_markup

        lines = rule_lines(self.judgements, with_night=True)
        return Group(*map(escape_markup, (*lines, *self.notes, *self.odd)))

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        from streameval.report.elements import html_of
        from streameval.report.nights import check_page

        facts = self.partition, self.nights, self.judgements, self.recent, self.odd, self.notes
        return html_of(check_page(*facts, self.source))

    def exports(self) -> Mapping[str, Callable[[], str]]:
        """What makes the Prometheus text format, and the assertions of OpenLineage."""
        from streameval.report.exports import openlineage, prometheus, samples_of_rules

        lineage = partial(openlineage, self.judgements, self.source.data, "check", datetime.now(UTC))
        return {"prom": lambda: prometheus(samples_of_rules(self.judgements)), LINEAGE: lineage}


def store_rules(given: str | Sequence[str] | Mapping[str, str]) -> list[Rule]:
    """Parse the rules of a check.

    Raises
    ------
    OptionError
        If a rule is malformed, or has the name of a built-in rule.
    """
    rules = named_rules(given)
    taken = [rule.name for rule in rules if rule.name in BUILT_IN]
    if taken:
        raise OptionError(f"rule {taken[0]!r}: every store has a rule of this name; choose another")
    return rules


@dataclass(eq=False)
class Gate:
    """One check of a store.

    Attributes
    ----------
    entries : all nights of the store, in order
    nightly : computes and caches their metrics
    log : earlier judgements; new ones are added
    rules : the rules
    mature : hours after the end of a night during which rules on labels are pending
    now : the current time, UTC
    """

    entries: Sequence[Entry]
    nightly: MetricSeries
    log: Judgements
    rules: Sequence[Rule]
    mature: float
    now: datetime

    def __post_init__(self) -> None:
        self._judged_now = 0
        self.replicates = ReplicateCache(self.nightly.cache.location.child("replicates"), self.nightly, self.rules)
        self.sharing = sum(rule.always and not rule.each for rule in self.rules)  # those that share the error of a year
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._digests = {entry.partition: digests(entry) for entry in self.entries}

    def check(self, named: Sequence[str], since: str | None, *, again: bool, allow_incomplete: bool) -> Check:
        """Judge the nights that need it; see `Store.check`."""
        rules = self.rules
        names = [entry.partition for entry in self.entries]
        scope = [entry for entry in self.entries if not named or entry.partition in named]
        for rule in rules:
            self._refuse_unknown(rule)
        shared = self._shared(self.entries.index(scope[-1]) if scope else 0)
        shown = [one for one in self.log.unfolded(self.entries) if not named or one.partition in named]
        for entry in [] if allow_incomplete else scope:
            if lost := entry.left_out:
                reason = f"{len(lost)} of {plural(entry.files, 'file')} left out ({few([name for name, _ in lost])})"
                digest = self._digests[entry.partition]["", ""]
                known = self.log.find(COMPLETE, entry.partition, digest)
                shown.append(known or self._keep(self._failure(COMPLETE, entry.partition, digest, reason)))
        for rule in rules:
            if rule.metric not in LIVE:
                shown += self._judge_due(rule, scope, named, since, again)
            elif scope:
                shown.append(self._judge_live(rule, scope[-1]))
        for name in (name for name in named if name not in names):
            remedy = suggest_names(name, names) or f"it has {span(names)}"
            shown.append(self._failure(PRESENT, name, "", f"the store has no such night; {remedy}"))
        place = {name: i for i, name in enumerate(names)}
        notes = (*self._notes(shared), *self._labelled(shown), *self._newer(scope))
        shown.sort(key=lambda one: place.get(one.partition, len(place)))
        newest = scope[-1].partition if scope else named[-1]
        lasting = [rule for rule in rules if rule.metric not in LIVE]
        recent = (self._known(rule, entry) for entry in self.entries[-RECENT:] for rule in lasting)
        judged = tuple(one for one in recent if one is not None and one.outcome != "earlier")
        return Check(newest, len(scope), tuple(shown), self._judged_now, recent=judged, notes=notes)

    def _judge_due(
        self, rule: Rule, scope: Sequence[Entry], named: Sequence[str], since: str | None, again: bool
    ) -> list[Judgement]:
        """New judgements of a rule, and earlier ones that keep the gate closed."""
        fresh = rule.name not in self.log.rules
        due, names = [], {entry.partition for entry in scope}
        for entry in self.entries:
            known, newest, here = self._known(rule, entry), entry is self.entries[-1], entry.partition in names
            asked = since is not None and is_between(entry.partition, since, None)
            called = bool(named) or newest or asked
            if known is None:
                needed = called or not fresh
            else:
                needed = called and (known.outcome == "earlier" or known.text != rule.text)
                needed |= known.outcome == "undecided" and known.accepted is None
                needed |= again and (since is None or asked) and known.outcome != "earlier"
            if here and needed:
                due.append(entry)
            elif known is None and fresh and not newest:
                earlier = self._failure(
                    rule.name, entry.partition, self._digest(rule, entry), "folded before the rule was new"
                )
                self.log.add(replace(earlier, text=rule.text, outcome="earlier"))
        values: dict[str, Scalar] = {}
        alone = rule.slices or rule.always or (rule.how and rule.level is not None) or rule.metric in DRIFTS
        if due and not alone:  # together, which is faster; few nights before them are needed one by one
            first = max(self.entries.index(due[0]) - BASELINE, 0)
            entries = self.entries[first:] if rule.how else due
            values = dict(zip((entry.partition for entry in entries), self._values(rule, entries), strict=True))
        new = {entry.partition: self._judge(rule, entry, values) for entry in due}
        judged = {e.partition: one for e in scope if (one := self._known(rule, e)) and one.outcome != "earlier"}
        last = self.entries[-1].partition if self.entries else ""
        closing = {name: one for name, one in judged.items() if named or not one.passed or name == last}
        return list((closing | new).values())

    def _shared(self, before: int) -> tuple[str, int] | None:
        """The last night before a place that was judged by rules that share the error of a year, and their number."""
        for entry in reversed(self.entries[:before]):
            texts = [one.text for one in self.log.of(entry) if one.rule not in BUILT_IN and one.outcome != "earlier"]
            if count := sum(rule.always and not rule.each for rule in map(Rule.read, texts)):
                return entry.partition, count
        return None

    def _notes(self, shared: tuple[str, int] | None) -> tuple[str, ...]:
        """The error that a year of ``always`` rules may have, and what changed in how it is shared."""
        always = [rule for rule in self.rules if rule.always]
        if not always:
            return ()
        alphas = [1 - (rule.level or 0) for rule in always]
        total = sum(a / (1 if rule.each else self.sharing) for a, rule in zip(alphas, always, strict=True))
        chance = f"a false alarm within a year has a chance of at most {100 * total:.3g} %"
        notes = [f"{plural(len(always), 'rule')} read every night: {chance}"]
        if shared and shared[1] != self.sharing:
            notes.append(
                f"the error of a year is shared by {plural(self.sharing, 'rule')}, on {shared[0]} by {shared[1]}"
            )
        return tuple(notes)

    def _labelled(self, shown: Sequence[Judgement]) -> tuple[str, ...]:
        """What part of the rows of the nights with late labels their values are of."""
        if self.nightly.configuration.late is None or all(rule.metric in (*FACTS, *LIVE) for rule in self.rules):
            return ()
        names = {one.partition for one in shown if one.rule not in BUILT_IN}
        counts = [entry.labels for entry in self.entries if entry.partition in names]
        shares = [(one.neg + one.pos) / (one.neg + one.pos + one.null) for one in counts if one.null]
        return (labelled_rows(shares),) if shares else ()

    def _newer(self, scope: Sequence[Entry]) -> tuple[str, ...]:
        """How many nights got labels after they were judged by a rule on labels."""
        rules = [rule for rule in self.rules if rule.labelled]
        names = []
        for entry in scope:
            known = filter(None, (self._known(rule, entry) for rule in rules))
            if any(one.judged and entry.updated > one.judged for one in known if one.outcome != "earlier"):
                names.append(entry.partition)
        more = f"{plural(len(names), 'night')} got labels after being judged ({few(names)})"
        return (
            (f"{more}; again (--again) judges them anew, and so does a check after they are closed",) if names else ()
        )

    def _refuse_unknown(self, rule: Rule) -> None:
        """Raise `OptionError` if a rule refers to data that the store does not have."""
        level = rule.level is not None and not rule.always
        if rule.slices and (rule.than is not None or rule.slices == EVERY or level):
            raise OptionError(
                f"{rule.text!r}: a store judges the slices of one column, named in braces, by their values or for a "
                "year: leave out the level, or end in always @95%; streameval evaluate takes this rule for the files "
                "of a night"
            )
        columns = self.nightly.configuration.readable
        if rule.metric in DRIFTS:
            score_request(self.nightly.configuration, str(rule.of))
        if rule.level is not None and not self.nightly.configuration.options["unit"]:
            metric = "roc_auc" if rule.metric in DRIFTS else rule.metric
            family = self.nightly.column(metric, rule.of).w.family
            source = FAMILIES.get(family.replication.source_family, family)  # that of a sample is its score
            if source.replication.own_blocks:
                raise OptionError(
                    f"{rule.text!r}: the store keeps no blocks of units, which intervals need: add the unit to the "
                    "store (add --unit COLUMN)"
                )
        if rule.metric == "nulls" and rule.of not in columns:
            close = get_close_matches(str(rule.of), columns, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it reads {', '.join(columns)}"
            raise OptionError(f"{rule.text!r}: the store reads no column {rule.of!r}; {remedy}")
        if rule.always and self._crowded:
            raise OptionError(
                f"{rule.text!r}: {few(self._crowded)} are of one day, and always counts one night a day: keep them in "
                "stores of their own, or judge slices of one night (--by)"
            )
        self._columns_of(rule)
        if rule.slices:
            self.nightly.slicing_of(rule)

    @cached_property
    def _crowded(self) -> list[str]:
        """Nights of a day that has several."""
        by_day = dict[date, list[str]]()
        for entry in self.entries:
            by_day.setdefault(day_of(entry.partition, _UNDATED), []).append(entry.partition)
        return next((names for names in by_day.values() if len(names) > 1), [])

    def _columns_of(self, rule: Rule) -> list[tuple[str, str]]:
        """The states that a rule reads: two for a difference."""
        if rule.metric in FACTS or rule.metric in LIVE:
            return [("", "")]
        if rule.name not in self._columns:
            columns = [rule.of] if rule.than is None else [rule.of, rule.than]
            metric = "roc_auc" if rule.metric in DRIFTS else rule.metric  # which every score has
            requests = [self.nightly.column(metric, of).w for of in columns]
            self._columns[rule.name] = [(w.group, w.of) for w in requests]
        return self._columns[rule.name]

    def _digest(self, rule: Rule, entry: Entry) -> str:
        """The digest of those data of a night that a rule reads."""
        by_column = self._digests[entry.partition]
        return " ".join(by_column.get(column, by_column["", ""]) for column in self._columns_of(rule))

    def _known(self, rule: Rule, entry: Entry) -> Judgement | None:
        return self.log.find(rule.name, entry.partition, self._digest(rule, entry))

    def _judge(self, rule: Rule, entry: Entry, values: Mapping[str, Scalar]) -> Judgement:
        """Judge a night by a rule, and keep the judgement unless it is pending because labels may still arrive."""
        label = self.nightly.configuration.folding.label.column
        labelled = rule.labelled or (rule.metric == "nulls" and rule.of == label)
        until = _end(entry.partition, self.mature) if labelled and self.mature else self.now
        digest = self._digest(rule, entry)
        if self.now < until:
            pending = f"labels are mature at {until:%Y-%m-%dT%H:%MZ}"
            return replace(
                self._failure(rule.name, entry.partition, digest, pending), text=rule.text, outcome="pending"
            )
        judgement = self._judged(rule, entry, values)
        return self._keep(replace(judgement, partition=entry.partition, digest=digest, judged=self.now), entry.updated)

    def _judged(self, rule: Rule, entry: Entry, values: Mapping[str, Scalar]) -> Judgement:
        """The judgement of a night, by its values alone or by its replicates."""
        at, nights = self.entries.index(entry), RuleNights(self.entries, partial(self._known, rule))
        earlier = nights.usual(at) if rule.how else iter(())
        if rule.metric in DRIFTS:
            return self._judge_drift(rule, at, nights)
        if rule.always or (rule.how and rule.level is not None):
            return self._judge_replicates(rule, at, nights)
        if rule.slices:
            before = [self.nightly.slices(other, rule) for other in islice(earlier, BASELINE)]
            judgement = judge_slices(rule, self.nightly.slices(entry, rule), before)
        else:
            some = (values.get(other.partition) or self._values(rule, [other])[0] for other in earlier)
            defined = (value for value in some if value.value == value.value)
            judgement = judge(rule, values[entry.partition], list(islice(defined, BASELINE)))
        if judgement.reason.endswith(f"{ENOUGH} are needed"):
            judgement = replace(judgement, reason=judgement.reason + nights.resumes(at, judgement.nights))
        return judgement

    def _judge_drift(self, rule: Rule, at: int, nights: RuleNights) -> Judgement:
        """Judge how far the scores of a night are from those of its usual nights."""
        entry, usual = self.entries[at], list(islice(nights.usual(at), BASELINE))
        if len(usual) < ENOUGH:
            why = f"{plural(len(usual), 'night')} to compare with, {ENOUGH} are needed"
            return undecided(rule, nan, len(usual), why + nights.resumes(at, len(usual)))
        stored, kind = self.nightly.stored, rule.metric.removeprefix("drift_")
        night, others, of = stored.of(entry), stored.of(*usual), str(rule.of)
        if why := inexact(stored.of(entry, *usual), score_request(stored.configuration, of)[0]):
            return undecided(rule, nan, len(usual), why)
        try:
            edges = self.log.edges(rule.name, self.entries[max(nights.accepted(at), default=-1) + 1 :])
            drift = drift_of(night, others, self.nightly.engine, of, edges)
        except DataError as error:
            return judge(rule, Scalar.undefined(rule.metric, str(error)))
        result = replace(Scalar.certain(rule.metric, getattr(drift, kind)), ci_reason=drift.reason)
        of_labelled = "" if drift.labelled_share is None else f", of the {drift.labelled_share:.2%} labelled rows"
        reason = f"from {plural(len(usual), 'usual night')}{of_labelled}"
        if rule.level is not None and drift.reason is None:
            lower = getattr(drift, f"{kind}_lower")
            result = replace(result, ci_lower=lower, ci_upper=inf)
            reason += f", at least {digits(lower)} @{100 * rule.level:g}% by {drift.unit}"
        edges = drift.edges if kind == "psi" else ()
        judgement = replace(judge(rule, result), nights=len(usual), edges=edges)
        return judgement if judgement.outcome == "undecided" else replace(judgement, reason=reason)

    def _judge_replicates(self, rule: Rule, at: int, nights: RuleNights) -> Judgement:
        """Judge a night together with those before it, by their replicates."""
        first = max(0, at + 1 - NIGHTS)
        entries = self.entries[first : at + 1]
        found = [self.replicates.of(rule, entry) for entry in entries]
        shared = 1 if rule.each or not rule.always else max(1, self.sharing)
        if not rule.how:
            days = [day_of(entry.partition, _UNDATED).toordinal() for entry in entries]
            return judge_year(rule, days, found, nights.in_windows(at)[first:], shared)
        usual = {entry.partition for entry in nights.usual(at)}
        behind = [entry.partition in usual for entry in entries]
        accepted = nights.accepted(at)
        sides = [sum(i <= place for i in accepted) for place in range(first, at + 1)]
        return judge_usual(rule, found, behind, sides, shared, nights.resumes(at, sum(behind)))

    def _values(self, rule: Rule, entries: Sequence[Entry]) -> list[Scalar]:
        """The values of some nights that a rule judges."""
        if rule.metric in FACTS:
            return [fact(entry, rule.metric, rule.of, share=rule.share and not rule.how) for entry in entries]
        level = rule.interval_level
        if level is not None and rule.of is not None and rule.than is not None:
            return self.nightly.differences(entries, rule.metric, (rule.of, rule.than), level)
        values = self.nightly.values(entries, rule.metric, rule.of, level)
        if rule.than is None:
            return values
        return list(map(difference, values, self.nightly.values(entries, rule.metric, rule.than)))

    def _judge_live(self, rule: Rule, newest: Entry) -> Judgement:
        """Judge the current store by a rule on age or missing nights, at the newest of some nights."""
        if rule.metric == "age":
            value = Scalar.certain("age", (self.now - _end(newest.partition)) / timedelta(hours=1))
        else:
            value = self._missing(rule, newest)
        judgement = replace(
            judge(rule, value),
            reason=value.reason or "",
            partition=newest.partition,
            digest=self._digest(rule, newest),
            judged=self.now,
        )
        known = self._known(rule, newest)
        accepted = known is not None and known.accepted is not None
        if known and accepted and (judgement.passed or rule.metric == "age" or judgement.value <= known.value):
            return known
        if known and rule.metric == "age" and known.outcome == judgement.outcome:
            return judgement  # the same outcome at a later hour is not worth storing
        return self._keep(judgement)

    def _missing(self, rule: Rule, newest: Entry) -> Scalar:
        """The number of days without a night, from the last night whose failure was accepted up to the newest."""
        upto = self.entries[: self.entries.index(newest) + 1]
        accepted = [i for i, e in enumerate(upto[:-1]) if (one := self._known(rule, e)) and one.accepted is not None]
        days = sorted({day_of(entry.partition, _UNDATED) for entry in upto[accepted[-1] if accepted else 0 :]})
        lost = {day_of(one.partition, _UNDATED) for one in self.log.unfolded(self.entries) if one.accepted is None}
        lost -= {*days}
        spans = pairwise(sorted({*days} | lost))
        absent = sorted({a + timedelta(days=i) for a, b in spans for i in range(1, (b - a).days)} | lost)
        listed = few([day.isoformat() for day in absent])
        return replace(Scalar.certain("missing", len(absent)), reason=f"no {listed}" if absent else None)

    def _failure(self, rule: str, partition: str, digest: str, reason: str) -> Judgement:
        return Judgement(rule, rule, "failed", nan, reason, partition=partition, digest=digest, judged=self.now)

    def _keep(self, judgement: Judgement, updated: datetime | None = None) -> Judgement:
        """Record a judgement unless it repeats one of the same labels, compared as plain values (NaN equals NaN)."""
        known = self.log.find(judgement.rule, judgement.partition, judgement.digest)
        newer = bool(updated and known and known.judged and updated > known.judged)
        if known is None or newer or known.to_dict() != judgement.to_dict():
            self.log.add(judgement)
            self._judged_now += 1
        return judgement


def _end(name: str, hours: float = 0.0) -> datetime:
    """The time that is a number of hours after the end of the day of a night, UTC; at most the end of the calendar."""
    try:
        return datetime.combine(day_of(name, _UNDATED), time(), UTC) + timedelta(days=1, hours=hours)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
