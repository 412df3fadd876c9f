"""Pages in a real browser: nothing runs or loads, everything is there at any width, and everyone can read it."""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser import CHROMIUM, Tab, chromium
from test_page import DATA, HOSTILE

from streameval import Store, attribute, evaluate

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

PAGES = ("evaluation", "attribution", "store", "history", "check", "hostile", "hostile-attribution", "empty", "slices")
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """A browser for all tests of this file."""
    with chromium() as opened:
        yield opened


def hostile(folder: Path) -> Path:
    """Data whose columns, slices, classes and clusters are named to be run, to load something, and to mislead."""
    rows, rng = 400, np.random.default_rng(3)
    remote = "<img src=http://127.0.0.1:9/x onerror=alert(1)>"
    values = [HOSTILE, remote, "\u202egnp.exe", "a\x00b\x1b[31m", "</svg></style></title><script>alert(2)</script>", "",
              "a" * 3000]  # fmt: skip
    table = pa.table(
        {
            "label": rng.integers(0, 2, rows),
            f"score{HOSTILE}": rng.random(rows),
            f"_{remote}": rng.random(rows),
            f"$x^2$ {HOSTILE}": [values[i % 5] for i in range(rows)],
            f"class{HOSTILE}": [values[i % 6] for i in range(rows)],
            f"by{HOSTILE}": [values[i % 7] for i in range(rows)],
        }
    )
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def shops(rows: int = 2000) -> pa.Table:
    """Slices that differ in the middle of long names, null among them, and a score with a long name."""
    rng = np.random.default_rng(4)
    label = rng.integers(0, 2, rows)
    names = [f"https://www.example.com/a/long/way/to/{a}/index.html?segment={b}" for a in "abc" for b in ("x1", "x2")]
    slices = np.array([*names, None, "null"], object)[rng.integers(0, 8, rows)]
    return pa.table(
        {"label": label, "a_long_name_of_a_score_column_v12": label + rng.normal(size=rows), "page": pa.array(slices)}
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of every kind, of the real messages and of a hostile data set."""
    folder = tmp_path_factory.mktemp("pages")
    asked: dict[str, Any] = {"score": ["score_lr", "score_q"], "cluster": ["cluster_loose", "cluster_tight"]}
    metrics = ["roc_auc", "agc", "aul", "ece", "adjusted_rand_index", "tpr@*"]  # one of each part of a page
    made: dict[str, Any] = {
        "evaluation": evaluate(DATA, **asked, classes="campaign", by="source", at="fpr=0.01", metrics=metrics),
        "attribution": attribute(DATA, cluster="cluster_loose", classes="campaign", label="label"),
        "empty": evaluate(pa.table({"label": [1], "score": [np.nan]}), score="score", nan="drop", metrics="roc_auc"),
    }
    store = Store(folder / "store")
    store.update(DATA, score="score_lr", cluster="cluster_loose")
    made["check"] = store.check("roc_auc[score_lr] >= 0.99", since="2026-01-01")
    made["history"] = store.history("roc_auc", "score_lr")
    made["store"] = store.evaluate()
    made["slices"] = evaluate(
        shops(), score="a_long_name_of_a_score_column_v12", by="page", against="rest", ci=0.95, metrics="ranking"
    )
    columns = ["label", "score_nb", "score_lr", "source"]
    two = pq.read_table(sorted(DATA.glob("night=*/*.parquet")), columns=columns)
    two = two.rename_columns(["label", "score_nb", "probability_of_spam_by_logistic_regression_v12", "source"])
    made["intervals"] = evaluate(two, score=two.column_names[1:3], by="source", ci=0.95, metrics="ranking")
    data = hostile(folder)
    names = pq.read_schema(data).names
    evil: dict[str, Any] = {"classes": names[4], "label": "label"}
    made["hostile"] = evaluate(
        data, score=names[1:3], cluster=names[3], by=names[5], at="fpr=0.1", metrics=metrics, baseline=names[1], **evil
    )
    made["hostile-attribution"] = attribute(data, cluster=names[3], **evil, examples=names[5])
    for name, found in made.items():
        extra = {"with_examples": True} if name == "hostile-attribution" else {}
        found.save(folder / f"{name}.html", **extra)
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [400, 1400])
def test_a_page_needs_nothing_and_is_whole(
    tab: Tab, pages: dict[str, Path], name: str, width: int, tmp_path: Path
) -> None:
    """Only the file itself is loaded, nothing is said on the console, and no page is wider than its window.

    Every page is opened dark and light, each at one of the widths.
    """
    dark = (PAGES.index(name) % 2 == 0) == (width == 400)
    tab.open(pages[name], width, dark=dark)
    tab.picture(tmp_path / "page.png")
    assert tab.requests() == [pages[name].as_uri()]
    assert tab.troubles() == []
    assert tab.run("document.scripts.length") == 1
    assert tab.run("document.querySelectorAll('img, iframe, object, embed, link, base, form').length") == 0
    assert tab.run("document.documentElement.scrollWidth") <= width
    if name not in ("empty", "check"):
        hidden = (
            "[...document.querySelectorAll('main table, main svg[role=img]')].filter(e => !e.getClientRects().length)"
        )
        assert tab.run("document.querySelectorAll('main table').length") > 0
        assert tab.run("document.querySelectorAll('main svg[role=img]').length") > 0
        assert tab.run(f"{hidden}.length") == 0
    background = tab.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("name", ["hostile", "hostile-attribution"])
def test_what_is_hostile_stays_text(tab: Tab, pages: dict[str, Path], name: str) -> None:
    """Names that look like markup are shown literally, and marks of direction are visible."""
    tab.open(pages[name])
    text = tab.run("document.body.innerText")
    assert "<script>alert(1)</script>" in text
    assert r"\u202e" in text
    assert not set(text) & set("\u202e\x00\x1b")
    assert (
        tab.run("[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => a.name.startsWith('on')))")
        is False
    )


def test_long_names_of_slices_and_scores_are_told_apart(tab: Tab, pages: dict[str, Path]) -> None:
    """No name of a slice repeats in a picture, no key reaches into the next figure, and verdicts stay on the page."""
    tab.open(pages["slices"])
    figure = "[...document.querySelectorAll('figure.wide')].find(e => e.innerText.includes('by page'))"
    names = tab.run(f"[...{figure}.querySelectorAll('text')].map(e => e.textContent)")
    assert len({name for name in names if name.startswith("https://")}) == 6
    assert {"null", "'null'"} <= set(names)
    over = "e => e.getBoundingClientRect().right > e.closest('figure').getBoundingClientRect().right + 1"
    assert tab.run(f"[...document.querySelectorAll('.key li')].filter({over}).length") == 0
    table = "[...document.querySelectorAll('table')].at(-1)"
    assert "against all other rows" in tab.run(f"{table}.caption.innerText")
    assert "against" not in tab.run(f"{table}.tHead.innerText")
    assert tab.run(f"{table}.scrollWidth - {table}.closest('.scroll').clientWidth") <= 0
    tab.open(pages["intervals"])
    tables = "[...document.querySelectorAll('table')].filter(e => e.caption.innerText.endsWith(' by source'))"
    assert tab.run(f"{tables}.length") == 2
    assert tab.run(f"Math.max(...{tables}.map(e => e.scrollWidth - e.closest('.scroll').clientWidth))") <= 0


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("dark", [False, True])
def test_a_checker_of_accessibility_finds_nothing_serious(
    tab: Tab, pages: dict[str, Path], name: str, dark: bool
) -> None:
    """axe, in the same browser; on a dark page, the rules about colours, which alone may differ."""
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    tab.open(pages[name], dark=dark)
    tab.run(axe)
    only = "runOnly: 'cat.color', " if dark else ""
    found = tab.run(
        f"axe.run({{{only}resultTypes: ['violations']}})"
        ".then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html).slice(0, 3)]))"
    )
    assert [violation for violation in found if violation[0] in SERIOUS] == []


def test_a_column_is_sorted_with_script_and_all_is_there_without(tab: Tab, pages: dict[str, Path]) -> None:
    """A click on a head orders the rows by number; without script there is nothing to click, and nothing is hidden."""
    tab.open(pages["store"])
    column = "[...[...document.querySelectorAll('caption')].find(c => c.textContent == 'Every night').parentElement"
    values = f"{column}.tBodies[0].rows].map(r => Number(r.cells[2].dataset.order))"
    before = tab.run(values)
    tab.run(f"{column}.tHead.rows[0].cells].at(2).querySelector('button').click()")
    assert tab.run(values) == sorted(before, reverse=True) != before
    tab.run(f"{column}.tHead.rows[0].cells].at(2).querySelector('button').click()")
    assert tab.run(values) == sorted(before)
    shown = tab.run("document.querySelectorAll('main td').length")
    tab.open(pages["store"], script=False)
    assert tab.send("Runtime.evaluate", expression="1")["result"]["value"] == 1
    assert tab.run("document.querySelectorAll('button').length") == 0
    assert tab.run("[...document.querySelectorAll('main td')].length") == shown


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_on_paper(tab: Tab, pages: dict[str, Path], name: str) -> None:
    """In the style for print, tables and figures fit the 180 mm between the margins of A4, and figures a sheet."""
    tab.open(pages[name], 680)
    tab.send("Emulation.setEmulatedMedia", media="print", features=[])
    for what, end in (("table, main svg", "right > 681"), ("svg", "height > 700")):
        found = f"[...document.querySelectorAll('main {what}')].map(e => e.getBoundingClientRect())"
        assert tab.run(f"{found}.filter(r => r.{end}).length") == 0


def test_a_page_prints_on_paper(tab: Tab, pages: dict[str, Path]) -> None:
    """On A4, with no more sheets than its content needs."""
    tab.open(pages["evaluation"])
    made = tab.printed()
    assert made.startswith(b"%PDF")
    assert b"/MediaBox [0 0 594" in made or b"/MediaBox [0 0 595" in made
    assert 2 <= made.count(b"/Type /Page\n") <= 12
