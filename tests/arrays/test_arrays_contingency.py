"""The contingency table: reference values, scikit-learn, exactness, merging, matching, bad input."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from golden import cases, close, wanted
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refuses

from streameval.arrays import contingency as forms
from streameval.arrays.contingency import ClusteringMetrics, ConfusionMatrix2, ContingencyTable
from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import assignment, clustering
from streameval.metrics.contingency.assignment import best_matching
from streameval.metrics.contingency.catalogue import TABLE_MEASURES
from streameval.metrics.contingency.clustering import CLUSTERING_METRICS, clustering_metric, clustering_metrics
from streameval.metrics.contingency.mutual_information import expected_mutual_information
from streameval.states.contingency.summary import (
    Sizes,
    Summary,
    margin,
    summarize,
    summarize_cells,
    summarize_classes,
    summarize_clusters,
)

CASES = cases("contingency")


BY_CASE = pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])

labels = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40)


def table_of(case: dict[str, Any]) -> ClusteringMetrics:
    """Table of a golden case."""
    cells = case["input"]["cells"]
    return ClusteringMetrics.from_counts(*([cell[i] for cell in cells] for i in range(3)))


def computed(table: ClusteringMetrics, key: str) -> Any:
    """Value of the method that a golden key spells."""
    name, *variant = key.split("/")
    if key in ("shape", "nonzero_cells", "grand_total"):
        return getattr(table, name)
    if name == "adjust_to_null":
        return table.adjust_to_null(variant[0], model=variant[1])
    if name == "pairwise":
        return table.pairwise.to_ccw() if variant[0] == "TP_FP_TN_FN" else table.pairwise.get_score(*variant)
    options: dict[str, Any] = {}
    for word in variant:
        if word in ("raw", "normalized"):
            options["normalize"] = word == "normalized"
        elif word in ("harmonic", "geometric"):
            options["mean"] = word
        else:
            options["model"] = None if word == "none" else word
    return getattr(table, name)(**options)


def tolerance(case: dict[str, Any], key: str) -> tuple[float, float]:
    """Relative and absolute tolerance that the reference's own rounding allows."""
    if key == "adjusted_mutual_info" and case["id"].startswith("large"):
        return 1e-8, 1e-12
    exact = key in case.get("exact", {}) or key in case.get("intended", {})
    logs = ("g_score", "mutual", "entropy", "mic_", "vi_", "adjust", "chisq")
    loose = any(part in key for part in logs) and not exact
    return (1e-9, 1e-12) if loose else (1e-12, 1e-12)


@BY_CASE
def test_reference_values(case: dict[str, Any]) -> None:
    """Every method gives the reference's value, or the right one where the reference is known to be off."""
    table = table_of(case)
    found = {key: (computed(table, key), want) for key, want in wanted(case).items() if not key.startswith("sklearn/")}
    assert not {key: pair for key, pair in found.items() if not close(*pair, *tolerance(case, key))}


@BY_CASE
def test_evaluation_names_give_the_same_values(case: dict[str, Any]) -> None:
    """A metric named by its golden key, computed from the summary alone, is the method's value to the last bit."""
    table = table_of(case)
    summary = replace(table.summary, matching=(table.facts.matching, table.facts.matching))
    for key in case["expected"]:
        if key in ("shape", "nonzero_cells", "grand_total", "pairwise/TP_FP_TN_FN") or key.startswith("sklearn"):
            continue
        flat = np.ravel(np.array(computed(table, key), dtype=float)).tolist()
        found = [metric.compute(summary) for metric in clustering_metrics([key])]
        np.testing.assert_array_equal(found, flat, err_msg=key)


