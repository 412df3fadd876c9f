"""``streameval attribute``: the clusters and classes that cost the score, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli.console import deliver, progress_bar, refuse_directory, table
from streameval.cli.options import given, options
from streameval.cli.store import store_named
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa
    from rich.console import RenderableType

    from streameval.evaluation.attributed import Attribution

__all__ = ["attribute"]

_WIDTH = 120  # columns of examples
_NUMBERS = (
    "rows",
    "classes",
    "clusters",
    "positives",
    "size",
    "pairs",
    "lost",
    "share",
    "running",
    "gain",
    "value",
    "shortfall",
)
_TITLES = {
    "merges": "Worst merges: clusters that hold several classes",
    "splits": "Worst splits: classes spread over several clusters",
    "impure": "Impure clusters: what they take away from the area under the lift curve",
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
_NONE = {
    "merges": "no cluster holds several classes",
    "splits": "no class is in several clusters",
    "impure": "no cluster above the threshold is impure",
    "unclustered": "no positive is in a cluster at or below the threshold",
    "slices": "no slice falls short of the whole",
}
_UNCHANGED = {"merges": "no cluster holds rows of several earlier clusters", "splits": "no earlier cluster was split"}


@click.command()
@click.argument("data", nargs=-1, required=True)
@options("attribute")
def attribute(data: tuple[str, ...], json_to: str | None, out: str | None, quiet: bool, **asked: Any) -> None:
    """Name the clusters and classes that cost the score, in DATA or in a store.

    After a store DATA are the files of its nights, for examples and the texts of ids. Merges and splits need --classes
    or --changed-from, impure clusters --label.
    """
    from streameval.evaluation.attributed import check_target
    from streameval.evaluation.attribution import attribute as run

    refuse_directory(json_to)
    if out is not None:
        check_target(Path(out))
    with progress_bar(quiet) as advance:
        kept = store_named(data, asked, advance)
        if kept is None:
            found = run(list(data), progress=advance, **given(asked))
        else:
            found = kept[0].attribute(data=list(data[1:]) or None, **kept[1], **given(asked))
    if out is not None:
        found.save(out)
    deliver(json_to, lambda: found.to_json(indent=2), lambda: shown(found, from_store=kept is not None), quiet)


def shown(found: Attribution, *, from_store: bool = False) -> RenderableType:
    """All tables, each with a line that says how much of the loss it explains."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    earlier = found.options.get("changed_from")
    for name, rows in found.tables().items():
        title = _CHANGED[name].format(visible(str(earlier))) if earlier and name in _CHANGED else _TITLES[name]
        parts.append(Text(f"\n{title}" if parts else title))
        if rows.num_rows:
            parts.append(_tabled(rows, found))
        parts.append(Text(_conclusion(name, rows, found)))
    if earlier:
        parts.append(Text(f"\n{_stayed(found)}"))
    parts += [Text(f"left out: {plural(rows, 'row')}, {visible(reason)}") for reason, rows in found.dropped]
    parts += [Text(f"skipped: {visible(name)}: {visible(reason)}") for name, reason in found.skipped]
    if _hashed(found):
        why = "name the data after the store" if from_store else "the data can be read only once"
        parts.append(Text(f"ids with # are hashes, their texts are not known: {why}"))
    return Group(*parts)


def _hashed(found: Attribution) -> bool:
    """Whether hashes stand in place of ids."""
    ids = [
        rows[column]
        for rows in found.tables().values()
        for column in ("cluster", "class")
        if column in rows.column_names
    ]
    return any(len(column) and all(str(value).startswith("#") for value in column.to_pylist()) for column in ids)


def _tabled(rows: pa.Table, found: Attribution) -> RenderableType:
    """One table as text."""
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
        "examples": _examples,
    }
    columns |= {
        "value": lambda value: f"{value:.6f}",
        "interval": lambda value: value,
        "shortfall": lambda value: f"{value:+.6f}",
    }
    own = [column for column in rows.column_names if column not in columns and column not in ("ci_lower", "ci_upper")]
    columns = dict.fromkeys(own, _name) | columns  # slicing columns
    kept = [column for column in columns if column in rows.column_names]
    heads = {"running_share": "running", "false_pairs": "false pairs", "missed_pairs": "missed pairs"}
    heads["gain"] = f"gain in {found.metric}"
    heads |= _CHANGED_HEADS if "changed_from" in found.options else {}
    names = [heads.get(column, column) for column in kept]
    texts = [[columns[column](row[column]) for column in kept] for row in rows.to_pylist()]
    return table(names, texts, [name for name in names if name.split(" ")[-1] in _NUMBERS or name == heads["gain"]])


def _conclusion(name: str, rows: pa.Table, found: Attribution) -> str:
    """How much of the loss the rows explain."""
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
    many = f"{rows.num_rows:,} {several}" if rows.num_rows > 1 else f"1 {one}"
    share = rows["running_share"][-1].as_py()
    verb = "are" if rows.num_rows > 1 else "is"
    return f"{many} of {int(totals[every]):,} {verb} {_percent(share)} of {loss}"


def _sliced(rows: pa.Table, found: Attribution) -> str:
    """What the slices are compared with, and how many were left out."""
    totals = found.totals
    shown = plural(rows.num_rows, "slice") if rows.num_rows else _NONE["slices"]
    of_all = f"{found.slice_metric} of all rows {totals['whole']:.6f}"
    left = int(totals["slices_left_out"])
    out = f"; {left:,} left out: too few positives or negatives, or no value" if left else ""
    return f"{shown} of {int(totals['slices']):,}; {of_all}{out}" if rows.num_rows else f"{shown}; {of_all}{out}"


def _stayed(found: Attribution) -> str:
    stayed = int(found.totals["unchanged_rows"])
    share = f" ({stayed / found.rows:.1%})" if found.rows else ""
    return f"{stayed:,} of {plural(found.rows, 'row')}{share} stayed: their clusters hold the same rows as before"


def _total(totals: Mapping[str, float], name: str) -> str:
    return f"{int(totals.get(name, 0)):,}"


def _count(value: int) -> str:
    return f"{value:,}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _name(value: Any) -> str:
    return "none" if value is None else visible(value.hex() if isinstance(value, bytes) else str(value))


def _largest(cells: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{_name(next(iter(cell.values())))} ({cell['rows']:,})" for cell in cells)


def _examples(cells: Iterable[Mapping[str, Any]]) -> str:
    return cut("; ".join(f"{_name(next(iter(cell.values())))}: {' | '.join(cell['values'])}" for cell in cells))


def cut(text: str) -> str:
    """A visible text of at most 120 columns of a terminal.

    Examples
    --------
    >>> len(cut("x" * 500)), cut("short")
    (120, 'short')
    """
    from rich.cells import cell_len, set_cell_size

    clean = visible(text[: 4 * _WIDTH])
    return clean if cell_len(clean) <= _WIDTH else set_cell_size(clean, _WIDTH - 1) + "…"
