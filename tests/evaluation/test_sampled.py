"""The sampled gain area: the same rows whoever draws them, the truth within what is reported, bad input in one line."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import scan
from streameval.budget import Budget
from streameval.errors import NullError, OptionError
from streameval.evaluation import evaluate
from streameval.evaluation.sampling import Sampling
from streameval.kernels.sampling import BITS
from streameval.states import codec
from streameval.states.protocol import Batch
from streameval.states.scores.digests import DigestsSpec
from streameval.states.scores.draws import BinsSpec, origin_hash
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.evaluation.result import Evaluation

DATA = Path(__file__).parents[1] / "data" / "states"
EDGES = (-1.0, 0.0, 0.5, 2.0)
ROWS = 120_000


def bimodal(rows: int = ROWS, seed: int = 0) -> pa.Table:
    """5 % positives, half of them far above the negatives, half of them among them."""
    rng = np.random.default_rng(seed)
    label = rng.random(rows) < 0.05
    mean = np.where(label, np.where(rng.random(rows) < 0.5, 3.0, 0.5), 0.0)
    return pa.table({"label": label, "score": rng.normal(mean).astype(np.float32)})


TABLE = bimodal()


def approximate(data: Any, **options: Any) -> Evaluation:
    """Nothing but the approximate areas."""
    given = {"score": "score", "metrics": "agc_approx*", "approx_agc": True, "quantiles": 50}
    return evaluate(data, **(given | options))


def folded(spec: Any, table: pa.Table, cuts: list[int], origin: str = "file") -> Any:
    """The state of a file's rows, whose batches begin at `cuts`."""
    builder = spec.builder(Budget(1 << 30), 1)
    for batch in batches(table, cuts, origin):
        builder.update(batch)
    return builder.state()


def batches(table: pa.Table, cuts: list[int], origin: str) -> Iterator[Batch]:
    """A file's rows, whose batches begin at `cuts`."""
    ends = sorted({0, *(cut for cut in cuts if cut < len(table)), len(table)})
    for a, b in pairwise(ends):
        part = table.slice(a, b - a)
        label = part.column("label").to_numpy().astype(np.uint8)
        column = part.column("score").combine_chunks()
        weight = np.arange(a, b) * 0.5 % 4  # whose sums are exact
        yield Batch(label, weight, {"score": column}, row=a, origin=origin)


# -- which rows are drawn -------------------------------------------------------------------------------------------


def drawn_rows(seed: int, rows: int, share: int) -> list[int]:
    """The definition of `streameval.kernels.sampling`, written out with Python's integers."""
    word = (1 << 64) - 1

    def mix(number: int) -> int:
        x = (seed + (number + 1) * 0x9E3779B97F4A7C15) & word
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & word
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & word
        return x ^ (x >> 31)

    found = []
    for block in range(-(-rows // 64)):
        mask = word if share >> BITS else 0
        for digit in range(0 if share >> BITS else BITS):
            random = mix(block * BITS + digit)
            mask = mask | random if share >> digit & 1 else mask & random
        found += [64 * block + i for i in range(64) if mask >> i & 1]
    return [row for row in found if row < rows]


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.003])
def test_the_rows_drawn_are_those_of_the_definition(share: float) -> None:
    """Whole batches, odd batches and rows with others left out give the rows that the definition names."""
    rows = 3000
    table = pa.table({"label": [False] * rows, "score": np.arange(rows, dtype=np.float64)})
    spec = DigestsSpec("score", "f8", sample=share, seed=7)
    expected = drawn_rows(origin_hash(7, "file"), rows, math.ceil(share * (1 << BITS)))
    for cuts in ([], [1, 63, 64, 65, 1000, 2999]):
        assert sorted(folded(spec, table, cuts).unordered.mean.tolist()) == expected
    kept = np.flatnonzero(np.arange(rows) % 3)
    builder = spec.builder(Budget(), 1)
    column = table.column("score").combine_chunks().take(pa.array(kept))
    builder.update(Batch(np.zeros(kept.size, np.uint8), None, {"score": column}, origin="file", kept=kept))
    assert sorted(builder.state().unordered.mean.tolist()) == [row for row in expected if row % 3]


