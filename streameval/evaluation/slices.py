"""Slices: the results of every slice, each finalized as if there were no other rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from streameval.errors import WeightError
from streameval.evaluation.families import finalize
from streameval.evaluation.family import MetricRequest, scalar
from streameval.metrics.protocol import Metric
from streameval.metrics.sliced import Sliced
from streameval.results import Scalar, same_slice
from streameval.states.grouped.cluster_sweep import ClusterSweep, sweep_groups
from streameval.states.grouped.keys import rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.family import Counted
    from streameval.evaluation.slicing import Slicing
    from streameval.states.grouped.keys import By
    from streameval.states.grouped.tagged import TaggedGroups

_CHUNK = 64  # slices that are finalized together


@dataclass(frozen=True, eq=False)
class SlicedStates:
    """The states of all slices of a run.

    Attributes
    ----------
    engine : finalizes values and replicates
    slicing : how the rows are sliced
    states : what was folded, by spec
    wanted : the requests: states and their metrics
    """

    engine: Engine
    slicing: Slicing
    states: Mapping[Any, Any]
    wanted: Sequence[MetricRequest]

    @cached_property
    def _named(self) -> dict[tuple[By, Any], dict[str, Any]]:
        return {}

    def named(self, key: By, group: Any) -> dict[str, Any]:
        """The values of a slice by column, one object for all of its results."""
        return self._named.setdefault((key, group), dict(zip(key.columns, group, strict=True)))

    def grouped(self, wanted: MetricRequest, key: By) -> Any:
        """The state of a request by the groups of a slicing."""
        return self.slicing.grouped(self.states, wanted.spec, key)

    def state(self, family: str, of: str, slice: Mapping[str, Any]) -> Any:
        """The state of a column in a slice; None if there is no such slice."""
        wanted = next(w for w in self.wanted if (w.group, w.of) == (family, of))
        for key in self.slicing.keys:
            held = self.grouped(wanted, key)
            for group in held.groups() if key.columns == tuple(slice) else ():
                if same_slice(dict(zip(key.columns, group, strict=True)), slice):
                    return held.several([group], self.engine.budget)[0]
        return None


def slice_results(sliced: SlicedStates, swept: Swept, *, weighted: bool) -> Iterator[Scalar]:
    """The results of every slice: slicing by slicing, slices with the most rows first, ties ordered by value."""
    engine = sliced.engine
    for key in sliced.slicing.keys:
        own = {w: groups[key] for w, groups in swept.items()}
        states = {w: sliced.grouped(w, key) for w in sliced.wanted if w not in own}
        cut = {w: _cut_rows(engine, w, state) for w, state in states.items()}
        found_in = (own[w] if w in own else states[w].groups() for w in sliced.wanted)
        groups = sorted({group for each in found_in for group in each}, key=rank)  # whatever the layout
        # a slice may have rows in some states only: without a label a row has a class, but is in no lift curve
        states |= {w: sliced.grouped(w, key) for w, has in own.items() if any(group not in has for group in groups)}
        grouped = [(w, states.get(w)) for w in sliced.wanted]
        found = []
        for start in range(0, len(groups), _CHUNK):
            found += _finalized(sliced, key, grouped, groups[start : start + _CHUNK], own, cut, weighted=weighted)
        found.sort(key=lambda slice_: -slice_[0])
        for _, scalars in found:
            yield from scalars


def _cut_rows(engine: Engine, wanted: MetricRequest, grouped: TaggedGroups) -> dict[Any, int]:
    """Rows of each slice in clusters that also have rows of other slices, for a state that no sweep has finalized."""
    if not wanted.metrics or not wanted.family.sweep_metrics:
        return {}
    rows = engine.finalize([(ClusterSweep.of(grouped, engine.budget), list(wanted.family.sweep_metrics))])[0][0]
    return {grouped.spec.key.group(name): cut for name, cut in rows.items()}


_Found = tuple[int, list[Scalar]]  # rows of a slice, those left out included, and its results with its name

Swept = dict[MetricRequest, dict[Any, dict[Any, _Found]]]
"""What one sweep finalized, by slicing and group; all rows are slicing and group None."""


def sweep(sliced: SlicedStates) -> Swept:
    """All rows and all slices side by side, of the states whose layout allows it."""
    engine, slicing = sliced.engine, sliced.slicing
    found: Swept = {}
    for w in sliced.wanted:
        if any(metric.reads for metric in w.metrics):
            continue
        swept: dict[Any, dict[Any, _Found]] = {None: {}}
        for key in slicing.keys:
            sweep = sweep_groups(sliced.grouped(w, key), engine.each, engine.budget)
            if sweep is None:
                break
            metrics = [Sliced(metric) for metric in w.metrics]
            values = engine.finalize([(sweep, [*metrics, *w.family.sweep_metrics])])[0]
            if any(isinstance(value, Metric) for by_name in values for value in by_name.values()):
                break  # a metric takes several steps
            cut, swept[key] = values.pop() if w.family.sweep_metrics else {}, {}
            for name, (_, own) in sweep.groups.items():
                group = key.group(name) if name else None
                named = sliced.named(key, group) if name else None
                by_metric = [by_name[name] for by_name in values]
                swept[key if name else None][group] = _swept(w, own, by_metric, named, cut.get(name))
        else:
            found |= {w: swept} if slicing.keys else {}
    return found


def _swept(
    w: MetricRequest, state: Any, values: Sequence[Any], named: dict[str, Any] | None, cut: int | None
) -> _Found:
    """The rows of all rows or of a slice, and the results."""
    counted = w.family.counted(w, state)
    share = None if cut is None else cut / max(1, counted.rows)
    made = (scalar(metric, value) for metric, value in zip(w.metrics, values, strict=True))
    rows, positives = counted.rows, counted.positives
    facts: dict[str, Any] = {"of": w.of, "rows": rows, "positives": positives, "slice": named, "cut_share": share}
    return _rows(counted), [replace(each, **facts) for each in made]


def whole_results(engine: Engine, answered: Sequence[tuple[MetricRequest, Any]], swept: Swept) -> Iterator[Scalar]:
    """The results of all rows, in the order given."""
    others = iter(finalize(engine, [(w, state) for w, state in answered if w not in swept]))
    for w, _ in answered:
        yield from swept[w][None][None][1] if w in swept else islice(others, len(w.metrics))


def _rows(counted: Counted) -> int:
    return counted.rows + sum(rows for _, rows in counted.dropped)


def _finalized(
    sliced: SlicedStates,
    key: By,
    grouped: Sequence[tuple[MetricRequest, Any]],
    groups: Sequence[Any],
    swept: Mapping[MetricRequest, Mapping[Any, _Found]],
    cut: Mapping[MetricRequest, Mapping[Any, int]],
    *,
    weighted: bool,
) -> list[_Found]:
    """For each of some slices its rows, and its results in the order of the requests."""
    engine, known = sliced.engine, [swept.get(w, {}) for w, _ in grouped]
    due = zip(grouped, ([group for group in groups if group not in has] for has in known), strict=True)
    jobs = [(w, one) for (w, state), rest in due if rest for one in w.family.several(engine, w, state, rest)]
    engine.budget.release_spares()
    values, alone = finalize(engine, jobs), iter(jobs)
    found: list[_Found] = [(0, []) for _ in groups]
    for (w, _), has in zip(grouped, known, strict=True):
        shared = cut.get(w, {})
        for i, group in enumerate(groups):
            more, own = has.get(group) or _alone(
                *next(alone), values, sliced.named(key, group), shared.get(group), weighted=weighted
            )
            rows, others = found[i]
            found[i] = max(rows, more), others + own
    return found


def _alone(
    wanted: MetricRequest,
    state: Any,
    values: Iterator[Scalar],
    named: dict[str, Any],
    cut: int | None,
    *,
    weighted: bool,
) -> _Found:
    """The rows of a slice that was finalized on its own, and its results."""
    counted = wanted.family.counted(wanted, state)
    own = [next(values) for _ in wanted.metrics]
    made = usable(wanted, state, own) if weighted else own
    shares = (None if cut is None else cut / max(1, each.rows) for each in made)
    found = (replace(each, slice=named, cut_share=share) for each, share in zip(made, shares, strict=True))
    return _rows(counted), list(found)


def usable(wanted: MetricRequest, state: Any, values: Sequence[Scalar]) -> list[Scalar]:
    """The values of some rows, undefined where their weights cannot be used."""
    reason = _unusable(wanted, state)
    return [_undefined(scalar, reason) for scalar in values] if reason else list(values)


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
