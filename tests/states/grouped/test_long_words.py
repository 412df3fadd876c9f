"""Long words of tagged scores: keys come back, and are in the order of the words of their bucket."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streameval.budget import Budget
from streameval.kernels.grouped.sweep import DISTANCE_BITS, fit_f8, sort_long_words
from streameval.kernels.jit import read_only
from streameval.kernels.keys import SCORE_BUCKETS
from streameval.states.grouped.keys import By
from streameval.states.grouped.sorted_rows import SortedRows, sorted_rows
from streameval.states.grouped.state import GroupedSpec
from streameval.states.grouped.tag_words import bases, tag_words
from streameval.states.protocol import Batch
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.types import rank_keys


def bounds(kind: str) -> np.ndarray:
    """Scores around the ends of all buckets, and around 0 and the largest."""
    if kind == "f8":
        ends = (np.arange(SCORE_BUCKETS, dtype=np.uint32) << np.uint32(16)).view(np.float32)
        ends = ends[np.isfinite(ends)].astype(np.float64)
        ends = ends[((np.abs(ends) >= 2.0**-126) | (ends == 0)) & (np.abs(ends) <= 2.0**127)]
        halves = ends[np.abs(ends) < 2.0**127] * (1 - 2.0**-25)  # a tie of the rounding to float32
        near = np.concatenate((ends, halves))
        near = np.concatenate((near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), [np.inf, -np.inf, -0.0]))
        sizes = np.abs(near)
        return near[(sizes == 0) | (sizes == np.inf) | ((sizes >= 2.0**-126) & (sizes <= 2.0**127))]
    ends = (128 + np.arange(128))[:, None] << np.arange(48)[None, :]
    ends = np.concatenate(([0, 1, 2], ends.ravel())).astype(np.int64)
    near = np.concatenate((ends - 1, ends, ends + 1, np.arange(300), ends - (ends >> 25)))
    return np.abs(near).astype(np.uint64) if kind == "u8" else np.concatenate((near, -near))


def tagged(kind: str, keys: np.ndarray) -> Any:
    """Keys as long words; None if one does not fit."""
    spec = ScoreSpec("s", kind)
    codes = spec.packing.bucket(keys).astype(np.uint32) << np.uint32(1)
    return tag_words(spec)["keyed"][0].tagged(keys, np.empty((keys.size, 0), np.uint64), codes, np.zeros_like(keys))


@pytest.mark.parametrize("kind", ["f8", "i8", "u8"])
def test_words_have_room_for_usual_scores(kind: str) -> None:
    """Distances are small enough wherever scores are said to fit, and bases ascend."""
    scores = bounds(kind)
    keys = np.sort(rank_keys(scores, kind))
    assert tagged(kind, keys) is not None
    buckets = ScoreSpec("s", kind).packing.bucket(keys)
    far = keys - bases(kind)[buckets]
    assert far.max() < 1 << DISTANCE_BITS
    inside = buckets[1:] == buckets[:-1]
    assert (far[1:][inside] >= far[:-1][inside]).all()
    if kind == "f8":
        assert fit_f8(read_only(scores.view(np.uint64)))


@pytest.mark.parametrize(
    ("kind", "score"),
    [
        ("f8", 1e-300),
        ("f8", -5e-324),
        ("f8", 1e200),
        ("f8", -1e39),
        ("i8", 2**62 + 2**54 - 1),
        ("u8", 2**63 + 2**55 - 1),
    ],
)
def test_other_scores_are_refused(kind: str, score: Any) -> None:
    """One is enough."""
    scores = np.array([0, score, 1], kind)
    assert tagged(kind, rank_keys(scores, kind)) is None
    if kind == "f8":
        assert not fit_f8(read_only(scores.view(np.uint64)))


@pytest.mark.parametrize("top", [1, 3, 1 << 20, 1 << 47])
@pytest.mark.parametrize("low", [0, 16])
def test_words_are_sorted_stably_within_buckets(top: int, low: int) -> None:
    """Buckets of no, few and many words; of few keys, and of many that share their leading bits."""
    rng, sizes = np.random.default_rng(top), [0, 1, 2, 17, 500, 0, 40_000]
    words = (rng.integers(0, top, sum(sizes), dtype=np.uint64) << np.uint64(16)) | rng.integers(
        0, 9, sum(sizes)
    ).astype(np.uint64)
    words[-100:] = (np.uint64((1 << 48) - 1) << np.uint64(16)) | np.arange(100, dtype=np.uint64)[::-1]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    wanted = [part[np.argsort(part >> np.uint64(low), kind="stable")] for part in np.split(words, starts[1:-1])]
    sort_long_words(words, starts, np.empty_like(words), np.uint64(low))
    assert np.array_equal(words, np.concatenate(wanted))


def folded(scores: np.ndarray, groups: np.ndarray, budget: Budget) -> Any:
    """The state of some scores by group."""
    builder = GroupedSpec(ScoreSpec("s", "f8"), By(("g",))).builder(budget, 1 << 16)
    builder.update(Batch(np.zeros(scores.size, np.uint8), None, {"s": pa.array(scores), "g": pa.array(groups)}))
    return builder.state()


def test_a_merge_gives_new_groups_new_codes() -> None:
    """Words are widened if they have no room for these, and neither input is changed: it is a task's result."""
    one, other, more = (
        folded(np.full(groups, 0.5), np.arange(first, first + groups), Budget(1 << 26))
        for first, groups in ((0, 20_000), (20_000, 12_767), (40_000, 2))
    )
    both = one.merge(other)
    assert [state.totals().rows for state in both.several(both.groups())] == [1] * 32_767
    assert (len(one.group_codes), len(other.group_codes)) == (20_000, 12_767)
    assert [state.keyed.layout.tag for state in (both, both.merge(more))] == [15, 32]


def test_a_crowded_bucket_is_read_in_equal_parts() -> None:
    """Scores near 1 lie at one end of their bucket: ranges of equal width would put nearly all rows into one part."""
    rng, rows = np.random.default_rng(0), 400_000
    scores = 1 - 10 ** -rng.uniform(6, 12, rows)
    scores[:2] = 0.9962, 0.998
    budget = Budget(1 << 24)
    state = folded(scores, np.arange(rows) % 5, budget)
    keyed, words = state.keyed, state.words("keyed")
    most = keyed.most(budget)
    parts = [part for span in keyed.intervals(most) for part in sorted_rows(keyed, words, "f8", *span, budget)]
    sizes = [part.words.size for part in parts if isinstance(part, SortedRows)]
    assert sum(sizes) == rows > 4 * most
    assert max(sizes) <= most