def write(table: pa.Table, folder: Path, files: int, **options: Any) -> Path:
    """The table in several files of one Hive leaf."""
    leaf = folder / "night=1"
    leaf.mkdir(parents=True)
    cuts = np.linspace(0, len(table), files + 1).astype(int).tolist()
    for i, (a, b) in enumerate(pairwise(cuts)):
        pq.write_table(table.slice(a, b - a), leaf / f"part-{i}.parquet", **options)
    return folder


@pytest.mark.parametrize("passes", [1, 2])
def test_results_are_the_same_bytes_for_any_threads(tmp_path: Path, passes: int) -> None:
    """Threads, memory and the order of the files change nothing; files of one directory draw different rows."""
    root = write(TABLE, tmp_path / "a", 3, row_group_size=7000)
    options: dict[str, Any] = {"sample": 0.2, "passes": passes, "truncate": (0.1, 50)}
    expected = approximate(root, **options).to_json()
    for threads, memory in ((1, None), (2, "8MiB"), (3, None)):
        assert approximate(root, threads=threads, memory=memory, **options).to_json() == expected


# -- the states' laws -----------------------------------------------------------------------------------------------

scores = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 2.0]) | st.floats(-3, 3)
    ),
    max_size=80,
)


def tabled(rows: list[tuple[bool, Any]]) -> pa.Table:
    """Labels and scores as a table."""
    return pa.table(
        {"label": pa.array([y for y, _ in rows], pa.bool_()), "score": pa.array([s for _, s in rows], pa.float64())}
    )


@cache
def _golden() -> dict[str, Any]:
    """The states that the files in ``tests/data/states`` hold, folded again."""
    table = tabled([(False, 0.125), (True, 0.875), (True, 0.5), (False, 0.5), (True, None), (False, -2.0)])
    return {
        "sampled_digests": folded(DigestsSpec("score", "f8", "drop", sample=0.75, seed=3), table, []),
        "sampled_bins": folded(BinsSpec("score", "f8", "drop", sample=0.75, seed=3, edges=EDGES), table, []),
        "quantile_sketch": replace(
            QuantileSketch.from_values([0.125, 0.875, 0.5, math.nan, math.inf]), spec=QuantileSpec("column", "f8")
        ),
    }


@pytest.mark.parametrize("name", ["quantile_sketch", "sampled_bins", "sampled_digests"])
def test_states_stored_by_earlier_versions_are_read(name: str) -> None:
    """A file of every kind and version that was ever written loads as the state it was: the draw never changes."""
    assert set(_golden()) == {"quantile_sketch", "sampled_bins", "sampled_digests"}
    [*paths] = sorted(DATA.glob(f"{name}.v*.parquet"))
    assert paths, f"no stored {name}: write it with python tests/evaluation/test_sampled.py"
    for path in paths:
        assert codec.load(pq.read_table(path).to_batches()) == _golden()[name]


# -- the area -------------------------------------------------------------------------------------------------------


def arrays(table: pa.Table) -> tuple[Any, Any]:
    """Labels and scores of a table."""
    return table.column("label").to_numpy().astype(np.uint8), table.column("score").to_numpy()


@pytest.mark.parametrize("passes", [1, 2, None])
def test_interpolated_counts_are_not_called_certain(passes: int | None) -> None:
    """Of all rows, counted bins give the certain interval, digests a bound only; left to itself a run counts."""
    exact = evaluate(TABLE, score="score", truncate=0.1)
    found = approximate(TABLE, truncate=0.1, passes=passes)
    for result, name in zip(found.results, ("agc", "agc@0.1"), strict=True):
        lower, upper = found.interval(result.metric)
        assert result.stderr == 0
        assert math.isnan(lower) == math.isnan(upper) == (passes == 1)
        assert (result.reason is None) == (passes != 1)
        assert passes == 1 or lower <= exact.value(name) <= upper


