"""Forecast of what a verb reads and keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.wording import plural, size, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.store.files.entries import Entry


@dataclass(frozen=True)
class Reading:
    """Forecast of what a verb reads and keeps.

    Attributes
    ----------
    nights : number of nights
    first, last : names of the first and the last night
    rows : rows of these nights
    files, bytes : number and size of the files to read; upper bounds for states, because results may be cached
    columns : (files, bytes) by state, such as ``score score_lr``
    keeps : what would be kept, in words
    of_data : columns of the data that would be read; empty if states are read
    """

    nights: int
    first: str
    last: str
    rows: int
    files: int
    bytes: int
    columns: dict[str, tuple[int, int]]
    keeps: str
    of_data: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        columns = [{"state": name, "files": files, "bytes": nbytes} for name, (files, nbytes) in self.columns.items()]
        return {**self.__dict__, "columns": columns}

    def __str__(self) -> str:
        span = f", {self.first} to {self.last}" if self.nights else ""
        nights = self.first if self.nights == 1 else plural(self.nights, "night") + span
        reads = f"at most {plural(self.files, 'state file')}, {size(self.bytes)}, less what is cached"
        if self.of_data:
            reads = f"{plural(self.files, 'file')}, {size(self.bytes)}: {', '.join(self.of_data)}"
        lines = [
            f"{nights}; {plural(self.rows, 'row')}",
            f"would read {reads if self.files else 'nothing'}",
            *(f"  {name}: {plural(n, 'file')}, {size(nbytes)}" for name, (n, nbytes) in self.columns.items()),
            f"would keep {self.keeps}",
        ]
        return "\n".join(map(visible, lines))


def reading(entries: Sequence[Entry], columns: Sequence[str], keeps: str) -> Reading:
    """The forecast of reading the states of these nights, for the given columns or all; uses the ledger only."""
    found: dict[str, tuple[int, int]] = {}
    for entry in entries:
        for state in entry.states:
            if not columns or state.of in columns:
                files, nbytes = found.get(f"{state.group} {state.of}", (0, 0))
                found[f"{state.group} {state.of}"] = files + 1, nbytes + state.bytes
    return Reading(
        len(entries),
        entries[0].partition if entries else "",
        entries[-1].partition if entries else "",
        sum(entry.rows for entry in entries),
        sum(files for files, _ in found.values()),
        sum(nbytes for _, nbytes in found.values()),
        found,
        keeps,
    )
