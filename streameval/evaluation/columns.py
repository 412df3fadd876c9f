"""Columns that can be folded: types that Arrow cannot filter are read as their plain twins."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["without_views"]

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}  # Arrow cannot filter views


def without_views(schema: pa.Schema) -> pa.Schema:
    """The columns to read, with plain types in place of views."""
    return pa.schema([field.with_type(_VIEWS.get(field.type, field.type)) for field in schema])
