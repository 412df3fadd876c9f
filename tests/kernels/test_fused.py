"""Every fused kernel gives the same bits as the general path, which groups rows by key."""

import numpy as np
import pyarrow as pa
import pytest

from streameval import evaluate
from streameval.kernels.fused import FUSED
from streameval.kernels.ranking import UNIT, precision_counts

RNG, ROWS = np.random.default_rng(3), 20_000
SCORES = RNG.normal(0.4, 0.2, ROWS)
TABLE = pa.table(
    {
        "label": (RNG.random(ROWS) < 0.2).astype(np.int8),
        "short": np.where(SCORES < 0.3, np.round(SCORES, 2), SCORES).astype(np.float32),
        "long": np.where(SCORES < 0.3, np.round(SCORES, 2), SCORES),
        "cluster": RNG.zipf(1.5, ROWS) % 5_000,
        "class": RNG.integers(0, 700, ROWS),
        "country": RNG.integers(0, 9, ROWS),
    }
)
AREAS = ["roc_auc", "average_precision"]
ASKED = {
    ("short words", "areas"): {"score": "short", "metrics": AREAS},
    ("labelled words", "areas"): {"score": "long", "metrics": AREAS},
    ("tagged words", "areas"): {"score": ["short", "long"], "by": "country", "metrics": AREAS},
    ("ids", "sizes"): {"cluster": "cluster"},
    ("cells", "clusters"): {"cluster": "cluster", "classes": "class"},
    ("cells", "classes"): {"cluster": "cluster", "classes": "class"},
}


@pytest.mark.parametrize("row", FUSED)
def test_fused_kernels_give_the_bits_of_the_general_path(row: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are equal without a row of the table, whose kernel runs as long as it is there."""
    kernel, calls = FUSED[row], []

    def spy(*arguments: object) -> object:
        calls.append(row)
        return kernel(*arguments)

    monkeypatch.setitem(FUSED, row, spy)
    fused = evaluate(TABLE, label="label", threads=1, **ASKED[row])
    assert calls
    monkeypatch.delitem(FUSED, row)
    general = evaluate(TABLE, label="label", threads=1, **ASKED[row])
    assert [repr(result) for result in fused.results] == [repr(result) for result in general.results]
    assert len(FUSED) < 6  # at most six with the one left out


@pytest.mark.parametrize("groups", [0, 1, 511, 512, 513, 2000])
@pytest.mark.parametrize("trapezoid", [False, True])
@pytest.mark.parametrize("before", [(0, 0), (7, 3)])
def test_precisions_are_those_of_each_group(groups: int, trapezoid: bool, before: tuple[int, int]) -> None:
    """Each precision is rounded to a unit before it is weighted, also at the ends of batches."""
    rng = np.random.default_rng(groups)
    neg, pos = rng.integers(0, 3, groups), rng.integers(0, 3, groups)
    neg += neg + pos == 0
    (false, true), expected = before, 0
    for n, p in zip(neg.tolist(), pos.tolist(), strict=True):
        above = true / (true + false) if true + false else 1.0
        false, true = false + n, true + p
        rate = int(true / (true + false) * UNIT) + trapezoid * int(above * UNIT)
        expected += p * rate
    upper, lower = map(int, precision_counts(neg, pos, *before, trapezoid, np.empty((4, 7), np.int64)))
    assert (upper << 32) + lower == expected
