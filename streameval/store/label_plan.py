"""Plan which rows to label, from a pilot in the data or in a store; `streameval.evaluation.labels.plan` draws them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.errors import OptionError
from streameval.evaluation.files import Files
from streameval.evaluation.labels.plan import Pilot
from streameval.evaluation.request import Request
from streameval.options import complete_options
from streameval.scan import Where
from streameval.scan.derived import IdName
from streameval.store.context import StoreContext
from streameval.store.files.location import Location
from streameval.store.nights.merge import Nights
from streameval.wording import explains_arguments, few, unknown_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.evaluation.labels.plan import LabelPlan


@explains_arguments
def plan_labels(
    data: Any,
    *,
    id: str,  # noqa: A002 - public name, as --id
    score: str,
    for_: str | Sequence[str],
    pilot: str | os.PathLike[str] | None = None,
    label: str = "label",
    budget: int = 1000,
    pos_label: bool | int | float | str | None = None,
    where: Any = None,
    delta_version: int | None = None,
    snapshot: int | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LabelPlan:
    """Plan which rows to label, so that a metric of all rows gets a narrow interval.

    Parameters
    ----------
    data : see `streameval.evaluate`; read twice, or once if the pilot is in a store
    id : str
        Column of unique ids of rows: integers, strings or binaries.
    score : str
        The score column; rows with a null or NaN score are not drawn.
    for_ : str or sequence of str
        The metrics, such as ``"precision@threshold=0.8"``; with ``"roc_auc"`` among several, half of the budget is for
        that.
    pilot : path or URI, optional
        A store with the labels of a pilot, created with ``sampled_by="uniform"``; `data` then needs no labels.
    label : str
        Column of the pilot in `data`: labels of a uniform sample of rows, null for all others.
    budget : int
        Number of labels; exceeded where strata need the least number.
    pos_label, where, delta_version, snapshot, memory, spill, threads, progress
        See `streameval.evaluate`.

    Returns
    -------
    LabelPlan

    Raises
    ------
    NullError
        If an id is null.
    LabelError
        If an id repeats among the rows with the smallest hashes of their strata, those to label and others up to the
        budget, or there are no labels. One scan does not show every repeat: `evaluate` refuses labels of several rows.
        A repeated id that is not drawn does no harm.
    StreamevalError
        See `streameval.errors`.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(20_000)
    >>> labels = pa.array((rng.random(20_000) < scores).astype(int), mask=rng.random(20_000) > 0.05)
    >>> data = pa.table({"id": np.arange(20_000), "score": scores, "label": labels})
    >>> plan = plan_labels(data, id="id", score="score", for_="precision@threshold=0.9", budget=500)
    >>> plan.ids.column_names, plan.strata[0]["labels"] / plan.strata[0]["rows"] > 0.05
    (['id', 'stratum', 'probability'], True)
    """
    given = {name: value for name, value in locals().items() if name not in ("data", "progress")}
    options = complete_options(given | {"pilot": pilot if pilot is None else os.fspath(pilot)}, "plan_labels")
    run: dict[str, Any] = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
    test = None if where is None else Where.of(getattr(options["where"], "value", options["where"]))
    columns = list(dict.fromkeys((IdName(id), score, *(test.columns if test else ()))))
    if pilot is not None:
        for name in ["label"] * (label != "label") + ["pos_label"] * (pos_label is not None):
            raise OptionError(
                f"{name} would change nothing: the labels of the pilot are in its store; leave it out", name
            )
        context = StoreContext(Location.of(pilot, None), None, run, 0.0)
        stored, configuration = context.begun()
        nights = Nights([*stored.entries.values()], configuration, context.compaction)
        drawn = _pilot_of(nights, context, score, options["for_"])
    else:
        named: dict[str, Any] = {"label": label, "pos_label": pos_label, "where": where, "score": score, "nan": "drop"}
        named |= {"delta_version": delta_version, "snapshot": snapshot}
        request = Request.checked(run | named | {"metrics": for_, "sampled_by": "uniform"})
        files = Files.requested(data, request)
        with files.engine.progress:
            [wanted], folded = files.states(request)
            drawn = Pilot.of(files.engine, wanted, folded.states[wanted.spec])
    threads = drawn.engine.budget.threads
    scanned = scan.plan(data, columns, where=test, threads=threads, delta_version=delta_version, snapshot=snapshot)
    widened = scanned if pilot is None else configuration.widen_columns(scanned)
    return drawn.plan(widened, test, id, budget, options)


def _pilot_of(nights: Nights, context: StoreContext, score: str, metrics: Sequence[str]) -> Pilot:
    """The pilot of nights.

    Raises
    ------
    OptionError
        If the labels of the store are no uniform sample, or it lacks the score.
    """
    configuration = nights.configuration
    design, scores = configuration.design, configuration.options["score"]
    if design is None or design.text != "uniform":
        drawn = design.text if design else "labels of no known sample"
        raise OptionError(
            f"pilot: {context.location.name} has {drawn}; the labels of a pilot are a uniform sample: create its store "
            "with sampled_by='uniform' (update --sampled-by uniform)",
            "pilot",
        )
    if score not in scores:
        raise OptionError(f"pilot: {unknown_column(score, list(scores), 'the scores of the store are')}", "score")
    [wanted] = nights.requests(configuration.request(score=(score,), metrics=tuple(metrics), truncate=(), at=()))
    if lacking := nights.lacking(wanted.group, score):
        raise OptionError(f"pilot: no {score} in {few(lacking)}; add it to these nights (add)", "pilot")
    engine = context.engine()
    return Pilot.of(engine, wanted, nights.merged(engine, wanted))
