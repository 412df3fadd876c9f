"""The elements of a page: sections of sentences, tables, figures and facts.

Everything is plain text until it is rendered; only a figure's `svg` is markup. The code that builds a page writes no
HTML, so nothing from the data can become HTML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

_NUMBER = re.compile(r"^\d[\d.,]*(?= )")  # at the start of a reason

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
    """

    name: tuple[str, ...]
    cells: tuple[Cell, ...]
    about: str = ""


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
        return numbers, tuple(map(_together, alike.values()))


def _together(reasons: Sequence[str]) -> str:
    """Join reasons that differ only in a leading number into one with a range."""
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
    description : text alternative for readers who cannot see it
    svg : an ``<svg>`` element
    key : entries that explain its lines
    wide : whether it takes the full width
    """

    title: str
    description: str
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
