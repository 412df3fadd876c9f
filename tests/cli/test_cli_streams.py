"""What goes to stdout and to stderr, and exit statuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streameval import Store, cli, evaluate, quantile_sketch
from streameval.cli import main
from streameval.cli import store as store_commands
from streameval.metrics.catalogue import entries

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two nights of scores and clusters."""
    rng = np.random.default_rng(1)
    for night in (1, 2):
        folder = tmp_path / "data" / f"night=2026-01-0{night}"
        folder.mkdir(parents=True)
        columns = {"label": rng.integers(0, 2, 50), "s": rng.random(50), "id": rng.integers(0, 9, 50)}
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return tmp_path / "data"


@pytest.fixture
def store(data: Path, tmp_path: Path) -> str:
    """A store of both."""
    Store(tmp_path / "store").update(data, score="s", cluster="id")
    return str(tmp_path / "store")


def run(*words: object) -> Any:
    """Run a command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_tables_are_on_stdout_and_plain_when_piped(data: Path, store: str) -> None:
    """No colours, no rules, no broken lines; nothing on stderr, and nothing at all with ``--quiet``."""
    commands = [
        (["evaluate", data, "--score", "s", "--cluster", "id"], "roc_auc"),
        (["evaluate", data, "--score", "s", "--plan"], "100 rows in 2 partitions"),
        (["sketch", data, "--column", "s"], "quantile"),
        (["metrics", "agc*"], "agc@Q"),
        (["show", store], "aul"),
        (["info", store, "--versions"], "2 new"),
        (["history", store, "--metric", "aul"], "night=2026-01-02"),
        (["check", store, "--rule", "aul >= 0"], "ok  night=2026-01-02  aul >= 0  0."),
    ]
    for words, text in commands:
        done = run(*words)
        assert (done.exit_code, done.stderr) == (0, ""), done.stderr
        assert text in done.stdout
        assert not set("\x1b─━│┃") & set(done.stdout)
        if words[0] != "metrics":
            assert (run(*words, "--quiet").stdout, run(*words, "--quiet").stderr) == ("", "")


def test_a_metric_that_chooses_a_threshold_has_its_counts(data: Path) -> None:
    """As an operating point has; the default metrics have none."""
    words = ["evaluate", data, "--score", "s"]
    assert "operating point" not in run(*words).stdout
    found = run(*words, "--metric", "f1_max", "--metric", "max_informedness").stdout
    rows = found[found.index("operating point") :].splitlines()
    assert [row.split()[1] for row in rows[1:] if row.strip()] == ["f1_max"]


def test_json_is_alone_on_stdout(data: Path, store: str, tmp_path: Path) -> None:
    """With ``-`` there is no table; with a file both are there."""
    for words in (
        ["evaluate", data, "--score", "s"],
        ["evaluate", data, "--score", "s", "--plan"],
        ["sketch", data, "--column", "s"],
        ["metrics"],
        ["show", store],
        ["info", store, "--versions"],
        ["history", store, "--metric", "aul"],
        ["check", store, "--rule", "aul >= 0"],
    ):
        done = run(*words, "--json", "-")
        assert (done.exit_code, done.stderr) == (0, "")
        to = tmp_path / "out.json"
        assert run(*words, "--json", to).stdout
        assert json.loads(done.stdout) == json.loads(to.read_text())
        assert "directory does not exist" in run(*words, "--json", tmp_path / "none" / "x.json").stderr
        assert "is a directory" in run(*words, "--json", tmp_path).stderr


def test_every_verb_that_reads_says_what_it_would_read(data: Path, store: str) -> None:
    """With ``--plan`` each names the rows of the data or of the store's nights, and what it would read of them."""
    of_data, of_store = "100 rows in 2 partitions; reads", "2 nights, night=2026-01-01 to night=2026-01-02; 100 rows"
    for words, text in (
        (["evaluate", data, "--score", "s"], of_data),
        (["sketch", data, "--column", "s", "--column", "id", "--by-label"], of_data),
        (["attribute", data, "--cluster", "id", "--label", "label"], of_data),
        (["attribute", data, "--cluster", "id", "--label", "label", "--score", "s", "--by", "id"], of_data),
        *(([verb, store], of_store) for verb in ("evaluate", "show", "info")),
        (["attribute", store, "--cluster", "id"], of_store),
        (["history", store, "--metric", "aul"], of_store),
        (["check", store, "--rule", "aul >= 0"], of_store),
    ):
        done, as_json = run(*words, "--plan"), run(*words, "--plan", "--json", "-")
        assert (done.exit_code, as_json.exit_code) == (0, 0), done.output
        assert done.stdout.startswith(text)
        passes = json.loads(as_json.stdout)
        assert all(each["rows"] == 100 for each in (passes if isinstance(passes, list) else [passes]))
        assert done.stdout.count(of_data) == {"sketch": 6, "attribute": words.count("--by") + 1}.get(words[0], 1) * (
            text == of_data
        )
    info = [json.loads(run("info", store, *more, "--plan", "--json", "-").stdout) for more in ((), ("--verify",))]
    assert [each["files"] for each in info] == [0, 4]