@given(labels)
def test_scikit_learn_on_labels(points: list[tuple[int, int]]) -> None:
    """The module-level functions agree with scikit-learn on tables that are not degenerate."""
    from sklearn import metrics

    true, pred = map(list, zip(*points, strict=True))
    table = ContingencyTable.from_labels(true, pred)
    if len(set(true)) > 1 and len(set(pred)) > 1 and len(set(points)) < len(points):
        assert forms.adjusted_rand_score(true, pred) == pytest.approx(metrics.adjusted_rand_score(true, pred))
        if table.pairwise.TP:
            assert table.fowlkes_mallows() == pytest.approx(metrics.fowlkes_mallows_score(true, pred))
    for method in ("max", "min", "arithmetic", "geometric"):
        if len(set(true)) > 1 and len(set(pred)) > 1 and len(set(true)) < len(true) > len(set(pred)):
            want = metrics.adjusted_mutual_info_score(true, pred, average_method=method)
            assert forms.adjusted_mutual_info_score(true, pred, method) == pytest.approx(want, rel=1e-9, abs=1e-9)
    want = metrics.homogeneity_completeness_v_measure(true, pred)
    assert forms.homogeneity_completeness_v_measure(true, pred) == pytest.approx(want, abs=1e-9)
    assert forms.mutual_info_score(true, pred) == pytest.approx(metrics.mutual_info_score(true, pred), abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [
        (3, 4, 10), (1, 7, 9), (40, 60, 100), (99, 98, 100), (500, 700, 3000), (9, 2900, 3000),
        (300, 300, 3200), (900, 560, 20000), (900, 1000, 19000),  # means of 25 to 35: the deviance is not smooth at 0
    ],
)  # fmt: skip
def test_expectation_is_that_of_exact_probabilities(a: int, b: int, n: int) -> None:
    """What is left out of the hypergeometric range is far below 1e-12 of the expectation."""
    groups = Sizes.of(np.array([a, n - a])), Sizes.of(np.array([b, n - b]))
    found = expected_mutual_information(*groups) * n
    want = math.fsum(exact_expectation(x, y, n) for x in (a, n - a) for y in (b, n - b))
    assert found == pytest.approx(want, rel=1e-12, abs=1e-12)


def moments(a: float, b: float, n: float) -> tuple[tuple[float, ...], float]:
    """Arguments of the loops over the counts that two sizes may have in common, and the spread of these."""
    from streameval.kernels.exact import divide_pairs, two_product

    mean = divide_pairs(*two_product(float(a), float(b)), float(n), 0.0)
    return (float(max(a, b)), float(min(a, b)), float(n - max(a, b)), *mean), math.sqrt(
        mean[0] * (n - a) / n * (n - b) / (n - 1)
    )


@given(
    st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 12)), st.integers(1, 10**12), min_size=1),
    st.lists(st.integers(0, 3), min_size=13, max_size=13),
    st.randoms(use_true_random=False),
)
def test_merging_shards_is_bit_identical(cells: dict[tuple[int, int], int], shards: list[int], random: Any) -> None:
    """Summaries of any sharding by cluster, merged in any order, equal the summary of the whole table."""
    rows, cols = np.array(list(cells)).T
    rows = np.unique(rows, return_inverse=True)[1]
    counts = np.array(list(cells.values()))
    totals, maxima = np.zeros(rows.max() + 1, np.int64), np.zeros(rows.max() + 1, np.int64)
    np.add.at(totals, rows, counts)
    np.maximum.at(maxima, rows, counts)
    parts = [summarize_classes(totals[:2], maxima[:2]), summarize_classes(totals[2:], maxima[2:])]
    for shard in range(4):
        here = np.array(shards)[cols] == shard
        codes = rows[here], np.unique(cols[here], return_inverse=True)[1], counts[here]
        sizes, largest = margin(*codes[1:])
        parts += [summarize_cells(*codes, totals, sizes), summarize_clusters(sizes, largest)]
    random.shuffle(parts)
    merged = Summary()
    for part in parts:
        merged = merged.merge(part)
    whole = summarize(rows, np.unique(cols, return_inverse=True)[1], counts)
    assert merged == whole
    assert hash(merged) == hash(whole)
    for metric in CLUSTERING_METRICS:
        np.testing.assert_equal(metric.compute(merged), metric.compute(whole))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 2**52)), min_size=1, max_size=12))
def test_compiled_sums_equal_exact_ones(cells: list[tuple[int, int, int]]) -> None:
    """The compiled summary of whole counts equals the one in Python integers, but 2^-104 of each chi-square term."""
    table = ContingencyTable.from_counts(*zip(*cells, strict=True))
    c = table.cells
    compiled, exact = summarize(c.rows, c.cols, c.counts), summarize(c.rows, c.cols, c.counts.astype(object))
    assert abs(compiled.inertia - exact.inertia) < 2**12
    assert replace(compiled, inertia=0) == replace(exact, inertia=0)


