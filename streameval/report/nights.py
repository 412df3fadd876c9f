"""Nights and rules on a page: metrics night by night, failing nights, and outcomes of rules."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

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
from streameval.report.notes import joined_few, sampling_said
from streameval.report.values import digits, number, order, value_cell
from streameval.results import Scalar, slice_name
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.report.elements import Block, Mark
    from streameval.results import Source

    Lines = Mapping[str, Mapping[str, Sequence[Scalar]]]  # by metric, then by column


_MARKS: dict[str, Mark] = {"ok": "passed", "FAIL": "failed", "undecided": "failed"}
_FAILED = 5  # nights that a sentence names
_SAID = 4  # metrics that get a sentence


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


def rules_passed(judgements: Sequence[Judged]) -> list[Text]:
    """A sentence with the number of rules that pass, and the names of those that do not."""
    if not judgements:
        return []
    failed = [one.rule for one in judgements if not one.passed]
    if not failed:
        return [Text("The rule passes." if len(judgements) == 1 else f"All {len(judgements)} rules pass.", "lead")]
    verb = "do" if len(failed) > 1 else "does"
    return [Text(f"{len(failed)} of {plural(len(judgements), 'rule')} {verb} not pass: {joined_few(failed)}.", "lead")]


def rules_section(judgements: Sequence[Judged]) -> Section:
    """Every rule with its value and outcome."""
    rows = []
    for one in judgements:
        ends = one.ci_lower, one.ci_upper
        interval = f"{number(ends[0])} to {number(ends[1])}" if ends[0] is not None and ends[1] is not None else ""
        rows.append(_rule_row(one, (one.rule,), interval, (), one.reason))
    return Section("rules", "Rules", (_rule_table((Head("rule"),), (), rows),) if rows else ())


def _night_rules(judgements: Sequence[JudgedNight]) -> Table:
    """The outcome of each rule in each night."""
    rows = []
    for one in judgements:
        usual = Cell(_judged(one.usual) if one.usual == one.usual else "")
        why = f"accepted: {one.accepted}" if one.accepted else one.reason
        rows.append(_rule_row(one, (one.partition, one.rule), "", (usual,), why))
    return _rule_table((Head("night"), Head("rule")), (Head("usual", number=True),), rows)


def _rule_row(one: Ruled, name: tuple[str, ...], interval: str, more: tuple[Cell, ...], why: str) -> Row:
    cells = (
        Cell(one.text if one.text != one.rule else ""),
        Cell(_judged(one.value), interval, order=order(one.value)),
        *more,
        Cell(one.word, mark=_MARKS.get(one.word, "unclear")),
        Cell(why),
    )
    return Row(name, cells)


def _rule_table(names: tuple[Head, ...], more: tuple[Head, ...], rows: Sequence[Row]) -> Table:
    """The outcomes of rules; a column in which no rule has anything to say is dropped."""
    heads = (Head("definition"), Head("value", number=True), *more, Head("outcome"), Head("why"))
    said = [any(row.cells[i].text for row in rows) for i in range(len(heads))]
    shown = tuple(Row(row.name, tuple(compress(row.cells, said))) for row in rows)
    return Table("Outcomes of rules", (*names, *compress(heads, said)), shown)


def _judged(value: float) -> str:
    """The value of a rule: a count without decimals."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) > 1 else number(value, 6)


class JudgedNight(Ruled, Protocol):
    """The outcome of a rule for a night."""

    @property
    def partition(self) -> str:
        """The night."""

    @property
    def usual(self) -> float:
        """The value that it was compared with."""

    @property
    def accepted(self) -> str | None:
        """Why a failure was accepted."""

    @property
    def good(self) -> bool:
        """Whether it lets the night pass."""


class Checked(Protocol):
    """The outcome of a check."""

    @property
    def partition(self) -> str:
        """The newest night."""

    @property
    def nights(self) -> int:
        """The number of nights that it covers."""

    @property
    def judgements(self) -> tuple[Any, ...]:
        """The outcomes of the rules."""

    @property
    def failing(self) -> tuple[str, ...]:
        """Nights that fail."""

    @property
    def odd(self) -> tuple[str, ...]:
        """Other unusual facts."""

    @property
    def recent(self) -> tuple[Any, ...]:
        """The outcomes of the rules for the last nights, in order."""


class Followed(Protocol):
    """A metric night by night, of all rows or of a slice."""

    @property
    def metric(self) -> str:
        """The metric."""

    @property
    def of(self) -> str | None:
        """Its column."""

    @property
    def slice(self) -> dict[str, Any] | None:
        """The values of the slicing columns."""

    @property
    def points(self) -> tuple[Any, ...]:
        """The nights."""

    @property
    def failing(self) -> tuple[str, ...]:
        """Nights that fail a rule."""

    def spans(self) -> dict[str, list[Scalar]]:
        """The values of each night, and over all nights up to each."""


