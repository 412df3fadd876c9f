"""Accumulator: the numbers of `evaluate`, whatever the batches, merges and machines in between."""

import itertools
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_metric import Positives
from refusals import refuses

from streameval import Accumulator, evaluate
from streameval.errors import (
    FormatError,
    IncompatibleStatesError,
    LabelError,
    MissingColumnError,
    MissingInputError,
    NullError,
    OptionError,
    SchemaError,
    StoreError,
    WeightError,
)
from streameval.store.files.published import seal, unseal

OPTIONS: dict[str, Any] = {"score": "score", "cluster": "cluster", "metrics": ["score", "cluster"], "at": "fpr=0.1"}


def table(rows: int = 300) -> pa.Table:
    """Scores in [0, 1] and clusters."""
    random = np.random.default_rng(2)
    score = random.random(rows).round(2)
    label = (random.random(rows) < score).astype(np.int8)
    return pa.table({"label": label, "score": score, "cluster": random.integers(0, 20, rows)})


def same(one: Any, other: Any) -> bool:
    """Whether two evaluations hold the same."""
    return one.to_json() == other.to_json()


@settings(max_examples=25)
@given(st.lists(st.integers(0, 300), max_size=5), st.integers(1, 3))
def test_batches_and_merges_change_nothing(cuts: list[int], several: int) -> None:
    """Any cut, dealt to any number of accumulators, in any order of merging."""
    data = table()
    ends = sorted({0, *cuts, data.num_rows})
    made = [Accumulator(**OPTIONS) for _ in range(several)]
    for i, (start, stop) in enumerate(itertools.pairwise(ends)):
        made[i % several].update(data.slice(start, stop - start))
    first = made[-1]
    for other in made[:-1]:
        first.merge(other)
    assert same(first.result(), evaluate(data, **OPTIONS))


def test_every_kind_of_batch_is_taken() -> None:
    """Arrow tables, batches and readers, frames and dicts of arrays; empty ones too."""
    data = table(60)
    found = Accumulator(**OPTIONS)
    found.update(data.slice(0, 10))
    found.update(data.slice(10, 10).to_batches()[0])
    found.update(data.slice(20, 10).to_reader())
    found.update(data.slice(30, 10).to_pandas())
    found.update({name: data[name].to_numpy()[40:] for name in data.column_names})
    found.update(data.slice(0, 0))
    assert same(found.result(), evaluate(data, **OPTIONS))
    found.update(data)  # a result does not end it
    assert found.result().rows == 120


@pytest.mark.parametrize(
    "batch",
    ["gone.parquet", Path("gone"), ["gone.parquet"], [], None, 3, [{"label": [0]}], np.zeros(3), iter("x")],
    ids=lambda batch: type(batch).__name__,
)
def test_what_holds_no_rows_is_refused(batch: Any) -> None:
    """With what an accumulator takes; a path above all, since one without files would pass for a batch without rows."""
    said = f"update an Accumulator with data of type {type(batch).__name__}; give an Arrow table"
    refuses(OptionError, f"{said}.* read by evaluate", Accumulator(**OPTIONS).update, batch)


def test_it_travels_and_is_saved(tmp_path: Path) -> None:
    """By pickle and by files; loaded or received, it goes on."""
    data, place = table(), tmp_path / "kept"
    first = Accumulator(**OPTIONS)
    first.save(place)
    assert repr(Accumulator.load(place)) == repr(first)
    first.update(data.slice(0, 100))
    sent = pickle.loads(pickle.dumps(first))
    first.save(place)
    first.save(place)
    assert len(list(place.iterdir())) == 4  # the index, labels, scores, clusters
    for other in (sent, Accumulator.load(place, memory="64MiB")):
        other.update(data.slice(100))
        assert same(other.result(), evaluate(data, **OPTIONS))
    assert first.result().rows == 100