def test_wide_integers_that_are_one_float_are_not_one_score() -> None:
    """Beyond 2⁵¹ a bin of one float may hide an order, and the interval of all rows says so."""
    score = [2**60, 2**60 + 1, 2**60 + 2, 5]
    table = pa.table({"label": [0, 1, 1, 0], "score": pa.array(score, pa.int64())})
    found = approximate(table, passes=2)
    lower, upper = found.interval("agc_approx")
    assert lower < evaluate(table, score="score").value("agc") <= upper
    assert not found.results[0].exact


def test_atoms_are_counted_in_a_second_pass() -> None:
    """Left to itself, a run with few distinct scores reads twice and hides nothing; continuous ones are read once."""
    rounded = TABLE.set_column(1, "score", pa.array(np.round(arrays(TABLE)[1], 1)))
    exact = evaluate(rounded, score="score", truncate=0.1)
    seen: list[int] = []
    found = approximate(rounded, truncate=0.1, quantiles=500, progress=lambda done, _: seen.append(done))
    assert max(seen) == 2 * ROWS
    for name in ("agc", "agc@0.1"):
        value, ends = exact.value(name), found.interval(name.replace("agc", "agc_approx"))
        assert ends[0] <= value <= ends[1]
        assert ends[1] - ends[0] < 5e-6  # of rare scores in the tails, which share a bin
    once = approximate(rounded, truncate=0.1, quantiles=500, passes=1)
    for name in ("agc", "agc@0.1"):
        assert once.value(name.replace("agc", "agc_approx")) == pytest.approx(exact.value(name), abs=5e-3)
    approximate(TABLE, sample=0.99, progress=lambda done, _: seen.append(-done))
    assert min(seen) == -ROWS


# -- weights --------------------------------------------------------------------------------------------------------


def weighted(table: pa.Table, seed: int = 5) -> pa.Table:
    """The table with weights from 0 to 10, some of them 0."""
    weight = np.random.default_rng(seed).integers(0, 40, len(table)) / 4
    return table.append_column("weight", pa.array(weight))


def test_equal_weights_change_nothing() -> None:
    """With one weight for all rows, whatever it is, the areas are those without weights."""
    options: dict[str, Any] = {"sample": 0.2, "truncate": (0.1, 500), "score": ["score", "other"]}
    table = TABLE.append_column("other", pa.array(np.round(arrays(TABLE)[1], 1)))
    for passes in (1, 2):
        plain = approximate(table, passes=passes, **options)
        for each in (1.0, 1e-200, 3e100):
            column = pa.array(np.full(ROWS, each))
            found = approximate(table.append_column("weight", column), weight="weight", passes=passes, **options)
            for a, b in zip(plain.results, found.results, strict=True):
                assert (a.metric, a.of, a.rows, a.positives) == (b.metric, b.of, b.rows, b.positives)
                near = 1e-9 if passes == 2 else 1e-4  # interpolated rows are rounded, weights are not
                assert (b.value, b.stderr) == pytest.approx((a.value, a.stderr), rel=near, abs=near)
                assert b.bound == pytest.approx(a.bound, rel=0.35, abs=near)  # a cut bin may keep any weight


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=60),
    st.sampled_from([1, 0.5, 0.1, 2, 7]),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([1, 2]),
)
def test_all_rows_in_bins_hold_the_exact_weighted_area(rows: Any, cut: float, quantiles: int, passes: int) -> None:
    """With every row drawn the interval is certain, also where weights vanish or the cut lies in a bin."""
    table = pa.table({"label": [y for y, _, _ in rows], "score": [float(s) for _, s, _ in rows]})
    table = table.append_column("weight", pa.array([float(w) for _, _, w in rows]))
    name = "agc" if cut == 1 else f"agc@{cut:g}"
    truncate = () if cut == 1 else cut
    exact = evaluate(table, score="score", weight="weight", truncate=truncate, metrics="agc*").value(name)
    found = approximate(table, weight="weight", truncate=truncate, quantiles=quantiles, passes=passes)
    [result] = [r for r in found.results if r.metric == name.replace("agc", "agc_approx")]
    if not math.isnan(exact):
        assert result.stderr == 0
        assert result.lower <= result.value <= result.upper
        assert result.lower <= exact <= result.upper
    elif math.isnan(result.value):
        assert result.reason


