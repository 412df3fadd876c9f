"""Stored counts to runs: keys that are sorted already need no sorting, only their two labels told apart."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import _SIGN8, _bucket8

__all__ = ["buckets_f8", "buckets_i8", "count_sides", "part_sides"]


@jit
def buckets_f8(keys):
    """Bucket of each rank key of a float64 score."""
    out = np.empty(keys.size, np.uint32)
    for i in range(keys.size):
        rising = ~keys[i]
        bits = rising ^ (_SIGN8 | ~np.uint64(np.int64(rising) >> np.int64(63)))
        out[i] = _bucket8(np.uint64(bits).view(np.float64))
    return out


@jit
def buckets_i8(keys, flip):
    """Bucket of each rank key of an int64 (`flip` is 2⁶³) or uint64 score (`flip` is 0)."""
    out = np.empty(keys.size, np.uint32)
    for i in range(keys.size):
        raw = ~keys[i] ^ flip
        if flip:
            out[i] = _bucket8(np.int64(raw))
        else:
            out[i] = _bucket8(raw)
    return out


@jit
def count_sides(buckets, neg, pos, lone, several):
    """Count the items of each code: those that stand for one row in `lone`, the others in `several`."""
    for i in range(buckets.size):
        code = np.int64(buckets[i]) << 1
        for label in range(2):
            rows = pos[i] if label else neg[i]
            if rows == 1:
                lone[code + label] += 1
            elif rows > 1:
                several[code + label] += 1


@jit
def part_sides(words, rest, buckets, neg, pos, lone, several, one, one_rest, many, many_rest, counts):
    """Write each item to the cursor of its code in `lone` or `several`: its words, and its rows if they are several."""
    for i in range(buckets.size):
        code = np.int64(buckets[i]) << 1
        for label in range(2):
            rows = pos[i] if label else neg[i]
            if rows == 1:
                at = lone[code + label]
                lone[code + label] = at + 1
                one[at] = words[i]
                for c in range(rest.shape[1]):
                    one_rest[at, c] = rest[i, c]
            elif rows > 1:
                at = several[code + label]
                several[code + label] = at + 1
                many[at] = words[i]
                counts[at] = rows
                for c in range(rest.shape[1]):
                    many_rest[at, c] = rest[i, c]
