"""Finalize what was folded, and put the results together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import LabelError, MissingInputError
from streameval.evaluation.families import MetricRequest, finalize
from streameval.evaluation.intervals import differences, estimated, resampled_states
from streameval.evaluation.resampling import NO_INTERVALS
from streameval.evaluation.result import Evaluation
from streameval.evaluation.slices import slice_results
from streameval.evaluation.slicing import WHOLE
from streameval.states.protocol import takes_unlabelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.engine.fold import Folded, Plan
    from streameval.evaluation.resampling import Resampling
    from streameval.evaluation.slicing import Slicing
    from streameval.states.labels import LabelCounts

__all__ = ["check_labels", "finalize_all"]


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
    """Finalize what was folded, and put the results together.

    Parameters
    ----------
    engine : what the run shares
    names : the inputs, as messages name them
    plan : what was folded
    wanted : the states and their metrics
    folded : the states
    threshold : clusters above it count as if all positive in the lift curve, as the option has it
    slicing : the slices to finalize as well
    resampling : the sampling intervals and comparisons to make
    filtered : the filter that rows had to meet

    Raises
    ------
    DataError
        If labels or weights cannot be evaluated, or there are no rows.
    """
    labels: LabelCounts = folded.states[plan.label]
    where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
    check_labels(labels, where, folded.skipped, filtered)
    wholes = slicing.wholes(folded.states, [w.spec for w in wanted], engine.budget)
    answered = [(w, wholes[w.spec]) for w in wanted]
    unlabelled = [w for w in wanted if not takes_unlabelled(w.spec)]
    dropped = (
        {}
        if labels.spec.column is None or (unlabelled == [] and labels.spec.nulls == "size")
        else {"null label" if labels.spec.nulls == "drop" else "null label (score metrics)": labels.null}
    )
    if labels.spec.complete:
        dropped[f"NaN or null in one of {', '.join(labels.spec.complete)}"] = labels.incomplete
    for w, state in answered:
        if plan.weight is not None:
            w.family.check(w, state, f"{where}: weight column {plan.weight!r}")
        for reason, rows in w.family.counted(w, state).dropped:
            dropped.setdefault(reason, rows)  # a second state of the column may hold a sample of them
    looked = answered if resampling.level is None else [(w, w.family.swept(engine, w, state)) for w, state in answered]
    results, found = tuple(finalize(engine, looked)), []
    if resampling.level is not None:
        found = estimated(engine, looked, folded.states, results, resampling)
        results = tuple(one.own.scalar_with(resampling.level) for one in found)
        results += tuple(differences(found, wanted, resampling))
    results += tuple(slice_results(engine, slicing, folded.states, wanted, weighted=plan.weight is not None))
    if not labels.pos and plan.label is not None and plan.label.pos_label is not None:
        absent = f"no row has the label {plan.label.pos_label!r}"
        results = tuple(replace(result, reason=absent) if result.reason else result for result in results)
    if labels.spec.column is None:
        results = tuple(replace(result, positives=None) for result in results)
    return Evaluation(
        labels.rows,
        labels.positives,
        results,
        tuple((reason, rows) for reason, rows in dropped.items() if rows),
        tuple(folded.skipped),
        {(w.group, w.of): state for w, state in answered},
        engine,
        threshold,
        _estimates=tuple(found),
        _level=resampling.level,
        _resampled=resampled_states(looked, folded.states, resampling),
    )


def check_labels(labels: LabelCounts, where: str, skipped: Sequence[tuple[str, str]], filtered: str = "") -> None:
    """Raise if the labels cannot be evaluated, or there are none."""
    try:
        labels.check()
    except LabelError as error:
        msg = f"{where}: {error}"
        raise LabelError(msg) from None
    if not labels.seen:
        reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        msg = f"{where}: no row meets where: {filtered}" if filtered else f"there are no rows to evaluate{reason}"
        raise MissingInputError(msg)
