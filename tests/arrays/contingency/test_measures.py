"""The rows of the catalogue of measures: their facts, their methods, and a 2×2 table as a contingency table."""

from __future__ import annotations

import inspect
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.arrays.contingency.table import ConfusionMatrix2, ContingencyTable
from streameval.errors import DataError, LabelError, OptionError
from streameval.metrics.contingency import assignment
from streameval.metrics.contingency.assignment import best_matching
from streameval.metrics.contingency.catalogue import PAIR_MEASURES, TABLE_MEASURES
from streameval.metrics.contingency.clustering import clustering_metric_names, clustering_metrics

counts = st.integers(0, 30)
tables = st.lists(st.lists(counts, min_size=3, max_size=3), min_size=1, max_size=4).filter(lambda t: any(map(any, t)))
NAMES = [*clustering_metric_names(), "*/*"]


@settings(deadline=None, max_examples=40)
@given(tables)
def test_values_are_within_their_range(rows: list[list[int]]) -> None:
    """Every metric and every variant keeps to the range it states, but for rounding."""
    table = ContingencyTable(rows=rows)
    cells = table.cells
    summary = replace(table.summary, matching=best_matching(cells.rows, cells.cols, cells.counts))
    for metric in clustering_metrics(NAMES):
        value = metric.compute(summary)
        slack = 1e-9 * max(1.0, abs(value)) if math.isfinite(value) else 0
        assert math.isnan(value) or metric.low - slack <= value <= metric.high + slack, metric.name


def test_methods_keep_their_signature_and_docstring() -> None:
    """What `help` and editors show is that of the function."""
    assert str(inspect.signature(ConfusionMatrix2(1, 2, 3, 4).fscore)) == "(beta: 'float' = 1.0) -> 'float'"
    parameters = inspect.signature(ContingencyTable(rows=[[1]]).assignment_score_m3).parameters
    assert list(parameters) == ["normalize", "redraw", "options"]
    for owner, names in ((ContingencyTable, TABLE_MEASURES), (ConfusionMatrix2, {**TABLE_MEASURES, **PAIR_MEASURES})):
        for name in names:
            method = getattr(owner, name)
            assert method.__name__ == name
            assert inspect.getdoc(method)


@settings(deadline=None)
@given(counts, counts, counts, counts)
def test_a_matrix_is_a_contingency_table(tp: int, fn: int, fp: int, tn: int) -> None:
    """Everything a table offers gives the same for a 2×2 table, but what has its own definition there."""
    matrix, table = ConfusionMatrix2(tp, fn, fp, tn), ContingencyTable(rows=[[tp, fn], [fp, tn]])
    assert isinstance(matrix, ContingencyTable)
    assert matrix.to_rows() == [[tp, fn], [fp, tn]]
    assert list(matrix.row_totals.values()) == [tp + fn, fp + tn]
    assert matrix.shape == table.shape
    assert matrix.nonzero_cells == len(matrix) == len(table)
    assert matrix.pairwise == table.pairwise
    for name in TABLE_MEASURES:
        if name not in PAIR_MEASURES:
            with suppress(OverflowError):
                np.testing.assert_allclose(matrix.get_score(name), table.get_score(name), rtol=1e-14, err_msg=name)


def test_a_matrix_from_labels_clusters_and_partitions() -> None:
    """Labels above zero are positive, or whatever the predicate says; of two groups the first is."""
    matrix = ConfusionMatrix2(TP=2, FN=1, FP=1, TN=3)
    assert matrix == ConfusionMatrix2(cols=[[2, 1], [1, 3]])
    assert ConfusionMatrix2.from_labels(*matrix.to_labels()) == matrix
    assert ConfusionMatrix2.from_clusters(matrix.to_clusters()) == matrix
    assert ConfusionMatrix2.from_partitions(*matrix.to_partitions()) == matrix
    assert ConfusionMatrix2.from_counts([1, 1, -1, 0], [1, 0, 5, -1], [2, 1, 1, 3]) == matrix
    assert ConfusionMatrix2.from_clusters({0: [1, 0, 0, 0], 1: [1, 1, 0]}) == matrix
    assert ConfusionMatrix2.from_labels("ssh", "shh", lambda label: label == "s").to_ccw() == (1, 0, 1, 1)
    with pytest.raises(LabelError, match="labels_true has labels that are not numbers; give is_class_pos"):
        ConfusionMatrix2.from_labels(list("ssh"), list("shh"))
    with pytest.raises(DataError, match="clusters has 3 groups; give two, the positives first"):
        ConfusionMatrix2.from_clusters([[1], [0], [0]])
    with pytest.raises(OptionError, match="give either TP, FN, FP and TN, or rows, or cols"):
        ConfusionMatrix2(1, 2, 3, 4, rows=[[1, 2], [3, 4]])


def test_a_table_is_a_mapping_of_its_cells() -> None:
    """Counts by class and cluster, zero where the two have no point in common."""
    table: Any = ContingencyTable(rows={"a": {"x": 2, "y": 3}, "b": {"x": 4}})
    assert table.keys() == list(table) == [("a", "x"), ("a", "y"), ("b", "x")]
    assert table.values() == [2, 3, 4]
    assert ("b", "y") in table
    assert (table["a", "y"], table["b", "y"]) == (3, 0)
    assert table.get(("c", "x")) is None
    with pytest.raises(KeyError):
        table["b", "z"]


@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (7, 7)])
@pytest.mark.parametrize("seed", range(5))
def test_the_sparse_matching_weighs_as_much_as_the_dense_one(shape: tuple[int, int], seed: int) -> None:
    """Tables with few cells are matched as graphs: each row and each column is used at most once."""
    rng = np.random.default_rng(seed)
    rows, cols = np.nonzero(rng.random(shape) < 0.3)
    cells = assignment._Cells(rows, cols, rng.integers(1, 50, rows.size))
    dense, sparse = (cells.at(match(cells, *shape)) for match in (assignment._dense, assignment._sparse))
    assert dense.counts.sum() == sparse.counts.sum()
    assert np.unique(sparse.rows).size == np.unique(sparse.cols).size == sparse.rows.size
