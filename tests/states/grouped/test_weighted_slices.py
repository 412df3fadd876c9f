"""Weighted slices: each group is extracted as the state of its rows: to the last bit, if the budget holds all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strategies import difference

from streameval.budget import Budget
from streameval.metrics.finalize import computed
from streameval.metrics.scores.gain import Agc
from streameval.metrics.scores.ranking import AveragePrecision, PrAuc, RocAuc
from streameval.states.grouped.keys import By
from streameval.states.grouped.state import GroupedSpec
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec

ROWS, GROUPS = 6_000, 7
METRICS = [RocAuc(), AveragePrecision(), PrAuc()]
WEIGHTS = ["ordinary", "wild", "beyond two floats"]


def _rows(kind: str, spread: str, digits: int) -> tuple[np.ndarray, np.ndarray, dict[str, pa.Array]]:
    """Labels, weights and columns."""
    rng = np.random.default_rng(digits)
    label = (rng.random(ROWS) < 0.3).astype(np.uint8)
    score = np.round(rng.standard_normal(ROWS) + label, digits).astype(kind)
    weight = rng.gamma(2.0, 1.0, ROWS)
    if spread == "wild":
        weight *= 10.0 ** rng.integers(-9, 9, ROWS)
    if spread == "beyond two floats":  # the sum of a piece needs three
        weight *= np.array([1e-75, 1.0, 1e75])[rng.integers(0, 3, ROWS)]
    return label, weight, {"score": pa.array(score), "group": pa.array(rng.integers(0, GROUPS, ROWS))}


def _folded(spec: Any, label: np.ndarray, weight: np.ndarray, columns: dict[str, pa.Array], budget: Budget) -> Any:
    """The state of the rows, in several segments."""
    builder = spec.builder(budget, 700)
    for some in np.array_split(np.arange(label.size), 3):
        taken = {name: column.take(pa.array(some)) for name, column in columns.items()}
        builder.update(Batch(label[some], weight[some], taken))
    return builder.state()


@pytest.mark.parametrize("digits", [1, 4])
@pytest.mark.parametrize("spread", WEIGHTS)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_each_slice_is_the_state_of_its_rows(kind: str, spread: str, digits: int) -> None:
    """Its table, its totals and its metrics; also one by one."""
    label, weight, columns = _rows(kind, spread, digits)
    inner = ScoreSpec("score", kind, weighted=True)
    grouped = _folded(GroupedSpec(inner, By(("group",))), label, weight, columns, Budget())
    for group, state in zip(grouped.groups(), grouped.several(grouped.groups()), strict=True):
        here = columns["group"].to_numpy() == group[0]
        taken = {name: column.filter(pa.array(here)) for name, column in columns.items()}
        rows = _folded(inner, label[here], weight[here], taken, Budget())
        assert not difference(state, grouped.only(group))
        assert not difference(state, rows)
        assert state.totals() == grouped.only(group).totals() == rows.totals()
        values = computed(rows, METRICS)
        assert computed(state, METRICS) == values
        assert computed(state, METRICS[:2]) == values[:2]  # without storing the groups of equal score


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_counted_items_lose_no_weight(kind: str) -> None:
    """Rows of two scores are stored as counted items, while those of slices are still apart: equal to the last bit."""
    rng, inner, rows = np.random.default_rng(0), ScoreSpec("score", kind, weighted=True), 4 * ROWS
    score = (0.5 + 2.0**-20 * rng.integers(0, 2, rows)).astype(kind)
    columns = {"score": pa.array(score), "group": pa.array(np.resize(np.arange(3_000), rows))}
    batch = Batch(rng.integers(0, 2, rows).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, rows), columns)
    states = []
    for spec in (GroupedSpec(inner, By(("group",))), inner):
        builder = spec.builder(Budget(), 2 * ROWS)
        builder.update(batch)
        states.append(builder.state())
    apart, together = states
    assert not any(each.counts for each in apart.keyed.segments)
    assert all(each.counts for each in together.keyed.segments)
    assert apart.total() == together
    assert computed(apart.total(), METRICS) == computed(together, METRICS)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_slices_with_missing_scores_lose_no_weight(kind: str) -> None:
    """The weights of missing scores are summed exactly, by slice and over all."""
    rng, rows, inner = np.random.default_rng(0), 4 * ROWS, ScoreSpec("score", kind, weighted=True, nan="half")
    score, group = rng.integers(0, 2, rows).astype(kind), rng.integers(0, 300, rows)
    score[: rows // 2][rng.random(rows // 2) < 0.3] = np.nan
    label, weight = rng.integers(0, 2, rows).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, rows)

    def folded(spec: Any, here: np.ndarray, batches: int) -> Any:
        builder = spec.builder(Budget(), ROWS)
        for some in np.array_split(np.flatnonzero(here), batches):
            columns = {"score": pa.array(score[some]), "group": pa.array(group[some])}
            builder.update(Batch(label[some], weight[some], columns))
        return builder.state()

    grouped = folded(GroupedSpec(inner, By(("group",))), group >= 0, 4)
    for number in range(0, 300, 30):
        alone = folded(inner, group == number, 1)
        assert computed(grouped.only((number,)), [*METRICS, Agc()]) == computed(alone, [*METRICS, Agc()])
        rest = folded(inner, group != number, 2)
        np.testing.assert_array_equal(grouped.without((number,)).nan_weights, rest.nan_weights)
    whole = folded(inner, group >= 0, 3)
    assert computed(grouped.total(), [*METRICS, Agc()]) == computed(whole, [*METRICS, Agc()])


def test_weighted_slices_are_spilled(tmp_path: Any) -> None:
    """The arrays that slices share count in the budget, and results are the same when they are spilled."""
    spec = GroupedSpec(ScoreSpec("score", "f4", weighted=True), By(("group",)))
    rows = _rows("f4", "ordinary", 4)
    roomy, small = Budget(), Budget(120_000, tmp_path)
    states = []
    for budget in (roomy, small):
        grouped = _folded(spec, *rows, budget)
        states.append(grouped.several(grouped.groups(), budget))
    assert small.spilled > rows[1].nbytes
    assert [computed(one, METRICS) for one in states[0]] == [computed(one, METRICS) for one in states[1]]
