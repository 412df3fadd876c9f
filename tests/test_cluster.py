"""The same run on a cluster of real processes: the same bytes, whatever the cluster is like and whoever dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streameval import evaluate
from streameval.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

distributed = pytest.importorskip("distributed")

REAL = Path(__file__).parent / "data" / "spam_messages"
COLUMNS: dict[str, Any] = {"score": ["score_lr", "score_nb", "score_q"], "cluster": ["cluster_loose", "cluster_tight"]}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two processes with one thread each."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit="2GiB"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three million messages, whose states are large enough for several ranges."""
    return Path(simulate(tmp_path_factory.mktemp("cluster") / "data", rows=3_000_000, partitions=6).path)


@pytest.mark.parametrize(
    "options",
    [
        {"truncate": 0.1, "at": "fpr=0.01"},
        {"weight": "weight"},
        {"approx": True},
        {"approx_agc": True, "sample": 0.5, "metrics": ["agc_approx", "roc_auc"]},
        {"classes": "campaign", "metrics": ["aul", "adjusted_rand_index", "bcubed_*", "assignment_score"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_real_data_give_the_bytes_of_threads(client: Any, options: dict[str, Any]) -> None:
    """Exact, weighted, approximate, sampled and compared: the JSON of threads."""
    options = COLUMNS | {"nulls": "singleton"} | options
    there, here = evaluate(str(REAL), client=client, **options), evaluate(str(REAL), threads=2, **options)
    assert there.to_json() == here.to_json()
