"""What a metric gives back: a value and how exact it is, or a curve.

A value is exact, or known up to a certain interval, or an estimate from a sample. An estimate has no certain interval:
its ends are NaN, and `stderr` and `bound` say how far off it may be.

A `Scalar` is written to JSON by `Scalar.to_dict` and to tables by `to_arrow`; both, and `from_arrow`, follow `COLUMNS`,
so that a new field of the class is written and read everywhere.
"""

from __future__ import annotations

from streameval.results.curves import Band, Bins, Curve, Distribution, Reliability
from streameval.results.scalar import COLUMNS, FEW_UNITS, REST, Scalar, plain_slice_value, slice_name, slice_text
from streameval.results.source import Source
from streameval.results.tables import from_arrow, near_slice, result_schema, same_slice, slice_table, to_arrow

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
    "slice_name",
    "slice_table",
    "slice_text",
    "to_arrow",
]
