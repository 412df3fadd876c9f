"""128-bit hashes of byte strings: MurmurHash3 x64 128 (Austin Appleby, public domain), compiled.

Two different strings have equal hashes with probability 2⁻¹²⁸: among 10⁹ strings, a false match has a probability below
2·10⁻²¹.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit, read_only
from streameval.kernels.prefetch import byte_at, eight_at

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_ADD1 = np.uint64(0x52DCE729)
_ADD2 = np.uint64(0x38495AB5)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_FIVE = np.uint64(5)


@inlined
def _rotate(x, left):
    return (x << np.uint64(left)) | (x >> np.uint64(64 - left))


@inlined
def _finish(x):
    x = (x ^ (x >> np.uint64(33))) * _MIX1
    x = (x ^ (x >> np.uint64(33))) * _MIX2
    return x ^ (x >> np.uint64(33))


@inlined
def _word(data, start, count):
    """Little-endian word of `count` bytes, at most 8; a single read if eight bytes of data end there."""
    if start + count >= 8:
        return eight_at(data, start + count - 8) >> np.uint64(64 - 8 * count)
    word = np.uint64(0)
    for i in range(count):
        word |= byte_at(data, start + i) << np.uint64(8 * i)
    return word


@inlined
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
    h1, h2 = _finish(h1), _finish(h2)
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


def hash_bytes(data: bytes) -> tuple[int, int]:
    """The two 64-bit words of the hash of one byte string.

    Examples
    --------
    >>> "".join(f"{word:016x}" for word in hash_bytes(b"The quick brown fox jumps over the lazy dog"))
    'e34bbc7bbc071b6c7a433ca9c49a9347'
    """
    first, second = hash_strings(np.frombuffer(data, np.uint8), read_only(np.array([0, len(data)], np.int32)))
    return int(first[0]), int(second[0])
