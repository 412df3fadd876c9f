"""States that workers serialise: the rows of the latest pass, in the batches that threads would write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import scan
from streameval.engine.cluster import ClusterEngine, connect
from streameval.engine.fold import Plan
from streameval.engine.threads import ThreadEngine
from streameval.states import codec
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped import Blocks, GroupedSpec
from streameval.states.labels import LabelSpec
from streameval.states.scores.counts import ScoreSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 30_000
BLOCKED = GroupedSpec(ClusterSpec("cluster"), Blocks("campaign"))
SPECS = (ScoreSpec("score", "f8"), BLOCKED)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two processes."""
    small: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**small) as made, distributed.Client(made, set_as_default=False) as found:
        yield found


def planned(path: Path, seed: int) -> tuple[scan.Scan, Plan]:
    """The scan of a file of random rows, and its plan."""
    rng = np.random.default_rng(seed)
    columns = {"label": rng.random(ROWS) < 0.3, "score": rng.random(ROWS)}
    columns |= {name: rng.integers(0, ROWS // 4, ROWS) for name in ("cluster", "campaign")}
    pq.write_table(pa.table(columns), path, row_group_size=ROWS // 4)
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
        for state, own in [
            *((theirs[spec], mine[spec]) for spec in SPECS),
            (theirs[BLOCKED].total(), mine[BLOCKED].total()),
        ]:
            stored, expected = (pa.Table.from_batches(x[1], x[0]) for x in (there.dump(state), here.dump(own)))
            assert stored.equals(expected, check_metadata=True)
            assert codec.load(stored.to_batches()) == own
