"""The page of an evaluation: what it says, that data stay text, and that files are written whole or not at all."""

import pickle
import re
import stat
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from processes import run
from refusals import refuses

from streameval import evaluate
from streameval.errors import OptionError, StreamevalError
from streameval.report.elements import Cell, Head, Page, Row, Section, Table, html_of, travelling

DATA = Path(__file__).parents[1] / "data" / "spam_messages"
HOSTILE = "<script>alert(1)</script>\"'\u202e&amp;"
VOID = {"meta", "br", "line", "wbr"}


class Reader(HTMLParser):
    """The elements of a page with their texts; every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text.replace("<wbr>", ""))  # line breaks within names
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.seen.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text within an element."""
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def spam() -> Any:
    """An evaluation of the real messages."""
    return evaluate(
        DATA,
        score=["score_lr", "score_nb"],
        cluster=["cluster_loose", "cluster_tight"],
        classes="campaign",
        at="fpr=0.01",
        by="source",
    )


@pytest.fixture(scope="module")
def text(spam: Any) -> str:
    """Its page."""
    return str(spam.to_html())


def test_a_page_says_what_is_the_case_in_order(spam: Any, text: str) -> None:
    """A sentence, the values, curves, operating points, slices, what was read; numbers as results have them."""
    page = Reader(text)
    lead = " ".join(page.texts["p"])
    assert f"score_lr has the best ROC AUC, {spam.value('roc_auc', of='score_lr'):.4f}, against" in lead
    headings = page.texts["h2"]
    assert headings == [
        "Results",
        "Curves",
        "Score distributions",
        "Operating points",
        "Slices",
        "Worst clusters",
        "What was read",
    ]
    assert "cluster_loose: Splitting cluster 27933488048882903 would raise the adjusted Rand index by 0.0077." in lead
    assert page.texts["h3"][:4] == ["ROC curve", "Precision and recall", "Gain curve", "Lift curve"]
    assert f"{spam.value('adjusted_rand_index', of='cluster_tight'):.4f}" in text
    assert f"streameval evaluate {DATA} --score score_lr" in text
    assert "7,531, of which 1,753 positive (23.28%)" in text


def test_ids_are_unique_and_references_meet_one(text: str) -> None:
    """Figures of one page share no id, and each reference is to an id of its own figure."""
    page = Reader(text)
    assert len(page.ids) == len(set(page.ids))
    named = [value for name, value in page.attributes if name == "href"]
    named += re.findall(r"url\((#[^)]+)\)", " ".join(value for _, value in page.attributes))
    assert named
    assert {name[1:] for name in named} <= set(page.ids)


def test_nothing_of_the_data_is_markup() -> None:
    """Columns, slice values and metrics named like markup stay text, and marks of direction are spelled out."""
    names = {name: f"{name}{HOSTILE}" for name in ("score", "cluster", "class", "by")}
    data = pa.table(
        {
            "label": [0, 1, 0, 1],
            names["score"]: [0.1, 0.3, 0.2, 0.9],
            names["cluster"]: [1, 1, 2, 3],
            names["class"]: [HOSTILE, "b", "b", "c"],
            names["by"]: [
                HOSTILE,
                HOSTILE,
                "$x^2_",
                "\x00\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
            ],
        }
    )
    found = evaluate(data, score=names["score"], cluster=names["cluster"], classes=names["class"], by=names["by"])
    text = found.to_html()
    page = Reader(text)
    assert page.seen.count("script") == 1
    assert "\u202e" not in text
    assert "\x00" not in text
    assert any(r"<script>alert(1)</script>" in each and r"\u202e" in each for each in page.texts["bdi"])
    assert "$x^2_" in page.texts["bdi"]
    assert not [value for name, value in page.attributes if name.startswith("on")]
    assert "<script>" not in found._repr_html_()


def test_a_page_without_curves_or_values_says_so() -> None:
    """Sections without content are left out; an evaluation without a number is a page as well."""
    data = pa.table({"label": [1, 1], "score": [0.5, 0.5]})
    text = evaluate(data, score="score", metrics="roc_auc").to_html()
    page = Reader(text)
    assert page.texts["h2"] == ["Results", "Score distributions", "What was read"]
    assert "ROC AUC is not defined" in text
    told = pickle.loads(pickle.dumps(evaluate(data, score="score", metrics="roc_auc"))).to_html()
    assert "There is nothing to draw: these results have no curves here." in told
    empty = Reader(html_of(Page("Empty", "", (), (Section("one", "One", ()),))))
    assert "h2" not in empty.texts


def test_no_more_than_two_hundred_slices_and_how_to_get_the_rest() -> None:
    """The slices with the most rows; the page says how many are not there."""
    rows = [name for i in range(250) for name in [f"slice{i:03}"] * (2 if i % 250 < 200 else 1)]
    data = pa.table(
        {"label": [i % 2 for i in range(len(rows))], "score": [i / 1e3 for i in range(len(rows))], "s": rows}
    )
    text = evaluate(data, score="score", by="s", metrics="roc_auc").to_html()
    assert len(re.findall(r"<bdi>slice\d+<", text)) == 200
    assert "50 slices not shown: --out FILE.csv (or .parquet, .json) has all." in text
    assert "slice249" not in text


