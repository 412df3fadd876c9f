"""Workers: those that live, die or are spoilt, the modules they need, and runs within their tasks."""

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refuses

from streameval import Store, evaluate, quantile_sketch, simulate
from streameval.engine import start
from streameval.engine.cluster import ClusterEngine
from streameval.engine.connection import connect
from streameval.errors import ClusterError, OptionError
from streameval.evaluation import explain
from streameval.metrics.protocol import as_metric

HANGS = 600  # seconds: the time limit of whatever should not hang
DATA = pa.table({"label": [0, 1, 0, 1] * 100, "score": [0.1, 0.9, 0.4, 0.3] * 100})
EXPECTED = 0.75  # area under the ROC curve of the scores


@contextmanager
def cluster(n_workers: int, **options: Any) -> Iterator[Any]:
    """A client of some processes with one thread each."""
    known: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=n_workers, memory_limit="2GiB", **(known | options)) as made,
        distributed.Client(made, set_as_default=False) as client,
    ):
        yield client


# -- workers that have left -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    """A client of three processes that tests may kill; their nannies start them again."""
    with cluster(3) as found:
        yield found


def living(client: Any) -> list[int]:
    """The processes of the three workers, once all of them answer."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        answers = client.run(os.getpid, on_error="return").values()
        if len(found := [answer for answer in answers if isinstance(answer, int)]) == 3:
            return found
        threading.Event().wait(0.05)
    raise TimeoutError("the nannies did not start three workers again")


@pytest.mark.parametrize("wait", [0.0, 0.5])
def test_a_run_uses_the_workers_that_live(mortal: Any, wait: float) -> None:
    """Whether or not the scheduler knows of the death of a worker, the run starts on the other ones."""
    os.kill(living(mortal)[0], signal.SIGKILL)
    threading.Event().wait(wait)
    assert evaluate(DATA, score="score", client=mortal).value("roc_auc") == EXPECTED


def test_a_run_waits_for_a_worker(mortal: Any) -> None:
    """If all workers died, the run starts on the first that the nannies start again."""
    for victim in living(mortal):
        os.kill(victim, signal.SIGKILL)
    connection = connect(mortal, None, HANGS)
    assert connection.workers >= 1
    assert evaluate(DATA, score="score", client=mortal).value("roc_auc") == EXPECTED


# -- a user's own metric ----------------------------------------------------------------------------------------------

MODULE = '''
from dataclasses import dataclass

@dataclass(frozen=True)
class Groups:
    """Number of distinct scores."""

    name: str = "groups"
    family: str = "score"

    def partial(self, part):
        return part.rows.size

    def combine(self, partials, state):
        return sum(partials)
'''


def folded(client: Any) -> tuple[ClusterEngine, Any]:
    """An engine whose workers hold the counts of a score, and their outline."""
    found = evaluate(DATA, score="score", client=client)
    assert isinstance(found._engine, ClusterEngine)
    return found._engine, found._states["score", "score"]


def test_a_module_that_workers_lack_is_named_and_can_be_sent(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the run and in it the error names module and remedy; after ``client.upload_file`` the metric works."""
    (tmp_path / "metrics_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    metric = as_metric(importlib.import_module("metrics_of_a_user").Groups())
    engine, state = folded(client)
    lacks = r"worker tcp://.* cannot import module 'metrics_of_a_user' .*client\.upload_file.* or install it"
    refuses(ClusterError, lacks, engine.check, [metric])
    refuses(ClusterError, lacks, engine.finalize, [(state, [metric])])
    client.upload_file(str(tmp_path / "metrics_of_a_user.py"))
    engine.check([metric])
    assert engine.finalize([(state, [metric])]) == [[4]]


def test_a_class_of_a_function_travels_by_value(client: Any) -> None:
    """A class that no module has, as in a notebook, needs nothing on the workers."""

    @dataclass(frozen=True)
    class Positives:
        name: str = "positives"
        family: str = "score"

        def partial(self, part: Any) -> int:
            return int(part.p.sum())

        def combine(self, partials: Any, state: Any) -> int:
            return sum(partials)

    engine, state = folded(client)
    metric = as_metric(Positives())
    engine.check([metric])
    assert engine.finalize([(state, [metric])]) == [[200]]


def test_a_metric_that_cannot_be_sent_is_refused(client: Any) -> None:
    """A field such as a lock stays in its process; threads take the metric, a client does not."""

    @dataclass(frozen=True)
    class Locked:
        lock: Any
        name: str = "locked"
        family: str = "score"

    metric = as_metric(Locked(threading.Lock()))
    start(threads=1, metrics=[metric])
    with pytest.raises(OptionError, match=r"metrics 'locked' cannot be sent to workers \(TypeError: .*lock"):
        folded(client)[0].check([metric])


@pytest.fixture(scope="module", params=[True, False], ids=["process", "thread"])
def busy_client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of one worker with one thread, whose tasks have asked for the worker's own client."""
    import distributed

    small = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "processes": request.param}
    with distributed.LocalCluster(**small) as cluster, distributed.Client(cluster) as made:
        made.submit(lambda: distributed.get_client().id).result(timeout=60)
        yield made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two nights."""
    out = tmp_path_factory.mktemp("tasks") / "data"
    simulate(out, rows=2_000, partitions=2)
    return str(out)


def runs() -> dict[str, Any]:
    """Functions of data and a directory, to be pickled by value."""

    def evaluated(data: str, _: str, **options: Any) -> float:
        from streameval import evaluate

        return float(evaluate(data, score="score_a", metrics="roc_auc", **options).value("roc_auc"))

    def stored(data: str, out: str, **options: Any) -> float:
        from streameval import Store

        store = Store(out, **options)
        store.update(data, score="score_a")
        return float(store.evaluate().value("roc_auc"))

    def given(data: str, out: str) -> float:
        import distributed

        return evaluated(data, out, client=distributed.get_client())

    def given_twice(data: str, out: str) -> float:
        import distributed

        given(data, out)
        return evaluated(data, out, client=distributed.get_worker().scheduler.address)

    def stored_by_client(data: str, out: str) -> float:
        import distributed

        return stored(data, out, client=distributed.get_client())

    return {f.__name__: f for f in (evaluated, stored, given, given_twice, stored_by_client)}


@pytest.mark.parametrize("name", runs())
def test_runs_in_tasks(busy_client: Any, data: str, tmp_path: Path, name: str) -> None:
    """The value is that of a run outside, also where the only thread of the only worker runs the task."""
    function = runs()[name]
    expected = runs()["evaluated"](data, "", threads=1)
    assert busy_client.submit(function, data, str(tmp_path / "store"), pure=False).result(timeout=60) == expected


def test_a_client_is_refused_in_the_event_loop_of_a_worker(busy_client: Any, data: str) -> None:
    """`Client.run` calls functions in the loop that would have to start the tasks."""
    evaluated, address = runs()["evaluated"], busy_client.scheduler.address

    def run(data: str) -> str:
        try:
            return str(evaluated(data, "", client=address))
        except Exception as error:
            return str(error)

    assert "submit a task instead" in str(busy_client.run(run, data))


def test_the_time_to_wait_is_an_option(tmp_path: Path) -> None:
    """Of evaluations, sketches and stores; without a scheduler it is refused."""
    pq.write_table(DATA, tmp_path / "part.parquet")
    with cluster(0) as client:
        run: dict[str, Any] = {"client": client, "scheduler_timeout": 0.2}
        for call in (
            lambda: connect(client, None, 0.2),
            lambda: evaluate(DATA, score="score", **run),
            lambda: quantile_sketch(DATA, "score", **run),
            lambda: Store(tmp_path / "store", **run).update(tmp_path / "part.parquet", score="score"),
        ):
            refuses(ClusterError, r"tcp://.* has no workers after 0\.2 s; start some", call)
    for alone in (lambda: quantile_sketch(DATA, "score", scheduler_timeout=3), lambda: Store("x", scheduler_timeout=3)):
        refuses(OptionError, "scheduler_timeout=3 would change nothing without a scheduler", alone)
    with pytest.raises(OptionError, match="a number of seconds, at least 0"):
        evaluate(DATA, score="score", client="tcp://127.0.0.1:1", scheduler_timeout=-1)


def test_workers_that_left_are_named(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that does not answer is logged, and named where the engine says on which workers it runs."""
    run = client.run
    gone: dict[str, Any] = {"tcp://gone:1": OSError("closed")}
    monkeypatch.setattr(client, "run", lambda *args, **options: run(*args, **options) | gone)
    with caplog.at_level(logging.WARNING, "streameval"):
        connection = connect(client, None)
    assert (connection.workers, connection.left) == (2, ("tcp://gone:1",))
    assert "tcp://gone:1 left before the run, which uses 2 other workers" in caplog.text
    assert explain(DATA, score="score", client=client).where.endswith(" (tcp://gone:1 left before the run)")


