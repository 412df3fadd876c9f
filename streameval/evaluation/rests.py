"""Differences between each slice and all other rows, its *rest*, paired over blocks of units.

Slices are selected by their number of rows, never by their values: a slice selected for a bad value would look bad by
chance. The rest is evaluated as if it were the whole data; clusters have only the rows of the rest.

Some metrics depend on the number of rows even for a random slice: metrics of clusters, if the slice cuts clusters;
metrics of clusters against classes; metrics of the top k points. Their differences have no interval, p-value or
verdict, and the reason is given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.evaluation.comparison import minus_named, of_one_unit
from streameval.evaluation.families import scalar
from streameval.evaluation.intervals import better_end, estimated, finalized, sliced_blocks
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.slices import usable
from streameval.metrics.differences import compared
from streameval.metrics.protocol import Metric
from streameval.metrics.resampling import certificates
from streameval.metrics.sliced import Together
from streameval.results import REST
from streameval.states.grouped.group_sweep import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slices import SlicedStates
    from streameval.metrics.estimates import Estimate
    from streameval.results import Scalar
    from streameval.states.grouped import By

__all__ = ["rest_differences"]

_MOST = 100  # slices compared per slicing
_FEW = 1 << 18  # rows below which each rest is read separately: compiling the loops of a joint sweep would take longer


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
    known = {w: own for w in wanted if (own := _together(sliced, key, w, groups, resampling))}
    split = sliced_blocks(wanted, sliced.states, resampling, key)
    left = {spec: each.each_without(groups) for spec, each in split.items()}
    for group in groups:
        blocks = {spec: next(counts) for spec, counts in left.items()}
        rest = [(w, state.without(group, budget=engine.budget)) for w, state in grouped]
        looked = [(w, w.family.swept(engine, w, state)) for w, state in rest]
        others = [(w, state) for w, state in looked if w not in known]
        results, certain = finalized(engine, others, blocks, {}, resampling)
        values, more = iter(results), iter(certain)
        found = [known[w][group] if w in known else ([next(values) for _ in w.metrics], next(more)) for w in wanted]
        checked = [one for (w, state), (own, _) in zip(rest, found, strict=True) for one in usable(w, state, own)]
        yield estimated(engine, looked, blocks, checked, resampling, [further for _, further in found])


def _together(
    sliced: SlicedStates, key: By, w: MetricRequest, groups: Sequence[Any], resampling: Resampling
) -> dict[Any, tuple[list[Scalar], dict[Metric, Scalar]]]:
    """The values of the rest of each group, and the certificates that intervals need, from one pass over the state.

    Empty if the family or a metric does not support it, or there are few rows.
    """
    engine, slicing = sliced.engine, sliced.slicing
    rests_of = w.family.rests_of if w.metrics and not any(metric.reads for metric in w.metrics) else None
    group_sweep = next(iter(slicing.group_sweeps(sliced.states, w.spec, engine) if rests_of else ()), None)
    if not rests_of or group_sweep is None or group_sweep.groups[WHOLE][1].totals().rows < _FEW:
        return {}
    k = slicing.keys.index(key)
    due = set(groups)
    named = {name: group for at, name in group_sweep.groups if at == k and (group := key.group(name)) in due}
    metrics = *w.metrics, *certificates(w.metrics, coarse=True, single=resampling.unit is None)
    rests = rests_of(group_sweep, k, list(named))
    [[found]] = engine.finalize([(rests, [Together(metrics)])])
    if any(isinstance(value, Metric) for values in found.values() for value in values):
        return {}  # a metric needs several passes
    made = {}
    for (at, name), (_, rest) in rests.groups.items():
        rows = w.family.counted(w, rest)
        values = [
            replace(scalar(metric, value), of=w.of, rows=rows.rows, positives=rows.positives)
            for metric, value in zip(metrics, found[at, name], strict=True)
        ]
        own = len(w.metrics)
        made[named[name]] = values[:own], dict(zip(metrics[own:], values[own:], strict=True))
    return made
