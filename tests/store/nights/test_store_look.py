"""Looking at a store: what it holds, filters, tables and estimates."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from files import put
from nightly import DATA, NIGHTS, land
from processes import run
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import OptionError, StoreError
from streameval.evaluation.result import Evaluation


def test_a_store_says_what_it_holds_and_what_fails(tmp_path):
    """Nights, rows, columns, policies, failing nights, bytes; the same in JSON."""
    store = Store(tmp_path / "store")
    store.update([DATA / name for name in NIGHTS[:3]], score="score_lr", cluster="cluster_loose", nan="drop")
    found = store.info()
    entries = store.partitions()
    assert (found.nights, found.first, found.last) == (3, NIGHTS[0], NIGHTS[2])
    assert found.rows == sum(entry.rows for entry in entries)
    assert found.bytes == sum(state.bytes for entry in entries for state in entry.states)
    assert found.columns == {"label": "label", "score": ["score_lr"], "cluster": ["cluster_loose"]}
    assert (found.policies, found.failing, found.damaged) == ({"nan": "drop"}, {}, None)
    store.check("roc_auc >= 2")
    told = json.loads(run("info", tmp_path / "store", "--json", "-").stdout)
    assert told["failing"] == {NIGHTS[2]: ["roc_auc >= 2"]}
    assert f"failing     {NIGHTS[2]} (roc_auc >= 2)" in run("info", tmp_path / "store").stdout
    out = tmp_path / "info.csv"
    assert run("info", tmp_path / "store", "--versions", "--out", out).exit_code == 0
    assert out.read_text().splitlines()[-1].startswith('"version 0","20')
    refuses(StoreError, "there is no store", Store(tmp_path / "none").info)


def test_verifying_names_every_damaged_file_and_the_remedy(tmp_path):
    """Status 1; folding the night again, as it says, mends it."""
    store = Store(tmp_path / "store")
    store.update([DATA / name for name in NIGHTS[:2]], score="score_lr")
    good = run("info", tmp_path / "store", "--verify")
    assert (good.exit_code, "all files are as they were written" in good.stdout) == (0, True)
    state = store.partitions()[1].states[0]
    (tmp_path / "store" / "states" / state.file).write_bytes(b"nothing")
    bad = run("info", tmp_path / "store", "--verify")
    assert (bad.exit_code, state.file in bad.stdout) == (1, True)
    [said] = store.info(verify=True).damaged
    assert said.startswith(f"{NIGHTS[1]}: score_lr (")
    assert run("replace", tmp_path / "store", said.partition("replace ")[2]).exit_code == 0
    assert store.info(verify=True).damaged == ()


WHERE = "country <> 'FR' AND length > 1"
COLUMNS = {"score": "score", "cluster": "cluster", "classes": "classes"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nights; the last one has no row that meets the filter, by the statistics of its file."""
    folder = tmp_path_factory.mktemp("data")
    for night in range(1, 5):
        rng = np.random.default_rng(night)
        ids = rng.integers(0, 20, (2, 150))
        table = {
            "label": rng.integers(0, 2, 150).astype(np.int8),
            "score": rng.integers(0, 40, 150) / 40,
            "country": ["FR"] * 150 if night == 4 else rng.choice(["DE", "FR", "IT"], 150),
            "length": rng.integers(0, 5, 150),
            "cluster": ids[0],
            "classes": ids[1],
        }
        put(folder / f"night=2026-01-0{night}" / "part.parquet", table, row_group_size=40)
    return folder


@pytest.fixture
def store(data: Path, tmp_path: Path) -> Store:
    """A store of the rows that meet the filter."""
    made = Store(tmp_path / "store")
    made.update(data, **COLUMNS, where=WHERE, by="country")
    return made


def values(found: Any) -> list[tuple[object, ...]]:
    """What must be equal to the last bit."""
    return [(r.metric, r.of, r.slice, repr(r.value), r.rows, r.positives) for r in found.results]


def test_the_values_are_those_of_the_files_with_the_filter(store: Store, data: Path) -> None:
    """All rows and slices, at once and after a column was added; a further filter is answered from slices."""
    assert values(store.evaluate(by="country")) == values(evaluate(data, **COLUMNS, where=WHERE, by="country"))
    store.add(by="length=0,3")
    assert values(store.evaluate(by="length=0,3")) == values(evaluate(data, **COLUMNS, where=WHERE, by="length=0,3"))
    both = f"({WHERE}) AND country = 'DE'"
    assert values(store.evaluate(where="country = 'DE'")) == values(evaluate(data, **COLUMNS, where=both))


