"""States of scores: tables, histograms, blocks and scores by group, at the ends of their ranges."""

import pickle
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from streameval import ContingencyTable, LiftCurve, auc, evaluate
from streameval.budget import Budget
from streameval.errors import DataError, LabelError, OptionError
from streameval.kernels.grid import codes
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.states.blocks import blocks_of
from streameval.states.protocol import Batch
from streameval.states.scores import histogram
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.groups import ID_BUCKETS, GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram
from streameval.states.scores.quantile_sketch import QuantileSketch

HUGE, LEAST, WHOLE = 1.7e308, 5e-324, 2**53
FINITE = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [HUGE, -HUGE, LEAST, -LEAST, 2 * LEAST, 0.0]
)


@given(st.lists(FINITE, min_size=1, max_size=30), st.lists(st.floats(0, 1), min_size=1, max_size=9), st.booleans())
def test_quantiles_are_finite_and_ascend(values: list[float], shares: list[float], merged: bool) -> None:
    """Every quantile is finite, and ascends with its share from the least number to the largest."""
    sketch = QuantileSketch.from_values(values, compression=100)
    if merged:
        sketch = sketch.merge(QuantileSketch.from_values(values[::-1], compression=100))
    found = sketch.quantile(sorted([0.0, *shares, 1.0]))
    assert np.isfinite(found).all()
    assert (found[0], found[-1]) == (min(values), max(values))
    assert all(a <= b for a, b in pairwise(found))


@given(FINITE, FINITE)
def test_the_median_of_two_numbers_is_their_midpoint(one: float, other: float) -> None:
    """Also where their sum or their difference exceeds the largest float; half of the numbers are below it."""
    sketch = QuantileSketch.from_values([one, other])
    middle = (Fraction(one) + Fraction(other)) / 2
    assert abs(Fraction(sketch.quantile(0.5)) - middle) <= max(
        abs(Fraction(one)), abs(Fraction(other))
    ) / 2**52 + Fraction(LEAST)
    if max(abs(one), abs(other)) < 4 * abs(float(middle)) and one != other:
        assert sketch.cdf(float(middle)) == pytest.approx(0.5, abs=0.26 if abs(one - other) < 1e-300 else 1e-6)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=6, unique_by=lambda point: point[0]))
def test_areas_are_those_of_fractions(points: list[tuple[float, float]]) -> None:
    """Trapezoids of any coordinates, or one line where the area exceeds the largest float."""
    points = sorted(points)
    steps = [((Fraction(b[0]) - Fraction(a[0])), (Fraction(a[1]) + Fraction(b[1])) / 2) for a, b in pairwise(points)]
    area, size = sum(x * y for x, y in steps), sum(abs(x * y) for x, y in steps)
    try:
        found = auc(*zip(*points, strict=True))
    except DataError as error:
        if "exceeds the largest float" not in str(error):
            raise
        assert abs(area) > Fraction(HUGE)
    else:
        most = max(abs(Fraction(x)) for x, _ in points) * max(abs(Fraction(y)) for _, y in points)
        assert abs(Fraction(found) - area) <= size / 2**40 + most / 2**50 + Fraction(LEAST)


@pytest.mark.parametrize("asked", [{}, {"ci": 0.9, "resample_bins": 50}, {"approx": True}])
def test_metrics_of_scores_of_every_size(asked: dict[str, Any]) -> None:
    """Ranks decide: 0 warnings, and the values of the ranks where no probability is asked for."""
    random = np.random.default_rng(0)
    size = np.exp(random.uniform(-744, 709.7, 500))
    score = np.concatenate([np.where(random.random(500) < 0.5, -size, size), [HUGE, -HUGE, LEAST, -LEAST, 0.0]])
    label = random.integers(0, 2, score.size)
    found = evaluate(pa.table({"label": label, "score": score}), score="score", metrics="*", **asked)
    ranks = np.unique(score, return_inverse=True)[1]
    same = evaluate(pa.table({"label": label, "score": ranks}), score="score", metrics=["roc_auc", "agc"])
    for one in same.results:
        value = next(each for each in found.results if each.metric == one.metric)
        assert value.value == one.value if value.exact else value.lower <= one.value <= value.upper
    assert all(np.isfinite(one.value) or one.reason for one in found.results)


