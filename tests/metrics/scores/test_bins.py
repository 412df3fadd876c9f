"""What bins of scores tell: parts, groups near a threshold, bins that are cut, and the check of a grid."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval import evaluate
from streameval.budget import Budget
from streameval.kernels.grid import codes
from streameval.kernels.pieces import dealt_counts
from streameval.metrics.catalogue import at_one_place
from streameval.metrics.finalize import combine, compute_metrics, partials
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.cut_bins import GroupsNear
from streameval.metrics.scores.ranking import DeLong
from streameval.metrics.scores.sums import MeanOfRows, OfRankings, Rankings
from streameval.metrics.selection import Selection
from streameval.results import Scalar
from streameval.states.blocks import blocks_of
from streameval.states.protocol import Batch
from streameval.states.scores.blocks import FEW_BLOCKS, BlockSpec
from streameval.states.scores.counts import ScoreCounts, fold_arrays
from streameval.states.scores.types import enclosing, rank_keys

ROWS = 400


def numbers(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Scores of a type, of widely different sizes."""
    scores = rng.normal(size=ROWS) * 10.0 ** rng.integers(-3, 18, ROWS)
    if kind[0] == "f":
        return np.append(scores, [np.inf, -np.inf, 0.0, 0.5, 1.0]).astype(kind)
    limits = np.iinfo(kind if kind in ("i4", "u8") else np.int64)
    whole = [int(min(max(x, limits.min), limits.max)) for x in scores.tolist()]
    return np.array([*whole, limits.min, limits.max, 0, 1], limits.dtype)


def near(state: ScoreCounts, metric: GroupsNear, cuts: list[int]) -> list[list[float]]:
    """The groups of a state that is cut into shards at some buckets."""
    buckets = state.keyed.layout.buckets
    bounds = [0, *sorted(cuts), buckets]
    shards = [(a, b) for a, b in pairwise(bounds) if a < b]
    [found] = combine(state, [metric], [partials(state, shard, [metric]) for shard in shards])
    return [column.tolist() for column in found]


@given(
    st.sampled_from(["f4", "f8"]),
    st.booleans(),
    st.lists(st.integers(0, 1 << 16), max_size=4),
    st.integers(40, 56),
    st.integers(0, 99),
)
def test_the_cut_of_a_state_changes_no_group(kind: str, whole: bool, cuts: list[int], shift: int, seed: int) -> None:
    """A bucket may end within a cell: the groups of both sides are one, as if they had been read together."""
    rng = np.random.default_rng(seed)
    scores = (0.5 + rng.normal(size=ROWS) * 10.0 ** rng.integers(-9, 0, ROWS)).astype(kind)
    state = fold_arrays((rng.random(ROWS) < 0.4).astype(np.uint8), scores)
    prefix = np.sort(codes(scores.astype(np.float64)) >> np.uint64(shift)).tolist()
    spans = ((prefix[0], prefix[-1]),) if whole else ((prefix[20], prefix[50]), (prefix[300] + 1, prefix[390] + 1))
    metric = GroupsNear(shift, spans, (0.5,))
    once = near(state, metric, [])
    assert near(state, metric, cuts) == once
    inside = sum(any(a <= p <= b for a, b in spans) for p in prefix)
    assert sum(once[2]) == inside


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e9])
def test_histograms_without_groups_around_a_threshold_have_intervals_or_reasons(shift: float) -> None:
    """A bin of a histogram may be wider than the bins of the grid; its edge then lies in none of them."""
    rng = np.random.default_rng(3)
    label = rng.random(2000) < 0.3
    score = shift + label + rng.normal(size=2000)
    table = pa.table({"label": label, "score": score, "unit": rng.integers(0, 500, 2000)})
    found = evaluate(table, score="score", unit="unit", approx=True)
    assert all((result.stderr is None) == (result.ci_reason is not None) for result in found.results)