def test_csv_is_alone_on_stdout(store: str) -> None:
    """The series as CSV takes the place of the table."""
    done = run("history", store, "--metric", "aul", "--csv", "-")
    assert done.stdout.splitlines()[0].startswith("partition,night_rows")
    assert len(done.stdout.splitlines()) == 3
    both = run("history", store, "--metric", "aul", "--csv", "-", "--json", "-")
    assert (both.exit_code, both.stdout) == (2, "")
    assert "--json - and --csv - cannot both print to stdout" in both.stderr


def test_a_failed_rule_is_told_on_stderr_where_there_is_no_table(store: str) -> None:
    """Status 3 and the reason, also when stdout is JSON or nothing."""
    words = ["check", store, "--rule", "aul >= 2", "--rule", "aul >= 0"]
    table, quiet, as_json = run(*words), run(*words, "--quiet"), run(*words, "--json", "-")
    assert [done.exit_code for done in (table, quiet, as_json)] == [3, 3, 3]
    assert len(table.stdout.splitlines()) == 3
    assert (table.stderr, quiet.stdout) == ("", "")
    assert quiet.stderr == as_json.stderr == table.stdout.splitlines()[0] + "\n"


def test_a_sketch_is_that_of_python(data: Path) -> None:
    """Several columns and quantiles; infinite values as text."""
    done = run("sketch", data, "--column", "s", "--column", "id", "--quantile", "0.5", "--quantile", "1", "--json", "-")
    for facts in json.loads(done.stdout):
        expected = quantile_sketch(data, facts["column"])
        assert (facts["count"], facts["nan"]) == (100, 0)
        for point in facts["quantiles"]:
            assert point["value"] == expected.quantile(point["q"])
    assert run("sketch", data, "--column", "none").exit_code == 1


def test_metrics_lists_the_catalogue() -> None:
    """All of it, or what a pattern names; a pattern that names nothing is a usage error."""
    listed = json.loads(run("metrics", "--json", "-").stdout)
    assert listed == [entry.to_dict() for entry in entries()]
    assert [e["name"] for e in json.loads(run("metrics", "roc_auc", "--json", "-").stdout)] == ["roc_auc"]
    assert run("metrics", "nonsense").exit_code == 2


def test_exit_statuses(data: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 for data, 2 for usage, 130 for Ctrl-C; one line on stderr each."""
    for words, status in (
        (["evaluate", data, "--score", "none"], 1),
        (["evaluate", data / "none", "--score", "s"], 1),
        (["evaluate", data, "--score", "s", "--metric", "none"], 2),
        (["evaluate", data, "--common-rows"], 2),
        (["show", store, "--aul-threshold", "-1"], 2),
    ):
        done = run(*words)
        assert (done.exit_code, done.stderr.count("\n")) == (status, 1), done.stderr
        assert done.stderr.startswith("streameval: error: ")

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store_commands, "opened_store", interrupt)
    done = run("show", store)
    assert done.exit_code == 130
    assert done.stderr == "streameval: error: interrupted; nothing is half-written\n"


def test_a_positive_label_is_named_on_the_command_line(data: Path) -> None:
    """The other label turns the ROC curve around."""
    words = ["evaluate", data, "--score", "s", "--metric", "roc_auc", "--json", "-"]
    one, zero = (json.loads(run(*words, "--pos-label", label).stdout) for label in "10")
    assert one["results"][0]["value"] == pytest.approx(1 - zero["results"][0]["value"])
    assert cli.__all__ == ["main"]


def test_means_over_groups_tell_the_deciles(data: Path, tmp_path: Path) -> None:
    """The terminal and both files of JSON have those of Python; results that are no means have none."""
    words = ["evaluate", str(data), "--score", "s", "--metric", "roc_auc"]
    values = evaluate(data, score="s", metrics="roc_auc", mean_over="id").group_values("roc_auc")["value"].to_pylist()
    told = "  ".join(f"{value:.4f}" for value in values)
    line = f"roc_auc[s] by group, from the least through the deciles to the greatest: {told}"
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert line in run(*words, "--mean-over", "id", "--json", one, "--out", other).output.splitlines()
    assert one.read_bytes() == other.read_bytes()
    [result] = json.loads(one.read_bytes())["results"]
    assert result["group_deciles"] == values
    assert len(values) == 11
    plain = run(*words, "--json", "-").stdout
    assert "group_deciles" not in plain
