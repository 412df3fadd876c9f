"""Tables of the terminal: whole at any width, in plain text, and words that stay apart when they are cut."""

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import NIGHTS, land
from rich.console import Console

from streameval import Store, evaluate
from streameval.report.terminal import render, text
from streameval.report.values import sampling_notes
from streameval.results import Scalar, Source
from streameval.wording import apart

WORD = re.compile(r"[^\s─:;]+")
HEADS = {"metric", "difference", "fact", "value"}  # a record has its name without the head of the column


def printed(found: Any, width: int, points: Any = ()) -> list[str]:
    """Lines on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width)
    console.print(render(found, points=points))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def scored(columns: int, **facts: Any) -> Any:
    """Results of a number of scores."""
    metrics = ("roc_auc", "average_precision", "agc_ratio@0.001234", "tpr@fpr=0.0001")
    results = [Scalar(metric, 0.123456, of=f"score_{i}", **facts) for i in range(columns) for metric in metrics]
    facts = {"rows": 10, "positives": 4, "dropped": (), "skipped": (), "options": {}, "labels": {}, "source": Source()}
    facts["label_strata"] = facts["counts"] = ()
    return SimpleNamespace(results=tuple(results), coarser_units={}, **facts)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("facts", [{}, {"exact": False, "lower": 0.12, "upper": 0.13}, {"threshold": 0.98765}])
def test_names_and_numbers_are_whole_at_any_width(width: int, facts: dict[str, Any]) -> None:
    """Of twenty scores, each stands in a table with all metrics, and no line is longer than the terminal."""
    found = scored(20, **facts)
    lines = printed(found, width)
    assert max(map(len, lines)) <= width
    headers = " ".join(line for line in lines if line.startswith("  metric")).split()
    assert [name for name in headers if name != "metric"] == [f"score_{i}" for i in range(20)]
    tables = headers.count("metric")
    assert all(sum(line.startswith(f"  {r.metric} ") for line in lines) == tables for r in found.results)
    assert sum(line.count("0.123456") for line in lines) == 80


COMMANDS = [
    "evaluate data --score score_lr --score score_nb --metric roc_auc --unit campaign --baseline score_lr --by source",
    "attribute data --score score_nb --by source --by night --unit cluster_tight --top 3",
    "attribute data --cluster cluster_loose --classes campaign --top 3",
    "metrics calibration",
    "history store --metric roc_auc",
    "check store --rule 'roc_auc >= 0.99' --since 2026-01-01 --again",
    "info store",
    "show store --last 2",
    "diagnose store --partition night=2026-01-09",
    "drift data --score score_lr --since 2026-01-14 --against 2026-01-13 --unit campaign",
    "churn data --cluster cluster_loose --from cluster_tight --unit campaign",
]
WIDTHS = (500, 200, 100, 80, 60)
WALK = """import fcntl, json, shlex, struct, sys, termios
from streameval.cli import main
for width in json.loads(sys.argv[1]):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    for line in json.loads(sys.argv[2]):
        try:
            main(shlex.split(line), standalone_mode=False)
        except SystemExit:
            pass
        print("@@@", flush=True)
"""


def on_a_terminal(folder: Path) -> list[list[str]]:
    """What the commands print on terminals of the widths, without colours and progress."""
    leader, follower = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = [sys.executable, "-c", WALK, json.dumps(WIDTHS), json.dumps(COMMANDS)]
    process = subprocess.Popen(words, cwd=folder, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    printed = bytearray()
    with suppress(OSError):  # raised at the end
        while block := os.read(leader, 1 << 16):
            printed += block
    os.close(leader)
    assert process.wait() == 0, printed[-2000:]
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", printed.decode()).replace("\r\n", "\n").split("\n")
    texts = "\n".join(line for line in lines if "rows/s" not in line).split("@@@\n")
    return [texts[i : i + len(COMMANDS)] for i in range(0, len(texts) - 1, len(COMMANDS))]


def test_a_narrow_terminal_loses_no_word(tmp_path: Path) -> None:
    """Each verdict, id, name and number of a wide terminal is whole on narrower ones."""
    for night in (0, 8, 12, 13):
        land(NIGHTS[night], tmp_path / "data")
    Store(tmp_path / "store").update(tmp_path / "data", score="score_lr", metrics="roc_auc")
    wide, *narrow = on_a_terminal(tmp_path)
    for width, screens in zip(WIDTHS[1:], narrow, strict=True):
        for command, complete, shown in zip(COMMANDS, wide, screens, strict=True):
            lost = Counter(WORD.findall(complete)) - Counter(WORD.findall(shown))
            assert {*lost} <= HEADS, (width, command, lost)
            assert max(map(len, shown.splitlines())) <= width or command.startswith("check"), (width, command)


def test_text_is_plain_wherever_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebooks and terminals that force colours get no codes and no special display."""
    found = scored(2)
    plain = text(render(found))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert text(render(found)) == plain
    assert "\x1b" not in plain
    assert "0.123456" in plain


def test_a_slice_stays_in_one_line() -> None:
    """Values come from the data: controls and line breaks are spelled out, and one value does not fill the screen."""
    names = ["\x1b[31mred", "a\nb", "x" * 500]
    rows = {"label": [0, 1] * 6, "s": [i / 12 for i in range(12)], "c": [name for name in names for _ in range(4)]}
    found = evaluate(pa.table(rows), score="s", by="c", metrics="roc_auc", against="rest")
    lines = printed(found, 300)
    for name in (r"\x1b[31mred", r"a\nb", "x" * 119 + "…"):
        assert sum(line.split()[:1] == [name] for line in lines) == 2, name


@pytest.mark.parametrize(("units", "shown"), [(49.97, "49"), (1533 - 1e-12, "1,533"), (50.0, "50")])
def test_units_and_freedom_never_read_as_enough(units: float, shown: str) -> None:
    """They are rounded down, so that a warning of fewer than 3 does not follow 3 of them."""
    interval = {"ci_level": 0.95, "ci_lower": 0.8, "ci_upper": 0.95, "blocks": 128, "freedom": units / 16.66}
    found = replace(Scalar.certain("roc_auc", 0.9), of="v1", unit="user", effective_units=units, **interval)
    first, *rest = sampling_notes([found])
    free = f"{int(units / 16.66)} degrees of freedom"
    assert first == f"95 % intervals by user: {shown} effective units in 128 blocks, {free}"
    assert bool(rest) == (units / 16.66 < 3)


LETTERS = st.text("ab/", min_size=0, max_size=60)


@given(st.lists(LETTERS, min_size=1, max_size=12, unique=True), st.integers(14, 40), st.booleans())
def test_texts_that_are_cut_stay_different(texts: list[str], most: int, middle: bool) -> None:
    """Each at most as long as asked, and each its own; a text that is short enough is itself."""
    found = apart(texts, most, most // 3 if middle else 0)
    assert all(len(text) <= most for text in found)
    assert len(set(found)) == len(texts)
    assert all(short == text for short, text in zip(found, texts, strict=True) if len(text) <= most)


def test_pages_of_one_shop_are_told_apart() -> None:
    """Eleven slices of a plot had three names."""
    pages = [f"https://shop.example.com/{a}/index.html?segment={b}" for a in "abc" for b in ("x1", "x2")]
    found = apart(pages, 28, 9)
    assert found[:3] == ["https://…m/a/inde…gment=x1", "https://…m/a/inde…gment=x2", "https://…m/b/inde…gment=x1"]
    assert len(set(found)) == 6