def test_threads_take_turns() -> None:
    """Eight threads that update one accumulator."""
    data, found = table(800), Accumulator(**OPTIONS)
    threads = [threading.Thread(target=found.update, args=(data.slice(100 * i, 100),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(found.result(), evaluate(data, **OPTIONS))


def test_two_that_merge_with_each_other_do_not_wait_for_ever() -> None:
    """While one waits for the rows of another, its own can still be taken."""
    data, (one, other) = table(200), (Accumulator(**OPTIONS) for _ in range(2))
    one.update(data)
    other.update(data)
    with other._lock:
        merging = threading.Thread(target=one.merge, args=(other,), daemon=True)
        merging.start()
        merging.join(0.2)
        taking = threading.Thread(target=one.result, daemon=True)
        taking.start()
        taking.join(60)
        assert not taking.is_alive()
    merging.join(60)
    assert same(one.result(), evaluate(pa.concat_tables([data, data]), **OPTIONS))


GOOD: dict[str, Any] = {"label": np.array([0, 1]), "score": np.array([0.1, 0.9]), "cluster": np.array([1, 2]),
                        "weight": np.array([1.0, 2.0]), "campaign": np.array([5, 6])}  # fmt: skip
ALL: dict[str, Any] = {"score": "score", "cluster": "cluster", "classes": "campaign", "weight": "weight"}
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "another type": ({"score": np.array([1, 0])}, SchemaError, "first batch had double"),
    "a NaN score": (
        {"score": np.array([0.9, np.nan])},
        NullError,
        "the batch: score column 'score' has NaN or null scores",
    ),
    "a null score": ({"score": pa.array([0.9, None])}, NullError, "NaN or null scores"),
    "a null label": ({"label": pa.array([0, None])}, NullError, "label column 'label' has nulls"),
    "a third label": ({"label": np.array([0, 2])}, LabelError, "more than two values"),
    "a null cluster": ({"cluster": pa.array([None, 2])}, NullError, "cluster column 'cluster' has nulls"),
    "a null class": ({"campaign": pa.array([None, 2])}, NullError, "class column 'campaign' has nulls"),
    "a negative weight": ({"weight": np.array([1.0, -1.0])}, WeightError, "has the value -1"),
    "columns of two lengths": ({"score": np.array([0.9])}, SchemaError, "different numbers of rows"),
    "numbers and texts": ({"score": [0.9, "x"]}, SchemaError, "column 'score' is not an array of one type"),
    "a missing column": (
        {"cluster": None, "clustr": np.array([1, 2])},
        MissingColumnError,
        r"the dict: no column 'cluster'; did you mean 'clustr'\?",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("approx", [False, True])
def test_a_refused_batch_is_left_out_as_a_whole(name: str, approx: bool) -> None:
    """Whatever is wrong with it, the accumulator goes on as if it had not been given."""
    changed, error, text = BAD[name]
    bad = {column: values for column, values in (GOOD | changed).items() if values is not None}
    found = Accumulator(**ALL, approx=approx)
    if name not in ("another type", "a third label"):  # which need an earlier batch
        refuses(error, text, found.update, bad)
    found.update(GOOD)
    refuses(error, text, found.update, bad)
    found.update(GOOD)
    twice = pa.concat_tables([pa.table(GOOD)] * 2)
    assert same(found.result(), evaluate(twice, **ALL, approx=approx))


def test_a_narrower_batch_is_widened() -> None:
    """To the types of the first one; of two accumulators, those with keys of other types are not merged."""
    wide = GOOD | {"score": np.array([0.5, 0.25])}
    narrow = wide | {"score": np.array([0.5, 0.25], np.float32), "cluster": np.array([1, 2], np.int8)}
    narrow["campaign"] = pa.array(narrow["campaign"], pa.uint16())
    first, second = Accumulator(**ALL), Accumulator(**ALL)
    first.update(wide)
    first.update(narrow)
    assert same(first.result(), evaluate(pa.concat_tables([pa.table(wide)] * 2), **ALL))
    second.update(narrow)
    refuses(IncompatibleStatesError, r"columns that differ in type: .*score", first.merge, second)
    refuses(IncompatibleStatesError, "'score' has type double where the first batch had float", second.merge, first)
    assert first.result().rows == 4


def test_where_the_machine_fails_it_refuses_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt while rows are counted leaves them in part."""
    found = Accumulator(score="score")
    found.update(GOOD)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streameval.accumulator.hand_over", interrupted)
    refuses(KeyboardInterrupt, "", found.update, GOOD)
    refuses(FormatError, r"rows were lost when the machine failed \(KeyboardInterrupt", found.result)


def test_means_over_groups_and_common_rows() -> None:
    """As `evaluate` has them."""
    data = table().append_column("other", pa.array([None if i % 7 == 0 else i / 300 for i in range(300)]))
    for more in ({"mean_over": "cluster"}, {"common_rows": True, "nan": "drop"}):
        asked = {"score": ["score", "other"] if "nan" in more else "score", "metrics": "roc_auc", **more}
        found = Accumulator(**asked)
        for start in range(0, 300, 70):
            found.update(data.slice(start, 70))
        assert same(found.result(), evaluate(data, **asked))


@pytest.mark.parametrize("more", [{"unit": "user"}, {"unit": "user", "baseline": "score"}, {"ci": 0.9}])
def test_sampling_intervals_are_those_of_evaluate(more: dict[str, Any], tmp_path: Path) -> None:
    """Whatever the batches; saved, sent and loaded with the blocks; merged, where units are named."""
    data, noise = table(600), np.random.default_rng(5).normal(size=600)
    data = data.append_column("other", pa.array(data["score"].to_numpy() + noise / 4))
    data = data.append_column("user", pa.array(np.arange(600) // 3))
    asked: dict[str, Any] = {"score": ["score", "other"], "metrics": ["roc_auc", "average_precision"], **more}
    found, late = Accumulator(**asked), Accumulator(**asked)
    for start in range(0, 400, 70):
        found.update(data.slice(start, min(70, 400 - start)))
    found.save(tmp_path)
    found = pickle.loads(pickle.dumps(Accumulator.load(tmp_path)))
    if "unit" in more:
        late.update(data.slice(400))
        found.merge(late)
    else:
        found.update(data.slice(400))
    result = found.result()
    assert result.results[0].ci_lower is not None
    assert same(result, evaluate(data, **asked))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """By name, with the remedy."""
    refuses(OptionError, "merge the accumulators of your workers", Accumulator, score="score", client="tcp://x:1")
    refuses(OptionError, "takes no option 'scores'", Accumulator, scores="score")
    refuses(OptionError, "takes no sample", Accumulator, score="score", sample=0.5)
    refuses(OptionError, "keep an accumulator for each slice", Accumulator, score="score", by="country")
    refuses(OptionError, "batches have no partitions", Accumulator, cluster="cluster", cluster_scope="partition")
    refuses(MissingInputError, "update the accumulator first", Accumulator(score="score").result)
    one = Accumulator(score="score")
    refuses(IncompatibleStatesError, "differ in nan", one.merge, Accumulator(score="score", nan="drop"))
    refuses(IncompatibleStatesError, "int", one.merge, 1)
    refuses(OptionError, "cannot be saved", Accumulator(score="score", metrics=Positives()).save, tmp_path)
    (tmp_path / "other").write_text("mine")
    refuses(OptionError, "something else", one.save, tmp_path)
    with pytest.raises(StoreError, match=r"other: cannot be written \(File exists\); choose another directory"):
        one.save(tmp_path / "other")
    refuses(OptionError, "load takes no option 'score'", Accumulator.load, tmp_path, score="score")
    refuses(FormatError, "no accumulator", Accumulator.load, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"options": {**OPTIONS, "aul_threshold": 3}},
        {"options": {**OPTIONS, "at": ["fpr=0.2"]}},
        {"options": {**OPTIONS, "truncate": [0.1]}},
        {"format": 1.5},
        {"states": []},
    ],
    ids=str,
)
def test_a_changed_index_of_a_saved_one_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Options decide numbers, so the index carries its checksum; what is broken can be saved over."""
    saved = Accumulator(**OPTIONS)
    saved.update(table())
    saved.save(tmp_path)
    index = tmp_path / "accumulator.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | change))
    refuses(FormatError, r"checksum is missing or wrong.*save it again", Accumulator.load, tmp_path)
    saved.save(tmp_path)
    assert same(Accumulator.load(tmp_path).result(), saved.result())


@pytest.mark.parametrize("bad", [None, 3, "x", {}, [[1]], [None], ["../kept.parquet"]], ids=repr)
@pytest.mark.parametrize("part", ["options", "schema", "states", None])
def test_a_forged_index_is_refused_and_deletes_nothing(tmp_path: Path, part: str | None, bad: Any) -> None:
    """With a checksum as it should be: wrong types, names outside the directory, options of a process, nesting."""
    place, outside = tmp_path / "saved", tmp_path / "kept.parquet"
    outside.write_bytes(b"mine")
    saved = Accumulator(score="score")
    saved.update(table())
    saved.save(place)
    record = unseal((index := place / "accumulator.json").read_bytes())
    forged = {"options": {"score": "score", "spill": str(bad)}} if part is None else {part: bad}
    index.write_text(seal(record | forged))
    if (part, bad) != ("schema", None):  # which is an accumulator without rows, but for its states
        refuses((FormatError, OptionError), "", Accumulator.load, place)
    saved.save(place)
    assert outside.read_bytes() == b"mine"
    index.write_text("[" * 100_000)
    refuses(FormatError, "", Accumulator.load, place)


def test_a_damaged_state_of_a_saved_one_is_named(tmp_path: Path) -> None:
    """With the remedy for an accumulator, not for a store."""
    saved = Accumulator(score="score")
    saved.update(table())
    saved.save(tmp_path)
    for state in tmp_path.glob("*.parquet"):
        state.write_bytes(state.read_bytes()[:-1])
    refuses(FormatError, r"damaged.*save the accumulator again", Accumulator.load, tmp_path)
    for state in tmp_path.glob("*.parquet"):
        state.unlink()
    refuses(FormatError, r"no longer exists; save the accumulator again$", Accumulator.load, tmp_path)


@pytest.mark.parametrize("positive", [b"spam", b"\xff\x00"])
def test_a_positive_label_of_bytes_is_saved(positive: bytes, tmp_path: Path) -> None:
    """Text or not, it names the same rows when the accumulator is loaded."""
    data = pa.table({"label": [positive, b"ham", positive], "score": [0.9, 0.2, 0.1]})
    options: dict[str, Any] = {"score": "score", "pos_label": positive}
    first = Accumulator(**options)
    first.update(data)
    first.save(tmp_path)
    loaded = Accumulator.load(tmp_path)
    loaded.update(data)
    assert same(loaded.result(), evaluate(pa.concat_tables([data, data]), **options))


def test_a_refused_batch_is_left_out_with_a_unit_too() -> None:
    """Clusters are then folded by block, and refuse nulls as plain ones do, before a row is taken."""
    batch = {"label": [0, 1] * 20, "c": [*range(20)] * 2, "u": [*range(40)]}
    made = Accumulator(label="label", cluster="c", metrics="aul", unit="u")
    made.update(batch)
    refuses(NullError, "'c' has nulls", made.update, pa.table(batch | {"c": pa.array([None, *range(39)], pa.int64())}))
    assert made.result().results == evaluate(pa.table(batch), cluster="c", metrics="aul", unit="u").results


def test_a_refused_first_batch_decides_no_types() -> None:
    """The next one may have others."""
    found = Accumulator(score="score")
    refuses(NullError, "", found.update, {"label": np.array([0, 1]), "score": np.array([np.nan, 0.9])})
    found.update({"label": np.array([0, 1]), "score": np.array([1, 3])})
    assert found.result().value("roc_auc") == 1.0


def test_an_unknown_version_of_a_saved_one_is_refused(tmp_path: Path) -> None:
    """By its number, although its checksum is right."""
    Accumulator(score="score").save(tmp_path)
    index = tmp_path / "accumulator.json"
    index.write_text(seal(unseal(index.read_bytes()) | {"format": 9}))
    refuses(FormatError, "is of format 9; this version of streameval reads 1: upgrade it", Accumulator.load, tmp_path)
