"""Bad input: one line that names the file, the column and the remedy, of the right class, and nothing half-counted."""

import contextlib
import inspect
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from processes import run
from refusals import refuses

from streameval import Store, attribute, churn, evaluate, roc_auc_score
from streameval.engine import fold
from streameval.errors import (
    CorruptFileError,
    LabelError,
    MissingColumnError,
    MissingInputError,
    NullError,
    OptionError,
    SchemaError,
    StreamevalError,
    WeightError,
)
from streameval.evaluation import explain
from streameval.scan.parquet import footers
from streameval.wording import visible

GOOD = {"label": [0, 1, 0, 1], "score": [0.1, 0.2, 0.3, 0.4], "id": [1, 1, 2, 3], "weight": [1.0, 2.0, 0.0, 1.0]}


def refused(error: type[StreamevalError], data: Any, *words: str, **options: Any) -> str:
    """Evaluate must raise exactly this class, in one line with all of these words."""
    with pytest.raises(StreamevalError) as caught:
        evaluate(data, **({"score": "score"} | options))
    text = str(caught.value)
    assert type(caught.value) is error, text
    assert "\n" not in text
    for word in words:
        assert word in text, (word, text)
    return text


def write(path: Path, columns: dict[str, Any] | None = None, **options: Any) -> Path:
    """Write a Parquet file."""
    return put(path, GOOD if columns is None else columns, **options)


# -- files that do not fit, or cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("score", ["a", "b", "c", "d"], ("'score'", "string")),
        ("score", [Decimal(10**20)] * 4, ("'score'", "decimal", "18 digits")),
        ("score", [[1.0]] * 4, ("'score'", "nested")),
        ("weight", ["1"] * 4, ("'weight'", "string")),
    ],
)
def test_types_that_cannot_be_used_are_named(column: str, values: list[Any], words: tuple[str, ...]) -> None:
    """The column, its type, and what would do."""
    table = pa.table(GOOD | {column: values})
    refused(SchemaError, table, *words, cluster="id", weight="weight")


def corrupt(path: Path, how: str) -> Path:
    """A good file of many rows, damaged; a page is found by its compression or by its checksum."""
    random, rows = np.random.default_rng(0), 30_000
    table = {"label": random.integers(0, 2, rows).astype(np.int8), "score": random.random(rows)}
    codec = "none" if how == "checksum" else "snappy"
    write(path, table, row_group_size=10_000, compression=codec, write_page_checksum=True, use_dictionary=False)
    data = path.read_bytes()
    at = len(data) // 2
    spoilt = bytes(byte ^ 0x5A for byte in data[at : at + 64])
    damage = {
        "nothing": b"",
        "magic": b"PAR1",
        "not parquet": b"label,score\n0,0.5\n",
        "truncated": data[:at],
        "cut": data[:-3],
        "footer": data[:-20] + b"\xff" * 12 + data[-8:],
    }
    path.write_bytes(damage.get(how, data[:at] + spoilt + data[at + 64 :]))
    return path


PAGES = ("page", "checksum")


