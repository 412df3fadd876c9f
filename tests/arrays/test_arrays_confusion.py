"""The 2×2 table: reference values, identities, degenerate tables, bad input, and what it shares with larger tables."""

import inspect
import math
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from golden import cases, close, wanted
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from streameval.arrays.contingency import ConfusionMatrix2, ContingencyTable, confmat2_type
from streameval.errors import DataError, LabelError, OptionError
from streameval.metrics.contingency import assignment, twoway
from streameval.metrics.contingency.catalogue import PAIR_MEASURES, TABLE_MEASURES

CASES = cases("confusion2x2")
counts = st.integers(0, 30)
tables = st.builds(ConfusionMatrix2, counts, counts, counts, counts)
positive = st.integers(1, 10**12)


def computed(matrix: ConfusionMatrix2, key: str) -> Any:
    """Value of the method that a golden key spells."""
    name, *variant = key.split("/")
    if name == "adjust_to_null":
        return matrix.adjust_to_null(variant[0], model=variant[1])
    if name == "lform":
        return matrix.lform().to_ccw()
    options: dict[str, dict[str, Any]] = {
        "plain": {"standardize": False},
        "standardized": {"standardize": True},
        "harmonic": {"mean": "harmonic"},
        "geometric": {"mean": "geometric"},
    }
    if variant and variant[0].startswith("beta="):
        return matrix.fscore(beta=float(variant[0][5:]))
    return matrix.get_score(name, **(options[variant[0]] if variant else {}))


LOGS = ("hyper", "mic_", "entropy", "g_score", "mutual", "adjust_to_null")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_reference_values(case: dict[str, Any]) -> None:
    """Every method gives the reference's value, or the right one where the reference is known to be off."""
    matrix = ConfusionMatrix2.from_ccw(**{k: case["input"][k] for k in ("TP", "FP", "TN", "FN")})
    whole = all(isinstance(x, int) for x in case["input"].values())
    wrong = {}
    for key, want in wanted(case).items():
        if key == "hypergeometric" and not whole:
            continue
        rel = 1e-9 if key.startswith(LOGS) and key not in case.get("exact", {}) else 1e-12
        found = computed(matrix, key)
        if not close(found, want, rel, 1e-12):
            wrong[key] = (found, want)
    assert not wrong


def test_fractional_cells_are_refused_where_whole_counts_are_needed() -> None:
    """The exact test and the expected mutual information name what they need."""
    matrix = ConfusionMatrix2(0.5, 1, 2, 3)
    refuses(DataError, "hypergeometric needs whole counts", matrix.hypergeometric)
    refuses(DataError, "expected mutual information needs whole counts", matrix.adjusted_mutual_info)


def fisher(matrix: ConfusionMatrix2) -> float:
    """Fisher's exact test in exact integers."""
    tp, fp, tn, fn = map(int, matrix.to_ccw())
    n, p1, p2 = tp + fp + tn + fn, tp + fn, tp + fp
    weights = [math.comb(p1, k) * math.comb(n - p1, p2 - k) for k in range(max(0, p1 + p2 - n), min(p1, p2) + 1)]
    observed = math.comb(p1, tp) * math.comb(n - p1, p2 - tp)
    p = Fraction(sum(w for w in weights if w <= observed), sum(weights))
    return math.copysign(-math.log(p.numerator) + math.log(p.denominator), matrix.covar())


@given(tables)
def test_exact_test_counts_exact_ties(matrix: ConfusionMatrix2) -> None:
    """The score is −ln p of Fisher's test with exact ties, to rounding."""
    assert matrix.hypergeometric() == pytest.approx(fisher(matrix), rel=1e-10, abs=1e-12)


def test_exact_test_of_huge_tables() -> None:
    """The integral beyond 2²⁰ tables agrees with the sum, and 10²⁰ points overflow nothing."""
    cells = {"TP": 25 * 10**8 + 30000, "FP": 25 * 10**8, "TN": 25 * 10**8 + 30000, "FN": 25 * 10**8}
    summed = ConfusionMatrix2.from_ccw(**cells).hypergeometric()
    limit, twoway._MANY = twoway._MANY, 1000
    try:
        integrated = ConfusionMatrix2.from_ccw(**cells).hypergeometric()
    finally:
        twoway._MANY = limit
    assert integrated == pytest.approx(summed, rel=1e-9)
    assert 1e19 < ConfusionMatrix2(10**20, 10**19, 10**19, 10**20).hypergeometric() < math.inf


def test_constructors_agree() -> None:
    """The four ways to the same table, and its order of cells."""
    matrix = ConfusionMatrix2(TP=2, FN=1, FP=3, TN=4)
    assert matrix == ConfusionMatrix2.from_ccw(2, 3, 4, 1) == ConfusionMatrix2(rows=[[2, 1], [3, 4]])
    assert matrix == ConfusionMatrix2(rows=np.array([[2, 1], [3, 4]]))
    assert matrix.to_ccw() == confmat2_type(TP=2, FP=3, TN=4, FN=1)
    assert ConfusionMatrix2.from_sets({1, 2, 5}, [1, 2, 3, 4, 6], universe_size=10).to_ccw() == (2, 3, 4, 1)
    drawn = ConfusionMatrix2.from_random_counts(5, 9, random_state=1)
    assert drawn == ConfusionMatrix2.from_random_counts(low=5, high=9, random_state=1)
    assert 5 <= drawn.to_array().min() <= drawn.to_array().max() < 9


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, None, "3", 1j])
def test_bad_counts_are_refused_by_name(bad: Any) -> None:
    """A count that is not a finite number of at least 0 is named."""
    refuses(DataError, r"FP is .*; counts must be finite numbers of at least 0", ConfusionMatrix2, 1, 2, bad, 3)


def test_bad_options_are_refused_by_name() -> None:
    """Unknown models, means, measures and impossible universes are named with the choices."""
    matrix = ConfusionMatrix2(1, 2, 3, 4)
    refuses(OptionError, "model is 'm9'; choose", matrix.expected, "m9")
    refuses(OptionError, "mean is 'median'; choose", matrix.mic_scores, mean="median")
    for name in ("kapa", "shape", "expected"):
        refuses(OptionError, f"'{name}' is not a measure", matrix.get_score, name)
    with pytest.raises(OptionError, match="universe_size is 2, but the two sets have 3"):
        ConfusionMatrix2.from_sets("ab", "bc", universe_size=2)


def test_adjusting_warns_when_asked() -> None:
    """A measure that is already corrected for chance is pointed out on request only."""
    matrix = ConfusionMatrix2(3, 1, 1, 3)
    with pytest.warns(UserWarning, match="already"):
        matrix.adjust_to_null("kappa", with_warnings=True)


few = st.integers(0, 30)


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


@given(few, few, few, few)
def test_a_matrix_is_a_contingency_table(tp: int, fn: int, fp: int, tn: int) -> None:
    """Everything a table offers gives the same for a 2×2 table, but what has its own definition there, and a value."""
    matrix, table = ConfusionMatrix2(tp, fn, fp, tn), ContingencyTable(rows=[[tp, fn], [fp, tn]])
    assert isinstance(matrix, ContingencyTable)
    assert matrix.to_rows() == [[tp, fn], [fp, tn]]
    assert list(matrix.row_totals.values()) == [tp + fn, fp + tn]
    assert matrix.shape == table.shape
    assert matrix.nonzero_cells == len(matrix) == len(table)
    assert matrix.pairwise == table.pairwise
    for name in PAIR_MEASURES:
        assert matrix.get_score(name) is not None, name
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
