"""Attribution results in words and tables, for the terminal and for a page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from streameval.plots import sources
from streameval.report import pictures
from streameval.report.elements import Cell, Head, Page, Row, Section, Table, Text
from streameval.report.provenance import Read, read_section
from streameval.report.sentences import joined
from streameval.report.values import digits, number, spoken
from streameval.results import slice_text
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from streameval.report.elements import Block
    from streameval.results import Source

__all__ = [
    "IN_DATA",
    "READ_ONCE",
    "Attributed",
    "Listed",
    "attribution_page",
    "conclusion",
    "costs_section",
    "hashed",
    "listed",
    "stayed",
    "title_of",
]

IN_DATA, READ_ONCE = "name the data after the store", "the data can be read only once"  # why ids are hashes
_HIDDEN = "Examples show rows, so they are left out here; --with-examples puts them on the page."
_TITLES = {
    "merges": "Worst merges: clusters that hold several classes",
    "splits": "Worst splits: classes spread over several clusters",
    "impure": "Impure clusters: their loss of area under the lift curve",
    "unclustered": "Positives in clusters at or below the threshold",
    "slices": "Slices that fall short of the whole",
}
_CAPTIONS = {
    "merges": "Clusters that hold several classes",
    "splits": "Classes spread over several clusters",
    "impure": "Their loss of area under the lift curve",
    "unclustered": "By size of the cluster",
    "slices": "The costliest first: shortfall × rows",
}
_CHANGED_CAPTIONS = {
    "merges": "Clusters that hold several earlier clusters",
    "splits": "Earlier clusters spread over several clusters",
}
_CHANGED = {"merges": "Merged since {}", "splits": "Split since {}"}
_CHANGED_HEADS = {
    "classes": "earlier",
    "class": "earlier",
    "false_pairs": "merged pairs",
    "missed_pairs": "split pairs",
}
_HEADS = {"running_share": "running", "false_pairs": "false pairs", "missed_pairs": "missed pairs"}
_NONE = {
    "merges": "no cluster holds several classes",
    "splits": "no class is in several clusters",
    "impure": "no cluster above the threshold is impure",
    "unclustered": "no positive is in a cluster at or below the threshold",
    "slices": "no slice falls short of the whole",
}
_UNCHANGED = {"merges": "no cluster holds rows of several earlier clusters", "splits": "no earlier cluster was split"}


class Attributed(Read, sources.Attributed, Protocol):
    """The part of an attribution that a report needs."""

    @property
    def metric(self) -> str | None:
        """The metric in which gains are measured."""

    @property
    def slice_metric(self) -> str | None:
        """The metric of the slices."""

    def tables(self) -> dict[str, pa.Table]:
        """The tables, by name."""


@dataclass(frozen=True)
class Listed:
    """A table as texts.

    Attributes
    ----------
    heads : names of the columns, and whether they are numbers
    rows : texts of each row
    values : the values behind the texts
    """

    heads: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str, ...], ...]
    values: tuple[tuple[Any, ...], ...]


def title_of(name: str, found: Attributed) -> str:
    """The title of a table."""
    earlier = found.options.get("changed_from")
    return _CHANGED[name].format(visible(str(earlier))) if earlier and name in _CHANGED else _TITLES[name]


def listed(rows: pa.Table, found: Attributed, *, examples: Callable[[str], str] | None) -> Listed:
    """Format the rows of a table.

    Parameters
    ----------
    rows : the table
    found : the attribution
    examples : function that shortens examples; None omits them
    """
    sampled = "ci_lower" in rows.column_names and rows["ci_lower"].null_count < rows.num_rows
    ends = {"ci_lower": _end, "ci_upper": _end} if sampled else {}
    columns: dict[str, Callable[[Any], str]] = {
        "cluster": _name,
        "class": _name,
        "partition": _name,
        "size": _count,
        "rows": _count,
        "classes": _count,
        "clusters": _count,
        "positives": _count,
        "largest": _largest,
        "false_pairs": _count,
        "missed_pairs": _count,
        "lost": lambda value: f"{value:.6f}",
        "share": _percent,
        "running_share": _percent,
        "gain": lambda value: f"{value:+.6f}",
        "value": lambda value: f"{value:.6f}",
        **ends,
        "shortfall": lambda value: f"{value:+.6f}",
    }
    own = [column for column in rows.column_names if column not in (*columns, "by", "examples", "ci_lower", "ci_upper")]
    columns = dict.fromkeys(own, _slice) | columns  # slicing columns
    if examples is not None:
        columns["examples"] = lambda cells: examples(_examples(cells))
    heads = _HEADS | {"gain": f"gain in {found.metric}"}
    heads |= _CHANGED_HEADS if "changed_from" in found.options else {}
    kept = [column for column in columns if column in rows.column_names]
    words = {"cluster", "class", "partition", "largest", "examples", *own}
    plain = rows.select(kept).to_pylist()
    by = rows["by"].to_pylist() if "by" in rows.column_names else [None] * len(plain)
    return Listed(
        tuple((heads.get(column, column), column not in words) for column in kept),
        tuple(
            tuple("" if column in own and not _is_of(column, key) else columns[column](row[column]) for column in kept)
            for row, key in zip(plain, by, strict=True)
        ),
        tuple(tuple(row[column] for column in kept) for row in plain),
    )


def _is_of(column: str, by: str | None) -> bool:
    """Whether a column belongs to the slicing `by`; True if `by` is None, because then there is only one slicing.

    >>> _is_of("night", "country,night"), _is_of("country", "night"), _is_of("country", None)
    (True, False, True)
    """
    return by is None or f",{column}," in f",{by},"


def _end(value: float | None) -> str:
    """An end of a sampling interval."""
    return "–" if value is None else f"{value:.4f}"


def conclusion(name: str, rows: pa.Table, found: Attributed) -> str:
    """A sentence on the share of the loss that the rows explain."""
    totals: Mapping[str, float] = found.totals
    changed = "changed_from" in found.options
    if name == "slices":
        return _sliced(rows, found)
    if not rows.num_rows:
        return _UNCHANGED.get(name, _NONE[name]) if changed else _NONE[name]
    if name == "unclustered":
        total, all_of = int(totals["unclustered_positives"]), int(totals["positives"])
        return f"{total:,} of {plural(all_of, 'positive')} ({total / all_of:.1%})"
    group, every, loss = {
        "merges": (
            "cluster",
            "clusters",
            f"all {_total(totals, 'false_pairs')} {'merged' if changed else 'false'} pairs",
        ),
        "splits": (
            "class",
            "classes",
            f"all {_total(totals, 'missed_pairs')} {'split' if changed else 'missed'} pairs",
        ),
        "impure": ("cluster", "clusters", f"the lost area, {totals.get('lost', 0):.6f}"),
    }[name]
    one, several = ("earlier cluster", "earlier clusters") if changed and group == "class" else (group, every)
    many, verb = (f"{rows.num_rows:,} {several}", "are") if rows.num_rows > 1 else (f"1 {one}", "is")
    share = rows["running_share"][-1].as_py()
    return f"{many} of {int(totals[every]):,} {verb} {_percent(share)} of {loss}"


def _sliced(rows: pa.Table, found: Attributed) -> str:
    """A sentence on the value that slices are compared with, and on the slices left out."""
    totals = found.totals
    slices, left = int(totals["slices"]), int(totals["slices_left_out"])
    if rows.num_rows:
        shown = f"{plural(rows.num_rows, 'slice')} of {slices:,}"
    elif slices == left:
        shown = f"none of {plural(slices, 'slice')} can be ranked"
    else:
        shown = "no slice that can be ranked falls short of the whole" if left else _NONE["slices"]
    whole = "has no value" if math.isnan(totals["whole"]) else f"{totals['whole']:.6f}"
    said = [shown, f"{found.slice_metric} of all rows {whole}"]
    if left:
        said.append(f"{left:,} left out: {_left_out(totals)}")
    if "slices_ci_level" in totals:
        unit = found.options.get("unit") or "row"
        level = totals["slices_ci_level"] * 100
        said.append(f"{level:.4g} % intervals by {unit}, widened for selection")
    return "; ".join(said)


def _left_out(totals: Mapping[str, float]) -> str:
    """The reasons why slices were left out."""
    valueless = int(totals["slices_without_value"])
    few = int(totals["slices_left_out"]) - valueless
    units = f"fewer than {totals['slices_least_units']:g} effective units of rows, positives or negatives"
    if valueless and few:
        return f"{valueless:,} without a value, {few:,} with {units}"
    return units if few else "no value"


def stayed(found: Attributed) -> str:
    """A sentence on the number of rows in clusters with the same rows as before."""
    same = int(found.totals["unchanged_rows"])
    share = f" ({same / found.rows:.1%})" if found.rows else ""
    return f"{same:,} of {plural(found.rows, 'row')}{share} stayed: their clusters hold the same rows as before"


def hashed(found: Attributed, why: str) -> str:
    """A note that ids are shown as hashes, with the reason; empty if there are none."""
    ids = [
        rows[column]
        for rows in found.tables().values()
        for column in ("cluster", "class")
        if column in rows.column_names
    ]
    if not any(len(column) and all(str(value).startswith("#") for value in column.to_pylist()) for column in ids):
        return ""
    return f"ids with # are hashes whose texts are unknown: {why}"


def attribution_page(found: Attributed, source: Source, *, with_examples: bool) -> Page:
    """The page of an attribution; examples are values from the data and appear only on request."""
    tables = found.tables()
    lead = [sentence for sentence in (_best(name, rows, found) for name, rows in tables.items()) if sentence]
    if "changed_from" in found.options:
        lead.insert(0, f"{stayed(found)}.")
    bare = not lead
    lead = lead or [_concluded(name, rows, found) for name, rows in tables.items()]
    made = {name: tuple(_blocks(name, rows, found, with_examples=with_examples)) for name, rows in tables.items()}
    sections = [
        Section(name, title_of(name, found).partition(":")[0], blocks[bare:])  # the lead may be their conclusions
        for name, blocks in made.items()
    ]
    pictured = tuple(pictures.concentration(found))
    sections.insert(0, Section("concentration", "How concentrated the loss is", pictured))
    notes = list(filter(None, [hashed(found, IN_DATA if source.nights else READ_ONCE)]))
    hidden = found.options.get("examples") and not with_examples
    return Page(
        _page_title(found),
        plural(found.rows, "row"),
        (Text(" ".join(lead), "lead"), *([Text(_HIDDEN, "note")] if hidden else [])),
        (*sections, read_section(found, source, notes)),
    )


def _page_title(found: Attributed) -> str:
    """What a page is about: a change of clusters, or the columns whose losses it attributes."""
    cluster, earlier = found.options.get("cluster"), found.options.get("changed_from")
    if earlier:
        return f"What changed from {earlier} to {cluster}"
    score = found.options.get("score", ())
    columns = [*([cluster] if cluster else []), *([score] if isinstance(score, str) else score)]
    return f"Where {joined(columns)} {'falls' if len(columns) == 1 else 'fall'} short"


def costs_section(found: Sequence[Attributed]) -> Section:
    """The costliest clusters and classes of an evaluation's cluster columns."""
    blocks: list[Block] = []
    for one in found:
        told = {name: rows for name, rows in one.tables().items() if name != "unclustered" and rows.num_rows}
        best = [sentence for sentence in (_best(name, rows, one) for name, rows in told.items()) if sentence]
        blocks += [Text(f"{one.options['cluster']}: {' '.join(best)}")] if best else []
        for name, rows in told.items():
            blocks += _blocks(name, rows, one, with_examples=False)
    notes = dict.fromkeys(filter(None, (hashed(one, "streameval attribute reads them from the data") for one in found)))
    return Section("costs", "Worst clusters", (*blocks, *(Text(f"{_first_capital(note)}.", "note") for note in notes)))


