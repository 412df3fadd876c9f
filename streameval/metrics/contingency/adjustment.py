"""Adjustment of any measure for chance, by its values under a null model and at two ceilings."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.metrics.contingency.arithmetic import safe_divide

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["adjusted"]


def adjusted(values: Iterable[Any], warn_of: str | None = None) -> tuple[Any, Any]:
    """Adjust for chance, (x − null) / (ceiling − null), for two ceilings.

    Parameters
    ----------
    values : iterable of four numbers, or of four tuples of numbers
        The measure of the table, of the null model, and of the diagonal tables of row and of column totals.
    warn_of : str or None
        Name of the measure; warn if it is already 0 under the null model, or 1 at a ceiling.

    Examples
    --------
    >>> adjusted([0.75, 0.5, 1.0, 0.5])
    (0.5, inf)
    """
    actual, null, by_rows, by_cols = values
    if warn_of is not None and np.isclose(np.sum(null), 0.0):
        warnings.warn(f"{warn_of!r} is already centered", stacklevel=3)
    for side, ceiling in (("row", by_rows), ("column", by_cols)):
        if warn_of is not None and np.isclose(np.mean(ceiling), 1.0):
            warnings.warn(f"{warn_of!r} is already {side}-normalized", stacklevel=3)
    return _relative(actual, null, by_rows), _relative(actual, null, by_cols)


def _relative(actual: Any, null: Any, ceiling: Any) -> Any:
    if isinstance(actual, tuple):
        return tuple(map(_relative, actual, null, ceiling))
    return safe_divide(actual - null, ceiling - null)
