"""The elements of a page: sections of sentences, tables, figures and facts; and the section on what was read.

Everything is plain text until it is rendered; only a figure's `svg` is markup. The code that builds a page writes no
HTML, so nothing from the data can become HTML. The terminal renders the same tables.

Texts such as messages of libraries may contain credentials or paths outside the data, which must not leave the machine
with a page: `travelling` removes both.

A page is rendered as one self-contained HTML file: it loads no network resource, no script and no font. Three measures
keep data from being interpreted as markup or code. Templates escape all values. Invisible control characters, such as
those that change the direction of writing, are spelled out. A content security policy keeps the browser from loading
anything, and from running scripts other than the inline one that sorts tables, which is identified by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streameval import __version__
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from streameval.results import Source


_NUMBER = re.compile(r"^\d[\d.,]*(?= )")  # at the start of a reason
_PARTS = re.compile(r"(?<=[_@=/])(?=[^/])|(?<=\.)(?=[^\d.])|(?<=\w)(?=\[)")  # no number breaks at its point
_WORD = 14  # letters of a word that has room everywhere

Mark = Literal["", "best", "better", "worse", "unclear", "failed", "passed"]


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes
    ----------
    text : the text
    role : ``lead`` for the main message of the page, ``note`` for small print, ``code`` for a command to copy
    """

    text: str
    role: Literal["", "lead", "note", "code"] = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : the value
    note : text that follows in smaller letters, such as an interval
    reason : why something is missing; shown as a numbered footnote of the table
    mark : how the cell is highlighted; never by colour alone
    order : the number to sort by; None to sort by the text
    """

    text: str
    note: str = ""
    mark: Mark = ""
    order: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Head:
    """The head of a column.

    Attributes
    ----------
    text : its name
    number : whether its cells are numbers, which are right-aligned
    about : its meaning, shown on demand
    note : text above the name in smaller letters, such as the column that the values belong to
    """

    text: str
    number: bool = False
    about: str = ""
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes
    ----------
    name : texts of the leftmost cells, which name the row
    cells : the other cells
    about : the meaning of the row, shown at the right if there is room, else below its name
    why : a sentence on the row, shown below all of its cells
    """

    name: tuple[str, ...]
    cells: tuple[Cell, ...]
    about: str = ""
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    caption : what it shows
    heads : one for each column, name columns first
    rows : tuple of Row
    note : text below the table
    """

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def footnotes(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """The footnote number of each reason, and the footnotes; reasons that differ in a leading number share one.

        Examples
        --------
        >>> cells = tuple(Cell("–", reason=f"{n} units: 5 are needed") for n in ("3.8", "1.6"))
        >>> Table("", (), (Row((), cells),)).footnotes
        ({'3.8 units: 5 are needed': 1, '1.6 units: 5 are needed': 1}, ('1.6 to 3.8 units: 5 are needed',))
        """
        alike: dict[str, list[str]] = {}
        for reason in dict.fromkeys(cell.reason for row in self.rows for cell in row.cells if cell.reason):
            alike.setdefault(_NUMBER.sub("", reason), []).append(reason)
        numbers = {reason: i for i, group in enumerate(alike.values(), 1) for reason in group}
        return numbers, tuple(map(range_of, alike.values()))


def range_of(reasons: Sequence[str]) -> str:
    """Join reasons that differ only in a leading number into one with a range.

    >>> range_of(["4.9 effective units of rows: …", "3.0 effective units of rows: …", "4.0 effective units of rows: …"])
    '3.0 to 4.9 effective units of rows: …'
    """
    if len(reasons) == 1:
        return reasons[0]
    least, *_, most = sorted(reasons, key=lambda one: float(_NUMBER.findall(one)[0].replace(",", "")))
    return f"{_NUMBER.findall(least)[0]} to {most}"


@dataclass(frozen=True)
class Key:
    """A line of a figure's key.

    Attributes
    ----------
    name : name of a line in the figure
    value : a value such as its area
    look : ``s1`` to ``s6`` for a series, with ``d1`` to ``d3`` if it is dashed, ``ref`` for a reference, ``best``
        for the best possible
    """

    name: str
    value: str
    look: str


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes
    ----------
    title : what it shows
    svg : an ``<svg>`` element
    key : entries that explain its lines
    wide : whether it takes the full width
    """

    title: str
    svg: Markup
    key: tuple[Key, ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    facts: tuple[tuple[str, str], ...]


Block = Text | Table | Figure | Facts


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes
    ----------
    name : its anchor
    title : its heading
    blocks : its contents; consecutive figures are shown side by side
    """

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes
    ----------
    title : its heading
    about : one line below the heading, such as the number of rows
    lead : sentences that state the main findings
    sections : tuple of Section; those without blocks are left out
    """

    title: str
    about: str
    lead: tuple[Text, ...]
    sections: tuple[Section, ...]


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
    named = tuple(name for name in data if name)
    return _PATH.sub(lambda path: path[0] if path[0].startswith(named) else f"…/{last_part(path[0])}", text)


def last_part(path: str) -> str:
    """The name of a file or directory within its parent."""
    return path.rstrip("/").rpartition("/")[2]


def read_section(result: Read, source: Source, notes: Sequence[str] = (), counts: Sequence[str] = ()) -> Section:
    """The section "What was read": data, rows, rows left out with reasons, policies, version, and the command.

    Parameters
    ----------
    result : the result
    source : where it comes from
    notes : further notes on the values
    counts : labelled and positive rows, in words
    """
    facts = [("Data", ", ".join(source.data))] if source.data else []
    facts += [("Files", f"{source.files:,}")] if source.files else []
    share = f", of which {', '.join(counts)}" if counts and result.rows else ""
    facts += [("Nights", f"{source.nights:,}")] if source.nights else []
    facts += [("Rows", f"{result.rows:,}{share}")]
    facts += [("Left out", f"{plural(rows, 'row')}: {travelling(why, source.data)}") for why, rows in result.dropped]
    tables: list[Block] = []
    if result.skipped:
        facts += [("Files left out", f"{len(result.skipped):,}; see below")]
        shown = [tuple(travelling(text, source.data) for text in pair) for pair in result.skipped[:_SKIPPED]]
        left = len(result.skipped) - len(shown)
        note = f"{plural(left, 'file')} more; the JSON output has all." if left else ""
        rows = tuple(Row((name,), (Cell(why),)) for name, why in shown)
        tables = [Table("Files left out", (Head("file"), Head("reason")), rows, note)]
    facts += [(name.replace("_", " "), _plain(value)) for name, value in result.options.items()]
    facts += [("Numbers", note) for note in notes]
    return section_of_facts(facts, source, tables)


def section_of_facts(facts: Sequence[tuple[str, str]], source: Source, tables: Sequence[Block] = ()) -> Section:
    """The section "What was read" of these facts, with the version and the command that repeats the run."""
    repeats = [Text("The command that repeats it:"), Text(source.command, "code")] if source.command else []
    made_with = ("Made with", f"streameval {__version__}")
    return Section("read", "What was read", (Facts((*facts, made_with)), *tables, *repeats))


def _plain(value: object) -> str:
    """An option's value as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "yes" if value is True else "no" if value is False else str(value)


@cache
def _environment() -> Environment:
    """The templates: values are escaped and made visible, and a misspelt name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("streameval.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,  # the texts of markup are visible
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["a"] = lambda block, kind: type(block).__name__ == kind
    environment.filters["runs"] = _runs
    environment.filters["breakable"] = _breakable
    return environment


def _breakable(text: str) -> Markup:
    """A text whose long words may break between the parts of names, where browsers would not break them."""
    from markupsafe import Markup

    words = (_PARTS.sub("\0", word) if len(word) > _WORD else word for word in re.split(r"(\s+)", visible(text)))
    return Markup("<wbr>").join("".join(words).split("\0"))  # this escapes each part


def _runs(blocks: tuple[Block, ...]) -> list[tuple[bool, list[Block]]]:
    """Split blocks into runs of figures to show side by side, and runs of other blocks."""
    runs: list[tuple[bool, list[Block]]] = []
    for block in blocks:
        side_by_side = isinstance(block, Figure) and not block.wide
        if not runs or runs[-1][0] != side_by_side:
            runs.append((side_by_side, []))
        runs[-1][1].append(block)
    return runs


def html_of(page: Page) -> str:
    r"""The page as the text of an HTML file.

    Examples
    --------
    >>> from streameval.report.elements import Page, Section, Text
    >>> made = html_of(Page("<b>", "", (), (Section("one", "One", (Text("a\u202eb"),)),)))
    >>> "<h1>&lt;b&gt;</h1>" in made, r"<p>a\u202eb</p>" in made
    (True, True)
    """
    from markupsafe import Markup

    environment = _environment()
    script, style = (Markup(environment.get_template(name).render()) for name in ("page.js", "page.css"))  # noqa: S704 - our own files
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = [section for section in page.sections if section.blocks]
    template = environment.get_template("page.html")
    facts = {"style": style, "script": script, "digest": digest, "version": __version__}
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")  # for pages that are the same to the last byte
    written = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return template.render(page=page, sections=shown, written=written.date().isoformat(), **facts)


def html_of_tables(tables: Sequence[Table]) -> str:
    """Tables for a notebook, which applies its own styles."""
    return _environment().get_template("notebook.html").render(tables=tables)