def exact_expectation(a: int, b: int, n: int) -> float:
    """Mean of x·ln(x·n/(a·b)) over the hypergeometric distribution, every probability an exact fraction."""
    support = range(max(0, a + b - n), min(a, b) + 1)
    weights = [math.comb(a, k) * math.comb(n - a, b - k) for k in support]
    total = math.comb(n, b)
    terms = (
        float(Fraction(w * k, total)) * math.log(k * n / (a * b)) for w, k in zip(weights, support, strict=True) if k
    )
    return math.fsum(terms)


def test_sampled_range_equals_the_summed_one() -> None:
    """Every half of a σ is enough: sampling a wide range agrees with the sum over all of it."""
    from streameval.kernels.contingency import expected as kernels

    for sizes in ((4e5, 5e5, 1e6), (3e5, 9e5, 1e6), (1e6, 1e6, 1e8)):
        given, sigma = moments(*sizes)
        assert kernels._sampled(*given, sigma) == pytest.approx(kernels._summed(*given, 0), rel=1e-13)


@given(st.integers(1, 10**5), st.integers(1, 10**5), st.integers(2, 10**5))
def test_each_hth_count_gives_the_mean_over_all(a: int, b: int, more: int) -> None:
    """A part of the counts is enough: the mean agrees with that over all counts, for means and spreads of all sizes."""
    from streameval.kernels.contingency import expected as kernels

    given, sigma = moments(a, b, max(a, b) + more)
    assert kernels._summed(*given, sigma) == pytest.approx(kernels._summed(*given, 0), rel=4e-14)


def series_and_pairs(sizes: list[Sizes], more: int) -> tuple[float, float]:
    """The expectation by series over many sizes at once, and pair by pair."""
    from streameval.kernels.contingency.expected import expected_information
    from streameval.metrics.contingency import mutual_information as information

    total = max(int(side.total) for side in sizes) + more
    tables = [information._size_table(side, total, exact=True) for side in sizes]
    logs = tuple(float(x[0]) for x in information._log_pairs(np.array([total])))
    ways = information._newton_series(), np.empty((2, 0))
    return tuple(expected_information(*tables, float(total), logs, way) for way in ways)


@pytest.mark.parametrize("big", [2**50, 2**52, 2**53 + 1, 10**17, 10**18, 2**61])
def test_expectation_of_small_groups_beside_a_huge_one(big: int) -> None:
    """A group of most rows leaves few counts possible: the mean is that over these, whatever float64 can hold."""
    left, right = [7, 100, big], [50, 57, big]
    n = sum(left)
    want = math.fsum(
        exact_expectation(a, b, n) if min(a, b) < 1000 else float(Fraction((n - a) * (n - b), 2 * (n - 1)) * n / n / n)
        for a in left
        for b in right
    )
    found = expected_mutual_information(Sizes.of(np.array(left)), Sizes.of(np.array(right))) * n
    assert found == pytest.approx(want, rel=1e-12)


SIZES = st.dictionaries(st.integers(1, 3000) | st.integers(1, 10**7), st.integers(1, 10**6), min_size=1, max_size=12)


@given(SIZES, SIZES, st.integers(0, 10**9))
@example({1: 10**6}, {10**7: 3, 2: 1}, 0)
@example({20: 5}, {10**6: 1}, 10**6)
def test_series_of_the_expectation_equals_the_sum_over_pairs(a: Any, b: Any, more: int) -> None:
    """Pairs taken together by falling factorials contribute what they do one by one."""
    sizes = [Sizes(*map(np.array, zip(*sorted(side.items()), strict=True))) for side in (a, b)]
    series, pairs = series_and_pairs(sizes, more)
    assert series == pytest.approx(pairs, rel=1e-13)


SPANS = st.tuples(st.integers(1, 10**5), st.floats(1.001, 8), st.integers(20, 300))


