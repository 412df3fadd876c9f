"""Slices on a page: one table per slicing, the most harmful slice first.

The harm of a slice is its shortfall against the value of all rows, times its number of rows. If the first metric has no
better end, slices are sorted by rows. If there are more slices than a page can hold, it shows those with the most rows
and says how many are not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.plots.comparisons import slice_labels
from streameval.report import pictures
from streameval.report.elements import Cell, Head, Row, Section, Table, Text
from streameval.report.headline import difference_table
from streameval.report.terminal.notes import sampling_said
from streameval.report.terminal.slices import by_slicing, rests
from streameval.report.values import digits, slice_cells, value_cell
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.report.elements import Block
    from streameval.report.values import Meaning
    from streameval.results import Scalar

MOST = 200  # slices of a slicing on a page
_WIDE, _WIDE_ENDS = 8, 6  # columns of values in a table, and of values with intervals
_CUT = "share of the rows in clusters that have rows of other slices as well; only the rows of the slice count here"


def slice_section(
    results: Sequence[Scalar], meanings: Mapping[str, Meaning], drawn: pictures.Drawn, *, store: bool = False
) -> Section:
    """Every slicing, as a picture of its largest slices and as a table; `store` as `sampling_said`."""
    whole = {(r.metric, r.of): r for r in results if r.slice is None}
    blocks: list[Block] = []
    for i, (by, slices) in enumerate(by_slicing(results).items()):
        if len(slices) > 1:
            names = slice_labels([row[0].slice or {} for row in slices])
            blocks += pictures.slices(drawn, by, slices[0][0], names, f"slices-{i}")
        blocks.append(_table(by, slices, whole, meanings))
        blocks += _rests(by, rests(results, by), store=store)
    return Section("slices", "Slices", tuple(blocks))


def _table(
    by: str,
    slices: Sequence[Sequence[Scalar]],
    whole: Mapping[tuple[str, str | None], Scalar],
    meanings: Mapping[str, Meaning],
) -> Table:
    first = slices[0]
    shown = sorted(slices, key=_rows, reverse=True)[:MOST]
    ends = any(result.ci_lower is not None for row in shown for result in row)
    picked = _picked(first, _WIDE_ENDS if ends else _WIDE)
    leading = first[picked[0]] if picked and _ranks(first[picked[0]], meanings) else None
    if leading is not None:
        base = whole.get((leading.metric, leading.of))
        shown.sort(key=lambda row: _harm(row[picked[0]], base, meanings), reverse=True)
    counts = [digits(row[i].value for row in shown) for i in picked]
    cut = next((i for i, result in enumerate(first) if result.cut_share is not None), None)
    rows = tuple(
        Row(
            name,
            (
                Cell(f"{_rows(row):,}", order=_rows(row)),
                Cell(f"{_positives(row):,}", order=_positives(row)),
                *([] if cut is None else [_cut(row[cut])]),
                *(value_cell(row[i], count) for i, count in zip(picked, counts, strict=True)),
            ),
        )
        for name, row in zip(slice_cells([row[0].slice for row in shown]), shown, strict=True)
    )
    heads = (
        *(Head(name) for name in first[0].slice or ()),
        Head("rows", number=True),
        Head("positive", number=True),
        *([] if cut is None else [Head("cut", number=True, about=_CUT, note=first[cut].of or "")]),
        *(_head(first[i], meanings) for i in picked),
    )
    return Table(f"By {by}", heads, rows, _note(len(slices), len(shown), first, picked, leading))


def _rests(by: str, found: Sequence[Scalar], *, store: bool) -> list[Block]:
    """The differences between slices and all other rows, up to the limit of a page."""
    left = len(found) - MOST
    note = f"--out FILE.csv (or .parquet, .json) has {plural(left, 'more difference')}." if left > 0 else ""
    if not found:
        return []
    table = difference_table(found[:MOST], f"By {by}, against all other rows", note)
    return [table, Text(sampling_said(found, store=store), "note")]


def _picked(first: Sequence[Scalar], most: int) -> list[int]:
    """Indices of the at most `most` values in a table: the first metric of every column, then further ones."""
    columns: dict[str | None, list[int]] = {}
    for i, result in enumerate(first):
        columns.setdefault(result.of, []).append(i)
    ranks = max(map(len, columns.values()), default=0)
    order = [indices[rank] for rank in range(ranks) for indices in columns.values() if rank < len(indices)]
    kept = order[:most]
    return kept if len(columns) > 1 else sorted(kept)


def _rows(row: Sequence[Scalar]) -> int:
    return max(result.rows for result in row)


def _cut(result: Scalar) -> Cell:
    """The share of rows in clusters that a slice cuts."""
    share = result.cut_share or 0.0
    return Cell(f"{share:.1%}", order=share)


def _positives(row: Sequence[Scalar]) -> int:
    return max(result.positives or 0 for result in row)


def _ranks(result: Scalar, meanings: Mapping[str, Meaning]) -> bool:
    """Whether slices can be sorted by a metric: one of its ends is better."""
    meaning = meanings.get(result.metric)
    return meaning is not None and meaning.better is not None


def _harm(result: Scalar, base: Scalar | None, meanings: Mapping[str, Meaning]) -> float:
    """The harm of a slice; lowest of all if it has no value."""
    if base is None or result.value != result.value:
        return float("-inf") if result.value != result.value else 0.0
    higher = meanings[result.metric].better == "higher"
    return (base.value - result.value if higher else result.value - base.value) * result.rows


def _head(result: Scalar, meanings: Mapping[str, Meaning]) -> Head:
    """The head of a column of values: the metric, and the column it was computed from."""
    meaning = meanings.get(result.metric)
    about = meaning.line if meaning else ""
    return Head(result.metric, number=True, about=about, note=result.of or "")


def _note(found: int, shown: int, first: Sequence[Scalar], picked: Sequence[int], leading: Scalar | None) -> str:
    """Notes on the order of the rows, and on what is left out."""
    notes = []
    if leading is not None:
        what = f"{leading.metric}{_of(leading)}"
        notes.append(f"Sorted by cost: rows × the shortfall of {what} from the value of all rows.")
    if found > shown:
        notes.append(
            f"The {shown} slices with the most rows; {plural(found - shown, 'slice')} not shown: "
            "--out FILE.csv (or .parquet, .json) has all."
        )
    if len(first) > len(picked):
        notes.append(f"--out FILE.csv has {plural(len(first) - len(picked), 'more value')} of each slice.")
    return " ".join(notes)


def _of(result: Scalar) -> str:
    return f" of {result.of}" if result.of else ""
