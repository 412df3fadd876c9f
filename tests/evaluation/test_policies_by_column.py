"""Policies for each column: one column's policy neither drops another's rows nor changes its values."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streameval import Accumulator, Evaluation, Store, evaluate
from streameval.cli import main
from streameval.errors import NullError, OptionError
from streameval.options import checked, command, recorded

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS: dict[str, Any] = {"score": ["a", "b"], "cluster": ["c", "d"], "classes": "k"}
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


def table(seed: int = 1, rows: int = 300) -> pa.Table:
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
    data = table()
    found = evaluate(data, **COLUMNS, **OWN)
    for of in "abcd":
        assert results(found, of) == results(alone(data, of), of), of
    assert found.rows == 300
    assert {reason for reason, _ in found.dropped} == {"NaN or null score a", "null cluster d"}
    for of in "cd":
        mine, theirs = found.curve("lift", of), alone(data, of).curve("lift", of)
        assert (mine.y.tolist(), mine.area) == (theirs.y.tolist(), theirs.area)
    stream = Accumulator(**COLUMNS, **OWN)
    stream.update(data)
    assert stream.result().to_dict() == found.to_dict()


def test_columns_that_are_not_named_have_the_default_or_the_others_value() -> None:
    """Under an asterisk."""
    data = table()
    with pytest.raises(NullError, match="'b' has NaN or null scores"):
        evaluate(data, score=["a", "b"], nan={"a": "drop"})
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
    data = table()
    pq.write_table(data, tmp_path / "t.parquet")
    names = ["--score", "a", "--score", "b", "--cluster", "c", "--cluster", "d", "--classes", "k"]
    call = ["evaluate", str(tmp_path / "t.parquet"), *names, "--json", "-"]
    expected = evaluate(tmp_path / "t.parquet", **COLUMNS, **OWN).to_dict()
    assert json.loads(CliRunner().invoke(main, [*call, *WORDS]).output) == json.loads(json.dumps(expected))
    (tmp_path / "options.toml").write_text(
        "nan = {a = 'drop', b = 'half'}\nnulls = {c = 'singleton', d = 'drop'}\n"
        "aul_threshold = {d = 3}\ntruncate = {a = 0.1, b = [20, 0.5]}\n"
    )
    done = CliRunner().invoke(main, [*call, "--config", str(tmp_path / "options.toml")])
    assert json.loads(done.output) == json.loads(json.dumps(expected)), done.stderr
    plain = checked({**COLUMNS, **OWN})
    assert checked(recorded(plain)) == plain
    assert command("evaluate", ["DATA"], plain) == " ".join(
        [
            "streameval evaluate DATA",
            *names,
            "--truncate a=0.1 --truncate b=20 --truncate b=0.5 --aul-threshold d=3",
            "--nan a=drop --nan b=half --nulls c=singleton --nulls d=drop",
        ]
    )
    for words, message in ((["--nan", "a=keep"], "'keep' is not one of"), (["--nan", "x=drop"], "no column 'x'")):
        done = CliRunner().invoke(main, [*call, *words])
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_a_store_keeps_policies_by_column(tmp_path: Path) -> None:
    """A column may join with its own, and leaves with it; those of states cannot change, others are defaults."""
    data = tmp_path / "data"
    for night in (1, 2):
        (data / f"night=2026-01-0{night}").mkdir(parents=True)
        pq.write_table(table(night), data / f"night=2026-01-0{night}" / "part-0.parquet")
    store = Store(tmp_path / "store")
    store.update(data, **COLUMNS, **OWN)
    assert store.evaluate().to_json() == evaluate(data, **COLUMNS, **OWN).to_json()
    for of in "abcd":
        kind = "score" if of in "ab" else "cluster"
        assert results(store.evaluate(**{kind: of}), of) == results(alone(data, of), of)
    look = store.evaluate(aul_threshold={"c": 5})
    assert look.value("aul", "c") == evaluate(data, cluster="c", aul_threshold=5, nulls="singleton").value("aul")
    with pytest.raises(OptionError, match="contradicts the store"):
        store.evaluate(nan={"a": "half", "b": "half"})
    store.remove(columns=["b", "d"])
    assert store.info().policies["nan"] == {"a": "drop", "*": "error"}
    store.add(score="b", nan="half", truncate={"b": (20, 0.5)})
    store.add(cluster="d", nulls={"d": "drop"}, aul_threshold=3)
    assert store.evaluate().to_json() == evaluate(data, **COLUMNS, **OWN).to_json()
    with pytest.raises(OptionError, match="a keeps its policy: create another store"):
        store.add(sketch="a", nan={"a": "half"})
