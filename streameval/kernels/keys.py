"""Scores and ids as unsigned words, and the bucket of each word.

A *rank key* orders scores from the best to the worst: a smaller key is a higher score, equal scores have equal keys,
and −0.0 equals 0.0. Scores of up to 32 bits have 32-bit keys, wider scores 64-bit keys.

A *bucket* is a data-independent interval of keys: for scores, those that round to the same bfloat16 (65,536 buckets,
128 an octave); for ids, those with the same top bits of the mixed id. A *code* is ``2 * bucket + label``, so negatives
and positives of a bucket lie in two neighbouring pieces, and words carry no label. The bucket fixes the upper half of a
32-bit key, so its word is only the lower 16 bits.

Each ``encode`` writes a word and a code for every row. NaN scores take the two codes after the last; encoders of floats
return their number.

Strings have 128-bit hashes (MurmurHash3 x64 128 by Austin Appleby, public domain). Two different strings have equal
hashes with probability 2⁻¹²⁸: among 10⁹ strings, a false match has a probability below 2·10⁻²¹.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inline, jit
from streameval.kernels.prefetch import byte_at, eight_at

SCORE_BUCKETS = 1 << 16
ID_BUCKETS = 1 << 11
MIX = 0x9E3779B97F4A7C15  # odd, so that multiplying by it permutes the 64-bit integers
_UNMIX = pow(MIX, -1, 1 << 64)

_NAN_CODE = np.uint32(2 * SCORE_BUCKETS)
_SIGN4 = np.uint32(1 << 31)
_SIGN8 = np.uint64(1 << 63)
_MIX = np.uint64(MIX)


@inline
def rank_f4(bits):
    """Rank key of a float32 score, given by its bits; −0.0 has the key of 0.0."""
    bits = np.uint32(0) if bits == _SIGN4 else bits
    return np.uint32(~(bits ^ (_SIGN4 | np.uint32(np.int32(bits) >> np.int32(31)))))


@jit
def count_codes(codes, counts):
    """Add 1 to ``counts[code]`` for the code of each row."""
    for i in range(codes.size):
        counts[codes[i]] += 1


@jit
def encode_f4(bits, label, words, codes):
    """Encode float32 scores, given as uint32 `bits`, to uint16 words; returns the number of NaN scores."""
    missing = 0
    for i in range(bits.size):
        nan = (bits[i] & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        key = rank_f4(bits[i])
        code = (key >> np.uint32(16)) << np.uint32(1)
        words[i], codes[i] = np.uint16(key), (_NAN_CODE if nan else code) | np.uint32(label[i])
        missing += nan
    return missing


@inline
def _bucket8(value):
    """Bucket of a number: the rank of its rounding to bfloat16, which is monotone."""
    bits = np.float32(value).view(np.uint32)  # −0.0 is not replaced by 0.0: it may be a rounded small negative number
    return np.uint32(~(bits ^ (_SIGN4 | np.uint32(np.int32(bits) >> np.int32(31))))) >> np.uint32(16)


@jit
def encode_f8(score, label, words, codes):
    """Encode float64 scores; words are whole 64-bit keys. Returns the number of NaN scores."""
    missing = 0
    for i in range(score.size):
        x = score[i] + 0.0  # -0.0 becomes 0.0
        bits = np.float64(x).view(np.uint64)
        code = _bucket8(x) << np.uint32(1)
        words[i] = ~(bits ^ (_SIGN8 | np.uint64(np.int64(bits) >> np.int64(63))))
        codes[i] = (_NAN_CODE if x != x else code) | np.uint32(label[i])
        missing += x != x
    return missing


@jit
def encode_id(ids, label, shift, words, codes):
    """Mix 64-bit ids bijectively; a word is a whole mixed id, and its bucket is the bits above `shift`."""
    for i in range(ids.size):
        words[i] = word = ids[i] * _MIX
        codes[i] = (np.uint32(word >> shift) << np.uint32(1)) | np.uint32(label[i])


@jit
def buckets_f8(keys):
    """Bucket of each rank key of float64 scores, as uint32."""
    out = np.empty(keys.size, np.uint32)
    for i in range(keys.size):
        rising = ~keys[i]
        bits = rising ^ (_SIGN8 | ~np.uint64(np.int64(rising) >> np.int64(63)))
        out[i] = _bucket8(np.uint64(bits).view(np.float64))
    return out


@jit
def buckets_i8(keys, flip):
    """Bucket of each rank key of int64 scores (with `flip` = 2⁶³) or uint64 scores (with `flip` = 0), as uint32."""
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


_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_ADD1 = np.uint64(0x52DCE729)
_ADD2 = np.uint64(0x38495AB5)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_FIVE = np.uint64(5)


@inline
def _rotate(x, left):
    return (x << np.uint64(left)) | (x >> np.uint64(64 - left))


@inline
def scramble(x):
    """Permute the 64-bit words so that each bit depends on all others: the finalizer of MurmurHash3."""
    x = (x ^ (x >> np.uint64(33))) * _MIX1
    x = (x ^ (x >> np.uint64(33))) * _MIX2
    return x ^ (x >> np.uint64(33))


@inline
def _word(data, start, count):
    """Little-endian word of `count` bytes, at most 8; a single read if eight bytes of data end there."""
    if start + count >= 8:
        return eight_at(data, start + count - 8) >> np.uint64(64 - 8 * count)
    word = np.uint64(0)
    for i in range(count):
        word |= byte_at(data, start + i) << np.uint64(8 * i)
    return word


@inline
def _murmur(data, start, size):
    """Hash `size` bytes from offset `start` of the memory at address `data`."""
    h1, h2 = np.uint64(0), np.uint64(0)
    for b in range(size >> 4):
        k1 = eight_at(data, start + 16 * b) * _C1
        h1 ^= _rotate(k1, 31) * _C2
        h1 = (_rotate(h1, 27) + h2) * _FIVE + _ADD1
        k2 = eight_at(data, start + 16 * b + 8) * _C2
        h2 ^= _rotate(k2, 33) * _C1
        h2 = (_rotate(h2, 31) + h1) * _FIVE + _ADD2
    rest = size & 15
    tail = start + size - rest
    if rest > 8:
        h2 ^= _rotate(_word(data, tail + 8, rest - 8) * _C2, 33) * _C1
    if rest > 0:
        h1 ^= _rotate(_word(data, tail, min(rest, 8)) * _C1, 31) * _C2
    h1 ^= np.uint64(size)
    h2 ^= np.uint64(size)
    h1 += h2
    h2 += h1
    h1, h2 = scramble(h1), scramble(h2)
    h1 += h2
    return h1, h2 + h1


@jit
def hash_strings(data, offsets):
    """Hash the strings ``data[offsets[i] : offsets[i + 1]]`` of a uint8 array; returns two uint64 arrays."""
    n, address = offsets.size - 1, np.uint64(data.ctypes.data)
    first = np.empty(n, np.uint64)
    second = np.empty(n, np.uint64)
    for i in range(n):
        start = np.int64(offsets[i])
        first[i], second[i] = _murmur(address, start, np.int64(offsets[i + 1]) - start)
    return first, second


@jit
def longest_framed(data):
    """Longest length in a uint8 array of strings, each preceded by its length in bytes as little-endian uint32."""
    longest = at = 0
    while at + 4 <= data.size:
        size = 0
        for i in range(4):
            size |= np.int64(data[at + i]) << (8 * i)
        longest, at = max(longest, size), at + 4 + size
    return longest
