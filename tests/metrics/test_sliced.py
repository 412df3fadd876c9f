"""Metrics of the groups of a group sweep."""

from __future__ import annotations

from typing import NoReturn

import pytest

from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.metrics.sliced import Sliced


class Unsorted:
    """A part whose rows are not to be sorted by group."""

    @property
    def present(self) -> NoReturn:
        """Fail: only metrics with a basis, or without sums of all groups, need the scores of each group."""
        raise AssertionError("the scores of each group were made")


@pytest.mark.parametrize("metric", [RocAuc(), AveragePrecision()], ids=lambda metric: metric.name)
def test_a_metric_that_is_its_own_basis_does_not_look_at_each_group(metric: RocAuc | AveragePrecision) -> None:
    """Sorting all rows by group for it doubled the time of slices."""
    assert Sliced(metric).basis(Unsorted()) == Sliced(metric)
