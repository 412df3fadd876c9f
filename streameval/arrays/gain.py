"""Gain curves of arrays in memory: the curve, its normalised area, and that area from a sample in quantile bins.

The gain curve has, for every threshold, the share of all points at or above it (x) and the share of the positives that
are among them (y). `agc_score` is its normalised area: 1 for a perfect order, 0 for a random one, and 2·AUC − 1 without
truncation. Truncated at the top q, it is the part of the possible improvement over a random order that the ranking
achieves there. Truncation counts points, even with weights, and keeps all points tied with the last one.

`agc_approximate` draws a sample and sorts it into quantile bins, as if scores within a bin were tied. The untruncated
area is then off by at most Σ p·n / PN, summed over bins with p positives and n negatives, and sampling adds its
standard error. It serves for comparisons with published values; the exact area costs little more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from streameval.arrays.curves import balance_of
from streameval.arrays.inputs import flag
from streameval.arrays.labels import checked
from streameval.errors import OptionError
from streameval.kernels.thresholds import running
from streameval.metrics.finalize import compute
from streameval.metrics.scores.gain import Agc, decimal, kept_groups, kept_points, kept_unit, quotient
from streameval.metrics.scores.sums import gain_sums
from streameval.plots import plot_gain
from streameval.states.protocol import Totals
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.parts import ScorePart, known

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streameval.plots import BaseStyle
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array, ArrayLike


_MOST_BINS = 1_000_000
_LARGE = 2.0**53  # float64 rounds larger integers, and differences of the largest floats overflow


def gain_curve(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
) -> tuple[Array, Array, Array]:
    """Points of the gain curve, one for each distinct score kept, from the highest score on; without the origin.

    Parameters
    ----------
    y_true : array of shape (n,), labels; `pos_label` must occur unless there is one class only
    y_score : array of shape (n,), numbers without NaN; higher means more likely positive
    pos_label : the positive label; with None, numbers above zero are positive
    sample_weight : array of shape (n,), finite and at least 0, optional
    truncate : share of the points in (0, 1], or a number of points above 1 (all points if there are fewer)

    Returns
    -------
    top : float64 array of shape (n_kept,), share of the weight at or above each threshold
    tpr : float64 array of shape (n_kept,), share of the positive weight there; NaN if there are no positives
    thresholds : float64 array of shape (n_kept,), descending

    Raises
    ------
    DataError
        If the arrays cannot be evaluated.
    OptionError
        If `truncate` is out of its range.

    Examples
    --------
    >>> top, tpr, thresholds = gain_curve([0, 1, 1, 0], [0.2, 0.9, 0.5, 0.5], truncate=0.5)
    >>> top, tpr, thresholds
    (array([0.25, 0.75]), array([0.5, 1. ]), array([0.9, 0.5]))
    """
    return gain_points(fold_arrays(*checked(y_true, y_score, pos_label, sample_weight)), truncate)


def gain_points(state: ScoreCounts, truncate: float) -> tuple[Array, Array, Array]:
    """The gain curve of a state: shares of the weight and of the positive weight, thresholds."""
    total = state.totals()
    points = kept_points(truncate, total.rows)
    kept = [(part, kept_groups(part, points)) for part in state.parts()]
    neg, pos = (np.concatenate([getattr(part, name)[:keep] for part, keep in kept]) for name in ("n", "p"))
    top = running(neg + pos, 0) / (total.neg_weight + total.pos_weight)
    tpr = running(pos, 0) / (total.pos_weight or math.nan)
    return np.minimum(top, 1.0), np.minimum(tpr, 1.0), np.concatenate([part.scores[:keep] for part, keep in kept])


def agc_score(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
    normalized: bool = True,
) -> float:
    """Normalised area under the gain curve.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate : see `gain_curve`
    normalized : whether to return (A − R)/(M − R) instead of A/M, where A is the area, R that of a random order, and M
        the largest possible one

    Returns
    -------
    float, at most 1. If normalized, it is 0 for a random order, and negative if there are no positives in the truncated
    part. NaN if there are no positives, and, if normalized, no negatives.

    Raises
    ------
    DataError
        If the arrays cannot be evaluated.
    OptionError
        If `truncate` is out of its range.

    Examples
    --------
    >>> y_true, y_score = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    >>> agc_score(y_true, y_score), round(agc_score(y_true, y_score, truncate=3), 4)
    (0.5, 0.4286)
    >>> agc_score(y_true, y_score, normalized=False)
    0.8333333333333334
    """
    state = fold_arrays(*checked(y_true, y_score, pos_label, sample_weight))
    return float(compute(state, Agc(truncate, ratio=not flag("normalized", normalized))).value)


def agc_approximate(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
    normalized: bool = True,
    sample: float = 1,
    quantiles: int = 100,
    interpolation: str = "linear",
    random_state: Any = None,
) -> float:
    """Normalised area under the gain curve, from a sample sorted into quantile bins.

    Points are drawn without replacement. The edges of the bins are `quantiles` evenly spaced quantiles of the truncated
    part of the sample, without duplicates; all points in a bin count as tied. If the sample has fewer points than there
    are quantiles, each score has its own bin, and only sampling causes an error. If all scores are equal, the
    normalised area is 0.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate, normalized : see `agc_score`
    sample : share of the points to draw, in (0, 1]; their number is rounded down, but at least 1
    quantiles : number of bins, from 1 to 1,000,000
    interpolation : how quantiles are interpolated, a `method` of `numpy.quantile`
    random_state : seed, `numpy.random.RandomState` or `numpy.random.Generator`; None draws a different sample each time

    Returns
    -------
    float; NaN if the sample has no positives, and, if normalized, no negatives

    Raises
    ------
    DataError
        If the arrays cannot be evaluated.
    OptionError
        If an option is out of its range, or `truncate` exceeds the number of points.

    Examples
    --------
    The exact value, all points in 10 bins, and a sample of half of the points:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y_true = rng.random(4000) < 0.1
    >>> y_score = rng.normal(y_true, 1.0)
    >>> [round(x, 2) for x in (agc_score(y_true, y_score), agc_approximate(y_true, y_score, quantiles=10))]
    [0.48, 0.47]
    >>> abs(agc_approximate(y_true, y_score, sample=0.5, random_state=0) - agc_score(y_true, y_score)) < 0.1
    True
    """
    label, score, weight = checked(y_true, y_score, pos_label, sample_weight)
    truncate = decimal(truncate)
    _check_options(truncate, sample, quantiles, label.size)
    share = truncate / label.size if truncate > 1 else float(truncate)
    if sample < 1:
        chosen = _draw(label.size, max(1, int(sample * label.size)), random_state)
        label, score, weight = label[chosen], score[chosen], None if weight is None else weight[chosen]
    if max(float(score.max()), -float(score.min())) >= _LARGE:  # ranks, as bins depend on the order alone
        score = np.unique(score, return_inverse=True)[1]
    score = score.astype(np.float64)
    edges = _edges(score, share, quantiles, interpolation)
    bins = np.searchsorted(-edges, -score)  # number of edges above each score
    return _binned_area(label, bins, weight, edges.size, ratio=not flag("normalized", normalized))


def _check_options(truncate: float, sample: float, quantiles: int, size: int) -> None:
    kept_points(truncate, size)
    if truncate > max(size, 1):
        raise OptionError(f"truncate={truncate:g} exceeds the number of points ({size}); agc_score accepts any number")
    if not (isinstance(sample, int | float | np.number) and 0 < sample <= 1):
        raise OptionError(f"sample={sample!r} is not a share in (0, 1]")
    number = isinstance(quantiles, int | float | np.number) and 1 <= quantiles <= _MOST_BINS
    if not (number and quantiles == int(quantiles)):
        raise OptionError(f"quantiles={quantiles!r} is not a number of bins from 1 to {_MOST_BINS:,}")


def _draw(size: int, count: int, random_state: Any) -> Array:
    """Indices of `count` of `size` points without replacement; a seed draws the same points in all NumPy versions."""
    if hasattr(random_state, "choice"):
        return np.asarray(random_state.choice(size, count, replace=False))
    try:
        source = np.random.default_rng() if random_state is None else np.random.RandomState(random_state)
    except (TypeError, ValueError) as error:
        raise OptionError(f"random_state={random_state!r} is not a seed, RandomState or Generator") from error
    return source.choice(size, count, replace=False)


def _edges(score: Array, share: float, quantiles: int, interpolation: str) -> Array:
    """Lower edges of the bins of the top `share`, descending and distinct."""
    step = share / quantiles
    if 1 - step == 1:
        raise OptionError(
            f"truncate leaves a share of {share:g} for {quantiles:,} bins, which float64 does not tell from 0; raise it"
        )
    levels = np.arange(1 - step, 1 - share - step / 2, -step)
    levels[-1] = 1 - share
    method: Any = interpolation  # a literal type in NumPy's stubs; NumPy checks the name
    try:
        edges = np.quantile(score, levels, method=method)
    except (TypeError, ValueError) as error:
        raise OptionError(f"interpolation={interpolation!r} is not a method of numpy.quantile: {error}") from error
    return np.unique(edges)[::-1]


def _binned_area(label: Array, bins: Array, weight: Array | None, kept: int, *, ratio: bool) -> float:
    """`agc` or `agc_ratio` of the first `kept` bins, each as one group of equal scores."""

    def by_class(values: Array | None) -> list[Array]:
        sides = (label == 0, label == 1)
        return [np.bincount(bins[y], None if values is None else values[y], kept + 1) for y in sides]

    neg, pos = (column.astype(np.int64) for column in by_class(None))
    n, p = (neg, pos) if weight is None else by_class(weight)
    weighted = weight is not None
    total = Totals(int(neg.sum()), int(pos.sum()), math.fsum(n), math.fsum(p), weighted)
    if not total.p or not (total.n or ratio):
        return math.nan
    none, scores = Totals(0, 0, 0.0, 0.0, weighted), np.arange(kept, 0.0, -1.0)
    part = ScorePart(n[:kept], p[:kept], none, total, known(scores))
    sums = gain_sums(part, kept)[:3]
    unit = kept_unit(sums[2])
    if unit is None:
        return math.nan
    top, bottom = quotient(sums, total.n, total.p, ratio=ratio, unit=unit)
    return float(top / bottom) if bottom else math.nan


gain_agc_score = agc_score
gain_agc_approximate = agc_approximate


def plot_gain_curve(
    y_true: ArrayLike,
    y_score: ArrayLike,
    pos_label: object = 1,
    sample_weight: ArrayLike | None = None,
    truncate: float = 1,
    **style: Unpack[BaseStyle],
) -> Axes:
    """Draw the gain curve up to a truncation, with the normalised area of that part.

    Parameters
    ----------
    y_true, y_score, pos_label, sample_weight, truncate : see `streameval.gain_curve`
    style : see `streameval.plots.Style`, except for `truncate`

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError, OptionError
        As for `streameval.gain_curve` and `streameval.plots.plot_gain`.

    Examples
    --------
    >>> axes = plot_gain_curve([0, 1, 1, 0, 0], [0.2, 0.9, 0.5, 0.6, 0.1], truncate=0.6, of="score")
    >>> axes.get_xlim()[1].item(), axes.get_legend().get_texts()[0].get_text()
    (0.6, 'score (AGC = 0.5455)')
    """
    state = fold_arrays(*checked(y_true, y_score, pos_label, sample_weight))
    top, tpr, _ = gain_points(state, 1)
    shown = float(gain_points(state, truncate)[0][-1]) or None
    agc = float(compute(state, Agc(truncate)).value)
    return plot_gain(top, tpr, agc=agc, balance=balance_of(state), truncate=shown, **style)
