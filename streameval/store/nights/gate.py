"""The gate: selects the nights to judge, keeps failures, and decides whether a scheduler may continue.

Each rule judges a night once, and the judgement is valid until the night is folded again. A failed night fails every
check, so that a retry does not open the gate. A rule that is new to the store judges the newest night and all nights
that are folded later.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, OptionError
from streameval.evaluation.families import FAMILIES
from streameval.results import Scalar, Source
from streameval.rules import BASELINE, FACTS, LIVE, Rule, difference, judge, judge_slices, named_rules
from streameval.saving import Saved
from streameval.store.files.entries import fact
from streameval.store.nights.judgements import BUILT_IN, COMPLETE, PRESENT, Judgement, Judgements, digests
from streameval.store.nights.partitions import date_of, date_problem, is_between, span, suggest_names
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streameval.store.files.entries import Entry
    from streameval.store.nights.results import MetricSeries


RECENT = 90  # number of nights shown on a page


@dataclass(frozen=True)
class Check(Saved):
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
    recent : the known judgements of the last `RECENT` nights
    source : where the judgements come from
    """

    partition: str
    nights: int
    judgements: tuple[Judgement, ...]
    judged: int
    odd: tuple[str, ...] = ()
    recent: tuple[Judgement, ...] = field(default=(), repr=False, compare=False)
    source: Source = field(default_factory=Source, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether no judgement failed or is undecided, except accepted ones."""
        return all(one.good for one in self.judgements)

    @property
    def failing(self) -> tuple[str, ...]:
        """Nights that keep the gate closed, in order: they fail or are undecided."""
        return tuple(dict.fromkeys(one.partition for one in self.judgements if not one.good))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = {"partition": self.partition, "passed": self.passed, "failing": list(self.failing)}
        return told | {"rules": [one.to_dict() for one in self.judgements], "odd": list(self.odd)}

    def to_arrow(self) -> pa.Table:
        """A table with one row per judgement."""
        import pyarrow as pa

        kinds = {"passed": pa.bool_(), "value": pa.float64(), "usual": pa.float64(), "nights": pa.int64()}
        names = ("rule", "text", "partition", "outcome", "passed", "value", "usual", "nights", "reason", "accepted")
        rows = [one.to_dict() for one in self.judgements]
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
        return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], schema)

    def to_html(self) -> str:
        """The text of a self-contained HTML page."""
        from streameval.report.html import html_of
        from streameval.report.nights import check_page

        return html_of(check_page(self, self.source))


def store_rules(given: Any) -> list[Rule]:
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


class Gate:
    """One check of a store.

    Parameters
    ----------
    entries : all nights of the store, in order
    nightly : MetricSeries
        Computes and caches their metrics.
    log : Judgements
        Earlier judgements; new ones are added.
    mature : float
        Hours after the end of a night during which rules on labels are pending.
    now : datetime
        The current time, UTC.
    """

    def __init__(
        self, entries: Sequence[Entry], nightly: MetricSeries, log: Judgements, mature: float, now: datetime
    ) -> None:
        self.entries = entries
        self.nightly = nightly
        self.log = log
        self.mature = mature
        self.now = now
        self.made: list[Judgement] = []
        self._columns: dict[str, tuple[tuple[str, str], ...]] = {}
        self._digests = {entry.partition: digests(entry) for entry in entries}

    def check(
        self, rules: Sequence[Rule], named: Sequence[str], since: str | None, *, again: bool, allow_incomplete: bool
    ) -> Check:
        """Judge the nights that need it; see `Store.check`."""
        scope = [entry for entry in self.entries if not named or entry.partition in named]
        list(map(self._refuse_unknown, rules))
        shown: list[Judgement] = []
        if not allow_incomplete:
            shown += [one for entry in scope if entry.incomplete for one in [self._incomplete(entry)]]
        for rule in rules:
            if rule.metric in LIVE:
                shown += self._live(rule, scope if named else scope[-1:])
            else:
                shown += self._judge_due(rule, scope, named, since, again)
        known = {entry.partition for entry in self.entries}
        shown += [self._absent(name) for name in named if name not in known]
        place = {entry.partition: i for i, entry in enumerate(self.entries)}
        shown.sort(key=lambda one: place.get(one.partition, len(place)))
        newest = scope[-1].partition if scope else named[-1]
        return Check(newest, len(scope), tuple(shown), len(self.made), recent=self._recent(rules))

    def _recent(self, rules: Sequence[Rule]) -> tuple[Judgement, ...]:
        """The known judgements of the last nights, except those of rules on the current store."""
        lasting = [rule for rule in rules if rule.metric not in LIVE]
        judgements = [self._known(rule, entry) for entry in self.entries[-RECENT:] for rule in lasting]
        return tuple(one for one in judgements if one is not None and one.outcome != "earlier")

    def _judge_due(
        self, rule: Rule, scope: Sequence[Entry], named: Sequence[str], since: str | None, again: bool
    ) -> list[Judgement]:
        """New judgements of a rule, and earlier ones that keep the gate closed."""
        fresh = rule.name not in self.log.rules
        due, seen = [], {entry.partition for entry in scope}
        for entry in self.entries:
            known, newest = self._known(rule, entry), entry is self.entries[-1]
            asked = since is not None and is_between(entry.partition, since, None)
            called = entry.partition in seen and (bool(named) or newest or asked)
            if known is None:
                needed = entry.partition in seen and (called or not fresh)
            else:
                needed = called and (known.outcome == "earlier" or known.text != rule.text)
                needed |= entry.partition in seen and known.outcome == "undecided" and known.accepted is None
                needed |= entry.partition in seen and again and (since is None or asked) and known.outcome != "earlier"
            if needed:
                due.append(entry)
            elif known is None and fresh and not newest:
                self.log.add(self._judgement(rule, entry, "earlier", "folded before the rule was new"))
        values = self._values(rule, due)
        new = {entry.partition: self._judge(rule, entry, values) for entry in due}
        judged = {e.partition: one for e in scope if (one := self._known(rule, e)) and one.outcome != "earlier"}
        closing = {
            name: one for name, one in judged.items() if named or not one.good or name == self.entries[-1].partition
        }
        return list((closing | new).values())

    def _refuse_unknown(self, rule: Rule) -> None:
        """Raise `OptionError` if a rule refers to data that the store does not have."""
        columns = self.nightly.configuration.readable
        if rule.level is not None and self._needs_unit(rule) and not self.nightly.configuration.options["unit"]:
            raise OptionError(
                f"{rule.text!r}: the store keeps no blocks of units, which intervals need: add the unit to the "
                "store (add --unit COLUMN)"
            )
        if rule.metric == "nulls" and rule.of not in columns:
            close = get_close_matches(str(rule.of), columns, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"it reads {', '.join(columns)}"
            raise OptionError(f"{rule.text!r}: the store reads no column {rule.of!r}; {remedy}")
        self._read(rule)
        if rule.slices:
            self.nightly.kept_slices(rule)

    def _needs_unit(self, rule: Rule) -> bool:
        """Whether intervals of the rule's metric need blocks of units, as those of scores and their samples do."""
        family = self.nightly.column(rule.metric, rule.of)[0].family
        return FAMILIES.get(family.replication.source_family, family).replication.own_blocks

    def _known(self, rule: Rule, entry: Entry) -> Judgement | None:
        return self.log.find(rule.name, entry.partition, self._digest(rule, entry))

    def _digest(self, rule: Rule, entry: Entry) -> str:
        """The digest of those data of a night that a rule reads."""
        by_column = self._digests[entry.partition]
        return " ".join(by_column.get(column, by_column["", ""]) for column in self._read(rule))

    def _read(self, rule: Rule) -> tuple[tuple[str, str], ...]:
        """The states that a rule reads: two for a difference."""
        if rule.metric in FACTS or rule.metric in LIVE:
            return (("", ""),)
        if rule.name not in self._columns:
            columns = [rule.of] if rule.than is None else [rule.of, rule.than]
            wanted = [self.nightly.column(rule.metric, of)[0] for of in columns]
            self._columns[rule.name] = tuple((w.group, w.of) for w in wanted)
        return self._columns[rule.name]

    def _judge(self, rule: Rule, entry: Entry, value: Callable[[Entry], Scalar]) -> Judgement:
        """Judge a night by a rule, and keep the judgement unless it is pending because labels may still arrive."""
        until = _end(entry.partition, self.mature) if rule.labelled and self.mature else self.now
        if self.now < until:
            return self._judgement(rule, entry, "pending", f"labels are mature at {until:%Y-%m-%dT%H:%MZ}")
        if rule.slices:
            earlier = self._earlier(rule, entry) if rule.how else []
            results = self.nightly.slices(entry, rule)
            verdict = judge_slices(rule, results, [self.nightly.slices(other, rule) for other in earlier[:BASELINE]])
        else:
            verdict = judge(rule, value(entry), self._before(rule, entry, value) if rule.how else [])
        judgement = self._judgement(rule, entry, verdict.outcome, verdict.reason)
        judgement = replace(judgement, value=verdict.value, usual=verdict.usual, nights=verdict.nights)
        return self._keep(judgement)

    def _before(self, rule: Rule, entry: Entry, value: Callable[[Entry], Scalar]) -> list[Scalar]:
        """Values of the last complete earlier nights that did not fail the rule."""
        results: list[Scalar] = []
        for other in self._earlier(rule, entry):
            result = value(other)
            results += [] if result.value != result.value else [result]
            if len(results) == BASELINE:
                break
        return results

    def _earlier(self, rule: Rule, entry: Entry) -> list[Entry]:
        """Complete earlier nights that did not fail the rule, latest first."""
        nights = []
        for other in reversed(self.entries[: self.entries.index(entry)]):
            judgement = self._known(rule, other)
            if not other.incomplete and (judgement is None or judgement.outcome != "failed"):
                nights.append(other)
        return nights

    def _values(self, rule: Rule, due: Sequence[Entry]) -> Callable[[Entry], Scalar]:
        """A function from a night to the value of the rule's metric; values that are due are computed in one batch."""
        known: dict[str, Scalar] = {}

        def computed(entries: Sequence[Entry]) -> None:
            if rule.metric in FACTS:
                found = [fact(entry, rule.metric, rule.of, share=rule.share and not rule.how) for entry in entries]
            elif rule.level is not None and rule.of is not None and rule.than is not None:
                found = self.nightly.differences(entries, rule.metric, (rule.of, rule.than), rule.level)
            else:
                found = self.nightly.nights(entries, rule.metric, rule.of, rule.level)
            if rule.than is not None and rule.level is None:
                found = list(map(difference, found, self.nightly.nights(entries, rule.metric, rule.than)))
            known.update(zip((entry.partition for entry in entries), found, strict=True))

        def value(entry: Entry) -> Scalar:
            if entry.partition not in known:
                computed([entry])
            return known[entry.partition]

        if due and not rule.slices:
            first = self.entries.index(due[0]) - (BASELINE if rule.how else 0)
            computed(self.entries[max(first, 0) :] if rule.how else due)
        return value

    def _live(self, rule: Rule, entries: Sequence[Entry]) -> list[Judgement]:
        """Judge the current store by a rule on age or missing nights, at the newest of these nights."""
        if not entries:
            return []
        newest = entries[-1]
        value = self._age(newest) if rule.metric == "age" else self._missing(rule, newest)
        verdict = judge(rule, value, [])
        judgement = replace(self._judgement(rule, newest, verdict.outcome, value.reason or ""), value=verdict.value)
        known = self._known(rule, newest)
        accepted = known is not None and known.accepted is not None
        if known and accepted and (judgement.good or rule.metric == "age" or judgement.value <= known.value):
            return [known]
        if known and rule.metric == "age" and known.outcome == judgement.outcome:
            return [judgement]  # the same outcome at a later hour is not worth storing
        return [self._keep(judgement)]

    def _age(self, entry: Entry) -> Scalar:
        """The hours since a night ended."""
        return Scalar.certain("age", (self.now - _end(entry.partition)) / timedelta(hours=1))

    def _missing(self, rule: Rule, newest: Entry) -> Scalar:
        """The number of days without a night, from the last night whose failure was accepted up to the newest."""
        upto = self.entries[: self.entries.index(newest) + 1]
        accepted = [i for i, e in enumerate(upto[:-1]) if (one := self._known(rule, e)) and one.accepted is not None]
        days = sorted({_date(entry.partition) for entry in upto[accepted[-1] if accepted else 0 :]})
        absent = [
            (a + timedelta(days=i)).isoformat() for a, b in itertools.pairwise(days) for i in range(1, (b - a).days)
        ]
        return replace(Scalar.certain("missing", len(absent)), reason=f"no {few(absent)}" if absent else None)

    def _incomplete(self, entry: Entry) -> Judgement:
        """The failure of an incomplete night by the built-in rule, until it is complete or accepted."""
        known = self.log.find(COMPLETE, entry.partition, self._digests[entry.partition]["", ""])
        if known is not None:
            return known
        lost = entry.left_out
        reason = f"{len(lost)} of {plural(entry.files, 'file')} left out ({few([name for name, _ in lost])})"
        return self._keep(self._own(COMPLETE, entry.partition, self._digests[entry.partition]["", ""], reason))

    def _absent(self, name: str) -> Judgement:
        """The failure of a requested night that does not exist."""
        names = [entry.partition for entry in self.entries]
        remedy = suggest_names(name, names) or f"it has {span(names)}"
        return self._own(PRESENT, name, "", f"the store has no such night; {remedy}")

    def _own(self, rule: str, partition: str, digest: str, reason: str) -> Judgement:
        nan = float("nan")
        return Judgement(rule, rule, partition, digest, "failed", nan, nan, 0, reason, None, self.now)

    def _judgement(self, rule: Rule, entry: Entry, outcome: str, reason: str) -> Judgement:
        judgement = self._own(rule.name, entry.partition, self._digest(rule, entry), reason)
        return replace(judgement, text=rule.text, outcome=outcome)

    def _keep(self, judgement: Judgement) -> Judgement:
        """Record a judgement unless it repeats a known one, compared as plain values (NaN equals NaN)."""
        known = self.log.find(judgement.rule, judgement.partition, judgement.digest)
        if known is None or known.to_dict() != judgement.to_dict():
            self.log.add(judgement)
            self.made.append(judgement)
        return judgement


def accept(entries: Sequence[Entry], log: Judgements, rules: Sequence[str], why: str, now: datetime) -> list[Judgement]:
    """Accept the recorded failures of nights, by all rules or by the named ones.

    Raises
    ------
    DataError
        If no such failure is recorded.
    """
    accepted = []
    for entry in entries:
        open_ = [one for one in log.of(entry) if not one.good and (not rules or one.rule in rules)]
        if not open_:
            of = f" of {few(list(rules))}" if rules else ""
            others = [one.rule for one in log.of(entry) if not one.good]
            remedy = f"it fails {few(others)}" if others else "check first, then accept"
            raise DataError(f"{entry.partition}: no failure{of} is recorded; {remedy}")
        accepted += [replace(one, accepted=why, judged=now) for one in open_]
    for one in accepted:
        log.add(one)
    return accepted


def _date(name: str) -> date:
    """The date in the name of a night.

    Raises
    ------
    OptionError
        If the name has no date.
    """
    try:
        return date(*date_of(name))
    except (TypeError, ValueError):
        raise OptionError(
            f"{name}: the name of this partition has {date_problem(name)}, and age, missing and --mature need one"
        ) from None


def _end(name: str, hours: float = 0.0) -> datetime:
    """The time that is a number of hours after the end of the day of a night, UTC; at most the end of the calendar."""
    try:
        return datetime.combine(_date(name), time(), UTC) + timedelta(days=1, hours=hours)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