def _best(name: str, rows: pa.Table, found: Attributed) -> str:
    """A sentence on the gain of repairing the best group of a table, or on the cost of the first one."""
    if not rows.num_rows or name == "unclustered" or "changed_from" in found.options:
        return ""
    first = rows.slice(0, 1).to_pylist()[0]
    if name == "slices":
        return _costliest(first, found)
    if name == "impure":
        return (
            f"Cluster {_name(first['cluster'])} causes {_percent(first['share'])} "
            "of the lost area under the lift curve."
        )
    largest = max(rows.to_pylist(), key=lambda row: row["gain"])
    group, verb = ("cluster", "Splitting") if name == "merges" else ("class", "Joining the pure clusters of")
    gain = number(abs(largest["gain"]), 4)
    would = "raise" if largest["gain"] >= 0 else "lower"
    return f"{verb} {group} {_name(largest[group])} would {would} {spoken(found.metric or '')} by {gain}."


def _costliest(row: Mapping[str, Any], found: Attributed) -> str:
    """A sentence on the first slice; its values are before the number of its rows."""
    own = [column for column in takewhile(lambda column: column != "rows", row) if column != "by"]
    named = [f"{c.partition('=')[0]}={_slice(row[c])}" for c in own if _is_of(c, row.get("by"))]
    values = row["value"], found.totals["whole"]
    value, whole = (number(each, digits(values)) for each in values)
    metric = spoken(found.slice_metric or "")
    return f"Slice {', '.join(named)} costs most: its {metric} is {value}, against {whole} of all rows."


