"""The ledger alone: any sequence of commits, its versions, their cost, and what is forgotten."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.errors import StoreError
from streameval.scan import natural
from streameval.store.files.delta import LOG, commit_numbers
from streameval.store.files.entries import Entry, Labels
from streameval.store.files.ledger import FAN, Ledger
from streameval.store.files.location import Location
from streameval.store.files.published import seal

KEEPS = {"options": {"label": "spam"}, "types": {}}
changes = st.dictionaries(st.integers(1, 30), st.one_of(st.none(), st.integers(0, 9)), max_size=4)


def entry(night: int, rows: int) -> Entry:
    """A partition without states."""
    labels = Labels("label", "[]", rows, 0, 0, 0)
    return Entry(f"night={night}", "/data", str(rows), 1, 1, rows, labels, (), datetime(2026, 1, 1, tzinfo=UTC))


def sorted_entries(entries: dict[str, Entry]) -> list[Entry]:
    """Entries in the order of a store."""
    return [entries[name] for name in sorted(entries, key=natural)]


@settings(max_examples=8, deadline=None)
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


def test_an_update_that_is_refused_leaves_no_run(tmp_path):
    """Another update was committed before."""
    ledger = Ledger(Location.of(tmp_path).child("ledger"))
    first = ledger.commit(ledger.read(), KEEPS, [], "update")
    ledger.commit(first, KEEPS, [], "update")
    runs = {*tmp_path.glob("ledger/*.parquet")}
    with pytest.raises(StoreError, match="run it again"):
        ledger.commit(first, KEEPS, [], "update")
    assert {*tmp_path.glob("ledger/*.parquet")} == runs


@pytest.mark.parametrize("change", [{"format": 0}, {"when": None}, {"runs": ["a", 1]}])
def test_a_ledger_of_an_earlier_format_is_refused_by_name(tmp_path, monkeypatch, change):
    """It is not damaged, and an upgrade does not help; the number may also be that of a format before the release."""
    ledger = Ledger(Location.of(tmp_path).child("ledger"))
    with monkeypatch.context() as patch:
        patch.setattr("streameval.store.files.ledger.seal", lambda record: seal(record | change))
        ledger.commit(ledger.read(), KEEPS, [], "update")
    with pytest.raises(StoreError, match=r"is of an earlier format, .* reads format 1: create a new store with update"):
        ledger.read()