SHAPES = {
    "normal": lambda z, _: z,
    "saturated": lambda z, _: 1 - np.exp(-7 - 2 * z).clip(0, 1),
    "tail": lambda z, rng: np.where(rng.random(z.size) < 0.9, 0.5 + 1e-7 * z, 10 * z),
    "atom": lambda z, rng: np.where(rng.random(z.size) < 0.5, 0.25, z),
    "neighbours": lambda z, _: np.nextafter(0.3, np.where(z > 1, 1.0, 0.0)),  # of one code
    "single": lambda z, _: z.astype(np.float32),
}


@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([16, 64, 256, 2048]),
    st.booleans(),
    st.floats(0, 6),
    st.integers(0, 999),
)
def test_a_grid_that_is_sure_passes_the_exact_check(shape: str, bins: int, weighted: bool, apart: float, seed: int):
    """Never the other way round: a grid that is too coarse is never sure."""
    rng = np.random.default_rng(seed)
    label = (rng.random(3000) < 0.3).astype(np.uint8)
    score = SHAPES[shape](rng.normal(size=3000) + apart * label, rng)
    weight = rng.gamma(0.5, size=3000) if weighted else None
    kind = "f4" if shape == "single" else "f8"
    builder = BlockSpec("s", kind, weighted, unit="u", bins=bins).builder(Budget(), 3000)
    builder.update(Batch(label, weight, {"s": pa.array(score), "u": pa.array(np.arange(3000))}))
    exact = fold_arrays(label, score, weight)
    grid = BlockReplicates(builder.state(), "u", 128, exact=True)
    if grid.sure:
        doubtful = replace(grid, exact=False)
        assert not doubtful.sure
        assert doubtful.certified(lambda metrics: compute_metrics(exact, metrics)) is None


RANKED = ("roc_auc", "gini", "average_precision", "pr_auc", "agc", "agc_ratio", "brier_score")


@given(
    st.integers(2, 60),
    st.sampled_from(["drop", "half"]),
    st.sampled_from([3, 8]),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from([0, 30]),
    st.integers(0, 999),
)
def test_several_rankings_at_once_have_the_bits_of_each(
    rows: int, nan: str, blocks: int, scale: float, bits: int, seed: int
) -> None:
    """Also without a class, with ties, with missing scores alone, beyond probabilities, and of many rows."""
    rng = np.random.default_rng(seed)
    score = np.where(rng.random(rows) < 0.3, np.nan, rng.integers(0, 9, rows) * scale / 9)
    columns = {"s": pa.array(score), "u": pa.array(rng.integers(0, 20, rows))}
    builder = BlockSpec("s", "f8", unit="u", bins=8, count=8, nan=nan).builder(Budget(), rows)
    builder.update(Batch((rng.random(rows) < 0.2).astype(np.uint8), None, columns))
    state = builder.state()
    state = replace(state, table=state.table.astype(np.int64) << bits, nan_rows=state.nan_rows << bits)
    metrics = Selection(("score",), RANKED).of("score")
    means = [metric for metric in metrics if isinstance(metric, MeanOfRows)]
    grid = BlockReplicates(state, "u", blocks)
    grids = [grid, *grid.tied(metrics), grid]
    rankings = Rankings.of([one.rank(means) for one in grids], means)
    found = [metric.of_rankings(rankings) for metric in metrics if isinstance(metric, OfRankings)]
    several = [each for one in grids for each in (*map(one.without, range(blocks)), one.total())]
    expected = [[value.value for value in compute_metrics(state, metrics)] for state in several]
    assert len(found) == len(metrics)
    assert np.array_equal(found, np.transpose(expected), equal_nan=True)


