"""Sampling intervals of results and of counts, and differences from baselines.

The intervals of the number of rows, of the positives, and of their share come from the rows of each block: a total T
has the replicates B/(B − 1)·(T − T_b) and an interval that is symmetric on the log scale, the prevalence is a ratio of
totals with an interval that is symmetric on the logit scale. They describe other samples with the same number of units,
which differ in size (such as campaigns).

Units may be too fine: rows of different units may still depend on each other, such as messages of different campaigns
in one cluster. No replicate over the units shows that, but one over the clusters does. For each cluster and class
column, the rows of 64 of its 128 blocks are counted on the coarse grid of the first score; all other rows are the
difference from the counts by unit. Removing each of some n of B blocks gives

    Var = (B − 1)/n · Σ (θ₍₋b₎ − θ)²,

of 64 known to about 1/√128 = 9 %, if no few of them decide. If a standard error is twice as large by 150 clusters, that
is told in four fifths of trials; in two fifths if 16 blocks are counted, and always of all, at more than 1.1 × the time
of the call. The slices of a column are such blocks, too, and counted already; fewer than 50 are categories rather than
a sample.

Differences between estimates, tested together: intervals, p-values by Holm, and a verdict in words.

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
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from streameval.errors import OptionError
from streameval.evaluation.protocol import Sources
from streameval.evaluation.slices import whole_results
from streameval.evaluation.slicing import WHOLE, Slicing
from streameval.metrics.catalogue import entry_of
from streameval.metrics.estimates import TOO_COARSE, Estimate
from streameval.metrics.finalize import in_rounds
from streameval.metrics.protocol import Sizes
from streameval.metrics.resampling import Sampled, by_row, estimates, refused
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.metrics.scores.sums import Rankings
from streameval.metrics.selection import of_all_rows
from streameval.results import Scalar
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.scores.blocks import BlockCounts, BlockSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.protocol import MetricRequest, Replication
    from streameval.evaluation.request import Resampling
    from streameval.evaluation.slices import Swept
    from streameval.metrics.protocol import Exact, Metric
    from streameval.metrics.resampling import Resampled
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.keys import By
    from streameval.states.protocol import Source, Spec, State, StoredSpec
    from streameval.typing import Array

T = TypeVar("T")


class Estimated(NamedTuple):
    """A result with its replicates.

    Attributes
    ----------
    own : gives its interval
    paired : gives differences from other columns; the same but where the unit of an interval does not pair columns
    """

    own: Estimate
    paired: Estimate


def block_requests(requests: Sequence[MetricRequest], resampling: Resampling) -> list[MetricRequest]:
    """States of blocks, folded in addition to those of the metrics."""
    blocks = (w.blocks(factor) for factor in resampling.factors for w in requests)
    return list(dict.fromkeys(one for one in blocks if one is not None))


def list_specs(requests: Sequence[MetricRequest], resampling: Resampling, slicing: Slicing = WHOLE) -> tuple[Spec, ...]:
    """The states to fold, each once: those of metrics, of slices and of blocks.

    Blocks that only differences over all rows need are not sliced.
    """
    specs = slicing.specs(list(dict.fromkeys(w.spec for w in requests)))
    blocks = [w.spec for w in block_requests(requests, resampling)]
    sliced = [spec for spec in blocks if isinstance(spec, BlockSpec)] if slicing.keys else []
    split = (GroupedSpec(spec, key) for key in slicing.keys for spec in sliced)
    coarser = coarser_specs(requests, resampling).values()
    return tuple(dict.fromkeys((*specs, *split, *(spec for spec in blocks if spec not in sliced), *coarser)))


def slice_blocks(
    requests: Sequence[MetricRequest], folded: Mapping[StoredSpec, State], resampling: Resampling, key: By
) -> dict[StoredSpec, Grouped]:
    """The block counts of the slices of a slicing, by the specs of the counts of all rows."""
    blocks = (w.spec for w in block_requests(requests, resampling) if isinstance(w.spec, BlockSpec))
    split = {spec: GroupedSpec(spec, key) for spec in blocks}
    return {spec: cast("Grouped", folded[grouped]) for spec, grouped in split.items() if grouped in folded}


def replicated(
    engine: Engine,
    states: Sequence[tuple[MetricRequest, State]],
    folded: Mapping[StoredSpec, State],
    resampling: Resampling,
) -> list[tuple[MetricRequest, Sources]]:
    """The states with the sources of their replicates; `folded` are all folded states, those of blocks among them."""
    sources = []
    for w, state in states:
        blocks = w.blocks(resampling)
        own = None if blocks is None else folded.get(blocks.spec)
        wanted = resampling.level is not None and w.computed  # a state may be folded for its rows alone
        sources.append((w, w.replication(resampling).sources(engine, state, own) if wanted else Sources(state)))
    return sources


def finalize_states(
    engine: Engine, states: Sequence[tuple[MetricRequest, Sources]], swept: Swept, resampling: Resampling
) -> tuple[tuple[Scalar, ...], list[dict[Metric, Scalar]]]:
    """The values of all metrics of all states, in the order given, and for each state what else its intervals need.

    States are read once for both; those that `sweep` has finalized give only values.
    """
    further: list[tuple[Metric, ...]] = []
    for w, sources in states:
        certified = resampling.level is not None and w not in swept
        more = w.replication(resampling).certificates(sources.own) if certified else ()
        further.append((*w.interval_sources, *more) if certified else ())
    jobs = [(replace(w, metrics=w.metrics + more), one.state) for (w, one), more in zip(states, further, strict=True)]
    values = whole_results(engine, jobs, swept)
    results: list[Scalar] = []
    certain: list[dict[Metric, Scalar]] = []
    for (w, _), more in zip(states, further, strict=True):
        results += islice(values, len(w.metrics))
        certain.append(dict(zip(more, islice(values, len(more)), strict=True)))
    return tuple(results), certain


def estimate_results(
    engine: Engine,
    several: Sequence[Sequence[tuple[MetricRequest, Sources]]],
    results: Sequence[Sequence[Scalar]],
    resampling: Resampling,
    certain: Sequence[Sequence[Mapping[Metric, Scalar]]] = (),
) -> list[tuple[list[Estimated], dict[tuple[str, str], Resampled]]]:
    """The results of some sets of rows, such as slices, with their replicates, which are computed together.

    Parameters
    ----------
    engine : finalizes replicates
    several : for each set, states with their requests and the sources of their replicates; all have the same requests
    results : for each set, the values of all metrics of all states
    resampling : the options of sampling intervals
    certain : for each set and state, the additional values from `finalize_states`; others are finalized on demand

    Returns
    -------
    for each set, list of Estimated
        The results, in the order given.
    and dict of (family, column) to Resampled
        The sources of replicates, for the intervals of curves and of counts.
    """
    collected: list[list[Estimated]] = [[] for _ in several]
    sources: list[dict[tuple[str, str], Resampled]] = [{} for _ in several]
    by_metric: list[dict[tuple[str, str], Estimated]] = [{} for _ in several]  # of all rows, by column and metric
    for place, w in enumerate([w for w, _ in several[0]] if several else []):
        metrics, replication = w.computed, w.replication(resampling)
        if not metrics:
            continue  # folded for its rows alone
        sets, given = [], [states[place][1] for states in several]
        for i, source in enumerate(given):
            exact = partial(compute_further, engine, source.state, certain[i][place] if certain else {})
            start = len(collected[i])
            values = [*results[i][start : start + len(w.metrics)], *exact(w.interval_sources)]
            sets.append(_Valued(source.state, values, exact))
            if not isinstance(source.own, str):
                sources[i][w.group, w.of] = source.own
        own = _replicates(engine, replication, sets, [source.own for source in given])
        own = [replication.refined(some, one.state, metrics) for some, one in zip(own, sets, strict=True)]
        paired = [*own]
        if all(source.paired is not None for source in given):
            paired = _replicates(engine, replication, sets, [source.paired or "" for source in given])
        for i, (source, one) in enumerate(zip(given, sets, strict=True)):
            if replication.single and isinstance(source.own, str):  # differences need blocks
                own[i] = by_row(own[i], metrics, one.state.totals(), one.exact)
            pairs = [Estimated(*pair) for pair in zip(own[i], paired[i], strict=True)]
            by_metric[i] |= {(w.of, metric.name): pair for metric, pair in zip(metrics, pairs, strict=True)}
            collected[i] += pairs[: len(w.metrics)]
    every = [metric for w, _ in several[0] for metric in w.metrics] if several else []
    return [
        (_of_samples(some, every, known), own) for some, known, own in zip(collected, by_metric, sources, strict=True)
    ]


def cross(factors: Sequence[Sequence[Estimated]]) -> list[Estimated]:
    """The results with replicates by each of two crossed factors and by both; or by one factor as they are."""
    if len(factors) == 1:
        return [*factors[0]]
    return [
        Estimated(first.own.crossed_with(second.own, both.own), first.paired.crossed_with(second.paired, both.paired))
        for first, second, both in zip(*factors, strict=True)
    ]


class _Valued(NamedTuple):
    """A state with the values of its metrics, and what gives further metrics of it."""

    state: Source
    values: Sequence[Scalar]
    exact: Exact


def _replicates(
    engine: Engine, replication: Replication, states: Sequence[_Valued], sources: Sequence[Resampled | str]
) -> list[list[Estimate]]:
    """For each state, its values with replicates from a source, or without, for the reason that is in its place."""
    found: list[list[Estimate]] = []
    due: list[Sampled] = []
    for (state, values, exact), source in zip(states, sources, strict=True):
        if not isinstance(source, str) and all(math.isnan(value.value) for value in values):
            source = "the value is undefined"
        if isinstance(source, str):
            found.append([refused(value, replication.resampling.named_unit, source) for value in values])
        else:
            found.append([])
            due.append(Sampled(values, replication.request.computed, state.totals().rows, source, exact))
    replicated = iter(estimates(due, partial(replication.replicates, engine), engine.each))
    return [some or next(replicated) for some in found]


def _of_samples(
    results: Sequence[Estimated], metrics: Sequence[Metric], by_metric: Mapping[tuple[str, str], Estimated]
) -> list[Estimated]:
    """The estimates, in which values of a sample take the replicates of the metric of all rows."""
    replaced: list[Estimated] = []
    for one, metric in zip(results, metrics, strict=True):
        value, source = one.own.scalar, of_all_rows(metric)
        overall = None if source is None else by_metric.get((str(value.of), source.name))
        sampled = overall is not None and not math.isnan(value.value)
        replaced.append(Estimated(*(side.sampled(value) for side in overall)) if overall and sampled else one)
    return replaced


def compute_further(
    engine: Engine, state: Source, known: Mapping[Metric, Scalar], metrics: Sequence[Metric[T]]
) -> list[T]:
    """Metrics of an exact state; some are known."""
    missing = [metric for metric in metrics if metric not in known]
    values: dict[Metric, Any] = dict(known)
    if missing:
        values |= zip(missing, in_rounds(engine.finalize, [(state, missing)])[0], strict=True)
    return [values[metric] for metric in metrics]


def baseline_differences(
    results: Sequence[Estimated], requests: Sequence[MetricRequest], resampling: Resampling
) -> list[tuple[Estimate, str | None]]:
    """Differences of all metrics from the baselines, of all rows or of one slice, each with the metric's better end.

    Parameters
    ----------
    results : results in the order of the requests
    requests : the requests
    resampling : the options of sampling intervals
    """
    by_group: dict[str, dict[str, dict[str, Estimate]]] = {}
    for group, one in zip((w.group for w in requests for _ in w.metrics), results, strict=True):
        scalar = one.own.scalar
        by_group.setdefault(group, {}).setdefault(str(scalar.of), {})[scalar.metric] = one.paired
    return [
        (columns[other][metric].minus(columns[base][metric]), better_end(metric))
        for columns in by_group.values()
        for other, base in resampling.pairs(list(columns))
        for metric in columns[other]
        if metric in columns[base]
    ]


def conclude(difference: Estimate, level: float, margin: float | None = None) -> Scalar:
    """One difference as a result, its p alone, and ``equivalent`` where it is shown to lie within ± `margin`.

    Raises
    ------
    OptionError
        If the margin is not a number above 0.
    """
    if margin is not None and not 0 < margin < math.inf:
        raise OptionError(f"margin={margin!r} is not a number above 0")
    scalar = compared([(difference, better_end(difference.scalar.metric))], level)[0]
    same = margin is not None and difference.equivalent(margin, level)
    return replace(scalar, verdict="equivalent") if same else scalar


def better_end(metric: str) -> str | None:
    """Which end of a metric is better: ``higher``, ``lower``, or None."""
    entry = entry_of(metric)
    return entry.better if entry else None


COUNTED = ("rows", "positives", "prevalence")


def estimate_counts(
    factors: Sequence[Mapping[tuple[str, str], Resampled]], rows: int, positives: int, level: float
) -> tuple[Scalar, ...]:
    """Rows, positives and prevalence with their intervals; empty if no column has blocks that cover all rows.

    Parameters
    ----------
    factors : sources of replicates, by family and column; of each factor of the unit
    rows, positives : counts of the evaluation
    level : level of the intervals
    """
    for splits in zip(*(resampled.values() for resampled in factors), strict=True):
        grids = [split for split in splits if isinstance(split, BlockReplicates)]
        if [grid.rows_by_block.sum(axis=0).tolist() for grid in grids] == [[rows - positives, positives]] * len(splits):
            several = [_estimates(grid.rows_by_block, grid.sizes) for grid in grids]
            totals = (first.crossed_with(*others) for first, *others in zip(*several, strict=True))
            return tuple(replace(one.scalar_with(level), rows=rows, positives=positives) for one in totals)
    return ()


def _estimates(by_block: Array, sizes: Sizes) -> list[Estimate]:
    """Rows, positives and prevalence; `by_block` has shape (n_blocks, 2): negatives and positives of each block."""
    pos, each = by_block[:, 1].astype(np.float64), by_block.sum(axis=1).astype(np.float64)
    there = each > 0
    total, positive, blocks = float(each.sum()), float(pos.sum()), int(np.count_nonzero(there))
    grown = blocks / max(1, blocks - 1)
    left = np.where(total > each, total - each, 1.0)
    own = Sizes(sizes.unit, {"rows": each, "positives": pos, "negatives": each - pos}, sizes.units, sizes.single)
    found = (
        (total, grown * (total - each), "log"),
        (positive, grown * (positive - pos), "log"),
        (positive / total if total else float("nan"), (positive - pos) / left, "logit"),
    )
    return [
        Estimate(Scalar.certain(name, value), np.where(there, replicates, np.nan), own, scale)
        for name, (value, replicates, scale) in zip(COUNTED, found, strict=True)
    ]


_SOME = 64  # blocks of a column that are counted
_HIT = 20  # least number of these that have rows, as some 50 ids do; fewer are categories, not a sample
_SLICES = 50, 128  # least number of slices that are taken for units, and most that are removed
_LARGER = 1.5  # least ratio of standard errors that is told
_LEAST_FREEDOM = 4  # degrees of freedom, below which one or two blocks decide


def coarser_specs(requests: Sequence[MetricRequest], resampling: Resampling) -> dict[str, BlockSpec]:
    """The counts of some blocks of each column of ids that is read, by column; none without intervals of scores."""
    source = _source(requests, resampling)
    if source is None:
        return {}
    columns = [column for w in requests for column in _ids_of(w.spec)]
    main = source[1]
    return {
        column: replace(main, unit=column, count=_SOME, of=main.count, pointed=False)
        for column in dict.fromkeys(columns)
        if column not in resampling.units
    }


def coarser_units(
    requests: Sequence[MetricRequest],
    resampling: Resampling,
    states: Mapping[StoredSpec, State],
    estimates: Sequence[Estimate],
    slices: Mapping[str, Mapping[StoredSpec, Grouped]],
) -> dict[str, float]:
    """How many times as large the standard error is by other columns of ids, where it is clearly larger.

    Parameters
    ----------
    requests : the states with their metrics
    resampling : the requested sampling intervals
    states : the folded states by spec
    estimates : the results of all metrics, in the order of the requests
    slices : by column, the block counts of its slices by the spec of those of all rows
    """
    source = _source(requests, resampling)
    if source is None or not isinstance(main := states.get(source[1]), BlockCounts):
        return {}
    request, _, metric = source
    own = next(e for e in estimates if (e.scalar.metric, e.scalar.of) == (metric.name, request.of)).two_way
    if own.undefined is not None or not own.stderr:
        return {}
    parts = {column: states.get(spec) for column, spec in coarser_specs(requests, resampling).items()}
    errors = {
        column: _error(main, _by_block(main, [part], _SOME), part.spec.of, metric)
        for column, part in parts.items()
        if isinstance(part, BlockCounts) and np.count_nonzero(part.table.any(axis=(0, 2))) >= _HIT
    }
    for column, split in slices.items():
        grouped = split[source[1]]
        groups = [group for group in grouped.groups() if group != (None,)]
        if column not in resampling.units and len(groups) >= _SLICES[0]:
            some = [cast("BlockCounts", grouped.only(group)) for group in groups[:: -(-len(groups) // _SLICES[1])]]
            errors[column] = _error(main, _by_block(main, some, 1), len(groups), metric)
    return {column: error / own.stderr for column, error in errors.items() if error >= _LARGER * own.stderr}


def _source(
    requests: Sequence[MetricRequest], resampling: Resampling
) -> tuple[MetricRequest, BlockSpec, RocAuc | AveragePrecision] | None:
    """The first score whose blocks are counted on a grid, their spec, and its first area under a curve."""
    for w in requests if resampling.level is not None else ():
        ranked = [metric for metric in w.metrics if isinstance(metric, RocAuc | AveragePrecision)]
        blocks = w.blocks(resampling.factors[0]) if ranked and w.family.name == "score" else None
        if blocks is not None and isinstance(blocks.spec, BlockSpec) and not blocks.spec.weighted:
            return w, blocks.spec, ranked[0]
    return None


def _ids_of(spec: object) -> tuple[str, ...]:
    """The columns of ids that the state of a spec holds."""
    if isinstance(spec, ClusterSpec):
        return (spec.column,)
    return (spec.classes, spec.cluster) if isinstance(spec, ContingencySpec) else ()


def _by_block(main: BlockCounts, parts: Sequence[BlockCounts], blocks: int) -> Array:
    """Rows by bin of `main` and block of each part; last, those in no part.

    Parameters
    ----------
    main : counts of all rows
    parts : counts of disjoint rows
    blocks : number of blocks of each part; 1 merges them

    Returns
    -------
    int64 array of shape (n_bins, n_parts * blocks + 1, 2)
    """
    table = np.zeros((main.prefixes.size, len(parts) * blocks + 1, 2), np.int64)
    for i, part in enumerate(one.at_shift(main.shift) for one in parts):
        rows = part.table if blocks > 1 else part.table.sum(axis=1, keepdims=True)
        table[np.searchsorted(main.prefixes, part.prefixes), i * blocks : (i + 1) * blocks] = rows
    table[:, -1] = main.whole[0] - table.sum(axis=1)
    return table


def _error(main: BlockCounts, table: Array, blocks: int, metric: RocAuc | AveragePrecision) -> float:
    """The standard error from leaving out each block of a table but the last; 0 if few of them decide.

    They are a sample of `blocks` blocks.
    """
    count = table.shape[1]
    missing = np.zeros((count, 2), np.int64), np.zeros((count, 2))
    spec = replace(main.spec, count=count, pointed=False)
    rows = replace(main, spec=spec, table=table, nan_rows=missing[0], nan_weights=missing[1], points=None)
    values = metric.of_rankings(Rankings.of([BlockReplicates(rows, "", count).rank(())], ()))
    squares = np.square(values[: count - 1] - values[-1])
    total = float(squares.sum())
    if not total > 0 or 3 * total**2 / float(np.square(squares).sum()) - 2 < _LEAST_FREEDOM:
        return 0.0
    return math.sqrt((blocks - 1) / (count - 1) * total)


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
