"""Scores and ids as unsigned words, and the bucket each word belongs to.

A *rank key* orders scores from the best to the worst: a smaller key is a higher score, equal scores have equal keys,
and −0.0 equals 0.0. Scores up to 32 bits have 32-bit keys, wider ones 64-bit keys.

A *bucket* is a data-independent interval of keys: for scores, the score rounded to bfloat16 (65,536 buckets, 128 an
octave), for ids the top bits of the mixed id. A *code* is ``2 * bucket + label``, so that negatives and positives of
one bucket lie in two neighbouring pieces and no word has to carry its label. Of a 32-bit key the bucket fixes the upper
half, so a word is only the lower 16 bits.

Each ``encode`` writes a word and a code for every row and counts the codes. NaN scores take the two codes after the
last. Rows go in blocks that stay in the first-level cache: counting apart lets the compiler encode several at a time.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = [
    "ID_BUCKETS",
    "MIX",
    "SCORE_BUCKETS",
    "SLOT_BITS",
    "absorb",
    "buckets_f8",
    "buckets_i8",
    "encode_f4",
    "encode_f8",
    "encode_i4",
    "encode_i8",
    "encode_id",
    "slots_of",
    "unmix",
]

SCORE_BUCKETS = 1 << 16
ID_BUCKETS = 1 << 11
MIX = 0x9E3779B97F4A7C15  # odd, so that multiplying by it permutes the 64-bit integers
_UNMIX = pow(MIX, -1, 1 << 64)

_BLOCK = 1 << 12  # rows
_SIGN4 = np.uint32(1 << 31)
_SIGN8 = np.uint64(1 << 63)
_MIX = np.uint64(MIX)

SLOT_BITS = 14  # of a table of hot keys, which stays in the second-level cache
_SLOT_SHIFT = np.uint64(64 - SLOT_BITS)
_SLOT_MIX = np.uint64(0xD6E8FEB86659FD93)
_FURTHER = np.uint64(0xFF51AFD7ED558CCD)


@jit
def _rank4(bits):
    """Rank key of a float32 given by its bits."""
    ascending = bits ^ (_SIGN4 | np.uint32(np.int32(bits) >> np.int32(31)))
    return np.uint32(~ascending)


@jit
def _count(codes, counts):
    for i in range(codes.size):
        counts[codes[i]] += 1


@jit
def _code_f4(bits, label, nan_code, words, codes):
    for i in range(bits.size):
        b = np.uint32(0) if bits[i] == _SIGN4 else bits[i]
        key = _rank4(b)
        code = (key >> np.uint32(16)) << np.uint32(1)
        code = nan_code if (b & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else code
        words[i] = np.uint16(key)
        codes[i] = code | np.uint32(label[i])


@jit
def encode_f4(bits, label, words, codes, counts):
    """Encode float32 scores, given as uint32 `bits`; words are uint16."""
    nan_code = np.uint32(counts.size - 2)
    for start in range(0, bits.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _code_f4(bits[part], label[part], nan_code, words[part], codes[part])
        _count(codes[part], counts)


@jit
def _code_i4(score, label, words, codes):
    for i in range(score.size):
        key = np.uint32(~(np.uint32(score[i]) ^ _SIGN4))
        words[i] = np.uint16(key)
        codes[i] = ((key >> np.uint32(16)) << np.uint32(1)) | np.uint32(label[i])


@jit
def encode_i4(score, label, words, codes, counts):
    """Encode int32 scores; words are uint16."""
    for start in range(0, score.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _code_i4(score[part], label[part], words[part], codes[part])
        _count(codes[part], counts)


@jit
def _bucket8(value):
    """Bucket of a number: rank of its bfloat16 rounding, which is monotone."""
    return _rank4(np.float32(value).view(np.uint32)) >> np.uint32(16)


@jit
def _code_f8(score, label, nan_code, words, codes):
    for i in range(score.size):
        x = score[i] + 0.0  # -0.0 becomes 0.0
        bits = np.float64(x).view(np.uint64)
        code = nan_code if x != x else _bucket8(x) << np.uint32(1)
        words[i] = ~(bits ^ (_SIGN8 | np.uint64(np.int64(bits) >> np.int64(63))))
        codes[i] = code | np.uint32(label[i])


@jit
def encode_f8(score, label, words, codes, counts):
    """Encode float64 scores; words are the whole 64-bit keys."""
    nan_code = np.uint32(counts.size - 2)
    for start in range(0, score.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _code_f8(score[part], label[part], nan_code, words[part], codes[part])
        _count(codes[part], counts)


@jit
def _code_i8(score, label, flip, words, codes):
    for i in range(score.size):
        words[i] = ~(np.uint64(score[i]) ^ flip)
        codes[i] = (_bucket8(score[i]) << np.uint32(1)) | np.uint32(label[i])


@jit
def encode_i8(score, label, flip, words, codes, counts):
    """Encode int64 (`flip` is 2⁶³) or uint64 scores (`flip` is 0); words are the whole 64-bit keys."""
    for start in range(0, score.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _code_i8(score[part], label[part], flip, words[part], codes[part])
        _count(codes[part], counts)


@jit
def _code_id(ids, label, shift, words, codes):
    for i in range(ids.size):
        words[i] = ids[i] * _MIX
        codes[i] = (np.uint32(words[i] >> shift) << np.uint32(1)) | np.uint32(label[i])


@jit
def encode_id(ids, label, shift, words, codes, counts):
    """Mix 64-bit ids bijectively; a word is the whole mixed id, its bucket the bits above `shift`."""
    for start in range(0, ids.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _code_id(ids[part], label[part], shift, words[part], codes[part])
        _count(codes[part], counts)


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


def unmix(words: np.ndarray) -> np.ndarray:
    """Ids from mixed words, both uint64 arrays.

    Examples
    --------
    >>> import numpy as np
    >>> ids = np.array([0, 7, 2**64 - 1], dtype=np.uint64)
    >>> bool((unmix(ids * np.uint64(MIX)) == ids).all())
    True
    """
    return words * np.uint64(_UNMIX)


def slots_of(words: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The slot that `absorb` looks into for each key, as a uint64 array; the key of zeros has slot 0.

    Examples
    --------
    >>> slots_of(np.array([0, 1, 2**64 - 1], np.uint64), np.empty((3, 0), np.uint64)).tolist()
    [0, 13754, 2629]
    """
    return _hashed(words, rest) >> _SLOT_SHIFT


def _hashed(words: np.ndarray, rest: np.ndarray) -> np.ndarray:
    found = words * _SLOT_MIX
    for column in rest.T:
        found ^= column * _FURTHER
    return found


@jit
def absorb(words, rest, codes, further, keys, tally, table):
    """Count the rows whose key is in its slot of `keys`, and move the others to the front; returns how many these are.

    There are as many further words as the tuple `further` is long. ``tally[slot, label]`` counts the rows taken out,
    `table`, the rows of each code, loses them. There are no branches to mispredict.
    """
    kept, columns = np.uint64(0), len(further)
    for i in range(words.size):
        word, code = words[i], codes[i]
        hashed = word * _SLOT_MIX
        for c in range(columns):
            hashed ^= rest[i, c] * _FURTHER
        slot = hashed >> _SLOT_SHIFT
        hit = keys[slot, 0] == word
        for c in range(columns):
            hit &= keys[slot, np.uint64(1 + c)] == rest[i, c]
        tally[slot, np.uint64(code & 1)] += np.int64(hit)
        table[code] -= np.int64(hit)
        words[kept] = word
        codes[kept] = code
        for c in range(columns):
            rest[kept, c] = rest[i, c]
        kept += np.uint64(not hit)
    return np.int64(kept)
