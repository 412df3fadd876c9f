"""Missing scores: NaN and null, which have no place on a curve.

A state counts them separately, by label. The policy `nan` of its spec says how they are treated: ``error`` refuses them
while folding, ``drop`` leaves them out, and ``half`` counts every pair with a missing score as one half.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import NullError
from streameval.states.protocol import Batch, PlainSpec, Totals
from streameval.states.scores.two_floats import add_sides

if TYPE_CHECKING:
    import pyarrow as pa

    from streameval.typing import Array


def split_nulls(
    batch: Batch, column: str, weight: Array | None, rows: Array, weights: tuple[list[float], list[float]]
) -> tuple[pa.Array, Array, Array | None]:
    """Separate null scores from the others.

    Parameters
    ----------
    batch : Batch
    column : the score column
    weight : float64 array of shape (n,), optional
    rows : int64 array of shape (2,), by label; the number of null scores is added to it
    weights : two lists, by label; floats with the exact weight of the null scores are appended to them

    Returns
    -------
    The scores that are not null, their labels, and their weights (None without weights).
    """
    array, label = batch.columns[column], batch.label
    if not array.null_count:
        return array, label, weight
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    rows += np.bincount(label[~valid], minlength=2)
    if weight is not None:
        add_sides(weight[~valid], label[~valid], weights)
        weight = weight[valid]
    return array.drop_null(), label[valid], weight


class MissingScores(PlainSpec):
    """Base of specs of a score column with a policy `nan` for missing scores: ``error``, ``drop`` or ``half``."""

    column: str
    nan: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def refuses_missing(self) -> bool:
        """Whether a missing score is an error."""
        return self.nan == "error"

    @property
    def halves_nan(self) -> bool:
        """Whether a missing score counts one half in every pair."""
        return self.nan == "half"


def refuse_nan(policy: str, seen: Any, name: str, column: str) -> None:
    """Raise `NullError` if NaN scores were seen and the policy is ``error``."""
    if policy == "error" and np.any(seen):
        msg = f"{name}: score column {column!r} has NaN or null scores; choose nan='drop' or nan='half' (--nan)"
        raise NullError(msg)


def halved_rows(state: Any) -> int:
    """Number of rows whose missing score counts one half in every pair; 0 under any other policy."""
    return int(state.nan_rows.sum()) if state.spec is not None and state.spec.halves_nan else 0


def halved(state: Any) -> Totals:
    """Totals of the rows that `halved_rows` counts, in the weight unit of the state."""
    if not halved_rows(state):
        return Totals(0, 0, 0.0, 0.0)
    (neg, pos), unit = state.nan_rows.tolist(), state.totals().unit
    weights = np.ldexp(state.nan_weights, -unit).tolist()
    return Totals(neg, pos, weights[0], weights[1], state.spec.weighted, unit)


def numbers_only(state: Any) -> Any:
    """The same score state without its missing scores."""
    if not state.nan_rows.any():
        return state
    return replace(state, nan_rows=np.zeros(2, np.int64), nan_weights=np.zeros(2), nan_errors=np.zeros(2))
