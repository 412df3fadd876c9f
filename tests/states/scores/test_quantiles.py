"""The quantile sketch: how far off it is, what never poisons it, and that other people's digests can be read."""

import json
import math
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from tdigest import TDigest

import streameval
from streameval.budget import Budget
from streameval.errors import DataError, FormatError, IncompatibleStatesError, OptionError, SchemaError
from streameval.evaluation.quantile_sketch import sketches_by_label
from streameval.states.protocol import Batch
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec

QS = np.array([0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.998, 0.999])
DRAWS = {
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "beta": lambda rng, n: rng.beta(0.3, 3.0, n),
}
sketch = QuantileSketch.from_values
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


@given(numbers, numbers, st.randoms(use_true_random=False))
def test_few_numbers_are_kept_as_they_are(a, b, random):
    """Below about 1,200 numbers only equal ones are gathered: every split and order gives one state, in Arrow too."""
    whole = a + b
    random.shuffle(whole)
    first, second = sketch(np.array(a, float)), sketch(np.array(b, float))
    merged = first.merge(second)
    assert merged == second.merge(first) == sketch(np.array(whole, float))
    assert merged.merge(QuantileSpec().empty()) == merged
    table = pa.Table.from_batches(list(merged.to_arrow()))
    assert QuantileSpec().from_arrow(json.loads(json.dumps(merged.header())), table.to_batches(), Budget()) == merged
    finite = sorted(x for x in whole if math.isfinite(x))
    assert np.repeat(merged.mean, merged.weight.astype(int)).tolist() == finite
    assert merged.single.all()
    assert len(set(merged.mean.tolist())) == merged.mean.size
    assert merged.nan == sum(map(math.isnan, whole))


def test_nan_and_infinities_never_poison():
    """They are counted; the rest is as without them."""
    values = np.random.default_rng(3).normal(size=100_000)
    dirty = np.concatenate((values, [np.nan] * 7, [np.inf] * 50_000, [-np.inf] * 50_000))
    np.random.default_rng(4).shuffle(dirty)
    state = sketch(dirty).merge(sketch(np.array([np.nan, np.inf])))
    assert (state.below, state.above, state.nan, state.finite) == (50_000, 50_001, 8, 100_000)
    assert state.quantile([0, 0.2, 0.8, 1]).tolist() == [-np.inf, -np.inf, np.inf, np.inf]
    assert state.quantile(0.5) == pytest.approx(np.median(values), abs=0.01)
    assert state.cdf([-1e300, 0, 1e300]) == pytest.approx([0.25, 0.5, 0.75], abs=0.005)
    assert state.cdf([-np.inf, np.inf]) == pytest.approx([0.125, 0.875], abs=0.005)
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
    assert sketch([3.0]).cdf([2.9, 3.0, 3.1]).tolist() == [0.0, 0.5, 1.0]


few = st.lists(st.integers(-50, 50) | st.floats(-1e6, 1e6), min_size=1, max_size=100)


def theirs_of(values):
    """The digest that the tdigest package makes of numbers, one by one."""
    digest = TDigest()
    digest.batch_update(values)
    return digest


def whole(values):
    """Share below each number, plus half of those equal to it."""
    values = np.asarray(values, float)
    return (np.searchsorted(np.sort(values), values) + np.searchsorted(np.sort(values), values, "right")) / 2


@given(few, few)
def test_tdigest_objects_come_in_and_go_out(a, b):
    """What the package holds merges with ours, is ours, and goes back with the same centroids."""
    a, b = [float(x) for x in a], [float(x) for x in b]
    theirs, ours = theirs_of(b), sketch(a)
    merged = ours.merge(theirs)
    assert merged == ours.merge(QuantileSketch.from_tdigest(theirs)) == QuantileSketch.from_tdigest(theirs).merge(ours)
    assert merged.count == pytest.approx(len(a) + len(b))
    assert (merged.low, merged.high) == (min(a + b), max(a + b))
    back = merged.to_tdigest()
    assert back.n == pytest.approx(merged.count)
    means = sorted(set(merged.mean.tolist()))
    assert [c["m"] for c in back.centroids_to_list()] == pytest.approx(means)
    assert QuantileSketch.from_tdigest(back).cdf(means) == pytest.approx(merged.cdf(means), abs=1e-9)


@settings(max_examples=5)
@given(st.integers(0, 1000), st.sampled_from(sorted(DRAWS)))
def test_tdigest_is_as_near_to_the_truth(seed, name):
    """Of 4,000 numbers, folded there, folded here, in halves and sent across, the ranks agree."""
    values = DRAWS[name](np.random.default_rng(seed), 4000)
    half = values[:2000]
    theirs, ours = theirs_of(half), sketch(values[2000:])
    qs = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
    for state in (ours.merge(theirs), sketch(values)):
        assert rank_error(state, values, qs).max() < 0.1
        there = state.to_tdigest() + TDigest()
        for q in qs:
            assert abs((values < there.percentile(100 * q)).mean() - q) < 0.1 * min(q, 1 - q) + 1 / 4000
    for at in (theirs.percentile(100 * q) for q in qs):
        assert abs((half < at).mean() - sketch(half).cdf(at)) < 0.001


