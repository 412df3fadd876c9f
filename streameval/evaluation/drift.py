"""Drift of scores between two sets of rows, without labels: Kolmogorov-Smirnov, Wasserstein-1 and PSI.

The values come from exact counts. Their sampling error comes from the rows by bin and block of a unit: D₍₋b₎ is the
difference of both distribution functions without block b on both sides, so shared campaigns pair up. Under no drift,
D is like D* = √((B − 1)/B) Σ g_b (D₍₋b₎ − mean) with normal g, of which 1,000 are drawn by a fixed generator. By the
triangle inequality, the value less the 95 % quantile of max |D*| is an honest lower end whatever the true drift.

Sizes at 5 % with campaigns of Zipf sizes: 2 to 6 % (KS) and 2 to 8 % (W1); with rows as units, 44 to 97 %. PSI has no
p-value: without drift its median depends on the number of units, and is given beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval._version import __version__
from streameval.metrics.units import effective_units
from streameval.saving import AsJson
from streameval.wording import plural

if TYPE_CHECKING:
    from streameval.typing import Array

LEAST_UNITS = 20  # below, no p-value
_DRAWS = 1000
_LEVEL = 0.95


@dataclass(frozen=True)
class Drift(AsJson):
    """How far the scores of some nights are from those of others.

    Attributes
    ----------
    score : the column
    rows, rows_against : rows with a score on both sides
    ks : float in [0, 1], the largest difference of the distribution functions
    w1 : float, the area between them, in units of the score
    psi : float, the population stability index over ten bins of equal count of the side that it is held against
    ks_lower, w1_lower : one-sided lower ends at 95 %; NaN without units
    ks_p, w1_p : p-values of no drift; NaN without units
    psi_noise : the median of the index without drift, for these units; NaN without units
    unit, effective_units : the unit of the sampling error
    reason : why there is no sampling error; None if there is

    Examples
    --------
    >>> Drift("score", 800, 3200, ks=0.25, w1=0.1, psi=0.2).to_dict()["ks_p"] is None
    True
    """

    score: str
    rows: int
    rows_against: int
    ks: float
    w1: float
    psi: float
    ks_lower: float = math.nan
    w1_lower: float = math.nan
    ks_p: float = math.nan
    w1_p: float = math.nan
    psi_noise: float = math.nan
    unit: str | None = None
    effective_units: float = 0.0
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN becomes None."""
        return {"streameval": __version__} | {k: None if v != v else v for k, v in vars(self).items()}


def distances(scores: tuple[Array, Array], against: tuple[Array, Array]) -> tuple[float, float, float]:
    """KS, W1 and PSI of two sets, each of distinct ascending scores and their counts.

    Examples
    --------
    >>> one, other = (np.array([0.0, 1.0]), np.array([1, 3])), (np.array([0.0, 1.0]), np.array([2, 2]))
    >>> [round(value, 3) for value in distances(one, other)]
    [0.25, 0.25, 0.154]
    """
    values = np.union1d(scores[0], against[0])
    counts = np.zeros((2, values.size), np.int64)
    for side, (own, rows) in enumerate((scores, against)):
        counts[side, np.searchsorted(values, own)] = rows
    shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    apart = np.abs(shares[0] - shares[1])
    finite = np.isfinite(values[1:]) & np.isfinite(values[:-1])
    area = float((apart[:-1][finite] * np.diff(values)[finite]).sum())
    cuts = np.unique(np.searchsorted(shares[1], np.arange(1, 10) / 10 - 1e-12))
    below = np.cumsum(counts, axis=1)
    bins: Array = np.diff(np.hstack((np.zeros((2, 1)), below[:, cuts], below[:, -1:])), axis=1)
    share = (bins + 0.5) / (bins + 0.5).sum(axis=1, keepdims=True)  # half a row more, so that no bin is empty
    psi = float(((share[0] - share[1]) * np.log(share[0] / share[1])).sum())
    return float(apart.max(initial=0)), area, psi


def draws(table: Array, against: Array, widths: Array) -> tuple[Array, Array, Array]:
    """KS, W1 and PSI without drift, arrays of shape (1000,).

    Parameters
    ----------
    table, against : int64 arrays of shape (n_bins, n_blocks), rows of both sides by bin, ascending, and block
    widths : float64 array of shape (n_bins,), from each bin to the next one; 0 for the last
    """
    there = (table.sum(axis=0) + against.sum(axis=0)) > 0
    left = []
    for side in (table[:, there], against[:, there]):
        rest = side.sum(axis=1, keepdims=True) - side
        left.append(np.cumsum(rest, axis=0) / np.maximum(1, rest.sum(axis=0)))
    apart = left[0] - left[1]
    blocks = apart.shape[1]
    normal = np.random.default_rng(0).normal(size=(blocks, _DRAWS)) * math.sqrt((blocks - 1) / blocks)
    drawn = (apart - apart.mean(axis=1, keepdims=True)) @ normal
    reference = np.cumsum(against.sum(axis=1)) / max(1, against.sum())
    cuts = np.unique(np.searchsorted(reference, np.arange(1, 10) / 10 - 1e-12))
    steps = np.diff(drawn[cuts], axis=0, prepend=0.0, append=0.0)
    shares = np.diff(np.concatenate(([0.0], reference[cuts], [1.0])))
    some = shares > 0
    psi = (np.square(steps[some]) / shares[some][:, None]).sum(axis=0)
    return np.abs(drawn).max(axis=0), widths @ np.abs(drawn), psi


def with_error(drift: Drift, table: Array, against: Array, scores: Array, unit: str) -> Drift:
    """Add the sampling error to a drift.

    Parameters
    ----------
    drift : the values
    table, against : see `draws`
    scores : float64 array of shape (n_bins,), a score of each bin
    unit : what the blocks hold
    """
    units = min(effective_units(side.sum(axis=0)) for side in (table, against))
    facts = vars(drift) | {"unit": unit, "effective_units": units}
    if units < LEAST_UNITS:
        return Drift(**facts | {"reason": f"{plural(round(units), 'effective unit')}, {LEAST_UNITS} are needed"})
    widths = np.diff(scores, append=scores[-1:])
    ks, w1, psi = draws(table, against, np.where(np.isfinite(widths), widths, 0.0))
    for name, value, drawn in (("ks", drift.ks, ks), ("w1", drift.w1, w1)):
        facts[f"{name}_lower"] = max(0.0, value - float(np.quantile(drawn, _LEVEL)))
        facts[f"{name}_p"] = (1 + int((drawn >= value).sum())) / (_DRAWS + 1)
    return Drift(**facts | {"psi_noise": float(np.median(psi))})
