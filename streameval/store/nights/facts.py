"""Facts of a night that the ledger keeps with its states: nulls by column, rows and nulls by file, files left out.

They come from the states and the footers of the files. If a rule fails, they show what changed without reading data.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.results import Scalar
from streameval.scan import READ_ERRORS
from streameval.scan.parquet.ranges import footer_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.evaluation.families import MetricRequest
    from streameval.scan import File
    from streameval.store.files.entries import Entry


def gathered(
    files: Sequence[File],
    columns: Sequence[str],
    states: Iterable[tuple[MetricRequest, Any]],
    left_out: Sequence[tuple[str, str]],
    *,
    filtered: bool = False,
) -> str:
    """The facts of a night as JSON.

    Parameters
    ----------
    files : the files of the night
    columns : the columns that were read
    states : the folded states, each with its request
    left_out : (file, reason) of unreadable files
    filtered : whether the night has only the rows of a filter; of the footers' counts, only zero is then certain
    """
    counted = [_file(file, columns) for file in files if file.name not in dict(left_out)]
    if filtered:
        counted = [one | {"nulls": {name: 0 for name, count in one["nulls"].items() if not count}} for one in counted]
    nulls: dict[str, int] = {}
    for name in columns:
        counts = [one["nulls"].get(name) for one in counted]
        if all(count is not None for count in counts):
            nulls[name] = sum(counts)
    for wanted, state in states:
        if wanted.group == "score":
            nulls[wanted.of] = int(state.nan_rows.sum())
    return json.dumps({"nulls": nulls, "files": counted, "left_out": [list(one) for one in left_out]})


def joined(entry: Entry, other: Entry) -> str:
    """Merge the facts of a night with those of added columns, as JSON."""
    one, more = entry.noted, other.noted
    if "nulls" not in one:
        return entry.facts
    nulls = {file["file"]: file["nulls"] for file in more.get("files", ())}
    files = [file | {"nulls": nulls.get(file["file"], {}) | file["nulls"]} for file in one.get("files", ())]
    return json.dumps(one | {"nulls": more.get("nulls", {}) | one["nulls"], "files": files})


def _file(file: File, columns: Sequence[str]) -> dict[str, Any]:
    """The rows of a file, and the nulls of each column for which the footer counts them."""
    try:
        footer = footer_at(file.filesystem, file.path)
    except READ_ERRORS:
        return {"file": file.name, "rows": None, "nulls": {}}
    place = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    nulls = {name: _nulls(footer, place[name]) for name in columns if name in place}
    return {
        "file": file.name,
        "rows": footer.num_rows,
        "nulls": {name: n for name, n in nulls.items() if n is not None},
    }


def _nulls(footer: Any, i: int) -> int | None:
    """The nulls of a column; None if a row group has no null count."""
    total = 0
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(i).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        total += statistics.null_count
    return total


def fact(entry: Entry, name: str, of: str | None = None, *, share: bool = False) -> Scalar:
    """A fact of a night as a result: its ``rows``, ``positives``, or ``nulls`` of a column.

    Parameters
    ----------
    entry : the night
    name, of : the fact; `of` is the column of ``nulls``
    share : whether to divide positives by labelled rows, and nulls by rows

    Returns
    -------
    Scalar
        Undefined, with the reason, if it was not recorded.
    """
    labels = entry.header
    labelled = labels["neg"] + labels["pos"]
    if name == "rows":
        return Scalar.certain(name, entry.rows)
    if name == "positives":
        value, of_all = labels["pos"], labelled
    elif of == labels["spec"]["column"]:
        value, of_all = labels["null"], entry.rows
    else:
        value, of_all = entry.noted.get("nulls", {}).get(of), entry.rows
    if value is None:
        why = f"nulls of {of} were not recorded; if the store has no filter (--where), fold the night again"
        return replace(Scalar.undefined(name, why), of=of)
    found = (value / of_all if of_all else math.nan) if share else value
    return replace(Scalar.certain(name, found), of=of, reason="no rows" if math.isnan(found) else None)
