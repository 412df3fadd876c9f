"""Statistics of nights: rules that may be read every night, distances from the usual value, and drift of scores.

*Constant spending over three windows.* Tonight is judged with its last 1, 7 and 28 nights. The value of a window is the
mean of the nights' values; its replicates are the means of theirs, since the block of a unit depends on its id alone:
campaigns that live for a week are accounted for. A bound is missed if the end of a one-sided interval is beyond it in a
window, at the level α / (3 · 365 · tests). So each night spends at most α/365 over all tests, and every span of 365
nights at most α, without a horizon, a restart or a ledger.

*Floor.* A night that is good by luck also has a small standard error. The variance of a window is multiplied by
Σ max(se², f²) / Σ se², at least 1, where f² is the median of se² · n / n_t over the 28 nights before night t, n the
effective units. Without it, rules on a rise of AUC 0.95 raised alarms in 31 % of simulated years, with it in 0.3 %.

*Usual value.* The median of k nights has about the variance c_k · se² (`MEDIAN`, for normal values), and nights differ
truly, by τ. The distance of a night from it has the variance se² + τ² + c_k (mean se² + τ²), and the degrees of freedom
of Welch and Satterthwaite. Units that the night shares with the usual nights would make it smaller, and are left out.

*Drift* of scores between two sets of rows needs no labels: Kolmogorov-Smirnov, Wasserstein-1 and PSI. The values come
from exact counts, their sampling error from the rows by bin and block of a unit: D₍₋b₎ is the difference of both
distribution functions without block b on both sides, so shared campaigns pair up. Under no drift, D is like
D* = √((B − 1)/B) Σ g_b (D₍₋b₎ − mean) with normal g, of which 1,000 are drawn by a fixed generator. By the triangle
inequality, the value less the 95 % quantile of max |D*| is an honest lower end whatever the true drift. PSI has no
p-value: without drift its median depends on the number of units, and is given beside it.

False alarms and delays are simulated by ``python benchmarks/year.py --alarms``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval import __version__
from streameval.metrics.estimates import SCALES, at_end
from streameval.metrics.protocol import effective_units
from streameval.report.terminal import Facts
from streameval.saving import AsJson
from streameval.wording import digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

WINDOWS = {1: 1, 7: 5, 28: 20}  # nights of the calendar, and how many of them must be there
YEAR = 365
PAST = 28  # nights behind the floor and τ²
LEAST_PAST = 7  # least number of nights behind the floor
LEAST_UNITS = 5
TOO_FEW = "too few nights"
LEAST_PLAIN_UNITS = 200  # of metrics that have no scale on which their intervals are symmetric
MEDIAN = {3: 0.449, 4: 0.298, 5: 0.287, 6: 0.215, 7: 0.2104}  # variance of the median of that many normal values


@dataclass(frozen=True)
class Series:
    """A metric in some nights, the last of which is judged, for several slices.

    Attributes
    ----------
    days : int64 array of shape (n_nights,), ascending
    values : float64 array of shape (n_nights, n_slices); NaN where there is no value
    squares, freedom : float64 arrays of the same shape, squared standard errors and their degrees of freedom; NaN where
        there is none
    units : float64 array of the same shape, effective units
    replicates : float array of shape (n_recent, n_slices, n_blocks), of the last nights, values without each block less
        the value of the night; NaN for blocks without rows, and for all blocks where there is no standard error
    rows : float array of the same shape, rows of each block
    """

    days: Array
    values: Array
    squares: Array
    freedom: Array
    units: Array
    replicates: Array
    rows: Array

    def floors(self, first: int = 0) -> Array:
        """f² of every night from number `first` on; NaN where fewer than 7 of the 28 nights before have an error."""
        squares, units = self.squares, self.units
        floors = np.full(squares.shape, math.nan)
        for t in range(max(first, LEAST_PAST), len(squares)):
            before = slice(max(0, t - PAST), t)
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.where(units[before] == units[t], 1.0, units[before] / units[t])  # both may be infinite
                scaled = np.sort(squares[before] * ratio, axis=0)  # NaN at the end
            there = np.isfinite(scaled).sum(axis=0)
            ends = np.maximum(there - 1, 0) // 2, np.minimum(there // 2, len(scaled) - 1)
            middle = np.mean([scaled[end, np.arange(there.size)] for end in ends], axis=0)
            floors[t] = np.where(there >= LEAST_PAST, middle, math.nan)
        return floors


class Window(NamedTuple):
    """The nights of a window: float64 arrays of shape (n_slices,), NaN in slices where it cannot be judged.

    `reach` is how far one end of the interval is from the value, on the scale of the values.
    """

    nights: Array
    value: Array
    stderr: Array
    reach: Array
    units: Array


def variance(replicates: Array) -> tuple[Array, Array]:
    """The jackknife's variance over the last axis, and its degrees of freedom; NaN below two blocks.

    The latter are max(1, 3(Σd²)²/Σd⁴ − 2), at most B − 1.
    """
    there = ~np.isnan(replicates)
    blocks = there.sum(axis=-1)
    filled = np.where(there, replicates, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=-1) / blocks
        deviations = np.where(there, replicates - mean[..., np.newaxis], 0.0)
        squared = np.square(deviations)
        squares = squared.sum(axis=-1)
        fourths = np.square(squared).sum(axis=-1)
        freedom = np.minimum(np.maximum(1.0, 3 * squares**2 / fourths - 2), blocks - 1)
        spread = np.where(blocks >= 2, (blocks - 1) / blocks * squares, math.nan)
    return spread, np.where(fourths > 0, freedom, blocks - 1)


def units_of_blocks(rows: Array) -> Array:
    """Effective units over the last axis; see `streameval.metrics.protocol.effective_units`."""
    total, blocks = rows.sum(axis=-1), rows.shape[-1]
    spread = np.square(rows - total[..., np.newaxis] / blocks).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        units: Array = total**2 * (1 - 1 / blocks) / spread
    return np.where(total > 0, units, 0.0)


def windows(series: Series, judged: Array, floors: Array, level: float) -> dict[int, Window]:
    """The windows of the last night.

    Parameters
    ----------
    series : the nights, the last of which is judged
    judged : bool array of shape (n_nights,), the nights that windows may take, the last one among them
    floors : see `Series.floors`
    level : one-sided level of the interval of a window
    """
    from scipy.special import stdtrit

    last = slice(-len(series.replicates), None)
    days, values, squares, floors = (each[last] for each in (series.days, series.values, series.squares, floors))
    usable = judged[last, np.newaxis] & ~np.isnan(squares) & ~np.isnan(values)
    there = ~np.isnan(series.replicates) & usable[..., np.newaxis]
    replicates = np.where(there, series.replicates, 0.0)
    rows = np.where(usable[..., np.newaxis], series.rows, 0.0)
    found = {}
    for width, least in WINDOWS.items():
        recent = days > days[-1] - width
        inside = slice(int(recent.argmax()), None)
        taken = usable & recent[:, np.newaxis]
        count = taken.sum(axis=0)
        value = _sum(np.where(taken, values, 0.0)) / np.maximum(count, 1)
        means = replicates[inside].sum(axis=0) / np.maximum(count, 1)[:, np.newaxis]
        spread, freedom = variance(np.where(there[inside].any(axis=0), means, math.nan))
        own, floored = (_sum(np.where(taken, each, 0.0)) for each in (squares, np.fmax(squares, floors)))
        ratio = np.maximum(1.0, floored / np.where(own > 0, own, 1.0))
        spread = np.where(own > 0, spread * ratio, floored / np.maximum(count, 1) ** 2)
        valid = (count >= least) & taken[-1]
        value, stderr = (np.where(valid, each, math.nan) for each in (value, np.sqrt(spread)))
        units = units_of_blocks(rows[inside].sum(axis=0))
        found[width] = Window(count, value, stderr, -stdtrit(freedom, level) * stderr, units)
    return found


def _sum(nights: Array) -> Array:
    """The sum over nights, one after the other: the same bits whatever other slices there are."""
    total: Array = np.cumsum(nights, axis=0)[-1]
    return total


class End(NamedTuple):
    """One end of the interval of a window of a slice, and the change from the bound that it would have shown or NaN."""

    value: float
    end: float
    shown: float


def level_of(alpha: float, tests: int) -> float:
    """The level of one interval, in one of three windows, for a number of tests a night.

    Examples
    --------
    >>> round(0.05 / level_of(0.05, 2))
    2190
    """
    return alpha / (len(WINDOWS) * YEAR * tests)


def find_end(window: Window, at: int, scale: str, bound: float, sign: int) -> End | str:
    """The end of a slice's interval that a rule compares with its bound; a reason where the window cannot be judged.

    Parameters
    ----------
    window : the window
    at : number of the slice
    scale : key of `streameval.metrics.estimates.SCALES`
    bound : bound of the rule
    sign : 1 for the upper end of values that must not be too low, −1 for the lower end
    """
    value, _, reach, units = (float(each[at]) for each in window[1:])
    if math.isnan(value) or math.isnan(reach):
        return TOO_FEW
    least = LEAST_PLAIN_UNITS if scale == "plain" else LEAST_UNITS
    if units < least:
        return f"{units:.3g} effective units, {least} are needed"
    form = SCALES[scale]
    if value == (form.high if sign > 0 else form.low):
        return End(value, value, math.nan)  # the best that there is
    if not form.low < value < form.high:
        return at_end(value)
    reach *= form.slope(value)
    end = form.back(form.to(value) + sign * reach)
    shown = abs(form.back(form.to(bound) - sign * reach) - bound) if form.low < bound < form.high else math.nan
    return End(value, end, shown)


class Distance(NamedTuple):
    """The standard error of a distance from the usual value, with its degrees of freedom."""

    stderr: float
    freedom: float


def distance_error(
    square: float, freedom: float, usual: Sequence[tuple[float, float]], spread: tuple[float, int] | None
) -> Distance:
    """The error of a night's distance from the median of others.

    Parameters
    ----------
    square, freedom : se² of the night, at least its floor, and the degrees of freedom of its replicates
    usual : the same of the usual nights, at least 3
    spread : τ² with its degrees of freedom; None if it is not known

    Examples
    --------
    >>> error = distance_error(1.0, 100, [(1.0, 100)] * 7, None)
    >>> round(error.stderr, 4), round(error.freedom, 1)
    (1.1002, 145.6)
    """
    share = MEDIAN.get(len(usual), MEDIAN[7])
    tau, degrees = spread or (0.0, 1)
    mean = sum(one for one, _ in usual) / len(usual)
    parts = [(square, freedom), (share * mean, sum(free for _, free in usual)), ((1 + share) * tau, degrees)]
    total = sum(part for part, _ in parts)
    if not total:
        return Distance(0.0, 1.0)
    return Distance(math.sqrt(total), total**2 / sum(part**2 / free for part, free in parts))


def true_spread(values: Array, squares: Array, sides: Array) -> tuple[float, int]:
    """τ²: the variance of nights about their mean on each side of an accepted change, less their mean se².

    Parameters
    ----------
    values, squares, sides : arrays of shape (n_nights,); equal sides have a common mean
    """
    names, place = np.unique(sides, return_inverse=True)
    means = np.bincount(place, values) / np.bincount(place)
    degrees = max(1, values.size - names.size)
    total = float(np.square(values - means[place]).sum()) / degrees
    return max(0.0, total - float(squares.mean())), degrees


LEAST_DRIFT_UNITS = 20  # below, no p-value
_DRAWS = 1000
_DRIFT_LEVEL = 0.95


@dataclass(frozen=True, repr=False)
class Drift(Facts, AsJson):
    """How far the scores of some nights are from those of others.

    Attributes
    ----------
    score : the column
    rows, rows_against : rows with a score on both sides
    ks : float in [0, 1], the largest difference of the distribution functions
    w1 : float, the area between them, in units of the score
    psi : float, the population stability index over the bins between `edges`
    ks_lower, w1_lower : one-sided lower ends at 95 %; NaN without units
    ks_p, w1_p : p-values of no drift; NaN without units
    psi_noise : the median of the index without drift, for these units; NaN without units
    unit, effective_units : the unit of the sampling error, and how many there are; None without a unit
    reason : why there is no sampling error; None if there is
    basis, labelled_share : ``labelled rows`` and the smaller share of them of both sides, where a store leaves out rows
        without a label; None elsewhere. A drift of the files is of all rows (`streameval.drift`)
    edges : largest scores of the bins but the last, ten of equal count of the side that it is held against. A rule
        keeps those of the first night that it judges

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
    effective_units: float | None = None
    reason: str | None = None
    basis: str | None = None
    labelled_share: float | None = None
    edges: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values but the edges; NaN becomes None."""
        own = {name: value for name, value in vars(self).items() if name != "edges"}
        return {"streameval": __version__} | {name: None if value != value else value for name, value in own.items()}

    def lines(self) -> list[tuple[str, str]]:
        """Names and values of what there is."""
        facts = [(name.replace("_", " "), value) for name, value in self.to_dict().items() if name != "streameval"]
        return [(k, v if isinstance(v, str) else digits(v)) for k, v in facts if v is not None]


def distances(
    scores: tuple[Array, Array], against: tuple[Array, Array], edges: Sequence[float] = ()
) -> tuple[float, float, float, tuple[float, ...]]:
    """KS, W1 and PSI of two sets, each of distinct ascending scores and their counts, and the edges of PSI.

    Examples
    --------
    >>> one, other = (np.array([0.0, 1.0]), np.array([1, 3])), (np.array([0.0, 1.0]), np.array([2, 2]))
    >>> ks, w1, psi, edges = distances(one, other)
    >>> ks, w1, round(psi, 3), edges
    (0.25, 0.25, 0.154, (0.0, 1.0))
    """
    values = np.union1d(scores[0], against[0])
    counts = np.zeros((2, values.size), np.int64)
    for side, (own, rows) in enumerate((scores, against)):
        counts[side, np.searchsorted(values, own)] = rows
    shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    apart = np.abs(shares[0] - shares[1])
    finite = np.isfinite(values[1:]) & np.isfinite(values[:-1])
    area = float((apart[:-1][finite] * np.diff(values)[finite]).sum())
    # without edges, where the shares reach 10, 20, … 90 %
    deciles = np.unique(np.searchsorted(shares[1], np.arange(1, 10) / 10 - 1e-12))
    cuts = np.searchsorted(values, edges, "right") - 1 if len(edges) else deciles
    below = np.insert(np.cumsum(counts, axis=1), 0, 0, axis=1)
    bins: Array = np.diff(np.hstack((below[:, :1], below[:, cuts + 1], below[:, -1:])), axis=1)
    share = (bins + 0.5) / (bins + 0.5).sum(axis=1, keepdims=True)  # half a row more, so that no bin is empty
    psi = float(((share[0] - share[1]) * np.log(share[0] / share[1])).sum())
    ends = tuple(edges) or tuple(values[cuts].astype(float).tolist())
    return float(apart.max(initial=0)), area, psi, ends


def draws(table: Array, against: Array, widths: Array, cuts: Array) -> tuple[Array, Array, Array]:
    """KS, W1 and PSI without drift, arrays of shape (1000,).

    Parameters
    ----------
    table, against : int64 arrays of shape (n_bins, n_blocks), rows of both sides by bin, ascending, and block
    widths : float64 array of shape (n_bins,), from each bin to the next one; 0 for the last
    cuts : int64 array, ascending, how many bins are up to each edge of PSI
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
    reference = np.insert(np.cumsum(against.sum(axis=1)) / max(1, against.sum()), 0, 0.0)
    steps = np.diff(np.insert(drawn, 0, 0.0, axis=0)[cuts], axis=0, prepend=0.0, append=0.0)
    shares = np.diff(reference[cuts], prepend=0.0, append=1.0)
    some = shares > 0
    psi = (np.square(steps[some]) / shares[some][:, None]).sum(axis=0)
    return np.abs(drawn).max(axis=0), widths @ np.abs(drawn), psi


