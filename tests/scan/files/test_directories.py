"""Directories: links, loops, and which of the files in them are Parquet."""

import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run
from pyarrow import fs
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import CorruptFileError, DataError, MissingInputError
from streameval.evaluation import explain
from streameval.evaluation.quantile_sketch import quantile_sketch
from streameval.scan import locate, plan, read
from streameval.scan.faults import unreadable
from streameval.scan.files import walk
from streameval.scan.files.uris import PATIENCE, Uri

TABLE = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.9, 0.4, 0.3]})
NIGHTS = {"night=2026-01-01": 2, "night=2026-01-02": 4}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two nights of two and four rows."""
    for night, rows in NIGHTS.items():
        (tmp_path / "data" / night).mkdir(parents=True)
        pq.write_table(TABLE.slice(0, rows), tmp_path / "data" / night / "a.parquet")
    return tmp_path / "data"


def rows_by_partition(data: Any) -> dict[str, int]:
    """Rows that a scan reads of each partition."""
    scan = plan(data, ["score", "night"])
    return {p.partition: sum(batch.num_rows for batch in read(p, scan.schema)) for p in scan.pieces}


@pytest.mark.parametrize("spell", [lambda d: d, lambda d: f"{d}/*", lambda d: f"{d}/**", lambda d: f"{d}/**/*.parquet"])
def test_a_link_beside_its_target_adds_nothing(tree: Path, spell: Any) -> None:
    """``latest -> night=2026-01-02`` is that night, whichever of the two sorts first, and so is a link to its file."""
    (tree / "latest").symlink_to("night=2026-01-02")
    (tree / "Zlatest").symlink_to("night=2026-01-02")
    (tree / "z").mkdir()
    (tree / "z" / "newest.parquet").symlink_to(tree / "night=2026-01-02" / "a.parquet")
    assert rows_by_partition(spell(tree)) == NIGHTS


def test_a_link_is_a_way_to_what_lies_elsewhere(tree: Path, tmp_path: Path) -> None:
    """A linked directory is read under the link's name; so is a link to a link; a hard link is a separate file."""
    elsewhere = tmp_path / "disk" / "x"
    elsewhere.mkdir(parents=True)
    pq.write_table(TABLE.slice(0, 3), elsewhere / "b.parquet")
    (tmp_path / "hop").symlink_to(elsewhere)
    (tree / "night=2026-01-03").symlink_to(tmp_path / "hop")
    (tree / "night=2026-01-01" / "hard.parquet").hardlink_to(tree / "night=2026-01-02" / "a.parquet")
    scan = plan(tree, ["score", "night"])
    assert [(piece.partition, piece.rows) for piece in scan.pieces] == [
        ("night=2026-01-01", 2),
        ("night=2026-01-01", 4),
        ("night=2026-01-02", 4),
        ("night=2026-01-03", 3),
    ]


@pytest.mark.parametrize("target", [".", "..", "night=2026-01-01/../.."])
def test_a_loop_is_refused_by_name(tree: Path, target: str) -> None:
    """A link to a directory above it, in a walk and in a pattern, unless it is not asked for."""
    (tree / "self").symlink_to(target)
    for data in (tree, f"{tree}/**", f"{tree}/s*"):
        refuses(DataError, r"data/self: a symbolic link that leads back to .*; remove it", plan, data, ["score"])
    assert plan(f"{tree}/night*", ["score"]).rows == 6


def test_a_link_to_nothing_is_refused(tree: Path) -> None:
    """Rows that lie behind it are not left out in silence; hidden links, such as an editor's locks, are."""
    (tree / ".#lock").symlink_to("nobody@nowhere")
    assert plan(tree, ["score"]).rows == 6
    (tree / "night=2026-01-03").symlink_to("/nowhere/night")
    with pytest.raises(
        MissingInputError, match=r"night=2026-01-03: a symbolic link to /nowhere/night, which does not exist"
    ):
        plan(tree, ["score"])


def test_what_is_named_twice_is_read_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same path, spelled otherwise, by a pattern, through a link, as a dataset; in the order first named."""
    monkeypatch.chdir(tree)
    (tree.parent / "link").symlink_to(tree)
    night, other = (tree / name for name in NIGHTS)
    again = [other, f"{tree}/x/../{other.name}", f"{tree}/*/a.parquet", tree.parent / "link", other.as_uri(), "."]
    again += [pads.dataset(str(other / "a.parquet"))]
    scan = plan([other, *again, night], ["score"])
    assert [piece.rows for piece in scan.pieces] == [4, 2]
    assert evaluate([tree, *again], score="score").rows == 6
    linked_first = plan([tree.parent / "link", tree], ["score"])
    assert [piece.name for piece in linked_first.pieces] == [str(folder / "a.parquet") for folder in (night, other)]


def dataset_of(fragment: Any) -> pads.Dataset:
    """A dataset of one fragment."""
    return pads.FileSystemDataset([fragment], fragment.physical_schema, fragment.format, fragment.filesystem)


LEFT_BEHIND = [
    "_SUCCESS", "_temporary/0/b.parquet", "_committed_123", "_metadata", ".c.parquet", ".a.parquet.crc",
    "a.parquet.crc",
    "b.parquet.part", "b.parquet.tmp", "part-0.inprogress", "b.parquet._COPYING_", "b.crdownload", "b.parquet~",
    "_delta_index/b.parquet", ".ipynb_checkpoints/b.parquet",
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.parquet", "a"])
@pytest.mark.parametrize("pattern", ["", "/*", "/**"])
def test_what_other_tools_leave_behind_is_not_read(tmp_path: Path, name: str, pattern: str) -> None:
    """Markers, checksums and unfinished files, whether the data have a suffix or not."""
    for left in LEFT_BEHIND:
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE, tmp_path / left)
    refuses(MissingInputError, "", plan, f"{tmp_path}{pattern}", ["score"])
    pq.write_table(TABLE, tmp_path / name)
    assert plan(f"{tmp_path}{pattern}", ["score"]).rows == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """By its name, by a pattern and through a link: a reader would wait for a writer, and Ctrl-C would not end it."""
    pipe, link = tmp_path / "pipe.parquet", tmp_path / "link.parquet"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for data in (pipe, f"{tmp_path}/p*.parquet", link):
        refuses(DataError, r"\.parquet: is neither a file nor a directory", plan, data, ["score"])


FOUR_ROWS = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.8, 0.35, 0.35]})
OTHERS = {"README.txt": b"about these data", "night=2/data.csv": b"label,score\n1,0.5\n", "night=2/000007_0": b""}


def write(path: Path) -> Path:
    """Write four rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(FOUR_ROWS, path)
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