# -- row groups -----------------------------------------------------------------------------------------------------


def test_row_groups_that_are_not_drawn_are_not_read(tmp_path: Path) -> None:
    """A file whose other row groups are destroyed gives the same areas; whole row groups are evaluated."""
    path = tmp_path / "file.parquet"
    pq.write_table(TABLE, path, row_group_size=ROWS // 40)
    options: dict[str, Any] = {"sample": 0.1, "sample_by": "row_groups", "truncate": 0.1}
    before = approximate(path, **options)
    assert before.results[0].rows == before.rows == 4 * ROWS // 40
    plan = scan.plan(path, ["label", "score"])
    drawn = {piece.row for piece in Sampling(0.1, sample_by="row_groups").pieces(plan)}
    footer = pq.read_metadata(path)
    with path.open("r+b") as file:
        for i in set(range(40)) - {row * 40 // ROWS for row in drawn}:
            column = footer.row_group(i).column(1)
            file.seek(column.data_page_offset)
            file.write(b"\xff" * 64)
    assert approximate(path, **options).to_json() == before.to_json()
    assert approximate(path, passes=2, threads=1, **options).results[0].rows == 4 * ROWS // 40


def test_row_groups_of_unlike_rows_show_in_the_standard_error(tmp_path: Path) -> None:
    """Sorted by score, a fifth of the row groups says little, and the standard error says so."""
    path = tmp_path / "file.parquet"
    pq.write_table(TABLE.sort_by("score"), path, row_group_size=ROWS // 100)
    exact = evaluate(TABLE, score="score").value("agc")
    for seed in (0, 1, 2, 4, 5):  # the error itself has an error: some draws of 20 sorted groups look alike
        [by_group] = approximate(path, sample=0.2, sample_by="row_groups", sample_seed=seed).results
        [by_row] = approximate(path, sample=0.2, sample_seed=seed).results
        assert by_group.stderr > 5 * by_row.stderr
        assert abs(by_group.value - exact) < 4 * by_group.stderr + by_group.bound


# -- what bad input gets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": 0}, r"sample=0 is not a share in \(0, 1\]"),
        ({"sample": 1.5}, "sample=1.5 is not a share"),
        ({"sample": math.nan}, "sample=nan is not a share"),
        ({"truncate": 0}, "truncate=0"),
        ({"truncate": 1.5}, "truncate=1.5"),
        ({"truncate": -1}, "truncate=-1"),
        ({"quantiles": 0}, "quantiles=0 is not a number of bins"),
        ({"quantiles": 2.5}, "quantiles=2.5 is not a number of bins"),
        ({"quantiles": "many"}, "quantiles='many' is not a number of bins"),
        ({"sample": "half"}, "sample='half' is not a share"),
        ({"passes": 3}, "passes=3 must be 1 or 2"),
        ({"sample_by": "files"}, "sample_by='files' must be one of rows, row_groups"),
        ({"score": None, "cluster": "score"}, "name a score column"),
        ({"approx_agc": False, "metrics": None, "sample": 0.5}, "set approx_agc=True"),
    ],
)
def test_options_out_of_their_range_are_refused(options: dict[str, Any], message: str) -> None:
    """One line names the option and the remedy."""
    if not options.get("approx_agc", True):
        options = {"quantiles": 100} | options
    with pytest.raises(OptionError, match=message):
        approximate(TABLE, **options)


def test_a_reader_is_read_once() -> None:
    """One pass is what a reader gets, atoms or not; two and row groups are refused."""
    table = TABLE.set_column(1, "score", pa.array(np.round(arrays(TABLE)[1])))

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())

    assert approximate(reader()).value("agc_approx") == pytest.approx(
        evaluate(table, score="score").value("agc"), abs=0.01
    )
    with pytest.raises(OptionError, match="passes=2 reads the data twice"):
        approximate(reader(), passes=2)
    with pytest.raises(OptionError, match="choose sample_by='rows'"):
        approximate(reader(), sample_by="row_groups")


