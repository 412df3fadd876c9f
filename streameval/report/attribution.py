"""Attributed losses in words and tables, for the terminal, for a page, and for a section of an evaluation's page."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from streameval.plots import canvas
from streameval.report import pictures
from streameval.report.elements import Block, Cell, Head, Page, Read, Row, Section, Table, Text, read_section
from streameval.report.terminal import Fitted, escape_markup
from streameval.report.values import NONE, capital, digits, join_words, number, phrase_metric
from streameval.results import Source, slice_text
from streameval.wording import labelled_rows, plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from rich.console import RenderableType


_WIDTH = 120  # columns of examples


_WORDS = {  # title, caption on a page, and what is said if there is nothing
    "merges": (
        "Worst merges: clusters that hold several classes",
        "Clusters that hold several classes",
        "no cluster holds several classes",
    ),
    "splits": (
        "Worst splits: classes spread over several clusters",
        "Classes spread over several clusters",
        "no class is in several clusters",
    ),
    "impure": (
        "Impure clusters: their loss of area under the lift curve",
        "Their loss of area under the lift curve",
        "no cluster above the threshold is impure",
    ),
    "unclustered": (
        "Positives in clusters at or below the threshold",
        "By size of the cluster",
        "no positive is in a cluster at or below the threshold",
    ),
    "slices": (
        "Lowest slices",
        "The costliest first: shortfall × rows",
        "no slice falls short of the whole",
    ),
}
_CHANGED = {
    "merges": (
        "Merged since {}",
        "Clusters that hold several earlier clusters",
        "no cluster holds rows of several earlier clusters",
    ),
    "splits": ("Split since {}", "Earlier clusters spread over several clusters", "no earlier cluster was split"),
}
_HEADS = {
    "running_share": "running",
    "false_pairs": "false pairs",
    "missed_pairs": "missed pairs",
    "effective_units": "units",
}
_CHANGED_HEADS = {
    "classes": "earlier",
    "class": "earlier",
    "false_pairs": "merged pairs",
    "missed_pairs": "split pairs",
}
_HIDDEN = "Examples show rows, so they are left out here; --with-examples puts them on the page."


class Attributed(Read, canvas.Attributed, Protocol):
    """The part of an attribution that a report needs."""

    @property
    def metric(self) -> str | None:
        """The metric in which gains are measured."""

    @property
    def labelled_share(self) -> float | None:
        """The share of labelled rows, if tables are of these alone."""

    @property
    def source(self) -> Source:
        """Where the result comes from."""

    @property
    def slice_metric(self) -> str | None:
        """The metric of the slices."""

    def tables(self) -> dict[str, pa.Table]:
        """The tables, by name."""


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{value:.1%}"


def id_text(value: object) -> str:
    """An id as text; bytes in hexadecimal."""
    return "none" if value is None else visible(value.hex() if isinstance(value, bytes) else str(value))


def _member(cell: Mapping[str, object]) -> str:
    """The name of a class in a cluster, or of a cluster in a class, with its partition if it has one."""
    name = id_text(next(iter(cell.values())))
    return f"{name} in {cell['partition']}" if cell.get("partition") else name


_FORMATS: dict[str, Callable[[Any], str] | None] = {
    **dict.fromkeys(("cluster", "class", "partition"), id_text),
    **dict.fromkeys(("size", "rows", "classes", "clusters", "positives", "false_pairs", "missed_pairs"), "{:,}".format),
    "lost": "{:.6f}".format,
    "share": percent,
    "running_share": percent,
    "gain": "{:+.6f}".format,
    "value": "{:.6f}".format,
    **dict.fromkeys(("ci_lower", "ci_upper"), lambda value: NONE if value is None else f"{value:.4f}"),
    **dict.fromkeys(("effective_units", "freedom"), lambda value: NONE if value is None else f"{math.floor(value):,}"),
    "shortfall": "{:+.6f}".format,
    "by": None,
    "largest": lambda cells: ", ".join(f"{_member(cell)} ({cell['rows']:,})" for cell in cells),
    "examples": None,
}


def _words(name: str, attribution: Attributed) -> tuple[str, str, str]:
    return (_WORDS | (_CHANGED if attribution.options.get("changed_from") else {}))[name]


def title_of(name: str, attribution: Attributed) -> str:
    """The title of a table."""
    if name == "slices" and attribution.totals.get("slices_below") and attribution.totals["slices_selected"] == 1:
        return "Slices below the whole"
    return _words(name, attribution)[0].format(visible(str(attribution.options.get("changed_from"))))


def format_rows(
    rows: pa.Table, attribution: Attributed, *, examples: Callable[[str], str] | None, caption: str = ""
) -> Table:
    """Format the rows of a table; long texts come last.

    Parameters
    ----------
    rows : the table
    attribution : the attribution
    examples : function that shortens examples; None omits them
    caption : its caption
    """
    names = set(rows.column_names)
    sampled = "ci_lower" in names and rows["ci_lower"].null_count < rows.num_rows
    columns = _FORMATS | ({} if sampled else dict.fromkeys(("ci_lower", "ci_upper", "effective_units", "freedom")))
    by_columns = [name for name in rows.column_names if name not in columns]
    columns = {**dict.fromkeys(by_columns, lambda value: visible(slice_text(value))), **columns}
    if examples is not None:
        columns["examples"] = lambda cells: examples(
            "; ".join(f"{_member(cell)}: {' | '.join(cell['values'])}" for cell in cells)
        )
    heads = _HEADS | (_CHANGED_HEADS if "changed_from" in attribution.options else {})
    formats = {name: form for name, form in columns.items() if form and name in names}
    words = {"cluster", "class", "partition", "largest", "examples", *by_columns}
    records = []
    for row in rows.to_pylist():
        cells = [
            Cell("" if name in by_columns and not is_of(name, row.get("by")) else form(row[name]),
                 order=None if name in words else row[name])
            for name, form in formats.items()
        ]  # fmt: skip
        records.append(Row((cells[0].text,), tuple(cells[1:])))
    shown = [Head(attribution.metric or "", number=True, note="gain in") if name == "gain" else
             Head(heads.get(name, name), number=name not in words) for name in formats]  # fmt: skip
    return Table(caption, tuple(shown), tuple(records))


def is_of(column: str, by: str | None) -> bool:
    """Whether a column belongs to the slicing `by`; True if `by` is None, because then there is only one slicing.

    >>> is_of("night", "country,night"), is_of("country", "night"), is_of("country", None)
    (True, False, True)
    """
    return by is None or f",{column}," in f",{by},"


def conclusion(name: str, rows: pa.Table, attribution: Attributed) -> str:
    """A sentence on the share of the loss that the rows explain."""
    totals: Mapping[str, float] = attribution.totals
    changed = "changed_from" in attribution.options
    if name == "slices":
        return _describe_slices(rows, attribution)
    if not rows.num_rows:
        return _words(name, attribution)[2]
    if name == "unclustered":
        total, all_of = int(totals["unclustered_positives"]), int(totals["positives"])
        return f"{total:,} of {plural(all_of, 'positive')} ({total / all_of:.1%})"
    group, every, pairs, verb = {
        "merges": ("cluster", "clusters", "false_pairs", "merged" if changed else "false"),
        "splits": ("class", "classes", "missed_pairs", "split" if changed else "missed"),
        "impure": ("cluster", "clusters", "", ""),
    }[name]
    loss = f"all {int(totals.get(pairs, 0)):,} {verb} pairs" if pairs else f"the lost area, {totals.get('lost', 0):.6f}"
    one, several = ("earlier cluster", "earlier clusters") if changed and group == "class" else (group, every)
    many = f"{rows.num_rows:,} {several}" if rows.num_rows > 1 else f"1 {one}"
    share = rows["running_share"][-1].as_py()
    return f"{many} of {int(totals[every]):,} {'are' if rows.num_rows > 1 else 'is'} {percent(share)} of {loss}"


def _compared_rows(attribution: Attributed) -> str:
    """The rows that slices are compared with."""
    return "all rows" if attribution.labelled_share is None else "all labelled rows"


def _describe_slices(rows: pa.Table, attribution: Attributed) -> str:
    """A sentence on the value that slices are compared with, and on the slices left out."""
    totals = attribution.totals
    slices, left = int(totals["slices"]), int(totals["slices_left_out"])
    if rows.num_rows:
        shown = f"{plural(rows.num_rows, 'slice')} of {slices:,}"
    elif slices == left:
        shown = f"none of {plural(slices, 'slice')} can be ranked"
    else:
        shown = "no slice that can be ranked falls short of the whole" if left else _WORDS["slices"][2]
    whole = "has no value" if math.isnan(totals["whole"]) else f"{totals['whole']:.6f}"
    compared = _compared_rows(attribution)
    said = [shown, f"{attribution.slice_metric} of {compared} {whole}"]
    if left:
        valueless = int(totals["slices_without_value"])
        units = f"fewer than {totals['slices_least_units']:g} effective units of rows, positives or negatives"
        both = f"{valueless:,} without a value, {left - valueless:,} with {units}"
        said.append(f"{left:,} left out: {'no value' if valueless == left else both if valueless else units}")
    if "slices_ci_level" in totals:
        unit, level = attribution.options.get("unit") or "row", totals["slices_ci_level"] * 100
        promise = "few of those shown miss" if totals["slices_selected"] > 1 else "those of all slices hold together"
        below = f"{int(totals['slices_below'])} of {rows.num_rows} worse than {compared}"
        said.append(f"{level:.4g} % intervals by {unit}, widened so that {promise}: {below}")
    said += [f"{name} is in the time zone {zone}" for name, zone in attribution.source.zones.items()]
    return "; ".join(said)


def describe_stayed(attribution: Attributed) -> str:
    """A sentence on the number of rows in clusters with the same rows as before."""
    same = int(attribution.totals["unchanged_rows"])
    share = f" ({same / attribution.rows:.1%})" if attribution.rows else ""
    return f"{same:,} of {plural(attribution.rows, 'row')}{share} stayed: their clusters hold the same rows as before"


def _note_hashes(attribution: Attributed, why: str = "") -> str:
    """A note that ids are shown as hashes, with the reason; empty if there are none."""
    why = why or ("name the data after the store" if attribution.source.nights else "the data can be read only once")
    ids = [
        rows[column]
        for rows in attribution.tables().values()
        for column in ("cluster", "class")
        if column in rows.column_names
    ]
    if not any(len(column) and all(str(value).startswith("#") for value in column.to_pylist()) for column in ids):
        return ""
    return f"ids with # are hashes whose texts are unknown: {why}"


def attribution_tables(attribution: Attributed, *, plain: bool = False) -> RenderableType:
    """All tables, each followed by a line that states how much of the loss it explains."""
    from rich.console import Group

    parts: list[RenderableType] = []
    for name, rows in attribution.tables().items():
        title = escape_markup(title_of(name, attribution))
        parts.append(f"\n{title}" if parts else title)
        if rows.num_rows:
            parts.append(Fitted(format_rows(rows, attribution, examples=_cut), plain, prose=("examples", "largest")))
        parts.append(escape_markup(conclusion(name, rows, attribution)))
    if attribution.options.get("changed_from"):
        parts.append(f"\n{escape_markup(describe_stayed(attribution))}")
    notes = [] if attribution.labelled_share is None else [labelled_rows([attribution.labelled_share])]
    notes += [f"left out: {plural(rows, 'row')}, {reason}" for reason, rows in attribution.dropped]
    notes += [f"skipped: {name}: {reason}" for name, reason in attribution.skipped]
    notes += filter(None, [_note_hashes(attribution)])
    return Group(*parts, *map(escape_markup, notes))


def _cut(text: str) -> str:
    """Escape control characters and cut a text to 120 terminal columns.

    Examples
    --------
    >>> len(_cut("x" * 500)), _cut("short")
    (120, 'short')
    """
    from rich.cells import cell_len, set_cell_size

    clean = visible(text[: 4 * _WIDTH])
    return clean if cell_len(clean) <= _WIDTH else set_cell_size(clean, _WIDTH - 1) + "…"


def attribution_page(attribution: Attributed, source: Source, *, with_examples: bool) -> Page:
    """The page of an attribution; examples are values from the data and appear only on request."""
    tables = attribution.tables()
    lead = [sentence for sentence in (_best(name, rows, attribution) for name, rows in tables.items()) if sentence]
    if "changed_from" in attribution.options:
        lead.insert(0, f"{describe_stayed(attribution)}.")
    bare = not lead
    lead = lead or [_concluded(name, rows, attribution) for name, rows in tables.items()]
    records = {
        name: tuple(_blocks(name, rows, attribution, with_examples=with_examples)) for name, rows in tables.items()
    }
    sections = [
        Section(name, title_of(name, attribution).partition(":")[0], blocks[bare:])  # the lead may be their conclusions
        for name, blocks in records.items()
    ]
    pictured = tuple(pictures.concentration(attribution))
    sections.insert(0, Section("concentration", "How concentrated the loss is", pictured))
    notes = list(filter(None, [_note_hashes(attribution)]))
    hidden = attribution.options.get("examples") and not with_examples
    cluster, earlier = attribution.options.get("cluster"), attribution.options.get("changed_from")
    share = attribution.labelled_share
    score = attribution.options.get("score", ())
    columns = [*([cluster] if cluster else []), *([score] if isinstance(score, str) else score)]
    title = f"Where {join_words(columns)} {'falls' if len(columns) == 1 else 'fall'} short" if columns else ""
    return Page(
        f"What changed from {earlier} to {cluster}" if earlier else title,
        plural(attribution.rows, "row") + ("" if share is None else f", labelled: {share:.2%} of all"),
        (Text(" ".join(lead), "lead"), *([Text(_HIDDEN, "note")] if hidden else [])),
        (*sections, read_section(attribution, source, notes)),
    )


def costs_section(attributions: Sequence[Attributed]) -> Section:
    """The costliest clusters and classes of an evaluation's cluster columns."""
    blocks: list[Block] = []
    for one in attributions:
        listings = {name: rows for name, rows in one.tables().items() if name != "unclustered" and rows.num_rows}
        best = [sentence for sentence in (_best(name, rows, one) for name, rows in listings.items()) if sentence]
        blocks += [Text(f"{one.options['cluster']}: {' '.join(best)}")] if best else []
        for name, rows in listings.items():
            blocks += _blocks(name, rows, one)
    notes = dict.fromkeys(_note_hashes(one, "streameval attribute reads them from the data") for one in attributions)
    return Section("costs", "Worst clusters", (*blocks, *(Text(f"{capital(note)}.", "note") for note in notes if note)))


