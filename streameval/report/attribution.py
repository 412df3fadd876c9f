"""The page of an attribution, and the section of an evaluation's page on its worst clusters."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from streameval.report import pictures
from streameval.report.elements import Cell, Head, Page, Row, Section, Table, Text
from streameval.report.losses import (
    IN_DATA,
    READ_ONCE,
    conclusion,
    hashed,
    id_text,
    is_of,
    listed,
    percent,
    stayed,
    title_of,
)
from streameval.report.provenance import read_section
from streameval.report.sentences import joined
from streameval.report.values import digits, number, spoken
from streameval.results import slice_text
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from streameval.report.elements import Block
    from streameval.report.losses import Attributed
    from streameval.results import Source

_HIDDEN = "Examples show rows, so they are left out here; --with-examples puts them on the page."
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
            f"Cluster {id_text(first['cluster'])} causes {percent(first['share'])} "
            "of the lost area under the lift curve."
        )
    largest = max(rows.to_pylist(), key=lambda row: row["gain"])
    group, verb = ("cluster", "Splitting") if name == "merges" else ("class", "Joining the pure clusters of")
    gain = number(abs(largest["gain"]), 4)
    would = "raise" if largest["gain"] >= 0 else "lower"
    return f"{verb} {group} {id_text(largest[group])} would {would} {spoken(found.metric or '')} by {gain}."


def _costliest(row: Mapping[str, Any], found: Attributed) -> str:
    """A sentence on the first slice; its values are before the number of its rows."""
    own = [column for column in takewhile(lambda column: column != "rows", row) if column != "by"]
    named = [f"{c.partition('=')[0]}={visible(slice_text(row[c]))}" for c in own if is_of(c, row.get("by"))]
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
