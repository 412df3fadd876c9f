"""Types of scores: reading an Arrow column as numbers, converting scores to rank keys and back, and missing scores.

``f4 f8 i4 i8 u8`` are NumPy types; ``d2`` is a decimal with two places, read as unscaled 64-bit integers. Rank keys are
unsigned integers that ascend from the best score to the worst; `streameval.kernels.keys` encodes them.

Missing scores, NaN and null, have no place on a curve. A state counts them separately, by label. The policy `nan` of
its spec says how they are treated: ``error`` refuses them while folding, ``drop`` leaves them out, and ``half`` counts
every pair with a missing score as one half.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streameval.errors import NullError, OptionError, SchemaError
from streameval.kernels.exact import quotients
from streameval.states.keyed.ids import row_nulls
from streameval.states.protocol import Batch, Totals
from streameval.typing import Array, ArrayLike, valid_rows, view_numbers

SIGN = np.uint64(1 << 63)


def score_type(dtype: pa.DataType, column: str = "score") -> str:
    """The type as which scores of an Arrow type are read: ``f4 f8 i4 i8 u8``, or ``d2`` for two decimal places.

    Raises
    ------
    SchemaError
        If the type is not numeric, or a decimal of more than 18 digits.

    Examples
    --------
    >>> import pyarrow as pa
    >>> score_type(pa.float16()), score_type(pa.int64()), score_type(pa.decimal128(9, 2))
    ('f4', 'i8', 'd2')
    """
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if pa.types.is_decimal(dtype) and dtype.precision <= 18:
        return f"d{dtype.scale}"
    if pa.types.is_boolean(dtype) or (
        pa.types.is_integer(dtype) and dtype.bit_width + pa.types.is_unsigned_integer(dtype) <= 32
    ):
        return "i4"
    names = {
        pa.null(): "f4",  # nothing but null scores
        pa.float16(): "f4",
        pa.float32(): "f4",
        pa.float64(): "f8",
        pa.uint32(): "i8",
        pa.int64(): "i8",
        pa.uint64(): "u8",
    }
    if dtype not in names:
        hint = "; cast it to 18 digits" if pa.types.is_decimal(dtype) else ""
        allowed = "a score is a float, an integer or a decimal of at most 18 digits"
        raise SchemaError(f"score column {column!r} has type {dtype}; {allowed}{hint}")
    return names[dtype]


def numbers(array: pa.Array, kind: str) -> Array:
    """Values of an Arrow array without nulls, of NumPy type `kind` (int64 for decimals); a view if possible."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind[0] == "d":
        unscaled = array.cast(pa.decimal128(38, int(kind[1:])))
        words = np.frombuffer(unscaled.buffers()[1], np.int64).reshape(-1, 2)
        return words[unscaled.offset : unscaled.offset + len(unscaled), 0].copy()
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    return view_numbers(array).astype(kind, copy=False)


def floats(values: Array, kind: str) -> Array:
    """Numbers of a type as floats, from the array that `numbers` returns (for decimals: unscaled).

    Examples
    --------
    >>> floats(np.array([125]), "d2"), floats(np.array([1, 2]), "i8")
    (array([1.25]), array([1., 2.]))
    """
    if kind[0] == "d":
        return quotients(values, int(kind[1:]))
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def round_thresholds(thresholds: ArrayLike | float, kind: str) -> Array:
    """Thresholds to compare scores with: for float32 scores rounded to float32, as NumPy and pandas do.

    A float32 score that is written as 0.9 therefore reaches the threshold 0.9. Float16 scores are compared as float32,
    also in `where`: 0.9 as float16 is 0.8999, which does not reach 0.9.

    Parameters
    ----------
    thresholds : a number, or a sequence of numbers
    kind : type of the scores

    Returns
    -------
    float64 array of the same shape

    Examples
    --------
    >>> round_thresholds(0.9, "f4"), round_thresholds([0.9, 1e300], "f8")
    (array(0.89999998), array([9.e-001, 1.e+300]))
    """
    found: Array = np.asarray(thresholds, np.float64)
    with np.errstate(over="ignore"):
        return found.astype(np.float32).astype(np.float64) if kind == "f4" else found


def check_threshold(threshold: float, kind: str, column: str) -> None:
    """Raise `OptionError` for a threshold in the range where float64 rounds scores of this type.

    Examples
    --------
    >>> check_threshold(2.0**50, "i8", "score"), check_threshold(2.0**60, "f8", "score")
    (None, None)
    """
    if float_limit(kind) < abs(threshold) < math.inf:
        most = f"{float_limit(kind):.3g}"
        raise OptionError(
            f"threshold={threshold!r}: float64 rounds scores of column {column!r} above {most}; choose a lower one"
        )


def float_limit(kind: str) -> float:
    """A magnitude up to which distinct scores are distinct float64 numbers; infinite for floats.

    Examples
    --------
    >>> float_limit("f4"), float_limit("u8") == 2.0**51, float_limit("d2")
    (inf, True, 22517998136852.48)
    """
    unit = 10.0 ** int(kind[1:]) if kind[0] == "d" else 1.0
    return math.inf if kind[0] == "f" else 2.0**51 / unit  # distinct also after a division by a power of ten