@pytest.mark.parametrize("how", ["nothing", "magic", "not parquet", "truncated", "cut", "footer", *PAGES])
def test_a_damaged_file_is_named_or_left_out_whole(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run by name and cause; under ``skip`` it is listed and none of its rows is counted."""
    monkeypatch.setattr(footers, "GATHER_ROWS", 10_000)
    monkeypatch.setattr(fold, "BATCH_ROWS", 1_000)
    monkeypatch.setattr(fold, "TASK_ROWS", 1)
    whole = [write(tmp_path / f"{name}.parquet", row_group_size=2) for name in "ac"]
    expected = evaluate(whole, score="score")
    bad = corrupt(tmp_path / "b.parquet", how)
    with pytest.raises(CorruptFileError, match=r"b\.parquet: cannot be read: .*on_error='skip'") as caught:
        evaluate(tmp_path, score="score")
    assert caught.value.__cause__ is not None or how in PAGES
    for threads in (1, 2):
        found = evaluate(tmp_path, score="score", on_error="skip", threads=threads)
        [(name, reason)] = found.skipped
        assert name == str(bad)
        assert reason
        assert "\n" not in reason
        assert name not in reason
        assert "".join(f"skipped: {name}: {visible(reason)}".split()) in "".join(str(found).split())
        assert (found.rows, found.positives) == (8, 4)
        assert [r.to_dict() for r in found.results] == [r.to_dict() for r in expected.results]
        assert str(bad) in found.to_json()
    if how not in PAGES:
        with pytest.raises(MissingInputError, match=r"1 skipped, the first \S+\.parquet: "):
            evaluate(bad, score="score", on_error="skip")


@pytest.mark.parametrize(
    ("rows", "places"),  # the footer alone promises them, or its row groups and columns too
    [(0, 1), (10**9, 1), (10**9, -1), (2**62, 1), (2**62, -1)],
)
def test_a_footer_that_promises_other_rows_is_refused(rows: int, places: int, tmp_path: Path) -> None:
    """By name, with both numbers, and without memory for the rows promised; so if it promises none."""

    def encoded(value: int) -> bytes:
        """An int64 field of Thrift's compact protocol: its type, and zigzag bits in groups of seven."""
        found, left = b"\x16", 2 * value
        while left > 127:
            found, left = found + bytes([left & 127 | 128]), left >> 7
        return found + bytes([left])

    few = 7_777
    whole = write(tmp_path / "a.parquet", {"label": np.arange(few) % 2, "score": np.arange(few) / few}).read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert whole[start:].count(encoded(few)) == 4
    footer = whole[start:-8].replace(encoded(few), encoded(rows), places)
    (tmp_path / "a.parquet").write_bytes(whole[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    write(tmp_path / "b.parquet")
    refused(CorruptFileError, tmp_path, "a.parquet", f"{few:,}", f"{rows:,}")


# -- labels -----------------------------------------------------------------------------------------------------------


def labelled(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    """A table with these labels."""
    return pa.table({"label": pa.array(values, kind), "score": np.linspace(0, 1, len(values))})


@pytest.mark.parametrize("values", [[0, 1, 2], [1, 2], [-1, 0], [0.0, 0.5, 1.0], [-2, -1], [Decimal(1), Decimal(2)]])
def test_labels_that_are_not_two_classes_ask_for_the_positive_one(values: list[Any]) -> None:
    """More than two values, or two on the same side of zero, need ``pos_label``."""
    refused(LabelError, labelled(values), "'label'", "pos_label", "--pos-label", str(values[0]))
    assert evaluate(labelled(values), score="score", pos_label=float(values[-1])).positives == 1


def test_labels_are_judged_over_the_whole_data(tmp_path: Path) -> None:
    """Each file alone would do: {0, 1} and {0, 2} are three values, {0} and {1} are two classes."""
    for name, values in (("a", [0, 1]), ("b", [0, 2])):
        pq.write_table(labelled(values), tmp_path / f"{name}.parquet")
    refused(LabelError, tmp_path, "more than two values", "0, 1, 2")
    for name, values in (("a", [0, 0]), ("b", [1, 1])):
        pq.write_table(labelled(values), tmp_path / f"{name}.parquet")
    assert evaluate(tmp_path, score="score").positives == 2


def test_strings_need_a_positive_label() -> None:
    """A string has no sign; a value that does not fit the column's type is refused too."""
    table = labelled(["ham", "spam"])
    refused(LabelError, table, "'label'", "string", "--pos-label")
    assert evaluate(table, score="score", pos_label="spam").positives == 1
    refused(LabelError, labelled([0, 1]), "'spam'", "int64", pos_label="spam")
    for given in ([[]], [1], {1}, {}):  # without a hash
        refused(OptionError, labelled([0, 1]), "pos_label", type(given).__name__, "single value", pos_label=given)
    refused(LabelError, labelled([0, 1]), "1.5", "int64", pos_label=1.5)
    refused(LabelError, labelled([0, 1]), str(10**30), "int64", pos_label=10**30)


def test_null_labels_name_the_file_and_the_remedy(tmp_path: Path) -> None:
    """Null and NaN labels are errors unless dropped; then they leave every metric and are counted."""
    path = tmp_path / "a.parquet"
    for values in ([0, 1, None, 1], [0.0, 1.0, math.nan, 1.0]):
        write(path, GOOD | {"label": values})
        refused(NullError, path, "a.parquet", "'label'", "--unlabelled drop")
        refused(NullError, path, "a.parquet", "'label'", nulls="singleton", cluster="id")
        result = evaluate(path, score="score", cluster="id", unlabelled="drop")
        assert (result.rows, result.dropped) == (3, (("null label", 1),))
        assert {r.rows for r in result.results} == {3}


# -- scores, clusters, weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "column", "values", "words"),
    [
        (NullError, "score", [0.1, None, 0.3, 0.4], ("--nan", "drop", "half")),
        (NullError, "score", [0.1, math.nan, 0.3, 0.4], ("--nan", "drop", "half")),
        (NullError, "id", [1, None, 2, 3], ("--nulls", "drop", "singleton")),
        (WeightError, "weight", [1, None, 2, 3], ("nulls",)),
        *((WeightError, "weight", [1.0, 2.0, bad, math.nan], (str(bad),)) for bad in (-1.0, -1e-300, math.nan)),
        *((WeightError, "weight", [1.0, 2.0, bad, math.nan], (str(bad),)) for bad in (math.inf, -math.inf)),
        (WeightError, "weight", [1e-310, 1.0, 1e-310, 1.0], ("sums to 2e-310 and 2", "scale")),
        (WeightError, "weight", [1.0, 1e308, 1.0, 1.0], ("has the value 1e+308", "scale")),
    ],
)
@pytest.mark.parametrize("approx", [False, True])
def test_bad_values_name_the_file_and_the_remedy(
    error: type[StreamevalError], column: str, values: list[Any], words: tuple[str, ...], approx: bool, tmp_path: Path
) -> None:
    """Nulls and NaN are errors by default; a weight is finite, not negative, and no others leave float64 with it."""
    path = write(tmp_path / "a.parquet", GOOD | {column: values})
    options = {"cluster": "id"} if column == "id" else {column: column, "score": "score"}
    for nan in ("error", "half") if column == "weight" else ("error",):
        refused(error, path, "a.parquet", f"'{column}'", *words, **options, approx=approx, nan=nan)


@pytest.mark.parametrize(
    ("labels", "pos_label", "seen"),
    [
        (["spam", "ham"], "SPAM", "'ham', 'spam'"),
        ([b"spam", b"ham"], b"SPAM", "'ham', 'spam'"),
        ([1, 2], 3, "1, 2"),
        ([0, 1, 2, 3], 7, "0, 1, 2, …"),
    ],
)
def test_an_absent_positive_label_is_refused_with_those_seen(labels: list[Any], pos_label: Any, seen: str) -> None:
    """However the rows are cut; where all rows have one other label, metrics are undefined."""
    table = labelled(labels)
    refused(LabelError, table, "'label'", f"has no label {pos_label!r}".replace("b'", "'"), seen, pos_label=pos_label)
    for batch in (1, 3):
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(batch))
        refused(LabelError, reader, seen, pos_label=pos_label)
    found = evaluate(labelled(labels[:1] * 2), score="score", pos_label=pos_label).results[0]
    assert math.isnan(found.value)
    assert "no row has the label" in str(found.reason)


def test_labels_that_are_not_utf8_are_labels() -> None:
    """Strings are compared by their bytes; in a message they are escaped."""
    raw = pa.array([b"\xff", b"spam", b"\xff", b"spam"])
    table = pa.table({"label": pa.Array.from_buffers(pa.string(), 4, raw.buffers()), "score": [0.1, 0.2, 0.3, 0.4]})
    assert evaluate(table, score="score", pos_label="spam").value("roc_auc") == 0.75
    assert "has no label 'ham'; it has 'spam', '\\udcff'" in refused(LabelError, table, pos_label="ham")


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nan": "ignore"}, ("nan='ignore'", "error, drop, half")),
        ({"nulls": "keep"}, ("nulls='keep'", "error, drop, singleton")),
        ({"cluster_scope": "file"}, ("cluster_scope='file'", "global, partition")),
        ({"on_error": "ignore"}, ("on_error='ignore'", "raise, skip")),
        ({"threads": 0}, ("threads=0", "at least 1")),
        ({"memory": "lots"}, ("'lots'", "2GiB")),
        ({"memory": 0}, ("memory=0", "2GiB")),
        ({"metrics": "roc_uac"}, ("'roc_uac'", "roc_auc, average_precision, pr_auc, max_informedness")),
        ({"metrics": "bryer_*"}, ("'bryer_*'", "roc_auc")),
        ({"score": None, "cluster": "id", "truncate": 0.1, "nan": "drop"}, ("truncate and nan", "(--score)")),
        ({"score": ""}, ("score=''", "a name is empty")),
        ({"score": ["score", ""]}, ("a name is empty",)),
        ({"score": 3}, ("score=3", "a name or a list of names")),
        ({"truncate": "0.1"}, ("truncate='0.1'", "a number or a list of numbers")),
        ({"score": None}, ("--score", "--cluster")),
        ({"spill": 3}, ("spill=3 must be",)),
        ({"progress": 3}, ("progress=3 must be",)),
    ],
)
def test_bad_options_show_what_there_is(options: dict[str, Any], words: tuple[str, ...]) -> None:
    """The message repeats the option and lists what it may be."""
    refused(OptionError, pa.table(GOOD), *words, **options)


