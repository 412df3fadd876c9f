"""Remedies work: for each message, what it advises is done, and what was refused succeeds.

A case is a generator. It first yields the call that is refused, and the words of the message that give the remedy; then
it does what these advise, and yields the call that must succeed.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from processes import run
from refusals import refuses

import streameval
from streameval import Accumulator, Store, attribute, compare, evaluate
from streameval.cli import main
from streameval.errors import StreamevalError
from streameval.plots import plot_differences, plot_worst_clusters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[[], Any]
    Case = Callable[[Path], Iterator[tuple[Call, str] | Call]]

ROWS = {"label": [0, 1, 0, 1], "score": [0.1, 0.8, 0.35, 0.4], "id": [1, 1, 2, 2], "country": ["a", "a", "b", "b"]}
AUC: dict[str, Any] = {"score": "score", "metrics": ["roc_auc"]}


def put(path: Path, **columns: Any) -> Path:
    """A file of four rows with other columns as well; a column that is None is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: column for name, column in (ROWS | columns).items() if column is not None})
    pq.write_table(table, path)
    return path


def night(root: Path, number: int, **columns: Any) -> Path:
    """A night of a Hive tree; returns the tree."""
    return put(root / "data" / f"night=2026-01-0{number}" / "a.parquet", **columns).parents[1]


