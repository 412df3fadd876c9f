"""Rows that a worker lost or repeated are folded again, also after all folds."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refuses

from streameval import evaluate, scan
from streameval.engine import cluster as engine
from streameval.engine import fold
from streameval.engine.cluster import ClusterEngine
from streameval.engine.connection import connect
from streameval.engine.fold import Plan
from streameval.engine.threads import ThreadEngine
from streameval.errors import ClusterError
from streameval.states import codec, rounds
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.grouped.keys import Blocks
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.labels import LabelSpec
from streameval.states.scores.counts import ScoreSpec

ROWS, LEARN = 100_000, 1 << 12
OPTIONS: dict[str, Any] = {
    "score": "score",
    "cluster": "cluster",
    "classes": "campaign",
    "metrics": ["roc_auc", "aul", "homogeneity"],
}


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    """A client of three processes, two of which will die; no test waits for their nannies to start them again."""
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"distributed.comm.timeouts.connect": "3s"}),  # for which workers look for a dead one
        distributed.LocalCluster(3, threads_per_worker=1, memory_limit="2GiB", dashboard_address=":0") as made,
        distributed.Client(made, set_as_default=False) as found,
    ):
        for module, name, value in (
            (fold, "TASK_ROWS", 1 << 12),
            (engine, "FOLDS_PER_GB", 1 << 20),
            (engine, "RANGE_BYTES", 1 << 16),
            (rounds, "SLAB", 1 << 13),
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
        from streameval.engine import work
        from streameval.states.rounds import join_rows

        sound = getattr(work, "sound", work.split)
        left = [times]

        def split(*given: Any, **named: Any) -> Any:
            part = sound(*given, **named)
            left[0] -= 1
            return part if left[0] < 0 else {spec: join_rows([rows, rows]) for spec, rows in part.rows.items()}

        work.sound, work.split = sound, split  # type: ignore[attr-defined]

    return spoil


def test_rows_that_differ_from_their_outline_end_the_run(mortal: Any, data: Path, expected: str) -> None:
    """With one line; the next run on the same workers gives the bits of threads."""
    mortal.run(spoiled(1), on_error="ignore")
    refuses(ClusterError, "worker has folded other rows", evaluate, data, client=mortal, **OPTIONS)
    mortal.run(spoiled(0), on_error="ignore")
    assert evaluate(data, client=mortal, **OPTIONS).to_json() == expected


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
def victims(mortal: Any) -> list[int]:
    """The processes that will die."""
    return sorted(mortal.run(os.getpid).values())[:2]


@pytest.mark.parametrize("phase", ["split", "finalize"])
def test_a_death_after_all_folds_changes_nothing(
    mortal: Any, victims: list[int], data: Path, expected: str, phase: str
) -> None:
    """The folds of a dead worker are repeated by one that has folded others: after all outlines were merged."""
    death = Beginning(phase, lambda: os.kill(victims.pop(), signal.SIGKILL))
    mortal.cluster.scheduler.add_plugin(death, name="death")
    try:
        assert evaluate(data, client=mortal, **OPTIONS).to_json() == expected
    finally:
        mortal.cluster.scheduler.remove_plugin("death")
    assert death.came


DUMPED_ROWS = 30_000
BLOCKED = GroupedSpec(ClusterSpec("cluster"), Blocks("campaign"))
SPECS = (ScoreSpec("score", "f8"), BLOCKED)


def planned(path: Path, seed: int) -> tuple[scan.Scan, Plan]:
    """The scan of a file of random rows, and its plan."""
    rng = np.random.default_rng(seed)
    columns = {"label": rng.random(DUMPED_ROWS) < 0.3, "score": rng.random(DUMPED_ROWS)}
    columns |= {name: rng.integers(0, DUMPED_ROWS // 4, DUMPED_ROWS) for name in ("cluster", "campaign")}
    pq.write_table(pa.table(columns), path, row_group_size=DUMPED_ROWS // 4)
    found = scan.plan(str(path), list(columns))
    return found, Plan(found.schema, LabelSpec("label"), None, SPECS)


def test_each_pass_gives_the_states_of_its_own_rows(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice with the same specs, as when a night is read again without a damaged file; in several ranges."""
    monkeypatch.setattr(ClusterEngine, "_range_count", lambda *_: 3)
    connection = connect(client, None)
    assert connection is not None
    there, here = ClusterEngine.start(connection), ThreadEngine.start(threads=1)
    for seed in range(2):
        found, plan = planned(tmp_path / f"{seed}.parquet", seed)
        theirs, mine = (each.read(found.pieces, found.rows, plan).states for each in (there, here))
        for state, own in ((theirs[spec], mine[spec]) for spec in SPECS):
            stored, expected = (pa.Table.from_batches(x[1], x[0]) for x in (there.dump(state), here.dump(own)))
            assert stored.equals(expected, check_metadata=True)
            assert codec.load(stored.to_batches()) == own


def spoil(folder: str, times: int, change: str) -> None:
    """Make the workers lose or repeat the rows of so many tasks that store them, as after a fold that differs."""
    from pathlib import Path

    from streameval.engine import work
    from streameval.states.rounds import join_rows, select_range

    sound = getattr(work, "sound", work.dump)

    def dump(parts: Any, *given: Any, **named: Any) -> Any:
        if len(list(Path(folder).iterdir())) < times:
            (Path(folder) / str(len(list(Path(folder).iterdir())))).touch()
            rows = [dict(part.rows if isinstance(part, work.Part) else part) for part in parts]
            spec = named["wanted"][0]
            rows[-1][spec] = (
                join_rows([rows[-1][spec]] * 2) if change == "twice" else select_range(rows[-1][spec], (0, 0))
            )
            parts = rows
        return sound(parts, *given, **named)

    work.sound, work.dump = sound, dump  # type: ignore[attr-defined]


def test_rows_that_differ_from_their_outline_are_not_stored(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end the run with one line, and undamaged workers give the batches of threads."""
    monkeypatch.setattr(ClusterEngine, "_range_count", lambda *_: 3)
    connection = connect(client, None)
    assert connection is not None
    there, here = ClusterEngine.start(connection), ThreadEngine.start(threads=1)
    scanned, plan = planned(tmp_path / "data.parquet", 5)
    theirs, mine = (engine.read(scanned.pieces, scanned.rows, plan).states for engine in (there, here))
    for spec, change in (*((spec, "lost") for spec in SPECS), (SPECS[0], "twice")):
        folder = tmp_path / f"{spec.kind}-{change}"
        folder.mkdir()
        client.run(spoil, str(folder), 1, change, on_error="ignore")
        refuses(ClusterError, "worker has folded other rows", list, there.dump(theirs[spec])[1])
        stored, expected = (
            pa.Table.from_batches(batches, schema)
            for schema, batches in (there.dump(theirs[spec]), here.dump(mine[spec]))
        )
        assert stored.equals(expected, check_metadata=True)
        assert list(folder.iterdir())
    client.run(spoil, str(tmp_path), 0, "", on_error="ignore")
