"""Hostile terminals and data: control characters, spreadsheets, and streams that are closed, full or broken."""

import csv
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from files import put
from refusals import refuses

from streameval import Store, evaluate
from streameval.cli import main
from streameval.cli.console import show_visibly
from streameval.errors import StreamevalError
from streameval.saving import csv_cell

# Title of the window, clear screen (in 7 and 8 bits), deletion, marks of direction, zero width, ends of lines, markup
EVIL = "\x1b]0;P\x07\x1b[2J\x9b2J\x9dx\x9c\x7f\x08\u202e\u2066\u200b\u2028\u0085\r[red]x[/red]\nFORGED"
NIGHTS = [f"night=2026-01-0{i}" for i in (1, 2, 3)]
STYLE = re.compile(r"\x1b\[[\d;]*m")  # colours of our own on a terminal


def write(folder: Path, name: str = EVIL) -> None:
    """Nights whose columns, slices, ids and labels have a name."""
    rng = np.random.default_rng(0)
    for night in NIGHTS:
        named = {column: [f"{name}{i % 4}" for i in range(40)] for column in ("group", "id", "class")}
        columns = {"label": rng.integers(0, 2, 40), "s": rng.random(40), name: rng.random(40), **named}
        texts = pa.array([name if label else "b" for label in columns["label"]])
        put(folder / night / "part-0.parquet", {**columns, "text": texts})


def run(*words: object, terminal: bool = False) -> Any:
    """Run a command; nothing that it prints is obeyed, and no line is forged."""
    done = CliRunner(env={"FORCE_COLOR": "1", "COLUMNS": "400"} if terminal else None).invoke(
        main, list(map(str, words))
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), words
    text = STYLE.sub("", done.output) if terminal else done.output
    assert {character for character in text if not character.isprintable()} <= {"\n"}, words
    assert not any(line.strip().startswith("FORGED") for line in text.split("\n")), words
    return done


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
def test_no_verb_passes_control_characters_on(tmp_path: Path, terminal: bool) -> None:
    """Of columns, values, ids, labels, directories, files and rules; in tables, plans, errors, JSON and usage."""
    data, store, odd = tmp_path / "data", tmp_path / "store", tmp_path / EVIL.replace("/", "")
    write(data)
    write(odd)
    (odd / "bad").mkdir()
    (odd / "bad" / "x.parquet").write_bytes(b"no")
    on_data: list[list[object]] = [
        [],
        ["--json", "-"],
        ["--score", "nope"],
        ["--score", "s", "--score", EVIL, "--by", "group", "--baseline", EVIL, "--ci", "0.9"],
        ["--score", EVIL, "--by", "group", "--where", f"\"group\" = '{EVIL}0'", "--plan"],
        ["--score", "s", "--where", f"{EVIL} (("],
        ["--score", "s", "--label", "text"],
        ["--score", "s", "--label", EVIL],
        ["--score", EVIL, "--rule", f"roc_auc[{EVIL}] >= 2"],
        [f"--{EVIL}"],
    ]
    of_store: list[list[object]] = [
        ["show", "--by", "group"],
        ["show", "--partition", EVIL],
        ["info", "--versions"],
        ["history", "--metric", "roc_auc", "--by", "group"],
        ["history", "--metric", EVIL],
        ["check", "--rule", f"roc_auc[{EVIL}] >= 2"],
        ["check", "--rule", f"{EVIL} >= 2"],
        ["check", "--accept", NIGHTS[2], "--reason", EVIL],
        ["check", "--rule", "rows >= 1"],
        ["diagnose", "--partition", NIGHTS[2]],
        ["attribute", "--cluster", "id"],
        ["remove", "--partition", EVIL],
        ["vacuum", "--keep", EVIL],
    ]
    for words in on_data:
        run("evaluate", data, *words, terminal=terminal)
    columns = ["--score", "s", "--score", EVIL, "--cluster", "id", "--classes", "class", "--by", "group"]
    assert run("update", store, data, *columns, terminal=terminal).exit_code == 0
    for verb, *words in of_store:
        run(verb, store, *words, terminal=terminal)
    run("attribute", data, "--cluster", "id", "--examples", EVIL, terminal=terminal)
    run("sketch", data, "--column", EVIL, terminal=terminal)
    run("evaluate", odd / "bad", "--score", "s", terminal=terminal)
    run("evaluate", odd, "--score", "s", "--on-error", "skip", terminal=terminal)
    run("update", odd / "store", odd / NIGHTS[0], "--score", "s", terminal=terminal)
    run("info", odd / "store", terminal=terminal)
    run("show", odd / "none", terminal=terminal)
    run(EVIL, terminal=terminal)


def test_texts_of_python_are_safe_to_print(tmp_path: Path) -> None:
    """What an evaluation prints, and the messages of exceptions, which tracebacks and logs show."""
    write(tmp_path / "data")
    text = str(evaluate(tmp_path / "data", score=["s", EVIL], by="group", threads=1))
    assert {character for character in text if not character.isprintable()} == {"\n"}
    caught = refuses(StreamevalError, "", lambda: Store(tmp_path / EVIL.replace("/", "")).evaluate())
    assert caught.isprintable()


