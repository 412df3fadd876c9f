"""The protocol of metrics: what the catalogue's and a user's own say of themselves."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streameval
from streameval import evaluate
from streameval.metrics.catalogue import CATALOGUE, clustering_rows
from streameval.metrics.contingency.clustering import ClusteringMetric
from streameval.metrics.protocol import Metric, as_metric, user_defined
from streameval.metrics.scores.gain import AgcApprox
from streameval.metrics.selection import Selection
from streameval.options import verb_options

PACKAGE = Path(streameval.__file__).parent
DATA = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.9, math.nan], "group": ["a", "a", "b", "b"]})


@dataclass(frozen=True)
class Groups:
    """A user's own metric: distinct scores, counted again in each step."""

    steps: int = 0
    counts_nan: bool = False
    name: str = "groups"
    family: str = "score"

    def partial(self, part: Any) -> int:
        """Distinct scores of a part."""
        return int(part.rows.size)

    def combine(self, partials: Any, state: Any) -> Any:
        """Their sum, or the metric of the next step."""
        return Groups(self.steps - 1, self.counts_nan) if self.steps else sum(partials)


def test_metrics_of_the_catalogue_have_every_member() -> None:
    """Each derives from `Metric`, so that nobody has to ask whether a member is there."""
    for metric in (entry.metric for entry in CATALOGUE if entry.metric):
        assert isinstance(metric, Metric)
        assert as_metric(metric) is metric
        assert not user_defined(metric)


OPTION_VALUES = {"aul_threshold": 3.0, "quantiles": 7, "clip": 0.1, "assignment_cells": 5}


def test_a_metric_says_which_options_set_its_fields() -> None:
    """The options are rows of the table, and a selection sets these fields and no others."""
    rows = [replace(row, metric=AgcApprox()) if row.name == "agc_approx" else row for row in CATALOGUE]
    options = {row.metric: row.options for row in (*rows, *clustering_rows()) if row.metric}
    assert {option for each in options.values() for option in each} == OPTION_VALUES.keys()
    assert verb_options("evaluate").keys() >= OPTION_VALUES.keys()
    selection = Selection(("score", "sample", "cluster", "classes"), ("*",), **OPTION_VALUES)
    found = {metric.name: metric for family in selection.families for metric in selection.of(family)}
    given = {metric.name: metric for metric in options if metric.name in found}
    for name, metric in given.items():
        known = {field: OPTION_VALUES[option] for option, field in options[metric].items()}
        assert found[name] == (replace(metric, **known) if known else metric)
    assert {"aul", "log_loss", "agc_approx"} <= given.keys()
    assert {metric.assignment_cells for metric in found.values() if isinstance(metric, ClusteringMetric)} == {None, 5}


def test_a_users_object_gets_the_defaults() -> None:
    """It takes its own partials, of all rows, and equal objects make equal metrics."""
    metric = as_metric(Groups())
    assert metric.basis(None) is metric
    assert metric.shrunk(0.5) is metric
    assert (metric.points(10), metric.scores) == (None, None)
    assert user_defined(metric)
    assert (metric, hash(metric)) == (as_metric(Groups()), hash(as_metric(Groups())))


@pytest.mark.parametrize("steps", [0, 2])
def test_a_users_object_may_take_several_steps(steps: int) -> None:
    """Its `combine` may give the metric of the next step; of all rows and of every slice."""
    found = evaluate(DATA, score="score", by="group", nan="drop", metrics=[Groups(steps)])
    assert [(one.value, one.slice) for one in found.results] == [
        (2.0, None),
        (2.0, {"group": "a"}),
        (1.0, {"group": "b"}),
    ]


def test_a_users_object_says_what_halved_scores_mean() -> None:
    """As `Metric.counts_nan`: without it the metric is undefined as soon as NaN scores count as halves."""
    values = [
        evaluate(DATA, score="score", nan="half", metrics=[Groups(counts_nan=counted)]).value("groups")
        for counted in (False, True)
    ]
    assert math.isnan(values[0])
    assert values[1] == 2.0


@pytest.mark.parametrize("room", ["evaluation", "metrics"])
def test_nobody_asks_a_metric_what_it_has(room: str) -> None:
    """Only the adapter of a user's own object looks whether a member is there."""
    asking = [path for path in (PACKAGE / room).rglob("*.py") if "hasattr(" in path.read_text()]
    assert asking == [PACKAGE / "metrics" / "protocol.py"] * (room == "metrics")


def test_a_metric_of_a_user_may_ask_for_the_best_matching() -> None:
    """Its summary then has one; by default there is none."""

    @dataclass(frozen=True)
    class Matched(Metric):
        assignment_cells: int | None
        name: str = "matched"
        family: str = "classes"

        def partial(self, summary: Any) -> bool:
            return summary.matching is not None

        def combine(self, partials: Any, state: Any) -> float:
            return float(all(partials))

    data = pa.table({"cluster": [1, 1, 2, 2], "campaign": [7, 8, 8, 8]})
    for cells, value in ((None, 0.0), (1000, 1.0)):
        metric = Matched(cells)
        assert evaluate(data, cluster="cluster", classes="campaign", metrics=[metric]).value("matched") == value
