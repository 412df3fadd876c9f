"""Which rows count: policies by column, rows that all columns have, and weights of any size."""

import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run
from refusals import refuses
from truth import agrees, curve_truth, gain_truth, groups_auc, groups_of, point_truth

from streameval import Accumulator, Evaluation, Store, average_precision_score, evaluate, roc_auc_score
from streameval.errors import NullError, OptionError, WeightError
from streameval.options import command, complete_options, record_options

COLUMNS: dict[str, Any] = {"score": ["a", "b"], "cluster": ["c", "d"]}
DROPPED = "NaN or null in one of a, b, c, d"
PRESENT = st.lists(st.tuples(*(st.integers(0, 3),) * 4), min_size=1, max_size=40)


def table(holes: list[tuple[int, ...]]) -> pa.Table:
    """Rows with a null where a hole is 0; the first score also has NaN, where it is 1."""
    rng = np.random.default_rng(len(holes))
    a = [None if h[0] == 0 else math.nan if h[0] == 1 else float(rng.integers(0, 9)) / 8 for h in holes]
    b = [None if h[1] == 0 else float(rng.integers(0, 5)) / 4 for h in holes]
    c = [None if h[2] == 0 else int(rng.integers(0, 4)) for h in holes]
    d = [None if h[3] == 0 else str(rng.integers(0, 4)) for h in holes]
    label = rng.integers(0, 2, len(holes))
    half = pa.array([None if x is None else np.float16(x) for x in b], pa.float16())
    return pa.table({"label": label, "a": a, "b": half, "c": c, "d": pa.array(d, pa.string()).dictionary_encode()})


def whole(data: pa.Table) -> pa.Table:
    """The rows without a hole, found one by one."""
    rows = data.to_pylist()
    kept = [i for i, row in enumerate(rows) if not any(v is None or v != v for v in row.values())]
    return data.take(pa.array(kept, pa.int64()))


@given(PRESENT)
def test_results_are_those_of_the_complete_rows(holes: list[tuple[int, ...]]) -> None:
    """Values, rows and positives of every metric; what was left out is counted."""
    data = table(holes)
    kept = whole(data)
    found = evaluate(data, **COLUMNS, common_rows=True)
    left_out = data.num_rows - kept.num_rows
    assert dict(found.dropped) == ({DROPPED: left_out} if left_out else {})
    assert found.rows == kept.num_rows
    if kept.num_rows:
        expected = evaluate(kept, **COLUMNS)
        assert (found.rows, found.positives) == (expected.rows, expected.positives)
        assert [r.to_dict() for r in found.results] == [r.to_dict() for r in expected.results]


def test_slices_filters_and_accumulators_follow() -> None:
    """A slice is that of the complete rows; the filter comes first."""
    data = table([tuple(h) for h in np.random.default_rng(3).integers(0, 9, (300, 4))])
    kept = whole(data)
    found, expected = (evaluate(t, **COLUMNS, by="c", common_rows=t is data) for t in (data, kept))
    assert found.to_dict()["results"] == expected.to_dict()["results"]
    where = {"where": "c > 1"}
    found, expected = (evaluate(t, **COLUMNS, **where, common_rows=t is data) for t in (data, kept))
    assert found.to_dict()["results"] == expected.to_dict()["results"]
    assert found.dropped[0][1] == sum(c is not None and c > 1 for c in data["c"].to_pylist()) - found.rows
    stream = Accumulator(**COLUMNS, common_rows=True)
    for start in range(0, 300, 70):
        stream.update(data.slice(start, 70))
    assert stream.result().to_dict() == evaluate(data, **COLUMNS, common_rows=True).to_dict()


def test_without_it_a_hole_is_refused_and_policies_that_count_it_are_refused_with_it() -> None:
    """By name."""
    data = table([(0, 2, 2, 2), (2, 2, 2, 0), (2, 2, 2, 2)])
    refuses(NullError, "'a' has NaN or null scores", evaluate, data, **COLUMNS)
    for name, value in (("nan", "half"), ("nulls", "singleton")):
        with pytest.raises(OptionError, match=f"{name}='{value}' counts rows that common_rows"):
            evaluate(data, **COLUMNS, common_rows=True, **{name: value})


