"""Facts: the counts and weights in the header and the table of a stored state, verified when it is read."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["check_columns", "check_facts"]

_COLUMNS = {"negatives", "positives", "rows", "without_class", "unlabelled", "negative_weight", "positive_weight"}
_MOST = 1 << 62  # rows: the sum of two counts fits into 64 bits


def check_facts(spec: Any, header: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a fact of a header has another type or length than in an empty state, or is negative.

    A negative count, or a list that is too short, would otherwise be believed or fail in a later step.

    Parameters
    ----------
    spec : a spec of a stored state
    header : its header

    Examples
    --------
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> check_facts(ClusterSpec("campaign"), {"single_rows": [3, 0], "dropped_rows": [0, -1]})
    Traceback (most recent call last):
    ...
    ValueError: dropped_rows is [0, -1]
    """
    for name, due in _empty(spec).items():
        if name != "spec" and name in header and not _fits(header[name], due):
            msg = f"{name} is {str(header[name])[:60]}"
            raise ValueError(msg)


def check_columns(batch: pa.RecordBatch) -> None:
    """Raise `ValueError` if a count of a table is negative, or a weight is negative or not finite.

    Examples
    --------
    >>> import pyarrow as pa
    >>> check_columns(pa.RecordBatch.from_pydict({"positives": [1, -1]}))
    Traceback (most recent call last):
    ...
    ValueError: positives are not all finite and at least 0
    """
    for name in _COLUMNS.intersection(batch.schema.names) if batch.num_rows else ():
        values = batch.column(name).to_numpy()
        if not 0 <= values.min() <= values.max() < np.inf:  # also false for NaN
            msg = f"{name} are not all finite and at least 0"
            raise ValueError(msg)


@lru_cache(maxsize=64)
def _empty(spec: Any) -> Mapping[str, Any]:
    """The header of the empty state."""
    header: Mapping[str, Any] = spec.empty().header()
    return header


def _fits(value: Any, due: Any) -> bool:
    """Whether a fact is like that of an empty state: a count, a weight, an extreme, a list of those or of labels."""
    if isinstance(due, list):
        if not isinstance(value, list):
            return False
        if not due:  # labels, which are sorted
            return all(isinstance(label, int | float) for label in value) or all(isinstance(x, str) for x in value)
        return len(value) == len(due) and all(map(_fits, value, due))
    if isinstance(due, dict):
        return isinstance(value, dict)
    if isinstance(due, int):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return False
    return math.isinf(due) or 0 <= value < math.inf  # an extreme of no numbers is infinite, all else is a weight