def test_later_updates_have_the_filter_and_no_other(store: Store, data: Path) -> None:
    """A new night is filtered as the others were; a night without such rows is kept, without rows."""
    (data / "night=2026-01-04").rename(data / "night=2026-01-05")
    try:
        assert store.update(data, where=WHERE).new == ("night=2026-01-05",)
    finally:
        (data / "night=2026-01-05").rename(data / "night=2026-01-04")
    refuses(OptionError, "contradicts the store's value", store.update, data, where="length > 2")


def test_a_store_begun_without_a_filter_takes_none(data: Path, tmp_path: Path) -> None:
    """Neither in a later update nor with added columns: its nights have all rows."""
    store = Store(tmp_path / "store")
    store.update(data, score="score")
    refuses(OptionError, "create another store", store.update, data, where=WHERE)
    refuses(OptionError, "add takes no option 'where'", store.add, where=WHERE)


def test_a_filter_that_cannot_be_kept_is_refused(data: Path, tmp_path: Path) -> None:
    """An expression has no text that reads back; a syntax error is told before anything is folded."""
    store = Store(tmp_path / "store")
    refuses(OptionError, "give SQL such as", store.update, data, score="score", where=pc.field("length") > 1)
    refuses(OptionError, "syntax error at character 8", store.update, data, score="score", where="length > ")
    assert not (tmp_path / "store").exists()


def test_nulls_of_rows_that_the_filter_leaves_out_do_not_count(tmp_path: Path) -> None:
    """Footers count them as well: a rule saw 30 nulls among 50 rows that have none."""
    country, ids = ["DE", "FR"] * 50, [i if i % 2 == 0 or i % 5 < 2 else None for i in range(100)]
    table = {"label": [0, 1, 1, 0] * 25, "country": country, "cluster": ids, "score": [0.5, None] * 50}
    table["classes"] = [7] * 100
    pq.write_table(pa.table(table), tmp_path / "night=2026-01-01.parquet")
    made = Store(tmp_path / "store")
    made.update(tmp_path / "night=2026-01-01.parquet", **COLUMNS, where="country = 'DE'", nan="drop", nulls="drop")
    checked = made.check(["nulls[score] == 0", "nulls[label] == 0", "nulls[classes] == 0", "nulls[cluster] == 0"])
    outcomes = {one.rule: one.outcome for one in checked.judgements}
    assert [rule for rule, outcome in outcomes.items() if outcome == "failed"] == ["nulls[cluster] == 0"], outcomes
    assert len(outcomes) == 4
    assert any("if the store has no filter" in one.reason for one in checked.judgements)
    assert not any("null" in fact for fact in checked.odd)


