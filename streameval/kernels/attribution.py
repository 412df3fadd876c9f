"""Pairs within groups, for the attribution of a loss to single clusters and classes.

A group of b rows has b·(b − 1)/2 pairs, which is within 64 bits for fewer than 2³² rows.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import MIX

__all__ = ["MARKS", "add_parts", "add_shares", "marked"]

MARKS = 1 << 16  # entries of the table of `marked`

_MIX = np.uint64(MIX)
_SHIFT = np.uint64(64 - (MARKS.bit_length() - 1))


@inlined
def _pairs(n):
    """Pairs of n rows, even where n·(n − 1) exceeds 63 bits."""
    return (n // 2) * (n - 1) if n % 2 == 0 else n * ((n - 1) // 2)


@jit
def add_parts(numbers, rows, times, parts, agreeing):
    """Add cells to the groups that they are parts of.

    Cell i has ``rows[i]`` rows and stands for ``times[i]`` equal cells (1 if `times` is empty). Group ``numbers[i]``
    gains that number of `parts`, and their pairs in `agreeing`.
    """
    for i in range(numbers.size):
        k, t = numbers[i], times[i] if times.size else 1
        parts[k] += t
        agreeing[k] += t * _pairs(rows[i])


@jit
def add_shares(numbers, rows, sizes, times, pure, joined):
    """As `add_parts`, for cells that fill their cluster: adds their rows to `pure`, and their pairs to `joined`."""
    for i in range(numbers.size):
        if rows[i] == sizes[i]:
            k, t = numbers[i], times[i] if times.size else 1
            pure[k] += t * rows[i]
            joined[k] += t * _pairs(rows[i])


@jit
def marked(words, marks):
    """Positions of the words whose entry in `marks`, by the top bits of the mixed word, is set."""
    found = np.empty(words.size, np.int64)
    n = 0
    for i in range(words.size):
        found[n] = i
        n += marks[(words[i] * _MIX) >> _SHIFT]
    return found[:n].copy()
