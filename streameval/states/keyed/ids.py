"""Ids of clusters and classes as 64-bit words; two ids are equal if their words are.

An integer id is one word and compared as an integer. Strings and binaries are compared by a 128-bit hash of their bytes
(MurmurHash3), two words; among 10⁹ ids, the probability of a false match is below 2·10⁻²¹. If ids are local to a
partition, the hash of the partition's path is part of the key, which then has two words as well.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import SchemaError
from streameval.kernels.jit import read_only
from streameval.kernels.keys import ID_BUCKETS, MIX, hash_strings
from streameval.kernels.pages import gather
from streameval.typing import Array, view_numbers

SHIFT = np.uint64(64 - (ID_BUCKETS.bit_length() - 1))


def id_type(dtype: pa.DataType, column: str = "cluster") -> str:
    """How ids of an Arrow type are compared: ``signed``, ``unsigned`` or ``hash``.

    Strings and binaries are equal if their bytes are. Ids that differ in Unicode normalisation (NFC, NFD), letter case
    or trailing blanks are different; normalise them first if they mean the same.

    Raises
    ------
    SchemaError
        If the type is neither an integer nor a string nor binary.

    Examples
    --------
    >>> import pyarrow as pa
    >>> id_type(pa.int32()), id_type(pa.dictionary(pa.int32(), pa.string()))
    ('signed', 'hash')
    """
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if pa.types.is_unsigned_integer(dtype):
        return "unsigned"
    if pa.types.is_integer(dtype) or pa.types.is_null(dtype):
        return "signed"
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if any(
        test(dtype)
        for test in (*kinds, pa.types.is_fixed_size_binary, pa.types.is_string_view, pa.types.is_binary_view)
    ):
        return "hash"
    raise SchemaError(f"column {column!r} has type {dtype}; ids are integers, strings or binaries: cast it")


def id_words(kind: str, scope: str = "global") -> int:
    """Number of words of an id: 1, or 2 if it is hashed or local to its partition."""
    return 2 if kind == "hash" or scope == "partition" else 1


def hash_bytes(data: bytes) -> tuple[int, int]:
    """The two 64-bit words of the hash of one byte string.

    Examples
    --------
    >>> "".join(f"{word:016x}" for word in hash_bytes(b"The quick brown fox jumps over the lazy dog"))
    'e34bbc7bbc071b6c7a433ca9c49a9347'
    """
    first, second = hash_strings(np.frombuffer(data, np.uint8), read_only(np.array([0, len(data)], np.int32)))
    return int(first[0]), int(second[0])


def hash_array(array: pa.Array) -> tuple[Array, Array]:
    """Both words of strings or binaries without nulls, each a uint64 array of shape (n,).

    Examples
    --------
    >>> [int(word[1]) for word in hash_array(pa.array(["b", "a"]))] == [*hash_bytes(b"a")]
    True
    """
    width = np.int32 if pa.types.is_string(array.type) or pa.types.is_binary(array.type) else np.int64
    if width == np.int64:
        array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets or bytes(8), width)[array.offset : array.offset + len(array) + 1]
    words: tuple[Array, Array] = hash_strings(read_only(np.frombuffer(data or b"", np.uint8)), read_only(bounds))
    return words


def identify(array: pa.Array, kind: str, scope: str = "global", partition: str = "") -> tuple[Array, Array]:
    """Words of ids without nulls.

    Parameters
    ----------
    array : Arrow array without nulls, plain or a dictionary
    kind : type of the ids, see `id_type`
    scope : ``global``, or ``partition`` if ids are local to a partition
    partition : path of the partition, relative to the input's root

    Returns
    -------
    first : uint64 array of shape (n,)
    rest : uint64 array of shape (n, n_words - 1)
    """
    first, rest = _words(array, kind)
    if scope == "partition":
        salt, other = (np.uint64(word) for word in hash_bytes(partition.encode()))
        return first ^ salt, rest ^ other if rest.shape[1] else np.full((first.size, 1), other)
    return first, rest


def _words(array: pa.Array, kind: str) -> tuple[Array, Array]:
    if pa.types.is_dictionary(array.type) and len(array.dictionary) > len(array):  # that of a whole column, for example
        coded = array.indices.dictionary_encode()  # drop unused entries instead of decoding: repeated texts may be long
        array = pa.DictionaryArray.from_arrays(coded.indices, array.dictionary.take(coded.dictionary))
    if pa.types.is_dictionary(array.type):
        first, rest = _words(array.dictionary, kind)
        codes = read_only(array.indices.to_numpy().astype(np.int32, copy=False))
        out = np.empty((1 + rest.shape[1], codes.size), np.uint64)
        for column, words in zip((first, *rest.T), out, strict=True):
            gather(np.append(column, np.uint64(0)), codes, words)  # which NumPy takes three times as long for
        return out[0], np.ascontiguousarray(out[1:].T)
    if kind == "hash":
        first, second = hash_array(array)
        return first, second.reshape(-1, 1)
    wide = np.uint64 if kind == "unsigned" else np.int64
    first = view_numbers(array).astype(wide, copy=False).view(np.uint64)
    return first, np.empty((first.size, 0), np.uint64)


def row_nulls(array: pa.Array) -> pa.Array:
    """The array with its nulls in the rows instead of in a dictionary, which is not decoded: its texts may be long.

    >>> row_nulls(pa.DictionaryArray.from_arrays([1, 0], ["a", None])).indices.to_pylist()
    [None, 0]
    """
    if not pa.types.is_dictionary(array.type) or not array.dictionary.null_count:
        return array
    valid = pc.is_valid(array.dictionary)
    places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int32())), 1), None)
    return pa.DictionaryArray.from_arrays(places.take(array.indices), array.dictionary.drop_null())


def id_codes(words: Array, label: int = 0) -> Array:
    """Codes (twice the bucket plus the label) of mixed words, as a uint32 array; see `streameval.kernels.keys`."""
    return ((words >> SHIFT) << np.uint64(1)).astype(np.uint32) | np.uint32(label)


def mixed(first: Array) -> Array:
    """Words multiplied by an odd constant, which permutes the 64-bit integers, so that buckets fill evenly."""
    return first * np.uint64(MIX)