def test_arguments_are_what_arrays_hold() -> None:
    """Names and numbers of numpy, alone, in tuples and in arrays, are those of Python."""
    data = pa.table(GOOD | {"other": [1, 2, 3, 4]})
    plain = evaluate(data, score=["score", "other"], cluster="id", truncate=[0.5, 2], aul_threshold=2)
    for names, cuts in (
        (np.array(["score", "other"]), np.array([0.5, 2], np.float32)),
        (("score", np.str_("other")), (np.float32(0.5), np.int64(2))),
    ):
        assert (
            evaluate(data, score=names, cluster="id", truncate=cuts, aul_threshold=np.int32(2)).results == plain.results
        )
    assert evaluate(data, score="score", truncate=np.float32(0.1)).value("agc@0.1") == 1.0


ALL: dict[str, Any] = {"score": "score", "cluster": "id", "classes": "weight", "metrics": ["agc*", "aul"]}
WHOLE = ("threads", "assignment_cells", "quantiles", "sample_seed", "passes")
CLASSES = pa.table(GOOD | {"weight": [1, 1, 2, 2]})


@pytest.mark.parametrize("name", [*WHOLE, "aul_threshold", "truncate", "sample"])
def test_what_is_no_number_is_refused_by_name(name: str) -> None:
    """Text, truth values and objects; where a whole number is due, floats and fractions too."""
    given: list[Any] = ["2", "", True, np.True_, object(), 2 + 0j, [[2]], {2}, b"2"]
    given += [2.5, 2.0, np.float32(2), math.nan, math.inf, Decimal(2)] if name in WHOLE else []
    given += [-1] if name != "sample_seed" else []
    for value in given:
        options = {"approx_agc": name in ("quantiles", "sample_seed", "passes", "sample"), name: value}
        refused(OptionError, CLASSES, f"{name}=", **ALL, **options)


