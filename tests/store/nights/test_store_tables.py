"""A row a night: `show --by night`, several metrics and columns in one history; what would be read."""

from __future__ import annotations

import csv
import io
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from nightly import NIGHTS, land

from streameval import Store, evaluate
from streameval.cli import main
from streameval.errors import OptionError

COLUMNS = {"score": ["score_lr", "score_nb"], "cluster": "cluster_loose"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four nights."""
    folder = tmp_path_factory.mktemp("nights")
    for name in NIGHTS[:4]:
        land(name, folder / "data")
    return folder / "data"


@pytest.fixture
def store(data, tmp_path):
    """A store of them."""
    made = Store(tmp_path / "store")
    made.update(data, **COLUMNS)
    return made


def run(*words):
    """A command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_by_night_is_a_slice_for_each_night(data, store):
    """Each as if its files were evaluated alone, from the cache as well, with other metrics and for some nights."""
    for options in ({}, {}, {"metrics": "roc_auc", "truncate": 0.1}, {"aul_threshold": 4}, {"score": "score_nb"}):
        found = store.evaluate(by="night", **options)
        for night in NIGHTS[:4]:
            alone = evaluate(data / night, **COLUMNS | options)
            own = [r for r in found.results if r.slice == {"night": night.partition("=")[2]}]
            assert [(r.metric, r.of, r.value, r.rows) for r in own if not math.isnan(r.value)] == [
                (r.metric, r.of, r.value, r.rows) for r in alone.results if not math.isnan(r.value)
            ]
        whole = [r.to_dict() for r in found.results if r.slice is None]
        assert whole == [r.to_dict() for r in store.evaluate(**options).results]
    assert [r["night"] for r in store.evaluate(by="night", last=2).slices("night").to_pylist()] == [
        "2026-01-03",
        "2026-01-04",
    ]


def test_by_other_keys_puts_partitions_together(data, tmp_path):
    """The hours of a night, and the regions of all nights."""
    for i, night in enumerate(NIGHTS[:2]):
        part = pq.read_table(data / night / "part-0.parquet", partitioning=None)
        for hour in (0, 1):
            where = tmp_path / "data" / night / f"hour={hour}"
            where.mkdir(parents=True)
            pq.write_table(part.slice(hour * 200, 200), where / f"{i}.parquet")
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", score="score_lr")
    for by, folders in (("night", ["night=2026-01-01"]), ("hour", ["night=*/hour=0"]), ("night,hour", None)):
        found = store.evaluate(by=by).slices(by)
        assert found.num_rows == (4 if folders is None else 2)
        if folders:
            expected = evaluate(str(tmp_path / "data" / folders[0]), score="score_lr").value("roc_auc")
            assert found["roc_auc[score_lr]"][0].as_py() == expected
    with pytest.raises(OptionError, match="has no key 'region'; its keys: night, hour"):
        store.evaluate(by="region")


def test_show_by_night_prints_a_row_a_night(store):
    """In the table and in JSON."""
    done = run("show", store.name, "--by", "night", "--metric", "roc_auc", "--metric", "aul")
    assert (done.exit_code, sum(line.strip().startswith("2026-01-0") for line in done.stdout.splitlines())) == (0, 12)
    told = json.loads(run("show", store.name, "--by", "night", "--metric", "aul", "--json", "-").stdout)
    assert [r["slice"]["night"] for r in told["results"] if "slice" in r] == [n[6:] for n in NIGHTS[:4]]
    assert told["options"]["by"] == ["night"]


def test_a_history_of_several_metrics_and_columns_is_one_table(data, store, tmp_path):
    """A row a night; null with the reason, incomplete and failing nights marked, drawn together."""
    land(NIGHTS[4], tmp_path / "more")
    (tmp_path / "more" / NIGHTS[4] / "part-9.parquet").write_bytes(b"PAR1")
    one_class = tmp_path / "more" / NIGHTS[5]
    one_class.mkdir(parents=True)
    part = pq.read_table(data / NIGHTS[0] / "part-0.parquet", partitioning=None)
    pq.write_table(part.filter(pa.compute.equal(part["label"], 0)), one_class / "part-0.parquet")
    store.update(tmp_path / "more", on_error="skip")
    store.check("roc_auc[score_lr] >= 0.999", NIGHTS[1])
    found = store.history(["roc_auc", "aul"])
    assert [(s.metric, s.of) for s in found.series] == [
        ("roc_auc", "score_lr"),
        ("roc_auc", "score_nb"),
        ("aul", "cluster_loose"),
    ]
    assert found.series[1] == store.history("roc_auc", "score_nb")
    table = found.to_arrow()
    assert table["partition"].to_pylist() == NIGHTS[:6]
    assert table["incomplete"].to_pylist() == [False] * 4 + [True, False]
    assert table["failing"].to_pylist() == [False, True] + [False] * 4
    assert table["roc_auc[score_nb]"].to_pylist()[5] is None
    assert table["roc_auc[score_nb]"].to_pylist()[0] == evaluate(data / NIGHTS[0], score="score_nb").value("roc_auc")
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (rows[5]["roc_auc[score_lr]"], rows[5]["roc_auc[score_lr] reason"]) == ("", "one class only")
    found.save(tmp_path / "history.parquet")
    assert pq.read_table(tmp_path / "history.parquet") == table
    with pytest.raises(OptionError, match="pdf"):
        found.save(tmp_path / "history.pdf")
    axes = found.plot(tmp_path / "history.svg")
    assert axes.get_yscale() == "linear"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["roc_auc[score_lr]", "roc_auc[score_nb]", "aul[cluster_loose]", "failed"]
    done = run(
        "history", store.name, "--metric", "roc_auc", "--metric", "aul", "--nightly", "--plot", tmp_path / "a.png"
    )
    lines = done.stdout.splitlines()
    assert "night=2026-01-02 (failing)" in lines[2], done.stdout
    assert "night=2026-01-05 (incomplete)" in lines[5], done.stdout
    assert (tmp_path / "a.png").exists()
    told = json.loads(run("history", store.name, "--metric", "roc_auc", "--json", "-").stdout)
    assert (len(told["series"]), told["failing"]) == (2, [NIGHTS[1]])
    assert told["series"][0]["points"][5]["night"]["reason"] == "one class only"
    with pytest.raises(OptionError, match="no column 'score_rl'; did you mean 'score_lr'"):
        store.history("roc_auc", ["score_rl"])


def test_a_plan_says_what_would_be_read(store):
    """By verb, nights and columns; nothing is run."""
    files = [s for e in store.partitions() for s in e.states]
    done = run("show", store.name, "--plan")
    assert f"would read at most {len(files)} state files" in done.stdout
    told = json.loads(run("show", store.name, "--plan", "--score", "score_lr", "--last", "2", "--json", "-").stdout)
    assert (told["nights"], told["files"]) == (2, 4)
    assert "would keep judgements" in run("check", store.name, "--rule", "rows >= 1", "--plan").stdout
    assert run("history", store.name, "--metric", "aul", "--plan").stdout.splitlines()[2].startswith("  cluster clu")
    assert run("diagnose", store.name, "--plan").exit_code == 0
    assert store.info().failing == {}
    with pytest.raises(OptionError, match="verb='vacuum' must be one of"):
        store.plan("vacuum")


def test_a_plan_of_a_verb_that_folds_says_which_files_and_columns(store, data, tmp_path):
    """Of data and footers alone: nothing is folded, and what the verb would refuse is refused."""
    new = land(NIGHTS[4], tmp_path / "new" / "data")
    found = store.plan("update", data=[tmp_path / "new" / "data"])
    rows = pq.read_metadata(new / "part-0.parquet").num_rows
    assert (found.nights, found.first, found.rows, found.files) == (1, NIGHTS[4], rows, 1)
    assert found.of_data == ("label", "score_lr", "score_nb", "cluster_loose")
    assert found.bytes > 0
    begun = run("update", tmp_path / "other", data, "--score", "score_lr", "--plan")
    assert begun.stdout.splitlines()[1].endswith(": label, score_lr"), begun.stderr
    assert not (tmp_path / "other").exists()
    again = run("replace", store.name, data / NIGHTS[1], "--plan").stdout.splitlines()
    assert again[0].startswith(f"{NIGHTS[1]}; ")
    assert again[1].startswith("would read 1 file, ")
    joins = run("add", store.name, "--score", "score_q", "--since", "2026-01-03", "--plan").stdout.splitlines()
    assert joins[0].startswith("2 nights")
    assert joins[1].endswith(": label, score_q")
    assert joins[2] == "would keep also score_q"
    assert run("add", store.name, "--metric", "brier_score", "--plan").stdout.splitlines()[1] == "would read nothing"
    assert run("replace", store.name, tmp_path / "new" / "data", "--plan").exit_code == 1
    assert store.versions()[0]["version"] == 0
