"""Estimates of a store: sketches and sampled gain areas come from the digests of its nights, whatever folded them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streameval import Store, evaluate, quantile_sketch
from streameval.cli import main
from streameval.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from streameval.evaluation.result import Evaluation

NIGHTS = [f"night=2026-01-{day:02}" for day in range(1, 6)]
OPTIONS: dict[str, Any] = {"score": ["s", "t"], "sketch": ["s", "size"], "approx_agc": True, "sample": 0.5}


def write(folder: Path, night: str, seed: int, rows: int = 3000) -> None:
    """A night with two scores, sizes with nulls, weights and ids."""
    rng = np.random.default_rng(seed)
    label = rng.random(rows) < 0.3
    size = rng.integers(1, 500, rows)
    columns = {
        "label": label,
        "s": rng.normal(label * 1.5),
        "t": rng.normal(label * 0.5).round(1),
        "size": pa.array(size, mask=size % 50 == 0),
        "w": rng.random(rows) + 0.5,
        "id": rng.integers(0, 30, rows),
    }
    (folder / night).mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / night / "part-0.parquet", row_group_size=700)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five nights."""
    folder = tmp_path_factory.mktemp("estimates")
    for seed, night in enumerate(NIGHTS):
        write(folder, night, seed)
    return folder


def estimates(found: Evaluation) -> dict[tuple[str, str | None], Any]:
    """Every estimate with all that is said about it."""
    kinds = ("agc_approx", "quantile")
    return {(r.metric, r.of): r.to_dict() for r in found.results if r.metric.partition("@")[0] in kinds}


@pytest.mark.parametrize("weight", [None, "w"])
def test_a_store_gives_the_same_estimates_however_it_was_folded(data: Path, tmp_path: Path, weight: str | None) -> None:
    """At once, night by night in another order, on other threads, after vacuum, and verified."""
    options = OPTIONS | {"weight": weight}
    one, other = (Store(tmp_path / str(threads), threads=threads) for threads in (1, 3))
    one.update(data, **options)
    for night in (NIGHTS[3], NIGHTS[0], NIGHTS[4], NIGHTS[1], NIGHTS[2]):
        other.update(data / night, **options)
    first = estimates(one.evaluate())
    assert first == estimates(other.evaluate())
    assert {metric for metric, _ in first} >= {"agc_approx", "quantile@0", "quantile@0.5", "quantile@1"}
    one.vacuum(grace="0s")
    assert one.update(data, verify=True).unchanged == len(NIGHTS)
    assert estimates(Store(tmp_path / "1").evaluate()) == first


def test_samples_of_nights_are_those_of_the_files(data: Path, tmp_path: Path) -> None:
    """Values, standard errors and bounds are those of one pass over the files, as long as digests keep every row."""
    store = Store(tmp_path / "store")
    store.update(data, **OPTIONS | {"sample": 0.2, "sample_seed": 3})
    for options in ({}, {"truncate": 0.1}, {"quantiles": 20}, {"score": "t"}):
        want = evaluate(data, **OPTIONS | {"sample": 0.2, "sample_seed": 3, "passes": 1} | options)
        found = store.evaluate(**options)
        for result in want.results:
            if result.metric.startswith("agc_approx"):
                [same] = [r for r in found.results if (r.metric, r.of) == (result.metric, result.of)]
                numbers = [(r.value, r.stderr, r.bound, r.rows, r.positives) for r in (same, result)]
                assert numbers[0] == pytest.approx(numbers[1], rel=1e-9)
                exact = found.value(result.metric.replace("_approx", ""), result.of)
                assert same.bound is not None
                assert same.stderr is not None
                assert abs(same.value - exact) < same.bound + 5 * same.stderr


