"""Stored counts to runs: keys that are sorted already need no sorting, only their two labels told apart."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import _SIGN8, _bucket8

__all__ = ["FEW", "buckets_f8", "buckets_i8", "count_sides", "part_sides"]

FEW = 32  # rows of one key up to which they are stored one by one, as most are: rows alike are sorted fastest


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
    """Count the items of each code: in `lone` a row each, in `several` those that stand for more than `FEW` rows."""
    for i in range(buckets.size):
        code = np.int64(buckets[i]) << 1
        for label in range(2):
            rows = pos[i] if label else neg[i]
            if rows <= FEW:
                lone[code + label] += max(rows, 0)
            else:
                several[code + label] += 1


@jit
def part_sides(words, rest, buckets, neg, pos, lone, several, one, one_rest, many, many_rest, counts):
    """Write items to the cursors of their codes: words once a row in `one`, or once with the rows in `many`."""
    for i in range(buckets.size):
        code = np.int64(buckets[i]) << 1
        for label in range(2):
            rows = pos[i] if label else neg[i]
            if rows <= FEW:
                at = lone[code + label]
                for j in range(at, at + rows):
                    one[j] = words[i]
                    for c in range(rest.shape[1]):
                        one_rest[j, c] = rest[i, c]
                lone[code + label] = at + max(rows, 0)
            else:
                at = several[code + label]
                several[code + label] = at + 1
                many[at] = words[i]
                counts[at] = rows
                for c in range(rest.shape[1]):
                    many_rest[at, c] = rest[i, c]
