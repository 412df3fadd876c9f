"""A run of `evaluate`: plan, read, finalize the folded states, and assemble the evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.engine import Engine, start
from streameval.engine.fold import Plan
from streameval.errors import LabelError, MissingInputError, SchemaError
from streameval.evaluation.families import planned
from streameval.evaluation.intervals import (
    counted,
    differences,
    estimated,
    finalized,
    folded_specs,
    resampled_states,
    sliced_blocks,
)
from streameval.evaluation.request import LEVEL, NO_INTERVALS
from streameval.evaluation.result import Evaluation
from streameval.evaluation.sharing import from_one_sweep, shared
from streameval.evaluation.slice_intervals import SampledSlices, sampled_slices
from streameval.evaluation.slices import SlicedStates, slice_results, sweep
from streameval.evaluation.slicing import WHOLE
from streameval.evaluation.source import source_of
from streameval.options import recorded
from streameval.scan.columns import without_views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine.fold import Folded
    from streameval.evaluation.family import MetricRequest
    from streameval.evaluation.request import Request


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.engine.fold import Folded
    from streameval.evaluation.family import MetricRequest
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.request import Resampling
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


_ENGINE = ("memory", "spill", "threads", "client", "scheduler_timeout", "progress")


@dataclass(frozen=True)
class Run:
    """A planned run.

    Attributes
    ----------
    data, request : the arguments of `evaluate`
    engine : where tasks run
    found : the scan, after pruning by the filter
    wanted : the states to build, with their metrics
    plan : what to fold
    pruned : what the filter ruled out; None without a filter
    """

    data: Any
    request: Request
    engine: Engine
    found: scan.Scan
    wanted: list[MetricRequest]
    plan: Plan
    pruned: scan.Pruned | None = None

    @classmethod
    def of(cls, data: Any, request: Request, *, estimate: bool) -> Run:
        """Plan a request on a new engine; with `estimate`, the number of rows may be estimated from object sizes."""
        engine = start(**{name: request.options[name] for name in _ENGINE})
        found = _scanned(data, request, engine, estimate=estimate and not request.reads_footers)
        where = None if request.where is None else request.where.bound(found.schema, found.pieces[0].name)
        found, pruned = (found, None) if where is None else scan.prune(found, where)
        request.slicing.check(found.schema, found.pieces[0].name)
        request.resampling.check(found.schema, found.pieces[0].name)
        try:
            wanted = shared(planned(request, found), request, found.schema)
        except SchemaError:
            if not found.estimated:
                raise
            return cls.of(data, request, estimate=False)
        engine.check(metric for w in wanted if w.family.sharded for metric in w.computed)
        return cls(data, request, engine, found, wanted, _plan(request, found, wanted, where), pruned)

    def again(self) -> Run:
        """The same run, planned with all footers read."""
        return self.of(self.data, self.request, estimate=False)

    def finish(self) -> Evaluation:
        """Read the data and compute the results."""
        try:
            folded, wanted = self._read()
            names = [piece.name for piece in self.found.pieces]
            folded.states[self.plan.label].check_found(names[0] if len(set(names)) == 1 else f"all of {names[0]}, …")
            result = finalize_all(
                self.engine,
                names,
                self.plan,
                wanted,
                folded,
                threshold=self.request.options["aul_threshold"],
                slicing=self.request.slicing,
                resampling=self.request.resampling,
                filtered=self.request.where.text if self.request.where else "",
            )
            source = source_of(self.data, self.found.pieces, self.request.options)
            return replace(result, options=recorded(self.request.options), source=source)
        except BaseException:
            self.engine.progress.cancel()
            raise

    def _read(self) -> tuple[Folded, list[MetricRequest]]:
        """Fold the states; the specs of samples may change if they take a second pass."""
        found, wanted = self.found, self.wanted
        if self.request.sampling:
            sampled = {w.spec: w.metrics for w in wanted if w.group == "sample"}
            folded, made = self.request.sampling.fold(found, self.plan, sampled, self.engine.read)
            wanted = [w.remade(*made[w.spec]) if w.spec in made else w for w in wanted]
        else:
            folded = self.engine.read(found.pieces, found.rows, self.plan)
        return replace(folded, skipped=(*found.skipped, *folded.skipped)), wanted


def _scanned(data: Any, request: Request, engine: Engine, *, estimate: bool) -> scan.Scan:
    """The inputs, with the columns of the request cast to types that can be folded."""
    found = request.scan(
        data,
        on_error=request.options["on_error"],
        delta_version=request.options["delta_version"],
        threads=engine.threads,
        compute=engine.compute,
        estimate=estimate,
    )
    return replace(found, schema=without_views(found.schema))


def _plan(request: Request, found: scan.Scan, wanted: Sequence[MetricRequest], where: Any) -> Plan:
    """The states to fold for metrics, slices and blocks, without duplicates."""
    return Plan(
        found.schema,
        request.label,
        request.weight,
        folded_specs(wanted, request.resampling, request.slicing),
        request.options["on_error"] == "skip",
        where=where,
        derived=request.slicing.derived(found.schema),
    )
