"""Sampling intervals of slices: each has those that its rows alone would have, and the differences within it.

The blocks of a slice's units are those of all rows, cut by the slice: a unit that lies in several slices is in the same
block of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from streameval.evaluation.intervals import Estimated, differences, estimated
from streameval.evaluation.rests import rest_differences
from streameval.states.scores.block_slices import BlockSlicesSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slicing import Slicing
    from streameval.results import Scalar
    from streameval.states.grouped import By

__all__ = ["SampledSlices", "sampled_slices"]

_CHUNK = 64  # slices whose states are taken out together


@dataclass(frozen=True)
class SampledSlices:
    """Results of slices with their intervals.

    Attributes
    ----------
    results : slicing by slicing and slice by slice, in the order given: values, then differences; after the slices of
        a slicing their differences from all other rows
    estimates : the values, with their replicates
    """

    results: tuple[Scalar, ...] = ()
    estimates: tuple[Estimated, ...] = ()


def sampled_slices(
    engine: Engine,
    slicing: Slicing,
    states: Mapping[Any, Any],
    wanted: Sequence[MetricRequest],
    results: Sequence[Scalar],
    resampling: Resampling,
) -> SampledSlices:
    """The results of slices with their intervals.

    Parameters
    ----------
    engine : finalizes replicates
    slicing : how the rows are sliced
    states : the folded states
    wanted : states and metrics
    results : the values, slicing by slicing and slice by slice, in the order of the requests
    resampling : what is asked for
    """
    rows, count = iter(results), sum(len(w.metrics) for w in wanted)
    by_key: dict[tuple[str, ...], list[list[Scalar]]] = {key.columns: [] for key in slicing.keys}
    while count and (one := list(islice(rows, count))):
        by_key[tuple(one[0].slice or ())].append(one)
    told: list[Scalar] = []
    kept: list[Estimated] = []
    for key in slicing.keys:
        found = list(_of_slices(engine, slicing, key, states, wanted, by_key[key.columns], resampling))
        compared = differences(found, wanted, resampling)
        for estimates, pairs in zip(found, compared, strict=True):
            told += [one.own.scalar_with(resampling.level or 0) for one in estimates]
            told += pairs
            kept += estimates
        if resampling.rest:
            told += rest_differences(engine, slicing, key, states, wanted, found, resampling)
    return SampledSlices(tuple(told), tuple(kept))


def _of_slices(
    engine: Engine,
    slicing: Slicing,
    key: By,
    states: Mapping[Any, Any],
    wanted: Sequence[MetricRequest],
    slices: Sequence[Sequence[Scalar]],
    resampling: Resampling,
) -> Iterator[list[Estimated]]:
    """The results of each slice of a slicing with their replicates."""
    split = [spec for spec in states if isinstance(spec, BlockSlicesSpec) and spec.key == key]
    for start in range(0, len(slices), _CHUNK):
        some = slices[start : start + _CHUNK]
        groups = [tuple((values[0].slice or {}).values()) for values in some]
        taken = [(w, slicing.grouped(states, w.spec, key).several(groups)) for w in wanted]
        for i, (group, values) in enumerate(zip(groups, some, strict=True)):
            looked = [(w, w.family.swept(engine, w, several[i])) for w, several in taken]
            own = {spec.inner: states[spec].only(group) for spec in split}
            yield estimated(engine, looked, own, values, resampling)
