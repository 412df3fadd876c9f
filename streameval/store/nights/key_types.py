"""Key types of a store's columns: scores, ids and slices of later nights are widened to them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from streameval.errors import FormatError, SchemaError
from streameval.scan import Scan, widened
from streameval.scan.columns import without_views
from streameval.scan.widen import plain
from streameval.states.grouped.table import slice_type
from streameval.states.keyed.ids import id_type
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ARROW = {
    "f4": pa.float32(),
    "f8": pa.float64(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "u8": pa.uint64(),
    "signed": pa.int64(),
    "unsigned": pa.uint64(),
    "hash": pa.large_string(),
}


COMPUTED = "computed"  # the type of a slicing column that is computed, since the data lack it
_SLICES = {"b": pa.bool_(), "i": pa.int64(), "s": pa.large_string(), "x": pa.large_binary()}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type for a key type, such as ``f4``, ``hash``, or ``d2`` (decimals with two places).

    Raises
    ------
    FormatError
        If there is no such key type, so that the ledger it is from is damaged.
    """
    if isinstance(kind, str):
        if kind in _ARROW:
            return _ARROW[kind]
        if re.fullmatch(r"d\d{1,2}", kind):
            return pa.decimal128(18, int(kind[1:]))
    raise _unknown_type_error(kind)


def key_type(field: pa.Field, numbers: Sequence[str]) -> str:
    """The key type of a column; `numbers` names the score and sketch columns, all others are ids."""
    kind = score_type if field.name in numbers else id_type
    return kind(field.type, field.name)


def widen_columns(planned: Scan, types: Mapping[str, str], numbers: Sequence[str], slices: Mapping[str, str]) -> Scan:
    """Widen the columns of a scan to the store's key types.

    Parameters
    ----------
    planned : the scan, with the types of the files
    types : key types of the store's columns
    numbers : score and sketch columns
    slices : types of slicing columns, see `slice_type`

    Raises
    ------
    SchemaError
        If a column's type cannot be widened to the store's type.
    """
    fields = []
    for field in without_views(planned.schema):
        kind, sliced = types.get(field.name), slices.get(field.name)
        if kind is not None and not _has_key_type(field, numbers, kind):
            field = _widen(field, planned, arrow_type(kind), "holds")
        if sliced and slice_type(field.type, field.name, planned.pieces[0].name) not in (sliced, ""):
            field = _widen(field, planned, slices_arrow_type(sliced), "slices by")
        fields.append(field)
    return replace(planned, schema=pa.schema(fields))


def slices_arrow_type(kind: str) -> pa.DataType:
    """The Arrow type for a result of `slice_type`; raises `FormatError` as `arrow_type`."""
    if not isinstance(kind, str):
        raise _unknown_type_error(kind)
    if kind in _SLICES:
        return _SLICES[kind]
    with suppress(ValueError):
        if match := re.fullmatch(r"decimal(32|64|128|256)\((\d{1,2}), (\d{1,2})\)", kind):
            return (pa.decimal256 if match[1] == "256" else pa.decimal128)(int(match[2]), int(match[3]))
        if match := re.fullmatch(r"timestamp\[(\w{1,2}), tz=(.+)\]", kind):
            return pa.timestamp(match[1], match[2])
        return pa.type_for_alias(kind)
    raise _unknown_type_error(kind)


def _unknown_type_error(kind: object) -> FormatError:
    """The error for a type that no column has."""
    msg = f"the ledger has a column of type {str(kind)[:60]!r}, which no column has; restore the ledger from a backup"
    return FormatError(msg)


def _widen(field: pa.Field, planned: Scan, kind: pa.DataType, does: str) -> pa.Field:
    """Widen a column to a type; `does` is the verb of the message.

    Raises
    ------
    SchemaError
        If the type cannot hold all values of the column's type.
    """
    if widened([field.type, kind]) == kind:
        return field.with_type(kind)
    own = plain(planned.schema.field(field.name).type)
    raise SchemaError(
        f"{planned.pieces[0].name}: column {field.name!r} is {own}, but the store {does} "
        f"{kind}, fixed by its first update, and the conversion could lose values; write the column as that type, or "
        "create another store"
    )


def _has_key_type(field: pa.Field, numbers: Sequence[str], due: str) -> bool:
    """Whether a column already has the store's key type."""
    try:
        return key_type(field, numbers) == due
    except SchemaError:
        return False
