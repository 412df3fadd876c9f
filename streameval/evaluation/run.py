"""A run of `evaluate`: plan, read, finalize."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.engine import Engine, start
from streameval.engine.fold import Plan
from streameval.errors import SchemaError
from streameval.evaluation.families import planned
from streameval.evaluation.finalize import finalize_all
from streameval.evaluation.intervals import folded_specs
from streameval.evaluation.sharing import shared
from streameval.evaluation.source import source_of
from streameval.options import recorded
from streameval.scan.fields import without_views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine.fold import Folded
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.request import Request
    from streameval.evaluation.result import Evaluation

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