@pytest.mark.parametrize("passes", [1, 2])
def test_degenerate_samples_are_defined_or_say_why(passes: int) -> None:
    """One class, all scores equal, fewer points than bins, and no positives in the part kept."""

    def of(label: list[int], score: list[float], **options: Any) -> Any:
        table = pa.table({"label": label, "score": score})
        return approximate(table, passes=passes, **options).results

    equal = of([0, 1, 0, 1], [0.5] * 4, truncate=0.5)
    assert [r.value for r in equal] == [0.0, 0.0]
    few = of([0, 1, 0, 1], [0.1, 0.4, 0.3, 0.2], quantiles=1000)[0]
    assert few.value == pytest.approx(0.5)
    assert of([1, 1], [0.1, 0.2])[0].reason == "no negatives in the sample"
    assert of([0, 0], [0.1, 0.2])[0].reason == "no positives in the sample"
    score = np.arange(4000, dtype=np.float64)
    low = of((score < 400).astype(int).tolist(), score.tolist(), truncate=0.01, sample=0.5)
    assert math.isnan(low[1].value)
    assert "no positives in the truncated part" in low[1].reason
    none = of([0, 1], [0.1, 0.2], sample=1e-6)[0]
    assert none.reason == "no rows in the sample; draw more (--sample)"


def test_nan_scores_follow_the_policy() -> None:
    """Refused, left out and reported, or undefined with the reason; also where the NaN is not among the rows drawn."""
    score = np.where(np.arange(ROWS) == 77, np.nan, arrays(TABLE)[1])
    table = TABLE.set_column(1, "score", pa.array(score))
    with pytest.raises(NullError, match="nan='drop'"):
        approximate(table, sample=0.1)
    dropped = approximate(table, sample=0.1, nan="drop")
    assert dropped.dropped == (("NaN or null score score", 1),)
    assert 0.5 < dropped.value("agc_approx") < 1
    assert "halves" in approximate(table, sample=0.1, nan="half").results[0].reason
    both = evaluate(table, score="score", approx_agc=True, nan="drop")
    assert both.dropped == dropped.dropped


if __name__ == "__main__":
    for stored, golden in _golden().items():
        target = DATA / f"{stored}.v{golden.spec.version}.parquet"
        if not target.exists():
            pq.write_table(pa.Table.from_batches(codec.dump(golden)[1]), target)


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("passes", [1, 2])
def test_the_truth_lies_within_bound_and_four_standard_errors(passes: int, weight: str | None) -> None:
    """Over 20 draws of a tenth, truncated by shares and points, and the standard errors are of the right size."""
    table = weighted(TABLE)
    cuts = (1, 0.1, 0.02, 2000)
    options: dict[str, Any] = {"weight": weight, "truncate": cuts[1:]}
    exact = evaluate(table, score="score", metrics="agc*", **options)
    draws = [
        approximate(table, sample=0.1, quantiles=200, passes=passes, sample_seed=seed, **options) for seed in range(20)
    ]
    for i, name in enumerate(("agc", "agc@0.1", "agc@0.02", "agc@2000")):
        found = [draw.results[i] for draw in draws]
        errors = np.array([result.value - exact.value(name) for result in found])
        stderrs = np.array([result.stderr for result in found])
        assert (abs(errors) <= [result.bound + 4 * result.stderr for result in found]).all()
        assert 0.6 < errors.std(ddof=1) / math.sqrt((stderrs**2).mean()) < 1.5
        assert all(math.isnan(result.lower) and math.isnan(result.upper) and not result.exact for result in found)
        assert all("likely lies within value ± (bound + 4·stderr)" in str(result.reason) for result in found)
