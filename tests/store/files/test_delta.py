"""Delta tables alone: logs that are cut, damaged, or shortened while they are read."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from streameval.errors import StoreError
from streameval.store.files import delta
from streameval.store.files.delta import FORGET, KEEP, LOG, RowTable
from streameval.store.files.location import Location
from streameval.store.nights.results import ResultCache

SCHEMA = pa.schema({"a": pa.int64()})


@pytest.fixture
def location(tmp_path: Path) -> Location:
    """The directory of a table."""
    return Location.of(tmp_path).child("table")


def append(location: Location, commits: int, versions: dict[str, str] = FORGET) -> None:
    """Append a row in each of some commits."""
    for _ in range(commits):
        base = delta.open_table(location)
        table = RowTable(location, SCHEMA, versions)
        table.commit(base, table.publish(pa.table({"a": [0]}, SCHEMA)), {})


def log_of(location: Location, ending: str) -> list[Path]:
    """The files of the log with an ending, by version."""
    return sorted(Path(location.path, LOG).glob(f"*{ending}"))


@pytest.mark.parametrize("commits", [10, 11, 20])
def test_the_newest_commit_of_a_log_that_begins_later_can_be_passed_over(location, commits):
    """Also the one that was written with a checkpoint; the next takes its number."""
    append(location, commits)
    assert delta.commit_numbers(location)[0] > 0
    log_of(location, ".json")[-1].write_bytes(b"{")
    assert delta.open_table(location).version() == commits - 2
    append(location, 1)
    table = delta.open_table(location)
    assert (table.version(), len(delta.data_files(table))) == (commits - 1, commits)


@pytest.mark.parametrize("gone", [False, True])
def test_a_log_without_a_whole_commit_is_refused_if_there_were_others(location, gone):
    """It is not taken for no table: that would open the gate."""
    append(location, 10)
    for path in log_of(location, ".json"):
        path.unlink() if gone else path.write_bytes(b"")
    with pytest.raises(StoreError, match=r"no commit in _delta_log is whole.*; restore it from a copy"):
        delta.open_table(location)


def test_a_commit_with_a_block_of_zeros_is_cut(location):
    """Blocks are not written in order; a line that is damaged otherwise is no cut."""
    append(location, 2)
    newest = log_of(location, ".json")[-1]
    whole = newest.read_bytes()
    newest.write_bytes(bytes(100) + whole[100:])
    assert delta.open_table(location).version() == 0
    newest.write_bytes(b"{" * 100 + whole[100:])
    with pytest.raises(StoreError, match="restore it from a copy"):
        delta.open_table(location)


def test_a_checkpoint_that_cannot_be_read_now_is_kept(location, monkeypatch):
    """A disk or a network that fails for a moment is no damage."""
    append(location, 11, KEEP)
    files, read = log_of(location, ""), Location.read

    def fail(this: Location) -> bytes:
        if ".checkpoint." in this.path:
            raise OSError(errno.EIO, "Input/output error")
        return read(this)

    def refuse(*_: Any, **__: Any) -> None:
        raise DeltaError("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(deltalake, "DeltaTable", refuse)
        with pytest.raises(StoreError, match="timed out"):
            delta.open_table(location)
        patch.setattr(Location, "read", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            delta.open_table(location)
    assert log_of(location, "") == files
    assert delta.open_table(location).version() == 10


def test_a_damaged_checkpoint_that_nothing_else_holds_is_kept(location):
    """The table is refused, and nothing is deleted."""
    append(location, 11)
    files = log_of(location, "")
    [checkpoint] = log_of(location, ".checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(StoreError, match="cannot be read"):
        delta.open_table(location)
    assert log_of(location, "") == files


def test_commits_are_kept_while_their_checkpoint_is_not_on_the_disk(location, monkeypatch, caplog):
    """A checkpoint that is written, but not confirmed, may be lost."""
    append(location, 9)
    sync = delta.sync

    def fail(path: Any) -> None:
        if ".checkpoint." in str(path):
            raise OSError(errno.EIO, "Input/output error")
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(delta, "sync", fail)
        append(location, 1)
        delta.forget_commits(location, 5)
    assert "was committed, but not its checkpoint: " in caplog.text
    assert delta.commit_numbers(location) == [*range(10)]
    delta.forget_commits(location, 5)
    assert delta.commit_numbers(location) == [*range(5, 10)]


def test_a_commit_counts_once_its_base_is_on_the_disk(location, monkeypatch):
    """The process that committed the base may still wait for the disk."""
    append(location, 2)
    synced, sync = list[str](), delta.sync

    def watch(path: Any) -> None:
        synced.append(str(path))
        sync(path)

    monkeypatch.setattr(delta, "sync", watch)
    append(location, 1)
    assert {str(path) for path in log_of(location, ".json")[1:]} <= {*synced}


def test_a_table_is_read_while_others_shorten_its_log(location, monkeypatch):
    """The commits that were listed are gone when they are read."""
    append(location, 9)
    listed = delta.commit_numbers

    def race(this: Location) -> list[int]:
        numbers = listed(this)
        if numbers[-1] == 8:
            monkeypatch.setattr(delta, "commit_numbers", listed)
            append(this, 2)
            log_of(this, f"{8:020}.json")[0].unlink()
            monkeypatch.setattr(delta, "commit_numbers", race)
        return numbers

    monkeypatch.setattr(delta, "commit_numbers", race)
    assert delta.open_table(location).version() == 10


def test_a_table_that_is_changed_all_the_time_is_read_later(location):
    """It is not called damaged."""

    def fail() -> None:
        append(location, 1)
        raise StoreError("gone")

    with pytest.raises(StoreError, match="by other commands; run again"):
        delta.read_again(location, fail)


def test_a_commit_of_the_cache_that_fails_leaves_its_log(location, monkeypatch):
    """A full disk is no damage; a log that is damaged is begun anew, also to append."""
    ResultCache(location).write(0, set())
    [first] = log_of(location, ".json")
    whole = first.read_bytes()

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = ResultCache(location)
    assert cache.appendable(0)
    with monkeypatch.context() as patch:
        patch.setattr(RowTable, "_write", fill)
        cache.append(1)
    assert first.read_bytes() == whole
    first.with_name(f"{1:020}.json").write_bytes(b"{\n}\n")
    cache.append(1)
    assert ResultCache(location).appendable(1)