def test_counts_of_every_size_are_exact_or_refused() -> None:
    """Float counts whose sums or products leave float64 are computed as fractions."""
    rows = [[2.0, 1.0], [0.0, 3.0]]
    for unit in (2.0**1020, 2.0**-1070):
        table = ContingencyTable(rows=[[unit * n for n in row] for row in rows])
        assert table.mutual_info_score() == pytest.approx(ContingencyTable(rows=rows).mutual_info_score(), rel=1e-9)
        refuses(DataError, "products leave float64; scale the counts", LiftCurve.from_counts, [unit], [unit])


@pytest.mark.parametrize("pos_label", [WHOLE + 1, str(WHOLE + 1)])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_label_that_a_float_cannot_be_is_absent(pos_label: Any, kind: pa.DataType) -> None:
    """As a number and as the text of the command line, which Arrow would round."""
    data = pa.table({"label": pa.array([float(WHOLE), 0.0], kind), "score": [1, 2]})
    with pytest.raises(LabelError, match=r"pos_label=.*9007199254740993.* is not a value of label column 'label'"):
        evaluate(data, score="score", pos_label=pos_label, metrics="roc_auc")
    assert evaluate(data, score="score", pos_label=str(WHOLE), metrics="roc_auc").value("roc_auc") == 0.0


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(18, 1)])
def test_thresholds_are_refused_where_scores_are_rounded(kind: pa.DataType) -> None:
    """2**53 + 3 would be at or above the threshold 2**53 + 4, as float64."""
    data = pa.table({"label": [0, 1], "score": pa.array(list(map(Decimal, (WHOLE + 3, WHOLE + 4)))).cast(kind)})
    with pytest.raises(
        OptionError, match=r"float64 rounds scores of column 'score' above 2.25e\+1[45]; choose a lower"
    ):
        evaluate(data, score="score", at=f"threshold={WHOLE + 4}")
    found = evaluate(data, score="score", at="threshold=7")
    assert found.value("recall@threshold=7") == 1.0
    refuses(OptionError, "float64 rounds scores", found.confusion, WHOLE + 4)
    assert found.confusion(7).TP == 1


ROWS = 6_000


def test_merging_loses_no_weight() -> None:
    """In any order, also after a state was sent to another process."""
    rng, spec = np.random.default_rng(0), HistogramSpec("score", weighted=True, nan="half")
    label, weight = rng.integers(0, 2, ROWS).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, ROWS)
    score = rng.choice(np.array([0.25, 0.5, np.nan], np.float32), ROWS)

    def folded(rows: Any) -> ScoreHistogram:
        builder = spec.builder(Budget(), ROWS)
        builder.update(Batch(label[rows], weight[rows], {"score": pa.array(score[rows])}))
        return builder.state()

    whole, parts = folded(slice(None)), [folded(rows) for rows in np.array_split(rng.permutation(ROWS), 7)]
    sent: list[ScoreHistogram] = [pickle.loads(pickle.dumps(part)) for part in reversed(parts)]
    for found in (reduce(ScoreHistogram.merge, parts), reduce(ScoreHistogram.merge, sent)):
        assert found == whole
        assert found.totals() == whole.totals()
        assert found.nan_weights.all()


