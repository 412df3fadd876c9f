"""Each slice against all other rows, its *rest*: differences, paired over the blocks of their units.

Which slices are compared follows from their rows alone, never from their values: a slice that was picked because it is
bad would look bad by chance. The rest is finalized as if its rows were all there are, cluster sizes included.

Some metrics differ between few rows and many even if rows are drawn at random: those of clusters, if the slice cuts
clusters; those against classes; those of the top k points. Their differences have no interval, p or verdict, with the
reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.evaluation.comparison import minus_named, of_one_unit
from streameval.evaluation.intervals import better_end, estimated, finalized
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.slices import usable
from streameval.metrics.estimates import compared
from streameval.results import REST
from streameval.states.scores.block_slices import BlockSlicesSpec

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

_MOST = 100  # slices of a slicing that are compared


def rest_differences(
    engine: Engine,
    slicing: Slicing,
    key: By,
    states: Mapping[Any, Any],
    wanted: Sequence[MetricRequest],
    found: Sequence[Sequence[Estimated]],
    resampling: Resampling,
) -> list[Scalar]:
    """Every metric of the slices of a slicing that have the most rows, less that of all other rows.

    Parameters
    ----------
    engine : finalizes values and replicates
    slicing : how the rows are sliced
    key : the slicing
    states : the folded states
    wanted : states and metrics
    found : the results of every slice with their replicates, slices of most rows first
    resampling : what is asked for

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
    """Why a metric of a number of points is another one of a slice; empty if it is none."""
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
    """The results of all rows but those of a slice with their replicates, for each of some slices."""
    groups = [tuple((values[0].own.scalar.slice or {}).values()) for values in slices]
    grouped = [(w, slicing.grouped(states, w.spec, key)) for w in wanted]
    split = [spec for spec in states if isinstance(spec, BlockSlicesSpec) and spec.key == key]
    left = [states[spec].each_without(groups) for spec in split]
    for group in groups:
        blocks = {spec.inner: next(counts) for spec, counts in zip(split, left, strict=True)}
        rest = [(w, state.without(group, budget=engine.budget)) for w, state in grouped]
        looked = [(w, w.family.swept(engine, w, state)) for w, state in rest]
        values, certain = finalized(engine, looked, {}, resampling)
        known = iter(values)
        checked = [one for w, state in rest for one in usable(w, state, [next(known) for _ in w.metrics])]
        yield estimated(engine, looked, blocks, checked, resampling, certain)
