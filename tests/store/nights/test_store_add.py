"""What joins a store and what leaves it: columns, classes, weights, sketches and metrics."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nightly import FEW, NIGHTS, land
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import MissingInputError, OptionError


@pytest.fixture
def data(tmp_path):
    """The first three nights."""
    for name in NIGHTS[:3]:
        land(name, tmp_path / "data")
    return tmp_path / "data"


ALL = {"score": "score_lr", "cluster": "cluster_loose", "classes": "campaign", "sketch": "score_nb", "weight": "weight"}


@pytest.mark.parametrize(
    "begun",
    [
        {"cluster": "cluster_loose", "nan": "drop", "nulls": "drop"},
        {"score": "score_lr", "nan": "half", "truncate": 0.1},
        {"score": "score_lr", "approx": True, "nulls": "drop"},
        {"sketch": "score_nb", "nulls": "singleton"},
    ],
    ids=str,
)
def test_whatever_joins_is_as_if_it_had_always_been_there(data, tmp_path, begun):
    """One by one, after any policy of the first update, the data path given: every number is that of the files."""
    store = Store(tmp_path / "store")
    store.update(data, **begun)
    kept = dict(begun)
    for name, column in ALL.items():
        if name not in begun:
            done = store.add(data=data, **{name: column})
            assert (done.changed, done.gone, done.joined) == (tuple(NIGHTS[:3]), (), (column,)), name
            kept[name] = column
            fresh = Store(tmp_path / f"fresh-{name}")
            fresh.update(data, **kept)
            assert store.evaluate().to_json() == fresh.evaluate().to_json()
            assert [e.noted["nulls"] for e in store.partitions()] == [e.noted["nulls"] for e in fresh.partitions()]
            rows = [{(s.group, s.of, s.kind) for s in entry.states} for entry in store.partitions()]
            assert rows == [{(s.group, s.of, s.kind) for s in entry.states} for entry in fresh.partitions()]
    assert store.add(score="score_lr").changed == ()
    land(NIGHTS[3], data)
    assert store.update(data).new == (NIGHTS[3],)


def test_weights_that_join_take_the_place_of_counts(data, tmp_path):
    """Nights whose files are gone have no weighted scores, with the reason; earlier versions still have counts."""
    store = Store(tmp_path / "store")
    store.update(data, **FEW)
    before = store.evaluate().to_json()
    shutil.rmtree(data / NIGHTS[0])
    done = store.add(weight="weight")
    assert (done.changed, done.gone) == (tuple(NIGHTS[1:3]), (NIGHTS[0],))
    expected = evaluate(data, **FEW, weight="weight")
    assert store.evaluate(last=2).value("roc_auc") == expected.value("roc_auc")
    auc = next(r for r in store.evaluate().results if r.metric == "roc_auc")
    assert auc.reason == f"no score_lr in 1 of 3 partitions ({NIGHTS[0]})"
    assert store.evaluate().value("aul") == json.loads(before)["results"][-2]["value"]
    assert store.evaluate(as_of=0).to_json() == before
    shutil.rmtree(data)
    with pytest.raises(MissingInputError, match=r"no night is where it was folded from: .*\(add STORE DATA\)"):
        store.add(score="score_nb")


def test_a_column_that_leaves_takes_its_states_along(data, tmp_path):
    """What is left is as if it had never been there; it may come back."""
    store = Store(tmp_path / "store")
    store.update(data, score=["score_lr", "score_nb"], cluster="cluster_loose", classes="campaign")
    whole = store.evaluate().to_json()
    done = store.remove(columns=["score_nb", "campaign"])
    assert str(done) == "score_nb, campaign removed"
    assert store.evaluate().to_json() == evaluate(data, **FEW).to_json()
    assert {(s.group, s.of) for e in store.partitions() for s in e.states} == {
        ("score", "score_lr"),
        ("cluster", "cluster_loose"),
    }
    assert store.evaluate(as_of=0).to_json() == whole
    store.add(score="score_nb", classes="campaign")
    assert store.evaluate().to_json() == whole


def test_what_cannot_leave_is_refused(data, tmp_path):
    """A column that is not there, with the one that was meant; labels and weights; the last one."""
    store = Store(tmp_path / "store")
    store.update(data, score="score_lr", weight="weight")
    for column, message in (
        ("score_rl", "no column 'score_rl'; did you mean 'score_lr'"),
        ("weight", "is the weight column"),
        ("label", "is the label column"),
        ("score_lr", "is the only column"),
    ):
        refuses(OptionError, message, store.remove, columns=column)
    refuses(OptionError, "weight='w' contradicts the store's value, 'weight'", store.add, weight="w")
    refuses(OptionError, "add takes no option 'scor'; did you mean 'score'", store.add, scor="x")


def test_policies_that_join_need_no_file(data, tmp_path):
    """States without nulls are the same under any policy, also where files are gone and scores are histograms."""
    store, policies = Store(tmp_path / "store"), {"nan": {"score_lr": "drop"}, "nulls": {"cluster_loose": "singleton"}}
    options = {**FEW, "by": "source", "unit": "campaign", "metrics": ["roc_auc", "aul"]}
    store.update(data, **options)
    values = [result.value for result in store.evaluate().results]
    store.vacuum(keep="1d", grace="0s")
    bounded = [(result.lower, result.upper) for result in store.evaluate().results]
    moved = data.rename(tmp_path / "moved")
    done = store.add(**policies)
    assert (done.changed, done.gone, done.rows) == ((), (), 0)
    changes = "nan of score_lr changed from error to drop, nulls of cluster_loose changed from error to singleton"
    assert str(done) == changes
    assert [(result.lower, result.upper) for result in store.evaluate().results] == bounded
    other = Store(tmp_path / "other")
    other.update(moved, **options)
    table = pq.read_table(land(NIGHTS[3], moved) / "part-0.parquet", partitioning=None)
    for column in ("score_lr", "cluster_loose"):
        holes = pa.array([None, *table[column].to_pylist()[1:]], table[column].type)
        table = table.set_column(table.column_names.index(column), column, holes)
    pq.write_table(table, moved / NIGHTS[3] / "part-0.parquet")
    other.add(**policies)
    assert [result.value for result in other.evaluate().results] == values
    other.update(moved)
    fresh = Store(tmp_path / "fresh")
    fresh.update(moved, **options, **policies)
    assert other.evaluate().to_json() == fresh.evaluate().to_json()
    assert {s.content for e in other.partitions() for s in e.states} == {
        s.content for e in fresh.partitions() for s in e.states
    }
    assert other.info(verify=True).damaged == ()
    refuses(OptionError, "score_lr keeps its policy", other.add, nan={"score_lr": "half"})


@pytest.mark.parametrize(
    "more",
    [{"score": "b"}, {"cluster": "c"}, {"cluster": "c", "classes": "c"}, {"sketch": "b"}, {"unit": "c"}],
    ids=str,
)
def test_a_column_that_is_added_while_no_night_has_rows_has_its_type_later(tmp_path, more):
    """Evaluating, checking, removing a column and vacuum raised a raw KeyError until an update gave it a type."""
    night = {"label": [0, 1, 0, 1], "a": [0.1, 0.4, 0.3, 0.2], "b": [0.1, 0.2, 0.3, 0.4], "c": [1, 2, 1, 3]}
    for name, kept in (("1", -1), ("2", 1)):
        pq.write_table(pa.table(night | {"kept": [kept] * 4}), tmp_path / f"night={name}.parquet")
    store, whole = (Store(tmp_path / name, threads=1) for name in ("store", "whole"))
    store.update(tmp_path / "night=1.parquet", score="a", where="kept > 0")
    assert store.add(**more).version == 1
    refuses(MissingInputError, "no rows", store.evaluate)
    assert store.history("roc_auc", of="a").points[0].night.reason
    assert store.check("roc_auc[a] > 0").judgements[0].outcome == "failed"
    store.vacuum(grace="0s")
    store.update(tmp_path / "night=2.parquet")
    both = [tmp_path / "night=1.parquet", tmp_path / "night=2.parquet"]
    whole.update(both, **more | {"score": list(dict.fromkeys(["a", more.get("score", "a")]))}, where="kept > 0")
    assert store.evaluate().to_json() == whole.evaluate().to_json()
    if "unit" not in more:
        assert store.remove(columns="a").left == ("a",)


def test_classes_may_be_named_before_clusters(data, tmp_path):
    """As other options that need clusters; the first update, and others, raised a raw KeyError."""
    store, whole = (Store(tmp_path / name, threads=1) for name in ("store", "whole"))
    with pytest.raises(OptionError, match=r"classes='.udce9' is not valid UTF-8;"):  # bytes from a shell
        store.update(data / NIGHTS[0], score="score_lr", classes="\udce9")
    store.update(data / NIGHTS[0], score="score_lr", classes="campaign")
    refuses(OptionError, r"sketch='.udce9' is not valid UTF-8;", store.add, sketch="\udce9")
    assert store.evaluate().to_dict()["results"]
    assert store.add(classes="campaign").joined == ()
    store.update(data / NIGHTS[1])
    assert store.add(cluster="cluster_loose").changed == tuple(NIGHTS[:2])
    both = [data / night for night in NIGHTS[:2]]
    whole.update(both, score="score_lr", cluster="cluster_loose", classes="campaign")
    assert store.evaluate().to_dict()["results"] == whole.evaluate().to_dict()["results"]
    assert store.remove(columns="campaign").left == ("campaign",)
    other = Store(tmp_path / "other", threads=1)
    other.update(both, score="score_lr", classes="campaign")
    assert other.remove(columns="campaign").left == ("campaign",)
    assert "classes" not in other.info().columns


@pytest.mark.parametrize("policy", [{"nan": {"score_rl": "drop"}}, {"aul_threshold": {"cluster_lose": 5}}], ids=str)
def test_a_policy_for_a_column_that_is_not_kept_is_refused(policy, data, tmp_path):
    """It would be forgotten without a word, and nothing is written."""
    with pytest.raises(OptionError, match=r"no column '\w+'; did you mean '(score_lr|cluster_loose)'"):
        Store(tmp_path / "none").update(data, score="score_lr", cluster="cluster_loose", **policy)
    assert not (tmp_path / "none").exists()
    store = Store(tmp_path / "store")
    store.update(data, score="score_lr", cluster="cluster_loose")
    refuses(OptionError, "no column", store.add, **policy)
    assert store.update(data).version == 0
