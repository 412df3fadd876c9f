"""Simulated data: reproducible, of the shares, sizes and quality asked for, and never half-written."""

import math
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refuses
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from streameval import simulation
from streameval.errors import OptionError, StreamevalError
from streameval.simulation import Model, Simulation, simulate

ROWS = 300_000
PURE = {"split": 0.0, "join": 0.0, "noise": 0.0, "missed": 0.0}


def read(path: Path) -> dict[str, np.ndarray]:
    """Columns of a simulation, nights in order."""
    nights = [pq.read_table(file, partitioning=None) for file in sorted(path.glob("night=*/part-0.parquet"))]
    table = pa.concat_tables(nights)
    return {name: table[name].to_numpy() for name in table.column_names}


def draw(path: Path, **options: Any) -> dict[str, np.ndarray]:
    """Simulate in ``path`` and read the columns back."""
    return read(simulate(path / "data", **{"rows": ROWS, "partitions": 3, **options}).path)


def digest(path: Path) -> dict[str, bytes]:
    """Contents of all files below ``path``."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """ROC AUC by rank sum."""
    ranks = stats.rankdata(score)
    ones = int(np.count_nonzero(positive))
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(score) - ones)))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Columns of a simulation with all defaults."""
    return draw(tmp_path_factory.mktemp("base"))