def test_log_lines_and_tracebacks_are_visible() -> None:
    """Python prints both by itself."""
    script = (
        "import logging, sys; from streameval.cli.console import show_visibly; show_visibly();"
        "logging.getLogger('x').warning('%s', sys.argv[1]); raise RuntimeError(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", script, EVIL], capture_output=True, text=True, check=False)
    assert "RuntimeError" in done.stderr
    assert {character for character in done.stderr if not character.isprintable()} == {"\n"}
    assert show_visibly.__doc__
    assert logging.lastResort


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\uff1d1"])
def test_no_spreadsheet_runs_a_cell(tmp_path: Path, name: str) -> None:
    """Slices, columns and reasons begin with a quote in CSV; numbers do not, and Parquet is as it was."""
    write(tmp_path / "data", name)
    out = [tmp_path / "out.csv", tmp_path / "out.parquet"]
    evaluate(tmp_path / "data", score=["s", name], by="group", threads=1).save(out[0])
    evaluate(tmp_path / "data", score=["s", name], by="group", threads=1).save(out[1])
    with out[0].open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert any(cell.startswith(f"'{name}") for cell in cells)
    assert not any(csv_cell(cell) != cell for cell in cells)
    assert name in pq.read_table(out[1])["of"].to_pylist()
    assert [csv_cell(value) for value in ("-1.5", "+2e-3", "-", -1.5, None)] == ["-1.5", "+2e-3", "'-", -1.5, None]


# words, status, whether there are results on stdout; {data} and {store} are paths, {new} is one that does not exist
VERBS: dict[str, tuple[str, int, bool]] = {
    "evaluate": ("evaluate {data} --score s --cluster id", 0, True),
    "attribute": ("attribute {data} --cluster id --label label --json -", 0, True),
    "sketch": ("sketch {data} --column s --column id", 0, True),
    "metrics": ("metrics", 0, True),
    "usage": ("evaluate --scores s", 2, False),
    "help": ("--help", 0, True),
    "failure": ("evaluate {new} --score s", 1, False),
    "update": ("update {new} {data} --score s", 0, False),
    "add": ("add {store} --metric brier_score", 0, False),
    "show": ("show {store}", 0, True),
    "history": ("history {store} --metric aul --csv -", 0, True),
    "check": ("check {store} --rule aul>=2 --quiet", 3, False),
    "diagnose": ("diagnose {store}", 0, True),
    "vacuum": ("vacuum {store}", 0, False),
    "simulate": ("simulate {new} --rows 1000 --partitions 2", 0, False),
}
STREAMS = ("open", "closed", "full", "broken")
PAIRS = [(out, err) for out in STREAMS for err in STREAMS if (out, err) != ("open", "open")]
CASES = [(name, *PAIRS[(4 * i + 3) % len(PAIRS)]) for i, name in enumerate(VERBS)]
OUTSIDE = """
import os, sys
for number, state in enumerate(sys.argv[1:4]):
    if state == "closed":
        os.close(number)
os.execv(sys.executable, [sys.executable, "-m", "streameval", *sys.argv[4:]])
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two nights of scores and clusters, and a store of both."""
    folder, rng = tmp_path_factory.mktemp("streams"), np.random.default_rng(1)
    for night in (1, 2):
        out = folder / "data" / f"night=2026-01-0{night}"
        columns = {"label": rng.integers(0, 2, 50), "s": rng.random(50), "id": rng.integers(0, 9, 50)}
        put(out / "part-0.parquet", columns)
    Store(folder / "store").update(folder / "data", score="s", cluster="id")
    return {"data": folder / "data", "store": folder / "store"}


@contextmanager
def stream(state: str) -> Iterator[int]:
    """What a command gets as a stream; one that is closed is closed in its process."""
    if state in ("open", "closed"):
        yield subprocess.PIPE
        return
    reader, writer = os.pipe() if state == "broken" else (os.dup(2), os.open("/dev/full", os.O_WRONLY))
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize(("name", "out", "err"), CASES)
def test_closed_full_and_broken_streams(places: dict[str, Path], tmp_path: Path, name: str, out: str, err: str) -> None:
    """Every pair of states, each with another verb; stdin is closed if another stream is."""
    words, status, prints = VERBS[name]
    shutil.copytree(places["store"], tmp_path / "store")
    named = {"data": places["data"], "store": tmp_path / "store", "new": tmp_path / "new"}
    states = ("closed" if "closed" in (out, err) else "open", out, err)
    command = [sys.executable, "-c", OUTSIDE, *states, *(word.format(**named) for word in words.split())]
    with stream(out) as stdout, stream(err) as stderr:
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, timeout=300, env=buffered
        )
    assert done.returncode == (1 if prints and out in ("full", "broken") else status)
    assert out != "open" or bool(done.stdout) == prints
    if err == "open" and prints:
        said = "streameval: error: stdout: cannot be written (No space left on device)\n" if out == "full" else ""
        assert done.stderr.decode() == said
    assert (tmp_path / "new").exists() == (name in ("update", "simulate"))
    if name == "add":
        assert Store(tmp_path / "store").info().version == 1