@settings(max_examples=50)
@given(SPANS, SPANS, st.integers(0, 10**9), st.randoms(use_true_random=False))
@example((8192, 2.0, 300), (16384, 2.0, 300), 10**7, Random(0))
@example((128, 1.99, 127), (10**5, 8.0, 300), 0, Random(0))
def test_many_sizes_of_an_octave_act_like_a_few(one: Any, other: Any, more: int, rng: Random) -> None:
    """The rule with few nodes gives what the pairs of all sizes give, for narrow and wide octaves, and any weights."""
    sides = []
    for low, ratio, count in (one, other):
        values = np.array(sorted(rng.sample(range(low, int(low * ratio) + count + 1), count)))
        sides.append(Sizes(values, np.array([rng.randint(1, 1000) ** rng.randint(1, 2) for _ in range(count)])))
    series, pairs = series_and_pairs(sides, more)
    assert series == pytest.approx(pairs, rel=2e-14)


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=5), st.lists(st.integers(1, 10**6), min_size=2, max_size=5))
def test_independence_has_exactly_no_mutual_information(rows: list[int], cols: list[int]) -> None:
    """A table of products has MI exactly 0, and one more point makes it positive."""
    outer = np.multiply.outer(rows, cols)
    assert ContingencyTable(rows=outer).mutual_info_score() == 0.0
    outer[0, 0] += 1
    assert ContingencyTable(rows=outer).mutual_info_score() > 0.0


@given(st.lists(st.integers(1, 2**61), min_size=70, max_size=90, unique=True))
def test_fast_and_slow_logarithms_agree(sizes: list[int]) -> None:
    """Double-double logarithms are those of the decimal module to 2^-96."""
    from streameval.metrics.contingency import mutual_information as information

    fast, slow = information._fast_logs(set(sizes)), information._decimal_logs(sizes, 120)
    assert max(abs(fast[size] - slow[size]) for size in sizes) < 2**24


def brute_force(dense: np.ndarray[Any, Any]) -> Any:
    """Best matching by trying all."""
    small = dense if dense.shape[0] <= dense.shape[1] else dense.T
    columns = permutations(range(small.shape[1]), small.shape[0])
    return max(sum(small[i, j] for i, j in enumerate(chosen)) for chosen in columns)


matrices = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 6), min_size=width, max_size=width), min_size=1, max_size=4)
)


near = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(2**60 - 3, 2**60 + 3), min_size=width, max_size=width), min_size=1, max_size=4
    )
)
SCALES = [1, 4, 10**15, 2**70, 10**25, Fraction(1, 3 * 2**60), Fraction(7, 10**20)]


@given(matrices | near, st.sampled_from(SCALES), st.booleans(), st.booleans())
def test_matching_is_the_best_one(table: list[list[int]], scale: Any, sparse: bool, leading: bool) -> None:
    """Settling, pruning and all solvers keep the best matching; the interval without solving holds it.

    So for counts that floats cannot tell apart, and fractions as near to each other; in leading bits, certainly.
    """
    dense = np.array(table, dtype=object) * scale
    rows, cols = np.nonzero(dense)
    counts = dense[rows, cols]
    counts = counts.astype(np.int64) if scale == 1 or (isinstance(scale, int) and counts.sum() < 2**62) else counts
    with solvers(sparse=sparse, leading=leading):
        lower, upper = best_matching(rows, cols, counts)
    truth = brute_force(dense)
    assert lower <= truth <= upper
    assert upper - lower <= truth * Fraction(1, 2**40)
    assert lower == upper or leading
    bounds = best_matching(rows, cols, counts, assignment_cells=0)
    assert bounds.lower <= lower <= upper <= bounds.upper or leading


@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_matching_of_forty_rows_beyond_floats(leading: bool, sparse: bool) -> None:
    """A component larger than the compiled loop takes, with counts near 2^58, against its own last bits."""
    from scipy.optimize import linear_sum_assignment

    bits = np.random.default_rng(1).integers(0, 1000, (40, 40))
    truth = 40 * 2**58 + int(bits[linear_sum_assignment(bits, maximize=True)].sum())
    rows, cols = np.indices(bits.shape).reshape(2, -1)
    with solvers(sparse=sparse, leading=leading):
        lower, upper = best_matching(rows, cols, bits.ravel() + 2**58)
        assert lower <= truth <= upper
        assert upper - lower < 2**30 if leading else lower == upper
        score = ContingencyTable(rows=bits + 2**58).assignment_score(normalize=False, model=None)
        assert score == lower


