"""Classes, units and probabilities from another table: equal to columns, each with statements of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import Store, attribute, evaluate
from streameval.errors import DataError, LabelError, NullError, OptionError, SchemaError, WeightError

ROWS = 60
RNG = np.random.default_rng(7)
DATA = pa.table(
    {"id": np.arange(ROWS), "s": RNG.normal(size=ROWS), "c": RNG.integers(0, 9, ROWS), "g": RNG.integers(0, 2, ROWS)}
)
WHAT: dict[str, Any] = {"score": "s", "cluster": "c", "classes": "k"}

values_of = {"label": st.integers(0, 1), "k": st.integers(0, 400), "u": st.sampled_from(["a", "b", "c"])}
statements = {
    name: st.lists(st.tuples(st.integers(0, ROWS + 5), st.integers(0, 2), st.none() | values), max_size=80)
    for name, values in values_of.items()
}


def late_table(column: str, rows: list[tuple[int, int, Any]]) -> pa.Table:
    """A table of statements about a column."""
    ids, times, values = (list(one) for one in zip(*rows, strict=True)) if rows else ([], [], [])
    kind = pa.string() if column == "u" else pa.int64()
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "t": pa.array(times, pa.date32()), column: pa.array(values, kind)}
    )


def joined(column: str, rows: list[tuple[int, int, Any]], at_start: dict[int, Any]) -> pa.Array:
    """The column of the data that follows from statements; null for contradictions."""
    found: dict[int, Any] = dict(at_start)
    for name in {one for one, _, _ in rows}:
        latest = max(time for one, time, _ in rows if one == name)
        last = {value for one, time, value in rows if (one, time) == (name, latest)}
        found[name] = next(iter(last)) if len(last) == 1 else None
    return pa.array([found.get(i) for i in range(ROWS)], pa.string() if column == "u" else pa.int64())


def values(evaluation: Any) -> list[tuple[Any, ...]]:
    """The values as texts, so that NaN equals itself, with their rows."""
    return [(r.metric, r.of, r.slice, repr(r.value), repr(r.ci_lower), r.rows, r.positives) for r in evaluation.results]


@settings(max_examples=15)
@given(st.fixed_dictionaries(statements), st.booleans(), st.booleans())
def test_late_columns_equal_columns_of_the_data(rows: dict[str, list[Any]], own: bool, sliced: bool) -> None:
    """In tables of their own or several in one; rows without a class are in no table, without a unit each a unit."""
    rows["k"] += [(0, 0, 1), (1, 0, 1)]
    start = {i: i % 2 for i in range(0, ROWS, 2)} if own else {}
    data = DATA.append_column("label", joined("label", [], start)) if own else DATA
    what = WHAT | ({"by": "g"} if sliced else {"unit": "u", "metrics": ["score", "classes"]})
    tables = [late_table(name, some) for name, some in rows.items() if name != "u" or not sliced]
    tables[1] = tables[1].set_column(0, "id", tables[1]["id"].cast(pa.string()))  # ids are compared column by column
    found = evaluate(data, **what, labels=tables, on="id", label_time="t", label_conflicts="drop", threads=2)
    whole = DATA
    for name, some in rows.items():
        whole = whole.append_column(name, joined(name, some, start if name == "label" else {}))
    expected = evaluate(whole, **what, unlabelled="size", nulls="drop")
    assert values(found) == values(expected)
    with_class = ROWS - whole["k"].null_count
    tables_of = [one for one in found.results if one.positives is None and one.slice is None]
    assert {one.labelled_share for one in tables_of} == {with_class / ROWS if with_class < ROWS else None}
    assert dict(found.dropped).get("null class k (with c)", 0) == whole["k"].null_count


def test_classes_alone_need_no_labels(tmp_path: Path) -> None:
    """Texts as classes, in files, by the ids of decimals; attribution too, and what became of the statements."""
    kinds = pa.array([f"campaign {i % 7}" if i % 3 else None for i in range(ROWS)])
    late = pa.table({"message": pa.array(range(ROWS), pa.decimal128(9, 0)), "k": kinds.dictionary_encode()})
    pq.write_table(DATA, tmp_path / "data.parquet")
    pq.write_table(late, tmp_path / "classes.parquet")
    given: dict[str, Any] = {"labels": tmp_path / "classes.parquet", "on": "id=message"}
    what: dict[str, Any] = {"cluster": "c", "classes": "k"}
    found = evaluate(tmp_path / "data.parquet", **what, metrics="classes", **given)
    expected = evaluate(DATA.append_column("k", kinds), **what, metrics="classes", nulls="drop")
    assert values(found) == values(expected)
    assert [found.labels[name] for name in ("read", "withdrawn", "used", "labelled_rows")] == [60, 20, 40, 40]
    assert {one.labelled_share for one in found.results} == {2 / 3}
    assert "of the 66.67% labelled rows" in str(found)
    labels = pa.table({"message": np.arange(ROWS), "label": np.arange(ROWS) % 2})
    given["labels"] = [tmp_path / "classes.parquet", labels]
    merges = attribute(tmp_path / "data.parquet", **what, examples="s", **given)
    column = DATA.append_column("k", kinds).append_column("label", labels["label"])
    truth = attribute(column, **what, label="label", examples="s", nulls="drop")
    assert (merges.merges, merges.splits, merges.impure) == (truth.merges, truth.splits, truth.impure)
    assert merges.labelled_share == 2 / 3


def test_late_columns_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """One line each, with the column and the remedy."""
    late = pa.table({"id": [1, 2], "k": [5, 6], "label": [0, 1]})
    given: dict[str, Any] = {**WHAT, "labels": late, "on": "id"}
    none = DATA.set_column(2, "c", pa.array([None, *range(1, ROWS)]))
    with pytest.raises(NullError, match="cluster column 'c' has nulls; choose --nulls drop"):
        evaluate(none, **given)
    with pytest.raises(OptionError, match="rows whose 'k' has not arrived; choose nulls='drop'"):
        evaluate(DATA, **given, nulls="singleton")
    with pytest.raises(OptionError, match="'k' arrives late as well: leave out rejects"):
        evaluate(DATA, **given, rejects=str(tmp_path / "rejects.csv"))
    with pytest.raises(OptionError, match="a reader can be read only once: name files or a table"):
        evaluate(DATA, **given | {"labels": late.to_reader()})
    with pytest.raises(DataError, match=r"no column 'k'.*the data lack it as well"):
        evaluate(DATA, **given | {"labels": late.drop_columns("k")})
    with pytest.raises(DataError, match=r"no column 'label'.*name it with label"):
        evaluate(DATA, **given | {"labels": late.drop_columns("label")})
    with pytest.raises(SchemaError, match="column 'k' has type double; ids are integers"):
        evaluate(DATA, **given | {"labels": late.set_column(1, "k", pa.array([0.5, 1.5]))})
    with pytest.raises(LabelError, match="1 id with different values of column 'k' and no times: 1"):
        evaluate(DATA, **given | {"labels": [late, pa.table({"id": [1], "k": [7]})]})
    folder = tmp_path / "night=2026-01-01"
    folder.mkdir()
    pq.write_table(DATA, folder / "part-0.parquet")
    with pytest.raises(DataError, match="name a table that has it in the first update"):
        Store(tmp_path / "store").update(folder, **WHAT, on="id")


def test_the_probabilities_of_a_plan_arrive_with_its_labels() -> None:
    """As a column of the data; a label without a probability is refused, and so is a column in neither place."""
    rng = np.random.default_rng(3)
    rows, chance = 4000, rng.choice([0.05, 0.2, 0.5], 4000)
    label, drawn = (rng.random(rows) < 0.3).astype(int), rng.random(rows) < chance
    data = pa.table({"id": np.arange(rows), "s": rng.normal(label)})
    given: dict[str, Any] = {"score": "s", "metrics": ["roc_auc", "precision@threshold=1"]}
    labels = pa.table({"id": np.arange(rows), "label": label, "probability": chance}).filter(pa.array(drawn))
    found = evaluate(data, **given, labels=labels, on="id", label_probability="probability")
    columns = {"label": label, "probability": chance}
    for name, values in columns.items():
        data = data.append_column(name, pa.array(values, mask=~drawn))
    whole = evaluate(data, **given, label_probability="probability")
    assert [(one.value, one.stderr) for one in found.results] == [(one.value, one.stderr) for one in whole.results]
    assert found.label_strata == whole.label_strata
    data = data.drop_columns(["label", "probability"])
    less = labels.set_column(2, "probability", pa.array(chance[drawn], mask=np.arange(drawn.sum()) == 0))
    with pytest.raises(WeightError, match="column 'probability' has None for a labelled row"):
        evaluate(data, **given, labels=less, on="id", label_probability="probability")
    with pytest.raises(DataError, match=r"no column 'other'.*the data lack it as well"):
        evaluate(data, **given, labels=labels, on="id", label_probability="other")
