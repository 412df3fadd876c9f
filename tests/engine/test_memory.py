"""Memory: data beyond the budget is spilled and read back, nothing stays on disk, heavy buckets are cut into parts."""

import ctypes
import errno
import logging
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import opened
from refusals import refuses
from strategies import SUBJECTS

from streameval import budget as memory
from streameval import evaluate, posix, scan
from streameval.budget import Budget, SpillFile, parse_bytes
from streameval.engine import fold
from streameval.engine.threads import tree
from streameval.errors import OptionError, SpillError
from streameval.forks import map_threads
from streameval.kernels import jit
from streameval.scan.pieces import Piece, TableSource
from streameval.states.keyed import counts as runs
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Layout
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import fold_arrays
from streameval.store.files.location import Location
from streameval.store.files.published import StateFiles


def test_what_exceeds_the_budget_is_spilled_and_read_back(tmp_path: Path) -> None:
    """The limit holds after every array, and slices of spilled arrays are the arrays'."""
    budget = Budget(1_000_000, tmp_path)
    arrays = [np.arange(i, i + 50_000) for i in range(10)]
    held = []
    for array in arrays:
        held.append(budget.hold(array))
        assert budget.resident <= budget.limit
    assert budget.spilled >= 3_000_000
    assert not all(buffer.resident for buffer in held)
    for array, buffer in zip(arrays, held, strict=True):
        np.testing.assert_array_equal(buffer.read(), array)
        np.testing.assert_array_equal(buffer.read(7, 49_999), array[7:49_999])
    assert list(tmp_path.iterdir()) == []