TWO_SCORES = {"score": ["score_lr", "score_nb"], "cluster": "cluster_loose"}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Four nights."""
    folder = tmp_path_factory.mktemp("nights")
    for name in NIGHTS[:4]:
        land(name, folder / "data")
    return folder / "data"


@pytest.fixture
def scored_store(scored, tmp_path):
    """A store of them."""
    made = Store(tmp_path / "store")
    made.update(scored, **TWO_SCORES)
    return made


def test_by_night_is_a_slice_for_each_night(scored, scored_store):
    """Each as if its files were evaluated alone, from the cache as well, with other metrics and for some nights."""
    for options in ({}, {}, {"metrics": "roc_auc", "truncate": 0.1}, {"aul_threshold": 4}, {"score": "score_nb"}):
        found = scored_store.evaluate(by="night", **options)
        for night in NIGHTS[:4]:
            alone = evaluate(scored / night, **TWO_SCORES | options)
            own = [r for r in found.results if r.slice == {"night": night.partition("=")[2]}]
            assert [(r.metric, r.of, r.value, r.rows) for r in own if not math.isnan(r.value)] == [
                (r.metric, r.of, r.value, r.rows) for r in alone.results if not math.isnan(r.value)
            ]
        whole = [r.to_dict() for r in found.results if r.slice is None]
        assert whole == [r.to_dict() for r in scored_store.evaluate(**options).results]
    assert [r["night"] for r in scored_store.evaluate(by="night", last=2).slices("night").to_pylist()] == [
        "2026-01-03",
        "2026-01-04",
    ]


def test_a_history_of_several_metrics_and_columns_is_one_table(scored, scored_store, tmp_path):
    """A row a night; null with the reason, incomplete and failing nights marked, drawn together."""
    land(NIGHTS[4], tmp_path / "more")
    (tmp_path / "more" / NIGHTS[4] / "part-9.parquet").write_bytes(b"PAR1")
    one_class = tmp_path / "more" / NIGHTS[5]
    part = pq.read_table(scored / NIGHTS[0] / "part-0.parquet", partitioning=None)
    put(one_class / "part-0.parquet", part.filter(pa.compute.equal(part["label"], 0)))
    scored_store.update(tmp_path / "more", on_error="skip")
    scored_store.check("roc_auc[score_lr] >= 0.999", NIGHTS[1])
    found = scored_store.history(["roc_auc", "aul"])
    names = ["roc_auc[score_lr]", "roc_auc[score_nb]", "aul[cluster_loose]"]
    assert [f"{s.metric}[{s.of}]" for s in found.series] == names
    assert found.series[1] == scored_store.history("roc_auc", "score_nb")
    table = found.to_arrow()
    assert table["partition"].to_pylist() == NIGHTS[:6]
    assert table["incomplete"].to_pylist() == [False] * 4 + [True, False]
    assert table["failing"].to_pylist() == [False, True] + [False] * 4
    assert table["roc_auc[score_nb]"].to_pylist()[5] is None
    assert table["roc_auc[score_nb]"].to_pylist()[0] == evaluate(scored / NIGHTS[0], score="score_nb").value("roc_auc")
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (rows[5]["roc_auc[score_lr]"], rows[5]["roc_auc[score_lr] reason"]) == ("", "one class only")
    found.save(tmp_path / "history.parquet")
    assert pq.read_table(tmp_path / "history.parquet") == table
    refuses(OptionError, "pdf", found.save, tmp_path / "history.pdf")
    axes = found.plot(tmp_path / "history.svg")
    assert axes.get_yscale() == "linear"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == [*names, "failed"]
    words = ["history", scored_store.name, "--metric", "roc_auc", "--metric", "aul", "--nightly"]
    done = run(*words, "--plot", tmp_path / "a.png")
    lines = done.stdout.splitlines()
    assert "night=2026-01-02 (failing)" in lines[2], done.stdout
    assert "night=2026-01-05 (incomplete)" in lines[5], done.stdout
    assert (tmp_path / "a.png").exists()
    told = json.loads(run("history", scored_store.name, "--metric", "roc_auc", "--json", "-").stdout)
    assert (len(told["series"]), told["failing"]) == (2, [NIGHTS[1]])
    assert told["series"][0]["points"][5]["night"]["reason"] == "one class only"
    refuses(OptionError, "no column 'score_rl'; did you mean 'score_lr'", scored_store.history, "roc_auc", ["score_rl"])


def test_a_plan_of_a_verb_that_folds_says_which_files_and_columns(scored_store, scored, tmp_path):
    """Of data and footers alone: nothing is folded, and what the verb would refuse is refused."""
    new = land(NIGHTS[4], tmp_path / "new" / "data")
    found = scored_store.plan("update", data=[tmp_path / "new" / "data"])
    rows = pq.read_metadata(new / "part-0.parquet").num_rows
    assert (found.nights, found.first, found.rows, found.files) == (1, NIGHTS[4], rows, 1)
    assert found.of_data == ("label", "score_lr", "score_nb", "cluster_loose")
    assert found.bytes > 0
    begun = run("update", tmp_path / "other", scored, "--score", "score_lr", "--plan")
    assert begun.stdout.splitlines()[1].endswith(": label, score_lr"), begun.stderr
    assert not (tmp_path / "other").exists()
    again = run("replace", scored_store.name, scored / NIGHTS[1], "--plan").stdout.splitlines()
    assert again[0].startswith(f"{NIGHTS[1]}; ")
    assert again[1].startswith("would read 1 file, ")
    joins = run("add", scored_store.name, "--score", "score_q", "--since", "2026-01-03", "--plan").stdout.splitlines()
    assert joins[0].startswith("2 nights")
    assert joins[1].endswith(": label, score_q")
    assert joins[2] == "would keep also score_q"
    assert (
        run("add", scored_store.name, "--metric", "brier_score", "--plan").stdout.splitlines()[1]
        == "would read nothing"
    )
    assert run("replace", scored_store.name, tmp_path / "new" / "data", "--plan").exit_code == 1
    assert scored_store.versions()[0]["version"] == 0


FIVE_NIGHTS = [f"night=2026-01-{day:02}" for day in range(1, 6)]
OPTIONS: dict[str, Any] = {"score": ["s", "t"], "sketch": ["s", "size"], "approx_agc": True, "sample": 0.5}


def write(folder: Path, night: str, seed: int, rows: int = 3000) -> None:
    """A night with two scores, sizes with nulls, weights and ids."""
    rng = np.random.default_rng(seed)
    label = rng.random(rows) < 0.3
    size = rng.integers(1, 500, rows)
    columns = {
        "label": label,
        "s": rng.normal(label * 1.5),
        "t": rng.normal(label * 0.5).round(1),
        "size": pa.array(size, mask=size % 50 == 0),
        "w": rng.random(rows) + 0.5,
        "id": rng.integers(0, 30, rows),
    }
    put(folder / night / "part-0.parquet", columns, row_group_size=700)


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five nights."""
    folder = tmp_path_factory.mktemp("estimates")
    for seed, night in enumerate(FIVE_NIGHTS):
        write(folder, night, seed)
    return folder


