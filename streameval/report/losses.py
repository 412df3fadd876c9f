"""Attributed losses in words and tables, which the terminal and a page share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streameval.plots import sources
from streameval.report.provenance import Read
from streameval.results import slice_text
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

IN_DATA, READ_ONCE = "name the data after the store", "the data can be read only once"  # why ids are hashes
_TITLES = {
    "merges": "Worst merges: clusters that hold several classes",
    "splits": "Worst splits: classes spread over several clusters",
    "impure": "Impure clusters: their loss of area under the lift curve",
    "unclustered": "Positives in clusters at or below the threshold",
    "slices": "Slices that fall short of the whole",
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
        "cluster": id_text,
        "class": id_text,
        "partition": id_text,
        "size": _count,
        "rows": _count,
        "classes": _count,
        "clusters": _count,
        "positives": _count,
        "largest": _largest,
        "false_pairs": _count,
        "missed_pairs": _count,
        "lost": lambda value: f"{value:.6f}",
        "share": percent,
        "running_share": percent,
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
            tuple("" if column in own and not is_of(column, key) else columns[column](row[column]) for column in kept)
            for row, key in zip(plain, by, strict=True)
        ),
        tuple(tuple(row[column] for column in kept) for row in plain),
    )


def is_of(column: str, by: str | None) -> bool:
    """Whether a column belongs to the slicing `by`; True if `by` is None, because then there is only one slicing.

    >>> is_of("night", "country,night"), is_of("country", "night"), is_of("country", None)
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
    return f"{many} of {int(totals[every]):,} {verb} {percent(share)} of {loss}"


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


def _total(totals: Mapping[str, float], name: str) -> str:
    return f"{int(totals.get(name, 0)):,}"


def _count(value: int) -> str:
    return f"{value:,}"


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{value:.1%}"


def id_text(value: Any) -> str:
    """An id as text; bytes in hexadecimal."""
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
    name = id_text(next(iter(cell.values())))
    return f"{name} in {cell['partition']}" if cell.get("partition") else name