def test_a_store_keeps_the_common_rows_of_its_columns(tmp_path: Path) -> None:
    """The numbers of the files, whichever columns are looked at; another column is refused."""
    rng = np.random.default_rng(8)
    for night in ("night=2026-01-01", "night=2026-01-02"):
        part = table([tuple(h) for h in rng.integers(0, 9, (200, 4))])
        put(tmp_path / "data" / night / "0.parquet", part.cast(part.schema.set(2, pa.field("b", pa.float32()))))
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", **COLUMNS, common_rows=True)
    expected = evaluate(tmp_path / "data", **COLUMNS, common_rows=True)
    assert store.evaluate().to_json() == expected.to_json()
    alone = store.evaluate(score="a", cluster="c")
    assert (alone.rows, alone.dropped, alone.value("aul")) == (
        expected.rows,
        expected.dropped,
        expected.value("aul", "c"),
    )
    assert sum(entry.rows for entry in store.partitions()) == 400
    refuses(OptionError, "create another store", store.add, score="label")


OWN_POLICIES: dict[str, Any] = {"score": ["a", "b"], "cluster": ["c", "d"], "classes": "k"}
OWN: dict[str, dict[str, Any]] = {
    "nan": {"a": "drop", "b": "half"},
    "nulls": {"c": "singleton", "d": "drop"},
    "aul_threshold": {"c": 1, "d": 3},
    "truncate": {"a": (0.1,), "b": (20.0, 0.5)},
}
WORDS = [
    *("--nan", "a=drop", "--nan", "b=half", "--nulls", "c=singleton", "--nulls", "d=drop"),
    *("--aul-threshold", "d=3", "--truncate", "a=0.1", "--truncate", "b=20", "--truncate", "b=0.5"),
]


def table_with_holes(seed: int = 1, rows: int = 300) -> pa.Table:
    """Scores and ids with holes, each in other rows."""
    rng = np.random.default_rng(seed)
    holes = rng.random((4, rows)) < 0.1
    columns = {
        name: pa.array(rng.integers(0, 30, rows) / (8 if name in "ab" else 1), mask=holes[i])
        for i, name in enumerate("abcd")
    }
    columns |= {name: columns[name].cast(pa.int64()) for name in "cd"}
    return pa.table({**columns, "k": rng.integers(0, 9, rows), "label": rng.integers(0, 2, rows)})


def results(found: Evaluation, of: str) -> list[dict[str, Any]]:
    """The results of a column."""
    return [r.to_dict() for r in found.results if r.of == of]


def alone(data: Any, of: str) -> Evaluation:
    """One column evaluated by itself, with its own policies for all columns."""
    kind = "score" if of in "ab" else "cluster"
    policies = {name: own[of] for name, own in OWN.items() if of in own}
    return evaluate(data, **{kind: of}, **policies, **({"classes": "k"} if kind == "cluster" else {}))


def test_each_column_is_as_if_it_were_alone() -> None:
    """Values, rows and names of truncations; the rows left out are those of each column."""
    data = table_with_holes()
    found = evaluate(data, **OWN_POLICIES, **OWN)
    for of in "abcd":
        assert results(found, of) == results(alone(data, of), of), of
    assert found.rows == 300
    assert {reason for reason, _ in found.dropped} == {"NaN or null score a", "null cluster d"}
    for of in "cd":
        mine, theirs = found.curve("lift", of), alone(data, of).curve("lift", of)
        assert (mine.y.tolist(), mine.area) == (theirs.y.tolist(), theirs.area)
    stream = Accumulator(**OWN_POLICIES, **OWN)
    stream.update(data)
    assert stream.result().to_dict() == found.to_dict()


