"""Several slicings at once: each equals the slicing on its own, with few cells and with too many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streameval.budget import Budget
from streameval.errors import OptionError
from streameval.states.grouped import By, GroupedSpec, JointSpec
from streameval.states.grouped.interleaved import scores as interleaved_module
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec

KEYS = (By(("country",)), By(("hour", "country")))
INNER = ScoreSpec("score", "f4", nan="drop")
LONGER = ScoreSpec("score", "f8", nan="drop")


def batch(rows: int, seed: int, least: float = 1) -> Batch:
    """Rows with few scores, some of them missing; the least is 0, then comes `least`."""
    rng = np.random.default_rng(seed)
    score = pa.array(rng.integers(0, 40, rows) * np.float64(least), mask=rng.random(rows) < 0.1)
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


@pytest.mark.parametrize("inner", [INNER, LONGER], ids=["f4", "f8"])
@pytest.mark.parametrize("most", [4, 50, 1 << 15])
def test_each_slicing_equals_its_own_state(inner: ScoreSpec, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether rows are folded by cell, slicing by slicing, or both."""
    monkeypatch.setattr(interleaved_module, "MOST_CELLS", most)  # which no small data reach
    batches = [batch(rows, rows) for rows in (20, 500, 3_000)]
    joint = folded(JointSpec(inner, KEYS), batches)
    assert bool(joint.further) == (most < 72)
    for key in KEYS:
        alone = folded(GroupedSpec(inner, key), batches)
        assert joint.slicing(key) == alone
        assert joint.count(key) == len(alone.groups())
        assert joint.total() == alone.total()


def test_batches_that_words_have_no_room_for() -> None:
    """Scores below those of float32 are folded slicing by slicing; the groups are as if all were."""
    batches = [batch(300, 1), batch(500, 2, least=1e-300), batch(400, 3)]
    joint = folded(JointSpec(LONGER, KEYS), batches)
    assert joint.further
    inner = LONGER.builder(Budget(), 1 << 12)
    for each in batches:
        inner.update(each)
    assert joint.total() == inner.state()
    for key in KEYS:
        state = folded(GroupedSpec(LONGER, key), batches)
        assert joint.slicing(key) == state
        assert state.interleaved is not None
        assert state.apart


def test_states_of_more_groups_together_than_words_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is interleaved on its own; merged, one of them is not."""
    monkeypatch.setattr(interleaved_module, "MOST_CELLS", 40)
    batches = [batch(200, 1), batch(200, 2)]
    for at, each in enumerate(batches):
        hours = pa.array(np.arange(200) % 12 + 12 * at)
        batches[at] = Batch(each.label, None, {**each.columns, "hour": hours})
    for spec in (JointSpec(LONGER, KEYS), *(GroupedSpec(LONGER, key) for key in KEYS)):
        states = []
        for each in batches:
            builder = spec.builder(Budget(), 1 << 12)
            builder.update(each)
            states.append(builder.state())
        merged = states[0].merge(states[1])
        swapped = states[1].merge(states[0])
        whole = LONGER.builder(Budget(), 1 << 12)
        for each in batches:
            whole.update(each)
        total = whole.state()
        assert merged.total() == total == swapped.total()
        for key in KEYS if isinstance(spec, JointSpec) else ():
            assert merged.slicing(key) == folded(GroupedSpec(LONGER, key), batches) == swapped.slicing(key)


def test_too_many_groups_of_one_slicing_are_refused() -> None:
    """As soon as they are met, though all cells would fit."""
    builder = JointSpec(INNER, (By(("country",), most=2), By(("hour",)))).builder(Budget(), 64)
    with pytest.raises(OptionError, match=r"by='country': 3 slices or more, more than max_slices=2"):
        builder.update(batch(200, 0))