def estimates(found: Evaluation) -> dict[tuple[str, str | None], Any]:
    """Every estimate with all that is said about it."""
    kinds = ("agc_approx", "quantile")
    return {(r.metric, r.of): r.to_dict() for r in found.results if r.metric.partition("@")[0] in kinds}


@pytest.mark.parametrize("weight", [None, "w"])
def test_a_store_gives_the_same_estimates_however_it_was_folded(
    sized: Path, tmp_path: Path, weight: str | None
) -> None:
    """At once, night by night in another order, on other threads, after vacuum, and verified."""
    options = OPTIONS | {"weight": weight}
    one, other = (Store(tmp_path / str(threads), threads=threads) for threads in (1, 3))
    one.update(sized, **options)
    for night in (FIVE_NIGHTS[3], FIVE_NIGHTS[0], FIVE_NIGHTS[4], FIVE_NIGHTS[1], FIVE_NIGHTS[2]):
        other.update(sized / night, **options)
    first = estimates(one.evaluate())
    assert first == estimates(other.evaluate())
    assert {metric for metric, _ in first} >= {"agc_approx", "quantile@0", "quantile@0.5", "quantile@1"}
    one.vacuum(grace="0s")
    assert one.update(sized, verify=True).unchanged == len(FIVE_NIGHTS)
    assert estimates(Store(tmp_path / "1").evaluate()) == first


def test_samples_of_nights_are_those_of_the_files(sized: Path, tmp_path: Path) -> None:
    """Values, standard errors and bounds are those of one pass over the files, as long as digests keep every row."""
    store = Store(tmp_path / "store")
    store.update(sized, **OPTIONS | {"sample": 0.2, "sample_seed": 3})
    for options in ({}, {"truncate": 0.1}, {"quantiles": 20}, {"score": "t"}):
        want = evaluate(sized, **OPTIONS | {"sample": 0.2, "sample_seed": 3, "passes": 1} | options)
        found = store.evaluate(**options)
        for result in want.results:
            if result.metric.startswith("agc_approx"):
                [same] = [r for r in found.results if (r.metric, r.of) == (result.metric, result.of)]
                numbers = [(r.value, r.stderr, r.bound, r.rows, r.positives) for r in (same, result)]
                assert numbers[0] == pytest.approx(numbers[1], rel=1e-9)
                exact = found.value(result.metric.replace("_approx", ""), result.of)
                assert same.bound is not None
                assert same.stderr is not None
                assert abs(same.value - exact) < same.bound + 5 * same.stderr


def test_the_commands_keep_and_show_estimates(sized: Path, tmp_path: Path) -> None:
    """`update --sketch --approx-agc`, `show`, `history`, `check`, `info`; what a store cannot do is refused."""
    store = tmp_path / "store"
    begun = run("update", store, sized, "--score", "s", "--sketch", "size", "--approx-agc", "--sample", "0.5")
    assert begun.exit_code == 0, begun.stderr
    told = json.loads(run("info", store, "--versions", "--json", "-").stdout)["versions"]
    assert told[-1]["action"].endswith("keeps scores s; sketches of size; labels label; approx_agc=True; sample=0.5")
    shown = run("show", store, "--quantiles", 30, "--truncate", 0.2).stdout
    assert all(name in shown for name in ("agc_approx@0.2", "quantile@0.5", "standard error"))
    points = json.loads(run("history", store, "--metric", "quantile@0.3", "--json", "-").stdout)["points"]
    assert len(points) == len(FIVE_NIGHTS)
    rule = run("check", store, "--rule", "quantile@0.5[size] <= 300", "--rule", "agc_approx[s] drop <= 1")
    assert rule.exit_code == 0, rule.stdout
    assert "nan" not in rule.stdout
    for words in (["--passes", 2], ["--sample-by", "row_groups"]):
        refused = run("update", tmp_path / "new", sized, "--score", "s", "--approx-agc", *words)
        assert refused.exit_code == 2
        assert words[0] in refused.stderr
    assert run("show", store, "--metric", "quantile@2").exit_code == 2
    assert "contradicts the store" in run("update", store, sized, "--sample", 0.25).stderr
