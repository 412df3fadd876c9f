"""What `evaluate` says where no column is named."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from nightly import DATA

from streameval.cli import main
from streameval.evaluation.source import suggestion

if TYPE_CHECKING:
    from pathlib import Path


def run(*words: object) -> Any:
    """Run a command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_columns_are_listed_with_a_command_to_copy() -> None:
    """Types, nulls and ranges are those of the data, and the command runs."""
    done = run("evaluate", DATA, "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    table = pa.concat_tables(pq.read_table(path, partitioning=None) for path in sorted(DATA.rglob("*.parquet")))
    facts = {one["column"]: one for one in told["columns"]}
    assert list(facts) == table.column_names
    assert {one["rows"] for one in told["columns"]} == {len(table)}
    assert {one["nulls"] for one in told["columns"]} == {0}
    assert (facts["label"]["type"], facts["label"]["low"], facts["label"]["high"]) == ("int8", 0, 1)
    assert facts["length"]["high"] == max(table["length"].to_pylist())
    words = shlex.split(told["next"])
    assert words[:2] == ["streameval", "evaluate"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--score"] == ["score_lr", "score_nb", "score_q"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--cluster"] == ["cluster_loose", "cluster_tight"]
    assert run(*words[1:], "--quiet").exit_code == 0
    shown = run("evaluate", DATA)
    assert shown.stdout.splitlines()[0].split() == ["column", "type", "nulls", "low", "high"]
    assert f"next: {told['next']}" in shown.stdout


def test_files_that_differ_are_told_apart(tmp_path: Path) -> None:
    """Types that differ are all named; a column of some files counts their rows; a damaged footer is named."""
    pq.write_table(pa.table({"label": [True, None], "a": [1, 2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"label": [True, False], "a": [1.5, 2.5], "b": ["x", "y"]}), tmp_path / "2.parquet")
    told = json.loads(run("evaluate", tmp_path, "--json", "-").stdout)
    facts = {one["column"]: one for one in told["columns"]}
    assert (facts["a"]["type"], facts["a"]["low"]) == ("int64 or double", None)
    assert (facts["label"]["nulls"], facts["b"]["rows"], facts["b"]["high"]) == (1, 2, "y")
    (tmp_path / "3.parquet").write_bytes(b"nothing")
    done = run("evaluate", tmp_path)
    assert (done.exit_code, "3.parquet: cannot be read" in done.stderr) == (1, True), done.stderr


def test_the_command_leaves_out_nulls_that_the_footers_tell_of(tmp_path: Path) -> None:
    """It runs where labels, scores and ids have nulls; columns without any have no policy."""
    columns = {"label": [0, 1, None, 1, 0], "score_a": [0.1, 0.2, 0.3, None, 0.4], "score_b": [0.1, 0.2, 0.3, 0.5, 0.4]}
    pq.write_table(pa.table({**columns, "cluster": [1, None, 2, 2, 3]}), tmp_path / "a.parquet")
    told = json.loads(run("evaluate", tmp_path, "--json", "-").stdout)["next"]
    assert told.endswith("--unlabelled drop --nan score_a=drop --nulls cluster=drop")
    done = run(*shlex.split(told)[1:], "--json", "-")
    assert (done.exit_code, len(json.loads(done.stdout)["dropped"])) == (0, 3), done.stderr


@pytest.mark.parametrize("asked", [("--metric", "agc"), ("--rule", "rows > 0"), ("--plan",), ("--out", "a.json")])
def test_more_than_columns_cannot_be_had_without_one(asked: tuple[str, ...], tmp_path: Path, monkeypatch) -> None:
    """Columns are listed, but status 2 says that what was asked for is missing."""
    monkeypatch.chdir(tmp_path)
    done = run("evaluate", DATA, *asked)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "nothing to evaluate" in done.stderr
    assert "score_lr" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_command_to_copy_holds_no_credentials() -> None:
    """It is printed, and so ends in logs."""
    told = suggestion(["s3://AKID:SEC/RET@bucket/scores?region=eu-west-1", "local/file.parquet"], [])
    assert told == "streameval evaluate s3://bucket/scores local/file.parquet --label LABEL --score SCORE"
