"""What a verb that reads a store would read, from the ledger alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.store.files.ledger import Entry

__all__ = ["Reading", "reading"]


@dataclass(frozen=True)
class Reading:
    """What would be read, and kept.

    Attributes
    ----------
    nights : number of nights
    first, last : names of the first and the last
    rows : of these nights
    files, bytes : state files and their size, at most: what is cached needs none
    columns : files and bytes by state, such as ``score score_lr``
    keeps : what would be kept
    """

    nights: int
    first: str
    last: str
    rows: int
    files: int
    bytes: int
    columns: dict[str, tuple[int, int]]
    keeps: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        columns = [{"state": name, "files": files, "bytes": size} for name, (files, size) in self.columns.items()]
        return {**self.__dict__, "columns": columns}

    def __str__(self) -> str:
        nights = self.first if self.nights == 1 else f"{plural(self.nights, 'night')}, {self.first} to {self.last}"
        lines = [
            f"{nights}; {plural(self.rows, 'row')}",
            f"would read at most {plural(self.files, 'state file')}, {self.bytes / 1e6:,.1f} MB, less what is cached",
            *(f"  {name}: {plural(n, 'file')}, {size / 1e6:,.1f} MB" for name, (n, size) in self.columns.items()),
            f"would keep {self.keeps}",
        ]
        return "\n".join(lines)


def reading(entries: Sequence[Entry], columns: Sequence[str], keeps: str) -> Reading:
    """What would be read of these nights, of some columns, or of all where none is named."""
    found: dict[str, tuple[int, int]] = {}
    for entry in entries:
        for state in entry.states:
            if not columns or state.of in columns:
                files, size = found.get(f"{state.group} {state.of}", (0, 0))
                found[f"{state.group} {state.of}"] = files + 1, size + state.bytes
    return Reading(
        len(entries),
        entries[0].partition if entries else "",
        entries[-1].partition if entries else "",
        sum(entry.rows for entry in entries),
        sum(files for files, _ in found.values()),
        sum(size for _, size in found.values()),
        found,
        keeps,
    )
