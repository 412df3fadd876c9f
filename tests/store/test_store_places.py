"""A store and its data are two places; what is refused leaves nothing behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest
from nightly import FEW, NIGHTS, land
from processes import obey_permissions

from streameval import Store
from streameval.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path):
    """Two nights."""
    for name in NIGHTS[:2]:
        land(name, tmp_path / "data")
    return tmp_path / "data"


def tree(folder: Path) -> list[str]:
    """Everything in a directory."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("store", "named", "message"),
    [
        ("data/store", "data", "it lies in its data"),
        ("data", "data", "the data .* lie in it"),
        ("data/.store", "data", "it lies in its data"),
        (".", "data", "the data .* lie in it"),
        ("link/store", "data", "it lies in its data"),
        (".", "data/*", "the data .* lie in it"),
        ("other", "data", r"holds other files \(notes.txt\); give the store its own directory"),
    ],
)
def test_a_store_in_the_wrong_place_is_refused_before_anything_is_written(data, tmp_path, store, named, message):
    """Inside its data, around it, the same place by another name, at a directory with other files."""
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    for verb in (lambda s, d: s.update(d, **FEW), lambda s, d: s.update(d, dry_run=True, **FEW)):
        with pytest.raises(OptionError, match=message):
            verb(Store(tmp_path / store), tmp_path / named)
    assert tree(tmp_path) == before


def test_a_pattern_that_meets_the_store_is_refused(data, tmp_path):
    """It would fold the store's own files."""
    shutil.move(data, tmp_path / "in" / "data")
    store = Store(tmp_path / "in" / "store")
    store.update(tmp_path / "in" / "data", **FEW)
    with pytest.raises(OptionError, match="which the data name, lies in it"):
        store.update([tmp_path / "in" / "*" / "*"])
    with pytest.raises(OptionError, match="lie in it"):
        store.replace(tmp_path / "in" / "store" / "states")
    with pytest.raises(OptionError, match="lie in it"):
        store.add(score="score_nb", data=tmp_path / "in" / "store")


def test_hidden_and_temporary_files_of_other_tools_are_known(data, tmp_path):
    """Among the data, and where a store begins."""
    for name in ("_SUCCESS", "_temporary", ".part-0.parquet.crc", "part-1.parquet.part", ".DS_Store"):
        (data / NIGHTS[0] / name).write_text("not Parquet")
    (data / "_SUCCESS").write_text("")
    where = tmp_path / "store"
    (where / "_temporary").mkdir(parents=True)
    (where / ".nfs0001").write_text("")
    (where / "lost.crc").write_text("")
    store = Store(where)
    assert store.update(data, **FEW).new == tuple(NIGHTS[:2])
    assert not any(entry.incomplete for entry in store.partitions())
    assert store.update(data).unchanged == 2


@pytest.mark.parametrize(
    ("words", "closed", "named"),
    [
        ("show store", "store", "store/ledger"),
        ("evaluate store", "store", "store"),
        ("update store data", "store/ledger", "store/ledger"),
        ("show store", "store/states", "store/states/*.parquet"),
        ("evaluate data --score score_lr", "data/{night}", "data/{night}"),
        ("evaluate data/night=* --score score_lr", "data/{night}", "data/{night}"),
        ("evaluate data/{night}/part-0.parquet --score score_lr", "data/{night}", "data/{night}/part-0.parquet"),
    ],
)
def test_a_directory_that_may_not_be_read_is_named(data, tmp_path, words, closed, named):
    """With access as the remedy: nothing is missing or damaged, and no store needs to be created or restored."""
    words, closed, named = (text.format(night=NIGHTS[1]) for text in (words, closed, named))
    Store(tmp_path / "store").update(data, **FEW)
    (tmp_path / closed).chmod(0)
    done = subprocess.run(
        [sys.executable, "-m", "streameval", *words.split()],
        cwd=tmp_path,
        preexec_fn=obey_permissions,
        capture_output=True,
        text=True,
        check=False,
    )
    (tmp_path / closed).chmod(0o755)
    assert done.returncode == 1
    assert fnmatchcase(done.stderr, f"streameval: error: *{named}: *permission denied; grant read access to it\n")