def with_error(drift: Drift, table: Array, against: Array, scores: tuple[Array, Array], unit: str) -> Drift:
    """Add the sampling error to a drift.

    Parameters
    ----------
    drift : the values
    table, against : see `draws`
    scores : float64 arrays of shape (n_bins,), the lowest and the highest score of each bin
    unit : what the blocks hold
    """
    units = min(effective_units(side.sum(axis=0)) for side in (table, against))
    facts = vars(drift) | {"unit": unit, "effective_units": units}
    if units < LEAST_DRIFT_UNITS:
        return Drift(**facts | {"reason": f"{units:.3g} effective units, {LEAST_DRIFT_UNITS} are needed"})
    middle = scores[0] / 2 + scores[1] / 2
    widths, cuts = np.diff(middle, append=middle[-1:]), np.searchsorted(scores[0], drift.edges, "right")
    ks, w1, psi = draws(table, against, np.where(np.isfinite(widths), widths, 0.0), np.unique(cuts))
    for name, value, drawn in (("ks", drift.ks, ks), ("w1", drift.w1, w1)):
        facts[f"{name}_lower"] = max(0.0, value - float(np.quantile(drawn, _DRIFT_LEVEL)))
        facts[f"{name}_p"] = (1 + int((drawn >= value).sum())) / (_DRAWS + 1)
    return Drift(**facts | {"psi_noise": float(np.median(psi))})
