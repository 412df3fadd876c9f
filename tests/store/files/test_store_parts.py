"""How many state files are read as one state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from streameval.budget import Budget
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.histogram import to_histogram
from streameval.store.files import published as module
from streameval.store.files.location import Location
from streameval.store.files.published import FEWEST, LEAST_BYTES, MOST_BYTES, PARTS, StateFiles

if TYPE_CHECKING:
    from pathlib import Path

FILES = 32


@pytest.mark.parametrize(
    ("nbytes", "most", "bounded", "expected"),
    [
        (FILES * 25_000, 512, False, 1),  # a month of small nights is not worth threads
        (4 * LEAST_BYTES, 512, False, 4),
        (PARTS * LEAST_BYTES, 512, False, PARTS),
        (PARTS * MOST_BYTES, 512, False, PARTS),
        (24 * MOST_BYTES, 512, False, 24),  # not all are open at once
        (FILES * MOST_BYTES * 2, 512, False, FILES),
        (0, 5, False, 7),
        (FILES * MOST_BYTES, 512, True, FILES // FEWEST),
    ],
)
def test_the_parts_that_are_read_follow_from_the_size_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, most: int, bounded: bool, expected: int
) -> None:
    """Parts are of at least a mebibyte, as far as that leaves few large ones, and hold every file once."""
    monkeypatch.setattr(module, "TOGETHER", most)
    files, rng = StateFiles(Location.of(tmp_path)), np.random.default_rng(1)
    states = [fold_arrays(np.ones(3, np.uint8), rng.random(3, np.float32)) for _ in range(FILES)]
    made = [to_histogram(state) if bounded else state for state in states]
    names = [files.write(state)[0] for state in made]
    parts: list[object] = []

    def each(function, items, _):
        parts.extend(items)
        return [function(item) for item in items]

    found = files.read_all(names, nbytes, Budget(), made[0].spec, each)
    assert len(parts) == len(found) == expected
    assert sum(state.totals().pos for state in found) == 3 * FILES
