"""Finalize the states of a run, and assemble the evaluation.

The states have one of three sources: files, which are folded in one pass (`streameval.evaluation.files`), the nights of
a store, whose states are merged, and the batches of an accumulator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from streameval.errors import LabelError, MissingInputError, WeightError
from streameval.evaluation import intervals
from streameval.evaluation.comparison import compare_slices
from streameval.evaluation.families import weight_problem
from streameval.evaluation.multiclass import add_averages, positive_weights, with_micro
from streameval.evaluation.result import Evaluation
from streameval.evaluation.slices import SlicedStates, slice_results, sweep
from streameval.metrics.contingency.class_sample import ClassSample
from streameval.metrics.finalize import numpy_settings
from streameval.metrics.scores.label_sample import LabelSample
from streameval.states.labels import ClassSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.engine.fold import Folded
    from streameval.evaluation.protocol import MetricRequest
    from streameval.evaluation.request import Request
    from streameval.metrics.resampling import Resampled
    from streameval.results import Scalar
    from streameval.states.labels import LabelCounts
    from streameval.states.protocol import State


@numpy_settings
def finalize_all(
    engine: Engine, request: Request, names: Sequence[str], requests: Sequence[MetricRequest], folded: Folded
) -> Evaluation:
    """Finalize the states of a request, and assemble the evaluation.

    Parameters
    ----------
    engine : finalizes the states
    request : what to evaluate
    names : names of the inputs, for messages
    requests : the states with their metrics
    folded : the states by spec, labels and blocks among them

    Raises
    ------
    DataError
        If labels or weights cannot be evaluated, or there are no rows.
    """
    slicing, resampling, level = request.slicing, request.resampling, request.resampling.level
    if isinstance(request.label, ClassSpec):
        folded, requests = with_micro(folded, requests, request.label)
    labels = folded.labels(request.label)
    where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
    check_labels(labels, where, folded.skipped, request.where.text if request.where else "")
    overall = slicing.overall_states(folded.states, [w.spec for w in requests], engine.budget)
    states = []
    for w in requests:
        state = w.family.source(engine, w, overall)
        if isinstance(state, LabelSample):  # numbers of its points are thresholds, as all scores are counted
            w = replace(w, metrics=tuple(map(state.fixed, w.metrics)))
        states.append((w, state))
    if request.weight is not None:
        for w, state in states:
            if problem := weight_problem(w, state):
                raise WeightError(f"{where}: weight column {request.weight!r} {problem}")
    blocks = dict(folded.states)
    split = {key: intervals.slice_blocks(requests, folded.states, resampling, key) for key in slicing.keys}
    for key in slicing.keys[:1]:  # the blocks of all rows are those of the first slicing together
        blocks |= {spec: cast("State", counts.total()) for spec, counts in split[key].items()}
    slices = SlicedStates(engine, slicing, folded.states, requests)
    swept = sweep(slices)
    sources = [intervals.replicated(engine, states, blocks, factor) for factor in resampling.factors]
    results, certain = intervals.finalize_states(engine, sources[0], swept, resampling.factors[0])
    estimates: list[intervals.Estimated] = []
    resampled: list[dict[tuple[str, str], Resampled]] = [{}]
    counts: tuple[Scalar, ...] = ()
    coarser: dict[str, float] = {}
    samples = [state for _, state in states if isinstance(state, LabelSample)][:1]  # columns have the same labels
    if level is not None:
        pairs = zip(sources, resampling.factors, strict=True)
        by_factor = [
            intervals.estimate_results(engine, [side], [results], factor, [certain])[0] for side, factor in pairs
        ]
        estimates, resampled = intervals.cross([one for one, _ in by_factor]), [own for _, own in by_factor]
        results = (
            *(one.own.scalar_with(level) for one in estimates),
            *intervals.compared(intervals.baseline_differences(estimates, requests, resampling), level),
        )
        own, alone = [one.own for one in estimates], slicing.by_column(split)
        coarser = intervals.coarser_units(requests, resampling, blocks, own, alone)
        counts = tuple(sample.prevalence(level) for sample in samples)
        if labels.spec.binary and not samples:
            counts = intervals.estimate_counts(resampled, labels.rows, labels.positives or 0, level)
    sliced = list(slice_results(slices, swept, weighted=request.weight is not None))
    slice_estimates: list[intervals.Estimated] = []
    if level is not None:
        sliced, slice_estimates = compare_slices(slices, sliced, resampling)
    every = [*estimates, *slice_estimates]
    every_result = as_labelled([*results, *sliced], labels, late=request.late is not None and request.design is None)
    if isinstance(labels.spec, ClassSpec):
        weights = None if request.weight is None else positive_weights(states, slices)
        every_result = add_averages(every_result, labels.spec, every, level, weights)
    drawn: list[LabelSample | ClassSample] = [*samples, *(s for _, s in states if isinstance(s, ClassSample))]
    return Evaluation(
        labels.rows,
        labels.positives if request.design is None else None,
        tuple(every_result),
        tuple((reason, count) for reason, count in _count_dropped(labels, states).items() if count),
        tuple(folded.skipped),
        {(w.group, w.of): state for w, state in states},
        engine,
        request.options["aul_threshold"],
        _estimates=tuple(estimates),
        ci_level=level,
        _resampled=resampled[0] if len(resampled) == 1 else {},  # curves have bands by one unit
        counts=counts,
        coarser_units=coarser,
        label_strata=tuple(one for sample in drawn for one in sample.strata),
        labels=count_labelled(request, labels),
        slice_estimates=tuple(slice_estimates),
        _sliced=slices if slicing.keys else None,
    )


def count_labelled(request: Request, labels: LabelCounts) -> dict[str, int]:
    """The labelled rows and the positives among them; empty if no row without a label counts."""
    if not (request.design or request.late or (labels.null and labels.spec.nulls == "size")):
        return {}
    return {"labelled_rows": labels.neg + labels.pos, "labelled_positives": labels.pos}


def _count_dropped(labels: LabelCounts, states: Sequence[tuple[MetricRequest, State]]) -> dict[str, int]:
    """Rows left out, by reason."""
    dropped = {}
    counted_anyway = labels.spec.nulls == "size" and all(w.spec.traits.unlabelled for w, _ in states)
    if labels.spec.column is not None and not counted_anyway:
        dropped["null label" if labels.spec.nulls == "drop" else "null label (score metrics)"] = labels.null
    if labels.spec.complete:
        dropped[f"NaN or null in one of {', '.join(labels.spec.complete)}"] = labels.incomplete
    for w, state in states:
        for reason, rows in w.family.counted(w, state).dropped:
            dropped.setdefault(reason, rows)  # a second state of the column may count only a sample
    return dropped


def as_labelled(results: Sequence[Scalar], labels: LabelCounts, *, late: bool = False) -> Sequence[Scalar]:
    """Adjust results to the labels: an absent `pos_label` becomes the reason; without labels, `positives` is None.

    With `late` labels for some of the rows, values that use labels say that they are of these rows.
    """
    if late and labels.null:
        share = (labels.neg + labels.pos) / (labels.neg + labels.pos + labels.null)
        results = [
            result
            if result.positives is None
            else replace(result, basis="labelled rows", labelled_share=share if result.slice is None else None)
            for result in results
        ]
    if not labels.pos and labels.spec.pos_label is not None:
        absent = f"no row has the label {labels.spec.pos_label!r}"
        results = [replace(result, reason=absent) if result.reason else result for result in results]
    if labels.spec.column is None:
        results = [replace(result, positives=None) for result in results]
    return results


def check_labels(labels: LabelCounts, where: str, skipped: Sequence[tuple[str, str]], filtered: str = "") -> None:
    """Raise `LabelError` if the labels cannot be evaluated, `MissingInputError` if there are no rows."""
    try:
        labels.check()
    except LabelError as error:
        raise LabelError(f"{where}: {error}") from None
    if not labels.seen:
        reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
        raise MissingInputError(
            f"no row meets where: {filtered}" if filtered else f"there are no rows to evaluate{reason}"
        )
