"""Keys: how the rows of a batch are divided into groups.

Every group has a *name*, a byte string that follows from its values alone: for each column the length of a tagged text,
a colon and the text, such as ``3:sDE`` for the string ``DE`` or ``2:i7`` for the integer 7. Equal values have equal
names in all files and on all workers, whatever the width of their type.

Blocks for resampling are drawn by a keyed 64-bit hash of the unit's id: ``mix(w ^ K) % count``. ``mix`` is the
finalizer of MurmurHash3 (x64), K is 0x243F6A8885A308D3, and w is the id: an integer as its 64-bit two's complement, a
string or binary as the first word of its MurmurHash3_x64_128. A row that is its own unit has w = ``mix(row ^ K) ^ f``,
where row is its offset in the file, and f the first word of the hash of the file's path relative to the input. These
definitions are permanent: blocks of different nights, scores and slices must line up. Evaluations record their version,
`UNIT_HASH`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import OptionError, SchemaError
from streameval.kernels.blocks.changes import row_blocks
from streameval.kernels.grouped.weave import mark_codes, recoded_rows
from streameval.kernels.hashing import hash_bytes
from streameval.kernels.jit import read_only
from streameval.states.blocks import BLOCKS, block_codes
from streameval.states.keyed.ids import id_type, identify
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["UNIT_HASH", "Blocks", "By", "Group", "Key", "Split", "parts_of", "read_key", "slice_type", "tag_of"]

Group = Any  # a tuple of values for `By`, a block number for `Blocks`

UNIT_HASH = 1  # version of the definition of blocks above

_NAN = float("nan")  # one object, so that tuples that hold it are equal
_MOST_BLOCKS = 1 << 16
_DENSE = 1 << 12  # integers of such a range are codes themselves


@dataclass(frozen=True, eq=False)
class Split:
    """The groups of a batch.

    Attributes
    ----------
    raw : uint32 array of shape (n,), a code for each row
    places : int64 array of shape (n_codes,), the group of each code that occurs as an index into `names`
    names : large_binary Arrow array of length n_groups, distinct; each occurs
    """

    raw: Array
    places: Array
    names: pa.Array

    @cached_property
    def codes(self) -> Array:
        """The group of each row as an index into `names`: an int64 array of shape (n,)."""
        found: Array = recoded_rows(self.raw, self.places)
        return found


class Key(Protocol):
    """Divides rows into groups; frozen and hashable."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""

    def split(self, batch: Batch) -> Split:
        """The group of each row."""

    def group(self, name: bytes) -> Group:
        """The group with a name, as `Grouped.groups` shows it."""

    def fields(self) -> dict[str, Any]:
        """The key as plain JSON values, which `read_key` reads."""

    def check(self, found: int, *, more: bool = False) -> None:
        """Raise `OptionError` if these are too many groups; `more` says that there may be more."""


@dataclass(frozen=True)
class By:
    """One group for each value of a column, or for each tuple of values of several columns; null is a value.

    Parameters
    ----------
    columns : tuple of str
        Columns of booleans, numbers, strings, binaries, dates or times. −0.0 equals 0.0; all NaN are one value.
    most : int, optional
        More groups are refused while rows are folded. No part of what the key is.

    Examples
    --------
    >>> from streameval.states.protocol import Batch
    >>> batch = Batch(np.zeros(3, np.uint8), None, {"country": pa.array(["DE", None, "DE"])})
    >>> By(("country",)).split(batch).codes, [By(("country",)).group(b"3:sDE"), By(("country",)).group(b"1:n")]
    (array([0, 1, 0]), [('DE',), (None,)])
    """

    columns: tuple[str, ...]
    most: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, tuple) or not 0 < len(self.columns) == len(set(self.columns)):
            msg = f"by={self.columns!r} is not a tuple of columns, each named once"
            raise OptionError(msg)

    def split(self, batch: Batch) -> Split:
        """The group of each row."""
        parts = [_coded(batch.columns[name], name, batch.name) for name in self.columns]
        raw, index = parts[0][0], [np.arange(len(parts[0][1]))]  # of each code in the texts of each column
        for more, texts in parts[1:]:
            raw, index = _paired(raw, index, more, len(texts))
        raw, found, places = _occurring(raw, index[0].size)
        named = [_framed(texts.take(pa.array(at[found]))) for at, (_, texts) in zip(index, parts, strict=True)]
        return Split(raw, places, pc.binary_join_element_wise(*named, _bytes(b"")))

    def group(self, name: bytes) -> Group:
        """The values of a group: None for null; dates and times as text."""
        return tuple(_value(part.partition(b":")[2]) for part in parts_of(name))

    def fields(self) -> dict[str, Any]:
        """The key as plain JSON values."""
        return {"by": list(self.columns)}

    def check(self, found: int, *, more: bool = False) -> None:
        """Raise `OptionError` if these are too many groups; `more` says that there may be more."""
        if self.most is not None and found > self.most:
            msg = (
                f"by={','.join(self.columns)!r}: {plural(found, 'slice')}{' or more' * more}, more than "
                f"max_slices={self.most:,}; slice by a column of fewer values, keep some with where (--where), take "
                "the mean over them (--mean-over), or raise max_slices (--max-slices)"
            )
            raise OptionError(msg)