def enclosing(low: float, high: float, kind: str) -> Array:
    """A lower and an upper bound, as an array that `numbers` could return, of all scores from `low` to `high`.

    Examples
    --------
    >>> enclosing(0.5, float("inf"), "f4"), enclosing(-0.5, 7, "i4")
    (array([0.49999997,        inf], dtype=float32), array([-1,  8], dtype=int32))
    """
    if kind[0] == "f":
        with np.errstate(over="ignore"):
            ends = np.array([low, high]).astype(kind)
        found: Array = np.nextafter(ends, np.array([-np.inf, np.inf], kind))
        return found
    limits = np.iinfo(kind if kind in ("i4", "u8") else np.int64)
    unit = 10.0 ** int(kind[1:]) if kind[0] == "d" else 1.0
    whole = []
    for side, end in ((-1, low * unit), (1, high * unit)):
        end = min(max(end, limits.min), limits.max)
        end += side * (1 + 1e-15 * abs(end))  # scores are read as rounded floats
        whole.append(int(min(max(end, limits.min), limits.max)))
    return np.array(whole, limits.dtype)


def decode(keys: Array, kind: str) -> Array:
    """Scores of rank keys (a uint64 array), as float64.

    Examples
    --------
    >>> import numpy as np
    >>> decode(np.array([0x407FFFFF], dtype=np.uint64), "f4")
    array([1.])
    """
    if kind in ("f4", "f8"):
        rising = ~keys.astype(f"u{kind[1]}")  # of negative scores the sign bit is flipped, of others all bits are
        signs = rising.view(f"i{kind[1]}") >> (8 * rising.itemsize - 1)
        flips = (~signs | np.iinfo(signs.dtype).min).view(rising.dtype)
        return np.asarray((rising ^ flips).view(kind), np.float64)
    if kind == "i4":
        return (~keys.astype(np.uint32) ^ np.uint32(1 << 31)).view(np.int32).astype(np.float64)
    if kind == "u8":
        return (~keys).astype(np.float64)
    values = (~keys ^ SIGN).view(np.int64)
    return quotients(values, int(kind[1:])) if kind[0] == "d" else values.astype(np.float64)


def rank_keys(values: Array, kind: str) -> Array:
    """Rank keys of scores that are not NaN, as `numbers` gives them; a uint64 array.

    Examples
    --------
    >>> import numpy as np
    >>> decode(rank_keys(np.array([0.25, -3.0], np.float32), "f4"), "f4")
    array([ 0.25, -3.  ])
    """
    if values.dtype.kind == "f":
        size = 8 * values.itemsize
        bits = (values + values.dtype.type(0)).view(f"i{values.itemsize}")
        keys: Array = (bits >> (size - 1)).view(f"u{values.itemsize}")  # all bits of a negative score
        keys |= keys.dtype.type(1 << (size - 1))
        keys ^= bits.view(keys.dtype)
        return np.invert(keys, out=keys).astype(np.uint64, copy=False)
    if kind == "i4":
        return (~(values.astype(np.int32).view(np.uint32) ^ np.uint32(1 << 31))).astype(np.uint64)
    return ~(values.view(np.uint64) ^ (np.uint64(0) if kind == "u8" else SIGN))


def present(batch: Batch, column: str, kind: str, *, nan: bool = True) -> tuple[Array, Array | slice, Array]:
    """The scores of a batch that are not missing, as `numbers` gives them, their rows, and the rows of missing scores.

    If `nan` is False, NaN scores count as present.

    Examples
    --------
    >>> batch = Batch(np.zeros(3, np.uint8), None, {"score": pa.array([0.5, None, 0.25])})
    >>> present(batch, "score", "f8")
    (array([0.5 , 0.25]), array([0, 2]), array([1]))
    """
    array = row_nulls(batch.columns[column])
    values = numbers(array.drop_null() if array.null_count else array, kind)
    lost = np.isnan(values) if nan and values.dtype.kind == "f" else np.zeros(0, np.bool_)
    if values.size == len(array) and not lost.any():
        return values, slice(None), np.empty(0, np.int64)
    there = valid_rows(array)
    if lost.any():
        there[np.flatnonzero(there)[lost]], values = False, values[~lost]
    return values, np.flatnonzero(there), np.flatnonzero(~there)


class MissingScores:
    """Base of specs of a score column with a policy `nan` for missing scores: ``error``, ``drop`` or ``half``."""

    column: str
    nan: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)


def refuse_nan(policy: str, seen: Array | np.bool_ | bool, name: str, column: str) -> None:
    """Raise `NullError` if NaN scores were seen and the policy is ``error``."""
    if policy == "error" and np.any(seen):
        raise NullError(
            f"{name}: score column {column!r} has NaN or null scores; choose nan='drop' (--nan drop); for roc_auc, agc "
            "and gini, evaluate also takes 'half'"
        )


def halved_rows(state: Any) -> int:
    """Number of rows whose missing score counts one half in every pair; 0 under any other policy."""
    halved = isinstance(state.spec, MissingScores) and state.spec.nan == "half"
    return int(state.nan_rows.sum()) if halved else 0


def halved(state: Any) -> Totals:
    """Totals of the rows that `halved_rows` counts, in the weight unit of the state."""
    if not halved_rows(state):
        return Totals(0, 0, 0.0, 0.0)
    (neg, pos), unit = state.nan_rows.tolist(), state.totals().unit
    weights = np.ldexp(state.nan_weights, -unit).tolist()
    return Totals(neg, pos, weights[0], weights[1], state.spec.weighted, unit)


def numbers_only(state: Any) -> Any:
    """The same score state without its missing scores."""
    if not state.nan_rows.any():
        return state
    return replace(state, nan_rows=np.zeros(2, np.int64), nan_weights=np.zeros(2), nan_errors=np.zeros(2))
