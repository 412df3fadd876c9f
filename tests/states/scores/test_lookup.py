"""Scores that are decoded where they are looked at: whatever is asked of them is what an array of them gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.parts import leading

SCORES = np.unique(np.random.default_rng(3).random(50).astype(np.float32))
AT: dict[str, Any] = {
    "one": 3,
    "one of NumPy": np.int64(7),
    "the last": -1,
    "a slice": slice(3, 9),
    "an open slice": slice(40, None),
    "no group": slice(9, 3),
    "every second": slice(None, None, 2),
    "backwards": slice(None, None, -1),
    "places": np.array([5, 0, -1]),
    "a list": [-1, 0],
    "no place": np.empty(0, np.int64),
    "marks": np.arange(SCORES.size) % 3 == 0,
}


@pytest.mark.parametrize("name", AT)
@pytest.mark.parametrize("start", [0, 1])
def test_a_lookup_is_an_array(name: str, start: int) -> None:
    """Also of a part of the groups."""
    [part] = fold_arrays(np.ones(SCORES.size, np.uint8), SCORES).parts()
    at = AT[name][start:] if name == "marks" else AT[name]
    expected = SCORES[::-1].astype(np.float64)[start:]
    found = part.lookup[start:]
    assert (len(found), found.size) == (expected.size, expected.size)
    assert np.asarray(found[at]).tolist() == np.asarray(expected[at]).tolist()
    assert np.sqrt(found).tolist() == np.sqrt(expected).tolist()
    for value in (0.0, 0.5, float(expected[7]), 1.0):
        for above in (False, True):
            assert leading(found, value, above=above) == leading(expected, value, above=above)
    with pytest.raises(IndexError, match=f"no group 50 of {expected.size}"):
        found[50]


def test_decoded_scores_are_taken() -> None:
    """And nothing is looked up in no group."""
    [part] = fold_arrays(np.ones(2, np.uint8), SCORES[:2]).parts()
    assert part.scores is part.lookup
    with pytest.raises(IndexError):
        part.lookup[2]