WITHOUT_CLUSTERS = "would change nothing without clusters: name a cluster column (--cluster)"
WITHOUT_SCORES = "would change nothing without scores: name a score column (--score)"
BAD_COMMANDS = [
    ("evaluate DATA --score score --cluster-scope partition", f"--cluster-scope {WITHOUT_CLUSTERS}"),
    ("evaluate DATA --cluster id --truncate 0.1 --nan drop", f"--truncate and --nan {WITHOUT_SCORES}"),
    ("evaluate DATA --cluster id --approx", f"--approx {WITHOUT_SCORES}"),
    ("evaluate DATA --score score --classes id", f"--classes {WITHOUT_CLUSTERS}"),
    (
        "evaluate DATA --score score --sample-seed 5",
        "--sample-seed would change nothing without the sampled gain area: set --approx-agc",
    ),
    ("evaluate DATA --score score --score=", "--score '': a name is empty; leave it out"),
    (
        "evaluate DATA --score score --cluster id --aul-threshold -1",
        "--aul-threshold -1.0 is not a cluster size, a number of",
    ),
    ("simulate DATA --rows 5", "OUT 'DATA' is not empty; name another directory, or set --overwrite"),
    ("simulate NEW --rows 5 --noise 0.9 --missed 0.8", "--noise 0.9 and --missed 0.8 exceed all rows; let their sum"),
    ("update STORE DATA --approx", "--approx contradicts the store's value, False; leave it out, or"),
    (
        "update STORE DATA --cluster-scope partition",
        "--cluster-scope 'partition' contradicts the store's value, 'global';",
    ),
    ("show STORE --aul-threshold 3", f"--aul-threshold {WITHOUT_CLUSTERS}"),
    ("show STORE --last 0", "--last 0 is not a whole number of at least 1"),
    ("show STORE --since 2026-01-01", "label=1: the name of this partition has no date; select it with --partition"),
    ("history STORE --metric roc_auc --of scor", "roc_auc: no column 'scor'; did you mean 'score'? the store keeps"),
]


