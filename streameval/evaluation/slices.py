"""Slices: the results of every slice, each finalized as if its rows were all there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import WeightError
from streameval.evaluation.families import finalize, scalar
from streameval.metrics.sliced import Sliced
from streameval.results import Scalar
from streameval.states.grouped import GroupedSpec
from streameval.states.grouped.sheaf import Sheaf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import Counted, MetricRequest
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
        swept = {w: every for w, state in grouped if (every := _swept(engine, w, state)) is not None}
        found = []
        for start in range(0, len(groups), _CHUNK):
            found += _finalized(engine, grouped, groups[start : start + _CHUNK], swept, weighted=weighted)
        found.sort(key=lambda slice_: -slice_[0])
        for _, group, scalars in found:
            named = dict(zip(key.columns, group, strict=True))
            yield from (replace(scalar, slice=named) for scalar in scalars)


_Found = tuple[int, list[Scalar]]  # rows of a slice, those left out included, and its results


def _swept(engine: Engine, wanted: MetricRequest, state: Any) -> dict[Any, _Found] | None:
    """All slices of a state side by side; None where it has no such layout, or a metric takes several steps."""
    sheaf = Sheaf.tallied(state, engine.each)
    if sheaf is None:
        return None
    values = engine.finalize([(sheaf, [Sliced(metric) for metric in wanted.metrics])])[0]
    if any(hasattr(value, "partial") for by_name in values for value in by_name.values()):
        return None
    found = {}
    for name, (_, own) in sheaf.groups().items():
        counted = wanted.family.counted(wanted, own)
        scalars = [
            replace(scalar(metric, by_name[name]), of=wanted.of, rows=counted.rows, positives=counted.positives)
            for metric, by_name in zip(wanted.metrics, values, strict=True)
        ]
        found[state.spec.key.group(name)] = _rows(counted), scalars
    return found


def _rows(counted: Counted) -> int:
    return counted.rows + sum(rows for _, rows in counted.dropped)


def _finalized(
    engine: Engine,
    grouped: Sequence[tuple[MetricRequest, Any]],
    groups: Sequence[Any],
    swept: Mapping[MetricRequest, Mapping[Any, _Found]],
    *,
    weighted: bool,
) -> list[tuple[int, Any, list[Scalar]]]:
    """For each of some slices its rows, its group, and its results in the order of the requests."""
    due = [(w, state, [group for group in groups if group not in swept.get(w, ())]) for w, state in grouped]
    jobs = [(w, one) for w, state, rest in due for one in state.several(rest)]
    values = finalize(engine, jobs)
    alone = iter(jobs)
    found: list[tuple[int, Any, list[Scalar]]] = [(0, group, []) for group in groups]
    for w, _ in grouped:
        for i, group in enumerate(groups):
            known = swept.get(w, {}).get(group)
            more, own = known or _alone(*next(alone), values, weighted=weighted)
            rows, _, scalars = found[i]
            found[i] = max(rows, more), group, [*scalars, *own]
    return found


def _alone(wanted: MetricRequest, state: Any, values: Iterator[Scalar], *, weighted: bool) -> _Found:
    """The rows of a slice that was finalized on its own, and its results."""
    counted = wanted.family.counted(wanted, state)
    own = [next(values) for _ in wanted.metrics]
    reason = _unusable(wanted, state) if weighted else ""
    return _rows(counted), [_undefined(scalar, reason) for scalar in own] if reason else own


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
