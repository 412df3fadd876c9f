"""What lies in a data directory is read, known as another tool's marker, or named: nothing is left out in silence."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import Store, evaluate
from streameval.cli import main
from streameval.errors import CorruptFileError, MissingInputError
from streameval.evaluation import explain
from streameval.evaluation.quantile_sketch import quantile_sketch
from streameval.scan import locate, plan
from streameval.scan.files import walk

TABLE = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.8, 0.35, 0.35]})
OTHERS = {"README.txt": b"about these data", "night=2/data.csv": b"label,score\n1,0.5\n", "night=2/000007_0": b""}


def write(path: Path) -> Path:
    """Write four rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(TABLE, path)
    return path


def put(root: Path, others: dict[str, bytes] = OTHERS) -> Path:
    """Two nights, one with a suffix and one of Hive, and files that are not Parquet."""
    write(root / "night=1" / "part-0.parquet")
    write(root / "night=2" / "000000_0")
    for name, content in others.items():
        (root / name).write_bytes(content)
    return root


NAMES = [
    "000000_0", "000000_0_copy_1", "part-0.parquet.gz", "p.PARQUET", "p.Pq", "part-00000-6f1e-c000.snappy", "scores",
    "x.parquet.v2", "1", "a.b=c", "p.dat", "P.parquet.GZ",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ["", "/*", "/**", "/night=*", "/night=*/*"])
@pytest.mark.parametrize("name", NAMES)
def test_parquet_of_any_name_is_read(tmp_path: Path, name: str, pattern: str) -> None:
    """Beside files with a suffix, or links to such files, in any order of directories."""
    write(tmp_path / "night=1" / "part-9.parquet")
    path = write(tmp_path / "night=2" / name)
    (tmp_path / "night=0").mkdir()
    (tmp_path / "night=0" / f"l{name}").symlink_to(write(tmp_path / ".hidden" / name))
    scan = plan(f"{tmp_path}{pattern}", ["score"])
    assert (scan.rows, scan.skipped) == (12, ())
    assert str(path) in {piece.name for piece in scan.pieces}


@settings(max_examples=25)
@given(st.dictionaries(st.from_regex(r"[a-zA-Z0-9.~=_-]{1,9}", fullmatch=True), st.binary(max_size=9)))
def test_every_file_is_read_hidden_or_named(tmp_path_factory: pytest.TempPathFactory, found: dict[str, bytes]) -> None:
    """The kinds of the names of files that are left out are told, with the number of files."""
    root = tmp_path_factory.mktemp("data")
    write(root / "a.parquet")
    for name, content in found.items():
        if name not in (".", "..", "a.parquet"):
            (root / name).write_bytes(content)
    names = [name for name in found if name not in (".", "..", "a.parquet")]
    plain = [n for n in names if n[0] not in "._" or (n[0] == "_" and "=" in n)]
    plain = [n for n in plain if not n.lower().endswith((*walk.SUFFIXES, "~"))]
    try:
        scan = plan(root, ["score"], on_error="skip")
    except CorruptFileError as error:
        pytest.fail(str(error))
    told = {walk._NUMBERS.sub("#", Path(name).name) for name, _ in scan.skipped}
    assert {walk._NUMBERS.sub("#", name) for name in plain} <= told


def test_other_files_are_named_with_their_number(tmp_path: Path) -> None:
    """One item for each kind of name, however many files there are."""
    put(tmp_path)
    for night in range(10, 50):
        write(tmp_path / f"night={night}" / "000000_0")
        (tmp_path / f"night={night}" / f"stats-{night}.json").write_bytes(b"{}")
    found = dict(plan(tmp_path, ["score"]).skipped)
    assert list(found) == [
        str(tmp_path / name)
        for name in ("night=2/000007_0", "README.txt", "night=10/stats-10.json", "night=2/data.csv")
    ]
    assert found[str(tmp_path / "night=2/000007_0")].startswith("empty; ")
    assert found[str(tmp_path / "README.txt")].startswith("not Parquet, which begins with PAR1; ")
    assert found[str(tmp_path / "night=10/stats-10.json")].startswith("40 files of such a name are not Parquet")


@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_the_pattern_that_is_told_excludes_them(tmp_path: Path, suffix: str) -> None:
    """With the same partitions."""
    for night in ("night=1", "night=2"):
        write(tmp_path / night / f"a{suffix}")
    for name in (*OTHERS, f"night=1/a{suffix}.bak"):
        (tmp_path / name).write_bytes(b"other")
    skipped = plan(tmp_path, ["score"]).skipped
    assert len(skipped) == 4
    for _, why in skipped:
        pattern = next(word for word in why.split() if "*" in word)
        scan = plan(f"{tmp_path}/{pattern}", ["score"])
        assert (scan.skipped, [piece.partition for piece in scan.pieces]) == ((), ["night=1", "night=2"])


def test_no_pattern_is_told_that_excludes_data(tmp_path: Path) -> None:
    """Whose names have no suffix, all or some."""
    put(tmp_path)
    for _ in range(2):
        skipped = plan(tmp_path, ["score"]).skipped
        assert all(why.endswith("; remove such files, or name the files to read") for _, why in skipped)
        (tmp_path / "night=1" / "part-0.parquet").unlink(missing_ok=True)
    assert plan([f"{tmp_path}/night=2/000000_0"], ["score"]).skipped == ()