@pytest.mark.parametrize(("command", "message"), BAD_COMMANDS, ids=[command for command, _ in BAD_COMMANDS])
def test_every_command_speaks_of_its_options(command: str, message: str, tmp_path: Path) -> None:
    """Wherever in the message an argument of Python is named: by its value, alone, or as one of several."""
    places = {name: str(tmp_path / name.lower()) for name in ("DATA", "STORE", "NEW")}
    (tmp_path / "data" / "label=1").mkdir(parents=True)  # what begins a message is a file's name, where it is one
    write(tmp_path / "data" / "label=1" / "a.parquet")
    if "STORE" in command:
        Store(places["STORE"]).update(places["DATA"], score=["score", "weight"])
    done = run(*[places.get(word, word) for word in command.split()])
    assert done.exit_code == 2
    for name, path in places.items():
        message = message.replace(name, path)
    assert done.stderr.startswith(f"streameval: error: {message}")


def test_errors_of_data_speak_of_options_and_of_files(tmp_path: Path) -> None:
    """A path is never mistaken for an argument."""
    folder = tmp_path / "label=1"
    folder.mkdir()
    write(folder / "a.parquet", GOOD | {"score": [0.1, None, 0.3, 0.4]})
    with contextlib.chdir(tmp_path):
        done = run("evaluate", "label=1/a.parquet", "--score", "score")
        assert done.exit_code == 1
        assert done.stderr.startswith("streameval: error: label=1/a.parquet: score column 'score' has NaN or null")
        assert done.stderr.endswith("choose --nan 'drop'; for roc_auc, agc and gini, evaluate also takes 'half'\n")
        write(folder / "b.parquet", GOOD | {"label": [0, 1, None, 1]})
        done = run("evaluate", "label=1/b.parquet", "--score", "score")
        assert "'drop' to leave those rows out; for clusters, evaluate also takes 'size'" in done.stderr
        done = run("evaluate", "label=1/a.parquet", "--score", "score", "--pos-label", "spam")
        assert "label=1/a.parquet: --pos-label 'spam' is not a value of label column 'label'" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize(("to", "name"), [("-", "stdout"), ("/dev/full", "/dev/full")])
def test_results_that_cannot_be_written_are_one_line(to: str, name: str, tmp_path: Path) -> None:
    """A full disk under a file or under stdout: status 1 and the reason."""
    command = [sys.executable, "-m", "streameval", "evaluate", str(write(tmp_path / "a.parquet")), "--score", "score"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, "--quiet", "--json", to], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        f"streameval: error: {name}: cannot be written (No space left on device)\n",
    )


