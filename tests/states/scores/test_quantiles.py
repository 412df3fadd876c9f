"""The quantile sketch: how far off it is, what never poisons it, and that other people's digests can be read."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streameval
from streameval.budget import Budget
from streameval.errors import DataError, FormatError, IncompatibleStatesError, OptionError, SchemaError
from streameval.states.protocol import Batch
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec, sketch

QS = np.array([0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.998, 0.999])
DRAWS = {
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "beta": lambda rng, n: rng.beta(0.3, 3.0, n),
}
numbers = st.lists(st.floats(allow_nan=True, width=64), max_size=60)


def rank_error(state, values, qs=QS):
    """How far the rank of each estimate is from q, over min(q, 1 − q); the rank of an atom is its nearest."""
    values, found = np.sort(values), state.quantile(qs)
    low, high = (np.searchsorted(values, found, side) / values.size for side in ("left", "right"))
    return np.maximum(0, np.maximum(low - qs, qs - high)) / np.minimum(qs, 1 - qs)


def fold(arrays, spec):
    """The state of Arrow arrays, one batch each."""
    builder = spec.builder(Budget(), 1 << 20)
    for array in arrays:
        builder.update(Batch(np.zeros(len(array), np.uint8), None, {spec.column: array}))
    return builder.state()


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rank_error_is_below_two_percent(name, dtype):
    """A million numbers in one piece; the average over seeds is far below."""
    for seed in range(3):
        values = DRAWS[name](np.random.default_rng(seed), 1_000_000).astype(dtype)
        assert rank_error(sketch(values), values).max() < 0.01


@pytest.mark.parametrize("name", DRAWS)
def test_rank_error_after_a_thousand_merges(name):
    """One by one and as a tree, a thousand sketches make one that is as good."""
    values = DRAWS[name](np.random.default_rng(7), 1_000_000)
    parts = [sketch(part) for part in np.array_split(values, 1000)]
    one = parts[0]
    for part in parts[1:]:
        one = one.merge(part)
    while len(parts) > 1:
        parts = [a.merge(b) for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) & ~1 :]
    for state in (one, parts[0]):
        assert rank_error(state, values).max() < 0.02
        assert state.count == 1_000_000
        assert state.mean.size < 2.7 * state.spec.compression
        assert (state.low, state.high) == (values.min(), values.max()) == tuple(state.quantile([0, 1]))


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_sorted_input_is_no_harder(order):
    """Numbers that arrive in order."""
    values = np.sort(np.random.default_rng(1).normal(size=1_000_000))
    values = values if order == "ascending" else values[::-1]
    assert rank_error(sketch(values), values).max() < 0.01


def test_cdf_is_beside_the_truth():
    """The inverse of the quantiles, at least as good."""
    values = np.sort(np.random.default_rng(2).normal(size=300_000))
    at = values[[300, 3000, 150_000, 297_000, 299_700]]
    truth = np.searchsorted(values, at, "right") / values.size
    assert np.abs(sketch(values).cdf(at) - truth) / np.minimum(truth, 1 - truth) == pytest.approx(0, abs=0.02)


@settings(max_examples=100, deadline=None)
@given(numbers, numbers, st.randoms(use_true_random=False))
def test_few_numbers_are_kept_as_they_are(a, b, random):
    """Below about 1,200 numbers nothing is gathered: every split and order gives one state, through Arrow too."""
    whole = a + b
    random.shuffle(whole)
    first, second = sketch(np.array(a, float)), sketch(np.array(b, float))
    merged = first.merge(second)
    assert merged == second.merge(first) == sketch(np.array(whole, float))
    assert merged.merge(QuantileSpec().empty()) == merged
    table = pa.Table.from_batches(list(merged.to_arrow()))
    assert QuantileSpec().from_arrow(json.loads(json.dumps(merged.header())), table.to_batches(), Budget()) == merged
    finite = sorted(x for x in whole if math.isfinite(x))
    assert merged.mean.tolist() == finite
    assert merged.nan == sum(map(math.isnan, whole))


def test_merge_is_commutative_and_determined():
    """Large sketches too: the same bits whichever comes first, and every time."""
    rng = np.random.default_rng(5)
    a, b = sketch(rng.normal(size=50_000)), sketch(np.round(rng.normal(size=70_000), 1))
    assert a.merge(b) == b.merge(a) == a.merge(b)
    assert a.merge(QuantileSpec().empty()) == a


def test_nan_and_infinities_never_poison():
    """They are counted; the rest is as without them."""
    values = np.random.default_rng(3).normal(size=100_000)
    dirty = np.concatenate((values, [np.nan] * 7, [np.inf] * 50_000, [-np.inf] * 50_000))
    np.random.default_rng(4).shuffle(dirty)
    state = sketch(dirty).merge(sketch(np.array([np.nan, np.inf])))
    assert (state.below, state.above, state.nan, state.finite) == (50_000, 50_001, 8, 100_000)
    assert state.quantile([0, 0.2, 0.8, 1]).tolist() == [-np.inf, -np.inf, np.inf, np.inf]
    assert state.quantile(0.5) == pytest.approx(np.median(values), abs=0.01)
    assert state.cdf([-np.inf, 0, np.inf]) == pytest.approx([0.25, 0.5, 1.0], abs=0.005)
    assert np.isfinite(state.mean).all()
    assert math.isnan(state.cdf(math.nan))


def test_extreme_numbers_do_not_overflow():
    """The largest floats have means too."""
    big = np.finfo(np.float64).max
    state = sketch(np.array([-big, big] * 5000)).merge(sketch(np.array([big, -big] * 5000)))
    assert np.isfinite(state.mean).all()
    assert state.quantile([0, 1]).tolist() == [-big, big]


def test_empty_and_single():
    """No numbers, only infinities, one number."""
    empty = QuantileSpec().empty()
    assert np.isnan(empty.quantile([0.1, 0.9])).all()
    assert math.isnan(empty.cdf(0.0))
    assert sketch([np.inf, -np.inf]).quantile([0.2, 0.8]).tolist() == [-np.inf, np.inf]
    assert sketch([np.inf, -np.inf]).cdf(0.0) == 0.5
    assert sketch([3.0]).quantile([0, 0.5, 1]).tolist() == [3.0, 3.0, 3.0]
    assert sketch([3.0]).cdf([2.9, 3.0, 3.1]).tolist() == [0.0, 1.0, 1.0]


def test_nulls_count_as_nan():
    """A null is no number."""
    state = fold([pa.array([1.0, None, 3.0]), pa.array([None, None], pa.float64()), pa.array([2.0])], QuantileSpec("x"))
    assert (state.nan, state.mean.tolist()) == (3, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([2, 1]), "i8"),
        (pa.array([2, 1], pa.int8()), "i4"),
        (pa.array([2, 1], pa.float16()), "f4"),
        (pa.array([Decimal("2.00"), Decimal("1.00")], pa.decimal128(12, 2)), "d2"),
    ],
)
def test_all_numbers_are_numbers(array, kind):
    """Integers, short floats and decimals."""
    assert fold([array], QuantileSpec("x", kind)).mean.tolist() == [1.0, 2.0]


def test_dictionaries_go_both_ways_through_tdigest():
    """What the package made can be merged here, and what was made here is read there with the same quantiles."""
    tdigest = pytest.importorskip("tdigest")
    rng = np.random.default_rng(6)
    values = rng.normal(size=50_000)
    theirs = tdigest.TDigest()
    theirs.batch_update(values[:3000])
    ours = QuantileSketch.from_dict(json.loads(json.dumps(theirs.to_dict())))
    assert ours.count == pytest.approx(3000)
    assert ours.merge(sketch(values[3000:])).quantile(0.5) == pytest.approx(np.median(values), abs=0.02)
    back = tdigest.TDigest().update_from_dict(json.loads(json.dumps(sketch(values).to_dict())))
    assert back.n == pytest.approx(50_000)
    for q in (0.001, 0.01, 0.5, 0.99, 0.999):
        rank = (values < back.percentile(100 * q)).mean()
        assert abs(rank - q) < 0.05 * min(q, 1 - q)


def test_dictionaries_keep_everything():
    """To a dictionary and back is the same state, through JSON, with what the package leaves out."""
    state = sketch(np.concatenate((np.random.default_rng(8).normal(size=50_000), [np.nan, np.inf, -np.inf])))
    assert QuantileSketch.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    assert QuantileSketch.from_dict(QuantileSpec().empty().to_dict()) == QuantileSpec().empty()


def test_poisoned_digests_are_cleaned():
    """Centroids at infinity or NaN, in any order, are counted apart."""
    poisoned = {"centroids": [{"m": math.nan, "c": 2}, {"m": 5, "c": 1}, {"m": math.inf, "c": 3}, {"m": 1, "c": 1}]}
    state = QuantileSketch.from_dict(poisoned)
    assert (state.mean.tolist(), state.nan, state.above) == ([1.0, 5.0], 2, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"centroids": 3},
        {"centroids": [{"m": 1}]},
        {"centroids": [{"m": 1, "c": -1}]},
        {"centroids": [{"m": "x", "c": 1}]},
        {"centroids": [{"m": 10**400, "c": 1}]},
        {"centroids": [], "below": math.inf},
        {"centroids": [], "nan": math.nan},
        {"centroids": [{"m": 1, "c": 1}], "min": -(10**400)},
        [],
    ],
)
def test_other_dictionaries_are_refused(wrong):
    """With an error that says what is expected."""
    with pytest.raises(FormatError, match=r"t-digest"):
        QuantileSketch.from_dict(wrong)


def test_wrong_questions_are_refused():
    """Shares outside [0, 1], states of different specs, compressions that make no digest."""
    with pytest.raises(OptionError, match=r"q=1\.5"):
        sketch([1.0]).quantile(1.5)
    with pytest.raises(OptionError):
        sketch([1.0]).quantile(math.nan)
    with pytest.raises(IncompatibleStatesError, match="fold both"):
        sketch([1.0]).merge(QuantileSpec(compression=100).empty())
    for wrong in (1, "a", None):
        with pytest.raises(OptionError, match="compression"):
            QuantileSketch.from_values([1.0], wrong)
    for question in (sketch([1.0]).quantile, sketch([1.0]).cdf):
        with pytest.raises(OptionError, match="='a' is neither a number nor an array"):
            question("a")
    with pytest.raises(IncompatibleStatesError, match=r"cannot merge QuantileSpec.* with 3; fold both"):
        sketch([1.0]).merge(3)
    with pytest.raises(ValueError, match="ascending"):
        QuantileSpec().from_arrow(
            {},
            [pa.RecordBatch.from_pydict({"mean": [2.0, 1.0], "weight": [1.0, 1.0]}, QuantileSpec().schema)],
            Budget(),
        )


def test_atoms_keep_their_ranks_roughly():
    """With few distinct values the rank may be off, and the estimate may lie between them: measured, not promised."""
    values = np.random.default_rng(9).integers(0, 10, 1_000_000) / 10
    state = sketch(values)
    assert rank_error(state, values).max() < 0.05
    assert state.quantile([0.05, 0.55, 0.95]) == pytest.approx([0.0, 0.5, 0.9])


def test_columns_of_files_are_sketched_out_of_core(tmp_path):
    """Several files, threads and types give one sketch, nulls and NaN apart; a digest that was kept merges with it."""
    values = np.random.default_rng(3).normal(size=120_000)
    for i, part in enumerate(np.split(values, 3)):
        column = pa.array([None, *part[1:]], pa.float64(), from_pandas=False)
        pq.write_table(pa.table({"x": column, "name": ["a"] * part.size}), tmp_path / f"{i}.parquet")
    seen = []
    found = streameval.quantile_sketch(tmp_path, "x", progress=lambda *done: seen.append(done))
    assert (found.count, found.nan) == (119_997, 3)
    assert max(seen) == (120_000, 120_000)
    assert found == streameval.quantile_sketch(tmp_path, "x", threads=1)
    for q in (0.001, 0.5, 0.999):
        assert abs((values < found.quantile(q)).mean() - q) < 0.02 * min(q, 1 - q)
    kept = streameval.QuantileSketch.from_dict(streameval.QuantileSketch.from_values(values).to_dict())
    assert found.merge(kept).count == 239_997
    assert streameval.QuantileSketch().merge(kept) == kept
    with pytest.raises(SchemaError, match=r"0\.parquet: column 'name' has type string; a sketch is of"):
        streameval.quantile_sketch(tmp_path, "name")
    with pytest.raises(DataError, match="numbers"):
        streameval.QuantileSketch.from_values(["a"])