LABELLED: list[tuple[Any, list[int]]] = [
    *((kind([2**53, 2**53 + 1, None, 2**53]), [0, 1, 2, 0]) for kind in (pa.array, pl.Series)),
    (pa.chunked_array([[2**53, 2**53 + 1], [None, 2**53]]), [0, 1, 2, 0]),
    *((pd.Series([2**53, 2**53 + 1, None, 2**53], dtype=kind), [0, 1, 2, 0]) for kind in ("Int64", "int64[pyarrow]")),
    *(
        (pa.array(["a", "", None, "a"], pa.string()).cast(kind), [0, 1, 2, 0])
        for kind in (pa.string_view(), pa.binary(), pa.binary_view())
    ),
    (pa.array(["a", "", None, "a"]).dictionary_encode(), [0, 1, 2, 0]),
    (pl.Series(["a", "b", None, "a"], dtype=pl.Categorical), [0, 1, 2, 0]),
    (pa.array([0.0, -0.0, math.nan, math.nan]).dictionary_encode(), [0, 0, 1, 1]),
    (np.array([7, 8, 9, 7], ">i4"), [0, 1, 2, 0]),
    (np.array(["a", "b", "c", "a"], ">U1"), [0, 1, 2, 0]),
    (np.array([0, 1, 2, 0], np.longdouble) * np.longdouble(2) ** -60 + 1, [0, 1, 2, 0]),
    *((wrap([math.nan, -0.0, float("nan"), 0.0]), [0, 1, 0, 1]) for wrap in (list, np.array, np.float32)),
    ([np.float32("nan"), math.nan, None, 1], [0, 0, 1, 2]),
    (np.array([math.nan, float("nan"), "x", 1], dtype=object), [0, 0, 1, 2]),
    (pd.Series([math.nan, float("nan"), "x", 1], dtype=object), [0, 0, 1, 2]),
    ([pd.NA, pd.NA, 1, 2], [0, 0, 1, 2]),
    ([1, "1", True, 1], [0, 1, 0, 0]),
    ([(1, 2), (1, 2), "x", None], [0, 0, 1, 2]),
    ("abca", [0, 1, 2, 0]),
    *((wrap(["\ud800", "a", "\ud800", "b"]), [0, 1, 0, 2]) for wrap in (list, np.array)),
    (np.ma.array([0, 0, 1, 2], mask=[False, False, True, True]), [0, 0, 1, 1]),
]


@pytest.mark.parametrize(("labels", "codes"), LABELLED)
def test_labels_are_compared_exactly(labels: Any, codes: list[int]) -> None:
    """As Python compares them, whatever holds them: None, NaN and a masked value are a label each, -0.0 is 0.0."""
    for ids in ([0, 1, 2, 3], [0, 0, 1, 1]):
        want = ContingencyTable.from_labels(codes, ids).to_rows()
        assert ContingencyTable.from_labels(labels, ids).to_rows() == want
        assert ContingencyTable.from_counts(labels, ids, [1] * 4).to_rows() == want


def test_frames_and_clusters_of_characters_are_tables() -> None:
    """A frame is a table, and a string a sequence of its characters."""
    assert ContingencyTable.from_clusters(["aab", "b"]).to_rows() == [[2, 0], [1, 1]]
    assert ContingencyTable(rows=pd.DataFrame([[1, 1], [0, 1]])) == ContingencyTable(rows=[[1, 1], [0, 1]])