def test_asking_for_what_was_not_computed_lists_what_was() -> None:
    """Values, intervals and curves that are not there are refused by name."""
    result = evaluate(pa.table(GOOD | {"other": [1, 2, 3, 4]}), score=["score", "other"], metrics="roc_*")
    refuses(OptionError, r"aul was not computed; there are: roc_auc of score, other", result.value, "aul")
    with pytest.raises(OptionError, match=r"roc_auc of others was not computed; it was computed for score, other$"):
        result.value("roc_auc", "others")
    refuses(OptionError, r"roc_auc was computed for score, other; say which with of=", result.value, "roc_auc")
    refuses(OptionError, r"no curve 'calibration'; there are roc", result.curve, "calibration")
    refuses(OptionError, "name the score column", result.curve, "roc")
    refuses(OptionError, "no lift curve, since no cluster column was evaluated", result.curve, "lift")
    sent = pickle.loads(pickle.dumps(result))
    for ask in (lambda: sent.curve("roc", "score"), lambda: sent.confusion(0.5, "score")):
        refuses(OptionError, "needs the counts of the run, which stay in its process", ask)
    sampled = evaluate(pa.table(GOOD), score="score", approx_agc=True, metrics="agc_approx")
    refuses(OptionError, "no roc curve, since none of its metrics was asked for: add roc_auc", sampled.curve, "roc")


# -- what a call lacks ------------------------------------------------------------------------------------------------


def test_a_missing_column_of_labels_says_how_to_name_one(tmp_path: Path) -> None:
    """Other columns are an error of their own."""
    columns = {name: values for name, values in GOOD.items() if name != "label"}
    refused(MissingColumnError, write(tmp_path / "x.parquet", columns), "x.parquet", "'label'", "(--label)")
    pairs = {"score": None, "cluster": "id", "classes": "id"}
    refused(MissingColumnError, pa.table(columns), "--metric classes", metrics=["classes", "aul"], **pairs)
    assert "--label" not in refused(MissingColumnError, pa.table(GOOD), "'y'", label="y")
    told = refused(MissingColumnError, write(tmp_path / "no column 'label'; it has.parquet", GOOD), "'w'", weight="w")
    assert "--label" not in told  # the column decides, not the text of the message


@pytest.mark.parametrize("label", [[0, 1], [0.0, 1.0], ["a", "b"], [True, False]])
def test_a_positive_label_that_is_no_text_is_refused(label: list[Any]) -> None:
    """The shell may give bytes that are no UTF-8; Arrow raised a raw UnicodeEncodeError."""
    with pytest.raises(LabelError, match=r"pos_label=.* is not a value of label column 'label'"):
        evaluate(pa.table({"label": label, "score": [0.1, 0.2]}), score="score", pos_label="\udce9")


def test_a_path_with_a_null_byte_is_refused(tmp_path: Path) -> None:
    """Whatever it names; Python raised a raw ValueError."""
    table = pa.table({"label": [0, 1], "score": [0.1, 0.2]})
    for call in (
        lambda: evaluate("a\0b", score="score"),
        lambda: evaluate(table, score="score").save(f"{tmp_path}/a\0b.json"),
        lambda: Store(tmp_path / "store").update("a\0b", score="score"),
    ):
        refuses(OptionError, "a path cannot have a null byte", call)


@pytest.mark.parametrize("name", ["unsupported", "errno 13", "(os error 13)", "Error ACCESS_DENIED", "not supported"])
def test_the_name_of_a_file_is_not_the_reason(tmp_path: Path, name: str) -> None:
    """Arrow's messages have names in them; what is damaged must be replaced, whatever it is called."""
    (tmp_path / name).mkdir()
    path, good = tmp_path / name / f"{name}.parquet", write(tmp_path / name / "good.parquet")
    for content in (b"", b"no Parquet at all"):
        path.write_bytes(content)
        assert "replace or remove it" in refused(CorruptFileError, path)
        with pytest.raises(CorruptFileError, match="; replace or remove it; "):
            Store(tmp_path / "store").update([good, path], score="score")


