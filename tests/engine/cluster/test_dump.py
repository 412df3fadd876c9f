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
from streameval.errors import ClusterError
from streameval.states import codec
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped.keys import Blocks
from streameval.states.grouped.state import GroupedSpec
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


def spoil(folder: str, times: int, change: str) -> None:
    """Make the workers lose or repeat the rows of so many tasks that store them, as after a fold that differs."""
    from pathlib import Path

    from streameval.engine.cluster import work
    from streameval.states.keyed.ranges import joined, ranged

    sound = getattr(work, "sound", work.dump)

    def dump(parts: Any, *given: Any, **named: Any) -> Any:
        if len(list(Path(folder).iterdir())) < times:
            (Path(folder) / str(len(list(Path(folder).iterdir())))).touch()
            rows = [dict(part.rows if isinstance(part, work.Part) else part) for part in parts]
            spec = named["wanted"][0]
            rows[-1][spec] = joined([rows[-1][spec]] * 2) if change == "twice" else ranged(rows[-1][spec], (0, 0))
            parts = rows
        return sound(parts, *given, **named)

    work.sound, work.dump = sound, dump  # type: ignore[attr-defined]


def test_rows_that_differ_from_their_outline_are_not_stored(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged once, they are folded again and give the batches of threads; always damaged, they end with one line."""
    monkeypatch.setattr(ClusterEngine, "_range_count", lambda *_: 3)
    connection = connect(client, None)
    assert connection is not None
    there, here = ClusterEngine.start(connection), ThreadEngine.start(threads=1)
    scanned, plan = planned(tmp_path / "data.parquet", 5)
    theirs, mine = (engine.read(scanned.pieces, scanned.rows, plan).states for engine in (there, here))
    always = 1 << 20
    for spec, times, change in (*((spec, 1, "lost") for spec in SPECS), (SPECS[0], 1, "twice"), (SPECS[0], always, "")):
        folder = tmp_path / f"{spec.kind}-{times}-{change}"
        folder.mkdir()
        client.run(spoil, str(folder), times, change, on_error="ignore")
        if times == always:
            with pytest.raises(ClusterError, match="rows that were folded again differ"):
                list(there.dump(theirs[spec])[1])
            continue
        stored, expected = (
            pa.Table.from_batches(batches, schema)
            for schema, batches in (there.dump(theirs[spec]), here.dump(mine[spec]))
        )
        assert stored.equals(expected, check_metadata=True)
        assert list(folder.iterdir())
    client.run(spoil, str(tmp_path), 0, "", on_error="ignore")
