"""Differences between each slice and all other rows, its *rest*, paired over blocks of units.

Slices are selected by their number of rows, never by their values: a slice selected for a bad value would look bad by
chance. The rest is evaluated as if it were the whole data; clusters have only the rows of the rest.

Some metrics depend on the number of rows even for a random slice: metrics of clusters, if the slice cuts clusters;
metrics of clusters against classes; metrics of the top k points. Their differences have no interval, p-value or
verdict, and the reason is given.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from streameval.evaluation.comparison import minus_named, of_one_unit
from streameval.evaluation.intervals import better_end, estimated, finalized, sliced_blocks
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.slices import usable
from streameval.metrics.differences import compared
from streameval.results import REST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slices import SlicedStates
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.states.grouped.keys import By

_MOST = 100  # slices compared per slicing


def rest_differences(
    sliced: SlicedStates, key: By, found: Sequence[Sequence[Estimated]], resampling: Resampling
) -> list[Scalar]:
    """The differences of every metric between each of the 100 largest slices and its rest.

    Parameters
    ----------
    sliced : the states of the slices, including those of blocks
    key : the slicing
    found : the results of every slice with their replicates, largest slices first
    resampling : the intervals and comparisons to compute

    Returns
    -------
    list of Scalar
        Slice by slice, with p-values adjusted for all differences (Holm).
    """
    slices = list(found[:_MOST])
    pairs = [
        (minus_named(*pair), better_end(pair[0].scalar.metric))
        for mine, rest in zip(slices, _rests(sliced, key, slices, resampling), strict=True)
        for pair in _sides(sliced.wanted, mine, rest)
    ]
    return compared(pairs, resampling.level or LEVEL)


def _sides(
    wanted: Sequence[MetricRequest], mine: Sequence[Estimated], rest: Sequence[Estimated]
) -> Iterator[tuple[Estimate, str, Estimate, str]]:
    """Both sides of every difference, with the names to append to their columns."""
    metrics = [(w.family, metric) for w in wanted for metric in w.metrics]
    for (family, metric), new, old in zip(metrics, mine, rest, strict=True):
        other, one = of_one_unit(old, new, (REST, "slice"))
        reason = family.unlike(one.scalar) or _of_points(metric)
        yield replace(one, reason=reason or one.reason), "", other, REST


def _of_points(metric: Metric) -> str:
    """The reason why a metric of the top k points cannot be compared; empty for other metrics."""
    if metric.shrunk(0.5) == metric:
        return ""
    return "its points are another share of a slice than of all other rows: ask for a share"


def _rests(
    sliced: SlicedStates, key: By, slices: Sequence[Sequence[Estimated]], resampling: Resampling
) -> Iterator[list[Estimated]]:
    """For each slice, the results of its rest with their replicates."""
    engine, wanted = sliced.engine, sliced.wanted
    groups = [tuple((values[0].own.scalar.slice or {}).values()) for values in slices]
    grouped = [(w, sliced.grouped(w, key)) for w in wanted]
    split = sliced_blocks(wanted, sliced.states, resampling, key)
    left = {spec: each.each_without(groups) for spec, each in split.items()}
    for group in groups:
        blocks = {spec: next(counts) for spec, counts in left.items()}
        rest = [(w, state.without(group, budget=engine.budget)) for w, state in grouped]
        looked = [(w, w.family.swept(engine, w, state)) for w, state in rest]
        results, certain = finalized(engine, looked, blocks, {}, resampling)
        values = iter(results)
        checked = [one for w, state in rest for one in usable(w, state, list(islice(values, len(w.metrics))))]
        yield estimated(engine, looked, blocks, checked, resampling, certain)