def test_a_path_like_an_option_stays_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions may be named as arguments are."""
    monkeypatch.chdir(tmp_path)
    for folder, scores in (("label=1", [0.1, 0.2]), ("score=2", ["a", "b"])):
        Path(folder).mkdir()
        pq.write_table(pa.table({"label": [0, 1], "s": scores}), f"{folder}/a.parquet")
    files = ["label=1/a.parquet", "score=2/a.parquet"]
    told = run("evaluate", *files, "--score", "s").stderr
    assert "score=2/a.parquet: column 's' is string, but double in label=1/a.parquet:" in told
    Path(files[1]).write_text("no Parquet")
    told = run("evaluate", files[1], "--score", "s", "--on-error", "skip").stderr
    assert "the first score=2/a.parquet: " in told


def test_a_slice_is_a_mapping() -> None:
    """The message gives one that the results have."""
    found = evaluate(pa.table(GOOD), score="score", by="id")
    with pytest.raises(OptionError, match=r"slice='1' must map each slicing column to a value, such as \{'id': 1\}"):
        found.value("roc_auc", slice="1")


def test_explain_takes_the_arguments_of_evaluate() -> None:
    """All of them are refused; for an unknown one the message names the function."""
    table = pa.table(GOOD)
    everything = {name: value.default for name, value in inspect.signature(evaluate).parameters.items()}
    everything |= {"data": table, "score": "score", "progress": print}
    assert explain(**everything) == explain(table, score="score")
    with pytest.raises(TypeError, match=r"explain\(\) got an unexpected keyword argument 'clustr'; .* of evaluate\(\)"):
        explain(table, clustr="id")
    with pytest.raises(TypeError, match=r"explain\(\) got an unexpected keyword argument 'sampling'"):
        explain(table, score="score", sampling=None)
    refuses(OptionError, "threads=0", explain, table, score="score", threads=0)


def test_arguments_that_are_meant_are_named() -> None:
    """A misspelt keyword by its nearest, arrays by the functions that take them."""
    calls: list[tuple[Callable[..., object], dict[str, Any], str]] = [
        (evaluate, {"metric": "roc_auc"}, r"evaluate\(\) .* 'metric'; did you mean 'metrics'\?$"),
        (
            evaluate,
            {"scores": "a", "metric": "b"},
            r" 'scores'; did you mean 'score'\? and an .* 'metric'; did you mean",
        ),
        (evaluate, {"unlabeled": "drop"}, "did you mean 'unlabelled'"),
        (attribute, {"scores": "score"}, r"attribute\(\) .* did you mean 'score'"),
        (attribute, {"slices": "country"}, r"attribute\(\) .* 'slices'; did you mean 'by'"),
        (churn, {"clusters": "id"}, r"churn\(\) .* did you mean 'cluster'"),
        (roc_auc_score, {"sample_weights": 1}, r"roc_auc_score\(\) .* did you mean 'sample_weight'\?$"),
        (roc_auc_score, {"y_pred": 1}, r"roc_auc_score\(\) .* did you mean 'y_score'\?$"),
    ]
    for function, options, message in calls:
        refuses(TypeError, message, function, pa.table(GOOD), **options)
    with pytest.raises(TypeError, match=r"too many positional arguments; columns are named.* roc_auc_score\(y_true"):
        evaluate([0, 1], [0.1, 0.2])  # type: ignore[misc]  # what a user of scikit-learn writes
    refused(OptionError, pa.table(GOOD), "score=[0.1, 0.2] must be a name", "roc_auc_score", score=[0.1, 0.2])
    with pytest.raises(TypeError, match=r"columns are named, as in churn\(data, cluster='cluster'\)$"):
        churn("data", "id")  # type: ignore[misc]  # as above
    for given in (np.arange(100), [0, 1]):
        refused(OptionError, pa.table(GOOD), "must be the name of a column; roc_auc_score", label=given)
    refused(OptionError, pa.table(GOOD), "metric 'ari' (adjusted_rand_index) needs a cluster column", metrics="ari")
    refused(OptionError, pa.table(GOOD), "no metric is named 'auc'; did you mean 'roc_auc'?", metrics="auc")