@pytest.mark.parametrize("weighted", [False, True])
def test_tables_that_are_full_are_emptied(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table counts 2³¹ − 1 rows at most; no row before them and no missing score is lost or counted twice."""
    rng, spec = np.random.default_rng(1), HistogramSpec("score", weighted=weighted, nan="half")
    label, weight = rng.integers(0, 2, ROWS).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, ROWS)
    score = pa.array(rng.random(ROWS).astype(np.float32).round(2), mask=rng.random(ROWS) < 0.1)

    def folded() -> ScoreHistogram:
        builder = spec.builder(Budget(), ROWS)
        for rows in np.array_split(np.arange(ROWS), 9):
            columns = {"score": score.take(pa.array(rows))}
            builder.update(Batch(label[rows], weight[rows] if weighted else None, columns))
        return builder.state()

    whole = folded()
    monkeypatch.setattr(histogram, "_PACKED_ROWS", ROWS // 4)
    assert folded() == whole
    assert whole.nan_rows.all()


@pytest.mark.parametrize(("bins", "blocks"), [(4, 2), (64, 8), (2048, 128)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_counted_by_bin_block_and_label(bins: int, blocks: int, *, weighted: bool) -> None:
    """Also where a cell has more rows than a byte holds, where scores are missing, and where bins have to be joined."""
    rng = np.random.default_rng(bins)
    scores = np.concatenate([rng.random(3000), np.full(3000, 0.25), rng.normal(size=3000) * 1e3, [np.nan] * 50])
    label, unit = rng.integers(0, 2, scores.size).astype(np.uint8), rng.integers(0, 500, scores.size)
    weight = rng.random(scores.size) if weighted else None
    builder = BlockSpec("s", "f8", weighted, "half", "unit", blocks, bins).builder(None, 0)
    for at in np.array_split(np.arange(scores.size), 3):
        columns = {"s": pa.array(scores[at], from_pandas=False), "unit": pa.array(unit[at])}
        builder.update(Batch(label[at], None if weight is None else weight[at], columns))
    state = builder.state()
    assert 1 < state.prefixes.size <= bins
    block, there = blocks_of(unit.astype(np.uint64), blocks), ~np.isnan(scores)
    expected = np.zeros_like(state.table)
    bin_ = np.searchsorted(state.ends[:, 0], codes(scores), side="right") - 1
    np.add.at(expected, (bin_[there], block[there], label[there]), 1)
    assert np.array_equal(state.table, expected)
    assert state.nan_rows.sum() == 50
    if weight is not None:
        sums = np.zeros(expected.shape)
        np.add.at(sums, (bin_[there], block[there], label[there]), weight[there])
        assert state.sums == pytest.approx(sums, rel=1e-12)
        assert state.nan_weights.sum() == pytest.approx(weight[~there].sum())


METRICS = RocAuc(), AveragePrecision()
KINDS = "f4", "f8", "i4", "i8", "u8"


def sums(state, ranked):
    """Twice the pairs won and the precisions of all shards, from `ranked_parts` or from the groups."""
    found = []
    for shard in state.shards():
        parts = state.ranked_parts(shard) if ranked else state.parts(shard)
        found += [[metric.partial(part) for metric in METRICS] for part in parts]
    return sum(won for (won, _), _ in found), sum(bounds[0] for _, bounds in found)


def folded(rng, kind, rows, distinct, parts, halves):
    """A state of several folds; scores of both signs if `halves`."""
    scores = rng.beta(0.3, 2, distinct) * (rng.choice([-1, 1], distinct) if halves else 1)
    if kind[0] in "iu":
        scores = np.abs(scores) * 2**33 if kind == "u8" else scores * 1000
    scores = rng.choice(scores, rows).astype(kind)
    label = (rng.random(rows) < 0.2).astype(np.uint8)
    first, *others = (fold_arrays(label[i::parts], scores[i::parts]) for i in range(parts))
    for other in others:
        first = first.merge(other)
    return first


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(KINDS),
    rows=st.sampled_from([1, 2, 300, 5000, 40_000]),
    distinct=st.sampled_from([1, 2, 50, 4000, 10**6]),
    parts=st.integers(1, 3),
    halves=st.booleans(),
)
def test_areas_are_those_of_the_groups(seed, kind, rows, distinct, parts, halves):
    """Bit for bit, whatever the scores, also where repeated scores are stored with counts."""
    state = folded(np.random.default_rng(seed), kind, rows, distinct, parts, halves)
    assert sums(state, ranked=True) == sums(state, ranked=False)


@pytest.mark.parametrize("distinct", [3, 1000, 1 << 16])
def test_weights_are_ranked_as_in_groups(distinct):
    """Bit for bit, also where weights are zero or rows have counts."""
    rng, rows = np.random.default_rng(distinct), 30_000
    scores = 1 + rng.integers(0, distinct, rows) * np.where(rng.random(rows) < 0.4, 2.0**-23, 2.0**-20)
    weights = rng.gamma(1, 1, rows) * (rng.random(rows) < 0.9)
    label = (rng.random(rows) < 0.3).astype(np.uint8)
    one, two = (fold_arrays(label[i::2], scores[i::2].astype("f4"), weights[i::2]) for i in range(2))
    assert repr(sums(one.merge(two), ranked=True)) == repr(sums(two.merge(one), ranked=False))


@pytest.mark.parametrize("kind", ["int64", "int32", "uint32", "uint64"])
def test_ids_and_scores_at_the_ends_of_their_range_are_told_apart(kind: str) -> None:
    """Whether ids have 32 bits or more, and in one batch; -0.0 equals 0.0, infinities are ordinary."""
    info = np.iinfo(kind)
    ends = [info.min, info.max, 0, 1, min(info.max, 2**31 - 1), max(info.min, -(2**31))]
    found = {}
    for ids in (ends, [each for each in ends if -(2**31) <= each < 2**31]):
        ids = sorted(set(ids))
        score = np.array([np.inf, -np.inf, -0.0, 0.0], np.float32)
        columns = {"score": pa.array(np.tile(score, len(ids))), "user": pa.array(np.repeat(np.array(ids, kind), 4))}
        kinds = "signed" if info.min else "unsigned"
        builder = GroupScoreSpec("score", "f4", "user", kinds).builder(Budget(), 8)
        builder.update(Batch(np.tile(np.array([0, 1, 0, 1], np.uint8), len(ids)), None, columns))
        parts = list(builder.state().parts((0, ID_BUCKETS)))
        ties = [(part.ties.n.tolist(), part.ties.p.tolist()) for part in parts]
        found[len(ids)] = sum(len(part.neg) for part in parts)
        assert sum(map(sum, (n for n, _ in ties))) == 2 * len(ids)
        assert all(part.neg.tolist() == part.pos.tolist() == [2] * len(part.neg) for part in parts)
        assert all(n == [1, 1, 0] * (len(n) // 3) and p == [0, 1, 1] * (len(n) // 3) for n, p in ties)
    assert all(groups == count for groups, count in found.items())


@pytest.mark.parametrize("kind", ["text", "binary", "int64"])
@pytest.mark.parametrize("groups", [1, 3, 500])
def test_long_ids_are_numbered_and_have_the_sums_of_their_ties(kind: str, groups: int) -> None:
    """Rows with texts, or integers of more than 32 bits, have the same sums with scores of 32 and of 64 bits."""
    rng = np.random.default_rng([groups, len(kind)])
    numbers = rng.integers(0, groups, 4_000)
    ids = pa.array(numbers + (1 << 40)) if kind == "int64" else pa.array(np.char.mod("u%d", numbers).tolist())
    ids, ids_type = (ids.cast(pa.binary()) if kind == "binary" else ids), "signed" if kind == "int64" else "hash"
    label, score = rng.integers(0, 2, 4_000).astype(np.uint8), rng.integers(-9, 9, 4_000).astype(np.float32)
    sums = {}
    for type_, values in (("f4", score), ("f8", score.astype(float))):
        builder = GroupScoreSpec("score", type_, "user", ids_type).builder(Budget(), 1_000)
        builder.update(Batch(label, None, {"score": pa.array(values), "user": ids}))
        state = builder.state()
        shards = state.shards()
        parts = [part for shard in shards for part in state.parts(shard)]
        columns = [[part.ids, part.neg, part.pos, *part.areas, *part.precisions] for part in parts]
        sums[type_] = [np.concatenate(column).tolist() for column in zip(*columns, strict=True)]
        ends = [(part.first[1], part.last[1]) for part in parts]
        assert ends == sorted(ends)
    assert sums["f4"] == sums["f8"]
    assert len(sums["f4"][0]) == len(np.unique(numbers))
