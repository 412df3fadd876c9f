"""Workers that die once all rows of hot ids are folded, and rows that are not those they had: the bits of threads."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import evaluate
from streameval.engine import fold
from streameval.engine.cluster import engine
from streameval.errors import ClusterError
from streameval.states.keyed import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS, LEARN = 400_000, 1 << 14
OPTIONS: dict[str, Any] = {
    "score": "score",
    "cluster": "cluster",
    "classes": "campaign",
    "metrics": ["roc_auc", "aul", "homogeneity"],
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of three processes, two of which will die; no test waits for their nannies to start them again."""
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"distributed.comm.timeouts.connect": "3s"}),  # for which workers look for a dead one
        distributed.LocalCluster(3, threads_per_worker=1, memory_limit="2GiB", dashboard_address=":0") as made,
        distributed.Client(made, set_as_default=False) as found,
    ):
        for module, name, value in (
            (fold, "TASK_ROWS", 1 << 14),
            (engine, "FOLDS_PER_GB", 1 << 20),
            (engine, "RANGE_BYTES", 1 << 18),
            (ranges, "SLAB", 1 << 15),
        ):
            patch.setattr(module, name, value)
        found.register_plugin(learning_early())
        yield found


def learning_early() -> distributed.WorkerPlugin:
    """What makes every worker, also one that is started again, learn hot keys from few rows."""

    class Plugin(distributed.WorkerPlugin):  # type: ignore[misc]  # pickled by value, since it is of a function
        def setup(self, worker: Any) -> None:
            from streameval.states.keyed import hot

            hot.LEARN = rows

    rows = LEARN
    return Plugin()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids of which those of the first tasks are hot, as those of a burst are."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("deaths")
    hot = rng.random(ROWS) < np.linspace(0.8, 0.1, ROWS)
    ids = np.where(hot, rng.zipf(1.5, ROWS) % 1000, rng.integers(1 << 40, 1 << 62, ROWS))
    columns = {"label": rng.random(ROWS) < 0.3, "cluster": ids, "campaign": np.where(rng.random(ROWS) < 0.9, ids, 0)}
    columns["score"] = np.round(rng.random(ROWS), 3)
    for number, first in enumerate(range(0, ROWS, ROWS // 10)):  # small files are tasks, small row groups are not
        pq.write_table(pa.table(columns).slice(first, ROWS // 10), folder / f"part-{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def expected(data: Path) -> str:
    """The JSON of a run on threads."""
    return evaluate(data, threads=2, **OPTIONS).to_json()


def spoiled(times: int) -> Callable[[], None]:
    """A function that makes a worker give the rows of its next so many splits twice, as a damaged worker might."""

    def spoil() -> None:
        from streameval.engine.cluster import work
        from streameval.states.keyed.ranges import joined

        sound = getattr(work, "sound", work.split)
        left = [times]

        def split(*given: Any, **named: Any) -> Any:
            part = sound(*given, **named)
            left[0] -= 1
            return part if left[0] < 0 else {spec: joined([rows, rows]) for spec, rows in part.rows.items()}

        work.sound, work.split = sound, split  # type: ignore[attr-defined]

    return spoil


def test_rows_that_differ_from_their_outline_are_folded_again(client: Any, data: Path, expected: str) -> None:
    """Once damaged, they give the bits of threads; always damaged, they end the run with one line."""
    for times in (1, 1 << 20, 0):
        client.run(spoiled(times), on_error="ignore")
        if times < 2:
            assert evaluate(data, client=client, **OPTIONS).to_json() == expected
        else:
            with pytest.raises(ClusterError, match="rows that were folded again differ"):
                evaluate(data, client=client, **OPTIONS)


class Beginning(distributed.SchedulerPlugin):
    """Calls a function once a task of some name begins."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.prefix, self.function = f"streameval-{name}-", function
        self.came = False

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """See the class."""
        if finish == "processing" and str(key).startswith(self.prefix) and not self.came:
            self.came = True
            self.function()


@pytest.fixture(scope="module")
def victims(client: Any) -> list[int]:
    """The processes that will die."""
    return sorted(client.run(os.getpid).values())[:2]


@pytest.mark.parametrize("phase", ["split", "finalize"])
def test_a_death_after_all_folds_changes_nothing(
    client: Any, victims: list[int], data: Path, expected: str, phase: str
) -> None:
    """The folds of a dead worker are repeated by one that has folded others: after all outlines were merged."""
    death = Beginning(phase, lambda: os.kill(victims.pop(), signal.SIGKILL))
    client.cluster.scheduler.add_plugin(death, name="death")
    try:
        assert evaluate(data, client=client, **OPTIONS).to_json() == expected
    finally:
        client.cluster.scheduler.remove_plugin("death")
    assert death.came
