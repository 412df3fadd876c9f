"""Finalize the folded states and assemble the evaluation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import LabelError, MissingInputError
from streameval.evaluation.count_intervals import counted
from streameval.evaluation.intervals import differences, estimated, finalized, resampled_states, sliced_blocks
from streameval.evaluation.resampling import LEVEL, NO_INTERVALS
from streameval.evaluation.result import Evaluation
from streameval.evaluation.sharing import from_one_sweep
from streameval.evaluation.slice_intervals import SampledSlices, sampled_slices
from streameval.evaluation.slices import SlicedStates, slice_results, sweep
from streameval.evaluation.slicing import WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.engine.fold import Folded, Plan
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slicing import Slicing
    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.states.labels import LabelCounts, LabelSpec

    _Answered = Sequence[tuple[MetricRequest, Any]]


def finalize_all(
    engine: Engine,
    names: Sequence[str],
    plan: Plan,
    wanted: Sequence[MetricRequest],
    folded: Folded,
    *,
    threshold: Any,
    slicing: Slicing = WHOLE,
    resampling: Resampling = NO_INTERVALS,
    filtered: str = "",
) -> Evaluation:
    """Finalize the folded states and assemble the evaluation.

    Parameters
    ----------
    engine : the engine of the run
    names : names of the inputs, for messages
    plan : the plan that was folded
    wanted : the states and their metrics
    folded : the states, by spec
    threshold : the option `aul_threshold`: clusters above it count as all positive in the lift curve
    slicing : the slices to finalize as well
    resampling : the sampling intervals and comparisons to compute
    filtered : text of the row filter, for messages

    Raises
    ------
    DataError
        If labels or weights cannot be evaluated, or there are no rows.
    """
    labels: LabelCounts = folded.states[plan.label]
    where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
    check_labels(labels, where, folded.skipped, filtered)
    wholes = from_one_sweep(engine, slicing.wholes(folded.states, [w.spec for w in wanted], engine.budget))
    answered = [(w, wholes[w.spec].state) for w in wanted]
    _check_weights(plan, answered, where)
    sources = [(w, wholes[w.spec].source) for w in wanted]
    if resampling.level is not None:
        sources = [(w, w.family.swept(engine, w, state)) for w, state in answered]
    blocks = _with_sliced_blocks(wanted, folded.states, resampling, slicing)
    slices = SlicedStates(engine, slicing, folded.states, wanted)
    swept = sweep(slices)
    values, certain = finalized(engine, sources, blocks, swept, resampling)
    results, found = _with_intervals(engine, sources, values, blocks, resampling, certain)
    sliced = tuple(slice_results(slices, swept, weighted=plan.weight is not None))
    sampled = SampledSlices(sliced) if resampling.level is None else sampled_slices(slices, sliced, resampling)
    resampled = resampled_states(sources, blocks, resampling)
    return Evaluation(
        labels.rows,
        labels.positives,
        tuple(_as_labelled([*results, *sampled.results], plan.label, labels)),
        tuple((reason, rows) for reason, rows in _dropped(labels, answered).items() if rows),
        tuple(folded.skipped),
        {(w.group, w.of): state for w, state in answered},
        engine,
        threshold,
        estimates=tuple(found),
        ci_level=resampling.level,
        _resampled=resampled,
        counts=counted(resampled, labels.rows, labels.positives or 0, resampling.level or LEVEL),
        slice_estimates=sampled.estimates,
        _sliced=slices if slicing.keys else None,
    )


def _with_sliced_blocks(
    wanted: Sequence[MetricRequest], states: Mapping[Any, Any], resampling: Resampling, slicing: Slicing
) -> dict[Any, Any]:
    """The states, among them the blocks of all rows: if rows are sliced, those of the first slicing together."""
    kept = (sliced_blocks(wanted, states, resampling, key) for key in slicing.keys[:1])
    return {**states, **{spec: counts.total() for found in kept for spec, counts in found.items()}}


def _check_weights(plan: Plan, answered: _Answered, where: str) -> None:
    """Raise if weights cannot be evaluated."""
    if plan.weight is not None:
        for wanted, state in answered:
            wanted.family.check(wanted, state, f"{where}: weight column {plan.weight!r}")


def _dropped(labels: LabelCounts, answered: _Answered) -> dict[str, int]:
    """Rows left out, by reason."""
    found = {}
    counted_anyway = labels.spec.nulls == "size" and all(w.spec.counts_unlabelled for w, _ in answered)
    if labels.spec.column is not None and not counted_anyway:
        found["null label" if labels.spec.nulls == "drop" else "null label (score metrics)"] = labels.null
    if labels.spec.complete:
        found[f"NaN or null in one of {', '.join(labels.spec.complete)}"] = labels.incomplete
    for wanted, state in answered:
        for reason, rows in wanted.family.counted(wanted, state).dropped:
            found.setdefault(reason, rows)  # a second state of the column may count only a sample
    return found


def _with_intervals(
    engine: Engine,
    answered: _Answered,
    results: Sequence[Scalar],
    states: Mapping[Any, Any],
    resampling: Resampling,
    certain: Sequence[Mapping[Metric, Scalar]],
) -> tuple[list[Scalar], list[Estimated]]:
    """The results of all rows with sampling intervals, then the differences; and the estimates behind them."""
    if resampling.level is None:
        return list(results), []
    found = estimated(engine, answered, states, results, resampling, certain)
    return [
        *(one.own.scalar_with(resampling.level) for one in found),
        *differences([found], [w for w, _ in answered], resampling)[0],
    ], found


def _as_labelled(results: Sequence[Scalar], spec: LabelSpec | None, labels: LabelCounts) -> Sequence[Scalar]:
    """Adjust results to the labels: an absent `pos_label` becomes the reason; without labels, `positives` is None."""
    if not labels.pos and spec is not None and spec.pos_label is not None:
        absent = f"no row has the label {spec.pos_label!r}"
        results = [replace(result, reason=absent) if result.reason else result for result in results]
    if labels.spec.column is None:
        results = [replace(result, positives=None) for result in results]
    return results


def check_labels(labels: LabelCounts, where: str, skipped: Sequence[tuple[str, str]], filtered: str = "") -> None:
    """Raise `LabelError` if the labels cannot be evaluated, `MissingInputError` if there are no rows."""
    try:
        labels.check()
    except LabelError as error:
        msg = f"{where}: {error}"
        raise LabelError(msg) from None
    if not labels.seen:
        reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        msg = f"{where}: no row meets where: {filtered}" if filtered else f"there are no rows to evaluate{reason}"
        raise MissingInputError(msg)