def test_a_nights_sample_depends_on_its_own_files_only(data: Path, tmp_path: Path) -> None:
    """Other nights and a moved folder change nothing; another seed draws another sample."""
    alone, among, moved, seeded = (Store(tmp_path / name) for name in ("alone", "among", "moved", "seeded"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / NIGHTS[2]).symlink_to(data / NIGHTS[2])
    alone.update(data / NIGHTS[2], **OPTIONS)
    among.update(data, **OPTIONS)
    moved.update(tmp_path / "elsewhere", **OPTIONS)
    seeded.update(data / NIGHTS[2], **OPTIONS, sample_seed=1)
    found = [estimates(store.evaluate(NIGHTS[2])) for store in (alone, among, moved, seeded)]
    assert found[0] == found[1]
    assert found[0] == found[2]
    assert found[0][("agc_approx", "s")] != found[3][("agc_approx", "s")]


def test_quantiles_are_near_those_of_the_rows(data: Path, tmp_path: Path) -> None:
    """Ranks within 0.6 % of the nearer end; both ends exact; nulls are said."""
    store = Store(tmp_path / "store")
    store.update(data, **OPTIONS)
    rows = pa.concat_tables(pq.read_table(data / night, partitioning=None) for night in NIGHTS)
    found = store.evaluate(metrics=["quantile@0.3", "quantiles"])
    for column in ("s", "size"):
        values = np.sort(rows[column].drop_null().to_numpy())
        assert found.value("quantile@0", column) == values[0]
        assert found.value("quantile@1", column) == values[-1]
        for q in (0.01, 0.3, 0.5, 0.99):
            value = found.value(f"quantile@{q}", column)
            assert np.mean(values < value) - 0.01 < q < np.mean(values <= value) + 0.01
    nulls = rows["size"].null_count
    assert ("NaN or null in the sketch of size", nulls) in found.dropped
    [median] = [r for r in found.results if (r.metric, r.of) == ("quantile@0.5", "size")]
    assert (median.rows, median.positives) == (5 * 3000 - nulls, None)
    whole = quantile_sketch(data, "s")
    assert found.value("quantile@0.5", "s") == pytest.approx(whole.quantile(0.5), abs=0.01)


def test_a_column_to_sketch_joins_later(data: Path, tmp_path: Path) -> None:
    """With `add`, and without the scores being folded again; a score that joins is sampled as the others are."""
    early, late = Store(tmp_path / "early"), Store(tmp_path / "late")
    early.update(data, **OPTIONS)
    late.update(data, **OPTIONS | {"score": "s", "sketch": ()})
    late.add(sketch=["s", "size"])
    late.add(score="t")
    assert estimates(late.evaluate()) == estimates(early.evaluate())
    late.remove(NIGHTS[0])
    late.update(data)
    assert estimates(late.evaluate()) == estimates(early.evaluate())


def test_the_commands_keep_and_show_estimates(data: Path, tmp_path: Path) -> None:
    """`update --sketch --approx-agc`, `show`, `history`, `check`, `info`; what a store cannot do is refused."""

    def run(*words: object) -> Any:
        return CliRunner().invoke(main, [str(word) for word in words])

    store = tmp_path / "store"
    begun = run("update", store, data, "--score", "s", "--sketch", "size", "--approx-agc", "--sample", "0.5")
    assert begun.exit_code == 0, begun.stderr
    told = json.loads(run("info", store, "--versions", "--json", "-").stdout)["versions"]
    assert told[-1]["action"].endswith("keeps scores s; sketches of size; labels label; approx_agc=True; sample=0.5")
    shown = run("show", store, "--quantiles", 30, "--truncate", 0.2).stdout
    assert all(name in shown for name in ("agc_approx@0.2", "quantile@0.5", "standard error"))
    points = json.loads(run("history", store, "--metric", "quantile@0.3", "--json", "-").stdout)["points"]
    assert len(points) == len(NIGHTS)
    rule = run("check", store, "--rule", "quantile@0.5[size] <= 300", "--rule", "agc_approx[s] drop <= 1")
    assert rule.exit_code == 0, rule.stdout
    assert "nan" not in rule.stdout
    for words in (["--passes", 2], ["--sample-by", "row_groups"]):
        refused = run("update", tmp_path / "new", data, "--score", "s", "--approx-agc", *words)
        assert refused.exit_code == 2
        assert words[0] in refused.stderr
    assert run("show", store, "--metric", "quantile@2").exit_code == 2
    assert "contradicts the store" in run("update", store, data, "--sample", 0.25).stderr


def test_what_no_store_can_sketch_is_refused(data: Path, tmp_path: Path) -> None:
    """Ids are kept as ids; text is not a number."""
    with pytest.raises(OptionError, match="sketch='id': a store holds this column as ids"):
        Store(tmp_path / "ids").update(data, cluster="id", sketch="id")
    alone = evaluate(data, sketch="size")
    assert {result.of for result in alone.results} == {"size"}