TABLE = ContingencyTable(rows=[[1, 2], [3, 4]])


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    *(
        (
            lambda bad=bad: ContingencyTable.from_counts([0, 1], [0, 1], [1, bad]),
            DataError,
            "has .* at position 1; counts",
        )
        for bad in (-1, math.nan, math.inf, -0.5)
    ),
    (lambda: ContingencyTable(rows=[[1, -1]]), DataError, "counts"),
    (lambda: ContingencyTable(rows=[[10**400, Fraction(-1, 2)]]), DataError, "must be finite numbers of at least 0"),
    (lambda: ContingencyTable(rows=np.ma.array([[5, 2]], mask=[[1, 0]])), DataError, "counts is None"),
    (lambda: ContingencyTable.from_labels([1, 2], [1]), DataError, "labels_true and labels_pred have lengths 2 and 1"),
    (lambda: ContingencyTable.from_counts([1, 2], [1, 2], [5]), DataError, "lengths 2, 2 and 1"),
    (lambda: ContingencyTable.from_partitions([[1, 2, 3]], [[1, 2]]), DataError, "point 3 is in one partition only"),
    (lambda: ContingencyTable.from_partitions([[1, 2]], [[1, 2], [2]]), DataError, "2 is in two groups of the second"),
    (lambda: ContingencyTable.from_labels([[1], [2]], [1, 2]), DataError, "hashable"),
    (lambda: ContingencyTable(rows=[[1, 2], [3]]), DataError, "rows have lengths 1, 2"),
    (lambda: ContingencyTable(rows=[1, 2]), DataError, "a row is 1; give a sequence"),
    (lambda: ContingencyTable(rows=5), DataError, "rows is 5; give a sequence"),
    (lambda: ContingencyTable(rows=np.ones((2, 2, 2))), DataError, r"shape \(2, 2, 2\)"),
    (lambda: ContingencyTable.from_labels(None, [1]), DataError, "labels_true is None; give a sequence"),
    (lambda: ContingencyTable.from_clusters([[1], 3]), DataError, "a cluster is 3; give a sequence"),
    (lambda: ContingencyTable.from_partitions([3], [[3]]), DataError, "a group is 3; give a sequence"),
    (lambda: ConfusionMatrix2.from_random_counts(5, 5), OptionError, "low is 5 and high is 5"),
    (lambda: TABLE.vi_similarity(model="m4"), OptionError, "model is 'm4'"),
    (lambda: TABLE.adjusted_mutual_info(average_method="mean"), OptionError, "average_method is 'mean'"),
    (lambda: ContingencyTable(), OptionError, "give either rows or cols"),
    *(
        (lambda name=name: TABLE.get_score(name), OptionError, "is not a measure of a contingency table")
        for name in ("ari", "cells", "shape", "to_rows", "expected", "get_score", "__len__", "TP")
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refusals(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    """Bad counts, lengths, shapes and names are refused by one line that names them."""
    refuses(error, message, call)


@contextmanager
def solvers(*, sparse: bool = False, leading: bool = False) -> Iterator[None]:
    """Every component is solved as a graph, or by the leading bits of its counts."""
    with pytest.MonkeyPatch.context() as patch:
        if sparse:
            patch.setattr(assignment, "_choose", assignment._sparse)
        if leading:
            patch.setattr(assignment, "_WHOLE", 0)
        yield


def test_interval_of_a_metric_holds_its_value() -> None:
    """Where the matching is an interval, so is the score, and the exact score is inside."""
    rng = np.random.default_rng(2)
    table = ContingencyTable(rows=rng.integers(0, 9, (30, 30)))
    c = table.cells
    unsolved = replace(table.summary, matching=best_matching(c.rows, c.cols, c.counts, assignment_cells=10))
    for name in ("assignment_score", "assignment_score/m3/raw", "assignment_score/none/normalized"):
        metric = clustering_metric(name)
        low, high = metric.bounds(unsolved)
        value = float(table.assignment_score(**getattr(metric.measure.function, "keywords", {})))
        assert low < high
        assert low <= value <= high
    refuses(OptionError, "has not been solved", clustering_metric("assignment_score").compute, table.summary)


@given(matrices, st.sampled_from(["m1", "m2r", "m2c", "m3"]))
def test_closed_form_nulls_equal_the_expected_table(table: list[list[int]], model: str) -> None:
    """Null models in closed form agree with the dense table of expected counts."""
    from streameval.metrics.contingency.measures import null_statistics

    real = ContingencyTable(rows=table)
    if not real.grand_total:
        return
    null, dense = null_statistics(real.facts, model), real.expected(model).facts
    assert float(null.matching) == pytest.approx(float(dense.matching))
    assert float(null.maxima) == pytest.approx(float(dense.maxima))
    assert tuple(map(float, null.pairs)) == pytest.approx(tuple(map(float, dense.pairs)), abs=1e-9)
    assert tuple(map(float, null.bcubed)) == pytest.approx(tuple(map(float, dense.bcubed)))
    assert tuple(map(float, null.entropies)) == pytest.approx(tuple(map(float, dense.entropies)), abs=1e-12)
    assert null.nonzero == dense.nonzero


def test_every_metric_of_an_empty_table_has_its_documented_value() -> None:
    """An empty table scores 1, 0 or NaN as documented, raises nothing and warns of nothing."""
    table = ContingencyTable.from_labels([], [])
    found = {metric.name: metric.compute(table.summary) for metric in CLUSTERING_METRICS}
    ones = {"homogeneity", "completeness", "v_measure", "adjusted_mutual_info"}
    zeros = {"chisq_score", "g_score"}
    for name, value in found.items():
        assert math.isnan(value) if name not in ones | zeros else value == (name in ones), name
    assert table.assignment_score(model=None) == table.split_join_similarity(model=None) == 1.0
    assert (table.shape, table.grand_total, table.assignment_score(False, None)) == ((0, 0), 0, 0)
    assert math.isnan(table.pairwise.kappa())


def test_zero_cells_count_nowhere() -> None:
    """Explicit zeros change no measure, only the dense array."""
    padded = ContingencyTable(rows=[[3, 0, 1], [0, 0, 0], [1, 0, 2]])
    bare = ContingencyTable(rows=[[3, 1], [1, 2]])
    assert padded.shape == (2, 2)
    assert padded.summary == bare.summary
    assert padded.to_array().shape == (3, 3)
    assert padded.expected("m1").to_array().tolist() == bare.expected("m1").to_array().tolist()
    assert padded.adjust_to_null("bc_metrics") == bare.adjust_to_null("bc_metrics")


def test_constructors_agree() -> None:
    """Labels, clusters, partitions, counts, rows and columns make the same table."""
    true, pred = ["a", "a", "b", "b", "b"], [1, 2, 2, 2, 1]
    table = ContingencyTable.from_labels(true, pred)
    assert table == ContingencyTable.from_labels(np.array(true), np.array(pred))
    assert table == ContingencyTable.from_clusters({1: ["a", "b"], 2: ["a", "b", "b"]})
    assert table == ContingencyTable.from_counts(*zip(*[(*key, n) for key, n in table.items()], strict=True))
    assert table == ContingencyTable(rows={"a": {1: 1, 2: 1}, "b": {1: 1, 2: 2}})
    assert table == ContingencyTable(cols={1: {"a": 1, "b": 1}, 2: {"a": 1, "b": 2}})
    assert table == ContingencyTable.from_labels(*table.to_labels())
    parts = {"a": [0, 1], "b": [2, 3, 4]}, {1: [0, 4], 2: [1, 2, 3]}
    assert table == ContingencyTable.from_partitions(*parts)
    again = ContingencyTable.from_partitions(*table.to_partitions())
    assert again.summary == ContingencyTable.from_clusters(table.to_clusters()).summary == table.summary


def test_adjusted_mutual_information_has_a_limit() -> None:
    """Tables that are multiples of one another approach one value, beyond 64 bits too."""
    cells = [([0, 0, 1, 1], [0, 1, 0, 1], [3 * n, n + 7, n + 1, 4 * n + 5]) for n in (10**e for e in (18, 19, 25, 60))]
    found = [ContingencyTable.from_counts(*cell).adjusted_mutual_info() for cell in cells]
    assert found == pytest.approx([0.23150275745152354] * len(cells), rel=1e-14)


def test_whole_counts_have_any_size() -> None:
    """Counts beyond the range of floats are counted, and scores of what they have in common are numbers."""
    table = ContingencyTable(rows=[[10**400, 1], [2, 3]])
    assert table.grand_total == 10**400 + 6
    assert table.assignment_score(normalize=False, model=None) == 10**400 + 3
    assert table.rand_index() == table.fowlkes_mallows() == 1.0
    assert ConfusionMatrix2(10**400, 1, 2, 10**400).accuracy() == 1.0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rand_index/raw", "rand_index has no variant 'raw'"),
        ("assignment_score/m1/m3", "'m3' is said twice"),
        ("adjust_to_null/nosuch/m3", "'nosuch' is not a measure; known are"),
        ("adjust_to_null/rand_index", "give a measure and one of m1, m2r, m2c, m3"),
        (
            "adjust_to_null/rand_index/m3",
            "name one of adjust_to_null/rand_index/m3.0 to adjust_to_null/rand_index/m3.1",
        ),
        ("pairwise.fscore/beta=x", "beta is 'x'; give a number of at least 0"),
        ("pairwise.fscore/beta=-1", "beta is '-1'"),
        ("pairwise.fscore/beta=nan", "beta is 'nan'"),
        ("pairwise.fscore/beta=1/beta=2", "'beta=2' is said twice"),
        ("pairwise.kappas", "name one of pairwise.kappas.0 to pairwise.kappas.2"),
        ("pairwise.kappas.3", "name one of pairwise.kappas.0 to pairwise.kappas.2"),
        ("pairwise.kappas.0.0", "name one of pairwise.kappas.0 to pairwise.kappas.2"),
        ("rand_score.0", "known are"),
        ("chisq_score/raw.0", "chisq_score has no variant 'raw'"),
        ("pairwise.kappa.0", "it is one number; name pairwise.kappa"),
    ],
)
def test_a_refused_name_says_why(name: str, reason: str) -> None:
    """What is wrong with the name of a metric, and what to write instead."""
    with pytest.raises(OptionError, match=re.escape(f"{name!r} is not a clustering metric") + ".*" + re.escape(reason)):
        clustering_metric(name)


