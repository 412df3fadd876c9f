"""Long words of interleaved 64-bit scores: a word holds the distance of the key from the base of its bucket.

See `streameval.kernels.grouped.long`. Bases depend only on the type of the scores. The distance fits for 0, ±∞ and
floats with magnitudes from 2⁻¹²⁶ to 2¹²⁷, and for integers below 2⁵⁵; batches with other scores are not interleaved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.grouped import long as kernels
from streameval.kernels.grouped.sweep import CELL_BITS
from streameval.kernels.keys import SCORE_BUCKETS
from streameval.states.keyed.layout import Layout
from streameval.states.scores.types import rank_keys

if TYPE_CHECKING:
    from streameval.states.keyed.layout import Segment
    from streameval.states.scores.counts import ScoreSpec
    from streameval.typing import Array

LONG_LAYOUT = Layout(SCORE_BUCKETS, 64, halved=False, tag=CELL_BITS)

_SIGN = np.uint32(1 << 31)
_MIDDLE = np.uint64(1 << (kernels.DISTANCE_BITS - 1))


@lru_cache(maxsize=8)
def bases(kind: str) -> Array:
    """For each bucket of scores of a type, a lower bound of its keys, as a uint64 array of shape (SCORE_BUCKETS,).

    The base of the bucket of 0 lies half the largest distance below the key of 0; likewise for the bucket of −∞.

    Examples
    --------
    >>> one, base = rank_keys(np.array([1.0]), "f8"), bases("f8")[0x407F]
    >>> bool(one[0] - base < 2**46)
    True
    """
    rising = np.arange(SCORE_BUCKETS, dtype=np.uint32)[::-1] << np.uint32(16)
    best = np.where(rising & _SIGN, (rising ^ _SIGN) | np.uint32(0xFFFF), ~rising & np.uint32(0xFFFF0000))
    with np.errstate(all="ignore"):  # NaN has no bucket
        above = np.nextafter(best.view(np.float32), np.float32(np.inf)).astype(np.float64)
        if kind == "f8":
            keys = rank_keys(np.append(above, (np.inf, 0.0, -np.inf)), kind)
            found, (most, zero, least) = keys[:-3], keys[-3:]
            found[0x7FFF - 0x7F80] = most
            found[0x7FFF] = zero - _MIDDLE
            found[0x8000 + 0x7F80] = least - _MIDDLE
        else:
            limits = (0.0, 2.0**64 - 2.0**11) if kind == "u8" else (-(2.0**63), 2.0**63 - 2.0**10)
            whole = np.clip(np.nan_to_num(np.ceil(above)), *limits)
            found = rank_keys(whole.astype(np.uint64 if kind == "u8" else np.int64), kind)
    found.flags.writeable = False
    return found


def near_buckets(inner: ScoreSpec, keys: Array) -> Array | None:
    """The buckets of keys, as a uint32 array; None if a key is too far from its base to be a long word."""
    buckets: Array = inner.packing.bucket(keys)
    far = (keys - bases(inner.type)[buckets]).max(initial=0) >> np.uint64(kernels.DISTANCE_BITS)
    return None if far else buckets


def whole_keys(kind: str, segment: Segment, start: int = 0, stop: int | None = None) -> Array:
    """The rank keys of the long words `start` to `stop` of a segment, as a uint64 array."""
    words = segment.words.read(start, stop)
    starts = np.clip(segment.starts, start, start + words.size) - start
    keys: Array = kernels.rank_keys(words, starts, segment.codes, bases(kind))
    return keys