def spark_vector(root: Path) -> Any:
    """Element 1 of a probability."""
    fields = {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
    vectors = [{"type": 1, "values": [1 - p, p]} for p in ROWS["score"]]
    file = put(root / "a.parquet", p=pa.array(vectors, pa.struct(fields)))
    yield lambda: evaluate(file, score="p"), "name one of its fields, such as p.values[1]"
    yield lambda: evaluate(file, score="p.values[1]")


def deep_struct(root: Path) -> Any:
    """The field that is named is flat, even if the first one is not."""
    kind = pa.struct([("a.b", pa.int8()), ("list", pa.list_(pa.int8())), ("deep", pa.struct([("p", pa.float64())]))])
    file = put(root / "a.parquet", m=pa.array([{"deep": {"p": p}} for p in ROWS["score"]], kind))
    yield lambda: evaluate(file, score="m"), "name one of its fields, such as m.deep.p"
    yield lambda: evaluate(file, score="m.deep.p")


def misspelt_number(root: Path) -> Any:  # noqa: ARG001
    """The names of a frame that are numbers are those that the message lists."""
    frame = pd.DataFrame({0: ROWS["label"], 1: ROWS["score"]})
    yield lambda: evaluate(frame, label="0", score="2"), "it has: 0, 1"
    yield lambda: evaluate(frame, label="0", score="1")


def empty_delta(root: Path) -> Any:
    """Another version."""
    write_deltalake(str(root / "t"), pa.table(ROWS))
    DeltaTable(str(root / "t")).delete()
    yield (
        lambda: evaluate(root / "t", **AUC),
        "is empty in this version; write to it, or name another version with delta_version",
    )
    yield lambda: evaluate(root / "t", delta_version=0, **AUC)


def unknown_codec(root: Path) -> Any:
    """A file written again, as Arrow writes by default."""
    file = root / "a.parquet"
    table = pa.table({"label": ROWS["label"], "score": ROWS["score"]})
    pq.write_table(table, file, compression="snappy", use_dictionary=False, write_statistics=False, store_schema=False)
    raw = bytearray(file.read_bytes())
    raw[raw.rfind(b"\x18\x05score\x15") + 8] = 6  # LZO
    file.write_bytes(raw)
    yield lambda: evaluate(file, **AUC), "write it again with another encoding and compression"
    pq.write_table(table, file)
    yield lambda: evaluate(file, **AUC)


def damaged_file(root: Path) -> Any:
    """Left out."""
    tree = night(root, 1)
    (put(tree / "night=2026-01-02" / "a.parquet")).write_bytes(b"PAR1 and nothing")
    yield lambda: evaluate(tree, **AUC), "replace or remove it; on_error='skip' (--on-error skip) leaves it out"
    yield lambda: evaluate(tree, on_error="skip", **AUC)


def far_time(root: Path) -> Any:
    """One type in all files."""
    files = [
        put(root / "d" / f"{unit}.parquet", at=pa.array([0, 1, 2, 9 * 10**15], pa.timestamp(unit)))
        for unit in ("ms", "ns")
    ]
    yield lambda: evaluate(files, by="month(at)", **AUC), "write the column in one type in all files"
    put(files[1], at=pa.array([0, 1, 2, 3], pa.timestamp("ms")))
    yield lambda: evaluate(files, by="month(at)", **AUC)


def clashing_types(root: Path) -> Any:
    """The type of the other file."""
    files = [put(root / "a.parquet"), put(root / "b.parquet", country=[1, 1, 2, 2])]
    yield lambda: evaluate(files, by="country", **AUC), "write the column of one of the files in the type of the other"
    put(files[1], country=["1", "1", "2", "2"])
    yield lambda: evaluate(files, by="country", **AUC)


def null_labels_of_a_store(root: Path) -> Any:
    """A policy that `add` changes."""
    tree, store = night(root, 1), Store(root / "store")
    store.update(tree, **AUC)
    night(root, 2, label=[0, 1, None, 1])
    yield (
        lambda: store.update(tree),
        "add changes them once: nan (--nan), nulls (--nulls) and unlabelled (--unlabelled)",
    )
    store.add(unlabelled="drop")
    yield lambda: store.update(tree)


def mixed_frame(root: Path) -> Any:  # noqa: ARG001
    """Of one type."""
    frame = pd.DataFrame(ROWS | {"id": [1, "b", 2.5, None]})
    yield lambda: evaluate(frame, cluster="id", nulls="drop"), "convert it with .astype(...)"
    yield lambda: evaluate(frame.astype({"id": str}), cluster="id", nulls="drop")


def store_as_data(root: Path) -> Any:
    """With Store."""
    Store(root / "store").update(night(root, 1), **AUC)
    yield lambda: evaluate(root / "store", **AUC), "evaluate it with streameval show, or with Store in Python"
    yield lambda: Store(root / "store").evaluate()


def moved_night(root: Path) -> Any:
    """Replaced."""
    tree, store = night(root, 1), Store(root / "store")
    store.update(tree, **AUC)
    moved = root / "moved"
    shutil.move(tree, moved)
    put(moved / "night=2026-01-01" / "b.parquet")
    yield lambda: store.update(moved), "if it is the same partition, use replace, else rename it"
    store.replace(moved)
    yield lambda: store.update(moved)


def undated_nights(root: Path) -> Any:
    """Selected by name."""
    put(root / "data" / "part=x" / "a.parquet")
    store = Store(root / "store")
    store.update(root / "data", **AUC)
    yield lambda: store.evaluate(since="2026-01-01"), "select it with partition= (--partition)"
    yield lambda: store.evaluate(partition="part=x")


def other_type_in_a_store(root: Path) -> Any:
    """The type that the message names."""
    tree, store = night(root, 1, score=pa.array(ROWS["score"], pa.float32())), Store(root / "store")
    store.update(tree, **AUC)
    night(root, 2)
    yield lambda: store.update(tree), "write the column as that type, or create another store"
    night(root, 2, score=pa.array(ROWS["score"], pa.float32()))
    yield lambda: store.update(tree)


def scope_in_memory(root: Path) -> Any:  # noqa: ARG001
    """Files."""
    table = pa.table(ROWS)
    yield lambda: evaluate(table, cluster="id", cluster_scope="partition"), "use global ids"
    yield lambda: evaluate(table, cluster="id", cluster_scope="global")


def key_of_numbers(root: Path) -> Any:
    """A number."""
    for hour in (9, 10):
        put(root / "d" / f"hour={hour}" / "a.parquet")
    yield lambda: evaluate(root / "d", where="hour >= '9'", **AUC), "write 9 without quotes"
    yield lambda: evaluate(root / "d", where="hour >= 9", **AUC)


def filter_as_an_expression(root: Path) -> Any:
    """SQL."""
    tree, store = night(root, 1), Store(root / "store")
    yield lambda: store.update(tree, where=pc.field("id") > 0, **AUC), "give SQL such as"
    yield lambda: store.update(tree, where="id > 0", **AUC)


def comparison_without_intervals(root: Path) -> Any:
    """Intervals of both."""
    file = put(root / "a.parquet", unit=[1, 2, 3, 4])
    one = evaluate(file, **AUC)
    yield lambda: compare(one, one), "evaluate both with ci=0.95 and the same unit (--unit)"
    two = evaluate(file, ci=0.95, unit="unit", **AUC)
    yield lambda: compare(two, two)


def store_among_files(root: Path) -> Any:
    """A directory for the store."""
    tree = night(root, 1)
    (root / "busy").mkdir()
    (root / "busy" / "notes.txt").write_text("mine")
    yield lambda: Store(root / "busy").update(tree, **AUC), "give the store its own directory"
    yield lambda: Store(root / "busy" / "store").update(tree, **AUC)


def broken_link(root: Path) -> Any:
    """Removed."""
    tree = night(root, 1)
    (tree / "gone.parquet").symlink_to(root / "nowhere")
    yield lambda: evaluate(tree, **AUC), "restore it or remove the link"
    (tree / "gone.parquet").unlink()
    yield lambda: evaluate(tree, **AUC)


def two_values_of_a_key(root: Path) -> Any:
    """A directory renamed."""
    put(root / "d" / "night=1" / "night=2" / "a.parquet")
    yield lambda: evaluate(root / "d", **AUC), "rename one of the directories"
    (root / "d" / "night=1").rename(root / "d" / "week=1")
    yield lambda: evaluate(root / "d", **AUC)


def lengths_of_a_dict(root: Path) -> Any:  # noqa: ARG001
    """Equal."""
    one, two = (Accumulator(**AUC) for _ in range(2))
    yield lambda: one.update({"label": [0, 1], "score": [0.1]}), "give arrays of equal length"
    yield lambda: two.update({"label": [0, 1], "score": [0.1, 0.2]}) or two


def types_of_a_frame_of_polars(root: Path) -> Any:  # noqa: ARG001
    """The columns that are needed."""
    frame = pl.DataFrame(ROWS).with_columns(pl.col("id").cast(pl.Int128))
    yield lambda: evaluate(frame, **AUC), "give a frame or a table of the columns that are needed"
    yield lambda: evaluate(frame.select("label", "score"), **AUC)


def units_that_differ(root: Path) -> Any:
    """One unit."""
    file = put(root / "a.parquet", unit=[1, 2, 3, 4])
    one, two = (evaluate(file, ci=0.95, unit=unit, **AUC) for unit in ("unit", "country"))
    yield lambda: compare(one, two), "evaluate both with the same unit (--unit)"
    yield lambda: compare(one, one)


def look_up_without_intervals(root: Path) -> Any:
    """Intervals."""
    file = put(root / "a.parquet")
    yield lambda: evaluate(file, **AUC).ci("roc_auc"), "no sampling intervals were asked for; evaluate with ci=0.95"
    yield lambda: evaluate(file, ci=0.95, **AUC).ci("roc_auc")


def costs_without_clusters(root: Path) -> Any:
    """Clusters."""
    file = put(root / "a.parquet")
    yield lambda: evaluate(file, **AUC).attribution(), "no cluster column was evaluated: name one (--cluster)"
    yield lambda: evaluate(file, cluster="id").attribution()


def reader_read_twice(root: Path) -> Any:  # noqa: ARG001
    """One pass."""
    table = pa.table(ROWS)
    yield (
        lambda: evaluate(table.to_reader(), approx_agc=True, passes=2, score="score"),
        "a reader can be read only once: choose passes=1 (--passes)",
    )
    yield lambda: evaluate(table.to_reader(), approx_agc=True, passes=1, score="score")


def differences_without_a_baseline(root: Path) -> Any:
    """A baseline."""
    file, two = put(root / "a.parquet", other=ROWS["score"]), {"score": ["score", "other"], "metrics": ["roc_auc"]}
    yield lambda: plot_differences(evaluate(file, **two)), "name a baseline (--baseline)"
    yield lambda: plot_differences(evaluate(file, baseline="other", **two))


def worst_clusters_without_labels(root: Path) -> Any:
    """A label."""
    file = put(root / "a.parquet")
    one = evaluate(file, cluster="id")
    yield (
        lambda: plot_worst_clusters(one, attribute(file, cluster="id", classes="country")),
        "there are no impure clusters to mark; attribute with a label (--label)",
    )
    yield lambda: plot_worst_clusters(one, attribute(file, cluster="id", label="label"))


def curve_of_a_slice_of_a_store(root: Path) -> Any:
    """Files."""
    store, slices = Store(root / "s"), {"slice": {"country": "a"}}
    store.update(night(root, 1), by="country", **AUC)
    yield lambda: store.evaluate(by="country").curve("roc", **slices), "the curve of a slice needs the states of a run"
    yield lambda: evaluate(root / "data", by="country", **AUC).curve("roc", **slices)


def rule_of_slices_without_by(root: Path) -> Any:
    """A slicing."""
    file, rule = put(root / "a.parquet"), "roc_auc{country=a} >= 0"
    yield lambda: evaluate(file, **AUC).judge([rule]), "there are no slices by country; name them (--by)"
    yield lambda: evaluate(file, by="country", **AUC).judge([rule])


CASES: list[Case] = [
    value for value in list(globals().values()) if inspect.isgeneratorfunction(value) and value.__module__ == __name__
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_remedy_works(case: Case, tmp_path: Path) -> None:
    """What the message advises."""
    steps = case(tmp_path)
    refused, words = next(steps)  # type: ignore[misc] - the first is a pair, the second a call
    caught = refuses(StreamevalError, "", refused)
    assert words in caught
    next(steps)()  # type: ignore[operator]


IDS, P = {"cluster": "id"}, ROWS["score"]


# columns of a file, options, the words of the message, and the options or columns that they advise
FILES: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = [
    ({"label": [0, 1, None, 1]}, AUC, "choose unlabelled='drop' (--unlabelled drop) to leave", {"unlabelled": "drop"}),
    ({"label": [0, 1, None, 1]}, IDS, "for clusters, evaluate also takes 'size'", {"unlabelled": "size"}),
    ({"score": [0.1, None, 0.3, 0.4]}, AUC, "choose nan='drop' (--nan drop)", {"nan": "drop"}),
    ({"id": [1, None, 2, 2]}, IDS, "choose --nulls drop or --nulls singleton", {"nulls": "drop"}),
    ({}, AUC | {"quantiles": 5}, "set approx_agc=True (--approx-agc)", {"approx_agc": True}),
    ({"label": list("hshs")}, AUC, "name the positive one with pos_label (--pos-label)", {"pos_label": "s"}),
    ({"label": [0, 1, 2, 2]}, AUC, "name the positive one with pos_label (--pos-label)", {"pos_label": 2}),
    ({}, AUC | {"by": "score"}, "give edges, such as by='score=0.2,0.5'", {"by": "score=0.2,0.5"}),
    ({}, AUC | {"where": "country <> NULL"}, "write IS NULL or IS NOT NULL", {"where": "country IS NOT NULL"}),
    ({"id": [1.0, 1.0, 2.0, 2.0]}, IDS, "ids are integers, strings or binaries: cast it", {"columns": {}}),
    ({"score": list("1234")}, AUC, "a score is a float, an integer or a decimal of at most 18 digits", {"columns": {}}),
    (
        {"w": [0.0, -1.0, 1.0, 1.0]},
        AUC | {"weight": "w"},
        "finite and not negative",
        {"columns": {"w": [0.0, 1, 1, 1]}},
    ),
    ({}, {"score": "scroe"}, "did you mean 'score'?", {"score": "score"}),
    ({}, AUC | {"by": "country,"}, "before or after a comma; write country,channel", {"by": "country,id"}),
    ({"at": ["2026-01-01"] * 4}, AUC | {"by": "hour(at)"}, "cast it", {"columns": {"at": [datetime(2026, 1, 1)] * 4}}),
    ({"p": [[p, 1 - p] for p in P]}, {"score": "p"}, "name one of its elements, such as p[0]", {"score": "p[0]"}),
]


@pytest.mark.parametrize(("columns", "options", "words", "advice"), FILES, ids=[case[2] for case in FILES])
def test_what_is_advised_for_a_file_works(
    columns: dict[str, Any], options: dict[str, Any], words: str, advice: dict[str, Any], tmp_path: Path
) -> None:
    """Other options, or other columns."""
    file = put(tmp_path / "a.parquet", **columns)
    caught = refuses(StreamevalError, "", evaluate, file, **options)
    assert words in caught
    options = options | advice
    if (instead := options.pop("columns", None)) is not None:
        put(file, **instead)
    evaluate(file, **options)


# what is refused, words of the message, and what they advise: words to add, or commands before the same one again
COMMANDS = [
    ("evaluate one --label spam --score score", "choose --unlabelled 'drop'", "+ --unlabelled drop"),
    ("evaluate one --label spam --cluster id", "evaluate also takes 'size'", "+ --unlabelled size"),
    ("attribute one --score score --label spam --by country", "choose --unlabelled 'drop'", "+ --unlabelled drop"),
    ("attribute one --cluster id --label spam", "choose --unlabelled 'drop'", "+ --unlabelled drop"),
    ("evaluate one --score gap", "choose --nan 'drop'", "+ --nan drop"),
    ("evaluate one --score gap", "evaluate also takes 'half'", "+ --nan half"),
    ("attribute one --score gap --by country", "choose --nan 'drop'", "+ --nan drop"),
    ("evaluate one --score gap --mean-over user --nan half", "choose --nan 'drop'", "+ --nan drop"),
    ("evaluate one --cluster lost", "choose --nulls drop or --nulls singleton", "+ --nulls singleton"),
    ("evaluate one --cluster id --classes lost", "choose --nulls drop", "+ --nulls drop"),
    ("attribute one --cluster lost --classes campaign", "choose --nulls drop", "+ --nulls drop"),
    ("attribute one --cluster id --changed-from lost", "or --nulls singleton", "+ --nulls singleton"),
    ("evaluate one --label word --score score", "(--pos-label)", "+ --pos-label s"),
    ("attribute one --cluster id --label kind", "(--pos-label)", "+ --pos-label 2"),
    ("attribute one --score score --by country --label word", "(--pos-label)", "+ --pos-label s"),
    ("attribute one --score score", "a slicing column (--score, --by)", "+ --by country"),
    ("attribute one --by country", "name a score column (--score)", "+ --score score"),
    ("attribute one --cluster id", "(--classes, --changed-from)", "+ --changed-from campaign"),
    ("attribute one --cluster id --label label --metric bcubed_fscore", "(--classes", "+ --classes campaign"),
    ("attribute one --cluster id --classes campaign --aul-threshold 2", "name a column of labels", "+ --label label"),
    ("attribute one --cluster id --classes campaign --nan drop", "the slicing column", "+ --by country --score score"),
    ("attribute one --cluster id --classes campaign --examples-per 2", "name one (--examples)", "+ --examples word"),
    ("attribute one --score score --by country --changed-from id", "without clusters: name", "+ --cluster campaign"),
    ("attribute one --score score --by score", "--by 'score=0.2,0.5'", "attribute one --score score --by score=.2,.5"),
    ("churn one --cluster id --from campaign --ci", "without a unit", "+ --unit user"),
    ("sketch one --column score --label label", "need --by-label; add it", "+ --by-label"),
    ("evaluate one --score score --aul-threshold 2", "name a cluster column (--cluster)", "+ --cluster id"),
    ("evaluate one --cluster id --at fpr=0.1", "name a score column (--score)", "+ --score score"),
    ("evaluate one --cluster id --assignment-cells 5", "name a column of classes (--classes)", "+ --classes campaign"),
    ("evaluate one --score score --clip 1e-9 --metric roc_auc", "(--metric log_loss)", "+ --metric log_loss"),
    ("evaluate one --score score --mean-weight equal", "name their column (--mean-over)", "+ --mean-over user"),
    ("evaluate one --score score --max-slices 3", "name the slicing column (--by)", "+ --by country"),
    ("evaluate one --score score --by country --max-slices 1", "keep some with where", "+ --where \"country = 'a'\""),
    ("evaluate one --score score --by country --max-slices 1", "or raise --max-slices", "+ --max-slices 2"),
    ("evaluate one --score score --quantiles 5", "set --approx-agc", "+ --approx-agc"),
    ("evaluate one --score score --metric agc_approx", "set --approx-agc", "+ --approx-agc"),
    ("evaluate one --score score --on id", "name their table (--labels)", "+ --labels labels.parquet"),
    ("evaluate one --score score --labels labels.parquet", "labels are matched by ids", "+ --on id"),
    ("evaluate one --score score --labels twice.parquet --on id", "(--label-time)", "+ --label-time seen"),
    ("evaluate one --score score --labels twice.parquet --on id", "to leave these ids unlabelled",
     "+ --label-conflicts drop"),
    ("evaluate one --score score --labels labels.parquet --on id --labels-as-of 2027-01-01", "(--label-time)",
     "+ --label-time seen"),
    ("evaluate one --score score --labels labels.parquet --on user=id", "(--allow-unmatched)", "+ --allow-unmatched"),
    ("evaluate one --score score --resample-bins 64", "or baseline (--ci, --unit, --baseline)", "+ --unit user"),
    ("evaluate one --score score --against rest", "name the slicing column (--by)", "+ --by country"),
    ("evaluate one --score score --baseline score", "name one (--score)", "+ --score other"),
    ("evaluate one --metric roc_auc", "name a score or a cluster column", "+ --score score"),
    ("evaluate one --cluster id --metric roc_auc", "name one (--score)", "+ --score score --metric aul"),
    ("evaluate one --score score --metric adjusted_rand_index", "name both (--cluster", "+ --cluster id --classes id"),
    ("evaluate one --score score --rule 'aul >= 0'", "--metric names those to", "+ --cluster id --metric aul"),
    ("evaluate one --score score --out x.txt", "end it in .json, .csv", "evaluate one --score score --out x.csv"),
    ("evaluate one --score score --spill nowhere", "name another with --spill", "+ --spill ."),
    ("evaluate one --score score --ci 95", "write --ci 0.95", "+ --ci 0.95"),
    ("update new data", "name a score or a cluster column (--score", "+ --score score"),
    ("update s data --nan drop", "change the store's policy (add)", "add s --nan drop; again"),
    ("update s data --score other", "add a column to the store (add)", "add s data --score other"),
    ("update s data --by country", "add a column to the store (add)", "add s data --by country; again"),
    ("update s data --max-slices 5", "change the store's limit (add)", "add s --max-slices 5; again"),
    ("update s data --metric ks", "name it when you evaluate the store (show)", "show s --metric ks"),
    ("show s --cluster user", "add it to the store (add)", "add s data --cluster user; again"),
    ("show s --by country", "add them (add STORE DATA --by ", "add s data --by country; again"),
    ("show s --where \"country = 'a'\"", "(add STORE DATA --by country)", "add s data --by country; again"),
    ("show s --against rest", "compares slices that the store",
     "add s data --by country; show s --against rest --by country"),
    ("history s --metric roc_auc --by country", "(add STORE DATA --by country)", "add s data --by country; again"),
    ("check s", "name a rule, such as 'roc_auc[score] >= 0.97' (--rule", "+ --rule 'roc_auc[score] >= 0.97'"),
    ("check s --rule 'roc_auc >= 0 proven @95%'", "(add --unit COLUMN)", "add s --unit user; again"),
    ("check s --rule 'roc_auc{country=*} >= 0'", "(add STORE DATA --by country)", "add s data --by country; again"),
    ("check s --accept night=2026-01-02", "and --reason TEXT",
     "check s --rule 'roc_auc > 1'; check s --accept night=2026-01-02 --reason known"),
    ("attribute s --score score --by country", "(add STORE DATA --by country)", "add s data --by country; again"),
    ("attribute s --cluster id --classes campaign", "(add --classes)", "add s --classes campaign; again"),
    ("attribute s --cluster id --changed-from campaign", "name the data",
     "attribute data --cluster id --changed-from campaign"),
    ("attribute s data --label label --examples word", "name a column (--cluster)", "+ --cluster id"),
    ("add s", "name the column or the metric to add (--score", "+ --score other"),
    ("remove s", "or a column (--column)", "+ --column id"),
    ("evaluate s --last 2 --unit user", "or add it to the store (add --unit)", "add s --unit user; again"),
    ("evaluate one --score score --threads 2 --scheduler tcp://x:1", "give one of them",
     "evaluate one --score score --threads 2"),
    ("evaluate one --score score --passes 2", "set --approx-agc", "+ --approx-agc"),
    ("evaluate one --score score --by country --timezone UTC", "(--by 'hour(sent_at)')", "+ --by 'hour(sent)'"),
    ("evaluate one --score score --metric quantiles", "name one (--sketch)", "+ --sketch score"),
    ("evaluate one --score score --sampled-by size", "draws units by their rows", "+ --unit user"),
    ("evaluate one --score score --sampled-by size --unit user --where \"id = 1\"", "needs all rows of the units",
     "evaluate one --score score --sampled-by size --unit user"),
    ("evaluate one --score score --sampled-by uniform --where \"label = 1\"", "which only the sample has",
     "evaluate one --score score --sampled-by uniform"),
    ("evaluate one --score score --sampled-by strata=country --unit user", "leave out --unit",
     "evaluate one --score score --sampled-by strata=country"),
    ("evaluate one --score score --sampled-by uniform --nan half", "choose --nan 'drop'", "+ --nan drop"),
    ("evaluate one --score score --sampled-by uniform --unlabelled drop", "leave it out",
     "evaluate one --score score --sampled-by uniform"),
    ("evaluate one --score score --unit user,id --by country", "intervals by two crossed units",
     "evaluate one --score score --unit user --by country"),
    ("evaluate one --score score --mean-over user --unit id", "which other units would cut",
     "evaluate one --score score --mean-over user"),
    ("evaluate one --score gap --score score --common-rows --nan half", "choose one of them",
     "evaluate one --score gap --score score --nan half"),
    ("evaluate one --cluster id --classes campaign --classes-sampled uniform --nulls singleton", "(--nulls drop)",
     "+ --nulls drop"),
    ("evaluate one --cluster id --classes campaign --classes-sampled uniform --clusters-sampled uniform",
     "(--classes-sampled COLUMN --clusters-sampled COLUMN)",
     "evaluate one --cluster id --classes campaign --classes-sampled sure --clusters-sampled certain"),
    ("evaluate one --score score --labels labels.parquet --on id --weight label", "another column for --weight",
     "evaluate one --score score --labels labels.parquet --on id --weight user"),
    ("evaluate one --score score --labels labels.parquet --on id --by label", "out of where (--where) and by (--by)",
     "evaluate one --score score --labels labels.parquet --on id"),
    ("evaluate one --score score --at f1=0.5", "or threshold=X", "evaluate one --score score --at threshold=0.5"),
    ("attribute one --cluster id --classes campaign --changed-from user", "one column at a time",
     "attribute one --cluster id --changed-from user"),
    ("attribute s --cluster id --label label --where \"country = 'a'\"", "name the data for --where",
     "attribute data --cluster id --label label --where \"country = 'a'\""),
    ("plan-labels one --id user --score score --for f1_max", "such as precision@threshold=0.8",
     "plan-labels one --id key --score score --for precision@threshold=0.2"),
    ("drift one --score score --against 2026-01-01", "or move it to night=2026-01-31",
     "drift data --score score --against 2026-01-01"),
    ("update s --labels labels.parquet", "(add --on)", "add s data --on id; again"),
    ("maturity s --metric roc_auc", "(add --on)", "add s data --on id; update s --labels labels.parquet; again"),
    ("update new data --score score --labels-open 30d", "name their column (--on)", "+ --on id"),
    ("update new data --score score --unit user,id", "name one", "update new data --score score --unit user"),
    ("update new data --label kind --score p_{class}", "--score p_spam --pos-label spam",
     "update new data --score score --label word --pos-label s"),
    ("update new data --score score --classes-of-label 0,1", "evaluate takes it",
     "evaluate data --score 'p_{class}' --label kind --classes-of-label 0,1"),
    ("evaluate one --score score --labels texts.parquet --on id", "labels; name the column of", "+ --label spam"),
    ("evaluate one --score score --rule 'auc >= 0'", "did you mean 'roc_auc'?",
     "evaluate one --score score --rule 'roc_auc >= 0'"),
    ("show s --as-of 7", "info --versions lists all", "info s --versions; show s --as-of 0"),
    ("check s --rule 'roc_auc{country=a} >= 0 @95%'", "leave out the level, or end in always @95%",
     "add s data --by country --unit user; check s --rule 'roc_auc{country=a} >= 0'"),
    ("evaluate one --cluster id --score score --metric roc_auc", "or add one (--metric aul)", "+ --metric aul"),
    ("history s --metric roc_auc --json - --csv -", "write one of them to a file",
     "history s --metric roc_auc --json - --csv x.csv"),
    ("attribute one --cluster id --label label --with-examples", "--out FILE.html --examples COLUMN",
     "+ --out x.html --examples word"),
    ("sketch one --column score --quantile 2", "--quantile 2 is not in [0, 1]",
     "sketch one --column score --quantile 1"),
    ("update s", "name DATA, or files of labels (--labels)", "+ data"),
    ("diagnose s", "no night fails; name one with --partition", "+ --partition night=2026-01-02"),
    ("evaluate one --cluster id --cluster user --baseline id --ci --metric aul", "a column of units (--unit)",
     "+ --unit campaign"),
    ("evaluate one --score score --sampled-by strata=score", "(--sampled-by strata=COLUMN)",
     "evaluate one --score score --sampled-by strata=country"),
    ("evaluate one --score score --sampled-by often", "or the column of probabilities (--label-probability)",
     "evaluate one --score score --label-probability sure"),
    ("evaluate one --score score --cluster id --sampled-by uniform", "name metrics of scores (--metric)",
     "evaluate one --score score --sampled-by uniform --metric roc_auc"),
    ("evaluate one --cluster id --classes campaign --classes-sampled uniform --metric v_measure", "give estimates of",
     "evaluate one --cluster id --classes campaign --classes-sampled uniform --metric pairwise.recall"),
    ("evaluate one --cluster lost --classes campaign --clusters-sampled uniform", "(--nulls lost=drop)",
     "+ --nulls lost=drop"),
    ("evaluate one --score score --sampled-by uniform --resample-bins 64", "labels that are sampled are counted by",
     "evaluate one --score score --sampled-by uniform"),
    ("evaluate one --score score --label spam --sampled-by strata=hole", "(--label-probability)",
     "evaluate one --score score --label spam --label-probability sure"),
    ("evaluate one --score score --label spam --sampled-by strata=letter", "or leave them out (--where)",
     "+ --where \"letter <> 'b'\""),
    ("evaluate one --score score --labels labels.parquet --on id --labels-as-of 2020-01-01 --label-time seen",
     "are later than labels_as_of (--labels-as-of): choose", "+ --allow-unmatched"),
    ("evaluate one --score score --label verdict --labels labels.parquet --on id --sampled-by uniform",
     "by a column of unique ids (--on)",
     "evaluate one --score score --label verdict --labels labels.parquet --on key=id --sampled-by uniform"),
    ("evaluate one --score score --labels labels.parquet --on nope", "name the ids with on (--on)",
     "evaluate one --score score --labels labels.parquet --on id"),
    ("evaluate one --score score --labels labels.parquet --on id=nope", "'column_of_the_data=column_of_the_labels'",
     "evaluate one --score score --labels labels.parquet --on key=id"),
    ("evaluate one --score score --labels labels.parquet --on id --unit label",
     "is the label column, which arrives in another table",
     "evaluate one --score score --labels labels.parquet --on id --unit user"),
    ("evaluate bare.parquet --score score", "name the column of labels (--label)", "+ --label kind --pos-label 2"),
    ("evaluate bare.parquet --cluster id --classes user", "which needs none", "+ --metric classes"),
    ("evaluate one --score score --baseline other", "name it as well (--score, --cluster)", "+ --score other"),
    ("evaluate one --score score --mean-over user --weight user", "means over groups take no ",
     "evaluate one --score score --weight user"),
    ("evaluate one --score score --truncate 2 --metric agc --weight user --approx", "leave out approx (--approx)",
     "evaluate one --score score --truncate 2 --metric agc --weight user"),
    ("evaluate one --score score --metric agc_approx --approx-agc --sample 0.01", "draw more (--sample)",
     "+ --sample 1"),
    ("evaluate one --score score --metric calibration --ci --resample-bins 2", "(--resample-bins 65536)",
     "+ --resample-bins 65536"),
    ("evaluate one --score score --metric 'roc_auc,ks'", "name each by a --metric",
     "evaluate one --score score --metric roc_auc --metric ks"),
    ("evaluate one --score score --approx-agc --sample 3", "not a share in (0, 1]", "+ --sample 0.5"),
    ("evaluate one --score score --metric f1", "operating_points() has precision",
     "evaluate one --score score --at threshold=0.5"),
    ("evaluate one --score score --scheduler-timeout 5", "name one (--scheduler)", "evaluate one --score score"),
    ("attribute s --cluster id --changed-from campaign", "name the data for --changed-from",
     "attribute data --cluster id --changed-from campaign"),
    ("add s data --on id; update s data --labels labels.parquet --dry-run", "leave out one of them",
     "update s data --labels labels.parquet"),
    ("add s data --on id; update s --labels twice.parquet", "(add --label-conflicts drop)",
     "add s --label-conflicts drop; again"),
    ("add s data --on id; update s --labels labels.parquet; update s --labels other.parquet",
     "(add --label-conflicts latest)", "add s --label-conflicts latest; again"),
    ("update new data --score score --on id --approx-agc", "late labels take no",
     "update new data --score score --on id"),
    ("update new data --score score --sampled-by uniform; show new --against 2026-01-01", "(--since, --until)",
     "show new --until 2026-01-01; show new --since 2026-01-02"),
    ("update new data --score score --sampled-by uniform; vacuum new --keep 1d", "leave it out", "vacuum new"),
    ("update new data --score score; plan-labels one --id key --score score --for flagged@threshold=.2 --pilot new",
     "(update --sampled-by uniform)",
     "update n data --score score --sampled-by uniform; plan-labels one --id key --score score --for gini --pilot n"),
    ("update new data --score score --by country --max-slices 1", "the store's limit with add", "+ --max-slices 2"),
    ("update new data --score score --score other; check new --rule 'roc_auc >= 0.1'", "roc_auc[score] in a rule",
     "check new --rule 'roc_auc[score] >= 0.1'"),
    ("add s data --score other --on id; maturity s --metric roc_auc", "--of 'score'", "+ --of score"),
    ("add s data --on id; update s --labels labels.parquet; maturity s --metric roc_auc --ages 400",
     "name smaller ages (--ages)", "+ --ages 0"),
    ("drift data --score score --since 2026-01-02 --against 2026-01-01", "name one (--unit)", "+ --unit user"),
    ("drift s --score score --since 2026-01-02 --against 2026-01-01", "(add STORE DATA --unit COLUMN)",
     "add s data --unit user; again"),
    ("show s --by 'hour(sent)'", "(add STORE DATA --by 'hour(sent)')", "add s data --by 'hour(sent)'; again"),
    ("update new data --score score --score gap --nan drop; show new --baseline score", "(update --common-rows)",
     "update n data --score score --score gap --nan drop --common-rows; show n --baseline score"),
    ("check s --rule 'roc_auc > 1'; check s --accept night=2026-01-02 --reason ' '", "(--reason)",
     "check s --accept night=2026-01-02 --reason known"),
    ("check s --rule 'roc_auc[score] drop <= 0.1 always @95%'", "add the unit to the store (add --unit COLUMN)",
     "add s data --unit user; again"),
    ("evaluate zones --score score --by 'hour(sent)'", "such as --timezone UTC", "+ --timezone UTC"),
    ("update new data --cluster id --cluster user --unit campaign; show new --baseline id",
     "with --unit and --baseline",
     "evaluate data --cluster id --cluster user --unit campaign --baseline id"),
    ("evaluate one --score score --labels labels.parquet --on id --label nope", "name it with label (--label)",
     "evaluate one --score score --labels labels.parquet --on id"),
    ("evaluate one --score score --ci --resample-bins exact --by country", "keeps blocks of all rows alone",
     "+ --resample-bins 64"),
    ("evaluate one --score score --approx-agc --by country", " is not computed by slices",
     "evaluate one --score score --by country"),
    ("evaluate one --score score --metric aul", "name one (--cluster)", "+ --cluster id"),
    ("evaluate one --score score --label kind", "evaluate takes several classes",
     "evaluate one --score p_{class} --label kind"),
    ("evaluate one --score p_0 --label kind --classes-of-label 0,1,2", "such as --score 'p_{class}'",
     "evaluate one --score p_{class} --label kind --classes-of-label 0,1,2"),
    ("add s data --by country; show s --where \"country = 'a'\" --by country", "leave out by (--by) and against",
     "show s --where \"country = 'a'\""),
    ("update new data --score score --sampled-by strata=country; show new --by country", "(evaluate DATA --where)",
     "evaluate data --score score --sampled-by strata=country --where \"country = 'a'\""),
    ("update new zones/UTC.parquet --score score --by 'hour(sent)'; update new zones/None.parquet", "(--timezone)",
     "update z zones --score score --by 'hour(sent)' --timezone UTC"),
    ("update n data --score score --sampled-by uniform; drift n --score score --since 2026-01-02 --against 2026-01-01",
     "(drift DATA --unit)",
     "drift data --score score --since 2026-01-02 --against 2026-01-01 --unit user"),
    ("add s data --on id; check s --rule 'aul >= 0'; update s --labels labels.parquet; check s --rule 'aul >= 0'",
     "again (--again) judges them anew", "+ --again"),
    ("add s data/night=2026-01-01 --by country; show s --by country", "fold them from their files (add",
     "add s data --by country; again"),
    ("add s data --on id; update s data --labels labels.parquet --plan", "a plan is of data alone; leave",
     "update s data --plan"),
    ("update new bare.parquet --cluster id --unlabelled size --label spam; check new --rule 'age <= 3d'", "move it to",
     "check s --rule 'age <= 9999d'"),
    ("diagnose s --partition night=2026-01-02", "more facts with --all", "+ --all"),
    ("show s --where \"night = '2026-01-01'\"", "choose nights by their ", "show s --partition night=2026-01-01"),
    ("evaluate one --score score --score 'score (rest)' --baseline 'score (rest)' --by country",
     "would read as its diff",
     "evaluate one --score score --score 'score (rest)' --baseline 'score (rest)'"),
    ("evaluate one --score score --rule 'roc_auc[score] - roc_auc[other] >= 0 proven @95%'",
     "is not evaluated; name it", "+ --score other"),
    ("attribute unsure --score score --by country", "choose --unlabelled 'drop'", "+ --unlabelled drop"),
    ("attribute unsure --score score --by country --cluster id --classes campaign", "choose --unlabelled 'drop'",
     "+ --unlabelled drop"),
    ("show s --cluster id --metric roc_auc", "or add one (--metric aul)", "+ --metric aul"),
    ("replace s one", "use update", "update s one"),
    ("metrics auc", "did you mean roc_auc?", "metrics roc_auc"),
    ("show new", "create it with update", "update new data --score score; again"),
    ("check s --accept night=2026-01-02 --reason known", "check first, then accept",
     "check s --rule 'roc_auc > 1'; again"),
    ("sketch one --column word", "a sketch takes floats, integers or decimals of at most 18 digits: cast it",
     "sketch one --column id"),
    ("update new data --cluster id --sketch id", "use quantile_sketch (streameval sketch)", "sketch data --column id"),
    ("evaluate one --cluster id --classes late --metric v_measure --labels labels.parquet --on key=id --rejects r.csv",
     "arrives late as well: leave out",
     "evaluate one --cluster id --classes late --metric v_measure --labels labels.parquet --on key=id"),
    ("update new data --cluster id --classes late --on key=id", "to let it arrive late, name a table",
     "update new data --cluster id --classes late --labels labels.parquet --on key=id"),
    ("update new data --cluster id --classes late --labels labels.parquet --on key=id; attribute new data --cluster id",
     "which arrived late: leave them out", "attribute new --cluster id"),
    ("update data/s data --score score", "must be in separate directories: move one of them",
     "update new data --score score"),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file, two nights, tables of labels, and a store of the nights."""
    root = tmp_path_factory.mktemp("place")
    more = {"other": P, "campaign": [1, 1, 2, 3], "user": [7, 8, 7, 8], "spam": [0, 1, None, 1], "kind": [0, 1, 2, 2]}
    times = [datetime(2026, 1, day) for day in (1, 2, 3, 4)]
    more |= {"sure": [1.0] * 4, "certain": [1.0] * 4, "sent": times, "key": [1, 2, 3, 4]}
    more |= {"gap": [0.1, None, 0.3, 0.4], "lost": [1, None, 2, 2], "word": list("hshs"), "id": [1, 1, 2, 2]}
    more |= {
        "letter": list("aabc"),
        "hole": ["a", "a", None, "a"],
        "score (rest)": P,
        **{f"p_{i}": P for i in range(3)},
    }
    put(root / "one" / "a.parquet", **more)
    for number in (1, 2):
        night(root, number, **more)
    put(root / "bare.parquet", **{**more, "label": None})
    put(root / "unsure" / "a.parquet", **{**more, "label": more["spam"]})
    for zone in ("UTC", None):
        put(root / "zones" / f"{zone}.parquet", sent=pa.array(times, pa.timestamp("us", zone)))
    for name, labels in (("labels", [0, 0, 1, 1]), ("other", [1, 1, 0, 0]), ("twice", [0, 1, 1, 1])):
        put(
            root / f"{name}.parquet",
            label=labels,
            verdict=labels,
            seen=times,
            score=None,
            country=None,
            late=list("xxyy"),
        )
    texts = pa.table({"id": range(201), "label": map(str, range(201)), "spam": [i % 2 for i in range(201)]})
    pq.write_table(texts, root / "texts.parquet")
    Store(root / "s").update(root / "data", score="score", cluster="id", metrics=["roc_auc", "aul"])
    return root


@pytest.mark.parametrize(("command", "words", "advice"), COMMANDS, ids=[case[0] for case in COMMANDS])
def test_what_a_command_advises_works(
    command: str, words: str, advice: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option that the message names is one of the verb, or of a verb that the message names; taken, it helps."""
    shutil.copytree(place, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    *first, command = command.split("; ")
    for step in first:
        run(*shlex.split(step))
    refused = run(*shlex.split(command))
    assert words in (refused.stderr if refused.exit_code in (1, 2) else refused.output)
    verbs = [
        main.commands[verb]
        for verb in main.commands
        if re.search(rf"\b{verb}\b", f"{command.split()[0]} {refused.stderr}")
    ]
    taken = {name for verb in verbs for param in verb.params for name in param.opts}
    assert set(re.findall(r"--[a-z][a-z-]*", refused.stderr.rpartition("Error: ")[2])) <= {*taken, "--help"}
    extra = f"{command} {advice[2:]}" if advice.startswith("+") else advice
    for step in extra.split("; "):
        done = run(*shlex.split(command if step == "again" else step))
        assert done.exit_code in (0, 3), done.stderr
        assert words not in done.output


UNTRIED = {  # messages that name an option, without a row above
    "they advise nothing": (
        "--config …", "--rules …: …: …", "streameval check … --accept", " --rule …", " --ages …", "Your own data: ",
        "must be a rule in quotes",
        "--json has all", "vacuum --keep turned", "streameval demo --rows", "next: streameval diagnose",
        "streameval maturity …",
    ),
    "four rows cannot bring them about": (
        "the loops of this run", "%s of memory", "more than the memory (…)", "a quarter of the memory",
        ", or leave out rejects (--rejects)", "raise memory (--memory)",
        "more than … values", "standard error is … × as large",
        "name their column with --unit", "for each class: name a unit",
        "errors are too rare", "within bins of the coarse grid", "a class has no replicates",
        "those of agc of all rows", "its threshold depends on the labels", "areas down to a rank",
        "counts of bins are interpolated", "a histogram cannot bound a fit",
        "choose one of its ends, or evaluate without approx",
        "no night has a value at every age", "are of one day, and always",
    ),
    "files or stores are broken, closed or of earlier versions": (
        "may be among those that vacuum", "is closed for late",
        "were not recorded", "no longer exists (vacuum", "or move it away and check again", "name another version with",
        "rename it; on_error",
    ),
    "other checks come first": ("is not a number of bins of at least 1",),
}  # fmt: skip


def messages() -> Iterator[tuple[str, str]]:
    """Where the package spells an option in a text, other than a docstring or a sentence of help, and the text."""
    for file in sorted(Path(streameval.__file__).parent.rglob("*.py")):
        source = file.read_text()
        nodes = [*ast.walk(ast.parse(source))] if re.search("--[a-z]", source) else []
        inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            text = node.value if isinstance(node, ast.Constant) and id(node) not in inner else ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            if isinstance(text, str) and re.search("--[a-z]", text) and " " in text and text[-1] not in ".]":
                yield f"{file.name}:{node.lineno}", text


def test_every_message_that_names_an_option_is_tried() -> None:
    """A new one needs a row above, with ten characters or more of its words, or a reason among those untried."""
    nodes = (node for case in CASES for node in ast.walk(ast.parse(inspect.getsource(case))))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    rows = [text for text in (*texts, *(row[1] for row in COMMANDS), *(row[2] for row in FILES)) if len(text) > 9]
    excepted = {part for parts in UNTRIED.values() for part in parts}
    used, missing = set(), []
    for where, text in messages():
        pieces = [piece for piece in text.split("…") if len(piece) > 9]
        reasons = {part for part in excepted if part in text}
        used |= reasons
        if not reasons and not any(row in piece or piece in row for row in rows for piece in pieces):
            missing.append(f"{where}: {text}")
    assert (missing, excepted - used) == ([], set())
