"""Symbolic links, paths named twice, and the files that other tools leave behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from streameval import Store, evaluate
from streameval.errors import DataError, MissingInputError
from streameval.scan import locate, plan, read

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_store_counts_a_linked_night_once(tree: Path, tmp_path: Path) -> None:
    """Also when the link is named later, by itself."""
    store = Store(tmp_path / "store")
    (tree / "latest").symlink_to("night=2026-01-02")
    store.update(tree, score="score")
    store.update(tree / "latest")
    assert store.evaluate().rows == 6


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
        with pytest.raises(DataError, match=r"data/self: a symbolic link that leads back to .*; remove it"):
            plan(data, ["score"])
    assert plan(f"{tree}/night*", ["score"]).rows == 6


def test_loops_of_several_links(tree: Path) -> None:
    """Two directories that link to each other, and a link to itself."""
    (tree / "night=2026-01-01" / "next").symlink_to("../night=2026-01-02")
    (tree / "night=2026-01-02" / "back").symlink_to("../night=2026-01-01")
    with pytest.raises(DataError, match="leads back"):
        plan(tree / "night=2026-01-01", ["score"])
    (tree / "night=2026-01-02" / "back").unlink()
    (tree / "round").symlink_to("round")
    with pytest.raises(DataError, match=r"data/round: a symbolic link that leads back to itself"):
        plan(tree, ["score"])


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


def test_row_groups_of_a_dataset_are_not_one_file(tmp_path: Path) -> None:
    """Fragments of one file with different row groups are refused rather than read in part."""
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=1)
    one = next(iter(pads.dataset(tmp_path / "a.parquet").get_fragments()))
    parts = [one.subset(row_group_ids=[0]), one.subset(row_group_ids=[1])]
    dataset = pads.FileSystemDataset(parts, one.physical_schema, one.format, one.filesystem)
    with pytest.raises(DataError, match=r"a.parquet: named more than once, with other row groups"):
        plan(dataset, ["score"])
    assert plan([dataset_of(one), dataset_of(one)], ["score"]).rows == 4


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
    with pytest.raises(MissingInputError):
        plan(f"{tmp_path}{pattern}", ["score"])
    pq.write_table(TABLE, tmp_path / name)
    assert plan(f"{tmp_path}{pattern}", ["score"]).rows == 4


def test_what_is_named_outright_is_read(tmp_path: Path) -> None:
    """A hidden or temporary file that a path or pattern spells; partitions of a key that begins with _."""
    for name in ("b.parquet.part", "_c", "_night=1/d.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(TABLE, tmp_path / name)
    for pattern in ("b.parquet.part", "*.part", "_[c]", "_c", ""):
        assert [file.size for file in locate(f"{tmp_path}/{pattern}")][1:] == []
    assert plan(tmp_path, ["_night"]).pieces[0].partition == "_night=1"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """By its name, by a pattern and through a link: a reader would wait for a writer, and Ctrl-C would not end it."""
    pipe, link = tmp_path / "pipe.parquet", tmp_path / "link.parquet"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for data in (pipe, f"{tmp_path}/p*.parquet", link):
        with pytest.raises(DataError, match=r"\.parquet: is neither a file nor a directory"):
            plan(data, ["score"])
