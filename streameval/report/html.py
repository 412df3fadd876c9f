"""Render a page as one self-contained HTML file: it loads no network resource, no script and no font.

Three measures keep data from being interpreted as markup or code. Templates escape all values. Invisible control
characters, such as those that change the direction of writing, are spelled out. A content security policy keeps the
browser from loading anything, and from running scripts other than the inline one that sorts tables, which is identified
by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.wording import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Environment
    from markupsafe import Markup

    from streameval.report.elements import Page, Table


@cache
def _environment() -> Environment:
    """The templates: values are escaped and made visible, and a misspelt name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("streameval.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.tests["a"] = lambda block, kind: type(block).__name__ == kind
    made.filters["runs"] = _runs
    made.filters["breakable"] = _breakable
    return made


def _seen(value: Any) -> Any:
    """A text with invisible characters spelled out; markup is unchanged, because its texts are already visible."""
    return visible(value) if type(value) is str else value


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