def test_columns_that_are_not_named_have_the_default_or_the_others_value() -> None:
    """Under an asterisk."""
    data = table_with_holes()
    refuses(NullError, "'b' has NaN or null scores", evaluate, data, score=["a", "b"], nan={"a": "drop"})
    found = evaluate(data, score=["a", "b"], nan={"a": "drop", "*": "half"}, truncate={"b": 0.5})
    assert {r.metric for r in found.results if "@" in r.metric and r.of == "a"} == set()
    assert {r.metric for r in found.results if "@" in r.metric and r.of == "b"} == {"agc@0.5", "agc_ratio@0.5"}
    assert evaluate(data, score="a", nan={"a": "drop"}).to_json() == evaluate(
        data, score="a", nan={"*": "drop"}
    ).to_json().replace('{"score": ["a"], "nan": "drop"}', '{"score": ["a"], "nan": {"a": "drop", "*": "error"}}')
    assert math.isnan(found.value("average_precision", "b"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nan": {"scor": "drop"}}, "no column 'scor'; did you mean 'score'"),
        ({"nan": {"score": "keep"}}, "nan='keep' must be one of error, drop, half"),
        ({"aul_threshold": {"id": -1}}, "aul_threshold=-1 is not a cluster size"),
        ({"nulls": {"score": "drop"}}, "no column 'score'; the columns of cluster are id"),
        ({"nan": {"score": "half"}, "common_rows": True}, "nan='half' counts rows that common_rows"),
        ({"where": {"score": "x"}}, "is not a filter"),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    """An unknown column, another value, an option without columns."""
    with pytest.raises(OptionError, match=message):
        evaluate(pa.table({"label": [0], "score": [0.5], "id": [1]}), score="score", cluster="id", **options)


def test_the_command_line_names_columns(tmp_path: Path) -> None:
    """As does a file of options; what is recorded can be given again, and be spelled."""
    data = table_with_holes()
    pq.write_table(data, tmp_path / "t.parquet")
    names = ["--score", "a", "--score", "b", "--cluster", "c", "--cluster", "d", "--classes", "k"]
    call = ["evaluate", str(tmp_path / "t.parquet"), *names, "--json", "-"]
    expected = evaluate(tmp_path / "t.parquet", **OWN_POLICIES, **OWN).to_dict()
    assert json.loads(run(*call, *WORDS).output) == json.loads(json.dumps(expected))
    (tmp_path / "options.toml").write_text(
        "nan = {a = 'drop', b = 'half'}\nnulls = {c = 'singleton', d = 'drop'}\n"
        "aul_threshold = {d = 3}\ntruncate = {a = 0.1, b = [20, 0.5]}\n"
    )
    done = run(*call, "--config", str(tmp_path / "options.toml"))
    assert json.loads(done.output) == json.loads(json.dumps(expected)), done.stderr
    plain = complete_options({**OWN_POLICIES, **OWN})
    assert complete_options(record_options(plain)) == plain
    assert command("evaluate", ["DATA"], plain) == " ".join(
        [
            "streameval evaluate DATA",
            *names,
            "--truncate a=0.1 --truncate b=20 --truncate b=0.5 --aul-threshold d=3",
            "--nan a=drop --nan b=half --nulls c=singleton --nulls d=drop",
        ]
    )
    for words, message in ((["--nan", "a=keep"], "'keep' is not one of"), (["--nan", "x=drop"], "no column 'x'")):
        done = run(*call, *words)
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_a_store_keeps_policies_by_column(tmp_path: Path) -> None:
    """A column may join with its own, and leaves with it; those of states cannot change, others are defaults."""
    data = tmp_path / "data"
    for night in (1, 2):
        put(data / f"night=2026-01-0{night}" / "part-0.parquet", table_with_holes(night))
    store = Store(tmp_path / "store")
    store.update(data, **OWN_POLICIES, **OWN)
    assert store.evaluate().to_json() == evaluate(data, **OWN_POLICIES, **OWN).to_json()
    for of in "abcd":
        kind = "score" if of in "ab" else "cluster"
        assert results(store.evaluate(**{kind: of}), of) == results(alone(data, of), of)
    look = store.evaluate(aul_threshold={"c": 5})
    assert look.value("aul", "c") == evaluate(data, cluster="c", aul_threshold=5, nulls="singleton").value("aul")
    refuses(OptionError, "contradicts the store", store.evaluate, nan={"a": "half", "b": "half"})
    store.remove(columns=["b", "d"])
    assert store.info().policies["nan"] == {"a": "drop", "*": "error"}
    store.add(score="b", nan="half", truncate={"b": (20, 0.5)})
    store.add(cluster="d", nulls={"d": "drop"}, aul_threshold=3)
    assert store.evaluate().to_json() == evaluate(data, **OWN_POLICIES, **OWN).to_json()
    refuses(OptionError, "a keeps its policy: create another store", store.add, sketch="a", nan={"a": "half"})


Point = tuple[int, float, float]  # label, score, weight

POINTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.integers(-450, 450), st.integers(1, 9)),
    min_size=2,
    max_size=8,
).filter(lambda points: {label for label, *_ in points} == {0, 1})