def test_the_exact_counts_are_asked_only_where_the_grid_is_not_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a histogram are always checked: its bins may be wider than those of the grid."""
    asked: list[int] = []
    partial = DeLong.partial
    monkeypatch.setattr(DeLong, "partial", lambda self, part: [asked.append(part.n.size), partial(self, part)][1])
    rng = np.random.default_rng(1)
    label = rng.random(3000) < 0.3
    score = 0.7 + 1e-6 * (rng.normal(size=3000) + label)
    table = pa.table({"label": label, "score": score, "unit": rng.integers(0, 900, 3000)})
    fine = evaluate(table, score="score", unit="unit", metrics="roc_auc")
    assert min(asked) > 3000  # the grid's own, in pieces
    assert fine.results[0].stderr is not None
    asked.clear()
    coarse = evaluate(table, score="score", unit="unit", metrics="roc_auc", approx=True)
    assert min(asked) < 10
    assert "too coarse" in str(coarse.results[0].ci_reason)


THRESHOLDS = {
    "score": "score",
    "unit": "unit",
    "at": ["k=1000", "share=0.1", "fpr=0.1", "tpr=0.6", "recall=0.4", "threshold=0.7"],
    "metrics": "thresholds",
}


@cache
def _mixed(missing: bool) -> pa.Table:
    """Rows of units that share their label and a part of their scores, of which one in a hundred is missing or ½."""
    rng = np.random.default_rng(8)
    units, rows = 2000, 4000
    unit = rng.integers(0, units, rows)
    label = rng.random(units) < 0.3
    score = 1 / (1 + np.exp(-1.0 * label[unit] - rng.normal(size=units)[unit] - rng.normal(size=rows)))
    score = np.where(rng.random(rows) < 0.01, np.nan if missing else 0.5, score)
    return pa.table({"unit": unit, "label": label[unit], "score": score, "weight": rng.integers(1, 3, rows)})


@cache
def _exact(**options: str) -> tuple[Scalar, ...]:
    """The results with every score in a bin of its own, which takes longest."""
    return evaluate(_mixed("nan" in options), resample_bins="exact", **THRESHOLDS, **options).results


@pytest.mark.parametrize("options", [{}, {"weight": "weight"}, {"approx": True}, {"nan": "drop"}], ids=str)
def test_thresholded_errors_are_those_of_the_exact_state(options: dict[str, Any]) -> None:
    """With 20 rows a bin: to 2 % or null, whatever the scores carry; null only where bins near the top are no finer."""
    exact = _exact(**{name: given for name, given in options.items() if name != "approx"})
    coarse = evaluate(_mixed("nan" in options), resample_bins=256, **THRESHOLDS, **options).results
    for one, other in zip(exact, coarse, strict=True):
        if other.stderr is not None:
            assert other.stderr == pytest.approx(one.stderr, rel=0.02), other
    chosen = [pair for pair in zip(exact, coarse, strict=True) if "threshold" not in pair[0].metric]
    assert sum(other.stderr is None for one, other in chosen if one.stderr is not None) < 3


ONE, MANY = (1e-4,) * 3, (1e-6, 1e-5, 1e-4, 1e-3) * 2  # relative distances of campaigns from a threshold


@pytest.mark.parametrize(
    ("seed", "share", "size", "apart"),
    [(1, 0.05, 150, ONE), (3, 0.1, 90, ONE), (4, 0.05, 150, ONE), (5, 0.2, 90, MANY)],
)
def test_campaigns_of_equal_scores_at_a_threshold_are_right_or_null(
    seed: int, share: float, size: int, apart: tuple[float, ...]
) -> None:
    """Campaigns, of which each has all of its rows in one block, share a bin: right to 2 %, or null.

    Without a check, standard errors of truncated gain areas were off by 46 % here, and elsewhere by a factor of ten.
    If what belongs together is measured by the mean of all bins, those at a threshold are off by up to 21 %.
    """
    rng = np.random.default_rng(seed)
    units = 1000 * len(apart) // 3
    unit = rng.integers(0, units, 3 * units)
    label = (rng.random(units) < 0.3)[unit]
    score = 1 / (1 + np.exp(-1.0 * label - rng.normal(size=unit.size)))
    centre = float(np.quantile(score, 1 - share))
    for number, distance in enumerate(apart):
        at = rng.choice(unit.size, size, replace=False)
        score[at] = centre * (1 + distance * rng.normal())
        unit[at], label[at] = units + number, number % 2 == 0
    table = pa.table({"unit": unit, "label": label, "score": score})
    names = [f"agc@{share}", f"precision@share={share}", f"tpr@fpr={share}"]
    names += [f"{name}@threshold={centre}" for name in ("precision", "recall", "flagged")]
    given = {"score": "score", "unit": "unit", "truncate": (share,), "metrics": names}
    exact = evaluate(table, resample_bins="exact", **given).results
    for one, other in zip(exact, evaluate(table, **given).results, strict=True):
        if one.stderr is not None and other.stderr is not None:
            assert other.stderr == pytest.approx(one.stderr, rel=0.02), other


AREAS = ("roc_auc", "average_precision", "pr_auc", "agc", "agc@0.1", "agc@0.4", "partial_auc@0.1")


def _rows(rng: np.random.Generator, rows: int, units: int) -> dict[str, np.ndarray]:
    """Rows of units that share a label, with scores that do not."""
    unit = rng.integers(0, units, rows)
    label = (rng.random(units) < 0.3)[unit]
    score = 1 / (1 + np.exp(-1.0 * label - rng.normal(size=rows)))
    return {"unit": unit, "label": label, "score": score, "weight": rng.integers(1, 3, rows) + 0.0}


@cache
def _campaigns(seed: int) -> dict[str, np.ndarray]:
    """Rows of which some campaigns have one score each and share bins."""
    rng = np.random.default_rng(seed)
    rows = _rows(rng, 4000, 400)
    for number in range(rng.integers(3, 40)):
        at = rng.choice(4000, rng.integers(20, 80), replace=False)
        rows["score"][at] = (0.3, 0.5, 0.8)[number % 3] * (1 + 1e-5 * rng.normal())
        rows["unit"][at], rows["label"][at] = 400 + number, rng.random() < 0.5
    return rows


@cache
def _jackknife(seed: int, weighted: bool) -> dict[str, float]:
    """Standard errors of areas over campaigns from the rows that are left without each block."""
    rows = _campaigns(seed)
    blocks, spreads = blocks_of(rows["unit"].astype(np.uint64), 128), {}
    for count in (128, FEW_BLOCKS):
        areas = Selection(("score",), AREAS, truncate=(0.1, 0.4)).of("score")
        metrics = [metric for metric in areas if at_one_place(metric) == (count == FEW_BLOCKS)]
        values = []
        for left in (blocks % count != block for block in range(count)):
            weight = rows["weight"][left] if weighted else None
            columns = rows["label"][left].astype(np.uint8), rows["score"][left], weight
            values.append([scalar.value for scalar in compute_metrics(fold_arrays(*columns), metrics)])
        spread = np.sqrt((count - 1) * np.var(values, axis=0))
        spreads |= zip([metric.name for metric in metrics], spread.tolist(), strict=True)
    return spreads


@pytest.mark.parametrize("options", [{}, {"weight": "weight"}, {"approx": True}], ids=str)
def test_areas_over_campaigns_of_equal_scores_are_right_or_null(options: dict[str, object]) -> None:
    """Campaigns of one score each share bins: standard errors are right to 2 %, or null.

    Without a check, those of areas were off by 21 % on tables like these, though the grid's own values were right.
    """
    found = []
    for seed in range(1, 4):
        exact = _jackknife(seed, "weight" in options)
        given = {"unit": "unit", "truncate": (0.1, 0.4), "metrics": AREAS, **options}
        for one in evaluate(pa.table(_campaigns(seed)), score="score", **given).results:
            found.append(one.stderr)
            assert one.stderr is None or one.stderr == pytest.approx(exact[one.metric], rel=0.02), (seed, one)
    assert None in found


@pytest.mark.parametrize("seed", range(8))
def test_areas_of_ordinary_scores_keep_their_intervals(seed: int) -> None:
    """Ties in bins do not matter where no campaign is in one bin: values and differences of areas have intervals."""
    rng = np.random.default_rng(seed)
    rows = _rows(rng, *((4000, 4000), (4000, 400), (16_000, 1600))[seed % 3])
    logit = np.log(rows["score"] / (1 - rows["score"])) + 0.7 * rng.normal(size=rows["unit"].max() + 1)[rows["unit"]]
    second = logit + rng.normal(size=logit.size)
    shapes = (lambda x: x, lambda x: 1 / (1 + np.exp(-x)), lambda x: 1 / (1 + np.exp(-4 * x)), lambda x: 1e6 + x)
    table = pa.table(rows | {"score": shapes[seed % 4](logit), "second": shapes[seed % 4](second)})
    more = {"weight": "weight"} if seed == 7 else {}
    given = {"score": ["score", "second"], "baseline": "score", "unit": "unit", "truncate": (0.1, 0.4), **more}
    results = evaluate(table, metrics=AREAS, **given).results
    assert {one.of for one in results} == {"score", "second", "second − score"}
    assert [(one.metric, one.of, one.ci_reason) for one in results if one.stderr is None] == []


BINS = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6), max_size=5)


@given(BINS, st.floats(0, 1), st.sampled_from([-3.0, -1.0, 0.0, 1.0, 3.0]))
def test_of_each_bin_the_rows_of_the_block_are_missing(
    bins: list[list[tuple[int, int]]], share: float, moved: float
) -> None:
    """No sub-bin loses more rows than it has, a bin loses the block's, and undisplaced ones lie evenly."""
    numbers = np.repeat(np.arange(len(bins)), [len(cells) for cells in bins]).astype(np.int64)
    counts = np.array([cell for cells in bins for cell in cells], np.int64).reshape(-1, 2)
    upto = np.array([row for cells in bins for row in np.cumsum(cells, axis=0)], np.int64).reshape(-1, 2)
    whole = np.array([np.sum(cells, axis=0) for cells in bins], np.int64).reshape(-1, 2)
    taken = (whole * share).astype(np.int64)
    rows, kept = np.empty((2, len(counts)), np.int64), np.empty(len(counts), np.int64)
    size = dealt_counts(numbers, upto, whole, whole - taken, np.tile([moved, -moved], (len(whole), 1)), rows, kept)
    left = np.zeros_like(counts)
    left[kept[:size]] = rows[:, :size].T
    assert (left >= 0).all()
    assert (left <= counts).all()
    assert left[kept[:size]].any(axis=1).all()
    for b in range(len(bins)):
        lost = np.cumsum((counts - left)[numbers == b], axis=0)
        assert (lost[-1] == taken[b]).all()
        if not moved:
            expected = upto[numbers == b] * taken[b] / np.maximum(whole[b], 1)
            assert (np.abs(lost - expected) <= 0.5 + 1e-9).all()


@given(
    st.sampled_from(["f4", "f8", "i4", "i8", "u8", "d2"]),
    st.integers(0, 99),
    st.integers(0, ROWS - 1),
    st.integers(0, ROWS - 1),
)
def test_buckets_of_a_range_hold_all_of_its_scores(kind: str, seed: int, i: int, j: int) -> None:
    """Whatever the type: large integers are read as rounded floats, decimals are divided."""
    values = numbers(kind, np.random.default_rng(seed))
    unit = 10.0 ** int(kind[1:]) if kind[0] == "d" else 1.0
    scores = values.astype(np.float64) / unit
    low, high = sorted([float(scores[i]), float(scores[j])])
    first, last = enclosing(low, high, kind)
    inside = values[(scores >= low) & (scores <= high)]
    assert ((first <= inside) & (inside <= last)).all()
    assert (np.diff(rank_keys(np.array([last, first]), kind).astype(object)) >= 0).all()
    state = fold_arrays(np.zeros(values.size, np.uint8), values)
    if kind[0] != "d":
        start, stop = state.between(low, high)
        read = sum(int(counts.neg.sum()) for counts in state.groups((start, stop)))
        assert read >= inside.size
