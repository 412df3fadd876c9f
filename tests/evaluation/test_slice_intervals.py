"""Sampling intervals of slices: those of their rows alone, with the differences within each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streameval import evaluate
from streameval.errors import OptionError

SCORES: dict[str, Any] = {"score": ["v1", "v2"], "metrics": ["roc_auc", "average_precision"]}


@pytest.fixture(scope="module")
def data() -> pa.Table:
    """Units of five rows that share a score, in three slices, one of them null and one of a single class."""
    random, rows = np.random.default_rng(3), 1500
    unit = np.arange(rows) // 5
    label = (random.random(300) < 0.4)[unit]
    v1 = label + random.normal(size=300)[unit] + random.normal(size=rows) / 4
    country = np.array(["DE", "FR", None, "IT"], object)[np.minimum(random.integers(0, 30, 300) // 9, 3)[unit]]
    label[country == "IT"] = False
    columns = {"label": label, "v1": v1, "v2": v1 + random.normal(size=rows) / 3, "weight": random.random(rows) + 0.5}
    table = pa.table(columns | {"unit": unit, "kind": unit % 37, "cluster": unit // 2, "other": unit // 3})
    return table.append_column("country", pa.array(country, pa.string()))


def alone(data: pa.Table, country: str | None) -> pa.Table:
    """The rows of a slice."""
    column = data["country"]
    return data.filter(pc.is_null(column) if country is None else pc.fill_null(pc.equal(column, country), False))


def bare(result: Any) -> Any:
    """A result without its slice, and without what depends on how many are compared."""
    return repr(replace(result, slice=None, p_value=None, verdict=None))


@pytest.mark.parametrize(
    "more",
    [
        {"unit": "unit", "baseline": "v1"},
        {"ci": 0.8},
        {"unit": "unit", "weight": "weight"},
        {"unit": "unit", "approx": True},
        {"unit": "unit", "metrics": ["precision@k=100", "agc"], "score": "v1"},
        {"score": (), "cluster": ["cluster", "other"], "classes": "kind", "metrics": ["bcubed_fscore", "v_measure"]}
        | {"baseline": "cluster", "unit": "unit"},
    ],
    ids=lambda more: ", ".join(more),
)
def test_a_slice_has_the_intervals_of_its_rows_alone(data: pa.Table, more: dict[str, Any]) -> None:
    """Values, intervals and differences, to the last bit; and all rows have theirs."""
    options = {**SCORES, **more, "threads": 1}
    found = evaluate(data, by="country", **options)
    if "ci" not in more:  # rows as units: their blocks follow from their places
        for country in (None, "IT"):
            mine = [r for r in found.results if r.slice == {"country": country}]
            assert list(map(bare, mine)) == list(map(bare, evaluate(alone(data, country), **options).results))
    whole = [r for r in found.results if r.slice is None]
    assert list(map(bare, whole)) == list(map(bare, evaluate(data, **options).results))
    assert any(r.ci_lower is not None for r in found.results if r.slice)
    assert all(r.ci_lower is not None or r.ci_reason for r in found.results)


def test_differences_within_slices_are_adjusted_together(data: pa.Table) -> None:
    """By Holm over all slices of a slicing, whose count the smallest p is multiplied with."""
    found = evaluate(data, by="country", unit="unit", baseline="v1", **SCORES)
    within = [r for r in found.results if r.slice and r.p_value is not None]
    smallest = min(within, key=lambda r: r.p_value or 1)
    own = evaluate(alone(data, (smallest.slice or {})["country"]), unit="unit", **SCORES)
    p = own.difference(smallest.metric, "v1", "v2").p_value
    assert p is not None
    assert smallest.p_value == pytest.approx(min(1, p * len(within)))
    low, high = found.ci("roc_auc", "v1", slice={"country": "DE"})
    assert low < found.value("roc_auc", "v1", slice={"country": "DE"}) < high


def test_without_slices_there_are_cells_of_clusters(data: pa.Table) -> None:
    """A difference of areas under lift curves within a slice is null, with the reason."""
    options: dict[str, Any] = {"cluster": ["cluster", "other"], "metrics": "aul", "unit": "unit", "baseline": "cluster"}
    found = [r for r in evaluate(data, by="country", **options).results if r.baseline]
    assert found[0].ci_lower is not None
    assert {r.ci_lower for r in found[1:]} == {None}
    assert "without slices" in str(found[1].ci_reason)


def test_blocks_beyond_the_budget_are_refused(data: pa.Table) -> None:
    """By the number of slices, with remedies; and what keeps no blocks of slices is refused by name."""
    many = pa.concat_tables([data] * 4)
    with pytest.raises(OptionError, match=r"by='cluster': 150 slices or more of 128 blocks take 17 MiB.*--memory"):
        evaluate(many, by="cluster", unit="kind", memory="16MiB", threads=1, **SCORES)
    with pytest.raises(OptionError, match=r"leave out by \(--by\) or resample_bins"):
        evaluate(data, by="country", ci=0.95, resample_bins="exact", **SCORES)