heads = "adjust_to_null pairwise pairwise.kappas pairwise/fscore pairwise.TP pairwise. entropy_scores vi_similarity"
words = "rand_index kappas entropy_scores m3 none raw geometric fscore beta= beta=0.5 beta=1e200 nosuch homogeneity"
names = st.tuples(
    st.sampled_from([*heads.split(), *words.split(), ""]),
    st.lists(st.sampled_from([*words.split(), ""]).map("/{}".format), max_size=2).map("".join),
    st.lists(st.sampled_from(["0", "1", "2", "3", "", "²"]).map(".{}".format), max_size=2).map("".join),
).map("".join)


@given(names)
def test_a_name_is_a_metric_or_refused(name: str) -> None:
    """Whatever is made of the words of names either gives numbers or is refused, never anything between."""
    table = ContingencyTable(rows=[[8, 0], [0, 8]])
    try:
        metrics = clustering_metrics([name])
    except OptionError:
        refuses(OptionError, "is not a clustering metric", clustering_metric, name)
        return
    for metric in metrics:
        assert clustering_metric(metric.name).element == metric.element
        assert isinstance(metric.compute(replace(table.summary, matching=(16, 16))), float)


def test_discrete_expectations_are_kept_until_redrawn() -> None:
    """A table draws its rounded expectation once for each model, unless asked to redraw."""
    table = ContingencyTable(rows=np.arange(1, 26).reshape(5, 5))
    first = table.expected("m3", discrete=True, random_state=1)
    assert table.expected("m3", discrete=True) is first
    assert table.expected("m3", discrete=True, redraw=True, random_state=2) != first
    assert np.abs(first.to_array() - table.expected("m3").to_array()).max() < 1
    third = table.expected("m3", discrete=True, random_state=3)
    assert third == ContingencyTable(rows=table.to_rows()).expected("m3", discrete=True, random_state=3)
    assert third != first
    assert table.expected("m3", discrete=True, random_state=3) is table.expected("m3", discrete=True) is third
    score = table.assignment_score(model="m3", discrete=True)
    assert score == table.assignment_score_m3(discrete=True)
    assert score == pytest.approx(table.assignment_score(model="m3"), abs=0.1)
    assert table.assignment_score_m3(discrete=True, redraw=True) == pytest.approx(score, abs=0.2)
    assert table.expected("m3", discrete=True) is not third
    assert table.expected("x2r").row_totals == table.row_totals


@settings(max_examples=50)
@given(matrices, st.sampled_from([1, Fraction(3, 10), 10**22]), st.sampled_from(["m1", "m2r", "m2c", "m3"]))
def test_every_named_metric_answers_every_table(table: list[list[int]], scale: Any, model: str) -> None:
    """No table raises or warns, however degenerate, fractional or huge, but where whole counts are needed.

    Of whole counts, every metric and every variant keeps to the range it states, but for rounding.
    """
    dense = np.array(table, dtype=object) * scale
    summary = ContingencyTable(rows=dense).summary
    rows, cols = np.nonzero(dense)
    matching = best_matching(rows, cols, dense[rows, cols])
    adjustments = [f"adjust_to_null/{name}/{model}" for name in TABLE_MEASURES if name != "adjusted_mutual_info"]
    for metric in clustering_metrics([*clustering.clustering_metric_names(), "*/*", *adjustments]):
        with suppress(DataError) if summary.fractional else nullcontext():
            value = metric.compute(replace(summary, matching=matching))
            slack = 1e-9 * max(1.0, abs(value)) if math.isfinite(value) else 0
            measure = metric.measure
            inside = measure.low - slack <= value <= measure.high + slack
            assert math.isnan(value) or summary.fractional or inside, metric.name