@dataclass(frozen=True)
class Blocks:
    """Random blocks of units, for resampling; groups are the block numbers that occur.

    Parameters
    ----------
    unit : str, optional
        Column of ids whose rows stay together: a campaign, say. Integers, strings or binaries. Each row with
        a null is a separate unit. Without a column every row is a unit.
    count : int
        Number of blocks, from 2 to 65,536.

    Examples
    --------
    >>> from streameval.states.protocol import Batch
    >>> batch = Batch(np.zeros(3, np.uint8), None, {"campaign": pa.array([7, 8, 7])})
    >>> split = Blocks("campaign", 4).split(batch)
    >>> split.codes, [Blocks("campaign", 4).group(name) for name in split.names.to_pylist()]
    (array([1, 0, 1]), [0, 1])
    """

    unit: str | None = None
    count: int = BLOCKS

    def __post_init__(self) -> None:
        if not (isinstance(self.count, int) and 2 <= self.count <= _MOST_BLOCKS):
            msg = f"{self.count!r} blocks are not between 2 and {_MOST_BLOCKS:,}"
            raise OptionError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return () if self.unit is None else (self.unit,)

    def split(self, batch: Batch) -> Split:
        """The block of each row."""
        raw, found, places = _occurring(read_only(self.numbers(batch).astype(np.uint32)), self.count)
        return Split(raw, places, _framed(_text(pa.array(found), b"i")))

    def named(self, number: int) -> bytes:
        """The name of a block."""
        name: bytes = _framed(_text(pa.array([number]), b"i"))[0].as_py()
        return name

    def numbers(self, batch: Batch) -> Array:
        """The number of the block of each row, as a uint16 array."""
        if self.unit is None:
            return _of_rows(batch, self.count)
        array = batch.columns[self.unit]
        if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
            array = array.dictionary_decode()
        kind = id_type(array.type, self.unit)
        if not array.null_count:
            return block_codes(identify(array, kind)[0], self.count)
        found, valid = _of_rows(batch, self.count), array.is_valid().to_numpy(zero_copy_only=False)
        found[valid] = block_codes(identify(array.drop_null(), kind)[0], self.count)
        return found

    def group(self, name: bytes) -> Group:
        """The number of a block."""
        return int(name.partition(b":")[2][1:])

    def check(self, found: int, *, more: bool = False) -> None:
        """Accept: there are as many as were asked for."""

    def fields(self) -> dict[str, Any]:
        """The key as plain JSON values."""
        return {"unit": self.unit, "count": self.count}


@lru_cache(maxsize=1 << 15)
def parts_of(name: bytes) -> tuple[bytes, ...]:
    """The name of a group of several columns, column by column.

    Examples
    --------
    >>> parts_of(b"3:sDE2:i7")
    (b'3:sDE', b'2:i7')
    """
    parts = []
    while name:
        size = name.partition(b":")[0]
        end = len(size) + 1 + int(size)
        parts.append(name[:end])
        name = name[end:]
    return tuple(parts)


def tag_of(part: bytes) -> bytes:
    """The tag of a value in a name: what kind of value it is, such as ``s`` for a text.

    Examples
    --------
    >>> tag_of(b"3:sDE"), tag_of(b"1:n")
    (b's', b'n')
    """
    return part.partition(b":")[2][:1]


def slice_type(kind: pa.DataType, column: str, file: str) -> str:
    """What decides the names of a column's values as slices: files in which it differs cannot be merged.

    It is a tag where names do not depend on the width of a type, else the type; empty for the type of nulls alone.

    Raises
    ------
    SchemaError
        If the values of the type are not plain.

    Examples
    --------
    >>> slice_type(pa.int8(), "length", "f"), slice_type(pa.float32(), "ratio", "f"), slice_type(pa.null(), "x", "f")
    ('i', 'float', '')
    """
    tag = _tag(kind, column, file)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "" if tag == b"n" else tag.decode() if tag in (b"b", b"i", b"s", b"x") else str(plain)


def read_key(fields: dict[str, Any]) -> Key:
    """The key that `Key.fields` describes.

    Examples
    --------
    >>> read_key(Blocks("campaign").fields())
    Blocks(unit='campaign', count=128)
    """
    return By(tuple(fields["by"])) if "by" in fields else Blocks(**fields)


def _of_rows(batch: Batch, count: int) -> Array:
    """The block of each row, where it is a unit, from its file and offset."""
    file = np.uint64(hash_bytes(batch.origin.encode(errors="surrogateescape"))[0])
    rows = batch.label.size if batch.kept is None else int(batch.kept.max(initial=-1)) + 1
    found: Array = row_blocks(batch.row, rows, file, count)
    return found if batch.kept is None else found[batch.kept]


