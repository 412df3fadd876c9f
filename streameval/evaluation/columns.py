"""Column types for folding: view types, which Arrow cannot filter, are read as plain strings and binaries."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["without_views"]

_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with large strings and binaries in place of views."""
    return pa.schema([field.with_type(_VIEWS.get(field.type, field.type)) for field in schema])
