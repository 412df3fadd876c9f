"""Widening: the smallest type that holds every file's values without loss, and the cast to it.

A column may be int8 in one night's file and int32 in the next, or plain in one and dictionary-encoded in another. Files
are read together if one type holds all their values exactly:

- integers: the widest type; for signed and unsigned, the smallest signed type that holds both (none for uint64);
- integers and floats: a float whose significand holds every integer (16 bits in float32, 32 bits in float64);
- decimals: as many digits before and after the point as any of them, at most 76;
- strings, large strings and string views: large strings if they differ; likewise for binaries;
- dictionaries of strings stay dictionaries if every file has one, and are decoded otherwise;
- timestamps, times and durations of two units: the finer unit; a value that it does not hold, such as the year 9999 in
  nanoseconds, is refused when it is read;
- null columns fit any type; every other type fits only itself.

The result depends on the *set* of types, not on the order of the files: uint32, int32 and float32 widen to float64,
although uint32 and int32 alone would widen to int64, which no float holds.

>>> import pyarrow as pa
>>> widen([pa.uint32(), pa.int32()])
DataType(int64)
>>> widen([pa.uint32(), pa.int32(), pa.float32()])
DataType(double)
>>> widen([pa.int64(), pa.float64()]) is None
True

A number in a filter or an edge of a bin lies between two values of a decimal type (`numbers_around`). Arrow's cast of
decimals to floats does not round to the nearest float, so `nearest_floats` reads them as texts.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.typing import Array, view_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
UNSIGNED = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_UNITS = ("s", "ms", "us", "ns")
FLOATS = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}


def widen(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """The smallest type that holds the values of all `kinds` exactly.

    Parameters
    ----------
    kinds : iterable of pyarrow.DataType
        At least one.

    Returns
    -------
    pyarrow.DataType or None
        None if no type holds all values.
    """
    distinct = {kind if types.is_dictionary(kind) else plain(kind) for kind in kinds} - {pa.null()}
    if not distinct:
        return pa.null()
    coded = [kind.value_type for kind in distinct if types.is_dictionary(kind)]
    if len(coded) == len(distinct) and all(_is_string(kind) or _is_binary(kind) for kind in coded):
        values = widen(coded)
        return None if values is None else pa.dictionary(pa.int32(), values)
    return _widen_plain({plain(kind) for kind in distinct} - {pa.null()})


def plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values: without dictionary and run-end encoding, and with the storage type of extensions.

    >>> plain(pa.dictionary(pa.int8(), pa.int64()))
    DataType(int64)
    """
    while types.is_dictionary(kind) or types.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind.value_type
    return kind


def conform(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to a unified type; an array that already has it is returned unchanged.

    Parameters
    ----------
    array : pyarrow.Array
        An array of one of the types that `widen` combined to `kind`.
    kind : pyarrow.DataType
        The unified type.
    """
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return conform(array.storage, kind)
    if types.is_run_end_encoded(array.type):
        return conform(pc.run_end_decode(array), kind)
    if types.is_dictionary(array.type) and types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            array.indices.cast(kind.index_type), conform(array.dictionary, kind.value_type)
        )
    if types.is_dictionary(array.type) and array.type.value_type != kind:
        return pa.DictionaryArray.from_arrays(array.indices, conform(array.dictionary, kind)).dictionary_decode()
    return array.dictionary_decode() if types.is_dictionary(array.type) else array.cast(kind)


def occurring(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The array with a dictionary of only those values that occur in it.

    >>> occurring(pa.DictionaryArray.from_arrays([2, 2, 0], ["a", "b", "c"])).dictionary.to_pylist()
    ['c', 'a']
    """
    coded = array.indices.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, array.dictionary.take(coded.dictionary))