def test_many_threads_hold_and_read_at_once(tmp_path: Path) -> None:
    """Arrays spilled by one thread while another reads them are read right."""
    budget = Budget(2_000_000, tmp_path)
    wrong: list[int] = []

    def work(number: int) -> None:
        held = [budget.hold(np.full(30_000, number * 100 + i)) for i in range(30)]
        wrong.extend(i for i, buffer in enumerate(held) if not np.all(buffer.read() == number * 100 + i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_small_arrays_count_and_large_ones_make_room_for_them(tmp_path: Path) -> None:
    """Many arrays too small to spill, as the pieces of slices are, push out those that are not."""
    budget = Budget(1_000_000, tmp_path)
    large = [budget.hold(np.full(50_000, i)) for i in range(2)]
    small = [budget.hold(np.full(500, i)) for i in range(200)]
    assert budget.resident <= budget.limit
    assert [int(buffer.read(3, 4)[0]) for buffer in large] == [0, 1]
    assert not large[0].resident
    assert not large[1].resident
    assert all(buffer.resident for buffer in small)
    del small
    budget.release_freed()
    assert budget.resident == 0


def test_what_is_reserved_and_what_is_held_are_within_the_limit(tmp_path: Path) -> None:
    """States make room when memory is reserved, and get it back afterwards; an eighth is always theirs."""
    budget = Budget(1_000_000, tmp_path)
    held = [budget.hold(np.full(10_000, i)) for i in range(10)]
    with budget.reserved(600_000):
        assert budget.resident + 600_000 <= budget.limit
        held.append(budget.hold(np.full(20_000, 10)))
        assert budget.resident + 600_000 <= budget.limit
    with budget.reserved(10**12):
        held.append(budget.hold(np.full(10_000, 11)))
        assert 0 < budget.resident <= budget.limit // 8
    before = budget.spilled
    held.append(budget.hold(np.full(10_000, 12)))
    assert budget.spilled == before
    assert [int(buffer.read(5, 6)[0]) for buffer in held] == list(range(13))


@pytest.fixture
def fresh_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A loop that no process has compiled."""
    name = f"fresh_{tmp_path.name}"
    code = "from streameval.kernels.jit import jit\n\n@jit\ndef double(x):\n    return 2 * x\n"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    memory._warn_of_compiling.cache_clear()
    monkeypatch.setattr(jit, "_KEEPERS", WeakSet())  # budgets of earlier tests may not have been collected
    yield import_module(name).double
    sys.modules.pop(name)


def test_what_compiling_takes_is_reserved_from_the_limit(fresh_loop: Any, tmp_path: Path) -> None:
    """States make room before a loop is compiled, and for good; a loop that is compiled already takes nothing."""
    budget = Budget(1 << 30, tmp_path)
    held = [budget.hold(np.full(1000, i)) for i in range(3)]
    assert fresh_loop(21) == 42
    taken = budget.limit - budget.room
    assert 1 << 20 <= taken <= memory.COMPILING
    assert fresh_loop(5) == 10
    assert budget.limit - budget.room == taken
    little = Budget(10 << 20, tmp_path)
    large = little.hold(np.full(1 << 20, 7))
    assert large.resident
    assert fresh_loop(2.5) == 5.0
    assert not large.resident
    assert [int(buffer.read(3, 4)[0]) for buffer in (*held, large)] == [0, 1, 2, 7]


def test_row_groups_are_reserved_from_the_limit_while_rows_are_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States have less room as long as row groups are decoded."""
    pq.write_table(_table(50_000), tmp_path / "0.parquet", row_group_size=10_000)
    rooms: list[tuple[int, int]] = []
    add = SegmentBuilder.add

    def watched(self: SegmentBuilder, *given: Any, **named: Any) -> None:
        rooms.append((self.budget.limit, self.budget.room))
        add(self, *given, **named)

    evaluate(tmp_path, score="score", threads=1)  # compiling takes room as well
    monkeypatch.setattr(SegmentBuilder, "add", watched)
    evaluate(tmp_path, score="score", memory="8MiB", threads=1)
    footer = pq.read_metadata(tmp_path / "0.parquet")
    stored = max(sum(footer.row_group(g).column(i).total_compressed_size for i in (0, 1)) for g in range(5))
    assert rooms
    for limit, room in rooms:
        assert room == limit - 2 * stored - fold._TABLES


def test_texts_are_reserved_as_they_are_decoded(tmp_path: Path) -> None:
    """Not as they are stored: texts that compress well take many times that; those read as codes take no more."""
    texts = [f"{i:0300d}" for i in range(40_000)]
    table = pa.table({"long": texts, "few": [f"c{i % 7}" for i in range(40_000)]})
    pq.write_table(table, tmp_path / "0.parquet", compression="zstd", use_dictionary=["few"])
    [few] = scan.plan(tmp_path, ["few"]).pieces
    [both] = scan.plan(tmp_path, ["few", "long"]).pieces
    stored = sum(pq.read_metadata(tmp_path / "0.parquet").row_group(0).column(i).total_compressed_size for i in (0, 1))
    batch = fold.LONG_BATCH_ROWS * 304
    assert 20 * stored < batch
    assert batch <= fold.scratch_bytes([both]) / 2 <= 1.1 * batch + stored + fold._TABLES
    assert fold.scratch_bytes([few]) < stored + fold._TABLES
    assert fold.scratch_bytes(pickle.loads(pickle.dumps([both]))) == fold.scratch_bytes([both])


def test_long_texts_are_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """A file of some kilobytes may expand to gigabytes; a batch of 32,768 such rows would be 8 GiB."""
    table = pa.table({"label": [0, 1] * 200, "long": ["x" * (1 << 18)] * 400})
    pq.write_table(table, tmp_path / "0.parquet", compression="zstd", use_dictionary=False)
    pieces = scan.plan(tmp_path, table.schema.names).pieces
    rows = fold.batch_rows(table.schema, 1 << 20, Budget(1 << 28), pieces)
    assert 16 <= rows < 64
    sizes = [batch.num_rows for _, _, batch in fold.raw_batches(pieces, table.schema, rows)]
    assert (sum(sizes), max(sizes)) == (400, rows)
    assert evaluate(tmp_path, cluster="long", threads=1).rows == 400


def test_a_few_long_texts_among_short_ones_are_said_beforehand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their mean length says nothing of them, but the header of their page does; short ones alone need no warning."""
    short, long = [f"c{i}" for i in range(200_000)], [f"{i}{'x' * (1 << 18)}" for i in range(100)]
    logged = []
    for name, ids in (("even", short * 4), ("uneven", short + long + short)):
        table = pa.table({"label": np.arange(len(ids)) % 3 == 0, "ids": ids})
        with pq.ParquetWriter(tmp_path / name, table.schema, compression="zstd", use_dictionary=False) as writer:
            writer.write_table(table, row_group_size=len(ids))
        fold._warn.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "streameval"):
            evaluate(tmp_path / name, cluster="ids", threads=1, memory="32MiB")
        logged.append([int(least) for least in re.findall(r"give (\d+) MiB \(--memory\)", caplog.text)])
    [even, [least]] = logged
    assert even == []
    assert 50 <= least <= 150


def test_a_limit_too_low_for_the_row_groups_is_said_beforehand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the limit that suffices, which is then silent; the values are the same, and tables need none."""
    table = _table(300_000)
    pq.write_table(table, tmp_path / "0.parquet")
    given = {"score": "score", "metrics": "roc_auc", "threads": 1}
    with caplog.at_level(logging.WARNING, "streameval"):
        evaluate(table, **given, memory="12MiB")
        assert not caplog.records
        little = [evaluate(tmp_path, **given, memory="12MiB").results for _ in range(2)]
    [record] = caplog.records
    assert "12.6 MB of memory is too little for the row groups and tables of 1 thread" in record.getMessage()
    [least] = re.findall(r"give (\d+) MiB \(--memory\)", record.getMessage())
    caplog.clear()
    with caplog.at_level(logging.WARNING, "streameval"):
        enough = evaluate(tmp_path, **given, memory=f"{least}MiB").results
    assert not caplog.records
    assert little == [enough, enough]


@pytest.mark.parametrize(
    ("text", "size"), [("2GiB", 2 << 30), ("100kB", 100_000), ("64", 64), (64, 64), ("1.5 MB", 1_500_000)]
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    """Decimal and binary units, in any case."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "0", "2 GiBs", "many", 0, 1.5e9, "nan"])
def test_nonsense_sizes_are_refused(text: Any) -> None:
    """The message shows how to write a size."""
    if isinstance(text, float):
        assert parse_bytes(text) == 1_500_000_000
        return
    refuses(OptionError, "2GiB", parse_bytes, text)


# -- a spill directory that cannot be used ----------------------------------------------------------------------------


def _table(rows: int = 100_000) -> pa.Table:
    random = np.random.default_rng(0)
    return pa.table({"label": random.integers(0, 2, rows).astype(np.int8), "score": random.random(rows)})


def _assert_names(error: SpillError, directory: Path) -> None:
    assert str(directory) in str(error)
    assert "--spill" in str(error)
    assert "--memory" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("place", ["absent", "file", "/proc/self"])
def test_a_spill_directory_that_cannot_be_used_is_named(place: str, tmp_path: Path) -> None:
    """One that is missing, a file, or a directory in which nobody can write; with both ways out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SpillError) as caught:
        evaluate(_table(), score="score", memory="300kB", spill=tmp_path / place)
    _assert_names(caught.value, tmp_path / place)


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files may not grow beyond 200 kB: the nearest thing to a full disk that needs no privileges."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_a_full_spill_directory_is_named(tmp_path: Path) -> None:
    """When the disk is full the run ends with one line and leaves nothing behind."""
    with pytest.raises(SpillError, match="is full") as caught:
        evaluate(_table(), score="score", memory="300kB", spill=tmp_path)
    assert caught.value.errno in {errno.EFBIG, errno.ENOSPC}
    _assert_names(caught.value, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_files")
def test_a_failed_write_takes_no_space(tmp_path: Path) -> None:
    """What an array wrote before the disk was full is given back, so that a smaller one fits."""
    file, small = SpillFile(tmp_path), np.arange(10_000)
    refuses(SpillError, "is full", file.write, np.zeros(100_000))
    assert os.fstat(file._file.fileno()).st_size == 0
    out = np.empty_like(small)
    file.read(file.write(small), out)
    assert out.tolist() == small.tolist()


def test_a_spill_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Whatever the system says of a read, the error is the library's and names the directory."""
    budget = Budget(0, tmp_path)
    held = budget.hold(np.zeros(100_000))
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, budget._file._file.fileno())
    os.close(folder)
    with pytest.raises(SpillError, match="cannot be read") as caught:
        held.read()
    _assert_names(caught.value, tmp_path)


# -- heavy buckets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [1, 4])
def test_what_is_gathered_from_a_heavy_bucket_fits_the_budget(words: int, tmp_path: Path) -> None:
    """A bucket of distinct keys is cut by the size of the budget, whatever the words of a key."""
    rows, budget = 140_000, Budget(1 << 21, tmp_path)
    keys = np.sort(np.random.default_rng(2).integers(0, 1 << 60, rows, np.uint64))
    first, rest = np.full(rows, 7, np.uint64), np.zeros((rows, words - 1), np.uint64)
    (rest if words > 1 else first.reshape(-1, 1))[:, -1] = np.random.default_rng(3).permutation(keys)
    builder = SegmentBuilder(Layout(4, 64, words), budget, rows)
    builder.add_items(first, np.zeros(rows, np.uint32), rest, NO_COUNTS, NO_WEIGHTS)
    [shard] = (state := KeyedCounts.built(builder)).intervals()
    parts = list(state.grouped(shard, budget))
    assert max(part.keys.nbytes + part.rest.nbytes for part in parts) <= budget.limit // 2
    found = [part.rest[:, -1] if words > 1 else part.keys for part in parts]
    np.testing.assert_array_equal(np.concatenate(found), keys)


@pytest.mark.parametrize("case", ["distinct", "atoms", "one", "few"])
@pytest.mark.parametrize("name", ["double", "double-weighted", "int64", "float", "float-weighted"])
def test_a_heavy_bucket_of_scores_is_taken_in_parts(
    name: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores that share a bucket are counted right, and never more than a slab and a bucket's part at once."""
    most, rows, random = 8192, 40_000, np.random.default_rng(4)
    for limit in ("REFINE", "WEIGHED"):
        monkeypatch.setattr(runs, limit, most)
    monkeypatch.setattr(runs, "SLAB", most // 2)
    monkeypatch.setattr(KeyedCounts.intervals, "__defaults__", (most // 2,))
    [subject] = [subject for subject in SUBJECTS if subject.name == f"scores-{name}"]
    inside = {
        "distinct": random.permutation(rows),
        "atoms": np.where(random.random(rows) < 0.5, 7, random.permutation(rows)),
        "one": np.full(rows, 7),
        "few": random.integers(0, 5, rows),
    }[case]
    values: Any = (1.0 + inside * 2.0**-40) if subject.kind == pa.float64() else 2**62 + inside
    if subject.kind == pa.float32():
        values = (1.0 + (inside % 60_000) * 2.0**-23).astype(np.float32)
    values[::1000] = 3  # and a few elsewhere, before and after
    values[1::1000] = 0
    labels, weights = random.integers(0, 2, rows).astype(np.uint8), random.integers(0, 8, rows) / 4
    partition = np.where(np.arange(rows) < rows // 3, "a", "b")
    columns = {"column": pa.array(values, subject.kind), "label": labels, "weight": weights, "partition": partition}
    budget, sizes = Budget(100_000, tmp_path), [0]
    state, gathered = subject.fold(pa.table(columns), 5_000, 3_000, budget), KeyedCounts._gather

    def watched(self: KeyedCounts, start: int, stop: int) -> Any:
        sizes.append(int(self._sizes(start, stop).sum()))
        return gathered(self, start, stop)

    with monkeypatch.context() as patch:
        patch.setattr(KeyedCounts, "_gather", watched)
        parts = [part for shard in state.shards() for part in state.groups(shard, budget)]
    assert max(sizes) <= 2 * most or case != "distinct" or name == "float"
    keys, index = np.unique(values, return_inverse=True)
    counts = [np.bincount(index[labels == side], minlength=keys.size)[::-1] for side in (0, 1)]
    found = [int(key) for part in parts for key in part.keys]
    assert found == sorted(set(found))
    np.testing.assert_array_equal(np.concatenate([part.scores for part in state.parts()]), keys[::-1].astype(float))
    np.testing.assert_array_equal(np.concatenate([p.neg for p in parts]), counts[0])
    np.testing.assert_array_equal(np.concatenate([p.pos for p in parts]), counts[1])
    if subject.weighted:
        expected = np.bincount(index, np.where(labels == 1, weights, 0), minlength=keys.size)[::-1]
        np.testing.assert_allclose(np.concatenate([p.pos_weight for p in parts]), expected, rtol=1e-12)


# -- the end of a run -------------------------------------------------------------------------------------------------

LONG_RUN = """
import os, signal, sys, time
import numpy as np
import streameval
from streameval.engine import fold
fold.BATCH_ROWS = 1 << 14
seen, told, interrupted = [0], [], []
def interrupt(*_):
    interrupted.append(seen[-1])
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)  # a shell's background job inherits that it is ignored
def progress(rows, total):
    seen.append(rows)
    if rows > {rows} // 2 and not told:
        told.append(rows)
        print("spilling", os.getpid(), flush=True)
    if told:
        time.sleep(0.05)
try:
    streameval.evaluate(sys.argv[1], score="score", memory="1MB", spill=sys.argv[2], threads=2, progress=progress)
except KeyboardInterrupt:
    print("folded", seen[-1] - interrupted[0], flush=True)
    sys.exit(130)
print("done", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_on_disk_after_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    """A killed run and an interrupted one leave no spill file, and an interrupt ends the run promptly."""
    data, spill = tmp_path / "data", tmp_path / "spill"
    data.mkdir()
    spill.mkdir()
    rows = 1_000_000
    for i in range(4):
        pq.write_table(_table(rows // 4), data / f"{i}.parquet")
    command = [sys.executable, "-c", LONG_RUN.format(rows=rows), str(data), str(spill)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith("spilling"), line
        if sys.platform == "linux":
            assert any(name.startswith(str(spill)) for name in opened(process.pid))
        process.send_signal(number)
        rest = process.stdout.read()
        code = process.wait(timeout=600)
    assert "done" not in rest
    if number == signal.SIGINT:
        assert int(rest.removeprefix("folded")) < rows // 10  # a batch of each thread, and what began meanwhile
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"weight": "weight"}], ids=str)
def test_many_slices_are_evaluated_within_the_memory_limit(options: dict[str, Any], tmp_path: Path) -> None:
    """All arrays together, whoever owns them: what states remember of their codes is in proportion to their rows."""
    random, limit = np.random.default_rng(2), 64 << 20
    data = _table(30_000).append_column("weight", pa.array(random.gamma(2.0, 1.0, 30_000)))
    data = data.append_column("group", pa.array(random.integers(0, 60, 30_000)))
    tracemalloc.start()
    try:
        run: dict[str, Any] = {"score": "score", "by": "group", "memory": limit, "spill": tmp_path, "threads": 2}
        found = evaluate(data, **run, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.rows == 30_000
    assert peak <= 1.15 * limit


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library cannot give memory back")
def test_freed_memory_between_arrays_goes_back_to_the_system() -> None:
    """The pages between arrays that are still held."""

    def pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    arrays = [np.ones(8_000) for _ in range(1_000)]
    kept = arrays[::50]
    del arrays
    before = pages()
    memory.give_back_freed()
    assert pages() < before - 40_000_000
    assert all(array[-1] == 1 for array in kept)


def test_an_error_in_one_task_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first bad file no task folds all its rows."""
    monkeypatch.setattr(fold, "BATCH_ROWS", 1 << 10)
    monkeypatch.setattr(fold, "TASK_ROWS", 1 << 12)
    bad = pa.table({"label": pa.array([5, 6, 7], pa.int8()), "score": [0.1, 0.2, 0.3]})
    pq.write_table(bad, tmp_path / "0.parquet")
    for i in range(1, 9):
        pq.write_table(_table(100_000), tmp_path / f"{i}.parquet")
    seen = 0

    def progress(rows: int, _total: int) -> None:
        nonlocal seen
        seen = rows
        time.sleep(0.001)

    refuses(ValueError, r"0\.parquet", evaluate, tmp_path, score="score", threads=2, progress=progress)
    at_end = seen
    time.sleep(0.3)
    assert seen <= at_end + 2 * (1 << 10)
    assert seen < 800_000


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_keep_order_and_pass_errors_on(threads: int) -> None:
    """Results come in the order of the items, a tree merges all of them, and an error is the task's own."""
    assert map_threads(lambda x: x * x, range(100), threads) == [x * x for x in range(100)]
    for count in range(1, 40):
        items = list(range(count))
        assert tree(lambda x: [x], items, lambda parts: [*chain(*parts)], threads, lambda: None) == items
    cancelled: list[bool] = []
    refuses(
        ZeroDivisionError, "", map_threads, lambda x: 1 / x, [2, 1, *[0] * 100], threads, lambda: cancelled.append(True)
    )
    assert 1 <= len(cancelled) <= threads


def test_the_spill_directory_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option, else ``$TMPDIR``, else a place on disk."""
    assert memory.spill_directory(tmp_path) == tmp_path
    monkeypatch.delenv("TMPDIR", raising=False)
    assert memory.spill_directory() in {Path("/var/tmp"), Path("/tmp")}  # noqa: S108 - nothing is written there
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert memory.spill_directory() == tmp_path


def test_freed_memory_is_given_back_once_states_fill_half_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is kept for what follows: fresh memory is slow."""
    given: list[int] = []
    monkeypatch.setattr(memory, "give_back_freed", lambda: given.append(budget.resident))
    budget = Budget(1_000_000, tmp_path)
    held = [budget.hold(np.zeros(50_000))]
    budget.release_freed()
    assert given == []
    held.append(budget.hold(np.zeros(20_000)))
    budget.release_freed()
    assert given == [560_000]
    held.clear()
    budget.release_freed()
    assert given == [560_000]


def test_freed_memory_is_given_back_where_the_process_has_grown_by_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again once it has grown by another part of the limit, not where it only uses freed memory again."""
    given: list[int] = []
    taken = [5_000_000]
    monkeypatch.setattr(posix, "process_memory", lambda: taken[-1])
    monkeypatch.setattr(memory, "give_back_freed", lambda: given.append(taken[-1]))
    budget = Budget(1_000_000, tmp_path)
    for now in (5_000_000, 6_000_000, 6_000_001, 6_000_001, 6_020_000, 6_040_000, 6_040_000, 5_500_000, 6_001_000):
        taken.append(now)
        budget.relieve()
    assert given == [6_000_001, 6_040_000, 6_001_000]


def test_the_overhead_of_an_array_counts_as_long_as_it_lives_and_is_never_spilled(tmp_path: Path) -> None:
    """The codes and starts of a segment stay in memory while its words are spilled."""
    budget = Budget(1 << 20, tmp_path)
    held = budget.hold(np.zeros(1 << 16), overhead=1 << 19)
    assert budget.resident == (1 << 19) + (1 << 19)
    other = budget.hold(np.zeros(1 << 15))
    assert not held.resident
    assert other.resident
    assert budget.resident == (1 << 19) + (1 << 18)
    del held
    budget.hold(np.zeros(1))
    assert budget.resident == (1 << 18) + 8


@pytest.mark.parametrize("options", [{"cluster": "id"}, {"score": "score", "weight": "weight"}], ids=str)
def test_slices_are_restored_within_the_budget_of_the_run(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that were joined while folding get no budget of their own, which would be a quarter of the machine."""

    def another(*_: object) -> None:
        raise AssertionError("another budget")

    monkeypatch.setattr("streameval.states.keyed.counts.Budget", another)
    rows = 3_000
    table = _table(rows).append_column("part", pa.array(np.arange(rows) % 30))
    table = table.append_column("id", pa.array(np.arange(rows) % 700)).append_column("weight", pa.array(np.ones(rows)))
    found = evaluate(table, **options, by="part", ci=0.9, memory="64MB", threads=1)
    assert len({str(one.slice) for one in found.results}) == 31


def test_what_tasks_reserve_adds_up(tmp_path: Path) -> None:
    """Tasks of several threads reserve from one budget; each gives back its own part."""
    budget = Budget(1_000_000, tmp_path)
    with budget.reserved(300_000):
        with budget.reserved(200_000):
            assert budget.room == 500_000
        assert budget.room == 700_000
    assert budget.room == budget.limit


def test_a_limit_too_low_to_compile_is_said_before(
    fresh_loop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in a process, with the remedies; nothing is said where nothing is compiled, or the limit suffices."""
    kept = [Budget(1 << 30, tmp_path)]
    fresh_loop(1)
    assert not caplog.records
    kept.append(Budget(100 << 20, tmp_path))
    fresh_loop(1)
    assert not caplog.records
    fresh_loop(1.5)
    fresh_loop(1j)
    [record] = caplog.records
    assert "streameval.warm" in record.getMessage()
    assert "--memory" in record.getMessage()


@pytest.mark.parametrize("memory", ["32MiB", "256MiB", "4GiB"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_batches_take_a_share_of_the_budget(memory: str, threads: int) -> None:
    """Rows of all threads, as read and as they are worked on, take a quarter of the limit, but for the least batch."""
    schema = pa.schema({"label": pa.int8(), "score": pa.float64(), "weight": pa.float64()})
    budget = Budget(parse_bytes(memory), threads=threads)
    rows = fold.batch_rows(schema, fold.RUN_ROWS, budget)
    row = 2 * (1 + 8 + 8) + fold._ROW_SCRATCH
    assert rows == fold.LONG_BATCH_ROWS or threads * rows * row <= budget.limit // 4
    assert rows == fold.BATCH_ROWS or (threads * (rows + 1) * row > budget.limit // 4)


@pytest.mark.parametrize("length", [3, 36, 200])
def test_short_texts_are_read_many_rows_at_a_time(length: int, tmp_path: Path) -> None:
    """As many as the budget has room for, up to 4 MiB of texts; each batch takes time, however small it is."""
    table = pa.table({"label": [0, 1] * 100_000, "id": [f"{i % 1_000:0{length}d}" for i in range(200_000)]})
    pq.write_table(table, tmp_path / "0.parquet", use_dictionary=False)
    pieces = scan.plan(tmp_path, table.schema.names).pieces
    for limit in ("16MiB", "32MiB", "64MiB", "4GiB"):
        budget = Budget(parse_bytes(limit), threads=1)
        room = budget.scratch // (fold._ROW_SCRATCH + 2 * fold.row_width(table.schema))
        due = max(fold.LONG_BATCH_ROWS, min(1 << 19, room, (4 << 20) // (length + 4)))
        assert 0.95 * due <= fold.batch_rows(table.schema, fold.RUN_ROWS, budget, pieces) <= due
        assert fold.batch_rows(table.schema, fold.RUN_ROWS, budget) == fold.LONG_BATCH_ROWS


def test_the_largest_row_group_is_reserved(tmp_path: Path) -> None:
    """Not the mean one: of uneven row groups, the largest decides what a thread needs."""
    table = _table(50_000)
    with pq.ParquetWriter(tmp_path / "0.parquet", table.schema) as writer:
        for rows in (100, 49_000, 900):
            writer.write_table(table.slice(0, rows), row_group_size=rows)
    footer = pq.read_metadata(tmp_path / "0.parquet")
    sizes = [
        sum(footer.row_group(g).column(i).total_compressed_size for i in range(footer.num_columns)) for g in range(3)
    ]
    [piece] = scan.plan(tmp_path, table.schema.names).pieces
    assert fold.scratch_bytes([piece]) == 2 * max(sizes) + fold._TABLES


@pytest.mark.parametrize(
    "given",
    [
        {"cluster": "long"},
        {"score": "label", "by": "long"},
        {"score": "label", "where": "long LIKE 'x%'"},
        {"score": "label", "unit": "long"},
        {"score": "label", "mean_over": "long", "metrics": "roc_auc"},
    ],
)
def test_texts_that_need_more_than_the_limit_are_said_beforehand(
    given: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever they are read for, by their size in the footer, which plain texts cannot exceed."""
    table = pa.table({"label": [0, 1] * 50, "long": ["x" * (1 << 16)] * 100})
    pq.write_table(table, tmp_path / "0.parquet", compression="zstd", use_dictionary=False)
    fold._warn.cache_clear()
    with caplog.at_level(logging.WARNING, "streameval"):
        evaluate(tmp_path, **given, threads=1, memory="4MiB")
    assert "is too little for the row groups and tables of 1 thread" in caplog.text


def test_tables_of_blocks_are_counted_and_said_beforehand(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With 65,536 bins they take 208 MiB on a thread, which a warning says; few rows fill few of them."""
    piece = Piece("", "data", 0, 4_000_000, 0, source=TableSource(_table(0)))
    fine, usual = (BlockSpec("score", unit="campaign", bins=bins) for bins in (1 << 16, 1 << 11))
    extra = [fold.scratch_bytes([piece], [spec]) - fold.scratch_bytes([piece]) for spec in (fine, usual)]
    assert [size >> 20 for size in extra] == [208, 6]
    pq.write_table(_table(200_000), tmp_path / "0.parquet")
    given: dict[str, Any] = {"score": "score", "metrics": "average_precision", "threads": 1, "ci": 0.95}
    with caplog.at_level(logging.WARNING, "streameval"):
        values = [evaluate(tmp_path, **given, memory="128MiB", resample_bins=bins) for bins in (2048, 65536)]
    [record] = caplog.records
    assert "is too little for the row groups and tables of 1 thread" in record.getMessage()
    assert values[0].value("average_precision") == values[1].value("average_precision")


def test_an_absent_spill_directory_is_no_fault_of_a_stored_state(tmp_path: Path) -> None:
    """A state that exceeds the budget says so, whether it is read alone or with others; its file is not blamed."""
    files, label = StateFiles(Location.of(tmp_path / "states")), np.zeros(200_000, np.uint8)
    states = [fold_arrays(label, np.random.default_rng(seed).random(200_000)) for seed in range(2)]
    names = [files.write(state)[0] for state in states]
    with pytest.raises(SpillError) as caught:
        files.read(names[0], Budget(600_000, tmp_path / "absent"))
    _assert_names(caught.value, tmp_path / "absent")
    with pytest.raises(SpillError) as caught:
        files.read_all(
            names * 16,
            1 << 20,
            Budget(600_000, tmp_path / "absent"),
            states[0].spec,
            lambda f, items: [f(i) for i in items],
        )
    _assert_names(caught.value, tmp_path / "absent")