def nights_section(
    names: Sequence[str],
    series: Lines,
    failing: Mapping[str, Sequence[str]],
    incomplete: Sequence[str],
    judgements: Sequence[JudgedNight],
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
        blocks.append(_night_rules(judgements))
    blocks.append(_table(names, series, failing, incomplete))
    return Section("nights", "Nights", tuple(blocks))


def _table(
    names: Sequence[str],
    series: Lines,
    failing: Mapping[str, Sequence[str]],
    incomplete: Sequence[str],
) -> Table:
    """One row per night: rows, values, and what is wrong with it."""
    every = [(metric, of, line) for metric, lines in series.items() for of, line in lines.items()]
    columns = [(metric, of, line, digits(result.value for result in line)) for metric, of, line in every]
    rows = []
    for i, name in enumerate(names):
        wrong = [f"fails {few(list(failing[name]))}"] if name in failing else []
        wrong += ["incomplete"] if name in incomplete else []
        size = max((line[i].rows for _, _, line, _ in columns), default=0)
        cells = [Cell(f"{size:,}", order=size), *(value_cell(line[i], count) for _, _, line, count in columns)]
        cells.append(Cell("; ".join(wrong) or "ok", mark="failed" if wrong else "passed"))
        rows.append(Row((name,), tuple(cells)))
    heads = (
        Head("night"),
        Head("rows", number=True),
        *(Head(metric, number=True, note=of) for metric, of, _, _ in columns),
        Head("state"),
    )
    return Table("Every night", heads, tuple(rows))


def check_page(check: Checked, source: Source) -> Page:
    """The page of a check: which nights fail, by which rules."""
    failing = check.failing
    if failing:
        verb = "fail" if len(failing) > 1 else "fails"
        said = f"{len(failing):,} of {plural(check.nights, 'night')} {verb}: {joined_few(failing, _FAILED)}."
    else:
        judged = dict.fromkeys(one.partition for one in (*check.recent, *check.judgements))
        alone = f"{check.partition} passes" if list(judged) == [check.partition] else ""
        said = f"{alone or f'No judged night fails, up to {check.partition}'}."
    odd = [Text(f"Unusual: {'; '.join(check.odd)}.")] if check.odd else []
    rules: tuple[Block, ...] = (_night_rules(check.judgements),) if check.judgements else ()
    rules = (*rules, *_recent(check.recent))
    return Page(
        f"Check of {last_part(source.data[0]) if source.data else 'a store'}",
        plural(check.nights, "night"),
        (Text(said, "lead"), *odd),
        (Section("rules", "Rules", rules), _read(source)),
    )


def _recent(judgements: Sequence[JudgedNight]) -> Iterator[Block]:
    """A picture for each rule: its value in the last nights, and what it was compared with."""
    names = list(dict.fromkeys(one.partition for one in judgements))
    rules = dict.fromkeys((one.rule, one.text) for one in judgements)
    for i, (rule, text) in enumerate(rules):
        said = {one.partition: one for one in judgements if one.rule == rule}
        lines = {
            "value": [Scalar.certain(rule, said[name].value) if name in said else None for name in names],
            "usual": [Scalar.certain(rule, said[name].usual) if name in said else None for name in names],
        }
        lines = {name: line for name, line in lines.items() if sum(_known(one) for one in line) > 1}
        failed = [name for name, one in said.items() if not one.good]
        if lines:
            yield from pictures.nights(text if rule == text else f"{rule}: {text}", names, lines, failed, f"rule-{i}")


def _known(result: Scalar | None) -> bool:
    return result is not None and result.value == result.value


def history_page(series: Sequence[Followed], source: Source) -> Page:
    """The page of one metric or several, night by night; all have the same nights."""
    first = series[0]
    names = [point.partition for point in first.points]
    failed = [name for name in names if name in first.failing]
    more = f"{plural(len(failed), 'night')} {'fail' if len(failed) > 1 else 'fails'} a rule." if failed else ""
    title, drawn = _title(first), {first.metric: first.spans()}
    if len(series) > 1:
        drawn = {one.metric: {} for one in series}
        for one in series:
            drawn[one.metric][_column(one)] = [point.night for point in one.points]
        title = ", ".join(drawn)
    figures: list[Block] = []
    for i, (metric, lines) in enumerate(drawn.items()):
        figures += pictures.nights(metric if len(series) > 1 else title, names, lines, failed, f"history-{i}")
    incomplete = [point.partition for point in first.points if point.incomplete]
    table = _table(names, drawn, dict.fromkeys(failed, ("a rule",)), incomplete)
    lead = [" ".join(map(_said, series[:_SAID])), more]
    sampled = sampling_said(
        [result for lines in drawn.values() for line in lines.values() for result in line], store=True
    )
    notes = [Text(sampled, "note")] if sampled else []
    return Page(
        f"{title}, night by night",
        plural(len(names), "night"),
        tuple(Text(said, "lead") for said in lead if said),
        (Section("nights", "Nights", (*figures, table, *notes)), _read(source)),
    )


def _title(one: Followed) -> str:
    return f"{one.metric} of {_column(one)}" if one.of else f"{one.metric}{slice_name(one.slice)}"


def _column(one: Followed) -> str:
    """The column, with the slice."""
    return f"{one.of or one.metric}{slice_name(one.slice)}"


def _said(one: Followed) -> str:
    """A sentence with the last, the lowest and the highest value."""
    values = {point.partition: point.night.value for point in one.points if _known(point.night)}
    if not values:
        return f"{_title(one)} is not defined in any night."
    count = digits(values.values())
    low, high = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
    last = list(values)[-1]
    return (
        f"{_title(one)} is {number(values[last], count)} in {last}, the last night; it was lowest in {low}, "
        f"{number(values[low], count)}, and highest in {high}, {number(values[high], count)}."
    )


def _read(source: Source) -> Section:
    """Where the numbers come from."""
    facts = [("Store", ", ".join(travelling(name, source.data) for name in source.data))] if source.data else []
    facts += [("Nights", f"{source.nights:,}")] if source.nights else []
    return section_of_facts(facts, source)
