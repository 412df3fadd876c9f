"""Fields: columns by name, fields of structs by names with dots (``meta.cluster``), and types that can be folded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def nested_path(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """The path from a top-level column down to a field, as a tuple of names; empty if there is no such field.

    >>> import pyarrow as pa
    >>> nested_path(pa.schema({"meta": pa.struct({"cluster": pa.int64()})}), "meta.cluster")
    ('meta', 'cluster')
    """
    if column in schema.names:
        return (column,)
    top, *below = column.split(".")
    fields = schema.get_all_field_indices(top)
    kind = schema.field(fields[0]).type if len(fields) == 1 and below else None
    for name in below:
        if kind is None or not types.is_struct(kind) or len(kind.get_all_field_indices(name)) != 1:
            return ()
        kind = kind.field(name).type
    return (top, *below) if below else ()


def column_of(data: Any, column: str) -> Any:
    """A column of a table or record batch, or a field of a struct that is named with dots."""
    top, *below = nested_path(data.schema, column) or (column,)
    return pc.struct_field(data.column(top), below) if below else data.column(top)


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with large strings and binaries in place of views, which Arrow cannot filter, also in dictionaries.

    Examples
    --------
    >>> print(without_views(pa.schema({"c": pa.dictionary(pa.int8(), pa.string_view())})).field("c").type.value_type)
    large_string
    """
    return pa.schema([field.with_type(_without_view(field.type)) for field in schema])


def _without_view(kind: pa.DataType) -> pa.DataType:
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_view(kind.value_type), kind.ordered)
    return _VIEWS.get(kind, kind)
