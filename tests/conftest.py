"""Hypothesis profiles: reproducible on a shared machine, wider by hand with ``HYPOTHESIS_PROFILE=wide``.

Files are handed out in this order, long ones first, so that no pytest worker ends much later than the others. The first
two files that run at the same time compile different loops, so that few loops are compiled twice.
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

LONG = """
    frozen laws store_faults store_concurrent cluster slices options jackknife store_hostile bins imports gain simulate
    store_cluster deaths contingency_state store_durable browser ranges evaluate fuzz quantiles catalogue store_laws
    sampled s3 store_s3 arrays_ranking notebooks curves store store_upkeep workers memory contingency bad_input
    store_add
"""

MARKED = {  # what a contributor runs in two minutes: pytest -m "laws or api"
    "laws": "laws grouped store_laws jackknife estimates fold",
    "api": "public_api imports guides cli evaluate accumulator page terminal curves arrays_ranking",
}

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the tests start hundreds of processes: compile modules once
os.fsync = lambda _: None  # tests of power cuts have processes of their own; no other test need wait for the disk

_numba_before = False
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]

settings.register_profile(
    "ci", deadline=None, max_examples=60, derandomize=True, database=None, suppress_health_check=_SLOW
)
settings.register_profile("wide", deadline=None, max_examples=500, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: while a test waits for a process or a disk, another one runs."""
    from streameval.posix import available_threads

    return available_threads() + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark files, and bring long ones forward; the order within a file stays."""
    place = {f"test_{name}": number for number, name in enumerate(LONG.split())}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))
    for item in items:
        for marker, names in MARKED.items():
            if item.path.stem in {f"test_{name}" for name in names.split()}:
                item.add_marker(marker)


def pytest_configure() -> None:
    """Plugins may have imported numba already."""
    global _numba_before
    _numba_before = "numba" in sys.modules


def pytest_collection_finish() -> None:
    """Every pytest worker collects all files: one that compiles loops on import does so in each, before any test."""
    if "numba" in sys.modules and not _numba_before:
        raise pytest.UsageError(
            "a test file evaluates something while it is imported; move that into a test or a fixture"
        )
    gc.freeze()  # what is imported stays: no collection visits it again


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """A client of two processes, which is not the active one; tests that kill workers have their own."""
    import distributed

    small: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**small, memory_limit="2GiB") as made,
        distributed.Client(made, set_as_default=False) as found,
    ):
        yield found
