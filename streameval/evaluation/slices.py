"""Slices: the results of every slice, each finalized as if its rows were all there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import WeightError
from streameval.evaluation.families import finalize
from streameval.results import Scalar
from streameval.states.grouped import GroupedSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.slicing import Slicing

__all__ = ["slice_results"]

_CHUNK = 64  # slices that are finalized together


def slice_results(
    engine: Engine, slicing: Slicing, states: Mapping[Any, Any], wanted: Sequence[MetricRequest], *, weighted: bool
) -> Iterator[Scalar]:
    """The results of every slice: slicing by slicing, slices of most rows first."""
    for key in slicing.keys:
        grouped = [(w, states[GroupedSpec(w.spec, key)]) for w in wanted]
        groups = list(dict.fromkeys(group for _, state in grouped for group in state.groups()))
        found = []
        for start in range(0, len(groups), _CHUNK):
            found += _finalized(engine, grouped, groups[start : start + _CHUNK], weighted=weighted)
        found.sort(key=lambda slice_: -slice_[0])
        for _, group, scalars in found:
            named = dict(zip(key.columns, group, strict=True))
            yield from (replace(scalar, slice=named) for scalar in scalars)


def _finalized(
    engine: Engine, grouped: Sequence[tuple[MetricRequest, Any]], groups: Sequence[Any], *, weighted: bool
) -> list[tuple[int, Any, list[Scalar]]]:
    """For each of some slices its rows, its group, and its results in the order of the requests."""
    jobs = [(w, state.only(group)) for w, state in grouped for group in groups]
    values = finalize(engine, jobs)
    found: list[tuple[int, Any, list[Scalar]]] = [(0, group, []) for group in groups]
    for i, (w, state) in enumerate(jobs):
        rows, group, scalars = found[i % len(groups)]
        counted = w.family.counted(w, state)
        own = [next(values) for _ in w.metrics]
        reason = _unusable(w, state) if weighted else ""
        if reason:
            own = [_undefined(scalar, reason) for scalar in own]
        rows = max(rows, counted.rows + sum(rows for _, rows in counted.dropped))
        found[i % len(groups)] = rows, group, [*scalars, *own]
    return found


def _unusable(wanted: MetricRequest, state: Any) -> str:
    """Why the weights of a slice cannot be used; a slice without rows of a class has no such sums."""
    try:
        wanted.family.check(wanted, state, "the weights of the slice")
    except WeightError as error:
        return str(error)
    return ""


def _undefined(scalar: Scalar, reason: str) -> Scalar:
    made = Scalar.undefined(scalar.metric, reason)
    return replace(made, of=scalar.of, rows=scalar.rows, positives=scalar.positives)
