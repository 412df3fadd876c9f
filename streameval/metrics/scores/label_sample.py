"""LabelSample: score metrics of all rows, estimated from a sample of labels.

All rows are counted by score, so only the labels are a sample. Rows are post-stratified: strata are those in which
labels were drawn, cut at every threshold that a metric reads; without strata of the design also at the scores that a
half, a quarter, … 1/256 of all rows reach, which needs no labels. A range with less than 10 expected labels joins the
next one, never across a threshold. With N_h rows in stratum h, a labelled row i of design weight w_i stands for

    ω_i = w_i · N_h / Σ_{labelled j in h} w_j

rows, and every metric is its formula for weighted rows. So rows beyond a threshold are counted, not estimated, and so
are the squares of scores in the Brier score, (Σ x² − 2 Σ ω·x·y + Σ ω·y)/N with the first sum over all rows.

The standard error is the larger of two. The delete-a-block jackknife recomputes ω without each block of labels. It
cannot see positives that were not drawn: of 500 labels at a prevalence of 1 %, its intervals hold the truth in 50 to
90 %. The other is the variance of a stratified sample,

    V = Σ_h (∂θ/∂p_h)² · p_h(1 − p_h)/(n_h − 1) · (1 − n_h/N_h)

with the share of positives p_h of the n_h labels, made monotone in the score and kept off 0 and 1 by 1/(4·n_h).
Both are for the value that labels of all rows would give: if all are labelled, they are 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.jit import read_only
from streameval.kernels.sampling import draw_smallest
from streameval.metrics.catalogue import entry_of
from streameval.metrics.estimates import Estimate, at_end
from streameval.metrics.finalize import compute_metrics
from streameval.metrics.protocol import OUTSIDE, Entry, Metric, Sizes, class_counts
from streameval.metrics.scores.cut_bins import Rows
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.scoring_rules import BrierScore, Ends, present
from streameval.metrics.scores.sums import dot, total
from streameval.results import CENSUS, LabelStratum, Scalar
from streameval.states.protocol import Small, Source, Totals
from streameval.states.scores.types import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.states.scores.counts import ScoreSpec
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

EQUAL = 1e-9  # relative, of design weights
_STEP = 1e-3  # relative, of a share of positives, for derivatives


PREVALENCE = Entry("prevalence", "score", "", False, 0, 1, None, "Share of positives.", "")


@dataclass(frozen=True)
class Prevalence(Metric[Scalar, "ScorePart", None, "Source"]):
    """The share of positives of weighted rows."""

    name: str = "prevalence"

    def partial(self, part: ScorePart) -> None:
        """Nothing: totals suffice."""

    def combine(self, partials: Sequence[None], state: Source) -> Scalar:
        """From the totals."""
        total = state.totals()
        return Scalar.certain(self.name, total.p / (total.n + total.p))


@dataclass(frozen=True)
class SampledBrier(BrierScore):
    """The Brier score of weighted rows, given the mean square of the scores of all rows.

    The squares have no error then, but that of Σ ω·y·(1 − 2x) is larger than that of Σ ω·(x − y)² where scores tell the
    labels: losses are small and alike there, and labels are not. For 500 uniform labels, and scores that are calibrated
    probabilities, it was 0 to 6 % larger at a ROC AUC of up to 0.9, 4 to 18 % at 0.95, and 29 to 68 % at 0.99. The gain
    is that of scores far from calibrated, whose squares decide.
    """

    square: float = math.nan

    def partial(self, part: ScorePart) -> Ends | None:
        """Σ p·(1 − 2s), which the loss adds to the squares of scores."""
        value = dot(part.p, 1 - 2 * part.scores)
        return value, value, value

    def combine(self, partials: Sequence[Ends | None], state: Source) -> Scalar:
        """From the totals."""
        if math.isnan(self.square):
            return Scalar.undefined(self.name, OUTSIDE)
        sums, totals = present(partials, state), state.totals()
        if isinstance(sums, str):
            return Scalar.undefined(self.name, sums)
        moved = total([one for one, _, _ in sums]) / (totals.n + totals.p)
        return Scalar.certain(self.name, max(0.0, self.square + moved))


class Cells(NamedTuple):
    """Labelled rows by group and score.

    Attributes
    ----------
    group : int64 array of shape (n_cells,), the place of the group in the table of the state
    keys : uint64 array of the same shape, rank keys of scores
    counts : int64 array of shape (2, n_cells), negatives and positives
    weights : float64 array of the same shape, sums of design weights
    """

    group: Array
    keys: Array
    counts: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class LabelSample(Small):
    """Labelled rows with the weights by which they stand for all rows.

    Attributes
    ----------
    spec : ScoreSpec of weighted scores
    design : how labels were drawn, in words
    unit : what was drawn: a column, or ``row``
    sizes : int64 array of shape (n_strata,), all rows of each stratum
    stratum, block : int64 arrays of shape (n_cells,)
    cells : the labelled rows
    names : tuple of str, what each stratum is
    units : number of units that were drawn; None if rows were
    recorded : whether design weights are inverse probabilities, so that they sum up to the rows
    scarce : why no metric has an interval, if there are too few units
    ends : uint64 array of shape (n_strata - 1,), without strata of the design the last key of each stratum but the last
    unseen : thresholds with labels on one side only
    above : rows that reach each threshold, by threshold
    ranks : the threshold that a number of points reaches, by that number
    dropped : rows without a score
    square : mean square of the scores of all rows, if the Brier score needs it
    """

    spec: ScoreSpec
    design: str
    unit: str
    sizes: Array
    stratum: Array
    block: Array
    cells: Cells
    names: tuple[str, ...] = ()
    units: int | None = None
    recorded: bool = False
    scarce: str | None = None
    ends: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    unseen: tuple[float, ...] = ()
    above: Mapping[float, int] = field(default_factory=dict)
    ranks: Mapping[int, float] = field(default_factory=dict)
    dropped: int = 0
    square: float = math.nan

    @cached_property
    def keys(self) -> tuple[Array, Array]:
        """Distinct keys, from the best score to the worst, and the place of each cell among them."""
        keys, places = np.unique(self.cells.keys, return_inverse=True)
        return keys, places

    @property
    def rows(self) -> int:
        """All rows, with and without a label."""
        return int(self.sizes.sum())

    @cached_property
    def labels(self) -> Array:
        """Labelled rows of each stratum: an int64 array of shape (2, n_strata), negatives and positives."""
        sides = [np.bincount(self.stratum, side, self.sizes.size) for side in self.cells.counts]
        return np.stack(sides).astype(np.int64)

    @cached_property
    def _sums(self) -> Array:
        """Sum of the design weights of each stratum."""
        return np.bincount(self.stratum, self.cells.weights.sum(axis=0), self.sizes.size)

    @cached_property
    def _free(self) -> Array:
        """Share of the rows of each stratum that have no label."""
        free: Array = np.maximum(0.0, 1 - self.labels.sum(axis=0) / self.sizes)
        return free

    @cached_property
    def whole(self) -> Rows:
        """The weighted rows."""
        return self._weighted(self.cells.weights * (self.sizes / self._sums)[self.stratum])

    @property
    def nan_rows(self) -> Array:
        """Rows with a missing score: none, as they are `dropped`."""
        return np.zeros(2, np.int64)

    def squared(self, loss: Scalar, totals: Totals, *, weighted: bool) -> LabelSample:
        """The sample with the mean square of the scores of all rows.

        Parameters
        ----------
        loss : the Brier score of all rows, in which those without a label are negative
        totals : those of these rows
        weighted : whether labelled rows have weights there
        """
        scores = decode(self.cells.keys, self.spec.type).astype(np.float64)
        neg, pos = self.cells.weights if weighted else self.cells.counts
        labelled = float(neg @ scores**2 + pos @ (1 - scores) ** 2)
        squares = math.ldexp(loss.value * (totals.n + totals.p), totals.unit) - labelled
        return replace(self, square=(squares + float(self.cells.counts.sum(axis=0) @ scores**2)) / self.rows)

    def totals(self) -> Totals:
        """Labelled rows, and the weights of both classes."""
        return self.whole.totals()

    def parts(self, shard: object = None, budget: object = None) -> Iterator[ScorePart]:
        """One: all weighted rows."""
        yield from self.whole.parts()  # type: ignore[misc]  # of `_weighted`, which ranks nothing beforehand

    def fixed(self, metric: Metric) -> Metric:
        """The metric with what is counted of all rows: the threshold that its number of points reaches, and squares."""
        if isinstance(metric, BrierScore) and self._free.any():
            return SampledBrier(metric.name, self.square)
        points = metric.points(self.rows) if isinstance(metric, OperatingPoint) and self._free.any() else None
        if points is None or not isinstance(metric, OperatingPoint):
            return metric
        return OperatingPoint("threshold", self.ranks[points], metric.measure, metric.name)

    def estimate(self, metric: Metric, value: Scalar) -> Scalar:
        """A value as an estimate, undefined where the sample has none; a share of all rows is exact."""
        at = metric.at if isinstance(metric, OperatingPoint) and metric.kind == "threshold" else None
        if isinstance(metric, OperatingPoint) and metric.measure == "flagged":
            return Scalar.certain(metric.name, self.above[metric.at] / self.rows, at)
        if metric.points(self.rows) is not None and self._free.any():
            value = Scalar.undefined(metric.name, POINTS)
        elif at in self.unseen:
            value = Scalar.undefined(metric.name, "a stratum has no label on one side of the threshold")
        labelled, strata = int(self.cells.counts.sum()), int(self.sizes.size)
        design = self.design if self._free.any() else CENSUS
        return replace(
            value, exact=False, lower=math.nan, upper=math.nan, design=design, labelled=labelled, strata=strata
        )

    def _weighted(self, weights: Array) -> Rows:
        """The rows with these weights, of shape (2, n_cells); scores without weight are left out."""
        (keys, places), (rows, scores) = self.keys, self._of_keys
        n, p = (np.bincount(places, side, keys.size) for side in weights)
        there, sides = n + p > 0, self.cells.counts.sum(axis=1).tolist()
        missing, sums = [np.zeros(2, np.int64), np.zeros(2)], [n[there], p[there]]
        return Rows.of(self.spec, sides, [rows[there]], sums, scores[there], missing)

    @cached_property
    def _of_keys(self) -> tuple[Array, Array]:
        """Labelled rows of each distinct key, and its score."""
        keys, places = self.keys
        rows = np.bincount(places, self.cells.counts.sum(axis=0), keys.size).astype(np.int64)
        return rows, decode(keys, self.spec.type)

    @cached_property
    def block_sizes(self) -> Sizes:
        """Rows that the labels of each block stand for, by class, except in strata of which all rows are labelled."""
        factor = (self.sizes / self._sums * (self._free > 0))[self.stratum]
        blocks = int(self.block.max(initial=0)) + 1
        sides = (np.bincount(self.block, side * factor, blocks) for side in self.cells.weights)
        return Sizes(self.unit, class_counts(*sides), self.units)

    @cached_property
    def _varying(self) -> Array:
        """Whether design weights vary within each stratum: a bool array of shape (n_strata,)."""
        each = self.cells.weights.sum(axis=0) / self.cells.counts.sum(axis=0)
        mean = (self._sums / self.labels.sum(axis=0))[self.stratum]
        varying: Array = np.bincount(self.stratum, abs(each - mean) > EQUAL * mean, self.sizes.size) > 0
        return varying

    @property
    def strata(self) -> tuple[LabelStratum, ...]:
        """What is known of each stratum, with the rows that its design weights sum up to."""
        rows, weights = self.cells.counts.sum(axis=0), self.cells.weights.sum(axis=0)
        excess = weights / rows - 1
        if self.units is not None:  # all rows of a unit were drawn at once
            excess = np.bincount(self.cells.group, weights - rows)[self.cells.group]
        variances = np.bincount(self.stratum, weights * np.maximum(0.0, excess))
        sums = self._sums if self.recorded else self.sizes
        columns = self.names, self.sizes.tolist(), *self.labels.tolist(), sums.tolist(), variances.tolist()
        found = zip(*columns, strict=True)
        return tuple(LabelStratum(name, n, neg + pos, pos, w, v) for name, n, neg, pos, w, v in found)

    def without(self, block: int) -> Rows:
        """The rows weighted without the labels of a block."""
        others, every = (factors[block, self.stratum] for factors in self._factors)
        return self._weighted(self.cells.weights * (np.where(self.block == block, 0.0, others) + every))

    @cached_property
    def _factors(self) -> tuple[Array, Array]:
        """Without each block, factors of the weights of its stratum in other blocks, and of all: (n_blocks, n_strata).

        Weights move by the root of the share of their stratum that has no label: labels of all rows do not vary.
        """
        rest = self._sums - self._by_block(self.cells.weights.sum(axis=0))
        left = rest > self._sums * 1e-9  # a stratum whose labels are all in the block keeps them
        moved = np.sqrt(self._free) * left
        others = np.divide(self.sizes, rest, out=np.zeros_like(rest), where=left)
        return moved * others, (1 - moved) * self.sizes / self._sums

    def _by_block(self, values: Array) -> Array:
        """Sums over the cells of each block and stratum: a float64 array of shape (n_blocks, n_strata)."""
        shape = int(self.block.max(initial=0)) + 1, self.sizes.size
        sums: Array = np.bincount(self.block * shape[1] + self.stratum, values, math.prod(shape)).reshape(shape)
        return sums

    def errors(self, metrics: Sequence[Metric]) -> Array:
        """The roots of V, of the strata whose weights do not vary: a float64 array of shape (n_metrics,)."""
        labels = self.labels.sum(axis=0)
        variances = self.shares * (1 - self.shares) / np.maximum(labels - 1, 1) * self._free * ~self._varying
        slopes = self.slopes(metrics, np.flatnonzero(variances))
        return np.asarray(np.sqrt(slopes**2 @ variances))

    @cached_property
    def shares(self) -> Array:
        """Share of positives of each stratum, monotone in the score and off 0 and 1: shape (n_strata,)."""
        from scipy.optimize import isotonic_regression

        labels = self.labels.sum(axis=0)
        middle = np.bincount(self.stratum, self.keys[1] * self.cells.counts.sum(axis=0), labels.size) / labels
        order, shares = np.argsort(middle), np.empty(labels.size)
        weights = labels[order].astype(np.float64)
        shares[order] = isotonic_regression((self.labels[1] / labels)[order], weights=weights, increasing=False).x
        clipped: Array = np.clip(shares, 1 / (4 * labels), 1 - 1 / (4 * labels))
        return clipped

    def slopes(self, metrics: Sequence[Metric], strata: Array) -> Array:
        """Derivatives of metrics by the share of positives of some strata, else 0: shape (n_metrics, n_strata)."""
        whole = self.cells.weights.sum(axis=0) * (self.sizes / self._sums)[self.stratum]
        slopes, shares = np.zeros((len(metrics), self.sizes.size)), self.shares
        for h in strata.tolist():
            step, ends = _STEP * min(shares[h], 1 - shares[h]), []
            for side in (step, -step):
                moved = shares.copy()
                moved[h] += side
                positive = moved[self.stratum]
                rows = self._weighted(np.stack((whole * (1 - positive), whole * positive)))
                ends.append(np.array([value.value for value in compute_metrics(rows, metrics)]))
            slopes[:, h] = (ends[0] - ends[1]) / (2 * step)
        return slopes

    def near(self, words: Array, keys: Array, limits: Array | None) -> tuple[Array, Array, Array, Array]:
        """Rows of each stratum; those whose hashes of ids are within limits, by stratum, with their hashes and strata.

        `words` and `keys` are uint64 arrays of shape (n,), words of ids and rank keys; None are no limits.
        """
        sizes, rows, hashes = np.zeros(self.sizes.size, np.int64), np.empty(keys.size, np.int64), np.empty_like(keys)
        most = np.full(sizes.size, np.iinfo(np.uint64).max, np.uint64) if limits is None else limits
        count = draw_smallest(*map(read_only, (words, keys, self.ends, most)), sizes, rows, hashes)
        rows = rows[:count]
        return sizes, rows, hashes[:count].copy(), np.searchsorted(self.ends, keys[rows])

    def prevalence(self, level: float) -> Scalar:
        """The share of positives with its interval."""
        metric, sizes, positives = Prevalence(), self.block_sizes, self._by_block(self.cells.weights[1])
        others, every = self._factors
        sums = (positives.sum(axis=0) - positives) * others + positives.sum(axis=0) * every
        replicates = np.where(sizes.counts["rows"] > 0, sums.sum(axis=1) / self.rows, math.nan)
        value = self.estimate(metric, compute_metrics(self.whole, [metric])[0])
        value = replace(value, rows=self.rows, positives=None)
        return self.refined([Estimate(value, replicates, sizes, "logit")], [metric])[0].scalar_with(level)

    def refined(self, estimates: Sequence[Estimate], metrics: Sequence[Metric]) -> list[Estimate]:
        """Estimates from the replicates with the larger of both standard errors, and refusals by counts."""
        sides = self.cells.counts.sum(axis=1, keepdims=True)
        sizes = Sizes(self.unit, class_counts(*sides), self.units, single=True)
        due = [
            i
            for i, one in enumerate(estimates)
            if one.scalar.value == one.scalar.value and not _entry(metrics[i]).no_interval
        ]
        alone = self.units is not None or self._varying.all()  # the jackknife
        errors = np.zeros(len(due)) if alone else self.errors([metrics[i] for i in due])
        refined = list(estimates)
        for i, error in zip(due, errors.tolist(), strict=True):
            one, entry = estimates[i], _entry(metrics[i])
            reason = self.scarce or (_chosen(metrics[i]) if self._free.any() else None)
            if any(math.isclose(one.scalar.value, end, rel_tol=0, abs_tol=EQUAL) for end in (entry.low, entry.high)):
                reason = at_end(one.scalar.value)
            if one.scalar.exact:
                one, reason = replace(one, replicates=np.empty(0), sizes=sizes, known=0.0), None
            elif not self._free.any():
                one = replace(one, sizes=sizes, known=0.0)
            elif self.units is None:
                one = replace(one, sizes=sizes.of(entry.units))
            if not (one.scalar.exact or alone) and (np.isfinite(one.stderr) or not self._varying.any()):
                one = replace(one, known=max(error, one.stderr) if np.isfinite(one.stderr) else error)
            # by strata of which every row has a label
            settled = one.scalar.exact or not (alone or error or self._varying.any())
            if self._free.any() and not settled and one.stderr <= EQUAL * abs(one.scalar.value):
                reason = reason or UNSEEN
            # units of unequal weights have no rule of three
            refined[i] = replace(one, reason=reason, end_units=math.nan)
        return refined


def _entry(metric: Metric) -> Entry:
    """The facts of a metric."""
    if isinstance(metric, OperatingPoint) and metric.kind == "threshold":
        return replace(entry_of(f"{metric.measure}@threshold={metric.at}") or PREVALENCE, thresholded=False)
    other = PREVALENCE if isinstance(metric, Prevalence) else replace(PREVALENCE, name=metric.name, scale="plain")
    return entry_of(metric.name) or other


def _chosen(metric: Metric) -> str | None:
    """Why a value that is a maximum over the sampled labels, so too high on average, has no interval; else None."""
    entry = _entry(metric)
    return FITTED if metric.name == "corp.dsc" else DEPENDS if entry.thresholded or entry.useless else None


UNSEEN = "it is the same without each block of labels, which do not show how it varies"
DEPENDS = "its threshold depends on the labels; name one (--at threshold=)"
FITTED = "the isotonic fit follows the sampled labels, which it tells apart better than others"
POINTS = "areas down to a rank are not estimated from sampled labels; name a point (--at share=)"