def is_text(kind: pa.DataType) -> bool:
    """Whether `kind` is a string or binary of variable length; false for views, whose dictionaries Arrow cannot decode.

    >>> is_text(pa.string()), is_text(pa.binary(4)), is_text(pa.string_view())
    (True, False, False)
    """
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _is_string(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    named = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(named or types.is_fixed_size_binary(kind))


def _widen_plain(kinds: set[pa.DataType]) -> pa.DataType | None:
    """`widen` for types that are neither null nor encoded."""
    if len(kinds) <= 1:
        return next(iter(kinds), pa.null())
    families: tuple[tuple[Callable[[Any], bool], Callable[[set[pa.DataType]], pa.DataType | None]], ...] = (
        (_is_string, lambda _: pa.large_string()),
        (_is_binary, lambda _: pa.large_binary()),
        (types.is_integer, _widen_integers),
        (lambda kind: types.is_integer(kind) or types.is_floating(kind), _widen_floats),
        (types.is_decimal, _widen_decimals),
        (types.is_time, _finest),
        (types.is_duration, _finest),
        (types.is_timestamp, lambda kinds: _finest(kinds) if len({kind.tz for kind in kinds}) == 1 else None),
    )
    return next((common(kinds) for belongs, common in families if all(map(belongs, kinds))), None)


def _finest(kinds: set[pa.DataType]) -> pa.DataType:
    """The type of the finest unit."""
    return max(kinds, key=lambda kind: _UNITS.index(kind.unit))


def _widen_integers(kinds: set[pa.DataType]) -> pa.DataType | None:
    """The widest type if all are signed or all unsigned, else the smallest signed type that holds both; or None."""
    signed = max((kind.bit_width for kind in kinds if types.is_signed_integer(kind)), default=0)
    unsigned = max((kind.bit_width for kind in kinds if types.is_unsigned_integer(kind)), default=0)
    return SIGNED.get(max(signed, 2 * unsigned)) if signed else UNSIGNED[unsigned]


def _widen_floats(kinds: set[pa.DataType]) -> pa.DataType | None:
    """The smallest float that is as wide as the widest float and twice as wide as the widest integer; or None."""
    floats = max(kind.bit_width for kind in kinds if types.is_floating(kind))
    integers = max((kind.bit_width for kind in kinds if types.is_integer(kind)), default=0)
    return FLOATS.get(max(floats, 2 * integers))


def _widen_decimals(kinds: set[pa.DataType]) -> pa.DataType | None:
    """The decimal with as many digits before and after the point as any; None if that is more than 76 digits."""
    scale = max(kind.scale for kind in kinds)
    digits = max(kind.precision - kind.scale for kind in kinds) + scale
    if digits > 76:
        return None
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


EXACT = Context(prec=400)  # more digits than any decimal type has


class Bounds(NamedTuple):
    """The values of a type that are nearest to a literal.

    Attributes
    ----------
    down : the largest value that is at most the literal; None if there is none
    up : the smallest value that is at least the literal, the same object if the type has it; None if there is none
    """

    down: pa.Scalar | None
    up: pa.Scalar | None

    @classmethod
    def exact(cls, scalar: pa.Scalar) -> Bounds:
        """Of a literal that the type has."""
        return cls(scalar, scalar)

    @property
    def is_exact(self) -> bool:
        """Whether the type contains the value of the literal."""
        return self.down is self.up


def numbers_around(text: str, kind: pa.DataType) -> Bounds | None:
    """The values of a numeric type around a number; None for other types. Floats are rounded to the nearest.

    Examples
    --------
    >>> [[end and str(end.as_py()) for end in numbers_around(text, pa.decimal128(3, 1))]
    ...  for text in ("1.5", "1.52", "99.95", "-1e500")]
    [['1.5', '1.5'], ['1.5', '1.6'], ['99.9', None], [None, '-99.9']]
    """
    kind = pa.float32() if types.is_float16(kind) else kind  # the type it is read as
    if types.is_floating(kind):
        with np.errstate(over="ignore"):
            return Bounds.exact(pa.scalar(kind.to_pandas_dtype()(text), kind))
    number = Decimal(text)
    if types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        least, most, step = Decimal(int(limits.min)), Decimal(int(limits.max)), Decimal(1)
    elif types.is_decimal(kind):
        step = Decimal((0, (1,), -kind.scale))
        most = EXACT.multiply(step, Decimal(10**kind.precision - 1))
        least = most.copy_negate()  # a minus sign would round to 28 digits
    else:
        return None
    if not least <= number <= most:
        return Bounds(_scalar(most, kind), None) if number > 0 else Bounds(None, _scalar(least, kind))
    down, up = (_scalar(number.quantize(step, rounding, EXACT), kind) for rounding in (ROUND_FLOOR, ROUND_CEILING))
    return Bounds.exact(down) if down == up else Bounds(down, up)


def _scalar(number: Decimal, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(int(number) if types.is_integer(kind) else number, kind)


def nearest_floats(array: pa.Array) -> Array:
    """The floats nearest to the numbers of an array without nulls; Arrow rounds right when it reads texts.

    Examples
    --------
    >>> column = pa.array([Decimal("0.3")], pa.decimal128(38, 18))
    >>> nearest_floats(column), column.cast(pa.float64())[0].as_py()
    (array([0.3]), 0.30000000000000004)
    """
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.string())
    return view_numbers(array.cast(pa.float64(), safe=False))
