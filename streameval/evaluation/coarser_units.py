"""Units that are too fine: standard errors by other columns of ids that a call reads anyway.

Rows of different units may still depend on each other: messages of different campaigns, if they share a cluster. No
replicate over the units shows that, but one over the clusters does. For each cluster and class column, the rows of 64
of its 128 blocks are counted on the coarse grid of the first score; all other rows are the difference from the counts
by unit. Removing each of some n of B blocks gives

    Var = (B − 1)/n · Σ (θ₍₋b₎ − θ)²,

of 64 known to about 1/√128 = 9 %, if no few of them decide. If a standard error is twice as large by 150 clusters, that
is told in four fifths of trials; in two fifths if 16 blocks are counted, and always of all, at more than 1.1 × the time
of the call. The slices of a column are such blocks, too, and counted already; fewer than 50 are categories rather than
a sample.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.metrics.scores.sums import Rankings
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.scores.blocks import BlockCounts, BlockSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.request import Resampling
    from streameval.metrics.estimates import Estimate
    from streameval.states.grouped.groups import Grouped
    from streameval.states.protocol import State, StoredSpec
    from streameval.typing import Array

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
