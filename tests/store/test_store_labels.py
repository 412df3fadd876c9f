"""Late labels of a store: any order and splitting of nights and labels gives the states of the joined files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import Store, evaluate
from streameval.cli import main
from streameval.errors import DataError, FormatError, LabelError, NullError, OptionError
from streameval.store import delivery
from streameval.store.files.published import content_of
from streameval.store.nights import open_nights
from streameval.store.nights.open_nights import OPEN, OpenNight, Segment

if TYPE_CHECKING:
    from collections.abc import Mapping

NIGHTS = [f"night=2026-01-0{i}" for i in (1, 2, 3)]
IDS = 30  # ids of all nights; some are in several nights, or twice in one
WHAT: dict[str, Any] = {"score": "s", "cluster": "c", "unit": "u", "by": "g", "nan": "drop", "metrics": "roc_auc"}
LATE: dict[str, Any] = {"on": "id", "label_time": "t", "label_conflicts": "drop"}

Statement = tuple["int | None", int, "int | None"]  # id, time, label
statements = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, IDS + 5)), st.integers(0, 3), st.sampled_from([0, 1, None])),
    max_size=12,
)


def write_night(name: str, folder: Path, label: Mapping[Any, int | None] | None = None) -> Path:
    """A night of random rows; with labels, these are a column."""
    rng = np.random.default_rng(NIGHTS.index(name))
    rows, target = 24, folder / name
    ids = rng.integers(0, IDS, rows)
    score = rng.integers(0, 6, rows) / 5
    score[rng.random(rows) < 0.1] = np.nan
    columns = {
        "id": pa.array(ids, mask=rng.random(rows) < 0.1),
        "s": pa.array(score),
        "c": pa.array(rng.integers(0, 5, rows)),
        "u": pa.array(rng.integers(0, 4, rows), mask=rng.random(rows) < 0.2),
        "g": pa.array(np.array(["x", "y"])[rng.integers(0, 2, rows)]),
        "k": pa.array(rng.integers(0, 3, rows)),
        "h": pa.array(rng.integers(0, 10**5, rows)).cast(pa.timestamp("s")),
    }
    if label is not None:
        columns["label"] = pa.array([label.get(i) for i in columns["id"].to_pylist()], pa.int64())
    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), target / "part-0.parquet")
    return target


def write_labels(path: Path, rows: list[Statement]) -> Path:
    """A file of labels."""
    ids, times, labels = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "t": pa.array([86_400_000_000 * t for t in times], pa.timestamp("us")),
            "label": pa.array(labels, pa.int64()),
        }
    )
    pq.write_table(table, path)
    return path


def truth(rows: list[Statement]) -> dict[int, int | None]:
    """The label of each id under ``drop``."""
    by_id: dict[int, set[tuple[int, int | None]]] = {}
    for one, time, label in rows:
        if one is not None:
            by_id.setdefault(one, set()).add((time, label))
    latest: dict[int, set[int | None]] = {}
    for one, some in by_id.items():
        newest = max(time for time, _ in some)
        latest[one] = {label for time, label in some if time == newest}
    return {one: next(iter(labels)) if len(labels) == 1 else None for one, labels in latest.items()}


def contents(store: Store) -> dict[tuple[str, str, str], str]:
    """SHA-256 of every state of every night, but for the rows of open nights."""
    return {
        (entry.partition, state.group, state.of): content_of(state.file)
        for entry in store.partitions()
        for state in entry.states
        if state.group != OPEN
    }


@settings(max_examples=8)
@given(st.lists(statements, min_size=1, max_size=3), st.permutations([*NIGHTS, 0, 1, 2]), st.booleans(), st.booleans())
def test_any_order_of_nights_and_labels_gives_the_states_of_the_joined_files(deliveries, order, merging, filtered):
    """Duplicates, ties, corrections, withdrawals, null ids and orphans; a delivery again makes no commit."""
    what = WHAT | {"classes": "k"} | ({"where": "k > 0"} if filtered else {})
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "FAN", 2 if merging else 8)
        for name, rows in (("SEGMENT", 10), ("BATCH", 4)) if merging else ():
            patch.setattr(open_nights, name, rows)
        where, store = Path(folder), Store(Path(folder, "store"), threads=1)
        first = next(step for step in order if isinstance(step, str))
        store.update(write_night(first, where / "data"), **what, **LATE)
        files = [write_labels(where / f"labels-{i}.parquet", rows) for i, rows in enumerate(deliveries)]
        for step in order:
            if isinstance(step, str):
                store.update(write_night(step, where / "data") if step != first else where / "data" / first)
            elif step < len(files):
                store.update(labels=files[step], allow_unmatched=True)
        version = store.info().version
        for file in files:
            os.utime(file, ns=(0, 1))
            store.update(where / "data", labels=files, allow_unmatched=True)
        assert store.info().version == version
        label = truth([one for rows in deliveries for one in rows])
        for name in NIGHTS:
            write_night(name, where / "joined", label)
        joined = Store(where / "other", threads=1)
        joined.update(where / "joined", **what, unlabelled="size")
        assert contents(store) == contents(joined)
        everything = [(one, 9, None) for one in range(IDS)]
        store.update(labels=write_labels(where / "withdrawn.parquet", everything), allow_unmatched=True)
        for name in NIGHTS:
            write_night(name, where / "none", {})
        none = Store(where / "third", threads=1)
        none.update(where / "none", **what, unlabelled="size")
        assert contents(store) == contents(none)


@pytest.mark.parametrize(("rows", "kind"), [(0, pa.uint64()), (3, pa.uint64()), (1 << 17, pa.uint32())])
def test_the_index_and_the_rest_of_a_word_give_the_word(rows, kind):
    """Of small and large segments, with rows that have no id, in any selection."""
    words = np.sort(np.random.default_rng(1).integers(0, 1 << 64, rows, np.uint64))
    segment, rest = Segment.of(words, 2)
    some = np.arange(1, rows + 2, 3)
    assert rest.type == kind
    assert segment.words(some, rest.to_numpy()[some]).to_pylist() == [*words.tolist(), None, None][1::3]


@pytest.mark.parametrize("kind", [pa.string(), pa.uint16(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_units_of_open_rows_are_their_blocks_unless_their_column_is_read_for_more(tmp_path, kind):
    """The states of the joined file, with ids of any type, and with a column of clusters and units."""
    rows = [(i, 1, i % 2) for i in range(IDS)]
    labels = write_labels(tmp_path / "labels.parquet", rows)
    for cluster, kept in (("c", {"c", "unit block"}), ("u", {"u", "row number"})):
        folder = tmp_path / cluster
        for where, own in (("data", None), ("joined", {i: label for i, _, label in rows})):
            path = write_night(NIGHTS[0], folder / where, own) / "part-0.parquet"
            table = pq.read_table(path)
            plain = getattr(kind, "value_type", kind)
            units = table["u"].cast(plain) if kind is plain else table["u"].cast(plain).dictionary_encode()
            pq.write_table(table.set_column(table.column_names.index("u"), "u", units), path)
        store, what = Store(folder / "store", threads=1), WHAT | {"cluster": cluster, "nulls": "drop"}
        store.update(folder / "data", **what, **LATE, labels=labels)
        joined = Store(folder / "other", threads=1)
        joined.update(folder / "joined", **what, unlabelled="size")
        assert contents(store) == contents(joined)
        night = OpenNight.read(store.partitions()[0], store._context.files)
        assert {"u", "c", "row number", "unit block"} & {*night.labelled.column_names} == kept


late_rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, IDS + 5)), st.integers(0, 3), st.sampled_from([0, 1, None]),
        st.sampled_from([5, 6, 300, None]), st.sampled_from(["a", "b", "c", None]),
    ),
    max_size=20,
)  # fmt: skip
FURTHER = ("label", "k", "u")


def write_columns(path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...]) -> Path:
    """A file of statements about some columns."""
    kinds = {"label": pa.int64(), "k": pa.int32(), "u": pa.string()}
    named = dict(zip(FURTHER, ([row[i] for row in rows] for i in (2, 3, 4)), strict=True))
    table = {"id": pa.array([row[0] for row in rows], pa.int64())}
    table["t"] = pa.array([86_400_000_000 * row[1] for row in rows], pa.timestamp("us"))
    pq.write_table(pa.table(table | {name: pa.array(named[name], kinds[name]) for name in columns}), path)
    return path


def write_lacking(name: str, folder: Path, values: Mapping[str, Mapping[Any, Any]] | None = None) -> Path:
    """A night without classes and units; with values, these and labels are columns."""
    path = write_night(name, folder)
    table = pq.read_table(path).drop_columns(["k", "u"])
    for column, by_id in (values or {}).items():
        own = [by_id.get(i) for i in table["id"].to_pylist()]
        table = table.append_column(column, pa.array(own, pa.string() if column == "u" else pa.int64()))
    pq.write_table(table, path / "part-0.parquet")
    return path


@settings(max_examples=8)
@given(
    st.lists(st.tuples(late_rows, st.sampled_from([("label",), ("k",), ("u", "k"), FURTHER])), min_size=1, max_size=3),
    st.permutations([*NIGHTS[1:], 0, 1, 2]),
    st.booleans(),
)
def test_classes_and_units_that_arrive_late_give_the_states_of_the_joined_files(deliveries, order, merging):
    """Statements by column in any order; a delivery again makes no commit; withdrawing all gives empty columns."""
    what = WHAT | {"classes": "k", "metrics": None, "nulls": "drop"}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "FAN", 2 if merging else 8)
        for name, rows in (("SEGMENT", 10), ("BATCH", 4)) if merging else ():
            patch.setattr(open_nights, name, rows)
        where, store = Path(folder), Store(Path(folder, "store"), threads=1)
        start = [(3, 0, 1, 6, "b"), (4, 0, 0, None, None)]
        first = write_columns(where / "first.parquet", start, FURTHER)
        store.update(write_lacking(NIGHTS[0], where / "data"), **what, **LATE, labels=first, allow_unmatched=True)
        files = [write_columns(where / f"{i}.parquet", *one) for i, one in enumerate(deliveries)]
        for step in order:
            if isinstance(step, str):
                store.update(write_lacking(step, where / "data"))
            elif step < len(files):
                store.update(labels=files[step], allow_unmatched=True)
        version = store.info().version
        for file in (first, *files):
            os.utime(file, ns=(0, 1))
        store.update(where / "data", labels=[first, *files], allow_unmatched=True)
        assert store.info().version == version
        every = [(start, FURTHER), *deliveries]
        told = {
            n: [(*row[:2], row[2 + i]) for rows, of in every if n in of for row in rows] for i, n in enumerate(FURTHER)
        }
        for name in NIGHTS:
            write_lacking(name, where / "joined", {column: truth(rows) for column, rows in told.items()})
        joined = Store(where / "other", threads=1)
        joined.update(where / "joined", **what, unlabelled="size")
        assert contents(store) == contents(joined)
        found, expected = store.evaluate(), joined.evaluate()
        assert [repr(one.value) for one in found.results] == [repr(one.value) for one in expected.results]
        of_classes = [one for one in found.results if one.metric == "rand_index"]
        assert of_classes[0].basis == "labelled rows"
        nothing = write_columns(where / "none.parquet", [(i, 9, None, None, None) for i in range(IDS)], FURTHER)
        store.update(labels=nothing, allow_unmatched=True)
        for name in NIGHTS:
            write_lacking(name, where / "empty", {column: {} for column in FURTHER})
        empty = Store(where / "third", threads=1)
        empty.update(where / "empty", **what, unlabelled="size")
        assert contents(store) == contents(empty)


def late_columns(folder: Path, **options: Any) -> tuple[Store, list[tuple[Any, ...]]]:
    """A store of a night whose labels, classes and units arrive late, and their statements."""
    rows = [(i, 1, i % 2, (5, 6, 300)[i % 3] if i % 4 else None, "abc"[i % 3]) for i in range(IDS)]
    store = Store(folder / "store", threads=1)
    first = write_columns(folder / "first.parquet", rows, FURTHER)
    what = WHAT | {"classes": "k", "metrics": None} | LATE | options
    store.update(write_lacking(NIGHTS[0], folder / "data"), **what, labels=first)
    return store, rows


def test_late_columns_survive_closing_and_vacuum(tmp_path):
    """Open nights get later classes, closed ones none unless they open again; a removed column has no statements."""
    store, rows = late_columns(tmp_path, labels_open="1d")
    for name in NIGHTS[1:]:
        store.update(write_lacking(name, tmp_path / "data"))
    closed = {key: one for key, one in contents(store).items() if key[0] == NIGHTS[0]}
    later = [(*row[:1], 2, None, 6, "b") for row in rows]
    done = store.update(labels=write_columns(tmp_path / "later.parquet", later, ("k", "u")))
    assert done.changed == tuple(NIGHTS[1:])
    assert done.labels["new"] == 2 * IDS
    assert closed.items() <= contents(store).items()
    store.remove(NIGHTS[2])
    label = {row[0]: row[2] for row in rows}
    values = {"label": label, "k": dict.fromkeys(range(IDS), 6), "u": dict.fromkeys(range(IDS), "b")}
    for name in NIGHTS[:2]:
        write_lacking(name, tmp_path / "joined", values)
    joined = Store(tmp_path / "other", threads=1)
    what = WHAT | {"classes": "k", "metrics": None, "nulls": "drop"}
    joined.update(tmp_path / "joined", **what, unlabelled="size")
    assert {k: v for k, v in contents(store).items() if k[1] == "classes"} == {
        k: v for k, v in contents(joined).items() if k[1] == "classes"
    }
    assert {k: v for k, v in contents(store).items() if ".blocks" in k[1]} == {
        k: v for k, v in contents(joined).items() if ".blocks" in k[1]
    }
    before = store.info().late.statements
    assert before == 3 * IDS + 2 * IDS
    moved = write_lacking(NIGHTS[2], tmp_path / "data").rename(tmp_path / "data" / "night=2026-01-05")
    store.update(moved)
    store.vacuum(grace="0s")
    assert 0 < store.info().late.statements < before
    assert store.info(verify=True).damaged == ()
    assert store.maturity("roc_auc", ages=[1]).rows
    assert store.check("rand_index[c] >= 0 of labelled proven @95%").judgements
    with pytest.raises(OptionError, match="proves nothing about the others: write 'of labelled'"):
        store.check("rand_index[c] >= 0.01 proven @95%")
    found = store.attribute(cluster="c", classes="k")
    assert (found.basis, 0 < found.labelled_share < 1) == ("labelled rows", True)
    with pytest.raises(OptionError, match="data after the store lack 'k', which arrived late: leave them out"):
        store.attribute(data=tmp_path / "data", cluster="c", classes="k", examples="s")
    store.remove(columns="k")
    assert [*store._context.begun()[1].statements.runs] == ["", "u"]
    store.update(labels=write_columns(tmp_path / "last.parquet", [(1, 5, 1, 5, "a")], FURTHER))


def test_late_columns_that_cannot_be_are_refused(tmp_path):
    """With the remedy; nothing is committed."""
    store, rows = late_columns(tmp_path)
    version, what = store.info().version, WHAT | {"classes": "k", "metrics": None} | LATE
    with pytest.raises(DataError, match=r"no column 'k'.*name a table that has it in the first update \(--labels\)"):
        Store(tmp_path / "none").update(tmp_path / "data", **what)
    labels = write_columns(tmp_path / "labels.parquet", rows, ("label",))
    with pytest.raises(DataError, match=r"no column 'k'.*the data lack it as well"):
        Store(tmp_path / "none").update(tmp_path / "data", **what, labels=labels)
    with pytest.raises(OptionError, match="nulls='singleton' would count rows whose 'k' has not arrived"):
        Store(tmp_path / "none").update(
            tmp_path / "data", **what | {"nulls": "singleton"}, labels=tmp_path / "first.parquet"
        )
    with pytest.raises(OptionError, match="'k' arrives late as well: leave out rejects"):
        store.update(labels=labels, rejects=tmp_path / "rejects.csv")
    with pytest.raises(DataError, match=r"night=2026-01-02: it has a column 'k', which arrives late in this store"):
        store.update(write_night(NIGHTS[1], tmp_path / "more"))
    texts = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"id": [1], "t": pa.array([1], pa.timestamp("us")), "k": ["a"]}), texts)
    with pytest.raises(
        DataError, match=r"texts.parquet: column 'k' has type string, but this store has ids of type int32"
    ):
        store.update(labels=texts)
    numbers = pa.table({"id": [1], "t": pa.array([1], pa.timestamp("us")), "k": [0.5]})
    pq.write_table(numbers, texts)
    with pytest.raises(DataError, match="column 'k' has type double"):
        store.update(labels=texts)
    pq.write_table(numbers.set_column(2, "k", pa.nulls(1)), texts)
    with pytest.raises(DataError, match="column 'k' has no values, whose type the first update fixes: name a table"):
        Store(tmp_path / "none").update(tmp_path / "data", **what | {"unit": None}, labels=texts)
    nothing = tmp_path / "nothing.parquet"
    pq.write_table(pa.table({"id": [1], "t": pa.array([1], pa.timestamp("us"))}), nothing)
    with pytest.raises(DataError, match="no column 'label'"):
        store.update(labels=nothing)
    assert store.info().version == version
    for name in store._context.begun()[1].statements.every_run:
        path = tmp_path / "store" / "states" / name
        sound = path.read_bytes()
        path.write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
        with pytest.raises(FormatError, match="late labels cannot be read"):
            store.update(labels=labels, allow_unmatched=True)
        path.write_bytes(sound)


def create(folder: Path, nights: int = 2, **options: Any) -> Store:
    """A store of some nights, without labels yet."""
    store = Store(folder / "store", threads=1)
    for name in NIGHTS[:nights]:
        write_night(name, folder / "data")
    store.update(folder / "data", **WHAT | LATE | options)
    return store


def test_values_say_that_they_are_of_labelled_rows(tmp_path):
    """In evaluations and history, equal to those of `evaluate` with these labels; rules must admit it."""
    store = create(tmp_path)
    labels = write_labels(
        tmp_path / "labels.parquet", [(i, 1, i % 2) for i in range(0, IDS, 2)] + [(1, 1, 1), (3, 1, 0)]
    )
    done = store.update(labels=labels)
    assert done.changed == tuple(NIGHTS[:2])
    found = store.evaluate()
    expected = evaluate(tmp_path / "data", **WHAT | {"by": None}, **LATE, labels=labels)
    counted = {name: count for name, count in expected.labels.items() if name != "rows_without_id"}
    news = {"new": IDS // 2 + 2, "known": 0, "corrected": 0, "nights": 2}
    assert done.labels == counted | news
    assert [one for one in found.results if one.of == "s"] == [one for one in expected.results if one.of == "s"]
    assert found.results[0].basis == "labelled rows"
    assert (
        store.history("roc_auc").points[0].night.labelled_share == store.evaluate(NIGHTS[0]).results[0].labelled_share
    )
    with pytest.raises(OptionError, match="proves nothing about the others: write 'of labelled'"):
        store.check("roc_auc[s] >= 0.01 proven @95%")
    assert len(store.check(["roc_auc[s] >= 0 of labelled proven @95%", "rows > 0"]).judgements) > 1
    assert store.history("roc_auc", by="g").series[-1].points[0].night.basis == "labelled rows"
    assert store.attribute(score="s", by="g").basis == "labelled rows"
    said = f"Values that use labels are of the {found.results[0].labelled_share:.2%} labelled rows"
    assert f"{found.labels['labelled_rows']} labelled (" in str(found)
    assert said in str(found)
    assert store.check("roc_auc[s] >= 0").notes[0].startswith("Values that use labels are of the ")
    assert store.info().late.open == 2
    assert store.evaluate(as_of=0).positives == 0
    assert str(store.update(labels=labels)) == "labels: none that are new"


@pytest.mark.parametrize("timed", [True, False])
def test_maturity_is_what_labels_up_to_an_age_give_and_survives_closing(tmp_path, timed):
    """As `evaluate` with these labels, with times or by arrival; for all nights, shares of all rows and means."""
    late, ages = {"on": "id", "label_conflicts": "drop"} | ({"label_time": "t"} if timed else {}), (1, 3)
    rng, files = np.random.default_rng(1), list[Path]()
    store, last = Store(tmp_path / "store", threads=1), {"labels_open": "9d"}
    for i, name in enumerate(NIGHTS):
        data = write_night(name, tmp_path / "data")
        ids, times = rng.permutation(IDS)[:20], rng.integers(0, 5, 20)
        rows = [(int(one), 20_454 + int(t), int(one) % 2) for one, t in zip(ids, times, strict=True)]
        files.append(write_labels(tmp_path / f"labels-{i}.parquet", rows))
        store.update(data, **(WHAT | late | last if not i else {}), labels=files[-1], allow_unmatched=True)
    store.update(write_night(NIGHTS[2], tmp_path / "more").rename(tmp_path / "data" / "night=2026-01-06"))
    found = store.maturity("roc_auc", ages=ages).to_arrow().to_pylist()
    assert [(row["night"], row["age"]) for row in found] == [(n, age) for n in [*NIGHTS, "all"] for age in ages]
    for i, row in enumerate(found[:6]):
        arrived = {"labels": files, "labels_as_of": f"2026-01-{2 + i // 2 + row['age']:02}T00:00"}
        arrived = arrived if timed else {"labels": files[: i // 2 + row["age"] + 1]}
        given = WHAT | {"by": None, "cluster": None, "unit": None} | late | arrived
        one = evaluate(tmp_path / "data" / row["night"], **given, unlabelled="drop", allow_unmatched=True)
        assert row["value"] == one.value("roc_auc")
        assert row["labelled"] * 24 == pytest.approx(one.labels["labelled_rows"])
        assert row["positives"] * one.labels["labelled_rows"] == pytest.approx(one.positives)
        assert row["value"] + row["change"] == pytest.approx(store.evaluate(row["night"]).value("roc_auc"))
    assert found[6]["value"] == pytest.approx(np.mean([row["value"] for row in found[:6:2]]))
    before = store.maturity("roc_auc", ages=ages)
    for name in ("night=2026-01-09", "night=2026-01-13"):
        store.update(write_night(NIGHTS[2], tmp_path / "data").rename(tmp_path / "data" / name))
    store.vacuum(grace="0s")
    assert [entry.partition for entry in store.partitions() if not entry.state(OPEN, "")] == NIGHTS
    assert store.maturity("roc_auc", ages=ages).rows[:6] == before.rows[:6]
    found = store.maturity("roc_auc", ages=(2, 3, 11))
    closed = [(row.age, row.labelled) for row in found.rows if row.night == NIGHTS[0]]
    assert [age for age, labelled in closed if labelled == labelled] == [3]  # it was closed later, and keeps no 2
    none = store.maturity("roc_auc", ages=[9000])
    assert none.notes == ("no night has reached an age; name smaller ages (--ages)",)
    with pytest.raises(OptionError, match="maturity: no night has reached an age"):
        none.plot(tmp_path / "none.svg")
    before.plot(tmp_path / "maturity.svg")
    for bad in ("x", [10**6]):
        with pytest.raises(OptionError, match="must be whole numbers of days of at most 99999"):
            store.maturity("roc_auc", ages=bad)
    with pytest.raises(OptionError, match=r"pairwise\.fscore of c does not depend on labels"):
        create(tmp_path / "classes", nights=1, classes="k").maturity("pairwise.fscore")


def test_maturity_of_all_nights_is_of_one_set_of_nights_and_of_the_store_alone(tmp_path):
    """Shares of old nights, null without an age; means over nights with all ages, which a replay does not reach."""
    store = create(tmp_path, nights=1, labels_open="3d", unlabelled="size", metrics=["roc_auc", "aul"])
    names, later = (
        [f"night=2026-01-{day:02}" for day in (3, 5, 7, 9)],
        [(i, 20_457, i // 2 % 2) for i in range(0, IDS, 2)],
    )
    store.update(labels=write_labels(tmp_path / "labels.parquet", later))
    for name in names:
        store.update(write_night(NIGHTS[1], tmp_path / "data").rename(tmp_path / "data" / name))
    found = store.maturity("roc_auc", ages=[1, 3])
    ages = {name: [row.age for row in found.rows if row.night == name] for name in [NIGHTS[0], *names, "all"]}
    assert list(ages.values()) == [[1, 3]] * 3 + [[1], [], [1, 3]]
    rows = [[row for row in found.rows if row.age == age] for age in (1, 3)]
    for some in rows:
        of_old = some[:3]
        assert some[-1].labelled == pytest.approx(np.mean([row.labelled for row in of_old]))
        own = [row.value for i, row in enumerate(of_old) if all(r[i].value == r[i].value for r in rows)]
        assert found.nights == len(own) == 2
        assert some[-1].value == pytest.approx(np.mean(own))
    lacking = store.maturity("roc_auc", ages=[1, 2, 3])
    assert (lacking.nights, "no mean of all nights" in lacking.notes[0]) == (0, True)
    assert [row.labelled for row in lacking.rows[-3:]] == pytest.approx(
        [rows[0][-1].labelled, np.nan, rows[1][-1].labelled], nan_ok=True
    )
    young = store.maturity("roc_auc")
    assert young.notes == ("no night has reached 90 days, so there is no row of all nights",)
    assert (young.to_dict()["basis"], "basis" in store.maturity("aul").to_dict()) == ("labelled rows", False)


def test_contradictions_refuse_the_delivery_or_the_later_file_wins(tmp_path):
    """Within a delivery or against earlier ones; nothing is committed, and no file is left."""
    one, two = (write_labels(tmp_path / f"{i}.parquet", [(i, 1, i), (7, 1, i)]) for i in (0, 1))
    store = create(tmp_path / "error", label_conflicts="error")
    store.update(labels=one)
    before = sorted(path.name for path in (tmp_path / "error" / "store").rglob("*.parquet"))
    with pytest.raises(LabelError, match=r"1.parquet: 1 id with different labels at one time: 7; correct the file"):
        store.update(labels=two)
    assert sorted(path.name for path in (tmp_path / "error" / "store").rglob("*.parquet")) == before
    assert contents(store) == contents_of_column(tmp_path / "truth-a", {0: 0, 7: 0})
    latest = create(tmp_path / "latest", label_conflicts="latest")
    latest.update(labels=[one, two])
    assert contents(latest) == contents_of_column(tmp_path / "truth-b", {0: 0, 1: 1, 7: 1})
    os.utime(one, ns=(0, 1))
    latest.update(labels=one)
    assert contents(latest) == contents_of_column(tmp_path / "truth-c", {0: 0, 1: 1, 7: 0})


@pytest.mark.parametrize(
    "more", [{"score": "k", "sketch": "s"}, {"weight": "k", "by": "hour(h)", "unit": "u", "classes": "k"}], ids=str
)
def test_columns_are_added_to_open_nights(tmp_path, more):
    """With the labels that came before and come after, but not to nights that are closed or have no files."""
    options = dict.fromkeys(("unit", "by")) if "unit" in more else {}
    store = create(tmp_path, nights=1, labels_open="1d", **options)
    rows = [(i, 1, i % 2) for i in range(IDS)]
    store.update(labels=write_labels(tmp_path / "one.parquet", rows[::2]))
    for name in NIGHTS[1:]:
        store.update(write_night(name, tmp_path / "data"))
    (tmp_path / "data" / NIGHTS[1] / "part-0.parquet").unlink()
    done = store.add(**more)
    assert (done.changed, done.gone, done.lacking) == ((NIGHTS[2],), (NIGHTS[1], NIGHTS[0]), (NIGHTS[0],))
    store.update(labels=write_labels(tmp_path / "two.parquet", rows))
    write_night(NIGHTS[2], tmp_path / "joined", {i: label for i, _, label in rows})
    joined = Store(tmp_path / "other", threads=1)
    columns = more | {"score": ["s", *([more["score"]] if "score" in more else [])]}
    joined.update(tmp_path / "joined", **WHAT | options | columns, unlabelled="size")
    assert {key: one for key, one in contents(store).items() if key[0] == NIGHTS[2]} == contents(joined)
    if "score" not in more:
        return
    values = {row.night: row.value for row in store.maturity("roc_auc", of="k", ages=[0]).rows}
    assert values[NIGHTS[1]] != values[NIGHTS[1]]
    assert values[NIGHTS[2]] == joined.evaluate().value("roc_auc", of="k")


def test_rejects_are_listed_and_redundant_files_are_read_once(tmp_path):
    """What labels no row, with the reason; a file without a new statement is known from the next commit on."""
    store, path = create(tmp_path, nights=1), tmp_path / "rejects.csv"
    ids = [i for i in pq.read_table(tmp_path / "data" / NIGHTS[0])["id"].to_pylist() if i is not None]
    rows = [(ids[0], 1, 0), (ids[0], 2, 1), (ids[0], 2, 1), (IDS + 9, 1, 1), (None, 1, 1), (IDS + 9, 0, 0)]
    conflict = [(next(i for i in ids if i != ids[0]), 3, label) for label in (0, 1)]
    labels = write_labels(tmp_path / "labels.parquet", rows + conflict)
    done = store.update(labels=labels, rejects=path).labels
    assert done.pop("labelled_rows") > 0
    some = {"read": 8, "new": 6, "known": 1, "duplicates": 1, "null_ids": 1, "superseded": 2, "conflicts": 1, "used": 1}
    assert done == dict.fromkeys(("corrected", "later", "withdrawn"), 0) | some | {"orphans": 1, "nights": 1}
    reasons = ["superseded", "no row", "null id", "superseded", "conflict", "conflict"]
    assert [line.rpartition(",")[2].strip('"') for line in path.read_text().splitlines()] == ["reason", *reasons]
    version, again = store.info().version, write_labels(tmp_path / "again.parquet", rows)
    assert store.update(labels=[again, labels], rejects=path).labels["new"] == 0
    assert (store.info().version, path.read_text().count("no row")) == (version, 0)
    store.update(write_night(NIGHTS[1], tmp_path / "data"), labels=again)
    changes = [(ids[0], 5, 0), (ids[0], 4, 0), (IDS + 9, 5, None), (IDS + 8, 5, None)]
    done = store.update(labels=write_labels(tmp_path / "changes.parquet", changes)).labels
    assert {name: count for name, count in done.items() if count and name not in ("labelled_rows", "nights")} == {
        "read": 4, "new": 4, "corrected": 1, "superseded": 1, "withdrawn": 2, "conflicts": 1, "used": 1
    }  # fmt: skip
    data, times = again.read_bytes(), again.stat()
    again.write_bytes(data[::-1])
    os.utime(again, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert store.update(labels=again).labels["read"] == 0
    with pytest.raises(DataError, match=r"again\.parquet"):
        store.update(labels=again, verify=True)
    with pytest.raises(OptionError, match="rejects would change nothing without late labels"):
        store.update(tmp_path / "data", rejects=path)


def test_an_open_night_is_judged_once_and_again_when_it_closes(tmp_path):
    """Labels that came later are counted; with `again`, the night is judged anew. Older versions lose their states."""
    store = create(tmp_path, nights=1, labels_open="1d")
    rows = [(i, 1, i % 2) for i in range(IDS)]
    for part, judged in ((rows[::2] + rows[1:4], 1), (rows[5::2], 0)):
        store.update(labels=write_labels(tmp_path / f"{judged}.parquet", part))
        found = store.check("roc_auc[s] >= 0")
        assert (found.judged, len(found.judgements)) == (judged, 1)
    assert f"1 night got labels after being judged ({NIGHTS[0]})" in found.notes[-1]
    found = store.check("roc_auc[s] >= 0", again=True)
    assert (found.judged, len(found.notes)) == (1, 1)
    two = create(tmp_path / "two", nights=2)
    for part in (rows[::2], rows[1::2]):
        two.update(labels=write_labels(tmp_path / "part.parquet", part))
        found = two.check("roc_auc[s] >= 0")
    assert f"1 night got labels after being judged ({NIGHTS[1]})" in found.notes[-1]  # the other was not judged
    assert "got labels" not in str(two.check("roc_auc[s] >= 0", again=True).notes)
    for name in NIGHTS[1:]:
        store.update(write_night(name, tmp_path / "data"))
    assert store.check("roc_auc[s] >= 0").judged == 3
    versions, value = len(store.versions()), store.evaluate().value("roc_auc")
    store.vacuum(forget="0s", grace="0s")
    assert (len(store.versions()), store.evaluate().value("roc_auc")) == (versions + 1, value)
    with pytest.raises(FormatError, match="--forget the states of earlier versions"):
        store.evaluate(as_of=1, metrics="average_precision")


def contents_of_column(folder: Path, label: dict[int, int | None]) -> dict[tuple[str, str, str], str]:
    """The states of two nights with these labels as a column."""
    for name in NIGHTS[:2]:
        write_night(name, folder / "data", label)
    store = Store(folder / "store", threads=1)
    store.update(folder / "data", **WHAT, unlabelled="size")
    return contents(store)


def test_closed_nights_keep_their_labels_and_lose_their_ids(tmp_path):
    """Rows of closed nights go with vacuum, and the statements that no open night can use."""
    store = create(tmp_path, nights=1, labels_open="1d")
    labels = write_labels(tmp_path / "labels.parquet", [(i, 1, i % 2) for i in range(IDS)])
    store.update(labels=labels)
    own = contents(store)
    done = [store.update(write_night(name, tmp_path / "data")) for name in NIGHTS[1:]]
    assert [one.closed for one in done] == [(), (NIGHTS[0],)]
    assert f"1 closed for late labels ({NIGHTS[0]})" in str(done[1])
    assert [entry.partition for entry in store.partitions() if entry.state(OPEN, "")] == NIGHTS[1:]
    assert own.items() <= contents(store).items()
    statements, before = store.info().late.statements, contents(store)
    store.update(labels=write_labels(tmp_path / "later.parquet", [(i, 2, 1) for i in (0, 3)]))
    assert store.remove(NIGHTS[2]).changed == (NIGHTS[0],)
    reopened = {i: 1 if i in (0, 3) else i % 2 for i in range(IDS)}
    assert contents(store) == contents_of_column(tmp_path / "reopened", reopened)
    store.update(
        tmp_path / "data" / NIGHTS[2],
        labels=write_labels(tmp_path / "back.parquet", [(i, 3, i % 2) for i in (0, 3)]),
    )
    assert contents(store) == before
    statements = store.info().late.statements
    store.vacuum(grace="0s")
    assert 0 < store.info().late.statements < statements  # ids of the open nights
    labels = write_labels(tmp_path / "more.parquet", [(IDS + 1, 1, 1)])
    with pytest.raises(LabelError, match="none of the new ids is that of a row of an open night"):
        store.update(labels=labels)
    with pytest.raises(DataError, match=f"{NIGHTS[0]}: is closed for late labels"):
        store.replace(tmp_path / "data" / NIGHTS[0])
    assert store.update(tmp_path / "data", verify=True).unchanged == 3
    os.utime(tmp_path / "data" / NIGHTS[0] / "part-0.parquet", ns=(0, 1))
    store.remove(NIGHTS[1])
    with pytest.raises(DataError, match=r"is closed for late labels.*1 other partition folded"):
        store.update(tmp_path / "data")
    store.remove(NIGHTS[1:])
    assert not store.info().late.open
    assert store.evaluate().value("roc_auc") > 0
    assert store.info(verify=True).damaged == ()


@pytest.mark.parametrize("conflicts", ["drop", "latest"])
def test_statements_that_vacuum_deleted_are_read_again(tmp_path, conflicts):
    """A night that was removed and comes back gets its labels, the later of two files again, and is closed."""
    store = create(tmp_path, nights=2, labels_open="1d", label_conflicts=conflicts)
    rows = [(i, 1, i % 2) for i in range(IDS)]
    later = [(0, 1 + (conflicts == "drop"), 1)]
    files = [write_labels(tmp_path / f"{i}.parquet", some) for i, some in enumerate((rows, later))]
    store.update(labels=files)
    own = contents(store)
    write_night(NIGHTS[2], tmp_path / "data").rename(tmp_path / "data" / "night=2026-01-04")
    store.update(tmp_path / "data")
    for _ in range(2):
        store.remove(NIGHTS[1])
        before = store.info().late.statements
        store.vacuum(grace="0s")
        assert store.info().late.statements < before
        store.update(tmp_path / "data", labels=files[::-1])
        assert own.items() <= contents(store).items()
        assert [entry.partition for entry in store.partitions() if entry.state(OPEN, "")] == ["night=2026-01-04"]


def test_a_store_without_nights_or_clusters_takes_labels(tmp_path):
    """Labels wait for nights; without its only cluster, a store leaves out rows without a label."""
    store = create(tmp_path)
    labels = write_labels(tmp_path / "labels.parquet", [(i, 1, i % 2) for i in range(IDS)])
    store.remove(columns="c")
    store.remove(NIGHTS[:2])
    with pytest.raises(LabelError, match="none of the new ids is that of a row"):
        store.update(labels=labels)
    store.update(labels=labels, allow_unmatched=True)
    assert store.update(tmp_path / "data").new == tuple(NIGHTS[:2])
    assert store.evaluate().positives > 0


def test_damage_and_bad_rows_are_named(tmp_path):
    """A flipped bit in rows or statements; a score that is refused once its row gets a label."""
    store = create(tmp_path)
    store.update(labels=write_labels(tmp_path / "a.parquet", [(1, 1, 1)]), allow_unmatched=True)
    more = write_labels(tmp_path / "b.parquet", [(i, 2, 1) for i in range(IDS)])
    run, words = store._context.begun()[1].statements.every_run[0], "late labels cannot be read"
    files = {
        store.partitions()[0].state(OPEN, of).file: f"{NIGHTS[0]}: .*replace" for of in ("", "ids", "labelled")
    } | {run: words}
    for name, words in files.items():
        path = tmp_path / "store" / "states" / name
        sound = path.read_bytes()
        path.write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
        with pytest.raises(FormatError, match=words):
            store.update(labels=more)
        assert len(store.info(verify=True).damaged) == 1
        path.write_bytes(sound)
    assert store.update(labels=more).labels["new"] == IDS
    strict = Store(tmp_path / "strict")
    with pytest.raises(NullError, match="column 's' has nulls or NaN; choose nan"):
        strict.update(tmp_path / "data", **WHAT | {"nan": "error"}, **LATE)
    plain = Store(tmp_path / "plain")
    with pytest.raises(OptionError, match=r"column of ids; add it to the store \(add --on\)"):
        plain.update(tmp_path / "data", score="s", nan="drop", labels=more)


def test_a_store_opens_later_or_for_longer(tmp_path):
    """`add` names the ids, a longer span and a policy for conflicts; vacuum must not have deleted labels."""
    own, data = {i: i % 2 for i in range(IDS)} | {None: 0}, tmp_path / "data"
    for name in NIGHTS:
        write_night(name, data, own)
    store = Store(tmp_path / "store", threads=1)
    store.update(data, **WHAT)
    assert store.plan("add", on="id", labels_open="1d").nights == 3  # clusters count rows without a label from now on
    assert store.add(on="id", labels_open="1d").changed == tuple(NIGHTS)
    assert (store.info().late.open, store.info().late.closes_after) == (2, "2026-01-03")
    assert store.plan("add", label_time="t").nights == 0  # times may be named until labels without one arrive
    labels = write_labels(tmp_path / "labels.parquet", [(i, 1, i // 2 % 2) for i in range(IDS)])
    store.update(labels=labels)
    assert store.add(labels_open="9d").changed == (NIGHTS[0],)
    for name in NIGHTS:
        write_night(name, tmp_path / "joined", {i: i // 2 % 2 for i in range(IDS)} | {None: 0})
    joined = Store(tmp_path / "other", threads=1)
    joined.update(tmp_path / "joined", **WHAT, unlabelled="size")
    assert contents(store) == contents(joined)
    write_labels(labels, [(i, 1, int(i > 0)) for i in range(IDS)])
    with pytest.raises(LabelError, match=r"labels.parquet: .*add --label-conflicts latest"):
        store.update(labels=labels)
    store.add(label_conflicts="latest")
    assert store.update(labels=labels).changed == tuple(NIGHTS)
    with pytest.raises(OptionError, match="its labels have no times"):
        store.add(label_time="t")
    with pytest.raises(OptionError, match="on='k' contradicts the store's value, 'id'"):
        store.add(on="k")
    store.add(labels_open="1d")
    for name in ("night=2026-01-09", "night=2026-01-13"):
        store.update(write_night(NIGHTS[2], data, own).rename(data / name))
    store.remove(NIGHTS[1])
    store.vacuum(grace="0s")
    with pytest.raises(DataError, match=r"vacuum deleted; deliver .*labels.parquet again"):
        store.add(labels_open="90d")
    store.update(labels=labels, allow_unmatched=True)
    assert NIGHTS[0] in store.add(labels_open="90d").changed


def damage(path: Path, column: str) -> None:
    """Overwrite the header of the first page of a column."""
    group, damaged = pq.ParquetFile(path).metadata.row_group(0), bytearray(path.read_bytes())
    start = next(c.data_page_offset for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    damaged[start : start + 16] = bytes([255]) * 16
    path.write_bytes(damaged)


def test_files_that_are_left_out_and_labels_that_are_refused(tmp_path):
    """Of an incomplete night, the rows that were folded; labels of a third class are named by their file."""
    night = write_night(NIGHTS[0], tmp_path / "data")
    rows = pq.read_table(night / "part-0.parquet")
    pq.write_table(rows, night / "part-1.parquet", compression="none")
    damage(night / "part-1.parquet", "s")
    store = Store(tmp_path / "store", threads=1)
    assert store.update(tmp_path / "data", **WHAT, **LATE, on_error="skip").incomplete == (NIGHTS[0],)
    version, third = store.info().version, [(i, 1, i % 3) for i in range(IDS)]
    bad = write_labels(tmp_path / "bad.parquet", third)
    write_night(NIGHTS[1], tmp_path / "data")
    for data in (None, tmp_path / "data" / NIGHTS[1]):
        with pytest.raises(LabelError, match=r"bad.parquet: .*; correct the labels"):
            store.update(data, labels=bad)
    assert store.info().version == version
    labels = {i: i % 2 for i in range(IDS)}
    good = write_labels(tmp_path / "good.parquet", [(i, 1, label) for i, label in labels.items()])
    damage(good, "label")
    with pytest.raises(DataError, match=r"good.parquet: column 'label' cannot be read: .*; replace or remove it$"):
        store.update(labels=good)
    write_labels(good, [(i, 1, label) for i, label in labels.items()])
    store.update(labels=good)
    write_night(NIGHTS[0], tmp_path / "joined", labels)
    joined = Store(tmp_path / "other", threads=1)
    joined.update(tmp_path / "joined", **WHAT, unlabelled="size")
    assert contents(store) == contents(joined)


def test_the_command_line_takes_labels_without_data(tmp_path, capsys):
    """The first update names the ids, the next one needs labels alone."""
    write_night(NIGHTS[0], tmp_path / "data")
    labels = write_labels(tmp_path / "labels.parquet", [(i, 1, i % 2) for i in range(IDS)])
    store, data = str(tmp_path / "store"), str(tmp_path / "data")
    main(
        ["update", store, data, "--score", "s", "--by", "g", "--nan", "drop", "--on", "id", "--label-time", "t"],
        standalone_mode=False,
    )
    main(["update", store, "--labels", str(labels)], standalone_mode=False)
    assert f"1 changed ({NIGHTS[0]}), labels: {IDS} read, {IDS} new" in capsys.readouterr().err
    main(["info", store], standalone_mode=False)
    assert "1 open night, rows of" in capsys.readouterr().out
    for command in (["history", store, "--metric", "roc_auc"], ["attribute", store, "--score", "s", "--by", "g"]):
        main(command, standalone_mode=False)
        assert "labelled rows, not an estimate for all" in capsys.readouterr().out
    plot = f"{tmp_path}/maturity.png"
    for days, note in (
        ("1", "no night has reached an age"),
        ("0,1", "no night has reached 1 day"),
        ("0", "of 1 night"),
    ):
        main(["maturity", store, "--metric", "roc_auc", "--ages", days], standalone_mode=False)
        shown = capsys.readouterr().out
        assert (note in shown, "night=2026-01-01    0" in shown) == (True, days != "1")
    main(
        ["maturity", store, "--metric", "roc_auc", "--ages", "0", "--json", "-", "--plot", plot], standalone_mode=False
    )
    assert '"age": 0' in capsys.readouterr().out