def weighted_table(points: list[Point]) -> pa.Table:
    """The points as columns."""
    labels, scores, weights = zip(*points, strict=True)
    return pa.table({"label": labels, "score": scores, "weight": pa.array(weights, pa.float64())})


def truths(points: list[Point]) -> dict[str, Fraction | None]:
    """Metrics of scores by their definitions."""
    groups = groups_of([(score, label, Fraction(weight)) for label, score, weight in points])
    counts = Counter(score for _, score, _ in points)
    rows = [counts[score] for score in sorted(counts, reverse=True)]
    found = curve_truth(groups) | {"roc_auc": groups_auc(groups)}
    for cut in (1, 0.5, 2):
        name = "" if cut == 1 else f"@{cut:g}"
        found[f"agc{name}"] = gain_truth(groups, rows, cut, ratio=False)
        found[f"agc_ratio{name}"] = gain_truth(groups, rows, cut, ratio=True)
    return found | {"tpr@fpr=0.3": point_truth(groups, rows, "fpr", 0.3)}


@settings(max_examples=25)
@given(POINTS, st.integers(-120, 40), st.booleans())
def test_weights_of_all_sizes_are_right(points: list[tuple[int, float, int, int]], shift: int, approx: bool) -> None:
    """Weights up to 2^900 apart, of any common scale, give the exact values."""
    weighed = [(label, score, math.ldexp(digits, power + shift)) for label, score, power, digits in points]
    found = evaluate(
        weighted_table(weighed), score="score", weight="weight", truncate=[0.5, 2], at="fpr=0.3", approx=approx
    )
    expected = truths(weighed)
    for result in found.results:
        truth = expected[result.metric]
        if approx and result.reason:
            continue  # a histogram may not know where a truncation cuts its weights
        if result.metric.startswith("agc") and "ratio" not in result.metric and truth is not None:
            assert result.value == pytest.approx(float(truth), rel=1e-12, abs=1e-12), result.metric
        else:
            assert agrees(result.value, truth), (result.metric, result.value, truth and float(truth))


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 1e-150, 1.0, 1e150, 1e160, 1e279])
@pytest.mark.parametrize("label", [[0, 1, 0, 1], [1, 1, 1, 1]])
@pytest.mark.parametrize("nan", ["error", "half"])
def test_a_common_size_changes_nothing(tmp_path: Path, size: float, label: list[int], nan: str) -> None:
    """Files, histograms and arrays agree, from the smallest float to the largest weight; one class or two."""
    scores = [0.1, 0.2, 0.3, 0.4 if nan == "error" else math.nan]
    columns = {"label": label, "score": scores, "one": [1.0] * 4, "weight": [size] * 4}
    pq.write_table(pa.table(columns), tmp_path / "part.parquet", row_group_size=2)
    for approx in (False, True):
        options: dict[str, Any] = {"score": "score", "nan": nan, "approx": approx, "truncate": 0.5}
        plain = evaluate(tmp_path, weight="one", **options)
        found = evaluate(tmp_path, weight="weight", **options)
        values = [[r.value for r in run.results] for run in (found, plain)]
        assert values[0] == pytest.approx(values[1], rel=1e-14, nan_ok=True)
    if len(set(label)) == 2 and nan == "error":
        auc, precision = (f(label, scores, sample_weight=[size] * 4) for f in (roc_auc_score, average_precision_score))
        assert found.value("roc_auc") == pytest.approx(auc, rel=1e-14)
        assert found.value("average_precision") == pytest.approx(precision, rel=1e-14)
        curve = found.curve("roc")
        assert (curve.rows, curve.positives) == pytest.approx((4 * size, 2 * size), rel=1e-14)
        assert np.allclose(curve.y, plain.curve("roc").y, rtol=1e-14)


@pytest.mark.parametrize("weights", [[1e-300, 1e-300, 1e279], [1e-200, 1e200, 1e-200], [1.0, 1e-305, 1e-305]])
def test_what_leaves_float64_is_refused(weights: list[float]) -> None:
    """A ratio outside float64 is named with both ends, in arrays where float64 cannot hold it either."""
    with pytest.raises(WeightError, match=r"leaves float64: scale the weights"):
        evaluate(
            weighted_table(
                [(label, score, w) for label, score, w in zip([1, 0, 0], [0.4, 0.6, 0.1], weights, strict=True)]
            ),
            score="score",
            weight="weight",
        )
