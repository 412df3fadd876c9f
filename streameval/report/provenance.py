"""The provenance of results: what was read and left out, what is approximate, and the command that repeats the run.

Texts such as messages of libraries may contain credentials or paths outside the data, which must not leave the machine
with a page. `travelling` removes both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from streameval._version import __version__
from streameval.report.elements import Cell, Facts, Head, Row, Section, Table, Text
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.report.elements import Block
    from streameval.results import Source

_SKIPPED = 20  # omitted files that a page names
_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*(?:/[^/\s'\"@]*)*@")
_QUERY = re.compile(r"(\w+://[^\s?'\"]*)\?[^\s'\"]*?(?=[:;,.]?(?:[\s'\"]|$))")
_PATH = re.compile(r"(?<![\w:/.~…])/(?:[^\s/:;,'\"()\[\]]+/)+[^\s/:;,'\"()\[\]]*")


class Read(Protocol):
    """What was read, as every result records it."""

    @property
    def rows(self) -> int:
        """The number of rows that the result covers."""

    @property
    def dropped(self) -> tuple[tuple[str, int], ...]:
        """Rows left out, by reason."""

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """Files left out, with the reason."""

    @property
    def options(self) -> dict[str, Any]:
        """Options that decide the result."""


def travelling(text: str, data: Sequence[str]) -> str:
    """Remove credentials from a text, and directories other than those of the data.

    Parameters
    ----------
    text : a text, such as an error message
    data : the paths and URIs that the user named

    Examples
    --------
    >>> travelling("/home/ann/scores/a.parquet: no space left on /mnt/scratch/x.tmp", ["/home/ann/scores"])
    '/home/ann/scores/a.parquet: no space left on …/x.tmp'
    >>> travelling("s3://key:secret@bucket/a?region=eu: denied", [])
    's3://bucket/a: denied'
    """
    text = _QUERY.sub(r"\1", text)
    text = _CREDENTIALS.sub("", text)
    kept = tuple(name for name in data if name)
    return _PATH.sub(lambda found: found[0] if found[0].startswith(kept) else f"…/{_last(found[0])}", text)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def read_section(found: Read, source: Source, notes: Sequence[str] = (), positives: int | None = None) -> Section:
    """The section "What was read": data, rows, rows left out with reasons, policies, version, and the command.

    Parameters
    ----------
    found : the result
    source : where it comes from
    notes : further notes on the values
    positives : positive rows; None without labels
    """
    facts = [("Data", ", ".join(source.data))] if source.data else []
    facts += [("Files", f"{source.files:,}")] if source.files else []
    share = (
        f", of which {positives:,} positive ({positives / found.rows:.2%})"
        if positives is not None and found.rows
        else ""
    )
    facts += [("Nights", f"{source.nights:,}")] if source.nights else []
    facts += [("Rows", f"{found.rows:,}{share}")]
    facts += [
        ("Left out", f"{plural(rows, 'row')}: {travelling(reason, source.data)}") for reason, rows in found.dropped
    ]
    if found.skipped:
        facts += [("Files left out", f"{len(found.skipped):,}; see below")]
    facts += [(name.replace("_", " "), _plain(value)) for name, value in found.options.items()]
    facts += [("Numbers", note) for note in notes]
    facts += [("Made with", f"streameval {__version__}")]
    blocks: list[Block] = [Facts(tuple(facts))]
    if found.skipped:
        blocks.append(_skipped(found.skipped, source.data))
    if source.command:
        blocks += [Text("The command that repeats it:"), Text(source.command, "code")]
    return Section("read", "What was read", tuple(blocks))


def _skipped(skipped: Sequence[tuple[str, str]], data: Sequence[str]) -> Table:
    """Files that could not be read."""
    shown = skipped[:_SKIPPED]
    rows = tuple(Row((travelling(name, data),), (Cell(travelling(why, data)),)) for name, why in shown)
    more = len(skipped) - len(shown)
    note = f"{plural(more, 'file')} more; the JSON output has all." if more else ""
    return Table("Files left out", (Head("file"), Head("reason")), rows, note)


def _plain(value: object) -> str:
    """An option's value as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "yes" if value is True else "no" if value is False else str(value)
