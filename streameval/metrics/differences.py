"""Differences between estimates, tested together: intervals, p-values by Holm, and a verdict in words.

An evaluation has two families of differences: those of all rows, of every column from its baselines by every metric,
and those by slice, of all slicings, between columns and between a slice and all other rows. Holm's procedure (1979)
keeps the chance of any false verdict in a family at 1 − level; the intervals are not adjusted. A rule is judged alone,
by its own columns, whatever else is compared.

References
----------
Holm, S. (1979). A simple sequentially rejective multiple test procedure. *Scandinavian Journal of Statistics* 6, 65–70.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from streameval.metrics.estimates import TOO_COARSE, Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.results import Scalar

_SIGNS = {"higher": 1, "lower": -1}


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for testing all of them; NaN stays NaN and does not count.

    Examples
    --------
    >>> holm([0.01, math.nan, 0.04])
    [0.02, nan, 0.04]
    """
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _resolved(differences: Sequence[tuple[Estimate, str | None]]) -> list[tuple[Estimate, str | None]]:
    """The differences; of two columns that the grid cannot tell apart, none has an interval.

    Its noise is then in the standard errors as well, and a value may be close to the exact one by chance.
    """
    pairs = [(each.scalar.of, *(each.scalar.slice or {}).items()) for each, _ in differences]
    coarse = {pair for pair, (each, _) in zip(pairs, differences, strict=True) if each.far_off}
    found = []
    for pair, (each, end) in zip(pairs, differences, strict=True):
        refused = pair in coarse and not math.isnan(each.grid) and each.reason is None
        found.append((replace(each, reason=TOO_COARSE) if refused else each, end))
    return found


def compared(differences: Sequence[tuple[Estimate, str | None]], level: float) -> list[Scalar]:
    """Differences as results: intervals at a level, p by Holm over all of them, and a verdict in words.

    Parameters
    ----------
    differences : differences, each with the better end of its metric: ``higher``, ``lower`` or None
    level : level of the intervals, which are not adjusted; 1 − `level` is the size of the tests

    Returns
    -------
    list of Scalar
        Their `verdict` is ``better``, ``worse`` or ``not shown``; for a metric without a better end ``higher`` or
        ``lower`` take the place of the first two.
    """
    differences = _resolved(differences)
    adjusted = holm([difference.p_value() for difference, _ in differences])
    found = []
    for (difference, better), p in zip(differences, adjusted, strict=True):
        verdict = "not shown"
        if p < 1 - level:
            sign = math.copysign(1, difference.scalar.value) * _SIGNS.get(str(better), 1)
            words = ("better", "worse") if better else ("higher", "lower")
            verdict = words[0] if sign > 0 else words[1]
        scalar = difference.scalar_with(level)
        found.append(replace(scalar, p_value=None if math.isnan(p) else p, verdict=verdict))
    return found
