"""Each slice against all other rows, its *rest*: differences, paired over the blocks of their units.

Slices are selected by their number of rows, never by their values: a slice selected for a bad value would look bad by
chance. The rest is finalized as if there were no other rows, cluster sizes included.

Some metrics differ between few rows and many even if rows are drawn at random: those of clusters, if the slice cuts
clusters; those against classes; those of the top k points. Their differences have no interval, p or verdict, with the
reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.evaluation.comparison import minus_named, of_one_unit
from streameval.evaluation.intervals import better_end, estimated, finalized, sliced_blocks
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.slices import usable
from streameval.metrics.differences import compared
from streameval.results import REST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slicing import Slicing
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.states.grouped import By

__all__ = ["rest_differences"]

_MOST = 100  # slices compared per slicing


def rest_differences(
    engine: Engine,
    slicing: Slicing,
    key: By,
    states: Mapping[Any, Any],
    wanted: Sequence[MetricRequest],
    found: Sequence[Sequence[Estimated]],
    resampling: Resampling,
) -> list[Scalar]:
    """The differences in every metric between the slices with the most rows and all other rows.

    Parameters
    ----------
    engine : finalizes values and replicates
    slicing : how the rows are sliced
    key : the slicing
    states : the folded states
    wanted : the requests: states and their metrics
    found : the results of every slice with their replicates, slices with the most rows first
    resampling : which intervals and comparisons to compute

    Returns
    -------
    list of Scalar
        Slice by slice, p adjusted for all of them.
    """
    slices = list(found[:_MOST])
    pairs = [
        (minus_named(*pair), better_end(pair[0].scalar.metric))
        for mine, rest in zip(slices, _rests(engine, slicing, key, states, wanted, slices, resampling), strict=True)
        for pair in _sides(wanted, mine, rest)
    ]
    return compared(pairs, resampling.level or LEVEL)


def _sides(
    wanted: Sequence[MetricRequest], mine: Sequence[Estimated], rest: Sequence[Estimated]
) -> Iterator[tuple[Estimate, str, Estimate, str]]:
    """Both sides of every difference with their names."""
    metrics = [(w.family, metric) for w in wanted for metric in w.metrics]
    for (family, metric), new, old in zip(metrics, mine, rest, strict=True):
        other, one = of_one_unit(old, new, (REST, "slice"))
        reason = family.unlike(one.scalar) or _of_points(metric)
        yield replace(one, reason=reason or one.reason), "", other, REST


def _of_points(metric: Metric) -> str:
    """Why a metric of the top k points is not comparable for a slice; empty for other metrics."""
    shrunk = getattr(metric, "shrunk", None)
    if shrunk is None or shrunk(0.5) == metric:
        return ""
    return "its points are another share of a slice than of all other rows: ask for a share"


def _rests(
    engine: Engine,
    slicing: Slicing,
    key: By,
    states: Mapping[Any, Any],
    wanted: Sequence[MetricRequest],
    slices: Sequence[Sequence[Estimated]],
    resampling: Resampling,
) -> Iterator[list[Estimated]]:
    """For each of some slices, the results of all other rows, with their replicates."""
    groups = [tuple((values[0].own.scalar.slice or {}).values()) for values in slices]
    grouped = [(w, slicing.grouped(states, w.spec, key)) for w in wanted]
    left = {spec: each.each_without(groups) for spec, each in sliced_blocks(wanted, states, resampling, key).items()}
    for group in groups:
        blocks = {spec: next(counts) for spec, counts in left.items()}
        rest = [(w, state.without(group, budget=engine.budget)) for w, state in grouped]
        looked = [(w, w.family.swept(engine, w, state)) for w, state in rest]
        values, certain = finalized(engine, looked, blocks, {}, resampling)
        known = iter(values)
        checked = [one for w, state in rest for one in usable(w, state, [next(known) for _ in w.metrics])]
        yield estimated(engine, looked, blocks, checked, resampling, certain)
