"""Gates: ``check`` and ``diagnose`` for the nights of a store, and the rules of ``evaluate --rule``.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

from streameval.cli.console import PLAIN, Output, as_json, note, stacked, table
from streameval.cli.options import toml_of
from streameval.cli.store import reads_store
from streameval.errors import OptionError
from streameval.wording import digits, few, plural, shell, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from streameval.results import Judgement
    from streameval.store import Check, Store
    from streameval.store.nights.diagnosis import Diagnosis, Finding


@reads_store("check")
def check(
    store: Store,
    to: Output,
    rules: tuple[str, ...] = (),
    rules_file: str | None = None,
    accepted: tuple[str, ...] = (),
    why: str | None = None,
    **asked: Any,
) -> None:
    """Judge new, changed and failed nights of STORE by rules; exit with status 3 unless all pass.

    'metric[column] >= x' (or >, <=, <) bounds a metric. 'metric[column] drop <= x' (or rise, change; x or x%) bounds
    how far a night may lie from the median of the last 7 good nights. Other rules bound rows, positives,
    nulls[column], age and missing nights. A rule that ends in '@95%' fails only if its whole sampling interval lies
    on the wrong side; one that ends in 'proven @95%' fails unless the whole interval lies on the right side. Without
    an interval, such a rule is undecided.

    A night that failed keeps failing until it is replaced, removed or accepted.
    """
    if accepted or why is not None:
        if to.out:
            raise OptionError("out=… would change nothing: accepting writes no results; leave it out")
        others = [*asked, *["rules_file"] * (rules_file is not None)]
        if not accepted or why is None or others:
            also = f"; {others[0]}= would change nothing" if others else ""
            raise OptionError(
                f"accepting takes --accept NIGHT and --reason TEXT, and --rule NAME to accept only some rules{also}"
            )
        judgements = store.accept(accepted, why, rules)
        lines = [f"accepted {one.partition}: {one.rule}" for one in judgements]
        to.deliver(lambda: as_json([one.to_dict() for one in judgements]), lambda: "\n".join(map(visible, lines)))
        return
    outcome = store.check(read_rules(rules, rules_file), **asked)
    for path in to.out:
        outcome.save(path)
    nights = asked.get("partition", ())
    lines = _aligned([_row(one, with_night=len(nights) != 1) for one in outcome.judgements])
    shown = [*lines, *_closing(store, outcome, nights)]
    to.deliver(lambda: as_json(outcome.to_dict()), lambda: "\n".join(map(visible, shown)))
    failures = [line for line, one in zip(lines, outcome.judgements, strict=False) if not one.passed]
    leave(outcome.passed, failures, to)


def leave(passed: bool, failures: Sequence[str], to: Output) -> None:
    """Exit with status 3 unless all rules passed; failures go to stderr if no table was printed to stdout."""
    for line in () if to.shows else failures:
        note(line)
    if not passed:
        raise SystemExit(3)


def implied_by(named: Mapping[str, str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Options that rules imply; raises `OptionError`, before anything is read, if a rule's metric is not computed."""
    from streameval.evaluation.judging import check_computed, implied, rules_of_data
    from streameval.evaluation.request import Request

    rules = rules_of_data(dict(named))
    more = implied(rules, asked)
    check_computed(rules, Request.checked({**asked, **more}))
    return more


