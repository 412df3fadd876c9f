"""Dictionaries of t-digests, as `tdigest.TDigest.to_dict` has them: written and read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import FormatError
from streameval.states.scores.centroids import Gathered

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["parsed", "written"]

_K = 25  # a capacity factor of the tdigest package: K/delta centroids trigger its own compression


def written(found: Gathered, compression: float) -> dict[str, Any]:
    """The dictionary of centroids, with extra keys for what that package has no place for."""
    columns = (column.tolist() for column in (found.mean, found.weight, found.single))
    centroids = [
        {"m": m, "c": c} | ({"single": True} if single and c != 1 else {})
        for m, c, single in zip(*columns, strict=True)
    ]
    extra: dict[str, float] = {"below": found.below, "above": found.above, "nan": found.nan}
    if found.mean.size:
        extra |= {"min": found.low, "max": found.high}
    return {"n": float(found.weight.sum()), "delta": 1 / compression, "K": _K, "centroids": centroids} | extra


def parsed(values: Mapping[str, Any]) -> Gathered:
    """The centroids of a dictionary, ascending; those with infinite or NaN means are counted apart.

    Raises
    ------
    FormatError
        If it is not such a dictionary.
    """
    try:
        rows = [(c["m"], c["c"], bool(c.get("single", c["c"] == 1))) for c in values["centroids"]]
        table = np.array(rows, np.float64).reshape(-1, 3)
        counts = {name: int(values.get(name, 0)) for name in ("below", "above", "nan")}
        ends = float(values.get("min", math.inf)), float(values.get("max", -math.inf))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        msg = (
            f"this is not the dictionary of a t-digest, with 'centroids' of 'm' and 'c' "
            f"({type(error).__name__}: {error}); make it with to_dict()"
        )
        raise FormatError(msg) from error
    mean, weight, single = table[np.argsort(table[:, 0], kind="stable")].T
    if not (np.isfinite(weight).all() and (weight > 0).all() and min(counts.values()) >= 0):
        msg = "a t-digest's counts are positive and finite; these are not: make the dictionary again with to_dict()"
        raise FormatError(msg)
    for name, here in (("below", mean == -np.inf), ("above", mean == np.inf), ("nan", np.isnan(mean))):
        counts[name] += round(float(weight[here].sum()))
    finite = np.isfinite(mean)
    mean, weight, single = mean[finite], weight[finite], single[finite] > 0
    low, high = min([*mean[:1].tolist(), ends[0]]), max([*mean[-1:].tolist(), ends[1]])
    return Gathered(mean, weight, single, low, high, **counts)