def _blocks(name: str, rows: pa.Table, found: Attributed, *, with_examples: bool) -> Iterator[Block]:
    """A table with its conclusion."""
    yield Text(_concluded(name, rows, found))
    if not rows.num_rows:
        return
    texts = listed(rows, found, examples=str if with_examples else None)
    order = sorted(range(len(texts.heads)), key=lambda i: texts.heads[i][0] in ("largest", "examples"))
    heads = tuple(_head(*texts.heads[i]) for i in order)
    made = tuple(
        Row((row[0],), tuple(Cell(row[i], order=values[i] if texts.heads[i][1] else None) for i in order[1:]))
        for row, values in zip(texts.rows, texts.values, strict=True)
    )
    captions = _CAPTIONS | (_CHANGED_CAPTIONS if "changed_from" in found.options else {})
    yield Table(captions[name], heads, made)


def _concluded(name: str, rows: pa.Table, found: Attributed) -> str:
    """`conclusion` as a whole sentence."""
    return _first_capital(f"{conclusion(name, rows, found)}.")


def _head(text: str, is_number: bool) -> Head:
    """The head of a column; for a gain, the text is the metric, and the note above it is "gain in"."""
    stem, _, metric = text.partition(" in ")
    return Head(metric, number=True, note=f"{stem} in") if metric else Head(text, number=is_number)


def _first_capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _total(totals: Mapping[str, float], name: str) -> str:
    return f"{int(totals.get(name, 0)):,}"


def _count(value: int) -> str:
    return f"{value:,}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _name(value: Any) -> str:
    return "none" if value is None else visible(value.hex() if isinstance(value, bytes) else str(value))


def _slice(value: Any) -> str:
    """A value of a slicing column, as other tables of slices show it."""
    return visible(slice_text(value))


def _largest(cells: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{_member(cell)} ({cell['rows']:,})" for cell in cells)


def _examples(cells: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"{_member(cell)}: {' | '.join(cell['values'])}" for cell in cells)


def _member(cell: Mapping[str, Any]) -> str:
    """The name of a class in a cluster, or of a cluster in a class, with its partition if it has one."""
    name = _name(next(iter(cell.values())))
    return f"{name} in {cell['partition']}" if cell.get("partition") else name