def read_rules(texts: Sequence[str], path: str | None) -> dict[str, str]:
    """The rules of the command line and of a file, by name."""
    from streameval.rules import Rule

    rules = {" ".join(text.split()): text for text in texts}
    for name, text in (toml_of(path, "--rules") if path is not None else {}).items():
        if not isinstance(text, str):
            raise OptionError(f"--rules {path}: {name} must be a rule in quotes, such as 'roc_auc[score] >= 0.97'")
        try:
            Rule.read(text, name)
        except OptionError as error:
            raise OptionError(f"--rules {path}: {name}: {error}") from None
        rules[name] = text
    return rules


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of texts as aligned lines; empty columns are dropped."""
    said = [any(column) for column in zip(*rows, strict=True)]
    rows = [list(compress(row, said)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def judged_lines(found: Sequence[Judgement]) -> list[str]:
    """A line for each rule that judged data, in columns."""
    from streameval.rules import Rule

    rows = []
    for one in found:
        value = "" if one.value != one.value else Rule.read(one.text).told(one.value)
        name = one.rule if one.rule != one.text else ""
        rows.append([one.word, name, one.text, " ".join(filter(None, (value, one.reason)))])
    return _aligned(rows)


def _row(one: Judgement, *, with_night: bool) -> list[str]:
    """Outcome, night, name, rule, and the finding."""
    from streameval.rules import ESTIMATED, Rule

    mark = next((mark for mark in ESTIMATED if one.reason.endswith(mark)), "")
    value = "" if one.value != one.value else f"{Rule.read(one.text).told(one.value)} {mark}".rstrip()
    usual = "" if one.usual != one.usual else f"usual {digits(one.usual)} ({plural(one.nights, 'night')})"
    why = one.reason.removesuffix(mark).rstrip() if not usual else ""
    told = ", ".join(filter(None, (value, usual, why, one.accepted and f"accepted: {one.accepted}")))
    names = [one.rule] if one.rule != one.text else []
    return [one.word, *[one.partition] * with_night, " ".join(names), one.text, told]


def _closing(store: Store, found: Check, named: Sequence[str]) -> list[str]:
    """Closing lines: other unusual facts of the newest failing night, and the next command to run."""
    there = list(dict.fromkeys(one.partition for one in found.judgements if not one.passed and one.rule != "present"))
    which, name = f"{there[-1]}: " if there and len(named) != 1 else "", shell([store.name])
    lines = [which + "; ".join(found.odd)] if found.odd else []
    pending = {one.partition for one in found.judgements if one.outcome == "pending"}
    if not found.judged and found.passed:
        covered = f"{plural(found.nights - len(pending), 'night')} up to {found.partition}"
        waiting = f"; labels of {plural(len(pending), 'night')} are not mature" if pending else ""
        lines.append(f"nothing new to judge in {covered}{waiting}")
    if len(there) > 1:
        failed = {one.partition for one in found.judgements if one.outcome == "failed"}
        verb = "fail" if failed.issuperset(there) else "fail or are undecided" if failed & {*there} else "are undecided"
        lines.append(f"{len(there)} nights {verb} ({few(there)}): streameval diagnose {name} explains all")
    if there:
        lines.append(f"next: streameval diagnose {name} --partition {shell([there[-1]])}")
    elif not found.passed:
        lines.append(f"next: streameval update {name} DATA")
    return lines


@reads_store("diagnose", PLAIN)
def diagnose(store: Store, to: Output, **asked: Any) -> None:
    """Report what is unusual in nights of STORE, by default in those that fail or are undecided.

    Rows, positives, nulls by column and by file, quantiles of scores and sizes of clusters are compared with the median
    of the last 7 good nights, largest change first. If the store keeps slices, those whose share or metric
    moved most are listed as well; if it keeps a unit, metrics of all rows, with intervals. The clusters and classes
    whose cost rose most follow.
    """
    nights = store.diagnose(**asked)
    facts = [night.to_dict() for night in nights]
    to.deliver_rows(
        facts,
        lambda: [{"partition": night["partition"]} | finding for night in facts for finding in night["findings"]],
        lambda: stacked(
            *(part for night in nights for part in _diagnosed(store, night)),
            *[] if nights else ["no night fails; name one with --partition"],
        ),
    )


def _diagnosed(store: Store, one: Diagnosis) -> list[RenderableType]:
    """A heading, the failed rules, the table of facts, notes on files, rising costs, and the remedy."""
    fails = f" fails {', '.join(one.fails)}" if one.fails else ""
    undecided = f"; undecided: {', '.join(one.undecided)}" if one.undecided else ""
    rows = [
        [
            fact.what,
            f"{digits(fact.value)} {_interval(fact)}".rstrip(),
            "" if fact.usual != fact.usual else digits(fact.usual),
            "" if fact.deviations != fact.deviations else f"{fact.deviations:.3g}",
        ]
        for fact in one.findings
    ]
    head = visible(f"{one.partition}{fails}{undecided}; compared with {plural(one.nights, 'night')}")
    judged = _aligned([_row(rule, with_night=False) for rule in one.rules])
    facts = table(["fact", "night", "usual", "deviations"], rows, ["night", "usual", "deviations"])
    name, night = shell([store.name]), shell([one.partition])
    accept = f"streameval check {name} --accept {night} --reason '…'"
    remedy = f"next: {'replace or remove the night, or ' * bool(one.fails)}{accept}"
    if one.undecided:
        remedy += "; a rule that ends in 'or undecided' lets such nights pass"
    parts: list[RenderableType] = [head, *map(visible, judged), facts, *map(visible, one.files)]
    if one.costs:
        rose = [[c.what, f"{c.value:.6g}", "" if c.usual != c.usual else f"{c.usual:.6g}"] for c in one.costs]
        parts.append(table(["cost that rose most", "night", "usual"], rose, ["night", "usual"]))
    return [*parts, *([remedy] if one.fails or one.undecided else [])]


def _interval(fact: Finding) -> str:
    low, high = fact.ci_lower, fact.ci_upper
    return "" if low is None or high is None else f"[{digits(low, 4)}, {digits(high, 4)}]"


COMMANDS = (check, diagnose)