def test_what_is_not_a_tdigest_is_refused():
    """The error names what was given and what reads it."""
    for wrong in ({"centroids": []}, 3, None):
        with pytest.raises(FormatError, match=r"not a tdigest\.TDigest; dictionaries are read by from_dict"):
            QuantileSketch.from_tdigest(wrong)


def test_dictionaries_keep_everything():
    """To a dictionary and back is the same state, through JSON, atoms included, with what the package leaves out."""
    rng = np.random.default_rng(8)
    for values in (rng.normal(size=50_000), rng.integers(0, 2, 5000), np.round(rng.normal(size=50_000), 1)):
        state = sketch(np.concatenate((values, [np.nan, np.inf, -np.inf])))
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
    refuses(FormatError, r"t-digest", QuantileSketch.from_dict, wrong)


def test_wrong_questions_are_refused():
    """Shares outside [0, 1], states of different specs, compressions that make no digest."""
    refuses(OptionError, r"q=1\.5", sketch([1.0]).quantile, 1.5)
    refuses(OptionError, "", sketch([1.0]).quantile, math.nan)
    refuses(IncompatibleStatesError, "fold both", sketch([1.0]).merge, QuantileSpec(compression=100).empty())
    for wrong in (1, "a", None):
        refuses(OptionError, "compression", QuantileSketch.from_values, [1.0], wrong)
    for question in (sketch([1.0]).quantile, sketch([1.0]).cdf):
        refuses(OptionError, "='a' is neither a number nor an array", question, "a")
    refuses(IncompatibleStatesError, r"cannot merge QuantileSpec.* with int; fold both", sketch([1.0]).merge, 3)
    with pytest.raises(ValueError, match="ascending"):
        QuantileSpec().from_arrow(
            {},
            [
                pa.RecordBatch.from_pydict(
                    {"mean": [2.0, 1.0], "weight": [1.0, 1.0], "single": [True, True]}, QuantileSpec().schema
                )
            ],
            Budget(),
        )


ATOMS = {
    "ten": lambda rng, n: rng.integers(0, 10, n) / 10,
    "a thousand": lambda rng, n: rng.integers(0, 1000, n).astype(float),
    "geometric": lambda rng, n: rng.geometric(0.3, n).astype(float),
    "zero or normal": lambda rng, n: np.where(rng.random(n) < 0.4, 0.0, rng.normal(size=n)),
}


@pytest.mark.parametrize("parts", [1, 10])
@pytest.mark.parametrize("name", ATOMS)
def test_atoms_are_exact(name, parts):
    """An atom heavier than a centroid keeps its count, in one piece or merged: quantiles and cdf are exact."""
    values = ATOMS[name](np.random.default_rng(9), 1_000_000)
    states = [sketch(part) for part in np.array_split(values, parts)]
    state = reduce(QuantileSketch.merge, states)
    atoms, sizes = np.unique(values, return_counts=True)
    heavy = atoms[sizes > values.size / 1200]
    ends = np.searchsorted(np.sort(values), heavy), np.searchsorted(np.sort(values), heavy, "right")
    assert (state.cdf(heavy) * values.size).tolist() == pytest.approx((sum(ends) / 2).tolist(), rel=1e-12)
    for share in (0.001, 0.5, 0.999):
        ranks = (1 - share) * ends[0] + share * ends[1]
        assert state.quantile(ranks / values.size).tolist() == heavy.tolist()
    assert rank_error(state, values).max() < 0.01
    assert state.mean.size < 8 * state.spec.compression


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 400)), min_size=1, max_size=30))
def test_cdf_counts_half_of_those_at_a_value(runs):
    """The share below, plus half of those equal: at repeated values, at the smallest and at the largest."""
    values = np.repeat(*map(np.array, zip(*runs, strict=True))).astype(float)
    state = sketch(values)
    assert (state.cdf(values) * values.size).tolist() == pytest.approx(whole(values).tolist(), rel=1e-12)
    assert state.cdf([values.min() - 1, values.max() + 1]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("length", [1, 2, 3, 50, 5000])
@pytest.mark.parametrize("place", [0, 1, 777, 50_000, 99_000])
def test_a_run_of_any_length_and_place_is_counted(length, place):
    """Of runs among distinct numbers no number is lost, and those that fill a centroid keep their count."""
    values = np.arange(100_000.0)
    values[place : place + length] = values[place]
    state = sketch(values)
    assert state.weight.sum() == values.size
    assert state.mean.size < 4 * state.spec.compression
    if length == 5000 or place < 2:
        found = (values < values[place]).sum() + (values == values[place]).sum() / 2
        assert state.cdf(values[place]) * values.size == pytest.approx(found, rel=1e-12)


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
    with pytest.raises(SchemaError, match=r"0\.parquet: column 'name' has type string; a sketch takes"):
        streameval.quantile_sketch(tmp_path, "name")
    refuses(DataError, "numbers", streameval.QuantileSketch.from_values, ["a"])
    with pytest.raises(OptionError, match=r"column=\['x', 'name'\] must be the name of a column"):
        streameval.quantile_sketch(tmp_path, ["x", "name"])
    refuses(OptionError, r"label=\['name'\] must be the name of a column", sketches_by_label, tmp_path, "x", ["name"])
