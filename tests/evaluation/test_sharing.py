"""Clusters against labels and against classes in one call: the same results, whether or not they share their rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_metric import Positives

from streameval import Evaluation, evaluate
from streameval.errors import StreamevalError
from streameval.states.clusters.counts import ClusterCounts, DerivedClusters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS: dict[str, Any] = {"score": "score", "cluster": ["c", "d"], "classes": "k"}


@contextmanager
def apart() -> Iterator[None]:
    """No states share their rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.evaluation.files.shared", lambda wanted, *_: wanted)
        yield


def table(seed: int = 1, rows: int = 400, holes: float = 0.0, ids: int = 60) -> pa.Table:
    """Scores, two clusterings and classes, with holes in each."""
    rng = np.random.default_rng(seed)
    gone = rng.random((4, rows)) < holes
    first, second, classes = rng.integers(0, ids, (3, rows))
    return pa.table(
        {
            "label": pa.array(rng.integers(0, 2, rows), mask=gone[0]),
            "score": rng.random(rows),
            "c": pa.array(np.where(rng.random(rows) < 0.7, classes, first), mask=gone[1]),
            "d": pa.array(np.char.add("id ", second.astype(str)), mask=gone[2]),
            "k": pa.array(classes, mask=gone[3]),
            "weight": rng.random(rows),
            "country": rng.choice(["DE", "FR"], rows),
        }
    )


def text(data: Any, **options: Any) -> str:
    """The result as JSON, or what was refused."""
    try:
        return evaluate(data, **(COLUMNS | options)).to_json()
    except StreamevalError as error:
        return str(error)


def shares(found: Evaluation, column: str = "c") -> bool:
    """Whether both states of a column share rows."""
    clusters, cells = found._states["cluster", column], found._states["classes", column]
    assert isinstance(clusters, DerivedClusters) == cells.spec.labelled
    return isinstance(clusters, DerivedClusters)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_tell_whether_rows_are_shared(threads: int) -> None:
    """For any policies and options, rows with holes among them, and any budget."""

    @settings(max_examples=60, deadline=None)
    @given(
        holes=st.sampled_from([0.0, 0.0, 0.1]),
        nulls=st.sampled_from(["error", "error", "drop", "singleton", {"c": "error", "d": "drop"}]),
        unlabelled=st.sampled_from(["error", "error", "drop", "size"]),
        rows=st.sampled_from([0, 1, 400, 5000]),
        ids=st.sampled_from([1, 60, 100_000]),
        more=st.sampled_from(
            [{}, {}, {"weight": "weight"}, {"common_rows": True}, {"ci": 0.9}, {"by": "country"}, {"memory": "16MiB"},
             {"metrics": ["aul", "assignment_score"]}, {"metrics": ["aul", "bcubed_*"]}, {"where": "score < 0.5"},
             {"aul_threshold": 3, "metrics": ["lift", "v_measure"]}, {"approx_agc": True}, {"metrics": "clustering"}]
        ),
    )  # fmt: skip
    def check(holes: float, nulls: Any, unlabelled: str, rows: int, ids: int, more: dict[str, Any]) -> None:
        data, options = table(rows, rows, holes, ids), {"nulls": nulls, "unlabelled": unlabelled, "threads": threads}
        if "common_rows" in more and "singleton" in (nulls if isinstance(nulls, str) else ()):
            return
        found = text(data, **options, **more)
        with apart():
            assert text(data, **options, **more) == found

    check()


def test_states_of_many_rows_that_are_spilled(tmp_path: Path) -> None:
    """A budget below the size of the states, with files, hot keys and giant clusters."""
    rng = np.random.default_rng(3)
    for i in range(4):
        ids = rng.zipf(1.3, (2, 300_000))
        columns = {"label": rng.integers(0, 2, ids.shape[1]), "c": ids[0], "k": np.where(ids[1] < 9, ids[0], ids[1])}
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    given = {"cluster": "c", "classes": "k", "metrics": ["lift", "v_measure", "bcubed_*"]}
    found = [evaluate(str(tmp_path), memory=memory, threads=2, **given) for memory in ("24MiB", "1GiB")]
    with apart():
        want = evaluate(str(tmp_path), **given)
    assert [shares(one) for one in found] == [True, True]
    assert not shares(want)
    assert {one.to_json() for one in found} == {want.to_json()}


def test_rows_are_shared_where_all_count_in_both() -> None:
    """By default; not where rows may count in one of the states only, or the states are read in other ways."""
    data = table()
    found = evaluate(data, **COLUMNS)
    assert shares(found, "c")
    assert shares(found, "d")
    others: list[dict[str, Any]] = [
        *({"nulls": policy} for policy in ("drop", "singleton")),
        *({"unlabelled": policy} for policy in ("drop", "size")),
        {"ci": 0.95},
        {"by": "country"},
        {"metrics": ["aul", "assignment_score"]},
        {"metrics": [Positives("cluster"), "v_measure"]},
    ]
    for options in others:
        assert not shares(evaluate(data, **COLUMNS, **options)), options
    coded = data.set_column(data.schema.get_field_index("d"), "d", data["d"].dictionary_encode())
    assert not shares(evaluate(coded, **COLUMNS), "d")
    mixed = evaluate(data, **COLUMNS, nulls={"c": "drop", "d": "error"})
    assert not shares(mixed, "c")
    assert shares(mixed, "d")
    assert isinstance(evaluate(data, cluster="c")._states["cluster", "c"], ClusterCounts)


@pytest.mark.parametrize("encoded", [0, 1, 2])
def test_texts_that_are_codes_in_some_files(encoded: int, tmp_path: Path) -> None:
    """They are decoded, and their rows shared, unless every file has codes, which are counted by entry."""
    data = table(rows=3000)
    data = data.set_column(data.schema.get_field_index("k"), "k", data["k"].cast(pa.string()))
    for i in range(2):
        names = [*(["d"] if i < encoded else []), "k"]
        pq.write_table(data.slice(1500 * i, 1500), tmp_path / f"{i}.parquet", use_dictionary=names)
    given: dict[str, Any] = {"cluster": "d", "classes": "k", "metrics": ["lift", "v_measure"]}
    found = evaluate(tmp_path, **given)
    assert shares(found, "d") == (encoded < 2)
    with apart():
        assert found.to_json() == evaluate(tmp_path, **given).to_json()


def test_curves_and_attributions_are_those_of_two_states() -> None:
    """What an evaluation computes from its states later, from rows that are shared."""
    data = table(rows=3000)
    one = evaluate(data, **COLUMNS)
    with apart():
        other = evaluate(data, **COLUMNS)
    assert shares(one)
    assert not shares(other)
    for name in ("lift", "purity"):
        mine, theirs = (each.curve(name, of="c") for each in (one, other))
        np.testing.assert_equal(vars(mine), vars(theirs))
    for cluster in ("c", "d"):
        assert one.attribution(cluster).to_dict() == other.attribution(cluster).to_dict()
