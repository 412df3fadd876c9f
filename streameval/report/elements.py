"""What a page is made of: sections of sentences, tables, figures and facts.

Everything is plain text until it is rendered; only a figure's `svg` is markup. What builds a page writes no HTML, so
nothing from the data can become HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Block", "Cell", "Facts", "Figure", "Head", "Key", "Page", "Row", "Section", "Table", "Text"]

Mark = Literal["", "best", "better", "worse", "unclear", "failed", "passed"]


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes
    ----------
    text : what it says
    role : ``lead`` for what the page says above all, ``note`` for small print, ``code`` for something to copy
    """

    text: str
    role: Literal["", "lead", "note", "code"] = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : the value
    note : what follows it in smaller letters, such as an interval
    mark : how it stands out; never by colour alone
    order : the number to sort by; None to sort by the text
    """

    text: str
    note: str = ""
    mark: Mark = ""
    order: float | None = None


@dataclass(frozen=True)
class Head:
    """The head of a column.

    Attributes
    ----------
    text : its name
    number : whether its cells are numbers, set to the right
    about : what it means, shown on demand
    note : what stands above the name in smaller letters, such as the column that the values are of
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
    name : texts of the cells at its left end, which name it
    cells : the others
    about : what the row means: at the right end where there is room, else below its name
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
    heads : one for each column, those of the names first
    rows : tuple of Row
    note : what else must be said, below it
    """

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Key:
    """A line of a figure's key.

    Attributes
    ----------
    name : of a line of the figure
    value : such as its area
    look : ``s1`` to ``s6`` for a series, ``ref`` for a reference, ``best`` for the best possible
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
    description : what can be seen in it, for those who cannot
    svg : an ``<svg>`` element
    key : what its lines are
    wide : whether it takes the whole width
    """

    title: str
    description: str
    svg: Markup
    key: tuple[Key, ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Facts:
    """Names with what is known of them."""

    facts: tuple[tuple[str, str], ...]


Block = Text | Table | Figure | Facts


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes
    ----------
    name : its anchor
    title : its heading
    blocks : what it holds; figures next to each other are shown side by side
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
    about : one line below: how many rows, of what
    lead : sentences that say what is the case
    sections : tuple of Section; those without blocks are left out
    """

    title: str
    about: str
    lead: tuple[Text, ...]
    sections: tuple[Section, ...]
