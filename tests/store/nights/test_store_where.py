"""A store that is begun with a filter remembers it: every night has only rows that meet it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streameval import Store, attribute, evaluate
from streameval.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

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
        (folder / f"night=2026-01-0{night}").mkdir()
        pq.write_table(pa.table(table), folder / f"night=2026-01-0{night}" / "part.parquet", row_group_size=40)
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
    with pytest.raises(OptionError, match="contradicts the store's value"):
        store.update(data, where="length > 2")


def test_a_store_begun_without_a_filter_takes_none(data: Path, tmp_path: Path) -> None:
    """Neither in a later update nor with added columns: its nights have all rows."""
    store = Store(tmp_path / "store")
    store.update(data, score="score")
    with pytest.raises(OptionError, match="create another store"):
        store.update(data, where=WHERE)
    with pytest.raises(OptionError, match="add takes no option 'where'"):
        store.add(where=WHERE)


def test_a_filter_that_cannot_be_kept_is_refused(data: Path, tmp_path: Path) -> None:
    """An expression has no text that reads back; a syntax error is told before anything is folded."""
    store = Store(tmp_path / "store")
    with pytest.raises(OptionError, match="give SQL such as"):
        store.update(data, score="score", where=pc.field("length") > 1)
    with pytest.raises(OptionError, match="syntax error at character 8"):
        store.update(data, score="score", where="length > ")
    assert not (tmp_path / "store").exists()


def test_attribution_reads_the_rows_of_the_store(store: Store, data: Path) -> None:
    """Examples of the data are of rows that meet the filter, as the states are."""
    asked = {"cluster": "cluster", "classes": "classes", "examples": "country", "top": 5}
    found, alone = store.attribute(data=data, **asked), attribute(data, where=WHERE, **asked)
    assert {name: rows.to_pylist() for name, rows in found.tables().items()} == {
        name: rows.to_pylist() for name, rows in alone.tables().items()
    }


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


def test_positives_of_a_filter_are_those_of_bounded_scores(tmp_path: Path) -> None:
    """The store said that there were none."""
    (tmp_path / "data" / "night=2026-01-01").mkdir(parents=True)
    data = {"label": [0, 1, 1, 0], "score": [0.1, 0.9, float("nan"), 0.4], "n": [1, 9, 9, 9]}
    pq.write_table(pa.table(data), tmp_path / "data" / "night=2026-01-01" / "a.parquet")
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", score="score", nan="drop", approx=True, by="n")
    found = store.evaluate(where="n > 5")
    assert (found.rows, found.positives) == (3, 2)