def test_names_that_look_like_numbers_are_kinds_of_their_own(tmp_path: Path) -> None:
    """A text c2 is no damaged neighbour of the Parquet file f1; UUIDs and hashes of one writer are one kind."""
    write(tmp_path / "f1")
    (tmp_path / "c2").write_bytes(b"text")
    scan = plan(tmp_path, ["score"])
    assert (scan.rows, [Path(name).name for name, _ in scan.skipped]) == (4, ["c2"])
    for form in ("part-{0}-{1}-c000.gz", "{2}_data.{0}", "{2}-{2}_{0}", "{0}_0"):
        names = {form.format(i, uuid4(), uuid4().hex[:16]) for i in range(20)}
        assert len({walk._NUMBERS.sub("#", name) for name in names}) == 1, form


def test_many_files_are_told_by_those_that_were_opened(tmp_path: Path) -> None:
    """The reason says how many, also if nothing else is there."""
    for i in range(40):
        (tmp_path / f"log{i}.txt").write_bytes(b"text")
    with pytest.raises(MissingInputError, match=r"log0\.txt: 40 files of such a name are not Parquet, .* \(14 of them"):
        plan(tmp_path, ["score"])


def test_a_copy_is_not_counted_twice(tmp_path: Path) -> None:
    """It is named; it is read if it has another name, or if a pattern spells it."""
    copy = write(put(tmp_path, {}) / "night=1" / "part-0.parquet.bak")
    scan = plan(tmp_path, ["score"])
    assert (scan.rows, [name for name, _ in scan.skipped]) == (8, [str(copy)])
    assert plan(f"{tmp_path}/*/*.bak", ["score"]).rows == 4
    copy.rename(copy.with_name("part-1"))
    assert plan(tmp_path, ["score"]).rows == 12


@pytest.mark.parametrize("content", [b"PAR1", b"PARE and more", b"PAR1" + bytes(90), bytes(90)])
def test_a_damaged_file_of_a_kind_that_is_read_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whether its first bytes are damaged or others: its neighbour of such a name is Parquet."""
    (put(tmp_path, {}) / "night=2" / "000001_0").write_bytes(content)
    with pytest.raises(CorruptFileError, match="000001_0: cannot be read"):
        plan(tmp_path, ["score"])
    assert plan(tmp_path, ["score"], on_error="skip").rows == 8


def test_without_parquet_the_error_names_what_is_there(tmp_path: Path) -> None:
    """Also if a pattern matches nothing else; a file that is named outright is refused as damaged."""
    (tmp_path / "data.csv").write_bytes(b"label,score\n")
    for data in (tmp_path, f"{tmp_path}/*.csv"):
        with pytest.raises(MissingInputError, match=r"no Parquet files; \S*data\.csv: not Parquet, .* convert"):
            plan(data, ["score"])
    with pytest.raises(CorruptFileError, match=r"data\.csv: cannot be read"):
        plan(tmp_path / "data.csv", ["score"])


def test_few_files_of_a_kind_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One if the first one opened is Parquet, since each takes requests in object storage; else a few."""
    opened: list[str] = []
    real = walk._is_parquet
    monkeypatch.setattr(walk, "_is_parquet", lambda file, fs: opened.append(file.path) or real(file, fs))
    for night in range(100):
        write(tmp_path / f"night={night}" / f"00000{night % 2}_0")
        (tmp_path / f"night={night}" / "stats.json").write_bytes(b"{}")
    assert len(locate(str(tmp_path))) == 100
    assert sum(path.endswith("_0") for path in opened) == 1
    assert sum(path.endswith(".json") for path in opened) <= walk.OPENED


def test_every_verb_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In `skipped` where the result has it, else in the log, which the command line prints on stderr."""
    data, store = put(tmp_path / "data"), Store(tmp_path / "store")
    named = {str(data / name) for name in OTHERS}
    assert {name for name, _ in evaluate(data, score="score", metrics=["roc_auc"]).skipped} == named
    planned = explain(data, score="score", metrics=["roc_auc"])
    assert {name for name, _ in planned.skipped} == named
    assert all(f"skips  {name}: " in str(planned) for name in named)
    for work in (
        lambda: quantile_sketch(data, "score"),
        lambda: store.plan("update", data=data, score="score", metrics=["roc_auc"]),
        lambda: store.update(data, score="score", metrics=["roc_auc"]),
        lambda: store.update(data),
        lambda: CliRunner().invoke(main, ["evaluate", str(data)]),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "streameval"):
            work()
        assert {record.getMessage().partition(" is left out: ")[0] for record in caplog.records} == named
        assert len(caplog.records) == len(named)
    assert [entry.files for entry in store.partitions()] == [1, 1]
    assert not any(entry.incomplete for entry in store.partitions())


def test_a_night_of_hive_counts_in_a_store(tmp_path: Path) -> None:
    """And is folded again when another file without a suffix comes."""
    data, store = put(tmp_path / "data", {}), Store(tmp_path / "store")
    assert store.update(data, score="score", metrics=["roc_auc"]).new == ("night=1", "night=2")
    write(data / "night=1" / "000000_0_copy_1")
    assert store.update(data).changed == ("night=1",)
    assert store.evaluate().rows == 12
