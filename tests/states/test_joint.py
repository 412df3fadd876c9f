"""Several slicings at once: each equals the slicing on its own, with few cells and with too many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streameval.budget import Budget
from streameval.errors import OptionError
from streameval.states.grouped import By, GroupedSpec, JointSpec
from streameval.states.grouped import woven as woven_module
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec

KEYS = (By(("country",)), By(("hour", "country")))
INNER = ScoreSpec("score", "f4", nan="drop")


def batch(rows: int, seed: int) -> Batch:
    """Rows with few scores, some of them missing."""
    rng = np.random.default_rng(seed)
    score = pa.array(rng.integers(0, 40, rows).astype(np.float32), mask=rng.random(rows) < 0.1)
    columns = {"country": pa.array(rng.choice(["DE", "FR", "IT"], rows)), "hour": pa.array(rng.integers(0, 24, rows))}
    return Batch((rng.random(rows) < 0.4).astype(np.uint8), None, {"score": score, **columns})


def folded(spec: object, batches: list[Batch]) -> object:
    """The merge of the states of single batches and of all of them in one builder."""
    budget = Budget()
    builder = spec.builder(budget, 1 << 12)
    for each in batches[1:]:
        builder.update(each)
    first = spec.builder(Budget(), 64)
    first.update(batches[0])
    return first.state().merge(builder.state())


@pytest.mark.parametrize("most", [4, 50, 1 << 15])
def test_each_slicing_equals_its_own_state(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether rows are folded by cell, slicing by slicing, or both."""
    monkeypatch.setattr(woven_module, "MOST_CELLS", most)  # which no small data reach
    batches = [batch(rows, rows) for rows in (20, 500, 3_000)]
    joint = folded(JointSpec(INNER, KEYS), batches)
    assert bool(joint.further) == (most < 72)
    for key in KEYS:
        alone = folded(GroupedSpec(INNER, key), batches)
        assert joint.slicing(key) == alone
        assert joint.count(key) == len(alone.groups())
        assert joint.total() == alone.total()


def test_too_many_groups_of_one_slicing_are_refused() -> None:
    """As soon as they are met, though all cells would fit."""
    builder = JointSpec(INNER, (By(("country",), most=2), By(("hour",)))).builder(Budget(), 64)
    with pytest.raises(OptionError, match=r"by='country': 3 slices or more, more than max_slices=2"):
        builder.update(batch(200, 0))