def _occurring(raw: Array, bound: int) -> tuple[Array, Array, Array]:
    """Codes below `bound` of rows, those that occur, ascending, and the place of each code among them.

    Codes are others than those given where they may be many.
    """
    if bound > max(1 << 16, 4 * raw.size):
        found, raw = np.unique(raw, return_inverse=True)
        return read_only(raw.astype(np.uint32)), found, np.arange(found.size)
    occurs = np.zeros(bound, np.bool_)
    mark_codes(raw, occurs)
    return raw, np.flatnonzero(occurs), np.cumsum(occurs) - 1


def _paired(raw: Array, index: list[Array], more: Array, count: int) -> tuple[Array, list[Array]]:
    """Codes of pairs: of codes that stand for some values, and of further codes below `count`."""
    bound = index[0].size * count
    if bound <= max(_DENSE, min(1 << 16, raw.size // 4)):
        raw = raw * np.uint32(count)
        raw += more
        found = np.arange(bound)
    else:
        found, raw = np.unique(raw * np.int64(count) + more, return_inverse=True)
        raw = raw.astype(np.uint32)
    return read_only(raw), [*(old[found // count] for old in index), found % count]


def _coded(array: pa.Array, column: str, file: str) -> tuple[Array, pa.Array]:
    """The values of a column as uint32 codes, and the text of each code; all texts are distinct, some may not occur."""
    tag = _tag(array.type, column, file)
    if tag == b"i" and len(array) and not pa.types.is_dictionary(array.type) and not array.null_count:
        values = array.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < _DENSE and high < (1 << 63) - 1:  # which needs no hash table
            codes = (values - values.dtype.type(low)).astype(np.uint32)
            return read_only(codes), _text(pa.array(np.arange(low, high + 1)), tag)
    encoded = array if pa.types.is_dictionary(array.type) else _plain(array).dictionary_encode(null_encoding="encode")
    codes, values = encoded.indices, encoded.dictionary
    texts = _text(values, tag)
    if codes.null_count:  # a dictionary's own nulls
        codes, texts = pc.fill_null(codes.cast(pa.int64()), len(texts)), pa.concat_arrays([texts, _nulls(1)])
    codes = codes.to_numpy(zero_copy_only=False)
    codes = codes.view(np.uint32) if codes.dtype == np.int32 else codes.astype(np.uint32)
    distinct = texts.dictionary_encode()
    if len(distinct.dictionary) < len(texts):
        codes, texts = distinct.indices.to_numpy()[codes].astype(np.uint32), distinct.dictionary
    return read_only(codes), texts


def _plain(array: pa.Array) -> pa.Array:
    """The array with a type that Arrow can hash."""
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


_TAGS: tuple[tuple[bytes, tuple[Any, ...]], ...] = (
    (b"n", (pa.types.is_null,)),
    (b"b", (pa.types.is_boolean,)),
    (b"i", (pa.types.is_integer,)),
    (b"f", (pa.types.is_floating,)),
    (b"d", (pa.types.is_decimal,)),
    (b"s", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (b"x", (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)),
    (b"t", (pa.types.is_date, pa.types.is_timestamp, pa.types.is_time)),
)


def _tag(kind: pa.DataType, column: str, file: str) -> bytes:
    """The tag of a type; raises `SchemaError` where its values are not plain."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tag = next((tag for tag, tests in _TAGS if any(test(kind) for test in tests)), None)
    if tag is None:
        msg = f"{file}: column {column!r} has type {kind}; rows are grouped by plain values: cast it"
        raise SchemaError(msg)
    return tag


def _text(values: pa.Array, tag: bytes) -> pa.Array:
    """Each value as tagged text."""
    if tag == b"n":
        return _nulls(len(values))
    if tag == b"f":
        values = pc.add(_plain(values), pa.scalar(0.0, _plain(values).type))  # −0.0 becomes 0.0
    text = values if tag == b"x" else values.cast(pa.string())
    joined = pc.binary_join_element_wise(_bytes(tag), text.cast(pa.large_binary()), _bytes(b""))
    return pc.fill_null(joined, _bytes(b"n"))


def _bytes(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _nulls(size: int) -> pa.Array:
    return pa.array([b"n"] * size, pa.large_binary())


def _framed(texts: pa.Array) -> pa.Array:
    """Each text with its length in front."""
    lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.large_binary())
    return pc.binary_join_element_wise(lengths, texts, _bytes(b":"))


_VALUES: dict[bytes, Callable[[bytes], Any]] = {
    b"n": lambda _: None,
    b"b": lambda text: text == b"true",
    b"i": int,
    b"f": lambda text: _NAN if text == b"nan" else float(text),
    b"d": lambda text: Decimal(text.decode()),
    b"s": bytes.decode,
    b"x": bytes,
    b"t": bytes.decode,
}


def _value(text: bytes) -> Any:
    """The value of a tagged text."""
    return _VALUES[text[:1]](text[1:])
