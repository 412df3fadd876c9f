"""Sampling intervals and differences of slices, as if only the rows of each slice had been evaluated.

The block of a unit depends on its id alone, so a unit with rows in several slices lies in the same block in each of
them. A difference between a slice and all other rows, its *rest*, therefore accounts for units that both have.

Slices are compared with their rests by their number of rows, never by their values: a slice selected for a bad value
would look bad by chance. The rest is evaluated as if it were the whole data; clusters have only the rows of the rest.

Some metrics depend on the number of rows even for a random slice: metrics of clusters, if the slice cuts clusters;
metrics of clusters against classes; metrics of the top k points. Their differences have no interval, p-value or
verdict, and the reason is given.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from streameval.evaluation.comparison import minus_named, of_one_unit
from streameval.evaluation.intervals import (
    Estimated,
    baseline_differences,
    better_end,
    estimated,
    finalized,
    replicated,
    sliced_blocks,
)
from streameval.evaluation.request import LEVEL, Resampling
from streameval.evaluation.slices import SlicedStates, usable
from streameval.metrics.differences import compared
from streameval.results import REST, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.evaluation.families import MetricRequest
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.states.grouped.keys import By


_MOST = 100  # slices compared per slicing


def rest_differences(
    sliced: SlicedStates, key: By, found: Sequence[Sequence[Estimated]], resampling: Resampling
) -> list[tuple[Estimate, str | None]]:
    """The differences of every metric between each of the 100 largest slices and its rest, with its better end.

    Parameters
    ----------
    sliced : the states of the slices, including those of blocks
    key : the slicing
    found : the results of every slice with their replicates, largest slices first
    resampling : the intervals and comparisons to compute
    """
    slices = list(found[:_MOST])
    return [
        (minus_named(*pair), better_end(pair[0].scalar.metric))
        for mine, rest in zip(slices, _rests(sliced, key, slices, resampling), strict=True)
        for pair in _sides(sliced.requests, mine, rest)
    ]


def _sides(
    wanted: Sequence[MetricRequest], mine: Sequence[Estimated], rest: Sequence[Estimated]
) -> Iterator[tuple[Estimate, str, Estimate, str]]:
    """Both sides of every difference, with the names to append to their columns."""
    metrics = [(w.family, metric) for w in wanted for metric in w.metrics]
    for (family, metric), new, old in zip(metrics, mine, rest, strict=True):
        other, one = of_one_unit(old, new, (REST, "slice"))
        reason = _size_bias(family.name, one.scalar, metric)
        yield replace(one, reason=reason or one.reason), "", other, REST


def _size_bias(family: str, value: Scalar, metric: Metric) -> str:
    """The reason why a slice may differ from other rows merely because of its size; empty if there is none."""
    if family == "classes":  # such values do not converge as classes are added
        return "values against classes depend on how many classes and clusters there are, fewer in a slice"
    if value.cut_share:
        return "the slice cuts clusters (cut_share), which alone changes their sizes"
    shrinks = metric.shrunk(0.5) != metric  # it reads the top k points
    return "its points are another share of a slice than of all other rows: ask for a share" if shrinks else ""


def _rests(
    sliced: SlicedStates, key: By, slices: Sequence[Sequence[Estimated]], resampling: Resampling
) -> Iterator[list[Estimated]]:
    """For each slice, the results of its rest with their replicates."""
    engine = sliced.engine
    groups = [tuple((values[0].own.scalar.slice or {}).values()) for values in slices]
    grouped = [(w, sliced.grouped(w, key)) for w in sliced.requests]
    split = sliced_blocks(sliced.requests, sliced.states, resampling, key)
    left = {spec: each.each_without(groups) for spec, each in split.items()}
    for group in groups:
        blocks = {spec: next(counts) for spec, counts in left.items()}
        rest = [(w, state.without(group, budget=engine.budget)) for w, state in grouped]
        sources = replicated(engine, rest, blocks, resampling)
        results, certain = finalized(engine, sources, {}, resampling)
        values = iter(results)
        checked = [one for w, state in rest for one in usable(w, state, list(islice(values, len(w.metrics))))]
        yield estimated(engine, sources, checked, resampling, certain)[0]


_CHUNK = 64  # slices whose states are extracted together


def sampled_slices(
    sliced: SlicedStates, results: Sequence[Scalar], resampling: Resampling
) -> tuple[list[Scalar], list[Estimated]]:
    """Compute the intervals and differences of slices.

    Parameters
    ----------
    sliced : the states of the slices, including those of blocks
    results : the values, by slicing and slice, in the order of the requests
    resampling : the intervals and comparisons to compute

    Returns
    -------
    list of Scalar
        For each slicing, slice by slice, the values and then the differences between columns; last, the differences
        between each slice and all other rows. Their p-values are adjusted for those of all slicings together (Holm).
    list of Estimated
        The values with their replicates.
    """
    rows, count = iter(results), sum(len(w.metrics) for w in sliced.requests)
    by_key: dict[tuple[str, ...], list[list[Scalar]]] = {key.columns: [] for key in sliced.slicing.keys}
    while count and (one := list(islice(rows, count))):
        by_key[tuple(one[0].slice or ())].append(one)
    collected: list[Scalar | None] = []  # None in place of a difference: all are compared together
    estimates: list[Estimated] = []
    pairs: list[tuple[Estimate, str | None]] = []
    for key in sliced.slicing.keys:
        by_slice = list(_of_slices(sliced, key, by_key[key.columns], resampling))
        for own in by_slice:
            between = baseline_differences(own, sliced.requests, resampling)
            collected += [
                *(estimate.own.scalar_with(resampling.level or 0) for estimate in own),
                *[None] * len(between),
            ]
            pairs += between
            estimates += own
        if resampling.rest:
            between = rest_differences(sliced, key, by_slice, resampling)
            collected += [None] * len(between)
            pairs += between
    adjusted = iter(compared(pairs, resampling.level or LEVEL))
    return [next(adjusted) if one is None else one for one in collected], estimates


def _of_slices(
    sliced: SlicedStates, key: By, slices: Sequence[Sequence[Scalar]], resampling: Resampling
) -> Iterator[list[Estimated]]:
    """The results of each slice of a slicing with their replicates."""
    engine = sliced.engine
    split = sliced_blocks(sliced.requests, sliced.states, resampling, key)
    for start in range(0, len(slices), _CHUNK):
        some = slices[start : start + _CHUNK]
        groups = [tuple((values[0].slice or {}).values()) for values in some]
        states = [(w, sliced.grouped(w, key).several(groups, engine.budget)) for w in sliced.requests]
        for i, (group, values) in enumerate(zip(groups, some, strict=True)):
            blocks = {spec: each.only(group) for spec, each in split.items()}
            sources = replicated(engine, [(w, several[i]) for w, several in states], blocks, resampling)
            yield estimated(engine, sources, values, resampling)[0]