def purity(path: Path, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """How many clusters each campaign lies in, and how many campaigns each cluster of a campaign holds."""
    data = draw(path, singletons=0.0, **{**PURE, **options})
    pairs = np.unique(np.stack([data["campaign"], data["cluster"]]), axis=1)
    return np.unique(pairs[0], return_counts=True)[1], np.unique(pairs[1], return_counts=True)[1]


def largest_component(data: dict[str, np.ndarray]) -> tuple[int, int]:
    """Most campaigns that one component of the graph of classes and clusters holds, and the number of campaigns."""
    classes, rows = np.unique(data["campaign"], return_inverse=True)
    clusters, columns = np.unique(data["cluster"], return_inverse=True)
    nodes = len(classes) + len(clusters)
    graph = coo_array((np.ones(len(rows)), (rows, columns + len(classes))), shape=(nodes, nodes))
    labels = connected_components(graph, directed=False)[1][: len(classes)][classes >= 0]
    return int(np.bincount(labels).max()), len(labels)


def test_threads_change_no_byte(tmp_path: Path) -> None:
    """The same call writes the same files with any number of threads."""
    for folder, count in (("one", 1), ("many", 3)):
        simulate(tmp_path / folder, rows=ROWS, partitions=5, seed=3, threads=count)
    assert digest(tmp_path / "one") == digest(tmp_path / "many")
    assert len(digest(tmp_path / "one")) == 5


def test_neither_partitions_nor_row_groups_change_a_row(
    tmp_path: Path, base: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are the same, in the same order, however they are cut into nights, and these anywhere within blocks."""
    monkeypatch.setattr(simulation, "ROW_GROUP", 50_001)
    for name, column in draw(tmp_path, partitions=7).items():
        np.testing.assert_array_equal(column, base[name])


def test_seed_changes_everything_drawn(tmp_path: Path, base: dict[str, np.ndarray]) -> None:
    """Another seed gives other scores, campaigns and clusters."""
    other = draw(tmp_path, seed=2)
    for name in ("score_a", "score_b", "cluster"):
        assert np.mean(base[name] == other[name]) < 1e-3
    assert np.mean(base["campaign"] == other["campaign"]) < 0.2


def test_report_and_layout(tmp_path: Path) -> None:
    """The report tells what is on the disk: nights, rows, positives, bytes; progress adds up to the rows."""
    seen: list[int] = []
    result = simulate(str(tmp_path / "deep" / "data"), rows=100_001, partitions=4, progress=seen.append)
    assert isinstance(result, Simulation)
    nights = sorted(path.name for path in result.path.iterdir())
    assert nights == [f"night=2026-01-0{day}" for day in (1, 2, 3, 4)]
    data = read(result.path)
    np.testing.assert_array_equal(data["message_id"], np.arange(100_001))
    assert (result.rows, result.partitions, sum(seen)) == (100_001, 4, 100_001)
    assert result.positives == np.count_nonzero(data["label"])
    assert result.bytes == sum(len(content) for content in digest(result.path).values())
    assert result.seconds > 0


def test_column_types(tmp_path: Path) -> None:
    """Columns have the documented types, and every file is snappy-compressed."""
    file = simulate(tmp_path / "data", rows=10, partitions=1).path / "night=2026-01-01" / "part-0.parquet"
    assert pq.read_schema(file).equals(
        pa.schema(
            {
                "message_id": pa.int64(),
                "label": pa.int8(),
                "score_a": pa.float32(),
                "score_b": pa.float64(),
                "campaign": pa.int64(),
                "cluster": pa.int64(),
                "weight": pa.float64(),
            }
        )
    )
    group = pq.read_metadata(file).row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"SNAPPY"}


def test_shares(tmp_path: Path) -> None:
    """Singletons, positives (also among singletons) and weights have the shares asked for."""
    data = draw(tmp_path, singletons=0.4, positives=0.3, lone_positives=0.1, mean=5, shape=2)
    single, positive = data["campaign"] < 0, data["label"] == 1
    assert abs(single.mean() - 0.4) < 5 * math.sqrt(0.24 / ROWS)
    assert abs(positive[single].mean() - 0.1) < 5 * math.sqrt(0.09 / (0.4 * ROWS))
    assert abs(positive.mean() - 0.3) < 0.01
    assert abs((data["weight"] == 2.5).mean() - 0.25) < 5 * math.sqrt(0.1875 / ROWS)
    assert set(np.unique(data["weight"])) == {1.0, 2.5}
    np.testing.assert_array_equal(data["campaign"][single], -1 - data["message_id"][single])


def test_gamma_sizes_are_negative_binomial(tmp_path: Path) -> None:
    """Campaign sizes, empty ones included, follow the negative binomial law of the mean and shape asked for."""
    shape, mean = 0.7, 20.0
    campaigns = Model(rows=ROWS, singletons=0.0, mean=mean).campaigns
    sizes = np.bincount(draw(tmp_path, singletons=0.0, shape=shape, mean=mean)["campaign"], minlength=campaigns)
    law = stats.nbinom(shape, shape / (shape + mean))
    values = np.arange(200)
    share = np.searchsorted(np.sort(sizes), values, side="right") / campaigns
    assert np.abs(share - law.cdf(values)).max() < 1.63 / math.sqrt(campaigns)  # Kolmogorov-Smirnov at 1 %
    assert abs(sizes.var() / law.var() - 1) < 0.05


def test_pareto_sizes_have_the_tail(tmp_path: Path) -> None:
    """The largest Pareto campaigns hold the messages that the Lorenz curve gives them."""
    shape, mean = 1.5, 20.0
    campaigns = Model(rows=ROWS, singletons=0.0, mean=mean).campaigns
    sizes = np.bincount(
        draw(tmp_path, singletons=0.0, sizes="pareto", shape=shape, mean=mean)["campaign"], minlength=campaigns
    )
    for largest in (1, 10, 100, 1000, 10_000):
        expected = ROWS * (largest / campaigns) ** (1 - 1 / shape)
        assert abs(sizes[:largest].sum() - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize(("auc_a", "auc_b"), [(0.95, 0.85), (0.5, 0.999), (0.3, 0.6)])
def test_known_auc(tmp_path: Path, auc_a: float, auc_b: float) -> None:
    """Scores have the AUC asked for against the true labels."""
    data = draw(tmp_path, auc_a=auc_a, auc_b=auc_b)
    assert auc(data["label"] == 1, data["score_a"]) == pytest.approx(auc_a, abs=0.006)
    assert auc(data["label"] == 1, data["score_b"]) == pytest.approx(auc_b, abs=0.006)


def test_label_error(tmp_path: Path, base: dict[str, np.ndarray]) -> None:
    """The share asked for is flipped, and the AUC against the stated labels falls as the docstring says."""
    data, true = draw(tmp_path, label_error=0.1), base["label"] == 1
    stated = data["label"] == 1
    assert abs((stated != true).mean() - 0.1) < 5 * math.sqrt(0.09 / ROWS)
    gap = true[stated].mean() - true[~stated].mean()
    assert auc(true, data["score_a"]) == pytest.approx(0.95, abs=0.003)
    assert auc(stated, data["score_a"]) == pytest.approx(0.5 + 0.45 * gap, abs=0.005)


def test_split_share(tmp_path: Path) -> None:
    """The share asked for is split, each in two to five clusters, none of them shared."""
    clusters, campaigns = purity(tmp_path, split=0.3, mean=100, shape=20)
    assert (clusters > 1).mean() == pytest.approx(0.3, abs=0.04)
    assert (clusters.max(), campaigns.max()) == (5, 1)


def test_join_share(tmp_path: Path) -> None:
    """The share asked for is joined, in pairs."""
    clusters, campaigns = purity(tmp_path, join=0.3, mean=100, shape=20)
    joined = (
        2 * np.count_nonzero(campaigns == 2) / (2 * np.count_nonzero(campaigns == 2) + np.count_nonzero(campaigns == 1))
    )
    assert joined == pytest.approx(0.3, abs=0.02)
    assert (clusters.max(), campaigns.max()) == (1, 2)


def test_noise_share(tmp_path: Path) -> None:
    """The share asked for lies outside its campaign's cluster."""
    data = draw(tmp_path, **{**PURE, "noise": 0.05, "mean": 1000, "shape": 20.0})
    held = data["campaign"] >= 0
    order = np.lexsort((data["cluster"][held], data["campaign"][held]))
    pairs = np.stack([data["campaign"][held][order], data["cluster"][held][order]])
    cells, counts = np.unique(pairs, axis=1, return_counts=True)
    main = np.zeros(cells[0].max() + 1)
    np.maximum.at(main, cells[0], counts)
    assert 1 - main.sum() / held.sum() == pytest.approx(0.05, abs=0.004)


def test_giant_component_with_noise(tmp_path: Path) -> None:
    """A little noise ties most campaigns into one component."""
    largest, campaigns = largest_component(draw(tmp_path, noise=0.05))
    assert largest > 0.7 * campaigns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, r"^rows=0 is out of range; give a whole number from 1 to 1,000,000,000,000$"),
        ({"rows": 1.5}, "^rows=1.5 "),
        ({"rows": True}, "^rows=True "),
        ({"partitions": 0}, "^partitions=0 "),
        ({"seed": -1}, "^seed=-1 "),
        ({"threads": 0}, "^threads=0 "),
        ({"sizes": "zipf"}, "^sizes='zipf' is not a size distribution; choose one of gamma, pareto$"),
        ({"shape": 0.0}, "^shape=0.0 is out of range; give a gamma shape at least 0.01$"),
        ({"shape": 1.0, "sizes": "pareto"}, "^shape=1.0 is out of range; give a pareto shape at least 1.01$"),
        ({"mean": 0.5}, "^mean=0.5 "),
        ({"mean": math.inf}, "^mean=inf "),
        ({"positives": 1.01}, "^positives=1.01 is out of range; give a share from 0 to 1$"),
        ({"label_error": -0.1}, "^label_error=-0.1 "),
        ({"singletons": math.nan}, "^singletons=nan "),
        ({"split": "0.5"}, "^split='0.5' "),
        ({"join": 2}, "^join=2 "),
        ({"noise": 0.6, "missed": 0.6}, "^noise=0.6 and missed=0.6 exceed all rows"),
        ({"missed": -1}, "^missed=-1 "),
        ({"auc_a": 1.0}, "^auc_a=1.0 is out of range; give an AUC between 0 and 1$"),
        ({"auc_b": 0}, "^auc_b=0 "),
        ({"lone_positives": 3}, "^lone_positives=3 "),
        (
            {"lone_positives": 0.9, "singletons": 0.5},
            "^positives=0.25 cannot be met .* give positives from 0.45 to 0.95",
        ),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """An option out of its range is refused by name, in one line, before anything is written."""
    refuses(OptionError, message, simulate, tmp_path / "data", **{"rows": 100, **options})
    assert not (tmp_path / "data").exists()


def test_overwrite_replaces_all_nights(tmp_path: Path) -> None:
    """An earlier simulation goes away whole, with its further nights and what a killed run left."""
    simulate(tmp_path, rows=100, partitions=5)
    (tmp_path / "night=2026-01-03" / simulation.UNFINISHED).write_bytes(b"killed")
    simulate(tmp_path, rows=50, partitions=2, overwrite=True)
    assert sorted(digest(tmp_path)) == [f"night=2026-01-0{day}/part-0.parquet" for day in (1, 2)]


@pytest.mark.parametrize("name", ["notes.txt", "night=2026-01-01/other.parquet", "night=2026/part-0.parquet"])
def test_overwrite_spares_what_it_did_not_write(tmp_path: Path, name: str) -> None:
    """With any foreign file in the directory nothing is removed."""
    simulate(tmp_path, rows=100, partitions=2)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = digest(tmp_path)
    with pytest.raises(OptionError, match="which simulate did not write; name another directory"):
        simulate(tmp_path, rows=100, overwrite=True)
    assert digest(tmp_path) == before


def test_full_disk(tmp_path: Path) -> None:
    """A disk that takes no more bytes gives one clear error and leaves no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StreamevalError, match=r"^cannot write .*: File too large; free the disk") as caught:
            simulate(tmp_path / "data", rows=ROWS, partitions=4, threads=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupt_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    """Whatever ends a run, no night is left behind, and no task goes on writing."""
    calls: list[int] = []

    def progress(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 3:
            raise error

    with pytest.raises(error):
        simulate(tmp_path / "data", rows=2_000_000, partitions=20, threads=2, progress=progress)
    assert list((tmp_path / "data").iterdir()) == []
    simulate(tmp_path / "data", rows=100, partitions=2)


PEAK = """
import pathlib, re, sys
from streameval.simulation import simulate
simulate(sys.argv[1], rows=int(sys.argv[2]), partitions=4, threads=2)
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process alone is read from /proc")
def test_memory_does_not_grow(tmp_path: Path) -> None:
    """Twice the rows take the same memory, a few hundred MB at most."""
    peaks = [
        int(subprocess.check_output([sys.executable, "-c", PEAK, str(tmp_path / rows), rows], text=True))
        for rows in ("4_000_000", "8_000_000")  # fewer do not fill all buffers
    ]
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 400_000  # KiB


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    """Pages have checksums: damage to any column is an error that names the file, not another result."""
    simulate(tmp_path / "data", rows=5000, partitions=1)
    path = next((tmp_path / "data").rglob("*.parquet"))
    group = pq.read_metadata(path).row_group(0)
    raw = path.read_bytes()
    for i in range(group.num_columns):
        chunk = group.column(i)
        spoilt = bytearray(raw)
        first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        spoilt[first + chunk.total_compressed_size - 20] ^= 4
        path.write_bytes(spoilt)
        with pytest.raises(OSError, match=r"(?i)crc|checksum|corrupt"):
            pq.ParquetFile(path, page_checksum_verification=True).read([chunk.path_in_schema])
