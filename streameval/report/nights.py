"""Nights on a page: metrics night by night, failing nights, and outcomes of rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

from streameval._version import __version__
from streameval.report import pictures
from streameval.report.elements import Cell, Facts, Head, Page, Row, Section, Table, Text
from streameval.report.provenance import travelling
from streameval.report.rules import MARKS, Ruled
from streameval.report.sentences import joined
from streameval.report.terminal.notes import sampling_said
from streameval.report.values import digits, number, value_cell
from streameval.results import Scalar, slice_name
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.report.elements import Block
    from streameval.results import Source

_FAILED = 5  # nights that a sentence names
_SAID = 4  # metrics that get a sentence


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


@dataclass(frozen=True)
class Nightly:
    """A metric of several columns, night by night.

    Attributes
    ----------
    metric : its name
    lines : values of each column
    """

    metric: str
    lines: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)


def nights_section(
    names: Sequence[str],
    series: Sequence[Nightly],
    failing: Mapping[str, Sequence[str]],
    incomplete: Sequence[str],
    judgements: Sequence[JudgedNight],
) -> Section:
    """The nights of a store.

    Parameters
    ----------
    names : names of the nights, in order
    series : metrics to follow
    failing : nights that fail, each with its rules
    incomplete : nights from which files were left out
    judgements : outcomes of the rules
    """
    blocks: list[Block] = []
    failed = [name for name in names if name in failing]
    for i, one in enumerate(series):
        blocks += pictures.nights(f"{one.metric} per night", names, one.lines, failed, f"nights-{i}")
    if judgements:
        blocks.append(_rules(judgements))
    blocks.append(_table(names, series, failing, incomplete))
    return Section("nights", "Nights", tuple(blocks))


def _table(
    names: Sequence[str],
    series: Sequence[Nightly],
    failing: Mapping[str, Sequence[str]],
    incomplete: Sequence[str],
) -> Table:
    """One row per night: rows, values, and what is wrong with it."""
    columns = [(one.metric, of, line) for one in series for of, line in one.lines.items()]
    counts = [digits(result.value for result in line) for _, _, line in columns]
    rows = []
    for i, name in enumerate(names):
        wrong = [f"fails {few(list(failing[name]))}"] if name in failing else []
        wrong += ["incomplete"] if name in incomplete else []
        size = max((line[i].rows for _, _, line in columns), default=0)
        cells = [Cell(f"{size:,}", order=size)]
        cells += [value_cell(line[i], count) for (_, _, line), count in zip(columns, counts, strict=True)]
        cells.append(Cell("; ".join(wrong) or "ok", mark="failed" if wrong else "passed"))
        rows.append(Row((name,), tuple(cells)))
    heads = (
        Head("night"),
        Head("rows", number=True),
        *(Head(metric, number=True, note=of) for metric, of, _ in columns),
        Head("state"),
    )
    return Table("Every night", heads, tuple(rows))


def _rules(judgements: Sequence[JudgedNight]) -> Table:
    """The outcome of each rule; empty columns are dropped."""
    heads = (
        Head("night"),
        Head("rule"),
        Head("definition"),
        Head("value", number=True),
        Head("usual", number=True),
        Head("outcome"),
        Head("why"),
    )
    rows = [
        Row(
            (one.partition, one.rule),
            (
                Cell(one.text if one.text != one.rule else ""),
                Cell(_judged(one.value), order=one.value if one.value == one.value else None),
                Cell(_judged(one.usual) if one.usual == one.usual else ""),
                Cell(one.word, mark=MARKS.get(one.word, "unclear")),
                Cell(f"accepted: {one.accepted}" if one.accepted else one.reason),
            ),
        )
        for one in judgements
    ]
    said = [any(row.cells[i].text for row in rows) for i in range(len(heads) - 2)]
    kept = tuple(Row(row.name, tuple(compress(row.cells, said))) for row in rows)
    return Table("Outcomes of rules", (*heads[:2], *compress(heads[2:], said)), kept)


def _judged(value: float) -> str:
    """The value of a rule: a count without decimals."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) > 1 else number(value, 6)


def check_page(found: Checked, source: Source) -> Page:
    """The page of a check: which nights fail, by which rules."""
    failing = found.failing
    if failing:
        named = [*failing[:_FAILED], *([f"{len(failing) - _FAILED} more"] if len(failing) > _FAILED else [])]
        verb = "fail" if len(failing) > 1 else "fails"
        said = f"{len(failing):,} of {plural(found.nights, 'night')} {verb}: {joined(named)}."
    else:
        judged = dict.fromkeys(one.partition for one in (*found.recent, *found.judgements))
        alone = f"{found.partition} passes" if list(judged) == [found.partition] else ""
        said = f"{alone or f'No judged night fails, up to {found.partition}'}."
    odd = [Text(f"Unusual: {'; '.join(found.odd)}.")] if found.odd else []
    rules: tuple[Block, ...] = (_rules(found.judgements),) if found.judgements else ()
    rules = (*rules, *_recent(found.recent))
    return Page(
        f"Check of {_store(source)}",
        plural(found.nights, "night"),
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
    drawn = _by_metric(series)
    figures = [
        figure
        for i, one in enumerate(drawn)
        for figure in pictures.nights(_title(first) if len(series) == 1 else one.metric, names, one.lines, failed,
                                      f"history-{i}")
    ]  # fmt: skip
    incomplete = [point.partition for point in first.points if point.incomplete]
    table = _table(names, drawn, dict.fromkeys(failed, ("a rule",)), incomplete)
    title = _title(first) if len(series) == 1 else ", ".join(one.metric for one in drawn)
    lead = [" ".join(map(_said, series[:_SAID])), more]
    sampled = sampling_said([result for one in drawn for line in one.lines.values() for result in line], store=True)
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


def _by_metric(series: Sequence[Followed]) -> list[Nightly]:
    """A line for each column and slice, by metric; a single series also has its cumulative values."""
    if len(series) == 1:
        return [Nightly(series[0].metric, series[0].spans())]
    found: dict[str, dict[str, list[Scalar]]] = {}
    for one in series:
        found.setdefault(one.metric, {})[_column(one)] = [point.night for point in one.points]
    return [Nightly(metric, lines) for metric, lines in found.items()]


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


def _store(source: Source) -> str:
    return source.data[0].rstrip("/").rpartition("/")[2] if source.data else "a store"


def _read(source: Source) -> Section:
    """Where the numbers come from."""
    facts = [("Store", ", ".join(travelling(name, source.data) for name in source.data))] if source.data else []
    facts += [("Nights", f"{source.nights:,}")] if source.nights else []
    facts += [("Made with", f"streameval {__version__}")]
    blocks: list[Block] = [Facts(tuple(facts))]
    if source.command:
        blocks += [Text("The command that repeats it:"), Text(source.command, "code")]
    return Section("read", "What was read", tuple(blocks))
