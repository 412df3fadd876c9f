"""One sweep over the scores of all groups: areas and precisions of every group of several slicings, in one loop.

A *cell* is a 15-bit code that says to which groups a row belongs: ``member[cell, k]`` is its group in slicing k. A
narrow word is the lower 16 bits of a rank key, then the cell; its bucket is the rest of the key. A labelled word has
the label between the two, 32 bits in all. Long words, of 64-bit scores, have in place of the 16 bits the distance of
the key from the *base* of its bucket, in 48 bits. No key of a bucket is below its base, so the words of a bucket sort
like their keys; distances are checked before keys are encoded. Within each key negatives come first.

The two sums of a group are Σ p·(2(N − F) − n), and Σ p·(T + p)/(T + p + F + n) in units of 2⁻⁶², where n and p are the
negatives and positives of a tie, F and T those above it, and N all negatives.

Labelled words are swept from the worst score to the best, and within each tie from positives to negatives. So a
positive knows the denominator of its precision, and a negative knows the positives of its tie: no tie has to be closed,
and a negative (there are many more of them) is little more than counted. Whether a score ties with the one before it is
hard to predict, so that positives, and negatives of all rows, do not branch on it. The state of a group is one cache
line (`STATE` integers): the key of the last positive, the numbers of positives and negatives not yet passed, the number
of positives at the start of that key, and four sums. The state of all rows, group 0, is kept in registers. The general
way to both sums is by group (`streameval.kernels.groups`).
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keyed.sorting import DIGIT, sort_bucket
from streameval.kernels.keys import rank_f4

CELL_BITS = 15
STATE = 8  # key of the last positive, P and N left, P at its start, and what `AREA` … `LOWER` say
AREA, TIED, UPPER, LOWER = 4, 5, 6, 7  # Σ N left at positives, Σ tied positives at negatives, Σ precision as halves
MOST = 1 << 61  # words of a sweep times 2³⁰, or times the negatives of a group, for sums that fit into one word

_SHIFT = np.uint32(CELL_BITS)
_CELL, _LABEL = np.uint32((1 << CELL_BITS) - 1), np.uint32(1 << CELL_BITS)
_ONE = np.uint32(1)
_UNIT = float(1 << 62)
KEY_SHIFT = np.uint32(CELL_BITS + 1)  # bits below the key of a labelled word
_PASSED, _LEFT, _OTHERS, _START = range(4)
_HALF_WORD, _LOWER_HALF = np.int64(32), np.int64((1 << 32) - 1)


@jit
def narrow_f4(bits, raw, table, label, words, codes):
    """Encode float32 scores without NaN, given as uint32 `bits`; ``table[raw]`` is the cell."""
    for i in range(bits.size):
        key = rank_f4(bits[i])
        words[i] = ((key & np.uint32(0xFFFF)) << _SHIFT) | table[raw[i]]
        codes[i] = ((key >> np.uint32(16)) << _ONE) | np.uint32(label[i])


@jit
def sort_words(words, starts, spare, low):
    """Sort labelled words within each bucket by their bits from `low` on, stably; the key has 16 bits, a word 32.

    `spare` is scratch of the same size; `low` is uint32.
    """
    places = np.zeros((2, DIGIT + 1), np.int64)
    for j in range(starts.size - 1):
        sort_bucket(words, spare, starts[j], starts[j + 1], low, places)


@jit
def sweep_words(words, starts, buckets, member, state):
    """Sweep over sorted labelled words, narrow or long, from the last to the first; sums are added to `state`.

    `state` is an int64 array of shape (n_groups, `STATE`): initially no key (−1), the rows of the group up to the last
    word, and zero sums. Every word is in group 0. See `MOST` for the limit on the number of words.
    """
    passed, left, others, start = state[0, _PASSED], state[0, _LEFT], state[0, _OTHERS], state[0, _START]
    area = tied = upper = lower = np.int64(0)
    key_bits = np.int64(8 * words.itemsize - 16)  # of a word
    for bucket in range(buckets.size):
        j = buckets.size - 1 - bucket
        high = np.int64(buckets[j]) << key_bits
        for i in range(starts[j + 1] - starts[j]):
            word = words[starts[j + 1] - 1 - i]
            key = high | np.int64(word >> KEY_SHIFT)
            cell = np.uint64(word & _CELL)
            if word & _LABEL:
                start = left if passed != key else start
                passed = key
                area += others
                share = np.int64(start / (start + others) * _UNIT)
                upper += share >> _HALF_WORD
                lower += share & _LOWER_HALF
                left -= 1
                for k in range(1, member.shape[1]):
                    g = np.uint64(member[cell, k])
                    T, F = state[g, _START] if state[g, _PASSED] == key else state[g, _LEFT], state[g, _OTHERS]
                    state[g, _PASSED], state[g, _START] = key, T
                    state[g, AREA] += F
                    share = np.int64(T / (T + F) * _UNIT)
                    state[g, UPPER] += share >> _HALF_WORD
                    state[g, LOWER] += share & _LOWER_HALF
                    state[g, _LEFT] -= 1
            else:
                others -= 1
                tied += (start - left) * np.int64(passed == key)  # whether scores tie is hard to predict: no branch
                for k in range(1, member.shape[1]):
                    g = np.uint64(member[cell, k])
                    state[g, _OTHERS] -= 1
                    if state[g, _PASSED] == key:
                        state[g, TIED] += state[g, _START] - state[g, _LEFT]
    state[0, _PASSED], state[0, _LEFT], state[0, _OTHERS], state[0, _START] = passed, left, others, start
    state[0, AREA], state[0, TIED], state[0, UPPER], state[0, LOWER] = area, tied, upper, lower


DISTANCE_BITS = 48  # of a key from its bucket's base


@jit
def ties(words, starts, bases):
    """Keys, cells, negatives and positives of labelled words that are sorted within the buckets of `bases`.

    The key of a word is its upper bits above the base of the bucket. A key and cell may occur several times.
    """
    keys, cells = np.empty(words.size, np.uint64), np.empty(words.size, np.uint64)
    neg, pos = np.zeros(words.size, np.int64), np.zeros(words.size, np.int64)
    last = -1
    for j in range(bases.size):
        for i in range(starts[j], starts[j + 1]):
            word = words[i] | _LABEL
            if i == starts[j] or words[i - 1] | _LABEL != word:
                last += 1
                keys[last], cells[last] = bases[j] + np.uint64(word >> KEY_SHIFT), np.uint64(word & _CELL)
            positive = np.int64(words[i] & _LABEL != 0)
            pos[last] += positive
            neg[last] += 1 - positive
    return keys[: last + 1], cells[: last + 1], neg[: last + 1], pos[: last + 1]
