"""The same run on a cluster of real processes: the same bytes, whatever the cluster is like and whoever dies."""

import functools
import gc
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import run
from refusals import refuses

import streameval
from streameval import attribute, evaluate
from streameval.engine import cluster as engine
from streameval.engine.cluster import ClusterEngine
from streameval.engine.connection import Connection, connect
from streameval.errors import ClusterError, CorruptFileError, LabelError, MissingInputError, OptionError
from streameval.evaluation import explain
from streameval.simulation import simulate
from streameval.states import rounds

REAL = Path(__file__).parents[2] / "data" / "spam_messages"
COLUMNS: dict[str, Any] = {"score": ["score_lr", "score_nb", "score_q"], "cluster": ["cluster_loose", "cluster_tight"]}
SMALL = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": "2GiB"}
ROWS = 100_000  # of the simulated data
LOST = {"distributed.comm.timeouts.connect": "10s"}  # for which workers look for one that was killed; 30 s by default
HANGS = 600  # seconds: no bound on how slow a machine may be


@contextmanager
def cluster(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """A client of some processes with one thread each."""
    with (
        dask.config.set(LOST),
        distributed.LocalCluster(n_workers=n_workers, **(SMALL | options)) as made,
        distributed.Client(made, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module", autouse=True)
def _small_ranges() -> Iterator[None]:
    """Ranges and shards a small part of their size, so that few rows have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "RANGE_BYTES", engine.RANGE_BYTES // 60)
        patch.setattr(rounds, "SLAB", rounds.SLAB // 60)
        yield


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages enough that states have several ranges."""
    return Path(simulate(tmp_path_factory.mktemp("cluster") / "data", rows=ROWS, partitions=8).path)


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    """What is asked of simulated data."""
    return {"score": ["score_a", "score_b"], "cluster": "cluster", "truncate": 0.01}


@pytest.fixture(scope="module")
def expected(simulated: Path, options: dict[str, Any]) -> str:
    """The JSON of a run on threads."""
    return evaluate(simulated, threads=2, **options).to_json()


def workers(client: Any) -> dict[str, int]:
    """Address and process of every worker."""
    found: dict[str, int] = client.run(os.getpid)
    return found


def once(function: Callable[[], object]) -> Callable[[int, int], None]:
    """A progress callback that does something the first time it is called: in the middle of the run."""
    done: list[int] = []

    def progress(rows: int, _: int) -> None:
        if not done:
            done.append(rows)
            function()

    return progress


@pytest.mark.parametrize(
    "options",
    [
        {"truncate": 0.1, "at": "fpr=0.01"},
        {"weight": "weight"},
        {"approx": True},
        {"approx_agc": True, "sample": 0.5, "metrics": ["agc_approx", "roc_auc"]},
        {"sample": 0.5, "approx_agc": True, "weight": "weight", "truncate": (0.1, 200), "metrics": "agc_approx*"},
        {"unit": "campaign", "baseline": "score_lr", "approx_agc": True, "metrics": "agc_approx"},
        {"classes": "campaign", "metrics": ["aul", "adjusted_rand_index", "bcubed_*"]},
        {"classes": "campaign", "metrics": ["aul", "assignment_score"]},
        {"baseline": "cluster_loose", "unit": "campaign", "classes": "campaign", "metrics": ["lift", "clustering"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_real_data_give_the_bytes_of_threads(client: Any, options: dict[str, Any]) -> None:
    """Exact, weighted, approximate, sampled and compared: the JSON of threads."""
    options = COLUMNS | {"nulls": "singleton"} | options
    there, here = evaluate(str(REAL), client=client, **options), evaluate(str(REAL), threads=2, **options)
    assert there.to_json() == here.to_json()


def test_late_labels_give_the_bytes_of_threads(client: Any, simulated: Path) -> None:
    """Every worker gets the table of labels once; each task marks the ids that it has seen."""
    late = pa.table({"message_id": np.arange(0, ROWS, 3), "label": np.arange(0, ROWS, 3) % 2})
    options: dict[str, Any] = {"score": "score_a", "cluster": "cluster", "labels": late, "on": "message_id"}
    there, here = evaluate(simulated, client=client, **options), evaluate(simulated, threads=2, **options)
    assert there.to_json() == here.to_json()
    assert there.labels["used"] == late.num_rows


def test_intervals_of_clusters_are_those_of_threads(client: Any, simulated: Path) -> None:
    """Sweeps of several ranges, by cluster, by class and by a unit that two clusterings share."""
    columns: dict[str, Any] = {"cluster": ["cluster", "campaign"], "classes": "campaign", "unit": "campaign"}
    options = columns | {"metrics": ["aul", "roc_auc_by_size", "adjusted_rand_index", "bcubed_*", "v_measure"]}
    there, here = (
        evaluate(simulated, **options, baseline="cluster", **on) for on in ({"client": client}, {"threads": 2})
    )
    assert there.to_json() == here.to_json()
    assert here.difference("aul", "campaign", "cluster").stderr > 0


def test_a_limit_too_low_for_workers_is_said_beforehand(
    client: Any, simulated: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the limit that suffices, which is then silent; the values are the same."""
    given: dict[str, Any] = {"score": "score_a", "metrics": "roc_auc", "client": client}
    with caplog.at_level(logging.WARNING, "streameval"):
        little = evaluate(simulated, **given, memory="160KiB").results
    [record, _] = caplog.records  # rows of finished tasks do not fit either
    assert "163.8 kB of memory of a worker is too little" in record.getMessage()
    [least] = re.findall(r"give (\d+) MiB \(--memory\)", record.getMessage())
    caplog.clear()
    with caplog.at_level(logging.WARNING, "streameval"):
        assert evaluate(simulated, **given, memory=f"{least}MiB").results == little
    assert not caplog.records


def test_a_sketch_is_that_of_threads(client: Any, simulated: Path) -> None:
    """Files and Dask frames; errors name the worker's file, and progress counts all rows."""
    import dask.dataframe as dd

    seen: list[tuple[int, int]] = []
    found = streameval.quantile_sketch(
        simulated, "score_a", client=client, progress=lambda *now: seen.append(now), compression=200
    )
    assert found == streameval.quantile_sketch(simulated, "score_a", threads=2, compression=200)
    assert max(seen) == (ROWS, ROWS)
    frame = dd.from_pandas(pd.DataFrame({"x": np.arange(1000.0)}), npartitions=3)
    there = streameval.quantile_sketch(frame, "x", client=client)
    assert there == streameval.quantile_sketch(frame, "x", threads=1)
    assert (there.count, there.quantile(0.5)) == (1000, 499.5)
    with pytest.raises(OptionError, match="threads=1 runs here and a client"):
        streameval.quantile_sketch(frame, "x", client=client, threads=1)


@pytest.mark.parametrize("where", ["real", "simulated"])
def test_an_attribution_is_that_of_threads(
    client: Any, simulated: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, examples and totals, also of states that are spread over several ranges."""
    monkeypatch.setattr(engine, "RANGE_BYTES", 1 << 16)
    asked: dict[str, Any] = {"cluster": "cluster", "classes": "campaign", "label": "label", "examples": "score_a"}
    if where == "real":
        asked |= {"cluster": "cluster_loose", "examples": "message_id"}
    data = str(REAL) if where == "real" else simulated
    there, here = attribute(data, client=client, top=10, **asked), attribute(data, threads=2, top=10, **asked)
    assert there == here
    assert there.merges.num_rows == 10


def test_many_ranges_give_the_bytes_of_threads(
    client: Any, simulated: Path, options: dict[str, Any], expected: str
) -> None:
    """States that are split over workers, and the curves of what stays there."""
    seen: list[tuple[int, int]] = []
    there = evaluate(simulated, client=client, progress=lambda *now: seen.append(now), **options)
    assert there.to_json() == expected
    assert seen[-1] == (ROWS, ROWS)
    here = evaluate(simulated, threads=1, **options)
    for name, of in (("roc", "score_a"), ("precision_recall", "score_b"), ("gain", "score_a"), ("lift", "cluster")):
        one, other = there.curve(name, of), here.curve(name, of)
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)
        assert one.area == other.area
    assert there.confusion(0.5, "score_a") == here.confusion(0.5, "score_a")
    assert pickle.loads(pickle.dumps(there)).to_json() == expected


@pytest.mark.parametrize("matched", [True, False])
def test_tables_make_the_tasks_of_the_plan(
    client: Any, simulated: Path, monkeypatch: pytest.MonkeyPatch, matched: bool
) -> None:
    """In two levels, with the best matching or without: the bytes of threads, and no more tasks than planned."""
    monkeypatch.setattr(ClusterEngine, "_range_count", lambda *_: 6)
    monkeypatch.setattr(engine, "SPLITS", 10)
    asked: dict[str, Any] = {"cluster": "cluster", "classes": "campaign", "nulls": "singleton"}
    asked["metrics"] = ["assignment_score", "rand_index"] if matched else "rand_index"
    planned = explain(simulated, client=client, **asked)
    client.cluster.scheduler.add_plugin(done := Done(), name="done")
    there = evaluate(simulated, client=client, **asked)
    client.cluster.scheduler.remove_plugin("done")
    made = +done.names
    assert there.to_json() == evaluate(simulated, threads=2, **asked).to_json()
    assert set(made) == set(planned.tasks)
    exact = {"open", "fold", "finish"}  # ranges without rows are not visited
    assert {name: made[name] for name in exact} == {name: planned.tasks[name] for name in exact}
    assert all(made[name] <= n for name, n in planned.tasks.items()), (made, planned.tasks)
    assert made["clusters"] > 1


class Done(distributed.SchedulerPlugin):
    """Counts tasks that were done, by the name that the dashboard shows."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Note a task that changes its state."""
        match = re.match(r"streameval-(.*?)-[0-9a-f]{8}", str(key))
        self.names[match[1] if match else ""] += (start, finish) == ("processing", "memory")


def test_the_matching_does_not_come_to_the_client(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client receives of a matched table are outlines and results, no cells."""
    received: list[Any] = []
    gather = Connection.gather

    def noted(connection: Connection, futures: Any) -> list[Any]:
        found = gather(connection, futures)
        received.extend(found)
        return found

    monkeypatch.setattr(Connection, "gather", noted)
    asked: dict[str, Any] = {"classes": "campaign", "nulls": "singleton", "metrics": "assignment_score"}
    evaluate(str(REAL), client=client, cluster="cluster_loose", **asked)
    sizes = {type(value).__name__: len(pickle.dumps(value)) for value in received}
    assert set(sizes) <= {"NoneType", "Folded", "tuple"}
    handed = [value[1] for value in received if isinstance(value, tuple) and hasattr(value[1], "runs")]
    assert {type(cells).__name__ for cells in handed} == {"ByClass", "Shared"}
    assert not any(run.segments for cells in handed for run in cells.runs().values())
    assert all(not visit.cells for value in received if isinstance(value, tuple) and isinstance(value[0], list)
               for visit in value[0])  # fmt: skip


def test_an_active_client_is_found_and_threads_stay_here(client: Any) -> None:
    """Without naming it, the active client runs the evaluation; `threads` runs it in this process all the same."""
    data = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.9, 0.4, 0.3]})
    with distributed.Client(client.scheduler.address):
        seen = [type(evaluate(data, score="score", threads=n)._engine).__name__ for n in (None, 2)]
    assert seen == ["ClusterEngine", "ThreadEngine"]


@contextmanager
def bare_worker(client: Any, **environment: str) -> Iterator[str]:
    """The address of one more worker, which nobody starts again; it keeps the environment given."""
    known = set(workers(client))
    command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address]
    process = subprocess.Popen(
        [*command, "--no-nanny", "--nthreads", "1", "--memory-limit", "2GiB", "--no-dashboard"],
        env=os.environ | environment,
        cwd="/",  # or it would come first on the path
        stderr=subprocess.DEVNULL,
    )
    try:
        client.wait_for_workers(len(known) + 1, timeout=HANGS)
        yield next(iter(set(workers(client)) - known))
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    """A client of two processes that tests may kill; their nannies start them again."""
    with cluster() as client:
        yield client


def test_a_killed_worker_changes_nothing(mortal: Any, simulated: Path, options: dict[str, Any], expected: str) -> None:
    """One killed in the middle, which its nanny starts again, and one after the run, before a curve: the same bytes."""
    victims = iter(workers(mortal).values())
    kill = once(lambda: os.kill(next(victims), signal.SIGKILL))
    found = evaluate(simulated, client=mortal, progress=kill, **options)
    assert found.to_json() == expected
    os.kill(next(victims), signal.SIGKILL)
    assert found.curve("roc", "score_a").area == found.value("roc_auc", "score_a")


def test_a_worker_that_never_returns_changes_nothing(
    mortal: Any, simulated: Path, options: dict[str, Any], expected: str
) -> None:
    """One without a nanny is killed in the middle: the others do its work."""
    mortal.wait_for_workers(2, timeout=HANGS)
    with bare_worker(mortal) as victim:
        kill = once(lambda: os.kill(workers(mortal)[victim], signal.SIGKILL))
        assert evaluate(simulated, client=mortal, progress=kill, **options).to_json() == expected


def test_a_scheduler_that_goes_away_is_one_clear_error(
    tmp_path: Path, simulated: Path, options: dict[str, Any]
) -> None:
    """One killed in the middle of the run ends it with one line that names it."""
    address = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--scheduler-file", str(address), "--no-dashboard"], cwd="/", stderr=subprocess.DEVNULL
    )

    def kill() -> None:
        client._timeout = 5  # seconds in which it looks for the scheduler again
        process.kill()

    try:
        while not (address.exists() and address.stat().st_size):
            assert process.poll() is None
            time.sleep(0.05)
        with (
            distributed.Client(scheduler_file=str(address), set_as_default=False) as client,
            bare_worker(client),
            pytest.raises(ClusterError, match=r"scheduler at tcp://.* is gone"),
        ):
            evaluate(simulated, client=client, progress=once(kill), **options)
    finally:
        process.kill()
        process.wait()


def test_a_restart_in_the_middle_is_one_clear_error(simulated: Path, options: dict[str, Any]) -> None:
    """`Client.restart` forgets the tasks of a run: the line says so, and the next run on the client is a run."""
    with cluster(1) as client:  # of killed workers, a restart may lose the nannies
        restart = functools.partial(client.restart, timeout=HANGS, wait_for_workers=False)
        with pytest.raises(ClusterError, match=r"scheduler at tcp://.* is gone or was restarted"):
            evaluate(simulated, client=client, progress=once(restart), **options)
        client.wait_for_workers(1, timeout=HANGS)
        assert evaluate(str(REAL), client=client, score="score_lr").rows


def test_a_scheduler_that_does_not_answer_is_one_clear_error() -> None:
    """An address where nobody listens: the wait is that of the run, not the 30 s of Dask."""
    start = time.monotonic()
    with pytest.raises(ClusterError, match="no Dask sche"):
        evaluate(str(REAL), client="tcp://127.0.0.1:9", scheduler_timeout=0, **COLUMNS)
    assert time.monotonic() - start < 10


def test_a_client_made_for_a_run_is_closed_with_it(client: Any) -> None:
    """Given an address, the client lives as long as the evaluation, whose curves need it."""
    found = evaluate(str(REAL), client=client.scheduler.address, score="score_lr")
    own = found._engine.connection.client
    assert found.curve("roc").area == found.value("roc_auc")
    assert own.status == "running"
    del found
    gc.collect()
    assert own.status == "closed"


def test_mixed_versions_are_refused(client: Any, tmp_path: Path) -> None:
    """A worker with another version of streameval is named, with both versions."""
    shutil.copytree(Path(streameval.__file__).parent, tmp_path / "streameval")
    package, ours = tmp_path / "streameval" / "__init__.py", streameval.__version__
    package.write_text(package.read_text().replace(f'"{ours}"', '"0.0.7"'))
    with (
        bare_worker(client, PYTHONPATH=str(tmp_path)) as odd,
        pytest.raises(ClusterError, match=rf"{odd} has streameval 0\.0\.7, the client {ours}"),
    ):
        evaluate(str(REAL), client=client, **COLUMNS)
    while odd in client.scheduler_info(n_workers=-1)["workers"]:  # until its end is known: the next run would ask it
        time.sleep(0.05)


def test_workers_that_are_full_before_the_run_are_refused() -> None:
    """Dask would pause them for good: one clear line instead of waiting."""
    with (
        dask.config.set({"distributed.worker.memory.pause": 0.1, "distributed.worker.memory.terminate": False}),
        cluster(1, memory_limit="400MiB") as client,
        pytest.raises(ClusterError, match=r"has 400 MiB of memory, of which \d+ are taken .* pauses it at 10%"),
    ):
        evaluate(str(REAL), client=client, **COLUMNS)


def test_a_path_that_workers_cannot_see_names_the_worker(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path through the working directory, which workers do not share."""
    pq.write_table(pa.table({"label": [0, 1], "score": [0.1, 0.9]}), tmp_path / "data.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingInputError, match=r"data.parquet: no such file.* \(on worker tcp://"):
        evaluate("/proc/self/cwd/data.parquet", score="score", client=client)


def test_an_error_of_the_data_comes_back_at_once(client: Any) -> None:
    """Labels of three classes are not tried again; the error is that of threads."""
    table = pa.table({"label": [0, 1, 2], "score": [0.1, 0.9, 0.4]})
    here = refuses(LabelError, "", evaluate, table, score="score", threads=1)
    there = refuses(LabelError, "", evaluate, table, score="score", client=client)
    assert there == here


def damaged(folder: Path) -> str:
    """Three files, of which one has lost its pages but not its footer."""
    rng = np.random.default_rng(0)
    for i in range(3):
        data = {"label": rng.integers(0, 2, 1000), "score": rng.random(1000)}
        pq.write_table(pa.table(data), folder / f"part-{i}.parquet", compression="zstd")
    with (folder / "part-1.parquet").open("r+b") as file:
        file.seek(4)
        file.write(bytes(2000))
    return str(folder)


def test_a_file_that_never_reads_is_an_error_or_left_out(client: Any, tmp_path: Path) -> None:
    """The error names it; told to skip, the run leaves it out and lists it, as threads do."""
    data = damaged(tmp_path)
    refuses(CorruptFileError, r"part-1.parquet: cannot be read", evaluate, data, score="score", client=client)
    found = [evaluate(data, score="score", on_error="skip", **where) for where in ({"client": client}, {"threads": 1})]
    assert found[0].to_json() == found[1].to_json()
    assert [Path(name).name for name, _ in found[0].skipped] == ["part-1.parquet"]


def flaky(folder: Path, failures: int) -> Any:
    """A delayed table that fails a number of times first."""

    def make() -> pa.Table:
        tried = len(list(folder.iterdir()))
        if tried < failures:
            (folder / str(tried)).touch()
            raise OSError(f"attempt {tried}")
        return pa.table({"label": [0, 1, 1], "score": [0.1, 0.9, 0.4], "unused": ["a", "b", "c"]})

    return dask.delayed(make)(dask_key_name=f"flaky-{folder.name}-{failures}")


def test_a_partition_that_fails_twice_is_read_the_third_time(client: Any, tmp_path: Path) -> None:
    """Reads are tried three times; one that fails for good is named, or left out."""
    plain = dask.delayed(pa.table)({"label": [1, 0], "score": [0.2, 0.3]})
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    assert evaluate([plain, flaky(folders[0], 2)], score="score", client=client).rows == 5
    with pytest.raises(CorruptFileError, match=r"partition 1 .* cannot be computed: OSError: attempt 2"):
        evaluate([plain, flaky(folders[1], 3)], score="score", client=client)
    found = evaluate([plain, flaky(folders[2], 3)], score="score", client=client, on_error="skip")
    assert (found.rows, len(found.skipped)) == (2, 1)


@pytest.mark.parametrize("where", ["client", "threads"])
def test_dask_frames_and_delayed_tables_are_read_partition_by_partition(client: Any, where: str) -> None:
    """A Dask DataFrame of any source, and a list of delayed tables, give what the table in memory gives."""
    import dask.dataframe as dd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"label": rng.random(500) < 0.3, "score": rng.random(500), "cluster": rng.choice(["a", "b", "c"], 500)}
    )
    run: dict[str, Any] = {"client": client} if where == "client" else {"threads": 2}
    asked: dict[str, Any] = {"score": "score", "cluster": "cluster"}
    expected = evaluate(frame, threads=1, **asked).to_json()
    assert evaluate(dd.from_pandas(frame, npartitions=3), **run, **asked).to_json() == expected
    parts = [dask.delayed(pa.Table.from_pandas)(part) for part in (frame[:100], frame[100:350], frame[350:])]
    assert evaluate(parts, **run, **asked).to_json() == expected
    if where == "client":
        assert evaluate([client.persist(part) for part in parts], **run, **asked).to_json() == expected
    assert evaluate(pa.Table.from_pandas(frame), **run, **asked).to_json() == expected


def test_a_reader_cannot_leave_its_process(client: Any) -> None:
    """A stream of this process is refused with the remedy."""
    data = pa.table({"label": [0, 1], "score": [0.1, 0.9]}).to_reader()
    refuses(OptionError, "cannot leave this process; give threads=", evaluate, data, score="score", client=client)


def test_a_partition_that_kills_its_workers_is_one_clear_error(mortal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many workers as Dask allows die of one task: the error names memory."""
    monkeypatch.setattr(mortal.cluster.scheduler, "allowed_failures", 0)
    mortal.wait_for_workers(1, timeout=HANGS)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    plain = dask.delayed(pa.table)({"label": [1, 0], "score": [0.2, 0.3]})
    with pytest.raises(ClusterError, match="most likely out of memory"):
        evaluate([plain, dask.delayed(die)()], score="score", client=mortal)


@pytest.mark.parametrize("where", ["client", "threads"])
def test_a_plan_says_what_the_run_then_does(client: Any, where: str, simulated: Path, options: dict[str, Any]) -> None:
    """Folds and ranges of the plan are those of the run; bytes are those of the columns asked for."""
    run: dict[str, Any] = {"client": client} if where == "client" else {"threads": 2}
    planned = explain(simulated, **run, **options)
    calls: list[int] = []
    found = evaluate(simulated, progress=lambda rows, _: calls.append(rows), **run, **options)
    assert planned.rows == found.rows
    if where == "client":
        assert planned.tasks["fold"] == len(calls)
        assert planned.ranges == len(found._engine.ranges[0].futures)
    columns = {"label", "score_a", "score_b", "cluster"}
    footers = [pq.read_metadata(file) for file in simulated.rglob("*.parquet")]
    groups = [footer.row_group(i) for footer in footers for i in range(footer.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    assert planned.bytes == sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
    assert [state.kind for state in planned.states] == ["score_counts", "score_counts", "cluster_counts"]


def test_every_worker_counts() -> None:
    """Also where there are more than the five that some versions of Dask list by default."""
    with cluster(7, processes=False, memory_limit=0) as client:  # in this process, of whatever size tests have made it
        found = connect(client, None)
        assert (found.workers, found.threads) == (7, 7)


@pytest.mark.parametrize("passes", [1, 2])
def test_weighted_samples_add_up_in_one_order(client: Any, simulated: Path, passes: int) -> None:
    """Sums of weights have the bits of threads: also of several tasks, which end in any order."""
    options: dict[str, Any] = {"score": ["score_a", "score_b"], "weight": "score_b", "truncate": 0.01, "passes": passes}
    options |= {"approx_agc": True, "sample": 0.5, "metrics": "agc_approx*"}
    expected = evaluate(simulated, threads=2, **options).to_json()
    assert evaluate(simulated, client=client, **options).to_json() == expected
    assert evaluate(simulated, threads=1, **options).to_json() == expected


def test_tables_in_memory_are_sent_without_a_warning(client: Any) -> None:
    """Dask warns of graphs of 10 MB; the rows are part of the graph on purpose."""
    rng = np.random.default_rng(0)
    table = pa.table({"label": rng.integers(0, 2, 1_400_000), "score": rng.random(1_400_000)})
    assert table.nbytes > 20 << 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(table, score="score", metrics="roc_auc", client=client)
    assert found.results == evaluate(table, score="score", metrics="roc_auc", threads=1).results


def test_threads_and_a_client_exclude_each_other(client: Any) -> None:
    """Both at once are refused, and so is anything but a client."""
    refuses(OptionError, "give one of them", evaluate, str(REAL), client=client, threads=2, **COLUMNS)
    for other in (7, client.cluster):
        refuses(OptionError, r"must be a distributed.Client", evaluate, str(REAL), client=other, **COLUMNS)


def test_workers_that_die_when_they_are_asked_are_named(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too small to import what it needs is started again and again; the scheduler is not to blame."""
    monkeypatch.setattr(client, "run", lambda *_, **__: {"tcp://small:1": OSError("closed")})
    with pytest.raises(
        ClusterError, match=r"worker tcp://small:1 does not answer .OSError.: most likely out of memory"
    ):
        connect(client, None, 0)


def test_the_command_line_runs_on_a_scheduler(client: Any, tmp_path: Path) -> None:
    """A process with `--scheduler` writes the JSON of threads, and ends."""
    words = ["evaluate", str(REAL), "--score", "score_lr", "--quiet", "--json"]
    there, here = tmp_path / "there.json", tmp_path / "here.json"
    command = [sys.executable, "-m", "streameval", *words, str(there), "--scheduler", client.scheduler.address]
    subprocess.run(command, check=True, timeout=HANGS)
    assert run(*words, here, "--threads", "1").exit_code == 0
    assert there.read_bytes() == here.read_bytes()
