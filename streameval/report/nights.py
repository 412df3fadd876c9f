"""Nights and rules on a page: metrics night by night, failing nights, and outcomes of rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from streameval.report import pictures
from streameval.report.elements import (
    Cell,
    Head,
    Page,
    Row,
    Section,
    Table,
    Text,
    last_part,
    section_of_facts,
    travelling,
)
from streameval.report.values import digits, join_few, number, order, sampling_said, value_cell
from streameval.results import Scalar
from streameval.rules import ESTIMATED, FACTS, LIVE, Rule, limits_of
from streameval.wording import digits as said
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.report.elements import Block, Mark
    from streameval.results import Judgement, Source

    Lines = Mapping[str, Mapping[str, Sequence[Scalar]]]  # by metric, then by column


_MARKS: dict[str, Mark] = {"ok": "passed", "FAIL": "failed", "undecided": "failed"}
_FAILED, _NAMED = 5, 3  # nights, and rules of the newest of them, that a sentence names
_SAID = 4  # metrics that get a sentence


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of texts as aligned lines; empty columns are dropped."""
    used = [any(column) for column in zip(*rows, strict=True)]
    rows = [list(compress(row, used)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def judged_lines(judgements: Sequence[Judgement]) -> list[str]:
    """A line for each rule that judged data, in columns."""
    rows = []
    for one in judgements:
        value = "" if one.value != one.value else Rule.read(one.text).told(one.value)
        name = one.rule if one.rule != one.text else ""
        rows.append([one.word, name, one.text, " ".join(filter(None, (value, one.reason)))])
    return align_rows(rows)


def _rule_row(one: Judgement, *, with_night: bool) -> list[str]:
    """Outcome, night, name, rule, and the finding."""
    mark = next((mark for mark in ESTIMATED if one.reason.endswith(mark)), "")
    value = "" if one.value != one.value else f"{Rule.read(one.text).told(one.value)} {mark}".rstrip()
    usual = "" if one.usual != one.usual else f"usual {said(one.usual)} ({plural(one.nights, 'night')})"
    why = one.reason.removesuffix(mark).rstrip() if not usual else ""
    finding = ", ".join(filter(None, (value, usual, why, one.accepted and f"accepted: {one.accepted}")))
    names = [one.rule] if one.rule != one.text else []
    return [one.word, *[one.partition] * with_night, " ".join(names), one.text, finding]


def rule_lines(judgements: Sequence[Judgement], *, with_night: bool) -> list[str]:
    """A line for each judgement of a night, in columns; nights that could not be folded for one reason share a line."""
    alike: dict[object, list[Judgement]] = {}
    for i, one in enumerate(judgements):
        reason = one.reason.partition(f"{one.partition}/")[2].partition(": ")[2]  # without the file
        alike.setdefault((reason, one.accepted) if one.rule == "folded" and reason else i, []).append(one)
    ones = (
        replace(one, partition=one.partition + f" and {len(more)} more" * bool(more)) for one, *more in alike.values()
    )
    return align_rows([_rule_row(one, with_night=with_night) for one in ones])


def rules_passed(judgements: Sequence[Judgement]) -> list[Text]:
    """A sentence with the number of rules that pass, and the names of those that do not."""
    failed, count = [one.rule for one in judgements if not one.passed], len(judgements)
    if failed:
        verb = "do" if len(failed) > 1 else "does"
        return [Text(f"{len(failed)} of {plural(count, 'rule')} {verb} not pass: {join_few(failed)}.", "lead")]
    return [Text("The rule passes." if count == 1 else f"All {count} rules pass.", "lead")] if judgements else []


def rules_section(judgements: Sequence[Judgement], source: Source) -> Section:
    """Every rule with its value and outcome."""
    return Section("rules", "Rules", (_rules_table(judgements, source.data),) if judgements else ())


def _rules_table(judgements: Sequence[Judgement], data: Sequence[str] = (), *, with_night: bool = False) -> Table:
    """The outcomes of rules, each with its reason below; a column in which no rule has anything to say is dropped.

    Reasons are cut as `travelling` does.
    """
    rows = []
    for one in judgements:
        low, high = one.ci_lower, one.ci_upper
        interval = f"{number(low)} to {number(high)}" if low is not None and high is not None else ""
        cells = (
            Cell(one.word, mark=_MARKS.get(one.word, "unclear")),
            Cell(one.text if one.text != one.rule else ""),
            Cell(_format_judged(one, one.value), interval, order=order(one.value)),
            Cell(f"{_format_judged(one, one.usual)} ({plural(one.nights, 'night')})" if one.usual == one.usual else ""),
        )
        why = ", ".join(filter(None, (travelling(one.reason, data), one.accepted and f"accepted: {one.accepted}")))
        rows.append(((one.partition, one.rule)[not with_night :], cells, why))
    heads = (Head("outcome"), Head("definition"), Head("value", number=True), Head("usual", number=True))
    used = [any(cells[i].text for _, cells, _ in rows) for i in range(len(heads))]
    shown = tuple(Row(name, tuple(compress(cells, used)), why=why) for name, cells, why in rows)
    names = (Head("night"), Head("rule"))[not with_night :]
    return Table("Outcomes of rules", (*names, *compress(heads, used)), shown)


def _format_judged(one: Judgement, value: float) -> str:
    """A value of a rule, in the unit of its bound; a count without decimals."""
    rule = Rule.read(one.text) if value == value else None
    if rule is not None and (rule.metric == "age" or (rule.share and not rule.how)):
        return rule.told(value)
    counts = rule is not None and (abs(value) > 1 or rule.metric in (*FACTS, *LIVE))
    return f"{value:,.0f}" if counts and float(value).is_integer() else number(value, 6)


def nights_section(
    names: Sequence[str],
    series: Lines,
    failing: Mapping[str, Sequence[str]],
    incomplete: Sequence[str],
    judgements: Sequence[Judgement],
) -> Section:
    """The nights of a store.

    Parameters
    ----------
    names : names of the nights, in order
    series : the values of each column, by metric
    failing : nights that fail, each with its rules
    incomplete : nights from which files were left out
    judgements : outcomes of the rules
    """
    blocks: list[Block] = []
    failed = [name for name in names if name in failing]
    for i, (metric, lines) in enumerate(series.items()):
        blocks += pictures.nights(f"{metric} per night", names, lines, failed, f"nights-{i}")
    if judgements:
        blocks.append(_rules_table(judgements, with_night=True))
    blocks.append(_table(names, series, failing, incomplete))
    return Section("nights", "Nights", tuple(blocks))


def _table(
    names: Sequence[str], series: Lines, failing: Mapping[str, Sequence[str]], incomplete: Sequence[str]
) -> Table:
    """One row per night: rows, values, and what is wrong with it."""
    columns = [(metric, of, line) for metric, lines in series.items() for of, line in lines.items()]
    counts = [digits(result.value for result in line) for _, _, line in columns]
    rows = []
    for i, name in enumerate(names):
        wrong = [f"fails {few(list(failing[name]))}"] if name in failing else []
        wrong += ["incomplete"] if name in incomplete else []
        size = max((line[i].rows for _, of, line in columns if not of.endswith("cumulative")), default=0)
        values = (value_cell(line[i], count) for (_, _, line), count in zip(columns, counts, strict=True))
        state = Cell("; ".join(wrong) or "ok", mark="failed" if wrong else "passed")
        rows.append(Row((name,), (state, Cell(f"{size:,}", order=size), *values)))
    values_of = (Head(metric, number=True, note=of) for metric, of, _ in columns)
    return Table("Every night", (Head("night"), Head("state"), Head("rows", number=True), *values_of), tuple(rows))


def check_page(
    night: str,
    nights: int,
    judgements: Sequence[Judgement],
    recent: Sequence[Judgement],
    odd: Sequence[str],
    notes: Sequence[str],
    source: Source,
) -> Page:
    """The page of a check: which nights fail, by which rules.

    Parameters
    ----------
    night, nights : the newest night that it covers, and their number
    judgements, recent : its judgements, and those of the last nights, in order
    odd, notes : other unusual facts, and notes on the rules, in words
    source : where they come from
    """
    failing = list(dict.fromkeys(one.partition for one in judgements if not one.passed))
    absent = {one.partition for one in judgements if one.rule in ("folded", "present")}
    nights += len(absent.difference(one.partition for one in judgements if one.rule not in ("folded", "present")))
    if failing:
        verb = "fail" if len(failing) > 1 else "fails"
        lead = f"{len(failing):,} of {plural(nights, 'night')} {verb}: {join_few(failing, _FAILED)}."
        newest = [one for one in judgements if one.partition == failing[-1] and not one.passed]
        more = [f"and {len(newest) - _NAMED} more"] * (len(newest) > _NAMED)
        lead += f" In {failing[-1]}, {'; '.join([*map(_finding, newest[:_NAMED]), *more])}."
        lead = travelling(lead, source.data)
    else:
        judged = {one.partition for one in (*recent, *judgements)}
        lead = f"{night} passes." if judged == {night} else f"No judged night fails, up to {night}."
    below = [*[f"Unusual: {'; '.join(odd)}."] * bool(odd), *notes]
    rules: tuple[Block, ...] = (_rules_table(judgements, source.data, with_night=True),) if judgements else ()
    return Page(
        f"Check of {last_part(source.data[0]) if source.data else 'a store'}",
        plural(nights, "night"),
        (Text(lead, "lead"), *map(Text, below)),
        (Section("rules", "Rules", (*rules, *_recent(recent))), _read(source)),
    )


def _finding(one: Judgement) -> str:
    """A rule that does not pass, its value, and the usual one."""
    usual = f", usually {_format_judged(one, one.usual)}" if one.usual == one.usual else ""
    value = f"the value is {_format_judged(one, one.value)}{usual}" if one.value == one.value else one.reason
    verb = "fails" if one.outcome == "failed" else "is undecided"
    return f"the night {value}" if one.rule == "folded" else f"{one.rule} {verb}: {value}"


def _recent(judgements: Sequence[Judgement]) -> Iterator[Block]:
    """A picture for each rule: its value in the last nights, and what it was compared with."""
    names = list(dict.fromkeys(one.partition for one in judgements))
    rules = dict.fromkeys((one.rule, one.text) for one in judgements)
    for i, (rule, text) in enumerate(rules):
        by_night = {one.partition: one for one in judgements if one.rule == rule}
        judged = [by_night.get(name) for name in names]
        lines = {"value": [Scalar.certain(rule, one.value) if one else None for one in judged]}
        limits: dict[str, Callable[[float], float]] = {"usual": float, **limits_of(Rule.read(text))}
        for name, limit in limits.items():
            lines[name] = [Scalar.certain(rule, limit(one.usual)) if one else None for one in judged]
        lines |= window_lines(judged)
        lines = {name: line for name, line in lines.items() if sum(_defined(one) for one in line) > 1}
        failed = [name for name, one in by_night.items() if not one.passed]
        if lines:
            yield from pictures.nights(text if rule == text else f"{rule}: {text}", names, lines, failed, f"rule-{i}")


def window_lines(judgements: Sequence[Judgement | None]) -> dict[str, list[Scalar | None]]:
    """Lines of a rule's windows: values up to the end compared with the bound, and values that would have failed.

    Those of nights that would have shown hardly anything are left out: far away, they would flatten all other lines.
    """
    lines: dict[str, list[Scalar | None]] = {}
    ends = [end for one in judgements if one for window in one.windows for end in window[1:3]]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    for width in sorted({window[0] for one in judgements if one for window in one.windows}):
        rows = [next((w[1:] for w in one.windows if w[0] == width), None) if one else None for one in judgements]
        bands = [Scalar.between("", row[0], min(row[:2]), max(row[:2])) if row else None for row in rows]
        seen = [row[2] if row and 2 * low - high <= row[2] <= 2 * high - low else None for row in rows]
        over = "in one night" if width == 1 else f"over {width:g} nights"
        lines |= {over: bands} if width > 1 else {}
        lines[f"seen {over}"] = [None if one is None else Scalar.certain("", one) for one in seen]
    return lines


def _defined(result: Scalar | None) -> bool:
    return result is not None and result.value == result.value


def history_page(
    names: Sequence[str],
    lines: Lines,
    series: Mapping[str, Sequence[Scalar]],
    failed: Sequence[str],
    incomplete: Sequence[str],
    windows: Mapping[str, Sequence[Scalar | None]],
    source: Source,
) -> Page:
    """The page of one metric or several, night by night.

    Parameters
    ----------
    names : names of the nights, in order
    lines : the values to draw, by metric and column; of a single series, by span
    series : the values of each night, by the title of the series
    failed, incomplete : nights that fail a rule, and nights from which files were left out
    windows : see `window_lines`, for a single series
    source : where the values come from
    """
    several = len(series) > 1
    title = ", ".join(lines if several else series)
    figures: list[Block] = []
    for i, (metric, values) in enumerate(lines.items()):
        drawn = {name: line for name, line in values.items() if not (several and name.endswith(" cumulative"))}
        figures += pictures.nights(metric if several else title, names, {**drawn, **windows}, failed, f"history-{i}")
    table = _table(names, lines, dict.fromkeys(failed, ("a rule",)), incomplete)
    lead = [" ".join(_values_said(name, names, values) for name, values in list(series.items())[:_SAID])]
    lead += [f"{plural(len(failed), 'night')} {'fail' if len(failed) > 1 else 'fails'} a rule."] if failed else []
    results = [result for values in lines.values() for line in values.values() for result in line]
    sampled = sampling_said(results, store=True)
    notes = [Text(sampled, "note")] if sampled else []
    return Page(
        f"{title}, night by night",
        plural(len(names), "night"),
        tuple(Text(sentence, "lead") for sentence in lead),
        (Section("nights", "Nights", (*figures, table, *notes)), _read(source)),
    )


def maturity_page(
    title: str, heads: Sequence[str], rows: Sequence[tuple[str, ...]], notes: Sequence[str], source: Source
) -> Page:
    """The page of a metric with the labels up to some ages: its table, and the notes."""
    columns = tuple(Head(name, number=name != "night") for name in heads)
    table = Table(title, columns, tuple(Row(row[:1], tuple(map(Cell, row[1:]))) for row in rows))
    blocks: tuple[Block, ...] = (table, *(Text(note, "note") for note in notes))
    return Page(title, plural(source.nights, "night"), (), (Section("nights", "Nights", blocks), _read(source)))


def _values_said(title: str, names: Sequence[str], results: Sequence[Scalar]) -> str:
    """A sentence with the last, the lowest and the highest value."""
    values = {name: result.value for name, result in zip(names, results, strict=True) if _defined(result)}
    if not values:
        return f"{title} is not defined in any night."
    count = digits(values.values())
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    last = list(values)[-1]
    return (
        f"{title} is {number(values[last], count)} in {last}, the last night; it was lowest in {low}, "
        f"{number(values[low], count)}, and highest in {high}, {number(values[high], count)}."
    )


def _read(source: Source) -> Section:
    """Where the numbers come from."""
    facts = [("Store", ", ".join(travelling(name, source.data) for name in source.data))] if source.data else []
    facts += [("Nights", f"{source.nights:,}")] if source.nights else []
    return section_of_facts(facts, source)
