"""Runs inside the tasks of a cluster: on threads by default, or on the client that is given; none waits for itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from streameval import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module", params=[True, False], ids=["process", "thread"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
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
def test_runs_in_tasks(client: Any, data: str, tmp_path: Path, name: str) -> None:
    """The value is that of a run outside, also where the only thread of the only worker runs the task."""
    function = runs()[name]
    expected = runs()["evaluated"](data, "", threads=1)
    assert client.submit(function, data, str(tmp_path / "store"), pure=False).result(timeout=60) == expected


def test_runs_beside_tasks(client: Any, data: str) -> None:
    """The worker's own client is not the active client of other threads of its process."""
    evaluated = runs()["evaluated"]

    def from_a_thread(data: str) -> list[float]:
        values: list[float] = []
        thread = threading.Thread(target=lambda: values.append(evaluated(data, "")))
        thread.start()
        thread.join()
        return values

    if client.scheduler.address.startswith("tcp"):
        assert client.submit(from_a_thread, data, pure=False).result(timeout=60) == [evaluated(data, "", threads=1)]
        assert list(client.run(evaluated, data, "").values()) == [evaluated(data, "", threads=1)]


def test_a_client_is_refused_in_the_event_loop_of_a_worker(client: Any, data: str) -> None:
    """`Client.run` calls functions in the loop that would have to start the tasks."""
    evaluated, address = runs()["evaluated"], client.scheduler.address

    def run(data: str) -> str:
        try:
            return str(evaluated(data, "", client=address))
        except Exception as error:
            return str(error)

    assert "submit a task instead" in str(client.run(run, data))