def test_a_reason_stands_once_below_the_table() -> None:
    """Cells refer to it by its number; reasons that differ only in their first number are one."""
    few = [f"{n} effective units: at least 5 are needed" for n in (3.8, 1.6)]
    cells = [Cell("0.5", "no interval", reason=few[0]), Cell("–", reason="one class"), Cell("1", reason=few[1])]
    table = Table("Numbers", (Head("size", number=True), *map(Head, "abc")), (Row(("7",), tuple(cells)),))
    text = html_of(Page("Page", "", (), (Section("one", "One", (table,)),)))
    assert re.findall(r"<sup>(\d)</sup>", text) == ["1", "2", "1"]
    assert re.findall("<li>(.+)</li>", text)[-2:] == ["1.6 to 3.8 effective units: at least 5 are needed", "one class"]
    assert '<th scope="row" class="short number"><bdi>7' in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:sec/ret@bucket/x.parquet?region=eu: denied", "s3://bucket/x.parquet: denied"),
        ("s3://bucket/x?endpoint_override=http://127.0.0.1:9000", "s3://bucket/x"),
        ("/data/scores/a.parquet: bad", "/data/scores/a.parquet: bad"),
        ("[Errno 28] /home/ann/spill/x.tmp", "[Errno 28] …/x.tmp"),
        ("ratio 1/2 and a/b", "ratio 1/2 and a/b"),
    ],
)
def test_what_should_not_travel_does_not(text: str, shown: str) -> None:
    """Credentials, options of URIs, and directories outside the data."""
    assert travelling(text, ["/data/scores"]) == shown


def test_results_are_saved_by_the_ending(spam: Any, tmp_path: Path) -> None:
    """One row a result in tables, with a column for each slicing column; all formats, and no other."""
    for name in ("a.json", "a.csv", "a.parquet", "a.HTML"):
        spam.save(tmp_path / name)
    table = spam.to_arrow()
    assert pq.read_table(tmp_path / "a.parquet").equals(table)
    read = pyarrow.csv.read_csv(
        tmp_path / "a.csv",
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=table.schema, strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    assert read.to_pylist() == table.to_pylist()
    assert "source" in table.column_names
    with pytest.raises(
        OptionError, match=r"does not say in which format: end it in \.json, \.html, \.prom, \.csv or \.parquet"
    ):
        spam.save(tmp_path / "a.txt")


def test_a_file_that_cannot_be_written_leaves_the_old_one_whole(tmp_path: Path, monkeypatch: Any) -> None:
    """A disk that fills up, a directory that is not there; the mode of the old file stays."""
    small = evaluate(pa.table({"label": [0, 1], "cluster": [1, 2]}), cluster="cluster")
    target = tmp_path / "page.html"
    target.write_text("old")
    target.chmod(0o600)
    real = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        real(self, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    refuses(StreamevalError, "cannot be written", small.save, target)
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    small.save(target)
    assert target.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    refuses(StreamevalError, "directory does not exist", small.save, tmp_path / "no" / "page.html")


def test_out_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """Endings, directories and repeats; the data do not even exist."""
    for out, status, said in (
        (["x.txt"], 2, "--out 'x.txt' does not say in which format"),
        (["no/x.html"], 1, "no/x.html: its directory does not exist"),
        (["x.html", "./x.html"], 2, "named twice"),
    ):
        done = run("evaluate", tmp_path / "none", "--score", "s", *(w for o in out for w in ("--out", o)))
        assert (done.exit_code, said in done.stderr) == (status, True), done.stderr


def test_counts_are_whole_and_long_values_are_cut() -> None:
    """Counts of pairs have no decimals; a slice of thousands of letters is cut, and every slice keeps its row."""
    data = pa.table({
        "label": [0, 1] * 40, "score": [i / 80 for i in range(80)], "c": [0] * 60 + [1] * 20, "k": [0] * 40 + [1] * 40,
        "land": ["a" * 5000, "b"] * 40,
    })  # fmt: skip
    found = evaluate(data, score="score", cluster="c", classes="k", by="land", metrics=["roc_auc", "pairwise.TP"])
    page = found.to_html()
    assert found.value("pairwise.TP") == 1160
    assert "<bdi>1,160</bdi>" in page
    assert "a" * 119 + "…" in page
    assert "a" * 120 not in page
    assert " 1,160" in str(found)


def test_the_command_of_a_page_can_be_pasted(tmp_path: Path) -> None:
    """Names with invisible characters are written so that a shell reads them back."""
    pq.write_table(pa.table({"label": [0, 1], "s\u202e'x": [0.1, 0.9]}), tmp_path / "a.parquet")
    command = evaluate(tmp_path, score="s\u202e'x").source.command
    told = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s|' {command}"], capture_output=True, text=True, check=True
    ).stdout
    assert told.split("|")[:2] == ["streameval", "evaluate"]
    assert "s\u202e'x" in told.split("|")
    assert "\u202e" not in command
