"""Facts: the spec, counts and weights in the header and the table of a stored state, verified when it is read."""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streameval.typing import Array

# What the fields of a spec may hold, by the text of their annotation
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "tuple[str, ...]": (str,),
    "tuple[float, ...]": (int, float),
    "bool | int | float | str | bytes | None": (bool, int, float, str, type(None)),
}
_IDS = r"signed|unsigned|hash"
_WORDS = dict.fromkeys(("group_type", "class_type", "cluster_type"), _IDS) | {
    "type": rf"f4|f8|i4|i8|u8|d\d{{1,2}}|{_IDS}",
    "nan": "error|drop|half",
    "nulls": "error|drop|singleton|size",
    "scope": "global|partition",
    "rows": "labelled|every|both",
}
_MOST_PARTS = 1 << 17  # blocks, bins, and parts of a sketch: an empty state has a row for each

_SIDES = {"negatives": "negative_weight", "positives": "positive_weight"}
_COLUMNS = {"rows", "without_class", *_SIDES, *_SIDES.values()}
_MISSING = ("nan_rows", "nan_weights", "single_rows", "dropped_rows", "bare_rows")
_MOST = 1 << 62  # rows: the sum of two counts fits into 64 bits
_MOST_WEIGHT = 1e299  # of 2^62 rows: each weighs at most 1e280


def check_spec(spec: Any) -> None:
    """Raise `ValueError` if a field of a spec from a header has another type, an unknown word, or is far too large.

    Examples
    --------
    >>> from streameval.states.cluster_counts import ClusterSpec
    >>> check_spec(ClusterSpec("campaign", nulls="skip"))
    Traceback (most recent call last):
    ...
    ValueError: nulls is 'skip'
    """
    for field in fields(spec):
        value, due = getattr(spec, field.name), _TYPES.get(str(field.type))
        if due is None:  # the spec or the key of another spec
            if is_dataclass(value):
                check_spec(value)
            continue
        items = value if isinstance(value, tuple) else (value,)
        sound = isinstance(value, tuple) == str(field.type).startswith("tuple")
        sound &= all(isinstance(item, due) and (bool in due or not isinstance(item, bool)) for item in items)
        if sound and isinstance(value, int) and field.name not in ("seed", "pos_label"):
            sound = 0 <= value <= _MOST_PARTS
        if not sound or (field.name in _WORDS and not re.fullmatch(_WORDS[field.name], value)):
            raise ValueError(f"{field.name} is {str(value)[:60]!r}")


def check_facts(spec: Any, header: Mapping[str, Any], rows: Sequence[int] = (0, 0)) -> None:
    """Raise `ValueError` if a fact of a header has another type or length than in an empty state, or is impossible.

    A negative count, or a list that is too short, would otherwise be believed or fail in a later step.

    Parameters
    ----------
    spec : a spec of a stored state
    header : its header
    rows : its numbers of negatives and positives

    Examples
    --------
    >>> from streameval.states.cluster_counts import ClusterSpec
    >>> check_facts(ClusterSpec("campaign"), {"single_rows": [3, 0], "dropped_rows": [0, -1]})
    Traceback (most recent call last):
    ...
    ValueError: dropped_rows is [0, -1]
    """
    if not _fits(list(rows), [0, 0]):
        raise ValueError(f"the rows are {str(rows)[:60]}")
    for name, due in _empty(spec).items():
        if name != "spec" and name in header and not _fits(header[name], due):
            raise ValueError(f"{name} is {str(header[name])[:60]}")
    if spec.traits.refuses_missing and any(np.any(header[name]) for name in _MISSING if name in header):
        raise ValueError("rows without a value are counted, which the spec refuses")


def check_columns(batch: pa.RecordBatch) -> None:
    """Raise `ValueError` if a count or weight of a table cannot be one, or there are weights without rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> check_columns(pa.RecordBatch.from_pydict({"positives": [1, -1]}))
    Traceback (most recent call last):
    ...
    ValueError: positives are not all at least 0 and of a sum that rows can have
    """
    for name in sorted(_COLUMNS.intersection(batch.schema.names)):
        check_counts(name, batch.column(name).to_numpy())
    for rows, weight in _SIDES.items():
        if weight in batch.schema.names and (batch.column(weight).to_numpy()[batch.column(rows).to_numpy() == 0]).any():
            raise ValueError(f"{weight}s are not all of rows")


def check_counts(name: str, values: Array, kind: type | None = None) -> None:
    """Raise `ValueError` if counts or weights are not those of rows: negative, NaN, or beyond what rows can sum to.

    Parameters
    ----------
    name : what they are, for the message
    values : array of shape (n,)
    kind : int for counts, float for weights; if None, integers are counts
    """
    most = _MOST if kind is int or values.dtype.kind in "iu" else _MOST_WEIGHT
    if values.size and not (values.min() >= 0 and values.max() < most and values.sum(dtype=np.float64) < most):
        raise ValueError(f"{name} are not all at least 0 and of a sum that rows can have")


@lru_cache(maxsize=64)
def _empty(spec: Any) -> Mapping[str, list[float] | dict[str, object] | float]:
    """The header of the empty state."""
    header: Mapping[str, list[float] | dict[str, object] | float] = spec.empty().header()
    return header


def _fits(value: object, due: list[float] | dict[str, object] | float) -> bool:
    """Whether a fact is like that of an empty state: a count, a weight, an extreme, a list of those or of labels."""
    if isinstance(due, list):
        if not isinstance(value, list):
            return False
        if not due:  # labels, which are sorted
            return all(isinstance(label, int | float | str) and label == label for label in value)
        return len(value) == len(due) and all(map(_fits, value, due))
    if isinstance(due, dict):
        return isinstance(value, dict)
    if isinstance(due, int):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return False
    if math.isinf(due):  # an extreme of no numbers
        return isinstance(value, float) or abs(value) < _MOST
    return 0 <= value < _MOST_WEIGHT
