"""The ledger and its log: every version as it was committed, in logarithmic space, whatever was cut."""

import errno
import math
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from streameval.errors import StoreError
from streameval.scan import natural
from streameval.store.files import delta
from streameval.store.files.delta import FORGET, KEEP, LOG, RowTable, commit_numbers
from streameval.store.files.entries import Entry, Labels
from streameval.store.files.ledger import FAN, Ledger
from streameval.store.files.location import Location
from streameval.store.files.published import seal
from streameval.store.nights.results import ResultCache

KEEPS = {"options": {"label": "spam"}, "types": {}}
changes = st.dictionaries(st.integers(1, 30), st.one_of(st.none(), st.integers(0, 9)), max_size=4)


def entry(night: int, rows: int) -> Entry:
    """A partition without states."""
    labels = Labels("label", "[]", rows, 0, 0, 0)
    return Entry(f"night={night}", "/data", str(rows), 1, 1, rows, labels, (), datetime(2026, 1, 1, tzinfo=UTC))


def sorted_entries(entries: dict[str, Entry]) -> list[Entry]:
    """Entries in the order of a store."""
    return [entries[name] for name in sorted(entries, key=natural)]


@settings(max_examples=8)
@given(st.lists(changes, min_size=1, max_size=14), st.integers(0, 13))
def test_every_version_has_the_partitions_that_were_committed(sequence, oldest):
    """Added, replaced and removed in any order; after the oldest versions are forgotten, the others are the same."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, made = Ledger(Location.of(folder).child("ledger")), list[dict[str, Entry]]()
        for changed in sequence:
            now = dict(made[-1]) if made else {}
            for night, rows in changed.items():
                now.pop(f"night={night}", None)
                now |= {} if rows is None else {f"night={night}": entry(night, rows)}
            after = ledger.commit(ledger.read(), KEEPS, sorted_entries(now), "change")
            made.append(now)
            assert [run.file for run in after.runs] == [run.file for run in ledger.read().runs]
            held = sum(run.rows.num_rows for run in after.runs)
            assert held <= 2 * max(len(now), FAN)
            assert len(after.runs) <= (FAN - 1) * (math.log(max(held, 1), FAN) + 1)
        newest = ledger.read()
        assert newest.version == len(made) - 1
        newest = replace(newest, oldest=min(oldest, newest.version))
        newest = ledger.commit(newest, KEEPS, newest.entries.values(), "vacuum")
        needed, kept = ledger.kept(newest)
        assert {one.partition for one in kept} >= set(newest.entries)
        ledger.forget(
            newest, [path.name for path in Path(folder, "ledger").glob("*.parquet") if path.name not in needed]
        )
        for version in range(newest.oldest, len(made)):
            assert list(ledger.read(version).entries.values()) == sorted_entries(made[version])
            assert ledger.read(version).entries == made[version]
        when = [fact["when"] for fact in ledger.versions()]
        assert when == sorted(set(when), reverse=True)
        assert list(ledger.read(when[-1].isoformat()).entries) == list(ledger.read(newest.oldest).entries)
        again = ledger.commit(ledger.read(), KEEPS, [], "emptied")
        assert ledger.read().entries == again.entries == {}


def test_a_row_is_written_a_logarithm_of_times_and_old_rows_are_not_read(tmp_path):
    """Of 120 nights in as many commits: the bytes of all runs, and of the median and the last commit."""
    ledger, written = Ledger(Location.of(tmp_path).child("ledger")), Counter[int]()
    base, entries, sizes = ledger.read(), list[Entry](), list[int]()
    for night in range(120):
        entries.append(entry(night, night))
        before = {run.file for run in base.runs}
        base = ledger.commit(base, KEEPS, entries, "one night")
        [new] = [run for run in base.runs if run.file not in before]
        written.update(new.rows["rows"].to_pylist())
        log = tmp_path / "ledger" / "_delta_log" / f"{night:020}.json"
        sizes.append((tmp_path / "ledger" / new.file).stat().st_size + log.stat().st_size)
    assert max(written.values()) <= math.log(120, FAN) + 2
    assert len(base.runs) <= (FAN - 1) * (math.log(120, FAN) + 1)
    assert sorted(sizes[-40:])[20] <= 1.3 * sorted(sizes[10:50])[20]
    assert list(ledger.read().entries.values()) == entries


def test_forgotten_commits_are_not_needed_after_a_power_cut(tmp_path):
    """Another update may have committed since, and its commit may be lost."""
    ledger = Ledger(Location.of(tmp_path).child("ledger"))
    newest = ledger.read()
    for _ in range(5):
        newest = ledger.commit(newest, KEEPS, [], "update")
    vacuumed = ledger.commit(replace(newest, oldest=4, retention="0s"), KEEPS, [], "vacuum")
    other = ledger.commit(vacuumed, KEEPS, [], "update of another process")
    ledger.forget(vacuumed, [])
    assert commit_numbers(ledger.location) == [4, 5, 6]
    for version in (other.version, vacuumed.version):
        Path(ledger.location.path, LOG, f"{version:020}.json").write_bytes(b"")
        assert ledger.read().version == version - 1
    assert ledger.commit(ledger.read(), KEEPS, [], "next").version == vacuumed.version


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


@pytest.mark.parametrize("gone", [False, True])
def test_a_log_without_a_whole_commit_is_refused_if_there_were_others(location, gone):
    """It is not taken for no table: that would open the gate."""
    append(location, 10)
    for path in log_of(location, ".json"):
        path.unlink() if gone else path.write_bytes(b"")
    refuses(StoreError, r"no commit in _delta_log is whole.*; restore it from a copy", delta.open_table, location)


def test_a_commit_with_a_block_of_zeros_is_cut(location):
    """Blocks are not written in order; a line that is damaged otherwise is no cut."""
    append(location, 2)
    newest = log_of(location, ".json")[-1]
    whole = newest.read_bytes()
    newest.write_bytes(bytes(100) + whole[100:])
    assert delta.open_table(location).version() == 0
    newest.write_bytes(b"{" * 100 + whole[100:])
    refuses(StoreError, "restore it from a copy", delta.open_table, location)


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
        refuses(StoreError, "timed out", delta.open_table, location)
        patch.setattr(Location, "read", fail)
        refuses(StoreError, "Input/output error", delta.open_table, location)
    assert log_of(location, "") == files
    assert delta.open_table(location).version() == 10


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
        cache.write(1, None)
    assert first.read_bytes() == whole
    first.with_name(f"{1:020}.json").write_bytes(b"{\n}\n")
    cache.write(1, None)
    assert ResultCache(location).appendable(1)


def test_an_update_that_is_refused_leaves_no_run(tmp_path):
    """Another update was committed before."""
    ledger = Ledger(Location.of(tmp_path).child("ledger"))
    first = ledger.commit(ledger.read(), KEEPS, [], "update")
    ledger.commit(first, KEEPS, [], "update")
    runs = {*tmp_path.glob("ledger/*.parquet")}
    refuses(StoreError, "run it again", ledger.commit, first, KEEPS, [], "update")
    assert {*tmp_path.glob("ledger/*.parquet")} == runs


@pytest.mark.parametrize("change", [{"format": 0}, {"when": None}, {"runs": ["a", 1]}])
def test_a_ledger_of_an_earlier_format_is_refused_by_name(tmp_path, monkeypatch, change):
    """It is not damaged, and an upgrade does not help; the number may also be that of a format before the release."""
    ledger = Ledger(Location.of(tmp_path).child("ledger"))
    with monkeypatch.context() as patch:
        patch.setattr("streameval.store.files.ledger.seal", lambda record: seal(record | change))
        ledger.commit(ledger.read(), KEEPS, [], "update")
    refuses(StoreError, r"is of an earlier format, .* reads format 1: create a new store with update", ledger.read)


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


def test_a_damaged_checkpoint_that_nothing_else_holds_is_kept(location):
    """The table is refused, and nothing is deleted."""
    append(location, 11)
    files = log_of(location, "")
    [checkpoint] = log_of(location, ".checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    refuses(StoreError, "cannot be read", delta.open_table, location)
    assert log_of(location, "") == files


def test_a_table_that_is_changed_all_the_time_is_read_later(location):
    """It is not called damaged."""

    def fail() -> None:
        append(location, 1)
        raise StoreError("gone")

    refuses(StoreError, "by other commands; run again", delta.read_again, location, fail)
