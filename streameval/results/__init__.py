"""Results of metrics: values with their exactness, and curves.

A value is exact, or known up to bounds that contain the exact value, or estimated from a sample. The bounds of an
estimate are NaN; `stderr` and `bound` describe its error.

`Scalar.to_dict`, `to_arrow` and `from_arrow` all follow `COLUMNS`, which is derived from the fields of `Scalar`: a new
field is written and read everywhere.
"""

from __future__ import annotations

from streameval.results.curves import Band, Bins, Curve, Distribution, Reliability
from streameval.results.scalar import (
    COLUMNS,
    FEW_UNITS,
    REST,
    Scalar,
    Source,
    plain_slice_value,
    slice_name,
    slice_text,
)
from streameval.results.tables import (
    from_arrow,
    near_slice,
    result_schema,
    same_slice,
    slice_column,
    slice_table,
    to_arrow,
)

__all__ = [
    "COLUMNS",
    "FEW_UNITS",
    "REST",
    "Band",
    "Bins",
    "Curve",
    "Distribution",
    "Reliability",
    "Scalar",
    "Source",
    "from_arrow",
    "near_slice",
    "plain_slice_value",
    "result_schema",
    "same_slice",
    "slice_column",
    "slice_name",
    "slice_table",
    "slice_text",
    "to_arrow",
]