def _best(name: str, rows: pa.Table, attribution: Attributed) -> str:
    """A sentence on the gain of repairing the best group of a table, or on the cost of the first one."""
    if not rows.num_rows or name == "unclustered" or "changed_from" in attribution.options:
        return ""
    first = rows.slice(0, 1).to_pylist()[0]
    if name == "slices":
        return _costliest(first, attribution)
    if name == "impure":
        return (
            f"Cluster {id_text(first['cluster'])} causes {percent(first['share'])} "
            "of the lost area under the lift curve."
        )
    largest = max(rows.to_pylist(), key=lambda row: row["gain"])
    group, verb = ("cluster", "Splitting") if name == "merges" else ("class", "Joining the pure clusters of")
    gain = number(abs(largest["gain"]), 4)
    would = "raise" if largest["gain"] >= 0 else "lower"
    return (
        f"{verb} {group} {id_text(largest[group])} would {would} {phrase_metric(attribution.metric or '')} by {gain}."
    )


def _costliest(row: Mapping[str, Any], attribution: Attributed) -> str:
    """A sentence on the first slice; its values are before the number of its rows."""
    own = [column for column in takewhile(lambda column: column != "rows", row) if column != "by"]
    named = [f"{c.partition('=')[0]}={visible(slice_text(row[c]))}" for c in own if is_of(c, row.get("by"))]
    values = row["value"], attribution.totals["whole"]
    value, whole = (number(each, digits(values)) for each in values)
    metric, rows = phrase_metric(attribution.slice_metric or ""), _compared_rows(attribution)
    return f"Slice {', '.join(named)} costs most: its {metric} is {value}, against {whole} of {rows}."


def _blocks(name: str, rows: pa.Table, attribution: Attributed, *, with_examples: bool = False) -> Iterator[Block]:
    """A table with its conclusion."""
    yield Text(_concluded(name, rows, attribution))
    if rows.num_rows:
        examples = str if with_examples else None
        yield format_rows(rows, attribution, examples=examples, caption=_words(name, attribution)[1])


def _concluded(name: str, rows: pa.Table, attribution: Attributed) -> str:
    """`conclusion` as a whole sentence."""
    return capital(f"{conclusion(name, rows, attribution)}.")