@pytest.mark.parametrize("content", [b"PAR1", b"PARE and more", b"PAR1" + bytes(90), bytes(90)])
def test_a_damaged_file_of_a_kind_that_is_read_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whether its first bytes are damaged or others: its neighbour of such a name is Parquet."""
    (put(tmp_path, {}) / "night=2" / "000001_0").write_bytes(content)
    refuses(CorruptFileError, "000001_0: cannot be read", plan, tmp_path, ["score"])
    assert plan(tmp_path, ["score"], on_error="skip").rows == 8


def test_without_parquet_the_error_names_what_is_there(tmp_path: Path) -> None:
    """Also if a pattern matches nothing else; a file that is named outright is refused as damaged."""
    (tmp_path / "data.csv").write_bytes(b"label,score\n")
    for data in (tmp_path, f"{tmp_path}/*.csv"):
        with pytest.raises(MissingInputError, match=r"no Parquet files; \S*data\.csv: it is a CSV file, .* convert"):
            plan(data, ["score"])
    refuses(CorruptFileError, r"data\.csv: cannot be read", plan, tmp_path / "data.csv", ["score"])


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
        lambda: run("evaluate", str(data)),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "streameval"):
            work()
        assert {record.getMessage().partition(" is left out: ")[0] for record in caplog.records} == named
        assert len(caplog.records) == len(named)
    assert [entry.files for entry in store.partitions()] == [1, 1]
    assert not any(entry.incomplete for entry in store.partitions())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("gs://bucket/scores", PATIENCE),
        ("gs://anonymous@bucket/scores?scheme=http", PATIENCE),
        ("gcs://bucket/scores?retry_limit_seconds=120", 120),
    ],
)
def test_requests_are_repeated_for_some_seconds(text: str, seconds: int) -> None:
    """Unless the URI says for how long."""
    uri = Uri.parse(text)
    filesystem, path = fs.FileSystem.from_uri(uri.opening(uri.path))
    assert filesystem.__reduce__()[1][0]["retry_time_limit"] == timedelta(seconds=seconds)
    assert path == "bucket/scores"


def test_other_storage_is_opened_as_it_is_named() -> None:
    """Its options are its own."""
    uri = Uri.parse("s3://bucket/scores?region=eu")
    assert uri.opening(uri.path) == "s3://bucket/scores?region=eu"


def test_silence_is_told_with_its_cause_and_what_to_do() -> None:
    """What the client says has a kilobyte, most of it about itself."""
    said = (
        "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of PerformWork() - CURL error "
        "[6]=Could not resolve hostname error_info={reason=, domain=, metadata={gcloud-cpp.retry.on-entry=false}})"
    )
    assert str(unreadable("gs://bucket/scores", OSError(said))) == (
        "gs://bucket/scores: the storage does not answer: PerformWork() - CURL error [6]=Could not resolve hostname; "
        "check the network and the credentials, or wait longer with ?retry_limit_seconds=120 in the URI"
    )


def test_row_groups_of_a_dataset_are_not_one_file(tmp_path: Path) -> None:
    """Fragments of one file with different row groups are refused rather than read in part."""
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=1)
    one = next(iter(pads.dataset(tmp_path / "a.parquet").get_fragments()))
    parts = [one.subset(row_group_ids=[0]), one.subset(row_group_ids=[1])]
    dataset = pads.FileSystemDataset(parts, one.physical_schema, one.format, one.filesystem)
    refuses(DataError, r"a.parquet: named more than once, with other row groups", plan, dataset, ["score"])
    assert plan([dataset_of(one), dataset_of(one)], ["score"]).rows == 4


def test_loops_of_several_links(tree: Path) -> None:
    """Two directories that link to each other, and a link to itself."""
    (tree / "night=2026-01-01" / "next").symlink_to("../night=2026-01-02")
    (tree / "night=2026-01-02" / "back").symlink_to("../night=2026-01-01")
    refuses(DataError, "leads back", plan, tree / "night=2026-01-01", ["score"])
    (tree / "night=2026-01-02" / "back").unlink()
    (tree / "round").symlink_to("round")
    refuses(DataError, r"data/round: a symbolic link that leads back to itself", plan, tree, ["score"])


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
