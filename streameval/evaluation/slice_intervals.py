"""Sampling intervals and differences of slices, as if only the rows of each slice had been evaluated.

The block of a unit depends on its id alone, so a unit with rows in several slices lies in the same block in each of
them. A difference between a slice and all other rows therefore accounts for units that both have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from streameval.evaluation.intervals import Estimated, differences, estimated, sliced_blocks
from streameval.evaluation.rests import rest_differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slices import SlicedStates
    from streameval.results import Scalar
    from streameval.states.grouped.keys import By

_CHUNK = 64  # slices whose states are extracted together


@dataclass(frozen=True)
class SampledSlices:
    """The results of slices with their intervals.

    Attributes
    ----------
    results : for each slicing, slice by slice, the values and then the differences between columns; last, the
        differences between each slice and all other rows
    estimates : the values with their replicates
    """

    results: tuple[Scalar, ...] = ()
    estimates: tuple[Estimated, ...] = ()


def sampled_slices(sliced: SlicedStates, results: Sequence[Scalar], resampling: Resampling) -> SampledSlices:
    """Compute the intervals and differences of slices.

    Parameters
    ----------
    sliced : the states of the slices, including those of blocks
    results : the values, by slicing and slice, in the order of the requests
    resampling : the intervals and comparisons to compute
    """
    rows, count = iter(results), sum(len(w.metrics) for w in sliced.wanted)
    by_key: dict[tuple[str, ...], list[list[Scalar]]] = {key.columns: [] for key in sliced.slicing.keys}
    while count and (one := list(islice(rows, count))):
        by_key[tuple(one[0].slice or ())].append(one)
    collected: list[Scalar] = []
    kept: list[Estimated] = []
    for key in sliced.slicing.keys:
        found = list(_of_slices(sliced, key, by_key[key.columns], resampling))
        compared = differences(found, sliced.wanted, resampling)
        for estimates, pairs in zip(found, compared, strict=True):
            collected += [one.own.scalar_with(resampling.level or 0) for one in estimates]
            collected += pairs
            kept += estimates
        if resampling.rest:
            collected += rest_differences(sliced, key, found, resampling)
    return SampledSlices(tuple(collected), tuple(kept))


def _of_slices(
    sliced: SlicedStates, key: By, slices: Sequence[Sequence[Scalar]], resampling: Resampling
) -> Iterator[list[Estimated]]:
    """The results of each slice of a slicing with their replicates."""
    engine = sliced.engine
    split = sliced_blocks(sliced.wanted, sliced.states, resampling, key)
    for start in range(0, len(slices), _CHUNK):
        some = slices[start : start + _CHUNK]
        groups = [tuple((values[0].slice or {}).values()) for values in some]
        taken = [(w, sliced.grouped(w, key).several(groups, engine.budget)) for w in sliced.wanted]
        for i, (group, values) in enumerate(zip(groups, some, strict=True)):
            swept = [(w, w.family.swept(engine, w, several[i])) for w, several in taken]
            blocks = {spec: each.only(group) for spec, each in split.items()}
            yield estimated(engine, swept, blocks, values, resampling)