def test_an_older_module_on_the_workers_is_named(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that the module does not have on the workers gives the same error."""
    file = tmp_path / "metrics_of_last_week.py"
    file.write_text("")
    client.upload_file(str(file))
    file.write_text(MODULE)
    monkeypatch.delitem(sys.modules, file.stem)  # the scheduler of this process imported it
    monkeypatch.syspath_prepend(tmp_path)
    metric = as_metric(importlib.import_module("metrics_of_last_week").Groups())
    with pytest.raises(ClusterError, match=r"cannot import a class \(.*Groups.*\) .*client\.upload_file"):
        folded(client)[0].check([metric])


SCRIPT = """
import distributed
import pyarrow as pa
import pyarrow.parquet as pq
from streameval import Store, evaluate, quantile_sketch
from streameval.metrics.protocol import as_metric
{metric}
if __name__ == "__main__":
    data = pa.table({{"label": [0, 1, 0, 1], "score": [0.1, 0.9, 0.4, 0.3]}})
    with distributed.Client({address!r}) as client:
        found = evaluate(data, score="score")
        metric = as_metric(Groups())
        found._engine.check([metric])
        print(found._engine.finalize([(found._states["score", "score"], [metric])]))
"""


def test_a_class_of_a_script_travels_by_value(client: Any, tmp_path: Path) -> None:
    """A class of ``__main__`` works on workers that run another script."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(metric=MODULE, address=client.scheduler.address))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=HANGS, check=True)
    assert done.stdout.strip() == "[[4]]"
