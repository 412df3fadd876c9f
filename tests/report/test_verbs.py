"""``--out`` on every verb that reads: the same results in every format, and pages that say what they are of."""

import csv
import json
import re
from pathlib import Path

import processes
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from test_page import DATA, Reader

from streameval import Store


def run(*words: str | Path, status: int = 0) -> Result:
    """A command, and its status."""
    done = processes.run(*words)
    assert done.exit_code == status, done.output
    return done


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the real messages, checked once."""
    place = tmp_path_factory.mktemp("verbs") / "store"
    made = Store(place)
    made.update(DATA, score="score_lr", cluster="cluster_loose")
    made.check("roc_auc[score_lr] >= 0.99", since="2026-01-01")
    return place


def outs(folder: Path, *endings: str) -> tuple[list[str], dict[str, Path]]:
    """Words of ``--out``, and the files."""
    files = {ending: folder / f"x.{ending}" for ending in endings}
    return [word for path in files.values() for word in ("--out", str(path))], files


def test_a_check_is_written_with_every_judgement(store: Path, tmp_path: Path) -> None:
    """Status 3 all the same; rules, values and outcomes in each format."""
    words, files = outs(tmp_path, "html", "json", "csv", "parquet")
    run("check", store, "--rule", "roc_auc[score_lr] >= 0.99", "--since", "2026-01-01", "--again", *words, status=3)
    told = json.loads(files["json"].read_text())
    table = pq.read_table(files["parquet"]).to_pylist()
    assert [row["value"] for row in table] == [rule["value"] for rule in told["rules"]]
    assert len(list(csv.reader(files["csv"].read_text().splitlines()))) == len(table) + 1
    page = Reader(files["html"].read_text())
    assert f"{len(told['failing'])} of 14 nights fail: {told['failing'][0]}," in "".join(page.texts["p"])
    assert page.texts["code"] == [f"streameval check {store} --rule 'roc_auc[score_lr] >= 0.99' --since 2026-01-01"]


def test_a_history_is_written_night_by_night(store: Path, tmp_path: Path) -> None:
    """Values of each night and up to it; the page marks the nights that fail."""
    words, files = outs(tmp_path, "html", "json", "csv", "parquet")
    run("history", store, "--metric", "roc_auc", "--of", "score_lr", *words)
    points = json.loads(files["json"].read_text())["points"]
    table = pq.read_table(files["parquet"]).to_pylist()
    assert [row["night_value"] for row in table] == [point["night"]["value"] for point in points]
    assert [float(row["cumulative_value"]) for row in csv.DictReader(files["csv"].read_text().splitlines())] == [
        point["cumulative"]["value"] for point in points
    ]
    text = files["html"].read_text().replace("<wbr>", "")
    worst = min(points, key=lambda point: point["night"]["value"])
    assert f"it was lowest in {worst['partition']}, {worst['night']['value']:.4f}" in text
    assert "nights fail a rule" in text


def test_several_histories_are_one_page(store: Path, tmp_path: Path) -> None:
    """A picture for each metric and a column for each series; the failed nights are marked in all."""
    words, files = outs(tmp_path, "html", "parquet")
    run("history", store, "--metric", "roc_auc", "--metric", "aul", *words)
    page = Reader(files["html"].read_text())
    assert page.texts["h3"] == ["roc_auc", "aul"]
    assert "roc_auc[score_lr]" in pq.read_schema(files["parquet"]).names
    said = "".join(page.texts["p"])
    assert "roc_auc of score_lr is" in said
    assert "aul of cluster_loose is" in said
    assert page.texts["code"] == [f"streameval history {store} --metric roc_auc --metric aul"]


def test_a_check_draws_what_its_rules_said_of_the_last_nights(store: Path, tmp_path: Path) -> None:
    """A picture for each rule; one that compares shows the usual value too."""
    words, files = outs(tmp_path, "html")
    rules = ("--rule", "roc_auc[score_lr] >= 0.99", "--rule", "aul[cluster_loose] drop <= 0.5")
    run("check", store, *rules, "--since", "2026-01-01", *words, status=3)
    page = Reader(files["html"].read_text())
    assert page.texts["h3"] == ["roc_auc[score_lr] >= 0.99", "aul[cluster_loose] drop <= 0.5"]
    assert files["html"].read_text().count(">usual<") > 0


@pytest.mark.parametrize(
    ("words", "column"),
    [
        (("sketch", str(DATA), "--column", "score_lr", "--quantile", "0.5", "--by-label"), "value"),
        (("info", "STORE"), "fact"),
        (("diagnose", "STORE", "--partition", "night=2026-01-09"), "what"),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else given,
)
def test_verbs_without_a_page_write_tables(words: tuple[str, ...], column: str, store: Path, tmp_path: Path) -> None:
    """JSON as on stdout, and the same rows as CSV and Parquet; a page is refused."""
    asked, files = outs(tmp_path, "json", "csv", "parquet")
    words = tuple(str(store) if word == "STORE" else word for word in words)
    told = json.loads(run(*words, "--json", "-", *asked).stdout)
    assert json.loads(files["json"].read_text()) == told
    table = pq.read_table(files["parquet"])
    assert column in table.column_names
    assert len(list(csv.DictReader(files["csv"].read_text().splitlines()))) == table.num_rows > 2
    assert "end it in .json, .csv or .parquet" in run(*words, "--out", tmp_path / "x.html", status=2).output


def test_a_store_is_a_page_with_its_nights(store: Path, tmp_path: Path) -> None:
    """`show`, `Store.report` and `evaluate` of a store say the same: values, nights, rules, and what repeats it."""
    words, files = outs(tmp_path, "html", "csv")
    run("show", store, "--last", "7", *words)
    text = files["html"].read_text()
    assert text == Store(store).report(last=7)
    page = Reader(text)
    assert {"Results", "Curves", "Nights", "What was read"} <= set(page.texts["h2"])
    assert f"streameval show {store} --last 7" in page.texts["code"]
    assert "night=2026-01-14" in page.texts["bdi"]
    assert "night=2026-01-01" not in page.texts["bdi"]
    assert "FAIL" in page.texts["bdi"]


def test_examples_stay_off_the_page_unless_asked_for(tmp_path: Path) -> None:
    """They are contents of rows: JSON has them, a page only with ``--with-examples``."""
    words = ["attribute", DATA, "--cluster", "cluster_loose", "--classes", "campaign", "--examples", "source"]
    run(*words, "--quiet", "--out", tmp_path / "a.html", "--out", tmp_path / "a.json")
    run(*words, "--quiet", "--with-examples", "--out", tmp_path / "b.html")
    found = json.loads((tmp_path / "a.json").read_text())
    shown = found["merges"][0]["examples"][0]["values"][0]
    hidden = (tmp_path / "a.html").read_text()
    assert shown not in hidden
    assert "--with-examples puts them on the page." in hidden
    assert shown in (tmp_path / "b.html").read_text()
    done = run("attribute", DATA, "--cluster", "cluster_loose", "--classes", "campaign", "--with-examples", status=2)
    assert "would change nothing without a page and examples" in done.output


def test_the_demo_writes_a_page(tmp_path: Path) -> None:
    """Intervals over campaigns, a verdict, and no path of the machine."""
    words, files = outs(tmp_path, "html", "parquet")
    run("demo", "--rows", "5000", *words)
    text = files["html"].read_text()
    assert "score_a is better than score_b in ROC AUC by" in text
    assert "95% by campaign, " in text
    assert re.search(r" effective units, \d+ degrees of freedom\)", text)
    assert str(tmp_path.parents[2]) not in text
    assert "streameval demo --rows 5000" in text


def test_no_path_of_the_machine_stands_on_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data named by a relative path: no directory above it is told, nor by files that were left out."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for path in DATA.glob("night=2026-01-0*/part-0.parquet"):
        Path("data", f"{path.parent.name}.parquet").write_bytes(path.read_bytes())
    Path("data", "broken.parquet").write_bytes(b"PAR1 nothing")
    run("evaluate", "data", "--score", "score_lr", "--on-error", "skip", "--quiet", "--out", "a.html")
    text = Path("a.html").read_text().replace("<wbr>", "")
    assert "data/broken.parquet" in text
    assert str(tmp_path) not in text
    assert "/home" not in text


def test_rules_of_an_evaluation_stand_on_its_page(tmp_path: Path) -> None:
    """Which do not pass is said at once; the command that repeats the run has the rules."""
    rules = ["roc_auc[score_lr] >= 0.97", "roc_auc[score_lr] >= 0.999"]
    words = [word for rule in rules for word in ("--rule", rule)]
    run("evaluate", DATA, "--score", "score_lr", *words, "--quiet", "--out", tmp_path / "a.html", status=3)
    page = Reader((tmp_path / "a.html").read_text())
    assert f"1 of 2 rules does not pass: {rules[1]}." in "".join(page.texts["p"])
    assert [text for text in page.texts["bdi"] if text in ("ok", "FAIL")] == ["ok", "FAIL"]
    assert "why" not in page.texts["bdi"]
    assert page.texts["code"] == [
        f"streameval evaluate {DATA} --score score_lr --rule '{rules[0]}' --rule '{rules[1]}'"
    ]
