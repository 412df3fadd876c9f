"""Render a page as one self-contained HTML file: it loads no network resource, no script and no font.

Three measures keep data from being interpreted as markup or code. Templates escape all values. Invisible control
characters, such as those that change the direction of writing, are spelled out. A content security policy keeps the
browser from loading anything, and from running scripts other than the inline one that sorts tables, which is identified
by its hash.

Matplotlib figures become inline SVG, which shares the page's ids, fonts and colours. Ids that are referred to get a
prefix that is unique to the figure, and other ids are removed. Texts stay text, in the page's font. Colours become the
page's CSS variables, which change in dark mode. Coordinates are rounded to a hundredth of a point.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from streameval._version import __version__
from streameval.plots.canvas import COLORS, DASHES
from streameval.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.axes import Axes

    from streameval.report.elements import Page, Table


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


def _breakable(name: str) -> Markup:
    """A name with optional line breaks after underscores, where browsers would not break it."""
    from markupsafe import Markup

    return Markup("_<wbr>").join(visible(name).split("_"))  # this escapes each part


def _runs(blocks: tuple[Any, ...]) -> list[tuple[bool, list[Any]]]:
    """Split blocks into runs of figures to show side by side, and runs of other blocks."""
    runs: list[tuple[bool, list[Any]]] = []
    for block in blocks:
        side_by_side = type(block).__name__ == "Figure" and not block.wide
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
    return template.render(page=page, sections=shown, style=style, script=script, digest=digest, version=__version__)


def html_of_tables(tables: Sequence[Table]) -> str:
    """Tables for a notebook, which applies its own styles."""
    return _environment().get_template("notebook.html").render(tables=tables)


_VARIABLES = {color.lower(): f"var(--s{i + 1})" for i, color in enumerate(COLORS)} | {
    "#7f7f7f": "var(--ref)",
    "#009e73": "var(--best)",
    "#e6e6e6": "var(--grid)",
    "#c0c0c0": "var(--frame)",
    "#b0b0b0": "var(--grid)",
    "#d9d9d9": "var(--frame)",
    "#404040": "var(--soft)",
    "#ffffff": "var(--paper)",
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.linewidth": 0.8,
    "xtick.color": "#000000",
    "path.simplify": True,
    "path.simplify_threshold": 0.25,
    "lines.linewidth": 1.6,
}
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # not allowed in XML
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_LETTER, _BESIDE = 0.58, 10  # width of a letter as a share of its font size; points between axes and a text beside them
_MARGINS = {"left": 44, "right": 10, "top": 8, "bottom": 36}  # points


def look(series: int, *, dashed: bool = False) -> str:
    """The name of a series' colour, as in keys and styles; `dashed` adds that of its dashes after the first colours.

    Examples
    --------
    >>> look(5), look(6), look(6, dashed=True), look(12, dashed=True)
    ('s6', 's1', 's1 d1', 's1 d2')
    """
    dashes = series // len(COLORS) % len(DASHES) if dashed else 0
    return f"s{series % len(COLORS) + 1}" + (f" d{dashes}" if dashes else "")


class Canvas:
    """A figure for a page: draw on its `axes`, then call `svg`.

    Parameters
    ----------
    prefix : prefix of all ids, unique within a page
    width, height : size in points
    margins : margins around the axes in points, if they differ from the default
    """

    def __init__(self, prefix: str, width: float = 300, height: float = 272, **margins: float) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self.prefix = f"figure-{prefix}"  # no section has this name
        with self._style():
            self._figure = Figure(figsize=(width / 72, height / 72), dpi=72)
            FigureCanvasSVG(self._figure)
            left, right, top, bottom = (margins.get(side, room) for side, room in _MARGINS.items())
            box = (left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height)
            self.axes: Axes = self._figure.add_axes(box)

    @contextmanager
    def drawing(self) -> Iterator[Axes]:
        """The axes, with the style of the page."""
        with self._style():
            yield self.axes

    @contextmanager
    def _style(self) -> Iterator[None]:
        from matplotlib import rc_context

        style: Any = _STYLE | {"svg.hashsalt": self.prefix}
        with rc_context(style), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s)Glyph .* missing from font")  # the reader's browser has the font
            yield

    def fit(self) -> None:
        """Make room for texts at the right of the axes, up to half of the width; longer texts are cut at their end."""
        from matplotlib.text import Annotation

        notes = [text for text in self.axes.texts if isinstance(text, Annotation) and text.get_text()]
        beside = [text for text in notes if text.xycoords == ("axes fraction", "data") and text.xy[0] > 1]
        if not beside:
            return
        width, box = self._figure.get_figwidth() * 72, self.axes.get_position()
        letter = max(float(text.get_fontsize()) for text in beside) * _LETTER
        most = int(width / 2 / letter)
        for text in beside:
            said = visible(text.get_text())
            text.set_text(said if len(said) <= most else f"{said[: most - 1]}…")
        right = max(_BESIDE + letter * max(len(text.get_text()) for text in beside), (1 - box.x1) * width)
        self.axes.set_position((box.x0, box.y0, 1 - right / width - box.x0, box.height))

    def svg(self, title: str, description: str) -> Markup:
        """The picture as an element of a page, with a text alternative."""
        sink = io.StringIO()
        with self._style():
            for axes in self._figure.axes:
                axes.set_title("")
                if (legend := axes.get_legend()) is not None:
                    legend.remove()
            self._figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
        text = _INVISIBLE.sub(lambda found: visible(found[0]), sink.getvalue())
        return _inlined(text, self.prefix, visible(title), visible(description))


def _inlined(text: str, prefix: str, title: str, description: str) -> Markup:
    """Turn an SVG file written by matplotlib into an element for a page."""
    from markupsafe import Markup

    root = ET.fromstring(text)  # noqa: S314 - matplotlib wrote it
    for node in list(root):
        if _local(node.tag) == "metadata" or any(_local(child.tag) == "style" for child in node):
            root.remove(node)  # such a style would apply to the whole page
    values = [value for node in root.iter() for value in node.attrib.values()]
    referred = {value[1:] for value in values if value.startswith("#")}
    referred |= {name for value in values for name in _REFERENCE.findall(value)}
    for node in root.iter():
        node.tag = _local(node.tag)
        if node.tag in ("text", "tspan"):
            node.text = visible(node.text or "")
        node.attrib = dict(_attributes(node.attrib, referred, prefix))
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{prefix}-title {prefix}-about",
    }
    for place, (name, said) in enumerate((("title", title), ("desc", description))):
        node = ET.Element(name, id=f"{prefix}-{'title' if name == 'title' else 'about'}")
        node.text = said
        root.insert(place, node)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - texts were escaped by both writers


def _local(name: str) -> str:
    """A name without its namespace, which HTML does not need."""
    return name.rpartition("}")[2]


def _attributes(given: dict[str, str], referred: set[str], prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes of an element, with prefixed ids, short numbers and the page's colours."""
    for full, value in given.items():
        name = _local(full)
        if name == "id":
            if value in referred:
                yield name, f"{prefix}-{value}"
        elif name == "href":
            yield name, f"#{prefix}-{value[1:]}"
        elif name == "style":
            style = "; ".join(
                part for part in value.split("; ") if not part.startswith("font-family")
            )  # the page has one
            yield name, _COLOUR.sub(lambda found: _VARIABLES.get(found[0].lower(), found[0]), _short(style))
        elif name == "d":
            yield name, re.sub(r"\s*([A-Za-z])\s*", r"\1", _short(value)).strip()
        elif name == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            yield name, _REFERENCE.sub(lambda found: f"url(#{prefix}-{found[1]})", _short(value))


def _short(text: str) -> str:
    """Round the numbers in a text to two decimals, without trailing zeros."""
    return _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)
