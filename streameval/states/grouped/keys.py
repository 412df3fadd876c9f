"""Keys: how the rows of a batch are divided into groups.

Every group has a *name* (`streameval.states.grouped.table`), which is determined by its values alone.

The block of a unit, for resampling, is a keyed 64-bit hash of the unit's id: ``mix(w ^ K) % count``. ``mix`` is the
finalizer of MurmurHash3 (x64), K is 0x243F6A8885A308D3, and w is the id: an integer as its 64-bit two's complement, a
string or binary as the first word of its MurmurHash3_x64_128. If each row is a unit, w = ``mix(row ^ K) ^ f``, where
row is its number in its sequence and f is the first word of the hash of the sequence's name
(`streameval.scan.pieces`); in a store, every night is a sequence. These definitions are permanent, because the
blocks of different nights, scores and slices must line up. Evaluations record their version, `UNIT_HASH`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import OptionError, SchemaError, WeightError
from streameval.kernels.blocks import row_blocks
from streameval.kernels.groups import mark_codes, recode_rows
from streameval.kernels.jit import read_only
from streameval.kinds import unit_columns
from streameval.states.blocks import BLOCKS, block_codes
from streameval.states.grouped.table import (
    binary,
    frame_texts,
    hashable,
    nulls,
    parts_of,
    tag_values,
    type_tag,
    value_of,
)
from streameval.states.keyed.ids import hash_bytes, id_type, identify, row_nulls
from streameval.typing import pack_bits, valid_rows
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streameval.states.protocol import Batch
    from streameval.typing import Array

Group = Any  # tuple of values for `By`, block number for `Blocks`

UNIT_HASH = 2  # version of the definition of blocks above

UNLABELLED = b"2:i0"  # name of the group of all rows without a label, if these have no strata
_MIXED = np.uint64(0x9E3779B97F4A7C15)  # an odd number, by which the first of two ids differs from the second
_MOST_BLOCKS = 1 << 16
_DENSE = 1 << 12  # integers in a range of this size are used as codes directly


@dataclass(frozen=True, eq=False)
class Split:
    """The groups of a batch.

    Attributes
    ----------
    raw : uint32 array of shape (n,), a code for each row
    places : int64 array of shape (n_codes,), the index in `names` of the group of each code that occurs
    names : large_binary Arrow array of length n_groups, distinct; every group has rows
    """

    raw: Array
    places: Array
    names: pa.Array

    @cached_property
    def codes(self) -> Array:
        """The group of each row as an index into `names`: an int64 array of shape (n,)."""
        codes: Array = recode_rows(self.raw, self.places)
        return codes


@dataclass(frozen=True)
class By:
    """One group for each value of a column, or for each tuple of values of several columns; null is a value.

    Parameters
    ----------
    columns : tuple of str
        Columns of booleans, numbers, strings, binaries, dates or times. −0.0 equals 0.0; all NaNs are one value.
    most : int, optional
        Largest number of groups, checked while rows are folded; not part of the key's identity.
    remedy : str
        What to do if there are more, for the message.

    Raises
    ------
    OptionError
        If there are no columns, or a column is repeated.

    Examples
    --------
    >>> from streameval.states.protocol import Batch
    >>> batch = Batch(np.zeros(3, np.uint8), None, {"country": pa.array(["DE", None, "DE"])})
    >>> By(("country",)).split(batch).codes, [By(("country",)).group(b"3:sDE"), By(("country",)).group(b"1:n")]
    (array([0, 1, 0]), [('DE',), (None,)])
    """

    columns: tuple[str, ...]
    most: int | None = field(default=None, compare=False)
    remedy: str = field(default="slice by a column of fewer values", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, tuple) or not self.columns:
            raise OptionError(f"by={self.columns!r} is not a tuple of columns")
        twice = [name for name in dict.fromkeys(self.columns) if self.columns.count(name) > 1]
        if twice:
            raise OptionError(f"by={','.join(self.columns)!r} names {twice[0]!r} twice; name each column once")

    def split(self, batch: Batch) -> Split:
        """The group of each row."""
        parts = [_codes_of(batch.columns[name], name, batch.name) for name in self.columns]
        raw, index = parts[0][0], [np.arange(len(parts[0][1]))]  # for each code, indices into the texts of each column
        for more, texts in parts[1:]:
            raw, index = _pair_codes(raw, index, more, len(texts))
        raw, distinct, places = _occurring(raw, index[0].size)
        occurring = (texts.take(pa.array(at[distinct])) for at, (_, texts) in zip(index, parts, strict=True))
        named = [
            frame_texts(_readable(texts, batch, name)) for name, texts in zip(self.columns, occurring, strict=True)
        ]
        return Split(raw, places, pc.binary_join_element_wise(*named, binary(b"")))

    def group(self, name: bytes) -> Group:
        """The values of a group: None for null; dates and times as text. Raises `ValueError` for other bytes."""
        try:
            values = tuple(value_of(part.partition(b":")[2]) for part in parts_of(name))
        except (KeyError, ValueError, ArithmeticError):
            values = ()
        if len(values) != len(self.columns):
            raise ValueError(f"{name!r} is not the name of a slice by {', '.join(self.columns)}")
        return values

    def fields(self) -> dict[str, list[str]]:
        """The key as plain JSON values."""
        return {"by": list(self.columns)}

    def check(self, found: int, names: Callable[[], Iterable[bytes]] = tuple, *, more: bool = False) -> None:
        """Raise `OptionError` if there are too many groups.

        Parameters
        ----------
        found : number of groups
        names : returns the names of the groups, for the message
        more : whether there may be further groups
        """
        if self.most is not None and found > self.most:
            slices = f"{plural(found, 'slice')}{' or more' * more}{self._most_values(names())}"
            raise OptionError(
                f"by={','.join(self.columns)!r}: {slices}, more than max_slices={self.most:,}; {self.remedy}",
                "max_slices",
            )

    def _most_values(self, names: Iterable[bytes]) -> str:
        """For several columns, a note for the message on the column with the most values; else empty."""
        values = [len(set(column)) for column in zip(*map(parts_of, names), strict=True)]
        if len(self.columns) == 1 or not values:
            return ""
        return f" ({self.columns[int(np.argmax(values))]} alone has {plural(max(values), 'value')} or more)"


@dataclass(frozen=True)
class Blocks:
    """Random blocks of units, for resampling; groups are the block numbers that occur.

    Parameters
    ----------
    unit : str, optional
        Column of ids of the unit, such as a campaign: integers, strings or binaries. Rows with equal ids are in the
        same block; each row with a null is a separate unit. Without a column, every row is a unit. ``a,b`` are the
        units of rows that agree in both columns; a name with a comma is in quotes.
    count : int
        Number of blocks, from 2 to 65,536.

    Raises
    ------
    OptionError
        If `count` is out of its range.

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
            raise OptionError(f"{self.count!r} blocks are not between 2 and {_MOST_BLOCKS:,}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return unit_columns(self.unit)

    def split(self, batch: Batch) -> Split:
        """The block of each row."""
        raw, blocks, places = _occurring(read_only(self.numbers(batch).astype(np.uint32)), self.count)
        return Split(raw, places, frame_texts(tag_values(pa.array(blocks), b"i")))

    def named(self, number: int) -> bytes:
        """The name of a block."""
        name: bytes = frame_texts(tag_values(pa.array([number]), b"i"))[0].as_py()
        return name

    def numbers(self, batch: Batch) -> Array:
        """The block number of each row, as a uint16 array; computed once for all states of a batch."""
        numbers: Array = batch.once(self, self._numbers)
        return numbers

    def _numbers(self, batch: Batch) -> Array:
        if self.unit is None:
            return read_only(_of_rows(batch, self.count))
        arrays = [row_nulls(batch.columns[column]) for column in self.columns]
        if not any(array.null_count for array in arrays):
            return read_only(self._hash(arrays))
        every = np.logical_and.reduce([valid_rows(array) for array in arrays])
        numbers, there = _of_rows(batch, self.count), pack_bits(every)
        numbers[every] = self._hash([array.filter(there) for array in arrays])
        return read_only(numbers)

    def _hash(self, arrays: Sequence[pa.Array]) -> Array:
        """The block of each id; of a dictionary, each entry is hashed once, unless it has more entries than rows."""
        array, *others = arrays
        if not others and pa.types.is_dictionary(array.type) and len(array.dictionary) <= len(array):
            blocks: Array = self._hash([array.dictionary])[array.indices.to_numpy(zero_copy_only=False)]
            return blocks
        pairs = zip(arrays, self.columns, strict=True)
        words, *more = (identify(one, id_type(one.type, column))[0] for one, column in pairs)
        for word in more:
            words = words * _MIXED + word
        return block_codes(words, self.count)

    def group(self, name: bytes) -> Group:
        """The number of a block; raises `ValueError` if there is no such block."""
        block = int(name.partition(b":")[2][1:])
        if name != self.named(block) or not 0 <= block < self.count:
            raise ValueError(f"{name!r} is not the name of one of {self.count} blocks")
        return block

    def check(self, found: int, names: Callable[[], Iterable[bytes]] = tuple, *, more: bool = False) -> None:
        """Do nothing: the number of blocks is the user's choice."""

    def fields(self) -> dict[str, str | int | None]:
        """The key as plain JSON values."""
        return {"unit": self.unit, "count": self.count}


@dataclass(frozen=True)
class Labelled:
    """Rows with a label by the stratum or the unit that they were drawn by, and all other rows.

    A group begins with a number: 0 for rows without a label. For the others it is their block plus 1 if rows were drawn
    singly, and 1 if whole units were drawn. Then follows the stratum, or the unit of a labelled row.

    Parameters
    ----------
    strata : str, optional
        Column of the strata in which rows were drawn.
    unit : str, optional
        Column of the units that were drawn; excludes `strata`.
    probability : str, optional
        Column of the probabilities with which the labelled rows were drawn.

    Examples
    --------
    >>> from streameval.states.protocol import Batch
    >>> columns = {"campaign": pa.array([7, 8, 7])}
    >>> batch = Batch(np.zeros(3, np.uint8), None, columns, labelled=np.array([True, False, True]))
    >>> split = Labelled(unit="campaign").split(batch)
    >>> split.codes, [Labelled(unit="campaign").group(name) for name in split.names.to_pylist()]
    (array([1, 0, 1]), [(0,), (1, 7)])
    """

    strata: str | None = None
    unit: str | None = None
    probability: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return tuple(name for name in (self.strata, self.unit, self.probability) if name is not None)

    def split(self, batch: Batch) -> Split:
        """The group of each row."""
        labelled = np.ones(batch.label.size, np.bool_) if batch.labelled is None else batch.labelled
        numbers = labelled.astype(np.uint32)
        if self.unit is None:
            numbers *= Blocks().numbers(batch).astype(np.uint32) + np.uint32(1)
        names, codes = pa.array([b""], pa.large_binary()), np.zeros(labelled.size, np.uint32)
        if self.strata is not None:
            split = By((self.strata,)).split(batch)
            names, codes = split.names, split.codes.astype(np.uint32)
        elif self.unit is not None and labelled.any():
            split = By((self.unit,)).split(batch.taken(np.flatnonzero(labelled), (self.unit,)))
            names = pa.concat_arrays([names, split.names])
            codes[labelled] = split.codes + 1
        pairs = numbers * np.uint32(len(names)) + codes
        raw, distinct, places = _occurring(read_only(pairs), (BLOCKS + 1) * len(names))
        firsts = frame_texts(tag_values(pa.array(distinct // len(names)), b"i"))
        seconds = names.take(pa.array(distinct % len(names)))
        return Split(raw, places, pc.binary_join_element_wise(firsts, seconds, binary(b"")))

    def weighed(self, batch: Batch) -> Batch:
        """The rows with the inverse of their probability as weight, those without a label with 1.

        Raises
        ------
        WeightError
            If the probability of a labelled row is not above 0 and at most 1.
        """
        weight = np.ones(batch.label.size)
        rows = np.arange(weight.size) if batch.labelled is None else np.flatnonzero(batch.labelled)
        given = batch.columns[str(self.probability)].take(pa.array(rows))
        try:
            probabilities = given.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            probabilities = np.full(rows.size, np.nan)
        wrong = ~((probabilities > 0) & (probabilities <= 1))
        if wrong.any():
            bad = given[int(np.argmax(wrong))].as_py()
            raise WeightError(
                f"{batch.name}: column {self.probability!r} has {bad!r} for a labelled row; give the probability with "
                "which it was drawn, above 0 and at most 1"
            )
        weight[rows] = 1 / probabilities
        return replace(batch, weight=weight)

    def group(self, name: bytes) -> Group:
        """The number and the stratum or unit of a group."""
        return tuple(value_of(part.partition(b":")[2]) for part in parts_of(name))

    def check(self, found: int, names: Callable[[], Iterable[bytes]] = tuple, *, more: bool = False) -> None:
        """Do nothing: labels are few."""

    def fields(self) -> dict[str, str | None]:
        """The key as plain JSON values."""
        return {"strata": self.strata, "unit": self.unit, "probability": self.probability}


Key = By | Blocks | Labelled  # divides rows into groups; frozen and hashable


def read_key(fields: dict[str, Any]) -> Key:
    """The key that `Key.fields` describes.

    Examples
    --------
    >>> read_key(Blocks("campaign").fields())
    Blocks(unit='campaign', count=128)
    """
    if "by" in fields:
        return By(tuple(fields["by"]))
    return Labelled(**fields) if "strata" in fields else Blocks(**fields)


def rank(group: Group) -> Any:
    """Sort key for groups, which orders numbers first, then NaN, texts, binaries and null."""
    if not isinstance(group, tuple):
        return group
    kinds = ((value is None, isinstance(value, bytes), isinstance(value, str), value != value) for value in group)
    return tuple((*kind, 0 if value is None else value) for kind, value in zip(kinds, group, strict=True))


def _of_rows(batch: Batch, count: int) -> Array:
    """The block of each row, if rows are units, from its sequence and its number in it."""
    sequence = np.uint64(hash_bytes(batch.origin.encode(errors="surrogateescape"))[0])
    kept = np.empty(0, np.int64) if batch.kept is None else read_only(batch.kept)
    blocks: Array = row_blocks(batch.row, batch.label.size, kept, sequence, count)
    return blocks


def _occurring(raw: Array, bound: int) -> tuple[Array, Array, Array]:
    """The codes of the rows, the distinct codes in ascending order, and the index of each code among these.

    Codes are below `bound`; if it is large, rows get new, consecutive codes.
    """
    if bound > max(1 << 16, 4 * raw.size):
        distinct, raw = np.unique(raw, return_inverse=True)
        return read_only(raw.astype(np.uint32)), distinct, np.arange(distinct.size)
    occurs = np.zeros(bound, np.bool_)
    mark_codes(raw, occurs)
    return raw, np.flatnonzero(occurs), np.cumsum(occurs) - 1


def _pair_codes(raw: Array, index: list[Array], more: Array, count: int) -> tuple[Array, list[Array]]:
    """Combine two codes of each row into one: `raw`, whose values `index` describes, and `more`, below `count`."""
    bound = index[0].size * count
    if bound <= max(_DENSE, min(1 << 16, raw.size // 4)):
        raw = raw * np.uint32(count)
        raw += more
        distinct = np.arange(bound)
    else:
        distinct, raw = np.unique(raw * np.int64(count) + more, return_inverse=True)
        raw = raw.astype(np.uint32)
    return read_only(raw), [*(old[distinct // count] for old in index), distinct % count]


def _readable(texts: pa.Array, batch: Batch, column: str) -> pa.Array:
    """Tagged texts; raises `SchemaError` if those of a column of strings are not UTF-8, as slices are shown by them."""
    if type_tag(batch.columns[column].type, column, batch.name) == b"s":
        try:
            texts.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise SchemaError(
                f"{batch.name}: column {column!r} has a string that is not UTF-8; write it as UTF-8, or as binary"
            ) from None
    return texts


def _codes_of(array: pa.Array, column: str, file: str) -> tuple[Array, pa.Array]:
    """A uint32 code for each row, and the tagged text of each code; texts are distinct, and some may not occur."""
    tag = type_tag(array.type, column, file)
    if tag == b"i" and len(array) and not pa.types.is_dictionary(array.type) and not array.null_count:
        values = array.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < _DENSE and high < (1 << 63) - 1:  # no hash table is needed
            codes = (values.astype(np.int64, copy=False) - low).astype(np.uint32)  # no difference of int8 exceeds int64
            return read_only(codes), tag_values(pa.array(np.arange(low, high + 1)), tag)
    encoded = array if pa.types.is_dictionary(array.type) else hashable(array).dictionary_encode(null_encoding="encode")
    codes, values = encoded.indices, encoded.dictionary
    texts = tag_values(values, tag)
    if codes.null_count:  # a dictionary's own nulls
        codes, texts = pc.fill_null(codes.cast(pa.int64()), len(texts)), pa.concat_arrays([texts, nulls(1)])
    codes = codes.to_numpy(zero_copy_only=False)
    codes = codes.view(np.uint32) if codes.dtype == np.int32 else codes.astype(np.uint32)
    distinct = texts.dictionary_encode()
    if len(distinct.dictionary) < len(texts):
        codes, texts = distinct.indices.to_numpy()[codes].astype(np.uint32), distinct.dictionary
    return read_only(codes), texts
