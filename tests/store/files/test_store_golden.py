"""A store written earlier: later versions of streameval read it and update it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from nightly import NIGHTS, land

from streameval import Store

GOLDEN = Path(__file__).parents[2] / "data" / "store-v2"  # three nights of 60 messages, the first removed


@pytest.fixture
def store(tmp_path):
    """A copy of it."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.mark.parametrize("version", [0, 2, 3])
def test_every_version_of_it_has_the_numbers_that_it_had(store, version):
    """States of scores, clusters and classes; text ids; versions of the ledger."""
    expected = json.loads((GOLDEN / "expected.json").read_text())[str(version)]
    assert store.evaluate(as_of=version).to_dict()["results"] == expected


def test_its_history_is_read_and_rebuilt(store, tmp_path):
    """The kept series, and the same series computed from the states."""
    kept = store.history("aul", "cluster_loose")
    assert [point.partition for point in kept.points] == NIGHTS[1:3]
    shutil.rmtree(tmp_path / "store" / "history")
    assert store.history("aul", "cluster_loose") == kept


def test_updates_go_on_with_it(store, tmp_path):
    """A new night needs no options."""
    assert store.update(land(NIGHTS[5], tmp_path / "data")).new == (NIGHTS[5],)
    assert store.evaluate(last=1).rows == store.partitions()[-1].rows
